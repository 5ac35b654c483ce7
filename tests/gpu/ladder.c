/* ladder.c: climbs the ladder (rungs.h) on a GPU: small kernels, one for each thing that the attention kernels rely on.
 *
 * The rungs run one after the other in one process, since each takes less than opening the device does. If a rung ends
 * that process, or hangs, that is written down, and the others run in a new one. Waits of the kernels give up after two
 * seconds, but setmaxnreg and named barriers have no bound.
 *
 * On a stand-in the kernels do nothing. What they should have written is put in its place, and the step shows what it
 * does with that.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/jit/jit.h"
#include "tests/gpu/gpu.h"
#include "tests/gpu/rungs.h"

#define BOUND "#define FK_BOUND 2000000000ull\n"
enum { MOST_S = 20, FLAG_WORDS = 2, HOST = RUNG_INPUT + RUNG_OUT };

typedef struct climb {
    gpu *g;
    cu_module module;
    cu_stream other;           /* raises flags */
    cu_ptr input, out, flag, gave_up; /* gave_up 0: not known */
    char *host;                /* pinned: the input, then what is written */
    uint32_t given_up[RUNG_GAVE_UP];
} climb;

bool gpu_rungs_compile(gpu *g, fcp_cubin *out, char why[GPU_WHY]) {
    const bool sm90 = g->machine.major == 9 && g->machine.minor == 0;
    char arch[32], *source = rung_source(sm90, BOUND);
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

/* --- a rung ------------------------------------------------------------------------------------------------------- */

static bool open_climb(climb *c, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    fcp_cubin cubin = {0};
    void *host = NULL;
    size_t size = 0;
    bool good = gpu_rungs_compile(c->g, &cubin, why) &&
                gpu_ok(c->g, call->module_load(&c->module, cubin.bytes), why, "the ladder's kernels are refused");
    fcp_cubin_free(&cubin);
    good = good && gpu_ok(c->g, call->stream_create(&c->other, CU_STREAM_NON_BLOCKING, 0), why, "no second stream") &&
           gpu_ok(c->g, call->allocate(&c->input, RUNG_INPUT), why, "no memory") &&
           gpu_ok(c->g, call->allocate(&c->out, RUNG_OUT), why, "no memory") &&
           gpu_ok(c->g, call->allocate(&c->flag, FLAG_WORDS * 4), why, "no memory") &&
           gpu_ok(c->g, call->allocate_host(&host, HOST, CU_HOST_PORTABLE | CU_HOST_DEVICEMAP), why, "no host memory");
    c->host = host;
    if (good && c->g->more.module_global &&
        (c->g->more.module_global(&c->gave_up, &size, c->module, "fk_gave_up") || size != sizeof c->given_up))
        c->gave_up = 0;
    return good;
}

static void close_climb(climb *c) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    if (c->host) call->release_host(c->host);
    if (c->input) call->release(c->input);
    if (c->out) call->release(c->out);
    if (c->flag) call->release(c->flag);
    if (c->other) call->stream_destroy(c->other);
    if (c->module) call->module_unload(c->module);
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

static bool launch(climb *c, const rung *r, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    cu_function function = NULL;
    rung_launch p = {.in = c->input, .other = c->input + RUNG_IN, .out = c->out, .flag = c->flag,
                     .a = r->a, .b = r->b, .c = r->c, .d = r->d};
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

/* Runs a rung. What it has written is then behind the input in c->host. */
static bool run(climb *c, const rung *r, char why[GPU_WHY]) {
    const fcp_cuda_table *call = &c->g->cuda->call;
    char *out = c->host + RUNG_INPUT, later[GPU_WHY];
    cu_stream s = c->g->stream;
    rung_prepare(r, c->host, out);
    memset(c->given_up, 0, sizeof c->given_up);
    bool good = gpu_ok(c->g,
                       r->flag ? call->fill(c->input, 0xeeeeeeeeu, RUNG_INPUT / 4, s)
                               : call->copy_in(c->input, c->host, RUNG_INPUT, s),
                       why, "its input") &&
                gpu_ok(c->g, call->copy_in(c->out, out, RUNG_OUT, s), why, "its output") &&
                gpu_ok(c->g, call->fill(c->flag, 0, FLAG_WORDS, s), why, "its flag") &&
                (!c->gave_up || gpu_ok(c->g, call->fill(c->gave_up, 0, RUNG_GAVE_UP, s), why, "fk_gave_up")) &&
                gpu_ok(c->g, call->stream_wait(s), why, "what comes before it") && launch(c, r, why);
    if (!good) return false;
    good = !r->flag || raise_flag(c, why);
    good = gpu_ok(c->g, call->stream_wait(s), good ? why : later, "it failed") && good;
    good = good && gpu_ok(c->g, call->stream_wait(c->other), why, "the stream that raises the flag") &&
           gpu_ok(c->g, call->copy_out(out, c->out, RUNG_OUT, s), why, "its output") &&
           (!c->gave_up || gpu_ok(c->g, call->copy_out(c->given_up, c->gave_up, sizeof c->given_up, s), why,
                                  "fk_gave_up")) &&
           gpu_ok(c->g, call->stream_wait(s), why, "its output");
    if (good && c->g->machine.standin) rung_answer(r, out);
    return good;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

/* The first rung of which nothing is known yet; rung_count: there is none. */
static unsigned next_rung(const gpu *g) {
    unsigned i = 0;
    while (i < rung_count && (!rung_applies(&rungs[i], g->machine.major, g->machine.minor) ||
                              journal_find(g->journal, "rung", rungs[i].name, NULL, 0)))
        i++;
    return i;
}

static void note(gpu *g, const rung *r, bool right, const char *why) {
    char rest[GPU_WHY + 200];
    snprintf(rest, sizeof rest, right ? "right: %s" : "WRONG: %s: %s", r->what, why);
    journal_add(g->journal, "rung", r->name, rest);
    if (!right && !g->quiet) printf("  WRONG %s (%s): %s\n", r->name, r->what, why);
}

static gpu_result climb_apart(gpu *g, void *context, gpu_answer *out) {
    climb c = {.g = g};
    bool good = open_climb(&c, out->why);
    (void)context;
    for (unsigned i; good && (i = next_rung(g)) < rung_count;) {
        const rung *r = &rungs[i];
        char key[60], text[RUNG_TEXT] = "";
        snprintf(key, sizeof key, "ladder/%.40s", r->name);
        journal_add(g->journal, "begin", key, "");
        if (gpu_injected(g, "die", key)) raise(SIGKILL);
        if (gpu_injected(g, "hang", key)) raise(SIGSTOP);
        good = run(&c, r, out->why); /* an error of the driver may stay with the context */
        if (!good) break;
        if (gpu_injected(g, "spoil", key)) c.host[RUNG_INPUT + 3] ^= 0x40;
        bool right = rung_judge(r, c.host + RUNG_INPUT, c.given_up, text);
        note(g, r, right, text);
    }
    close_climb(&c);
    return good ? GPU_OK : GPU_FAILED;
}

/* How many rungs were begun. */
static unsigned begun(const gpu *g) {
    unsigned count = 0;
    for (unsigned i = 0; i < rung_count; i++) {
        char key[60];
        snprintf(key, sizeof key, "ladder/%.40s", rungs[i].name);
        count += journal_count(g->journal, "begin", key);
    }
    return count;
}

static void sum_up(const gpu *g, char why[GPU_WHY], unsigned *out_wrong) {
    unsigned right = 0, wrong = 0;
    char first[500] = "";
    for (unsigned i = 0; i < rung_count; i++) {
        char rest[GPU_WHY + 200];
        if (!journal_find(g->journal, "rung", rungs[i].name, rest, sizeof rest)) continue;
        bool good = strncmp(rest, "right", 5) == 0;
        right += good;
        if (!good && !wrong++) snprintf(first, sizeof first, "%s: %.400s", rungs[i].name, rest + 7);
    }
    if (wrong) snprintf(why, GPU_WHY, "%u of %u rungs wrong, the first: %s", wrong, right + wrong, first);
    else snprintf(why, GPU_WHY, "%u rungs right", right);
    *out_wrong = wrong;
}

gpu_result step_ladder(gpu *g, char why[GPU_WHY]) {
    unsigned wrong;
    for (unsigned i; (i = next_rung(g)) < rung_count;) {
        gpu_answer answer;
        const unsigned before = begun(g);
        const gpu_apart apart = {.name = "the ladder", .open = true, .most = g->small ? 3000 : MOST_S,
                                 .work = climb_apart};
        gpu_run_apart(g, &apart, &answer);
        journal_reload(g->journal);
        if (answer.given && answer.result == GPU_OK) continue;
        i = next_rung(g);
        if (i == rung_count || begun(g) == before) { /* it did not come so far as a rung */
            snprintf(why, GPU_WHY, "%s", answer.why);
            return GPU_FAILED;
        }
        note(g, &rungs[i], false, answer.why);
    }
    sum_up(g, why, &wrong);
    return wrong ? GPU_FAILED : GPU_OK;
}
