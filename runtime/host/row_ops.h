/* row_ops.h: what the host backend computes between matrix products, row by row, in float32.
 *
 * A tile of scores has `ld` numbers from one row to the next. Scores, m and LSE are to base e. Functions that take a
 * `width` work on whole groups of FCP_LANES numbers: the width is a multiple of FCP_LANES, and the numbers behind the
 * tile's true width must have been filled (fcp_rows_pad). Sums are made as FCP_LANES partial sums, which are then added
 * in order, so that their bits do not depend on the width of the machine's vectors.
 */
#ifndef FCP_HOST_ROW_OPS_H
#define FCP_HOST_ROW_OPS_H
#include "runtime/base/numeric.h"

enum { FCP_MASK_WORDS = 128 / FCP_LANES };
/* One cell of the mask: bit i of bits[r][w] is allow(q0 + r, k0 + FCP_LANES w + i). */
typedef struct fcp_mask_bits {
    uint16_t bits[128][FCP_MASK_WORDS];
} fcp_mask_bits;

/* Converts rows of `width` numbers of a dtype, `stride` numbers apart, to dense float32. Returns whether all are
 * finite. */
bool fcp_rows_load(fcp_dtype t, const void *src, size_t stride, uint32_t rows, uint32_t width, float *dst);
/* Divides each row by divisor[row] (a divisor of 0 gives 0) and converts it to a dtype. row_scratch has room for
 * `width` numbers. */
void fcp_rows_store(fcp_dtype t, const float *src, uint32_t rows, uint32_t width, const float *divisor, void *dst,
                    size_t stride, float *row_scratch);

/* s[r][c] = value wherever the cell does not allow (r, c). rows and columns are at most 128. */
void fcp_rows_select(float *s, size_t ld, uint32_t rows, uint32_t columns, const fcp_mask_bits *cell, float value);
/* s[r][c] = value for all c from `from` to width - 1. */
void fcp_rows_pad(float *s, size_t ld, uint32_t rows, uint32_t from, uint32_t width, float value);

/* One step of the online softmax, for each row: m becomes the maximum of m and the scores, and s becomes e^(s - m).
 * l and o (dense rows of head_dim) are scaled to the new m, and the sum of s is added to l. A row that has seen no
 * key has m = -inf and l = 0. */
void fcp_rows_softmax(float *s, size_t ld, uint32_t rows, uint32_t width, float *m, float *l, float *o,
                      uint32_t head_dim);

/* Merges two states (dense rows of head_dim) of the same rows that have seen different keys: adds the second to the
 * first. m becomes the greater of the two, to which l and o of both are scaled. */
void fcp_rows_merge(size_t rows, uint32_t head_dim, float *o, float *m, float *l, const float *more_o,
                    const float *more_m, const float *more_l);

/* What the backward pass knows of each row: LSE and what rounding took from it, and delta. */
typedef struct fcp_row_sums {
    const float *lse, *lse_low, *delta;
} fcp_row_sums;
/* Backward: s becomes p = e^(s - lse - lse_low), and dp becomes ds = p * (dp - delta). A row whose lse is -inf becomes
 * 0 in both. */
void fcp_rows_gradient(float *s, float *dp, size_t ld, uint32_t rows, uint32_t width, fcp_row_sums of);

/* The sum of a[i] * b[i]. */
float fcp_rows_dot(const float *a, const float *b, uint32_t count);
/* a += b */
void fcp_rows_add(float *restrict a, const float *restrict b, size_t count);
#endif
