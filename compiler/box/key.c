/* key.c: finds the positions at which boxes are split, and writes programs as keys that do not depend on position.
 *
 * Requires: a program specialised to the box (box.c).
 * Gives: box_turn, box_run_turn, box_period and box_key of box.h.
 * Cost: box_turn O(nodes + log of the box's side); the others O(nodes).
 * Units: positions count tokens; heads are numbers.
 */
#include "compiler/box/box.h"
#include "compiler/base/bisect.h"
#include "compiler/box/bands.h"

/* --- turns ------------------------------------------------------------------------------------------------------ */

enum { TURNS_MAX = 3 }; /* a node that changes more often in a box gives no position to split at */

static bool only_on(const form *f, int dim) {
    for (int d = 0; d < BOX_DIMS; d++)
        if ((f->x[d] != 0) != (d == dim)) return false;
    return true;
}

/* At some t, floor((c + x t) / m) is q. Returns the first t, counted upwards, at which it is not q any more. Example:
 * floor((10 + t) / 64) is 0 at t = 0, and it is 1 from t = 54 on. */
static int64_t leave_quotient(wide c, wide x, wide m, wide q) {
    if (m < 0) c = -c, x = -x, m = -m;
    const wide missing = x > 0 ? (q + 1) * m - c : c - q * m + 1, step = x > 0 ? x : -x;
    return (int64_t)(step == 1 ? missing : missing >= 0 ? (missing + step - 1) / step : missing / step);
}

/* Finds the first position in (lo, hi) at which floor(f / m) differs from what it is at lo. Example: for (q + 10) / 64
 * in a box from q = 0 on, it is q = 54. False if there is none, or if the quotient changes more than TURNS_MAX times in
 * the box. */
static bool first_turn(const form *f, int64_t m, const box *b, int dim, int64_t *at) {
    int64_t lo = b->lo[dim], hi = b->hi[dim] - 1, x = f->x[dim];
    const wide from = f->c + (wide)x * lo, to = f->c + (wide)x * hi;
    const int64_t first = mc_div((int64_t)from, m), last = mc_div((int64_t)to, m);
    wide turns = (wide)last - first;
    if (turns == 0 || turns > TURNS_MAX || turns < -TURNS_MAX) return false;
    if (from == (int64_t)from && to == (int64_t)to) { /* no sum wraps in between */
        *at = leave_quotient(f->c, x, m, first);
        return true;
    }
    lo++; /* at hi the quotient is not `first` */
    BISECT(lo, hi, i, mc_div(mc_wrap_add(f->c, mc_wrap_mul(x, i)), m) == first)
    *at = lo;
    return true;
}

/* The position at which f is 0; if that is lo, the position after it. False if there is none in the box. */
static bool zero_turn(const form *f, const box *b, int dim, int64_t *at) {
    int64_t v = mc_wrap_add(f->c, mc_wrap_mul(f->x[dim], b->lo[dim]));
    wide steps = -(wide)v / f->x[dim];
    if (-(wide)v % f->x[dim] != 0 || steps < 0 || steps >= b->hi[dim] - b->lo[dim]) return false;
    *at = b->lo[dim] + (int64_t)steps + (steps == 0);
    return *at < b->hi[dim];
}

/* The first position after lo at which the element lies in another run than before; if the index falls as the position
 * grows, the last such position. False if there is none, or there are more than TURNS_MAX. */
static bool run_turn(const box_array *a, const form *f, const box *b, int dim, int64_t *at) {
    int64_t x = f->x[dim], lo = mc_wrap_add(f->c, mc_wrap_mul(x, b->lo[dim]));
    int64_t hi = mc_wrap_add(f->c, mc_wrap_mul(x, b->hi[dim] - 1));
    int64_t least = x > 0 ? lo : hi, most = x > 0 ? hi : lo, first = a->array.first;
    uint64_t end;
    if ((x != 1 && x != -1) || least < first || (wide)most - first >= a->array.count) return false;
    const array_run *r = box_array_run(a, (uint64_t)(least - first), &end);
    uint32_t turns = 0;
    uint64_t last = 0, next = 0;
    for (; r && end <= (uint64_t)(most - first) && turns <= TURNS_MAX; turns++) {
        if (turns == 0) next = end;
        last = end;
        box_array_run(a, last, &end);
    }
    if (turns == 0 || turns > TURNS_MAX) return false;
    *at = b->lo[dim] + (x > 0 ? (int64_t)next - (least - first) : (most - first) - (int64_t)last + 1);
    return true;
}

