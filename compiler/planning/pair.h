/* pair.h: runs two pieces of a pass, in two threads if that pays.
 *
 * Example: the rounds of the forward pass and those of the backward pass do not depend on each other. The calling
 * thread makes the first piece, with x itself. The second thread makes the other, with a copy of x whose `work` and
 * `scratch` are arenas of its own, because an arena serves one thread at a time. The longer piece should be the first,
 * because starting the second thread takes some time.
 *
 * The pieces must not change what they share, and the second must not allocate from `memory`. What it leaves in its
 * `scratch` stays until the next pair. The result is the same whichever ends first, and with one thread.
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

/* Makes both pieces: in two threads if `large`, otherwise one after the other, both with x. Returns the code of the
 * first piece; if that is FCP_OK, the second's. */
fcp_code pair_make(planning *x, bool large, pair_piece first, pair_piece second);
#endif
