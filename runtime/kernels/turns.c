/* turns.c: how long the blocks of the backward pass take for a work list, by a model.
 *
 * Gives: turns.h.
 * Cost:  linear in the steps of all pieces, and a look at every block for every piece.
 */
#include "runtime/kernels/turns.h"

#include <stdlib.h>

/* Units of time: of a step; of passing a turn on; of adding dK and dV, 128 KB at 64 bytes a clock, where a step is 2560
 * clocks of products. */
enum { STEP = 8, PASS = 1, SUMS = 6 };

/* When somebody has added who begins to add at `now` at the earliest, after the one before; `passed`: when that one had
 * added, 0: there is none. */
static uint64_t take_turn(uint64_t now, uint64_t *passed, uint64_t takes) {
    if (*passed && now < *passed + PASS) now = *passed + PASS;
    return *passed = now + takes;
}

/* The steps of an item for query heads [first, end) of `heads`; returns when the block has done them. rows: when each
 * turn at rows was passed on; NULL: nobody waits. */
static uint64_t do_steps(const fcp_kernel_work *w, const fk_key_item *item, uint32_t heads, uint32_t first,
                         uint32_t end, uint64_t now, uint64_t *rows, fcp_list_time *out) {
    for (uint32_t r = item->first; r < item->first + item->runs; r++) {
        const fk_row_run *run = &w->row_runs[r];
        for (uint32_t h = first; h < end; h++)
            for (uint32_t at = 0; at < run->count; at += FK_TURN_ROWS) {
                now += STEP;
                out->work += STEP;
                uint64_t *passed = rows ? &rows[fcp_kernel_lock_words(run->lock, heads) + h * FK_TURNS_OF_RUN] : NULL;
                if (passed) now = take_turn(now, passed + at / FK_TURN_ROWS, 0);
            }
    }
    return now;
}

static uint32_t first_free(const uint64_t *at, uint32_t blocks) {
    uint32_t block = 0;
    for (uint32_t i = 1; i < blocks; i++)
        if (at[i] < at[block]) block = i;
    return block;
}

bool fcp_list_time_of(const fcp_kernel_work *w, uint32_t kv_heads, uint32_t group, uint32_t blocks, bool turns,
                      fcp_list_time *out) {
    const uint32_t heads = kv_heads * group, parts = (group + w->subs - 1) / w->subs;
    uint64_t *rows = calloc(fcp_kernel_lock_words(w->lock_count, heads) + 1, sizeof *rows);
    uint64_t *keys = calloc((size_t)w->lock_count * kv_heads + 1, sizeof *keys), *at = calloc(blocks, sizeof *at);
    const bool good = rows && keys && at;
    const uint64_t pieces = fcp_kernel_key_pieces(false, w->key_count, w->subs, kv_heads, group);
    *out = (fcp_list_time){0, 0};
    for (uint64_t ticket = 0; good && ticket < pieces; ticket++) {
        const uint32_t kv = (uint32_t)(ticket / parts % kv_heads), part = (uint32_t)(ticket % parts);
        const fk_key_item *item = &w->keys[ticket / parts / kv_heads];
        const uint32_t first = kv * group + part * w->subs, end = (part + 1) * w->subs < group ? first + w->subs
                                                                                               : (kv + 1) * group;
        const uint32_t block = first_free(at, blocks);
        uint64_t now = do_steps(w, item, heads, first, end, at[block], turns ? rows : NULL, out);
        if (turns && item->lock != FK_NONE) now = take_turn(now, &keys[(size_t)item->lock * kv_heads + kv], SUMS);
        else now += SUMS;
        at[block] = now;
        if (now > out->end) out->end = now;
    }
    free(rows);
    free(keys);
    free(at);
    return good;
}
