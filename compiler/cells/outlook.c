/* outlook.c: estimates what the cells of a batch will cost, before the work begins.
 *
 * Requires: a batch, and an object that has been asked nothing.
 * Gives: an estimate of cells_stats.work and of the pairs that will be looked at one by one.
 * How: making a grid halves MIXED rectangles again and again, down to cells. So the rectangles form a tree. What the
 *      tree costs is estimated from random walks:
 *      1. A walk begins at the root. At each step it draws one of the MIXED parts and goes there. It ends at a cell, at
 *         a rectangle without MIXED parts, or at one that is counted without being split. If there are several
 *         sequences, each gets a share of the walks in proportion to its pairs.
 *      2. A walk that had the choice of 3, then 4, then 2 parts is one of 24 equally likely ones, so what it met is
 *         counted 24 times. The mean over all walks is an unbiased estimate of the tree's cost.
 *      3. But cells and piece pairs with equal keys cost only once, because the memo answers from then on. So the
 *         number of different keys, called kinds, is needed. A mask with a period may have ten of them, whereas no two
 *         cells of `(q * k) % 1009 < 13` have equal keys.
 *      4. The number of kinds is estimated from how many kinds were met at one place only, and how many at two. If too
 *         few were met at two, the share of rectangles that are of a kind of their own is taken from the sample.
 * Cost: nothing for a mask of sums and comparisons, or a small batch. Else ROUND walks, and 4, 16 and 64 times as many
 *      while they say that it will take long; at most WORK_MOST of counted work. Arrays are looked at once for each
 *      sequence in which a walk begins.
 * Units: work in nanoseconds of one processor, as counted.
 * Method: Knuth, Estimating the efficiency of backtrack programs (1975); for kinds, Chao, Nonparametric estimation of
 *      the number of classes in a population (1984).
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/cells/cells_parts.h"

enum { ROUND = 64, ROUNDS = 4, DEPTHS = 64, LEAST_BITS = 28, ASKED_FIRST = 16, ASKED = 256, TWICE = 5, SOON = 4 };
#define LONG UINT64_C(1000000000)     /* work: less is not worth a closer look */
#define WORK_MOST UINT64_C(400000000) /* of a round that has begun, before it is ended */

/* A MIXED rectangle that a walk came to. */
typedef struct visit {
    uint64_t place, kind; /* hashes: of where it is, and of its key; kind 0: it is like no other */
    uint64_t side;        /* cells of its longer side */
    double weight;        /* how many rectangles of this depth it stands for */
    bool asked;           /* its cost was found out; of cells, only of the first of a kind, and not of all kinds */
    double work, pairs;   /* what it costs, without its parts */
} visit;

/* The visits at one depth. */
typedef struct depth {
    visit *at;
    size_t count, room, asked;
} depth;

typedef struct looking {
    cells *c;
    const cells_batch *batch;
    uint32_t *unlike; /* sequences that differ */
    double *before;   /* per such sequence: the pairs of those before it, and at the end all */
    uint32_t count;
    depth depths[DEPTHS];
    uint64_t state; /* of random numbers */
    size_t most_asked; /* cells that are solved, of a round */
} looking;

/* May the mask have cells that cost more than a closed form? Sums and comparisons of positions never do. */
static bool may_cost(mc_code mask) {
    for (uint32_t i = 0; i < mask.count; i++)
        switch (mask.nodes[i].op) {
        case MC_MUL:
        case MC_DIV:
        case MC_MOD:
        case MC_LOAD:
        case MC_LOAD2:
        case MC_LOAD3:
        case MC_BANDS: return true;
        default: break;
        }
    return false;
}

/* Lists the sequences that are not alike, as far as lengths and arrays tell. False: out of memory. */
static bool list_unlike(looking *l) {
    const uint32_t count = l->batch->count;
    size_t size = 4;
    while (size < 2 * (size_t)count) size *= 2;
    uint64_t *known = calloc(size, sizeof *known); /* sequences by their size: number + 1 */
    int64_t(*sizes)[2] = malloc((count + (size_t)1) * sizeof *sizes);
    l->unlike = malloc((count + (size_t)1) * sizeof *l->unlike);
    l->before = malloc((count + (size_t)1) * sizeof *l->before);
    const bool good = known && sizes && l->unlike && l->before;
    if (good) l->before[0] = 0;
    for (uint32_t s = 0; good && s < count; s++) {
        const mc_env env = l->batch->env(l->batch->of, s);
        sizes[s][0] = env.n;
        sizes[s][1] = env.queries;
        size_t at = memo_hash(sizes[s], 2) & (size - 1);
        while (known[at] && memcmp(sizes[known[at] - 1], sizes[s], sizeof *sizes)) at = (at + 1) & (size - 1);
        if (known[at] && !(l->c->uses & MC_USES_DATA)) continue;
        known[at] = s + (uint64_t)1;
        l->unlike[l->count] = s;
        l->before[l->count + 1] = l->before[l->count] + (double)env.n * (double)env.queries;
        l->count++;
    }
    free(known);
    free(sizes);
    return good;
}

