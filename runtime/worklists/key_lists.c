/* key_lists.c: lists columns of keys with the rows that meet them, for dK, dV and the dQ of the same pairs.
 *
 * Requires: a verified plan; an arena as fcp_arena_lay gives it.
 * Gives:    fcp_worklists_keys of worklists.h.
 * Method:   two passes over the same cells, as in a counting sort: the first counts how many cells each column has, the
 *           second puts them there. Then columns are cut until there is enough work for all SMs, neighbouring cells of
 *           one class in a column become one run, and pieces get their locks and turns (locks.c).
 * Cost:     linear in the cells, a table over all blocks of the plan, and a sort of the items; many times that where
 *           there is little work, since several cuts are compared. Memory: the list, and as much again while it is
 *           sorted.
 */
#include <stdlib.h>
#include <string.h>

#include "codegen/source.h"
#include "runtime/base/grow.h"
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/worklists/list.h"
#include "runtime/worklists/turns.h"

/* Heads of a group that see the same pairs. A run of rows names them in cls, above the class of its cells; they are
 * among FK_SET_HEADS neighbours. If lists are not by head, one set stands for all heads, and the run names none. */
struct head_set {
    uint32_t cls;  /* the class of heads, in the range */
    uint32_t bits; /* what cls of a run has above the class of cells */
};

/* A walk over all cells of the visits. There are two. The first makes the items of each KV block when it comes to the
 * block's first tile, and counts the cells of each item; the second (`fill`) writes each cell into its item's list. */
struct columns {
    fcp_worklists *w;
    const fcp_arena *a;
    uint32_t *first_item; /* of each KV block of the plan; FCP_NONE: it has no items yet */
    uint32_t *cells;      /* of each item: their count in the first walk, where the next one goes in the second */
    uint32_t cells_capacity;
    const uint32_t *empty; /* of each KV block of the plan: the slot of its sums if they are empty, or FCP_NONE */
    bool fill, by_head;
    fcp_key_order order;
    const struct head_set *sets; /* of one KV head */
    uint32_t set_count;
    const struct cut *given; /* by head: how items are cut; NULL: as usual_cut says */
};

/* Makes the items of a KV block. */
static fcp_code add_key_items(struct columns *x, const fcp_tile *tile, fcp_error *err) {
    fcp_worklists *w = x->w;
    const fcp_plan *plan = x->a->plan;
    const fcp_problem *p = plan->problem;
    const fcp_block *block = &plan->blocks[tile->k_block];
    const size_t number = fcp_dtype_size((fcp_dtype)p->dtype), kv_heads = x->a->kv_heads;
    const size_t k_row = kv_heads * p->head_dim, v_row = kv_heads * fcp_value_stride(p);
    char *k, *v;
    float *dk, *dv;
    fcp_arena_kv(x->a, tile->kv_slot, &k, &v);
    fcp_arena_dkv(x->a, tile->dkv_slot, &dk, &dv);
    x->first_item[tile->k_block] = w->key_count;
    for (uint32_t i = block->first_piece; i < block->first_piece + block->pieces; i++) {
        const fcp_piece *piece = &plan->pieces[i];
        for (uint32_t key = 0; key < piece->length; key += FCP_CELL) {
            size_t at = piece->offset + key;
            if (w->key_count == UINT32_MAX) return fcp_worklists_too_long(err);
            if (!FCP_GROW(w->keys, w->key_capacity, w->key_count + 1) ||
                !FCP_GROW(x->cells, x->cells_capacity, w->key_count + 1))
                return fcp_worklists_no_memory(err);
            struct fcp_worklists_place rows;
            if (!fcp_worklists_key_rows(x->a, tile->kv_slot, at, &rows)) return fcp_worklists_too_long(err);
            x->cells[w->key_count] = 0;
            w->keys[w->key_count++] =
                (fk_key_item){.position = (fk_i64)(piece->start + key),
                              .k = fcp_worklists_offset(x->a, k + at * k_row * number),
                              .v = fcp_worklists_offset(x->a, v + at * v_row * number),
                              .dk = fcp_worklists_offset(x->a, dk + at * k_row),
                              .dv = fcp_worklists_offset(x->a, dv + at * v_row),
                              .count = piece->length - key < FCP_CELL ? piece->length - key : FCP_CELL,
                              .sequence = piece->sequence,
                              .place = rows.place,
                              .row = rows.row,
                              .slot = rows.slot,
                              .lock = FK_NONE,
                              .begins = x->empty[tile->k_block] == tile->dkv_slot};
        }
    }
    return FCP_OK;
}

