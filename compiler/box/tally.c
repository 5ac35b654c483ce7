/* tally.c: counts the cells of a rectangle by classes of positions.
 *
 * Requires: a program specialised to the box, which cannot fault there and has no form in both q and k.
 * Gives: tally.h.
 * How: - In such a program whatever depends on q alone meets whatever depends on k alone only in some nodes. These are
 *        called joint, and their operands that depend on one dimension are its *leaves*. In `r[q] == r[k]` the joint
 *        node is ==, and the leaves are r[q] and r[k]. Positions at which all leaves of their dimension have the same
 *        values are a class.
 *      - A position's class is found by its leaves' values in a hash table. If the leaves are constant over a cell, as
 *        q / 128 is, this is found out from the ends of the cell, and one position is evaluated for all of them.
 *      - The joint nodes are evaluated for each pair of classes, in vector code. The answers are the matrix `sees`.
 *      - The pairs of a cell are x' S y, where x has the number of its queries in each class and y that of its keys. x'
 *        S is computed once for a row of cells. Its product with y takes either the classes that a cell has, one by
 *        one, or all classes for 8 cells at a time, whichever is less work.
 * Cost: O(positions * nodes), or O(cells of the sides * nodes) where leaves are constant over cells; O(pairs of classes
 *      * joint nodes); and for a cell O(classes in it), or O(classes / 8). All but the first for each head, if the
 *      program depends on h.
 * Units: positions count tokens; a class has a number for each dimension. */
#include "compiler/box/tally.h"

#include "compiler/box/lanes.h"
#include "runtime/base/grow.h"
#include "runtime/base/stop.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)TALLY_CELL <= (int)LANES, "a cell's side is evaluated at once");

/* CLASSES_MOST: of one dimension; FEW of them are worth trying on the shortest side, and otherwise one for each SHARE
 * positions. SLOTS: of the hash table. RUNS_FEW, RUN_LONG: a box in which so few runs begin, or in which runs
 * have so many positions on average, is left to splits. */
enum { CLASSES_MOST = 1024, FEW = 64, SHARE = 8, SLOTS = 4096, RUNS_FEW = 8, RUN_LONG = 256 };
_Static_assert(CLASSES_MOST >= TALLY_SIDE * TALLY_CELL / SHARE, "room for all that are worth trying");
#define HEADS_MOST (UINT32_MAX / (TALLY_CELL * TALLY_CELL)) /* more do not fit the counts */

/* Some positions of a cell that are of one class. */
typedef struct part {
    uint16_t cls, positions;
} part;

/* What is known of one dimension, for one head. */
typedef struct side {
    uint32_t *order, order_count; /* the leaves, and the nodes that they need, in order */
    uint32_t *leaves, leaf_count;
    bool on_h;                      /* some leaf depends on the head */
    uint32_t count;                 /* classes */
    int64_t *values;                /* of leaf i and class j: values[i * CLASSES_MOST + j] */
    part *parts;
    uint32_t first[TALLY_SIDE + 1]; /* cell i has parts [first[i], first[i + 1]) */
} side;

struct tally {
    lanes *lanes;
    int64_t *lane; /* of node 0; those of the others follow */
    const box_program *program;
    uint8_t *on;           /* by node: what it depends on */
    bool *level;           /* by node: is it constant over the positions at hand? */
    uint32_t *nodes, room; /* lists of nodes: the order and the leaves of both sides, and the joint nodes */
    uint32_t *joint, joint_count;
    uint32_t *plain, plain_count; /* nodes that depend on h at most */
    side side[2];
    size_t value_room[2];
    uint8_t *sees;    /* sees[i * classes of k + j] */
    uint16_t *across; /* across[class * TALLY_SIDE + cell]: positions of the class in the cell, of keys */
    size_t sees_room, across_room;
    uint64_t work;
    /* The rest, about 95 kB, is written before it is read: a new tally need not clear it. */
    uint16_t slots[SLOTS];                                 /* class + 1, or 0 */
    uint16_t part_of[CLASSES_MOST], cell_of[CLASSES_MOST]; /* a class's last part, and the cell of it, + 1 */
    uint16_t row[CLASSES_MOST];                            /* pairs of a row of cells with one key of each class */
    uint32_t pairs[TALLY_SIDE * TALLY_SIDE];
    part parts[2][TALLY_SIDE * TALLY_CELL];
};

