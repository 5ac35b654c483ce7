/* blind.c: finds the queries that see no key.
 *
 * Requires: mask code that does not fault within the sequence.
 * Gives: how many such rows there are and the first stretch of them, exactly unless the effort is used up.
 * How: from the cheapest question to the dearest.
 *      1. Does every query see key 0? One box tells. causal ends here.
 *      2. Does every query see itself? Put q in place of k: a mask of q alone, of which the pairs are counted. A window
 *         ends here. Where all of a sequence's queries are its keys and the mask does not depend on n, a yes to either
 *         question holds for every shorter sequence too.
 *      3. Is the mask one of q - k? Then two numbers decide: the least distance `back` that it allows to keys before
 *         the query, and the least `ahead` to keys after it. Row q sees nothing where q < back and q + ahead >= n. For
 *         k < q, `back` is 1 and nothing is ahead: row 0 sees nothing.
 *      4. Else stretches of rows are searched: a stretch is done when all its rows see one stretch of keys, or when
 *         none is left that they could see; if neither, columns and rows are halved.
 * Cost: O(nodes) for most masks; a search as much as the boundary of the mask in the rows that it reaches.
 */
#include "compiler/cells/blind.h"

#include <stdlib.h>

#include "compiler/cells/cells_parts.h"

enum { LOOKS = 64 }; /* at stretches of keys for several rows at once, before the rows are halved */

/* Keys [first, end), not decided for the rows under way. */
typedef struct open_span {
    int64_t first, end;
    const box_program *program;
} open_span;

struct blind {
    cells *mask, *self; /* self: the mask with k := q; made when first needed */
    mc_node *self_nodes;
    uint32_t heads;
    bool by_length, by_data; /* the mask reads n; arrays */
    bool never, given_up;
    uint64_t limit;                /* boxes and rows */
    const volatile int *stop;
    int64_t known_n, back, ahead;  /* of a mask of q - k alone: for sequences of up to known_n tokens */
    mc_env env;                    /* the sequence asked for: n keys; queries at [q_first, q_end) */
    int64_t n, q_first, q_end;
    open_span *spans;
    size_t span_count, span_room;
    blind_rows *out;
};

blind *blind_new(mc_code mask, uint32_t heads, uint64_t effort) {
    blind *b = calloc(1, sizeof *b);
    if (!b) return NULL;
    unsigned uses = mc_uses(mask);
    b->heads = uses & MC_USES_H ? heads : 1;
    b->by_length = uses & MC_USES_N;
    b->by_data = uses & MC_USES_DATA;
    b->limit = effort;
    b->mask = cells_new(mask, heads);
    if (b->mask) return b;
    free(b);
    return NULL;
}

void blind_free(blind *b) {
    if (!b) return;
    cells_free(b->mask);
    cells_free(b->self);
    free(b->self_nodes);
    free(b->spans);
    free(b);
}

void blind_set_stop(blind *b, const volatile int *stop) {
    b->stop = stop;
    cells_set_stop(b->mask, stop);
    if (b->self) cells_set_stop(b->self, stop);
}

bool blind_never(const blind *b) { return b->never; }

static fcp_code make_self(blind *b) {
    mc_builder *builder = mc_builder_new();
    uint32_t *places = NULL, count = 0;
    const uint32_t root = builder ? mc_emit_renamed(builder, b->mask->mask, MC_Q, MC_Q) : MC_NONE;
    if (root != MC_NONE && mc_extract(builder, root, &b->self_nodes, &places, &count))
        b->self = cells_new((mc_code){b->self_nodes, count}, b->heads);
    free(places);
    mc_builder_free(builder);
    if (!b->self) return FCP_E_NO_MEMORY;
    cells_set_stop(b->self, b->stop);
    return FCP_OK;
}

/* Before each box or row: may the search go on? */
static fcp_code go_on(blind *b) {
    if (cells_stopped(b->mask)) return FCP_E_INTERRUPTED;
    b->given_up |= b->mask->stats.boxes + b->mask->stats.rows >= b->limit;
    return FCP_OK;
}

static void add_blind_rows(blind *b, int64_t first, int64_t end, uint32_t head) {
    blind_rows *o = b->out;
    const uint64_t from = (uint64_t)(first - b->q_first), to = (uint64_t)(end - b->q_first);
    if (!o->rows) {
        o->first = from;
        o->end = to;
        o->head = head;
    } else if (o->end == from && o->head == head) {
        o->end = to;
    }
    o->rows += to - from;
}

