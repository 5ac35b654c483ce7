/* forward_rows.h: what both forward skeletons share: the rows of a warp with their running state (m, l, O), and one
 * step of the online softmax.
 *
 * FK_FORWARD_SM90 must be defined: 1 for the skeleton of sm_90a, 0 for that of mma.sync. In both, the accumulator of a
 * warp's 16 rows is a row of m16n8 fragments.
 *
 * m, the largest logit so far, is in natural units. l sums P. Only after that P is rounded to the input type, for the
 * product with V.
 *
 * P = 2^(s unit - base): one FMA and one exponential for each pair. s is the product q k, or the logit if there is a
 * score; s unit is the logit in log2 units, and base is m in log2 units. Both terms are rounded in proportion to their
 * size, so this is accurate only for rows whose base is *near* 0, up to FK_NEAR. If a warp has a row in a step that is
 * *far* from 0, or has seen no key, it first computes x - m for the logits x of that row, and then goes on with a base
 * of 0. The bits of other rows do not depend on that.
 */
enum {
#if FK_FORWARD_SM90
    FK_F_THREADS = FK_FORWARD_SM90_THREADS,
    FK_F_STEP = FK_FORWARD_SM90_KEYS(FK_HEAD_DIM, FK_VALUE_DIM),
    FK_F_BANDS = 1, /* bands of 16 rows that a warp has */
    FK_F_WARP = 4,  /* the first warp that has rows */
#else
    FK_F_THREADS = FK_FORWARD_WARPS(FK_HEAD_DIM, FK_HAS_SCORE) * 32,
    FK_F_STEP = FK_FORWARD_KEYS(FK_HEAD_DIM, FK_VALUE_DIM),
    FK_F_BANDS = FK_ROWS / 16 / FK_FORWARD_WARPS(FK_HEAD_DIM, FK_HAS_SCORE),
    FK_F_WARP = 0,
#endif
    FK_F_COLUMNS = FK_F_STEP / 8
};
#if FK_FORWARD_SM90
#define FK_F_EACH FK_ROLL /* compiles faster */
#else
#define FK_F_EACH FK_UNROLL /* a warp has more rows, and a rolled loop takes more registers */
#endif

typedef struct fk_forward_rows {
    float o[FK_F_BANDS][FK_VALUE_CHUNKS][4];
    float m[FK_F_BANDS][2], l[FK_F_BANDS][2]; /* l: the sum over this lane's own columns */
} fk_forward_rows;

/* The number, in the item, of the lane's first row of a band. */
FK_DEVICE fk_u32 fk_forward_row(fk_u32 band) {
    return ((fk_warp() - FK_F_WARP) * FK_F_BANDS + band) * 16 + fk_lane() / 4;
}

/* The query of the item that a row of its tile is, and its head, where `head` is the item's. */
FK_DEVICE fk_u32 fk_forward_query(const fk_row_item *item, fk_u32 row) {
    return FK_PACKED ? (item->skip + row) / item->pack : row;
}
FK_DEVICE fk_u32 fk_forward_head(const fk_row_item *item, fk_u32 row, fk_u32 head) {
    return FK_PACKED ? head + (item->skip + row) % item->pack : head;
}
/* The address of a row of Q of a packed item. */
FK_DEVICE fk_u64 fk_forward_packed_row(const fk_launch *p, const fk_row_item *item, fk_u32 row, fk_u32 head) {
    return fk_row(p, p->q, item->token + fk_forward_query(item, row), fk_forward_head(item, row, head), FK_ROW_BYTES);
}

/* How many pieces of work an item is, and the (first) query head of piece i. */
FK_DEVICE fk_u32 fk_forward_each(const fk_launch *p) {
    return FK_PACKED || p->subs ? 1 : fk_each(p->head_count * p->group);
}
FK_DEVICE fk_u32 fk_forward_first_head(const fk_launch *p, fk_u32 i, fk_u32 heads) {
    if (FK_PACKED || p->subs) return ((const fk_row_item *)p->items)[i].flags >> FK_HEAD_SHIFT;
    return fk_row_head(p, i, heads, 1);
}

