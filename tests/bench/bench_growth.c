/* bench_growth.c: measures how planning grows with the number of ranks, where each rank keeps 32K tokens.
 *
 * Gives: for each strategy, layout and mask two rows: instructions per rank, and peak memory per rank, of the large
 *     batch over those of the small one, which has 256 ranks. 1 is linear. The note has the figures themselves, and the
 *     seconds of one processor that the large plan takes.
 * Cost: instructions come from the processor's counters where the system has them. Else valgrind counts them, 50 times
 *     slower, so that the rows take half an hour. GROWTH_RANKS, a power of two, says how large the large batch is;
 *     without it that has 2,048 ranks.
 *
 * What is measured is a call from the command line, `fcpc -q --lengths LIST PROGRAM -o PLAN`, and what reads the plan:
 * `sim`, and the page of the busiest ranks. Instructions do not vary with what else the machine does. Time does, and
 * beyond some thousand ranks it also grows because tables leave the caches; so time is no measure of an algorithm.
 */
#include <fcntl.h>
#include <linux/perf_event.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/workload.h"

enum { SMALL = 256, LARGE = 2048, MOST = 32768, SEED = 7, ARGUMENTS = 16 };

typedef struct figure {
    bool ran;
    double instructions, bytes, seconds; /* of all its threads; instructions: 0 if nothing counts them */
} figure;

typedef struct files {
    char program[512], list[512], plan[512], page[512];
} files;

/* Starts a program that says nothing but what it has to say to `log`. */
static pid_t start(char *const argv[], const char *log) {
    extern char **environ;
    posix_spawn_file_actions_t to;
    pid_t pid = -1;
    if (posix_spawn_file_actions_init(&to)) return -1;
    if (posix_spawn_file_actions_addopen(&to, STDOUT_FILENO, "/dev/null", O_WRONLY, 0) ||
        posix_spawn_file_actions_addopen(&to, STDERR_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0600) ||
        posix_spawnp(&pid, argv[0], &to, NULL, argv, environ))
        pid = -1;
    posix_spawn_file_actions_destroy(&to);
    return pid;
}

