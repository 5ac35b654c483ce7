/* lanes.c: evaluates programs at many positions at a time.
 *
 * Requires: a program that was made for a box around the positions.
 * Gives: lanes.h.
 * How: - An example first: the cell of doc[q] == doc[k]. A table is made from the 128 values doc[k]: for each value,
 *        the keys that have it, as bits. A row looks up doc[q] there and has its answer, without comparing 128 pairs.
 *      - In general the integers of a cell are sums x(q) + y(k). So each comparison can be written as one of some a(q)
 *        with some b(k), by moving the parts of q to one side and those of k to the other.
 *      - The table of a(q) == b(k) has the keys of each value, as above. The table of b(k) <= a(q) has, for each value
 *        in the order of b, the keys with that value or a lesser one.
 *      - |x| <= y is evaluated as x <= y and -x <= y.
 *      - `and`, `or` and `not` are operations on the bits of a row.
 * Cost: along a dimension O(nodes * positions), in plain loops. A cell O(nodes * (rows + keys)) words of bits.
 * Units: positions count tokens; bit j of a row is its j-th key. */
#include "compiler/box/lanes.h"

#include "compiler/base/bisect.h"
#include "compiler/box/bands.h"
#include "compiler/box/bits.h"

#include <stdlib.h>
#include <string.h>

/* FAR: magnitudes of integers are below 2^FAR, so that sums and differences do not overflow. The tables of comparisons
 * are indexed by value if the compared values are close: for b <= a if they differ by less than NEAR, for a == b if
 * they differ by less than DIRECT. Otherwise a == b takes a hash table of SLOTS places. */
enum { FAR = 60, NEAR = 256, SLOTS = 512, DIRECT = 2048 };

typedef struct bits {
    uint64_t w[2];
} bits;

/* A node of a cell. */
typedef struct cell_node {
    bool absolute;   /* int: the absolute value of the sum */
    int64_t *x, *y;  /* int: the value at row i and key j is x[i] + y[j]; NULL stands for zeros */
    bits *rows;      /* bool */
} cell_node;

typedef struct slot {
    int64_t value;
    uint32_t stamp;
    bits keys;
} slot;

/* The tables that comparisons look values up in: 52 kB, which most masks never need. */
typedef struct tables {
    uint32_t stamp;
    slot slots[SLOTS];
    bits near[NEAR];
    bits direct[DIRECT + 1]; /* by value; zeros between uses */
} tables;

struct lanes {
    const box_program *program;
    uint32_t root, room;
    int64_t (*v)[LANES]; /* by node */
    bool *needed;
    /* of a cell */
    cell_node *nodes;
    uint8_t *on; /* by node: what it depends on */
    int64_t (*sums)[LANES];
    bits (*rows)[LANES];
    uint32_t cell_room, sums_used, rows_used;
    uint32_t height, width;
    tables *tables; /* NULL before the first cell */
};

lanes *lanes_new(void) { return calloc(1, sizeof(lanes)); }

void lanes_free(lanes *l) {
    if (!l) return;
    free(l->v);
    free(l->needed);
    free(l->nodes);
    free(l->on);
    free(l->sums);
    free(l->rows);
    free(l->tables);
    free(l);
}

size_t lanes_bytes(const lanes *l) {
    return sizeof *l + (l->tables ? sizeof *l->tables : 0) + l->room * (sizeof *l->v + sizeof *l->needed) +
           l->cell_room * (sizeof *l->nodes + sizeof *l->on + 2 * sizeof *l->sums + sizeof *l->rows);
}

/* --- along one dimension ------------------------------------------------------------------------------------------ */

static bool reserve_lanes(lanes *l, uint32_t count) {
    if (count <= l->room) return true;
    free(l->v);
    free(l->needed);
    l->room = 0;
    l->v = malloc(count * sizeof *l->v);
    l->needed = malloc(count * sizeof *l->needed);
    if (!l->v || !l->needed) return false;
    l->room = count;
    return true;
}

static void mark_needed(lanes *l, uint32_t i) {
    if (i != MC_NONE) l->needed[i] = true;
}

bool lanes_plan(lanes *l, const box_program *program, uint32_t root) {
    if (!reserve_lanes(l, program->count)) return false;
    l->program = program;
    l->root = root;
    memset(l->needed, 0, program->count * sizeof *l->needed);
    l->needed[root] = true;
    for (uint32_t i = root + 1; i-- > 0;) {
        if (!l->needed[i]) continue;
        mark_needed(l, program->nodes[i].a);
        mark_needed(l, program->nodes[i].b);
        mark_needed(l, program->nodes[i].c);
    }
    return true;
}

