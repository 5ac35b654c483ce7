/* fused.c: compares fused passes (--fuse pass), which are one launch whose CTAs wait for what arrives, with passes by
 * stages.
 *
 * Each plan has a process of its own, which does three things:
 * 1. It runs both passes by stages, as step `examples` does.
 * 2. It runs both passes fused, twice each. The two forward passes must have the same bits and are judged. Gradients
 *    must have the bits that they have by stages. Kernels are built with FK_DELAY and FK_BOUND, as in shaken.c: a CTA
 *    that waits for an arrival or a turn which never comes gives up, and says which it was.
 * 3. If all was right, it times the passes in both ways.
 *
 * Requires: a device, or the stand-in driver.
 * Gives:    step_fused and gpu_measured_fused of gpu.h.
 * Cost:     a process a plan, in which each pass runs four times by stages and twice fused; and the timed runs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "tests/gpu/gpu.h"

#define DEFINES "FK_DELAY=1 FK_BOUND=2000000000"
enum { ALL = (1 << FCP_TENSORS) - 1, TEXT = 600, SEED = 31, HELD = 52 };
static const char *const pass_names[FCP_PASSES] = {"forward", "backward"};

/* One launch a pass; several, since buffers are few; queries travel and results come back. The lengths for a stand-in
 * are short. */
static const struct plan_case {
    const char *name, *mask, *lengths, *small, *strategy;
    unsigned head_dim;
} plans[] = {
    {"one launch", "causal", "3000, 900", "200, 140", "fcp(coalesce = 2, buffers = 8)", 128},
    {"few buffers", "window(w = 500)", "3000", "300", "fcp(coalesce = 2, buffers = 1)", 64},
    {"rows moved", "causal", "2000, 600", "300", "cad(buffers = 2)", 128},
};
enum { PLANS = sizeof plans / sizeof *plans };

/* What is timed: blocks with many rows, and with few, where the tails of stages matter. */
static const struct timed_case {
    const char *name, *lengths;
} timed[] = {{"64K causal", "65536"}, {"8K causal", "8192"}};
enum { TIMED = sizeof timed / sizeof *timed };

/* On a stand-in all cases would be the same program. */
static int timed_count(const gpu *g) { return g->small ? 1 : TIMED; }

static void plan_program(const gpu *g, const struct plan_case *x, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %u; dtype = bf16 }\ncluster { nodes = 1; gpus = %d }\n"
             "batch { lengths = [%s] }\n"
             "plan { mask = %s; block = 128; strategy = %s; margin = 8; passes = forward, backward }\n",
             g->small ? 2 : 4, g->small ? 1 : 2, g->small ? 16 : x->head_dim, g->small ? 3 : 4,
             g->small ? x->small : x->lengths, x->mask, x->strategy);
}

static void timed_program(const gpu *g, const struct timed_case *x, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = bf16 }\ncluster { nodes = 1; gpus = %d }\n"
             "batch { lengths = [%s] }\nplan { mask = causal; block = %d; strategy = fcp(coalesce = 8, buffers = 8); "
             "margin = 8; passes = forward, backward }\n",
             g->small ? 2 : 64, g->small ? 1 : 8, g->small ? 16 : 128, g->small ? 2 : 8, g->small ? "400" : x->lengths,
             g->small ? 128 : 1024);
}

bool gpu_measured_fused(gpu *g, gpu_defined_call *each, void *context) {
    char text[TEXT];
    bool more = true;
    for (int i = 0; more && i < PLANS + timed_count(g); i++) {
        if (i < PLANS) plan_program(g, &plans[i], text);
        else timed_program(g, &timed[i - PLANS], text);
        more = each(g, "", text, context);
        g->fuse = FCP_FUSE_PASS;
        more = more && each(g, i < PLANS ? DEFINES : "", text, context);
        g->fuse = FCP_FUSE_STAGES;
    }
    return more;
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

/* Have the outputs of a pass the same bits? If not, `why` says so. */
static bool same_bits(const fcp_shape *shape, fcp_pass pass, const fcp_packed *a, const fcp_packed *b, const char *than,
                      char why[GPU_WHY]) {
    const char *name;
    if (gpu_outputs_same(shape, pass, a, b, &name)) return true;
    snprintf(why, GPU_WHY, "fused, %s has other bits than %s", name, than);
    return false;
}

static void copy_outputs(const fcp_shape *shape, fcp_pass pass, const fcp_packed *from, fcp_packed *to) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (gpu_outputs(pass) >> t & 1) memcpy(to->t[t], from->t[t], fcp_packed_bytes(shape, (fcp_tensor)t));
}

