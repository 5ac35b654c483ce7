/* rails.c: changes the ways of a block so that all that crosses between nodes stays on a rail. A rail joins the ranks
 * that have the same index in their nodes.
 *
 * Requires: a tree of legs from the block's home to all ranks that need it; a leg leaves from the home, or from where
 *     an earlier leg leads.
 * Gives: such a tree in which a leg to another node has the same index in its node at both ends. Every rank that needs
 *     the block is reached once. A rank that does not need it passes it on.
 * Cost: O(legs).
 *
 * Take a leg from rank u to rank v of another node, with another index. It becomes two legs, by way of one of two
 * ranks: `there`, which is in v's node and on u's rail, or `here`, which is in u's node and on v's rail. With nodes of
 * four, from u = 3 to v = 5, `there` is 7 and `here` is 1. The first case that holds decides:
 *
 *   1. `there` has the block already: v gets it from there, and nothing crosses.
 *   2. `here` has the block already: it sends to v.
 *   3. `there` needs the block anyway: it gets it from u now, and sends to v.
 *   4. `here` needs the block anyway: it gets it from u now, and sends to v.
 *   5. Otherwise it goes by way of `there`, unless `there` has received more over net so far than v; then by `here`.
 *
 * Example: a ring of groups of two, on nodes of four. The keys of rank 1 are to go to rank 3, from there to rank 5, and
 * from there to rank 7. No rail joins 3 and 5. Rank 1 has the block and is on the rail of rank 5 (case 2): it sends.
 */
#include "compiler/schedule/rails.h"

typedef struct tree {
    rails_rank *ranks;
    leg *legs;
    uint32_t count;
} tree;

/* Adds a leg, unless its end has the block already. */
static void add_leg(tree *t, uint32_t src, uint32_t dst) {
    if (t->ranks[dst].has) return;
    t->ranks[dst].has = true;
    t->legs[t->count++] = (leg){src, dst};
}

/* Returns the rank between the two legs that replace a leg l which is not on a rail: `there` or `here` of the head. */
static uint32_t rank_between(const tree *t, leg l, uint32_t gpus, const uint64_t *received) {
    const uint32_t there = l.dst / gpus * gpus + l.src % gpus, here = l.src / gpus * gpus + l.dst % gpus;
    if (t->ranks[there].has) return there;
    if (t->ranks[here].has) return here;
    if (t->ranks[there].wanted) return there;
    if (t->ranks[here].wanted) return here;
    return received[there] <= received[l.dst] ? there : here;
}

/* Removes legs to ranks that neither need the block nor pass it on, and sets what is known of ranks back to zeros. */
static void prune(tree *t, const need *n) {
    uint32_t kept = 0;
    for (uint32_t i = t->count; i-- > 0;)
        if (n->work[t->legs[i].dst] || t->ranks[t->legs[i].dst].children) t->ranks[t->legs[i].src].children++;
    for (uint32_t i = 0; i < t->count; i++) {
        const leg l = t->legs[i];
        if (n->work[l.dst] || t->ranks[l.dst].children) t->legs[kept++] = l;
        t->ranks[l.dst] = (rails_rank){.has = false};
    }
    t->ranks[n->home] = (rails_rank){.has = false};
    t->count = kept;
}

uint32_t rails_keep(const need *n, uint32_t gpus, const leg *from, uint32_t count, rails_rank *ranks,
                    const uint64_t *received, leg *out) {
    tree t = {.ranks = ranks, .legs = out};
    for (uint32_t i = 0; i < count; i++) ranks[from[i].dst].wanted = true;
    ranks[n->home].has = true;
    for (uint32_t i = 0; i < count; i++) {
        const leg l = from[i];
        if (ranks[l.dst].has) continue;
        uint32_t src = l.src;
        if (src / gpus != l.dst / gpus && src % gpus != l.dst % gpus) {
            src = rank_between(&t, l, gpus, received);
            add_leg(&t, l.src, src);
        }
        add_leg(&t, src, l.dst);
    }
    prune(&t, n);
    return t.count;
}
