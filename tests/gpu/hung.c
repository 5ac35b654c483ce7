/* hung.c: lets CUDA's debugger say where kernels are that do not end, before their process is ended, and what a core
 * dump has, which the driver writes after an exception or when it is asked. What the debugger prints is appended to
 * FOLDER/hung.txt. A place may forbid to trace processes, and then the dump says the same without the memory.
 *
 * Requires: cuda-gdb in PATH, in /usr/local/cuda/bin or where FCP_DEBUGGER says; without it one line says so. The
 *           process must let itself be traced (gpu_may_crash).
 * Cost:     at most DUMP_S seconds for a dump and a process each, and CORE_S.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "codegen/kernels/abi.h"
#include "runtime/base/clock.h"
#include "runtime/cuda/cuda.h"
#include "runtime/exec/tensors.h"
#include "tests/gpu/gpu.h"

#define DUMP_S 12.0
#define CORE_S 5.0 /* how long a dump may take to be there */
enum {
    ARGUMENTS = 110,
    LENGTH = 500,
    SHARED_BEGIN = 1024, /* where dynamic shared memory begins; the first KiB is the system's */
    WORDS = 16           /* the last words of shared memory, where the mbarriers are (abi.h) */
};

/* The first of several places where the debugger is. */
static const char *debugger(void) {
    static const char usual[] = "/usr/local/cuda/bin/cuda-gdb";
    const char *own = getenv("FCP_DEBUGGER");
    if (own && *own) return own;
    return access(usual, X_OK) ? "cuda-gdb" : usual;
}

typedef struct command {
    char text[ARGUMENTS][420];
    char *argv[ARGUMENTS + 1];
    int count;
} command;

static void add(command *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void add(command *c, const char *format, ...) {
    va_list args;
    if (c->count == ARGUMENTS) return;
    va_start(args, format);
    vsnprintf(c->text[c->count], sizeof c->text[0], format, args);
    va_end(args);
    c->argv[c->count] = c->text[c->count];
    c->count++;
}

/* The commands after which the debugger ends. It goes on after one that fails, as a script would not. */
static void ask(command *c, const fcp_plan *plan) {
    static const char *const all[] = {"set pagination off",
                                      "info cuda kernels",
                                      "info cuda warps",
                                      "info cuda lanes",
                                      "info cuda threads",
                                      "x/6i $pc",
                                      "bt"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        add(c, "-ex");
        add(c, "%s", all[i]);
    }
    if (!plan) return;
    const uint32_t d = plan->problem->head_dim, v = plan->problem->value_dim;
    const unsigned ends[] = {FK_HAS_SM90(d, v) ? FK_FORWARD_SM90_SHARED(d, v) : 0,
                             FK_HAS_BACKWARD_SM90(d, v) ? FK_BACKWARD_SM90_SHARED(d, v) : 0};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (unsigned w = 0; ends[i] && w < WORDS; w++) {
            add(c, "-ex");
            add(c, "output/x *(@shared unsigned long long*)%u", SHARED_BEGIN + ends[i] - 8 * (WORDS - w));
            add(c, "-ex");
            add(c, "echo \\ \\ (shared memory at %u)\\n", SHARED_BEGIN + ends[i] - 8 * (WORDS - w));
        }
}

/* Runs it with its output appended to the file, no longer than its time. */
static void run(const gpu *g, command *c, const char *title) {
    char path[400], tool[LENGTH];
    int status = 0;
    snprintf(path, sizeof path, "%.380s/hung.txt", g->folder);
    snprintf(tool, sizeof tool, "%.490s", debugger());
    FILE *f = fopen(path, "ae");
    if (!f) return;
    fprintf(f, "== %s\n", title);
    fflush(f);
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0); /* so that it can be ended with what it starts */
        if (dup2(fileno(f), STDOUT_FILENO) < 0 || dup2(fileno(f), STDERR_FILENO) < 0) _exit(1);
        int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (none >= 0) dup2(none, STDIN_FILENO);
        execvp(tool, c->argv);
        dprintf(STDOUT_FILENO, "there is no %s, which would say where the kernels are\n", tool);
        _exit(1);
    }
    fcp_patience left = fcp_patience_of(DUMP_S, 0.1);
    bool over = false;
    while (pid > 0 && !waitpid(pid, &status, WNOHANG) && !(over = fcp_patience_ends(&left)))
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    if (over) {
        kill(-pid, SIGKILL);
        waitpid(pid, &status, 0);
        fprintf(f, "the debugger did not end within %.0f s, and was ended\n", DUMP_S);
    }
    fclose(f);
}

