/* sweep.c: gives runs of rows to bins (ranks or nodes) that have room, in rectangles of good shape.
 *
 * Requires: runs in groups, one for each sequence (cad_group); the room of every bin; decisions, or none.
 * Gives: shares. No bin gets more than its room. What no bin has room for goes to FCP_NONE.
 * Cost: O((runs + shares) (log bins + bins moved in a list)), and O(log cuts) sums a share.
 * Units: pairs, bytes.
 *
 * What shape is good. A bin that takes W pairs needs x rows and y keys, x y >= W. A row costs `part` bytes, a key `kv`.
 * The sum is least at y = sqrt(W part / kv). It follows:
 *   - Rows that see few more keys than y are taken whole.
 *   - Rows that see many more are divided between several bins, each with a segment of the keys.
 *   - The more room a bin has, the larger is its y. So long rows go to the bins with most room.
 *
 * How bins are filled. The rows of a sequence are taken from the last one down, a strip at a time:
 *   1. Choose a few bins for the strip; one, if rows are taken whole.
 *   2. Take as many rows as fill them. Rows are cut only between shards, so the last shard hardly ever fits exactly. Of
 *      this shard the strip takes as many keys as fit, from the first on. The other keys go to the next strip.
 *   3. Divide the strip among its bins along the keys.
 *
 *         keys ->
 *         |  bin 1   |  bin 2   |  bin 3  |
 *   rows  |          |          |         |
 *    |    |......................---------|   here the first keys of the last shard end
 *         |  bin 4   |  bin 5      |  bin 6 |
 *
 * So each bin is filled at once. Room that is left over would be filled with a small share later, and small shares cost
 * most for each pair. When few rows of a sequence are left, they go to the bin that they fill best.
 *
 * What the caller can change (cad_decisions): the order of sequences, the first bin of a strip, one bin more or fewer
 * in a strip, and whether a strip gets bins of similar room. random_restarts.c looks for better decisions.
 */
#include "compiler/place/cad/cad.h"

#include <string.h>

#include "compiler/base/bisect.h"
#include "compiler/base/integers.h"
#include "compiler/base/sort.h"

bool cad_add_share(arena *a, cad_shares *list, const cad_run *r, uint32_t rank) {
    if (!(list->at = arena_grow(a, list->at, list->count, &list->room, sizeof *list->at))) return false;
    list->at[list->count++] = (cad_share){*r, rank};
    return true;
}

/* --- prices ------------------------------------------------------------------------------------------------------- */

/* price * room * parts / keys, without overflow. */
static uint64_t rows_cost(uint64_t price, uint64_t room, uint64_t parts, uint64_t keys) {
    const unsigned __int128 all = (unsigned __int128)price * room * parts;
    return all >> 64 ? (uint64_t)(all / keys) : (uint64_t)all / keys;
}

uint64_t cad_cost(const cad_price *p, uint64_t keys, uint64_t room, bool whole, uint32_t *out_parts) {
    if (!keys) keys = 1;
    uint64_t best = p->kv * keys + rows_cost(whole ? p->whole : p->part, room, 1, keys);
    uint64_t good = p->kv ? square_root((unsigned __int128)p->part * room / p->kv) : keys;
    uint64_t parts = keys / (good ? good : 1);
    *out_parts = 1;
    for (uint64_t s = parts; s <= parts + 1 && s <= CAD_PARTS; s++) {
        if (s < 2) continue;
        uint64_t row = whole ? p->part - (p->part - p->whole) / s : p->part; /* one in s returns a result, no state */
        uint64_t cost = p->kv * (keys / s) + rows_cost(row, room, s, keys);
        if (cost >= best) continue;
        best = cost;
        *out_parts = (uint32_t)s;
    }
    return best;
}

/* --- bins by room ------------------------------------------------------------------------------------------------- */

typedef struct entry {
    uint64_t room;
    uint32_t bin;
} entry;

/* A growing list of runs. */
typedef struct pile {
    cad_run *runs;
    uint64_t *work; /* of each */
    size_t count, room;
} pile;