/* Counts the cells of a run, or writes them: one to each item from `item` on, since neighbouring columns are
 * neighbouring items. heads: of which heads. */
static void place_run(struct columns *x, const fcp_run *run, uint32_t heads, uint32_t item, const fcp_piece *q,
                      uint32_t token, uint32_t out) {
    fcp_worklists *w = x->w;
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
    if ((in > out ? in : out) + plan->blocks[visit->q_block].tokens > UINT32_MAX) return fcp_worklists_too_long(err);
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

/* Reverses the runs of an item of an ordered list, so that they go from the last row to the first: then items wait less
 * for their turns. For example, with a causal mask and items A and B of neighbouring keys, both see the last rows, but
 * A begins one row of cells earlier than B. From the last row on, B follows A one step behind. From the first row on, B
 * would begin ahead of A, and wait for it. */
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

/* How items are cut into pieces of work: by query heads (subs), and by runs into parts.
 *   part, long_part   about so many runs are a part; long_part is for items of more than 8 * long_part runs
 *   rest              parts have exactly `part` runs, and the last part of an item has what is left. In the list, parts
 *                     that come later in their items then stand first: the short part adds to dK and dV while the
 *                     longer parts of the same keys are still under way */
struct cut {
    uint32_t subs; /* query heads of a group that a piece is for; by head, the most that a run is of */
    uint32_t part, long_part;
    bool apart; /* by head: first, an item is divided into one for each set of heads */
    bool rest;
};
enum {
    LEAST = 4,   /* runs of a part, times heads: fewer, and adding to dK and dV would take longer than the products */
    SHARERS = 8, /* pieces that add to the same dK and dV, one after the other: with more, they mostly wait */
    FEW = 64,    /* cells times heads for each SM: with so many or fewer, cuts are compared */
    /* lengths of parts that are compared, where the longest item is one of them; by head, where lists take longer */
    PARTS = 16,
    HEAD_PARTS = 8
};

/* How many CTAs share the keys of an item. Only the kernel for dK and dV alone shares them. */
static uint32_t ctas_of_item(const struct columns *x) {
    const uint32_t d = x->a->plan->problem->head_dim;
    return x->order == FCP_KEYS_ALONE ? FK_DKV_PARTS(d) : 1;
}

static uint32_t part_of(const fk_key_item *item, const struct cut *cut) {
    return item->runs > 8 * (uint64_t)cut->long_part && cut->long_part < cut->part ? cut->long_part : cut->part;
}

/* How many runs of an item, from run `from` on, are divided as one: all, or those of one set of heads. */
static uint32_t stretch_of(const fcp_worklists *w, const fk_key_item *item, uint32_t from, const struct cut *cut) {
    uint32_t end = from + 1;
    if (!cut->apart) return item->runs - from;
    while (end < item->runs && (w->row_runs[item->first + end].cls ^ w->row_runs[item->first + from].cls) <= 3) end++;
    return end - from;
}

/* Into how many parts a stretch of `runs` runs of an item is divided. */
static uint32_t divide(const fk_key_item *item, uint32_t runs, const struct cut *cut) {
    const uint64_t part = part_of(item, cut), parts = (runs + (cut->rest ? part - 1 : part / 2)) / part;
    return parts ? (uint32_t)parts : 1;
}

static uint32_t parts_of(const fcp_worklists *w, const fk_key_item *item, const struct cut *cut) {
    uint32_t parts = 0;
    for (uint32_t from = 0, runs; from < item->runs; from += runs) {
        runs = stretch_of(w, item, from, cut);
        parts += divide(item, runs, cut);
    }
    return parts;
}

static uint32_t longest_of(const fcp_worklists *w) {
    uint32_t longest = 0;
    for (uint32_t i = 0; i < w->key_count; i++)
        if (w->keys[i].runs > longest) longest = w->keys[i].runs;
    return longest;
}

/* How items are cut if there is much work, by three rules. What counts is the number of SMs in the plan, not that of
 * the device.
 *   1. By query heads. If a device has four pieces for each of its SMs, all end at nearly the same time. So items are
 *      cut into pieces of fewer query heads until there are four for each SM, or one for each head. Such pieces keep
 *      all their rows, and add to dQ of different heads.
 *   2. By rows. If there still is less than one piece for each SM, items are cut by rows as well, into two pieces for
 *      each SM, but into at most SHARERS pieces with the same keys.
 *   3. Long items. An item with more than four times the average number of runs is cut into parts of half the average.
 *      Otherwise an item of keys that every row sees would keep one CTA busy when all others have ended. */
static struct cut usual_cut(const struct columns *x, uint64_t runs) {
    const fcp_problem *p = x->a->plan->problem;
    const uint64_t ctas = x->a->plan->cluster->multiprocessors, group = p->range_sub, items = x->w->key_count;
    struct cut cut = {p->range_sub, UINT32_MAX, UINT32_MAX, false};
    if (!items) return cut;
    uint64_t pieces = items * p->range_kv * ctas_of_item(x), parts = x->by_head ? 1 : 4 * ctas / pieces;
    parts = parts > group ? group : parts ? parts : 1;
    cut.subs = (uint32_t)((group + parts - 1) / parts);
    parts = (group + cut.subs - 1) / cut.subs;
    if (pieces * parts < ctas && 2 * parts <= SHARERS) {
        uint64_t part = runs * p->range_kv * ctas_of_item(x) * parts / (2 * ctas), longest = longest_of(x->w);
        if (part < longest * parts / SHARERS) part = longest * parts / SHARERS;
        cut.part = part < LEAST ? LEAST : (uint32_t)part;
    }
    cut.long_part = (uint32_t)(runs / (2 * items));
    if (cut.long_part < LEAST) cut.long_part = LEAST;
    return cut;
}

static void drop_empty_items(fcp_worklists *w) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->key_count; i++)
        if (w->keys[i].runs) w->keys[kept++] = w->keys[i];
    w->key_count = kept;
}

