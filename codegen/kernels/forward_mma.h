/* forward_mma.h: the forward pass with mma.sync, for sm_80 and later.
 *
 * When a step begins, its K is in shared memory. Its V is copied while S = Q K is computed, and the K of the next step
 * during the softmax and O += P V. The mask is evaluated only for PARTIAL runs, and only the last step of a run has to
 * look where the run ends.
 *
 * Requires: common.h, forward_rows.h; K and V of the item's runs in their slots; a state slot that an earlier visit
 *           wrote, unless this is the first visit. It gives the running state of the item's rows for each query head,
 *           or on the last visit O and LSE.
 * Grid:     any number of CTAs, which share item_count * head_count * group pieces of work (by head and packed
 *           item_count) as fk_piece says. The heads of an item are neighbours, because those of a group read the same
 *           keys.
 * Waits:    fused, each thread waits for the arrival of Q, and of a run before it copies the run's first K.
 * Shared:   Q, then K and V of one step.
 * Source:   the loop of FlashAttention-2; the online softmax of Milakov and Gimelshein.
 */

/* s = Q K for one step. */
FK_DEVICE void fk_forward_qk(fk_u32 q_tile, fk_u32 k_tile, float (*s)[FK_F_COLUMNS][4]) {
    fk_u32 q_corner = fk_fragment_at(q_tile, FK_CHUNKS, fk_warp() * FK_F_BANDS * 16);
    fk_u32 k_corner = fk_fragment_at_rows(k_tile, FK_CHUNKS, 0);
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j++) s[b][j][0] = s[b][j][1] = s[b][j][2] = s[b][j][3] = 0;
    FK_UNROLL
    for (fk_u32 d = 0; d < FK_CHUNKS; d += 2) {
        fk_u32 a[FK_F_BANDS][4];
        FK_UNROLL
        for (fk_u32 b = 0; b < FK_F_BANDS; b++) fk_ldmatrix(a[b], fk_fragment_beside(q_corner, FK_CHUNKS, b * 16, d));
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j += 2) {
            fk_u32 k[4];
            fk_ldmatrix(k, fk_fragment_beside(k_corner, FK_CHUNKS, j * 8, d));
            FK_UNROLL
            for (fk_u32 b = 0; b < FK_F_BANDS; b++) {
                fk_mma(s[b][j], a[b], k[0], k[1]);
                fk_mma(s[b][j + 1], a[b], k[2], k[3]);
            }
        }
    }
}

/* O += P V for one step. */
FK_DEVICE void fk_forward_add_pv(fk_forward_rows *x, const fk_u32 (*weights)[FK_F_COLUMNS * 2], fk_u32 v_tile) {
    fk_u32 corner = fk_fragment_at(v_tile, FK_VALUE_CHUNKS, 0);
    FK_UNROLL
    for (fk_u32 i = 0; i < FK_F_COLUMNS; i += 2)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j += 2) {
            fk_u32 v[4];
            fk_ldmatrix_trans(v, fk_fragment_beside(corner, FK_VALUE_CHUNKS, i * 8, j));
            FK_UNROLL
            for (fk_u32 b = 0; b < FK_F_BANDS; b++) {
                const fk_u32 *a = weights[b] + i * 2;
                fk_mma(x->o[b][j], a, v[0], v[1]);
                fk_mma(x->o[b][j + 1], a, v[2], v[3]);
            }
        }
}

/* Begins to copy the rows of K of one step, and of V. */
FK_DEVICE void fk_forward_copy_k(const fk_launch *p, const fk_key_run *run, fk_u32 at, fk_u32 kv_head, fk_u32 tile) {
    fk_u64 from = p->arena + run->k + at * fk_k_stride(p) + (fk_u64)kv_head * FK_ROW_BYTES;
    fk_copy_tile(tile, FK_CHUNKS, FK_F_STEP, FK_F_THREADS, from, fk_k_stride(p), run->count - at);
}
FK_DEVICE void fk_forward_copy_v(const fk_launch *p, const fk_key_run *run, fk_u32 at, fk_u32 kv_head, fk_u32 tile) {
    fk_u64 from = p->arena + run->v + at * fk_v_stride(p) + (fk_u64)kv_head * FK_VALUE_BYTES;
    fk_copy_tile(tile, FK_VALUE_CHUNKS, FK_F_STEP, FK_F_THREADS, from, fk_v_stride(p), run->count - at);
}

