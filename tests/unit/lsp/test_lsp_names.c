/* test_lsp_names.c: tests what names mean to an editor: where they are declared and used, renaming them, what hovering
 * says, the outline and inlay hints.
 *
 * Renaming is tried on every name of every example: the compiler must accept the renamed program, which it would not if
 * a use were missed or too many were taken; and renaming back must give the old text. */
#include "tests/support/lsp_client.h"

#include <dirent.h>

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_names.h"
#include "compiler/lsp/lsp_parts.h"
#include "compiler/sema/recurrent_layers.h"
#include "compiler/sema/strategies.h"
#include "grammar/prelude.h"

/* line 0 on */
static const char program[] = "model   { heads = 4; kv_heads = 2; table near = [8, 16, 32, 64] }\n"
                              "cluster { nodes = 2; gpus = 4 }\n"
                              "batch   { lengths = [4096]; field doc = given; documents = doc }\n"
                              "mask own(w = 8, field d) = causal and left(q) <= (w) and d[q] == d[k]\n"
                              "    where { left(t) = t - k }\n"
                              "mask all(w) = own(w = w, d = doc) or q - k < near[h] # own\n"
                              "plan    { mask = all(w = 300); block = 512; strategy = fcp(coalesce = 2) }\n";
static const char plain[] =
    "batch { lengths = [4096] }\ncluster { gpus = 4; nodes = 2 }\nplan { mask = lambda(window = 512) }\n";

/* The place of the n-th word `word`, from 0, and more bytes on. */
static void place_of(const char *bytes, const char *word, int n, unsigned *line, unsigned *character) {
    const char *at = strstr(bytes, word);
    while (at && n--) at = strstr(at + 1, word);
    cr_assert_not_null(at, "%s", word);
    *line = *character = 0;
    for (const char *c = bytes; c < at; c++)
        if (*c == '\n') ++*line, *character = 0;
        else ++*character;
}

static void ask_at(lsp_client *c, const char *method, const char *bytes, const char *word, int n, const char *more) {
    unsigned line, character;
    place_of(bytes, word, n, &line, &character);
    client_ask(c, method, line, character, more);
}

static void expect_definition(lsp_client *c, const char *word, int n, unsigned line, unsigned character) {
    char found[80];
    snprintf(found, sizeof found, "\"start\": {\"line\": %u, \"character\": %u}", line, character);
    ask_at(c, "definition", program, word, n, "");
    CLIENT_EXPECT(c, found);
}

Test(names, definitions) {
    lsp_client c = client_start("");
    client_open(&c, program);
    expect_definition(&c, "all(w = 300)", 0, 5, 5);
    expect_definition(&c, "w = 300", 0, 5, 9); /* an argument: the parameter */
    expect_definition(&c, "own(w = w", 0, 3, 5);
    expect_definition(&c, "w = w", 0, 3, 9);
    expect_definition(&c, "w, d = doc", 0, 5, 9); /* the other w */
    expect_definition(&c, "w) and", 0, 3, 9);
    expect_definition(&c, "left(q)", 0, 4, 12);
    expect_definition(&c, "t - k", 0, 4, 17);
    expect_definition(&c, "doc }", 0, 2, 34);
    expect_definition(&c, "doc) or", 0, 2, 34);
    expect_definition(&c, "near[h]", 0, 0, 41);
    ask_at(&c, "definition", program, "causal", 0, "");
    CLIENT_EXPECT(&c, "\"result\": null");
    ask_at(&c, "definition", program, "# own", 0, "");
    CLIENT_EXPECT(&c, "\"result\": null");
    ask_at(&c, "references", program, "own(w = 8", 0, ", 'context': {'includeDeclaration': false}");
    CLIENT_EXPECT(&c, "\"line\": 5, \"character\": 14");
    CLIENT_EXPECT_NOT(&c, "\"line\": 3");
    client_end(&c);
}

