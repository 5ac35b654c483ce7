/* host.h: inside the host backend. */
#ifndef FCP_HOST_HOST_H
#define FCP_HOST_HOST_H
#include "runtime/host/backend.h"
#include "runtime/host/mask.h"
#include "runtime/host/score.h"
#include "runtime/host/work.h"

/* What one worker computes in: a strip's rows and a job's keys for one head, float32, dense. */
typedef struct fcp_host_worker {
    fcp_work work;
    fcp_maskcells *mask;
    fcp_host_score score;
    mc_env env; /* of the sequence under way, with these */
    mc_array *arrays;
    mc_bands *bands;
    float *memory;
    float *q, *o;    /* [FCP_STRIP][head_dim]; in the backward pass o is dO */
    float *dq;       /* [FCP_STRIP][head_dim] */
    float *k, *v;    /* [FCP_JOB][head_dim] */
    float *s, *dp;   /* [FCP_STRIP][FCP_JOB] */
    float *m, *l;    /* [FCP_STRIP]; in the backward pass LSE in log2 units, and delta */
    float *row;      /* [head_dim] */
    double *lse;     /* [FCP_STRIP] */
} fcp_host_worker;

typedef struct fcp_host {
    fcp_device base;
    fcp_host_worker workers[];
} fcp_host;

fcp_code fcp_host_forward(fcp_host_worker *w, const fcp_arena *a, const fcp_visit *visit, uint32_t head,
                          uint32_t heads);
fcp_code fcp_host_backward(fcp_host_worker *w, const fcp_arena *a, const fcp_visit *visit, uint32_t head,
                           uint32_t heads);
#endif
