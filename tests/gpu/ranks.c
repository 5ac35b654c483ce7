/* ranks.c: runs a plan over NCCL in several processes, a rank each.
 *
 * Devices:
 *   one for each rank                 if there are so many
 *   the first one for all ranks       if not, and NCCL is 2.30 or later, which allows it with
 *                                     NCCL_MULTI_RANK_GPU_ENABLE=1
 *   one rank, which sends to itself   with an older NCCL
 *
 * 1. The plan runs in this process with transport local.
 * 2. Each rank is this program again, started with exec, so that it inherits nothing of an open driver. It judges its
 *    own rows against float64 and compares them with local's. Its output goes to a file. The last line there with a
 *    certain mark says how far it is, or what went wrong.
 * 3. When one rank is wrong, the others have a moment to end, and are then killed. So are ranks that do not end in
 *    time.
 *
 * Tests make a rank go wrong or stop (--inject). Then the moment of 3 begins only when that rank has gone wrong. If it
 * has stopped, the others are killed at once.
 *
 * Requires: an open driver (gpu_open), NCCL.
 * Gives:    gpu.h.
 * Files:    FOLDER/nccl, which is removed if all was right.
 * Cost:     the plan five times; a driver and an NCCL for each rank.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/plan/plan.h"
#include "tests/gpu/gpu.h"

extern char **environ;

enum { RANKS = 4, SHARING = 23000, PATIENCE_S = 60, PATIENCE_STANDIN_S = 600, GRACE_S = 2, NEEDED_S = 20, SEED = 5,
       TEXT = 500, PATH = 450 };
static const char mark[] = "gpu-check rank: ", right[] = "right";

static void program(const gpu *g, unsigned ranks, char text[TEXT]) {
    static const char form[] =
        "model { heads = %d; kv_heads = %d; head_dim = %d; dtype = bf16 }\ncluster { nodes = 1; gpus = %u }\n"
        "batch { lengths = [%s] }\nplan { mask = causal; block = 128; passes = forward, backward }\n";
    if (g->small) snprintf(text, TEXT, form, 2, 1, 16, ranks, "150, 40");
    else snprintf(text, TEXT, form, 4, 2, 128, ranks, "1500, 700, 230 x 2, 40 x 6");
}

void gpu_measured_ranks(gpu *g, bool (*each)(gpu *g, const char *text, void *context), void *context) {
    char text[TEXT];
    for (unsigned ranks = 2; ranks <= (g->small ? 2 : RANKS); ranks += 2) {
        program(g, ranks, text);
        if (!each(g, text, context)) return;
    }
}

static void path_of(const gpu *g, const char *name, char path[PATH]) {
    snprintf(path, PATH, "%.380s/nccl/%.40s", g->folder, name);
}

static void path_of_rank(const gpu *g, unsigned rank, char path[PATH]) {
    char name[40];
    snprintf(name, sizeof name, "rank-%u", rank);
    path_of(g, name, path);
}

/* --- what transport local gave, as a file ------------------------------------------------------------------------- */

static unsigned outputs(const fcp_plan *plan) {
    unsigned set = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (plan->problem->passes >> pass & 1) set |= gpu_outputs((fcp_pass)pass);
    return set;
}

/* All outputs, one after the other. */
static bool keep(const gpu *g, const fcp_plan *plan, const fcp_packed *packed, bool write) {
    char path[PATH];
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    path_of(g, "local", path);
    FILE *f = fopen(path, write ? "wbe" : "rbe");
    bool good = f != NULL;
    for (int t = 0; good && t < FCP_TENSORS; t++) {
        uint64_t dims[3];
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        size_t bytes = (size_t)dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
        if (!(outputs(plan) >> t & 1)) continue;
        good = (write ? fwrite(packed->t[t], 1, bytes, f) : fread(packed->t[t], 1, bytes, f)) == bytes;
    }
    return f && fclose(f) == 0 && good;
}

