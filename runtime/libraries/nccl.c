/* nccl.c: loads NCCL and words its errors. Cost: the library has some hundred megabytes, up to a second from a cold
 * disk. */
#include "runtime/libraries/nccl.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/libraries/shared_library.h"

static const char *const symbols[] = {
#define X(name, type) #name,
    FCP_NCCL_SYMBOLS(X)
#undef X
};
enum { SYMBOL_COUNT = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof(fcp_nccl_table) == SYMBOL_COUNT * sizeof(void (*)(void)),
               "the table holds pointers and nothing else");
_Static_assert(sizeof(nccl_config) == 48, "the size of NCCL's structure");

static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
static const fcp_library library = {"NCCL", "FCP_NCCL", names, symbols, SYMBOL_COUNT,
                                    "install NCCL 2.19 or later, or use --transport local"};

fcp_code fcp_nccl_check(const fcp_nccl *nccl, nccl_result result, nccl_comm comm, fcp_error *err, const char *what,
                        ...) {
    if (result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS) return FCP_OK;
    char doing[200];
    va_list args;
    va_start(args, what);
    vsnprintf(doing, sizeof doing, what, args);
    va_end(args);
    const char *text = nccl->call.error_text(result), *last = nccl->call.last_error(comm);
    return fcp_fail(err, FCP_E_RUN, "%s: NCCL: %s (%d)%s%.180s", doing, text ? text : "no text", result,
                    last && *last ? ": " : "", last ? last : "");
}

fcp_code fcp_nccl_open(fcp_nccl **out_nccl, fcp_error *err) {
    fcp_nccl *n = calloc(1, sizeof *n);
    if (!n) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    void (*table[SYMBOL_COUNT])(void);
    fcp_code code = fcp_library_load(&library, table, &n->path, err);
    if (!code) {
        memcpy(&n->call, table, sizeof n->call);
        if (n->call.version(&n->version))
            code = fcp_fail(err, FCP_E_BACKEND, "NCCL in '%s' does not say its version", n->path);
        else if (n->version < NCCL_OLDEST)
            code =
                fcp_fail(err, FCP_E_BACKEND, "NCCL in '%s' is version %d.%d; %d.%d or later is needed", n->path,
                         n->version / 10000, n->version % 10000 / 100, NCCL_OLDEST / 10000, NCCL_OLDEST % 10000 / 100);
    }
    if (!code) *out_nccl = n;
    else fcp_nccl_close(n);
    return code;
}

void fcp_nccl_close(fcp_nccl *nccl) {
    if (!nccl) return;
    free(nccl->path);
    free(nccl);
}