typedef struct sweep {
    const cad_input *in;
    cad_decisions *decisions; /* NULL: all as usual */
    const cad_pairs *pairs;
    arena *memory;
    cad_shares *out;
    uint64_t *room;
    entry *bins; /* not taken, by rising room; of equal rooms the lower bin comes last */
    uint32_t count;
    uint64_t crumb;
    pile stack; /* the runs that are left of the group at hand; the last is taken first */
    pile saved; /* the stack before a strip was cut */
    uint64_t rest; /* the work of the stack */
    uint64_t first_key, last_key; /* of the group */
    pile strip; /* what is given to the next bins */
} sweep;

/* Makes room for so many runs; what the pile has is kept. */
static bool reserve(sweep *s, pile *p, size_t count) {
    if (count <= p->room) return true;
    const size_t room = 2 * count + 14;
    cad_run *runs = ARENA_NEW(s->memory, cad_run, room);
    uint64_t *work = ARENA_NEW(s->memory, uint64_t, room);
    if (!runs || !work) return false;
    if (p->count) memcpy(runs, p->runs, p->count * sizeof *runs), memcpy(work, p->work, p->count * sizeof *work);
    *p = (pile){runs, work, p->count, room};
    return true;
}

static bool push(sweep *s, pile *p, const cad_run *r, uint64_t work) {
    if (!reserve(s, p, p->count + 1)) return false;
    p->runs[p->count] = *r;
    p->work[p->count++] = work;
    return true;
}

static bool copy_runs(sweep *s, pile *to, const cad_run *runs, const uint64_t *work, size_t count) {
    to->count = 0;
    if (!reserve(s, to, count)) return false;
    memcpy(to->runs, runs, count * sizeof *runs);
    memcpy(to->work, work, count * sizeof *work);
    to->count = count;
    return true;
}

/* Adds a bin to the list, unless its room is too small to use. */
static void insert_bin(sweep *s, uint32_t bin) {
    uint64_t room = s->room[bin];
    if (room <= s->crumb) return;
    uint32_t low = 0, high = s->count;
    BISECT(low, high, i, s->bins[i].room < room || (s->bins[i].room == room && s->bins[i].bin > bin))
    for (uint32_t i = s->count++; i > low; i--) s->bins[i] = s->bins[i - 1];
    s->bins[low] = (entry){room, bin};
}

static uint32_t remove_bin(sweep *s, uint32_t i) {
    uint32_t bin = s->bins[i].bin;
    for (s->count--; i < s->count; i++) s->bins[i] = s->bins[i + 1];
    return bin;
}

/* Best fit: of the bins that have room for `work`, the place of the one with least room; if none has, the place of the
 * one with most room. */
static uint32_t tightest(const sweep *s, uint64_t work) {
    uint32_t low = 0, high = s->count;
    BISECT(low, high, i, s->bins[i].room < work)
    return low < s->count ? low : s->count - 1;
}

/* --- decisions ---------------------------------------------------------------------------------------------------- */

/* Takes the next decision, a number below CAD_WAYS; 0 is the usual choice. */
static uint32_t decide(sweep *s) {
    cad_decisions *d = s->decisions;
    if (!d) return 0;
    uint32_t i = d->asked++;
    return i < CAD_DECISIONS ? d->way[i] : 0;
}

enum { ALL_WAYS = (1 << CAD_WAYS) - 1 };

/* Notes which ways would have had the same effect as the last decision. ways: a bit for each. */
static void note_same(sweep *s, uint32_t ways) {
    cad_decisions *d = s->decisions;
    const uint32_t last = d ? d->asked - 1 : CAD_NOTED;
    if (last < CAD_NOTED) d->same[last] = (uint8_t)ways;
}

/* All ways on the same side of `from` as `way`: those below it, or the others. A bit for each. */
static uint32_t side_of(uint32_t way, uint32_t from) {
    const uint32_t below = (1u << from) - 1;
    return way < from ? below : ALL_WAYS & ~below;
}

/* Chooses the first bin of a strip and removes it from the list, which is sorted by room. *beside: the other bins of
 * the strip may be those just before this place, which have similar room. */
