/* expr.c: checks the types of masks and scores, and turns their expressions into mask code by inlining what they call.
 *
 * The same function, lower, does both. Without a builder it only checks types: of every mask of the program, with its
 * parameters as they are declared, and of every definition, with parameters of any type. With a builder it emits mask
 * code, for one mask with constant arguments. In either case inline.c remembers what was inlined. What is special about
 * reals is in score.c.
 *
 * Names mean what sema/names.c says. Inside the masks of the prelude, a mask's name means the one of the prelude, even
 * if the program defines another mask of that name.
 *
 * Guards (codegen/mask/code.h): the right side of `and` is reached only if the left side is true, that of `or` only if
 * it is false, and a branch of `if` only under its condition. A definition without parameters is evaluated where it is
 * used, and arguments are evaluated before the call.
 *
 * Requires: trees from syntax/parse.c, at most NEST_MAX deep.
 * Cost: O(size of the inlined expression). More than STEPS_MAX steps, MC_MAX_NODES nodes, or LOWER_MAX levels of C
 *      recursion are an error.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/expr/expr.h"
#include "compiler/expr/slice_sources.h"
#include "compiler/syntax/foreign_words.h"
#include "runtime/base/grow.h"

enum { LOWER_MAX = 1000, STEPS_MAX = 1000000, FEW = 6 };

static const value poison = {TYPE_POISON, 0};

static const mc_op variable_ops[SCORE_VARIABLES] = {MC_Q, MC_K, MC_N, MC_H, MC_S};

static value lower(sema *s, expr *e, const frame *f, uint32_t guard);
static value lower_array(sema *s, expr *e, const frame *f, uint32_t guard);

/* --- emitting ----------------------------------------------------------------------------------------------------- */

/* Reports, once, that the builder has failed. */
static void builder_failed(sema *s, span at) {
    if (s->failed) return;
    if (mc_builder_full(s->builder)) {
        diag_error(s->d, FCP_E_TOO_LARGE, at, "this %s needs more than %u operations when expanded",
                   s->plan_score ? "score" : "mask", MC_MAX_NODES);
        s->failed = true;
    } else sema_no_memory(s);
}

uint32_t expr_place(sema *s, span at) {
    if (!FCP_GROW(s->places, s->place_room, s->place_count + 2)) {
        sema_no_memory(s);
        return 0;
    }
    if (!s->place_count) s->places[s->place_count++] = SPAN_NONE;
    s->places[s->place_count] = at;
    return s->place_count++;
}

/* The number of an expression's span, for diagnostics of later passes. */
static uint32_t place_of(sema *s, expr *e) { return e->place ? e->place : (e->place = expr_place(s, e->at)); }

static uint32_t emit(sema *s, expr *e, mc_op op, uint32_t a, uint32_t b, uint32_t c, int64_t imm, uint32_t guard) {
    if (!s->builder || s->failed) return 0;
    uint32_t node = mc_emit(s->builder, op, a, b, c, imm, guard, place_of(s, e));
    if (node == MC_NONE) {
        builder_failed(s, e->at);
        return 0;
    }
    if (mc_op_faults(op)) {
        uint32_t count;
        const mc_node *nodes = mc_builder_nodes(s->builder, &count);
        if (guard == MC_NONE ? nodes[node].op != MC_CONST_I
                             : nodes[guard].op == MC_CONST_B || nodes[node].guard != MC_NONE)
            s->guarded++;
    }
    if (op >= MC_LT_F) score_finite(s, e, op, node, a, b, guard);
    return node;
}

uint32_t expr_emit(sema *s, expr *e, mc_op op, uint32_t a, uint32_t b, uint32_t c, int64_t imm, uint32_t guard) {
    return emit(s, e, op, a, b, c, imm, guard);
}

static uint32_t emit2(sema *s, expr *e, mc_op op, uint32_t a, uint32_t b, uint32_t guard) {
    return emit(s, e, op, a, b, MC_NONE, 0, guard);
}

/* Returns what of a condition may serve as a guard, in which reals must not occur. Of `q < 5 and bias[k] > 0.5` that is
 * q < 5. In general it is the `and` of those parts that do not depend on reals, so it is true wherever the condition
 * is. MC_NONE: there is no such part. */
static uint32_t whole_part(sema *s, expr *e, uint32_t node) {
    if (!mc_builder_real(s->builder, node)) return node;
    uint32_t count;
    const mc_node x = mc_builder_nodes(s->builder, &count)[node];
    if (x.op != MC_AND) return MC_NONE;
    uint32_t a = whole_part(s, e, x.a), b = whole_part(s, e, x.b);
    return a == MC_NONE ? b : b == MC_NONE ? a : emit2(s, e, MC_AND, a, b, MC_NONE);
}

/* Returns the guard of code that is reached only if `guard` is true and `condition` is true, or false if `negated`. */
static uint32_t guard_with(sema *s, expr *e, uint32_t guard, value condition, bool negated) {
    if (!s->builder || s->failed || condition.type != TYPE_BOOL) return guard;
    uint32_t node = negated ? emit(s, e, MC_NOT, condition.node, MC_NONE, MC_NONE, 0, MC_NONE) : condition.node;
    if (s->failed || (node = whole_part(s, e, node)) == MC_NONE) return guard;
    uint32_t count;
    const mc_node *nodes = mc_builder_nodes(s->builder, &count);
    if (nodes[node].op == MC_CONST_B) return nodes[node].imm ? guard : node;
    return guard == MC_NONE ? node : emit2(s, e, MC_AND, guard, node, MC_NONE);
}

static value constant_value(sema *s, expr *e, value_type type, int64_t imm) {
    return (value){type,
                   emit(s, e, type == TYPE_INT ? MC_CONST_I : MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, imm, MC_NONE)};
}

/* --- types -------------------------------------------------------------------------------------------------------- */

const char *expr_type_text(uint32_t type) {
    return type == TYPE_BOOL ? "a condition" : type == TYPE_REAL ? "a real number"
           : type == TYPE_ARRAY ? "a field or table" : "a number";
}

static void hint_array(sema *s, value v, const expr *e) {
    if (v.type != TYPE_ARRAY || e->kind != EXPR_NAME) return;
    const array_decl *a = v.node == ARRAY_ANY ? NULL : s->arrays[v.node];
    if (a && !a->table && !fcp_array_is_over(&a->array.record, FCP_KEYS))
        diag_hint(s->d, "its elements are numbers: %s", sema_reading_text(s, v.node));
    else
        diag_hint(s->d, "its elements are numbers: %s[q], %s[k]%s", e->name, e->name,
                  a && !a->table ? "; a field over sequences has one for each, read by its name" : "");
}

