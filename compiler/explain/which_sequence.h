/* which_sequence.h: chooses the sequence of the batch that an explained pair belongs to. */
#ifndef FCPC_EXPLAIN_WHICH_SEQUENCE_H
#define FCPC_EXPLAIN_WHICH_SEQUENCE_H
#include "compiler/explain/explain.h"
#include "compiler/sema/sema.h"

/* A sequence: how many keys and queries it has, the position of its first query, and where its tokens begin in the
 * batch. */
typedef struct whereabouts {
    int64_t n, q_first, queries;
    size_t sequence;
    bool alone; /* the values of fields are those of this sequence alone */
} whereabouts;

/* Chooses the sequence of the question, and sets o->n, o->sequence, o->by_field and *out. Errors are added to the
 * diagnostics. FCP_E_VALUE: the batch has no such sequence, or the sequence no such q or k, or the model no such h.
 * FCP_E_FIELD: a field has no values. */
fcp_code explain_where(sema *s, explanation *o, whereabouts *out);
#endif
