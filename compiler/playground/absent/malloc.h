/* malloc.h: Emscripten's own, with the names of two settings of glibc's mallopt, which Emscripten's refuses. */
#ifndef FCPC_PLAYGROUND_MALLOC_H
#define FCPC_PLAYGROUND_MALLOC_H
#include_next <malloc.h>

enum { M_ARENA_MAX = -8, M_TOP_PAD = -2 };
#endif
