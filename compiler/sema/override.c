/* override.c: applies the options -D path=value, --lengths FILE and --field NAME=FILE. It changes the tree, so that
 * every later step sees one program, and the canonical form shows what was set.
 *
 * A path names one of these:
 * - a key: plan.block
 * - a field or table: batch.doc
 * - an argument in the value of a key: plan.mask.window, plan.strategy.coalesce
 * - a default of a mask: lambda.window
 * A shorter path is allowed if it can mean only one thing: a key (block, mask.window), a parameter of the strategy
 * (coalesce), or a parameter of the plan's mask or of another mask of the program (window). If the default of a prelude
 * mask is set, that mask becomes the program's own. If two options set the same thing, the later one wins.
 *
 * Requires: the program parsed without an error.
 * Cost:     O(program) for each override.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/names.h"
#include "compiler/sema/override.h"
#include "compiler/sema/strategies.h"
#include "compiler/syntax/parse.h"
#include "grammar/prelude.h"

enum { PARTS = 4, CANDIDATES = 64, PARAMS = 2 * CANDIDATES, NAMES = 3 * CANDIDATES };
enum { LISTED = 16 }; /* more names than that are no help in a hint */

/* A path, cut into the names between its points. */
typedef struct path {
    const char *part[PARTS];
    span at[PARTS];
    uint32_t count;
    span whole;
} path;

/* Something that a path may mean. */
typedef struct target {
    enum { TO_KEY, TO_ARGUMENT, TO_DEFAULT, TO_ARRAY } kind;
    key_id key;         /* TO_KEY, TO_ARGUMENT */
    mask *mask;         /* TO_DEFAULT */
    entry *entry;       /* TO_ARRAY: of a field or table */
    const char *name;   /* of the argument or parameter */
    span at;            /* of the name in the path */
} target;

static section *find_section(const ast *a, section_id id) {
    for (section *x = a->sections; x; x = x->next)
        if (!strcmp(x->name, words_sections[id])) return x;
    return NULL;
}

/* The first entry of that key, or NULL. */
static entry *find_entry(const ast *a, section_id where, const char *key) {
    for (section *x = a->sections; x; x = x->next) {
        if (strcmp(x->name, words_sections[where])) continue;
        for (entry *e = x->entries; e; e = e->next)
            if (!e->as && !strcmp(e->key, key)) return e;
    }
    return NULL;
}

static entry *set_entry(sema *s, section_id where, key_id key, expr *value, span at) {
    const char *name = words_keys[key].name;
    entry *e = find_entry(&s->program, where, name);
    if (e) {
        e->value = value;
        e->key_at = at;
        return e;
    }
    section *x = find_section(&s->program, where);
    e = ARENA_ZNEW(s->scratch, entry, 1);
    if (!x && e) {
        x = ARENA_ZNEW(s->scratch, section, 1);
        if (x) {
            *x = (section){.name = words_sections[where], .name_at = at};
            if (s->program.last_section) s->program.last_section->next = x;
            else s->program.sections = x;
            s->program.last_section = x;
        }
    }
    if (!e || !x) {
        sema_no_memory(s);
        return NULL;
    }
    *e = (entry){.key = name, .key_at = at, .value = value};
    if (x->last) x->last->next = e;
    else x->entries = e;
    x->last = e;
    return e;
}

/* --- the path ----------------------------------------------------------------------------------------------------- */

static bool word_byte(char c, bool first) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

