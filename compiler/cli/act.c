/* act.c: does what a command line says: calls the function of its command. */
#include "compiler/cli/cmd.h"
#include "runtime/plan/plan.h"

static fcp_code (*const functions[])(const cmd_line *line, cmd_input *input, fcp_error *err) = {
#define X(id, name, function, synopsis, help) [CMD_##id] = function,
    CMD_COMMANDS(X)
#undef X
};

static fcp_code print_version(const cmd_line *line, fcp_error *err) {
    if (line->json) {
        json j = {0};
        json_object(&j, NULL);
        json_string(&j, "version", FCPC_VERSION);
        json_u64(&j, "plan_version", FCP_PLAN_VERSION);
        json_end(&j);
        return cmd_json_print(&j, err);
    }
    printf("fcpc %s (plan version %d)\n", FCPC_VERSION, FCP_PLAN_VERSION);
    return cmd_flush(err);
}

static fcp_code act(const cmd_line *line, cmd_input *input, fcp_error *err) {
    if (line->help) return cmd_help(line, err);
    if (line->value[OPT_VERSION]) return print_version(line, err);
    fcp_code code = cmd_check_outputs(line, err);
    return code == FCP_OK ? functions[line->command](line, input, err) : code;
}

int cmd_main(int argc, char **argv, cmd_input *input) {
    cmd_line line = {0};
    fcp_error err = {0};
    fcp_code code = cmd_parse(argc, argv, &line, &err);
    if (code == FCP_OK) {
        cmd_progress_init(line.json, line.quiet);
        code = act(&line, input, &err);
        cmd_done();
    }
    if (code != FCP_OK) cmd_report(&line, input, &err);
    cmd_line_free(&line);
    return fcp_code_exit(code);
}
