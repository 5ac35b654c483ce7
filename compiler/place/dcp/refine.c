/* refine.c: moves of vertices that save bytes, under the caps.
 *
 * Requires: a hypergraph; load and held of each rank.
 * Gives: a better part for each vertex. No rank is brought over a cap.
 * Cost: a few passes; LOOKS x (vertices + pins) in all. Memory: O(vertices + pins).
 * Units: bytes, where one between nodes counts `net` times.
 *
 * Two kinds of passes alternate until neither helps.
 *   Chains of moves (Fiduccia and Mattheyses): the best move there is, even if it costs bytes, then the best of those
 *       that are left, each vertex once; then back to where the sum was least. So a cut slides along a sequence.
 *   Making room: a move that would save bytes goes to a rank that is full. It is made, and then the cheapest vertices
 *       of that rank leave it, for whichever rank has room, until it is within its caps. If that costs more than was
 *       saved, all of it is undone. On the coarsest graph these are whole sequences, which cost nothing to move. A
 *       vertex that goes back to where the first one came from makes a swap.
 */
#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/place/dcp/dcp.h"

enum {
    PASSES = 6,
    PATIENCE = 60,  /* moves without a new best before a chain ends */
    WIDE = 48,      /* the vertices of a net with more are not looked at again when one of them moves */
    ENOUGH = 64,    /* if two passes save less than such a part of the cost, no other follows */
    EVICTIONS = 8,  /* vertices that leave a rank to make room for one */
    NEAR = 8,       /* vertices that are looked at again before one of them leaves */
    ROOMY = 64,     /* ranks to which vertices may go that share nothing with them */
    LOOKS = 96,     /* ranks of nets that are looked at, for each vertex and pin */
    QUEUED = 8,     /* entries of the queue for each vertex: each time that its gain changes it enters anew */
    STRETCH = 256   /* vertices between two questions whether to stop */
};

/* How many vertices of each net lie in each bin, a rank or a node: a list of the bins that have some. A net with many
 * vertices also has, for each bin, the place in its list. */
typedef struct counts {
    uint32_t bins;
    uint32_t *first, *used, *bin, *count; /* the list of net e begins at first[e], and has used[e] bins */
    uint32_t *places, *place;             /* places[e] + bin: FCP_NONE, it is not in the list; of no net: FCP_NONE */
} counts;

typedef struct queued {
    int64_t gain;
    uint32_t v;
} queued;

typedef struct refining {
    const dcp_input *in;
    dcp_graph *g;
    uint64_t *load, *held;
    counts ranks, nodes;
    /* what best_moves collects: per rank and node, the bytes of the vertex's nets that are there already */
    int64_t *have, *node_have;
    uint32_t *touched, touched_count, *node_touched, node_touched_count;
    uint32_t *roomy, roomy_count;     /* the ranks that are least full */
    uint32_t *head, *next, *previous; /* the vertices of each rank */
    queued *queue;
    uint32_t queued;
    int64_t *key;       /* per vertex: its gain in the queue */
    uint8_t *locked;    /* per vertex: it was moved in this chain, or is fixed */
    uint8_t *wish;      /* per vertex: it may save bytes at a rank that is full, and that was not tried yet */
    int64_t *leave;     /* per vertex: what it gained when it was last looked at whether it could leave a full rank */
    uint8_t *left;      /* per vertex: that was done, and its neighbours have not moved since */
    bool stopped;
    uint32_t *seen, search; /* per vertex: the last move after which it was looked at */
    uint64_t *order, *other;    /* to sort ranks with */
    uint64_t looks, most_looks; /* ranks of nets looked at, and how many may be */
    uint32_t *moved, *from, moves; /* what was done, to be undone */
} refining;

/* --- counts ------------------------------------------------------------------------------------------------------- */

/* The place of a bin in the list of a net; the end of the list: it is not there. */
static uint32_t find_bin(const counts *c, uint32_t e, uint32_t bin) {
    uint32_t i = c->first[e], end = i + c->used[e];
    if (c->places[e] != FCP_NONE) {
        const uint32_t place = c->place[c->places[e] + bin];
        return place == FCP_NONE ? end : place;
    }
    while (i < end && c->bin[i] != bin) i++;
    return i;
}

static uint32_t count_of(const counts *c, uint32_t e, uint32_t bin) {
    const uint32_t i = find_bin(c, e, bin);
    return i < c->first[e] + c->used[e] ? c->count[i] : 0;
}

