/* routes.c: trees of hops: once to every node over net, from a sender that has sent little.
 *
 * Requires: wants with distinct, ascending readers.
 * Gives: for every want a tree from its source to all its readers. Every reader is reached once. A node other than the
 *     source's is entered once over net; inside a node hops are local.
 * Cost: O(hops x holders of a want) at most; without relays O(hops + ranks).
 * Units: bytes.
 *
 * 1. Who receives for a node: of its readers the one whose wire is least busy in its busier direction, of equals the
 *    lowest. If that would have more than its share, any rank of the node, which passes it on inside. On rails the rank
 *    with the sender's own index, whether it reads or not.
 * 2. Who sends to it: the source. Or, where a want has more than RELAYED nodes to reach, whoever has it already, in any
 *    of the nodes: the holder for which (load + depth x bytes / 2) is least. Each hop that is relayed waits for the one
 *    before, so depth has its price. It also has a limit: halving the nodes takes some depth, and a holder that is
 *    DEEPER hops deeper than that sends nothing on.
 * 3. By which rank of its node the source sends: by itself, until it has sent or received as much as a rank of the
 *    busiest node must, if that node's ranks share what it carries; then by the rank that has least, after a local hop.
 *    Each sends over its own rail, where there are rails. Wants without results (keys) come last. The few ranks of a
 *    node that still have room then would have to send all of them. So wants with results leave some room at every rank
 *    for its part of what its node must send without results: SPARED.
 *
 * 4. Where results are joined on their way back, one hop leaves the source, so that all of them come by its end: to a
 *    reader in the source's own node, if there is one, else to the rank that would receive for one of the other nodes,
 *    whichever wire is least busy. From there on the tree is found as if that rank were the source.
 *
 * The load of a sender is what it has sent. Where results come back the same way it is that or what it has received,
 * whichever is more, each as a part of what the busiest node must carry of it.
 *
 * Wants whose results come back are first: they are few, heavy, and begin at their home. Then come those with most
 * nodes, so that the others can even out what those leave.
 */
#include "compiler/schedule/routes.h"

#include "compiler/base/sort.h"
#include "compiler/schedule/tuning.h"
#include "runtime/base/stop.h"

/* A node in which somebody has got it: one of the readers[first] to readers[end - 1], or the source. */
typedef struct holder {
    uint32_t rank, hop, depth; /* of those who have it, the one with least load; the hop that brings it there */
    uint32_t first, end;
    uint32_t entry, entered, deep; /* the rank by which it came into the node, with that hop, and its depth */
} holder;

typedef struct state {
    const routes_input *in;
    routes *out;
    uint32_t count;            /* hops of the want at hand, so far */
    /* Where its tree begins: at the source, or at the only rank that this sends to; by which hop, and how deep. */
    uint32_t root, root_hop, root_depth;
    route_hop *hops;           /* of the want at hand */
    holder *holders;           /* source and representatives, in the order in which they get it */
    uint32_t holder_count;
    uint32_t deepest;          /* of the want at hand: a holder as deep as this does not send on */
    /* What a rank should send and receive over net: its part of what the busiest node will. */
    uint64_t share[FCP_DIRECTION_COUNT];
    uint64_t (*plain)[FCP_DIRECTION_COUNT]; /* per node: what it must carry over net of wants without results */
} state;

/* What comes back over the next hop: what is joined, as long as that hop leaves the source. */
static uint64_t returned(const state *s, const route_want *w) {
    return w->joined && s->root == w->src ? w->joined : w->back;
}

static uint32_t add_hop(state *s, const route_want *w, uint32_t src, uint32_t dst, uint32_t parent, fcp_fabric fabric,
                        bool relay) {
    const uint64_t back = returned(s, w);
    s->hops[s->count] = (route_hop){src, dst, parent, (uint8_t)fabric, relay};
    s->out->sent[fabric][src] += w->bytes;
    s->out->received[fabric][dst] += w->bytes;
    s->out->sent[fabric][dst] += back;
    s->out->received[fabric][src] += back;
    return s->count++;
}

