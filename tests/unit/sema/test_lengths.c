/* test_lengths.c: tests batches: lists, files, and the lognormal generator with its numbers, its distribution and
 * its limits. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "compiler/base/text.h"
#include "compiler/sema/program.h"
#include "tests/support/splitmix.h"
#include "tests/support/temporary.h"

static fcp_code compile(const char *name, const char *value, const char *file, fcpc_program **out) {
    char *source = malloc(strlen(value) + 100);
    sprintf(source, *value ? "batch { lengths = %s }\nplan { mask = causal }" : "plan { mask = causal }", value);
    fcpc_options options = {.size = sizeof(fcpc_options), .lengths_file = file, .need_lengths = true};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcp_code code = fcpc_parse_text(name, source, strlen(source), &options, d, out);
    fcpc_diagnostics_free(d);
    free(source);
    return code;
}

static void expect_lengths(const char *value, size_t count, const uint64_t *expected) {
    fcpc_program *p = NULL;
    cr_assert_eq(compile("a.fcp", value, NULL, &p), FCP_OK, "%s", value);
    size_t got;
    const uint64_t *at = fcpc_program_lengths(p, &got);
    cr_assert_eq(got, count, "%s: %zu", value, got);
    cr_expect_arr_eq(at, expected, count * sizeof *expected);
    fcpc_program_free(p);
}

static fcp_code code_of(const char *value) {
    fcpc_program *p = NULL;
    fcp_code code = compile("a.fcp", value, NULL, &p);
    fcpc_program_free(p);
    return code;
}

static void write_file(const char *path, const char *bytes, size_t size) {
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    fwrite(bytes, 1, size, f);
    fclose(f);
}

Test(lengths, lists) {
    expect_lengths("[131072, 3 x 2, 1]", 4, (uint64_t[]){131072, 3, 3, 1});
    expect_lengths("8K", 1, (uint64_t[]){8192});
    expect_lengths("[0]", 1, (uint64_t[]){0});
    expect_lengths("[0, 5, 0 x 3, 7 - 7]", 6, (uint64_t[]){0, 5, 0, 0, 0, 0});
    expect_lengths("0", 1, (uint64_t[]){0});
    expect_lengths("[1024G]", 1, (uint64_t[]){UINT64_C(1) << 40});
    expect_lengths("[512G, 512G - 1, 1]", 3, (uint64_t[]){UINT64_C(1) << 39, (UINT64_C(1) << 39) - 1, 1});
    cr_expect_eq(code_of("[512G, 512G, 1]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[1024G + 1]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[512G x 3]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[1 x 9223372036854775807]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[9223372036854775807 x 9223372036854775807]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[-1]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[0 x 0]"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[1024G, 0 x 5]"), FCP_OK);
    cr_expect_eq(code_of(""), FCP_E_MISSING);
}

Test(lengths, cumulative) {
    expect_lengths("cumulative([0, 3, 5, 10])", 3, (uint64_t[]){3, 2, 5});
    expect_lengths("cumulative([0, 3])", 1, (uint64_t[]){3});
    expect_lengths("cumulative([0, 0])", 1, (uint64_t[]){0});
    expect_lengths("cumulative([0 x 3, 5 x 2, 9])", 5, (uint64_t[]){0, 0, 5, 0, 4});
    expect_lengths("[7, cumulative([0, 3, 5]), 1]", 4, (uint64_t[]){7, 3, 2, 1});
    expect_lengths("cumulative([0, 512G, 1024G])", 2, (uint64_t[]){UINT64_C(1) << 39, UINT64_C(1) << 39});
    static const char *const wrong[] = {"cumulative([])",
                                        "cumulative([0])",
                                        "cumulative(0)",
                                        "cumulative([1, 3])",
                                        "cumulative([0, 5, 3])",
                                        "cumulative([0, -1])",
                                        "cumulative([0:0, 5:9, 6:8])",
                                        "cumulative([0:0, 5:9, 4:10])",
                                        "cumulative([0:1, 5:9])",
                                        "cumulative([0, 1024G, 1024G + 1])",
                                        "cumulative([0 x 9223372036854775807])",
                                        "cumulative([0, 3], keys = [0])",
                                        "cumulative([0, 3], keys = [0, 3, 4])",
                                        "cumulative([0:0, 3:5], keys = [0, 3])",
                                        "cumulative([0, 3], keys = [0:0, 3:5])",
                                        "cumulative([0, 3], keys = [1, 3])"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(code_of(wrong[i]), FCP_E_LENGTHS, "%s", wrong[i]);
    static const char *const calls[] = {"cumulative()", "cumulative([0, 3], [0, 4])", "cumulative(ends = [0, 3])",
                                        "cumulative([0, 3], values = [0, 4])", "cumulative([0], [0], [0])"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        cr_expect_eq(code_of(calls[i]), FCP_E_ARGUMENT, "%s", calls[i]);
    cr_expect_eq(code_of("cumulative(cumulative([0, 3]))"), FCP_E_TYPE);
    cr_expect_eq(code_of("cumulative([0, lognormal(median = 8, sigma = 1, count = 4)])"), FCP_E_TYPE);
}

static void expect_warning(const char *value, const char *hint) {
    char source[400];
    snprintf(source, sizeof source, "batch { lengths = %s }\nplan { mask = causal }", value);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    cr_assert_eq(fcpc_parse_text("a.fcp", source, strlen(source), NULL, d, &p), FCP_OK, "%s", value);
    char *said = fcpc_diagnostics_render(d, false);
    cr_expect_eq(strstr(said, "are they cumulative?") != NULL, hint != NULL, "%s", said);
    cr_expect(!hint || strstr(said, hint), "%s", said);
    free(said);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
}

Test(lengths, that_look_cumulative) {
    expect_warning("[0, 3, 5]", "lengths = cumulative([0, 3, 5]) is [3, 2]\n");
    expect_warning("[0, 3, 3, 5, 9, 9, 10]", "lengths = cumulative([0, 3, 3, 5, 9, 9, 10]) is [3, 0, 2, 4, ...]\n");
    expect_warning("[0:0, 1:4096, 2:5000]", "lengths = cumulative([0:0, 1:4096, 2:5000]) is [1:4096, 1:904]\n");
    expect_warning("[0, 10000000, 20000000, 30000000, 40000000]", "lengths = cumulative(...) is [10000000, ");
    static const char *const others[] = {"[0, 3]",    "[0, 3, 3]", "[0, 0, 0]",       "[1, 3, 5]",
                                         "[0, 5, 3]", "[3, 0, 5]", "[0:0, 2:3, 1:5]", "cumulative([0, 3, 5])",
                                         "[0 x 3, 5]"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) expect_warning(others[i], NULL);
}

/* The same random sequences as lengths, as pairs of ends, as two lists of ends, and as a file of ends. */
Test(lengths, cumulative_is_the_differences) {
    uint64_t seed = 5;
    for (int round = 0; round < 200; round++) {
        enum { MOST = 12 };
        const size_t count = 1 + splitmix(&seed) % MOST;
        const bool same = splitmix(&seed) % 3 == 0;
        uint64_t length[2][MOST], end[2] = {0, 0};
        text ends[2] = {{0}, {0}}, pairs = {0}, both = {0}, lines = {0};
        text_puts(&pairs, "cumulative([0:0");
        text_puts(&lines, "# ends\n0 0\n");
        for (int k = 0; k < 2; k++) text_puts(&ends[k], "[0");
        for (size_t i = 0; i < count; i++) {
            for (int k = 0; k < 2; k++) {
                length[k][i] = k && same ? length[0][i] : splitmix(&seed) % 4 ? splitmix(&seed) % 5000 : 0;
                end[k] += length[k][i];
                text_printf(&ends[k], ", %" PRIu64, end[k]);
            }
            text_printf(&pairs, ", %" PRIu64 ":%" PRIu64, end[0], end[1]);
            text_printf(&lines, "%" PRIu64 " %" PRIu64 "\n", end[0], end[1]);
        }
        text_puts(&pairs, "])");
        char *queries = text_take(&ends[0]), *keys = text_take(&ends[1]), *list = text_take(&lines);
        if (same) text_printf(&both, "cumulative(%s])", queries);
        else text_printf(&both, "cumulative(%s], keys = %s])", queries, keys);
        char path[TEMPORARY], from_file[TEMPORARY + 30];
        cr_assert(temporary_file(path, "ends"));
        snprintf(from_file, sizeof from_file, "cumulative(file(\"%s\"))", path);
        write_file(path, list, strlen(list));
        char *values[3] = {text_take(&pairs), text_take(&both), from_file};
        for (int v = 0; v < 3; v++) {
            fcpc_program *p = NULL;
            size_t got;
            cr_assert_eq(compile("a.fcp", values[v], NULL, &p), FCP_OK, "%s", values[v]);
            const uint64_t *at[2] = {fcpc_program_queries(p), fcpc_program_lengths(p, &got)};
            if (!at[0]) at[0] = at[1];
            cr_assert_eq(got, count, "%s", values[v]);
            for (int k = 0; k < 2; k++) cr_assert_arr_eq(at[k], length[k], count * sizeof *at[k], "%s", values[v]);
            fcpc_program_free(p);
        }
        for (int v = 0; v < 2; v++) free(values[v]);
        free(queries);
        free(keys);
        free(list);
        unlink(path);
    }
}

