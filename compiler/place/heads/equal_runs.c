/* equal_runs.c: tokens = equal for ulysses and upipe with a ring: every rank holds floor or ceil of the mean.
 *
 * Requires: the runs of tokens of one side that the ranks hold, by sequence and start.
 * Gives: the same tokens in other runs, such that each rank holds floor or ceil of the mean. A rank with too many
 *     tokens has given away the first tokens of its runs. The runs that end earliest in their sequences gave first.
 * Cost: sorting the runs.
 *
 * Example: two ranks hold tokens 0 to 5 and 6 to 9 of a sequence. Token 0 goes to the second rank, so each has five.
 *
 * First tokens of a sequence leave because under most masks they see fewest keys, so they change the work of a group
 * least. (Inside a group it does not matter who holds which tokens, because all its ranks have equal work.) They go to
 * ranks of their own group as far as these have room.
 */
#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/place/heads/heads.h"

/* A cut: the next `tokens` tokens of a run, counted from its beginning, go to another rank. A run may have several
 * cuts. */
typedef struct cut {
    uint32_t rank;
    uint64_t tokens;
} cut;

typedef struct evener {
    uint32_t ranks, group;
    uint64_t *held, *target; /* per rank */
    uint32_t *next;          /* per group, and last for all ranks: the first rank that may have room */
} evener;

/* Finds a rank with room, in the group of the rank that gives if one there has room. */
static uint32_t find_room(evener *e, uint32_t giver) {
    const uint32_t groups = e->ranks / e->group, mine = giver / e->group;
    for (uint32_t *at = &e->next[mine]; *at < (mine + 1) * e->group; ++*at)
        if (e->held[*at] < e->target[*at]) return *at;
    uint32_t *at = &e->next[groups];
    while (e->held[*at] >= e->target[*at]) ++*at; /* some rank has too many, so some rank has too few */
    return *at;
}

/* Finds the cuts of each run: those of run i begin at cuts[first[i]], and are cut_count[i]. */
static fcp_code find_cuts(evener *e, planning *x, const problem_run *runs, uint32_t count, uint64_t *keys,
                          uint32_t *first, uint32_t *cut_count, cut *cuts) {
    uint32_t made = 0;
    for (uint32_t i = 0; i < count; i++)
        keys[i] = (runs[i].end < UINT32_MAX ? runs[i].end : UINT32_MAX) << 32 | i;
    sort_u64(keys, keys + count, count);
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t i = (uint32_t)keys[n], giver = runs[i].rank;
        uint64_t left = runs[i].end - runs[i].start;
        if (planning_stopped_at(x, n)) return FCP_E_INTERRUPTED;
        for (first[i] = made; left && e->held[giver] > e->target[giver]; cut_count[i]++) {
            const uint32_t to = find_room(e, giver);
            uint64_t tokens = e->held[giver] - e->target[giver], room = e->target[to] - e->held[to];
            if (tokens > room) tokens = room;
            if (tokens > left) tokens = left;
            cuts[made++] = (cut){to, tokens};
            e->held[giver] -= tokens, e->held[to] += tokens, left -= tokens;
        }
    }
    return FCP_OK;
}

fcp_code heads_even_out(planning *x, uint32_t group, problem_run **runs, uint32_t *count) {
    const uint32_t ranks = x->problem->ranks, n = *count;
    const size_t most = n + 2 * (size_t)ranks; /* a cut ends a run, or a giver, or a receiver */
    evener e = {ranks, group, ARENA_ZNEW(&x->scratch, uint64_t, ranks), ARENA_NEW(&x->scratch, uint64_t, ranks),
                ARENA_NEW(&x->scratch, uint32_t, ranks / group + (size_t)1)};
    uint64_t *keys = ARENA_NEW(&x->scratch, uint64_t, 2 * (size_t)n + 1);
    uint32_t *first = ARENA_NEW(&x->scratch, uint32_t, n + (size_t)1);
    uint32_t *cut_count = ARENA_ZNEW(&x->scratch, uint32_t, n + (size_t)1);
    cut *cuts = ARENA_NEW(&x->scratch, cut, most);
    problem_run *out = ARENA_NEW(&x->work, problem_run, n + most);
    if (!e.held || !e.target || !e.next || !keys || !first || !cut_count || !cuts || !out) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < n; i++) e.held[(*runs)[i].rank] += (*runs)[i].end - (*runs)[i].start;
    for (uint32_t g = 0; g < ranks / group; g++) e.next[g] = g * group;
    e.next[ranks / group] = 0;
    fcp_code code = place_even_targets(x, e.held, e.target);
    if (!code) code = find_cuts(&e, x, *runs, n, keys, first, cut_count, cuts);
    if (code) return code;
    uint32_t made = 0;
    for (uint32_t i = 0; i < n; i++) {
        problem_run rest = (*runs)[i];
        for (uint32_t c = first[i]; c < first[i] + cut_count[i]; c++) {
            out[made++] = (problem_run){rest.sequence, cuts[c].rank, rest.start, rest.start + cuts[c].tokens};
            rest.start += cuts[c].tokens;
        }
        if (rest.start < rest.end || !cut_count[i]) out[made++] = rest;
    }
    *runs = out;
    *count = made;
    return FCP_OK;
}
