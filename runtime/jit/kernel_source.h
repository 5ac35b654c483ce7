/* kernel_source.h: prints the CUDA source of a plan's kernels.
 *
 * The text depends on the plan's mask, score, model and passes. Of the batch it depends only on how wide positions
 * are: two batches whose longest sequences both have up to 64 K tokens (or up to 1 M, 16 M, ...) have the same text,
 * and so the same compiled kernels.
 */
#ifndef FCP_JIT_KERNEL_SOURCE_H
#define FCP_JIT_KERNEL_SOURCE_H
#include "codegen/source.h"
#include "runtime/fcp.h"

/* Checks that there are kernels for the plan's model. FCP_E_TENSOR: its tensors are fp32; FCP_E_HEADS: no kernel has
 * its head_dim. */
fcp_code fcp_kernel_check(const fcp_plan *plan, fcp_error *err);
/* Prints the source of the kernels that `skeletons` names (EMIT_*, at least one). fused: for passes in which several
 * ATTENDs are one launch (fuse.h): forward, and backward if that is one kernel. *out_text is NUL-terminated and
 * malloc'd, and the caller frees it. Errors are those of fcp_kernel_check, and
 *   FCP_E_HEADS         a skeleton does not have this head_dim
 *   FCP_E_PASS          a skeleton is of a pass that the plan does not have
 *   FCP_E_PLAN_SIZE     a sequence has more than 2^40 tokens
 *   FCP_E_PLAN_FORMAT   the mask code is invalid, which cannot happen with a loaded plan
 *   FCP_E_NO_MEMORY
 */
fcp_code fcp_kernel_source(const fcp_plan *plan, unsigned skeletons, bool fused, char **out_text, fcp_error *err);
/* The same for the kernels of layers that recur (EMIT_RECURRENT), which no plan changes. FCP_E_NO_MEMORY. */
fcp_code fcp_kernel_source_recurrent(char **out_text, fcp_error *err);
/* How many sums the gradients of the plan's tables have (EMIT_TABLES, fk_launch_tables): one for each number of all
 * tables. 0: the plan has no backward pass, or its score reads no tables or is too large for that. */
uint64_t fcp_kernel_sums(const fcp_plan *plan);
#endif
