/* fuse.h: which ATTENDs of a rank are one launch in a pass, and when what they read arrives.
 *
 *   by stages    round 0 | ATTEND 0, round 1 | ATTEND 1, round 2 | ATTEND 2       a launch for each ATTEND
 *   fused        round 0 | round 1 | round 2                                      one launch, which begins at once
 *
 * Each round sets a flag when what it brings is there, and a block waits for the flag before it reads that. So no stage
 * has blocks that wait for the stage's last one. Forward, a launch has one item for each row of cells, with the keys of
 * all its ATTENDs, and the running state of a row stays in registers. Backward, its list is those of its ATTENDs, one
 * behind the other. So sums get what they get by stages, in the same order, and have the same bits.
 *
 * A *run* is a sequence of ATTENDs that are one launch. It ends where an ATTEND needs a round that waits for the run
 * itself, directly or for anything behind it in its queue: because that round takes a slot that the run reads, or sends
 * what the run makes. If rows are computed at home and a pass has as many `buffers` as stages, the pass is one run.
 *
 * Nothing waits in a circle, whatever order blocks begin in. Let d be the first round that waits for a run. All rounds
 * that the run waits for are before d: that is what ends a run. A round waits for earlier rounds, and for runs whose d
 * it is or has passed. So rounds in the order of their numbers, with each run right before its d, are an order in
 * which everything waits for earlier things only. Within a run, blocks of a backward pass take pieces in the order of
 * the list, and wait for turns of earlier pieces alone: the first piece that is not done waits for flags and nothing
 * else.
 */
#ifndef FCP_KERNELS_FUSE_H
#define FCP_KERNELS_FUSE_H
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

/* What a pass of all ranks comes to if it is fused. launches: of the rank that has most, a run being one for each range
 * of heads; state_tokens: forward, of Q blocks whose running state a launch writes for a later one, and of those that
 * read it. */
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

/* The flag of the transfers over a fabric of instruction i of a communication queue, counted from 1; and how many flags
 * such a queue has. Later instructions have higher flags. */
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
