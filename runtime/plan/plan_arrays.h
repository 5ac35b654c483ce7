/* plan_arrays.h: the arrays that a mask or a score reads, and the environment in which it is evaluated. */
#ifndef FCP_PLAN_PLAN_ARRAYS_H
#define FCP_PLAN_PLAN_ARRAYS_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"
#include "runtime/plan/enums.h"

/* An array that the mask, the score or `documents` reads. A table belongs to the model: `count` elements, or so many
 * rows of `columns` elements. A field belongs to the batch, and each sequence has values of its own. It may be over
 * heads, over queries and over keys, in this order: a value for each of them, or for each cell of `q_cell` queries or
 * `k_cell` keys. Example: keep[h, q / 128, k / 128] of 8 heads has heads = 8, q_cell = k_cell = 128, and of a sequence
 * of 300 tokens 8 x 3 x 3 values. A field over nothing has one value for each sequence. Cells are those of positions:
 * the first one over queries is floor(q_first / q_cell).
 * All values of an array lie in DATA from `offset` on, which is a multiple of 64; those of a field sequence after
 * sequence, and `count` is how many they are. */
typedef struct fcp_array {
    uint32_t name, file; /* where in NAMES each begins, NUL-terminated; the file as the program names it, or FCP_NONE */
    uint32_t kind;
    uint32_t width;                 /* mc_width; MC_F64: reals, which only scores read */
    uint64_t count, columns;        /* columns: of a table, 0 if it has one dimension; of a field 0 */
    uint32_t heads, q_cell, k_cell; /* of a field: 0 if it is not over them; heads: how many it has values for */
    uint32_t pad;                   /* 0 */
    uint64_t offset;
    int64_t lo, hi;   /* the least and the greatest value; 0 for reals */
    uint8_t hash[32]; /* SHA-256 of the file; zeros if there is none */
} fcp_array;

/* A union of slices, as mc_bands: its rows lie together, and so do its bands. */
typedef struct fcp_slices {
    uint32_t first_row, rows, first_band, bands;
} fcp_slices;

/* Is it a field with one value for each token of this side? */
static inline bool fcp_array_is_over(const fcp_array *array, fcp_side side) {
    return array->kind == FCP_FIELD && !array->heads && array->q_cell == (side == FCP_QUERIES) &&
           array->k_cell == (side == FCP_KEYS);
}
/* How many dimensions it has, 0 to 3. A field of none is read as if it had one, with one element. */
static inline uint32_t fcp_array_dims(const fcp_array *array) {
    if (array->kind == FCP_TABLE) return array->columns ? 2 : 1;
    return (array->heads != 0) + (array->q_cell != 0) + (array->k_cell != 0);
}
static inline uint64_t fcp_array_values(const fcp_array *array) {
    return array->count * (array->columns ? array->columns : 1);
}
/* Bytes of an array's values. */
static inline uint64_t fcp_array_bytes(const fcp_array *array) {
    return fcp_array_values(array) * (array->width == MC_F64 ? 8 : array->width);
}
/* Returns whether it is a table of reals, which a run may bring anew and learn. */
static inline bool fcp_array_learnable(const fcp_array *array) {
    return array->kind == FCP_TABLE && array->width == MC_F64;
}
/* The part of an array that a sequence sees; the array's values begin at `data`. A table is seen whole; `start` is 0
 * then, and env may be NULL. A sequence sees its own values of a field, of which the first is the field's value
 * `start`; `env` has q_first, queries and n. mc_array_total of the part of a field is how many values the sequence
 * has. */
mc_array fcp_array_part(const fcp_array *array, const void *data, uint64_t start, const mc_env *env);
/* Where the values of a sequence begin among those of an array. */
uint64_t fcp_array_start(const fcp_plan *plan, uint64_t array, uint32_t sequence);
/* Makes the environment in which a sequence's mask and score are evaluated. Fills `arrays`, which has room for
 * arrays_count records, and `bands`, which has room for slices_count; *out_env points to them. */
void fcp_plan_env(const fcp_plan *plan, uint32_t sequence, mc_array *arrays, mc_bands *bands, mc_env *out_env);
#endif
