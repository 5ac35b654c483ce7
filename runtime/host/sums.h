/* sums.h: sums of float32 that come out the same in whatever order the numbers are added.
 *
 * Every pair of a batch adds to the gradient of a table, and threads reach pairs in no fixed order. A floating-point
 * sum would depend on that order. These sums are exact: they are kept as integer multiples of the smallest float,
 * 2^-149, and rounded once, when they are read. So no order can change them.
 */
#ifndef FCP_HOST_SUMS_H
#define FCP_HOST_SUMS_H
#include <stdbool.h>
#include <stddef.h>

typedef struct fcp_sums fcp_sums;
fcp_sums *fcp_sums_new(size_t count); /* all 0; NULL: out of memory */
void fcp_sums_free(fcp_sums *sums);
void fcp_sums_clear(fcp_sums *sums);

/* Between these two one thread has the sums for itself, and may add up to 2^30 numbers. */
void fcp_sums_enter(fcp_sums *sums);
void fcp_sums_leave(fcp_sums *sums);
/* Adds a number, which need not be finite, to sum i. */
void fcp_sums_add(fcp_sums *sums, size_t i, float x);

/* The sums, each rounded to the nearest float; NaN and infinities as in any order of adding. */
void fcp_sums_read(fcp_sums *sums, float *out);
#endif
