/* box.c: evaluates a mask on a box by abstract interpretation, and specialises it to the box.
 *
 * Requires: mask code that passed mc_check; boxes within the positions that the program was made for.
 * Gives: box.h. NONE and FULL are proofs. MIXED may also mean that no proof was found; then the caller splits the box.
 * How: each node gets a range from the ranges of its operands. For example, with q in [0, 128) and k in [256, 384):
 *      q - k is the form q - k, with values from -383 to -129, so that q - k >= 0 is false. Integers that are linear
 *      keep their form, because ranges alone lose what is common to two operands. For other integers a stride is kept:
 *      all their values differ by multiples of it. For a load it is also kept which values mod 64 occur.
 * Cost: O(nodes of the program) a box. Programs shrink with their boxes.
 * Units: positions count tokens; heads are numbers.
 * Method: interval arithmetic (Moore 1966); linear forms are kept symbolically, so that their comparison is decided at
 *       corners; strides as in Granger's arithmetical congruence analysis (1989). */
#include "compiler/box/box.h"
#include "compiler/box/bands.h"

#include <string.h>

/* --- values ----------------------------------------------------------------------------------------------------- */

static void set_bool(box_value *v, bool value) { v->lo = v->hi = value; }

static void set_const(box_value *v, int64_t value) {
    v->lo = v->hi = value;
    v->f = (form){.c = value};
    v->linear = true;
}

static void set_form(box_value *v, const form *f, const box *b) {
    v->f = *f;
    v->linear = true;
    form_range(f, b, &v->lo, &v->hi);
}

/* Sets v to the value of node x, for a node that equals x all over the box. */
static void set_same(box_value *v, const box_value *values, uint32_t x) {
    uint8_t flags = v->flags;
    *v = values[x];
    v->flags = flags; /* `same` is already resolved */
}

static void set_range(box_value *v, wide lo, wide hi) {
    if (lo == hi) set_const(v, (int64_t)lo);
    else v->lo = (int64_t)lo, v->hi = (int64_t)hi;
}

static bool fits_int64(wide lo, wide hi) { return lo >= INT64_MIN && hi <= INT64_MAX; }

static uint64_t value_set(const box_value *v) {
    if (v->lo == v->hi) return (uint64_t)1 << (v->lo & 63);
    return v->linear ? UINT64_MAX : v->set;
}

static uint64_t value_stride(const box_value *v, const box *b) {
    return v->linear ? form_stride(&v->f, b) : (uint64_t)v->stride;
}

/* The range of y - x on the box; it is exact if both are linear. */
static void difference_range(const box_value *x, const box_value *y, const box *b, wide *lo, wide *hi) {
    form d;
    int64_t low, high;
    if (x->linear && y->linear && form_sub(&y->f, &x->f, &d) && form_range_checked(&d, b, &low, &high)) {
        *lo = low;
        *hi = high;
        return;
    }
    *lo = (wide)y->lo - x->hi;
    *hi = (wide)y->hi - x->lo;
}

/* Evaluates ADD and SUB. Returns true if no element of the box can overflow. */
static bool evaluate_sum(box_value *v, const box_value *x, const box_value *y, bool subtract, const box *b) {
    wide lo = subtract ? (wide)x->lo - y->hi : (wide)x->lo + y->lo;
    wide hi = subtract ? (wide)x->hi - y->lo : (wide)x->hi + y->hi;
    form f;
    if (x->linear && y->linear && (subtract ? form_sub(&x->f, &y->f, &f) : form_add(&x->f, &y->f, &f))) {
        int64_t low, high;
        if (fits_int64(lo, hi) || form_range_checked(&f, b, &low, &high)) {
            set_form(v, &f, b);
            return true;
        }
    }
    if (!fits_int64(lo, hi)) return false;
    set_range(v, lo, hi);
    return true;
}

static bool evaluate_product(box_value *v, const box_value *x, const box_value *y, const box *b) {
    const wide p[4] = {(wide)x->lo * y->lo, (wide)x->lo * y->hi, (wide)x->hi * y->lo, (wide)x->hi * y->hi};
    wide lo = p[0], hi = p[0];
    for (int i = 1; i < 4; i++) {
        if (p[i] < lo) lo = p[i];
        if (p[i] > hi) hi = p[i];
    }
    if (!fits_int64(lo, hi)) return false;
    form f;
    if (x->linear && y->lo == y->hi && form_scale(&x->f, y->lo, &f)) set_form(v, &f, b);
    else if (y->linear && x->lo == x->hi && form_scale(&y->f, x->lo, &f)) set_form(v, &f, b);
    else if (x == y) set_range(v, x->lo <= 0 && x->hi >= 0 ? 0 : lo, hi);
    else set_range(v, lo, hi);
    return true;
}

