/* rooms.c: worst fit: finds the rank that has most room once something is placed there, without a look at all ranks.
 *
 * Requires: load and held of each rank; dcp_rooms_set after they change.
 * Gives: of the ranks where something fits, the one that then has most room of the scarcer kind, pairs or tokens.
 *     Of ranks with equal room it is mostly the first: those of other leaves whose room is equal once it is rounded to
 *     a share are not compared.
 * Cost: of a search O(log ranks), and the ranks of one leaf; of a change the same.
 * Memory: O(ranks).
 * Units: pairs, tokens.
 *
 * Ranks are in leaves by their load, and in a leaf in the order of their tokens. A vertex of the tree over the leaves
 * knows which of its ranks has fewest tokens. Go from the leaf with least load to the one with most: the room for pairs
 * falls, and the most room for tokens that any rank so far has rises. The best rank is where the two cross, so a search
 * goes down the tree to that leaf. Example: something that needs a tenth of each cap.
 *
 *     load of the leaf's ranks           0.2   0.4   0.6   0.8       in parts of the cap
 *     then left of pairs                 0.7   0.5   0.3   0.1
 *     fewest tokens in the leaf          0.8   0.3   0.2   0.1
 *     then left of tokens, best so far   0.1   0.6   0.7   0.8       they cross at the second leaf, with 0.5
 */
#include <string.h>

#include "compiler/place/dcp/dcp.h"

enum { LEAVES = 4 }; /* for each rank */

/* Has rank a fewer tokens than rank b? FCP_NONE has most. */
static bool is_before(const dcp_rooms *x, uint32_t a, uint32_t b) {
    if (a == FCP_NONE || b == FCP_NONE) return a != FCP_NONE;
    return x->p->held[a] < x->p->held[b] || (x->p->held[a] == x->p->held[b] && a < b);
}

static void update_vertex(dcp_rooms *x, size_t n) {
    const uint32_t left = x->least[2 * n], right = x->least[2 * n + 1];
    x->least[n] = is_before(x, right, left) ? right : left;
}

static void update_from(dcp_rooms *x, uint32_t leaf) {
    for (size_t n = ((size_t)x->leaves + leaf) / 2; n; n /= 2) update_vertex(x, n);
}

/* Puts rank r into the list of its leaf. The list's first rank is least[leaves + leaf]. */
static void link_rank(dcp_rooms *x, uint32_t r) {
    const uint64_t leaf = x->p->load[r] >> x->shift;
    x->leaf[r] = leaf < x->leaves ? (uint32_t)leaf : x->leaves - 1;
    uint32_t *at = &x->least[x->leaves + x->leaf[r]], before = FCP_NONE;
    for (; *at != FCP_NONE && is_before(x, *at, r); at = &x->next[*at]) before = *at;
    x->next[r] = *at;
    x->previous[r] = before;
    if (*at != FCP_NONE) x->previous[*at] = r;
    *at = r;
}

static void unlink_rank(dcp_rooms *x, uint32_t r) {
    if (x->previous[r] == FCP_NONE) x->least[x->leaves + x->leaf[r]] = x->next[r];
    else x->next[x->previous[r]] = x->next[r];
    if (x->next[r] != FCP_NONE) x->previous[x->next[r]] = x->previous[r];
}

void dcp_rooms_set(dcp_rooms *x, uint32_t r) {
    const uint32_t from = x->leaf[r];
    unlink_rank(x, r);
    link_rank(x, r);
    if (x->leaf[r] != from) update_from(x, from);
    update_from(x, x->leaf[r]);
}

void dcp_rooms_fill(dcp_rooms *x) {
    memset(x->least, 0xff, 2 * (size_t)x->leaves * sizeof *x->least);
    for (uint32_t r = x->in->ranks; r-- > 0;) link_rank(x, r); /* empty ranks come to the head of their list */
    for (size_t n = x->leaves; n-- > 1;) update_vertex(x, n);
}

fcp_code dcp_rooms_open(dcp_rooms *x, const dcp_input *in, const dcp_partition *p, arena *scratch) {
    *x = (dcp_rooms){.in = in, .p = p, .leaves = 1};
    while (x->leaves < LEAVES * in->ranks) x->leaves *= 2;
    while (in->pair_cap >> x->shift >= x->leaves) x->shift++;
    x->least = ARENA_NEW(scratch, uint32_t, 2 * (size_t)x->leaves);
    x->next = ARENA_NEW(scratch, uint32_t, in->ranks);
    x->previous = ARENA_NEW(scratch, uint32_t, in->ranks);
    x->leaf = ARENA_NEW(scratch, uint32_t, in->ranks);
    return x->least && x->next && x->previous && x->leaf ? FCP_OK : FCP_E_NO_MEMORY;
}

/* What part of the cap is left where `used` is taken from `room`; -1: that is more than there is. */
static int64_t left_of(uint64_t room, uint64_t used, uint64_t cap) {
    return used > room ? -1 : (int64_t)dcp_share(room - used, cap);
}

uint32_t dcp_rooms_find(const dcp_rooms *x, uint64_t work, uint64_t tokens) {
    const uint64_t *load = x->p->load, *held = x->p->held, pair_cap = x->in->pair_cap, token_cap = x->in->token_cap;
    uint32_t best = FCP_NONE; /* of the leaves before those below n, the rank with fewest tokens */
    size_t n = 1;
    if (work > pair_cap || tokens > token_cap) return FCP_NONE;
    const uint64_t pairs = pair_cap - work, room = token_cap - tokens;
    uint64_t first = 0; /* leaf below n */
    for (uint32_t size = x->leaves / 2; size; size /= 2) {
        const uint32_t low = is_before(x, x->least[2 * n], best) ? x->least[2 * n] : best;
        const int64_t most = left_of(pairs, (first + size) << x->shift, pair_cap); /* of the leaves after */
        n *= 2;
        if (low != FCP_NONE && left_of(room, held[low], token_cap) >= most) continue;
        best = low;
        first += size;
        n++;
    }
    int64_t left = best == FCP_NONE ? -1 : left_of(room, held[best], token_cap);
    for (uint32_t r = x->least[n]; r != FCP_NONE; r = x->next[r]) {
        const int64_t y = left_of(room, held[r], token_cap), here = left_of(pairs, load[r], pair_cap);
        if (y < left || y < 0 || left >= left_of(pairs, first << x->shift, pair_cap)) break;
        const int64_t rest = here < y ? here : y;
        if (rest > left || (rest == left && rest >= 0 && r < best)) best = r, left = rest;
    }
    return left < 0 ? FCP_NONE : best;
}
