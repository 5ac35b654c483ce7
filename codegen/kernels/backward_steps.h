/* backward_steps.h: what the backward kernels share: P and dS, one step of dK and dV, and adding to sums in memory.
 *
 * P = exp((x - lse) - lse_low), where x is the logit. If a pair does not count, P is selected to be 0, never computed
 * to be 0. dS = P (dP - delta) times the slope of the score. P and dS are rounded to the input type for the products;
 * the scale is applied to the finished sums. For dK and dV, scores are computed transposed, with keys as rows: then P
 * and dS already are operands of the next products, in the registers where they were made.
 *
 * Instead of lse and lse_low, a row has two numbers here, `minus` and `base`: P = 2^((x - minus) log2 e - base).
 *   - Without a score, LSE near 0 (up to FK_NEAR): minus is 0, so P = 2^(s unit - base) is one FMA and one exponential
 *     for each pair. Here s is the product q k, and unit is the scale times log2 e.
 *   - Without a score, LSE far from 0: minus is lse. In a step with such a row, x - minus is first computed from the
 *     products.
 *   - With a score, x is computed anyway: minus is always lse.
 *   - A row that has seen no key, or does not exist: one of the two numbers is +infinity, which makes P 0.
 *
 * In a far row, x and lse are large and nearly equal, so x must have the bits that it had in the forward pass.
 * Therefore both passes make the products q k in the same order, chunk by chunk of 16 numbers, and round the scale and
 * each operation of the score on its own.
 */
#ifndef FK_BACKWARD_STEPS_H
#define FK_BACKWARD_STEPS_H

typedef struct fk_row_numbers {
    float minus, base, delta;
} fk_row_numbers;
/* Makes these numbers from LSE and delta of a row. */
FK_DEVICE fk_row_numbers fk_row_numbers_of(float lse, float lse_low, float delta) {
    fk_row_numbers x = {0, fk_fma(lse, FK_LOG2E, lse_low * FK_LOG2E), delta};
    int none = lse == -fk_infinity();
    if (FK_HAS_SCORE || !fk_is_near(x.base)) x.minus = lse, x.base = lse_low * FK_LOG2E;
    if (none) x.minus = FK_HAS_SCORE ? fk_infinity() : 0, x.base = FK_HAS_SCORE ? 0 : fk_infinity();
    return x;
}
/* The same for a row in memory; there: does it exist? */
FK_DEVICE fk_row_numbers fk_row_numbers_at(const fk_launch *p, fk_u64 token, fk_u32 head, int there) {
    if (!there) return fk_row_numbers_of(-fk_infinity(), 0, 0);
    fk_u64 at = fk_row(p, 0, token, head, 4);
    return fk_row_numbers_of(fk_load(p->lse + at), fk_load(p->lse_low + at), fk_load(p->delta + at));
}
/* By a whole warp: returns whether one of `rows` rows (16, 32 or 64) is far from 0; their numbers `minus` stand at an
 * address of shared memory. With a score the answer does not matter. */
FK_DEVICE fk_u32 fk_some_far(fk_u32 minus_at, const fk_u32 rows) {
    if (FK_HAS_SCORE) return 0;
    if (rows < 64) return fk_any(fk_load_shared_bits(minus_at + fk_lane() % rows * 4));
    fk_u64 two = fk_load_shared_long(minus_at + fk_lane() * 8);
    return fk_any((fk_u32)two | (fk_u32)(two >> 32));
}

/* In a step with a far row: makes of the product s = q k what fk_weight wants. per_logit: fk_per_logit. */
FK_DEVICE float fk_minus(const fk_launch *p, float s, float minus, float per_logit) {
    return minus == 0 ? s : (fk_rounded_product(s, p->scale) - minus) * per_logit;
}
/* P of a pair that counts, and in *slope the slope of the score. s: the product q k, or what fk_minus made of it. */
FK_DEVICE float fk_weight(const fk_launch *p, const fk_env *env, float s, float minus, float base, fk_i64 q, fk_i64 k,
                          fk_u32 head, float *slope) {
#if FK_HAS_SCORE
    float natural = fk_rounded_product(s, p->scale), unit = FK_LOG2E;
    *slope = fk_slope(env, natural, q, k, head);
    s = fk_score(env, natural, q, k, head) - minus;
#else
    float unit = p->scale_log2;
    (void)env, (void)minus, (void)q, (void)k, (void)head;
    *slope = 1;
#endif
    return fk_exp2(fk_fma(s, unit, -base));
}
/* fk_times: P times the slope; fk_gradient: dS from that. If P is 0 both are 0, whatever the slope and dP are: they may
 * be NaN. */
