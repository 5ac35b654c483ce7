/* compile.h: plans a batch as fcpc_plan_batch does, and lets the caller look at what the passes made. */
#ifndef FCPC_COMPILE_H
#define FCPC_COMPILE_H
#include "compiler/planning/planning.h"

typedef struct compile_watch {
    /* Called once, after the last pass that ran, whether it failed or not: what passes made is still there, and gone
     * when the call returns. It may be NULL. */
    void (*see)(void *context, const planning *x);
    void *context;
    /* planning.soon: x->d has got a warning that the mask will take long; or NULL, and then there is none */
    void (*soon)(void *context, const planning *x);
    const struct strategy *strategy; /* for tests: plans by this one, in place of the program's (place/place.h); or NULL */
    const struct other_masks *others; /* masks that get the same homes (passes/other_masks.h); or NULL */
    /* of strategy = auto (auto/report.h), else left as it is; the caller frees it. NULL: nobody asks */
    struct auto_report *tried;
    /* of compile_layers: room for the times of each mask; or NULL */
    fcpc_times *each;
} compile_watch;

/* Plans a batch. d may not be NULL, watch and out_times may. */
fcp_code compile_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan);
/* Plans each mask of `layers` (shared_homes.c), so that all plans have the same homes. watch: of the plan whose homes the
 * others get. */
fcp_code compile_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                        const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plans);
/* Asks what the mask will cost: refuses what takes too long, and calls watch->soon. compile_batch does so by itself. */
fcp_code compile_look_ahead(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                            fcpc_diagnostics *d, const compile_watch *watch);
/* The pairs that the program's mask allows in the batch. What is wrong is reported as in planning. */
fcp_code compile_count(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, uint64_t *out_pairs);
#endif
