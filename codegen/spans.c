/* spans.c: solves a mask for the keys of a query, or the queries of a key.
 *
 * Requires: mask code that mc_check allows.
 * Method:   the mask is a tree of comparisons, `and` and `or`. A comparison bounds the variable if it can be solved for
 *           it: q - k < 8 says k > q - 8. That is so if the difference of its sides is the variable, or minus the
 *           variable, plus terms that do not depend on it. k / 16 < x bounds k, too, and abs(q - k) < 8 bounds it on
 *           two sides. `and` intersects spans, `or` unites them.
 * Cost:     O(nodes).
 */
#include "codegen/spans.h"

#include <stdlib.h>

typedef struct solver {
    mc_code code;
    mc_op variable;
    const bool *exact;
    bool *depends; /* does the node depend on the variable? */
} solver;

/* slope * variable + rest */
typedef struct line {
    int slope;
    spans_sum rest;
} line;

static bool add_constant(spans_sum *s, int64_t x) { return !__builtin_add_overflow(s->constant, x, &s->constant); }

static bool add_line(const solver *v, line *to, uint32_t i, bool minus) {
    const mc_node *x = &v->code.nodes[i];
    if (x->op == MC_CONST_I) return x->imm != INT64_MIN && add_constant(&to->rest, minus ? -x->imm : x->imm);
    if (!v->depends[i]) {
        if (to->rest.count == SPANS_TERMS) return false;
        to->rest.node[to->rest.count] = i;
        to->rest.minus[to->rest.count++] = minus;
        return true;
    }
    if (x->op == v->variable) return to->slope += minus ? -1 : 1, true;
    if (!v->exact[i]) return false;
    if (x->op == MC_ADD) return add_line(v, to, x->a, minus) && add_line(v, to, x->b, minus);
    if (x->op == MC_SUB) return add_line(v, to, x->a, minus) && add_line(v, to, x->b, !minus);
    return x->op == MC_NEG && add_line(v, to, x->a, !minus);
}

static spans_sum negative(spans_sum s) {
    for (uint32_t i = 0; i < s.count; i++) s.minus[i] = !s.minus[i];
    s.constant = -s.constant; /* never INT64_MIN: add_line and less keep it smaller */
    return s;
}

/* What l < factor * scaled says of the variable, or with `not` its contrary. */
static bool solve_line(const line *l, const spans_sum *scaled, int64_t factor, bool not, spans *out) {
    const int64_t most = INT64_MAX / 4;
    spans_bound b = {.factor = factor};
    if (scaled) b.scaled = *scaled;
    if ((l->slope != 1 && l->slope != -1) || l->rest.constant > most || l->rest.constant < -most) return false;
    *out = (spans){.count = 1};
    spans_part *p = &out->part[0];
    if (l->slope == 1) { /* variable < factor * scaled - rest */
        b.sum = negative(l->rest);
    } else { /* variable > rest - factor * scaled */
        b.sum = l->rest;
        b.sum.constant++;
        b.factor = -factor;
    }
    if ((l->slope == 1) != not) p->upper[p->uppers++] = b;
    else p->lower[p->lowers++] = b;
    return true;
}

static bool both(const spans *a, const spans *b, spans *out) {
    *out = (spans){0};
    if (a->count * b->count > SPANS_MOST) return false;
    for (uint32_t i = 0; i < a->count; i++)
        for (uint32_t j = 0; j < b->count; j++) {
            spans_part *p = &out->part[out->count++];
            const spans_part *y = &b->part[j];
            *p = a->part[i];
            if (p->lowers + y->lowers > SPANS_BOUNDS || p->uppers + y->uppers > SPANS_BOUNDS ||
                p->conditions + y->conditions > SPANS_BOUNDS)
                return false;
            for (uint32_t n = 0; n < y->lowers; n++) p->lower[p->lowers++] = y->lower[n];
            for (uint32_t n = 0; n < y->uppers; n++) p->upper[p->uppers++] = y->upper[n];
            for (uint32_t n = 0; n < y->conditions; n++) {
                p->condition[p->conditions] = y->condition[n];
                p->negated[p->conditions++] = y->negated[n];
            }
        }
    return true;
}

