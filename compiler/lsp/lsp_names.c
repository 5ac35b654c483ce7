/* lsp_names.c: walks over a syntax tree and finds what each name means, by the rules of compiler/sema/names.c.
 *
 * sema binds names too, but stops at the first part that has errors, and a text that is being written nearly always has
 * one. Here a name that means nothing is unknown, and the walk goes on.
 * Cost: a name takes as long as there are fields, and definitions in its mask.
 */
#include "compiler/lsp/lsp_names.h"

#include <string.h>

#include "compiler/sema/strategies.h"

/* In a section, what the names of a value are. */
typedef enum value_of {
    IN_MASK,
    PLACE_MASK,
    PLACE_LAYERS,
    PLACE_SCORE,
    PLACE_ARRAY,
    PLACE_STRATEGY,
    PLACE_WORD
} value_of;

typedef struct walk {
    lsp_tree *t;
    lsp_visit *visit;
    void *context;
    bool ended;
    const mask *m; /* whose names they are; NULL: in a section */
    const definition *def;
    const entry *key;
    value_of where;
} walk;

static void tell(walk *w, const lsp_name *n) { w->ended = w->ended || !w->visit(w->context, n); }

/* --- finding declarations ----------------------------------------------------------------------------------------- */

/* The mask or score of a name: the program's before the prelude's, and one of the kind that is asked for first. */
static const mask *visible_mask(lsp_tree *t, const char *name, bool score) {
    const mask *own = lsp_tree_own(t, name);
    if (own && own->score == score) return own;
    const mask *given = lsp_tree_given(t, name);
    return given && (!own || given->score == score) ? given : own;
}

static const entry *find_array(const lsp_tree *t, const char *name) {
    for (const section *x = t->program.sections; x; x = x->next)
        for (const entry *e = x->entries; e; e = e->next)
            if (e->as && !strcmp(e->key, name)) return e;
    return NULL;
}

static const arg *find_arg(const arg *list, const char *name) {
    while (list && (!list->name || strcmp(list->name, name))) list = list->next;
    return list;
}

static const definition *find_definition(const mask *m, const char *name) {
    const definition *d = m->definitions;
    while (d && strcmp(d->name, name)) d = d->next;
    return d;
}

/* The span is one of the text's, not of the prelude's. */
static span in_text(const lsp_tree *t, span at) { return at.source == t->source ? at : SPAN_NONE; }

static void mean_mask(const walk *w, const mask *m, lsp_name *out) {
    *out = (lsp_name){.kind = NAME_MASK, .target = m, .of = m, .declared = in_text(w->t, m->name_at)};
}

static void mean_array(const walk *w, const entry *e, lsp_name *out) {
    *out = (lsp_name){.kind = NAME_ARRAY, .target = e, .key = e, .declared = in_text(w->t, e->key_at)};
}

static void mean_param(const walk *w, const mask *m, const arg *a, lsp_name *out) {
    *out = (lsp_name){.kind = NAME_PARAM, .target = a, .of = m, .declared = in_text(w->t, a->name_at)};
}

/* What a name means in a mask or score. */
static void mean_in_mask(const walk *w, const char *name, lsp_name *out) {
    const mask *m = w->m;
    const arg *a;
    const definition *d;
    const entry *e;
    const mask *named;
    *out = (lsp_name){.declared = SPAN_NONE};
    if (words_find(words_variables, m->score ? SCORE_VARIABLES : MASK_VARIABLES, name) >= 0) out->kind = NAME_VARIABLE;
    else if (words_find(words_functions, m->score ? SCORE_BUILTINS : MASK_BUILTINS, name) >= 0)
        out->kind = NAME_FUNCTION;
    else if (w->def && (a = find_arg(w->def->params, name)))
        *out = (lsp_name){.kind = NAME_INNER, .target = a, .of = m, .in = w->def, .declared = a->name_at};
    else if ((a = find_arg(m->params, name))) mean_param(w, m, a, out);
    else if ((d = find_definition(m, name)))
        *out = (lsp_name){.kind = NAME_DEFINITION, .target = d, .of = m, .declared = d->name_at};
    else if ((e = find_array(w->t, name))) mean_array(w, e, out);
    else if ((named = visible_mask(w->t, name, m->score))) mean_mask(w, named, out);
    else if (words_find(words_figures, MODEL_FIGURES, name) >= 0) out->kind = NAME_FIGURE;
    else if (words_find(words_sources, SOURCE_COUNT, name) >= 0) out->kind = NAME_SOURCE;
}

