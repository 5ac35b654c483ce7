/* waits.c: reads what watched builds of the kernels have written down of their waits (codegen/kernels/abi.h), and
 * measures where time is waited: a profile that needs no profiler.
 *
 * Requires: the definitions FK_BOUND or FK_WAITED (gpu_define), and a session that has run.
 * Cost:     step_waits: a process for each program, in which each pass runs three times.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda.h"
#include "tests/gpu/gpu.h"
#include "tests/support/waits.h"

/* --- tables of a module ------------------------------------------------------------------------------------------- */

/* Copies a variable of a module, if it has it and there is room. */
static bool copy_global(gpu *g, cu_module module, const char *name, void *to, size_t room) {
    cu_ptr at = 0;
    size_t size = 0;
    return g->more.module_global && module && !g->more.module_global(&at, &size, module, name) && size <= room &&
           !g->cuda->call.copy_out(to, at, size, g->stream) && !g->cuda->call.stream_wait(g->stream);
}

static void copy_names(gpu *g, cu_module module, fcp_pass pass, wait_names *n) {
    static const char *const passes[FCP_PASSES] = {"forward", "backward"};
    const struct {
        const char *what;
        char *to;
        size_t room;
    } all[] = {{"mbarriers", n->mbarriers, sizeof n->mbarriers},
               {"barriers", n->barriers, sizeof n->barriers},
               {"roles", n->roles, sizeof n->roles}};
    char name[60];
    *n = (wait_names){.first = 0};
    copy_global(g, module, "fk_first_mbarrier", &n->first, sizeof n->first);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        snprintf(name, sizeof name, "fk_%s_%s", passes[pass], all[i].what);
        copy_global(g, module, name, all[i].to, all[i].room - 1);
    }
}

/* Something that has no bound does not end: says what the warps of the first CTA that waits wait for. */
static bool still_waits(gpu *g, cu_module module, const wait_names *names, char why[GPU_WHY]) {
    static uint32_t now[FK_WAIT_CTAS][FK_WAIT_WARPS];
    char all[700] = "";
    if (!copy_global(g, module, "fk_waits", now, sizeof now)) return false;
    for (uint32_t cta = 0; cta < FK_WAIT_CTAS; cta++) {
        wait_all(names, now[cta], all, sizeof all);
        if (!*all) continue;
        snprintf(why, GPU_WHY, "it does not end; CTA %u waits: %s", cta, all);
        return true;
    }
    return false;
}

bool gpu_gave_up(gpu *g, const fcp_session *session, char why[GPU_WHY]) {
    const fcp_cuda_session *s = (const fcp_cuda_session *)(const void *)session;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        uint32_t x[FK_GAVE_UP] = {0};
        wait_names names;
        cu_module module = s->devices[0].modules[pass];
        if (!copy_global(g, module, "fk_gave_up", x, sizeof x) || (!x[0] && !s->hung)) continue;
        copy_names(g, module, (fcp_pass)pass, &names);
        if (x[0]) wait_gave_up(&names, x, why, GPU_WHY);
        if (x[0] || still_waits(g, module, &names, why)) return true;
    }
    return false;
}

/* --- where time is waited ----------------------------------------------------------------------------------------- */

#define DEFINES "FK_WAITED=1"
enum { TEXT = 500, RUNS = 2 };
static const struct {
    const char *name, *mask;
    unsigned head_dim, length;
} programs[] = {
    {"causal 8K, head_dim 128", "causal", 128, 8192},
    {"causal 8K, head_dim 64", "causal", 64, 8192},
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

static void program(const gpu *g, int i, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %u; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
             "batch { lengths = [%u] }\nplan { mask = %s; block = %d; passes = forward, backward }\n",
             g->small ? 2 : 64, g->small ? 1 : 8, g->small ? 16 : programs[i].head_dim,
             g->small ? 200 : programs[i].length, programs[i].mask, g->small ? 128 : 4096);
}

/* On a stand-in all programs would be the same. */
static int program_count(const gpu *g) { return g->small ? 1 : PROGRAMS; }

