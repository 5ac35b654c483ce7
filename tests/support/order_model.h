/* order_model.h: a model, in whole numbers, of how long the blocks of the backward pass take for a work list, and how
 * much of that they wait for their turns. A test and a benchmark use it.
 *
 * Each block takes pieces of work (an item and a KV head) in the order of the list. 64 rows of a run and a query head
 * are a step. The first step of a run and head waits until the item before has finished with the same rows. The model
 * leaves out copies, shared memory, and what steps really cost. */
#ifndef ORDER_MODEL_H
#define ORDER_MODEL_H
#include <stdlib.h>

#include "runtime/kernels/work.h"
#include "runtime/plan/plan.h"

enum { ORDER_STEP = 8, ORDER_PASS = 1, ORDER_ROWS = 64 }; /* units of time: of a step, of passing a turn on */

typedef struct order_model {
    uint64_t end, work; /* when the last block ends; what all do, without waiting */
} order_model;

/* With `turns`, runs wait for each other; without, never. `blocks` > 0. False: out of memory. */
static inline bool order_model_of(const fcp_kernel_work *w, uint32_t kv_heads, uint32_t group, uint32_t blocks,
                                  bool turns, order_model *out) {
    uint32_t heads = kv_heads * group;
    uint64_t *passed = calloc((size_t)w->lock_count * heads + 1, sizeof *passed), *at = calloc(blocks, sizeof *at);
    *out = (order_model){0, 0};
    for (uint64_t ticket = 0; passed && at && ticket < (uint64_t)w->key_count * kv_heads; ticket++) {
        const fk_key_item *item = &w->keys[ticket / kv_heads];
        uint32_t first = (uint32_t)(ticket % kv_heads) * group, block = 0;
        for (uint32_t i = 1; i < blocks; i++)
            if (at[i] < at[block]) block = i;
        uint64_t now = at[block];
        for (uint32_t r = item->first; r < item->first + item->runs; r++) {
            const fk_row_run *run = &w->row_runs[r];
            uint64_t steps = (run->count + ORDER_ROWS - 1) / ORDER_ROWS;
            for (uint32_t h = first; h < first + group; h++) {
                uint64_t *last = &passed[(size_t)run->lock * heads + h];
                now += ORDER_STEP;
                if (turns && run->turn && now < *last + ORDER_PASS) now = *last + ORDER_PASS;
                now += ORDER_STEP * (steps - 1);
                *last = now;
                out->work += ORDER_STEP * steps;
            }
        }
        at[block] = now;
        if (now > out->end) out->end = now;
    }
    bool good = passed && at;
    free(passed);
    free(at);
    return good;
}

/* A rank's stages, one after the other: with turns, without, and their work. The arena is laid out, not there. */
static inline bool order_model_of_rank(const fcp_plan *plan, uint32_t rank, uint32_t blocks, order_model *out_with,
                                       order_model *out_without) {
    const fcp_problem *p = plan->problem;
    fcp_kernel_work w = {0};
    fcp_arena a;
    uint32_t homes = 0;
    for (uint64_t b = 0; b < plan->blocks_count; b++) homes += plan->blocks[b].home == rank;
    uint32_t slots_used = homes + (uint32_t)plan->blocks_count;
    uint64_t *first = calloc((size_t)homes + 1, sizeof *first), apart = (uint64_t)p->max_block + p->max_q_block;
    bool good = first != NULL;
    for (uint32_t i = 0; good && i <= homes; i++) first[i] = i * apart;
    fcp_homes h = {.homes = homes, .tokens = {homes * apart, homes * apart}, .first = {first, first}};
    fcp_slots slots = {{[FCP_KV] = slots_used, [FCP_STATE] = slots_used, [FCP_DKV] = slots_used}};
    if (good) fcp_arena_lay(plan, FCP_BACKWARD, rank, &h, &slots, (void *)(uintptr_t)4096, &a);
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
