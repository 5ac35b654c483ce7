/* choose.h: what front.c asks of expressions: check the program's masks, lower the ones that the plan names. */
#ifndef FCPC_EXPR_CHOOSE_H
#define FCPC_EXPR_CHOOSE_H
#include "compiler/sema/keys.h"

/* Checks names and types of every mask and score of the program; errors are reported. */
void expr_check_masks(sema *s);
/* Lowers the mask that plan.mask names; without the key, the program's only mask. */
void expr_choose_mask(sema *s, const sema_keys *k);
/* Lowers plan.sink and the score that plan.score names. Without the key there is no score, even if the program defines
 * one. */
void expr_choose_score(sema *s, const sema_keys *k);
#endif
