/* bench_plan.c: measures planning from end to end: from a parsed program and a batch to a verified plan on disk, and
 * back.
 *
 * Each size runs in a child process, so that its peak memory is its own. A figure is the median of several runs in one
 * process, the first included. The clock covers fcpc_plan, with the verifier in it, and fcp_plan_save.
 *
 * The rows "first call" measure a call from the command line: several times, the median of `fcpc -q --lengths LIST
 * PROGRAM -o PLAN`, each in a process of its own. Such a call also pays for the start of a process, for pages of memory
 * that no earlier call has touched, and for reading the list. These rows compare processor time, which other work on
 * the machine disturbs least.
 */
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "runtime/plan/instructions.h"
#include "tests/bench/bench.h"
#include "tests/bench/workload.h"

enum { MAX_RUNS = 51, FIRST_RUNS = 21 };

typedef struct size {
    const char *name, *workload;
    uint32_t nodes, copies; /* copies of the workload, end to end */
    int runs;
    double goal_s, goal_bytes; /* 0: none */
    bool load;                 /* measure loading too */
    bool first;                /* and first calls */
    const char *layout;        /* NULL: planned, both passes; else that one, the forward pass alone, unless `both` */
    bool both;
    const char *strategy;      /* NULL: fcp */
    double goal_plan;          /* bytes of the plan file; 0: none */
    size_t sequences;          /* so many sequences of 16 tokens in place of a workload; 0: the workload */
    bool extracts;             /* measure what one rank loads, too */
} size;

static const size sizes[] = {
    {"wlbllm-256x32k", "wlbllm-256x32k", 32, 1, 51, 0.010, 64.0 * 1048576, true, true},
    {"wlbllm-1024x32k", "wlbllm-1024x32k", 128, 1, 21, 0.050, 0, true, true},
    {"16,384 ranks", "wlbllm-1024x32k", 2048, 16, 3, 2.0, 4.0 * 1073741824, true},
    {"32,768 ranks", "wlbllm-1024x32k", 4096, 32, 1, 0, 0, true, .extracts = true},
    {"wlbllm-256x32k", "wlbllm-256x32k", 32, 1, 21, 0.060, 0, true, .layout = "zigzag", .goal_plan = 12e6},
    {"wlbllm-256x32k", "wlbllm-256x32k", 32, 1, 21, 0.060, 0, .layout = "contiguous", .goal_plan = 12e6},
    {"wlbllm-256x32k", "wlbllm-256x32k", 32, 1, 21, 0.025, 0, .layout = "contiguous", .both = true, .strategy = "cad",
     .goal_plan = 8e6},
    /* what a plan of so many sequences keeps of them anyway is 1.2 GB, and planning needs it a few times */
    {"2^24 sequences", "", 8, 1, 1, 0, 6.0 * 1073741824, .layout = "contiguous", .sequences = 1 << 24},
    {"2^24 sequences", "", 8, 1, 1, 0, 6.0 * 1073741824, .layout = "zigzag", .sequences = 1 << 24},
};

/* What a child tells. */
typedef struct result {
    fcp_code code;
    bool drawn;
    double seconds, processor, write, load; /* medians; processor: processor time of the same as seconds */
    fcpc_times times;
    double first, first_seconds; /* a first call's processor time and wall time; 0: not measured */
    uint64_t plan_bytes, peak_bytes, extract_bytes; /* extract_bytes: of the largest extract */
    double extract;                                 /* seconds to load one */
    double round_ratio[FCP_FABRICS]; /* sum of round maxima over the heaviest rank's bytes; 0: the fabric is not used */
} result;

static const char *strategy_of(const size *z) { return z->strategy ? z->strategy : "fcp"; }
static bool is_forward(const size *z) { return z->layout && !z->both; }

/* Peak resident memory of this process since reset_peak. */
static uint64_t peak_bytes(void) {
    unsigned long kilobytes = 0;
    char text[256];
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(text, sizeof text, f))
        if (sscanf(text, "VmHWM: %lu", &kilobytes) == 1) break;
    if (f) fclose(f);
    return (uint64_t)kilobytes * 1024;
}

static void reset_peak(void) {
    int fd = open("/proc/self/clear_refs", O_WRONLY);
    if (fd < 0) return;
    if (write(fd, "5", 1) != 1) perror("clear_refs");
    close(fd);
}

