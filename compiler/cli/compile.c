/* compile.c: `fcpc FILE.fcp -o PLAN`: a program to a verified plan. */
#include "compiler/cli/cmd.h"
#include "compiler/show/summary.h"

fcp_code cmd_compile(const cmd_line *line, cmd_input *input, fcp_error *err) {
    const cmd_option outputs[] = {OPT_OUTPUT};
    const char *path = line->value[OPT_OUTPUT];
    fcp_code code = cmd_check_outputs(line, outputs, 1, err);
    if (code != FCP_OK) return code;
    if (cmd_is_plan(line->file))
        return fcp_fail(err, FCP_E_USAGE, "%.200s is a plan already; fcpc help lists what can be done with it", line->file);
    code = cmd_load(line, input, err);
    if (code == FCP_OK && path) {
        cmd_doing("writing");
        cmd_polled();
        code = fcp_plan_save(input->plan, path, err);
        cmd_unpolled();
        cmd_done();
    }
    if (code != FCP_OK) return code;
    if (!line->quiet) {
        char lines[SUMMARY_TEXT];
        summary_text(lines, input->plan, &input->times, line->file, path);
        fputs(lines, stderr);
    }
    if (!line->json) return FCP_OK;
    json j = {0};
    json_object(&j, NULL);
    summary_json(&j, input->plan, &input->times);
    json_string(&j, "plan", path);
    cmd_json_warnings(&j, input->diagnostics);
    json_end(&j);
    return cmd_json_print(&j, err);
}
