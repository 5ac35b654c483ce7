/* table_reads.c: finds where a score reads tables, and makes the derivatives (table_reads.h).
 *
 * Requires: a checked plan.
 * Cost:     a derivative of the score for each read.
 */
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/table_reads.h"

#include <stdlib.h>

/* The most reads that are taken, because each costs a derivative, and a plan from outside may have very many. The
 * code of all derivatives together is at most as long as a score may be. */
enum { READS_MAX = 256 };

static bool is_read(const fcp_plan *plan, const mc_node *x) {
    return mc_loads_real(x->op) && fcp_array_learnable(&plan->arrays[x->imm]);
}

/* Where an array's numbers begin among those of all tables. */
static uint64_t first_of(const fcp_plan *plan, uint64_t array) {
    uint64_t first = 0;
    for (uint64_t i = 0; i < array; i++)
        if (fcp_array_learnable(&plan->arrays[i])) first += fcp_array_bytes(&plan->arrays[i]) / sizeof(double);
    return first;
}

static bool extract(const mc_builder *b, uint32_t root, mc_code *out) {
    uint32_t *places;
    mc_node *nodes;
    if (!mc_extract(b, root, &nodes, &places, &out->count)) return false;
    out->nodes = nodes;
    free(places);
    return true;
}

/* Makes the read at a node of the score, whose answer is `root`. False: the builder failed, or out of memory. */
static bool make_read(const fcp_plan *plan, mc_builder *b, uint32_t root, uint32_t node, fcp_table_reads *to) {
    uint32_t slope, bad, count;
    const uint64_t array = (uint64_t)mc_builder_nodes(b, &count)[node].imm;
    fcp_table_read *x = &to->reads[to->count++];
    x->first = first_of(plan, array);
    return mc_derive(b, root, node, true, &slope, &bad) && extract(b, slope, &x->part) && extract(b, node, &x->load);
}

fcp_code fcp_table_reads_make(const fcp_plan *plan, fcp_table_reads **out_reads, fcp_error *err) {
    const mc_code score = {plan->score, (uint32_t)plan->score_count};
    mc_builder *b = mc_builder_new();
    const uint32_t root = b && score.count ? mc_emit_renamed(b, score, MC_Q, MC_K) : MC_NONE;
    uint32_t total = 0, reads = 0;
    for (uint32_t i = 0; root != MC_NONE && i <= root; i++) reads += is_read(plan, &mc_builder_nodes(b, &total)[i]);
    const bool large = fcp_plan_table_numbers(plan) >= MC_NONE || reads > READS_MAX;
    fcp_table_reads *made = large ? NULL : calloc(1, sizeof *made + reads * sizeof *made->reads);
    bool good = made && (root != MC_NONE || !score.count);
    for (uint32_t i = 0; good && root != MC_NONE && i <= root; i++)
        if (is_read(plan, &mc_builder_nodes(b, &total)[i])) good = make_read(plan, b, root, i, made);
    uint64_t operations = 0;
    for (uint32_t i = 0; good && i < made->count; i++)
        operations += (uint64_t)made->reads[i].part.count + made->reads[i].load.count;
    good = good && operations <= MC_MAX_NODES;
    const bool full = operations > MC_MAX_NODES || (b && mc_builder_full(b));
    mc_builder_free(b);
    if (good) {
        *out_reads = made;
        return FCP_OK;
    }
    fcp_table_reads_free(made);
    if (large || full)
        return fcp_fail(err, FCP_E_TENSOR,
                        "the plan's score is too large for gradients of its tables: it reads them at %u places (at "
                        "most %d), or its derivatives have more than %u operations", reads, READS_MAX, MC_MAX_NODES);
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the derivatives of a score");
}

void fcp_table_reads_free(fcp_table_reads *reads) {
    for (uint32_t i = 0; reads && i < reads->count; i++) {
        free((mc_node *)(uintptr_t)reads->reads[i].part.nodes);
        free((mc_node *)(uintptr_t)reads->reads[i].load.nodes);
    }
    free(reads);
}
