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
 * A tile is rows of FK_HEAD_DIM or FK_VALUE_DIM numbers, in chunks of 16 bytes. In each row the chunks are permuted by
 * the number of the row, within groups of 8 neighbours, or of 4 (rows of 32 and 96 numbers) or 2 (of 16). Eight
 * neighbouring rows then have the same chunk in eight different groups of banks, so that a warp loads it without
 * conflicts.
 *
 * The products of a warp are m16n8k16. With g = lane / 4 and t = 2 (lane % 4), a lane has rows g and g + 8 of each 16
 * rows ("halves"), and columns t and t + 1 of each 8 columns.
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

/* Every kernel begins with this: it tells the host how far the device has come. */
FK_DEVICE void fk_begin(fk_u64 mark, fk_u32 value) {
#if defined FK_DELAY && FK_DELAY
    fk_delay();
#endif
    if (mark && fk_block() == 0 && fk_thread() == 0) fk_store_host_bits(mark, value);
}

#if FK_BF16
#define fk_multiply fk_multiply_bf16
#define fk_pack fk_pack_bf16
#define fk_unpack fk_unpack_bf16
#else
#define fk_multiply fk_multiply_fp16
#define fk_pack fk_pack_fp16
#define fk_unpack fk_unpack_fp16
#endif

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* How many neighbouring chunks are permuted among themselves, where a row has `width` chunks. */
FK_DEVICE fk_u32 fk_permuted(fk_u32 width) { return width % 8 == 0 ? 8 : width % 4 == 0 ? 4 : 2; }

/* The address of one chunk of one row of a tile, whose rows have `width` chunks. */
FK_DEVICE fk_u32 fk_at(fk_u32 tile, fk_u32 width, fk_u32 row, fk_u32 chunk) {
    fk_u32 some = fk_permuted(width);
    return tile + row * width * 16 + (chunk ^ row / (8 / some) % some) * 16;
}

/* Begins to copy `rows` rows to a tile. The first `count` of them are at `from`, `stride` bytes apart; the others
 * become 0. */
FK_DEVICE void fk_copy_tile(fk_u32 tile, fk_u32 width, fk_u32 rows, fk_u32 threads, fk_u64 from, fk_u64 stride,
                            fk_u32 count) {
    FK_UNROLL
    for (fk_u32 i = 0; i < rows * width; i += threads) {
        fk_u32 at = i + fk_thread(), row = at / width, chunk = at % width;
        if (rows * width % threads && at >= rows * width) break;
        fk_copy(fk_at(tile, width, row, chunk), row < count ? from + row * stride + chunk * 16 : from,
                row < count ? 16 : 0);
    }
}

/* Where a lane finds its rows for fk_matrices: fk_corner for A, and for B if its columns lie side by side;
 * fk_corner_rows for B if its rows do. fk_beside goes on from there to other rows and chunks of the tile. `rows` must
 * be a multiple of 8, so that the permutation is the same. `chunks` must be even, so that it commutes with the
 * permutation. From a place that is `chunks` away one may go on by other chunks, if no sum of both, within the chunks
 * that are permuted among themselves, has a carry. If a row has a power of two of chunks, it begins at a multiple of its
 * bytes, and one exclusive-or is right for all of them: 82 instructions less in a step of fk_backward_ordered on sm_80. For
 * sm_100 the compiler then takes more registers than there are, so there it is done in two steps, as for other rows. */
