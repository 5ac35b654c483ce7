/* fcp_parts.h: what the files of the fcp placement share: fcp.c, feasibility.c, repair.c, spread_senders.c,
 * renumber_ranks.c.
 *
 * Work is scaled here: the limit of a rank is PLACE_ONE, and the share of a block is rounded up. So a rank whose
 * blocks add up to at most PLACE_ONE is within the limit. Tokens are not scaled.
 */
#ifndef FCPC_PLACE_FCP_FCP_PARTS_H
#define FCPC_PLACE_FCP_FCP_PARTS_H
#include "compiler/place/place.h"

#define PLACE_ONE (INT64_C(1) << 30)

/* --- ranks by need (feasibility.c)
 * --------------------------------------------------------------------------------- */

enum { NEED_PER_OCTAVE = 8, NEED_KINDS = NEED_PER_OCTAVE * 11 };

/* A rank can still take `left` work and `room` tokens; left / room is its need: how dense the blocks must be that
 * fill it. Ranks of like need form a kind, and kinds are numbered by rising need. Of each kind with all below it the
 * sums are kept. */
typedef struct needs {
    uint32_t ranks, shift; /* tokens are shifted by this in densities */
    int64_t cap;           /* tokens of an empty rank */
    int64_t *left, *room;  /* per rank; left < 0: it is over the limit */
    uint32_t *need;        /* per rank: its need, 256 for an empty rank */
    uint8_t *kind;
    /* Rings of ranks, the one that was changed longest ago first: one for each kind, and a last one for ranks with so
     * little room that they are not searched. */
    uint32_t *next, *previous, head[NEED_KINDS + 1];
    int64_t closing; /* ranks with less room than this are not searched */
    int64_t sum_left[NEED_KINDS], sum_room[NEED_KINDS], sum_ranks[NEED_KINDS];
    /* What is still to be placed, at first all of it: the work of its lightest tokens, in steps of 2^step tokens. */
    int64_t *supply;
    uint32_t supply_count, step;
    int64_t slack, slack_each; /* tokens of room that may stay empty: of all ranks together, and of each rank besides */
    int64_t keep;  /* room that a rank must keep when it takes something that another could take as well */
} needs;

/* A block or cluster. needs_supply wants them from the lightest, by work per token, to the densest. */
typedef struct need_item {
    int64_t work, tokens;
} need_item;

fcp_code needs_init(needs *n, arena *scratch, const place_input *in, uint64_t cap, uint64_t tokens);
void needs_supply(needs *n, const need_item *light, uint32_t count);
/* Starts with empty ranks, of whose room `spare` tokens in all may stay empty. */
void needs_reset(needs *n, int64_t spare);
/* The density of `left` work in `room` tokens; 256: as dense as an empty rank wants it. */
uint32_t needs_density(const needs *n, int64_t left, int64_t room);
void needs_take(needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* Could everything else still be placed if `rank` took this? */
bool needs_allow(const needs *n, uint32_t rank, int64_t work, int64_t tokens);
/* The neediest rank that may take this, among up to `tries` that are looked at. If `sends` is given, only ranks that
 * send at most `most` count. FCP_NONE: none was found. */
uint32_t needs_best(const needs *n, int64_t work, int64_t tokens, uint32_t tries, const uint64_t *sends, uint64_t most);
/* A rank with room whose need is about as dense as this item; FCP_NONE: none was found. */
uint32_t needs_like(const needs *n, int64_t work, int64_t tokens);
/* The neediest rank with room for the tokens and the work; if there is none, the rank with room for the tokens that
 * ends up least over the limit; if there is none either, the rank with most room. */
uint32_t needs_any(const needs *n, int64_t work, int64_t tokens);

/* --- a placement in the making ------------------------------------------------------------------------------------ */

typedef struct place_run {
    uint32_t first, end; /* KV blocks first to end - 1 */
} place_run;

typedef struct place_state {
    const place_input *in;
    uint32_t *home;
    int64_t *work;       /* scaled, per block */
    int64_t *left, *room; /* per rank: those of `needs` */
    uint32_t *run_start; /* reads as runs of consecutive blocks; blocks + 1 */
    place_run *runs;
    uint32_t *cluster;   /* per block: its cluster, by the number of its first block; readers of a block share one */
    /* the blocks of cluster c: member[member_start[c]] to member[member_start[c + 1] - 1] */
    uint32_t *member, *member_start;
    uint32_t most_reads;
} place_state;

/* KV blocks that both a and b read. */
uint32_t place_overlap(const place_state *s, uint32_t a, uint32_t b);

/* --- exchanges (repair.c, spread_senders.c) ------------------------------------------------------------------- */

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
/* An estimate of how many more transfers there are if block a of rank ra and block b of rank rb change places; b may be
 * FCP_NONE: nothing comes back for a. */
int64_t place_price(const place_state *s, const place_lists *l, uint32_t a, uint32_t ra, uint32_t b, uint32_t rb);

/* Exchanges blocks until no rank is over the limit or nothing helps. Then gives empty ranks a block where others have
 * two. */
fcp_code place_repair(place_state *s, place_lists *l, arena *scratch);
/* Exchanges blocks until no rank sends more than the busiest receiver receives, or nothing helps. */
fcp_code place_spread(place_state *s, place_lists *l, arena *scratch);

/* Renumbers the ranks so that those that read the same KV blocks share a node (renumber_ranks.c). */
fcp_code place_group_nodes(const place_state *s, arena *scratch);

/* split_blocks.c. Changes homes that place_fcp has found, and makes x->tile_rank, a rank for each tile, if that is less
 * to compute and no slower. Cost: that of place_fcp. */
fcp_code place_split(planning *x, const place_input *in, uint32_t *home);
#endif
