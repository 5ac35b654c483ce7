/* arrays.c: declares fields and tables, finds them for masks and scores, and numbers those that are read.
 *
 * A field is data of the batch: batch { field doc = file("doc.npy") }. It has a number for each token, or for what it
 * is said to be over (field_shape.h). A table is data of the model: model { table bias = [0.5, 0.25] }. Fields and
 * tables share one space of names. The names of a mask hide them, and they hide masks of the prelude.
 *
 * While masks are lowered, an array goes by the number of its declaration. sema_finish_arrays then keeps the arrays
 * that the code reads, and renumbers them in the order in which it first reads them. Behind these comes the field that
 * `documents` names, unless it is among them.
 *
 * Requires: a parsed program with overrides applied.
 * Cost:     O(declarations + code + bytes of the arrays). Each file is read once: that of a table when it is first
 *           indexed, that of a field after the lengths.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/array_values.h"
#include "compiler/sema/arrays.h"
#include "compiler/sema/lengths.h"
#include "compiler/sema/names.h"

const char *sema_array_word(const sema *s, uint32_t array) { return s->arrays[array]->table ? "table" : "field"; }

/* "field 'doc'", in the memory of the parse. */
static const char *what_of(sema *s, const array_decl *a) {
    text t = {0};
    text_printf(&t, "%s '%s'", a->table ? "table" : "field", a->name);
    const char *copy = t.failed ? NULL : arena_copy(s->scratch, t.at, t.size);
    text_free(&t);
    return copy ? copy : a->name;
}

mc_env sema_sequence_env(const sema *s, size_t sequence) {
    mc_env env = {.n = (int64_t)batch_length(s, sequence, FCP_KEYS),
                  .queries = (int64_t)batch_length(s, sequence, FCP_QUERIES)};
    if (s->plan) env.q_first = s->plan->sequences[sequence].q_first; /* its program has no batch, and so no align */
    else if (s->out->align == FCP_BOTTOM_RIGHT) env.q_first = env.n - env.queries;
    return env;
}

static mc_env env_of(const void *of, size_t sequence) { return sema_sequence_env(of, sequence); }

sema_batch sema_own_batch(const sema *s) { return (sema_batch){batch_count(s), env_of, s}; }

uint64_t sema_field_start(const sema *s, const fcp_array *field, size_t sequence) {
    const sema_batch batch = sema_own_batch(s);
    return sema_values_before(field, &batch, sequence);
}

/* --- declarations ------------------------------------------------------------------------------------------------- */

static array_decl *add_array(sema *s, const char *name, span at) {
    array_decl **grown = arena_grow(s->scratch, s->arrays, s->array_count, &s->array_room, sizeof *grown);
    array_decl *a = ARENA_ZNEW(s->scratch, array_decl, 1);
    if (!grown || !a) {
        sema_no_memory(s);
        return NULL;
    }
    s->arrays = grown;
    a->name = name;
    a->at = at;
    a->run_of = ARRAY_ANY;
    a->array.at = at;
    return s->arrays[s->array_count++] = a;
}

uint32_t sema_find_array(const sema *s, const char *name) {
    for (uint32_t i = 0; i < s->array_count; i++)
        if (!strcmp(s->arrays[i]->name, name)) return i;
    return ARRAY_ANY;
}

static const char *nearest_array(sema *s, const char *name, bool fields_only) {
    const char **names = ARENA_NEW(s->scratch, const char *, s->array_count + (size_t)1);
    size_t count = 0;
    for (uint32_t i = 0; i < s->array_count && names; i++)
        if (s->arrays[i]->run_of == ARRAY_ANY && !(fields_only && s->arrays[i]->table))
            names[count++] = s->arrays[i]->name;
    return names ? diag_nearest(name, strlen(name), names, count) : NULL;
}

static void refuse_argument(sema *s, array_decl *a, const arg *g, const char *what) {
    a->wrong = true;
    if (g->name) {
        static const char *const known[] = {"range", "over"};
        diag_error(s->d, FCP_E_ARGUMENT, g->name_at, "%s has no parameter '%s'", what, g->name);
        const char *nearest = a->table ? NULL : diag_nearest(g->name, strlen(g->name), known, 2);
        if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    } else
        diag_error(s->d, FCP_E_ARGUMENT, g->value->at,
                   a->given ? "%s takes %s, and range or over with a name" : "%s takes one path%s and named arguments",
                   what,
                   a->given   ? words_real
                   : a->table ? ""
                              : ", perhaps real,");
    if (!g->name && !a->table && g->value->kind == EXPR_NAME)
        diag_hint(s->d, "field %s = given(real) is of reals; without real it is of whole numbers", a->name);
}

