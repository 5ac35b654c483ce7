/* backward_mma.h: the backward pass on mma.sync, sm_80 and later, as two kernels: dK and dV by keys, dQ by rows.
 *
 * Requires: common.h; K and V of the visits in their slots; LSE and delta of their rows; sums that hold numbers.
 * Gives:    fk_backward_dkv adds to the sums dK and dV of its key items, fk_backward_dq to dQ of its row items. Each sum
 *           belongs to one block of a launch, which adds in the order of the work list: the same bits on any grid.
 * Grid:     any number of blocks; item_count * parts * heads pieces of work (dKV: head_count KV heads; dQ: query heads).
 * Shared:   what stays (K and V, or Q and dO), and two buffers for what streams by: one is read while the other fills.
 * Source:   FlashAttention-2's backward pass, split in two so that nothing is added to from two sides; seven products for
 *           five. Scores are computed transposed for dK and dV, so that P and dS never leave their registers.
 *
 * P = 2^(s - LSE), selected 0 where a pair does not count or a row has seen nothing; dS = P (dP - delta) times the score's
 * slope. Both are rounded to the input type; the scale is applied to the sums.
 */

/* P of a scaled product; *slope is the score's slope. row_lse: of the number's row, in log2 units. */
FK_DEVICE float fk_weight(const fk_launch *p, const fk_env *env, float s, float row_lse, int counts, fk_i64 q, fk_i64 k,
                          fk_u32 head, float *slope) {
#if FK_HAS_SCORE
    float natural = s * p->scale, x = fk_score(env, natural, q, k, head) * FK_LOG2E;
    *slope = fk_slope(env, natural, q, k, head);
#else
    float x = s * p->scale_log2;
    (void)env, (void)q, (void)k, (void)head;
    *slope = 1;
#endif
    return counts && row_lse != -fk_infinity() ? fk_exp2(x - row_lse) : 0;
}
/* P times the slope, and dS from that. What does not count has 0, and its slope and dP may be anything. */
FK_DEVICE float fk_times(float weight, float slope) { return weight == 0 ? 0 : weight * slope; }
FK_DEVICE float fk_gradient(float weight, float d_p, float delta) { return weight == 0 ? 0 : weight * (d_p - delta); }

/* to[row][..] += scale * c: 16 x 8 columns of sums, of which the first `count` rows are there, `stride` bytes apart. */
FK_DEVICE void fk_add_sums(fk_u64 to, fk_u64 stride, fk_u32 row, fk_u32 count, float scale, fk_u32 columns,
                           const float (*c)[4]) {
    fk_u32 t = fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 half = 0; half < 2; half++) {
        fk_u32 at = row + fk_lane() / 4 + half * 8;
        if (at >= count) continue;
        FK_UNROLL
        for (fk_u32 j = 0; j < columns; j++) {
            float sum[2];
            fk_u64 place = to + at * stride + (j * 8 + t) * 4;
            fk_load2(sum, place);
            fk_store2(place, sum[0] + scale * c[j][half * 2], sum[1] + scale * c[j][half * 2 + 1]);
        }
    }
}

/* --- dK and dV ---------------------------------------------------------------------------------------------------- */

enum {
    FK_K_THREADS = FK_DKV_WARPS(FK_HEAD_DIM) * 32,
    FK_K_KEYS = FK_DKV_KEYS(FK_HEAD_DIM),
    FK_K_BANDS = FK_K_KEYS / 16,
    FK_K_SPLIT = FK_DKV_WARPS(FK_HEAD_DIM) / FK_K_BANDS, /* warps that share a band's keys */
    FK_K_CHUNKS = FK_CHUNKS / FK_K_SPLIT,                /* of the sums, a warp's */
    FK_K_STEP = FK_DKV_ROWS(FK_HEAD_DIM),
    FK_K_COLUMNS = FK_K_STEP / 8
};

/* Where things are in shared memory. */
FK_DEVICE fk_u32 fk_dkv_tile(fk_u32 which) { return fk_shared() + which * FK_K_KEYS * FK_ROW_BYTES; } /* K, V */
FK_DEVICE fk_u32 fk_dkv_stream(fk_u32 buffer, fk_u32 which) { /* Q, dO */
    return fk_dkv_tile(2) + (buffer * 2 + which) * FK_K_STEP * FK_ROW_BYTES;
}
FK_DEVICE fk_u32 fk_dkv_numbers(fk_u32 buffer, fk_u32 which) { /* LSE, delta */
    return fk_dkv_stream(2, 0) + (buffer * 2 + which) * FK_K_STEP * 4;
}

