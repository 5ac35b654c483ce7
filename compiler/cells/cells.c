/* cells.c: counts cells and pairs, and keeps the grids of sequences, at a cost that follows the boundary of the mask.
 *
 * Requires: mask code that passed mc_check; cuts that ascend.
 * Gives: cells.h. README.md explains the whole of it by an example.
 * How: 1. A box of pairs is evaluated as a whole (box/box.h). If it is NONE or FULL it is done, however large it is.
 *      2. If it is MIXED, the mask is specialised to the box and written as words relative to the box's corner. These
 *         words are the key under which the answer is remembered. If an equal key was met before, the answer is known.
 *      3. Otherwise the box is split and its parts are evaluated: quarters if only counts are needed (here), parts of
 *         rows if lists are needed (walk.c).
 *      4. A MIXED box of one cell is solved (solve.c).
 *      Many boxes have equal keys. Where the mask depends on q - k alone, all boxes of one size along a diagonal have.
 *      Where it has a period, boxes that are a period apart have, so in a mask for images only the first few rows of
 *      the first image cost anything.
 * Cost: cells_count: O(unlike boxes * nodes); for a mask of q - k that is O(log n) boxes. cells_grid: O(pieces on the
 *      boundary * (nodes + log pieces) + entries), and the cells inside of piece pairs, only once for pairs that are
 *      alike.
 * Units: positions count tokens; pairs are summed over heads if the mask names h.
 * Method: quadtrees with shared subtrees, as in Gosper's Hashlife (1984), but with symbolic keys.
 */
#include "compiler/cells/cells_parts.h"

#include <stdlib.h>
#include <string.h>

enum { GRID_BYTES_MAX = 64 << 20, FEW_CELLS = 16 };

/* --- counting --------------------------------------------------------------------------------------------------- */

box cells_rect_box(const cells *c, const cell_rect *r) {
    const int64_t first = c->env.q_first, queries = c->env.queries, n = c->env.n;
    int64_t q1 = (int64_t)(r->hi[BOX_Q] * FCP_CELL), k1 = (int64_t)(r->hi[BOX_K] * FCP_CELL);
    return make_box(c, first + (int64_t)(r->lo[BOX_Q] * FCP_CELL), first + (q1 < queries ? q1 : queries),
                    (int64_t)(r->lo[BOX_K] * FCP_CELL), k1 < n ? k1 : n);
}

static uint64_t high_bit(uint64_t x) { return (uint64_t)1 << (63 - __builtin_clzll(x)); }

/* Chooses where to split cells [lo, hi) under a mask with a period: at a cell in which a period begins, such that both
 * sides are alike as often as possible. Periods begin at the positions first, first + period, and so on.
 * Example: of 5 such positions after the first cell, it takes the cell of the fourth; of 9, that of the eighth. In
 * general it is number 2^i, with the largest 2^i that there is. The part before it, of 2^i periods, can then be halved
 * again and again into halves that are alike. Returns 0 if no period begins after cell lo and before hi. */
static uint64_t split_at_step(uint64_t lo, uint64_t hi, uint64_t first, uint64_t period) {
    uint64_t after = (lo + 1) * FCP_CELL, end = hi * FCP_CELL; /* steps in cells after the first */
    uint64_t from = after > first ? (after - first + period - 1) / period : 0;
    uint64_t to = end > first ? (end - first + period - 1) / period : 0;
    return from < to ? (first + (from + high_bit(to - from) - 1) * period) / FCP_CELL : 0;
}

/* Chooses the cell at which to split a rectangle of more than one cell in dimension d:
 * - If the mask reads arrays at places that move with the box: as cells_split says.
 * - If the mask has a period m in this dimension: where a period begins. The first choice is a multiple of lcm(m, 128)
 *   positions after the first beginning of a period. Cells on both sides of such a split are alike. With m = 192, these
 *   are multiples of 384 positions, or 3 cells.
 * - Otherwise after 1, 2, 4, 8, ... cells: the largest of these that leaves something for the second part. */
static uint64_t split_rect(const cell_rect *r, const box *b, const box_program *p, int d) {
    int64_t first, period = box_period(p, b, d, &first);
    uint64_t lo = r->lo[d], hi = r->hi[d], at = 0;
    if (p->placed) return lo + cells_split(b, p, d);
    if (period > 0) {
        first = mc_mod(first - (b->lo[d] - (int64_t)(lo * FCP_CELL)), period); /* counted from the first cell */
        uint64_t step = (uint64_t)period;
        uint64_t alike = step / common_divisor(step, FCP_CELL) * FCP_CELL; /* n is below 2^40 */
        if (alike < box_side(b, d)) at = split_at_step(lo, hi, (uint64_t)first, alike);
        if (!at) at = split_at_step(lo, hi, (uint64_t)first, step);
    }
    return at ? at : lo + high_bit(hi - lo - 1);
}