/* Does v have this type, or one that is not known yet? If not, reports it. For TYPE_POISON, whose error was reported
 * before, it returns false and reports nothing. */
void expr_hint_number(sema *s, const expr *e) {
    const mask *m = e->kind == EXPR_NAME && e->ref == REF_MASK ? e->target : NULL;
    if (m && m->builtin)
        diag_hint(s->d,
                  "'%s' is a mask of the prelude; a number for each sequence is batch { field %s = [10, 20] over "
                  "sequences }, which hides the mask",
                  e->name, e->name);
}

static bool needs(sema *s, value v, value_type type, const expr *e, const char *who) {
    if (v.type == type || v.type == TYPE_ANY) return true;
    if (v.type == TYPE_POISON) return false;
    const char *wanted = type == TYPE_INT && v.type == TYPE_REAL ? "a whole number" : expr_type_text(type);
    diag_error(s->d, FCP_E_TYPE, e->at, "%s needs %s, this is %s", who, wanted, expr_type_text(v.type));
    hint_array(s, v, e);
    if (type != TYPE_BOOL && v.type == TYPE_BOOL) expr_hint_number(s, e);
    if (type == TYPE_BOOL && v.type != TYPE_ARRAY)
        diag_hint(s->d, "numbers are not conditions: compare, for instance with != 0");
    return false;
}

bool expr_needs(sema *s, value v, value_type type, const expr *e, const char *who) { return needs(s, v, type, e, who); }

static value apply_binary(sema *s, expr *e, value a, value b, uint32_t guard) {
    static const mc_op codes[OP_COUNT] = {[OP_OR] = MC_OR, [OP_AND] = MC_AND, [OP_LT] = MC_LT, [OP_LE] = MC_LE,
                                          [OP_GT] = MC_LT, [OP_GE] = MC_LE, [OP_EQ] = MC_EQ, [OP_NE] = MC_NE,
                                          [OP_ADD] = MC_ADD, [OP_SUB] = MC_SUB, [OP_MUL] = MC_MUL, [OP_DIV] = MC_DIV,
                                          [OP_MOD] = MC_MOD};
    char who[16] = {'\''};
    strcat(strcat(who, e->name ? e->name : words_op_spelling((expr_op)e->op)), "'");
    bool logic = e->op == OP_AND || e->op == OP_OR;
    bool equality = e->op == OP_EQ || e->op == OP_NE;
    value_type result = logic || words_op_precedence((expr_op)e->op) == PREC_COMPARE ? TYPE_BOOL : TYPE_INT;
    if (equality) {
        if (a.type == TYPE_POISON || b.type == TYPE_POISON) return (value){TYPE_BOOL, 0};
        if (a.type == TYPE_ARRAY || b.type == TYPE_ARRAY) {
            needs(s, a, TYPE_INT, e->a, who);
            needs(s, b, TYPE_INT, e->b, who);
            return (value){TYPE_BOOL, 0};
        }
        if (a.type != TYPE_ANY && b.type != TYPE_ANY && a.type != b.type) {
            diag_error(s->d, FCP_E_TYPE, e->at, "%s compares two values of one type; these are %s and %s", who,
                       expr_type_text(a.type), expr_type_text(b.type));
            expr_hint_number(s, a.type == TYPE_BOOL ? e->a : e->b);
            return (value){TYPE_BOOL, 0};
        }
        if (a.type == TYPE_BOOL) {
            uint32_t node = emit2(s, e, MC_IFF, a.node, b.node, MC_NONE);
            if (e->op == OP_NE) node = emit(s, e, MC_NOT, node, MC_NONE, MC_NONE, 0, MC_NONE);
            return (value){TYPE_BOOL, node};
        }
        return (value){TYPE_BOOL, emit2(s, e, codes[e->op], a.node, b.node, MC_NONE)};
    }
    value_type operands = logic ? TYPE_BOOL : TYPE_INT;
    bool left = needs(s, a, operands, e->a, who), right = needs(s, b, operands, e->b, who);
    if (!left || !right) return s->builder ? poison : (value){result, 0};
    bool swap = e->op == OP_GT || e->op == OP_GE;
    return (value){result, emit2(s, e, codes[e->op], swap ? b.node : a.node, swap ? a.node : b.node, guard)};
}

/* --- walking ------------------------------------------------------------------------------------------------------ */

/* Is the condition known to be `answer`, as one on arguments of the call often is? Then what is reached only under the
 * other answer is never reached. The builder keeps what may fault; here it is left out, faults and all. */
static bool decided(sema *s, value condition, bool answer) {
    uint32_t count;
    if (!s->builder || s->failed || condition.type != TYPE_BOOL) return false;
    const mc_node *x = &mc_builder_nodes(s->builder, &count)[condition.node];
    return x->op == MC_CONST_B && x->imm == answer;
}

static value lower_binary(sema *s, expr *top, const frame *f, uint32_t guard) {
    expr *e = top;
    while (e->a->kind == EXPR_BINARY) e = e->a;
    value left = lower(s, e->a, f, guard);
    for (;; e = e->up) {
        bool logic = e->op == OP_AND || e->op == OP_OR, keep = logic && decided(s, left, e->op == OP_OR);
        uint32_t inner = logic ? guard_with(s, e->a, guard, left, e->op == OP_OR) : guard;
        value right = lower(s, e->b, f, inner), old = left;
        left = f->m->score ? score_binary(s, e, left, right, guard) : apply_binary(s, e, left, right, guard);
        if (keep && left.type == TYPE_BOOL) left = old;
        if (e == top || s->failed) return s->failed ? poison : left;
    }
}