/* Asks for the rows of a step. Those that are not there have an LSE of -inf. */
FK_DEVICE void fk_dkv_copy(const fk_launch *p, const fk_row_run *run, fk_u32 at, fk_u32 head, fk_u32 buffer) {
    fk_u64 token = run->token + at;
    fk_copy_tile(fk_dkv_stream(buffer, 0), FK_K_STEP, FK_K_THREADS, fk_row(p, p->q, token, head, FK_ROW_BYTES),
                 fk_q_stride(p), run->count - at);
    fk_copy_tile(fk_dkv_stream(buffer, 1), FK_K_STEP, FK_K_THREADS, fk_row(p, p->d_o, token, head, FK_ROW_BYTES),
                 fk_q_stride(p), run->count - at);
    fk_u32 row = fk_thread();
    if (row < FK_K_STEP) {
        int there = row < run->count - at;
        float lse = there ? fk_load(fk_row(p, p->lse, token + row, head, 4)) * FK_LOG2E : -fk_infinity();
        float delta = there ? fk_load(fk_row(p, p->delta, token + row, head, 4)) : 0;
        fk_store_shared(fk_dkv_numbers(buffer, 0) + row * 4, lse);
        fk_store_shared(fk_dkv_numbers(buffer, 1) + row * 4, delta);
    }
}

typedef struct fk_dkv_sums {
    float k[FK_K_CHUNKS][4], v[FK_K_CHUNKS][4];
} fk_dkv_sums;

FK_DEVICE void fk_dkv_step(const fk_launch *p, const fk_env *env, fk_i64 key, const fk_row_run *run, fk_u32 at,
                           fk_u32 head, fk_u32 buffer, fk_dkv_sums *x) {
    fk_u32 band = fk_warp() % FK_K_BANDS, chunk = fk_warp() / FK_K_BANDS * FK_K_CHUNKS, t = fk_lane() % 4 * 2;
    fk_u32 q_tile = fk_dkv_stream(buffer, 0), do_tile = fk_dkv_stream(buffer, 1);
    float s[FK_K_COLUMNS][4], g[FK_K_COLUMNS][4];
    fk_u32 packed[FK_K_COLUMNS][2];
    int whole = run->cls == FK_FULL;
    fk_i64 row = run->position + at + t;
    fk_u64 counting = 0;
    key += band * 16 + fk_lane() / 4;
    if (!whole) counting = fk_counting(env, 1, 1, FK_K_COLUMNS, key, row, FK_K_STEP, head);
    fk_rows_by_rows(s, FK_K_COLUMNS, fk_dkv_tile(0), band * 16, q_tile);
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_K_COLUMNS; j++) {
        float lse[2], slopes[4];
        fk_load_shared2(lse, fk_dkv_numbers(buffer, 0) + (j * 8 + t) * 4);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) {
            int counts = whole || fk_counts(counting, FK_K_COLUMNS, i / 2, j, i % 2);
            s[j][i] = fk_weight(p, env, s[j][i], lse[i % 2], counts, row + j * 8 + i % 2, key + i / 2 * 8, head,
                                &slopes[i]);
        }
        packed[j][0] = fk_pack(s[j][0], s[j][1]);
        packed[j][1] = fk_pack(s[j][2], s[j][3]);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) s[j][i] = fk_times(s[j][i], slopes[i]);
    }
    fk_packed_by_columns(x->v, FK_K_CHUNKS, (const fk_u32 (*)[2])packed, FK_K_COLUMNS, do_tile, chunk);
    fk_rows_by_rows(g, FK_K_COLUMNS, fk_dkv_tile(1), band * 16, do_tile);
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_K_COLUMNS; j++) {
        float delta[2];
        fk_load_shared2(delta, fk_dkv_numbers(buffer, 1) + (j * 8 + t) * 4);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) g[j][i] = fk_gradient(s[j][i], g[j][i], delta[i % 2]);
        packed[j][0] = fk_pack(g[j][0], g[j][1]);
        packed[j][1] = fk_pack(g[j][2], g[j][3]);
    }
    fk_packed_by_columns(x->k, FK_K_CHUNKS, (const fk_u32 (*)[2])packed, FK_K_COLUMNS, q_tile, chunk);
}

