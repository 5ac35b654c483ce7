/* lower.c: what the passes made, as the tables of a plan.
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
    plan->rounds = rounds;
    plan->rounds_count = count;
    plan->round_starts = starts;
    plan->round_starts_count = FCP_PASSES + 1;
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
    mc_node *mask = ARENA_NEW(memory, mc_node, g->mask.count);
    char *source = arena_copy(memory, g->plan_source, source_size);
    if (!facts || !summary || !cluster || !mask || !source) return FCP_E_NO_MEMORY;
    problem_facts(x, facts);
    *cluster = g->cluster;
    memcpy(mask, g->mask.nodes, g->mask.count * sizeof *mask);
    plan->source = source;
    plan->source_count = source_size;
    plan->problem = x->facts = facts;
    plan->problem_count = 1;
    plan->cluster = cluster;
    plan->cluster_count = 1;
    plan->summary = *out = summary;
    plan->summary_count = 1;
    plan->mask = mask;
    plan->mask_count = g->mask.count;
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
        fcp_shape_rec *own_shapes = ARENA_NEW(&x->memory, fcp_shape_rec, p->shape_count + (size_t)1);
        fcp_run *own_runs = ARENA_NEW(&x->memory, fcp_run, p->run_count + (size_t)1);
        if (!own_shapes || !own_runs) return FCP_E_NO_MEMORY;
        if (p->shape_count) memcpy(own_shapes, p->shapes, p->shape_count * sizeof *own_shapes);
        if (p->run_count) memcpy(own_runs, p->runs, p->run_count * sizeof *own_runs);
        shapes = own_shapes;
        runs = own_runs;
    }
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
    plan->parts = p->parts;
    plan->parts_count = p->part_count;
    plan->visits = x->schedule->visits;
    plan->visits_count = x->schedule->visit_count;
    plan->head_classes = p->head_class;
    plan->head_classes_count = p->class_count ? p->program->heads : 0;
    return FCP_OK;
}

/* The plan has the shapes now, and no pass asks the mask again. So its memory is freed, and the verifier gets it next.
 * Where several plannings ask one mask, it stays. */
static void leave_mask(planning *x, const fcp_plan *plan) {
    if (x->trial || x->kept) return;
    x->problem->shapes = plan->shapes;
    x->problem->runs = plan->runs;
    problem_close_mask(x, &x->cells);
}

/* What takes long: each pass's streams, the tiles, the summary. The backward pass has twice as much of transfers as the
 * forward pass, so the rest is done beside it. */
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
    plan->tiles = b.tiles;
    plan->tiles_count = x->problem->tile_count;
    return FCP_OK;
}

fcp_code lower(planning *x) {
    fcp_plan *plan = calloc(1, sizeof *plan);
    fcp_summary *summary;
    if (!plan) return FCP_E_NO_MEMORY;
    fcp_code code = lower_rounds(x, plan);
    if (!code) code = lower_problem_tables(x, plan);
    if (!code) leave_mask(x, plan);
    if (!code) code = lower_facts(x, plan, &summary);
    if (!code) code = lower_data(x, plan);
    if (!code) code = lower_bulk(x, plan, summary);
    if (code) free(plan);
    else x->plan = plan;
    return code;
}
