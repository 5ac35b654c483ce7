/* peers.c: runs peers.py and keeps what it measured. The figures go to a journal of their own, whose key is the
 * device and its driver, so that a new build of ours does not measure the peers again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/gpu.h"

#define SILENT_S 170.0 /* FlexAttention compiles in silence */

typedef struct found {
    gpu *g;
    unsigned facts;
    bool ended;
    char none[GPU_WHY];
} found;

static void take(void *context, const char *kind, const char *name, const char *rest) {
    found *f = context;
    bool fact = strcmp(kind, "fact") == 0, missing = strcmp(kind, "none") == 0;
    if (!fact && !missing && strcmp(kind, "note")) return;
    if (fact) {
        char *end;
        double value = strtod(rest, &end);
        if (end == rest || value <= 0) return;
        f->facts++;
    }
    if (strcmp(name, "end") == 0) f->ended = true;
    else journal_add(f->g->peers, fact ? "fact" : "note", name, rest);
    if (missing && strcmp(name, "torch") == 0) snprintf(f->none, GPU_WHY, "%.390s", rest);
    if (!f->g->quiet) printf("  %-44s %s\n", name, rest);
}

gpu_result step_peers(gpu *g, char why[GPU_WHY]) {
    found f = {.g = g};
    gpu_names known = {.count = 0};
    char name[120], value[60];
    if (g->machine.standin && !g->python) {
        snprintf(why, GPU_WHY, "a stand-in has no peers");
        return GPU_SKIPPED;
    }
    for (size_t at = 0; journal_next(g->peers, &at, "fact", name, sizeof name, value, sizeof value);)
        gpu_names_add(&known, name);
    gpu_script_end end = gpu_script(g, "tests/gpu/peers.py", &known, "/dev/null", SILENT_S, take, &f);
    gpu_names_free(&known);
    if (end == GPU_SCRIPT_NONE || *f.none) {
        snprintf(why, GPU_WHY, "no peers: %.350s", *f.none ? f.none : "there is no python3; --python names another");
        return GPU_SKIPPED;
    }
    snprintf(why, GPU_WHY, "%u figures%s", f.facts, f.ended ? "" : ", the others later");
    return f.ended ? GPU_OK : GPU_LATER;
}
