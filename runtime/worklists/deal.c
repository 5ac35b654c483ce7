/* deal.c: puts a list of rows of the forward pass into an order in which blocks end earlier, where there is one, and
 * cuts the keys of rows where blocks end earlier still.
 *
 * Requires: a list of rows, longest first.
 * Gives:    fcp_list_deal of list.h.
 * Method:   blocks take pieces of work as fk_piece says: one each in their order, then one each in the reverse order.
 *           That is fair if pieces become shorter evenly. Another way is to give each block one of the longest pieces,
 *           then one each of the longest that are left, the longest of them to the block that has least to do so far,
 *           and so on. Both are counted. If time is still left unused, pieces are cut into parts of their keys and
 *           dealt out in the second way: all long ones, where there are few; or those that are left when each block
 *           has got as many as any other. Several lengths of parts are compared; and chains, if more than half of the
 *           blocks get one of those that are left. Of equal cuts the first is kept. If the last block ends a hundredth
 *           earlier, the list has an item for each piece, in the order in which blocks find theirs. The times are a
 *           model's, which counts in whole numbers: the same plan has the same list.
 * Cost:     for each length of parts a sort of the blocks for each turn, and only where blocks have few pieces each.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/worklists/list.h"

enum {
    MOST_TURNS = 64, /* pieces for each block: where there are more, the last of them does not matter */
    FEW_TURNS = 4,   /* with so many or fewer, all long pieces may be cut */
    MOST_PARTS = 8,  /* of a piece */
    LEAST_CELLS = 2, /* of a part */
    LENGTHS = 16,    /* lengths of parts that are compared, where the longest piece is one of them */
    /* Units of time. A cell takes two; to begin and end a piece takes one. To leave the running state of a part takes
     * three, and the last part of a row takes three more for each of the others. With head_dim 128 a state is 64 KB.
     * If all multiprocessors move theirs at once, each moves about 24 bytes a clock, and the products of a cell are
     * 2048 clocks. */
    CELL = 2,
    ENDS = 1,
    LEAVE = 3,
    JOIN = 3
};

/* How many blocks attention has, as far as the plan knows. A session may leave another margin than this plan's: then
 * blocks find their work in another order, and results have the same bits. */
static uint64_t blocks_of(const fcp_arena *a) {
    const fcp_plan *plan = a->plan;
    const uint64_t all = plan->cluster->multiprocessors, margin = plan->problem->margin;
    if (!all || !fcp_stream_of(plan, a->pass, a->rank, FCP_COMM)->count) return all;
    return margin < all ? all - margin : 1; /* as runtime/cuda/partition.c gives them for a first plan */
}

/* A piece of work: a row of the list before it was cut, which is an item for one query head; or a part of its keys,
 * which are cells [from, to) of them. */
struct piece {
    uint32_t row, part, parts, from, to;
    uint64_t units;
};
/* Of a row whose keys are cut: when its last part ends, and in which block; once it is in the list, its number there.
 */
struct join {
    uint64_t end;
    uint32_t block, cut;
};

struct dealing {
    fcp_kernel_work *w;
    const fcp_arena *a;
    uint64_t blocks;
    uint32_t heads, rows; /* row i is item i / heads */
    uint32_t *cells;      /* of each item */
    struct piece *pieces;
    uint64_t count;
    struct join *joins;          /* of each row */
    struct fcp_list_size *sizes; /* of each block: what it has to do, and its number */
    uint64_t *loads;             /* the same, by number */
    uint64_t *before;            /* the same, when each block has got as many whole rows as any other */
    uint32_t *owners;            /* of each piece: the number of its block */
};

/* How the rows from `from` on are cut: into so many chains; or if 0, into parts of at most `part` cells. */
struct dealt {
    uint32_t from, part, chains;
    uint64_t end; /* of the last block */
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
    x->pieces[x->count++] = (struct piece){row, part, parts, from, to, units};
}

/* Cuts `count` rows in two so that one block more than rows is busy with them, and all for the same time: the second
 * part of each row and the first part of the next are one block's. An example, three rows of 64 cells: parts of 48 and
 * 16, 32 and 32, 16 and 48, for blocks with 48, 16 + 32, 32 + 16 and 48 cells. The longer part of a row, which stands
 * first in the list, ends later, and joins. */
