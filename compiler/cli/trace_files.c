/* trace_files.c: makes the files of --trace, which show what each rank does when, as measured (`fcpc run`) or predicted
 * (`fcpc sim`). */
#include "compiler/cli/cmd.h"
#include "compiler/trace/trace.h"

fcp_code cmd_check_drawing(const cmd_line *line, fcp_error *err) {
    if (!line->value[OPT_RANKS] || line->value[OPT_TRACE] || line->value[OPT_HTML]) return FCP_OK;
    return fcp_fail(err, FCP_E_USAGE, "--ranks chooses what --trace or --html draws, and there is neither");
}

fcp_code cmd_check_ranks(const cmd_line *line, const fcp_plan *plan, fcp_error *err) {
    arena memory = {0};
    trace_ranks ranks;
    const char *typed = line->value[OPT_RANKS];
    fcp_code code = typed ? trace_ranks_read(plan, typed, NULL, &memory, &ranks, err) : FCP_OK;
    arena_free(&memory);
    return code;
}

fcp_code cmd_trace_measured(const cmd_line *line, const fcp_session *session, text *out, fcp_error *err) {
    arena memory = {0};
    timeline t;
    fcp_code code = timeline_measure(session, line->value[OPT_RANKS], &memory, &t, err);
    if (!code) code = trace_json(&t, out, err);
    arena_free(&memory);
    return code;
}

fcp_code cmd_trace_predicted(const cmd_line *line, const fcp_plan *plan, const sim_profile *profile,
                             const sim_options *how, const sim_result *result, text *out, fcp_error *err) {
    arena memory = {0};
    timeline t;
    fcp_code code = timeline_predict(plan, profile, how, result, line->value[OPT_RANKS], &memory, &t, err);
    if (!code) code = trace_json(&t, out, err);
    arena_free(&memory);
    return code;
}
