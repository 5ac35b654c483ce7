/* solve_rows.c: solves the rows of a cell, in segments on which integers are linear in k.
 *
 * Requires: a program that was made for a box around the given one; at most ROWS_WIDTH keys.
 * Gives: the exact number of allowed elements, or one that faults.
 * How: each node of the program gets its values along a row of keys:
 *      - An integer that is linear in k is one segment. x / m and x % m break it at multiples of m. min, max, abs and
 *        if break it where their operands cross.
 *      - A bool is 128 bits, one for each key.
 *      - Key by key go: products and quotients of two integers that both vary, values near overflow, and elements of an
 *        array that has no runs.
 * Cost: O(rows * nodes * segments), where a row is a (q, h). If the program does not depend on q, one row stands for
 *      all.
 * Units: segments and bits count keys from the first of the box.
 */
#include "compiler/box/solve_rows.h"
#include "compiler/box/bands.h"
#include "compiler/box/bits.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/base/stop.h"

/* Key j has the value v + s * (j - start), up to where the next segment starts. All values fit int64. */
typedef struct segment {
    int64_t v, s;
    uint32_t start;
} segment;

typedef struct row_node {
    uint32_t first, count; /* ints: segments */
    uint64_t bits[2];      /* of a bool: its values; of an int that may fault: the keys at which it would */
} row_node;

struct rows {
    row_node *nodes;
    segment *pool;
    uint32_t node_room, pool_room;
    /* of the row being solved */
    uint32_t used, width;
    uint64_t elements;
    const volatile int *stop;
    const mc_bands *bands; /* of the node being solved, where it reads any */
};

/* Keys [at, end), on which all operands are linear: x + dx j, y + dy j and z + dz j at key at + j. */
typedef struct stretch {
    uint32_t at, end;
    int64_t x, dx, y, dy, z, dz;
} stretch;

rows *rows_new(void) { return calloc(1, sizeof(rows)); }

void rows_free(rows *r) {
    if (!r) return;
    free(r->nodes);
    free(r->pool);
    free(r);
}

size_t rows_bytes(const rows *r) {
    return sizeof *r + r->node_room * sizeof *r->nodes + r->pool_room * sizeof *r->pool;
}

void rows_set_stop(rows *r, const volatile int *stop) { r->stop = stop; }

uint32_t rows_segments(const rows *r, const box_program *program) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < program->count; i++)
        if (r->nodes[i].count > most) most = r->nodes[i].count;
    return most;
}

/* --- bits ------------------------------------------------------------------------------------------------------- */

/* The first j in (from, to) whose bit differs from that of `from`, or `to`. */
static uint32_t run_end(const uint64_t bits[2], uint32_t from, uint32_t to) {
    uint64_t flip = get_bit(bits, from) ? UINT64_MAX : 0;
    for (uint32_t w = from >> 6; w < 2; w++) {
        uint64_t other = bits[w] ^ flip;
        if (w == from >> 6) other &= ~low_bits(from & 63);
        if (other) {
            uint32_t j = w * 64 + (uint32_t)__builtin_ctzll(other);
            return j < to ? j : to;
        }
    }
    return to;
}

/* --- segments --------------------------------------------------------------------------------------------------- */

static int64_t along(int64_t v, int64_t s, uint32_t j) { return (int64_t)((uint64_t)v + (uint64_t)s * j); }

static void push_segment(rows *r, row_node *n, uint32_t start, int64_t v, int64_t s) {
    if (n->count) {
        const segment *last = &r->pool[r->used - 1];
        if (last->s == s && along(last->v, s, start - last->start) == v) return;
    }
    r->pool[r->used++] = (segment){.v = v, .s = s, .start = start};
    n->count++;
}

/* Finds where v + s j changes its sign, from negative to not negative or back: returns the first j with the other sign.
 * There is such a j, with 0 < j < 128. */
static uint32_t crossing(int64_t v, int64_t s) {
    if (s > 0) return (uint32_t)-mc_div(v, s);
    return (uint32_t)((uint64_t)v / (0 - (uint64_t)s)) + 1;
}

