/* rows.h: what the host kernels do between matrix products, row by row, in float32.
 *
 * Scores are in log2 units. A tile of scores has `ld` numbers a row; functions that take a `width` work on whole lanes:
 * width is a multiple of FCP_LANES, and the numbers from the tile's true width up to it must be there (fcp_rows_pad).
 * Sums are made in FCP_LANES lanes and the lanes added in order, so that bits do not depend on the machine's vectors.
 */
#ifndef FCP_HOST_ROWS_H
#define FCP_HOST_ROWS_H
#include "runtime/base/numeric.h"

enum { FCP_MASK_WORDS = 128 / FCP_LANES };
/* One cell of the mask: bit i of bits[r][w] is allow(q0 + r, k0 + 16 w + i). */
typedef struct fcp_mask_bits {
    uint16_t bits[128][FCP_MASK_WORDS];
} fcp_mask_bits;

/* rows x width numbers of a dtype, `stride` numbers apart, to float32, densely. Returns whether all are finite. */
bool fcp_rows_load(fcp_dtype t, const void *src, size_t stride, uint32_t rows, uint32_t width, float *dst);
/* float32 rows to a dtype, each row divided by divisor[row] (0 gives 0). */
void fcp_rows_store(fcp_dtype t, const float *src, uint32_t rows, uint32_t width, const float *divisor, void *dst,
                    size_t stride, float *row_scratch);

/* s[r][c] = value where the cell does not allow (r, c); r < rows <= 128, c < columns <= 128. */
void fcp_rows_select(float *s, size_t ld, uint32_t rows, uint32_t columns, const fcp_mask_bits *cell, float value);
/* s[r][from .. width) = value */
void fcp_rows_pad(float *s, size_t ld, uint32_t rows, uint32_t from, uint32_t width, float value);

/* One step of the online softmax: per row, m becomes the maximum of itself and the scores, s becomes 2^(s - m), l is
 * scaled and gets their sum; o (rows of `head_dim`, dense) is scaled. A row that has seen nothing has m = -inf, l =
 * 0. */
void fcp_rows_softmax(float *s, size_t ld, uint32_t rows, uint32_t width, float *m, float *l, float *o,
                      uint32_t head_dim);

/* Backward: p = 2^(s - lse2) over s, and ds = p * (dp - delta) over dp. Rows whose lse2 is -inf get 0 in both. */
void fcp_rows_gradient(float *s, float *dp, size_t ld, uint32_t rows, uint32_t width, const float *lse2,
                       const float *delta);

/* sum a[i] * b[i] */
float fcp_rows_dot(const float *a, const float *b, uint32_t count);
/* a += b */
void fcp_rows_add(float *restrict a, const float *restrict b, size_t count);
#endif