/* Reads the running state of the item's rows, or begins a new one on the first visit. */
FK_DEVICE void fk_forward_open(const fk_launch *p, const fk_row_item *item, fk_u32 head, fk_forward_rows *x) {
    fk_u64 o = p->arena + item->state, m = o + (fk_u64)p->max_block * p->heads * FK_VALUE_DIM * 4;
    fk_u64 l = m + (fk_u64)p->max_block * p->heads * 4;
    fk_u32 t = fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 row = fk_forward_row(b) + half * 8;
            int there = !(item->flags & FK_FIRST) && row < item->count;
            fk_u64 token = (fk_u64)item->block_token + fk_forward_query(item, row);
            fk_u32 row_head = fk_forward_head(item, row, head);
            x->m[b][half] = there ? fk_load(fk_row(p, m, token, row_head, 4)) : -fk_infinity();
            x->l[b][half] = there && t == 0 ? fk_load(fk_row(p, l, token, row_head, 4)) : 0;
#if FK_FORWARD_SM90 /* one test for all numbers compiles faster; on mma.sync it would take registers */
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++) x->o[b][j][half * 2] = x->o[b][j][half * 2 + 1] = 0;
            if (!there) continue;
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++)
                fk_load2(&x->o[b][j][half * 2], fk_row(p, o, token, row_head, FK_VALUE_DIM * 4) + (j * 8 + t) * 4);
#else
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++) {
                float pair[2] = {0, 0};
                if (there) fk_load2(pair, fk_row(p, o, token, row_head, FK_VALUE_DIM * 4) + (j * 8 + t) * 4);
                x->o[b][j][half * 2] = pair[0];
                x->o[b][j][half * 2 + 1] = pair[1];
            }
#endif
        }
}

/* Where a part of a cut row item leaves its running state. */
FK_DEVICE fk_u64 fk_forward_part(const fk_launch *p, const fk_row_item *item, fk_u32 part) {
    return p->splits + (fk_u64)(item->cut + part) * FK_PART_BYTES(FK_VALUE_DIM);
}

/* Leaves the running state of the warp's rows there. Returns 1 for the last of the parts, which then has to join
 * them. */
FK_DEVICE fk_u32 fk_forward_leave_part(const fk_launch *p, const fk_row_item *item, const fk_forward_rows *x) {
    fk_u64 o = fk_forward_part(p, item, item->part), m = o + FK_ROWS * FK_VALUE_DIM * 4, l = m + FK_ROWS * 4;
    fk_u32 t = fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 row = fk_forward_row(b) + half * 8;
            float sum = x->l[b][half];
            sum += fk_shuffle_xor(sum, 1);
            sum += fk_shuffle_xor(sum, 2);
            if (row >= item->count) continue;
            if (t == 0) fk_store(m + row * 4, x->m[b][half]);
            if (t == 0) fk_store(l + row * 4, sum);
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++)
                fk_store2(o + (row * FK_VALUE_DIM + j * 8 + t) * 4, x->o[b][j][half * 2], x->o[b][j][half * 2 + 1]);
        }
    fk_u32 warp = fk_warp() - FK_F_WARP;
    return fk_comes_last(p->counter + (FK_TICKET_COUNTERS + (fk_u64)item->cut * FK_PART_COUNTERS + warp) * 4,
                         item->parts);
}

/* Joins the parts of one row of the lane, in their order. The lane has its own part in `most`, `sum` and the first two
 * columns of o; the others are in memory. The result takes the place of its own part, and has the same bits whichever
 * part that is. */
FK_DEVICE void fk_forward_join(const fk_launch *p, const fk_row_item *item, fk_u32 row, float *most, float *sum,
                               float (*o)[4]) {
    /* so many chunks at a time: all would take too many registers */
    enum { SOME = FK_VALUE_CHUNKS <= 16 ? FK_VALUE_CHUNKS : FK_VALUE_CHUNKS / 2 };
    float m = 0, l = 0, all[SOME][2];
    fk_u32 t = fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 chunk = 0; chunk < FK_VALUE_CHUNKS; chunk += SOME) {
        m = -fk_infinity();
        l = 0;
        FK_UNROLL
        for (fk_u32 j = 0; j < SOME; j++) all[j][0] = all[j][1] = 0;
        FK_ROLL
        for (fk_u32 part = 0; part < item->parts; part++) {
            fk_u64 o_at = fk_forward_part(p, item, part), m_at = o_at + FK_ROWS * FK_VALUE_DIM * 4 + row * 4;
            int own = part == item->part;
            float with = own ? *most : fk_load(m_at), adds = own ? *sum : fk_load(m_at + FK_ROWS * 4);
            float next = fk_max(m, with), base = fk_base_of(next);
            float before = fk_weight_of(m, base), factor = fk_weight_of(with, base);
            m = next;
            l = fk_fma(adds, factor, l * before);
            FK_UNROLL
            for (fk_u32 j = 0; j < SOME; j++) {
                float pair[2] = {o[chunk + j][0], o[chunk + j][1]};
                if (!own) fk_load2(pair, o_at + (row * FK_VALUE_DIM + (chunk + j) * 8 + t) * 4);
                all[j][0] = fk_fma(pair[0], factor, all[j][0] * before);
                all[j][1] = fk_fma(pair[1], factor, all[j][1] * before);
            }
        }
        FK_UNROLL
        for (fk_u32 j = 0; j < SOME; j++) o[chunk + j][0] = all[j][0], o[chunk + j][1] = all[j][1];
    }
    *most = m;
    *sum = l;
}

