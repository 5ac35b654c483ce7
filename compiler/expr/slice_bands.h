/* slice_bands.h: turns a union of slices, as MagiAttention's users write masks, into the bands of mask code. A slice is
 * a range of queries, a range of keys, and a kind, such as (0..4096, 0..4096, causal). */
#ifndef FCPC_EXPR_SLICE_BANDS_H
#define FCPC_EXPR_SLICE_BANDS_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"
#include "compiler/base/arena.h"

/* Which part of its rectangle a slice allows; the numbers are those of MagiAttention's attn_type_map. */
typedef enum slice_kind {
    SLICE_FULL,    /* all of it */
    SLICE_CAUSAL,  /* k - k1 <= q - q1: the last query sees every key, and each query before it one fewer */
    SLICE_INVERSE, /* k - k0 >= q - q0: the first query sees every key, and each query after it one fewer */
    SLICE_BOTH,    /* both: a band, which is empty if there are more queries than keys */
    SLICE_KINDS
} slice_kind;
extern const char *const bands_kinds[SLICE_KINDS]; /* full causal inverse both */

enum { SLICE_POSITION_BITS = 40, SLICES_MAX = 1 << 22, SLICE_BANDS_MAX = 1 << 22 };

typedef struct slice {
    int64_t q0, q1, k0, k1; /* 0 <= q0 < q1 <= 2^40, likewise k */
    uint32_t kind;
    uint32_t line; /* its line in the file, from 1; of slices in a list or array, its number */
} slice;

static inline bool slice_allows(const slice *s, int64_t q, int64_t k) {
    return s->q0 <= q && q < s->q1 && s->k0 <= k && k < s->k1 &&
           (!(s->kind & SLICE_CAUSAL) || k - s->k1 <= q - s->q1) &&
           (!(s->kind & SLICE_INVERSE) || k - s->k0 >= q - s->q0);
}

/* What is known about slices that overlap: that allow the same pair. */
typedef struct slices_overlap {
    uint64_t pairs, slices; /* pairs of slices; slices that are in one */
    size_t first, second;   /* the numbers of the first pair of slices, first < second */
    bool at_least;          /* counting was given up, so there may be more */
} slices_overlap;

/* Makes bands of the union of slices, in `memory`. A record says which keys some neighbouring rows see: a few bands,
 * intervals of keys whose ends stay or move on by one key from row to row (mc_bands in mask/code.h). Bands of a row
 * neither overlap nor touch. Looks at *stop unless `stop` is NULL. Errors: FCP_E_INTERRUPTED (*stop was not 0);
 * FCP_E_TOO_LARGE (it needs more than SLICE_BANDS_MAX bands or records, or so many slices lie over each other that it
 * would take too long); FCP_E_NO_MEMORY. */
fcp_code bands_of_slices(const slice *slices, size_t count, const volatile int *stop, arena *memory, mc_bands *out,
                         slices_overlap *out_overlap);
#endif
