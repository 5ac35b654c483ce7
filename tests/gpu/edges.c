/* edges.c: tests what few programs have:
 *   - other sizes of heads, and values with a width of their own
 *   - logits far from 0
 *   - a gradient of LSE
 *   - sequences without queries or keys
 *   - the largest logits, which a run gives if it is asked for them
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/packed.h"
#include "tests/gpu/gpu.h"

enum { TEXT = 700, SEED = 41 };

/* On a stand-in heads have 16 numbers, or 32 where values have fewer. */
static const struct {
    const char *name;
    unsigned head_dim, value_dim, ranks;
    const char *dtype, *lengths, *small, *score, *more; /* score: its definition; it is called x */
} programs[] = {
    {"192/128", 192, 128, 2, "bf16", "700, 300", "150, 40", "", "; layout = zigzag"},
    {"192/128, a sink", 192, 128, 4, "fp16", "900, 40", "130, 40", "", "; strategy = ring; sink = 1.5"},
    {"head_dim 96", 96, 96, 2, "bf16", "700, 300", "150, 40", "", ""},
    {"head_dim 192", 192, 192, 2, "fp16", "700, 300", "150, 40", "", "; deterministic = false"},
    {"128/64, a score", 128, 64, 2, "bf16", "700, 300", "150, 40", "score x = 20.0 * tanh(s / 20.0)", "; score = x"},
    /* all logits of a row the same: a float tells no others apart there, and an exact answer is known */
    {"logits of -1e9", 128, 128, 2, "bf16", "700, 300", "150, 40", "score x = 0.0 * s - 1.0e9", "; score = x"},
    {"logits of -2.4e38", 128, 128, 2, "fp16", "700, 300", "150, 40", "score x = 0.0 * s - 2.4e38", "; score = x"},
    {"logits of 2.4e38", 64, 64, 4, "bf16", "700, 300", "150, 40", "score x = 0.0 * s + 2.4e38",
     "; score = x; strategy = ring"},
    {"some keys at -1e9", 128, 128, 2, "bf16", "700, 300", "150, 40",
     "score x = if k < 20 then 0.0 * s - 1.0e9 else s", "; score = x"},
    {"large logits", 128, 128, 2, "bf16", "700, 300", "150, 40", "score x = 100.0 * s", "; score = x"},
    {"a gradient of LSE", 128, 128, 4, "bf16", "700, 300", "150, 40", "",
     "; lse_gradient = true; layout = contiguous; sink = 0.5"},
    {"no queries, no keys", 128, 128, 2, "bf16", "0, 500, 0:70, 70:0", "0, 130, 0:7, 7:0", "", "; layout = zigzag"},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static void program(const gpu *g, int i, char text[TEXT]) {
    const bool apart = programs[i].head_dim != programs[i].value_dim;
    const char *tiny = *programs[i].score ? "fp16" : "bf16"; /* fibers have these, where values have fewer numbers */
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %u; value_dim = %u; dtype = %s }\n"
             "cluster { nodes = 1; gpus = %u }\nbatch { lengths = [%s] }\n%s\n"
             "plan { mask = causal; block = 128; passes = forward, backward%s }\n",
             g->small ? 2 : 4, g->small ? 1 : 2, !g->small ? programs[i].head_dim : apart ? 32 : 16,
             g->small ? 16 : programs[i].value_dim, g->small && apart ? tiny : programs[i].dtype,
             g->small ? 2 : programs[i].ranks, g->small ? programs[i].small : programs[i].lengths, programs[i].score,
             programs[i].more);
}

bool gpu_correct_edges(gpu *g, bool (*each)(gpu *g, fcp_plan *plan, const char *what, void *context), void *context,
                       char why[GPU_WHY]) {
    for (int i = 0; i < PROGRAMS; i++) {
        char text[TEXT], name[80];
        program(g, i, text);
        fcp_plan *plan = gpu_plan_of("edges.fcp", text, NULL, 0, why);
        if (!plan) return false;
        snprintf(name, sizeof name, "edge: %s", programs[i].name);
        bool more = each(g, plan, name, context);
        fcp_plan_free(plan);
        if (!more) break;
    }
    return true;
}

/* --- the largest logits ------------------------------------------------------------------------------------------- */

