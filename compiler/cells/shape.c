/* shape.c: numbers the shapes of piece pairs. A shape says which cells are FULL or PARTIAL, and how many pairs there
 * are.
 *
 * Requires, units: as in cells.c.
 * Gives: the number of a piece pair's shape. Pairs with the same cells share one number, as all pieces on the diagonal
 *      of causal do. Joins the shapes of two objects.
 * Cost: a pair that was met before O(nodes); a new one as walk.c says; to number a shape O(its runs).
 */
#include "compiler/cells/cells_parts.h"

#include <stdlib.h>
#include <string.h>

/* --- numbering -------------------------------------------------------------------------------------------------- */

static uint32_t shape_hash(const fcp_run *runs, size_t count, uint32_t q_length, uint32_t k_length) {
    uint64_t h = (uint64_t)q_length << 32 | k_length, odd = 0x9e3779b97f4a7c15u;
    for (size_t i = 0; i < count; i++, odd += 2) { /* a word for each run; products do not wait for each other */
        const fcp_run r = runs[i];
        uint64_t word = (uint64_t)r.row << 33 ^ (uint64_t)r.col << 1 ^ (uint64_t)r.count << 17 ^ r.cls;
        h += (word ^ word >> 29) * odd;
    }
    h ^= h >> 32;
    h *= 0xff51afd7ed558ccdu;
    h ^= h >> 32;
    return (uint32_t)(h * 0xc4ceb9fe1a85ec53u >> 32);
}

static bool shape_equal(const cells *c, const fcp_shape_rec *s, uint32_t q_length, uint32_t k_length) {
    return s->q_length == q_length && s->k_length == k_length && s->runs == c->row_run_count &&
           s->pairs == c->shape_pairs &&
           memcmp(c->runs + s->first_run, c->row_runs, c->row_run_count * sizeof *c->runs) == 0;
}

static bool grow_shape_table(cells *c) {
    uint32_t size = c->shape_table_size ? c->shape_table_size * 2 : 64;
    shape_slot *table = aligned_alloc(64 * sizeof *table, size * sizeof *table); /* not calloc: base/memo.c says why */
    if (!table) return false;
    memset(table, 0, size * sizeof *table);
    for (uint32_t i = 0; i < c->shape_table_size; i++) {
        if (!c->shape_table[i].shape) continue;
        uint32_t at = c->shape_table[i].hash & (size - 1);
        while (table[at].shape) at = (at + 1) & (size - 1);
        table[at] = c->shape_table[i];
    }
    free(c->shape_table);
    c->shape_table = table;
    c->shape_table_size = size;
    return true;
}

/* Finds the shape's number, or gives it the next one. Shapes of the same runs but of different numbers of pairs, whose
 * PARTIAL cells differ, have different numbers. */
