/* row_ops.c: what the host backend computes between matrix products: softmax, merging, rounding of rows.
 *
 * Requires: tiles and rows that do not overlap.
 * Cost:     one or two passes over a tile, which is still in the cache. Most of it is the exponential.
 * Source:   the online softmax of Milakov and Gimelshein, as FlashAttention uses it.
 */
#include "runtime/host/row_ops.h"

static const uint16_t lane_bit[FCP_LANES] = {1,      2,      4,      8,      0x10,   0x20,   0x40,   0x80,
                                             0x0100, 0x0200, 0x0400, 0x0800, 0x1000, 0x2000, 0x4000, 0x8000};

/* Whether all numbers are finite: x - x is 0 for finite x and NaN for all others, and a NaN stays in a sum. */
FCP_CLONES static bool finite_rows(const float *x, size_t count) {
    float lanes[FCP_LANES] = {0};
    size_t i = 0;
    for (; i + FCP_LANES <= count; i += FCP_LANES)
        for (size_t j = 0; j < FCP_LANES; j++) lanes[j] += x[i + j] - x[i + j];
    for (; i < count; i++) lanes[0] += x[i] - x[i];
    float sum = 0;
    for (uint32_t j = 0; j < FCP_LANES; j++) sum += lanes[j];
    return sum == 0;
}

bool fcp_rows_load(fcp_dtype t, const void *src, size_t stride, uint32_t rows, uint32_t width, float *dst) {
    size_t size = fcp_dtype_size(t);
    if (stride == width) fcp_to_float(t, src, dst, (size_t)rows * width);
    else
        for (uint32_t r = 0; r < rows; r++)
            fcp_to_float(t, (const char *)src + r * stride * size, dst + (size_t)r * width, width);
    return finite_rows(dst, (size_t)rows * width);
}

FCP_CLONES static void divide_row(const float *restrict src, size_t width, float divisor, float *restrict dst) {
    for (size_t i = 0; i < width; i++) dst[i] = src[i] / divisor;
}

void fcp_rows_store(fcp_dtype t, const float *src, uint32_t rows, uint32_t width, const float *divisor, void *dst,
                    size_t stride, float *row_scratch) {
    size_t size = fcp_dtype_size(t);
    for (uint32_t r = 0; r < rows; r++) {
        char *to = (char *)dst + r * stride * size;
        if (divisor[r] == 0) {
            memset(to, 0, width * size);
            continue;
        }
        divide_row(src + (size_t)r * width, width, divisor[r], row_scratch);
        fcp_from_float(t, row_scratch, to, width);
    }
}

FCP_CLONES void fcp_rows_select(float *s, size_t ld, uint32_t rows, uint32_t columns, const fcp_mask_bits *cell,
                                float value) {
    for (uint32_t r = 0; r < rows; r++) {
        float *row = s + r * ld;
        uint32_t c = 0;
        for (; c + FCP_LANES <= columns; c += FCP_LANES) {
            uint16_t word = cell->bits[r][c / FCP_LANES];
            if (word == 0xffff) continue;
            for (uint32_t j = 0; j < FCP_LANES; j++) row[c + j] = word & lane_bit[j] ? row[c + j] : value;
        }
        for (; c < columns; c++)
            if (!(cell->bits[r][c / FCP_LANES] & lane_bit[c % FCP_LANES])) row[c] = value;
    }
}

void fcp_rows_pad(float *s, size_t ld, uint32_t rows, uint32_t from, uint32_t width, float value) {
    if (from == width) return;
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = from; c < width; c++) s[r * ld + c] = value;
}

/* The maximum of a row and of `most`. */
FCP_CLONES static float row_max(const float *restrict row, size_t width, float most) {
    float lanes[FCP_LANES];
    for (size_t j = 0; j < FCP_LANES; j++) lanes[j] = most;
    for (size_t c = 0; c < width; c += FCP_LANES)
        for (size_t j = 0; j < FCP_LANES; j++) lanes[j] = row[c + j] > lanes[j] ? row[c + j] : lanes[j];
    for (size_t j = 0; j < FCP_LANES; j++) most = lanes[j] > most ? lanes[j] : most;
    return most;
}

