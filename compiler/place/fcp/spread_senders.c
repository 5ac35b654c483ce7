/* spread_senders.c: evens out what ranks send, by moving the homes of KV blocks that many ranks read.
 *
 * Requires: a placement; left and room of every rank.
 * Gives: the placement with blocks exchanged so that the busiest sender sends less. No rank goes over a limit that it
 *     kept, and no exchange adds transfers.
 * Cost: O(reads) to count, then a bounded number of looks, each linear in the blocks of two ranks.
 * Units: transfers.
 *
 * Why. The first blocks of a long causal sequence are read by every rank that holds any part of it. So their homes send
 * most, and a plan has at least as many rounds as its busiest sender sends units.
 *
 * How. Such a block has little work, and any rank that holds a later block of the sequence reads it already. If it
 * changes places with a light block of that rank, its old home receives it instead, and no transfer is added.
 *
 * How far. What a rank receives cannot be spread in this way, because its heavy blocks must read the same keys wherever
 * these are at home. So it ends when no rank sends more than the busiest receiver receives. place_tuning.h says what
 * came of going on from there.
 */
#include <string.h>

#include "compiler/place/fcp/fcp_parts.h"
#include "compiler/base/bisect.h"
#include "compiler/base/sort.h"

typedef struct spread {
    place_state *s;
    place_lists *l;
    uint32_t *readers;  /* per KV block: ranks that read it and are not its home */
    uint64_t *sends;    /* per rank */
    uint64_t most;      /* transfers that a rank may send */
    uint32_t *seen;     /* per rank: the number of the last search that met it */
    uint32_t search;
    uint64_t looks;
} spread;

static fcp_code count_transfers(spread *x, arena *scratch) {
    const place_input *in = x->s->in;
    uint32_t *last = ARENA_ZNEW(scratch, uint32_t, in->blocks + (size_t)1);
    if (!last) return FCP_E_NO_MEMORY;
    uint64_t total = 0;
    for (uint32_t r = 0; r < in->ranks; r++) {
        uint64_t received = 0;
        for (uint32_t b = x->l->head[r]; b != FCP_NONE; b = x->l->next[b])
            for (uint32_t e = in->reads_start[b]; e < in->reads_start[b + 1]; e++) {
                uint32_t j = in->reads[e], home = x->s->home[j];
                if (last[j] == r + 1 || home == r) continue;
                last[j] = r + 1;
                x->readers[j]++;
                x->sends[home]++;
                received++;
            }
        if (received > x->most) x->most = received;
        total += received;
    }
    if (total / in->ranks + 1 > x->most) x->most = total / in->ranks + 1;
    return FCP_OK;
}