/* Splits a MIXED rectangle of more than one cell, whose box is b, into at most four, and returns how many. A side that
 * is less than half as long as the other is not split. */
static unsigned split_four(const cell_rect *r, const box *b, const box_program *p, cell_rect out[4]) {
    const uint64_t down = r->hi[BOX_Q] - r->lo[BOX_Q], across = r->hi[BOX_K] - r->lo[BOX_K];
    uint64_t at[2] = {r->hi[BOX_Q], r->hi[BOX_K]};
    unsigned count = 0;
    if (down > 1 && down * 2 > across) at[BOX_Q] = split_rect(r, b, p, BOX_Q);
    if (across > 1 && across * 2 > down) at[BOX_K] = split_rect(r, b, p, BOX_K);
    for (unsigned i = 0; i < 4; i++) {
        cell_rect part = *r;
        for (int d = 0; d < 2; d++) {
            const bool beyond = i >> (1 - d) & 1; /* part i is beyond the split in this dimension */
            if (beyond) part.lo[d] = at[d];
            else part.hi[d] = at[d];
        }
        if (part.lo[0] < part.hi[0] && part.lo[1] < part.hi[1]) out[count++] = part;
    }
    return count;
}

/* Adds the counts of a rectangle of cells: FULL, PARTIAL, pairs. */
static fcp_code count_rect(cells *c, const cell_rect *r, const box_program *p, uint64_t sum[3]) {
    uint64_t down = r->hi[BOX_Q] - r->lo[BOX_Q], across = r->hi[BOX_K] - r->lo[BOX_K], here[3] = {0};
    box b = cells_rect_box(c, r);
    box_class cls;
    stack_mark mark = stack_here(&c->stack);
    fcp_code code = cells_classify(c, &b, &p, &cls);
    if (code != FCP_OK || cls == BOX_NONE) goto done;
    if (cls == BOX_FULL) {
        here[0] = down * across;
        code = cells_box_area(&b, &here[2]);
    } else if (down == 1 && across == 1) {
        uint64_t area;
        code = cells_box_area(&b, &area);
        if (code == FCP_OK) code = cells_cell_pairs(c, &b, p, &here[2]);
        if (code != FCP_OK) goto done;
        here[0] = here[2] == area;
        here[1] = here[2] > 0 && here[2] < area;
    } else {
        bool whole;
        if (cells_stopped(c)) code = FCP_E_INTERRUPTED;
        if (code == FCP_OK) code = cells_count_whole(c, &b, p, here, &whole);
        if (code != FCP_OK || whole) goto sum;
        bool few = down * across <= FEW_CELLS; /* its cells are remembered one by one */
        size_t words = few ? 0 : cells_box_words(c, ANSWER_CELLS, &b, p);
        uint64_t hash;
        const memo_entry *known = cells_find_words(c, c->key, words, &hash);
        if (known) {
            memcpy(here, known->answer, sizeof here);
        } else {
            int64_t *key = cells_keep_words(c, words);
            code = key ? cells_count_tally(c, &b, p, here, &whole) : FCP_E_NO_MEMORY;
            cell_rect parts[4];
            const unsigned count = code == FCP_OK && !whole ? split_four(r, &b, p, parts) : 0;
            for (unsigned i = 0; i < count && code == FCP_OK; i++) code = count_rect(c, &parts[i], p, here);
            if (words && code == FCP_OK && !memo_add(&c->memo, &c->keys, key, words, hash, here))
                code = FCP_E_NO_MEMORY;
        }
    }
sum:
    for (int i = 0; i < 3 && code == FCP_OK; i++)
        if (__builtin_add_overflow(sum[i], here[i], &sum[i])) code = FCP_E_PLAN_SIZE;
done:
    stack_back(&c->stack, mark);
    return code;
}

/* --- whole grids ------------------------------------------------------------------------------------------------ */

