/* names.h: the names of masks, scores, parameters and definitions: declaring and finding them, binding arguments to
 * parameters, and constant whole numbers. */
#ifndef FCPC_SEMA_NAMES_H
#define FCPC_SEMA_NAMES_H
#include "compiler/sema/sema.h"

/* A name in a scope. The scope is identified by the address of what it belongs to: an ast, whose masks it has; a mask,
 * with its parameters and definitions; or a definition, with its parameters. */
typedef struct symbol {
    const void *scope;
    const char *name;
    void *target;   /* mask or definition; NULL for a parameter */
    uint32_t index; /* of a parameter */
    span at;
} symbol;

/* mask.state. BUSY: being checked, so a call of it would be recursive. */
enum { MASK_NEW, MASK_BUSY, MASK_GOOD, MASK_BROKEN };
/* Values of expr.ref, which says what a name means. expr.index is then the number of the variable, builtin, parameter
 * or array; expr.target is the definition, mask or score. */
enum { REF_NONE, REF_VAR, REF_PARAM, REF_DEF_PARAM, REF_DEF, REF_MASK, REF_SCORE, REF_MODEL, REF_BUILTIN, REF_ARRAY,
       REF_WRONG };
typedef enum mask_kind { KIND_ANY, KIND_MASK, KIND_SCORE } mask_kind;

/* Declares the names of the program's masks, and of their parameters and definitions; reports doubles. False: no
 * memory. Those of the prelude are declared as they are read. */
bool sema_declare_masks(sema *s);
const symbol *sema_find_symbol(const sema *s, const void *scope, const char *name); /* NULL: none */
mask *sema_own_mask(const sema *s, const char *name); /* of the program; NULL: none */
/* The prelude's mask or score of that name and kind; NULL: there is none, or out of memory, which was reported. A copy
 * is a tree of its own, whose inner names are not declared. */
mask *sema_given_mask(sema *s, const char *name);
mask *sema_copy_given(sema *s, const char *name, mask_kind kind);
/* The mask or score of that name: of this kind if there is one, and the program's before the prelude's. */
mask *sema_visible_mask(sema *s, const char *name, mask_kind kind);
/* Adds a hint if other projects use the word in one of these places (FCPC_FOREIGN_KEY, ...). `value` is what
 * the user gave it, or NULL. False: it is no such word. */
bool sema_hint_foreign(sema *s, const char *word, unsigned places, const expr *value);
/* What a misspelled name may have been meant to be; NULL: nothing is near. */
const char *sema_nearest_mask(const sema *s, const char *name, mask_kind kind);
/* The same for a name in the body of m, or in its definition def unless that is NULL. */
const char *sema_nearest_name(sema *s, const char *name, const mask *m, const definition *def);

/* Evaluates a constant whole number. `what` names it in messages. False: it is none, reported. */
bool sema_eval_constant(sema *s, const expr *e, const char *what, int64_t *out);
/* Finds out which argument each parameter of m gets: out[i] for parameter i, or NULL if it has its default. `out` has
 * m->param_count + 1 places; the last is for the argument `s` of a score. False: an argument has an unknown name, is
 * given twice, or is missing, which was reported. */
bool sema_bind_args(sema *s, const mask *m, const arg *args, span call, arg **out);
#endif
