/* choose_margin.h: how many multiprocessors attention leaves to communication, where the program does not say. */
#ifndef FCPC_CHOOSE_MARGIN_H
#define FCPC_CHOOSE_MARGIN_H
#include "compiler/planning/planning.h"

/* Unless the program states a margin: those among which its plans get one. FCP_E_NO_MEMORY. */
fcp_code margin_list(struct fcpc_program *p);
/* The pass that gives a plan the margin with which it is fastest. */
fcp_code margin_choose(planning *x);
#endif
