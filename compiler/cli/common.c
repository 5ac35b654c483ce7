/* common.c: what every command does: load its input, tell errors, write files that appear whole or not at all.
 *
 * Requires: a parsed command line.
 * Gives:    a plan, from a plan file or from a program compiled in memory; errors told once, as text and as JSON.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

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

fcp_code cmd_json_print(json *j, fcp_error *err) {
    const char *object = json_text(j);
    bool made = object != NULL;
    if (made) puts(object);
    json_free(j);
    return made ? cmd_flush(err) : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
}

void cmd_emit(void *context, const char *bytes, size_t size) { fwrite(bytes, 1, size, context); }

/* --- errors ------------------------------------------------------------------------------------------------------- */

/* The first error among diagnostics, as an fcp_error; leaves *err alone when there is none. */
static void first_error(const fcpc_diagnostics *d, fcp_error *err) {
    for (size_t i = 0; d && i < fcpc_diagnostics_count(d); i++) {
        fcpc_diagnostic one;
        fcpc_diagnostics_get(d, i, &one);
        if (one.warning) continue;
        fcp_fail(err, one.code, "%s", one.message);
        snprintf(err->file, sizeof err->file, "%s", one.file);
        err->line = one.line;
        err->column = one.column;
        return;
    }
}

void cmd_first_error(const fcpc_diagnostics *d, fcp_code code, fcp_error *err) {
    fcp_fail(err, code, "%s", fcp_code_text(code));
    first_error(d, err);
}

static void render(const fcpc_diagnostics *d) {
    char *picture = d && fcpc_diagnostics_count(d) ? fcpc_diagnostics_render(d, cmd_colour(stderr)) : NULL;
    if (picture) fputs(picture, stderr);
    free(picture);
}

static bool has_errors(const fcpc_diagnostics *d) {
    fcp_error e = {0};
    first_error(d, &e);
    return e.code != FCP_OK;
}

void cmd_json_error(json *j, const fcp_error *err) {
    json_object(j, "error");
    json_string(j, "code", fcp_code_name(err->code));
    json_string(j, "message", err->message[0] ? err->message : fcp_code_text(err->code));
    json_string(j, "file", err->file);
    json_u64(j, "line", err->line);
    json_u64(j, "column", err->column);
    json_end(j);
}

void cmd_report(const cmd_line *line, const cmd_input *input, const fcp_error *err) {
    const fcpc_diagnostics *d = input->diagnostics;
    fflush(stdout);
    if (has_errors(d)) {
        render(d);
    } else {
        bool colour = cmd_colour(stderr);
        if (!err->file[0]) fprintf(stderr, "fcpc: ");
        else if (err->line) fprintf(stderr, "%s:%u:%u: ", err->file, err->line, err->column);
        else fprintf(stderr, "%s: ", err->file);
        fprintf(stderr, "%serror[%s]:%s %s\n", colour ? "\033[1;31m" : "", fcp_code_name(err->code),
                colour ? "\033[0m" : "", err->message[0] ? err->message : fcp_code_text(err->code));
    }
    if (!line->json || input->json_told) return;
    json j = {0};
    json_object(&j, NULL);
    cmd_json_error(&j, err);
    cmd_json_warnings(&j, d);
    json_end(&j);
    cmd_json_print(&j, NULL);
}

void cmd_json_warnings(json *j, const fcpc_diagnostics *d) {
    json_array(j, "warnings");
    for (size_t i = 0; d && i < fcpc_diagnostics_count(d); i++) {
        fcpc_diagnostic one;
        fcpc_diagnostics_get(d, i, &one);
        if (!one.warning) continue;
        json_object(j, NULL);
        json_string(j, "message", one.message);
        json_string(j, "file", one.file);
        json_u64(j, "line", one.line);
        json_u64(j, "column", one.column);
        json_end(j);
    }
    json_end(j);
}

/* --- input -------------------------------------------------------------------------------------------------------- */

enum { READ_MAX = 32 << 20 }; /* more than a program may have: the parser says so */

fcp_code cmd_read(const char *path, text *out, fcp_error *err) {
    int why = text_read(out, path, READ_MAX);
    if (out->failed) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!why) return FCP_OK;
    fcp_fail(err, FCP_E_READ, "cannot be read: %s", strerror(why));
    snprintf(err->file, sizeof err->file, "%s", path);
    return FCP_E_READ;
}

/* A plan's first byte is no text, and its header holds zero bytes; a program is text. So a plan whose magic was damaged
 * is still told from a program. */
bool cmd_is_plan(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    FILE *f = fopen(path, "rb");
    if (!f) return false;
    char start[512];
    size_t size = fread(start, 1, sizeof start, f);
    fclose(f);
    return size > 0 && ((unsigned char)start[0] == 0x89 || memchr(start, 0, size) != NULL);
}

static fcp_code load_plan(const cmd_line *line, cmd_input *out, fcp_error *err) {
    if (line->define_count || line->value[OPT_LENGTHS])
        return fcp_fail(err, FCP_E_USAGE, "%.200s is a plan: -D and --lengths apply to a program", line->file);
    if (line->field_count && line->command != CMD_RUN)
        return fcp_fail(err, FCP_E_USAGE,
                        "%.200s is a plan, which has the values of its fields: --field applies to a program",
                        line->file);
    double start = cmd_now();
    cmd_doing("loading and verifying");
    fcp_code code = fcp_plan_load(line->file, &out->plan, err);
    cmd_done();
    if (code == FCP_OK) out->times.total = out->times.verify = cmd_now() - start;
    return code;
}

