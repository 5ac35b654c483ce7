/* mask_data.c: copies into the plan what the program's mask and score read: score, sinks, fields, tables and slices.
 *
 * Requires: a bound batch. Gives: these sections of the plan. Cost: linear in their bytes.
 */
#include <string.h>

#include "compiler/lower/lower.h"

void *lower_copy(arena *memory, const void *rows, size_t count, size_t size) {
    void *copy = arena_alloc(memory, count + 1, size, _Alignof(uint64_t));
    if (copy && count) memcpy(copy, rows, count * size);
    return copy;
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
    PLAN_TABLE(plan, slices, slices, g->slices_count);
    PLAN_TABLE(plan, band_rows, all_rows, rows);
    PLAN_TABLE(plan, bands, all_bands, bands);
    return FCP_OK;
}

fcp_code lower_data(planning *x, fcp_plan *plan) {
    const struct fcpc_program *g = x->program;
    const binding *b = x->binding;
    arena *memory = &x->memory;
    PLAN_TABLE(plan, score, lower_copy(memory, g->score.nodes, g->score.count, sizeof(mc_node)), g->score.count);
    PLAN_TABLE(plan, slope, lower_copy(memory, g->slope.nodes, g->slope.count, sizeof(mc_node)), g->slope.count);
    double *sink = ARENA_NEW(memory, double, g->heads);
    if (!plan->score || !plan->slope || !sink) return FCP_E_NO_MEMORY;
    if (g->sink) memcpy(sink, g->sink, g->heads * sizeof *sink);
    PLAN_TABLE(plan, sink, sink, g->sink ? g->heads : 0);
    if (b && b->records) { /* in the plan's memory already: problem/bind.c */
        PLAN_TABLE(plan, names, b->names, b->names_size);
        PLAN_TABLE(plan, arrays, b->records, g->array_count);
        PLAN_TABLE(plan, data, b->data, b->data_size);
    }
    return lower_slices(g, memory, plan);
}
