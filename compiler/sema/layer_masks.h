/* layer_masks.h: programs of several masks, such as `layers = [causal, window(w = 4096) x 3]`. Such a program is parsed
 * once for each of its masks. Layers that recur, which stand in the same list, are read by recurrent_layers.h. */
#ifndef FCPC_SEMA_LAYER_MASKS_H
#define FCPC_SEMA_LAYER_MASKS_H
#include "compiler/sema/sema.h"

enum { LAYERS_MAX = 64, LAYER_TIMES_MAX = 1 << 20 };

/* If the plan has `layers`, counts its masks into s->out, and changes the tree to that of a program whose only mask is
 * number s->layer. False: an error was reported. */
bool sema_choose_layer(sema *s);
/* Puts `layers` back into the tree, or, if `layers` is false, `mask` in its place again. The canonical text of the
 * program is printed with the first, the text in a plan with the second. */
void sema_show_layers(sema *s, bool layers);
#endif
