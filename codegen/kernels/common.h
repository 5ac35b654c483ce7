/* common.h: what the mma.sync skeletons share: tiles in shared memory, fragments, masks, rows of softmax.
 *
 * Comes after abi.h, the primitives, and the emitted functions, which are (q, k: positions; h: query head)
 *   int fk_allow(const fk_env *env, fk_i64 q, fk_i64 k, fk_i64 h)
 *   float fk_score(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h)    where FK_HAS_SCORE is 1
 *   float fk_slope(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h)    the score's derivative by s; likewise
 * Defined before: FK_HEAD_DIM (16, 32, 64, 128, 256), FK_BF16 (1: bf16, 0: fp16), FK_HAS_SCORE (0, 1).
 *
 * A tile is rows of FK_HEAD_DIM numbers, in chunks of 16 bytes. The chunks of a row are permuted by the row's number, so
 * that eight neighbouring rows have any one chunk in eight different bank groups.
 * A warp's products are m16n8k16; where a coordinate is a row of 16, a lane has rows g and g + 8 of it ("halves"), where it
 * is a column of 8, columns t and t + 1, with g = lane / 4, t = 2 (lane % 4).
 */
#ifndef FK_COMMON_H
#define FK_COMMON_H

#define FK_LOG2E 1.44269504088896340736f
#define FK_LN2 0.69314718055994530942f
enum { FK_CHUNKS = FK_HEAD_DIM / 8, FK_ROW_BYTES = FK_HEAD_DIM * 2 };

FK_DEVICE fk_u32 fk_lane(void) { return fk_thread() % 32; }
FK_DEVICE fk_u32 fk_warp(void) { return fk_thread() / 32; }

