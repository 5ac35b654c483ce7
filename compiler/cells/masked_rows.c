/* masked_rows.c: finds the queries that see no key.
 *
 * Requires: mask code that does not fault within the sequence.
 * Gives: how many such rows there are and the first stretch of them, exactly unless the search becomes too long.
 * How: it asks these questions, the cheapest first, and stops at the first that settles the matter.
 *      1. Does every query see key 0? One box tells. `causal` ends here.
 *      2. Does every query see itself? The mask with q in place of k depends on q alone, and its pairs are counted. A
 *         window ends here.
 *      3. Does the mask depend on the distance q - k alone? Then rows are found by their distances. Over n keys, query
 *         q has the distances q - n + 1 to q. For example, `k < q` over n = 100 allows the distances from 1 on. Query 0
 *         has none of these, so it sees nothing. The next allowed distance is 1, which queries 1 to 100 have, so all of
 *         them see a key. In general the search starts at the first query q and repeats:
 *         - If d is the greatest allowed distance of q, queries up to d + n - 1 have d too. It goes on behind them.
 *         - If q has no allowed distance, and d is the next allowed one, queries q to d - 1 see nothing. It goes on at
 *           d.
 *      4. Any other mask, such as `k <= q and k >= 5`: ranges of rows are searched. A range is done when one range of
 *         keys is allowed for all of its rows, or when no key is left that any of them could see. Otherwise the keys
 *         are halved, and then the rows.
 *      If all of a sequence's queries are its keys, and the mask does not depend on n, then a yes to question 1 or 2
 *      also holds for every shorter sequence.
 * Cost: O(nodes) for the first two questions. The third takes O((queries / n + 1) * log n) boxes for a mask whose
 *      allowed distances are few intervals, and the fourth as many as the boundary of the mask in the rows that it
 *      reaches. Both are given up after STEPS_MOST boxes and rows in all that a row_search was asked.
 */
#include "compiler/cells/masked_rows.h"

#include <stdlib.h>

#include "compiler/cells/cells_parts.h"

enum {
    STEPS_MOST = 100000, /* boxes and rows that are evaluated for all sequences before the search is given up, */
    STEPS_EACH = 128,    /* and so many more for each sequence: what masks of q - k need of 2^40 keys */
    LOOKS = 64           /* ranges of keys that are looked at for several rows at once, before the rows are halved */
};

/* Keys [first, end) that are not decided yet for the rows at hand. */
typedef struct open_keys {
    int64_t first, end;
    const box_program *program;
} open_keys;

struct row_search {
    cells *mask, *self; /* self: the mask with k := q; made when first needed */
    mc_node *self_nodes;
    uint32_t heads;
    bool by_length, by_data; /* the mask reads n; arrays */
    bool never;
    uint64_t steps_end; /* what mask->stats.boxes and .rows may be at most together */
    const volatile int *stop;
    mc_env env;         /* the sequence asked for: n keys; queries at [q_first, q_end) */
    int64_t n, q_first, q_end;
    open_keys *open; /* of the fourth question: the keys of each range of rows under way, in turn */
    size_t open_count, open_room;
    masked_rows *out;
};

row_search *row_search_new(mc_code mask, uint32_t heads) {
    row_search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    unsigned uses = mc_uses(mask);
    s->heads = uses & MC_USES_H ? heads : 1;
    s->by_length = uses & MC_USES_N;
    s->by_data = uses & MC_USES_DATA;
    s->steps_end = STEPS_MOST;
    s->mask = cells_new(mask, heads);
    if (s->mask) return s;
    free(s);
    return NULL;
}

void row_search_free(row_search *s) {
    if (!s) return;
    cells_free(s->mask);
    cells_free(s->self);
    free(s->self_nodes);
    free(s->open);
    free(s);
}

void row_search_set_stop(row_search *s, const volatile int *stop) {
    s->stop = stop;
    cells_set_stop(s->mask, stop);
    if (s->self) cells_set_stop(s->self, stop);
}

bool masked_rows_never(const row_search *s) { return s->never; }

static void add_masked_rows(row_search *s, int64_t first, int64_t end, uint32_t head) {
    masked_rows *o = s->out;
    const uint64_t from = (uint64_t)(first - s->q_first), to = (uint64_t)(end - s->q_first);
    if (!o->rows) *o = (masked_rows){.first = from, .end = to, .head = head};
    else if (o->end == from && o->head == head) o->end = to;
    o->rows += to - from;
}

/* Counts a step of the search, which is a box or a row. If there have been too many, sets out->at_least, at which the
 * search ends. */
static fcp_code count_step(row_search *s) {
    const cells_stats *spent = &s->mask->stats;
    if (cells_stopped(s->mask)) return FCP_E_INTERRUPTED;
    s->out->at_least |= spent->boxes + spent->rows >= s->steps_end;
    return FCP_OK;
}

/* --- does every query see key 0, or itself? ----------------------------------------------------------------------- */

