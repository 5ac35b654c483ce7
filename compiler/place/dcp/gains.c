/* gains.c: what a move of a vertex saves, and what it changes.
 *
 * Requires: a hypergraph; load and held of each rank.
 * Gives: the gain of moves. Gains are exact; dcp_gain_bound is a bound of them that costs nothing to look up.
 * Cost: dcp_best_moves: the ranks of the vertex's nets. dcp_move: its nets; and the vertices of a net that begins or
 *     ceases to lie on one rank.
 * Memory: O(vertices + pins).
 * Units: bytes, where one between nodes counts `net` times.
 *
 * A move of vertex v from rank a to r saves the nets that v has to itself at a, and costs those that are not at r yet:
 *
 *     gain = alone[v] - (bytes of all its nets - bytes of those that are at r)
 *
 * and likewise between nodes. `alone` changes only for a vertex that is left alone at its rank or no longer is, which
 * the counts of the net tell, so it is kept and not searched.
 */
#include <string.h>

#include "compiler/place/dcp/gains.h"

/* --- counts ------------------------------------------------------------------------------------------------------- */

static void put_bin(dcp_pin_counts *c, uint32_t e, uint32_t i, uint32_t bin, uint32_t count, uint32_t sum) {
    c->bin[i] = bin;
    c->count[i] = count;
    c->sum[i] = sum;
    if (c->places[e] != FCP_NONE) c->place[c->places[e] + bin] = i;
}

/* Vertex v of net e comes to a bin. Returns the one that was alone there; FCP_NONE: there was none, or several. */
static uint32_t count_in(dcp_pin_counts *c, uint32_t e, uint32_t bin, uint32_t v) {
    const uint32_t i = dcp_find_bin(c, e, bin), end = c->first[e] + c->used[e];
    if (i == end) {
        put_bin(c, e, i, bin, 1, v);
        c->used[e]++;
        return FCP_NONE;
    }
    const uint32_t other = c->sum[i];
    c->sum[i] += v;
    return c->count[i]++ == 1 ? other : FCP_NONE;
}

/* Vertex v leaves it. Returns the one that is alone there now. */
static uint32_t count_out(dcp_pin_counts *c, uint32_t e, uint32_t bin, uint32_t v) {
    const uint32_t i = dcp_find_bin(c, e, bin), end = c->first[e] + c->used[e];
    c->sum[i] -= v;
    if (--c->count[i]) return c->count[i] == 1 ? c->sum[i] : FCP_NONE;
    c->used[e]--;
    if (i < end - 1) put_bin(c, e, i, c->bin[end - 1], c->count[end - 1], c->sum[end - 1]);
    if (c->places[e] != FCP_NONE) c->place[c->places[e] + bin] = FCP_NONE;
    return FCP_NONE;
}

static fcp_code open_counts(dcp_pin_counts *c, const dcp_hypergraph *g, uint32_t bins, arena *scratch) {
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
    c->sum = ARENA_NEW(scratch, uint32_t, slots + (size_t)1);
    c->place = ARENA_NEW(scratch, uint32_t, places + (size_t)1);
    if (!c->bin || !c->count || !c->sum || !c->place) return FCP_E_NO_MEMORY;
    memset(c->place, 0xff, places * sizeof *c->place);
    return FCP_OK;
}

/* --- gains -------------------------------------------------------------------------------------------------------- */

static bool is_better(const dcp_gains *s, const dcp_target *best, uint32_t r, int64_t gain) {
    if (best->to == FCP_NONE || gain != best->gain) return best->to == FCP_NONE || gain > best->gain;
    return s->load[r] < s->load[best->to] || (s->load[r] == s->load[best->to] && r < best->to);
}

/* Collects what ranks and nodes have of a vertex's nets; returns the bytes of all of these. */
static int64_t collect(dcp_gains *s, uint32_t v) {
    const dcp_hypergraph *g = s->g;
    const dcp_pin_counts *ranks = &s->ranks, *nodes = &s->nodes;
    int64_t all = 0, *have = s->have, *node_have = s->node_have;
    uint32_t count = 0, *found = s->found;
    for (uint32_t i = g->pin_start[v]; i < g->pin_start[v + 1]; i++) {
        const uint32_t e = g->pin[i], used = ranks->used[e], *bin = ranks->bin + ranks->first[e];
        const uint32_t *node = nodes->bin + nodes->first[e], node_used = s->far ? nodes->used[e] : 0;
        const int64_t bytes = (int64_t)g->bytes[e];
        all += bytes;
        s->looks += 4 + used;
        for (uint32_t k = 0; k < used; k++) {
            const uint32_t r = bin[k];
            const int64_t before = have[r];
            found[count] = r; /* stays if the rank is new; no net has 0 bytes */
            count += !before;
            have[r] = before + bytes;
        }
        for (uint32_t k = 0; k < node_used; k++) node_have[node[k]] += bytes;
    }
    s->found_count = count;
    return all;
}

