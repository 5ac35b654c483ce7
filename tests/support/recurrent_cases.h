/* recurrent_cases.h: cases for the kernels of layers that recur: rows of a halo that are moved and added, and summaries
 * of a scan that are combined. They are compared with plain loops to the bit. The machine of fibers and the PTX machine
 * run them. */
#ifndef RECURRENT_CASES_H
#define RECURRENT_CASES_H
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/kernels/abi.h"
#include "runtime/base/numeric.h"
#include "tests/support/splitmix.h"

/* Memory that a launch may read, or write. */
typedef struct case_range {
    const char *name;
    uint64_t begin, end;
    bool writable;
} case_range;
/* Runs a kernel with `bytes` of parameters at x, on a grid that the seed draws. */
typedef void case_run(const char *kernel, const void *x, size_t bytes, uint32_t shared, const case_range *ranges,
                      uint32_t count, uint64_t seed);

/* Memory at a multiple of 16 and `beyond` bytes, of random bits; what the caller frees is *out. */
static inline char *draw(size_t bytes, size_t beyond, uint64_t *seed, void **out) {
    cr_assert_eq(posix_memalign(out, 256, bytes + beyond + 16), 0);
    for (size_t i = 0; i < bytes + beyond + 16; i++) ((uint8_t *)*out)[i] = (uint8_t)splitmix(seed);
    return (char *)*out + beyond;
}
static inline float small(uint64_t *seed) { return (float)((double)(splitmix(seed) % 4096) / 2048 - 1); }

static inline case_range range(const char *name, const void *at, size_t bytes, bool writable) {
    return (case_range){.name = name, .begin = (uintptr_t)at, .end = (uintptr_t)at + bytes, .writable = writable};
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Runs of 1 to 3 rows, in an order that is that of neither place, with rows between them that belong to none. */
enum { RUNS = 9, PLACES = 4 * RUNS };
static inline fk_u64 draw_runs(fk_rows_run runs[RUNS], uint64_t *seed) {
    uint32_t to[RUNS], from[RUNS];
    fk_u64 rows = 0;
    for (uint32_t i = 0; i < RUNS; i++) to[i] = from[i] = i;
    for (uint32_t i = RUNS - 1; i; i--) {
        const uint32_t a = (uint32_t)(splitmix(seed) % (i + 1)), b = (uint32_t)(splitmix(seed) % (i + 1));
        uint32_t t = to[i];
        to[i] = to[a], to[a] = t;
        t = from[i];
        from[i] = from[b], from[b] = t;
    }
    for (uint32_t i = 0; i < RUNS; i++) {
        runs[i] = (fk_rows_run){4 * to[i], 4 * from[i], rows, 1 + splitmix(seed) % 3};
        rows += runs[i].count;
    }
    return rows;
}

static inline void sum_rows(fk_u32 type, char *to, const char *from, size_t row) {
    for (size_t i = 0; i < row; i += type == FK_ROWS_FP32 ? 4 : 2) {
        if (type == FK_ROWS_FP32) {
            float a, b;
            memcpy(&a, to + i, 4);
            memcpy(&b, from + i, 4);
            a += b;
            memcpy(to + i, &a, 4);
            continue;
        }
        uint16_t a, b;
        memcpy(&a, to + i, 2);
        memcpy(&b, from + i, 2);
        if (type == FK_ROWS_BF16) a = fcp_float_bf16(fcp_bf16_float(a) + fcp_bf16_float(b));
        else a = fcp_float_fp16(fcp_fp16_float(a) + fcp_fp16_float(b));
        memcpy(to + i, &a, 2);
    }
}

/* Numbers of which sums are finite: a NaN has many forms. */
static inline void make_numbers(fk_u32 type, char *at, size_t bytes, uint64_t *seed) {
    for (size_t i = 0; i + 4 <= bytes; i += type == FK_ROWS_FP32 ? 4 : 2) {
        const float x = small(seed);
        const uint16_t half = type == FK_ROWS_BF16 ? fcp_float_bf16(x) : fcp_float_fp16(x);
        if (type == FK_ROWS_FP32) memcpy(at + i, &x, 4);
        else memcpy(at + i, &half, 2);
    }
}

/* narrow: by single numbers, or bytes, even if a thread could do more at once. */
static inline void rows_case(size_t row, size_t beyond, fk_u32 type, bool adds, bool zeros, bool narrow, uint64_t seed,
                             case_run *run) {
    fk_rows_run runs[RUNS];
    void *to_all, *from_all, *right_all;
    const fk_u64 rows = draw_runs(runs, &seed);
    const size_t bytes = PLACES * row, number = !adds ? 1 : type == FK_ROWS_FP32 ? 4 : 2;
    const bool back = splitmix(&seed) % 2;
    char *to = draw(bytes, beyond, &seed, &to_all), *from = draw(bytes, beyond, &seed, &from_all);
    if (adds) make_numbers(type, to, bytes, &seed);
    if (adds) make_numbers(type, from, bytes, &seed);
    char *right = draw(bytes, beyond, &seed, &right_all);
    memcpy(right_all, to_all, bytes + beyond + 16);
    for (uint32_t i = 0; i < RUNS; i++)
        for (fk_u64 j = 0; j < runs[i].count; j++) {
            char *at = right + ((back ? runs[i].from : runs[i].to) + j) * row;
            const char *of = from + ((back ? runs[i].to : runs[i].from) + j) * row;
            if (adds) sum_rows(type, at, of, row);
            else if (zeros) memset(at, 0, row);
            else memcpy(at, of, row);
        }
    const size_t all = row | beyond;
    const fk_rows_launch x = {.runs = (uintptr_t)runs,
                              .to = (uintptr_t)to,
                              .from = zeros ? 0 : (uintptr_t)from,
                              .row = row,
                              .rows = rows,
                              .pieces = (row + FK_ROW_PIECE - 1) / FK_ROW_PIECE,
                              .run_count = RUNS,
                              .back = back,
                              .type = type,
                              .width = narrow || all % 4 ? (fk_u32)number
                                       : all % 16        ? 4
                                                         : 16};
    const case_range ranges[] = {range("to", to, bytes, true), range("from", from, bytes, false),
                                 range("runs", runs, sizeof runs, false)};
    run(adds ? "fk_rows_add" : "fk_rows_move", &x, sizeof x, 0, ranges, 3, seed);
    cr_assert(!memcmp(to_all, right_all, bytes + beyond + 16), "rows of %zu bytes at %zu, type %u, %s", row, beyond,
              type,
              adds    ? "added"
              : zeros ? "zeros"
                      : "moved");
    free(to_all);
    free(from_all);
    free(right_all);
}

/* --- scans -------------------------------------------------------------------------------------------------------- */

static inline size_t decay_numbers(fk_u32 decay, size_t rows) {
    return decay == FK_DECAY_SCALAR ? 1 : decay == FK_DECAY_VECTOR ? rows : rows * rows;
}

/* to [m][n] = left [m][m] right [m][n] + add, if there is one. */
static inline void product(float *to, const float *left, const float *right, const float *add, size_t m, size_t n) {
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++) {
            float sum = add ? add[i * n + j] : 0;
            for (size_t k = 0; k < m; k++) sum += left[i * m + k] * right[k * n + j];
            to[i * n + j] = sum;
        }
}

