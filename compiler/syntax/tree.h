/* tree.h: builds the syntax tree, a node for each rule of the grammar.
 *
 * A builder that runs out of memory returns NULL, or an empty list, and sets no_memory. A builder
 * whose operand is NULL returns NULL too, so the grammar need not check.
 */
#ifndef FCPC_SYNTAX_TREE_H
#define FCPC_SYNTAX_TREE_H
#include "compiler/syntax/ast.h"

typedef struct tree {
    diags *d;
    arena *arena;
    ast *program; /* gets the sections and masks */
    expr *value;  /* what a lone value parsed to */
    bool no_memory;
    bool too_deep; /* NEST_MAX was passed, and reported */
} tree;

expr *tree_leaf(tree *t, span at, expr_kind kind, const char *name, int64_t integer);
expr *tree_quantity(tree *t, span at, expr *number, int64_t unit_index);
expr *tree_unary(tree *t, span at, expr_op op, expr *a);
expr *tree_binary(tree *t, span at, expr_op op, expr *a, expr *b);
expr *tree_node(tree *t, span at, expr_kind kind, expr *a, expr *b, expr *c);
expr *tree_index(tree *t, span at, expr *array, arg_list indices);
expr *tree_call(tree *t, span at, const char *name, span name_at, arg_list args);
expr *tree_list(tree *t, span at, expr_kind kind, arg_list elements);
expr *tree_parens(expr *e, span at);
arg_list tree_arg(tree *t, const char *name, span name_at, expr *value);
arg_list tree_array_param(tree *t, declared_as as, const char *name, span name_at, expr *value);
arg_list tree_join_args(arg_list list, arg_list more);
entry_list tree_entry(tree *t, declared_as as, const char *key, span key_at, expr *value);
entry_list tree_join_entries(entry_list list, entry_list more);
definition_list tree_definition(tree *t, const char *name, span name_at, bool function, arg_list params, expr *body);
definition_list tree_join_definitions(definition_list list, definition_list more);
void tree_add_section(tree *t, const char *name, span name_at, entry_list entries);
void tree_add_mask(tree *t, bool score, const char *name, span name_at, arg_list params, expr *body,
                   definition_list where);
#endif