/* What steps cost in nanoseconds: for a node, to ask whether it is level, or to evaluate it at a position; to find a
 * position's class; to evaluate a joint node for a pair of classes; to add a part, or 8 cells, to a row. */
enum { WORK_LEVEL = 8, WORK_AT = 2, WORK_CLASS = 4, WORK_JOINT = 2, WORK_PART = 2 };

tally *tally_new(void) {
    tally *t = malloc(sizeof *t);
    if (!t) return NULL;
    memset(t, 0, offsetof(tally, slots));
    for (int d = 0; d < 2; d++) t->side[d].parts = t->parts[d];
    if (!(t->lanes = lanes_new())) {
        free(t);
        return NULL;
    }
    return t;
}

void tally_free(tally *t) {
    if (!t) return;
    lanes_free(t->lanes);
    free(t->on);
    free(t->level);
    free(t->nodes);
    for (int d = 0; d < 2; d++) free(t->side[d].values);
    free(t->sees);
    free(t->across);
    free(t);
}

size_t tally_bytes(const tally *t) {
    if (!t) return 0;
    size_t bytes = sizeof *t + lanes_bytes(t->lanes) + t->sees_room + t->across_room * sizeof *t->across;
    for (int d = 0; d < 2; d++) bytes += t->value_room[d] * sizeof *t->side[d].values;
    return bytes + t->room * (sizeof *t->on + sizeof *t->level + 6 * sizeof *t->nodes);
}

/* --- which programs ----------------------------------------------------------------------------------------------- */

/* How many runs begin among the elements that a load reads in a box, and how many elements these are. False: that is
 * not known. */
static bool count_runs(const box_program *p, const box_node *x, const box *b, uint64_t *runs, uint64_t *elements) {
    const box_array *a = &p->arrays[x->f.c];
    const box_node *index = &p->nodes[x->a];
    int64_t lo, hi;
    uint64_t end;
    if (x->op != MC_LOAD || index->op != BOX_LINEAR) return false;
    form_range(&index->f, b, &lo, &hi);
    lo -= a->array.first;
    hi -= a->array.first;
    if (lo < 0 || (uint64_t)hi >= a->total) return false;
    const array_run *first = box_array_run(a, (uint64_t)lo, &end), *last = box_array_run(a, (uint64_t)hi, &end);
    *runs += first ? (uint64_t)(last - first) : 0;
    *elements += (uint64_t)(hi - lo) + 1;
    return first;
}

bool tally_fits(const box_program *p, const box *b) {
    uint64_t runs = 0, elements = 0;
    bool reads = false, known = true;
    if (p->loose || box_side(b, BOX_H) > HEADS_MOST) return false;
    for (uint32_t i = 0; i < p->count; i++) {
        const box_node *x = &p->nodes[i];
        if (x->op >= MC_BANDS && x->op < BOX_LINEAR) return false;
        if (x->op >= BOX_LINEAR && x->f.x[BOX_Q] != 0 && x->f.x[BOX_K] != 0) return false;
        if (!mc_loads_int(x->op)) continue;
        reads = true;
        known = known && count_runs(p, x, b, &runs, &elements);
    }
    return reads && (!known || (runs > RUNS_FEW && runs * RUN_LONG > elements));
}

static bool reserve(tally *t, uint32_t count) {
    if (count <= t->room) return true;
    free(t->on);
    free(t->level);
    free(t->nodes);
    t->room = 0;
    t->on = malloc(count * sizeof *t->on);
    t->level = malloc(count * sizeof *t->level);
    t->nodes = malloc(6 * (size_t)count * sizeof *t->nodes);
    if (!t->on || !t->level || !t->nodes) return false;
    t->room = count;
    return true;
}