/* Divides the coefficients of a form by m: f == m * quotient + rest. For f = 130 q + k and m = 128 the quotient is q
 * and the rest is 2 q + k. False if no coefficient reaches m, so that the rest would be f itself, or if the values of
 * the rest do not fit int64; they are from *lo to *hi. */
static bool form_reduce(const form *f, int64_t m, const box *b, form *quotient, form *rest, int64_t *lo, int64_t *hi) {
    bool any = false;
    quotient->c = mc_div(f->c, m);
    rest->c = mc_mod(f->c, m);
    for (int d = 0; d < BOX_DIMS; d++) {
        quotient->x[d] = f->x[d] / m;
        rest->x[d] = f->x[d] % m;
        any |= quotient->x[d] != 0;
    }
    return any && form_range_checked(rest, b, lo, hi);
}

/* v is x / m, which has more than one value on the box. If it has two, v becomes a step (box.h): in the box of q in
 * [350, 400), q / 64 is 5 where q - 384 < 0, and 6 elsewhere. */
static void note_step(box_value *v, const box_value *x, int64_t m) {
    const wide at = (wide)v->hi * m, lo = x->lo - at, c = x->f.c - at;
    if (m < 0 || !x->linear || (wide)v->hi - v->lo != 1 || !fits_int64(lo, x->hi - at) || !fits_int64(c, c)) return;
    v->step = true;
    v->f = x->f;
    v->f.c = (int64_t)c;
}

/* Evaluates x / m or, with `modulo`, x % m for a constant m that is neither 0 nor -1. */
static void divide_by(box_value *v, const box_value *x, int64_t m, bool modulo, const box *b) {
    int64_t first = mc_div(x->lo, m), last = mc_div(x->hi, m), start;
    if (first == last) { /* within one period */
        form f = x->f;
        if (!modulo) set_const(v, first);
        else if (x->linear && !__builtin_mul_overflow(first, m, &start) && !__builtin_sub_overflow(f.c, start, &f.c))
            set_form(v, &f, b);
        else set_range(v, mc_mod(x->lo, m), mc_mod(x->hi, m));
        return;
    }
    form quotient, rest;
    int64_t lo, hi;
    if (x->linear && form_reduce(&x->f, m, b, &quotient, &rest, &lo, &hi) && mc_div(lo, m) == mc_div(hi, m)) {
        int64_t t = mc_div(lo, m);
        if (!modulo && !__builtin_add_overflow(quotient.c, t, &quotient.c)) {
            set_form(v, &quotient, b);
            return;
        }
        if (modulo && !__builtin_mul_overflow(t, m, &start) && !__builtin_sub_overflow(rest.c, start, &rest.c)) {
            set_form(v, &rest, b);
            return;
        }
    }
    if (!modulo) {
        set_range(v, first < last ? first : last, first < last ? last : first);
        note_step(v, x, m);
        return;
    }
    uint64_t g = common_divisor(value_stride(x, b), magnitude(m));
    int64_t low = g <= INT64_MAX ? mc_mod(x->lo, (int64_t)g) : 0; /* values are low + a multiple of g */
    if (g > INT64_MAX) g = 1;
    if (m > 0) {
        set_range(v, low, m - (int64_t)g + low);
    } else {
        low -= low > 0 ? (int64_t)g : 0;
        set_range(v, (wide)m + (int64_t)g + low, low);
    }
    v->stride = (int64_t)g;
}

