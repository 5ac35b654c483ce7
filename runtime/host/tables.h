/* tables.h: gradients of the tables that a score reads.
 *
 * Example: the score s + bias[h, q - k]. The derivative of the score by the element that a pair reads is 1, so each
 * pair adds dS to one element: that of its head and distance. In general a score reads tables at several places; each
 * such *read* has a derivative of its own, which is code like the score, and adds dS times its value.
 */
#ifndef FCP_HOST_TABLES_H
#define FCP_HOST_TABLES_H
#include "runtime/host/sums.h"
#include "runtime/plan/plan.h"

/* The reads of a plan's score. */
typedef struct fcp_table_reads fcp_table_reads;
/* FCP_E_NO_MEMORY. FCP_E_TENSOR: the score or its tables are too large for gradients. */
fcp_code fcp_table_reads_make(const fcp_plan *plan, fcp_table_reads **out_reads, fcp_error *err);
void fcp_table_reads_free(fcp_table_reads *reads);

/* What a worker needs for them. */
typedef struct fcp_host_tables {
    const fcp_table_reads *reads;
    int64_t *scratch;
    float *s, *part; /* of a job: the logits, and the derivatives of a read */
    uint32_t *place; /* of a job: which elements a read reads */
} fcp_host_tables;
/* False: out of memory; the object is to be closed all the same. It may be opened several times. */
bool fcp_host_tables_open(fcp_host_tables *tables, const fcp_table_reads *reads);
void fcp_host_tables_close(fcp_host_tables *tables);

/* Makes the arrays of an environment read the tables of a run; NULL: those of the plan. */
void fcp_host_tables_bind(const fcp_plan *plan, const double *table, mc_array *arrays);
/* Keeps the logits of a job, in natural units, before the score is applied to them. */
void fcp_host_tables_keep(fcp_host_tables *tables, uint32_t rows, uint32_t keys, const float *s, size_t ld);

/* The pairs of a job: its first query and key, the head, P, and the derivative of the loss by the score, both of which
 * are 0 where the mask does not allow the pair. Rows are `ld` numbers apart. */
typedef struct fcp_host_pairs {
    const mc_env *env;
    int64_t q, k, head;
    uint32_t rows, keys;
    const float *p, *ds;
    size_t ld;
} fcp_host_pairs;
/* Adds what these pairs, whose logits were kept, add to the gradients. */
void fcp_host_tables_add(fcp_host_tables *tables, const fcp_host_pairs *pairs, fcp_sums *sums);
#endif
