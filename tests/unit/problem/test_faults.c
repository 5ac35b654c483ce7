/* test_faults.c: tests the code with which a fault of a mask is reported. Random expressions of constants stand behind
 * a guard, so that nothing is reported before a batch is known. What they do is worked out here, from left to right, in
 * 128 bits. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"

enum { TOKENS = 7, ROOM = 4000 };
/* The field of the program: element i is i * 3 - 5. */
static int64_t element(int64_t i) { return i * 3 - 5; }

typedef struct drawn {
    char text[ROOM];
    int64_t value;
    fcp_code code;             /* FCP_OK: it has a value */
    int64_t dividend, divisor; /* of an exact that leaves a remainder */
} drawn;

static void settle(drawn *out, __int128 v) {
    if (v < INT64_MIN || v > INT64_MAX) out->code = FCP_E_MASK_OVERFLOW;
    else out->value = (int64_t)v;
}

static __int128 floor_div(__int128 a, __int128 b) {
    const __int128 d = a / b;
    return d - (a % b != 0 && (a < 0) != (b < 0));
}

/* Applies a function or operator to the values of a and b, which have values. */
static void apply(drawn *out, int op, int64_t a, int64_t b) {
    const __int128 x = a, y = b;
    out->code = FCP_OK;
    if (op >= 3 && op <= 5 && !b) out->code = FCP_E_MASK_DIV_ZERO;
    else if (op == 0) settle(out, x + y);
    else if (op == 1) settle(out, x - y);
    else if (op == 2) settle(out, x * y);
    else if (op == 4) settle(out, x - floor_div(x, y) * y);
    else if (op == 5 && floor_div(x, y) * y != x) {
        out->code = FCP_E_MASK_EXACT;
        out->dividend = a;
        out->divisor = b;
    } else settle(out, floor_div(x, y));
}

/* Draws an expression of at most 8 leaves; its text is shorter than the 999 bytes that are copied of operands. */
static void draw(uint64_t *seed, int depth, drawn *out) {
    static const char *const forms[] = {"(%.999s + %.999s)", "(%.999s - %.999s)",  "(%.999s * %.999s)",
                                        "(%.999s / %.999s)", "(%.999s %% %.999s)", "exact(%.999s, %.999s)"};
    static const int64_t numbers[] = {0, 1, 2, 3, 5, 7, 8, 45, INT64_MAX};
    *out = (drawn){.code = FCP_OK};
    const uint64_t what = splitmix(seed) % (depth ? 12 : 3);
    if (what < 3) {
        out->value = numbers[splitmix(seed) % (sizeof numbers / sizeof *numbers)];
        snprintf(out->text, ROOM, "%" PRId64, out->value);
        return;
    }
    drawn a, b;
    draw(seed, depth - 1, &a);
    if (what == 3 || what == 4) { /* -a, abs(a) */
        snprintf(out->text, ROOM, what == 3 ? "(-%.999s)" : "abs(%.999s)", a.text);
        const __int128 v = a.value;
        out->code = a.code;
        out->dividend = a.dividend;
        out->divisor = a.divisor;
        if (a.code == FCP_OK) settle(out, what == 3 || v < 0 ? -v : v);
        return;
    }
    if (what == 5) { /* an element of a field */
        out->code = a.code;
        out->dividend = a.dividend;
        out->divisor = a.divisor;
        snprintf(out->text, ROOM, "doc[%.999s]", a.text);
        if (a.code != FCP_OK) return;
        if (a.value < 0 || a.value >= TOKENS) out->code = FCP_E_MASK_INDEX;
        else out->value = element(a.value);
        return;
    }
    draw(seed, depth - 1, &b);
    const int op = (int)(what - 6);
    const drawn *first = a.code != FCP_OK ? &a : &b;
    out->code = first->code;
    out->dividend = first->dividend;
    out->divisor = first->divisor;
    if (a.code == FCP_OK && b.code == FCP_OK) apply(out, op, a.value, b.value);
    snprintf(out->text, ROOM, forms[op], a.text, b.text);
}

