/* blind.c: finds the queries that see no key.
 *
 * Requires: mask code that does not fault within the sequence.
 * Gives: how many such rows there are, and the first stretch of them; exactly, unless the effort is used up.
 * How: by witnesses, from the cheapest on. Does every query see key 0? Does every query see itself (the mask at
 *      k := q)? One box each, and an answer for all shorter sequences too where the mask does not depend on n. A mask
 *      of q - k has a least distance d that it allows back and a least one that it allows ahead: the rows q < back with
 *      q + ahead >= n see nothing. Else the rows without a witness are searched: a stretch of rows is done when one
 *      stretch of keys is allowed for all of it, or none is; if neither, columns and rows are halved.
 * Cost: O(nodes) for the masks that let a query see itself or the start; else as the boundary in those rows.
 */
#include "compiler/cells/blind.h"

#include <stdlib.h>

#include "compiler/cells/parts.h"

enum {
    FEW_ROWS = 64,   /* no witness is looked for in parts of fewer rows */
    TURN_DEPTH = 40, /* deeper than this, splits are in the middle: that bounds the depth */
    LOOKS = 64       /* at keys for several rows at once, before the rows are halved */
};

typedef struct open_span { /* keys that are not decided for the rows under way */
    int64_t first, end;
    const box_program *program;
} open_span;

