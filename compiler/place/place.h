/* place.h: placement: which rank owns each block, and which rank computes each tile.
 *
 * Example: two blocks of one causal sequence on two ranks. Block 0 is at home on rank 0, block 1 on rank 1. Tile (Q
 * block 1, KV block 0) runs at rank 1, where its queries are, so the keys and values of block 0 travel there.
 */
#ifndef FCPC_PLACE_PLACE_H
#define FCPC_PLACE_PLACE_H
#include "compiler/planning/planning.h"
#include "compiler/sema/strategies.h"

typedef struct problem problem;

/* Something that travels, the K and V of a block or its Q, and the ranks that need it. */
typedef struct need {
    uint32_t block, home, count;
    fcp_class cls;
    uint64_t bytes;        /* of the block, in one pass */
    const uint32_t *ranks; /* `count` of them, ascending, without the home */
    const uint64_t *work;  /* of each rank of the cluster: pairs of its tiles that use the block */
} need;

/* One step of a way, from a rank to another. */
typedef struct leg {
    uint32_t src, dst;
} leg;

/* The type of functions that choose the ways of a block: a tree of legs from its home to every rank that needs it.
 * Other ranks may be in the tree, to pass the block on. A leg starts at the home or where an earlier leg ends, and no
 * two end at one rank. out_legs has room for a leg to every rank. Returns the number of legs. */
typedef uint32_t route_choice(const planning *x, const need *n, leg *out_legs);

/* What a strategy has decided: all that later passes know of it. In a split plan (runtime/plan/FORMAT.md) a block holds
 * either the Q or the KV of its tokens. In other plans it holds both, and they have one home. */
typedef struct placement {
    const uint32_t *home;   /* per block: its rank */
    const uint32_t *exec;   /* per tile: the rank that computes it; NULL: each at its Q block's home */
    const uint32_t *tile_q; /* the problem's: the Q block of each tile */
    route_choice *route;    /* NULL: as schedule/traffic.c has it */
    bool around; /* `route` leads round a ring of ranks (ring.c): gradients go on along it, and so come home */
    /* Per range of heads (the problem's `heads`): the phase in which its blocks travel and its tiles are computed.
     * Phases are numbered from 0 without gaps; blocks of a later phase leave home later. NULL: there are no phases. */
    const uint32_t *phase;
    bool gather;            /* with phases: the tiles of a row wait for each other */
    bool relay;             /* who has received a block may send it on to other nodes (schedule/relays.c, routes.c) */
    bool spread;            /* where work moves, ranks may send and receive for others of their node (routes.c) */
} placement;

/* The rank that computes a tile: exec[tile], or the home of its Q block if exec is NULL. */
static inline uint32_t place_rank(const uint32_t *home, const uint32_t *exec, const uint32_t *tile_q, uint32_t tile) {
    return exec ? exec[tile] : home[tile_q[tile]];
}
static inline uint32_t placement_exec(const placement *p, uint32_t tile) {
    return p->exec ? p->exec[tile] : p->home[p->tile_q[tile]];
}
/* Does any tile run elsewhere than at its Q block's home? If none does, the plan is simpler without an exec. */
static inline bool place_moves(const uint32_t *home, const uint32_t *exec, const uint32_t *tile_q, uint32_t tiles) {
    uint32_t t = 0;
    while (exec && t < tiles && exec[t] == home[tile_q[t]]) t++;
    return exec && t < tiles;
}

/* --- what strategies look at -------------------------------------------------------------------------------------- */

/* The batch as strategies see it (place_input.c makes it of a problem).
 *   - Block b has tokens[b] tokens and, as a Q block, work[b] pairs.
 *   - It reads the KV of blocks reads[reads_start[b]] to reads[reads_start[b + 1] - 1]. These are ascending, and may
 *     contain b.
 *   - KV block j costs one transfer of tokens[j] for each rank other than home[j] that has a block which reads j.
 *     (Between nodes it goes to each node once, and on from there; the number of transfers is the same.)
 * In a split plan a block that holds KV alone has no work, and reads itself. So it costs one transfer less if its home
 * has another reader of it. Tokens are weighted by the bytes that they keep at home. */
typedef struct place_input {
    uint32_t ranks, gpus;      /* rank r is in node r / gpus */
    uint32_t blocks;
    uint32_t block;            /* tokens of a full block */
    const uint32_t *tokens;
    const uint64_t *work;
    const uint32_t *reads_start; /* blocks + 1 */
    const uint32_t *reads;
    uint32_t tolerance;        /* how far a rank may be over the mean, in millionths */
    const volatile int *stop;  /* runtime/base/stop.h */
} place_input;

/* The largest number of tokens a rank may hold: floor(mean) + block. */
uint64_t place_token_cap(const place_input *in);

/* place_input.c. Makes what strategies see of a problem. */
fcp_code place_input_of(planning *x, place_input *out);
/* Moves each KV block that no rank reads at its home to a rank that reads it and has room under the cap on tokens. */
fcp_code place_keys(const problem *p, const place_input *in, arena *scratch, uint32_t *home);

