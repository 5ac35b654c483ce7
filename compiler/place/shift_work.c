/* shift_work.c: balances the work of one mask where homes were chosen for another one, by moving work alone.
 *
 * Requires: a problem with its tiles; homes.
 * Gives: for each tile the rank that computes it.
 * Cost: O(tiles + moved blocks x ranks).
 * Units: pairs.
 *
 * Example: homes that are balanced under a causal mask are used for a window. A rank with the end of a long sequence
 * was given few tokens, and has too little work now. It takes Q blocks of ranks that hold many short sequences.
 *
 * A rank's cap is (1 + tolerance) times the mean. A rank that is over it gives away Q blocks:
 *   - Blocks with most pairs for each token go first. Their queries are what travels, so they move most work for each
 *     byte.
 *   - If some rank has room for all of a block's work, the block goes there whole, and its result comes back whole.
 *     Ranks of the same node are preferred.
 *   - If no rank has, or if the block has far more work than has to go, some of its tiles go. Their partial results are
 *     merged at home.
 */
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"

typedef struct shifting {
    const problem *p;
    const uint32_t *home;
    uint32_t *exec;
    uint64_t *load, cap;
} shifting;

static uint64_t room_of(const shifting *s, uint32_t r) { return sub_sat(s->cap, s->load[r]); }

/* Finds the rank with most room: in the node of `from`, if that rank has room for `work`; otherwise among all ranks. */
static uint32_t roomiest_for(const shifting *s, uint32_t from, uint64_t work) {
    const uint32_t gpus = s->p->program->gpus, first = from / gpus * gpus;
    uint32_t best = first;
    for (uint32_t r = first; r < first + gpus && r < s->p->ranks; r++)
        if (room_of(s, r) > room_of(s, best)) best = r;
    if (room_of(s, best) >= work) return best;
    for (uint32_t r = 0; r < s->p->ranks; r++)
        if (room_of(s, r) > room_of(s, best)) best = r;
    return best;
}

/* Moves a Q block's work to another rank: all of it, or so many tiles that about `over` pairs move. */
static void give_work_of(shifting *s, uint32_t block, uint64_t over) {
    const problem *p = s->p;
    const uint32_t from = s->home[block];
    const uint64_t work = p->work[block];
    const uint32_t to = roomiest_for(s, from, work);
    uint64_t room = room_of(s, to), given = 0;
    const bool whole = work <= room && work <= 2 * over;
    for (uint32_t t = p->tile_start[block]; t < p->tile_start[block + 1]; t++) {
        if (!whole && (p->tile_pairs[t] > room - given || given >= over)) continue;
        s->exec[t] = to;
        given += p->tile_pairs[t];
    }
    s->load[from] -= given;
    s->load[to] += given;
}

fcp_code place_shift(planning *x, const uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    shifting s = {.p = p, .home = home, .exec = exec, .load = ARENA_NEW(&x->scratch, uint64_t, p->ranks)};
    uint64_t *order = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)p->block_count + 1);
    if (!s.load || !order) return FCP_E_NO_MEMORY;
    for (uint32_t t = 0; t < p->tile_count; t++) exec[t] = home[p->tile_q[t]];
    place_loads(p, home, NULL, s.load);
    const uint64_t mean = p->pairs / p->ranks + (p->pairs % p->ranks != 0);
    s.cap = mean + (uint64_t)((unsigned __int128)mean * x->program->tolerance / 1000000);
    for (uint32_t b = 0; b < p->block_count; b++) order[b] = p->work[b] ? p->work[b] / p->blocks[b].tokens : 0;
    order_falling(order, order + p->block_count, p->block_count);
    for (uint32_t i = 0; i < p->block_count; i++) {
        const uint32_t b = (uint32_t)order[i];
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        if (p->work[b] && s.load[home[b]] > s.cap) give_work_of(&s, b, s.load[home[b]] - s.cap);
    }
    return FCP_OK;
}
