/* test_format.c: tests `fcpc fmt` on golden pairs of input and output, and on three properties of any program:
 * formatting a second time changes nothing, the syntax tree stays the same, and every comment is kept, in order. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/syntax/parse.h"
#include "compiler/fcpc.h"
#include "compiler/syntax/format.h"

/* NULL: it does not parse. */
static char *laid_out(const char *bytes, size_t size) {
    diags *d = fcpc_diagnostics_new();
    text out = {0};
    fcp_code code = format_source("a.fcp", bytes, size, d, &out);
    cr_assert_neq(code, FCP_E_INTERNAL, "%.*s", (int)size, bytes);
    cr_expect_eq(code != FCP_OK, diag_errors(d) > 0);
    char *made = code == FCP_OK ? text_take(&out) : NULL;
    cr_expect(made || !out.size);
    text_free(&out);
    fcpc_diagnostics_free(d);
    return made;
}

static void expect(const char *source, const char *expected) {
    char *made = laid_out(source, strlen(source));
    cr_assert_not_null(made, "%s", source);
    cr_expect_str_eq(made, expected);
    free(made);
}

/* The bytes of the string that begins here, quotes included. */
static size_t string_size(const char *at) {
    size_t size = 1;
    while (at[size] && !strchr("\"\n", at[size])) size += at[size] == '\\' && at[size + 1] ? 2 : 1;
    return size + (at[size] == '"');
}

/* The comments of a program, a line each. A '#' in a string begins none. */
static char *comments_of(const char *source) {
    text out = {0};
    for (const char *at = source; *(at += strcspn(at, "#\""));) {
        if (*at == '"') {
            at += string_size(at);
            continue;
        }
        size_t size = strcspn(at, "\n"), kept = size;
        while (kept && strchr(" \t\r", at[kept - 1])) kept--;
        text_add(&out, at, kept);
        text_puts(&out, "\n");
        at += size;
    }
    return text_take(&out);
}

/* Of a program that parses; says whether it does. */
static bool holds(const char *source) {
    char *once = laid_out(source, strlen(source));
    if (!once) return false;
    char *twice = laid_out(once, strlen(once)), *before = comments_of(source), *after = comments_of(once);
    cr_assert_not_null(twice, "%s", once);
    cr_expect_str_eq(once, twice, "not laid out for good:\n%s", source);
    cr_expect_str_eq(before, after, "comments:\n%s", source);
    free(once);
    free(twice);
    free(before);
    free(after);
    return true;
}

Test(format, statements) {
    expect("", "");
    expect("model{}", "model {\n}\n");
    expect("plan { mask=causal;block=2K }", "plan {\n    mask = causal\n    block = 2K\n}\n");
    expect("plan{mask=lambda( sink=64,window = 8K )}\nbatch{lengths=[1,2 x 3]}",
           "plan {\n    mask = lambda(sink = 64, window = 8K)\n}\n\nbatch {\n    lengths = [1, 2 x 3]\n}\n");
    expect("cluster { intra = 450GB/s\n\n\n\n memory = 0.5   GB\n\n}",
           "cluster {\n    intra = 450 GB/s\n\n    memory = 0.5 GB\n}\n");
    expect("plan { passes = forward ,\n backward }", "plan {\n    passes = forward, backward\n}\n");
}

Test(format, masks) {
    expect("mask a=k<=q\nmask b(w,v=-3)=a and(q- -k<w or not(k>v))",
           "mask a = k <= q\nmask b(w, v = -3) = a and (q - -k < w or not (k > v))\n");
    expect(
        "mask c(t)=f(q)==f (k) where{f(x)=x/t;g=- 1}\nmask d=true",
        "mask c(t) =\n    f(q) == f(k)\n    where {\n        f(x) = x / t\n        g = -1\n    }\n\nmask d = true\n");
    expect("mask e = ((q)) - (k) >= if q<3 then(4)else - 5", "mask e = ((q)) - (k) >= if q < 3 then (4) else -5\n");
    expect("mask f = a[q]==a [ k ]", "mask f = a[q] == a[k]\n");
}

Test(format, long_lines) {
    expect(
        "mask m(window = 4096, sink = 64, other = 128) = k <= q and (q - k < window or k < sink) and (q % other == 0 "
        "or k % other == 0) or q == k",
        "mask m(window = 4096, sink = 64, other = 128) =\n"
        "    k <= q and (q - k < window or k < sink) and (q % other == 0 or k % other == 0) or q == k\n");
    expect("mask m = aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa(x = 1) and bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb(y = 2) or "
           "cccccccccccccccccccccccccccccccccccccccc(z = 3) and ddddddddddddddddddd(q = 4)",
           "mask m =\n    aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa(x = 1) and bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb(y = 2)\n"
           "        or cccccccccccccccccccccccccccccccccccccccc(z = 3) and ddddddddddddddddddd(q = 4)\n");
    char source[4000] = "batch { lengths = [1";
    for (int i = 0; i < 300; i++) strcat(source, ",10000");
    strcat(source, "] }");
    char *made = laid_out(source, strlen(source));
    for (const char *at = made; *at; at += strcspn(at, "\n") + 1) cr_expect_leq(strcspn(at, "\n"), 110);
    free(made);
    holds(source);
}

