/* fuse.h: which ATTENDs of a rank are one launch in a pass, and when what they read arrives.
 *
 *   by stages    round 0 | ATTEND 0, round 1 | ATTEND 1, round 2 | ATTEND 2       a launch for each ATTEND
 *   fused        round 0 | round 1 | round 2                                      one launch, which begins at once
 *
 * A fused launch does not wait for the end of a stage. Each round sets a flag when what it brings is there, and a CTA
 * waits for the flag before it reads that.
 *   Forward    the launch has one item for each row of cells, with the keys of all its ATTENDs. The running state of a
 *              row stays in registers.
 *   Backward   the launch's list is the lists of its ATTENDs, one behind the other.
 * Either way the same numbers are added to each sum in the same order as by stages, so the bits are the same.
 *
 * A *run* is a sequence of ATTENDs that are one launch. It must end before an ATTEND that needs a round which itself
 * waits for the run, or for something behind the run in its queue: such a round overwrites a slot that the run reads,
 * or sends what the run makes. If rows are computed at home and a pass has as many `buffers` as stages, the whole pass
 * is one run.
 *
 * No deadlock, in whatever order CTAs begin. Let d be the first round that waits for a run.
 *   1. All rounds that the run waits for come before d: at an ATTEND that needs a later one, the run would have ended.
 *   2. A round waits only for earlier rounds, and for runs whose d is this round or an earlier one.
 *   3. So put the rounds in the order of their numbers, and each run right before its d. In this order everything waits
 *      for earlier things only.
 *   4. Within a run of a backward pass, CTAs take pieces in the order of the list, and wait for turns of earlier pieces
 *      only. So the first piece that is not done waits for flags and nothing else.
 */
#ifndef FCP_WORKLISTS_FUSE_H
#define FCP_WORKLISTS_FUSE_H
#include "runtime/exec/rank_memory.h"
#include "runtime/plan/instructions.h"

typedef struct fcp_fusion_run {
    uint32_t first, last; /* its first ATTEND and its last, as indices into the compute queue */
    uint32_t needs;       /* so many instructions of the communication queue bring what it reads */
    uint32_t holds;       /* so many of them must be complete before it begins; for others it waits by flags */
} fcp_fusion_run;
/* Finds the runs of a rank in a pass, in order; the caller frees *out_runs. FCP_E_NO_MEMORY. FCP_E_BACKEND: an ATTEND
 * waits for itself, or rounds are out of order, which no verified plan has. */
fcp_code fcp_fusion_runs(const fcp_plan *plan, fcp_pass pass, uint32_t rank, fcp_fusion_run **out_runs,
                         uint32_t *out_count, fcp_error *err);
/* The last round that a run waits for, by its number in the pass; FCP_NONE: it waits for none. */
uint32_t fcp_fusion_round(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_fusion_run *run);

/* What fusing a pass would give.
 *   launches       launches of the rank that has most of them; a run counts once for each range of heads
 *   state_tokens   forward: tokens whose running state one launch writes for a later one, plus tokens whose running
 *                  state is read, over all ranks */
typedef struct fcp_fusion_totals {
    uint64_t launches, state_tokens;
} fcp_fusion_totals;
fcp_code fcp_fusion_count(const fcp_plan *plan, fcp_pass pass, fcp_fusion_totals *out, fcp_error *err);

/* What the lists of a run need to know. */
typedef struct fcp_fusion {
    fcp_fusion_run run;
    uint32_t *visits;      /* those of its ATTENDs; those of a Q block together, in the order of the plan */
    uint32_t visit_count;
    uint32_t *kv, *q;      /* per transient slot of KV and Q: the flag that is set when it has all that is read of it */
    uint32_t homes;        /* slots below are home slots, whose tokens are there */
} fcp_fusion;

/* Flags of a communication queue are counted from 1. flag: that of the transfers of instruction `instr` over a fabric;
 * later instructions have higher flags. flags: how many the queue has. */
static inline uint32_t fcp_fusion_flag(uint32_t instr, unsigned fabric) { return instr * FCP_FABRICS + fabric + 1; }
static inline uint32_t fcp_fusion_flags(const fcp_stream *comm) { return comm->count * FCP_FABRICS; }

/* Finds visits and arrivals of a run. FCP_E_NO_MEMORY. */
fcp_code fcp_fusion_make(fcp_fusion *out, const fcp_arena *arena, const fcp_fusion_run *run, fcp_error *err);
void fcp_fusion_free(fcp_fusion *f);
/* The flag to wait for before a slot of KV, or of Q (backward with what comes with it), is read; 0: none. */
static inline uint32_t fcp_fusion_arrival(const fcp_fusion *f, const uint32_t *arrivals, uint32_t slot) {
    return slot < f->homes ? 0 : arrivals[slot - f->homes];
}
#endif
