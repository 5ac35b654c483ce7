/* fcp.y: the grammar: what a program looks like, not what it means. Every value is an expression, and every `name {
 * ... }` a section; sema decides what fits where.
 *
 * Tokens come through the filter in compiler/syntax/parse.c. A newline that ends a statement arrives as SEP; others do
 * not arrive. The first token is PROGRAM for a whole source, and VALUE for the value of a -D.
 */
%require "3.8"
%define api.pure full
%define api.prefix {lang_}
%define api.token.prefix {T_}
%define api.location.type {span}
%define parse.error custom
%define parse.lac full
%expect 0
%locations
%lex-param {parse *p}
%parse-param {parse *p} {tree *t}

%code requires {
#include "compiler/syntax/parse.h"
#include "compiler/syntax/tree.h"
}

%code {
/* The most entries of the parser's stack, which then takes half a megabyte. Limits on nesting are reached before it is
 * full. */
#define YYMAXDEPTH 10000
#define YYLLOC_DEFAULT(Current, Rhs, N)                                                                                \
    do {                                                                                                               \
        (Current).source = YYRHSLOC(Rhs, (N) ? 1 : 0).source;                                                          \
        (Current).begin = (N) ? YYRHSLOC(Rhs, 1).begin : YYRHSLOC(Rhs, 0).end;                                         \
        (Current).end = YYRHSLOC(Rhs, N).end;                                                                          \
    } while (0)

int lang_lex(LANG_STYPE *value, LANG_LTYPE *at, parse *p);
static void lang_error(const LANG_LTYPE *at, parse *p, tree *t, const char *message);
}

%union {
    const char *name;
    int64_t integer;
    expr *expr;
    arg_list args;
    entry_list entries;
    definition_list definitions;
}

%token END 0 "end of file"
%token PROGRAM "a program" VALUE "a value"
%token SEP "end of line"
%token <name> NAME "a name" MODEL "'model'" CLUSTER "'cluster'" BATCH "'batch'" MASK "'mask'" PLAN "'plan'"
%token <name> SCORE "'score'" FIELD "'field'" TABLE "'table'"
%token <name> FLOAT "a float" STRING "a string"
%token <integer> INT "a number" UNIT "a unit"
%token AND "'and'" OR "'or'" NOT "'not'" IF "'if'" THEN "'then'" ELSE "'else'" WHERE "'where'"
%token TRUE "'true'" FALSE "'false'" REPEAT "'x'" ON "'on'" OVER "'over'" DOTS "'..'"
%token LE "'<='" GE "'>='" EQ "'=='" NE "'!='"

%precedence ELSE
%left OR
%left AND
%precedence NOT
%left '<' '>' LE GE EQ NE
%left '+' '-'
%left '*' '/' '%'
%precedence NEG

%type <name> name
%type <expr> value item_value range pair expr primary number
%type <args> params param_list param names args arg_list arg elements element_list element values indices
%type <entries> entries entry_list entry
%type <definitions> where definitions definition_list definition
%%
input: PROGRAM items
     | VALUE value                          { t->value = $2; }
     ;

items: %empty | item_list ;
item_list: item | item_list sep item ;
/* The parser skips tokens after a syntax error until yyerrok says that the error is over. That is said here alone, at
 * the next separator. If the rules with `error` said so, the token that caused the error would never be discarded. */
sep: SEP                                    { yyerrok; } ;
item: name '{' entries '}'                  { tree_add_section(t, $1, @1, $3); }
    | MASK name params '=' expr where       { tree_add_mask(t, false, $2, @2, $3, $5, $6); }
    | SCORE name params '=' expr where      { tree_add_mask(t, true, $2, @2, $3, $5, $6); }
    | error                                 { }
    ;

name: NAME | MODEL | CLUSTER | BATCH | MASK | PLAN | SCORE | FIELD | TABLE ;

entries: %empty                             { $$ = (entry_list){0}; }
       | entry_list
       ;
entry_list: entry
          | entry_list sep entry            { $$ = tree_join_entries($1, $3); }
          ;
entry: name '=' value                       { $$ = tree_entry(t, IS_VALUE, $1, @1, $3); }
     | FIELD name '=' value                 { $$ = tree_entry(t, IS_FIELD, $2, @2, $4); }
     | TABLE name '=' value                 { $$ = tree_entry(t, IS_TABLE, $2, @2, $4); }
     | error                                { $$ = (entry_list){0}; }
     ;