/* Independent rounds of the forward pass: how much longer they take than the busiest rank's bytes, on each fabric. */
static void round_ratios(const fcp_plan *plan, double out[FCP_FABRICS]) {
    const fcp_problem *p = plan->problem;
    uint32_t rounds = plan->round_starts[FCP_FORWARD + 1] - plan->round_starts[FCP_FORWARD];
    const fcp_round *round = plan->rounds + plan->round_starts[FCP_FORWARD];
    uint64_t *largest = calloc((size_t)rounds * FCP_FABRICS + 1, sizeof *largest);
    uint64_t *moved = calloc((size_t)p->ranks * FCP_FABRICS * 2 + 1, sizeof *moved); /* [rank][fabric][direction] */
    for (uint32_t r = 0; largest && moved && r < p->ranks; r++) {
        const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, r, FCP_COMM);
        for (uint32_t i = s->first; i < s->first + s->count; i++) {
            const fcp_instr *in = &plan->instrs[i];
            if (in->op != FCP_OP_LAUNCH || round[in->c].kind != FCP_ROUND_INDEPENDENT) continue;
            for (uint32_t t = in->a; t < in->a + in->b; t++) {
                const fcp_transfer *x = &plan->transfers[t];
                uint64_t *most = &largest[(size_t)in->c * FCP_FABRICS + x->fabric];
                moved[((size_t)r * FCP_FABRICS + x->fabric) * 2 + x->dir] += x->tokens;
                if (x->tokens > *most) *most = x->tokens;
            }
        }
    }
    for (int f = 0; largest && moved && f < FCP_FABRICS; f++) {
        uint64_t sum = 0, heaviest = 0;
        for (uint32_t i = 0; i < rounds; i++) sum += largest[(size_t)i * FCP_FABRICS + f];
        for (uint32_t r = 0; r < p->ranks; r++)
            for (int d = 0; d < 2; d++) {
                uint64_t m = moved[((size_t)r * FCP_FABRICS + f) * 2 + d];
                if (m > heaviest) heaviest = m;
            }
        out[f] = heaviest ? (double)sum / (double)heaviest : 0;
    }
    free(largest);
    free(moved);
}

/* Loads the extract of a rank amid the others, and finds the largest. */
static fcp_code measure_extracts(const char *path, result *out, fcp_error *err) {
    char extracts[600];
    uint8_t root[FCP_DIGEST_BYTES];
    double times[FIRST_RUNS];
    fcp_plan *plan = NULL;
    fcp_shape shape = {.ranks = 0};
    snprintf(extracts, sizeof extracts, "%s.slices", path);
    fcp_code code = fcp_plan_load(path, &plan, err);
    if (!code) fcp_plan_shape(plan, &shape);
    if (!code) code = fcp_extracts_save(plan, extracts, NULL, root, err);
    fcp_plan_free(plan);
    for (uint32_t r = 0; r < shape.ranks && !code; r++) {
        void *bytes = NULL;
        size_t bytes_read;
        code = fcp_extracts_read(extracts, r, &bytes, &bytes_read, err);
        if (!code && bytes_read > out->extract_bytes) out->extract_bytes = bytes_read;
        free(bytes);
    }
    for (int i = 0; i < FIRST_RUNS && !code; i++) {
        fcp_plan *extract = NULL;
        const double start = bench_now();
        code = fcp_extracts_load(extracts, shape.ranks / 2 + (uint32_t)i, root, &extract, err);
        times[i] = bench_now() - start;
        fcp_plan_free(extract);
    }
    if (!code) out->extract = bench_median(times, FIRST_RUNS);
    unlink(extracts);
    return code;
}

static fcp_code measure(const size *z, const fcpc_program *program, const uint64_t *lengths, size_t count,
                        const char *path, result *out) {
    double seconds[MAX_RUNS], processor[MAX_RUNS], writes[MAX_RUNS], loads[MAX_RUNS], unsorted[MAX_RUNS];
    fcpc_times times[MAX_RUNS];
    fcp_code code = FCP_OK;
    for (int i = 0; i < z->runs && code == FCP_OK; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcp_plan *plan = NULL;
        unlink(path); /* what is timed is a compile to a new file, not the end of an old one */
        double start = bench_now(), start_processor = bench_processor();
        code = fcpc_plan(program, lengths, count, NULL, d, &times[i], &plan);
        double planned = bench_now();
        fcp_error err = {0};
        if (code == FCP_OK) code = fcp_plan_save(plan, path, &err);
        double end = bench_now();
        seconds[i] = unsorted[i] = end - start;
        processor[i] = bench_processor() - start_processor;
        writes[i] = end - planned;
        if (code != FCP_OK) {
            char *text = fcpc_diagnostics_render(d, false);
            fprintf(stderr, "%s: %s%s\n", z->name, text ? text : "", err.message);
            free(text);
        } else if (i == z->runs - 1) {
            out->plan_bytes = plan->file_size;
            out->peak_bytes = peak_bytes();
            round_ratios(plan, out->round_ratio);
        }
        fcp_plan_free(plan);
        fcpc_diagnostics_free(d);
    }
    for (int i = 0; i < z->runs && code == FCP_OK && z->load; i++) {
        fcp_plan *plan = NULL;
        fcp_error err = {0};
        double start = bench_now();
        code = fcp_plan_load(path, &plan, &err);
        loads[i] = bench_now() - start;
        if (code != FCP_OK) fprintf(stderr, "%s: %s\n", z->name, err.message);
        fcp_plan_free(plan);
    }
    if (code == FCP_OK && z->extracts) {
        fcp_error err = {0};
        code = measure_extracts(path, out, &err);
        if (code != FCP_OK) fprintf(stderr, "%s: %s\n", z->name, err.message);
    }
    if (code != FCP_OK) return code;
    out->seconds = bench_median(seconds, z->runs);
    for (int i = 0; i < z->runs; i++) /* the phases of the run that is the median */
        if (unsorted[i] == out->seconds) out->times = times[i];
    out->processor = bench_median(processor, z->runs);
    out->write = bench_median(writes, z->runs);
    if (z->load) out->load = bench_median(loads, z->runs);
    return FCP_OK;
}

