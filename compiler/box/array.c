/* array.c: facts about ranges of an array's elements: least and greatest values, sets of values, runs, ranks.
 *
 * Requires: elements do not change until the next sequence is bound.
 * Gives: array.h.
 * How: - Least and greatest values of ranges come from a segment tree over blocks of elements.
 *      - Elements in arithmetic progression are kept as runs.
 *      - Ranks are for documents whose numbers come in any order. Say the array is 5 5 9 9 7 7, and a box compares its
 *        first four elements with its last two. The first have values from 5 to 9, the last have 7, so the ranges of
 *        values overlap although no value occurs in both. Therefore values are also numbered in the order in which they
 *        first come: 0 0 1 1 2 2. These numbers are the ranks. Here the first elements have ranks 0 to 1 and the last
 *        have rank 2: the ranges are disjoint, so no values are equal.
 *      - Content numbers are for arrays that are not read at q or k themselves, such as tables. Such an array may be
 *        the same in many sequences. A small one is compared with those of earlier sequences. If one is equal, it gets
 *        the same content number.
 * Cost: to bind O(elements), hardly more than reading them if they lie in runs. A question O(log elements + BLOCK), or
 *      O(log elements) if it is about whole blocks or the elements lie in runs.
 * Units: elements. */
#include "compiler/box/array.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/base/stop.h"

typedef __int128 wide;

enum {
    BLOCK = 128,
    RUN_LEAST = 16,   /* runs are kept only if they have this many elements on average, */
    RUNS_FEW = 64,    /* or if there are no more than this many */
    KEEP_MAX = 4096,  /* elements of an array whose contents are kept */
    KEPT_MAX = 64,
    STOP_BLOCKS = 1024 /* learnt between two looks at `stop` */
};

typedef struct kept_array {
    mc_array array; /* data: our own */
    uint64_t content;
} kept_array;

/* --- elements ----------------------------------------------------------------------------------------------------- */

static void copy_elements(const mc_array *a, uint64_t from, uint32_t count, int64_t *out) {
    switch (a->width) {
    case MC_I8:
        for (uint32_t i = 0; i < count; i++) out[i] = ((const int8_t *)a->data)[from + i];
        break;
    case MC_I16:
        for (uint32_t i = 0; i < count; i++) out[i] = ((const int16_t *)a->data)[from + i];
        break;
    case MC_I32:
        for (uint32_t i = 0; i < count; i++) out[i] = ((const int32_t *)a->data)[from + i];
        break;
    case MC_I64: memcpy(out, (const int64_t *)a->data + from, count * sizeof *out); break;
    default: memset(out, 0, count * sizeof *out); break;
    }
}

static void add_facts(array_facts *to, const array_facts *x) {
    if (x->lo < to->lo) to->lo = x->lo;
    if (x->hi > to->hi) to->hi = x->hi;
    to->set |= x->set;
}

static const array_facts NOTHING = {INT64_MAX, INT64_MIN, 0};

static uint64_t rotate_left(uint64_t x, unsigned by) { return x << by | x >> (-by & 63); }

/* The facts about v, v + s, ...: `count` elements, all within int64. */
static array_facts run_facts(int64_t v, int64_t s, uint64_t count) {
    int64_t last = (int64_t)((uint64_t)v + (uint64_t)s * (count - 1));
    array_facts f = {v < last ? v : last, v < last ? last : v, 0};
    uint64_t x = (uint64_t)v;
    const uint64_t few = count < 64 ? count : 64;
    if (s == 0) f.set = (uint64_t)1 << (x & 63);
    else if (s == 1) f.set = few == 64 ? UINT64_MAX : rotate_left(((uint64_t)1 << few) - 1, (unsigned)(x & 63));
    else
        for (uint64_t i = 0; i < few; i++, x += (uint64_t)s) f.set |= (uint64_t)1 << (x & 63);
    return f;
}

/* --- learning ----------------------------------------------------------------------------------------------------- */

/* The run that is being read: it began at element `start` and has `length` elements so far. Its step s is known from
 * the second element on. */
typedef struct learner {
    box_array *a;
    uint64_t start, length;
    int64_t v, s, last;
    bool runs, up, down; /* are runs kept; have values never fallen; have they never risen? */
} learner;

static bool end_run(learner *l) {
    box_array *a = l->a;
    if (!l->runs) return true;
    if (!FCP_GROW(a->runs, a->run_room, a->run_count + 1)) return false;
    a->runs[a->run_count++] = (array_run){l->start, l->v, l->length > 1 ? l->s : 0};
    if (a->run_count > RUNS_FEW && a->run_count > (a->to - a->from) / RUN_LEAST) l->runs = false;
    return true;
}

