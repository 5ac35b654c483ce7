/* test_diag.c: tests diagnostics, the messages with a picture of the source line. Whole messages are compared with
 * golden files (tests/support/diag_case.h; GOLDEN_UPDATE=1 rewrites them), and the functions that print them are tested
 * one by one. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/program.h"
#include "tests/support/diag_case.h"

static char *what_it_says(const char *program, size_t size, const fcpc_options *options) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    fcp_code code = fcpc_parse_text("a.fcp", program, size, options, d, &p);
    char *said = fcpc_diagnostics_render(d, false);
    cr_assert_not_null(said);
    if (code == FCP_OK) {
        free(said);
        said = fcpc_program_print(p);
    } else {
        fcpc_diagnostic first;
        fcpc_diagnostics_get(d, 0, &first);
        cr_expect_eq(first.code, code);
    }
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return said;
}

Test(golden, pictures) {
    struct dirent **names;
    int count = diag_case_names(&names);
    bool update = getenv("GOLDEN_UPDATE") != NULL;
    for (int i = 0; i < count; i++) {
        diag_case c = {.bytes = NULL};
        diag_case_read(names[i]->d_name, &c);
        char *said = what_it_says(c.program, c.size, &c.options);
        if (update && strcmp(said, c.expected)) {
            size_t head = (size_t)(c.expected - c.bytes), whole;
            char *original = diag_case_bytes(c.path, &whole);
            FILE *f = fopen(c.path, "wb");
            fwrite(original, 1, head, f);
            fputs(said, f);
            fclose(f);
            free(original);
        } else cr_expect_str_eq(said, c.expected, "%s says:\n%s\ninstead of\n%s", c.path, said, c.expected);
        free(said);
        diag_case_free(&c);
        free(names[i]);
    }
    free(names);
}

Test(diag, lines_and_columns) {
    diags *d = fcpc_diagnostics_new();
    uint32_t s = diag_source(d, "x", "ab\n\ncd", 6, false);
    const struct {
        uint32_t offset, line, column;
    } places[] = {{0, 1, 1}, {1, 1, 2}, {2, 1, 3}, {3, 2, 1}, {4, 3, 1}, {5, 3, 2}, {6, 3, 3}, {99, 3, 3}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        diag_error(d, FCP_E_LEX, (span){s, places[i].offset, places[i].offset + 1}, "%zu", i);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        fcpc_diagnostic g;
        fcpc_diagnostics_get(d, i, &g);
        cr_expect_eq(g.line, places[i].line);
        cr_expect_eq(g.column, places[i].column);
        cr_expect_str_eq(g.file, "x");
    }
    fcpc_diagnostics_free(d);
}

Test(diag, cap_and_doubles) {
    diags *d = fcpc_diagnostics_new();
    char bytes[200];
    memset(bytes, 'a', sizeof bytes);
    uint32_t s = diag_source(d, "x", bytes, sizeof bytes, false);
    for (uint32_t i = 0; i < 100; i++) {
        diag_error(d, FCP_E_TYPE, (span){s, i, i + 1}, "first");
        diag_error(d, FCP_E_TYPE, (span){s, i, i + 1}, "%s", "first"); /* the same: dropped */
        diag_hint(d, "must not stick to an older one");
    }
    cr_expect_eq(fcpc_diagnostics_count(d), DIAG_MAX_ERRORS);
    cr_expect_eq(diag_first_code(d), FCP_E_TYPE);
    char *said = fcpc_diagnostics_render(d, true);
    cr_expect_null(strstr(said, "stick"));
    cr_expect_not_null(strstr(said, "\033[1;31merror[E202]"));
    free(said);
    fcpc_diagnostics_free(d);
}

/* Two things that are wrong at one place are both said, each once, and each with its hint. */
Test(diag, several_at_one_place) {
    static const char *const messages[] = {"one", "another", "one", "a third", "another"};
    diags *d = fcpc_diagnostics_new();
    const span at = {diag_source(d, "x", "abc", 3, false), 0, 1};
    for (int warning = 0; warning < 2; warning++)
        for (size_t i = 0; i < sizeof messages / sizeof *messages; i++) {
            if (warning) diag_warning(d, at, "%s", messages[i]);
            else diag_error(d, FCP_E_TYPE, at, "%s", messages[i]);
            diag_hint(d, "of %s", messages[i]);
        }
    for (int i = 0; i < 2; i++) diag_error(d, FCP_E_NO_MEMORY, SPAN_NONE, "no place"); /* these are not the same */
    char *said = fcpc_diagnostics_render(d, false);
    cr_expect_str_eq(said, "x:1:1: error[E202]: one\n    1 | abc\n      | ^\n      = hint: of one\n"
                           "x:1:1: error[E202]: another\n    1 | abc\n      | ^\n      = hint: of another\n"
                           "x:1:1: error[E202]: a third\n    1 | abc\n      | ^\n      = hint: of a third\n"
                           "x:1:1: warning: one\n    1 | abc\n      | ^\n      = hint: of one\n"
                           "x:1:1: warning: another\n    1 | abc\n      | ^\n      = hint: of another\n"
                           "x:1:1: warning: a third\n    1 | abc\n      | ^\n      = hint: of a third\n"
                           "error[E012]: no place\nerror[E012]: no place\n", "%s", said);
    free(said);
    fcpc_diagnostics_free(d);
}

