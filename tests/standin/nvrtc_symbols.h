/* nvrtc_symbols.h: NVRTC's symbols, for libraries that have them; each has a struct program of its own. */
#ifndef STANDIN_NVRTC_SYMBOLS_H
#define STANDIN_NVRTC_SYMBOLS_H
#include <stddef.h>

typedef struct program program;
int nvrtcVersion(int *major, int *minor);
const char *nvrtcGetErrorString(int code);
int nvrtcCreateProgram(program **out, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names);
int nvrtcDestroyProgram(program **p);
int nvrtcCompileProgram(program *p, int count, const char *const *options);
int nvrtcGetProgramLogSize(program *p, size_t *out);
int nvrtcGetProgramLog(program *p, char *out);
int nvrtcGetCUBINSize(program *p, size_t *out);
int nvrtcGetCUBIN(program *p, char *out);
#endif
