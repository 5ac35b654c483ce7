/* work.c: makes the kernels' work lists from the visits of a plan.
 *
 * Requires: a verified plan; an arena as fcp_arena_lay gives it.
 * Gives:    work.h.
 * Method:   rows go visit by visit and piece by piece, one row of cells at a time, over the tiles in their order. Keys
 *           need two passes over the same cells: the first counts how many cells each column has, the second puts them
 *           there. Then cells of one class that stand below each other become one run.
 * Cost:     rows: linear in the runs of the visits' tiles and in their rows of cells. Keys: linear in the cells, and a
 *           table over all blocks of the plan. Both sort their items. Memory: the lists, and as much again while they
 *           are made.
 */
#include "runtime/kernels/work.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/source.h"
#include "runtime/base/grow.h"

_Static_assert((int)FK_ROWS == FCP_CELL && (int)FK_KEYS == FCP_CELL, "an item is one row or column of cells");
_Static_assert((int)FK_FULL == FCP_CELL_FULL && (int)FK_PARTIAL == FCP_CELL_PARTIAL, "classes of cells");
_Static_assert((int)FK_FIRST == FCP_VISIT_FIRST && (int)FK_LAST == FCP_VISIT_LAST, "flags of visits");
_Static_assert(sizeof(fk_row_item) == 56 && sizeof(fk_merge_item) == 72 && sizeof(fk_key_run) == 48 &&
                   sizeof(fk_key_item) == 80 && sizeof(fk_row_run) == 32 && sizeof(fk_sequence) == 48 &&
                   sizeof(fk_bands) == 24 && sizeof(fk_launch) == 192 && sizeof(fk_map) == 128 &&
                   sizeof(fk_launch_maps) == 192 + 5 * 128 && sizeof(fk_support) == 80,
               "records are the same on host and device");

/* What each scratch array is for. */
enum { CURSORS, SIZES, FIRSTS, PERMUTED, LOCKS, TURNS, SCRATCHES };

