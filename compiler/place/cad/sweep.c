/* sweep.c: gives runs of rows to bins that have room, in shares of good shape.
 *
 * Requires: runs; the room of every bin.
 * Gives: shares. No bin gets more than its room. What no bin has room for goes to FCP_NONE.
 * Cost: O((runs + shares) (log bins + bins moved in a list)), and O(log cuts) sums a share.
 * Units: pairs, bytes.
 *
 * What shape is good. A bin that takes W pairs needs a rows and b keys, a b >= W, at `part` bytes a row and `kv` a key.
 * The sum is least at b = sqrt(W part / kv). So rows that see few more keys than that are taken whole, and rows that
 * see many more are divided between several bins, each with a segment of the keys. The more room, the larger b: so long
 * rows go to the bins with most room.
 *
 * How bins are filled. Rows of a sequence are taken from the last down. Whole rows: a bin takes rows until the next
 * shard of them does not fit; of that shard it takes the first keys that fit, which it has anyway, and the next bin
 * takes the rest. Divided rows: a strip as high as is good for its bins is handed out along the keys, and the next strip
 * back in the other direction, so that a bin that ends one strip and begins the next takes the same keys twice:
 *
 *         keys ->
 *   rows  | bin 1 | bin 2 | bin 3 ..      the last strip, left to right
 *    |    | .. bin 5 | bin 4 | bin 3|     the one before it, right to left
 *
 * So each bin is filled at once. A room that were left over would have to be filled with a small share later, and small
 * shares cost most for each pair. The last rows of a sequence go to the bin that they fit most tightly.
 */
#include "compiler/place/cad/cad.h"

#include "compiler/base/sort.h"

enum { PARTS_MOST = 64 };

bool cad_give(arena *a, cad_shares *list, const cad_run *r, uint32_t rank) {
    if (list->count == list->room) {
        cad_share *grown = arena_grow(a, list->at, list->count, &list->room, sizeof *grown);
        if (!grown) return false;
        list->at = grown;
    }
    list->at[list->count++] = (cad_share){*r, rank};
    return true;
}

/* --- prices ------------------------------------------------------------------------------------------------------- */

uint64_t cad_root(unsigned __int128 v) {
    if (!v) return 0;
    uint64_t high = (uint64_t)(v >> 64);
    unsigned bits = high ? 128 - (unsigned)__builtin_clzll(high) : 64 - (unsigned)__builtin_clzll((uint64_t)v);
    unsigned __int128 x = (unsigned __int128)1 << (bits + 1) / 2, y; /* at least the root */
    while ((y = (x + v / x) / 2) < x) x = y;
    return (uint64_t)x;
}

/* price * room * parts / span, without overflow. */
static uint64_t rows_cost(uint64_t price, uint64_t room, uint64_t parts, uint64_t span) {
    return (uint64_t)((unsigned __int128)price * room * parts / span);
}

uint64_t cad_cost(const cad_price *p, uint64_t span, uint64_t room, bool whole, uint32_t *out_parts) {
    if (!span) span = 1;
    uint64_t best = p->kv * span + rows_cost(whole ? p->whole : p->part, room, 1, span);
    uint64_t good = p->kv ? cad_root((unsigned __int128)p->part * room / p->kv) : span, parts = span / (good ? good : 1);
    *out_parts = 1;
    for (uint64_t s = parts; s <= parts + 1 && s <= PARTS_MOST; s++) {
        if (s < 2) continue;
        uint64_t cost = p->kv * (span / s) + rows_cost(p->part, room, s, span);
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

typedef struct sweep {
    const cad_input *in;
    const cad_pairs *pairs;
    arena *memory;
    cad_shares *out;
    uint64_t *room;
    entry *bins; /* not taken, by rising room; of equal rooms the lower bin comes last */
    uint32_t count;
    uint64_t crumb;
    cad_run *stack; /* the runs at hand; the top is taken first */
    size_t depth;
    uint64_t rest;  /* their work */
} sweep;

static void put(sweep *s, uint32_t bin) {
    uint64_t room = s->room[bin];
    if (room <= s->crumb) return;
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->bins[mid].room < room || (s->bins[mid].room == room && s->bins[mid].bin > bin)) low = mid + 1;
        else high = mid;
    }
    for (uint32_t i = s->count++; i > low; i--) s->bins[i] = s->bins[i - 1];
    s->bins[low] = (entry){room, bin};
}