/* Puts the runs of each item in order of their sets of heads; those of one set stay in theirs. */
static bool sort_by_sets(const struct columns *x) {
    fcp_worklists *w = x->w;
    fk_row_run *all = fcp_worklists_scratch(w, FCP_WORKLISTS_PERMUTED, w->row_run_count, sizeof *all);
    if (!all) return false;
    memcpy(all, w->row_runs, w->row_run_count * sizeof *all);
    for (uint32_t i = 0; i < w->key_count; i++) {
        fk_row_run *to = w->row_runs + w->keys[i].first;
        for (const struct head_set *set = x->sets; set < x->sets + x->set_count; set++)
            for (const fk_row_run *r = all + w->keys[i].first, *end = r + w->keys[i].runs; r < end; r++)
                if ((r->cls & ~3u) == set->bits) *to++ = *r;
    }
    return true;
}

/* Cuts the items of a list, all at the same numbers of runs, so that parts of neighbouring items meet the same rows.
 * Until locks and turns are given out, `turn` is the number of the part. */
static bool cut_items(struct columns *x, const struct cut *cut) {
    fcp_worklists *w = x->w;
    const uint32_t kept = w->key_count, group = x->a->plan->problem->range_sub;
    uint64_t items = 0;
    w->subs = x->by_head ? group : cut->subs;
    if (cut->apart && !sort_by_sets(x)) return false;
    for (uint32_t i = 0; i < kept; i++) items += parts_of(w, &w->keys[i], cut);
    if (items > UINT32_MAX || !FCP_GROW(w->keys, w->key_capacity, (uint32_t)items))
        return false;
    w->key_count = (uint32_t)items;
    for (uint32_t i = kept, to = (uint32_t)items; i-- > 0;) { /* from the last: none is overwritten unread */
        const fk_key_item item = w->keys[i];
        const uint32_t parts = parts_of(w, &item, cut), part = part_of(&item, cut);
        fk_key_item *next = &w->keys[to -= parts];
        for (uint32_t from = 0, runs; from < item.runs; from += runs) {
            runs = stretch_of(w, &item, from, cut);
            for (uint32_t j = 0, count = divide(&item, runs, cut); j < count; j++, next++) {
                *next = item;
                next->first = item.first + from + j * part;
                next->runs = j + 1 < count ? part : runs - j * part;
                next->turn = j;
            }
        }
    }
    return true;
}

