/* relays.h: trees in which ranks pass on keys that many nodes read.
 *
 * Example: eight nodes have one rank each. Rank 0 has a block that all read, and nothing else travels. Rank 0 sends it
 * to ranks 1, 2 and 4. Rank 1 passes it on to ranks 3 and 5, rank 2 to rank 6, and rank 3 to rank 7. So all have it
 * after the time of three transfers; direct ways take seven.
 */
#ifndef FCPC_SCHEDULE_RELAYS_H
#define FCPC_SCHEDULE_RELAYS_H
#include "compiler/schedule/traffic.h"

typedef struct relays relays;

/* Prepares trees, if by the direct ways some rank has much more to send than any has to receive; else *out is NULL,
 * because trees could not pay. *out lies in x->scratch. Cost: O(hops + ranks). */
fcp_code relays_open(planning *x, const traffic *direct, relays **out);

/* Turns the direct ways of a block of keys, legs[0] to legs[count - 1], into a tree, if its home has too much to send.
 * The same ranks get the block, each over the same fabric as before. Cost: O(count log count + nodes^2). */
void relays_plant(relays *r, const need *n, leg *legs, uint32_t count);
#endif
