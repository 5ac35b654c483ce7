/* bench_auto.c: measures strategy = auto: how near its plans come to a lower bound, and to the best of 24 settings that
 * a user would write down; and how long choosing takes.
 *
 * Model: 64 heads, 8 of K and V, head_dim 128, bf16. Cluster: nodes of 8 H200s. Batch: 32,768 tokens a rank.
 *
 * Rows of bounds, forward passes:
 *   figure  the plan's predicted time over the largest of the bounds that the simulator prints beside it
 *   note    how long choosing and planning took, in wall and in processor time: the first call, and the median of RUNS
 *           calls; how many candidates were planned to the end; how long the mean rank computes, which no strategy can
 *           beat
 * Rows of fixed settings (fixed.c), with the forward pass alone and with both passes for the shared batches, and with
 * both passes for batches that are drawn from the same lists:
 *   figure  the predicted time of auto's plan over that of the best setting; the worst of three masks counts
 *   note    the figure and the best setting of each mask
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/auto/report.h"
#include "compiler/compile.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/plan.h"
#include "tests/bench/bench.h"
#include "tests/bench/fixed.h"
#include "tests/bench/workload.h"

enum { RUNS = 3, GPUS = 8, TOKENS = 32768, RATIOS = 128, DRAWN = 1 /* seed */ };

typedef struct found {
    double ratio[RATIOS], time[RATIOS]; /* of all rows; milliseconds, of those with 256 ranks */
    double fixed[RATIOS]; /* auto's time over that of the best fixed setting */
    int ratios, times, fixeds;
} found;

static const char *const lists[] = {"wlbllm", "prolong", "wikipedia"}, *const layouts[] = {"contiguous", "planned"},
                  *const masks[] = {"causal", "lambda", "shared_question"};
enum { LISTS = 3, LAYOUTS = 2, MASKS = 3 };

/* The program up to its strategy. */
static void write_head(uint32_t ranks, const char *mask, const char *layout, bool both, char out[400]) {
    snprintf(out, 400,
             "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
             "cluster { nodes = %u; gpus = %d; gpu = h200; memory = 100 TB }\n"
             "plan { mask = %s; layout = %s%s", ranks / GPUS, GPUS, mask, layout, both ? "" : "; passes = forward");
}

static void row(const char *list, uint32_t ranks, const char *mask, const char *layout, const uint64_t *lengths,
                size_t count, found *f) {
    char head[400], source[512], name[120], note[240];
    snprintf(name, sizeof name, "auto: time / bound, %s-%u, %s, %s", list, ranks, mask, layout);
    if (!bench_wants(name)) return;
    write_head(ranks, mask, layout, false, head);
    snprintf(source, sizeof source, "%s; strategy = auto }\n", head);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    auto_report r = {.count = 0};
    sim_profile profile;
    sim_result result;
    fcp_error err;
    arena memory = {0};
    fcpc_times times = {.total = 0};
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = count};
    fcp_code code = d ? fcpc_parse_text("bench_auto.fcp", source, strlen(source), NULL, d, &program) : FCP_E_NO_MEMORY;
    double took[RUNS], busy[RUNS];
    for (int i = 0; i < RUNS && !code; i++) {
        fcp_plan_free(plan);
        plan = NULL;
        auto_report_free(&r);
        const double start = bench_now(), before = bench_processor();
        code = compile_batch(program, &batch, NULL, d, &(compile_watch){.tried = &r}, &times, &plan);
        took[i] = 1e3 * (bench_now() - start), busy[i] = 1e3 * (bench_processor() - before);
    }
    if (!code) code = sim_profile_find("h200", &profile, &err);
    if (!code) code = simulate(plan, &profile, NULL, &memory, &result, &err);
    if (code) {
        char *said = fcpc_diagnostics_render(d, false);
        fprintf(stderr, "%s: %s", name, said ? said : "no memory");
        free(said);
    } else {
        const sim_pass *x = &result.pass[FCP_FORWARD];
        const double first = took[0], time = bench_median(took, RUNS);
        const double ratio = (double)x->makespan / (double)sim_largest_bound(x);
        text way = {0};
        uint32_t predicted = 0;
        for (uint32_t i = 0; i < r.count; i++) predicted += r.at[i].makespan > 0;
        auto_name(&r.at[r.chosen], &way);
        snprintf(note, sizeof note,
                 "%.*s, block %u: %.2f ms, / mean compute %.2f; chosen in %.0f ms (%.0f of processors; first %.0f) "
                 "from %u of %u",
                 (int)way.size, way.size ? way.at : "", plan->problem->block, 1e-9 * (double)x->makespan,
                 (double)x->makespan / (double)x->bound[SIM_BOUND_MEAN], time, bench_median(busy, RUNS), first,
                 predicted, r.count);
        bench_row(name, ratio, "x", "<= 1.3", ratio <= 1.3, note);
        f->ratio[f->ratios++] = ratio;
        if (ranks == 256) f->time[f->times++] = time;
        text_free(&way);
    }
    arena_free(&memory);
    fcp_plan_free(plan);
    auto_report_free(&r);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

/* What auto's plan takes, all passes, in picoseconds; 0: what is wrong is on stderr. */
static uint64_t time_of_auto(const char *head, const uint64_t *lengths, size_t count) {
    char source[512];
    auto_report r = {.count = 0};
    snprintf(source, sizeof source, "%s; strategy = auto }\n", head);
    fcp_plan *plan = bench_plan_watched(source, lengths, count, &(compile_watch){.tried = &r});
    const uint64_t time = plan ? auto_makespan(&r) : 0;
    fcp_plan_free(plan);
    auto_report_free(&r);
    return time;
}