dcp_targets dcp_best_moves(dcp_gains *s, uint32_t v, bool anywhere) {
    const uint32_t own = s->g->part[v], home = s->node[own];
    const int64_t all = collect(s, v);
    /* what a rank gains that has none of its nets: in its node, and, but for what the node has, in another */
    const int64_t same = s->alone[v] - s->node_alone[v] - all, other = s->alone[v] - all - s->far * all;
    dcp_targets out = {{FCP_NONE, 0}, {FCP_NONE, 0}, {FCP_NONE, 0}};
    for (uint32_t i = 0; i < s->found_count; i++) {
        const uint32_t r = s->found[i], node = s->node[r];
        const int64_t gain = s->have[r] + (node == home ? same : other + s->far * s->node_have[node]);
        if (r == own) continue;
        if (is_better(s, &out.full, r, gain)) out.full = (dcp_target){r, gain};
        if (is_better(s, &out.near, r, gain) && dcp_has_room(s, v, r)) out.near = (dcp_target){r, gain};
    }
    out.any = out.near;
    for (uint32_t i = 0; i < s->roomy_count && anywhere; i++) {
        const uint32_t r = s->roomy[i], node = s->node[r];
        if (r == own || s->have[r]) continue;
        const int64_t gain = node == home ? same : other + s->far * s->node_have[node];
        if (is_better(s, &out.any, r, gain) && dcp_has_room(s, v, r)) out.any = (dcp_target){r, gain};
    }
    for (uint32_t i = 0; i < s->found_count; i++) s->have[s->found[i]] = 0;
    memset(s->node_have, 0, s->nodes.bins * sizeof *s->node_have);
    return out;
}

int64_t dcp_gain_of(dcp_gains *s, uint32_t v, uint32_t r) {
    const dcp_hypergraph *g = s->g;
    const uint32_t node = s->node[r];
    const bool leaves = node != s->node[g->part[v]];
    int64_t gain = s->alone[v] - (leaves ? 0 : s->node_alone[v]);
    for (uint32_t i = g->pin_start[v]; i < g->pin_start[v + 1]; i++) {
        const uint32_t e = g->pin[i];
        s->looks += 2;
        if (!dcp_count_of(&s->ranks, e, r)) gain -= (int64_t)g->bytes[e];
        if (leaves && s->far && !dcp_count_of(&s->nodes, e, node)) gain -= s->far * (int64_t)g->bytes[e];
    }
    return gain;
}

int64_t dcp_connectivity(const dcp_gains *s) {
    int64_t sum = 0;
    for (uint32_t e = 0; e < s->g->nets; e++) {
        const int64_t ranks = (int64_t)s->ranks.used[e] - 1, nodes = (int64_t)s->nodes.used[e] - 1;
        sum += (int64_t)s->g->bytes[e] * (ranks + s->far * nodes);
    }
    return sum;
}

/* --- one move ----------------------------------------------------------------------------------------------------- */

static void link_vertex(dcp_gains *s, uint32_t v, uint32_t r) {
    s->next[v] = s->head[r];
    s->previous[v] = FCP_NONE;
    if (s->head[r] != FCP_NONE) s->previous[s->head[r]] = v;
    s->head[r] = v;
}

static void unlink_vertex(dcp_gains *s, uint32_t v, uint32_t r) {
    if (s->previous[v] == FCP_NONE) s->head[r] = s->next[v];
    else s->next[s->previous[v]] = s->next[v];
    if (s->next[v] != FCP_NONE) s->previous[s->next[v]] = s->previous[v];
}

/* A vertex is alone at its node with a net now, or no longer; of none, nothing changes. */
static void set_node_alone(dcp_gains *s, uint32_t v, int64_t bytes) {
    if (v == FCP_NONE) return;
    s->alone[v] += s->far * bytes;
    s->node_alone[v] += s->far * bytes;
}

/* Net e lies at one rank alone now, or no longer. */
static void set_inside(dcp_gains *s, uint32_t e, int64_t bytes) {
    for (uint32_t i = s->g->net_start[e]; i < s->g->net_start[e + 1]; i++) s->inside[s->g->end[i]] += bytes;
}

