/* scan.c: which summaries are combined, and where: a parallel prefix over the stretches of each document.
 *
 * Example: a document with stretches at ranks 0, 1 and 0 again. Rank 0 sends b of its first stretch to rank 1, where it
 *          is the state that enters. Rank 1 makes A h + b of it with its own summary and sends that to rank 0.
 *
 * Requires: the stretches of documents that are cut, in order.
 * Gives:    operations for every document, by one of the shapes of fcp_scan_shape; and with them the steps of ranks.
 * Method:   neighbours of a document at one rank are a *stop*: what goes from one to the next there needs no message.
 *           Shapes are networks over stops:
 *             chain   each stop hands the state that leaves it to the next. The fewest bytes, and as many messages in a
 *                     row as there are stops. If the heads travel in `parts`, a stop hands on one part while it waits
 *                     for the next, as in a pipeline.
 *             tree    Blelloch's scan: products go up a binary tree, states come down it. About twice the bytes, and
 *                     2 log2 as many messages in a row.
 *             nodes   the same, and the tree is divided between nodes before it is divided inside them, so that fewer
 *                     messages cross the network.
 *             gather  every stop gets the summaries of all stops before it at once.
 * Source:   G. Blelloch, Prefix sums and their applications (1990).
 * Cost:     linear in stops and parts; of gather in their square.
 */
#include "compiler/recurrent/scan_shapes.h"

/* --- building ----------------------------------------------------------------------------------------------------- */

/* No value: the state before a document, which is 0. */
#define NOTHING UINT32_MAX

typedef struct builder {
    recurrent_batch *b;
    const scan_document *d;
    scan_ops *ops;
    uint32_t part;
    bool failed;
} builder;

static uint32_t add(builder *x, scan_op op) {
    scan_op *room = arena_grow(x->b->scratch, x->ops->at, x->ops->count, &x->ops->room, sizeof *room);
    if (!room || x->ops->count >= SCAN_GIVEN - 1) {
        x->failed = true;
        return 0;
    }
    x->ops->at = room;
    op.part = x->part;
    room[x->ops->count] = op;
    return x->ops->count++;
}

static uint32_t rank_of(const builder *x, uint32_t stop) { return scan_at(x->d, x->d->stops[stop])->rank; }
/* The summary of a stretch, and the register of the state that enters it. */
static uint32_t summary(const builder *x, uint32_t i) { return SCAN_GIVEN | scan_at(x->d, i)->number; }
static uint32_t entering(const builder *x, uint32_t i) {
    const cut_stretch *at = scan_at(x->d, i);
    return x->b->rank_counts[at->rank] + at->number;
}
static uint32_t combine(builder *x, uint32_t rank, uint32_t a, uint32_t b, bool whole, uint32_t out) {
    return add(x, (scan_op){.op = FCP_STEP_COMBINE, .whole = whole, .rank = rank, .a = a, .b = b, .out = out});
}
/* Brings a value to a rank; to a register, unless `out` is VALUE_TEMPORARY. If it has come from that rank, perhaps by
 * way of others, it is still there, and nothing is sent. */
static uint32_t bring(builder *x, uint32_t a, uint32_t from, uint32_t to, bool whole, uint32_t out) {
    for (uint32_t v = a; from != to && !(v & SCAN_GIVEN) && x->ops->at[v].op == FCP_STEP_SEND; v = x->ops->at[v].a)
        if (x->ops->at[v].rank == to) {
            a = x->ops->at[v].a;
            from = to;
            break;
        }
    if (from != to)
        return add(x, (scan_op){.op = FCP_STEP_SEND, .whole = whole, .rank = from, .to = to, .a = a, .out = out});
    if (out == VALUE_TEMPORARY) return a;
    return add(x, (scan_op){.op = FCP_STEP_COPY, .rank = to, .a = a, .out = out});
}

/* Gives every stretch of a stop the state that enters it. `state`: that of its first stretch, which is in its register;
 * NOTHING at the beginning of the document. Returns that of its last stretch. */