/* Do lanes of indices go from element to element, of one row? */
static bool are_in_row(const int64_t *x, const int64_t *y, const int64_t *z, uint32_t dims, uint32_t count) {
    uint64_t other = 0;
    for (uint32_t i = 0; i < count; i++) other |= ((uint64_t)z[i] - i) ^ (uint64_t)z[0];
    for (uint32_t i = 0; i < count && dims > 1; i++) other |= (uint64_t)x[i] ^ (uint64_t)x[0];
    for (uint32_t i = 0; i < count && dims > 2; i++) other |= (uint64_t)y[i] ^ (uint64_t)y[0];
    return other == 0;
}

/* The lanes of a load of up to three indices. z is always the last of them, and others that it lacks are z, too. */
static void load_lane(const box_array *a, const int64_t *x, const int64_t *y, const int64_t *z, bool steps,
                      uint32_t count, int64_t *v) {
    const uint32_t last = count - 1;
    uint64_t at, end;
    if ((steps || are_in_row(x, y, z, mc_array_dims(&a->array), count)) && mc_place(&a->array, x[0], y[0], z[0], &at) &&
        mc_place(&a->array, x[last], y[last], z[last], &end)) {
        box_array_copy(a, at, count, v);
        return;
    }
    for (uint32_t i = 0; i < count; i++) v[i] = mc_load(&a->array, x[i], y[i], z[i]);
}

/* Evaluates one node at `count` positions: its values there follow from those of its operands. */
static bool evaluate_lane(const lanes *l, const box_node *n, int d, int64_t from, uint32_t count,
                          const int64_t at[BOX_DIMS], int64_t *v) {
    const int64_t *a = n->a != MC_NONE ? l->v[n->a] : NULL, *b = n->b != MC_NONE ? l->v[n->b] : a;
    const int64_t *c = n->c != MC_NONE ? l->v[n->c] : NULL;
    int64_t p[BOX_DIMS] = {at[BOX_Q], at[BOX_K], at[BOX_H]};
    p[d] = from;
    const uint64_t first = (uint64_t)form_at(&n->f, p[BOX_Q], p[BOX_K], p[BOX_H]), step = (uint64_t)n->f.x[d];
    switch (n->op) {
    case MC_CONST_B:
        for (uint32_t i = 0; i < count; i++) v[i] = n->f.c;
        return true;
    case BOX_LINEAR:
        for (uint32_t i = 0; i < count; i++) v[i] = (int64_t)(first + step * i);
        return true;
    case BOX_GE:
        for (uint32_t i = 0; i < count; i++) v[i] = (int64_t)(first + step * i) >= 0;
        return true;
    case BOX_EQ:
        for (uint32_t i = 0; i < count; i++) v[i] = first + step * i == 0;
        return true;
    case BOX_NE:
        for (uint32_t i = 0; i < count; i++) v[i] = first + step * i != 0;
        return true;
    case MC_LOAD: {
        const box_node *index = &l->program->nodes[n->a];
        const bool steps = index->op == BOX_LINEAR && index->f.x[d] == 1;
        load_lane(&l->program->arrays[n->f.c], a, a, a, steps, count, v);
        return true;
    }
    case MC_LOAD2:
    case MC_LOAD3:
        load_lane(&l->program->arrays[n->f.c], a, b, n->op == MC_LOAD3 ? c : b, false, count, v);
        return true;
    case MC_IF_I:
    case MC_IF_B:
        for (uint32_t i = 0; i < count; i++) v[i] = a[i] ? b[i] : c[i];
        return true;
#define LANE_CASE(id, value)                                                                                           \
    case MC_##id:                                                                                                      \
        for (uint32_t i = 0; i < count; i++) {                                                                         \
            const int64_t x = a[i], y = b[i];                                                                          \
            (void)y;                                                                                                   \
            v[i] = value;                                                                                              \
        }                                                                                                              \
        return true;
        MC_INT_VALUES(LANE_CASE)
        MC_TEST_VALUES(LANE_CASE)
        MC_BOOL_VALUES(LANE_CASE)
#undef LANE_CASE
    default: return false;
    }
}

bool lanes_begin(lanes *l, const box_program *program) {
    l->program = program;
    return reserve_lanes(l, program->count);
}

int64_t *lanes_of(lanes *l, uint32_t node) { return l->v[node]; }

