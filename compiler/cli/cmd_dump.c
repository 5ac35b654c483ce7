/* cmd_dump.c: `fcpc dump PLAN`: prints all of a plan as text, one record a line, or as one JSON object. */
#include "compiler/cli/cmd.h"
#include "runtime/plan/dump.h"

fcp_code cmd_dump(const cmd_line *line, cmd_input *input, fcp_error *err) {
    fcp_code code = cmd_load(line, input, err);
    if (code == FCP_OK) code = fcp_plan_dump(input->plan, line->json, cmd_emit, stdout, err);
    if (code == FCP_OK && line->json) putchar('\n');
    return code == FCP_OK ? cmd_flush(err) : code;
}
