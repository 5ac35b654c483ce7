/* navigate.c: where a name is declared and used, the outline of a text, and renaming.
 *
 * Renaming changes every name that means the same. It is refused if the new name is a word of the language or already
 * has a meaning where the old one is known: then some name would mean something else afterwards.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/lsp/lsp_names.h"
#include "compiler/lsp/lsp_parts.h"
#include "grammar/prelude.h"

static void add_location(json *j, const lsp_document *doc, span at) {
    json_object(j, NULL);
    json_string(j, "uri", doc->uri);
    lsp_json_range(j, "range", &doc->lines, at.begin, at.end);
    json_end(j);
}

void lsp_definition(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_tree *t;
    lsp_name n;
    lsp_document *doc = lsp_find_name(s, params, reply, &t, &n);
    if (!doc || n.declared.source != t->source) return;
    json_array(&reply->result, NULL);
    add_location(&reply->result, doc, n.declared);
    json_end(&reply->result);
}

/* --- uses --------------------------------------------------------------------------------------------------------- */

typedef struct listing {
    const lsp_document *doc;
    json *j;
    const void *target;
    bool without_declaration;
    const char *new; /* an edit makes it this; NULL: no edits are listed, but places */
} listing;

static bool list_use(void *context, const lsp_name *n) {
    listing *l = context;
    if (n->target != l->target || (n->declares && l->without_declaration)) return true;
    if (l->new) lsp_json_edit(l->j, &l->doc->lines, n->at.begin, n->at.end, l->new);
    else add_location(l->j, l->doc, n->at);
    return true;
}

void lsp_references(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_tree *t;
    lsp_name n;
    lsp_document *doc = lsp_find_name(s, params, reply, &t, &n);
    if (!doc || !n.target) return;
    listing l = {doc, &reply->result, n.target, !lsp_find_bool(params, "context.includeDeclaration"), NULL};
    json_array(&reply->result, NULL);
    lsp_each_name(t, list_use, &l);
    json_end(&reply->result);
}

/* --- renaming ----------------------------------------------------------------------------------------------------- */

/* Why this name cannot be renamed; NULL: it can. */
static const char *why_fixed(const lsp_tree *t, const lsp_name *n) {
    if (n->of && n->of->builtin) return "it is of the prelude, which comes with the compiler";
    if (!n->target || n->declared.source != t->source) return "it is a word of the language";
    return NULL;
}

