/* recur.c: layers that recur, on the device: halos, their gradients and scans of each kind, of a small plan of several
 * ranks. Results are compared with loops over the documents in float64 (tests/support/recurrent_case.h). Rows of halos
 * are bytes, so they must be the same. Then each scan is a part of a graph, whose launches must give the same bits. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu.h"
#include "tests/support/recurrent_case.h"

enum { TEXT = 700, NUMBERS = 24, SEED = 17 };

void gpu_measured_recurrent(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    char text[TEXT];
    const int dim = g->small ? 7 : 128;
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = 1; head_dim = %d; dtype = bf16 }\ncluster { nodes = 1; gpus = 4 }\n"
             "batch { lengths = [%s] }\nplan { layers = [causal, scan(heads = 4, head_dim = %d, value_dim = %d), "
             "scan(heads = 2, head_dim = %d, value_dim = 40, decay = vector, reverse = true), "
             "scan(heads = 2, head_dim = %d, value_dim = %d, decay = matrix), halo(before = 3), "
             "halo(before = 20, after = 9)]; block = 128; passes = forward, backward; layout = zigzag }\n",
             g->small ? 16 : 128, g->small ? "300, 90" : "3000, 700, 90", dim, dim, dim, dim, dim);
    each(g, text, context);
}

/* A halo is exact; its gradient adds, for each row of the batch, the rows of halos that are of it. */
static bool run_halo(fcp_session *session, const recurrent_case *c, uint32_t layer, fcp_error *err, char why[GPU_WHY]) {
    const fcp_recurrent *x = &c->plan->recurrent[layer];
    const uint64_t width = (uint64_t)x->before + x->after;
    fcp_halo_rank halo[CASE_RANKS] = {{0}};
    fcp_halo_gradient_rank gradient[CASE_RANKS] = {{0}};
    double *sum = calloc(case_rows(c) * NUMBERS + 1, sizeof *sum);
    uint64_t random = SEED;
    bool good = sum;
    for (uint32_t r = 0; good && r < c->ranks; r++) {
        const size_t in = c->tokens[r] * NUMBERS, out = c->counts[r] * width * NUMBERS;
        float *tokens = malloc((in + 1) * sizeof *tokens), *rows = malloc((out + 1) * sizeof *rows);
        good = tokens && rows;
        halo[r] = (fcp_halo_rank){tokens, rows};
        for (size_t i = 0; good && i < in; i++) tokens[i] = case_number(&random);
        for (size_t i = 0; good && i < out; i++) rows[i] = NAN;
    }
    if (!good) snprintf(why, GPU_WHY, "out of memory");
    good = good && !fcp_session_halo(session, layer, NUMBERS * sizeof(float), halo, NULL, err);
    for (uint32_t r = 0; good && r < c->ranks; r++)
        for (uint32_t s = 0; s < c->counts[r]; s++)
            for (uint64_t n = 0; n < width; n++) {
                const int64_t row = case_halo_row(c, x, &c->of[r][s], n);
                float *is = (float *)halo[r].halo + (s * width + n) * NUMBERS;
                for (int i = 0; i < NUMBERS; i++) {
                    const case_place *at = row < 0 ? NULL : &c->at[row];
                    const float must = at ? ((const float *)halo[at->rank].x)[at->row * NUMBERS + (size_t)i] : 0;
                    if (is[i] != must) good = false;
                    if (at) sum[(size_t)row * NUMBERS + (size_t)i] += (double)(is[i] = case_number(&random));
                }
            }
    if (!good && !err->message[0] && !*why) snprintf(why, GPU_WHY, "layer %u: rows of a halo are wrong", layer);
    /* dx begins as x */
    for (uint32_t r = 0; r < c->ranks; r++) {
        const float *tokens = halo[r].x;
        for (uint64_t row = 0; good && row < case_rows(c); row++)
            for (int i = 0; i < NUMBERS && c->at[row].rank == r; i++)
                sum[row * NUMBERS + (size_t)i] += (double)tokens[c->at[row].row * NUMBERS + (size_t)i];
        gradient[r] = (fcp_halo_gradient_rank){halo[r].halo, (float *)(uintptr_t)halo[r].x};
    }
    good = good && !fcp_session_halo_gradient(session, layer, FCP_FP32, NUMBERS, gradient, NULL, err);
    for (uint64_t row = 0; good && row < case_rows(c); row++)
        for (int i = 0; good && i < NUMBERS; i++) {
            const case_place *at = &c->at[row];
            const double is = (double)((const float *)gradient[at->rank].dx)[at->row * NUMBERS + (size_t)i];
            const double must = sum[row * NUMBERS + (size_t)i];
            good = fabs(is - must) <= 1e-5 * (1 + fabs(must));
            if (!good) snprintf(why, GPU_WHY, "layer %u: the gradient of a halo is %g, not %g", layer, is, must);
        }
    for (uint32_t r = 0; r < c->ranks; r++) {
        free((void *)(uintptr_t)halo[r].x);
        free(halo[r].halo);
    }
    free(sum);
    return good;
}