bool lanes_node(lanes *l, uint32_t node, int d, int64_t from, uint32_t count, const int64_t at[BOX_DIMS]) {
    return evaluate_lane(l, &l->program->nodes[node], d, from, count, at, l->v[node]);
}

const int64_t *lanes_run(lanes *l, int d, int64_t from, uint32_t count, const int64_t at[BOX_DIMS]) {
    for (uint32_t i = 0; i <= l->root; i++)
        if (l->needed[i] && !evaluate_lane(l, &l->program->nodes[i], d, from, count, at, l->v[i])) return NULL;
    return l->v[l->root];
}

/* --- a cell: comparisons ------------------------------------------------------------------------------------------ */

static bits first_keys(uint32_t n) { return (bits){{low_bits(n), n > 64 ? low_bits(n - 64) : 0}}; }

/* The slot of a value in the hash table; if it has none, the slot that it would get. */
static slot *find_slot(tables *t, int64_t value, uint32_t stamp) {
    slot *s = &t->slots[(uint64_t)value * 0x9e3779b97f4a7c15u >> 55]; /* of 2^9 */
    while (s->stamp == stamp && s->value != value) s = s == t->slots + SLOTS - 1 ? t->slots : s + 1;
    return s;
}

/* rows[i] becomes the set of keys j with b[j] == a[i]. */
static void rows_equal(lanes *l, const int64_t *a, const int64_t *b, bits *rows) {
    tables *t = l->tables;
    int64_t lo = b[0], hi = b[0];
    for (uint32_t j = 1; j < l->width; j++) {
        lo = b[j] < lo ? b[j] : lo;
        hi = b[j] > hi ? b[j] : hi;
    }
    if (hi - lo < DIRECT) {
        const uint64_t range = (uint64_t)(hi - lo) + 1;
        for (uint32_t j = 0; j < l->width; j++) set_bit(t->direct[b[j] - lo].w, j);
        for (uint32_t i = 0; i < l->height; i++) {
            const uint64_t x = (uint64_t)a[i] - (uint64_t)lo;
            rows[i] = t->direct[x < range ? x : DIRECT];
        }
        for (uint32_t j = 0; j < l->width; j++) t->direct[b[j] - lo] = (bits){{0}};
        return;
    }
    const uint32_t stamp = ++t->stamp;
    if (stamp == 0) { /* come round */
        memset(t->slots, 0, sizeof t->slots);
        t->stamp = 0;
        rows_equal(l, a, b, rows);
        return;
    }
    slot *s = NULL;
    for (uint32_t j = 0; j < l->width; j++) {
        if (!s || s->value != b[j]) {
            s = find_slot(t, b[j], stamp);
            if (s->stamp != stamp) *s = (slot){b[j], stamp, {{0}}};
        }
        set_bit(s->keys.w, j);
    }
    for (uint32_t i = 0; i < l->height; i++) {
        if (i && a[i] == a[i - 1]) {
            rows[i] = rows[i - 1];
            continue;
        }
        s = find_slot(t, a[i], stamp);
        rows[i] = s->stamp == stamp ? s->keys : (bits){{0}};
    }
}

typedef struct ordered {
    int64_t value;
    uint32_t key;
} ordered;

/* Sorts `list` in ascending order, by merge sort. `other` is scratch memory of the same size. */
static void sort_keys(ordered *list, ordered *other, uint32_t count) {
    for (uint32_t run = 1; run < count; run *= 2) {
        for (uint32_t lo = 0; lo < count; lo += 2 * run) {
            uint32_t middle = lo + run < count ? lo + run : count, hi = lo + 2 * run < count ? lo + 2 * run : count;
            for (uint32_t i = lo, j = middle, to = lo; to < hi; to++)
                other[to] = j >= hi || (i < middle && list[i].value <= list[j].value) ? list[i++] : list[j++];
        }
        memcpy(list, other, count * sizeof *list);
    }
}

