/* plan_of.h: makes the program of a text, and the plan of a text or of a file. If that fails, the test fails and prints
 * the diagnostics. */
#ifndef PLAN_OF_H
#define PLAN_OF_H
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "tests/support/plain.h"

/* The program of a text, to which errors refer as `name`. */
static inline fcpc_program *program_named(const char *name, const char *source) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_code code = fcpc_parse_text(name, source, strlen(source), NULL, d, &program);
    char *said = fcpc_diagnostics_render(d, false);
    cr_assert(code == FCP_OK, "%s\n%s", source, said);
    free(said);
    fcpc_diagnostics_free(d);
    return program;
}

/* Plans a text, to which errors refer as `path`; or the file `path`, if `source` is NULL. *out_said has all errors and
 * warnings; free() it. *out_plan is NULL if there is no plan. */
static inline fcp_code plan_try(const char *path, const char *source, const char *const *defines, size_t count,
                                fcp_plan **out_plan, char **out_said) {
    fcpc_options options = {.size = sizeof(fcpc_options),
                            .defines = (const char **)(uintptr_t)defines,
                            .define_count = count};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    *out_plan = NULL;
    fcp_code code = source ? fcpc_parse_text(path, source, strlen(source), &options, d, &program)
                         : fcpc_parse_file(path, &options, d, &program);
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, out_plan);
    *out_said = fcpc_diagnostics_render(d, false);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

/* The same, where there must be a plan. */
static inline fcp_plan *plan_with(const char *path, const char *source, const char *const *defines, size_t count) {
    fcp_plan *plan;
    char *said;
    fcp_code code = plan_try(path, source, defines, count, &plan, &said);
    cr_assert(code == FCP_OK, "%s\n%s", source ? source : path, said);
    free(said);
    return plan;
}
static inline fcp_plan *plan_named(const char *name, const char *source) { return plan_with(name, source, NULL, 0); }
static inline fcp_plan *plan_of(const char *source) { return plan_named("test.fcp", source); }
#endif
