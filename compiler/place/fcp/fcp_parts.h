/* fcp_parts.h: what the files of the fcp strategy share.
 *
 * Work is scaled here: a rank may have PLACE_ONE of it, and the share of a block is rounded up. So a rank whose blocks
 * add up to at most PLACE_ONE is within the limit. Tokens are not scaled.
 */
#ifndef FCPC_PLACE_FCP_FCP_PARTS_H
#define FCPC_PLACE_FCP_FCP_PARTS_H
#include "compiler/place/place.h"
#include "compiler/place/place_tuning.h"

#define PLACE_ONE (INT64_C(1) << 30)

/* --- which rank may take what (feasibility.c) --------------------------------------------------------------------- */

enum { NEED_PER_OCTAVE = 8, NEED_KINDS = NEED_PER_OCTAVE * 11 };

/* The room of all ranks, and the blocks that are still to come. A rank can still take `left` work and `room` tokens.
 * Its *need* is left / room: how dense (work per token) the blocks must be that fill it in both. Ranks of like need
 * form a *kind*; kinds are numbered by rising need, eight for each doubling. */
typedef struct needs {
    uint32_t ranks, shift; /* tokens are shifted by this in densities */
    int64_t cap;           /* tokens of an empty rank */
    int64_t *left, *room;  /* per rank; left < 0: it is over the limit */
    uint32_t *need;        /* per rank: its need, 256 for an empty rank */
    uint8_t *kind;
    /* Circular lists of ranks, the one that was changed longest ago first: one for each kind, and a last one for ranks
     * with less room than `closing`, which are not searched. */
    uint32_t *next, *previous, head[NEED_KINDS + 1];
    int64_t closing;
    int64_t sum_left[NEED_KINDS], sum_room[NEED_KINDS], sum_ranks[NEED_KINDS]; /* of a kind and all below it */
    /* supply[i]: the work of the lightest i * 2^step tokens of all that is to be placed */
    int64_t *supply;
    uint32_t supply_count, step;
    int64_t slack, slack_each; /* room that may stay empty, in tokens: so much in all, and so much more for each rank */
    int64_t keep;              /* room that a rank must keep when it takes something */
} needs;

/* The size of a block or a cluster. needs_supply takes them from the lightest, by work per token, to the densest. */
typedef struct need_item {
    int64_t work, tokens;
} need_item;

fcp_code needs_init(needs *n, arena *scratch, const place_input *in, uint64_t cap, uint64_t tokens);
void needs_supply(needs *n, const need_item *light, uint32_t count);
/* Starts with empty ranks. In all they have `spare` more tokens of room than are to be placed. */
void needs_reset(needs *n, int64_t spare);
/* The density of `left` work in `room` tokens, where 256 is the need of an empty rank. */
uint32_t needs_density(const needs *n, int64_t left, int64_t room);
void needs_take(needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* Could everything else still be placed if `rank` took this? */
bool needs_allow(const needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* The rank with the largest need that may take this, among up to `tries` that are looked at. If `sends` is given, only
 * ranks r with sends[r] <= most count. FCP_NONE: none was found. */
uint32_t needs_best(const needs *n, int64_t work, int64_t tokens, uint32_t tries, const uint64_t *sends, uint64_t most);
/* A rank with room whose need is about as dense as this item; FCP_NONE: none was found. */
uint32_t needs_like(const needs *n, int64_t work, int64_t tokens);
/* The rank with the largest need that has room for the tokens and the work. If there is none, the rank with room for
 * the tokens that ends up least over the limit of work; if there is none either, the rank with most room. */
uint32_t needs_any(const needs *n, int64_t work, int64_t tokens);

/* --- a placement in the making ------------------------------------------------------------------------------------ */

/* Consecutive KV blocks that a block reads. */
typedef struct place_run {
    uint32_t first, end; /* KV blocks first to end - 1 */
} place_run;

typedef struct place_state {
    const place_input *in;
    uint32_t *home;
    int64_t *work;       /* scaled, per block */
    int64_t *left, *room; /* per rank: those of `needs` */
    uint32_t *run_start;  /* block b reads runs[run_start[b]] to runs[run_start[b + 1] - 1] */
    place_run *runs;
    /* Per block: its cluster, by the number of its first block. All readers of a block are in one cluster. */
    uint32_t *cluster;
    /* the blocks of cluster c: member[member_start[c]] to member[member_start[c + 1] - 1] */
    uint32_t *member, *member_start;
    uint32_t most_reads;
} place_state;

/* KV blocks that both a and b read. */
uint32_t place_overlap(const place_state *s, uint32_t a, uint32_t b);

/* --- exchanges (repair.c, spread_senders.c) ----------------------------------------------------------------------- */

/* The blocks of each rank, as linked lists by falling work. */
typedef struct place_lists {
    uint32_t *head, *next, *previous;
} place_lists;

enum { PLACE_MAX_HELD = 128 };

fcp_code place_lists_init(place_lists *l, place_state *s, arena *scratch);
/* Moves b to rank `to`, and keeps home, left, room and the lists in step. */
void place_move(place_state *s, place_lists *l, uint32_t b, uint32_t to);
/* The blocks of a rank by falling work, at most PLACE_MAX_HELD of them. */
uint32_t place_gather(const place_lists *l, uint32_t rank, uint32_t *out);
/* About how many more transfers there are if block a of rank ra and block b of rank rb change places. b = FCP_NONE: a
 * moves, and nothing comes back. */
int64_t place_price(const place_state *s, const place_lists *l, uint32_t a, uint32_t ra, uint32_t b, uint32_t rb);

/* Exchanges blocks until no rank is over the limit or nothing helps. Then gives each empty rank a block of a rank that
 * has two. */
fcp_code place_repair(place_state *s, place_lists *l, arena *scratch);
/* Exchanges blocks until no rank sends more than the busiest receiver receives, or nothing helps. */
fcp_code place_spread(place_state *s, place_lists *l, arena *scratch);

/* Renumbers the ranks so that those that read the same KV blocks share a node (renumber_ranks.c). */
fcp_code place_group_nodes(const place_state *s, arena *scratch);

/* split_blocks.c. Has several ranks compute heavy blocks: changes the homes of place_fcp, and makes x->tile_rank, a
 * rank for each tile; but only if the busiest rank then computes less, and the plan is not slower. Cost: that of
 * place_fcp. */
fcp_code place_split(planning *x, const place_input *in, uint32_t *home);
#endif
