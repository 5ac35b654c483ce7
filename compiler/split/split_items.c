/* split_items.c: packs items into few bins of about equal cost.
 *
 * Requires: items and a cap, as split.h has them.
 * Gives: the bin of each item. No bin exceeds the cap, and each is accepted.
 * Cost: sorting the items; then O(log bins) for each, as long as bins have room; all of that for each number of bins
 *     that is tried. Keeping the order: O(items) for each of at most 64 limits of cost.
 *
 * Free order (LPT, longest processing time first: Graham, 1969). For a number of bins, items go by falling cost into
 * the cheapest bin that has room. If some item finds none, or if a bin is not accepted, one more bin is tried. The
 * first number is the least that the cap allows. Without a cap that hinders, LPT's costliest bin has at most 4/3 of the
 * least cost there is.
 *
 * Keeping the order. Bins are filled one after the other up to a limit of cost. The least limit with which there are no
 * more bins than without one is found by bisection; without accepts(), no split into as many neighbouring parts has a
 * cheaper costliest one. A part that is not accepted is halved.
 */
#include "compiler/split/split.h"

#include "compiler/base/bisect.h"
#include "compiler/base/heap.h"
#include "compiler/base/sort.h"
#include "runtime/plan/enums.h"

enum { LOOKS = 32 }; /* cheapest bins that are asked for room before the tree is */

typedef struct packing {
    const split_item *items;
    const split_how *how;
    uint32_t count, bins, leaves; /* leaves of the tree of rooms: a power of 2 */
    uint64_t *cost, *room;        /* per bin; room: a tree, whose nodes have the most room below them */
    heap_entry *heap;             /* bins by cost; a key may be of before, and then is too small */
    uint32_t *of, *start, *order; /* per item: its bin; per bin, + 1: where its items begin in order */
} packing;

/* The first bin with so much room; there is one. */
static uint32_t find_room(const packing *p, uint64_t tokens) {
    size_t at = 1;
    while (at < p->leaves) at = 2 * at + (p->room[2 * at] < tokens);
    return (uint32_t)(at - p->leaves);
}

static void put(packing *p, uint32_t item, uint32_t bin) {
    p->of[item] = bin;
    p->cost[bin] += p->items[item].cost + !p->items[item].cost; /* with a bin for each item, all are used */
    size_t at = (size_t)p->leaves + bin;
    p->room[at] -= p->items[item].tokens;
    while (at /= 2) p->room[at] = p->room[2 * at] > p->room[2 * at + 1] ? p->room[2 * at] : p->room[2 * at + 1];
}

/* Puts an item into the cheapest bin that has room, of those that are looked at. False: no bin has room. */
static bool put_cheapest(packing *p, uint32_t item) {
    const uint64_t tokens = p->items[item].tokens;
    heap_entry passed[LOOKS];
    uint32_t count = p->bins, looks = 0, bin = FCP_NONE;
    if (p->room[1] < tokens) return false;
    while (count && looks < LOOKS && bin == FCP_NONE) {
        const heap_entry e = {p->cost[p->heap[0].value], p->heap[0].value};
        if (e.key != p->heap[0].key) { /* it has grown since */
            heap_replace(p->heap, count, e);
        } else if (p->room[p->leaves + e.value] >= tokens) {
            bin = e.value;
        } else {
            passed[looks++] = e;
            count--;
            heap_replace(p->heap, count, p->heap[count]);
        }
    }
    while (looks) heap_push(p->heap, count++, passed[--looks]);
    put(p, item, bin == FCP_NONE ? find_room(p, tokens) : bin);
    return true;
}

/* Lists the items of each bin in their order, and whether all bins are accepted. */
static bool all_accepted(packing *p) {
    for (uint32_t b = 0; b <= p->bins; b++) p->start[b] = 0;
    for (uint32_t i = 0; i < p->count; i++) p->start[p->of[i] + 1]++;
    for (uint32_t b = 0; b < p->bins; b++) p->start[b + 1] += p->start[b];
    for (uint32_t i = 0; i < p->count; i++) p->order[p->start[p->of[i]]++] = i;
    for (uint32_t b = p->bins; b > 0; b--) p->start[b] = p->start[b - 1];
    p->start[0] = 0;
    bool good = true;
    for (uint32_t b = 0; b < p->bins && good && p->how->accepts; b++)
        good = p->how->accepts(p->how->context, p->order + p->start[b], p->start[b + 1] - p->start[b]);
    return good;
}