Test(names, hover) {
    static const struct {
        const char *word;
        int n;
        const char *says;
    } cases[] = {
        {"heads", 0, "query heads, 1 to 4096\\u000a\\u000aDefault: 8\\u000a\\u000aHere: `4`"},
        {"block", 0, "tokens of a block"},
        {"all(w = 300)", 0, "mask all(w) = own(w = w, d = doc) or q - k < near[h]\\u000a```"},
        {"causal", 0, "mask causal = k <= q"},
        {"left(q)", 0, "```fcp\\u000aleft(t) = t - k\\u000a```"},
        {"w = w", 0, "a parameter of the mask own; its default is `8`"},
        {"d[q]", 0, "a field that is a parameter"},
        {"t - k", 0, "a parameter of left"},
        {"doc }", 0, "field doc = given"},
        {"near[h]", 0, "table near = [8, 16, 32, 64]"},
        {"fcp", 0, "blocks that are too heavy"},
        {"coalesce", 0, "rounds to a stage"},
        {"h]", 0, "the query head, from 0"},
        {"plan ", 0, "Its keys are: `mask` `layers`"},
        {NULL, 0, NULL},
    };
    lsp_client c = client_start("");
    client_open(&c, program);
    for (size_t i = 0; cases[i].says; i++) {
        ask_at(&c, "hover", program, cases[i].word, cases[i].n, "");
        CLIENT_EXPECT(&c, cases[i].says);
    }
    ask_at(&c, "hover", program, "300", 0, "");
    CLIENT_EXPECT(&c, "\"result\": null");
    client_end(&c);
}

/* Layers that recur are words of the language, unless a mask of the program has the name. */
Test(names, layers) {
    static const char layers[] = "plan { layers = [causal, scan(decay = vector) x 3, halo(before = 3)] }\n",
                      own[] = "mask scan(w = 3) = q - k < w\nplan { layers = [scan(w = 4)] }\n";
    lsp_client c = client_start("");
    client_open(&c, layers);
    ask_at(&c, "hover", layers, "scan", 0, "");
    CLIENT_EXPECT(&c, "**scan**\\u000a\\u000a");
    CLIENT_EXPECT(&c, "a state");
    ask_at(&c, "hover", layers, "decay", 0, "");
    CLIENT_EXPECT(&c, "**decay**");
    CLIENT_EXPECT(&c, "`matrix`");
    ask_at(&c, "hover", layers, "before", 0, "");
    CLIENT_EXPECT(&c, "**before**");
    ask_at(&c, "rename", layers, "halo", 0, ", 'newName': 'mine'");
    CLIENT_EXPECT(&c, "it is a word of the language");
    client_open(&c, own);
    ask_at(&c, "hover", own, "scan(w = 4", 0, "");
    CLIENT_EXPECT(&c, "mask scan(w = 3)");
    ask_at(&c, "definition", own, "w = 4", 0, "");
    CLIENT_EXPECT(&c, "\"start\": {\"line\": 0, \"character\": 10}");
    ask_at(&c, "rename", own, "scan", 0, ", 'newName': 'halo'");
    CLIENT_EXPECT(&c, "is a word of the language");
    client_end(&c);
}

