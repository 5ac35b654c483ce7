/* backward_ordered_mma.h: the backward pass with mma.sync in one kernel of five products, for sm_80 and later and
 * head_dim up to 128. It adds to dK, dV and dQ.
 *
 * Several items add to the same dQ: a row of Q that sees 1024 keys meets eight items of 128 keys. The file becomes one
 * of two kernels, which differ in the order of these additions.
 *   FK_ORDERED 1, fk_backward_ordered     in the order of the work list, FK_TURN_ROWS rows at a time. The lock of these
 *       rows and head counts how many runs have added, and a run waits until all runs of these rows that stand before
 *       it in the list have. Pieces that share keys add to dK and dV likewise. A piece waits only for pieces that were
 *       taken before it, so the oldest piece under way never waits: no grid deadlocks, and any gives the same bits.
 *   FK_ORDERED 0, fk_backward_unordered   by atomics, when a part is ready, without waiting. Then only the dK and dV of
 *       keys that belong to a single piece have the same bits every time.
 *
 * Requires: backward_steps.h; a counter that is 0; if ordered, locks that are 0, and runs of one row of cells each with
 *           their turns. The file may be included again, to have another kernel.
 * Grid:     any number of CTAs. Each takes its next piece of work from the counter: an item, a KV head, and all or some
 *           query heads of its group. (By head, an item is of one KV head and all heads of its group.)
 * Waits:    fused, every thread waits for the piece's flags before it copies anything of the piece.
 * Shared:   as fk_backward_dkv, and dS of the step, which the warps compute by keys and read by rows. With FK_DO_BUFFERS
 *           1 instead of 2, dO has one buffer, so that the CTA fits devices with 99 KiB: dO of the next step is copied
 *           while this one computes dQ, which does not read dO.
 * Source:   the backward pass of FlashAttention-2; the locks are the semaphores of its deterministic mode, in the order
 *           of the work list.
 */
#if FK_HAS_ORDERED(FK_HEAD_DIM)
#ifndef FK_BACKWARD_JOINT
#define FK_BACKWARD_JOINT

enum {
    FK_O_BANDS = FK_K_STEP / 16,
    FK_O_MOST = FK_DKV_WARPS(FK_HEAD_DIM) / FK_O_BANDS, /* warps that a band may have: 2, 4 or 8 */
    FK_O_PAIRS = FK_CHUNKS / 2,
    /* how many it has: each gets as many chunks, an even number */
    FK_O_SPLIT = FK_O_PAIRS < FK_O_MOST ? FK_O_PAIRS : FK_O_PAIRS % FK_O_MOST ? FK_O_MOST / 4 * 3 : FK_O_MOST,
    FK_O_CHUNKS = FK_CHUNKS / FK_O_SPLIT
};

/* Places in shared memory: dS, which is where the second buffer of dO is not, or behind all else; and the ticket. */
FK_DEVICE fk_u32 fk_joint_ds(const int do_buffers) { return do_buffers == 1 ? fk_dkv_do(1) : fk_dkv_numbers(2, 0); }
FK_DEVICE fk_u32 fk_joint_ticket(const int do_buffers) {
    return fk_dkv_numbers(2, 0) + (do_buffers == 1 ? 0 : FK_K_KEYS * FK_K_STEP * 2);
}

/* c = band `band` of 16 rows of the dS at ds_tile times the item's K, columns 8 (chunk + j) .. */
FK_DEVICE void fk_joint_product(float (*c)[4], fk_u32 band, fk_u32 chunk, fk_u32 ds_tile) {
    fk_u32 lane = fk_lane(), corner = fk_fragment_beside(fk_fragment_at(fk_dkv_k(), FK_CHUNKS, 0), FK_CHUNKS, 0, chunk);
    fk_u32 ds_corner = fk_ds_at(ds_tile, lane / 16 * 8 + lane % 8, band * 2 + lane / 8 % 2);
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_O_CHUNKS; j++) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
    FK_UNROLL_SOME
    for (fk_u32 k = 0; k < FK_K_KEYS; k += 16) {
        fk_u32 a[4];
        fk_ldmatrix_trans(a, ds_corner + k * FK_K_STEP * 2);
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_O_CHUNKS; j += 2) {
            fk_u32 b[4];
            fk_ldmatrix_trans(b, fk_fragment_beside(corner, FK_CHUNKS, k, j));
            fk_mma(c[j], a, b[0], b[1]);
            fk_mma(c[j + 1], a, b[2], b[3]);
        }
    }
}

/* Computes the step's part of dQ from dS and adds it, in its turn or at once. If `next` is not 0, dO of the next step
 * is copied meanwhile: of rows next_at .. of that run, of head next_head. */