/* Reads `range = a..b` of a field: values may be from a to b - 1. */
static void check_range(sema *s, array_decl *a, const expr *v) {
    int64_t from, to;
    a->wrong = true;
    if (v->kind != EXPR_RANGE) {
        diag_error(s->d, FCP_E_TYPE, v->at,
                   "range takes the least value and one more than the greatest: range = 0..4096");
        return;
    }
    if (!sema_eval_constant(s, v->a, "range", &from) || !sema_eval_constant(s, v->b, "range", &to)) return;
    if (from >= to) {
        diag_error(s->d, FCP_E_VALUE, v->at, "the range is empty");
        diag_hint(s->d, "a..b is half-open: it holds a and not b");
        return;
    }
    a->wrong = false;
    a->array.declared = true;
    a->array.declared_lo = from;
    a->array.declared_hi = to - 1;
}

/* Is it the word that makes a field one of reals? */
static bool is_real_word(const array_decl *a, const expr *e) {
    return !a->table && e->kind == EXPR_NAME && words_same(e->name, words_real);
}

/* Checks the arguments of file(...) and given(...). `behind`: what stands behind `over` after them, or NULL. */
static void check_source(sema *s, array_decl *a, const arg *behind) {
    const expr *v = a->value;
    const arg *path = NULL, *range = NULL, *over = NULL, *real = NULL;
    bool dims = false; /* unnamed arguments are dimensions */
    for (const arg *g = v->kind == EXPR_CALL ? v->args : NULL; g; g = g->next) {
        if (dims && !g->name) continue;
        dims = g->name && !a->table && !strcmp(g->name, "over");
        const arg **slot = !g->name && is_real_word(a, g->value)               ? &real
                           : !g->name && !a->given                             ? &path
                           : g->name && !a->table && !strcmp(g->name, "range") ? &range
                           : g->name && !a->table && !strcmp(g->name, "over")  ? &over
                                                                               : NULL;
        if (!slot || (!g->name && *slot)) refuse_argument(s, a, g, v->name);
        else if (*slot) {
            diag_error(s->d, FCP_E_DUPLICATE, g->name_at, "'%s' is given twice", g->name);
            diag_also(s->d, (*slot)->name_at, "first given here");
            a->wrong = true;
        } else *slot = g;
    }
    if (!a->given && !a->wrong && (!path || path->value->kind != EXPR_STRING)) {
        diag_error(s->d, FCP_E_ARGUMENT, v->at, "file takes a path: file(\"%s.npy\")", a->name);
        a->wrong = true;
    }
    if (a->wrong) return;
    if (real) a->array.record.width = MC_F64;
    if (real && range) {
        diag_error(s->d, FCP_E_ARGUMENT, range->name_at, "a range is of whole numbers, and this field is of reals");
        a->wrong = true;
    } else if (over && behind) {
        diag_error(s->d, FCP_E_DUPLICATE, behind->value->at, "what the field is over is said twice");
        diag_also(s->d, over->name_at, "first said here");
        a->wrong = true;
    } else if (range) check_range(s, a, range->value);
    if (over && !a->wrong) a->wrong = !sema_read_over(s, over, &a->array.record, &a->kv);
}

/* Has a list a number with a point? Then it is one of reals. */
static bool has_point(const expr *list) {
    for (const arg *a = list->args; a; a = a->next) {
        const expr *e = a->value->kind == EXPR_REPEAT ? a->value->a : a->value;
        if (e->kind == EXPR_UNARY) e = e->a;
        if (e->kind == EXPR_FLOAT) return true;
    }
    return false;
}

