/* nvrtc.c: compiles CUDA source with NVRTC, and reads in the log what registers and memory each kernel takes.
 *
 * NVRTC's functions are declared in nvrtc_symbols.h rather than included, so that a machine without CUDA can build
 * this.
 *
 * Requires: a source without #include.
 * Cost:     60 to 1000 ms a compilation.
 */
#include "runtime/jit/nvrtc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/libraries/nvrtc_symbols.h"
#include "runtime/libraries/shared_library.h"

static const char *const symbols[] = {
#define X(name, type) #name,
    FCP_NVRTC_SYMBOLS(X)
#undef X
};
enum { SYMBOL_COUNT = sizeof symbols / sizeof *symbols };
_Static_assert(sizeof(struct fcp_nvrtc_table) == SYMBOL_COUNT * sizeof(void (*)(void)),
               "the table holds pointers and nothing else");

/* The names to look for, one list after the other: for a driver for CUDA 12, and otherwise. Within a list
 * fcp_library_load prefers what the process has loaded already. The lists of one name are for the case that the driver
 * has refused what came before. The last list has all names, so that an error says where NVRTC was looked for. */
#define ALL_NAMES                                                                                                      \
    { "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so" }
enum { LISTS = 5 };
static const char *const cuda_12_first[LISTS][4] = {
    {"libnvrtc.so.12"}, ALL_NAMES, {"libnvrtc.so"}, {"libnvrtc.so.13"}, ALL_NAMES};
static const char *const newest_first[LISTS][4] = {
    ALL_NAMES, {"libnvrtc.so.13"}, {"libnvrtc.so.12"}, {"libnvrtc.so"}, ALL_NAMES};

static fcp_code open_list(const char *const *names, fcp_nvrtc **out, fcp_error *err) {
    const fcp_library library = {"NVRTC", "FCP_NVRTC",  names,
                                 symbols, SYMBOL_COUNT, "install the CUDA toolkit 12 or later"};
    struct opened {
        fcp_nvrtc base;
        struct fcp_nvrtc_table table;
    } *o = calloc(1, sizeof *o);
    if (!o) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    void (*table[SYMBOL_COUNT])(void);
    fcp_code code = fcp_library_load(&library, table, &o->base.path, err);
    if (!code) {
        memcpy(&o->table, table, sizeof o->table);
        o->base.table = &o->table;
        if (o->table.version(&o->base.major, &o->base.minor) || o->base.major < 12)
            code = fcp_fail(err, FCP_E_BACKEND, "NVRTC in '%s' is version %d.%d; 12.0 or later is needed", o->base.path,
                            o->base.major, o->base.minor);
    }
    if (!code) *out = &o->base;
    else fcp_nvrtc_close(&o->base);
    return code;
}

fcp_code fcp_nvrtc_open(const fcp_nvrtc_choice *choice, fcp_nvrtc **out, fcp_error *err) {
    const fcp_nvrtc_choice any = {0}, *c = choice ? choice : &any;
    const char *const(*lists)[4] = c->cuda == 12 ? cuda_12_first : newest_first;
    fcp_code code = FCP_OK;
    for (int i = 0; i < LISTS; i++) {
        fcp_nvrtc *n = NULL;
        code = open_list(lists[i], &n, err);
        if (!code && c->refused & fcp_nvrtc_bit(n->major)) {
            code = fcp_fail(err, FCP_E_BACKEND,
                            "the driver refuses what NVRTC %d.%d in '%s' compiles, and there is no other", n->major,
                            n->minor, n->path);
            fcp_nvrtc_close(n);
            continue;
        }
        if (!code) *out = n;
        if (code != FCP_E_BACKEND) return code;
    }
    return code;
}

void fcp_nvrtc_close(fcp_nvrtc *n) {
    if (!n) return;
    free(n->path);
    free(n);
}

/* --- architectures ------------------------------------------------------------------------------------------------ */

fcp_code fcp_arch_check(const char *arch, fcp_error *err) {
    unsigned number = 0;
    size_t digits = 0;
    if (strncmp(arch, "sm_", 3) == 0)
        for (; arch[3 + digits] >= '0' && arch[3 + digits] <= '9' && digits < 4; digits++)
            number = number * 10 + (unsigned)(arch[3 + digits] - '0');
    char suffix = digits ? arch[3 + digits] : '?';
    bool shaped = digits >= 2 && (!suffix || ((suffix == 'a' || suffix == 'f') && !arch[4 + digits]));
    if (!shaped) return fcp_fail(err, FCP_E_ARCH, "'%.40s' is not an architecture; sm_80, sm_90a and sm_100 are", arch);
    if (number < 80)
        return fcp_fail(err, FCP_E_ARCH, "%s is not supported: the kernels need sm_80 (Ampere) or later", arch);
    return FCP_OK;
}

/* --- what ptxas says ---------------------------------------------------------------------------------------------- */

/* The number that stands before `what` in a line, as the 40 in "Used 40 registers"; 0 if there is none. */
static uint32_t number_before(const char *line, const char *what) {
    const char *at = strstr(line, what);
    if (!at) return 0;
    while (at > line && at[-1] == ' ') at--;
    const char *begin = at;
    while (begin > line && begin[-1] >= '0' && begin[-1] <= '9') begin--;
    return begin < at ? (uint32_t)strtoul(begin, NULL, 10) : 0;
}