/* Cuts bytes [0, size) at the points. False: an error was reported. */
static bool cut(sema *s, uint32_t number, const char *bytes, uint32_t size, path *out) {
    *out = (path){.whole = {number, 0, size}};
    uint32_t i = 0;
    while (i < size && (bytes[i] == ' ' || bytes[i] == '\t')) i++;
    while (size > i && (bytes[size - 1] == ' ' || bytes[size - 1] == '\t')) size--;
    for (;; i++) {
        uint32_t begin = i;
        while (i < size && word_byte(bytes[i], i == begin)) i++;
        bool more = i < size && bytes[i] == '.';
        if (i == begin || (i < size && !more)) {
            span at = {number, i, i < size ? i + 1 : i};
            diag_error(s->d, FCP_E_SYNTAX, at, "expected %s", i == begin ? "a name" : "'.' or '='");
            diag_hint(s->d, "an override is path=value: plan.block=2K, plan.mask.window=8K, lambda.window=8K");
            return false;
        }
        if (out->count == PARTS) {
            diag_error(s->d, FCP_E_UNKNOWN_NAME, out->whole, "a path of more than %d names", PARTS);
            return false;
        }
        out->at[out->count] = (span){number, begin, i};
        out->part[out->count] = arena_copy(s->scratch, bytes + begin, i - begin);
        if (!out->part[out->count++]) {
            sema_no_memory(s);
            return false;
        }
        if (!more) return true;
    }
}

/* --- what a path means -------------------------------------------------------------------------------------------- */

/* Finds a mask or score by name: the program's, or a copy of the prelude's. It compares all names one by one, because
 * at this step no table of names has been made yet. */
static mask *find_mask(sema *s, const char *name, mask_kind kind) {
    for (mask *m = s->program.masks; m; m = m->next)
        if ((kind == KIND_ANY || m->score == (kind == KIND_SCORE)) && !strcmp(m->name, name)) return m;
    return sema_copy_given(s, name, kind);
}

/* The mask that the plan calls: the one that its key names, else the program's only one; NULL: none. */
static mask *plan_mask(sema *s) {
    const entry *e = find_entry(&s->program, SECTION_PLAN, "mask");
    if (e)
        return e->value->kind == EXPR_NAME || e->value->kind == EXPR_CALL ? find_mask(s, e->value->name, KIND_MASK)
                                                                          : NULL;
    mask *only = NULL;
    for (mask *m = s->program.masks; m; m = m->next) {
        if (m->score) continue;
        if (only) return NULL;
        only = m;
    }
    return only;
}

/* The score that the plan calls; NULL: none. */
static mask *plan_score(sema *s) {
    const entry *e = find_entry(&s->program, SECTION_PLAN, "score");
    if (!e || (e->value->kind != EXPR_NAME && e->value->kind != EXPR_CALL)) return NULL;
    return find_mask(s, e->value->name, KIND_SCORE);
}

/* Returns the number of the strategy that an expression calls, or that of the usual strategy if the expression is no
 * call of one. */
static uint32_t strategy_called(const expr *call) {
    bool named = call && (call->kind == EXPR_NAME || call->kind == EXPR_CALL);
    for (uint32_t i = 0; named && i < STRATEGY_ANY; i++)
        if (!strcmp(call->name, strategy_names[i])) return i;
    return STRATEGY_USUAL;
}

static bool has_argument(const expr *call, const char *name) {
    const arg *a = call->kind == EXPR_CALL ? call->args : NULL;
    while (a && (!a->name || strcmp(a->name, name))) a = a->next;
    return a;
}

/* Returns the call that an override of parameter `name` changes, if the value is a sum of two strategies. In
 * ulysses(inside = 4) + fcp(buffers = 2), `buffers` goes to the right one, because it is given there. So does
 * `coalesce`, because the left one has no such parameter. All others go to the left one. */
static expr *strategy_call(expr *value, const char *name) {
    if (value->kind != EXPR_BINARY) return value;
    const bool left = strategy_find_param(strategy_called(value->a), name) < STRATEGY_PARAMS,
               right = strategy_find_param(strategy_called(value->b), name) < STRATEGY_PARAMS;
    return has_argument(value->b, name) || (right && !left) ? value->b : value->a;
}

/* Returns the strategy to which a parameter of this name belongs, if it is one of the program's strategy. In a sum of
 * two strategies it is one of the two (strategy_call). */
static uint32_t plan_strategy(sema *s, const char *name) {
    const entry *e = find_entry(&s->program, SECTION_PLAN, "strategy");
    return strategy_called(e ? strategy_call(e->value, name) : NULL);
}

