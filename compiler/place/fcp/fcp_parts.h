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
 * Its *need* is left / room: blocks of that density (work per token) would fill its work and its tokens at the same
 * time. Example: a rank with 600 work left and room for 200 tokens needs blocks of 3 work per token. Ranks of similar
 * need form a *kind*. Kinds are numbered by rising need, eight for each doubling. */
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

/* The size of a block or a cluster. needs_supply takes them in ascending order of density (work per token). */
typedef struct need_item {
    int64_t work, tokens;
} need_item;

fcp_code needs_init(needs *n, arena *scratch, const place_input *in, uint64_t cap, uint64_t tokens);
void needs_supply(needs *n, const need_item *light, uint32_t count);
/* Starts with empty ranks. spare: how many more tokens of room they have than there are tokens to be placed. */
void needs_reset(needs *n, int64_t spare);
/* The density of `left` work in `room` tokens, on a scale where an empty rank's need is 256. */
uint32_t needs_density(const needs *n, int64_t left, int64_t room);
void needs_take(needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* Could everything else still be placed if `rank` took this work and these tokens? */
bool needs_allow(const needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* The rank with the largest need that may take this; at most `tries` ranks are looked at. If `sends` is given, only
 * ranks r with sends[r] <= most are considered. FCP_NONE: none was found. */
uint32_t needs_best(const needs *n, int64_t work, int64_t tokens, uint32_t tries, const uint64_t *sends, uint64_t most);
/* A rank with room whose need is about as dense as this item; FCP_NONE: none was found. */
uint32_t needs_like(const needs *n, int64_t work, int64_t tokens);
/* Always finds a rank, the first of these that exists: the rank with the largest need that has room for the tokens and
 * the work; the rank with room for the tokens that ends up least over the limit of work; the rank with room for most
 * tokens. */
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

/* How many KV blocks are read by both a and b. */
uint32_t place_overlap(const place_state *s, uint32_t a, uint32_t b);

/* --- exchanges (repair.c, spread_senders.c) ----------------------------------------------------------------------- */

/* The blocks of each rank as linked lists, those with most work first. */
typedef struct place_lists {
    uint32_t *head, *next, *previous;
} place_lists;

enum { PLACE_MAX_HELD = 128 };

fcp_code place_lists_init(place_lists *l, place_state *s, arena *scratch);
/* Moves b to rank `to`, and updates home, left, room and the lists. */
void place_move(place_state *s, place_lists *l, uint32_t b, uint32_t to);
/* Lists the blocks of a rank, those with most work first, at most PLACE_MAX_HELD. Returns how many. */
uint32_t place_gather(const place_lists *l, uint32_t rank, uint32_t *out);
/* Estimates how many transfers it adds if block a of rank ra and block b of rank rb change places. b = FCP_NONE: a
 * moves to rb, and nothing comes back. */
int64_t place_price(const place_state *s, const place_lists *l, uint32_t a, uint32_t ra, uint32_t b, uint32_t rb);

/* Exchanges blocks until no rank is over the limit or nothing helps. Then gives each empty rank a block of a rank that
 * has two. */
fcp_code place_repair(place_state *s, place_lists *l, arena *scratch);
/* Exchanges blocks until no rank sends more than the busiest receiver receives, or nothing helps. */
fcp_code place_spread(place_state *s, place_lists *l, arena *scratch);

/* Renumbers the ranks so that those that read the same KV blocks share a node (renumber_ranks.c). */
fcp_code place_group_nodes(const place_state *s, arena *scratch);

/* split_blocks.c. Divides the work of heavy blocks among several ranks: replaces the homes that place_fcp chose, and
 * sets x->tile_rank, the rank that computes each tile. Changes nothing if the plan would get slower by more than a
 * margin. Cost: up to CUTTINGS times that of place_fcp. */
fcp_code place_split(planning *x, const place_input *in, uint32_t *home);
#endif
