/* measure.c: measures how long things take on the device, by the device's own events: see gpu.h.
 *
 * What is timed is warm: it has run before, and was timed once to decide how often it is repeated. Each repetition
 * has an event before and after it in the stream, and the median is the figure. The second-level cache stays as the
 * repetition before leaves it, for the peers as for us. Inputs are random numbers, because zeros would run faster
 * than data.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/cuda/cuda.h"
#include "runtime/exec/tensors.h"
#include "runtime/plan/plan_summary.h"
#include "tests/gpu/gpu.h"

enum { WARM = 2, LEAST = 5, MOST = 40, NUMBERS = 1000008, ALIGN = 256 };
#define ENOUGH_MS 250.0

double gpu_median(double *values, unsigned count) {
    for (unsigned i = 1; i < count; i++)
        for (unsigned j = i; j > 0 && values[j] < values[j - 1]; j--) {
            double t = values[j];
            values[j] = values[j - 1];
            values[j - 1] = t;
        }
    return count ? values[count / 2] : 0;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static bool time_some(gpu *g, bool (*put)(gpu *, void *, char[GPU_WHY]), void *context, unsigned count, double *out_ms,
                      char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    cu_event events[MOST + 1] = {NULL};
    bool good = true;
    for (unsigned i = 0; good && i <= count; i++)
        good = gpu_ok(g, call->event_create(&events[i], 0), why, "no event that tells the time");
    if (good) good = gpu_ok(g, call->event_record(events[0], g->stream), why, "cannot record an event");
    for (unsigned i = 0; good && i < count; i++) {
        good = put(g, context, why);
        if (good) good = gpu_ok(g, call->event_record(events[i + 1], g->stream), why, "cannot record an event");
    }
    if (good) gpu_sense(g); /* while it works */
    if (good) good = gpu_ok(g, call->stream_wait(g->stream), why, "what was to be timed failed");
    for (unsigned i = 0; good && i < count; i++) {
        float ms = 0;
        good = gpu_ok(g, g->cuda->call.event_elapsed(&ms, events[i], events[i + 1]), why, "no time between two events");
        out_ms[i] = ms;
    }
    for (unsigned i = 0; i <= count; i++)
        if (events[i]) call->event_destroy(events[i]);
    return good;
}

bool gpu_time(gpu *g, bool (*put)(gpu *, void *, char[GPU_WHY]), void *context, double *out_ms, double *out_spread,
              char why[GPU_WHY]) {
    double ms[MOST] = {0};
    if (!g->cuda->call.event_elapsed) {
        snprintf(why, GPU_WHY, "the driver has no cuEventElapsedTime");
        return false;
    }
    if (!time_some(g, put, context, WARM, ms, why)) return false;
    double last = ms[WARM - 1];
    unsigned count = g->machine.standin                     ? 3
                     : last <= 0 || ENOUGH_MS / last > MOST ? MOST
                                                            : (unsigned)(ENOUGH_MS / last);
    if (!g->machine.standin && count < LEAST) count = LEAST;
    if (!time_some(g, put, context, count, ms, why)) return false;
    *out_ms = gpu_median(ms, count);
    if (out_spread) *out_spread = *out_ms > 0 ? (ms[count - 1] - ms[0]) / *out_ms : 0;
    return true;
}

/* --- tensors ------------------------------------------------------------------------------------------------------ */