static value lower_if(sema *s, expr *e, const frame *f, uint32_t guard) {
    value c = lower(s, e->a, f, guard);
    bool condition = needs(s, c, TYPE_BOOL, e->a, "'if'");
    value a = lower(s, e->b, f, guard_with(s, e->a, guard, c, false));
    value b = lower(s, e->c, f, guard_with(s, e->a, guard, c, true));
    if (a.type == TYPE_POISON || b.type == TYPE_POISON) return a.type == TYPE_POISON ? b : a;
    if (f->m->score) score_branches(s, e, &a, &b);
    uint32_t type = a.type == TYPE_ANY ? b.type : a.type;
    if (type == TYPE_ARRAY) {
        diag_error(s->d, FCP_E_TYPE, e->at, "'if' chooses between numbers or conditions, not fields or tables");
        hint_array(s, a, e->b);
        return poison;
    }
    if (b.type != TYPE_ANY && b.type != type) {
        diag_error(s->d, FCP_E_TYPE, e->at, "the branches of 'if' differ: %s and %s", expr_type_text(a.type),
                   expr_type_text(b.type));
        expr_hint_number(s, type == TYPE_BOOL ? e->b : e->c);
        return poison;
    }
    if (!condition) return s->builder ? poison : (value){type, 0};
    if (decided(s, c, true)) return a;
    if (decided(s, c, false)) return b;
    return (value){type, emit(s, e,
                              type == TYPE_BOOL   ? MC_IF_B
                              : type == TYPE_REAL ? MC_IF_F
                                                  : MC_IF_I,
                              c.node, a.node, b.node, 0, MC_NONE)};
}

/* Finds out what a name means here, and stores that in the tree. */
static int resolve(sema *s, expr *e, const frame *f) {
    if (e->ref != REF_NONE) return e->ref;
    span at = e->kind == EXPR_CALL ? e->name_at : e->at;
    const char *name = e->name;
    const symbol *found;
    bool score = f->m->score;
    int variable = words_find(words_variables, score ? SCORE_VARIABLES : MASK_VARIABLES, name),
        builtin = words_find(words_functions, score ? SCORE_BUILTINS : MASK_BUILTINS, name);
    if (variable >= 0) {
        e->index = (uint32_t)variable;
        return e->ref = REF_VAR;
    }
    if (builtin >= 0) {
        e->index = (uint32_t)builtin;
        return e->ref = REF_BUILTIN;
    }
    if (f->def && (found = sema_find_symbol(s, f->def, name))) {
        e->index = found->index;
        return e->ref = REF_DEF_PARAM;
    }
    if ((found = sema_find_symbol(s, f->m, name))) {
        definition *d = found->target;
        if (!d) {
            e->index = found->index;
            return e->ref = REF_PARAM;
        }
        if (!f->def || d->number < f->def->number) {
            e->target = d;
            return e->ref = REF_DEF;
        }
        if (d == f->def) {
            diag_error(s->d, FCP_E_RECURSION, at, "'%s' is defined by itself", name);
            diag_hint(s->d, "definitions are not recursive: each sees the ones before it");
        } else {
            diag_error(s->d, FCP_E_UNKNOWN_NAME, at, "'%s' is defined only further down", name);
            diag_also(s->d, d->name_at, "defined here");
            diag_hint(s->d, "definitions see the ones before them");
        }
        return e->ref = REF_WRONG;
    }
    uint32_t array = f->m->builtin ? ARRAY_ANY : sema_find_array(s, name);
    if (array != ARRAY_ANY) {
        e->index = array;
        return e->ref = REF_ARRAY;
    }
    mask *m = f->m->builtin ? sema_given_mask(s, name) : sema_visible_mask(s, name, score ? KIND_ANY : KIND_MASK);
    if (m && m->score && !score) {
        diag_error(s->d, FCP_E_TYPE, at, "'%s' is a score; a mask is made of whole numbers and conditions", name);
        return e->ref = REF_WRONG;
    }
    if (m) {
        e->target = m;
        return e->ref = m->score ? REF_SCORE : REF_MASK;
    }
    if (s->no_memory) return e->ref = REF_WRONG; /* to read it from the prelude */
    int of_model = words_find(words_figures, MODEL_FIGURES, name);
    if (of_model >= 0) {
        e->index = (uint32_t)of_model;
        return e->ref = REF_MODEL;
    }
    array = e->kind == EXPR_NAME ? sema_unread_array(s, name) : ARRAY_ANY;
    if (array != ARRAY_ANY) {
        e->index = array;
        return e->ref = REF_ARRAY;
    }
    if (ast_is_call(e, words_sources[SOURCE_FILE])) {
        diag_error(s->d, FCP_E_TYPE, at, "a file stands in slices(...): slices(file(\"a.slices\"))");
    } else if (e->kind == EXPR_CALL && words_find(words_functions, SCORE_BUILTINS, name) >= 0) {
        diag_error(s->d, FCP_E_TYPE, at, "'%s' is a function of real numbers: of scores, not of masks", name);
        diag_hint(s->d, words_same(name, words_functions[BUILTIN_FLOOR])
                            ? "masks are in whole numbers: q / 64 rounds down"
                            : "masks are in whole numbers");
    } else {
        diag_error(s->d, FCP_E_UNKNOWN_NAME, at, "unknown name '%s'", name);
        const bool usual = sema_hint_foreign(s, name, FCPC_FOREIGN_NAME | (score ? FCPC_FOREIGN_SCORE : 0), e);
        const char *nearest = usual ? NULL : sema_nearest_name(s, name, f->m, f->def);
        if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
        else if (!usual && e->kind == EXPR_NAME && !s->in_index && !f->m->builtin) {
            diag_hint(s->d, "a parameter stands behind the name of its %s: %s(%s = 1)", f->m->score ? "score" : "mask",
                      f->m->name, name);
            diag_hint(s->d, "a number for each sequence is batch { field %s = [10, 20] over sequences }", name);
        }
    }
    return e->ref = REF_WRONG;
}

/* --- calls -------------------------------------------------------------------------------------------------------- */

/* Notes where exact(...) is called, so that its fault can be told from a division by zero. */
static bool note_exact(sema *s, program_exact new) {
    struct fcpc_program *p = s->out;
    for (uint32_t i = 0; i < p->exact_count; i++) {
        const program_exact *x = &p->exact[i];
        if (diag_same_span(x->at, new.at) && x->dividend == new.dividend && x->divisor == new.divisor) return true;
    }
    program_exact *grown = ARENA_NEW(&p->arena, program_exact, p->exact_count + (size_t)1);
    if (!grown) return sema_no_memory(s);
    if (p->exact_count) memcpy(grown, p->exact, p->exact_count * sizeof *grown);
    grown[p->exact_count++] = new;
    p->exact = grown;
    return true;
}

