/* test_parse.c: tests the scanner, the token filter, the grammar and the printer: what lines mean, that printing a
 * printed text changes nothing, and that no bytes break them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/syntax/parse.h"
#include "compiler/fcpc.h"
#include "grammar/prelude.h"

/* Parses and prints; NULL when there are errors (how many: *errors). */
static char *reprint(const char *bytes, size_t size, size_t *errors) {
    diags *d = fcpc_diagnostics_new();
    arena a = {0};
    ast tree;
    text out = {0};
    char *printed = NULL;
    uint32_t number = diag_source(d, "input", bytes, size, false);
    cr_assert(parse_program(d, &a, number, NULL, &tree));
    if (errors) *errors = diag_errors(d);
    if (!diag_errors(d)) {
        ast_print(&tree, &out, NULL);
        printed = text_take(&out);
    } else {
        char *picture = fcpc_diagnostics_render(d, false);
        cr_assert_not_null(picture);
        free(picture);
    }
    arena_free(&a);
    fcpc_diagnostics_free(d);
    return printed;
}

static void expect_print(const char *source, const char *expected) {
    char *printed = reprint(source, strlen(source), NULL);
    cr_expect_str_eq(printed ? printed : "(error)", expected, "%s", source);
    free(printed);
}

/* The body of `mask m = ...` as printed. */
static void expect_body(const char *source, const char *expected) {
    char whole[1000], result[1000];
    snprintf(whole, sizeof whole, "mask m = %s", source);
    snprintf(result, sizeof result, "mask m = %s\n", expected);
    expect_print(whole, result);
}

Test(parse, newlines) {
    expect_print("plan {\n\n mask = a; ; block = 128 ;\n}\n\n", "plan {\n    mask = a\n    block = 128\n}\n");
    expect_print("plan { mask =\n\n a\n}", "plan {\n    mask = a\n}\n");
    expect_print("plan\n{\nmask = a(b =\n 3\n,\n c = 4)\n}", "plan {\n    mask = a(b = 3, c = 4)\n}\n");
    expect_print("batch { lengths = [1,\n2\n, 3 # comment\n] }", "batch {\n    lengths = [1, 2, 3]\n}\n");
    expect_print("plan { passes = forward,\n backward }", "plan {\n    passes = forward, backward\n}\n");
    expect_print("mask m = a and\nb\nmask o = a", "mask m = a and b\n\nmask o = a\n");
    expect_print("mask m = a\n  and b\n  or c\nmask o = if a\n then b\n else c",
                 "mask m = a and b or c\n\nmask o = if a then b else c\n");
    expect_print(
        "mask m =\n    a\n    where {\n b = 3\n\n c(t) = t }\nmask o = a\nwhere { d = 1; e = 2 }",
        "mask m =\n    a\n    where {\n        b = 3\n        c(t) = t\n    }\n\nmask o =\n    a\n    where {\n"
        "        d = 1\n        e = 2\n    }\n");
    expect_print("", "");
    expect_print("\n;;\n# nothing\n;", "");
    expect_print("\xef\xbb\xbfplan { mask = a }\r\n", "plan {\n    mask = a\n}\n");
}

Test(parse, precedence) {
    expect_body("a or b and not c < d + e * -f", "a or b and not c < d + e * -f");
    expect_body("((a or b)) and (not (c))", "(a or b) and not c");
    expect_body("(a - b) - c == a - (b - c)", "a - b - c == a - (b - c)");
    expect_body("a * (b / c) % d > -(-(e))", "a * (b / c) % d > --e");
    expect_body("(a < b) == (c < d)", "(a < b) == (c < d)");
    expect_body("a + if b then c else d + e", "a + (if b then c else d + e)");
    expect_body("if if a then b else c then d else if e then f else g",
                "if (if a then b else c) then d else if e then f else g");
    expect_body("(if a then b else c) or d", "(if a then b else c) or d");
    expect_body("not not a and -(a + b) < -a[3][q] + f(1, 2)[4]", "not not a and -(a + b) < -a[3][q] + f(1, 2)[4]");
    expect_body("(a or b)[3] == not c", "(a or b)[3] == (not c)");
    expect_body("rect(0..8, if a then b else c..4)", "rect(0..8, (if a then b else c)..4)");
}

