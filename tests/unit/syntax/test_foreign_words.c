/* test_foreign_words.c: tests the table of words of other projects (compiler/syntax/foreign_words.c). What it says is
 * to be written compiles; its words are none of ours; the table of grammar/LANGUAGE.md is made of it. GOLDEN_UPDATE=1
 * writes that. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/sema/strategies.h"
#include "compiler/syntax/foreign_words.h"
#include "compiler/syntax/words.h"
#include "grammar/prelude.h"

static const struct {
    unsigned place;
    const char *text;
} places[] = {{FCPC_FOREIGN_KEY, "a key"},
              {FCPC_FOREIGN_NAME, "a name in a mask"},
              {FCPC_FOREIGN_SCORE, "a score, or a name in one"},
              {FCPC_FOREIGN_PLAN, "the plan's mask"},
              {FCPC_FOREIGN_STRATEGY, "a strategy"},
              {FCPC_FOREIGN_ARGUMENT, "a parameter"},
              {FCPC_FOREIGN_VALUE, "a value"}};
enum { PLACES = sizeof places / sizeof *places };

/* What is to be written, with the examples in place; the caller frees it. */
static char *written(const foreign_word *h) {
    text t = {0};
    foreign_words_print(h, NULL, &t);
    text_puts(&t, "");
    char *line = text_take(&t);
    cr_assert_not_null(line);
    return line;
}

static bool compiles(const char *format, const char *what) {
    char program[2000];
    snprintf(program, sizeof program, format, what);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    const fcp_code code = fcpc_parse_text("a.fcp", program, strlen(program), NULL, d, &p);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return code == FCP_OK;
}

/* Does it compile where the word of that place stands? */
static bool fits(unsigned place, const char *what) {
    const bool in_plan = !strncmp(what, "plan", 4), with_batch = !strncmp(what, "batch", 5);
    switch (place) {
    case FCPC_FOREIGN_KEY:
        return compiles(strstr(what, "mask") || strstr(what, "slices") ? "%s" : "mask only = causal\n%s", what) ||
               (in_plan && compiles("mask only = causal\n%s", what)) ||
               (with_batch && compiles("mask only = causal\n%s", what)) || compiles("plan { mask = causal }\n%s", what);
    case FCPC_FOREIGN_NAME:
        return compiles("mask m = %s", what) || compiles("mask m = (%s) == 0", what) ||
               compiles("plan { mask = causal }\n%s", what) || compiles("mask only = causal\n%s", what);
    case FCPC_FOREIGN_SCORE:
        return compiles("score m = s + %s\nplan { mask = causal; score = m }", what) ||
               compiles("score m = %s\nplan { mask = causal; score = m }", what) ||
               compiles("mask only = causal\n%s", what);
    case FCPC_FOREIGN_PLAN: return compiles("plan { mask = %s }", what) || compiles("%s", what);
    case FCPC_FOREIGN_STRATEGY: return compiles("cluster { gpus = 8 }\nplan { mask = causal; strategy = %s }", what);
    default: return true;
    }
}

Test(foreign_words, what_is_to_be_written_compiles) {
    size_t tried = 0;
    for (size_t i = 0; foreign_words_get(i); i++) {
        const foreign_word *h = foreign_words_get(i);
        char *what = written(h);
        for (int p = 0; p < PLACES && *what; p++) {
            if (!(h->places & places[p].place)) continue;
            tried++;
            cr_expect(fits(places[p].place, what), "%s, where %s is %s", what, h->words, places[p].text);
        }
        cr_expect(*h->write || *h->why, "%s", h->words);
        free(what);
    }
    cr_expect_gt(tried, 60);
}

static bool is_prelude(const char *word) {
    for (unsigned i = 0; i < prelude_item_count; i++)
        if (!strcmp(prelude_items[i].name, word)) return true;
    return false;
}

static bool in_language(const char *word, int variables) {
    return words_find(words_variables, variables, word) >= 0 ||
           words_find(words_functions, SCORE_BUILTINS, word) >= 0 ||
           words_find(words_figures, MODEL_FIGURES, word) >= 0;
}

