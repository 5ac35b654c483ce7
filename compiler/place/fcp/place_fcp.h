/* place_fcp.h: the fcp strategy. */
#ifndef FCPC_PLACE_FCP_PLACE_FCP_H
#define FCPC_PLACE_FCP_PLACE_FCP_H
#include "compiler/place/place.h"

/* The strategy's function: place.h. */
fcp_code place_by_fcp(planning *x, const place_input *in, uint32_t *home);
/* The fcp strategy (fcp.c): balances work at least about as well as LPT, and moves fewer blocks. */
fcp_code place_fcp(const place_input *in, arena *scratch, uint32_t *out_home);
/* May fcp have several ranks compute a block, because some block is too heavy for one? */
bool place_splits(const planning *x);
#endif
