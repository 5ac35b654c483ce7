/* test_ptx_ladder.c: climbs the ladder of gpu-check (tests/gpu/rungs.h) on the machine that executes PTX. Then constants
 * of codegen/kernels are made wrong, one by one, in the source of its kernels: exactly the rungs that rely on a constant
 * must be wrong, and some of them must say which constant it is.
 */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/gpu/rungs.h"
#include "tests/machines/ptx/async.h"
#include "tests/machines/ptx/judge.h"

/* A wait that gives up, as on a GPU. Without it, the machine itself finds that nobody can go on. The machine's clock goes
 * on by one for each instruction; the rungs take some thousand. */
#define BOUND "#define FK_BOUND 400000\n"

/* --- flaws -------------------------------------------------------------------------------------------------------- */

/* Constants of codegen/kernels, made wrong. */
#define TMA "tma tma-part tma-beyond mbarrier flag-tma"
#define FIRST_BOX "k-64-step-1 k-64-step-3 k-64-row-64 k-stored"
#define NEXT_BOX "k-64-step-4"
#define ALL_BOXES "k-32 k-128 k-all-64 k-all-128 k-copied"
#define WIDE "mn-128 mn-128-of-128 mn-192 mn-256"
#define TURNED "turned turned-box-1 turned-stored"
#define PRODUCTS "k-64 " FIRST_BOX " " NEXT_BOX " " ALL_BOXES " mn-64 " WIDE " " TURNED
/* Flaws of one climb are made together: they have no rung in common. */
enum { CLIMBS = 6, WITH_BOUND = CLIMBS, NO_FLAW };
typedef struct flaw {
    unsigned climb;
    const char *what, *find, *replace;
    const char *wrong;        /* the rungs that must be wrong, and no others */
    const char *which, *says; /* what one of them must say; NULL: nothing certain */
} flaw;
static const flaw flaws[] = {
    {0, "LBO", "step * 16) * FK_TILE_ROW, rows * FK_TILE_ROW)", "step * 16) * FK_TILE_ROW, rows * 64)", WIDE, "mn-192",
     "with LBO 4096, not 8192"},
    {0, "A is not turned", "o2, \"1, 1\")", "o2, \"0, 1\")", TURNED, "turned", "with the other bit for turning A"},
    {0, "the next box", "step / 4 * rows * FK_TILE_ROW", "step / 4 * rows * 64", NEXT_BOX " " ALL_BOXES, "k-64-step-4",
     "with the next box 64 bytes a row further, not 128"},
    {0, "rows that are not there", "row < there ? 16 : 0", "16", "tile-copied", "tile-copied",
     "row 37, column 0 is that of row 0, column 0, not 0"},
    {0, "rows that are not there, mma.sync", "row < count ? 16 : 0", "16", "cp.async", NULL, NULL},
    {0, "which rows ldmatrix loads", "row + lane / 16 * 8 + lane % 8, lane / 8 % 2", "row + lane % 16, lane / 16",
     "ldmatrix", NULL, NULL},
    {0, "ldmatrix does not transpose", "x4.trans", "x4", "ldmatrix.trans", NULL, NULL},
    {0, "two numbers at once", "{%1, %2};\" ::\"l\"(to), \"f\"(a)", "{%1, %1};\" ::\"l\"(to), \"f\"(a)", "red.v2", NULL,
     NULL},
    {0, "a maximum of negative numbers", "if (bits >> 31)", "if (0)", "red.u64", NULL, NULL},
    {0, "coordinates", "\"r\"(head), \"r\"(row)", "\"r\"(row), \"r\"(head)", "tma tma-part mbarrier flag-tma", NULL,
     NULL},
    {0, "a turn is not waited for", "while (is != x &&", "while (0 &&", "turns turns-named turns-bulk", NULL, NULL},
    {0, "registers are not given up", "setmaxnreg.dec.sync.aligned.u32 \" #n \";", "\" \"", "roles-40 roles-56", NULL,
     NULL},
    {1, "SBO", "1024 >> 4) << 32", "512 >> 4) << 32", PRODUCTS, "k-64", "with SBO 512, not 1024"},
    {5, "no fence for TMA", "fence.proxy.async.global;", "", "flag-tma turns-bulk", NULL, NULL},
    {1, "no arrival at a named barrier", "bar.arrive %0, %1;", "", "roles-40 roles-56 turns-named turns-bulk", NULL,
     NULL},
    {2, "the swizzle's mode", "(fk_u32)1 << 30", "(fk_u32)2 << 30", PRODUCTS, NULL, NULL},
    {2, "bytes expected", "\"r\"(barrier), \"r\"(bytes)", "\"r\"(barrier), \"r\"(bytes + 16)", TMA, NULL, NULL},
    {2, "a turn is not released", "st.release.gpu.global", "st.global", "turns turns-named turns-bulk", NULL, NULL},
    {3, "the step within a box", "step % 4 * 32", "step % 4 * 16", FIRST_BOX " " ALL_BOXES, "k-64-step-3",
     "with steps of 16 bytes, not 32"},
    {3, "B is not turned", "\", p, 1, 1, 1; }\"", "\", p, 1, 1, 0; }\"", "mn-64 " WIDE, "mn-128-of-128",
     "with the other bit for turning B"},
    {3, "bulk additions are not waited for", "cp.async.bulk.wait_group 0;", "", "turns-bulk", NULL, NULL},
    {3, "the second box of B", "(box * rows + step * 16)", "(step * 16)", "turned-box-1 turned-stored", NULL, NULL},
    {4, "the step along columns", "(box * rows + step * 16)", "(box * rows + step * 8)", "mn-64 " WIDE " " TURNED,
     "mn-64", "with steps of 1024 bytes, not 2048"},
    {4, "rows of A", "fk_descriptor(tile + row * FK_TILE_ROW", "fk_descriptor(tile + row * 64", "k-64-row-64 k-all-128",
     NULL, NULL},
    {4, "the swizzle of copied rows", "(chunk % 8 ^ row % 8)", "(chunk % 8)", "tile-copied k-copied", "k-copied",
     "without the swizzle"},
    {5, "the sum is not added to", "s > 0)", "0)", "k-all-64 k-all-128", NULL, NULL},
    /* with waits that give up, as on a GPU */
    {WITH_BOUND, "another turn is waited for", "while (is != x &&", "while (is != x + 1 &&",
     "turns turns-named turns-bulk", "turns", " waits gave up, the first for number or parity "},
    {WITH_BOUND, "another flag is waited for", "while (is != 1 &&", "while (is != 2 &&", "flag flag-tma", "flag",
     "1 waits gave up, the first for number or parity 1 in CTA 0, thread 0"},
};