FK_DEVICE void fk_dkv_item(const fk_launch *p, const fk_key_item *item, fk_u32 part, fk_u32 kv_head) {
    fk_u32 first = part * FK_K_KEYS, head = kv_head * p->group, last_head = head + p->group - 1, buffer = 0;
    if (first >= item->count) return;
    fk_env env = fk_env_of(p, item->sequence);
    fk_u32 keys = item->count - first;
    fk_u64 at_key = first * fk_k_stride(p) + (fk_u64)kv_head * FK_ROW_BYTES;
    const fk_row_run *runs = (const fk_row_run *)p->runs + item->first;
    fk_dkv_sums x;
    fk_step step = {0, 0};
    int more = 1, idle = fk_warp() % FK_K_BANDS * 16 >= keys; /* a warp without keys only copies */
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_K_CHUNKS; j++)
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) x.k[j][i] = x.v[j][i] = 0;
    fk_sync(); /* the item before has been read */
    fk_copy_tile(fk_dkv_tile(0), FK_K_KEYS, FK_K_THREADS, p->arena + item->k + at_key, fk_k_stride(p), keys);
    fk_copy_tile(fk_dkv_tile(1), FK_K_KEYS, FK_K_THREADS, p->arena + item->v + at_key, fk_k_stride(p), keys);
    fk_dkv_copy(p, runs, 0, head, 0);
    while (more) {
        fk_step now = step;
        fk_u32 now_head = head;
        more = fk_advance(&step, FK_K_STEP, runs[step.run].count, item->runs);
        if (!more && head < last_head) {
            step.run = step.at = 0;
            head++;
            more = 1;
        }
        fk_copy_wait();
        fk_sync(); /* this step is there, and the one before has been read */
        if (more) fk_dkv_copy(p, runs + step.run, step.at, head, 1 - buffer);
        if (!idle) fk_dkv_step(p, &env, item->position + first, runs + now.run, now.at, now_head, buffer, &x);
        buffer = 1 - buffer;
    }
    fk_u32 chunk = fk_warp() / FK_K_BANDS * FK_K_CHUNKS, band = fk_warp() % FK_K_BANDS;
    fk_u64 stride = fk_k_stride(p) * 2, at_sum = at_key * 2 + chunk * 32;
    fk_add_sums(p->arena + item->dk + at_sum, stride, band * 16, keys, p->scale, FK_K_CHUNKS, (const float (*)[4])x.k);
    fk_add_sums(p->arena + item->dv + at_sum, stride, band * 16, keys, 1, FK_K_CHUNKS, (const float (*)[4])x.v);
}

FK_KERNEL(fk_backward_dkv, FK_K_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    const fk_launch *p = &launch;
    const fk_u32 parts = FK_DKV_PARTS(FK_HEAD_DIM);
    fk_u32 heads = p->head_count, work = p->item_count * parts * heads;
    for (fk_u32 i = fk_block(); i < work; i += fk_blocks())
        fk_dkv_item(p, (const fk_key_item *)p->items + i / heads / parts, i / heads % parts, p->first_head + i % heads);
}

/* --- dQ ----------------------------------------------------------------------------------------------------------- */

enum {
    FK_Q_THREADS = FK_DQ_WARPS(FK_HEAD_DIM) * 32,
    FK_Q_ROWS = FK_DQ_ROWS(FK_HEAD_DIM),
    FK_Q_STEP = FK_DQ_KEYS(FK_HEAD_DIM),
    FK_Q_COLUMNS = FK_Q_STEP / 8
};

FK_DEVICE fk_u32 fk_dq_tile(fk_u32 which) { return fk_shared() + which * FK_Q_ROWS * FK_ROW_BYTES; } /* Q, dO */
FK_DEVICE fk_u32 fk_dq_stream(fk_u32 buffer, fk_u32 which) { /* K, V */
    return fk_dq_tile(2) + (buffer * 2 + which) * FK_Q_STEP * FK_ROW_BYTES;
}

FK_DEVICE void fk_dq_copy(const fk_launch *p, const fk_key_run *run, fk_u32 at, fk_u32 kv_head, fk_u32 buffer) {
    fk_u64 row = p->arena + at * fk_k_stride(p) + (fk_u64)kv_head * FK_ROW_BYTES;
    fk_copy_tile(fk_dq_stream(buffer, 0), FK_Q_STEP, FK_Q_THREADS, row + run->k, fk_k_stride(p), run->count - at);
    fk_copy_tile(fk_dq_stream(buffer, 1), FK_Q_STEP, FK_Q_THREADS, row + run->v, fk_k_stride(p), run->count - at);
}