/* Evaluates DIV and MOD. Returns true if no element of the box can divide by zero or overflow. */
static bool evaluate_quotient(box_value *v, const box_value *x, const box_value *y, bool modulo, const box *b) {
    bool zero = y->lo <= 0 && y->hi >= 0;
    if (y->lo == y->hi && !zero && !(y->lo == -1 && x->lo == INT64_MIN)) {
        if (y->lo == -1) {
            form f;
            if (modulo) set_const(v, 0);
            else if (x->linear && form_scale(&x->f, -1, &f)) set_form(v, &f, b);
            else set_range(v, -(wide)x->hi, -(wide)x->lo);
        } else {
            divide_by(v, x, y->lo, modulo, b);
        }
        return true;
    }
    bool overflow = !modulo && x->lo == INT64_MIN && y->lo <= -1 && y->hi >= -1;
    wide lo = 0, hi = 0;
    if (modulo) { /* 0 <= x % y < y, or y < x % y <= 0 */
        if (y->hi > 1) hi = y->hi - 1;
        if (y->lo < -1) lo = (wide)y->lo + 1;
        if (!zero && y->lo > 0 && x->lo >= 0 && x->hi < hi) hi = x->hi;
        set_range(v, lo, hi);
        return !zero;
    }
    if (overflow) return false; /* the whole range */
    bool any = zero; /* x / 0 is 0 */
    const int64_t part[2][2] = {{y->lo, y->hi < -1 ? y->hi : -1}, {y->lo > 1 ? y->lo : 1, y->hi}};
    for (int s = 0; s < 2; s++) {
        if (part[s][0] > part[s][1]) continue;
        for (int i = 0; i < 4; i++) {
            wide r = mc_div(i & 1 ? x->hi : x->lo, part[s][i >> 1]);
            if (!any || r < lo) lo = r;
            if (!any || r > hi) hi = r;
            any = true;
        }
    }
    set_range(v, lo, hi);
    return !zero;
}

static void evaluate_extreme(box_value *v, const box_value *values, uint32_t a, uint32_t b_, bool greater,
                             const box *b) {
    const box_value *x = &values[a], *y = &values[b_];
    wide lo, hi;
    difference_range(x, y, b, &lo, &hi);
    if (lo >= 0) set_same(v, values, greater ? b_ : a);
    else if (hi <= 0) set_same(v, values, greater ? a : b_);
    else if (greater) set_range(v, x->lo > y->lo ? x->lo : y->lo, x->hi > y->hi ? x->hi : y->hi);
    else set_range(v, x->lo < y->lo ? x->lo : y->lo, x->hi < y->hi ? x->hi : y->hi);
}

/* Evaluates the comparison of a form with 0: form >= 0, form == 0 or form != 0. */
static void test_form(box_value *v, unsigned op, const form *f, const box *b) {
    int64_t lo, hi;
    form_range(f, b, &lo, &hi);
    if (op == BOX_GE) {
        if (lo >= 0) set_bool(v, true);
        else if (hi < 0) set_bool(v, false);
        return;
    }
    if (lo == hi) {
        set_bool(v, (lo == 0) == (op == BOX_EQ));
        return;
    }
    uint64_t g;
    if (lo > 0 || hi < 0 || ((g = form_stride(f, b)) > 1 && magnitude(lo) % g != 0)) set_bool(v, op == BOX_NE);
}

static bool compare_numbers(unsigned op, int64_t x, int64_t y) {
    return op == MC_EQ ? x == y : op == MC_NE ? x != y : op == MC_LT ? x < y : x <= y;
}

/* Compares a step with a constant: q / 64 == 5 of the example is the comparison 383 - q >= 0. False: neither operand is
 * a step, or the other is no constant, or a coefficient overflows. */
static bool compare_step(box_value *v, unsigned op, const box_value *x, const box_value *y, const box *b) {
    const box_value *s = x->step ? x : y, *with = x->step ? y : x;
    if (!s->step || s->linear || with->lo != with->hi) return false;
    const bool before = compare_numbers(op, x->lo, y->lo), after = compare_numbers(op, x->hi, y->hi);
    form f = s->f;
    if (before == after) set_bool(v, before);
    if (before == after) return true;
    if (before && (!form_scale(&f, -1, &f) || __builtin_sub_overflow(f.c, (int64_t)1, &f.c))) return false;
    v->linear = v->step = true;
    v->f = f;
    test_form(v, BOX_GE, &f, b);
    return true;
}

/* Evaluates a comparison of two integers. If both are linear, the result is a comparison of one form with 0, which is
 * kept. */