Test(diag, no_place) {
    diags *d = fcpc_diagnostics_new();
    diag_error(d, FCP_E_READ, SPAN_NONE, "cannot read '%s'", "a\033[31m\n");
    diag_warning(d, SPAN_NONE, "careful");
    fcpc_diagnostic g;
    fcpc_diagnostics_get(d, 0, &g);
    cr_expect_eq(g.line, 0);
    cr_expect_str_eq(g.file, "");
    cr_expect_str_eq(g.message, "cannot read 'a?[31m?'");
    char *said = fcpc_diagnostics_render(d, false);
    cr_expect_str_eq(said, "error[E010]: cannot read 'a?[31m?'\nwarning: careful\n");
    cr_expect_eq(diag_errors(d), 1);
    free(said);
    fcpc_diagnostics_free(d);
}

Test(diag, hostile_line) {
    /* invalid UTF-8, control characters, a long line: nothing of it reaches the terminal raw */
    char bytes[5000];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 7 % 256 == '\n' ? 1 : i * 7 % 256);
    diags *d = fcpc_diagnostics_new();
    uint32_t s = diag_source(d, "x\x1b", bytes, sizeof bytes, false);
    for (uint32_t i = 0; i < 5000; i += 300) diag_error(d, FCP_E_LEX, (span){s, i, i + 10}, "here");
    char *said = fcpc_diagnostics_render(d, false);
    for (const unsigned char *c = (unsigned char *)said; *c; c++)
        cr_assert(*c >= 0x20 || *c == '\n' || *c == '\t', "byte %d", *c);
    cr_expect_lt(strlen(said), 17 * 600);
    free(said);
    fcpc_diagnostics_free(d);
}

Test(diag, nearest) {
    static const char *const names[] = {"heads", "kv_heads", "head_dim", "dtype", "scale", "q"};
    const struct {
        const char *name, *nearest;
    } cases[] = {{"haeds", "heads"},
                 {"head", "heads"},
                 {"kvheads", "kv_heads"},
                 {"headdim", "head_dim"},
                 {"dtpye", "dtype"},
                 {"zzz", NULL},
                 {"x", NULL},
                 {"", NULL},
                 {"sclae", "scale"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *found = diag_nearest(cases[i].name, strlen(cases[i].name), names, 6);
        if (cases[i].nearest) cr_expect_str_eq(found ? found : "none", cases[i].nearest, "%s", cases[i].name);
        else cr_expect_null(found, "%s", cases[i].name);
    }
    char longest[300];
    memset(longest, 'h', sizeof longest);
    cr_expect_null(diag_nearest(longest, sizeof longest, names, 6));
}

Test(diag, attach) {
    static const char program[] = "mask m = k <= q and k / 2 > n / 0\nplan { block = 2K }";
    diags *d = fcpc_diagnostics_new(), *other = fcpc_diagnostics_new();
    diag_source(d, "something else", "text", 4, false);
    fcpc_program *p = NULL;
    cr_assert_eq(fcpc_parse_text("a.fcp", program, sizeof program - 1, NULL, d, &p), FCP_OK);
    cr_expect_eq(program_attach(p, d), 1);
    cr_expect_eq(program_attach(p, other), 0);
    cr_expect_eq(program_attach(p, other), 0, "known already");
    diag_source(other, "x", "y", 1, false);
    cr_expect_eq(program_attach(p, other), 0, "known already");
    for (uint32_t i = 0; i < p->mask.count; i++) {
        span at = p->mask_spans[i];
        cr_assert_lt(at.source, p->source_count);
        cr_assert_leq(at.end, p->sources[at.source].size);
        cr_assert_lt(at.begin, at.end);
        if (p->mask.nodes[i].op == MC_DIV && p->mask.nodes[i].a != MC_NONE &&
            p->mask.nodes[p->mask.nodes[i].a].op == MC_N) {
            diag_error(other, FCP_E_MASK_DIV_ZERO, at, "here");
            char *said = fcpc_diagnostics_render(other, false);
            cr_expect_str_eq(said, "a.fcp:1:29: error[E310]: here\n    1 | mask m = k <= q and k / 2 > n / 0\n"
                                   "      |                             ^^^^^\n");
            free(said);
        }
    }
    cr_expect_eq(diag_errors(other), 1);
    cr_expect_eq(p->at[AT_BLOCK].source, 0);
    cr_expect(!memcmp(program + p->at[AT_BLOCK].begin, "2K", 2));
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    fcpc_diagnostics_free(other);
}

/* The window of a long line is widened to whole characters. Bytes that are none do not widen it without end. */
Test(diag, a_window_of_bytes_that_are_no_characters) {
    enum { LONG = 5000 };
    char bytes[LONG];
    memset(bytes, 0x80, sizeof bytes);
    diags *d = fcpc_diagnostics_new();
    const uint32_t number = diag_source(d, "bytes", bytes, sizeof bytes, false);
    for (uint32_t at = 0; at < LONG; at += 1249) {
        diag_error(d, FCP_E_LEX, (span){number, at, at + 1}, "here");
        diag_also(d, (span){number, at + 70, at + 90}, "and there");
    }
    char *said = fcpc_diagnostics_render(d, false);
    cr_assert_not_null(said);
    for (const char *line = said, *end; *line; line = end + 1) {
        end = strchr(line, '\n');
        cr_assert_lt(end - line, 200);
    }
    free(said);
    fcpc_diagnostics_free(d);
}
