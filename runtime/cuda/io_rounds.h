/* io_rounds.h: which rounds of a plan move inputs and outputs, and which outputs leave early. */
#ifndef FCP_CUDA_IO_ROUNDS_H
#define FCP_CUDA_IO_ROUNDS_H
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan.h"

/* Does a LAUNCH move inputs (FCP_IN) or outputs (FCP_OUT)? FCP_CLASSES: neither. */
fcp_class fcp_cuda_moved_by(const fcp_plan *plan, fcp_pass pass, const fcp_instr *launch);
/* Rounds [from, to) of a pass move outputs that are ready before its last stage: none, if the pass is fused. */
typedef struct cuda_early_rounds {
    uint32_t from, to;
} cuda_early_rounds;
cuda_early_rounds fcp_cuda_early_rounds(const fcp_plan *plan, fcp_pass pass, bool fused);
static inline bool fcp_cuda_is_early(const cuda_early_rounds *rounds, const fcp_instr *launch) {
    return launch->c >= rounds->from && launch->c < rounds->to;
}
#endif
