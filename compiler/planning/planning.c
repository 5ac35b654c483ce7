/* planning.c: begins and ends a planning: takes its arenas from the program's workspace, and gives them back.
 *
 * Gives: empty arenas. They keep the memory of an earlier batch of the program, if there was one.
 */
#include "compiler/planning/planning.h"
#include "runtime/plan/plan_index.h"

#include <stdlib.h>

#include "compiler/planning/workspace.h"

void planning_begin(planning *x, const struct fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                    diags *d) {
    *x = (planning){.program = program, .batch = batch, .stop = stop, .d = d, .shift = program_attach(program, d),
                    .block = program_block(program), .coalesce = program->coalesce,
                    .times.parse = program->parse_seconds};
    x->memory = workspace_take(program->workspace, WORKSPACE_PLAN);
    x->work = workspace_take(program->workspace, WORKSPACE_WORK);
    x->scratch = workspace_take(program->workspace, WORKSPACE_SCRATCH);
    if (!(x->aside = calloc(1, sizeof *x->aside))) return;
    x->aside->work = workspace_take(program->workspace, WORKSPACE_ASIDE_WORK);
    x->aside->scratch = workspace_take(program->workspace, WORKSPACE_ASIDE_SCRATCH);
}

void planning_rest(planning *x) {
    workspace_give(x->program->workspace, WORKSPACE_SCRATCH, &x->scratch);
    if (x->aside) workspace_give(x->program->workspace, WORKSPACE_ASIDE_SCRATCH, &x->aside->scratch);
}

void planning_end(planning *x) {
    planning_rest(x);
    workspace_give(x->program->workspace, WORKSPACE_PLAN, &x->memory);
    workspace_give(x->program->workspace, WORKSPACE_WORK, &x->work);
    if (x->aside) workspace_give(x->program->workspace, WORKSPACE_ASIDE_WORK, &x->aside->work);
    free(x->aside);
}

fcp_code planning_own(planning *x) {
    fcp_error err = {0};
    if (!workspace_own(x->program->workspace, &x->memory, x->plan)) return FCP_E_NO_MEMORY;
    return fcp_plan_index(x->plan, &err);
}