/* The queries, where some sequence has more or fewer than keys; else there are none of their own. */
Test(lengths, queries) {
    fcpc_program *p = NULL;
    size_t count;
    cr_assert_eq(compile("a.fcp", "[100:4096, 7, 1:8192 x 2, 9:3]", NULL, &p), FCP_OK);
    const uint64_t *keys = fcpc_program_lengths(p, &count), *queries = fcpc_program_queries(p);
    const uint64_t expected[2][5] = {{100, 7, 1, 1, 9}, {4096, 7, 8192, 8192, 3}};
    cr_assert(count == 5 && queries);
    for (size_t i = 0; i < count; i++) cr_expect(queries[i] == expected[0][i] && keys[i] == expected[1][i]);
    cr_expect_not_null(strstr(p->canonical, "lengths = [100:4096, 7, 1:8192 x 2, 9:3]"), "%s", p->canonical);
    fcpc_program_free(p);
    cr_assert_eq(compile("a.fcp", "5:1K", NULL, &p), FCP_OK);
    cr_expect(fcpc_program_queries(p)[0] == 5 && fcpc_program_lengths(p, &count)[0] == 1024);
    fcpc_program_free(p);
    cr_assert_eq(compile("a.fcp", "[5:5, 6]", NULL, &p), FCP_OK);
    cr_expect_null(fcpc_program_queries(p));
    fcpc_program_free(p);
    /* no queries, no keys */
    cr_assert_eq(compile("a.fcp", "[0, 5, 0:7, 7:0, 0:0]", NULL, &p), FCP_OK);
    const uint64_t with_none[2][5] = {{0, 5, 0, 7, 0}, {0, 5, 7, 0, 0}};
    cr_expect_arr_eq(fcpc_program_queries(p), with_none[0], sizeof with_none[0]);
    cr_expect_arr_eq(fcpc_program_lengths(p, &count), with_none[1], sizeof with_none[1]);
    cr_expect_not_null(strstr(p->canonical, "lengths = [0, 5, 0:7, 7:0, 0:0]"), "%s", p->canonical);
    fcpc_program_free(p);
    /* many: the first unequal one after the arrays have grown */
    cr_assert_eq(compile("a.fcp", "[3 x 1000, 1:3, 2 x 1000]", NULL, &p), FCP_OK);
    queries = fcpc_program_queries(p);
    cr_expect(queries[0] == 3 && queries[999] == 3 && queries[1000] == 1 && queries[2000] == 2);
    fcpc_program_free(p);
    static const struct { const char *value; fcp_code code; } wrong[] = {
        {"[-1:5]", FCP_E_LENGTHS}, {"[5:-1]", FCP_E_LENGTHS}, {"[5:]", FCP_E_SYNTAX},
        {"[:5]", FCP_E_SYNTAX}, {"[1:2:3]", FCP_E_SYNTAX}, {"[1:(1024G + 1)]", FCP_E_LENGTHS},
        {"[(1024G + 1):1]", FCP_E_LENGTHS}, {"[512G:1 x 3]", FCP_E_LENGTHS}, {"[1:2.5]", FCP_E_TYPE},
        {"[1:2 x 0]", FCP_E_LENGTHS}, {"[n:2]", FCP_E_TYPE}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(code_of(wrong[i].value), wrong[i].code, "%s: %s", wrong[i].value,
                     fcp_code_name(code_of(wrong[i].value)));
}

Test(lengths, files) {
    char folder[TEMPORARY], path[200], name[200], value[300];
    cr_assert(temporary_folder(folder, "lengths"));
    snprintf(path, sizeof path, "%s/a.lengths", folder);
    snprintf(name, sizeof name, "%s/a.fcp", folder);
    snprintf(value, sizeof value, "file(\"%s\")", path);
    static const struct { const char *text; fcp_code code; size_t count; } cases[] = {{"1\n2\n3", FCP_OK, 3},
                 {"\357\273\2771\n2", FCP_OK, 2},
                 {"1\n2\n3\n", FCP_OK, 3},
                 {"# c\n\n \t 7 # seven\r\n\r\n8\r\n", FCP_OK, 2},
                 {"5", FCP_OK, 1},
                 {"1099511627776", FCP_OK, 1},
                 {"1099511627777", FCP_E_LENGTHS, 0},
                 {"99999999999999999999999", FCP_E_LENGTHS, 0},
                 {"1099511627776\n1", FCP_E_LENGTHS, 0},
                 {"0", FCP_OK, 1},
                 {"0\n5\n00\n", FCP_OK, 3},
                 {"-0", FCP_E_LENGTHS, 0},
                 {"-3", FCP_E_LENGTHS, 0},
                 {"", FCP_E_LENGTHS, 0},
                 {"# none", FCP_E_LENGTHS, 0},
                 {"1 2 3", FCP_E_LENGTHS_FILE, 0},
                 {"1 2\n5\n7:8 # pairs\n 9 : 10", FCP_OK, 4},
                 {"1099511627776:1099511627776", FCP_OK, 1},
                 {"1:1099511627777", FCP_E_LENGTHS, 0},
                 {"1099511627777:1", FCP_E_LENGTHS, 0},
                 {"1099511627776:1\n1:1", FCP_E_LENGTHS, 0},
                 {"0:5", FCP_OK, 1},
                 {"5 0\n0 0", FCP_OK, 2},
                 {"5:", FCP_E_LENGTHS_FILE, 0},
                 {":5", FCP_E_LENGTHS_FILE, 0},
                 {"1:2:3", FCP_E_LENGTHS_FILE, 0},
                 {"1:-2", FCP_E_LENGTHS_FILE, 0},
                 {"3.5", FCP_E_LENGTHS_FILE, 0},
                 {"x", FCP_E_LENGTHS_FILE, 0},
                 {"64K", FCP_E_LENGTHS_FILE, 0},
                 {"-", FCP_E_LENGTHS_FILE, 0},
                 {"--3", FCP_E_LENGTHS_FILE, 0},
                 {"+3", FCP_E_LENGTHS_FILE, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_file(path, cases[i].text, strlen(cases[i].text));
        /* relative to the program's folder, absolute, and as an option */
        const char *const values[] = {"file(\"a.lengths\")", value, ""};
        for (int way = 0; way < 3; way++) {
            fcpc_program *p = NULL;
            fcp_code code = compile(name, values[way], way == 2 ? path : NULL, &p);
            cr_expect_eq(code, cases[i].code, "'%s': %s", cases[i].text, fcp_code_name(code));
            if (p) cr_expect_eq(p->length_count, cases[i].count);
            fcpc_program_free(p);
        }
    }
    fcpc_program *p = NULL;
    static const char not_text[][7] = {"12\0003\n", "\377\3761\0\n", "1\0\n\0002"};
    for (size_t i = 0; i < 3; i++) {
        write_file(path, not_text[i], 6);
        cr_expect_eq(compile(name, value, NULL, &p), FCP_E_LENGTHS_FILE);
    }
    unlink(path);
    cr_expect_eq(compile(name, value, NULL, &p), FCP_E_READ);
    cr_expect_eq(compile(name, "", folder, &p), FCP_E_READ);
    rmdir(folder);
}

Test(lengths, canonical_has_the_option) {
    char path[TEMPORARY];
    cr_assert(temporary_file(path, "lengths"));
    FILE *f = fopen(path, "w");
    cr_assert(f && fputs("5\n6\n", f) >= 0 && fclose(f) == 0);
    fcpc_program *p = NULL;
    cr_assert_eq(compile("a.fcp", "file(\"nowhere\")", path, &p), FCP_OK);
    cr_expect_eq(p->length_count, 2);
    cr_expect_not_null(strstr(p->canonical, path));
    cr_expect_null(strstr(p->plan_source, path));
    cr_expect_null(strstr(p->plan_source, "batch"));
    fcpc_program_free(p);
    unlink(path);
}

/* The very numbers: every machine draws these. */
Test(lengths, lognormal_is_fixed) {
    expect_lengths("lognormal(median = 2K, sigma = 1.06, count = 8)", 8,
                   (uint64_t[]){893, 612, 20727, 1097, 1097, 7171, 399, 964});
}

static int ascending(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The lengths that a program draws: its own copy, to be freed. */
static uint64_t *drawn(const char *value, size_t *out_count) {
    fcpc_program *p = NULL;
    cr_assert_eq(compile("a.fcp", value, NULL, &p), FCP_OK, "%s", value);
    const uint64_t *at = fcpc_program_lengths(p, out_count);
    uint64_t *copy = malloc(*out_count * sizeof *copy);
    memcpy(copy, at, *out_count * sizeof *copy);
    fcpc_program_free(p);
    return copy;
}

Test(lengths, lognormal_is_lognormal) {
    /* the quantiles of 200,000 draws against exp(ln median + sigma z) */
    enum { COUNT = 200000 };
    size_t count;
    uint64_t *at = drawn("lognormal(median = 1000000, sigma = 1.06, count = 200000, seed = 7)", &count);
    cr_assert_eq(count, COUNT);
    qsort(at, count, sizeof *at, ascending);
    static const struct {
        double p, z;
    } points[] = {{0.0013499, -3}, {0.0227501, -2}, {0.158655, -1}, {0.308538, -0.5}, {0.5, 0},
                  {0.691462, 0.5}, {0.841345, 1},   {0.97725, 2},   {0.99865, 3}};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        /* how many lie below the point: binomial, so within five deviations */
        double wanted = 1e6 * exp(1.06 * points[i].z), below = 0;
        while (below < COUNT && (double)at[(size_t)below] <= wanted) below++;
        double deviation = sqrt(COUNT * points[i].p * (1 - points[i].p));
        cr_expect_lt(fabs(below - COUNT * points[i].p), 5 * deviation, "z %g: %g against %g", points[i].z, below,
                     COUNT * points[i].p);
    }
    free(at);
}

Test(lengths, lognormal_limits) {
    /* sums to the tokens asked for; within min and max, but for the last */
    size_t count;
    uint64_t sum = 0, *at = drawn("lognormal(median = 2000, sigma = 1.0, tokens = 1M, min = 100, max = 5000)", &count);
    for (size_t i = 0; i < count; i++) sum += at[i];
    cr_expect_eq(sum, 1 << 20);
    for (size_t i = 0; i + 1 < count; i++) cr_assert(at[i] >= 100 && at[i] <= 5000);
    cr_expect_leq(at[count - 1], 5000);
    free(at);
    /* no spread: the median itself; the widest: still within bounds */
    at = drawn("lognormal(median = 12345, sigma = 0, count = 100)", &count);
    for (size_t i = 0; i < count; i++) cr_assert_eq(at[i], 12345);
    free(at);
    at = drawn("lognormal(median = 1, sigma = 8, count = 100000, max = 1M)", &count);
    for (size_t i = 0; i < count; i++) cr_assert(at[i] >= 1 && at[i] <= UINT64_C(1) << 20);
    free(at);
    /* what is shorter than half a token becomes 0, if `min` lets it: of these nearly half, by the normal
     * distribution */
    at = drawn("lognormal(median = 1, sigma = 8, count = 10000, min = 0, max = 1M)", &count);
    size_t none = 0;
    for (size_t i = 0; i < count; i++) none += !at[i];
    cr_expect(none > 4300 && none < 4950, "%zu of %zu are 0", none, count);
    free(at);
    /* another seed, another batch; the same seed, the same batch */
    uint64_t *a = drawn("lognormal(median = 1M, sigma = 1, count = 50)", &count),
             *b = drawn("lognormal(median = 1M, sigma = 1.0, count = 50, seed = 1)", &count),
             *c = drawn("lognormal(median = 1M, sigma = 1, count = 50, seed = 2)", &count);
    cr_expect_arr_eq(a, b, 50 * sizeof *a);
    cr_expect_arr_neq(a, c, 50 * sizeof *a);
    free(a);
    free(b);
    free(c);
    cr_expect_eq(code_of("lognormal(median = 1, sigma = 0, tokens = 1024G)"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("lognormal(median = 1G, sigma = 0.5, count = 1M)"), FCP_E_LENGTHS);
    cr_expect_eq(code_of("[lognormal(median = 1K, sigma = 2, count = 3), 5 x 3]"), FCP_OK);
}
