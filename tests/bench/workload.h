/* workload.h: gives batches of sequence lengths for benchmarks. */
#ifndef FCPC_WORKLOAD_H
#define FCPC_WORKLOAD_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BENCH_GPUS = 8 /* of a node */, BENCH_TOKENS = 32768 /* of a rank */ };

/* Returns the lengths of NAME.lengths ("wlbllm-256x32k"), a file in $FCPC_WORKLOADS or ../shared/workloads. If it is
 * not there, draws a batch of `tokens` tokens with the same kind of tail (*out_drawn). The caller frees the array.
 * NULL: no memory. */
uint64_t *workload_lengths(const char *name, uint64_t tokens, size_t *out_count, bool *out_drawn);
/* A batch of `tokens` tokens: sequences of the list, each as likely as any other and as often as it comes; the last one
 * is cut. The same seed gives the same batch everywhere. malloc'd, the caller frees; NULL: no memory. */
uint64_t *workload_sample(const uint64_t *list, size_t list_count, uint64_t tokens, uint64_t seed, size_t *out_count);
#endif
