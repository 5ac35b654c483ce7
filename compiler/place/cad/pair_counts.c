/* pair_counts.c: counts the pairs of some rows and some keys that the mask allows.
 *
 * Requires: a causal mask, or a table of sums for each sequence.
 * Gives: the pairs of a run, and where to cut a run so that a part of it has a given number of pairs.
 * Cost: O(1) for a sum under the causal mask, O(log cuts) from a table. A cut takes O(log cuts) sums at most, usually
 *     4; under the causal mask mostly none.
 *
 * Causal: the row at position q has min(q + 1, k1) - k0 of the keys k0 to k1 - 1, or none. Summed over rows this is a
 * triangle, a rectangle, or a triangle on top of a rectangle.
 */
#include "compiler/base/bisect.h"
#include "compiler/place/cad/cad.h"

/* The pairs of rows at positions a to b - 1 with the keys before `k`: each row sees the keys up to its own position. */
static uint64_t causal_pairs(int64_t a, int64_t b, int64_t k) {
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

/* The number of the last cut that is at `at` or before it. With a step, the search begins at a multiple of the step,
 * because there is hardly ever another cut between two multiples. */
static uint32_t cut_index(const uint64_t *cut, uint32_t cuts, uint64_t step, const uint32_t *multiple, uint64_t at) {
    uint32_t low = 0, high = cuts;
    if (step) {
        low = multiple[at >> 32 | step >> 32 ? at / step : (uint32_t)at / (uint32_t)step];
        while (low + 1 < cuts && cut[low + 1] <= at) low++;
        return low;
    }
    BISECT(low, high, i, cut[i] <= at)
    return low ? low - 1 : 0;
}

static uint32_t row_index(const cad_table *t, uint64_t at) {
    return cut_index(t->row_cut, t->row_cuts, t->row_step, t->row_at, at);
}

static uint32_t key_index(const cad_table *t, uint64_t at) {
    return cut_index(t->key_cut, t->key_cuts, t->key_step, t->key_at, at);
}

/* The pairs of rows `x` to `y` - 1 with keys k0 to k1 - 1, all of which are cuts. */
static uint64_t table_work(const cad_table *t, uint64_t x, uint64_t y, uint64_t k0, uint64_t k1) {
    const uint64_t *above = t->sum + (size_t)row_index(t, x) * t->key_cuts;
    const uint64_t *under = t->sum + (size_t)row_index(t, y) * t->key_cuts;
    uint32_t from = key_index(t, k0), to = key_index(t, k1);
    return under[to] - above[to] - under[from] + above[from];
}

static uint64_t work_of(const cad_pairs *p, uint32_t s, uint64_t x, uint64_t y, uint64_t k0, uint64_t k1) {
    if (x >= y || k0 >= k1) return 0;
    if (p->tables) return table_work(&p->tables[s], x, y, k0, k1);
    int64_t first = first_position(p, s), a = first + (int64_t)x, b = first + (int64_t)y;
    return causal_pairs(a, b, (int64_t)k1) - causal_pairs(a, b, (int64_t)k0);
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
    uint32_t x = row_index(t, r->x), y = row_index(t, r->y);
    uint32_t from = key_index(t, r->k0), to = key_index(t, r->k1);
    const uint64_t *low = t->sum + (size_t)x * t->key_cuts, *high = t->sum + (size_t)y * t->key_cuts;
    const uint64_t *cut = t->key_cut;
    uint64_t seen = 0;
    for (uint32_t j = from; j < to; j++) /* without a branch, which nothing could foresee */
        seen += (cut[j + 1] - cut[j]) & -(uint64_t)(high[j + 1] - low[j + 1] != high[j] - low[j]);
    return seen;
}

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* The cuts from `low` to `high`, with numbers: cut 0 is low, cut `last` is high. Between them are the cuts of the table
 * or, without a table, the multiples of shard. */
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
        uint32_t from = rows ? row_index(t, low) : key_index(t, low);
        c.listed = cut + from;
        c.last = (rows ? row_index(t, high) : key_index(t, high)) - from;
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

/* Where a run is in a table: `above` are the sums of all rows before it, `under` those of all rows before its end;
 * from, to: the numbers of its first key and of the end of its keys, as cuts. */
typedef struct lines {
    const uint64_t *above, *under;
    uint32_t from, to;
} lines;

enum { FEW_RUNS = 8 };

/* What a search for a cut asks about `runs`: how much work have they from a row on (ROWS_FROM), from a key on
 * (KEYS_FROM), or before a key (KEYS_BEFORE)? It is asked for many cuts. */
typedef struct question {
    const cad_pairs *pairs;
    cuts at;
    const cad_run *runs;
    size_t count;
    enum { ROWS_FROM, KEYS_FROM, KEYS_BEFORE } part;
    const cad_table *table; /* if there is one, and the runs are few: where they are in it */
    uint32_t low;           /* the number of the cut `at.low` */
    lines lines[FEW_RUNS];
} question;

/* Finds where the runs are in the table. This is done once, before many cuts are tried. */
static void find_lines(question *q) {
    if (!q->pairs->tables || q->count > FEW_RUNS) return;
    const cad_table *t = q->table = &q->pairs->tables[q->runs[0].sequence];
    q->low = q->part == ROWS_FROM ? row_index(t, q->at.low) : key_index(t, q->at.low);
    for (size_t k = 0; k < q->count; k++) {
        const cad_run *r = &q->runs[k];
        q->lines[k] = (lines){t->sum + (size_t)row_index(t, r->x) * t->key_cuts,
                              t->sum + (size_t)row_index(t, r->y) * t->key_cuts, key_index(t, r->k0),
                              key_index(t, r->k1)};
    }
}

static uint64_t lines_work(const question *q, uint32_t i) {
    const uint32_t cut = q->low + i, low = q->low, high = q->low + q->at.last;
    uint64_t work = 0;
    for (size_t k = 0; k < q->count; k++) {
        lines l = q->lines[k];
        if (q->part == ROWS_FROM) l.above = q->table->sum + (size_t)cut * q->table->key_cuts;
        else {
            const uint32_t from = q->part == KEYS_FROM ? cut : low, to = q->part == KEYS_FROM ? high : cut;
            if (l.from < from) l.from = from;
            if (l.to > to) l.to = to;
        }
        if (l.from < l.to) work += l.under[l.to] - l.above[l.to] - l.under[l.from] + l.above[l.from];
    }
    return work;
}

static uint64_t work_at(const question *q, uint32_t i) {
    if (q->table) return lines_work(q, i);
    uint64_t cut = cut_at(&q->at, i), work = 0;
    for (size_t k = 0; k < q->count; k++) {
        const cad_run *r = &q->runs[k];
        uint64_t x = r->x, k0 = r->k0, k1 = r->k1;
        if (q->part == ROWS_FROM) x = cut;
        else {
            uint64_t from = q->part == KEYS_FROM ? cut : q->at.low, to = q->part == KEYS_FROM ? q->at.high : cut;
            if (k0 < from) k0 = from;
            if (k1 > to) k1 = to;
        }
        work += work_of(q->pairs, r->sequence, x, r->y, k0, k1);
    }
    return work;
}

/* Finds the cut that is farthest from cut number `in`, on the way to `out`, such that the work between the two is at
 * most `most`.
 * This is an interpolation search: it assumes that work grows evenly from cut to cut, and tries the cut where it would
 * then reach `most`. That takes about 4 sums, where binary search takes 10. In case work grows unevenly, every third
 * step from the sixth on halves the range. */
static uint64_t farthest_cut(question *q, uint32_t in, uint32_t out, uint64_t most, uint64_t *out_work) {
    find_lines(q);
    uint64_t at_in = 0, at_out = work_at(q, out);
    if (at_out <= most) in = out, at_in = at_out;
    for (uint32_t step = 1, gap; (gap = out > in ? out - in : in - out) > 1; step++) {
        uint32_t move = gap / 2;
        if (step < 6 || step % 3) move = (uint32_t)((double)gap * ((double)(most - at_in) / (double)(at_out - at_in)));
        if (move < 1) move = 1;
        if (move >= gap) move = gap - 1;
        uint32_t mid = out > in ? in + move : in - move;
        uint64_t work = work_at(q, mid);
        if (work <= most) in = mid, at_in = work;
        else out = mid, at_out = work;
    }
    *out_work = at_in;
    return cut_at(&q->at, in);
}

/* How many of the last rows of a causal triangle have at most `most` work together: the last row sees `keys` keys, and
 * each one before it a key less. Example: keys = 10, most = 20: two rows, with 10 + 9 pairs. */
static uint64_t rows_of_triangle(uint64_t keys, uint64_t most) {
    const double side = 2.0 * (double)keys + 1, under = side * side - 8.0 * (double)most;
    uint64_t n = (uint64_t)((side - (under > 0 ? __builtin_sqrt(under) : 0)) / 2);
    if (n > keys) n = keys;
    while (n && n * keys - n * (n - 1) / 2 > most) n--;
    while (n < keys && (n + 1) * keys - (n + 1) * n / 2 <= most) n++;
    return n;
}

/* Answers cad_last_rows by a formula, if the mask is causal and the rows are a triangle or a rectangle. False: they are
 * not. */
static bool rows_at_once(const question *q, uint64_t most, uint64_t *out_cut, uint64_t *out_work) {
    const cad_run *r = q->runs;
    const int64_t first = first_position(q->pairs, r->sequence), a = first + (int64_t)r->x, b = first + (int64_t)r->y;
    if (q->at.listed || r->x >= r->y || r->k0 >= r->k1 || a < (int64_t)r->k0) return false;
    const bool triangle = b <= (int64_t)r->k1;
    if (!triangle && a + 1 < (int64_t)r->k1) return false;
    const uint64_t keys = (triangle ? (uint64_t)b : r->k1) - r->k0, shard = q->at.shard;
    if (keys > UINT32_MAX / 4) return false; /* squares of it are not exact */
    uint64_t n = triangle ? rows_of_triangle(keys, most) : most / keys;
    if (n >= r->y - r->x) n = r->y - r->x; /* else the cut is the next multiple of shard, */
    else n = r->y - (r->y - n + shard - 1) / shard * shard;
    if (n > r->y - r->x) n = 0; /* which may be behind the last row */
    *out_cut = r->y - n;
    *out_work = triangle ? n * keys - n * (n - 1) / 2 : n * keys;
    return true;
}

/* Answers cad_first_keys without a search, if the mask is causal and each row of a run sees all of the run's keys up to
 * the cut. It goes from one end of a run's keys to the next: between two such ends the same rows see each key. False:
 * the rows do not. */
static bool keys_at_once(const question *q, uint64_t most, uint64_t *out_cut, uint64_t *out_work) {
    uint64_t at = q->at.low, before = 0; /* the work of the keys before `at` */
    if (q->at.listed) return false;
    for (;;) {
        uint64_t until = q->at.high, rows = 0;
        for (size_t i = 0; i < q->count; i++) {
            const cad_run *r = &q->runs[i];
            const int64_t a = first_position(q->pairs, r->sequence) + (int64_t)r->x; /* the first row sees key a, too */
            if (r->k1 <= at) continue;
            if (a < (int64_t)at) return false;
            uint64_t end = r->k0 > at ? r->k0 : r->k1 <= (uint64_t)a ? r->k1 : (uint64_t)a + 1;
            if (r->k0 <= at) rows += r->y - r->x;
            if (end < until) until = end;
        }
        if (before + rows * (until - at) > most) {
            *out_cut = (at + (most - before) / rows) / q->at.shard * q->at.shard;
            if (*out_cut < at && at > q->at.low) return false; /* the last cut is in an earlier stretch */
            if (*out_cut < at) *out_cut = at;
            *out_work = before + rows * (*out_cut - at);
            return true;
        }
        before += rows * (until - at);
        at = until;
        if (at < q->at.high) continue;
        *out_cut = at;
        *out_work = before;
        return true;
    }
}

uint64_t cad_last_rows(const cad_pairs *p, const cad_run *r, uint64_t most, uint64_t *out_work) {
    uint64_t cut;
    question q = {p, cuts_of(p, r->sequence, true, r->x, r->y), r, 1, ROWS_FROM};
    return rows_at_once(&q, most, &cut, out_work) ? cut : farthest_cut(&q, q.at.last, 0, most, out_work);
}

uint64_t cad_first_keys(const cad_pairs *p, const cad_run *runs, size_t count, uint64_t k0, uint64_t k1, uint64_t most,
                        uint64_t *out_work) {
    uint64_t cut;
    *out_work = 0;
    if (!count) return k0;
    question q = {p, cuts_of(p, runs[0].sequence, false, k0, k1), runs, count, KEYS_BEFORE};
    return keys_at_once(&q, most, &cut, out_work) ? cut : farthest_cut(&q, 0, q.at.last, most, out_work);
}

uint64_t cad_last_keys(const cad_pairs *p, const cad_run *r, uint64_t most) {
    uint64_t work;
    question q = {p, cuts_of(p, r->sequence, false, r->k0, r->k1), r, 1, KEYS_FROM};
    return farthest_cut(&q, q.at.last, 0, most, &work);
}

uint64_t cad_row_before(const cad_pairs *p, const cad_run *r) {
    cuts c = cuts_of(p, r->sequence, true, r->x, r->y);
    return c.last ? cut_at(&c, c.last - 1) : r->x;
}