/* A scan that becomes a graph: its tensors in device memory, and what entered each stretch in the call outside. */
typedef struct scan_graph {
    gpu *g;
    const recurrent_case *c;
    const case_scan *right;
    size_t bytes[3]; /* of a stretch: decay, state, entering */
    cu_ptr memory, at[CASE_RANKS][3];
    fcp_scan_rank ranks[CASE_RANKS];
    cu_graph_exec exec;
} scan_graph;

/* Copies the tensors to the device. */
static bool graph_place(scan_graph *x, char why[GPU_WHY]) {
    enum { ALIGN = 256 };
    const fcp_cuda_table *call = &x->g->cuda->call;
    size_t room = 0;
    for (uint32_t r = 0; r < x->c->ranks; r++)
        for (int t = 0; t < 3; t++) {
            x->at[r][t] = room;
            room += (x->c->counts[r] * x->bytes[t] + ALIGN) / ALIGN * ALIGN;
        }
    bool good = gpu_ok(x->g, call->allocate(&x->memory, room), why, "no memory for a scan");
    for (uint32_t r = 0; good && r < x->c->ranks; r++) {
        const float *from[] = {x->right->decay[r], x->right->state[r]};
        for (int t = 0; t < 3; t++) x->at[r][t] += x->memory;
        for (int t = 0; good && t < 2 && x->c->counts[r]; t++)
            good = gpu_ok(x->g, call->copy_in(x->at[r][t], from[t], x->c->counts[r] * x->bytes[t], x->g->stream), why,
                          "a copy of a scan's tensors");
        x->ranks[r] = (fcp_scan_rank){(const float *)(uintptr_t)x->at[r][0], (const float *)(uintptr_t)x->at[r][1],
                                      (float *)(uintptr_t)x->at[r][2]};
    }
    return good && gpu_ok(x->g, call->stream_wait(x->g->stream), why, "copies of a scan's tensors");
}

/* Captures the scan. It has been called outside before. */
static bool graph_make(scan_graph *x, fcp_session *session, uint32_t layer, fcp_pass pass, fcp_error *err,
                       char why[GPU_WHY]) {
    const fcp_cuda_table *call = &x->g->cuda->call;
    cu_graph graph = NULL;
    bool good = !fcp_session_scan(session, layer, pass, x->ranks, x->g->stream, err) && !fcp_session_wait(session, err);
    good = good && gpu_ok(x->g, call->capture_begin(x->g->stream, CU_CAPTURE_THREAD_LOCAL), why, "no capture begins");
    if (!good) return false;
    good = !fcp_session_scan(session, layer, pass, x->ranks, x->g->stream, err);
    const cu_result ended = call->capture_end(x->g->stream, &graph);
    good = good && gpu_ok(x->g, ended, why, "a captured scan does not become a graph") &&
           gpu_ok(x->g, call->graph_instantiate(&x->exec, graph, 0), why, "the graph of a scan");
    if (graph) call->graph_destroy(graph);
    return good;
}

/* Launches it, and compares. */
static bool graph_launch(scan_graph *x, uint32_t layer, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &x->g->cuda->call;
    bool good = true;
    for (uint32_t r = 0; good && r < x->c->ranks; r++)
        good = gpu_ok(x->g, call->fill(x->at[r][2], UINT32_MAX, x->c->counts[r] * x->bytes[2] / 4, x->g->stream), why,
                      "a fill");
    good = good && gpu_ok(x->g, call->graph_launch(x->exec, x->g->stream), why, "a scan's graph is not launched") &&
           gpu_ok(x->g, call->stream_wait(x->g->stream), why, "a scan's graph");
    for (uint32_t r = 0; good && r < x->c->ranks; r++) {
        const size_t bytes = x->c->counts[r] * x->bytes[2];
        float *is = malloc(bytes + 1);
        good = is && (!bytes || gpu_ok(x->g, call->copy_out(is, x->at[r][2], bytes, x->g->stream), why, "a copy")) &&
               gpu_ok(x->g, call->stream_wait(x->g->stream), why, "copies of states");
        if (good && memcmp(is, x->right->entering[r], bytes)) {
            snprintf(why, GPU_WHY, "layer %u: states of a graph have other bits than those of the call outside", layer);
            good = false;
        }
        free(is);
    }
    return good;
}