Test(parse, numbers) {
    expect_body("64K + 3M + 1G + 007", "65536 + 3145728 + 1073741824 + 7");
    expect_print("cluster { intra = 450GB/s; inter = 50 GB/s; latency=3us; memory = 1.50 TB }",
                 "cluster {\n    intra = 450 GB/s\n    inter = 50 GB/s\n    latency = 3 us\n    memory = 1.50 TB\n}\n");
    expect_print("batch { lengths = [8192 x 32, 64K x n, (3) x (4), f(2) x 3] }",
                 "batch {\n    lengths = [8192 x 32, 65536 x n, 3 x 4, f(2) x 3]\n}\n");
    expect_body("k < 3 and q < 10 or s < 5 and x < B", "k < 3 and q < 10 or s < 5 and x < B");
    expect_body("if q < 3 then k < 4 else k < 5", "if q < 3 then k < 4 else k < 5");
    expect_print("model { scale = 0.25; a = 1.0e-3 }", "model {\n    scale = 0.25\n    a = 1.0e-3\n}\n");
}

Test(parse, words_are_names_where_they_can_be) {
    expect_print("mask mask(plan = 3, sink, x) = model < plan and x < sink\nplan { mask = mask(plan = 4, sink = 3, x = "
                 "2); score = field }",
                 "mask mask(plan = 3, sink, x) = model < plan and x < sink\n\nplan {\n    mask = mask(plan = 4, sink = "
                 "3, x = 2)\n"
                 "    score = field\n}\n");
    expect_print("batch { field field = file(\"a\\\"\\\\b\\tc\") }",
                 "batch {\n    field field = file(\"a\\\"\\\\b\\tc\")\n}\n");
}

/* Long chains cost no stack; nesting beyond the limit is an error, whatever it is made of. */
Test(parse, depth) {
    enum { CHAIN = 100000 };
    char *source = malloc(CHAIN * 16);
    const char *const links[] = {" + q", " and q", " < q + ",           "(",   "[", "not ", "- ", "if ",
                                 "f(",   "q[",     "if q then q else ", "a = "};
    for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
        size_t used = (size_t)sprintf(source, "mask m = k");
        if (l >= 2) used -= 1;
        for (int i = 0; i < CHAIN / 2; i++) used += (size_t)sprintf(source + used, "%s", links[l]);
        used += (size_t)sprintf(source + used, l >= 2 ? "k" : "");
        size_t errors;
        char *printed = reprint(source, used, &errors);
        if (l < 2) {
            cr_assert_not_null(printed);
            size_t again;
            char *twice = reprint(printed, strlen(printed), &again);
            cr_expect_str_eq(printed, twice);
            free(twice);
        } else cr_expect_gt(errors, 0, "%s", links[l]);
        free(printed);
    }
    /* exactly at the limit, and one more */
    for (int depth = 198; depth <= 202; depth++) {
        size_t used = (size_t)sprintf(source, "mask m = ");
        for (int i = 1; i < depth; i++) used += (size_t)sprintf(source + used, "not ");
        used += (size_t)sprintf(source + used, "q");
        size_t errors;
        char *printed = reprint(source, used, &errors);
        cr_expect_eq(errors, depth > NEST_MAX, "%d", depth);
        free(printed);
    }
    free(source);
}

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static const char sample[] =
    "# a comment\nmodel { heads = 64; kv_heads = 8 }\ncluster { nodes = 4; intra = 450 GB/s; latency = 3 us }\n"
    "batch { lengths = [131072, 8192 x 32, 1K x 64] }\nmask a(sink = 64, window) = causal and (k < sink or q - k < "
    "window)\n"
    "mask b(p = 20) =\n    causal and (k < x1 or part(q) == part(k))\n    where { x1 = n * p / 100\n"
    "            part(t) = min((t - x1) / max(1, n % 7), -3) }\nmask c = if q < k then not true else (q == k) != (h >= "
    "2)\n"
    "plan {\n    mask = a(window = 8192)\n    strategy = fcp(coalesce = 16, buffers = 3)\n    passes = forward, "
    "backward\n}\n";

