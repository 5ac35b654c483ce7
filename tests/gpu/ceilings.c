/* ceilings.c: measures what no kernel can exceed: the rate of matrix products from registers (mma.sync) and, if the
 * device has them, from shared memory (wgmma); and the bandwidth of copies within the device.
 *
 * The kernels for the rates do nothing else. Every warp, or warpgroup, multiplies the same random fragments again and
 * again, with as many sums of its own as it takes to hide the latency. A multiplication counts as 2 FLOPs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/jit/jit.h"
#include "tests/gpu/gpu.h"

enum { TEXT = 24000, THREADS = 256, MMA_SUMS = 8, WGMMA_COLUMNS = 256, WGMMA_SHARED = 8192 + 32768 };

typedef struct text {
    char *at;
    size_t room;
} text;
static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
#include <stdarg.h>
static void put(text *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(t->at, t->room, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= t->room) n = (int)t->room - 1;
    t->at += n;
    t->room -= (size_t)n;
}

/* Bits of a bf16 number between 1/4 and 4, of either sign. */
static const char drawn_text[] =
    "__device__ unsigned drawn(unsigned x) {\n"
    "    x ^= x >> 16; x *= 0x7feb352du; x ^= x >> 15; x *= 0x846ca68bu; x ^= x >> 16;\n"
    "    return (x & 0x81ff81ffu) | 0x3e803e80u;\n}\n";

static void mma_text(text *t) {
    put(t, "#define GPU_CHECK 1\n%s", drawn_text);
    put(t, "extern \"C\" __global__ void __launch_bounds__(%d) gc_mma(float *out, int times) {\n", THREADS);
    put(t, "    unsigned a[4], b[2]; float c[%d][4];\n", MMA_SUMS);
    put(t, "    for (int i = 0; i < 4; i++) a[i] = drawn(threadIdx.x * 8 + i);\n"
           "    for (int i = 0; i < 2; i++) b[i] = drawn(threadIdx.x * 8 + 4 + i);\n"
           "    for (int i = 0; i < %d; i++) for (int j = 0; j < 4; j++) c[i][j] = 0;\n", MMA_SUMS);
    put(t,
        "    for (int n = 0; n < times; n++) {\n#pragma unroll\n        for (int i = 0; i < %d; i++)\n"
        "            asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%%0, %%1, %%2, %%3}, "
        "{%%4, %%5, %%6, %%7}, {%%8, %%9}, {%%0, %%1, %%2, %%3};\"\n"
        "                : \"+f\"(c[i][0]), \"+f\"(c[i][1]), \"+f\"(c[i][2]), \"+f\"(c[i][3])\n"
        "                : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));\n    }\n",
        MMA_SUMS);
    put(t, "    float sum = 0;\n    for (int i = 0; i < %d; i++) for (int j = 0; j < 4; j++) sum += c[i][j];\n"
           "    out[blockIdx.x * %d + threadIdx.x] = sum;\n}\n", MMA_SUMS, THREADS);
}

/* A warpgroup has 64 x 256 sums. A, of 64 x 64 numbers, and B, of 256 x 64, lie in shared memory, in rows of 128 bytes
 * with the 128-byte swizzle. So a step of 16 along k is 32 bytes further. */