static const arg *find_param(const mask *m, const char *name) {
    const arg *a = m ? m->params : NULL;
    while (a && strcmp(a->name, name)) a = a->next;
    return a;
}

/* Adds a hint if the path ends with a word of another project: model { heads = 32 } as -D model.heads=32. False: it
 * does not. */
static bool hint_foreign(sema *s, span at, const char *name) {
    const char *source, *bytes;
    size_t size;
    bool builtin;
    diag_source_get(s->d, at.source, &source, &bytes, &size, &builtin);
    text given = {0};
    const char *equals = memchr(bytes, '=', size);
    if (equals) text_add(&given, equals + 1, size - (size_t)(equals + 1 - bytes));
    char *value = text_take(&given), *said = fcpc_foreign_word(name, FCPC_FOREIGN_KEY, value);
    free(value);
    if (!said) return false;
    /* "write SECTION { KEY = VALUE }", and perhaps a remark */
    const char *where = said + strcspn(said, " ") + 1, *key = strstr(said, " { "),
               *is = key ? strstr(key, " = ") : NULL, *end = is ? strstr(is, " }") : NULL;
    const bool one = end && !strncmp(said, "write ", 6) && key < is && !memchr(is, ';', (size_t)(end - is)) &&
                     !memchr(key + 3, ' ', (size_t)(is - key - 3));
    if (one)
        diag_hint(s->d, "write -D '%.*s.%.*s=%.*s'%s", (int)(key - where), where, (int)(is - key - 3), key + 3,
                  (int)(end - is - 3), is + 3, end + 2);
    else diag_hint(s->d, "%s", said);
    free(said);
    return true;
}

static void unknown(sema *s, span at, const char *what, const char *name, const char *const *names, size_t count) {
    diag_error(s->d, FCP_E_UNKNOWN_NAME, at, "%s '%s'", what, name);
    if (hint_foreign(s, at, name)) return;
    const char *nearest = diag_nearest(name, strlen(name), names, count);
    if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    if (nearest || !count || count > LISTED) return;
    text list = {0};
    for (size_t i = 0; i < count; i++) text_printf(&list, "%s%s", i ? ", " : "", names[i]);
    char *line = text_take(&list);
    if (line) diag_hint(s->d, "the names are: %s", line);
    free(line);
}

/* The declaration of a field or table in section `where` (SECTION_COUNT: in any); NULL: none. */
static entry *find_declared(const sema *s, section_id where, const char *name) {
    for (section *x = s->program.sections; x; x = x->next)
        for (entry *e = x->entries; e; e = e->next)
            if (e->as && !strcmp(e->key, name) && (where == SECTION_COUNT || words_find_section(x->name) == where))
                return e;
    return NULL;
}

/* Finds the target of a path to an argument in the value of a key. Masks, scores, strategies and layouts have
 * arguments. */
static bool argument_target(sema *s, key_id key, const char *name, span at, target *out) {
    *out = (target){.kind = TO_ARGUMENT, .key = key, .name = name, .at = at};
    if (key == KEY_STRATEGY) {
        if (strategy_find_param(STRATEGY_ANY, name) < STRATEGY_PARAMS) return true;
        const char *names[STRATEGY_PARAMS];
        uint32_t count = strategy_param_names(STRATEGY_ANY, names);
        unknown(s, at, "a strategy has no parameter", name, names, count);
        return false;
    }
    if (key == KEY_LAYOUT) {
        static const char *const group = "group";
        if (!strcmp(name, group)) return true;
        unknown(s, at, "a layout has no parameter", name, &group, 1);
        return false;
    }
    if (key == KEY_MASK || key == KEY_SCORE) {
        const mask *m = key == KEY_MASK ? plan_mask(s) : plan_score(s);
        if (!m || find_param(m, name)) return true; /* a mask that is unknown or missing is reported later */
        const char *names[CANDIDATES];
        size_t count = 0;
        for (const arg *a = m->params; a && count < CANDIDATES; a = a->next) names[count++] = a->name;
        unknown(s, at, key == KEY_MASK ? "the plan's mask has no parameter" : "the plan's score has no parameter", name,
                names, count);
        return false;
    }
    diag_error(s->d, FCP_E_UNKNOWN_NAME, at, "'%s' has no parts", words_keys[key].name);
    return false;
}

