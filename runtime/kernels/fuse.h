/* fuse.h: whether the forward pass of a rank can be one launch, and when the keys that it reads arrive.
 *
 *   by stages    round 0 | ATTEND 0, round 1 | ATTEND 1, round 2 | ATTEND 2       a launch for each ATTEND
 *   as a pass    round 0 | round 1 | round 2                                      one launch, which begins at once
 *
 * The launch has one item for each row of cells, with the keys of all stages. So the running state of a row stays in
 * registers, and no stage has blocks that wait for the stage's last one. Each round sets a flag when what it brings is
 * there, and a block waits for the flag of a run of keys before it reads them.
 *
 * Nothing waits in a circle, whatever order blocks begin in: blocks wait for rounds alone, and a pass can only be fused
 * if no round waits for computing. That needs slots that nothing is received into twice, and so as many `buffers` as
 * the pass has stages.
 */
#ifndef FCP_KERNELS_FUSE_H
#define FCP_KERNELS_FUSE_H
#include "runtime/exec/arena.h"

typedef struct fcp_fusion {
    uint32_t *visits;   /* all of the rank's forward pass; those of a Q block together, in the order of the plan */
    uint32_t visit_count;
    uint32_t *arrivals; /* per transient KV slot: the flag that is set when it has all that is read of it */
    uint32_t homes;     /* slots below are home slots, whose keys are there */
} fcp_fusion;

/* The flag of the transfers over a fabric of instruction i of a communication queue, counted from 1; and how many flags
 * such a queue has. Later instructions have higher flags. */
static inline uint32_t fcp_fusion_flag(uint32_t instr, unsigned fabric) { return instr * FCP_FABRICS + fabric + 1; }
static inline uint32_t fcp_fusion_flags(const fcp_stream *comm) { return comm->count * FCP_FABRICS; }

/* Whether the forward pass of a rank can be one launch. FCP_E_BACKEND: the message says what is in the way: the rank
 * computes rows of other ranks, or its rounds wait for computing. */
fcp_code fcp_fusion_check(const fcp_plan *plan, uint32_t rank, fcp_error *err);
/* The same for all ranks: the message is about the first that cannot. */
fcp_code fcp_fusion_check_plan(const fcp_plan *plan, fcp_error *err);
/* Finds visits and arrivals of a rank that has passed the check. FCP_E_NO_MEMORY. */
fcp_code fcp_fusion_make(fcp_fusion *out, const fcp_arena *arena, fcp_error *err);
void fcp_fusion_free(fcp_fusion *f);
/* The flag to wait for before a KV slot is read; 0: none. */
static inline uint32_t fcp_fusion_arrival(const fcp_fusion *f, uint32_t slot) {
    return slot < f->homes ? 0 : f->arrivals[slot - f->homes];
}
#endif
