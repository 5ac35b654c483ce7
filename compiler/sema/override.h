/* override.h: applies the options -D, --lengths and --field. */
#ifndef FCPC_SEMA_OVERRIDE_H
#define FCPC_SEMA_OVERRIDE_H
#include "compiler/sema/sema.h"

/* Applies the options to the tree, in this order: -D, --lengths, --field. What is wrong with one is reported. False: no
 * memory, reported. */
bool sema_override(sema *s, const fcpc_options *options);
#endif
