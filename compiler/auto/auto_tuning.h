/* auto_tuning.h: the constants by which strategy = auto decides what to try.
 *
 * Most of them trade the time of planning for that of the plan: they leave out candidates that seldom win. "Best time"
 * is the shortest time that has been predicted so far. "Bound" is a time that no plan of a candidate can beat
 * (time_bounds.c). Percentages are of the time that the comment names: NEAR_PERCENT = 125 means at most a quarter
 * longer than the best time. `make bench ROWS=auto` compares what auto finds with 24 settings that a user would try.
 */
#ifndef FCPC_AUTO_TUNING_H
#define FCPC_AUTO_TUNING_H

/* --- budgets ------------------------------------------------------------------------------------------------------ */

enum { EFFORTS = 3 };
/* Budgets: how many neighbours of good candidates (search.c) and how many placements with moved work (local_search.c)
 * each effort adds to those of the effort before it. A step that gains 1 / MUCH_PART of the best time or more does not
 * count, so more time is spent on batches where much can still be gained. The number of such free steps is at most the
 * budget. */
static const uint32_t searched_of_effort[EFFORTS + 1] = {[1] = 10, [2] = 40, [3] = 160},
                      moved_of_effort[EFFORTS + 1] = {[1] = 8, [2] = 16, [3] = 64};
enum {
    /* With effort 1, the budget of a plan with n tiles is divided by 1 + n / WEIGHED_TILES. That of moves is divided by
     * the square, because moves gain less. The least numbers are tried in any case. */
    WEIGHED_TILES = 8 << 10,
    SEARCHED_LEAST = 4,
    MOVED_LEAST = 2,
    /* A neighbour that needs another placement costs so much of the budget. One with the placement of the best costs 1,
     * because it takes less than half as long to plan. */
    PLACED_COST = 2,
    MUCH_PART = 250, /* 0.4 % */
    /* A neighbour is scheduled only if its bound leaves room for a gain of 1 / GAIN_PART of the best time: 0.5 %. */
    GAIN_PART = 200
};

/* --- the budget of work (budget.c) -------------------------------------------------------------------------------- */

/* Nanoseconds of one processor, fitted to plans of 256 to 8,192 ranks: README.md says how well. */
enum {
    WORK_OF_PART = 200,     /* to cut blocks and find tiles */
    WORK_OF_BLOCK = 1000,   /* to place one */
    WORK_OF_PLACING = 4000, /* to place a tile, by a strategy whose tiles are slow to place (dcp) */
    WORK_OF_TILE = 200,     /* to find what it needs, and the bounds */
    WORK_OF_HOP = 100,
    WORK_OF_INSTR = 400,  /* to schedule and lower an instruction */
    WORK_OF_MARGIN = 225, /* to predict one, with one margin */
    INSTRS_OF_BLOCK = 20, /* before anything is planned, this is taken for their number */
    /* Where the program states no budget, it is two seconds for each neighbour that may be tried (searched_of_effort),
     * and at least as much work as so many times the first plan. Batches of 256 ranks need less, so nothing ends
     * there. */
    SECONDS_A_TRY = 2,
    FIRST_TIMES = 4,
    /* Where the first candidate is estimated to take longer, those that take less come first. */
    WORK_IN_ORDER = 250000000,
    /* A candidate that is estimated to take longer than a second, and than so many times the best one, is passed over:
     * zigzag over 256 ranks cuts so many blocks. */
    WORK_TOO_LONG = 1000000000,
    TOO_LONG_TIMES = 16
};

/* --- large batches: with effort 1, what takes long to plan is tried less ------------------------------------------ */

enum {
    /* Tiles. With so many, what seldom gains is left out: neighbours of rivals, and moved rows if tokens stay in
     * place. Also, steps that gain buy no more tries. */
    HEAVY_TILES = 48 << 10,
    /* Tiles. With so many, smaller blocks are tried with one setting only, and not at all with a strategy whose tiles
     * are slow to place (dcp). A third setting is tried only if the second was better than the first. */
    MANY_TILES = 20 << 10,
    /* Blocks. A size that makes so many takes long to cut. Then larger sizes are not tried: they seldom gain there. */
    MANY_BLOCKS = 4096,
    /* Nodes. A ring through more takes seconds to plan, because the keys of every head pass through all of them. */
    LONG_RING = 8
};

