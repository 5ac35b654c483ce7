/* backward_mma.h: the backward pass with mma.sync, for sm_80 and later, as two kernels: fk_backward_dkv adds to dK and
 * dV of key items, fk_backward_dq adds to dQ of row items.
 *
 * Two kernels cost seven products instead of five, since both compute S and dP. In return a sum of dQ belongs to one
 * CTA, and more head sizes fit: a kernel for all three would not have enough registers.
 *
 * Requires: backward_steps.h; K and V of the visits in their slots; LSE and delta of their rows; sums that hold
 *           numbers.
 * Bits:     any grid gives the same bits. A sum of dQ belongs to one CTA, which adds in the order of the work list.
 *           Pieces that share keys add to dK and dV in turn, in the order of the list, as in the ordered kernel
 *           (backward_ordered_mma.h); so it needs locks and a counter, all 0.
 * Grid:     any number of CTAs. For dQ there are item_count * parts * query heads pieces of work. For dK and dV the
 *           pieces are those of the ordered kernel, times parts; CTAs take them from the counter.
 * Shared:   what stays (K and V, or Q and dO), and two buffers for what streams by: one is read while the other fills.
 * Source:   the backward pass of FlashAttention-2, split in two.
 */

/* --- dK and dV ---------------------------------------------------------------------------------------------------- */

FK_DEVICE void fk_dkv_piece(const fk_launch *p, const fk_key_piece *piece, fk_u32 part) {
    const fk_key_item *item = piece->item;
    fk_u32 first = part * FK_K_KEYS, kv_head = piece->kv_head, head = piece->first, buffer = 0;
    if (first >= item->count) return;
    fk_env env = fk_env_of(p, item->sequence);
    fk_u32 keys = item->count - first;
    const fk_row_run *runs = (const fk_row_run *)p->runs + item->first;
    fk_dkv_sums x;
    fk_step step = {0, 0};
    int more = 1, idle = fk_warp() % FK_K_BANDS * 16 >= keys; /* a warp without keys only helps to copy */
    if (FK_BY_HEAD) head = fk_run_head(runs, head, head, p->group);
    fk_dkv_open(p, item, runs, first, kv_head, head, &x);
    while (more) {
        fk_step now = step;
        fk_u32 now_head = head;
        more = fk_next_rows(&step, &head, FK_K_STEP, runs[step.run].count, item->runs, runs, piece->first, piece->heads); // cost: step
        fk_cp_async_wait();
        fk_sync(); /* this step is there, and everybody has read the one before */
        if (more) fk_dkv_copy(p, runs + step.run, step.at, head, 1 - buffer, 1);
        if (!idle)
            fk_dkv_step(p, &env, item->position + first, keys, runs + now.run, now.at, now_head, buffer,
                        fk_dkv_do(buffer), 0, &x);
        buffer = 1 - buffer;
    }
    fk_dkv_end(p, piece, part, &x, 1);
}

FK_KERNEL(fk_backward_dkv, FK_K_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    const fk_launch *p = &launch;
    FK_WATCH();
    fk_begin(p->mark, p->mark_value);
    const fk_u32 parts = FK_DKV_PARTS(FK_HEAD_DIM), ticket = fk_dkv_numbers(0, 0);
    for (;;) {
        fk_sync(); /* everybody has read the LSE of the last step */
        if (fk_thread() == 0) fk_store_shared_bits(ticket, fk_fetch_increment(p->counter));
        fk_sync();
        fk_u32 i = fk_load_shared_bits(ticket);
        const fk_key_piece piece = fk_key_piece_of(p, i / parts);
        if (!piece.item) break;
        fk_dkv_piece(p, &piece, i % parts);
    }
}

/* --- dQ ----------------------------------------------------------------------------------------------------------- */

enum {
    FK_Q_THREADS = FK_DQ_WARPS(FK_HEAD_DIM) * 32,
    FK_Q_ROWS = FK_DQ_ROWS(FK_HEAD_DIM),
    FK_Q_STEP = FK_DQ_KEYS(FK_HEAD_DIM),
    FK_Q_COLUMNS = FK_Q_STEP / 8
};

/* Where things are in shared memory: Q, dO, then two buffers of K and V. */
FK_DEVICE fk_u32 fk_dq_q(void) { return fk_shared(); }
FK_DEVICE fk_u32 fk_dq_do(void) { return fk_dq_q() + FK_Q_ROWS * FK_ROW_BYTES; }
FK_DEVICE fk_u32 fk_dq_k(fk_u32 buffer) {
    return fk_dq_do() + FK_Q_ROWS * FK_VALUE_BYTES + buffer * FK_Q_STEP * (FK_ROW_BYTES + FK_VALUE_BYTES);
}
FK_DEVICE fk_u32 fk_dq_v(fk_u32 buffer) { return fk_dq_k(buffer) + FK_Q_STEP * FK_ROW_BYTES; }

FK_DEVICE void fk_dq_copy(const fk_launch *p, const fk_key_run *run, fk_u32 at, fk_u32 kv_head, fk_u32 buffer) {
    fk_u64 k = p->arena + run->k + at * fk_k_stride(p) + (fk_u64)kv_head * FK_ROW_BYTES;
    fk_u64 v = p->arena + run->v + at * fk_v_stride(p) + (fk_u64)kv_head * FK_VALUE_BYTES;
    fk_copy_tile(fk_dq_k(buffer), FK_CHUNKS, FK_Q_STEP, FK_Q_THREADS, k, fk_k_stride(p), run->count - at);
    fk_copy_tile(fk_dq_v(buffer), FK_VALUE_CHUNKS, FK_Q_STEP, FK_Q_THREADS, v, fk_v_stride(p), run->count - at);
}

