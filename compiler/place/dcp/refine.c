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
 *
 * To find the best move of a vertex takes a look at each rank of each of its nets, and most vertices, in the middle of
 * a sequence, have no good one. So both passes go by the bound of what a move can save (gains.h), and look only at a
 * vertex whose turn it is by that.
 */
#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/place/dcp/gains.h"

enum {
    PASSES = 6,
    PATIENCE = 10,  /* vertices that are looked at without a new best before a chain ends */
    WIDE = 48,      /* the vertices of a net with more are not looked at again when one of them moves */
    ENOUGH = 64,    /* if two passes save less than such a part of the cost, no other follows */
    EVICTIONS = 8,  /* vertices that leave a rank to make room for one */
    NEAR = 4,       /* vertices that are looked at before one of them leaves */
    ROOMY = 64,     /* ranks to which vertices may go that share nothing with them */
    LOOKS = 24,     /* ranks of nets that are looked at, for each vertex and pin */
    QUEUED = 8,     /* entries of the queue for each vertex: each time that its gain changes it enters anew */
    STRETCH = 256   /* vertices between two questions whether to stop */
};

typedef struct queued {
    int64_t gain;
    uint32_t v;
} queued;

typedef struct refining {
    dcp_gains s;
    queued *queue;
    uint32_t queued, most_queued;
    int64_t *key;       /* per vertex: what it may gain, by its last entry in the queue */
    uint8_t *locked;    /* per vertex: it was moved in this chain, or is fixed */
    uint8_t *wish;      /* per vertex: it may save bytes at a rank that is full, and that was not tried yet */
    int64_t *leave;     /* per vertex: what it gained when it was last looked at whether it could leave a full rank */
    uint8_t *left;      /* per vertex: that was done, and its neighbours have not moved since */
    bool stopped;
    uint32_t *seen, search; /* per vertex: the last move after which it was looked at */
    uint64_t *order, *other; /* to sort ranks with */
    uint64_t most_looks;
    uint32_t *moved, *from, moves; /* what was done, to be undone */
} refining;

static bool is_over(const refining *x, uint32_t r) {
    return x->s.load[r] > x->s.in->pair_cap || x->s.held[r] > x->s.in->token_cap;
}

static void do_move(refining *x, uint32_t v, uint32_t to) {
    x->moved[x->moves] = v;
    x->from[x->moves++] = x->s.g->part[v];
    dcp_move(&x->s, v, to);
}

/* The neighbours of what was moved are worth a try at a full rank, even if one has failed before; and what they gain by
 * leaving has changed. */
static void wake_neighbours(refining *x) {
    const dcp_hypergraph *g = x->s.g;
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
        dcp_move(&x->s, x->moved[x->moves], x->from[x->moves]);
    }
}

/* --- chains of moves ---------------------------------------------------------------------------------------------- */

static bool comes_first(const queued *a, const queued *b) {
    return a->gain != b->gain ? a->gain > b->gain : a->v < b->v;
}

