/* fixed.h: predicts the time of settings that a user would write down himself, to compare with strategy = auto. */
#ifndef FCPC_BENCH_FIXED_H
#define FCPC_BENCH_FIXED_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "compiler/sema/program.h"

enum { FIXED = 24 };

/* A strategy as a program writes it, and the tokens of a block; 0: it does not look at the size of blocks. */
typedef struct fixed_setting {
    const char *strategy;
    uint32_t block;
} fixed_setting;
extern const fixed_setting fixed_settings[FIXED];

/* What became of a setting in one batch. */
typedef enum fixed_end {
    FIXED_PREDICTED,
    FIXED_BOUND,   /* its bounds take longer than the best one before it */
    FIXED_REFUSED, /* it cannot be planned: heads do not divide, or memory is too small */
    FIXED_LONG     /* it takes seconds to minutes to plan, and is not tried */
} fixed_end;

typedef struct fixed_result {
    uint64_t best;        /* picoseconds, of all passes; UINT64_MAX: no setting can be planned */
    uint32_t which;       /* of fixed_settings */
    uint64_t time[FIXED]; /* of those that were predicted; else 0 */
    fixed_end end[FIXED];
} fixed_result;

/* Predicts a batch with each setting. `head` is the program up to its strategy: "model { ... } cluster { ... } plan {
 * mask = causal; ". Errors are printed on stderr. Returns false after an error that is not the setting's.
 * Cost: a planning without proof and a prediction for each setting that its bounds do not rule out. */
bool fixed_try(const char *head, const uint64_t *lengths, size_t count, fixed_result *out);
#endif
