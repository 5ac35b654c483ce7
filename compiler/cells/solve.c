/* solve.c: classifies a box, makes its key, and counts the pairs of a MIXED cell: one that has not been proven to have
 * all of its pairs allowed, or none.
 *
 * Requires, gives, units: as in cells.c.
 * How: two cells of one size have equal keys if the mask is the same in both, seen from their corners. So a cell that
 *      was met before is found by its key. The heads of a new one are halved while the mask in it depends on the head.
 *      If no closed form fits, the cell is also cut where the mask gets simpler on both sides: for example, q / 64 is a
 *      constant on either side of q = 384. Each part is counted by the cheapest way that fits what is left of the mask
 *      in that part (README.md has the list).
 * Cost: to classify a box or find a cell O(nodes); to solve a cell see box/solve_rows.c, box/lanes.c and elements.c.
 */
#include "compiler/cells/cells_parts.h"

#include <stdlib.h>
#include <string.h>

fcp_code cells_box_area(const box *b, uint64_t *out) {
    if (__builtin_mul_overflow(box_side(b, BOX_Q), box_side(b, BOX_K), out) ||
        __builtin_mul_overflow(*out, box_side(b, BOX_H), out))
        return FCP_E_PLAN_SIZE;
    return FCP_OK;
}

/* Reports a fault of the mask. The rows found the element at which it happens. Evaluating the mask there tells which
 * node faults, and why. */
static fcp_code raise_fault(cells *c, const rows_result *r) {
    bool ignored;
    c->fault = (cells_fault){.n = c->base_n, .q = r->q, .k = r->k, .h = r->h};
    c->fault.kind = mc_eval_checked(c->mask, &c->env, r->q, r->k, r->h, c->eval_scratch, &ignored, &c->fault.node);
    if (c->fault.kind == MC_OK) return FCP_E_INTERNAL;
    return c->fault.kind == MC_DIV_ZERO   ? FCP_E_MASK_DIV_ZERO
           : c->fault.kind == MC_INDEX    ? FCP_E_MASK_INDEX
                                          : FCP_E_MASK_OVERFLOW;
}

fcp_code cells_classify(cells *c, const box *b, const box_program **program, box_class *out) {
    const box_program *p = *program;
    bool simpler;
    c->stats.boxes++;
    c->stats.work += WORK_BOX + WORK_NODE * p->count;
    *out = box_evaluate(p, b, c->values, &simpler);
    if (*out != BOX_MIXED || !simpler) return FCP_OK;
    box_program *special = stack_take(&c->stack, box_program_size(p->count));
    if (!special) return FCP_E_NO_MEMORY;
    box_specialise(p, c->values, c->numbers, special);
    stack_trim(&c->stack, special, box_program_size(special->count));
    *program = special;
    return FCP_OK;
}

size_t cells_box_words(cells *c, answer_kind kind, const box *b, const box_program *p) {
    if (p->placed) return 0;
    c->key[0] = kind;
    c->key[1] = (int64_t)box_side(b, BOX_Q);
    c->key[2] = (int64_t)box_side(b, BOX_K);
    c->key[3] = (int64_t)box_side(b, BOX_H);
    return 4 + box_key(p, b, c->offsets, c->key + 4);
}

const memo_entry *cells_find_words(cells *c, const int64_t *key, size_t words, uint64_t *out_hash) {
    *out_hash = words ? memo_hash(key, words) : 0;
    const memo_entry *known = words ? memo_find(&c->memo, key, words, *out_hash) : NULL;
    c->stats.memo_hits += known != NULL;
    return known;
}

int64_t *cells_keep_words(cells *c, size_t words) {
    int64_t *key = stack_take(&c->stack, words * sizeof *key);
    return key ? memcpy(key, c->key, words * sizeof *key) : NULL;
}

uint64_t cells_split(const box *b, const box_program *p, int d) {
    const uint64_t count = (box_side(b, d) + FCP_CELL - 1) / FCP_CELL;
    int64_t at;
    if (box_run_turn(p, b, d, &at)) {
        uint64_t cell = (uint64_t)(at - b->lo[d]) / FCP_CELL; /* it holds the place, or begins there */
        return cell > 0 ? cell : 1;
    }
    return (uint64_t)1 << (63 - __builtin_clzll(count - 1));
}