static bool is_name(const char *word) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_";
    return *word && strchr(letters, *word) &&
           !word[strspn(word, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")];
}

static bool is_word(const char *name) {
    for (unsigned i = 0; i < prelude_item_count; i++)
        if (!strcmp(prelude_items[i].name, name)) return true;
    return words_find_keyword(name, strlen(name)) || words_find_unit(name, strlen(name)) >= 0 ||
           words_find(words_variables, SCORE_VARIABLES, name) >= 0 ||
           words_find(words_functions, SCORE_BUILTINS, name) >= 0 ||
           words_find(words_sources, SOURCE_COUNT, name) >= 0 || words_find(words_layers, LAYER_KINDS, name) >= 0 ||
           words_find(words_figures, MODEL_FIGURES, name) >= 0 || words_find(words_over, OVER_COUNT, name) >= 0 ||
           !strcmp(name, words_real) || !strcmp(name, "x") || !strcmp(name, "on") || !strcmp(name, "over");
}

typedef struct clash {
    const lsp_name *old;
    const char *new;
    bool found;
    span at;
} clash;

static bool is_inside(const lsp_name *n) {
    return n->kind == NAME_PARAM || n->kind == NAME_DEFINITION || n->kind == NAME_INNER;
}

/* Two names clash if both are known in one place: those of different masks do not, nor do parameters of different
 * definitions. */
static bool find_clash(void *context, const lsp_name *n) {
    clash *c = context;
    const bool apart =
        is_inside(n) && is_inside(c->old) &&
        (n->of != c->old->of || (n->kind == NAME_INNER && c->old->kind == NAME_INNER && n->in != c->old->in));
    const bool other = n->kind == NAME_KEY || n->kind == NAME_SECTION || n->kind == NAME_WORD ||
                       n->kind == NAME_STRATEGY || n->kind == NAME_STRATEGY_PARAM || n->kind == NAME_LAYER_PARAM ||
                       n->kind == NAME_SOURCE;
    if (strcmp(n->name, c->new) || apart || other) return true;
    c->found = true;
    c->at = n->at;
    return false;
}

void lsp_prepare_rename(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_tree *t;
    lsp_name n;
    lsp_document *doc = lsp_find_name(s, params, reply, &t, &n);
    if (!doc || why_fixed(t, &n)) return;
    lsp_json_range(&reply->result, NULL, &doc->lines, n.at.begin, n.at.end);
}

void lsp_rename(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_tree *t;
    size_t at;
    lsp_name n;
    text new = {0};
    lsp_document *doc = lsp_find_place(s, params, reply, &t, &at);
    if (!doc) return;
    const bool named = lsp_find_string(params, "newName", &new), known = lsp_name_at(t, at, &n);
    const char *fixed = known ? why_fixed(t, &n) : NULL;
    clash c = {known ? &n : NULL, new.at, false, SPAN_NONE};
    if (!named) lsp_fail(reply, RPC_PARAMS, "newName is missing");
    else if (!known) lsp_fail(reply, RPC_FAILED, "there is no name here");
    else if (fixed) lsp_fail(reply, RPC_FAILED, "'%.80s' keeps its name: %s", n.name, fixed);
    else if (!is_name(new.at)) lsp_fail(reply, RPC_FAILED, "'%.80s' is no name: letters, digits and _", new.at);
    else if (is_word(new.at)) lsp_fail(reply, RPC_FAILED, "'%.80s' is a word of the language or its prelude", new.at);
    else if (lsp_each_name(t, find_clash, &c), c.found)
        lsp_fail(reply, RPC_FAILED, "'%.80s' has a meaning already, in line %u", new.at,
                 lsp_lines_position(&doc->lines, c.at.begin).line + 1);
    else if (diag_errors(t->d))
        lsp_fail(reply, RPC_FAILED, "the text has syntax errors, so not every use of '%.80s' is known", n.name);
    else {
        json *j = &reply->result;
        listing l = {doc, j, n.target, false, new.at};
        json_object(j, NULL);
        json_object(j, "changes");
        json_array(j, doc->uri);
        lsp_each_name(t, list_use, &l);
        for (int i = 0; i < 3; i++) json_end(j);
    }
    text_free(&new);
}

/* --- the outline -------------------------------------------------------------------------------------------------- */

enum { SYMBOL_MODULE = 2, SYMBOL_PROPERTY = 7, SYMBOL_FIELD = 8, SYMBOL_FUNCTION = 12, SYMBOL_VARIABLE = 13 };

/* Begins a symbol, whose children follow. Two json_end end it. */
static void begin_symbol(json *j, const lsp_document *doc, const lsp_tree *t, const char *name, int kind,
                         span name_at) {
    const span all = lsp_tree_statement(t, name_at);
    json_object(j, NULL);
    json_string(j, "name", name);
    json_i64(j, "kind", kind);
    lsp_json_range(j, "range", &doc->lines, all.begin, all.end);
    lsp_json_range(j, "selectionRange", &doc->lines, name_at.begin, name_at.end);
    json_array(j, "children");
}

static void end_symbol(json *j) {
    json_end(j);
    json_end(j);
}

void lsp_symbols(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_document *doc = lsp_find_document(s, params, reply);
    lsp_tree *t = doc ? lsp_document_tree(doc) : NULL;
    json *j = &reply->result;
    if (doc && !t) lsp_fail(reply, RPC_INTERNAL, "out of memory");
    if (!t) return;
    json_array(j, NULL);
    for (const section *x = t->program.sections; x; x = x->next) {
        begin_symbol(j, doc, t, x->name, SYMBOL_MODULE, x->name_at);
        for (const entry *e = x->entries; e; e = e->next) {
            begin_symbol(j, doc, t, e->key, e->as ? SYMBOL_FIELD : SYMBOL_PROPERTY, e->key_at);
            end_symbol(j);
        }
        end_symbol(j);
    }
    for (const mask *m = t->program.masks; m; m = m->next) {
        begin_symbol(j, doc, t, m->name, SYMBOL_FUNCTION, m->name_at);
        for (const definition *d = m->definitions; d; d = d->next) {
            begin_symbol(j, doc, t, d->name, SYMBOL_VARIABLE, d->name_at);
            end_symbol(j);
        }
        end_symbol(j);
    }
    json_end(j);
}