/* First calls, from the command line. */
static fcp_code measure_first(const size *z, const char *source, const uint64_t *lengths, size_t count,
                              const char *plan, result *out) {
    extern char **environ;
    char fcpc[PATH_MAX], program[600], list[600];
    double processor[FIRST_RUNS], wall[FIRST_RUNS];
    if (!bench_find_fcpc(fcpc)) {
        fprintf(stderr, "%s: no fcpc beside the benchmark\n", z->name);
        return FCP_E_READ;
    }
    snprintf(program, sizeof program, "%s.fcp", plan);
    snprintf(list, sizeof list, "%s.lengths", plan);
    FILE *p = fopen(program, "w"), *l = fopen(list, "w");
    if (p) fputs(source, p);
    for (size_t i = 0; l && i < count; i++) fprintf(l, "%llu\n", (unsigned long long)lengths[i]);
    fcp_code code = p && l && !ferror(p) && !ferror(l) ? FCP_OK : FCP_E_WRITE;
    if (p) fclose(p);
    if (l) fclose(l);
    char *argv[] = {fcpc, "-q", "--lengths", list, program, "-o", (char *)plan, NULL};
    for (int i = 0; i < FIRST_RUNS && !code; i++) {
        struct rusage used;
        pid_t pid;
        int status;
        unlink(plan);
        double start = bench_now();
        if (posix_spawn(&pid, fcpc, NULL, NULL, argv, environ) || wait4(pid, &status, 0, &used) < 0 || status)
            code = FCP_E_INTERNAL;
        wall[i] = bench_now() - start;
        processor[i] = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                       1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
    }
    unlink(program);
    unlink(list);
    if (code) return code;
    out->first = bench_median(processor, FIRST_RUNS);
    out->first_seconds = bench_median(wall, FIRST_RUNS);
    return FCP_OK;
}

static fcp_code child(const size *z, result *out) {
    char source[512];
    snprintf(source, sizeof source,
             "model { heads = 64; kv_heads = 8; head_dim = 128; dtype = bf16 }\n"
             "cluster { nodes = %u; gpus = 8; gpu = h200%s }\n"
             "plan { mask = causal; block = 2K; strategy = %s; passes = forward%s; layout = %s }\n",
             z->nodes, z->sequences ? "; memory = 1 TB" : "", strategy_of(z), is_forward(z) ? "" : ", backward",
             z->layout ? z->layout : "planned");
    size_t one = z->sequences, count;
    uint64_t *batch = z->sequences ? malloc(one * sizeof *batch) : NULL;
    for (size_t i = 0; batch && i < one; i++) batch[i] = 16;
    if (!z->sequences)
        batch = workload_lengths(z->workload, (uint64_t)z->nodes * 8 / z->copies * 32768, &one, &out->drawn);
    uint64_t *lengths = batch ? calloc(one * z->copies, sizeof *lengths) : NULL;
    if (!lengths) return FCP_E_NO_MEMORY;
    for (count = 0; count < one * z->copies; count++) lengths[count] = batch[count % one];
    free(batch);
    reset_peak();
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_code code = fcpc_parse_text("bench", source, strlen(source), NULL, d, &program);
    if (code != FCP_OK) {
        char *text = fcpc_diagnostics_render(d, false);
        fprintf(stderr, "%s", text ? text : "");
        free(text);
    }
    char path[512];
    bench_temporary(path, "plan");
    if (code == FCP_OK) code = measure(z, program, lengths, count, path, out);
    if (code == FCP_OK && z->first) code = measure_first(z, source, lengths, count, path, out);
    unlink(path);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    free(lengths);
    return code;
}

