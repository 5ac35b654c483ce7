/* main.c: the program `fcpc`: reads the command line, calls a command, tells its error, returns its exit status. */
#include <stdlib.h>

#include "compiler/cli/cmd.h"

static const struct {
    const char *name;
    fcp_code (*function)(const cmd_line *line, cmd_input *input, fcp_error *err);
} commands[] = {
#define X(id, name, function, synopsis, help) [CMD_##id] = {name, function},
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

int main(int argc, char **argv) {
    cmd_line line = {0};
    cmd_input input = {0};
    fcp_error err = {0};
    fcp_code code = cmd_parse(argc, argv, &line, &err);
    if (code == FCP_OK) {
        cmd_progress_init(line.json, line.quiet);
        if (line.help) code = cmd_help(&line, &err);
        else if (line.value[OPT_VERSION]) code = print_version(&line, &err);
        else code = commands[line.command].function(&line, &input, &err);
        cmd_done();
    }
    if (code != FCP_OK) cmd_report(&line, &input, &err);
    cmd_input_free(&input);
    cmd_line_free(&line);
    return fcp_code_exit(code);
}