/* Mutations of a good program: tokens and bytes deleted, doubled, swapped, replaced. Whatever still parses prints to a
 * fixed point; nothing crashes. */
Test(parse, mutations) {
    uint64_t state = 12345;
    static const char *const words[] = {"(",   ")",    "[",     "]",    "{",     "}",     "=",    "==", "<",  "and",
                                        "not", "if",   "then",  "else", "where", "mask",  "plan", "x",  "..", ",",
                                        ";",   "\n",   "\"a\"", "\"",   "3",     "0.5",   "7 GB", "#",  "-",  "*",
                                        "\0",  "\xff", "$",     "q",    "field", "score", "&&"};
    size_t good = 0, bad = 0;
    for (int round = 0; round < 20000; round++) {
        char bytes[3000];
        size_t size = sizeof sample - 1;
        memcpy(bytes, sample, size);
        for (unsigned edits = 1 + next(&state) % 4; edits; edits--) {
            size_t at = next(&state) % size, length = 1 + next(&state) % 8;
            if (at + length > size) length = size - at;
            switch (next(&state) % 4) {
            case 0:
                memmove(bytes + at, bytes + at + length, size - at - length);
                size -= length;
                break;
            case 1:
                memmove(bytes + at + length, bytes + at, size - at);
                size += length;
                break;
            case 2: bytes[at] = (char)next(&state); break;
            default: {
                const char *word = words[next(&state) % (sizeof words / sizeof *words)];
                size_t n = *word ? strlen(word) : 1;
                memmove(bytes + at + n, bytes + at, size - at);
                memcpy(bytes + at, word, n);
                size += n;
            }
            }
        }
        char *once = reprint(bytes, size, NULL);
        if (once) {
            char *twice = reprint(once, strlen(once), NULL);
            cr_assert_str_eq(twice ? twice : "(error)", once, "round %d", round);
            free(twice);
            good++;
        } else bad++;
        free(once);
    }
    cr_expect_gt(good, 1000);
    cr_expect_gt(bad, 1000);
}

/* Random tokens, and random bytes. */
Test(parse, noise) {
    uint64_t state = 99;
    for (int round = 0; round < 5000; round++) {
        char bytes[400];
        size_t size = next(&state) % sizeof bytes;
        bool ascii = round % 2;
        for (size_t i = 0; i < size; i++)
            bytes[i] =
                ascii ? "mask plan{}()[]=<>;,\n\n  q k+-*/%.0123KGx\"#andorif"[next(&state) % 50] : (char)next(&state);
        char *once = reprint(bytes, size, NULL);
        if (once) {
            char *twice = reprint(once, strlen(once), NULL);
            cr_assert_str_eq(twice ? twice : "(error)", once, "round %d", round);
            free(twice);
        }
        free(once);
    }
}

/* Every cut of a good program ends in an error or a program, never a hang. */
Test(parse, cut_short) {
    for (size_t size = 0; size < sizeof sample; size++) {
        char *copy = malloc(size ? size : 1); /* exact, so that a sanitizer sees reads past the end */
        memcpy(copy, sample, size);
        free(reprint(copy, size, NULL));
        free(copy);
    }
}

Test(parse, recovers_at_statements) {
    /* one error a line, each found */
    static const char source[] =
        "model { heads = = 3\n kv_heads = 8 9\n scale = )\n dtype = fp16 }\nmask a = q <\nmask b = k k\n"
        "mask c = (q < k\nplan { mask = a, ,\n block = [1\n}\n";
    size_t errors;
    cr_expect_null(reprint(source, sizeof source - 1, &errors));
    cr_expect_eq(errors, 8, "%zu", errors);
}

Test(parse, too_large) {
    size_t size = SOURCE_MAX + 1;
    char *source = malloc(size);
    memset(source, '\n', size);
    size_t errors;
    cr_expect_null(reprint(source, size, &errors));
    cr_expect_eq(errors, 1);
    free(source);
}

