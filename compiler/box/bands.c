/* bands.c: evaluates unions of slices on boxes.
 *
 * Requires: bands as codegen/mask/code.h describes them, with edges and rows within 2^42. In short: a record stands for
 *      some neighbouring rows, and has their bands, which are intervals of keys with edges that are linear in the row.
 * Gives: bands.h. Answers are exact: MIXED means that some element of the box is allowed and some is not. There is one
 *      exception: a leaf (bands.h) whose row and key are the same dimension may be called MIXED although it is not.
 * How: - The records that a box meets are found by halving, and so are the bands of a record that meet its keys.
 *      - If the box meets few records, each of them is asked.
 *      - If it meets many, summaries of 16, 256, ... records are asked first. A summary has a few intervals outside
 *        which no row allows a key, and a few in which all rows allow all keys.
 *      - As soon as one element is known to be allowed and one to be forbidden, the answer is MIXED.
 * Cost: O(log records + log bands) for a box of few records; for many records usually the same, at worst one step a
 *      record. The index takes O(bands) time, and 18 bytes a record.
 * Units: positions count tokens.
 */
#include "compiler/box/bands.h"
#include "compiler/base/bisect.h"
#include "compiler/box/bits.h"

#include <stdlib.h>

#include "runtime/base/stop.h"

enum { FEW_RECORDS = 16, FAN_BITS = 4, FAN = 1 << FAN_BITS, LEVELS_MAX = 8, KEPT = 8, STOP_RECORDS = 65536 };

typedef struct interval {
    int64_t lo, hi;
} interval;
typedef struct intervals { /* disjoint, in order */
    uint32_t count;
    interval at[KEPT];
} intervals;

typedef struct summary {
    intervals some, all; /* no row allows a key outside `some`; every row allows those in `all` */
} summary;

typedef struct levels {
    uint32_t count;
    summary *at[LEVELS_MAX]; /* level l: of 16^(l + 1) records each */
} levels;

struct bands_index {
    uint32_t count;
    size_t bytes;
    levels of[];
};

/* --- intervals ---------------------------------------------------------------------------------------------------- */

/* Appends an interval, and joins it to the last if they touch. If there are then more than KEPT, closes the smallest
 * gap. */
static void cover_interval(intervals *to, interval new) {
    if (to->count && new.lo <= to->at[to->count - 1].hi) {
        if (new.hi > to->at[to->count - 1].hi) to->at[to->count - 1].hi = new.hi;
        return;
    }
    if (to->count < KEPT) {
        to->at[to->count++] = new;
        return;
    }
    uint32_t smallest = KEPT - 1; /* the gap after this one */
    int64_t gap = new.lo - to->at[KEPT - 1].hi;
    for (uint32_t i = 0; i + 1 < KEPT; i++)
        if (to->at[i + 1].lo - to->at[i].hi < gap) gap = to->at[i + 1].lo - to->at[i].hi, smallest = i;
    if (smallest == KEPT - 1) {
        to->at[KEPT - 1].hi = new.hi;
        return;
    }
    to->at[smallest].hi = to->at[smallest + 1].hi;
    for (uint32_t i = smallest + 1; i + 1 < KEPT; i++) to->at[i] = to->at[i + 1];
    to->at[KEPT - 1] = new;
}

/* Appends an interval. If there are then more than KEPT, drops the shortest. */
static void keep_longest(intervals *to, interval new) {
    if (to->count < KEPT) {
        to->at[to->count++] = new;
        return;
    }
    uint32_t shortest = KEPT;
    int64_t length = new.hi - new.lo;
    for (uint32_t i = 0; i < KEPT; i++)
        if (to->at[i].hi - to->at[i].lo < length) length = to->at[i].hi - to->at[i].lo, shortest = i;
    if (shortest == KEPT) return;
    for (uint32_t i = shortest; i + 1 < KEPT; i++) to->at[i] = to->at[i + 1];
    to->at[KEPT - 1] = new;
}

static void unite(intervals *to, const intervals *with) {
    intervals out = {0};
    uint32_t i = 0, j = 0;
    while (i < to->count || j < with->count) {
        bool first = j == with->count || (i < to->count && to->at[i].lo <= with->at[j].lo);
        cover_interval(&out, first ? to->at[i++] : with->at[j++]);
    }
    *to = out;
}

