/* sizes.c: finds the size of blocks if the program says block = auto and names its strategy.
 *
 * Requires: a strategy that cuts blocks of one size, and a batch.
 * Gives: the size with which the plan is predicted to be fastest, of those that were tried.
 * Cost: a planning without proof and a prediction for each size that is tried: usually four.
 *
 * Bounds hardly tell sizes apart, so each is planned to the end. Small blocks balance work better and begin to move
 * earlier. Large ones need fewer launches, rounds and bytes. Only a schedule shows that. Example: wlbllm-64, causal, by
 * fcp. At 1K, 2K, 4K and 8K tokens the bounds are 69, 69, 73 and 78 ms; the plans take 87, 85, 82 and 119 ms.
 *
 * As a rule, times fall towards one size and rise beyond it. So the search begins with two sizes in the middle, then
 * goes on beside the better one until a step does not gain. Twice the larger size is always tried, because it takes
 * little to plan. Three things end the search early:
 *   1. The best is near its bound. As all sizes have nearly the same bound, none can gain much.
 *   2. A block has more work than the mean rank. Larger blocks would only make ranks more uneven.
 *   3. There are many tiles, and half the size makes two to four times as many. If sequences are long, the search
 *      begins with large blocks, which balance as well: 8M tokens on 256 ranks still make 512 blocks of 16K.
 *
 * Two sizes at a time are planned on two threads. Nothing depends on which of them is ready first.
 *
 * A small batch may have fewer blocks than ranks. Times alone would often keep it so: launches and rounds are most of
 * what a small batch takes. Example: 1000 tokens on 4 ranks, causal, take 0.230 ms with two blocks of 512, and 0.244 ms
 * with four of 256. But the caller has started four ranks, and two of them would have no tokens. So a size that leaves
 * fewer ranks without tokens is chosen if it takes at most SIZE_FILLS_PERCENT of the best time.
 */
#include "compiler/auto/auto.h"

const uint64_t *auto_lengths(const struct fcpc_program *g, const fcpc_batch *batch, fcp_side side, size_t *count) {
    const bool own = batch->lengths != NULL;
    const uint64_t *keys = own ? batch->lengths : g->lengths, *queries = own ? batch->queries : g->queries;
    *count = !keys ? 0 : own ? batch->count : g->length_count;
    return side == FCP_QUERIES && queries ? queries : keys;
}

uint32_t auto_middle_size(const struct fcpc_program *g, const fcpc_batch *batch) {
    size_t count;
    const uint64_t *lengths = auto_lengths(g, batch, FCP_KEYS, &count), ranks = program_places(g);
    uint64_t tokens = 0;
    uint32_t most = BLOCK_USUAL_MOST;
    for (size_t i = 0; i < count; i++)
        if (__builtin_add_overflow(tokens, lengths[i], &tokens)) tokens = UINT64_MAX; /* refused when it is planned */
    while (most > 4 * BLOCK_LEAST && tokens / ranks / most < BLOCKS_A_RANK) most /= 2;
    return most / 2;
}

/* Would blocks of this size make more than HEAVY_TILES tiles, if the mask were causal? */
static bool has_many_tiles(const auto_job *j, uint32_t block) {
    size_t count;
    const uint64_t *keys = auto_lengths(j->program, j->batch, FCP_KEYS, &count),
                   *queries = auto_lengths(j->program, j->batch, FCP_QUERIES, &count);
    unsigned __int128 tiles = 0;
    for (size_t i = 0; i < count; i++) tiles += (unsigned __int128)(queries[i] / block) * (keys[i] / block) / 2;
    return tiles > HEAVY_TILES;
}

/* Adds a candidate with blocks of this size to the list. Returns its number. */
static uint32_t add_size(auto_job *j, uint32_t block) {
    j->report->at[j->report->count] = (auto_candidate){.strategy = j->program->strategy, .between = j->program->between,
                                                       .block = block, .end = AUTO_FAR};
    return j->report->count++;
}