/* --- how near is near --------------------------------------------------------------------------------------------- */

enum {
    /* If the first setting of a strategy takes longer than this of the best time, its others are not tried. */
    NEAR_PERCENT = 125,
    /* Neighbours are tried of candidates within this of the best time. If the blocks of the best have no size, other
     * sizes are tried of a candidate that is as near. */
    CLOSE_PERCENT = 110,
    /* A candidate of another strategy is a rival if it takes at most this percentage of the best time. Two of its
     * neighbours, and its setting with smaller blocks, are tried before everything else. Example: wlbllm-64 under
     * shared_question in contiguous layout. At first dcp takes 14.09 ms and cad 14.44 ms. Neighbours of dcp take 12.15
     * ms. */
    RIVAL_PERCENT = 105,
    /* Of three settings in ascending order, a large batch tries the third only if the first takes more than this of the
     * second's time. */
    EQUAL_PERCENT = 103,
    /* A tolerance of 0.5 gives one rank half again the mean's work. It is tried only if ranks wait much: if the plan
     * takes longer than this of its bound. */
    WAITS_PERCENT = 165,
    /* Fine blocks (search.c) are tried if the plan takes longer than this of its bound. Under shared_question, plans of
     * 256 ranks often take 1.3 to 1.6 times their bound. */
    FAR_PERCENT = 150
};

/* --- sizes of blocks, in tokens ----------------------------------------------------------------------------------- */

enum {
    BLOCK_LEAST = 128, /* one cell: kernels compute no less at a time */
    /* The first size is half of BLOCK_USUAL_MOST. In small batches it is less, so that every rank has BLOCKS_A_RANK of
     * twice the size. */
    BLOCK_USUAL_MOST = 4096,
    BLOCKS_A_RANK = 8,
    BLOCK_SEARCH_MOST = 8192, /* the largest that the search of strategy = auto tries */
    /* Groups of ranks that share heads begin with blocks so many times as large, because all ranks of a group work on
     * each block. Smaller ones never gained. */
    JOINED_TIMES = 4,
    FINE_BLOCKS = 4096 /* fine blocks are not tried if there would be more: to plan them takes seconds on 256 ranks */
};

/* --- block = auto with a strategy that the program names (sizes.c) ------------------------------------------------ */

/* Why the size of blocks is searched for and not computed: a formula of work and bandwidth was tried, but it ignores
 * rounds and stages. For prolong-256, causal, it gave 1K, and a plan with 2K takes 15 % less time.
 * How good the search is: it was compared with all sizes from 512 to 16K. On 63 batches of 64 and 256 ranks, no size
 * was better than the one it found. Of 60 random batches, one had a better size, by 5 %. */
enum {
    SIZE_MOST = 16384,         /* larger ones are not tried */
    SIZES_BELOW = 2,           /* below the middle size, its half and its quarter are tried */
    SIZES_ROOM = 8,            /* from BLOCK_LEAST to SIZE_MOST */
    SIZE_MOST_TILES = 1 << 20, /* no size is tried that may have more */
    SIZE_NEAR_PERCENT = 110,   /* in the first step, a size within this of the best time counts as best, too */
    SIZE_GAIN_PERCENT = 99,    /* half a size is tried only if the size takes no longer than this of twice the size */
    SIZE_ENOUGH_PERCENT = 103, /* the search ends if the best takes no longer than this of its bound */
    SIZE_FILLS_PERCENT = 110   /* one that leaves fewer ranks without tokens may take this of the best time */
};

/* --- moves of work (local_search.c) ------------------------------------------------------------------------------- */

/* The most ranks that one step relieves of work. Many ranks end at nearly the last moment, so relieving one of them
 * hardly gains. */
enum { WIDEST = 64 };
#endif
