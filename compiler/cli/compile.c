/* compile.c: `fcpc FILE.fcp -o PLAN`: compiles a program to a plan, which is verified, and writes it. */
#include "compiler/cli/cmd.h"
#include "compiler/dump.h"
#include "compiler/show/summary.h"

/* Writes the plan whole or not at all. */
static fcp_code write_plan(const fcp_plan *plan, const char *path, fcp_error *err) {
    cmd_file f = CMD_FILE_NONE;
    cmd_doing("writing");
    fcp_code code = cmd_file_open(&f, path, err);
    int why = code == FCP_OK ? fcp_plan_write(plan, f.file.fd) : 0;
    if (why) code = cmd_cannot_write(path, why, err);
    if (code == FCP_OK) code = cmd_file_commit(&f, err);
    cmd_file_abandon(&f);
    cmd_done();
    return code;
}

fcp_code cmd_compile(const cmd_line *line, cmd_input *input, fcp_error *err) {
    const char *path = line->value[OPT_OUTPUT], *passes = line->value[OPT_DUMP];
    fcp_code code = passes ? dump_select(passes, &input->dump, err) : FCP_OK;
    if (passes && line->json) code = fcp_fail(err, FCP_E_USAGE, "--dump prints text, --json one object: one of them");
    if (code == FCP_OK) code = cmd_open(line, input, err);
    if (code == FCP_OK && input->is_plan)
        code = fcp_fail(err, FCP_E_USAGE, "%.200s is a plan already; fcpc help lists what can be done with it",
                        cmd_name(line));
    if (code == FCP_OK) code = cmd_load(line, input, err);
    if (code == FCP_OK && !input->tried.count && (line->value[OPT_EXPLAIN] || line->value[OPT_PROFILE]))
        code = fcp_fail(err, FCP_E_USAGE, "--%s is for strategy = auto, and the program chose %s itself",
                        line->value[OPT_EXPLAIN] ? "explain" : "profile",
                        fcp_strategy_names[input->plan->problem->strategy]);
    if (code == FCP_OK && path) code = write_plan(input->plan, path, err);
    if (code != FCP_OK) return code;
    if (!line->quiet) {
        text lines = {0};
        summary_text(&lines, input->plan, &input->times, cmd_name(line), path);
        fwrite(lines.at, 1, lines.size, stderr);
        text_free(&lines);
    }
    if (line->value[OPT_EXPLAIN] && !line->json) {
        text tried = {0};
        auto_print(&input->tried, &tried);
        if (tried.failed) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        else fwrite(tried.at, 1, tried.size, stdout);
        text_free(&tried);
        if (code) return code;
        passes = "";
    }
    if (!line->json) return passes ? cmd_flush(err) : FCP_OK;
    json j = {0};
    json_object(&j, NULL);
    summary_json(&j, input->plan, &input->times);
    json_string(&j, "plan", path);
    if (input->tried.count) auto_json(&input->tried, &j, "auto");
    cmd_json_diagnostics(&j, input->diagnostics, NULL);
    json_end(&j);
    return cmd_json_print(&j, err);
}
