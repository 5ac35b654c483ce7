/* routes.c: trees of hops: once to every node over net, from a sender that has sent little.
 *
 * Requires: wants with distinct, ascending readers.
 * Gives: for every want a tree from its source to all its readers. Every reader is reached once. A node other than the
 *     source's is entered once over net; inside a node hops are local.
 * Cost: O(hops x holders of a want) at most; without relays O(hops + ranks).
 * Units: bytes.
 *
 * 1. Who receives for a node: of its readers the one whose wire has carried least so far, of equals the lowest. On
 *    rails the rank with the source's own index, whether it reads or not.
 * 2. Who sends to it: the source. Or, where a want has more than RELAYED nodes to reach, whoever has it already: the
 *    holder for which (bytes sent + depth x bytes) is least. Each hop that is relayed waits for the one before, so
 *    depth has its price.
 * 3. By which rank of its node the source sends: by itself, until it has sent as much as a rank of the busiest node
 *    must, if that node's ranks share what it sends; then by the rank that has sent least, after a local hop. Not on
 *    rails, where that would leave the rail.
 *
 * Wants with most nodes come first, so that the others can even out what those leave.
 */
#include "compiler/schedule/routes.h"

#include "compiler/base/sort.h"
#include "runtime/base/stop.h"

enum { RELAYED = 2 };

typedef struct holder {
    uint32_t rank, hop, depth; /* hop: that brought it there */
} holder;

typedef struct state {
    const routes_input *in;
    routes *out;
    uint32_t count;            /* hops of the want at hand, so far */
    route_hop *hops;           /* of the want at hand */
    holder *holders;           /* source and representatives, in the order in which they get it */
    uint32_t holder_count;
    uint64_t share;            /* what a rank should send over net: its part of what the busiest node will send */
} state;

static uint32_t add_hop(state *s, const route_want *w, uint32_t src, uint32_t dst, uint32_t parent, fcp_fabric fabric,
                        bool relay) {
    s->hops[s->count] = (route_hop){src, dst, parent, (uint8_t)fabric, relay};
    s->out->sent[fabric][src] += w->bytes;
    s->out->received[fabric][dst] += w->bytes;
    s->out->sent[fabric][dst] += w->back;
    s->out->received[fabric][src] += w->back;
    return s->count++;
}

/* What a rank's wire has carried in its busier direction. */
static uint64_t load_of(const state *s, uint32_t rank) {
    uint64_t sent = s->out->sent[FCP_NET][rank], received = s->out->received[FCP_NET][rank];
    return sent > received ? sent : received;
}

/* Which of the readers from i on, all in one node, receives for it; *out_end: the first that is not. */
static uint32_t representative(const state *s, const route_want *w, uint32_t i, uint32_t *out_end) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    uint32_t v = reader[i] / in->gpus, best = reader[i];
    for (*out_end = i; *out_end < w->count && reader[*out_end] / in->gpus == v; ++*out_end)
        if (load_of(s, reader[*out_end]) < load_of(s, best)) best = reader[*out_end];
    return in->rail ? v * in->gpus + w->src % in->gpus : best;
}

/* The holder that sends to the next node. */
static const holder *sender(const state *s, uint64_t bytes, bool relayed) {
    const holder *best = &s->holders[0];
    if (!relayed) return best;
    for (const holder *h = best + 1; h < s->holders + s->holder_count; h++) {
        uint64_t price = s->out->sent[FCP_NET][h->rank] + h->depth * bytes;
        if (price < s->out->sent[FCP_NET][best->rank] + best->depth * bytes) best = h;
    }
    return best;
}

/* Has another rank of the source's node send for it, if that has sent its share; *from becomes that rank. */
static void leave_by(state *s, const route_want *w, holder *from) {
    const routes_input *in = s->in;
    uint32_t v = w->src / in->gpus, best = w->src;
    if (s->out->sent[FCP_NET][w->src] + w->bytes <= s->share) return;
    for (uint32_t r = v * in->gpus; r < (v + 1) * in->gpus && r < in->ranks; r++)
        if (s->out->sent[FCP_NET][r] < s->out->sent[FCP_NET][best]) best = r;
    if (best == w->src) return;
    for (uint32_t i = 0; i < s->count; i++) /* it may have it already */
        if (s->hops[i].dst == best) {
            *from = (holder){best, i, 1};
            return;
        }
    *from = (holder){best, add_hop(s, w, w->src, best, FCP_NONE, FCP_LOCAL, true), 1};
}

