/* compile.h: plans a batch as fcpc_plan_batch does, and lets the caller see what the passes have computed. */
#ifndef FCPC_COMPILE_H
#define FCPC_COMPILE_H
#include "compiler/passes/pass_list.h"

typedef struct compile_watch {
    /* Called once, after the last pass that ran, whether it failed or not: what passes made is still there, and gone
     * when the call returns. It may be NULL. */
    void (*see)(void *context, const planning *x);
    void *context;
    /* planning.soon: x->d has got a warning that the mask will take long; or NULL, and then there is none */
    void (*soon)(void *context, const planning *x);
    const struct strategy *strategy;  /* for tests: in place of the program's (place/place.h); or NULL */
    const struct other_masks *others; /* masks that get the same homes (passes/other_masks.h); or NULL */
    /* of strategy = auto (auto/report.h), else left as it is; the caller frees it. NULL: nobody asks */
    struct auto_report *tried;
    /* of compile_layers: room for the times of each mask; or NULL */
    fcpc_times *each;
} compile_watch;

/* Plans a batch. d may not be NULL, watch and out_times may. */
fcp_code compile_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan);
/* Plans each mask of `layers` (shared_homes.c), so that all plans have the same homes. watch: it sees the planning from
 * which the others get their homes. */
fcp_code compile_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                        const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plans);
/* Runs only the passes up to and including `last`. If `last` is
 * - problem_check_time: finds out how long the mask will take. Fails if that is too long, and calls watch->soon if it
 *   is long.
 * - problem_tiles: sets *out_pairs to the number of pairs that the mask allows.
 * What the mask has answered is put into *kept, so that later plannings of the batch need not ask again. watch, kept
 * and out_pairs may be NULL. */
fcp_code compile_first(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, struct problem_kept *kept, pass_function *last,
                       uint64_t *out_pairs);
#endif