FK_DEVICE void fk_dq_step(const fk_launch *p, const fk_env *env, fk_i64 row, const fk_key_run *run, fk_u32 at,
                          fk_u32 head, fk_u32 buffer, const fk_row_numbers *rows, fk_u32 far, float (*sums)[4]) {
    fk_u32 t = fk_lane() % 4 * 2, keys = run->count - at < FK_Q_STEP ? run->count - at : FK_Q_STEP;
    float s[FK_Q_COLUMNS][4], g[FK_Q_COLUMNS][4];
    fk_u32 packed[FK_Q_COLUMNS][2];
    int whole = run->cls == FK_FULL && keys == FK_Q_STEP;
    fk_i64 key = run->position + at + t;
    fk_u32 allowed[2] = {~0u, ~0u};
    if (!whole)
        fk_mask_bits(env, run->cls == FK_PARTIAL, 0, FK_Q_COLUMNS, row, key, keys, head, allowed); // cost: PARTIAL
    fk_rows_by_rows(s, FK_Q_COLUMNS, FK_CHUNKS, fk_dq_q(), fk_warp() * 16, fk_dq_k(buffer));
    if (far) {
        const float per_logit = fk_per_logit(p); // cost: seldom
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_Q_COLUMNS; j++)
            FK_UNROLL
            for (fk_u32 i = 0; i < 4; i++)
                s[j][i] = fk_minus(p, s[j][i], rows[i / 2].minus, per_logit); // cost: seldom
    }
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_Q_COLUMNS; j++)
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) {
            float slope;
            float weight = fk_weight(p, env, s[j][i], rows[i / 2].minus, rows[i / 2].base, row + i / 2 * 8,
                                     key + j * 8 + i % 2, head, &slope);
            s[j][i] = fk_times(fk_mask_bit(allowed, i / 2, j, i % 2) ? weight : 0, slope);
        }
    fk_rows_by_rows(g, FK_Q_COLUMNS, FK_VALUE_CHUNKS, fk_dq_do(), fk_warp() * 16, fk_dq_v(buffer));
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_Q_COLUMNS; j++) {
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) g[j][i] = fk_gradient(s[j][i], g[j][i], rows[i / 2].delta);
        packed[j][0] = fk_pack(g[j][0], g[j][1]);
        packed[j][1] = fk_pack(g[j][2], g[j][3]);
    }
    fk_packed_by_columns(sums, FK_CHUNKS, 1, 0, (const fk_u32 (*)[2])packed, FK_Q_COLUMNS, fk_dq_k(buffer));
}

FK_DEVICE void fk_dq_item(const fk_launch *p, const fk_row_item *item, fk_u32 part, fk_u32 head) {
    fk_u32 first = part * FK_Q_ROWS, kv_head = head / p->group, buffer = 0;
    if (first >= item->count) return;
    fk_env env = fk_env_of(p, item->sequence);
    fk_u32 rows = item->count - first, row = fk_warp() * 16 + fk_lane() / 4;
    fk_u64 token = item->token + first;
    const fk_key_run *runs = (const fk_key_run *)p->runs + item->first;
    float sums[FK_CHUNKS][4];
    fk_row_numbers numbers[2];
    fk_step step = {0, 0};
    int more = 1, idle = fk_warp() * 16 >= rows; /* a warp without rows only helps to copy */
    fk_sync(); /* everybody has read the tiles of the item before */
    fk_copy_tile(fk_dq_q(), FK_CHUNKS, FK_Q_ROWS, FK_Q_THREADS, fk_row(p, p->q, token, head, FK_ROW_BYTES),
                 fk_q_stride(p), rows);
    fk_copy_tile(fk_dq_do(), FK_VALUE_CHUNKS, FK_Q_ROWS, FK_Q_THREADS, fk_row(p, p->d_o, token, head, FK_VALUE_BYTES),
                 fk_o_stride(p), rows);
    fk_dq_copy(p, runs, 0, kv_head, 0);
    FK_UNROLL
    for (fk_u32 half = 0; half < 2; half++)
        numbers[half] = fk_row_numbers_at(p, token + row + half * 8, head, row + half * 8 < rows);
    const fk_u32 far = FK_HAS_SCORE ? 0 : fk_any((numbers[0].minus != 0) | (numbers[1].minus != 0));
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_CHUNKS; j++) sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0;
    while (more) {
        fk_step now = step;
        more = fk_advance(&step, FK_Q_STEP, runs[step.run].count, item->runs); // cost: step
        fk_cp_async_wait();
        fk_sync(); /* this step is there, and everybody has read the one before */
        if (more) fk_dq_copy(p, runs + step.run, step.at, kv_head, 1 - buffer);
        if (!idle)
            fk_dq_step(p, &env, item->position + first + row, runs + now.run, now.at, head, buffer, numbers, far, sums);
        buffer = 1 - buffer;
    }
    fk_add_sums(fk_row(p, p->dq, item->out + first, head, FK_HEAD_DIM * 4), fk_q_stride(p) * 2, fk_warp() * 16, rows,
                p->scale, FK_CHUNKS, 1, (const float (*)[4])sums);
}

FK_KERNEL(fk_backward_dq, FK_Q_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    const fk_launch *p = &launch;
    FK_WATCH();
    fk_begin(p->mark, p->mark_value);
    const fk_u32 parts = FK_DQ_PARTS(FK_HEAD_DIM);
    fk_u32 heads = fk_each(p->head_count * p->group), work = p->item_count * parts * heads;
    for (fk_u32 n = 0, i; (i = fk_piece(n)) < work; n++)
        fk_dq_item(p, (const fk_row_item *)p->items + i / heads / parts, i / heads % parts,
                   fk_row_head(p, i, heads, parts));
}