/* Compares this rank's rows of all outputs. *rows counts them. */
static bool rows_same(const fcp_plan *plan, uint32_t rank, const fcp_packed *a, const fcp_packed *b, uint64_t *rows,
                      char why[GPU_WHY]) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    *rows = 0;
    for (int t = 0; t < FCP_TENSORS; t++) {
        const bool keys = fcp_tensor_of_keys((fcp_tensor)t);
        size_t row = fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
        fcp_layout_at walk = {0};
        fcp_span span;
        if (!(outputs(plan) >> t & 1)) continue;
        *rows += keys ? fcp_plan_rank_keys(plan, rank) : fcp_plan_rank_queries(plan, rank);
        while (keys ? fcp_plan_layout_keys(plan, rank, &walk, &span) : fcp_plan_layout(plan, rank, &walk, &span)) {
            uint64_t length, first = keys ? fcp_plan_key_offset(plan, span.sequence, &length)
                                          : fcp_plan_sequence_offset(plan, span.sequence, &length);
            size_t at = (size_t)(first + span.start) * row;
            if (memcmp((char *)a->t[t] + at, (char *)b->t[t] + at, span.length * row) == 0) continue;
            snprintf(why, GPU_WHY,
                     "%s differs from what transport local gives, between tokens %llu and %llu of sequence %u",
                     fcp_tensor_name((fcp_tensor)t), (unsigned long long)span.start,
                     (unsigned long long)(span.start + span.length), span.sequence);
            return false;
        }
    }
    return true;
}

/* --- a rank ------------------------------------------------------------------------------------------------------- */

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    printf("\n%s", mark);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
}

static bool check_rank(gpu *g, const fcp_start *start, bool differ, char why[GPU_WHY]) {
    char text[TEXT];
    fcp_packed mine = {0}, local = {0};
    fcp_shape shape;
    fcp_error err = {.message = ""};
    uint64_t rows = 0;
    program(g, start->ranks, text);
    fcp_plan *plan = gpu_plan_of("ranks.fcp", text, NULL, 0, why);
    if (!plan) return false;
    fcp_plan_shape(plan, &shape);
    say("runs its passes");
    bool good = gpu_check_plan(g, plan, SEED, start, &mine, why);
    if (good && fcp_packed_alloc(&shape, outputs(plan), &local, &err))
        good = !snprintf(why, GPU_WHY, "%.390s", err.message);
    if (good && !keep(g, plan, &local, false))
        good = !snprintf(why, GPU_WHY, "what transport local gave cannot be read");
    for (uint64_t i = 0; good && differ && i < shape.tokens * fcp_tensor_token_bytes(&shape, FCP_TENSOR_DQ); i++)
        ((char *)local.t[FCP_TENSOR_DQ])[i] ^= 1;
    good = good && rows_same(plan, start->rank, &mine, &local, &rows, why);
    if (good && !rows) good = !snprintf(why, GPU_WHY, "the plan gives this rank no rows");
    fcp_packed_free(&mine);
    fcp_packed_free(&local);
    fcp_plan_free(plan);
    return good;
}

int gpu_rank(gpu *g, const char *which) {
    char why[GPU_WHY] = "", name[40], id[PATH];
    fcp_start start = {.size = sizeof start, .id_file = id};
    fcp_error err;
    if (sscanf(which, "%u %u %u", &start.rank, &start.ranks, &start.device) != 3 || start.ranks > RANKS ||
        start.rank >= start.ranks)
        return 2;
    snprintf(name, sizeof name, "rank-%u", start.rank);
    path_of(g, "id", id);
    gpu_end_with(getpgrp()); /* the step began this group, and started this rank */
    say("begins");
    if (gpu_injected(g, "die", name)) raise(SIGKILL);
    while (gpu_injected(g, "stop", name)) raise(SIGSTOP);
    bool good = !gpu_open_driver(g, &err);
    if (!good) snprintf(why, sizeof why, "%.390s", err.message);
    if (good && gpu_injected(g, "fail", name) && g->control) { /* the driver breaks in the middle of it */
        g->control->fail_at = g->control->calls + 200;
        g->control->fail_with = 719;
        g->control->breaks = true;
    }
    good = good && check_rank(g, &start, gpu_injected(g, "differ", name), why);
    gpu_close(g);
    say("%s", good ? right : why);
    return !good;
}

/* --- all of them -------------------------------------------------------------------------------------------------- */

typedef struct ranks {
    unsigned count, left; /* left: that still run */
    bool own;             /* each has a device of its own */
    pid_t pid[RANKS];     /* 0: it has ended */
} ranks;

