/* rows_runtime.c: measures what the runtime itself takes: launching and capturing a pass, compiling kernels, memory;
 * and reports what kernels take of the device, as its driver says.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/cuda/cuda.h"
#include "runtime/jit/kernel_source.h"
#include "runtime/plan/plan_summary.h"
#include "tests/gpu/gpu.h"

enum { TIMES = 21, TEXT = 800 };

static void program(const gpu *g, unsigned ranks, const char *lengths, const char *small, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = bf16 }\ncluster { nodes = 1; gpus = %u }\n"
             "batch { lengths = [%s] }\nplan { mask = causal; block = %d; passes = forward, backward }\n",
             g->small ? 2 : 64, g->small ? 1 : 8, g->small ? 16 : 128, ranks, g->small ? small : lengths,
             g->small ? 128 : 1024);
}

/* The programs whose kernels are examined: for each head_dim, deterministic and not. */
static void kernels_program(const gpu *g, int number, char text[TEXT]) {
    static const unsigned head_dims[] = {64, 128, 256};
    snprintf(text, TEXT,
             "model { heads = 2; kv_heads = 1; head_dim = %u; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
             "batch { lengths = [256] }\nplan { mask = causal; block = 128; passes = forward, backward; "
             "deterministic = %s }\n",
             head_dims[number / 2] / (g->small ? 4 : 1), number % 2 ? "false" : "true");
}
enum { KERNEL_PROGRAMS = 6 };

void gpu_measured_runtime(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    char text[TEXT];
    program(g, 8, "8192, 4096 x 2", "900, 400", text);
    bool more = each(g, text, context);
    for (int i = 0; more && i < KERNEL_PROGRAMS; i++) {
        kernels_program(g, i, text);
        more = each(g, text, context);
    }
}

static const char *const pass_names[FCP_PASSES] = {"forward", "backward"};

/* --- graphs ------------------------------------------------------------------------------------------------------- */

static bool graph_rows(measured *m, fcp_pass pass, char why[GPU_WHY]) {
    gpu *g = m->g;
    double seconds[TIMES], captures[TIMES];
    unsigned count = g->small ? 2 : TIMES;
    char name[100], note[160];
    for (unsigned i = 0; i < count; i++) {
        if (!measured_capture(m, pass, why)) return false;
        captures[i] = m->recapture[pass];
    }
    for (unsigned i = 0; i < count; i++) {
        double begin = fcp_clock();
        cu_result result = g->cuda->call.graph_launch(m->graphs[pass], g->stream);
        seconds[i] = fcp_clock() - begin;
        if (!gpu_ok(g, result, why, "the graph cannot be launched") ||
            !gpu_ok(g, g->cuda->call.stream_wait(g->stream), why, "the pass failed"))
            return false;
    }
    double us = 1e6 * gpu_median(seconds, count), nodes = (double)m->nodes[pass];
    snprintf(name, sizeof name, "launching a graph, %s, 8 ranks", pass_names[pass]);
    snprintf(note, sizeof note, "processor time of one launch into an empty stream; %.0f nodes, %.3f us a node", nodes,
             nodes > 0 ? us / nodes : 0);
    gpu_row r = gpu_row_of(name, us, "us", note);
    r.most = true;
    r.goal = nodes > 0 ? 5 + 0.2 * nodes : GPU_NONE;
    gpu_row_put(g, &r);
    us = 1e6 * gpu_median(captures, count);
    snprintf(name, sizeof name, "re-capture for a new batch, %s, 8 ranks", pass_names[pass]);
    snprintf(note, sizeof note, "capturing and instantiating; %.0f nodes, %.3f us a node", nodes,
             nodes > 0 ? us / nodes : 0);
    const gpu_row again = gpu_row_of(name, us, "us", note);
    gpu_row_put(g, &again);
    return true;
}

gpu_result step_graphs(gpu *g, char why[GPU_WHY]) {
    measured m = {0};
    char text[TEXT];
    if (gpu_row_done(g, "re-capture for a new batch, backward, 8 ranks")) return GPU_OK;
    program(g, 8, "8192, 4096 x 2", "900, 400", text);
    bool good = measured_open(g, text, false, &m, why);
    for (int pass = 0; good && pass < FCP_PASSES; pass++) good = graph_rows(&m, (fcp_pass)pass, why);
    measured_close(&m);
    if (good) snprintf(why, GPU_WHY, "both passes of 8 ranks");
    return good ? GPU_OK : GPU_FAILED;
}

/* --- compiling ---------------------------------------------------------------------------------------------------- */