static void spoil_outputs(const fcp_shape *shape, fcp_pass pass, fcp_packed *x) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (gpu_outputs(pass) >> t & 1) memset(x->t[t], 0xff, fcp_packed_bytes(shape, (fcp_tensor)t));
}

static bool run_pass(fcp_session *session, const fcp_plan *plan, fcp_pass pass, fcp_packed *packed, char why[GPU_WHY]) {
    fcp_error err;
    if (!fcp_session_run_packed(session, plan, pass, packed, NULL, &err)) return true;
    snprintf(why, GPU_WHY, "fused, %s: %.390s", pass_names[pass], err.message);
    return false;
}

/* Both fused passes. `stages` has what came by stages, and `packed` the same inputs. */
static bool run_fused(gpu *g, fcp_session *session, const fcp_plan *plan, const fcp_shape *shape,
                      const fcp_packed *stages, fcp_packed *packed, fcp_packed *again, char why[GPU_WHY]) {
    if (!run_pass(session, plan, FCP_FORWARD, packed, why) || !run_pass(session, plan, FCP_FORWARD, again, why) ||
        !same_bits(shape, FCP_FORWARD, packed, again, "another fused run", why) ||
        !gpu_judge(g, plan, 1u << FCP_FORWARD, 0, shape->ranks, packed, why))
        return false;
    copy_outputs(shape, FCP_FORWARD, stages, packed);
    for (int run = 0; run < 2; run++) {
        spoil_outputs(shape, FCP_BACKWARD, packed);
        if (!run_pass(session, plan, FCP_BACKWARD, packed, why) ||
            !same_bits(shape, FCP_BACKWARD, stages, packed, "by stages", why))
            return false;
    }
    return true;
}

static bool check_fused(gpu *g, const fcp_plan *plan, const char *key, const fcp_packed *stages, char why[GPU_WHY]) {
    fcp_shape shape;
    fcp_packed packed = {0}, again = {0};
    fcp_session *session = NULL;
    fcp_error err = {.message = ""};
    fcp_plan_shape(plan, &shape);
    const bool held = g->control && gpu_injected(g, "held", key);
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .fuse = FCP_FUSE_PASS,
                                         .timeout_s = held ? 1 : g->timeout_s};
    if (g->control) g->control->plan = plan;
    bool good = !fcp_packed_alloc(&shape, ALL, &packed, &err) && !fcp_packed_alloc(&shape, ALL, &again, &err);
    if (good) fcp_packed_draw(&shape, ALL, SEED, &packed);
    if (good) fcp_packed_draw(&shape, ALL, SEED, &again);
    good = good && !fcp_session_create(plan, &options, &session, &err);
    if (!good) snprintf(why, GPU_WHY, "fused: %.390s", err.message);
    if (good && fcp_session_fused(session, FCP_FORWARD) != FCP_FUSE_PASS) {
        snprintf(why, GPU_WHY, "the session does not fuse its forward pass");
        good = false;
    }
    if (good && held) g->control->hang_at = g->control->nodes + HELD; /* something that the launch waits for */
    good = good && run_fused(g, session, plan, &shape, stages, &packed, &again, why);
    if (session && gpu_gave_up(g, session, why)) good = false;
    gpu_hung(g, session, key);
    if (good && g->control && g->control->trouble[0]) {
        snprintf(why, GPU_WHY, "%.390s", g->control->trouble);
        good = false;
    }
    fcp_session_free(session);
    if (g->control) g->control->plan = NULL;
    fcp_packed_free(&packed);
    fcp_packed_free(&again);
    return good;
}

typedef struct one_case {
    const char *key;
    int number;
} one_case;