FK_DEVICE float fk_times(float weight, float slope) { return weight == 0 ? 0 : weight * slope; }
FK_DEVICE float fk_gradient(float weight, float d_p, float delta) { return weight == 0 ? 0 : weight * (d_p - delta); }

/* to[row][..] += scale * c, for 16 rows of sums. c has part 0 of the `width` chunks of a row, which are in `parts`
 * parts (fk_shared_chunk). Rows are `stride` bytes apart, and only the first `count` exist. */
FK_DEVICE void fk_add_sums(fk_u64 to, fk_u64 stride, fk_u32 row, fk_u32 count, float scale, fk_u32 width, fk_u32 parts,
                           const float (*c)[4]) {
    fk_u32 t = fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 half = 0; half < 2; half++) {
        fk_u32 at = row + fk_lane() / 4 + half * 8;
        if (at >= count) continue;
        FK_UNROLL
        for (fk_u32 j = 0; j < width / parts; j++) {
            float sum[2];
            fk_u64 place = to + at * stride + (fk_shared_chunk(width, parts, j) * 8 + t) * 4;
            fk_load2(sum, place);
            fk_store2(place, sum[0] + scale * c[j][half * 2], sum[1] + scale * c[j][half * 2 + 1]);
        }
    }
}

/* The same with atomic additions: for sums to which other CTAs add as well, or where no thread should wait for the old
 * sum to be loaded. begins: the sums are empty, and nobody else adds to them. Then they are stored, with the bits that
 * adding to 0 gives, which makes 0 of -0. */
FK_DEVICE void fk_add_sums_atomically(fk_u64 to, fk_u64 stride, fk_u32 row, fk_u32 count, float scale, fk_u32 width,
                                      fk_u32 parts, const float (*c)[4], int begins) {
    to += fk_lane() % 4 * 8;
    FK_UNROLL
    for (fk_u32 half = 0; half < 2; half++) {
        fk_u32 at = row + fk_lane() / 4 + half * 8;
        if (at >= count) continue;
        if (begins) {
            FK_UNROLL
            for (fk_u32 j = 0; j < width / parts; j++)
                fk_store2(to + at * stride + fk_shared_chunk(width, parts, j) * 32, fk_fma(scale, c[j][half * 2], 0),
                          fk_fma(scale, c[j][half * 2 + 1], 0));
        } else {
            FK_UNROLL
            for (fk_u32 j = 0; j < width / parts; j++)
                fk_add_global2(to + at * stride + fk_shared_chunk(width, parts, j) * 32, scale * c[j][half * 2],
                               scale * c[j][half * 2 + 1]);
        }
    }
}

/* Goes on to the next step of an item; returns 0 if there is none. Steps go through runs, in each run through the query
 * heads that it is for, and for each head through the run's `count` rows, `length` at a time. With two heads: run 0
 * head 0 rows 0 and 64, run 0 head 1 rows 0 and 64, run 1 head 0, and so on. This order is the same for items of all
 * lengths, so items with the same rows that run side by side come to these rows one after the other. */
FK_DEVICE int fk_next_rows(fk_step *step, fk_u32 *head, fk_u32 length, fk_u32 count, fk_u32 runs,
                           const fk_row_run *first_run, fk_u32 first_head, fk_u32 group) {
    step->at += length;
    if (step->at < count) return 1;
    step->at = 0;
    if (FK_BY_HEAD) *head = fk_run_head(first_run + step->run, *head + 1, first_head, group);
    else ++*head;
    if (*head < first_head + group) return 1;
    *head = first_head;
    if (!FK_BY_HEAD) return ++step->run < runs;
    if (++step->run >= runs) return 0;
    *head = fk_run_head(first_run + step->run, first_head, first_head, group);
    return 1;
}

/* --- dK and dV ---------------------------------------------------------------------------------------------------- */

