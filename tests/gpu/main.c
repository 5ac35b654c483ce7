/* main.c: gpu-check: tests everything that runs on the GPUs of this machine, and measures it.
 *
 * Steps run one after the other, each in a process of its own, in an order that suits machines which are available for
 * a few minutes only. What a step finds is written to FOLDER/state at once, and FOLDER/GPU.md is drawn from that. Run
 * again, the program goes on where it stopped; with another binary, device or driver it begins from the start. A step
 * that has ended its process twice is not tried a third time.
 *
 * Exit status: 0: everything was done and is right; 1: something is wrong; 2: usage; 3: there is no driver or no
 * device, and nothing was checked; 4: the time was up, run it again for what is left.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/sha256.h"
#include "runtime/plan/file.h"
#include "tests/gpu/gpu.h"

enum { DONE = 0, WRONG = 1, USAGE = 2, NOTHING = 3, LEFT = 4, TRIES = 2, SLOWER = 20 };

static const gpu_step steps[] = {
    {"ceilings", "matrix rate and copy bandwidth", step_ceilings, 5, 40, false},
    {"peers", "cuDNN, FlashAttention, FlexAttention", step_peers, 20, 170, false},
    {"older", "mma.sync, both ways", step_older, 8, 60, false},
    {"conformance", "the driver, question by question", step_conformance, 3, 20, true},
    {"examples", "every example against float64", step_examples, 8, 90, true},
    {"pointers", "device pointers and a stream", step_pointers, 4, 40, true},
    {"local", "8 ranks on one device", step_local, 8, 40, false},
    {"nccl", "NCCL, by several ranks where it lets them", step_nccl, 5, 150, true},
    {"speed", "causal and full, 8K to 32K", step_speed, 8, 60, false},
    {"short", "2K", step_short, 4, 20, false},
    {"masks", "five masks", step_masks, 8, 40, false},
    {"random", "random programs against float64", step_random, 8, 90, true},
    {"examples-mma", "every example on mma.sync", step_examples_older, 8, 90, true},
    {"kernels", "registers, memory, occupancy", step_kernels, 3, 20, false},
    {"graphs", "launching and capturing", step_graphs, 3, 30, false},
    {"memory", "device memory of a session", step_memory, 3, 20, false},
    {"jit", "compiling kernels", step_jit, 4, 30, false},
    {"curve", "rates of single tiles", step_curve, 4, 60, false},
};
enum { STEPS = sizeof steps / sizeof *steps };

/* What the process of a step tells the process that waits for it. */
typedef struct answer {
    gpu_result result;
    bool given;
    fcp_code code;
    char why[GPU_WHY];
    gpu_machine machine;
} answer;

typedef struct arguments {
    const char *folder, *python, *only, *prepare, *inject, *rank;
    double seconds;
    bool again, small;
} arguments;

static const char usage[] =
    "usage: gpu-check [--folder DIR] [--seconds N] [--again] [--only STEP] [--python PYTHON] [--prepare CAPABILITIES]\n"
    "  --folder    where state and GPU.md are (build/gpu)\n"
    "  --seconds   begins nothing after that (360)\n"
    "  --again     begins anew: forgets what was found\n"
    "  --only      this step alone\n"
    "  --python    the one that has PyTorch, for peers (python3; a stand-in has peers only if this is given)\n"
    "  --prepare   makes kernels for devices of these capabilities, \"8.0 9.0 10.0\", to be carried along\n"
    "  --small     with --prepare, for tests: of the plans that are run on a stand-in\n"
    "  --inject    for tests: fail:STEP, die:STEP, kill:STEP; fail, die, stop, differ of :rank-N, of the step nccl\n";