enum { TURN_DEPTH = 6 }; /* a cell is cut at turns into at most 2^6 boxes */

static fcp_code solve_box(cells *c, const box *b, const box_program *p, unsigned depth, uint64_t *pairs);

/* Solves both sides of position `at` in dimension d. */
static fcp_code solve_parts(cells *c, const box *b, const box_program *p, int d, int64_t at, unsigned depth,
                            uint64_t *pairs) {
    for (int i = 0; i < 2; i++) {
        const box part = cells_side(b, d, at, i);
        stack_mark mark = stack_here(&c->stack);
        const box_program *special = p;
        box_class cls;
        uint64_t area;
        fcp_code code = cells_classify(c, &part, &special, &cls);
        if (code == FCP_OK && cls == BOX_MIXED) code = solve_box(c, &part, special, depth, pairs);
        else if (code == FCP_OK && cls == BOX_FULL && (code = cells_box_area(&part, &area)) == FCP_OK) *pairs += area;
        stack_back(&c->stack, mark);
        if (code != FCP_OK) return code;
    }
    return FCP_OK;
}

/* Counts a box whose mask depends on q - k alone. Every element of a diagonal has the same value, so one element of
 * each diagonal tells all. In a box of 3 queries and 4 keys the last query has an element on 4 of the 6 diagonals. With
 * the 2 keys behind the last one it has an element on all 6. So only this one row is solved, extended by as many keys
 * as there are queries above it. */
static fcp_code solve_diagonals(cells *c, const box *b, const box_program *p, uint64_t *pairs) {
    uint64_t height = box_side(b, BOX_Q), width = box_side(b, BOX_K), length = height + width - 1, sum = 0;
    for (uint64_t from = 0; from < length; from += ROWS_WIDTH) {
        uint64_t bits[2];
        box row = *b;
        row.lo[BOX_K] += (int64_t)from;
        row.hi[BOX_K] = row.lo[BOX_K] + (int64_t)(length - from < ROWS_WIDTH ? length - from : ROWS_WIDTH);
        if (!rows_one(c->rows, p, &row, b->hi[BOX_Q] - 1, b->lo[BOX_H], bits, &c->stats.elements))
            return FCP_E_NO_MEMORY;
        c->stats.rows++;
        c->stats.work += WORK_ROW + WORK_ROW_NODE * p->count;
        for (int w = 0; w < 2; w++)
            for (uint64_t left = bits[w]; left; left &= left - 1) {
                uint64_t t = from + (uint64_t)w * 64 + (uint64_t)__builtin_ctzll(left), u = length - t;
                uint64_t many = t + 1 < u ? t + 1 : u;
                if (many > width) many = width;
                sum += many < height ? many : height;
            }
    }
    *pairs += sum * box_side(b, BOX_H);
    return FCP_OK;
}

/* Has the pairs of a box evaluated one by one: queues the box for the open cell, or counts it now if there is none. */
static fcp_code count_elements(cells *c, const box *b, const box_program *p, uint64_t *pairs) {
    uint64_t area, found;
    fcp_code code = cells_box_area(b, &area);
    if (code != FCP_OK) return code;
    c->stats.elements += area;
    c->stats.work += elements_cost(p, c->depends, area);
    if (c->slot != FCP_NONE)
        return elements_add(c->elements, p, c->numbers, b, c->slot) ? FCP_OK : FCP_E_NO_MEMORY;
    if (!elements_now(c->elements, p, c->numbers, b, &c->env, &found)) return FCP_E_NO_MEMORY;
    *pairs += found;
    if (c->done) __atomic_fetch_add(c->done, area, __ATOMIC_RELAXED);
    return FCP_OK;
}

enum { SEGMENTS_MANY = 64, DEAR_IN_TURN = 63 };

/* Tells whether evaluating each pair is cheaper than solving rows (box/solve_rows.h), because rows fall into single
 * keys or into many segments. The first row of the box is solved to find out. If it is cheaper, the same is assumed of
 * the next boxes whose programs have as many nodes. */
