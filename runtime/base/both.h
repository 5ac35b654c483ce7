/* both.h: runs two pieces of work at the same time, the second in a thread of its own.
 *
 * If no thread can be had, one piece is done after the other. So the result must not depend on which ends first, and
 * the two may share only what neither changes.
 *
 * Starting a thread takes as long as planning a thousandth of a batch. A caller with several pairs to run therefore
 * calls fcp_both_begin() before the first and fcp_both_end() after the last: one helper thread then serves all of them.
 */
#ifndef FCP_BASE_BOTH_H
#define FCP_BASE_BOTH_H
#include <stdbool.h>

enum { FCP_BOTH_FROM = 1 << 15 }; /* records of a plan: going over fewer takes less time than starting a thread */

/* Returns whether two threads may run at the same time. They may not if the calling thread is bound to a single
 * processor: then a second thread would only add cost. */
bool fcp_both_at_once(void);
/* Does work(first) and work(second), the second in a thread of its own if there can be one. That thread gets no
 * signals. */
void fcp_both(void (*work)(void *), void *first, void *second);

/* From now on one helper thread runs the second pieces of all the calling thread's pairs. It is started for the
 * first of them and ends with fcp_both_end(), which the same thread must call once for every fcp_both_begin(). Calls
 * nest: only the outermost pair counts. */
void fcp_both_begin(void);
void fcp_both_end(void);
#endif
