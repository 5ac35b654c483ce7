/* cuda_session.h: sessions on the CUDA devices of this process. */
#ifndef FCP_CUDA_CUDA_SESSION_H
#define FCP_CUDA_CUDA_SESSION_H
#include "runtime/exec/session.h"

/* The kind "cuda". Creating a session can fail with these errors, all before anything runs:
 *   FCP_E_BACKEND               there is no driver, no device or no NVRTC
 *   FCP_E_ARCH                  a device is too old
 *   FCP_E_TENSOR, FCP_E_HEADS   there are no kernels for the plan
 *   FCP_E_NO_MEMORY             the message says what is needed and what there is
 *   FCP_E_COMPILE               NVRTC refuses a kernel
 *   FCP_E_RUN                   the driver refuses something */
extern const fcp_session_kind fcp_session_cuda;
#endif