static gpu_result check(gpu *g, void *context, gpu_answer *out) {
    const one_case *x = context;
    fcp_packed stages = {0};
    char text[TEXT], none[GPU_WHY];
    plan_program(g, &plans[x->number], text);
    fcp_plan *plan = gpu_plan_of("fused.fcp", text, NULL, 0, out->why);
    bool good = plan && gpu_check_plan(g, plan, SEED, NULL, &stages, out->why);
    if (good) gpu_define(g, DEFINES, none); /* without, waits have no bound, and what is checked is the same */
    good = good && check_fused(g, plan, x->key, &stages, out->why);
    fcp_packed_free(&stages);
    fcp_plan_free(plan);
    return good ? GPU_OK : GPU_FAILED;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

/* A fused pass is never a graph, so stages are timed without one, too. */
enum { GRAPH, STREAMS, FUSED, WAYS };
static const char *const ways[WAYS] = {"by stages, a graph", "by stages", "one launch"};

/* Times whole runs. ms: of the way before; gets those of this one. */
static bool time_way(gpu *g, const struct timed_case *x, int way, double ms[FCP_PASSES], char why[GPU_WHY]) {
    measured m = {0};
    char text[TEXT];
    timed_program(g, x, text);
    g->fuse = way == FUSED ? FCP_FUSE_PASS : FCP_FUSE_STAGES;
    g->streams = way != GRAPH;
    bool good = measured_open(g, text, true, &m, why);
    for (int pass = 0; good && pass < FCP_PASSES; pass++) {
        double spread, before = ms[pass];
        char name[100], note[80];
        good = measured_run(&m, (fcp_pass)pass, &ms[pass], &spread, why);
        snprintf(name, sizeof name, "%s, %s, 8 ranks on one device, %s", pass_names[pass], x->name, ways[way]);
        if (!good || gpu_row_done(g, name)) continue;
        snprintf(note, sizeof note, "%.3f ms, spread %.1f %%, a whole run", ms[pass], 100 * spread);
        gpu_row r = gpu_row_of(name, ms[pass] > 0 ? m.flops[pass] / ms[pass] * 1e-9 : 0, "TFLOP/s", note);
        r.ceiling = g->machine.major == 9 ? "ceiling.wgmma" : "ceiling.mma";
        if (way == FUSED) r.against = ways[STREAMS];
        if (way == FUSED && ms[pass] > 0) r.ratio = before / ms[pass];
        gpu_row_put(g, &r);
    }
    measured_close(&m);
    return good;
}

static gpu_result time_ways(gpu *g, void *context, gpu_answer *out) {
    const one_case *x = context;
    double ms[FCP_PASSES] = {0};
    for (int way = 0; way < WAYS; way++)
        if (!time_way(g, &timed[x->number], way, ms, out->why)) return GPU_FAILED;
    return GPU_OK;
}

/* --- the step ----------------------------------------------------------------------------------------------------- */

/* Does one thing in a process of its own, unless it has been done. done: what is then written down. False: `why` says
 * what went wrong. */
static bool do_apart(gpu *g, const char *key, int number, const char *done,
                     gpu_result (*work)(gpu *, void *, gpu_answer *), char why[GPU_WHY]) {
    char rest[40];
    gpu_answer answer;
    one_case x = {key, number};
    if (journal_find(g->journal, "plan", key, rest, sizeof rest) && strcmp(rest, done) == 0) return true;
    journal_add(g->journal, "begin", key, "");
    gpu_run_apart(g, &(gpu_apart){.name = key, .open = true, .most = g->small ? 3000 : 45, .work = work, .context = &x},
                  &answer);
    journal_reload(g->journal);
    const bool good = answer.result == GPU_OK;
    journal_add(g->journal, "plan", key, good ? done : answer.why);
    if (!good) snprintf(why, GPU_WHY, "%s: %.400s", key, answer.why);
    return good;
}

gpu_result step_fused(gpu *g, char why[GPU_WHY]) {
    int right = 0, rows = 0;
    char key[80];
    for (int i = 0; i < PLANS; i++) {
        snprintf(key, sizeof key, "fused/%s", plans[i].name);
        right += do_apart(g, key, i, "right", check, why);
    }
    if (right < PLANS) return GPU_FAILED;
    for (int i = 0; i < timed_count(g); i++) {
        if (gpu_left(g) < 8 && !g->small) {
            snprintf(why, GPU_WHY, "%d plans right; the times later", right);
            return GPU_LATER;
        }
        snprintf(key, sizeof key, "fused/%s", timed[i].name);
        rows += do_apart(g, key, i, "measured", time_ways, why);
    }
    if (rows < timed_count(g)) return GPU_FAILED;
    snprintf(why, GPU_WHY, "%d plans right, gradients with the bits by stages; and timed beside them", right);
    return GPU_OK;
}