static void compare_ints(box_value *v, unsigned op, const box_value *x, const box_value *y, const box *b) {
    if (compare_step(v, op, x, y, b)) return;
    if (x->linear && y->linear) {
        form d;
        bool ok = form_sub(&y->f, &x->f, &d);
        if (op == MC_LT) ok = ok && !__builtin_sub_overflow(d.c, (int64_t)1, &d.c);
        wide lo = (wide)y->lo - x->hi - 1, hi = (wide)y->hi - x->lo;
        if (ok && fits_int64(lo, hi)) {
            v->linear = true;
            v->f = d;
            test_form(v, op == MC_EQ ? BOX_EQ : op == MC_NE ? BOX_NE : BOX_GE, &d, b);
            return;
        }
    }
    switch (op) {
    case MC_LT:
        if (x->hi < y->lo) set_bool(v, true);
        else if (x->lo >= y->hi) set_bool(v, false);
        return;
    case MC_LE:
        if (x->hi <= y->lo) set_bool(v, true);
        else if (x->lo > y->hi) set_bool(v, false);
        return;
    default: break;
    }
    if (x->hi < y->lo || x->lo > y->hi) {
        set_bool(v, op == MC_NE);
        return;
    }
    if (x->lo == x->hi && y->lo == y->hi) {
        set_bool(v, op == MC_EQ);
        return;
    }
    if (!(value_set(x) & value_set(y))) {
        set_bool(v, op == MC_NE);
        return;
    }
    uint64_t g = common_divisor(value_stride(x, b), value_stride(y, b));
    if (g > 1) {
        wide apart = (wide)x->lo - y->lo;
        if (apart % (wide)g != 0) set_bool(v, op == MC_NE);
    }
}

/* --- evaluation ------------------------------------------------------------------------------------------------- */

/* The range of the elements that a load may read; false if it can read none. *out_all: every index that occurs is one
 * of the array's. */
static bool load_range(const box_array *a, const box_value *const *index, uint64_t *from, uint64_t *to, bool *out_all) {
    const mc_array *m = &a->array;
    const int64_t first[3] = {0, m->first, m->column_first}; /* of planes, rows and columns */
    const int64_t count[3] = {m->planes, m->count, m->columns};
    uint64_t least = 0, greatest = 0; /* the places of the first and the last element */
    *out_all = true;
    for (int d = m->planes ? 0 : 1, i = 0; d < (m->columns ? 3 : 2); d++, i++) {
        const wide end = (wide)first[d] + count[d];
        wide lo = index[i]->lo, hi = index[i]->hi;
        if (lo < first[d]) lo = first[d], *out_all = false;
        if (hi >= end) hi = end - 1, *out_all = false;
        if (lo > hi) return false;
        least = least * (uint64_t)count[d] + (uint64_t)(lo - first[d]);
        greatest = greatest * (uint64_t)count[d] + (uint64_t)(hi - first[d]);
    }
    *from = least;
    *to = greatest + 1;
    return true;
}

/* Evaluates a load. Returns true if the array has every element that may be read. It stays a function of its own:
 * otherwise gcc puts it into evaluate_int, which is then too long to be part of the loop over nodes, and masks without
 * arrays cost 4% more. */
__attribute__((noinline)) static bool evaluate_load(box_value *v, const box_node *x, const box_array *a,
                                                    const box_value *values, const box *b) {
    const uint32_t operand[3] = {x->a, x->b, x->c};
    const box_value *index[3], *along = NULL; /* along: the index of the last dimension */
    uint64_t from, to, end;
    bool all, one_row = true;
    for (int i = 0; i < 3 && operand[i] != MC_NONE; i++) {
        if (along && along->lo != along->hi) one_row = false;
        along = index[i] = &values[operand[i]];
    }
    if (!load_range(a, index, &from, &to, &all)) {
        set_const(v, 0);
        return false;
    }
    const array_run *r = box_array_run(a, from, &end);
    array_facts f;
    if (r && to <= end) { /* an index that is linear makes the element linear, too */
        int64_t first = run_at(r, from), last = run_at(r, to - 1), at;
        form g;
        if (all && first == last) {
            set_const(v, first);
            return true;
        }
        if (all && one_row && along->linear && form_scale(&along->f, r->s, &g) &&
            !__builtin_mul_overflow(along->lo, r->s, &at) && !__builtin_sub_overflow(first, at, &at) &&
            !__builtin_add_overflow(g.c, at, &g.c)) {
            set_form(v, &g, b);
            return true;
        }
        f = (array_facts){first < last ? first : last, first < last ? last : first, UINT64_MAX};
    } else {
        f = box_array_facts(a, from, to);
    }
    if (!all) { /* 0 where there is no element */
        f.lo = f.lo < 0 ? f.lo : 0;
        f.hi = f.hi > 0 ? f.hi : 0;
        f.set |= 1;
    }
    set_range(v, f.lo, f.hi);
    v->set = f.set;
    return all;
}