/* How long an item is: rows, or in an ordered list runs, times heads. */
static uint64_t item_size(const struct columns *x, const fk_key_item *item) {
    uint64_t size = 0;
    for (const fk_row_run *r = x->w->row_runs + item->first, *end = r + item->runs; r < end; r++) {
        const uint32_t set = fcp_worklists_heads_of(r);
        const uint32_t heads = set ? (uint32_t)__builtin_popcount(set) : 1;
        size += (uint64_t)(x->order == FCP_KEYS_ORDERED ? 1 : r->count) * heads;
    }
    return size;
}

/* Sorts the items of a list, longest first; `later`: parts that come later in their items before all others. */
static bool sort_keys(const struct columns *x, bool later) {
    fcp_worklists *w = x->w;
    struct fcp_worklists_size *sizes = fcp_worklists_scratch(w, FCP_WORKLISTS_SIZES, w->key_count, sizeof *sizes);
    for (uint32_t i = 0; sizes && i < w->key_count; i++) {
        const uint64_t part = later ? w->keys[i].turn : 0;
        sizes[i] = (struct fcp_worklists_size){item_size(x, &w->keys[i]) + (part << 48), i};
    }
    return sizes && fcp_worklists_sort(w, w->keys, w->key_count, sizeof *w->keys, sizes);
}

/* Makes the list of whole items the one that CTAs work through: cuts it, sorts it, gives out turns. By head, turns
 * are given out when the lists of all KV heads are one. */
static bool finish_list(struct columns *x, const struct cut *cut) {
    return cut_items(x, cut) && sort_keys(x, cut->rest) &&
           (x->by_head || fcp_worklists_give_turns(x->w, x->a, x->order));
}

/* Cuts of the same whole items are compared by when the last CTA ends (turns.h). */
struct contest {
    const fk_key_item *whole;
    uint32_t count;
    struct cut best;
    fcp_worklists_time time; /* of the best */
};

/* Who takes the list. */
static fcp_worklists_user user_of(const struct columns *x) {
    const fcp_plan *plan = x->a->plan;
    const fcp_problem *p = plan->problem;
    return (fcp_worklists_user){.kv_heads = p->range_kv, .group = p->range_sub, .parts = ctas_of_item(x),
                                .ctas = plan->cluster->multiprocessors, .by_head = x->by_head,
                                .turns_at_rows = x->order == FCP_KEYS_ORDERED,
                                .turns_at_keys = x->order != FCP_KEYS_JOINT};
}

