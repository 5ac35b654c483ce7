/* score_plan.c: makes the score of a plan: its code, its derivative, the code that finds its faults; and the plan's
 * sinks.
 *
 * Requires: a checked score; the plan's mask is lowered, and its model and passes are known.
 * Gives: these members of the program:
 *      score    the code of the score, without guards; empty if the score is s itself
 *      slope    its derivative by s
 *      check    a condition with the values of the mask. It faults wherever the mask does, and for pairs that the mask
 *               allows also where the score does. If the score cannot fault it is the mask itself
 *      sink     a logit for each head
 * Method: the mask is copied into a builder, and the score is lowered with the mask as its guard. For `check`, each
 *      node of the score that may fault is added to the mask as `mask and (true or node == 0)`. So the node is part of
 *      the code, but the answer does not depend on it. Masks have no reals: a load from a table of reals becomes a load
 *      of integers, of which only the index can fault.
 * Cost: O(score + mask).
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/expr/expr.h"
#include "compiler/base/real.h"
#include "compiler/sema/array_values.h"
#include "runtime/plan/plan.h"

/* --- parameters --------------------------------------------------------------------------------------------------- */

/* Evaluates an argument or default of a score's parameter, which is a constant: a number, a condition as 0 or 1, a
 * field or table as its number. */
static bool constant_argument(sema *s, const arg *p, const expr *e, figure *out) {
    value_type type = score_param_type(p);
    if (type == TYPE_ARRAY) {
        *out = (figure){.integer = sema_array_argument(s, p, e)};
        return out->integer != ARRAY_ANY;
    }
    if (type == TYPE_BOOL) {
        *out = (figure){.integer = e->integer, .value = (double)e->integer};
        if (e->kind == EXPR_BOOL) return true;
        diag_error(s->d, FCP_E_TYPE, e->at, "%s must be true or false", p->name);
        return false;
    }
    if (!expr_field_argument(s, p, e, true, out)) return false;
    if (out->field) return true;
    if (!expr_eval_number(s, e, p->name, out)) {
        expr_hint_field(s, e);
        return false;
    }
    if (type == TYPE_REAL) out->real = true;
    return true;
}

static value parameter(sema *s, const arg *p, expr *e, const figure *n) {
    int64_t bits = n->integer;
    if (p->as) return (value){TYPE_ARRAY, (uint32_t)bits};
    if (n->field) {
        value v = expr_read_bare(s, e, (uint32_t)bits, true);
        if (v.type == TYPE_INT && score_param_type(p) == TYPE_REAL)
            v = (value){TYPE_REAL, expr_emit(s, e, MC_TO_F, v.node, MC_NONE, MC_NONE, 0, MC_NONE)};
        return v;
    }
    value_type type = score_param_type(p) == TYPE_BOOL ? TYPE_BOOL : n->real ? TYPE_REAL : TYPE_INT;
    if (type == TYPE_REAL) bits = mc_real_bits(n->value);
    mc_op op = type == TYPE_BOOL ? MC_CONST_B : type == TYPE_REAL ? MC_CONST_F : MC_CONST_I;
    return (value){type, expr_emit(s, e, op, MC_NONE, MC_NONE, MC_NONE, bits, MC_NONE)};
}

/* --- code to code ------------------------------------------------------------------------------------------------- */

static bool too_long(sema *s, span at) {
    diag_error(s->d, FCP_E_TOO_LARGE, at, "this score needs more than %u operations when expanded", MC_MAX_NODES);
    s->failed = true;
    return false;
}

static bool failed(sema *s, const mc_builder *b, span at) {
    if (!mc_builder_failed(b)) return s->failed;
    if (!s->failed && mc_builder_full(b)) too_long(s, at);
    else sema_no_memory(s);
    return true;
}

/* Emits all nodes of a code into a builder, with the places of their spans. Returns the root; MC_NONE: it failed. */
static uint32_t copy_code(sema *s, mc_builder *b, mc_code code, const span *spans) {
    uint32_t *map = calloc(code.count + (size_t)1, sizeof *map), root = MC_NONE;
    for (uint32_t i = 0; i < code.count && map; i++) {
        const mc_node x = mc_renumbered(code.nodes[i], map);
        root = mc_emit(b, (mc_op)x.op, x.a, x.b, x.c, x.imm, x.guard, expr_place(s, spans[i]));
        if (root == MC_NONE) break;
        map[i] = root;
    }
    if (!map) sema_no_memory(s);
    free(map);
    return root;
}