#if FK_FORWARD_SM90
/* Writes the lane's numbers of a row of O, times `factor`, if `there`. All lanes of the warp must call this.
 *
 * Four lanes have a row, each a word of every chunk of 16 bytes. If they wrote these words, a store would fill half a
 * sector of memory for each row. So they exchange them first, until each has every fourth chunk: then a store writes 64
 * bytes of each row, and with value_dim 128 a lane has 8 stores instead of 32. On mma.sync that takes registers. */
FK_DEVICE void fk_forward_store_o(fk_u64 to, int there, float (*o)[4], float factor) {
    fk_u32 own = fk_lane() % 4;
    to += own * 16;
    FK_UNROLL
    for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j += 4) {
        fk_u32 x[4]; /* this lane's word of chunks j to j + 3; in the end all words of chunk j + own */
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) x[i] = fk_pack(o[j + i][0] * factor, o[j + i][1] * factor);
        FK_UNROLL
        for (fk_u32 bit = 1; bit < 4; bit *= 2) FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) {
            if (i & bit) continue;
            fk_u32 got = fk_shuffle_xor_bits(own & bit ? x[i] : x[i + bit], bit);
            x[i] = own & bit ? got : x[i];
            x[i + bit] = own & bit ? x[i + bit] : got;
        }
        if (there) fk_store_bits4(to + j * 16, x);
    }
}
#endif

/* Writes the running state, or on the last visit O and LSE. If the item is cut, only the part that comes last does
 * so. */
FK_DEVICE void fk_forward_close(const fk_launch *p, const fk_row_item *item, fk_u32 head, fk_forward_rows *x) {
    fk_u64 o = p->arena + item->state, m = o + (fk_u64)p->max_block * p->heads * FK_VALUE_DIM * 4;
    fk_u64 l = m + (fk_u64)p->max_block * p->heads * 4;
    fk_u32 t = fk_lane() % 4 * 2;
    float sink = fk_sink(p->sinks, head);
    int cut = !FK_PACKED && !FK_FUSED && item->parts > 1;
    if (cut && !fk_forward_leave_part(p, item, x)) return;
    FK_F_EACH /* row of the lane: write the first, then move the others up, so that registers have constant numbers */
    for (fk_u32 i = 0; i < FK_F_BANDS * 2; i++) {
        fk_u32 row = fk_forward_row(0) + i * 8;
        float most = x->m[0][0], sum = x->l[0][0];
        sum += fk_shuffle_xor(sum, 1);
        sum += fk_shuffle_xor(sum, 2);
        fk_u32 row_head = fk_forward_head(item, row, head);
        if (cut && row < item->count) fk_forward_join(p, item, row, &most, &sum, x->o[0]);
        if (row < item->count && !(item->flags & FK_LAST)) {
            fk_u64 token = (fk_u64)item->block_token + fk_forward_query(item, row);
            fk_u64 o_at = fk_row(p, o, token, row_head, FK_VALUE_DIM * 4), m_at = fk_row(p, m, token, row_head, 4);
            fk_u64 l_at = fk_row(p, l, token, row_head, 4);
            if (FK_PACKED && item->flags & FK_SPLIT) {
                fk_u64 at = p->splits + item->state;
                o_at = at + (fk_u64)row * FK_VALUE_DIM * 4;
                m_at = at + (fk_u64)item->count * FK_VALUE_DIM * 4 + row * 4;
                l_at = m_at + item->count * 4;
            }
            if (t == 0) fk_store(m_at, most);
            if (t == 0) fk_store(l_at, sum);
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++)
                fk_store2(o_at + (j * 8 + t) * 4, x->o[0][j][0], x->o[0][j][1]);
        } else if (FK_FORWARD_SM90 ? item->flags & FK_LAST : row < item->count) { /* whole warps exchange O */
            if (FK_PACKED) sink = fk_sink(p->sinks, row_head);
            float lse[2], factor = fk_end_row(p->sinks, sink, most, sum, lse);
            fk_u64 token = item->out + fk_forward_query(item, row);
            if (t == 0 && (!FK_FORWARD_SM90 || row < item->count)) {
                fk_store(fk_row(p, p->lse, token, row_head, 4), lse[0]);
                fk_store(fk_row(p, p->lse_low, token, row_head, 4), lse[1]);
                fk_raise_maximum(p->maxima, p->model_head, p->group, p->shared, row_head, most);
            }
#if FK_FORWARD_SM90
            fk_forward_store_o(fk_row(p, p->o, token, row_head, FK_VALUE_BYTES), row < item->count, x->o[0], factor);
#else
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++)
                fk_store_bits(fk_row(p, p->o, token, row_head, FK_VALUE_BYTES) + (j * 8 + t) * 2,
                              fk_pack(x->o[0][j][0] * factor, x->o[0][j][1] * factor));
#endif
        }
        FK_UNROLL
        for (fk_u32 b = 0; b < FK_F_BANDS; b++) {
            x->m[b][0] = x->m[b][1];
            x->l[b][0] = x->l[b][1];
            if (b + 1 < FK_F_BANDS) x->m[b][1] = x->m[b + 1][0], x->l[b][1] = x->l[b + 1][0];
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++)
                FK_UNROLL
                for (fk_u32 e = 0; e < 2; e++) {
                    x->o[b][j][e] = x->o[b][j][e + 2];
                    if (b + 1 < FK_F_BANDS) x->o[b][j][e + 2] = x->o[b + 1][j][e];
                }
        }
    }
}