static fcp_code rows_are_dear(cells *c, const box *b, const box_program *p, bool *out) {
    uint64_t bits[2], looked_at = 0;
    *out = false;
    if (p->loose || !p->on_q || !p->on_k) return FCP_OK;
    if (c->dear_left && c->dear_nodes == p->count) {
        c->dear_left--;
        *out = true;
        return FCP_OK;
    }
    if (!rows_one(c->rows, p, b, b->lo[BOX_Q], b->lo[BOX_H], bits, &looked_at)) return FCP_E_NO_MEMORY;
    *out = looked_at > 0 || rows_segments(c->rows, p) >= SEGMENTS_MANY;
    c->dear_nodes = p->count;
    c->dear_left = *out ? DEAR_IN_TURN : 0;
    return FCP_OK;
}

/* Adds the pairs of a MIXED box of at most one cell. `depth` counts cuts at turns. */
static fcp_code solve_box(cells *c, const box *b, const box_program *p, unsigned depth, uint64_t *pairs) {
    int64_t at;
    if (cells_stopped(c)) return FCP_E_INTERRUPTED;
    if (p->on_h && box_side(b, BOX_H) > 1) {
        bool known;
        uint64_t whole[3] = {0};
        fcp_code code = cells_count_tally(c, b, p, whole, &known);
        if (code != FCP_OK || known) {
            *pairs += whole[2];
            return code;
        }
        return solve_parts(c, b, p, BOX_H, b->lo[BOX_H] + (b->hi[BOX_H] - b->lo[BOX_H]) / 2, depth, pairs);
    }
    if (p->on_q && p->diagonal && !p->loose && !p->placed) return solve_diagonals(c, b, p, pairs);
    if (box_bands_only(p)) {
        *pairs += box_bands_pairs(p, b) * box_side(b, BOX_H);
        return FCP_OK;
    }
    if (!p->loose && p->placed) {
        box one = *b;
        bool known;
        uint64_t found, whole[3] = {0};
        fcp_code code = cells_count_whole(c, b, p, whole, &known);
        if (code != FCP_OK || known) {
            *pairs += whole[2];
            return code;
        }
        one.hi[BOX_H] = one.lo[BOX_H] + 1;
        if (!lanes_cell(c->lanes, p, &one, &found, &known)) return FCP_E_NO_MEMORY;
        if (known) {
            c->stats.rows += box_side(b, BOX_Q);
            c->stats.work += (uint64_t)WORK_LANE_NODE * p->count;
            *pairs += found * box_side(b, BOX_H);
            return FCP_OK;
        }
    }
    if (p->on_q && p->on_k) {
        bool known;
        uint64_t whole[3] = {0};
        fcp_code code = cells_count_tally(c, b, p, whole, &known);
        if (code != FCP_OK || known) {
            *pairs += whole[2];
            return code;
        }
    }
    if (p->on_q && p->count > 1 && depth < TURN_DEPTH) {
        if (box_turn(p, b, BOX_Q, &at)) return solve_parts(c, b, p, BOX_Q, at, depth + 1, pairs);
        if (box_turn(p, b, BOX_K, &at)) return solve_parts(c, b, p, BOX_K, at, depth + 1, pairs);
    }
    bool dear;
    fcp_code code = rows_are_dear(c, b, p, &dear);
    if (code != FCP_OK || dear) return code != FCP_OK ? code : count_elements(c, b, p, pairs);
    rows_result r;
    if (!rows_solve(c->rows, p, b, &r)) return FCP_E_NO_MEMORY;
    if (r.stopped) return FCP_E_INTERRUPTED;
    c->stats.rows += r.rows;
    c->stats.elements += r.elements;
    c->stats.work += r.rows * (WORK_ROW + WORK_ROW_NODE * p->count) + WORK_SEGMENT * r.segments;
    if (r.fault) return raise_fault(c, &r);
    *pairs += r.pairs;
    return FCP_OK;
}

/* --- cells -------------------------------------------------------------------------------------------------------- */

enum { CELL_NONE_OR_PARTIAL, CELL_FULL, CELL_OPEN, WORTH = 8 };

/* The answer that the memo keeps for one cell, in the form of an answer for a rectangle: how many cells are FULL (0 or
 * 1), how many are PARTIAL (0 or 1), and the pairs.
 * The pairs of an open cell are queued and not yet counted (elements.h). Its answer is CELL_OPEN, c->open_batch, and
 * the place of the cell in c->open. */