/* Is the word one of ours in this place, so that nobody would ask for it? */
static bool is_ours(unsigned place, const char *word) {
    switch (place) {
    case FCPC_FOREIGN_KEY:
        for (int k = 0; k < KEY_COUNT; k++)
            if (!strcmp(words_keys[k].name, word)) return true;
        return false;
    case FCPC_FOREIGN_NAME: return in_language(word, MASK_VARIABLES) || is_prelude(word);
    case FCPC_FOREIGN_SCORE: return in_language(word, SCORE_VARIABLES);
    case FCPC_FOREIGN_PLAN: return is_prelude(word);
    case FCPC_FOREIGN_STRATEGY: return words_find(strategy_names, STRATEGY_ANY, word) >= 0;
    default: return false;
    }
}

Test(foreign_words, words_are_found_in_their_row_and_are_none_of_ours) {
    size_t words = 0;
    for (size_t i = 0; foreign_words_get(i); i++) {
        const foreign_word *h = foreign_words_get(i);
        char list[500];
        cr_assert_lt(strlen(h->words), sizeof list);
        strcpy(list, h->words);
        for (char *word = strtok(list, " "); word; word = strtok(NULL, " ")) {
            words++;
            for (int p = 0; p < PLACES; p++) {
                const unsigned place = places[p].place;
                if (!(h->places & place)) continue;
                cr_expect(!is_ours(place, word), "%s is %s of ours", word, places[p].text);
                const foreign_word *found = foreign_words_find(word, place, NULL);
                while (place == FCPC_FOREIGN_ARGUMENT && found && found != h)
                    found = foreign_words_find(word, place, found);
                cr_expect(found == h, "%s stands in two rows", word);
            }
        }
    }
    cr_expect_gt(words, 150);
}

static void expect_hint(const char *word, unsigned place, const char *value, const char *expected) {
    char *said = fcpc_foreign_word(word, place, value);
    if (!expected) cr_expect_null(said, "%s", said);
    else cr_expect(said && !strncmp(said, expected, strlen(expected)), "%s: %s", word, said ? said : "nothing");
    free(said);
}

