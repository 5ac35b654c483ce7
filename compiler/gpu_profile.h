/* gpu_profile.h: what the profile of the program's GPU adds to a program. */
#ifndef FCPC_GPU_PROFILE_H
#define FCPC_GPU_PROFILE_H
#include "compiler/sema/sema.h"

/* Reads the profile `asked`, a file or a name, by which strategy = auto and margins are judged. What is wrong is
 * reported in s->d. */
void device_read_profile(sema *s, const char *asked);
#endif
