/* test_cuda.c: tests sessions on CUDA devices through the stand-in driver: that results are right, that streams and
 * events order everything that must be ordered, and that errors are reported. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "runtime/libraries/cuda_driver.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/judge_packed.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };

/* Every pass `times` times, each judged. */
static void run_plan(standin *x, const fcp_plan *plan, uint32_t graph_from, int times, const char *what) {
    fcp_session_options options = {.size = sizeof options,
                                   .backend = "cuda",
                                   .timeout_s = 100,
                                   .graph_from = graph_from,
                                   .stage_bytes = 3000,
                                   .partition = FCP_PARTITION_GRID};
    fcp_session *session;
    fcp_shape shape;
    fcp_error err = {0};
    long live = x->live;
    x->plan = plan;
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    cr_assert_str_eq(fcp_session_backend(session), "cuda");
    cr_assert_str_eq(fcp_session_transport(session), "local");
    for (int i = 0; i < times; i++) {
        fcp_packed packed = {0};
        cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK, "%s", err.message);
        fcp_packed_draw(&shape, ALL, (uint64_t)i + 1, &packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (shape.has_pass[pass])
                cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK,
                          "%s, run %d: %s; %s", what, i, err.message, x->trouble);
        judge_packed(plan, plan->problem->passes, &packed, what);
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
    cr_assert_str_empty(x->trouble, "%s: %s", what, x->trouble);
    cr_assert_eq(x->pageable_copies, 0, "%s: the driver was asked to copy memory that is not pinned", what);
    cr_assert_eq(x->live, live, "%s: %ld objects are left", what, x->live - live);
}

Test(cuda, ranks_and_devices) {
    static const char *const masks[] = {"causal", "full", "window(w = 200)", "lambda(sink = 8, window = 100)"};
    standin *x = stand();
    for (unsigned ranks = 1; ranks <= 8; ranks++) {
        char what[80];
        if (amount(ranks == 4 || ranks == 6 || ranks == 7, false)) continue; /* others have their masks and devices */
        x->devices = 1 + (int)ranks % 3;
        x->seed = ranks;
        x->most_peers = ranks == 5; /* of the two that each of three devices has */
        fcp_plan *plan = make_plan(masks[ranks % 4], ranks, ranks % 2 ? 1 : 2, "");
        snprintf(what, sizeof what, "%s on %u ranks, %d devices", masks[ranks % 4], ranks, x->devices);
        run_plan(x, plan, UINT32_MAX, 1, what);
        fcp_plan_free(plan);
    }
    cr_assert(x->kernels > 0 && x->copies > 0 && x->peer_copies > 0 && x->graph_launches == 0);
}

/* Computing waits for each fabric's stream by itself, and what is near comes before what waits for the network. */
Test(cuda, a_slow_network) {
    static const char *const strategies[] = {"ring", "fcp(coalesce = 2)", "cad"};
    standin *x = stand();
    for (unsigned i = 0; i < 6; i++) {
        char text[600];
        const unsigned s = i / 2;
        snprintf(text, sizeof text,
                 "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\n"
                 "cluster { nodes = 2; gpus = %u; inter = 1MB/s }\nbatch { lengths = [700, 130, 60] }\n"
                 "plan { mask = %s; block = 128; strategy = %s; passes = forward, backward }\n",
                 2 + i % 2, i % 2 ? "causal" : "full", strategies[s]);
        fcp_plan *plan = plan_named("slow", text);
        x->devices = 1 + (int)i % 3;
        x->seed = 300 + i;
        run_plan(x, plan, i % 2 ? UINT32_MAX : 0, (int)amount(2, 4), text);
        fcp_plan_free(plan);
    }
}

Test(cuda, graphs) {
    standin *x = stand();
    for (unsigned ranks = 1; ranks <= 8; ranks += ranks < 3 ? 1 : 5) {
        char what[80];
        x->devices = 1 + (int)ranks % 3;
        x->seed = 77 + ranks;
        unsigned long before = x->graph_launches;
        fcp_plan *plan = make_plan("causal", ranks, ranks == 8 ? 2 : 1, "");
        snprintf(what, sizeof what, "graphs of %u ranks on %d devices", ranks, x->devices);
        const int times = (int)amount(ranks == 2 ? 3 : 2, 4);
        run_plan(x, plan, ranks == 2 ? 0 : 1, times, what);
        /* from the third run on, or all */
        cr_assert_eq(x->graph_launches - before, (unsigned long)(ranks == 2 ? times - 2 : times) * FCP_PASSES);
        fcp_plan_free(plan);
    }
}