/* The processor's counter of the instructions of this process's children, from their first on; -1: there is none. */
static int counter(void) {
    struct perf_event_attr what = {.type = PERF_TYPE_HARDWARE,
                                   .size = sizeof what,
                                   .config = PERF_COUNT_HW_INSTRUCTIONS,
                                   .inherit = 1,
                                   .exclude_kernel = 1,
                                   .exclude_hv = 1};
    return (int)syscall(SYS_perf_event_open, &what, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* Runs `argv` under valgrind, and reads its count. */
static double counted_by_valgrind(char *const argv[], const char *log) {
    char *with[ARGUMENTS + 4] = {"valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"}, text[512];
    unsigned long long count = 0;
    int status = 0, n = 3;
    for (int i = 0; argv[i] && i < ARGUMENTS; i++) with[n++] = argv[i];
    const pid_t pid = start(with, log);
    if (pid < 0 || waitpid(pid, &status, 0) < 0 || status) return 0;
    FILE *f = fopen(log, "r");
    while (f && fgets(text, sizeof text, f)) {
        const char *at = strstr(text, "Collected : ");
        if (at) count = strtoull(at + strlen("Collected : "), NULL, 10);
    }
    if (f) fclose(f);
    return (double)count;
}

static figure measure(char *const argv[], const char *log) {
    figure got = {.ran = false};
    struct rusage used;
    unsigned long long before = 0, after = 0;
    int status = 0;
    const int hardware = counter();
    bool counts = hardware >= 0 && read(hardware, &before, sizeof before) == sizeof before;
    const pid_t pid = start(argv, log);
    if (pid > 0 && wait4(pid, &status, 0, &used) == pid && status == 0) {
        counts = counts && read(hardware, &after, sizeof after) == sizeof after;
        got = (figure){.ran = true,
                       .bytes = (double)used.ru_maxrss * 1024,
                       .seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                                  1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec)};
        got.instructions = counts ? (double)(after - before) : counted_by_valgrind(argv, log);
    }
    if (hardware >= 0) close(hardware);
    return got;
}

double bench_instructions(char *const argv[]) {
    char log[512];
    bench_temporary(log, "log");
    const figure got = measure(argv, log);
    unlink(log);
    return got.instructions;
}

static bool write_inputs(const files *f, const uint64_t *pool, size_t pool_count, uint32_t ranks, const char *mask,
                         const char *strategy, const char *layout) {
    size_t count = 0;
    uint64_t *lengths = workload_sample(pool, pool_count, (uint64_t)ranks * BENCH_TOKENS, SEED, &count);
    FILE *p = fopen(f->program, "w"), *l = fopen(f->list, "w");
    bool ok = lengths && p && l;
    if (ok)
        fprintf(p,
                "model { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }\n"
                "cluster { nodes = %u; gpus = %u; gpu = h200 }\n"
                "plan { mask = %s; block = 2K; strategy = %s; passes = forward, backward; layout = %s }\n",
                ranks / BENCH_GPUS, BENCH_GPUS, mask, strategy, layout);
    for (size_t i = 0; ok && i < count; i++) fprintf(l, "%llu\n", (unsigned long long)lengths[i]);
    ok = ok && !ferror(p) && !ferror(l);
    if (p) ok = !fclose(p) && ok;
    if (l) ok = !fclose(l) && ok;
    free(lengths);
    return ok;
}

static void rows(const char *of, uint32_t ranks, const figure *small, const figure *large) {
    char name[256], note[240];
    const double more = (double)ranks / SMALL;
    const bool ran = small->ran && large->ran, counted = ran && small->instructions > 0 && large->instructions > 0;
    const double work = counted ? large->instructions / small->instructions / more : 0;
    const double memory = ran ? large->bytes / small->bytes / more : 0;
    snprintf(name, sizeof name, "growth, %.120s: instructions per rank, %u / %u ranks", of, ranks, SMALL);
    snprintf(note, sizeof note, "%.0f / %.0f million; %.2f / %.2f s of a processor", large->instructions * 1e-6,
             small->instructions * 1e-6, large->seconds, small->seconds);
    bench_row(name, work, "x", "<= 1.3", counted && work <= 1.3,
              counted ? note
              : ran   ? "neither the processor nor valgrind counts instructions"
                      : "failed");
    snprintf(name, sizeof name, "growth, %.120s: peak memory per rank, %u / %u ranks", of, ranks, SMALL);
    snprintf(note, sizeof note, "%.0f / %.0f MiB", large->bytes / 1048576, small->bytes / 1048576);
    bench_row(name, memory, "x", "<= 1.3", ran && memory <= 1.3, ran ? note : "failed");
}

void bench_growth(void) {
    static const struct {
        const char *strategy, *layout, *mask;
        bool read; /* what reads a plan is measured too */
    } all[] = {
        {"fcp", "planned", "causal", true}, {"fcp", "planned", "lambda"},           {"fcp", "contiguous", "causal"},
        {"fcp", "contiguous", "lambda"},    {"fcp", "zigzag(group = 8)", "causal"}, {"cad", "contiguous", "causal"},
        {"cad", "contiguous", "lambda"},    {"dcp", "planned", "causal"},           {"dcp", "planned", "lambda"},
        {"dcp", "contiguous", "causal"},    {"groups", "planned", "causal"},        {"groups", "planned", "lambda"},
    };
    const char *large = getenv("GROWTH_RANKS");
    const unsigned long wanted = large ? strtoul(large, NULL, 10) : LARGE;
    char fcpc[PATH_MAX], log[512];
    files f;
    size_t pool_count = 0;
    bool drawn;
    if (!bench_may_want("growth, ")) return;
    if (wanted <= SMALL || wanted > MOST || wanted & (wanted - 1) || !bench_find_fcpc(fcpc)) {
        fprintf(stderr, "growth: GROWTH_RANKS is no power of two from %d to %d, or fcpc is not beside the benchmark\n",
                2 * SMALL, MOST);
        return;
    }
    uint64_t *pool = workload_lengths("wlbllm", UINT64_C(1) << 26, &pool_count, &drawn);
    bench_temporary(log, "log");
    bench_temporary(f.program, "fcp");
    bench_temporary(f.list, "lengths");
    bench_temporary(f.plan, "plan");
    bench_temporary(f.page, "html");
    char *const argv[][ARGUMENTS] = {{fcpc, "-q", "--lengths", f.list, f.program, "-o", f.plan},
                                     {fcpc, "sim", "-q", f.plan},
                                     {fcpc, "sim", "-q", f.plan, "--html", f.page}};
    static const char *const what[] = {"plan", "sim", "page"};
    const uint32_t ranks[2] = {SMALL, (uint32_t)wanted};
    for (size_t i = 0; pool && i < sizeof all / sizeof *all; i++) {
        const int asked = all[i].read ? 3 : 1;
        figure got[3][2] = {{{0}}};
        char of[3][128];
        bool wants = false;
        for (int w = 0; w < asked; w++) {
            snprintf(of[w], sizeof of[w], "%s, %s, %s, %s", what[w], all[i].strategy, all[i].layout, all[i].mask);
            wants |= bench_may_want(of[w]);
        }
        if (!wants) continue;
        for (int n = 0; n < 2; n++) {
            if (!write_inputs(&f, pool, pool_count, ranks[n], all[i].mask, all[i].strategy, all[i].layout)) break;
            for (int w = 0; w < asked; w++) got[w][n] = measure(argv[w], log);
            unlink(f.program);
            unlink(f.list);
            unlink(f.plan);
            unlink(f.page);
        }
        for (int w = 0; w < asked; w++) rows(of[w], ranks[1], &got[w][0], &got[w][1]);
    }
    unlink(log);
    free(pool);
}
