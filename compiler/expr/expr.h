/* expr.h: private to this room: how its files turn typed expressions into mask code. */
#ifndef FCPC_EXPR_EXPR_H
#define FCPC_EXPR_EXPR_H
#include "compiler/sema/arrays.h"
#include "compiler/sema/names.h"

/* The type of an expression and, if code is being built, the node of its value. TYPE_POISON: an error was reported, so
 * that what uses it reports none. TYPE_ANY: not known yet. A value of TYPE_ARRAY is a field or table; its node is the
 * number of the declaration, or ARRAY_ANY while only types are known. */
typedef enum value_type { TYPE_POISON, TYPE_ANY, TYPE_INT, TYPE_BOOL, TYPE_REAL, TYPE_ARRAY } value_type;
typedef struct value {
    uint32_t type, node;
} value;

/* Where an expression stands, which says what its names mean: in the body of mask or score m, or in one of its
 * definitions, called with these arguments. */
typedef struct frame {
    mask *m;
    const value *args;
    definition *def; /* NULL: in the mask's body */
    const value *def_args;
    value s;         /* of a score: what s is */
} frame;

/* A constant: a number, a condition as 0 or 1, or the number of a field or table. */
typedef struct figure {
    bool real;
    bool field; /* `integer` is the number of a field over sequences, whose number it is */
    int64_t integer;
    double value; /* also if it is an integer */
} figure;

/* --- expr.c ------------------------------------------------------------------------------------------------------- */

value expr_lower(sema *s, expr *e, const frame *f, uint32_t guard);
/* The same where an array is meant: the name of a field over sequences is then the field, and not its number. */
value expr_lower_array(sema *s, expr *e, const frame *f, uint32_t guard);
/* The same of an argument that is an array. If nothing has the name, a hint says how to declare it. */
value expr_array_argument(sema *s, expr *e, const frame *f, uint32_t guard);
/* Emits the number that a sequence has in a field over sequences. */
value expr_read_bare(sema *s, expr *e, uint32_t array, bool score);
/* Emits a node; 0 if there is no builder or it has failed. A constant that is not finite is reported (E330). */
uint32_t expr_emit(sema *s, expr *e, mc_op op, uint32_t a, uint32_t b, uint32_t c, int64_t imm, uint32_t guard);
/* Does v have this type, or one that is not known yet? If not, reports it, unless it was reported before (poison). */
bool expr_needs(sema *s, value v, value_type type, const expr *e, const char *who);
/* Adds the hint for the name of a mask of the prelude where a number is wanted, as in k < prefix: a field is meant, and
 * would hide the mask. Other expressions get none. */
void expr_hint_number(sema *s, const expr *e);
/* Emits exact(a, b): a / b, which divides by zero if there is a remainder. */
uint32_t expr_exact(sema *s, expr *e, uint32_t a, uint32_t b, uint32_t guard);
/* Begins and ends building code. False: out of memory, which was reported. */
bool expr_begin(sema *s);
void expr_end(sema *s);
const char *expr_type_text(uint32_t type); /* "a number", ... */
/* Three functions about a parameter of a mask:
 * - expr_mask_param_type returns its type, which is that of its default.
 * - expr_mask_constant evaluates an argument or the default, which is a constant.
 * - expr_mask_argument makes a value of such a constant, and emits a node for it. */
value_type expr_mask_param_type(const arg *p);
bool expr_mask_constant(sema *s, const arg *param, const expr *e, int64_t *out);
/* If the argument of a number parameter names a field over sequences, *out is that field. False: it names another field
 * or table, which was reported. */
bool expr_field_argument(sema *s, const arg *param, const expr *e, bool score, figure *out);
/* Adds a hint to the error that an argument is no constant, if it has to do with such a field. */
void expr_hint_field(sema *s, const expr *e);
value expr_mask_argument(sema *s, expr *e, const arg *param, int64_t v);
/* "lambda(sink = 64, window = 8192)", "softcap(c = 50.0)": a mask or score and its arguments. NULL: out of memory. */
const char *expr_call_text(sema *s, const mask *m, const struct figure *values);
/* A number for a span, to be attached to nodes; 0: out of memory, which was reported. */
uint32_t expr_place(sema *s, span at);
/* Copies the code that `root` needs into the program. False: out of memory, which was reported. */
bool expr_extract(sema *s, const mc_builder *b, uint32_t root, mc_code *out, const span **out_spans);

/* --- inline.c ------------------------------------------------------------------------------------------------ */

/* Lowers the body of a definition or mask, whose arguments are in `f`. The result is remembered under two things:
 * `what`, an address that stands for the definition or mask, and `args`, all arguments that the body depends on. */
value expr_inline(sema *s, const void *what, expr *body, const value *args, uint32_t count, const frame *f,
                  uint32_t guard);
void expr_forget(sema *s); /* forgets what was inlined */

/* --- score.c: expressions in a score ------------------------------------------------------------------------------ */

value score_binary(sema *s, expr *e, value a, value b, uint32_t guard);
value score_negate(sema *s, expr *e, value a, uint32_t guard);
/* Gives both branches of an `if` one type. */
void score_branches(sema *s, expr *e, value *a, value *b);
value score_builtin(sema *s, expr *e, const frame *f, uint32_t guard);
value score_literal(sema *s, expr *e);
/* Lowers the name or call of a score inside a score. */
value score_call(sema *s, expr *e, const frame *f, uint32_t guard);
/* `node` was emitted for op(a, b). If both are constants and the value is not finite, reports that. */
void score_finite(sema *s, const expr *e, mc_op op, uint32_t node, uint32_t a, uint32_t b, uint32_t guard);
/* The type of a score's parameter, which is that of its default; TYPE_ANY if it has none. */
value_type score_param_type(const arg *p);

/* --- number.c: constants ------------------------------------------------------------------------------------ */

/* Evaluates a constant number, with or without a point. It must be finite. `what` is its name in messages. */
bool expr_eval_number(sema *s, const expr *e, const char *what, figure *out);
/* Does a constant expression contain a number with a point? */
bool expr_has_point(const expr *e);

/* --- mask.c, score_plan.c: the plan's mask and score -------------------------------------------------------------- */

/* Checks the names and types of a mask or score, once. Errors are reported. */
void expr_check_mask(sema *s, mask *m);
/* Numbers of the prelude's masks are counts and sizes, so none of them is negative. Reports those that are; numbers[i]
 * is that of parameter i, and known[i] says whether it is a constant. False: one was reported. */
bool expr_check_counts(sema *s, const mask *m, arg *const *given, const int64_t *numbers, const bool *known, span call);
/* "w of 'window'", in the program's memory. NULL: out of memory, which was reported. */
const char *expr_count_name(sema *s, const mask *m, const arg *param);
/* Notes that elements of an array are such a number. False: out of memory, which was reported. */
bool expr_note_count(sema *s, const mask *m, const arg *param, uint32_t array);
/* The same of one that an expression calls. False: it is defined by itself, which was reported. */
bool expr_check_called(sema *s, const expr *e, mask *m);
/* Lowers the mask of a plan, whose arguments are constants. Fills in mask, mask_spans, mask_name and mask_span of the
 * program. */
bool expr_lower_mask(sema *s, mask *m, const arg *args, span call);
/* Lowers the score of a plan, whose arguments are constants, and its derivative. The plan's mask and passes must be
 * known. Fills in score, slope, check and what belongs to them. */
bool expr_lower_score(sema *s, mask *m, const arg *args, span call);
/* Reads the sinks of a plan. */
void expr_lower_sink(sema *s, const expr *value);
#endif