static void put_bin(counts *c, uint32_t e, uint32_t i, uint32_t bin, uint32_t count) {
    c->bin[i] = bin;
    c->count[i] = count;
    if (c->places[e] != FCP_NONE) c->place[c->places[e] + bin] = i;
}

static void count_in(counts *c, uint32_t e, uint32_t bin, int by) {
    const uint32_t i = find_bin(c, e, bin), end = c->first[e] + c->used[e];
    if (i == end) {
        put_bin(c, e, i, bin, (uint32_t)by);
        c->used[e]++;
        return;
    }
    if (c->count[i] += (uint32_t)by) return;
    c->used[e]--;
    if (i < end - 1) put_bin(c, e, i, c->bin[end - 1], c->count[end - 1]);
    if (c->places[e] != FCP_NONE) c->place[c->places[e] + bin] = FCP_NONE;
}

static fcp_code counts_init(counts *c, const dcp_graph *g, uint32_t bins, arena *scratch) {
    uint32_t slots = 0, places = 0;
    c->bins = bins;
    c->first = ARENA_NEW(scratch, uint32_t, g->nets + (size_t)1);
    c->used = ARENA_ZNEW(scratch, uint32_t, g->nets + (size_t)1);
    c->places = ARENA_NEW(scratch, uint32_t, g->nets + (size_t)1);
    if (!c->first || !c->used || !c->places) return FCP_E_NO_MEMORY;
    for (uint32_t e = 0; e < g->nets; e++) {
        const uint32_t size = g->net_start[e + 1] - g->net_start[e] + 1; /* one more while a vertex moves */
        c->first[e] = slots;
        c->places[e] = size >= bins ? places : FCP_NONE;
        slots += size < bins ? size : bins;
        places += size >= bins ? bins : 0;
    }
    c->first[g->nets] = slots;
    c->bin = ARENA_NEW(scratch, uint32_t, slots + (size_t)1);
    c->count = ARENA_NEW(scratch, uint32_t, slots + (size_t)1);
    c->place = ARENA_NEW(scratch, uint32_t, places + (size_t)1);
    if (!c->bin || !c->count || !c->place) return FCP_E_NO_MEMORY;
    memset(c->place, 0xff, places * sizeof *c->place);
    return FCP_OK;
}

/* --- one move ----------------------------------------------------------------------------------------------------- */

static uint32_t node_of(const refining *x, uint32_t rank) { return rank / x->in->gpus; }

static bool has_room(const refining *x, uint32_t v, uint32_t r) {
    return x->load[r] + x->g->work[v] <= x->in->pair_cap && x->held[r] + x->g->tokens[v] <= x->in->token_cap;
}

static bool is_over(const refining *x, uint32_t r) {
    return x->load[r] > x->in->pair_cap || x->held[r] > x->in->token_cap;
}

/* Adds up what bins other than `own` have of a net; returns whether `own` would be left by its last vertex. */
static bool collect(const counts *c, uint32_t e, uint32_t own, int64_t bytes, int64_t *have, uint32_t *touched,
                    uint32_t *count) {
    bool last = false;
    const uint32_t *bin = c->bin + c->first[e], *n = c->count + c->first[e], used = c->used[e];
    for (uint32_t i = 0; i < used; i++) {
        if (bin[i] == own) last = n[i] == 1;
        else {
            if (!have[bin[i]]) touched[(*count)++] = bin[i];
            have[bin[i]] += bytes;
        }
    }
    return last;
}

/* Where a vertex could go, and the bytes that saves. FCP_NONE: nowhere. */
typedef struct option {
    uint32_t to;
    int64_t gain;
} option;

/* What best_moves finds: among the ranks that share a net with the vertex, those that have room and all; and, where it
 * is asked for, among these and the roomy ones. */
typedef struct options {
    option near, full, any;
} options;

static void consider(const refining *x, option *best, uint32_t r, int64_t gain) {
    if (best->to != FCP_NONE &&
        (gain < best->gain || (gain == best->gain && (x->load[r] > x->load[best->to] ||
                                                      (x->load[r] == x->load[best->to] && r > best->to)))))
        return;
    *best = (option){r, gain};
}

