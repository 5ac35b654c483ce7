/* partials.h: which transient slots of a rank hold a partial result.
 *
 * In the backward pass a rank adds to dK and dV of blocks whose home is elsewhere, and to dQ of blocks that it computes
 * for others. In the forward pass it has states: running sums of rows. Such a sum lies in a transient slot, which is
 * empty at first. The first contribution must clear or overwrite the slot, and the others add to it. A session asks
 * these functions which case it is, in the order in which it carries out the rank's instructions or puts them into a
 * stream. Gradients of home blocks are never empty: they are 0 when the pass begins.
 */
#ifndef FCP_EXEC_PARTIALS_H
#define FCP_EXEC_PARTIALS_H
#include "runtime/exec/rank_memory.h"
#include "runtime/plan/instructions.h"

typedef struct fcp_partials {
    uint32_t homes;             /* slots below are home slots, but of STATE */
    fcp_slots slots;            /* transient ones */
    uint8_t *held[FCP_CLASSES]; /* per transient slot of STATE, DKV and DQ; one piece of memory, STATE's first */
} fcp_partials;

/* The class of the slots that a REDUCE, REDUCE_Q or MERGE adds. */
static inline fcp_class fcp_partial_class(const fcp_instr *x) {
    return x->op == FCP_OP_REDUCE ? FCP_DKV : x->op == FCP_OP_REDUCE_Q ? FCP_DQ : FCP_STATE;
}

/* Makes it for the slots of every pass, all of them empty, in place of what it had. FCP_E_NO_MEMORY. */
fcp_code fcp_partials_make(fcp_partials *partials, uint32_t homes, const fcp_slots slots[FCP_PASSES]);
void fcp_partials_free(fcp_partials *partials);
/* A pass begins: all slots are empty. */
void fcp_partials_clear(fcp_partials *partials);

/* Walks over the empty slots of DKV and DQ that a backward ATTEND adds to. Each call gives one slot, which counts as
 * holding a sum from then on, and how many tokens of it the caller must clear. False: there are no more. A walk
 * begins as {0}. */
typedef struct fcp_partials_walk {
    uint32_t visit, tile; /* the next to look at: of the instruction's visits, of that visit's tiles; tile 0 is dQ */
} fcp_partials_walk;
typedef struct fcp_partial {
    fcp_class cls;
    uint32_t slot, tokens;
} fcp_partial;
bool fcp_partials_next(fcp_partials *partials, const fcp_plan *plan, const fcp_instr *attend, fcp_partials_walk *walk,
                       fcp_partial *out);
/* A forward ATTEND: its visits leave states in their slots, or take them for good. */
void fcp_partials_attended(fcp_partials *partials, const fcp_plan *plan, const fcp_instr *attend);
/* A REDUCE, REDUCE_Q or MERGE of slot b into slot c. Returns true if c was empty, so that b is copied there and not
 * added. Afterwards c holds the sum, and b is empty. */
bool fcp_partials_reduce(fcp_partials *partials, const fcp_instr *reduce);
/* A FINISH or ROUND: what slot b held is a result now. */
void fcp_partials_finished(fcp_partials *partials, const fcp_instr *x);
/* The transfers of a LAUNCH are complete. Slots that received a partial result now hold one; slots whose last tokens
 * were sent are now empty. */
void fcp_partials_launched(fcp_partials *partials, const fcp_plan *plan, const fcp_instr *launch);
#endif
