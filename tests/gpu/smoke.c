/* smoke.c: runs one FULL tile for each kernel, and prints a map of the errors if the result is wrong.
 *
 * A wrong fragment layout, a wrong descriptor or a missing wait spoils a certain part of a tile, so where the errors
 * are says more than how large they are. Each output is cut into 8 parts by its rows and 8 by its columns. The map
 * has a character for a part: '.' where its largest error is allowed, a digit n where that is up to 10^n times what
 * is allowed, '*' beyond that, and 'n' where there is a NaN. Lines are rows.
 *
 * Each kernel runs in a process of its own, in two builds. The first one's waits have a bound: where one would never
 * end, it gives up and says which it was, within a second, and the device is not held. Only if that build is right, the
 * ordinary one runs. If that does not end, the debugger says where it is (hung.c). A pair costs little more than one,
 * since most of the time is that of opening the device.
 *
 * `--smoke NAME` runs the ordinary build of one of them in this process, for the tools of tools.c.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/plan.h"
#include "tests/gpu/gpu.h"

#define BOUNDED "FK_BOUND=200000000" /* nanoseconds; a tile takes some thousand */
enum { HANGS_S = 5 };                /* how long the ordinary build may take */
enum { ALL = (1 << FCP_TENSORS) - 1, TEXT = 500, PARTS = 8, MAP = PARTS * (PARTS + 1), SEED = 11 };

/* On a stand-in there is one set of kernels, and head_dim is 16. */
static const struct smoke_case {
    const char *name, *more; /* more: keys of the plan */
    unsigned head_dim, value_dim;
    bool older, standin;
} cases[] = {
    {"head_dim-128", "", 128, 128, false, true},
    {"head_dim-64", "", 64, 64, false, false},
    {"head_dim-96", "", 96, 96, false, false},
    {"head_dim-192", "", 192, 192, false, false},
    {"head_dim-192-128", "", 192, 128, false, false},
    {"head_dim-256", "", 256, 256, false, false},
    {"unordered", "; deterministic = false", 128, 128, false, true},
    {"mma-128", "", 128, 128, true, false},
    {"mma-192-128", "", 192, 128, true, false},
    {"mma-256", "", 256, 256, true, false},
    {"mma-unordered", "; deterministic = false", 128, 128, true, false},
};
enum { CASES = sizeof cases / sizeof *cases };

static void program(const gpu *g, const struct smoke_case *c, char text[TEXT]) {
    snprintf(text, TEXT,
             "model { heads = 1; kv_heads = 1; head_dim = %u; value_dim = %u; dtype = bf16 }\n"
             "cluster { nodes = 1; gpus = 1 }\n"
             "batch { lengths = [128] }\nplan { mask = full; block = 128; passes = forward, backward%s }\n",
             g->small ? 16 : c->head_dim, g->small ? 16 : c->value_dim, c->more);
}

bool gpu_measured_smoke(gpu *g, gpu_defined_call *each, void *context) {
    char text[TEXT];
    for (int i = 0; i < CASES; i++) {
        program(g, &cases[i], text);
        if (!cases[i].older && !(each(g, "", text, context) && each(g, BOUNDED, text, context))) return false;
    }
    return true;
}

void gpu_measured_checked(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    char text[TEXT];
    for (int i = 0; i < CASES; i++) {
        if (!cases[i].standin) continue; /* the two that tools.c names */
        program(g, &cases[i], text);
        if (!each(g, text, context)) return;
    }
}

/* --- maps --------------------------------------------------------------------------------------------------------- */

/* The character for a part: see the head. */
static char of_error(double error, double allowed) {
    if (!(error == error)) return 'n';
    if (error <= allowed) return '.';
    double times = allowed > 0 ? ceil(log10(error / allowed)) : 10;
    return times > 9 ? '*' : (char)('0' + (times < 1 ? 1 : (int)times));
}

