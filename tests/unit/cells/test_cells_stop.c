/* test_cells_stop.c: the mask analysis ends soon after it is asked to, at whichever question that happens, and what it
 * remembers from before stays right.
 *
 * fcp_stop_asked stands here in place of the library's: it counts how often it is asked, and says yes from one time
 * on. */
#include "compiler/cells/blind.h"
#include "compiler/sema/program.h"
#include "runtime/base/stop.h"
#include "tests/support/plan_of.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Between two questions, of this thread's own time. The aim is 0.2; ten times that, since machines differ. */
#define MOST_SECONDS 2.0

static uint64_t asked, yes_from;
static double last, longest;

static double own_time(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void note_gap(void) {
    double now = own_time();
    if (now - last > longest) longest = now - last;
    last = now;
}

bool fcp_stop_asked(const volatile int *stop) {
    if (!stop) return false;
    note_gap();
    return ++asked >= yes_from;
}

static void ask_from(uint64_t from) {
    asked = 0;
    yes_from = from;
    longest = 0;
    last = own_time();
}

typedef struct stop_case {
    const char *mask;
    int64_t small, large; /* tokens; of `small` an answer is made in full */
    bool constant;        /* the array's elements are in long runs */
} stop_case;

static const stop_case CASES[] = {
    {"causal", 3000, 1 << 24, false},
    {"window(w = 700)", 3000, (int64_t)1 << 38, false},
    {"natten2d(W = 60, kw = 7, kh = 7)", 3600, 60 << 14, false},
    {"k % 3 == 0 or q % 7 == 0", 2000, 1 << 22, false},
    {"(q * k) % 1009 < (q + k) % 13", 700, 1 << 17, false},
    {"(q * q) % 1009 < k % 13 and q != k", 700, 1 << 17, false},
    {"(z[q] * z[k]) % 7 < 3", 700, 1 << 20, false},
    {"abs(z[q] - z[k]) < 300 and k <= q", 1500, 1 << 20, false},
    {"z[q] < 500 and z[k] < 400", 1500, 1 << 20, false},
    {"k <= q and q < z[k] * 1000", 1500, 1 << 20, true},
    {"z[q] == z[k] and k < q", 1500, 1 << 20, true},
};
enum { CASE_COUNT = sizeof CASES / sizeof *CASES, PIECES = 64 };

typedef struct fixture {
    fcpc_program *program;
    int16_t *z;
    mc_array array;
    mc_env env;
    uint64_t cuts[PIECES + 1];
} fixture;

static void open_case(fixture *f, const stop_case *x, int64_t n) {
    char text[256];
    snprintf(text, sizeof text, "batch { field z = given(range = 0..1000) }\nmask m = %s\nplan { mask = m }\n",
             x->mask);
    f->program = program_named("a.fcp", text);
    const int64_t count = n <= 1 << 24 ? n : 1;
    f->z = malloc((size_t)count * sizeof *f->z);
    uint64_t state = 7;
    for (int64_t i = 0; i < count; i++) {
        if (!x->constant || i % 90 == 0) state = state * 6364136223846793005u + 1442695040888963407u;
        f->z[i] = (int16_t)((state >> 33) % 1000);
    }
    f->array = (mc_array){f->z, 0, count, 0, MC_I16};
    f->env = (mc_env){.n = n, .queries = n, .arrays = &f->array};
    for (int i = 0; i <= PIECES; i++) f->cuts[i] = (uint64_t)(n / PIECES * i);
    f->cuts[PIECES] = (uint64_t)n;
}

static void close_case(fixture *f) {
    fcpc_program_free(f->program);
    free(f->z);
}

typedef struct answers {
    uint64_t pairs, blind, entries, hash;
} answers;

static fcp_code count(cells *c, const fixture *f, answers *out) {
    cells_counts counts = {0};
    fcp_code code = cells_count(c, &f->env, &counts, NULL);
    out->pairs = counts.pairs;
    return code;
}

static fcp_code list(cells *c, const fixture *f, answers *out) {
    const cell_entry *entries;
    size_t n = 0;
    uint32_t shapes, runs;
    const fcp_run *run;
    fcp_code code = cells_grid(c, &f->env, f->cuts, PIECES, f->cuts, PIECES, &entries, &n, NULL);
    if (code != FCP_OK) return code;
    const fcp_shape_rec *shape = cells_shapes(c, &shapes, &run, &runs);
    out->entries = n;
    out->hash = 0;
    for (size_t i = 0; i < n; i++)
        out->hash = out->hash * 31 + entries[i].q_piece * 977 + entries[i].k_piece + shape[entries[i].shape].pairs;
    return code;
}

static fcp_code look_for_blind(blind *b, const fixture *f, answers *out) {
    blind_rows rows;
    fcp_code code = blind_find(b, &f->env, &rows);
    out->blind = rows.rows;
    return code;
}

/* An object can be stopped at any question, and says that it was. Asked again, it answers like one that was never
 * stopped. */
Test(stop, at_any_question) {
    static const uint64_t times[] = {1, 2, 5, 17, 100, 1000};
    const volatile int stop = 0;
    for (int i = 0; i < CASE_COUNT; i++) {
        fixture f;
        open_case(&f, &CASES[i], CASES[i].small);
        answers want = {0};
        cells *c = cells_new(f.program->mask, 1);
        blind *b = blind_new(f.program->mask, 1, 1 << 20);
        ask_from(UINT64_MAX);
        cr_assert(count(c, &f, &want) == FCP_OK && list(c, &f, &want) == FCP_OK);
        cr_assert_eq(look_for_blind(b, &f, &want), FCP_OK);
        cells_free(c);
        blind_free(b);
        for (size_t t = 0; t < sizeof times / sizeof *times; t++) {
            answers got = {0};
            c = cells_new(f.program->mask, 1);
            b = blind_new(f.program->mask, 1, 1 << 20);
            cells_set_stop(c, &stop);
            blind_set_stop(b, &stop);
            for (int what = 0; what < 3; what++)
                for (int again = 0; again < 2; again++) {
                    ask_from(again ? UINT64_MAX : times[t]);
                    fcp_code code = what == 0   ? list(c, &f, &got)
                                    : what == 1 ? count(c, &f, &got)
                                                : look_for_blind(b, &f, &got);
                    cr_assert_eq(code, asked >= yes_from ? FCP_E_INTERRUPTED : FCP_OK, "%s: %d at %d: %s",
                                 CASES[i].mask, what, (int)times[t], fcp_code_name(code));
                }
            cr_assert_eq(memcmp(&got, &want, sizeof got), 0, "%s, stopped at question %d", CASES[i].mask,
                         (int)times[t]);
            cells_free(c);
            blind_free(b);
        }
        close_case(&f);
    }
}

/* For long sequences: from the call to its end it is never long until the next question. */
Test(stop, soon) {
    const volatile int stop = 0;
    for (int i = 0; i < CASE_COUNT; i++)
        for (int what = 0; what < 3; what++) {
            fixture f;
            answers got;
            open_case(&f, &CASES[i], CASES[i].large);
            cells *c = cells_new(f.program->mask, 1);
            blind *b = blind_new(f.program->mask, 1, 50000);
            cells_set_stop(c, &stop);
            blind_set_stop(b, &stop);
            ask_from(4000);
            fcp_code code = what == 0   ? f.env.n > 1 << 30 ? FCP_OK : list(c, &f, &got)
                            : what == 1 ? count(c, &f, &got)
                                        : look_for_blind(b, &f, &got);
            note_gap();
            cr_expect(code == FCP_OK || code == FCP_E_INTERRUPTED, "%s: %s", CASES[i].mask, fcp_code_name(code));
            cr_expect_lt(longest, MOST_SECONDS, "%s: %d: %g s without a question", CASES[i].mask, what, longest);
            cells_free(c);
            blind_free(b);
            close_case(&f);
        }
}
