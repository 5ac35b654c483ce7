/* bands.h: a mask as a union of slices: pieces (q range, k range, kind), brought into the bands of mask code. */
#ifndef FCPC_EXPR_BANDS_H
#define FCPC_EXPR_BANDS_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"
#include "compiler/base/arena.h"

/* Which part of its rectangle a slice allows; the numbers are those of MagiAttention's attn_type_map. */
typedef enum slice_kind {
    SLICE_FULL,    /* all of it */
    SLICE_CAUSAL,  /* k - k1 <= q - q1: the last query sees every key, each query before it one less */
    SLICE_INVERSE, /* k - k0 >= q - q0: the first query sees every key, each query after it one less */
    SLICE_BOTH,    /* both: a band; nothing where there are more queries than keys */
    SLICE_KINDS
} slice_kind;
extern const char *const bands_kinds[SLICE_KINDS]; /* full causal inverse both */

enum { SLICE_POSITION_BITS = 40, SLICES_MAX = 1 << 22, SLICE_BANDS_MAX = 1 << 22 };

typedef struct slice {
    int64_t q0, q1, k0, k1; /* 0 <= q0 < q1 <= 2^40, likewise k */
    uint32_t kind;
    uint32_t line; /* of its file, from 1; of slices written out, or in an array: which one */
} slice;

static inline bool slice_allows(const slice *s, int64_t q, int64_t k) {
    return s->q0 <= q && q < s->q1 && s->k0 <= k && k < s->k1 &&
           (!(s->kind & SLICE_CAUSAL) || k - s->k1 <= q - s->q1) &&
           (!(s->kind & SLICE_INVERSE) || k - s->k0 >= q - s->q0);
}

/* Slices that share pairs of positions with others. */
typedef struct slices_overlap {
    uint64_t pairs, slices; /* pairs of slices; slices that are in one */
    size_t first, second;   /* of the pairs the first, by number: first < second */
    bool at_least;          /* counting was given up: there may be more */
} slices_overlap;

/* The union of slices as bands, made in `memory`: the fewest row records that the sweep finds, each with disjoint bands
 * that do not touch. FCP_E_NO_MEMORY; FCP_E_TOO_LARGE when it needs more than SLICE_BANDS_MAX bands or row records, or
 * slices lie in so many layers that finding it would take too long. */
fcp_code bands_of_slices(const slice *slices, size_t count, arena *memory, mc_bands *out, slices_overlap *out_overlap);
#endif
