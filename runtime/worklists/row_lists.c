/* row_lists.c: lists rows of queries with the keys that they meet, for the forward pass and for dQ.
 *
 * Requires: a verified plan; an arena as fcp_arena_lay gives it.
 * Gives:    fcp_worklists_rows and fcp_worklists_rows_fused of worklists.h.
 * Method:   1. It goes through the visits (fused: through all visits of a Q block together), the pieces of their Q
 *              block, and the rows of cells of each piece. Such a row becomes an item, with the keys of the visit's
 *              tiles in their order.
 *           2. Items of short sequences are replaced by items for tiles that the heads of a group share, each cut into
 *              parts of its keys.
 *           3. Items are sorted, the longest first.
 * Cost:     linear in the runs of the visits' tiles and in their rows of cells; then a sort of the items. Memory: the
 *           list, and as much again while it is sorted.
 */
#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/worklists/list.h"

/* Adds the runs of keys that one row of cells meets in one part of a tile, for a class of heads. */
static fcp_code add_key_runs(fcp_worklists *w, const fcp_arena *a, const fcp_tile *tile, const fcp_part *part,
                             uint32_t cls, uint32_t row, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_problem *p = plan->problem;
    const fcp_shape_rec *shape = &plan->shapes[part->shape + cls];
    const fcp_piece *piece = &plan->pieces[part->k_piece];
    const size_t number = a->kv_heads * fcp_dtype_size((fcp_dtype)p->dtype), v_row = fcp_value_stride(p) * number;
    char *k, *v;
    fcp_arena_kv(a, tile->kv_slot, &k, &v);
    const uint32_t arrival = w->fusion ? fcp_fusion_arrival(w->fusion, w->fusion->kv, tile->kv_slot) : 0;
    uint32_t end_run = shape->first_run + shape->runs;
    for (uint32_t i = fcp_run_of_row(plan, shape, row); i < end_run && plan->runs[i].row == row; i++) {
        const fcp_run *run = &plan->runs[i];
        uint64_t begin = (uint64_t)run->col * FCP_CELL, end = begin + (uint64_t)run->count * FCP_CELL;
        if (end > piece->length) end = piece->length;
        if (w->key_run_count == UINT32_MAX) return fcp_worklists_too_long(err);
        if (!FCP_GROW(w->key_runs, w->key_run_capacity, w->key_run_count + 1))
            return fcp_worklists_no_memory(err);
        const size_t at = piece->offset + begin;
        struct fcp_worklists_place rows;
        if (!fcp_worklists_key_rows(a, tile->kv_slot, at, &rows)) return fcp_worklists_too_long(err);
        w->key_runs[w->key_run_count++] = (fk_key_run){.position = (fk_i64)(piece->start + begin),
                                                       .k = fcp_worklists_offset(a, k + at * p->head_dim * number),
                                                       .v = fcp_worklists_offset(a, v + at * v_row),
                                                       .count = (fk_u32)(end - begin),
                                                       .cls = run->cls,
                                                       .place = rows.place,
                                                       .row = rows.row,
                                                       .slot = rows.slot,
                                                       .arrival = arrival};
    }
    return FCP_OK;
}

static fcp_code push_row(fcp_worklists *w, const fk_row_item *item, fcp_error *err) {
    if (w->row_count == UINT32_MAX) return fcp_worklists_too_long(err);
    if (!FCP_GROW(w->rows, w->row_capacity, w->row_count + 1))
        return fcp_worklists_no_memory(err);
    w->rows[w->row_count++] = *item;
    return FCP_OK;
}

/* A row item, or where lists are by head one for each head of a class. */
static fcp_code put_row_item(fcp_worklists *w, const fcp_plan *plan, fk_row_item item, uint32_t cls, bool by_head,
                             fcp_error *err) {
    const uint32_t heads = by_head ? fcp_range_heads(plan->problem) : 1;
    const fk_u32 flags = item.flags;
    fcp_code code = FCP_OK;
    for (uint32_t h = 0; !code && h < heads; h++) {
        const uint32_t kv = h / plan->problem->range_sub;
        if (by_head && (fcp_class_of(plan, w->range, h) != cls || !fcp_worklists_wants(w, kv))) continue;
        if (by_head) item.flags = flags | h << FK_HEAD_SHIFT;
        code = push_row(w, &item, err);
    }
    return code;
}

