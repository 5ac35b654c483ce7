/* unused.h: warns of parameters, definitions and scores that nothing uses. */
#ifndef FCPC_SEMA_UNUSED_H
#define FCPC_SEMA_UNUSED_H
#include "compiler/sema/sema.h"

/* Warns of parameters and definitions of the program's masks that nothing uses, of scores that do not name s, and of
 * scores of a program whose plan has none. */
void sema_warn_unused(sema *s);
#endif
