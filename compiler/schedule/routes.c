/* routes.c: finds a tree of hops for each block, so that no rank has to send much more over net than others.
 *
 * Requires: wants with distinct, ascending readers. (A want is a block and the ranks that read it.)
 * Gives: for every want a tree from its source to all its readers. Every reader is reached once. A node other than the
 *     source's is entered once over net; inside a node hops are local.
 * Cost: O(hops x nodes of a want) at most.
 * Units: bytes.
 *
 * Wants choose their trees one after another, and see what the earlier ones load on each rank. The order:
 * 1. Wants whose results come back: they are few and heavy, and must begin at their home.
 * 2. The other wants. Those with most nodes to reach come first, so that the smaller ones can even out the load.
 *
 * The *load* of a sender is the bytes that it has sent over net. If the want's results come back to the sender, what it
 * has received counts, too: in proportion to its share (see question 3), and the larger of the two is the load. For
 * example, with a share of 4 GB to send and 2 GB to receive, 1 GB received counts like 2 GB sent.
 *
 * For each node that a want must reach, three questions are answered:
 *
 * 1. Who receives for the node? The reader with least bytes on its wire, where the busier direction counts. If even
 *    that wire would then have more than its share, the least busy rank of the node receives instead and passes the
 *    block on inside the node, even if it is no reader. On rails it is the rank with the sender's index in its node.
 * 2. Who sends? The source, or a rank of another node that has got the block: whoever has the least load + depth x
 *    bytes / 2, where depth is how many hops the block took to come there. Depth has this price because every hop waits
 *    for the one before it. A rank that is DEPTH_MARGIN hops or more deeper than a binary tree over the nodes sends
 *    nothing on.
 * 3. If the source sends: by which rank of its node does the block leave? By the source itself, until that has its
 *    *share*: what the ranks of the busiest node must send or receive on average. After that it leaves by the rank of
 *    the node with least load, after a local hop. Keys choose last, and would find room at a few ranks only. So blocks
 *    with results leave a part of the source's share free for them (SPARED_THIRDS).
 *
 * Where the results of a want are merged on their way back, they must all meet at one rank, the *root*. So the tree
 * begins with a single hop from the source to the root, and grows from there as if the root were the source. The root
 * is a reader in the source's node if there is one, otherwise a rank that would receive for another node. Of several
 * such ranks it is the one whose wire is least busy.
 */
#include "compiler/schedule/routes.h"

#include "compiler/base/sort.h"
#include "compiler/schedule/schedule_tuning.h"
#include "runtime/base/stop.h"

/* A node in which some rank has got the block. */
typedef struct holder {
    uint32_t rank, depth; /* of the ranks that have it, the one with least load; hops from the source to it */
    uint32_t first, end;  /* the node's readers, without the source: readers[first] to readers[end - 1] */
    uint32_t entry, deep; /* the rank by which the block came into the node, and its depth */
} holder;

typedef struct state {
    const routes_input *in;
    routes *out;
    leg *hops;      /* of the want at hand */
    uint32_t count; /* how many it has so far */
    uint32_t root, root_depth;
    holder *holders; /* the root's node, then the others in the order in which they get the block */
    uint32_t holder_count;
    uint32_t deepest; /* of the want at hand: a holder as deep as this does not send on */
    /* What a rank should send and receive over net: its part of what the busiest node will. */
    uint64_t share[FCP_DIRECTION_COUNT];
    uint64_t (*plain)[FCP_DIRECTION_COUNT]; /* per node: what it must carry over net of wants without results */
} state;

/* Returns the bytes that come back over the next hop. Results are merged at the root, so the hop between the root and
 * the source carries less. */
static uint64_t returned(const state *s, const route_want *w) {
    return w->joined && s->root == w->src ? w->joined : w->back;
}

