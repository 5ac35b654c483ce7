/* rows_speed.c: measures how fast attention is, beside peers that were measured on the same device. Rows of one rank
 * are kept for `fcpc calibrate` too.
 *
 *   figure  the median time of a pass as one graph, with tensors in home blocks before and after it: its kernels, and
 *           the copies between ranks if there are several
 *   note    what a caller's whole run takes, which also copies the caller's tensors to home blocks and back
 * Operations are counted exactly, from the pairs of the mask, for the peers too: for each pair and head 4 * head_dim
 * forward, or 10 * head_dim backward.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/simulate/fit.h"
#include "runtime/base/clock.h"
#include "tests/gpu/gpu.h"

enum { TEXT = 1200 };

typedef struct speed_case {
    const char *name;            /* of the row, and of the peer's fact */
    const char *mask, *lengths;  /* in a program's words */
    const char *small;           /* lengths on a stand-in */
    unsigned ranks, block;
    const char *more;            /* further keys of the plan */
} speed_case;

/* The model of all rows; on a stand-in a tiny one. */
static void program(const gpu *g, const speed_case *c, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = bf16 }\n"
             "cluster { nodes = 1; gpus = %u; gpu = h200 }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = %u; passes = forward, backward%s }\n",
             g->small ? 2 : 64, g->small ? 1 : 8, g->small ? 16 : 128, c->ranks, g->small ? c->small : c->lengths,
             c->mask, g->small ? 128 : c->block, c->more);
}