/* row = e^(row - base); returns the sum. The difference is taken before it is scaled to base 2, for two reasons: a
 * score times log2 e may not fit in float32, and rounding that product loses more than rounding the difference,
 * which is small wherever e^ is not 0. */
FCP_CLONES static float row_exp(float *restrict row, size_t width, float base) {
    float lanes[FCP_LANES] = {0}, sum = 0;
    for (size_t c = 0; c < width; c += FCP_LANES)
        for (size_t j = 0; j < FCP_LANES; j++) {
            float p = fcp_exp_nonpositive(row[c + j] - base);
            row[c + j] = p;
            lanes[j] += p;
        }
    for (size_t j = 0; j < FCP_LANES; j++) sum += lanes[j];
    return sum;
}

FCP_CLONES static void row_scale(float *restrict row, size_t width, float factor) {
    for (size_t c = 0; c < width; c++) row[c] *= factor;
}

/* p = e^(p - base - low), ds = p * (ds - delta). Subtracting `base` first is exact where the result is not far below
 * 1, however large p and base are, so `low` is not lost beside them. */
FCP_CLONES static void row_gradient(float *restrict p, float *restrict ds, size_t width, float base, float low,
                                    float delta) {
    for (size_t c = 0; c < width; c++) {
        float x = fcp_exp_nonpositive(p[c] - base - low);
        p[c] = x;
        ds[c] = x * (ds[c] - delta);
    }
}

void fcp_rows_softmax(float *s, size_t ld, uint32_t rows, uint32_t width, float *m, float *l, float *o,
                      uint32_t head_dim) {
    for (uint32_t r = 0; r < rows; r++) {
        float most = row_max(s + r * ld, width, m[r]), base = most == -INFINITY ? 0 : most;
        float factor = fcp_exp_nonpositive(m[r] - base);
        l[r] = l[r] * factor + row_exp(s + r * ld, width, base);
        m[r] = most;
        if (factor != 1) row_scale(o + (size_t)r * head_dim, head_dim, factor);
    }
}

/* o = o * factor + more * other */
FCP_CLONES static void row_merge(float *restrict o, const float *restrict more, size_t width, float factor,
                                 float other) {
    for (size_t c = 0; c < width; c++) o[c] = o[c] * factor + more[c] * other;
}

/* If neither side has seen a key, both m are -inf: 0 is subtracted instead, and the state stays that of such a row. */
void fcp_rows_merge(size_t rows, uint32_t head_dim, float *o, float *m, float *l, const float *more_o,
                    const float *more_m, const float *more_l) {
    for (size_t r = 0; r < rows; r++) {
        float most = more_m[r] > m[r] ? more_m[r] : m[r], base = most == -INFINITY ? 0 : most;
        float factor = fcp_exp_nonpositive(m[r] - base), other = fcp_exp_nonpositive(more_m[r] - base);
        l[r] = l[r] * factor + more_l[r] * other;
        m[r] = most;
        row_merge(o + r * head_dim, more_o + r * head_dim, head_dim, factor, other);
    }
}

void fcp_rows_gradient(float *s, float *dp, size_t ld, uint32_t rows, uint32_t width, fcp_row_sums of) {
    for (uint32_t r = 0; r < rows; r++) {
        if (of.lse[r] == -INFINITY) {
            memset(s + r * ld, 0, width * sizeof *s);
            memset(dp + r * ld, 0, width * sizeof *dp);
        } else row_gradient(s + r * ld, dp + r * ld, width, of.lse[r], of.lse_low[r], of.delta[r]);
    }
}

FCP_CLONES float fcp_rows_dot(const float *a, const float *b, uint32_t count) {
    float lanes[FCP_LANES] = {0}, sum = 0;
    size_t i = 0;
    for (; i + FCP_LANES <= count; i += FCP_LANES)
        for (size_t j = 0; j < FCP_LANES; j++) lanes[j] += a[i + j] * b[i + j];
    for (size_t j = 0; j < FCP_LANES; j++) sum += lanes[j];
    for (; i < count; i++) sum += a[i] * b[i];
    return sum;
}

FCP_CLONES void fcp_rows_add(float *restrict a, const float *restrict b, size_t count) {
    for (size_t i = 0; i < count; i++) a[i] += b[i];
}