/* Figures are of the newest text only. sum over q of min(q + 1, 64 + 512) pairs, by hand for 4096 tokens */
Test(names, figures) {
    const double pairs = 576.0 * 577 / 2 + (4096 - 576) * 576.0;
    char said[80];
    snprintf(said, sizeof said, "allows %.2f M pairs of this batch, a density of %.3g %%", pairs / 1e6,
             100 * pairs / (4096.0 * 4096));
    lsp_client c = client_start("'workspace': {'inlayHint': {'refreshSupport': true}}");
    client_open(&c, plain);
    const char *range = ", 'range': {'start': {'line': 0, 'character': 0}, 'end': {'line': 9, 'character': 0}}";
    client_ask(&c, "inlayHint", 0, 0, range);
    CLIENT_EXPECT(&c, "\"result\": []");
    client_check(&c);
    CLIENT_EXPECT(&c, "workspace/inlayHint/refresh");
    ask_at(&c, "hover", plain, "lambda", 0, "");
    CLIENT_EXPECT(&c, said);
    CLIENT_EXPECT(&c, "mask lambda(sink = 64, window = 4096) = causal");
    CLIENT_EXPECT(&c, "# attention sinks");
    ask_at(&c, "hover", plain, "window", 0, "");
    CLIENT_EXPECT(&c, "In this plan it is `512`");
    client_ask(&c, "inlayHint", 0, 0, range);
    CLIENT_EXPECT(&c, "\"position\": {\"line\": 1, \"character\": 18}, \"label\": \"8 ranks\"");
    CLIENT_EXPECT(&c, "\"position\": {\"line\": 2, \"character\": 34}, \"label\": \"2.19 M pairs, 13.1 %\"");
    CLIENT_EXPECT(&c, "predicted");
    CLIENT_EXPECT(&c, " blocks of ");
    client_ask(&c, "inlayHint", 0, 0,
               ", 'range': {'start': {'line': 0, 'character': 0}, 'end': {'line': 1, 'character': 0}}");
    CLIENT_EXPECT(&c, "\"result\": []");
    client_ask(&c, "inlayHint", 0, 0,
               ", 'range': {'start': {'line': 2, 'character': 0}, 'end': {'line': 3, 'character': 0}}");
    CLIENT_EXPECT_NOT(&c, "ranks");
    CLIENT_EXPECT(&c, "2.19 M pairs");
    client_open(&c, plain); /* a new text, not planned yet */
    ask_at(&c, "hover", plain, "lambda", 0, "");
    CLIENT_EXPECT_NOT(&c, "pairs");
    client_end(&c);
}

Test(names, outline) {
    lsp_client c = client_start("");
    client_open(&c, program);
    client_ask(&c, "documentSymbol", 0, 0, "");
    CLIENT_EXPECT(&c, "{\"name\": \"model\", \"kind\": 2, \"range\": {\"start\": {\"line\": 0, \"character\": 0}, "
                      "\"end\": {\"line\": 0, \"character\": 65}}");
    CLIENT_EXPECT(&c, "{\"name\": \"own\", \"kind\": 12, \"range\": {\"start\": {\"line\": 3, \"character\": 0}, "
                      "\"end\": {\"line\": 4, \"character\": 29}}, \"selectionRange\": {\"start\": {\"line\": 3, "
                      "\"character\": 5}");
    CLIENT_EXPECT(&c, "{\"name\": \"left\", \"kind\": 13");
    CLIENT_EXPECT(&c, "{\"name\": \"doc\", \"kind\": 8, \"range\": {\"start\": {\"line\": 2, \"character\": 28}");
    client_end(&c);
}

static void refuses(lsp_client *c, const char *word, const char *new, const char *why) {
    char more[80];
    snprintf(more, sizeof more, ", 'newName': '%s'", new);
    ask_at(c, "rename", program, word, 0, more);
    CLIENT_EXPECT(c, "-32803");
    CLIENT_EXPECT(c, why);
}

Test(names, rename_refused) {
    lsp_client c = client_start("");
    client_open(&c, program);
    refuses(&c, "own(w = 8", "all", "has a meaning already, in line 7");
    refuses(&c, "own(w = 8", "doc", "has a meaning already");
    refuses(&c, "own(w = 8", "left", "has a meaning already");
    refuses(&c, "own(w = 8", "window", "is a word of the language or its prelude");
    refuses(&c, "own(w = 8", "and", "is a word of the language");
    refuses(&c, "own(w = 8", "q", "is a word of the language");
    refuses(&c, "own(w = 8", "min", "is a word of the language");
    refuses(&c, "own(w = 8", "2a", "is no name");
    refuses(&c, "own(w = 8", "a b", "is no name");
    refuses(&c, "own(w = 8", "", "is no name");
    refuses(&c, "causal", "mine", "it is of the prelude");
    refuses(&c, "heads", "mine", "it is a word of the language");
    refuses(&c, "w = 8", "d", "has a meaning already");
    refuses(&c, "w = 8", "t", "has a meaning already");
    ask_at(&c, "rename", program, "w = 8", 0, ", 'newName': 'near_one'"); /* but not what another mask knows */
    CLIENT_EXPECT(&c, "\"newText\": \"near_one\"");
    ask_at(&c, "prepareRename", program, "causal", 0, "");
    CLIENT_EXPECT(&c, "\"result\": null");
    ask_at(&c, "prepareRename", program, "own", 0, "");
    CLIENT_EXPECT(&c, "\"start\": {\"line\": 3, \"character\": 5}");
    client_open(&c, "mask a = true\nmask b = = a\nplan { mask = a }\n");
    client_ask(&c, "rename", 0, 5, ", 'newName': 'c'");
    CLIENT_EXPECT(&c, "syntax errors");
    client_end(&c);
}

