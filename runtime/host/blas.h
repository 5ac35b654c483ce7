/* blas.h: OpenBLAS as the host backend uses it: every call on one thread, and not too many at once.
 *
 * How many threads OpenBLAS gives a product is a setting of the whole process. The backend computes on threads of its
 * own, so while any pass runs the setting is 1; when the last one ends it is what it was before. A program that calls
 * OpenBLAS from other threads meanwhile gets right results, on one thread. OpenBLAS also ends the process when too many
 * threads are inside it at once; here no more than FCP_BLAS_CALLERS are, over all sessions of the process.
 *
 * This guard of a process-wide setting is the only mutable state of the library that is not in an object.
 */
#ifndef FCP_HOST_BLAS_H
#define FCP_HOST_BLAS_H

enum { FCP_BLAS_CALLERS = 32 };

void fcp_blas_open(void);  /* a pass begins */
void fcp_blas_close(void); /* it has ended */
void fcp_blas_enter(void); /* a thread will call OpenBLAS: waits for its turn */
void fcp_blas_leave(void);
#endif