static uint32_t take_first(sweep *s, uint32_t *beside) {
    const uint32_t way = decide(s), last = s->count - 1, usual = tightest(s, s->rest);
    uint32_t same = 0, place[CAD_WAYS];
    for (uint32_t w = 0; w < CAD_WAYS; w++) place[w] = w <= CAD_WAYS / 2 ? last : last - (w - CAD_WAYS / 2) % s->count;
    *beside = place[way];
    const uint32_t at = way <= CAD_WAYS / 2 ? usual : *beside;
    for (uint32_t w = 0; w < CAD_WAYS; w++)
        if (place[w] == *beside && (w <= CAD_WAYS / 2 ? usual : place[w]) == at) same |= 1u << w;
    note_same(s, same);
    return remove_bin(s, at);
}

/* Decides into how many parts the keys are divided: `usual`, one more or one fewer, but at most `most`. `usual` would
 * be cheapest for one bin. */
static uint32_t decide_parts(sweep *s, uint32_t usual, uint32_t most) {
    const uint32_t way = decide(s);
    uint32_t same = 0, parts[CAD_WAYS];
    for (uint32_t w = 0; w < CAD_WAYS; w++) {
        parts[w] = w >= CAD_WAYS * 3 / 4 ? usual + 1 : w >= CAD_WAYS / 2 && usual > 1 ? usual - 1 : usual;
        if (parts[w] > most) parts[w] = most;
    }
    for (uint32_t w = 0; w < CAD_WAYS; w++) same |= (uint32_t)(parts[w] == parts[way]) << w;
    note_same(s, same);
    return parts[way];
}

/* Decides whether the other bins of a strip are bins of similar room. open: there is a choice. */
static bool decide_alike(sweep *s, bool open) {
    const uint32_t way = decide(s);
    note_same(s, open ? side_of(way, CAD_WAYS / 2) : ALL_WAYS);
    return way >= CAD_WAYS / 2;
}