/* rows[i] becomes the set of keys j with b[j] <= a[i]. */
static void rows_at_most(lanes *l, const int64_t *a, const int64_t *b, bits *rows) {
    tables *t = l->tables;
    int64_t lo = b[0], hi = b[0], a_lo = a[0], a_hi = a[0];
    for (uint32_t j = 1; j < l->width; j++) {
        lo = b[j] < lo ? b[j] : lo;
        hi = b[j] > hi ? b[j] : hi;
    }
    for (uint32_t i = 1; i < l->height; i++) {
        a_lo = a[i] < a_lo ? a[i] : a_lo;
        a_hi = a[i] > a_hi ? a[i] : a_hi;
    }
    if (lo < a_lo) lo = a_lo; /* all below are alike, and all above */
    if (hi > a_hi + 1) hi = a_hi + 1;
    if (hi - lo < NEAR) {
        if (hi < lo) hi = lo;
        memset(t->near, 0, (size_t)(hi - lo + 1) * sizeof *t->near);
        for (uint32_t j = 0; j < l->width; j++) {
            int64_t x = b[j] < lo ? lo : b[j] > hi ? hi : b[j];
            set_bit(t->near[x - lo].w, j);
        }
        for (int64_t x = 1; x <= hi - lo; x++)
            for (int w = 0; w < 2; w++) t->near[x].w[w] |= t->near[x - 1].w[w];
        for (uint32_t i = 0; i < l->height; i++)
            rows[i] = a[i] < lo ? (bits){{0}} : t->near[(a[i] < hi ? a[i] : hi) - lo];
        return;
    }
    ordered list[LANES], other[LANES];
    bits below[LANES + 1] = {{{0}}};
    for (uint32_t j = 0; j < l->width; j++) list[j] = (ordered){b[j], j};
    sort_keys(list, other, l->width);
    for (uint32_t j = 0; j < l->width; j++) {
        below[j + 1] = below[j];
        set_bit(below[j + 1].w, list[j].key);
    }
    for (uint32_t i = 0; i < l->height; i++) {
        uint32_t from = 0, to = l->width; /* how many are at most a[i] */
        BISECT(from, to, j, list[j].value <= a[i])
        rows[i] = below[from];
    }
}

/* --- a cell: nodes ------------------------------------------------------------------------------------------------ */

static bool reserve_cell(lanes *l, uint32_t count) {
    if (!reserve_lanes(l, count)) return false;
    if (!l->tables && !(l->tables = calloc(1, sizeof *l->tables))) return false;
    if (count <= l->cell_room) return true;
    free(l->nodes);
    free(l->on);
    free(l->sums);
    free(l->rows);
    l->cell_room = 0;
    l->nodes = malloc(count * sizeof *l->nodes);
    l->on = malloc(count * sizeof *l->on);
    l->sums = malloc(2 * (size_t)count * sizeof *l->sums);
    l->rows = malloc(count * sizeof *l->rows);
    if (!l->nodes || !l->on || !l->sums || !l->rows) return false;
    l->cell_room = count;
    return true;
}

static bool near_zero(const int64_t *v, uint32_t count) {
    uint64_t far = 0;
    for (uint32_t i = 0; i < count; i++) far |= (uint64_t)(v[i] < 0 ? ~v[i] : v[i]);
    return far >> FAR == 0;
}

/* Returns x + sign * y, element by element. NULL stands for zeros, as operand and as result. */
static int64_t *add_lanes(lanes *l, const int64_t *x, const int64_t *y, int64_t sign, uint32_t count) {
    if (!x && !y) return NULL;
    int64_t *to = l->sums[l->sums_used++];
    for (uint32_t i = 0; i < count; i++) to[i] = (x ? x[i] : 0) + (y ? sign * y[i] : 0);
    return to;
}

static bool sum_is_near(const lanes *l, const cell_node *n) {
    return (!n->x || near_zero(n->x, l->height)) && (!n->y || near_zero(n->y, l->width));
}

/* Makes n the sum x + sign * y. False: one of them is an absolute value, or the sum may be too large. */
static bool add_sums(lanes *l, cell_node *n, const cell_node *x, const cell_node *y, int64_t sign) {
    if ((x && x->absolute) || y->absolute) return false;
    n->x = add_lanes(l, x ? x->x : NULL, y->x, sign, l->height);
    n->y = add_lanes(l, x ? x->y : NULL, y->y, sign, l->width);
    return sum_is_near(l, n);
}

/* Sets the rows of s x <= y, or s x < y, or s x == y, for s = 1 or -1. Sums are within 2^FAR, so differences do not
 * overflow. */
static void compare_sums(lanes *l, unsigned op, int64_t s, const cell_node *x, const cell_node *y, bits *rows) {
    /* s (x.x + x.y) <= y.x + y.y is b <= a, with b = s x.y - y.y and a = y.x - s x.x */
    int64_t a[LANES] = {0}, b[LANES] = {0};
    for (uint32_t i = 0; i < l->height; i++) a[i] = (y->x ? y->x[i] : 0) - (x->x ? s * x->x[i] : 0);
    for (uint32_t j = 0; j < l->width; j++) b[j] = (x->y ? s * x->y[j] : 0) - (y->y ? y->y[j] : 0);
    if (op == MC_EQ || op == MC_NE) {
        rows_equal(l, a, b, rows);
        return;
    }
    if (op == MC_LT)
        for (uint32_t i = 0; i < l->height; i++) a[i]--;
    rows_at_most(l, a, b, rows);
}

