/* forest_cut.c: cuts trees that are too large, and picks trees: fcpc_forest_cut, fcpc_forest_pick.
 *
 * Requires: a forest.
 * Gives: a forest of the same rollouts, or of some of them, with the same sharing inside each of its trees.
 * Cost: making the new forest; a cut, moreover, a sort of the rollouts.
 *
 * *The fewest repeated tokens.* Rollouts of a tree are taken in depth-first order of their ends. A part is a range of
 * them. Let new[i] be the tokens of rollout i that the one before it does not have, and shared[i] the others. Then the
 * part from a to b has length[a] + new[a + 1] + ... + new[b] tokens, and it repeats shared[a], unless it is the first
 * part of the tree. So the least cost of the rollouts before b is
 *
 *     best[b] = min of best[a] + shared[a], over all a for which the part from a to b - 1 is not too large
 *
 * The least such a rises with b, because a part that starts later is never larger. So a queue of candidates, by rising
 * cost, has the minimum at its head (the minimum in a sliding window), and all of it takes O(rollouts).
 */
#include "compiler/forest/forest.h"

#include "compiler/base/arena.h"

#include <stdlib.h>

typedef struct leaf {
    uint64_t end, length; /* the row behind its last one, by which leaves are sorted */
    uint32_t rollout;
    uint64_t shared; /* with the leaf before it, of the same tree */
    uint64_t cost;   /* the fewest tokens that parts up to here repeat, if one starts here ... */
    uint32_t parts;  /* ... and how many parts are before it */
    uint32_t from;   /* where the last part of the cheapest cut of the leaves before this one starts */
} leaf;

static int by_end(const void *a, const void *b) {
    const leaf *x = a, *y = b;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return x->rollout < y->rollout ? -1 : x->rollout > y->rollout;
}

/* How many rows two rollouts share: a first stretch of both. */
static uint64_t shared_rows(const fcpc_forest_view *v, uint32_t a, uint32_t b) {
    const uint64_t x = v->start[a], y = v->start[b];
    uint64_t least = 0, most = v->start[a + 1] - x;
    if (most > v->start[b + 1] - y) most = v->start[b + 1] - y;
    while (least < most) {
        const uint64_t middle = least + (most - least + 1) / 2;
        if (v->rows[x + middle - 1] == v->rows[y + middle - 1]) least = middle;
        else most = middle - 1;
    }
    return least;
}

/* Whether a part that starts at leaf a repeats less than one that starts at b, or as much with fewer parts. */
static bool is_cheaper(const leaf *a, const leaf *b) {
    return a->cost != b->cost ? a->cost < b->cost : a->parts < b->parts;
}

/* Cuts one tree, whose leaves these are, in order; leaves[count] has room. part_of gets the part of each rollout;
 * parts are numbered from *part on. queue: room for count + 1. */
static void cut_tree(leaf *leaves, uint32_t count, uint64_t cap, uint32_t *queue, int64_t *part_of, int64_t *part) {
    uint32_t head = 0, tail = 0, least = 0;
    uint64_t tokens = 0;                   /* of the part from `least` on */
    for (uint32_t b = 0; b < count; b++) { /* leaf b may start a part, and is the last of one */
        while (tail > head && !is_cheaper(&leaves[queue[tail - 1]], &leaves[b])) tail--;
        queue[tail++] = b;
        tokens += b == least ? leaves[b].length : leaves[b].length - leaves[b].shared;
        for (; tokens > cap; least++) tokens -= leaves[least].length - leaves[least + 1].shared;
        while (queue[head] < least) head++;
        const leaf *start = &leaves[queue[head]];
        leaves[b + 1].from = queue[head];
        leaves[b + 1].cost = start->cost + (b + 1 < count ? leaves[b + 1].shared : 0);
        leaves[b + 1].parts = start->parts + 1;
    }
    for (uint32_t end = count; end; end = leaves[end].from) {
        for (uint32_t i = leaves[end].from; i < end; i++) part_of[leaves[i].rollout] = *part;
        (*part)++;
    }
}

