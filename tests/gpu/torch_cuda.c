/* torch_cuda.c: runs torch_cuda.py: the Python package on tensors of PyTorch on CUDA, as most users have it.
 *
 * After an error of CUDA a process has no device any more, and a kernel may hang. Then the script is started again, for
 * the cases that have not begun. The package finds NVRTC and NCCL by itself, as it does for a user. Its libraries are
 * those of the build, or what was packed of them, with those that they need.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/gpu/gpu.h"

#define CASE_S 90.0  /* no case takes longer, with its kernels compiled */
#define STEP_S 140.0 /* no start of the script after that */
#define GOAL 0.8     /* of PyTorch's time, both passes */
enum { STARTS = 12 };

typedef struct cases {
    gpu *g;
    bool ended;
    char begun[80], none[GPU_WHY];
} cases;

#define WRONG "WRONG: "
static void wrong(const cases *c, const char *name, const char *why) {
    char rest[GPU_WHY];
    snprintf(rest, sizeof rest, WRONG "%.500s", why);
    journal_add(c->g->journal, "torch", name, rest);
}

static void take(void *context, const char *kind, const char *name, const char *rest) {
    cases *c = context;
    char text[GPU_WHY];
    if (strcmp(kind, "begin") == 0) snprintf(c->begun, sizeof c->begun, "%.70s", name);
    else if (strcmp(kind, "right") == 0) {
        snprintf(text, sizeof text, "right, %.20s of what is allowed", rest);
        journal_add(c->g->journal, "torch", name, text);
    } else if (strcmp(kind, "wrong") == 0) wrong(c, name, rest);
    else if (strcmp(kind, "skip") == 0) {
        snprintf(text, sizeof text, "skipped: %.300s", rest);
        journal_add(c->g->journal, "torch", name, text);
    } else if (strcmp(kind, "fact") == 0) gpu_fact_put(c->g, name, strtod(rest, NULL));
    else if (strcmp(kind, "none") == 0) snprintf(c->none, sizeof c->none, "%.390s", rest);
    else if (strcmp(kind, "note") == 0 && strcmp(name, "end") == 0) c->ended = true;
    else if (strcmp(kind, "note") == 0) journal_add(c->g->journal, "torch", name, rest);
    else return;
    if (strcmp(kind, "begin") == 0) return;
    if (strcmp(kind, "fact") && strcmp(kind, "note")) c->begun[0] = 0;
    if (!c->g->quiet) printf("  %-6s %-36s %s\n", kind, name, rest);
}

/* Puts a folder before what a list of folders has: CUDA's driver may be in one of these, and PyTorch. */
static void put_first(const char *variable, const char *folder) {
    const char *others = getenv(variable);
    char all[4000];
    snprintf(all, sizeof all, "%s%s%s", folder, others && *others ? ":" : "", others ? others : "");
    setenv(variable, all, 1);
}

/* The package finds what a user's would. Its libraries are beside this program, or where they were unpacked. */
static void see_package(void) {
    static const char *const ours[] = {"FCP_NVRTC", "FCP_NCCL", "GPU_NVRTC", "GPU_KERNELS", "GPU_CARRIED"};
    char own[400], path[500];
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) unsetenv(ours[i]);
    ssize_t size = readlink("/proc/self/exe", own, sizeof own - 1);
    own[size > 0 ? size : 0] = 0;
    char *name = strrchr(own, '/');
    if (name) *name = 0;
    snprintf(path, sizeof path, "%s/gpu/libraries", own);
    const bool packed = access(path, R_OK) == 0;
    setenv("FCPC_LIBRARIES", packed ? path : own, 1);
    if (packed) put_first("LD_LIBRARY_PATH", path);
    put_first("PYTHONPATH", "runtime/python");
}

static void put_rows(gpu *g) {
    const double own = gpu_fact(g, "torch.fcpc.causal.16384.both"), peer = gpu_fact(g, "torch.sdpa.causal.16384.both");
    const double host = gpu_fact(g, "torch.fcpc.host"), its = gpu_fact(g, "torch.sdpa.host");
    char note[160];
    if (own <= 0 || peer <= 0 || host <= 0 || its <= 0) return;
    snprintf(note, sizeof note, "forward and backward, 16 heads of 128; launched in %.3f ms, PyTorch's in %.3f ms",
             host, its);
    gpu_row r = gpu_row_of("from Python, causal.16384", own, "ms", note);
    r.against = "scaled_dot_product_attention";
    r.ratio = peer / own;
    r.goal = GOAL;
    gpu_row_put(g, &r);
}

/* What is known of all cases, also from an earlier run. Returns whether one is wrong. */
static bool count_cases(const gpu *g, const char *left, char why[GPU_WHY]) {
    unsigned right = 0, wrong = 0, skipped = 0;
    char name[120], rest[GPU_WHY], first[GPU_WHY] = "";
    for (size_t at = 0; journal_next(g->journal, &at, "torch", name, sizeof name, rest, sizeof rest);) {
        const bool bad = strncmp(rest, WRONG, strlen(WRONG)) == 0;
        if (bad && !wrong) snprintf(first, sizeof first, "; %.60s: %.300s", name, rest + strlen(WRONG));
        wrong += bad;
        right += strncmp(rest, "right", 5) == 0;
        skipped += strncmp(rest, "skipped", 7) == 0;
    }
    snprintf(why, GPU_WHY, "%u right, %u wrong, %u skipped%s%.400s", right, wrong, skipped, left, first);
    return wrong;
}

gpu_result step_torch(gpu *g, char why[GPU_WHY]) {
    cases c = {.g = g};
    char name[120], rest[GPU_WHY], errors[500];
    gpu_script_end end = GPU_SCRIPT_ENDED;
    if (g->machine.standin && !g->python) {
        snprintf(why, GPU_WHY, "PyTorch sees no stand-in");
        return GPU_SKIPPED;
    }
    const double begin = fcp_clock();
    see_package();
    snprintf(errors, sizeof errors, "%.400s/tools.txt", g->folder);
    for (int i = 0; i < STARTS && !c.ended && !*c.none && gpu_left(g) > 0 && fcp_clock() - begin < STEP_S; i++) {
        gpu_names known = {.count = 0};
        for (size_t at = 0; journal_next(g->journal, &at, "torch", name, sizeof name, rest, sizeof rest);)
            gpu_names_add(&known, name);
        c.begun[0] = 0;
        end = gpu_script(g, "tests/gpu/torch_cuda.py", &known, errors, CASE_S, take, &c);
        gpu_names_free(&known);
        if (end == GPU_SCRIPT_NONE) break;
        if (gpu_left(g) <= 0) break;
        if (c.begun[0])
            wrong(&c, c.begun, end == GPU_SCRIPT_SILENT ? "it did not end" : "its process ended by itself: tools.txt");
        else if (!c.ended && end != GPU_SCRIPT_ENDED) { /* nothing had begun: another start would end so, too */
            snprintf(why, GPU_WHY, "the script ends before a case: tools.txt");
            return GPU_FAILED;
        }
    }
    put_rows(g);
    if (end == GPU_SCRIPT_NONE || *c.none) {
        snprintf(why, GPU_WHY, "no PyTorch: %.350s", *c.none ? c.none : "there is no python3; --python names another");
        return GPU_SKIPPED;
    }
    const bool bad = count_cases(g, c.ended ? "" : ", the others later", why);
    return !c.ended ? GPU_LATER : bad ? GPU_FAILED : GPU_OK;
}