/* Is it a kind of layers there, and no mask of the program that has this name? */
static bool is_layer(const walk *w, const char *name) {
    const mask *own = !w->m && w->where == PLACE_LAYERS ? lsp_tree_own(w->t, name) : NULL;
    return !w->m && w->where == PLACE_LAYERS && words_find(words_layers, LAYER_KINDS, name) >= 0 &&
           (!own || own->score);
}

/* What a name means in a value of a section. */
static void mean_in_section(const walk *w, const char *name, lsp_name *out) {
    const mask *m = NULL;
    const entry *e = NULL;
    *out = (lsp_name){.declared = SPAN_NONE, .kind = NAME_UNKNOWN};
    if (words_find(words_sources, SOURCE_COUNT, name) >= 0) out->kind = NAME_SOURCE;
    else if (is_layer(w, name)) out->kind = NAME_LAYER;
    else if (w->where == PLACE_MASK || w->where == PLACE_LAYERS || w->where == PLACE_SCORE) {
        if ((m = visible_mask(w->t, name, w->where == PLACE_SCORE))) mean_mask(w, m, out);
        else if (words_find(words_functions, MASK_BUILTINS, name) >= 0) out->kind = NAME_FUNCTION;
    } else if (w->where == PLACE_ARRAY) {
        if ((e = find_array(w->t, name))) mean_array(w, e, out);
    } else if (w->where == PLACE_STRATEGY && words_find(strategy_names, STRATEGY_ANY, name) >= 0)
        out->kind = NAME_STRATEGY;
    else out->kind = NAME_WORD;
    if (!out->key) out->key = w->key;
}

/* --- the walk ----------------------------------------------------------------------------------------------------- */

/* The name of a node, without parentheses around it, and the blanks and comments in these. */
static span name_span(const walk *w, const expr *e) {
    const span whole = e->kind == EXPR_CALL ? e->name_at : e->at;
    const char *bytes = whole.source == w->t->source ? w->t->bytes : NULL;
    size_t at = whole.begin;
    while (bytes && at < whole.end && strchr("( \t\r\n#", bytes[at]))
        at += bytes[at] == '#' ? strcspn(bytes + at, "\n") : 1;
    return (span){whole.source, (uint32_t)at, (uint32_t)(at + strlen(e->name))};
}

static void tell_use(walk *w, const expr *e) {
    lsp_name n;
    if (w->m) mean_in_mask(w, e->name, &n);
    else mean_in_section(w, e->name, &n);
    n.name = e->name;
    n.at = name_span(w, e);
    tell(w, &n);
}

static void walk_expr(walk *w, const expr *e);

