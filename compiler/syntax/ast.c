/* ast.c: the tables of the language's names, and the canonical printer.
 *
 * Printing requires a tree that parsed without an error. It gives text that parses to an equal tree, so printing that
 * gives the same text again: sections in the order of SECTIONS with the masks before `plan`, keys in the order of KEYS,
 * whole numbers in decimal, one statement a line, parentheses only where precedence needs them. Names that the tables
 * do not know come last, in source order. Cost: O(tree); recursion is bounded by NEST_MAX because chains of binary
 * operators are walked along their left side.
 */
#include "compiler/syntax/ast.h"

#include <inttypes.h>
#include <string.h>

enum { LINE = 110 };

static const struct { const char *spelling; int precedence; } ops[OP_COUNT] = {
#define X(id, spelling, precedence) [OP_##id] = {spelling, precedence},
    EXPR_OPS(X)
#undef X
};
const char *ast_op_spelling(expr_op op) { return ops[op].spelling; }
int ast_op_precedence(expr_op op) { return ops[op].precedence; }

const unit ast_unit_table[] = {
#define X(spelling, dimension, power) {spelling, dimension, power},
    UNITS(X)
#undef X
};
enum { UNIT_COUNT = sizeof ast_unit_table / sizeof *ast_unit_table };

int ast_find_unit(const char *word, size_t size) {
    for (int i = 0; i < UNIT_COUNT; i++)
        if (strlen(ast_unit_table[i].spelling) == size && !memcmp(ast_unit_table[i].spelling, word, size)) return i;
    return -1;
}

const char *ast_nearest_unit(const char *word, size_t size) {
    static const struct { const char *wrong, *right; } usual[] = {
        {"GBps", "GB/s"}, {"Gbps", "GB/s"}, {"Gb", "GB/s"}, {"GBs", "GB/s"}, {"gb", "GB"}, {"GiB", "GB"}, {"mb", "MB"},
        {"MiB", "MB"}, {"KB", "kB"}, {"KiB", "kB"}, {"TFLOPS", "TFLOP/s"}, {"TFLOPs", "TFLOP/s"}, {"TFLOP", "TFLOP/s"},
        {"usec", "us"}, {"msec", "ms"}, {"sec", "s"}};
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (strlen(usual[i].wrong) == size && !memcmp(usual[i].wrong, word, size)) return usual[i].right;
    const char *names[UNIT_COUNT];
    for (int i = 0; i < UNIT_COUNT; i++) names[i] = ast_unit_table[i].spelling;
    return diag_nearest(word, size, names, UNIT_COUNT);
}

const char *const ast_section_names[SECTION_COUNT] = {
#define X(id, name) [SECTION_##id] = name,
    SECTIONS(X)
#undef X
};

const struct key_info ast_key_table[KEY_COUNT] = {
#define X(where, id, text) [KEY_##id] = {.name = text, .section = SECTION_##where},
    KEYS(X)
#undef X
};

section_id ast_find_section(const char *name) {
    int i = 0;
    while (i < SECTION_COUNT && strcmp(name, ast_section_names[i])) i++;
    return (section_id)i;
}

key_id ast_find_key(section_id where, const char *name) {
    int i = 0;
    while (i < KEY_COUNT && (ast_key_table[i].section != where || strcmp(name, ast_key_table[i].name))) i++;
    return (key_id)i;
}

/* --- expressions -------------------------------------------------------------------------------------------------- */

static void print_at(const expr *e, int least, text *out);

static int precedence(const expr *e) {
    if (e->kind == EXPR_BINARY || e->kind == EXPR_UNARY) return ops[e->op].precedence;
    return e->kind == EXPR_IF ? PREC_IF : PREC_PRIMARY;
}

/* The least precedence that the left operand of `e` needs to stand without parentheses: comparisons do not chain. */
static int left_least(const expr *e) { return ops[e->op].precedence + (ops[e->op].precedence == PREC_COMPARE); }

static void print_binary(const expr *top, text *out) {
    const expr *leaf = top;
    while (leaf->a->kind == EXPR_BINARY) {
        if (precedence(leaf->a) < left_least(leaf)) text_puts(out, "(");
        leaf = leaf->a;
    }
    print_at(leaf->a, left_least(leaf), out);
    for (const expr *e = leaf;; e = e->up) {
        text_printf(out, " %s ", ops[e->op].spelling);
        print_at(e->b, ops[e->op].precedence + 1, out);
        if (e == top) break;
        if (precedence(e) < left_least(e->up)) text_puts(out, ")");
    }
}

