/* fills.c: measures what it costs a device to write a word of host memory. A pass says in this way how far it has come
 * (runtime/cuda/marks.c). There are two ways to write it, a fill and a write by the stream itself; both are measured in
 * a stream and in a graph. For comparison, a fill of the device's own memory is measured, too.
 */
#include <stdio.h>

#include "tests/gpu/gpu.h"

enum { COUNT = 64 }; /* one after another; a row is the time of one */

typedef struct writes {
    cu_ptr to;
    bool by_stream; /* cuStreamWriteValue32 */
    cu_graph_exec graph;
} writes;

static bool put(gpu *g, void *context, char why[GPU_WHY]) {
    const writes *w = context;
    for (unsigned i = 0; i < COUNT; i++) {
        cu_result result = w->by_stream ? g->cuda->call.write_word(g->stream, w->to, i, 0)
                                        : g->cuda->call.fill(w->to, i, 1, g->stream);
        if (!gpu_ok(g, result, why, "a word cannot be written")) return false;
    }
    return true;
}

static bool launch(gpu *g, void *context, char why[GPU_WHY]) {
    const writes *w = context;
    return gpu_ok(g, g->cuda->call.graph_launch(w->graph, g->stream), why, "the graph cannot be launched");
}

/* Makes a graph of them. */
static bool capture(gpu *g, writes *w, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    char later[GPU_WHY];
    cu_graph graph = NULL;
    if (!gpu_ok(g, call->capture_begin(g->stream, CU_CAPTURE_THREAD_LOCAL), why, "no graph can be begun")) return false;
    bool good = put(g, w, why);
    good = gpu_ok(g, call->capture_end(g->stream, &graph), good ? why : later, "they do not become a graph") && good;
    good = good && gpu_ok(g, call->graph_instantiate(&w->graph, graph, 0), why, "the graph cannot be made");
    if (graph) call->graph_destroy(graph);
    return good;
}

static void row(gpu *g, const char *what, const char *where, double ms) {
    char name[80];
    snprintf(name, sizeof name, "%s, in a %s", what, where);
    const gpu_row r = gpu_row_of(name, 1e3 * ms / COUNT, "us", "one of 64, one after another");
    gpu_row_put(g, &r);
}

/* What a driver refuses has no row, and `refused` says so. */
static void measure(gpu *g, const char *what, writes w, char refused[GPU_WHY]) {
    char why[GPU_WHY] = "";
    double ms = 0;
    bool good = gpu_time(g, put, &w, &ms, NULL, why);
    if (good) row(g, what, "stream", ms);
    good = good && capture(g, &w, why) && gpu_time(g, launch, &w, &ms, NULL, why);
    if (good) row(g, what, "graph", ms);
    if (w.graph) g->cuda->call.graph_exec_destroy(w.graph);
    if (!good) snprintf(refused, GPU_WHY, "; %s: %.300s", what, why);
}

gpu_result step_fills(gpu *g, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    void *host = NULL;
    cu_ptr seen = 0, own = 0;
    char refused[GPU_WHY] = "";
    if (gpu_row_done(g, "fill of device memory, in a stream")) return GPU_OK;
    bool good = gpu_ok(g, call->allocate_host(&host, 4, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP), why, "no host memory") &&
                gpu_ok(g, call->device_pointer(&seen, host, 0), why, "no address of host memory") &&
                gpu_ok(g, call->allocate(&own, 4), why, "no memory");
    if (good) {
        measure(g, "fill of host memory", (writes){.to = seen}, refused);
        measure(g, "write of host memory by the stream", (writes){.to = seen, .by_stream = true}, refused);
        measure(g, "fill of device memory", (writes){.to = own}, refused);
        snprintf(why, GPU_WHY, "words, one after another%.400s", refused);
    }
    if (own) call->release(own);
    if (host) call->release_host(host);
    return good ? GPU_OK : GPU_FAILED;
}
