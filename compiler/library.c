/* library.c: the calls of fcpc.h that plan batches. They check the caller's structures, which may be those of an older
 * or newer version, and make a diagnostics object if the caller passes none.
 */
#include "compiler/compile.h"
#include "runtime/base/sized.h"

typedef fcp_code planner(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out);

static fcp_code plan_checked(planner *plan, const fcpc_program *program, const fcpc_batch *batch,
                             const volatile int *stop, fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out) {
    fcpc_diagnostics *unheard = d ? NULL : fcpc_diagnostics_new();
    if (!d && !unheard) return FCP_E_NO_MEMORY;
    fcpc_batch own;
    fcp_error err;
    fcp_code code = fcp_sized_read(&own, sizeof own, batch, "fcpc_batch", &err);
    if (code) diag_error(d ? d : unheard, code, SPAN_NONE, "%s", err.message);
    else code = plan(program, &own, stop, d ? d : unheard, NULL, out_times, out);
    fcpc_diagnostics_free(unheard);
    return code;
}

fcp_code fcpc_plan_batch(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    return plan_checked(compile_batch, program, batch, stop, d, out_times, out_plan);
}

fcp_code fcpc_plan_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                          fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plans) {
    return plan_checked(compile_layers, program, batch, stop, d, out_times, out_plans);
}

fcp_code fcpc_plan(const fcpc_program *program, const uint64_t *lengths, size_t count, const volatile int *stop,
                   fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = count};
    return fcpc_plan_batch(program, &batch, stop, d, out_times, out_plan);
}