fcp_code cells_runs_shape(cells *c, uint32_t q_length, uint32_t k_length, uint32_t *out) {
    if (c->shape_count * 2 >= c->shape_table_size && !grow_shape_table(c)) return FCP_E_NO_MEMORY;
    uint32_t mask = c->shape_table_size - 1;
    uint32_t hash = shape_hash(c->row_runs, c->row_run_count, q_length, k_length), at = hash & mask;
    for (; c->shape_table[at].shape; at = (at + 1) & mask) {
        uint32_t shape = c->shape_table[at].shape - 1;
        if (c->shape_table[at].hash != hash || !shape_equal(c, &c->shapes[shape], q_length, k_length)) continue;
        *out = shape;
        return FCP_OK;
    }
    if (c->run_count + c->row_run_count >= UINT32_MAX || c->shape_count >= UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    if (!FCP_GROW(c->shapes, c->shape_room, c->shape_count + 1) ||
        !FCP_GROW(c->runs, c->run_room, c->run_count + c->row_run_count))
        return FCP_E_NO_MEMORY;
    memcpy(c->runs + c->run_count, c->row_runs, c->row_run_count * sizeof *c->runs);
    c->shapes[c->shape_count] = (fcp_shape_rec){.first_run = (uint32_t)c->run_count, .runs = (uint32_t)c->row_run_count,
                                                .q_length = q_length, .k_length = k_length, .pairs = c->shape_pairs};
    c->run_count += c->row_run_count;
    *out = (uint32_t)c->shape_count++;
    c->shape_table[at] = (shape_slot){hash, *out + 1};
    return FCP_OK;
}

fcp_code cells_join(cells *c, const cells *from, uint32_t shape, uint32_t *out) {
    const fcp_shape_rec *s = &from->shapes[shape];
    if (!FCP_GROW(c->row_runs, c->row_run_room, s->runs)) return FCP_E_NO_MEMORY;
    if (s->runs) memcpy(c->row_runs, from->runs + s->first_run, s->runs * sizeof *c->row_runs);
    c->row_run_count = s->runs;
    c->shape_pairs = s->pairs;
    return cells_runs_shape(c, s->q_length, s->k_length, out);
}

fcp_code cells_full_shape(cells *c, uint32_t q_length, uint32_t k_length, uint32_t *out) {
    const int64_t key[2] = {ANSWER_FULL_SHAPE, (int64_t)((uint64_t)q_length << 32 | k_length)};
    uint64_t hash = memo_hash(key, 2);
    const memo_entry *known = memo_find(&c->memo, key, 2, hash);
    if (known) {
        *out = (uint32_t)known->answer[0];
        return FCP_OK;
    }
    uint32_t down = (uint32_t)(((uint64_t)q_length + FCP_CELL - 1) / FCP_CELL);
    uint32_t across = (uint32_t)(((uint64_t)k_length + FCP_CELL - 1) / FCP_CELL);
    box b = make_box(c, 0, q_length, 0, k_length);
    fcp_code code = cells_box_area(&b, &c->shape_pairs);
    if (code != FCP_OK) return code;
    if (!FCP_GROW(c->row_runs, c->row_run_room, down)) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < down; i++)
        c->row_runs[i] = (fcp_run){.row = i, .col = 0, .count = across, .cls = FCP_CELL_FULL};
    c->row_run_count = down;
    code = cells_runs_shape(c, q_length, k_length, out);
    if (code != FCP_OK) return code;
    const uint64_t answer[3] = {*out};
    return memo_add(&c->memo, &c->keys, key, 2, hash, answer) ? FCP_OK : FCP_E_NO_MEMORY;
}

/* --- piece pairs ------------------------------------------------------------------------------------------------ */

fcp_code cells_pair_shape(cells *c, const box *b, const box_program *p, uint32_t *out) {
    size_t words = cells_box_words(c, ANSWER_SHAPE, b, p);
    uint64_t hash;
    const memo_entry *known = cells_find_words(c, c->key, words, &hash);
    if (known) {
        *out = (uint32_t)known->answer[0];
        return FCP_OK;
    }
    stack_mark mark = stack_here(&c->stack);
    int64_t *key = cells_keep_words(c, words);
    if (!key) return FCP_E_NO_MEMORY;
    uint64_t area; /* if it fits 64 bits, so does every sum of pairs */
    fcp_code code = cells_box_area(b, &area);
    bool found = false;
    if (code == FCP_OK) code = cells_region_cells(c, b, p, &found);
    if (code == FCP_OK && !found) code = cells_walk_cells(c, b, p);
    *out = FCP_NONE;
    if (code == FCP_OK && c->row_run_count)
        code = cells_runs_shape(c, (uint32_t)box_side(b, BOX_Q), (uint32_t)box_side(b, BOX_K), out);
    const uint64_t answer[3] = {*out};
    if (code == FCP_OK && words && !memo_add(&c->memo, &c->keys, key, words, hash, answer)) code = FCP_E_NO_MEMORY;
    stack_back(&c->stack, mark);
    return code;
}