/* Marks the nodes that `root` needs, without those that only guards need. malloc'd; NULL: out of memory. */
static bool *reached(const mc_builder *b, uint32_t root) {
    uint32_t count;
    const mc_node *nodes = mc_builder_nodes(b, &count);
    bool *marks = calloc((size_t)root + 1, sizeof *marks);
    if (!marks) return NULL;
    marks[root] = true;
    for (uint32_t i = root + 1; i-- > 0;) {
        if (!marks[i]) continue;
        if (nodes[i].a != MC_NONE) marks[nodes[i].a] = true;
        if (nodes[i].b != MC_NONE) marks[nodes[i].b] = true;
        if (nodes[i].c != MC_NONE) marks[nodes[i].c] = true;
    }
    return marks;
}

/* Copies the code of the root without guards, which a score does not need once it is known not to fault. */
static uint32_t copy_plain(sema *s, const mc_builder *from, uint32_t root, mc_builder *to) {
    uint32_t count, *places = malloc(((size_t)root + 1) * sizeof *places),
                    *map = malloc(((size_t)root + 1) * sizeof *map);
    bool *marks = reached(from, root);
    const mc_node *nodes = mc_builder_nodes(from, &count);
    uint32_t made = MC_NONE;
    for (uint32_t i = 0; i <= root && places && map && marks; i++) {
        if (!marks[i]) continue;
        mc_node x = nodes[i];
        x.guard = MC_NONE;
        x = mc_renumbered(x, map);
        made = mc_emit(to, (mc_op)x.op, x.a, x.b, x.c, x.imm, MC_NONE, mc_builder_place(from, i));
        if (made == MC_NONE) break;
        map[i] = made;
    }
    if (!places || !map || !marks) sema_no_memory(s);
    free(places);
    free(map);
    free(marks);
    return made;
}

static bool is_zero(const mc_node *x) { return x->op == MC_CONST_F && mc_real(x->imm) == 0; }

/* The root without an addition of 0.0. That only turns -0.0 into 0.0, which softmax does not see. */
static uint32_t without_zero(const mc_builder *b, uint32_t root) {
    uint32_t count;
    const mc_node *nodes = mc_builder_nodes(b, &count);
    while (nodes[root].op == MC_ADD_F && (is_zero(&nodes[nodes[root].a]) || is_zero(&nodes[nodes[root].b])))
        root = is_zero(&nodes[nodes[root].a]) ? nodes[root].b : nodes[root].a;
    return root;
}

/* --- what must hold ----------------------------------------------------------------------------------------------- */

/* Checks that every constant fits a float, in which kernels compute. */
static bool check_constants(sema *s, mc_code code, const span *spans, span at) {
    for (uint32_t i = 0; i < code.count; i++) {
        const double x = mc_real(code.nodes[i].imm);
        if (code.nodes[i].op != MC_CONST_F || isfinite((float)x)) continue;
        text t = {0};
        real_print(x, &t);
        text_add(&t, "", 1);
        diag_error(s->d, FCP_E_SCORE, spans ? spans[i] : at, "%s%s is beyond the largest number of a kernel, 3.4e38",
                   spans ? "" : "the derivative's constant ", t.failed ? "this" : t.at);
        text_free(&t);
        s->failed = true;
        return false;
    }
    return true;
}

/* Checks that the elements of the arrays of reals that the code reads fit a float, too. */
static bool check_arrays(sema *s, mc_code code) {
    for (uint32_t i = 0; i < code.count; i++) {
        if (!mc_loads_real(code.nodes[i].op)) continue;
        const array_decl *a = s->arrays[code.nodes[i].imm];
        const double *values = a->array.data;
        const uint64_t count = values ? fcp_array_values(&a->array.record) : 0; /* NULL: they come with each batch */
        for (uint64_t at = 0; at < count; at++) {
            if (isfinite((float)values[at])) continue;
            diag_error(s->d, FCP_E_FIELD, a->at, "a value of %s '%s' is beyond the largest number of a kernel, 3.4e38",
                       a->table ? "table" : "field", a->name);
            diag_hint(s->d, "element %" PRIu64 ", from 0 and row by row", at);
            s->failed = true;
            return false;
        }
    }
    return true;
}

