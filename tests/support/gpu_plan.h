/* gpu_plan.h: compiles a program, given as text or as a file, for tests of what is made for GPUs. */
#ifndef GPU_PLAN_H
#define GPU_PLAN_H
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "runtime/plan/plan.h"

/* The plan of a file, or of a text where there is one, with overrides; fails the test where there is none. */
static inline fcp_plan *gpu_plan(const char *path, const char *text, const char *const *defines, size_t count) {
    fcpc_options options = {.size = sizeof(fcpc_options),
                            .defines = (const char **)(uintptr_t)defines,
                            .define_count = count};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    fcp_code code = text ? fcpc_parse_text(path, text, strlen(text), &options, d, &program)
                         : fcpc_parse_file(path, &options, d, &program);
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
    char *picture = fcpc_diagnostics_render(d, false);
    cr_assert(code == FCP_OK, "%s: %s", path, picture);
    free(picture);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return plan;
}
#endif