Test(cuda, models) {
    static const char *const programs[] = {
        /* a score, in fp16, cross attention, fields; two kernels where head_dim is 256 */
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = 3 }\n"
        "batch { lengths = [200, 70] }\n"
        "plan { mask = causal; block = 128; score = softcap; passes = forward, backward }\n",
        "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = fp16 }\ncluster { nodes = 1; gpus = 2 }\n"
        "batch { lengths = [100:200, 150:40, 1:200] }\n"
        "plan { mask = causal; block = 128; passes = forward, backward }\n",
        "model { heads = 1; kv_heads = 1; head_dim = 256; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
        "batch { lengths = [150, 30] }\nplan { mask = causal; block = 128; passes = forward, backward }\n",
        "model { heads = 2; kv_heads = 1; head_dim = 32; dtype = fp16 }\ncluster { nodes = 2; gpus = 2 }\n"
        "batch { lengths = [300] }\n"
        "plan { mask = full; block = 128; layout = zigzag; strategy = zigzag; passes = forward, backward }\n",
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
        "batch { lengths = [200, 140] }\nplan { mask = causal; block = 128; passes = forward }\n",
        /* ranks without tokens */
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = 4 }\n"
        "batch { lengths = [80] }\nplan { mask = causal; layout = contiguous }\n",
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16 }\ncluster { nodes = 2; gpus = 2 }\n"
        "batch { lengths = [2:3] }\nplan { mask = full; strategy = ring; layout = zigzag }\n",
        /* queries and keys apart, in groups of ranks: within a device, and from one to the other by messages */
        "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\ncluster { nodes = 2; gpus = 2 }\n"
        "batch { lengths = [60:150, 130, 90:40, 5] }\n"
        "plan { mask = causal; block = 128; layout = zigzag(group = 2) }\n",
        "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16 }\ncluster { nodes = 1; gpus = 4 }\n"
        "batch { lengths = [260, 3, 90] }\nplan { mask = full; block = 128; layout = contiguous(group = 2) }\n",
        /* decoding: keys in parts, which are put together */
        "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
        "batch { lengths = [1:1100, 7:700, 130] }\n"
        "plan { mask = causal; block = 256; sink = 0.5; passes = forward }\n",
        /* pieces of the forward pass dealt out one by one */
        "model { heads = 55; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { gpu = a100 }\n"
        "batch { lengths = [200, 100, 60] }\nplan { mask = causal; block = 1K; passes = forward }\n"};
    standin *x = stand();
    x->devices = 2;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        fcp_plan *plan = plan_named("model", programs[i]);
        /* the first run by itself and the second as a graph; in make check every other program one of the two */
        run_plan(x, plan, amount(i % 2 ? 1 : UINT32_MAX, 2), (int)amount(1, 2), programs[i]);
        fcp_plan_free(plan);
    }
    /* an order is kept unless the program says that it need not be */
    cr_assert_eq(x->unordered, 0);
    for (int i = 0; i < 2; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "model { heads = 2; kv_heads = 1; head_dim = %d; dtype = %s }\ncluster { nodes = 1; gpus = 2 }\n"
                 "batch { lengths = [200, 70] }\n"
                 "plan { mask = causal; block = 128; deterministic = false; passes = forward, "
                 "backward }\n", i ? 256 : 32, i ? "bf16" : "fp16");
        fcp_plan *plan = plan_named("unordered", text);
        run_plan(x, plan, 2, (int)amount(1, 2), "unordered");
        cr_assert_eq(x->unordered > 0, i == 0); /* two kernels where head_dim is 256, which keep an order */
        x->unordered = 0;
        fcp_plan_free(plan);
    }
    /* where shared memory is short the backward pass is two kernels */
    x->shared = 48 << 10;
    fcp_plan *plan =
        plan_with("short",
                 "model { heads = 1; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
                 "batch { lengths = [200] }\nplan { mask = causal; block = 128; passes = forward }\n",
                 NULL, 0);
    run_plan(x, plan, 2, (int)amount(1, 2), "short");
    fcp_plan_free(plan);
}

