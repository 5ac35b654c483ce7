/* bench_auto.c: strategy = auto: how near its plans come to the largest of their bounds, and how long choosing takes.
 *
 * 64 heads, 8 of K and V, head_dim 128, bf16, forward, 32,768 tokens a rank, nodes of 8 H200s. The bound is the largest
 * of those that the simulator prints beside the plan that was chosen. In the note: how long choosing and planning took,
 * by the clock on the wall and of all processors, the median of RUNS calls of one program, and the first of them; the
 * candidates that were planned to the end; and the mean rank's computing, which no strategy can beat.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/auto/report.h"
#include "compiler/compile.h"
#include "compiler/simulate/simulate.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"

enum { RUNS = 3, GPUS = 8, TOKENS = 32768, RATIOS = 64 };

typedef struct found {
    double ratio[RATIOS], time[RATIOS]; /* of all rows; milliseconds, of those with 256 ranks */
    int ratios, times;
} found;

static void row(const char *list, uint32_t ranks, const char *mask, const char *layout, const uint64_t *lengths,
                size_t count, found *f) {
    char source[512], name[120], note[240];
    snprintf(name, sizeof name, "auto: time / bound, %s-%u, %s, %s", list, ranks, mask, layout);
    if (!bench_wants(name)) return;
    snprintf(source, sizeof source,
             "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
             "cluster { nodes = %u; gpus = %d; gpu = h200; memory = 100 TB }\n"
             "plan { mask = %s; layout = %s; passes = forward; strategy = auto }\n", ranks / GPUS, GPUS, mask, layout);
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

void bench_auto(void) {
    static const char *const lists[] = {"wlbllm", "prolong", "wikipedia"}, *const layouts[] = {"contiguous", "planned"},
                      *const masks[] = {"causal", "lambda", "shared_question"};
    static const uint32_t sizes[] = {64, 256};
    found f = {.ratios = 0};
    for (int s = 0; s < 2; s++)
        for (int l = 0; l < 3; l++) {
            char name[64];
            size_t count = 0;
            bool drawn;
            snprintf(name, sizeof name, "%s-%ux32k", lists[l], sizes[s]);
            uint64_t *lengths = workload_lengths(name, (uint64_t)sizes[s] * TOKENS, &count, &drawn);
            for (int m = 0; lengths && m < 3; m++)
                for (int y = 0; y < 2; y++) row(lists[l], sizes[s], masks[m], layouts[y], lengths, count, &f);
            free(lengths);
        }
    if (f.ratios) {
        const double median = bench_median(f.ratio, f.ratios), worst = f.ratio[f.ratios - 1];
        bench_row("auto: time / bound, median of all", median, "x", "<= 1.15", median <= 1.15, "");
        bench_row("auto: time / bound, worst of all", worst, "x", "<= 1.3", worst <= 1.3, "");
    }
    if (f.times) {
        const double median = bench_median(f.time, f.times), worst = f.time[f.times - 1];
        bench_row("auto: choosing and planning, 256 ranks, median", median, "ms", "<= 300 ms", median <= 300,
                  "by the clock, on two processors");
        bench_row("auto: choosing and planning, 256 ranks, worst", worst, "ms", "<= 300 ms", worst <= 300,
                  "by the clock, on two processors");
    }
}