/* The moves of a vertex that save most. Of equals, that to the rank with least load. */
static options best_moves(refining *x, uint32_t v, bool anywhere) {
    const dcp_graph *g = x->g;
    const uint32_t a = g->part[v], home = node_of(x, a);
    const bool nodes = x->nodes.bins > 1 && x->in->net > 1;
    int64_t left = 0, all = 0, node_left = 0;
    options out = {{FCP_NONE, 0}, {FCP_NONE, 0}, {FCP_NONE, 0}};
    x->touched_count = x->node_touched_count = 0;
    for (uint32_t i = g->pin_start[v]; i < g->pin_start[v + 1]; i++) {
        const uint32_t e = g->pin[i];
        const int64_t bytes = (int64_t)g->bytes[e];
        all += bytes;
        x->looks += 4 + x->ranks.used[e];
        if (collect(&x->ranks, e, a, bytes, x->have, x->touched, &x->touched_count)) left += bytes;
        if (nodes && collect(&x->nodes, e, home, bytes, x->node_have, x->node_touched, &x->node_touched_count))
            node_left += bytes;
    }
    const uint32_t candidates = x->touched_count + (anywhere ? x->roomy_count : 0);
    x->looks += candidates;
    for (uint32_t i = 0; i < candidates; i++) {
        const bool shares = i < x->touched_count;
        const uint32_t r = shares ? x->touched[i] : x->roomy[i - x->touched_count];
        if (r == a) continue;
        int64_t gain = left - (all - x->have[r]);
        if (nodes && node_of(x, r) != home)
            gain += (int64_t)(x->in->net - 1) * (node_left - (all - x->node_have[node_of(x, r)]));
        const bool room = has_room(x, v, r);
        if (shares) consider(x, &out.full, r, gain);
        if (shares && room) consider(x, &out.near, r, gain);
        if (anywhere && room) consider(x, &out.any, r, gain);
    }
    for (uint32_t i = 0; i < x->touched_count; i++) x->have[x->touched[i]] = 0;
    for (uint32_t i = 0; i < x->node_touched_count; i++) x->node_have[x->node_touched[i]] = 0;
    return out;
}

static void link_vertex(refining *x, uint32_t v, uint32_t r) {
    x->next[v] = x->head[r];
    x->previous[v] = FCP_NONE;
    if (x->head[r] != FCP_NONE) x->previous[x->head[r]] = v;
    x->head[r] = v;
}

static void unlink_vertex(refining *x, uint32_t v, uint32_t r) {
    if (x->previous[v] == FCP_NONE) x->head[r] = x->next[v];
    else x->next[x->previous[v]] = x->next[v];
    if (x->next[v] != FCP_NONE) x->previous[x->next[v]] = x->previous[v];
}

static void move(refining *x, uint32_t v, uint32_t to) {
    dcp_graph *g = x->g;
    const uint32_t from = g->part[v];
    for (uint32_t i = g->pin_start[v]; i < g->pin_start[v + 1]; i++) {
        count_in(&x->ranks, g->pin[i], to, 1);
        count_in(&x->ranks, g->pin[i], from, -1);
        if (node_of(x, from) == node_of(x, to)) continue;
        count_in(&x->nodes, g->pin[i], node_of(x, to), 1);
        count_in(&x->nodes, g->pin[i], node_of(x, from), -1);
    }
    unlink_vertex(x, v, from);
    link_vertex(x, v, to);
    x->load[from] -= g->work[v];
    x->held[from] -= g->tokens[v];
    x->load[to] += g->work[v];
    x->held[to] += g->tokens[v];
    g->part[v] = to;
}

static void do_move(refining *x, uint32_t v, uint32_t to) {
    x->moved[x->moves] = v;
    x->from[x->moves++] = x->g->part[v];
    move(x, v, to);
}

/* The neighbours of what was moved are worth a try at a full rank, even if one has failed before; and what they gain by
 * leaving has changed. */
static void wake_neighbours(refining *x) {
    const dcp_graph *g = x->g;
    for (uint32_t m = 0; m < x->moves; m++)
        for (uint32_t i = g->pin_start[x->moved[m]]; i < g->pin_start[x->moved[m] + 1]; i++) {
            const uint32_t first = g->net_start[g->pin[i]], end = g->net_start[g->pin[i] + 1];
            for (uint32_t k = first; k < end && end - first <= WIDE; k++) {
                x->wish[g->end[k]] = 1;
                x->left[g->end[k]] = 0;
            }
        }
}

static void undo_to(refining *x, uint32_t moves) {
    while (x->moves > moves) {
        x->moves--;
        move(x, x->moved[x->moves], x->from[x->moves]);
    }
}

