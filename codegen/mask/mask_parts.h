/* mask_parts.h: private to mask code: the table of operations, and what its files share. */
#ifndef CODEGEN_MASK_MASK_PARTS_H
#define CODEGEN_MASK_MASK_PARTS_H
#include <string.h>

#include "codegen/mask/code.h"

typedef struct mc_op_info {
    const char *name;
    uint8_t arity;
    char type;
    char args[4];
    uint8_t faults;
} mc_op_info;
extern const mc_op_info mc_ops[MC_OP_COUNT];

typedef struct mc_point {
    int64_t q, k, h;
    double s;
} mc_point;

/* The value of a node from those of earlier nodes, in the total meaning. Reals are kept as the bits of a double. */
int64_t mc_eval_node(const mc_node *x, const mc_env *env, const mc_point *at, const int64_t *v);

/* The least and the greatest of four numbers, such as the products of the ends of two ranges. */
static inline void mc_hull4(const __int128 v[4], __int128 *out_lo, __int128 *out_hi) {
    *out_lo = *out_hi = v[0];
    for (int i = 1; i < 4; i++) {
        if (v[i] < *out_lo) *out_lo = v[i];
        if (v[i] > *out_hi) *out_hi = v[i];
    }
}

/* The first band of row q that ends after key k; the end of the row's bands if there is none. */
static inline const mc_band *mc_band_after(const mc_bands *bands, const mc_band_rows *row, int64_t q, int64_t k) {
    const mc_band *first = bands->bands + row->first;
    uint32_t lo = 0, hi = row->count;
    while (lo < hi) {
        uint32_t middle = lo + (hi - lo) / 2;
        if (mc_wrap_add(first[middle].hi, first[middle].hi_slope ? q : 0) <= k) lo = middle + 1;
        else hi = middle;
    }
    return first + lo;
}
#endif