static void intersect(intervals *to, const intervals *with) {
    intervals out = {0};
    uint32_t i = 0, j = 0;
    while (i < to->count && j < with->count) {
        interval x = to->at[i], y = with->at[j], both = {x.lo > y.lo ? x.lo : y.lo, x.hi < y.hi ? x.hi : y.hi};
        if (both.lo < both.hi) keep_longest(&out, both);
        if (x.hi < y.hi) i++;
        else j++;
    }
    *to = out;
}

/* --- records ------------------------------------------------------------------------------------------------------ */

static int64_t edge(int64_t at, int32_t slope, int64_t row) { return at + (slope ? row : 0); }
static int64_t band_lower(const mc_band *b, int64_t row) { return edge(b->lo, b->lo_slope, row); }
static int64_t band_upper(const mc_band *b, int64_t row) { return edge(b->hi, b->hi_slope, row); }

/* The first record that begins after `row`. */
static uint32_t record_after(const mc_bands *s, int64_t row) {
    uint32_t lo = 0, hi = s->row_count;
    BISECT(lo, hi, i, s->rows[i].q <= row)
    return lo;
}

static int64_t record_end(const mc_bands *s, uint32_t i) {
    return i + 1 < s->row_count ? s->rows[i + 1].q : INT64_MAX;
}

/* A rectangle of rows [r0, r1) and keys [k0, k1). */
typedef struct window {
    int64_t r0, r1, k0, k1;
} window;

/* What is known of the part of a window that lies in one record. */
typedef struct clip {
    box_class cls;
    const mc_band *band; /* the first that meets it */
    bool only;           /* no other does */
    bool lo_cuts, hi_cuts;
} clip;

/* The first band of a record that reaches beyond key k0 in row `row`. */
static uint32_t band_beyond(const mc_band *first, uint32_t count, int64_t row, int64_t k0) {
    uint32_t lo = 0, hi = count;
    BISECT(lo, hi, i, band_upper(&first[i], row) <= k0)
    return lo;
}

/* Finds the bands of record i that meet the window, by two comparisons:
 * - In the window's first row, the band begins at or before the window's last key.
 * - In the window's last row, the band ends after the window's first key.
 * These two suffice. Each edge stays at one key or moves up by one key a row, and the band is never empty, so there is
 * a row in which both hold. */
static clip clip_record(const mc_bands *s, uint32_t i, const window *w) {
    const mc_band_rows *r = &s->rows[i];
    if (!r->count) return (clip){.cls = BOX_NONE};
    const mc_band *first = s->bands + r->first;
    uint32_t at = band_beyond(first, r->count, w->r1 - 1, w->k0);
    if (at == r->count || band_lower(&first[at], w->r0) >= w->k1) return (clip){.cls = BOX_NONE};
    clip c = {.cls = BOX_MIXED, .band = &first[at]};
    c.only = at + 1 == r->count || band_lower(&first[at + 1], w->r0) >= w->k1;
    c.lo_cuts = band_lower(c.band, w->r1 - 1) > w->k0;
    c.hi_cuts = band_upper(c.band, w->r0) < w->k1;
    if (!c.lo_cuts && !c.hi_cuts) c.cls = BOX_FULL;
    return c;
}

/* The rows of a window that lie in record i. */
static window rows_in(const mc_bands *s, uint32_t i, const window *w) {
    window part = *w;
    int64_t end = record_end(s, i);
    if (s->rows[i].q > part.r0) part.r0 = s->rows[i].q;
    if (end < part.r1) part.r1 = end;
    return part;
}

/* --- summaries ---------------------------------------------------------------------------------------------------- */

static summary summarise_record(const mc_bands *s, uint32_t i) {
    summary out = {0};
    const mc_band_rows *r = &s->rows[i];
    int64_t last = r->count ? record_end(s, i) - 1 : 0;
    for (uint32_t j = 0; j < r->count; j++) {
        const mc_band *b = &s->bands[r->first + j];
        const interval always = {band_lower(b, last), band_upper(b, r->q)};
        cover_interval(&out.some, (interval){band_lower(b, r->q), band_upper(b, last)});
        if (always.lo < always.hi) keep_longest(&out.all, always);
    }
    return out;
}

static bool build_levels(const mc_bands *s, levels *out, size_t *bytes, const volatile int *stop) {
    uint32_t below = s->row_count;
    for (uint32_t l = 0; l < LEVELS_MAX && below > FEW_RECORDS; l++) {
        uint32_t count = (below + FAN - 1) / FAN;
        out->at[l] = malloc(count * sizeof *out->at[l]);
        if (!out->at[l]) return false;
        out->count = l + 1;
        *bytes += count * sizeof *out->at[l];
        for (uint32_t i = 0; i < below; i++) {
            if (i % STOP_RECORDS == 0 && fcp_stop_asked(stop)) return false;
            const summary one = l ? out->at[l - 1][i] : summarise_record(s, i);
            summary *to = &out->at[l][i / FAN];
            if (i % FAN == 0) {
                *to = one;
            } else {
                unite(&to->some, &one.some);
                intersect(&to->all, &one.all);
            }
        }
        below = count;
    }
    return true;
}