/* --- witnesses ---------------------------------------------------------------------------------------------------- */

/* Are all rows, of all heads, allowed at key 0? */
static fcp_code all_see_first(blind *b, bool *out) {
    cells *c = b->mask;
    const box_program *p = c->base;
    const box x = {{b->q_first, 0, 0}, {b->q_end, 1, b->heads}};
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = cells_classify(c, &x, &p, &cls);
    *out = code == FCP_OK && cls == BOX_FULL;
    stack_back(&c->stack, mark);
    return code;
}

/* Are all rows allowed at themselves? */
static fcp_code all_see_themselves(blind *b, bool *out) {
    const uint64_t queries = (uint64_t)(b->q_end - b->q_first);
    uint64_t seeing = 0;
    *out = false;
    if (b->q_first < 0 || b->q_end > b->n) return FCP_OK; /* some are no keys */
    fcp_code code = b->self ? FCP_OK : make_self(b);
    if (code == FCP_OK) code = cells_count_rows(b->self, &b->env, &seeing);
    *out = code == FCP_OK && seeing == queries * b->heads;
    return code;
}

/* --- masks of q - k ----------------------------------------------------------------------------------------------- */

/* The least position in dimension d of box x that is allowed, x being one wide in the others; x->hi[d] if none is. */
static fcp_code least_allowed(blind *b, box x, int d, const box_program *p, int64_t *out) {
    cells *c = b->mask;
    *out = x.hi[d];
    fcp_code code = go_on(b);
    if (code != FCP_OK || b->given_up) return code;
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    code = cells_classify(c, &x, &p, &cls);
    if (code == FCP_OK && cls == BOX_FULL) {
        *out = x.lo[d];
    } else if (code == FCP_OK && cls == BOX_MIXED && x.hi[d] - x.lo[d] == 1) {
        if (mc_eval(c->mask, &b->env, x.lo[BOX_Q], x.lo[BOX_K], 0, c->eval_scratch)) *out = x.lo[d];
    } else if (code == FCP_OK && cls == BOX_MIXED) {
        box low = x, high = x;
        low.hi[d] = high.lo[d] = x.lo[d] + (x.hi[d] - x.lo[d]) / 2;
        code = least_allowed(b, low, d, p, out);
        if (code == FCP_OK && *out == low.hi[d]) code = least_allowed(b, high, d, p, out);
    }
    stack_back(&c->stack, mark);
    return code;
}

static void add_by_distance(blind *b) {
    int64_t first = b->n - b->ahead, end = b->back < b->q_end ? b->back : b->q_end;
    if (first < b->q_first) first = b->q_first;
    for (uint32_t h = 0; h < b->heads && first < end; h++) add_blind_rows(b, first, end, h);
}

/* All queries are keys. */
static fcp_code find_by_distance(blind *b, const box_program *p) {
    /* the distances that occur; where none is allowed, the least is all of the range */
    box x = {{0, 0, 0}, {b->q_end, 1, 1}};
    fcp_code code = least_allowed(b, x, BOX_Q, p, &b->back);
    x.hi[BOX_Q] = 1;
    x.hi[BOX_K] = b->n - b->q_first;
    if (code == FCP_OK) code = least_allowed(b, x, BOX_K, p, &b->ahead);
    if (code == FCP_OK && !b->given_up) add_by_distance(b);
    return code;
}

/* --- a search ----------------------------------------------------------------------------------------------------- */

static fcp_code push_span(blind *b, int64_t first, int64_t end, const box_program *p) {
    if (!RESERVE(b->spans, b->span_room, b->span_count, 1)) return FCP_E_NO_MEMORY;
    b->spans[b->span_count++] = (open_span){first, end, p};
    return FCP_OK;
}

