/* empty_sums.c: finds the sums of dK and dV to which nothing has been added before an ATTEND.
 *
 * For example, a rank has block 7 at home. Its first ATTEND of the backward pass adds to dK of this block, a REDUCE
 * adds what another rank has computed, and its third ATTEND adds again. Only in the first one is the sum empty: a piece
 * of work that has these keys for itself then stores its dK, where others add theirs.
 *
 * Requires: a verified plan; visits of one ATTEND of the rank's backward pass.
 * Method:   a walk over the rank's compute queue up to the ATTEND. What an ATTEND or a REDUCE on the way adds to is not
 *           empty. Neither is a slot to which the rank receives a sum of the block at any time of the pass: that is
 *           careful, and spares the question which of the two queues is first. Nor is what visits of other query heads
 *           in the same ATTEND add to, since each range of heads is a launch of its own.
 * Cost:     linear in the tiles that the rank computes up to there, and in its transfers.
 */
#include <string.h>

#include "runtime/plan/instructions.h"
#include "runtime/worklists/list.h"

/* A block's sum in this slot is not empty. */
static void fill(uint32_t *slots, uint32_t block, uint32_t slot) {
    if (slots[block] == slot) slots[block] = FCP_NONE;
}

static void fill_by_visit(const fcp_plan *plan, const fcp_visit *visit, uint32_t *slots) {
    for (uint32_t t = visit->first_tile, end = t + visit->tiles; t < end; t++)
        fill(slots, plan->tiles[t].k_block, plan->tiles[t].dkv_slot);
}

/* What an ATTEND, or a REDUCE, adds to. */
static void fill_by_compute(const fcp_plan *plan, const fcp_instr *x, uint32_t *slots) {
    if (x->op == FCP_OP_REDUCE) fill(slots, x->a, x->c);
    for (uint32_t v = x->a; x->op == FCP_OP_ATTEND && v < x->a + x->b; v++)
        fill_by_visit(plan, &plan->visits[v], slots);
}

static void fill_by_transfers(const fcp_plan *plan, const fcp_instr *launch, uint32_t *slots) {
    for (uint32_t i = launch->a; launch->op == FCP_OP_LAUNCH && i < launch->a + launch->b; i++) {
        const fcp_transfer *t = &plan->transfers[i];
        if (t->cls == FCP_DKV && t->dir == FCP_RECV) fill(slots, t->block, t->slot);
    }
}

void fcp_worklists_empty_sums(const fcp_arena *a, uint32_t range, uint32_t first, uint32_t count, uint32_t *slots) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *compute = fcp_stream_of(plan, FCP_BACKWARD, a->rank, FCP_COMPUTE);
    const fcp_stream *comm = fcp_stream_of(plan, FCP_BACKWARD, a->rank, FCP_COMM);
    const fcp_instr *x = plan->instrs + compute->first, *end = x + compute->count;
    memset(slots, 0xff, (size_t)plan->blocks_count * sizeof *slots); /* FCP_NONE */
    for (const fcp_visit *v = plan->visits + first; v < plan->visits + first + count; v++)
        for (uint32_t t = v->first_tile; t < v->first_tile + v->tiles; t++)
            if (plan->blocks[v->q_block].heads == range) slots[plan->tiles[t].k_block] = plan->tiles[t].dkv_slot;
    for (const fcp_visit *v = plan->visits + first; v < plan->visits + first + count; v++)
        if (plan->blocks[v->q_block].heads != range) fill_by_visit(plan, v, slots);
    for (; x < end && !(x->op == FCP_OP_ATTEND && x->a == first); x++) fill_by_compute(plan, x, slots);
    for (uint32_t i = 0; i < comm->count; i++) fill_by_transfers(plan, &plan->instrs[comm->first + i], slots);
}