/* Fused: waits until what an item or a run needs has arrived, before the first of it is read. `arrival` is its flag; 0:
 * it is there. All that follows in this thread comes after the arrival. */
FK_DEVICE void fk_forward_arrival(const fk_launch *p, fk_u32 arrival) {
    if (FK_FUSED && arrival) fk_wait_arrival(p->locks + (arrival - 1) * 4ull);
}

/* Do all pairs of a step count, so that no mask is evaluated? keys: how many keys the step has. */
FK_DEVICE int fk_forward_whole(const fk_key_run *run, fk_u32 keys) { return run->cls == FK_FULL && keys == FK_F_STEP; }

/* Evaluates the mask of a step that is not whole. */
FK_DEVICE void fk_forward_mask(const fk_env *env, const fk_row_item *item, const fk_key_run *run, fk_u32 at,
                               fk_u32 keys, fk_u32 head, fk_u32 (*allowed)[2]) {
    fk_i64 key = run->position + at + fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++) {
        fk_u32 row = fk_forward_row(b);
        if (!FK_PACKED) {
            fk_mask_bits(env, run->cls == FK_PARTIAL, 0, FK_F_COLUMNS, item->position + row, key, keys, head,
                         allowed[b]);
            continue;
        }
        fk_i64 q[2] = {item->position + fk_forward_query(item, row), item->position + fk_forward_query(item, row + 8)};
        fk_u32 h[2] = {fk_forward_head(item, row, head), fk_forward_head(item, row + 8, head)};
        fk_mask_bits_packed(env, run->cls == FK_PARTIAL, FK_F_COLUMNS, q, h, key, keys, allowed[b]);
    }
}

/* fk_forward_logit: the logit of a score. fk_forward_unit: the factor that takes scores to log2 units. */
FK_DEVICE float fk_forward_logit(const fk_launch *p, float s) {
    return FK_HAS_SCORE ? s : fk_rounded_product(s, p->scale);
}
FK_DEVICE float fk_forward_unit(const fk_launch *p) { return FK_HAS_SCORE ? FK_LOG2E : p->scale_log2; }
/* Is the factor below 0? Then the greatest logit is that of the least score. */
#define FK_F_LEAST (!FK_HAS_SCORE && FK_NEGATIVE_SCALE)

/* Applies the score function to the products q k; without one, scores are the products themselves. Then gives logits of
 * -infinity to pairs that do not count. */
FK_DEVICE void fk_forward_scores(const fk_launch *p, const fk_env *env, const fk_row_item *item, const fk_key_run *run,
                                 fk_u32 at, int whole, fk_u32 (*allowed)[2], fk_u32 head, float (*s)[FK_F_COLUMNS][4]) {
    (void)p, (void)env, (void)item, (void)run, (void)at, (void)head;
#if FK_HAS_SCORE
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j++)
            FK_UNROLL
            for (fk_u32 i = 0; i < 4; i++) {
                fk_u32 row = fk_forward_row(b) + i / 2 * 8;
                fk_i64 k = run->position + at + j * 8 + fk_lane() % 4 * 2 + i % 2;
                s[b][j][i] =
                    fk_score(env, fk_rounded_product(s[b][j][i], p->scale),
                             item->position + fk_forward_query(item, row), k, fk_forward_head(item, row, head));
            }
