/* nvrtc.c: a compiler that stands in for NVRTC beside the stand-in driver. Its cubin is the source itself, in
 * which tests/machines/standin/launches.c finds the names of the kernels, and a last line that says its major version.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/standin/nvrtc_own.h"

#ifndef NVRTC_MAJOR
#define NVRTC_MAJOR 12
#endif
enum { LAST_LINE = 20 };

typedef struct nvrtc_program_ {
    char *text;
} program;

long *standin_compilations(void);

/* How many programs were compiled, by all threads: read it when none compiles. */
long *standin_compilations(void) {
    static long count;
    return &count;
}
int nvrtcVersion(int *major, int *minor) {
    *major = NVRTC_MAJOR;
    *minor = 0;
    return 0;
}
const char *nvrtcGetErrorString(int code) { return code ? "an error" : "no error"; }
int nvrtcCreateProgram(program **out, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
    (void)name, (void)count, (void)headers, (void)names;
    *out = calloc(1, sizeof **out);
    if (*out) (*out)->text = strdup(source);
    return *out && (*out)->text ? NVRTC_DONE : NVRTC_OUT_OF_MEMORY;
}
int nvrtcDestroyProgram(program **p) {
    free((*p)->text);
    free(*p);
    return 0;
}
int nvrtcCompileProgram(program *p, int count, const char *const *options) {
    (void)p, (void)count, (void)options;
    __atomic_fetch_add(standin_compilations(), 1, __ATOMIC_RELAXED);
    return 0;
}
int nvrtcGetProgramLogSize(program *p, size_t *out) {
    (void)p;
    *out = 1;
    return 0;
}
int nvrtcGetProgramLog(program *p, char *out) {
    (void)p;
    *out = 0;
    return 0;
}
int nvrtcGetCUBINSize(program *p, size_t *out) {
    *out = strlen(p->text) + LAST_LINE;
    return 0;
}
int nvrtcGetCUBIN(program *p, char *out) {
    snprintf(out, strlen(p->text) + LAST_LINE, "%s\n// NVRTC %d\n", p->text, NVRTC_MAJOR);
    return 0;
}