/* Values have fewer numbers than keys: in slots, messages, partial results and gradients, whichever of them travel. */
Test(cuda, value_dim) {
    static const char *const programs[] = {
        "cluster { gpus = 3 }\nbatch { lengths = [200, 90, 40] }\n"
        "plan { mask = causal; block = 128; strategy = ring; layout = zigzag }\n",
        /* rows, running sums and dQ travel, rounded or not */
        "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [374, 60] }\n"
        "plan { mask = full; block = 128; strategy = cad(buffers = 2); wire = bf16 }\n",
        "cluster { gpus = 3 }\nbatch { lengths = [300, 130] }\n"
        "plan { mask = causal; block = 128; strategy = dcp(buffers = 3); sink = 0.5 }\n",
        /* heads apart; keys in parts; a score */
        "cluster { gpus = 2 }\nbatch { lengths = [190, 70] }\n"
        "plan { mask = causal; block = 128; strategy = ulysses; layout = contiguous }\n",
        "cluster { gpus = 2 }\nbatch { lengths = [1:1100, 7:700, 130] }\n"
        "plan { mask = causal; block = 256; passes = forward }\n",
        "cluster { gpus = 2 }\nbatch { lengths = [200, 70] }\n"
        "plan { mask = causal; block = 128; score = softcap; deterministic = false }\n",
        "cluster { gpus = 2 }\nbatch { lengths = [140, 70] }\n"
        "plan { mask = full; block = 128; strategy = ulysses; layout = zigzag; lse_gradient = true }\n"};
    standin *x = stand();
    x->devices = 2;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char text[500];
        snprintf(text, sizeof text, "model { heads = 4; kv_heads = 2; head_dim = 32; value_dim = 16; dtype = %s }\n%s",
                 strstr(programs[i], "score") ? "fp16" : "bf16", programs[i]);
        fcp_plan *plan = plan_named("value_dim", text);
        run_plan(x, plan, amount(i % 2 ? 1 : UINT32_MAX, 2), (int)amount(1, 2), text);
        fcp_plan_free(plan);
    }
}

/* Logits at which a float has no room for the logarithm of a sum: results are right where rows stay at home, where
 * their sums travel, are merged and finished, and where their keys are in parts. */
Test(cuda, far_logits) {
    static const char *const scores[] = {"0.0 * s - 2.4e38", "if k < 30 then 0.0 * s - 1.0e9 else s",
                                         "0.0 * s + 1.0e8"};
    static const struct { const char *batch, *plan; } programs[] = {
        {"cluster { gpus = 3 }\nbatch { lengths = [200, 90, 40] }", "strategy = ring; layout = zigzag"},
        {"cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [374, 60] }", "strategy = cad(buffers = 2); wire = bf16"},
        {"cluster { gpus = 3 }\nbatch { lengths = [300, 130] }", "strategy = dcp(buffers = 3); sink = 0.5"},
        {"cluster { gpus = 2 }\nbatch { lengths = [1:1100, 7:700, 130] }", "passes = forward"}};
    standin *x = stand();
    x->devices = 2;
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        for (size_t j = 0; j < sizeof scores / sizeof *scores; j++) {
            char text[500];
            if (amount((i + j) % 3 != 0, false)) continue;
            snprintf(text, sizeof text,
                     "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\n%s\nscore far = %s\n"
                     "plan { mask = causal; block = 128; score = far; %s }\n",
                     programs[i].batch, scores[j], programs[i].plan);
            fcp_plan *plan = plan_named("far", text);
            run_plan(x, plan, amount(i % 2 ? 1 : UINT32_MAX, 2), (int)amount(1, 2), text);
            fcp_plan_free(plan);
        }
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

static void refused(const fcp_plan *plan, fcp_code code, const char *part) {
    fcp_session_options options = {.size = sizeof options, .backend = "cuda"};
    fcp_session *session;
    fcp_error err = {0};
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), code, "%s", err.message);
    cr_assert(strstr(err.message, part), "\"%s\" is not in: %s", part, err.message);
}

Test(cuda, refuses) {
    standin *x = stand();
    fcp_plan *plan = make_plan("causal", 2, 1, "");
    x->plan = plan;
    x->major = 7, x->minor = 5;
    refused(plan, FCP_E_ARCH, "sm_80");
    x->major = 8, x->minor = 0;
    x->memory = 100000;
    refused(plan, FCP_E_NO_MEMORY, "ranks need");
    x->memory = (size_t)1 << 30;
    x->shared = 1000;
    refused(plan, FCP_E_BACKEND, "shared memory");
    x->shared = 166912;
    x->devices = 0;
    refused(plan, FCP_E_BACKEND, "no device");
    x->devices = 1;
    cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
    setenv("FCP_NVRTC", "/nowhere/libnvrtc.so", 1);
    setenv("FCP_CACHE", "/dev/null/none", 1);
    refused(plan, FCP_E_BACKEND, "NVRTC");
    setenv("FCP_CUDA_DRIVER", "/nowhere/libcuda.so", 1);
    refused(plan, FCP_E_BACKEND, "the CUDA driver");
    fcp_plan_free(plan);
    plan = plan_with("fp32",
                    "model { heads = 1; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { nodes = 1; gpus = 1 }\n"
                    "batch { lengths = [100] }\nplan { mask = causal; block = 128 }\n",
                    NULL, 0);
    refused(plan, FCP_E_TENSOR, "fp32");
    fcp_plan_free(plan);
    cr_assert_eq(x->live, 0);
}

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* Every call in a session's life fails once. The session ends with an error, or, if the call belongs to its end,
 * without one. Nothing is left, and nothing hangs. */
