/* layer.c: predicts how long a layer takes: its linear layers, then its attention.
 *
 * Example: two ranks hold 3000 and 5000 tokens, and a token takes 0.1 us. Rank 1 sends its keys after 500 us, and rank 0
 * has been waiting for them since 300 us.
 *
 * A model has many layers, one behind the other. What is predicted is the time that one more of them adds, because in a
 * row of layers ranks need not begin together: a rank whose results are there begins with its next linear layers, while
 * others still wait. So three layers are walked through, each from the times at which ranks ended the one before, and
 * the answer is by how much the third ends after the second; or what the busiest rank computes, if that is more, because
 * it will fall behind in the end.
 *
 * Two halves. If the plan moves in two halves, each rank has the tokens that it sends in the first half ("early") in
 * its linear layers first. They travel while the rest of its tokens are in theirs. At the end the results of early
 * tokens are there first, and their next linear layers run while the results of the others return. DistCA calls this
 * ping-pong:
 *
 *     computing   linear, early | linear, rest | attention .............. | linear, early | ...
 *     network                   | early go     | rest go    | early return | rest return  |
 *
 * If tokens are elsewhere in the caller's layout than in the plan's, nothing is early.
 *
 * Requires: a verified plan. Gives: sim_pass.linear and .layer. Cost: three walks over the pass.
 * Source: "Core attention disaggregation" (DistCA, 2025), for the two halves; the rest is our own.
 */
#include "compiler/simulate/pass_times.h"

#include "runtime/base/saturate.h"
#include "runtime/plan/layout.h"

enum { ROW = 3 };

/* What the linear layers of a rank take: of its early tokens, and of the others. */
typedef struct linear {
    uint64_t early, rest;
} linear;

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bool is_result(const fcp_transfer *t) {
    return t->dir == FCP_RECV && t->cls != FCP_KV && t->cls != FCP_Q && t->cls != FCP_IN;
}

/* Finds the blocks that leave their home in the first half. False: the caller holds tokens elsewhere. */
static bool find_early(const sim_model *m, bool *early) {
    const fcp_plan *plan = m->plan;
    const uint32_t second = fcp_second_stage(plan);
    for (uint32_t r = 0; second && r < plan->problem->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, m->pass, r, FCP_COMM);
        for (const fcp_instr *x = &plan->instrs[s->first]; x < &plan->instrs[s->first + s->count]; x++)
            for (uint32_t t = x->a; x->op == FCP_OP_LAUNCH && t < x->a + x->b; t++) {
                const fcp_transfer *moved = &plan->transfers[t];
                const bool leaves = (moved->cls == FCP_KV || moved->cls == FCP_Q) && moved->dir == FCP_SEND;
                if (moved->cls == FCP_IN || moved->cls == FCP_OUT) return false;
                if (leaves && x->stage < second && plan->blocks[moved->block].home == r) early[moved->block] = true;
            }
    }
    return second != 0;
}

/* The last launch of a rank that brings a result of an early block home. */
static uint32_t last_result(const sim_model *m, uint32_t rank, const bool *early) {
    const fcp_plan *plan = m->plan;
    const fcp_stream *s = fcp_stream_of(plan, m->pass, rank, FCP_COMM);
    for (uint32_t i = s->first + s->count; i-- > s->first;) {
        const fcp_instr *x = &plan->instrs[i];
        for (uint32_t t = x->a; x->op == FCP_OP_LAUNCH && t < x->a + x->b; t++)
            if (is_result(&plan->transfers[t]) && early[plan->transfers[t].block] &&
                plan->blocks[plan->transfers[t].block].home == rank)
                return i;
    }
    return FCP_NONE;
}

/* When the first rank can begin. */
static uint64_t earliest(const sim_begin *begin, uint32_t ranks) {
    uint64_t start = begin[0].first;
    for (uint32_t r = 1; r < ranks; r++)
        if (begin[r].first < start) start = begin[r].first;
    return start;
}

fcp_code sim_layer(const sim_model *m, const sim_rounds *rounds, const sim_options *options, sim_pass *out,
                   arena *scratch, arena *walks) {
    const fcp_plan *plan = m->plan;
    const fcp_problem *p = plan->problem;
    const sim_options unwatched = {.stop = options->stop};
    const uint64_t each = options->linear[m->pass];
    sim_begin *begin = arena_zalloc(scratch, p->ranks, sizeof *begin, _Alignof(sim_begin));
    linear *of = arena_zalloc(scratch, p->ranks, sizeof *of, _Alignof(linear));
    sim_rank *ranks = ARENA_NEW(scratch, sim_rank, p->ranks);
    bool *early = ARENA_ZNEW(scratch, bool, plan->blocks_count + (size_t)1);
    if (!begin || !of || !ranks || !early) return FCP_E_NO_MEMORY;
    const bool halves = find_early(m, early);
    for (uint64_t b = 0; b < plan->blocks_count && halves; b++)
        if (early[b] && plan->blocks[b].holds & FCP_HOLDS_Q)
            of[plan->blocks[b].home].early =
                fcp_plus(of[plan->blocks[b].home].early, fcp_times(each, plan->blocks[b].tokens));
    for (uint32_t r = 0; r < p->ranks; r++) {
        const uint64_t all = fcp_times(each, fcp_side_tokens(plan, FCP_QUERIES, r));
        if (all > out->linear) out->linear = all;
        of[r].rest = all - of[r].early;
        begin[r].last_of_first = halves ? last_result(m, r, early) : FCP_NONE;
    }
    /* no sum of times may overflow */
    if (((m->total + rounds->total + out->linear) * ROW) >> 62) return FCP_E_PROFILE;
    uint64_t ends[ROW], base = 0;
    for (int layer = 0; layer < ROW; layer++) {
        const uint64_t start = earliest(begin, p->ranks); /* the walk counts from there */
        base += start;
        for (uint32_t r = 0; r < p->ranks; r++) {
            sim_begin *b = &begin[r];
            const uint64_t first = b->first - start + of[r].early, all = later(first, b->all - start) + of[r].rest;
            *b = (sim_begin){.compute = all, .moves = {first, all}, .last_of_first = b->last_of_first};
            ranks[r] = (sim_rank){0};
        }
        fcp_code code = sim_walk(m, rounds, false, &unwatched, begin, ranks, &ends[layer], walks);
        arena_reset(walks);
        if (code) return code;
        ends[layer] += base;
    }
    out->layer = ends[ROW - 1] - ends[ROW - 2];
    for (uint32_t r = 0; r < p->ranks; r++) out->layer = later(out->layer, ranks[r].compute + of[r].early + of[r].rest);
    return FCP_OK;
}