/* Vertex v of net e goes from rank to rank. */
static void move_in_net(dcp_gains *s, uint32_t v, uint32_t e, uint32_t from, uint32_t to) {
    const uint32_t a = s->node[from], b = s->node[to], used = s->ranks.used[e];
    const int64_t bytes = (int64_t)s->g->bytes[e];
    const uint32_t stays = count_out(&s->ranks, e, from, v), joined = count_in(&s->ranks, e, to, v);
    if (stays != FCP_NONE) s->alone[stays] += bytes;
    if (joined != FCP_NONE) s->alone[joined] -= bytes;
    if (dcp_count_of(&s->ranks, e, to) == 1) s->alone[v] += bytes;
    if (used == 1 && s->ranks.used[e] > 1) set_inside(s, e, -bytes);
    if (used > 1 && s->ranks.used[e] == 1) set_inside(s, e, bytes);
    if (a != b) {
        set_node_alone(s, count_out(&s->nodes, e, a, v), bytes);
        set_node_alone(s, count_in(&s->nodes, e, b, v), -bytes);
    }
    if (s->far && dcp_count_of(&s->nodes, e, b) == 1) set_node_alone(s, v, bytes);
}

void dcp_move(dcp_gains *s, uint32_t v, uint32_t to) {
    dcp_hypergraph *g = s->g;
    const uint32_t from = g->part[v];
    s->alone[v] = s->node_alone[v] = 0;
    for (uint32_t i = g->pin_start[v]; i < g->pin_start[v + 1]; i++) move_in_net(s, v, g->pin[i], from, to);
    unlink_vertex(s, v, from);
    link_vertex(s, v, to);
    s->load[from] -= g->work[v];
    s->held[from] -= g->tokens[v];
    s->load[to] += g->work[v];
    s->held[to] += g->tokens[v];
    g->part[v] = to;
}

/* --- the state of a placement ------------------------------------------------------------------------------------- */

static bool open_arrays(dcp_gains *s, uint32_t nodes, arena *scratch) {
    const size_t ranks = s->in->ranks, n = s->g->vertices + (size_t)1;
    s->node = ARENA_NEW(scratch, uint32_t, ranks);
    s->have = ARENA_ZNEW(scratch, int64_t, ranks);
    s->node_have = ARENA_ZNEW(scratch, int64_t, nodes);
    s->found = ARENA_NEW(scratch, uint32_t, ranks + 1);
    s->roomy = ARENA_NEW(scratch, uint32_t, ranks);
    s->head = ARENA_NEW(scratch, uint32_t, ranks);
    s->next = ARENA_NEW(scratch, uint32_t, n);
    s->previous = ARENA_NEW(scratch, uint32_t, n);
    s->alone = ARENA_ZNEW(scratch, int64_t, n);
    s->node_alone = ARENA_ZNEW(scratch, int64_t, n);
    s->inside = ARENA_ZNEW(scratch, int64_t, n);
    return s->node && s->have && s->node_have && s->found && s->roomy && s->head && s->next && s->previous &&
           s->alone && s->node_alone && s->inside;
}

/* Counts the vertices of a net, and which of them are alone. */
static void count_net(dcp_gains *s, uint32_t e) {
    const dcp_hypergraph *g = s->g;
    const int64_t bytes = (int64_t)g->bytes[e];
    for (uint32_t i = g->net_start[e]; i < g->net_start[e + 1]; i++) {
        count_in(&s->ranks, e, g->part[g->end[i]], g->end[i]);
        count_in(&s->nodes, e, s->node[g->part[g->end[i]]], g->end[i]);
    }
    for (uint32_t i = s->ranks.first[e]; i < s->ranks.first[e] + s->ranks.used[e]; i++)
        if (s->ranks.count[i] == 1) s->alone[s->ranks.sum[i]] += bytes;
    for (uint32_t i = s->nodes.first[e]; i < s->nodes.first[e] + s->nodes.used[e]; i++)
        if (s->nodes.count[i] == 1) set_node_alone(s, s->nodes.sum[i], bytes);
    if (s->ranks.used[e] == 1) set_inside(s, e, bytes);
}

fcp_code dcp_open_gains(dcp_gains *s, arena *scratch) {
    const dcp_hypergraph *g = s->g;
    const uint32_t ranks = s->in->ranks, nodes = (ranks + s->in->gpus - 1) / s->in->gpus;
    if (!open_arrays(s, nodes, scratch)) return FCP_E_NO_MEMORY;
    fcp_code code = open_counts(&s->ranks, g, ranks, scratch);
    if (!code) code = open_counts(&s->nodes, g, nodes, scratch);
    if (code) return code;
    s->far = nodes > 1 ? (int64_t)s->in->net - 1 : 0;
    for (uint32_t r = 0; r < ranks; r++) s->node[r] = r / s->in->gpus;
    memset(s->head, 0xff, ranks * sizeof *s->head);
    for (uint32_t v = g->vertices; v-- > 0;) link_vertex(s, v, g->part[v]);
    for (uint32_t e = 0; e < g->nets; e++) count_net(s, e);
    return FCP_OK;
}