enum {
    FK_K_THREADS = FK_DKV_WARPS(FK_HEAD_DIM) * 32,
    FK_K_KEYS = FK_DKV_KEYS(FK_HEAD_DIM),
    FK_K_BANDS = FK_K_KEYS / 16,
    FK_K_SPLIT = FK_DKV_WARPS(FK_HEAD_DIM) / FK_K_BANDS, /* warps that share a band's keys */
    FK_K_STEP = FK_DKV_ROWS(FK_HEAD_DIM, FK_HAS_SCORE),
    FK_K_COLUMNS = FK_K_STEP / 8
};

/* Places in shared memory: K, V, then two buffers of Q and dO, then two buffers of the rows' numbers (which: 0 base, 1
 * delta, 2 minus). */
FK_DEVICE fk_u32 fk_dkv_k(void) { return fk_shared(); }
FK_DEVICE fk_u32 fk_dkv_v(void) { return fk_dkv_k() + FK_K_KEYS * FK_ROW_BYTES; }
FK_DEVICE fk_u32 fk_dkv_q(fk_u32 buffer) {
    return fk_dkv_v() + FK_K_KEYS * FK_VALUE_BYTES + buffer * FK_K_STEP * (FK_ROW_BYTES + FK_VALUE_BYTES);
}
FK_DEVICE fk_u32 fk_dkv_do(fk_u32 buffer) { return fk_dkv_q(buffer) + FK_K_STEP * FK_ROW_BYTES; }
FK_DEVICE fk_u32 fk_dkv_numbers(fk_u32 buffer, fk_u32 which) { /* base, delta, minus */
    return fk_dkv_q(2) + (buffer * 3 + which) * FK_K_STEP * 4;
}

/* Begins to copy dO of a step, whose rows begin at `token` and are `count` or fewer. */
FK_DEVICE void fk_dkv_copy_do(const fk_launch *p, fk_u64 token, fk_u32 count, fk_u32 head, fk_u32 buffer) {
    fk_copy_tile(fk_dkv_do(buffer), FK_VALUE_CHUNKS, FK_K_STEP, FK_K_THREADS,
                 fk_row(p, p->d_o, token, head, FK_VALUE_BYTES), fk_o_stride(p), count);
}
/* Begins to copy the rows of a step; dO only if `with_do`. */
FK_DEVICE void fk_dkv_copy(const fk_launch *p, const fk_row_run *run, fk_u32 at, fk_u32 head, fk_u32 buffer,
                           const int with_do) {
    fk_u64 token = run->token + at;
    fk_copy_tile(fk_dkv_q(buffer), FK_CHUNKS, FK_K_STEP, FK_K_THREADS, fk_row(p, p->q, token, head, FK_ROW_BYTES),
                 fk_q_stride(p), run->count - at);
    if (with_do) fk_dkv_copy_do(p, token, run->count - at, head, buffer);
    fk_u32 row = fk_thread();
    if (row < FK_K_STEP) {
        fk_row_numbers x = fk_row_numbers_at(p, token + row, head, row < run->count - at);
        fk_store_shared(fk_dkv_numbers(buffer, 0) + row * 4, x.base);
        fk_store_shared(fk_dkv_numbers(buffer, 1) + row * 4, x.delta);
        fk_store_shared(fk_dkv_numbers(buffer, 2) + row * 4, x.minus);
    }
}

typedef struct fk_dkv_sums {
    float k[FK_CHUNKS / FK_K_SPLIT][4], v[FK_VALUE_CHUNKS / FK_K_SPLIT][4];
} fk_dkv_sums;

/* Begins with the keys of an item, from `first` on: sets the sums to 0, and begins to copy K, V and the first step,
 * which is of query head `head`. */
FK_DEVICE void fk_dkv_open(const fk_launch *p, const fk_key_item *item, const fk_row_run *runs, fk_u32 first,
                           fk_u32 kv_head, fk_u32 head, fk_dkv_sums *x) {
    fk_u32 keys = item->count - first;
    fk_u64 k = p->arena + item->k + first * fk_k_stride(p) + (fk_u64)kv_head * FK_ROW_BYTES;
    fk_u64 v = p->arena + item->v + first * fk_v_stride(p) + (fk_u64)kv_head * FK_VALUE_BYTES;
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_CHUNKS / FK_K_SPLIT; j++) x->k[j][0] = x->k[j][1] = x->k[j][2] = x->k[j][3] = 0;
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_VALUE_CHUNKS / FK_K_SPLIT; j++) x->v[j][0] = x->v[j][1] = x->v[j][2] = x->v[j][3] = 0;
    fk_sync(); /* everybody has read the tiles of the item before */
    fk_copy_tile(fk_dkv_k(), FK_CHUNKS, FK_K_KEYS, FK_K_THREADS, k, fk_k_stride(p), keys);
    fk_copy_tile(fk_dkv_v(), FK_VALUE_CHUNKS, FK_K_KEYS, FK_K_THREADS, v, fk_v_stride(p), keys);
    fk_dkv_copy(p, runs, 0, head, 0, 1);
}

