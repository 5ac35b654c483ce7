/* candidates.c: the list of candidates that strategy = auto tries first, before it searches for others.
 *
 * Requires: a program with strategy = auto, and a batch.
 * Gives: report->at: the candidates, in the order in which they are tried. Each line of the table below gives one
 *     candidate, or one for each size of blocks.
 */
#include "compiler/auto/auto.h"

#include <string.h>

/* The candidates, one a line, in the order in which they are tried. A parameter that a line does not set has its usual
 * value.
 *
 * Why these settings:
 *   - A small tolerance is better in most batches: work beyond the mean makes the plan longer, while transfers mostly
 *     run beside computing.
 *   - dcp begins with 0.05. It finds few placements within a smaller tolerance, and these move far too much. Measured
 *     for prolong-256, causal, forward, blocks of 2K: 0.02 takes 9.16 ms, 0.05 takes 8.34 ms, 0.1 takes 9.23 ms.
 *   - dcp with tokens in place has many divisions. Queries and results of much of the work travel then. The results of
 *     one division travel while the next one is computed, so with 24 divisions little is left to be sent at the end.
 *   - Lines with `between` share heads inside nodes; another strategy divides the batch among nodes. There dcp begins
 *     with 0.02: nodes are few, so there are placements within that.
 *   - ring and zigzag send directly: round a ring, one port of a node carries all that leaves the node. They then take
 *     less memory, so that is spare.
 *   - upipe with two buffers takes more memory, and often less time. */
typedef enum where { ANYWHERE, IN_PLACE, CHOSEN } where; /* tokens stay at home, or homes are chosen */
enum { SET = 2 };
static const struct line {
    fcp_strategy strategy;
    where where;
    struct { const char *param; uint32_t value; } set[SET];
    bool spare; /* it needs less memory and seldom wins: effort 1 tries it only if nothing else can be planned */
    /* With blocks of half the size, it has twice as many rounds to a stage. Each round then carries half of the bytes,
     * and a row that is relayed waits a stage for each step of its way. */
    bool longer_stages;
    uint32_t between; /* of strategies that share heads: inside nodes, and BETWEEN(who divides the batch among them) */
} lines[] = {
    {FCP_STRATEGY_FCP},
    {FCP_STRATEGY_CAD, .set = {{"tolerance", 20000}}, .longer_stages = true},
    {FCP_STRATEGY_CAD, .set = {{"tolerance", 100000}}, .longer_stages = true},
    {FCP_STRATEGY_CAD, .set = {{"tolerance", 500000}}, .longer_stages = true},
    {FCP_STRATEGY_FCP, .set = {{"split", 0}}},
    {FCP_STRATEGY_DCP, CHOSEN, {{"epsilon_compute", 50000}}},
    {FCP_STRATEGY_DCP, CHOSEN, {{"epsilon_compute", 20000}}},
    {FCP_STRATEGY_DCP, CHOSEN, {{"epsilon_compute", 100000}}, .spare = true},
    {FCP_STRATEGY_DCP, IN_PLACE, {{"epsilon_compute", 20000}, {"divisions", 24}}},
    {FCP_STRATEGY_DCP, IN_PLACE, {{"epsilon_compute", 50000}, {"divisions", 16}}},
    {FCP_STRATEGY_DCP, IN_PLACE, {{"epsilon_compute", 100000}, {"divisions", 16}}},
    {FCP_STRATEGY_RING, .set = {{"send", RING_DIRECT}, {"coalesce", 16}}},
    {FCP_STRATEGY_ZIGZAG, .set = {{"send", RING_DIRECT}, {"coalesce", 16}}},
    {FCP_STRATEGY_RING, .spare = true},
    {FCP_STRATEGY_ZIGZAG, .spare = true},
    {FCP_STRATEGY_ULYSSES},
    {FCP_STRATEGY_ULYSSES, .between = BETWEEN(FCP_STRATEGY_RING)},
    {FCP_STRATEGY_UPIPE},
    {FCP_STRATEGY_UPIPE, .set = {{"buffers", 2}}},
    {FCP_STRATEGY_UPIPE, .between = BETWEEN(FCP_STRATEGY_RING)},
    {FCP_STRATEGY_ULYSSES, .between = BETWEEN(FCP_STRATEGY_FCP)},
    {FCP_STRATEGY_ULYSSES, CHOSEN, {{"epsilon_compute", 20000}}, .between = BETWEEN(FCP_STRATEGY_DCP)},
    {FCP_STRATEGY_ULYSSES, IN_PLACE, {{"epsilon_compute", 20000}}, .between = BETWEEN(FCP_STRATEGY_DCP)},
    {FCP_STRATEGY_GROUPS, .set = {{"tokens", 1 << 16}}},
    {FCP_STRATEGY_GROUPS, .set = {{"tokens", 1 << 17}}},
};
enum { LINES = sizeof lines / sizeof *lines };
_Static_assert(2 * LINES * AUTO_SIZES <= AUTO_LISTED, "the list has room for all");

