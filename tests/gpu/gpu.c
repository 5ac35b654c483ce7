/* gpu.c: what the steps of gpu-check share: the driver, plans made from texts, rows and facts (gpu.h). */
#define _GNU_SOURCE
#include "tests/gpu/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "compiler/fcpc.h"
#include "runtime/base/clock.h"

const char *const gpu_result_names[4] = {"ok", "FAILED", "skipped", "later"};

double gpu_left(const gpu *g) { return g->deadline - fcp_clock(); }

bool gpu_injected(const gpu *g, const char *what, const char *name) {
    size_t length = strlen(what);
    return g->inject && strncmp(g->inject, what, length) == 0 && g->inject[length] == ':' &&
           strcmp(g->inject + length + 1, name) == 0;
}

bool gpu_ok(const gpu *g, cu_result result, char why[GPU_WHY], const char *what) {
    fcp_error err;
    if (result == CU_SUCCESS) return true;
    fcp_cuda_check(g->cuda, result, &err, "%s", what);
    snprintf(why, GPU_WHY, "%.390s", err.message);
    return false;
}

/* --- the driver --------------------------------------------------------------------------------------------------- */

static void find(void *handle, const char *name, void *slot) {
    void *symbol = handle ? dlsym(handle, name) : NULL;
    memcpy(slot, &symbol, sizeof symbol); /* POSIX: an object pointer from dlsym is a function's */
}

/* A stand-in driver is recognised by the symbol with which tests control it. */
static void look_beyond(gpu *g) {
    void *handle = dlopen(g->cuda->path, RTLD_NOW | RTLD_LOCAL);
    standin *(*control)(void) = NULL;
    find(handle, "cuGraphGetNodes", &g->more.graph_nodes);
    find(handle, "cuModuleGetGlobal_v2", &g->more.module_global);
    find(handle, "standin_control", &control);
    g->control = control ? control() : NULL;
}

fcp_code gpu_open_driver(gpu *g, fcp_error *err) {
    fcp_code code = fcp_cuda_open(&g->cuda, err);
    if (!code) look_beyond(g);
    return code;
}

fcp_code gpu_open(gpu *g, fcp_error *err) {
    fcp_code code = gpu_open_driver(g, err);
    if (code) return code;
    const fcp_cuda_table *call = &g->cuda->call;
    code = fcp_cuda_check(g->cuda, call->context_retain(&g->context, 0), err, "device 0 cannot be opened");
    if (!code) code = fcp_cuda_check(g->cuda, call->context_set(g->context), err, "device 0 cannot be used");
    if (!code)
        code = fcp_cuda_check(g->cuda, call->stream_create(&g->stream, CU_STREAM_NON_BLOCKING, 0), err,
                              "device 0 makes no stream");
    return code;
}

void gpu_close(gpu *g) {
    if (!g->cuda) return;
    if (g->stream) g->cuda->call.stream_destroy(g->stream);
    if (g->context) g->cuda->call.context_release(0);
    fcp_cuda_close(g->cuda);
    g->cuda = NULL;
    g->stream = NULL;
    g->context = NULL;
}

/* The processor's name, as Linux tells it. */
static void name_processor(char *out, size_t size) {
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[300];
    snprintf(out, size, "a processor without a name");
    while (f && fgets(line, sizeof line, f)) {
        const char *at = strstr(line, "model name") ? strchr(line, ':') : NULL;
        if (!at) continue;
        snprintf(out, size, "%.*s", (int)strcspn(at + 2, "\n"), at + 2);
        break;
    }
    if (f) fclose(f);
}

