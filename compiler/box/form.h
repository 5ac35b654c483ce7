/* form.h: boxes of positions, and affine forms in q, k and h, such as 4095 - q + k, with their ranges on a box. */
#ifndef FCPC_BOX_FORM_H
#define FCPC_BOX_FORM_H
#include <stdbool.h>
#include <stdint.h>

#include "codegen/mask/code.h"
#include "compiler/base/integers.h"

typedef __int128 wide;

enum { BOX_Q, BOX_K, BOX_H, BOX_DIMS };

/* The positions lo <= p < hi in each dimension. A box is never empty. */
typedef struct box {
    int64_t lo[BOX_DIMS], hi[BOX_DIMS];
} box;

static inline uint64_t box_side(const box *b, int d) { return (uint64_t)(b->hi[d] - b->lo[d]); }

/* c + x[0] q + x[1] k + x[2] h. The forms of a program have values that fit int64 on its box, so arithmetic that wraps
 * gives them exactly. */
typedef struct form {
    int64_t c, x[BOX_DIMS];
} form;

/* The value at a point, in arithmetic modulo 2^64. */
static inline int64_t form_at(const form *f, int64_t q, int64_t k, int64_t h) {
    return (int64_t)((uint64_t)f->c + (uint64_t)f->x[BOX_Q] * (uint64_t)q + (uint64_t)f->x[BOX_K] * (uint64_t)k +
                     (uint64_t)f->x[BOX_H] * (uint64_t)h);
}

/* The least and the greatest value on a box, if all values fit int64. They are at corners. */
static inline void form_range(const form *f, const box *b, int64_t *out_lo, int64_t *out_hi) {
    int64_t lo = f->c, hi = f->c;
    for (int d = 0; d < BOX_DIMS; d++) {
        int64_t x = f->x[d];
        if (x == 0) continue;
        int64_t first = mc_wrap_mul(x, b->lo[d]), last = mc_wrap_mul(x, b->hi[d] - 1);
        lo = mc_wrap_add(lo, x > 0 ? first : last);
        hi = mc_wrap_add(hi, x > 0 ? last : first);
    }
    *out_lo = lo;
    *out_hi = hi;
}

/* The same, for any form; false if some value does not fit int64. */
static inline bool form_range_checked(const form *f, const box *b, int64_t *out_lo, int64_t *out_hi) {
    wide lo = f->c, hi = f->c;
    for (int d = 0; d < BOX_DIMS; d++) {
        wide first = (wide)f->x[d] * b->lo[d], last = (wide)f->x[d] * (b->hi[d] - 1);
        lo += f->x[d] > 0 ? first : last;
        hi += f->x[d] > 0 ? last : first;
    }
    *out_lo = (int64_t)lo;
    *out_hi = (int64_t)hi;
    return lo >= INT64_MIN && hi <= INT64_MAX;
}

static inline bool form_is_const(const form *f) { return (f->x[0] | f->x[1] | f->x[2]) == 0; }

static inline bool form_sub(const form *a, const form *b, form *out) {
    bool bad = __builtin_sub_overflow(a->c, b->c, &out->c);
    for (int d = 0; d < BOX_DIMS; d++) bad |= __builtin_sub_overflow(a->x[d], b->x[d], &out->x[d]);
    return !bad;
}

static inline bool form_add(const form *a, const form *b, form *out) {
    bool bad = __builtin_add_overflow(a->c, b->c, &out->c);
    for (int d = 0; d < BOX_DIMS; d++) bad |= __builtin_add_overflow(a->x[d], b->x[d], &out->x[d]);
    return !bad;
}

static inline bool form_scale(const form *a, int64_t by, form *out) {
    bool bad = __builtin_mul_overflow(a->c, by, &out->c);
    for (int d = 0; d < BOX_DIMS; d++) bad |= __builtin_mul_overflow(a->x[d], by, &out->x[d]);
    return !bad;
}

static inline uint64_t magnitude(int64_t x) { return x < 0 ? 0 - (uint64_t)x : (uint64_t)x; }

/* All values on the box differ by multiples of this; 0 if there is one value only. */
static inline uint64_t form_stride(const form *f, const box *b) {
    uint64_t g = 0;
    for (int d = 0; d < BOX_DIMS; d++)
        if (f->x[d] != 0 && b->hi[d] - b->lo[d] > 1) {
            uint64_t m = magnitude(f->x[d]);
            if (m == 1) return 1;
            g = common_divisor(g, m);
        }
    return g;
}
#endif
