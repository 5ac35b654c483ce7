/* slice_bands.c: turns slices in any order, which may overlap, into bands, by a sweep over the rows (query positions).
 *
 * Requires: slices as slice_bands.h describes them. Gives: bands_of_slices.
 * How: a slice is a band on a range of rows: in each row it allows the keys from a lower to an upper edge. An edge
 *      either stays at one key or moves by one key a row.
 *      1. The sweep goes through the rows at which slices begin or end. The slices that have a row are active there.
 *      2. From such a row on, the active bands are merged: those that overlap or touch become one. Their order is that
 *         of their lower edges in this row.
 *      3. The merge is right until a moving edge passes, meets or leaves a fixed one. For example, the upper edge of a
 *         causal slice may reach the lower edge of the slice to its right, and the two then become one band. The merge
 *         also finds the row in which that happens, and from there on step 2 is repeated.
 *      4. Consecutive rows with the same bands become one record. A single row can be described with any slopes. It
 *         takes those of its neighbour if the two then become one record.
 * Cost: O(N log N + (events + crossings) * active slices); at most WORK_MAX such steps.
 * Units: positions count tokens.
 * Method: plane sweep (Shamos and Hoey 1976); rows at which an order ceases to hold are the certificates of kinetic
 *      data structures (Basch, Guibas, Hershberger 1997).
 */
#include "compiler/expr/slice_bands.h"
#include "compiler/base/bisect.h"
#include "runtime/base/grow.h"
#include "runtime/base/stop.h"

#include <stdlib.h>
#include <string.h>

#define WORK_MAX (UINT64_C(1) << 30)    /* bands looked at in all merges */
#define OVERLAP_MAX (UINT64_C(1) << 27) /* pairs of slices compared */

const char *const bands_kinds[SLICE_KINDS] = {"full", "causal", "inverse", "both"};

/* The rows [first, end) of a slice in which its band is not empty. */
typedef struct piece {
    int64_t first, end;
    mc_band band;
    uint32_t slice;
} piece;

/* An active band: one of a slice that has the row of the sweep. */
typedef struct active {
    int64_t lo, hi;
    uint32_t hi_slope, piece;
} active;
typedef struct active_list { /* by lo, then piece; all of one lo_slope */
    active *at;
    size_t count;
} active_list;

typedef struct sweep {
    piece *pieces; /* by first row */
    uint32_t *ends; /* pieces by end */
    size_t count;
    active_list list[2]; /* by lo_slope */
    const volatile int *stop;
    uint64_t work, compared;
    bool *overlapped; /* by slice */
    slices_overlap overlap;

    mc_band_rows *rows;
    mc_band *bands;
    size_t row_count, row_room, band_count, band_room;
} sweep;

static int64_t at_row(int64_t edge, uint32_t slope, int64_t q) { return edge + (slope ? q : 0); }

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static bool make_piece(const slice *s, uint32_t number, piece *out) {
    bool lower = s->kind & SLICE_INVERSE, upper = s->kind & SLICE_CAUSAL;
    *out = (piece){.first = s->q0, .end = s->q1, .slice = number};
    out->band = (mc_band){lower ? s->k0 - s->q0 : s->k0, upper ? s->k1 - s->q1 + 1 : s->k1, lower, upper};
    int64_t spare = (s->k1 - s->k0) - (s->q1 - s->q0);
    if (lower && upper) return spare >= 0;
    if (upper && spare < 0) out->first -= spare; /* the first rows see nothing */
    if (lower && spare < 0) out->end += spare;   /* the last ones */
    return true;
}

