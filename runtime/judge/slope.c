/* slope.c: derives a score by s, or by what it reads, in the judge's own way; and makes a score whose functions are
 * inexact, as on GPUs.
 *
 * A plan brings the derivative that the compiler made, and the backward pass computes with it. If the judge used that
 * derivative, too, it could not see that it is wrong. So this file shares nothing with codegen/mask/derive.c, by which
 * the compiler makes it.
 *
 * Requires: a score that mc_check accepts.
 * Method:   forward-mode differentiation: behind the score's nodes comes, for each real node that depends on s, a node
 *           for its derivative, by the textbook's rule, from the operands and their derivatives. Nothing is simplified
 *           or cancelled. A read of a table takes the place of s if it is what the score is derived by. Special cases:
 *             an operand's derivative is 0   its term is 0, even where the rule would multiply it by an infinity, as
 *                                            for sqrt(max(s, 0.0))
 *             min, max, abs, if              the derivative of the branch that they take; abs at 0: that of +x
 *             floor                          0, because it is constant
 * Cost:     O(nodes); at most nine nodes for one of the score.
 */
#include "runtime/judge/judge_parts.h"

#include <stdlib.h>

enum { MOST = 9 }; /* nodes that one rule adds */

typedef struct duals {
    mc_node *nodes;
    uint32_t count;
    uint32_t *of; /* per node of the score: its derivative; MC_NONE: s does not reach it */
    uint32_t zero, one, two, ln2;
    uint32_t by; /* the node by which the score is derived; MC_NONE: s */
} duals;

static uint32_t add(duals *d, mc_op op, uint32_t a, uint32_t b, uint32_t c) {
    d->nodes[d->count] = (mc_node){.op = op, .a = a, .b = b, .c = c, .guard = MC_NONE};
    return d->count++;
}

static uint32_t number(duals *d, double x) {
    const uint32_t at = add(d, MC_CONST_F, MC_NONE, MC_NONE, MC_NONE);
    d->nodes[at].imm = mc_real_bits(x);
    return at;
}

/* x * by, or x / by; 0 where x is, whatever `by` is. */
static uint32_t combine(duals *d, mc_op op, uint32_t x, uint32_t by) {
    if (x == d->one && op == MC_MUL_F) return by;
    const uint32_t is_zero = add(d, MC_EQ_F, x, d->zero, MC_NONE), value = add(d, op, x, by, MC_NONE);
    return add(d, MC_IF_F, is_zero, d->zero, value);
}

static uint32_t sum(duals *d, uint32_t x, uint32_t y) {
    return x == MC_NONE ? y : y == MC_NONE ? x : add(d, MC_ADD_F, x, y, MC_NONE);
}

static uint32_t choice(duals *d, uint32_t condition, uint32_t x, uint32_t y) {
    return add(d, MC_IF_F, condition, x == MC_NONE ? d->zero : x, y == MC_NONE ? d->zero : y);
}

static uint32_t negative(duals *d, uint32_t x) { return x == MC_NONE ? x : add(d, MC_NEG_F, x, MC_NONE, MC_NONE); }

/* The derivative of node i of the score. da, db, dc: those of its operands. */
static uint32_t rule(duals *d, const mc_node *x, uint32_t i, uint32_t da, uint32_t db, uint32_t dc) {
    uint32_t left = MC_NONE, right = MC_NONE;
    if (i == d->by) return d->one;
    switch ((mc_op)x->op) {
    case MC_S: return d->by == MC_NONE ? d->one : MC_NONE;
    case MC_ADD_F: return sum(d, da, db);
    case MC_SUB_F: return sum(d, da, negative(d, db));
    case MC_NEG_F: return negative(d, da);
    case MC_MUL_F:
        if (da != MC_NONE) left = combine(d, MC_MUL_F, da, x->b);
        if (db != MC_NONE) right = combine(d, MC_MUL_F, db, x->a);
        return sum(d, left, right);
    case MC_DIV_F: /* (da - (a / b) db) / b */
        if (db != MC_NONE) right = negative(d, combine(d, MC_MUL_F, db, i));
        left = sum(d, da, right);
        return left == MC_NONE ? left : combine(d, MC_DIV_F, left, x->b);
    case MC_MIN_F:
        if (da == MC_NONE && db == MC_NONE) return MC_NONE;
        return choice(d, add(d, MC_LT_F, x->b, x->a, MC_NONE), db, da);
    case MC_MAX_F:
        if (da == MC_NONE && db == MC_NONE) return MC_NONE;
        return choice(d, add(d, MC_LT_F, x->a, x->b, MC_NONE), db, da);
    case MC_IF_F: return db == MC_NONE && dc == MC_NONE ? MC_NONE : choice(d, x->a, db, dc);
    default: break;
    }
    if (da == MC_NONE) return MC_NONE;
    switch ((mc_op)x->op) {
    case MC_ABS_F: return choice(d, add(d, MC_LT_F, x->a, d->zero, MC_NONE), negative(d, da), da);
    case MC_SQRT_F: return combine(d, MC_DIV_F, da, add(d, MC_MUL_F, d->two, i, MC_NONE));
    case MC_EXP_F: return combine(d, MC_MUL_F, da, i);
    case MC_EXP2_F: return combine(d, MC_MUL_F, da, add(d, MC_MUL_F, d->ln2, i, MC_NONE));
    case MC_LOG_F: return combine(d, MC_DIV_F, da, x->a);
    case MC_LOG2_F: return combine(d, MC_DIV_F, da, add(d, MC_MUL_F, d->ln2, x->a, MC_NONE));
    case MC_TANH_F:
    case MC_TANH_APPROX_F:
        left = add(d, MC_MUL_F, i, i, MC_NONE);
        return combine(d, MC_MUL_F, da, add(d, MC_SUB_F, d->one, left, MC_NONE));
    default: return MC_NONE; /* a floor */
    }
}