static bool next_element(learner *l, uint64_t at, int64_t x) {
    int64_t step;
    bool fits = !__builtin_sub_overflow(x, l->last, &step);
    l->up &= x >= l->last;
    l->down &= x <= l->last;
    if (fits && (l->length == 1 || step == l->s)) {
        l->s = step;
        l->length++;
    } else if (fits && l->length == 2 && l->s != 0) { /* of two unlike elements the second may begin a longer run */
        l->length = 1;
        if (!end_run(l)) return false;
        l->start = at - 1;
        l->v = l->last;
        l->s = step;
        l->length = 2;
    } else {
        if (!end_run(l)) return false;
        l->start = at;
        l->v = x;
        l->length = 1;
    }
    l->last = x;
    return true;
}

/* Do all elements x[0 .. count) continue the run? */
static bool goes_on(const learner *l, const int64_t *x, uint32_t count) {
    if (l->length < 2 || (wide)x[count - 1] - l->last != (wide)l->s * count) return false;
    uint64_t other = ((uint64_t)x[0] - (uint64_t)l->last) ^ (uint64_t)l->s;
    for (uint32_t i = 1; i < count; i++) other |= ((uint64_t)x[i] - (uint64_t)x[i - 1]) ^ (uint64_t)l->s;
    return other == 0;
}

/* How many of x[0 .. count) continue the run. */
static uint32_t more_of_run(const learner *l, const int64_t *x, uint32_t count) {
    int64_t before = l->last, step;
    uint32_t i = 0;
    for (; i < count && !__builtin_sub_overflow(x[i], before, &step) && step == l->s; i++) before = x[i];
    return i;
}

/* Learns elements x[0 .. count) of a block run by run, and adds the facts about them, while runs are kept.
 * *out_count is how many were learnt. */
static bool learn_runs(learner *l, uint64_t from, const int64_t *x, uint32_t count, array_facts *f,
                       uint32_t *out_count) {
    uint32_t i = 0;
    while (i < count && l->runs) {
        if (!next_element(l, from + i, x[i])) return false;
        f->lo = x[i] < f->lo ? x[i] : f->lo;
        f->hi = x[i] > f->hi ? x[i] : f->hi;
        f->set |= (uint64_t)1 << (x[i] & 63);
        i++;
        const uint32_t more = l->length > 1 ? more_of_run(l, x + i, count - i) : 0;
        if (!more) continue;
        const array_facts part = run_facts(x[i], l->s, more);
        add_facts(f, &part);
        i += more;
        l->length += more;
        l->last = x[i - 1];
    }
    *out_count = i;
    return true;
}

static bool learn_block(learner *l, uint32_t block) {
    box_array *a = l->a;
    int64_t x[BLOCK];
    uint64_t from = a->from + (uint64_t)block * BLOCK;
    uint32_t count = a->to - from < BLOCK ? (uint32_t)(a->to - from) : BLOCK;
    array_facts *f = &a->tree[a->blocks + block];
    copy_elements(&a->array, from, count, x);
    if (goes_on(l, x, count)) {
        *f = run_facts(x[0], l->s, count);
        l->length += count;
        l->last = x[count - 1];
        if (l->s < 0) l->up = false;
        if (l->s > 0) l->down = false;
        return true;
    }
    uint32_t i = 0;
    if (block == 0) l->start = from, l->v = l->last = x[0], l->length = 1;
    array_facts g = block == 0 ? run_facts(x[0], 0, 1) : NOTHING;
    const uint32_t first = block == 0;
    if (!learn_runs(l, from + first, x + first, count - first, &g, &i)) return false;
    i += first;
    for (uint32_t j = i; j < count; j++) { /* no runs are kept any more */
        g.lo = x[j] < g.lo ? x[j] : g.lo;
        g.hi = x[j] > g.hi ? x[j] : g.hi;
    }
    for (uint32_t j = i; j < count; j++) g.set |= (uint64_t)1 << (x[j] & 63);
    *f = g;
    for (; i < count && (l->up || l->down); i++)
        if (!next_element(l, from + i, x[i])) return false;
    l->last = x[count - 1];
    return true;
}

typedef struct value_order {
    int64_t value;
    uint32_t run;
} value_order;

static int by_value(const void *x, const void *y) { /* no two are equal */
    const value_order *a = x, *b = y;
    if (a->value != b->value) return a->value < b->value ? -1 : 1;
    return a->run < b->run ? -1 : 1;
}

