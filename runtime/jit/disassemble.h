/* disassemble.h: the machine code of a cubin as text, by nvdisasm of the CUDA toolkit, which is looked for when it is
 * needed. No GPU is needed. */
#ifndef FCP_JIT_DISASSEMBLE_H
#define FCP_JIT_DISASSEMBLE_H
#include "runtime/fcp.h"

/* Gives the listing of `nvdisasm -c -gi`: the code alone, with the source line of each instruction if the cubin was
 * compiled with --generate-line-info. *out is malloc'd, and the caller frees it. nvdisasm is the file that FCP_NVDISASM
 * names; without that variable it is looked for in the folders of PATH, in bin of CUDA_HOME and of /usr/local/cuda, and
 * in the folder bin beside that of NVRTC, where Python's packages have it. FCP_E_BACKEND: it is nowhere, and the error
 * lists the places. FCP_E_LISTING: it failed, and the error has the first line that it said. FCP_E_WRITE,
 * FCP_E_NO_MEMORY. */
fcp_code fcp_disassemble(const void *cubin, size_t size, char **out, fcp_error *err);
#endif
