/* auto_tuning.h: the constants by which strategy = auto decides what to try, and what each of them trades.
 *
 * Most of them trade the time of planning for that of the plan: they leave out candidates that seldom win. None depends
 * on a clock, so the same program and batch always try the same candidates. "Best time" is the shortest time that has
 * been predicted so far. "Bound" is a time that no plan of a candidate can beat (time_bounds.c). Percentages are of the
 * time that is named first: NEAR_PERCENT = 125 means "at most a quarter longer". `make bench ROWS=auto` compares what
 * comes out with 24 settings that a user would try.
 */
#ifndef FCPC_AUTO_TUNING_H
#define FCPC_AUTO_TUNING_H

/* --- budgets: how many candidates each effort adds to those of the effort before it ------------------------------- */

enum { EFFORTS = 3 };
/* Neighbours of good candidates (search.c), and placements with moved work (local_search.c). A step that gains
 * MUCH_PART of the best time or more costs nothing, up to as many again: so time is spent on batches where much is left
 * to be gained. */
static const uint32_t searched_of_effort[EFFORTS + 1] = {[1] = 10, [2] = 40, [3] = 160},
                      moved_of_effort[EFFORTS + 1] = {[1] = 8, [2] = 16, [3] = 64};
enum {
    /* With effort 1 the budget of a plan with n tiles is divided by 1 + n / WEIGHED_TILES, that of moves by the square,
     * because moves gain less. So many are tried in any case. */
    WEIGHED_TILES = 8 << 10,
    SEARCHED_LEAST = 4,
    MOVED_LEAST = 2,
    /* A neighbour that needs another placement costs so much of the budget. One with the placement of the best costs 1:
     * it takes less than half as long to plan. */
    PLACED_COST = 2,
    MUCH_PART = 250, /* of the best time, as a divisor: 0.4 % */
    /* A neighbour is scheduled only if its bound says that it may gain more than this part of the best time: 0.5 %. */
    GAIN_PART = 200
};

/* --- large batches: what takes long to plan is tried less, with effort 1 ------------------------------------------ */

enum {
    /* Tiles. A plan with so many is left out of what seldom gains: neighbours of rivals, halves (pingpong) by
     * themselves, and moved rows where tokens stay in place. Also, gains buy no more tries. */
    HEAVY_TILES = 48 << 10,
    /* Tiles. With so many, smaller blocks are tried with one setting alone; of a strategy whose tiles are slow to place
     * (dcp) not at all; and a third setting only if the second was better than the first. */
    MANY_TILES = 20 << 10,
    /* Blocks. If a size makes so many, it takes long to cut: no larger sizes are tried, for they seldom gain there. */
    MANY_BLOCKS = 4096,
    /* Nodes. A ring through more takes seconds to plan, because the keys of every head pass through all of them. */
    LONG_RING = 8
};

/* --- how near is near ------------------------------------------------------------------------------------------------ */

enum {
    /* A strategy whose first setting takes longer than this of the best time gets no further tries. */
    NEAR_PERCENT = 125,
    /* A candidate within this of the best time is tried with other sizes of blocks, if the best one's blocks have no
     * size. Neighbours are tried of candidates that are as near. */
    CLOSE_PERCENT = 110,
    /* Another strategy within this of the best time is a rival: two of its neighbours and its smaller blocks are tried
     * before all others. Tried on wlbllm-64 under shared_question, contiguous: dcp takes 14.09 ms and cad 14.44 at first,
     * and a search brings dcp down to 12.15. */
    RIVAL_PERCENT = 105,
    /* Of three settings in ascending order in a large batch: the third is tried only if the second took less than the
     * first by more than this. */
    EQUAL_PERCENT = 103,
    /* A tolerance of 0.5 gives one rank half again the mean's work. That pays only where ranks wait much: where the plan
     * takes longer than this of its bound. */
    WAITS_PERCENT = 165,
    /* Fine blocks (search.c) are tried of a plan that takes longer than this of its bound. Under shared_question plans of
     * 256 ranks often take 1.3 to 1.6 times their bound. */
    FAR_PERCENT = 150
};

/* --- sizes of blocks, in tokens ------------------------------------------------------------------------------------ */

enum {
    BLOCK_LEAST = 128, /* one cell: kernels compute no less at a time */
    /* The list begins with half of BLOCK_USUAL_MOST, or less, so that each rank has BLOCKS_A_RANK of twice that. */
    BLOCK_USUAL_MOST = 4096,
    BLOCKS_A_RANK = 8,
    BLOCK_SEARCH_MOST = 8192, /* the largest that the search of strategy = auto tries */
    /* Groups of ranks that share heads begin with blocks so many times as large, because all ranks of a group work on
     * each. Smaller ones never gained. */
    JOINED_TIMES = 4,
    FINE_BLOCKS = 4096 /* fine blocks are not tried if there would be more: these take seconds to plan on 256 ranks */
};

/* --- block = auto with a stated strategy (sizes.c) ------------------------------------------------------------------ */

/* A rule that reckoned the size from work and bandwidth was tried. It does not see rounds and stages: it chose 1K for
 * prolong-256 under a causal mask, and with 2K the plan takes 15 % less. With the search below no size from 512 to 16K
 * is better on 63 batches of 64 and 256 ranks; on 60 that were drawn one was, by 5 %. */
enum {
    SIZE_MOST = 16384,        /* larger ones are not tried */
    SIZES_BELOW = 2,          /* below the middle size its half and its quarter are tried */
    SIZES_ROOM = 8,           /* from BLOCK_LEAST to SIZE_MOST */
    SIZE_MOST_TILES = 1 << 20, /* no size is tried that may have more */
    SIZE_NEAR_PERCENT = 110,  /* in the first step, a size within this of the best time counts as best, too */
    SIZE_GAIN_PERCENT = 99,   /* half a size is tried only if the size takes no longer than this of the one above it */
    SIZE_ENOUGH_PERCENT = 103 /* the search ends if the best takes no longer than this of its bound */
};

/* --- moves of work (local_search.c) --------------------------------------------------------------------------------- */

/* Ranks that one step changes. Many ranks end nearly last: if a step changed one, the next would hardly gain. */
enum { WIDEST = 64 };
#endif