/* Do two loads of one array never have the same value, because the ranges of the ranks of what they read (array.h) are
 * disjoint? */
static bool surely_unlike(const box_array *a, const box_value *x, const box_value *y) {
    uint64_t from[2], to[2];
    bool all;
    rank_range r[2];
    if (!a->ranks || a->array.columns) return false;
    for (int i = 0; i < 2; i++)
        if (!load_range(a, &(const box_value *){i ? y : x}, &from[i], &to[i], &all) || !all ||
            !box_array_ranks(a, from[i], to[i], &r[i]))
            return false;
    return r[0].hi < r[1].lo || r[1].hi < r[0].lo;
}

static bool is_true(const box_value *v) { return v->lo == 1; }
static bool is_false(const box_value *v) { return v->hi == 0; }

static void evaluate_bool(box_value *v, const box_node *x, const box_program *program, const box_value *values,
                          const box *b) {
    v->lo = 0;
    v->hi = 1;
    v->linear = v->step = false;
    switch (x->op) {
    case MC_CONST_B: set_bool(v, x->f.c != 0); break;
    case BOX_GE:
    case BOX_EQ:
    case BOX_NE: test_form(v, x->op, &x->f, b); break;
    case MC_NOT:
        v->lo = !values[x->a].hi;
        v->hi = !values[x->a].lo;
        break;
    case MC_AND:
        if (is_false(&values[x->a]) || is_false(&values[x->b])) set_bool(v, false);
        else if (is_true(&values[x->a])) set_same(v, values, x->b);
        else if (is_true(&values[x->b])) set_same(v, values, x->a);
        else if (values[x->a].same == values[x->b].same) set_same(v, values, x->a);
        break;
    case MC_OR:
        if (is_true(&values[x->a]) || is_true(&values[x->b])) set_bool(v, true);
        else if (is_false(&values[x->a])) set_same(v, values, x->b);
        else if (is_false(&values[x->b])) set_same(v, values, x->a);
        else if (values[x->a].same == values[x->b].same) set_same(v, values, x->a);
        break;
    case MC_IFF: {
        const box_value *p = &values[x->a], *r = &values[x->b];
        if (p->lo == p->hi && r->lo == r->hi) set_bool(v, p->lo == r->lo);
        else if (is_true(p)) set_same(v, values, x->b);
        else if (is_true(r)) set_same(v, values, x->a);
        else if (p->same == r->same) set_bool(v, true);
        break;
    }
    case MC_IF_B: {
        const box_value *p = &values[x->a], *r = &values[x->b], *s = &values[x->c];
        if (is_true(p)) set_same(v, values, x->b);
        else if (is_false(p)) set_same(v, values, x->c);
        else if (r->same == s->same) set_same(v, values, x->b);
        else if (r->lo == r->hi && s->lo == s->hi) {
            if (r->lo == s->lo) set_bool(v, r->lo != 0);
            else if (r->lo == 1) set_same(v, values, x->a);
        }
        break;
    }
    case MC_EQ:
    case MC_NE:
    case MC_LT:
    case MC_LE: {
        const box_node *y = &program->nodes[x->a], *z = &program->nodes[x->b];
        if (values[x->a].same == values[x->b].same) {
            set_bool(v, x->op == MC_EQ || x->op == MC_LE);
            break;
        }
        compare_ints(v, x->op, &values[x->a], &values[x->b], b);
        if (v->lo == v->hi || y->op != MC_LOAD || z->op != MC_LOAD || y->f.c != z->f.c || x->op > MC_NE) break;
        if (surely_unlike(&program->arrays[y->f.c], &values[y->a], &values[z->a])) set_bool(v, x->op == MC_NE);
        break;
    }
    default: break; /* of bands nothing is known */
    }
}

/* Evaluates a node that is an int. Returns true if the node cannot fault in the box. If it may, its range is all of
 * int64. */
