/* shaken.c: runs each plan fifty times, while every CTA begins after a random delay. All runs must give the same bits.
 *
 * Kernels built with FK_DELAY let CTAs begin in orders that a quiet device never shows. If a turn or a barrier is
 * wrong, some run has other bits. They are built with FK_BOUND too: a wait that would never end gives up, writes down
 * what it waited for, and the kernel ends. So a deadlock has a place, and does not hold the device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "tests/gpu/gpu.h"

#define DEFINES "FK_DELAY=1 FK_BOUND=2000000000"
enum { ALL = (1 << FCP_TENSORS) - 1, TEXT = 500, RUNS = 50, RUNS_STANDIN = 3 };

static const struct { const char *mask, *lengths, *small; unsigned head_dim, ranks; } cases[] = {
    {"causal", "4000, 700", "150", 128, 1},
    {"window(w = 300)", "3000", "140", 64, 1},
    {"causal", "2000, 500", "150, 40", 128, 2},
};
enum { CASES = sizeof cases / sizeof *cases };

static void program(const gpu *g, int i, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %u; dtype = bf16 }\ncluster { nodes = 1; gpus = %u }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = 128; passes = forward, backward }\n",
             g->small ? 2 : 4, g->small ? 1 : 2, g->small ? 16 : cases[i].head_dim, cases[i].ranks,
             g->small ? cases[i].small : cases[i].lengths, cases[i].mask);
}

bool gpu_measured_shaken(gpu *g, gpu_defined_call *each, void *context) {
    char text[TEXT];
    for (int i = 0; i < CASES; i++) {
        program(g, i, text);
        if (!each(g, DEFINES, text, context)) return false;
    }
    return true;
}

static bool run_all(fcp_session *session, const fcp_plan *plan, fcp_packed *packed, char why[GPU_WHY]) {
    fcp_error err;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (fcp_session_run_packed(session, plan, (fcp_pass)pass, packed, NULL, &err)) {
            snprintf(why, GPU_WHY, "%.390s", err.message);
            return false;
        }
    return true;
}

static bool same_bits(const fcp_shape *shape, const fcp_packed *a, const fcp_packed *b, unsigned run,
                      char why[GPU_WHY]) {
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (!memcmp(a->t[t], b->t[t], fcp_packed_bytes(shape, (fcp_tensor)t))) continue;
        snprintf(why, GPU_WHY, "run %u has other bits in %s", run, fcp_tensor_name((fcp_tensor)t));
        return false;
    }
    return true;
}

static bool shake(gpu *g, const fcp_plan *plan, char why[GPU_WHY]) {
    fcp_shape shape;
    fcp_packed first = {0}, again = {0};
    fcp_session *session = NULL;
    fcp_error err = {.message = ""};
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = g->timeout_s};
    unsigned runs = g->small ? RUNS_STANDIN : RUNS;
    fcp_plan_shape(plan, &shape);
    if (g->control) g->control->plan = plan;
    bool good = !fcp_packed_alloc(&shape, ALL, &first, &err) && !fcp_packed_alloc(&shape, ALL, &again, &err);
    if (good) fcp_packed_draw(&shape, ALL, 21, &first);
    if (good) fcp_packed_draw(&shape, ALL, 21, &again);
    good = good && !fcp_session_create(plan, &options, &session, &err);
    if (!good) snprintf(why, GPU_WHY, "%.390s", err.message);
    for (unsigned run = 0; good && run < runs; run++) {
        good = run_all(session, plan, run ? &again : &first, why);
        if (good && run) good = same_bits(&shape, &first, &again, run + 1, why);
    }
    if (session && gpu_gave_up(g, session, why)) good = false;
    gpu_hung(g, session, "shaken");
    fcp_session_free(session);
    if (g->control) g->control->plan = NULL;
    fcp_packed_free(&first);
    fcp_packed_free(&again);
    return good;
}

static gpu_result shake_apart(gpu *g, void *context, gpu_answer *out) {
    char text[TEXT];
    program(g, *(int *)context, text);
    fcp_plan *plan = gpu_define(g, DEFINES, out->why) ? gpu_plan_of("shaken.fcp", text, NULL, 0, out->why) : NULL;
    bool good = plan && shake(g, plan, out->why);
    fcp_plan_free(plan);
    return good ? GPU_OK : GPU_FAILED;
}

gpu_result step_shaken(gpu *g, char why[GPU_WHY]) {
    unsigned right = 0;
    if (!getenv("GPU_CARRIED")) {
        gpu_define(g, DEFINES, why);
        return GPU_SKIPPED;
    }
    for (int i = 0; i < CASES; i++) {
        char key[40];
        gpu_answer answer;
        snprintf(key, sizeof key, "shaken/%d", i);
        journal_add(g->journal, "begin", key, "");
        gpu_run_apart(g,
                      &(gpu_apart){.name = key,
                                   .open = true,
                                   .judged = true,
                                   .most = g->small ? 3000 : 40,
                                   .work = shake_apart,
                                   .context = &i},
                      &answer);
        journal_add(g->journal, "plan", key, answer.result == GPU_OK ? "right" : answer.why);
        right += answer.result == GPU_OK;
        if (answer.result != GPU_OK) snprintf(why, GPU_WHY, "plan %d: %.400s", i, answer.why);
    }
    if (right == CASES) snprintf(why, GPU_WHY, "%u plans, %d runs each", right, g->small ? RUNS_STANDIN : RUNS);
    return right == CASES ? GPU_OK : GPU_FAILED;
}