FK_DEVICE void fk_dq_step(const fk_launch *p, const fk_env *env, fk_i64 row, const fk_key_run *run, fk_u32 at,
                          fk_u32 head, fk_u32 buffer, const float *lse, const float *delta, float (*sums)[4]) {
    fk_u32 t = fk_lane() % 4 * 2, keys = run->count - at < FK_Q_STEP ? run->count - at : FK_Q_STEP;
    float s[FK_Q_COLUMNS][4], g[FK_Q_COLUMNS][4];
    fk_u32 packed[FK_Q_COLUMNS][2];
    int whole = run->cls == FK_FULL && keys == FK_Q_STEP;
    fk_i64 key = run->position + at + t;
    fk_u64 counting = 0;
    if (!whole) counting = fk_counting(env, run->cls == FK_PARTIAL, 0, FK_Q_COLUMNS, row, key, keys, head);
    fk_rows_by_rows(s, FK_Q_COLUMNS, fk_dq_tile(0), fk_warp() * 16, fk_dq_stream(buffer, 0));
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_Q_COLUMNS; j++)
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) {
            float slope;
            int counts = whole || fk_counts(counting, FK_Q_COLUMNS, i / 2, j, i % 2);
            s[j][i] = fk_weight(p, env, s[j][i], lse[i / 2], counts, row + i / 2 * 8, key + j * 8 + i % 2, head, &slope);
            s[j][i] = fk_times(s[j][i], slope);
        }
    fk_rows_by_rows(g, FK_Q_COLUMNS, fk_dq_tile(1), fk_warp() * 16, fk_dq_stream(buffer, 1));
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_Q_COLUMNS; j++) {
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) g[j][i] = fk_gradient(s[j][i], g[j][i], delta[i / 2]);
        packed[j][0] = fk_pack(g[j][0], g[j][1]);
        packed[j][1] = fk_pack(g[j][2], g[j][3]);
    }
    fk_packed_by_columns(sums, FK_CHUNKS, (const fk_u32 (*)[2])packed, FK_Q_COLUMNS, fk_dq_stream(buffer, 0), 0);
}

FK_DEVICE void fk_dq_item(const fk_launch *p, const fk_row_item *item, fk_u32 part, fk_u32 head) {
    fk_u32 first = part * FK_Q_ROWS, kv_head = head / p->group, buffer = 0;
    if (first >= item->count) return;
    fk_env env = fk_env_of(p, item->sequence);
    fk_u32 rows = item->count - first, row = fk_warp() * 16 + fk_lane() / 4;
    fk_u64 token = item->token + first;
    const fk_key_run *runs = (const fk_key_run *)p->runs + item->first;
    float sums[FK_CHUNKS][4], lse[2], delta[2];
    fk_step step = {0, 0};
    int more = 1, idle = fk_warp() * 16 >= rows; /* a warp without rows only copies */
    fk_sync(); /* the item before has been read */
    fk_copy_tile(fk_dq_tile(0), FK_Q_ROWS, FK_Q_THREADS, fk_row(p, p->q, token, head, FK_ROW_BYTES), fk_q_stride(p), rows);
    fk_copy_tile(fk_dq_tile(1), FK_Q_ROWS, FK_Q_THREADS, fk_row(p, p->d_o, token, head, FK_ROW_BYTES), fk_q_stride(p),
                 rows);
    fk_dq_copy(p, runs, 0, kv_head, 0);
    FK_UNROLL
    for (fk_u32 half = 0; half < 2; half++) {
        int there = row + half * 8 < rows;
        fk_u64 at = token + row + half * 8;
        lse[half] = there ? fk_load(fk_row(p, p->lse, at, head, 4)) * FK_LOG2E : -fk_infinity();
        delta[half] = there ? fk_load(fk_row(p, p->delta, at, head, 4)) : 0;
    }
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_CHUNKS; j++) sums[j][0] = sums[j][1] = sums[j][2] = sums[j][3] = 0;
    while (more) {
        fk_step now = step;
        more = fk_advance(&step, FK_Q_STEP, runs[step.run].count, item->runs);
        fk_copy_wait();
        fk_sync(); /* this step is there, and the one before has been read */
        if (more) fk_dq_copy(p, runs + step.run, step.at, kv_head, 1 - buffer);
        if (!idle) fk_dq_step(p, &env, item->position + first + row, runs + now.run, now.at, head, buffer, lse, delta, sums);
        buffer = 1 - buffer;
    }
    fk_add_sums(fk_row(p, p->dq, token, head, FK_HEAD_DIM * 4), fk_q_stride(p) * 2, fk_warp() * 16, rows, p->scale,
                FK_CHUNKS, (const float (*)[4])sums);
}

FK_KERNEL(fk_backward_dq, FK_Q_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    const fk_launch *p = &launch;
    const fk_u32 parts = FK_DQ_PARTS(FK_HEAD_DIM);
    fk_u32 heads = p->head_count * p->group, work = p->item_count * parts * heads;
    for (fk_u32 i = fk_block(); i < work; i += fk_blocks())
        fk_dq_item(p, (const fk_row_item *)p->items + i / heads / parts, i / heads % parts,
                   p->first_head * p->group + i % heads);
}
