/* deal.c: gives the pieces of work of a forward pass to the CTAs so that the last CTA ends earlier. If that helps, it
 * also cuts rows by keys.
 *
 * Example:  132 CTAs have 140 rows of 64 cells. As they are, eight CTAs still have a row when all others have ended. If
 *           the last eight rows are cut into eight parts each, 64 CTAs have a short part more instead.
 * Requires: a list of rows, longest first.
 * Gives:    fcp_worklists_deal of list.h.
 * Method:   1. Two ways to deal out whole rows are simulated. One is that of fk_piece: one for each CTA in their order,
 *              then one in the reverse order, and so on, which is fair if rows become shorter evenly. The other way is
 *              list scheduling by rounds: in each round the longest row that is left goes to the CTA that has least
 *              to do so far, the next longest to the next CTA, and so on.
 *           2. If more than a fiftieth of the CTAs' time is unused, and the plan is not packed, cuts are tried, too,
 *              and dealt out in the second way:
 *              - the rows of the last round, if it is not full, in parts of several lengths;
 *              - if that round fills more than half of the CTAs, chains: each row is cut in two, such that a CTA takes
 *                the end of one row and the beginning of the next (add_chain);
 *              - all long rows, in parts of several lengths, if there are at most FEW_TURNS rows for each CTA.
 *              The best cut is taken if it ends more than a hundredth earlier. Of equal cuts the first is kept.
 *           3. If the last CTA then ends more than a hundredth earlier than by the list as it was (from which CTAs take
 *              rows as fk_piece says, or with tickets each the next when it has done one), each piece becomes
 *              an item, at the place in the list where its CTA will look for it; or with tickets, in the order in which
 *              they begin. Otherwise the list stays as it is.
 *           The simulated times are whole numbers, so the same plan has the same list.
 * Cost:     for each length of parts a sort of the CTAs for each round, and only where CTAs have few pieces each.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/worklists/list.h"

enum {
    MOST_TURNS = 64, /* pieces for each CTA: where there are more, the last of them does not matter */
    FEW_TURNS = 4,   /* with so many or fewer, all long pieces may be cut */
    MOST_PARTS = 8,  /* of a piece */
    LEAST_CELLS = 2, /* of a part */
    LENGTHS = 16,    /* lengths of parts that are compared, where the longest piece is one of them */
    /* The units of simulated time: half a cell's products, which are 2048 clocks with head_dim 128.
     *   CELL    a cell of a piece
     *   ENDS    to begin and end a piece
     *   LEAVE   to leave the running state of a part: 64 KB, at about 24 bytes a clock if all SMs do it at once
     *   JOIN    what the last part of a row takes to add the state of one other part */
    CELL = 2,
    ENDS = 1,
    LEAVE = 3,
    JOIN = 3
};

/* How many CTAs attention has, as far as the plan knows. A session may leave another margin than this plan's; then CTAs
 * get other pieces, and results have the same bits. */
static uint64_t ctas_of(const fcp_arena *a) {
    const fcp_plan *plan = a->plan;
    const uint64_t all = plan->cluster->multiprocessors, margin = plan->problem->margin;
    if (!all || !fcp_stream_of(plan, a->pass, a->rank, FCP_COMM)->count) return all;
    return margin < all ? all - margin : 1; /* as runtime/cuda/partition.c gives them for a first plan */
}

/* A piece of work. It is a row of the list before it was cut, which is an item for one query head; or a part of its
 * keys, namely cells [from, to) of them. */
struct piece {
    uint32_t row, part, parts, from, to;
    uint64_t units, start; /* start: when its CTA begins it, as it was dealt out */
};
/* What is known of a row whose keys are cut. end, cta: when its last part ends, and in which CTA. cut: 0, or one more
 * than the number of its first part among all parts in the list. */
struct join {
    uint64_t end;
    uint32_t cta, cut;
};

