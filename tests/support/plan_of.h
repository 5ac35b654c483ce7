/* plan_of.h: the plan of a program's text. A text without a plan fails the test, which shows what was said about it.
 * Include Criterion, or plain.h, before this. */
#ifndef PLAN_OF_H
#define PLAN_OF_H
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "runtime/plan/plan.h"

/* `name` stands for the text in messages and pictures. */
static inline fcp_plan *plan_named(const char *name, const char *source) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    fcp_code code = fcpc_parse_text(name, source, strlen(source), NULL, d, &program);
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
    char *said = fcpc_diagnostics_render(d, false);
    cr_assert(code == FCP_OK, "%s\n%s", source, said);
    free(said);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return plan;
}

static inline fcp_plan *plan_of(const char *source) { return plan_named("test.fcp", source); }
#endif
