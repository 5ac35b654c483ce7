/* order_model.h: predicts how long the CTAs of a rank take for the work lists of a plan. Time is counted in units of
 * the model, so no GPU is needed. The model of the backward pass is runtime/worklists/turns.h, that of the forward pass
 * is here. A test and a benchmark include this file. */
#ifndef ORDER_MODEL_H
#define ORDER_MODEL_H
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/head_ranges.h"
#include "runtime/worklists/turns.h"

/* Lays out the arena of a rank that is not there. What it returns is to be freed; NULL: out of memory. */
static inline uint64_t *order_model_arena(const fcp_plan *plan, uint32_t rank, fcp_pass pass, fcp_arena *out) {
    const fcp_problem *p = plan->problem;
    uint32_t homes = 0;
    for (uint64_t b = 0; b < plan->blocks_count; b++) homes += plan->blocks[b].home == rank;
    const uint32_t slots_used = homes + (uint32_t)plan->blocks_count;
    uint64_t *first = calloc((size_t)homes + 1, sizeof *first), apart = (uint64_t)p->max_block + p->max_q_block;
    for (uint32_t i = 0; first && i <= homes; i++) first[i] = i * apart;
    fcp_homes h = {.homes = homes, .tokens = {homes * apart, homes * apart}, .first = {first, first}};
    fcp_slots slots = {{[FCP_KV] = slots_used, [FCP_STATE] = slots_used, [FCP_DKV] = slots_used}};
    if (first) fcp_arena_lay(plan, pass, rank, &h, &slots, (void *)(uintptr_t)4096, out);
    return first;
}

/* What an item of the forward pass takes: a cell of keys two units, to begin and end it `ends`, and to leave the
 * running state of a part three. *out_cells: what its cells alone take. */
static inline uint64_t order_model_item(const fcp_worklists *w, const fk_row_item *item, uint32_t ends,
                                        uint64_t *out_cells) {
    *out_cells = 0;
    for (uint32_t r = item->first; r < item->first + item->runs; r++)
        *out_cells += 2 * ((w->key_runs[r].count + FK_KEYS - 1) / FK_KEYS);
    return *out_cells + ends + (item->parts > 1 ? 3 : 0);
}

/* Returns the time at which the last CTA has done its pieces. CTAs take pieces as w->tickets says. If a
 * row is cut into n parts, the CTA that ends the last part joins the others, which takes 3 (n - 1) units more. Example:
 * three parts that end at 10, 12 and 15 are joined at 15 + 6 = 21.
 *
 * Scratch space: `at` and `next` have a number for each CTA, `came` one for each row that is cut. */
static inline uint64_t order_model_run(const fcp_worklists *w, uint64_t pieces, uint32_t blocks, uint32_t ends,
                                       uint64_t *at, uint64_t *next, uint32_t *came, uint64_t *out_work) {
    const uint64_t each = w->row_count ? pieces / w->row_count : 1;
    uint64_t end = 0, taken = blocks;
    for (uint32_t b = 0; b < blocks; b++) at[b] = 0, next[b] = b; /* the piece that each does */
    for (uint64_t done = 0; done < pieces; done++) {
        uint64_t first = UINT64_MAX, cells = 0, own = 0;
        uint32_t block = 0;
        const fk_row_item *item = NULL;
        for (uint32_t b = 0; b < blocks; b++) { /* which block ends its piece first? */
            const uint64_t k = next[b];
            if (k >= pieces) continue;
            const uint64_t takes = order_model_item(w, &w->rows[k / each], ends, &cells);
            if (at[b] + takes < first) first = at[b] + takes, block = b, item = &w->rows[k / each], own = cells;
        }
        at[block] = first;
        const uint64_t turn = next[block] / blocks + 1;
        next[block] = w->tickets ? taken++ : turn * blocks + (turn % 2 ? blocks - 1 - block : block);
        *out_work += own;
        if (item->parts > 1 && ++came[item->cut] == item->parts) at[block] += 3 * (item->parts - 1);
        if (at[block] > end) end = at[block];
    }
    return end;
}

/* How much of the time of `blocks` multiprocessors the forward pass of rank 0 uses; tickets: as in fcp_worklists. False:
 * out of memory. */
static inline bool order_model_forward(const fcp_plan *plan, uint32_t blocks, uint32_t ends, bool tickets,
                                       fcp_worklists_time *out) {
    const fcp_problem *p = plan->problem;
    fcp_worklists w = {.tickets = tickets};
    fcp_arena a;
    fcp_error err;
    uint64_t *first = order_model_arena(plan, 0, FCP_FORWARD, &a), *at = calloc(2 * (size_t)blocks, sizeof *at);
    const fcp_stream *stream = fcp_stream_of(plan, FCP_FORWARD, 0, FCP_COMPUTE);
    bool good = first && at;
    *out = (fcp_worklists_time){0, 0};
    for (uint32_t i = stream->first; good && i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        if (x->op != FCP_OP_ATTEND) continue;
        uint32_t *came = NULL;
        good = !fcp_worklists_rows(&w, &a, x->a, x->b, &err) && (came = calloc(w.cut_parts + 1, sizeof *came));
        const uint64_t pieces = good ? fcp_worklists_pieces(w.single, w.row_count, p->heads) : 0;
        out->end += order_model_run(&w, pieces, blocks, ends, at, at + blocks, came, &out->work);
        free(came);
    }
    fcp_worklists_free(&w);
    free(first);
    free(at);
    return good;
}

/* A rank's stages, one after the other, by lists of an order: with turns, without, and their work. The arena is laid
 * out, not there. */
static inline bool order_model_of_rank(const fcp_plan *plan, uint32_t rank, uint32_t blocks, fcp_key_order order,
                                       fcp_worklists_time *out_with, fcp_worklists_time *out_without) {
    const fcp_problem *p = plan->problem;
    const fcp_worklists_user never = {.kv_heads = p->kv_heads, .group = p->heads / p->kv_heads, .ctas = blocks,
                                 .parts = order == FCP_KEYS_ALONE ? FK_DKV_PARTS(p->head_dim) : 1,
                                 .by_head = fcp_plan_by_head(plan)};
    fcp_worklists_user waits = never;
    waits.turns_at_rows = order == FCP_KEYS_ORDERED;
    waits.turns_at_keys = true;
    fcp_worklists w = {0};
    fcp_arena a;
    uint64_t *first = order_model_arena(plan, rank, FCP_BACKWARD, &a);
    bool good = first != NULL;
    const fcp_stream *stream = fcp_stream_of(plan, FCP_BACKWARD, rank, FCP_COMPUTE);
    *out_with = *out_without = (fcp_worklists_time){0, 0};
    for (uint32_t i = stream->first; good && i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        fcp_worklists_time with, without;
        fcp_error err;
        if (x->op != FCP_OP_ATTEND) continue;
        good = !fcp_worklists_keys(&w, &a, x->a, x->b, order, &err) && fcp_worklists_time_of(&w, &waits, &with) &&
               fcp_worklists_time_of(&w, &never, &without);
        if (!good) break;
        out_with->end += with.end, out_with->work += with.work;
        out_without->end += without.end, out_without->work += without.work;
    }
    fcp_worklists_free(&w);
    free(first);
    return good;
}
#endif