enum { HEADS = 4, SHARED = 2, DIM = 128, SMALL_DIM = 16, QUERIES = 300, SMALL_QUERIES = 140 };

void gpu_measured_maxima(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    char text[TEXT];
    snprintf(text, sizeof text,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
             "batch { lengths = [%d] }\nplan { mask = full; block = 128; layout = contiguous; sink = 100.0 }\n",
             HEADS, HEADS / SHARED, g->small ? SMALL_DIM : DIM, g->small ? SMALL_QUERIES : QUERIES);
    each(g, text, context);
}

/* The largest logit of a head, by definition. */
static double largest(const fcp_shape *shape, const fcp_packed *packed, uint32_t head) {
    const uint16_t *q = packed->t[FCP_TENSOR_Q], *k = packed->t[FCP_TENSOR_K];
    double most = -INFINITY;
    for (uint64_t i = 0; i < shape->tokens; i++)
        for (uint64_t j = 0; j < shape->key_tokens; j++) {
            double sum = 0;
            for (uint32_t n = 0; n < shape->head_dim; n++)
                sum += (double)fcp_bf16_float(q[(i * shape->heads + head) * shape->head_dim + n]) *
                       (double)fcp_bf16_float(k[(j * shape->kv_heads + head / SHARED) * shape->head_dim + n]);
            most = fmax(most, shape->scale * sum);
        }
    return most;
}

/* Two runs that want the largest logits and two that do not: stream by stream, and as graphs. */
static bool run_maxima(gpu *g, const char *text, void *context) {
    char *why = context;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_session *session = NULL;
    fcp_error err = {.message = ""};
    fcp_plan *plan = gpu_plan_of("maxima.fcp", text, NULL, 0, why);
    if (!plan) return false;
    fcp_plan_shape(plan, &shape);
    if (g->control) {
        g->control->plan = plan;
        g->control->idle = false;
    }
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .graph_from = 2,
                                         .timeout_s = g->timeout_s};
    bool good = !fcp_packed_alloc(&shape, (1u << FCP_TENSORS) - 1, &packed, &err);
    if (good) fcp_packed_draw(&shape, (1u << FCP_TENSORS) - 1, SEED, &packed);
    good = good && !fcp_session_create(plan, &options, &session, &err);
    for (int run = 0; good && run < 4; run++) {
        float found[HEADS] = {99, 99, 99, 99};
        const fcp_tensors tensors = {.q = packed.t[FCP_TENSOR_Q], .k = packed.t[FCP_TENSOR_K],
                                     .v = packed.t[FCP_TENSOR_V], .o = packed.t[FCP_TENSOR_O],
                                     .lse = packed.t[FCP_TENSOR_LSE], .max_logit = run % 2 ? NULL : found};
        good = !fcp_session_run(session, FCP_FORWARD, &tensors, &err);
        for (uint32_t h = 0; good && run % 2 == 0 && h < HEADS; h++) {
            const double want = largest(&shape, &packed, h);
            good = fabs((double)found[h] - want) <= 1e-5 * fabs(want);
            if (!good) snprintf(why, GPU_WHY, "the largest logit of head %u is %g, not %g", h, (double)found[h], want);
        }
    }
    if (!good && err.message[0]) snprintf(why, GPU_WHY, "%.390s", err.message);
    fcp_session_free(session);
    if (g->control) g->control->plan = NULL;
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
    return good;
}

static gpu_result maxima_apart(gpu *g, void *context, gpu_answer *out) {
    (void)context;
    out->why[0] = 0;
    gpu_measured_maxima(g, run_maxima, out->why);
    return out->why[0] ? GPU_FAILED : GPU_OK;
}

gpu_result gpu_maxima(gpu *g, char why[GPU_WHY]) {
    gpu_answer answer = {.result = GPU_FAILED};
    const gpu_apart apart = {.name = "edges/maxima",
                             .open = true,
                             .judged = true,
                             .most = g->small ? 3000 : 45,
                             .work = maxima_apart};
    gpu_run_apart(g, &apart, &answer);
    if (answer.result != GPU_OK) snprintf(why, GPU_WHY, "%.390s", answer.why);
    return answer.result;
}