static void fail_each(standin *x, uint32_t graph_from, bool timings, int with, fcp_code code_with) {
    fcp_plan *plan = make_plan("causal", 2, 1, "");
    fcp_session_options options = {.size = sizeof options,
                                   .backend = "cuda",
                                   .timeout_s = 20,
                                   .graph_from = graph_from,
                                   .stage_bytes = 8192,
                                   .timings = timings};
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err;
    const long step = (long)amount(9, 3);
    long at = 1, last = 0, failures = 0;
    x->plan = plan;
    x->idle = true;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    for (bool done = false; !done; at += at < 60 ? 1 : (at % 3 + 1) * step) {
        fcp_session *session = NULL;
        bool failed = false;
        x->seed = (uint64_t)at;
        x->calls = 0;
        x->fail_at = at;
        x->fail_with = with;
        err = (fcp_error){0};
        fcp_code code = fcp_session_create(plan, &options, &session, &err);
        for (int pass = 0; !code && pass < FCP_PASSES; pass++)
            code = fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err);
        failed = code != FCP_OK;
        if (failed) {
            failures++;
            cr_assert(err.message[0] && (code == code_with || code == FCP_E_BACKEND), "call %ld: %d: %s", at, code,
                      err.message);
        }
        if (failed && session) {
            fcp_error again;
            fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &again);
        }
        fcp_session_free(session);
        cr_assert_eq(x->live, 0, "call %ld of %ld: %ld objects are left; %s", at, x->calls, x->live, err.message);
        cr_assert_str_empty(x->trouble, "call %ld: %s", at, x->trouble);
        last = x->calls;
        done = last < at; /* there was no such call */
    }
    cr_assert(failures > (long)amount(80, 100), "%ld", failures);
    x->fail_at = 0;
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}
/* A process has 32 queues to a device, unless its user wants another number. */
Test(cuda, queues) {
    standin *x = stand();
    for (int own = 0; own < 2; own++) {
        fcp_cuda *cuda = NULL;
        fcp_error err;
        if (own) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "1", 1);
        else unsetenv("CUDA_DEVICE_MAX_CONNECTIONS");
        cr_assert_eq(fcp_cuda_open(&cuda, &err), FCP_OK, "%s", err.message);
        cr_assert_eq(x->connections, own ? 1 : 32);
        fcp_cuda_close(cuda);
    }
}

Test(cuda, every_call_fails) {
    standin *x = stand();
    x->devices = 2;
    fail_each(x, UINT32_MAX, false, 719, FCP_E_RUN);
}
Test(cuda, every_call_fails_in_graphs) {
    standin *x = stand();
    x->devices = 2;
    fail_each(x, 1, false, CU_ERROR_OUT_OF_MEMORY, FCP_E_NO_MEMORY);
}
Test(cuda, every_call_fails_while_it_is_timed) {
    standin *x = stand();
    x->devices = 2;
    fail_each(x, 1, true, CU_ERROR_OUT_OF_MEMORY, FCP_E_NO_MEMORY);
}

/* An error in a launch says where it is. After it the session refuses to run. A device that makes no progress is not
 * waited for. */
Test(cuda, says_where) {
    standin *x = stand();
    fcp_plan *plan = make_plan("causal", 3, 1, "");
    fcp_session_options options = {
        .size = sizeof options, .backend = "cuda", .timeout_s = 1, .graph_from = UINT32_MAX, .stage_bytes = 8192};
    fcp_shape shape;
    fcp_session *session;
    fcp_packed packed = {0};
    fcp_error err = {0};
    unsigned named = 0;
    x->plan = plan;
    x->idle = true;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    long begin = x->calls;
    cr_assert_eq(fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &err), FCP_OK, "%s", err.message);
    long calls = x->calls - begin;
    fcp_session_free(session);
    for (long i = 1; i < calls; i += amount(7, 5)) {
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
        x->fail_at = x->calls + i;
        x->fail_with = 719;
        fcp_code code = fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &err);
        if (code)
            named +=
                strstr(err.message, "rank ") && strstr(err.message, "stage ") && strstr(err.message, "instruction ");
        fcp_session_free(session);
    }
    cr_assert(named > 5, "%u errors name their place", named);
    x->fail_at = 0;
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    x->stall = true;
    cr_assert_eq(fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &err), FCP_E_RUN);
    cr_assert(strstr(err.message, "did not end within 1 s"), "%s", err.message);
    x->stall = false;
    x->lost = true; /* its host memory is gone */
    cr_assert_eq(fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &err), FCP_E_RUN);
    cr_assert(strstr(err.message, "a new one is needed"), "%s", err.message);
    fcp_session_free(session);
    cr_assert_eq(x->live, 0);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