static void check_declaration(sema *s, array_decl *a) {
    const expr *v = a->value;
    a->array.record.kind = a->table ? FCP_TABLE : FCP_FIELD;
    a->array.record.k_cell = !a->table;
    const arg *over = v->kind == EXPR_OVER ? v->b->args : NULL;
    if (over) a->value = v = v->a;
    if (over && a->table) {
        diag_error(s->d, FCP_E_TYPE, over->value->at, "a table is data of the model, and over nothing of a batch");
        diag_hint(s->d, "batch { field %s = ... over ... } is data of the batch", a->name);
        a->wrong = true;
        return;
    }
    bool named = v->kind == EXPR_NAME || v->kind == EXPR_CALL;
    a->given = named && !a->table && !strcmp(v->name, words_sources[SOURCE_GIVEN]);
    const bool source = a->given || ast_is_call(v, words_sources[SOURCE_FILE]);
    if (source) check_source(s, a, over);
    else if (v->kind == EXPR_LIST && !a->table && has_point(v)) a->array.record.width = MC_F64;
    if (over && !a->wrong) a->wrong = !sema_read_over(s, over, &a->array.record, &a->kv);
    if (source || v->kind == EXPR_LIST) return;
    a->wrong = true;
    diag_error(s->d, FCP_E_TYPE, v->at, "a %s cannot be made of this", a->table ? "table" : "field");
    if (v->kind == EXPR_STRING) diag_hint(s->d, "write file(\"%s\")", v->name);
    else if (a->table) diag_hint(s->d, "table %s = [0.5, 0.25], or file(\"%s.npy\")", a->name, a->name);
    else diag_hint(s->d, "field %s = [0 x 4096, 1 x 4096], file(\"%s.npy\") or given", a->name, a->name);
}

static bool declare_array(sema *s, const entry *e) {
    uint32_t old = sema_find_array(s, e->key);
    mask *m = sema_own_mask(s, e->key);
    if (words_find(words_variables, MASK_VARIABLES, e->key) >= 0 ||
        words_find(words_functions, MASK_BUILTINS, e->key) >= 0)
        diag_error(s->d, FCP_E_DUPLICATE, e->key_at,
                   "'%s' already has a meaning in every mask; call this something else", e->key);
    else if (m) {
        diag_error(s->d, FCP_E_DUPLICATE, e->key_at, "'%s' is a mask already", e->key);
        diag_also(s->d, m->name_at, "defined here");
    } else if (old != ARRAY_ANY && s->arrays[old]->value) {
        diag_error(s->d, FCP_E_DUPLICATE, e->key_at, "%s '%s' is declared twice", sema_array_word(s, old), e->key);
        diag_also(s->d, s->arrays[old]->at, "first declared here");
    } else if (old == ARRAY_ANY) {
        array_decl *a = add_array(s, e->key, e->key_at);
        if (!a) return false;
        a->value = e->value;
        a->table = e->as == IS_TABLE;
        check_declaration(s, a);
    }
    return true;
}

/* Declares the arrays that a plan holds, with their values, if the program comes out of a plan. */
static bool declare_of_plan(sema *s) {
    for (uint64_t i = 0; s->plan && i < s->plan->arrays_count; i++) {
        const fcp_array *r = &s->plan->arrays[i];
        array_decl *a = add_array(s, s->plan->names + r->name, SPAN_NONE);
        if (!a) return false;
        a->table = r->kind == FCP_TABLE;
        a->loaded = true;
        a->array.name = a->name;
        a->array.file = r->file == FCP_NONE ? NULL : s->plan->names + r->file;
        a->array.record = *r;
        a->array.data = s->plan->data + r->offset;
        a->kv = r->heads && r->heads != s->plan->problem->heads;
    }
    return true;
}

uint32_t sema_unread_array(sema *s, const char *name) {
    array_decl *a = s->plan ? add_array(s, name, SPAN_NONE) : NULL;
    if (!a) return ARRAY_ANY;
    a->given = a->unread = true;
    a->array.record.k_cell = 1;
    return s->array_count - 1;
}

bool sema_declare_arrays(sema *s) {
    if (!declare_of_plan(s)) return false;
    for (const section *x = s->program.sections; x; x = x->next) {
        section_id id = words_find_section(x->name);
        for (const entry *e = x->entries; e; e = e->next) {
            if (!e->as || id == SECTION_COUNT) continue; /* an unknown section is reported as such */
            if (id != (e->as == IS_FIELD ? SECTION_BATCH : SECTION_MODEL))
                diag_error(s->d, FCP_E_UNKNOWN_KEY, e->key_at,
                           e->as == IS_FIELD ? "a field stands in the section batch"
                                             : "a table stands in the section model");
            else if (!declare_array(s, e)) return false;
        }
    }
    return true;
}

/* --- use ---------------------------------------------------------------------------------------------------------- */

