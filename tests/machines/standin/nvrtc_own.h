/* nvrtc_own.h: NVRTC's functions, declared for a library that defines them itself. The table below makes the compiler
 * check that they have the types that nvrtc_symbols.h says.
 */
#ifndef NVRTC_OWN_H
#define NVRTC_OWN_H
#include "runtime/libraries/nvrtc_symbols.h"

nvrtc_result nvrtcVersion(int *major, int *minor);
const char *nvrtcGetErrorString(nvrtc_result code);
nvrtc_result nvrtcCreateProgram(nvrtc_program *out, const char *source, const char *name, int count,
                                const char *const *headers, const char *const *names);
nvrtc_result nvrtcDestroyProgram(nvrtc_program *p);
nvrtc_result nvrtcCompileProgram(nvrtc_program p, int count, const char *const *options);
nvrtc_result nvrtcGetProgramLogSize(nvrtc_program p, size_t *out);
nvrtc_result nvrtcGetProgramLog(nvrtc_program p, char *out);
nvrtc_result nvrtcGetCUBINSize(nvrtc_program p, size_t *out);
nvrtc_result nvrtcGetCUBIN(nvrtc_program p, char *out);

static const struct fcp_nvrtc_table nvrtc_own __attribute__((unused)) = {
#define X(symbol, type) symbol,
    FCP_NVRTC_SYMBOLS(X)
#undef X
};
#endif