/* Decides whether the sequence at hand waits, so that the next one comes first. Without bins that has no effect. */
static bool decide_waits(sweep *s) {
    const uint32_t way = decide(s);
    note_same(s, s->count ? side_of(way, CAD_WAYS * 3 / 4) : ALL_WAYS);
    return way >= CAD_WAYS * 3 / 4;
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

/* Moves rows from the top of the stack to s->strip until they have `most` work: whole shards, and then as many of the
 * first keys of the next shard as fit. Returns their work; UINT64_MAX: no memory. */
static uint64_t cut_strip(sweep *s, uint64_t most) {
    pile *stack = &s->stack;
    uint64_t taken = 0, part;
    s->strip.count = 0;
    while (stack->count) {
        cad_run *top = &stack->runs[stack->count - 1], mine = *top;
        uint64_t *work = &stack->work[stack->count - 1];
        if (*work <= most - taken) {
            stack->count--;
            if (*work && !push(s, &s->strip, &mine, *work)) return UINT64_MAX;
            taken += *work;
            continue;
        }
        top->y = mine.x = cad_last_rows(s->pairs, top, most - taken, &part);
        *work -= part;
        if (part && !push(s, &s->strip, &mine, part)) return UINT64_MAX;
        taken += part;
        if (taken && most - taken <= s->crumb) break;
        cad_run next = *top; /* the shard that does not fit */
        next.x = cad_row_before(s->pairs, top);
        mine = next;
        mine.k1 = next.k0 = cad_first_keys(s->pairs, &next, 1, next.k0, next.k1, most - taken, &part);
        if (!part) break;
        if (next.x == top->x) {
            *top = next;
            *work -= part;
        } else {
            const uint64_t rest = cad_work(s->pairs, &next);
            top->y = next.x;
            *work -= part + rest;
            if (!push(s, stack, &next, rest)) return UINT64_MAX;
        }
        if (!push(s, &s->strip, &mine, part)) return UINT64_MAX;
        return taken + part;
    }
    return taken;
}

/* Gives a bin the part of the strip that is against keys k0 to k1 - 1. */
static bool give_strip(sweep *s, uint64_t k0, uint64_t k1, uint32_t bin) {
    for (size_t i = 0; i < s->strip.count; i++) {
        cad_run r = s->strip.runs[i];
        uint64_t work = s->strip.work[i];
        if (r.k0 < k0 || r.k1 > k1) {
            if (r.k0 < k0) r.k0 = k0;
            if (r.k1 > k1) r.k1 = k1;
            work = r.k0 < r.k1 ? cad_work(s->pairs, &r) : 0;
        }
        if (!work) continue;
        s->room[bin] -= work;
        s->rest -= work;
        if (!cad_add_share(s->memory, s->out, &r, bin)) return false;
    }
    return true;
}

/* Fills a few bins with the next strip of the stack. */
static fcp_code fill_bins(sweep *s) {
    const cad_run *top = &s->stack.runs[s->stack.count - 1];
    uint32_t bin[CAD_PARTS], count = 0, parts, beside;
    uint64_t k0 = s->first_key, k1 = s->last_key, all = 0;
    bin[count++] = take_first(s, &beside);
    uint64_t room = s->room[bin[0]] < s->rest ? s->room[bin[0]] : s->rest;
    const cad_run *rows = top; /* the top may be the rest of one shard: then what follows counts */
    uint64_t keys = cad_span(s->pairs, top), below = s->stack.count > 1 ? cad_span(s->pairs, top - 1) : 0;
    if (below > keys) rows--, keys = below;
    cad_cost(&s->in->price, keys, room / s->pairs->weight, cad_whole(s->pairs, rows), &parts);
    all = s->room[bin[0]];
    parts = decide_parts(s, parts, all >= s->rest ? 1 : s->count < CAD_PARTS ? s->count + 1 : CAD_PARTS);
    const bool alike = decide_alike(s, parts > 1 && beside);
    for (; count < parts && all < s->rest; count++) {
        if (alike && beside && beside <= s->count) bin[count] = remove_bin(s, --beside);
        else bin[count] = remove_bin(s, tightest(s, s->rest - all));
        all += s->room[bin[count]];
    }
    uint64_t work, over, to[CAD_PARTS];
    uint32_t steps = 0;
    if (!copy_runs(s, &s->saved, s->stack.runs, s->stack.work, s->stack.count)) return FCP_E_NO_MEMORY;
    for (;;) { /* keys are cut at shards, so bins get a little less than their room: if the last gets more, retry */
        if ((work = cut_strip(s, all)) == UINT64_MAX) return FCP_E_NO_MEMORY;
        uint64_t from = k0, last = work, part;
        for (uint32_t i = 0; i + 1 < count; i++, last -= part)
            from = to[i] = cad_first_keys(s->pairs, s->strip.runs, s->strip.count, from, k1, s->room[bin[i]], &part);
        to[count - 1] = k1;
        over = last > s->room[bin[count - 1]] ? last - s->room[bin[count - 1]] : 0;
        if (!over) break;
        if (steps++ >= CAD_EXACT_STEPS) over += all / 8; /* by a little each time it can take thousands of steps */
        all -= over < all ? over : all;
        if (!copy_runs(s, &s->stack, s->saved.runs, s->saved.work, s->saved.count)) return FCP_E_NO_MEMORY;
    }
    for (uint32_t i = 0; i < count; k0 = to[i++])
        if (!give_strip(s, k0, to[i], bin[i])) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++)
        if (work || i) insert_bin(s, bin[i]); /* without work the first has too little room for anything here */
    return FCP_OK;
}

/* --- groups: the runs of one sequence ----------------------------------------------------------------------------- */

static int compare_runs(const cad_run *a, const cad_run *b) {
    if (a->sequence != b->sequence) return a->sequence < b->sequence ? -1 : 1;
    if (a->x != b->x) return a->x < b->x ? -1 : 1;
    return a->k0 < b->k0 ? -1 : a->k0 > b->k0;
}