struct blind {
    cells *mask, *self; /* self: k := q, made when first needed */
    mc_node *self_nodes;
    uint32_t heads;
    bool by_length, never, given_up;
    uint64_t limit; /* boxes and rows */
    int64_t known_n, back, ahead; /* least distances, of a mask of q - k alone: for lengths up to known_n */
    mc_env env; /* of the sequence asked for: n keys; queries at [q_first, q_end) */
    int64_t n, q_first, q_end;
    bool itself, data; /* queries and keys are the same; the mask reads arrays */
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
    b->data = uses & MC_USES_DATA;
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

bool blind_never(const blind *b) { return b->never; }

/* The mask with k := q. */
static fcp_code make_self(blind *b) {
    mc_code mask = b->mask->mask;
    mc_builder *builder = mc_builder_new();
    uint32_t *at = malloc(mask.count * sizeof *at), *places = NULL, count = 0;
    bool good = builder && at;
    for (uint32_t i = 0; i < mask.count && good; i++) {
        const mc_node *x = &mask.nodes[i];
        const uint32_t operands[4] = {x->a, x->b, x->c, x->guard};
        uint32_t to[4];
        for (int o = 0; o < 4; o++) to[o] = operands[o] == MC_NONE ? MC_NONE : at[operands[o]];
        mc_op op = x->op == MC_K ? MC_Q : (mc_op)x->op;
        bool alike = to[0] == to[1] && (op == MC_EQ || op == MC_LE || op == MC_IFF || op == MC_NE || op == MC_LT);
        if (alike) /* of two that became one; none of them faults */
            at[i] = mc_emit(builder, MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, op != MC_NE && op != MC_LT, MC_NONE, 0);
        else at[i] = mc_emit(builder, op, to[0], to[1], to[2], x->imm, to[3], 0);
        good = at[i] != MC_NONE;
    }
    good = good && mc_extract(builder, at[mask.count - 1], &b->self_nodes, &places, &count);
    if (good) b->self = cells_new((mc_code){b->self_nodes, count}, b->heads);
    free(at);
    free(places);
    mc_builder_free(builder);
    return b->self ? FCP_OK : FCP_E_NO_MEMORY;
}

static bool effort_left(blind *b) {
    uint64_t spent = b->mask->stats.boxes + b->mask->stats.rows + (b->self ? b->self->stats.boxes : 0);
    if (spent >= b->limit) b->given_up = true;
    return !b->given_up;
}

static void found(blind *b, int64_t first, int64_t end, uint32_t head) {
    blind_rows *o = b->out;
    if (!o->rows) {
        o->first = (uint64_t)(first - b->q_first);
        o->end = (uint64_t)(end - b->q_first);
        o->head = head;
    } else if (o->end == (uint64_t)(first - b->q_first) && o->head == head) o->end = (uint64_t)(end - b->q_first);
    o->rows += (uint64_t)(end - first);
}

/* --- rows without a witness: searched ----------------------------------------------------------------------------- */

static fcp_code push(blind *b, int64_t first, int64_t end, const box_program *p) {
    if (!RESERVE(b->spans, b->span_room, b->span_count, 1)) return FCP_E_NO_MEMORY;
    b->spans[b->span_count++] = (open_span){first, end, p};
    return FCP_OK;
}

/* Rows [q0, q1) of a head, over the keys of spans [from, to). */
static fcp_code search(blind *b, int64_t q0, int64_t q1, uint32_t head, size_t from, size_t to) {
    cells *c = b->mask;
    stack_mark mark = stack_here(&c->stack);
    size_t base = b->span_count, todo = base;
    bool seen = false;
    uint32_t looks = 0;
    fcp_code code = FCP_OK;
    for (size_t i = from; i < to && code == FCP_OK; i++)
        code = push(b, b->spans[i].first, b->spans[i].end, b->spans[i].program);
    size_t kept = base; /* [base, kept): undecided; [todo, span_count): to be looked at */
    while (todo < b->span_count && code == FCP_OK && !seen && effort_left(b)) {
        open_span s = b->spans[todo++];
        if (q1 - q0 > 1 && looks++ >= LOOKS) { /* enough for so many rows: fewer see more alike */
            b->spans[kept++] = s;
            continue;
        }
        box x = {{q0, s.first, head}, {q1, s.end, (int64_t)head + 1}};
        box_class cls;
        code = cells_classify(c, &x, &s.program, &cls);
        if (code != FCP_OK || cls == BOX_NONE) continue;
        if (cls == BOX_FULL) seen = true;
        else if (q1 - q0 == 1 && s.end - s.first <= ROWS_WIDTH) {
            uint64_t bits[2];
            c->stats.rows++;
            if (!rows_one(c->rows, s.program, &x, q0, head, bits, &c->stats.elements)) code = FCP_E_NO_MEMORY;
            else seen = bits[0] || bits[1];
        } else if (s.end - s.first > q1 - q0 && s.end - s.first > ROWS_WIDTH) {
            int64_t middle = s.first + (s.end - s.first) / 2;
            code = push(b, s.first, middle, s.program);
            if (code == FCP_OK) code = push(b, middle, s.end, s.program);
        } else {
            b->spans[kept++] = s; /* behind todo */
        }
    }
    if (code == FCP_OK && !seen && !b->given_up) {
        b->span_count = kept;
        if (kept == base) found(b, q0, q1, head);
        else if (q1 - q0 > 1) {
            int64_t middle = q0 + (q1 - q0) / 2;
            code = search(b, q0, middle, head, base, kept);
            if (code == FCP_OK) code = search(b, middle, q1, head, base, kept);
        }
    }
    b->span_count = base;
    stack_back(&c->stack, mark);
    return code;
}

/* Rows of which nothing is known. */
static fcp_code search_all(blind *b, int64_t q0, int64_t q1, uint32_t head) {
    size_t base = b->span_count;
    fcp_code code = push(b, 0, b->n, b->mask->base);
    if (code == FCP_OK) code = search(b, q0, q1, head, base, base + 1);
    b->span_count = base;
    return code;
}

/* Few rows, of which some may see themselves: if all do, nothing is to be searched. */
static fcp_code rows_one_by_one(blind *b, int64_t q0, int64_t q1, uint32_t head, bool *out_all) {
    cells *c = b->self;
    *out_all = true;
    for (int64_t q = q0; q < q1 && *out_all; q++) *out_all = mc_eval(c->mask, &b->env, q, 0, head, c->eval_scratch);
    c->stats.boxes++;
    return *out_all ? FCP_OK : search_all(b, q0, q1, head);
}

/* --- witnesses ---------------------------------------------------------------------------------------------------- */

static fcp_code halves(blind *b, bool self, int64_t q0, int64_t q1, uint32_t head, const box_program *p, unsigned depth,
                       bool *out_all);
static fcp_code without_witness(blind *b, bool self, int64_t q0, int64_t q1, uint32_t head, const box_program *p,
                                unsigned depth, bool *out_all);

/* Rows [q0, q1) that do not see key 0: those that are keys too may see themselves. */
static fcp_code see_themselves(blind *b, int64_t q0, int64_t q1, uint32_t head, bool *out_all) {
    const int64_t from = q0 > 0 ? q0 : 0, to = q1 < b->n ? q1 : b->n;
    if (from >= to) return search_all(b, q0, q1, head);
    bool all = false;
    fcp_code code = FCP_OK;
    if (q0 < from) code = search_all(b, q0, from, head);
    if (code == FCP_OK) code = without_witness(b, true, from, to, head, b->self->base, 0, &all);
    if (code == FCP_OK && to < q1) code = search_all(b, to, q1, head);
    *out_all = all && q0 == from && q1 == to;
    return code;
}

/* Rows [q0, q1): those that do not see key 0 (`self`: themselves) go on to the next test. *out_all: there were none.
 * What is known to see itself is remembered relative to its place: a mask with a period meets itself once a period. */
static fcp_code without_witness(blind *b, bool self, int64_t q0, int64_t q1, uint32_t head, const box_program *p,
                                unsigned depth, bool *out_all) {
    cells *c = self ? b->self : b->mask;
    *out_all = false;
    if (!effort_left(b)) return FCP_OK;
    box x = {{q0, 0, head}, {q1, 1, (int64_t)head + 1}};
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = cells_classify(c, &x, &p, &cls);
    *out_all = cls == BOX_FULL;
    if (code == FCP_OK && cls == BOX_MIXED && self && q1 - q0 > 1) {
        size_t words = cells_box_words(c, ANSWER_CELLS, &x, p);
        uint64_t hash;
        const memo_entry *known = cells_find_words(c, c->key, words, &hash);
        int64_t *key = known ? NULL : cells_keep_words(c, words);
        *out_all = known && known->answer[0];
        if (!known && !key) code = FCP_E_NO_MEMORY;
        if (key && q1 - q0 > FEW_ROWS) code = halves(b, self, q0, q1, head, p, depth, out_all);
        else if (key) code = rows_one_by_one(b, q0, q1, head, out_all);
        else if (!*out_all) code = search_all(b, q0, q1, head);
        const uint64_t answer[3] = {*out_all};
        if (code == FCP_OK && key && words && !b->given_up && !memo_add(&c->memo, &c->keys, key, words, hash, answer))
            code = FCP_E_NO_MEMORY;
    } else if (code == FCP_OK && cls == BOX_MIXED && q1 - q0 > FEW_ROWS) {
        code = halves(b, self, q0, q1, head, p, depth, out_all);
    } else if (code == FCP_OK && cls != BOX_FULL) {
        code = self ? search_all(b, q0, q1, head) : see_themselves(b, q0, q1, head, out_all);
    }
    stack_back(&c->stack, mark);
    return code;
}

/* Both sides of a place where something turns, or of the middle. */
static fcp_code halves(blind *b, bool self, int64_t q0, int64_t q1, uint32_t head, const box_program *p, unsigned depth,
                       bool *out_all) {
    box x = {{q0, 0, head}, {q1, 1, (int64_t)head + 1}};
    int64_t middle;
    if (depth >= TURN_DEPTH || !box_turn(p, &x, BOX_Q, &middle)) middle = q0 + (q1 - q0) / 2;
    bool low = false, high = false;
    fcp_code code = without_witness(b, self, q0, middle, head, p, depth + 1, &low);
    if (code == FCP_OK) code = without_witness(b, self, middle, q1, head, p, depth + 1, &high);
    *out_all = low && high;
    return code;
}

/* Are all rows, of all heads, allowed at key 0 (or, of the mask with k := q, at all)? */
static fcp_code all_allowed(blind *b, cells *c, bool *out) {
    const box_program *p = c->base;
    box x = {{b->q_first, 0, 0}, {b->q_end, 1, b->heads}};
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = cells_classify(c, &x, &p, &cls);
    *out = code == FCP_OK && cls == BOX_FULL;
    stack_back(&c->stack, mark);
    return code;
}

/* --- masks of q - k ----------------------------------------------------------------------------------------------- */

/* The least position in dimension d of box x that is allowed, x being one wide in the others; x->hi[d] if none is. */
static fcp_code least_allowed(blind *b, box x, int d, const box_program *p, int64_t *out) {
    cells *c = b->mask;
    *out = x.hi[d];
    if (!effort_left(b)) return FCP_OK;
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = cells_classify(c, &x, &p, &cls);
    if (code == FCP_OK && cls == BOX_FULL) *out = x.lo[d];
    else if (code == FCP_OK && cls == BOX_MIXED && x.hi[d] - x.lo[d] == 1) {
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

static void known_distance(blind *b) {
    int64_t first = b->n - b->ahead, end = b->back < b->q_end ? b->back : b->q_end;
    if (first < b->q_first) first = b->q_first;
    for (uint32_t h = 0; h < b->heads && first < end; h++) found(b, first, end, h);
}

static fcp_code by_distance(blind *b, const box_program *p) {
    /* distances that occur; where there is none, all of the range */
    box x = {{0, 0, 0}, {b->q_end, 1, 1}};
    fcp_code code = least_allowed(b, x, BOX_Q, p, &b->back);
    x.hi[BOX_Q] = 1;
    x.hi[BOX_K] = b->n - b->q_first;
    if (code == FCP_OK) code = least_allowed(b, x, BOX_K, p, &b->ahead);
    if (code != FCP_OK || b->given_up) return code;
    known_distance(b);
    if (!b->by_length && !b->data && b->itself) b->known_n = b->n;
    return FCP_OK;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

fcp_code blind_find(blind *b, const mc_env *env, blind_rows *out) {
    *out = (blind_rows){0};
    b->out = out;
    b->env = *env;
    b->n = env->n;
    b->q_first = env->q_first;
    b->q_end = env->q_first + env->queries;
    b->itself = env->q_first == 0 && env->queries == env->n;
    b->never = b->given_up = false;
    if (env->queries == 0) return FCP_OK;
    if (b->n == 0) { /* no row sees anything */
        for (uint32_t h = 0; h < b->heads; h++) found(b, b->q_first, b->q_end, h);
        return FCP_OK;
    }
    if (b->itself && b->known_n >= b->n) { /* of distances, and known */
        known_distance(b);
        return FCP_OK;
    }
    bool all = false;
    const bool inside = b->q_first >= 0 && b->q_end <= b->n; /* all queries are keys too */
    const bool every_length = b->itself && !b->by_length && !b->data;
    fcp_code code = cells_set_sequence(b->mask, env);
    if (code == FCP_OK) code = all_allowed(b, b->mask, &all);
    if (code == FCP_OK && !all && !b->self) code = make_self(b);
    if (code == FCP_OK && !all) code = cells_set_sequence(b->self, env);
    if (code == FCP_OK && !all && inside) code = all_allowed(b, b->self, &all);
    if (code != FCP_OK || all) {
        b->never = code == FCP_OK && every_length;
        return code;
    }
    /* the program of all rows and keys tells whether it is one of q - k */
    const box_program *p = b->mask->base;
    box x = {{b->q_first, 0, 0}, {b->q_end, b->n, b->heads}};
    box_class cls;
    stack_mark mark = stack_here(&b->mask->stack);
    code = cells_classify(b->mask, &x, &p, &cls);
    if (code == FCP_OK && cls == BOX_MIXED && p->diagonal && !p->on_h && !p->loose && inside) {
        code = by_distance(b, p);
    } else {
        bool each = true; /* row has a witness */
        for (uint32_t h = 0; h < b->heads && code == FCP_OK && !b->given_up; h++) {
            code = without_witness(b, false, b->q_first, b->q_end, h, b->mask->base, 0, &all);
            each &= all;
        }
        b->never = code == FCP_OK && each && !b->given_up && every_length;
    }
    stack_back(&b->mask->stack, mark);
    out->at_least = b->given_up;
    return code;
}