static void add_chain(struct dealing *x, uint32_t row, uint32_t count) {
    uint64_t all = 0, used = 0;
    for (uint32_t i = 0; i < count; i++)
        all += CELL * (uint64_t)x->cells[(row + i) / x->heads] + 2 * (ENDS + LEAVE) + JOIN;
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

/* Makes the pieces of a cut: first the rows that are not cut, in their order, of which those before `begin` are there;
 * then the others' parts, longest first. */
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

/* When the last block ends that takes pieces from the list as it is. */
static uint64_t end_as_listed(const struct dealing *x) {
    uint64_t end = 0;
    for (uint64_t block = 0; block < x->blocks; block++) {
        uint64_t units = 0;
        for (uint64_t turn = 0, i; turn * x->blocks < x->count; turn++)
            if ((i = turn * x->blocks + (turn % 2 ? x->blocks - 1 - block : block)) < x->count)
                units += x->pieces[i].units;
        if (units > end) end = units;
    }
    return end;
}

static int less_to_do(const void *a, const void *b) {
    const struct fcp_list_size *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Deals the pieces out in the other way; returns when the last block ends. Those before `begin`, where a turn begins,
 * have been dealt out: by all rows that are whole, which leave what blocks had in `before`. */
static uint64_t deal(struct dealing *x, uint32_t begin) {
    uint64_t end = 0;
    memset(x->joins + begin, 0, (x->rows - begin) * sizeof *x->joins);
    if (begin) memcpy(x->loads, x->before, x->blocks * sizeof *x->loads);
    else memset(x->loads, 0, x->blocks * sizeof *x->loads);
    for (uint32_t b = 0; b < x->blocks; b++) x->sizes[b].index = b;
    for (uint64_t i = begin; i < x->count; i++) {
        const struct piece *piece = &x->pieces[i];
        const uint64_t at = i % x->blocks;
        if (x->count == x->rows && i == x->rows / x->blocks * x->blocks)
            memcpy(x->before, x->loads, x->blocks * sizeof *x->loads);
        for (uint32_t b = 0; !at && b < x->blocks; b++) x->sizes[b].size = x->loads[x->sizes[b].index];
        if (!at) qsort(x->sizes, x->blocks, sizeof *x->sizes, less_to_do);
        const uint32_t block = x->owners[i] = x->sizes[at].index;
        x->loads[block] += piece->units;
        struct join *join = &x->joins[piece->row];
        if (piece->parts > 1 && x->loads[block] >= join->end) *join = (struct join){x->loads[block], block, 0};
    }
    for (uint64_t i = begin; i < x->count; i++)
        if (x->pieces[i].part) x->loads[x->joins[x->pieces[i].row].block] += JOIN;
    for (uint64_t b = 0; b < x->blocks; b++)
        if (x->loads[b] > end) end = x->loads[b];
    return end;
}

/* Where piece i stands in the list, so that its owner finds it. In the last turn the pieces stand as they were dealt;
 * which block is which follows from that. */
static uint64_t place_of(const struct dealing *x, const uint32_t *ranks, uint64_t i) {
    const uint64_t turn = i / x->blocks, last = (x->count - 1) / x->blocks;
    const uint64_t rank = ranks[x->owners[i]];
    return turn * x->blocks + ((last - turn) % 2 ? x->blocks - 1 - rank : rank);
}

/* Makes an item a part of its rows. */
static fcp_code cut_item(struct dealing *x, const struct piece *piece, fk_row_item *out, fcp_error *err) {
    fcp_kernel_work *w = x->w;
    struct join *join = &x->joins[piece->row];
    fcp_code code = fcp_list_copy_runs(w, x->a, out, piece->from, piece->to, err);
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
    fcp_kernel_work *w = x->w;
    uint32_t *ranks = fcp_list_scratch(w, FCP_LIST_TURNS, x->blocks, sizeof *ranks);
    fk_row_item *out = fcp_list_scratch(w, FCP_LIST_PERMUTED, x->count, sizeof *out);
    if (!ranks || !out || !FCP_GROW(w->rows, w->row_capacity, (uint32_t)x->count))
        return fcp_list_no_memory(err);
    for (uint32_t r = 0; r < x->rows; r++) x->joins[r].cut = 0;
    for (uint32_t b = 0; b < x->blocks; b++) ranks[x->sizes[b].index] = b;
    for (uint64_t i = 0; i < x->count; i++) {
        const struct piece *piece = &x->pieces[i];
        fk_row_item *item = &out[place_of(x, ranks, i)];
        *item = w->rows[piece->row / x->heads];
        if (!w->single) item->flags |= (first_head + piece->row % x->heads) << FK_HEAD_SHIFT;
        fcp_code code = piece->parts > 1 ? cut_item(x, piece, item, err) : FCP_OK;
        if (code) return code;
    }
    memcpy(w->rows, out, x->count * sizeof *out);
    w->row_count = (uint32_t)x->count;
    w->single = true;
    w->split_bytes += (uint64_t)w->cut_parts * FK_PART_BYTES(x->a->plan->problem->value_dim);
    return FCP_OK;
}

/* Deals a cut out, and keeps it if it is the best so far. */
static void try_cut(struct dealing *x, uint32_t from, uint32_t part, uint32_t chains, struct dealt *best) {
    const uint32_t begin = from < x->rows ? from : 0;
    struct dealt cut = {from, part, chains, 0};
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
    fcp_kernel_work *w = x->w;
    const uint64_t parts = x->rows <= FEW_TURNS * x->blocks ? MOST_PARTS : 1;
    const uint64_t most = x->rows * parts + x->blocks * MOST_PARTS;
    x->cells = fcp_list_scratch(w, FCP_LIST_FIRSTS, w->row_count, sizeof *x->cells);
    x->pieces = fcp_list_scratch(w, FCP_LIST_PIECES, most, sizeof *x->pieces);
    x->joins = fcp_list_scratch(w, FCP_LIST_JOINS, x->rows, sizeof *x->joins);
    x->sizes = fcp_list_scratch(w, FCP_LIST_SIZES, x->blocks, sizeof *x->sizes);
    x->loads = fcp_list_scratch(w, FCP_LIST_CURSORS, 2 * x->blocks, sizeof *x->loads);
    x->before = x->loads ? x->loads + x->blocks : NULL;
    x->owners = fcp_list_scratch(w, FCP_LIST_LOCKS, most, sizeof *x->owners);
    return x->cells && x->pieces && x->joins && x->sizes && x->loads && x->owners;
}

fcp_code fcp_list_deal(fcp_kernel_work *w, const fcp_arena *a, fcp_error *err) {
    const fcp_problem *p = a->plan->problem;
    const uint32_t kv_heads = w->kv_count ? w->kv_count : p->range_kv, kv_first = w->kv_count ? w->kv_first : 0;
    struct dealing x = {.w = w, .a = a, .heads = w->single ? 1 : kv_heads * p->range_sub, .blocks = blocks_of(a)};
    const uint64_t rows = (uint64_t)w->row_count * x.heads, rest = x.blocks ? rows % x.blocks : 0;
    uint64_t work = 0;
    if (!rows || rows > MOST_TURNS * x.blocks) return FCP_OK;
    x.rows = (uint32_t)rows;
    if (!open_dealing(&x)) return fcp_list_no_memory(err);
    for (uint32_t i = 0; i < w->row_count; i++) {
        x.cells[i] = fcp_list_cells(w, &w->rows[i]);
        work += (uint64_t)x.heads * CELL * x.cells[i];
    }
    struct dealt best = {x.rows, UINT32_MAX, 0, 0};
    make_pieces(&x, &best, 0);
    const uint64_t listed = end_as_listed(&x);
    best.end = listed;
    if (rows > x.blocks) try_cut(&x, x.rows, UINT32_MAX, 0, &best);
    if (!fcp_plan_packed(a->plan) && 100 * work < 98 * best.end * x.blocks) {
        struct dealt cut = best;
        const uint32_t from = (uint32_t)(rows - rest);
        if (rest && rows > x.blocks) try_cuts(&x, from, x.cells[from / x.heads], &cut);
        if (2 * rest > x.blocks && rows > x.blocks && x.cells[(x.rows - 1) / x.heads] >= 2 * LEAST_CELLS)
            try_cut(&x, from, UINT32_MAX, (uint32_t)(x.blocks - rest), &cut);
        if (rows <= FEW_TURNS * x.blocks) try_cuts(&x, 0, x.cells[0], &cut);
        if (100 * cut.end < 99 * best.end) best = cut;
    }
    if (100 * best.end >= 99 * listed) return FCP_OK;
    make_pieces(&x, &best, 0);
    deal(&x, 0);
    return put_in_order(&x, kv_first * p->range_sub, err);
}
