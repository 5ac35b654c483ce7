/* relays.c: makes trees of keys, where some ranks have to send much more than any rank has to receive.
 *
 * Requires: direct ways: legs inside the home's node, then for each other node the leg that enters it and the legs
 *     inside it. On rails both ends of a leg between nodes have the same index in their nodes.
 * Gives: for a block whose home has too much to send, other senders of the legs between nodes. On rails a sender still
 *     has the receiver's index.
 * Cost: O(legs log legs + nodes^2) for each such block; nothing for the others.
 * Units: bytes over net. Times are in bytes, too: a latency is the number of bytes that could pass in that time.
 *
 * Who needs trees. Each rank must receive what it reads, whichever way that takes. So while no rank has more to send
 * than the busiest receiver has to receive, direct ways are as fast as any. What the busiest receiver receives is
 * therefore the `limit` for senders, and a home that sends more by direct ways is `busy`. Blocks that no busy rank
 * sends keep their direct ways. relays.h has an example.
 *
 * How the tree of a block of a busy home is made:
 * 1. The *load* of each busy home begins with all that it sends, but with one copy of each block of keys, because it
 *    must send each at least once. Other ranks begin with what they send by direct ways.
 * 2. The nodes get the block one after another: always next the one whose receiver has sent least, because that can
 *    pass most on.
 * 3. Of the ranks that have the block, the one with the lowest price sends it to that node. The price is the largest of
 *    (a) the limit,
 *    (b) the time at which this transfer would end, if nothing but this block travelled,
 *    (c) what the rank would then have sent of all blocks.
 * 4. Of ranks with equal prices the one sends that will have sent least, unless the price is the limit; then the one
 *    with fewest legs from home; then the one that is done first.
 *
 * If there is one block only, (b) decides, and the tree is that of relays.h: all ranks that have the block keep
 * sending. If a home has many blocks, (c) decides: the home sends each about once, and other ranks take turns in
 * passing it on.
 */
#include "compiler/schedule/relays.h"
#include "runtime/plan/bytes.h"

#include <string.h>

#include "compiler/base/integers.h"
#include "compiler/schedule/schedule_tuning.h"

/* A rank that has the block. */
typedef struct holder {
    uint32_t rank, legs; /* legs from home */
    uint64_t done;       /* when it has the block and has sent what it sends of it so far */
    uint64_t next;       /* what its load grows by if it sends once more: 0 of a transfer that was counted before */
    uint64_t price;
} holder;

struct relays {
    uint32_t gpus;
    uint32_t lanes; /* heaps of holders: on rails one for each index in a node, because senders have the receiver's */
    uint64_t limit, latency, inter, intra;
    uint64_t *load;  /* per rank: what it will send, so far */
    bool *busy;      /* per rank */
    leg *legs;       /* of the block at hand: the direct ones */
    uint32_t *enter; /* numbers of the legs between nodes */
    holder *heap;    /* a binary heap for each lane: from lane * room on, the cheapest holder first */
    uint32_t *holders, room; /* holders: how many, per lane */
};

/* --- who sends next ----------------------------------------------------------------------------------------------- */

static bool is_cheaper(const relays *r, const holder *a, const holder *b) {
    const uint64_t load_a = r->load[a->rank] + a->next, load_b = r->load[b->rank] + b->next;
    if (a->price != b->price) return a->price < b->price;
    if (a->price > r->limit && load_a != load_b) return load_a < load_b;
    if (a->legs != b->legs) return a->legs < b->legs;
    if (a->done != b->done) return a->done < b->done;
    return a->rank < b->rank;
}

static void swap(holder *a, holder *b) {
    holder t = *a;
    *a = *b;
    *b = t;
}

static void set_price(const relays *r, holder *h, uint64_t takes) {
    h->price = max_u64(r->limit, max_u64(h->done + takes, r->load[h->rank] + h->next));
}

static uint32_t lane_of(const relays *r, uint32_t rank) { return rank % r->gpus % r->lanes; }

/* Adds a rank that gets the block at the time `has`. takes: how long a transfer of the block over net takes. */
static void add_holder(relays *r, uint32_t rank, uint32_t legs, uint64_t has, uint64_t next, uint64_t takes) {
    const uint32_t lane = lane_of(r, rank);
    holder *heap = r->heap + (size_t)lane * r->room;
    uint32_t at = r->holders[lane]++;
    heap[at] = (holder){.rank = rank, .legs = legs, .done = has, .next = next};
    set_price(r, &heap[at], takes);
    for (uint32_t up; at && is_cheaper(r, &heap[at], &heap[up = (at - 1) / 2]); at = up) swap(&heap[at], &heap[up]);
}

/* Says that the cheapest holder of a lane has sent the block once more. */
static void has_sent(relays *r, uint32_t lane, uint64_t takes) {
    holder *heap = r->heap + (size_t)lane * r->room;
    const uint32_t count = r->holders[lane];
    r->load[heap->rank] += heap->next;
    heap->done += takes;
    heap->next = takes;
    set_price(r, heap, takes);
    for (uint32_t at = 0, child; (child = 2 * at + 1) < count; at = child) {
        if (child + 1 < count && is_cheaper(r, &heap[child + 1], &heap[child])) child++;
        if (!is_cheaper(r, &heap[child], &heap[at])) return;
        swap(&heap[at], &heap[child]);
    }
}

/* --- trees -------------------------------------------------------------------------------------------------------- */

static inline bool is_between_nodes(const relays *r, const leg *l) { return l->src / r->gpus != l->dst / r->gpus; }