/* --- chains of moves ---------------------------------------------------------------------------------------------- */

static bool comes_first(const queued *a, const queued *b) {
    return a->gain != b->gain ? a->gain > b->gain : a->v < b->v;
}

static void enqueue(refining *x, uint32_t v, int64_t gain) {
    uint32_t i = x->queued++;
    queued item = {gain, v};
    x->key[v] = gain;
    for (; i > 0 && comes_first(&item, &x->queue[(i - 1) / 2]); i = (i - 1) / 2) x->queue[i] = x->queue[(i - 1) / 2];
    x->queue[i] = item;
}

static queued dequeue(refining *x) {
    queued top = x->queue[0], last = x->queue[--x->queued];
    uint32_t i = 0;
    for (;;) {
        uint32_t child = 2 * i + 1;
        if (child >= x->queued) break;
        if (child + 1 < x->queued && comes_first(&x->queue[child + 1], &x->queue[child])) child++;
        if (comes_first(&last, &x->queue[child])) break;
        x->queue[i] = x->queue[child];
        i = child;
    }
    if (x->queued) x->queue[i] = last;
    return top;
}

/* The neighbours of a vertex that came from a rank to another may have better moves now, or worse ones: those of nets
 * that had one vertex there, or have now. */
static void look_again(refining *x, uint32_t v, uint32_t from, uint32_t room) {
    const dcp_graph *g = x->g;
    const uint32_t to = g->part[v], move = ++x->search;
    for (uint32_t i = g->pin_start[v]; i < g->pin_start[v + 1]; i++) {
        uint32_t e = g->pin[i];
        if (g->net_start[e + 1] - g->net_start[e] > WIDE) continue;
        if (count_of(&x->ranks, e, from) > 1 && count_of(&x->ranks, e, to) > 2) continue;
        for (uint32_t k = g->net_start[e]; k < g->net_start[e + 1]; k++) {
            uint32_t u = g->end[k];
            if (x->locked[u] || x->seen[u] == move || x->queued >= room) continue;
            x->seen[u] = move;
            const option o = best_moves(x, u, false).near;
            if (o.to != FCP_NONE && o.gain != x->key[u]) enqueue(x, u, o.gain);
        }
    }
}

static bool stop_at(refining *x, uint32_t index) {
    if (index % STRETCH == 0 && !x->stopped) x->stopped = fcp_stop_asked(x->in->stop);
    return x->stopped;
}

/* One pass; returns what it saved. */
static int64_t chain(refining *x, uint32_t room) {
    const dcp_graph *g = x->g;
    int64_t sum = 0, most = 0;
    uint32_t kept = 0, idle = 0;
    x->queued = x->moves = 0;
    memcpy(x->locked, g->fixed, g->vertices);
    for (uint32_t v = 0; v < g->vertices; v++) {
        x->key[v] = INT64_MIN;
        if (stop_at(x, v)) return 0;
        if (x->locked[v] || g->pin_start[v] == g->pin_start[v + 1]) continue;
        const options o = best_moves(x, v, false);
        if (x->wish[v]) x->wish[v] = o.full.gain > 0;
        if (o.near.to != FCP_NONE) enqueue(x, v, o.near.gain);
    }
    for (uint32_t i = 1; x->queued && idle < PATIENCE && x->looks < x->most_looks && !stop_at(x, i); i++) {
        queued top = dequeue(x);
        if (x->locked[top.v] || top.gain != x->key[top.v]) continue;
        const option o = best_moves(x, top.v, false).near;
        if (o.to == FCP_NONE) continue;
        if (o.gain < top.gain) {
            if (x->queued < room) enqueue(x, top.v, o.gain);
            continue;
        }
        const uint32_t from = g->part[top.v];
        x->locked[top.v] = 1;
        do_move(x, top.v, o.to);
        sum += o.gain;
        idle++;
        if (sum > most) {
            most = sum;
            kept = x->moves;
            idle = 0;
        }
        look_again(x, top.v, from, room);
    }
    undo_to(x, kept);
    wake_neighbours(x);
    return most;
}

/* --- making room -------------------------------------------------------------------------------------------------- */

/* A vertex that could leave a rank that is over a cap. */
typedef struct leaving {
    uint32_t v, to;
    int64_t gain;
    bool enough;   /* with it gone the rank is within its caps */
    uint64_t size; /* of it, by what the rank has too much of */
} leaving;

