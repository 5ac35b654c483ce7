/* where_computed.h: finds which rank of a plan computes a pair, and how the query and the key get there. */
#ifndef FCPC_EXPLAIN_WHERE_COMPUTED_H
#define FCPC_EXPLAIN_WHERE_COMPUTED_H
#include "compiler/base/arena.h"
#include "runtime/fcp.h"

struct json;
struct text;

/* How a block comes from its home to the rank that computes with it. */
typedef struct explain_way {
    uint32_t block, home;
    uint64_t bytes;        /* the size of the block, which each stop receives */
    const uint32_t *stops; /* the ranks that receive it, in order: the last is the one that computes */
    uint32_t count;        /* 0: the block's home computes */
    uint32_t half;         /* 1 or 2: the half of the plan in which it comes, if the plan moves in two halves; else 0 */
} explain_way;

typedef struct explain_computed {
    fcp_pass pass; /* forward, where the plan has it; both passes compute a pair at the same rank */
    uint32_t rank, stage, tile, gpus;
    explain_way queries, keys;
    uint32_t parts; /* how many ranks compute with this block of queries */
    uint32_t maker; /* the rank that makes the block's result: its home, or one from which it comes home finished */
    uint64_t pairs, ranks;  /* the plan's pairs and ranks */
    uint64_t pairs_here;    /* pairs that this rank computes */
    uint64_t pairs_at_home; /* pairs that the home of the queries computes */
    uint64_t pairs_of_home; /* of all queries whose home is that rank, wherever they are computed */
} explain_computed;

/* Finds where a pair of query and key positions of a sequence is computed, for query head h. The plan has passed
 * fcp_plan_check. *out_found is false if no tile has the pair, because the mask does not allow it. FCP_E_NO_MEMORY.
 * Cost: linear in the plan. */
fcp_code explain_computed_find(const fcp_plan *plan, uint64_t sequence, int64_t q, int64_t k, int64_t h, arena *memory,
                               explain_computed *out, bool *out_found);
void explain_computed_text(const explain_computed *c, struct text *out);
void explain_computed_json(const explain_computed *c, struct json *j);
#endif