/* The load of a rank, once it has sent this want over net. */
static uint64_t load_if_sent(const state *s, uint32_t rank, const route_want *w) {
    uint64_t sent = s->out->sent[FCP_NET][rank] + w->bytes, received = s->out->received[FCP_NET][rank] + returned(s, w);
    if (!w->back || !s->share[FCP_RECV]) return sent;
    received = (uint64_t)((unsigned __int128)received * s->share[FCP_SEND] / s->share[FCP_RECV]);
    return received > sent ? received : sent;
}

/* What a rank's wire will have carried in its busier direction, once it has received this want. */
static uint64_t load_if_received(const state *s, uint32_t rank, const route_want *w) {
    uint64_t sent = s->out->sent[FCP_NET][rank] + returned(s, w), received = s->out->received[FCP_NET][rank] + w->bytes;
    return sent > received ? sent : received;
}

/* Which of the readers from i on, all in one node, receives for it; *out_end: the first that is not. On rails who sends
 * to it decides that: on_rail. */
static uint32_t representative(const state *s, const route_want *w, uint32_t i, uint32_t *out_end) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    uint32_t v = reader[i] / in->gpus, best = reader[i];
    for (*out_end = i; *out_end < w->count && reader[*out_end] / in->gpus == v; ++*out_end)
        if (load_if_received(s, reader[*out_end], w) < load_if_received(s, best, w)) best = reader[*out_end];
    if (in->spread && !in->rail && load_if_received(s, best, w) > s->share[FCP_RECV])
        for (uint32_t r = v * in->gpus; r < (v + 1) * in->gpus && r < in->ranks; r++)
            if (load_if_received(s, r, w) < load_if_received(s, best, w)) best = r;
    return best;
}

/* The rank that receives from a rank, where `to` would on a fat tree. */
static uint32_t on_rail(const routes_input *in, uint32_t from, uint32_t to) {
    return in->rail ? to - to % in->gpus + from % in->gpus : to;
}

/* Chooses who sends for a node that has got it: whoever came by it over net, or one of those whom that rank passes it
 * on to. */
static void choose_rank(const state *s, const route_want *w, holder *h) {
    const uint32_t *reader = s->in->readers + w->first;
    h->rank = h->entry;
    h->hop = h->entered;
    h->depth = h->deep;
    if (!s->in->relay) return;
    uint32_t local = h->hop == FCP_NONE ? 0 : h->hop + 1; /* the hops to the node's other readers lie here in order */
    for (uint32_t k = h->first; k < h->end; k++) {
        if (reader[k] == h->entry) continue;
        if (load_if_sent(s, reader[k], w) < load_if_sent(s, h->rank, w)) {
            h->rank = reader[k];
            h->hop = local;
            h->depth = h->deep + 1;
        }
        local++;
    }
}

/* The holder that sends to the next node. */
static holder *sender(const state *s, const route_want *w, bool relayed) {
    holder *best = &s->holders[0];
    if (!relayed) return best;
    uint64_t least = load_if_sent(s, best->rank, w) + best->depth * w->bytes / 2;
    for (holder *h = best + 1; h < s->holders + s->holder_count; h++) {
        uint64_t price = load_if_sent(s, h->rank, w) + h->depth * w->bytes / 2;
        if (h->depth >= s->deepest || price >= least) continue;
        best = h;
        least = price;
    }
    return best;
}

/* Has another rank of the root's node send for it, if that has its share; *from becomes that rank. */
static void leave_by(state *s, const route_want *w, holder *from) {
    const routes_input *in = s->in;
    uint32_t v = s->root / in->gpus, best = from->rank;
    const uint64_t spared = w->back ? s->plain[v][FCP_SEND] / in->gpus * SPARED_THIRDS / 3 : 0;
    if (s->out->sent[FCP_NET][best] + w->bytes + spared <= s->share[FCP_SEND] &&
        s->out->received[FCP_NET][best] + returned(s, w) <= s->share[FCP_RECV])
        return;
    for (uint32_t r = v * in->gpus; r < (v + 1) * in->gpus && r < in->ranks; r++)
        if (r != w->src && load_if_sent(s, r, w) < load_if_sent(s, best, w)) best = r;
    if (best == from->rank) return;
    from->rank = best;
    from->depth = s->root_depth + 1;
    for (uint32_t i = 0; i < s->count; i++) /* it may have it already */
        if (s->hops[i].dst == best) {
            from->hop = i;
            return;
        }
    from->hop = add_hop(s, w, s->root, best, s->root_hop, FCP_LOCAL, true);
}