/* The one that costs less; of equals, the smallest that is enough, or else the largest. */
static bool leaves_first(const leaving *a, const leaving *b) {
    if (a->gain != b->gain) return a->gain > b->gain;
    if (a->enough != b->enough) return a->enough;
    if (a->size != b->size) return (a->size < b->size) == a->enough;
    return a->v < b->v;
}

/* What leaving gains, of a vertex; INT64_MIN: there is no rank with room for it. */
static void look_at_leaving(refining *x, leaving *l) {
    const option o = best_moves(x, l->v, true).any;
    l->to = o.to;
    l->gain = x->leave[l->v] = o.to == FCP_NONE ? INT64_MIN : o.gain;
    x->left[l->v] = 1;
}

/* The vertex of a rank that is over a cap whose leaving costs least, and where it goes; v = FCP_NONE: there is none
 * that costs less than `budget`. What leaving gains is remembered from earlier searches; the few that come first by
 * that are looked at again. */
static leaving cheapest(refining *x, uint32_t r, uint32_t keep, int64_t budget) {
    const dcp_graph *g = x->g;
    const uint64_t pairs = x->load[r] > x->in->pair_cap ? x->load[r] - x->in->pair_cap : 0;
    const uint64_t tokens = x->held[r] > x->in->token_cap ? x->held[r] - x->in->token_cap : 0;
    leaving near[NEAR], best = {.v = FCP_NONE};
    uint32_t count = 0;
    for (uint32_t u = x->head[r]; u != FCP_NONE; u = x->next[u]) {
        if (u == keep || g->fixed[u] || (pairs && !g->work[u]) || (tokens && !g->tokens[u])) continue;
        leaving l = {.v = u, .gain = x->leave[u], .enough = g->work[u] >= pairs && g->tokens[u] >= tokens,
                     .size = pairs ? g->work[u] : g->tokens[u]};
        if (!x->left[u]) look_at_leaving(x, &l);
        if (l.gain == INT64_MIN || -l.gain >= budget) continue;
        if (count == NEAR && !leaves_first(&l, &near[NEAR - 1])) continue;
        uint32_t i = count < NEAR ? count++ : NEAR - 1;
        for (; i > 0 && leaves_first(&l, &near[i - 1]); i--) near[i] = near[i - 1];
        near[i] = l;
    }
    for (uint32_t i = 0; i < count; i++) {
        look_at_leaving(x, &near[i]);
        if (near[i].gain == INT64_MIN || -near[i].gain >= budget) continue;
        if (best.v == FCP_NONE || leaves_first(&near[i], &best)) best = near[i];
    }
    return best;
}

/* Moves v to a full rank and makes room there; returns what that saved, 0: nothing did. */
static int64_t force(refining *x, uint32_t v, uint32_t to, int64_t gain) {
    x->moves = 0;
    do_move(x, v, to);
    for (uint32_t i = 0; is_over(x, to); i++) {
        const leaving l = i < EVICTIONS ? cheapest(x, to, v, gain) : (leaving){.v = FCP_NONE};
        if (l.v == FCP_NONE) {
            undo_to(x, 0);
            return 0;
        }
        do_move(x, l.v, l.to);
        gain += l.gain;
    }
    return gain;
}

/* Finds the ranks that are least full, in ascending order. */
static void find_roomy(refining *x) {
    const uint32_t ranks = x->in->ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t pairs = dcp_share(x->load[r], x->in->pair_cap), tokens = dcp_share(x->held[r], x->in->token_cap);
        x->order[r] = (pairs > tokens ? pairs : tokens) << 32 | r;
    }
    if (ranks > ROOMY) sort_u64(x->order, x->other, ranks);
    x->roomy_count = ranks < ROOMY ? ranks : ROOMY;
    for (uint32_t i = 0; i < x->roomy_count; i++) x->roomy[i] = (uint32_t)x->order[i];
}