/* exact(a, b) is a / (if a % b == 0 then b else 0): it divides by zero, which is a fault, where b does not divide a. If
 * both are constants and nothing guards them, that is reported here. */
uint32_t expr_exact(sema *s, expr *e, uint32_t a, uint32_t b, uint32_t guard) {
    if (!s->builder || s->failed) return 0;
    uint32_t count;
    const mc_node *nodes = mc_builder_nodes(s->builder, &count);
    const mc_node x = nodes[a], y = nodes[b]; /* the array moves as it grows */
    const bool uneven = x.op == MC_CONST_I && y.op == MC_CONST_I && y.imm && mc_mod(x.imm, y.imm);
    if (guard == MC_NONE && uneven) {
        diag_error(s->d, FCP_E_MASK_EXACT, e->at, "%" PRId64 " is not a multiple of %" PRId64, x.imm, y.imm);
        s->failed = true;
        return 0;
    }
    const program_exact call = {.at = e->at, .dividend = uneven ? x.imm : 0, .divisor = uneven ? y.imm : 0};
    if (!note_exact(s, call)) return 0;
    uint32_t rest = emit2(s, e, MC_MOD, a, b, guard);
    uint32_t zero = emit(s, e, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE);
    uint32_t even = emit2(s, e, MC_EQ, rest, zero, MC_NONE);
    return emit2(s, e, MC_DIV, a, emit(s, e, MC_IF_I, even, b, zero, 0, MC_NONE), guard);
}

/* Is this the index of a batch, as FlexAttention's masks have it, and not a name of the program? */
static bool is_batch_index(sema *s, const expr *e, const frame *f) {
    static const char *const words[] = {"b", "batch_idx", "b_idx"};
    if (e->kind != EXPR_NAME || words_find(words, sizeof words / sizeof *words, e->name) < 0) return false;
    return !(f->def && sema_find_symbol(s, f->def, e->name)) && !sema_find_symbol(s, f->m, e->name) &&
           sema_find_array(s, e->name) == ARRAY_ANY && !sema_visible_mask(s, e->name, KIND_ANY);
}

/* Reports prefix[b] and doc[b, q]. */
static value no_batch_index(sema *s, const expr *e) {
    text whole = {0}, of = {0}, rest = {0};
    ast_print_expr(e->a, &of);
    text_add(&whole, of.at, of.size);
    text_puts(&whole, "[");
    ast_print_expr(e->b, &whole);
    if (e->c) ast_print_expr(e->c, &rest);
    if (e->d) text_puts(&rest, ", "), ast_print_expr(e->d, &rest);
    if (e->integer > 3) text_puts(&rest, ", ..."); /* the tree has three */
    if (e->c) text_puts(&whole, ", "), text_add(&whole, rest.at, rest.size);
    text_puts(&whole, "]");
    char *said = text_take(&whole), *name = text_take(&of), *index = text_take(&rest);
    if (said && name && index) {
        diag_error(s->d, FCP_E_UNKNOWN_NAME, e->b->at,
                   "%s: a batch is a list of sequences, none of which sees another, so it has no index", said);
        const uint32_t array = sema_find_array(s, name);
        if (e->c) diag_hint(s->d, "a field has values for each sequence anyway: %s[%s]", name, index);
        else if (array != ARRAY_ANY && sema_is_bare(s, array))
            diag_hint(s->d, "field '%s' has a number for each sequence: write %s", name, name);
        else
            diag_hint(s->d,
                      "a number for each sequence is batch { field %s = [10, 20] over sequences }, and is read "
                      "as %s",
                      name, name);
    } else sema_no_memory(s);
    free(said);
    free(name);
    free(index);
    return poison;
}

/* Adds how to declare a field or table, if the name was looked for and nothing is like it. `several`: it has several
 * indices. */
static void hint_declare(sema *s, const expr *e, const frame *f, bool several) {
    if (e->ref != REF_WRONG || foreign_words_find(e->name, FCPC_FOREIGN_NAME, NULL) ||
        sema_nearest_name(s, e->name, f->m, f->def))
        return;
    diag_hint(s->d, "declare it: batch { field %s = file(\"%s.npy\")%s }, or model { table %s = %s }", e->name, e->name,
              several ? " over heads, queries / 128, keys / 128" : "", e->name,
              several ? "[[1, 2], [3, 4]]" : "[1, 2]");
}

/* Lowers the index expressions name[i], name[i, j] and name[i, j, l]. */
static value lower_index(sema *s, expr *e, const frame *f, uint32_t guard) {
    if (is_batch_index(s, e->b, f)) return no_batch_index(s, e);
    s->in_index++;
    const bool first = e->a->kind == EXPR_NAME && e->a->ref == REF_NONE;
    const size_t errors = diag_errors(s->d);
    value a = lower_array(s, e->a, f, guard);
    if (diag_errors(s->d) > errors && e->a->kind == EXPR_INDEX) a.type = TYPE_POISON; /* keep[h][q]: said once */
    if (first) hint_declare(s, e->a, f, e->integer > 1);
    expr *const indices[] = {e->b, e->c, e->d};
    value at[3] = {{TYPE_INT, MC_NONE}, {TYPE_INT, MC_NONE}, {TYPE_INT, MC_NONE}};
    for (int i = 0; i < 3 && indices[i]; i++) at[i] = lower(s, indices[i], f, guard);
    s->in_index--;
    mc_op op = MC_LOAD;
    bool good = needs(s, a, TYPE_ARRAY, e->a, "[...]");
    if (!good && first && e->a->ref == REF_PARAM)
        diag_hint(s->d, "say that it is one where it is declared: %s(field %s)", f->m->name, e->a->name);
    for (int i = 0; i < 3 && indices[i]; i++) good = needs(s, at[i], TYPE_INT, indices[i], "an index") && good;
    if (good && a.type == TYPE_ARRAY) good = sema_index_array(s, a.node, e, f->m->score, &op);
    bool unknown = f->m->score && (!good || (!s->builder && !sema_is_typed(s, a.node)));
    value_type type = unknown ? TYPE_ANY : mc_op_type(op) == 'f' ? TYPE_REAL : TYPE_INT;
    if (!good) return s->builder ? poison : (value){type, 0};
    return (value){type, emit(s, e, op, at[0].node, at[1].node, at[2].node, a.node, guard)};
}