/* The named arguments of a call are parameters of what it calls. In a section other arguments name fields and tables. */
static void walk_args(walk *w, const expr *call) {
    const value_of before = w->where;
    const mask *m = NULL;
    const bool layer = is_layer(w, call->name);
    if (!layer && (w->m || before == PLACE_MASK || before == PLACE_LAYERS || before == PLACE_SCORE))
        m = visible_mask(w->t, call->name, w->m ? w->m->score : before == PLACE_SCORE);
    const bool strategy = !w->m && before == PLACE_STRATEGY;
    if (!w->m) w->where = m ? PLACE_ARRAY : PLACE_WORD;
    for (const arg *a = call->args; a && !w->ended; a = a->next) {
        lsp_name n = {.declared = SPAN_NONE, .key = w->key};
        const arg *param = m && a->name ? find_arg(m->params, a->name) : NULL;
        if (param) mean_param(w, m, param, &n);
        else if (strategy) n.kind = NAME_STRATEGY_PARAM, n.strategy = call->name;
        else if (layer) n.kind = NAME_LAYER_PARAM;
        else if (a->name && m && m->score && !strcmp(a->name, words_variables[VARIABLE_S])) n.kind = NAME_VARIABLE;
        else if (!m) n.kind = NAME_WORD;
        n.name = a->name;
        n.at = a->name_at;
        if (a->name) tell(w, &n);
        walk_expr(w, a->value);
    }
    w->where = before;
}

static void walk_leaf(walk *w, const expr *e) {
    switch ((expr_kind)e->kind) {
    case EXPR_NAME: tell_use(w, e); break;
    case EXPR_CALL:
        tell_use(w, e);
        walk_args(w, e);
        break;
    case EXPR_UNARY:
    case EXPR_IF:
    case EXPR_INDEX:
    case EXPR_RANGE:
    case EXPR_REPEAT:
    case EXPR_ON:
    case EXPR_OVER:
    case EXPR_PAIR:
        walk_expr(w, e->a);
        walk_expr(w, e->b);
        walk_expr(w, e->c);
        if (e->kind == EXPR_INDEX) walk_expr(w, e->d);
        break;
    case EXPR_LIST:
    case EXPR_TUPLE:
        for (const arg *a = e->args; a; a = a->next) walk_expr(w, a->value);
        break;
    default: break;
    }
}

static void walk_expr(walk *w, const expr *e) {
    const expr *leaf = e;
    while (leaf && leaf->kind == EXPR_BINARY) leaf = leaf->a;
    if (!leaf || w->ended) return;
    walk_leaf(w, leaf);
    while (leaf != e && !w->ended) {
        leaf = leaf->up;
        walk_expr(w, leaf->b);
    }
}

static value_of place_of(section_id in, const char *key) {
    const key_id id = words_find_key(in, key);
    return id == KEY_MASK        ? PLACE_MASK
           : id == KEY_LAYERS    ? PLACE_LAYERS
           : id == KEY_SCORE     ? PLACE_SCORE
           : id == KEY_STRATEGY  ? PLACE_STRATEGY
           : id == KEY_DOCUMENTS ? PLACE_ARRAY
                                 : PLACE_WORD;
}

static void walk_section(walk *w, const section *x) {
    const section_id id = words_find_section(x->name);
    tell(w, &(lsp_name){.kind = NAME_SECTION, .name = x->name, .at = x->name_at, .declared = SPAN_NONE, .section = id});
    for (const entry *e = x->entries; e && !w->ended; e = e->next) {
        lsp_name n = {.kind = NAME_KEY, .key = e, .declared = SPAN_NONE};
        const entry *first = e->as ? find_array(w->t, e->key) : NULL;
        if (first) mean_array(w, first, &n);
        n.declares = first == e;
        n.section = id;
        n.name = e->key;
        n.at = e->key_at;
        tell(w, &n);
        w->key = e;
        w->where = e->as ? PLACE_WORD : place_of(id, e->key);
        walk_expr(w, e->value);
    }
    w->key = NULL;
}

static void declare(walk *w, lsp_kind kind, const char *name, span at, const void *target) {
    tell(w, &(lsp_name){.kind = kind,
                        .name = name,
                        .at = at,
                        .declares = true,
                        .target = target,
                        .declared = at,
                        .of = w->m,
                        .in = w->def});
}