bands_index *bands_index_new(const mc_bands *bands, uint32_t count, const volatile int *stop) {
    size_t size = sizeof(bands_index) + count * sizeof(levels);
    bands_index *index = calloc(1, size);
    if (!index) return NULL;
    index->count = count;
    index->bytes = size;
    for (uint32_t i = 0; i < count; i++)
        if (!build_levels(&bands[i], &index->of[i], &index->bytes, stop)) {
            bands_index_free(index);
            return NULL;
        }
    return index;
}

void bands_index_free(bands_index *index) {
    for (uint32_t i = 0; index && i < index->count; i++)
        for (uint32_t l = 0; l < index->of[i].count; l++) free(index->of[i].at[l]);
    free(index);
}

size_t bands_index_bytes(const bands_index *index) { return index ? index->bytes : 0; }

/* What a summary knows of keys [k0, k1); MIXED: it cannot tell. */
static box_class ask_summary(const summary *s, int64_t k0, int64_t k1) {
    bool met = false;
    for (uint32_t i = 0; i < s->some.count; i++) met |= s->some.at[i].lo < k1 && k0 < s->some.at[i].hi;
    if (!met) return BOX_NONE;
    for (uint32_t i = 0; i < s->all.count; i++)
        if (s->all.at[i].lo <= k0 && k1 <= s->all.at[i].hi) return BOX_FULL;
    return BOX_MIXED;
}

/* --- leaves ------------------------------------------------------------------------------------------------------- */

void box_bands_make(mc_code mask, const mc_node *x, box_node *out) {
    unsigned row = mask.nodes[x->a].op, key = mask.nodes[x->b].op;
    out->f.c = x->imm;
    if ((row != MC_Q && row != MC_K) || (key != MC_Q && key != MC_K)) return;
    out->f.x[0] = row == MC_Q ? BOX_Q : BOX_K;
    out->f.x[1] = key == MC_Q ? BOX_Q : BOX_K;
    out->a = out->b = MC_NONE;
}

static window leaf_window(const box_node *x, const box *b) {
    return (window){b->lo[x->f.x[0]], b->hi[x->f.x[0]], b->lo[x->f.x[1]], b->hi[x->f.x[1]]};
}

/* What is known of a box so far: is any element allowed; are all? */
typedef struct verdict {
    bool any, all;
} verdict;

static void add_class(verdict *v, box_class cls) {
    v->any |= cls != BOX_NONE;
    v->all &= cls == BOX_FULL;
}

static bool is_settled(const verdict *v) { return v->any && !v->all; }

/* Is row == key allowed for rows [r0, r1) of a record? */
static box_class clip_diagonal(const mc_bands *s, uint32_t i, int64_t r0, int64_t r1) {
    const mc_band_rows *r = &s->rows[i];
    box_class cls = BOX_NONE;
    for (uint32_t j = 0; j < r->count; j++) {
        const mc_band *b = &s->bands[r->first + j];
        int64_t first = b->lo_slope ? (b->lo <= 0 ? r0 : r1) : b->lo, end = b->hi_slope ? (b->hi > 0 ? r1 : r0) : b->hi;
        if (first <= r0 && end >= r1) return BOX_FULL;
        if (first < r1 && end > r0 && first < end) cls = BOX_MIXED;
    }
    return cls;
}

/* Adds to v what records [from, to) say of a window. All rows of these records are in the window. */
static void ask_many(const mc_bands *s, const levels *l, uint32_t from, uint32_t to, const window *w, verdict *v) {
    for (uint32_t i = from; i < to && !is_settled(v);) {
        uint32_t done = 1;
        box_class cls = BOX_MIXED;
        for (uint32_t level = l ? l->count : 0; level-- > 0 && cls == BOX_MIXED;) {
            uint32_t span = (uint32_t)FAN << (FAN_BITS * level);
            if (i % span || to - i < span) continue;
            cls = ask_summary(&l->at[level][i / span], w->k0, w->k1);
            if (cls != BOX_MIXED) done = span;
        }
        if (cls == BOX_MIXED) {
            const window part = rows_in(s, i, w);
            cls = clip_record(s, i, &part).cls;
        }
        add_class(v, cls);
        i += done;
    }
}

