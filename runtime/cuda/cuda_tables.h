/* cuda_tables.h: tables that a run brings, and their gradients. */
#ifndef FCP_CUDA_CUDA_TABLES_H
#define FCP_CUDA_CUDA_TABLES_H
#include "runtime/cuda/cuda_parts.h"

/* Finds out whether a run wants gradients of tables, and whether they can be had. Takes memory for them in the first
 * such run. Another device may be current afterwards. */
fcp_code fcp_cuda_tables_check(fcp_cuda_session *s, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err);
/* Puts a run's own tables where kernels read them; if it has none, those of the plan. Clears the sums of gradients. */
fcp_code fcp_cuda_tables_in(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);
/* Behind a backward pass: the gradients of those ranks whose callers want them. */
fcp_code fcp_cuda_tables_out(fcp_cuda_session *s, const fcp_tensors *tensors, fcp_error *err);
#endif
