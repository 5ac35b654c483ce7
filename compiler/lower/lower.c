/* lower.c: writes what the passes decided as the tables of a plan.
 *
 * Requires: x->slots and everything before it; rounds.
 * Gives: x->plan, whose tables are in x->memory; the caller makes the plan own that arena (workspace_own).
 * Cost: linear in the plan.
 */
#include "compiler/lower/lower.h"
#include "compiler/planning/pair.h"

#include <stdlib.h>
#include <string.h>

static fcp_code lower_tiles(planning *x, fcp_tile *tiles) {
    const problem *p = x->problem;
    const schedule *s = x->schedule;
    const slots *places = x->slots;
    bool backward = p->program->passes[FCP_BACKWARD];
    for (uint32_t v = 0; v < s->visit_count; v++) {
        const fcp_visit *visit = &s->visits[v];
        if (planning_stopped_at(x, v)) return FCP_E_INTERRUPTED;
        for (uint32_t i = visit->first_tile; i < visit->first_tile + visit->tiles; i++) {
            uint32_t t = s->order[i], k = p->tile_k[t], f = x->traffic->tile_kv[t], part = p->tile_part[t];
            bool home = f == FCP_NONE;
            tiles[i] = (fcp_tile){.q_block = visit->q_block, .k_block = k, .first_part = part,
                                  .parts = p->tile_part[t + 1] - part,
                                  .kv_slot = home ? places->home_slot[k] : places->held[f],
                                  .dkv_slot = !backward ? FCP_NONE
                                              : home    ? places->home_slot[k]
                                                        : places->back[FCP_BACKWARD].from[f],
                                  .pairs = p->tile_pairs[t]};
        }
    }
    return FCP_OK;
}

/* Rounds of both passes, one after the other. */
static fcp_code lower_rounds(planning *x, fcp_plan *plan) {
    size_t count = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (x->program->passes[pass]) count += x->schedule->pass[pass].round_count;
    if (count >= UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    fcp_round *rounds = ARENA_NEW(&x->memory, fcp_round, count + 1);
    uint32_t *starts = ARENA_ZNEW(&x->memory, uint32_t, FCP_PASSES + 1);
    if (!rounds || !starts) return FCP_E_NO_MEMORY;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const pass_schedule *ps = &x->schedule->pass[pass];
        starts[pass + 1] = starts[pass];
        if (!x->program->passes[pass] || !ps->round_count) continue;
        memcpy(rounds + starts[pass], ps->rounds, ps->round_count * sizeof *rounds);
        starts[pass + 1] += ps->round_count;
    }
    PLAN_TABLE(plan, rounds, rounds, count);
    PLAN_TABLE(plan, round_starts, starts, FCP_PASSES + 1);
    return FCP_OK;
}

/* Problem, cluster, source and mask; room for the summary. */
static fcp_code lower_facts(planning *x, fcp_plan *plan, fcp_summary **out) {
    const struct fcpc_program *g = x->program;
    arena *memory = &x->memory;
    size_t source_size = strlen(g->plan_source);
    fcp_problem *facts = ARENA_ZNEW(memory, fcp_problem, 1);
    fcp_summary *summary = ARENA_ZNEW(memory, fcp_summary, 1);
    fcp_cluster *cluster = ARENA_ZNEW(memory, fcp_cluster, 1);
    mc_node *mask = lower_copy(memory, g->mask.nodes, g->mask.count, sizeof *mask);
    char *source = arena_copy(memory, g->plan_source, source_size);
    if (!facts || !summary || !cluster || !mask || !source) return FCP_E_NO_MEMORY;
    problem_facts(x, facts);
    *cluster = g->cluster;
    PLAN_TABLE(plan, source, source, source_size);
    PLAN_TABLE(plan, problem, x->facts = facts, 1);
    PLAN_TABLE(plan, cluster, cluster, 1);
    PLAN_TABLE(plan, summary, *out = summary, 1);
    PLAN_TABLE(plan, mask, mask, g->mask.count);
    return FCP_OK;
}