/* Gives the base program the bands of the environment. */
static void bind_bands(cells *c, const mc_env *env) {
    if (!(c->uses & MC_USES_BANDS)) return;
    if (c->bound != env->bands || !c->bands) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < c->mask.count; i++)
            if (c->mask.nodes[i].op == MC_BANDS && c->mask.nodes[i].imm >= count)
                count = (uint32_t)c->mask.nodes[i].imm + 1;
        bands_index_free(c->bands);
        c->bands = bands_index_new(env->bands, count, c->stop);
        c->bound = env->bands;
    }
    c->base->bands = env->bands;
    c->base->index = c->bands;
}

fcp_code cells_set_sequence(cells *c, const mc_env *env) {
    c->env = *env;
    memset(c->tallies, 0, sizeof c->tallies);
    fcp_code code = box_arrays_bind(&c->arrays, env, c->stop);
    if (code != FCP_OK) {
        c->base_n = -1;
        return code;
    }
    if (c->base_n < 0 || c->arrays.constants || (c->base_n != env->n && c->uses & MC_USES_N))
        box_program_make(c->mask, env, &c->arrays, c->base);
    bind_bands(c, env);
    c->base_n = env->n;
    return cells_stopped(c) ? FCP_E_INTERRUPTED : FCP_OK;
}

/* Writes to c->key the key of a sequence with these cuts, and its number of words to *out. If the mask reads an array
 * that this sequence alone has, no other sequence can have an equal key. Its grid is then not worth keeping, and *out
 * is 0. */
static fcp_code grid_words(cells *c, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                           uint32_t k_pieces, size_t *out) {
    bool same = q_pieces == k_pieces &&
                (q_cuts == k_cuts || memcmp(q_cuts, k_cuts, ((size_t)q_pieces + 1) * sizeof *q_cuts) == 0);
    size_t need =
        6 + c->arrays.count + 2 * (size_t)c->arrays.constants + (size_t)q_pieces + (same ? 0 : (size_t)k_pieces + 1);
    *out = 0;
    for (uint32_t i = 0; i < c->arrays.count; i++)
        if (c->arrays.at[i].used && !c->arrays.at[i].again) return FCP_OK;
    if (!FCP_GROW(c->key, c->key_room, need)) return FCP_E_NO_MEMORY;
    int64_t *w = c->key;
    *w++ = ANSWER_GRID;
    *w++ = (int64_t)((uint64_t)q_pieces << 32 | k_pieces);
    *w++ = c->uses & MC_USES_N ? c->env.n : -1;
    *w++ = c->env.q_first;
    for (uint32_t i = 0; i < c->arrays.count; i++) *w++ = (int64_t)c->arrays.at[i].content;
    for (uint32_t i = 0; c->arrays.constants && i < c->mask.count; i++) {
        if (!box_loads_constant(c->mask, &c->mask.nodes[i])) continue;
        const box_node *x = &c->base->nodes[i]; /* a constant, or a load of what the array lacks */
        *w++ = x->op;
        *w++ = x->f.c;
    }
    *w++ = same;
    memcpy(w, q_cuts, ((size_t)q_pieces + 1) * sizeof *w);
    w += (size_t)q_pieces + 1;
    if (!same) memcpy(w, k_cuts, ((size_t)k_pieces + 1) * sizeof *w);
    *out = need;
    return FCP_OK;
}

/* Keeps the grid just made under its key, if there is room for it. It is worth keeping if it was asked for before, or
 * took long to make (`dear`). */
static fcp_code keep_grid(cells *c, const int64_t *key, size_t words, uint64_t hash, bool dear) {
    uint64_t *seen = &c->seen[hash % GRIDS_SEEN];
    if (!c->keep_first && !dear && *seen != hash) {
        *seen = hash;
        return FCP_OK;
    }
    size_t bytes = c->entry_count * sizeof *c->entries + words * sizeof *key;
    if (bytes > GRID_BYTES_MAX - c->grid_bytes) return FCP_OK;
    cell_entry *copy = ARENA_NEW(&c->keys, cell_entry, c->entry_count);
    if (!copy || !FCP_GROW(c->grids, c->grid_room, c->grid_count + 1)) return FCP_E_NO_MEMORY;
    if (c->entry_count) memcpy(copy, c->entries, c->entry_count * sizeof *copy);
    const uint64_t answer[3] = {c->grid_count};
    c->grids[c->grid_count++] = (kept_grid){copy, c->entry_count};
    c->grid_bytes += bytes;
    return memo_add(&c->memo, &c->keys, key, words, hash, answer) ? FCP_OK : FCP_E_NO_MEMORY;
}

/* --- the interface ---------------------------------------------------------------------------------------------- */

