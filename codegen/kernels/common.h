/* common.h: what all skeletons need: tiles in shared memory, fragments, masks as bits, steps through the runs of an
 * item.
 *
 * It comes after abi.h, the primitives, and the functions printed from the plan (q, k: positions; h: query head):
 *   int fk_allow(const fk_env *env, fk_i64 q, fk_i64 k, fk_i64 h)
 *   float fk_score(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h)    if FK_HAS_SCORE is 1
 *   float fk_slope(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h)    likewise: its derivative by s
 *   fk_u32 fk_keys(const fk_env *env, fk_i64 q, fk_i64 k, fk_i32 limit, int h)       if FK_KEY_SPANS is 1
 *   fk_u32 fk_queries(const fk_env *env, fk_i64 q, fk_i64 k, fk_i32 limit, int h)    if FK_QUERY_SPANS is 1
 *   fk_u32 fk_below32(fk_i32 x)
 * These must be defined: FK_HEAD_DIM and FK_VALUE_DIM (for which FK_HAS_DIMS is true), FK_BF16 (1: bf16, 0: fp16),
 * FK_HAS_SCORE (0 or 1), FK_NEGATIVE_SCALE (1: the scale is below 0), FK_BY_HEAD, FK_PACKED and FK_FUSED (0 or 1).
 *
 * A tile is rows of FK_HEAD_DIM or FK_VALUE_DIM numbers in shared memory, in chunks of 16 bytes. It is swizzled: in
 * each row the chunks are permuted by the number of the row, within groups of 8 neighbours, or of 4 (rows of 32 and 96
 * numbers) or 2 (rows of 16). So eight neighbouring rows have the same chunk in eight different groups of banks, and
 * ldmatrix loads it without bank conflicts.
 *
 * The products of a warp are mma.m16n8k16. With g = lane / 4 and t = 2 (lane % 4), a lane holds rows g and g + 8 of
 * each 16 rows (its two "halves"), and columns t and t + 1 of each 8 columns.
 */
#ifndef FK_COMMON_H
#define FK_COMMON_H

#define FK_LOG2E 1.44269504088896340736f
#define FK_LN2 0.69314718055994530942f
enum {
    FK_CHUNKS = FK_HEAD_DIM / 8,        /* of a row of Q or K */
    FK_ROW_BYTES = FK_HEAD_DIM * 2,
    FK_VALUE_CHUNKS = FK_VALUE_DIM / 8, /* of a row of V, O or dO */
    FK_VALUE_BYTES = FK_VALUE_DIM * 2
};

/* Builds that show what a part costs; their results are wrong. Without the softmax P is S; without dQ it is computed
 * and not added. */
#ifndef FK_WITHOUT_SOFTMAX
#define FK_WITHOUT_SOFTMAX 0
#endif
#ifndef FK_WITHOUT_DQ
#define FK_WITHOUT_DQ 0
#endif

FK_DEVICE fk_u32 fk_lane(void) { return fk_thread() % 32; }
FK_DEVICE fk_u32 fk_warp(void) { return fk_thread() / 32; }

/* An attention kernel begins with this, so that a build that watches waits (prim_ptx.h) knows how long it takes. */
#ifndef FK_WATCH
#define FK_WATCH()
#endif

/* Every kernel begins with this: it tells the host how far the device has come. */
FK_DEVICE void fk_begin(fk_u64 mark, fk_u32 value) {
#if defined FK_DELAY && FK_DELAY
    fk_delay();
#endif
    if (mark && fk_cta() == 0 && fk_thread() == 0) fk_store_host_bits(mark, value);
}

#if FK_BF16
#define fk_mma fk_mma_bf16
#define fk_pack fk_pack_bf16
#define fk_unpack fk_unpack_bf16
#else
#define fk_mma fk_mma_fp16
#define fk_pack fk_pack_fp16
#define fk_unpack fk_unpack_fp16
#endif

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* How many neighbouring chunks are permuted among themselves, where a row has `width` chunks. */
FK_DEVICE fk_u32 fk_swizzle_chunks(fk_u32 width) { return width % 8 == 0 ? 8 : width % 4 == 0 ? 4 : 2; }