/* Finds the target of a path that begins with a section or a mask. */
static bool full_target(sema *s, const path *p, section_id where, mask *m, target *out) {
    if (where < SECTION_COUNT) {
        key_id key = p->count > 1 ? words_find_key(where, p->part[1]) : KEY_COUNT;
        if (p->count < 2) {
            diag_error(s->d, FCP_E_UNKNOWN_NAME, p->whole, "'%s' is a section; which of its keys?", p->part[0]);
            return false;
        }
        entry *declared = key == KEY_COUNT && p->count == 2 ? find_declared(s, where, p->part[1]) : NULL;
        if (declared) {
            *out = (target){.kind = TO_ARRAY, .entry = declared, .at = p->at[1]};
            return true;
        }
        if (key == KEY_COUNT) {
            const char *names[KEY_COUNT + CANDIDATES];
            size_t count = 0;
            for (int k = 0; k < KEY_COUNT; k++)
                if (words_keys[k].section == where) names[count++] = words_keys[k].name;
            for (const section *x = s->program.sections; x; x = x->next)
                for (const entry *e = words_find_section(x->name) == where ? x->entries : NULL; e; e = e->next)
                    if (e->as && count < KEY_COUNT + CANDIDATES) names[count++] = e->key;
            unknown(s, p->at[1], "unknown key", p->part[1], names, count);
            return false;
        }
        if (p->count == 2) {
            *out = (target){.kind = TO_KEY, .key = key, .at = p->at[1]};
            return true;
        }
        if (p->count == 3) return argument_target(s, key, p->part[2], p->at[2], out);
    } else {
        if (p->count == 2) {
            *out = (target){.kind = TO_DEFAULT, .mask = m, .name = p->part[1], .at = p->at[1]};
            if (find_param(m, p->part[1])) return true;
            const char *names[CANDIDATES];
            size_t count = 0;
            for (const arg *a = m->params; a && count < CANDIDATES; a = a->next) names[count++] = a->name;
            unknown(s, p->at[1], m->score ? "the score has no parameter" : "the mask has no parameter", p->part[1],
                    names, count);
            return false;
        }
    }
    diag_error(s->d, FCP_E_UNKNOWN_NAME, p->whole, "this path names nothing");
    return false;
}