FK_DEVICE void fk_joint_dq(const fk_launch *p, const fk_row_run *run, fk_u32 at, fk_u32 head, fk_u32 ds_tile,
                           const int ordered, const fk_row_run *next, fk_u32 next_at, fk_u32 next_head) {
    fk_u32 band = fk_warp() % FK_O_BANDS, chunk = fk_warp() / FK_O_BANDS * FK_O_CHUNKS, count = run->count - at;
    fk_u64 to = fk_row(p, p->dq, run->out + at, head, FK_HEAD_DIM * 4) + chunk * 32;
    int idle = fk_warp() >= FK_O_BANDS * FK_O_SPLIT;
    float c[FK_O_CHUNKS][4];
    fk_sync(); /* dS is there, and everybody has read dO */
    if (next) fk_dkv_copy_do(p, (fk_u64)next->token + next_at, next->count - next_at, next_head, 0);
    if (!idle) fk_joint_product(c, band, chunk, ds_tile);
    if (!ordered) {
        if (!idle)
            fk_add_sums_atomically(to, fk_q_stride(p) * 2, band * 16, count, p->scale, FK_O_CHUNKS, 1,
                                   (const float(*)[4])c, 0);
        return;
    }
    fk_u64 lock = fk_row_lock(p, run, head, at);
    if (at % FK_TURN_ROWS == 0) {
        if (fk_thread() == 0) fk_acquire(lock, run->turn);
        fk_sync(); /* it is the turn of these rows */
    }
    if (!idle) fk_add_sums(to, fk_q_stride(p) * 2, band * 16, count, p->scale, FK_O_CHUNKS, 1, (const float(*)[4])c);
    if (count <= FK_K_STEP || (at + FK_K_STEP) % FK_TURN_ROWS == 0) {
        fk_sync(); /* their sums are written */
        if (fk_thread() == 0) fk_release(lock, run->turn + 1);
    }
}

FK_DEVICE void fk_joint_piece(const fk_launch *p, const fk_key_piece *piece, const int ordered, const int do_buffers) {
    const fk_key_item *item = piece->item;
    fk_u32 kv_head = piece->kv_head, head = piece->first, buffer = 0, keys = item->count;
    fk_u32 ds_tile = fk_joint_ds(do_buffers);
    fk_env env = fk_env_of(p, item->sequence);
    const fk_row_run *runs = (const fk_row_run *)p->runs + item->first;
    fk_u32 band = fk_warp();
    fk_dkv_sums x;
    fk_step step = {0, 0};
    int more = 1, idle = band * 16 >= keys; /* a warp without keys computes nothing; its dS is 0 */
    if (FK_BY_HEAD) head = fk_run_head(runs, head, head, p->group);
    fk_dkv_open(p, item, runs, 0, kv_head, head, &x);
    if (idle)
        for (fk_u32 i = fk_lane(); i < 16 * FK_K_STEP / 2; i += 32)
            fk_store_shared_bits(ds_tile + band * 16 * FK_K_STEP * 2 + i * 4, 0);
    while (more) {
        fk_step now = step;
        fk_u32 now_head = head;
        more = fk_next_rows(&step, &head, FK_K_STEP, runs[step.run].count, item->runs, runs, piece->first, piece->heads); // cost: step
        fk_cp_async_wait();
        fk_sync(); /* this step is there, and everybody has read the one before */
        if (more) fk_dkv_copy(p, runs + step.run, step.at, head, 1 - buffer, do_buffers == 2);
        if (!idle)
            fk_dkv_step(p, &env, item->position, keys, runs + now.run, now.at, now_head, buffer,
                        fk_dkv_do(do_buffers == 1 ? 0 : buffer), ds_tile, &x);
        const fk_row_run *next = more && do_buffers == 1 ? runs + step.run : 0;
        fk_joint_dq(p, runs + now.run, now.at, now_head, ds_tile, ordered, next, step.at, head);
        buffer = 1 - buffer;
    }
    fk_dkv_end(p, piece, 0, &x, ordered);
}

FK_DEVICE void fk_joint_work(const fk_launch *p, const int ordered, const int do_buffers) {
    const fk_u32 ticket = fk_joint_ticket(do_buffers);
    FK_WATCH();
    fk_begin(p->mark, p->mark_value);
    for (;;) {
        fk_sync(); /* everybody has read the ticket before */
        if (fk_thread() == 0) fk_store_shared_bits(ticket, fk_fetch_increment(p->counter));
        fk_sync();
        const fk_key_piece piece = fk_key_piece_of(p, fk_load_shared_bits(ticket));
        if (!piece.item) break;
        if (FK_FUSED) fk_key_arrival(p, piece.item);
        fk_joint_piece(p, &piece, ordered, do_buffers);
    }
}
#endif

#if FK_ORDERED
FK_KERNEL(fk_backward_ordered, FK_K_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    fk_joint_work(&launch, 1, FK_DO_BUFFERS);
}
#else
FK_KERNEL(fk_backward_unordered, FK_K_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    fk_joint_work(&launch, 0, FK_DO_BUFFERS);
}
#endif
#endif
