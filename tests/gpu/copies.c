/* copies.c: copies what was found to another folder after each step, because the machine may go away at any time.
 *
 * A copy is written under a temporary name and renamed, so that a file there is whole. There are at most eight of them,
 * which is how many some places bring back: those that exist, in this order.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/gpu/gpu.h"

static const char *const files[] = {"GPU.md",   "state",     "peers",           "rows.csv", "smoke.txt",
                                    "hung.txt", "tools.txt", "profile.ncu-rep", "gpu.core"};
enum { MOST = 8 };

static bool copy(const char *from, const char *to) {
    char part[1 << 14], beside[520];
    size_t got;
    snprintf(beside, sizeof beside, "%.500s.%ld", to, (long)getpid());
    FILE *in = fopen(from, "rbe"), *out = in ? fopen(beside, "wbe") : NULL;
    bool good = in && out;
    while (good && (got = fread(part, 1, sizeof part, in)) > 0) good = fwrite(part, 1, got, out) == got;
    good = good && !ferror(in);
    if (out) good = fclose(out) == 0 && good && rename(beside, to) == 0;
    if (!good) unlink(beside);
    if (in) fclose(in);
    return good;
}

void gpu_copy_out(const gpu *g) {
    char from[500], to[500];
    if (!g->out) return;
    if (mkdir(g->out, 0755) && errno != EEXIST) {
        fprintf(stderr, "gpu-check: cannot make '%s': %s\n", g->out, strerror(errno));
        return;
    }
    for (size_t i = 0, count = 0; count < MOST && i < sizeof files / sizeof *files; i++) {
        snprintf(from, sizeof from, "%.470s/%s", g->folder, files[i]);
        snprintf(to, sizeof to, "%.470s/%s", g->out, files[i]);
        if (access(from, R_OK)) continue;
        count++;
        if (!copy(from, to)) fprintf(stderr, "gpu-check: cannot write '%s'\n", to);
    }
}