static span place_at(const sema *s, uint32_t place, span otherwise) {
    return place && place < s->place_count ? s->places[place] : otherwise;
}

/* Makes the condition `all and (true or node == 0)`, which has the value of `all` and faults where the node does.
 * MC_NONE: the node depends on reals, which was reported, or the builder failed. */
static uint32_t add_fault_of(sema *s, mc_builder *b, uint32_t node, uint32_t all, span at) {
    uint32_t count;
    const mc_node x = mc_builder_nodes(b, &count)[node];
    uint32_t place = mc_builder_place(b, node);
    bool real = mc_builder_real(b, x.a) || (x.b != MC_NONE && mc_builder_real(b, x.b));
    if (real) {
        diag_error(s->d, FCP_E_TYPE, place_at(s, place, at),
                   "this may fail (overflow, a zero, an index), and depends on a comparison of real numbers");
        diag_hint(s->d, "the compiler proves that nothing fails from q, k, n and h alone: keep reals out of it");
        s->failed = true;
        return MC_NONE;
    }
    if (x.op == MC_LOAD_F) node = mc_emit(b, MC_LOAD, x.a, MC_NONE, MC_NONE, x.imm, x.guard, place);
    else if (x.op == MC_LOAD2_F) node = mc_emit(b, MC_LOAD2, x.a, x.b, MC_NONE, x.imm, x.guard, place);
    else if (x.op == MC_LOAD3_F) node = mc_emit(b, MC_LOAD3, x.a, x.b, x.c, x.imm, x.guard, place);
    if (node == MC_NONE) return MC_NONE;
    uint32_t zero = mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, place);
    uint32_t yes = mc_emit(b, MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, 1, MC_NONE, place);
    if (zero == MC_NONE || yes == MC_NONE) return MC_NONE;
    uint32_t test = mc_emit(b, MC_EQ, node, zero, MC_NONE, 0, MC_NONE, place);
    if (test == MC_NONE || (test = mc_emit(b, MC_OR, yes, test, MC_NONE, 0, MC_NONE, place)) == MC_NONE) return MC_NONE;
    return mc_emit(b, MC_AND, all, test, MC_NONE, 0, MC_NONE, place);
}

/* Is it the load of a sequence's number of a field over sequences? That never faults. */
static bool reads_bare(const sema *s, const mc_node *x) {
    return (x->op == MC_LOAD || x->op == MC_LOAD_F) && sema_is_bare(s, (uint32_t)x->imm);
}

/* Makes `check`: the condition that faults where the mask does, or where the score does and the mask is true. */
static bool make_check(sema *s, mc_builder *b, uint32_t mask_root, uint32_t root, span at) {
    uint32_t count, all = mask_root;
    bool *marks = reached(b, root);
    if (!marks) return sema_no_memory(s);
    for (uint32_t i = 0; i <= root && all != MC_NONE; i++) {
        if (!marks[i] || !mc_builder_loose(b, i)) continue;
        const mc_node *x = &mc_builder_nodes(b, &count)[i];
        if (mc_op_faults(x->op) && !reads_bare(s, x)) all = add_fault_of(s, b, i, all, at);
    }
    free(marks);
    if (failed(s, b, at)) return false;
    return expr_extract(s, b, all, &s->out->check, &s->out->check_spans);
}

/* --- the plan's score --------------------------------------------------------------------------------------------- */

/* Makes the slope of the program's score. */
static bool derive(sema *s, span at) {
    struct fcpc_program *p = s->out;
    mc_node *nodes = NULL;
    uint32_t count = 0, bad;
    const mc_derived what = mc_slope(p->score, !p->passes[FCP_BACKWARD], &nodes, &count, &bad);
    mc_node *own = what == MC_DERIVED ? ARENA_NEW(&p->arena, mc_node, count) : NULL;
    if (own) {
        memcpy(own, nodes, count * sizeof *own);
        p->slope = (mc_code){own, count};
    }
    free(nodes);
    if (own) return true;
    if (what == MC_TOO_LONG) return too_long(s, at);
    if (what != MC_NO_DERIVATIVE) return sema_no_memory(s);
    diag_error(s->d, FCP_E_SCORE, bad < p->score.count ? p->score_spans[bad] : at,
               "floor of what depends on s cannot be differentiated");
    diag_hint(s->d, "the backward pass needs the derivative; with passes = forward it does not");
    s->failed = true;
    return false;
}