static uint32_t take_at(sweep *s, uint32_t i) {
    uint32_t bin = s->bins[i].bin;
    for (s->count--; i < s->count; i++) s->bins[i] = s->bins[i + 1];
    return bin;
}

/* The tightest bin that has room for `work`, or else the one with most room. FCP_NONE: there is none. */
static uint32_t take(sweep *s, uint64_t work) {
    if (!s->count) return FCP_NONE;
    uint32_t low = 0, high = s->count;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (s->bins[mid].room < work) low = mid + 1;
        else high = mid;
    }
    return take_at(s, low < s->count ? low : s->count - 1);
}

/* --- taking ------------------------------------------------------------------------------------------------------- */

static bool give(sweep *s, const cad_run *r, uint64_t work, uint32_t bin) {
    if (!work) return true;
    s->room[bin] -= work;
    s->rest -= work;
    return cad_give(s->memory, s->out, r, bin);
}

/* Fills a bin with whole rows from the top of the stack. */
static bool fill_rows(sweep *s, uint32_t bin) {
    while (s->depth && s->room[bin] > s->crumb) {
        cad_run *top = &s->stack[s->depth - 1], mine = *top;
        uint64_t work = cad_work(s->pairs, top);
        if (work <= s->room[bin]) {
            s->depth--;
            if (!give(s, &mine, work, bin)) return false;
            continue;
        }
        mine.x = cad_last_rows(s->pairs, top, s->room[bin]);
        if (mine.x < mine.y) {
            top->y = mine.x;
            if (!give(s, &mine, cad_work(s->pairs, &mine), bin)) return false;
        }
        if (s->room[bin] <= s->crumb) break;
        cad_run next = *top; /* a shard of rows that does not fit */
        next.x = cad_row_before(s->pairs, top);
        mine = next;
        mine.k1 = next.k0 = cad_first_keys(s->pairs, &next, s->room[bin]);
        uint64_t low = cad_work(s->pairs, &mine);
        if (!low) break;
        if (next.x == top->x) s->depth--;
        else top->y = next.x;
        s->stack[s->depth++] = next;
        if (!give(s, &mine, low, bin)) return false;
        break;
    }
    return true;
}

/* Hands out strips from the top of the stack, each to several bins along the keys, from `bin` on. */
static bool fill_strips(sweep *s, uint32_t bin, uint32_t parts) {
    bool rightward = true;
    while (s->depth) {
        cad_run *top = &s->stack[s->depth - 1], strip = *top;
        uint64_t each = s->room[bin];
        if (s->count && s->bins[s->count - 1].room > each) each = s->bins[s->count - 1].room;
        if (parts > 1 && __builtin_mul_overflow(each, (uint64_t)parts, &each)) each = UINT64_MAX;
        strip.x = cad_last_rows(s->pairs, top, each);
        if (strip.x == strip.y) strip.x = cad_row_before(s->pairs, top);
        if (strip.x == top->x) s->depth--;
        else top->y = strip.x;
        for (uint64_t work = cad_work(s->pairs, &strip); work;) {
            if (bin == FCP_NONE) { /* nobody has room: put it back */
                s->stack[s->depth++] = strip;
                return true;
            }
            cad_run mine = strip;
            if (work > s->room[bin]) {
                if (rightward) mine.k1 = strip.k0 = cad_first_keys(s->pairs, &strip, s->room[bin]);
                else mine.k0 = strip.k1 = cad_last_keys(s->pairs, &strip, s->room[bin]);
                uint64_t some = cad_work(s->pairs, &mine);
                work -= some;
                if (!give(s, &mine, some, bin)) return false;
                bin = take(s, s->depth ? UINT64_MAX : work);
            } else {
                if (!give(s, &mine, work, bin)) return false;
                work = 0;
            }
        }
        if (s->room[bin] <= s->crumb || !s->depth) break;
        rightward = !rightward;
        cad_run *next = &s->stack[s->depth - 1];
        uint64_t room = s->count ? s->bins[s->count - 1].room : s->room[bin];
        if (room > s->rest) room = s->rest;
        cad_cost(&s->in->price, cad_span(s->pairs, next), room, cad_whole(s->pairs, next), &parts);
        if (parts == 1) break;
    }
    put(s, bin);
    return true;
}

/* --- groups: runs of one sequence against the same keys ------------------------------------------------------------ */

static bool same_group(const cad_run *a, const cad_run *b) {
    return a->sequence == b->sequence && a->k0 == b->k0 && a->k1 == b->k1;
}

