/* even_stages.h: which tiles wait for a later stage than the one in which their keys come. */
#ifndef FCPC_SCHEDULE_EVEN_STAGES_H
#define FCPC_SCHEDULE_EVEN_STAGES_H
#include "compiler/schedule/schedule.h"

/* Where all tiles run at home: *out[tile] is the stage of each tile whose KV comes from elsewhere; `stages`: all that
 * there are. In x->scratch. Cost: O(tiles + ranks stages). */
fcp_code pace_tiles(planning *x, const schedule *s, uint32_t stages, uint32_t **out);
#endif