/* Makes the list with a cut, and keeps the cut if it is better than the best one. */
static bool try_cut(struct columns *x, struct contest *c, const struct cut *cut) {
    fcp_worklists *w = x->w;
    const fcp_worklists_user user = user_of(x);
    fcp_worklists_time time;
    memcpy(w->keys, c->whole, c->count * sizeof *c->whole);
    w->key_count = c->count;
    if (!finish_list(x, cut) || !fcp_worklists_time_of(w, &user, &time)) return false;
    if (time.end >= c->time.end) return true;
    c->time = time;
    c->best = *cut;
    return true;
}

/* Tries pieces of `subs` query heads: first with whole items, then with parts of 15/16 of the longest item, of 14/16,
 * and so on. It ends when a device has four pieces for each of its SMs, or pieces are very short. */
static bool try_parts(struct columns *x, struct contest *c, uint32_t subs, uint32_t longest) {
    const fcp_problem *p = x->a->plan->problem;
    const uint64_t most = 4 * (uint64_t)x->a->plan->cluster->multiprocessors;
    struct cut cut = {.subs = subs, .long_part = c->best.long_part, .rest = true};
    for (uint32_t n = PARTS; n > 0; n--) {
        const uint32_t part = (uint32_t)(((uint64_t)longest * n + PARTS - 1) / PARTS);
        uint64_t items = 0;
        if (part == cut.part) continue;
        cut.part = part;
        for (uint32_t i = 0; i < c->count; i++) items += parts_of(x->w, &c->whole[i], &cut);
        if ((uint64_t)part * subs < LEAST || items > most ||
            fcp_worklists_key_pieces(false, (uint32_t)items, subs, p->range_kv, p->range_sub) > most)
            return true;
        if (!try_cut(x, c, &cut)) return false;
    }
    return true;
}

/* Is so little of the time used that other cuts may be better? And is there so little work that they are tried? */
static bool wants_better(const fcp_worklists_time *time, uint32_t ctas) {
    return 10 * time->work < 9 * time->end * ctas;
}
static bool is_little(const struct columns *x, uint64_t cells) {
    return cells <= FEW * (uint64_t)x->a->plan->cluster->multiprocessors;
}

/* How items are cut if there is little work. No rule is right then: with more pieces the work is shared better, but
 * pieces of the same keys add to dK and dV in turn, and which rows they meet decides how long they wait. For example,
 * with a causal mask, 16 columns and a group of 8 heads, these cuts take so many units of the model (turns.h):
 *   pieces of one head and all rows                         311
 *   pieces of four heads and two rows                       240
 *   pieces of one head and ten rows, and of the rows left   221
 * If the usual cut leaves more than a tenth of the time unused, others are compared with it: for all heads of a group,
 * half of them, a quarter and so on, each with parts of several lengths. Of equal ones the first is kept. */
static bool compare_cuts(struct columns *x, struct contest *c) {
    const uint32_t longest = longest_of(x->w);
    if (!try_cut(x, c, &c->best)) return false;
    if (!wants_better(&c->time, x->a->plan->cluster->multiprocessors)) return true;
    for (uint32_t subs = x->a->plan->problem->range_sub;; subs = (subs + 1) / 2) {
        if (!try_parts(x, c, subs, longest)) return false;
        if (subs == 1) return true;
    }
}

/* Cuts whole items, which have `runs` runs, and makes the list of their pieces. */
static bool choose_cut(struct columns *x, uint64_t runs) {
    fcp_worklists *w = x->w;
    const fcp_problem *p = x->a->plan->problem;
    struct contest c = {.count = w->key_count, .best = usual_cut(x, runs), .time = {.end = UINT64_MAX}};
    if (x->given) {
        const uint32_t long_part = c.best.long_part;
        c.best = *x->given;
        c.best.long_part = long_part;
    }
    if (x->by_head || !c.count || !is_little(x, runs * p->range_kv * p->range_sub)) return finish_list(x, &c.best);
    fk_key_item *whole = malloc(c.count * sizeof *whole);
    c.whole = whole;
    if (whole) memcpy(whole, w->keys, c.count * sizeof *whole);
    const bool good = whole && compare_cuts(x, &c);
    if (good) memcpy(w->keys, whole, c.count * sizeof *whole);
    w->key_count = c.count;
    free(whole);
    return good && finish_list(x, &c.best);
}