fcp_code gpu_look(gpu *g, gpu_machine *out, fcp_error *err) {
    const fcp_cuda_table *call = &g->cuda->call;
    struct utsname system;
    size_t available;
    *out =
        (gpu_machine){.driver_version = g->cuda->version, .devices = g->cuda->devices, .standin = g->control != NULL};
    snprintf(out->driver, sizeof out->driver, "%.299s", g->cuda->path);
    name_processor(out->cpu, sizeof out->cpu);
    uname(&system);
    snprintf(out->host, sizeof out->host, "%.30s %.40s", system.sysname, system.release);
    fcp_code code =
        fcp_cuda_check(g->cuda, call->device_name(out->name, sizeof out->name - 1, 0), err, "device 0 has no name");
    const struct { int which, *to; } all[] = {{CU_CAPABILITY_MAJOR, &out->major},
                                              {CU_CAPABILITY_MINOR, &out->minor},
                                              {CU_MULTIPROCESSORS, &out->multiprocessors},
                                              {CU_SHARED_MEMORY_OPTIN, &out->shared}};
    for (size_t i = 0; !code && i < sizeof all / sizeof *all; i++)
        code = fcp_cuda_check(g->cuda, call->device_attribute(all[i].to, all[i].which, 0), err,
                              "device 0 has no attribute %d", all[i].which);
    if (!code)
        code = fcp_cuda_check(g->cuda, call->memory_info(&available, &out->memory), err, "device 0 has no memory");
    if (strncmp(out->name, "stand-in", 8) == 0) out->standin = true;
    return code;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

bool gpu_define(const gpu *g, const char *defines, char why[GPU_WHY]) {
    static char before[600]; /* the cache of this process before the first call */
    char cache[600];
    const char *own = getenv("FCP_CACHE");
    if (!*before) snprintf(before, sizeof before, "%.590s", own ? own : "");
    if (!*defines)
        return (!unsetenv("GPU_DEFINES") && !setenv("FCP_CACHE", before, 1)) ||
               !snprintf(why, GPU_WHY, "out of memory");
    if (!getenv("GPU_CARRIED")) {
        snprintf(why, GPU_WHY, "FCP_NVRTC names a compiler that takes no definitions");
        return false;
    }
    int used = snprintf(cache, sizeof cache, "%.300s/cache-%.200s", g->folder, defines);
    for (int i = 0; i < used; i++)
        if (cache[i] == ' ') cache[i] = '-';
    return (!setenv("GPU_DEFINES", defines, 1) && !setenv("FCP_CACHE", cache, 1)) ||
           !snprintf(why, GPU_WHY, "out of memory");
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

fcp_plan *gpu_plan_of(const char *path, const char *text, const char *const *defines, size_t count, char why[GPU_WHY]) {
    fcpc_options options = {.size = sizeof(fcpc_options), .defines = defines, .define_count = count};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    if (!d) {
        snprintf(why, GPU_WHY, "out of memory");
        return NULL;
    }
    fcp_code code = text ? fcpc_parse_text(path, text, strlen(text), &options, d, &program)
                         : fcpc_parse_file(path, &options, d, &program);
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
    if (code) {
        fcpc_diagnostic first = {.message = "no plan"};
        for (size_t i = 0; i < fcpc_diagnostics_count(d); i++) {
            fcpc_diagnostics_get(d, i, &first);
            if (!first.warning) break;
        }
        snprintf(why, GPU_WHY, "%.100s: %.250s", path, first.message);
    }
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code ? NULL : plan;
}

/* --- rows and facts ----------------------------------------------------------------------------------------------- */

bool gpu_row_done(const gpu *g, const char *name) { return journal_find(g->journal, "row", name, NULL, 0); }

/* Prints a figure with as many digits as make sense. */
static void figure(char *out, size_t size, double value) {
    double x = value < 0 ? -value : value;
    snprintf(out, size, "%.*f", x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : x >= 0.1 ? 3 : 4, value);
}

static void or_nothing(char *out, size_t size, double value) {
    if (value == GPU_NONE) snprintf(out, size, "-");
    else snprintf(out, size, "%.3f", value);
}

const char *gpu_verdict(const gpu *g, double judged, bool most, double goal, double first) {
    if (g->machine.standin) return "stand-in";
    if (judged == GPU_NONE) return "not known";
    if (most ? judged <= goal : judged >= goal) return "met";
    return first != GPU_NONE && (most ? judged <= first : judged >= first) ? "first step" : "MISSED";
}

void gpu_row_put(gpu *g, const gpu_row *r) {
    char rest[1200], note[520], value[60], ratio[40], part[40], goal[60] = "-";
    const char *verdict = "-";
    snprintf(note, sizeof note, "%.400s%s%s", *r->note || *g->sensed ? r->note : "-",
             *r->note && *g->sensed ? "; " : "", g->sensed);
    g->sensed[0] = 0;
    figure(value, sizeof value, r->value);
    if (g->machine.standin) snprintf(value + strlen(value), sizeof value - strlen(value), " (not real)");
    or_nothing(ratio, sizeof ratio, r->ratio);
    double ceiling = r->ceiling ? gpu_fact(g, r->ceiling) : GPU_NONE;
    or_nothing(part, sizeof part, ceiling > 0 ? r->value / ceiling : GPU_NONE);
    if (r->goal != GPU_NONE) {
        char first[30] = "";
        if (r->first != GPU_NONE) snprintf(first, sizeof first, " (%.3g)", r->first);
        snprintf(goal, sizeof goal, "%s %.4g%s", r->most ? "<=" : ">=", r->goal, first);
        verdict = gpu_verdict(g, r->most ? r->value : r->ratio, r->most, r->goal, r->first);
    }
    snprintf(rest, sizeof rest, "%s\t%s %s\t%s\t%s\t%s\t%s\t%s\t%.600s\t%s\t%.9g\t%g\t%g", g->step, value, r->unit,
             r->against && *r->against ? r->against : "-", ratio, goal, verdict, r->ceiling ? r->ceiling : "-", note,
             r->fact ? r->fact : "-", r->own, r->goal, r->first);
    journal_add(g->journal, "row", r->name, rest);
    gpu_report(g);
    if (g->quiet) return;
    printf("  %-62s %14s %-8s %8s %-14s %-10s %7s  %s\n", r->name, value, r->unit, ratio, goal, verdict, part, note);
    fflush(stdout);
}

void gpu_fact_put(gpu *g, const char *name, double value) {
    char rest[40];
    snprintf(rest, sizeof rest, "%.9g", value);
    journal_add(g->journal, "fact", name, rest);
}

double gpu_fact(const gpu *g, const char *name) {
    char rest[60];
    if (!journal_find(g->journal, "fact", name, rest, sizeof rest) &&
        !(g->peers && journal_find(g->peers, "fact", name, rest, sizeof rest)))
        return GPU_NONE;
    return strtod(rest, NULL);
}