Test(foreign_words, the_users_number_or_list_takes_the_place_of_the_example) {
    const unsigned key = FCPC_FOREIGN_KEY;
    expect_hint("num_heads", key, "40", "write model { heads = 40 }");
    expect_hint("num_heads", key, "40.5", "write model { heads = 32 }");
    expect_hint("num_heads", key, "-1", "write model { heads = 32 }");
    expect_hint("num_heads", key, "x", "write model { heads = 32 }");
    expect_hint("num_heads", key, "", "write model { heads = 32 }");
    expect_hint("num_heads", key, "[40]", "write model { heads = 32 }");
    expect_hint("num_heads", key, NULL, "write model { heads = 32 }");
    expect_hint("softcap", key, "20", "write plan { score = softcap(c = 20.0) }");
    expect_hint("softcap", key, "20.5", "write plan { score = softcap(c = 20.5) }");
    expect_hint("alibi_slopes", key, "[0.5, 2]", "write model { table slopes = [0.5, 2] }");
    expect_hint("alibi_slopes", key, "[1, 2]", "write model { table slopes = [1, 2] }");
    expect_hint("cu_seqlens", key, "[0, 7]", "write batch { lengths = cumulative([0, 7]) }");
    expect_hint("cu_seqlens", key, "7", "write batch { lengths = cumulative([0, 3, 5, 10]) }");
    expect_hint("cu_seqlens", key, "[0, 1, 2, 3, 4, 5, 6, 7, 8]",
                "write batch { lengths = cumulative([0, 3, 5, 10]) }");
    expect_hint("window_size", key, "[128, 32]", "write plan { mask = window_both(l = 128, r = 32) }");
    expect_hint("window_size", key, "(128, 32)", "write plan { mask = window_both(l = 128, r = 32) }");
    expect_hint("window_size", key, " ( 4K ,0 )", "write plan { mask = window_both(l = 64, r = 0) }");
    expect_hint("window_size", key, "( 4K , 0 )", "write plan { mask = window_both(l = 4096, r = 0) }");
    expect_hint("window_size", key, "128", "write plan { mask = window_both(l = 128, r = 0) }");
    expect_hint("window_size", key, "[128, -1]", "write mask back = q - k <= 128: ");
    expect_hint("window_size", key, "(-1, 32)", "write mask ahead = k - q <= 32: ");
    expect_hint("window_size", key, "(-1, -1)", "write plan { mask = full }");
    expect_hint("window_size", key, "(None, None)", "write plan { mask = full }");
    expect_hint("window_size", key, "[-1, 0]", "write plan { mask = causal }");
    expect_hint("window_left", key, "-1", "write plan { mask = causal }");
    expect_hint("window_left", key, "31", "write plan { mask = window_both(l = 31, r = 0) }");
    static const char *const others[] = {"[128]",      "[1, 2, 3]", "(1, 2]", "[1, 2",  "[1, 2] ",
                                         "",           "x",         "1.5",    "[1, x]", "99999999999999999999",
                                         "9000000000G"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        expect_hint("window_size", key, others[i], "write plan { mask = window_both(l = 64, r = 0) }");
    expect_hint("dropout_p", key, "0.1", "there is no dropout");
    expect_hint("num_heads", FCPC_FOREIGN_PLAN, "40", NULL);
    expect_hint("num_head", key, NULL, NULL);
    expect_hint("num heads", key, NULL, NULL);
    expect_hint("", key, NULL, NULL);
}

/* --- the page ----------------------------------------------------------------------------------------------------- */

/* Adds code in a cell of a table. */
static void put_code(text *out, const char *code) {
    text_puts(out, "`");
    for (const char *c = code; *c; c++) text_printf(out, *c == '|' ? "\\%c" : "%c", *c);
    text_puts(out, "`");
}

static void put_table(text *out) {
    text_puts(out, "| there | as | here |\n|---|---|---|\n");
    for (size_t i = 0; foreign_words_get(i); i++) {
        const foreign_word *h = foreign_words_get(i);
        char list[500], *what = written(h);
        strcpy(list, h->words);
        text_puts(out, "| ");
        for (char *word = strtok(list, " "); word; word = strtok(NULL, " ")) {
            if (word != list) text_puts(out, " ");
            put_code(out, word);
        }
        if (*h->whose) text_printf(out, " (%s)", h->whose);
        text_puts(out, " | ");
        bool first = true;
        for (int p = 0; p < PLACES; p++) {
            if (!(h->places & places[p].place)) continue;
            text_printf(out, "%s%s", first ? "" : ", ", places[p].text);
            first = false;
        }
        text_puts(out, " | ");
        if (*what) put_code(out, what);
        text_printf(out, "%s%s |\n", *what && *h->why ? ": " : "", h->why);
        free(what);
    }
}

Test(foreign_words, the_page_has_the_table) {
    static const char path[] = "grammar/LANGUAGE.md", begin[] = "| there | as | here |\n";
    text page = {0}, made = {0};
    cr_assert_eq(text_read(&page, path, false, 1 << 20), 0, "%s: run from the top of the tree", path);
    char *old = text_take(&page), *at = old ? strstr(old, begin) : NULL;
    cr_assert_not_null(at, "%s has no table of words", path);
    const char *end = strstr(at, "|\n\n");
    cr_assert_not_null(end);
    put_table(&made);
    const size_t size = (size_t)(end + 2 - at);
    if (getenv("GOLDEN_UPDATE")) {
        FILE *f = fopen(path, "wb");
        cr_assert_not_null(f);
        fwrite(old, 1, (size_t)(at - old), f);
        fwrite(made.at, 1, made.size, f);
        fputs(end + 2, f);
        cr_assert_eq(fclose(f), 0);
    } else
        cr_expect(!made.failed && size == made.size && !memcmp(at, made.at, size),
                  "%s is not up to date: GOLDEN_UPDATE=1 make test T=test_foreign_words", path);
    free(old);
    text_free(&made);
}