params: %empty                              { $$ = (arg_list){0}; }
      | '(' ')'                             { $$ = (arg_list){0}; }
      | '(' param_list ')'                  { $$ = $2; }
      ;
param_list: param
          | param_list ',' param            { $$ = tree_join_args($1, $3); }
          ;
param: name                                 { $$ = tree_arg(t, $1, @1, NULL); }
     | name '=' expr                        { $$ = tree_arg(t, $1, @1, $3); }
     | FIELD name                           { $$ = tree_array_param(t, IS_FIELD, $2, @2, NULL); }
     | FIELD name '=' expr                  { $$ = tree_array_param(t, IS_FIELD, $2, @2, $4); }
     | TABLE name                           { $$ = tree_array_param(t, IS_TABLE, $2, @2, NULL); }
     | TABLE name '=' expr                  { $$ = tree_array_param(t, IS_TABLE, $2, @2, $4); }
     ;

where: %empty                               { $$ = (definition_list){0}; }
     | WHERE '{' definitions '}'            { $$ = $3; }
     ;
definitions: %empty                         { $$ = (definition_list){0}; }
           | definition_list
           ;
definition_list: definition
               | definition_list sep definition { $$ = tree_join_definitions($1, $3); }
               ;
definition: name '=' expr                   { $$ = tree_definition(t, $1, @1, false, (arg_list){0}, $3); }
          | name '(' names ')' '=' expr     { $$ = tree_definition(t, $1, @1, true, $3, $6); }
          | error                           { $$ = (definition_list){0}; }
          ;
names: name                                 { $$ = tree_arg(t, $1, @1, NULL); }
     | names ',' name                       { $$ = tree_join_args($1, tree_arg(t, $3, @3, NULL)); }
     ;

value: item_value
     | item_value ',' values                {
           $$ = tree_list(t, @$, EXPR_TUPLE, tree_join_args(tree_arg(t, NULL, @1, $1), $3));
       }
     | expr OVER values                     {
           $$ = tree_node(t, @$, EXPR_OVER, $1, tree_list(t, @3, EXPR_TUPLE, $3), NULL);
       }
     ;
values: item_value                          { $$ = tree_arg(t, NULL, @1, $1); }
      | values ',' item_value               { $$ = tree_join_args($1, tree_arg(t, NULL, @3, $3)); }
      ;
item_value: expr
          | range
          | expr ON range                   { $$ = tree_node(t, @$, EXPR_ON, $1, $3, NULL); }
          | pair
          ;
range: expr DOTS expr                       { $$ = tree_node(t, @$, EXPR_RANGE, $1, $3, NULL); } ;
pair: expr ':' expr                         { $$ = tree_node(t, @$, EXPR_PAIR, $1, $3, NULL); } ;

expr: primary
    | expr OR expr                          { $$ = tree_binary(t, @$, OP_OR, $1, $3); }
    | expr AND expr                         { $$ = tree_binary(t, @$, OP_AND, $1, $3); }
    | expr '<' expr                         { $$ = tree_binary(t, @$, OP_LT, $1, $3); }
    | expr LE expr                          { $$ = tree_binary(t, @$, OP_LE, $1, $3); }
    | expr '>' expr                         { $$ = tree_binary(t, @$, OP_GT, $1, $3); }
    | expr GE expr                          { $$ = tree_binary(t, @$, OP_GE, $1, $3); }
    | expr EQ expr                          { $$ = tree_binary(t, @$, OP_EQ, $1, $3); }
    | expr NE expr                          { $$ = tree_binary(t, @$, OP_NE, $1, $3); }
    | expr '+' expr                         { $$ = tree_binary(t, @$, OP_ADD, $1, $3); }
    | expr '-' expr                         { $$ = tree_binary(t, @$, OP_SUB, $1, $3); }
    | expr '*' expr                         { $$ = tree_binary(t, @$, OP_MUL, $1, $3); }
    | expr '/' expr                         { $$ = tree_binary(t, @$, OP_DIV, $1, $3); }
    | expr '%' expr                         { $$ = tree_binary(t, @$, OP_MOD, $1, $3); }
    | NOT expr                              { $$ = tree_unary(t, @$, OP_NOT, $2); }
    | '-' expr %prec NEG                    { $$ = tree_unary(t, @$, OP_NEG, $2); }
    | IF expr THEN expr ELSE expr           { $$ = tree_node(t, @$, EXPR_IF, $2, $4, $6); }
    ;