static bool parse(int argc, char **argv, arguments *a) {
    *a = (arguments){.folder = "build/gpu", .seconds = 360};
    for (int i = 1; i < argc; i++) {
        const struct {
            const char *name, **to;
        } texts[] = {{"--folder", &a->folder}, {"--python", &a->python},
                     {"--only", &a->only},     {"--prepare", &a->prepare},
                     {"--inject", &a->inject}, {"--nccl-rank", &a->rank}}; /* that one by ranks.c alone */
        bool again = strcmp(argv[i], "--again") == 0, small = strcmp(argv[i], "--small") == 0, known = again || small;
        a->again |= again;
        a->small |= small;
        for (size_t t = 0; !known && t < sizeof texts / sizeof *texts && i + 1 < argc; t++)
            if (strcmp(argv[i], texts[t].name) == 0) {
                *texts[t].to = argv[++i];
                known = true;
            }
        if (!known && strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            char *end;
            a->seconds = strtod(argv[++i], &end);
            known = end != argv[i] && !*end && a->seconds >= 0;
        }
        if (!known) return false;
    }
    bool found = !a->only;
    for (int i = 0; i < STEPS; i++) found |= a->only && strcmp(a->only, steps[i].name) == 0;
    return found;
}

/* --- processes ---------------------------------------------------------------------------------------------------- */

/* Hides all devices but the first of those that the environment lets us see. */
static void hide_others(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char first[80] = "0";
    if (visible) snprintf(first, sizeof first, "%.*s", (int)strcspn(visible, ","), visible);
    setenv("CUDA_VISIBLE_DEVICES", first, 1);
}

/* Runs a step, or only looks at the machine. This is the process that opens the driver. */
static void child(gpu *g, const gpu_step *step, answer *out) {
    fcp_error err = {.message = ""};
    setpgid(0, 0);
    if (step && !step->all) hide_others();
    out->code = gpu_open(g, &err);
    if (out->code) {
        snprintf(out->why, sizeof out->why, "%.390s", err.message);
        out->result = GPU_FAILED;
    } else if (!step) {
        out->code = gpu_look(g, &out->machine, &err);
        snprintf(out->why, sizeof out->why, "%.390s", err.message);
    } else {
        if (gpu_injected(g, "die", step->name)) raise(SIGKILL);
        if (gpu_injected(g, "kill", step->name)) {
            kill(getppid(), SIGKILL);
            raise(SIGKILL);
        }
        if (gpu_injected(g, "fail", step->name) && g->control) { /* the driver breaks in the middle of it */
            g->control->fail_at = g->control->calls + 40;
            g->control->fail_with = 719;
            g->control->breaks = true;
        }
        out->result = step->run(g, out->why);
    }
    gpu_close(g);
    out->given = true;
    fflush(stdout);
    _exit(0);
}