/* Cuts all trees: part_of [rollouts]. */
static fcp_code cut_all(const fcpc_forest_view *v, uint64_t cap, arena *scratch, int64_t *part_of, fcp_error *err) {
    leaf *leaves = ARENA_ZNEW(scratch, leaf, v->rollouts + (size_t)2);
    leaf *own = ARENA_ZNEW(scratch, leaf, v->rollouts + (size_t)2);
    uint32_t *queue = ARENA_NEW(scratch, uint32_t, v->rollouts + (size_t)2), count = 0;
    int64_t part = 0;
    if (!leaves || !own || !queue) return fcp_fail(err, FCP_E_NO_MEMORY, "there is no memory to cut a forest");
    for (uint32_t i = 0; i < v->rollouts; i++) {
        const uint64_t length = v->start[i + 1] - v->start[i];
        part_of[i] = -1;
        if (length > cap)
            return fcp_fail(err, FCP_E_VALUE, "rollout %u has %llu tokens, more than the %llu of a tree", v->rollout[i],
                            (unsigned long long)length, (unsigned long long)cap);
        if (length)
            leaves[count++] = (leaf){.end = (uint64_t)v->rows[v->start[i + 1] - 1], .length = length, .rollout = i};
    }
    qsort(leaves, count, sizeof *leaves, by_end);
    for (uint32_t i = 0, next; i < count; i = next) {
        const uint32_t tree = v->tree[leaves[i].rollout];
        for (next = i; next < count && v->tree[leaves[next].rollout] == tree; next++) {
            own[next - i] = leaves[next];
            if (next > i) own[next - i].shared = shared_rows(v, leaves[next - 1].rollout, leaves[next].rollout);
        }
        own[next - i] = (leaf){0};
        cut_tree(own, next - i, cap, queue, part_of, &part);
    }
    return FCP_OK;
}

/* A forest of these rollouts of another one, which share rows if they have the same number in `groups`. */
static fcp_code regrow(const fcpc_forest_view *v, const uint64_t *lengths, const uint64_t *first, const int64_t *groups,
                       const uint32_t *names, uint32_t count, fcpc_forest **out_forest, fcp_error *err) {
    const fcpc_rollouts r =
        {.size = sizeof r, .count = count, .lengths = lengths, .first = first, .tokens = v->rows, .groups = groups};
    return forest_grow(&r, names, v->token, out_forest, err);
}

fcp_code fcpc_forest_cut(const fcpc_forest *forest, uint64_t tokens, fcpc_forest **out_forest, fcp_error *err) {
    const fcpc_forest_view *v = &forest->view;
    arena scratch = {0};
    int64_t *part_of = ARENA_NEW(&scratch, int64_t, v->rollouts + (size_t)1);
    uint64_t *lengths = ARENA_NEW(&scratch, uint64_t, v->rollouts + (size_t)1);
    fcp_code code = part_of && lengths ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "there is no memory to cut a forest");
    if (!code) code = cut_all(v, tokens, &scratch, part_of, err);
    for (uint32_t i = 0; !code && i < v->rollouts; i++) lengths[i] = v->start[i + 1] - v->start[i];
    if (!code) code = regrow(v, lengths, v->start, part_of, v->rollout, v->rollouts, out_forest, err);
    arena_free(&scratch);
    return code;
}

fcp_code fcpc_forest_pick(const fcpc_forest *forest, const uint32_t *trees, uint32_t count, fcpc_forest **out_forest,
                          fcp_error *err) {
    const fcpc_forest_view *v = &forest->view;
    for (uint32_t i = 0; i < count; i++) {
        if (trees[i] >= v->trees)
            return fcp_fail(err, FCP_E_ARGUMENT, "there is no tree %u: the forest has %u", trees[i], v->trees);
        if (i && trees[i] <= trees[i - 1])
            return fcp_fail(err, FCP_E_ARGUMENT, "tree %u stands behind tree %u: numbers of trees rise", trees[i],
                            trees[i - 1]);
    }
    arena scratch = {0};
    const size_t room = v->rollouts + (size_t)1;
    bool *wanted = ARENA_ZNEW(&scratch, bool, v->trees + (size_t)1);
    uint64_t *lengths = ARENA_NEW(&scratch, uint64_t, room), *first = ARENA_NEW(&scratch, uint64_t, room);
    int64_t *groups = ARENA_NEW(&scratch, int64_t, room);
    uint32_t *names = ARENA_NEW(&scratch, uint32_t, room), picked = 0;
    fcp_code code = wanted && lengths && first && groups && names
                        ? FCP_OK
                        : fcp_fail(err, FCP_E_NO_MEMORY, "there is no memory to pick trees");
    for (uint32_t i = 0; !code && i < count; i++) wanted[trees[i]] = true;
    for (uint32_t i = 0; !code && i < v->rollouts; i++) {
        if (v->tree[i] == UINT32_MAX || !wanted[v->tree[i]]) continue;
        lengths[picked] = v->start[i + 1] - v->start[i];
        first[picked] = v->start[i];
        groups[picked] = v->tree[i];
        names[picked++] = v->rollout[i];
    }
    if (!code) code = regrow(v, lengths, first, groups, names, picked, out_forest, err);
    arena_free(&scratch);
    return code;
}