/* Are both parts cut by the same edges of a single band, so that they continue each other? */
static bool same_line(const clip *a, const clip *b) {
    if (a->cls != BOX_MIXED || b->cls != BOX_MIXED || !b->only || a->lo_cuts != b->lo_cuts || a->hi_cuts != b->hi_cuts)
        return false;
    if (a->lo_cuts) return a->band->lo == b->band->lo && a->band->lo_slope == b->band->lo_slope;
    return a->band->hi == b->band->hi && a->band->hi_slope == b->band->hi_slope;
}

void box_bands_evaluate(const box_program *program, const box_node *x, const box *b, box_value *v) {
    const mc_bands *s = &program->bands[x->f.c];
    const window w = leaf_window(x, b);
    bool diagonal = x->f.x[0] == x->f.x[1];
    uint32_t first = record_after(s, w.r0), end = first; /* records [first - 1, end) hold the rows */
    if (end < s->row_count && s->rows[end].q < w.r1) end = record_after(s, w.r1 - 1);
    v->lo = 0;
    v->hi = 1;
    v->linear = v->step = false;
    verdict found = {.any = false, .all = true};
    if (first) first--;
    else found.all = false; /* rows before the first record */
    clip line = {.cls = BOX_NONE};
    bool one_line = found.all && !diagonal;
    if (diagonal) {
        for (uint32_t i = first; i < end && !is_settled(&found); i++) {
            const window part = rows_in(s, i, &w);
            add_class(&found, clip_diagonal(s, i, part.r0, part.r1));
        }
    } else if (end - first <= FEW_RECORDS) {
        for (uint32_t i = first; i < end && (one_line || !is_settled(&found)); i++) {
            const window part = rows_in(s, i, &w);
            clip c = clip_record(s, i, &part);
            add_class(&found, c.cls);
            if (i == first) {
                one_line = one_line && c.cls == BOX_MIXED && c.only && c.lo_cuts != c.hi_cuts;
                line = c;
            } else {
                one_line = one_line && same_line(&line, &c);
            }
        }
    } else {
        one_line = false;
        const uint32_t ends[2] = {first, end - 1};
        for (int i = 0; i < 2; i++) {
            const window part = rows_in(s, ends[i], &w);
            add_class(&found, clip_record(s, ends[i], &part).cls);
        }
        ask_many(s, program->index ? &program->index->of[x->f.c] : NULL, first + 1, end - 1, &w, &found);
    }
    if (!found.any) v->hi = 0;
    else if (found.all) v->lo = 1;
    else if (one_line) {
        bool lo = line.lo_cuts;
        v->linear = true;
        v->f = (form){.c = lo ? -line.band->lo : line.band->hi - 1};
        v->f.x[x->f.x[0]] = lo ? -line.band->lo_slope : line.band->hi_slope;
        v->f.x[x->f.x[1]] = lo ? 1 : -1;
    }
}

size_t box_bands_key(const box_program *program, const box_node *x, const box *b, int64_t *out) {
    const mc_bands *s = &program->bands[x->f.c];
    const window w = leaf_window(x, b);
    int64_t *to = out, tag = MC_BANDS | x->f.x[0] << 8 | x->f.x[1] << 10;
    uint32_t first = record_after(s, w.r0);
    if (first && x->f.x[0] != x->f.x[1] && record_end(s, first - 1) >= w.r1) {
        clip c = clip_record(s, first - 1, &w);
        if (c.cls == BOX_MIXED && c.only) {
            int64_t lo = c.lo_cuts, hi = c.hi_cuts;
            *to++ = tag | 1 << 12 | lo << 13 | hi << 14 | lo * c.band->lo_slope << 15 | hi * c.band->hi_slope << 16;
            *to++ = lo ? band_lower(c.band, w.r0) - w.k0 : 0;
            *to++ = hi ? band_upper(c.band, w.r0) - w.k0 : 0;
            return (size_t)(to - out);
        }
    }
    *to++ = tag;
    *to++ = x->f.c;
    *to++ = w.r0;
    *to++ = w.k0;
    return (size_t)(to - out);
}

/* --- rows and pairs ----------------------------------------------------------------------------------------------- */

/* Which of the rows [r0, r0 + width) allow one key: sets bit j if row r0 + j does. The edges of bands go up or stand
 * still as rows grow. So within a record a fixed key is first in the last of the bands that ever hold it, then in the
 * one below that, and so on. The bands are therefore tried downwards. */
