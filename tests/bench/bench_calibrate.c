/* bench_calibrate.c: calibrates the profile `cpu` on this machine: measures rows of the host backend, fits the
 * profile's constants to them, and predicts plans that the fit has not seen.
 *
 * A row is what one plan takes, of one rank with one worker, in float32:
 * 1. The plan runs several times. Processor time is measured, because other work on the machine disturbs it least.
 * 2. The row's time is the least of these, minus the time that the model gives for copies.
 *
 * Plans are predicted in processor time, summed over all ranks. Plans of two ranks are predicted in wall time too. That
 * needs two processors that have nothing else to do.
 *
 * The rows are written beside the benchmark as cpu.csv, and what `fcpc calibrate` makes of them as cpu.profile.
 */
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "compiler/base/text.h"
#include "compiler/simulate/fit.h"
#include "runtime/judge/packed.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan.h"
#include "tests/bench/bench.h"

enum { RUNS = 3, HEADS = 4, HEAD_DIM = 128 };

typedef struct program {
    const char *name, *mask, *lengths;
    unsigned ranks;
    const char *more;
} program;

static const program fitted[] = {
    {"causal.1024", "causal", "1024", 1, ""}, {"causal.2048", "causal", "2048", 1, ""},
    {"causal.4096", "causal", "4096", 1, ""},
    {"full.512", "full", "512", 1, ""}, {"full.1024", "full", "1024", 1, ""}, {"full.2048", "full", "2048", 1, ""},
    {"window.4096", "window(w = 512)", "4096", 1, ""}, {"documents.3000", "causal", "300 x 10", 1, ""},
    {"lambda.2048", "lambda(sink = 64, window = 512)", "2048", 1, ""}};
static const program unseen[] = {{"causal, 3000 tokens", "causal", "3000", 1, ""},
                                 {"window of 1024, 3500 tokens", "window(w = 1024)", "3500", 1, ""},
                                 {"documents of 900 to 100 tokens", "causal", "900, 700, 500 x 2, 300 x 3, 100 x 5", 1,
                                  ""},
                                 {"causal, 4096 tokens, 2 ranks", "causal", "4096", 2, "; strategy = fcp; block = 512"},
                                 {"full, 2048 tokens, ring of 2 ranks", "full", "2048", 2, "; strategy = ring"}};

static fcp_plan *make_plan(const program *p) {
    char source[600];
    snprintf(source, sizeof source,
             "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = fp32 }\ncluster { gpus = %u; gpu = cpu }\n"
             "batch { lengths = [%s] }\n"
             "plan { mask = %s; layout = planned; passes = forward, backward%s }\n",
             HEADS, HEADS, HEAD_DIM, p->ranks, p->lengths, p->mask, p->more);
    return bench_plan_of(source, NULL, 0);
}

/* What a plan takes, in seconds: of processors, all ranks together; and on the wall. */
typedef struct times {
    double processor[FCP_PASSES], wall[FCP_PASSES];
} times;

/* The least times over the runs. */
static bool measure(const fcp_plan *plan, times *out, fcp_error *err) {
    const fcp_session_options options = {.size = sizeof options,
                                         .backend = "host",
                                         .compute_threads = plan->problem->ranks};
    fcp_session *session = NULL;
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    bool good = !fcp_session_create(plan, &options, &session, err) &&
                !fcp_packed_alloc(&shape, (1u << FCP_TENSORS) - 1, &packed, err);
    if (good) fcp_packed_draw(&shape, (1u << FCP_TENSORS) - 1, 1, &packed);
    for (int run = 0; run < RUNS && good; run++)
        for (int pass = 0; pass < FCP_PASSES && good; pass++) {
            double wall = 0, begin = bench_processor();
            good = !fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, &wall, err);
            double processor = bench_processor() - begin;
            if (!run || processor < out->processor[pass]) out->processor[pass] = processor;
            if (!run || wall < out->wall[pass]) out->wall[pass] = wall;
        }
    fcp_packed_free(&packed);
    fcp_session_free(session);
    return good;
}

static bool predict(const fcp_plan *plan, const sim_profile *profile, times *out, fcp_error *err) {
    arena memory = {0};
    sim_result r;
    bool good = !simulate(plan, profile, NULL, &memory, &r, err);
    for (int pass = 0; pass < FCP_PASSES && good; pass++) {
        out->processor[pass] = (double)r.pass[pass].compute / (double)SIM_SECOND;
        out->wall[pass] = (double)r.pass[pass].makespan / (double)SIM_SECOND;
    }
    arena_free(&memory);
    return good;
}