struct dealing {
    fcp_worklists *w;
    const fcp_arena *a;
    uint64_t ctas;
    uint32_t heads, rows; /* row i is item i / heads */
    uint32_t *cells;      /* of each item */
    struct piece *pieces;
    uint64_t count;
    struct join *joins;          /* of each row */
    struct fcp_worklists_size *sizes; /* of each CTA: what it has to do, and its number */
    uint64_t *loads;             /* the same, by number */
    uint64_t *before;            /* the same, when each CTA has got as many whole rows as any other */
    uint32_t *owners;            /* of each piece: the number of its CTA */
};

/* A way to cut the rows from `from` on: into `chains` chains; or if that is 0, into parts of at most `part` cells. end:
 * when the last CTA ends. in_turn: pieces are dealt out as fk_piece says, else by list scheduling. */
struct dealt {
    uint32_t from, part, chains;
    uint64_t end;
    bool in_turn;
};

static uint32_t parts_of(const struct dealing *x, uint32_t row, const struct dealt *cut) {
    const uint32_t cells = x->cells[row / x->heads];
    if (row < cut->from || cells <= cut->part) return 1;
    const uint32_t parts = cells / cut->part + (cells % cut->part != 0);
    return parts < MOST_PARTS ? parts : MOST_PARTS;
}

/* Where one of several equal parts begins. */
static uint32_t first_cell(uint32_t cells, uint32_t part, uint32_t parts) {
    return (uint32_t)((uint64_t)cells * part / parts);
}

static int longer(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    if (x->units != y->units) return x->units > y->units ? -1 : 1;
    if (x->row != y->row) return x->row < y->row ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

static void add_piece(struct dealing *x, uint32_t row, uint32_t part, uint32_t parts, uint32_t from, uint32_t to) {
    const uint64_t units = CELL * (uint64_t)(to - from) + ENDS + (parts > 1 ? LEAVE : 0);
    x->pieces[x->count++] = (struct piece){row, part, parts, from, to, units, 0};
}

/* Makes a chain: cuts `count` rows in two so that they keep count + 1 CTAs busy for equal times. The second part of
 * each row and the first part of the next belong to one CTA. For example, three rows of 64 cells become parts of 48 and
 * 16, 32 and 32, 16 and 48, for CTAs with 48, 16 + 32, 32 + 16 and 48 cells. The longer part of a row, which stands
 * first in the list, ends later, and joins both. */
static void add_chain(struct dealing *x, uint32_t row, uint32_t count) {
    uint64_t all = 0, used = 0;
    for (uint32_t i = 0; i < count; i++)
        all += CELL * (uint64_t)x->cells[(row + i) / x->heads] + (uint64_t)2 * (ENDS + LEAVE) + JOIN;
    const uint64_t share = all / (count + 1) + (all % (count + 1) != 0);
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t cells = x->cells[(row + i) / x->heads];
        const bool early = 2 * i < count; /* the first part is the longer one */
        const uint64_t taken = used + ENDS + LEAVE + (early ? JOIN : 0);
        const uint64_t left = share > taken ? (share - taken) / CELL : 0;
        uint32_t first = left < cells ? (uint32_t)left : cells;
        if (first + LEAST_CELLS > cells) first = cells - LEAST_CELLS;
        if (first < LEAST_CELLS) first = LEAST_CELLS;
        add_piece(x, row + i, 0, 2, 0, first);
        add_piece(x, row + i, 1, 2, first, cells);
        used = CELL * (uint64_t)(cells - first) + ENDS + LEAVE + (early ? 0 : JOIN);
    }
}

/* Makes the pieces of a cut: first the rows that are not cut, in their order (of which those before `begin` are made
 * already); then the others' parts, longest first. */