/* Packs items, in the order of `falling`, into so many bins. False: that is not possible in this way. */
static bool pack(packing *p, const uint64_t *falling, uint32_t bins) {
    p->bins = bins;
    for (p->leaves = 1; p->leaves < bins;) p->leaves *= 2;
    for (uint32_t b = 0; b < p->leaves; b++) p->room[p->leaves + b] = b < bins ? p->how->cap : 0;
    for (size_t at = p->leaves; --at > 0;)
        p->room[at] = p->room[2 * at] > p->room[2 * at + 1] ? p->room[2 * at] : p->room[2 * at + 1];
    for (uint32_t b = 0; b < bins; b++) {
        p->cost[b] = 0;
        p->heap[b] = (heap_entry){0, b};
    }
    for (uint32_t i = 0; i < p->count; i++)
        if (!put_cheapest(p, (uint32_t)falling[i])) return false;
    return all_accepted(p);
}

/* Renumbers bins by falling cost, and leaves out those without items. */
static void number_bins(packing *p, uint64_t *keys, uint64_t *room) {
    uint32_t used = 0;
    for (uint32_t b = 0; b < p->bins; b++) keys[b] = p->cost[b];
    order_falling(keys, room, p->bins);
    for (uint32_t i = 0; i < p->bins; i++) {
        const uint32_t b = (uint32_t)keys[i];
        room[b] = used;
        used += p->start[b + 1] > p->start[b];
    }
    for (uint32_t i = 0; i < p->count; i++) p->of[i] = (uint32_t)room[p->of[i]];
    p->bins = used;
}

static bool split_freely(packing *p, uint32_t bins, uint64_t *keys, uint64_t *room) {
    for (uint32_t i = 0; i < p->count; i++) keys[i] = p->items[i].cost;
    order_falling(keys, room, p->count);
    /* With a bin for each item all are accepted. Steps grow, so that many bins too few are soon made up for. */
    while (!pack(p, keys, bins) && bins < p->count) {
        const uint32_t step = bins / 32 + 1, rest = p->count - bins;
        bins += step < rest ? step : rest;
    }
    number_bins(p, keys, room);
    return p->bins;
}

/* The number of parts if each is filled up to a cost. Items that cost more have a part each. */
static uint32_t parts_of(const packing *p, uint64_t most, uint32_t *of) {
    uint64_t tokens = 0, cost = 0;
    uint32_t parts = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const split_item *x = &p->items[i];
        if (!i || tokens + x->tokens > p->how->cap || cost + x->cost > most) parts++, tokens = cost = 0;
        tokens += x->tokens;
        cost += x->cost;
        if (of) of[i] = parts - 1;
    }
    return parts;
}

/* Marks where parts begin that accepts() takes: those of `first` to `end` - 1. */
static void halve(packing *p, uint32_t first, uint32_t end) {
    while (first < end) {
        uint32_t size = end - first;
        while (size > 1 && p->how->accepts && !p->how->accepts(p->how->context, p->order + first, size))
            size = (size + 1) / 2;
        p->start[first] = 1;
        first += size;
    }
}

static void split_in_order(packing *p, uint32_t least) {
    uint64_t low = 0, high = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        high += p->items[i].cost;
        if (p->items[i].cost > low) low = p->items[i].cost;
        p->order[i] = i;
        p->start[i] = 0;
    }
    uint32_t most = parts_of(p, high, NULL);
    if (most < least) most = least;
    BISECT(low, high, limit, parts_of(p, limit, NULL) > most)
    parts_of(p, low, p->of);
    for (uint32_t first = 0, end; first < p->count; first = end) {
        for (end = first + 1; end < p->count && p->of[end] == p->of[first];) end++;
        halve(p, first, end);
    }
    p->bins = 0;
    for (uint32_t i = 0; i < p->count; i++) p->of[i] = (p->bins += p->start[i]) - 1;
}

fcp_code split_items(const split_item *items, uint32_t count, const split_how *how, arena *scratch, uint32_t *out_of,
                     uint32_t *out_bins) {
    const size_t n = (size_t)count + 1;
    packing p = {.items = items,
                 .how = how,
                 .count = count,
                 .of = out_of,
                 .cost = ARENA_NEW(scratch, uint64_t, n),
                 .room = ARENA_NEW(scratch, uint64_t, 4 * n),
                 .heap = ARENA_NEW(scratch, heap_entry, n),
                 .start = ARENA_NEW(scratch, uint32_t, n + 1),
                 .order = ARENA_NEW(scratch, uint32_t, n)};
    uint64_t *keys = ARENA_NEW(scratch, uint64_t, n), *room = ARENA_NEW(scratch, uint64_t, n), sum = 0;
    if (!p.cost || !p.room || !p.heap || !p.start || !p.order || !keys || !room) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        sum += items[i].tokens;
        if (items[i].tokens <= how->cap) continue;
        *out_bins = i;
        return FCP_E_VALUE;
    }
    uint64_t least = how->cap ? sum / how->cap + (sum % how->cap != 0) : 0;
    if (least < how->least) least = how->least;
    if (least > count) least = count;
    if (how->keep_order) split_in_order(&p, (uint32_t)least);
    else if (count) split_freely(&p, least ? (uint32_t)least : 1, keys, room);
    *out_bins = p.bins;
    return FCP_OK;
}