/* --- callers' device memory and streams --------------------------------------------------------------------------- */

typedef struct caller {
    fcp_cuda *cuda;
    cu_context context[2];
    fcp_tensors tensors[4];
    cu_ptr memory[4];
    size_t bytes[4];
    cu_stream stream;
} caller;

/* Drawn tensors of every rank, in memory of a device that is not the rank's. Outputs hold NaN. */
static void open_caller(caller *c, const fcp_plan *plan) {
    fcp_error err;
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    memset(c, 0, sizeof *c);
    cr_assert_eq(fcp_cuda_open(&c->cuda, &err), FCP_OK, "%s", err.message);
    for (int d = 0; d < 2; d++) cr_assert_eq(c->cuda->call.context_retain(&c->context[d], d), 0);
    for (uint32_t r = 0; r < shape.ranks; r++) {
        size_t queries = fcp_plan_rank_queries(plan, r), keys = fcp_plan_rank_keys(plan, r);
        size_t at[FCP_TENSORS], size = 0;
        for (int t = 0; t < FCP_TENSORS; t++) {
            at[t] = size;
            const size_t rows = fcp_tensor_of_keys((fcp_tensor)t) ? keys : queries;
            size += (rows * fcp_tensor_token_bytes(&shape, (fcp_tensor)t) + 63) / 64 * 64;
        }
        const size_t maxima = size;
        size += (shape.heads * sizeof(float) + 63) / 64 * 64;
        c->bytes[r] = size;
        cr_assert_eq(c->cuda->call.context_set(c->context[(r + 1) % 2]), 0);
        cr_assert_eq(c->cuda->call.allocate(&c->memory[r], size), 0);
        char *m = (char *)(uintptr_t)c->memory[r]; /* host memory, as it happens */
        for (size_t i = 0; i < size / 2; i++) {
            uint16_t small = (uint16_t)(0x3c00 + (i * 7 + r) % 512) | (uint16_t)(i % 3 ? 0 : 0x8000);
            memcpy(m + 2 * i, &small, 2);
        }
        c->tensors[r] = (fcp_tensors){.q = m + at[FCP_TENSOR_Q], .k = m + at[FCP_TENSOR_K], .v = m + at[FCP_TENSOR_V],
                                      .o = m + at[FCP_TENSOR_O], .lse = (float *)(void *)(m + at[FCP_TENSOR_LSE]),
                                      .d_o = m + at[FCP_TENSOR_DO], .dq = m + at[FCP_TENSOR_DQ],
                                      .dk = m + at[FCP_TENSOR_DK], .dv = m + at[FCP_TENSOR_DV],
                                      .lse_low = (float *)(void *)(m + at[FCP_TENSOR_LSE_LOW]),
                                      .max_logit = (float *)(void *)(m + maxima)};
    }
    cr_assert_eq(c->cuda->call.context_set(c->context[1]), 0);
    cr_assert_eq(c->cuda->call.stream_create(&c->stream, CU_STREAM_NON_BLOCKING, 0), 0);
}

static void close_caller(caller *c) {
    cr_assert_eq(c->cuda->call.stream_destroy(c->stream), 0);
    for (int r = 0; r < 4; r++)
        if (c->memory[r]) cr_assert_eq(c->cuda->call.release(c->memory[r]), 0);
    for (int d = 0; d < 2; d++) cr_assert_eq(c->cuda->call.context_release(d), 0);
    fcp_cuda_close(c->cuda);
}

/* Device memory and a stream of the caller's give the bits that host memory gives; runs on different streams follow
 * each other; what is foreign or unaligned is refused before anything is put into a stream. */