bool box_turn(const box_program *program, const box *b, int dim, int64_t *at) {
    for (uint32_t i = 0; i < program->count; i++) {
        const box_node *x = &program->nodes[i];
        const box_node *u = x->a != MC_NONE ? &program->nodes[x->a] : NULL;
        const box_node *v = x->b != MC_NONE ? &program->nodes[x->b] : NULL;
        form f;
        int64_t m = INT64_MAX, lo, hi; /* floor(f / INT64_MAX) tells f < 0 from f >= 0 */
        switch (x->op) {
        case BOX_GE: f = x->f; break;
        case BOX_EQ:
        case BOX_NE:
            if (only_on(&x->f, dim) && zero_turn(&x->f, b, dim, at)) return true;
            continue;
        case MC_DIV:
        case MC_MOD:
            if (u->op != BOX_LINEAR || v->op != BOX_LINEAR || !form_is_const(&v->f) || v->f.c == 0) continue;
            f = u->f;
            m = v->f.c;
            break;
        case MC_ABS:
            if (u->op != BOX_LINEAR) continue;
            f = u->f;
            break;
        case MC_LOAD:
            if (u->op == BOX_LINEAR && only_on(&u->f, dim) && run_turn(&program->arrays[x->f.c], &u->f, b, dim, at))
                return true;
            continue;
        case MC_MIN:
        case MC_MAX:
            if (u->op != BOX_LINEAR || v->op != BOX_LINEAR || !form_sub(&u->f, &v->f, &f) ||
                !form_range_checked(&f, b, &lo, &hi))
                continue;
            break;
        default: continue;
        }
        if (only_on(&f, dim) && first_turn(&f, m, b, dim, at)) return true;
    }
    return false;
}

bool box_run_turn(const box_program *program, const box *b, int dim, int64_t *at) {
    for (uint32_t i = 0; i < program->count; i++) {
        const box_node *x = &program->nodes[i], *u = x->op == MC_LOAD ? &program->nodes[x->a] : NULL;
        if (!u || u->op != BOX_LINEAR || !only_on(&u->f, dim) || u->f.x[dim] != 1) continue;
        const box_array *a = &program->arrays[x->f.c];
        const int64_t apart =
            mc_wrap_add(u->f.c, (int64_t)(0 - (uint64_t)a->array.first)); /* of positions and elements */
        const int64_t lo = mc_wrap_add(b->lo[dim], apart), hi = mc_wrap_add(b->hi[dim], apart);
        uint64_t end;
        if (lo < 0 || hi <= lo || (uint64_t)hi > a->total) continue;
        const int64_t middle = lo + (hi - lo) / 2;
        const array_run *r = box_array_run(a, (uint64_t)middle, &end);
        if (!r) continue;
        const int64_t before = (int64_t)r->start, after = (int64_t)end;
        if (before <= lo && after >= hi) continue;
        bool first = before > lo && (after >= hi || middle - before < after - middle);
        *at = (first ? before : after) - apart;
        return true;
    }
    return false;
}

/* --- periods ---------------------------------------------------------------------------------------------------- */

enum { CHAIN_MAX = 8 }; /* x / a / b % c: quotients of quotients looked through */

/* The period of node i, which is x / m or x % m, and one position at which it changes; 0 if the operands have another
 * form than a position plus a constant, divided by constants. */