static bool evaluate_int(box_value *v, const box_node *x, const box_program *program, const box_value *values,
                         const box *b) {
    v->lo = INT64_MIN;
    v->hi = INT64_MAX;
    v->stride = 1;
    v->linear = v->step = false;
    v->set = UINT64_MAX;
    switch (x->op) {
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3: return evaluate_load(v, x, &program->arrays[x->f.c], values, b);
    case MC_ADD: return evaluate_sum(v, &values[x->a], &values[x->b], false, b);
    case MC_SUB: return evaluate_sum(v, &values[x->a], &values[x->b], true, b);
    case MC_MUL: return evaluate_product(v, &values[x->a], &values[x->b], b);
    case MC_DIV: return evaluate_quotient(v, &values[x->a], &values[x->b], false, b);
    case MC_MOD: return evaluate_quotient(v, &values[x->a], &values[x->b], true, b);
    case MC_NEG: {
        const box_value zero = {.linear = true};
        return evaluate_sum(v, &zero, &values[x->a], true, b);
    }
    case MC_ABS: {
        const box_value zero = {.linear = true}, *u = &values[x->a];
        if (u->lo >= 0) {
            set_same(v, values, x->a);
            return true;
        }
        if (u->hi <= 0) return evaluate_sum(v, &zero, u, true, b);
        if (u->lo == INT64_MIN) return false;
        set_range(v, 0, u->hi > -u->lo ? u->hi : -u->lo);
        return true;
    }
    case MC_MIN: evaluate_extreme(v, values, x->a, x->b, false, b); return true;
    case MC_MAX: evaluate_extreme(v, values, x->a, x->b, true, b); return true;
    case MC_IF_I: {
        const box_value *p = &values[x->a], *r = &values[x->b], *s = &values[x->c];
        if (is_true(p)) set_same(v, values, x->b);
        else if (is_false(p)) set_same(v, values, x->c);
        else if (r->same == s->same) set_same(v, values, x->b);
        else {
            set_range(v, r->lo < s->lo ? r->lo : s->lo, r->hi > s->hi ? r->hi : s->hi);
            v->set = value_set(r) | value_set(s);
        }
        return true;
    }
    default: return !mc_op_faults(x->op); /* nothing is known of it */
    }
}

box_class box_evaluate(const box_program *program, const box *b, box_value *values, bool *out_simpler) {
    bool loose = false, simpler = program->unread;
    if (program->count == 1) { /* most boxes: one comparison of forms */
        values->same = 0;
        values->flags = program->nodes[0].flags;
        bool bands = box_bands_leaf(program->nodes);
        if (bands) box_bands_evaluate(program, program->nodes, b, values);
        else evaluate_bool(values, program->nodes, program, values, b);
        *out_simpler = bands && values->linear;
        return values->lo != values->hi ? BOX_MIXED : values->lo ? BOX_FULL : BOX_NONE;
    }
    for (uint32_t i = 0; i < program->count; i++) {
        const box_node *x = &program->nodes[i];
        box_value *v = &values[i];
        v->same = i;
        v->flags = x->flags;
        if (box_is_bool(x->op)) {
            if (box_bands_leaf(x)) box_bands_evaluate(program, x, b, v);
            else evaluate_bool(v, x, program, values, b);
            if (x->op >= BOX_GE) simpler |= v->lo == v->hi;
            else simpler |= x->op != MC_CONST_B && (v->lo == v->hi || v->linear || v->same != i);
            continue;
        }
        if (x->op == BOX_LINEAR) {
            v->stride = 1;
            v->step = false;
            set_form(v, &x->f, b);
            continue;
        }
        if (evaluate_int(v, x, program, values, b)) v->flags |= BOX_SAFE | BOX_QUIET;
        else if (x->guard != MC_NONE && is_false(&values[x->guard])) v->flags |= BOX_QUIET;
        if (!(v->flags & BOX_SAFE) && v->linear && !form_is_const(&v->f)) v->linear = false;
        loose |= !(v->flags & BOX_QUIET);
        simpler |= v->linear || v->same != i || v->flags != x->flags;
        simpler |= x->guard != MC_NONE && is_true(&values[x->guard]);
    }
    *out_simpler = simpler;
    const box_value *root = &values[program->root];
    if (loose || root->lo != root->hi) return BOX_MIXED;
    return root->lo ? BOX_FULL : BOX_NONE;
}

/* --- programs --------------------------------------------------------------------------------------------------- */

size_t box_program_size(uint32_t count) { return sizeof(box_program) + count * sizeof(box_node); }

