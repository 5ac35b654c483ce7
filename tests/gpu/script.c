/* script.c: runs a script of Python and reads what it prints, line by line: "kind name rest". Other lines are left out.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "tests/gpu/gpu.h"

enum { LINE = 600 };

extern char **environ;

/* Starts the script; -1: it does not start. What it says as errors is appended to `errors`. */
static pid_t start(const gpu *g, const char *script, const gpu_names *names, const char *errors, int to) {
    const char *python = g->python ? g->python : "python3";
    const char *argv[GPU_NAMES + 3] = {python, script};
    posix_spawn_file_actions_t actions;
    pid_t child = -1;
    for (size_t i = 0; i < names->count; i++) argv[2 + i] = names->names[i];
    if (posix_spawn_file_actions_init(&actions)) return -1;
    bool good =
        posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO) == 0 &&
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, errors, O_WRONLY | O_CREAT | O_APPEND, 0644) == 0;
    if (!good || posix_spawnp(&child, python, &actions, NULL, (char *const *)(uintptr_t)argv, environ)) child = -1;
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

static void take(char *line, gpu_script_line *each, void *context) {
    char *name = strchr(line, ' '), *rest = name ? strchr(name + 1, ' ') : NULL;
    if (!name || !rest) return;
    *name++ = 0;
    *rest++ = 0;
    each(context, line, name, rest);
    fflush(stdout);
}

/* Returns whether lines came until the script closed its output. */
static bool listen_to(const gpu *g, int from, double most, gpu_script_line *each, void *context) {
    char line[LINE];
    size_t size = 0;
    double heard = fcp_clock();
    while (gpu_left(g) > 0 && fcp_clock() - heard < most) {
        struct pollfd waiting = {.fd = from, .events = POLLIN};
        int ready = poll(&waiting, 1, 500);
        if (ready < 0 && errno != EINTR) return false;
        if (ready <= 0) continue;
        ssize_t got = read(from, line + size, sizeof line - 1 - size);
        if (got <= 0) return true;
        heard = fcp_clock();
        size += (size_t)got;
        line[size] = 0;
        for (char *end; (end = strchr(line, '\n')) != NULL;) {
            *end = 0;
            take(line, each, context);
            size -= (size_t)(end + 1 - line);
            memmove(line, end + 1, size + 1);
        }
        if (size == sizeof line - 1) size = 0; /* a line too long to be one of ours */
    }
    return false;
}

gpu_script_end gpu_script(const gpu *g, const char *script, const gpu_names *names, const char *errors, double most,
                          gpu_script_line *each, void *context) {
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC)) return GPU_SCRIPT_NONE;
    pid_t child = start(g, script, names, errors, pipes[1]);
    close(pipes[1]);
    bool ended = child > 0 && listen_to(g, pipes[0], most, each, context);
    close(pipes[0]);
    if (child < 0) return GPU_SCRIPT_NONE;
    if (!ended) kill(child, SIGKILL);
    int status = 0;
    for (fcp_patience left = fcp_patience_of(5, 0.1); waitpid(child, &status, WNOHANG) == 0;) {
        if (fcp_patience_ends(&left)) kill(child, SIGKILL); /* it closed its output and does not end */
        usleep(2000);
    }
    return !ended ? GPU_SCRIPT_SILENT : status ? GPU_SCRIPT_FAILED : GPU_SCRIPT_ENDED;
}

void gpu_names_add(gpu_names *names, const char *name) {
    if (names->count == GPU_NAMES) return;
    char *own = strdup(name);
    if (own) names->names[names->count++] = own;
}

void gpu_names_free(gpu_names *names) {
    for (size_t i = 0; i < names->count; i++) free(names->names[i]);
    names->count = 0;
}
