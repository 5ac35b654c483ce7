/* facts.c: the plan's problem record.
 *
 * Requires: a problem with its blocks measured (tiles.c).
 */
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
                         .margin = g->margin};
}

void problem_facts(const planning *x, fcp_problem *out) {
    const problem *p = x->problem;
    const struct fcpc_program *g = p->program;
    *out = (fcp_problem){.ranks = p->ranks,
                         .nodes = g->nodes,
                         .gpus = g->gpus,
                         .heads = g->heads,
                         .kv_heads = g->kv_heads,
                         .head_dim = g->head_dim,
                         .value_dim = g->value_dim,
                         .values_in_keys = g->values_in_keys,
                         .lse_gradient = g->lse_gradient,
                         .range_kv = p->range_kv,
                         .range_sub = p->range_sub,
                         .dtype = (uint16_t)g->dtype,
                         .wire = (uint16_t)g->wire,
                         .layout = g->layout,
                         .layout_group = program_layout_group(g),
                         .strategy = g->strategy,
                         .topology = g->topology,
                         .block = p->block,
                         .max_block = p->max_block[FCP_KEYS],
                         .max_q_block = p->max_block[FCP_QUERIES],
                         .unit = p->unit,
                         .coalesce = x->coalesce,
                         .buffers = g->buffers,
                         .margin = g->margin,
                         .deterministic = g->deterministic,
                         .mask_uses = mc_uses(g->mask),
                         .align = p->queries != p->lengths ? g->align : FCP_BOTTOM_RIGHT,
                         .tokens = p->tokens,
                         .key_tokens = p->key_tokens,
                         .memory_cap = g->memory_cap,
                         .scale = g->scale};
    for (int pass = 0; pass < FCP_PASSES; pass++) out->passes |= (uint32_t)g->passes[pass] << pass;
}