/* Finds the target of a path without a section, by looking for everything that its first name may mean. */
static bool short_target(sema *s, const path *p, target *out) {
    target found[CANDIDATES];
    size_t count = 0;
    const char *name = p->part[0];
    span at = p->at[0];
    for (int k = 0; k < KEY_COUNT; k++)
        if (!strcmp(words_keys[k].name, name)) found[count++] = (target){.kind = TO_KEY, .key = (key_id)k, .at = at};
    if (strategy_find_param(count ? plan_strategy(s, name) : STRATEGY_ANY, name) < STRATEGY_PARAMS)
        found[count++] = (target){.kind = TO_ARGUMENT, .key = KEY_STRATEGY, .name = name, .at = at};
    mask *used = plan_mask(s), *score = plan_score(s);
    if (find_param(used, name)) found[count++] = (target){.kind = TO_ARGUMENT, .key = KEY_MASK, .name = name, .at = at};
    if (find_param(score, name))
        found[count++] = (target){.kind = TO_ARGUMENT, .key = KEY_SCORE, .name = name, .at = at};
    for (mask *m = s->program.masks; m && count < CANDIDATES; m = m->next)
        if (m != used && m != score && !m->adopted && find_param(m, name))
            found[count++] = (target){.kind = TO_DEFAULT, .mask = m, .name = name, .at = at};

    entry *declared = find_declared(s, SECTION_COUNT, name);
    if (declared && count < CANDIDATES) found[count++] = (target){.kind = TO_ARRAY, .entry = declared, .at = at};

    if (count == 1 && p->count == 1) {
        *out = found[0];
        return true;
    }
    if (count == 1 && p->count == 2 && found[0].kind == TO_KEY)
        return argument_target(s, found[0].key, p->part[1], p->at[1], out);
    if (count > 1) {
        diag_error(s->d, FCP_E_AMBIGUOUS, at, "'%s' may mean several things", name);
        for (size_t i = 0; i < count && i < 6; i++) {
            const target *t = &found[i];
            if (t->kind == TO_DEFAULT) diag_hint(s->d, "%s.%s", t->mask->name, name);
            else if (t->kind == TO_ARRAY)
                diag_hint(s->d, "%s.%s", words_sections[t->entry->as == IS_FIELD ? SECTION_BATCH : SECTION_MODEL],
                          name);
            else if (t->kind == TO_KEY) diag_hint(s->d, "%s.%s", words_sections[words_keys[t->key].section], name);
            else diag_hint(s->d, "%s.%s.%s", words_sections[SECTION_PLAN], words_keys[t->key].name, name);
        }
        return false;
    }
    const mask *called = p->count == 1 ? find_mask(s, name, KIND_ANY) : NULL;
    if (s->no_memory) return false; /* the mask that this names could not be read */
    if (called) {
        const char *kind = called->score ? "score" : "mask";
        diag_error(s->d, FCP_E_UNKNOWN_NAME, at, "'%s' is a %s; which of its parameters?", name, kind);
        diag_hint(s->d, "%s.parameter=value sets a default, plan.%s=%s uses the %s", name, kind, name, kind);
        return false;
    }
    const char *names[NAMES];
    count = 0;
    for (int i = 0; i < SECTION_COUNT; i++) names[count++] = words_sections[i];
    for (int k = 0; k < KEY_COUNT; k++) names[count++] = words_keys[k].name;
    count += strategy_param_names(STRATEGY_ANY, names + count);
    for (const arg *a = used ? used->params : NULL; a && count < PARAMS; a = a->next) names[count++] = a->name;
    for (const arg *a = score ? score->params : NULL; a && count < PARAMS; a = a->next) names[count++] = a->name;
    for (const mask *m = s->program.masks; m && count < NAMES - 16; m = m->next) names[count++] = m->name;
    for (unsigned i = 0; i < prelude_item_count && count < NAMES; i++) names[count++] = prelude_items[i].name;
    unknown(s, at, "nothing is called", name, names, count);
    return false;
}

/* --- setting ------------------------------------------------------------------------------------------------------ */

/* Sets the argument `name` in a list of arguments, or adds it. False: out of memory, which was reported. */
static bool set_arg(sema *s, arg **list, uint32_t *count, const char *name, span at, expr *value) {
    for (; *list; list = &(*list)->next) {
        if (!(*list)->name || strcmp((*list)->name, name)) continue;
        (*list)->value = value;
        (*list)->name_at = at;
        return true;
    }
    *list = ARENA_ZNEW(s->scratch, arg, 1);
    if (!*list) {
        sema_no_memory(s);
        return false;
    }
    **list = (arg){.name = name, .name_at = at, .value = value};
    ++*count;
    return true;
}

static void set_argument(sema *s, const target *t, span whole, expr *value) {
    entry *e = find_entry(&s->program, SECTION_PLAN, words_keys[t->key].name);
    if (!e) {
        const mask *m = t->key == KEY_MASK ? plan_mask(s) : NULL;
        if ((t->key == KEY_MASK || t->key == KEY_SCORE) && !m) {
            diag_error(s->d, FCP_E_MISSING, whole, "the plan has no %s to take this", words_keys[t->key].name);
            return;
        }
        expr *call = sema_new_expr(s, EXPR_NAME, whole);
        if (!call) return;
        call->name = m ? m->name : t->key == KEY_LAYOUT ? "planned" : "fcp";
        call->name_at = whole;
        e = set_entry(s, SECTION_PLAN, t->key, call, whole);
        if (!e) return;
    }
    expr *call = t->key == KEY_STRATEGY ? strategy_call(e->value, t->name) : e->value;
    if (call->kind == EXPR_NAME) {
        call->kind = EXPR_CALL;
        call->name_at = call->at;
        call->args = NULL;
        call->arg_count = 0;
    }
    if (call->kind != EXPR_CALL) {
        diag_error(s->d, FCP_E_ARGUMENT, t->at, "%s is not a call that takes arguments", words_keys[t->key].name);
        diag_also(s->d, call->at, "it is set here");
        return;
    }
    set_arg(s, &call->args, &call->arg_count, t->name, t->at, value);
}