value expr_read_bare(sema *s, expr *e, uint32_t array, bool score) {
    mc_op op;
    const bool good = sema_index_array(s, array, e, score, &op);
    const bool unknown = score && (!good || (!s->builder && !sema_is_typed(s, array)));
    const uint32_t type = unknown ? TYPE_ANY : mc_op_type(op) == 'f' ? TYPE_REAL : TYPE_INT;
    if (!good) return s->builder ? poison : (value){type, 0};
    const uint64_t guarded = s->guarded;
    const uint32_t zero = emit(s, e, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE);
    const uint32_t node = emit(s, e, op, zero, MC_NONE, MC_NONE, array, MC_NONE);
    s->guarded = guarded; /* the element is always there, so it is the same under every guard */
    return (value){type, node};
}

/* What a name means where a number or a condition is wanted: of a field over sequences, the sequence's number. A
 * parameter that is a field may be such a one. */
static value read_bare(sema *s, expr *e, value v, const frame *f) {
    if (v.type != TYPE_ARRAY) return v;
    if (v.node != ARRAY_ANY) return sema_is_bare(s, v.node) ? expr_read_bare(s, e, v.node, f->m->score) : v;
    const arg *p = f->m->params;
    for (uint32_t i = 0; e->ref == REF_PARAM && p && i < e->index; i++) p = p->next;
    if (e->ref == REF_PARAM && p && p->as == IS_TABLE) return v;
    return (value){f->m->score ? TYPE_ANY : TYPE_INT, 0};
}

/* Lowers run(field, t): the position at which the run of equal values around position t begins. */
static value lower_run(sema *s, expr *e, const frame *f, uint32_t guard) {
    const value result = {TYPE_INT, 0};
    if (e->arg_count != 2 || e->args->name || e->args->next->name) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "'run' takes a field and a position: run(doc, k)");
        return result;
    }
    value a = lower_array(s, e->args->value, f, guard), t = lower(s, e->args->next->value, f, guard);
    bool good = needs(s, a, TYPE_ARRAY, e->args->value, "run");
    const array_decl *of = good && a.type == TYPE_ARRAY && a.node != ARRAY_ANY ? s->arrays[a.node] : NULL;
    if (of && (of->table || !fcp_array_is_over(&of->array.record, FCP_KEYS))) {
        text over = {0};
        if (of->table) text_puts(&over, "a table");
        else text_puts(&over, "over "), sema_put_over(&of->array.record, of->kv, &over);
        text_add(&over, "", 1);
        diag_error(s->d, FCP_E_TYPE, e->args->value->at, "'run' takes a field over keys, '%s' is %s", of->name,
                   over.failed ? "another" : over.at);
        text_free(&over);
        good = false;
    } else if (of && s->builder && (!sema_load_array(s, a.node) || of->array.record.width == MC_F64)) {
        if (!of->wrong)
            diag_error(s->d, FCP_E_TYPE, e->args->value->at, "'run' takes a field of whole numbers, '%s' is of reals",
                       of->name);
        return poison;
    }
    good = needs(s, t, TYPE_INT, e->args->next->value, "run") && good;
    if (!good || !s->builder || s->failed) return good || !s->builder ? result : poison;
    uint32_t array = sema_derive_run(s, a.node);
    if (array == ARRAY_ANY) return poison;
    return (value){TYPE_INT, emit(s, e, MC_LOAD, t.node, MC_NONE, MC_NONE, array, guard)};
}

static value lower_builtin(sema *s, expr *e, const frame *f, uint32_t guard) {
    if (e->index == BUILTIN_RUN) return lower_run(s, e, f, guard);
    bool is_abs = e->index == BUILTIN_ABS, is_exact = e->index == BUILTIN_EXACT;
    if (is_abs ? e->arg_count != 1 : is_exact ? e->arg_count != 2 : e->arg_count < 2) {
        diag_error(s->d, FCP_E_ARGUMENT, e->at, is_abs ? "'%s' takes one number" : is_exact ? "'%s' takes two numbers"
                   : "'%s' takes two numbers or more", e->name);
        return (value){TYPE_INT, 0};
    }
    value result = poison;
    bool good = true;
    for (arg *a = e->args; a; a = a->next) {
        if (a->name) {
            diag_error(s->d, FCP_E_ARGUMENT, a->name_at, "'%s' takes numbers without names", e->name);
            return (value){TYPE_INT, 0};
        }
        value v = lower(s, a->value, f, guard);
        if (!needs(s, v, TYPE_INT, a->value, e->name)) good = false;
        if (!good) continue;
        if (is_abs) result.node = emit(s, e, MC_ABS, v.node, MC_NONE, MC_NONE, 0, guard);
        else if (a == e->args) result.node = v.node;
        else if (is_exact) result.node = expr_exact(s, e, result.node, v.node, guard);
        else result.node = emit2(s, e, e->index == BUILTIN_MIN ? MC_MIN : MC_MAX, result.node, v.node, MC_NONE);
        result.type = TYPE_INT;
    }
    return good || s->builder ? result : (value){TYPE_INT, 0};
}

/* Lowers rect(...), which becomes comparisons, and slices(...), which becomes one of the program's bands. */
static value lower_piece(sema *s, expr *e, const frame *f, uint32_t guard) {
    const value result = {TYPE_BOOL, 0};
    if (e->index == BUILTIN_RECT) {
        expr *all = expr_expand_rect(s, e);
        return all ? lower(s, all, f, guard) : s->builder ? poison : result;
    }
    if (!s->builder) return expr_check_slices_call(s, e), result;
    const slice_source *from = expr_load_slices(s, e);
    if (!from) s->failed = true;
    if (s->failed) return poison;
    uint32_t q = emit(s, e, MC_Q, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE);
    uint32_t k = emit(s, e, MC_K, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE);
    return (value){TYPE_BOOL, emit(s, e, MC_BANDS, q, k, MC_NONE, from->number, MC_NONE)};
}

/* Lowers arguments into `out`, or into new memory if there are more than FEW. */
static value *lower_args(sema *s, const arg *first, uint32_t count, value *few, const frame *f, uint32_t guard) {
    value *out = count <= FEW ? few : ARENA_NEW(s->scratch, value, count);
    if (!out) {
        sema_no_memory(s);
        return NULL;
    }
    uint32_t i = 0;
    for (const arg *a = first; a; a = a->next) out[i++] = lower_array(s, a->value, f, guard);
    return out;
}