/* What the rank last said; "" if nothing. */
static void last_said(const gpu *g, unsigned rank, char out[GPU_WHY]) {
    char path[PATH], line[GPU_WHY + 100];
    path_of_rank(g, rank, path);
    FILE *f = fopen(path, "re");
    *out = 0;
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, mark, sizeof mark - 1) == 0) {
            line[strcspn(line, "\n")] = 0;
            snprintf(out, GPU_WHY, "%.390s", line + sizeof mark - 1);
        }
    if (f) fclose(f);
}

static bool begin_rank(gpu *g, ranks *x, unsigned rank, char why[GPU_WHY]) {
    char path[PATH], which[60], exe[] = "/proc/self/exe", name[] = "gpu-check", flag[] = "--nccl-rank",
                                folder_flag[] = "--folder", folder[400], small[] = "--small",
                                inject_flag[] = "--inject", inject[60];
    char *arguments[10] = {name, flag, which, folder_flag, folder};
    int used = 5;
    posix_spawn_file_actions_t actions;
    snprintf(which, sizeof which, "%u %u %u", rank, x->count, x->own ? rank + 1 : 1);
    snprintf(folder, sizeof folder, "%.390s", g->folder);
    if (g->small) arguments[used++] = small;
    if (g->inject) {
        snprintf(inject, sizeof inject, "%.50s", g->inject);
        arguments[used++] = inject_flag;
        arguments[used++] = inject;
    }
    path_of_rank(g, rank, path);
    int failed = posix_spawn_file_actions_init(&actions);
    if (!failed) {
        failed = posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (!failed) failed = posix_spawn_file_actions_adddup2(&actions, 1, 2);
        if (!failed) failed = posix_spawn(&x->pid[rank], exe, &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    }
    if (failed) {
        x->pid[rank] = 0;
        snprintf(why, GPU_WHY, "rank %u cannot be started: %s", rank, strerror(failed));
    } else x->left++;
    return !failed;
}

/* Adds one more thing that is wrong to the text. */
static void blame(char why[GPU_WHY], const char *format, ...) __attribute__((format(printf, 2, 3)));
static void blame(char why[GPU_WHY], const char *format, ...) {
    va_list args;
    size_t used = strlen(why);
    va_start(args, format);
    if (used) used += (size_t)snprintf(why + used, GPU_WHY - used, "; ");
    if (used < GPU_WHY) vsnprintf(why + used, GPU_WHY - used, format, args);
    va_end(args);
}

/* A rank has ended with this status. */
static void rank_ended(const gpu *g, ranks *x, unsigned rank, int status, char why[GPU_WHY]) {
    char said[GPU_WHY];
    x->pid[rank] = 0;
    x->left--;
    last_said(g, rank, said);
    if (WIFSIGNALED(status))
        blame(why, "rank %u was ended by signal %d, having said: %.250s", rank, WTERMSIG(status), said);
    else if (WEXITSTATUS(status) == 1) blame(why, "rank %u: %.250s", rank, said);
    else if (WEXITSTATUS(status) || strcmp(said, right))
        blame(why, "rank %u ended by itself with %d, having said: %.250s", rank, WEXITSTATUS(status), said);
}

/* Kills the ranks that still run, and names them. */
static void end_all(const gpu *g, ranks *x, double waited, char why[GPU_WHY]) {
    for (unsigned r = 0; r < x->count; r++) {
        if (!x->pid[r]) continue;
        char said[GPU_WHY];
        kill(x->pid[r], SIGKILL);
        waitpid(x->pid[r], NULL, 0);
        last_said(g, r, said);
        blame(why, "rank %u did not end within %.0f s, having said: %.250s", r, waited, said);
        x->pid[r] = 0;
        x->left--;
    }
}

/* Does the rank still run that a test lets go wrong? */
static bool is_to_go_wrong(const gpu *g, const ranks *x) {
    static const char *const ways[] = {"fail", "die", "differ"};
    bool is = false;
    for (unsigned r = 0; r < x->count; r++)
        for (size_t i = 0; x->pid[r] && i < sizeof ways / sizeof *ways; i++) {
            char name[40];
            snprintf(name, sizeof name, "rank-%u", r);
            is |= gpu_injected(g, ways[i], name);
        }
    return is;
}

/* Waits until all have ended. When one was wrong, the others have a moment to say what they see. */
static void wait_all(gpu *g, ranks *x, char why[GPU_WHY]) {
    double begun = fcp_clock();
    fcp_patience left = fcp_patience_of(g->small ? PATIENCE_STANDIN_S : PATIENCE_S, 0.1);
    for (bool wrong = false; x->left && gpu_left(g) > 0 && !fcp_patience_ends(&left);) {
        for (unsigned r = 0; r < x->count; r++) {
            int status;
            char name[40];
            if (!x->pid[r] || waitpid(x->pid[r], &status, WNOHANG | WUNTRACED) != x->pid[r]) continue;
            snprintf(name, sizeof name, "rank-%u", r);
            if (!WIFSTOPPED(status)) rank_ended(g, x, r, status, why);
            else if (gpu_injected(g, "stop", name)) g->deadline = fcp_clock();
        }
        if (*why && !wrong && !is_to_go_wrong(g, x)) {
            wrong = true;
            if (left.left > GRACE_S) left.left = GRACE_S;
        }
        if (x->left) nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
    }
    end_all(g, x, fcp_clock() - begun, why);
}

static void clear(const gpu *g, bool all) {
    static const char *const names[] = {"local", "id-0", "id-1"};
    char path[PATH];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        path_of(g, names[i], path);
        unlink(path);
    }
    for (unsigned r = 0; all && r < RANKS; r++) {
        path_of_rank(g, r, path);
        unlink(path);
    }
    path_of(g, "", path);
    if (all) rmdir(path);
}