/* --- renaming in every example ------------------------------------------------------------------------------------ */

/* Makes the edits of a WorkspaceEdit, which come in any order but do not overlap. */
static char *edited(const lsp_client *c, const char *bytes, const char *path) {
    const char *body = strstr(c->heard.at, "{");
    json_reader r = {.begin = body, .at = body, .end = c->heard.at + c->heard.size}, list, next;
    text word = {0}, out = {0};
    lsp_lines lines = {0};
    const size_t size = strlen(bytes);
    bool *cut = calloc(size + 1, 1), *put = calloc(size + 1, 1);
    cr_assert(lsp_find(&r, "result.changes", &list), "%s: %s", path, c->heard.at);
    cr_assert(json_enter(&list, '{') && json_more(&list, '}') && json_key(&list, &word) && json_enter(&list, '['));
    cr_assert(lsp_lines_make(&lines, bytes, size, LSP_UTF16));
    for (; json_more(&list, ']'); list = next) {
        lsp_position from, to;
        next = list;
        cr_assert(json_skip(&next, &word));
        cr_assert(lsp_find_position(&list, "range.start", &from) && lsp_find_position(&list, "range.end", &to));
        const size_t begin = lsp_lines_offset(&lines, from), end = lsp_lines_offset(&lines, to);
        put[begin] = true;
        for (size_t i = begin; i < end; i++) {
            cr_expect(!cut[i], "%s: two edits of one byte", path);
            cut[i] = true;
        }
        cr_assert(lsp_find_string(&list, "newText", &word));
    }
    for (size_t i = 0; i < size; i++) {
        if (put[i]) text_puts(&out, word.at);
        if (!cut[i]) text_add(&out, bytes + i, 1);
    }
    lsp_lines_free(&lines);
    text_free(&word);
    free(cut);
    free(put);
    return text_take(&out);
}

typedef struct declared {
    span at[256];
    char name[256][64];
    size_t count;
} declared;

static bool note(void *context, const lsp_name *n) {
    declared *all = context;
    if (!n->declares || all->count == 256 || strlen(n->name) > 63) return true;
    all->at[all->count] = n->at;
    strcpy(all->name[all->count++], n->name);
    return true;
}

static bool compiles(const char *name, const char *bytes) {
    fcpc_program *p = NULL;
    const bool good = !fcpc_parse_text(name, bytes, strlen(bytes), NULL, NULL, &p);
    fcpc_program_free(p);
    return good;
}

/* Renames every name of the text and back. Returns how many names there were. */
static size_t rename_all(const char *path, const char *bytes) {
    lsp_client c = client_start("");
    declared all = {.count = 0};
    lsp_document *doc = lsp_document_new(CLIENT_URI, bytes, strlen(bytes), LSP_UTF16);
    lsp_each_name(lsp_document_tree(doc), note, &all);
    for (size_t i = 0; i < all.count; i++) {
        const lsp_position at = lsp_lines_position(&doc->lines, all.at[i].begin);
        char back[100];
        client_open(&c, bytes);
        client_ask(&c, "rename", at.line, at.character, ", 'newName': 'zz_new'");
        char *there = edited(&c, bytes, path);
        cr_expect(compiles(path, there), "%s: %s renamed:\n%s", path, all.name[i], there);
        unsigned line, character;
        place_of(there, "zz_new", 0, &line, &character);
        client_open(&c, there);
        snprintf(back, sizeof back, ", 'newName': '%s'", all.name[i]);
        client_ask(&c, "rename", line, character, back);
        if (client_hears(&c, "\"changes\"")) { /* a name of the prelude, or a word, may be left but not taken */
            char *again = edited(&c, there, path);
            cr_expect_str_eq(again, bytes);
            free(again);
        } else CLIENT_EXPECT(&c, "is a word of the language or its prelude");
        free(there);
    }
    lsp_document_free(doc);
    client_end(&c);
    return all.count;
}