Test(cuda, callers_memory) {
    standin *x = stand();
    x->devices = 2;
    fcp_plan *plan = make_plan("causal", 3, 1, "");
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 20};
    fcp_session *session;
    fcp_error err;
    caller c;
    x->plan = plan;
    open_caller(&c, plan);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    cu_context context;
    cr_assert(c.cuda->call.context_get(&context) == 0 && context == c.context[1], "the caller's context has changed");
    char *inputs[4];
    fcp_tensors host[4] = {0};
    for (int r = 0; r < 3; r++) {
        inputs[r] = malloc(c.bytes[r]);
        memcpy(inputs[r], (void *)(uintptr_t)c.memory[r], c.bytes[r]);
#define MOVED(member)                                                                                                  \
    host[r].member = (void *)(inputs[r] + ((const char *)c.tensors[r].member - (const char *)(uintptr_t)c.memory[r]))
        MOVED(q), MOVED(k), MOVED(v), MOVED(o), MOVED(lse), MOVED(lse_low), MOVED(max_logit);
        MOVED(d_o), MOVED(dq), MOVED(dk), MOVED(dv);
    }
    for (int i = 0; i < 4; i++) {
        unsigned long copied = x->host_copies;
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert_eq(i % 2 ? fcp_session_run(session, (fcp_pass)pass, c.tensors, &err)
                               : fcp_session_run_on(session, (fcp_pass)pass, c.tensors, c.stream, &err), FCP_OK,
                               "%s; %s",
                         err.message, x->trouble);
        cr_assert_eq(x->host_copies, copied, "device memory went through the host");
        cr_assert(c.cuda->call.context_get(&context) == 0 && context == c.context[1],
                  "the caller's context has changed");
    }
    cr_assert_eq(c.cuda->call.stream_wait(c.stream), 0, "%s", x->trouble);
    for (x->pageable = 0; x->pageable < 5; x->pageable = x->pageable ? x->pageable + 1 : 3) /* by HMM or ATS: 3, 4 */
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert_eq(fcp_session_run(session, (fcp_pass)pass, host, &err), FCP_OK, "%s", err.message);
    x->pageable = 0;
    for (int r = 0; r < 3; r++)
        cr_assert(!memcmp(inputs[r], (void *)(uintptr_t)c.memory[r], c.bytes[r]), "rank %d: other bits", r);
    cr_assert_eq(x->pageable_copies, 0);
    /* the default streams of the caller's context, which is not that of the session's own stream */
    for (uintptr_t handle = CU_DEFAULT_LEGACY; handle <= CU_DEFAULT_PER_THREAD; handle++) {
        cu_stream stream;
        memcpy(&stream, &handle, sizeof stream);
        cr_assert_eq(c.cuda->call.fill((cu_ptr)(uintptr_t)c.tensors[0].o, 0, 4, stream), 0); /* o is on that device */
        cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, c.tensors, stream, &err), FCP_OK, "%s; %s", err.message,
                     x->trouble);
        cr_assert(c.cuda->call.context_get(&context) == 0 && context == c.context[1],
                  "the caller's context has changed");
        cr_assert_eq(c.cuda->call.fill((cu_ptr)(uintptr_t)c.tensors[0].dq, 0, 4, stream), 0);
        cr_assert_eq(fcp_session_run_on(session, FCP_BACKWARD, c.tensors, stream, &err), FCP_OK, "%s; %s", err.message,
                     x->trouble);
        cr_assert_eq(c.cuda->call.stream_wait(stream), 0, "%s", x->trouble);
        for (int r = 0; r < 3; r++)
            cr_assert(!memcmp(inputs[r], (void *)(uintptr_t)c.memory[r], c.bytes[r]),
                      "rank %d: other bits on a default stream", r);
    }
    cr_assert_eq(c.cuda->call.context_set(NULL), 0);
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, c.tensors, (void *)(uintptr_t)CU_DEFAULT_LEGACY, &err),
                 FCP_E_RUN);
    cr_assert_eq(c.cuda->call.context_set(c.context[1]), 0);
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, c.tensors, NULL, &err), FCP_E_ARGUMENT);
    cr_assert(strstr(err.message, "CU_STREAM_LEGACY"), "%s", err.message);
    /* host memory that is pinned is copied directly */
    void *pinned[4] = {0};
    unsigned long staged = x->host_copies, direct;
    for (int r = 0; r < 3; r++) {
        cr_assert_eq(c.cuda->call.allocate_host(&pinned[r], c.bytes[r], CU_HOST_PORTABLE | CU_HOST_DEVICEMAP), 0);
        memcpy(pinned[r], inputs[r], c.bytes[r]);
        memset((char *)pinned[r] + ((char *)c.tensors[r].o - (char *)(uintptr_t)c.memory[r]), 0, 64);
        free(inputs[r]);
        inputs[r] = pinned[r];
        MOVED(q), MOVED(k), MOVED(v), MOVED(o), MOVED(lse), MOVED(lse_low), MOVED(max_logit);
        MOVED(d_o), MOVED(dq), MOVED(dk), MOVED(dv);
    }
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, host, c.stream, &err), FCP_OK, "%s", err.message);
    direct = x->host_copies - staged;
    cr_assert(direct > 0);
    for (int r = 0; r < 3; r++)
        cr_assert(!memcmp(inputs[r], (void *)(uintptr_t)c.memory[r], c.bytes[r]), "rank %d: other bits", r);
    /* refused */
    fcp_tensors wrong[4];
    memcpy(wrong, c.tensors, sizeof wrong);
    wrong[1].q = (const char *)wrong[1].q + 2;
    unsigned long kernels = x->kernels;
    cr_assert_eq(fcp_session_run(session, FCP_FORWARD, wrong, &err), FCP_E_TENSOR);
    cr_assert(strstr(err.message, "rank 1: tensor q") && strstr(err.message, "multiple of 4"), "%s", err.message);
    cr_assert(x->kernels == kernels);
    cr_assert_eq(fcp_session_run(session, FCP_FORWARD, c.tensors, &err), FCP_OK, "a refusal breaks nothing: %s",
                 err.message);
    /* a rank's rows of a larger LSE begin where they do: after 3 heads of some tokens, say */
    memcpy(wrong, c.tensors, sizeof wrong);
    wrong[1].lse = (float *)c.tensors[1].dq + 1;
    cr_assert_eq(fcp_session_run(session, FCP_FORWARD, wrong, &err), FCP_OK, "%s", err.message);
    const size_t lse_bytes = (size_t)fcp_plan_rank_queries(plan, 1) * plan->problem->heads * sizeof(float);
    cr_assert(!memcmp(wrong[1].lse, c.tensors[1].lse, lse_bytes), "LSE at an odd place has other bits");
    wrong[1].lse = c.tensors[1].lse;
    wrong[1].q = (const char *)c.tensors[1].q + 16; /* as long as before, in memory that ends where the tensors do */
    wrong[1].dv = (char *)(uintptr_t)c.memory[1] + c.bytes[1] - 64;
    x->idle = true;
    cr_assert_eq(fcp_session_run(session, FCP_FORWARD, wrong, &err), FCP_OK, "%s",
                 err.message); /* q is inside, wherever */
    cr_assert_eq(fcp_session_run(session, FCP_BACKWARD, wrong, &err), FCP_E_TENSOR);
    cr_assert(strstr(err.message, "rank 1: tensor dv of ") && strstr(err.message, "ends after"), "%s", err.message);
    x->foreign = true;
    cr_assert_eq(fcp_session_run(session, FCP_FORWARD, c.tensors, &err), FCP_E_TENSOR);
    cr_assert(strstr(err.message, "rank 0: tensor q is of another context"), "%s", err.message);
    x->foreign = false;
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, c.tensors, c.stream, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(c.cuda->call.stream_wait(c.stream), 0, "%s", x->trouble);
    x->idle = false;
    fcp_session_free(session);
    /* a session of one device */
    fcp_plan *small = make_plan("causal", 1, 1, "");
    x->plan = small;
    cr_assert_eq(fcp_session_create(small, &options, &session, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, host, c.stream, &err), FCP_E_ARGUMENT);
    cr_assert(strstr(err.message, "the stream is not of"), "%s", err.message);
    cr_assert_eq(fcp_session_run(session, FCP_FORWARD, c.tensors, &err), FCP_E_TENSOR); /* rank 0's lie on device 1 */
    cr_assert(strstr(err.message, "is on device 1"), "%s", err.message);
    fcp_session_free(session);
    for (int r = 0; r < 3; r++) cr_assert_eq(c.cuda->call.release_host(pinned[r]), 0);
    close_caller(&c);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0, "%ld", x->live);
    fcp_plan_free(small);
    fcp_plan_free(plan);
}