static double draw_number(looking *l) { /* in [0, 1) */
    l->state = l->state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (double)(l->state >> 11) / 9007199254740992.0; /* 2^53 */
}

static uint64_t side_of(const cell_rect *r) {
    const uint64_t down = r->hi[BOX_Q] - r->lo[BOX_Q], across = r->hi[BOX_K] - r->lo[BOX_K];
    return down > across ? down : across;
}

/* Halves a rectangle of more than one cell, in both dimensions if its sides are about equal. Returns the number of
 * parts. The first half is a power of two of cells: blocks mostly have that many, so that the parts are whole
 * blocks. */
static unsigned halve_rect(const cell_rect *r, cell_rect out[4]) {
    const uint64_t side = side_of(r), half = (uint64_t)1 << (63 - __builtin_clzll(side - 1));
    unsigned count = 1;
    out[0] = *r;
    for (int d = 0; d < 2; d++) {
        if (r->hi[d] - r->lo[d] <= half) continue;
        for (unsigned i = 0, before = count; i < before; i++) {
            out[count] = out[i];
            out[i].hi[d] = out[count++].lo[d] = r->lo[d] + half;
        }
    }
    return count;
}

/* Has a rectangle of this kind come up at this depth? */
static bool is_known(const depth *d, uint64_t kind) {
    for (size_t i = 0; kind && i < d->count; i++)
        if (d->at[i].kind == kind) return true;
    return false;
}

/* Makes one walk through the sequence that the object is set to. `weight`: the share of the batch that it stands for. A
 * fault of the mask ends the walk without an error; it is reported when the cells are made. */
static fcp_code walk_down(looking *l, const cell_rect *all, double weight, uint32_t sequence) {
    cells *c = l->c;
    cell_rect r = *all;
    const box_program *p = c->base;
    box_class cls;
    box b = cells_rect_box(c, &r);
    fcp_code code = cells_classify(c, &b, &p, &cls);
    for (int at = 0; code == FCP_OK && cls == BOX_MIXED && at < DEPTHS; at++) {
        if (cells_stopped(c)) return FCP_E_INTERRUPTED;
        depth *d = &l->depths[at];
        const int64_t where[5] = {(int64_t)r.lo[0], (int64_t)r.hi[0], (int64_t)r.lo[1], (int64_t)r.hi[1], sequence};
        const size_t words = cells_box_words(c, ANSWER_CELLS, &b, p);
        visit v = {.place = memo_hash(where, 5), .kind = words ? memo_hash(c->key, words) : 0, .side = side_of(&r),
                   .weight = weight};
        if (!FCP_GROW(d->at, d->room, d->count + 1)) return FCP_E_NO_MEMORY;
        v.asked = v.side > 1 || (d->asked < l->most_asked && !is_known(d, v.kind));
        d->asked += v.asked;
        const bool cell = v.side == 1;
        const cells_stats before = c->stats;
        const box_program *programs[4];
        cell_rect parts[4];
        unsigned mixed = 0;
        uint64_t pairs;
        bool whole = false;
        if (cell && v.asked) code = cells_cell_pairs(c, &b, p, &pairs);
        if (!cell && !p->loose && p->diagonal) whole = true; /* what lies on each diagonal is found once */
        const uint64_t side = r.hi[p->on_q ? BOX_Q : BOX_K] - r.lo[p->on_q ? BOX_Q : BOX_K];
        if (!cell && !p->loose && !(p->on_q && p->on_k) && side <= l->batch->piece) {
            whole = true; /* its rows, or columns, are alike */
            c->stats.work += side * (WORK_BOX + WORK_ROW + (WORK_NODE + WORK_ROW_NODE) * p->count);
        }
        uint64_t counted[3] = {0};
        if (code == FCP_OK && !cell && !whole) code = cells_count_tally(c, &b, p, counted, &whole);
        const unsigned count = code != FCP_OK || cell || whole ? 0 : halve_rect(&r, parts);
        for (unsigned i = 0; i < count && code == FCP_OK; i++) {
            const box part = cells_rect_box(c, &parts[i]);
            const box_program *special = p;
            code = cells_classify(c, &part, &special, &cls);
            if (code != FCP_OK || cls != BOX_MIXED) continue;
            parts[mixed] = parts[i];
            programs[mixed++] = special;
        }
        v.work = (double)(c->stats.work - before.work);
        v.pairs = (double)(c->stats.elements - before.elements);
        d->at[d->count++] = v;
        cls = BOX_NONE;
        if (!mixed) break;
        const unsigned next = (unsigned)(draw_number(l) * mixed);
        r = parts[next];
        p = programs[next];
        b = cells_rect_box(c, &r);
        cls = BOX_MIXED;
        weight *= mixed;
    }
    return is_fault(code) ? FCP_OK : code;
}

