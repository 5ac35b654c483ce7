/* shared_library.h: loads a library such as NVRTC when it is first needed, and finds the functions of it that are used.
 *
 * The functions become a table of pointers, in the order of their names. The library is looked for in this order:
 *   1. If its environment variable names a file: that file, and nothing else.
 *   2. Only for libraries of the CUDA toolkit: what the process has loaded already under one of its file names.
 *   3. Its file names, as the dynamic loader finds them.
 *   4. Only for libraries of the CUDA toolkit: its file names in the usual folders of the toolkit.
 * If it is nowhere, the error lists the places. If a file is there and cannot be loaded, the error is what the dynamic
 * loader says.
 */
#ifndef FCP_LIBRARIES_SHARED_LIBRARY_H
#define FCP_LIBRARIES_SHARED_LIBRARY_H
#include "runtime/fcp.h"

typedef struct fcp_library {
    const char *what;          /* "NVRTC", for messages */
    const char *variable;      /* environment variable that names the file */
    const char *const *names;  /* file names, newest first; NULL ends */
    const char *const *symbols; /* names of the functions */
    size_t count;              /* how many symbols there are */
    const char *remedy;        /* what the user can do; it ends the sentence of the error */
    size_t optional;           /* so many of the last symbols may be missing; their pointers are then NULL */
    bool global;               /* libraries that it loads later may use its symbols (RTLD_GLOBAL) */
    bool installed;            /* it is no part of the CUDA toolkit: the folders of the toolkit are not searched */
} fcp_library;

/* Fills `table`, `count` pointers, and *out_path, the name of the file that was loaded (malloc'd, the caller frees
 * it). The library is never unloaded. FCP_E_BACKEND: it was not found, or lacks a symbol. */
fcp_code fcp_library_load(const fcp_library *library, void (**table)(void), char **out_path, fcp_error *err);
#endif
