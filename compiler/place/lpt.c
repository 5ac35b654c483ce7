/* lpt.c: longest processing time first (LPT), a rule of list scheduling, with a cap on the tokens of a rank.
 *
 * Requires: tokens[b] <= block for every block (for larger ones the cap is kept where it can be); work that adds up to
 *     less than 2^64.
 * Gives: a home for every block. No rank holds more than floor(mean) + block tokens.
 * Cost: O(blocks (log ranks + log sizes)), where sizes is the number of distinct token counts.
 * Units: work in allowed pairs, lengths in tokens.
 * Source: Graham, "Bounds on multiprocessing timing anomalies" (1969), for the rule; Fredman et al., "The pairing heap"
 *     (1986), for the queues. FCP adds the cap and the zig-zag.
 *
 * The rule. LPT takes the blocks by falling work and gives each to the least loaded rank that has room for its tokens.
 * Of ranks with equal load, the one that was given a block last comes first. So blocks of equal or evenly falling work
 * go to ranks 0 1 2 ... 2 1 0 0 1 2 ...: this zig-zag pairs the first chunk of a causal sequence with the last.
 *
 * Some rank always has room. When a block of t tokens comes, the ranks hold at most total - t tokens. So some rank
 * holds at most floor((total - t) / ranks), which with the block is at most floor(mean) + block.
 *
 * How that rank is found. Which ranks have room depends on t.
 *   1. There is one priority queue, by load, for each distinct token count. A rank waits in the queue of the largest
 *      count for which it still has room.
 *   2. A tournament tree over the queues finds the least loaded rank in the queues of t and above.
 * Work is compared by its upper 32 bits.
 */
#include "compiler/place/place.h"

#include <string.h>

#include "compiler/base/bisect.h"
#include "compiler/base/sort.h"

uint64_t place_token_cap(const place_input *in) {
    uint64_t total = 0;
    for (uint32_t b = 0; b < in->blocks; b++) total += in->tokens[b];
    return (in->ranks ? total / in->ranks : 0) + in->block;
}

/* --- queues of ranks ---------------------------------------------------------------------------------------------- */

/* A pairing heap of ranks for each token count, and the tournament tree over their roots. */
typedef struct queues {
    uint64_t *load, *turn;     /* per rank; of equal loads the larger turn comes first */
    uint32_t *child, *sibling; /* per rank: its place in its heap; FCP_NONE: none */
    uint32_t *best;            /* best[leaves + i] is the root of heap i; best[n] the better of its two children */
    uint32_t leaves;           /* a power of two */
} queues;

static bool before(const queues *q, uint32_t a, uint32_t b) {
    return q->load[a] != q->load[b] ? q->load[a] < q->load[b] : q->turn[a] > q->turn[b];
}

static uint32_t better(const queues *q, uint32_t a, uint32_t b) {
    if (a == FCP_NONE || b == FCP_NONE) return a == FCP_NONE ? b : a;
    return before(q, a, b) ? a : b;
}

static uint32_t meld(queues *q, uint32_t a, uint32_t b) {
    if (a == FCP_NONE || b == FCP_NONE) return a == FCP_NONE ? b : a;
    if (!before(q, a, b)) {
        uint32_t t = a;
        a = b;
        b = t;
    }
    q->sibling[b] = q->child[a];
    q->child[a] = b;
    return a;
}

static void set_queue(queues *q, uint32_t i, uint32_t root) {
    size_t n = (size_t)q->leaves + i;
    q->best[n] = root;
    while (n >>= 1) q->best[n] = better(q, q->best[2 * n], q->best[2 * n + 1]);
}

static void enqueue(queues *q, uint32_t i, uint32_t rank) {
    q->child[rank] = q->sibling[rank] = FCP_NONE;
    set_queue(q, i, meld(q, q->best[q->leaves + i], rank));
}

/* Removes the first rank of queue i, the root of a pairing heap: its children are melded in pairs, then the pairs into
 * one heap. */
static void dequeue(queues *q, uint32_t i) {
    uint32_t at = q->child[q->best[q->leaves + i]], pairs = FCP_NONE, root = FCP_NONE;
    while (at != FCP_NONE) {
        uint32_t a = at, b = q->sibling[a];
        at = b == FCP_NONE ? FCP_NONE : q->sibling[b];
        q->sibling[a] = FCP_NONE;
        if (b != FCP_NONE) q->sibling[b] = FCP_NONE;
        a = meld(q, a, b);
        q->sibling[a] = pairs;
        pairs = a;
    }
    while (pairs != FCP_NONE) {
        uint32_t next = q->sibling[pairs];
        q->sibling[pairs] = FCP_NONE;
        root = meld(q, root, pairs);
        pairs = next;
    }
    set_queue(q, i, root);
}

