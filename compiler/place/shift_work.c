/* shift_work.c: moves work where homes are given: from ranks that have too much to ranks that have time.
 *
 * Requires: a problem with its tiles; homes, which another mask has balanced.
 * Gives: for each tile the rank that computes it.
 * Cost: O(tiles + moved blocks x ranks).
 * Units: pairs.
 *
 * A rank over the cap (the tolerance over the mean) gives away Q blocks, those with most pairs for each token first:
 * their queries are what travels, so fewest bytes go for the work that goes. A block goes whole if a rank has room for
 * it, one of the same node before others; then its result comes back whole. Else as many of its tiles go as fit, and
 * its partial results are merged at home.
 *
 * Example: the homes of a causal mask under a window. Ranks with the ends of long sequences were given few tokens, and
 * have too little work now; they take Q blocks of ranks that hold many short sequences.
 */
#include <stdlib.h>

#include "compiler/base/sort.h"
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

typedef struct shifting {
    const problem *p;
    const uint32_t *home;
    uint32_t *exec;
    uint64_t *load, cap;
} shifting;

static uint64_t room_of(const shifting *s, uint32_t r) { return s->load[r] < s->cap ? s->cap - s->load[r] : 0; }

/* The rank with most room: of the node of `from` if one of it has room for `work`, else of all. */
static uint32_t find_room(const shifting *s, uint32_t from, uint64_t work) {
    const uint32_t gpus = s->p->program->gpus, first = from / gpus * gpus;
    uint32_t best = first;
    for (uint32_t r = first; r < first + gpus && r < s->p->ranks; r++)
        if (room_of(s, r) > room_of(s, best)) best = r;
    if (room_of(s, best) >= work) return best;
    for (uint32_t r = 0; r < s->p->ranks; r++)
        if (room_of(s, r) > room_of(s, best)) best = r;
    return best;
}

/* Gives away work of a Q block; false: nobody has room for any of it. */
static bool give(shifting *s, uint32_t block, uint64_t over) {
    const problem *p = s->p;
    const uint32_t from = s->home[block];
    const uint64_t work = p->work[block];
    const uint32_t to = find_room(s, from, work);
    uint64_t room = room_of(s, to), given = 0;
    const bool whole = work <= room && work <= 2 * over; /* no more than needed, unless it is little more */
    for (uint32_t t = p->tile_start[block]; t < p->tile_start[block + 1]; t++) {
        if (!whole && (p->tile_pairs[t] > room - given || given >= over)) continue;
        s->exec[t] = to;
        given += p->tile_pairs[t];
    }
    s->load[from] -= given;
    s->load[to] += given;
    return given > 0;
}

fcp_code place_shift(planning *x, const uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    shifting s = {.p = p, .home = home, .exec = exec, .load = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks)};
    uint64_t *order = ARENA_NEW(&x->scratch, uint64_t, p->block_count + (size_t)1);
    uint64_t *other = ARENA_NEW(&x->scratch, uint64_t, p->block_count + (size_t)1), most = 1;
    if (!s.load || !order || !other) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count; t++) s.load[exec[t] = home[p->tile_q[t]]] += p->tile_pairs[t];
    const uint64_t mean = p->pairs / p->ranks + (p->pairs % p->ranks != 0);
    s.cap = mean + (uint64_t)((unsigned __int128)mean * x->program->tolerance / 1000000);
    for (uint32_t b = 0; b < p->block_count; b++)
        if (p->blocks[b].tokens && p->work[b] / p->blocks[b].tokens > most) most = p->work[b] / p->blocks[b].tokens;
    unsigned down = 0;
    while (most >> down > UINT32_MAX) down++;
    uint32_t count = 0;
    for (uint32_t b = 0; b < p->block_count; b++)
        if (p->work[b]) order[count++] = (UINT32_MAX - (p->work[b] / p->blocks[b].tokens >> down)) << 32 | b;
    sort_u64(order, other, count);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t b = (uint32_t)order[i];
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        if (s.load[home[b]] > s.cap) give(&s, b, s.load[home[b]] - s.cap);
    }
    return FCP_OK;
}
