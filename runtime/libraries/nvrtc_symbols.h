/* nvrtc_symbols.h: the functions of NVRTC that are used, declared here so that no CUDA is needed to build. nvrtc.c
 * loads them; the libraries that stand in for NVRTC in tests define the same ones. */
#ifndef FCP_LIBRARIES_NVRTC_SYMBOLS_H
#define FCP_LIBRARIES_NVRTC_SYMBOLS_H
#include <stddef.h>

typedef struct nvrtc_program_ *nvrtc_program;
typedef int nvrtc_result; /* 0: success */
enum { NVRTC_DONE = 0, NVRTC_OUT_OF_MEMORY = 1, NVRTC_INTERNAL_ERROR = 11 };

/* X(symbol, type of the pointer) */
#define FCP_NVRTC_SYMBOLS(X)                                                                                           \
    X(nvrtcVersion, nvrtc_result (*version)(int *, int *))                                                             \
    X(nvrtcGetErrorString, const char *(*error)(nvrtc_result))                                                         \
    X(nvrtcCreateProgram, nvrtc_result (*create)(nvrtc_program *, const char *, const char *, int,                     \
                                                 const char *const *, const char *const *))                            \
    X(nvrtcDestroyProgram, nvrtc_result (*destroy)(nvrtc_program *))                                                   \
    X(nvrtcCompileProgram, nvrtc_result (*compile)(nvrtc_program, int, const char *const *))                           \
    X(nvrtcGetProgramLogSize, nvrtc_result (*log_size)(nvrtc_program, size_t *))                                       \
    X(nvrtcGetProgramLog, nvrtc_result (*log)(nvrtc_program, char *))                                                  \
    X(nvrtcGetCUBINSize, nvrtc_result (*cubin_size)(nvrtc_program, size_t *))                                          \
    X(nvrtcGetCUBIN, nvrtc_result (*cubin)(nvrtc_program, char *))

struct fcp_nvrtc_table {
#define X(name, type) type;
    FCP_NVRTC_SYMBOLS(X)
#undef X
};
#endif