Test(format, comments) {
    expect("# a\n\n\n# b\nmodel { # c\n # d\n heads = 4 # e\n kv_heads = 16 # f\n # g\n} # h\n# i",
           "# a\n\n# b\nmodel {  # c\n    # d\n    heads = 4      # e\n    kv_heads = 16  # f\n    # g\n}  # h\n# i\n");
    expect("mask m = k <= q # why\n and q - k < 3 # so\n",
           "mask m =\n    k <= q             # why\n        and q - k < 3  # so\n");
    expect("batch { lengths = [1, # one\n # two\n 2] }",
           "batch {\n    lengths = [1,  # one\n        # two\n        2]\n}\n");
    expect("plan { mask = full }# x\nmask a = true # y\n# z\nmask b = true",
           "plan {\n    mask = full\n}  # x\n\nmask a = true  # y\n# z\nmask b = true\n");
    expect("#only", "#only\n");
    expect("batch { lengths = file(\"a # b\") # c\n}", "batch {\n    lengths = file(\"a # b\")  # c\n}\n");
    expect("\xef\xbb\xbf# mark\r\nplan { mask = full }\r\n", "# mark\nplan {\n    mask = full\n}\n");
}

Test(format, wrong_programs) {
    cr_expect_null(laid_out("plan { mask = }", 15));
    cr_expect_null(laid_out("plan { mask = a", 15));
    char *made = laid_out("plan { maks = nothing }", 23); /* parses; what it means is not looked at */
    cr_expect_not_null(made);
    free(made);
}

static void file_holds(const char *path) {
    char *bytes = calloc(1, 1 << 18);
    FILE *f = fopen(path, "rb");
    cr_assert_not_null(f, "%s", path);
    size_t size = fread(bytes, 1, (1 << 18) - 1, f);
    fclose(f);
    char *end = strstr(bytes, "==========\n"); /* of a golden case */
    if (end) *end = 0;
    if (strlen(bytes) == size || end) holds(bytes);
    free(bytes);
}

Test(format, every_program_of_the_tree) {
    static const char *const folders[] = {"examples", "grammar", "tests/golden/diag", "fuzz/corpus/parse"};
    int files = 0;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        DIR *dir = opendir(folders[i]);
        cr_assert_not_null(dir, "run from the top of the tree");
        for (struct dirent *e; (e = readdir(dir));) {
            char path[600];
            snprintf(path, sizeof path, "%s/%s", folders[i], e->d_name);
            bool program = strstr(e->d_name, ".fcp") || strstr(e->d_name, ".case") || (i == 3 && *e->d_name != '.');
            if (program) file_holds(path), files++;
        }
        closedir(dir);
    }
    cr_expect_gt(files, 50);
}

/* Tokens of a program with comments, newlines and blank lines thrown between them, wherever a line may end. */
Test(format, random_layouts) {
    static const char *const words[] = {"mask", " m(", "w", "=", "3", ",", "v", "=", "-", "4", ") = ", "k", "<=", "q",
                                        " and ", "(", "q", "-", "k", "<", "w", "or ", "f(", "q", ",", "2K", ")", "==",
                                        "v", ")", " where ", "{", "f(", "a", ",", "b", ")", "=", "a", "+", "b", ";",
                                        "g", "=", "min(", "w", ",", "3", ")", "}"};
    uint64_t state = 1;
    int parsed = 0;
    for (int round = 0; round < 400; round++) {
        text source = {0};
        int depth = 0;
        for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
            text_puts(&source, words[i]);
            for (const char *c = words[i]; *c; c++) depth += *c == '(' ? 1 : *c == ')' ? -1 : 0;
            bool open = depth || strchr(",=({};", words[i][strlen(words[i]) - 1]) || strchr("ad or", words[i][0]);
            state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            unsigned draw = (unsigned)(state >> 60);
            if (open && draw < 3) text_puts(&source, draw == 0 ? " # c\n" : draw == 1 ? "\n# own\n\n" : "\n");
            else if (draw < 8) text_puts(&source, " ");
            else if (i == 0) text_puts(&source, " ");
        }
        char *whole = text_take(&source);
        parsed += holds(whole);
        free(whole);
    }
    cr_expect_gt(parsed, 100);
}
