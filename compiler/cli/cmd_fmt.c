/* cmd_fmt.c: `fcpc fmt FILE`: prints a program in canonical layout, or replaces the file by it. */
#include <string.h>
#include <sys/stat.h>

#include "compiler/cli/cmd.h"
#include "compiler/syntax/format.h"

/* The first line in which two texts differ, counted from 1. */
static uint32_t first_difference(const text *a, const text *b) {
    uint32_t line = 1;
    for (size_t i = 0; i < a->size && i < b->size && a->at[i] == b->at[i]; i++) line += a->at[i] == '\n';
    return line;
}

/* Replaces the file by the text. It keeps its mode. */
static fcp_code write_back(const char *path, const text *made, fcp_error *err) {
    cmd_file f = CMD_FILE_NONE;
    fcp_code code = cmd_file_open(&f, path, err);
    struct stat st;
    if (code == FCP_OK && stat(path, &st) == 0) (void)!fchmod(f.file.fd, st.st_mode & 07777);
    int why = code == FCP_OK ? fcp_write_all(f.file.fd, made->at, made->size) : 0;
    if (why) code = cmd_cannot_write(path, why, err);
    if (code == FCP_OK) code = cmd_file_commit(&f, err);
    cmd_file_abandon(&f);
    return code;
}

static fcp_code deliver(const cmd_line *line, const cmd_input *input, text *made, fcp_error *err) {
    const text *source = &input->bytes;
    bool same = source->size == made->size && (!made->size || !memcmp(source->at, made->at, made->size));
    if (line->value[OPT_CHECK] && !same)
        return fcp_fail_in(err, FCP_E_FORMAT, cmd_name(line), first_difference(source, made), 1,
                           "is not in canonical layout; this is the first line that differs (fcpc fmt -w lays it out)");
    if (line->value[OPT_WRITE] && !same) {
        fcp_code code = write_back(line->file, made, err);
        if (code != FCP_OK) return code;
    }
    if (line->json) {
        text_add(made, "", 1); /* the NUL that ends the string */
        if (made->failed) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
        json j = {0};
        json_object(&j, NULL);
        json_string(&j, "file", cmd_name(line));
        json_bool(&j, "canonical", same);
        json_string(&j, "text", made->at);
        return cmd_json_finish(&j, input->diagnostics, FCP_OK, err);
    }
    if (!line->value[OPT_CHECK] && !line->value[OPT_WRITE] && made->size) fwrite(made->at, 1, made->size, stdout);
    return cmd_flush(err);
}

fcp_code cmd_fmt(const cmd_line *line, cmd_input *input, fcp_error *err) {
    if (line->value[OPT_CHECK] && line->value[OPT_WRITE])
        return fcp_fail(err, FCP_E_USAGE, "--check and --write exclude each other");
    if (line->value[OPT_WRITE] && !strcmp(line->file, "-"))
        return fcp_fail(err, FCP_E_USAGE, "--write needs a file, and this is standard input");
    text made = {0};
    fcp_code code = cmd_open(line, input, err);
    if (code == FCP_OK && input->is_plan)
        code = fcp_fail(err, FCP_E_USAGE, "%.200s is a plan; fmt lays out programs", cmd_name(line));
    if (code == FCP_OK) code = cmd_source(line, input, err);
    input->diagnostics = code == FCP_OK ? fcpc_diagnostics_new() : NULL;
    if (code == FCP_OK && !input->diagnostics) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (code == FCP_OK) {
        code = format_source(cmd_name(line), input->bytes.size ? input->bytes.at : "", input->bytes.size,
                             input->diagnostics, &made);
        if (code != FCP_OK) cmd_first_error(input->diagnostics, code, err);
    }
    if (code == FCP_OK) code = deliver(line, input, &made, err);
    text_free(&made);
    return code;
}