static fcp_code no_memory(fcp_error *err) { return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a work list"); }
static fcp_code too_long(fcp_error *err) {
    return fcp_fail(err, FCP_E_RUN, "a stage's work list does not fit in 32 bits");
}

/* Scratch memory for `count` elements; its contents are undefined. NULL: out of memory. It belongs to the work list. */
static void *scratch(fcp_kernel_work *w, int which, size_t count, size_t size) {
    if (count > SIZE_MAX / size - 1) return NULL;
    size_t bytes = (count + 1) * size;
    if (bytes <= w->scratch_bytes[which]) return w->scratch[which];
    free(w->scratch[which]);
    w->scratch[which] = malloc(bytes);
    w->scratch_bytes[which] = w->scratch[which] ? bytes : 0;
    return w->scratch[which];
}

void fcp_kernel_work_free(fcp_kernel_work *work) {
    free(work->rows);
    free(work->key_runs);
    free(work->merges);
    free(work->keys);
    free(work->row_runs);
    for (int i = 0; i < SCRATCHES; i++) free(work->scratch[i]);
    _Static_assert(SCRATCHES == sizeof work->scratch / sizeof *work->scratch, "one for each");
    *work = (fcp_kernel_work){0};
}

bool fcp_kernel_by_head(const fcp_plan *plan) {
    uint32_t most = 1;
    for (uint32_t i = 0; i < plan->heads_count; i++)
        if (fcp_class_count(plan, i) > most) most = fcp_class_count(plan, i);
    return most > 1;
}

/* Is a sequence one of few queries and many keys? */
static bool is_short(const fcp_sequence *s) {
    return s->queries > 0 && s->queries <= FK_SHORT_QUERIES && s->queries < s->keys;
}

bool fcp_kernel_packed(const fcp_plan *plan) {
    for (uint64_t i = 0; i < plan->sequences_count; i++)
        if (is_short(&plan->sequences[i])) return !fcp_kernel_by_head(plan);
    return false;
}

uint64_t fcp_kernel_row_pieces(const fcp_arena *a, uint32_t items, uint32_t heads) {
    const bool packed = a->pass == FCP_FORWARD && fcp_kernel_packed(a->plan);
    return fcp_kernel_pieces(packed || fcp_kernel_by_head(a->plan), items, heads);
}

static fk_u64 offset_of(const fcp_arena *a, const void *place) {
    return (fk_u64)((const char *)place - (const char *)a->q);
}

/* Where the copy engine finds the K and V of token `at` of a KV slot: in which tensor, and in which rows of it. False:
 * the number of a row does not fit in the copy engine's 32-bit coordinates. */
struct key_rows {
    uint32_t place, k, v;
};
static bool find_key_rows(const fcp_arena *a, uint32_t slot, uint64_t at, struct key_rows *out) {
    uint64_t size = a->plan->problem->max_block, first;
    bool home = slot < a->homes;
    first = home ? a->home_first[FCP_KEYS][slot] + at : (slot - a->homes) * 2 * size + at;
    if (first + size > INT32_MAX) return false;
    *out = (struct key_rows){home ? FK_AT_HOME : FK_MOVED, (uint32_t)first, (uint32_t)(home ? first : first + size)};
    return true;
}

/* --- longest first ------------------------------------------------------------------------------------------------ */

/* How much work an item is, and where it stands. */
struct size {
    uint64_t size;
    uint32_t index;
};

static int longer(const void *a, const void *b) {
    const struct size *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Sorts `count` items of `bytes` bytes each, longest first. */
static bool sort_items(fcp_kernel_work *w, void *items, uint32_t count, size_t bytes, struct size *sizes) {
    char *permuted = scratch(w, PERMUTED, count, bytes);
    if (!permuted) return false;
    if (!count) return true;
    qsort(sizes, count, sizeof *sizes, longer);
    for (uint32_t i = 0; i < count; i++) memcpy(permuted + i * bytes, (char *)items + sizes[i].index * bytes, bytes);
    memcpy(items, permuted, count * bytes);
    return true;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* Adds the runs of keys that one row of cells meets in one part of a tile, for a class of heads. */
static fcp_code add_key_runs(fcp_kernel_work *w, const fcp_arena *a, const fcp_tile *tile, const fcp_part *part,
                             uint32_t cls, uint32_t row, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_problem *p = plan->problem;
    const fcp_shape_rec *shape = &plan->shapes[part->shape + cls];
    const fcp_piece *piece = &plan->pieces[part->k_piece];
    size_t stride = (size_t)a->kv_heads * p->head_dim * fcp_dtype_size((fcp_dtype)p->dtype);
    char *k, *v;
    fcp_arena_kv(a, tile->kv_slot, &k, &v);
    const uint32_t arrival = w->fusion ? fcp_fusion_arrival(w->fusion, tile->kv_slot) : 0;
    uint32_t end_run = shape->first_run + shape->runs;
    for (uint32_t i = fcp_run_of_row(plan, shape, row); i < end_run && plan->runs[i].row == row; i++) {
        const fcp_run *run = &plan->runs[i];
        uint64_t begin = (uint64_t)run->col * FCP_CELL, end = begin + (uint64_t)run->count * FCP_CELL;
        if (end > piece->length) end = piece->length;
        if (w->key_run_count == UINT32_MAX) return too_long(err);
        if (!fcp_grow((void **)&w->key_runs, &w->key_run_capacity, w->key_run_count + 1, sizeof *w->key_runs))
            return no_memory(err);
        size_t at = (piece->offset + begin) * stride;
        struct key_rows rows;
        if (!find_key_rows(a, tile->kv_slot, piece->offset + begin, &rows)) return too_long(err);
        w->key_runs[w->key_run_count++] = (fk_key_run){.position = (fk_i64)(piece->start + begin),
                                                       .k = offset_of(a, k + at),
                                                       .v = offset_of(a, v + at),
                                                       .count = (fk_u32)(end - begin),
                                                       .cls = run->cls,
                                                       .place = rows.place,
                                                       .k_row = rows.k,
                                                       .v_row = rows.v,
                                                       .arrival = arrival};
    }
    return FCP_OK;
}

/* Is KV head `kv` of the range listed? */
static bool lists(const fcp_kernel_work *w, uint32_t kv) { return !w->kv_count || kv - w->kv_first < w->kv_count; }

static fcp_code push_row(fcp_kernel_work *w, const fk_row_item *item, fcp_error *err) {
    if (w->row_count == UINT32_MAX) return too_long(err);
    if (!fcp_grow((void **)&w->rows, &w->row_capacity, w->row_count + 1, sizeof *w->rows)) return no_memory(err);
    w->rows[w->row_count++] = *item;
    return FCP_OK;
}

/* A row item, or where lists are by head one for each head of a class. */
static fcp_code put_row_item(fcp_kernel_work *w, const fcp_plan *plan, fk_row_item item, uint32_t cls, bool by_head,
                             fcp_error *err) {
    const uint32_t heads = by_head ? fcp_range_heads(plan->problem) : 1;
    const fk_u32 flags = item.flags;
    fcp_code code = FCP_OK;
    for (uint32_t h = 0; !code && h < heads; h++) {
        if (by_head && (fcp_class_of(plan, w->range, h) != cls || !lists(w, h / plan->problem->range_sub))) continue;
        if (by_head) item.flags = flags | h << FK_HEAD_SHIFT;
        code = push_row(w, &item, err);
    }
    return code;
}

/* What rows of a Q block are listed for: one visit of it, or all of a pass. */
struct visits {
    const uint32_t *list;
    uint32_t count;
    bool by_head;
    uint32_t *cursors; /* per tile, visit by visit: its first part that is not of an earlier piece */
};

/* Puts the runs from `first` on into the order in which they arrive. */
static fcp_code sort_runs(fcp_kernel_work *w, uint32_t first, fcp_error *err) {
    const uint32_t count = w->key_run_count - first;
    struct size *sizes = scratch(w, SIZES, count, sizeof *sizes);
    if (!sizes) return no_memory(err);
    for (uint32_t i = 0; i < count; i++) sizes[i] = (struct size){UINT32_MAX - w->key_runs[first + i].arrival, i};
    return sort_items(w, w->key_runs + first, count, sizeof *w->key_runs, sizes) ? FCP_OK : no_memory(err);
}

/* Adds the keys that one row of cells of a Q piece meets in the visits, for a class of heads. */
static fcp_code add_row_runs(fcp_kernel_work *w, const fcp_arena *a, const struct visits *of, uint32_t q_piece,
                             uint32_t row, uint32_t cls, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const uint32_t first = w->key_run_count, *cursor = of->cursors;
    for (uint32_t v = 0; v < of->count; v++) {
        const fcp_visit *visit = &plan->visits[of->list[v]];
        for (uint32_t i = 0; i < visit->tiles; i++, cursor++) {
            const fcp_tile *tile = &plan->tiles[visit->first_tile + i];
            uint32_t end = tile->first_part + tile->parts;
            for (uint32_t j = *cursor; j < end && plan->parts[j].q_piece == q_piece; j++) {
                fcp_code code = add_key_runs(w, a, tile, &plan->parts[j], cls, row / FCP_CELL, err);
                if (code) return code;
            }
        }
    }
    return w->fusion ? sort_runs(w, first, err) : FCP_OK;
}

/* Adds the items of one row of cells of a Q piece, for a class of heads. */
static fcp_code add_row(fcp_kernel_work *w, const fcp_arena *a, const struct visits *of, uint32_t q_piece, uint32_t row,
                        uint32_t cls, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_piece *piece = &plan->pieces[q_piece];
    const fcp_visit *begin = &plan->visits[of->list[0]], *visit = &plan->visits[of->list[of->count - 1]];
    const uint32_t flags = (begin->flags & FCP_VISIT_FIRST) | (visit->flags & FCP_VISIT_LAST);
    /* where the block's rows are read, and where results are written; only the last visit of the forward pass writes */
    bool back = a->pass == FCP_BACKWARD, last = flags & FCP_VISIT_LAST, by_head = of->by_head;
    uint32_t out_slot = back ? visit->dq_slot : visit->o_slot;
    uint64_t in = fcp_arena_row(a, visit->q_slot), out = back || last ? fcp_arena_row(a, out_slot) : 0;
    uint32_t first = w->key_run_count, block_token = piece->offset + row;
    fcp_code code = add_row_runs(w, a, of, q_piece, row, cls, err);
    if (code) return code;
    /* Rows without keys: dQ gets nothing added. In the forward pass, if this is the block's only visit and the
     * block is at home, the outputs hold what they were prepared with, and that is right unless there is a sink. */
    bool single = flags == (FK_FIRST | FK_LAST);
    bool idle = back || (single && !plan->sink_count && out_slot < a->homes);
    if (first == w->key_run_count && idle) return FCP_OK;
    if (in + block_token > UINT32_MAX || out + block_token > UINT32_MAX) return too_long(err);
    fk_row_item item = {.position = plan->sequences[piece->sequence].q_first + (fk_i64)(piece->start + row),
                        .token = (fk_u32)in + block_token,
                        .out = (fk_u32)out + block_token,
                        .block_token = block_token,
                        .count = piece->length - row < FCP_CELL ? piece->length - row : FCP_CELL,
                        .flags = flags,
                        .sequence = piece->sequence,
                        .first = first,
                        .runs = w->key_run_count - first,
                        .pack = !back && !by_head && is_short(&plan->sequences[piece->sequence])
                                    ? plan->problem->range_sub
                                    : 1};
    if (visit->state_slot != FCP_NONE && !back && !single) {
        float *o, *m, *l;
        fcp_arena_state(a, visit->state_slot, &o, &m, &l);
        item.state = offset_of(a, o);
    }
    return put_row_item(w, plan, item, cls, by_head, err);
}

/* Adds the items of one Q piece of a block. */
static fcp_code add_row_items(fcp_kernel_work *w, const fcp_arena *a, const struct visits *of, uint32_t q_piece,
                              fcp_error *err) {
    const fcp_plan *plan = a->plan;
    uint32_t *cursor = of->cursors;
    fcp_code code = FCP_OK;
    for (uint32_t v = 0; v < of->count; v++) {
        const fcp_visit *visit = &plan->visits[of->list[v]];
        for (uint32_t i = 0; i < visit->tiles; i++, cursor++) {
            const fcp_tile *tile = &plan->tiles[visit->first_tile + i];
            uint32_t end = tile->first_part + tile->parts;
            while (*cursor < end && plan->parts[*cursor].q_piece < q_piece) ++*cursor;
        }
    }
    for (uint32_t row = 0; row < plan->pieces[q_piece].length; row += FCP_CELL)
        for (uint32_t c = 0; !code && c < fcp_class_count(plan, w->range); c++)
            code = add_row(w, a, of, q_piece, row, c, err);
    return code;
}

/* Adds the items of a Q block, if it is of the range of heads that is listed. */
static fcp_code add_block(fcp_kernel_work *w, const fcp_arena *a, struct visits *of, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_block *block = &plan->blocks[plan->visits[of->list[0]].q_block];
    size_t tiles = 0, at = 0;
    fcp_code code = FCP_OK;
    if (block->heads != w->range) return FCP_OK;
    for (uint32_t v = 0; v < of->count; v++) tiles += plan->visits[of->list[v]].tiles;
    of->cursors = scratch(w, CURSORS, tiles, sizeof *of->cursors);
    if (!of->cursors) return no_memory(err);
    for (uint32_t v = 0; v < of->count; v++) {
        const fcp_visit *visit = &plan->visits[of->list[v]];
        for (uint32_t i = 0; i < visit->tiles; i++)
            of->cursors[at++] = plan->tiles[visit->first_tile + i].first_part;
    }
    for (uint32_t i = block->first_piece; !code && i < block->first_piece + block->pieces; i++)
        code = add_row_items(w, a, of, i, err);
    return code;
}

/* --- short rows --------------------------------------------------------------------------------------------------- */

/* A walk over the items of a list that are not yet of single heads. */
struct packing {
    fcp_kernel_work *w;
    const fcp_arena *a;
    uint32_t part; /* so many cells of keys has about each part of an item of a short sequence */
};

static uint32_t cells_of(const fcp_kernel_work *w, const fk_row_item *item) {
    uint32_t cells = 0;
    for (uint32_t i = item->first; i < item->first + item->runs; i++)
        cells += w->key_runs[i].count / FCP_CELL + (w->key_runs[i].count % FCP_CELL != 0);
    return cells;
}

/* Of how many tiles the rows of an item are, if its heads share them. */
static uint32_t tiles_of(const fk_row_item *item) { return (item->count * item->pack + FK_ROWS - 1) / FK_ROWS; }

/* How many cells a part has: with four parts for each multiprocessor that the plan is made for, all end at nearly the
 * same time. */
enum { LEAST_CELLS = 4 }; /* of a part: fewer, and putting parts together would take longer than they do */
static uint32_t part_cells(const fcp_kernel_work *w, const fcp_plan *plan) {
    const uint64_t parts = 4 * (uint64_t)plan->cluster->multiprocessors;
    uint64_t cells = 0;
    if (!parts) return UINT32_MAX; /* parts_of_cells then says 1 */
    for (uint32_t i = 0; i < w->row_count; i++)
        if (is_short(&plan->sequences[w->rows[i].sequence]))
            cells += (uint64_t)cells_of(w, &w->rows[i]) * tiles_of(&w->rows[i]);
    cells = (cells * plan->problem->range_kv + parts - 1) / parts;
    return cells < LEAST_CELLS ? LEAST_CELLS : cells < UINT32_MAX ? (uint32_t)cells : UINT32_MAX;
}

/* Lists the keys of cells [from, to) of an item again, as runs of their own. */
static fcp_code copy_runs(fcp_kernel_work *w, const fcp_arena *a, fk_row_item *item, uint32_t from, uint32_t to,
                          fcp_error *err) {
    const fcp_problem *p = a->plan->problem;
    const uint64_t stride = (uint64_t)a->kv_heads * p->head_dim * fcp_dtype_size((fcp_dtype)p->dtype);
    const uint32_t first = w->key_run_count, end = item->first + item->runs;
    uint32_t at = 0; /* cells before the run */
    for (uint32_t i = item->first; i < end && at < to; i++) {
        fk_key_run run = w->key_runs[i];
        const uint32_t cells = run.count / FCP_CELL + (run.count % FCP_CELL != 0);
        const uint32_t begin = from > at ? from - at : 0, stop = to - at < cells ? to - at : cells;
        at += cells;
        if (begin >= stop) continue;
        if (stop < cells) run.count = stop * FCP_CELL;
        run.count -= begin * FCP_CELL;
        run.position += begin * FCP_CELL;
        run.k += begin * FCP_CELL * stride;
        run.v += begin * FCP_CELL * stride;
        run.k_row += begin * FCP_CELL;
        run.v_row += begin * FCP_CELL;
        if (w->key_run_count == UINT32_MAX) return too_long(err);
        if (!fcp_grow((void **)&w->key_runs, &w->key_run_capacity, w->key_run_count + 1, sizeof *w->key_runs))
            return no_memory(err);
        w->key_runs[w->key_run_count++] = run;
    }
    item->first = first;
    item->runs = w->key_run_count - first;
    return FCP_OK;
}

/* Cuts one tile of an item of a short sequence into `parts` parts of its keys, whose runs stand in `runs`. */
static fcp_code put_parts(struct packing *x, const fk_row_item *tile, const fk_row_item *runs, uint32_t parts,
                          fcp_error *err) {
    fcp_kernel_work *w = x->w;
    if (parts == 1) return push_row(w, tile, err);
    const uint64_t bytes = (uint64_t)tile->count * (x->a->plan->problem->head_dim + 2) * sizeof(float);
    if (!fcp_grow((void **)&w->merges, &w->merge_capacity, w->merge_count + 1, sizeof *w->merges))
        return no_memory(err);
    w->merges[w->merge_count++] = (fk_merge_item){.rows = *tile, .first = w->split_bytes, .parts = parts};
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < parts; i++) {
        fk_row_item part = *tile;
        part.flags = (tile->flags & ~(fk_u32)(FK_FIRST | FK_LAST)) | FK_FIRST | FK_SPLIT;
        part.state = w->split_bytes;
        part.first = runs[i].first;
        part.runs = runs[i].runs;
        w->split_bytes += bytes;
        code = push_row(w, &part, err);
    }
    return code;
}

/* Lists an item of a short sequence: for each KV head its tiles, each of them in parts. */
static fcp_code pack_item(struct packing *x, const fk_row_item *item, fcp_error *err) {
    fcp_kernel_work *w = x->w;
    const fcp_problem *p = x->a->plan->problem;
    const uint64_t cells = cells_of(w, item), wanted = (cells + x->part / 2) / x->part;
    const uint32_t parts = wanted ? (uint32_t)wanted : 1, rows = item->count * item->pack;
    fk_row_item *runs = scratch(w, FIRSTS, parts, sizeof *runs);
    fcp_code code = runs ? FCP_OK : no_memory(err);
    for (uint32_t i = 0; !code && parts > 1 && i < parts; i++) {
        runs[i] = *item;
        code = copy_runs(w, x->a, &runs[i], (uint32_t)(cells * i / parts), (uint32_t)(cells * (i + 1) / parts), err);
    }
    for (uint32_t kv = 0; kv < p->range_kv; kv++)
        for (uint32_t skip = 0; !code && lists(w, kv) && skip < rows; skip += FK_ROWS) {
            fk_row_item tile = *item;
            tile.flags |= kv * item->pack << FK_HEAD_SHIFT;
            tile.skip = skip;
            tile.count = rows - skip < FK_ROWS ? rows - skip : FK_ROWS;
            code = put_parts(x, &tile, runs, parts, err);
        }
    return code;
}

/* Turns a list whose items are for all heads into one of items with a head, or a group of heads, each. */
static fcp_code pack_rows(fcp_kernel_work *w, const fcp_arena *a, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    struct packing x = {w, a, part_cells(w, plan)};
    const uint32_t count = w->row_count;
    fk_row_item *all = w->rows;
    fcp_code code = FCP_OK;
    w->rows = NULL;
    w->row_count = w->row_capacity = 0;
    for (uint32_t i = 0; !code && i < count; i++) {
        if (is_short(&plan->sequences[all[i].sequence])) {
            code = pack_item(&x, &all[i], err);
            continue;
        }
        for (uint32_t h = 0; !code && h < fcp_range_heads(plan->problem); h++) {
            fk_row_item item = all[i];
            item.flags |= h << FK_HEAD_SHIFT;
            if (lists(w, h / plan->problem->range_sub)) code = push_row(w, &item, err);
        }
    }
    free(all);
    return code;
}

static void clear_rows(fcp_kernel_work *w) {
    w->row_count = w->key_run_count = w->merge_count = 0;
    w->split_bytes = 0;
}

/* How early an item stands in the list: longest first; fused, before that, those whose last keys arrive first. */
static uint64_t rank_of(const fcp_kernel_work *w, const fk_row_item *item) {
    uint64_t keys = 0;
    uint32_t arrival = 0;
    for (uint32_t j = item->first; j < item->first + item->runs; j++) {
        keys += w->key_runs[j].count;
        if (w->key_runs[j].arrival > arrival) arrival = w->key_runs[j].arrival;
    }
    if (!w->fusion) return keys;
    return (uint64_t)(UINT32_MAX - arrival) << 32 | (keys < UINT32_MAX ? keys : UINT32_MAX);
}

/* When all items are there: packs those of short sequences, and puts them in order. */
static fcp_code close_rows(fcp_kernel_work *w, const fcp_arena *a, fcp_error *err) {
    if (a->pass == FCP_FORWARD && fcp_kernel_packed(a->plan)) {
        fcp_code code = pack_rows(w, a, err);
        if (code) return code;
    }
    struct size *sizes = scratch(w, SIZES, w->row_count, sizeof *sizes);
    if (!sizes) return no_memory(err);
    for (uint32_t i = 0; i < w->row_count; i++) sizes[i] = (struct size){rank_of(w, &w->rows[i]), i};
    return sort_items(w, w->rows, w->row_count, sizeof *w->rows, sizes) ? FCP_OK : no_memory(err);
}

fcp_code fcp_kernel_rows(fcp_kernel_work *w, const fcp_arena *a, uint32_t first, uint32_t count, fcp_error *err) {
    fcp_code code = FCP_OK;
    clear_rows(w);
    for (uint32_t v = first; !code && v < first + count; v++)
        code = add_block(w, a, &(struct visits){&v, 1, fcp_kernel_by_head(a->plan), NULL}, err);
    return code ? code : close_rows(w, a, err);
}

fcp_code fcp_kernel_rows_fused(fcp_kernel_work *w, const fcp_arena *a, fcp_error *err) {
    const fcp_fusion *f = w->fusion;
    const fcp_visit *visits = a->plan->visits;
    fcp_code code = FCP_OK;
    clear_rows(w);
    for (uint32_t from = 0, to; !code && from < f->visit_count; from = to) {
        for (to = from + 1; to < f->visit_count; to++)
            if (visits[f->visits[to]].q_block != visits[f->visits[from]].q_block) break;
        struct visits of = {f->visits + from, to - from, fcp_kernel_by_head(a->plan), NULL};
        code = add_block(w, a, &of, err);
    }
    return code ? code : close_rows(w, a, err);
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Heads of a group that see the same pairs, as a run of rows says it: in cls, beside the class of cells. They are
 * among FK_SET_HEADS neighbours. Where lists are not by head, one set stands for all heads and says nothing. */
struct head_set {
    uint32_t cls;  /* the class of heads, in the range */
    uint32_t bits; /* what cls of a run has above the class of cells */
};

/* A walk over all cells of the visits. There are two: the first makes the items of each KV block when it comes to the
 * block's first tile, and counts the cells of each item; the second (`fill`) writes each cell into its item's list. */
struct columns {
    fcp_kernel_work *w;
    const fcp_arena *a;
    uint32_t *first_item; /* of each KV block of the plan; FCP_NONE: it has no items yet */
    uint32_t *cells;      /* of each item: their count in the first walk, where the next one goes in the second */
    uint32_t cells_capacity;
    bool fill, by_head;
    fcp_kernel_order order;
    const struct head_set *sets; /* of one KV head */
    uint32_t set_count;
};

/* Makes the items of a KV block. */
static fcp_code add_key_items(struct columns *x, const fcp_tile *tile, fcp_error *err) {
    fcp_kernel_work *w = x->w;
    const fcp_plan *plan = x->a->plan;
    const fcp_problem *p = plan->problem;
    const fcp_block *block = &plan->blocks[tile->k_block];
    size_t stride = (size_t)x->a->kv_heads * p->head_dim, bytes = stride * fcp_dtype_size((fcp_dtype)p->dtype);
    char *k, *v;
    float *dk, *dv;
    fcp_arena_kv(x->a, tile->kv_slot, &k, &v);
    fcp_arena_dkv(x->a, tile->dkv_slot, &dk, &dv);
    x->first_item[tile->k_block] = w->key_count;
    for (uint32_t i = block->first_piece; i < block->first_piece + block->pieces; i++) {
        const fcp_piece *piece = &plan->pieces[i];
        for (uint32_t key = 0; key < piece->length; key += FCP_CELL) {
            size_t at = piece->offset + key;
            if (w->key_count == UINT32_MAX) return too_long(err);
            if (!fcp_grow((void **)&w->keys, &w->key_capacity, w->key_count + 1, sizeof *w->keys) ||
                !fcp_grow((void **)&x->cells, &x->cells_capacity, w->key_count + 1, sizeof *x->cells))
                return no_memory(err);
            struct key_rows rows;
            if (!find_key_rows(x->a, tile->kv_slot, at, &rows)) return too_long(err);
            x->cells[w->key_count] = 0;
            w->keys[w->key_count++] = (fk_key_item){
                .position = (fk_i64)(piece->start + key),
                .k = offset_of(x->a, k + at * bytes),
                .v = offset_of(x->a, v + at * bytes),
                .dk = offset_of(x->a, dk + at * stride),
                .dv = offset_of(x->a, dv + at * stride),
                .count = piece->length - key < FCP_CELL ? piece->length - key : FCP_CELL,
                .sequence = piece->sequence,
                .place = rows.place,
                .k_row = rows.k,
                .v_row = rows.v,
                .lock = FK_NONE};
        }
    }
    return FCP_OK;
}

/* Counts the cells of a run, or writes them: one to each item from `item` on, since neighbouring columns are
 * neighbouring items. heads: of which heads. */
static void place_run(struct columns *x, const fcp_run *run, uint32_t heads, uint32_t item, const fcp_piece *q,
                      uint32_t token, uint32_t out) {
    fcp_kernel_work *w = x->w;
    uint32_t row = run->row * FCP_CELL;
    fk_i64 q_first = x->a->plan->sequences[q->sequence].q_first;
    for (uint32_t i = item; i < item + run->count; i++) {
        uint32_t at = x->cells[i]++;
        if (!x->fill) continue;
        w->row_runs[at] = (fk_row_run){.position = q_first + (fk_i64)(q->start + row),
                                       .token = token + row,
                                       .out = out + row,
                                       .count = q->length - row < FCP_CELL ? q->length - row : FCP_CELL,
                                       .cls = run->cls | heads};
    }
}

static fcp_code walk_cells(struct columns *x, const fcp_visit *visit, fcp_error *err) {
    const fcp_plan *plan = x->a->plan;
    if (plan->blocks[visit->q_block].heads != x->w->range) return FCP_OK;
    uint64_t in = fcp_arena_row(x->a, visit->q_slot), out = fcp_arena_row(x->a, visit->dq_slot);
    if ((in > out ? in : out) + plan->blocks[visit->q_block].tokens > UINT32_MAX) return too_long(err);
    for (uint32_t t = visit->first_tile; t < visit->first_tile + visit->tiles; t++) {
        const fcp_tile *tile = &plan->tiles[t];
        const fcp_block *k_block = &plan->blocks[tile->k_block];
        if (x->first_item[tile->k_block] == FCP_NONE) {
            fcp_code code = add_key_items(x, tile, err);
            if (code) return code;
        }
        uint32_t item = x->first_item[tile->k_block], k_piece = k_block->first_piece;
        for (uint32_t j = tile->first_part; j < tile->first_part + tile->parts; j++) {
            const fcp_part *part = &plan->parts[j];
            const fcp_piece *q = &plan->pieces[part->q_piece];
            if (part->k_piece < k_piece) item = x->first_item[tile->k_block], k_piece = k_block->first_piece;
            for (; k_piece < part->k_piece; k_piece++)
                item += plan->pieces[k_piece].length / FCP_CELL + (plan->pieces[k_piece].length % FCP_CELL != 0);
            for (const struct head_set *s = x->sets; s < x->sets + x->set_count; s++) {
                const fcp_shape_rec *shape = &plan->shapes[part->shape + s->cls];
                for (uint32_t r = shape->first_run; r < shape->first_run + shape->runs; r++)
                    place_run(x, &plan->runs[r], s->bits, item + plan->runs[r].col, q, (uint32_t)in + q->offset,
                              (uint32_t)out + q->offset);
            }
        }
    }
    return FCP_OK;
}

/* Joins runs of one class that follow each other; returns how many are left. */
static uint32_t join_runs(fk_row_run *runs, uint32_t count) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        fk_row_run *last = kept ? &runs[kept - 1] : NULL;
        if (last && last->cls == runs[i].cls && last->token + last->count == runs[i].token &&
            last->out + last->count == runs[i].out && last->position + last->count == runs[i].position)
            last->count += runs[i].count;
        else runs[kept++] = runs[i];
    }
    return kept;
}

/* Turns an ordered item's runs round, from the last row to the first, because then items wait less for their turns. An
 * example, a causal mask with items A and B of neighbouring keys: both see the last rows, but A begins one row of
 * cells earlier than B. From the last row on, B follows A one step behind. From the first row on, B would begin ahead
 * of A, and wait for it. */
static int later(const void *a, const void *b) {
    const fk_row_run *x = a, *y = b;
    if (x->position != y->position) return x->position > y->position ? -1 : 1;
    return x->cls < y->cls ? -1 : x->cls > y->cls; /* of the same rows and other heads */
}
static void reverse_runs(fk_row_run *runs, uint32_t count) {
    bool sorted = true;
    for (uint32_t i = 0; i < count / 2; i++) {
        fk_row_run run = runs[i];
        runs[i] = runs[count - 1 - i];
        runs[count - 1 - i] = run;
    }
    for (uint32_t i = 1; i < count; i++) sorted = sorted && runs[i - 1].position > runs[i].position;
    if (!sorted) qsort(runs, count, sizeof *runs, later);
}

/* How items are cut into pieces of work. An item with more than 8 * long_part runs is divided into parts of about
 * long_part, and any other into parts of about `part`. */
struct cut {
    uint32_t subs; /* query heads of a group that a piece is for */
    uint32_t part, long_part;
};
enum {
    LEAST = 4,  /* runs of a part: fewer, and adding to dK and dV would take longer than computing what is added */
    SHARERS = 8 /* pieces that add to the same dK and dV, one after the other: with more, they mostly wait */
};

static uint32_t parts_of(const fk_key_item *item, const struct cut *cut) {
    const uint64_t runs = item->runs, part = runs > 8 * (uint64_t)cut->long_part ? cut->long_part : cut->part;
    const uint64_t parts = (runs + part / 2) / part;
    return parts ? (uint32_t)parts : 1;
}

/* Decides how items are cut. If a device has four pieces for each of its multiprocessors, all end at nearly the same
 * time. So items are cut by query head until there are as many, or one for each head: such pieces keep all their rows,
 * and add to dQ of different heads. If there still is less than one for each multiprocessor, items are cut by rows as
 * well, into two for each. It is the multiprocessors in the plan that count, and not those that are there.
 * The third cut is of items with more than four times the average number of runs, into parts of half the average: the
 * keys that every row sees, say, would keep one block busy when all others have ended. */
static struct cut decide_cut(const struct columns *x, uint64_t runs) {
    const fcp_problem *p = x->a->plan->problem;
    const uint64_t blocks = x->a->plan->cluster->multiprocessors, group = p->range_sub, items = x->w->key_count;
    struct cut cut = {p->range_sub, UINT32_MAX, UINT32_MAX};
    if (x->order == FCP_KEYS_ALONE || !items) return cut;
    uint64_t pieces = items * p->range_kv, parts = x->by_head ? 1 : 4 * blocks / pieces;
    parts = parts > group ? group : parts ? parts : 1;
    cut.subs = (uint32_t)((group + parts - 1) / parts);
    parts = (group + cut.subs - 1) / cut.subs;
    if (pieces * parts < blocks && 2 * parts <= SHARERS) {
        uint64_t part = runs * p->range_kv * parts / (2 * blocks), longest = 0;
        for (uint32_t i = 0; i < items; i++)
            if (x->w->keys[i].runs > longest) longest = x->w->keys[i].runs;
        if (part < longest * parts / SHARERS) part = longest * parts / SHARERS;
        cut.part = part < LEAST ? LEAST : (uint32_t)part;
    }
    cut.long_part = (uint32_t)(runs / (2 * items));
    if (cut.long_part < LEAST) cut.long_part = LEAST;
    return cut;
}

static void drop_empty_items(fcp_kernel_work *w) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->key_count; i++)
        if (w->keys[i].runs) w->keys[kept++] = w->keys[i];
    w->key_count = kept;
}

