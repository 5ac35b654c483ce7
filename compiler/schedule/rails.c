/* rails.c: keeps the ways of a block on rails, whoever chose them.
 *
 * Requires: a tree of legs from the block's home to all ranks that need it; a leg leaves from the home, or from where
 *     an earlier leg leads.
 * Gives: such a tree in which a leg to another node has the same index in its node at both ends. Every rank that needs
 *     the block is reached once. A rank that does not need it passes it on.
 * Cost: O(legs).
 *
 * A leg from rank u to rank v of another node, with another index, becomes two: by way of `there`, the rank of v's node
 * on u's rail, or of `here`, the rank of u's node on v's rail. The first that holds is taken:
 *
 *   1. `there` has the block: v gets it from there, and nothing crosses.
 *   2. `here` has the block: it sends to v.
 *   3. `there` will get the block anyway: it gets it from u now.
 *   4. `here` will get the block anyway: the same.
 *   5. Neither: by way of `there`, unless that has received more over net so far than v.
 *
 * Example: a ring of groups of two, on nodes of four. The keys of rank 1 are to go to rank 3, from there to rank 5, and
 * from there to rank 7. From 3 to 5 there is no rail. Rank 1 has the block and is on the rail of rank 5 (2): it sends.
 */
#include "compiler/schedule/rails.h"

typedef struct tree {
    rails_rank *ranks;
    leg *legs;
    uint32_t count;
} tree;

static void reach(tree *t, uint32_t src, uint32_t dst) {
    if (t->ranks[dst].has) return;
    t->ranks[dst].has = true;
    t->legs[t->count++] = (leg){src, dst};
}

/* By way of which rank does a leg go? */
static uint32_t stop_between(const tree *t, leg l, uint32_t gpus, const uint64_t *received) {
    const uint32_t there = l.dst / gpus * gpus + l.src % gpus, here = l.src / gpus * gpus + l.dst % gpus;
    if (t->ranks[there].has) return there;
    if (t->ranks[here].has) return here;
    if (t->ranks[there].wanted) return there;
    if (t->ranks[here].wanted) return here;
    return received[there] <= received[l.dst] ? there : here;
}

/* Leaves out who neither needs the block nor passes it on, and forgets what was known of ranks. */
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
            src = stop_between(&t, l, gpus, received);
            reach(&t, l.src, src);
        }
        reach(&t, src, l.dst);
    }
    prune(&t, n);
    return t.count;
}