static bool add_rows(const program *p, text *rows, fcp_error *err) {
    static const char no_kernels[] = "gpu cpu\nsms 1 \"t\"\nsmall 0 ps \"t\"\nforward.128.full 1 ps \"t\"\n"
                                     "forward.128.partial 1 ps \"t\"\nforward.128.row 0 ps \"t\"\n"
                                     "forward.128.launch 0 ps \"t\"\nbackward.128.full 1 ps \"t\"\n"
                                     "backward.128.partial 1 ps \"t\"\nbackward.128.row 0 ps \"t\"\n"
                                     "backward.128.launch 0 ps \"t\"\n";
    times measured = {{0}}, copies;
    sim_profile none;
    fcp_plan *plan = make_plan(p);
    bool good = plan && !sim_profile_read("none", no_kernels, sizeof no_kernels - 1, &none, err) &&
                predict(plan, &none, &copies, err) && measure(plan, &measured, err);
    for (int pass = 0; pass < FCP_PASSES && good; pass++) {
        calibrate_row row;
        good = !calibrate_count(plan, (fcp_pass)pass, 0, &row);
        snprintf(row.name, sizeof row.name, "%s", p->name);
        strcpy(row.gpu, "cpu");
        row.sms = 1;
        row.seconds = measured.processor[pass] - copies.processor[pass];
        if (row.seconds < measured.processor[pass] / 2) row.seconds = measured.processor[pass] / 2;
        char line[CALIBRATE_LINE];
        calibrate_print(&row, line);
        text_printf(rows, "%s\n", line);
    }
    fcp_plan_free(plan);
    return good;
}

/* Writes a file beside this program. */
static void keep(const char *name, const text *t) {
    char own[PATH_MAX], path[PATH_MAX + 32];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    own[length < 0 ? 0 : length] = 0;
    snprintf(path, sizeof path, "%s/%s", dirname(own), name);
    FILE *f = fopen(path, "w");
    if (!f || fwrite(t->at, 1, t->size, f) != t->size) fprintf(stderr, "%s: cannot be written\n", path);
    if (f) fclose(f);
}

static bool fit(sim_profile *out, fcp_error *err) {
    text rows = {0}, profile = {0};
    arena memory = {0};
    calibration x;
    sim_profile base;
    bool good = true;
    text_puts(&rows, CALIBRATE_HEADER "\n");
    for (size_t i = 0; i < sizeof fitted / sizeof *fitted && good; i++) good = add_rows(&fitted[i], &rows, err);
    if (good) keep("cpu.csv", &rows);
    good = good && !calibrate_read("cpu.csv", rows.at, rows.size, &memory, &x, err) &&
           !calibrate_fit_rows(&x, 0, err) && !sim_profile_find("cpu", &base, err) &&
           !calibrate_profile(&x, "the host backend, float32", &base, &profile, err) &&
           !sim_profile_read("cpu.profile", profile.at, profile.size, out, err);
    if (good) keep("cpu.profile", &profile);
    for (uint32_t i = 0; good && i < x.fit_count; i++) {
        char name[80], note[160];
        const double *c = x.fits[i].constants;
        snprintf(name, sizeof name, "cpu calibrated, %s, rows of the fit", fcp_pass_names[x.fits[i].pass]);
        snprintf(note, sizeof note, "the largest of %u; full %.4g, partial %.4g, row %.4g, launch %.4g us",
                 x.fits[i].rows, 1e6 * c[SIM_FULL], 1e6 * c[SIM_PARTIAL], 1e6 * c[SIM_ROW], 1e6 * c[SIM_LAUNCH]);
        bench_row(name, 100 * x.fits[i].worst, "%", "", true, note);
    }
    text_free(&rows);
    text_free(&profile);
    arena_free(&memory);
    return good;
}

static void compare(const char *kind, int pass, const char *plan, double predicted, double measured, bool judged,
                    const char *more) {
    char name[120], note[160];
    double error = predicted / measured - 1, size = error < 0 ? -error : error;
    snprintf(name, sizeof name, "cpu simulated against %s, %s, %s", kind, fcp_pass_names[pass], plan);
    snprintf(note, sizeof note, "%+.1f %%: simulated %.2f ms, measured %.2f%s", 100 * error, 1e3 * predicted,
             1e3 * measured, more);
    bench_row(name, 100 * size, "%", judged ? "<= 15 %" : "", size <= 0.15, note);
}

void bench_calibrate(void) {
    sim_profile profile;
    double load[1] = {0};
    fcp_error err = {.message = "no plan"};
    if (!bench_may_want("cpu calibrated") && !bench_may_want("cpu simulated against")) return;
    const bool busy = getloadavg(load, 1) == 1 && load[0] > 1; /* then wall times say nothing */
    bool good = fit(&profile, &err);
    for (size_t i = 0; i < sizeof unseen / sizeof *unseen && good; i++) {
        times measured = {{0}}, predicted;
        fcp_plan *plan = make_plan(&unseen[i]);
        good = plan && measure(plan, &measured, &err) && predict(plan, &profile, &predicted, &err);
        for (int pass = 0; pass < FCP_PASSES && good; pass++) {
            compare("processor time", pass, unseen[i].name, predicted.processor[pass], measured.processor[pass], true,
                    "");
            if (unseen[i].ranks > 1)
                compare("wall time", pass, unseen[i].name, predicted.wall[pass], measured.wall[pass], !busy,
                        busy ? "; not judged: the machine was busy" : "");
        }
        fcp_plan_free(plan);
    }
    if (!good) bench_row("cpu calibrated", 0, "%", "<= 15 %", false, err.message);
}
