/* bench_sim.c: measures the simulator: how long predicting takes, and how near its kernel model is to published rows
 * that its fit has not seen. tests/bench/cudnn_h200.csv holds those rows. Times are of processors, the median of
 * several runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/base/text.h"
#include "compiler/simulate/fit.h"
#include "runtime/plan/enum_names.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"

static fcp_plan *plan_of(const char *workload, uint32_t nodes, uint32_t copies, bool *out_drawn) {
    char source[400];
    size_t one = 0;
    uint64_t *batch = workload_lengths(workload, (uint64_t)nodes * 8 / copies * 32768, &one, out_drawn);
    uint64_t *lengths = batch ? calloc(one * copies, sizeof *lengths) : NULL;
    for (size_t i = 0; lengths && i < one * copies; i++) lengths[i] = batch[i % one];
    free(batch);
    snprintf(source, sizeof source,
             "model { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }\n"
             "cluster { nodes = %u; gpus = 8; gpu = h200 }\n"
             "plan { mask = causal; block = 2K; strategy = fcp; passes = forward, backward }\n", nodes);
    fcp_plan *plan = lengths ? bench_plan_of(source, lengths, one * copies) : NULL;
    free(lengths);
    return plan;
}

static void measure(const fcp_plan *plan, const char *name, const sim_options *options, int runs, const char *goal,
                    double goal_s, bool drawn) {
    double times[51];
    char note[160];
    sim_profile profile;
    sim_result r = {0};
    fcp_error err = {0};
    fcp_code code = sim_profile_find("h200", &profile, &err);
    for (int i = 0; i < runs && !code; i++) {
        arena memory = {0};
        double start = bench_processor();
        code = simulate(plan, &profile, options, &memory, &r, &err);
        times[i] = bench_processor() - start;
        arena_free(&memory);
    }
    if (code) {
        bench_row(name, 0, "ms", goal, false, err.message);
        return;
    }
    double time = bench_median(times, runs);
    snprintf(note, sizeof note, "predicts %.3f and %.3f ms; %s", 1e-9 * (double)r.pass[0].makespan,
             1e-9 * (double)r.pass[1].makespan, drawn ? "lengths were drawn" : "wlbllm lengths");
    bench_row(name, 1e3 * time, "ms", goal, time <= goal_s, note);
}

static void measure_sizes(void) {
    static const struct {
        const char *name, *workload, *goal;
        uint32_t nodes, copies;
        int runs;
        double goal_s;
    } sizes[] = {
        {"simulate 256 ranks, both passes", "wlbllm-256x32k", "<= 5 ms", 32, 1, 51, 0.005},
        {"simulate 1,024 ranks, both passes", "wlbllm-1024x32k", "<= 25 ms", 128, 1, 21, 0.025},
        {"simulate 16,384 ranks, both passes", "wlbllm-1024x32k", "<= 1 s", 2048, 16, 3, 1.0}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        bool drawn = false;
        char events[80];
        snprintf(events, sizeof events, "%s, by events", sizes[i].name);
        if (!bench_wants(sizes[i].name) && !bench_wants(events)) continue;
        fcp_plan *plan = plan_of(sizes[i].workload, sizes[i].nodes, sizes[i].copies, &drawn);
        if (!plan) {
            bench_row(sizes[i].name, 0, "ms", sizes[i].goal, false, "no plan");
            continue;
        }
        measure(plan, sizes[i].name, NULL, sizes[i].runs, sizes[i].goal, sizes[i].goal_s, drawn);
        if (sizes[i].copies == 1)
            measure(plan, events, &(sim_options){.network = SIM_NETWORK_PULLS, .seed = 1}, 3, "", 0, drawn);
        fcp_plan_free(plan);
    }
}

static void measure_model(void) {
    static const struct { const char *goal; double most; } goals[FCP_PASSES] = {{"<= 2 %", 0.02}, {"<= 7 %", 0.07}};
    arena memory = {0};
    calibration x;
    text rows = {0};
    fcp_error err = {.message = "cannot be read"};
    bool good = !text_read(&rows, "tests/bench/cudnn_h200.csv", false, 1 << 20) && rows.size &&
                !calibrate_read("cudnn_h200.csv", rows.at, rows.size, &memory, &x, &err) &&
                !calibrate_fit_rows(&x, 5, &err);
    for (uint32_t i = 0; good && i < x.fit_count; i++) {
        char name[80], note[120];
        snprintf(name, sizeof name, "kernel model, %s, rows of cuDNN that are held out",
                 fcp_pass_names[x.fits[i].pass]);
        snprintf(note, sizeof note, "the largest of 5; fitted to 5 others, at most %.1f %%", 100 * x.fits[i].worst);
        bench_row(name, 100 * x.fits[i].worst_held_out, "%", goals[x.fits[i].pass].goal,
                  x.fits[i].worst_held_out <= goals[x.fits[i].pass].most, note);
    }
    if (!good) bench_row("kernel model, rows of cuDNN that are held out", 0, "%", "<= 2 %", false, err.message);
    text_free(&rows);
    arena_free(&memory);
}

void bench_sim(void) {
    measure_sizes();
    measure_model();
}