static int compare(const cad_run *a, const cad_run *b) {
    if (a->sequence != b->sequence) return a->sequence < b->sequence ? -1 : 1;
    if (a->k0 != b->k0) return a->k0 < b->k0 ? -1 : 1;
    if (a->k1 != b->k1) return a->k1 < b->k1 ? -1 : 1;
    return a->x < b->x ? -1 : a->x > b->x;
}

/* Sorts by group and row: merging, so that the order of equals is that of the input. */
static void sort_runs(cad_run *runs, cad_run *other, size_t count) {
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from + width < count; from += 2 * width) {
            size_t i = from, mid = from + width, j = mid, end = mid + width < count ? mid + width : count, at = from;
            if (compare(&runs[mid - 1], &runs[mid]) <= 0) continue;
            while (i < mid && j < end) other[at++] = compare(&runs[j], &runs[i]) < 0 ? runs[j++] : runs[i++];
            while (i < mid) other[at++] = runs[i++];
            while (j < end) other[at++] = runs[j++];
            for (at = from; at < end; at++) runs[at] = other[at];
        }
    }
}

static fcp_code sweep_group(sweep *s, cad_run *runs, size_t count) {
    s->depth = count;
    s->stack = runs; /* a shard that is divided takes the place of one that was taken */
    s->rest = 0;
    for (size_t i = 0; i < count; i++) s->rest += cad_work(s->pairs, &runs[i]);
    while (s->depth) {
        if (fcp_stop_asked(s->in->stop)) return FCP_E_INTERRUPTED;
        const cad_run *top = &s->stack[s->depth - 1];
        uint32_t bin = take(s, s->rest), parts;
        if (bin == FCP_NONE) {
            while (s->depth)
                if (!cad_give(s->memory, s->out, &s->stack[--s->depth], FCP_NONE)) return FCP_E_NO_MEMORY;
            break;
        }
        uint64_t room = s->room[bin] < s->rest ? s->room[bin] : s->rest;
        cad_cost(&s->in->price, cad_span(s->pairs, top), room, cad_whole(s->pairs, top), &parts);
        bool good = true;
        if (parts == 1 || s->rest <= s->room[bin]) {
            good = fill_rows(s, bin);
            if (!s->depth) put(s, bin);
        } else good = fill_strips(s, bin, parts);
        if (!good) return FCP_E_NO_MEMORY;
    }
    return FCP_OK;
}

fcp_code cad_sweep(const cad_input *in, arena *a, const cad_run *runs, size_t count, uint64_t *room, uint32_t bins,
                   uint64_t crumb, cad_shares *out) {
    sweep s = {.in = in, .pairs = &in->pairs, .memory = a, .out = out, .room = room, .crumb = crumb};
    cad_run *sorted = ARENA_NEW(a, cad_run, count + 1), *other = ARENA_NEW(a, cad_run, count + 3);
    uint64_t *order = ARENA_NEW(a, uint64_t, count + 1), *scratch = ARENA_NEW(a, uint64_t, count + 1);
    size_t *first = ARENA_NEW(a, size_t, count + 2), groups = 0;
    s.bins = ARENA_NEW(a, entry, bins + (size_t)1);
    if (!sorted || !other || !order || !scratch || !first || !s.bins) return FCP_E_NO_MEMORY;
    uint64_t most = 0;
    for (size_t i = 0; i < count; i++) sorted[i] = runs[i];
    sort_runs(sorted, other, count);
    for (size_t i = 0; i < count; i++) {
        if (!i || !same_group(&sorted[i], &sorted[i - 1])) first[groups++] = i;
        uint64_t span = cad_span(&in->pairs, &sorted[i]);
        if (first[groups - 1] == i || order[groups - 1] < span) order[groups - 1] = span;
        if (span > most) most = span;
    }
    first[groups] = count;
    unsigned shift = 0;
    while (most >> shift > UINT32_MAX) shift++;
    for (size_t g = 0; g < groups; g++) order[g] = (UINT32_MAX - (order[g] >> shift)) << 32 | g;
    sort_u64(order, scratch, groups);
    for (uint32_t b = bins; b-- > 0;) put(&s, b);
    for (size_t i = 0; i < groups; i++) {
        size_t g = (uint32_t)order[i], n = first[g + 1] - first[g];
        for (size_t k = 0; k < n; k++) other[k] = sorted[first[g] + k]; /* one more may be on the stack at a time */
        fcp_code code = sweep_group(&s, other, n);
        if (code) return code;
    }
    return FCP_OK;
}