/* Cuts the items of a list that has `runs` runs. Cuts are made at the same numbers of runs in every item, so that parts
 * of neighbouring items meet the same rows. What is cut adds to the same dK and dV: until order_runs numbers the locks,
 * `lock` is the number that the whole item had. */
static bool cut_items(struct columns *x, uint64_t runs) {
    fcp_kernel_work *w = x->w;
    const struct cut cut = decide_cut(x, runs);
    const uint32_t kept = w->key_count;
    uint64_t items = 0;
    w->subs = cut.subs;
    for (uint32_t i = 0; i < kept; i++) items += parts_of(&w->keys[i], &cut);
    if (items > UINT32_MAX || !fcp_grow((void **)&w->keys, &w->key_capacity, (uint32_t)items, sizeof *w->keys))
        return false;
    w->key_count = (uint32_t)items;
    for (uint32_t i = kept, to = (uint32_t)items; i-- > 0;) { /* from the last: none is overwritten unread */
        const fk_key_item item = w->keys[i];
        const uint32_t parts = parts_of(&item, &cut), part = item.runs > 8 * (uint64_t)cut.long_part ? cut.long_part
                                                                                                    : cut.part;
        for (uint32_t j = parts, end = item.runs; j-- > 0; end = j * part) {
            fk_key_item *to_item = &w->keys[--to];
            *to_item = item;
            to_item->first = item.first + j * part;
            to_item->runs = end - j * part;
            to_item->lock = parts > 1 || cut.subs < x->a->plan->problem->range_sub ? i : FK_NONE;
        }
    }
    return true;
}