static value lower_definition(sema *s, expr *e, const frame *f, uint32_t guard) {
    definition *d = (definition *)e->target;
    bool call = e->kind == EXPR_CALL;
    if (call != d->function) {
        if (call) diag_error(s->d, FCP_E_ARGUMENT, e->at, "'%s' is not a function", e->name);
        else diag_error(s->d, FCP_E_ARGUMENT, e->at, "'%s' is a function and needs its arguments", e->name);
        diag_also(s->d, d->name_at, "defined here");
        return poison;
    }
    value few[FEW], *args = NULL;
    if (call) {
        for (const arg *a = e->args; a; a = a->next) {
            if (!a->name) continue;
            diag_error(s->d, FCP_E_ARGUMENT, a->name_at, "functions of 'where' take arguments without names");
            return poison;
        }
        if (e->arg_count != d->param_count) {
            diag_error(s->d, FCP_E_ARGUMENT, e->at, "'%s' takes %u argument%s, not %u", e->name, d->param_count,
                       d->param_count == 1 ? "" : "s", e->arg_count);
            diag_also(s->d, d->name_at, "defined here");
            return poison;
        }
        args = lower_args(s, e->args, e->arg_count, few, f, guard);
        if (!args) return poison;
        for (uint32_t i = 0; i < e->arg_count; i++)
            if (args[i].type == TYPE_POISON) return poison;
    }
    if (d->broken) return poison;
    frame inner = {.m = f->m, .args = f->args, .def = d, .def_args = args, .s = f->s};
    /* a definition depends on the arguments of its mask too, so what is remembered goes by them as well */
    const void *what = d;
    if (s->builder && (f->m->param_count || f->m->score)) {
        uint32_t own = d->param_count, all = own + f->m->param_count + f->m->score;
        value some[2 * FEW], *key = all <= 2 * FEW ? some : ARENA_NEW(s->scratch, value, all);
        if (!key) {
            sema_no_memory(s);
            return poison;
        }
        if (own) memcpy(key, args, own * sizeof *key);
        if (f->m->param_count) memcpy(key + own, f->args, f->m->param_count * sizeof *key);
        if (f->m->score) key[all - 1] = f->s;
        return expr_inline(s, what, d->body, key, all, &inner, guard);
    }
    size_t errors = diag_errors(s->d);
    value result = expr_inline(s, what, d->body, args, d->param_count, &inner, guard);
    if (diag_errors(s->d) > errors && call) diag_also(s->d, e->at, "called here");
    return result;
}

/* Returns the type of a mask's parameter, which is that of its default. */
value_type expr_mask_param_type(const arg *p) {
    return p->as ? TYPE_ARRAY : p->value && p->value->kind == EXPR_BOOL ? TYPE_BOOL : TYPE_INT;
}

/* Evaluates an argument or default of a mask's parameter, which is a constant. */
bool expr_mask_constant(sema *s, const arg *param, const expr *e, int64_t *out) {
    if (expr_mask_param_type(param) == TYPE_INT) return sema_eval_constant(s, e, param->name, out);
    if (param->as) {
        uint32_t array = sema_array_argument(s, param, e);
        *out = array;
        return array != ARRAY_ANY;
    }
    if (e->kind != EXPR_BOOL) {
        diag_error(s->d, FCP_E_TYPE, e->at, "%s must be true or false", param->name);
        return false;
    }
    *out = e->integer;
    return true;
}

/* Does an expression name a field over sequences? */
static bool names_bare(const sema *s, const expr *e) {
    for (; e && e->kind == EXPR_BINARY; e = e->a)
        if (names_bare(s, e->b)) return true;
    if (!e || (e->kind != EXPR_NAME && e->kind != EXPR_UNARY)) return false;
    if (e->kind == EXPR_UNARY) return names_bare(s, e->a);
    const uint32_t array = sema_find_array(s, e->name);
    return array != ARRAY_ANY && sema_is_bare(s, array);
}

/* Does a name mean nothing that the language or the program has? */
static bool is_free(sema *s, const char *name) {
    return words_find(words_variables, MASK_VARIABLES, name) < 0 &&
           words_find(words_figures, MODEL_FIGURES, name) < 0 && sema_find_array(s, name) == ARRAY_ANY &&
           !sema_visible_mask(s, name, KIND_ANY);
}

void expr_hint_field(sema *s, const expr *e) {
    if (e->kind != EXPR_NAME && names_bare(s, e)) {
        diag_hint(s->d, "a field over sequences stands alone here; a mask or score of the program computes with it");
        return;
    }
    const char **names = ARENA_NEW(s->scratch, const char *, s->array_count + (size_t)1);
    size_t count = 0;
    for (uint32_t i = 0; i < s->array_count && names; i++)
        if (sema_is_bare(s, i)) names[count++] = s->arrays[i]->name;
    const char *nearest = names && e->kind == EXPR_NAME ? diag_nearest(e->name, strlen(e->name), names, count) : NULL;
    if (nearest) diag_hint(s->d, "did you mean '%s'?", nearest);
    else if (e->kind == EXPR_INDEX)
        diag_hint(s->d, "elements are read in a mask or score of the program, which calls this one: "
                        "mask mine = window(w = near[h])");
    else if (e->kind == EXPR_NAME && is_free(s, e->name) && !sema_hint_foreign(s, e->name, FCPC_FOREIGN_NAME, e))
        diag_hint(s->d, "a number for each sequence is a field: batch { field %s = given over sequences }", e->name);
}

bool expr_field_argument(sema *s, const arg *param, const expr *e, bool score, figure *out) {
    if (param->as || e->kind != EXPR_NAME) return true;
    uint32_t array = sema_find_array(s, e->name);
    if (array == ARRAY_ANY) array = sema_unread_array(s, e->name);
    if (array == ARRAY_ANY) return true;
    mc_op op;
    if (!sema_is_bare(s, array)) {
        diag_error(s->d, FCP_E_TYPE, e->at, "'%s' must be a number, and '%s' is a %s with many", param->name, e->name,
                   sema_array_word(s, array));
        diag_hint(s->d, "a field over sequences has one number for each: batch { field %s = given over sequences }",
                  e->name);
        return false;
    }
    if (!sema_load_array(s, array) || !sema_index_array(s, array, e, score, &op)) return false;
    *out = (figure){.field = true, .integer = array, .real = mc_op_type(op) == 'f'};
    return true;
}

