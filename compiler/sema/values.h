/* values.h: stores integers in the narrowest type that holds them, and finds runs of equal values in a field. */
#ifndef FCPC_SEMA_VALUES_H
#define FCPC_SEMA_VALUES_H
#include <string.h>

#include "codegen/mask/code.h"

/* The narrowest of MC_I8 .. MC_I64 that holds every value from lo to hi. */
static inline mc_width values_width(int64_t lo, int64_t hi) {
    if (lo >= INT8_MIN && hi <= INT8_MAX) return MC_I8;
    if (lo >= INT16_MIN && hi <= INT16_MAX) return MC_I16;
    return lo >= INT32_MIN && hi <= INT32_MAX ? MC_I32 : MC_I64;
}

static inline void values_put(void *data, mc_width width, uint64_t at, int64_t value) {
    switch (width) {
    case MC_I8: ((int8_t *)data)[at] = (int8_t)value; break;
    case MC_I16: ((int16_t *)data)[at] = (int16_t)value; break;
    case MC_I32: ((int32_t *)data)[at] = (int32_t)value; break;
    default: ((int64_t *)data)[at] = value; break;
    }
}

/* The same for `count` values, with a loop for each width: a compiler makes that take several at a time. */
static inline void values_put_some(void *data, mc_width width, uint64_t at, const int64_t *v, uint64_t count) {
    switch (width) {
    case MC_I8:
        for (uint64_t i = 0; i < count; i++) ((int8_t *)data)[at + i] = (int8_t)v[i];
        break;
    case MC_I16:
        for (uint64_t i = 0; i < count; i++) ((int16_t *)data)[at + i] = (int16_t)v[i];
        break;
    case MC_I32:
        for (uint64_t i = 0; i < count; i++) ((int32_t *)data)[at + i] = (int32_t)v[i];
        break;
    default: memcpy((int64_t *)data + at, v, count * sizeof *v); break;
    }
}

/* For a sequence of n tokens, whose values in a field begin at `first`: writes for each position, to out[first ...],
 * the position at which its run of equal values begins. Returns the greatest of these. If `out` is NULL, nothing is
 * written. */
static inline int64_t values_runs(const mc_array *field, uint64_t first, uint64_t n, void *out, mc_width width) {
    int64_t start = 0, before = 0;
    for (uint64_t t = 0; t < n; t++) {
        int64_t v = mc_int_at(field, first + t);
        if (t && v != before) start = (int64_t)t;
        before = v;
        if (out) values_put(out, width, first + t, start);
    }
    return start;
}
#endif