/* Gives out locks and turns in the order of the items: the first who comes to a sum has turn 0, the next has turn 1. A
 * sum of dQ is known by its first row in dq and by the heads, the sums of divided items by the number that cut_items
 * left in `lock`. Rows have one lock for all heads, which has a place for each head. Heads of one set meet the same
 * runs; so they have their turns together, and each set counts its own. */
static uint32_t take_lock(fcp_kernel_work *w, uint32_t *lock) {
    if (*lock == FCP_NONE) *lock = w->lock_count++;
    return *lock;
}
static bool order_runs(struct columns *x) {
    fcp_kernel_work *w = x->w;
    const fcp_arena *a = x->a;
    size_t tokens = fcp_arena_row(a, a->homes + (uint32_t)a->slots.count[FCP_DQ]), items = w->key_count;
    size_t sums = tokens + items;
    uint32_t *locks = scratch(w, LOCKS, sums, sizeof *locks), *turns = scratch(w, TURNS, sums, sizeof *turns);
    if (!locks || !turns) return false;
    memset(locks, 0xff, sums * sizeof *locks); /* FCP_NONE */
    for (uint32_t s = 0; s < x->set_count; s++) {
        memset(turns, 0, sums * sizeof *turns);
        for (uint32_t i = 0; i < w->key_count; i++) {
            fk_key_item *item = &w->keys[i];
            if (s == 0 && item->lock != FK_NONE) {
                const size_t sum = tokens + item->lock;
                item->lock = take_lock(w, &locks[sum]);
                item->turn = turns[sum]++;
            }
            for (fk_row_run *r = w->row_runs + item->first, *end = r + item->runs; r < end; r++) {
                if ((r->cls & ~3u) != x->sets[s].bits) continue;
                r->lock = take_lock(w, &locks[r->out]);
                r->turn = turns[r->out]++;
            }
        }
    }
    return true;
}

