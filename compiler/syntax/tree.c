/* tree.c: builds the nodes of the syntax tree, and keeps count of how deep they nest. Cost: O(1) for each. */
#include "compiler/syntax/tree.h"

#include <stddef.h>

static void *allocate(tree *t, size_t size) {
    void *at = arena_zalloc(t->arena, 1, size, _Alignof(max_align_t));
    if (!at) t->no_memory = true;
    return at;
}

/* A new node of the given depth. If that is too deep, it is reported, once for the whole tree. */
static expr *new_node(tree *t, span at, expr_kind kind, uint32_t depth) {
    expr *e = allocate(t, sizeof *e);
    if (!e) return NULL;
    e->kind = (uint8_t)kind;
    e->at = at;
    e->depth = depth;
    if (depth > NEST_MAX && !t->too_deep) {
        diag_error(t->d, FCP_E_DEPTH, at, "an expression nested more than %d deep", NEST_MAX);
        t->too_deep = true;
    }
    return e;
}

static uint32_t deeper(uint32_t a, uint32_t b) { return a > b ? a : b; }

expr *tree_leaf(tree *t, span at, expr_kind kind, const char *name, int64_t integer) {
    expr *e = new_node(t, at, kind, 1);
    if (!e) return NULL;
    e->name = name;
    e->integer = integer;
    return e;
}

expr *tree_quantity(tree *t, span at, expr *number, int64_t unit_index) {
    expr *e = number ? new_node(t, at, EXPR_QUANTITY, number->depth + 1) : NULL;
    if (!e) return NULL;
    e->a = number;
    e->integer = unit_index;
    return e;
}

expr *tree_unary(tree *t, span at, expr_op op, expr *a) {
    expr *e = a ? new_node(t, at, EXPR_UNARY, a->depth + 1) : NULL;
    if (!e) return NULL;
    e->op = (uint8_t)op;
    e->a = a;
    return e;
}

expr *tree_binary(tree *t, span at, expr_op op, expr *a, expr *b) {
    if (!a || !b) return NULL;
    uint32_t left = a->kind == EXPR_BINARY ? a->depth : a->depth + 1; /* a chain of operators nests no deeper */
    expr *e = new_node(t, at, EXPR_BINARY, deeper(left, b->depth + 1));
    if (!e) return NULL;
    e->op = (uint8_t)op;
    e->a = a;
    e->b = b;
    a->up = e;
    if (words_op_precedence(op) == PREC_COMPARE && a->kind == EXPR_BINARY && !a->parens &&
        words_op_precedence((expr_op)a->op) == PREC_COMPARE) {
        diag_error(t->d, FCP_E_SYNTAX, at, "comparisons do not chain");
        diag_hint(t->d, "write both: a < b and b < c");
    }
    return e;
}

expr *tree_node(tree *t, span at, expr_kind kind, expr *a, expr *b, expr *c) {
    if (!a || !b || (kind == EXPR_IF && !c)) return NULL;
    expr *e = new_node(t, at, kind, 1 + deeper(deeper(a->depth, b->depth), c ? c->depth : 0));
    if (!e) return NULL;
    e->a = a;
    e->b = b;
    e->c = c;
    return e;
}

expr *tree_index(tree *t, span at, expr *array, arg_list indices) {
    if (!array || !indices.first) return NULL;
    expr *e = new_node(t, at, EXPR_INDEX, 1 + deeper(array->depth, indices.depth));
    if (!e) return NULL;
    e->a = array;
    e->integer = indices.count;
    expr **const to[] = {&e->b, &e->c, &e->d};
    uint32_t i = 0;
    for (const arg *a = indices.first; a && i < sizeof to / sizeof *to; a = a->next) *to[i++] = a->value;
    return e;
}

expr *tree_call(tree *t, span at, const char *name, span name_at, arg_list args) {
    expr *e = new_node(t, at, EXPR_CALL, args.depth + 1);
    if (!e) return NULL;
    e->name = name;
    e->name_at = name_at;
    e->args = args.first;
    e->arg_count = args.count;
    return e;
}

expr *tree_list(tree *t, span at, expr_kind kind, arg_list elements) {
    expr *e = new_node(t, at, kind, elements.depth + 1);
    if (!e) return NULL;
    e->args = elements.first;
    e->arg_count = elements.count;
    return e;
}

expr *tree_parens(expr *e, span at) {
    if (!e) return NULL;
    e->parens = true;
    e->at = at;
    return e;
}

arg_list tree_arg(tree *t, const char *name, span name_at, expr *value) {
    arg *a = allocate(t, sizeof *a);
    if (!a) return (arg_list){0};
    a->name = name;
    a->name_at = name_at;
    a->value = value;
    return (arg_list){a, a, 1, value ? value->depth : 0};
}

arg_list tree_array_param(tree *t, declared_as as, const char *name, span name_at, expr *value) {
    arg_list one = tree_arg(t, name, name_at, value);
    if (one.first) one.first->as = as;
    return one;
}

arg_list tree_join_args(arg_list list, arg_list more) {
    if (!list.first) return more;
    if (!more.first) return list;
    list.last->next = more.first;
    return (arg_list){list.first, more.last, list.count + more.count, deeper(list.depth, more.depth)};
}

entry_list tree_entry(tree *t, declared_as as, const char *key, span key_at, expr *value) {
    entry *e = value ? allocate(t, sizeof *e) : NULL;
    if (!e) return (entry_list){0};
    *e = (entry){.key = key, .key_at = key_at, .value = value, .as = as};
    return (entry_list){e, e};
}

entry_list tree_join_entries(entry_list list, entry_list more) {
    if (!list.first) return more;
    if (!more.first) return list;
    list.last->next = more.first;
    return (entry_list){list.first, more.last};
}

definition_list tree_definition(tree *t, const char *name, span name_at, bool function, arg_list params, expr *body) {
    definition *e = body ? allocate(t, sizeof *e) : NULL;
    if (!e) return (definition_list){0};
    *e = (definition){.name = name, .name_at = name_at, .function = function, .params = params.first,
                      .param_count = params.count, .body = body};
    return (definition_list){e, e};
}

definition_list tree_join_definitions(definition_list list, definition_list more) {
    if (!list.first) return more;
    if (!more.first) return list;
    list.last->next = more.first;
    return (definition_list){list.first, more.last};
}

void tree_add_section(tree *t, const char *name, span name_at, entry_list entries) {
    section *s = allocate(t, sizeof *s);
    if (!s) return;
    *s = (section){.name = name, .name_at = name_at, .entries = entries.first, .last = entries.last};
    if (t->program->last_section) t->program->last_section->next = s;
    else t->program->sections = s;
    t->program->last_section = s;
}

void tree_add_mask(tree *t, bool score, const char *name, span name_at, arg_list params, expr *body,
              definition_list where) {
    mask *m = body ? allocate(t, sizeof *m) : NULL;
    if (!m) return;
    *m = (mask){.name = name, .name_at = name_at, .params = params.first, .param_count = params.count, .score = score,
                .body = body, .definitions = where.first};
    uint32_t number = 0;
    for (definition *e = where.first; e; e = e->next) e->number = number++;
    if (t->program->last_mask) t->program->last_mask->next = m;
    else t->program->masks = m;
    t->program->last_mask = m;
}
