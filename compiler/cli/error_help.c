/* error_help.c: prints what the code of an error means: its entry of runtime/ERRORS.md, which is built in. */
#include <stdio.h>
#include <string.h>

#include "compiler/cli/cmd.h"

extern const char cmd_errors_page[];

bool cmd_error_help(const char *code) {
    char heading[16];
    if (code[0] != 'E' || strlen(code) != 4) return false;
    snprintf(heading, sizeof heading, "\n### %s\n", code);
    const char *at = strstr(cmd_errors_page, heading);
    if (!at) return false;
    printf("%s: ", code);
    at += strlen(heading) + 1; /* and the empty line below it */
    bool fenced = false, blank = false;
    for (size_t size; *at && (fenced || *at != '#'); at += size + (at[size] == '\n')) {
        size = strcspn(at, "\n");
        if (strncmp(at, "```", 3) == 0) {
            fenced = !fenced;
        } else if (size == 0 && !fenced) {
            blank = true; /* printed before the next line, so that none stands at the end */
        } else {
            printf("%s%s%.*s\n", blank ? "\n" : "", fenced ? "    " : "", (int)size, at);
            blank = false;
        }
    }
    return true;
}