/* Sorts the nodes of a program into what depends on both dimensions, and on neither. False: out of memory. */
static bool sort_nodes(tally *t, const box_program *p) {
    enum { BOTH = ON_Q | ON_K };
    if (!reserve(t, p->count)) return false;
    t->program = p;
    t->plain = t->nodes + 4 * (size_t)t->room;
    t->joint = t->plain + t->room;
    t->joint_count = t->plain_count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        t->on[i] = box_depends(&p->nodes[i], t->on);
        if ((t->on[i] & BOTH) == BOTH) t->joint[t->joint_count++] = i;
        if (!(t->on[i] & BOTH)) t->plain[t->plain_count++] = i;
    }
    return true;
}

/* Is each position of dimension d a class of its own, because a leaf is a form, as q is in `last[k] >= q`? */
static bool are_single(const tally *t, int d) {
    const box_node *nodes = t->program->nodes;
    for (uint32_t j = 0; j < t->joint_count; j++) {
        const uint32_t operand[3] = {nodes[t->joint[j]].a, nodes[t->joint[j]].b, nodes[t->joint[j]].c};
        for (int o = 0; o < 3; o++)
            if (operand[o] != MC_NONE && nodes[operand[o]].op == BOX_LINEAR && nodes[operand[o]].f.x[d]) return true;
    }
    return false;
}

/* Finds the leaves of both dimensions, and the nodes that they need. False: out of memory. */
static bool find_leaves(tally *t) {
    enum { BOTH = ON_Q | ON_K };
    const box_program *p = t->program;
    for (int d = 0; d < 2; d++) {
        side *s = &t->side[d];
        const uint8_t own = (uint8_t)(1 << d);
        s->order = t->nodes + 2 * (size_t)t->room * (unsigned)d;
        s->leaves = s->order + t->room;
        s->order_count = s->leaf_count = 0;
        s->on_h = false;
        bool *needed = t->level; /* not in use before the first question about levels */
        memset(needed, 0, p->count * sizeof *needed);
        if ((t->on[p->root] & BOTH) == own) needed[p->root] = true;
        for (uint32_t j = 0; j < t->joint_count; j++) {
            const box_node *x = &p->nodes[t->joint[j]];
            const uint32_t operand[3] = {x->a, x->b, x->c};
            for (int o = 0; o < 3; o++)
                if (operand[o] != MC_NONE && (t->on[operand[o]] & BOTH) == own) needed[operand[o]] = true;
        }
        for (uint32_t i = 0; i < p->count; i++)
            if (needed[i]) s->leaves[s->leaf_count++] = i, s->on_h |= t->on[i] & ON_H;
        for (uint32_t i = p->count; i-- > 0;) {
            const box_node *x = &p->nodes[i];
            const uint32_t operand[3] = {x->a, x->b, x->c};
            for (int o = 0; o < 3 && needed[i]; o++)
                if (operand[o] != MC_NONE) needed[operand[o]] = true;
        }
        for (uint32_t i = 0; i < p->count; i++)
            if (needed[i]) s->order[s->order_count++] = i;
        if (!FCP_GROW(s->values, t->value_room[d], (size_t)s->leaf_count * CLASSES_MOST)) return false;
    }
    return true;
}

/* --- classes of one dimension ------------------------------------------------------------------------------------- */

/* Is a node constant over positions [from, to] of dimension d? False also if that is not seen. t->level has the answers
 * for its operands. */
