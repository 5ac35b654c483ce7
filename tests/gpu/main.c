/* main.c: gpu-check: tests everything that runs on the GPUs of this machine, and measures it.
 *
 * Machines with GPUs are often available for a few minutes only. So
 * - steps run one after the other, each in a process of its own, the most important ones first;
 * - what a step finds is written to FOLDER/state at once, and FOLDER/GPU.md is drawn from that;
 * - when it is run again, it goes on where it stopped; with another binary, device or driver it begins from the start;
 * - a step that has ended its process twice is not tried a third time.
 *
 * Exit status: 0: everything was done and is right; 1: something is wrong; 2: usage; 3: there is no driver or no
 * device, and nothing was checked; 4: the time was up, run it again for what is left.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/sha256.h"
#include "runtime/plan/file.h"
#include "tests/gpu/gpu.h"

enum { DONE = 0, WRONG = 1, USAGE = 2, NOTHING = 3, LEFT = 4, TRIES = 2, SLOWER = 20 };

/* First what says whether kernels work at all, in the order in which a wrong answer explains those behind it; then what
 * they take and where it goes; then the long tests of the same; peers last. */
static const gpu_step steps[] = {
    {"conformance", "the driver, question by question", step_conformance, 3, 20, true, false},
    {"ladder", "what kernels rely on, one by one", step_ladder, 3, 120, false, true},
    {"smoke", "one tile for each kernel", step_smoke, 5, 150, false, true},
    {"examples", "every example against float64", step_examples, 8, 150, true, true},
    {"edges", "sizes of heads, far logits, LSE, no tokens", step_edges, 8, 90, true, true},
    {"speed", "causal and full, 8K to 32K", step_speed, 8, 60, false, false},
    {"waits", "where warps wait, without a profiler", step_waits, 8, 50, false, true},
    {"design", "rates that decide how kernels are cut", step_design, 5, 40, false, false},
    {"ceilings", "matrix rate and copy bandwidth", step_ceilings, 5, 40, false, false},
    {"checker", "a memory checker on two tiles", step_checker, 20, 160, false, true},
    {"profile", "a profile of the attention kernels", step_profile, 30, 150, false, true},
    {"variants", "overlap, turns and margins", step_variants, 20, 90, false, true},
    {"local", "8 ranks on one device", step_local, 8, 40, false, false},
    {"nccl", "NCCL, by several ranks where it lets them", step_nccl, 5, 150, true, false},
    {"pointers", "device pointers and a stream", step_pointers, 4, 40, true, false},
    {"torch", "the Python package, by PyTorch on CUDA", step_torch, 30, 240, false, true},
    {"shaken", "the same bits, blocks delayed at random", step_shaken, 10, 60, false, true},
    {"fused", "a pass as one launch, beside stages", step_fused, 15, 120, false, true},
    {"short", "2K", step_short, 4, 20, false, false},
    {"masks", "five masks", step_masks, 8, 40, false, false},
    {"random", "random programs against float64", step_random, 8, 150, true, true},
    {"examples-mma", "every example on mma.sync", step_examples_older, 8, 150, true, true},
    {"older", "mma.sync, both ways", step_older, 8, 60, false, false},
    {"kernels", "registers, memory, occupancy", step_kernels, 3, 20, false, false},
    {"graphs", "launching and capturing", step_graphs, 3, 30, false, false},
    {"fills", "words written to host memory", step_fills, 3, 20, false, false},
    {"memory", "device memory of a session", step_memory, 3, 20, false, false},
    {"jit", "compiling kernels", step_jit, 4, 30, false, false},
    {"curve", "rates of single tiles", step_curve, 4, 60, false, false},
    {"peers", "cuDNN, FlashAttention, FlexAttention", step_peers, 20, 170, false, false},
};
enum { STEPS = sizeof steps / sizeof *steps };

typedef struct arguments {
    const char *folder, *python, *only, *prepare, *inject, *rank, *out, *smoke;
    double seconds;
    bool again, small, profiled;
} arguments;

static const char usage[] =
    "usage: gpu-check [--folder DIR] [--out DIR] [--seconds N] [--again] [--only STEP] [--python PYTHON]\n"
    "                 [--prepare CAPABILITIES]\n"
    "  --folder    where state and GPU.md are (build/gpu)\n"
    "  --out       results are copied there after each step: 8 files at most\n"
    "  --seconds   begins nothing after that (360)\n"
    "  --again     begins anew: forgets what was found\n"
    "  --only      this step alone\n"
    "  --python    the one that has PyTorch, for torch and peers (python3; a stand-in has them only if\n"
    "              this is given)\n"
    "  --prepare   makes kernels for devices of these capabilities, \"8.0 9.0 10.0\", to be carried along\n"
    "  --small     with --prepare, for tests: of the plans that are run on a stand-in\n"
    "  --inject    for tests: fail, die, hang, stuck, kill, gives-up of :STEP or of :STEP/PLAN; spoil of :smoke/NAME;\n"
    "              held of :fused/NAME; fail, die, stop, differ of :rank-N, of the step nccl\n";