/* --- core dumps --------------------------------------------------------------------------------------------------- */

static void core_path(const gpu *g, char path[400]) { snprintf(path, 400, "%.380s/gpu.core", g->folder); }
/* A named pipe that the driver of that process reads. */
static void pipe_path(const char *folder, pid_t pid, char path[400]) {
    snprintf(path, 400, "%.360s/corepipe.%ld", folder, (long)pid);
}

/* A dump without memory is small: CUDA 13 reads that from the flags, as the manual of cuda-gdb names them ("GPU core dump
 * support"), and earlier ones from CUDA_ENABLE_LIGHTWEIGHT_COREDUMP, which CUDA 13 ignores. A dump would end the process
 * by abort(), and the error would not be told: skip_abort. */
void gpu_may_crash(const gpu *g) {
    char path[400], real[PATH_MAX] = "";
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    core_path(g, path);
    if (!access(path, F_OK) || !realpath(g->folder, real)) return; /* the first dump says most */
    snprintf(path, sizeof path, "%.380s/gpu.core", real);
    setenv("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1", 1);
    setenv("CUDA_ENABLE_LIGHTWEIGHT_COREDUMP", "1", 1);
    setenv("CUDA_ENABLE_CPU_COREDUMP_ON_EXCEPTION", "0", 1);
    setenv("CUDA_COREDUMP_GENERATION_FLAGS",
           "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_abort", 1);
    setenv("CUDA_COREDUMP_FILE", path, 1);
    pipe_path(real, getpid(), path);
    setenv("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1", 1);
    setenv("CUDA_COREDUMP_PIPE", path, 1);
}

void gpu_unpipe(const gpu *g, pid_t pid) {
    char path[400];
    pipe_path(g->folder, pid, path);
    unlink(path);
}

void gpu_crashed(const gpu *g, const char *name) {
    char path[400], title[LENGTH];
    core_path(g, path);
    if (access(path, F_OK) || journal_find(g->journal, "dumped", "gpu.core", NULL, 0)) return;
    journal_add(g->journal, "dumped", "gpu.core", name);
    command *c = calloc(1, sizeof *c);
    if (!c) return;
    add(c, "cuda-gdb");
    add(c, "-nx");
    add(c, "-batch");
    add(c, "-ex");
    add(c, "target cudacore %s", path);
    ask(c, NULL);
    snprintf(title, sizeof title, "%.200s: gpu.core", name);
    run(g, c, title);
    free(c);
}

/* Asks the driver of a process for a dump of what its kernels do, and waits until it is there. That needs no right to
 * trace the process. */
static void ask_for_core(const gpu *g, pid_t pid, const char *name) {
    char path[400];
    struct stat now, before = {.st_size = -1};
    pipe_path(g->folder, pid, path);
    const int to = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (to < 0) return; /* it was not asked to listen: there is a dump already */
    const bool asked = write(to, "1", 1) == 1;
    close(to);
    core_path(g, path);
    fcp_patience left = fcp_patience_of(CORE_S, 0.1);
    for (bool more = asked; more && !fcp_patience_ends(&left);) {
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
        if (stat(path, &now)) continue;
        more = now.st_size != before.st_size; /* it still grows */
        before = now;
    }
    gpu_crashed(g, name);
}

/* --- what does not end -------------------------------------------------------------------------------------------- */

void gpu_dump(const gpu *g, pid_t pid, const char *name, const fcp_plan *plan) {
    command *c = calloc(1, sizeof *c);
    char title[LENGTH];
    if (!c) return;
    ask_for_core(g, pid, name);
    add(c, "cuda-gdb");
    add(c, "-nx");
    add(c, "-batch");
    add(c, "-p");
    add(c, "%ld", (long)pid);
    ask(c, plan);
    snprintf(title, sizeof title, "%.200s does not end: process %ld", name, (long)pid);
    run(g, c, title);
    free(c);
}

bool gpu_hung(const gpu *g, const fcp_session *session, const char *name) {
    const fcp_cuda_session *s = (const fcp_cuda_session *)(const void *)session;
    if (!s || !s->hung) return false;
    gpu_dump(g, getpid(), name, s->plan);
    return true;
}