/* --- the list ----------------------------------------------------------------------------------------------------- */

/* The sizes of blocks to try: the one that the program states; or three, if it leaves the size open. Returns how
 * many. */
static uint32_t choose_sizes(const auto_job *j, uint32_t out[AUTO_SIZES]) {
    out[AUTO_MIDDLE] = j->program->block;
    if (out[AUTO_MIDDLE] != BLOCK_AUTO) return 1;
    out[AUTO_MIDDLE] = auto_middle_size(j->program, j->batch);
    out[AUTO_TWICE] = out[AUTO_MIDDLE] * 2;
    out[AUTO_HALF] = out[AUTO_MIDDLE] / 2;
    return AUTO_SIZES;
}

bool auto_keeps_homes(const auto_job *j, const auto_candidate *c) {
    struct fcpc_program settings;
    auto_apply(j->program, c, &settings);
    return strategy_keeps_homes(&settings);
}

/* Does the program state this parameter? Then no candidate changes it. */
static bool is_stated(const struct fcpc_program *g, const char *param) {
    if (!strcmp(param, "buffers")) return g->buffers;
    return g->coalesce && (!strcmp(param, "coalesce") || !strcmp(param, "divisions"));
}

static void set_param(auto_candidate *c, const struct fcpc_program *g, const char *param, uint32_t value) {
    if (is_stated(g, param)) return;
    c->set[c->settings++] = (auto_setting){strategy_find_param(auto_divides_by(c), param), value};
}

/* Makes the candidate of line l with blocks of size[n]. */
static auto_candidate make_candidate(const auto_job *j, uint32_t l, const uint32_t *size, uint32_t n) {
    const struct fcpc_program *g = j->program;
    const bool has_ring = program_between(lines[l].between) == BETWEEN_KEYS;
    auto_candidate made = {.strategy = lines[l].strategy, .line = l,
                           .even = strategy_facts_of[lines[l].strategy].even, .between = lines[l].between,
                           .end = has_ring && g->nodes > LONG_RING ? AUTO_LONG : AUTO_FAR};
    for (int i = 0; i < SET && lines[l].set[i].param; i++)
        set_param(&made, g, lines[l].set[i].param, lines[l].set[i].value);
    const uint32_t times = g->block == BLOCK_AUTO && auto_has_groups(&made) ? JOINED_TIMES : 1;
    if (strategy_named(auto_divides_by(&made))->by_block) made.block = size[n] * times, made.size = (auto_size)n;
    if (lines[l].longer_stages && n == AUTO_HALF)
        set_param(&made, g, "coalesce", 2 * auto_value(g, &made, strategy_find_param(made.strategy, "coalesce")));
    return made;
}

fcp_code auto_list(auto_job *j, uint32_t more, uint32_t *out_middle) {
    auto_report *r = j->report;
    uint32_t size[AUTO_SIZES];
    const uint32_t sizes = choose_sizes(j, size);
    *out_middle = size[AUTO_MIDDLE];
    r->at = ARENA_ZNEW(&r->memory, auto_candidate, 2 * LINES * AUTO_SIZES + more); /* 2: a partner for each */
    if (!r->at) return FCP_E_NO_MEMORY;
    const bool stated = j->program->layout != FCP_LAYOUT_PLANNED;
    uint32_t first = 0;                        /* of those that are listed last */
    for (uint32_t i = 0; i < 2 * LINES; i++) { /* who leaves tokens at home comes first with a layout, else last */
        const uint32_t l = i % LINES;
        if (i == LINES) first = r->count;
        const auto_candidate of = make_candidate(j, l, size, 0);
        const bool keeps = auto_keeps_homes(j, &of);
        if (!(j->program->among >> of.strategy & j->program->among >> auto_divides_by(&of) & 1)) continue;
        if ((keeps == stated) != (i < LINES)) continue;
        if (lines[l].where && keeps != (lines[l].where == IN_PLACE)) continue;
        if (of.between && j->program->nodes == 1) continue; /* the same as without */
        if (auto_has_groups(&of) && j->program->gpus == 1) continue; /* the same as the strategy between groups */
        for (uint32_t n = 0; n < (of.block ? sizes : 1); n++) {
            if (n == AUTO_HALF && auto_has_groups(&of)) break; /* they make many tiles, and never gained */
            r->at[r->count++] = make_candidate(j, l, size, n);
        }
    }
    auto_order(j, 0, first);
    auto_order(j, first, r->count);
    return FCP_OK;
}

bool auto_is_spare(const auto_candidate *c) { return lines[c->line].spare; }
