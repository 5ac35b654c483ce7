/* ladder.c: climbs the ladder (rungs.h) on a GPU: small kernels, one for each thing that the attention kernels rely on.
 *
 * The rungs run one after the other in one process, since each takes less than opening the device does. If a rung ends
 * that process, or hangs, that is written down, and the others run in a new one. Waits of the kernels give up after two
 * seconds, but setmaxnreg and named barriers have no bound.
 *
 * On a stand-in the kernels do nothing. What they should have written is put in its place, and the step shows what it
 * does with that. For tests, --inject takes spoil, die and hang of :ladder/RUNG.
 */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/gpu/climb.h"

enum { MOST_S = 20 };

/* The first rung of which nothing is known yet; rung_count: there is none. */
static unsigned next_rung(const gpu *g) {
    unsigned i = 0;
    while (i < rung_count && (!rung_applies(&rungs[i], g->machine.major, g->machine.minor) ||
                              journal_find(g->journal, "rung", rungs[i].name, NULL, 0)))
        i++;
    return i;
}

static void note(gpu *g, const rung *r, bool right, const char *why) {
    char rest[GPU_WHY + 200];
    snprintf(rest, sizeof rest, right ? "right: %s" : "WRONG: %s: %s", r->what, why);
    journal_add(g->journal, "rung", r->name, rest);
    if (!right && !g->quiet) printf("  WRONG %s (%s): %s\n", r->name, r->what, why);
}

static gpu_result climb_apart(gpu *g, void *context, gpu_answer *out) {
    climb c;
    bool good = climb_open(&c, g, RUNG_LADDER, out->why);
    (void)context;
    for (unsigned i; good && (i = next_rung(g)) < rung_count;) {
        const rung *r = &rungs[i];
        char key[60], text[RUNG_TEXT] = "";
        snprintf(key, sizeof key, "ladder/%.40s", r->name);
        journal_add(g->journal, "begin", key, "");
        if (gpu_injected(g, "die", key)) raise(SIGKILL);
        if (gpu_injected(g, "hang", key)) raise(SIGSTOP);
        good = climb_run(&c, r, out->why); /* an error of the driver may stay with the context */
        if (!good) break;
        if (gpu_injected(g, "spoil", key)) c.host[RUNG_INPUT + 3] ^= 0x40;
        bool right = rung_judge(r, c.host + RUNG_INPUT, c.given_up, text);
        note(g, r, right, text);
    }
    climb_close(&c);
    return good ? GPU_OK : GPU_FAILED;
}

/* How many rungs were begun. */
static unsigned begun(const gpu *g) {
    unsigned count = 0;
    for (unsigned i = 0; i < rung_count; i++) {
        char key[60];
        snprintf(key, sizeof key, "ladder/%.40s", rungs[i].name);
        count += journal_count(g->journal, "begin", key);
    }
    return count;
}

static void sum_up(const gpu *g, char why[GPU_WHY], unsigned *out_wrong) {
    unsigned right = 0, wrong = 0;
    char first[500] = "";
    for (unsigned i = 0; i < rung_count; i++) {
        char rest[GPU_WHY + 200];
        if (!journal_find(g->journal, "rung", rungs[i].name, rest, sizeof rest)) continue;
        bool good = strncmp(rest, "right", 5) == 0;
        right += good;
        if (!good && !wrong++) snprintf(first, sizeof first, "%s: %.400s", rungs[i].name, rest + 7);
    }
    if (wrong) snprintf(why, GPU_WHY, "%u of %u rungs wrong, the first: %s", wrong, right + wrong, first);
    else snprintf(why, GPU_WHY, "%u rungs right", right);
    *out_wrong = wrong;
}

gpu_result step_ladder(gpu *g, char why[GPU_WHY]) {
    unsigned wrong;
    for (unsigned i; (i = next_rung(g)) < rung_count;) {
        gpu_answer answer;
        const unsigned before = begun(g);
        const gpu_apart apart = {.name = "the ladder",
                                 .open = true,
                                 .most = g->small ? 3000 : MOST_S,
                                 .work = climb_apart};
        gpu_run_apart(g, &apart, &answer);
        journal_reload(g->journal);
        if (answer.given && answer.result == GPU_OK) continue;
        i = next_rung(g);
        if (i == rung_count || begun(g) == before) { /* it did not come so far as a rung */
            snprintf(why, GPU_WHY, "%s", answer.why);
            return GPU_FAILED;
        }
        note(g, &rungs[i], false, answer.why);
    }
    sum_up(g, why, &wrong);
    return wrong ? GPU_FAILED : GPU_OK;
}
