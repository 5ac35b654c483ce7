/* interrupt.c: asks the caller of a session whether to stop (interrupt.h).
 *
 * Cost: a call looks at the clock; if the caller has given no function to ask, it only returns.
 */
#include "runtime/base/interrupt.h"

#include <stddef.h>

#include "runtime/base/clock.h"

void fcp_interrupt_begin(fcp_interrupt *x) {
    if (!x->asked) return;
    x->caller = pthread_self();
    x->last = fcp_clock_ns();
    x->over = false;
}

bool fcp_interrupted(fcp_interrupt *x) {
    if (x == NULL || !x->asked || !pthread_equal(x->caller, pthread_self()) || x->over) return false;
    if (fcp_clock_ns() - x->last < FCP_INTERRUPT_MS * UINT64_C(1000000)) return false;
    x->over = x->asked(x->context) != 0;
    x->last = fcp_clock_ns(); /* what the caller has done meanwhile is his time */
    return x->over;
}