/* How long an item is: rows, or in an ordered list runs, times heads. */
static uint64_t item_size(const struct columns *x, const fk_key_item *item) {
    uint64_t size = 0;
    for (const fk_row_run *r = x->w->row_runs + item->first, *end = r + item->runs; r < end; r++) {
        const uint32_t set = r->cls >> FK_SET_SHIFT & ((1u << FK_SET_HEADS) - 1);
        const uint32_t heads = set ? (uint32_t)__builtin_popcount(set) : 1;
        size += (uint64_t)(x->order == FCP_KEYS_ORDERED ? 1 : r->count) * heads;
    }
    return size;
}

/* Sorts the items of a list, longest first. */
static bool sort_keys(const struct columns *x) {
    fcp_kernel_work *w = x->w;
    struct size *sizes = scratch(w, SIZES, w->key_count, sizeof *sizes);
    for (uint32_t i = 0; sizes && i < w->key_count; i++) sizes[i] = (struct size){item_size(x, &w->keys[i]), i};
    return sizes && sort_items(w, w->keys, w->key_count, sizeof *w->keys, sizes);
}

/* Makes the items and their runs, from both walks to locks and turns. */
static fcp_code fill_columns(struct columns *x, uint32_t first, uint32_t count, fcp_error *err) {
    fcp_kernel_work *w = x->w;
    fcp_code code = FCP_OK;
    uint64_t total = 0;
    for (uint32_t v = first; !code && v < first + count; v++) code = walk_cells(x, &x->a->plan->visits[v], err);
    if (code) return code;
    for (uint32_t i = 0; i < w->key_count; i++) {
        uint32_t cells = x->cells[i];
        w->keys[i].first = x->cells[i] = (uint32_t)total;
        w->keys[i].runs = cells;
        total += cells;
        if (total > UINT32_MAX) return too_long(err);
    }
    if (!fcp_grow((void **)&w->row_runs, &w->row_run_capacity, (uint32_t)total, sizeof *w->row_runs))
        return no_memory(err);
    w->row_run_count = (uint32_t)total;
    x->fill = true;
    for (uint32_t v = first; !code && v < first + count; v++) code = walk_cells(x, &x->a->plan->visits[v], err);
    if (code) return code;
    bool ordered = x->order == FCP_KEYS_ORDERED;
    for (uint32_t i = 0; ordered && i < w->key_count; i++)
        reverse_runs(w->row_runs + w->keys[i].first, w->keys[i].runs);
    drop_empty_items(w);
    if (!cut_items(x, total)) return no_memory(err);
    for (uint32_t i = 0; !ordered && i < w->key_count; i++)
        w->keys[i].runs = join_runs(w->row_runs + w->keys[i].first, w->keys[i].runs);
    if (!sort_keys(x)) return no_memory(err);
    return !ordered || order_runs(x) ? FCP_OK : no_memory(err);
}