/* Fills c->kernels from the log. For each kernel ptxas prints a line "Compiling entry function 'f' for 'sm_80'", then
 * one with its stack and spills, then one with its registers, barriers and shared memory. */
static void read_costs(fcp_cubin *c) {
    char *line = c->log;
    fcp_kernel_cost *k = NULL;
    while (line && *line) {
        char *end = strchr(line, '\n');
        if (end) *end = 0;
        const char *entry = strstr(line, "Compiling entry function '");
        if (entry && c->kernel_count < FCP_KERNELS_MAX) {
            k = &c->kernels[c->kernel_count++];
            *k = (fcp_kernel_cost){0};
            entry = strchr(entry, '\'') + 1;
            size_t size = strcspn(entry, "'");
            if (size >= sizeof k->name) size = sizeof k->name - 1;
            memcpy(k->name, entry, size);
        }
        if (k && strstr(line, "bytes spill")) {
            k->stack = number_before(line, "bytes stack frame");
            k->spill_stores = number_before(line, "bytes spill stores");
            k->spill_loads = number_before(line, "bytes spill loads");
        }
        if (k && strstr(line, " registers")) {
            k->registers = number_before(line, "registers");
            k->barriers = number_before(line, "barriers");
            k->shared = number_before(line, "bytes smem");
        }
        for (const char *at = line; (at = strstr(at, "C75")) != NULL; at += 3)
            if (at[3] >= '0' && at[3] <= '9') c->notes++;
        if (end) *end = '\n';
        line = end ? end + 1 : NULL;
    }
}

/* --- compiling ---------------------------------------------------------------------------------------------------- */

enum { OPTIONS_MAX = 24, OWN_OPTIONS = 4 };

/* The log of a compilation; malloc'd, "" if it is empty. NULL: out of memory. */
static char *read_log(const struct fcp_nvrtc_table *t, nvrtc_program program) {
    size_t size = 0;
    if (t->log_size(program, &size) || size == 0) size = 1;
    char *log = calloc(size + 1, 1);
    if (log && size > 1) t->log(program, log);
    return log;
}

/* Words the error of a failed compilation: with the first line of the log that has an error in it, else with NVRTC's
 * text. */
static fcp_code compile_failed(const fcp_nvrtc *n, int result, const char *arch, fcp_cubin *out, fcp_error *err) {
    const char *first = out->log ? strstr(out->log, "error") : NULL;
    size_t back = 0;
    while (first && first - back > out->log && first[-(ptrdiff_t)back - 1] != '\n') back++;
    if (!first) return fcp_fail(err, FCP_E_COMPILE, "NVRTC does not compile for %s: %s", arch, n->table->error(result));
    return fcp_fail(err, FCP_E_COMPILE, "NVRTC does not compile for %s: %.*s", arch, (int)strcspn(first - back, "\n"),
                    first - back);
}

fcp_code fcp_nvrtc_compile(const fcp_nvrtc *n, const char *name, const char *source, const char *arch,
                           const char *const *options, fcp_cubin *out, fcp_error *err) {
    const struct fcp_nvrtc_table *t = n->table;
    *out = (fcp_cubin){0};
    fcp_code code = fcp_arch_check(arch, err);
    if (code) return code;
    char target[64];
    snprintf(target, sizeof target, "--gpu-architecture=%s", arch);
    const char *all[OPTIONS_MAX] = {target, "--std=c++17", "--ptxas-options=--verbose",
                                    "--ptxas-options=--warn-on-spills"};
    int count = OWN_OPTIONS;
    for (; options && options[count - OWN_OPTIONS]; count++) {
        if (count == OPTIONS_MAX)
            return fcp_fail(err, FCP_E_COMPILE, "more than %d options for NVRTC", OPTIONS_MAX - OWN_OPTIONS);
        all[count] = options[count - OWN_OPTIONS];
    }
    nvrtc_program program = NULL;
    int result = t->create(&program, source, name, 0, NULL, NULL);
    if (result) return fcp_fail(err, FCP_E_COMPILE, "NVRTC makes no program: %s", t->error(result));
    result = t->compile(program, count, all);
    out->log = read_log(t, program);
    if (!out->log) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for NVRTC's log");
    if (!code && result) code = compile_failed(n, result, arch, out, err);
    if (!code && (result = t->cubin_size(program, &out->size)))
        code = fcp_fail(err, FCP_E_COMPILE, "NVRTC has no cubin: %s", t->error(result));
    if (!code && !(out->bytes = malloc(out->size ? out->size : 1)))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a cubin of %zu bytes", out->size);
    if (!code && (result = t->cubin(program, out->bytes)))
        code = fcp_fail(err, FCP_E_COMPILE, "NVRTC has no cubin: %s", t->error(result));
    if (!code) read_costs(out);
    t->destroy(&program);
    return code;
}

void fcp_cubin_free(fcp_cubin *cubin) {
    free(cubin->bytes);
    free(cubin->log);
    *cubin = (fcp_cubin){0};
}