/* Plans store the canonical text without the batch, wherever the batch stands. */
Test(parse, the_batch_can_be_taken_out_of_the_text) {
    static const char *const cases[][2] = {
        {"batch { lengths = [1] }\nmask m = causal\nplan { mask = m }", "mask m = causal\nplan { mask = m }"},
        {"model { heads = 1 }\nmask m = causal\nbatch { lengths = [1, 2] }\nplan { mask = m }",
         "model { heads = 1 }\nmask m = causal\nplan { mask = m }"},
        {"batch { lengths = [1] }", ""},
        {"model { heads = 1 }\nbatch { lengths = [1] }", "model { heads = 1 }"},
        {"plan { mask = causal }", "plan { mask = causal }"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        text out[2] = {{0}, {0}};
        size_t batch[2][2];
        for (int n = 0; n < 2; n++) {
            diags *d = fcpc_diagnostics_new();
            arena a = {0};
            ast tree;
            uint32_t number = diag_source(d, "input", cases[i][n], strlen(cases[i][n]), false);
            cr_assert(parse_program(d, &a, number, NULL, &tree) && !diag_errors(d), "%s", cases[i][n]);
            ast_print(&tree, &out[n], batch[n]);
            arena_free(&a);
            fcpc_diagnostics_free(d);
        }
        const size_t *at = batch[0], without = out[0].size - (at[1] - at[0]);
        cr_assert_eq(batch[1][0], batch[1][1], "%s", cases[i][1]);
        cr_assert_eq(without, out[1].size, "%s", cases[i][0]);
        for (size_t k = 0; k < without; k++)
            cr_assert_eq(out[0].at[k < at[0] ? k : k + at[1] - at[0]], out[1].at[k], "%s", cases[i][0]);
        text_free(&out[0]);
        text_free(&out[1]);
    }
}

static char *print_mask(mask *m) {
    mask alone = *m;
    alone.next = NULL;
    const ast tree = {.masks = &alone, .last_mask = &alone};
    text out = {0};
    ast_print(&tree, &out, NULL);
    return text_take(&out);
}

/* Programs read single masks of the prelude, at the places that the build writes down. Read whole, the prelude has the
 * same masks, in the same order, with the same spans. */
Test(parse, the_prelude_is_read_mask_by_mask) {
    diags *d = fcpc_diagnostics_new();
    arena a = {0};
    ast tree;
    uint32_t number = diag_source(d, "<prelude>", fcpc_prelude, fcpc_prelude_size, true);
    cr_assert(parse_program(d, &a, number, NULL, &tree));
    unsigned count = 0;
    for (mask *m = tree.masks; m; m = m->next, count++) {
        cr_assert_lt(count, prelude_item_count, "%s is not listed", m->name);
        const prelude_item *item = &prelude_items[count];
        mask *alone = parse_mask(d, &a, number, item->begin, item->end);
        cr_assert(alone && !diag_errors(d), "%s", item->name);
        cr_expect_str_eq(item->name, m->name);
        cr_expect_eq(item->score, m->score, "%s", item->name);
        char *whole = print_mask(m), *part = print_mask(alone);
        cr_expect_str_eq(part, whole);
        free(whole);
        free(part);
        const span *const both[][2] = {{&m->name_at, &alone->name_at}, {&m->body->at, &alone->body->at}};
        for (int i = 0; i < 2; i++) cr_expect_arr_eq(both[i][0], both[i][1], sizeof(span), "%s", item->name);
        const definition *x = m->definitions, *y = alone->definitions;
        for (; x && y; x = x->next, y = y->next)
            cr_expect_arr_eq(&x->body->at, &y->body->at, sizeof(span), "%s", x->name);
        cr_expect(!x && !y, "%s", item->name);
    }
    cr_expect_eq(count, prelude_item_count);
    cr_expect_null(parse_mask(d, &a, number, prelude_items[0].begin, prelude_items[1].end), "two masks are not one");
    arena_free(&a);
    fcpc_diagnostics_free(d);
}
