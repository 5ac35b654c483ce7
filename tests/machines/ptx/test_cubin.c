/* test_cubin.c: compiles kernels with NVRTC: of every example, of every mask of the prelude, and every skeleton. None
 * may spill registers, exceed its budget, or have its wgmma instructions serialised. Cubins are kept in the build's
 * folder of kernels. */
#include "runtime/plan/plan.h"
#include "tests/support/plan_of.h"

#include <glob.h>
#include <stdio.h>
#include <sys/stat.h>

#include "codegen/kernels/abi.h"
#include "runtime/jit/jit.h"
#include "runtime/jit/kernel_source.h"
#include "tests/support/known_masks.h"
#include "tests/support/skips.h"

static const char *const archs[] = {"sm_80", "sm_90a", "sm_100"};
/* the plan's own skeletons of these passes on the architecture */
enum { ARCHS = 3, HOPPER = 1, FORWARD = 1 << 16, BACKWARD = 1 << 17 };

typedef struct gate {
    fcp_jit *jit;
    unsigned compiled, cached, bad;
    bool fused; /* passes are one launch */
} gate;

/* Where NVRTC is not there the test is skipped. */
static void open_gate(gate *g) {
    /* the cache of another build, which has them already */
    const char *build = getenv("B"), *kernels = getenv("KERNELS");
    char folder[512];
    fcp_nvrtc *n;
    fcp_error err;
    *g = (gate){0};
    if (fcp_nvrtc_open(NULL, &n, &err)) {
        SKIPPED("compiling kernels for GPUs: %s", err.message);
        cr_skip_test();
    }
    fcp_nvrtc_close(n);
    if (kernels && *kernels) snprintf(folder, sizeof folder, "%s", kernels);
    else snprintf(folder, sizeof folder, "%s/kernels", build && *build ? build : "build");
    cr_assert_eq(fcp_jit_open(folder, &g->jit, &err), FCP_OK);
}

static void close_gate(gate *g) {
    fprintf(stderr, "%u compiled, %u from the cache\n", g->compiled, g->cached);
    fcp_jit_close(g->jit);
    cr_assert_eq(g->bad, 0, "%u kernels are not as they must be", g->bad);
}

/* Of the smallest device that is to run it. */
static uint32_t shared_limit(unsigned skeleton) {
    return (skeleton & EMIT_SM90 ? 227 : skeleton & (EMIT_ORDERED | EMIT_UNORDERED) ? 163 : 99) * 1024;
}

static void judge(gate *g, const fcp_plan *plan, unsigned skeletons, const char *arch, const char *what) {
    char *source;
    fcp_cubin cubin;
    fcp_error err;
    bool cached;
    emit_kernel kernels[EMIT_KERNELS];
    unsigned has = plan->problem->passes;
    bool sm90 = strcmp(arch, "sm_90a") == 0;
    const uint32_t d = plan->problem->head_dim, v = plan->problem->value_dim;
    if (skeletons & FORWARD) skeletons = (skeletons & ~(unsigned)FORWARD) | emit_forward(d, v, sm90);
    if (skeletons & BACKWARD) skeletons = (skeletons & ~(unsigned)BACKWARD) | emit_backward(d, v, true, sm90);
    if (!(has & 1u << FCP_FORWARD)) skeletons &= ~(unsigned)EMIT_FORWARDS;
    if (!(has & 1u << FCP_BACKWARD)) skeletons &= EMIT_FORWARDS | EMIT_SUPPORT;
    if (!skeletons) return;
    fcp_code code = fcp_kernel_source(plan, skeletons, g->fused, &source, &err);
    cr_assert_eq(code, FCP_OK, "%s: %s", what, err.message);
    code = fcp_jit_compile(g->jit, "fcpc.cu", source, arch, NULL, &cubin, &cached, &err);
    cr_assert_eq(code, FCP_OK, "%s, %s: %s\n%s", what, arch, err.message, cubin.log ? cubin.log : "");
    cr_assert_eq(*fcp_jit_warning(g->jit), 0, "%s", fcp_jit_warning(g->jit));
    cr_assert(cubin.size > 1000 && memcmp(cubin.bytes, "\177ELF", 4) == 0, "%s: no cubin", what);
    uint32_t count = emit_kernels_of(d, v, plan->score_count != 0, skeletons, kernels);
    cr_assert_eq(cubin.kernel_count, count, "%s: %u kernels, not %u", what, cubin.kernel_count, count);
    for (uint32_t i = 0; i < count; i++) {
        const fcp_kernel_cost *c = NULL;
        for (uint32_t j = 0; j < count; j++)
            if (strcmp(cubin.kernels[j].name, kernels[i].name) == 0) c = &cubin.kernels[j];
        cr_assert(c && c->registers, "%s: nothing is said of %s", what, kernels[i].name);
        bool bad = cubin.notes || c->spill_stores || c->spill_loads || c->registers > kernels[i].registers ||
                   (kernels[i].maps && c->registers != kernels[i].registers) ||
                   !emit_resident(arch, kernels[i].threads, c->registers, kernels[i].shared + c->shared) ||
                   kernels[i].shared + c->shared > shared_limit(kernels[i].skeleton);
        g->bad += bad;
        if (bad)
            fprintf(stderr, "%s, head_dim %u, value_dim %u, %s, %s: %u registers of %u, %u bytes spilled, %u bytes of "
                    "shared memory, %u notes\n", what, d, v, arch, c->name, c->registers, kernels[i].registers,
                    c->spill_stores + c->spill_loads, kernels[i].shared + c->shared, cubin.notes);
    }
    if (cached) g->cached++;
    else g->compiled++;
    fcp_cubin_free(&cubin);
    free(source);
}