static void cell_answer(uint64_t pairs, uint64_t area, uint64_t out[3]) {
    out[0] = pairs == area ? CELL_FULL : CELL_NONE_OR_PARTIAL;
    out[1] = pairs > 0 && pairs < area;
    out[2] = pairs;
}

/* Remembering a cell takes memory, and in a mask without structure no cell comes again. So after CELLS_REMEMBERED cells
 * that needed elements, more are remembered only if one in WORTH questions was answered from memory. */
static bool elements_come_again(const cells *c) {
    return c->element_cells < CELLS_REMEMBERED || c->element_hits * WORTH >= c->element_cells;
}

static fcp_code cell_pairs(cells *c, const box *b, const box_program *p, bool later, uint64_t *out,
                           uint32_t *out_open) {
    *out_open = FCP_NONE;
    c->stats.work += WORK_FIND;
    if (cells_line_pairs(b, p, out)) return FCP_OK;
    if (box_bands_only(p)) { /* sooner counted than looked up */
        *out = box_bands_pairs(p, b) * box_side(b, BOX_H);
        return FCP_OK;
    }
    size_t words = cells_box_words(c, ANSWER_CELLS, b, p);
    uint64_t hash;
    memo_entry *known = (memo_entry *)cells_find_words(c, c->key, words, &hash);
    if (known && known->answer[0] != CELL_OPEN) {
        c->element_hits++;
        *out = known->answer[2];
        return FCP_OK;
    }
    if (known && later && known->answer[1] == c->open_batch) {
        *out_open = (uint32_t)known->answer[2];
        return FCP_OK;
    }
    *out = 0;
    uint64_t area, answer[3];
    fcp_code code = cells_box_area(b, &area);
    if (code != FCP_OK) return code;
    const uint64_t before = c->stats.elements;
    size_t queued_before, queued;
    elements_queue(c->elements, &queued_before);
    if (later && !FCP_GROW(c->open, c->open_room, c->open_count + 1)) return FCP_E_NO_MEMORY;
    c->slot = later ? (uint32_t)c->open_count : FCP_NONE;
    code = solve_box(c, b, p, 0, out);
    c->slot = FCP_NONE;
    if (code != FCP_OK) return code;
    elements_queue(c->elements, &queued);
    cell_answer(*out, area, answer);
    if (queued > queued_before) {
        *out_open = (uint32_t)c->open_count;
        answer[0] = CELL_OPEN;
        answer[1] = c->open_batch;
        answer[2] = *out_open;
    }
    if (words && c->stats.elements > before && !known) {
        c->element_cells++;
        if (!elements_come_again(c)) words = 0;
    }
    if (known) memcpy(known->answer, answer, sizeof answer); /* it had been open when an earlier call was stopped */
    else if (words && !(known = memo_add(&c->memo, &c->keys, c->key, words, hash, answer))) return FCP_E_NO_MEMORY;
    if (*out_open != FCP_NONE) c->open[c->open_count++] = (open_cell){.pairs = *out, .area = area, .known = known};
    return FCP_OK;
}

fcp_code cells_cell_pairs(cells *c, const box *b, const box_program *p, uint64_t *out) {
    uint32_t open;
    return cell_pairs(c, b, p, false, out, &open);
}

fcp_code cells_cell_later(cells *c, const box *b, const box_program *p, uint64_t *out, uint32_t *out_open) {
    return cell_pairs(c, b, p, true, out, out_open);
}

fcp_code cells_count_open(cells *c) {
    fcp_code code = elements_count(c->elements, &c->env, c->stop, c->done);
    if (code != FCP_OK) return code;
    size_t jobs;
    const element_job *job = elements_queue(c->elements, &jobs);
    for (size_t i = 0; i < jobs; i++) c->open[job[i].slot].pairs += job[i].pairs;
    for (size_t i = 0; i < c->open_count; i++)
        if (c->open[i].known) cell_answer(c->open[i].pairs, c->open[i].area, c->open[i].known->answer);
    return FCP_OK;
}

void cells_close_open(cells *c) {
    elements_clear(c->elements);
    c->open_count = 0;
    c->open_batch++;
}