/* `fcpc explain` has the words of the error, up to its ", for" or " for", or " in". */
static void expect_explained(const char *program, const char *said) {
    const fcpc_question question = {.size = sizeof question, .width = 1000};
    char *text = NULL, *words = strstr(said, "]: ") + 3;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    cr_assert_eq(fcpc_explain_text("a.fcp", program, strlen(program), NULL, &question, d, &text), FCP_OK, "%s",
                 program);
    const size_t line = strcspn(words, "\n");
    char expected[200] = "";
    cr_assert_lt(line, sizeof expected - 3);
    memcpy(expected, words, line);
    char *end = strstr(expected, ", for q");
    if (!end) end = strstr(expected, " for q");
    if (!end) end = strstr(expected, " in a sequence");
    if (end) *end = 0;
    const char *because = strstr(text, "because ");
    cr_assert_not_null(because, "%s\n%s", program, text);
    const char *found = strstr(because, expected);
    cr_expect(found && found < strchr(because, '\n'), "%s\n%s\n%s", program, said, text);
    free(text);
    fcpc_diagnostics_free(d);
}

Test(faults, constants_behind_guards) {
    uint64_t seed = 37;
    uint32_t seen[5] = {0};
    for (uint32_t i = 0; i < amount(1500, 20000); i++) {
        drawn x;
        char program[ROOM + 300], wanted[100] = "", *said;
        fcp_plan *made;
        draw(&seed, 1 + (int)(splitmix(&seed) % 3), &x);
        static const char *const guards[] = {"k >= 5 or %s > 1", "k < 5 and %s > 1", "if k < 5 then %s > 1 else true",
                                             "k >= 5 or f(%s) where { f(x) = x > 1 }"};
        char mask[ROOM + 100];
        snprintf(mask, sizeof mask, guards[splitmix(&seed) % 4], x.text);
        snprintf(program, sizeof program,
                 "batch { lengths = [%d]; field doc = [-5, -2, 1, 4, 7, 10, 13] }\nmask m = %s\nplan { mask = m }\n",
                 TOKENS, mask);
        const fcp_code code = plan_try("a.fcp", program, NULL, 0, &made, &said);
        cr_assert_eq(code, x.code, "%s\n%s", program, said);
        if (code != FCP_OK) expect_explained(program, said);
        if (code == FCP_E_MASK_EXACT)
            snprintf(wanted, sizeof wanted, "%" PRId64 " is not a multiple of %" PRId64, x.dividend, x.divisor);
        cr_assert(strstr(said, wanted), "%s\n%s", program, said);
        static const fcp_code codes[] = {FCP_OK, FCP_E_MASK_DIV_ZERO, FCP_E_MASK_OVERFLOW, FCP_E_MASK_EXACT,
                                         FCP_E_MASK_INDEX};
        for (int c = 0; c < 5; c++) seen[c] += code == codes[c];
        fcp_plan_free(made);
        free(said);
    }
    for (int c = 0; c < 5; c++) cr_expect_gt(seen[c], 50, "%d: %u", c, seen[c]);
}

/* Plans `m` for the values of field w, one for each of two sequences. */
static fcp_code plan_counts(const char *m, int64_t first, int64_t second) {
    char program[400];
    snprintf(program, sizeof program, "batch { field w = given(over = sequences) }\n%s\n", m);
    fcpc_program *p = program_named("a.fcp", program);
    const uint64_t lengths[] = {100, 50};
    const int64_t values[] = {first, second};
    const fcpc_field field = {.name = "w", .values = values, .count = 2};
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = 2, .fields = &field, .field_count = 1};
    fcp_plan *plan = NULL;
    const fcp_code code = fcpc_plan_batch(p, &batch, NULL, NULL, NULL, &plan);
    fcp_plan_free(plan);
    fcpc_program_free(p);
    return code;
}

/* A window that is negative for some sequence is an error, unless a condition stands before it. */
Test(faults, counts_of_a_batch) {
    static const char *const bare[] = {"plan { mask = window(w = w) }", "mask m = window(w = w)",
                                       "mask m = window_both(l = 3, r = w) or k == 0",
                                       "mask m = f(x = w)\nmask f(x) = prefix(p = x)\nplan { mask = m }"};
    for (size_t i = 0; i < sizeof bare / sizeof *bare; i++) {
        cr_expect_eq(plan_counts(bare[i], 10, 0), FCP_OK, "%s", bare[i]);
        cr_expect_eq(plan_counts(bare[i], 10, -1), FCP_E_VALUE, "%s", bare[i]);
        cr_expect_eq(plan_counts(bare[i], -1, 10), FCP_E_VALUE, "%s", bare[i]);
    }
    static const char *const guarded[] = {"mask m = if w < 0 then causal else window(w = w)",
                                          "mask m = w >= 0 and window(w = w)", "mask m = k <= w",
                                          "mask m = window(w = w + 9)"};
    for (size_t i = 0; i < sizeof guarded / sizeof *guarded; i++)
        cr_expect_eq(plan_counts(guarded[i], 10, -1), FCP_OK, "%s", guarded[i]);
}