static void make_pieces(struct dealing *x, const struct dealt *cut, uint32_t begin) {
    const uint32_t end = cut->chains ? cut->from : x->rows;
    x->count = begin;
    for (uint32_t row = begin; row < end; row++) {
        const uint32_t parts = parts_of(x, row, cut), cells = x->cells[row / x->heads];
        for (uint32_t i = 0; i < parts; i++)
            add_piece(x, row, i, parts, first_cell(cells, i, parts), first_cell(cells, i + 1, parts));
    }
    for (uint32_t i = 0; i < cut->chains; i++) {
        const uint32_t row = end + first_cell(x->rows - end, i, cut->chains);
        add_chain(x, row, end + first_cell(x->rows - end, i + 1, cut->chains) - row);
    }
    if (cut->from < x->rows) qsort(x->pieces + cut->from, x->count - cut->from, sizeof *x->pieces, longer);
}

/* When the last CTA ends, if each takes the next piece of the list as soon as it has done one. x->loads is a heap: the
 * least is the first, and none is less than the one at half its number. */
static uint64_t end_by_tickets(const struct dealing *x) {
    uint64_t *heap = x->loads, end = 0;
    memset(heap, 0, x->ctas * sizeof *heap);
    for (uint64_t i = 0; i < x->count; i++) {
        const uint64_t ends = heap[0] + x->pieces[i].units;
        uint64_t at = 0;
        for (uint64_t below; (below = 2 * at + 1) < x->ctas; at = below) {
            if (below + 1 < x->ctas && heap[below + 1] < heap[below]) below++;
            if (heap[below] >= ends) break;
            heap[at] = heap[below];
        }
        heap[at] = ends;
        if (ends > end) end = ends;
    }
    return end;
}

/* Deals the list out as fk_piece says. Returns when the last CTA ends. */
static uint64_t deal_in_turn(struct dealing *x) {
    uint64_t end = 0;
    for (uint64_t cta = 0; cta < x->ctas; cta++) {
        uint64_t units = 0;
        for (uint64_t turn = 0, i; turn * x->ctas < x->count; turn++)
            if ((i = turn * x->ctas + (turn % 2 ? x->ctas - 1 - cta : cta)) < x->count) {
                x->pieces[i].start = units;
                units += x->pieces[i].units;
            }
        if (units > end) end = units;
    }
    return end;
}