static const speed_case plain[] = {
    {"causal.8192", "causal", "8192", "200", 1, 4096, ""},   {"full.8192", "full", "8192", "200", 1, 4096, ""},
    {"causal.16384", "causal", "16384", "300", 1, 4096, ""}, {"full.16384", "full", "16384", "300", 1, 4096, ""},
    {"causal.32768", "causal", "32768", "400", 1, 4096, ""}, {"full.32768", "full", "32768", "400", 1, 4096, ""},
};
static const speed_case shorter[] = {
    {"causal.2048", "causal", "2048", "130", 1, 2048, ""}, {"full.2048", "full", "2048", "130", 1, 2048, ""},
};
static const speed_case unordered[] = {
    {"causal.8192", "causal", "8192", "200", 1, 4096, "; deterministic = false"},
    {"full.8192", "full", "8192", "200", 1, 4096, "; deterministic = false"},
    {"causal.32768", "causal", "32768", "400", 1, 4096, "; deterministic = false"},
};
/* As peers.py has them. */
static const speed_case masks[] = {
    {"window.16384", "window(w = 1024)", "16384", "300", 1, 4096, ""},
    {"documents.16384", "causal", "6000, 4000, 3000, 2000, 1000, 384", "200, 100", 1, 4096, ""},
    {"lambda.16384", "lambda(sink = 64, window = 1024)", "16384", "300", 1, 4096, ""},
    {"shared_question.16384", "shared_question(p = 20, answers = 4)", "16384", "300", 1, 4096, ""},
    {"block_causal.16384", "block_causal(b = 1024)", "16384", "300", 1, 4096, ""},
};
static const speed_case several[] = {
    {"one rank", "causal", "65536", "1100", 1, 4096, "; strategy = fcp(coalesce = 16)"},
    {"8 ranks", "causal", "65536", "1100", 8, 4096, "; strategy = fcp(coalesce = 16)"},
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

void gpu_measured(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    static const struct { const speed_case *all; size_t count; } lists[] = {
        {plain, COUNT(plain)}, {shorter, COUNT(shorter)}, {unordered, COUNT(unordered)}, {masks, COUNT(masks)},
        {several, COUNT(several)}};
    const speed_case tile = {"", "full", "512:1024", "16:16", 1, 16384, ""}; /* of step_curve */
    char text[TEXT];
    for (size_t i = 0; i < COUNT(lists); i++)
        for (size_t j = 0; j < lists[i].count; j++) {
            program(g, &lists[i].all[j], text);
            if (!each(g, text, context)) return;
        }
    program(g, &tile, text);
    each(g, text, context);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const char *const pass_names[FCP_PASSES] = {"forward", "backward"};

/* What the rows of a step are held to. */
typedef struct goals {
    const char *title, *peer;               /* peer: part of a fact's name, and of the table */
    double goal[FCP_PASSES], first[FCP_PASSES];
    unsigned passes;                        /* bits */
    const char *ceiling;                    /* a fact */
} goals;

static void name_row(char out[120], const goals *k, const speed_case *c, int pass) {
    snprintf(out, 120, "%s%s, %s", k->title, pass_names[pass], c->name);
}

static bool all_done(const gpu *g, const goals *k, const speed_case *c) {
    char name[120];
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        name_row(name, k, c, pass);
        if ((k->passes >> pass & 1) && !gpu_row_done(g, name)) return false;
    }
    return true;
}

/* Keeps a time as a row for `fcpc calibrate`: of one rank, which has all multiprocessors, and of the kernels that a
 * plan gets. */
static void keep_for_calibrate(gpu *g, const measured *m, const goals *k, const speed_case *c, int pass, double ms) {
    static const char *const known[] = {"a100", "h100", "h200", "b200"};
    calibrate_row r;
    char name[120], line[CALIBRATE_LINE];
    if (c->ranks != 1 || *k->title || !(ms > 0) || calibrate_count(m->plan, (fcp_pass)pass, 0, &r)) return;
    snprintf(r.name, sizeof r.name, "%s", c->name);
    snprintf(r.gpu, sizeof r.gpu, g->machine.standin ? "standin" : "gpu");
    for (size_t i = 0; i < sizeof known / sizeof *known && !g->machine.standin; i++)
        if (strcasestr(g->machine.name, known[i])) snprintf(r.gpu, sizeof r.gpu, "%s", known[i]);
    r.sms = (uint64_t)g->machine.multiprocessors;
    r.seconds = 1e-3 * ms;
    calibrate_print(&r, line);
    snprintf(name, sizeof name, "%s, %s", pass_names[pass], c->name);
    journal_add(g->journal, "calibrate", name, line);
}

static bool row(gpu *g, measured *m, const goals *k, const speed_case *c, int pass, char why[GPU_WHY]) {
    char name[120], fact[120], note[240], peer_text[60] = "not measured";
    double ms = 0, spread = 0, whole = 0;
    name_row(name, k, c, pass);
    if (gpu_row_done(g, name)) return true;
    if (!measured_pass(m, (fcp_pass)pass, &ms, &spread, why) || !measured_run(m, (fcp_pass)pass, &whole, NULL, why))
        return false;
    keep_for_calibrate(g, m, k, c, pass, ms);
    snprintf(fact, sizeof fact, "%s.%s.%s", k->peer, c->name, pass_names[pass]);
    double peer = gpu_fact(g, fact), rate = ms > 0 ? m->flops[pass] / ms * 1e-9 : 0;
    if (peer > 0) snprintf(peer_text, sizeof peer_text, "%.3f ms", peer);
    snprintf(note, sizeof note, "%.3f ms, spread %.1f %%; %s: %s; a caller's whole run %.3f ms", ms, 100 * spread,
             k->peer, peer_text, whole);
    gpu_row r = gpu_row_of(name, rate, "TFLOP/s", note);
    r.against = k->peer;
    r.ratio = peer > 0 && ms > 0 ? peer / ms : GPU_NONE;
    r.fact = fact;
    r.own = ms;
    r.goal = k->goal[pass];
    r.first = k->first[pass];
    r.ceiling = k->ceiling;
    gpu_row_put(g, &r);
    return true;
}

/* All rows of a list of cases, as far as there is time. */
static gpu_result rows(gpu *g, const goals *k, const speed_case *cases, size_t count, char why[GPU_WHY]) {
    char text[TEXT];
    for (size_t i = 0; i < count; i++) {
        measured m = {0};
        if (all_done(g, k, &cases[i])) continue;
        if (gpu_left(g) < 6 && !g->small) {
            snprintf(why, GPU_WHY, "%zu of %zu; the others later", i, count);
            return GPU_LATER;
        }
        program(g, &cases[i], text);
        bool good = measured_open(g, text, true, &m, why);
        for (int pass = 0; good && pass < FCP_PASSES; pass++)
            if (k->passes >> pass & 1) good = row(g, &m, k, &cases[i], pass, why);
        measured_close(&m);
        if (!good) return GPU_FAILED;
    }
    snprintf(why, GPU_WHY, "%zu programs", count);
    return GPU_OK;
}

/* The ceiling of the kernels that a device of this capability gets. */
static const char *own_ceiling(const gpu *g) {
    return g->machine.major == 9 && !g->older ? "ceiling.wgmma" : "ceiling.mma";
}

gpu_result step_speed(gpu *g, char why[GPU_WHY]) {
    const goals k = {"", "cudnn", {0.95, 0.8}, {0.75, 0.6}, 3, own_ceiling(g)};
    const goals loose = {"unordered ",         "cudnn",           {GPU_NONE, 0.95},
                         {GPU_NONE, GPU_NONE}, 1 << FCP_BACKWARD, own_ceiling(g)};
    gpu_result result = rows(g, &k, plain, COUNT(plain), why);
    return result == GPU_OK ? rows(g, &loose, unordered, COUNT(unordered), why) : result;
}
gpu_result step_short(gpu *g, char why[GPU_WHY]) {
    const goals k = {"", "cudnn", {0.9, 0.7}, {GPU_NONE, GPU_NONE}, 3, own_ceiling(g)};
    return rows(g, &k, shorter, COUNT(shorter), why);
}
/* What a new batch takes before it runs: parsing, planning both passes, verifying; FlexAttention's is a block mask. */
static bool plan_row(gpu *g, const speed_case *c, char why[GPU_WHY]) {
    double ms[9];
    char name[120], fact[120], text[TEXT];
    snprintf(name, sizeof name, "planning, %s", c->name);
    snprintf(fact, sizeof fact, "blockmask.%s", c->name);
    if (gpu_row_done(g, name)) return true;
    program(g, c, text);
    for (size_t i = 0; i < COUNT(ms); i++) {
        double begin = fcp_clock();
        fcp_plan *plan = gpu_plan_of("gpu-check.fcp", text, NULL, 0, why);
        ms[i] = 1e3 * (fcp_clock() - begin);
        if (!plan) return false;
        fcp_plan_free(plan);
    }
    double own = gpu_median(ms, COUNT(ms)), peer = gpu_fact(g, fact);
    gpu_row r = gpu_row_of(
        name, own, "ms",
        "processor time of a program's text to a verified plan; create_block_mask is compiled, on the device");
    r.against = "block mask";
    r.ratio = peer > 0 && own > 0 ? peer / own : GPU_NONE;
    r.fact = fact;
    r.own = own;
    gpu_row_put(g, &r);
    return true;
}

gpu_result step_masks(gpu *g, char why[GPU_WHY]) {
    const goals k = {"", "flex", {1.5, 1.5}, {GPU_NONE, GPU_NONE}, 3, own_ceiling(g)};
    gpu_result result = rows(g, &k, masks, COUNT(masks), why);
    for (size_t i = 0; result == GPU_OK && i < COUNT(masks); i++)
        if (!plan_row(g, &masks[i], why)) result = GPU_FAILED;
    return result;
}
gpu_result step_older(gpu *g, char why[GPU_WHY]) {
    g->older = true;
    const goals k = {"mma.sync ", "flash", {1.0, 0.85}, {GPU_NONE, GPU_NONE}, 3, "ceiling.mma"};
    return rows(g, &k, plain, COUNT(plain), why);
}

/* The kernels that are profiled: each pass of a causal mask once as it is, and with sums in any order, and once with
 * many PARTIAL cells. */
static const speed_case *const profiled[] = {&plain[0], &unordered[0], &masks[0]};

void gpu_measured_profiled(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    char text[TEXT];
    for (size_t i = 0; i < COUNT(profiled); i++) {
        program(g, profiled[i], text);
        if (!each(g, text, context)) return;
    }
}

int gpu_profiled(gpu *g) {
    char text[TEXT], why[GPU_WHY] = "";
    fcp_error err;
    if (gpu_open(g, &err)) {
        fprintf(stderr, "gpu-check: %s\n", err.message);
        return 1;
    }
    bool good = true;
    for (size_t i = 0; good && i < COUNT(profiled); i++) {
        measured m = {0};
        program(g, profiled[i], text);
        good = measured_open(g, text, true, &m, why); /* which runs every pass once */
        measured_close(&m);
    }
    if (!good) fprintf(stderr, "gpu-check: %s\n", why);
    gpu_close(g);
    return !good;
}

/* --- ranks on one device ------------------------------------------------------------------------------------------ */

gpu_result step_local(gpu *g, char why[GPU_WHY]) {
    static const char *const names[FCP_PASSES] = {"forward, 64K causal, 8 ranks on one device",
                                                  "backward, 64K causal, 8 ranks on one device"};
    double ms[COUNT(several)][FCP_PASSES] = {{0}}, flops[FCP_PASSES] = {0};
    char text[TEXT];
    if (gpu_row_done(g, names[0]) && gpu_row_done(g, names[1])) return GPU_OK;
    for (size_t i = 0; i < COUNT(several); i++) {
        measured m = {0};
        program(g, &several[i], text);
        bool good = measured_open(g, text, true, &m, why);
        for (int pass = 0; good && pass < FCP_PASSES; pass++) {
            good = measured_pass(&m, (fcp_pass)pass, &ms[i][pass], NULL, why);
            flops[pass] = m.flops[pass];
        }
        if (good && i) {
            const char *reason = "", *name = fcp_partition_name(fcp_session_partition(m.session, &reason));
            char told[300];
            snprintf(told, sizeof told, "%s: %.250s", name, reason);
            journal_add(g->journal, "driver", "how 8 ranks on one device leave multiprocessors to communication", told);
        }
        measured_close(&m);
        if (!good) return GPU_FAILED;
    }
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        char note[160];
        double rate = ms[1][pass] > 0 ? flops[pass] / ms[1][pass] * 1e-9 : 0;
        snprintf(note, sizeof note, "block 4K, coalesce 16; %.3f ms, one rank doing all the work %.3f ms", ms[1][pass],
                 ms[0][pass]);
        gpu_row r = gpu_row_of(names[pass], rate, "TFLOP/s", note);
        r.against = "one rank";
        r.ratio = ms[1][pass] > 0 ? ms[0][pass] / ms[1][pass] : GPU_NONE;
        r.goal = 0.9;
        r.ceiling = own_ceiling(g);
        gpu_row_put(g, &r);
    }
    snprintf(why, GPU_WHY, "both passes");
    return GPU_OK;
}

