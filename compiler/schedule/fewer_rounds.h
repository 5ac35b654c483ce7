/* fewer_rounds.h: results change their stages so that there are fewer rounds.
 *
 * A stage has as many rounds as its busiest line has units. Example: in stage 40 rank 80 receives 5 results, and nobody
 * else more than 3. Two of the 5 may come in stage 42, where others receive 4 anyway: that is two rounds less.
 */
#ifndef FCPC_SCHEDULE_FEWER_ROUNDS_H
#define FCPC_SCHEDULE_FEWER_ROUNDS_H
#include "compiler/schedule/stages_away.h"

/* Changes `back`, the stages of what goes back along the hops from `first` on in a pass, and with it *l. ready[f]: the
 * first stage in which the results of hop f's own tiles may leave; 0: it has none. The last of all stages stays. */
fcp_code squeeze_returns(planning *x, const schedule *out, levels *l, fcp_pass pass, uint32_t first,
                         const uint32_t *ready, returns *back);
#endif