fcp_kernel_order fcp_kernel_order_of(unsigned backward) {
    if (backward & (EMIT_ORDERED | EMIT_ORDERED_SM90)) return FCP_KEYS_ORDERED;
    return backward & (EMIT_UNORDERED | EMIT_UNORDERED_SM90) ? FCP_KEYS_JOINT : FCP_KEYS_ALONE;
}

/* The items of the KV heads whose sets x has, or of all heads. */
static fcp_code list_columns(struct columns *x, uint32_t first, uint32_t count, fcp_error *err) {
    fcp_kernel_work *w = x->w;
    size_t blocks = (size_t)x->a->plan->blocks_count;
    x->first_item = scratch(w, FIRSTS, blocks, sizeof *x->first_item);
    if (!x->first_item) return no_memory(err);
    memset(x->first_item, 0xff, blocks * sizeof *x->first_item); /* FCP_NONE */
    w->key_count = w->row_run_count = 0;
    x->fill = false;
    return fill_columns(x, first, count, err);
}

/* The sets of KV head `kv` of a range; returns how many. out: room for one for each head of its group. */
static uint32_t find_sets(const fcp_plan *plan, uint32_t range, uint32_t kv, struct head_set *out) {
    const uint32_t group = plan->problem->range_sub;
    uint32_t count = 0;
    for (uint32_t h = 0; h < group; h++) {
        const uint32_t cls = fcp_class_of(plan, range, kv * group + h), base = h / FK_SET_HEADS;
        uint32_t s = 0;
        while (s < count && !(out[s].cls == cls && out[s].bits >> FK_SET_BASE_SHIFT == base)) s++;
        if (s == count) out[count++] = (struct head_set){cls, base << FK_SET_BASE_SHIFT};
        out[s].bits |= 1u << (FK_SET_SHIFT + h % FK_SET_HEADS);
    }
    return count;
}

