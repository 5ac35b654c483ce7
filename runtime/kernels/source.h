/* source.h: the CUDA source of a plan's kernels.
 *
 * It depends on the mask, the score, the model and the passes, and on the batch only by how wide positions are: batches
 * of up to 64 K, 1 M, 16 M, ... tokens a sequence have the same text.
 */
#ifndef FCP_KERNELS_SOURCE_H
#define FCP_KERNELS_SOURCE_H
#include "codegen/source.h"
#include "runtime/plan/plan.h"

/* Are there kernels for the plan's model? FCP_E_TENSOR: its tensors are fp32; FCP_E_HEADS: no skeleton has its head_dim. */
fcp_code fcp_kernel_check(const fcp_plan *plan, fcp_error *err);
/* The source of skeletons (EMIT_*, at least one), NUL-terminated, malloc'd. Errors: as above; FCP_E_HEADS: a skeleton that
 * has not this head_dim; FCP_E_PASS: one of a pass that the plan does not have; FCP_E_PLAN_SIZE: a sequence of more
 * than 2^40 tokens; FCP_E_PLAN_FORMAT: mask code that does not check, which no loaded plan has; FCP_E_NO_MEMORY. */
fcp_code fcp_kernel_source(const fcp_plan *plan, unsigned skeletons, char **out_text, fcp_error *err);
#endif