/* The element that a load at constant indices reads, as a number of each sequence does; false if the array lacks it. */
static bool read_constant(mc_code mask, const mc_node *x, const box_arrays *arrays, int64_t *out) {
    if (!box_loads_constant(mask, x)) return false;
    const mc_array *a = &arrays->at[x->imm].array;
    const uint32_t operand[3] = {x->a, x->b, x->c};
    int64_t index[3] = {0};
    uint64_t at;
    for (int i = 0; i < 3 && operand[i] != MC_NONE; i++) index[i] = mask.nodes[operand[i]].imm;
    if (!mc_place(a, index[0], index[1], index[2], &at)) return false;
    *out = mc_int_at(a, at);
    return true;
}

void box_program_make(mc_code mask, const mc_env *env, const box_arrays *arrays, box_program *out) {
    *out = (box_program){.count = mask.count, .root = mask.count - 1, .arrays = arrays ? arrays->at : NULL,
                         .bands = env->bands};
    for (uint32_t i = 0; i < mask.count; i++) {
        const mc_node *x = &mask.nodes[i];
        box_node *y = &out->nodes[i];
        *y = (box_node){.op = BOX_LINEAR, .flags = BOX_SAFE | BOX_QUIET, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE,
                        .guard = MC_NONE};
        switch ((mc_op)x->op) {
        case MC_CONST_I: y->f.c = x->imm; break;
        case MC_N: y->f.c = env->n; break;
        case MC_Q: y->f.x[BOX_Q] = 1; out->on_q = true; break;
        case MC_K: y->f.x[BOX_K] = 1; out->on_k = true; break;
        case MC_H: y->f.x[BOX_H] = 1; out->on_h = true; break;
        case MC_CONST_B:
            y->op = MC_CONST_B;
            y->f.c = x->imm;
            break;
        case MC_LOAD:
        case MC_LOAD2:
        case MC_LOAD3:
            if (read_constant(mask, x, arrays, &y->f.c)) break;
            y->f.c = x->imm;
            out->placed = true;
            /* fall through */
        default:
            if (mc_op_faults(x->op)) {
                y->flags = 0;
                out->loose = true;
            }
            y->op = (uint8_t)x->op;
            y->a = x->a;
            y->b = x->b;
            y->c = x->c;
            y->guard = x->guard;
            if (x->op == MC_BANDS) {
                box_bands_make(mask, x, y);
                out->unread |= y->a == MC_NONE;
            }
            break;
        }
    }
}

/* Is the node a leaf of the specialised program? It is if a constant or a form says all of it, so that its operands are
 * not needed. */
static bool is_leaf(const box_node *x, const box_value *v) {
    if (box_is_bool(x->op)) return v->lo == v->hi || v->linear || x->op >= BOX_GE;
    return v->linear && (v->flags & BOX_QUIET);
}

static unsigned form_op(unsigned op) {
    return op == MC_EQ ? BOX_EQ : op == MC_NE ? BOX_NE : op >= BOX_GE ? op : BOX_GE;
}

/* Does an index read another element when the box is moved along a diagonal? One that depends on q - k alone does
 * not. */
static bool moves_with_box(const box_node *index) {
    return index->op == BOX_LINEAR && index->f.x[BOX_Q] != (int64_t)(0 - (uint64_t)index->f.x[BOX_K]);
}

static void note_form(box_program *p, const form *f) {
    p->on_q |= f->x[BOX_Q] != 0;
    p->on_k |= f->x[BOX_K] != 0;
    p->on_h |= f->x[BOX_H] != 0;
    p->diagonal &= f->x[BOX_H] == 0 && f->x[BOX_Q] == (int64_t)(0 - (uint64_t)f->x[BOX_K]);
}

static void note_leaf(box_program *p, const box_node *bands) {
    p->on_q |= bands->f.x[0] == BOX_Q || bands->f.x[1] == BOX_Q;
    p->on_k |= bands->f.x[0] == BOX_K || bands->f.x[1] == BOX_K;
    p->diagonal = false;
}

/* Appends a node that is a leaf (is_leaf) to a specialised program. */
static void add_leaf(box_program *out, const box_node *x, const box_value *v) {
    box_node *y = &out->nodes[out->count++];
    *y = (box_node){.op = BOX_LINEAR, .flags = BOX_SAFE | BOX_QUIET, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE,
                    .guard = MC_NONE, .f = v->f};
    if (box_is_bool(x->op)) {
        const bool decided = v->lo == v->hi;
        y->flags = v->flags;
        y->op = decided ? MC_CONST_B : (uint8_t)(x->op < BOX_GE && v->step ? BOX_GE : form_op(x->op));
        y->f = decided ? (form){.c = v->lo} : x->op >= BOX_GE ? x->f : v->f;
        if (decided) return;
    }
    note_form(out, &y->f);
}