primary: number
       | number UNIT                        { $$ = tree_quantity(t, @$, $1, $2); }
       | STRING                             { $$ = tree_leaf(t, @$, EXPR_STRING, $1, 0); }
       | TRUE                               { $$ = tree_leaf(t, @$, EXPR_BOOL, NULL, 1); }
       | FALSE                              { $$ = tree_leaf(t, @$, EXPR_BOOL, NULL, 0); }
       | name                               { $$ = tree_leaf(t, @$, EXPR_NAME, $1, 0); }
       | name '(' args ')'                  { $$ = tree_call(t, @$, $1, @1, $3); }
       | primary '[' indices ']'            { $$ = tree_index(t, @$, $1, $3); }
       | '(' expr ')'                       { $$ = tree_parens($2, @$); }
       | '[' elements ']'                   { $$ = tree_list(t, @$, EXPR_LIST, $2); }
       ;
number: INT                                 { $$ = tree_leaf(t, @$, EXPR_INT, NULL, $1); }
      | FLOAT                               { $$ = tree_leaf(t, @$, EXPR_FLOAT, $1, 0); }
      ;

indices: expr                               { $$ = tree_arg(t, NULL, @1, $1); }
       | indices ',' expr                   { $$ = tree_join_args($1, tree_arg(t, NULL, @3, $3)); }
       ;

args: %empty                                { $$ = (arg_list){0}; }
    | arg_list
    ;
arg_list: arg
        | arg_list ',' arg                  { $$ = tree_join_args($1, $3); }
        ;
arg: item_value                             { $$ = tree_arg(t, NULL, @1, $1); }
   | name '=' item_value                    { $$ = tree_arg(t, $1, @1, $3); }
   ;

elements: %empty                            { $$ = (arg_list){0}; }
        | element_list
        ;
element_list: element
            | element_list ',' element      { $$ = tree_join_args($1, $3); }
            ;
element: expr                               { $$ = tree_arg(t, NULL, @1, $1); }
       | pair                               { $$ = tree_arg(t, NULL, @1, $1); }
       | expr REPEAT expr                   { $$ = tree_arg(t, NULL, @1, tree_node(t, @$, EXPR_REPEAT, $1, $3, NULL)); }
       | pair REPEAT expr                   { $$ = tree_arg(t, NULL, @1, tree_node(t, @$, EXPR_REPEAT, $1, $3, NULL)); }
       ;
%%
/* The token of a symbol. Bison numbers named tokens and their symbols in the same order; the others are one character,
 * which their name shows in quotes. */
static int token_of(yysymbol_kind_t kind) {
    _Static_assert(T_NE - T_PROGRAM == (int)YYSYMBOL_NE - (int)YYSYMBOL_PROGRAM, "numbered in the same order");
    if (kind == YYSYMBOL_YYEMPTY) return T_LANG_EMPTY;
    if (kind == YYSYMBOL_YYEOF) return T_END;
    return kind <= YYSYMBOL_NE ? (int)kind - (int)YYSYMBOL_PROGRAM + T_PROGRAM : yysymbol_name(kind)[1];
}

static int yyreport_syntax_error(const yypcontext_t *context, parse *p, tree *t) {
    (void)t;
    enum { MAX = 80 };
    yysymbol_kind_t kinds[MAX];
    const char *names[MAX];
    int tokens[MAX];
    int count = yypcontext_expected_tokens(context, kinds, MAX);
    if (count < 0) return count;
    for (int i = 0; i < count; i++) {
        names[i] = yysymbol_name(kinds[i]);
        tokens[i] = token_of(kinds[i]);
    }
    const parse_expected expected = {.tokens = tokens, .names = names, .count = (unsigned)count};
    parse_syntax_error(p, *yypcontext_location(context), token_of(yypcontext_token(context)), &expected);
    return 0;
}

static void lang_error(const LANG_LTYPE *at, parse *p, tree *t, const char *message) {
    (void)at;
    (void)t;
    (void)message;
    parse_exhausted(p);
}
