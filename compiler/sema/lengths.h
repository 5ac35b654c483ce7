/* lengths.h: the sequence lengths of a batch. */
#ifndef FCPC_SEMA_LENGTHS_H
#define FCPC_SEMA_LENGTHS_H
#include "compiler/sema/sema.h"
#include "runtime/plan/plan.h"

enum { LENGTHS_MAX = 1 << 24 };              /* sequences of a batch */
#define LENGTHS_SUM_MAX (UINT64_C(1) << 40)  /* keys of a batch, and queries */

typedef struct lengths {
    uint64_t *at;      /* keys of each sequence; malloc'd */
    uint64_t *queries; /* queries of each; NULL while all have as many as keys; malloc'd */
    size_t count, room;
    uint64_t sum, query_sum;
    program_part *parts; /* which ranks hold them; malloc'd; NULL: all hold all */
    uint32_t part_count;
    const expr *tick; /* which tick of a pipeline, in the program; NULL: not stated, the first */
    /* Inside cumulative(...), what is added is where a sequence ends, counted from the batch's first token: the last
     * such ends so far. */
    bool cumulative, begun;
    uint64_t query_end, key_end;
} lengths;

/* Evaluates the value of batch.lengths. False: an error was reported. The caller frees out->at, out->queries and
 * out->parts in any case. Ranks of `on` are checked against those of the cluster. */
bool sema_eval_lengths(sema *s, const expr *value, lengths *out);

/* The batch that fields belong to: the program's own, or the plan's if the program came out of one. */
static inline size_t batch_count(const sema *s) {
    return s->plan ? (size_t)s->plan->sequences_count : s->out->length_count;
}
/* How many queries or keys sequence i of it has. */
static inline uint64_t batch_length(const sema *s, size_t i, fcp_side side) {
    const struct fcpc_program *p = s->out;
    if (s->plan) return side == FCP_KEYS ? s->plan->sequences[i].keys : s->plan->sequences[i].queries;
    return side == FCP_QUERIES && p->queries ? p->queries[i] : p->lengths[i];
}
#endif
