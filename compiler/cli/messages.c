/* messages.c: reports errors and warnings: as text on stderr and, with --json, in one object on stdout. Its member
 * "error" is the first error, and "diagnostics" lists that error with all others and the warnings. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "compiler/base/diag.h"
#include "compiler/cli/cmd.h"

bool cmd_colour(FILE *stream) {
    const char *none = getenv("NO_COLOR"), *term = getenv("TERM");
    return isatty(fileno(stream)) && !(none && *none) && !(term && strcmp(term, "dumb") == 0);
}

uint32_t cmd_width(void) {
    struct winsize size;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

fcp_code cmd_flush(fcp_error *err) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return FCP_OK;
    return fcp_fail(err, FCP_E_WRITE, "standard output: cannot be written: %s", strerror(errno));
}

void cmd_emit(void *context, const char *bytes, size_t size) { fwrite(bytes, 1, size, context); }

const char *cmd_hex(const uint8_t digest[FCP_DIGEST_BYTES], char out[2 * FCP_DIGEST_BYTES + 1]) {
    for (int i = 0; i < FCP_DIGEST_BYTES; i++) snprintf(out + 2 * (size_t)i, 3, "%02x", digest[i]);
    return out;
}

fcp_code cmd_text_print(text *t, FILE *to, fcp_code code, fcp_error *err) {
    if (!code && t->failed) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code && t->size) fwrite(t->at, 1, t->size, to);
    text_free(t);
    return code || to == stderr ? code : cmd_flush(err);
}

/* --- text --------------------------------------------------------------------------------------------------------- */

/* Copies the first error among diagnostics to *err. False: there is none. */
static bool first_error(const fcpc_diagnostics *d, fcp_error *err) {
    for (size_t i = 0; d && i < fcpc_diagnostics_count(d); i++) {
        fcpc_diagnostic one;
        fcpc_diagnostics_get(d, i, &one);
        if (one.warning) continue;
        fcp_fail_in(err, one.code, one.file, one.line, one.column, "%s", one.message);
        return true;
    }
    return false;
}

void cmd_first_error(const fcpc_diagnostics *d, fcp_code code, fcp_error *err) {
    fcp_fail(err, code, "%s", fcp_code_text(code));
    first_error(d, err);
}

void cmd_render(cmd_input *input) {
    const fcpc_diagnostics *d = input->diagnostics;
    const size_t count = d ? fcpc_diagnostics_count(d) : 0;
    char *picture = count > input->told ? diag_render(d, input->told, cmd_colour(stderr)) : NULL;
    if (picture) fputs(picture, stderr);
    free(picture);
    input->told = count;
}

static const char *message_of(const fcp_error *err) {
    return err->message[0] ? err->message : fcp_code_text(err->code);
}

void cmd_report(const cmd_line *line, cmd_input *input, const fcp_error *err) {
    fcp_error first = {0};
    fflush(stdout);
    if (first_error(input->diagnostics, &first) && first.code == err->code) {
        cmd_render(input);
    } else {
        bool colour = cmd_colour(stderr);
        if (!err->file[0]) fprintf(stderr, "fcpc: ");
        else if (err->line) fprintf(stderr, "%s:%u:%u: ", err->file, err->line, err->column);
        else fprintf(stderr, "%s: ", err->file);
        fprintf(stderr, "%serror[%s]:%s %s\n", colour ? "\033[1;31m" : "", fcp_code_name(err->code),
                colour ? "\033[0m" : "", message_of(err));
    }
    if (!line->json || input->json_told) return;
    json j = {0};
    json_object(&j, NULL);
    cmd_json_diagnostics(&j, input->diagnostics, err);
    json_end(&j);
    cmd_json_print(&j, NULL);
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* Adds an error or a warning. A warning has no code. */
static void add_object(json *j, const char *name, const fcpc_diagnostic *one) {
    json_object(j, name);
    json_string(j, "severity", one->warning ? "warning" : "error");
    json_string(j, "code", one->warning ? NULL : fcp_code_name(one->code));
    json_string(j, "message", one->message);
    json_string(j, "file", one->file);
    json_u64(j, "line", one->line);
    json_u64(j, "column", one->column);
    json_end(j);
}

void cmd_json_diagnostics(json *j, const fcpc_diagnostics *d, const fcp_error *err) {
    size_t count = d ? fcpc_diagnostics_count(d) : 0;
    bool listed = false;
    fcpc_diagnostic one, last = {0};
    if (err) {
        last = (fcpc_diagnostic){.code = err->code, .message = message_of(err), .file = err->file, .line = err->line,
                                 .column = err->column};
        add_object(j, "error", &last);
    }
    json_array(j, "diagnostics");
    for (size_t i = 0; i < count; i++) {
        fcpc_diagnostics_get(d, i, &one);
        add_object(j, NULL, &one);
        listed |= err && !one.warning && one.code == err->code; /* then *err is a copy of this one */
    }
    if (err && !listed) add_object(j, NULL, &last);
    json_end(j);
    json_array(j, "warnings");
    for (size_t i = 0; i < count; i++) {
        fcpc_diagnostics_get(d, i, &one);
        if (one.warning) add_object(j, NULL, &one);
    }
    json_end(j);
}

fcp_code cmd_json_finish(json *j, const fcpc_diagnostics *d, fcp_code code, fcp_error *err) {
    if (code) {
        json_free(j);
        return code;
    }
    cmd_json_diagnostics(j, d, NULL);
    json_end(j);
    return cmd_json_print(j, err);
}

fcp_code cmd_json_print(json *j, fcp_error *err) {
    const char *object = json_text(j);
    bool made = object != NULL;
    if (made) puts(object);
    json_free(j);
    return made ? cmd_flush(err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
}