/* --- graphs of the caller's --------------------------------------------------------------------------------------- */

/* Captures both passes on a stream into a graph. */
static cu_graph_exec capture_both(caller *c, fcp_session *session, cu_stream stream) {
    const fcp_cuda_table *call = &c->cuda->call;
    cu_graph graph;
    cu_graph_exec exec;
    fcp_error err;
    cr_assert_eq(call->capture_begin(stream, 0), 0);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_on(session, (fcp_pass)pass, c->tensors, stream, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(call->capture_end(stream, &graph), 0, "streams have joined the capture and not come back");
    cr_assert_eq(call->graph_instantiate(&exec, graph, 0), 0);
    cr_assert_eq(call->graph_destroy(graph), 0);
    return exec;
}

/* A run is refused while the stream is captured, and the capture goes on. */
static void refused_in_a_capture(caller *c, fcp_session *session, const fcp_tensors *tensors, cu_stream stream,
                                 fcp_code code, const char *part) {
    cu_graph graph;
    fcp_error err;
    cr_assert_eq(c->cuda->call.capture_begin(stream, CU_CAPTURE_THREAD_LOCAL), 0);
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, tensors, stream, &err), code);
    cr_assert(strstr(err.message, "is being captured") && strstr(err.message, part), "%s", err.message);
    cr_assert_eq(c->cuda->call.capture_end(stream, &graph), 0, "the caller's capture is spoiled");
    cr_assert_eq(c->cuda->call.graph_destroy(graph), 0);
}