static int64_t node_period(const box_program *program, uint32_t i, int dim, int64_t *step) {
    int64_t period = 1;
    for (int depth = 0; depth < CHAIN_MAX; depth++) {
        const box_node *x = &program->nodes[i];
        if (x->op == BOX_LINEAR) {
            int64_t a = x->f.x[dim];
            if ((a != 1 && a != -1) || !only_on(&x->f, dim) || x->f.c <= INT64_MIN + 1 || x->f.c == INT64_MAX) return 0;
            *step = a > 0 ? -x->f.c : x->f.c + 1; /* floor((c - t) / m) turns after the multiple */
            return period;
        }
        if (x->op != MC_DIV && x->op != MC_MOD) return 0;
        const box_node *m = &program->nodes[x->b];
        if (m->op != BOX_LINEAR || !form_is_const(&m->f) || m->f.c <= 0) return 0;
        bool counts = depth == 0 || x->op == MC_DIV; /* in x % a / b, b alone */
        if (counts && __builtin_mul_overflow(period, m->f.c, &period)) return 0;
        i = x->a;
    }
    return 0;
}

int64_t box_period(const box_program *program, const box *b, int dim, int64_t *first) {
    int64_t side = b->hi[dim] - b->lo[dim], longest = 0, step;
    for (uint32_t i = 0; i < program->count; i++) {
        const box_node *x = &program->nodes[i];
        if (x->op != MC_DIV && x->op != MC_MOD) continue;
        int64_t period = node_period(program, i, dim, &step);
        if (period <= longest || period >= side) continue;
        longest = period;
        *first = mc_mod(step, period);
    }
    return longest;
}

/* --- keys ------------------------------------------------------------------------------------------------------- */

enum { KEY_WORDS = 7 };

size_t box_key_room(uint32_t count) { return 2 + (size_t)count * KEY_WORDS; }

/* The words of one node, while they are written. */
typedef struct writing {
    int64_t *w;     /* where the next word goes */
    int64_t u, v;   /* offsets of its operands */
    int64_t offset; /* its own */
    uint64_t tag;
    bool whole;     /* the offsets of its operands are written as they are, and its own becomes 0 */
} writing;

enum { TAG_GUARD = 1 << 16, TAG_RELATIVE = 1 << 17, TAG_WHOLE = 1 << 18 };

/* Writes the difference of two offsets. False: it does not fit a word, so the offsets are to be written whole. */
static bool write_difference(writing *s, int64_t from, int64_t to) {
    int64_t apart;
    s->whole = __builtin_sub_overflow(to, from, &apart);
    if (s->whole) return false;
    *s->w++ = apart;
    s->tag |= TAG_RELATIVE;
    return true;
}

/* Writes the words of a product, quotient or remainder. `by` says that the second operand is a constant and that
 * nothing overflows. */
static void write_scaled(writing *s, unsigned op, bool by) {
    s->whole = !by || (op == MC_MUL ? __builtin_mul_overflow(s->u, s->v, &s->offset) : s->v == 0 || s->v == -1);
    if (s->whole) return;
    *s->w++ = s->v;
    s->tag |= TAG_RELATIVE;
    if (op == MC_MUL) return;
    s->offset = op == MC_DIV ? mc_div(s->u, s->v) : 0;
    *s->w++ = mc_mod(s->u, s->v);
}