/* The visits for which a Q block's rows are listed: one visit, or all visits of a run of ATTENDs. */
struct visits {
    const uint32_t *list;
    uint32_t count;
    bool by_head;
    uint32_t *cursors; /* per tile, visit by visit: its first part that is not of an earlier piece */
};

/* Puts the runs from `first` on into the order in which they arrive. */
static fcp_code sort_runs(fcp_worklists *w, uint32_t first, fcp_error *err) {
    const uint32_t count = w->key_run_count - first;
    if (count < 2) return FCP_OK; /* if the first rows of a list meet no key, there is no memory of runs yet */
    struct fcp_worklists_size *sizes = fcp_worklists_scratch(w, FCP_WORKLISTS_SIZES, count, sizeof *sizes);
    if (!sizes) return fcp_worklists_no_memory(err);
    for (uint32_t i = 0; i < count; i++)
        sizes[i] = (struct fcp_worklists_size){UINT32_MAX - w->key_runs[first + i].arrival, i};
    const bool sorted = fcp_worklists_sort(w, w->key_runs + first, count, sizeof *w->key_runs, sizes);
    return sorted ? FCP_OK : fcp_worklists_no_memory(err);
}

/* Adds the keys that one row of cells of a Q piece meets in the visits, for a class of heads. */
static fcp_code add_row_runs(fcp_worklists *w, const fcp_arena *a, const struct visits *of, uint32_t q_piece,
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
static fcp_code add_row(fcp_worklists *w, const fcp_arena *a, const struct visits *of, uint32_t q_piece, uint32_t row,
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
    /* Rows without keys. In the backward pass nothing is added to their dQ. In the forward pass the outputs already
     * hold the right values if this is the block's only visit, the block is at home, and there is no sink. */
    bool single = flags == (FK_FIRST | FK_LAST);
    bool idle = back || (single && !plan->sink_count && out_slot < a->homes);
    if (first == w->key_run_count && idle) return FCP_OK;
    if (in + block_token > UINT32_MAX || out + block_token > UINT32_MAX) return fcp_worklists_too_long(err);
    fk_row_item item = {
        .position = plan->sequences[piece->sequence].q_first + (fk_i64)(piece->start + row),
        .token = (fk_u32)in + block_token,
        .out = (fk_u32)out + block_token,
        .block_token = block_token,
        .count = piece->length - row < FCP_CELL ? piece->length - row : FCP_CELL,
        .flags = flags,
        .sequence = piece->sequence,
        .first = first,
        .runs = w->key_run_count - first,
        .pack = !back && !by_head && fcp_is_short(&plan->sequences[piece->sequence]) ? plan->problem->range_sub : 1,
        .arrival = w->fusion ? fcp_fusion_arrival(w->fusion, w->fusion->q, visit->q_slot) : 0};
    if (visit->state_slot != FCP_NONE && !back && !single) {
        float *o, *m, *l;
        fcp_arena_state(a, visit->state_slot, &o, &m, &l);
        item.state = fcp_worklists_offset(a, o);
    }
    return put_row_item(w, plan, item, cls, by_head, err);
}

/* Adds the items of one Q piece of a CTA. */
static fcp_code add_row_items(fcp_worklists *w, const fcp_arena *a, const struct visits *of, uint32_t q_piece,
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
static fcp_code add_block(fcp_worklists *w, const fcp_arena *a, struct visits *of, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_block *block = &plan->blocks[plan->visits[of->list[0]].q_block];
    size_t tiles = 0, at = 0;
    fcp_code code = FCP_OK;
    if (block->heads != w->range) return FCP_OK;
    for (uint32_t v = 0; v < of->count; v++) tiles += plan->visits[of->list[v]].tiles;
    of->cursors = fcp_worklists_scratch(w, FCP_WORKLISTS_CURSORS, tiles, sizeof *of->cursors);
    if (!of->cursors) return fcp_worklists_no_memory(err);
    for (uint32_t v = 0; v < of->count; v++) {
        const fcp_visit *visit = &plan->visits[of->list[v]];
        for (uint32_t i = 0; i < visit->tiles; i++) of->cursors[at++] = plan->tiles[visit->first_tile + i].first_part;
    }
    for (uint32_t i = block->first_piece; !code && i < block->first_piece + block->pieces; i++)
        code = add_row_items(w, a, of, i, err);
    return code;
}

/* --- short rows --------------------------------------------------------------------------------------------------- */

/* A walk over the items of a list that are not yet of single heads. */
struct packing {
    fcp_worklists *w;
    const fcp_arena *a;
    uint32_t part; /* so many cells of keys has about each part of an item of a short sequence */
};

/* Of how many tiles the rows of an item are, if its heads share them. */
static uint32_t tiles_of(const fk_row_item *item) { return (item->count * item->pack + FK_ROWS - 1) / FK_ROWS; }

/* Into how many parts `cells` cells are cut, if a part has about `part`. */
static uint32_t parts_of(uint32_t cells, uint32_t part) {
    const uint64_t parts = ((uint64_t)cells + part / 2) / part;
    return parts ? (uint32_t)parts : 1;
}

/* A kind of pieces of work: `count` of them have `cells` cells each; cut: may each be cut into parts? */
struct pieces {
    uint32_t cells;
    bool cut;
    uint64_t count;
};

static int larger(const void *a, const void *b) {
    const struct pieces *x = a, *y = b;
    if (x->cells != y->cells) return x->cells > y->cells ? -1 : 1;
    return (int)y->cut - (int)x->cut;
}

/* What a list's pieces are before any is cut, largest first; returns how many kinds there are. */
static size_t count_whole(const fcp_worklists *w, const fcp_plan *plan, struct pieces *out) {
    const fcp_problem *p = plan->problem;
    size_t kinds = 0;
    for (uint32_t i = 0; i < w->row_count; i++) {
        const fk_row_item *item = &w->rows[i];
        const bool cut = fcp_is_short(&plan->sequences[item->sequence]);
        const uint64_t count = cut ? (uint64_t)p->range_kv * tiles_of(item) : fcp_range_heads(p);
        out[i] = (struct pieces){fcp_worklists_cells(w, item), cut, count};
    }
    qsort(out, w->row_count, sizeof *out, larger);
    for (uint32_t i = 0; i < w->row_count; i++)
        if (kinds && larger(&out[kinds - 1], &out[i]) == 0) out[kinds - 1].count += out[i].count;
        else out[kinds++] = out[i];
    return kinds;
}

/* What they are if parts have about `part` cells: two kinds for each, largest first. */
static void count_parts(const struct pieces *whole, size_t kinds, uint32_t part, struct pieces *out) {
    for (size_t i = 0; i < kinds; i++) {
        const uint32_t cells = whole[i].cells, parts = whole[i].cut ? parts_of(cells, part) : 1;
        out[2 * i] = (struct pieces){cells / parts + 1, whole[i].cut, whole[i].count * (cells % parts)};
        out[2 * i + 1] = (struct pieces){cells / parts, whole[i].cut, whole[i].count * (parts - cells % parts)};
    }
    qsort(out, 2 * kinds, sizeof *out, larger);
}

/* Returns the time at which the last of `ctas` CTAs ends, if CTAs get pieces as fk_piece says: one each in their order,
 * then one each in the reverse order. A cell takes two units of time, and beginning and ending a piece takes one.
 * Any 2 * ctas equal pieces in a row give every CTA two of them. So only the remainder of a division by 2 * ctas is
 * given out one by one. With 10 CTAs, 47 equal pieces are 4 for each, and 7 more. busy: room for a number for each
 * CTA. */
static uint64_t end_of(const struct pieces *pieces, size_t kinds, uint64_t ctas, uint64_t *busy) {
    uint64_t all = 0, end = 0, k = 0;
    memset(busy, 0, ctas * sizeof *busy);
    for (size_t i = 0; i < kinds; i++) {
        const uint64_t units = 2 * (uint64_t)pieces[i].cells + 1;
        all += pieces[i].count / (2 * ctas) * 2 * units;
        for (uint64_t left = pieces[i].count % (2 * ctas); left; left--, k++) {
            uint64_t *cta = &busy[k / ctas % 2 ? ctas - 1 - k % ctas : k % ctas];
            *cta += units;
            if (*cta > end) end = *cta;
        }
    }
    return all + end;
}

enum {
    LEAST_CELLS = 4, /* of a part: fewer, and putting parts together would take longer than they do */
    MOST_HALVES = 12 /* half parts for each SM */
};

/* Chooses how many cells a part of a short sequence's keys has: the number with which the last CTA ends first. It tries
 * one part for each SM that the plan is made for, then one and a half, and so on up to six. More parts are not always
 * better: for 132 CTAs, 256 parts of four cells take 18 units of time (end_of), and 128 parts of eight cells 17. */
static fcp_code part_cells(fcp_worklists *w, const fcp_plan *plan, uint32_t *out_part, fcp_error *err) {
    const uint64_t ctas = plan->cluster->multiprocessors;
    uint64_t cells = 0, best = UINT64_MAX;
    uint32_t part = 0;
    *out_part = UINT32_MAX; /* parts_of then says 1 */
    if (!ctas) return FCP_OK;
    struct pieces *whole = fcp_worklists_scratch(w, FCP_WORKLISTS_FIRSTS, w->row_count, sizeof *whole);
    struct pieces *pieces = fcp_worklists_scratch(w, FCP_WORKLISTS_PERMUTED, 2 * (size_t)w->row_count, sizeof *pieces);
    uint64_t *busy = fcp_worklists_scratch(w, FCP_WORKLISTS_SIZES, ctas, sizeof *busy);
    if (!whole || !pieces || !busy) return fcp_worklists_no_memory(err);
    const size_t kinds = count_whole(w, plan, whole);
    for (size_t i = 0; i < kinds; i++)
        if (whole[i].cut) cells += whole[i].count * whole[i].cells;
    for (uint32_t halves = 2; halves <= MOST_HALVES && part != LEAST_CELLS; halves++) {
        const uint64_t wanted = (2 * cells + halves * ctas - 1) / (halves * ctas);
        part = wanted < LEAST_CELLS ? LEAST_CELLS : wanted < UINT32_MAX ? (uint32_t)wanted : UINT32_MAX;
        count_parts(whole, kinds, part, pieces);
        const uint64_t end = end_of(pieces, 2 * kinds, ctas, busy);
        if (end < best) best = end, *out_part = part;
    }
    return FCP_OK;
}

fcp_code fcp_worklists_copy_runs(fcp_worklists *w, const fcp_arena *a, fk_row_item *item, uint32_t from, uint32_t to,
                                 fcp_error *err) {
    const fcp_problem *p = a->plan->problem;
    const uint64_t number = a->kv_heads * fcp_dtype_size((fcp_dtype)p->dtype);
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
        run.position += (uint64_t)begin * FCP_CELL;
        run.k += number * begin * FCP_CELL * p->head_dim;
        run.v += number * begin * FCP_CELL * fcp_value_stride(p);
        run.row += begin * FCP_CELL;
        if (w->key_run_count == UINT32_MAX) return fcp_worklists_too_long(err);
        if (!FCP_GROW(w->key_runs, w->key_run_capacity, w->key_run_count + 1))
            return fcp_worklists_no_memory(err);
        w->key_runs[w->key_run_count++] = run;
    }
    item->first = first;
    item->runs = w->key_run_count - first;
    return FCP_OK;
}

/* Cuts one tile of an item of a short sequence into `parts` parts of its keys, whose runs stand in `runs`. */
static fcp_code put_parts(struct packing *x, const fk_row_item *tile, const fk_row_item *runs, uint32_t parts,
                          fcp_error *err) {
    fcp_worklists *w = x->w;
    if (parts == 1) return push_row(w, tile, err);
    const uint64_t bytes = (uint64_t)tile->count * (x->a->plan->problem->value_dim + 2) * sizeof(float);
    if (!FCP_GROW(w->merges, w->merge_capacity, w->merge_count + 1))
        return fcp_worklists_no_memory(err);
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
    fcp_worklists *w = x->w;
    const fcp_problem *p = x->a->plan->problem;
    const uint64_t cells = fcp_worklists_cells(w, item);
    const uint32_t parts = parts_of((uint32_t)cells, x->part), rows = item->count * item->pack;
    fk_row_item *runs = fcp_worklists_scratch(w, FCP_WORKLISTS_FIRSTS, parts, sizeof *runs);
    fcp_code code = runs ? FCP_OK : fcp_worklists_no_memory(err);
    for (uint32_t i = 0; !code && parts > 1 && i < parts; i++) {
        runs[i] = *item;
        code = fcp_worklists_copy_runs(w, x->a, &runs[i], (uint32_t)(cells * i / parts),
                                       (uint32_t)(cells * (i + 1) / parts), err);
    }
    for (uint32_t kv = 0; kv < p->range_kv; kv++)
        for (uint32_t skip = 0; !code && fcp_worklists_wants(w, kv) && skip < rows; skip += FK_ROWS) {
            fk_row_item tile = *item;
            tile.flags |= kv * item->pack << FK_HEAD_SHIFT;
            tile.skip = skip;
            tile.count = rows - skip < FK_ROWS ? rows - skip : FK_ROWS;
            code = put_parts(x, &tile, runs, parts, err);
        }
    return code;
}

/* Turns a list whose items are for all heads into one of items with a head, or a group of heads, each. */
static fcp_code pack_rows(fcp_worklists *w, const fcp_arena *a, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    struct packing x = {w, a, 0};
    fcp_code code = part_cells(w, plan, &x.part, err);
    if (code) return code;
    const uint32_t count = w->row_count;
    fk_row_item *all = w->rows;
    w->rows = NULL;
    w->row_count = w->row_capacity = 0;
    for (uint32_t i = 0; !code && i < count; i++) {
        if (fcp_is_short(&plan->sequences[all[i].sequence])) {
            code = pack_item(&x, &all[i], err);
            continue;
        }
        for (uint32_t h = 0; !code && h < fcp_range_heads(plan->problem); h++) {
            fk_row_item item = all[i];
            item.flags |= h << FK_HEAD_SHIFT;
            if (fcp_worklists_wants(w, h / plan->problem->range_sub)) code = push_row(w, &item, err);
        }
    }
    free(all);
    return code;
}

static void clear_rows(fcp_worklists *w) {
    w->row_count = w->key_run_count = w->merge_count = w->cut_parts = 0;
    w->split_bytes = 0;
}

/* How early an item stands in the list: longest first; fused, before that, those whose last keys arrive first. */
static uint64_t rank_of(const fcp_worklists *w, const fk_row_item *item) {
    uint64_t keys = 0;
    uint32_t arrival = item->arrival;
    for (uint32_t j = item->first; j < item->first + item->runs; j++) {
        keys += w->key_runs[j].count;
        if (w->key_runs[j].arrival > arrival) arrival = w->key_runs[j].arrival;
    }
    if (!w->fusion) return keys;
    return (uint64_t)(UINT32_MAX - arrival) << 32 | (keys < UINT32_MAX ? keys : UINT32_MAX);
}

/* When all items are there: packs those of short sequences, and puts them in order. */
static fcp_code close_rows(fcp_worklists *w, const fcp_arena *a, fcp_error *err) {
    w->single = fcp_plan_by_head(a->plan);
    if (a->pass == FCP_FORWARD && fcp_plan_packed(a->plan)) {
        w->single = true;
        fcp_code code = pack_rows(w, a, err);
        if (code) return code;
    }
    struct fcp_worklists_size *sizes = fcp_worklists_scratch(w, FCP_WORKLISTS_SIZES, w->row_count, sizeof *sizes);
    if (!sizes) return fcp_worklists_no_memory(err);
    for (uint32_t i = 0; i < w->row_count; i++) sizes[i] = (struct fcp_worklists_size){rank_of(w, &w->rows[i]), i};
    if (!fcp_worklists_sort(w, w->rows, w->row_count, sizeof *w->rows, sizes)) return fcp_worklists_no_memory(err);
    return a->pass == FCP_FORWARD && !w->fusion ? fcp_worklists_deal(w, a, err) : FCP_OK;
}

fcp_code fcp_worklists_rows(fcp_worklists *w, const fcp_arena *a, uint32_t first, uint32_t count, fcp_error *err) {
    fcp_code code = FCP_OK;
    clear_rows(w);
    for (uint32_t v = first; !code && v < first + count; v++)
        code = add_block(w, a, &(struct visits){&v, 1, fcp_plan_by_head(a->plan), NULL}, err);
    return code ? code : close_rows(w, a, err);
}

fcp_code fcp_worklists_rows_fused(fcp_worklists *w, const fcp_arena *a, fcp_error *err) {
    const fcp_fusion *f = w->fusion;
    const fcp_visit *visits = a->plan->visits;
    fcp_code code = FCP_OK;
    clear_rows(w);
    for (uint32_t from = 0, to; !code && from < f->visit_count; from = to) {
        for (to = from + 1; to < f->visit_count; to++)
            if (visits[f->visits[to]].q_block != visits[f->visits[from]].q_block) break;
        struct visits of = {f->visits + from, to - from, fcp_plan_by_head(a->plan), NULL};
        code = add_block(w, a, &of, err);
    }
    return code ? code : close_rows(w, a, err);
}
