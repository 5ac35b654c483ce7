/* wires.c: evens out what the ranks of a node send over net.
 *
 * Requires: a placement whose ranks have their nodes.
 * Gives: the placement with blocks exchanged inside nodes. No rank goes over a limit that it kept, and what crosses
 *     between nodes stays the same, block by block.
 * Cost: O(reads) to count, then a bounded number of looks at pairs of blocks.
 * Units: tokens that a home sends: those of a block, once for each other node that reads it.
 *
 * Example: two ranks of a node. One has the first two blocks of a long sequence, which all eight nodes read; the other
 * has two blocks of about as much work that nobody else reads. They exchange one each: the node sends as much as
 * before, but by two ports, in half the time.
 *
 * Which nodes read a block does not depend on which rank of a node has what. So an exchange inside a node changes
 * nothing but who sends, and perhaps what travels inside. Local links are several times as fast as a port, so an
 * exchange may cost local transfers: at most half of what it takes off the busy port.
 */
#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/place/fcp/fcp.h"

enum { BLOCKS = 32, EXCHANGES = 16, /* of a rank: its blocks that are looked at, and exchanges in all */ LOOKS = 200 };

typedef struct wires {
    place_state *s;
    place_lists *l;
    uint32_t *nodes;  /* per block: nodes other than its home's that read it */
    uint64_t *sends;  /* per rank */
} wires;

typedef struct swap {
    uint32_t give, take, with;
    uint64_t most; /* what the busier of the two then sends */
} swap;

static uint64_t sent(const wires *w, uint32_t b) { return (uint64_t)w->nodes[b] * w->s->in->tokens[b]; }

static fcp_code count_nodes(wires *w, arena *scratch) {
    const place_input *in = w->s->in;
    uint32_t *last = ARENA_ZNEW(scratch, uint32_t, in->blocks + (size_t)1);
    if (!last) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < in->ranks; r++) {
        const uint32_t node = r / in->gpus;
        if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        for (uint32_t b = w->l->head[r]; b != FCP_NONE; b = w->l->next[b])
            for (uint32_t e = in->reads_start[b]; e < in->reads_start[b + 1]; e++) {
                const uint32_t j = in->reads[e];
                if (last[j] == node + 1) continue;
                last[j] = node + 1;
                w->nodes[j] += w->s->home[j] / in->gpus != node;
            }
    }
    for (uint32_t b = 0; b < in->blocks; b++) w->sends[w->s->home[b]] += sent(w, b);
    return FCP_OK;
}

/* The best exchange of block j of rank r with a block of rank p. */
static void look(const wires *w, uint32_t j, uint32_t r, uint32_t p, uint32_t *looks, swap *best) {
    const place_state *s = w->s;
    const uint32_t *tokens = s->in->tokens;
    for (uint32_t y = w->l->head[p]; y != FCP_NONE && *looks; y = w->l->next[y]) {
        const int64_t work = s->work[y] - s->work[j], more = (int64_t)tokens[y] - tokens[j];
        if (work < 0 && -work > s->left[p]) break; /* the others have even less work */
        if (sent(w, y) >= sent(w, j) || (work > 0 && work > s->left[r])) continue;
        if (more > s->room[r] || -more > s->room[p]) continue;
        const uint64_t less = sent(w, j) - sent(w, y), own = w->sends[r] - less, its = w->sends[p] + less;
        const uint64_t most = own > its ? own : its;
        if (most >= best->most) continue;
        --*looks;
        const int64_t price = place_price(s, w->l, j, r, y, p);
        if (price > 0 && (uint64_t)price * s->in->block * 2 > w->sends[r] - most) continue;
        *best = (swap){j, y, p, most};
    }
}

/* Exchanges a block of the node's busiest sender. False: none helps. */
static bool relieve(wires *w, uint32_t first, uint32_t end) {
    place_state *s = w->s;
    uint32_t r = first, held[PLACE_MAX_HELD], looks = LOOKS;
    for (uint32_t p = first; p < end; p++)
        if (w->sends[p] > w->sends[r]) r = p;
    swap best = {FCP_NONE, FCP_NONE, FCP_NONE, w->sends[r]};
    uint32_t count = place_gather(w->l, r, held);
    for (uint32_t i = 1; i < count; i++) { /* those that are sent most first */
        uint32_t b = held[i], k = i;
        for (; k > 0 && sent(w, held[k - 1]) < sent(w, b); k--) held[k] = held[k - 1];
        held[k] = b;
    }
    for (uint32_t i = 0; i < count && i < BLOCKS; i++)
        for (uint32_t p = first; p < end; p++)
            if (p != r) look(w, held[i], r, p, &looks, &best);
    if (best.give == FCP_NONE) return false;
    const uint64_t less = sent(w, best.give) - sent(w, best.take);
    place_move(s, w->l, best.give, best.with);
    place_move(s, w->l, best.take, r);
    w->sends[r] -= less;
    w->sends[best.with] += less;
    return true;
}

fcp_code place_even_wires(place_state *s, arena *scratch) {
    const place_input *in = s->in;
    place_lists lists;
    wires w = {.s = s, .l = &lists};
    if (in->gpus <= 1 || in->ranks <= in->gpus) return FCP_OK;
    const int64_t cap = (int64_t)place_token_cap(in);
    for (uint32_t r = 0; r < in->ranks; r++) s->left[r] = PLACE_ONE, s->room[r] = cap;
    for (uint32_t b = 0; b < in->blocks; b++) {
        s->left[s->home[b]] -= s->work[b];
        s->room[s->home[b]] -= in->tokens[b];
    }
    w.nodes = ARENA_ZNEW(scratch, uint32_t, in->blocks + (size_t)1);
    w.sends = ARENA_ZNEW(scratch, uint64_t, in->ranks);
    if (!w.nodes || !w.sends) return FCP_E_NO_MEMORY;
    fcp_code code = place_lists_init(&lists, s, scratch);
    if (!code) code = count_nodes(&w, scratch);
    for (uint32_t first = 0; first < in->ranks && !code; first += in->gpus) {
        const uint32_t end = first + in->gpus < in->ranks ? first + in->gpus : in->ranks;
        if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
        for (uint32_t i = 0; i < EXCHANGES * in->gpus && relieve(&w, first, end); i++) {}
    }
    return code;
}
