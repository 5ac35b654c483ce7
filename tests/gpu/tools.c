/* tools.c: runs a memory checker and a profiler on this program, where the machine has them.
 *
 * The checker (compute-sanitizer) sees reads and writes out of bounds, races in shared memory and misuse of barriers,
 * for two tiles of smoke.c. The profiler (ncu) says for each attention kernel which unit bounds it and what warps
 * wait for. Clocks are left as they are. What they print goes to checker.txt and profile.txt, and the whole profile
 * to profile.ncu-rep. FCP_CHECKER and FCP_PROFILER name other programs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

enum { FOUND = 9, ARGUMENTS = 30, NO_TOOL = 127 };

static const char *tool_of(const char *variable, const char *name) {
    const char *own = getenv(variable);
    return own && *own ? own : name;
}

/* Runs a command with its output appended to FOLDER/NAME. Returns its exit status; -1: a signal ended it; NO_TOOL:
 * there is no such program. It stays in this process's group, with which it is ended when the step's time is up. */
static int run(const gpu *g, const char *file, const char *const *arguments) {
    char path[400], *argv[ARGUMENTS + 1] = {NULL};
    int status = 0;
    snprintf(path, sizeof path, "%.380s/%s", g->folder, file);
    for (int i = 0; i < ARGUMENTS && arguments[i]; i++) argv[i] = (char *)(uintptr_t)arguments[i];
    fflush(stdout);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        gpu_end_with(parent);
        int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (to < 0 || dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0) _exit(1);
        execvp(argv[0], argv);
        _exit(errno == ENOENT ? NO_TOOL : 1);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* This program's file: a tool does not follow /proc/self. */
static bool own_path(char path[400], char why[GPU_WHY]) {
    ssize_t size = readlink("/proc/self/exe", path, 399);
    if (size > 0) path[size] = 0;
    else snprintf(why, GPU_WHY, "this program's file has no name");
    return size > 0;
}

static gpu_result no_tool(const gpu *g, const char *tool, const char *file, char why[GPU_WHY]) {
    char path[400];
    snprintf(path, sizeof path, "%.380s/%s", g->folder, file);
    unlink(path); /* nothing was written to it */
    snprintf(why, GPU_WHY, "there is no %.100s", tool);
    return GPU_SKIPPED;
}

gpu_result step_checker(gpu *g, char why[GPU_WHY]) {
    static const char *const checks[] = {"memcheck", "racecheck", "synccheck"};
    static const char *const tiles[] = {"head_dim-128", "unordered"};
    const char *tool = tool_of("FCP_CHECKER", "compute-sanitizer");
    char self[400], wrong[GPU_WHY] = "";
    if (!own_path(self, why)) return GPU_FAILED;
    for (size_t c = 0; c < sizeof checks / sizeof *checks; c++)
        for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
            char name[60], status[60];
            const char *const command[ARGUMENTS] = {tool, "--tool", checks[c], "--error-exitcode", "9", "--print-limit",
                                                    "20", self, "--folder", g->folder, "--smoke", tiles[t],
                                                    g->small ? "--small" : NULL};
            snprintf(name, sizeof name, "%s of %s", checks[c], tiles[t]);
            journal_add(g->journal, "begin", name, "");
            int ended = run(g, "checker.txt", command);
            if (ended == NO_TOOL) return no_tool(g, tool, "checker.txt", why);
            snprintf(status, sizeof status,
                     ended == FOUND ? "found something: checker.txt" : "ended with %d: checker.txt", ended);
            journal_add(g->journal, "tool", name, ended ? status : "found nothing");
            if (ended && !*wrong) snprintf(wrong, sizeof wrong, "%s %s", name, status);
        }
    snprintf(why, GPU_WHY, "%s", *wrong ? wrong : "memcheck, racecheck and synccheck find nothing in two tiles");
    return *wrong ? GPU_FAILED : GPU_OK;
}

gpu_result step_profile(gpu *g, char why[GPU_WHY]) {
    const char *tool = tool_of("FCP_PROFILER", "ncu");
    char self[400], to[400], report[420];
    if (!own_path(self, why)) return GPU_FAILED;
    snprintf(to, sizeof to, "%.380s/profile", g->folder);
    snprintf(report, sizeof report, "%s.ncu-rep", to);
    const char *const command[ARGUMENTS] = {tool, "--clock-control", "none", "--set", "full", "--force-overwrite",
                                            "--kernel-name", "regex:^fk_(forward|backward)", "-o", to, self, "--folder",
                                            g->folder, "--profiled", g->small ? "--small" : NULL};
    const char *const print[ARGUMENTS] = {tool, "--import", report, "--page", "details", NULL};
    int ended = run(g, "profile.txt", command);
    if (ended == NO_TOOL) return no_tool(g, tool, "profile.txt", why);
    if (!ended) ended = run(g, "profile.txt", print);
    if (ended) snprintf(why, GPU_WHY, "the profiler ended with %d: profile.txt", ended);
    else snprintf(why, GPU_WHY, "of the attention kernels: profile.txt, profile.ncu-rep");
    return ended ? GPU_FAILED : GPU_OK;
}
