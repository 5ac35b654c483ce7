/* degrees.c: chooses how many ranks each group gets (its degree).
 *
 * Requires: groups with the least ranks that each needs, in all no more than there are; the cost of cells and bytes.
 * Gives: a degree for each group. They minimize the makespan: the largest time of a group.
 * Cost: O(ranks + groups) evaluations of a group's time, sorting them, and a binary search for each group in each of
 *     O(log(ranks + groups)) steps.
 * Source: the objective and the form of the time are those of "Flexible Context Parallelism" (2025), sections 4.2 and
 *     4.3, which finds degrees by dynamic programming in O(groups ranks^2). Here a binary search for the makespan finds
 *     them.
 *
 * How the makespan X is found:
 *   1. For each group a list is made of the degrees that matter, with their times: those at which its time is less than
 *      at all smaller degrees. The list ends where more ranks cannot matter: at a time that is no longer than the work
 *      of all groups over all ranks, which X cannot go below; or where launches alone would take longer.
 *   2. X is one of these times. Given X, each group takes the least degree at which its time is X or less. X is
 *      possible if these degrees add up to no more than the ranks.
 *   3. The least possible X is found by binary search in the sorted times.
 *
 * The time of a group on d ranks is its work over d, plus what its ring does not hide. The ring has d - 1 steps. In
 * each, the transfer of a chunk of K and V, or a launch, may take longer than the step's kernel; the difference is not
 * hidden. A chunk goes to a node once and then round inside it, so the ranks of a node share what comes from other
 * nodes.
 *
 * The linear layers of a step take a time for each token (model { linear = ... }). They compute the same tokens as the
 * rank's attention, nothing travels for them, and they hide no transfer of the ring; so their time over d is added.
 *
 * Work is counted in FULL cells. A PARTIAL cell counts as two FULL ones. Each 128 queries of a step add half a cell.
 * This is about what the profiles say of all GPUs (H200 forward: 2.3 and 0.64).
 *
 * The busiest rank decides. In zigzag ranks have equal work. In a ring (one chunk for each rank) the last rank has
 * most. Its work is estimated as the smaller of two figures, but as no less than the mean:
 *   - 2 - 1 / d times the mean, which is right under a causal mask;
 *   - all cells of the group, as if none were empty, over d, which is right under a full mask.
 *
 * The profile has a time for every kind of cell, but one time per cell is used here. Where kernels hide the ring, it
 * scales the times of all groups alike, and an error in it changes no choice. With four such times, their errors would
 * decide near ties.
 */
#include "compiler/place/groups/groups.h"

#include "compiler/base/bisect.h"
#include "compiler/base/heap.h"
#include "compiler/base/sort.h"

typedef unsigned __int128 wide;
#define LONGEST (UINT64_C(1) << 62)
static uint64_t at_most(wide time) { return time < LONGEST ? (uint64_t)time : LONGEST; }

/* Work in half cells. shared_work is divided among a group's ranks; own_work is what each rank has in all its steps. */
static uint64_t shared_work(const groups_group *g) { return 2 * g->full + 4 * g->partial; }
static uint64_t own_work(const groups_group *g) { return g->queries / FCP_CELL + 1; }

/* The work of the busiest rank of a group on d ranks, times d. */
static wide most_work(const groups_model *m, const groups_group *g, uint32_t d) {
    wide work = shared_work(g), most = work;
    if (m->ring) {
        wide last = work * (2 * (uint64_t)d - 1) / d, all = 2 * (wide)g->cells;
        if (all < last) last = all;
        if (last > most) most = last;
    }
    return most + (wide)own_work(g) * d;
}

/* The least time that a step of the ring takes, however short its kernel is: that of its transfer or of a launch. */
static wide least_step(const groups_model *m, const groups_pass *p, const groups_group *g, uint32_t d) {
    const wide bytes = (wide)(g->keys / d + 1) * p->bytes * 1000000000000;
    wide least = m->latency[FCP_LOCAL] + bytes / m->rate[FCP_LOCAL];
    if (d > m->gpus) {
        wide net = m->latency[FCP_NET] + bytes / m->rate[FCP_NET] / m->gpus;
        if (net > least) least = net;
    }
    return least > p->launch ? least : p->launch;
}

uint64_t groups_time(const groups_model *m, const groups_group *g, uint32_t d) {
    const wide work = most_work(m, g, d);
    wide time = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const groups_pass *p = &m->pass[pass];
        if (!p->cell) continue; /* the plan does not have this pass */
        wide kernels = work * p->cell / 2 / d, step = kernels / d, least = least_step(m, p, g, d);
        time += kernels + (wide)g->queries * p->linear / d;
        if (least > step) time += (least - step) * (d - 1);
    }
    return at_most(time);
}

