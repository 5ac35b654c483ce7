/* partials.h: which transient DKV slots of a rank hold a partial sum.
 *
 * In the backward pass a rank adds to dK and dV of blocks that live elsewhere. Such a sum has a transient slot, which
 * is empty at first: the first contribution must clear it or overwrite it, the others add. Sessions ask here which it
 * is, as they carry out (or put into a stream) the rank's instructions in order. Sums of home blocks are always there.
 */
#ifndef FCP_EXEC_PARTIALS_H
#define FCP_EXEC_PARTIALS_H
#include "runtime/plan/plan.h"

typedef struct fcp_partials {
    uint32_t homes, slots; /* slots below `homes` are home slots; `slots` transient ones follow */
    uint8_t *held;         /* per transient slot */
} fcp_partials;

/* Makes it for at most `slots` transient slots, all of them empty, in place of what it had. FCP_E_NO_MEMORY. */
fcp_code fcp_partials_make(fcp_partials *partials, uint32_t homes, uint32_t slots);
void fcp_partials_free(fcp_partials *partials);
/* A pass begins: all slots are empty. */
void fcp_partials_clear(fcp_partials *partials);

/* Walks over the empty slots that an ATTEND adds to. Each call gives one of them, which holds a sum from then on, and
 * the tokens of its block: the caller clears so many. False: there are no more. A walk begins as {0}. */
typedef struct fcp_partials_walk {
    uint32_t visit, tile; /* the next to look at: of the instruction's visits, of that visit's tiles */
} fcp_partials_walk;
bool fcp_partials_next(fcp_partials *partials, const fcp_plan *plan, const fcp_instr *attend, fcp_partials_walk *walk,
                       uint32_t *out_slot, uint32_t *out_tokens);
/* A REDUCE of slot b into slot c: true if c was empty, so that b is copied there and not added. Afterwards c holds
 * the sum and b is empty. */
bool fcp_partials_reduce(fcp_partials *partials, const fcp_instr *reduce);
/* The transfers of a LAUNCH are complete: slots that received a sum hold one; slots whose last tokens were sent are
 * empty. */
void fcp_partials_launched(fcp_partials *partials, const fcp_plan *plan, const fcp_instr *launch);
#endif
