/* masked_rows.c: finds the queries that see no key.
 *
 * Requires: mask code that does not fault within the sequence.
 * Gives: how many such rows there are and the first stretch of them, exactly; or that it does not know.
 * How: it asks three questions, the cheapest first, and gives up after the last.
 *      1. Does every query see key 0? One box tells. `causal` ends here.
 *      2. Does every query see itself? The mask with q in place of k depends on q alone, and its pairs are counted. A
 *         window ends here. Where all of a sequence's queries are its keys and the mask does not depend on n, a yes to
 *         either question holds for every shorter sequence too.
 *      3. Does the mask depend on the distance q - k alone? Query q has the distances q - n + 1 to q. If d is the
 *         greatest of them that is allowed, queries up to d + n - 1 have the distance d too, and see a key. If none is
 *         allowed, the queries before the next allowed distance see nothing. For example, `k < q` over n = 100 allows
 *         the distances from 1 on: query 0 sees nothing, query 1 has distance 1, and so have those up to query 100.
 *      So it does not know masks such as `k <= q and k >= 5`.
 * Cost: O(nodes) for the first two questions. The third takes O((queries / n + 1) * log n) boxes for a mask whose
 *      allowed distances are few intervals, and is given up after BOXES_MOST boxes.
 */
#include "compiler/cells/masked_rows.h"

#include <stdlib.h>

#include "compiler/cells/cells_parts.h"

enum { BOXES_MOST = 50000 };

struct row_search {
    cells *mask, *self; /* self: the mask with k := q; made when first needed */
    mc_node *self_nodes;
    uint32_t heads;
    bool by_length, by_data; /* the mask reads n; arrays */
    bool never;
    uint64_t boxes_end; /* what mask->stats.boxes may be at most */
    const volatile int *stop;
    mc_env env;         /* the sequence asked for: n keys; queries at [q_first, q_end) */
    int64_t n, q_first, q_end;
    masked_rows *out;
};

row_search *row_search_new(mc_code mask, uint32_t heads) {
    row_search *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    unsigned uses = mc_uses(mask);
    s->heads = uses & MC_USES_H ? heads : 1;
    s->by_length = uses & MC_USES_N;
    s->by_data = uses & MC_USES_DATA;
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
    if (!o->rows) *o = (masked_rows){.known = true, .first = from, .end = to, .head = head};
    o->rows += to - from;
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

/* Of the distances lo to hi, finds the greatest that is allowed (`down`), or the least. If none is, *out is lo - 1 or
 * hi + 1. The distance d is that of the pair (d, 0) from the first query on, and below it that of (q_first,
 * q_first - d). p: the program of head h for all pairs of the sequence, or for these distances. */
static fcp_code find_distance(row_search *s, const box_program *p, uint32_t h, int64_t lo, int64_t hi, bool down,
                              int64_t *out) {
    cells *c = s->mask;
    const int64_t first = s->q_first;
    const bool below = lo < first, both = below && hi > first; /* both: no box has all of these distances */
    *out = down ? lo - 1 : hi + 1;
    if (lo > hi || c->stats.boxes >= s->boxes_end) return FCP_OK;
    if (cells_stopped(c)) return FCP_E_INTERRUPTED;
    box x = {{lo, 0, h}, {hi + 1, 1, (int64_t)h + 1}};
    if (below) x = (box){{first, first - hi, h}, {first + 1, first - lo + 1, (int64_t)h + 1}};
    box_class cls = BOX_MIXED;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = both ? FCP_OK : cells_classify(c, &x, &p, &cls);
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
    for (int64_t q = s->q_first, d; q < s->q_end && code == FCP_OK;) {
        code = find_distance(s, p, h, q - s->n + 1, q, true, &d);
        if (code != FCP_OK) break;
        if (d > q - s->n) { /* queries up to d + n - 1 have this distance */
            q = d + s->n;
            continue;
        }
        code = find_distance(s, p, h, q + 1, s->q_end - 1, false, &d);
        if (code == FCP_OK) add_masked_rows(s, q, d, h);
        q = d;
    }
    return code;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

fcp_code masked_rows_find(row_search *s, const mc_env *env, masked_rows *out) {
    *out = (masked_rows){.known = true};
    s->out = out;
    s->env = *env;
    s->n = env->n;
    s->q_first = env->q_first;
    s->q_end = env->q_first + env->queries;
    s->never = false;
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
    s->boxes_end = c->stats.boxes + BOXES_MOST;
    for (uint32_t h = 0; h < s->heads && code == FCP_OK && out->known; h++) {
        const box_program *p = c->base; /* that of all rows and keys tells whether it is one of q - k */
        const box x = {{s->q_first, 0, h}, {s->q_end, s->n, (int64_t)h + 1}};
        box_class cls;
        stack_mark mark = stack_here(&c->stack);
        code = cells_classify(c, &x, &p, &cls);
        if (code == FCP_OK && cls == BOX_NONE) add_masked_rows(s, s->q_first, s->q_end, h);
        else if (code == FCP_OK && cls == BOX_MIXED && (!p->diagonal || p->loose)) out->known = false;
        else if (code == FCP_OK && cls == BOX_MIXED) code = find_by_distance(s, p, h);
        stack_back(&c->stack, mark);
        if (c->stats.boxes >= s->boxes_end) out->known = false;
    }
    if (code == FCP_OK && !out->known) *out = (masked_rows){.known = false};
    return code;
}