/* A lower bound on the group's time on d or more ranks: the time of d - 1 launches, or of each rank's own work. */
static uint64_t floor_of(const groups_model *m, const groups_group *g, uint32_t d) {
    wide time = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        wide own = (wide)own_work(g) * m->pass[pass].cell / 2, launches = (wide)(d - 1) * m->pass[pass].launch;
        time += own > launches ? own : launches;
    }
    return at_most(time);
}

/* A degree that matters, and its time: at all smaller degrees the group takes longer. Those of group i are
 * steps[start[i]] to steps[start[i + 1] - 1]. */
typedef struct step {
    uint64_t time;
    uint32_t degree;
} step;
typedef struct stairs {
    step *steps;
    size_t count, room;
    size_t *start; /* per group, + 1 */
} stairs;

static fcp_code make_stairs(const groups_model *m, const groups_group *groups, uint32_t count, uint32_t ranks,
                            arena *scratch, stairs *out) {
    wide work = 0, linear = 0;
    uint64_t least = 0, cell = m->pass[FCP_FORWARD].cell + m->pass[FCP_BACKWARD].cell;
    for (uint32_t i = 0; i < count; i++) {
        least += groups[i].least;
        work += shared_work(&groups[i]);
        linear += (wide)groups[i].queries * (m->pass[FCP_FORWARD].linear + m->pass[FCP_BACKWARD].linear);
    }
    const uint64_t rounding = 4, mean = at_most((work * cell / 2 + linear) / ranks),
                   bound = mean > rounding ? mean - rounding : 0;
    *out = (stairs){.start = ARENA_NEW(scratch, size_t, count + (size_t)1)};
    if (!out->start) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const groups_group *g = &groups[i];
        uint64_t best = UINT64_MAX, most = ranks - (least - g->least);
        out->start[i] = out->count;
        for (uint32_t d = g->least; d <= most && best > bound && floor_of(m, g, d) < best; d++) {
            uint64_t time = groups_time(m, g, d);
            if (time >= best) continue;
            if (!(out->steps = arena_grow(scratch, out->steps, out->count, &out->room, sizeof *out->steps)))
                return FCP_E_NO_MEMORY;
            out->steps[out->count++] = (step){best = time, d};
        }
    }
    out->start[count] = out->count;
    return FCP_OK;
}

/* The least degree at which the group takes `time` or less; FCP_NONE: there is none. */
static uint32_t degree_for(const stairs *s, uint32_t g, uint64_t time) {
    size_t low = s->start[g], high = s->start[g + 1];
    BISECT(low, high, i, s->steps[i].time > time) /* times fall */
    return low < s->start[g + 1] ? s->steps[low].degree : FCP_NONE;
}

static bool fits(const stairs *s, uint32_t count, uint32_t ranks, uint64_t time) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count && sum <= ranks; i++) sum += degree_for(s, i, time);
    return sum <= ranks;
}

/* Gives away the ranks that are left over, one by one, each to the group with the largest time that it makes faster. */
static fcp_code give_rest(const groups_model *m, groups_group *groups, uint32_t count, uint32_t rest, arena *scratch) {
    heap_entry *heap = ARENA_NEW(scratch, heap_entry, count + (size_t)1); /* the largest time first */
    if (!heap) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        heap_push(heap, i, (heap_entry){UINT64_MAX - groups_time(m, &groups[i], groups[i].degree), i});
    while (rest && count) {
        groups_group *g = &groups[heap[0].value];
        heap_entry next = {UINT64_MAX - groups_time(m, g, g->degree + 1), heap[0].value};
        if (next.key > heap[0].key) {
            g->degree++;
            rest--;
        } else {
            next = heap[--count]; /* no rank helps it, now or later */
        }
        heap_replace(heap, count, next);
    }
    return FCP_OK;
}

fcp_code groups_choose(const groups_model *m, groups_group *groups, uint32_t count, uint32_t ranks, arena *scratch) {
    stairs s;
    fcp_code code = count ? make_stairs(m, groups, count, ranks, scratch, &s) : FCP_OK;
    if (code || !count) return code;
    uint64_t *times = ARENA_NEW(scratch, uint64_t, 2 * s.count);
    if (!times) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < s.count; i++) times[i] = s.steps[i].time;
    sort_u64(times, times + s.count, s.count);
    size_t low = 0, high = s.count - 1; /* the largest time always fits: it is that of a group on its least ranks */
    BISECT(low, high, i, !fits(&s, count, ranks, times[i]))
    uint32_t rest = ranks;
    for (uint32_t i = 0; i < count; i++) rest -= groups[i].degree = degree_for(&s, i, times[low]);
    return give_rest(m, groups, count, rest, scratch);
}