/* Where results are joined: makes the only hop that leaves the source, over net perhaps by way of another rank of its
 * node. Its end is the root of the rest. */
static void choose_root(state *s, const route_want *w) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first, home = w->src / in->gpus;
    uint32_t near = FCP_NONE, far = FCP_NONE;
    bool reads = false;
    for (uint32_t i = 0, end; i < w->count; i = end) {
        const bool own = reader[i] / in->gpus == home;
        const uint32_t to = own ? reader[i] : representative(s, w, i, &end);
        uint32_t *best = own ? &near : &far;
        if (own) end = i + 1;
        if (*best == FCP_NONE || load_if_received(s, to, w) < load_if_received(s, *best, w)) *best = to;
    }
    if (near != FCP_NONE) {
        s->root_hop = add_hop(s, w, w->src, near, FCP_NONE, FCP_LOCAL, false);
        s->root = near;
        s->root_depth = 1;
        return;
    }
    holder from = {.rank = w->src, .hop = FCP_NONE};
    if (in->spread) leave_by(s, w, &from);
    far = on_rail(in, from.rank, far);
    for (uint32_t i = 0; i < w->count; i++) reads |= reader[i] == far;
    s->root_hop = add_hop(s, w, from.rank, far, from.hop, FCP_NET, !reads);
    s->root = far;
    s->root_depth = from.depth + 1;
    if (s->root_depth > s->out->depth) s->out->depth = s->root_depth;
}

/* The root's own node: its readers get it by local hops. */
static void begin_tree(state *s, const route_want *w) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    holder *source = &s->holders[0];
    s->holder_count = 1;
    *source = (holder){.entry = s->root, .entered = s->root_hop, .deep = s->root_depth};
    for (uint32_t i = 0; i < w->count; i++) {
        if (reader[i] / in->gpus != s->root / in->gpus) continue;
        if (source->end != i) source->first = i;
        source->end = i + 1;
        if (reader[i] != s->root) add_hop(s, w, s->root, reader[i], s->root_hop, FCP_LOCAL, false);
    }
    choose_rank(s, w, source);
}

/* nodes: how many it has to reach. */
static void find_tree(state *s, const route_want *w, uint32_t nodes) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    const bool relayed = in->relay && nodes > RELAYED_FROM;
    for (s->deepest = DEPTH_MARGIN; nodes >>= 1;) s->deepest++;
    s->count = 0;
    s->root = w->src;
    s->root_hop = FCP_NONE;
    s->root_depth = 0;
    if (w->joined && w->count) choose_root(s, w);
    begin_tree(s, w);
    const uint32_t home = s->root / in->gpus;
    for (uint32_t i = 0, end; i < w->count; i = end) {
        if (reader[i] / in->gpus == home) {
            end = i + 1;
            continue;
        }
        uint32_t to = representative(s, w, i, &end);
        holder *by = sender(s, w, relayed), from = *by;
        if (by == s->holders && in->spread) leave_by(s, w, &from);
        to = on_rail(in, from.rank, to);
        bool reads = false;
        for (uint32_t k = i; k < end; k++) reads |= reader[k] == to;
        uint32_t hop = add_hop(s, w, from.rank, to, from.hop, FCP_NET, !reads);
        if (from.depth + 1 > s->out->depth) s->out->depth = from.depth + 1;
        for (uint32_t k = i; k < end; k++)
            if (reader[k] != to) add_hop(s, w, to, reader[k], hop, FCP_LOCAL, false);
        choose_rank(s, w, by);
        s->holders[s->holder_count] = (holder){.first = i, .end = end, .entry = to, .entered = hop,
                                               .deep = from.depth + 1};
        choose_rank(s, w, &s->holders[s->holder_count++]);
    }
}

