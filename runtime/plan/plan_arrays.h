/* plan_arrays.h: the arrays that a mask or a score reads, and the environment in which it is evaluated. */
#ifndef FCP_PLAN_PLAN_ARRAYS_H
#define FCP_PLAN_PLAN_ARRAYS_H
#include "codegen/mask/code.h"
#include "runtime/plan/enums.h"

/* An array that the mask, the score or `documents` reads. A field has an integer for each key, or each query, of the
 * batch; a table belongs to the model. The array's count * max(1, columns) values lie in DATA from `offset` on,
 * which is a multiple of 64. */
typedef struct fcp_array {
    uint32_t name, file; /* where in NAMES each begins, NUL-terminated; the file as the program names it, or FCP_NONE */
    uint32_t kind;
    uint32_t width;          /* mc_width; MC_F64 in tables only */
    uint64_t count, columns; /* columns: 0 if it has one dimension, as fields do */
    uint64_t offset;
    int64_t lo, hi;   /* the least and the greatest value; 0 for reals */
    uint8_t hash[32]; /* SHA-256 of the file; zeros if there is none */
} fcp_array;

/* A union of slices, as mc_bands: its rows lie together, and so do its bands. */
typedef struct fcp_slices {
    uint32_t first_row, rows, first_band, bands;
} fcp_slices;

/* The side whose positions index a field. */
static inline fcp_side fcp_array_side(const fcp_array *array) {
    return array->kind == FCP_FIELD_QUERIES ? FCP_QUERIES : FCP_KEYS;
}
/* Bytes of an array's values. */
static inline uint64_t fcp_array_bytes(const fcp_array *array) {
    return array->count * (array->columns ? array->columns : 1) * (array->width == MC_F64 ? 8 : array->width);
}
/* Returns whether it is a table of reals, which a run may bring anew and learn. */
static inline bool fcp_array_learnable(const fcp_array *array) {
    return array->kind == FCP_TABLE && array->width == MC_F64;
}
/* The part of an array that a sequence sees; the array's values begin at `data`. A table is seen whole. A sequence sees
 * its own values of a field: first[side] is its first query or key in the batch; `env` has q_first, queries and n. */
mc_array fcp_array_part(const fcp_array *array, const void *data, const uint64_t first[FCP_SIDES], const mc_env *env);
/* Makes the environment in which a sequence's mask and score are evaluated. Fills `arrays`, which has room for
 * arrays_count records, and `bands`, which has room for slices_count; *out_env points to them. */
void fcp_plan_env(const fcp_plan *plan, uint32_t sequence, mc_array *arrays, mc_bands *bands, mc_env *out_env);
#endif
