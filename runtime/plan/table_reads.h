/* table_reads.h: where a score reads tables of reals, and its derivative by what it reads there.
 *
 * Example: the score s + bias[h, q - k]. Its derivative by the element of `bias` that a pair reads is 1, so each pair
 *          adds dS to the gradient of one element: that of its head and distance. In general a score reads tables at
 *          several places. Each such *read* has a derivative of its own, which is code like the score, and adds dS
 *          times its value.
 */
#ifndef FCP_TABLE_READS_H
#define FCP_TABLE_READS_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"

/* One place in the score that reads a table. */
typedef struct fcp_table_read {
    mc_code part, load; /* the score's derivative by what is read; and the read itself, as the last node */
    uint64_t first;     /* where the table begins among all tables */
} fcp_table_read;

typedef struct fcp_table_reads {
    uint32_t count;
    fcp_table_read reads[];
} fcp_table_reads;

/* The reads of a checked plan's score. FCP_E_NO_MEMORY. FCP_E_TENSOR: the score or its tables are too large for
 * gradients. */
fcp_code fcp_table_reads_make(const fcp_plan *plan, fcp_table_reads **out_reads, fcp_error *err);
void fcp_table_reads_free(fcp_table_reads *reads);
#endif
