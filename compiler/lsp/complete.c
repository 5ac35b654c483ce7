/* complete.c: lists what may be written at the cursor, from the tables of the language and the names of the program. */
#include <stdlib.h>
#include <string.h>

#include "compiler/lsp/cursor.h"
#include "compiler/lsp/lsp_names.h"
#include "compiler/lsp/lsp_parts.h"
#include "compiler/sema/recurrent_layers.h"
#include "compiler/sema/strategies.h"
#include "grammar/prelude.h"
#include "runtime/plan/enum_names.h"

enum {
    ITEM_FUNCTION = 3,
    ITEM_FIELD = 5,
    ITEM_VARIABLE = 6,
    ITEM_MODULE = 9,
    ITEM_PROPERTY = 10,
    ITEM_VALUE = 12,
    ITEM_KEYWORD = 14
};

typedef struct offer {
    json *j;
    lsp_tree *t;
    const lsp_cursor *c;
} offer;

/* Adds an item. `insert` is what is written, and NULL if that is the label. */
static void add(const offer *o, const char *label, int kind, const char *detail, const meaning *row,
                const char *insert) {
    json *j = o->j;
    json_object(j, NULL);
    json_string(j, "label", label);
    json_i64(j, "kind", kind);
    if (detail) json_string(j, "detail", detail);
    if (insert) json_string(j, "insertText", insert);
    if (row) {
        json_object(j, "documentation");
        json_string(j, "kind", "markdown");
        json_string(j, "value", row->text);
        json_end(j);
    }
    json_end(j);
}