/* Waits for the process until its time is up. *out says how it ended. */
static void run_child(gpu *g, const gpu_step *step, double most, answer *out) {
    memset(out, 0, sizeof *out);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) child(g, step, out);
    int status = 0;
    fcp_patience left = fcp_patience_of(most, 0.1);
    pid_t ended = pid < 0 ? -1 : 0;
    while (ended == 0 && !fcp_patience_ends(&left)) {
        ended = waitpid(pid, &status, WNOHANG);
        if (ended == 0) nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    if (ended == 0) {
        kill(-pid, SIGKILL);
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        out->given = true;
        out->result = GPU_FAILED;
        snprintf(out->why, sizeof out->why, "did not end within %.0f s, and was ended", most);
    } else if (pid > 0) kill(-pid, SIGKILL); /* what it may have left running */
    if (pid < 0) snprintf(out->why, sizeof out->why, "no process: %s", strerror(errno));
    else if (!out->given && WIFSIGNALED(status))
        snprintf(out->why, sizeof out->why, "its process was ended by signal %d", WTERMSIG(status));
    else if (!out->given)
        snprintf(out->why, sizeof out->why, "its process ended by itself, with %d", WEXITSTATUS(status));
    if (!out->given) out->result = GPU_FAILED;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Finds the result of a step in the journal. False: it has none yet. */
static bool known(const gpu *g, const char *name, char result[40]) {
    char rest[600];
    if (!journal_find(g->journal, "end", name, rest, sizeof rest)) return false;
    snprintf(result, 40, "%.*s", (int)strcspn(rest, "\t"), rest);
    return strcmp(result, gpu_result_names[GPU_LATER]) != 0;
}

static void run_step(gpu *g, const gpu_step *step, answer *out) {
    char rest[GPU_WHY + 100];
    unsigned begun = journal_count(g->journal, "run", step->name) - journal_count(g->journal, "end", step->name);
    printf("%-12s %s\n", step->name, step->what);
    double begin = fcp_clock();
    if (begun >= TRIES) {
        *out = (answer){.result = GPU_FAILED, .given = true};
        snprintf(out->why, sizeof out->why, "ended its process, and this one, %u times", begun);
    } else {
        journal_add(g->journal, "run", step->name, "");
        double left = gpu_left(g) + 5, most = g->small ? SLOWER * step->most : step->most; /* fibers are slow */
        if (most > left) most = left;
        run_child(g, step, most, out);
    }
    journal_reload(g->journal);
    if (g->peers) journal_reload(g->peers);
    snprintf(rest, sizeof rest, "%s\t%.1f\t%s", gpu_result_names[out->result], fcp_clock() - begin, out->why);
    journal_add(g->journal, "end", step->name, rest);
    gpu_report(g);
    printf("  %s, %.1f s: %s\n", gpu_result_names[out->result], fcp_clock() - begin, out->why);
    fflush(stdout);
}

/* Half of the SHA-256 of this program's file, in hexadecimal. Another build may have other kernels or ask other
 * questions, so what an older one found is not taken over.
 */
static bool hash_self(char out[33]) {
    unsigned char digest[FCP_SHA256_BYTES];
    bool good = fcp_sha256_file("/proc/self/exe", digest) == 0;
    for (int i = 0; good && i < 16; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
    return good;
}

/* The commit that the tree was built from, as the build wrote it down; and the time. */
static void note_beginning(gpu *g) {
    char path[400], commit[100] = "not known", date[60];
    time_t now = time(NULL);
    struct tm t;
    if (journal_find(g->journal, "begun", "date", NULL, 0)) return;
    snprintf(path, sizeof path, "%.380s/commit", g->folder);
    FILE *f = fopen(path, "r");
    if (f && fgets(commit, sizeof commit, f)) commit[strcspn(commit, "\n")] = 0;
    if (f) fclose(f);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", gmtime_r(&now, &t));
    journal_add(g->journal, "begun", "commit", commit);
    journal_add(g->journal, "begun", "date", date);
}

static bool open_journals(gpu *g, bool again, char why[300]) {
    char key[400], hash[33], path[400];
    if (!hash_self(hash)) {
        snprintf(why, 300, "cannot read this program's own file");
        return false;
    }
    snprintf(key, sizeof key, "%s %s sm_%d%d driver %d%s", hash, g->machine.name, g->machine.major, g->machine.minor,
             g->machine.driver_version, g->machine.standin ? " stand-in" : "");
    snprintf(path, sizeof path, "%.380s/state", g->folder);
    g->journal = journal_open(path, key, again, why);
    if (!g->journal) return false;
    snprintf(key, sizeof key, "%s driver %d%s", g->machine.name, g->machine.driver_version,
             g->machine.standin ? " stand-in" : "");
    snprintf(path, sizeof path, "%.380s/peers", g->folder);
    g->peers = journal_open(path, key, again, why);
    return g->peers != NULL;
}

static int finish(const gpu *g, const arguments *a) {
    unsigned ok = 0, wrong = 0, skipped = 0, left = 0;
    char what_left[400] = "";
    for (int i = 0; i < STEPS; i++) {
        char result[40] = "";
        if (a->only && strcmp(a->only, steps[i].name)) continue;
        bool there = known(g, steps[i].name, result);
        if (!there) {
            size_t used = strlen(what_left);
            snprintf(what_left + used, sizeof what_left - used, " %s", steps[i].name);
        }
        left += !there;
        ok += there && strcmp(result, gpu_result_names[GPU_OK]) == 0;
        skipped += there && strcmp(result, gpu_result_names[GPU_SKIPPED]) == 0;
        wrong += there && strcmp(result, gpu_result_names[GPU_FAILED]) == 0;
    }
    printf("gpu-check: %u steps passed, %u failed, %u skipped, %u left; %s/GPU.md\n", ok, wrong, skipped, left,
           g->folder);
    if (left) printf("time is up: run it again for%s\n", what_left);
    return wrong ? WRONG : left ? LEFT : DONE;
}

/* Kernels that were made beforehand: tests/gpu/carried.c looks into the folder before it asks the machine's NVRTC. */
static void use_carried(const gpu *g) {
    char path[400], real[500];
    snprintf(path, sizeof path, "%.370s/libnvrtc-carried.so", g->folder);
    if (access(path, R_OK) || getenv("FCP_NVRTC")) return;
    if (!realpath(path, real)) return;
    setenv("FCP_NVRTC", real, 1);
    setenv("GPU_CARRIED", "1", 1);
    snprintf(path, sizeof path, "%.370s/kernels", g->folder);
    setenv("GPU_KERNELS", path, 0);
}

int main(int argc, char **argv) {
    arguments a;
    char why[300] = "", cache[400];
    if (!parse(argc, argv, &a)) {
        fputs(usage, stderr);
        return USAGE;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    gpu g = {.folder = a.folder,
             .python = a.python,
             .step = "",
             .steps = steps,
             .step_count = STEPS,
             .deadline = fcp_clock() + a.seconds};
    if (mkdir(a.folder, 0755) && errno != EEXIST) {
        fprintf(stderr, "gpu-check: cannot make '%s': %s\n", a.folder, strerror(errno));
        return WRONG;
    }
    if (fcp_crc32c("123456789", 9) != 0xe3069283u) { /* the link has its own: tests/gpu/crc.c */
        fprintf(stderr, "gpu-check: CRC-32C is wrong\n");
        return WRONG;
    }
    use_carried(&g);
    g.small = a.small;
    g.inject = a.inject;
    if (a.prepare) return gpu_prepare(&g, a.prepare);
    snprintf(cache, sizeof cache, "%.380s/cache", a.folder);
    setenv("FCP_CACHE", cache, 0);
    if (a.rank) return gpu_rank(&g, a.rank);
    answer *out = mmap(NULL, sizeof *out, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (out == MAP_FAILED) {
        fprintf(stderr, "gpu-check: out of memory\n");
        return WRONG;
    }
    run_child(&g, NULL, 60, out);
    if (!out->given || out->code) {
        fprintf(stderr, "gpu-check: nothing was checked: %s\n", out->why);
        return NOTHING;
    }
    g.machine = out->machine;
    g.small = g.machine.standin;
    if (!open_journals(&g, a.again, why)) {
        fprintf(stderr, "gpu-check: %s\n", why);
        return WRONG;
    }
    note_beginning(&g);
    printf("%s%s, sm_%d%d, %d multiprocessors, %.1f GB, driver for CUDA %d.%d\n", g.machine.standin ? "STAND-IN: " : "",
           g.machine.name, g.machine.major, g.machine.minor, g.machine.multiprocessors, (double)g.machine.memory * 1e-9,
           g.machine.driver_version / 1000, g.machine.driver_version % 1000 / 10);
    for (int i = 0; i < STEPS; i++) {
        char result[40];
        g.step = steps[i].name;
        if (a.only && strcmp(a.only, steps[i].name)) continue;
        if (known(&g, steps[i].name, result))
            printf("%-12s %s: %s, from before\n", steps[i].name, steps[i].what, result);
        else if (gpu_left(&g) >= (g.small ? 0 : steps[i].least)) run_step(&g, &steps[i], out);
    }
    gpu_report(&g);
    int status = finish(&g, &a);
    journal_close(g.journal);
    journal_close(g.peers);
    munmap(out, sizeof *out);
    return status;
}