static void complement_rows(lanes *l, bits *rows) {
    const bits all = first_keys(l->width);
    for (uint32_t i = 0; i < l->height; i++)
        for (int w = 0; w < 2; w++) rows[i].w[w] ^= all.w[w];
}

/* Compares two sums, one of which may be an absolute value. False: this comparison is of a form that is not handled. */
static bool compare_nodes(lanes *l, unsigned op, const cell_node *x, const cell_node *y, bits *rows) {
    if (!x->absolute && !y->absolute) {
        compare_sums(l, op, 1, x, y, rows);
        if (op == MC_NE) complement_rows(l, rows);
        return true;
    }
    if ((x->absolute && y->absolute) || op == MC_EQ || op == MC_NE) return false;
    if (y->absolute) { /* x < |y| is not |y| <= x */
        if (!compare_nodes(l, op == MC_LT ? MC_LE : MC_LT, y, x, rows)) return false;
        complement_rows(l, rows);
        return true;
    }
    bits other[LANES];
    compare_sums(l, op, 1, x, y, rows);
    compare_sums(l, op, -1, x, y, other);
    for (uint32_t i = 0; i < l->height; i++)
        for (int w = 0; w < 2; w++) rows[i].w[w] &= other[i].w[w];
    return true;
}

/* Makes a form a sum; its constant and its part that depends on h go with the part of q. False if values are too
 * large. */
static bool form_sum(lanes *l, cell_node *n, const form *f, const box *b) {
    form q = *f, k = {.x[BOX_K] = f->x[BOX_K]};
    int64_t lo, hi;
    q.x[BOX_K] = 0;
    for (int i = 0; i < 2; i++)
        if (!form_range_checked(i ? &k : &q, b, &lo, &hi) || lo < -((int64_t)1 << FAR) || hi > (int64_t)1 << FAR)
            return false;
    n->x = l->sums[l->sums_used++];
    n->y = l->sums[l->sums_used++];
    const int64_t x = form_at(&q, b->lo[BOX_Q], 0, b->lo[BOX_H]), y = form_at(&k, 0, b->lo[BOX_K], 0);
    for (uint32_t i = 0; i < l->height; i++) n->x[i] = x + f->x[BOX_Q] * i;
    for (uint32_t j = 0; j < l->width; j++) n->y[j] = y + f->x[BOX_K] * j;
    return true;
}

/* Sets the rows of form >= 0, for a form with +k or -k: a row sees all keys from some key on, or all up to one. */
static void line_rows(const lanes *l, const form *f, const box *b, bits *rows) {
    const bits all = first_keys(l->width);
    const bool first = f->x[BOX_K] < 0;
    int64_t v = form_at(f, b->lo[BOX_Q], b->lo[BOX_K], b->lo[BOX_H]);
    for (uint32_t i = 0; i < l->height; i++, v = mc_wrap_add(v, f->x[BOX_Q])) {
        const int64_t keys = first ? v : v < -LANES ? LANES : -v - 1; /* up to which: allowed, or not allowed */
        bits r = first_keys(keys < 0 ? 0 : keys < l->width ? (uint32_t)keys + 1 : l->width);
        for (int w = 0; w < 2; w++) rows[i].w[w] = first ? r.w[w] : r.w[w] ^ all.w[w];
    }
}

/* Makes a node of a cell from its lane v, if it depends on q alone (`rows`), on k alone, or on neither. */
static bool plain_node(lanes *l, const box_node *x, cell_node *n, const int64_t *v, bool rows) {
    if (!box_is_bool(x->op)) {
        if (rows) n->x = (int64_t *)v;
        else n->y = (int64_t *)v;
        return near_zero(v, rows ? l->height : l->width);
    }
    n->rows = l->rows[l->rows_used++];
    bits keys = {{0}}, all = first_keys(l->width);
    for (uint32_t j = 0; j < l->width && !rows; j++) keys.w[j >> 6] |= (uint64_t)v[j] << (j & 63);
    for (uint32_t i = 0; i < l->height; i++) n->rows[i] = !rows ? keys : v[i] ? all : (bits){{0}};
    return true;
}

