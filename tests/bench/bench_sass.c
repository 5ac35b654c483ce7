/* bench_sass.c: counts what a step of the kernels for sm_90a costs, from their machine code (codegen/cost). No time is
 * measured, so the figures are the same on every machine. Without NVRTC or nvdisasm nothing is counted. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cost/cost.h"
#include "compiler/fcpc.h"
#include "runtime/jit/disassemble.h"
#include "runtime/jit/jit.h"
#include "runtime/jit/kernel_source.h"
#include "runtime/plan/plan.h"
#include "tests/bench/bench.h"

static const struct measured {
    const char *what, *plan;
    int head_dim;
} all[] = {
    {"causal", "mask = causal", 128},
    {"window 1024", "mask = window(w = 1024)", 128},
    {"causal, head_dim 64", "mask = causal", 64},
    {"causal, head_dim 256", "mask = causal", 256},
    {"causal, softcap", "mask = causal; score = softcap(c = 30)", 128},
    {"causal, approximate softcap", "mask = causal; score = softcap(c = 30, approximate = true)", 128},
};
enum { MEASURED = sizeof all / sizeof *all, NAME = 160 };

/* A step of the plain forward pass of head_dim 128; scores are compared with it. */
static double plain;

static bool read_costs(fcp_jit *jit, const fcp_plan *plan, unsigned skeletons, cost_report *out, fcp_error *err) {
    static const char *const lines[] = {"--generate-line-info", NULL};
    char *source = NULL, *listing = NULL, wrong[160];
    fcp_cubin cubin = {0};
    bool cached;
    fcp_code code = fcp_kernel_source(plan, skeletons, false, &source, err);
    if (!code) code = fcp_jit_compile(jit, "fcpc.cu", source, "sm_90a", lines, &cubin, &cached, err);
    if (!code) code = fcp_disassemble(cubin.bytes, cubin.size, &listing, err);
    if (!code && !cost_read(source, listing, cost_machine_of("sm_90a"), out, wrong))
        code = fcp_fail(err, FCP_E_LISTING, "%s", wrong);
    fcp_cubin_free(&cubin);
    free(source);
    free(listing);
    return !code;
}

static const char *note_of(const cost_counts *c, char note[160]) {
    cost_pipe bound = cost_bound(c);
    snprintf(note, 160, "tensor %lu clocks, shared %lu, mufu %lu, alu %lu, fma %lu, issue %lu; bound by %s",
             (unsigned long)c->clocks[COST_TENSOR], (unsigned long)c->clocks[COST_SHARED],
             (unsigned long)c->clocks[COST_MUFU], (unsigned long)c->clocks[COST_ALU],
             (unsigned long)c->clocks[COST_FMA], (unsigned long)cost_issue(c),
             bound == COST_PIPES ? "issue" : cost_pipe_names[bound]);
    return note;
}

static void row(const char *kernel, const char *what, const char *figure, double value, const char *unit, double most,
                const char *note) {
    char name[NAME], goal[24] = "";
    snprintf(name, sizeof name, "sass %s, %s, %s", kernel, what, figure);
    if (most > 0) snprintf(goal, sizeof goal, "<= %g", most);
    bench_row(name, value, unit, goal, value <= most, note);
}

static void rows_of(const struct measured *m, const cost_kernel *k, bool forward, bool score) {
    char note[160];
    if (k->step_count != 1) {
        printf("sass: %s has %u loops over steps\n", k->name, k->step_count);
        return;
    }
    const cost_counts *full = &k->steps[0].of[COST_FULL], *part = &k->steps[0].of[COST_PARTIAL];
    double all_full = (double)cost_issue(full), all_part = (double)cost_issue(part),
           tensor = (double)full->clocks[COST_TENSOR];
    if (forward && m->head_dim == 128 && !score && plain == 0) plain = all_full;
    row(k->name, m->what, "instructions of a FULL step", all_full, "", 0, note_of(full, note));
    row(k->name, m->what, "PARTIAL / FULL", all_part / all_full, "x", forward ? 1.3 : 0, note_of(part, note));
    row(k->name, m->what, "shared memory / tensor", (double)full->clocks[COST_SHARED] / tensor, "x", 1,
        "what the TMA writes is not in it");
    if (forward && score && plain > 0)
        row(k->name, m->what, "FULL step / plain FULL step", all_full / plain, "x", 2, "");
    if (!forward) {
        double most = all_full;
        for (int p = COST_MUFU; p < COST_PIPES; p++)
            if ((double)full->clocks[p] > most) most = (double)full->clocks[p];
        row(k->name, m->what, "elementwise instructions of a FULL step", (double)full->elements, "",
            m->head_dim == 128 && !score ? 250 : 0, "P and dS of 64 keys x 64 rows, or 64 x 128 if head_dim is 64");
        row(k->name, m->what, "busiest unit but shared memory / tensor", most / tensor, "x", score ? 0 : 0.85, "");
    }
}

void bench_sass(void) {
    static const char form[] = "model { heads = 32; kv_heads = 8; head_dim = %d; dtype = bf16 }\n"
                               "cluster { nodes = 1; gpus = 8 }\n"
                               "batch { lengths = [32K] }\nplan { %s; block = 2K; passes = forward, backward }\n";
    fcp_jit *jit = NULL;
    fcp_error err = {0};
    if (!bench_may_want("sass")) return;
    plain = 0;
    bool good = fcp_jit_open(NULL, &jit, &err) == FCP_OK;
    for (int i = 0; i < MEASURED && good; i++) {
        char text[400];
        snprintf(text, sizeof text, form, all[i].head_dim, all[i].plan);
        fcp_plan *plan = bench_plan_of(text, NULL, 0);
        bool backward = emit_backward((uint32_t)all[i].head_dim, (uint32_t)all[i].head_dim, true, true) & EMIT_BACKWARD_SM90;
        for (int pass = 0; pass < (backward ? 2 : 1) && plan && good; pass++) {
            cost_report report = {0};
            good = read_costs(jit, plan, pass ? EMIT_ORDERED_SM90 : EMIT_FORWARD_SM90, &report, &err);
            for (uint32_t k = 0; k < report.count; k++)
                rows_of(&all[i], &report.kernels[k], !pass, plan->score_count != 0);
            cost_free(&report);
        }
        fcp_plan_free(plan);
    }
    if (!good) printf("sass: %s\n", err.message);
    fcp_jit_close(jit);
}
