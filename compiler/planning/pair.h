/* pair.h: two pieces of a pass at the same time.
 *
 * Example: the rounds of the forward pass and those of the backward pass need nothing of each other. Each piece gets a
 * planning. For the first one, which the calling thread does, that is x itself. For the second it is a copy of x, whose
 * `work` and `scratch` are arenas of its own, because an arena serves one thread at a time. The longer piece is best
 * the first, because the second waits until its thread has started.
 *
 * The pieces must not change what they share, and the second allocates nothing from `memory`. What it leaves in its
 * `scratch` is there until the next pair. Nothing depends on which of the two ends first, nor on there being two
 * threads.
 */
#ifndef FCPC_PAIR_H
#define FCPC_PAIR_H
#include <stdbool.h>

#include "compiler/planning/planning.h"

enum { PAIR_FROM = 1 << 12 }; /* units of a pass: fewer take about as long as to start a thread */

typedef struct pair_piece {
    fcp_code (*make)(planning *x, void *given);
    void *given;
} pair_piece;

/* Makes both: in two threads if `large`, and else one after the other, both with x. Returns the code of the first; if
 * that is FCP_OK, the second's. */
fcp_code pair_make(planning *x, bool large, pair_piece first, pair_piece second);
#endif