/* Exchanges block j of rank r, which sends too much, for a block of a rank that reads j and sends less. */
static bool hand_over(spread *x, uint32_t j, uint32_t r) {
    place_state *s = x->s;
    const uint32_t *tokens = s->in->tokens;
    uint32_t partner[SPREAD_PARTNERS], partners = 0, c = s->cluster[j], best = FCP_NONE, best_rank = FCP_NONE;
    uint32_t from = s->member_start[c], to = s->member_start[c + 1];
    if (to - from > SPREAD_MEMBERS) { /* of a large cluster only the blocks around j are looked at */
        uint32_t next = from + 1, end = to;
        BISECT(next, end, i, s->member[i] <= j)
        from = next - 1 - from > SPREAD_MEMBERS / 2 ? next - 1 - SPREAD_MEMBERS / 2 : from;
        if (to - from > SPREAD_MEMBERS) to = from + SPREAD_MEMBERS;
    }
    uint32_t cost = (to - from) / 8;
    x->looks -= x->looks < cost ? x->looks : cost;
    x->search++;
    for (uint32_t i = from; i < to; i++) { /* the ranks that send least */
        uint32_t p = s->home[s->member[i]];
        if (p == r || x->seen[p] == x->search || x->sends[p] + x->readers[j] > x->most) continue;
        x->seen[p] = x->search;
        if (!place_overlap(s, j, s->member[i])) continue;
        uint32_t at = partners < SPREAD_PARTNERS ? partners++ : SPREAD_PARTNERS;
        for (; at > 0 && x->sends[partner[at - 1]] > x->sends[p]; at--)
            if (at < SPREAD_PARTNERS) partner[at] = partner[at - 1];
        if (at < SPREAD_PARTNERS) partner[at] = p;
    }
    uint64_t best_sends = 0;
    for (uint32_t i = 0; i < partners && best == FCP_NONE && x->looks; i++) {
        uint32_t p = partner[i], looks = 6;
        x->looks--;
        for (uint32_t y = x->l->head[p]; y != FCP_NONE && looks; y = x->l->next[y]) {
            int64_t work = s->work[y] - s->work[j], more = (int64_t)tokens[y] - tokens[j];
            if (x->readers[y] >= x->readers[j]) continue;
            if ((work > 0 && work > s->left[r]) || (work < 0 && -work > s->left[p])) continue;
            if (more > s->room[r] || -more > s->room[p]) continue;
            if (best != FCP_NONE && x->readers[y] >= best_sends) continue;
            looks--;
            if (place_price(s, x->l, j, r, y, p) > 0) continue;
            best = y;
            best_rank = p;
            best_sends = x->readers[y];
        }
    }
    if (best == FCP_NONE) return false;
    place_move(s, x->l, j, best_rank);
    place_move(s, x->l, best, r);
    x->sends[r] += x->readers[best];
    x->sends[r] -= x->readers[j];
    x->sends[best_rank] += x->readers[j];
    x->sends[best_rank] -= x->readers[best];
    return true;
}

/* Relieves rank r, which sends too much: exchanges some of its blocks, those with most readers first. True: it has. */
static bool relieve_sender(spread *x, uint32_t r) {
    uint32_t held[PLACE_MAX_HELD], count = place_gather(x->l, r, held);
    for (uint32_t i = 1; i < count; i++) { /* most readers first */
        uint32_t b = held[i], k = i;
        for (; k > 0 && x->readers[held[k - 1]] < x->readers[b]; k--) held[k] = held[k - 1];
        held[k] = b;
    }
    bool done = false;
    for (uint32_t i = 0; i < count && i < SPREAD_BLOCKS && x->sends[r] > x->most && x->looks; i++)
        if (x->readers[held[i]] && hand_over(x, held[i], r)) done = true;
    return done;
}

fcp_code place_spread(place_state *s, place_lists *l, arena *scratch) {
    uint32_t ranks = s->in->ranks, blocks = s->in->blocks;
    spread x = {.s = s, .l = l, .looks = SPREAD_LOOKS_EACH * (uint64_t)ranks + SPREAD_LOOKS};
    x.readers = ARENA_ZNEW(scratch, uint32_t, blocks);
    x.sends = ARENA_ZNEW(scratch, uint64_t, ranks);
    x.seen = ARENA_ZNEW(scratch, uint32_t, ranks);
    uint64_t *busy = ARENA_NEW(scratch, uint64_t, ranks), *other = ARENA_NEW(scratch, uint64_t, ranks);
    if (!x.readers || !x.sends || !x.seen || !busy || !other) return FCP_E_NO_MEMORY;
    fcp_code code = count_transfers(&x, scratch);
    bool done = true;
    for (uint32_t round = 0; !code && done && round < SPREAD_ROUNDS && x.looks; round++) {
        uint32_t count = 0;
        for (uint32_t r = 0; r < ranks; r++) {
            busy[r] = x.sends[r] > x.most ? x.sends[r] : 0;
            count += busy[r] > 0;
        }
        if (!count) break;
        if (fcp_stop_asked(s->in->stop)) return FCP_E_INTERRUPTED;
        order_falling(busy, other, ranks);
        done = false;
        for (uint32_t i = 0; i < count; i++)
            if (relieve_sender(&x, (uint32_t)busy[i])) done = true;
    }
    return code;
}