/* Leaves out what `root` does not need, so that what the code reads says what the derivative depends on. */
static void keep_needed(duals *d, uint32_t root, uint32_t *number_of, mc_code *out) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < d->count; i++) number_of[i] = i == root;
    for (uint32_t i = d->count; i-- > 0;) {
        const mc_node *x = &d->nodes[i];
        const uint32_t needs[] = {x->a, x->b, x->c, x->guard};
        for (int j = 0; number_of[i] && j < 4; j++)
            if (needs[j] != MC_NONE) number_of[needs[j]] = 1;
    }
    for (uint32_t i = 0; i <= root; i++) {
        if (!number_of[i]) continue;
        mc_node x = d->nodes[i];
        uint32_t *const needs[] = {&x.a, &x.b, &x.c, &x.guard};
        for (int j = 0; j < 4; j++)
            if (*needs[j] != MC_NONE) *needs[j] = number_of[*needs[j]];
        number_of[i] = kept;
        d->nodes[kept++] = x;
    }
    *out = (mc_code){d->nodes, kept};
}

bool check_slope(mc_code score, uint32_t by, mc_code *out) {
    *out = (mc_code){NULL, 0};
    if (!score.count) return true;
    const size_t room = score.count + (size_t)MOST * score.count + 4;
    duals d = {.nodes = malloc(room * sizeof *d.nodes), .of = malloc(score.count * sizeof *d.of), .by = by};
    uint32_t *number_of = malloc(room * sizeof *number_of);
    const bool good = d.nodes && d.of && number_of;
    if (good) {
        memcpy(d.nodes, score.nodes, score.count * sizeof *d.nodes);
        d.count = score.count;
        d.zero = number(&d, 0), d.one = number(&d, 1), d.two = number(&d, 2), d.ln2 = number(&d, 0x1.62e42fefa39efp-1);
        for (uint32_t i = 0; i < score.count; i++) {
            const mc_node *x = &score.nodes[i];
            d.of[i] = MC_NONE;
            if (mc_op_type(x->op) != 'f') continue;
            d.of[i] = rule(&d, x, i, x->a == MC_NONE ? MC_NONE : d.of[x->a], x->b == MC_NONE ? MC_NONE : d.of[x->b],
                           x->c == MC_NONE ? MC_NONE : d.of[x->c]);
        }
        const uint32_t root = d.of[score.count - 1];
        keep_needed(&d, root == MC_NONE ? d.zero : root, number_of, out);
    } else free(d.nodes);
    free(d.of);
    free(number_of);
    return good;
}

static bool is_rough(uint32_t op) {
    switch ((mc_op)op) {
    case MC_SQRT_F: case MC_EXP_F: case MC_EXP2_F: case MC_LOG_F: case MC_LOG2_F: case MC_TANH_F: return true;
    default: return false;
    }
}

/* Copies code, with the marked nodes times `factor`. */
static bool scale_nodes(mc_code code, const bool *marked, double factor, mc_code *out) {
    mc_node *nodes = malloc((2 * (size_t)code.count + 1) * sizeof *nodes);
    uint32_t *number_of = malloc((code.count + (size_t)1) * sizeof *number_of), count = 1;
    *out = (mc_code){NULL, 0};
    if (nodes && number_of) {
        nodes[0] = (mc_node){.op = MC_CONST_F,
                             .a = MC_NONE,
                             .b = MC_NONE,
                             .c = MC_NONE,
                             .guard = MC_NONE,
                             .imm = mc_real_bits(factor)};
        for (uint32_t i = 0; i < code.count; i++) {
            nodes[number_of[i] = count++] = mc_renumbered(code.nodes[i], number_of);
            if (!marked[i]) continue;
            nodes[count] = (mc_node){.op = MC_MUL_F, .a = count - 1, .b = 0, .c = MC_NONE, .guard = MC_NONE};
            number_of[i] = count++;
        }
        *out = (mc_code){nodes, count};
    } else free(nodes);
    free(number_of);
    return out->nodes != NULL;
}

bool check_rough(mc_code score, mc_code *out) {
    bool *marked = malloc(score.count + (size_t)1), any = false;
    *out = (mc_code){NULL, 0};
    for (uint32_t i = 0; marked && i < score.count; i++) any |= marked[i] = is_rough(score.nodes[i].op);
    const bool good = marked && (!any || scale_nodes(score, marked, 1 + 0x1p-16, out));
    free(marked);
    return good;
}

bool check_coarse(mc_code code, check_coarse_code *out) {
    *out = (check_coarse_code){0};
    for (uint32_t i = 0; i < code.count; i++) out->count += code.nodes[i].op == MC_TANH_APPROX_F;
    if (!out->count) return true;
    bool *marked = calloc(code.count, sizeof *marked), good;
    out->up = calloc(2 * (size_t)out->count, sizeof *out->up);
    good = marked && out->up;
    if (good) out->down = out->up + out->count;
    for (uint32_t i = 0, at = 0; good && i < code.count; i++) {
        if (code.nodes[i].op != MC_TANH_APPROX_F) continue;
        marked[i] = true;
        good = scale_nodes(code, marked, 1 + 0x1p-11, &out->up[at]) &&
               scale_nodes(code, marked, 1 - 0x1p-11, &out->down[at]);
        marked[i] = false;
        at++;
    }
    free(marked);
    return good;
}

void check_coarse_free(check_coarse_code *code) {
    for (uint32_t i = 0; code->up && i < 2 * code->count; i++) free((mc_node *)(uintptr_t)code->up[i].nodes);
    free(code->up);
}