static void find_tree(state *s, const route_want *w, uint32_t nodes) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    uint32_t home = w->src / in->gpus;
    bool relayed = in->relay && nodes > RELAYED;
    s->count = 0;
    s->holders[0] = (holder){w->src, FCP_NONE, 0};
    s->holder_count = 1;
    for (uint32_t i = 0; i < w->count; i++)
        if (reader[i] / in->gpus == home) add_hop(s, w, w->src, reader[i], FCP_NONE, FCP_LOCAL, false);
    for (uint32_t i = 0, end; i < w->count; i = end) {
        if (reader[i] / in->gpus == home) {
            end = i + 1;
            continue;
        }
        uint32_t to = representative(s, w, i, &end);
        holder from = *sender(s, w->bytes, relayed);
        if (from.rank == w->src && in->spread && !in->rail) leave_by(s, w, &from);
        bool reads = false;
        for (uint32_t k = i; k < end; k++) reads |= reader[k] == to;
        uint32_t hop = add_hop(s, w, from.rank, to, from.hop, FCP_NET, !reads);
        if (from.depth + 1 > s->out->depth) s->out->depth = from.depth + 1;
        s->holders[s->holder_count++] = (holder){to, hop, from.depth + 1};
        for (uint32_t k = i; k < end; k++)
            if (reader[k] != to) add_hop(s, w, to, reader[k], hop, FCP_LOCAL, false);
    }
}

/* Nodes other than the source's that a want has to reach. */
static uint32_t nodes_of(const routes_input *in, const route_want *w) {
    uint32_t nodes = 0, last = w->src / in->gpus;
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t v = in->readers[w->first + i] / in->gpus;
        nodes += v != w->src / in->gpus && (v != last || last == w->src / in->gpus);
        last = v;
    }
    return nodes;
}

fcp_code routes_find(const routes_input *in, arena *memory, arena *scratch, routes *out) {
    uint32_t nodes = (in->ranks + in->gpus - 1) / in->gpus;
    state s = {.in = in, .out = out};
    uint64_t *order = ARENA_NEW(scratch, uint64_t, in->want_count + (size_t)1), all = 0;
    uint64_t *other = ARENA_NEW(scratch, uint64_t, in->want_count + (size_t)1);
    *out = (routes){.start = ARENA_NEW(memory, uint32_t, in->want_count + (size_t)1)};
    uint64_t *node_sends = ARENA_ZNEW(scratch, uint64_t, nodes);
    s.holders = ARENA_NEW(scratch, holder, nodes + (size_t)1);
    if (!order || !other || !out->start || !node_sends || !s.holders) return FCP_E_NO_MEMORY;
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
        out->sent[fabric] = ARENA_ZNEW(memory, uint64_t, in->ranks);
        out->received[fabric] = ARENA_ZNEW(memory, uint64_t, in->ranks);
        if (!out->sent[fabric] || !out->received[fabric]) return FCP_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < in->want_count; i++) {
        const route_want *w = &in->wants[i];
        uint32_t reached = nodes_of(in, w);
        out->start[i] = (uint32_t)all;
        all += w->count + (in->rail ? reached : 0) + (in->spread && reached ? in->gpus - 1 : 0);
        if (all > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
        order[i] = (uint64_t)(UINT32_MAX - reached) << 32 | i;
        node_sends[w->src / in->gpus] += w->bytes * (in->relay && reached > RELAYED ? 1 : reached);
    }
    for (uint32_t v = 0; v < nodes; v++)
        if (node_sends[v] / in->gpus > s.share) s.share = node_sends[v] / in->gpus;
    sort_u64(order, other, in->want_count);
    route_hop *found = ARENA_NEW(scratch, route_hop, all + 1);
    uint32_t *count = ARENA_NEW(scratch, uint32_t, in->want_count + (size_t)1), at = 0;
    if (!found || !count) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < in->want_count; i++) {
        uint32_t w = (uint32_t)order[i];
        if (!(i & 255) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        s.hops = found + out->start[w];
        find_tree(&s, &in->wants[w], UINT32_MAX - (uint32_t)(order[i] >> 32));
        count[w] = s.count;
    }
    out->hops = ARENA_NEW(memory, route_hop, all + 1);
    if (!out->hops) return FCP_E_NO_MEMORY;
    for (uint32_t w = 0; w < in->want_count; w++) {
        const route_hop *from = found + out->start[w];
        out->start[w] = at;
        for (uint32_t i = 0; i < count[w]; i++) out->hops[at++] = from[i];
    }
    out->start[in->want_count] = at;
    return FCP_OK;
}