/* On sm_90a, whose kernels have least registers to spare, and on one other in turn; in sanitizer builds, which change
 * nothing here, on one, in turn. */
static void judge_archs(gate *g, const fcp_plan *plan, unsigned skeletons, size_t turn, const char *what) {
    const char *sanitizer = getenv("SAN");
    const bool one = sanitizer && *sanitizer;
    for (size_t i = 0; i < ARCHS; i++)
        if (one ? i == turn % ARCHS : i == HOPPER || i == turn % 2 * 2) judge(g, plan, skeletons, archs[i], what);
}

Test(cubin, examples) {
    gate g;
    glob_t files;
    open_gate(&g);
    cr_assert_eq(glob("examples/*.fcp", 0, NULL, &files), 0);
    cr_assert_eq(glob("examples/masks/*.fcp", GLOB_APPEND, NULL, &files), 0);
    cr_assert_eq(glob("examples/scores/*.fcp", GLOB_APPEND, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        const char *const defines[] = {i % 2 ? "model.dtype=bf16" : "model.dtype=fp16"};
        fcp_plan *plan = plan_with(files.gl_pathv[i], NULL, defines, 1);
        judge_archs(&g, plan, FORWARD | BACKWARD, i, files.gl_pathv[i]);
        fcp_plan_free(plan);
    }
    globfree(&files);
    close_gate(&g);
}

/* The first case of each mask; those of fields are examples. */
Test(cubin, prelude) {
    gate g;
    bool done[KNOWN_MASKS] = {false};
    open_gate(&g);
    for (int i = 0; i < KNOWN_CASE_COUNT; i++) {
        const known_case *x = &KNOWN_CASES[i];
        char call[KNOWN_CALL], text[KNOWN_CALL + 200];
        if (done[x->mask]) continue;
        done[x->mask] = true;
        snprintf(text, sizeof text,
                 "model { heads = 2; kv_heads = 1; head_dim = 128; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
                 "batch { lengths = [%llu] }\nplan { mask = %s; block = 128 }\n", (unsigned long long)x->lengths[0],
                 known_call(&KNOWN[x->mask], x->p, call));
        fcp_plan *plan = plan_named(call, text);
        judge(&g, plan, i % 2 ? FORWARD : BACKWARD, "sm_90a", call);
        fcp_plan_free(plan);
    }
    close_gate(&g);
}

/* Sizes: head_dim and value_dim. */
typedef struct sizes {
    unsigned d, v;
} sizes;

/* Every head_dim on every architecture, some with another value_dim, both types, with and without a score, and for few
 * queries with many keys. */
Test(cubin, skeletons) {
    static const sizes all[] = {{16, 16}, {32, 32}, {64, 64}, {96, 96}, {128, 128}, {192, 128}, {192, 192}, {256, 256},
                                {32, 16}, {128, 64}, {192, 32}, {256, 96}};
    gate g;
    unsigned turn = 0;
    open_gate(&g);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (size_t a = 0; a < ARCHS; a++, turn++) {
            char text[400], what[80];
            const unsigned d = all[i].d, v = all[i].v;
            const bool score = turn % 2, small = d < 64 || i > 7;
            if (small && a != 1) continue;
            snprintf(text, sizeof text,
                     "model { heads = 4; kv_heads = 2; head_dim = %u; value_dim = %u; dtype = %s }\n"
                     "cluster { nodes = 1; gpus = 1 }\n"
                     "batch { lengths = [300%s] }\nplan { mask = lambda(sink = 8, window = 100); block = 128%s }\n",
                     d, v, turn / 2 % 2 ? "fp16" : "bf16", turn % 4 == 1 || turn % 4 == 2 ? ", 5:900" : "",
                     score ? "; score = softcap" : "");
            snprintf(what, sizeof what, "lambda%s", score ? ", softcap" : "");
            fcp_plan *plan = plan_named(what, text);
            judge(&g, plan, EMIT_FORWARD | EMIT_SPLIT | EMIT_SUPPORT | EMIT_WIRE |
                                emit_backward(d, v, true, false) | emit_backward(d, v, false, false),
                  archs[a], what);
            if (a == 1 && d >= 64) judge(&g, plan, FORWARD | BACKWARD | emit_backward(d, v, false, true), archs[a], what);
            fcp_plan_free(plan);
        }
    close_gate(&g);
}

/* Architectures with 99 KiB of shared memory for a CTA: there, too, the backward pass is one kernel where head_dim and
 * value_dim are 128, and does not spill. Without a score it has one buffer of dO. */
Test(cubin, little_shared_memory) {
    static const char *const little[] = {"sm_86", "sm_89", "sm_120"};
    static const char *const masks[] = {"causal", "lambda(sink = 8, window = 100)", "dilated(w = 100, d = 7)"};
    gate g;
    open_gate(&g);
    for (unsigned i = 0; i < 3 * 3 * 2; i++) {
        const char *arch = little[i % 3];
        const bool score = i / 9;
        char text[400];
        g.fused = i / 3 % 3 == 0;
        snprintf(text, sizeof text,
                 "model { heads = 4; kv_heads = 2; head_dim = 128; dtype = %s }\ncluster { nodes = 1; gpus = 1 }\n"
                 "batch { lengths = [300] }\nplan { mask = %s; block = 128%s }\n",
                 i % 2 ? "fp16" : "bf16", masks[i / 3 % 3], score ? "; score = softcap" : "");
        fcp_plan *plan = plan_named("little", text);
        unsigned skeletons = 0;
        for (int deterministic = 0; deterministic < 2; deterministic++)
            skeletons |= emit_backward_within(128, 128, score, emit_backward(128, 128, deterministic, false),
                                              emit_shared_most(arch));
        cr_assert_eq(skeletons, EMIT_ORDERED | EMIT_UNORDERED | (score ? 0 : EMIT_ONE_BUFFER));
        judge(&g, plan, skeletons, arch, text);
        fcp_plan_free(plan);
    }
    close_gate(&g);
}

/* Gradients of tables: beside the kernels of a backward pass, which stay within their budgets. */
Test(cubin, gradients_of_tables) {
    static const sizes all[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
    gate g;
    open_gate(&g);
    for (size_t d = 0; d < sizeof all / sizeof *all; d++) {
        char text[700];
        snprintf(text, sizeof text,
                 "model { heads = 4; kv_heads = 2; head_dim = %u; value_dim = %u; dtype = bf16\n"
                 "table slope = [0.5, 0.25, -1.5, 1.0]\n"
                 "table bias = [0.25 x 300] }\ncluster { nodes = 1; gpus = 1 }\nbatch { lengths = [300] }\n"
                 "score mine = 20.0 * tanh(s * slope[h] / 20.0) + bias[min(q - k, 290)]\n"
                 "plan { mask = causal; block = 128; score = mine }\n", all[d].d, all[d].v);
        fcp_plan *plan = plan_named("tables", text);
        judge_archs(&g, plan, BACKWARD | EMIT_TABLES, d, "gradients of tables");
        fcp_plan_free(plan);
    }
    close_gate(&g);
}

/* Scores that read tables: a load that happens only if a test says so once took too many registers. */
Test(cubin, tables_in_scores) {
    static const char *const scores[] = {"s + bias[min(q - k, 290)]",
                                         "20.0 * tanh(s * slope[h] / 20.0) + near[h, min(q - k, 90)]"};
    static const sizes all[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
    gate g;
    open_gate(&g);
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        for (size_t d = 0; d < sizeof all / sizeof *all; d++) {
            char text[700];
            snprintf(text, sizeof text,
                     "model { heads = 4; kv_heads = 2; head_dim = %u; value_dim = %u; dtype = bf16\n"
                     "table slope = [0.5, 0.25, -1.5, 1.0]\n"
                     "table bias = [0.25 x 300]; table near = [[0.25 x 91], [0.5 x 91], [0.75 x 91], [1.5 x 91]] }\n"
                     "cluster { nodes = 1; gpus = 1 }\nbatch { lengths = [300] }\nscore mine = %s\n"
                     "plan { mask = causal; block = 128; score = mine; passes = forward }\n", all[d].d, all[d].v,
                     scores[i]);
            fcp_plan *plan = plan_named("tables", text);
            judge(&g, plan, FORWARD, "sm_90a", scores[i]);
            if (all[d].d == 128) judge(&g, plan, FORWARD, archs[0], scores[i]);
            fcp_plan_free(plan);
        }
    close_gate(&g);
}

/* Masks and scores that read fields over heads and cells, for each pair: that takes no more registers than there are. */
Test(cubin, fields) {
    static const char *const masks[] = {"keep[h, q / 96, k / 96] == 1", "k < prefix or q < start[h, k]",
                                        "k <= q and keep[h, q / 96, k / 96] == 1", "causal"};
    static const char *const scores[] = {"s", "s + bias[h, k]", "20.0 * tanh_approx(s * slope[h] / 20.0)",
                                         "s + pair[q / 64, k / 64]"};
    static const sizes all[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};
    gate g;
    open_gate(&g);
    for (size_t i = 0; i < sizeof scores / sizeof *scores; i++)
        for (size_t d = 0; d < sizeof all / sizeof *all; d++) {
            char text[900];
            snprintf(
                text, sizeof text,
                "model { heads = 4; kv_heads = 2; head_dim = %u; value_dim = %u; dtype = bf16 }\n"
                "cluster { nodes = 1; gpus = 1 }\nbatch { lengths = [300]; field prefix = [20] over sequences\n"
                "field keep = [1 x 64] over heads, queries / 96, keys / 96; field start = [0 x 1200] over heads, keys\n"
                "field bias = [0.25 x 1200] over heads, keys; field slope = [0.5 x 4] over heads\n"
                "field pair = [0.5 x 25] over queries / 64, keys / 64 }\nmask m = %s\nscore mine = %s\n"
                "plan { mask = m; block = 128; score = mine }\n",
                all[d].d, all[d].v, masks[i], scores[i]);
            fcp_plan *plan = plan_named("fields", text);
            judge(&g, plan, (i + d) % 2 ? FORWARD : BACKWARD, "sm_90a", text);
            if (all[d].d == 128) judge(&g, plan, FORWARD | BACKWARD, archs[i % 2 ? 0 : ARCHS - 1], text);
            fcp_plan_free(plan);
        }
    close_gate(&g);
}

/* Passes in one launch: the skeletons that have least registers to spare, and those with keys in parts. */
Test(cubin, fused) {
    static const char *const models[] = {"64; dtype = bf16", "128; dtype = fp16", "96; dtype = bf16", "256; dtype = bf16",
                                         "192; value_dim = 128; dtype = bf16"};
    gate g;
    open_gate(&g);
    g.fused = true;
    for (size_t i = 0; i < 2 * sizeof models / sizeof *models; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "model { heads = 4; kv_heads = 2; head_dim = %s }\ncluster { nodes = 1; gpus = 1 }\n"
                 "batch { lengths = [300%s] }\nplan { mask = causal; block = 128%s; passes = forward%s }\n",
                 models[i / 2], i / 2 == 1 || i / 2 == 4 ? ", 5:900" : "", i % 2 ? "; score = softcap" : "",
                 i < 6 ? ", backward" : "");
        fcp_plan *plan = plan_named("fused", text);
        judge_archs(&g, plan, FORWARD, i, text);
        if (i < 6) judge_archs(&g, plan, BACKWARD, i, text);
        if (i < 4) judge(&g, plan, EMIT_UNORDERED_SM90, "sm_90a", text);
        fcp_plan_free(plan);
    }
    close_gate(&g);
}
