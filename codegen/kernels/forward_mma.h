/* forward_mma.h: the forward pass on mma.sync, sm_80 and later.
 *
 * Requires: common.h; K and V of the item's runs in their slots; a state slot that an earlier visit wrote, unless this is
 *           the first.
 * Gives:    the running state of the item's rows and a query head, or on the last visit O and LSE.
 * Grid:     any number of blocks; item_count * head_count * group pieces of work, a block each while they last; the heads
 *           of an item are neighbours, since those of a group read the same keys.
 * Shared:   Q, then K, then V of a step; V comes while the scores are computed, the next K while they are used.
 * Source:   FlashAttention-2's loop; the online softmax of Milakov and Gimelshein.
 *
 * A step's scores are in natural units only where there is a score to apply; m is in log2 units. P is rounded to the
 * input type, l is not. Only PARTIAL runs evaluate the mask, and only a run's last step looks where it ends.
 */
#define FK_WARPS FK_FORWARD_WARPS(FK_HEAD_DIM, FK_HAS_SCORE)
#define FK_STEP FK_FORWARD_KEYS(FK_HEAD_DIM)
enum {
    FK_F_THREADS = FK_WARPS * 32,
    FK_F_BANDS = FK_ROWS / 16 / FK_WARPS, /* of 16 rows, a warp's */
    FK_F_COLUMNS = FK_STEP / 8
};

typedef struct fk_forward_rows {
    float o[FK_F_BANDS][FK_CHUNKS][4];
    float m[FK_F_BANDS][2], l[FK_F_BANDS][2]; /* l: of the lane's own columns */
} fk_forward_rows;

/* The first of the lane's rows of a band, in the item. */
FK_DEVICE fk_u32 fk_forward_row(fk_u32 band) { return (fk_warp() * FK_F_BANDS + band) * 16 + fk_lane() / 4; }

FK_DEVICE void fk_forward_open(const fk_launch *p, const fk_row_item *item, fk_u32 head, fk_forward_rows *x) {
    fk_u64 o = p->arena + item->state, m = o + (fk_u64)p->max_block * p->heads * FK_HEAD_DIM * 4;
    fk_u64 l = m + (fk_u64)p->max_block * p->heads * 4;
    fk_u32 t = fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 row = fk_forward_row(b) + half * 8;
            int there = !(item->flags & FK_FIRST) && row < item->count;
            fk_u64 token = (fk_u64)item->block_token + row;
            x->m[b][half] = there ? fk_load(fk_row(p, m, token, head, 4)) : -fk_infinity();
            x->l[b][half] = there && t == 0 ? fk_load(fk_row(p, l, token, head, 4)) : 0;
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_CHUNKS; j++) {
                float pair[2] = {0, 0};
                if (there) fk_load2(pair, fk_row(p, o, token, head, FK_HEAD_DIM * 4) + (j * 8 + t) * 4);
                x->o[b][j][half * 2] = pair[0];
                x->o[b][j][half * 2 + 1] = pair[1];
            }
        }
}

FK_DEVICE void fk_forward_close(const fk_launch *p, const fk_row_item *item, fk_u32 head, fk_forward_rows *x) {
    fk_u64 o = p->arena + item->state, m = o + (fk_u64)p->max_block * p->heads * FK_HEAD_DIM * 4;
    fk_u64 l = m + (fk_u64)p->max_block * p->heads * 4;
    fk_u32 t = fk_lane() % 4 * 2;
    float natural = p->sinks ? fk_load(p->sinks + (fk_u64)head * 4) : -fk_infinity(), sink = natural * FK_LOG2E;
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 row = fk_forward_row(b) + half * 8;
            float most = x->m[b][half], sum = x->l[b][half], factor = 1;
            sum += fk_exchange(sum, 1);
            sum += fk_exchange(sum, 2);
            if (row >= item->count) continue;
            if (!(item->flags & FK_LAST)) {
                fk_u64 token = (fk_u64)item->block_token + row;
                if (t == 0) fk_store(fk_row(p, m, token, head, 4), most);
                if (t == 0) fk_store(fk_row(p, l, token, head, 4), sum);
                FK_UNROLL
                for (fk_u32 j = 0; j < FK_CHUNKS; j++)
                    fk_store2(fk_row(p, o, token, head, FK_HEAD_DIM * 4) + (j * 8 + t) * 4, x->o[b][j][half * 2],
                              x->o[b][j][half * 2 + 1]);
                continue;
            }
            int empty = sum == 0;
            if (p->sinks) {
                float with = fk_max(most, sink);
                factor = fk_exp2(most - with);
                sum = sum * factor + fk_exp2(sink - with);
                most = with;
            }
            factor = sum == 0 ? 0 : factor / sum;
            fk_u64 token = item->token + row;
            if (t == 0) /* of a row that sees nothing exactly the sink */
                fk_store(fk_row(p, p->lse, token, head, 4), empty ? natural : FK_LN2 * (most + fk_log2(sum)));
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_CHUNKS; j++)
                fk_store_bits(fk_row(p, p->o, token, head, FK_ROW_BYTES) + (j * 8 + t) * 2,
                              fk_pack(x->o[b][j][half * 2] * factor, x->o[b][j][half * 2 + 1] * factor));
        }
}