/* The map of a tensor of rows x columns in bf16 against `expected`; its lines end with newlines. */
static void draw_map(const uint16_t *result, const double *expected, size_t rows, size_t columns, double allowed,
                     char map[MAP + 1]) {
    double worst[PARTS][PARTS] = {{0}};
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j++) {
            double *to = &worst[i * PARTS / rows][j * PARTS / columns];
            double error = fabs((double)fcp_bf16_float(result[i * columns + j]) - expected[i * columns + j]);
            if (!(error <= *to)) *to = error; /* a NaN stays */
        }
    for (int i = 0; i < PARTS; i++) {
        for (int j = 0; j < PARTS; j++) map[i * (PARTS + 1) + j] = of_error(worst[i][j], allowed);
        map[i * (PARTS + 1) + PARTS] = '\n';
    }
    map[MAP] = 0;
}

/* Writes the maps of all outputs that are wrong into the file and to the terminal. */
static bool put_maps(gpu *g, const fcp_plan *plan, const fcp_shape *shape, const fcp_packed *packed,
                     const fcp_check_report *report, const char *name, char why[GPU_WHY]) {
    static const fcp_tensor tensors[] = {FCP_TENSOR_O, FCP_TENSOR_DQ, FCP_TENSOR_DK, FCP_TENSOR_DV};
    enum { MAPS = sizeof tensors / sizeof *tensors };
    const size_t numbers = shape->tokens * (shape->head_dim > shape->value_dim ? shape->head_dim : shape->value_dim);
    double *all = calloc(MAPS * numbers + shape->tokens, sizeof *all);
    char path[400];
    fcp_error err = {.message = "out of memory"};
    fcp_reference at = {all, all + MAPS * numbers, all + numbers, all + 2 * numbers, all + 3 * numbers};
    snprintf(path, sizeof path, "%.380s/smoke.txt", g->folder);
    FILE *f = fopen(path, "ae");
    bool good = all && f && !fcp_reference_compute(plan, packed, 0, &at, &err);
    if (!good) snprintf(why, GPU_WHY, "%.380s", err.message);
    for (int i = 0; good && i < MAPS; i++) {
        const fcp_check *c = &report->tensor[tensors[i]];
        char map[MAP + 1];
        uint64_t dims[3];
        if (!c->checked || c->ok) continue;
        fcp_tensor_shape(shape, tensors[i], dims);
        draw_map(packed->t[tensors[i]], all + (size_t)i * numbers, shape->tokens, dims[2], c->tolerance, map);
        fprintf(f, "%s, %s: error %g, allowed %g\n%s\n", name, fcp_tensor_name(tensors[i]), c->max_abs_error,
                c->tolerance, map);
        printf("  %s, %s:\n%s", name, fcp_tensor_name(tensors[i]), map);
        for (char *line = map; (line = strchr(line, '\n')) != NULL;) *line = '/';
        journal_add(g->journal, "smoke", name, map);
    }
    if (f) fclose(f);
    free(all);
    return good;
}

/* --- a kernel ----------------------------------------------------------------------------------------------------- */

/* For tests: a corner of dQ, rows 0 to 15 and an eighth of the columns, is what it should not be. */
static void spoil(const fcp_shape *shape, fcp_packed *packed) {
    uint16_t *dq = packed->t[FCP_TENSOR_DQ];
    for (size_t i = 0; i < shape->tokens / PARTS; i++)
        for (size_t j = 0; j < shape->head_dim / PARTS; j++) dq[i * shape->head_dim + j] ^= 0x4000;
}

static bool judge_tile(gpu *g, const fcp_plan *plan, const fcp_shape *shape, fcp_packed *packed, const char *name,
                       char why[GPU_WHY]) {
    fcp_check_report report = FCP_CHECK_START;
    fcp_error err;
    char key[60];
    snprintf(key, sizeof key, "smoke/%.40s", name);
    if (gpu_injected(g, "spoil", key)) spoil(shape, packed);
    if (fcp_check_run(plan, &(fcp_check_options){.passes = plan->problem->passes}, packed, &report, &err)) {
        snprintf(why, GPU_WHY, "%.380s", err.message);
        return false;
    }
    if (report.ok) return true;
    if (!put_maps(g, plan, shape, packed, &report, name, why)) return false;
    for (int t = 0; t < FCP_TENSORS; t++)
        if (report.tensor[t].checked && !report.tensor[t].ok) {
            char text[300];
            fcp_check_text(plan, (unsigned)t, &report.tensor[t], text, sizeof text);
            snprintf(why, GPU_WHY, "%s; maps of the errors are in smoke.txt", text);
            break;
        }
    return false;
}