#endif
    if (whole) return;
    /* outside the loop: a primitive inside would turn its selections into branches */
    float none = FK_F_LEAST ? fk_infinity() : -fk_infinity();
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 j = 0; j < FK_F_COLUMNS; j++)
            FK_UNROLL
            for (fk_u32 i = 0; i < 4; i++)
                s[b][j][i] = fk_mask_bit(allowed[b], i / 2, j, i % 2) ? s[b][j][i] : none; // cost: PARTIAL
}

/* One step of the online softmax: turns s into P, and updates m and l. The caller must multiply O by `factor`. The
 * factor of scores goes into the FMA that subtracts the maximum, so it costs nothing. */
FK_DEVICE void fk_forward_softmax(const fk_launch *p, float (*s)[FK_F_COLUMNS][4], fk_forward_rows *x,
                                  float (*factor)[2]) {
    const float unit = fk_forward_unit(p);
    float base[FK_F_BANDS][2];
    fk_u32 far = 0;
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 i = half * 2;
            float most = -fk_infinity();
            if (FK_WITHOUT_SOFTMAX) {
                factor[b][half] = x->l[b][half] = 1;
                continue;
            }
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_F_COLUMNS; j++) {
                float one = s[b][j][i], two = s[b][j][i + 1];
                most = fk_max(most, FK_F_LEAST ? fk_max(-one, -two) : fk_max(one, two));
            }
            most = fk_max(most, fk_shuffle_xor(most, 1));
            most = fk_max(most, fk_shuffle_xor(most, 2));
            most = fk_max(FK_F_LEAST ? -fk_forward_logit(p, most) : fk_forward_logit(p, most), x->m[b][half]);
            factor[b][half] = fk_weight_of(x->m[b][half], most);
            base[b][half] = fk_rounded_product(most, FK_LOG2E);
            far |= !fk_is_near(base[b][half]);
            x->m[b][half] = most;
        }
    if (FK_WITHOUT_SOFTMAX) return;
    if (fk_any(far)) {
        const float per_logit = fk_per_logit(p); // cost: seldom
        FK_UNROLL
        for (fk_u32 b = 0; b < FK_F_BANDS; b++)
            FK_UNROLL
            for (fk_u32 half = 0; half < 2; half++) {
                float from = fk_base_of(x->m[b][half]);
                if (fk_is_near(base[b][half])) continue; // cost: seldom
                if (x->m[b][half] == -fk_infinity()) factor[b][half] = 0; // cost: seldom
                base[b][half] = 0; // cost: seldom
                FK_UNROLL
                for (fk_u32 j = 0; j < FK_F_COLUMNS; j++)
                    FK_UNROLL
                    for (fk_u32 i = half * 2; i < half * 2 + 2; i++)
                        s[b][j][i] = (fk_forward_logit(p, s[b][j][i]) - from) * per_logit; // cost: seldom
            }
    }
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 i = half * 2;
            float sum = 0;
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_F_COLUMNS; j++) {
                s[b][j][i] = fk_exp2(fk_fma(s[b][j][i], unit, -base[b][half]));
                s[b][j][i + 1] = fk_exp2(fk_fma(s[b][j][i + 1], unit, -base[b][half]));
                sum += s[b][j][i] + s[b][j][i + 1];
            }
            x->l[b][half] = x->l[b][half] * factor[b][half] + sum;
        }
}

/* Multiplies O by its factors, and packs P in the input type: out[b] + 4 j is the fragment A of columns 16 j to 16 j +
 * 15. */
FK_DEVICE void fk_forward_rescale(float (*s)[FK_F_COLUMNS][4], fk_forward_rows *x, float (*factor)[2],
                                  fk_u32 (*out)[FK_F_COLUMNS * 2]) {
    FK_UNROLL
    for (fk_u32 b = 0; b < FK_F_BANDS; b++)
        FK_UNROLL
        for (fk_u32 half = 0; half < 2; half++) {
            fk_u32 i = half * 2;
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_F_COLUMNS; j++) out[b][j * 2 + half] = fk_pack(s[b][j][i], s[b][j][i + 1]);
            FK_UNROLL
            for (fk_u32 j = 0; j < FK_VALUE_CHUNKS; j++) {
                x->o[b][j][i] *= factor[b][half];
                x->o[b][j][i + 1] *= factor[b][half];
            }
        }
}
