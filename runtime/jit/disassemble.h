/* disassemble.h: the machine code of a cubin as text, by nvdisasm of the CUDA toolkit, which is looked for when it is
 * needed. No GPU is needed. */
#ifndef FCP_JIT_DISASSEMBLE_H
#define FCP_JIT_DISASSEMBLE_H
#include "runtime/fcp.h"

/* Gives the listing of `nvdisasm -c -gi`: the code alone, with the source line of each instruction if the cubin was
 * compiled with --generate-line-info. *out is malloc'd, and the caller frees it.
 *
 * nvdisasm is the file that the variable FCP_NVDISASM names. Without that variable these places are searched: the
 * folders of PATH; bin of CUDA_HOME and of /usr/local/cuda; the folder bin beside that of NVRTC, where Python's
 * packages have it. Errors:
 *   FCP_E_BACKEND     nvdisasm is nowhere; the error lists the places
 *   FCP_E_LISTING     it failed; the error has the first line that it said
 *   FCP_E_WRITE       the temporary file or the pipe to nvdisasm cannot be made
 *   FCP_E_NO_MEMORY
 */
fcp_code fcp_disassemble(const void *cubin, size_t size, char **out, fcp_error *err);
/* Looks for nvdisasm in the same places, and gives its file. FCP_E_BACKEND: it is nowhere. */
enum { FCP_DISASSEMBLER_PATH = 512 };
fcp_code fcp_disassembler_find(char out[FCP_DISASSEMBLER_PATH], fcp_error *err);
#endif
