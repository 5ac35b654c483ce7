/* variants.c: measures what parts of the design gain, and what parts of a kernel cost.
 *   gain  the forward kernel with and without its two overlaps; 8 ranks on one device with several margins
 *   cost  a kernel with and without the softmax, or the adding of dQ. Without it results are wrong, but the time that
 *         is saved is that of the part.
 *
 * Each variant is measured in a process of its own, because a process has only one set of definitions for kernels. Rows
 * of the same case stand beside each other. No variant is chosen automatically.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu.h"

enum { TEXT = 600 };

typedef struct variant {
    const char *name, *defines, *mask; /* defines NULL: kernels as they are */
    unsigned ranks, margin;
    fcp_pass pass;
} variant;

#define BUILDS(mask)                                                       \
    {mask ", overlap and turns", "FK_OVERLAP=1 FK_TURNS=1", mask, 1, 0},   \
    {mask ", overlap alone", "FK_OVERLAP=1 FK_TURNS=0", mask, 1, 0},       \
    {mask ", turns alone", "FK_OVERLAP=0 FK_TURNS=1", mask, 1, 0},         \
    {mask ", neither", "FK_OVERLAP=0 FK_TURNS=0", mask, 1, 0},             \
    {mask ", without the softmax", "FK_WITHOUT_SOFTMAX=1", mask, 1, 0},    \
    {mask, NULL, mask, 1, 0, FCP_BACKWARD},                                \
    {mask ", without adding dQ", "FK_WITHOUT_DQ=1", mask, 1, 0, FCP_BACKWARD}
#define MARGIN(n) {"8 ranks, margin " #n, NULL, "causal", 8, n}
static const variant variants[] = {BUILDS("full"), BUILDS("causal"), MARGIN(0), MARGIN(4), MARGIN(8), MARGIN(12),
                                   MARGIN(16)};
enum { VARIANTS = sizeof variants / sizeof *variants };

static void program(const gpu *g, const variant *v, char text[TEXT]) {
    bool one = v->ranks == 1;
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = bf16 }\ncluster { nodes = 1; gpus = %u }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = %d; passes = forward%s%s; margin = %u }\n",
             g->small ? 2 : 64, g->small ? 1 : 8, g->small ? 16 : 128, v->ranks,
             g->small ? (one ? "200" : "1100") : one ? "8192" : "65536", v->mask, g->small ? 128 : 4096,
             v->pass ? ", backward" : "", one ? "" : "; strategy = fcp(coalesce = 16)", v->margin);
}

bool gpu_measured_variants(gpu *g, gpu_defined_call *each, void *context) {
    char text[TEXT];
    for (int i = 0; i < VARIANTS; i++) {
        program(g, &variants[i], text);
        if (!each(g, variants[i].defines ? variants[i].defines : "", text, context)) return false;
    }
    return true;
}

static void name_row(const variant *v, char name[80]) {
    snprintf(name, 80, "variant: %s, %s", v->pass ? "backward" : "forward", v->name);
}

static gpu_result measure(gpu *g, void *context, gpu_answer *out) {
    const variant *v = context;
    measured m = {0};
    double ms = 0, spread = 0;
    char text[TEXT], name[80], note[60];
    if (v->defines && v->pass == FCP_BACKWARD && g->machine.major != 9 && !g->machine.standin) {
        snprintf(out->why, GPU_WHY, "only the kernel for sm_90a has this build");
        return GPU_SKIPPED;
    }
    if (v->defines && !gpu_define(g, v->defines, out->why)) return GPU_SKIPPED;
    program(g, v, text);
    bool good = measured_open(g, text, true, &m, out->why) && measured_pass(&m, v->pass, &ms, &spread, out->why);
    if (good) {
        name_row(v, name);
        snprintf(note, sizeof note, "%.3f ms, spread %.1f %%", ms, 100 * spread);
        gpu_row r = gpu_row_of(name, ms > 0 ? m.flops[v->pass] / ms * 1e-9 : 0, "TFLOP/s", note);
        r.ceiling = g->machine.major == 9 ? "ceiling.wgmma" : "ceiling.mma";
        gpu_row_put(g, &r);
    }
    measured_close(&m);
    return good ? GPU_OK : GPU_FAILED;
}

gpu_result step_variants(gpu *g, char why[GPU_WHY]) {
    unsigned done = 0, wrong = 0, skipped = 0;
    char first[GPU_WHY] = "";
    for (int i = 0; i < VARIANTS; i++) {
        char name[80];
        gpu_answer answer;
        name_row(&variants[i], name);
        if (gpu_row_done(g, name)) continue;
        if (gpu_left(g) < 6 && !g->small) {
            snprintf(why, GPU_WHY, "the others later");
            return GPU_LATER;
        }
        journal_add(g->journal, "begin", name, "");
        gpu_run_apart(g, &(gpu_apart){.name = name, .open = true, .most = g->small ? 3000 : 30, .work = measure,
                                      .context = (void *)(uintptr_t)&variants[i]}, &answer);
        journal_reload(g->journal);
        journal_add(g->journal, "plan", name, answer.result == GPU_OK ? "measured" : answer.why);
        done += answer.result == GPU_OK;
        wrong += answer.result == GPU_FAILED;
        skipped += answer.result == GPU_SKIPPED;
        if (answer.result != GPU_OK && !*first) snprintf(first, sizeof first, "%s: %.300s", name, answer.why);
    }
    snprintf(why, GPU_WHY, "%u measured, %u skipped%s%.500s", done, skipped, *first ? "; " : "", first);
    return wrong ? GPU_FAILED : GPU_OK;
}