/* Have two KV heads of a range query heads of the same classes, in the same order? */
static bool same_group(const fcp_plan *plan, uint32_t range, uint32_t x, uint32_t y) {
    const uint32_t group = plan->problem->range_sub;
    for (uint32_t h = 0; h < group; h++)
        if (fcp_class_of(plan, range, x * group + h) != fcp_class_of(plan, range, y * group + h)) return false;
    return true;
}

/* Lists that are kept while others are made. */
struct kept {
    fk_key_item *keys;
    fk_row_run *runs;
    uint32_t key_count, run_count, key_capacity, run_capacity;
};

/* Keeps the list of the columns for one KV head, or another one with the same sets: with the same runs, if `again`. */
static fcp_code keep_columns(const fcp_kernel_work *w, uint32_t kv, bool again, struct kept *all, fcp_error *err) {
    const uint64_t runs = all->run_count + (again ? 0 : (uint64_t)w->row_run_count);
    if (runs > UINT32_MAX || (uint64_t)all->key_count + w->key_count > UINT32_MAX) return too_long(err);
    if (!fcp_grow((void **)&all->runs, &all->run_capacity, (uint32_t)runs, sizeof *all->runs) ||
        !fcp_grow((void **)&all->keys, &all->key_capacity, all->key_count + w->key_count, sizeof *all->keys))
        return no_memory(err);
    if (!again && w->row_run_count)
        memcpy(all->runs + all->run_count, w->row_runs, w->row_run_count * sizeof *all->runs);
    all->run_count = (uint32_t)runs;
    for (uint32_t i = 0; i < w->key_count; i++) {
        fk_key_item *item = &all->keys[all->key_count++];
        *item = w->keys[i];
        item->first += all->run_count - w->row_run_count;
        item->kv_head = kv;
    }
    return FCP_OK;
}

/* Makes the list of each KV head; heads with the same sets share runs. Then all items are one list, longest first, in
 * which items of one head keep their order: their turns are counted by it. */
static fcp_code list_by_head(struct columns *x, uint32_t first, uint32_t count, fcp_error *err) {
    fcp_kernel_work *w = x->w;
    const fcp_plan *plan = x->a->plan;
    const uint32_t kv_heads = plan->problem->range_kv;
    struct head_set *sets = malloc(plan->problem->range_sub * sizeof *sets);
    struct kept all = {0};
    uint32_t locks = 0; /* heads have places of their own in a lock, so KV heads may use the same locks */
    fcp_code code = sets ? FCP_OK : no_memory(err);
    for (uint32_t kv = 0; !code && kv < kv_heads; kv++) {
        uint32_t before = 0;
        while (before < kv && !(lists(w, before) && same_group(plan, w->range, before, kv))) before++;
        if (before < kv || !lists(w, kv)) continue; /* it was listed with that one, or is not */
        x->sets = sets;
        x->set_count = find_sets(plan, w->range, kv, sets);
        w->lock_count = 0;
        code = list_columns(x, first, count, err);
        if (w->lock_count > locks) locks = w->lock_count;
        for (uint32_t other = kv; !code && other < kv_heads; other++)
            if (lists(w, other) && same_group(plan, w->range, kv, other))
                code = keep_columns(w, other, other != kv, &all, err);
    }
    w->lock_count = locks;
    free(sets);
    free(w->keys);
    free(w->row_runs);
    w->keys = all.keys, w->key_count = all.key_count, w->key_capacity = all.key_capacity;
    w->row_runs = all.runs, w->row_run_count = all.run_count, w->row_run_capacity = all.run_capacity;
    return code ? code : sort_keys(x) ? FCP_OK : no_memory(err);
}