/* Not if the queue is full; what is lost then is looked at in the next pass. */
static void enqueue(refining *x, uint32_t v, int64_t gain) {
    if (x->queued == x->most_queued) return;
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

/* A vertex came from a rank to another. One that was left alone behind may leave for less now. The neighbours of nets
 * that have the first vertex there may follow it for less. What costs more now is found out when it is its turn. */
static void look_again(refining *x, uint32_t v, uint32_t from) {
    dcp_gains *s = &x->s;
    const dcp_hypergraph *g = s->g;
    const uint32_t to = g->part[v], move = ++x->search;
    for (uint32_t i = g->pin_start[v]; i < g->pin_start[v + 1]; i++) {
        const uint32_t e = g->pin[i], at = dcp_find_bin(&s->ranks, e, from);
        if (g->net_start[e + 1] - g->net_start[e] > WIDE) continue;
        if (at < s->ranks.first[e] + s->ranks.used[e] && s->ranks.count[at] == 1 && !x->locked[s->ranks.sum[at]])
            enqueue(x, s->ranks.sum[at], x->key[s->ranks.sum[at]] + (int64_t)g->bytes[e]);
        if (dcp_count_of(&s->ranks, e, to) != 1) continue;
        for (uint32_t k = g->net_start[e]; k < g->net_start[e + 1]; k++) {
            const uint32_t u = g->end[k];
            if (x->locked[u] || x->seen[u] == move || !dcp_has_room(s, u, to)) continue;
            x->seen[u] = move;
            const int64_t gain = dcp_gain_of(s, u, to);
            if (gain > x->key[u]) enqueue(x, u, gain);
        }
    }
}

static bool stop_at(refining *x, uint32_t index) {
    if (index % STRETCH == 0 && !x->stopped) x->stopped = fcp_stop_asked(x->s.in->stop);
    return x->stopped;
}

/* Queues all vertices that may move, by what they may gain. */
static void enqueue_all(refining *x) {
    const dcp_hypergraph *g = x->s.g;
    x->queued = 0;
    memcpy(x->locked, g->fixed, g->vertices);
    for (uint32_t v = 0; v < g->vertices && !stop_at(x, v); v++)
        if (!x->locked[v] && g->pin_start[v] < g->pin_start[v + 1]) enqueue(x, v, dcp_gain_bound(&x->s, v));
}

/* One pass; returns what it saved. */
static int64_t chain(refining *x) {
    dcp_gains *s = &x->s;
    int64_t sum = 0, most = 0;
    uint32_t kept = 0, idle = 0;
    x->moves = 0;
    enqueue_all(x);
    for (uint32_t i = 1; x->queued && idle < PATIENCE && s->looks < x->most_looks && !stop_at(x, i); i++) {
        const queued top = dequeue(x);
        if (x->locked[top.v] || top.gain != x->key[top.v]) continue;
        const dcp_target o = dcp_best_moves(s, top.v, false).near;
        idle++;
        if (o.to == FCP_NONE) continue;
        if (o.gain < top.gain) {
            enqueue(x, top.v, o.gain);
            continue;
        }
        const uint32_t from = s->g->part[top.v];
        x->locked[top.v] = 1;
        do_move(x, top.v, o.to);
        sum += o.gain;
        if (sum > most) {
            most = sum;
            kept = x->moves;
            idle = 0;
        }
        look_again(x, top.v, from);
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
    const dcp_target o = dcp_best_moves(&x->s, l->v, true).any;
    l->to = o.to;
    l->gain = x->leave[l->v] = o.to == FCP_NONE ? INT64_MIN : o.gain;
    x->left[l->v] = 1;
}

/* The vertex of a rank that is over a cap whose leaving costs least, and where it goes; v = FCP_NONE: there is none
 * that costs less than `budget`. What leaving gains is remembered from earlier searches, or else bounded; the few that
 * come first by that are looked at. */
static leaving cheapest(refining *x, uint32_t r, uint32_t keep, int64_t budget) {
    const dcp_hypergraph *g = x->s.g;
    const uint64_t pairs = x->s.load[r] > x->s.in->pair_cap ? x->s.load[r] - x->s.in->pair_cap : 0;
    const uint64_t tokens = x->s.held[r] > x->s.in->token_cap ? x->s.held[r] - x->s.in->token_cap : 0;
    leaving near[NEAR], best = {.v = FCP_NONE};
    uint32_t count = 0;
    for (uint32_t u = x->s.head[r]; u != FCP_NONE; u = x->s.next[u]) {
        if (u == keep || g->fixed[u] || (pairs && !g->work[u]) || (tokens && !g->tokens[u])) continue;
        const leaving l = {.v = u, .gain = x->left[u] ? x->leave[u] : dcp_gain_bound(&x->s, u),
                           .enough = g->work[u] >= pairs && g->tokens[u] >= tokens,
                           .size = pairs ? g->work[u] : g->tokens[u]};
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
    dcp_gains *s = &x->s;
    const uint32_t ranks = s->in->ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t pairs = dcp_share(s->load[r], s->in->pair_cap), tokens = dcp_share(s->held[r], s->in->token_cap);
        x->order[r] = (pairs > tokens ? pairs : tokens) << 32 | r;
    }
    if (ranks > ROOMY) sort_u64(x->order, x->other, ranks);
    s->roomy_count = ranks < ROOMY ? ranks : ROOMY;
    for (uint32_t i = 0; i < s->roomy_count; i++) s->roomy[i] = (uint32_t)x->order[i];
}

static int64_t make_room(refining *x) {
    const dcp_hypergraph *g = x->s.g;
    int64_t saved = 0;
    find_roomy(x);
    memset(x->left, 0, g->vertices);
    for (uint32_t v = 0; v < g->vertices; v++) {
        if (x->s.looks >= x->most_looks || stop_at(x, v)) break;
        if (!x->wish[v] || g->fixed[v] || dcp_gain_bound(&x->s, v) <= 0) continue;
        if (g->work[v] > x->s.in->pair_cap || g->tokens[v] > x->s.in->token_cap) continue;
        const dcp_target o = dcp_best_moves(&x->s, v, false).full;
        const int64_t gain = o.to != FCP_NONE && o.gain > 0 ? force(x, v, o.to, o.gain) : 0;
        if (gain > 0) wake_neighbours(x);
        x->wish[v] = 0;
        saved += gain;
    }
    return saved;
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static fcp_code open_refining(refining *x, arena *scratch) {
    const dcp_hypergraph *g = x->s.g;
    const size_t n = g->vertices + (size_t)1, ranks = x->s.in->ranks;
    x->order = ARENA_NEW(scratch, uint64_t, ranks);
    x->other = ARENA_NEW(scratch, uint64_t, ranks);
    x->queue = ARENA_NEW(scratch, queued, QUEUED * n);
    x->key = ARENA_NEW(scratch, int64_t, n);
    x->locked = ARENA_NEW(scratch, uint8_t, n);
    x->wish = ARENA_NEW(scratch, uint8_t, n);
    x->leave = ARENA_NEW(scratch, int64_t, n);
    x->left = ARENA_ZNEW(scratch, uint8_t, n);
    x->seen = ARENA_ZNEW(scratch, uint32_t, n);
    x->moved = ARENA_NEW(scratch, uint32_t, n + EVICTIONS);
    x->from = ARENA_NEW(scratch, uint32_t, n + EVICTIONS);
    if (!x->order || !x->other || !x->queue || !x->key || !x->locked || !x->wish || !x->leave || !x->left || !x->seen ||
        !x->moved || !x->from)
        return FCP_E_NO_MEMORY;
    x->most_queued = (uint32_t)(QUEUED * n);
    x->most_looks = LOOKS * (uint64_t)(g->net_start[g->nets] + g->vertices);
    memset(x->wish, 1, g->vertices * sizeof *x->wish);
    return dcp_open_gains(&x->s, scratch);
}

fcp_code dcp_refine(const dcp_input *in, dcp_hypergraph *g, uint64_t *load, uint64_t *held, arena *scratch) {
    refining x = {.s = {.in = in, .g = g, .load = load, .held = held}};
    fcp_code code = open_refining(&x, scratch);
    for (int pass = 0; pass < PASSES && !code; pass++) {
        int64_t saved = chain(&x);
        saved += make_room(&x);
        if (x.stopped) return FCP_E_INTERRUPTED;
        if (saved <= dcp_connectivity(&x.s) / ENOUGH || x.s.looks >= x.most_looks) break;
    }
    return code;
}