/* Writes what remains of the operands' offsets, and makes the offset of the node itself. */
static void write_operation(writing *s, const box_program *program, const box_node *x, const int64_t *offsets) {
    const box_node *y = x->b != MC_NONE ? &program->nodes[x->b] : NULL;
    const bool safe = x->flags & BOX_SAFE;
    switch (x->op) {
    case MC_CONST_B: *s->w++ = x->f.c; break;
    case MC_ADD: s->whole = !safe || __builtin_add_overflow(s->u, s->v, &s->offset); break;
    case MC_SUB: s->whole = !safe || __builtin_sub_overflow(s->u, s->v, &s->offset); break;
    case MC_NEG: s->whole = !safe || __builtin_sub_overflow((int64_t)0, s->u, &s->offset); break;
    case MC_MUL:
    case MC_DIV:
    case MC_MOD: write_scaled(s, x->op, safe && y && y->op == BOX_LINEAR && form_is_const(&y->f)); break;
    case MC_MIN:
    case MC_MAX:
    case MC_EQ:
    case MC_NE:
    case MC_LT:
    case MC_LE:
        if (write_difference(s, s->u, s->v) && (x->op == MC_MIN || x->op == MC_MAX)) s->offset = s->u;
        break;
    case MC_IF_I: /* offsets of b and c */
        s->u = offsets[x->c];
        if (write_difference(s, s->v, s->u)) s->offset = s->v;
        break;
    case MC_ABS: s->whole = true; break;
    case MC_LOAD:
    case MC_LOAD2:
    case MC_LOAD3: /* elements are not moved: the index whole */
        s->tag |= (uint64_t)x->f.c << 32;
        *s->w++ = (int64_t)program->arrays[x->f.c].content;
        if (x->op == MC_LOAD3) *s->w++ = offsets[x->c];
        s->whole = true;
        break;
    case MC_BANDS:
        *s->w++ = x->f.c;
        s->whole = true;
        break;
    default: break; /* bools of bools */
    }
}

/* Writes a node that has operands. Returns the end of its words. */
static int64_t *write_node(const box_program *program, const box_node *x, int64_t *offsets, int64_t *w) {
    int64_t *head = w++;
    writing s = {.tag = x->op | (uint64_t)x->flags << 8,
                 .u = x->a != MC_NONE ? offsets[x->a] : 0,
                 .v = x->b != MC_NONE ? offsets[x->b] : 0};
    *w++ = (int64_t)((uint64_t)x->a << 32 | x->b);
    if (x->c != MC_NONE || x->guard != MC_NONE) {
        s.tag |= TAG_GUARD;
        *w++ = (int64_t)((uint64_t)x->c << 32 | x->guard);
    }
    s.w = w;
    write_operation(&s, program, x, offsets);
    if (s.whole) {
        s.offset = 0;
        *s.w++ = s.u;
        *s.w++ = s.v;
        s.tag |= TAG_WHOLE;
    }
    *head = (int64_t)s.tag;
    offsets[x - program->nodes] = s.offset;
    return s.w;
}

/* Writes a key that does not depend on where the box lies. Let q' be the query counted from the corner of the box, and
 * k' likewise. In a box from q = 300 on, q - 5 is 295 + q'. So each integer is an *offset*, here 295, plus a function
 * of q' and k' that is the same wherever the box lies. Of the offsets, only what matters to the answer is written:
 * - A sum has the sum of its operands' offsets, and writes nothing.
 * - A comparison writes the difference of the two offsets, since both sides may be shifted together.
 * - x % 64 writes the offset mod 64, so a box that lies 64 rows further down has the same words.
 * - If a number does not fit int64, or the node may overflow, the offsets of its operands are written whole, and its
 *   own offset is 0. */
size_t box_key(const box_program *program, const box *b, int64_t *offsets, int64_t *out) {
    int64_t *w = out;
    *w++ = (int64_t)((uint64_t)program->root << 32 | program->count);
    for (uint32_t i = 0; i < program->count; i++) {
        const box_node *x = &program->nodes[i];
        if (x->op >= BOX_LINEAR) {
            const int64_t at = form_at(&x->f, b->lo[BOX_Q], b->lo[BOX_K], b->lo[BOX_H]);
            *w++ = x->op;
            for (int d = 0; d < BOX_DIMS; d++) *w++ = x->f.x[d];
            if (x->op != BOX_LINEAR) *w++ = at;
            offsets[i] = x->op == BOX_LINEAR ? at : 0;
        } else if (box_bands_leaf(x)) {
            w += box_bands_key(program, x, b, w);
            offsets[i] = 0;
        } else w = write_node(program, x, offsets, w);
    }
    return (size_t)(w - out);
}
