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

/* One block's KV or Q, and the ranks that need it: in ascending order, without the home. work: of their tiles, per
 * rank. */
typedef struct need {
    uint32_t block, home, count;
    fcp_class cls;
    uint64_t bytes; /* of the block, in one pass */
    const uint32_t *ranks;
    const uint64_t *work;
} need;

/* A way from one rank to another. */
typedef struct leg {
    uint32_t src, dst;
} leg;

/* Chooses the ways of a block: a tree rooted at the home, whose legs reach every rank that needs the block, and perhaps
 * others that pass it on. A leg leaves from the home or from where an earlier leg leads, and no two lead to one rank.
 * out_legs has room for a leg to every rank; returns how many there are. */
typedef uint32_t route_choice(const planning *x, const need *n, leg *out_legs);

/* What a strategy decides, and all that later passes know of it. A block holds Q and KV of its tokens, or in a split
 * plan one of them (runtime/plan/plan.h), so `home` is the home of a Q side where the block holds Q and of a KV side
 * where it holds KV. */
typedef struct placement {
    const uint32_t *home;   /* per block: its rank */
    const uint32_t *exec;   /* per tile: the rank that computes it; NULL: each at its Q block's home */
    const uint32_t *tile_q; /* the problem's: the Q block of each tile */
    route_choice *route;    /* NULL: as schedule/traffic.c has it */
    /* Per entry of the problem's heads: the phase in which what is of them travels and is computed, from 0 without
     * gaps. Blocks of a later phase leave home later. NULL: there are no phases. */
    const uint32_t *phase;
    bool gather;            /* with phases: the tiles of a row wait for each other */
    bool relay;             /* who has received a block may send it on to other nodes (schedule/relays.c, routes.c) */
    bool spread;            /* where work moves, other ranks of a node may send and receive for it (schedule/routes.c) */
} placement;

/* The rank that computes a tile. */
static inline uint32_t placement_exec(const placement *p, uint32_t tile) {
    return p->exec ? p->exec[tile] : p->home[p->tile_q[tile]];
}

/* --- what strategies look at -------------------------------------------------------------------------------------- */

/* Block b has tokens[b] and, as a Q block, work[b] pairs; it reads the KV of blocks reads[reads_start[b]] to
 * reads[reads_start[b + 1] - 1], ascending, perhaps its own. KV block j moves to every rank other than home[j] that
 * has a block which reads j: one transfer of tokens[j] each. (Between nodes it moves once per node, then on inside;
 * the number of transfers is the same.) In a split plan a block that holds KV alone has no work, and reads itself. So
 * it counts as one transfer less at a rank where another block reads it than elsewhere, as it should.
 * Tokens count by the bytes they keep at home (sides.c makes such an input of a problem). */
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

/* sides.c. What a problem is to the strategies. */
fcp_code place_input_of(planning *x, place_input *out);
/* Moves KV blocks that lie where nobody reads them to a reader that has room: the cap is in `in`'s tokens. */
fcp_code place_keys(const problem *p, const place_input *in, arena *scratch, uint32_t *home);

/* equal.c. Changes homes, and cuts blocks, so that every rank has floor or ceil of the mean tokens of each side. home:
 * per block; exec: per tile, or NULL; both are exchanged where the blocks are. With exec work stays where it is;
 * else it goes with its queries, as far as ranks stay balanced. */
fcp_code place_equal(planning *x, uint32_t **home, uint32_t **exec);
/* How many tokens each rank is to hold, if it holds held[r] now: those that hold most get the odd ones. */
fcp_code place_even_targets(planning *x, const uint64_t *held, uint64_t *out_target);
/* Homes are given, and tokens = equal is asked: FCP_E_VALUE, reported, if ranks do not have equally many. */
fcp_code place_check_equal(planning *x, const uint32_t *home);

/* --- the strategies ----------------------------------------------------------------------------------------------- */

/* What a strategy does; its facts are in compiler/sema/strategies.h. */
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

/* rail_ranks.c. Where the network is of rails, and homes are the strategy's choice: renames nodes, and the ranks of each, in
 * home and in exec, which may be NULL, so that most bytes stay in a node, or go between ranks of equal number in their
 * nodes. */
fcp_code place_on_rails(planning *x, uint32_t *home, uint32_t *exec);

/* shift.c. For homes that were not chosen for this mask: fills exec so that no rank has more than the tolerance over
 * the mean, as far as whole tiles allow. Cost: O(tiles + moved blocks x ranks). */
fcp_code place_shift(planning *x, const uint32_t *home, uint32_t *exec);

/* masks.c. Homes that the first of several masks has balanced become balanced under all of them: no rank has more work
 * than a mask's cap, as far as moves of blocks and exchanges of two reach that. Under the first mask, and in tokens,
 * nobody gets over its cap who was not. */
typedef struct place_masks {
    uint32_t masks;
    const uint64_t *const *work; /* per mask and block */
    const uint64_t *cap;         /* per mask */
} place_masks;
fcp_code place_for_masks(const place_input *in, const place_masks *masks, arena *scratch, uint32_t *home);

/* tolerance.c. Warns where work moves, and a rank still has more of it than the tolerance allows. */
fcp_code place_warn_tolerance(planning *x);

/* weigh.c. About how long a placement takes, in picoseconds, to compare two of one problem: what is computed and moved,
 * at the cluster's rates. exec: per tile; NULL: at home. */
fcp_code place_weigh(planning *x, const uint32_t *home, const uint32_t *exec, uint64_t *out_time);
/* About how long a rank computes so many pairs, in picoseconds: at four sevenths of the FLOPs. */
unsigned __int128 place_computing(const planning *x, const fcp_problem *facts, uint64_t pairs, fcp_pass pass);

/* LPT under the token cap with zig-zag tie-break, as the paper has it: what fcp is measured against, and its
 * fallback. */
fcp_code place_lpt(const place_input *in, arena *scratch, uint32_t *out_home);
/* Where ring (parts_per_rank 1) and zigzag (2) put the chunks 0 .. ranks * parts_per_rank - 1 of a sequence. */
uint32_t place_chunk(uint32_t chunk, uint32_t ranks, uint32_t parts_per_rank);
#endif