/* Reads the values of an array and checks them. `keep` false: does not keep them. */
static bool load(sema *s, uint32_t array, bool keep) {
    array_decl *a = s->arrays[array];
    if (a->loaded || a->wrong) return a->loaded;
    uint64_t tokens = ANY_TOKENS;
    if (a->array.record.heads) { /* a model without heads has an error of its own */
        const uint32_t heads = a->kv ? s->out->kv_heads : s->out->heads;
        a->array.record.heads = heads ? heads : 1;
    }
    if (!a->table && batch_count(s)) {
        tokens = sema_field_start(s, &a->array.record, batch_count(s));
        if (tokens == ANY_TOKENS) tokens--; /* more than any file has */
    }
    a->array.name = a->name;
    bool good = true;
    if (a->run_of != ARRAY_ANY) {
        const array_decl *of = s->arrays[a->run_of];
        good = sema_load_array(s, a->run_of);
        a->array.record.kind = of->array.record.kind;
        a->array.record.k_cell = of->array.record.k_cell;
        a->array.file = of->array.file;
        memcpy(a->array.record.hash, of->array.record.hash, sizeof of->array.record.hash);
        if (good && of->array.data) good = sema_read_runs(s, &of->array, &a->array);
    } else if (a->table) good = sema_read_table(s, what_of(s, a), a->value, UINT64_MAX, keep, &a->array);
    else if (!a->given) good = sema_read_field(s, what_of(s, a), a->value, a->kv, tokens, keep, &a->array);
    else if (a->array.declared) a->array.record.lo = a->array.declared_lo, a->array.record.hi = a->array.declared_hi;
    a->loaded = good;
    a->wrong = !good;
    return good;
}

bool sema_load_array(sema *s, uint32_t array) { return load(s, array, true); }

bool sema_is_bare(const sema *s, uint32_t array) {
    const array_decl *a = s->arrays[array];
    return a->unread || a->wrong || (!a->table && !fcp_array_dims(&a->array.record)); /* wrong: no second error */
}

bool sema_is_typed(const sema *s, uint32_t array) {
    if (array == ARRAY_ANY) return false;
    const array_decl *a = s->arrays[array];
    if (a->unread) return false;
    return a->loaded || a->given || a->array.record.width == MC_F64 || a->value->kind == EXPR_LIST;
}

const char *sema_reading_text(sema *s, uint32_t array) {
    const array_decl *a = s->arrays[array];
    text t = {0};
    sema_put_reading(&a->array.record, a->kv, a->name, &t);
    const char *copy = t.failed ? NULL : arena_copy(s->scratch, t.at, t.size);
    text_free(&t);
    return copy ? copy : a->name;
}

/* Reports that the array is read with another number of indices than it has dimensions. */
static bool refuse_indices(sema *s, uint32_t array, const expr *e) {
    const array_decl *a = s->arrays[array];
    text t = {0};
    if (a->table) {
        const bool two = a->array.record.columns != 0;
        text_printf(&t, "has %s, so %s", two ? "two dimensions" : "one dimension", two ? "two indices" : "one index");
    } else {
        text_puts(&t, "is over ");
        sema_put_over(&a->array.record, a->kv, &t);
        text_puts(&t, ": ");
        sema_put_reading(&a->array.record, a->kv, a->name, &t);
    }
    text_add(&t, "", 1);
    diag_error(s->d, FCP_E_TYPE, e->at, "%s '%s' %s", sema_array_word(s, array), a->name, t.failed ? "" : t.at);
    text_free(&t);
    if (a->at.source != SPAN_NONE.source) diag_also(s->d, a->at, "declared here");
    return false;
}

bool sema_index_array(sema *s, uint32_t array, const expr *e, bool score, mc_op *out_op) {
    static const mc_op ints[] = {MC_LOAD, MC_LOAD, MC_LOAD2, MC_LOAD3};
    static const mc_op reals[] = {MC_LOAD_F, MC_LOAD_F, MC_LOAD2_F, MC_LOAD3_F};
    const int64_t count = e->kind == EXPR_INDEX ? e->integer : 0;
    *out_op = ints[count > 3 ? 3 : count];
    if (count > 3 && (array == ARRAY_ANY || s->arrays[array]->unread)) {
        diag_error(s->d, FCP_E_TYPE, e->at, "no field or table has %" PRId64 " dimensions", count);
        diag_hint(s->d, "a field has three at most: heads, queries, keys. Each sequence has values of its own");
        return false;
    }
    if (array == ARRAY_ANY || s->arrays[array]->unread) return true;
    array_decl *a = s->arrays[array];
    if (a->wrong) return false;
    /* the type may be known only from the values, and those of a field come after the lengths */
    if ((a->table || (s->builder && !sema_is_typed(s, array))) && !sema_load_array(s, array)) return false;
    if (count != fcp_array_dims(&a->array.record)) return refuse_indices(s, array, e);
    if (a->array.record.width != MC_F64) return true;
    if (score) {
        *out_op = reals[count];
        return true;
    }
    if (s->no_memory) return false; /* without memory for the lengths, its count of values was not checked */
    diag_error(s->d, FCP_E_TYPE, e->at, "%s '%s' is of reals; a mask is in whole numbers", sema_array_word(s, array),
               a->name);
    diag_hint(s->d, "reals are for scores");
    return false;
}

