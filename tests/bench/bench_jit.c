/* bench_jit.c: compiling a plan's kernels: from nothing (NVRTC loaded, its file hashed, the entry written), and
 * from the disk cache in a new session. Nothing is measured where NVRTC is not there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../../compiler/fcpc.h"
#include "../../runtime/jit.h"
#include "../../runtime/kernel_source.h"
#include "bench.h"

enum { RUNS = 21, NAME = 80 };

static const char program_text[] =
    "model { heads = 32; kv_heads = 8; head_dim = 128; dtype = bf16 }\ncluster { nodes = 1; gpus = 8 }\n"
    "batch { lengths = [32K, 8K x 4] }\nplan { mask = lambda; block = 2K }\n";

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static const char *row_name(char name[NAME], const char *pass, bool cached) {
    snprintf(name, NAME, "jit %s, lambda, head_dim 128, sm_90a, %s", pass, cached ? "from the cache" : "cold");
    return name;
}

/* Seconds of a compilation in a session of its own; -1 when it fails. */
static double compile(const char *folder, const char *source, bool expect_cached) {
    fcp_error err = {0};
    fcp_cubin cubin = {0};
    fcp_jit *jit = NULL;
    bool cached = false;
    double start = bench_now();
    fcp_code code = fcp_jit_open(folder, &jit, &err);
    if (!code) code = fcp_jit_compile(jit, "fcpc.cu", source, "sm_90a", NULL, &cubin, &cached, &err);
    fcp_cubin_free(&cubin);
    double seconds = bench_now() - start;
    fcp_jit_close(jit);
    if (code) printf("jit: %s\n", err.message);
    return code || cached != expect_cached ? -1 : seconds;
}

static void one(const fcp_plan *plan, const char *pass, unsigned skeleton, const char *folder) {
    char name[NAME], *source = NULL;
    fcp_error err;
    double cold, hits[RUNS], start = bench_now();
    if (fcp_kernel_source(plan, skeleton, &source, &err)) return;
    double made = bench_now() - start;
    cold = compile(folder, source, false);
    char note[160];
    snprintf(note, sizeof note, "loads NVRTC%s; source of %zu bytes made in %.3f ms",
             skeleton == EMIT_FORWARD ? " and hashes its file" : "", strlen(source), 1e3 * made);
    if (cold >= 0) bench_row(row_name(name, pass, false), cold, "s", "<= 1 s", cold <= 1, note);
    for (int i = 0; i < RUNS; i++) hits[i] = compile(folder, source, true);
    qsort(hits, RUNS, sizeof *hits, by_value);
    if (hits[0] >= 0) bench_row(row_name(name, pass, true), 1e3 * hits[RUNS / 2], "ms", "<= 5 ms", hits[RUNS / 2] <= 0.005,
                                "a session of its own");
    free(source);
}

void bench_jit(void) {
    bool wanted = false;
    for (int i = 0; i < 4; i++) {
        char name[NAME];
        wanted = wanted || bench_wants(row_name(name, i / 2 ? "backward" : "forward", i % 2));
    }
    if (!wanted) return;
    char folder[] = "/tmp/bench_jit_XXXXXX", command[60];
    fcp_nvrtc *n = NULL;
    fcp_error err;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    if (fcp_nvrtc_open(&n, &err)) printf("jit: %s\n", err.message);
    fcp_nvrtc_close(n);
    if (n && d && !fcpc_parse_text("bench.fcp", program_text, sizeof program_text - 1, NULL, d, &program) &&
        !fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan) && mkdtemp(folder)) {
        one(plan, "forward", EMIT_FORWARD, folder);
        one(plan, "backward", emit_backward(128, true, false), folder);
        snprintf(command, sizeof command, "rm -rf %s", folder);
        if (system(command)) perror(folder);
    }
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}