/* Numbers drawn once on the host, and again and again on the device. */
static bool fill(gpu *g, const fcp_shape *shape, cu_ptr to, size_t bytes, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    fcp_shape some = *shape;
    fcp_packed packed = {0};
    fcp_error err;
    size_t drawn = (size_t)NUMBERS * 2;
    if (drawn > bytes) drawn = bytes;
    some.heads = some.kv_heads = 1;
    some.head_dim = 8;
    some.tokens = some.key_tokens = NUMBERS / 8;
    if (fcp_packed_alloc(&some, 1u << FCP_TENSOR_Q, &packed, &err)) {
        snprintf(why, GPU_WHY, "%.390s", err.message);
        return false;
    }
    fcp_packed_draw(&some, 1u << FCP_TENSOR_Q, 5, &packed);
    bool good =
        gpu_ok(g, call->copy_in(to, packed.t[FCP_TENSOR_Q], drawn, g->stream), why, "cannot copy drawn numbers");
    for (size_t done = drawn; good && done < bytes;) {
        size_t more = done < bytes - done ? done : bytes - done;
        good = gpu_ok(g, call->copy(to + done, to, more, g->stream), why, "cannot copy drawn numbers");
        done += more;
    }
    if (good) good = gpu_ok(g, call->stream_wait(g->stream), why, "cannot copy drawn numbers");
    fcp_packed_free(&packed);
    return good;
}

static bool make_tensors(measured *m, char why[GPU_WHY]) {
    gpu *g = m->g;
    for (uint32_t r = 0; r < m->shape.ranks; r++) {
        size_t queries = fcp_plan_rank_queries(m->plan, r), keys = fcp_plan_rank_keys(m->plan, r);
        size_t at[FCP_TENSORS], size = 0, inputs = 0;
        /* q, k, v, do first: these are drawn. None of these plans takes a gradient of LSE */
        static const fcp_tensor order[] = {FCP_TENSOR_Q,  FCP_TENSOR_K,   FCP_TENSOR_V,       FCP_TENSOR_DO,
                                           FCP_TENSOR_O,  FCP_TENSOR_LSE, FCP_TENSOR_LSE_LOW, FCP_TENSOR_DQ,
                                           FCP_TENSOR_DK, FCP_TENSOR_DV};
        for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
            const fcp_tensor t = order[i];
            if (t == FCP_TENSOR_O) inputs = size;
            at[t] = size;
            const size_t rows = fcp_tensor_of_keys(t) ? keys : queries;
            size += (rows * fcp_tensor_token_bytes(&m->shape, t) + ALIGN) / ALIGN * ALIGN;
        }
        if (!gpu_ok(g, g->cuda->call.allocate(&m->memory[r], size), why, "no memory for tensors") ||
            !fill(g, &m->shape, m->memory[r], inputs, why))
            return false;
        char *base = (char *)(uintptr_t)m->memory[r];
        m->tensors[r] = (fcp_tensors){.q = base + at[FCP_TENSOR_Q],
                                      .k = base + at[FCP_TENSOR_K],
                                      .v = base + at[FCP_TENSOR_V],
                                      .o = base + at[FCP_TENSOR_O],
                                      .lse = (float *)(void *)(base + at[FCP_TENSOR_LSE]),
                                      .lse_low = (float *)(void *)(base + at[FCP_TENSOR_LSE_LOW]),
                                      .d_o = base + at[FCP_TENSOR_DO],
                                      .dq = base + at[FCP_TENSOR_DQ],
                                      .dk = base + at[FCP_TENSOR_DK],
                                      .dv = base + at[FCP_TENSOR_DV]};
    }
    return true;
}

/* --- plans -------------------------------------------------------------------------------------------------------- */

typedef struct one_run {
    measured *m;
    fcp_pass pass;
} one_run;

static bool run_once(gpu *g, void *context, char why[GPU_WHY]) {
    one_run *x = context;
    fcp_error err;
    if (fcp_session_run_on(x->m->session, x->pass, x->m->tensors, g->stream, &err)) {
        snprintf(why, GPU_WHY, "%.390s", err.message);
        return false;
    }
    return true;
}