static inline void scan_case(fk_u32 decay, size_t heads, size_t rows, size_t columns, bool whole, size_t beyond,
                             uint64_t seed, case_run *run) {
    const size_t a = heads * decay_numbers(decay, rows), b = heads * rows * columns, numbers = a + b;
    void *memory[4];
    float *all[4]; /* first, then, to, and what is right: A and then b */
    for (int i = 0; i < 4; i++) all[i] = (float *)(void *)draw(numbers * 4, beyond, &seed, &memory[i]);
    for (size_t i = 0; i < numbers; i++) all[0][i] = small(&seed), all[1][i] = small(&seed);
    all[0][splitmix(&seed) % numbers] = -0.0f;
    memcpy(all[3], all[2], numbers * 4);
    const float *first = all[0], *then = all[1];
    float *right = all[3];
    for (size_t h = 0; h < heads; h++) {
        const size_t d = h * (a / heads), s = a + h * rows * columns;
        if (decay == FK_DECAY_MATRIX) {
            product(right + s, then + d, first + s, then + s, rows, columns);
            if (whole) product(right + d, then + d, first + d, NULL, rows, rows);
            continue;
        }
        for (size_t i = 0; i < rows * columns; i++)
            right[s + i] = then[d + (decay == FK_DECAY_VECTOR ? i / columns : 0)] * first[s + i] + then[s + i];
        for (size_t i = 0; whole && i < a / heads; i++) right[d + i] = then[d + i] * first[d + i];
    }
    const uintptr_t to = (uintptr_t)all[2], of[] = {(uintptr_t)first, (uintptr_t)then};
    fk_scan_launch x = {.to = to + a * 4,
                        .first = of[0] + a * 4,
                        .then = of[1] + a * 4,
                        .to_decay = whole ? to : 0,
                        .first_decay = whole ? of[0] : 0,
                        .then_decay = of[1],
                        .heads = (fk_u32)heads,
                        .rows = (fk_u32)rows,
                        .columns = (fk_u32)columns,
                        .decay = decay};
    x.width = (x.to | x.first | x.then | columns * 4) % 16 ? 4 : 16;
    const case_range ranges[] = {range("to", all[2], numbers * 4, true), range("first", first, numbers * 4, false),
                                 range("then", then, numbers * 4, false)};
    if (decay == FK_DECAY_MATRIX) run("fk_scan_matrix", &x, sizeof x, FK_SCAN_SHARED, ranges, 3, seed);
    else run("fk_scan_scaled", &x, sizeof x, 0, ranges, 3, seed);
    for (size_t i = 0; i < numbers; i++)
        cr_assert_eq(fcp_float_bits(all[2][i]), fcp_float_bits(right[i]),
                     "decay %u, %zu heads of %zu x %zu: number %zu: "
                     "%a, not %a",
                     decay, heads, rows, columns, i, (double)all[2][i], (double)right[i]);
    for (int i = 0; i < 4; i++) free(memory[i]);
}
#endif