static fcp_code compile_program(const cmd_line *line, cmd_input *out, fcp_error *err) {
    out->compiled = true;
    out->diagnostics = fcpc_diagnostics_new();
    if (!out->diagnostics) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    fcpc_options options = {.defines = line->defines,
                            .define_count = line->define_count,
                            .lengths_file = line->value[OPT_LENGTHS],
                            .fields = line->fields,
                            .field_count = line->field_count,
                            .need_lengths = true};
    fcpc_program *program = NULL;
    fcp_code code = fcpc_parse_file(line->file, &options, out->diagnostics, &program);
    if (code == FCP_OK) {
        cmd_doing("planning");
        cmd_polled();
        code = fcpc_plan(program, NULL, 0, cmd_stop(), out->diagnostics, &out->times, &out->plan);
        cmd_unpolled();
        cmd_done();
    }
    fcpc_program_free(program);
    if (code != FCP_OK) {
        cmd_first_error(out->diagnostics, code, err);
        return err->code;
    }
    render(out->diagnostics);
    return FCP_OK;
}

fcp_code cmd_load(const cmd_line *line, cmd_input *out, fcp_error *err) {
    struct stat st;
    if (stat(line->file, &st) != 0 || S_ISDIR(st.st_mode)) {
        fcp_fail(err, FCP_E_READ, "cannot be read: %s", strerror(S_ISDIR(st.st_mode) ? EISDIR : errno));
        snprintf(err->file, sizeof err->file, "%s", line->file);
        return err->code;
    }
    return cmd_is_plan(line->file) ? load_plan(line, out, err) : compile_program(line, out, err);
}

void cmd_input_free(cmd_input *input) {
    fcp_plan_free(input->plan);
    fcpc_diagnostics_free(input->diagnostics);
    *input = (cmd_input){0};
}

/* --- output ------------------------------------------------------------------------------------------------------- */

static fcp_code cannot_write(const char *path, const char *why, fcp_error *err) {
    fcp_fail(err, FCP_E_WRITE, "cannot be written: %s", why);
    snprintf(err->file, sizeof err->file, "%s", path);
    return FCP_E_WRITE;
}

fcp_code cmd_cannot_write(const char *path, int why, fcp_error *err) { return cannot_write(path, strerror(why), err); }

/* Why the folder that `path` is in cannot take a file; 0 if it can. */
static int folder_error(const char *path) {
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    char *folder = slash ? strndup(path, length ? length : 1) : strdup(".");
    int why = !folder ? ENOMEM : access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    struct stat st;
    if (folder && !why && stat(folder, &st) == 0 && !S_ISDIR(st.st_mode)) why = ENOTDIR;
    free(folder);
    return why;
}

static bool same_file(const char *a, const char *b) {
    struct stat x, y;
    if (strcmp(a, b) == 0) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

fcp_code cmd_check_outputs(const cmd_line *line, const cmd_option *outputs, size_t count, fcp_error *err) {
    for (size_t i = 0; i < count; i++) {
        const char *path = line->value[outputs[i]];
        struct stat st;
        if (!path) continue;
        int why = folder_error(path);
        if (why) return cannot_write(path, strerror(why), err);
        for (size_t o = 0; o < i; o++)
            if (line->value[outputs[o]] && same_file(path, line->value[outputs[o]]))
                return cannot_write(path, "two outputs have the same path", err);
        if (stat(path, &st) != 0) continue;
        if (S_ISDIR(st.st_mode)) return cannot_write(path, strerror(EISDIR), err);
        if (same_file(path, line->file)) return cannot_write(path, "it is the input", err);
    }
    return FCP_OK;
}

fcp_code cmd_file_open(cmd_file *f, const char *path, fcp_error *err) {
    *f = (cmd_file){0};
    cmd_polled(); /* until committed or abandoned, an interruption must not leave the temporary file behind */
    int why = fcp_beside_open(&f->file, path);
    if (!why && !(f->stream = fdopen(f->file.fd, "wb"))) why = errno;
    if (!why) return FCP_OK;
    fcp_beside_abandon(&f->file);
    cmd_unpolled();
    return cmd_cannot_write(path, why, err);
}

fcp_code cmd_file_commit(cmd_file *f, fcp_error *err) {
    fcp_code code = FCP_OK;
    int why = ferror(f->stream) ? EIO : 0;
    f->file.fd = -1; /* the stream's */
    if (fclose(f->stream) != 0 && !why) why = errno;
    f->stream = NULL;
    if (*cmd_stop())
        code = fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    else if (why || (why = fcp_beside_commit(&f->file)))
        code = cmd_cannot_write(f->file.path, why, err);
    cmd_file_abandon(f);
    return code;
}

void cmd_file_abandon(cmd_file *f) {
    if (f->stream) {
        f->file.fd = -1;
        fclose(f->stream);
        f->stream = NULL;
    }
    fcp_beside_abandon(&f->file);
    cmd_unpolled();
}
