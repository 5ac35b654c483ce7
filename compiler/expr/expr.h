/* expr.h: typed expressions on their way to mask code: what expr.c (masks) and score*.c (scores) share. */
#ifndef FCPC_EXPR_EXPR_H
#define FCPC_EXPR_EXPR_H
#include "compiler/sema/arrays.h"
#include "compiler/sema/names.h"

/* TYPE_ARRAY: a field or table; its node is the number of the declaration, or ARRAY_ANY while only types are known. */
typedef enum value_type { TYPE_POISON, TYPE_ANY, TYPE_INT, TYPE_BOOL, TYPE_REAL, TYPE_ARRAY } value_type;
typedef struct value {
    uint32_t type, node;
} value;

/* Where an expression stands: in mask or score m, perhaps in a definition of it, with these arguments. */
typedef struct frame {
    mask *m;
    const value *args;
    definition *def; /* NULL: in the mask's body */
    const value *def_args;
    value s;         /* of a score: what s is */
} frame;

/* --- expr.c ------------------------------------------------------------------------------------------------------- */

value expr_lower(sema *s, expr *e, const frame *f, uint32_t guard);
/* A node; 0 where there is no builder or it has failed. A constant that is not finite is reported (E330). */
uint32_t expr_emit(sema *s, expr *e, mc_op op, uint32_t a, uint32_t b, uint32_t c, int64_t imm, uint32_t guard);
/* Is v of `type`, or of one that is not known yet? If not, says so; poison passes silently as false. */
bool expr_needs(sema *s, value v, value_type type, const expr *e, const char *who);
/* a / b, or a division by zero where that leaves a rest. */
uint32_t expr_exact(sema *s, expr *e, uint32_t a, uint32_t b, uint32_t guard);
/* Begins and ends building code; false: no memory, reported. */
bool expr_begin(sema *s);
void expr_end(sema *s);
const char *expr_type_text(uint32_t type); /* "a number", ... */
/* The type of a mask's parameter is its default's; the constant value of an argument or default; that as a value. */
value_type expr_mask_param_type(const arg *p);
bool expr_mask_constant(sema *s, const arg *param, const expr *e, int64_t *out);
value expr_mask_argument(sema *s, expr *e, const arg *param, int64_t v);
/* A number for a span, to attach to nodes; 0: no memory, reported. */
uint32_t expr_place(sema *s, span at);
/* Copies what `root` needs into the program. False: no memory, reported. */
bool expr_extract(sema *s, const mc_builder *b, uint32_t root, mc_code *out, const span **out_spans);

/* --- inline.c ------------------------------------------------------------------------------------------------ */

/* Inlines a body with its arguments in place. `what` names it, f is the body's own frame. */
value expr_inline(sema *s, const void *what, expr *body, const value *args, uint32_t count, const frame *f,
                  uint32_t guard);
void expr_forget(sema *s); /* what was inlined */

/* --- score.c: expressions in a score ------------------------------------------------------------------------------ */

value score_binary(sema *s, expr *e, value a, value b, uint32_t guard);
value score_negate(sema *s, expr *e, value a, uint32_t guard);
/* Makes the branches of an `if` of one type. */
void score_branches(sema *s, expr *e, value *a, value *b);
value score_builtin(sema *s, expr *e, const frame *f, uint32_t guard);
value score_literal(sema *s, expr *e);
/* A score's name or call in a score. */
value score_call(sema *s, expr *e, const frame *f, uint32_t guard);
/* Reports a constant that is not finite: `node` is op(a, b), its operands constant. */
void score_finite(sema *s, const expr *e, mc_op op, uint32_t node, uint32_t a, uint32_t b, uint32_t guard);
/* What type a parameter of a score has: its default's; TYPE_ANY without one. */
value_type score_param_type(const arg *p);

/* --- number.c: constants ------------------------------------------------------------------------------------ */

typedef struct figure {
    bool real;
    int64_t integer;
    double value; /* of an integer as well */
} figure;
/* A constant number, whole or with a point; finite. `what` is its name in messages. */
bool expr_eval_number(sema *s, const expr *e, const char *what, figure *out);
/* Does a constant expression have a point somewhere? */
bool expr_has_point(const expr *e);

/* --- derive.c ----------------------------------------------------------------------------------------------------- */

/* The derivative by s of node `root`, a real, in the same builder. False: it has none, because of node *out_bad (a
 * floor of s; with `flat` that counts as constant), or the builder failed (*out_bad is MC_NONE). */
bool derive(mc_builder *b, uint32_t root, bool flat, uint32_t *out_slope, uint32_t *out_bad);

/* --- mask.c, score_plan.c: the plan's mask and score ---------------------------------------------------------------- */

/* Checks names and types of a mask or score, once; errors are reported. */
void expr_check_mask(sema *s, mask *m);
/* Inlines the mask of a plan, its arguments constant. Fills mask, mask_spans, mask_name, mask_span of the program. */
bool expr_lower_mask(sema *s, mask *m, const arg *args, span call);
/* Inlines the score of a plan, its arguments constant, and derives it; after the plan's mask and passes. Fills score,
 * slope, check and what goes with them. */
bool expr_lower_score(sema *s, mask *m, const arg *args, span call);
/* The sinks of a plan. */
void expr_lower_sink(sema *s, const expr *value);
#endif
