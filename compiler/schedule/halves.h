/* halves.h: the two half batches of a plan with pingpong: which tiles and which hops are in which. */
#ifndef FCPC_SCHEDULE_HALVES_H
#define FCPC_SCHEDULE_HALVES_H
#include "compiler/schedule/traffic.h"

/* Of a tile: the half batch that it is in. Tiles that need nothing from other ranks are in neither. */
enum { HALF_FIRST, HALF_SECOND, HALF_NEITHER };

/* Says the half of every tile (out_tile, one of HALF_*) and of every hop (out_second: it is of the second half). At
 * each rank the tiles of both halves have about equal work. A hop is of the first half if a tile of that needs it, at
 * its end or behind it. Cost: linear in tiles and hops. */
fcp_code halves_find(planning *x, uint8_t *out_tile, bool *out_second);
#endif