static bool is_among(const char *name, const char *list) {
    const size_t size = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += size)
        if ((at == list || at[-1] == ' ') && (!at[size] || at[size] == ' ')) return true;
    return false;
}

/* The source, with `find` replaced by `replace` wherever it stands; NULL: it does not stand there. */
static char *changed(char *source, const char *find, const char *replace) {
    char *at = strstr(source, find);
    if (!at) return NULL;
    for (; at; at = strstr(at + strlen(replace), find)) {
        char *made = NULL;
        const size_t before = (size_t)(at - source);
        cr_assert_neq(asprintf(&made, "%.*s%s%s", (int)before, source, replace, at + strlen(find)), -1);
        free(source);
        source = made;
        at = source + before;
    }
    return source;
}

static void make_flaws(char **source, unsigned number) {
    for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++) {
        if (flaws[i].climb != number) continue;
        char *made = changed(*source, flaws[i].find, flaws[i].replace);
        cr_assert(made, "the source has no '%s'", flaws[i].find);
        *source = made;
    }
}

/* --- climbing ----------------------------------------------------------------------------------------------------- */

typedef struct climb {
    ptx_module *module;
    char *text;                            /* its PTX */
    uint32_t *input, *sent, *out, flag[2]; /* sent: what comes before the flag */
    bool waits;
} climb;

static bool arrive(void *context) {
    climb *c = context;
    if (!c->waits) return false;
    memcpy(c->input, c->sent, RUNG_INPUT);
    c->flag[0] = 1;
    c->waits = false;
    return true;
}

/* Runs a rung. True: it is right; else `text` says what is wrong. */
static bool stands(climb *c, const rung *r, char text[PTX_ERROR]) {
    rung_launch p = {.in = (uintptr_t)c->input,
                     .other = (uintptr_t)c->input + RUNG_IN,
                     .out = (uintptr_t)c->out,
                     .flag = (uintptr_t)c->flag,
                     .a = r->a,
                     .b = r->b,
                     .c = r->c,
                     .d = r->d};
    const ptx_map map = {
        .base = p.in,
        .dims = {RUNG_COLUMNS, RUNG_HEADS, RUNG_ROWS, RUNG_SLOTS},
        .strides = {RUNG_COLUMNS * 2, RUNG_HEADS * RUNG_COLUMNS * 2, RUNG_ROWS * RUNG_HEADS * RUNG_COLUMNS * 2},
        .box = {FK_BOX, 1, FK_BOX, 1},
        .element = 2,
        .swizzle = 128};
    const ptx_range ranges[] = {{"the input", p.in, p.in + RUNG_INPUT, false},
                                {"the output", p.out, p.out + RUNG_OUT, true},
                                {"the flag", p.flag, p.flag + sizeof c->flag, true}};
    static const uint32_t none[RUNG_GAVE_UP];
    const ptx_range *bound = ptx_module_global(c->module, "fk_gave_up");
    const uint32_t *gave_up = bound ? (const uint32_t *)(uintptr_t)bound->begin : none;
    const ptx_launch run = {.module = c->module,
                            .kernel = ptx_module_kernel(c->module, r->kernel),
                            .parameters = &p,
                            .parameter_bytes = sizeof p,
                            .blocks = r->ctas,
                            .threads = r->threads,
                            .shared = r->shared,
                            .resident = r->ctas < 8 ? r->ctas : 8,
                            .ranges = ranges,
                            .range_count = 3,
                            .seed = 5,
                            .outside = arrive,
                            .outside_context = c};
    cr_assert(run.kernel, "%s", r->kernel);
    cr_assert(!bound || bound->end - bound->begin >= RUNG_GAVE_UP * 4);
    cr_assert(!r->map || ptx_map_encode(&p.map, &map));
    memset(c->flag, 0, sizeof c->flag);
    rung_prepare(r, c->input, c->out);
    c->waits = r->flag;
    if (r->flag) {
        memcpy(c->sent, c->input, RUNG_INPUT);
        memset(c->input, 0xee, RUNG_INPUT);
    }
    bool right = ptx_run(&run, text) && rung_judge(r, c->out, gave_up, text);
    if (gave_up[0]) { /* the module's variables must be as at first */
        char why[PTX_ERROR];
        ptx_module_free(c->module);
        c->module = ptx_module_new(c->text, why);
        cr_assert(c->module, "%s", why);
    }
    return right;
}