static bool compile(const char *folder, const char *source, const char *arch, double *out_seconds, bool *out_cached,
                    char why[GPU_WHY]) {
    fcp_error err = {.message = ""};
    fcp_cubin cubin = {0};
    fcp_jit *jit = NULL;
    double begin = fcp_clock();
    fcp_code code = fcp_jit_open(folder, &jit, &err);
    if (!code) code = fcp_jit_compile(jit, "fcpc.cu", source, arch, NULL, &cubin, out_cached, &err);
    *out_seconds = fcp_clock() - begin;
    fcp_cubin_free(&cubin);
    fcp_jit_close(jit);
    if (code) snprintf(why, GPU_WHY, "%.390s", err.message);
    return !code;
}

/* Makes an empty folder for what is compiled, and removes what an earlier attempt left in it. */
static bool empty_folder(const char *folder) {
    char command[400];
    if (strchr(folder, '\'')) return false;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0;
}

gpu_result step_jit(gpu *g, char why[GPU_WHY]) {
    static const unsigned skeletons[FCP_PASSES] = {EMIT_FORWARD, EMIT_ORDERED};
    const char *real = getenv("GPU_NVRTC");
    char folder[300], arch[32], text[TEXT];
    fcp_error err = {.message = ""};
    bool good = true;
    if (gpu_row_done(g, "jit backward, from the cache")) return GPU_OK;
    /* what is timed here is the machine's own NVRTC, not what was carried along; the process is this step's own */
    if (getenv("GPU_CARRIED")) unsetenv("FCP_NVRTC");
    if (getenv("GPU_CARRIED") && real && *real) setenv("FCP_NVRTC", real, 1);
    fcp_nvrtc *n = NULL;
    if (fcp_nvrtc_open(&(fcp_nvrtc_choice){.cuda = (unsigned)g->cuda->version / 1000}, &n, &err)) {
        snprintf(why, GPU_WHY, "no NVRTC on this machine: %.300s", err.message);
        return GPU_SKIPPED;
    }
    fcp_nvrtc_close(n);
    program(g, 1, "8192", "200", text);
    snprintf(folder, sizeof folder, "%.280s/jit", g->folder);
    snprintf(arch, sizeof arch, "sm_%d%d%s", g->machine.major, g->machine.minor, g->machine.major == 9 ? "a" : "");
    fcp_plan *plan = gpu_plan_of("gpu-check.fcp", text, NULL, 0, why);
    good = plan && empty_folder(folder);
    for (int pass = 0; good && pass < FCP_PASSES; pass++) {
        char *source = NULL, name[60];
        double cold = 0, hits[TIMES] = {0};
        bool cached = true;
        good = !fcp_kernel_source(plan, skeletons[pass], false, &source, &err) &&
               compile(folder, source, arch, &cold, &cached, why);
        if (good && cached) {
            snprintf(why, GPU_WHY, "an empty cache had the kernels");
            good = false;
        }
        for (int i = 0; good && i < TIMES; i++) good = compile(folder, source, arch, &hits[i], &cached, why) && cached;
        free(source);
        if (!good) break;
        snprintf(name, sizeof name, "jit %s, cold", pass_names[pass]);
        gpu_row r = gpu_row_of(name, cold, "s", pass ? "NVRTC loaded" : "NVRTC loaded, and its file hashed");
        r.most = true;
        r.goal = 1;
        gpu_row_put(g, &r);
        snprintf(name, sizeof name, "jit %s, from the cache", pass_names[pass]);
        r = gpu_row_of(name, 1e3 * gpu_median(hits, TIMES), "ms", "a session of its own");
        r.most = true;
        r.goal = 5;
        gpu_row_put(g, &r);
    }
    fcp_plan_free(plan);
    empty_folder(folder);
    if (good) snprintf(why, GPU_WHY, "causal, head_dim %d, %s", g->small ? 16 : 128, arch);
    return good ? GPU_OK : GPU_FAILED;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

gpu_result step_memory(gpu *g, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    measured m = {0};
    size_t before = 0, after = 0, total = 0, arenas = 0, ours = 0;
    char text[TEXT], note[240];
    if (gpu_row_done(g, "device memory of a session, what the driver adds")) return GPU_OK;
    program(g, 8, "8192, 4096 x 2", "900, 400", text);
    bool good =
        gpu_ok(g, call->memory_info(&before, &total), why, "no memory") && measured_open(g, text, false, &m, why);
    good = good && gpu_ok(g, call->context_set(g->context), why, "no context") &&
           gpu_ok(g, call->memory_info(&after, &total), why, "no memory");
    uint64_t largest = 0;
    for (uint32_t r = 0; good && r < m.shape.ranks; r++) {
        const cuda_rank *rank = &((fcp_cuda_session *)(void *)m.session)->ranks[r];
        arenas += rank->arena_bytes;
        ours += rank->arena_bytes + rank->lock_words * 4;
        for (int pass = 0; pass < FCP_PASSES; pass++) ours += rank->work[pass].size;
        if (rank->arena_bytes > largest) largest = rank->arena_bytes;
    }
    if (good) {
        const fcp_summary *s = m.plan->summary;
        ours += fcp_cuda_environment_size(m.plan, m.shape.ranks);
        /* the plan's figure has no padding between an arena's parts, which begin at multiples of 64 */
        snprintf(note, sizeof note, "the plan's own figure is %llu bytes; padding between parts %lld bytes",
                 (unsigned long long)s->memory_peak_bytes, (long long)largest - (long long)s->memory_peak_bytes);
        gpu_row r = gpu_row_of("device memory of a session, the largest rank's arena", (double)largest, "bytes", note);
        gpu_row_put(g, &r);
        snprintf(note, sizeof note, "all arenas %zu, with work lists, locks and fields %zu bytes", arenas, ours);
        r = gpu_row_of("device memory of a session, what it asks for", (double)ours, "bytes", note);
        r.against = "arenas";
        r.ratio = arenas ? (double)ours / (double)arenas : GPU_NONE;
        gpu_row_put(g, &r);
        snprintf(note, sizeof note,
                 "free memory went down by %lld bytes: kernels, streams, events, and what allocations are rounded to",
                 (long long)before - (long long)after);
        r = gpu_row_of("device memory of a session, what the driver adds",
                       (double)before - (double)after - (double)ours, "bytes", note);
        gpu_row_put(g, &r);
        snprintf(why, GPU_WHY, "8 ranks");
    }
    measured_close(&m);
    return good ? GPU_OK : GPU_FAILED;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

gpu_result step_kernels(gpu *g, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    unsigned spilled = 0, count = 0;
    /* on a device that has others, the kernels on mma.sync too */
    for (int i = 0; i < KERNEL_PROGRAMS * (g->machine.major == 9 ? 2 : 1); i++) {
        measured m = {0};
        char text[TEXT];
        g->older = i >= KERNEL_PROGRAMS;
        kernels_program(g, i % KERNEL_PROGRAMS, text);
        bool good = measured_open(g, text, false, &m, why);
        const fcp_cuda_session *s = (fcp_cuda_session *)(void *)m.session;
        for (int id = 0; good && id < CUDA_KERNELS; id++) {
            static const char *const names[CUDA_KERNELS] = {
                [CUDA_FORWARD] = "forward", [CUDA_DKV] = "dkv", [CUDA_DQ] = "dq", [CUDA_ORDERED] = "backward ordered",
                [CUDA_UNORDERED] = "backward unordered", [CUDA_TABLES] = "backward tables",
                [CUDA_BEGIN_LSE] = "begin_lse", [CUDA_DELTA] = "delta",
                [CUDA_ADD] = "add", [CUDA_ROUND] = "round",
                [CUDA_MERGE] = "merge", [CUDA_STATE_OUT] = "state_out", [CUDA_FOLD_SINKS] = "fold_sinks",
                [CUDA_GATHER] = "gather", [CUDA_COMBINE] = "combine", [CUDA_ROUND_SUMS] = "round_sums",
                [CUDA_NARROW] = "narrow", [CUDA_WIDEN] = "widen"};
            const cuda_kernel *k = &s->devices[0].kernels[id];
            int registers = 0, local = 0, shared = 0;
            char name[80], note[160];
            if (!k->function || !names[id] || (id >= CUDA_BEGIN_LSE && i)) continue;
            good =
                gpu_ok(g, call->function_attribute(&registers, CU_FUNC_REGISTERS, k->function), why, "no registers") &&
                gpu_ok(g, call->function_attribute(&local, CU_FUNC_LOCAL, k->function), why, "no local memory") &&
                gpu_ok(g, call->function_attribute(&shared, CU_FUNC_SHARED, k->function), why, "no shared memory");
            snprintf(name, sizeof name, "kernel %s, head_dim %u%s", names[id], m.shape.head_dim,
                     g->older ? ", mma.sync" : "");
            if (!good || gpu_row_done(g, name)) continue;
            snprintf(
                note, sizeof note,
                "%u threads, %u bytes of shared memory, %d bytes of local memory a thread; %u blocks a multiprocessor",
                k->threads, k->shared + (unsigned)shared, local, k->resident);
            const gpu_row r = gpu_row_of(name, registers, "registers", note);
            gpu_row_put(g, &r);
            spilled += local != 0;
            count++;
        }
        measured_close(&m);
        if (!good) return GPU_FAILED;
    }
    snprintf(why, GPU_WHY, spilled ? "%u of %u kernels have local memory" : "no kernel has local memory", spilled,
             count);
    return spilled ? GPU_FAILED : GPU_OK;
}
