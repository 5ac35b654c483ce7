/* mask_data.c: copies into the plan what the program's mask and score read: score, sinks, fields, tables and slices.
 *
 * Requires: a bound batch. Gives: these sections of the plan. Cost: linear in their bytes.
 */
#include <string.h>

#include "compiler/lower/lower.h"

static const mc_node *copy_code(mc_code code, arena *memory) {
    mc_node *nodes = ARENA_NEW(memory, mc_node, code.count + (size_t)1);
    if (nodes && code.count) memcpy(nodes, code.nodes, code.count * sizeof *nodes);
    return nodes;
}

static fcp_code lower_slices(const struct fcpc_program *g, arena *memory, fcp_plan *plan) {
    uint32_t rows = 0, bands = 0;
    for (uint32_t i = 0; i < g->slices_count; i++) rows += g->slices[i].row_count, bands += g->slices[i].band_count;
    fcp_slices *slices = ARENA_NEW(memory, fcp_slices, g->slices_count + (size_t)1);
    mc_band_rows *all_rows = ARENA_NEW(memory, mc_band_rows, rows + (size_t)1);
    mc_band *all_bands = ARENA_NEW(memory, mc_band, bands + (size_t)1);
    if (!slices || !all_rows || !all_bands) return FCP_E_NO_MEMORY;
    rows = bands = 0;
    for (uint32_t i = 0; i < g->slices_count; i++) {
        const mc_bands *s = &g->slices[i];
        slices[i] = (fcp_slices){rows, s->row_count, bands, s->band_count};
        memcpy(all_rows + rows, s->rows, s->row_count * sizeof *all_rows);
        if (s->band_count) memcpy(all_bands + bands, s->bands, s->band_count * sizeof *all_bands);
        rows += s->row_count;
        bands += s->band_count;
    }
    plan->slices = slices;
    plan->slices_count = g->slices_count;
    plan->band_rows = all_rows;
    plan->band_rows_count = rows;
    plan->bands = all_bands;
    plan->bands_count = bands;
    return FCP_OK;
}

fcp_code lower_data(planning *x, fcp_plan *plan) {
    const struct fcpc_program *g = x->program;
    const binding *b = x->binding;
    arena *memory = &x->memory;
    plan->score = copy_code(g->score, memory);
    plan->score_count = g->score.count;
    plan->slope = copy_code(g->slope, memory);
    plan->slope_count = g->slope.count;
    double *sink = ARENA_NEW(memory, double, g->heads);
    if (!plan->score || !plan->slope || !sink) return FCP_E_NO_MEMORY;
    if (g->sink) memcpy(sink, g->sink, g->heads * sizeof *sink);
    plan->sink = sink;
    plan->sink_count = g->sink ? g->heads : 0;
    if (b && b->records) { /* in the plan's memory already: problem/bind.c */
        plan->names = b->names;
        plan->names_count = b->names_size;
        plan->arrays = b->records;
        plan->arrays_count = g->array_count;
        plan->data = b->data;
        plan->data_count = b->data_size;
    }
    return lower_slices(g, memory, plan);
}
