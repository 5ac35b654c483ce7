/* io_rounds.c: which rounds of a plan move inputs and outputs, and which outputs are sent early.
 *
 * Cost:     linear in the rounds, or in a rank's instructions.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/plan_summary.h"

fcp_class fcp_cuda_moved_by(const fcp_plan *plan, fcp_pass pass, const fcp_instr *launch) {
    uint32_t kind = plan->rounds[plan->round_starts[pass] + launch->c].kind;
    return kind == FCP_ROUND_IN ? FCP_IN : kind == FCP_ROUND_OUT ? FCP_OUT : FCP_CLASSES;
}

cuda_early_rounds fcp_cuda_early_rounds(const fcp_plan *plan, fcp_pass pass, bool fused) {
    const fcp_round *rounds = plan->rounds + plan->round_starts[pass];
    uint32_t count = plan->round_starts[pass + 1] - plan->round_starts[pass], from = count;
    uint64_t stages = pass == FCP_FORWARD ? plan->summary->stages : plan->summary->backward_stages;
    while (from && rounds[from - 1].kind == FCP_ROUND_OUT) from--;
    uint32_t to = from;
    while (!fused && to < count && rounds[to].stage < stages) to++;
    return (cuda_early_rounds){from, to};
}
