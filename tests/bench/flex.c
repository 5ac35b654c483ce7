/* flex.c: measures FlexAttention's create_block_mask by the script bench_flex.py. One process of the script serves all
 * masks, because PyTorch takes seconds to start. For each mask it gets a line and answers with a line.
 *
 * Requires: the top of the tree is the current folder, as in `make bench`.
 * Gives:    flex.h. */
#include "tests/bench/flex.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRIPT "tests/bench/bench_flex.py"
#define MOST_MEBIBYTES 8192.0 /* of memory, or half of what is free if that is less */

extern char **environ;

struct flex {
    FILE *to, *from;
    pid_t child;
    double seconds, mebibytes;
};

static pid_t start(const char *python, int to[2], int from[2]) {
    char script[] = SCRIPT;
    char *name = strdup(python);
    pid_t child = -1;
    posix_spawn_file_actions_t actions;
    if (!name) return -1;
    if (posix_spawn_file_actions_init(&actions) == 0) {
        char *argv[] = {name, script, NULL};
        bool good = posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO) == 0 &&
                    posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO) == 0 &&
                    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0) == 0 &&
                    posix_spawn_file_actions_addclose(&actions, to[1]) == 0 &&
                    posix_spawn_file_actions_addclose(&actions, from[0]) == 0;
        if (!good || posix_spawnp(&child, python, &actions, NULL, argv, environ) != 0) child = -1;
        posix_spawn_file_actions_destroy(&actions);
    }
    free(name);
    return child;
}

void flex_close(flex *f) {
    if (!f) return;
    if (f->to) fclose(f->to);
    if (f->from) fclose(f->from);
    if (f->child > 0) waitpid(f->child, NULL, 0);
    free(f);
}

flex *flex_open(void) {
    const char *python = getenv("FCP_PYTHON"), *seconds = getenv("FCP_FLEX_SECONDS");
    if (!python || !*python) python = "python3";
    int to[2], from[2];
    char line[256] = "none it does not start";
    flex *f = calloc(1, sizeof *f);
    if (!f || pipe(to) != 0) {
        free(f);
        return NULL;
    }
    if (pipe(from) != 0) {
        close(to[0]);
        close(to[1]);
        free(f);
        return NULL;
    }
    signal(SIGPIPE, SIG_IGN);
    f->child = start(python, to, from);
    close(to[0]);
    close(from[1]);
    f->to = fdopen(to[1], "w");
    f->from = fdopen(from[0], "r");
    f->seconds = seconds ? strtod(seconds, NULL) : 0.5;
    f->mebibytes = (double)sysconf(_SC_AVPHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 2 / (1 << 20);
    if (f->mebibytes > MOST_MEBIBYTES) f->mebibytes = MOST_MEBIBYTES;
    bool ready = f->child > 0 && f->to && f->from && fgets(line, sizeof line, f->from) && !strncmp(line, "ready ", 6);
    line[strcspn(line, "\n")] = 0;
    if (ready) {
        printf("PyTorch: %s (%s), one thread; create_block_mask as far as it gets in %g s and %.0f MiB a mask\n",
               line + 6, python, f->seconds, f->mebibytes);
        return f;
    }
    printf("PyTorch: not found (%s: %s); FCP_PYTHON names a python that has it\n", python,
           strncmp(line, "none ", 5) ? "no answer" : line + 5);
    flex_close(f);
    return NULL;
}

bool flex_ask(flex *f, const char *name, uint64_t unit, const char *const *params, int count, flex_result *out) {
    char line[256];
    if (!f) return false;
    fprintf(f->to, "%s %llu %g %g", name, (unsigned long long)(unit ? unit : 1), f->seconds, f->mebibytes);
    for (int i = 0; i < count; i++) fprintf(f->to, " %s", params[i]);
    fputc('\n', f->to);
    if (fflush(f->to) != 0 || !fgets(line, sizeof line, f->from)) return false;
    unsigned long long queries, n;
    long long full, partial;
    if (sscanf(line, "%llu %llu %lf %lf %lld %lld", &queries, &n, &out->seconds, &out->mebibytes, &full, &partial) != 6)
        return false;
    out->queries = queries;
    out->n = n;
    out->full = full;
    out->partial = partial;
    return true;
}