/* Nodes other than the source's that a want has to reach. Adds what they and the source's node send and receive over
 * net: node[v][0] and node[v][1]. */
static uint32_t nodes_of(const routes_input *in, const route_want *w, uint64_t (*node)[2]) {
    const uint32_t home = w->src / in->gpus;
    uint32_t nodes = 0, last = home;
    bool near = false;
    for (uint32_t i = 0; i < w->count; i++) {
        uint32_t v = in->readers[w->first + i] / in->gpus;
        near |= v == home;
        if (v == home || v == last) continue;
        node[v][0] += w->back;
        node[v][1] += w->bytes;
        last = v;
        nodes++;
    }
    if (!nodes) return 0;
    const bool joined = w->joined && !near; /* in another node: in the last one, as good as any */
    if (joined) {
        node[last][0] -= w->back - w->joined;
        node[last][0] += w->bytes * (in->relay ? 0 : nodes - 1);
        node[last][1] += w->back * (in->relay ? 1 : nodes - 1) * (nodes > 1);
    }
    const uint32_t sends = joined || (in->relay && nodes > RELAYED_FROM) ? 1 : nodes;
    node[home][0] += w->bytes * sends;
    node[home][1] += (joined ? w->joined : w->back) * sends;
    return nodes;
}

fcp_code routes_find(const routes_input *in, arena *memory, arena *scratch, routes *out) {
    uint32_t nodes = (in->ranks + in->gpus - 1) / in->gpus;
    state s = {.in = in, .out = out};
    uint64_t *order = ARENA_NEW(scratch, uint64_t, in->want_count + (size_t)1), all = 0;
    uint64_t *other = ARENA_NEW(scratch, uint64_t, in->want_count + (size_t)1);
    *out = (routes){.start = ARENA_NEW(memory, uint32_t, in->want_count + (size_t)1)};
    uint32_t *count = ARENA_NEW(scratch, uint32_t, in->want_count + (size_t)1), at = 0; /* nodes to reach; then hops */
    uint64_t(*node)[2] = arena_zalloc(scratch, nodes, sizeof *node, _Alignof(uint64_t)); /* of wants with results */
    s.plain = arena_zalloc(scratch, nodes, sizeof *s.plain, _Alignof(uint64_t));
    s.holders = ARENA_NEW(scratch, holder, nodes + (size_t)1);
    if (!order || !other || !out->start || !count || !node || !s.plain || !s.holders) return FCP_E_NO_MEMORY;
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
        out->sent[fabric] = ARENA_ZNEW(memory, uint64_t, in->ranks);
        out->received[fabric] = ARENA_ZNEW(memory, uint64_t, in->ranks);
        if (!out->sent[fabric] || !out->received[fabric]) return FCP_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < in->want_count; i++) {
        const route_want *w = &in->wants[i];
        uint32_t reached = count[i] = nodes_of(in, w, w->back ? node : s.plain);
        out->start[i] = (uint32_t)all;
        all += w->count + (in->rail || in->spread ? reached : 0);
        if (in->spread && reached) /* at the source, and at the root */
            all += (in->gpus - (uint64_t)1) * (w->joined ? 2 : 1);
        if (all > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
        order[i] = (uint64_t)(w->back ? 0 : UINT32_MAX - reached) << 32 | i;
    }
    for (uint32_t v = 0; v < 2 * nodes; v++) {
        const uint64_t part = (node[v / 2][v % 2] + s.plain[v / 2][v % 2]) / in->gpus;
        if (part > s.share[v % 2]) s.share[v % 2] = part;
    }
    sort_u64(order, other, in->want_count);
    route_hop *found = ARENA_NEW(scratch, route_hop, all + 1);
    if (!found) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < in->want_count; i++) {
        uint32_t w = (uint32_t)order[i];
        if (!(i & 255) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        s.hops = found + out->start[w];
        find_tree(&s, &in->wants[w], count[w]);
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