/* The least loaded rank of all queues from number i on. */
static uint32_t first_from(const queues *q, uint32_t i) {
    uint32_t found = FCP_NONE;
    for (uint32_t l = q->leaves + i, r = 2 * q->leaves; l < r; l >>= 1, r >>= 1) {
        if (l & 1) found = better(q, found, q->best[l++]);
        if (r & 1) found = better(q, found, q->best[--r]);
    }
    return found;
}

/* --- LPT ---------------------------------------------------------------------------------------------------------- */

/* How many of the sizes, which ascend, are at most `room`. */
static uint32_t sizes_within(const uint32_t *sizes, uint32_t count, uint64_t room) {
    uint32_t low = 0, high = count;
    BISECT(low, high, i, sizes[i] <= room)
    return low;
}

fcp_code place_lpt(const place_input *in, arena *scratch, uint32_t *out_home) {
    uint32_t count = 0, ranks = in->ranks;
    uint64_t *order = ARENA_NEW(scratch, uint64_t, in->blocks + (size_t)1);
    uint64_t *other = ARENA_NEW(scratch, uint64_t, in->blocks + (size_t)1);
    uint64_t *sorted = ARENA_NEW(scratch, uint64_t, in->blocks + (size_t)1);
    uint32_t *sizes = ARENA_NEW(scratch, uint32_t, in->blocks + (size_t)1);
    uint64_t *room = ARENA_NEW(scratch, uint64_t, ranks + (size_t)1);
    queues q = {.load = ARENA_ZNEW(scratch, uint64_t, ranks + (size_t)1),
                .turn = ARENA_NEW(scratch, uint64_t, ranks + (size_t)1),
                .child = ARENA_NEW(scratch, uint32_t, ranks + (size_t)1),
                .sibling = ARENA_NEW(scratch, uint32_t, ranks + (size_t)1)};
    if (!order || !other || !sorted || !sizes || !room || !q.load || !q.turn || !q.child || !q.sibling)
        return FCP_E_NO_MEMORY;
    if (!ranks) return FCP_OK;
    if (in->blocks) memcpy(order, in->work, in->blocks * sizeof *order);
    order_falling(order, other, in->blocks);

    for (uint32_t b = 0; b < in->blocks; b++) sorted[b] = in->tokens[b];
    sort_u64(sorted, other, in->blocks);
    for (uint32_t b = 0; b < in->blocks; b++)
        if (!count || sizes[count - 1] != sorted[b]) sizes[count++] = (uint32_t)sorted[b];
    for (q.leaves = 1; q.leaves < count + 1; q.leaves *= 2) {}
    if (!(q.best = ARENA_NEW(scratch, uint32_t, 2 * (size_t)q.leaves))) return FCP_E_NO_MEMORY;
    memset(q.best, 0xff, 2 * (size_t)q.leaves * sizeof *q.best);
    uint64_t cap = place_token_cap(in);
    uint32_t all = sizes_within(sizes, count, cap);
    for (uint32_t r = ranks; r-- > 0;) {
        room[r] = cap;
        q.turn[r] = ranks - r;
        q.child[r] = q.sibling[r] = FCP_NONE;
        q.best[q.leaves + all] = meld(&q, q.best[q.leaves + all], r);
    }
    set_queue(&q, all, q.best[q.leaves + all]);

    for (uint32_t i = 0; i < in->blocks; i++) {
        if (!(i & 1023) && fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        uint32_t b = (uint32_t)order[i], t = in->tokens[b];
        uint32_t r = first_from(&q, sizes_within(sizes, count, t));
        if (r == FCP_NONE) r = first_from(&q, 0); /* a block larger than `block`: the least loaded rank of all */
        dequeue(&q, sizes_within(sizes, count, room[r]));
        q.load[r] += in->work[b];
        q.turn[r] = (uint64_t)ranks + i + 1;
        room[r] -= t < room[r] ? t : room[r];
        enqueue(&q, sizes_within(sizes, count, room[r]), r);
        out_home[b] = r;
    }
    return FCP_OK;
}
