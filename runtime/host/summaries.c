/* summaries.c: combines summaries of stretches (summaries.h).
 *
 * Requires: registers of one part of the heads, from fcp_register_of.
 * Method:   of a product of matrices, tiles of 4 rows and 16 columns are summed in registers.
 * Cost:     2 operations for each number of a state; with matrices 2 rows for each of b, and as many for each of A.
 */
#include "runtime/host/summaries.h"

#include <string.h>

#include "runtime/base/numeric.h"

enum { TILE_ROWS = 4 };
typedef float lanes __attribute__((vector_size(FCP_LANES * sizeof(float))));

/* out = add + A h for `rows` rows of A, of which each has `inner` numbers; h and out have `columns`. add: NULL: zeros. */
FCP_CLONES static void multiply(const float *a, const float *h, const float *add, float *out, size_t rows, size_t inner,
                                size_t columns) {
    size_t i = 0;
    for (; i < rows; i += TILE_ROWS) {
        const size_t high = rows - i < TILE_ROWS ? rows - i : TILE_ROWS;
        size_t j = 0;
        for (; high == TILE_ROWS && j + FCP_LANES <= columns; j += FCP_LANES) {
            lanes sum[TILE_ROWS] = {0}, row;
            for (size_t r = 0; r < TILE_ROWS && add; r++) memcpy(&sum[r], &add[(i + r) * columns + j], sizeof sum[r]);
            for (size_t k = 0; k < inner; k++) {
                memcpy(&row, &h[k * columns + j], sizeof row);
                for (size_t r = 0; r < TILE_ROWS; r++) sum[r] += a[(i + r) * inner + k] * row;
            }
            for (size_t r = 0; r < TILE_ROWS; r++) memcpy(&out[(i + r) * columns + j], &sum[r], sizeof sum[r]);
        }
        for (; j < columns; j++)
            for (size_t r = i; r < i + high; r++) {
                float sum = add ? add[r * columns + j] : 0;
                for (size_t k = 0; k < inner; k++) sum += a[r * inner + k] * h[k * columns + j];
                out[r * columns + j] = sum;
            }
    }
}

/* out = add + factor h */
FCP_CLONES static void scale(float factor, const float *h, const float *add, float *out, size_t count) {
    for (size_t i = 0; i < count; i++) out[i] = add[i] + factor * h[i];
}

void fcp_summaries_state(const fcp_recurrent *x, const fcp_register *a, const fcp_register *b, const fcp_register *out,
                         uint64_t first, uint64_t count) {
    const size_t rows = x->rows, columns = x->columns;
    for (uint64_t i = first; i < first + count;) {
        const uint64_t head = i / rows, row = i % rows;
        const uint64_t left = first + count - i, of_head = rows - row < left ? rows - row : left;
        const size_t at = i * columns;
        if (x->decay == FCP_DECAY_MATRIX) {
            multiply(b->decay + i * rows, a->state + head * rows * columns, b->state + at, out->state + at, of_head,
                     rows, columns);
        } else if (x->decay == FCP_DECAY_SCALAR) {
            scale(b->decay[head], a->state + at, b->state + at, out->state + at, of_head * columns);
        } else {
            for (uint64_t r = 0; r < of_head; r++)
                scale(b->decay[i + r], a->state + at + r * columns, b->state + at + r * columns,
                      out->state + at + r * columns, columns);
        }
        i += of_head;
    }
}

void fcp_summaries_decay(const fcp_recurrent *x, const fcp_register *a, const fcp_register *b, const fcp_register *out,
                         uint64_t first, uint64_t count) {
    const size_t rows = x->rows;
    for (uint64_t i = first; i < first + count;) {
        const uint64_t head = i / rows, row = i % rows;
        const uint64_t left = first + count - i, of_head = rows - row < left ? rows - row : left;
        if (x->decay == FCP_DECAY_MATRIX) {
            multiply(b->decay + i * rows, a->decay + head * rows * rows, NULL, out->decay + i * rows, of_head, rows,
                     rows);
        } else if (x->decay == FCP_DECAY_VECTOR) {
            for (uint64_t r = i; r < i + of_head; r++) out->decay[r] = b->decay[r] * a->decay[r];
        } else if (!row) {
            out->decay[head] = b->decay[head] * a->decay[head];
        }
        i += of_head;
    }
}