bool gpu_measured_waits(gpu *g, gpu_defined_call *each, void *context) {
    char text[TEXT];
    for (int i = 0; i < program_count(g); i++) {
        program(g, i, text);
        if (!each(g, DEFINES, text, context)) return false;
    }
    return true;
}

/* Writes a line for each wait that takes a hundredth of its role's time or more. */
static void put_lines(gpu *g, int i, fcp_pass pass, const wait_line *lines, uint32_t count, unsigned runs) {
    char name[2 * WAIT_NAME + 120], rest[120];
    for (uint32_t k = 0; k < count; k++) {
        if (lines[k].part < 0.01) continue;
        snprintf(name, sizeof name, "%s, %s, %.79s: %.79s", programs[i].name, pass ? "backward" : "forward",
                 lines[k].role, lines[k].name);
        snprintf(rest, sizeof rest, "%.1f %% of its time, %.3f ms of %.3f ms a run, all warps together%s",
                 100 * lines[k].part, lines[k].part * lines[k].whole_ns * 1e-6 / runs, lines[k].whole_ns * 1e-6 / runs,
                 g->machine.standin ? " (not real)" : "");
        journal_add(g->journal, "waits", name, rest);
    }
}

static gpu_result measure(gpu *g, void *context, gpu_answer *out) {
    const int i = *(int *)context;
    char text[TEXT], *why = out->why;
    measured m = {0};
    unsigned found = 0;
    if (!gpu_define(g, DEFINES, why)) return GPU_SKIPPED;
    program(g, i, text);
    g->streams = true;
    bool good = measured_open(g, text, true, &m, why);
    for (int pass = 0; good && pass < FCP_PASSES; pass++) {
        static uint64_t waited[FK_WAIT_WARPS][FK_WAITS];
        wait_names names;
        wait_line lines[WAIT_LINES];
        fcp_error err;
        for (unsigned run = 0; good && run < RUNS; run++) {
            good = !fcp_session_run_on(m.session, (fcp_pass)pass, m.tensors, g->stream, &err);
            if (!good) snprintf(why, GPU_WHY, "%.390s", err.message);
        }
        if (good) good = gpu_ok(g, g->cuda->call.stream_wait(g->stream), why, "a run failed");
        cu_module module = ((const fcp_cuda_session *)(const void *)m.session)->devices[0].modules[pass];
        if (!good || !copy_global(g, module, "fk_waited", waited, sizeof waited)) continue;
        copy_names(g, module, (fcp_pass)pass, &names);
        const uint32_t count = wait_lines(&names, (const uint64_t(*)[FK_WAITS])waited, lines);
        put_lines(g, i, (fcp_pass)pass, lines, count, RUNS + 1); /* measured_open has run it once */
        found += count;
    }
    measured_close(&m);
    if (good && !found) snprintf(why, GPU_WHY, "the kernels have counted nothing");
    return good && found ? GPU_OK : GPU_FAILED;
}

gpu_result step_waits(gpu *g, char why[GPU_WHY]) {
    int done = 0, skipped = 0;
    for (int i = 0; i < program_count(g); i++) {
        char key[80];
        gpu_answer answer;
        snprintf(key, sizeof key, "waits/%s", programs[i].name);
        journal_add(g->journal, "begin", key, "");
        gpu_run_apart(
            g, &(gpu_apart){.name = key, .open = true, .most = g->small ? 3000 : 25, .work = measure, .context = &i},
            &answer);
        journal_reload(g->journal);
        done += answer.result == GPU_OK;
        skipped += answer.result == GPU_SKIPPED;
        if (answer.result != GPU_OK) snprintf(why, GPU_WHY, "%s: %.400s", programs[i].name, answer.why);
    }
    if (done == program_count(g)) snprintf(why, GPU_WHY, "%d programs: see below", done);
    return done + skipped < program_count(g) ? GPU_FAILED : skipped ? GPU_SKIPPED : GPU_OK;
}