/* Whether all pairs of a step count: then nothing looks which. keys: how many of the step there are. */
FK_DEVICE int fk_forward_whole(const fk_key_run *run, fk_u32 keys) { return run->cls == FK_FULL && keys == FK_STEP; }

/* The scores of one step, in log2 units, -inf where a pair does not count. */
FK_DEVICE void fk_forward_scores(const fk_launch *p, const fk_env *env, const fk_row_item *item, const fk_key_run *run,
                                 fk_u32 at, int whole, const fk_u64 *counting, fk_u32 head, fk_u32 q_tile,
                                 fk_u32 k_tile, float (*s)[FK_F_COLUMNS][4]) {
    fk_u32 q_corner = fk_corner(q_tile, fk_warp() * FK_F_BANDS * 16), k_corner = fk_corner_rows(k_tile, 0);
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j++) s[b][j][0] = s[b][j][1] = s[b][j][2] = s[b][j][3] = 0;
    FK_UNROLL
    for (fk_u32 d = 0; d < FK_CHUNKS; d += 2) {
        fk_u32 a[FK_F_BANDS][4];
        FK_UNROLL
        for (fk_u32 b = 0; b < FK_F_BANDS; b++) fk_matrices(a[b], fk_beside(q_corner, b * 16, d));
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j += 2) {
            fk_u32 k[4];
            fk_matrices(k, fk_beside(k_corner, j * 8, d));
            FK_UNROLL
            for (fk_u32 b = 0; b < FK_F_BANDS; b++) {
                fk_multiply(s[b][j], a[b], k[0], k[1]);
                fk_multiply(s[b][j + 1], a[b], k[2], k[3]);
            }
        }
    }
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j++)
            FK_UNROLL
            for (fk_u32 i = 0; i < 4; i++) {
#if FK_HAS_SCORE
                fk_i64 q = item->position + fk_forward_row(b) + i / 2 * 8;
                fk_i64 k = run->position + at + j * 8 + fk_lane() % 4 * 2 + i % 2;
                s[b][j][i] = fk_score(env, s[b][j][i] * p->scale, q, k, head) * FK_LOG2E;
#else
                (void)env, (void)item, (void)run, (void)at, (void)head;
                s[b][j][i] *= p->scale_log2;
#endif
            }
    if (whole) return;
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j++)
            FK_UNROLL
            for (fk_u32 i = 0; i < 4; i++)
                if (!fk_counts(counting[b], FK_F_COLUMNS, i / 2, j, i % 2)) s[b][j][i] = -fk_infinity();
}

/* One step of the softmax: s becomes P, in the type; O, m and l follow. */
FK_DEVICE void fk_forward_softmax(float (*s)[FK_F_COLUMNS][4], fk_forward_rows *x, fk_u32 (*out)[FK_F_COLUMNS][2]) {
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 i = half * 2;
            float most = -fk_infinity(), sum = 0;
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_F_COLUMNS; j++) most = fk_max(most, fk_max(s[b][j][i], s[b][j][i + 1]));
            most = fk_max(most, fk_exchange(most, 1));
            most = fk_max(most, fk_exchange(most, 2));
            most = fk_max(most, x->m[b][half]);
            float base = most == -fk_infinity() ? 0 : most, factor = fk_exp2(x->m[b][half] - base);
            x->m[b][half] = most;
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_F_COLUMNS; j++) {
                float low = fk_exp2(s[b][j][i] - base), high = fk_exp2(s[b][j][i + 1] - base);
                sum += low + high;
                out[b][j][half] = fk_pack(low, high);
            }
            x->l[b][half] = x->l[b][half] * factor + sum;
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_CHUNKS; j++) {
                x->o[b][j][i] *= factor;
                x->o[b][j][i + 1] *= factor;
            }
        }
}