/* Sets the bits of the keys j in [at, end) for which v + s * (j - at) >= 0. */
static void mark_ge(uint64_t bits[2], uint32_t at, uint32_t end, int64_t v, int64_t s) {
    bool first = v >= 0, last = along(v, s, end - 1 - at) >= 0;
    if (first && last) {
        set_bits(bits, at, end);
    } else if (first != last) {
        uint32_t j = at + crossing(v, s);
        if (first) set_bits(bits, at, j);
        else set_bits(bits, j, end);
    }
}

/* Sets the bits of the keys j in [at, end) for which v + s * (j - at) == 0. */
static void mark_zero(uint64_t bits[2], uint32_t at, uint32_t end, int64_t v, int64_t s) {
    if (s == 0) {
        if (v == 0) set_bits(bits, at, end);
        return;
    }
    __int128 negated = -(__int128)v, j;
    if (v != INT64_MIN) {
        if (-v % s != 0) return;
        j = -v / s;
    } else {
        if (negated % s != 0) return;
        j = negated / s;
    }
    if (j >= 0 && j < (__int128)(end - at)) set_bit(bits, at + (uint32_t)j);
}

static void solve_elements(rows *r, row_node *n, unsigned op, const stretch *p) {
    bool is_bool = op >= MC_EQ;
    for (uint32_t j = p->at; j < p->end; j++) {
        int64_t value, x = along(p->x, p->dx, j - p->at), y = along(p->y, p->dy, j - p->at);
        if (!mc_value(op, x, y, &value)) value = mc_in_bands(r->bands, x, y); /* MC_BANDS */
        const bool bad = mc_value_fault(op, x, y) != MC_OK; /* if its guard is true */
        if (is_bool ? value != 0 : bad) set_bit(n->bits, j);
        if (!is_bool) push_segment(r, n, j, value, 0);
    }
    r->elements += p->end - p->at;
}

/* Solves x / m or, with `modulo`, x % m on a stretch, for a constant m other than 0. False: it cannot be done in
 * segments. */
static bool solve_division(rows *r, row_node *n, const stretch *p, bool modulo) {
    int64_t m = p->y, x = p->x, s = p->dx, sign = 1;
    if (m < 0) {
        int64_t last = along(x, s, p->end - 1 - p->at);
        if (m == INT64_MIN || s == INT64_MIN || x == INT64_MIN || last == INT64_MIN) return false;
        m = -m;
        x = -x;
        s = -s;
        sign = -1;
    }
    for (uint32_t at = p->at; at < p->end;) {
        int64_t quotient = mc_div(x, m), rest = mc_mod(x, m);
        uint64_t steps = UINT64_MAX;
        if (s > 0) steps = (uint64_t)(m - rest - 1) / (uint64_t)s + 1;
        if (s < 0) steps = (uint64_t)rest / (0 - (uint64_t)s) + 1;
        uint32_t run = steps < p->end - at ? (uint32_t)steps : p->end - at;
        if (!modulo) push_segment(r, n, at, quotient, 0);
        else push_segment(r, n, at, sign * rest, run > 1 ? sign * s : 0);
        at += run;
        x = along(x, s, run);
    }
    return true;
}

/* Solves min, max, and abs as max(x, -x). Where the difference y - x changes its sign, the other operand is taken. */
static bool solve_choice(rows *r, row_node *n, const stretch *p, bool greater) {
    int64_t first, last, slope;
    uint32_t length = p->end - p->at;
    if (__builtin_sub_overflow(p->y, p->x, &first) || __builtin_sub_overflow(p->dy, p->dx, &slope) ||
        __builtin_sub_overflow(along(p->y, p->dy, length - 1), along(p->x, p->dx, length - 1), &last))
        return false;
    bool take_y = (first >= 0) == greater;
    push_segment(r, n, p->at, take_y ? p->y : p->x, take_y ? p->dy : p->dx);
    if ((first >= 0) != (last >= 0)) {
        uint32_t j = crossing(first, slope);
        take_y = !take_y;
        push_segment(r, n, p->at + j, take_y ? along(p->y, p->dy, j) : along(p->x, p->dx, j), take_y ? p->dy : p->dx);
    }
    return true;
}