/* Makes a node of a cell that depends on both q and k. False: the node is of a form that is not handled. */
static bool joint_node(lanes *l, const box_node *x, cell_node *n, const box *b) {
    const cell_node *u = x->a != MC_NONE ? &l->nodes[x->a] : NULL, *v = x->b != MC_NONE ? &l->nodes[x->b] : NULL;
    const cell_node *w = x->c != MC_NONE ? &l->nodes[x->c] : NULL;
    const cell_node zero = {0};
    cell_node f = {0};
    switch (x->op) {
    case BOX_LINEAR: return form_sum(l, n, &x->f, b);
    case MC_ADD: return x->flags & BOX_SAFE && add_sums(l, n, u, v, 1);
    case MC_SUB: return x->flags & BOX_SAFE && add_sums(l, n, u, v, -1);
    case MC_NEG: return x->flags & BOX_SAFE && add_sums(l, n, NULL, u, -1);
    case MC_ABS:
        n->x = u->x;
        n->y = u->y;
        n->absolute = true;
        return x->flags & BOX_SAFE;
    default: break;
    }
    if (!box_is_bool(x->op)) return false;
    n->rows = l->rows[l->rows_used++];
    switch (x->op) {
    case BOX_GE:
        if (x->f.x[BOX_K] != 1 && x->f.x[BOX_K] != -1)
            return form_sum(l, &f, &x->f, b) && compare_nodes(l, MC_LE, &zero, &f, n->rows);
        line_rows(l, &x->f, b, n->rows);
        return true;
    case BOX_EQ:
    case BOX_NE:
        return form_sum(l, &f, &x->f, b) && compare_nodes(l, x->op == BOX_EQ ? MC_EQ : MC_NE, &zero, &f, n->rows);
    case MC_EQ:
    case MC_NE:
    case MC_LT:
    case MC_LE: return compare_nodes(l, x->op, u, v, n->rows);
    case MC_NOT:
        memcpy(n->rows, u->rows, l->height * sizeof *n->rows);
        complement_rows(l, n->rows);
        return true;
    case MC_AND:
    case MC_OR:
    case MC_IFF:
    case MC_IF_B: break;
    default: return false;
    }
    for (uint32_t i = 0; i < l->height; i++)
        for (int j = 0; j < 2; j++) {
            const uint64_t p = u->rows[i].w[j], r = v->rows[i].w[j];
            n->rows[i].w[j] = x->op == MC_AND   ? p & r
                              : x->op == MC_OR  ? p | r
                              : x->op == MC_IFF ? p ^ r
                                                : (p & r) | (~p & w->rows[i].w[j]);
        }
    if (x->op == MC_IFF) complement_rows(l, n->rows);
    return true;
}

bool lanes_cell(lanes *l, const box_program *program, const box *b, uint64_t *out_pairs, bool *out_known) {
    *out_known = false;
    if (box_reads_bands(program)) return true;
    if (!reserve_cell(l, program->count)) return false;
    l->program = program;
    l->height = (uint32_t)(b->hi[BOX_Q] - b->lo[BOX_Q]);
    l->width = (uint32_t)(b->hi[BOX_K] - b->lo[BOX_K]);
    l->sums_used = l->rows_used = 0;
    for (uint32_t i = 0; i < program->count; i++) {
        const box_node *x = &program->nodes[i];
        cell_node *n = &l->nodes[i];
        *n = (cell_node){0};
        l->on[i] = box_depends(x, l->on) & (ON_Q | ON_K);
        if (l->on[i] == (ON_Q | ON_K)) {
            if (!joint_node(l, x, n, b)) return true;
            continue;
        }
        const int d = l->on[i] & ON_Q ? BOX_Q : BOX_K;
        /* the lanes of operands that depend on nothing are along k: make them anew along q, where they are needed */
        const uint32_t count = d == BOX_Q ? l->height : l->width, operand[3] = {x->a, x->b, x->c};
        for (int o = 0; o < 3 && d == BOX_Q; o++)
            if (operand[o] != MC_NONE && l->on[operand[o]] == 0)
                for (uint32_t j = l->width; j < count; j++) l->v[operand[o]][j] = l->v[operand[o]][0];
        if (!evaluate_lane(l, x, d, b->lo[d], count, b->lo, l->v[i])) return true;
        if (!plain_node(l, x, n, l->v[i], d == BOX_Q)) return true;
    }
    const bits *rows = l->nodes[program->root].rows;
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < l->height; i++) pairs += count_bits(rows[i].w);
    *out_pairs = pairs;
    *out_known = true;
    return true;
}
