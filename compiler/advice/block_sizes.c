/* block_sizes.c: warnings about blocks: one is too heavy for any rank, or there are fewer of them than ranks.
 *
 * Requires: blocks and tiles; to warn of idle ranks, the placement.
 * Gives: warnings, with a size of blocks that would do.
 * Cost: finding the tiles again for each smaller size that is tried.
 */
#include "compiler/advice/advise.h"
#include "compiler/passes/strategy_table.h"
#include "compiler/problem/problem.h"

enum { MOST_BLOCKS = 4096 }; /* sizes below a cell are tried for a warning only where they make fewer */

/* Is one block heavier than the mean rank? Then no placement can balance it while its tiles run at its home. */
static bool is_too_heavy(const planning *x, const problem *p) {
    return strategy_of(x)->by_block && (unsigned __int128)p->heaviest * program_places(x->program) > p->pairs;
}

/* Finds out whether one of the blocks would be too heavy if blocks had this size. Changes nothing of x. */
static fcp_code try_size(planning *x, uint32_t block, bool *out_heavy) {
    planning other = *x;
    other.block = block;
    fcp_code code = advise_plan_again(x, &other, problem_check_time, masks_divide);
    if (!code) *out_heavy = is_too_heavy(&other, other.problem);
    advise_end_again(x, &other);
    return code;
}

/* The next smaller size to try: half, rounded down to whole cells. 0: there is none. */
static uint32_t half(uint32_t block) {
    uint32_t size = block / 2;
    return size < FCP_CELL ? size : size / FCP_CELL * FCP_CELL;
}

/* Says why no other size is advised: the program has left the size open (block = auto), and the search has found this
 * one. A smaller size would end the warning, but make a slower plan. */
static void hint_found(planning *x) {
    diag_hint(x->d, "block = auto has found it: of the sizes that were tried it is predicted to be fastest");
}

/* The tokens of the heaviest block. */
static uint32_t heavy_tokens(const problem *p) {
    uint32_t b = 0;
    while (p->work[b] < p->heaviest) b++;
    return p->blocks[b].tokens;
}

fcp_code advise_heavy_blocks(planning *x) {
    const problem *p = x->problem;
    if (strategy_shares_blocks(x)) return FCP_OK;
    if (!is_too_heavy(x, p) || p->block_count < p->ranks) return FCP_OK; /* advise_idle_ranks warns of too few */
    bool heavy = true;
    uint32_t size = p->block;
    const bool found = x->program->block_found,
               slow = found || problem_is_unstructured(p); /* each size would take as long as planning */
    for (uint32_t next = half(size); heavy && next && !slow; next = half(next)) {
        if (problem_least_blocks(p, next) > (next < FCP_CELL ? (uint64_t)MOST_BLOCKS : PROBLEM_BLOCKS_MAX)) break;
        size = next;
        fcp_code code = try_size(x, size, &heavy);
        if (code) return code;
    }
    const uint64_t pairs = p->pairs ? p->pairs : 1, places = program_places(x->program);
    uint64_t percent = (uint64_t)((unsigned __int128)p->heaviest * places * 100 / pairs);
    diag_warning(x->d, planning_span(x, x->program->at[AT_BLOCK]),
                 "one block of %u tokens is %llu %% of a rank's fair share of work: no placement can balance it",
                 heavy_tokens(p), (unsigned long long)percent);
    if (found) hint_found(x);
    else if (!heavy) diag_hint(x->d, "plan.block = %u would do", size);
    else if (size < p->block) diag_hint(x->d, "blocks of %u tokens would be too heavy, too", size);
    return FCP_OK;
}

/* The largest size of blocks at which this many tokens make at least `ranks` blocks; 0: there is none. */
static uint32_t size_for_all(uint64_t tokens, uint32_t ranks) {
    uint64_t size = tokens / ranks;
    return (uint32_t)(size < FCP_CELL ? size : size / FCP_CELL * FCP_CELL);
}

fcp_code advise_idle_ranks(planning *x) {
    const problem *p = x->problem;
    bool *owns = ARENA_ZNEW(&x->scratch, bool, p->ranks);
    uint32_t idle = p->ranks;
    if (!owns) return FCP_E_NO_MEMORY;
    if (!p->block_count) return FCP_OK; /* no sequence has tokens */
    for (uint32_t b = 0; b < p->block_count; b++) {
        uint32_t r = x->placement->home[b];
        idle -= !owns[r];
        owns[r] = true;
    }
    for (uint32_t t = 0; x->placement->exec && t < p->tile_count; t++) { /* those that compute are not idle */
        uint32_t r = x->placement->exec[t];
        idle -= !owns[r];
        owns[r] = true;
    }
    if (!idle) return FCP_OK;
    const bool few = p->block_count < p->ranks; /* else the strategy has no use for more ranks */
    const char *gets = idle == 1 ? "gets" : "get", *plural = p->block_count == 1 ? "" : "s";
    span at = planning_span(x, x->program->at[AT_RANKS]);
    if (few) diag_warning(x->d, at, "%u of %u ranks %s no tokens: the batch has only %u block%s", idle, p->ranks, gets,
                          p->block_count, plural);
    else diag_warning(x->d, at, "%u of %u ranks %s no tokens: %s has no use for more", idle, p->ranks, gets,
                      strategy_names[x->program->strategy]);
    uint32_t size = few && strategy_of(x)->by_block ? size_for_all(p->tokens, p->ranks) : 0;
    if (size && x->program->block_found) hint_found(x);
    else if (size) diag_hint(x->d, "with plan.block = %u every rank gets some", size);
    else diag_hint(x->d, "they take part in the plan and compute nothing");
    return FCP_OK;
}