/* Clears what passes write. They come in the order of fcp_tensors, with d_o among them. */
static void clear_outputs(caller *c, uint32_t ranks) {
    for (uint32_t r = 0; r < ranks; r++) {
        char *begin = (char *)(uintptr_t)c->memory[r];
        memset(c->tensors[r].o, 0, (size_t)((const char *)c->tensors[r].d_o - (char *)c->tensors[r].o));
        memset(c->tensors[r].dq, 0, c->bytes[r] - (size_t)((char *)c->tensors[r].dq - begin));
    }
}

/* Do the caller's tensors hold these bytes? They are cleared for the next run. */
static void expect_same(caller *c, char *const *want, uint32_t ranks, const char *what) {
    for (uint32_t r = 0; r < ranks; r++)
        cr_assert(!memcmp(want[r], (void *)(uintptr_t)c->memory[r], c->bytes[r]), "rank %u: other bits %s", r, what);
    clear_outputs(c, ranks);
}

/* A captured run gives the bits that it gives outside, in each launch; launches and other runs follow each other
 * though they are on different streams. What a graph cannot have is refused, and spoils no capture. */
static void in_graphs_of(int device, bool own_sinks) {
    standin *x = stand();
    x->devices = 2;
    fcp_plan *plan = make_plan("causal", 3, 1, "; sink = 0.5");
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 20};
    fcp_session *session;
    fcp_error err;
    caller c;
    cu_stream stream;
    cu_ptr sinks = 0;
    char *want[3], *host = calloc(1, 4096);
    x->plan = plan;
    open_caller(&c, plan);
    const fcp_cuda_table *call = &c.cuda->call;
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(call->context_set(c.context[device]), 0);
    cr_assert_eq(call->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0), 0);
    cr_assert_eq(call->allocate(&sinks, 4096), 0);
    memset((void *)(uintptr_t)sinks, 0, 4096);
    clear_outputs(&c, 3);
    refused_in_a_capture(&c, session, c.tensors, stream, FCP_E_ARGUMENT, "once outside the capture");
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run(session, (fcp_pass)pass, c.tensors, &err), FCP_OK, "%s", err.message);
    for (int r = 0; r < 3; r++) {
        want[r] = malloc(c.bytes[r]);
        memcpy(want[r], (void *)(uintptr_t)c.memory[r], c.bytes[r]);
    }
    clear_outputs(&c, 3);
    for (int r = 0; own_sinks && r < 3; r++) c.tensors[r].sink = (const float *)(uintptr_t)sinks;
    cu_graph_exec exec = capture_both(&c, session, stream);
    for (int i = 0; i < (int)amount(2, 3); i++) { /* nothing but the session's order keeps these apart */
        cr_assert_eq(call->graph_launch(exec, stream), 0);
        for (int r = 0; r < 3; r++) c.tensors[r].sink = NULL;
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert_eq(fcp_session_run_on(session, (fcp_pass)pass, c.tensors, c.stream, &err), FCP_OK, "%s",
                         err.message);
        cr_assert_eq(fcp_session_wait(session, &err), FCP_OK, "%s; %s", err.message, x->trouble);
        cr_assert_eq(call->stream_wait(stream), 0, "%s", x->trouble);
        cr_assert_eq(call->stream_wait(c.stream), 0, "%s", x->trouble);
        expect_same(&c, want, 3, "of a run after a launch");
    }
    for (int r = 0; r < 3; r++) c.tensors[r].sink = own_sinks ? NULL : (const float *)(uintptr_t)sinks;
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, c.tensors, c.stream, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(call->graph_launch(exec, stream), 0);
    cr_assert_eq(call->stream_wait(stream), 0, "%s", x->trouble);
    if (own_sinks) cr_assert(memcmp(want[0], (void *)(uintptr_t)c.memory[0], c.bytes[0]), "the sinks change nothing");
    else expect_same(&c, want, 3, "of a launch");
    cr_assert_eq(call->graph_exec_destroy(exec), 0);

    fcp_tensors wrong[3];
    memcpy(wrong, c.tensors, sizeof wrong);
    wrong[1].q = host;
    refused_in_a_capture(&c, session, wrong, stream, FCP_E_TENSOR, "in host memory");
    cr_assert_eq(fcp_session_run_on(session, FCP_FORWARD, c.tensors, stream, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(fcp_session_wait(session, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(call->stream_destroy(stream), 0);
    cr_assert_eq(call->release(sinks), 0);
    fcp_session_free(session);
    close_caller(&c);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0, "%ld", x->live);
    for (int r = 0; r < 3; r++) free(want[r]);
    free(host);
    fcp_plan_free(plan);
}

Test(cuda, callers_graphs) {
    in_graphs_of(0, false);
    in_graphs_of(1, true);
}
