/* design.c: measures the rates that decide how the attention kernels are cut (rates.c): clocks of a product of sm_90a, by
 * its columns and where its operands are; bandwidth of additions to global memory, by their width; and how long a turn
 * takes from one CTA to another. Each kernel is first run small, and its result judged.
 *
 * Products are timed by the SM's clock, as the difference between many and few: what surrounds them falls out. All else
 * is timed by events.
 */
#include <stdio.h>
#include <string.h>

#include "tests/gpu/climb.h"

enum { TIMES = 500, TURNS = 2000, TILE = 32768, TILES = 1024, TILES_EACH = 200 };

static void put(climb *c, const char *name, double value, const char *unit, const char *remark) {
    const gpu_row row = gpu_row_of(name, value, unit, remark);
    gpu_row_put(c->g, &row);
}

static bool times_products(climb *c, const rung *r, const char *name, char why[GPU_WHY]) {
    rung more = *r;
    uint32_t clocks[2] = {0};
    char text[RUNG_TEXT], remark[160];
    const unsigned n = r->columns;
    more.a = TIMES;
    if (!climb_run(c, &more, why)) return false;
    if (!rung_judge(&more, c->host + RUNG_INPUT, c->given_up, text)) {
        snprintf(why, GPU_WHY, "%s: %s", r->what, text);
        return false;
    }
    if (!c->g->machine.standin) memcpy(clocks, c->host + RUNG_INPUT + RATE_WORD * 4, sizeof clocks);
    double each = ((double)clocks[1] - clocks[0]) / (2.0 * TIMES * (RATE_MANY - RATE_FEW));
    snprintf(remark, sizeof remark,
             "of one SM, by two warpgroups; modelled: tensor cores %u, bandwidth of shared memory %u", n / 2,
             (r->a_registers ? 0 : 16) + n / 4);
    put(c, name, each, "clocks", remark);
    return true;
}

typedef struct timed {
    climb *c;
    rung r;
} timed;
static bool launch(gpu *g, void *context, char why[GPU_WHY]) {
    timed *t = context;
    /* turns count from 0 */
    return gpu_ok(g, g->cuda->call.fill(t->c->flag, 0, 1, g->stream), why, "the lock") &&
           climb_launch(t->c, &t->r, why);
}

static bool times_additions(climb *c, const rung *r, const char *name, char why[GPU_WHY]) {
    timed t = {c, *r};
    const cu_ptr small = c->out;
    const unsigned tiles = c->g->machine.standin ? 2 : TILES;
    double ms = 0, spread = 0;
    char remark[160];
    t.r.ctas = (uint32_t)c->g->machine.multiprocessors;
    t.r.b = TILES_EACH;
    t.r.c = tiles;
    if (!gpu_ok(c->g, c->g->cuda->call.allocate(&c->out, (size_t)tiles * TILE), why, "no memory")) {
        c->out = small;
        return false;
    }
    bool good = gpu_ok(c->g, c->g->cuda->call.fill(c->out, 0, (size_t)tiles * TILE / 4, c->g->stream), why, "a fill") &&
                gpu_time(c->g, launch, &t, &ms, &spread, why);
    c->g->cuda->call.release(c->out);
    c->out = small;
    if (!good) return false;
    double bytes = (double)t.r.ctas * TILES_EACH * TILE;
    snprintf(remark, sizeof remark, "a CTA on each SM; %.2f us for a tile of 32 KB; spread %.1f %%",
             ms * 1e3 / TILES_EACH, 100 * spread);
    put(c, name, ms > 0 ? bytes / ms * 1e-6 : 0, "GB/s", remark);
    return true;
}

static bool times_turns(climb *c, const rung *r, const char *name, char why[GPU_WHY]) {
    timed t = {c, *r};
    double ms = 0, spread = 0;
    char remark[160];
    t.r.a = TURNS;
    if (!gpu_time(c->g, launch, &t, &ms, &spread, why)) return false;
    snprintf(remark, sizeof remark, "fk_release to fk_acquire of another CTA; the mean of %d; spread %.1f %%",
             2 * TURNS, 100 * spread);
    put(c, name, ms * 1e6 / (2 * TURNS), "ns", remark);
    return true;
}

static bool measure(climb *c, const rung *r, char why[GPU_WHY]) {
    char name[120], text[RUNG_TEXT];
    snprintf(name, sizeof name, "design: %.100s", r->what);
    if (gpu_row_done(c->g, name)) return true;
    if (!climb_run(c, r, why)) return false;
    if (!rung_judge(r, c->host + RUNG_INPUT, c->given_up, text)) {
        snprintf(why, GPU_WHY, "%s: %s", r->what, text);
        return false;
    }
    if (r->clocks) return times_products(c, r, name, why);
    return (r->number == RUNG_WORD ? times_turns : times_additions)(c, r, name, why);
}

gpu_result step_design(gpu *g, char why[GPU_WHY]) {
    climb c;
    unsigned count = 0;
    char wrong[GPU_WHY] = "", text[GPU_WHY] = "";
    bool good = climb_open(&c, g, RUNG_RATES, why);
    for (unsigned i = 0; good && i < rate_count; i++) {
        if (!rung_applies(&rates[i], g->machine.major, g->machine.minor)) continue;
        bool done = measure(&c, &rates[i], text);
        count += done;
        if (!done && !*wrong) snprintf(wrong, sizeof wrong, "%s", text);
    }
    climb_close(&c);
    if (good) snprintf(why, GPU_WHY, "%u rates%s%.500s", count, *wrong ? "; the first that failed: " : "", wrong);
    return good && !*wrong ? GPU_OK : GPU_FAILED;
}
