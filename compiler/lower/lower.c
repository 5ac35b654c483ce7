/* lower.c: what the passes made, as the tables of a plan.
 *
 * Requires: x->slots and everything before it; rounds.
 * Gives: x->plan, whose tables are in x->memory; the caller makes the plan own that arena (workspace_own).
 * Cost: linear in the plan.
 */
#include "compiler/lower/lower.h"

#include <stdlib.h>
#include <string.h>

static fcp_code lower_tiles(planning *x, fcp_plan *plan) {
    const problem *p = x->problem;
    const schedule *s = x->schedule;
    const slots *places = x->slots;
    fcp_tile *tiles = ARENA_NEW(&x->memory, fcp_tile, p->tile_count + (size_t)1);
    if (!tiles) return FCP_E_NO_MEMORY;
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
    plan->tiles = tiles;
    plan->tiles_count = p->tile_count;
    plan->parts = p->parts;
    plan->parts_count = p->part_count;
    plan->visits = s->visits;
    plan->visits_count = s->visit_count;
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
    plan->rounds = rounds;
    plan->rounds_count = count;
    plan->round_starts = starts;
    plan->round_starts_count = FCP_PASSES + 1;
    return FCP_OK;
}

/* Problem, cluster, summary, source and mask. */
static fcp_code lower_facts(planning *x, fcp_plan *plan) {
    const struct fcpc_program *g = x->program;
    arena *memory = &x->memory;
    size_t source_size = strlen(g->plan_source);
    fcp_problem *facts = ARENA_ZNEW(memory, fcp_problem, 1);
    fcp_summary *summary = ARENA_ZNEW(memory, fcp_summary, 1);
    fcp_cluster *cluster = ARENA_ZNEW(memory, fcp_cluster, 1);
    mc_node *mask = ARENA_NEW(memory, mc_node, g->mask.count);
    char *source = arena_copy(memory, g->plan_source, source_size);
    if (!facts || !summary || !cluster || !mask || !source) return FCP_E_NO_MEMORY;
    problem_facts(x, facts);
    *cluster = g->cluster;
    memcpy(mask, g->mask.nodes, g->mask.count * sizeof *mask);
    plan->source = source;
    plan->source_count = source_size;
    plan->problem = facts;
    plan->problem_count = 1;
    plan->cluster = cluster;
    plan->cluster_count = 1;
    plan->summary = summary;
    plan->summary_count = 1;
    plan->mask = mask;
    plan->mask_count = g->mask.count;
    return lower_summary(x, facts, summary);
}

/* Sequences, pieces, blocks, shapes and runs. */
static fcp_code lower_problem_tables(planning *x, fcp_plan *plan) {
    const problem *p = x->problem;
    fcp_sequence *sequences = ARENA_NEW(&x->memory, fcp_sequence, p->sequences);
    fcp_shape_rec *shapes = ARENA_NEW(&x->memory, fcp_shape_rec, p->shape_count + (size_t)1);
    fcp_run *runs = ARENA_NEW(&x->memory, fcp_run, p->run_count + (size_t)1);
    if (!sequences || !shapes || !runs) return FCP_E_NO_MEMORY;
    if (p->program->layout != FCP_LAYOUT_PLANNED) {
        plan->deals = p->rule.deals;
        plan->deals_count = p->rule.deal_count;
    }
    plan->heads = p->heads;
    plan->heads_count = p->head_count;
    for (uint32_t b = 0; b < p->block_count; b++) {
        p->blocks[b].home = x->placement->home[b];
        p->blocks[b].home_slot = x->slots->home_slot[b];
        p->blocks[b].flags = x->traffic->maker && x->traffic->maker[b] != FCP_NONE ? FCP_BLOCK_WHOLE : 0;
    }
    for (uint32_t s = 0; s < p->sequences; s++)
        sequences[s] = (fcp_sequence){p->queries[s], p->lengths[s], problem_q_first(p, s)};
    if (p->shape_count) memcpy(shapes, p->shapes, p->shape_count * sizeof *shapes);
    if (p->run_count) memcpy(runs, p->runs, p->run_count * sizeof *runs);
    plan->sequences = sequences;
    plan->sequences_count = p->sequences;
    plan->pieces = p->pieces;
    plan->pieces_count = p->piece_count;
    plan->blocks = p->blocks;
    plan->blocks_count = p->block_count;
    plan->shapes = shapes;
    plan->shapes_count = p->shape_count;
    plan->runs = runs;
    plan->runs_count = p->run_count;
    plan->head_classes = p->head_class;
    plan->head_classes_count = p->class_count ? p->program->heads : 0;
    return FCP_OK;
}

fcp_code lower(planning *x) {
    fcp_plan *plan = calloc(1, sizeof *plan);
    if (!plan) return FCP_E_NO_MEMORY;
    fcp_code code = lower_tiles(x, plan);
    if (!code) code = lower_streams(x, plan);
    if (!code) code = lower_rounds(x, plan);
    if (!code) code = lower_problem_tables(x, plan);
    if (!code) code = lower_facts(x, plan);
    if (!code) code = lower_data(x, plan);
    if (code) free(plan);
    else x->plan = plan;
    return code;
}