/* Rows [q0, q1) of a head, over the keys of spans [from, to). */
static fcp_code search_rows(blind *b, int64_t q0, int64_t q1, uint32_t head, size_t from, size_t to) {
    cells *c = b->mask;
    stack_mark mark = stack_here(&c->stack);
    const size_t base = b->span_count;
    bool seen = false; /* by all the rows */
    uint32_t looks = 0;
    fcp_code code = FCP_OK;
    for (size_t i = from; i < to && code == FCP_OK; i++)
        code = push_span(b, b->spans[i].first, b->spans[i].end, b->spans[i].program);
    size_t kept = base, next = base; /* spans [base, kept) stay undecided; from `next` on they are to be looked at */
    while (next < b->span_count && code == FCP_OK && !seen && !b->given_up) {
        open_span s = b->spans[next++];
        if (q1 - q0 > 1 && looks++ >= LOOKS) { /* fewer rows see more alike */
            b->spans[kept++] = s;
            continue;
        }
        const box x = {{q0, s.first, head}, {q1, s.end, (int64_t)head + 1}};
        box_class cls;
        code = go_on(b);
        if (code == FCP_OK) code = cells_classify(c, &x, &s.program, &cls);
        if (code != FCP_OK || cls == BOX_NONE) continue;
        if (cls == BOX_FULL) {
            seen = true;
        } else if (q1 - q0 == 1 && s.end - s.first <= ROWS_WIDTH) {
            uint64_t bits[2];
            c->stats.rows++;
            if (!rows_one(c->rows, s.program, &x, q0, head, bits, &c->stats.elements)) code = FCP_E_NO_MEMORY;
            else seen = bits[0] || bits[1];
        } else if (s.end - s.first > q1 - q0 && s.end - s.first > ROWS_WIDTH) {
            int64_t middle = s.first + (s.end - s.first) / 2;
            code = push_span(b, s.first, middle, s.program);
            if (code == FCP_OK) code = push_span(b, middle, s.end, s.program);
        } else {
            b->spans[kept++] = s; /* it was read already: kept < next */
        }
    }
    if (code == FCP_OK && !seen && !b->given_up) {
        b->span_count = kept;
        if (kept == base) {
            add_blind_rows(b, q0, q1, head);
        } else if (q1 - q0 > 1) {
            int64_t middle = q0 + (q1 - q0) / 2;
            code = search_rows(b, q0, middle, head, base, kept);
            if (code == FCP_OK) code = search_rows(b, middle, q1, head, base, kept);
        }
    }
    b->span_count = base;
    stack_back(&c->stack, mark);
    return code;
}

static fcp_code find_by_search(blind *b, uint32_t head) {
    b->span_count = 0;
    fcp_code code = push_span(b, 0, b->n, b->mask->base);
    return code == FCP_OK ? search_rows(b, b->q_first, b->q_end, head, 0, 1) : code;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

fcp_code blind_find(blind *b, const mc_env *env, blind_rows *out) {
    *out = (blind_rows){0};
    b->out = out;
    b->env = *env;
    b->n = env->n;
    b->q_first = env->q_first;
    b->q_end = env->q_first + env->queries;
    b->never = b->given_up = false;
    if (env->queries == 0) return FCP_OK;
    if (b->n == 0) { /* no row sees anything */
        for (uint32_t h = 0; h < b->heads; h++) add_blind_rows(b, b->q_first, b->q_end, h);
        return FCP_OK;
    }
    const bool itself = b->q_first == 0 && b->q_end == b->n, inside = b->q_first >= 0 && b->q_end <= b->n;
    const bool every_length = itself && !b->by_length && !b->by_data;
    if (itself && b->known_n >= b->n) {
        add_by_distance(b);
        return FCP_OK;
    }
    bool all = false;
    fcp_code code = cells_set_sequence(b->mask, env);
    if (code == FCP_OK) code = all_see_first(b, &all);
    if (code == FCP_OK && !all) code = all_see_themselves(b, &all);
    if (code != FCP_OK || all) {
        b->never = code == FCP_OK && every_length;
        return code;
    }
    /* the program of all rows and keys tells whether it is one of q - k */
    const box_program *p = b->mask->base;
    const box x = {{b->q_first, 0, 0}, {b->q_end, b->n, b->heads}};
    box_class cls;
    stack_mark mark = stack_here(&b->mask->stack);
    code = cells_classify(b->mask, &x, &p, &cls);
    if (code == FCP_OK && cls == BOX_MIXED && p->diagonal && !p->on_h && !p->loose && inside) {
        code = find_by_distance(b, p);
        if (code == FCP_OK && !b->given_up && every_length) b->known_n = b->n;
    } else {
        for (uint32_t h = 0; h < b->heads && code == FCP_OK && !b->given_up; h++) code = find_by_search(b, h);
    }
    stack_back(&b->mask->stack, mark);
    out->at_least = b->given_up;
    return code;
}
