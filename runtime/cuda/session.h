/* session.h: sessions on the CUDA devices of this process. */
#ifndef FCP_CUDA_SESSION_H
#define FCP_CUDA_SESSION_H
#include "runtime/exec/session.h"

/* "cuda". Errors of creating one, all before anything runs: FCP_E_BACKEND: no driver, no device, no NVRTC, a device too old;
 * FCP_E_TENSOR, FCP_E_HEADS: a plan there are no kernels for; FCP_E_NO_MEMORY: with what is needed and what there is;
 * FCP_E_COMPILE; FCP_E_RUN: the driver refuses. */
extern const fcp_session_kind fcp_session_cuda;
#endif
