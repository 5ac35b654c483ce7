/* climb.c: runs a rung (rungs.h) on a GPU. */
#define _GNU_SOURCE
#include "tests/gpu/climb.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FLAG_WORDS = 2, HOST = RUNG_INPUT + RUNG_OUT };

bool climb_compile(gpu *g, rung_set set, fcp_cubin *out, char why[GPU_WHY]) {
    const bool sm90 = g->machine.major == 9 && g->machine.minor == 0;
    char arch[32], *source = rung_source(set, sm90, set == RUNG_LADDER ? "#define FK_BOUND 2000000000ull\n" : "");
    fcp_jit *jit = NULL;
    fcp_error err = {.message = "out of memory"};
    bool cached;
    snprintf(arch, sizeof arch, "sm_%d%d%s", g->machine.major, g->machine.minor, sm90 ? "a" : "");
    bool good = source && !fcp_jit_open(NULL, &jit, &err) &&
                !fcp_jit_compile(jit, "gpu-check.cu", source, arch, NULL, out, &cached, &err);
    if (!good) snprintf(why, GPU_WHY, "the kernels of the ladder: %.390s", err.message);
    fcp_jit_close(jit);
    free(source);
    return good;
}

/* Loads the kernels, whose variables are then as at first. */
static bool load(climb *c, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    if (c->module) call->module_unload(c->module);
    c->module = NULL;
    return gpu_ok(c->g, call->module_load(&c->module, c->cubin.bytes), why, "the ladder's kernels are refused");
}

bool climb_open(climb *c, gpu *g, rung_set set, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &g->cuda->call;
    void *host = NULL;
    *c = (climb){.g = g};
    bool good =
        climb_compile(g, set, &c->cubin, why) && load(c, why) &&
        gpu_ok(g, call->stream_create(&c->other, CU_STREAM_NON_BLOCKING, 0), why, "no second stream") &&
        gpu_ok(g, call->allocate(&c->input, RUNG_INPUT), why, "no memory") &&
        gpu_ok(g, call->allocate(&c->out, RUNG_OUT), why, "no memory") &&
        gpu_ok(g, call->allocate(&c->flag, FLAG_WORDS * 4), why, "no memory") &&
        gpu_ok(g, call->allocate_host(&host, HOST, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP), why, "no host memory");
    c->host = host;
    return good;
}

void climb_close(climb *c) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    if (c->host) call->release_host(c->host);
    if (c->input) call->release(c->input);
    if (c->out) call->release(c->out);
    if (c->flag) call->release(c->flag);
    if (c->other) call->stream_destroy(c->other);
    if (c->module) call->module_unload(c->module);
    fcp_cubin_free(&c->cubin);
}

/* Reads which wait gave up, if one did. */
static bool read_given_up(climb *c, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    cu_ptr at = 0;
    size_t size = 0;
    memset(c->given_up, 0, sizeof c->given_up);
    if (!c->g->more.module_global || c->g->more.module_global(&at, &size, c->module, "fk_gave_up") ||
        size < sizeof c->given_up)
        return true; /* these kernels have no bounds */
    return gpu_ok(c->g, call->copy_out(c->given_up, at, sizeof c->given_up, c->g->stream), why, "fk_gave_up") &&
           gpu_ok(c->g, call->stream_wait(c->g->stream), why, "fk_gave_up");
}

/* As runtime/cuda/maps.c makes them. */
static bool make_map(climb *c, fk_map *map, char why[GPU_WHY]) {
    const uint64_t dims[4] = {RUNG_COLUMNS, RUNG_HEADS, RUNG_ROWS, RUNG_SLOTS};
    const uint64_t strides[3] = {RUNG_COLUMNS * 2, RUNG_HEADS * RUNG_COLUMNS * 2,
                                 RUNG_ROWS * RUNG_HEADS * RUNG_COLUMNS * 2};
    const unsigned box[4] = {FK_BOX, 1, FK_BOX, 1}, steps[4] = {1, 1, 1, 1};
    return gpu_ok(c->g,
                  c->g->cuda->call.tensor_map(map, CU_TENSOR_BF16, 4, (void *)(uintptr_t)c->input, dims, strides, box,
                                              steps, 0, CU_TENSOR_SWIZZLE_128, CU_TENSOR_L2_256, 0),
                  why, "the driver makes no map");
}

bool climb_launch(climb *c, const rung *r, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    cu_function function = NULL;
    rung_launch p = {.in = c->input,
                     .other = c->input + RUNG_IN,
                     .out = c->out,
                     .flag = c->flag,
                     .a = r->a,
                     .b = r->b,
                     .c = r->c,
                     .d = r->d};
    void *parameters[] = {&p};
    return (!r->map || make_map(c, &p.map, why)) &&
           gpu_ok(c->g, call->module_function(&function, c->module, r->kernel), why, "it has no such kernel") &&
           (!r->shared || gpu_ok(c->g, call->function_set(function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)r->shared), why,
                                 "no shared memory")) &&
           gpu_ok(c->g,
                  call->launch(function, r->ctas, 1, 1, r->threads, 1, 1, r->shared, c->g->stream, parameters, NULL),
                  why, "it cannot be launched");
}

/* Once the kernel waits: a copy from the host, which a copy engine does, and behind it the flag. */
static bool raise_flag(climb *c, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    return gpu_ok(c->g, call->copy_in(c->input, c->host, RUNG_INPUT, c->other), why, "the copy before the flag") &&
           gpu_ok(c->g, call->write_word(c->other, c->flag, 1, 0), why, "the stream that raises the flag");
}

bool climb_run(climb *c, const rung *r, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    char *out = c->host + RUNG_INPUT, later[GPU_WHY];
    cu_stream s = c->g->stream;
    rung_prepare(r, c->host, out);
    bool good = gpu_ok(c->g,
                       r->flag ? call->fill(c->input, 0xeeeeeeeeu, RUNG_INPUT / 4, s)
                               : call->copy_in(c->input, c->host, RUNG_INPUT, s),
                       why, "its input") &&
                gpu_ok(c->g, call->copy_in(c->out, out, RUNG_OUT, s), why, "its output") &&
                gpu_ok(c->g, call->fill(c->flag, 0, FLAG_WORDS, s), why, "its flag") &&
                gpu_ok(c->g, call->stream_wait(s), why, "what comes before it") && climb_launch(c, r, why);
    if (!good) return false;
    good = !r->flag || raise_flag(c, why);
    good = gpu_ok(c->g, call->stream_wait(s), good ? why : later, "it failed") && good;
    good = good && gpu_ok(c->g, call->stream_wait(c->other), why, "the stream that raises the flag") &&
           gpu_ok(c->g, call->copy_out(out, c->out, RUNG_OUT, s), why, "its output") &&
           gpu_ok(c->g, call->stream_wait(s), why, "its output") && read_given_up(c, why) &&
           (!c->given_up[0] || load(c, why));
    if (good && c->g->machine.standin) rung_answer(r, out);
    return good;
}
