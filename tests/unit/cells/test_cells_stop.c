/* test_cells_stop.c: tests that the analysis of a mask ends soon after the caller asks it to, whenever that happens,
 * and that the answers which it keeps stay right.
 *
 * The analysis calls fcp_stop_asked from time to time to learn whether it should end. This file replaces that function
 * by one that counts its calls and returns true from a given call on. Calls are counted and time is not measured,
 * because the number of calls is the same on every machine. */
#include "compiler/cells/masked_rows.h"
#include "compiler/sema/program.h"
#include "runtime/base/stop.h"
#include "tests/support/plan_of.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t asked, yes_from;

bool fcp_stop_asked(const volatile int *stop) { return stop && ++asked >= yes_from; }

static void ask_from(uint64_t from) {
    asked = 0;
    yes_from = from;
}

enum { LIST, COUNT, MASKED, ANSWERS };

typedef struct stop_case {
    const char *mask;
    int64_t small, large;    /* tokens; of `small` an answer is made in full */
    bool constant;           /* the array's elements are in long runs */
    bool is_long[ANSWERS];   /* of `large` this answer takes 4000 questions and more */
    uint64_t least[ANSWERS]; /* questions of an answer about `small`: half of what is asked today */
} stop_case;

static const stop_case CASES[] = {
    {"causal", 3000, 1 << 24, false, {0, 0, 0}, {98, 1, 1}},
    {"window(w = 700)", 3000, (int64_t)1 << 38, false, {0, 0, 0}, {103, 7, 1}},
    {"natten2d(W = 60, kw = 7, kh = 7)", 3600, 60 << 14, false, {1, 0, 0}, {1076, 1275, 62}},
    {"k % 3 == 0 or q % 7 == 0", 2000, 1 << 22, false, {1, 0, 0}, {672, 1999, 1}},
    {"(q * k) % 1009 < (q + k) % 13", 700, 1 << 17, false, {1, 1, 1}, {28354, 1561, 3554}},
    {"(q * q) % 1009 < k % 13 and q != k", 700, 1 << 17, false, {1, 1, 1}, {10026, 2125, 4486}},
    {"(z[q] * z[k]) % 7 < 3", 700, 1 << 20, false, {1, 1, 1}, {1000, 26, 3158}},
    {"abs(z[q] - z[k]) < 300 and k <= q", 1500, 1 << 20, false, {1, 1, 1}, {600, 55, 15}},
    {"z[q] < 500 and z[k] < 400", 1500, 1 << 20, false, {1, 1, 1}, {30, 25, 15025}},
    {"k <= q and q < z[k] * 1000", 1500, 1 << 20, true, {1, 1, 1}, {99, 2, 1}},
    {"z[q] == z[k] and k < q", 1500, 1 << 20, true, {1, 1, 1}, {329, 23, 2034}},
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
    uint64_t pairs, masked, entries, hash;
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

static fcp_code look_for_masked(row_search *b, const fixture *f, answers *out) {
    masked_rows rows;
    fcp_code code = masked_rows_find(b, &f->env, &rows);
    out->masked = rows.rows;
    return code;
}

static fcp_code answer(int what, cells *c, row_search *b, const fixture *f, answers *out) {
    return what == LIST ? list(c, f, out) : what == COUNT ? count(c, f, out) : look_for_masked(b, f, out);
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
        row_search *b = row_search_new(f.program->mask, 1);
        cells_set_stop(c, &stop);
        row_search_set_stop(b, &stop);
        for (int what = 0; what < ANSWERS; what++) {
            ask_from(UINT64_MAX);
            cr_assert_eq(answer(what, c, b, &f, &want), FCP_OK);
            cr_expect_geq(asked, CASES[i].least[what], "%s: %d: only %lu questions", CASES[i].mask, what,
                          (unsigned long)asked);
        }
        cells_free(c);
        row_search_free(b);
        for (size_t t = 0; t < sizeof times / sizeof *times; t++) {
            answers got = {0};
            c = cells_new(f.program->mask, 1);
            b = row_search_new(f.program->mask, 1);
            cells_set_stop(c, &stop);
            row_search_set_stop(b, &stop);
            for (int what = 0; what < ANSWERS; what++)
                for (int again = 0; again < 2; again++) {
                    ask_from(again ? UINT64_MAX : times[t]);
                    fcp_code code = answer(what, c, b, &f, &got);
                    cr_assert_eq(code, asked >= yes_from ? FCP_E_INTERRUPTED : FCP_OK, "%s: %d at %d: %s",
                                 CASES[i].mask, what, (int)times[t], fcp_code_name(code));
                }
            cr_assert_eq(memcmp(&got, &want, sizeof got), 0, "%s, stopped at question %d", CASES[i].mask,
                         (int)times[t]);
            cells_free(c);
            row_search_free(b);
        }
        close_case(&f);
    }
}

/* Of long sequences: an answer that takes long asks again and again, and so ends at the 4000th question. A list for
 * more than 2^30 tokens is not made: pieces are not that large. */
Test(stop, long_sequences) {
    const volatile int stop = 0;
    for (int i = 0; i < CASE_COUNT; i++)
        for (int what = 0; what < ANSWERS; what++) {
            if (what == LIST && CASES[i].large > 1 << 30) continue;
            fixture f;
            answers got;
            open_case(&f, &CASES[i], CASES[i].large);
            cells *c = cells_new(f.program->mask, 1);
            row_search *b = row_search_new(f.program->mask, 1);
            cells_set_stop(c, &stop);
            row_search_set_stop(b, &stop);
            ask_from(4000);
            fcp_code code = answer(what, c, b, &f, &got);
            cr_expect_eq(code, CASES[i].is_long[what] ? FCP_E_INTERRUPTED : FCP_OK, "%s: %d: %s after %lu questions",
                         CASES[i].mask, what, fcp_code_name(code), (unsigned long)asked);
            cells_free(c);
            row_search_free(b);
            close_case(&f);
        }
}