static void wgmma_text(text *t) {
    put(t, "#define GPU_CHECK 1\n%s", drawn_text);
    put(t, "extern \"C\" __global__ void __launch_bounds__(%d) gc_wgmma(float *out, int times) {\n", THREADS);
    put(t,
        "    extern __shared__ __align__(1024) unsigned memory[];\n"
        "    for (int i = threadIdx.x; i < %d; i += %d) memory[i] = drawn(i);\n"
        "    asm volatile(\"fence.proxy.async;\" ::: \"memory\");\n    __syncthreads();\n",
        WGMMA_SHARED / 4, THREADS);
    put(t, "    unsigned base = (unsigned)__cvta_generic_to_shared(memory);\n"
           "    unsigned long long flags = (1ull << 62) | (64ull << 32) | (1ull << 16);\n"
           "    unsigned long long a = flags | (base >> 4 & 0x3fff), b = flags | ((base + 8192) >> 4 & 0x3fff);\n"
           "    float c[128];\n    for (int i = 0; i < 128; i++) c[i] = 0;\n"
           "    for (int n = 0; n < times; n++) {\n"
           "        asm volatile(\"wgmma.fence.sync.aligned;\" ::: \"memory\");\n");
    for (int step = 0; step < 4; step++) {
        put(t, "        asm volatile(\"{.reg .pred p; setp.ne.b32 p, 1, 0; "
               "wgmma.mma_async.sync.aligned.m64n%dk16.f32.bf16.bf16 {",
            WGMMA_COLUMNS);
        for (int i = 0; i < 128; i++) put(t, "%s%%%d", i ? "," : "", i);
        put(t, "}, %%128, %%129, p, 1, 1, 0, 0;}\"\n            : ");
        for (int i = 0; i < 128; i++) put(t, "%s\"+f\"(c[%d])", i ? "," : "", i);
        put(t, "\n            : \"l\"(a + %d), \"l\"(b + %d));\n", step * 2, step * 2);
    }
    put(t, "        asm volatile(\"wgmma.commit_group.sync.aligned; "
           "wgmma.wait_group.sync.aligned 0;\" ::: \"memory\");\n    }\n"
           "    float sum = 0;\n    for (int i = 0; i < 128; i++) sum += c[i];\n"
           "    out[blockIdx.x * %d + threadIdx.x] = sum;\n}\n", THREADS);
}

char *gpu_ceiling_text(bool wgmma) {
    char *bytes = malloc(TEXT);
    text t = {bytes, TEXT};
    if (!bytes) return NULL;
    if (wgmma) wgmma_text(&t);
    else mma_text(&t);
    return bytes;
}

/* --- rates -------------------------------------------------------------------------------------------------------- */

typedef struct rate {
    cu_function function;
    unsigned blocks, shared;
    cu_ptr out;
    int times;
} rate;

static bool launch(gpu *g, void *context, char why[GPU_WHY]) {
    rate *r = context;
    void *parameters[] = {&r->out, &r->times};
    return gpu_ok(g,
                  g->cuda->call.launch(r->function, r->blocks, 1, 1, THREADS, 1, 1, r->shared, g->stream, parameters,
                                       NULL),
                  why, "the kernel that only multiplies cannot be launched");
}

static bool open_rate(gpu *g, fcp_jit *jit, bool wgmma, cu_module *module, rate *r, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    char arch[32], *source = gpu_ceiling_text(wgmma);
    fcp_cubin cubin = {0};
    fcp_error err = {.message = "out of memory"};
    bool cached, good;
    int blocks = 0;
    snprintf(arch, sizeof arch, "sm_%d%d%s", g->machine.major, g->machine.minor, wgmma ? "a" : "");
    good = source && !fcp_jit_compile(jit, "gpu-check.cu", source, arch, NULL, &cubin, &cached, &err);
    if (!good) snprintf(why, GPU_WHY, "%.390s", err.message);
    good =
        good && gpu_ok(g, call->module_load(module, cubin.bytes), why, "the kernel that only multiplies is refused") &&
        gpu_ok(g, call->module_function(&r->function, *module, wgmma ? "gc_wgmma" : "gc_mma"), why, "it has no entry");
    r->shared = wgmma ? WGMMA_SHARED : 0;
    if (good && wgmma)
        good = gpu_ok(g, call->function_set(r->function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)r->shared), why,
                      "no shared memory");
    good = good && gpu_ok(g, call->occupancy(&blocks, r->function, THREADS, r->shared), why, "no occupancy");
    r->blocks = (unsigned)(blocks * g->machine.multiprocessors);
    r->times = g->machine.standin ? 1 : wgmma ? 4000 : 40000;
    good = good && gpu_ok(g, call->allocate(&r->out, (size_t)r->blocks * THREADS * 4 + 4), why, "no memory");
    fcp_cubin_free(&cubin);
    free(source);
    return good;
}