static void open_climb(climb *c, rung_set set, bool sm90, const char *target, const char *defines, unsigned flaws_of) {
    char why[PTX_ERROR], *source = rung_source(set, sm90, defines), *text = NULL;
    fcp_error err;
    cr_assert(source);
    make_flaws(&source, flaws_of);
    cr_assert_eq(ptx_compile(source, target, &text, &err), FCP_OK, "%s", err.message);
    free(source);
    *c = (climb){.module = ptx_module_new(text, why),
                 .text = text,
                 .input = aligned_alloc(1024, RUNG_INPUT),
                 .sent = aligned_alloc(1024, RUNG_INPUT),
                 .out = aligned_alloc(1024, RUNG_OUT)};
    cr_assert(c->module && c->input && c->sent && c->out, "%s", why);
}
static void close_climb(climb *c) {
    ptx_module_free(c->module);
    free(c->text);
    free(c->input);
    free(c->sent);
    free(c->out);
}

static void all_stand(rung_set set, bool sm90, const char *target, int major, unsigned least) {
    const rung *all = set == RUNG_LADDER ? rungs : rates;
    const unsigned count = set == RUNG_LADDER ? rung_count : rate_count;
    climb c;
    unsigned climbed = 0;
    if (!compiler()) return;
    open_climb(&c, set, sm90, target, "", NO_FLAW);
    for (unsigned i = 0; i < count; i++) {
        char text[PTX_ERROR] = "";
        if (!rung_applies(&all[i], major, 0)) continue;
        climbed++;
        cr_expect(stands(&c, &all[i], text), "%s: %s", all[i].name, text);
        if (all[i].clocks) /* more products take longer */
            cr_expect(c.out[RATE_WORD] && c.out[RATE_WORD + 1] > c.out[RATE_WORD], "%s", all[i].name);
    }
    cr_expect(climbed >= least, "there are %u rungs", climbed);
    close_climb(&c);
}
Test(ptx_ladder, sm_90a) { all_stand(RUNG_LADDER, true, "compute_90a", 9, 39); }
Test(ptx_ladder, sm_80) { all_stand(RUNG_LADDER, false, "compute_80", 8, 9); }
Test(ptx_ladder, sm_100) { all_stand(RUNG_LADDER, false, "compute_100", 10, 10); }
Test(ptx_ladder, rates_of_sm_90a) { all_stand(RUNG_RATES, true, "compute_90a", 9, 14); }
Test(ptx_ladder, rates_of_sm_80) { all_stand(RUNG_RATES, false, "compute_80", 8, 3); }

/* Climbs with the flaws of climb `number`. */
static void with_flaws(unsigned number) {
    const char *defines = number == WITH_BOUND ? BOUND : "";
    climb c;
    if (!compiler()) return;
    open_climb(&c, RUNG_LADDER, true, "compute_90a", defines, number);
    for (unsigned n = 0; n < rung_count; n++) {
        const flaw *of = NULL;
        char text[PTX_ERROR] = "";
        const bool right = stands(&c, &rungs[n], text);
        for (size_t i = 0; i < sizeof flaws / sizeof *flaws; i++)
            if (flaws[i].climb == number && is_among(rungs[n].name, flaws[i].wrong)) {
                cr_expect(!of, "two flaws of climb %u have rung %s", number, rungs[n].name);
                of = &flaws[i];
            }
        cr_expect(right == !of, "climb %u, %s: %s is %s: %s", number, of ? of->what : "no flaw of it", rungs[n].name,
                  right ? "right" : "wrong", text);
        if (of && of->which && !strcmp(of->which, rungs[n].name))
            cr_expect(strstr(text, of->says), "%s: %s: %s", of->what, of->which, text);
    }
    close_climb(&c);
}
Test(ptx_ladder, flaws) {
    for (unsigned i = 0; i < CLIMBS; i++) with_flaws(i);
}
Test(ptx_ladder, waits_give_up) { with_flaws(WITH_BOUND); }