/* The address of one chunk of one row of a tile, whose rows have `width` chunks. */
FK_DEVICE fk_u32 fk_chunk_at(fk_u32 tile, fk_u32 width, fk_u32 row, fk_u32 chunk) {
    fk_u32 some = fk_swizzle_chunks(width);
    return tile + row * width * 16 + (chunk ^ row / (8 / some) % some) * 16;
}

/* Begins to copy `rows` rows to a tile, by cp.async. The first `count` of them are at `from`, `stride` bytes apart; the
 * others become 0. */
FK_DEVICE void fk_copy_tile(fk_u32 tile, fk_u32 width, fk_u32 rows, fk_u32 threads, fk_u64 from, fk_u64 stride,
                            fk_u32 count) {
    FK_UNROLL
    for (fk_u32 i = 0; i < rows * width; i += threads) {
        fk_u32 at = i + fk_thread(), row = at / width, chunk = at % width;
        if (rows * width % threads && at >= rows * width) break;
        fk_cp_async(fk_chunk_at(tile, width, row, chunk), row < count ? from + row * stride + chunk * 16 : from,
                    row < count ? 16 : 0);
    }
}

/* These return the address that a lane gives to ldmatrix. fk_fragment_at is for operand A, and for B if the numbers of
 * a row of B lie side by side in memory; fk_fragment_at_rows is for B if those of a column do.
 *
 * fk_fragment_beside returns the address that is `rows` rows and `chunks` chunks further in the tile, without computing
 * the swizzle again. `rows` must be a multiple of 8 (the swizzle is then the same) and `chunks` even. It may be applied
 * twice, if the two `chunks` together do not pass the end of a group of swizzled chunks. Rows of a power of two of
 * chunks need a single exclusive-or. That saves 82 instructions in a step of fk_backward_ordered on sm_80. On sm_100
 * that variant would need more registers than there are, so there the general one is taken.
 */