/* A key or an argument, with " = " behind it. */
static void add_setting(const offer *o, const char *name, int kind, const char *detail, const meaning *row) {
    text insert = {0};
    text_printf(&insert, "%s = ", name);
    char *written = text_take(&insert);
    add(o, name, kind, detail, row, written);
    free(written);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static void add_masks(const offer *o, bool score) {
    for (const mask *m = o->t->program.masks; m; m = m->next)
        if (m->score == score)
            add(o, m->name, ITEM_FUNCTION, score ? "score of this program" : "mask of this program", NULL, NULL);
    for (unsigned i = 0; i < prelude_item_count; i++) {
        const prelude_item *item = &prelude_items[i];
        if (item->score == score)
            add(o, item->name, ITEM_FUNCTION, score ? "score of the prelude" : "mask of the prelude",
                lsp_meaning(score ? "score of the prelude" : "mask", NULL, item->name), NULL);
    }
}

static void add_arrays(const offer *o) {
    for (const section *x = o->t->program.sections; x; x = x->next)
        for (const entry *e = x->entries; e; e = e->next)
            if (e->as) add(o, e->key, ITEM_FIELD, e->as == IS_FIELD ? "field" : "table", NULL, NULL);
}

static void add_params(const offer *o, bool score) {
    const mask *m = lsp_tree_own(o->t, o->c->call);
    if (!m) m = lsp_tree_given(o->t, o->c->call);
    if (!m || (m->score && !score) || o->c->argument[0]) return;
    for (const arg *a = m->params; a; a = a->next) {
        text detail = {0};
        text_printf(&detail, "parameter of %s", m->name);
        if (a->value) text_puts(&detail, ", default "), ast_print_expr(a->value, &detail);
        char *line = text_take(&detail);
        add_setting(o, a->name, ITEM_VARIABLE, line, NULL);
        free(line);
    }
}

static void add_words(const offer *o, const char *const *words, uint32_t count, int kind, const char *of) {
    for (uint32_t i = 0; i < count; i++)
        add(o, words[i], kind, NULL, of ? lsp_meaning(of, NULL, words[i]) : NULL, NULL);
}

static void add_body(const offer *o) {
    const bool score = o->c->score;
    static const char *const words[] = {"and", "or", "not", "if", "then", "else", "true", "false", "where"};
    if (o->c->call[0]) add_params(o, score);
    for (const char *at = NULL; (at = lsp_next_word(&o->c->names, at));)
        add(o, at, ITEM_VARIABLE, "of this definition", NULL, NULL);
    add_words(o, words_variables, score ? SCORE_VARIABLES : MASK_VARIABLES, ITEM_VARIABLE, "name");
    add_words(o, words_functions, score ? SCORE_BUILTINS : MASK_BUILTINS, ITEM_FUNCTION, "function");
    add_words(o, words_figures, MODEL_FIGURES, ITEM_VARIABLE, "name");
    add_arrays(o);
    add_masks(o, false);
    if (score) add_masks(o, true);
    add_words(o, words, sizeof words / sizeof *words, ITEM_KEYWORD, NULL);
}

/* --- sections ----------------------------------------------------------------------------------------------------- */

static bool is_set(const offer *o, const char *section_name, const char *key) {
    for (const section *x = o->t->program.sections; x; x = x->next)
        for (const entry *e = strcmp(x->name, section_name) ? NULL : x->entries; e; e = e->next)
            if (!e->as && !strcmp(e->key, key)) return true;
    return false;
}

static void add_keys(const offer *o) {
    const section_id in = words_find_section(o->c->section);
    for (int i = 0; i < KEY_COUNT; i++)
        if (words_keys[i].section == in && !is_set(o, o->c->section, words_keys[i].name))
            add_setting(o, words_keys[i].name, ITEM_PROPERTY, NULL,
                        lsp_meaning("key", o->c->section, words_keys[i].name));
    if (in == SECTION_BATCH) add(o, "field", ITEM_KEYWORD, "a number for each token", NULL, "field ");
    if (in == SECTION_MODEL) add(o, "table", ITEM_KEYWORD, "numbers that masks and scores read", NULL, "table ");
}

static bool is_key(const char *word, size_t size) {
    for (int i = 0; i < KEY_COUNT; i++)
        if (strlen(words_keys[i].name) == size && !memcmp(words_keys[i].name, word, size)) return true;
    return false;
}

/* The words in backquotes of a row's first sentence are the values of its key: "`own`: values are a tensor; `keys`: ...".
 */
static void add_values(const offer *o, const char *markdown, text *seen) {
    const char *stop_at = strstr(markdown, ". ");
    if (!stop_at) stop_at = markdown + strlen(markdown);
    for (const char *at = strchr(markdown, '`'), *end; at && at < stop_at && (end = strchr(at + 1, '`'));
         at = strchr(end + 1, '`'))
        for (const char *word = at + 1; word < end;) {
            const size_t size = strcspn(word, " ,`");
            const bool quoted = *word == '"', letters = *word >= 'a' && *word <= 'z';
            const size_t whole = letters ? strspn(word, "abcdefghijklmnopqrstuvwxyz_0123456789") : size;
            text one = {0};
            text_printf(&one, "%.*s", (int)size, word);
            char *label = text_take(&one);
            bool old = false;
            for (const char *s = NULL; label && (s = lsp_next_word(seen, s));) old |= !strcmp(s, label);
            if (label && !old && size && (quoted || letters) && whole == size && !is_key(word, size)) {
                add(o, label, ITEM_VALUE, NULL, NULL, NULL);
                text_add(seen, label, size + 1);
            }
            free(label);
            word += size + (word[size] != '`');
        }
}

static void add_strategy(const offer *o) {
    const char *names[STRATEGY_PARAMS];
    const int of = words_find(strategy_names, STRATEGY_ANY, o->c->call);
    if (of < 0) {
        add_words(o, strategy_names, STRATEGY_ANY, ITEM_VALUE, "strategy");
        return;
    }
    const uint32_t count = o->c->argument[0] ? 0 : strategy_param_names((uint32_t)of, names);
    for (uint32_t i = 0; i < count; i++) {
        const lsp_name name = {.kind = NAME_STRATEGY_PARAM, .name = names[i], .strategy = o->c->call};
        add_setting(o, names[i], ITEM_VARIABLE, NULL, lsp_meaning_of(&name));
    }
    const uint32_t found = strategy_find_param((uint32_t)of, o->c->argument);
    if (found == STRATEGY_PARAMS) return;
    const strategy_param *p = &strategy_params[found];
    static const char *const flags[] = {"true", "false"};
    if (p->kind == PARAM_FLAG) add_words(o, flags, 2, ITEM_VALUE, NULL);
    else if (p->words)
        add_words(o, p->words, p->kind == PARAM_WORD || p->kind == PARAM_SET ? p->most + 1 : 1, ITEM_VALUE, NULL);
}

/* The parameters of halo or scan, or the words that an argument takes. */
static void add_layer(const offer *o, uint32_t kind) {
    static const char *const flags[] = {"true", "false"};
    const char *const *names = kind == FCP_HALO ? sema_halo_params : sema_scan_params, *argument = o->c->argument;
    const int count = kind == FCP_HALO ? HALO_PARAMS : SCAN_PARAMS, given = words_find(names, count, argument);
    for (int i = 0; i < count && !argument[0]; i++)
        add_setting(o, names[i], ITEM_VARIABLE, NULL, lsp_meaning("parameter of a layer", NULL, names[i]));
    if (kind == FCP_SCAN && given == SCAN_DECAY) add_words(o, fcp_decay_names, FCP_DECAYS, ITEM_VALUE, NULL);
    if (kind == FCP_SCAN && given == SCAN_REVERSE) add_words(o, flags, 2, ITEM_VALUE, NULL);
}

static void add_source(const offer *o) {
    static const char *const given[] = {"over", "range"};
    const int source = words_find(words_sources, SOURCE_COUNT, o->c->call);
    if (source == SOURCE_LOGNORMAL && !o->c->argument[0])
        for (unsigned i = 0; i < language_meaning_count; i++) {
            const meaning *row = &language_meanings[i];
            if (strcmp(row->kind, "parameter of `lognormal`") != 0) continue;
            for (const char *at = row->words; (at = strchr(at, '`')); at = strchr(at + 1, '`') + 1) {
                text name = {0};
                text_printf(&name, "%.*s", (int)strcspn(at + 1, "`"), at + 1);
                char *label = text_take(&name);
                if (label) add_setting(o, label, ITEM_VARIABLE, NULL, row);
                free(label);
            }
        }
    if (source != SOURCE_GIVEN && source != SOURCE_FILE) return;
    if (!strcmp(o->c->argument, given[0])) add_words(o, words_over, OVER_COUNT, ITEM_VALUE, NULL);
    for (int i = 0; i < 2 && !o->c->argument[0]; i++) add_setting(o, given[i], ITEM_VARIABLE, NULL, NULL);
    if (!o->c->argument[0]) add(o, words_real, ITEM_VALUE, NULL, NULL, NULL);
}

static void add_value(const offer *o) {
    const key_id key = words_find_key(words_find_section(o->c->section), o->c->key);
    const bool masks = key == KEY_MASK || key == KEY_LAYERS, scores = key == KEY_SCORE;
    const meaning *row = lsp_meaning("key", o->c->section, o->c->key);
    text seen = {0};
    const mask *own = lsp_tree_own(o->t, o->c->call);
    const int layer =
        key == KEY_LAYERS && (!own || own->score) ? words_find(words_layers, LAYER_KINDS, o->c->call) : -1;
    if (key == KEY_STRATEGY) add_strategy(o);
    else if (layer >= 0) add_layer(o, (uint32_t)layer);
    else if ((masks || scores) && o->c->call[0]) {
        add_params(o, scores);
        add_arrays(o);
    } else if (masks || scores) {
        add_masks(o, scores);
        if (key == KEY_LAYERS) add_words(o, words_layers, LAYER_KINDS, ITEM_FUNCTION, "layer");
    } else if (o->c->call[0] && key == KEY_LAYOUT) add_setting(o, "group", ITEM_VARIABLE, NULL, NULL);
    else if (o->c->call[0]) add_source(o);
    else if (key == KEY_DOCUMENTS) add_arrays(o);
    else if (key == KEY_LENGTHS || key == KEY_COUNT) /* KEY_COUNT: the name of a field or table */
        add_words(o, words_sources, SOURCE_COUNT, ITEM_FUNCTION, NULL);
    else if (row) {
        add_values(o, row->text, &seen);
        add_values(o, row->usual, &seen);
    }
    text_free(&seen);
}

static void add_items(const offer *o) {
    for (int i = 0; i < SECTION_COUNT; i++) {
        const section *x = o->t->program.sections;
        while (x && strcmp(x->name, words_sections[i])) x = x->next;
        if (!x) add(o, words_sections[i], ITEM_MODULE, "section", NULL, NULL);
    }
    add(o, "mask", ITEM_KEYWORD, "mask name(parameters) = condition", NULL, "mask ");
    add(o, "score", ITEM_KEYWORD, "score name(parameters) = number", NULL, "score ");
}

void lsp_complete(lsp_server *s, const json_reader *params, lsp_reply *reply) {
    lsp_tree *t;
    size_t at;
    lsp_cursor c;
    lsp_document *doc = lsp_find_place(s, params, reply, &t, &at);
    if (!doc) return;
    if (!lsp_cursor_find(doc->lines.bytes, doc->bytes.size, at, &c)) lsp_fail(reply, RPC_INTERNAL, "out of memory");
    else {
        const offer o = {&reply->result, t, &c};
        json_array(o.j, NULL);
        if (c.place == CURSOR_ITEM) add_items(&o);
        else if (c.place == CURSOR_KEY) add_keys(&o);
        else if (c.place == CURSOR_VALUE) add_value(&o);
        else if (c.place == CURSOR_BODY) add_body(&o);
        json_end(o.j);
    }
    text_free(&c.names);
}
