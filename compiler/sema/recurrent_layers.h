/* recurrent_layers.h: layers that recur, in `layers = [causal, scan(heads = 32) x 3, halo(before = 3) x 3]`. */
#ifndef FCPC_SEMA_RECURRENT_LAYERS_H
#define FCPC_SEMA_RECURRENT_LAYERS_H
#include "compiler/sema/sema.h"

/* How many kinds a program may have; the same kind any number of times. */
enum { RECURRENT_MAX = 64 };

/* An element of `layers` that is no mask. */
typedef struct layer_element {
    const expr *call; /* EXPR_NAME or EXPR_CALL */
    uint32_t times;
} layer_element;

/* What halo and scan take in parentheses. */
enum { HALO_BEFORE, HALO_AFTER, HALO_CHANNELS, HALO_PARAMS };
enum { SCAN_HEADS, SCAN_HEAD_DIM, SCAN_VALUE_DIM, SCAN_DECAY, SCAN_REVERSE, SCAN_PARAMS };
extern const char *const sema_halo_params[HALO_PARAMS], *const sema_scan_params[SCAN_PARAMS];

/* The fcp_layer_kind that an element of `layers` names; LAYER_KINDS: none, it is a mask. */
uint32_t sema_layer_kind(const expr *called);
/* Reads the elements that sema_choose_layer has found into s->out. It needs the model's keys, from which defaults come,
 * and the names of the program's masks. */
void sema_check_recurrent(sema *s);
#endif