/* Sorts by sequence, row and key, by merging, so that equal runs stay in order. */
static void sort_runs(cad_run *runs, cad_run *other, size_t count) {
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from + width < count; from += 2 * width) {
            size_t i = from, mid = from + width, j = mid, end = mid + width < count ? mid + width : count, at = from;
            if (compare_runs(&runs[mid - 1], &runs[mid]) <= 0) continue;
            while (i < mid && j < end) other[at++] = compare_runs(&runs[j], &runs[i]) < 0 ? runs[j++] : runs[i++];
            while (i < mid) other[at++] = runs[i++];
            while (j < end) other[at++] = runs[j++];
            for (at = from; at < end; at++) runs[at] = other[at];
        }
    }
}

static fcp_code sweep_group(sweep *s, const cad_groups *of, size_t group) {
    const size_t first = of->first[group], count = of->first[group + 1] - first;
    const cad_run *runs = of->runs + first;
    s->rest = 0;
    s->first_key = runs[0].k0;
    s->last_key = runs[0].k1;
    for (size_t i = 0; i < count; i++) {
        if (runs[i].k0 < s->first_key) s->first_key = runs[i].k0;
        if (runs[i].k1 > s->last_key) s->last_key = runs[i].k1;
        s->rest += of->work[first + i];
    }
    if (!copy_runs(s, &s->stack, runs, of->work + first, count)) return FCP_E_NO_MEMORY;
    while (s->stack.count && s->count) {
        if (fcp_stop_asked(s->in->stop)) return FCP_E_INTERRUPTED;
        fcp_code code = fill_bins(s);
        if (code) return code;
    }
    while (s->stack.count)
        if (!cad_add_share(s->memory, s->out, &s->stack.runs[--s->stack.count], FCP_NONE)) return FCP_E_NO_MEMORY;
    return FCP_OK;
}

fcp_code cad_group(const cad_input *in, arena *a, const cad_run *runs, size_t count, cad_groups *out) {
    cad_run *sorted = ARENA_NEW(a, cad_run, count + 1), *other = ARENA_NEW(a, cad_run, count + 1);
    uint64_t *order = ARENA_NEW(a, uint64_t, count + 1), *scratch = ARENA_NEW(a, uint64_t, count + 1);
    *out = (cad_groups){.runs = sorted, .work = ARENA_NEW(a, uint64_t, count + 1),
                        .first = ARENA_NEW(a, size_t, count + 2), .order = order};
    if (!sorted || !other || !order || !scratch || !out->work || !out->first) return FCP_E_NO_MEMORY;
    size_t groups = 0;
    for (size_t i = 0; i < count; i++) sorted[i] = runs[i];
    sort_runs(sorted, other, count);
    for (size_t i = 0; i < count; i++) {
        if (!i || sorted[i].sequence != sorted[i - 1].sequence) out->first[groups++] = i;
        uint64_t keys = cad_span(&in->pairs, &sorted[i]);
        out->work[i] = cad_work(&in->pairs, &sorted[i]);
        if (out->first[groups - 1] == i || order[groups - 1] < keys) order[groups - 1] = keys;
    }
    out->first[out->count = groups] = count;
    order_falling(order, scratch, groups);
    return FCP_OK;
}

fcp_code cad_sweep(const cad_input *in, arena *a, const cad_groups *groups, cad_decisions *decisions, uint64_t *room,
                   uint32_t bins, uint64_t crumb, cad_shares *out) {
    sweep s = {.in = in, .decisions = decisions, .pairs = &in->pairs, .memory = a, .out = out, .room = room,
               .crumb = crumb, .bins = ARENA_NEW(a, entry, bins + (size_t)1)};
    if (!s.bins) return FCP_E_NO_MEMORY;
    for (uint32_t b = bins; b-- > 0;) insert_bin(&s, b);
    size_t g = groups->count ? groups->order[0] : 0;
    for (size_t i = 1; i <= groups->count; i++) {
        size_t next = i < groups->count ? groups->order[i] : g, now = g;
        if (i < groups->count && decide_waits(&s)) now = next; /* this one waits */
        else g = next;
        fcp_code code = sweep_group(&s, groups, now);
        if (code) return code;
    }
    return FCP_OK;
}