/* O += P V */
FK_DEVICE void fk_forward_gather(fk_forward_rows *x, const fk_u32 (*weights)[FK_F_COLUMNS][2], fk_u32 v_tile) {
    fk_u32 corner = fk_corner(v_tile, 0);
    FK_UNROLL
    for (fk_u32 i = 0; i < FK_F_COLUMNS; i += 2)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_CHUNKS; j += 2) {
            fk_u32 v[4];
            fk_matrices_transposed(v, fk_beside(corner, i * 8, j));
            FK_UNROLL
            for (fk_u32 b = 0; b < FK_F_BANDS; b++) {
                fk_u32 a[4] = {weights[b][i][0], weights[b][i][1], weights[b][i + 1][0], weights[b][i + 1][1]};
                fk_multiply(x->o[b][j], a, v[0], v[1]);
                fk_multiply(x->o[b][j + 1], a, v[2], v[3]);
            }
        }
}

FK_DEVICE void fk_forward_copy(const fk_launch *p, fk_u64 rows, const fk_key_run *run, fk_u32 at, fk_u32 kv_head,
                               fk_u32 tile) {
    fk_copy_tile(tile, FK_STEP, FK_F_THREADS, p->arena + rows + at * fk_k_stride(p) + (fk_u64)kv_head * FK_ROW_BYTES,
                 fk_k_stride(p), run->count - at);
}

FK_DEVICE void fk_forward_item(const fk_launch *p, const fk_row_item *item, fk_u32 head) {
    fk_env env = fk_env_of(p, item->sequence);
    fk_u32 q_tile = fk_shared(), k_tile = q_tile + FK_ROWS * FK_ROW_BYTES, v_tile = k_tile + FK_STEP * FK_ROW_BYTES;
    fk_u32 kv_head = head / p->group;
    const fk_key_run *runs = (const fk_key_run *)p->runs + item->first;
    fk_forward_rows x;
    fk_step step = {0, 0};
    int more = item->runs != 0, idle = fk_warp() * FK_F_BANDS * 16 >= item->count; /* a warp without rows only copies */
    fk_sync(); /* the item before has been read */
    if (more) {
        fk_copy_tile(q_tile, FK_ROWS, FK_F_THREADS, fk_row(p, p->q, item->token, head, FK_ROW_BYTES), fk_q_stride(p),
                     item->count);
        fk_forward_copy(p, runs->k, runs, 0, kv_head, k_tile);
    }
    fk_forward_open(p, item, head, &x);
    while (more) {
        const fk_key_run *run = runs + step.run;
        fk_u32 at = step.at, keys = run->count - at < FK_STEP ? run->count - at : FK_STEP;
        float s[FK_F_BANDS][FK_F_COLUMNS][4];
        fk_u32 weights[FK_F_BANDS][FK_F_COLUMNS][2];
        int whole = fk_forward_whole(run, keys);
        fk_u64 counting[FK_F_BANDS] = {0};
        if (!whole && !idle) /* before the scores take registers, and while K is on its way */
            FK_UNROLL
            for (fk_u32 b = 0; b < FK_F_BANDS; b++)
                counting[b] = fk_counting(&env, run->cls == FK_PARTIAL, 0, FK_F_COLUMNS,
                                          item->position + fk_forward_row(b), run->position + at + fk_lane() % 4 * 2,
                                          keys, head);
        fk_copy_wait();
        fk_sync(); /* K is there, and the V before has been read */
        fk_forward_copy(p, run->v, run, at, kv_head, v_tile);
        if (!idle) fk_forward_scores(p, &env, item, run, at, whole, counting, head, q_tile, k_tile, s);
        more = fk_advance(&step, FK_STEP, run->count, item->runs);
        fk_copy_wait();
        fk_sync(); /* V is there, and K has been read */
        if (more) fk_forward_copy(p, runs[step.run].k, runs + step.run, step.at, kv_head, k_tile);
        if (idle) continue;
        fk_forward_softmax(s, &x, weights);
        fk_forward_gather(&x, (const fk_u32 (*)[FK_F_COLUMNS][2])weights, v_tile);
    }
    fk_forward_close(p, item, head, &x);
}

FK_KERNEL(fk_forward, FK_F_THREADS, 1)(FK_PARAMETER fk_launch launch) {
    const fk_launch *p = &launch;
    fk_begin(p->mark, p->mark_value);
    fk_u32 heads = p->head_count * p->group, work = p->item_count * heads;
    for (fk_u32 i = fk_block(); i < work; i += fk_blocks())
        fk_forward_item(p, (const fk_row_item *)p->items + i / heads, p->first_head * p->group + i % heads);
}
#undef FK_WARPS
#undef FK_STEP
