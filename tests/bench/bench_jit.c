/* bench_jit.c: measures how long it takes to compile a plan's kernels: from nothing (NVRTC is loaded, its file is
 * hashed, and the entry of the cache is written), and from the disk cache in a new session. Without NVRTC nothing is
 * measured. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "runtime/jit/jit.h"
#include "runtime/jit/kernel_source.h"
#include "tests/bench/bench.h"

enum { RUNS = 21, NAME = 100 };

static const char program_text[] =
    "model { heads = 32; kv_heads = 8; head_dim = 128; dtype = bf16 }\ncluster { nodes = 1; gpus = 8 }\n"
    "batch { lengths = [32K, 8K x 4] }\nplan { mask = lambda; block = 2K }\n";

/* What is measured: a pass with the skeletons for mma.sync, or for sm_90a, of one source; or the sources of both passes
 * as a session has them, side by side. */
typedef struct measured {
    const char *what;
    unsigned skeletons[2]; /* of each source; 0: there is no second one */
} measured;
static const measured all[] = {
    {"forward", {EMIT_FORWARD, 0}},
    {"backward", {EMIT_ORDERED, 0}},
    {"forward's own", {EMIT_FORWARD_SM90, 0}},
    {"backward's own", {EMIT_ORDERED_SM90, 0}},
    {"both passes' own in one source", {EMIT_FORWARD_SM90 | EMIT_SUPPORT | EMIT_ORDERED_SM90, 0}},
    {"both passes' own side by side", {EMIT_FORWARD_SM90 | EMIT_SUPPORT, EMIT_ORDERED_SM90}},
};
enum { MEASURED = sizeof all / sizeof *all };

static const char *row_name(char name[NAME], const char *what, bool cached) {
    snprintf(name, NAME, "jit %s, lambda, head_dim 128, sm_90a, %s", what, cached ? "from the cache" : "cold");
    return name;
}

/* Seconds of a compilation in a session of its own; -1 when it fails. */
static double compile(const char *folder, char *const sources[2], bool expect_cached) {
    fcp_error err = {0};
    fcp_jit_part parts[2] = {{.source = sources[0]}, {.source = sources[1]}};
    fcp_jit *jit = NULL;
    bool as_expected = true;
    uint32_t count = sources[1] ? 2 : 1;
    double start = bench_now();
    fcp_code code = fcp_jit_open(folder, &jit, &err);
    if (!code) code = fcp_jit_compile_parts(jit, "fcpc.cu", "sm_90a", NULL, parts, count, &err);
    for (uint32_t i = 0; i < count; i++) {
        as_expected = as_expected && parts[i].cached == expect_cached;
        fcp_cubin_free(&parts[i].cubin);
    }
    double seconds = bench_now() - start;
    fcp_jit_close(jit);
    if (code) printf("jit: %s\n", err.message);
    return code || !as_expected ? -1 : seconds;
}

static bool make_sources(const fcp_plan *plan, const measured *m, char *sources[2]) {
    fcp_error err = {0};
    fcp_code code = FCP_OK;
    for (int i = 0; !code && i < 2; i++)
        if (m->skeletons[i]) code = fcp_kernel_source(plan, m->skeletons[i], false, &sources[i], &err);
    if (code) printf("jit: %s\n", err.message);
    return !code;
}

/* In a cache that is new, but for the hash of NVRTC's file, unless this is the first row. */
static void one(const fcp_plan *plan, const measured *m, const char *folder) {
    char name[NAME], command[100], note[160], *sources[2] = {NULL, NULL};
    double cold, hits[RUNS], start = bench_now();
    bool wanted = bench_wants(row_name(name, m->what, false)) || bench_wants(row_name(name, m->what, true));
    if (wanted && make_sources(plan, m, sources)) {
        double made = bench_now() - start;
        snprintf(command, sizeof command, "rm -f %s/*.cubin", folder);
        if (system(command)) perror(folder);
        snprintf(name, sizeof name, "%s/nvrtc", folder);
        bool known = access(name, F_OK) == 0;
        cold = compile(folder, sources, false);
        snprintf(note, sizeof note, "loads NVRTC%s; %zu bytes of source made in %.3f ms",
                 known ? "" : " and hashes its file", strlen(sources[0]) + (sources[1] ? strlen(sources[1]) : 0),
                 1e3 * made);
        if (cold >= 0) bench_row(row_name(name, m->what, false), cold, "s", "<= 1 s", cold <= 1, note);
        for (int i = 0; i < RUNS; i++) hits[i] = compile(folder, sources, true);
        const double hit = bench_median(hits, RUNS);
        if (hits[0] >= 0)
            bench_row(row_name(name, m->what, true), 1e3 * hit, "ms", "<= 5 ms", hit <= 0.005,
                      "a session of its own");
    }
    free(sources[0]);
    free(sources[1]);
}

void bench_jit(void) {
    bool wanted = false;
    for (int i = 0; i < 2 * MEASURED; i++) {
        char name[NAME];
        wanted = wanted || bench_wants(row_name(name, all[i / 2].what, i % 2));
    }
    if (!wanted) return;
    char folder[] = "/tmp/bench_jit_XXXXXX", command[60];
    fcp_nvrtc *n = NULL;
    fcp_error err;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    if (fcp_nvrtc_open(NULL, &n, &err)) printf("jit: %s\n", err.message);
    fcp_nvrtc_close(n);
    if (n && d && !fcpc_parse_text("bench.fcp", program_text, sizeof program_text - 1, NULL, d, &program) &&
        !fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan) && mkdtemp(folder)) {
        for (int i = 0; i < MEASURED; i++) one(plan, &all[i], folder);
        snprintf(command, sizeof command, "rm -rf %s", folder);
        if (system(command)) perror(folder);
    }
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}
