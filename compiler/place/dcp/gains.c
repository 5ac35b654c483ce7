/* gains.c: the gain of moving a vertex, kept up to date while vertices move (a gain cache).
 *
 * Requires: a hypergraph; load and held of each rank.
 * Gives: exact gains of moves, and a bound on them that costs nothing to look up (dcp_gain_bound).
 * Cost: of dcp_best_targets, the ranks of the vertex's nets. Of dcp_move, its nets, and the pins of a net that begins
 *     or ceases to lie on one rank.
 * Memory: O(vertices + pins).
 * Units: bytes, where one between nodes counts `net` times.
 * Source: the benefit and penalty of moves, as Mt-KaHyPar keeps them.
 *
 * What happens when vertex v moves to rank r:
 *   - The nets of which v was the only pin at its old rank no longer reach that rank. Their bytes are saved (the
 *     benefit).
 *   - The nets of v that have no pin at r yet now reach r. Their bytes are added (the penalty).
 * So
 *
 *     gain = benefit[v] - (bytes of all its nets - bytes of those that have a pin at r)
 *
 * and likewise between nodes. The benefit of a vertex changes only when it becomes the only pin of a net at its rank,
 * or ceases to be. The pin counts of the net tell that, so the benefit is kept. The penalty is computed when it is
 * needed.
 */
#include <string.h>

#include "compiler/place/dcp/gains.h"

/* --- counts ------------------------------------------------------------------------------------------------------- */

static void set_entry(dcp_pin_counts *c, uint32_t e, uint32_t i, uint32_t bin, uint32_t count, uint32_t sum) {
    c->bin[i] = bin;
    c->count[i] = count;
    c->sum[i] = sum;
    if (c->index_start[e] != FCP_NONE) c->index[c->index_start[e] + bin] = i;
}

/* Counts pin v of net e in a bin (a rank or a node) to which it comes. Returns the pin that was alone there before;
 * FCP_NONE: there was none, or several. */
static uint32_t count_in(dcp_pin_counts *c, uint32_t e, uint32_t bin, uint32_t v) {
    const uint32_t i = dcp_find_bin(c, e, bin), end = c->first[e] + c->used[e];
    if (i == end) {
        set_entry(c, e, i, bin, 1, v);
        c->used[e]++;
        return FCP_NONE;
    }
    const uint32_t other = c->sum[i];
    c->sum[i] += v;
    return c->count[i]++ == 1 ? other : FCP_NONE;
}

/* Takes pin v of net e from the count of a bin that it leaves. Returns the pin that is alone there now; FCP_NONE: there
 * is none, or several. */
static uint32_t count_out(dcp_pin_counts *c, uint32_t e, uint32_t bin, uint32_t v) {
    const uint32_t i = dcp_find_bin(c, e, bin), end = c->first[e] + c->used[e];
    c->sum[i] -= v;
    if (--c->count[i]) return c->count[i] == 1 ? c->sum[i] : FCP_NONE;
    c->used[e]--;
    if (i < end - 1) set_entry(c, e, i, c->bin[end - 1], c->count[end - 1], c->sum[end - 1]);
    if (c->index_start[e] != FCP_NONE) c->index[c->index_start[e] + bin] = FCP_NONE;
    return FCP_NONE;
}

static fcp_code open_counts(dcp_pin_counts *c, const dcp_hypergraph *g, uint32_t bins, arena *scratch) {
    uint32_t entries = 0, indexed = 0;
    c->bins = bins;
    c->first = ARENA_NEW(scratch, uint32_t, g->nets + (size_t)1);
    c->used = ARENA_ZNEW(scratch, uint32_t, g->nets + (size_t)1);
    c->index_start = ARENA_NEW(scratch, uint32_t, g->nets + (size_t)1);
    if (!c->first || !c->used || !c->index_start) return FCP_E_NO_MEMORY;
    for (uint32_t e = 0; e < g->nets; e++) {
        const uint32_t size = g->net_start[e + 1] - g->net_start[e] + 1; /* one more while a pin moves */
        c->first[e] = entries;
        c->index_start[e] = size >= bins ? indexed : FCP_NONE;
        entries += size < bins ? size : bins;
        indexed += size >= bins ? bins : 0;
    }
    c->first[g->nets] = entries;
    c->bin = ARENA_NEW(scratch, uint32_t, entries + (size_t)1);
    c->count = ARENA_NEW(scratch, uint32_t, entries + (size_t)1);
    c->sum = ARENA_NEW(scratch, uint32_t, entries + (size_t)1);
    c->index = ARENA_NEW(scratch, uint32_t, indexed + (size_t)1);
    if (!c->bin || !c->count || !c->sum || !c->index) return FCP_E_NO_MEMORY;
    memset(c->index, 0xff, indexed * sizeof *c->index);
    return FCP_OK;
}