static int by_kind(const void *a, const void *b) {
    const visit *x = a, *y = b;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

/* Estimates how many kinds of MIXED rectangles there are at a depth of the tree, from the visits that walks made there.
 * Visits are sorted by kind and place. `most` is the estimated number of rectangles. */
static double count_kinds(const depth *d, double most) {
    double once = 0, twice = 0, kinds = 0, all = 0, unlike = 0, single = 0; /* the last three: weights */
    for (size_t i = 0, end; i < d->count; i = end) {
        const visit *first = &d->at[i];
        double weight = 0;
        size_t places = 0;
        for (end = i; end < d->count && d->at[end].kind == first->kind; end++) {
            places += end == i || d->at[end].place != d->at[end - 1].place;
            weight += d->at[end].weight;
        }
        all += weight;
        if (!first->kind) {
            unlike = weight;
            continue;
        }
        kinds++;
        once += places == 1;
        twice += places == 2;
        if (places == 1) single += weight;
    }
    if (all <= 0) return 0;
    const double alike = most * (1 - unlike / all);
    double seen = kinds + (twice >= TWICE ? once * once / (2 * twice) : most * single / all);
    if (seen > alike) seen = alike;
    return seen + most * unlike / all;
}

/* Estimates the work and the pairs from the visits of all `walks` walks. */
static void sum_up(looking *l, double walks, double *out_work, double *out_pairs) {
    double part = 1; /* the share of piece pairs whose answer is not in the memo */
    bool in_pieces = false;
    *out_work = *out_pairs = 0;
    for (int i = 0; i < DEPTHS && l->depths[i].count; i++) {
        depth *d = &l->depths[i];
        double most = 0, work = 0, pairs = 0, asked = 0;
        qsort(d->at, d->count, sizeof *d->at, by_kind);
        for (size_t j = 0; j < d->count; j++) {
            const visit *v = &d->at[j];
            most += v->weight / walks;
            if (!v->asked) continue;
            asked += v->weight;
            work += v->weight * v->work;
            pairs += v->weight * v->pairs;
        }
        if (most <= 0 || asked <= 0) continue;
        const uint64_t side = d->at[0].side; /* all visits of a depth have the same, but at the edge */
        double times = part * most;
        if (!in_pieces && side <= l->batch->piece) {
            in_pieces = true;
            times = count_kinds(d, most);
            part = times / most;
        }
        if (side == 1) {
            const double kinds = count_kinds(d, most);
            *out_work += times * WORK_FIND;
            if (kinds < times && kinds < SOON * (double)CELLS_REMEMBERED) times = kinds; /* else they are forgotten */
        }
        *out_work += times * work / asked;
        *out_pairs += times * pairs / asked;
    }
}

/* Makes a round of walks. *out_spent: it was ended early because it cost too much; the first round never is. */
static fcp_code walk_round(looking *l, uint32_t walks, bool *out_spent) {
    const double all = l->before[l->count];
    const uint64_t before = l->c->stats.work;
    uint32_t at = UINT32_MAX, s = 0;
    l->most_asked = walks > ROUND ? ASKED : ASKED_FIRST;
    cell_rect square = {.lo = {0, 0}};
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < walks && code == FCP_OK && !*out_spent; i++) {
        const double place = (i + 0.5) / walks * all;
        while (s + 1 < l->count && l->before[s + 1] <= place) s++;
        const double area = l->before[s + 1] - l->before[s];
        if (s != at) {
            const mc_env env = l->batch->env(l->batch->of, l->unlike[s]);
            code = cells_set_sequence(l->c, &env);
            square.hi[BOX_Q] = ((uint64_t)env.queries + FCP_CELL - 1) / FCP_CELL;
            square.hi[BOX_K] = ((uint64_t)env.n + FCP_CELL - 1) / FCP_CELL;
            at = s;
        }
        stack_mark mark = stack_here(&l->c->stack);
        if (code == FCP_OK) code = walk_down(l, &square, all / area, s);
        stack_back(&l->c->stack, mark);
        *out_spent = walks > ROUND && l->c->stats.work - before > WORK_MOST;
    }
    return code;
}

fcp_code cells_look_ahead(cells *c, const cells_batch *batch, cells_outlook *out) {
    looking l = {.c = c, .batch = batch, .state = 1};
    bool spent = false;
    double work = 0, pairs = 0;
    *out = (cells_outlook){0, 0};
    if (!may_cost(c->mask) || !batch->count) return FCP_OK;
    fcp_code code = list_unlike(&l) ? FCP_OK : FCP_E_NO_MEMORY;
    if (code == FCP_OK && l.before[l.count] >= (double)((uint64_t)1 << LEAST_BITS)) {
        uint32_t walks = ROUND;
        for (int i = 0; i < ROUNDS && code == FCP_OK && !spent; i++, walks *= 4) {
            for (int d = 0; d < DEPTHS; d++) l.depths[d].count = l.depths[d].asked = 0;
            code = walk_round(&l, walks, &spent);
            if (code == FCP_OK && !spent) sum_up(&l, walks, &work, &pairs);
            if (work < (double)LONG) break;
        }
    }
    if (code == FCP_OK) *out = (cells_outlook){(uint64_t)pairs, (uint64_t)work};
    for (int d = 0; d < DEPTHS; d++) free(l.depths[d].at);
    free(l.unlike);
    free(l.before);
    return code;
}