/* Solves a load: appends the elements that the keys of a stretch read. Where the array has none, it is 0. */
static void solve_load(rows *r, row_node *n, const box_array *a, const stretch *p) {
    for (uint32_t j = p->at; j < p->end;) {
        int64_t value = 0, step = 0;
        uint64_t at, end;
        uint32_t run = 1;
        const uint32_t by = j - p->at;
        const bool there =
            mc_place(&a->array, along(p->x, p->dx, by), along(p->y, p->dy, by), along(p->z, p->dz, by), &at);
        const array_run *of = there && p->dx == 1 && !a->array.columns ? box_array_run(a, at, &end) : NULL;
        if (!there) {
            set_bit(n->bits, j);
        } else if (p->dx == 0 && p->dy == 0 && p->dz == 0) {
            value = mc_int_at(&a->array, at);
            run = p->end - j;
        } else if (of) {
            value = run_at(of, at);
            step = of->s;
            run = end - at < p->end - j ? (uint32_t)(end - at) : p->end - j;
        } else {
            value = mc_int_at(&a->array, at);
            r->elements++;
        }
        push_segment(r, n, j, value, run > 1 ? step : 0);
        j += run;
    }
}

static bool solve_comparison(row_node *n, unsigned op, const stretch *p) {
    int64_t first, last, slope;
    uint32_t length = p->end - p->at;
    if (__builtin_sub_overflow(p->y, p->x, &first) || __builtin_sub_overflow(p->dy, p->dx, &slope) ||
        __builtin_sub_overflow(along(p->y, p->dy, length - 1), along(p->x, p->dx, length - 1), &last))
        return false;
    if (op == MC_LT) {
        if (first == INT64_MIN || last == INT64_MIN) return false;
        first--;
    }
    if (op == MC_LT || op == MC_LE) mark_ge(n->bits, p->at, p->end, first, slope);
    else mark_zero(n->bits, p->at, p->end, first, slope); /* NE is complemented by the caller */
    return true;
}

/* Solves + - * on a stretch. False: it cannot be done in segments. */
static bool solve_arithmetic(rows *r, row_node *n, unsigned op, const stretch *p) {
    int64_t first, last, slope;
    uint32_t length = p->end - p->at;
    int64_t x1 = along(p->x, p->dx, length - 1), y1 = along(p->y, p->dy, length - 1);
    bool bad;
    switch (op) {
    case MC_ADD:
        bad = __builtin_add_overflow(p->x, p->y, &first) || __builtin_add_overflow(x1, y1, &last) ||
              __builtin_add_overflow(p->dx, p->dy, &slope);
        break;
    case MC_SUB:
        bad = __builtin_sub_overflow(p->x, p->y, &first) || __builtin_sub_overflow(x1, y1, &last) ||
              __builtin_sub_overflow(p->dx, p->dy, &slope);
        break;
    default:
        if (p->dx != 0 && p->dy != 0) return false;
        bad = __builtin_mul_overflow(p->x, p->y, &first) || __builtin_mul_overflow(x1, y1, &last) ||
              (p->dx == 0 ? __builtin_mul_overflow(p->x, p->dy, &slope) : __builtin_mul_overflow(p->dx, p->y, &slope));
        break;
    }
    if (bad) return false;
    push_segment(r, n, p->at, first, slope);
    return true;
}

static void solve_stretch(rows *r, row_node *n, unsigned op, stretch *p) {
    bool done = false;
    uint32_t length = p->end - p->at;
    if (length == 1) p->dx = p->dy = 0;
    switch (op) {
    case MC_ADD: case MC_SUB: case MC_MUL: done = solve_arithmetic(r, n, op, p); break;
    case MC_NEG:
        p->y = p->x, p->dy = p->dx, p->x = p->dx = 0;
        done = solve_arithmetic(r, n, MC_SUB, p);
        if (!done) p->x = p->y, p->dx = p->dy;
        break;
    case MC_ABS:
        if (p->x != INT64_MIN && p->dx != INT64_MIN && along(p->x, p->dx, length - 1) != INT64_MIN) {
            p->y = -p->x, p->dy = -p->dx;
            done = solve_choice(r, n, p, true);
        }
        break;
    case MC_DIV: case MC_MOD:
        if (p->dy == 0 && p->y != 0) done = solve_division(r, n, p, op == MC_MOD);
        break;
    case MC_MIN: case MC_MAX: done = solve_choice(r, n, p, op == MC_MAX); break;
    case MC_BANDS: break;
    default: done = solve_comparison(n, op, p); break;
    }
    if (!done) solve_elements(r, n, op, p);
}

/* --- a row ------------------------------------------------------------------------------------------------------ */

