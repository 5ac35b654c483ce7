/* layer_masks.h: `layers = [causal, window(w = 4096) x 3]`: a program of several masks is parsed once for each of them. */
#ifndef FCPC_SEMA_LAYER_MASKS_H
#define FCPC_SEMA_LAYER_MASKS_H
#include "compiler/sema/sema.h"

enum { LAYERS_MAX = 64, LAYER_TIMES_MAX = 1 << 20 };

/* Where the plan says `layers`: counts the masks into s->out, and makes the tree that of a program whose mask is number
 * s->layer. False: reported. */
bool sema_choose_layer(sema *s);
/* Puts `layers` back into the tree, or `mask` in its place again: the canonical text has the one, a plan the other. */
void sema_show_layers(sema *s, bool layers);
#endif