/* --- gains -------------------------------------------------------------------------------------------------------- */

static bool is_better(const dcp_gains *s, const dcp_target *best, uint32_t r, int64_t gain) {
    if (best->to == FCP_NONE || gain != best->gain) return best->to == FCP_NONE || gain > best->gain;
    return s->load[r] < s->load[best->to] || (s->load[r] == s->load[best->to] && r < best->to);
}

/* Adds up, for each rank and node, the bytes of a vertex's nets that have a pin there. Returns the bytes of all its
 * nets. */
static int64_t collect_connected(dcp_gains *s, uint32_t v) {
    const dcp_hypergraph *g = s->g;
    const dcp_pin_counts *ranks = &s->ranks, *nodes = &s->nodes;
    int64_t all = 0, *connected = s->connected, *node_connected = s->node_connected;
    uint32_t count = 0, *adjacent = s->adjacent;
    for (uint32_t i = g->incident_start[v]; i < g->incident_start[v + 1]; i++) {
        const uint32_t e = g->incident[i], used = ranks->used[e], *bin = ranks->bin + ranks->first[e];
        const uint32_t *node = nodes->bin + nodes->first[e], node_used = s->far ? nodes->used[e] : 0;
        const int64_t bytes = (int64_t)g->bytes[e];
        all += bytes;
        s->looks += 4 + used;
        for (uint32_t k = 0; k < used; k++) {
            const uint32_t r = bin[k];
            const int64_t before = connected[r];
            adjacent[count] = r; /* stays if the rank is new; no net has 0 bytes */
            count += !before;
            connected[r] = before + bytes;
        }
        for (uint32_t k = 0; k < node_used; k++) node_connected[node[k]] += bytes;
    }
    s->adjacent_count = count;
    return all;
}

dcp_targets dcp_best_targets(dcp_gains *s, uint32_t v, bool anywhere) {
    const uint32_t own = s->g->part[v], home = s->node[own];
    const int64_t all = collect_connected(s, v);
    /* the gain of a rank without any of its nets: in its node; and in another one, without what that is connected to */
    const int64_t same = s->benefit[v] - s->node_benefit[v] - all, other = s->benefit[v] - all - s->far * all;
    dcp_targets out = {{FCP_NONE, 0}, {FCP_NONE, 0}, {FCP_NONE, 0}};
    for (uint32_t i = 0; i < s->adjacent_count; i++) {
        const uint32_t r = s->adjacent[i], node = s->node[r];
        const int64_t gain = s->connected[r] + (node == home ? same : other + s->far * s->node_connected[node]);
        if (r == own) continue;
        if (is_better(s, &out.best, r, gain)) out.best = (dcp_target){r, gain};
        if (is_better(s, &out.fitting, r, gain) && dcp_has_room(s, v, r)) out.fitting = (dcp_target){r, gain};
    }
    out.anywhere = out.fitting;
    for (uint32_t i = 0; i < s->roomy_count && anywhere; i++) {
        const uint32_t r = s->roomy[i], node = s->node[r];
        if (r == own || s->connected[r]) continue;
        const int64_t gain = node == home ? same : other + s->far * s->node_connected[node];
        if (is_better(s, &out.anywhere, r, gain) && dcp_has_room(s, v, r)) out.anywhere = (dcp_target){r, gain};
    }
    for (uint32_t i = 0; i < s->adjacent_count; i++) /* nodes without such ranks are 0 already */
        s->connected[s->adjacent[i]] = s->node_connected[s->node[s->adjacent[i]]] = 0;
    return out;
}