/* Makes score, slope and check of the lowered score. `plain` is an empty builder. */
static bool keep_score(sema *s, mc_builder *plain, uint32_t mask_root, uint32_t root, span at) {
    struct fcpc_program *p = s->out;
    if (mc_builder_loose(s->builder, root) && !make_check(s, s->builder, mask_root, root, at)) return false;
    uint32_t own = copy_plain(s, s->builder, root, plain), count;
    if (own == MC_NONE || failed(s, plain, at)) return failed(s, plain, at), false;
    own = without_zero(plain, own);
    if (mc_builder_nodes(plain, &count)[own].op == MC_S) return true;
    if (!expr_extract(s, plain, own, &p->score, &p->score_spans) || !derive(s, at)) return false;
    return check_constants(s, p->score, p->score_spans, at) && check_constants(s, p->slope, NULL, at) &&
           check_arrays(s, p->score);
}

bool expr_lower_score(sema *s, mask *m, const arg *args, span call) {
    struct fcpc_program *p = s->out;
    arg **given = ARENA_NEW(s->scratch, arg *, m->param_count + 1);
    value *values = ARENA_NEW(s->scratch, value, m->param_count + 1);
    figure *numbers = ARENA_ZNEW(s->scratch, figure, m->param_count + 1);
    if (!given || !values || !numbers) return sema_no_memory(s);
    if (!sema_bind_args(s, m, args, call, given)) return false;
    bool good = true;
    uint32_t i = 0;
    for (const arg *a = m->params; a; a = a->next, i++)
        good &= constant_argument(s, a, given[i] ? given[i]->value : a->value, &numbers[i]);
    if (given[i]) {
        diag_error(s->d, FCP_E_ARGUMENT, given[i]->name_at, "in a plan, s is the logit itself");
        diag_hint(s->d, "a score may give another score its s: score both = softcap(s = alibi)");
        return false;
    }
    if (!good || m->state != MASK_GOOD || !p->mask.count || s->failed) return false;
    s->plan_score = m;
    s->plan_numbers = numbers;
    p->at[AT_SCORE] = call;
    p->score_name = expr_call_text(s, m, numbers);
    if (!p->score_name || !expr_begin(s)) return sema_no_memory(s);

    size_t errors = diag_errors(s->d);
    uint32_t mask_root = copy_code(s, s->builder, p->mask, p->mask_spans), count;
    uint32_t guard = MC_NONE;
    mc_builder *plain = mc_builder_new();
    if (!plain) sema_no_memory(s);
    else if (mask_root == MC_NONE) failed(s, s->builder, call);
    if (!s->failed) {
        const mc_node *nodes = mc_builder_nodes(s->builder, &count);
        if (nodes[mask_root].op != MC_CONST_B || !nodes[mask_root].imm) guard = mask_root;
        i = 0;
        for (const arg *a = m->params; a; a = a->next, i++)
            values[i] = parameter(s, a, given[i] ? given[i]->value : a->value, &numbers[i]);
        const value logit = {TYPE_REAL, expr_emit(s, m->body, MC_S, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE)};
        const frame f = {.m = m, .args = values, .s = logit};
        value root = expr_lower(s, m->body, &f, guard);
        if (root.type == TYPE_INT)
            root = (value){TYPE_REAL, expr_emit(s, m->body, MC_TO_F, root.node, MC_NONE, MC_NONE, 0, MC_NONE)};
        if (!s->failed && root.type != TYPE_REAL) { /* as when it reads a field that is wrong, which was reported */
            if (!diag_errors(s->d)) diag_error(s->d, FCP_E_INTERNAL, call, "a checked score did not lower");
            s->failed = true;
        }
        if (!s->failed && diag_errors(s->d) == errors) keep_score(s, plain, mask_root, root.node, call);
    }
    mc_builder_free(plain);
    expr_end(s);
    if (m->builtin && diag_errors(s->d) > errors) diag_also(s->d, call, "of this score");
    return !s->failed && diag_errors(s->d) == errors;
}