FK_DEVICE fk_u32 fk_corner(fk_u32 tile, fk_u32 width, fk_u32 row) {
    return fk_at(tile, width, row + fk_lane() % 16, fk_lane() / 16);
}
FK_DEVICE fk_u32 fk_corner_rows(fk_u32 tile, fk_u32 width, fk_u32 row) {
    fk_u32 lane = fk_lane();
    return fk_at(tile, width, row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
FK_DEVICE fk_u32 fk_beside(fk_u32 corner, fk_u32 width, fk_u32 rows, fk_u32 chunks) {
    fk_u32 some = fk_permuted(width);
#if !defined __CUDA_ARCH__ || __CUDA_ARCH__ < 1000
    if (!(width & (width - 1))) return (corner ^ (chunks * 16)) + rows * width * 16;
#endif
    return (corner ^ chunks % some * 16) + chunks / some * some * 16 + rows * width * 16;
}

/* c[j] = 16 rows of tile x, from `row` on, times rows 8 j .. 8 j + 7 of tile y, for j < columns, which is even. Rows of
 * both have `width` chunks. */
FK_DEVICE void fk_rows_by_rows(float (*c)[4], fk_u32 columns, fk_u32 width, fk_u32 x, fk_u32 row, fk_u32 y) {
    fk_u32 x_corner = fk_corner(x, width, row), y_corner = fk_corner_rows(y, width, 0);
    FK_UNROLL
    for (fk_u32 j = 0; j < columns; j++) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
    FK_UNROLL_SOME
    for (fk_u32 d = 0; d < width; d += 2) {
        fk_u32 a[4];
        fk_matrices(a, fk_beside(x_corner, width, 0, d));
        FK_UNROLL
        for (fk_u32 j = 0; j < columns; j += 2) {
            fk_u32 b[4];
            fk_matrices(b, fk_beside(y_corner, width, j * 8, d));
            fk_multiply(c[j], a, b[0], b[1]);
            fk_multiply(c[j + 1], a, b[2], b[3]);
        }
    }
}

/* Warps that share the chunks of a row: with two `parts`, part 0 has the first half of all chunks that are permuted
 * among themselves, and part 1 the second half. Chunk number j of part 0 is fk_shared_chunk(width, parts, j) of the
 * row, and that of part 1 is fk_permuted(width) / 2 more. */
FK_DEVICE fk_u32 fk_shared_chunk(fk_u32 width, fk_u32 parts, fk_u32 j) {
    fk_u32 half = fk_permuted(width) / 2;
    return parts == 1 ? j : j / half * half * 2 + j % half;
}

/* c[j] += p times chunk j of part `part` of rows of tile y, which have `width` chunks in `parts` parts. p is 16 rows of
 * 8 * depth numbers, packed in the input type: p[i] has rows g and g + 8 of columns 8 i + t and 8 i + t + 1. depth is
 * even. */
FK_DEVICE void fk_packed_by_columns(float (*c)[4], fk_u32 width, fk_u32 parts, fk_u32 part, const fk_u32 (*p)[2],
                                    fk_u32 depth, fk_u32 y) {
    fk_u32 corner = fk_beside(fk_corner(y, width, 0), width, 0, part * (fk_permuted(width) / 2));
    FK_UNROLL
    for (fk_u32 i = 0; i < depth; i += 2) {
        fk_u32 a[4] = {p[i][0], p[i][1], p[i + 1][0], p[i + 1][1]};
        FK_UNROLL
        for (fk_u32 j = 0; j < width / parts; j += 2) {
            fk_u32 b[4];
            fk_matrices_transposed(b, fk_beside(corner, width, i * 8, fk_shared_chunk(width, parts, j)));
            fk_multiply(c[j], a, b[0], b[1]);
            fk_multiply(c[j + 1], a, b[2], b[3]);
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

/* Says which pairs of a warp's product count: bit 2 j + e of bits[half] is for the number of that half, column group
 * and column. `row` and `column` are the positions of this lane's first row and first column. Columns from `limit` of
 * the warp's on do not exist and so do not count; if `partial`, neither do pairs that the mask forbids. Rows are
 * queries and columns are keys, or with `reverse` the other way round. There are at most 16 groups of columns. Call it
 * only if some pair may not count. Where the mask gives a row one or two intervals, they are computed once a row, in a
 * FULL cell too, where they hold all that exist; else it is asked about each pair. */
FK_DEVICE void fk_counting(const fk_env *env, int partial, int reverse, fk_u32 columns, fk_i64 row, fk_i64 column,
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
FK_DEVICE void fk_counting_packed(const fk_env *env, int partial, fk_u32 columns, const fk_i64 *q, const fk_u32 *h,
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
FK_DEVICE int fk_counts(const fk_u32 *bits, fk_u32 half, fk_u32 j, fk_u32 e) {
    return (bits[half] & 1u << (j * 2 + e)) != 0;
}

FK_DEVICE fk_env fk_env_of(const fk_launch *p, fk_u32 sequence) {
    fk_env env;
    env.sequence = ((const fk_sequence *)p->sequences)[sequence];
    env.arrays = (const fk_u64 *)p->arrays;
    env.bands = (const fk_bands *)p->bands;
#if FK_RANGES
    env.model_head = p->model_head;
    env.group = p->group;
    env.shared = p->shared;
#endif
    return env;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* The n-th piece of work of this block, where pieces stand longest first. The blocks take one piece each in their
 * order, then one each in the reverse order, and so on: who got the longest of one turn gets the shortest of the
 * next, so that all have nearly the same to do. (In the same order always, the first block would get the longest
 * piece of every turn.) */
FK_DEVICE fk_u32 fk_piece(fk_u32 n) {
    return n * fk_blocks() + (n % 2 ? fk_blocks() - 1 - fk_block() : fk_block());
}

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

/* A piece of work of the backward pass in one kernel: an item of keys for one KV head and some query heads of its
 * group, from `first` on; it is number `part` of the parts into which the heads of the group are cut. */
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
    return set ? base + fk_count_bits((set & -set) - 1) : first + group;
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
/* Is a row with this LSE, or this m, times log2 e, near 0? -infinity, +infinity and NaN are not. Within the limit
 * the roundings of m, of the scale and of this number make P wrong by about 2^-16 of itself, at most. */
#define FK_NEAR 256.0f
FK_DEVICE int fk_is_near(float base) { return fabsf(base) <= FK_NEAR; }

/* Differences of logits, times this, are what such differences are before the scale: the kernels take both to base 2 by
 * the same factor. With a score they are the same. */
FK_DEVICE float fk_per_logit(const fk_launch *p) { return FK_HAS_SCORE ? 1 : p->unscale; }

/* exp(x - from). The difference comes before the scale to base 2, so that it is right however large both are; where
 * both are alike it is exactly 1. */
FK_DEVICE float fk_weight_of(float x, float from) { return fk_exp2((x - from) * FK_LOG2E); }
/* The m that logits are subtracted from: that of a row that has seen no key is -infinity, and so are its logits. */
FK_DEVICE float fk_base_of(float most) { return most == -fk_infinity() ? 0 : most; }

/* What O has to be multiplied by at the end of a row with m `most` and l `sum`, and the two numbers of the row's LSE.
 * With `sinks` the sink counts as one more key. The LSE of a row that sees no key is exactly the sink. */
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
/* Tells the largest logit of a finished row, of query head `head` of a range. maxima, model_head, group, shared: as in
 * fk_launch. */
FK_DEVICE void fk_tell_largest(fk_u64 maxima, fk_u32 model_head, fk_u32 group, fk_u32 shared, fk_u32 head,
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