FK_DEVICE fk_u32 fk_fragment_at(fk_u32 tile, fk_u32 width, fk_u32 row) {
    return fk_chunk_at(tile, width, row + fk_lane() % 16, fk_lane() / 16);
}
FK_DEVICE fk_u32 fk_fragment_at_rows(fk_u32 tile, fk_u32 width, fk_u32 row) {
    fk_u32 lane = fk_lane();
    return fk_chunk_at(tile, width, row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
FK_DEVICE fk_u32 fk_fragment_beside(fk_u32 corner, fk_u32 width, fk_u32 rows, fk_u32 chunks) {
    fk_u32 some = fk_swizzle_chunks(width);
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ < 1000
    if (!(width & (width - 1))) return (corner ^ (chunks * 16)) + rows * width * 16;
#endif
    return (corner ^ chunks % some * 16) + chunks / some * some * 16 + rows * width * 16;
}

/* Product by mma: c[j] = (16 rows of tile x, from `row` on) times (rows 8 j to 8 j + 7 of tile y), for j < columns,
 * which is even. Rows of both have `width` chunks. */
FK_DEVICE void fk_rows_by_rows(float (*c)[4], fk_u32 columns, fk_u32 width, fk_u32 x, fk_u32 row, fk_u32 y) {
    fk_u32 x_corner = fk_fragment_at(x, width, row), y_corner = fk_fragment_at_rows(y, width, 0);
    FK_UNROLL
    for (fk_u32 j = 0; j < columns; j++) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
    FK_UNROLL_SOME
    for (fk_u32 d = 0; d < width; d += 2) {
        fk_u32 a[4];
        fk_ldmatrix(a, fk_fragment_beside(x_corner, width, 0, d));
        FK_UNROLL
        for (fk_u32 j = 0; j < columns; j += 2) {
            fk_u32 b[4];
            fk_ldmatrix(b, fk_fragment_beside(y_corner, width, j * 8, d));
            fk_mma(c[j], a, b[0], b[1]);
            fk_mma(c[j + 1], a, b[2], b[3]);
        }
    }
}

/* Divides the chunks of a row between two warps (`parts` 2), as columns of a sum: part 0 has the first half of every
 * group of swizzled chunks, part 1 the second. With groups of 8, part 0 has chunks 0-3 and 8-11, part 1 has 4-7 and
 * 12-15. Returns which chunk of the row is the j-th of part 0; that of part 1 is half a group further. */
FK_DEVICE fk_u32 fk_shared_chunk(fk_u32 width, fk_u32 parts, fk_u32 j) {
    fk_u32 half = fk_swizzle_chunks(width) / 2;
    return parts == 1 ? j : j / half * half * 2 + j % half;
}

/* Matrix product by mma: c += p y. y is a tile whose rows have `width` chunks of 8 columns. If `parts` is 2, another
 * warp computes half of the columns (fk_shared_chunk). This call then makes those of part `part`, and c[j] is its chunk
 * j. p has 16 rows and 8 * depth columns, one for each row of y, packed in the input type: p[i] has rows g and g + 8 of
 * columns 8 i + t and 8 i + t + 1. depth is even. */
FK_DEVICE void fk_packed_by_columns(float (*c)[4], fk_u32 width, fk_u32 parts, fk_u32 part, const fk_u32 (*p)[2],
                                    fk_u32 depth, fk_u32 y) {
    fk_u32 corner = fk_fragment_beside(fk_fragment_at(y, width, 0), width, 0, part * (fk_swizzle_chunks(width) / 2));
    FK_UNROLL
    for (fk_u32 i = 0; i < depth; i += 2) {
        fk_u32 a[4] = {p[i][0], p[i][1], p[i + 1][0], p[i + 1][1]};
        FK_UNROLL
        for (fk_u32 j = 0; j < width / parts; j += 2) {
            fk_u32 b[4];
            fk_ldmatrix_trans(b, fk_fragment_beside(corner, width, i * 8, fk_shared_chunk(width, parts, j)));
            fk_mma(c[j], a, b[0], b[1]);
            fk_mma(c[j + 1], a, b[2], b[3]);
        }
    }
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

#if FK_RANGES
/* Masks and scores mean the model's heads; kernels count those of a range. */
FK_DEVICE fk_u32 fk_model_head(const fk_env *env, fk_u32 head) {
    return env->model_head + head / env->group * env->shared + head % env->group;
}
#define fk_allow(env, q, k, h) fk_allow(env, q, k, fk_model_head(env, h))
#define fk_score(env, s, q, k, h) fk_score(env, s, q, k, fk_model_head(env, h))
#define fk_slope(env, s, q, k, h) fk_slope(env, s, q, k, fk_model_head(env, h))
#define fk_keys(env, q, k, limit, h) fk_keys(env, q, k, limit, (int)fk_model_head(env, h))
#define fk_queries(env, q, k, limit, h) fk_queries(env, q, k, limit, (int)fk_model_head(env, h))
#endif

/* Evaluates the mask for the numbers that a lane holds of a product (fragments: see the head of this file). Each number
 * is a pair of a row and a column: rows are queries and columns are keys, or with `reverse` the other way round. `row`
 * and `column` are the positions of the lane's first row and first column. Bit 2 j + e of bits[half] becomes 1 if the
 * pair of row g + 8 half with column t + e of the j-th 8 columns counts. There are at most 16 times 8 columns.
 *
 * A pair does not count if its column, counted from the warp's first, is at or beyond `limit`; nor, if `partial`, if
 * the mask forbids it. Call this only if some pair may not count. If the mask gives each row one or two intervals, it
 * works on their ends (fk_keys, fk_queries), in FULL cells too; otherwise the mask is asked about each pair.
 */
FK_DEVICE void fk_mask_bits(const fk_env *env, int partial, int reverse, fk_u32 columns, fk_i64 row, fk_i64 column,
                            fk_u32 limit, fk_u32 head, fk_u32 *bits) {
    fk_u32 t = fk_lane() % 4 * 2;
    fk_i32 there = (fk_i32)limit - (fk_i32)t;
#if FK_KEY_SPANS
    if (!reverse) {
        bits[0] = fk_keys(env, row, column, there, (int)head);
        bits[1] = fk_keys(env, row + 8, column, there, (int)head);
        return;
    }
#endif
#if FK_QUERY_SPANS
    if (reverse) {
        bits[0] = fk_queries(env, column, row, there, (int)head);
        bits[1] = fk_queries(env, column, row + 8, there, (int)head);
        return;
    }
#endif
    if (!partial) {
        bits[0] = bits[1] = fk_below32(there); // cost: seldom
        return;
    }
    FK_ROLL
    for (fk_u32 half = 0; half < 2; half++) {
        fk_u32 word = 0;
        FK_ROLL
        for (fk_u32 j = 0; j < columns; j++)
            FK_UNROLL
            for (fk_u32 e = 0; e < 2; e++) {
                fk_i64 r = row + half * 8, c = column + j * 8 + e;
                int yes = j * 8 + t + e < limit;
                if (yes) yes = reverse ? fk_allow(env, c, r, head) : fk_allow(env, r, c, head);
                word |= (fk_u32)(yes != 0) << (j * 2 + e);
            }
        if (half) bits[1] = word;
        else bits[0] = word;
    }
}
/* The same for rows that are queries q[0] and q[1] of heads h[0] and h[1]. */
FK_DEVICE void fk_mask_bits_packed(const fk_env *env, int partial, fk_u32 columns, const fk_i64 *q, const fk_u32 *h,
                                   fk_i64 column, fk_u32 limit, fk_u32 *bits) {
    fk_u32 t = fk_lane() % 4 * 2;
    fk_i32 there = (fk_i32)limit - (fk_i32)t;
    (void)env, (void)partial, (void)columns, (void)q, (void)h, (void)column;
#if FK_KEY_SPANS
    bits[0] = fk_keys(env, q[0], column, there, (int)h[0]);
    bits[1] = fk_keys(env, q[1], column, there, (int)h[1]);
#else
    bits[0] = bits[1] = fk_below32(there);
    if (!partial) return;
    FK_ROLL
    for (fk_u32 j = 0; j < columns * 2; j++) {
        fk_i64 c = column + j / 2 * 8 + j % 2;
        if (!fk_allow(env, q[0], c, h[0])) bits[0] &= ~(1u << j);
        if (!fk_allow(env, q[1], c, h[1])) bits[1] &= ~(1u << j);
    }
#endif
}
FK_DEVICE int fk_mask_bit(const fk_u32 *bits, fk_u32 half, fk_u32 j, fk_u32 e) {
    return (bits[half] & 1u << (j * 2 + e)) != 0;
}

FK_DEVICE fk_env fk_env_of(const fk_launch *p, fk_u32 sequence) {
    fk_env env;
    env.sequence = ((const fk_sequence *)p->sequences)[sequence];
    env.arrays = (const fk_u64 *)p->arrays + (fk_u64)sequence * FK_ARRAYS;
    env.bands = (const fk_bands *)p->bands;
#if FK_RANGES
    env.model_head = p->model_head;
    env.group = p->group;
    env.shared = p->shared;
#endif
    return env;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* The n-th piece of work of this CTA, of a list whose pieces stand longest first. The CTAs take one piece each in their
 * order, then one each in the reverse order, and so on: who had the longest piece of one round has the shortest of the
 * next, so that all have nearly the same to do. (In the same order always, the first CTA would have the longest piece
 * of every round.) */
FK_DEVICE fk_u32 fk_piece(fk_u32 n) { return n * fk_ctas() + (n % 2 ? fk_ctas() - 1 - fk_cta() : fk_cta()); }

/* How many pieces of work an item is: one for each of `heads` heads, or by head one. */
FK_DEVICE fk_u32 fk_each(fk_u32 heads) { return FK_BY_HEAD ? 1 : heads; }
/* Of piece i the query head, where items are rows, or the KV head, where they are keys; heads: what fk_each says. */
FK_DEVICE fk_u32 fk_row_head(const fk_launch *p, fk_u32 i, fk_u32 heads, fk_u32 parts) {
    if (FK_BY_HEAD) return ((const fk_row_item *)p->items)[i / parts].flags >> FK_HEAD_SHIFT;
    return p->first_head * p->group + i % heads;
}
FK_DEVICE fk_u32 fk_key_head(const fk_launch *p, fk_u32 i, fk_u32 heads, fk_u32 parts) {
    if (FK_BY_HEAD) return ((const fk_key_item *)p->items)[i / parts].kv_head;
    return p->first_head + i % heads;
}

/* A piece of work of a backward kernel: an item of keys for one KV head and `heads` query heads of its group, from
 * `first` on. If the heads of a group are cut into parts, it is number `part` of `parts`. */
typedef struct fk_key_piece {
    const fk_key_item *item;
    fk_u32 kv_head, first, heads, part, parts;
} fk_key_piece;
/* Fused: what an item waits for, and its heads. */
FK_DEVICE const fk_key_fused *fk_key_fused_of(const fk_launch *p, const fk_key_item *item) {
    const fk_key_item *items = (const fk_key_item *)p->items;
    return (const fk_key_fused *)(items + p->item_count) + (item - items);
}
/* Fused: waits until what an item reads has arrived. All that follows in this thread comes after that. */
FK_DEVICE void fk_key_arrival(const fk_launch *p, const fk_key_item *item) {
    const fk_key_fused *fused = fk_key_fused_of(p, item);
    for (fk_u32 i = 0; i < 2; i++)
        if (fused->flags[i]) fk_wait_arrival(p->splits + (fused->flags[i] - 1) * 4ull);
}
/* Piece i, or one without an item if there are no more. */
FK_DEVICE fk_key_piece fk_key_piece_of(const fk_launch *p, fk_u32 i) {
    fk_key_piece x = {0, 0, 0, p->group, 0, 1};
    if (!FK_BY_HEAD && !FK_FUSED) {
        x.parts = (p->group + p->subs - 1) / p->subs;
        x.part = i % x.parts;
        i /= x.parts;
    }
    fk_u32 heads = fk_each(p->head_count);
    if (i >= p->item_count * heads) return x;
    x.item = (const fk_key_item *)p->items + i / heads;
    x.kv_head = fk_key_head(p, i, heads, 1);
    x.first = x.kv_head * p->group;
    if (FK_FUSED) {
        const fk_key_fused *fused = fk_key_fused_of(p, x.item);
        x.first += fused->first;
        x.heads = fused->heads;
        return x;
    }
    if (FK_BY_HEAD) return x;
    x.first += x.part * p->subs;
    x.heads = p->group - x.part * p->subs < p->subs ? p->group - x.part * p->subs : p->subs;
    return x;
}
/* The lock of FK_TURN_ROWS rows of a head, from `at` on in a run; and that of a piece's keys, with the piece's turn. */
FK_DEVICE fk_u64 fk_row_lock(const fk_launch *p, const fk_row_run *run, fk_u32 head, fk_u32 at) {
    return p->locks + (((fk_u64)run->lock * p->heads + head) * FK_TURNS_OF_RUN + at / FK_TURN_ROWS) * 4;
}
FK_DEVICE fk_u64 fk_key_lock(const fk_launch *p, const fk_key_piece *x) {
    return p->locks + ((fk_u64)x->item->lock * p->heads + x->kv_head * p->group) * FK_TURNS_OF_RUN * 4;
}
FK_DEVICE fk_u32 fk_key_turn(const fk_key_piece *x) { return x->item->turn * x->parts + x->part; }

/* The class of a run of rows; and the next of its heads from `head` on, where the group has heads first to first +
 * group - 1. first + group: there is none. */
FK_DEVICE fk_u32 fk_run_class(const fk_row_run *run) { return FK_BY_HEAD ? run->cls % (1u << FK_SET_SHIFT) : run->cls; }
FK_DEVICE fk_u32 fk_run_head(const fk_row_run *run, fk_u32 head, fk_u32 first, fk_u32 group) {
    if (!FK_BY_HEAD) return head;
    fk_u32 base = first + (run->cls >> FK_SET_BASE_SHIFT) * FK_SET_HEADS;
    fk_u32 set = run->cls >> FK_SET_SHIFT & ((1u << FK_SET_HEADS) - 1);
    if (head > base) set &= ~0u << (head - base);
    return set ? base + fk_popcount((set & -set) - 1) : first + group;
}

/* Bytes from one token to the next in Q, in O and dO, in K, and in V. */
FK_DEVICE fk_u64 fk_q_stride(const fk_launch *p) { return (fk_u64)p->heads * FK_ROW_BYTES; }
FK_DEVICE fk_u64 fk_o_stride(const fk_launch *p) { return (fk_u64)p->heads * FK_VALUE_BYTES; }
FK_DEVICE fk_u64 fk_k_stride(const fk_launch *p) { return (fk_u64)p->kv_heads * FK_ROW_BYTES; }
FK_DEVICE fk_u64 fk_v_stride(const fk_launch *p) { return (fk_u64)p->kv_heads * FK_VALUE_BYTES; }
/* The address of one token and query head in an array [tokens][heads] of `size` bytes each that begins at `base`. */
FK_DEVICE fk_u64 fk_row(const fk_launch *p, fk_u64 base, fk_u64 token, fk_u32 head, fk_u32 size) {
    return base + (token * p->heads + head) * size;
}

/* --- the end of a row --------------------------------------------------------------------------------------------- */

/* The sink of a head. -infinity: there are no sinks. */
FK_DEVICE float fk_sink(fk_u64 sinks, fk_u64 head) { return sinks ? fk_load(sinks + head * 4) : -fk_infinity(); }
/* Is a row *near* 0? base: its LSE, or its m, times log2 e. -infinity, +infinity and NaN are not near. Within the limit
 * the roundings of m, of the scale and of base make P wrong by at most about 2^-16 of itself. */
#define FK_NEAR 256.0f
FK_DEVICE int fk_is_near(float base) { return fabsf(base) <= FK_NEAR; }

/* The factor that turns differences of logits into differences of scores: the kernels take scores to base 2 by one
 * factor, which includes the scale. If there is a score function, scores are logits. */
FK_DEVICE float fk_per_logit(const fk_launch *p) { return FK_HAS_SCORE ? 1 : p->unscale; }

/* exp(x - from). The difference is taken before the factor log2 e, so that it is right however large both are; if they
 * are equal, the result is exactly 1. */
FK_DEVICE float fk_weight_of(float x, float from) { return fk_exp2((x - from) * FK_LOG2E); }
/* The number that is subtracted from the logits of a row whose largest is `most`. A row that has seen no key has
 * -infinity there, and so are its logits: it gets 0, so that no NaN comes of their difference. */
FK_DEVICE float fk_base_of(float most) { return most == -fk_infinity() ? 0 : most; }

/* Ends a row with the running state m (`most`) and l (`sum`): returns the factor for its O, and gives both numbers of
 * its LSE. With `sinks` the sink counts as one more key. The LSE of a row that sees no key is exactly the sink. */
FK_DEVICE float fk_end_row(fk_u64 sinks, float sink, float most, float sum, float lse[2]) {
    float factor = 1;
    lse[0] = sink;
    lse[1] = 0;
    if (sum == 0) return 0;
    if (sinks) {
        float with = fk_max(most, sink);
        factor = fk_weight_of(most, with);
        sum = sum * factor + fk_weight_of(sink, with);
        most = with;
    }
    float rest = fk_rounded_product(FK_LN2, fk_log2(sum));
    lse[0] = most + rest;
    lse[1] = (most - lse[0]) + rest;
    return factor / sum;
}
/* Raises a head's largest logit (fk_launch.maxima) to that of a finished row. head: the query head in its range; the
 * other parameters are as in fk_launch. */
FK_DEVICE void fk_raise_maximum(fk_u64 maxima, fk_u32 model_head, fk_u32 group, fk_u32 shared, fk_u32 head,
                                float most) {
    if (maxima) fk_max_global(maxima + (model_head + head / group * shared + head % group) * 4ull, most);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Where a kernel is in the runs of an item, which it takes `length` positions at a time. */
typedef struct fk_step {
    fk_u32 run, at; /* the run; how many of its positions are done */
} fk_step;
/* Goes on to the next step; `count` is the length of the current run. 0: there is none. */
FK_DEVICE int fk_advance(fk_step *s, fk_u32 length, fk_u32 count, fk_u32 runs) {
    s->at += length;
    if (s->at < count) return 1;
    s->at = 0;
    return ++s->run < runs;
}
#endif
