/* ast.c: prints a program in canonical form.
 *
 * Sections come in the order of SECTIONS, with the masks before `plan`; keys come in the order of KEYS; sections and
 * keys with unknown names come last, in the order of the source. There is one statement on a line. Whole numbers are
 * decimal. Parentheses are printed only where precedence needs them.
 *
 * Requires: a tree that parsed without an error.
 * Gives:    text that parses to an equal tree. So printing that tree gives the same text again.
 * Cost:     O(tree). Recursion goes NEST_MAX deep at most, because chains of binary operators are walked along their
 *           left side.
 */
#include "compiler/syntax/ast.h"

#include <string.h>

enum { LINE = 110 };

/* --- expressions -------------------------------------------------------------------------------------------------- */

static void print_at(const expr *e, int least, text *out);

static int precedence(const expr *e) {
    if (e->kind == EXPR_BINARY || e->kind == EXPR_UNARY) return words_op_precedence(e->op);
    return e->kind == EXPR_IF ? PREC_IF : PREC_PRIMARY;
}

/* The least precedence with which the left operand of `e` needs no parentheses. It is that of e itself, but a
 * comparison on the left of another comparison needs parentheses, because comparisons do not chain. */
static int left_least(const expr *e) {
    int own = words_op_precedence(e->op);
    return own == PREC_COMPARE ? own + 1 : own;
}

static void print_binary(const expr *top, text *out) {
    const expr *leaf = top;
    while (leaf->a->kind == EXPR_BINARY) {
        if (precedence(leaf->a) < left_least(leaf)) text_puts(out, "(");
        leaf = leaf->a;
    }
    print_at(leaf->a, left_least(leaf), out);
    for (const expr *e = leaf;; e = e->up) {
        text_puts(out, " ");
        text_puts(out, words_op_spelling(e->op));
        text_puts(out, " ");
        print_at(e->b, words_op_precedence(e->op) + 1, out);
        if (e == top) break;
        if (precedence(e) < left_least(e->up)) text_puts(out, ")");
    }
}

static void print_string(const char *string, text *out) {
    text_puts(out, "\"");
    for (const char *c = string; *c; c++) {
        if (*c == '"' || *c == '\\') text_add(out, (char[]){'\\', *c}, 2);
        else if (*c == '\n') text_puts(out, "\\n");
        else if (*c == '\t') text_puts(out, "\\t");
        else if (*c == '\r') text_puts(out, "\\r");
        else text_add(out, c, 1);
    }
    text_puts(out, "\"");
}

static const char *declared_word(declared_as as) {
    static const char *const words[] = {[IS_VALUE] = "", [IS_FIELD] = "field ", [IS_TABLE] = "table "};
    return words[as];
}

/* Arguments or elements, separated by commas. `break_lines`: a long list goes on several lines. */
static void print_args(const arg *first, bool break_lines, text *out) {
    size_t line = out->size;
    for (const arg *a = first; a; a = a->next) {
        if (a != first) text_puts(out, ", ");
        if (break_lines && out->size - line > LINE - 20) {
            text_puts(out, "\n        ");
            line = out->size;
        }
        if (a->as) text_puts(out, declared_word(a->as));
        if (a->name) text_puts(out, a->name);
        if (a->name && a->value) text_puts(out, " = ");
        if (a->value) print_at(a->value, 0, out);
    }
}