static bool is_level(const tally *t, const box_node *x, int d, int64_t from, int64_t to, const int64_t at[BOX_DIMS]) {
    const box_program *p = t->program;
    const box_node *u = x->a != MC_NONE ? &p->nodes[x->a] : NULL, *v = x->b != MC_NONE ? &p->nodes[x->b] : NULL;
    int64_t lo[BOX_DIMS], hi[BOX_DIMS];
    if (x->op >= BOX_LINEAR && x->f.x[d] == 0) return true;
    if (x->op >= BOX_LINEAR && x->op != BOX_GE) return false;
    if (x->op < BOX_LINEAR && (!u || t->level[x->a]) && (!v || t->level[x->b]) && (x->c == MC_NONE || t->level[x->c]))
        return true;
    const form *f = x->op == BOX_GE ? &x->f : &u->f;
    if (x->op != BOX_GE && u->op != BOX_LINEAR) return false;
    memcpy(lo, at, sizeof lo);
    memcpy(hi, at, sizeof hi);
    lo[d] = from;
    hi[d] = to;
    const int64_t first = form_at(f, lo[0], lo[1], lo[2]), last = form_at(f, hi[0], hi[1], hi[2]);
    switch (x->op) {
    case BOX_GE: return (first >= 0) == (last >= 0);
    case MC_DIV: return v->op == BOX_LINEAR && form_is_const(&v->f) && mc_div(first, v->f.c) == mc_div(last, v->f.c);
    case MC_LOAD: {
        const box_array *a = &p->arrays[x->f.c];
        const int64_t least = first < last ? first : last, most = first < last ? last : first;
        uint64_t place, other, end;
        if (!mc_place(&a->array, least, 0, 0, &place) || !mc_place(&a->array, most, 0, 0, &other)) return false;
        const array_run *r = box_array_run(a, place, &end);
        return r && r->s == 0 && other < end;
    }
    default: return false;
    }
}

/* Are all leaves constant there? */
static bool are_level(tally *t, const side *s, int d, int64_t from, int64_t to, const int64_t at[BOX_DIMS]) {
    for (uint32_t i = 0; i < s->order_count; i++)
        t->level[s->order[i]] = is_level(t, &t->program->nodes[s->order[i]], d, from, to, at);
    t->work += WORK_LEVEL * (uint64_t)s->order_count;
    for (uint32_t i = 0; i < s->leaf_count; i++)
        if (!t->level[s->leaves[i]]) return false;
    return true;
}

static int64_t *lane_of(const tally *t, uint32_t node) { return t->lane + (size_t)node * LANES; }

/* The class of lane i, which is made if there is none; `most` if there would be too many. */
static uint32_t class_of(tally *t, side *s, uint32_t i, uint32_t most) {
    uint64_t hash = 0;
    for (uint32_t j = 0; j < s->leaf_count; j++)
        hash = (hash ^ (uint64_t)lane_of(t, s->leaves[j])[i]) * 0x9e3779b97f4a7c15u;
    for (uint32_t at = (uint32_t)(hash >> 52);; at = (at + 1) % SLOTS) { /* of 2^12 */
        const uint32_t cls = t->slots[at] ? t->slots[at] - 1u : s->count;
        if (cls == s->count && cls == most) return most;
        uint32_t j = 0;
        for (; j < s->leaf_count; j++) {
            int64_t *value = &s->values[(size_t)j * CLASSES_MOST + cls], x = lane_of(t, s->leaves[j])[i];
            if (cls == s->count) *value = x;
            else if (*value != x) break;
        }
        if (j < s->leaf_count) continue;
        if (cls == s->count) {
            t->slots[at] = (uint16_t)++s->count;
            t->cell_of[cls] = 0;
        }
        return cls;
    }
}

/* Is lane i of all leaves equal to the lane before it? */
static bool goes_on(tally *t, const side *s, uint32_t i) {
    for (uint32_t j = 0; j < s->leaf_count; j++) {
        const int64_t *v = lane_of(t, s->leaves[j]);
        if (v[i] != v[i - 1]) return false;
    }
    return true;
}

/* How many classes of a side are worth trying. */
static uint32_t classes_most(const tally_cuts *cuts) {
    const uint32_t positions = (uint32_t)(cuts->at[cuts->count] - cuts->at[0]);
    return positions / SHARE > FEW ? positions / SHARE : FEW;
}

/* Finds the classes of the positions of dimension d, and the parts of its cells. at: a position of the box, of the head
 * at hand. False: there are too many classes. */
