/* near.h: which ranks compute what is near before what comes over net in the same stage. */
#ifndef FCPC_SCHEDULE_NEAR_H
#define FCPC_SCHEDULE_NEAR_H
#include "compiler/schedule/schedule.h"

/* Tiles run in so many stages. *out: for each rank, whether it does; in x->scratch. NULL: no rank does. FCP_E_NO_MEMORY,
 * FCP_E_INTERRUPTED. Cost: linear in hops and tiles. */
fcp_code near_first(planning *x, uint32_t stages, bool **out);
#endif
