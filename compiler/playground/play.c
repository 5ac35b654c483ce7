/* play.c: the compiler as a page calls it: play() does what a command line says, and tells about it as JSON.
 *
 * The page's worker puts a program into a file in memory, calls for example play("sim\nprogram.fcp\n--html\nout.html"),
 * and reads the files that were written. So the page does nothing that `fcpc` does not, in the same words.
 *
 * Requires: one call at a time; a folder /tmp.
 * Gives:    the exit status, and each error and warning with its place and its hints. What the command prints is in
 *           /tmp/stdout and /tmp/stderr.
 */
#include <emscripten.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/base/diag.h"
#include "compiler/cli/cmd.h"
#include "compiler/page/page.h"
#include "compiler/playground/play.h"

static cmd_input input; /* of the call: progress is told from it */
static json reply;      /* of the last call */

const cmd_input *play_input(void) { return &input; }

/* A place: the name of its file and the bytes [begin, end) of that. The page's program is the only file of its name. */
static void add_place(json *j, const diags *d, span at) {
    const char *file;
    uint32_t line, column;
    diag_place(d, at, &file, &line, &column);
    json_string(j, "file", file);
    json_u64(j, "line", line);
    json_u64(j, "column", column);
    json_u64(j, "begin", at.source == UINT32_MAX ? 0 : at.begin);
    json_u64(j, "end", at.source == UINT32_MAX ? 0 : at.end);
}

static void add_diagnostics(json *j, const diags *d) {
    const size_t count = d ? fcpc_diagnostics_count(d) : 0;
    json_array(j, "diagnostics");
    for (size_t i = 0; i < count; i++) {
        fcpc_diagnostic one;
        span at;
        const char *words;
        fcpc_diagnostics_get(d, i, &one);
        json_object(j, NULL);
        json_string(j, "severity", one.warning ? "warning" : "error");
        json_string(j, "code", one.warning ? NULL : fcp_code_name(one.code));
        json_string(j, "message", one.message);
        add_place(j, d, diag_at(d, i));
        json_array(j, "notes");
        for (size_t n = 0; diag_note(d, i, n, &at, &words); n++) {
            json_object(j, NULL);
            json_string(j, "message", words);
            add_place(j, d, at);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_end(j);
}

/* Cuts the text at its line ends; the last argument is followed by NULL. NULL: out of memory. */
static char **cut(char *words, int *out_count) {
    int count = 2;
    for (const char *s = words; *s; s++) count += *s == '\n';
    char **args = calloc((size_t)count + 1, sizeof *args), *rest = NULL;
    if (!args) return NULL;
    args[0] = "fcpc";
    *out_count = 1;
    for (char *one = strtok_r(words, "\n", &rest); one; one = strtok_r(NULL, "\n", &rest)) args[(*out_count)++] = one;
    return args;
}

/* What `fcpc show FILE --html` draws of a plan, as JSON, but for the explanations of pairs, which the page asks for one
 * by one. It belongs to this file until the next call; NULL: out of memory, or there is no such plan. */
EMSCRIPTEN_KEEPALIVE const char *play_data(const char *file) {
    static page drawn;
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    page_free(&drawn);
    drawn.asks = true;
    fcp_code code = fcp_plan_load(file, &plan, &err);
    if (!code) code = page_add_predicted(&drawn, plan, NULL, NULL, &err);
    fcp_plan_free(plan);
    return code ? NULL : page_data_end(&drawn, NULL);
}

/* Does the command whose arguments are these lines. The JSON object belongs to this file until the next call; NULL: out
 * of memory. */
EMSCRIPTEN_KEEPALIVE const char *play(const char *lines) {
    char *words = strdup(lines), **args = NULL;
    int count = 0, status = fcp_code_exit(FCP_E_NO_MEMORY);
    json_free(&reply);
    if (words) args = cut(words, &count);
    if (args && freopen("/tmp/stdout", "w", stdout) && freopen("/tmp/stderr", "w", stderr))
        status = cmd_main(count, args, &input);
    fflush(stdout);
    fflush(stderr);
    json_object(&reply, NULL);
    json_i64(&reply, "status", status);
    add_diagnostics(&reply, input.diagnostics);
    json_end(&reply);
    cmd_input_free(&input);
    input = (cmd_input){0};
    free(args);
    free(words);
    return json_text(&reply);
}
