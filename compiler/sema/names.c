/* names.c: declares and finds the names of masks and scores, suggests names for misspelled ones, evaluates constants,
 * and binds arguments to parameters.
 *
 * What a name means:
 * - Within one mask every name has one meaning. It is a parameter, a definition of the `where`, or a variable or
 *   function of the language (words.h). Scores have s and the functions of reals as well.
 * - heads and kv_heads mean the model's, unless something else has the name.
 * - Names of masks are apart from these: a parameter may have the name of a mask.
 * - A mask of the program hides the one of the prelude that has the same name. Only those masks of the prelude that are
 *   named are read, because reading all of it would take longer than most programs.
 *
 * Requires: trees from syntax/parse.c.
 * Cost:     O(1) for each name on average. Names are hashed; no result depends on the order of the table.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/arrays.h"
#include "compiler/sema/names.h"
#include "compiler/syntax/foreign_words.h"
#include "compiler/syntax/parse.h"
#include "grammar/prelude.h"

/* --- symbols ------------------------------------------------------------------------------------------------------ */

static size_t symbol_hash(const void *scope, const char *name) {
    uint64_t h = (uint64_t)(uintptr_t)scope * UINT64_C(0x9e3779b97f4a7c15);
    for (const char *c = name; *c; c++) h = (h ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    return (size_t)(h ^ h >> 29);
}

/* The slot that a name is in, or the free one that it would go to. */
static symbol *symbol_slot(symbol *table, size_t room, const void *scope, const char *name) {
    size_t i = symbol_hash(scope, name) & (room - 1);
    while (table[i].name && (table[i].scope != scope || strcmp(table[i].name, name))) i = (i + 1) & (room - 1);
    return &table[i];
}

const symbol *sema_find_symbol(const sema *s, const void *scope, const char *name) {
    if (!s->symbol_room) return NULL;
    const symbol *found = symbol_slot(s->symbols, s->symbol_room, scope, name);
    return found->name ? found : NULL;
}

/* Adds a name. If it is there already, nothing changes, and *old is what was there. False: no memory. */
static bool add_symbol(sema *s, symbol new, const symbol **old) {
    *old = NULL;
    if (s->symbol_count * 2 >= s->symbol_room) {
        size_t room = s->symbol_room ? s->symbol_room * 2 : 64;
        symbol *table = calloc(room, sizeof *table);
        if (!table) return sema_no_memory(s);
        for (size_t i = 0; i < s->symbol_room; i++)
            if (s->symbols[i].name) *symbol_slot(table, room, s->symbols[i].scope, s->symbols[i].name) = s->symbols[i];
        free(s->symbols);
        s->symbols = table;
        s->symbol_room = room;
    }
    symbol *slot = symbol_slot(s->symbols, s->symbol_room, new.scope, new.name);
    if (slot->name) *old = slot;
    else {
        *slot = new;
        s->symbol_count++;
    }
    return true;
}

/* Declares a name inside a mask. If it has a meaning already, that is an error, reported. */
static bool declare(sema *s, const mask *m, const definition *def, const char *name, span at, void *target,
                    uint32_t index) {
    int variable = words_find(words_variables, m->score ? SCORE_VARIABLES : MASK_VARIABLES, name);
    int builtin = words_find(words_functions, m->score ? SCORE_BUILTINS : MASK_BUILTINS, name);
    if (variable >= 0 || builtin >= 0) {
        diag_error(s->d, FCP_E_DUPLICATE, at, "'%s' already has a meaning in every %s", name,
                   m->score ? "score" : "mask");
        if (variable == VARIABLE_S) diag_hint(s->d, "s is the scaled logit of query and key; call this something else");
        else if (builtin >= MASK_BUILTINS)
            diag_hint(s->d, "exp, exp2, log, log2, tanh, tanh_approx, sqrt and floor are functions of scores; "
                            "call this something else");
        else if (variable >= 0 && !target && !def)
            diag_hint(s->d, "q, k, n and h are known without being parameters: leave it out");
        else if (variable >= 0)
            diag_hint(s->d, "q and k are positions, n is the length, h the head; call this something else");
        else diag_hint(s->d, "'%s' is a function of the language; call this something else", name);
        return true;
    }
    const symbol *old = def ? sema_find_symbol(s, m, name) : NULL;
    if (!old && !add_symbol(s, (symbol){def ? (const void *)def : m, name, target, index, at}, &old)) return false;
    if (!old) return true;
    diag_error(s->d, FCP_E_DUPLICATE, at, "'%s' is already defined in this %s", name, m->score ? "score" : "mask");
    diag_also(s->d, old->at, "first defined here");
    return true;
}

static bool declare_inside(sema *s, mask *m) {
    uint32_t index = 0;
    for (arg *a = m->params; a; a = a->next)
        if (!declare(s, m, NULL, a->name, a->name_at, NULL, index++)) return false;
    for (definition *d = m->definitions; d; d = d->next) {
        if (!declare(s, m, NULL, d->name, d->name_at, d, 0)) return false;
    }
    for (definition *d = m->definitions; d; d = d->next) {
        index = 0;
        for (arg *a = d->params; a; a = a->next)
            if (!declare(s, m, d, a->name, a->name_at, NULL, index++)) return false;
    }
    return true;
}

bool sema_declare_masks(sema *s) {
    for (mask *m = s->program.masks; m; m = m->next) {
        if (words_find(words_variables, m->score ? SCORE_VARIABLES : MASK_VARIABLES, m->name) >= 0 ||
            words_find(words_functions, m->score ? SCORE_BUILTINS : MASK_BUILTINS, m->name) >= 0) {
            diag_error(s->d, FCP_E_DUPLICATE, m->name_at, "'%s' already has a meaning in every %s", m->name,
                       m->score ? "score" : "mask");
            continue;
        }
        const symbol *old;
        if (!add_symbol(s, (symbol){&s->program, m->name, m, 0, m->name_at}, &old)) return false;
        if (old) {
            diag_error(s->d, FCP_E_DUPLICATE, m->name_at, "%s '%s' is defined twice",
                       m->score && ((mask *)old->target)->score ? "score" : "mask", m->name);
            diag_also(s->d, old->at, "first defined here");
            m->state = MASK_BROKEN;
            continue;
        }
        if (!declare_inside(s, m)) return false;
    }
    return true;
}

mask *sema_own_mask(const sema *s, const char *name) {
    const symbol *found = sema_find_symbol(s, &s->program, name);
    return found ? found->target : NULL;
}

static const prelude_item *find_item(const char *name, mask_kind kind) {
    for (unsigned i = 0; i < prelude_item_count; i++)
        if ((kind == KIND_ANY || prelude_items[i].score == (kind == KIND_SCORE)) &&
            !strcmp(prelude_items[i].name, name))
            return &prelude_items[i];
    return NULL;
}

static mask *read_item(sema *s, const prelude_item *item) {
    if (!s->prelude_source) s->prelude_source = diag_source(s->d, "<prelude>", fcpc_prelude, fcpc_prelude_size, true);
    const bool known = s->prelude_source != UINT32_MAX;
    mask *m = known ? parse_mask(s->d, s->scratch, s->prelude_source, item->begin, item->end) : NULL;
    if (m) m->builtin = true;
    else sema_no_memory(s);
    return m;
}

mask *sema_copy_given(sema *s, const char *name, mask_kind kind) {
    const prelude_item *item = find_item(name, kind);
    return item ? read_item(s, item) : NULL;
}

static mask *declare_given(sema *s, const prelude_item *item) {
    for (mask *m = s->given; m; m = m->next)
        if (!strcmp(m->name, item->name)) return m;
    mask *m = read_item(s, item);
    if (!m || !declare_inside(s, m)) return NULL;
    m->next = s->given;
    return s->given = m;
}

mask *sema_given_mask(sema *s, const char *name) {
    const prelude_item *item = find_item(name, KIND_ANY);
    return item ? declare_given(s, item) : NULL;
}

mask *sema_visible_mask(sema *s, const char *name, mask_kind kind) {
    mask *own = sema_own_mask(s, name);
    if (own && (kind == KIND_ANY || own->score == (kind == KIND_SCORE))) return own;
    const prelude_item *given = find_item(name, kind);
    if (given) return declare_given(s, given);
    return own ? own : sema_given_mask(s, name);
}

/* --- suggestions -------------------------------------------------------------------------------------------------- */

typedef struct names {
    const char **at;
    size_t count, room;
} names;

static void offer(sema *s, names *n, const char *name) {
    const char **grown = arena_grow(s->scratch, n->at, n->count, &n->room, sizeof *grown);
    if (!grown) return;
    n->at = grown;
    n->at[n->count++] = name;
}

static void offer_masks(sema *s, names *n, mask_kind kind) {
    for (const mask *m = s->program.masks; m; m = m->next)
        if (kind == KIND_ANY || m->score == (kind == KIND_SCORE)) offer(s, n, m->name);
    for (unsigned i = 0; i < prelude_item_count; i++)
        if (kind == KIND_ANY || prelude_items[i].score == (kind == KIND_SCORE)) offer(s, n, prelude_items[i].name);
}

bool sema_hint_foreign(sema *s, const char *word, unsigned places, const expr *value) {
    text own = {0};
    if (value && value->kind == EXPR_CALL && value->args) value = value->args->value;
    if (value) ast_print_expr(value, &own);
    char *given = text_take(&own), *line = fcpc_foreign_word(word, places, given);
    if (line) diag_hint(s->d, "%s", line);
    const bool found = line != NULL;
    free(given);
    free(line);
    return found;
}

const char *sema_nearest_mask(const sema *s, const char *name, mask_kind kind) {
    names n = {0};
    offer_masks((sema *)s, &n, kind);
    return diag_nearest(name, strlen(name), n.at, n.count);
}

const char *sema_nearest_name(sema *s, const char *name, const mask *m, const definition *def) {
    names n = {0};
    if (def)
        for (const arg *a = def->params; a; a = a->next) offer(s, &n, a->name);
    for (const definition *d = m->definitions; d && d != def; d = d->next) offer(s, &n, d->name);
    for (const arg *a = m->params; a; a = a->next) offer(s, &n, a->name);
    for (int i = 0; i < (m->score ? SCORE_BUILTINS : MASK_BUILTINS); i++) offer(s, &n, words_functions[i]);
    for (int i = 0; i < MODEL_FIGURES; i++) offer(s, &n, words_figures[i]);
    for (uint32_t i = 0; i < s->array_count && !m->builtin; i++) offer(s, &n, s->arrays[i]->name);
    offer_masks(s, &n, m->score ? KIND_ANY : KIND_MASK);
    return diag_nearest(name, strlen(name), n.at, n.count);
}

/* --- constants ---------------------------------------------------------------------------------------------------- */

static bool floor_divide(int64_t a, int64_t b, bool remainder, int64_t *out) {
    if (!b || (a == INT64_MIN && b == -1)) return false;
    int64_t q = a / b, r = a % b;
    if (r && (r < 0) != (b < 0)) q--, r += b;
    *out = remainder ? r : q;
    return true;
}

static bool constant_binary(sema *s, const expr *e, int64_t a, int64_t b, int64_t *out) {
    bool ok;
    switch (e->op) {
    case OP_ADD: ok = !__builtin_add_overflow(a, b, out); break;
    case OP_SUB: ok = !__builtin_sub_overflow(a, b, out); break;
    case OP_MUL: ok = !__builtin_mul_overflow(a, b, out); break;
    case OP_DIV: ok = floor_divide(a, b, false, out); break;
    case OP_MOD: ok = floor_divide(a, b, true, out); break;
    default: diag_error(s->d, FCP_E_TYPE, e->at, "this is a condition, not a whole number"); return false;
    }
    if (ok) return true;
    if ((e->op == OP_DIV || e->op == OP_MOD) && !b) diag_error(s->d, FCP_E_VALUE, e->at, "division by zero");
    else diag_error(s->d, FCP_E_VALUE, e->at, "this overflows 64 bits");
    return false;
}

static bool constant_call(sema *s, const expr *e, const char *what, int64_t *out) {
    int f = words_find(words_functions, MASK_BUILTINS, e->name);
    if (f < 0 || f >= BUILTIN_RUN || e->arg_count < 1 || (f == BUILTIN_ABS && e->arg_count != 1) ||
        (f == BUILTIN_EXACT && e->arg_count != 2)) {
        diag_error(s->d, FCP_E_TYPE, e->at, "%s must be a constant whole number", what);
        return false;
    }
    for (const arg *a = e->args; a; a = a->next) {
        int64_t v;
        if (!sema_eval_constant(s, a->value, what, &v)) return false;
        if (f == BUILTIN_ABS && v == INT64_MIN) v = INT64_MAX;
        if (f == BUILTIN_ABS) *out = v < 0 ? -v : v;
        else if (a == e->args) *out = v;
        else if (f == BUILTIN_EXACT) {
            int64_t rest = 0;
            if (!v || (v != -1 && (rest = mc_mod(*out, v)) != 0) || (v == -1 && *out == INT64_MIN)) {
                if (rest) diag_error(s->d, FCP_E_VALUE, e->at, "%" PRId64 " is not a multiple of %" PRId64, *out, v);
                else diag_error(s->d, FCP_E_VALUE, e->at, v ? "this overflows 64 bits" : "division by zero");
                return false;
            }
            *out = mc_div(*out, v);
        } else if (f == BUILTIN_MIN ? v < *out : v > *out) *out = v;
    }
    return true;
}

bool sema_eval_constant(sema *s, const expr *e, const char *what, int64_t *out) {
    const expr *leaf = e;
    while (leaf->kind == EXPR_BINARY) leaf = leaf->a;
    switch ((expr_kind)leaf->kind) {
    case EXPR_INT: *out = leaf->integer; break;
    case EXPR_UNARY:
        if (leaf->op != OP_NEG || !sema_eval_constant(s, leaf->a, what, out)) {
            if (leaf->op != OP_NEG) diag_error(s->d, FCP_E_TYPE, leaf->at, "this is a condition, not a whole number");
            return false;
        }
        if (*out == INT64_MIN) {
            diag_error(s->d, FCP_E_VALUE, leaf->at, "this overflows 64 bits");
            return false;
        }
        *out = -*out;
        break;
    case EXPR_CALL:
        if (!constant_call(s, leaf, what, out)) return false;
        break;
    case EXPR_FLOAT:
        diag_error(s->d, FCP_E_TYPE, leaf->at, "%s must be a whole number, without a point", what);
        return false;
    case EXPR_QUANTITY:
        diag_error(s->d, FCP_E_UNIT, leaf->at, "%s takes no unit", what);
        return false;
    default:
        diag_error(s->d, FCP_E_TYPE, leaf->at, "%s must be a constant whole number", what);
        if (leaf->kind == EXPR_NAME && words_find(words_variables, MASK_VARIABLES, leaf->name) >= 0)
            diag_hint(s->d, "'%s' is known only inside a mask", leaf->name);
        if (leaf->kind == EXPR_LIST && leaf->up && leaf->up->op == OP_MUL)
            diag_hint(s->d, "numbers of a list repeat within it: [1000 x 4]");
        if (leaf->kind == EXPR_STRING) diag_hint(s->d, "words and numbers stand without quotes");
        return false;
    }
    while (leaf != e) {
        leaf = leaf->up;
        int64_t right;
        if (!sema_eval_constant(s, leaf->b, what, &right) || !constant_binary(s, leaf, *out, right, out)) return false;
    }
    return true;
}

/* --- arguments ---------------------------------------------------------------------------------------------------- */

/* Adds the hint "it has w, h". */
static void hint_params(sema *s, const mask *m) {
    text t = {0};
    for (const arg *p = m->params; p; p = p->next) text_printf(&t, "%s%s", p == m->params ? "" : ", ", p->name);
    if (!t.failed) diag_hint(s->d, "it has %s", t.at);
    text_free(&t);
}

/* Adds the hint "write window(w = ...)", with all parameters that have no default. */
static void hint_call(sema *s, const mask *m) {
    text t = {0};
    for (const arg *p = m->params; p; p = p->next)
        if (!p->value) text_printf(&t, "%s%s = ...", t.size ? ", " : "", p->name);
    if (!t.failed) diag_hint(s->d, "write %s(%s)", m->name, t.at);
    text_free(&t);
}

/* The parameter of m that other projects call so; NULL: none. */
static const char *usual_param(const mask *m, const char *word) {
    for (const foreign_word *h = NULL; (h = foreign_words_find(word, FCPC_FOREIGN_ARGUMENT, h));)
        for (const arg *p = m->params; p; p = p->next)
            if (!strcmp(p->name, h->write)) return h->write;
    return NULL;
}

/* Adds the hint "write window(w = 64)", for the argument 64, which stands in the place of w. */
static void hint_named(sema *s, const mask *m, const arg *param, const expr *value) {
    enum { LONGEST = 40 };
    text t = {0};
    ast_print_expr(value, &t);
    const bool shown = !t.failed && t.size <= LONGEST;
    diag_hint(s->d, "write %s(%s = %.*s)", m->name, param->name, shown ? (int)t.size : 3, shown ? t.at : "...");
    text_free(&t);
}

/* Does a mask or score have this parameter, whose name is that of m and the parameter's, as alibi_slopes(slopes) has?
 * Then adds a hint. */
static bool hint_taker(sema *s, const mask *m, const char *param) {
    text name = {0};
    text_printf(&name, "%s_%s", m->name, param);
    const mask *other = name.failed ? NULL : sema_visible_mask(s, name.at, m->score ? KIND_SCORE : KIND_MASK);
    if (other && other->params) diag_hint(s->d, "'%s' has it", other->name);
    text_free(&name);
    return other && other->params;
}

/* Has the mask parameters for what every mask knows, as FlexAttention's functions have: m(b, h, q_idx, kv_idx)? */
static bool has_variables(const mask *m) {
    for (const arg *p = m->params; p; p = p->next) {
        const foreign_word *h = foreign_words_find(p->name, FCPC_FOREIGN_NAME, NULL);
        if (h && words_find(words_variables, MASK_VARIABLES, h->write) >= 0) return true;
    }
    return false;
}

bool sema_bind_args(sema *s, const mask *m, const arg *args, span call, arg **out) {
    bool good = true;
    for (uint32_t i = 0; i <= m->param_count; i++) out[i] = NULL;
    const arg *place = m->params; /* the parameter in the place of the argument; s and the like have none */
    for (const arg *a = args; a; a = a->next) {
        if (!a->name) {
            diag_error(s->d, FCP_E_ARGUMENT, a->value->at, "%s are called with named arguments",
                       m->score ? "scores" : "masks");
            const int known =
                a->value->kind == EXPR_NAME
                    ? words_find(words_variables, m->score ? SCORE_VARIABLES : MASK_VARIABLES, a->value->name)
                    : -1;
            const arg *taken = place;
            if (known < 0 && place) place = place->next;
            if (known >= 0 && m->params)
                diag_hint(s->d, "every %s knows %s; '%s' takes %s", m->score ? "score" : "mask", a->value->name,
                          m->name, m->params->name);
            else if (taken) hint_named(s, m, taken, a->value);
            else if (m->params) hint_params(s, m);
            else diag_hint(s->d, "'%s' has no parameters: write %s, without parentheses", m->name, m->name);
            good = false;
            continue;
        }
        if (place) place = place->next;
        uint32_t i = 0;
        const arg *p = m->params;
        while (p && strcmp(p->name, a->name)) p = p->next, i++;
        if (!p && !(m->score && !strcmp(a->name, words_variables[VARIABLE_S]))) {
            diag_error(s->d, FCP_E_ARGUMENT, a->name_at, "%s '%s' has no parameter '%s'", m->score ? "score" : "mask",
                       m->name, a->name);
            names n = {0};
            for (p = m->params; p; p = p->next) offer(s, &n, p->name);
            const char *nearest = usual_param(m, a->name);
            if (!nearest) nearest = diag_nearest(a->name, strlen(a->name), n.at, n.count);
            if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
            else if (m->params) hint_params(s, m);
            else if (!hint_taker(s, m, a->name)) diag_hint(s->d, "'%s' has no parameters at all", m->name);
            good = false;
        } else if (out[i]) {
            diag_error(s->d, FCP_E_DUPLICATE, a->name_at, "'%s' is given twice", a->name);
            diag_also(s->d, out[i]->name_at, "first given here");
            good = false;
        } else out[i] = (arg *)a;
    }
    uint32_t i = 0;
    for (const arg *p = m->params; p && good; p = p->next, i++) {
        if (out[i] || p->value) continue;
        diag_error(s->d, FCP_E_ARGUMENT, call, "%s '%s' needs its parameter '%s'", m->score ? "score" : "mask", m->name,
                   p->name);
        diag_also(s->d, p->name_at, "it has no default");
        if (has_variables(m))
            diag_hint(s->d, "q, k, n and h are known without being parameters: mask %s = q >= k", m->name);
        else hint_call(s, m);
        good = false;
    }
    return good;
}