static void say_setting(const fixed_setting *s, text *out) {
    text_puts(out, s->strategy);
    if (s->block) text_printf(out, " at %uK", s->block / 1024);
}

/* A row of three masks. `batch` is said behind the list's name. */
static void fixed_row(const char *list, uint32_t ranks, const char *batch, bool both, const char *layout,
                      const uint64_t *lengths, size_t count, found *f) {
    char name[120];
    text note = {0};
    double worst = 0;
    snprintf(name, sizeof name, "auto: / best of %d, %s-%u%s, %s, %s", FIXED, list, ranks, batch,
             both ? "both passes" : "forward", layout);
    if (!bench_wants(name)) return;
    for (int m = 0; m < MASKS; m++) {
        char head[400];
        fixed_result r;
        write_head(ranks, masks[m], layout, both, head);
        const uint64_t time = time_of_auto(head, lengths, count);
        if (!time || !fixed_try(head, lengths, count, &r)) continue;
        const double ratio = (double)time / (double)r.best;
        const fixed_setting *best = &fixed_settings[r.which];
        text_printf(&note, "%s%s %.3f: %.2f ms, ", m ? "; " : "", masks[m], ratio, 1e-9 * (double)time);
        say_setting(best, &note);
        text_printf(&note, " %.2f", 1e-9 * (double)r.best);
        for (int i = 0; i < FIXED; i++)
            if (r.end[i] == FIXED_REFUSED || r.end[i] == FIXED_LONG)
                text_printf(&note, " (%s %s)", fixed_settings[i].strategy,
                            r.end[i] == FIXED_LONG ? "takes too long to plan" : "is refused");
        if (ratio > worst) worst = ratio;
        f->fixed[f->fixeds++] = ratio;
    }
    text_add(&note, "", 1);
    if (worst > 0) bench_row(name, worst, "x", "<= 1.03", worst <= 1.03, note.at);
    text_free(&note);
}

static void fixed_rows(const char *list, uint32_t ranks, const char *batch, bool both, const uint64_t *lengths,
                       size_t count, found *f) {
    for (int y = 0; y < LAYOUTS; y++) fixed_row(list, ranks, batch, both, layouts[y], lengths, count, f);
}

/* A batch with the list's kind of lengths that nobody chose. */
static void drawn_rows(const char *list, uint32_t ranks, found *f) {
    const uint64_t tokens = (uint64_t)ranks * TOKENS;
    size_t pool_count, count;
    bool drawn;
    uint64_t *pool = workload_lengths(list, tokens, &pool_count, &drawn);
    uint64_t *lengths = pool ? workload_sample(pool, pool_count, tokens, DRAWN, &count) : NULL;
    if (lengths) fixed_rows(list, ranks, " drawn", true, lengths, count, f);
    free(lengths);
    free(pool);
}

static void say_settings(void) {
    text said = {0};
    for (int i = 0; i < FIXED; i++) {
        text_puts(&said, i ? ", " : "");
        say_setting(&fixed_settings[i], &said);
    }
    printf("auto: the %d settings: %.*s\n", FIXED, (int)said.size, said.at ? said.at : "");
    text_free(&said);
}

/* The worst and the median of some figures. */
static void summary(const char *what, double *of, int count, const char *unit, double median_goal, double worst_goal,
                    const char *note) {
    char name[120], goal[32];
    if (!count) return;
    const double median = bench_median(of, count), worst = of[count - 1];
    snprintf(name, sizeof name, "auto: %s, median", what);
    snprintf(goal, sizeof goal, "<= %g%s", median_goal, *note ? " ms" : "");
    bench_row(name, median, unit, goal, median <= median_goal, note);
    snprintf(name, sizeof name, "auto: %s, worst", what);
    snprintf(goal, sizeof goal, "<= %g%s", worst_goal, *note ? " ms" : "");
    bench_row(name, worst, unit, goal, worst <= worst_goal, note);
}

void bench_auto(void) {
    static const uint32_t sizes[] = {64, 256};
    found f = {.ratios = 0};
    if (bench_wants("auto: / best of 24")) say_settings();
    for (int s = 0; s < 2; s++)
        for (int l = 0; l < LISTS; l++) {
            char name[64];
            size_t count = 0;
            bool drawn;
            snprintf(name, sizeof name, "%s-%ux32k", lists[l], sizes[s]);
            uint64_t *lengths = workload_lengths(name, (uint64_t)sizes[s] * TOKENS, &count, &drawn);
            for (int m = 0; lengths && m < MASKS; m++)
                for (int y = 0; y < LAYOUTS; y++) row(lists[l], sizes[s], masks[m], layouts[y], lengths, count, &f);
            for (int both = 0; lengths && both < 2; both++)
                fixed_rows(lists[l], sizes[s], "", both, lengths, count, &f);
            free(lengths);
            drawn_rows(lists[l], sizes[s], &f);
        }
    summary("time / bound", f.ratio, f.ratios, "x", 1.15, 1.3, "");
    summary("/ best fixed setting, all cases", f.fixed, f.fixeds, "x", 1, 1.03, "");
    summary("choosing and planning, 256 ranks", f.time, f.times, "ms", 300, 300, "by the clock, on two processors");
}