/* Gives each run, all of which are constant, the rank of its value, and makes the tree of ranks. */
static bool make_ranks(box_array *a) {
    if (!FCP_GROW(a->ranks, a->rank_room, 2 * (uint64_t)a->blocks)) return false;
    if (!FCP_GROW(a->run_rank, a->rank_of_room, a->run_count)) return false;
    value_order *order = malloc(a->run_count * sizeof *order);
    if (!order) return false;
    for (uint32_t i = 0; i < a->run_count; i++) order[i] = (value_order){a->runs[i].v, i};
    qsort(order, a->run_count, sizeof *order, by_value);
    for (uint32_t i = 0, first = 0; i < a->run_count; i++) { /* a value's rank is the number of its first run */
        if (order[i].value != order[first].value) first = i;
        a->run_rank[order[i].run] = order[first].run;
    }
    free(order);
    for (uint32_t b = 0; b < a->blocks; b++) {
        rank_range *r = &a->ranks[a->blocks + b];
        uint32_t run = a->run_of[b];
        r->lo = r->hi = a->run_rank[run];
        for (run++; run < a->run_count && a->runs[run].start < a->from + (uint64_t)(b + 1) * BLOCK; run++) {
            if (a->run_rank[run] < r->lo) r->lo = a->run_rank[run];
            if (a->run_rank[run] > r->hi) r->hi = a->run_rank[run];
        }
    }
    for (uint32_t i = a->blocks; i-- > 1;) {
        const rank_range *x = &a->ranks[2 * (size_t)i], *y = x + 1;
        a->ranks[i] = (rank_range){x->lo < y->lo ? x->lo : y->lo, x->hi > y->hi ? x->hi : y->hi};
    }
    return true;
}

static void find_blocks(box_array *a) {
    for (uint32_t b = 0, run = 0; b < a->blocks; b++) {
        while (run + 1 < a->run_count && a->runs[run + 1].start <= a->from + (uint64_t)b * BLOCK) run++;
        a->run_of[b] = run;
    }
}

static fcp_code learn(box_array *a, const volatile int *stop) {
    uint64_t blocks = (a->to - a->from + BLOCK - 1) / BLOCK;
    if (blocks > UINT32_MAX / 4) return FCP_E_NO_MEMORY;
    a->run_count = 0;
    a->blocks = (uint32_t)blocks;
    if (blocks == 0) return FCP_OK;
    if (!FCP_GROW(a->tree, a->tree_room, 2 * blocks)) return FCP_E_NO_MEMORY;
    if (!FCP_GROW(a->run_of, a->run_of_room, blocks)) return FCP_E_NO_MEMORY;
    learner l = {.a = a, .runs = true, .up = true, .down = true};
    for (uint32_t b = 0; b < blocks; b++) {
        if (b % STOP_BLOCKS == 0 && fcp_stop_asked(stop)) return FCP_E_INTERRUPTED;
        if (!learn_block(&l, b)) return FCP_E_NO_MEMORY;
    }
    if (!end_run(&l)) return FCP_E_NO_MEMORY;
    for (uint32_t i = a->blocks; i-- > 1;) {
        a->tree[i] = a->tree[2 * (size_t)i];
        add_facts(&a->tree[i], &a->tree[2 * (size_t)i + 1]);
    }
    if (!l.runs) a->run_count = 0;
    if (a->run_count) find_blocks(a);
    bool ranked = a->run_count && a->compared && !l.up && !l.down;
    for (uint32_t i = 0; i < a->run_count && ranked; i++) ranked = a->runs[i].s == 0;
    if (fcp_stop_asked(stop)) return FCP_E_INTERRUPTED;
    if (ranked) return make_ranks(a) ? FCP_OK : FCP_E_NO_MEMORY;
    free(a->ranks);
    a->ranks = NULL;
    a->rank_room = 0;
    return FCP_OK;
}

/* --- contents ----------------------------------------------------------------------------------------------------- */

static size_t element_bytes(const mc_array *a) { return a->width == MC_F64 ? 8 : (size_t)a->width; }

static bool same_contents(const mc_array *a, const mc_array *b, uint64_t total) {
    return a->first == b->first && a->count == b->count && a->columns == b->columns &&
           a->column_first == b->column_first && a->planes == b->planes && a->width == b->width &&
           (total == 0 || memcmp(a->data, b->data, total * element_bytes(a)) == 0);
}

