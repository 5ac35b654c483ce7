/* stop.h: how work that takes long learns that it should end.
 *
 * A caller who may want to end a long call hands it the address of an int, and sets that to something other than zero
 * from a signal handler or another thread. The call then returns FCP_E_INTERRUPTED soon. Code that may run for more
 * than a few milliseconds asks through fcp_stop_asked, so that a test can put a function of its own in its place and
 * end the work at any one of the questions.
 */
#ifndef FCP_BASE_STOP_H
#define FCP_BASE_STOP_H
#include <stdbool.h>

/* Has the caller asked for the end? stop may be NULL: nobody ever asks. */
bool fcp_stop_asked(const volatile int *stop);
#endif
