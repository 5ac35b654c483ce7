/* flex.h: times FlexAttention's create_block_mask, where the machine has PyTorch, to compare a benchmark's row with it.
 * */
#ifndef FCPC_BENCH_FLEX_H
#define FCPC_BENCH_FLEX_H
#include <stdbool.h>
#include <stdint.h>

typedef struct flex flex;

/* Starts $FCP_PYTHON, or python3, with tests/bench/bench_flex.py, and prints which PyTorch that has, or that there is
 * none: then NULL. FCP_FLEX_SECONDS (0.5) is about how long one mask may take. */
flex *flex_open(void);
void flex_close(flex *f);

typedef struct flex_result {
    uint64_t queries, n; /* what it did */
    double seconds, mebibytes;
    int64_t full, partial; /* blocks of 128 x 128; full -1: not known */
} flex_result;

/* A mask of bench_flex.py by name, at the largest multiple of `unit` tokens (0: any) that it does. Parameters, in text,
 * are numbers, or paths of files of int64, one for each token. False when it has no answer. */
bool flex_ask(flex *f, const char *name, uint64_t unit, const char *const *params, int count, flex_result *out);
#endif