bool measured_open(gpu *g, const char *text, bool tensors, measured *m, char why[GPU_WHY]) {
    *m = (measured){.g = g};
    m->plan = gpu_plan_of("gpu-check.fcp", text, NULL, 0, why);
    if (!m->plan) return false;
    fcp_plan_shape(m->plan, &m->shape);
    const fcp_problem *p = m->plan->problem;
    double pairs = (double)m->plan->summary->pairs * (p->mask_uses & MC_USES_H ? 1 : p->heads);
    m->flops[FCP_FORWARD] = 2.0 * (p->head_dim + p->value_dim) * pairs;
    m->flops[FCP_BACKWARD] = (6.0 * p->head_dim + 4.0 * p->value_dim) * pairs;
    if (g->control) {
        g->control->plan = m->plan;
        g->control->idle = true; /* no result is looked at */
    }
    fcp_session_options options = {
        .size = sizeof options, .backend = "cuda", .graph_from = g->streams ? UINT32_MAX : 1, .timeout_s = 60,
        .mma_sync = g->older, .fuse = g->fuse};
    fcp_error err;
    if (fcp_session_create(m->plan, &options, &m->session, &err)) {
        snprintf(why, GPU_WHY, "%.390s", err.message);
        return false;
    }
    if (!tensors) return true;
    m->tensors = calloc(m->shape.ranks, sizeof *m->tensors);
    m->memory = calloc(m->shape.ranks, sizeof *m->memory);
    if (!m->tensors || !m->memory || !make_tensors(m, why)) return false;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        one_run x = {m, (fcp_pass)pass};
        if (!m->shape.has_pass[pass]) continue;
        if (!run_once(g, &x, why) || !gpu_ok(g, g->cuda->call.stream_wait(g->stream), why, "the first run failed"))
            return false;
    }
    m->filled = true;
    return true;
}

void measured_close(measured *m) {
    if (!m->g) return;
    const fcp_cuda_table *call = &m->g->cuda->call;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (m->graphs[pass]) call->graph_exec_destroy(m->graphs[pass]);
    fcp_session_free(m->session);
    call->context_set(m->g->context);
    for (uint32_t r = 0; m->memory && r < m->shape.ranks; r++)
        if (m->memory[r]) call->release(m->memory[r]);
    if (m->g->control) m->g->control->plan = NULL;
    free(m->tensors);
    free(m->memory);
    fcp_plan_free(m->plan);
    *m = (measured){0};
}

bool measured_capture(measured *m, fcp_pass pass, char why[GPU_WHY]) {
    gpu *g = m->g;
    const fcp_cuda_table *call = &g->cuda->call;
    fcp_cuda_session *s = (fcp_cuda_session *)(void *)m->session;
    cu_graph graph = NULL;
    fcp_error err;
    if (m->graphs[pass]) call->graph_exec_destroy(m->graphs[pass]);
    m->graphs[pass] = NULL;
    double begin = fcp_clock();
    if (!gpu_ok(g, call->capture_begin(s->origin, CU_CAPTURE_THREAD_LOCAL), why, "no graph can be begun")) return false;
    fcp_code code = fcp_cuda_record(s, pass, &s->devices[0], s->origin, true, &err);
    cu_result ended = call->capture_end(s->origin, &graph);
    if (code) snprintf(why, GPU_WHY, "%.390s", err.message);
    bool good = !code && gpu_ok(g, ended, why, "the pass does not become a graph") &&
                gpu_ok(g, call->graph_instantiate(&m->graphs[pass], graph, 0), why, "the graph cannot be made");
    m->recapture[pass] = fcp_clock() - begin;
    if (good && g->more.graph_nodes)
        good = gpu_ok(g, g->more.graph_nodes(graph, NULL, &m->nodes[pass]), why, "no nodes");
    if (graph) call->graph_destroy(graph);
    return good;
}

static bool launch(gpu *g, void *context, char why[GPU_WHY]) {
    return gpu_ok(g, g->cuda->call.graph_launch(*(cu_graph_exec *)context, g->stream), why,
                  "the pass cannot be launched");
}

bool measured_pass(measured *m, fcp_pass pass, double *out_ms, double *out_spread, char why[GPU_WHY]) {
    if (!m->graphs[pass] && !measured_capture(m, pass, why)) return false;
    return gpu_time(m->g, launch, &m->graphs[pass], out_ms, out_spread, why);
}

bool measured_run(measured *m, fcp_pass pass, double *out_ms, double *out_spread, char why[GPU_WHY]) {
    one_run x = {m, pass};
    return gpu_time(m->g, run_once, &x, out_ms, out_spread, why);
}