cells *cells_new(mc_code mask, uint32_t heads) {
    cells *c = calloc(1, sizeof *c);
    if (!c) return NULL;
    c->mask = mask;
    c->uses = mc_uses(mask);
    c->heads = c->uses & MC_USES_H ? heads : 1;
    c->base_n = -1;
    c->key_room = box_key_room(mask.count) + 4;
    bool arrays = box_arrays_new(&c->arrays, mask);
    c->base = arena_alloc(&c->keys, 1, box_program_size(mask.count), _Alignof(max_align_t));
    c->values = ARENA_NEW(&c->keys, box_value, mask.count);
    c->numbers = ARENA_NEW(&c->keys, uint32_t, mask.count);
    c->offsets = ARENA_NEW(&c->keys, int64_t, mask.count);
    c->eval_scratch = ARENA_NEW(&c->keys, int64_t, mask.count);
    c->depends = ARENA_NEW(&c->keys, uint8_t, mask.count);
    c->lanes = lanes_new();
    const bool reads = c->arrays.count > 0;
    if (reads) c->tally = tally_new();
    c->key = malloc(c->key_room * sizeof *c->key);
    c->rows = rows_new();
    c->elements = elements_new();
    c->slot = FCP_NONE;
    if (!arrays || !c->base || !c->values || !c->numbers || !c->offsets || !c->eval_scratch || !c->depends ||
        !c->lanes || (reads && !c->tally) || !c->key || !c->rows || !c->elements) {
        cells_free(c);
        return NULL;
    }
    return c;
}

void cells_free(cells *c) {
    if (!c) return;
    box_arrays_free(&c->arrays);
    bands_index_free(c->bands);
    lanes_free(c->lanes);
    tally_free(c->tally);
    free(c->key);
    rows_free(c->rows);
    elements_free(c->elements);
    free(c->open);
    stack_free(&c->stack);
    free(c->spans);
    arena_free(&c->keys);
    memo_free(&c->memo);
    free(c->grids);
    free(c->diagonals);
    free(c->found);
    free(c->entries);
    free(c->sums);
    free(c->pairs);
    free(c->row_runs);
    free(c->shapes);
    free(c->runs);
    free(c->shape_table);
    free(c);
}

void cells_set_pool(cells *c, arena_pool *pool) { c->keys.pool = pool; }

void cells_set_stop(cells *c, const volatile int *stop) {
    c->stop = stop;
    rows_set_stop(c->rows, stop);
}
void cells_set_done(cells *c, uint64_t *done) { c->done = done; }
void cells_keep_grids(cells *c) { c->keep_first = true; }

/* Is a piece too long for a shape? */
static bool is_too_long(const uint64_t *cuts, uint32_t pieces) {
    for (uint32_t i = 0; i < pieces; i++)
        if (cuts[i + 1] - cuts[i] > UINT32_MAX) return true;
    return false;
}

fcp_code cells_pairs(cells *c, const mc_env *env, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                     uint32_t k_pieces, const cell_entry **out_entries, const uint64_t **out_pairs, size_t *out_count,
                     cells_fault *fault) {
    if (is_too_long(q_cuts, q_pieces) || is_too_long(k_cuts, k_pieces)) return FCP_E_PLAN_SIZE;
    *out_count = 0;
    if (!q_pieces || !k_pieces) return FCP_OK;
    fcp_code code = cells_set_sequence(c, env);
    if (code != FCP_OK) return code;
    c->entry_count = c->sum_count = 0;
    c->pairs_only = true;
    code = cells_walk_pieces(c, q_cuts, q_pieces, k_cuts, k_pieces);
    c->pairs_only = false;
    if (fault && is_fault(code)) *fault = c->fault;
    if (code != FCP_OK) return code;
    if (!FCP_GROW(c->pairs, c->pairs_room, c->entry_count)) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < c->entry_count; i++) {
        const uint32_t shape = c->entries[i].shape;
        c->pairs[i] = shape < SHAPE_NONE ? c->shapes[shape].pairs : c->sums[shape - SHAPE_NONE];
    }
    *out_entries = c->entries;
    *out_pairs = c->pairs;
    *out_count = c->entry_count;
    return FCP_OK;
}