/* Is n the best size so far, or is there no best one because all were refused? In the first step it is enough if n is
 * nearly as fast as the best: the first two sizes are often alike, and a third is better than both. */
static bool leads(const auto_job *j, uint32_t n, bool first) {
    const uint64_t own = j->report->at[n].makespan;
    return j->best == FCP_NONE || j->best == n || (first && own && own / SIZE_NEAR_PERCENT * 100 <= auto_best_time(j));
}

/* Should half the size of n be tried? n is the smallest size so far. Half of it takes at least twice as long to plan.
 * So, except in the first step, n must be clearly faster than `above`, which has twice its size. */
static bool goes_down(const auto_job *j, uint32_t n, uint32_t above, uint32_t least, bool first) {
    const auto_candidate *c = &j->report->at[n];
    const uint64_t before = j->report->at[above].makespan;
    if (c->block <= least || c->tiles > SIZE_MOST_TILES / 4 || !leads(j, n, first)) return false;
    return first || !before || c->makespan <= before / 100 * SIZE_GAIN_PERCENT;
}

/* Should twice the size of n be tried? n is the largest size so far. Larger blocks take less time to plan, so in the
 * first step the answer is yes even if n is not the best: under a mask with a window, 8K may be best even if 4K is
 * worse than 2K. The answer is no if blocks get too large, or if one has more work than the mean rank and work cannot
 * move. */
static bool goes_up(const auto_job *j, uint32_t n, bool first) {
    const auto_candidate *c = &j->report->at[n];
    const bool moves = strategy_named(program_divides_by(j->program))->exec; /* work, also of a heavy block */
    return c->block < SIZE_MOST && (!c->heavy || moves) && (first || leads(j, n, first));
}

static bool is_enough(const auto_job *j) {
    return j->best != FCP_NONE && auto_best_time(j) / SIZE_ENOUGH_PERCENT * 100 <= j->report->at[j->best].bound.all;
}

/* Chooses a size that gives tokens to more ranks than the fastest does, if one is nearly as fast: of those that leave
 * fewest ranks without tokens, the fastest. */
static void fill_ranks(auto_job *j) {
    const auto_report *r = j->report;
    const uint64_t most = auto_best_time(j) / 100 * SIZE_FILLS_PERCENT;
    for (uint32_t n = 0; j->best != FCP_NONE && n < r->count; n++) {
        const auto_candidate *c = &r->at[n], *best = &r->at[j->best];
        if (c->makespan && c->makespan <= most &&
            (c->bare < best->bare || (c->bare == best->bare && c->makespan < best->makespan)))
            j->best = n;
    }
}

fcp_code auto_try_sizes(auto_job *j) {
    const uint32_t middle = auto_middle_size(j->program, j->batch), quarter = middle >> SIZES_BELOW,
                   least = quarter > BLOCK_LEAST ? quarter : BLOCK_LEAST;
    const auto_candidate *at = j->report->at = ARENA_ZNEW(&j->report->memory, auto_candidate, SIZES_ROOM);
    uint32_t size = middle, pair[2], count = 0;
    if (!at) return FCP_E_NO_MEMORY;
    while (size < SIZE_MOST && has_many_tiles(j, size)) size *= 2;
    uint32_t small = pair[count++] = add_size(j, size), large = small;
    if (size < SIZE_MOST) large = pair[count++] = add_size(j, 2 * size);
    uint32_t above = large;
    fcp_code code = FCP_OK;
    for (bool first = true; count && !code; first = false) {
        code = auto_try(j, pair, count);
        const bool bare = j->best != FCP_NONE && at[j->best].bare,
                   down = goes_down(j, small, above, least, first) || (bare && at[small].block > BLOCK_LEAST),
                   up = goes_up(j, large, first);
        count = 0;
        if (is_enough(j) && !bare) break;
        if (down) above = small, pair[count++] = small = add_size(j, at[small].block / 2);
        if (up) pair[count++] = large = add_size(j, at[large].block * 2);
    }
    if (!code) fill_ranks(j);
    return code;
}
