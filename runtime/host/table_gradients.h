/* table_gradients.h: gradients of the tables that a score reads, on the host.
 *
 * Example: the score s + bias[h, q - k] reads the table `bias` once. In the backward pass each pair (q, k) of head h
 *          adds dS, the derivative of the loss by its score, to the gradient of the element bias[h, q - k]. In general
 *          a score has several such reads, and each adds dS times the score's derivative by what it reads
 *          (runtime/plan/table_reads.h).
 */
#ifndef FCP_HOST_TABLE_GRADIENTS_H
#define FCP_HOST_TABLE_GRADIENTS_H
#include "runtime/host/sums.h"
#include "runtime/plan/table_reads.h"

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

/* The pairs of a job. p is P, and ds is the derivative of the loss by the score; both are 0 where the mask does not
 * allow the pair. Rows are `ld` numbers apart. */
typedef struct fcp_host_pairs {
    const mc_env *env;
    mc_tile tile;
    const float *p, *ds;
    size_t ld;
} fcp_host_pairs;
/* Adds what these pairs, whose logits were kept, add to the gradients. */
void fcp_host_tables_add(fcp_host_tables *tables, const fcp_host_pairs *pairs, fcp_sums *sums);
#endif
