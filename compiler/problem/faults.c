/* faults.c: reports that a mask or score faults: which expression, for which query, key and sequence.
 *
 * Requires: a bound batch, and a fault that cells_grid or cells_count found.
 * Gives: one error with its place. A fault inside the prelude also names the call in the program.
 * Cost: one evaluation of the code for one pair.
 */
#include "compiler/problem/faults.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/base/text.h"
#include "compiler/problem/problem.h"
#include "compiler/sema/fault_words.h"
#include "compiler/sema/field_shape.h"

/* A fault, and the code in which it occurs. */
typedef struct report {
    planning *x;
    mc_code code;      /* of the mask or score */
    const span *spans; /* per node of it */
    bool of_mask;
    uint32_t sequence;
    const cells_fault *fault;
} report;

/* Is this node the division of exact(a, b) with a remainder? Then *a is the node of a. *b is that of b; if a and b were
 * constants, it is MC_NONE, and *divisor is b. It is 0 if the call is expanded with several b for this a. */
static bool is_exact(const report *r, uint32_t *a, uint32_t *b, int64_t *divisor) {
    const struct fcpc_program *g = r->x->program;
    const mc_node *nodes = r->code.nodes, *x = &nodes[r->fault->node];
    const bool constant = x->op == MC_DIV && nodes[x->a].op == MC_CONST_I && nodes[x->b].op == MC_CONST_I;
    if (x->op != MC_DIV || (nodes[x->b].op != MC_IF_I && !constant)) return false;
    *a = x->a;
    *b = constant ? MC_NONE : nodes[x->b].b;
    *divisor = 0;
    uint32_t found = 0;
    for (uint32_t i = 0; i < g->exact_count; i++) {
        const program_exact *e = &g->exact[i];
        if (!diag_same_span(e->at, r->spans[r->fault->node])) continue;
        if (constant && (!e->divisor || e->dividend != nodes[x->a].imm)) continue;
        *divisor = found++ ? 0 : e->divisor;
    }
    return found > 0;
}

/* The value of every node for the pair that faults; NULL: no memory. */
static int64_t *fault_values(const report *r) {
    const cells_fault *f = r->fault;
    int64_t *values = ARENA_NEW(&r->x->scratch, int64_t, r->code.count);
    const mc_env env = problem_env(r->x->problem, r->sequence);
    if (values) mc_eval(r->code, &env, f->q, f->k, f->h, values);
    return values;
}

/* Adds which call led to the fault, if that is not in the program's own text but, say, in the prelude. */
static void add_call(const report *r, span at) {
    const struct fcpc_program *g = r->x->program;
    const span call = r->of_mask ? g->at[AT_MASK] : g->at[AT_SCORE];
    if (at.source == call.source) return;
    diag_also(r->x->d, planning_span(r->x, call), r->of_mask ? "of this mask" : "of this score");
}

/* Reports exact(a, b) of two constants, which a guard lets only some pairs reach. */
static fcp_code report_constant(const report *r, int64_t dividend, int64_t divisor) {
    const cells_fault *f = r->fault;
    const span at = planning_span(r->x, r->spans[f->node]);
    if (divisor)
        diag_error(r->x->d, FCP_E_MASK_EXACT, at, "%lld is not a multiple of %lld", (long long)dividend,
                   (long long)divisor);
    else diag_error(r->x->d, FCP_E_MASK_EXACT, at, "%lld is not a multiple of the divisor", (long long)dividend);
    diag_hint(r->x->d, "for q = %lld, k = %lld and head %lld", (long long)f->q, (long long)f->k, (long long)f->h);
    add_call(r, r->spans[f->node]);
    return FCP_E_MASK_EXACT;
}

static fcp_code report_exact(const report *r, uint32_t a, uint32_t b) {
    const cells_fault *f = r->fault;
    int64_t *values = fault_values(r);
    if (!values) return FCP_E_NO_MEMORY;
    const int64_t dividend = values[a], divisor = values[b];
    bool fixed = true; /* the two operands depend on n alone */
    memset(values, 0, r->code.count * sizeof *values);
    values[a] = values[b] = 1;
    for (uint32_t i = f->node; i-- > 0;) {
        const mc_node *x = &r->code.nodes[i];
        if (!values[i]) continue;
        fixed &= x->op != MC_Q && x->op != MC_K && x->op != MC_H && !mc_loads_int(x->op);
        if (x->a != MC_NONE) values[x->a] = 1;
        if (x->b != MC_NONE) values[x->b] = 1;
        if (x->c != MC_NONE) values[x->c] = 1;
    }
    span at = r->spans[f->node];
    diag_error(r->x->d, FCP_E_MASK_EXACT, planning_span(r->x, at),
               "%lld is not a multiple of %lld in a sequence of %lld tokens", (long long)dividend, (long long)divisor,
               (long long)f->n);
    if (!fixed)
        diag_hint(r->x->d, "for q = %lld, k = %lld and head %lld", (long long)f->q, (long long)f->k, (long long)f->h);
    add_call(r, at);
    return FCP_E_MASK_EXACT;
}

/* Is a cell's number asked for by a position, as in keep[h, q, k] of a field over heads, queries / 128, keys / 128?
 * Then the field has the cell of each position that it is read at. */
