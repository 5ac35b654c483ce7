/* where_recurs.h: finds the stretch of a plan that holds a token, for layers that recur: at which rank it is, and what is
 * before and behind it. */
#ifndef FCPC_EXPLAIN_WHERE_RECURS_H
#define FCPC_EXPLAIN_WHERE_RECURS_H
#include "compiler/base/arena.h"
#include "runtime/fcp.h"

struct json;
struct text;

typedef struct explain_stretch {
    uint32_t rank;
    uint32_t before, behind; /* the ranks of the stretches before and behind it; FCP_NONE: the document ends there */
    int64_t first, last;     /* the positions of its tokens in the sequence */
    uint64_t number, count;  /* its number among those of its document, from 1, and how many there are */
    /* how many layers need the state of the stretch before it, or behind it, and how many need its rows */
    uint64_t states_before, rows_before, states_behind, rows_behind;
} explain_stretch;

/* Finds the stretch of query position q of a sequence, which must have it. *out_found is false if the plan has no layers
 * that recur. FCP_E_NO_MEMORY. Cost: linear in the stretches of all ranks. */
fcp_code explain_stretch_find(const fcp_plan *plan, uint64_t sequence, int64_t q, arena *memory, explain_stretch *out,
                              bool *out_found);
void explain_stretch_text(const explain_stretch *x, int64_t q, struct text *out);
void explain_stretch_json(const explain_stretch *x, struct json *j);
#endif
