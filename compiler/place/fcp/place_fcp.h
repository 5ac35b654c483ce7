/* place_fcp.h: what other rooms and folders call of the fcp strategy. */
#ifndef FCPC_PLACE_FCP_PLACE_FCP_H
#define FCPC_PLACE_FCP_PLACE_FCP_H
#include "compiler/place/place.h"

/* The strategy's function: place.h. */
fcp_code place_by_fcp(planning *x, const place_input *in, uint32_t *home);
/* The fcp strategy (fcp.c): finds homes with which work is balanced about as well as by LPT or better, and fewer blocks
 * move. */
fcp_code place_fcp(const place_input *in, arena *scratch, uint32_t *out_home);
/* May fcp divide blocks among ranks? It may if the program allows it and some block is too heavy for one rank. */
bool place_splits(const planning *x);
#endif