static bool find_classes(tally *t, int d, const tally_cuts *cuts, const int64_t at[BOX_DIMS]) {
    side *s = &t->side[d];
    const uint32_t most = classes_most(cuts);
    uint32_t parts = 0;
    s->count = 0;
    memset(t->slots, 0, sizeof t->slots);
    for (uint32_t cell = 0; cell < cuts->count; cell++) {
        const int64_t from = cuts->at[cell];
        const uint32_t width = (uint32_t)(cuts->at[cell + 1] - from);
        const bool level = are_level(t, s, d, from, from + width - 1, at);
        const uint32_t count = level ? 1 : width;
        s->first[cell] = parts;
        for (uint32_t i = 0; i < s->order_count; i++)
            if (!lanes_node(t->lanes, s->order[i], d, from, count, at)) return false;
        for (uint32_t i = 0, cls = 0; i < count; i++) {
            if (i == 0 || !goes_on(t, s, i)) cls = class_of(t, s, i, most);
            if (cls == most) return false;
            if (t->cell_of[cls] != cell + 1) {
                t->cell_of[cls] = (uint16_t)(cell + 1);
                t->part_of[cls] = (uint16_t)parts;
                s->parts[parts++] = (part){(uint16_t)cls, 0};
            }
            s->parts[t->part_of[cls]].positions += (uint16_t)(level ? width : 1);
        }
        t->work += count * (WORK_AT * (uint64_t)s->order_count + WORK_CLASS);
    }
    s->first[cuts->count] = parts;
    return true;
}

/* --- pairs of classes --------------------------------------------------------------------------------------------- */

/* Evaluates the program for each pair of classes; t->sees has room for them. */
static bool find_sees(tally *t, const int64_t at[BOX_DIMS]) {
    const side *q = &t->side[BOX_Q], *k = &t->side[BOX_K];
    const uint32_t root = t->program->root;
    for (uint32_t i = 0; i < t->plain_count; i++)
        if (!lanes_node(t->lanes, t->plain[i], BOX_K, at[BOX_K], LANES, at)) return false;
    for (uint32_t from = 0; from < k->count; from += LANES) {
        const uint32_t width = k->count - from < LANES ? k->count - from : LANES;
        for (uint32_t j = 0; j < k->leaf_count; j++)
            memcpy(lane_of(t, k->leaves[j]), k->values + (size_t)j * CLASSES_MOST + from, width * sizeof *k->values);
        for (uint32_t cls = 0; cls < q->count; cls++) {
            for (uint32_t j = 0; j < q->leaf_count; j++) {
                int64_t *v = lane_of(t, q->leaves[j]);
                for (uint32_t i = 0; i < width; i++) v[i] = q->values[(size_t)j * CLASSES_MOST + cls];
            }
            for (uint32_t j = 0; j < t->joint_count; j++)
                if (!lanes_node(t->lanes, t->joint[j], BOX_K, at[BOX_K], width, at)) return false;
            const int64_t *answer = lane_of(t, root);
            uint8_t *to = t->sees + (size_t)cls * k->count + from;
            for (uint32_t i = 0; i < width; i++) to[i] = (uint8_t)answer[i];
        }
    }
    t->work += (uint64_t)q->count * k->count * WORK_JOINT * (t->joint_count + 1);
    return true;
}

/* --- cells -------------------------------------------------------------------------------------------------------- */

/* Writes how many positions of each class each cell of the keys has. */
static bool spread_parts(tally *t, uint32_t cells) {
    const side *k = &t->side[BOX_K];
    if (!FCP_GROW(t->across, t->across_room, (size_t)k->count * TALLY_SIDE)) return false;
    memset(t->across, 0, (size_t)k->count * TALLY_SIDE * sizeof *t->across);
    for (uint32_t cell = 0; cell < cells; cell++)
        for (uint32_t i = k->first[cell]; i < k->first[cell + 1]; i++)
            t->across[(size_t)k->parts[i].cls * TALLY_SIDE + cell] = k->parts[i].positions;
    return true;
}

/* Makes t->row for row i of cells: how many pairs its queries have with one key of each class. */
static void make_row(tally *t, uint32_t i) {
    const side *q = &t->side[BOX_Q];
    const uint32_t classes = t->side[BOX_K].count;
    memset(t->row, 0, classes * sizeof *t->row);
    for (uint32_t p = q->first[i]; p < q->first[i + 1]; p++) {
        const uint8_t *sees = t->sees + (size_t)q->parts[p].cls * classes;
        const uint16_t positions = q->parts[p].positions;
        for (uint32_t j = 0; j < classes; j++) t->row[j] = (uint16_t)(t->row[j] + sees[j] * positions);
    }
}

