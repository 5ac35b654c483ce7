/* test_cost_cubin.c: reads what the kernels' steps cost in cubins that NVRTC makes, where there are NVRTC and nvdisasm:
 * every kernel has one loop over steps, every instruction is known, and lines of the source change no instruction. */
#include <criterion/criterion.h>

#include <stdio.h>
#include <string.h>

#include "codegen/cost/cost.h"
#include "runtime/jit/disassemble.h"
#include "runtime/jit/jit.h"
#include "runtime/jit/kernel_source.h"
#include "tests/support/plan_of.h"
#include "tests/support/skips.h"

static const char *const with_lines[] = {"--generate-line-info", NULL};

static char *listing_of(fcp_jit *jit, const char *source, const char *arch, const char *const *options) {
    fcp_cubin cubin;
    fcp_error err;
    bool cached;
    char *listing = NULL;
    cr_assert_eq(fcp_jit_compile(jit, "fcpc.cu", source, arch, options, &cubin, &cached, &err), FCP_OK, "%s",
                 err.message);
    cr_assert_eq(fcp_disassemble(cubin.bytes, cubin.size, &listing, &err), FCP_OK, "%s", err.message);
    fcp_cubin_free(&cubin);
    return listing;
}

/* Takes the lines with ## out of a listing, in place. */
static void drop_lines(char *listing) {
    char *to = listing;
    for (char *at = listing; *at;) {
        size_t length = strcspn(at, "\n") + 1;
        if (!at[length - 1]) length--;
        if (strncmp(at, "\t//##", 5)) memmove(to, at, length), to += length;
        at += length;
    }
    *to = 0;
}

static void judge(fcp_jit *jit, const fcp_plan *plan, unsigned skeletons, const char *arch) {
    char *source, wrong[160] = "";
    cost_report report;
    fcp_error err;
    cr_assert_eq(fcp_kernel_source(plan, skeletons, false, &source, &err), FCP_OK, "%s", err.message);
    char *lines = listing_of(jit, source, arch, with_lines), *bare = listing_of(jit, source, arch, NULL);
    cr_assert(cost_read(source, lines, cost_machine_of(arch), &report, wrong), "%s: %s", arch, wrong);
    for (uint32_t i = 0; i < report.count; i++) {
        const cost_kernel *k = &report.kernels[i];
        const cost_counts *of = k->steps[0].of;
        cr_expect_eq(*k->unknown, 0, "%s, %s: %s is not known", arch, k->name, k->unknown);
        cr_expect_eq(k->step_count, 1, "%s, %s: %u loops over steps", arch, k->name, k->step_count);
        if (skeletons & (EMIT_SUPPORT | EMIT_WIRE)) { /* the small kernels: they multiply nothing and know no cells */
            cr_expect_eq(memcmp(&of[COST_FULL], &of[COST_PARTIAL], sizeof *of), 0, "%s, %s", arch, k->name);
            cr_expect_eq(of[COST_FULL].instructions[COST_TENSOR], 0, "%s, %s", arch, k->name);
            cr_expect_gt(of[COST_FULL].bytes, 0, "%s, %s", arch, k->name);
            continue;
        }
        cr_expect_gt(of[COST_FULL].instructions[COST_TENSOR], 0, "%s, %s", arch, k->name);
        cr_expect_eq(of[COST_FULL].clocks[COST_TENSOR], of[COST_PARTIAL].clocks[COST_TENSOR], "%s, %s", arch, k->name);
        cr_expect_lt(cost_issue(&of[COST_FULL]), cost_issue(&of[COST_PARTIAL]), "%s, %s", arch, k->name);
    }
    drop_lines(lines);
    drop_lines(bare);
    cr_expect_str_eq(lines, bare, "%s: lines of the source change the code", arch);
    cost_free(&report);
    free(source);
    free(lines);
    free(bare);
}

Test(cost_cubin, the_kernels, .timeout = 600) {
    fcp_jit *jit;
    fcp_nvrtc *n;
    fcp_error err;
    const char *build = getenv("B");
    char folder[512], *none = NULL;
    if (fcp_nvrtc_open(NULL, &n, &err)) {
        SKIPPED("reading the machine code of kernels: %s", err.message);
        cr_skip_test();
    }
    fcp_nvrtc_close(n);
    if (fcp_disassemble("", 0, &none, &err) == FCP_E_BACKEND) {
        SKIPPED("reading the machine code of kernels: %s", err.message);
        cr_skip_test();
    }
    snprintf(folder, sizeof folder, "%s/kernels", build && *build ? build : "build");
    cr_assert_eq(fcp_jit_open(folder, &jit, &err), FCP_OK);
    fcp_plan *plan = plan_with("causal.fcp",
                               "model { heads = 2; kv_heads = 1; head_dim = 128; dtype = bf16 }\n"
                               "cluster { nodes = 1; gpus = 1 }\nbatch { lengths = [4K] }\nplan { mask = causal }\n",
                               NULL, 0);
    judge(jit, plan, EMIT_FORWARD_SM90, "sm_90a");
    judge(jit, plan, EMIT_ORDERED_SM90 | EMIT_UNORDERED_SM90, "sm_90a");
    judge(jit, plan, EMIT_FORWARD | EMIT_ORDERED | EMIT_SPLIT, "sm_80");
    judge(jit, plan, EMIT_FORWARD | EMIT_ORDERED, "sm_100");
    judge(jit, plan, EMIT_SUPPORT | EMIT_WIRE, "sm_90a");
    fcp_plan_free(plan);
    fcp_jit_close(jit);
}
