/* host.h: the host backend's own structures: a worker and its scratch memory. Only host.c and attend.c include it. */
#ifndef FCP_HOST_HOST_H
#define FCP_HOST_HOST_H
#include "runtime/host/backend.h"
#include "runtime/host/cell_bits.h"
#include "runtime/host/score_values.h"
#include "runtime/host/table_gradients.h"
#include "runtime/host/visit_products.h"

/* The scratch memory of one thread. A worker computes one strip (up to 256 rows of a Q block) against one job (up to
 * 512 keys) at a time, for one head (visit_products.h). It converts the numbers of both to dense float32 here. */
typedef struct fcp_host_worker {
    const fcp_device *device;
    fcp_work work;
    fcp_maskcells *mask;
    fcp_host_score score;
    fcp_host_tables tables;
    mc_env env; /* what mask and score read of the sequence under way; it points to these: */
    mc_array *arrays;
    mc_bands *bands;
    void *memory;    /* of what follows */
    float *q, *dq;   /* [FCP_STRIP][head_dim] */
    float *o;        /* [FCP_STRIP][value_dim]; in the backward pass it holds dO */
    float *k, *v;    /* [FCP_JOB][head_dim] and [FCP_JOB][value_dim] */
    float *s, *dp;   /* [FCP_STRIP][FCP_JOB] */
    float *m, *l, *lse, *lse_low, *delta; /* [FCP_STRIP] */
    float *row;      /* [value_dim] */
} fcp_host_worker;

typedef struct fcp_host {
    fcp_device base;
    fcp_table_reads *reads; /* of the plan's score; NULL: no pass has had gradients of tables yet */
    fcp_host_worker workers[];
} fcp_host;

/* A visit, for the query heads of KV heads [head, head + heads) of its range. FCP_E_NO_MEMORY: for the work list. */
fcp_code fcp_host_forward(fcp_host_worker *w, const fcp_arena *a, const fcp_visit *visit, uint32_t head,
                          uint32_t heads);
fcp_code fcp_host_backward(fcp_host_worker *w, const fcp_arena *a, const fcp_visit *visit, uint32_t head,
                           uint32_t heads);
/* Makes O and LSE of a block, in O slot `into`, of the state in a slot. */
void fcp_host_end(fcp_host_worker *w, const fcp_arena *a, uint32_t block, uint32_t state, uint32_t into);
#endif
