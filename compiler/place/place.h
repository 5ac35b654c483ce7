/* place.h: placement: a home rank for every block. All a strategy does is choose homes and execs; today every tile runs
 * at its Q block's home.
 *
 * The model, shared by strategies and measures: block b has tokens[b] and, as a Q block, work[b] pairs; it reads the KV
 * of blocks reads[reads_start[b] .. reads_start[b + 1]), ascending, perhaps itself. KV block j moves to every rank
 * other than home[j] that has a block reading j: one transfer of tokens[j] each (over net once per node, then local;
 * the number of transfers is the same).
 */
#ifndef FCPC_PLACE_PLACE_H
#define FCPC_PLACE_PLACE_H
#include "runtime/plan/plan.h"
#include "compiler/base/arena.h"

typedef struct problem problem;

/* Where the plan is split (runtime/plan/plan.h), a block that holds KV alone has no work and reads itself: it is then at no cost
 * where some other block reads it, and one transfer dearer elsewhere, as it is. Tokens count by the bytes they keep at
 * home: see sides.c, which makes such an input of a problem. */
typedef struct place_input {
    uint32_t ranks, gpus;      /* node of rank r: r / gpus */
    uint32_t blocks;
    uint32_t block;            /* tokens of a full block */
    const uint32_t *tokens;
    const uint64_t *work;
    const uint32_t *reads_start; /* blocks + 1 */
    const uint32_t *reads;
    const volatile int *stop;  /* polled; NULL: never */
} place_input;

/* Largest number of tokens a rank may hold: floor(mean) + block. */
uint64_t place_token_cap(const place_input *in);

/* LPT under the token cap with zig-zag tie-break, as the paper has it: the yardstick, and the planner's start. */
fcp_code place_lpt(const place_input *in, arena *scratch, uint32_t *out_home);
/* The fcp strategy: balanced like LPT and polished, but among equally balanced placements fewer bytes, then smaller
 * Delta. */
fcp_code place_fcp(const place_input *in, arena *scratch, uint32_t *out_home);
/* ring and zigzag: `parts_per_rank` (1 or 2) blocks a rank, in the order problem/problem.c makes them. */
void place_ring(const place_input *in, uint32_t parts_per_rank, uint32_t *out_home);

/* What a placement costs. */
typedef struct place_cost {
    uint64_t work_max, work_total, work_heaviest;
    uint64_t tokens_max;
    uint64_t tokens_moved;          /* sum over transfers of the block's tokens */
    uint64_t tokens_moved_net;      /* the part between nodes, once per node */
    uint64_t send_max, recv_max;    /* transfers of the busiest sender, receiver: flat, without node combining */
} place_cost;
fcp_code place_measure(const place_input *in, arena *scratch, const uint32_t *home, place_cost *out);

/* sides.c. What a problem is to the strategies; all but `stop` of *out. */
fcp_code place_input_of(const problem *p, arena *scratch, place_input *out);
/* Moves KV blocks that lie where nobody reads them to a reader that has room: cap in `in`'s tokens. */
fcp_code place_keys(const problem *p, const place_input *in, arena *scratch, uint32_t *home);
#endif
