/* sharing.h: the strategies that divide heads among ranks: ulysses and upipe, alone or with another strategy that
 * divides the batch among groups of such ranks. */
#ifndef FCPC_SEMA_SHARING_H
#define FCPC_SEMA_SHARING_H
#include "compiler/sema/sema.h"

/* Takes a value of plan.strategy apart that may be a sum, such as `ulysses(...) + ring` or `ulysses(...) + fcp(...)`.
 * In a sum the left strategy divides heads within a group of ranks, and the right one the batch among the groups.
 * Returns the left operand, and stores in s->out which strategy is on the right. *out_between is the right operand, so
 * that the caller can read its parameters; NULL for ring, which takes none here. A value that is no sum is returned as
 * it is, with *out_between = NULL. For a sum of anything else an error is reported, and the result is NULL. */
const expr *sema_between_of(sema *s, const expr *value, const expr **out_between);
/* Checks for ulysses and upipe that heads can be divided evenly among ranks, and reports where they cannot. Sets
 * s->out's `inside` to the number of ranks that share heads, and `together` to the number of heads that are computed at
 * a time. `inside` and `together` are the values in the program; errors about one that is not given (NULL) show the
 * span `whole`. */
void sema_check_sharing(sema *s, span whole, const expr *inside, const expr *together);
/* Checks `auto` where it may only try strategies that divide heads: the heads must be divisible among all ranks, or
 * among those of a node. Otherwise nothing that it may try can be planned, which is reported at `among`. */
void sema_check_among(sema *s, span among);
#endif
