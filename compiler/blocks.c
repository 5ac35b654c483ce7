/* blocks.c: how large blocks are, and what to say of blocks that are too large or too few.
 *
 * Requires: a bound batch; for the warnings its problem, and its placement.
 * Gives: x->block, and warnings.
 * Cost: a classification of the batch for each size that is tried.
 */
#include "compiler/blocks.h"

#include "compiler/place/strategies.h"
#include "compiler/problem/problem.h"

enum { BLOCK_DEFAULT = 4096, AUTO_LARGEST = 16384, AUTO_LEAST = 512, AUTO_BLOCKS = 8 };
enum { MOST_BLOCKS = 4096 }; /* sizes below a cell are tried for a warning only where they make fewer */

/* Is one block heavier than the mean rank? Then no placement can balance it while its tiles run at its home. */
static bool is_too_heavy(const planning *x, const problem *p) {
    return strategy_of(x)->by_block && (unsigned __int128)p->heaviest * program_places(x->program) > p->pairs;
}

/* Whether, with blocks of this size, one of them would be too heavy. Leaves x as it is. */
static fcp_code try_size(planning *x, uint32_t block, bool *out_heavy) {
    planning other = *x; /* with cells of its own: a plan keeps the shapes of its own size only */
    other.block = block;
    other.memory = other.work = (arena){.pool = x->work.pool};
    other.cells = NULL;
    fcp_code code = problem_open(&other);
    if (!code) code = strategy_cut(&other);
    if (!code) code = problem_tiles(&other);
    if (!code) *out_heavy = is_too_heavy(&other, other.problem);
    problem_close_mask(&other, &other.cells);
    arena_free(&other.memory);
    arena_free(&other.work);
    x->scratch = other.scratch;
    arena_reset(&x->scratch);
    return code;
}

/* Does computing a tile of two such blocks take at least as long as fetching its KV over the slower fabric?
 * heads block^2 FLOPs of a pair / flops >= block bytes of K and V / bandwidth */
static bool covers_fetch(const struct fcpc_program *g, uint32_t block) {
    uint64_t bandwidth = g->nodes > 1 ? g->cluster.inter : g->cluster.intra;
    const fcp_problem facts = problem_early_facts(g);
    return (unsigned __int128)g->heads * fcp_pair_flops(g->head_dim, g->value_dim, FCP_FORWARD) * block * bandwidth >=
           (unsigned __int128)fcp_slot_bytes(&facts, FCP_KV, FCP_FORWARD) * g->cluster.flops;
}

/* Of the sizes 16K, 8K, ... 512 at which no block is too heavy: the largest that leaves every rank eight blocks to
 * balance with. But if computing one of its tiles does not cover fetching the tile's KV, the smallest size that does.
 * 512 where every size is too heavy. */
fcp_code blocks_choose(planning *x) {
    const struct fcpc_program *g = x->program;
    if (g->block != BLOCK_AUTO) return FCP_OK;
    if (!strategy_of(x)->by_block) {
        x->block = BLOCK_DEFAULT;
        return FCP_OK;
    }
    uint64_t ranks = (uint64_t)g->nodes * g->gpus;
    unsigned __int128 tokens = 0;
    for (size_t i = 0; i < x->count; i++) /* that blocks are made of */
        tokens += x->lengths[i] + (x->queries ? x->queries[i] : 0);
    x->block = AUTO_LEAST;
    for (uint32_t block = AUTO_LARGEST; block >= AUTO_LEAST; block /= 2) {
        if (tokens / block < ranks) continue;
        if (tokens / block > PROBLEM_BLOCKS_MAX) break;
        bool heavy;
        fcp_code code = try_size(x, block, &heavy);
        if (code) return code;
        if (heavy) continue;
        if (x->block > AUTO_LEAST && ranks > 1 && !covers_fetch(g, block)) break;
        x->block = block;
        if (tokens / block >= AUTO_BLOCKS * ranks) break;
    }
    return FCP_OK;
}

/* The next smaller size to try; 0: there is none. */
static uint32_t half(uint32_t block) {
    uint32_t size = block / 2;
    return size < FCP_CELL ? size : size / FCP_CELL * FCP_CELL;
}

fcp_code blocks_warn_heavy(planning *x) {
    const problem *p = x->problem;
    if (strategy_shares_blocks(x)) return FCP_OK;
    if (!is_too_heavy(x, p) || p->block_count < p->ranks) return FCP_OK; /* blocks_warn_idle warns of too few */
    bool heavy = true;
    uint32_t size = p->block;
    const bool slow = problem_is_unstructured(p); /* each size would take as long as planning */
    for (uint32_t next = half(size); heavy && next && !slow; next = half(next)) {
        if (problem_least_blocks(p, next) > (next < FCP_CELL ? (uint64_t)MOST_BLOCKS : PROBLEM_BLOCKS_MAX)) break;
        size = next;
        fcp_code code = try_size(x, size, &heavy);
        if (code) return code;
    }
    const uint64_t pairs = p->pairs ? p->pairs : 1, places = program_places(x->program);
    uint64_t percent = (uint64_t)((unsigned __int128)p->heaviest * places * 100 / pairs);
    diag_warning(x->d, planning_span(x, x->program->block_span),
                 "one block of %u tokens is %llu %% of a rank's fair share of work: no placement can balance it",
                 p->block, (unsigned long long)percent);
    if (!heavy) diag_hint(x->d, "plan.block = %u would do", size);
    else if (size < p->block) diag_hint(x->d, "blocks of %u tokens would be too heavy, too", size);
    return FCP_OK;
}

/* The largest size of blocks at which this many tokens make at least `ranks` blocks; 0: there is none. */
static uint32_t size_for_all(uint64_t tokens, uint32_t ranks) {
    uint64_t size = tokens / ranks;
    return (uint32_t)(size < FCP_CELL ? size : size / FCP_CELL * FCP_CELL);
}

fcp_code blocks_warn_idle(planning *x) {
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
    span at = planning_span(x, x->program->ranks_span);
    if (few) diag_warning(x->d, at, "%u of %u ranks %s no tokens: the batch has only %u block%s", idle, p->ranks, gets,
                          p->block_count, plural);
    else diag_warning(x->d, at, "%u of %u ranks %s no tokens: %s has no use for more", idle, p->ranks, gets,
                      strategy_names[x->program->strategy]);
    uint32_t size = few && strategy_of(x)->by_block ? size_for_all(p->tokens, p->ranks) : 0;
    if (size) diag_hint(x->d, "with plan.block = %u every rank gets some", size);
    else diag_hint(x->d, "they take part in the plan and compute nothing");
    return FCP_OK;
}
