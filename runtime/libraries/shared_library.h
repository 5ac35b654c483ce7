/* shared_library.h: a library that is loaded when first needed, with the symbols that are used of it.
 *
 * A library is one table: pointers to functions, in the order of the names. Loading tries, in order: the file that the
 * environment variable names (and then nothing else); the names, as the loader finds them; the names in the usual
 * folders of the CUDA toolkit. What was tried is in the error.
 */
#ifndef FCP_LIBRARIES_SHARED_LIBRARY_H
#define FCP_LIBRARIES_SHARED_LIBRARY_H
#include "runtime/fcp.h"

typedef struct fcp_library {
    const char *what;          /* "NVRTC", for messages */
    const char *variable;      /* environment variable that names the file */
    const char *const *names;  /* file names, newest first; NULL ends */
    const char *const *symbols;
    size_t count;
    const char *remedy;        /* what would do: the rest of a sentence */
    size_t optional;           /* the last `optional` symbols may be missing: NULL in the table */
    bool global;               /* its symbols are for libraries that it loads itself, too */
    bool installed;            /* it is not of the CUDA toolkit, whose folders are not looked into */
} fcp_library;

/* Fills `table` (count pointers) and *out_path (malloc'd, caller frees: the file that was loaded). The library stays
 * loaded. FCP_E_BACKEND: it is not there, or lacks a symbol. */
fcp_code fcp_library_load(const fcp_library *library, void (**table)(void), char **out_path, fcp_error *err);
#endif
