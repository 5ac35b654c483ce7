/* refine.c: refinement: moves vertices to save bytes, under the caps.
 *
 * Requires: a hypergraph; load and held of each rank.
 * Gives: a better part for each vertex. No rank is brought over a cap.
 * Cost: a few passes; DCP_LOOKS x (vertices + pins) in all. Memory: O(vertices + pins).
 * Units: bytes, where one between nodes counts `net` times.
 * Source: Fiduccia and Mattheyses, "A linear-time heuristic for improving network partitions" (1982); ejection chains
 *     (Glover, 1996).
 *
 * Two kinds of passes alternate until neither helps.
 *
 * An FM pass:
 *   1. Make the move with the largest gain, even if it costs bytes.
 *   2. Repeat that with another vertex, each vertex once.
 *   3. Undo the last moves, back to where the sum of gains was largest.
 * So a cut can slide along a sequence, though its first steps cost bytes.
 *
 * An ejection pass, for each move that would save bytes but goes to a rank that is full:
 *   1. Make the move.
 *   2. Eject other vertices from that rank until it is within its caps, those first whose leaving costs least. Each
 *      goes to whichever rank has room.
 *   3. If the ejections cost more than the move saved, undo all of it.
 * On the coarsest hypergraph vertices are whole sequences, which cost nothing to move. If an ejected vertex goes to
 * where the first one came from, the two are swapped.
 *
 * Speed. To find the best move of a vertex takes a look at each rank of each of its nets. Most vertices are in the
 * middle of a sequence and have no good move. So both passes take vertices in the order of the bound on their gain
 * (gains.h), and look closer only at the first ones.
 */
#include <string.h>

#include "compiler/base/heap.h"
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "compiler/place/dcp/gains.h"

enum { STRETCH = 256 }; /* vertices between two questions whether to stop */

