/* lower_data.c: what a plan keeps of the program's score, sinks, fields, tables and slices.
 *
 * Requires: a checked program whose fields are bound to the batch. Gives: those sections of the plan, in `memory`.
 * Cost: linear in their bytes.
 */
#include <string.h>

#include "lower.h"

static const mc_node *copy_code(mc_code code, arena *memory) {
    mc_node *nodes = ARENA_NEW(memory, mc_node, code.count + (size_t)1);
    if (nodes && code.count) memcpy(nodes, code.nodes, code.count * sizeof *nodes);
    return nodes;
}

static fcp_code lower_arrays(const struct fcpc_program *g, arena *memory, fcp_plan *plan) {
    size_t names = 0, bytes = 0, at = 0;
    for (uint32_t i = 0; i < g->array_count; i++) {
        const program_array *a = &g->arrays[i];
        names += strlen(a->name) + 1 + (a->file ? strlen(a->file) + 1 : 0);
        bytes = (bytes + 63) / 64 * 64 + (size_t)program_array_bytes(a);
    }
    fcp_array *arrays = ARENA_ZNEW(memory, fcp_array, g->array_count + (size_t)1);
    char *text = ARENA_NEW(memory, char, names + 1);
    uint8_t *data = arena_alloc(memory, 1, bytes + 64, 64);
    if (!arrays || !text || !data) return FCP_E_NO_MEMORY;
    plan->names = text;
    plan->names_count = names;
    plan->arrays = arrays;
    plan->arrays_count = g->array_count;
    plan->data = data;
    plan->data_count = bytes;
    for (uint32_t i = 0; i < g->array_count; i++) {
        const program_array *a = &g->arrays[i];
        while (at % 64) data[at++] = 0;
        arrays[i] = a->record;
        arrays[i].name = (uint32_t)(text - plan->names);
        text = stpcpy(text, a->name) + 1;
        arrays[i].file = a->file ? (uint32_t)(text - plan->names) : FCP_NONE;
        if (a->file) text = stpcpy(text, a->file) + 1;
        arrays[i].offset = at;
        memcpy(data + at, a->data, (size_t)program_array_bytes(a));
        at += (size_t)program_array_bytes(a);
    }
    return FCP_OK;
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

fcp_code lower_data(const struct fcpc_program *g, arena *memory, fcp_plan *plan) {
    plan->score = copy_code(g->score, memory);
    plan->score_count = g->score.count;
    plan->slope = copy_code(g->slope, memory);
    plan->slope_count = g->slope.count;
    double *sink = ARENA_NEW(memory, double, g->heads);
    if (!plan->score || !plan->slope || !sink) return FCP_E_NO_MEMORY;
    if (g->sink) memcpy(sink, g->sink, g->heads * sizeof *sink);
    plan->sink = sink;
    plan->sink_count = g->sink ? g->heads : 0;
    fcp_code code = lower_arrays(g, memory, plan);
    return code ? code : lower_slices(g, memory, plan);
}