/* Chooses which node gets the block next, of those that enter[from] to enter[count - 1] enter: the one whose receiver
 * has sent least. Swaps it to enter[from], and returns the number of its leg. */
static uint32_t next_node(const relays *r, uint32_t from, uint32_t count) {
    uint32_t best = from;
    for (uint32_t i = from + 1; i < count; i++)
        if (r->load[r->legs[r->enter[i]].dst] < r->load[r->legs[r->enter[best]].dst]) best = i;
    const uint32_t l = r->enter[best];
    r->enter[best] = r->enter[from];
    return r->enter[from] = l;
}

void relays_plant(relays *r, const need *n, leg *legs, uint32_t count) {
    uint32_t nodes = 0, at = 0;
    bool busy = false;
    for (uint32_t i = 0; i < count; i++) {
        if (!is_between_nodes(r, &legs[i])) continue;
        r->enter[nodes++] = i;
        busy |= r->busy[legs[i].src];
    }
    if (nodes < 2 || !busy) return;
    const uint64_t takes = n->bytes + r->latency;
    const uint64_t inside = (uint64_t)((unsigned __int128)n->bytes * r->inter / r->intra) + r->latency;
    const uint32_t first = legs[r->enter[0]].src; /* its first transfer is in its load already */
    memcpy(r->legs, legs, count * sizeof *legs);
    memset(r->holders, 0, r->lanes * sizeof *r->holders);
    add_holder(r, n->home, 0, 0, n->home == first ? 0 : takes, takes);
    for (; !is_between_nodes(r, &legs[at]); at++)
        add_holder(r, legs[at].dst, 1, (at + 1) * inside, legs[at].dst == first ? 0 : takes, takes);
    for (uint32_t v = 0; v < nodes; v++) {
        uint32_t l = next_node(r, v, nodes);
        const uint32_t to = r->legs[l].dst, lane = lane_of(r, to);
        const holder by = r->heap[(size_t)lane * r->room]; /* the direct sender is in this lane, too */
        uint64_t has = by.done + takes;
        legs[at++] = (leg){by.rank, to};
        has_sent(r, lane, takes);
        add_holder(r, to, by.legs + 1, has, takes, takes);
        while (++l < count && !is_between_nodes(r, &r->legs[l])) {
            legs[at++] = r->legs[l];
            add_holder(r, r->legs[l].dst, by.legs + 2, has += inside, takes, takes);
        }
    }
}

/* --- who has too much to send ------------------------------------------------------------------------------------- */

/* Adds up what each rank sends and receives over net, and what it would send if keys left home once. */
static void add_loads(const planning *x, const traffic *t, uint64_t latency, uint64_t *sent, uint64_t *received,
                      uint64_t *once) {
    const problem *p = x->problem;
    fcp_problem facts;
    problem_facts(x, &facts);
    uint64_t token[FCP_CLASSES];
    for (int cls = 0; cls < FCP_CLASSES; cls++) token[cls] = fcp_class_bytes(&facts, (fcp_class)cls, FCP_FORWARD);
    uint32_t left = FCP_NONE; /* the block of keys that was the last to leave its home */
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *h = &t->hops[f];
        if (h->fabric != FCP_NET) continue;
        const uint64_t bytes = p->blocks[h->block].tokens * token[h->cls];
        sent[h->src] += bytes + latency;
        received[h->dst] += bytes + latency;
        if (h->cls == FCP_KV && h->block == left) continue;
        once[h->src] += bytes + latency;
        left = h->block;
    }
}

fcp_code relays_open(planning *x, const traffic *direct, relays **out) {
    const struct fcpc_program *g = x->program;
    const fcp_cluster *c = &g->cluster;
    const uint32_t ranks = x->problem->ranks;
    arena *scratch = &x->scratch;
    *out = NULL;
    if (g->nodes < 3) return FCP_OK;
    uint64_t *sent = ARENA_ZNEW(scratch, uint64_t, ranks), *received = ARENA_ZNEW(scratch, uint64_t, ranks);
    uint64_t *once = ARENA_ZNEW(scratch, uint64_t, ranks), most = 0, limit = 0;
    const uint64_t latency = (uint64_t)((unsigned __int128)c->inter * c->latency_ns / 1000000000);
    if (!sent || !received || !once) return FCP_E_NO_MEMORY;
    add_loads(x, direct, latency, sent, received, once);
    for (uint32_t i = 0; i < ranks; i++) most = max_u64(most, sent[i]), limit = max_u64(limit, received[i]);
    if (most <= limit + limit / SENDER_EXCESS) return FCP_OK;
    relays *r = ARENA_NEW(scratch, relays, 1);
    if (!r) return FCP_E_NO_MEMORY;
    const uint32_t lanes = g->topology == FCP_RAIL ? g->gpus : 1;
    *r = (relays){.gpus = g->gpus, .lanes = lanes, .limit = limit, .latency = latency, .inter = c->inter,
                  .intra = c->intra ? c->intra : 1, .load = sent, .busy = ARENA_NEW(scratch, bool, ranks),
                  .legs = ARENA_NEW(scratch, leg, ranks), .enter = ARENA_NEW(scratch, uint32_t, ranks),
                  .heap = ARENA_NEW(scratch, holder, ranks), .holders = ARENA_NEW(scratch, uint32_t, lanes),
                  .room = ranks / lanes};
    if (!r->busy || !r->legs || !r->enter || !r->heap || !r->holders) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < ranks; i++) {
        r->busy[i] = sent[i] > limit;
        if (r->busy[i]) r->load[i] = once[i];
    }
    *out = r;
    return FCP_OK;
}