static void solve_operands(rows *r, row_node *n, unsigned op, const box_array *array, const row_node *a,
                           const row_node *b, const row_node *c) {
    const segment *x = r->pool + a->first, *x_end = x + a->count;
    const segment none = {0}, *y = b ? r->pool + b->first : &none, *y_end = y + (b ? b->count : 1);
    const segment *z = c ? r->pool + c->first : &none, *z_end = z + (c ? c->count : 1);
    for (uint32_t at = 0; at < r->width;) {
        uint32_t end = r->width;
        if (x + 1 < x_end && x[1].start < end) end = x[1].start;
        if (y + 1 < y_end && y[1].start < end) end = y[1].start;
        if (z + 1 < z_end && z[1].start < end) end = z[1].start;
        stretch p = {at,
                     end,
                     along(x->v, x->s, at - x->start),
                     x->s,
                     along(y->v, y->s, at - y->start),
                     y->s,
                     along(z->v, z->s, at - z->start),
                     z->s};
        if (array) solve_load(r, n, array, &p);
        else solve_stretch(r, n, op, &p);
        if (x + 1 < x_end && x[1].start == end) x++;
        if (y + 1 < y_end && y[1].start == end) y++;
        if (z + 1 < z_end && z[1].start == end) z++;
        at = end;
    }
}

static void solve_if(rows *r, row_node *n, const uint64_t p[2], const row_node *a, const row_node *b) {
    const segment *x = r->pool + a->first, *x_end = x + a->count;
    const segment *y = r->pool + b->first, *y_end = y + b->count;
    for (uint32_t at = 0; at < r->width;) {
        uint32_t end = run_end(p, at, r->width);
        bool first = get_bit(p, at);
        const segment **s = first ? &x : &y, *s_end = first ? x_end : y_end;
        while (*s + 1 < s_end && (*s)[1].start <= at) ++*s;
        if (*s + 1 < s_end && (*s)[1].start < end) end = (*s)[1].start;
        push_segment(r, n, at, along((*s)->v, (*s)->s, at - (*s)->start), (*s)->s);
        at = end;
    }
}

static bool solve_node(rows *r, const box_program *program, uint32_t i, const box *b, int64_t q, int64_t h) {
    const box_node *x = &program->nodes[i];
    row_node *n = &r->nodes[i];
    const row_node *a = x->a != MC_NONE ? &r->nodes[x->a] : NULL, *c = x->b != MC_NONE ? &r->nodes[x->b] : NULL;
    const row_node *d = x->c != MC_NONE ? &r->nodes[x->c] : NULL;
    *n = (row_node){.first = r->used};
    uint32_t width = r->width;
    const uint64_t all[2] = {low_bits(width), width > 64 ? low_bits(width - 64) : 0};
    switch (x->op) {
    case MC_CONST_B:
        if (x->f.c) set_bits(n->bits, 0, width);
        return true;
    case BOX_GE: mark_ge(n->bits, 0, width, form_at(&x->f, q, b->lo[BOX_K], h), x->f.x[BOX_K]); return true;
    case BOX_EQ:
    case BOX_NE:
        mark_zero(n->bits, 0, width, form_at(&x->f, q, b->lo[BOX_K], h), x->f.x[BOX_K]);
        if (x->op == BOX_EQ) return true;
        break;
    case MC_AND: n->bits[0] = a->bits[0] & c->bits[0], n->bits[1] = a->bits[1] & c->bits[1]; return true;
    case MC_OR: n->bits[0] = a->bits[0] | c->bits[0], n->bits[1] = a->bits[1] | c->bits[1]; return true;
    case MC_IFF: n->bits[0] = a->bits[0] ^ c->bits[0], n->bits[1] = a->bits[1] ^ c->bits[1]; break;
    case MC_NOT: n->bits[0] = a->bits[0], n->bits[1] = a->bits[1]; break;
    case MC_IF_B:
        for (int w = 0; w < 2; w++) n->bits[w] = (a->bits[w] & c->bits[w]) | (~a->bits[w] & d->bits[w]);
        return true;
    case BOX_LINEAR:
        push_segment(r, n, 0, form_at(&x->f, q, b->lo[BOX_K], h), width > 1 ? x->f.x[BOX_K] : 0);
        return true;
    case MC_IF_I: solve_if(r, n, a->bits, c, d); return true;
    case MC_NE: solve_operands(r, n, MC_EQ, NULL, a, c, NULL); break;
    case MC_BANDS:
        r->bands = &program->bands[x->f.c];
        if (box_bands_leaf(x)) box_bands_row(program, x, b, q, n->bits);
        else solve_operands(r, n, MC_BANDS, NULL, a, c, NULL);
        return true;
    default: {
        solve_operands(r, n, x->op, mc_loads_int(x->op) ? &program->arrays[x->f.c] : NULL, a, c, d);
        if (x->op >= MC_EQ || (x->flags & BOX_QUIET)) return true;
        const row_node *guard = x->guard != MC_NONE ? &r->nodes[x->guard] : NULL;
        if (!guard) return !(n->bits[0] | n->bits[1]);
        return !((n->bits[0] & guard->bits[0]) | (n->bits[1] & guard->bits[1]));
    }
    }
    n->bits[0] ^= all[0]; /* the complement, for NOT, IFF and NE */
    n->bits[1] ^= all[1];
    return true;
}