/* --- sinks -------------------------------------------------------------------------------------------------------- */

static bool sink_value(sema *s, const expr *e, double *out) {
    figure n;
    if (!expr_eval_number(s, e, "sink", &n)) return false;
    *out = n.value;
    if (isfinite((float)n.value)) return true;
    diag_error(s->d, FCP_E_SCORE, e->at, "this is beyond the largest number of a kernel, 3.4e38");
    return false;
}

/* Reads a list of sinks, one for each head. */
static bool sink_list(sema *s, const expr *list, double *out) {
    const uint32_t heads = s->out->heads;
    uint64_t count = 0;
    for (const arg *a = list->args; a; a = a->next) {
        const expr *e = a->value;
        int64_t many = 1;
        double x;
        if (e->kind == EXPR_REPEAT) {
            if (!sema_eval_constant(s, e->b, "the number of repeats", &many)) return false;
            if (many < 1) {
                diag_error(s->d, FCP_E_VALUE, e->b->at, "a value is repeated once at least");
                return false;
            }
            e = e->a;
        }
        if (!sink_value(s, e, &x)) return false;
        for (uint64_t i = count; i < heads && i - count < (uint64_t)many; i++) out[i] = x;
        if ((uint64_t)many > UINT32_MAX || (count += (uint64_t)many) > UINT32_MAX) count = UINT32_MAX;
    }
    if (count == heads) return true;
    diag_error(s->d, FCP_E_HEADS, list->at, "sink has %s%" PRIu64 " value%s, the model has %u heads",
               count == UINT32_MAX ? "at least " : "", count, count == 1 ? "" : "s", heads);
    diag_hint(s->d, "one for each query head, or a single number for all: sink = 0.5, sink = [0.5 x %u]", heads);
    return false;
}

/* Reads file("sink.npy"), of one dimension, one element for each head. */
static bool sink_file(sema *s, const expr *e, double *out) {
    const uint32_t heads = s->out->heads;
    if (e->arg_count != 1 || e->args->name || e->args->value->kind != EXPR_STRING) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "file takes a path: file(\"sink.npy\")");
        return false;
    }
    /* a plan that is read back has its sinks, whatever has become of the file */
    if (s->plan && s->plan->sink_count == heads) {
        memcpy(out, s->plan->sink, heads * sizeof *out);
        return true;
    }
    program_array a = {0};
    if (!sema_read_table(s, "sink", e, heads, true, &a)) return false;
    if (a.record.columns || a.record.count != heads) {
        if (a.record.columns) diag_error(s->d, FCP_E_HEADS, e->at, "sink has two dimensions");
        else
            diag_error(s->d, FCP_E_HEADS, e->at, "sink has %" PRIu64 " value%s, the model has %u heads", a.record.count,
                       a.record.count == 1 ? "" : "s", heads);
        diag_hint(s->d, "one value for each query head");
        return false;
    }
    const mc_array values = {.data = a.data, .count = heads, .width = (mc_width)a.record.width};
    for (uint32_t h = 0; h < heads; h++) {
        out[h] = values.width == MC_F64 ? mc_load_real(&values, h, 0, 0) : (double)mc_load(&values, h, 0, 0);
        if (isfinite((float)out[h])) continue;
        diag_error(s->d, FCP_E_SCORE, e->at, "the sink of head %u is beyond the largest number of a kernel, 3.4e38", h);
        return false;
    }
    return true;
}

void expr_lower_sink(sema *s, const expr *e) {
    struct fcpc_program *p = s->out;
    double *sink = ARENA_NEW(&p->arena, double, p->heads);
    if (!sink) {
        sema_no_memory(s);
        return;
    }
    if (ast_is_call(e, words_sources[SOURCE_FILE])) {
        if (!sink_file(s, e, sink)) return;
    } else if (e->kind == EXPR_LIST) {
        if (!sink_list(s, e, sink)) return;
    } else if (e->kind == EXPR_TUPLE) {
        diag_error(s->d, FCP_E_TYPE, e->at, "the sinks of the heads stand in brackets");
        diag_hint(s->d, "sink = [0.5, -1.0, ...]");
        return;
    } else {
        if (!sink_value(s, e, sink)) return;
        for (uint32_t h = 1; h < p->heads; h++) sink[h] = sink[0];
    }
    p->sink = sink;
}
