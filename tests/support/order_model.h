/* order_model.h: a model, in whole numbers, of how long the blocks of the backward pass take for a work list, and how
 * much of that they wait for their turns. A test and a benchmark use it.
 *
 * Each block takes pieces of work (an item, a KV head, some query heads) in the order of the list. 64 rows of a run and
 * a query head are a step. A step adds to dQ when the piece before it has added to the same rows. At its end a piece
 * adds to dK and dV; if others have the same keys, in turn. The model leaves out other copies, shared memory, and what
 * steps really cost. */
#ifndef ORDER_MODEL_H
#define ORDER_MODEL_H
#include <stdlib.h>
#include <string.h>

#include "runtime/kernels/work.h"
#include "runtime/plan/plan.h"

/* Units of time: of a step; of passing a turn on; of adding dK and dV, 128 KB at 64 bytes a clock, where a step is 2560
 * clocks of products. */
enum { ORDER_STEP = 8, ORDER_PASS = 1, ORDER_SUMS = 6, ORDER_ROWS = FK_TURN_ROWS };

typedef struct order_model {
    uint64_t end, work; /* when the last block ends; what the steps of all take, without waiting */
} order_model;

/* When somebody has added who begins to add at `now` at the earliest, after the one before; `passed`: when that one had
 * added, 0: there is none. */
static inline uint64_t order_model_turn(uint64_t now, uint64_t *passed, uint64_t takes) {
    if (*passed && now < *passed + ORDER_PASS) now = *passed + ORDER_PASS;
    return *passed = now + takes;
}

/* The steps of a piece, for query heads [first, end) of `heads`; returns when the block has done them. */
static inline uint64_t order_model_steps(const fcp_kernel_work *w, const fk_key_item *item, uint32_t heads,
                                         uint32_t first, uint32_t end, uint64_t now, uint64_t *rows, order_model *out) {
    for (uint32_t r = item->first; r < item->first + item->runs; r++) {
        const fk_row_run *run = &w->row_runs[r];
        for (uint32_t h = first; h < end; h++)
            for (uint32_t at = 0; at < run->count; at += ORDER_ROWS) {
                now += ORDER_STEP;
                out->work += ORDER_STEP;
                uint64_t *passed = rows ? &rows[fcp_kernel_lock_words(run->lock, heads) + h * FK_TURNS_OF_RUN] : NULL;
                if (passed) now = order_model_turn(now, passed + at / ORDER_ROWS, 0);
            }
    }
    return now;
}

/* With `turns`, pieces wait for each other; without, never. `blocks` > 0. False: out of memory. */
static inline bool order_model_of(const fcp_kernel_work *w, uint32_t kv_heads, uint32_t group, uint32_t blocks,
                                  bool turns, order_model *out) {
    const uint32_t heads = kv_heads * group, parts = (group + w->subs - 1) / w->subs;
    uint64_t *rows = calloc(fcp_kernel_lock_words(w->lock_count, heads) + 1, sizeof *rows);
    uint64_t *keys = calloc((size_t)w->lock_count * kv_heads + 1, sizeof *keys), *at = calloc(blocks, sizeof *at);
    const bool good = rows && keys && at;
    const uint64_t pieces = fcp_kernel_key_pieces(false, w->key_count, w->subs, kv_heads, group);
    *out = (order_model){0, 0};
    for (uint64_t ticket = 0; good && ticket < pieces; ticket++) {
        const uint32_t kv = (uint32_t)(ticket / parts % kv_heads), part = (uint32_t)(ticket % parts);
        const fk_key_item *item = &w->keys[ticket / parts / kv_heads];
        const uint32_t first = kv * group + part * w->subs, end = (part + 1) * w->subs < group ? first + w->subs
                                                                                               : (kv + 1) * group;
        uint32_t block = 0;
        for (uint32_t i = 1; i < blocks; i++)
            if (at[i] < at[block]) block = i;
        uint64_t now = order_model_steps(w, item, heads, first, end, at[block], turns ? rows : NULL, out);
        if (turns && item->lock != FK_NONE)
            now = order_model_turn(now, &keys[(size_t)item->lock * kv_heads + kv], ORDER_SUMS);
        else now += ORDER_SUMS;
        at[block] = now;
        if (now > out->end) out->end = now;
    }
    free(rows);
    free(keys);
    free(at);
    return good;
}

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

/* How much of the time of `blocks` multiprocessors the forward pass of rank 0 uses: cells of keys are two units, and
 * beginning and ending a piece is one. Blocks take pieces as fk_piece says. False: out of memory. */
static inline bool order_model_forward(const fcp_plan *plan, uint32_t blocks, order_model *out) {
    const fcp_problem *p = plan->problem;
    fcp_kernel_work w = {0};
    fcp_arena a;
    fcp_error err;
    uint64_t *first = order_model_arena(plan, 0, FCP_FORWARD, &a), *at = calloc(blocks, sizeof *at);
    const fcp_stream *stream = fcp_stream_of(plan, FCP_FORWARD, 0, FCP_COMPUTE);
    bool good = first && at;
    *out = (order_model){0, 0};
    for (uint32_t i = stream->first; good && i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        uint64_t end = 0;
        if (x->op != FCP_OP_ATTEND) continue;
        good = !fcp_kernel_rows(&w, &a, x->a, x->b, &err);
        memset(at, 0, blocks * sizeof *at);
        const uint64_t pieces = good ? fcp_kernel_row_pieces(&a, w.row_count, p->heads) : 0;
        for (uint64_t k = 0; k < pieces; k++) {
            const fk_row_item *item = &w.rows[k / (pieces / w.row_count)];
            const uint64_t block = k / blocks % 2 ? blocks - 1 - k % blocks : k % blocks;
            uint64_t units = 0;
            for (uint32_t r = item->first; r < item->first + item->runs; r++)
                units += 2 * ((w.key_runs[r].count + FK_KEYS - 1) / FK_KEYS);
            out->work += units;
            at[block] += units + 1;
            if (at[block] > end) end = at[block];
        }
        out->end += end;
    }
    fcp_kernel_work_free(&w);
    free(first);
    free(at);
    return good;
}

/* A rank's stages, one after the other: with turns, without, and their work. The arena is laid out, not there. */
static inline bool order_model_of_rank(const fcp_plan *plan, uint32_t rank, uint32_t blocks, order_model *out_with,
                                       order_model *out_without) {
    const fcp_problem *p = plan->problem;
    fcp_kernel_work w = {0};
    fcp_arena a;
    uint64_t *first = order_model_arena(plan, rank, FCP_BACKWARD, &a);
    bool good = first != NULL;
    const fcp_stream *stream = fcp_stream_of(plan, FCP_BACKWARD, rank, FCP_COMPUTE);
    *out_with = *out_without = (order_model){0, 0};
    for (uint32_t i = stream->first; good && i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        order_model with, without;
        fcp_error err;
        if (x->op != FCP_OP_ATTEND) continue;
        good = !fcp_kernel_keys(&w, &a, x->a, x->b, FCP_KEYS_ORDERED, &err) &&
               order_model_of(&w, p->kv_heads, p->heads / p->kv_heads, blocks, true, &with) &&
               order_model_of(&w, p->kv_heads, p->heads / p->kv_heads, blocks, false, &without);
        if (!good) break;
        out_with->end += with.end, out_with->work += with.work;
        out_without->end += without.end, out_without->work += without.work;
    }
    fcp_kernel_work_free(&w);
    free(first);
    return good;
}
#endif