static void walk_mask(walk *w, const mask *m) {
    w->m = m;
    declare(w, NAME_MASK, m->name, m->name_at, m);
    for (const arg *a = m->params; a; a = a->next) {
        declare(w, NAME_PARAM, a->name, a->name_at, a);
        walk_expr(w, a->value);
    }
    walk_expr(w, m->body);
    for (const definition *d = m->definitions; d && !w->ended; d = d->next) {
        declare(w, NAME_DEFINITION, d->name, d->name_at, d);
        w->def = d;
        for (const arg *a = d->params; a; a = a->next) declare(w, NAME_INNER, a->name, a->name_at, a);
        walk_expr(w, d->body);
        w->def = NULL;
    }
    w->m = NULL;
}

void lsp_each_name(lsp_tree *t, lsp_visit *visit, void *context) {
    walk w = {.t = t, .visit = visit, .context = context};
    for (const section *x = t->program.sections; x && !w.ended; x = x->next) walk_section(&w, x);
    for (const mask *m = t->program.masks; m && !w.ended; m = m->next) walk_mask(&w, m);
}

/* --- one name ----------------------------------------------------------------------------------------------------- */

typedef struct search {
    const lsp_tree *t;
    size_t at;
    bool found;
    lsp_name name;
} search;

static bool look(void *context, const lsp_name *n) {
    search *s = context;
    if (n->at.source != s->t->source || s->at < n->at.begin || s->at > n->at.end) return true;
    s->found = true;
    s->name = *n;
    return s->at == n->at.end; /* if another name begins right here, it is that one */
}

bool lsp_name_at(lsp_tree *t, size_t at, lsp_name *out) {
    search s = {.t = t, .at = at};
    lsp_each_name(t, look, &s);
    *out = s.name;
    return s.found;
}

/* --- meanings ----------------------------------------------------------------------------------------------------- */

/* Is the word one of those of a row: right behind a backquote? */
static bool has_word(const char *words, const char *word) {
    const size_t size = strlen(word);
    for (const char *at = words; (at = strchr(at, '`')); at++)
        if (!strncmp(at + 1, word, size) && at[1 + size] && strchr("`( ", at[1 + size])) return true;
    return false;
}

const meaning *lsp_meaning(const char *kind, const char *place, const char *word) {
    for (unsigned i = 0; i < language_meaning_count; i++) {
        const meaning *row = &language_meanings[i];
        if (!strcmp(row->kind, kind) && (!place || !strcmp(row->place, place)) && has_word(row->words, word))
            return row;
    }
    return NULL;
}

/* That of a parameter is the row whose strategies have it: "`fcp`, `cad`", or "all but `ulysses`". */
static const meaning *param_meaning(const char *strategy, const char *word) {
    const meaning *any = NULL;
    for (unsigned i = 0; i < language_meaning_count; i++) {
        const meaning *row = &language_meanings[i];
        if (strcmp(row->kind, "parameter") || !has_word(row->words, word)) continue;
        if (has_word(row->place, strategy) != !strncmp(row->place, "all", 3)) return row;
        any = row;
    }
    return any;
}

const meaning *lsp_meaning_of(const lsp_name *n) {
    const bool score = n->of && n->of->score;
    switch (n->kind) {
    case NAME_KEY: return n->section == SECTION_COUNT ? NULL : lsp_meaning("key", words_sections[n->section], n->name);
    case NAME_MASK: return n->of->builtin ? lsp_meaning(score ? "score of the prelude" : "mask", NULL, n->name) : NULL;
    case NAME_VARIABLE:
    case NAME_FIGURE: return lsp_meaning("name", NULL, n->name);
    case NAME_FUNCTION: return lsp_meaning("function", NULL, n->name);
    case NAME_STRATEGY: return lsp_meaning("strategy", NULL, n->name);
    case NAME_STRATEGY_PARAM: return param_meaning(n->strategy, n->name);
    case NAME_LAYER: return lsp_meaning("layer", NULL, n->name);
    case NAME_LAYER_PARAM: return lsp_meaning("parameter of a layer", NULL, n->name);
    case NAME_WORD: return lsp_meaning("parameter of `lognormal`", NULL, n->name);
    default: return NULL;
    }
}