/* Makes a copy of a mask of the prelude the program's own. */
static void adopt(sema *s, mask *m) {
    /* If the program has one mask only, that is the plan's. This must be written down before there are two. */
    mask *used = m->score ? NULL : plan_mask(s);
    if (used && !find_entry(&s->program, SECTION_PLAN, "mask")) {
        expr *e = sema_new_expr(s, EXPR_NAME, used->name_at);
        if (!e) return;
        e->name = used->name;
        if (!set_entry(s, SECTION_PLAN, KEY_MASK, e, used->name_at)) return;
    }
    m->builtin = false;
    m->adopted = true;
    if (s->program.last_mask) s->program.last_mask->next = m;
    else s->program.masks = m;
    s->program.last_mask = m;
}

static void apply(sema *s, uint32_t number) {
    const char *name, *bytes;
    size_t size;
    bool builtin;
    diag_source_get(s->d, number, &name, &bytes, &size, &builtin);
    const char *equals = memchr(bytes, '=', size);
    if (!equals) {
        diag_error(s->d, FCP_E_SYNTAX, (span){number, 0, (uint32_t)size}, "an override needs a value");
        diag_hint(s->d, "an override is path=value: plan.block=2K, plan.mask.window=8K, lambda.window=8K");
        return;
    }
    path p;
    uint32_t middle = (uint32_t)(equals - bytes);
    if (!cut(s, number, bytes, middle, &p)) return;
    target t = {0};
    section_id where = words_find_section(p.part[0]);
    /* a mask is meant only if a parameter follows; alone, `window` may be a parameter's name */
    mask *m = where == SECTION_COUNT && p.count > 1 ? find_mask(s, p.part[0], KIND_ANY) : NULL;
    if (where < SECTION_COUNT || m) {
        if (!full_target(s, &p, where, m, &t)) return;
    } else if (!short_target(s, &p, &t)) return;

    expr *value = parse_value(s->d, s->scratch, number, middle + 1, (uint32_t)size);
    if (!value) return;
    if (value->depth >= NEST_MAX) {
        diag_error(s->d, FCP_E_DEPTH, value->at, "an expression nested more than %d deep", NEST_MAX - 1);
        return;
    }
    span whole = {number, 0, (uint32_t)size};
    if (t.kind == TO_KEY) set_entry(s, words_keys[t.key].section, t.key, value, t.at);
    else if (t.kind == TO_ARRAY) {
        t.entry->value = value;
        t.entry->key_at = t.at;
    } else if (t.kind == TO_ARGUMENT) set_argument(s, &t, whole, value);
    else {
        if (t.mask->builtin) adopt(s, t.mask);
        if (t.mask) set_arg(s, &t.mask->params, &t.mask->param_count, t.name, t.at, value);
    }
}

/* --- the options -------------------------------------------------------------------------------------------------- */

/* Makes the text of an option a source of its own, so that errors in it can be shown. UINT32_MAX: no memory,
 * reported. */
static uint32_t option_source(sema *s, const char *label, const char *bytes) {
    uint32_t number = diag_source(s->d, label, bytes, strlen(bytes), false);
    if (number == UINT32_MAX) sema_no_memory(s);
    return number;
}

static bool override_key(sema *s, const char *define) {
    text label = {0};
    text_printf(&label, "-D %.60s%s", define, strlen(define) > 60 ? "..." : "");
    char *name = text_take(&label);
    uint32_t number = name ? option_source(s, name, define) : UINT32_MAX;
    if (!name) sema_no_memory(s);
    free(name);
    if (number == UINT32_MAX) return false;
    apply(s, number);
    return true;
}

