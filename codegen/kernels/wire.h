/* wire.h: rounds partial results that travel in bf16, and makes fp32 of them where they arrive. A part of a source only
 * where the plan says `wire = bf16`. bf16 is that of the wire, whatever type the tensors have.
 *
 * Requires: common.h; arrays of an even count of numbers that lie next to each other.
 * Gives:    what each kernel's comment says.
 * Grid:     any number of blocks of FK_SUPPORT_THREADS. No two threads touch the same number.
 * Cost:     everything is read once and written once.
 */

/* to = from, rounded to bf16, for `count` numbers. */
FK_KERNEL(fk_narrow, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_blocks() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_block() * FK_SUPPORT_THREADS + fk_thread(); i < p->count / 2; i += step) {
        float a[2];
        fk_load2(a, p->from + i * 8);
        fk_store_bits(p->to + i * 4, fk_pack_bf16(a[0], a[1])); // cost: step
    }
}

/* to = from, of which `count` numbers are in bf16, in fp32. */
FK_KERNEL(fk_widen, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_blocks() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_block() * FK_SUPPORT_THREADS + fk_thread(); i < p->count / 2; i += step) {
        float a[2];
        fk_unpack_bf16(a, fk_load_bits(p->from + i * 4));
        fk_store2(p->to + i * 8, a[0], a[1]); // cost: step
    }
}
