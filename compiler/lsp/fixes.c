/* fixes.c: offers to write what an error suggests: "did you mean 'causal'?" becomes an edit.
 *
 * Requires: hints in these forms, of errors whose place begins with the word that is wrong. test_fixes holds every such
 *           hint of the golden files to it: the edit must take the error away.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_parts.h"

/* What the hint says to write, malloc'd; NULL: it is no such hint, or there is no memory. */
static char *suggested(const char *hint) {
    static const struct {
        const char *before, *after;
    } forms[] = {{"did you mean '", "'?"}, {"did you mean \"", "\"?"}, {"write ", " without quotes"}};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const size_t before = strlen(forms[i].before), after = strlen(forms[i].after), size = strlen(hint);
        if (size <= before + after || strncmp(hint, forms[i].before, before) ||
            strcmp(hint + size - after, forms[i].after))
            continue;
        const bool quoted = forms[i].after[0] == '"'; /* the quotes are part of what is to be written */
        return strndup(hint + before - quoted, size - before - after + (quoted ? 2 : 0));
    }
    return NULL;
}

/* The length of the word or string at the beginning of a place; 0: there is neither. */
static size_t word_size(const char *at, size_t left) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t size = 0;
    if (left && *at == '"') {
        const char *end = memchr(at + 1, '"', left - 1);
        return end ? (size_t)(end - at) + 1 : 0;
    }
    while (size < left && at[size] && strchr(letters, at[size])) size++;
    return size;
}

static void add_fix(const lsp_document *doc, size_t i, span at, const char *new, json *j) {
    text title = {0};
    const size_t size = word_size(doc->lines.bytes + at.begin, at.end - at.begin);
    text_printf(&title, "Write %s", new);
    char *said = size ? text_take(&title) : NULL;
    if (said) {
        json_object(j, NULL);
        json_string(j, "title", said);
        json_string(j, "kind", "quickfix");
        json_bool(j, "isPreferred", true);
        json_array(j, "diagnostics");
        lsp_json_diagnostic(doc, doc->d, i, j);
        json_end(j);
        json_object(j, "edit");
        json_object(j, "changes");
        json_array(j, doc->uri);
        lsp_json_edit(j, &doc->lines, at.begin, at.begin + size, new);
        for (int open = 0; open < 4; open++) json_end(j);
    }
    free(said);
    text_free(&title);
}

/* Does the editor ask for quick fixes, or for whatever there is? */
static bool wants_fixes(const json_reader *params) {
    json_reader r;
    text kind = {0};
    bool wanted = false;
    if (!lsp_find(params, "context.only", &r) || json_peek(&r) != '[') return true;
    json_enter(&r, '[');
    while (json_more(&r, ']') && json_read_string(&r, &kind)) wanted |= !*kind.at || !strcmp(kind.at, "quickfix");
    text_free(&kind);
    return wanted;
}

void lsp_fixes(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_position from, to;
    lsp_document *doc = lsp_find_document(s, params, reply);
    if (!doc) return;
    if (!lsp_find_position(params, "range.start", &from) || !lsp_find_position(params, "range.end", &to)) {
        lsp_fail(reply, RPC_PARAMS, "range is missing, or is none");
        return;
    }
    const size_t begin = lsp_lines_offset(&doc->lines, from), end = lsp_lines_offset(&doc->lines, to);
    const size_t count = doc->d && wants_fixes(params) ? fcpc_diagnostics_count(doc->d) : 0;
    json_array(&reply->result, NULL);
    for (size_t i = 0; i < count; i++) {
        const span at = diag_at(doc->d, i);
        span note_at;
        const char *note;
        if (!lsp_is_own(doc, doc->d, at) || at.begin > end || at.end < begin) continue;
        for (size_t n = 0; diag_note(doc->d, i, n, &note_at, &note); n++) {
            char *new = note_at.source == UINT32_MAX ? suggested(note) : NULL;
            if (new) add_fix(doc, i, at, new, &reply->result);
            free(new);
        }
    }
    json_end(&reply->result);
}