static uint32_t enter(builder *x, uint32_t stop, uint32_t state) {
    const uint32_t rank = rank_of(x, stop);
    for (uint32_t i = x->d->stops[stop] + 1; i < x->d->stops[stop + 1]; i++)
        state = state == NOTHING ? bring(x, summary(x, i - 1), rank, rank, false, entering(x, i))
                                 : combine(x, rank, state, summary(x, i - 1), false, entering(x, i));
    return state;
}
/* The state that leaves a stop, whose last stretch gets `state`. */
static uint32_t leave(builder *x, uint32_t stop, uint32_t state) {
    const uint32_t last = x->d->stops[stop + 1] - 1;
    return state == NOTHING ? summary(x, last)
                            : combine(x, rank_of(x, stop), state, summary(x, last), false, VALUE_TEMPORARY);
}
/* The summary of a stop. */
static uint32_t whole_stop(builder *x, uint32_t stop) {
    uint32_t at = summary(x, x->d->stops[stop]);
    for (uint32_t i = x->d->stops[stop] + 1; i < x->d->stops[stop + 1]; i++)
        at = combine(x, rank_of(x, stop), at, summary(x, i), true, VALUE_TEMPORARY);
    return at;
}

/* --- shapes ------------------------------------------------------------------------------------------------------- */

static void make_chain(builder *x) {
    uint32_t state = NOTHING;
    for (uint32_t stop = 0; stop < x->d->stop_count; stop++) {
        state = enter(x, stop, state);
        if (stop + 1 == x->d->stop_count) return;
        state = bring(x, leave(x, stop, state), rank_of(x, stop), rank_of(x, stop + 1), false,
                      entering(x, x->d->stops[stop + 1]));
    }
}

/* Every stop gets the products that it needs from where they are: the state that leaves stop 0, and the summaries of
 * the stops behind it. */
static void make_gather(builder *x) {
    const uint32_t stops = x->d->stop_count;
    const uint32_t first = leave(x, 0, enter(x, 0, NOTHING));
    for (uint32_t to = 1; to < stops; to++) {
        const uint32_t rank = rank_of(x, to), own = entering(x, x->d->stops[to]);
        uint32_t state = bring(x, first, rank_of(x, 0), rank, false, to == 1 ? own : VALUE_TEMPORARY);
        for (uint32_t k = 1; k < to; k++) {
            const uint32_t other = bring(x, whole_stop(x, k), rank_of(x, k), rank, true, VALUE_TEMPORARY);
            state = combine(x, rank, state, other, false, k + 1 == to ? own : VALUE_TEMPORARY);
        }
        enter(x, to, state);
    }
}

/* A tree over stops `low` to high - 1 lies at the rank of its last stop. Its left half comes there, and `left` is its
 * product: down the tree, the state that enters the right half is that of the whole, then what `left` does. */
typedef struct tree {
    uint32_t low, high, middle;
    uint32_t left; /* value, at the rank of stop high - 1 */
    struct tree *below[2];
} tree;

/* Makes the products of a tree, from the bottom up. `wanted`: somebody needs the product of all of it, which *out
 * becomes; it is a state if the tree begins the document, and else whole. */
static tree *go_up(builder *x, uint32_t low, uint32_t high, bool nodes, bool wanted, uint32_t *out) {
    tree *t = ARENA_ZNEW(x->b->scratch, tree, 1);
    if (!t) {
        x->failed = true;
        return NULL;
    }
    *t = (tree){.low = low, .high = high, .left = NOTHING};
    if (high - low == 1) {
        if (!low) *out = leave(x, 0, enter(x, 0, NOTHING));
        else if (wanted) *out = whole_stop(x, low);
        return t;
    }
    uint32_t left = NOTHING, right = NOTHING;
    t->middle = scan_middle(x->b, x->d, low, high, nodes);
    t->below[0] = go_up(x, low, t->middle, nodes, true, &left);
    t->below[1] = go_up(x, t->middle, high, nodes, wanted, &right);
    if (x->failed) return NULL;
    /* at the beginning of the document, the left half's product is what enters the right half */
    const bool enters = !low && high - t->middle == 1;
    t->left = bring(x, left, rank_of(x, t->middle - 1), rank_of(x, high - 1), low != 0,
                    enters ? entering(x, x->d->stops[t->middle]) : VALUE_TEMPORARY);
    if (wanted) *out = combine(x, rank_of(x, high - 1), t->left, right, low != 0, VALUE_TEMPORARY);
    return t;
}

/* Brings states down a tree. `state`: what enters it, at the rank of its last stop; NOTHING at the beginning. Of a
 * single stop it is in its register. */