/* Sequences, pieces, blocks, shapes and runs, parts and visits. */
static fcp_code lower_problem_tables(planning *x, fcp_plan *plan) {
    const problem *p = x->problem;
    fcp_sequence *sequences = ARENA_NEW(&x->memory, fcp_sequence, p->sequences);
    const fcp_shape_rec *shapes = p->shapes;
    const fcp_run *runs = p->runs;
    if (!sequences) return FCP_E_NO_MEMORY;
    if (!x->trial) { /* a candidate's plan does not outlive its planning */
        shapes = lower_copy(&x->memory, shapes, p->shape_count, sizeof *shapes);
        runs = lower_copy(&x->memory, runs, p->run_count, sizeof *runs);
        if (!shapes || !runs) return FCP_E_NO_MEMORY;
    }
    if (p->program->layout != FCP_LAYOUT_PLANNED) {
        PLAN_TABLE(plan, deals, p->rule.deals, p->rule.deal_count);
    }
    PLAN_TABLE(plan, heads, p->heads, p->head_count);
    for (uint32_t b = 0; b < p->block_count; b++) {
        p->blocks[b].home = x->placement->home[b];
        p->blocks[b].home_slot = x->slots->home_slot[b];
        p->blocks[b].flags = x->traffic->maker && x->traffic->maker[b] != FCP_NONE ? FCP_BLOCK_WHOLE : 0;
    }
    for (uint32_t s = 0; s < p->sequences; s++)
        sequences[s] = (fcp_sequence){p->queries[s], p->lengths[s], problem_q_first(p, s)};
    PLAN_TABLE(plan, sequences, sequences, p->sequences);
    PLAN_TABLE(plan, pieces, p->pieces, p->piece_count);
    PLAN_TABLE(plan, blocks, p->blocks, p->block_count);
    PLAN_TABLE(plan, shapes, shapes, p->shape_count);
    PLAN_TABLE(plan, runs, runs, p->run_count);
    PLAN_TABLE(plan, parts, p->parts, p->part_count);
    PLAN_TABLE(plan, visits, x->schedule->visits, x->schedule->visit_count);
    PLAN_TABLE(plan, head_classes, p->head_class, p->class_count ? p->program->heads : 0);
    return FCP_OK;
}

/* Frees the object that answered for the mask, unless other plannings use it. The plan has copies of its shapes, and no
 * later pass asks it, so the verifier can use its memory. */
static void close_mask(planning *x, const fcp_plan *plan) {
    if (x->trial || x->kept) return;
    x->problem->shapes = plan->shapes;
    x->problem->runs = plan->runs;
    problem_close_mask(x, &x->cells);
}

/* What takes long, for two threads: one writes the streams of the backward pass, which has twice as many transfers; the
 * other writes those of the forward pass, the tiles and the summary. */
typedef struct bulk {
    lower_streams *streams;
    fcp_tile *tiles;
    const fcp_problem *facts;
    fcp_summary *summary;
} bulk;

static fcp_code lower_ahead(planning *x, void *given) {
    bulk *b = given;
    fcp_code code = lower_pass(x, b->streams, FCP_FORWARD);
    if (!code) code = lower_tiles(x, b->tiles);
    return code ? code : lower_summary(x, b->facts, b->summary);
}

static fcp_code lower_back(planning *x, void *given) {
    bulk *b = given;
    return x->program->passes[FCP_BACKWARD] ? lower_pass(x, b->streams, FCP_BACKWARD) : FCP_OK;
}

static fcp_code lower_bulk(planning *x, fcp_plan *plan, fcp_summary *summary) {
    bulk b = {.tiles = ARENA_NEW(&x->memory, fcp_tile, x->problem->tile_count + (size_t)1), .facts = plan->problem,
              .summary = summary};
    fcp_code code = b.tiles ? lower_open_streams(x, &b.streams) : FCP_E_NO_MEMORY;
    const bool large = x->traffic->units >= PAIR_FROM && x->program->passes[FCP_BACKWARD];
    if (!code) code = pair_make(x, large, (pair_piece){lower_back, &b}, (pair_piece){lower_ahead, &b});
    if (code) return code;
    lower_join_passes(x, b.streams, plan);
    PLAN_TABLE(plan, tiles, b.tiles, x->problem->tile_count);
    return FCP_OK;
}

fcp_code lower(planning *x) {
    fcp_plan *plan = calloc(1, sizeof *plan);
    fcp_summary *summary;
    if (!plan) return FCP_E_NO_MEMORY;
    fcp_code code = lower_rounds(x, plan);
    if (!code) code = lower_problem_tables(x, plan);
    if (!code) close_mask(x, plan);
    if (!code) code = lower_facts(x, plan, &summary);
    if (!code) code = lower_data(x, plan);
    if (!code) code = lower_bulk(x, plan, summary);
    if (code) free(plan);
    else x->plan = plan;
    return code;
}