typedef enum row_end { ROW_SOLVED, ROW_FAULT, ROW_NO_MEMORY } row_end;

static row_end solve_row(rows *r, const box_program *program, const box *b, int64_t q, int64_t h, uint32_t *fault) {
    r->used = 0;
    r->width = (uint32_t)(b->hi[BOX_K] - b->lo[BOX_K]);
    for (uint32_t i = 0; i < program->count; i++) {
        if (!FCP_GROW(r->pool, r->pool_room, r->used + ROWS_WIDTH)) return ROW_NO_MEMORY; /* a node has no more */
        if (solve_node(r, program, i, b, q, h)) continue;
        const row_node *n = &r->nodes[i];
        uint32_t guard = program->nodes[i].guard;
        uint64_t low = n->bits[0] & (guard != MC_NONE ? r->nodes[guard].bits[0] : UINT64_MAX);
        uint64_t high = n->bits[1] & (guard != MC_NONE ? r->nodes[guard].bits[1] : UINT64_MAX);
        *fault = low ? (uint32_t)__builtin_ctzll(low) : 64 + (uint32_t)__builtin_ctzll(high);
        return ROW_FAULT;
    }
    return ROW_SOLVED;
}

bool rows_one(rows *r, const box_program *program, const box *b, int64_t q, int64_t h, uint64_t out[2],
              uint64_t *elements) {
    uint32_t fault;
    r->elements = 0;
    if (!FCP_GROW(r->nodes, r->node_room, program->count)) return false;
    if (solve_row(r, program, b, q, h, &fault) != ROW_SOLVED) return false;
    *elements += r->elements;
    memcpy(out, r->nodes[program->root].bits, 2 * sizeof *out);
    return true;
}

bool rows_solve(rows *r, const box_program *program, const box *b, rows_result *out) {
    *out = (rows_result){0};
    r->elements = 0;
    if (!FCP_GROW(r->nodes, r->node_room, program->count)) return false;
    int64_t q_end = program->on_q ? b->hi[BOX_Q] : b->lo[BOX_Q] + 1;
    int64_t h_end = program->on_h ? b->hi[BOX_H] : b->lo[BOX_H] + 1;
    for (int64_t h = b->lo[BOX_H]; h < h_end; h++)
        for (int64_t q = b->lo[BOX_Q]; q < q_end; q++) {
            uint32_t fault = 0;
            if (fcp_stop_asked(r->stop)) {
                *out = (rows_result){.stopped = true};
                return true;
            }
            row_end end = solve_row(r, program, b, q, h, &fault);
            if (end == ROW_NO_MEMORY) return false;
            out->rows++;
            out->segments += r->used;
            if (end == ROW_FAULT) {
                out->fault = true;
                out->q = q;
                out->k = b->lo[BOX_K] + fault;
                out->h = h;
                out->elements = r->elements;
                return true;
            }
            out->pairs += count_bits(r->nodes[program->root].bits);
        }
    if (!program->on_q) out->pairs *= (uint64_t)(b->hi[BOX_Q] - b->lo[BOX_Q]);
    if (!program->on_h) out->pairs *= (uint64_t)(b->hi[BOX_H] - b->lo[BOX_H]);
    out->elements = r->elements;
    return true;
}
