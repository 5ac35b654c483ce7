/* classes.c: counts the pairs of cells by classes of positions, where the mask depends on positions through few values.
 *
 * Example:  r[q] == r[k], where r is 0 or 1 at random. Queries with r[q] == 0 are one class, and all see the same keys.
 *           A cell with 70 queries and 60 keys of r = 0, and 58 and 68 of r = 1, has 70 * 60 + 58 * 68 pairs.
 *
 * Requires: the box was the last that the mask was asked about.
 * Method:   1. A node that depends on query and key, and is decided in the box, is a constant there. So is what depends
 *              on neither. What depends on the query alone, and is used by one that depends on both, is a *leaf* of the
 *              queries; keys likewise. In `k <= q and r[q] == r[k]` below the diagonal, k <= q is a constant, and r[q]
 *              and r[k] are the leaves.
 *           2. The mask's code is evaluated once at each position of the sequence. Positions with equal leaves are a
 *              class.
 *           3. The nodes between leaves and answer are evaluated for each pair of classes. This is kept for further
 *              boxes with the same constants and leaves.
 *           4. Of a cell it is counted how many positions of each class it has.
 *           Boxes in which other nodes are constant need new classes. These are made only when as many cells have been
 *           counted pair by pair as would have taken about that long.
 * Cost:     O(positions of the sequence + pairs of classes) times the nodes, for the classes; O(positions of its sides
 *           + pairs of classes in it) a cell. Memory: 2 bytes a position, one for each pair of classes.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/pairs/pairs_parts.h"
#include "runtime/plan/enums.h"

enum { MOST = 2048, SLOTS = 8192, PAIRS_MOST = 1 << 22, ON_Q = 1, ON_K = 2, BOTH = 3 };

/* What a node is to the boxes that the classes are for. */
typedef enum role { UNUSED, CONSTANT, LEAF, JOINT } role;

typedef struct class_side {
    int64_t first;      /* position */
    uint64_t count;     /* of positions */
    uint16_t *class_of; /* by position */
    size_t room, value_room;
    uint32_t classes;
    int64_t *values;       /* of the node number n and class c, for leaves: values[c * nodes + n] */
    uint32_t counts[MOST]; /* of the cell at hand */
    uint16_t seen[MOST];   /* classes in it */
    uint32_t seen_count;
} class_side;

struct pairs_classes {
    uint32_t nodes;
    uint8_t *on;                       /* by node: what it depends on */
    uint8_t *role, *made;              /* by node: of the box at hand; of the boxes that the classes are for */
    int64_t *constant, *made_constant; /* by node, of constants that depend on both */
    int64_t *scratch, *value;
    bool known, usable; /* are there classes; are they few enough? */
    uint64_t credit;    /* cells that were counted pair by pair since */
    class_side side[2];
    uint8_t *sees; /* sees[i * classes of keys + j] */
    size_t sees_room;
    uint32_t slots[SLOTS]; /* class + 1, or 0 */
};

pairs_classes *fcp_pairs_classes_open(uint32_t nodes) {
    pairs_classes *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->nodes = nodes;
    c->on = malloc(nodes);
    c->role = malloc(nodes);
    c->made = malloc(nodes);
    c->constant = calloc(nodes, sizeof *c->constant);
    c->made_constant = calloc(nodes, sizeof *c->constant);
    c->scratch = malloc(nodes * sizeof *c->scratch);
    c->value = malloc(nodes * sizeof *c->value);
    if (c->on && c->role && c->made && c->constant && c->made_constant && c->scratch && c->value) return c;
    fcp_pairs_classes_close(c);
    return NULL;
}

void fcp_pairs_classes_close(pairs_classes *c) {
    if (!c) return;
    for (int d = 0; d < 2; d++) {
        free(c->side[d].class_of);
        free(c->side[d].values);
    }
    free(c->on);
    free(c->role);
    free(c->made);
    free(c->constant);
    free(c->made_constant);
    free(c->scratch);
    free(c->value);
    free(c->sees);
    free(c);
}