static bool parse(int argc, char **argv, arguments *a) {
    *a = (arguments){.folder = "build/gpu", .seconds = 360};
    for (int i = 1; i < argc; i++) {
        const struct {
            const char *name, **to;
        } texts[] = {{"--folder", &a->folder}, {"--python", &a->python},
                     {"--only", &a->only},     {"--prepare", &a->prepare},
                     {"--out", &a->out},       {"--smoke", &a->smoke}, /* for tools.c alone, as --profiled is */
                     {"--inject", &a->inject}, {"--nccl-rank", &a->rank}}; /* that one by ranks.c alone */
        bool again = strcmp(argv[i], "--again") == 0, small = strcmp(argv[i], "--small") == 0;
        bool profiled = strcmp(argv[i], "--profiled") == 0, known = again || small || profiled;
        a->profiled |= profiled;
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

static gpu_result look(gpu *g, void *context, gpu_answer *out) {
    fcp_error err = {.message = ""};
    (void)context;
    out->code = gpu_look(g, &out->machine, &err);
    snprintf(out->why, sizeof out->why, "%.390s", err.message);
    return out->code ? GPU_FAILED : GPU_OK;
}

static gpu_result do_step(gpu *g, void *context, gpu_answer *out) {
    const gpu_step *step = context;
    return step->run(g, out->why);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Finds the result of a step in the journal. False: it has none yet. */
static bool known(const gpu *g, const char *name, char result[40]) {
    char rest[600];
    if (!journal_find(g->journal, "end", name, rest, sizeof rest)) return false;
    snprintf(result, 40, "%.*s", (int)strcspn(rest, "\t"), rest);
    return strcmp(result, gpu_result_names[GPU_LATER]) != 0;
}

static void run_step(gpu *g, const gpu_step *step) {
    gpu_answer out = {.result = GPU_FAILED};
    char rest[GPU_WHY + 100];
    unsigned begun = journal_count(g->journal, "run", step->name) - journal_count(g->journal, "end", step->name);
    printf("%-12s %s\n", step->name, step->what);
    double begin = fcp_clock();
    if (begun >= TRIES) {
        snprintf(out.why, sizeof out.why, "ended its process, and this one, %u times", begun);
    } else {
        journal_add(g->journal, "run", step->name, "");
        double left = gpu_left(g) + 5, most = g->small ? SLOWER * step->most : step->most; /* fibers are slow */
        if (most > left) most = left;
        const gpu_apart apart = {.name = step->name, .open = !step->plans, .all = step->all, .most = most,
                                 .work = do_step, .context = (void *)(uintptr_t)step};
        gpu_run_apart(g, &apart, &out);
    }
    journal_reload(g->journal);
    if (g->peers) journal_reload(g->peers);
    snprintf(rest, sizeof rest, "%s\t%.1f\t%s", gpu_result_names[out.result], fcp_clock() - begin, out.why);
    journal_add(g->journal, "end", step->name, rest);
    gpu_report(g);
    gpu_copy_out(g);
    printf("  %s, %.1f s: %s\n", gpu_result_names[out.result], fcp_clock() - begin, out.why);
    fflush(stdout);
}

/* Gives half of the SHA-256 of this program's file, in hexadecimal. Another build may have other kernels or ask other
 * questions, so what an older build found is not used again.
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
    static const char *const older[] = {"hung.txt", "gpu.core", "smoke.txt", "tools.txt"}; /* of another run */
    for (size_t i = 0; i < sizeof older / sizeof *older; i++) {
        snprintf(path, sizeof path, "%.370s/%s", g->folder, older[i]);
        unlink(path);
    }
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

/* Would the driver load these kernels? It refuses those of a later major version of NVRTC than the CUDA that it is
 * for. */
static bool carried_fit(const gpu_machine *m) {
    const char *folder = getenv("GPU_KERNELS");
    char path[600];
    int major = 0, minor = 0;
    snprintf(path, sizeof path, "%.500s/version", folder ? folder : "");
    FILE *f = getenv("GPU_CARRIED") && folder ? fopen(path, "re") : NULL;
    bool fit = !f || fscanf(f, "%d.%d", &major, &minor) != 2 || major <= m->driver_version / 1000;
    if (f) fclose(f);
    if (!fit)
        fprintf(
            stderr,
            "gpu-check: nothing was checked: NVRTC %d.%d made the kernels in %.300s, and this driver is for CUDA "
            "%d.%d, "
            "which does not load them. Pack with NVRTC %d (GPU_NVRTC names its file), or remove %.300s and have them "
            "compiled here\n",
            major, minor, folder, m->driver_version / 1000, m->driver_version % 1000 / 10, m->driver_version / 1000,
            folder);
    return fit;
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
             .out = a.out,
             .first = getpid(),
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
    gpu_find_packages(a.python);
    use_carried(&g);
    g.small = a.small;
    g.timeout_s = a.small ? 600 : 10;
    g.inject = a.inject;
    if (a.prepare) return gpu_prepare(&g, a.prepare);
    snprintf(cache, sizeof cache, "%.380s/cache", a.folder);
    setenv("FCP_CACHE", cache, 0);
    if (a.rank) return gpu_rank(&g, a.rank);
    if (a.smoke || a.profiled) {
        g.timeout_s = 600; /* tools are slow; who started this ends it */
        return a.smoke ? gpu_smoke_one(&g, a.smoke) : gpu_profiled(&g);
    }
    gpu_answer machine;
    gpu_run_apart(&g, &(gpu_apart){.name = "", .open = true, .all = true, .most = 60, .work = look}, &machine);
    if (!machine.given || machine.code) {
        fprintf(stderr, "gpu-check: nothing was checked: %s\n", machine.why);
        return NOTHING;
    }
    g.machine = machine.machine;
    if (!carried_fit(&g.machine)) return NOTHING;
    g.small = g.machine.standin;
    g.timeout_s = g.small ? 600 : 10;
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
        else if (gpu_left(&g) >= (g.small ? 0 : steps[i].least)) run_step(&g, &steps[i]);
    }
    gpu_report(&g);
    int status = finish(&g, &a);
    journal_close(g.journal);
    journal_close(g.peers);
    return status;
}
