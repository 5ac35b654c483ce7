/* relays.h: trees of keys: who passes on what many nodes read.
 *
 * Example: rank 0 has a block that seven other nodes read, and nothing else travels. It sends the block to ranks 1, 2
 * and 4. Rank 1 passes it on to ranks 3 and 5, rank 2 to rank 6, and rank 3 to rank 7. So all have it after the time of
 * three transfers, and not of seven.
 */
#ifndef FCPC_SCHEDULE_RELAYS_H
#define FCPC_SCHEDULE_RELAYS_H
#include "compiler/schedule/traffic.h"

typedef struct relays relays;

/* Looks at direct ways, by which every block leaves its home for each node that reads it. *out: NULL if no rank has so
 * much more to send than any has to receive that trees could pay. Lies in x->scratch. Cost: O(hops + ranks). */
fcp_code relays_open(planning *x, const traffic *direct, relays **out);

/* Makes a tree of the direct ways of a block of keys, legs[0] to legs[count - 1], where its home has too much to send.
 * The same ranks have it afterwards, and each gets it over the same fabric. Cost: O(count log count + nodes^2). */
void relays_plant(relays *r, const need *n, leg *legs, uint32_t count);
#endif