/* Makes a value, with its node, of a constant argument. */
value expr_mask_argument(sema *s, expr *e, const arg *param, int64_t v) {
    if (param->as) return (value){TYPE_ARRAY, (uint32_t)v};
    return constant_value(s, e, expr_mask_param_type(param), v);
}

/* Does the value of code depend on the sequence alone: on n and on fields over sequences? Guards do not alter it. */
static bool is_of_sequence(sema *s, mc_code code) {
    bool *needed = ARENA_ZNEW(s->scratch, bool, code.count);
    if (!needed) return sema_no_memory(s);
    needed[code.count - 1] = true;
    for (uint32_t i = code.count; i-- > 0;) {
        const mc_node *x = &code.nodes[i];
        if (!needed[i]) continue;
        const uint32_t operands[] = {x->a, x->b, x->c};
        for (int o = 0; o < 3; o++)
            if (operands[o] != MC_NONE) needed[operands[o]] = true;
        if (mc_uses((mc_code){x, 1}) & ~(unsigned)(MC_USES_N | MC_USES_DATA)) return false;
        if ((mc_loads_int(x->op) || mc_loads_real(x->op)) && !sema_is_bare(s, (uint32_t)x->imm)) return false;
    }
    return true;
}

/* Keeps an argument that is computed for each sequence, so that each batch can be asked whether it is negative. */
static bool keep_count(sema *s, const mask *m, const arg *param, uint32_t node, uint32_t guard, span at) {
    program_count *kept = ARENA_ZNEW(&s->out->arena, program_count, 1);
    const span *spans;
    if (!kept) return sema_no_memory(s);
    if (!expr_extract(s, s->builder, node, &kept->code, &spans)) return false;
    if (!is_of_sequence(s, kept->code)) return !s->no_memory;
    if (guard != MC_NONE && !expr_extract(s, s->builder, guard, &kept->guard, &spans)) return false;
    if (mc_uses(kept->guard) & (MC_USES_DATA | MC_USES_BANDS)) return true; /* it may be false where this is negative */
    kept->at = at;
    kept->of = expr_count_name(s, m, param);
    kept->next = s->out->counts;
    s->out->counts = kept;
    return kept->of != NULL;
}

/* Checks the constants among the arguments of a call, which stands in `in`. One that is never reached may be anything.
 * Elements of fields and tables are checked once their values are known, if no condition stands before the call. So is
 * what is computed for each sequence. */
static bool check_counts(sema *s, const expr *e, const mask *m, arg *const *given, const value *args, const mask *in,
                         uint32_t guard) {
    uint32_t count;
    const mc_node *nodes = mc_builder_nodes(s->builder, &count); /* extracting adds none, so they do not move */
    if (!m->builtin || (guard != MC_NONE && nodes[guard].op == MC_CONST_B && !nodes[guard].imm)) return true;
    int64_t *numbers = ARENA_ZNEW(s->scratch, int64_t, m->param_count + 1);
    bool *known = ARENA_ZNEW(s->scratch, bool, m->param_count + 1);
    if (!numbers || !known) return sema_no_memory(s);
    uint32_t i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        if (args[i].type != TYPE_INT) continue;
        const mc_node *x = &nodes[args[i].node];
        known[i] = x->op == MC_CONST_I;
        numbers[i] = x->imm;
        const bool element = x->op == MC_LOAD || x->op == MC_LOAD2 || x->op == MC_LOAD3;
        if (element && guard == MC_NONE && !expr_note_count(s, m, p, (uint32_t)x->imm)) return false;
        const bool computed = !element && !known[i] && given[i] && !in->builtin && !in->score;
        if (computed && !keep_count(s, m, p, args[i].node, guard, given[i]->value->at)) return false;
    }
    return expr_check_counts(s, m, given, numbers, known, e->at);
}

static value lower_mask(sema *s, expr *e, const frame *f, uint32_t guard) {
    mask *m = (mask *)e->target;
    const value result = {TYPE_BOOL, 0};
    if (!s->builder && !expr_check_called(s, e, m)) return result;
    arg **given = ARENA_NEW(s->scratch, arg *, m->param_count + 1);
    if (!given) {
        sema_no_memory(s);
        return poison;
    }
    if (!sema_bind_args(s, m, e->kind == EXPR_CALL ? e->args : NULL, e->at, given)) return s->builder ? poison : result;
    value few[FEW], *args = m->param_count <= FEW ? few : ARENA_NEW(s->scratch, value, m->param_count);
    if (!args) {
        sema_no_memory(s);
        return poison;
    }
    uint32_t i = 0;
    for (const arg *p = m->params; p; p = p->next, i++) {
        if (given[i]) {
            expr *own = given[i]->value;
            args[i] = p->as ? expr_array_argument(s, own, f, guard) : lower(s, own, f, guard);
            bool good = needs(s, args[i], expr_mask_param_type(p), given[i]->value, p->name);
            if (good && args[i].type == TYPE_ARRAY) good = sema_fits_param(s, p, args[i].node, given[i]->value->at);
            if (!good && s->builder) return poison;
        } else {
            int64_t constant_default = 0;
            if (s->builder && !expr_mask_constant(s, p, p->value, &constant_default)) return poison;
            args[i] = expr_mask_argument(s, p->value, p, constant_default);
        }
    }
    if (!s->builder || s->failed) return result;
    if (!check_counts(s, e, m, given, args, f->m, guard)) return s->failed = true, poison;
    frame inner = {.m = m, .args = args};
    return expr_inline(s, m, m->body, args, m->param_count, &inner, guard);
}