/* --- the efficiency curve ----------------------------------------------------------------------------------------- */

/* One tile of so many queries and keys, all pairs: what the simulator calls f(tile lengths). */
gpu_result step_curve(gpu *g, char why[GPU_WHY]) {
    static const unsigned queries[] = {512, 1024, 2048, 4096, 8192}, keys[] = {1024, 4096, 16384};
    for (size_t i = 0; i < COUNT(queries); i++)
        for (size_t j = 0; j < COUNT(keys); j++) {
            char lengths[40], small[40], names[FCP_PASSES][80], text[TEXT];
            snprintf(lengths, sizeof lengths, "%u:%u", queries[i], keys[j]);
            snprintf(small, sizeof small, "%u:%u", queries[i] / 32, keys[j] / 64);
            for (int pass = 0; pass < FCP_PASSES; pass++)
                snprintf(names[pass], sizeof names[pass], "curve %s %u x %u", pass_names[pass], queries[i], keys[j]);
            if ((gpu_row_done(g, names[0]) && gpu_row_done(g, names[1])) || (g->small && (i || j))) continue;
            if (gpu_left(g) < 3 && !g->small) {
                snprintf(why, GPU_WHY, "the longer tiles later");
                return GPU_LATER;
            }
            const speed_case c = {"", "full", lengths, small, 1, 16384, ""};
            measured m = {0};
            program(g, &c, text);
            bool good = measured_open(g, text, true, &m, why);
            for (int pass = 0; good && pass < FCP_PASSES; pass++) {
                double ms = 0;
                good = measured_pass(&m, (fcp_pass)pass, &ms, NULL, why);
                if (!good) break;
                double rate = ms > 0 ? m.flops[pass] / ms * 1e-9 : 0;
                char note[60];
                snprintf(note, sizeof note, "%.4f ms", ms);
                gpu_row r = gpu_row_of(names[pass], rate, "TFLOP/s", note);
                r.ceiling = own_ceiling(g);
                gpu_row_put(g, &r);
            }
            measured_close(&m);
            if (!good) return GPU_FAILED;
        }
    snprintf(why, GPU_WHY,
             "TFLOP/s of one tile by its lengths; cluster { flops = ... } takes the rate that a plan's tiles reach");
    return GPU_OK;
}
