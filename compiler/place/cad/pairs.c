/* pairs.c: how many pairs the mask leaves of some rows against some keys.
 *
 * Requires: a causal mask, or a table of sums for each sequence.
 * Gives: the pairs of a run, and where to cut a run so that a part of it has a given number of pairs.
 * Cost: O(1) for a sum under the causal mask, O(log cuts) from a table; a cut takes O(log cuts) sums.
 *
 * Causal: the row at position q has min(q + 1, k1) - k0 of the keys k0 to k1 - 1, or none. Summed over rows this is a
 * triangle, a rectangle, or a triangle below a rectangle.
 */
#include "compiler/place/cad/cad.h"

/* Keys before `k` that rows at positions a to b - 1 see, summed: each sees the keys up to its own position. */
static uint64_t below(int64_t a, int64_t b, int64_t k) {
    if (a < 0) a = 0; /* rows before the first key see nothing */
    if (b <= a || k <= 0) return 0;
    int64_t turn = k < a ? a : k < b ? k : b; /* rows from here on see all k keys */
    uint64_t rows = (uint64_t)(turn - a), ends = (uint64_t)(a + turn) + 1; /* one of them is even */
    uint64_t slope = rows % 2 ? ends / 2 * rows : rows / 2 * ends;
    return slope + (uint64_t)(b - turn) * (uint64_t)k;
}

static int64_t first_position(const cad_pairs *p, uint32_t s) {
    return p->top_left ? 0 : (int64_t)p->keys[s] - (int64_t)p->queries[s];
}

/* The number of the cut at `at`, or of the last one before it. */
static uint32_t cut_index(const uint64_t *cut, uint32_t cuts, uint64_t at) {
    uint32_t low = 0, high = cuts;
    while (high - low > 1) {
        uint32_t mid = low + (high - low) / 2;
        if (cut[mid] <= at) low = mid;
        else high = mid;
    }
    return low;
}

static uint64_t table_sum(const cad_table *t, uint64_t row, uint64_t key) {
    return t->sum[(size_t)cut_index(t->row_cut, t->row_cuts, row) * t->key_cuts +
                  cut_index(t->key_cut, t->key_cuts, key)];
}

static uint64_t work_of(const cad_pairs *p, uint32_t s, uint64_t x, uint64_t y, uint64_t k0, uint64_t k1) {
    if (x >= y || k0 >= k1) return 0;
    if (p->tables) {
        const cad_table *t = &p->tables[s];
        return table_sum(t, y, k1) - table_sum(t, x, k1) - table_sum(t, y, k0) + table_sum(t, x, k0);
    }
    int64_t first = first_position(p, s), a = first + (int64_t)x, b = first + (int64_t)y;
    return below(a, b, (int64_t)k1) - below(a, b, (int64_t)k0);
}

uint64_t cad_work(const cad_pairs *p, const cad_run *r) { return work_of(p, r->sequence, r->x, r->y, r->k0, r->k1); }

uint64_t cad_span(const cad_pairs *p, const cad_run *r) {
    if (!p->tables) {
        int64_t end = first_position(p, r->sequence) + (int64_t)r->y;
        uint64_t most = end < 0 ? 0 : (uint64_t)end;
        if (most > r->k1) most = r->k1;
        return most > r->k0 ? most - r->k0 : 0;
    }
    const cad_table *t = &p->tables[r->sequence];
    uint32_t x = cut_index(t->row_cut, t->row_cuts, r->x), y = cut_index(t->row_cut, t->row_cuts, r->y);
    uint32_t from = cut_index(t->key_cut, t->key_cuts, r->k0), to = cut_index(t->key_cut, t->key_cuts, r->k1);
    const uint64_t *low = t->sum + (size_t)x * t->key_cuts, *high = t->sum + (size_t)y * t->key_cuts;
    uint64_t seen = 0;
    for (uint32_t j = from; j < to; j++)
        if (high[j + 1] - low[j + 1] != high[j] - low[j]) seen += t->key_cut[j + 1] - t->key_cut[j];
    return seen;
}

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* The cuts from `low` to `high`, by number: 0 is low, `last` is high, and between them are the table's or the multiples
 * of shard. */
typedef struct cuts {
    const uint64_t *listed; /* NULL: multiples */
    uint64_t low, high, first, shard;
    uint32_t last;
} cuts;

static cuts cuts_of(const cad_pairs *p, uint32_t s, bool rows, uint64_t low, uint64_t high) {
    cuts c = {.low = low, .high = high, .shard = p->shard};
    if (p->tables) {
        const cad_table *t = &p->tables[s];
        const uint64_t *cut = rows ? t->row_cut : t->key_cut;
        uint32_t count = rows ? t->row_cuts : t->key_cuts, from = cut_index(cut, count, low);
        c.listed = cut + from;
        c.last = cut_index(cut, count, high) - from;
    } else {
        c.first = low / p->shard + 1; /* the multiples first * shard, (first + 1) * shard, ... lie between */
        uint64_t end = (high + p->shard - 1) / p->shard;
        c.last = low == high ? 0 : (uint32_t)(end > c.first ? end - c.first : 0) + 1;
    }
    return c;
}

static uint64_t cut_at(const cuts *c, uint32_t i) {
    if (c->listed) return c->listed[i];
    return i == 0 ? c->low : i >= c->last ? c->high : (c->first + i - 1) * c->shard;
}

uint64_t cad_last_rows(const cad_pairs *p, const cad_run *r, uint64_t most) {
    cuts c = cuts_of(p, r->sequence, true, r->x, r->y);
    uint32_t low = 0, high = c.last; /* the answer is from low to high */
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (work_of(p, r->sequence, cut_at(&c, mid), r->y, r->k0, r->k1) <= most) high = mid;
        else low = mid + 1;
    }
    return cut_at(&c, low);
}

uint64_t cad_first_keys(const cad_pairs *p, const cad_run *runs, size_t count, uint64_t k0, uint64_t k1,
                        uint64_t most) {
    if (!count) return k0;
    cuts c = cuts_of(p, runs[0].sequence, false, k0, k1);
    uint32_t low = 0, high = c.last;
    while (low < high) {
        uint32_t mid = low + (high - low + 1) / 2;
        uint64_t to = cut_at(&c, mid), work = 0;
        for (size_t i = 0; i < count && work <= most; i++) {
            const cad_run *r = &runs[i];
            work += work_of(p, r->sequence, r->x, r->y, r->k0 > k0 ? r->k0 : k0, r->k1 < to ? r->k1 : to);
        }
        if (work <= most) low = mid;
        else high = mid - 1;
    }
    return cut_at(&c, low);
}

uint64_t cad_last_keys(const cad_pairs *p, const cad_run *r, uint64_t most) {
    cuts c = cuts_of(p, r->sequence, false, r->k0, r->k1);
    uint32_t low = 0, high = c.last;
    while (low < high) {
        uint32_t mid = low + (high - low) / 2;
        if (work_of(p, r->sequence, r->x, r->y, cut_at(&c, mid), r->k1) <= most) high = mid;
        else low = mid + 1;
    }
    return cut_at(&c, low);
}

uint64_t cad_row_before(const cad_pairs *p, const cad_run *r) {
    cuts c = cuts_of(p, r->sequence, true, r->x, r->y);
    return c.last ? cut_at(&c, c.last - 1) : r->x;
}
