/* wire.h: partial results that travel in bf16: fk_narrow rounds them for the message, fk_widen makes fp32 of what has
 * arrived. A source has these kernels only if the plan says `wire = bf16`; the tensors may still be fp16.
 *
 * Requires: common.h; arrays of an even count of numbers that lie next to each other.
 * Grid:     any number of CTAs of FK_SUPPORT_THREADS. No two threads touch the same number.
 * Cost:     everything is read once and written once.
 */

/* to = from, rounded to bf16, for `count` numbers. */
FK_KERNEL(fk_narrow, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < p->count / 2; i += step) {
        float a[2];
        fk_load2(a, p->from + i * 8);
        fk_store_bits(p->to + i * 4, fk_pack_bf16(a[0], a[1])); // cost: step
    }
}

/* to = from, of which `count` numbers are in bf16, in fp32. */
FK_KERNEL(fk_widen, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_support launch) {
    const fk_support *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u64 step = (fk_u64)fk_ctas() * FK_SUPPORT_THREADS;
    for (fk_u64 i = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < p->count / 2; i += step) {
        float a[2];
        fk_unpack_bf16(a, fk_load_bits(p->from + i * 4));
        fk_store2(p->to + i * 8, a[0], a[1]); // cost: step
    }
}
