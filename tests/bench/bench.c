/* bench.c: runs the benchmarks and prints a table: figure, goal, met or MISSED.
 * Usage: bench [GROUP | PART-OF-A-ROW'S-NAME]
 *
 * Groups are the tests/bench/bench_*.c files. A name that is no group runs all and prints the rows that contain it.
 */
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* In this order: planning is first, while this process is small, because its memory is measured in children of it. */
#define GROUPS(X)                                                                                                      \
    X(plan) X(cells) X(fields) X(slices) X(place) X(groups) X(move) X(drawn) X(dcp) X(rows) X(auto) X(colour) X(order) X(sass) \
    X(jit) X(sim) X(calibrate) X(published) X(host) X(run) X(heads) X(trace) X(python)

static struct { const char *filter; int met, missed, plain; } table;

static double clock_of(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double bench_now(void) { return clock_of(CLOCK_MONOTONIC); }

double bench_processor(void) { return clock_of(CLOCK_PROCESS_CPUTIME_ID); }

double bench_median(double *times, int count) {
    for (int i = 1; i < count; i++)
        for (int j = i; j > 0 && times[j] < times[j - 1]; j--) {
            double t = times[j];
            times[j] = times[j - 1];
            times[j - 1] = t;
        }
    return times[count / 2];
}

fcp_plan *bench_plan_of(const char *source, const uint64_t *lengths, size_t count) {
    return bench_plan_watched(source, lengths, count, NULL);
}

fcp_plan *bench_plan_watched(const char *source, const uint64_t *lengths, size_t count, const compile_watch *watch) {
    const fcpc_batch batch = {.size = sizeof batch, .lengths = count ? lengths : NULL, .count = count};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    if (d && !fcpc_parse_text("bench.fcp", source, strlen(source), NULL, d, &program))
        compile_batch(program, &batch, NULL, d, watch, NULL, &plan);
    char *said = plan || !d ? NULL : fcpc_diagnostics_render(d, false);
    if (!plan) fprintf(stderr, "%s", said ? said : "out of memory\n");
    free(said);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return plan;
}

bool bench_wants(const char *name) { return !table.filter || strstr(name, table.filter); }

void bench_row(const char *name, double value, const char *unit, const char *goal, bool met, const char *note) {
    if (!bench_wants(name)) return;
    char figure[64];
    double size = value < 0 ? -value : value;
    int digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 4;
    snprintf(figure, sizeof figure, "%.*f %s", digits, value, unit);
    bool has_goal = goal && *goal;
    printf("%-72s %16s  %-14s %-7s %s\n", name, figure, has_goal ? goal : "", has_goal ? met ? "met" : "MISSED" : "",
           note ? note : "");
    fflush(stdout);
    if (!has_goal) table.plain++;
    else if (met) table.met++;
    else table.missed++;
}

int main(int argc, char **argv) {
    const char *only = argc > 1 && *argv[1] ? argv[1] : NULL;
    bool group = false;
#define X(name) group = group || (only && strcmp(only, #name) == 0);
    GROUPS(X)
#undef X
    table.filter = group ? NULL : only;
    printf("%-72s %16s  %-14s\n", "benchmark", "figure", "goal");
#define X(name)                                                                                                        \
    if (!group || strcmp(only, #name) == 0) bench_##name();
    GROUPS(X)
#undef X
    printf("%d goals met, %d missed; %d rows without a goal\n", table.met, table.missed, table.plain);
    return 0;
}
