/* tools.c: runs a memory checker and a profiler on this program, where the machine has them.
 *
 * The checker (compute-sanitizer) sees reads and writes out of bounds, reads of memory that nobody wrote, misuse of
 * barriers and races in shared memory, for two tiles of smoke.c. The profiler (ncu) says for each attention kernel which
 * unit bounds it and what warps wait for. Clocks are left as they are. What they print goes to tools.txt, and the whole
 * profile to profile.ncu-rep. FCP_CHECKER and FCP_PROFILER name other programs.
 *
 * Kernels are built with the numbers of lines, which are those of the files in codegen/kernels; the profile has these
 * files in it. A race that the checker finds does not fail the step: LSE, delta and records are plain stores before an
 * arrival at an mbarrier that counts the bytes of TMA, too, and the checker may not know that order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

enum { FOUND = 9, ARGUMENTS = 30, NO_TOOL = 127 };

static const char *tool_of(const char *variable, const char *name) {
    const char *own = getenv(variable);
    return own && *own ? own : name;
}

/* Kernels of the program that a tool runs have the numbers of lines, if they come from the library that is carried. */
static void with_lines(const gpu *g) {
    char cache[400];
    if (!getenv("GPU_CARRIED")) return;
    snprintf(cache, sizeof cache, "%.380s/cache-lines", g->folder);
    setenv("GPU_OPTION", GPU_LINES, 1);
    setenv("FCP_CACHE", cache, 1);
}

/* Runs a command with its output appended to FOLDER/tools.txt. Returns its exit status; -1: a signal ended it; NO_TOOL:
 * there is no such program. It stays in this process's group, with which it is ended when the step's time is up. */
static int run(const gpu *g, const char *const *arguments) {
    char path[400], *argv[ARGUMENTS + 1] = {NULL};
    int status = 0;
    snprintf(path, sizeof path, "%.380s/tools.txt", g->folder);
    for (int i = 0; i < ARGUMENTS && arguments[i]; i++) argv[i] = (char *)(uintptr_t)arguments[i];
    fflush(stdout);
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        gpu_end_with(parent);
        with_lines(g);
        int to = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (to < 0 || dup2(to, STDOUT_FILENO) < 0 || dup2(to, STDERR_FILENO) < 0) _exit(1);
        execvp(argv[0], argv);
        _exit(errno == ENOENT ? NO_TOOL : 1);
    }
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    struct stat file;
    if (!stat(path, &file) && !file.st_size) unlink(path); /* where there is no tool, nothing is written */
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* This program's file: a tool does not follow /proc/self. */
static bool own_path(char path[400], char why[GPU_WHY]) {
    ssize_t size = readlink("/proc/self/exe", path, 399);
    if (size > 0) path[size] = 0;
    else snprintf(why, GPU_WHY, "this program's file has no name");
    return size > 0;
}

static gpu_result no_tool(const char *tool, char why[GPU_WHY]) {
    snprintf(why, GPU_WHY, "there is no %.100s", tool);
    return GPU_SKIPPED;
}

gpu_result step_checker(gpu *g, char why[GPU_WHY]) {
    static const struct {
        const char *tool;
        bool advice;
    } checks[] = {{"memcheck", false}, {"initcheck", false}, {"synccheck", false}, {"racecheck", true}};
    static const char *const tiles[] = {"head_dim-128", "unordered"};
    const char *tool = tool_of("FCP_CHECKER", "compute-sanitizer");
    char self[400], wrong[GPU_WHY] = "", advice[GPU_WHY] = "";
    if (!own_path(self, why)) return GPU_FAILED;
    for (size_t c = 0; c < sizeof checks / sizeof *checks; c++)
        for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
            char name[60], status[60];
            const char *const command[ARGUMENTS] = {tool,
                                                    "--tool",
                                                    checks[c].tool,
                                                    "--error-exitcode",
                                                    "9",
                                                    "--print-limit",
                                                    "20",
                                                    self,
                                                    "--folder",
                                                    g->folder,
                                                    "--smoke",
                                                    tiles[t],
                                                    g->small ? "--small" : NULL};
            snprintf(name, sizeof name, "%s of %s", checks[c].tool, tiles[t]);
            journal_add(g->journal, "begin", name, "");
            int ended = run(g, command);
            if (ended == NO_TOOL) return no_tool(tool, why);
            snprintf(status, sizeof status, ended == FOUND ? "found something: tools.txt" : "ended with %d: tools.txt",
                     ended);
            journal_add(g->journal, "tool", name, ended ? status : "found nothing");
            char *to = checks[c].advice && ended == FOUND ? advice : wrong;
            if (ended && !*to) snprintf(to, GPU_WHY, "%s %s", name, status);
        }
    if (*wrong) snprintf(why, GPU_WHY, "%s", wrong);
    else
        snprintf(why, GPU_WHY, "memcheck, initcheck and synccheck find nothing in two tiles; %.300s%s",
                 *advice ? advice : "racecheck neither", *advice ? ", which may be no fault (tools.c)" : "");
    return *wrong ? GPU_FAILED : GPU_OK;
}

gpu_result step_profile(gpu *g, char why[GPU_WHY]) {
    const char *tool = tool_of("FCP_PROFILER", "ncu");
    char self[400], to[400], report[420];
    if (!own_path(self, why)) return GPU_FAILED;
    snprintf(to, sizeof to, "%.380s/profile", g->folder);
    snprintf(report, sizeof report, "%s.ncu-rep", to);
    const char *const command[ARGUMENTS] = {tool,
                                            "--clock-control",
                                            "none",
                                            "--set",
                                            "full",
                                            "--force-overwrite",
                                            "--kernel-name",
                                            "regex:^fk_(forward|backward)",
                                            "--import-source",
                                            "yes",
                                            "--source-folders",
                                            "codegen/kernels",
                                            "-o",
                                            to,
                                            self,
                                            "--folder",
                                            g->folder,
                                            "--profiled",
                                            g->small ? "--small" : NULL};
    const char *const print[ARGUMENTS] = {tool, "--import", report, "--page", "details", NULL};
    int ended = run(g, command);
    if (ended == NO_TOOL) return no_tool(tool, why);
    if (!ended) ended = run(g, print);
    if (ended) snprintf(why, GPU_WHY, "the profiler ended with %d: tools.txt", ended);
    else snprintf(why, GPU_WHY, "of the attention kernels: tools.txt, profile.ncu-rep");
    return ended ? GPU_FAILED : GPU_OK;
}
