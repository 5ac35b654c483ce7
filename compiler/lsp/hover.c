/* hover.c: says what the name under the cursor is: of a mask its definition, and how many pairs it allows in the batch;
 * of a key its value and meaning; of a parameter its value in this plan.
 *
 * Figures are those of the newest text, or none.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/lsp/lsp_names.h"
#include "compiler/lsp/lsp_parts.h"
#include "compiler/show/summary.h"
#include "grammar/prelude.h"

enum { SHOWN_MOST = 4000 }; /* bytes of a definition */

/* Adds bytes of a source as a block of code. */
static void add_code(text *out, const char *bytes, size_t size) {
    const bool cut = size > SHOWN_MOST;
    if (cut) size = SHOWN_MOST;
    while (cut && size && ((unsigned char)bytes[size] & 0xc0) == 0x80) size--;
    text_puts(out, "```fcp\n");
    text_add(out, bytes, size);
    text_puts(out, cut ? "\n...\n```\n" : "\n```\n");
}

static void add_statement(text *out, const lsp_tree *t, span name_at) {
    const span all = lsp_tree_statement(t, name_at);
    add_code(out, t->bytes + all.begin, all.end - all.begin);
}

/* A mask of the prelude, with the comment above it. */
static void add_given(text *out, const char *name) {
    for (unsigned i = 0; i < prelude_item_count; i++) {
        const prelude_item *item = &prelude_items[i];
        if (strcmp(item->name, name)) continue;
        size_t begin = item->begin, end = item->end;
        while (end > begin && strchr(" \n", fcpc_prelude[end - 1])) end--;
        for (size_t line = begin; line; begin = line) {
            do line--;
            while (line && fcpc_prelude[line - 1] != '\n');
            if (fcpc_prelude[line] != '#') break;
        }
        add_code(out, fcpc_prelude + begin, end - begin);
        return;
    }
}

/* Is it a call of that name: "lambda(sink = 64)", or the name alone? */
static bool calls(const char *call, const char *name) {
    const size_t size = strlen(name);
    return !strncmp(call, name, size) && (!call[size] || call[size] == '(');
}

static void add_pairs(text *out, const lsp_figures *f, const mask *m) {
    char number[SUMMARY_NUMBER];
    for (uint32_t i = 0; i < f->mask_count; i++) {
        const struct lsp_mask_figures *x = &f->masks[i];
        if (!calls(x->call, m->name)) continue;
        text_printf(out, "\n`%s` allows %s pairs of this batch, a density of %.3g %%", x->call,
                    summary_number(number, x->pairs, ""), 100 * x->density);
        if (f->mask_count > 1) text_printf(out, ", in %u layer%s", x->times, text_plural(x->times));
        text_puts(out, ".\n");
    }
}

/* The value that the plan gives a parameter: of window, in "lambda(sink = 64, window = 8192)", it is "8192". */
static void add_value(text *out, const lsp_figures *f, const lsp_name *n) {
    for (uint32_t i = 0; i < f->mask_count; i++) {
        const char *call = f->masks[i].call, *at = call + strlen(n->of->name);
        if (!calls(call, n->of->name)) continue;
        for (const size_t size = strlen(n->name); *at == '(' || *at == ',';) {
            at += *at == ',' ? 2 : 1;
            const bool found = !strncmp(at, n->name, size) && !strncmp(at + size, " = ", 3);
            const size_t length = strcspn(at, ",)");
            if (found) text_printf(out, "\nIn this plan it is `%.*s`.\n", (int)(length - size - 3), at + size + 3);
            at += length;
        }
    }
}

static void add_meaning(text *out, const lsp_name *n) {
    const meaning *row = lsp_meaning_of(n);
    if (!row) return;
    text_printf(out, "\n%s\n", row->text);
    if (*row->usual) text_printf(out, "\nDefault: %s\n", row->usual);
}

static void add_key(text *out, const lsp_name *n, const lsp_figures *f) {
    text_printf(out, "**%s**, a key of %s\n", n->name, words_sections[n->section]);
    add_meaning(out, n);
    if (n->key->value) {
        text_puts(out, "\nHere: `");
        ast_print_expr(n->key->value, out);
        text_puts(out, "`\n");
    }
    const key_id id = words_find_key(n->section, n->name);
    if (f->known && id == KEY_BLOCK && f->block_found) text_printf(out, "\nChosen: %u tokens\n", f->block);
    if (f->known && id == KEY_STRATEGY && f->strategy_found) text_printf(out, "\nChosen: %s\n", f->strategy);
}

static void describe(text *out, const lsp_tree *t, const lsp_figures *f, const lsp_name *n) {
    const char *kind = n->of && n->of->score ? "score" : "mask";
    switch (n->kind) {
    case NAME_SECTION:
        if (n->section == SECTION_COUNT) return;
        text_printf(out, "**%s**, a section. Its keys are:", n->name);
        for (int i = 0; i < KEY_COUNT; i++)
            if (words_keys[i].section == n->section) text_printf(out, " `%s`", words_keys[i].name);
        text_puts(out, "\n");
        return;
    case NAME_KEY:
        if (n->section == SECTION_COUNT || words_find_key(n->section, n->name) == KEY_COUNT) return;
        add_key(out, n, f);
        return;
    case NAME_ARRAY: add_statement(out, t, n->key->key_at); return;
    case NAME_MASK:
        if (n->of->builtin) add_given(out, n->name);
        else add_statement(out, t, n->of->name_at);
        add_meaning(out, n);
        add_pairs(out, f, n->of);
        return;
    case NAME_PARAM: {
        const arg *a = n->target;
        text_printf(out, "**%s**, a %sparameter of the %s %s", n->name,
                    a->as == IS_FIELD   ? "field that is a "
                    : a->as == IS_TABLE ? "table that is a "
                                        : "",
                    kind, n->of->name);
        if (a->value) {
            text_puts(out, "; its default is `");
            ast_print_expr(a->value, out);
            text_puts(out, "`");
        }
        text_puts(out, "\n");
        add_value(out, f, n);
        return;
    }
    case NAME_DEFINITION: add_statement(out, t, ((const definition *)n->target)->name_at); return;
    case NAME_INNER: text_printf(out, "**%s**, a parameter of %s\n", n->name, n->in->name); return;
    case NAME_VARIABLE:
    case NAME_FIGURE:
    case NAME_FUNCTION:
    case NAME_STRATEGY:
    case NAME_STRATEGY_PARAM:
    case NAME_LAYER:
    case NAME_LAYER_PARAM:
    case NAME_WORD:
        if (!lsp_meaning_of(n)) return;
        text_printf(out, "**%s**\n", n->name);
        add_meaning(out, n);
        return;
    default: return;
    }
}

void lsp_hover(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_tree *t;
    lsp_name n;
    text out = {0};
    lsp_document *doc = lsp_find_name(s, params, reply, &t, &n);
    if (!doc) return;
    describe(&out, t, &doc->figures, &n);
    const bool any = out.size || out.failed;
    char *said = any ? text_take(&out) : NULL;
    json *j = &reply->result;
    if (any && !said) j->out.failed = true;
    if (said) {
        json_object(j, NULL);
        json_object(j, "contents");
        json_string(j, "kind", "markdown");
        json_string(j, "value", said);
        json_end(j);
        lsp_json_range(j, "range", &doc->lines, n.at.begin, n.at.end);
        json_end(j);
    }
    free(said);
}
