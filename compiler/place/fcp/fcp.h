/* fcp.h: what the rooms of the fcp placement share (place_fcp.c, place_need.c, place_repair.c, place_nodes.c).
 *
 * Work is scaled: a rank's limit is PLACE_ONE, a block's share is rounded up, so that a rank within PLACE_ONE is within
 * the limit. Tokens are tokens.
 */
#ifndef FCPC_PLACE_FCP_FCP_H
#define FCPC_PLACE_FCP_FCP_H
#include "compiler/place/place.h"

#define PLACE_ONE (INT64_C(1) << 30)

/* --- ranks by need (need.c) --------------------------------------------------------------------------------- */

enum { NEED_PER_OCTAVE = 8, NEED_KINDS = NEED_PER_OCTAVE * 11 };

/* A rank still takes `left` work and `room` tokens; left / room is its need. Ranks of like need form a kind; kinds are
 * in order of need. Of each kind and all below it the sums are kept. */
typedef struct needs {
    uint32_t ranks, shift; /* tokens are shifted by this in densities */
    int64_t cap;           /* tokens of an empty rank */
    int64_t *left, *room;  /* per rank; left < 0: over the limit */
    uint32_t *need;        /* per rank: density, 256 for an empty one */
    uint8_t *kind;
    /* rings, longest untouched first: by kind, and last those with so little room that they are not searched */
    uint32_t *next, *previous, head[NEED_KINDS + 1];
    int64_t closing; /* room below which a rank is not searched */
    int64_t sum_left[NEED_KINDS], sum_room[NEED_KINDS], sum_ranks[NEED_KINDS];
    /* what is to be placed: work of the lightest x tokens, tabled every 2^step tokens */
    int64_t *supply;
    uint32_t supply_count, step;
    int64_t slack, slack_each; /* tokens of room that ranks may leave empty: together, and each in addition */
    int64_t keep;  /* tokens of room a rank must keep when it takes something it need not take */
} needs;

/* `light` = blocks or clusters from the lightest (by density) to the densest: work and tokens of each. */
typedef struct need_item {
    int64_t work, tokens;
} need_item;

fcp_code needs_init(needs *n, arena *scratch, const place_input *in, uint64_t cap, uint64_t tokens);
void needs_supply(needs *n, const need_item *light, uint32_t count);
/* Room that may stay empty: `spare` tokens in all. */
void needs_reset(needs *n, int64_t spare);
/* How dense `left` work in `room` tokens is; 256: like an empty rank. */
uint32_t needs_density(const needs *n, int64_t left, int64_t room);
void needs_take(needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* Could the rest still be placed if `rank` took this? */
bool needs_allow(const needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* The neediest rank that is allowed it, looking at up to `tries`; with `sends` given, only ranks that would send at
 * most `most`. FCP_NONE: none found. */
uint32_t needs_best(const needs *n, int64_t work, int64_t tokens, uint32_t tries, const uint64_t *sends, uint64_t most);
/* A rank with room whose need is about as dense as this; FCP_NONE: none found. */
uint32_t needs_like(const needs *n, int64_t work, int64_t tokens);
/* The neediest rank with room, else the one least over the limit, else the one with most room. */
uint32_t needs_any(const needs *n, int64_t work, int64_t tokens);

/* --- a placement in the making ------------------------------------------------------------------------------------ */

typedef struct place_run {
    uint32_t first, end; /* KV blocks */
} place_run;

typedef struct place_state {
    const place_input *in;
    uint32_t *home;
    int64_t *work;       /* scaled, per block */
    int64_t *left, *room; /* per rank: those of `needs` */
    uint32_t *run_start; /* reads as runs of consecutive blocks; blocks + 1 */
    place_run *runs;
    uint32_t *cluster;   /* per block: blocks joined by reads, named by their first block */
    uint32_t *member, *member_start; /* the blocks of cluster c: member[member_start[c]] to member[member_start[c + 1] - 1] */
    uint32_t most_reads;
} place_state;

/* KV blocks that both a and b read. */
uint32_t place_overlap(const place_state *s, uint32_t a, uint32_t b);

/* --- exchanges (repair.c, spread.c) ------------------------------------------------------------------- */

/* The blocks of each rank, as lists by falling work. */
typedef struct place_lists {
    uint32_t *head, *next, *previous;
} place_lists;

enum { PLACE_MAX_HELD = 128 };

fcp_code place_lists_init(place_lists *l, place_state *s, arena *scratch);
/* Moves b to rank `to`: home, left, room and lists. */
void place_move(place_state *s, place_lists *l, uint32_t b, uint32_t to);
/* The blocks of a rank by falling work, at most PLACE_MAX_HELD of them. */
uint32_t place_gather(const place_lists *l, uint32_t rank, uint32_t *out);
/* Estimated transfers more if a (of rank ra) and b (of rank rb; FCP_NONE: nothing) change places. */
int64_t place_price(const place_state *s, const place_lists *l, uint32_t a, uint32_t ra, uint32_t b, uint32_t rb);

/* Until no rank is over the limit, or nothing helps; then sees that no rank stays empty. */
fcp_code place_repair(place_state *s, place_lists *l, arena *scratch);
/* Until no rank sends more than the busiest receiver receives, or nothing helps. */
fcp_code place_spread(place_state *s, place_lists *l, arena *scratch);

/* Renumbers the ranks so that those that read the same KV blocks share a node (nodes.c). */
fcp_code place_group_nodes(const place_state *s, arena *scratch);
#endif