static size_t rename_in_folder(const char *folder) {
    DIR *d = opendir(folder);
    size_t count = 0;
    cr_assert_not_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[600];
        const char *end = strrchr(e->d_name, '.');
        text bytes = {0};
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        if (!end || strcmp(end, ".fcp") || text_read(&bytes, path, true, 1 << 20)) continue;
        text_add(&bytes, "", 1);
        if (compiles(path, bytes.at)) count += rename_all(path, bytes.at);
        text_free(&bytes);
    }
    closedir(d);
    return count;
}

Test(names, rename_everything) {
    cr_expect_eq(rename_all("program", program), 9);
    text whole = {0};
    text_printf(&whole, "%s\nplan { mask = causal }\n", fcpc_prelude);
    cr_assert(compiles("prelude", whole.at));
    const size_t prelude = rename_all("prelude", whole.at), count = rename_in_folder("examples");
    cr_expect(prelude > 100 && count > 5, "%zu and %zu names", prelude, count);
    text_free(&whole);
}

/* --- meanings ----------------------------------------------------------------------------------------------------- */

/* LANGUAGE.md has a row for every key, strategy, parameter of one, variable, and mask of the prelude. */
Test(names, meanings) {
    for (int i = 0; i < KEY_COUNT; i++)
        cr_expect(lsp_meaning("key", words_sections[words_keys[i].section], words_keys[i].name), "%s",
                  words_keys[i].name);
    for (int i = 0; i < STRATEGY_ANY; i++) {
        const char *names[STRATEGY_PARAMS];
        cr_expect(lsp_meaning("strategy", NULL, strategy_names[i]), "%s", strategy_names[i]);
        const uint32_t count = strategy_param_names((uint32_t)i, names);
        for (uint32_t p = 0; p < count; p++) {
            const lsp_name n = {.kind = NAME_STRATEGY_PARAM, .name = names[p], .strategy = strategy_names[i]};
            cr_expect(lsp_meaning_of(&n), "%s of %s", names[p], strategy_names[i]);
        }
    }
    for (int i = 0; i < LAYER_KINDS; i++) cr_expect(lsp_meaning("layer", NULL, words_layers[i]), "%s", words_layers[i]);
    for (int kind = 0; kind < LAYER_KINDS; kind++)
        for (int i = 0; i < (kind == FCP_HALO ? HALO_PARAMS : SCAN_PARAMS); i++) {
            const char *name = kind == FCP_HALO ? sema_halo_params[i] : sema_scan_params[i];
            const meaning *row = lsp_meaning("parameter of a layer", NULL, name);
            cr_expect(row && strstr(row->place, words_layers[kind]), "%s", name);
        }
    for (int i = 0; i < SCORE_VARIABLES; i++) cr_expect(lsp_meaning("name", NULL, words_variables[i]));
    for (int i = 0; i < MASK_BUILTINS; i++) cr_expect(lsp_meaning("function", NULL, words_functions[i]));
    const lsp_name of[] = {{.kind = NAME_STRATEGY_PARAM, .name = "tolerance", .strategy = "cad"},
                           {.kind = NAME_STRATEGY_PARAM, .name = "tokens", .strategy = "groups"}};
    cr_expect_not_null(strstr(lsp_meaning_of(&of[0])->usual, "0.02"));
    cr_expect_not_null(strstr(lsp_meaning_of(&of[1])->text, "the most tokens of a rank"));
    for (unsigned i = 0; i < language_meaning_count; i++) {
        cr_expect(!strstr(language_meanings[i].text, "]("), "%s", language_meanings[i].text);
        cr_expect(strchr(language_meanings[i].words, '`'), "%s", language_meanings[i].words);
    }
}
