/* problem_record.c: fills the PROBLEM record of a plan (runtime/plan/FORMAT.md). */
#include "compiler/problem/problem.h"

fcp_problem problem_early_facts(const struct fcpc_program *g) {
    return (fcp_problem){.ranks = g->nodes * g->gpus,
                         .nodes = g->nodes,
                         .gpus = g->gpus,
                         .heads = g->heads,
                         .kv_heads = g->kv_heads,
                         .head_dim = g->head_dim,
                         .value_dim = g->value_dim,
                         .values_in_keys = g->values_in_keys,
                         .lse_gradient = g->lse_gradient,
                         .range_kv = g->kv_heads,
                         .range_sub = g->heads / g->kv_heads,
                         .dtype = (uint16_t)g->dtype,
                         .wire = (uint16_t)g->wire,
                         .margin = g->margin,
                         .documents = g->documents};
}

void problem_facts(const planning *x, fcp_problem *out) {
    const problem *p = x->problem;
    const struct fcpc_program *g = p->program;
    *out = problem_early_facts(g);
    out->range_kv = p->range_kv;
    out->range_sub = p->range_sub;
    out->layout = g->layout;
    out->layout_group = program_layout_group(g);
    out->strategy = g->strategy;
    out->topology = g->topology;
    out->block = p->block;
    out->max_block = p->max_block[FCP_KEYS];
    out->max_q_block = p->max_block[FCP_QUERIES];
    out->unit = p->unit;
    out->coalesce = x->coalesce;
    out->buffers = g->buffers;
    out->deterministic = g->deterministic;
    out->mask_uses = mc_uses(g->mask);
    out->align = p->queries != p->lengths ? g->align : FCP_BOTTOM_RIGHT;
    out->tokens = p->tokens;
    out->key_tokens = p->key_tokens;
    out->memory_cap = g->memory_cap;
    out->scale = g->scale;
    for (int pass = 0; pass < FCP_PASSES; pass++) out->passes |= (uint32_t)g->passes[pass] << pass;
}
