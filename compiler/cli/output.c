/* output.c: makes sure that no file that a command reads is overwritten, and writes files whole or not at all.
 *
 * Two paths may lead to one file, by links or by another spelling. So files are compared by device and inode. A file
 * that does not exist yet is identified by its folder and its name.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"
#include "runtime/base/read_file.h"

/* The file that a path leads to. If there is none, device and inode are those of the folder, and `name` is the name
 * that the file would get in it. */
typedef struct target {
    bool there;
    mode_t mode;
    dev_t device;
    ino_t inode;
    char name[NAME_MAX + 1];
} target;

/* Cuts a path into its folder ("." for the current one) and the name in it. Returns 0, or an errno value. */
static int cut_path(const char *path, char folder[PATH_MAX], const char **out_name) {
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) + 1 : 0;
    *out_name = path + size;
    if (size >= PATH_MAX) return ENAMETOOLONG;
    memcpy(folder, size ? path : ".", size ? size : 1);
    folder[size ? size : 1] = 0;
    return 0;
}

/* Finds out what a path leads to. 0, or an errno value. */
static int find_target(const char *path, target *out) {
    struct stat st;
    char *end, folder[PATH_MAX];
    const char *name;
    int why = fcp_beside_target(path, &end);
    if (why) return why;
    *out = (target){.there = stat(path, &st) == 0};
    if (end) {
        why = cut_path(end, folder, &name);
        if (!why && !out->there && stat(folder, &st) != 0) why = errno;
        if (!why && !out->there && strlen(name) > NAME_MAX) why = ENAMETOOLONG;
        if (!why && !out->there && !*name) why = EISDIR; /* the path ends in a slash */
        if (!why && !out->there) strcpy(out->name, name);
        free(end);
    }
    out->mode = st.st_mode;
    out->device = st.st_dev;
    out->inode = st.st_ino;
    return why;
}

/* Returns whether writing to one would change the other. Writing to a character device, such as a terminal or
 * /dev/null, never does. */
static bool is_one_file(const target *a, const target *b) {
    return a->there == b->there && a->device == b->device && a->inode == b->inode && !strcmp(a->name, b->name) &&
           !(a->there && S_ISCHR(a->mode));
}

static fcp_code cannot_write(const char *path, const char *why, fcp_error *err) {
    return fcp_fail_in(err, FCP_E_WRITE, path, 0, 0, "cannot be written: %s", why);
}

fcp_code cmd_cannot_write(const char *path, int why, fcp_error *err) {
    char room[128];
    return cannot_write(path, fcp_read_reason(why, room), err);
}

/* The path of output number i of the line, counted from 0; NULL: it has no more. */
static const char *output_at(const cmd_line *line, size_t i) {
    for (int o = 0; o < OPT_COUNT; o++)
        if (cmd_options[o].kind == CMD_WRITE && line->value[o] && i-- == 0) return line->value[o];
    return i < line->dtable_count ? strchr(line->dtables[i], '=') + 1 : NULL;
}

fcp_code cmd_protect(const cmd_line *line, const char *path, const char *why, fcp_error *err) {
    target read, written;
    const char *output;
    if (find_target(path, &read) != 0) return FCP_OK; /* what cannot be found cannot be read either */
    for (size_t i = 0; (output = output_at(line, i)); i++)
        if (find_target(output, &written) == 0 && is_one_file(&read, &written)) return cannot_write(output, why, err);
    return FCP_OK;
}

fcp_code cmd_guard_file(void *context, const char *path, fcp_error *err) {
    return cmd_protect(context, path, "the program reads it", err);
}

/* Returns why no file can be made or replaced at the path, judging by its folder: an errno value; 0: one can. */
static int folder_error(const char *path) {
    char *end, folder[PATH_MAX];
    const char *name;
    int why = fcp_beside_target(path, &end);
    if (why || !end) return why;
    why = cut_path(end, folder, &name);
    if (!why && access(folder, W_OK | X_OK) != 0) why = errno;
    free(end);
    return why;
}

/* Returns why the path cannot be an output, whatever else the command line says; NULL: it can. */
static const char *output_error(const char *path) {
    target t;
    int why = *path ? find_target(path, &t) : ENOENT;
    if (!why && t.there && S_ISDIR(t.mode)) why = EISDIR;
    if (!why) why = folder_error(path);
    if (why) return strerror(why);
    const bool writable = !t.there || S_ISREG(t.mode) || S_ISCHR(t.mode) || S_ISFIFO(t.mode);
    return writable ? NULL : "it is neither a file nor a pipe";
}

