/* play.h: what the files of the playground share. */
#ifndef FCPC_PLAYGROUND_PLAY_H
#define FCPC_PLAYGROUND_PLAY_H
#include "compiler/cli/cmd.h"

/* What the page calls (play.c). */
const char *play(const char *lines);
const char *play_data(const char *file);

/* What the command that is running has read and tried. */
const cmd_input *play_input(void);
#endif