static void print_at(const expr *e, int least, text *out) {
    bool parens = precedence(e) < least;
    if (parens) text_puts(out, "(");
    switch ((expr_kind)e->kind) {
    case EXPR_INT:
        if (e->integer < 0) text_puts(out, "-");
        text_number(out, e->integer < 0 ? -(uint64_t)e->integer : (uint64_t)e->integer);
        break;
    case EXPR_BOOL: text_puts(out, e->integer ? "true" : "false"); break;
    case EXPR_FLOAT:
    case EXPR_NAME: text_puts(out, e->name); break;
    case EXPR_QUANTITY:
        print_at(e->a, PREC_PRIMARY, out);
        text_puts(out, " ");
        text_puts(out, words_units[e->integer].spelling);
        break;
    case EXPR_STRING: print_string(e->name, out); break;
    case EXPR_CALL:
        text_puts(out, e->name);
        text_puts(out, "(");
        print_args(e->args, false, out);
        text_puts(out, ")");
        break;
    case EXPR_LIST:
        text_puts(out, "[");
        print_args(e->args, true, out);
        text_puts(out, "]");
        break;
    case EXPR_TUPLE: print_args(e->args, false, out); break;
    case EXPR_INDEX:
        print_at(e->a, PREC_PRIMARY, out);
        text_puts(out, "[");
        print_at(e->b, 0, out);
        for (int i = 0; i < 2; i++) {
            const expr *more = i ? e->d : e->c;
            if (!more) break;
            text_puts(out, ", ");
            print_at(more, 0, out);
        }
        text_puts(out, "]");
        break;
    case EXPR_UNARY:
        text_puts(out, e->op == OP_NOT ? "not " : "-");
        print_at(e->a, words_op_precedence(e->op), out);
        break;
    case EXPR_BINARY: print_binary(e, out); break;
    case EXPR_IF:
        text_puts(out, "if ");
        print_at(e->a, PREC_IF + 1, out);
        text_puts(out, " then ");
        print_at(e->b, PREC_IF + 1, out);
        text_puts(out, " else ");
        print_at(e->c, PREC_IF, out);
        break;
    case EXPR_RANGE:
        print_at(e->a, PREC_IF + 1, out);
        text_puts(out, "..");
        print_at(e->b, PREC_IF + 1, out);
        break;
    case EXPR_PAIR:
        print_at(e->a, PREC_IF + 1, out);
        text_puts(out, ":");
        print_at(e->b, PREC_IF + 1, out);
        break;
    case EXPR_ON:
        print_at(e->a, PREC_IF + 1, out);
        text_puts(out, " on ");
        print_at(e->b, 0, out);
        break;
    case EXPR_OVER:
        print_at(e->a, PREC_IF + 1, out);
        text_puts(out, " over ");
        print_at(e->b, 0, out);
        break;
    case EXPR_REPEAT:
        print_at(e->a, PREC_IF + 1, out);
        text_puts(out, " x ");
        print_at(e->b, PREC_IF + 1, out);
        break;
    }
    if (parens) text_puts(out, ")");
}

bool ast_is_call(const expr *e, const char *name) { return e->kind == EXPR_CALL && words_same(e->name, name); }

void ast_print_expr(const expr *e, text *out) { print_at(e, 0, out); }

/* --- programs ----------------------------------------------------------------------------------------------------- */

static void print_params(const arg *params, text *out) {
    if (!params) return;
    text_puts(out, "(");
    print_args(params, false, out);
    text_puts(out, ")");
}

static void print_mask(const mask *m, text *out) {
    if (out->size) text_puts(out, "\n");
    size_t line = out->size;
    text_puts(out, m->score ? "score " : "mask ");
    text_puts(out, m->name);
    print_params(m->params, out);
    text_puts(out, " =");
    const size_t sign = out->size;
    text_puts(out, " ");
    ast_print_expr(m->body, out);
    if (m->definitions || out->size - line > LINE) { /* the body begins on a line of its own */
        text_pad(out, ' ', 4);
        if (out->failed) return;
        memmove(out->at + sign + 5, out->at + sign + 1, out->size - sign - 5);
        memcpy(out->at + sign, "\n    ", 5);
    }
    text_puts(out, "\n");
    if (!m->definitions) return;
    text_puts(out, "    where {\n");
    for (const definition *d = m->definitions; d; d = d->next) {
        text_puts(out, "        ");
        text_puts(out, d->name);
        print_params(d->params, out);
        text_puts(out, " = ");
        ast_print_expr(d->body, out);
        text_puts(out, "\n");
    }
    text_puts(out, "    }\n");
}

static void print_entry(const entry *e, text *out) {
    text_puts(out, "    ");
    text_puts(out, declared_word(e->as));
    text_puts(out, e->key);
    text_puts(out, " = ");
    ast_print_expr(e->value, out);
    text_puts(out, "\n");
}

static void print_section(const section *s, section_id id, text *out) {
    if (out->size) text_puts(out, "\n");
    text_puts(out, s->name);
    text_puts(out, " {\n");
    for (int k = 0; k < KEY_COUNT; k++) {
        if (words_keys[k].section != id) continue;
        for (const entry *e = s->entries; e; e = e->next)
            if (!e->as && words_same(e->key, words_keys[k].name)) print_entry(e, out);
    }
    for (const entry *e = s->entries; e; e = e->next)
        if (e->as || words_find_key(id, e->key) == KEY_COUNT) print_entry(e, out);
    text_puts(out, "}\n");
}

void ast_print(const ast *program, text *out, size_t batch[2]) {
    size_t begin = 0, end = 0; /* of the section batch */
    for (int id = 0; id <= SECTION_COUNT; id++) {
        if (id == SECTION_PLAN)
            for (const mask *m = program->masks; m; m = m->next) print_mask(m, out);
        if (id == SECTION_BATCH) begin = out->size;
        for (const section *s = program->sections; s; s = s->next)
            if ((int)words_find_section(s->name) == id) print_section(s, (section_id)id, out);
        if (id == SECTION_BATCH) end = out->size;
    }
    if (!batch) return;
    batch[0] = begin;
    batch[1] = begin == 0 && end > 0 && end < out->size ? end + 1 : end; /* no empty line is before the first section */
}
