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
    struct problem_kept *kept; /* planning.kept, of the program's mask and the batch; or NULL */
    /* of strategy = auto (auto/report.h), else left as it is; the caller frees it. NULL: nobody asks */
    struct auto_report *tried;
    /* of compile_layers: room for the times of each mask; or NULL */
    fcpc_times *each;
} compile_watch;

/* Plans a batch: compile_one with the program's strategy, compile_batch (choose.c) also with strategy = auto. d may not
 * be NULL, watch and out_times may. */
fcp_code compile_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan);
fcp_code compile_one(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                     fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plan);
/* The pairs that the program's mask allows in the batch. What is wrong is reported as in planning. */
fcp_code compile_count(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                       fcpc_diagnostics *d, uint64_t *out_pairs);

/* Parts of compile_one. A planning is begun and ended; the plan is the caller's. */
typedef fcp_code compile_pass(planning *x);
void compile_begin(planning *x, const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                   fcpc_diagnostics *d);
/* Gives back what only passes need: none will run on x, but what they made of it is still read. */
void compile_rest(planning *x);
void compile_end(planning *x);
/* Runs the passes behind `after` (NULL: from the first one on) up to `last` (NULL: all); without `advises`, not those
 * that only warn. */
fcp_code compile_stretch(planning *x, compile_pass *after, compile_pass *last, bool advises);
fcp_code compile_own(planning *x); /* the pass that hands the plan its memory */
#endif