static bool run_all(gpu *g, ranks *x, char why[GPU_WHY]) {
    char path[PATH], text[TEXT];
    fcp_packed local = {0};
    path_of(g, "", path);
    if (mkdir(path, 0755) && errno != EEXIST)
        return !snprintf(why, GPU_WHY, "'%.300s' cannot be made: %s", path, strerror(errno));
    clear(g, false);
    program(g, x->count, text);
    fcp_plan *plan = gpu_plan_of("ranks.fcp", text, NULL, 0, why);
    bool good = plan && gpu_check_plan(g, plan, SEED, NULL, &local, why);
    if (good && !keep(g, plan, &local, true)) good = !snprintf(why, GPU_WHY, "'%.300s' cannot be written", path);
    fcp_packed_free(&local);
    fcp_plan_free(plan);
    if (good && !x->own)
        good = !setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1) || !snprintf(why, GPU_WHY, "out of memory");
    if (!good) return false;
    *why = 0;
    for (unsigned r = 0; good && r < x->count; r++) good = begin_rank(g, x, r, why);
    if (good) wait_all(g, x, why);
    else end_all(g, x, 0, why);
    return !*why;
}

gpu_result gpu_ranks(gpu *g, int version, char why[GPU_WHY]) {
    int devices = g->cuda->devices;
    char nccl[40], how[80], wrong[GPU_WHY] = "";
    ranks x = {.count = devices >= RANKS || devices < 2 ? RANKS : 2, .own = devices >= 2};
    if (g->small) x.count = 2;
    snprintf(nccl, sizeof nccl, "NCCL %d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    if (!x.own && version < SHARING) {
        snprintf(why, GPU_WHY, "%s: one rank that sends to itself, right: there is one device, "
                               "and several ranks on it are for NCCL 2.30 and later",
                 nccl);
        return GPU_OK;
    }
    snprintf(how, sizeof how,
             x.own ? "%u ranks, a device each" : "%u ranks on one device, by NCCL_MULTI_RANK_GPU_ENABLE=1", x.count);
    if (!g->small && gpu_left(g) < NEEDED_S) {
        snprintf(why, GPU_WHY, "%s: one rank that sends to itself, right; %s: later", nccl, how);
        return GPU_LATER;
    }
    bool good = run_all(g, &x, wrong);
    clear(g, good);
    if (good)
        snprintf(why, GPU_WHY, "%s: %s: all right against float64, with the bits of transport local, "
                               "with and without a graph; "
                               "and one rank that sends to itself", nccl, how);
    else snprintf(why, GPU_WHY, "%s: %s: %.1060s", nccl, how, wrong);
    return good ? GPU_OK : GPU_FAILED;
}