/* Runs both passes once, stream by stream, and judges them. Waits that gave up, and what does not end, are said. */
static bool run_tile(gpu *g, const struct smoke_case *c, char why[GPU_WHY]) {
    char text[TEXT];
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_session *session = NULL;
    fcp_error err = {.message = ""};
    program(g, c, text);
    fcp_plan *plan = gpu_plan_of(c->name, text, NULL, 0, why);
    if (!plan) return false;
    fcp_plan_shape(plan, &shape);
    if (g->control) {
        g->control->plan = plan;
        g->control->idle = false;
    }
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .graph_from = UINT32_MAX,
                                         .timeout_s = g->timeout_s, .mma_sync = c->older};
    bool good = !fcp_packed_alloc(&shape, ALL, &packed, &err);
    if (good) fcp_packed_draw(&shape, ALL, SEED, &packed);
    good = good && !fcp_session_create(plan, &options, &session, &err);
    for (int pass = 0; good && pass < FCP_PASSES; pass++)
        good = !fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err);
    if (!good) snprintf(why, GPU_WHY, "%.390s", err.message);
    if (session && gpu_gave_up(g, session, why)) good = false;
    gpu_hung(g, session, c->name);
    fcp_session_free(session);
    good = good && judge_tile(g, plan, &shape, &packed, c->name, why);
    if (g->control) g->control->plan = NULL;
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
    return good;
}

/* Both builds. Without a compiler that takes definitions there is the ordinary one alone. */
static gpu_result run_apart(gpu *g, void *context, gpu_answer *out) {
    char why[GPU_WHY];
    if (!g->small && g->timeout_s > HANGS_S) g->timeout_s = HANGS_S;
    const bool bounded = gpu_define(g, BOUNDED, why);
    if (bounded && !run_tile(g, context, why)) {
        snprintf(out->why, GPU_WHY, "with bounded waits: %.1100s", why);
        return GPU_FAILED;
    }
    if (bounded && !gpu_define(g, "", out->why)) return GPU_FAILED;
    if (run_tile(g, context, why)) return GPU_OK;
    snprintf(out->why, GPU_WHY, "%s%.1100s", bounded ? "with bounded waits right; " : "", why);
    return GPU_FAILED;
}

static bool is_here(const gpu *g, const struct smoke_case *c) {
    return g->small ? c->standin : !c->older || g->machine.major == 9;
}

gpu_result step_smoke(gpu *g, char why[GPU_WHY]) {
    unsigned right = 0, wrong = 0;
    char first[400] = "";
    for (int i = 0; i < CASES; i++) {
        char key[60];
        gpu_answer answer;
        if (!is_here(g, &cases[i])) continue;
        snprintf(key, sizeof key, "smoke/%s", cases[i].name);
        const gpu_apart apart = {.name = key,
                                 .open = true,
                                 .judged = true,
                                 .most = g->small ? 3000 : 30,
                                 .work = run_apart,
                                 .context = (void *)(uintptr_t)&cases[i]};
        journal_add(g->journal, "begin", key, "");
        gpu_run_apart(g, &apart, &answer);
        journal_reload(g->journal);
        journal_add(g->journal, "plan", key, answer.result == GPU_OK ? "right" : answer.why);
        right += answer.result == GPU_OK;
        if (answer.result == GPU_OK) continue;
        if (!g->quiet) printf("  WRONG %s: %s\n", cases[i].name, answer.why);
        if (!wrong++) snprintf(first, sizeof first, "%s: %.350s", cases[i].name, answer.why);
    }
    if (wrong) snprintf(why, GPU_WHY, "%u of %u wrong, the first: %s", wrong, right + wrong, first);
    else snprintf(why, GPU_WHY, "%u tiles right, forward and backward", right);
    return wrong ? GPU_FAILED : GPU_OK;
}

int gpu_smoke_one(gpu *g, const char *name) {
    char why[GPU_WHY] = "";
    fcp_error err = {.message = ""};
    for (int i = 0; i < CASES; i++) {
        if (strcmp(cases[i].name, name)) continue;
        bool good = !gpu_open(g, &err) && run_tile(g, &cases[i], why);
        if (!good) fprintf(stderr, "gpu-check: %s: %s\n", name, *why ? why : err.message);
        gpu_close(g);
        return !good;
    }
    return 2;
}
