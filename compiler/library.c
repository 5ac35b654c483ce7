/* library.c: the calls of fcpc.h that read programs and plan batches.
 *
 * Requires: nothing of a program's text. To plan, a checked program; the batch may be of another version of fcpc.h, and
 *     the caller may pass no diagnostics.
 * Gives: what front_parse, compile_batch and compile_layers give.
 * Cost: theirs.
 */
#include "compiler/front.h"
#include "compiler/shared_homes.h"
#include "compiler/planning/workspace.h"
#include "runtime/base/read_file.h"
#include "runtime/base/sized.h"

fcp_code fcpc_parse_file(const char *path, const fcpc_options *options, fcpc_diagnostics *d,
                         fcpc_program **out_program) {
    text bytes = {0};
    char room[128];
    fcpc_options asked;
    fcp_error ignored; /* what is wrong with the options is told when the text is parsed */
    const bool known = fcp_sized_read(&asked, sizeof asked, options, "fcpc_options", &ignored) == FCP_OK;
    int failure = text_read(&bytes, path, known && asked.regular_files, SOURCE_MAX);
    fcp_code code = FCP_OK;
    if (failure || bytes.failed) {
        code = failure ? FCP_E_READ : FCP_E_NO_MEMORY;
        if (d && failure)
            diag_error(d, code, SPAN_NONE, "cannot read '%s': %s", path, fcp_read_reason(failure, room));
        else if (d) diag_error(d, code, SPAN_NONE, "out of memory reading '%s'", path);
    } else code = fcpc_parse_text(path, bytes.at ? bytes.at : "", bytes.size, options, d, out_program);
    text_free(&bytes);
    return code;
}

void fcpc_program_free(fcpc_program *program) {
    if (!program) return;
    for (uint32_t i = 1; i < program->layer_count; i++) fcpc_program_free(program->layers[i].program);
    workspace_release(program->workspace);
    program_free(program);
}

typedef fcp_code planner(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                         fcpc_diagnostics *d, const compile_watch *watch, fcpc_times *out_times, fcp_plan **out);

static fcp_code call(planner *plan, const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                     fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out) {
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
    return call(compile_batch, program, batch, stop, d, out_times, out_plan);
}

fcp_code fcpc_plan_layers(const fcpc_program *program, const fcpc_batch *batch, const volatile int *stop,
                          fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plans) {
    return call(compile_layers, program, batch, stop, d, out_times, out_plans);
}

fcp_code fcpc_plan(const fcpc_program *program, const uint64_t *lengths, size_t count, const volatile int *stop,
                   fcpc_diagnostics *d, fcpc_times *out_times, fcp_plan **out_plan) {
    const fcpc_batch batch = {.size = sizeof batch, .lengths = lengths, .count = count};
    return fcpc_plan_batch(program, &batch, stop, d, out_times, out_plan);
}

uint32_t fcpc_program_layers(const fcpc_program *program, uint32_t number, uint32_t *out_times) {
    const uint32_t count = program->layer_count;
    if (out_times) *out_times = !count ? !number : number < count ? program->layers[number].times : 0;
    return program->layer_count ? program->layer_count : 1;
}