static bool misses_division(const fcp_array *record, const mc_array *bound, const int64_t *index) {
    const int64_t first[3] = {0, bound->first, bound->column_first},
                  count[3] = {bound->planes, bound->count, bound->columns};
    uint32_t cell[3] = {0}, d = record->heads != 0;
    bool divides = false;
    if (record->q_cell) cell[d++] = record->q_cell;
    if (record->k_cell) cell[d] = record->k_cell;
    const uint32_t skipped = bound->planes ? 0 : 1; /* the dimension of `first` and `count` that index[0] belongs to */
    for (d = 0; d < mc_array_dims(bound); d++) {
        const int64_t from = first[d + skipped], end = from + count[d + skipped];
        if (index[d] >= from && index[d] < end) continue;
        const int64_t divided = cell[d] > 1 ? mc_div(index[d], cell[d]) : from - 1;
        if (divided < from || divided >= end) return false;
        divides = true;
    }
    return divides;
}

/* Adds the hint that says how a field with cells or KV heads is read. */
static void hint_reading(const report *r, const program_array *a, const char *because) {
    text t = {0};
    sema_put_reading(&a->record, a->record.heads && a->record.heads != r->x->program->heads, a->name, &t);
    text_add(&t, "", 1);
    if (!t.failed) diag_hint(r->x->d, "%s: divide, %s", because, t.at);
    text_free(&t);
}

/* Reports that an element was read that the array does not have, and which elements it has. */
static fcp_code report_index(const report *r) {
    const cells_fault *f = r->fault;
    const mc_node *x = &r->code.nodes[f->node];
    const program_array *a = &r->x->program->arrays[x->imm];
    const mc_env env = problem_env(r->x->problem, r->sequence);
    const mc_array *bound = &env.arrays[x->imm];
    const int64_t *values = fault_values(r);
    if (!values) return FCP_E_NO_MEMORY;
    text what = {0};
    const uint32_t operands[3] = {x->a, x->b, x->c};
    int64_t index[3] = {0};
    for (int d = 0; d < 3; d++)
        if (operands[d] != MC_NONE) index[d] = values[operands[d]];
    fault_words_index(a, bound, index, &what);
    if (mc_uses(r->code) & MC_USES_H) text_printf(&what, ", for h = %lld,", (long long)f->h);
    else text_puts(&what, ", for");
    char *line = text_take(&what);
    if (!line) return FCP_E_NO_MEMORY;
    diag_error(r->x->d, FCP_E_MASK_INDEX, planning_span(r->x, r->spans[f->node]),
               "%s q = %lld, k = %lld in a sequence of %lld tokens", line, (long long)f->q, (long long)f->k,
               (long long)f->n);
    free(line);
    if (r->x->problem->sequences != 1 && a->record.kind != FCP_TABLE)
        diag_hint(r->x->d, "sequence %u of the batch", r->sequence);
    const bool by_head = mc_uses(r->code) & MC_USES_H && index[0] == f->h && !f->q && !f->k;
    if (misses_division(&a->record, bound, index)) hint_reading(r, a, "it has a value for each cell of tokens");
    else if (a->record.heads && index[0] == f->h && index[0] >= (int64_t)a->record.heads)
        hint_reading(r, a, "it has a value for each KV head");
    else if (a->record.kind == FCP_TABLE && x->op != MC_LOAD2 && by_head)
        diag_hint(r->x->d, "a table that is read by head has a value for each of the %u heads", r->x->program->heads);
    else if (r->of_mask)
        diag_hint(r->x->d, "a condition before it keeps it from being read: q > 0 and ...[q - 1]");
    else diag_hint(r->x->d, "min and max keep an index inside, or a condition: if q > 0 then ...[q - 1] else 0.0");
    add_call(r, r->spans[f->node]);
    return FCP_E_MASK_INDEX;
}

fcp_code faults_report(planning *x, fcp_code code, faults_of of, uint32_t sequence, const cells_fault *f) {
    const struct fcpc_program *g = x->program;
    bool of_mask = of == FAULTS_MASK;
    const report r = {x, of_mask ? g->mask : g->check, of_mask ? g->mask_spans : g->check_spans, of_mask, sequence, f};
    uint32_t a, b;
    int64_t divisor;
    if (f->kind == MC_INDEX && f->node < r.code.count) return report_index(&r);
    if (f->kind == MC_DIV_ZERO && f->node < r.code.count && is_exact(&r, &a, &b, &divisor))
        return b == MC_NONE ? report_constant(&r, r.code.nodes[a].imm, divisor) : report_exact(&r, a, b);
    const char *what = f->kind == MC_DIV_ZERO ? FAULT_DIV_ZERO : FAULT_OVERFLOW;
    span at = f->node < r.code.count ? r.spans[f->node] : g->at[AT_MASK];
    if (mc_uses(r.code) & MC_USES_H)
        diag_error(x->d, code, planning_span(x, at), "%s for q = %lld, k = %lld, h = %lld in a sequence of %lld tokens",
                   what, (long long)f->q, (long long)f->k, (long long)f->h, (long long)f->n);
    else
        diag_error(x->d, code, planning_span(x, at), "%s for q = %lld, k = %lld in a sequence of %lld tokens", what,
                   (long long)f->q, (long long)f->k, (long long)f->n);
    add_call(&r, at);
    return code;
}