/* Adds the pairs of one head. */
static bool add_head(tally *t, uint32_t rows, uint32_t columns) {
    enum { AT_ONCE = 8 };
    const side *q = &t->side[BOX_Q], *k = &t->side[BOX_K];
    const uint32_t groups = (columns + AT_ONCE - 1) / AT_ONCE, width = groups * AT_ONCE;
    const uint32_t parts = k->first[columns];
    const bool all = (uint64_t)k->count * groups < parts;
    uint16_t pairs[TALLY_SIDE] = {0}; /* of a row; a cell has at most 2^14 */
    if (all && !spread_parts(t, columns)) return false;
    for (uint32_t i = 0; i < rows; i++) {
        const part *own = &q->parts[q->first[i]];
        const bool one = q->first[i + 1] - q->first[i] == 1;
        const bool again = i > 0 && one && q->first[i] - q->first[i - 1] == 1 && own[-1].cls == own->cls &&
                           own[-1].positions == own->positions; /* as the row before */
        if (!again) {
            make_row(t, i);
            memset(pairs, 0, sizeof pairs);
            for (uint32_t cls = 0; all && cls < k->count; cls++) {
                const uint16_t *across = t->across + (size_t)cls * TALLY_SIDE;
                const uint16_t seen = t->row[cls];
                for (uint32_t j = 0; seen && j < width; j++) pairs[j] = (uint16_t)(pairs[j] + seen * across[j]);
            }
            for (uint32_t j = 0, p = 0; !all && j < columns; j++)
                for (; p < k->first[j + 1]; p++)
                    pairs[j] = (uint16_t)(pairs[j] + t->row[k->parts[p].cls] * k->parts[p].positions);
            t->work += WORK_PART * (all ? (uint64_t)k->count * groups : parts);
        }
        uint32_t *to = t->pairs + (size_t)i * columns;
        for (uint32_t j = 0; j < columns; j++) to[j] += pairs[j];
    }
    return true;
}

fcp_code tally_cells(tally *t, const box_program *p, const box *b, const tally_cuts *q, const tally_cuts *k,
                     const volatile int *stop, const uint32_t **out_pairs, uint64_t *out_work) {
    *out_pairs = NULL;
    t->work = *out_work = 0;
    const tally_cuts *cuts[2] = {[BOX_Q] = q, [BOX_K] = k};
    if (!sort_nodes(t, p)) return FCP_E_NO_MEMORY;
    for (int d = 0; d < 2; d++)
        if (box_side(b, d) > classes_most(cuts[d]) && are_single(t, d)) return FCP_OK;
    if (!find_leaves(t) || !lanes_begin(t->lanes, p)) return FCP_E_NO_MEMORY;
    t->lane = lanes_of(t->lanes, 0);
    const uint64_t heads = box_side(b, BOX_H);
    memset(t->pairs, 0, (size_t)q->count * k->count * sizeof *t->pairs);
    bool known = true;
    for (int64_t h = b->lo[BOX_H]; h < b->hi[BOX_H] && known; h++) {
        const int64_t at[BOX_DIMS] = {b->lo[BOX_Q], b->lo[BOX_K], h};
        const bool first = h == b->lo[BOX_H];
        if (fcp_stop_asked(stop)) return FCP_E_INTERRUPTED;
        for (int d = 0; d < 2 && known; d++)
            if (first || t->side[d].on_h) known = find_classes(t, d, cuts[d], at);
        const size_t class_pairs = known ? (size_t)t->side[BOX_Q].count * t->side[BOX_K].count : 0;
        if (!FCP_GROW(t->sees, t->sees_room, class_pairs)) return FCP_E_NO_MEMORY;
        known = known && find_sees(t, at);
        if (known && !add_head(t, q->count, k->count)) return FCP_E_NO_MEMORY;
        if (!p->on_h) break;
    }
    *out_work = t->work;
    if (!known) return FCP_OK;
    if (!p->on_h && heads > 1)
        for (size_t i = 0; i < (size_t)q->count * k->count; i++) t->pairs[i] *= (uint32_t)heads;
    *out_pairs = t->pairs;
    return FCP_OK;
}