/* Makes the items and their runs, from both walks to locks and turns. */
static fcp_code fill_columns(struct columns *x, uint32_t first, uint32_t count, fcp_error *err) {
    fcp_worklists *w = x->w;
    fcp_code code = FCP_OK;
    uint64_t total = 0;
    for (uint32_t v = first; !code && v < first + count; v++) code = walk_cells(x, &x->a->plan->visits[v], err);
    if (code) return code;
    for (uint32_t i = 0; i < w->key_count; i++) {
        uint32_t cells = x->cells[i];
        w->keys[i].first = x->cells[i] = (uint32_t)total;
        w->keys[i].runs = cells;
        total += cells;
        if (total > UINT32_MAX) return fcp_worklists_too_long(err);
    }
    if (!FCP_GROW(w->row_runs, w->row_run_capacity, (uint32_t)total))
        return fcp_worklists_no_memory(err);
    w->row_run_count = (uint32_t)total;
    x->fill = true;
    for (uint32_t v = first; !code && v < first + count; v++) code = walk_cells(x, &x->a->plan->visits[v], err);
    if (code) return code;
    bool ordered = x->order == FCP_KEYS_ORDERED;
    for (uint32_t i = 0; ordered && i < w->key_count; i++)
        reverse_runs(w->row_runs + w->keys[i].first, w->keys[i].runs);
    drop_empty_items(w);
    if (!choose_cut(x, total)) return fcp_worklists_no_memory(err);
    for (uint32_t i = 0; !ordered && i < w->key_count; i++)
        w->keys[i].runs = join_runs(w->row_runs + w->keys[i].first, w->keys[i].runs);
    return FCP_OK;
}

fcp_key_order fcp_key_order_of(unsigned backward) {
    if (backward & (EMIT_ORDERED | EMIT_ORDERED_SM90)) return FCP_KEYS_ORDERED;
    return backward & (EMIT_UNORDERED | EMIT_UNORDERED_SM90) ? FCP_KEYS_JOINT : FCP_KEYS_ALONE;
}

/* The items of the KV heads whose sets x has, or of all heads. */
static fcp_code list_columns(struct columns *x, uint32_t first, uint32_t count, fcp_error *err) {
    fcp_worklists *w = x->w;
    size_t blocks = (size_t)x->a->plan->blocks_count;
    x->first_item = fcp_worklists_scratch(w, FCP_WORKLISTS_FIRSTS, blocks, sizeof *x->first_item);
    if (!x->first_item) return fcp_worklists_no_memory(err);
    memset(x->first_item, 0xff, blocks * sizeof *x->first_item); /* FCP_NONE */
    w->key_count = w->row_run_count = 0;
    x->fill = false;
    return fill_columns(x, first, count, err);
}

/* Finds the sets of KV head `kv` of a range, of at most `most` heads each; returns how many. out: room for one for each
 * head of its group. */
