/* documents.c: keeps the texts that the editor has open, and parses them when somebody asks for their trees.
 *
 * Cost: an edit copies what is behind it, and maps the lines anew: O(text).
 */
#include "compiler/lsp/documents.h"

#include <stdlib.h>
#include <string.h>

#include "compiler/base/bisect.h"
#include "compiler/fcpc.h"
#include "fcp.tab.h"
#include "grammar/prelude.h"

/* --- URIs --------------------------------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Of "file:///a%20b" the path is "/a b". The host may also be this machine, "localhost". Escapes that make a NUL, or are
 * none, stay as they are. */
char *lsp_uri_path(const char *uri) {
    static const char scheme[] = "file://", here[] = "localhost";
    const char *at = uri;
    if (strncmp(at, scheme, sizeof scheme - 1)) return calloc(1, 1);
    at += sizeof scheme - 1;
    if (!strncmp(at, here, sizeof here - 1)) at += sizeof here - 1;
    char *path = *at == '/' ? malloc(strlen(at) + 1) : calloc(1, 1), *to = path;
    if (!path || *at != '/') return path;
    while (*at) {
        const int high = *at == '%' ? hex_digit(at[1]) : -1, low = high >= 0 ? hex_digit(at[2]) : -1;
        const bool escaped = low >= 0 && high * 16 + low;
        *to++ = escaped ? (char)(high * 16 + low) : *at;
        at += escaped ? 3 : 1;
    }
    *to = 0;
    return path;
}

/* --- texts -------------------------------------------------------------------------------------------------------- */

static void tree_free(lsp_tree *t) {
    if (!t) return;
    arena_free(&t->memory);
    fcpc_diagnostics_free(t->d);
    free(t);
}

void lsp_figures_free(lsp_figures *f) {
    arena_free(&f->memory);
    *f = (lsp_figures){0};
}

lsp_document *lsp_document_new(const char *uri, const char *bytes, size_t size, lsp_encoding encoding) {
    lsp_document *doc = calloc(1, sizeof *doc);
    if (!doc) return NULL;
    doc->uri = strdup(uri);
    doc->path = lsp_uri_path(uri);
    doc->lines.encoding = encoding;
    if (doc->uri && doc->path && lsp_document_edit(doc, 0, 0, bytes, size)) return doc;
    lsp_document_free(doc);
    return NULL;
}

void lsp_document_free(lsp_document *doc) {
    if (!doc) return;
    tree_free(doc->tree);
    fcpc_diagnostics_free(doc->d);
    lsp_figures_free(&doc->figures);
    lsp_lines_free(&doc->lines);
    text_free(&doc->bytes);
    free(doc->uri);
    free(doc->path);
    free(doc);
}

bool lsp_document_edit(lsp_document *doc, size_t begin, size_t end, const char *bytes, size_t size) {
    const char *old = doc->bytes.at ? doc->bytes.at : ""; /* a new document has no text */
    text new = {0};
    if (end < begin) end = begin;
    text_add(&new, old, begin);
    text_add(&new, bytes, size);
    text_add(&new, old + end, doc->bytes.size - end);
    if (new.failed) return text_free(&new), false;
    text_free(&doc->bytes);
    doc->bytes = new;
    tree_free(doc->tree);
    doc->tree = NULL;
    fcpc_diagnostics_free(doc->d);
    doc->d = NULL;
    doc->checked = false;
    lsp_figures_free(&doc->figures);
    return lsp_lines_make(&doc->lines, new.at ? new.at : "", new.size, doc->lines.encoding);
}

/* --- trees -------------------------------------------------------------------------------------------------------- */

static int compare_masks(const void *a, const void *b) {
    const mask *x = *(const mask *const *)a, *y = *(const mask *const *)b;
    const int order = strcmp(x->name, y->name);
    return order ? order : (x->name_at.begin > y->name_at.begin) - (x->name_at.begin < y->name_at.begin);
}

static bool sort_masks(lsp_tree *t) {
    for (const mask *m = t->program.masks; m; m = m->next) t->mask_count++;
    t->by_name = ARENA_NEW(&t->memory, const mask *, t->mask_count + 1);
    if (!t->by_name) return false;
    size_t i = 0;
    for (const mask *m = t->program.masks; m; m = m->next) t->by_name[i++] = m;
    if (i) qsort(t->by_name, i, sizeof *t->by_name, compare_masks);
    return true;
}

const mask *lsp_tree_own(const lsp_tree *t, const char *name) {
    size_t at = 0, end = t->mask_count;
    BISECT(at, end, i, strcmp(t->by_name[i]->name, name) < 0)
    return at < t->mask_count && !strcmp(t->by_name[at]->name, name) ? t->by_name[at] : NULL;
}

lsp_tree *lsp_document_tree(lsp_document *doc) {
    if (doc->tree) return doc->tree;
    lsp_tree *t = calloc(1, sizeof *t);
    if (!t) return NULL;
    t->prelude = UINT32_MAX;
    t->d = fcpc_diagnostics_new();
    t->source = t->d ? diag_source(t->d, doc->path, doc->lines.bytes, doc->bytes.size, false) : UINT32_MAX;
    if (t->source == UINT32_MAX || !parse_tokens(t->d, &t->memory, t->source, NULL, &t->program, &t->tokens) ||
        !sort_masks(t))
        return tree_free(t), NULL;
    const char *name;
    bool builtin;
    diag_source_get(t->d, t->source, &name, &t->bytes, &t->size, &builtin);
    return doc->tree = t;
}

mask *lsp_tree_given(lsp_tree *t, const char *name) {
    for (mask *m = t->given; m; m = m->next)
        if (!strcmp(m->name, name)) return m;
    const prelude_item *item = NULL;
    for (unsigned i = 0; i < prelude_item_count && !item; i++)
        if (!strcmp(prelude_items[i].name, name)) item = &prelude_items[i];
    if (item && t->prelude == UINT32_MAX)
        t->prelude = diag_source(t->d, "<prelude>", fcpc_prelude, fcpc_prelude_size, true);
    mask *m =
        item && t->prelude != UINT32_MAX ? parse_mask(t->d, &t->memory, t->prelude, item->begin, item->end) : NULL;
    if (!m) return NULL;
    m->builtin = true;
    m->next = t->given;
    return t->given = m;
}

size_t lsp_tree_token(const lsp_tree *t, size_t at) {
    size_t first = 0, end = t->tokens.count;
    BISECT(first, end, i, t->tokens.at[i].at.end <= at)
    return first;
}

static bool begins_statement(int kind) {
    return kind == T_MASK || kind == T_SCORE || kind == T_FIELD || kind == T_TABLE;
}

span lsp_tree_statement(const lsp_tree *t, span name_at) {
    const parsed_token *all = t->tokens.at;
    size_t first = lsp_tree_token(t, name_at.begin), last = first;
    if (first == t->tokens.count) return name_at;
    for (size_t i = first, depth = 0; i < t->tokens.count; i++) {
        const int kind = all[i].kind;
        if (kind == '(' || kind == '[' || kind == '{') depth++;
        else if (kind == ')' || kind == ']' || kind == '}') {
            if (!depth--) break;
        } else if ((kind == T_SEP || kind == T_END) && !depth) break;
        if (kind != T_SEP && kind != T_END) last = i;
    }
    if (first && begins_statement(all[first - 1].kind)) first--;
    return (span){t->source, all[first].at.begin, all[last].at.end};
}