fcp_code fcp_kernel_keys(fcp_kernel_work *w, const fcp_arena *a, uint32_t first, uint32_t count,
                         fcp_kernel_order order, fcp_error *err) {
    static const struct head_set everybody = {0, 0};
    struct columns x = {.w = w, .a = a, .by_head = fcp_kernel_by_head(a->plan), .order = order, .sets = &everybody,
                        .set_count = 1};
    w->lock_count = 0;
    w->subs = a->plan->problem->range_sub;
    fcp_code code = x.by_head ? list_by_head(&x, first, count, err) : list_columns(&x, first, count, err);
    free(x.cells);
    return code;
}

/* --- ranges of heads -----------------------------------------------------------------------------------------------
 * */

uint32_t fcp_kernel_next_range(const fcp_plan *plan, uint32_t first, uint32_t count, uint32_t after) {
    uint32_t next = FCP_NONE, from = after == FCP_NONE ? 0 : after + 1;
    for (uint32_t v = first; v < first + count; v++) {
        uint32_t range = plan->blocks[plan->visits[v].q_block].heads;
        if (range >= from && range < next) next = range;
    }
    return next;
}

size_t fcp_kernel_sink_count(const fcp_plan *plan) {
    return plan->sink_count ? (size_t)plan->heads_count * plan->problem->range_kv * plan->problem->range_sub : 0;
}

void fcp_kernel_sinks(const fcp_plan *plan, float *out) {
    const fcp_problem *p = plan->problem;
    for (uint64_t i = 0; plan->sink_count && i < plan->heads_count; i++)
        for (uint32_t h = 0; h < p->range_kv * p->range_sub; h++)
            *out++ = (float)plan->sink[fcp_model_head(p, &plan->heads[i], h)];
}

fk_u64 fcp_kernel_sinks_of(const fcp_plan *plan, fk_u64 sinks, uint32_t range) {
    const fcp_problem *p = plan->problem;
    return plan->sink_count ? sinks + (fk_u64)range * p->range_kv * p->range_sub * sizeof(float) : 0;
}

/* --- parameters --------------------------------------------------------------------------------------------------- */

void fcp_kernel_launch(const fcp_arena *a, uint32_t range, fk_launch *out) {
    const fcp_problem *p = a->plan->problem;
    bool backward = a->pass == FCP_BACKWARD;
    *out = (fk_launch){.arena = (uintptr_t)a->q,
                       .q = (uintptr_t)a->q,
                       .o = (uintptr_t)a->o,
                       .lse = (uintptr_t)a->lse,
                       .d_o = backward ? (uintptr_t)a->d_o : 0,
                       .delta = backward ? (uintptr_t)a->delta : 0,
                       .dq = backward ? (uintptr_t)a->dq : 0,
                       .heads = a->heads,
                       .kv_heads = a->kv_heads,
                       .group = a->heads / a->kv_heads,
                       .head_count = a->kv_heads,
                       .max_block = p->max_q_block,
                       .scale = (float)p->scale,
                       .scale_log2 = (float)(p->scale * 1.4426950408889634074),
                       .model_head = fcp_model_head(p, &a->plan->heads[range], 0),
                       .shared = p->heads / p->kv_heads};
}

void fcp_kernel_tensors(const fcp_arena *a, fcp_kernel_tensor out[FCP_KERNEL_TENSORS]) {
    uint64_t queries = fcp_arena_row(a, a->homes + (uint32_t)a->slots.count[FCP_Q]);
    uint64_t keys = a->home_first[FCP_KEYS][a->homes], moved = a->slots.count[FCP_KV] * 2 * a->plan->problem->max_block;
    const fcp_kernel_tensor all[FCP_KERNEL_TENSORS] = {
        {(uintptr_t)a->q, queries, a->heads},
        {(uintptr_t)a->d_o, a->pass == FCP_BACKWARD ? queries : 0, a->heads},
        {(uintptr_t)a->k, keys, a->kv_heads},
        {(uintptr_t)a->v, keys, a->kv_heads},
        {(uintptr_t)a->kv, moved, a->kv_heads}};
    memcpy(out, all, sizeof all);
}

void fcp_kernel_maps(const fk_launch *launch, const fk_map maps[FCP_KERNEL_TENSORS], fk_launch_maps *out) {
    *out =
        (fk_launch_maps){.launch = *launch, .q = maps[0], .d_o = maps[1], .k = maps[2], .v = maps[3], .moved = maps[4]};
}

void fcp_kernel_sequences(const fcp_plan *plan, fk_sequence *out) {
    for (uint32_t i = 0; i < plan->sequences_count; i++) {
        uint64_t keys, queries, first_key = fcp_plan_key_offset(plan, i, &keys);
        uint64_t first_query = fcp_plan_sequence_offset(plan, i, &queries);
        out[i] = (fk_sequence){.n = (fk_i64)keys,
                               .q_first = fcp_plan_query_position(plan, i),
                               .key_first = first_key,
                               .query_first = first_query,
                               .queries = (fk_i64)queries};
    }
}

void fcp_kernel_arrays(const fcp_plan *plan, uint64_t data, fk_u64 *out) {
    for (uint64_t i = 0; i < plan->arrays_count; i++) out[i] = data + plan->arrays[i].offset;
}

void fcp_kernel_data(const fcp_plan *plan, void *out) {
    if (plan->data_count) memcpy(out, plan->data, plan->data_count);
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        uint64_t count = fcp_array_bytes(a) / sizeof(double);
        for (uint64_t j = 0; a->width == MC_F64 && j < count; j++) {
            double value;
            memcpy(&value, (const char *)plan->data + a->offset + j * sizeof value, sizeof value);
            float small = (float)value;
            memcpy((char *)out + a->offset + j * sizeof small, &small, sizeof small);
        }
    }
}

void fcp_kernel_bands(const fcp_plan *plan, uint64_t band_rows, uint64_t bands, fk_bands *out) {
    for (uint64_t i = 0; i < plan->slices_count; i++) {
        const fcp_slices *s = &plan->slices[i];
        out[i] = (fk_bands){.rows = band_rows + s->first_row * sizeof(mc_band_rows),
                            .bands = bands + s->first_band * sizeof(mc_band),
                            .row_count = s->rows,
                            .band_count = s->bands};
    }
}