/* Finds the content number of an array: that of an equal array, or a new one. False when out of memory. */
static bool number_contents(box_arrays *all, const mc_array *array, uint64_t total, uint64_t *out) {
    for (uint32_t i = 0; i < all->kept_count && total <= KEEP_MAX; i++)
        if (same_contents(&all->kept[i].array, array, total)) {
            *out = all->kept[i].content;
            return true;
        }
    *out = ++all->contents;
    if (total > KEEP_MAX || all->kept_count == KEPT_MAX) return true;
    kept_array *kept = all->kept ? all->kept : malloc(KEPT_MAX * sizeof *kept);
    if (!kept) return false;
    all->kept = kept;
    size_t bytes = total * element_bytes(array);
    void *copy = malloc(bytes ? bytes : 1);
    if (!copy) return false;
    if (bytes) memcpy(copy, array->data, bytes);
    kept[all->kept_count] = (kept_array){*array, *out};
    kept[all->kept_count++].array.data = copy;
    return true;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

bool box_arrays_new(box_arrays *a, mc_code mask) {
    *a = (box_arrays){.mask = mask};
    for (uint32_t i = 0; i < mask.count; i++) {
        const mc_node *x = &mask.nodes[i];
        if (mc_loads_int(x->op) && x->imm >= a->count) a->count = (uint32_t)x->imm + 1;
    }
    if (a->count == 0) return true;
    a->at = calloc(a->count, sizeof *a->at);
    a->ranges = malloc(mask.count * sizeof *a->ranges);
    if (!a->at || !a->ranges) return false;
    bool compared = false; /* operands may be chosen by `if`, so any of these may come to compare any elements */
    for (uint32_t i = 0; i < mask.count; i++) compared |= mask.nodes[i].op == MC_EQ || mask.nodes[i].op == MC_NE;
    for (uint32_t i = 0; i < mask.count; i++) {
        const mc_node *x = &mask.nodes[i];
        if (!mc_loads_int(x->op)) continue;
        if (box_loads_constant(mask, x)) {
            a->constants++;
            continue;
        }
        uint32_t index = mask.nodes[x->a].op;
        a->at[x->imm].used = true;
        a->at[x->imm].compared = compared;
        if (index != MC_Q && index != MC_K) a->at[x->imm].again = true;
    }
    return true;
}

void box_arrays_free(box_arrays *a) {
    for (uint32_t i = 0; i < a->count && a->at; i++) {
        free(a->at[i].tree);
        free(a->at[i].ranks);
        free(a->at[i].runs);
        free(a->at[i].run_of);
        free(a->at[i].run_rank);
    }
    for (uint32_t i = 0; i < a->kept_count; i++) free((void *)a->kept[i].array.data);
    free(a->kept);
    free(a->ranges);
    free(a->at);
    *a = (box_arrays){0};
}

fcp_code box_arrays_bind(box_arrays *all, const mc_env *env, const volatile int *stop) {
    if (all->count) box_ranges_of_nodes(all->mask, env, all->ranges);
    for (uint32_t i = 0; i < all->count; i++) {
        box_array *a = &all->at[i];
        uint64_t content = 0, before = a->content;
        const mc_array *array = &env->arrays[i];
        const uint64_t total = mc_array_total(array);
        if (!a->used) {
            a->array = *array;
            a->total = total;
            continue;
        }
        if (!a->again) content = ++all->contents;
        else if (!number_contents(all, array, total, &content)) return FCP_E_NO_MEMORY;
        a->array = *array;
        a->total = total;
        a->content = 0;
        uint64_t from, to;
        box_array_reach(all->mask, all->ranges, array, i, &from, &to);
        const bool known = content == before && from >= a->from && to <= a->to;
        if (!known) a->from = from, a->to = to;
        fcp_code code = known ? FCP_OK : learn(a, stop);
        if (code != FCP_OK) return code;
        a->content = content;
    }
    return FCP_OK;
}

size_t box_arrays_bytes(const box_arrays *all) {
    size_t bytes = all->count * sizeof *all->at + (all->count ? all->mask.count * sizeof *all->ranges : 0);
    for (uint32_t i = 0; i < all->count; i++) {
        const box_array *a = &all->at[i];
        bytes += a->tree_room * sizeof *a->tree + a->run_of_room * sizeof *a->run_of + a->rank_room * sizeof *a->ranks;
        bytes += a->run_room * sizeof *a->runs + a->rank_of_room * sizeof *a->run_rank;
    }
    if (all->kept) bytes += KEPT_MAX * sizeof *all->kept;
    for (uint32_t i = 0; i < all->kept_count; i++) {
        const mc_array *a = &all->kept[i].array;
        bytes += (size_t)mc_array_total(a) * element_bytes(a);
    }
    return bytes;
}

const array_run *box_array_run(const box_array *a, uint64_t at, uint64_t *out_end) {
    if (!a->run_count || at < a->from || at >= a->to) return NULL;
    uint32_t run = a->run_of[(at - a->from) / BLOCK];
    while (run + 1 < a->run_count && a->runs[run + 1].start <= at) run++;
    *out_end = run + 1 < a->run_count ? a->runs[run + 1].start : a->to;
    return &a->runs[run];
}

void box_array_copy(const box_array *a, uint64_t from, uint32_t count, int64_t *out) {
    copy_elements(&a->array, from, count, out);
}

/* Adds the facts about a part of one block. */
static void few_facts(const box_array *a, uint64_t from, uint64_t to, array_facts *out) {
    uint64_t end;
    const array_run *r = box_array_run(a, from, &end);
    if (!r) {
        int64_t x[BLOCK];
        uint32_t count = (uint32_t)(to - from);
        copy_elements(&a->array, from, count, x);
        for (uint32_t i = 0; i < count; i++) {
            out->lo = x[i] < out->lo ? x[i] : out->lo;
            out->hi = x[i] > out->hi ? x[i] : out->hi;
        }
        for (uint32_t i = 0; i < count; i++) out->set |= (uint64_t)1 << (x[i] & 63);
        return;
    }
    for (;; r++) {
        uint64_t stop = end < to ? end : to;
        array_facts f = run_facts(run_at(r, from), r->s, stop - from);
        add_facts(out, &f);
        if (stop == to) return;
        from = stop;
        end = r + 2 < a->runs + a->run_count ? r[2].start : a->to;
    }
}

array_facts box_array_facts(const box_array *a, uint64_t from, uint64_t to) {
    array_facts f = NOTHING;
    if (from < a->from || to > a->to) return (array_facts){INT64_MIN, INT64_MAX, UINT64_MAX};
    const uint64_t base = a->from;
    uint64_t first = (from - base + BLOCK - 1) / BLOCK, last = (to - base) / BLOCK; /* whole blocks */
    if (to == a->to) last = a->blocks;
    if (first >= last) {
        uint64_t middle = base + first * BLOCK; /* at most one edge of blocks in between */
        if (from < middle && middle < to) {
            few_facts(a, from, middle, &f);
            from = middle;
        }
        few_facts(a, from, to, &f);
        return f;
    }
    if (from < base + first * BLOCK) few_facts(a, from, base + first * BLOCK, &f);
    if (base + last * BLOCK < to) few_facts(a, base + last * BLOCK, to, &f);
    for (first += a->blocks, last += a->blocks; first < last; first /= 2, last /= 2) {
        if (first & 1) add_facts(&f, &a->tree[first++]);
        if (last & 1) add_facts(&f, &a->tree[--last]);
    }
    return f;
}

static void add_ranks(rank_range *to, rank_range x) {
    if (x.lo < to->lo) to->lo = x.lo;
    if (x.hi > to->hi) to->hi = x.hi;
}

static void few_ranks(const box_array *a, uint64_t from, uint64_t to, rank_range *out) {
    uint64_t end;
    const array_run *r = box_array_run(a, from, &end);
    for (uint32_t run = (uint32_t)(r - a->runs); run < a->run_count && (a->runs[run].start < to); run++)
        add_ranks(out, (rank_range){a->run_rank[run], a->run_rank[run]});
}

bool box_array_ranks(const box_array *a, uint64_t from, uint64_t to, rank_range *out) {
    if (!a->ranks || from < a->from || to > a->to) return false;
    *out = (rank_range){UINT32_MAX, 0};
    const uint64_t base = a->from;
    uint64_t first = (from - base + BLOCK - 1) / BLOCK, last = (to - base) / BLOCK;
    if (first >= last) {
        few_ranks(a, from, to, out);
        return true;
    }
    if (from < base + first * BLOCK) few_ranks(a, from, base + first * BLOCK, out);
    if (base + last * BLOCK < to) few_ranks(a, base + last * BLOCK, to, out);
    for (first += a->blocks, last += a->blocks; first < last; first /= 2, last /= 2) {
        if (first & 1) add_ranks(out, a->ranks[first++]);
        if (last & 1) add_ranks(out, a->ranks[--last]);
    }
    return true;
}
