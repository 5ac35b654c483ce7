/* shared_homes.h: one plan for each mask of `layers`, all with the same homes. */
#ifndef FCPC_SHARED_HOMES_H
#define FCPC_SHARED_HOMES_H
#include "compiler/compile.h"

/* fcpc_plan_layers with a watcher, of the plan whose homes the others take; and with the times of each. */
fcp_code compile_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop, diags *d,
                        const compile_watch *watch, fcpc_times *out_times, fcp_plan **out_plans);
#endif
