/* kept_keys.c: whether a plan leaves K and V where they are (kept_keys.h).
 *
 * Requires: a verified plan.
 * Cost:     linear in the transfers of the ranks.
 */
#include "runtime/exec/kept_keys.h"

#include <stdlib.h>

/* Calls `sees` for each transfer by which a rank receives K and V. */
typedef bool arrival_seen(uint32_t *block_of, const fcp_transfer *t);
static bool each_arrival(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t *block_of, arrival_seen *sees) {
    const fcp_stream *s = fcp_stream_of(plan, pass, rank, FCP_COMM);
    for (uint32_t i = 0; i < s->count; i++) {
        const fcp_instr *x = &plan->instrs[s->first + i];
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            if (t->cls == FCP_KV && t->dir == FCP_RECV && !sees(block_of, t)) return false;
        }
    }
    return true;
}

static bool find_last(uint32_t *last, const fcp_transfer *t) {
    if (t->slot > *last) *last = t->slot;
    return true;
}
static bool enter(uint32_t *block_of, const fcp_transfer *t) {
    if (block_of[t->slot] == FCP_NONE) block_of[t->slot] = t->block;
    return block_of[t->slot] == t->block;
}
static bool is_there(uint32_t *block_of, const fcp_transfer *t) { return block_of[t->slot] == t->block; }

static bool stays_at(const fcp_plan *plan, uint32_t rank) {
    const unsigned passes = plan->problem->passes;
    const bool both = passes == (1u << FCP_PASSES) - 1;
    uint32_t last = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (passes >> pass & 1) each_arrival(plan, (fcp_pass)pass, rank, &last, find_last);
    uint32_t *block_of = malloc(((size_t)last + 1) * sizeof *block_of);
    bool stays = block_of != NULL;
    for (int pass = 0; stays && pass < FCP_PASSES; pass++) {
        if (!(passes >> pass & 1)) continue;
        for (uint32_t i = 0; i <= last; i++) block_of[i] = FCP_NONE;
        stays = each_arrival(plan, (fcp_pass)pass, rank, block_of, enter);
        const fcp_pass other = pass == FCP_FORWARD ? FCP_BACKWARD : FCP_FORWARD;
        if (stays && both) stays = each_arrival(plan, other, rank, block_of, is_there);
    }
    free(block_of);
    return stays;
}

bool fcp_keys_stay(const fcp_plan *plan, uint32_t first, uint32_t count) {
    for (uint64_t i = 0; i < plan->rounds_count; i++)
        if (plan->rounds[i].kind == FCP_ROUND_IN) return false;
    for (uint32_t r = first; r < first + count; r++)
        if (!stays_at(plan, r)) return false;
    return true;
}
