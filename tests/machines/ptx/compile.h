/* compile.h: compiles a source to PTX with NVRTC, and keeps the text in the build's folder of kernels. */
#ifndef PTX_COMPILE_H
#define PTX_COMPILE_H
#include "runtime/fcp.h"

/* FCP_OK: NVRTC can be loaded. */
fcp_code ptx_compiler(fcp_error *err);
/* Gives the PTX of a source for a target such as "compute_80"; malloc'd. */
fcp_code ptx_compile(const char *source, const char *target, char **out_text, fcp_error *err);
#endif
