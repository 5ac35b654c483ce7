/* test_empty_rows.c: the rows that a mask leaves without keys, against looking at every pair; the warning that names them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../compiler/empty_rows.h"
#include "../../compiler/program.h"

enum { HEADS = 3 };

static fcpc_program *parse_mask(const char *condition, fcpc_diagnostics *d) {
    char text[512];
    int size = snprintf(text, sizeof text, "model { heads = %d }\nmask m = %s\nplan { mask = m; block = 128 }\n", HEADS, condition);
    fcpc_program *program = NULL;
    cr_assert_eq(fcpc_parse_text("m.fcp", text, (size_t)size, NULL, d, &program), FCP_OK, "%s", condition);
    return program;
}

/* Does row q of n see nothing, for head h? */
static bool is_empty(mc_code mask, uint64_t n, uint64_t q, uint32_t h, int64_t *scratch) {
    for (uint64_t k = 0; k < n; k++)
        if (mc_eval(mask, (int64_t)q, (int64_t)k, (int64_t)n, h, scratch)) return false;
    return true;
}

/* The same answer as empty_rows_find's, from every pair. */
static empty_rows look_at_all(mc_code mask, const uint64_t *lengths, size_t count) {
    int64_t *scratch = malloc(mask.count * sizeof *scratch);
    empty_rows out = {0};
    for (size_t i = 0; i < count && out.first == out.end; i++)
        for (uint32_t h = 0; h < (mc_uses(mask) & MC_USES_H ? HEADS : 1) && out.first == out.end; h++) {
            uint64_t q = 0;
            while (q < lengths[i] && !is_empty(mask, lengths[i], q, h, scratch)) q++;
            out = (empty_rows){.sequence = i, .first = q, .end = q, .h = h};
            while (out.end < lengths[i] && is_empty(mask, lengths[i], out.end, h, scratch)) out.end++;
        }
    free(scratch);
    return out;
}

static const char *const masks[] = {
    "true", "false", "k <= q", "k < q", "k > q", "k <= q and q - k < 30", "k < q and q - k < 30", "q != k",
    "k <= q and k >= 5", "k >= 5 and k < 9", "k == n - q", "k < n - 40", "q % 3 != 0 and k <= q", "q % 64 < 60 or k > n",
    "q / 7 == k / 7", "(q + k) % 2 == 1 and k <= q", "k <= q and h != 1", "k <= q and q - k < 9 * h", "k * k == q",
    "q < 100 or q >= 150 and k < 3", "q < 40 * (h + 1) and k <= q", "abs(q - k) == 20", "q * q + k == n", "k == 2 * q"};

Test(empty_rows, as_every_pair_says) {
    static const uint64_t lengths[] = {1, 2, 150, 150, 7, 64, 199};
    enum { COUNT = sizeof lengths / sizeof *lengths };
    unsigned some = 0;
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_mask(masks[m], d);
        arena scratch = {0};
        for (size_t i = 0; i < COUNT; i++) {
            empty_rows found, right = look_at_all(program->mask, lengths + i, COUNT - i);
            cr_assert_eq(empty_rows_find(program->mask, HEADS, lengths + i, COUNT - i, &scratch, &found), FCP_OK);
            cr_assert_eq(found.end - found.first, right.end - right.first, "%s from length %zu", masks[m], i);
            if (right.first == right.end) continue;
            some++;
            cr_assert(found.first == right.first && found.h == right.h && found.sequence == right.sequence,
                      "%s from length %zu: row %lu of %zu", masks[m], i, (unsigned long)found.first, found.sequence);
        }
        arena_free(&scratch);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
    cr_assert_gt(some, 50);
}

Test(empty_rows, long_sequences) {
    static const struct { const char *mask; uint64_t n, first, end; } cases[] = {
        {"k <= q", UINT64_C(1) << 40, 0, 0},
        {"k > q", UINT64_C(1) << 40, (UINT64_C(1) << 40) - 1, UINT64_C(1) << 40},
        {"k <= q and k >= 1000000", UINT64_C(1) << 40, 0, 1000000},
        {"k <= q and q != 123456789", 1000000000, 123456789, 123456790}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_mask(cases[i].mask, d);
        arena scratch = {0};
        empty_rows found;
        cr_assert_eq(empty_rows_find(program->mask, HEADS, &cases[i].n, 1, &scratch, &found), FCP_OK);
        cr_assert(found.first == cases[i].first && found.end == cases[i].end, "%s: %lu to %lu", cases[i].mask,
                  (unsigned long)found.first, (unsigned long)found.end);
        arena_free(&scratch);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

Test(empty_rows, warning) {
    static const uint64_t lengths[] = {100, 40};
    static const struct { const char *mask, *words; } cases[] = {
        {"k <= q", NULL},
        {"k <= q and k >= 5", "the mask allows nothing for rows 0 to 4 of sequence 0 (length 100)"},
        {"k > q", "the mask allows nothing for row 99 of sequence 0 (length 100)"},
        {"k < n - 40", "the mask allows nothing for rows 0 to 39 of sequence 1 (length 40)"},
        {"k <= q and h != 1", "the mask allows nothing for rows 0 to 99 of sequence 0 (length 100), for head 1"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_mask(cases[i].mask, d);
        fcp_plan *plan = NULL;
        cr_assert_eq(fcpc_plan(program, lengths, 2, NULL, d, NULL, &plan), FCP_OK);
        cr_assert_eq(fcpc_diagnostics_count(d), cases[i].words ? 1 : 0);
        if (cases[i].words) {
            fcpc_diagnostic one;
            fcpc_diagnostics_get(d, 0, &one);
            cr_assert(one.warning);
            cr_assert_str_eq(one.message, cases[i].words);
            cr_assert_eq(one.line, 3u);
        }
        fcp_plan_free(plan);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}