/* Begins to copy the rows of Q of an item. */
FK_DEVICE void fk_forward_copy_q(const fk_launch *p, const fk_row_item *item, fk_u32 head) {
    if (!FK_PACKED) {
        fk_copy_tile(fk_shared(), FK_CHUNKS, FK_ROWS, FK_F_THREADS, fk_row(p, p->q, item->token, head, FK_ROW_BYTES),
                     fk_q_stride(p), item->count);
        return;
    }
    FK_ROLL
    for (fk_u32 i = fk_thread(); i < FK_ROWS * FK_CHUNKS; i += FK_F_THREADS) {
        fk_u32 row = i / FK_CHUNKS, chunk = i % FK_CHUNKS, there = row < item->count;
        fk_u64 from = fk_forward_packed_row(p, item, there ? row : 0, head) + chunk * 16;
        fk_cp_async(fk_chunk_at(fk_shared(), FK_CHUNKS, row, chunk), from, there ? 16 : 0);
    }
}

FK_DEVICE void fk_forward_item(const fk_launch *p, const fk_row_item *item, fk_u32 head) {
    fk_env env = fk_env_of(p, item->sequence);
    fk_u32 q_tile = fk_shared(), k_tile = q_tile + FK_ROWS * FK_ROW_BYTES, v_tile = k_tile + FK_F_STEP * FK_ROW_BYTES;
    fk_u32 kv_head = head / p->group;
    const fk_key_run *runs = (const fk_key_run *)p->runs + item->first;
    fk_forward_rows x;
    fk_step step = {0, 0};
    int more = item->runs != 0, idle = fk_warp() * FK_F_BANDS * 16 >= item->count; /* without rows: it only copies */
    fk_sync(); /* everybody has read the tiles of the item before */
    if (more) {
        fk_forward_arrival(p, item->arrival);
        fk_forward_copy_q(p, item, head);
        fk_forward_arrival(p, runs->arrival);
        fk_forward_copy_k(p, runs, 0, kv_head, k_tile);
    }
    fk_forward_open(p, item, head, &x);
    while (more) {
        const fk_key_run *run = runs + step.run;
        fk_u32 at = step.at, keys = run->count - at < FK_F_STEP ? run->count - at : FK_F_STEP;
        float s[FK_F_BANDS][FK_F_COLUMNS][4], factor[FK_F_BANDS][2];
        fk_u32 weights[FK_F_BANDS][FK_F_COLUMNS * 2];
        int whole = fk_forward_whole(run, keys);
        fk_u32 allowed[FK_F_BANDS][2] = {{0}};
        if (!whole && !idle) /* here, while K is on its way and before the scores take registers */
            fk_forward_mask(&env, item, run, at, keys, head, allowed); // cost: PARTIAL
        fk_cp_async_wait();
        fk_sync(); /* K is there, and everybody has read the V before it */
        fk_forward_copy_v(p, run, at, kv_head, v_tile);
        if (!idle) {
            fk_forward_qk(q_tile, k_tile, s);
            fk_forward_scores(p, &env, item, run, at, whole, allowed, head, s);
        }
        more = fk_advance(&step, FK_F_STEP, run->count, item->runs); // cost: step
        fk_cp_async_wait();
        fk_sync(); /* V is there, and everybody has read K */
        if (more && step.at == 0) fk_forward_arrival(p, runs[step.run].arrival);
        if (more) fk_forward_copy_k(p, runs + step.run, step.at, kv_head, k_tile);
        if (idle) continue;
        fk_forward_softmax(p, s, &x, factor);
        fk_forward_rescale(s, &x, factor, weights);
        fk_forward_add_pv(&x, (const fk_u32(*)[FK_F_COLUMNS * 2]) weights, v_tile);
    }
    fk_forward_close(p, item, head, &x);
}

FK_KERNEL(fk_forward, FK_F_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    const fk_launch *p = &launch;
    FK_WATCH();
    fk_begin(p->mark, p->mark_value);
    fk_u32 heads = fk_forward_each(p), work = p->item_count * heads;
    for (fk_u32 n = 0, i; (i = fk_piece(n)) < work; n++)
        fk_forward_item(p, (const fk_row_item *)p->items + i / heads, fk_forward_first_head(p, i, heads));
}