/* equal_tokens.c. Changes homes, and cuts blocks, so that every rank has floor or ceil of the mean tokens of each side.
 * home: per block. exec: per tile, or NULL. If blocks are cut, both are replaced by arrays for the new blocks and
 * tiles. If exec is given, work stays where it is. If it is NULL, work goes with its queries, as far as ranks stay
 * balanced. */
fcp_code place_equal(planning *x, uint32_t **home, uint32_t **exec);
/* Decides how many tokens each rank is to hold: floor or ceil of the mean. held: what each rank holds now; those that
 * hold most get the ceil. */
fcp_code place_even_targets(planning *x, const uint64_t *held, uint64_t *out_target);
/* For tokens = equal with given homes: reports FCP_E_VALUE if ranks do not hold equally many tokens. */
fcp_code place_check_equal(planning *x, const uint32_t *home);

/* --- the strategies ----------------------------------------------------------------------------------------------- */

/* A strategy: which functions do its work. Facts about strategies are in compiler/sema/strategies.h. */
typedef struct strategy {
    bool by_block;                /* it cuts blocks of x->block tokens; else plan.block does not matter */
    bool cut_given;               /* its blocks are another plan's, and stay as they are */
    bool in_place;                /* homes are where the caller holds the tokens, and work moves */
    fcp_code (*cut)(planning *x); /* a problem's sequences into blocks */
    fcp_code (*place)(planning *x, const place_input *in, uint32_t *home); /* fills home */
    /* NULL in strategies that leave these to others: where each tile runs (fills exec); the ways of blocks; and, where
     * it chooses homes so that few bytes move, how many it moves at least in the forward pass */
    fcp_code (*exec)(planning *x, const uint32_t *home, uint32_t *exec);
    route_choice *route;
    fcp_code (*bound)(planning *x, uint64_t *out_bytes);
    bool given;                   /* homes are those of another plan, or of a program's first layer */
} strategy;

fcp_code place_by_ring(planning *x, const place_input *in, uint32_t *home);
fcp_code place_by_zigzag(planning *x, const place_input *in, uint32_t *home);
/* The way of a block round the ring of all ranks: from rank to rank, until the last one that needs it. */
uint32_t place_around(const planning *x, const need *n, leg *legs);

/* rail_ranks.c. For a network of rails, where homes are the strategy's choice: renumbers nodes, and the ranks in each,
 * so that most bytes stay in a node, or go between ranks of equal number in their nodes. exec may be NULL. */
fcp_code place_on_rails(planning *x, uint32_t *home, uint32_t *exec);

/* shift_work.c. For homes that were not chosen for this mask: fills exec so that no rank has more work than (1 +
 * tolerance) times the mean, as far as whole tiles allow. */
fcp_code place_shift(planning *x, const uint32_t *home, uint32_t *exec);

/* Several masks that are to have the same homes. balance_masks.c balances homes under all of them, by moving blocks and
 * exchanging two: under each mask no rank has more work than that mask's cap, where such steps reach that. No step
 * brings a rank over the cap of the first mask, or over the cap on tokens. */
typedef struct place_masks {
    uint32_t masks;
    const uint64_t *const *work; /* per mask and block */
    const uint64_t *cap;         /* per mask */
} place_masks;
fcp_code place_for_masks(const place_input *in, const place_masks *masks, arena *scratch, uint32_t *home);

/* warn_tolerance.c. Warns if work has moved for balance, and a rank still has more than the tolerance allows. */
fcp_code place_warn_tolerance(planning *x);

/* weigh_placement.c. Estimates how long a placement takes, in picoseconds, from what is computed and moved and the
 * cluster's rates. It serves to compare placements of one problem. exec: per tile; NULL: tiles run at home. */
fcp_code place_weigh(planning *x, const uint32_t *home, const uint32_t *exec, uint64_t *out_time);
/* The bytes that a token of a block costs in the given passes of the plan:
 *   kv     its K and V, and dK and dV, for each rank that reads them
 *   whole  its Q, to another rank that computes all of its row, and its result back
 *   part   its Q, to one of several ranks that compute its row, and a partial result back */
typedef struct place_bytes {
    uint64_t kv, whole, part;
} place_bytes;
place_bytes place_token_bytes(const planning *x, const bool passes[FCP_PASSES]);
/* Fills out_load with the pairs that each rank computes; returns the largest. exec: per tile; NULL: tiles run at
 * home. */
uint64_t place_loads(const problem *p, const uint32_t *home, const uint32_t *exec, uint64_t *out_load);
/* Estimates how long a rank computes so many pairs, in picoseconds. */
unsigned __int128 place_computing(const planning *x, const fcp_problem *facts, uint64_t pairs, fcp_pass pass);

/* lpt.c. LPT under the token cap, with the zig-zag order of equal ranks, as FCP's paper has it. fcp falls back on it,
 * is measured against it, and with place = lpt does nothing else. */
fcp_code place_lpt(const place_input *in, arena *scratch, uint32_t *out_home);
/* Which rank has a chunk of a sequence that is cut into ranks * parts_per_rank chunks. parts_per_rank: 1 for ring, 2
 * for zigzag. */
uint32_t place_chunk(uint32_t chunk, uint32_t ranks, uint32_t parts_per_rank);
#endif
