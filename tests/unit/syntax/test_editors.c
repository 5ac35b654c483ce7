/* test_editors.c: tests that the editors' syntax files are those that grammar/editors/generate.c makes from the tables
 * of words, and that they have every word that the scanner knows. GOLDEN_UPDATE=1 writes them, as `make editors`
 * does. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int generate(int count, char **args);
#define main generate
#include "grammar/editors/generate.c"
#undef main

/* The words of a text that are separated by anything but letters, digits, '_' and '/'. */
static bool has_word(const char *all, const char *word) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_/";
    size_t size = strlen(word);
    for (const char *at = all; (at = strstr(at, word)); at++) {
        const bool escape = at > all + 1 && at[-1] == 'b' && at[-2] == '\\';
        if ((at == all || escape || !strchr(letters, at[-1])) && (!at[size] || !strchr(letters, at[size]))) return true;
    }
    return false;
}

static void expect_words(const char *made, const char *file) {
    for (int i = 0; i < KEYWORD_COUNT; i++)
        cr_expect(has_word(made, words_keywords[i].spelling), "%s: %s", file, words_keywords[i].spelling);
    for (int i = 0; i < KEY_COUNT; i++)
        cr_expect(has_word(made, words_keys[i].name), "%s: %s", file, words_keys[i].name);
    for (int i = 0; i < UNIT_COUNT; i++)
        cr_expect(has_word(made, words_units[i].spelling), "%s: %s", file, words_units[i].spelling);
    for (int i = 0; i < SCORE_BUILTINS; i++)
        cr_expect(has_word(made, words_functions[i]), "%s: %s", file, words_functions[i]);
    for (int i = 0; i < SOURCE_COUNT; i++)
        cr_expect(has_word(made, words_sources[i]), "%s: %s", file, words_sources[i]);
    for (int i = 0; i < LAYER_KINDS; i++) cr_expect(has_word(made, words_layers[i]), "%s: %s", file, words_layers[i]);
    for (int i = 0; i < SCORE_VARIABLES; i++)
        cr_expect(has_word(made, words_variables[i]), "%s: %s", file, words_variables[i]);
    for (int i = 0; i < OVER_COUNT; i++) cr_expect(has_word(made, words_over[i]), "%s: %s", file, words_over[i]);
    for (int i = 0; i < MODEL_FIGURES; i++)
        cr_expect(has_word(made, words_figures[i]), "%s: %s", file, words_figures[i]);
}

static void check_file(const char *path, void (*write)(text *out)) {
    text made = {0}, kept = {0};
    write(&made);
    cr_assert(!made.failed);
    if (getenv("GOLDEN_UPDATE")) {
        FILE *f = fopen(path, "wb");
        cr_assert(f && fwrite(made.at, 1, made.size, f) == made.size && !fclose(f));
    }
    cr_assert_eq(text_read(&kept, path, false, 1 << 20), 0, "%s: run from the top of the tree", path);
    const bool same = kept.size == made.size && !memcmp(kept.at, made.at, made.size);
    cr_assert(same, "%s is not up to date: make editors", path);
    char *whole = text_take(&made);
    expect_words(whole, path);
    free(whole);
    text_free(&kept);
}

Test(editors, vim) { check_file("grammar/editors/fcp.vim", write_vim); }

Test(editors, textmate) { check_file("grammar/editors/fcp.tmLanguage.json", write_textmate); }

Test(editors, codemirror) { check_file("grammar/editors/fcp.codemirror.js", write_codemirror); }

/* A keyword that the scanner knew by a rule of its own would be in no table. */
Test(editors, the_scanner_has_no_keywords_of_its_own) {
    text scanner = {0};
    cr_assert_eq(text_read(&scanner, "grammar/fcp.l", false, 1 << 20), 0);
    char *rules = text_take(&scanner);
    for (char *line = strtok(rules, "\n"); line; line = strtok(NULL, "\n"))
        cr_expect(!(line[0] == '"' && ((line[1] | 32) >= 'a' && (line[1] | 32) <= 'z')), "%s", line);
    free(rules);
}