/* Waits for the turn at sums, and passes it on when they are written; nothing if there are no turns. */
FK_DEVICE void fk_dkv_take_turn(int turns, fk_u64 lock, fk_u32 turn) {
    if (turns && fk_thread() == 0) fk_acquire(lock, turn);
    if (turns) fk_sync();
}
FK_DEVICE void fk_dkv_pass_turn(int turns, fk_u64 lock, fk_u32 turn) {
    if (turns) fk_sync();
    if (turns && fk_thread() == 0) fk_release(lock, turn + 1);
}

/* Adds the finished dK, or dV, to its sums in memory, which begin at `to`; their rows have `width` chunks and are
 * `stride` bytes apart. */
FK_DEVICE void fk_dkv_close(fk_u64 to, fk_u64 stride, fk_u32 keys, float scale, fk_u32 width, const float (*c)[4],
                            const int atomically) {
    fk_u32 row = fk_warp() % FK_K_BANDS * 16;
    if (FK_K_SPLIT > 1) to += fk_warp() / FK_K_BANDS * (fk_swizzle_chunks(width) / 2) * 32;
    if (atomically) fk_add_sums_atomically(to, stride, row, keys, scale, width, FK_K_SPLIT, c, 0);
    else fk_add_sums(to, stride, row, keys, scale, width, FK_K_SPLIT, c);
}

/* Ends a piece of work with part `part` of an item's keys: adds its dK and dV to the sums in memory. If others add to
 * the same sums, it does so in its turn (`ordered`) or by atomics. dK and dV have separate turns, so that another piece
 * can add to dK while this one adds to dV. If an item is in parts, each part has one turn for both. */
FK_DEVICE void fk_dkv_end(const fk_launch *p, const fk_key_piece *piece, fk_u32 part, const fk_dkv_sums *x,
                          const int ordered) {
    const fk_key_item *item = piece->item;
    const int apart = FK_DKV_PARTS(FK_HEAD_DIM) == 1;
    fk_u64 lock = fk_key_lock(p, piece) + part * 4;
    fk_u64 k = p->arena + item->dk + (part * FK_K_KEYS * fk_k_stride(p) + (fk_u64)piece->kv_head * FK_ROW_BYTES) * 2;
    fk_u64 v = p->arena + item->dv + (part * FK_K_KEYS * fk_v_stride(p) + (fk_u64)piece->kv_head * FK_VALUE_BYTES) * 2;
    fk_u32 turn = fk_key_turn(piece), keys = item->count - part * FK_K_KEYS;
    int turns = ordered && item->lock != FK_NONE;
    fk_dkv_take_turn(turns, lock, turn);
    fk_dkv_close(k, fk_k_stride(p) * 2, keys, p->scale, FK_CHUNKS, (const float (*)[4])x->k, !ordered);
    if (apart) {
        fk_dkv_pass_turn(turns, lock, turn);
        lock += 4;
        fk_dkv_take_turn(turns, lock, turn);
    }
    fk_dkv_close(v, fk_v_stride(p) * 2, keys, 1, FK_VALUE_CHUNKS, (const float (*)[4])x->v, !ordered);
    fk_dkv_pass_turn(turns, lock, turn);
}

/* The address of a chunk in the tile of dS. The tile has a row of FK_K_STEP numbers for each key, with chunks
 * permuted as in the other tiles. */
FK_DEVICE fk_u32 fk_ds_at(fk_u32 tile, fk_u32 key, fk_u32 chunk) {
    fk_u32 turn = FK_K_COLUMNS >= 8 ? key % 8 : FK_K_COLUMNS == 4 ? key / 2 % 4 : key / 4 % 2;
    return tile + key * FK_K_STEP * 2 + (chunk ^ turn) * 16;
}