static int less_to_do(const void *a, const void *b) {
    const struct fcp_worklists_size *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Deals pieces out by list scheduling, a round at a time: in each round the longest piece goes to the CTA that has
 * least to do, the next longest to the next CTA, and so on. Returns when the last CTA ends. It begins with piece
 * `begin`, which is the first of a round. Pieces before that are whole rows that an earlier call has dealt out;
 * x->before says how much each CTA had to do then. */
static uint64_t deal(struct dealing *x, uint32_t begin) {
    uint64_t end = 0;
    memset(x->joins + begin, 0, (x->rows - begin) * sizeof *x->joins);
    if (begin) memcpy(x->loads, x->before, x->ctas * sizeof *x->loads);
    else memset(x->loads, 0, x->ctas * sizeof *x->loads);
    for (uint32_t b = 0; b < x->ctas; b++) x->sizes[b].index = b;
    for (uint64_t i = begin; i < x->count; i++) {
        struct piece *piece = &x->pieces[i];
        const uint64_t at = i % x->ctas;
        if (x->count == x->rows && i == x->rows / x->ctas * x->ctas)
            memcpy(x->before, x->loads, x->ctas * sizeof *x->loads);
        for (uint32_t b = 0; !at && b < x->ctas; b++) x->sizes[b].size = x->loads[x->sizes[b].index];
        if (!at) qsort(x->sizes, x->ctas, sizeof *x->sizes, less_to_do);
        const uint32_t cta = x->owners[i] = x->sizes[at].index;
        piece->start = x->loads[cta];
        x->loads[cta] += piece->units;
        struct join *join = &x->joins[piece->row];
        if (piece->parts > 1 && x->loads[cta] >= join->end) *join = (struct join){x->loads[cta], cta, 0};
    }
    for (uint64_t i = begin; i < x->count; i++)
        if (x->pieces[i].part) x->loads[x->joins[x->pieces[i].row].cta] += JOIN;
    for (uint64_t b = 0; b < x->ctas; b++)
        if (x->loads[b] > end) end = x->loads[b];
    return end;
}

static int earlier(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return longer(a, b);
}

/* Where piece i stands in the list, so that its CTA finds it by fk_piece. In the last round the pieces stand as they were
 * dealt; which CTA is which follows from that. */
static uint64_t place_of(const struct dealing *x, const uint32_t *ranks, uint64_t i) {
    const uint64_t turn = i / x->ctas, last = (x->count - 1) / x->ctas;
    const uint64_t rank = ranks[x->owners[i]];
    return turn * x->ctas + ((last - turn) % 2 ? x->ctas - 1 - rank : rank);
}

/* Makes an item a part of its rows. */
static fcp_code cut_item(struct dealing *x, const struct piece *piece, fk_row_item *out, fcp_error *err) {
    fcp_worklists *w = x->w;
    struct join *join = &x->joins[piece->row];
    fcp_code code = fcp_worklists_copy_runs(w, x->a, out, piece->from, piece->to, err);
    if (code) return code;
    if (!join->cut) {
        join->cut = w->cut_parts + 1;
        w->cut_parts += piece->parts;
    }
    out->part = piece->part;
    out->parts = piece->parts;
    out->cut = join->cut - 1;
    if (piece->part) out->flags |= FK_FIRST; /* only the first part goes on from the state of earlier visits */
    return FCP_OK;
}

/* Makes an item of each piece, and puts them into the order in which they were dealt. */
static fcp_code put_in_order(struct dealing *x, uint32_t first_head, fcp_error *err) {
    fcp_worklists *w = x->w;
    uint32_t *ranks = fcp_worklists_scratch(w, FCP_WORKLISTS_TURNS, x->ctas, sizeof *ranks);
    fk_row_item *out = fcp_worklists_scratch(w, FCP_WORKLISTS_PERMUTED, x->count, sizeof *out);
    if (!ranks || !out || !FCP_GROW(w->rows, w->row_capacity, (uint32_t)x->count))
        return fcp_worklists_no_memory(err);
    for (uint32_t r = 0; r < x->rows; r++) x->joins[r].cut = 0;
    for (uint32_t b = 0; !w->tickets && b < x->ctas; b++) ranks[x->sizes[b].index] = b;
    /* By tickets no piece begins later than it was dealt out, if those that begin earlier stand before it. */
    if (w->tickets) qsort(x->pieces, x->count, sizeof *x->pieces, earlier);
    for (uint64_t i = 0; i < x->count; i++) {
        const struct piece *piece = &x->pieces[i];
        fk_row_item *item = &out[w->tickets ? i : place_of(x, ranks, i)];
        *item = w->rows[piece->row / x->heads];
        if (!w->single) item->flags |= (first_head + piece->row % x->heads) << FK_HEAD_SHIFT;
        fcp_code code = piece->parts > 1 ? cut_item(x, piece, item, err) : FCP_OK;
        if (code) return code;
    }
    memcpy(w->rows, out, x->count * sizeof *out);
    w->row_count = (uint32_t)x->count;
    w->single = true;
    w->split_bytes += w->cut_parts * (uint64_t)FK_PART_BYTES(x->a->plan->problem->value_dim);
    return FCP_OK;
}

/* Deals out the pieces of a cut, and keeps the cut if it is the best so far. */
static void try_cut(struct dealing *x, uint32_t from, uint32_t part, uint32_t chains, struct dealt *best) {
    const uint32_t begin = from < x->rows ? from : 0;
    struct dealt cut = {from, part, chains, 0, false};
    make_pieces(x, &cut, begin);
    cut.end = deal(x, begin);
    if (cut.end < best->end) *best = cut;
}

/* Tries cuts of the rows from `from` on, the first of which has `cells` cells. */
static void try_cuts(struct dealing *x, uint32_t from, uint32_t cells, struct dealt *best) {
    for (uint32_t n = LENGTHS - 1, before = 0; n > 1; n--) {
        const uint32_t part = (uint32_t)(((uint64_t)cells * n + LENGTHS - 1) / LENGTHS);
        if (part == before || part < LEAST_CELLS) continue;
        before = part;
        try_cut(x, from, part, 0, best);
    }
}

/* Room for the pieces of any cut. */
static bool open_dealing(struct dealing *x) {
    fcp_worklists *w = x->w;
    const uint64_t parts = x->rows <= FEW_TURNS * x->ctas ? MOST_PARTS : 1;
    const uint64_t most = x->rows * parts + x->ctas * MOST_PARTS;
    x->cells = fcp_worklists_scratch(w, FCP_WORKLISTS_FIRSTS, w->row_count, sizeof *x->cells);
    x->pieces = fcp_worklists_scratch(w, FCP_WORKLISTS_PIECES, most, sizeof *x->pieces);
    x->joins = fcp_worklists_scratch(w, FCP_WORKLISTS_JOINS, x->rows, sizeof *x->joins);
    x->sizes = fcp_worklists_scratch(w, FCP_WORKLISTS_SIZES, x->ctas, sizeof *x->sizes);
    x->loads = fcp_worklists_scratch(w, FCP_WORKLISTS_CURSORS, 2 * x->ctas, sizeof *x->loads);
    x->before = x->loads ? x->loads + x->ctas : NULL;
    x->owners = fcp_worklists_scratch(w, FCP_WORKLISTS_LOCKS, most, sizeof *x->owners);
    return x->cells && x->pieces && x->joins && x->sizes && x->loads && x->owners;
}

fcp_code fcp_worklists_deal(fcp_worklists *w, const fcp_arena *a, fcp_error *err) {
    const fcp_problem *p = a->plan->problem;
    const uint32_t kv_heads = w->kv_count ? w->kv_count : p->range_kv, kv_first = w->kv_count ? w->kv_first : 0;
    struct dealing x = {.w = w, .a = a, .heads = w->single ? 1 : kv_heads * p->range_sub, .ctas = ctas_of(a)};
    const uint64_t rows = (uint64_t)w->row_count * x.heads, rest = x.ctas ? rows % x.ctas : 0;
    uint64_t work = 0;
    if (!rows || rows > MOST_TURNS * x.ctas) return FCP_OK;
    x.rows = (uint32_t)rows;
    if (!open_dealing(&x)) return fcp_worklists_no_memory(err);
    for (uint32_t i = 0; i < w->row_count; i++) {
        x.cells[i] = fcp_worklists_cells(w, &w->rows[i]);
        work += (uint64_t)x.heads * CELL * x.cells[i];
    }
    struct dealt best = {x.rows, UINT32_MAX, 0, 0, true};
    make_pieces(&x, &best, 0);
    best.end = deal_in_turn(&x);
    const uint64_t listed = w->tickets ? end_by_tickets(&x) : best.end;
    if (rows > x.ctas) try_cut(&x, x.rows, UINT32_MAX, 0, &best);
    if (!fcp_plan_packed(a->plan) && 100 * work < 98 * best.end * x.ctas) {
        struct dealt cut = best;
        const uint32_t from = (uint32_t)(rows - rest);
        if (rest && rows > x.ctas) try_cuts(&x, from, x.cells[from / x.heads], &cut);
        if (2 * rest > x.ctas && rows > x.ctas && x.cells[(x.rows - 1) / x.heads] >= 2 * LEAST_CELLS)
            try_cut(&x, from, UINT32_MAX, (uint32_t)(x.ctas - rest), &cut);
        if (rows <= FEW_TURNS * x.ctas) try_cuts(&x, 0, x.cells[0], &cut);
        if (100 * cut.end < 99 * best.end) best = cut;
    }
    if (100 * best.end >= 99 * listed) return FCP_OK;
    make_pieces(&x, &best, 0);
    if (best.in_turn) deal_in_turn(&x);
    else deal(&x, 0);
    return put_in_order(&x, kv_first * p->range_sub, err);
}