/* Are all rows, of all heads, allowed at key 0? */
static fcp_code all_see_first(row_search *s, bool *out) {
    cells *c = s->mask;
    const box_program *p = c->base;
    const box x = {{s->q_first, 0, 0}, {s->q_end, 1, s->heads}};
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = cells_classify(c, &x, &p, &cls);
    *out = code == FCP_OK && cls == BOX_FULL;
    stack_back(&c->stack, mark);
    return code;
}

static fcp_code make_self(row_search *s) {
    mc_builder *builder = mc_builder_new();
    uint32_t *places = NULL, count = 0;
    const uint32_t root = builder ? mc_emit_renamed(builder, s->mask->mask, MC_Q, MC_Q) : MC_NONE;
    if (root != MC_NONE && mc_extract(builder, root, &s->self_nodes, &places, &count))
        s->self = cells_new((mc_code){s->self_nodes, count}, s->heads);
    free(places);
    mc_builder_free(builder);
    if (!s->self) return FCP_E_NO_MEMORY;
    cells_set_stop(s->self, s->stop);
    return FCP_OK;
}

/* Are all rows allowed at themselves? */
static fcp_code all_see_themselves(row_search *s, bool *out) {
    const uint64_t queries = (uint64_t)(s->q_end - s->q_first);
    uint64_t seeing = 0;
    *out = false;
    if (s->q_first < 0 || s->q_end > s->n) return FCP_OK; /* some are no keys */
    fcp_code code = s->self ? FCP_OK : make_self(s);
    if (code == FCP_OK) code = cells_count_rows(s->self, &s->env, &seeing);
    *out = code == FCP_OK && seeing == queries * s->heads;
    return code;
}

/* --- masks of q - k ----------------------------------------------------------------------------------------------- */

/* Finds the greatest (`down`) or the least allowed distance q - k among lo to hi, by halving this range. If none is
 * allowed, *out is lo - 1 or hi + 1. Each distance is tested at one pair that has it: a distance d >= q_first at query
 * d and key 0, a smaller one at query q_first and key q_first - d. `p` is the program of head h for all pairs of the
 * sequence, or for pairs of these distances. */
static fcp_code find_distance(row_search *s, const box_program *p, uint32_t h, int64_t lo, int64_t hi, bool down,
                              int64_t *out) {
    cells *c = s->mask;
    const int64_t first = s->q_first;
    const bool below = lo < first, both = below && hi > first; /* both: no box has all of these distances */
    *out = down ? lo - 1 : hi + 1;
    if (lo > hi) return FCP_OK;
    fcp_code code = count_step(s);
    if (code != FCP_OK || s->out->at_least) return code;
    box x = {{lo, 0, h}, {hi + 1, 1, (int64_t)h + 1}};
    if (below) x = (box){{first, first - hi, h}, {first + 1, first - lo + 1, (int64_t)h + 1}};
    box_class cls = BOX_MIXED;
    stack_mark mark = stack_here(&c->stack);
    if (!both) code = cells_classify(c, &x, &p, &cls);
    if (code == FCP_OK && cls == BOX_FULL) {
        *out = down ? hi : lo;
    } else if (code == FCP_OK && cls == BOX_MIXED && lo == hi) {
        if (mc_eval(c->mask, &s->env, x.lo[BOX_Q], x.lo[BOX_K], h, c->eval_scratch)) *out = lo;
    } else if (code == FCP_OK && cls == BOX_MIXED) {
        const int64_t middle = both ? first : lo + (hi - lo) / 2;
        const int64_t half[2][2] = {{lo, middle}, {middle + 1, hi}};
        const int64_t *one = half[down], *other = half[!down];
        code = find_distance(s, p, h, one[0], one[1], down, out);
        const bool nowhere = *out == (down ? one[0] - 1 : one[1] + 1);
        if (code == FCP_OK && nowhere) code = find_distance(s, p, h, other[0], other[1], down, out);
    }
    stack_back(&c->stack, mark);
    return code;
}

/* Adds the masked rows of one head, whose program p depends on q - k alone. */
static fcp_code find_by_distance(row_search *s, const box_program *p, uint32_t h) {
    fcp_code code = FCP_OK;
    for (int64_t q = s->q_first, d; q < s->q_end && code == FCP_OK && !s->out->at_least;) {
        code = find_distance(s, p, h, q - s->n + 1, q, true, &d);
        if (code != FCP_OK || s->out->at_least) break;
        if (d > q - s->n) { /* queries up to d + n - 1 have this distance */
            q = d + s->n;
            continue;
        }
        code = find_distance(s, p, h, q + 1, s->q_end - 1, false, &d);
        if (code == FCP_OK && !s->out->at_least) add_masked_rows(s, q, d, h);
        q = d;
    }
    return code;
}

/* --- masks of any kind -------------------------------------------------------------------------------------------- */

static fcp_code push_open(row_search *s, int64_t first, int64_t end, const box_program *p) {
    if (!FCP_GROW(s->open, s->open_room, s->open_count + 1)) return FCP_E_NO_MEMORY;
    s->open[s->open_count++] = (open_keys){first, end, p};
    return FCP_OK;
}

