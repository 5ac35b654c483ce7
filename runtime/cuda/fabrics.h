/* fabrics.h: transfers over net beside those over local, each fabric in a stream of its own. */
#ifndef FCP_CUDA_FABRICS_H
#define FCP_CUDA_FABRICS_H
#include "runtime/cuda/parts.h"

/* Has the plan ranks of one node, and more than one node? */
bool fcp_cuda_two_fabrics(const fcp_plan *plan);
/* The stream of a rank's transfers over a fabric. */
cu_stream fcp_cuda_fabric_stream(const cuda_rank *rank, unsigned fabric);
/* What a fabric's stream must wait for in the other one's: out[i * FCP_FABRICS + f] is a number of instructions of the
 * rank's communication queue, whose transfers over the other fabric must have ended before instruction i may begin its
 * transfers over f; 0: none, or none that an earlier instruction did not wait for. malloc'd; NULL: out of memory. */
uint32_t *fcp_cuda_across(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_arena *arena);
#endif