static uint32_t find_sets(const fcp_plan *plan, uint32_t range, uint32_t kv, uint32_t most, struct head_set *out) {
    const uint32_t group = plan->problem->range_sub, first_bit = 1u << FK_SET_SHIFT;
    uint32_t count = 0;
    for (uint32_t h = 0; h < group; h++) {
        const uint32_t cls = fcp_class_of(plan, range, kv * group + h), base = h / FK_SET_HEADS;
        uint32_t s = 0;
        while (s < count && !(out[s].cls == cls && out[s].bits >> FK_SET_BASE_SHIFT == base &&
                              (uint32_t)__builtin_popcount(out[s].bits / first_bit % (1u << FK_SET_HEADS)) < most))
            s++;
        if (s == count) out[count++] = (struct head_set){cls, base << FK_SET_BASE_SHIFT};
        out[s].bits |= first_bit << h % FK_SET_HEADS;
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

/* Appends the columns that were listed for one KV head to `all`, as items of KV head `kv`. again: they are there for
 * another head with the same sets, so the runs are shared. */
static fcp_code keep_columns(const fcp_worklists *w, uint32_t kv, bool again, struct fcp_worklists_kept *all,
                             fcp_error *err) {
    const uint32_t runs = again ? 0 : w->row_run_count;
    fcp_code code = fcp_worklists_reserve(all, w->key_count, runs, err);
    if (code) return code;
    if (runs) memcpy(all->runs + all->run_count, w->row_runs, runs * sizeof *all->runs);
    all->run_count += runs;
    for (uint32_t i = 0; i < w->key_count; i++) {
        fk_key_item *item = &all->keys[all->key_count++];
        *item = w->keys[i];
        item->first += all->run_count - w->row_run_count;
        item->kv_head = kv;
    }
    return FCP_OK;
}

/* Makes one list of the lists of the KV heads, which stand one behind the other. Items of one head keep their order.
 * The longest items stand first; or, with `ranks`, the first item of each head, then the second of each. */
static bool merge_heads(const struct columns *x, bool ranks) {
    fcp_worklists *w = x->w;
    struct fcp_worklists_size *sizes = fcp_worklists_scratch(w, FCP_WORKLISTS_SIZES, w->key_count, sizeof *sizes);
    if (!sizes || !ranks) return sizes && sort_keys(x, false);
    for (uint32_t i = 0, first = 0; i < w->key_count; i++) {
        if (w->keys[i].kv_head != w->keys[first].kv_head) first = i;
        sizes[i] = (struct fcp_worklists_size){UINT32_MAX - (i - first), i};
    }
    return fcp_worklists_sort(w, w->keys, w->key_count, sizeof *w->keys, sizes);
}

/* Makes the list of each KV head; heads with the same sets share runs. Then all items are one list. */
static fcp_code list_heads(struct columns *x, uint32_t first, uint32_t count, const struct cut *given, fcp_error *err) {
    fcp_worklists *w = x->w;
    const fcp_plan *plan = x->a->plan;
    const uint32_t kv_heads = plan->problem->range_kv, group = plan->problem->range_sub;
    struct head_set *sets = malloc(group * sizeof *sets);
    struct fcp_worklists_kept all = {0};
    fcp_code code = sets ? FCP_OK : fcp_worklists_no_memory(err);
    x->given = given;
    for (uint32_t kv = 0; !code && kv < kv_heads; kv++) {
        uint32_t before = 0;
        while (before < kv && !(fcp_worklists_wants(w, before) && same_group(plan, w->range, before, kv))) before++;
        if (before < kv || !fcp_worklists_wants(w, kv)) continue; /* it was listed with that one, or is not */
        x->sets = sets;
        x->set_count = find_sets(plan, w->range, kv, given ? given->subs : group, sets);
        code = list_columns(x, first, count, err);
        for (uint32_t other = kv; !code && other < kv_heads; other++)
            if (fcp_worklists_wants(w, other) && same_group(plan, w->range, kv, other))
                code = keep_columns(w, other, other != kv, &all, err);
    }
    free(sets);
    fcp_worklists_replace_keys(w, &all);
    if (code) return code;
    const bool good = merge_heads(x, given && given->rest) && fcp_worklists_give_turns(w, x->a, x->order);
    return good ? FCP_OK : fcp_worklists_no_memory(err);
}

/* By head, cuts are compared as without, but the lists of all KV heads have one. */
struct heads_contest {
    uint32_t first, count; /* visits */
    struct cut best;
    fcp_worklists_time time;
    bool found; /* a better one than the usual cut */
};

/* Makes the list with a cut, and keeps the cut if it is better than the best one. */
static fcp_code try_heads(struct columns *x, struct heads_contest *c, const struct cut *cut, fcp_error *err) {
    const fcp_worklists_user user = user_of(x);
    fcp_worklists_time time;
    fcp_code code = list_heads(x, c->first, c->count, cut, err);
    if (code) return code;
    if (!fcp_worklists_time_of(x->w, &user, &time)) return fcp_worklists_no_memory(err);
    if (time.end >= c->time.end) return FCP_OK;
    c->time = time;
    c->best = *cut;
    c->found = true;
    return FCP_OK;
}

/* Tries runs of at most `subs` heads: with whole items, and with parts of seven eighths of the longest, and so on. */
static fcp_code try_head_parts(struct columns *x, struct heads_contest *c, uint32_t subs, bool apart, fcp_error *err) {
    const fcp_plan *plan = x->a->plan;
    const uint64_t most = 4 * (uint64_t)plan->cluster->multiprocessors;
    struct cut cut = {.subs = subs, .part = UINT32_MAX, .apart = apart, .rest = true};
    fcp_code code = try_heads(x, c, &cut, err);
    const uint32_t longest = longest_of(x->w);
    for (uint32_t n = HEAD_PARTS; n-- > 1 && !code && (uint64_t)x->w->key_count * ctas_of_item(x) <= most;) {
        const uint32_t part = (uint32_t)(((uint64_t)longest * n + HEAD_PARTS - 1) / HEAD_PARTS);
        if ((uint64_t)part * subs < LEAST) break;
        if (part == cut.part) continue;
        cut.part = part;
        code = try_heads(x, c, &cut, err);
    }
    return code;
}

/* Lists by head. There is one more choice than in compare_cuts: pieces are for all sets of heads of a group, or for one
 * set, and then for all its heads, half of them and so on. */
static fcp_code list_by_head(struct columns *x, uint32_t first, uint32_t count, fcp_error *err) {
    const fcp_problem *p = x->a->plan->problem;
    const fcp_worklists_user user = user_of(x);
    struct heads_contest c = {.first = first, .count = count};
    fcp_code code = list_heads(x, first, count, NULL, err);
    if (code || !user.ctas) return code; /* a processor: items are not cut for it */
    if (!fcp_worklists_time_of(x->w, &user, &c.time)) return fcp_worklists_no_memory(err);
    const uint64_t cells = c.time.work / FCP_WORKLISTS_STEP / FK_TURNS_OF_RUN / ctas_of_item(x);
    if (!wants_better(&c.time, user.ctas) || !is_little(x, cells)) return FCP_OK;
    code = try_head_parts(x, &c, p->range_sub, false, err);
    for (uint32_t subs = p->range_sub; !code; subs = (subs + 1) / 2) {
        code = try_head_parts(x, &c, subs, true, err);
        if (subs == 1) break;
    }
    return code ? code : list_heads(x, first, count, c.found ? &c.best : NULL, err);
}

fcp_code fcp_worklists_keys(fcp_worklists *w, const fcp_arena *a, uint32_t first, uint32_t count, fcp_key_order order,
                            fcp_error *err) {
    static const struct head_set everybody = {0, 0};
    struct columns x = {.w = w, .a = a, .by_head = fcp_plan_by_head(a->plan), .order = order, .sets = &everybody,
                        .set_count = 1};
    uint32_t *empty = fcp_worklists_scratch(w, FCP_WORKLISTS_EMPTY, a->plan->blocks_count, sizeof *empty);
    if (!empty) return fcp_worklists_no_memory(err);
    fcp_worklists_empty_sums(a, w->range, first, count, empty);
    x.empty = empty;
    w->subs = a->plan->problem->range_sub;
    fcp_code code = x.by_head ? list_by_head(&x, first, count, err) : list_columns(&x, first, count, err);
    free(x.cells);
    return code;
}