/* Runs a size in a child of this process. */
static result run(const size *z) {
    result r = {.code = FCP_E_INTERNAL};
    int fds[2];
    if (pipe(fds) != 0) return r;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(fds[0]);
        r.code = child(z, &r);
        _exit(write(fds[1], &r, sizeof r) == (ssize_t)sizeof r ? 0 : 1);
    }
    close(fds[1]);
    if (pid > 0) {
        if (read(fds[0], &r, sizeof r) != (ssize_t)sizeof r) r.code = FCP_E_INTERNAL;
        waitpid(pid, NULL, 0);
    }
    close(fds[0]);
    return r;
}

static void rows(const size *z, const result *r) {
    static const char *const fabric[FCP_FABRICS] = {[FCP_NET] = "net", [FCP_LOCAL] = "local"};
    char name[192], goal[64], note[256];
    const char *from = r->drawn ? ", drawn lengths" : "";
    char what[64];
    snprintf(what, sizeof what, "%s%s%s%s%s", z->name, z->layout ? ", " : "", z->layout ? z->layout : "",
             z->strategy ? ", " : "", z->strategy ? z->strategy : "");
    snprintf(name, sizeof name, "plan %s, causal, block 2K, %s%s", what, z->strategy ? "" : "fcp, ",
             is_forward(z) ? "forward" : "both passes");
    if (r->code != FCP_OK) {
        snprintf(note, sizeof note, "failed: %s %s", fcp_code_name(r->code), fcp_code_text(r->code));
        bench_row(name, 0, "", "a plan", false, note);
        return;
    }
    bool seconds = z->goal_s >= 1;
    double unit = seconds ? 1 : 1000;
    goal[0] = 0;
    if (z->goal_s > 0) snprintf(goal, sizeof goal, "<= %g %s", z->goal_s * unit, seconds ? "s" : "ms");
    snprintf(
        note, sizeof note,
        "classify %.1f, place %.1f, colour %.1f, schedule %.1f, verify %.1f, write %.1f ms; processor time %.1f ms%s",
        r->times.classify * 1e3, r->times.place * 1e3, r->times.colour * 1e3, r->times.schedule * 1e3,
        r->times.verify * 1e3, r->write * 1e3, r->processor * 1e3, from);
    bench_row(name, r->seconds * unit, seconds ? "s" : "ms", goal, r->seconds <= z->goal_s, note);
    if (z->first) {
        snprintf(name, sizeof name, "plan %s, first call / a warm one", z->name);
        snprintf(note, sizeof note, "processor time %.1f / %.1f ms; wall %.1f / %.1f ms; from the command line",
                 r->first * 1e3, r->processor * 1e3, r->first_seconds * 1e3, r->seconds * 1e3);
        bench_row(name, r->first / r->processor, "x", "<= 1.3", r->first <= 1.3 * r->processor, note);
    }
    if (z->goal_bytes >= 1073741824) snprintf(goal, sizeof goal, "<= %g GiB", z->goal_bytes / 1073741824);
    else if (z->goal_bytes > 0) snprintf(goal, sizeof goal, "<= %g MiB", z->goal_bytes / 1048576);
    else goal[0] = 0;
    snprintf(name, sizeof name, "plan %s, peak memory of the process", what);
    snprintf(note, sizeof note, "the plan file has %.1f MiB", (double)r->plan_bytes / 1048576);
    bench_row(name, (double)r->peak_bytes / 1048576, "MiB", goal, (double)r->peak_bytes <= z->goal_bytes, note);
    if (z->goal_plan > 0) {
        snprintf(name, sizeof name, "plan %s, size of the file", what);
        snprintf(goal, sizeof goal, "<= %g MB", z->goal_plan / 1e6);
        bench_row(name, (double)r->plan_bytes / 1e6, "MB", goal, (double)r->plan_bytes <= z->goal_plan, "");
    }
    if (z->load) {
        snprintf(name, sizeof name, "load and verify %s", what);
        bool has_goal = z->nodes == 32 && !z->layout;
        bench_row(name, r->load * 1e3, "ms", has_goal ? "<= 10 ms" : "", r->load <= 0.010, "");
    }
    if (z->extracts) {
        snprintf(name, sizeof name, "load a rank's extract, %s", what);
        bench_row(name, r->extract * 1e3, "ms", "<= 1 ms", r->extract <= 1e-3, "median of 21 ranks");
        snprintf(name, sizeof name, "the largest extract of a rank, %s", what);
        bench_row(name, (double)r->extract_bytes / 1e3, "kB", "<= 1000 kB", r->extract_bytes <= 1000000, "");
    }
    for (int f = 0; f < FCP_FABRICS; f++)
        if (!z->layout && r->round_ratio[f] > 0) {
            snprintf(name, sizeof name, "sum of round maxima / heaviest rank, %s, %s", fabric[f], z->name);
            bench_row(name, r->round_ratio[f], "", "<= 1.1", r->round_ratio[f] <= 1.1, "");
        }
}

void bench_plan(void) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        result r = run(&sizes[i]);
        rows(&sizes[i], &r);
    }
}