/* One step of dK and dV: the rows in `buffer`, and dO at do_tile, with the keys of the item. `key`: the position of the
 * first key; `keys`: how many there are. If ds_tile is not 0, dS is also written there, with 0 for keys that do not
 * exist. */
FK_DEVICE void fk_dkv_step(const fk_launch *p, const fk_env *env, fk_i64 key, fk_u32 keys, const fk_row_run *run,
                           fk_u32 at, fk_u32 head, fk_u32 buffer, fk_u32 do_tile, fk_u32 ds_tile, fk_dkv_sums *x) {
    fk_u32 band = fk_warp() % FK_K_BANDS, part = FK_K_SPLIT == 1 ? 0 : fk_warp() / FK_K_BANDS, t = fk_lane() % 4 * 2;
    fk_u32 q_tile = fk_dkv_q(buffer);
    float s[FK_K_COLUMNS][4], g[FK_K_COLUMNS][4];
    fk_u32 packed[FK_K_COLUMNS][2];
    int whole = fk_run_class(run) == FK_FULL;
    fk_i64 row = run->position + at + t;
    fk_u32 allowed[2] = {~0u, ~0u};
    key += band * 16 + fk_lane() / 4;
    if (!whole) fk_mask_bits(env, 1, 1, FK_K_COLUMNS, key, row, FK_K_STEP, head, allowed); // cost: PARTIAL
    fk_rows_by_rows(s, FK_K_COLUMNS, FK_CHUNKS, fk_dkv_k(), band * 16, q_tile);
    if (fk_some_far(fk_dkv_numbers(buffer, 2), FK_K_STEP)) {
        const float per_logit = fk_per_logit(p); // cost: seldom
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_K_COLUMNS; j++) {
            float minus[2];
            fk_load_shared2(minus, fk_dkv_numbers(buffer, 2) + (j * 8 + t) * 4); // cost: seldom
            FK_UNROLL
            for (fk_u32 i = 0; i < 4; i++) s[j][i] = fk_minus(p, s[j][i], minus[i % 2], per_logit); // cost: seldom
        }
    }
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_K_COLUMNS; j++) {
        float base[2], minus[2] = {0, 0}, slopes[4];
        fk_load_shared2(base, fk_dkv_numbers(buffer, 0) + (j * 8 + t) * 4);
        if (FK_HAS_SCORE) fk_load_shared2(minus, fk_dkv_numbers(buffer, 2) + (j * 8 + t) * 4);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) {
            float weight = fk_weight(p, env, s[j][i], minus[i % 2], base[i % 2], row + j * 8 + i % 2,
                                     key + i / 2 * 8, head, &slopes[i]);
            s[j][i] = fk_mask_bit(allowed, i / 2, j, i % 2) ? weight : 0;
        }
        packed[j][0] = fk_pack(s[j][0], s[j][1]);
        packed[j][1] = fk_pack(s[j][2], s[j][3]);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) s[j][i] = fk_times(s[j][i], slopes[i]);
    }
    fk_packed_by_columns(x->v, FK_VALUE_CHUNKS, FK_K_SPLIT, part, (const fk_u32 (*)[2])packed, FK_K_COLUMNS, do_tile);
    fk_rows_by_rows(g, FK_K_COLUMNS, FK_VALUE_CHUNKS, fk_dkv_v(), band * 16, do_tile);
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_K_COLUMNS; j++) {
        float delta[2];
        fk_load_shared2(delta, fk_dkv_numbers(buffer, 1) + (j * 8 + t) * 4);
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) g[j][i] = fk_gradient(s[j][i], g[j][i], delta[i % 2]);
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 own = band * 16 + fk_lane() / 4 + half * 8; /* the lane's number among the keys */
            packed[j][half] = fk_pack(g[j][half * 2], g[j][half * 2 + 1]);
            if (ds_tile) fk_store_shared_bits(fk_ds_at(ds_tile, own, j) + t * 2, own < keys ? packed[j][half] : 0);
        }
    }
    fk_packed_by_columns(x->k, FK_CHUNKS, FK_K_SPLIT, part, (const fk_u32 (*)[2])packed, FK_K_COLUMNS, q_tile);
}
#endif