uint32_t sema_derive_run(sema *s, uint32_t array) {
    text t = {0};
    text_printf(&t, "run(%s)", s->arrays[array]->name);
    const char *name = t.failed ? NULL : arena_copy(s->scratch, t.at, t.size);
    text_free(&t);
    if (!name) {
        sema_no_memory(s);
        return ARRAY_ANY;
    }
    uint32_t known = sema_find_array(s, name);
    if (known != ARRAY_ANY) return known;
    array_decl *a = add_array(s, name, s->arrays[array]->at);
    if (!a) return ARRAY_ANY;
    a->run_of = array;
    a->array.record.k_cell = 1; /* as that of any field that has runs */
    return s->array_count - 1;
}

bool sema_fits_param(sema *s, const arg *param, uint32_t array, span at) {
    if (array == ARRAY_ANY || s->arrays[array]->table == (param->as == IS_TABLE)) return true;
    diag_error(s->d, FCP_E_TYPE, at, "'%s' must be a %s, and '%s' is a %s", param->name,
               param->as == IS_TABLE ? "table" : "field", s->arrays[array]->name, sema_array_word(s, array));
    return false;
}

uint32_t sema_array_argument(sema *s, const arg *param, const expr *e) {
    const char *word = param->as == IS_TABLE ? "table" : "field";
    uint32_t found = e->kind == EXPR_NAME ? sema_find_array(s, e->name) : ARRAY_ANY;
    if (found == ARRAY_ANY && e->kind == EXPR_NAME) found = sema_unread_array(s, e->name);
    if (found != ARRAY_ANY) return sema_fits_param(s, param, found, e->at) ? found : ARRAY_ANY;
    if (e->kind != EXPR_NAME) {
        diag_error(s->d, FCP_E_TYPE, e->at, "'%s' must be the name of a %s", param->name, word);
        return ARRAY_ANY;
    }
    diag_error(s->d, FCP_E_UNKNOWN_NAME, e->at, "unknown %s '%s'", word, e->name);
    const char *nearest = nearest_array(s, e->name, param->as == IS_FIELD);
    if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    else if (param->as == IS_FIELD)
        diag_hint(s->d, "declare it: batch { field %s = file(\"%s.npy\") }", e->name, e->name);
    else diag_hint(s->d, "declare it: model { table %s = file(\"%s.npy\") }", e->name, e->name);
    return ARRAY_ANY;
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static bool reads_array(uint32_t op) { return mc_loads_int(op) || mc_loads_real(op); }

/* Gives an array to the program, at place `*count` of `arrays`, which is its number from now on. */
static void keep_array(sema *s, uint32_t array, program_array *arrays, uint32_t *count) {
    struct fcpc_program *p = s->out;
    const array_decl *a = s->arrays[array];
    sema_load_array(s, array);
    program_array *to = &arrays[(*count)++];
    *to = a->array;
    to->name = arena_copy(&p->arena, a->name, strlen(a->name));
    if (a->array.file) to->file = arena_copy(&p->arena, a->array.file, strlen(a->array.file));
    if (a->run_of != ARRAY_ANY) {
        const char *of = s->arrays[a->run_of]->name;
        to->run_of = arena_copy(&p->arena, of, strlen(of));
    }
    if (!to->name || (a->array.file && !to->file) || (a->run_of != ARRAY_ANY && !to->run_of)) sema_no_memory(s);
}

/* The array that documents = names; ARRAY_ANY: it is not said, or wrong and reported. */
static uint32_t documents_array(sema *s) {
    const entry *e = s->documents;
    if (!e) return ARRAY_ANY;
    s->out->at[AT_DOCUMENTS] = e->value->at;
    if (e->value->kind != EXPR_NAME) {
        diag_error(s->d, FCP_E_TYPE, e->value->at, "documents takes the name of a field");
        diag_hint(s->d, "batch { field doc = given; documents = doc }");
        return ARRAY_ANY;
    }
    const arg field = {.name = e->key, .as = IS_FIELD};
    const uint32_t found = sema_array_argument(s, &field, e->value);
    if (found == ARRAY_ANY || !sema_load_array(s, found)) return ARRAY_ANY;
    const fcp_array *record = &s->arrays[found]->array.record;
    if (fcp_array_is_over(record, FCP_KEYS) && record->width != MC_F64) return found;
    diag_error(s->d, FCP_E_TYPE, e->value->at, "documents takes a field over keys, of whole numbers");
    diag_also(s->d, s->arrays[found]->at, "'%s' is another", s->arrays[found]->name);
    return ARRAY_ANY;
}

/* Adds the hint for a field of windows in which a negative number means that there is no limit. */
static void hint_negative(sema *s, const program_array *a) {
    static const struct {
        const char *of, *before, *limit;
    } known[] = {{"w of 'window'", "causal and ", "q - k < "},
                 {"l of 'window_both'", "", "q - k <= "},
                 {"r of 'window_both'", "", "k - q <= "}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(a->count_of, known[i].of) != 0) continue;
        text t = {0};
        sema_put_reading(&a->record, a->record.heads && a->record.heads != s->out->heads, a->name, &t);
        text_add(&t, "", 1);
        if (!t.failed)
            diag_hint(s->d, "where that means no limit, write %s(%s < 0 or %s%s)", known[i].before, t.at,
                      known[i].limit, t.at);
        text_free(&t);
    }
}

