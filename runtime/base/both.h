/* both.h: two pieces of work at the same time, where a thread can be had for one of them.
 *
 * The two may share what neither changes. Nothing may depend on which ends first: so where there is no thread, one is
 * done after the other, and the result is the same.
 *
 * To start a thread takes as long as to plan a thousandth of a batch. So who has several pairs to do says
 * fcp_both_begin() before the first and fcp_both_end() after the last: one thread then serves all of them.
 */
#ifndef FCP_BASE_BOTH_H
#define FCP_BASE_BOTH_H
#include <stdbool.h>

enum { FCP_BOTH_FROM = 1 << 15 }; /* records of a plan: to go over fewer takes less time than to start a thread */

/* May two threads run at the same time? Not where the calling one is held to a single processor: a second thread would
 * only cost. */
bool fcp_both_at_once(void);
/* Does work(first) and work(second), the second in a thread of its own if there can be one. That thread gets no
 * signals. */
void fcp_both(void (*work)(void *), void *first, void *second);

/* From now on the calling thread's second pieces share a thread. It is started for the first of them, and ends with
 * fcp_both_end(), which every fcp_both_begin() needs, on the same thread. They nest: the outermost counts. */
void fcp_both_begin(void);
void fcp_both_end(void);
#endif