static void column_of_bands(const mc_bands *s, int64_t key, int64_t r0, uint32_t width, uint64_t bits[2]) {
    const window w = {r0, r0 + width, key, key + 1};
    uint32_t i = record_after(s, r0);
    for (i -= i > 0; i < s->row_count && s->rows[i].q < w.r1; i++) {
        const mc_band_rows *r = &s->rows[i];
        const mc_band *first = s->bands + r->first;
        const window part = rows_in(s, i, &w);
        if (!r->count || part.r0 >= part.r1) continue;
        uint32_t j = band_beyond(first, r->count, part.r0, key);
        for (j += j < r->count; j-- > 0 && band_upper(&first[j], part.r1 - 1) > key;) {
            const int64_t lo = band_lower(&first[j], part.r0), hi = band_upper(&first[j], part.r0);
            /* from the row in which its upper edge has passed the key to that in which its lower one does */
            const int64_t begin = hi > key ? part.r0 : part.r0 + (key - hi) + 1;
            const int64_t end = lo > key ? part.r0 : first[j].lo_slope ? part.r0 + (key - lo) + 1 : part.r1;
            const int64_t last = end < part.r1 ? end : part.r1;
            if (begin < last) set_bits(bits, (uint32_t)(begin - r0), (uint32_t)(last - r0));
        }
    }
}

void box_bands_row(const box_program *program, const box_node *x, const box *b, int64_t q, uint64_t bits[2]) {
    const mc_bands *s = &program->bands[x->f.c];
    int64_t k0 = b->lo[BOX_K];
    uint32_t width = (uint32_t)(b->hi[BOX_K] - k0);
    if (x->f.x[0] == BOX_Q && x->f.x[1] == BOX_K) {
        const mc_band_rows *r = mc_band_row(s, q);
        if (!r || !r->count) return;
        const mc_band *first = s->bands + r->first;
        for (uint32_t i = band_beyond(first, r->count, q, k0); i < r->count; i++) {
            int64_t lo = band_lower(&first[i], q) - k0, hi = band_upper(&first[i], q) - k0;
            if (lo >= width) return;
            set_bits(bits, lo > 0 ? (uint32_t)lo : 0, hi < width ? (uint32_t)hi : width);
        }
        return;
    }
    if (x->f.x[0] == BOX_K && x->f.x[1] == BOX_Q) {
        column_of_bands(s, q, k0, width, bits);
        return;
    }
    for (uint32_t j = 0; j < width; j++) {
        int64_t k = k0 + j;
        if (mc_in_bands(s, x->f.x[0] == BOX_Q ? q : k, x->f.x[1] == BOX_Q ? q : k)) set_bit(bits, j);
    }
}

static int64_t clamp_to(int64_t v, int64_t hi) { return v < 0 ? 0 : v < hi ? v : hi; }

/* Returns the sum, over `rows` rows, of where an edge is, each kept within [0, width]. The edge is at `at` in the first
 * row and moves by `slope` a row. */
static int64_t sum_edge(int64_t at, int32_t slope, int64_t rows, int64_t width) {
    if (!slope) return rows * clamp_to(at, width);
    int64_t first = clamp_to(-at, rows), end = clamp_to(width - at, rows); /* between them it is inside */
    int64_t inside = end - first;
    return inside * at + inside * (first + end - 1) / 2 + (rows - end) * width;
}

uint64_t box_bands_pairs(const box_program *program, const box *b) {
    const box_node *x = program->nodes;
    const mc_bands *s = &program->bands[x->f.c];
    const window w = leaf_window(x, b);
    uint64_t sum = 0;
    uint32_t i = record_after(s, w.r0);
    for (i -= i > 0; i < s->row_count && s->rows[i].q < w.r1; i++) {
        const mc_band_rows *r = &s->rows[i];
        const window part = rows_in(s, i, &w);
        if (!r->count || part.r0 >= part.r1) continue;
        const mc_band *first = s->bands + r->first;
        int64_t rows = part.r1 - part.r0, width = w.k1 - w.k0;
        for (uint32_t j = band_beyond(first, r->count, part.r1 - 1, w.k0); j < r->count; j++) {
            int64_t lo = band_lower(&first[j], part.r0) - w.k0, hi = band_upper(&first[j], part.r0) - w.k0;
            if (lo >= width) break;
            sum +=
                (uint64_t)(sum_edge(hi, first[j].hi_slope, rows, width) - sum_edge(lo, first[j].lo_slope, rows, width));
        }
    }
    return sum;
}