void sema_finish_arrays(sema *s) {
    struct fcpc_program *p = s->out;
    const mc_code codes[] = {p->mask, p->score, p->slope, p->check};
    uint32_t *number = ARENA_NEW(s->scratch, uint32_t, s->array_count + (size_t)1), count = 0;
    program_array *arrays = ARENA_ZNEW(&p->arena, program_array, s->array_count + (size_t)1);
    const char **names = ARENA_NEW(&p->arena, const char *, s->array_count + (size_t)1);
    if (!number || !arrays || !names) {
        sema_no_memory(s);
        return;
    }
    for (uint32_t i = 0; i < s->array_count; i++) {
        const array_decl *a = s->arrays[i];
        number[i] = ARRAY_ANY;
        if (a->table || a->run_of != ARRAY_ANY) continue;
        names[p->field_count] = arena_copy(&p->arena, a->name, strlen(a->name));
        if (!names[p->field_count++]) sema_no_memory(s);
    }
    p->fields = names;
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++)
        for (uint32_t i = 0; i < codes[c].count; i++) {
            mc_node *x = (mc_node *)&codes[c].nodes[i]; /* the code is the program's own, so it may be changed */
            if (!reads_array(x->op)) continue;
            uint32_t array = (uint32_t)x->imm;
            if (number[array] == ARRAY_ANY) {
                number[array] = count;
                keep_array(s, array, arrays, &count);
            }
            x->imm = number[array];
        }
    for (program_count *c = p->counts; c; c = c->next)
        for (uint32_t i = 0; i < c->code.count; i++) {
            mc_node *x = (mc_node *)&c->code.nodes[i];
            if (!reads_array(x->op)) continue;
            if (number[x->imm] == ARRAY_ANY)
                c->code.count = 0; /* the mask was simplified, and its values are not kept */
            else x->imm = number[x->imm];
        }
    const uint32_t documents = documents_array(s);
    if (documents != ARRAY_ANY) {
        if (number[documents] == ARRAY_ANY) {
            number[documents] = count;
            keep_array(s, documents, arrays, &count);
        }
        p->documents = number[documents];
    }
    for (uint32_t i = 0; i < count; i++)
        if (arrays[i].count_of && arrays[i].name && arrays[i].data && arrays[i].record.lo < 0) {
            diag_error(s->d, FCP_E_VALUE, arrays[i].at, "%s must be at least 0, and '%s' has %" PRId64,
                       arrays[i].count_of, arrays[i].name, arrays[i].record.lo);
            hint_negative(s, &arrays[i]);
        }
    p->arrays = arrays;
    p->array_count = count;
    /* The others are checked like those. Otherwise a wrong file would be noticed only when some mask reads it. */
    for (uint32_t i = 0; i < s->array_count && !s->plan; i++) {
        const array_decl *a = s->arrays[i];
        if (number[i] != ARRAY_ANY || a->run_of != ARRAY_ANY || !load(s, i, false) || a->table) continue;
        program_array *to = &arrays[count + p->unread_count++];
        *to = a->array;
        to->name = arena_copy(&p->arena, a->name, strlen(a->name));
        to->data = NULL;
        to->file = NULL;
        if (!to->name) sema_no_memory(s);
    }
}