static bool either(const spans *a, const spans *b, spans *out) {
    *out = *a;
    if (a->count + b->count > SPANS_MOST) return false;
    for (uint32_t i = 0; i < b->count; i++) out->part[out->count++] = b->part[i];
    return true;
}

/* x < y + more, where x is |a| or a / constant, and y does not depend on the variable. */
static bool less_special(const solver *v, uint32_t x, uint32_t y, int64_t more, bool not, spans *out) {
    const mc_node *n = &v->code.nodes[x];
    line l = {0}, right = {0};
    if (!v->exact[x] || !add_line(v, &right, y, false) || !add_constant(&right.rest, more)) return false;
    if (n->op == MC_DIV) { /* it rounds down, so a / m < y where a < m * y */
        const mc_node *by = &v->code.nodes[n->b];
        bool known = by->op == MC_CONST_I && by->imm > 0 && by->imm <= INT32_MAX;
        return known && add_line(v, &l, n->a, false) && solve_line(&l, &right.rest, by->imm, not, out);
    }
    line minus = {0};
    spans a, b;
    if (n->op != MC_ABS || !add_line(v, &l, n->a, false) || !add_line(v, &minus, n->a, true)) return false;
    return solve_line(&l, &right.rest, 1, not, &a) && solve_line(&minus, &right.rest, 1, not, &b) &&
           (not ? either(&a, &b, out) : both(&a, &b, out));
}

/* x < y + more, or with `not` its contrary. */
static bool less(const solver *v, uint32_t x, uint32_t y, int64_t more, bool not, spans *out) {
    line l = {0};
    if (add_line(v, &l, x, false) && add_line(v, &l, y, true) && add_constant(&l.rest, -more))
        return solve_line(&l, NULL, 0, not, out);
    if (!v->depends[y]) return less_special(v, x, y, more, not, out);
    return !v->depends[x] && less_special(v, y, x, 1 - more, !not, out); /* not y < x - more + 1 */
}

static bool equal(const solver *v, uint32_t x, uint32_t y, bool not, spans *out) {
    spans a, b; /* x < y + 1 and not x < y; or x < y or not x < y + 1 */
    if (!less(v, x, y, !not, false, &a) || !less(v, x, y, not, true, &b)) return false;
    return not ? either(&a, &b, out) : both(&a, &b, out);
}

static bool solve(const solver *v, uint32_t i, bool not, spans *out) {
    const mc_node *x = &v->code.nodes[i];
    spans a, b;
    if (x->op == MC_CONST_B) return *out = (spans){.count = (x->imm != 0) != not}, true;
    if (!v->depends[i]) {
        *out = (spans){.count = 1};
        out->part[0].condition[0] = i;
        out->part[0].negated[0] = not;
        out->part[0].conditions = 1;
        return true;
    }
    switch ((mc_op)x->op) {
    case MC_NOT: return solve(v, x->a, !not, out);
    case MC_AND:
    case MC_OR:
        if (!solve(v, x->a, not, &a) || !solve(v, x->b, not, &b)) return false;
        return (x->op == MC_AND) != not ? both(&a, &b, out) : either(&a, &b, out);
    case MC_LT: return less(v, x->a, x->b, 0, not, out);
    case MC_LE: return less(v, x->a, x->b, 1, not, out);
    case MC_EQ: return equal(v, x->a, x->b, not, out);
    case MC_NE: return equal(v, x->a, x->b, !not, out);
    default: return false;
    }
}

bool spans_find(mc_code code, mc_op variable, const bool *exact, spans *out) {
    solver v = {code, variable, exact, calloc(code.count + (size_t)1, sizeof *v.depends)};
    bool found = v.depends != NULL;
    for (uint32_t i = 0; found && i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        v.depends[i] = (mc_op)x->op == variable || (x->a != MC_NONE && v.depends[x->a]) ||
                       (x->b != MC_NONE && v.depends[x->b]) || (x->c != MC_NONE && v.depends[x->c]);
    }
    found = found && solve(&v, code.count - 1, false, out);
    free(v.depends);
    return found;
}