typedef struct refining {
    dcp_gains s;
    heap_entry *queue; /* vertices, the largest gain first: its key is INT64_MAX minus the gain */
    uint32_t queued, most_queued;
    int64_t *gain;     /* per vertex: what it may gain, by its last entry in the queue */
    uint8_t *locked;   /* per vertex: it was moved in this FM pass, or is fixed */
    uint8_t *untried;  /* per vertex: no move of it to a full rank has failed since its neighbours moved */
    int64_t *ejected;  /* per vertex: its gain when it was last looked at as one to eject */
    uint8_t *is_known; /* per vertex: `ejected` holds, because its neighbours have not moved since */
    bool stopped;
    uint32_t *seen, search;  /* per vertex: the last move after which it was looked at */
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

/* Marks the neighbours of the vertices that were moved. Their gains have changed, and a move of theirs to a full rank
 * may now succeed. */
static void mark_neighbours(refining *x) {
    const dcp_hypergraph *g = x->s.g;
    for (uint32_t m = 0; m < x->moves; m++)
        for (uint32_t i = g->incident_start[x->moved[m]]; i < g->incident_start[x->moved[m] + 1]; i++) {
            const uint32_t first = g->net_start[g->incident[i]], end = g->net_start[g->incident[i] + 1];
            for (uint32_t k = first; k < end && end - first <= DCP_WIDE; k++) {
                x->untried[g->pin[k]] = 1;
                x->is_known[g->pin[k]] = 0;
            }
        }
}

static void undo_to(refining *x, uint32_t moves) {
    while (x->moves > moves) {
        x->moves--;
        dcp_move(&x->s, x->moved[x->moves], x->from[x->moves]);
    }
}

/* --- FM passes ---------------------------------------------------------------------------------------------------- */

/* Puts a vertex into the queue. If the queue is full, the vertex is left to the next pass. */
static void enqueue(refining *x, uint32_t v, int64_t gain) {
    if (x->queued == x->most_queued) return;
    x->gain[v] = gain;
    heap_push(x->queue, x->queued++, (heap_entry){(uint64_t)INT64_MAX - (uint64_t)gain, v});
}

/* Takes the vertex with the largest gain from the queue. *gain: the gain that it was queued with. */
static uint32_t dequeue(refining *x, int64_t *gain) {
    const heap_entry top = x->queue[0];
    x->queued--;
    heap_replace(x->queue, x->queued, x->queue[x->queued]);
    *gain = (int64_t)((uint64_t)INT64_MAX - top.key);
    return top.value;
}

/* Vertex v has moved away from rank `from`. Enqueues the vertices whose gain has grown by that once more: a pin that is
 * now the only one at `from`, and the pins of nets that have their first pin at v's new rank. A gain that has become
 * smaller is noticed when the vertex is taken from the queue. */
static void enqueue_neighbours(refining *x, uint32_t v, uint32_t from) {
    dcp_gains *s = &x->s;
    const dcp_hypergraph *g = s->g;
    const uint32_t to = g->part[v], move = ++x->search;
    for (uint32_t i = g->incident_start[v]; i < g->incident_start[v + 1]; i++) {
        const uint32_t e = g->incident[i], at = dcp_find_bin(&s->ranks, e, from);
        if (g->net_start[e + 1] - g->net_start[e] > DCP_WIDE) continue;
        if (at < s->ranks.first[e] + s->ranks.used[e] && s->ranks.count[at] == 1 && !x->locked[s->ranks.sum[at]])
            enqueue(x, s->ranks.sum[at], x->gain[s->ranks.sum[at]] + (int64_t)g->bytes[e]);
        if (dcp_count_of(&s->ranks, e, to) != 1) continue;
        for (uint32_t k = g->net_start[e]; k < g->net_start[e + 1]; k++) {
            const uint32_t u = g->pin[k];
            if (x->locked[u] || x->seen[u] == move || !dcp_has_room(s, u, to)) continue;
            x->seen[u] = move;
            const int64_t gain = dcp_gain_of(s, u, to);
            if (gain > x->gain[u]) enqueue(x, u, gain);
        }
    }
}

static bool stop_at(refining *x, uint32_t index) {
    if (index % STRETCH == 0 && !x->stopped) x->stopped = fcp_stop_asked(x->s.in->stop);
    return x->stopped;
}

/* Enqueues all vertices that may move, by the bound on their gain. */
static void enqueue_all(refining *x) {
    const dcp_hypergraph *g = x->s.g;
    x->queued = 0;
    memcpy(x->locked, g->fixed, g->vertices);
    for (uint32_t v = 0; v < g->vertices && !stop_at(x, v); v++)
        if (!x->locked[v] && g->incident_start[v] < g->incident_start[v + 1]) enqueue(x, v, dcp_gain_bound(&x->s, v));
}

/* Makes one FM pass. Returns the bytes that it saved. */
static int64_t fm_pass(refining *x) {
    dcp_gains *s = &x->s;
    int64_t sum = 0, most = 0, gain;
    uint32_t kept = 0, idle = 0;
    x->moves = 0;
    enqueue_all(x);
    for (uint32_t i = 1; x->queued && idle < DCP_PATIENCE && s->looks < x->most_looks && !stop_at(x, i); i++) {
        const uint32_t v = dequeue(x, &gain);
        if (x->locked[v] || gain != x->gain[v]) continue;
        const dcp_target o = dcp_best_targets(s, v, false).fitting;
        idle++;
        if (o.to == FCP_NONE) continue;
        if (o.gain < gain) {
            enqueue(x, v, o.gain);
            continue;
        }
        const uint32_t from = s->g->part[v];
        x->locked[v] = 1;
        do_move(x, v, o.to);
        sum += o.gain;
        if (sum > most) {
            most = sum;
            kept = x->moves;
            idle = 0;
        }
        enqueue_neighbours(x, v, from);
    }
    undo_to(x, kept);
    mark_neighbours(x);
    return most;
}

/* --- ejection ----------------------------------------------------------------------------------------------------- */

/* A vertex that could leave a rank that is over a cap. */
typedef struct ejection {
    uint32_t v, to;
    int64_t gain;
    bool enough;   /* without it the rank is within its caps */
    uint64_t size; /* its pairs or tokens, whichever the rank has too many of */
} ejection;

/* Which of two ejections comes first? The one that costs fewer bytes. If they cost the same: one that is enough before
 * one that is not; of two that are enough, the smaller; of two that are not, the larger. */
static bool is_ejected_before(const ejection *a, const ejection *b) {
    if (a->gain != b->gain) return a->gain > b->gain;
    if (a->enough != b->enough) return a->enough;
    if (a->size != b->size) return (a->size < b->size) == a->enough;
    return a->v < b->v;
}

/* Finds the rank to which a vertex could go, and the gain of that. INT64_MIN: no rank has room for it. */
static void find_target(refining *x, ejection *l) {
    const dcp_target o = dcp_best_targets(&x->s, l->v, true).anywhere;
    l->to = o.to;
    l->gain = x->ejected[l->v] = o.to == FCP_NONE ? INT64_MIN : o.gain;
    x->is_known[l->v] = 1;
}

/* Chooses which vertex leaves the overfull rank r, and for which rank: the one whose leaving costs fewest bytes. `keep`
 * has just come to r and stays. If every choice would cost `budget` bytes or more, v is FCP_NONE.
 *   1. Each vertex of r gets a cost. It is exact if an earlier search found it and the vertex's neighbours have not
 *      moved since. Otherwise it is a bound.
 *   2. For the DCP_CANDIDATES vertices with the lowest costs, a target is sought, which gives the exact cost. */
static ejection cheapest_ejection(refining *x, uint32_t r, uint32_t keep, int64_t budget) {
    const dcp_hypergraph *g = x->s.g;
    const uint64_t pairs = sub_sat(x->s.load[r], x->s.in->pair_cap), tokens = sub_sat(x->s.held[r], x->s.in->token_cap);
    ejection near[DCP_CANDIDATES], best = {.v = FCP_NONE};
    uint32_t count = 0;
    for (uint32_t u = x->s.head[r]; u != FCP_NONE; u = x->s.next[u]) {
        if (u == keep || g->fixed[u] || (pairs && !g->work[u]) || (tokens && !g->tokens[u])) continue;
        const ejection l = {.v = u,
                            .gain = x->is_known[u] ? x->ejected[u] : dcp_gain_bound(&x->s, u),
                            .enough = g->work[u] >= pairs && g->tokens[u] >= tokens,
                            .size = pairs ? g->work[u] : g->tokens[u]};
        if (l.gain == INT64_MIN || -l.gain >= budget) continue;
        if (count == DCP_CANDIDATES && !is_ejected_before(&l, &near[DCP_CANDIDATES - 1])) continue;
        uint32_t i = count < DCP_CANDIDATES ? count++ : DCP_CANDIDATES - 1;
        for (; i > 0 && is_ejected_before(&l, &near[i - 1]); i--) near[i] = near[i - 1];
        near[i] = l;
    }
    for (uint32_t i = 0; i < count; i++) {
        find_target(x, &near[i]);
        if (near[i].gain == INT64_MIN || -near[i].gain >= budget) continue;
        if (best.v == FCP_NONE || is_ejected_before(&near[i], &best)) best = near[i];
    }
    return best;
}

/* Moves v to a full rank and ejects other vertices there. Returns the bytes that this saves in all; 0: it was
 * undone. */
static int64_t move_and_eject(refining *x, uint32_t v, uint32_t to, int64_t gain) {
    x->moves = 0;
    do_move(x, v, to);
    for (uint32_t i = 0; is_over(x, to); i++) {
        const ejection l = i < DCP_EVICTIONS ? cheapest_ejection(x, to, v, gain) : (ejection){.v = FCP_NONE};
        if (l.v == FCP_NONE) {
            undo_to(x, 0);
            return 0;
        }
        do_move(x, l.v, l.to);
        gain += l.gain;
    }
    return gain;
}

/* Lists the ranks that are least full. */
static void find_roomy(refining *x) {
    dcp_gains *s = &x->s;
    const uint32_t ranks = s->in->ranks;
    for (uint32_t r = 0; r < ranks; r++) {
        const uint64_t pairs = dcp_share(s->load[r], s->in->pair_cap), tokens = dcp_share(s->held[r], s->in->token_cap);
        x->order[r] = (pairs > tokens ? pairs : tokens) << 32 | r;
    }
    if (ranks > DCP_ROOMY) sort_u64(x->order, x->other, ranks);
    s->roomy_count = ranks < DCP_ROOMY ? ranks : DCP_ROOMY;
    for (uint32_t i = 0; i < s->roomy_count; i++) s->roomy[i] = (uint32_t)x->order[i];
}

static int64_t ejection_pass(refining *x) {
    const dcp_hypergraph *g = x->s.g;
    int64_t saved = 0;
    find_roomy(x);
    memset(x->is_known, 0, g->vertices);
    for (uint32_t v = 0; v < g->vertices; v++) {
        if (x->s.looks >= x->most_looks || stop_at(x, v)) break;
        if (!x->untried[v] || g->fixed[v] || dcp_gain_bound(&x->s, v) <= 0) continue;
        if (g->work[v] > x->s.in->pair_cap || g->tokens[v] > x->s.in->token_cap) continue;
        const dcp_target o = dcp_best_targets(&x->s, v, false).best;
        const int64_t gain = o.to != FCP_NONE && o.gain > 0 ? move_and_eject(x, v, o.to, o.gain) : 0;
        if (gain > 0) mark_neighbours(x);
        x->untried[v] = 0;
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
    x->queue = ARENA_NEW(scratch, heap_entry, DCP_QUEUED * n);
    x->gain = ARENA_NEW(scratch, int64_t, n);
    x->locked = ARENA_NEW(scratch, uint8_t, n);
    x->untried = ARENA_NEW(scratch, uint8_t, n);
    x->ejected = ARENA_NEW(scratch, int64_t, n);
    x->is_known = ARENA_ZNEW(scratch, uint8_t, n);
    x->seen = ARENA_ZNEW(scratch, uint32_t, n);
    x->moved = ARENA_NEW(scratch, uint32_t, n + DCP_EVICTIONS);
    x->from = ARENA_NEW(scratch, uint32_t, n + DCP_EVICTIONS);
    if (!x->order || !x->other || !x->queue || !x->gain || !x->locked || !x->untried || !x->ejected || !x->is_known ||
        !x->seen || !x->moved || !x->from)
        return FCP_E_NO_MEMORY;
    x->most_queued = (uint32_t)(DCP_QUEUED * n);
    x->most_looks = DCP_LOOKS * (uint64_t)(g->net_start[g->nets] + g->vertices);
    memset(x->untried, 1, g->vertices * sizeof *x->untried);
    return dcp_open_gains(&x->s, scratch);
}

fcp_code dcp_refine(const dcp_input *in, dcp_hypergraph *g, uint64_t *load, uint64_t *held, arena *scratch) {
    refining x = {.s = {.in = in, .g = g, .load = load, .held = held}};
    fcp_code code = open_refining(&x, scratch);
    for (int pass = 0; pass < DCP_PASSES && !code; pass++) {
        int64_t saved = fm_pass(&x);
        saved += ejection_pass(&x);
        if (x.stopped) return FCP_E_INTERRUPTED;
        if (saved <= dcp_connectivity(&x.s) / DCP_ENOUGH || x.s.looks >= x.most_looks) break;
    }
    return code;
}
