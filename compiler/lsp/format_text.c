/* format_text.c: lays out a document as `fcpc fmt` does. */
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_parts.h"
#include "compiler/syntax/format.h"

/* Adds an edit that replaces bytes [begin, end) of the text. */
void lsp_json_edit(json *j, const lsp_lines *lines, size_t begin, size_t end, const char *new) {
    json_object(j, NULL);
    lsp_json_range(j, "range", lines, begin, end);
    json_string(j, "newText", new);
    json_end(j);
}

/* One edit replaces all lines between those that stay at the beginning and at the end, so that the cursor mostly stays
 * where it is. */
static void add_edit(const lsp_document *doc, const text *made, json *j) {
    const char *old = doc->lines.bytes, *new = made->at;
    const size_t old_size = doc->bytes.size, new_size = made->size;
    size_t begin = 0, same = 0;
    for (size_t i = 0; i < old_size && i < new_size && old[i] == new[i]; i++)
        if (old[i] == '\n') begin = i + 1;
    size_t most = (old_size < new_size ? old_size : new_size) - begin;
    for (size_t i = 1; i <= most && old[old_size - i] == new[new_size - i]; i++)
        if (i == most || old[old_size - i - 1] == '\n') same = i;
    text part = {0};
    text_add(&part, new + begin, new_size - same - begin);
    char *bytes = text_take(&part);
    if (!bytes) j->out.failed = true;
    else lsp_json_edit(j, &doc->lines, begin, old_size - same, bytes);
    free(bytes);
}

void lsp_format(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_document *doc = lsp_find_document(s, params, reply);
    diags *d = doc ? fcpc_diagnostics_new() : NULL;
    text made = {0};
    if (doc && !d) lsp_fail(reply, RPC_INTERNAL, "out of memory");
    if (d && format_source(doc->path, doc->lines.bytes, doc->bytes.size, d, &made)) {
        fcpc_diagnostic first = {.message = "out of memory"};
        if (fcpc_diagnostics_count(d)) fcpc_diagnostics_get(d, 0, &first);
        lsp_fail(reply, RPC_FAILED, "line %u: %s", first.line, first.message);
    } else if (d) {
        json_array(&reply->result, NULL);
        if (made.size != doc->bytes.size || (made.size && memcmp(made.at, doc->lines.bytes, made.size)))
            add_edit(doc, &made, &reply->result);
        json_end(&reply->result);
    }
    text_free(&made);
    fcpc_diagnostics_free(d);
}
