/* bench_run.c: measures how long the host takes to put a run into the streams of CUDA devices. The batch has a thousand
 * pieces that move between the caller's layout and the homes.
 *
 * Nothing else is measured: the driver is the stand-in (tests/machines/standin), its kernels do nothing, and the run
 * comes from a graph. So a run is the runtime's own work and some tens of calls.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/exec/tensors.h"
#include "runtime/libraries/cuda_driver.h"
#include "tests/bench/bench.h"
#include "tests/machines/standin/standin.h"

enum { TIMES = 101, RANKS = 2 };

static const char program_text[] =
    "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
    "batch { lengths = [8 x 350] }\nplan { mask = causal; block = 4K; layout = zigzag; passes = forward, backward }\n";

/* NULL: it has not been built. */
static standin *open_standin(void) {
    const char *build = getenv("B");
    char path[512];
    standin *(*get)(void);
    if (!build || !*build) build = "build";
    snprintf(path, sizeof path, "%s/standin/libcuda.so", build);
    setenv("FCP_CUDA_DRIVER", path, 1);
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL), *symbol = handle ? dlsym(handle, "standin_control") : NULL;
    snprintf(path, sizeof path, "%s/standin/libnvrtc.so", build);
    setenv("FCP_NVRTC", path, 1);
    setenv("FCP_CACHE", "/dev/null", 1);
    memcpy(&get, &symbol, sizeof get);
    return symbol ? get() : NULL;
}

/* The median of what calls of one pass take. The tensors of all ranks are on the device; *out_calls: of one run. */
static double measure(standin *x, fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, cu_stream stream,
                      long *out_calls) {
    double times[TIMES];
    fcp_error err;
    for (int i = 0; i < TIMES; i++) {
        long calls = x->calls;
        double begin = bench_now();
        if (fcp_session_run_on(session, pass, tensors, stream, &err)) {
            fprintf(stderr, "%s\n", err.message);
            return -1;
        }
        times[i] = bench_now() - begin;
        *out_calls = x->calls - calls;
        fcp_session_wait(session, &err);
    }
    return bench_median(times, TIMES);
}

static void rows(standin *x, const fcp_plan *plan, fcp_cuda *cuda, cu_stream stream) {
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 60, .graph_from = 1};
    fcp_tensors tensors[RANKS] = {0};
    cu_ptr memory[RANKS * FCP_TENSORS] = {0};
    fcp_shape shape;
    fcp_session *session = NULL;
    fcp_error err = {0};
    fcp_plan_shape(plan, &shape);
    for (uint32_t i = 0; i < RANKS * FCP_TENSORS; i++) {
        uint32_t r = i / FCP_TENSORS;
        fcp_tensor t = (fcp_tensor)(i % FCP_TENSORS);
        size_t tokens = t == FCP_TENSOR_K || t == FCP_TENSOR_V || t == FCP_TENSOR_DK || t == FCP_TENSOR_DV
                            ? fcp_plan_rank_keys(plan, r)
                            : fcp_plan_rank_queries(plan, r);
        cuda->call.allocate(&memory[i], tokens * fcp_tensor_token_bytes(&shape, t) + 16);
        fcp_tensors_set(&tensors[r], t, (void *)(uintptr_t)memory[i]);
    }
    if (fcp_session_create(plan, &options, &session, &err)) fprintf(stderr, "%s\n", err.message);
    for (int pass = 0; session && pass < FCP_PASSES; pass++) {
        char name[80], note[80];
        long calls = 0;
        double seconds = measure(x, session, (fcp_pass)pass, tensors, stream, &calls);
        snprintf(name, sizeof name, "run, 1,000 pieces, 2 ranks, %s: the host's time", pass ? "backward" : "forward");
        snprintf(note, sizeof note, "%ld calls of the driver that stands in", calls);
        bench_row(name, seconds * 1e6, "us", "<= 50 us", seconds > 0 && seconds <= 50e-6, note);
    }
    fcp_session_free(session);
    for (uint32_t i = 0; i < RANKS * FCP_TENSORS; i++) cuda->call.release(memory[i]);
}

void bench_run(void) {
    standin *x = open_standin();
    fcp_plan *plan = x ? bench_plan_of(program_text, NULL, 0) : NULL;
    fcp_cuda *cuda = NULL;
    cu_context context;
    cu_stream stream;
    fcp_error err;
    if (!x) printf("run: the driver that stands in has not been built\n");
    if (!plan) return;
    x->plan = plan;
    x->idle = x->unwatched = true;
    if (!fcp_cuda_open(&cuda, &err) && !cuda->call.context_retain(&context, 0) && !cuda->call.context_set(context) &&
        !cuda->call.stream_create(&stream, CU_STREAM_NON_BLOCKING, 0)) {
        rows(x, plan, cuda, stream);
        cuda->call.stream_destroy(stream);
        cuda->call.context_release(0);
    }
    fcp_cuda_close(cuda);
    fcp_plan_free(plan);
}
