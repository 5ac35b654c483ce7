/* tables.c: gradients of the tables that a score reads, on the host.
 *
 * Requires: a checked plan.
 * Cost:     for each read and pair an evaluation of the read's derivative and of its index, and an addition. Three
 *           quarters of a MiB for each worker.
 * Order:    none matters: sums are exact (sums.h).
 */
#include "runtime/host/tables.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/host/score.h"
#include "runtime/host/work.h"

/* One place in the score that reads a table. */
struct read {
    mc_node *part, *load; /* code: the score's derivative by what is read; and the read itself, as the last node */
    uint32_t parts, loads;
    bool one;             /* the derivative is 1 for all pairs */
    uint64_t first;       /* where the table begins among all tables */
};

struct fcp_table_reads {
    size_t words; /* of scratch */
    uint32_t count;
    struct read reads[];
};

static mc_code part_of(const struct read *x) { return (mc_code){x->part, x->parts}; }
static mc_code load_of(const struct read *x) { return (mc_code){x->load, x->loads}; }
static bool is_read(const mc_node *x) { return x->op == MC_LOAD_F || x->op == MC_LOAD2_F; }

/* Where an array's numbers begin among those of all tables. */
static uint64_t first_of(const fcp_plan *plan, uint64_t array) {
    uint64_t first = 0;
    for (uint64_t i = 0; i < array; i++)
        if (fcp_array_learnable(&plan->arrays[i])) first += fcp_array_bytes(&plan->arrays[i]) / sizeof(double);
    return first;
}

static bool extract(const mc_builder *b, uint32_t root, mc_node **nodes, uint32_t *count) {
    uint32_t *places;
    if (!mc_extract(b, root, nodes, &places, count)) return false;
    free(places);
    return true;
}

/* Makes the read at a node of the score, whose answer is `root`. False: the builder failed, or out of memory. */
static bool make_read(const fcp_plan *plan, mc_builder *b, uint32_t root, uint32_t node, fcp_table_reads *to) {
    uint32_t slope, bad, count;
    const uint64_t array = (uint64_t)mc_builder_nodes(b, &count)[node].imm;
    struct read *x = &to->reads[to->count++];
    if (!mc_derive(b, root, node, true, &slope, &bad)) return false;
    x->first = first_of(plan, array);
    if (!extract(b, slope, &x->part, &x->parts) || !extract(b, node, &x->load, &x->loads)) return false;
    x->one = fcp_host_score_is_one(part_of(x));
    const size_t words[2] = {mc_row_scratch(part_of(x)), mc_row_scratch(load_of(x))};
    for (int i = 0; i < 2; i++)
        if (words[i] > to->words) to->words = words[i];
    return true;
}

/* A plan comes from outside, and a score of many reads would take long: each costs a derivative. */
enum { READS_MAX = 256 };

fcp_code fcp_table_reads_make(const fcp_plan *plan, fcp_table_reads **out_reads, fcp_error *err) {
    const mc_code score = {plan->score, (uint32_t)plan->score_count};
    mc_builder *b = mc_builder_new();
    const uint32_t root = b && score.count ? mc_emit_renamed(b, score, MC_Q, MC_K) : MC_NONE;
    uint32_t total = 0, reads = 0;
    for (uint32_t i = 0; root != MC_NONE && i <= root; i++) reads += is_read(&mc_builder_nodes(b, &total)[i]);
    const bool large = fcp_plan_table_numbers(plan) >= MC_NONE || reads > READS_MAX;
    fcp_table_reads *made = large ? NULL : calloc(1, sizeof *made + reads * sizeof *made->reads);
    bool good = made && (root != MC_NONE || !score.count);
    for (uint32_t i = 0; good && root != MC_NONE && i <= root; i++)
        if (is_read(&mc_builder_nodes(b, &total)[i])) good = make_read(plan, b, root, i, made);
    if (b) mc_builder_nodes(b, &total);
    const bool full = b && mc_builder_failed(b) && total >= MC_MAX_NODES - 1;
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
        free(reads->reads[i].part);
        free(reads->reads[i].load);
    }
    free(reads);
}

bool fcp_host_tables_open(fcp_host_tables *t, const fcp_table_reads *reads) {
    const size_t tile = (size_t)FCP_STRIP * FCP_JOB;
    if (t->reads == reads) return true;
    t->scratch = calloc(reads->words + 1, sizeof *t->scratch);
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

/* part = the derivative of the loss by what each pair reads; 0 where P is 0, even if the read's derivative is not
 * finite there. */
static void multiply(const fcp_host_pairs *x, bool one, float *part) {
    for (uint32_t r = 0; r < x->rows; r++)
        for (uint32_t c = 0; c < x->keys; c++) {
            const size_t at = r * x->ld + c;
            float *to = &part[(size_t)r * x->keys + c];
            *to = x->p[at] == 0 ? 0 : one ? x->ds[at] : x->ds[at] * *to;
        }
}

void fcp_host_tables_add(fcp_host_tables *t, const fcp_host_pairs *x, fcp_sums *sums) {
    const size_t count = (size_t)x->rows * x->keys;
    for (uint32_t i = 0; i < t->reads->count; i++) {
        const struct read *read = &t->reads->reads[i];
        if (!read->one)
            mc_eval_score_tile(part_of(read), x->env, x->q, x->rows, x->k, x->keys, x->head, t->s, x->keys, 1,
                               t->scratch, t->part);
        multiply(x, read->one, t->part);
        mc_load_places(load_of(read), x->env, x->q, x->rows, x->k, x->keys, x->head, t->s, x->keys, t->scratch,
                       t->place);
        fcp_sums_enter(sums);
        for (size_t j = 0; j < count; j++)
            if (t->part[j] != 0 && t->place[j] != MC_NONE) fcp_sums_add(sums, read->first + t->place[j], t->part[j]);
        fcp_sums_leave(sums);
    }
}