static void add_hop(state *s, const route_want *w, uint32_t src, uint32_t dst) {
    const int fabric = src / s->in->gpus == dst / s->in->gpus ? FCP_LOCAL : FCP_NET;
    const uint64_t back = returned(s, w);
    s->hops[s->count++] = (leg){src, dst};
    s->out->sent[fabric][src] += w->bytes;
    s->out->received[fabric][dst] += w->bytes;
    s->out->sent[fabric][dst] += back;
    s->out->received[fabric][src] += back;
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

/* Chooses the rank that receives for the node of reader i (question 1 of the head comment). *out_end: the first reader
 * behind it that is in another node. */
static uint32_t choose_receiver(const state *s, const route_want *w, uint32_t i, uint32_t *out_end) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    uint32_t v = reader[i] / in->gpus, best = reader[i];
    for (*out_end = i; *out_end < w->count && reader[*out_end] / in->gpus == v; ++*out_end)
        if (load_if_received(s, reader[*out_end], w) < load_if_received(s, best, w)) best = reader[*out_end];
    if (!in->rail && load_if_received(s, best, w) > s->share[FCP_RECV])
        for (uint32_t r = v * in->gpus; r < (v + 1) * in->gpus && r < in->ranks; r++)
            if (load_if_received(s, r, w) < load_if_received(s, best, w)) best = r;
    return best;
}

/* The rank of `to`'s node that receives from a rank: on rails the one with the same index, else `to`. */
static uint32_t on_rail(const routes_input *in, uint32_t from, uint32_t to) {
    return in->rail ? to - to % in->gpus + from % in->gpus : to;
}

/* Chooses who sends for a node that has got the block: the rank by which the block came into the node, or a reader to
 * which that rank passed it on. */
static void choose_rank(const state *s, const route_want *w, holder *h) {
    const uint32_t *reader = s->in->readers + w->first;
    h->rank = h->entry;
    h->depth = h->deep;
    for (uint32_t k = h->first; k < h->end; k++) {
        if (load_if_sent(s, reader[k], w) >= load_if_sent(s, h->rank, w)) continue;
        h->rank = reader[k];
        h->depth = h->deep + 1;
    }
}

/* May the block go over net from a rank that many hops from the source, and on inside the next node? */
static bool may_send(const state *s, uint32_t depth) { return !s->in->most_hops || depth + 2 <= s->in->most_hops; }

/* The holder that sends to the next node (question 2). */
static holder *choose_sender(const state *s, const route_want *w) {
    holder *best = &s->holders[0];
    uint64_t least = load_if_sent(s, best->rank, w) + best->depth * w->bytes / 2;
    for (holder *h = best + 1; h < s->holders + s->holder_count; h++) {
        uint64_t price = load_if_sent(s, h->rank, w) + h->depth * w->bytes / 2;
        if (h->depth >= s->deepest || !may_send(s, h->depth) || price >= least) continue;
        best = h;
        least = price;
    }
    return best;
}

/* Chooses by which rank the block leaves the root's node (question 3 of the head comment). If `from` has had its share,
 * *from becomes another rank of the node, which gets the block by a local hop. more: hops that must be left after those
 * to the next node and inside it. */
static void leave_by(state *s, const route_want *w, uint32_t more, holder *from) {
    const routes_input *in = s->in;
    uint32_t v = s->root / in->gpus, best = from->rank;
    const uint64_t spared = w->back ? s->plain[v][FCP_SEND] / in->gpus * SPARED_THIRDS / 3 : 0;
    if (s->out->sent[FCP_NET][best] + w->bytes + spared <= s->share[FCP_SEND] &&
        s->out->received[FCP_NET][best] + returned(s, w) <= s->share[FCP_RECV])
        return;
    if (!may_send(s, s->root_depth + 1 + more)) return;
    for (uint32_t r = v * in->gpus; r < (v + 1) * in->gpus && r < in->ranks; r++)
        if (r != w->src && load_if_sent(s, r, w) < load_if_sent(s, best, w)) best = r;
    if (best == from->rank) return;
    from->rank = best;
    from->depth = s->root_depth + 1;
    for (uint32_t i = 0; i < s->count; i++)
        if (s->hops[i].dst == best) return; /* it has it already */
    add_hop(s, w, s->root, best);
}

/* Makes the single hop from the source to the root, where results are merged. If the root is in another node, the hop
 * may go by way of another rank of the source's node. */
static void choose_root(state *s, const route_want *w) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first, home = w->src / in->gpus;
    uint32_t near = FCP_NONE, far = FCP_NONE; /* the best rank in the source's node, and in the others */
    for (uint32_t i = 0, end; i < w->count; i = end) {
        const bool own = reader[i] / in->gpus == home;
        const uint32_t to = own ? reader[i] : choose_receiver(s, w, i, &end);
        uint32_t *best = own ? &near : &far;
        if (own) end = i + 1;
        if (*best == FCP_NONE || load_if_received(s, to, w) < load_if_received(s, *best, w)) *best = to;
    }
    holder from = {.rank = w->src};
    if (near == FCP_NONE) {
        leave_by(s, w, 1, &from); /* from the root, the block goes to other nodes */
        near = on_rail(in, from.rank, far);
        if (from.depth >= s->out->depth) s->out->depth = from.depth + 1;
    }
    add_hop(s, w, from.rank, near);
    s->root = near;
    s->root_depth = from.depth + 1;
}

