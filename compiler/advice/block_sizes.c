/* block_sizes.c: warnings about blocks: one is too heavy for any rank, or there are fewer of them than ranks.
 *
 * Requires: blocks and tiles; to warn of idle ranks, the placement.
 * Gives: warnings, with a size of blocks that would do.
 * Cost: finding the tiles again for each smaller size that is tried.
 */
#include "compiler/advice/advise.h"
#include "compiler/base/text.h"
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
    if (found)
        diag_hint(x->d, "block = auto has found it: other sizes that were tried are predicted to be slower, or leave "
                        "ranks without tokens");
    else if (!heavy) diag_hint(x->d, "plan.block = %u would do", size);
    else if (size < p->block) diag_hint(x->d, "blocks of %u tokens would be too heavy, too", size);
    return FCP_OK;
}

/* The size of blocks, of whole cells if one will do, at which this many tokens make at least `ranks` blocks; 0: there is
 * none. */
static uint32_t size_for_all(uint64_t tokens, uint32_t ranks) {
    uint64_t size = tokens / ranks;
    if (size < FCP_CELL && ranks > 1 && (tokens - 1) / (ranks - 1) >= FCP_CELL) return FCP_CELL; /* the last is short */
    return (uint32_t)(size < FCP_CELL ? size : size / FCP_CELL * FCP_CELL);
}

/* Says which size of blocks would give every rank some. The program may have left the size open (block = auto). Then
 * sizes below a cell were not tried, because kernels compute whole cells; and a larger one was not chosen for its time
 * (compiler/auto/sizes.c). */
static void hint_size(planning *x, uint32_t size) {
    const char *why = !x->program->block_found ? ""
                      : size < FCP_CELL ? "; block = auto tries none below 128, as kernels compute so much at a time"
                                        : "; block = auto has not chosen it, as the plan would be slower";
    diag_hint(x->d, "with plan.block = %u every rank gets some%s", size, why);
}

/* Warns of ranks that compute for others, and have no tokens: the rest of a model has nothing to do there. */
static void warn_helping(planning *x, uint32_t helping, uint32_t size) {
    const problem *p = x->problem;
    const struct fcpc_program *g = x->program;
    diag_warning(x->d, planning_span(x, g->at[AT_RANKS]), "%u of %u ranks %s no tokens, and only compute%s for others",
                 helping, p->ranks, helping == 1 ? "gets" : "get", helping == 1 ? "s" : "");
    if (size) hint_size(x, size);
    else if (g->layout == FCP_LAYOUT_PLANNED && !strategy_keeps_homes(g) && p->tokens >= p->ranks)
        diag_hint(x->d, "plan.tokens = equal gives every rank as many");
    else if (p->tokens < p->ranks)
        diag_hint(x->d, "the batch has %llu token%s", (unsigned long long)p->tokens, text_plural(p->tokens));
}

fcp_code advise_idle_ranks(planning *x) {
    const problem *p = x->problem;
    strategy_bare bare;
    fcp_code code = strategy_count_bare(x, &bare);
    if (code) return code;
    const uint32_t idle = bare.idle;
    const bool few = p->block_count < p->ranks; /* else the strategy has no use for more ranks */
    const char *gets = idle == 1 ? "gets" : "get", *plural = p->block_count == 1 ? "" : "s";
    const uint32_t size = few && strategy_of(x)->by_block ? size_for_all(p->tokens, p->ranks) : 0;
    span at = planning_span(x, x->program->at[AT_RANKS]);
    if (bare.helping) warn_helping(x, bare.helping, size);
    if (!idle) return FCP_OK;
    if (few) diag_warning(x->d, at, "%u of %u ranks %s no tokens: the batch has only %u block%s", idle, p->ranks, gets,
                          p->block_count, plural);
    else diag_warning(x->d, at, "%u of %u ranks %s no tokens: %s has no use for more", idle, p->ranks, gets,
                      strategy_names[x->program->strategy]);
    if (size) hint_size(x, size);
    else diag_hint(x->d, "they take part in the plan and compute nothing");
    return FCP_OK;
}