void fcp_pairs_classes_begin(pairs_classes *c, const pairs_mask *m) {
    c->known = false;
    c->credit = 0;
    for (uint32_t i = 0; i < c->nodes; i++) {
        const mc_node *x = &m->code.nodes[i];
        const uint32_t operand[3] = {x->a, x->b, x->c};
        c->on[i] = x->op == MC_Q ? ON_Q : x->op == MC_K ? ON_K : 0;
        for (int o = 0; o < 3; o++)
            if (operand[o] != MC_NONE) c->on[i] |= c->on[operand[o]];
    }
}

/* Finds the role of each node in the box at hand. False: some position is a leaf, so no two are of one class; or the
 * mask reads slices. */
static bool find_roles(pairs_classes *c, const pairs_mask *m) {
    const uint32_t root = c->nodes - 1;
    memset(c->role, UNUSED, c->nodes);
    memset(c->constant, 0, c->nodes * sizeof *c->constant);
    c->role[root] = JOINT;
    for (uint32_t i = c->nodes; i-- > 0;) {
        const mc_node *x = &m->code.nodes[i];
        const pairs_value *v = &m->values[i];
        const uint32_t operand[3] = {x->a, x->b, x->c};
        if (c->role[i] == UNUSED) continue;
        if (c->on[i] == 0) {
            c->role[i] = CONSTANT;
        } else if (c->on[i] != BOTH) {
            c->role[i] = LEAF;
            if (x->op == MC_Q || x->op == MC_K) return false;
        } else if (v->lo == v->hi) {
            c->role[i] = CONSTANT;
            c->constant[i] = v->lo;
        } else {
            c->role[i] = JOINT;
            if (x->op == MC_BANDS) return false;
            for (int o = 0; o < 3; o++)
                if (operand[o] != MC_NONE) c->role[operand[o]] = JOINT; /* found out when it is reached */
        }
    }
    return true;
}

/* Finds the classes of a side's positions. False: there are too many, or there is no memory. */
static bool find_classes(pairs_classes *c, const pairs_mask *m, int64_t head, int d) {
    class_side *s = &c->side[d];
    const uint8_t own = d ? ON_K : ON_Q;
    s->first = d ? 0 : m->env.q_first;
    s->count = (uint64_t)(d ? m->env.n : m->env.queries);
    s->classes = 0;
    if (!FCP_GROW(s->class_of, s->room, s->count)) return false;
    memset(c->slots, 0, sizeof c->slots);
    for (uint64_t p = 0; p < s->count; p++) {
        const int64_t at = s->first + (int64_t)p;
        uint64_t hash = 0;
        mc_eval(m->code, &m->env, d ? m->env.q_first : at, d ? at : 0, head, c->scratch);
        for (uint32_t i = 0; i < c->nodes; i++)
            if (c->role[i] == LEAF && c->on[i] == own)
                hash = (hash ^ (uint64_t)c->scratch[i]) * UINT64_C(0x9e3779b97f4a7c15);
        for (uint32_t slot = (uint32_t)(hash >> 51);; slot = (slot + 1) % SLOTS) { /* of 2^13 */
            uint32_t cls = s->classes, i = 0;
            if (c->slots[slot]) {
                cls = c->slots[slot] - 1;
                while (i < c->nodes && (c->role[i] != LEAF || c->on[i] != own ||
                                        s->values[(size_t)cls * c->nodes + i] == c->scratch[i]))
                    i++;
                if (i < c->nodes) continue;
            } else {
                if (s->classes == MOST) return false;
                if (!FCP_GROW(s->values, s->value_room, ((size_t)cls + 1) * c->nodes)) return false;
                memcpy(s->values + (size_t)cls * c->nodes, c->scratch, c->nodes * sizeof *c->scratch);
                c->slots[slot] = ++s->classes;
            }
            s->class_of[p] = (uint16_t)cls;
            break;
        }
    }
    return true;
}