/* Makes the call file("PATH"), where the path stands at `file_at`. NULL: out of memory, which was reported. */
static expr *file_call(sema *s, const char *file, span file_at, span at) {
    expr *call = sema_new_expr(s, EXPR_CALL, at), *string = sema_new_expr(s, EXPR_STRING, file_at);
    arg *a = ARENA_ZNEW(s->scratch, arg, 1);
    const char *copy = arena_copy(s->scratch, file, strlen(file));
    if (!call || !string || !a || !copy) {
        sema_no_memory(s);
        return NULL;
    }
    string->name = copy;
    *a = (arg){.value = string};
    call->name = words_sources[SOURCE_FILE];
    call->name_at = at;
    call->args = a;
    call->arg_count = 1;
    return call;
}

/* Applies --lengths FILE, as if the batch had said file("FILE"), seen from the current folder. */
static bool override_lengths(sema *s, const char *file) {
    uint32_t number = option_source(s, "--lengths", file);
    if (number == UINT32_MAX) return false;
    span at = {number, 0, (uint32_t)strlen(file)};
    expr *call = file_call(s, file, at, at);
    return call && set_entry(s, SECTION_BATCH, KEY_LENGTHS, call, at);
}

/* Gives a file(...) call all arguments of another call but its path, so that a field stays `real` and keeps its `range`
 * and `over`. */
static bool copy_args(sema *s, expr *call, const expr *from) {
    arg *last = call->args;
    for (const arg *old = from->kind == EXPR_CALL ? from->args : NULL; old; old = old->next) {
        if (!old->name && old->value->kind == EXPR_STRING) continue;
        arg *copy = ARENA_ZNEW(s->scratch, arg, 1);
        if (!copy) return sema_no_memory(s);
        *copy = *old;
        copy->next = NULL;
        last = last->next = copy;
        call->arg_count++;
    }
    return true;
}

/* Applies --field NAME=FILE, as if the field had said file("FILE"), seen from the current folder. */
static bool override_field(sema *s, const char *typed) {
    uint32_t number = option_source(s, "--field", typed);
    if (number == UINT32_MAX) return false;
    const char *equals = strchr(typed, '=');
    size_t length = equals ? (size_t)(equals - typed) : 0;
    const span whole = {number, 0, (uint32_t)strlen(typed)}, name_at = {number, 0, (uint32_t)length};
    if (!length || !equals[1]) {
        diag_error(s->d, FCP_E_SYNTAX, whole, "--field takes a name and a file: --field doc=doc.npy");
        return true;
    }
    const char *names[CANDIDATES];
    size_t count = 0;
    for (section *x = s->program.sections; x; x = x->next)
        for (entry *e = x->entries; e; e = e->next) {
            if (e->as != IS_FIELD) continue;
            if (count < CANDIDATES) names[count++] = e->key;
            if (strlen(e->key) != length || memcmp(e->key, typed, length)) continue;
            expr *call = file_call(s, equals + 1, (span){number, (uint32_t)length + 1, whole.end}, whole);
            expr **const source = e->value->kind == EXPR_OVER ? &e->value->a : &e->value;
            if (!call || !copy_args(s, call, *source)) return false;
            *source = call;
            return true;
        }
    diag_error(s->d, FCP_E_UNKNOWN_NAME, name_at, "the batch has no field '%.*s'", (int)length, typed);
    const char *nearest = diag_nearest(typed, length, names, count);
    if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    else if (!count) diag_hint(s->d, "declare it first: batch { field %.*s = given }", (int)length, typed);
    return true;
}

bool sema_override(sema *s, const fcpc_options *options) {
    if (!options) return true;
    for (size_t i = 0; i < options->define_count; i++)
        if (!override_key(s, options->defines[i])) return false;
    if (options->lengths_file && !override_lengths(s, options->lengths_file)) return false;
    for (size_t i = 0; i < options->field_count; i++)
        if (!override_field(s, options->fields[i])) return false;
    return true;
}