void box_specialise(const box_program *program, const box_value *values, uint32_t *numbers, box_program *out) {
    const uint32_t root = values[program->root].same;
    *out = (box_program){.root = MC_NONE, .diagonal = true, .arrays = program->arrays, .bands = program->bands,
                         .index = program->index};
    if (!program->loose && is_leaf(&program->nodes[root], &values[root])) { /* nothing can fault: this is all of it */
        add_leaf(out, &program->nodes[root], &values[root]);
        out->root = 0;
        return;
    }
    memset(numbers, 0, program->count * sizeof *numbers);
    numbers[root] = 1;
    for (uint32_t i = program->count; i-- > 0;) { /* marks what is needed: the root, and what may fault */
        const box_node *x = &program->nodes[i];
        const box_value *v = &values[i];
        bool loose = !(v->flags & BOX_QUIET);
        if (loose) numbers[i] = 1;
        if (!numbers[i] || (!loose && is_leaf(x, v))) continue;
        if (x->a != MC_NONE) numbers[values[x->a].same] = 1;
        if (x->b != MC_NONE) numbers[values[x->b].same] = 1;
        if (x->c != MC_NONE) numbers[values[x->c].same] = 1;
        if (loose && x->guard != MC_NONE && !is_true(&values[x->guard])) numbers[values[x->guard].same] = 1;
    }
    for (uint32_t i = 0; i < program->count; i++) {
        const box_node *x = &program->nodes[i];
        const box_value *v = &values[i];
        if (!numbers[i]) continue;
        numbers[i] = out->count;
        bool loose = !(v->flags & BOX_QUIET);
        if (!loose && is_leaf(x, v)) {
            add_leaf(out, x, v);
            continue;
        }
        box_node *y = &out->nodes[out->count++];
        *y = (box_node){.op = x->op, .flags = v->flags, .a = MC_NONE, .b = MC_NONE, .c = MC_NONE, .guard = MC_NONE};
        if (x->op == MC_BANDS) {
            y->f = x->f;
            if (box_bands_leaf(x)) note_leaf(out, x);
        }
        if (x->a != MC_NONE) y->a = numbers[values[x->a].same];
        if (x->b != MC_NONE) y->b = numbers[values[x->b].same];
        if (x->c != MC_NONE) y->c = numbers[values[x->c].same];
        if (loose && x->guard != MC_NONE && !is_true(&values[x->guard])) y->guard = numbers[values[x->guard].same];
        if (mc_loads_int(x->op)) {
            y->f.c = x->f.c;
            out->placed |= moves_with_box(&out->nodes[y->a]) ||
                           (y->b != MC_NONE && moves_with_box(&out->nodes[y->b])) ||
                           (y->c != MC_NONE && moves_with_box(&out->nodes[y->c]));
        }
        out->loose |= loose;
    }
    out->root = numbers[root];
}

void box_part(const box_program *program, uint32_t node, uint32_t *numbers, box_program *out) {
    memset(numbers, 0, program->count * sizeof *numbers);
    numbers[node] = 1;
    for (uint32_t i = node + 1; i-- > 0;) {
        const box_node *x = &program->nodes[i];
        const uint32_t operand[4] = {x->a, x->b, x->c, x->guard};
        for (int o = 0; o < 4 && numbers[i]; o++)
            if (operand[o] != MC_NONE) numbers[operand[o]] = 1;
    }
    *out = (box_program){.root = MC_NONE, .diagonal = true, .arrays = program->arrays, .placed = program->placed};
    for (uint32_t i = 0; i <= node; i++) {
        if (!numbers[i]) continue;
        box_node *y = &out->nodes[out->count];
        *y = program->nodes[i];
        uint32_t *const operand[4] = {&y->a, &y->b, &y->c, &y->guard};
        for (int o = 0; o < 4; o++)
            if (*operand[o] != MC_NONE) *operand[o] = numbers[*operand[o]];
        if (y->op >= BOX_LINEAR) note_form(out, &y->f);
        out->loose |= !box_is_bool(y->op) && !(y->flags & BOX_QUIET);
        numbers[i] = out->count++;
    }
    out->root = out->count - 1;
}