/* The mask's answer for a query of class q and a key of class k. */
static bool answer_of(const pairs_classes *c, const pairs_mask *m, const int64_t *q, const int64_t *k) {
    for (uint32_t i = 0; i < c->nodes; i++) {
        const mc_node *x = &m->code.nodes[i];
        if (c->role[i] == UNUSED) continue;
        if (c->role[i] == CONSTANT) c->value[i] = c->on[i] ? c->constant[i] : q[i];
        if (c->role[i] == LEAF) c->value[i] = c->on[i] == ON_Q ? q[i] : k[i];
        if (c->role[i] != JOINT) continue;
        const int64_t u = x->a != MC_NONE ? c->value[x->a] : 0, v = x->b != MC_NONE ? c->value[x->b] : 0;
        const int64_t w = x->c != MC_NONE ? c->value[x->c] : 0;
        if (mc_loads_int(x->op)) c->value[i] = mc_load(&m->env.arrays[x->imm], u, v, w);
        else if (x->op == MC_IF_I || x->op == MC_IF_B) c->value[i] = u ? v : w;
        else mc_value(x->op, u, v, &c->value[i]);
    }
    return c->value[c->nodes - 1];
}

/* Makes the classes for boxes like the one at hand, and the answer for each pair of them. */
static bool make_classes(pairs_classes *c, const pairs_mask *m, int64_t head) {
    for (int d = 0; d < 2; d++)
        if (!find_classes(c, m, head, d)) return false;
    const uint32_t rows = c->side[0].classes, columns = c->side[1].classes;
    if ((uint64_t)rows * columns > PAIRS_MOST || !FCP_GROW(c->sees, c->sees_room, (size_t)rows * columns)) return false;
    for (uint32_t i = 0; i < rows; i++)
        for (uint32_t j = 0; j < columns; j++)
            c->sees[(size_t)i * columns + j] =
                answer_of(c, m, c->side[0].values + (size_t)i * c->nodes, c->side[1].values + (size_t)j * c->nodes);
    return true;
}

/* Counts the positions [from, to) of each class. */
static void count_side(class_side *s, int64_t from, int64_t to) {
    for (uint32_t i = 0; i < s->seen_count; i++) s->counts[s->seen[i]] = 0;
    s->seen_count = 0;
    for (int64_t p = from; p < to; p++) {
        const uint16_t cls = s->class_of[p - s->first];
        if (s->counts[cls]++ == 0) s->seen[s->seen_count++] = cls;
    }
}

bool fcp_pairs_classes_count(pairs_classes *c, const pairs_mask *m, const pairs_box *b, int64_t head,
                             uint64_t *out_pairs) {
    if (!find_roles(c, m)) return false;
    const size_t words = c->nodes * sizeof *c->constant;
    if (!c->known || memcmp(c->role, c->made, c->nodes) || memcmp(c->constant, c->made_constant, words)) {
        const uint64_t price = (uint64_t)(m->env.n + m->env.queries) / FCP_CELL;
        if (c->credit < price) {
            c->credit++;
            return false;
        }
        c->credit = 0;
        c->known = true;
        memcpy(c->made, c->role, c->nodes);
        memcpy(c->made_constant, c->constant, words);
        c->side[0].seen_count = c->side[1].seen_count = 0;
        memset(c->side[0].counts, 0, sizeof c->side[0].counts);
        memset(c->side[1].counts, 0, sizeof c->side[1].counts);
        c->usable = make_classes(c, m, head);
    }
    if (!c->usable) return false;
    count_side(&c->side[0], b->q0, b->q1);
    count_side(&c->side[1], b->k0, b->k1);
    uint64_t pairs = 0;
    for (uint32_t i = 0; i < c->side[0].seen_count; i++) {
        const uint16_t q = c->side[0].seen[i];
        const uint8_t *sees = c->sees + (size_t)q * c->side[1].classes;
        uint64_t keys = 0;
        for (uint32_t j = 0; j < c->side[1].seen_count; j++)
            keys += (uint64_t)sees[c->side[1].seen[j]] * c->side[1].counts[c->side[1].seen[j]];
        pairs += keys * c->side[0].counts[q];
    }
    *out_pairs = pairs;
    return true;
}