/* `right`: a scan with its result. */
static bool scan_by_graph(gpu *g, fcp_session *session, const recurrent_case *c, uint32_t layer, fcp_pass pass,
                          const case_scan *right, fcp_error *err, char why[GPU_WHY]) {
    const fcp_recurrent *l = &c->plan->recurrent[layer];
    const size_t decay = l->heads * fcp_decay_numbers(l) * sizeof(float),
                 state = l->heads * fcp_state_numbers(l) * sizeof(float);
    scan_graph x = {.g = g, .c = c, .right = right, .bytes = {decay, state, state}};
    bool good = graph_place(&x, why) && graph_make(&x, session, layer, pass, err, why);
    for (int i = 0; good && i < 2; i++) good = graph_launch(&x, layer, why);
    if (x.exec) g->cuda->call.graph_exec_destroy(x.exec);
    if (x.memory) g->cuda->call.release(x.memory);
    return good;
}

static bool run_scan(gpu *g, fcp_session *session, const recurrent_case *c, uint32_t layer, fcp_error *err,
                     char why[GPU_WHY]) {
    const fcp_recurrent *x = &c->plan->recurrent[layer];
    const size_t states = x->heads * fcp_state_numbers(x);
    bool good = true;
    for (int pass = 0; good && pass < FCP_PASSES; pass++) {
        case_scan s = case_scan_draw(c, x, SEED + layer);
        double *right = case_scan_right(c, x, fcp_scan_descends(x, (fcp_pass)pass), &s, NULL);
        good = !fcp_session_scan(session, layer, (fcp_pass)pass, s.ranks, NULL, err);
        for (uint32_t n = 0; good && n < c->total; n++)
            for (size_t i = 0; good && i < states; i++) {
                const double is = (double)s.entering[c->order[n].rank][c->order[n].number * states + i];
                const double must = right[n * states + i];
                good = fabs(is - must) <= 2e-5 * (1 + fabs(must));
                if (!good) snprintf(why, GPU_WHY, "layer %u: a state is %g, not %g", layer, is, must);
            }
        good = good && scan_by_graph(g, session, c, layer, (fcp_pass)pass, &s, err, why);
        free(right);
        case_scan_free(c, &s);
    }
    return good;
}

static bool run_layers(gpu *g, const char *text, void *context) {
    char *why = context;
    fcp_session *session = NULL;
    fcp_error err = {.message = ""};
    fcp_plan *plan = gpu_plan_of("recur.fcp", text, NULL, 0, why);
    if (!plan) return false;
    if (g->control) {
        g->control->plan = plan;
        g->control->idle = false;
    }
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = g->timeout_s};
    bool good = !fcp_session_create(plan, &options, &session, &err);
    recurrent_case c = case_of(plan);
    for (uint32_t i = 0; good && i < plan->recurrent_count; i++)
        good = plan->recurrent[i].kind == FCP_HALO ? run_halo(session, &c, i, &err, why)
                                                   : run_scan(g, session, &c, i, &err, why);
    if (!good && err.message[0]) snprintf(why, GPU_WHY, "%.390s", err.message);
    if (good && plan->recurrent_count != 5) snprintf(why, GPU_WHY, "the plan lacks layers");
    case_free(&c);
    fcp_session_free(session);
    if (g->control) g->control->plan = NULL;
    fcp_plan_free(plan);
    return good;
}

static gpu_result layers_apart(gpu *g, void *context, gpu_answer *out) {
    (void)context;
    out->why[0] = 0;
    gpu_measured_recurrent(g, run_layers, out->why);
    return out->why[0] ? GPU_FAILED : GPU_OK;
}

gpu_result gpu_recurrent(gpu *g, char why[GPU_WHY]) {
    gpu_answer answer = {.result = GPU_FAILED};
    const gpu_apart apart = {.name = "edges/layers that recur",
                             .open = true,
                             .judged = true,
                             .most = g->small ? 3000 : 45,
                             .work = layers_apart};
    gpu_run_apart(g, &apart, &answer);
    if (answer.result != GPU_OK) snprintf(why, GPU_WHY, "%.390s", answer.why);
    return answer.result;
}
