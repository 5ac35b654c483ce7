/* cuda_driver.c: loads the CUDA driver and words its errors. Cost: some milliseconds; no context is created. */
#include "runtime/libraries/cuda_driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/libraries/shared_library.h"

enum { OLDEST = 12000 };

static const char *const symbols[] = {
#define X(name, type) #name,
    FCP_CUDA_SYMBOLS(X)
    FCP_CUDA_OPTIONAL(X)
    FCP_CUDA_RENAMED(X)
    "cuEventElapsedTime",
#undef X
};
#define X(name, type) +1
enum { SYMBOL_COUNT = sizeof symbols / sizeof *symbols, OPTIONAL_COUNT = 1 FCP_CUDA_OPTIONAL(X) FCP_CUDA_RENAMED(X) };
#undef X
_Static_assert(sizeof(cu_resource) == 144, "the size that the driver writes");
_Static_assert(sizeof(fcp_cuda_table) == SYMBOL_COUNT * sizeof(void (*)(void)),
               "the table holds pointers and nothing else");

static const char *const names[] = {"libcuda.so.1", "libcuda.so", NULL};
static const fcp_library library = {"the CUDA driver", "FCP_CUDA_DRIVER", names, symbols, SYMBOL_COUNT,
                                    "install NVIDIA's driver 525 or later on a machine with a GPU, or use "
                                    "--backend host",
                                    .optional = OPTIONAL_COUNT};

fcp_code fcp_cuda_check(const fcp_cuda *cuda, cu_result result, fcp_error *err, const char *what, ...) {
    if (result == CU_SUCCESS) return FCP_OK;
    const char *name = NULL, *text = NULL;
    char doing[300];
    va_list args;
    va_start(args, what);
    vsnprintf(doing, sizeof doing, what, args);
    va_end(args);
    if (cuda->call.error_name(result, &name) || !name) name = "an unknown error";
    if (cuda->call.error_text(result, &text) || !text) text = "no text";
    return fcp_fail(err, result == CU_ERROR_OUT_OF_MEMORY ? FCP_E_NO_MEMORY : FCP_E_RUN, "%s: %s (%d): %s", doing, name,
                    result, text);
}

fcp_code fcp_cuda_open(fcp_cuda **out_cuda, fcp_error *err) {
    fcp_cuda *c = calloc(1, sizeof *c);
    if (!c) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    void (*table[SYMBOL_COUNT])(void);
    fcp_code code = fcp_library_load(&library, table, &c->path, err);
    if (!code) {
        memcpy(&c->call, table, sizeof c->call);
        if (!c->call.event_elapsed) c->call.event_elapsed = c->call.event_elapsed_first;
        if (c->call.version(&c->version) || c->version < OLDEST)
            code = fcp_fail(err, FCP_E_BACKEND, "the CUDA driver in '%s' is for CUDA %d.%d; %d.%d or later is needed",
                            c->path, c->version / 1000, c->version % 1000 / 10, OLDEST / 1000, OLDEST % 1000 / 10);
    }
    /* The driver has 8 queues to a device if nobody says otherwise, and streams that share one wait for each other. A
     * process with several ranks has more streams. The variable is read when the driver starts. */
    if (!code) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
    if (!code && (code = fcp_cuda_check(c, c->call.init(0), err, "the CUDA driver in '%s' does not start", c->path)))
        code = FCP_E_BACKEND;
    if (!code &&
        (code = fcp_cuda_check(c, c->call.device_count(&c->devices), err, "the CUDA driver counts no devices")))
        code = FCP_E_BACKEND;
    if (!code && c->devices < 1)
        code = fcp_fail(err, FCP_E_BACKEND, "the CUDA driver in '%s' sees no device; use --backend host", c->path);
    if (err && code) err->code = code;
    if (!code) *out_cuda = c;
    else fcp_cuda_close(c);
    return code;
}

void fcp_cuda_close(fcp_cuda *cuda) {
    if (!cuda) return;
    free(cuda->path);
    free(cuda);
}
