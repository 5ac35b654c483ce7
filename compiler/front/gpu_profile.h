/* gpu_profile.h: what the profile of the program's GPU adds to a program. */
#ifndef FCPC_FRONT_GPU_PROFILE_H
#define FCPC_FRONT_GPU_PROFILE_H
#include "compiler/sema/sema.h"

/* Reads the profile `asked`, a file or a name, by which strategy = auto and margins are judged. What is wrong is
 * reported in s->d. */
void gpu_read_profile(sema *s, const char *asked);
/* Unless the program states how many multiprocessors attention leaves to communication (plan.margin): lists the numbers
 * of which each plan gets one (passes/choose_margin.c). FCP_E_NO_MEMORY. */
fcp_code gpu_list_margins(struct fcpc_program *p);
#endif
