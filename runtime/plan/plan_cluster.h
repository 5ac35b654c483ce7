/* plan_cluster.h: the record that describes the cluster for which a plan was made. */
#ifndef FCP_PLAN_PLAN_CLUSTER_H
#define FCP_PLAN_PLAN_CLUSTER_H
#include "runtime/fcp.h"

/* Section CLUSTER: one record. It serves estimates of times; the runtime uses `multiprocessors` alone. Bandwidths
 * are in bytes per second for each GPU. */
typedef struct fcp_cluster {
    char gpu[12];             /* profile name, NUL-padded */
    uint32_t multiprocessors; /* of a GPU: kernels' work lists are cut into enough pieces for so many, and for no
                                  * other number, so that a plan gives the same bits on every device; 0: not cut */
    uint64_t intra, inter;    /* bytes/s */
    uint64_t latency_ns;
    uint64_t flops;                  /* dense, at the model's dtype, per second */
    uint64_t memory_bandwidth;       /* bytes/s */
    uint64_t oversubscription_milli; /* 1000 = none */
} fcp_cluster;
#endif
