/* compile.h: planning a batch, as fcpc_plan_batch does it, with a look at what the passes made. */
#ifndef FCPC_COMPILE_H
#define FCPC_COMPILE_H
#include "compiler/planning.h"

/* see is called once, after the last pass that ran, whether it failed or not: what passes made is still there, and gone
 * when the call returns. It may be NULL. */
typedef struct compile_watch {
    void (*see)(void *context, const planning *x);
    void *context;
    /* for tests: plans by this one, in place of the program's (place/strategies.h); or NULL */
    const struct strategy *strategy;
    /* of strategy = auto (auto/report.h), else left as it is; the caller frees it. NULL: nobody asks */
    struct auto_report *tried;
} compile_watch;

/* fcpc_plan_batch with a watcher. d may not be NULL, watch and out_times may. */
fcp_code compile_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan);
/* The pairs that the program's mask allows in the batch. What is wrong is reported as in planning. */
fcp_code compile_count(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, uint64_t *out_pairs);
#endif