static void print_string(const char *string, text *out) {
    text_puts(out, "\"");
    for (const char *c = string; *c; c++) {
        if (*c == '"' || *c == '\\') text_printf(out, "\\%c", *c);
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

/* Arguments or elements, separated by commas; a long list is broken into lines. */
static void print_args(const arg *first, bool break_lines, text *out) {
    size_t line = out->size;
    for (const arg *a = first; a; a = a->next) {
        if (a != first) text_puts(out, ", ");
        if (break_lines && out->size - line > LINE - 20) {
            text_puts(out, "\n        ");
            line = out->size;
        }
        if (a->as) text_puts(out, declared_word(a->as));
        if (a->name) text_printf(out, a->value ? "%s = " : "%s", a->name);
        if (a->value) print_at(a->value, 0, out);
    }
}

static void print_at(const expr *e, int least, text *out) {
    bool parens = precedence(e) < least;
    if (parens) text_puts(out, "(");
    switch ((expr_kind)e->kind) {
    case EXPR_INT: text_printf(out, "%" PRId64, e->integer); break;
    case EXPR_BOOL: text_puts(out, e->integer ? "true" : "false"); break;
    case EXPR_FLOAT:
    case EXPR_NAME: text_puts(out, e->name); break;
    case EXPR_QUANTITY:
        print_at(e->a, PREC_PRIMARY, out);
        text_printf(out, " %s", ast_unit_table[e->integer].spelling);
        break;
    case EXPR_STRING: print_string(e->name, out); break;
    case EXPR_CALL:
        text_printf(out, "%s(", e->name);
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
        if (e->c) {
            text_puts(out, ", ");
            print_at(e->c, 0, out);
        }
        text_puts(out, "]");
        break;
    case EXPR_UNARY:
        text_puts(out, e->op == OP_NOT ? "not " : "-");
        print_at(e->a, ops[e->op].precedence, out);
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
    case EXPR_REPEAT:
        print_at(e->a, PREC_IF + 1, out);
        text_puts(out, " x ");
        print_at(e->b, PREC_IF + 1, out);
        break;
    }
    if (parens) text_puts(out, ")");
}

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
    text_printf(out, "%s %s", m->score ? "score" : "mask", m->name);
    print_params(m->params, out);
    text body = {0};
    ast_print_expr(m->body, &body);
    bool one_line = !m->definitions && out->size - line + 3 + body.size <= LINE;
    text_puts(out, one_line ? " = " : " =\n    ");
    text_add(out, body.at, body.size);
    if (body.failed) out->failed = true;
    text_free(&body);
    text_puts(out, "\n");
    if (!m->definitions) return;
    text_puts(out, "    where {\n");
    for (const definition *d = m->definitions; d; d = d->next) {
        text_printf(out, "        %s", d->name);
        print_params(d->params, out);
        text_puts(out, " = ");
        ast_print_expr(d->body, out);
        text_puts(out, "\n");
    }
    text_puts(out, "    }\n");
}

static void print_entry(const entry *e, text *out) {
    text_printf(out, "    %s%s = ", declared_word(e->as), e->key);
    ast_print_expr(e->value, out);
    text_puts(out, "\n");
}

static void print_section(const section *s, section_id id, text *out) {
    if (out->size) text_puts(out, "\n");
    text_printf(out, "%s {\n", s->name);
    for (int k = 0; k < KEY_COUNT; k++) {
        if (ast_key_table[k].section != id) continue;
        for (const entry *e = s->entries; e; e = e->next)
            if (!e->as && !strcmp(e->key, ast_key_table[k].name)) print_entry(e, out);
    }
    for (const entry *e = s->entries; e; e = e->next)
        if (e->as || ast_find_key(id, e->key) == KEY_COUNT) print_entry(e, out);
    text_puts(out, "}\n");
}

void ast_print(const ast *program, bool batch, text *out) {
    for (int id = 0; id <= SECTION_COUNT; id++) {
        if (id == SECTION_PLAN)
            for (const mask *m = program->masks; m; m = m->next) print_mask(m, out);
        if (id == SECTION_BATCH && !batch) continue;
        for (const section *s = program->sections; s; s = s->next)
            if ((int)ast_find_section(s->name) == id) print_section(s, (section_id)id, out);
    }
}
