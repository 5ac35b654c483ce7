/* workload.h: batches of sequence lengths for benchmarks. */
#ifndef FCPC_WORKLOAD_H
#define FCPC_WORKLOAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The lengths of NAME.lengths ("wlbllm-256x32k") from $FCPC_WORKLOADS or ../shared/workloads; where that file is not
 * there, a drawn batch of `tokens` tokens with the same kind of tail (*out_drawn). malloc'd, the caller frees; NULL: no
 * memory. */
uint64_t *workload_lengths(const char *name, uint64_t tokens, size_t *out_count, bool *out_drawn);
#endif