fcp_code cells_grid(cells *c, const mc_env *env, const uint64_t *q_cuts, uint32_t q_pieces, const uint64_t *k_cuts,
                    uint32_t k_pieces, const cell_entry **out_entries, size_t *out_count, cells_fault *fault) {
    if (is_too_long(q_cuts, q_pieces) || is_too_long(k_cuts, k_pieces)) return FCP_E_PLAN_SIZE;
    *out_count = 0;
    if (!q_pieces || !k_pieces) return FCP_OK;
    size_t words;
    fcp_code code = cells_set_sequence(c, env);
    if (code == FCP_OK) code = grid_words(c, q_cuts, q_pieces, k_cuts, k_pieces, &words);
    if (code != FCP_OK) return code;
    uint64_t hash;
    const memo_entry *known = cells_find_words(c, c->key, words, &hash);
    if (known) {
        *out_entries = c->grids[known->answer[0]].entries;
        *out_count = c->grids[known->answer[0]].count;
        return FCP_OK;
    }
    stack_mark mark = stack_here(&c->stack);
    int64_t *key = cells_keep_words(c, words);
    if (!key) return FCP_E_NO_MEMORY;
    c->entry_count = 0;
    const uint64_t looked_at = c->stats.elements;
    code = cells_walk_pieces(c, q_cuts, q_pieces, k_cuts, k_pieces);
    if (code == FCP_OK && words) code = keep_grid(c, key, words, hash, c->stats.elements > looked_at);
    stack_back(&c->stack, mark);
    if (fault && is_fault(code)) *fault = c->fault;
    if (code != FCP_OK) return code;
    *out_entries = c->entries;
    *out_count = c->entry_count;
    return FCP_OK;
}

const fcp_shape_rec *cells_shapes(const cells *c, uint32_t *out_count, const fcp_run **out_runs,
                                  uint32_t *out_run_count) {
    *out_count = (uint32_t)c->shape_count;
    *out_runs = c->runs;
    *out_run_count = (uint32_t)c->run_count;
    return c->shapes;
}

fcp_code cells_count(cells *c, const mc_env *env, cells_counts *out, cells_fault *fault) {
    const uint64_t down = ((uint64_t)env->queries + FCP_CELL - 1) / FCP_CELL;
    const uint64_t across = ((uint64_t)env->n + FCP_CELL - 1) / FCP_CELL;
    uint64_t all, sum[3] = {0};
    if (__builtin_mul_overflow(down, across, &all)) return FCP_E_PLAN_SIZE;
    *out = (cells_counts){.pairs = 0};
    if (!all) return FCP_OK;
    const cell_rect square = {.hi = {down, across}};
    fcp_code code = cells_set_sequence(c, env);
    if (code == FCP_OK) code = count_rect(c, &square, c->base, sum);
    if (fault && is_fault(code)) *fault = c->fault;
    if (code != FCP_OK) return code;
    *out = (cells_counts){.full = sum[0], .partial = sum[1], .none = all - sum[0] - sum[1], .pairs = sum[2]};
    return FCP_OK;
}

fcp_code cells_count_rows(cells *c, const mc_env *env, uint64_t *out_rows) {
    const uint64_t down = ((uint64_t)env->queries + FCP_CELL - 1) / FCP_CELL;
    const uint64_t width = env->n < FCP_CELL ? (uint64_t)env->n : FCP_CELL;
    const cell_rect column = {.hi = {down, 1}};
    uint64_t sum[3] = {0};
    *out_rows = 0;
    if (!down || !width) return FCP_OK;
    fcp_code code = cells_set_sequence(c, env);
    if (code == FCP_OK) code = count_rect(c, &column, c->base, sum);
    *out_rows = sum[2] / width;
    return code;
}

void cells_get_stats(const cells *c, cells_stats *out) {
    *out = c->stats;
    size_t bytes = sizeof *c + box_arrays_bytes(&c->arrays) + c->keys.total + c->stack.total;
    bytes += rows_bytes(c->rows) + lanes_bytes(c->lanes) + tally_bytes(c->tally) + elements_bytes(c->elements);
    bytes += c->open_room * sizeof *c->open;
    bytes += bands_index_bytes(c->bands);
    bytes += c->memo.size * sizeof *c->memo.slots + c->key_room * sizeof *c->key;
    bytes += c->span_room * sizeof *c->spans + c->grid_room * sizeof *c->grids;
    bytes += c->diagonals_room * sizeof *c->diagonals + c->found_room * sizeof *c->found;
    bytes += c->entry_room * sizeof *c->entries + c->row_run_room * sizeof *c->row_runs;
    bytes += c->shape_room * sizeof *c->shapes + c->run_room * sizeof *c->runs;
    out->bytes = bytes + c->shape_table_size * sizeof *c->shape_table;
}