/* The first statement of every kernel: the host can see where a device is. */
FK_DEVICE void fk_begin(fk_u64 mark, fk_u32 value) {
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

/* The address of a chunk of a row of a tile. */
FK_DEVICE fk_u32 fk_at(fk_u32 tile, fk_u32 row, fk_u32 chunk) {
    fk_u32 turn = FK_CHUNKS >= 8 ? row % 8 : FK_CHUNKS == 4 ? row / 2 % 4 : row / 4 % 2;
    return tile + row * FK_ROW_BYTES + (chunk ^ turn) * 16;
}

/* Asks for `rows` rows of a tile, of which the first `count` are at `from`, `stride` bytes apart; the others become 0. */
FK_DEVICE void fk_copy_tile(fk_u32 tile, fk_u32 rows, fk_u32 threads, fk_u64 from, fk_u64 stride, fk_u32 count) {
    FK_UNROLL
    for (fk_u32 i = 0; i < rows * FK_CHUNKS; i += threads) {
        fk_u32 at = i + fk_thread(), row = at / FK_CHUNKS, chunk = at % FK_CHUNKS;
        if (rows * FK_CHUNKS % threads && at >= rows * FK_CHUNKS) break;
        fk_copy(fk_at(tile, row, chunk), row < count ? from + row * stride + chunk * 16 : from, row < count ? 16 : 0);
    }
}

/* Where a lane finds its rows of fragments: of A, and of B by columns; of B by rows. From there to other rows and chunks
 * of the tile by fk_beside: `rows` a multiple of 8, so that the permutation is the same, `chunks` even, so that it commutes. */
FK_DEVICE fk_u32 fk_corner(fk_u32 tile, fk_u32 row) { return fk_at(tile, row + fk_lane() % 16, fk_lane() / 16); }
FK_DEVICE fk_u32 fk_corner_rows(fk_u32 tile, fk_u32 row) {
    fk_u32 lane = fk_lane();
    return fk_at(tile, row + lane / 16 * 8 + lane % 8, lane / 8 % 2);
}
FK_DEVICE fk_u32 fk_beside(fk_u32 corner, fk_u32 rows, fk_u32 chunks) {
    return (corner ^ (chunks * 16)) + rows * FK_ROW_BYTES;
}

/* c[j] = 16 rows of tile x from `row` on times rows 8 j .. 8 j + 7 of tile y, j < columns (even). */
FK_DEVICE void fk_rows_by_rows(float (*c)[4], fk_u32 columns, fk_u32 x, fk_u32 row, fk_u32 y) {
    fk_u32 x_corner = fk_corner(x, row), y_corner = fk_corner_rows(y, 0);
    FK_UNROLL
    for (fk_u32 j = 0; j < columns; j++) c[j][0] = c[j][1] = c[j][2] = c[j][3] = 0;
    FK_UNROLL_SOME
    for (fk_u32 d = 0; d < FK_CHUNKS; d += 2) {
        fk_u32 a[4];
        fk_matrices(a, fk_beside(x_corner, 0, d));
        FK_UNROLL
        for (fk_u32 j = 0; j < columns; j += 2) {
            fk_u32 b[4];
            fk_matrices(b, fk_beside(y_corner, j * 8, d));
            fk_multiply(c[j], a, b[0], b[1]);
            fk_multiply(c[j + 1], a, b[2], b[3]);
        }
    }
}

/* c[j] += p times columns 8 (chunk + j) .. of tile y, j < columns (even); p is 16 x 8 depth, in the type already: p[i]
 * has rows g and g + 8 of columns 8 i + t, 8 i + t + 1; depth and chunk are even. */
FK_DEVICE void fk_packed_by_columns(float (*c)[4], fk_u32 columns, const fk_u32 (*p)[2], fk_u32 depth, fk_u32 y,
                                    fk_u32 chunk) {
    fk_u32 corner = fk_beside(fk_corner(y, 0), 0, chunk);
    FK_UNROLL
    for (fk_u32 i = 0; i < depth; i += 2) {
        fk_u32 a[4] = {p[i][0], p[i][1], p[i + 1][0], p[i + 1][1]};
        FK_UNROLL
        for (fk_u32 j = 0; j < columns; j += 2) {
            fk_u32 b[4];
            fk_matrices_transposed(b, fk_beside(corner, i * 8, j));
            fk_multiply(c[j], a, b[0], b[1]);
            fk_multiply(c[j + 1], a, b[2], b[3]);
        }
    }
}

/* --- masks -------------------------------------------------------------------------------------------------------- */

/* Which numbers of a warp's 16 x 8 columns of a product are of pairs that count, bit (half * columns + j) * 2 + e. Rows of
 * the product are at positions from `row` on (the lane's first one), columns from `column` on (likewise); columns from
 * `limit` of the warp's on are none. Rows are of queries and columns of keys, or the reverse if `reverse`. At most 16
 * columns. Only called where some pair may not count. */
FK_DEVICE fk_u64 fk_counting(const fk_env *env, int partial, int reverse, fk_u32 columns, fk_i64 row, fk_i64 column,
                             fk_u32 limit, fk_u32 head) {
    fk_u64 bits = 0;
    fk_u32 t = fk_lane() % 4 * 2;
    FK_ROLL
    for (fk_u32 half = 0; half < 2; half++)
        FK_ROLL
        for (fk_u32 j = 0; j < columns; j++)
            FK_UNROLL
            for (fk_u32 e = 0; e < 2; e++) {
                fk_i64 r = row + half * 8, c = column + j * 8 + e;
                int yes = j * 8 + t + e < limit;
                if (yes && partial) yes = reverse ? fk_allow(env, c, r, head) : fk_allow(env, r, c, head);
                bits |= (fk_u64)(yes != 0) << ((half * columns + j) * 2 + e);
            }
    return bits;
}
FK_DEVICE int fk_counts(fk_u64 bits, fk_u32 columns, fk_u32 half, fk_u32 j, fk_u32 e) {
    return (int)(bits >> ((half * columns + j) * 2 + e) & 1);
}

FK_DEVICE fk_env fk_env_of(const fk_launch *p, fk_u32 sequence) {
    fk_env env;
    env.sequence = ((const fk_sequence *)p->sequences)[sequence];
    env.arrays = (const fk_u64 *)p->arrays;
    env.bands = (const fk_bands *)p->bands;
    return env;
}

/* --- addresses ---------------------------------------------------------------------------------------------------- */

/* Bytes from one token to the next in Q and its like, in K and its like. */
FK_DEVICE fk_u64 fk_q_stride(const fk_launch *p) { return (fk_u64)p->heads * FK_ROW_BYTES; }
FK_DEVICE fk_u64 fk_k_stride(const fk_launch *p) { return (fk_u64)p->kv_heads * FK_ROW_BYTES; }
/* The row of a token and query head in [tokens][heads][numbers of `size` bytes] from `base` on. */
FK_DEVICE fk_u64 fk_row(const fk_launch *p, fk_u64 base, fk_u64 token, fk_u32 head, fk_u32 size) {
    return base + (token * p->heads + head) * size;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Runs, taken `length` positions at a time. */
typedef struct fk_step {
    fk_u32 run, at; /* of the item's; positions of it that are behind */
} fk_step;
FK_DEVICE int fk_advance(fk_step *s, fk_u32 length, fk_u32 count, fk_u32 runs) {
    s->at += length;
    if (s->at < count) return 1;
    s->at = 0;
    return ++s->run < runs;
}
#endif