static void go_down(builder *x, const tree *t, uint32_t state) {
    if (x->failed) return;
    if (t->high - t->low == 1) {
        if (t->low) enter(x, t->low, state);
        return;
    }
    const uint32_t here = rank_of(x, t->high - 1), there = rank_of(x, t->middle - 1);
    uint32_t right = t->left;
    if (state != NOTHING) {
        const uint32_t own = t->high - t->middle == 1 ? entering(x, x->d->stops[t->middle]) : (uint32_t)VALUE_TEMPORARY;
        right = combine(x, here, state, t->left, false, own);
        state = bring(x, state, here, there, false,
                      t->middle - t->low == 1 ? entering(x, x->d->stops[t->low]) : (uint32_t)VALUE_TEMPORARY);
    }
    go_down(x, t->below[0], state);
    go_down(x, t->below[1], right);
}

static void make_tree(builder *x, bool nodes) {
    uint32_t unused;
    const tree *t = go_up(x, 0, x->d->stop_count, nodes, false, &unused);
    if (!x->failed) go_down(x, t, NOTHING);
}

/* --- a layer ------------------------------------------------------------------------------------------------------ */

static bool make_document(recurrent_batch *b, const scan_document *d, uint32_t parts, scan_ops *ops) {
    builder x = {.b = b, .d = d, .ops = ops};
    for (; x.part < parts && !x.failed; x.part++) {
        switch (d->shape) {
        case FCP_SCAN_TREE: make_tree(&x, false); break;
        case FCP_SCAN_NODES: make_tree(&x, true); break;
        case FCP_SCAN_GATHER: make_gather(&x); break;
        default: make_chain(&x); break;
        }
    }
    return !x.failed;
}

/* The steps of a scan by one way. */
static fcp_code make_way(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, scan_way way,
                         step_list *out) {
    scan_ops ops = {.at = NULL};
    scan_shape(b, layer, list, way);
    for (uint32_t i = 0; i < list->count; i++) {
        if (!(i & 63) && fcp_stop_asked(b->stop)) return FCP_E_INTERRUPTED;
        if (!make_document(b, &list->at[i], way.parts, &ops)) return FCP_E_NO_MEMORY;
    }
    return recurrent_rounds(b, &ops, out);
}

/* Makes the first few ways, and keeps the one with the least predicted time. Estimates know nothing of documents that
 * wait for each other's messages, so the first is not always the fastest. Ways that together have more than half of the
 * steps of the first are left out, unless these are few: choosing must not cost more than the rest of planning. */
static fcp_code choose_way(recurrent_batch *b, const fcp_recurrent *layer, scan_documents *list, scan_way *chosen,
                           step_list *out) {
    enum { TRIED = 6, STEPS_FREE = 2048 };
    scan_way ways[SCAN_WAYS];
    const uint32_t count = scan_ways(b, layer, list, ways);
    uint64_t best = UINT64_MAX, left = 0, stops = 0;
    fcp_code code = count ? FCP_OK : FCP_E_INTERRUPTED;
    for (uint32_t i = 0; i < list->count; i++) stops += list->at[i].stop_count - 1;
    for (uint32_t i = 0; i < count && i < TRIED && !code; i++) {
        step_list made = {.at = NULL};
        fcp_recurrent as = *layer;
        uint64_t time = 0;
        if (i && 3 * stops * ways[i].parts > left) continue; /* a message is two steps, with a combination three */
        as.parts = ways[i].parts;
        code = make_way(b, &as, list, ways[i], &made);
        if (!code && count > 1) code = recurrent_time(b, &as, &made, &time);
        if (code) break;
        if (!i) left = made.count / 2 > STEPS_FREE ? made.count / 2 : STEPS_FREE;
        else left -= made.count < left ? made.count : left;
        if (time >= best) continue;
        best = time;
        *chosen = ways[i];
        *out = made;
    }
    return code;
}

fcp_code recurrent_scan(recurrent_batch *b, fcp_recurrent *layer, fcp_pass pass, step_list *out) {
    scan_documents documents;
    fcp_code code = scan_list(b, fcp_scan_descends(layer, pass), &documents);
    if (code) return code;
    scan_way way = {b->asked->shape == FCP_SCAN_NONE ? FCP_SCAN_MIXED : (fcp_scan_shape)b->asked->shape,
                    b->asked->parts};
    if (!way.parts && pass == FCP_BACKWARD && b->plan->problem->passes & 1u << FCP_FORWARD) way = b->way;
    if (way.parts) code = make_way(b, layer, &documents, way, out);
    else code = choose_way(b, layer, &documents, &way, out);
    b->way = way;
    layer->parts = way.parts;
    if (code || pass == FCP_BACKWARD) return code;
    scan_shape(b, layer, &documents, way);
    layer->shape = scan_shape_of(&documents);
    return FCP_OK;
}
