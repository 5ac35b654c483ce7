/* make_plan.h: plans of random programs and of files. */
#ifndef MAKE_PLAN_H
#define MAKE_PLAN_H
#include "../../compiler/fcpc.h"
#include "../oracle/random_program.h"

/* The plan of a text, or of a file where there is none; NULL, and a picture of why, when it has none. */
static inline fcp_plan *make_plan(const char *path, const random_program *p, const fcpc_options *options, char **out_picture) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    fcp_code code = p ? fcpc_parse_text("drawn.fcp", p->text, p->size, options, d, &program)
                      : fcpc_parse_file(path, options, d, &program);
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
    *out_picture = fcpc_diagnostics_render(d, false);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code ? NULL : plan;
}
#endif