fcp_code cmd_check_outputs(const cmd_line *line, fcp_error *err) {
    fcp_code code = FCP_OK;
    target one, other;
    const char *path;
    for (size_t i = 0; (path = output_at(line, i)); i++) {
        const char *wrong = output_error(path);
        if (wrong) return cannot_write(path, wrong, err);
        for (size_t j = 0; j < i; j++)
            if (find_target(path, &one) == 0 && find_target(output_at(line, j), &other) == 0 &&
                is_one_file(&one, &other))
                return cannot_write(path, "two outputs have the same path", err);
    }
    if (line->file) code = cmd_protect(line, cmd_path(line->file), "it is the input", err);
    for (int o = 0; o < OPT_COUNT && code == FCP_OK; o++) {
        char why[64];
        snprintf(why, sizeof why, "--%s reads it", cmd_options[o].name);
        if (cmd_options[o].kind == CMD_READ && line->value[o])
            code = cmd_protect(line, cmd_path(line->value[o]), why, err);
    }
    for (size_t i = 0; i < line->field_count && code == FCP_OK; i++) {
        const char *equals = strchr(line->fields[i], '=');
        if (equals) code = cmd_protect(line, equals + 1, "--field reads it", err);
    }
    if (code == FCP_OK && line->value[OPT_ID_FILE])
        code = cmd_protect(line, line->value[OPT_ID_FILE], "the processes find each other by it", err);
    return code;
}

char *cmd_layer_path(const char *path, uint32_t n) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *point = strrchr(name, '.');
    const size_t stem = point && point != name ? (size_t)(point - path) : strlen(path);
    text t = {0};
    text_add(&t, path, stem);
    if (n) text_printf(&t, ".%u", n + 1);
    text_puts(&t, path + stem);
    return text_take(&t);
}

char *cmd_slices_path(const char *plan) {
    text t = {0};
    text_printf(&t, "%s.slices", plan);
    return text_take(&t);
}

/* --- files that appear whole -------------------------------------------------------------------------------------- */

fcp_code cmd_file_open(cmd_file *f, const char *path, fcp_error *err) {
    struct stat st;
    /* A pipe or a device has no temporary file, and opening a pipe may wait for a reader, which must be interruptible.
     * For any other file an interruption has to wait until the temporary file is registered. */
    const bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode);
    if (!special) cmd_hold();
    int why = fcp_beside_open(&f->file, path, f->regular);
    if (!why && f->file.temporary) cmd_guard(f->file.temporary);
    if (!special) cmd_release();
    return why ? cmd_cannot_write(path, why, err) : FCP_OK;
}

fcp_code cmd_file_commit(cmd_file *f, fcp_error *err) {
    const char *path = f->file.path;
    cmd_hold();
    if (f->file.temporary) cmd_unguard(f->file.temporary);
    int why = fcp_beside_commit(&f->file);
    cmd_release();
    return why ? cmd_cannot_write(path, why, err) : FCP_OK;
}

void cmd_file_abandon(cmd_file *f) {
    cmd_hold();
    if (f->file.temporary) cmd_unguard(f->file.temporary);
    fcp_beside_abandon(&f->file);
    cmd_release();
}

fcp_code cmd_files_commit(cmd_file *files, size_t count, fcp_code code, fcp_error *err) {
    cmd_hold(); /* so that an interruption comes before or after all of them */
    for (size_t i = 0; i < count; i++) {
        if (!code && files[i].file.path) code = cmd_file_commit(&files[i], err);
        cmd_file_abandon(&files[i]);
    }
    cmd_release();
    return code;
}

static fcp_code write_bytes(cmd_file *f, const char *path, const void *bytes, size_t size, fcp_error *err) {
    fcp_code code = cmd_file_open(f, path, err);
    int why = code == FCP_OK ? fcp_write_all(f->file.fd, bytes, size) : 0;
    return why ? cmd_cannot_write(path, why, err) : code;
}

fcp_code cmd_file_write(const char *path, const void *bytes, size_t size, fcp_error *err) {
    cmd_file f = CMD_FILE_NONE;
    fcp_code code = write_bytes(&f, path, bytes, size, err);
    if (code == FCP_OK) code = cmd_file_commit(&f, err);
    cmd_file_abandon(&f);
    return code;
}

fcp_code cmd_texts_write(const cmd_line *line, const cmd_text *texts, size_t count, fcp_error *err) {
    cmd_file files[CMD_TEXTS];
    fcp_code code = FCP_OK;
    for (size_t i = 0; i < count; i++) files[i] = CMD_FILE_NONE;
    for (size_t i = 0; i < count && code == FCP_OK; i++)
        if (line->value[texts[i].option])
            code = write_bytes(&files[i], line->value[texts[i].option], texts[i].bytes->at, texts[i].bytes->size, err);
    return cmd_files_commit(files, count, code, err);
}
