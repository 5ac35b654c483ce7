/* reach.c: finds out which part of an array a mask can read in a sequence.
 *
 * Requires: the mask's code, and the sequence's positions and arrays.
 * Gives: box_array_reach of array.h: a range that holds every element which some (q, k, h) reads.
 * How: each node gets the least and the greatest value that it can have. A table that has a row for each block of each
 *      head, as in blocks[h * 256 + q / 128, k / 128], is read by one head, h = 5, from row 1280 to row 1535. So its
 *      facts (array.c) need not be learnt for all heads.
 * Cost: O(nodes).
 */
#include "compiler/base/integers.h"
#include "compiler/box/array.h"

typedef __int128 wide;

static bool fits(wide lo, wide hi) { return lo >= INT64_MIN && hi <= INT64_MAX; }

/* The range of x op y; all of int64 if it is not known, or may overflow. */
static value_range range_of(uint32_t op, value_range x, value_range y) {
    wide lo = (wide)INT64_MIN - 1, hi = lo;
    switch (op) {
    case MC_ADD: lo = (wide)x.lo + y.lo, hi = (wide)x.hi + y.hi; break;
    case MC_SUB: lo = (wide)x.lo - y.hi, hi = (wide)x.hi - y.lo; break;
    case MC_MUL: {
        const wide p[4] = {(wide)x.lo * y.lo, (wide)x.lo * y.hi, (wide)x.hi * y.lo, (wide)x.hi * y.hi};
        lo = hi = p[0];
        for (int i = 1; i < 4; i++) {
            lo = p[i] < lo ? p[i] : lo;
            hi = p[i] > hi ? p[i] : hi;
        }
        break;
    }
    case MC_DIV:
        if (y.lo > 0) lo = mc_div(x.lo, x.lo < 0 ? y.lo : y.hi), hi = mc_div(x.hi, x.hi < 0 ? y.hi : y.lo);
        break;
    case MC_MOD:
        if (y.lo > 0) lo = 0, hi = (wide)y.hi - 1;
        break;
    case MC_MIN: lo = x.lo < y.lo ? x.lo : y.lo, hi = x.hi < y.hi ? x.hi : y.hi; break;
    case MC_MAX: lo = x.lo > y.lo ? x.lo : y.lo, hi = x.hi > y.hi ? x.hi : y.hi; break;
    default: break;
    }
    return fits(lo, hi) ? (value_range){(int64_t)lo, (int64_t)hi} : (value_range){INT64_MIN, INT64_MAX};
}

void box_ranges_of_nodes(mc_code mask, const mc_env *env, value_range *out) {
    for (uint32_t i = 0; i < mask.count; i++) {
        const mc_node *x = &mask.nodes[i];
        const value_range none = {0, 0};
        switch (x->op) {
        case MC_CONST_I: out[i] = (value_range){x->imm, x->imm}; break;
        case MC_N: out[i] = (value_range){env->n, env->n}; break;
        case MC_Q: out[i] = (value_range){env->q_first, env->q_first + env->queries - 1}; break;
        case MC_K: out[i] = (value_range){0, env->n - 1}; break;
        default:
            out[i] = range_of(x->op, x->a != MC_NONE ? out[x->a] : none, x->b != MC_NONE ? out[x->b] : none);
            break;
        }
    }
}

/* The places of the elements that a load may read, as [*from, *to). False: there are none. */
static bool reach_of_load(const mc_array *a, const mc_node *x, const value_range *ranges, uint64_t *from,
                          uint64_t *to) {
    const uint32_t operand[3] = {x->a, x->b, x->c};
    const int64_t first[3] = {0, a->first, a->column_first}; /* of planes, rows and columns */
    const int64_t count[3] = {a->planes, a->count, a->columns};
    *from = *to = 0;
    for (int d = a->planes ? 0 : 1, i = 0; d < (a->columns ? 3 : 2); d++, i++) {
        const value_range r = ranges[operand[i]];
        const wide end = (wide)first[d] + count[d] - 1;
        const wide lo = r.lo > first[d] ? r.lo : first[d], hi = r.hi < end ? r.hi : end;
        if (lo > hi) return false;
        *from = *from * (uint64_t)count[d] + (uint64_t)(lo - first[d]);
        *to = *to * (uint64_t)count[d] + (uint64_t)(hi - first[d]);
    }
    ++*to;
    return true;
}

void box_array_reach(mc_code mask, const value_range *ranges, const mc_array *array, uint32_t number,
                     uint64_t *out_from, uint64_t *out_to) {
    uint64_t from, to;
    *out_from = UINT64_MAX;
    *out_to = 0;
    for (uint32_t i = 0; i < mask.count; i++) {
        const mc_node *x = &mask.nodes[i];
        if (!mc_loads_int(x->op) || x->imm != number || !reach_of_load(array, x, ranges, &from, &to)) continue;
        *out_from = from < *out_from ? from : *out_from;
        *out_to = to > *out_to ? to : *out_to;
    }
    if (*out_from > *out_to) *out_from = *out_to;
}
