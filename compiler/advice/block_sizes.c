/* block_sizes.c: warnings about blocks: one is too heavy for any rank, or there are fewer of them than ranks.
 *
 * Requires: blocks and tiles; to warn of idle ranks, the placement.
 * Gives: warnings, with a size of blocks that would do.
 * Cost: finding the tiles again for each smaller size that is tried, and placing them for a setting that gives ranks
 *     tokens.
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

/* The size of blocks, of whole cells if one will do, at which this many tokens make at least `ranks` blocks; 0: there
 * is none. */
static uint32_t size_for_all(uint64_t tokens, uint32_t ranks) {
    uint64_t size = tokens / ranks;
    if (size < FCP_CELL && ranks > 1 && (tokens - 1) / (ranks - 1) >= FCP_CELL) return FCP_CELL; /* the last is short */
    return (uint32_t)(size < FCP_CELL ? size : size / FCP_CELL * FCP_CELL);
}

/* Finds out whether every rank would get tokens with blocks of this size, or with tokens = equal. */
static fcp_code try_fill(planning *x, uint32_t block, bool equal, bool *out_fills) {
    struct fcpc_program changed = *x->program;
    planning other = *x;
    strategy_bare bare = {0};
    fcpc_diagnostics *unheard = fcpc_diagnostics_new();
    if (!unheard) return FCP_E_NO_MEMORY;
    changed.equal |= equal;
    other.program = &changed;
    other.block = block;
    other.d = unheard;
    fcp_code code = advise_plan_again(x, &other, problem_check_time, strategy_place);
    *out_fills = !code && !(code = strategy_count_bare(&other, &bare)) && !bare.idle && !bare.helping;
    advise_end_again(x, &other);
    fcpc_diagnostics_free(unheard);
    return code == FCP_E_NO_MEMORY || code == FCP_E_INTERRUPTED ? code : FCP_OK;
}

/* Says what would give every rank some tokens: blocks of another size, or else tokens = equal. If the program leaves
 * the size open (block = auto), it says why that is not chosen: sizes below a cell are not tried, because kernels
 * compute whole cells, and a larger one was too slow (compiler/auto/sizes.c). Homes that are given, and strategies that
 * auto has found, are not tried again. *out_hinted: something was said. */
static fcp_code hint_filled(planning *x, bool *out_hinted) {
    const problem *p = x->problem;
    const struct fcpc_program *g = x->program;
    const bool few = p->block_count < p->ranks && strategy_of(x)->by_block;
    const uint32_t size = few ? size_for_all(p->tokens, p->ranks) : 0;
    const bool again = !x->strategy && !g->strategy_found && !problem_is_unstructured(p);
    const char *why = !g->block_found   ? ""
                      : size < FCP_CELL ? "; block = auto tries none below 128, as kernels compute so much at a time"
                                        : "; block = auto has not chosen it, as the plan would be slower";
    bool fills = false;
    fcp_code code = FCP_OK;
    if (again && size) code = try_fill(x, size, false, &fills);
    if (fills) diag_hint(x->d, "with plan.block = %u every rank gets some%s", size, why);
    *out_hinted = fills;
    if (code || fills || !again || g->equal || g->servers || g->layout != FCP_LAYOUT_PLANNED) return code;
    code = try_fill(x, x->block, true, &fills);
    if (fills) diag_hint(x->d, "with plan.tokens = equal every rank gets as many");
    *out_hinted = fills;
    return code;
}

fcp_code advise_idle_ranks(planning *x) {
    const problem *p = x->problem;
    strategy_bare bare;
    bool hinted;
    fcp_code code = strategy_count_bare(x, &bare);
    if (code || (!bare.idle && !bare.helping)) return code;
    const uint32_t bare_ranks = bare.idle + bare.helping;
    text said = {0};
    text_printf(&said, "%u of %u ranks get%s no tokens", bare_ranks, p->ranks, bare_ranks == 1 ? "s" : "");
    if (!bare.idle) text_printf(&said, ", and only compute%s for others", bare_ranks == 1 ? "s" : "");
    else if (p->block_count < p->ranks) /* else the strategy has no use for more ranks */
        text_printf(&said, ": the batch has only %u block%s", p->block_count, text_plural(p->block_count));
    else text_printf(&said, ": %s has no use for more", strategy_names[x->program->strategy]);
    if (bare.idle && bare.helping)
        text_printf(&said, "; %u of them compute%s for others", bare.helping, bare.helping == 1 ? "s" : "");
    code = said.failed ? FCP_E_NO_MEMORY : FCP_OK;
    if (!code) diag_warning(x->d, planning_span(x, x->program->at[AT_RANKS]), "%.*s", (int)said.size, said.at);
    text_free(&said);
    if (!code) code = hint_filled(x, &hinted);
    if (code || hinted) return code;
    if (x->program->strategy_found)
        diag_hint(x->d, "strategy = auto has found it: of the plans that were tried it is predicted to be fastest");
    else diag_hint(x->d, "they take part in the plan%s", bare.helping ? "" : " and compute nothing");
    return FCP_OK;
}