/* Does row q of a head see a key of x, which is one row and at most ROWS_WIDTH keys? */
static fcp_code sees_any(row_search *s, const box *x, const box_program *p, bool *out) {
    cells *c = s->mask;
    uint64_t bits[2];
    c->stats.rows++;
    if (!rows_one(c->rows, p, x, x->lo[BOX_Q], (uint32_t)x->lo[BOX_H], bits, &c->stats.elements))
        return FCP_E_NO_MEMORY;
    *out = bits[0] || bits[1];
    return FCP_OK;
}

/* Adds the masked rows among [q0, q1) of a head, given the keys open[from..to) that are undecided for them. */
static fcp_code search_rows(row_search *s, int64_t q0, int64_t q1, uint32_t head, size_t from, size_t to) {
    cells *c = s->mask;
    stack_mark mark = stack_here(&c->stack);
    const size_t base = s->open_count;
    bool seen = false; /* one range of keys is allowed for all the rows */
    uint32_t looks = 0;
    fcp_code code = FCP_OK;
    for (size_t i = from; i < to && code == FCP_OK; i++)
        code = push_open(s, s->open[i].first, s->open[i].end, s->open[i].program);
    size_t kept = base, next = base; /* open[base..kept) stay undecided; from `next` on nothing is known yet */
    while (next < s->open_count && code == FCP_OK && !seen) {
        open_keys k = s->open[next++];
        if (q1 - q0 > 1 && looks++ >= LOOKS) { /* fewer rows see more alike */
            s->open[kept++] = k;
            continue;
        }
        const box x = {{q0, k.first, head}, {q1, k.end, (int64_t)head + 1}};
        box_class cls;
        code = count_step(s);
        if (s->out->at_least) break;
        if (code == FCP_OK) code = cells_classify(c, &x, &k.program, &cls);
        if (code != FCP_OK || cls == BOX_NONE) continue;
        if (cls == BOX_FULL) {
            seen = true;
        } else if (q1 - q0 == 1 && k.end - k.first <= ROWS_WIDTH) {
            code = sees_any(s, &x, k.program, &seen);
        } else if (k.end - k.first > q1 - q0 && k.end - k.first > ROWS_WIDTH) {
            const int64_t middle = k.first + (k.end - k.first) / 2;
            code = push_open(s, k.first, middle, k.program);
            if (code == FCP_OK) code = push_open(s, middle, k.end, k.program);
        } else {
            s->open[kept++] = k; /* over one that was read already: kept < next */
        }
    }
    if (code == FCP_OK && !seen && !s->out->at_least) {
        s->open_count = kept;
        if (kept == base) {
            add_masked_rows(s, q0, q1, head);
        } else if (q1 - q0 > 1) {
            const int64_t middle = q0 + (q1 - q0) / 2;
            code = search_rows(s, q0, middle, head, base, kept);
            if (code == FCP_OK) code = search_rows(s, middle, q1, head, base, kept);
        }
    }
    s->open_count = base;
    stack_back(&c->stack, mark);
    return code;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

fcp_code masked_rows_find(row_search *s, const mc_env *env, masked_rows *out) {
    *out = (masked_rows){0};
    s->out = out;
    s->env = *env;
    s->n = env->n;
    s->q_first = env->q_first;
    s->q_end = env->q_first + env->queries;
    s->never = false;
    s->steps_end += STEPS_EACH;
    if (env->queries == 0) return FCP_OK;
    if (s->n == 0) { /* no row sees anything */
        for (uint32_t h = 0; h < s->heads; h++) add_masked_rows(s, s->q_first, s->q_end, h);
        return FCP_OK;
    }
    bool all = false;
    fcp_code code = cells_set_sequence(s->mask, env);
    if (code == FCP_OK) code = all_see_first(s, &all);
    if (code == FCP_OK && !all) code = all_see_themselves(s, &all);
    if (code != FCP_OK || all) {
        s->never = code == FCP_OK && s->q_first == 0 && s->q_end == s->n && !s->by_length && !s->by_data;
        return code;
    }
    cells *c = s->mask;
    for (uint32_t h = 0; h < s->heads && code == FCP_OK && !out->at_least; h++) {
        const box_program *p = c->base; /* that of all rows and keys tells whether it is one of q - k */
        const box x = {{s->q_first, 0, h}, {s->q_end, s->n, (int64_t)h + 1}};
        box_class cls;
        stack_mark mark = stack_here(&c->stack);
        code = cells_classify(c, &x, &p, &cls);
        if (code == FCP_OK && cls == BOX_NONE) add_masked_rows(s, s->q_first, s->q_end, h);
        else if (code == FCP_OK && cls == BOX_MIXED && p->diagonal && !p->loose) code = find_by_distance(s, p, h);
        else if (code == FCP_OK && cls == BOX_MIXED) {
            s->open_count = 0;
            code = push_open(s, 0, s->n, p);
            if (code == FCP_OK) code = search_rows(s, s->q_first, s->q_end, h, 0, 1);
        }
        stack_back(&c->stack, mark);
    }
    return code;
}
