/* test_fixes.c: tests quick fixes on all golden diagnostics: every hint "did you mean" gives one, and its edit takes the
 * error away. */
#include "tests/support/lsp_client.h"

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_parts.h"
#include "tests/support/diag_case.h"

/* Does this text have an error or warning with this message? */
static bool complains(const char *bytes, const char *message) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    bool found = false;
    fcpc_parse_text("/none/a.fcp", bytes, strlen(bytes), NULL, d, &p);
    for (size_t i = 0; i < fcpc_diagnostics_count(d); i++) {
        fcpc_diagnostic one;
        fcpc_diagnostics_get(d, i, &one);
        found |= !strcmp(one.message, message);
    }
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return found;
}

/* Makes the edit of an action to the text, and looks whether the error is gone. */
static void try_action(const json_reader *action, const char *bytes, const char *path) {
    json_reader r;
    text word = {0}, message = {0};
    lsp_position from, to;
    lsp_lines lines = {0};
    cr_assert(lsp_lines_make(&lines, bytes, strlen(bytes), LSP_UTF16));
    cr_assert(lsp_find(action, "edit.changes", &r) && json_enter(&r, '{') && json_more(&r, '}') && json_key(&r, &word));
    cr_expect_str_eq(word.at, CLIENT_URI);
    cr_assert(json_enter(&r, '[') && json_more(&r, ']'));
    cr_assert(lsp_find_position(&r, "range.start", &from) && lsp_find_position(&r, "range.end", &to) &&
              lsp_find_string(&r, "newText", &word));
    cr_assert(lsp_find(action, "diagnostics", &r) && json_enter(&r, '[') && lsp_find_string(&r, "message", &message));
    message.at[strcspn(message.at, "\n")] = 0;
    text fixed = {0};
    text_add(&fixed, bytes, lsp_lines_offset(&lines, from));
    text_puts(&fixed, word.at);
    text_puts(&fixed, bytes + lsp_lines_offset(&lines, to));
    text_add(&fixed, "", 1);
    cr_expect(complains(bytes, message.at), "%s: %s", path, message.at);
    cr_expect(!complains(fixed.at, message.at), "%s: still '%s' in\n%s", path, message.at, fixed.at);
    lsp_lines_free(&lines);
    text_free(&fixed);
    text_free(&word);
    text_free(&message);
}

/* How many actions there are for the whole text; tries each. */
static size_t try_actions(lsp_client *c, const char *bytes, const char *path) {
    client_say(c, "{'jsonrpc': '2.0', 'id': 7, 'method': 'textDocument/codeAction', 'params': {'textDocument': {'uri': "
                  "'" CLIENT_URI
                  "'}, 'range': {'start': {'line': 0, 'character': 0}, 'end': {'line': 99999, 'character': 0}}, "
                  "'context': {'diagnostics': [], 'only': ['quickfix']}}}");
    const char *body = strstr(c->heard.at, "{");
    json_reader r = {.begin = body, .at = body, .end = c->heard.at + c->heard.size}, result, next;
    text room = {0};
    size_t count = 0;
    cr_assert(lsp_find(&r, "result", &result) && json_enter(&result, '['), "%s", c->heard.at);
    for (; json_more(&result, ']'); count++, result = next) {
        next = result;
        cr_assert(json_skip(&next, &room));
        try_action(&result, bytes, path);
    }
    text_free(&room);
    return count;
}

Test(fixes, golden_hints) {
    struct dirent **entries = NULL;
    const int n = scandir(diag_case_folder, &entries, NULL, alphasort);
    size_t all = 0;
    for (int i = 0; i < n; i++) {
        diag_case c;
        const char *end = strrchr(entries[i]->d_name, '.');
        if (end && !strcmp(end, ".case")) {
            diag_case_read(entries[i]->d_name, &c);
            size_t hints = 0;
            for (const char *at = c.expected; (at = strstr(at, "hint: did you mean ")); at++) hints++;
            /* an error in another file is not mended here */
            const bool plain = strncmp(c.expected, "tests/", 6) && !c.options.define_count && !c.options.field_count &&
                               !c.options.lengths_file;
            if (hints && plain && !c.options.need_lengths) {
                lsp_client client = client_start("");
                char *bytes = strndup(c.program, c.size);
                client_open(&client, bytes);
                client_check(&client);
                const size_t fixes = try_actions(&client, bytes, c.path);
                cr_expect(fixes >= hints, "%s: %zu hints, %zu fixes", c.path, hints, fixes);
                all += fixes;
                free(bytes);
                client_end(&client);
            }
            diag_case_free(&c);
        }
        free(entries[i]);
    }
    free(entries);
    cr_expect(all > 25, "%zu fixes", all);
}

Test(fixes, only_what_is_asked_for) {
    lsp_client c = client_start("");
    client_open(&c, "plan { mask = cuasal }\n");
    client_check(&c);
    client_ask(&c, "codeAction", 0, 0,
               ", 'range': {'start': {'line': 0, 'character': 0}, 'end': {'line': 0, 'character': 5}}");
    CLIENT_EXPECT(&c, "\"result\": []");
    client_ask(&c, "codeAction", 0, 0,
               ", 'range': {'start': {'line': 0, 'character': 15}, 'end': {'line': 0, 'character': 15}}");
    CLIENT_EXPECT(&c, "\"newText\": \"causal\"");
    client_ask(&c, "codeAction", 0, 0,
               ", 'range': {'start': {'line': 0, 'character': 15}, 'end': {'line': 0, 'character': 15}}, "
               "'context': {'only': ['refactor']}");
    CLIENT_EXPECT(&c, "\"result\": []");
    client_ask(&c, "codeAction", 0, 0, "");
    CLIENT_EXPECT(&c, "-32602");
    /* of a call, which is wrong as a whole, the name alone is replaced */
    client_open(&c, "plan { mask = causal; strategy = fpc(coalesce = 2) }\n");
    client_check(&c);
    client_ask(&c, "codeAction", 0, 0,
               ", 'range': {'start': {'line': 0, 'character': 33}, 'end': {'line': 0, 'character': 33}}");
    CLIENT_EXPECT(&c, "\"start\": {\"line\": 0, \"character\": 33}, \"end\": {\"line\": 0, \"character\": 36}}, "
                      "\"newText\": \"fcp\"");
    client_end(&c);
}