static int compare_numbers(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_first(const void *a, const void *b) {
    const piece *x = a, *y = b;
    int c = compare_numbers(x->first, y->first);
    return c ? c : compare_numbers(x->slice, y->slice);
}

/* The end of a piece, for sorting. */
typedef struct end_event {
    int64_t row;
    uint32_t piece;
} end_event;

static int by_end(const void *a, const void *b) {
    const end_event *x = a, *y = b;
    int c = compare_numbers(x->row, y->row);
    return c ? c : compare_numbers(x->piece, y->piece);
}

static fcp_code make_pieces(sweep *w, const slice *slices, size_t count) {
    w->pieces = malloc((count + 1) * sizeof *w->pieces);
    w->ends = malloc((count + 1) * sizeof *w->ends);
    w->overlapped = calloc(count + 1, sizeof *w->overlapped);
    for (int i = 0; i < 2; i++) w->list[i].at = malloc((count + 1) * sizeof *w->list[i].at);
    end_event *events = malloc((count + 1) * sizeof *events);
    if (!w->pieces || !w->ends || !w->overlapped || !w->list[0].at || !w->list[1].at || !events) {
        free(events);
        return FCP_E_NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) w->count += make_piece(&slices[i], (uint32_t)i, &w->pieces[w->count]);
    qsort(w->pieces, w->count, sizeof *w->pieces, by_first);
    for (size_t i = 0; i < w->count; i++) events[i] = (end_event){w->pieces[i].end, (uint32_t)i};
    qsort(events, w->count, sizeof *events, by_end);
    for (size_t i = 0; i < w->count; i++) w->ends[i] = events[i].piece;
    free(events);
    return FCP_OK;
}

/* --- overlaps ----------------------------------------------------------------------------------------------------- */

/* Narrows rows [*first, *end) to those in which hi > lo. */
static void rows_between(int64_t lo, uint32_t lo_slope, int64_t hi, uint32_t hi_slope, int64_t *first, int64_t *end) {
    int64_t apart = at_row(hi, hi_slope, *first) - at_row(lo, lo_slope, *first);
    if (hi_slope == lo_slope) {
        if (apart <= 0) *end = *first;
    } else if (hi_slope) {
        if (apart <= 0) *first += 1 - apart;
    } else if (apart < *end - *first) {
        *end = *first + (apart > 0 ? apart : 0);
    }
}

static bool share_pairs(const piece *x, const piece *y) {
    int64_t first = x->first > y->first ? x->first : y->first, end = x->end < y->end ? x->end : y->end;
    const mc_band *a = &x->band, *b = &y->band;
    if (first < end) rows_between(a->lo, (uint32_t)a->lo_slope, b->hi, (uint32_t)b->hi_slope, &first, &end);
    if (first < end) rows_between(b->lo, (uint32_t)b->lo_slope, a->hi, (uint32_t)a->hi_slope, &first, &end);
    return first < end;
}

static void note_overlaps(sweep *w, const piece *new) {
    slices_overlap *o = &w->overlap;
    for (int l = 0; l < 2; l++)
        for (size_t i = 0; i < w->list[l].count; i++) {
            if (w->compared++ == OVERLAP_MAX) o->at_least = true;
            if (o->at_least) return;
            const piece *old = &w->pieces[w->list[l].at[i].piece];
            if (!share_pairs(new, old)) continue;
            size_t a = new->slice < old->slice ? new->slice : old->slice, b = new->slice ^ old->slice ^ a;
            if (!o->pairs || a < o->first || (a == o->first && b < o->second)) o->first = a, o->second = b;
            o->pairs++;
            o->slices += (uint64_t)!w->overlapped[a] + !w->overlapped[b];
            w->overlapped[a] = w->overlapped[b] = true;
        }
}

/* --- active bands ------------------------------------------------------------------------------------------------- */

/* The place of (lo, piece) in a list, or the place that it would have. */
static size_t find_active(const active_list *l, int64_t lo, uint32_t number) {
    size_t first = 0, end = l->count;
    BISECT(first, end, i, l->at[i].lo < lo || (l->at[i].lo == lo && l->at[i].piece < number))
    return first;
}

static void begin_piece(sweep *w, uint32_t number) {
    const mc_band *b = &w->pieces[number].band;
    active_list *l = &w->list[b->lo_slope];
    size_t at = find_active(l, b->lo, number);
    memmove(l->at + at + 1, l->at + at, (l->count - at) * sizeof *l->at);
    l->at[at] = (active){b->lo, b->hi, (uint32_t)b->hi_slope, number};
    l->count++;
}

static void finish_piece(sweep *w, uint32_t number) {
    const mc_band *b = &w->pieces[number].band;
    active_list *l = &w->list[b->lo_slope];
    size_t at = find_active(l, b->lo, number);
    memmove(l->at + at, l->at + at + 1, (l->count - at - 1) * sizeof *l->at);
    l->count--;
}

/* --- records ------------------------------------------------------------------------------------------------------ */

static fcp_code add_band(sweep *w, const mc_band *band) {
    if (w->band_count == SLICE_BANDS_MAX) return FCP_E_TOO_LARGE;
    if (!FCP_GROW(w->bands, w->band_room, w->band_count + 1)) return FCP_E_NO_MEMORY;
    w->bands[w->band_count++] = *band;
    return FCP_OK;
}

/* Finds one edge that is right for the rows of two consecutive records, so that these can become one record. Example:
 * an edge at key 7 in a record of row 3 alone, and one that moves from key 8 on in rows 4 to 9: the moving edge is
 * right for both. A record of a single row (old_single, new_single) fits any slope. `row` is the first row of the later
 * record. The result goes into *old and *old_slope. False if there is no such edge. */
static bool join_edge(int64_t *old, int32_t *old_slope, bool old_single, int64_t new, int32_t new_slope,
                      bool new_single, int64_t row) {
    if (*old == new && *old_slope == new_slope) return true;
    int64_t before = at_row(*old, (uint32_t)*old_slope, row - 1), here = at_row(new, (uint32_t)new_slope, row);
    if (old_single && at_row(new, (uint32_t)new_slope, row - 1) == before) {
        *old = new;
        *old_slope = new_slope;
        return true;
    }
    if (!new_single) return false;
    if (at_row(*old, (uint32_t)*old_slope, row) == here) return true;
    if (!old_single || (here != before && here != before + 1)) return false;
    *old_slope = here != before;
    *old = *old_slope ? before - (row - 1) : before;
    return true;
}

/* Adds the record of rows [q, end), whose bands are those from `first` on; or extends the record before it, if the same
 * bands describe both. */
static fcp_code add_rows(sweep *w, int64_t q, int64_t end, size_t first) {
    size_t count = w->band_count - first;
    mc_band_rows *last = w->row_count ? &w->rows[w->row_count - 1] : NULL;
    if (!last && !count) return FCP_OK;
    if (last && last->count == count) {
        bool old_single = q - last->q == 1, new_single = end - q == 1, same = true;
        mc_band *old = w->bands + last->first;
        for (size_t i = 0; i < count && same; i++) { /* on a copy, because all bands must join or none */
            mc_band joined = old[i];
            const mc_band *b = &w->bands[first + i];
            same = join_edge(&joined.lo, &joined.lo_slope, old_single, b->lo, b->lo_slope, new_single, q) &&
                   join_edge(&joined.hi, &joined.hi_slope, old_single, b->hi, b->hi_slope, new_single, q);
        }
        for (size_t i = 0; i < count && same; i++) {
            const mc_band *b = &w->bands[first + i];
            join_edge(&old[i].lo, &old[i].lo_slope, old_single, b->lo, b->lo_slope, new_single, q);
            join_edge(&old[i].hi, &old[i].hi_slope, old_single, b->hi, b->hi_slope, new_single, q);
        }
        if (same) {
            w->band_count = first;
            return FCP_OK;
        }
    }
    if (w->row_count == SLICE_BANDS_MAX) return FCP_E_TOO_LARGE;
    if (!FCP_GROW(w->rows, w->row_room, w->row_count + 1)) return FCP_E_NO_MEMORY;
    w->rows[w->row_count++] = (mc_band_rows){q, (uint32_t)first, (uint32_t)count};
    return FCP_OK;
}

/* --- merging ------------------------------------------------------------------------------------------------------ */

/* A component: bands that overlap or touch in the row of the merge. */
typedef struct component {
    bool open;
    int64_t lo;         /* the least lower edge */
    bool lo_moves;
    int64_t still_lo;   /* the least lower edge that stands still, if there is one */
    bool has_still_lo;
    int64_t hi[2];      /* the greatest upper edge that stands still, and the greatest that moves */
} component;

static int64_t upper_edge(const component *c) { return c->hi[1] >= c->hi[0] ? c->hi[1] : c->hi[0]; }
static bool upper_edge_moves(const component *c) { return c->hi[1] >= c->hi[0]; }

static void lower_to(int64_t *end, int64_t row) {
    if (row < *end) *end = row;
}

/* Adds the band of a component, and lowers *end to the first row in which it is no longer right. */
static fcp_code close_component(sweep *w, const component *c, int64_t row, int64_t *end) {
    bool moves = upper_edge_moves(c);
    if (c->lo_moves && c->has_still_lo) lower_to(end, row + (c->still_lo - c->lo) + 1);
    if (!moves && c->hi[1] != INT64_MIN) lower_to(end, row + (c->hi[0] - c->hi[1]) + 1);
    const mc_band band = {c->lo - (c->lo_moves ? row : 0), upper_edge(c) - (moves ? row : 0), c->lo_moves, moves};
    return add_band(w, &band);
}

/* Merges the active bands from `row` on. Adds their record, and lowers *end to the first row in which it is no longer
 * right. */
static fcp_code merge_bands(sweep *w, int64_t row, int64_t *end) {
    const active *x = w->list[0].at, *x_end = x + w->list[0].count;
    const active *y = w->list[1].at, *y_end = y + w->list[1].count;
    component c = {0};
    size_t first = w->band_count;
    fcp_code code = FCP_OK;
    w->work += (uint64_t)(x_end - x) + (uint64_t)(y_end - y);
    if (w->work > WORK_MAX) return FCP_E_TOO_LARGE;
    while (code == FCP_OK && (x < x_end || y < y_end)) {
        bool moves = x == x_end || (y < y_end && y->lo + row < x->lo);
        const active *a = moves ? y++ : x++;
        int64_t lo = at_row(a->lo, moves, row), hi = at_row(a->hi, a->hi_slope, row);
        if (c.open && lo <= upper_edge(&c)) {
            /* the row in which it leaves the fixed upper edge */
            if (moves && c.hi[1] < lo) lower_to(end, row + (c.hi[0] - lo) + 1);
        } else {
            if (c.open) {
                /* the row in which the two touch */
                if (upper_edge_moves(&c) && !moves) lower_to(end, row + (lo - upper_edge(&c)));
                code = close_component(w, &c, row, end);
            }
            c = (component){.open = true, .lo = lo, .lo_moves = moves, .hi = {INT64_MIN, INT64_MIN}};
        }
        if (!moves && !c.has_still_lo) {
            c.has_still_lo = true;
            c.still_lo = lo;
        }
        if (hi > c.hi[a->hi_slope]) c.hi[a->hi_slope] = hi;
    }
    if (code == FCP_OK && c.open) code = close_component(w, &c, row, end);
    return code == FCP_OK ? add_rows(w, row, *end, first) : code;
}

static fcp_code run_sweep(sweep *w) {
    size_t next = 0, ended = 0;
    fcp_code code = FCP_OK;
    while (ended < w->count && code == FCP_OK) {
        int64_t row = next < w->count ? w->pieces[next].first : INT64_MAX;
        if (w->pieces[w->ends[ended]].end < row) row = w->pieces[w->ends[ended]].end;
        while (ended < w->count && w->pieces[w->ends[ended]].end == row) finish_piece(w, w->ends[ended++]);
        for (; next < w->count && w->pieces[next].first == row; next++) {
            note_overlaps(w, &w->pieces[next]);
            begin_piece(w, (uint32_t)next);
        }
        if (fcp_stop_asked(w->stop)) return FCP_E_INTERRUPTED;
        int64_t end = next < w->count ? w->pieces[next].first : INT64_MAX;
        if (ended < w->count && w->pieces[w->ends[ended]].end < end) end = w->pieces[w->ends[ended]].end;
        while (row < end && code == FCP_OK) {
            int64_t until_row = end;
            code = fcp_stop_asked(w->stop) ? FCP_E_INTERRUPTED : merge_bands(w, row, &until_row);
            row = until_row;
        }
    }
    if (code == FCP_OK && !w->row_count) { /* nothing is allowed anywhere */
        if (!FCP_GROW(w->rows, w->row_room, 1)) return FCP_E_NO_MEMORY;
        w->rows[w->row_count++] = (mc_band_rows){0, 0, 0};
    }
    return code;
}

fcp_code bands_of_slices(const slice *slices, size_t count, const volatile int *stop, arena *memory, mc_bands *out,
                         slices_overlap *out_overlap) {
    sweep w = {.stop = stop};
    if (count > SLICES_MAX) return FCP_E_TOO_LARGE;
    fcp_code code = make_pieces(&w, slices, count);
    if (code == FCP_OK) code = run_sweep(&w);
    mc_band_rows *rows = code == FCP_OK ? ARENA_NEW(memory, mc_band_rows, w.row_count) : NULL;
    mc_band *bands = code == FCP_OK ? ARENA_NEW(memory, mc_band, w.band_count + 1) : NULL;
    if (code == FCP_OK && (!rows || !bands)) code = FCP_E_NO_MEMORY;
    if (code == FCP_OK) {
        memcpy(rows, w.rows, w.row_count * sizeof *rows);
        if (w.band_count) memcpy(bands, w.bands, w.band_count * sizeof *bands);
        *out = (mc_bands){rows, bands, (uint32_t)w.row_count, (uint32_t)w.band_count};
        *out_overlap = w.overlap;
    }
    free(w.pieces);
    free(w.ends);
    free(w.overlapped);
    free(w.list[0].at);
    free(w.list[1].at);
    free(w.rows);
    free(w.bands);
    return code;
}
