/* table_gradients.c: gradients of the tables that a score reads, on the host.
 *
 * Requires: a checked plan.
 * Cost:     for each read and pair, one evaluation of the read's derivative and one of its index, and an addition.
 *           Three quarters of a MiB for each worker.
 * Order:    any; the sums are exact (sums.h), so their bits do not depend on it.
 */
#include "runtime/host/table_gradients.h"
#include "runtime/plan/plan_arrays.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/host/score_values.h"
#include "runtime/host/visit_products.h"

/* How many words of scratch evaluating the reads takes. */
static size_t scratch_of(const fcp_table_reads *reads) {
    size_t most = 0;
    for (uint32_t i = 0; i < reads->count; i++) {
        const size_t part = mc_row_scratch(reads->reads[i].part), load = mc_row_scratch(reads->reads[i].load);
        if (part > most) most = part;
        if (load > most) most = load;
    }
    return most;
}

bool fcp_host_tables_open(fcp_host_tables *t, const fcp_table_reads *reads) {
    const size_t tile = (size_t)FCP_STRIP * FCP_JOB;
    if (t->reads == reads) return true;
    t->scratch = calloc(scratch_of(reads) + 1, sizeof *t->scratch);
    t->s = calloc(tile, sizeof *t->s);
    t->part = calloc(tile, sizeof *t->part);
    t->place = calloc(tile, sizeof *t->place);
    if (!t->scratch || !t->s || !t->part || !t->place) {
        fcp_host_tables_close(t);
        return false;
    }
    t->reads = reads;
    return true;
}

void fcp_host_tables_close(fcp_host_tables *t) {
    free(t->scratch);
    free(t->s);
    free(t->part);
    free(t->place);
    *t = (fcp_host_tables){0};
}

void fcp_host_tables_bind(const fcp_plan *plan, const double *table, mc_array *arrays) {
    for (uint64_t i = 0; table && i < plan->arrays_count; i++) {
        if (!fcp_array_learnable(&plan->arrays[i])) continue;
        arrays[i].data = table;
        table += fcp_array_bytes(&plan->arrays[i]) / sizeof *table;
    }
}

void fcp_host_tables_keep(fcp_host_tables *t, uint32_t rows, uint32_t keys, const float *s, size_t ld) {
    for (uint32_t r = 0; r < rows; r++) memcpy(t->s + (size_t)r * keys, s + r * ld, keys * sizeof *s);
}

/* part = the derivative of the loss by what each pair reads. It is 0 where P is 0, even if the read's derivative is
 * not finite there. */
static void multiply(const fcp_host_pairs *x, bool one, float *part) {
    for (uint32_t r = 0; r < x->tile.rows; r++)
        for (uint32_t c = 0; c < x->tile.keys; c++) {
            const size_t at = r * x->ld + c;
            float *to = &part[(size_t)r * x->tile.keys + c];
            *to = x->p[at] == 0 ? 0 : one ? x->ds[at] : x->ds[at] * *to;
        }
}

void fcp_host_tables_add(fcp_host_tables *t, const fcp_host_pairs *x, fcp_sums *sums) {
    const size_t keys = x->tile.keys, count = x->tile.rows * keys;
    for (uint32_t i = 0; i < t->reads->count; i++) {
        const fcp_table_read *read = &t->reads->reads[i];
        const bool one = fcp_host_score_is_one(read->part); /* for all pairs */
        if (!one) mc_eval_score_tile(read->part, x->env, &x->tile, t->s, keys, 1, t->scratch, t->part);
        multiply(x, one, t->part);
        mc_load_places(read->load, x->env, &x->tile, t->s, keys, t->scratch, t->place);
        fcp_sums_enter(sums);
        for (size_t j = 0; j < count; j++)
            if (t->part[j] != 0 && t->place[j] != MC_NONE) fcp_sums_add(sums, read->first + t->place[j], t->part[j]);
        fcp_sums_leave(sums);
    }
}