static bool measure_rate(gpu *g, fcp_jit *jit, bool wgmma, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    cu_module module = NULL;
    rate r = {0};
    double ms = 0, spread = 0;
    const char *name = wgmma ? "ceiling: matrix products, wgmma" : "ceiling: matrix products, mma.sync";
    if (gpu_row_done(g, name)) return true;
    bool good = open_rate(g, jit, wgmma, &module, &r, why) && gpu_time(g, launch, &r, &ms, &spread, why);
    if (good) {
        double warps = (double)r.blocks * THREADS / 32, flops = warps * r.times * MMA_SUMS * 2.0 * 16 * 8 * 16;
        if (wgmma) flops = warps / 4 * r.times * 2.0 * 64 * WGMMA_COLUMNS * 64;
        double tflops = ms > 0 ? flops / ms * 1e-9 : 0;
        char note[120];
        snprintf(note, sizeof note, "bf16, numbers drawn at random; %u blocks of %d threads, %.2f ms, spread %.1f %%",
                 r.blocks, THREADS, ms, 100 * spread);
        gpu_fact_put(g, wgmma ? "ceiling.wgmma" : "ceiling.mma", tflops);
        const gpu_row row = gpu_row_of(name, tflops, "TFLOP/s", note);
        gpu_row_put(g, &row);
    }
    if (r.out) call->release(r.out);
    if (module) call->module_unload(module);
    return good;
}

typedef struct transfer {
    cu_ptr to, from;
    size_t bytes;
} transfer;
static bool copy(gpu *g, void *context, char why[GPU_WHY]) {
    transfer *t = context;
    return gpu_ok(g, g->cuda->call.copy(t->to, t->from, t->bytes, g->stream), why, "a copy inside the device");
}

static bool measure_copies(gpu *g, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    static const char name[] = "ceiling: copies inside the device";
    size_t bytes = g->machine.standin ? 1 << 16 : (size_t)2 << 30;
    cu_ptr memory = 0;
    double ms = 0, spread = 0;
    if (gpu_row_done(g, name)) return true;
    while (bytes > 1 << 20 && bytes * 4 > g->machine.memory) bytes /= 2;
    if (!gpu_ok(g, call->allocate(&memory, 2 * bytes), why, "no memory for copies")) return false;
    transfer t = {memory + bytes, memory, bytes};
    bool good = gpu_ok(g, call->fill(memory, 0x3f9d5a17u, bytes / 2, g->stream), why, "cannot fill memory") &&
                gpu_time(g, copy, &t, &ms, &spread, why);
    if (good) {
        double speed = ms > 0 ? 2.0 * (double)bytes / ms * 1e-9 : 0;
        char note[120];
        snprintf(note, sizeof note, "read and written, %.2f GB each; %.3f ms, spread %.1f %%", (double)bytes * 1e-9, ms,
                 100 * spread);
        gpu_fact_put(g, "ceiling.copy", speed);
        const gpu_row row = gpu_row_of(name, speed, "TB/s", note);
        gpu_row_put(g, &row);
    }
    call->release(memory);
    return good;
}

gpu_result step_ceilings(gpu *g, char why[GPU_WHY]) {
    fcp_jit *jit = NULL;
    fcp_error err;
    if (fcp_jit_open(NULL, &jit, &err)) {
        snprintf(why, GPU_WHY, "%.390s", err.message);
        return GPU_FAILED;
    }
    bool good = measure_copies(g, why) && measure_rate(g, jit, false, why) &&
                (g->machine.major != 9 || measure_rate(g, jit, true, why));
    fcp_jit_close(jit);
    return good ? GPU_OK : GPU_FAILED;
}