static value lower_name(sema *s, expr *e, const frame *f, uint32_t guard) {
    int ref = resolve(s, e, f);
    bool call = e->kind == EXPR_CALL;
    if (call && (ref == REF_VAR || ref == REF_MODEL || ref == REF_PARAM || ref == REF_DEF_PARAM)) {
        diag_error(s->d, FCP_E_TYPE, e->name_at, "'%s' is not a function", e->name);
        if (ref == REF_PARAM && f->args[e->index].type == TYPE_ARRAY)
            diag_hint(s->d, "its elements are read with brackets: %s[k]", e->name);
        return poison;
    }
    if (call && ref == REF_ARRAY) {
        diag_error(s->d, FCP_E_TYPE, e->name_at, "'%s' is a %s, not a function", e->name, sema_array_word(s, e->index));
        const array_decl *a = s->arrays[e->index];
        if (a->table || fcp_array_is_over(&a->array.record, FCP_KEYS))
            diag_hint(s->d, "its elements are read with brackets: %s[k]", e->name);
        else diag_hint(s->d, "it is read %s", sema_reading_text(s, e->index));
        return poison;
    }
    switch (ref) {
    case REF_VAR:
        if (e->index == VARIABLE_S) return f->s;
        s->names_h |= variable_ops[e->index] == MC_H;
        return (value){TYPE_INT, emit(s, e, variable_ops[e->index], MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE)};
    case REF_PARAM: return f->args[e->index];
    case REF_DEF_PARAM: return f->def_args[e->index];
    case REF_ARRAY: return (value){TYPE_ARRAY, e->index};
    case REF_DEF: return lower_definition(s, e, f, guard);
    case REF_MASK: return lower_mask(s, e, f, guard);
    case REF_SCORE: return score_call(s, e, f, guard);
    case REF_MODEL: return constant_value(s, e, TYPE_INT, e->index == 0 ? s->out->heads : s->out->kv_heads);
    case REF_BUILTIN:
        if (call && (e->index == BUILTIN_RECT || e->index == BUILTIN_SLICES)) return lower_piece(s, e, f, guard);
        if (call && e->index != BUILTIN_RUN && f->m->score) return score_builtin(s, e, f, guard);
        if (call) return lower_builtin(s, e, f, guard);
        diag_error(s->d, FCP_E_ARGUMENT, e->at, "'%s' is a function and needs its arguments", e->name);
        return poison;
    default: return poison;
    }
}

static value lower_unary(sema *s, expr *e, const frame *f, uint32_t guard) {
    value a = lower(s, e->a, f, guard);
    bool is_not = e->op == OP_NOT;
    if (f->m->score && !is_not) return score_negate(s, e, a, guard);
    value_type type = is_not ? TYPE_BOOL : TYPE_INT;
    if (!needs(s, a, type, e->a, is_not ? "'not'" : "'-'")) return s->builder ? poison : (value){type, 0};
    return (value){type, emit(s, e, is_not ? MC_NOT : MC_NEG, a.node, MC_NONE, MC_NONE, 0, guard)};
}

static value lower_array(sema *s, expr *e, const frame *f, uint32_t guard) {
    if (s->failed) return poison;
    if (s->depth >= LOWER_MAX) {
        diag_error(s->d, FCP_E_DEPTH, e->at, "definitions nested too deep when expanded");
        s->failed = true;
        return poison;
    }
    if (++s->steps > STEPS_MAX) {
        diag_error(s->d, FCP_E_TOO_LARGE, f->m->name_at, "%s '%s' is too large when expanded",
                   f->m->score ? "score" : "mask", f->m->name);
        s->failed = true;
        return poison;
    }
    s->depth++;
    value v = poison;
    switch ((expr_kind)e->kind) {
    case EXPR_INT: v = constant_value(s, e, TYPE_INT, e->integer); break;
    case EXPR_BOOL: v = constant_value(s, e, TYPE_BOOL, e->integer); break;
    case EXPR_NAME:
    case EXPR_CALL: v = lower_name(s, e, f, guard); break;
    case EXPR_UNARY: v = lower_unary(s, e, f, guard); break;
    case EXPR_BINARY: v = lower_binary(s, e, f, guard); break;
    case EXPR_IF: v = lower_if(s, e, f, guard); break;
    case EXPR_FLOAT:
        if (f->m->score) v = score_literal(s, e);
        else {
            diag_error(s->d, FCP_E_TYPE, e->at, "masks are in whole numbers");
            diag_hint(s->d, "a number with a point has its place in a score");
        }
        break;
    case EXPR_QUANTITY:
        diag_error(s->d, FCP_E_UNIT, e->at, "numbers in a %s have no units", f->m->score ? "score" : "mask");
        break;
    case EXPR_INDEX: v = lower_index(s, e, f, guard); break;
    case EXPR_STRING:
    case EXPR_RANGE:
    case EXPR_REPEAT:
    case EXPR_ON:
    case EXPR_OVER:
    case EXPR_PAIR:
    case EXPR_LIST:
    case EXPR_TUPLE:
        diag_error(s->d, FCP_E_TYPE, e->at, "a %s is made of numbers and conditions", f->m->score ? "score" : "mask");
        break;
    }
    s->depth--;
    return v;
}

static value lower(sema *s, expr *e, const frame *f, uint32_t guard) {
    return read_bare(s, e, lower_array(s, e, f, guard), f);
}

value expr_lower(sema *s, expr *e, const frame *f, uint32_t guard) { return lower(s, e, f, guard); }
value expr_lower_array(sema *s, expr *e, const frame *f, uint32_t guard) { return lower_array(s, e, f, guard); }

value expr_array_argument(sema *s, expr *e, const frame *f, uint32_t guard) {
    const bool first = e->kind == EXPR_NAME && e->ref == REF_NONE;
    s->in_index += first; /* an unknown name is a field or table here, too, and no parameter */
    const value v = lower_array(s, e, f, guard);
    s->in_index -= first;
    if (first) hint_declare(s, e, f, false);
    return v;
}

/* --- the code ----------------------------------------------------------------------------------------------------- */

bool expr_extract(sema *s, const mc_builder *b, uint32_t root, mc_code *out, const span **out_spans) {
    mc_node *nodes = NULL;
    uint32_t *places = NULL, count = 0;
    bool good = mc_extract(b, root, &nodes, &places, &count);
    mc_node *own = good ? ARENA_NEW(&s->out->arena, mc_node, count) : NULL;
    span *spans = good ? ARENA_NEW(&s->out->arena, span, count) : NULL;
    if (own && spans) {
        memcpy(own, nodes, count * sizeof *own);
        for (uint32_t i = 0; i < count; i++) spans[i] = places[i] < s->place_count ? s->places[places[i]] : SPAN_NONE;
        *out = (mc_code){own, count};
        *out_spans = spans;
    }
    free(nodes);
    free(places);
    return own && spans ? true : sema_no_memory(s);
}

bool expr_begin(sema *s) {
    expr_forget(s);
    s->steps = 0;
    s->builder = mc_builder_new();
    return s->builder ? true : sema_no_memory(s);
}

void expr_end(sema *s) {
    mc_builder_free(s->builder);
    s->builder = NULL;
}
