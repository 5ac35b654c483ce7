/* peers.c: runs peers.py and keeps what it measured. The figures go to a journal of their own, whose key is the
 * device and its driver, so that a new build of ours does not measure the peers again.
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

#include "tests/gpu/gpu.h"

#define SCRIPT "tests/gpu/peers.py"
enum { ARGUMENTS = 200, LINE = 600 };

extern char **environ;

/* The script with the names that are known; -1 when it does not start. */
static pid_t start(const gpu *g, int to) {
    char *argv[ARGUMENTS + 3] = {0}, name[120], value[60];
    static char script[] = SCRIPT;
    int count = 0;
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    const char *python = g->python ? g->python : "python3";
    argv[count++] = strdup(python);
    argv[count++] = script;
    for (size_t at = 0;
         count < ARGUMENTS && journal_next(g->peers, &at, "fact", name, sizeof name, value, sizeof value);)
        argv[count++] = strdup(name);
    bool whole = true;
    for (int i = 0; i < count; i++) whole = whole && argv[i];
    if (whole && posix_spawn_file_actions_init(&actions) == 0) {
        bool good = posix_spawn_file_actions_adddup2(&actions, to, STDOUT_FILENO) == 0 &&
                    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0;
        if (!good || posix_spawnp(&child, python, &actions, NULL, argv, environ)) child = -1;
        posix_spawn_file_actions_destroy(&actions);
    }
    for (int i = 0; i < count; i++)
        if (i != 1) free(argv[i]);
    return child;
}

/* A line of the script's: kind, name, the rest. */
static void take(gpu *g, char *line, unsigned *facts, bool *ended, char none[GPU_WHY]) {
    char *name = strchr(line, ' '), *rest = name ? strchr(name + 1, ' ') : NULL;
    if (!name || !rest) return;
    *name++ = 0;
    *rest++ = 0;
    bool fact = strcmp(line, "fact") == 0, missing = strcmp(line, "none") == 0;
    if (!fact && !missing && strcmp(line, "note")) return;
    if (fact) {
        char *end;
        double value = strtod(rest, &end);
        if (end == rest || value <= 0) return;
        ++*facts;
    }
    if (strcmp(name, "end") == 0) *ended = true;
    else journal_add(g->peers, fact ? "fact" : "note", name, rest);
    if (missing && strcmp(name, "torch") == 0) snprintf(none, GPU_WHY, "%.390s", rest);
    if (!g->quiet) printf("  %-44s %s\n", name, rest);
    fflush(stdout);
}

static void listen_to(gpu *g, int from, unsigned *facts, bool *ended, char none[GPU_WHY]) {
    char line[LINE];
    size_t size = 0;
    while (gpu_left(g) > 0) {
        struct pollfd waiting = {.fd = from, .events = POLLIN};
        int ready = poll(&waiting, 1, 500);
        if (ready < 0 && errno != EINTR) return;
        if (ready <= 0) continue;
        ssize_t got = read(from, line + size, sizeof line - 1 - size);
        if (got <= 0) return;
        size += (size_t)got;
        line[size] = 0;
        for (char *end; (end = strchr(line, '\n')) != NULL;) {
            *end = 0;
            take(g, line, facts, ended, none);
            size -= (size_t)(end + 1 - line);
            memmove(line, end + 1, size + 1);
        }
        if (size == sizeof line - 1) size = 0; /* a line too long to be one of ours */
    }
}

gpu_result step_peers(gpu *g, char why[GPU_WHY]) {
    int pipes[2];
    unsigned facts = 0;
    bool ended = false;
    char none[GPU_WHY] = "";
    if (g->machine.standin && !g->python) {
        snprintf(why, GPU_WHY, "a stand-in has no peers");
        return GPU_SKIPPED;
    }
    if (pipe2(pipes, O_CLOEXEC)) {
        snprintf(why, GPU_WHY, "no pipe: %s", strerror(errno));
        return GPU_FAILED;
    }
    pid_t child = start(g, pipes[1]);
    close(pipes[1]);
    if (child > 0) listen_to(g, pipes[0], &facts, &ended, none);
    close(pipes[0]);
    if (child > 0) {
        kill(child, SIGKILL); /* where it has not ended by itself */
        waitpid(child, NULL, 0);
    }
    if (child < 0 || *none) {
        snprintf(why, GPU_WHY, "no peers: %.350s", child < 0 ? "there is no python3; --python names another" : none);
        return GPU_SKIPPED;
    }
    snprintf(why, GPU_WHY, "%u figures%s", facts, ended ? "" : ", the others later");
    return ended ? GPU_OK : GPU_LATER;
}
