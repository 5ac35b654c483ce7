/* sharing.h: the strategies that divide heads among ranks: ulysses and upipe, alone or with another strategy that
 * divides the batch among groups of such ranks. */
#ifndef FCPC_SEMA_SHARING_H
#define FCPC_SEMA_SHARING_H
#include "compiler/sema/sema.h"

/* `ulysses(...) + ring`, `ulysses(...) + fcp(...)`: notes in s->out what divides the batch among groups, and returns
 * the left operand. *out_between: the right one, if it may have parameters; else NULL. Any other value is returned as
 * it is; NULL: the sum is not one of these, reported. */
const expr *sema_between_of(sema *s, const expr *value, const expr **out_between);
/* Of ulysses and upipe: do the heads divide among the ranks? Reports where they do not. Replaces s->out's `inside` by
 * the number of ranks that share heads, and `together` by that of the heads that are computed at a time. The spans are
 * those of the values; `whole` stands for one that is not given. */
void sema_check_sharing(sema *s, span whole, const expr *inside, const expr *together);
/* Of auto: if it may try nothing else than these, do the heads divide among all ranks, or among those of a node? If
 * not, none of what it may try can be planned: reported at `among`. */
void sema_check_among(sema *s, span among);
#endif