/* The root's own node: its readers get the block by local hops. */
static void begin_tree(state *s, const route_want *w) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    holder *source = &s->holders[0];
    s->holder_count = 1;
    *source = (holder){.entry = s->root, .deep = s->root_depth};
    for (uint32_t i = 0; i < w->count; i++) {
        if (reader[i] / in->gpus != s->root / in->gpus) continue;
        if (source->end != i) source->first = i;
        source->end = i + 1;
        if (reader[i] != s->root) add_hop(s, w, s->root, reader[i]);
    }
    choose_rank(s, w, source);
}

/* Finds the tree of one want. nodes: how many nodes it has to reach. */
static void find_tree(state *s, const route_want *w, uint32_t nodes) {
    const routes_input *in = s->in;
    const uint32_t *reader = in->readers + w->first;
    for (s->deepest = DEPTH_MARGIN; nodes >>= 1;) s->deepest++;
    s->count = 0;
    s->root = w->src;
    s->root_depth = 0;
    if (w->joined && w->count) choose_root(s, w);
    begin_tree(s, w);
    const uint32_t home = s->root / in->gpus;
    for (uint32_t i = 0, end; i < w->count; i = end) {
        if (reader[i] / in->gpus == home) {
            end = i + 1;
            continue;
        }
        uint32_t to = choose_receiver(s, w, i, &end);
        holder *by = choose_sender(s, w), from = *by;
        if (by == s->holders) leave_by(s, w, 0, &from);
        to = on_rail(in, from.rank, to);
        add_hop(s, w, from.rank, to);
        if (from.depth + 1 > s->out->depth) s->out->depth = from.depth + 1;
        for (uint32_t k = i; k < end; k++)
            if (reader[k] != to) add_hop(s, w, to, reader[k]);
        choose_rank(s, w, by);
        s->holders[s->holder_count] = (holder){.first = i, .end = end, .entry = to, .deep = from.depth + 1};
        choose_rank(s, w, &s->holders[s->holder_count++]);
    }
}

/* Counts the nodes, other than the source's, that a want has to reach. Adds what they and the source's node must send
 * and receive over net at least: node[v][0] and node[v][1]. */
static uint32_t count_nodes(const routes_input *in, const route_want *w, uint64_t (*node)[2]) {
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
        node[last][1] += w->back * (nodes > 1);
    }
    node[home][0] += w->bytes;
    node[home][1] += joined ? w->joined : w->back;
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
        uint32_t reached = count[i] = count_nodes(in, w, w->back ? node : s.plain);
        out->start[i] = (uint32_t)all;
        all += w->count + reached;
        if (reached) all += (in->gpus - (uint64_t)1) * (w->joined ? 2 : 1); /* leave_by at the source, at the root */
        if (all > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
        order[i] = (uint64_t)(w->back ? 0 : UINT32_MAX - reached) << 32 | i;
    }
    for (uint32_t v = 0; v < 2 * nodes; v++) {
        const uint64_t part = (node[v / 2][v % 2] + s.plain[v / 2][v % 2]) / in->gpus;
        if (part > s.share[v % 2]) s.share[v % 2] = part;
    }
    sort_u64(order, other, in->want_count);
    leg *found = ARENA_NEW(scratch, leg, all + 1);
    if (!found) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < in->want_count; i++) {
        uint32_t w = (uint32_t)order[i];
        if (!(i & 255) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        s.hops = found + out->start[w];
        find_tree(&s, &in->wants[w], count[w]);
        count[w] = s.count;
    }
    out->hops = ARENA_NEW(memory, leg, all + 1);
    if (!out->hops) return FCP_E_NO_MEMORY;
    for (uint32_t w = 0; w < in->want_count; w++) {
        const leg *from = found + out->start[w];
        out->start[w] = at;
        for (uint32_t i = 0; i < count[w]; i++) out->hops[at++] = from[i];
    }
    out->start[in->want_count] = at;
    return FCP_OK;
}
