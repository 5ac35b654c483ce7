/* where.h: which sequence of the batch an explained pair is of. */
#ifndef FCPC_EXPLAIN_WHERE_H
#define FCPC_EXPLAIN_WHERE_H
#include "compiler/explain/explain.h"
#include "compiler/sema/sema.h"

/* The sequence a pair is of: its positions, and where its tokens begin in the batch. */
typedef struct whereabouts {
    int64_t n, q_first, queries;
    uint64_t first[FCP_SIDES];
} whereabouts;

/* Chooses it, by what o asks for: its number, its length, or the longest. Fills n, sequence and by_field of *o, and
 * *out. FCP_E_VALUE where the batch has none such, or it has no q, k or h; FCP_E_FIELD where a field has no values:
 * reported. */
fcp_code explain_where(sema *s, explanation *o, whereabouts *out);
#endif