int64_t dcp_gain_of(dcp_gains *s, uint32_t v, uint32_t r) {
    const dcp_hypergraph *g = s->g;
    const uint32_t node = s->node[r];
    const bool leaves = node != s->node[g->part[v]];
    int64_t gain = s->benefit[v] - (leaves ? 0 : s->node_benefit[v]);
    for (uint32_t i = g->incident_start[v]; i < g->incident_start[v + 1]; i++) {
        const uint32_t e = g->incident[i];
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

/* Changes the benefit of vertex v: it has become the only pin of a net in its node (bytes > 0), or ceased to be (bytes
 * < 0). v = FCP_NONE: nothing changes. */
static void add_node_benefit(dcp_gains *s, uint32_t v, int64_t bytes) {
    if (v == FCP_NONE) return;
    s->benefit[v] += s->far * bytes;
    s->node_benefit[v] += s->far * bytes;
}

/* Notes for all pins of net e that it now lies on one rank entirely (bytes > 0), or no longer does (bytes < 0). */
static void add_internal(dcp_gains *s, uint32_t e, int64_t bytes) {
    for (uint32_t i = s->g->net_start[e]; i < s->g->net_start[e + 1]; i++) s->internal[s->g->pin[i]] += bytes;
}

/* Brings net e up to date when its pin v moves from one rank to another. */
static void move_in_net(dcp_gains *s, uint32_t v, uint32_t e, uint32_t from, uint32_t to) {
    const uint32_t a = s->node[from], b = s->node[to], used = s->ranks.used[e];
    const int64_t bytes = (int64_t)s->g->bytes[e];
    const uint32_t stays = count_out(&s->ranks, e, from, v), joined = count_in(&s->ranks, e, to, v);
    if (stays != FCP_NONE) s->benefit[stays] += bytes;
    if (joined != FCP_NONE) s->benefit[joined] -= bytes;
    if (dcp_count_of(&s->ranks, e, to) == 1) s->benefit[v] += bytes;
    if (used == 1 && s->ranks.used[e] > 1) add_internal(s, e, -bytes);
    if (used > 1 && s->ranks.used[e] == 1) add_internal(s, e, bytes);
    if (a != b) {
        add_node_benefit(s, count_out(&s->nodes, e, a, v), bytes);
        add_node_benefit(s, count_in(&s->nodes, e, b, v), -bytes);
    }
    if (s->far && dcp_count_of(&s->nodes, e, b) == 1) add_node_benefit(s, v, bytes);
}

void dcp_move(dcp_gains *s, uint32_t v, uint32_t to) {
    dcp_hypergraph *g = s->g;
    const uint32_t from = g->part[v];
    s->benefit[v] = s->node_benefit[v] = 0;
    for (uint32_t i = g->incident_start[v]; i < g->incident_start[v + 1]; i++)
        move_in_net(s, v, g->incident[i], from, to);
    unlink_vertex(s, v, from);
    link_vertex(s, v, to);
    s->load[from] -= g->work[v];
    s->held[from] -= g->tokens[v];
    s->load[to] += g->work[v];
    s->held[to] += g->tokens[v];
    g->part[v] = to;
}

/* --- the cache of a partition ------------------------------------------------------------------------------------- */

static bool open_arrays(dcp_gains *s, uint32_t nodes, arena *scratch) {
    const size_t ranks = s->in->ranks, n = s->g->vertices + (size_t)1;
    s->node = ARENA_NEW(scratch, uint32_t, ranks);
    s->connected = ARENA_ZNEW(scratch, int64_t, ranks);
    s->node_connected = ARENA_ZNEW(scratch, int64_t, nodes);
    s->adjacent = ARENA_NEW(scratch, uint32_t, ranks + 1);
    s->roomy = ARENA_NEW(scratch, uint32_t, ranks);
    s->head = ARENA_NEW(scratch, uint32_t, ranks);
    s->next = ARENA_NEW(scratch, uint32_t, n);
    s->previous = ARENA_NEW(scratch, uint32_t, n);
    s->benefit = ARENA_ZNEW(scratch, int64_t, n);
    s->node_benefit = ARENA_ZNEW(scratch, int64_t, n);
    s->internal = ARENA_ZNEW(scratch, int64_t, n);
    return s->node && s->connected && s->node_connected && s->adjacent && s->roomy && s->head && s->next &&
           s->previous && s->benefit && s->node_benefit && s->internal;
}

/* Counts the pins of a net, and adds its bytes to the benefit of each pin that is the only one at its rank. */
static void count_net(dcp_gains *s, uint32_t e) {
    const dcp_hypergraph *g = s->g;
    const int64_t bytes = (int64_t)g->bytes[e];
    for (uint32_t i = g->net_start[e]; i < g->net_start[e + 1]; i++) {
        count_in(&s->ranks, e, g->part[g->pin[i]], g->pin[i]);
        count_in(&s->nodes, e, s->node[g->part[g->pin[i]]], g->pin[i]);
    }
    for (uint32_t i = s->ranks.first[e]; i < s->ranks.first[e] + s->ranks.used[e]; i++)
        if (s->ranks.count[i] == 1) s->benefit[s->ranks.sum[i]] += bytes;
    for (uint32_t i = s->nodes.first[e]; i < s->nodes.first[e] + s->nodes.used[e]; i++)
        if (s->nodes.count[i] == 1) add_node_benefit(s, s->nodes.sum[i], bytes);
    if (s->ranks.used[e] == 1) add_internal(s, e, bytes);
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