static int64_t make_room(refining *x) {
    const dcp_graph *g = x->g;
    int64_t saved = 0;
    find_roomy(x);
    memset(x->left, 0, g->vertices);
    for (uint32_t v = 0; v < g->vertices; v++) {
        if (x->looks >= x->most_looks || stop_at(x, v)) break;
        if (!x->wish[v] || g->fixed[v] || g->work[v] > x->in->pair_cap || g->tokens[v] > x->in->token_cap) continue;
        const option o = best_moves(x, v, false).full;
        const int64_t gain = o.to != FCP_NONE && o.gain > 0 ? force(x, v, o.to, o.gain) : 0;
        if (gain > 0) wake_neighbours(x);
        x->wish[v] = 0;
        saved += gain;
    }
    return saved;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static bool setup_ranks(refining *x, uint32_t nodes, arena *scratch) {
    const size_t ranks = x->in->ranks;
    x->have = ARENA_ZNEW(scratch, int64_t, ranks);
    x->touched = ARENA_NEW(scratch, uint32_t, ranks);
    x->node_have = ARENA_ZNEW(scratch, int64_t, nodes);
    x->node_touched = ARENA_NEW(scratch, uint32_t, nodes);
    x->roomy = ARENA_NEW(scratch, uint32_t, ranks);
    x->order = ARENA_NEW(scratch, uint64_t, ranks);
    x->other = ARENA_NEW(scratch, uint64_t, ranks);
    x->head = ARENA_NEW(scratch, uint32_t, ranks);
    return x->have && x->touched && x->node_have && x->node_touched && x->roomy && x->order && x->other && x->head;
}

static bool setup_vertices(refining *x, arena *scratch) {
    const size_t n = x->g->vertices + (size_t)1;
    x->next = ARENA_NEW(scratch, uint32_t, n);
    x->previous = ARENA_NEW(scratch, uint32_t, n);
    x->queue = ARENA_NEW(scratch, queued, QUEUED * n);
    x->key = ARENA_NEW(scratch, int64_t, n);
    x->locked = ARENA_NEW(scratch, uint8_t, n);
    x->wish = ARENA_NEW(scratch, uint8_t, n);
    x->leave = ARENA_NEW(scratch, int64_t, n);
    x->left = ARENA_ZNEW(scratch, uint8_t, n);
    x->seen = ARENA_ZNEW(scratch, uint32_t, n);
    x->moved = ARENA_NEW(scratch, uint32_t, n + EVICTIONS);
    x->from = ARENA_NEW(scratch, uint32_t, n + EVICTIONS);
    return x->next && x->previous && x->queue && x->key && x->locked && x->wish && x->leave && x->left && x->seen &&
           x->moved && x->from;
}

static fcp_code setup(refining *x, arena *scratch) {
    const dcp_graph *g = x->g;
    const uint32_t nodes = (x->in->ranks + x->in->gpus - 1) / x->in->gpus;
    if (!setup_ranks(x, nodes, scratch) || !setup_vertices(x, scratch)) return FCP_E_NO_MEMORY;
    fcp_code code = counts_init(&x->ranks, g, x->in->ranks, scratch);
    if (!code) code = counts_init(&x->nodes, g, nodes, scratch);
    if (code) return code;
    x->most_looks = LOOKS * (uint64_t)(g->net_start[g->nets] + g->vertices);
    memset(x->wish, 1, g->vertices * sizeof *x->wish);
    memset(x->head, 0xff, x->in->ranks * sizeof *x->head);
    for (uint32_t v = g->vertices; v-- > 0;) link_vertex(x, v, g->part[v]);
    for (uint32_t e = 0; e < g->nets; e++)
        for (uint32_t i = g->net_start[e]; i < g->net_start[e + 1]; i++) {
            count_in(&x->ranks, e, g->part[g->end[i]], 1);
            count_in(&x->nodes, e, node_of(x, g->part[g->end[i]]), 1);
        }
    return FCP_OK;
}

/* What the nets cost. */
static int64_t cost_of(const refining *x) {
    int64_t sum = 0;
    for (uint32_t e = 0; e < x->g->nets; e++) {
        const int64_t ranks = (int64_t)x->ranks.used[e] - 1, nodes = (int64_t)x->nodes.used[e] - 1;
        sum += (int64_t)x->g->bytes[e] * (ranks + (x->in->net - 1) * nodes);
    }
    return sum;
}

fcp_code dcp_refine(const dcp_input *in, dcp_graph *g, uint64_t *load, uint64_t *held, arena *scratch) {
    refining x = {.in = in, .g = g, .load = load, .held = held};
    fcp_code code = setup(&x, scratch);
    for (int pass = 0; pass < PASSES && !code; pass++) {
        int64_t saved = chain(&x, (QUEUED - 1) * (g->vertices + 1));
        saved += make_room(&x);
        if (x.stopped) return FCP_E_INTERRUPTED;
        if (saved <= cost_of(&x) / ENOUGH || x.looks >= x.most_looks) break;
    }
    return code;
}
