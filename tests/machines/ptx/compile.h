/* compile.h: PTX of a source, by NVRTC, kept in the build's folder of kernels. */
#ifndef PTX_COMPILE_H
#define PTX_COMPILE_H
#include "runtime/fcp.h"

/* FCP_OK where NVRTC is there. */
fcp_code ptx_compiler(fcp_error *err);
/* The PTX of a source for "compute_80" or another; malloc'd. */
fcp_code ptx_compile(const char *source, const char *target, char **out_text, fcp_error *err);
#endif
