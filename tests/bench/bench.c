/* bench.c: runs the benchmarks and prints a table: figure, goal, met or MISSED.
 * Usage: bench [NAME[,NAME]...], where a NAME is a group or a part of a row's name
 *
 * Groups are the tests/bench/bench_*.c files. A name that is no group runs all and prints the rows that contain it; if
 * none does, that is said, and the exit status is 2. Rows' names have commas with a space behind them, which divide
 * nothing: "sass,causal, 8K" is two names.
 */
#include "tests/bench/bench.h"

#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* In this order: planning is first, while this process is small, because its memory is measured in children of it. */
#define GROUPS(X)                                                                                                      \
    X(plan)                                                                                                            \
    X(growth)                                                                                                          \
    X(recurrent)                                                                                                       \
    X(forest)                                                                                                          \
    X(cells)                                                                                                           \
    X(fields)                                                                                                          \
    X(slices)                                                                                                          \
    X(place)                                                                                                           \
    X(groups)                                                                                                          \
    X(move)                                                                                                            \
    X(drawn)                                                                                                           \
    X(dcp)                                                                                                             \
    X(rows)                                                                                                            \
    X(auto)                                                                                                            \
    X(colour)                                                                                                          \
    X(order)                                                                                                           \
    X(sass)                                                                                                            \
    X(jit)                                                                                                             \
    X(sim)                                                                                                             \
    X(calibrate)                                                                                                       \
    X(published)                                                                                                       \
    X(host)                                                                                                            \
    X(run)                                                                                                             \
    X(heads)                                                                                                           \
    X(trace)                                                                                                           \
    X(python)                                                                                                          \
    X(play)

enum { NAMES = 16 };
typedef struct wanted {
    char text[128];
    bool group, found; /* found: a row was printed that has this name */
} wanted;
static struct {
    wanted names[NAMES];
    int count;
    bool parts; /* some name is no group */
    bool whole; /* of the group under way all rows are wanted */
    int met, missed, plain;
} table;

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

void bench_temporary(char path[512], const char *name) {
    const char *folder = getenv("TMPDIR");
    snprintf(path, 512, "%s/fcpc-bench-%ld-%s", folder && *folder ? folder : "/tmp", (long)getpid(), name);
}

bool bench_find_fcpc(char path[PATH_MAX]) {
    char own[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
    if (length < 0) return false;
    own[length] = 0;
    return snprintf(path, PATH_MAX, "%s/fcpc", dirname(own)) < PATH_MAX && access(path, X_OK) == 0;
}

bool bench_wants(const char *name) {
    bool wants = table.whole;
    for (int i = 0; i < table.count; i++) wants |= !table.names[i].group && strstr(name, table.names[i].text);
    return wants;
}

bool bench_may_want(const char *part) {
    bool wants = bench_wants(part);
    for (int i = 0; i < table.count; i++) wants |= !table.names[i].group && strstr(table.names[i].text, part);
    return wants;
}

void bench_row(const char *name, double value, const char *unit, const char *goal, bool met, const char *note) {
    if (!bench_wants(name)) return;
    for (int i = 0; i < table.count; i++) table.names[i].found |= strstr(name, table.names[i].text) != NULL;
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

/* Divides a list of names. false: it has too many, or one that is too long or empty. */
static bool read_names(const char *list) {
    for (const char *at = list, *end; at; at = *end ? end + 1 : NULL) {
        end = strchr(at, ',');
        while (end && end[1] == ' ') end = strchr(end + 1, ',');
        if (!end) end = at + strlen(at);
        wanted *w = &table.names[table.count];
        size_t size = (size_t)(end - at);
        if (table.count == NAMES || size >= sizeof w->text || !size) return false;
        memcpy(w->text, at, size);
#define X(name) w->group |= strcmp(w->text, #name) == 0;
        GROUPS(X)
#undef X
        table.parts |= !w->group;
        table.count++;
    }
    return true;
}

static void run_group(const char *name, void (*group)(void)) {
    table.whole = !table.count;
    for (int i = 0; i < table.count; i++) table.whole |= strcmp(table.names[i].text, name) == 0;
    if (table.whole || table.parts) group();
}

/* OpenBLAS has made its threads before main, and they look for work for a tenth of a second. The processor's time of
 * this process would have theirs in it. */
static void wait_for_idle_threads(void) {
    for (int i = 0; i < 100; i++) {
        const double before = bench_processor();
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        if (bench_processor() - before < 1e-3) return;
    }
}

int main(int argc, char **argv) {
    int status = 0;
    wait_for_idle_threads();
    if (argc > 1 && *argv[1] && !read_names(argv[1])) {
        fprintf(stderr, "bench: %s is no list of 1 to %d names with commas between them\n", argv[1], NAMES);
        return 2;
    }
    printf("%-72s %16s  %-14s\n", "benchmark", "figure", "goal");
#define X(name) run_group(#name, bench_##name);
    GROUPS(X)
#undef X
    printf("%d goals met, %d missed; %d rows without a goal\n", table.met, table.missed, table.plain);
    fflush(stdout);
    for (int i = 0; i < table.count; i++) {
        if (table.names[i].group || table.names[i].found) continue;
        fprintf(stderr, "bench: no group is called %s, and no row has that in its name\n", table.names[i].text);
        status = 2;
    }
    return status;
}
