/* output.c: the files that a command writes: none of them is a file that it reads, and each appears whole or not at
 * all.
 *
 * Files are compared by identity (device and inode), so that links and other spellings of a path do not hide that two
 * are one. A file that is not there yet is known by its folder and its name.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compiler/cli/cmd.h"

enum { LINKS_MAX = 40 }; /* as many as Linux follows */

/* What a path leads to. Where nothing is there, `name` is what it would be called, in the folder that device and inode
 * are of. */
typedef struct target {
    bool there;
    mode_t mode;
    dev_t device;
    ino_t inode;
    char name[NAME_MAX + 1];
} target;

/* The folder that a path is in, with its last slash; "" for the current one. */
static int folder_of(const char *path, char folder[PATH_MAX]) {
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) + 1 : 0;
    if (size >= PATH_MAX) return ENAMETOOLONG;
    memcpy(folder, path, size);
    folder[size] = 0;
    return 0;
}

/* Puts in `out` the path that the symbolic links at `path` end at; nothing need be there. 0, or an errno value. */
static int follow(const char *path, char out[PATH_MAX]) {
    char link[PATH_MAX], folder[PATH_MAX];
    if (strlen(path) >= PATH_MAX) return ENAMETOOLONG;
    strcpy(out, path);
    for (int links = 0; links < LINKS_MAX; links++) {
        ssize_t size = readlink(out, link, sizeof link - 1);
        if (size < 0) return 0; /* no link */
        link[size] = 0;
        int why = folder_of(out, folder);
        if (why) return why;
        if (link[0] == '/') folder[0] = 0;
        if (strlen(folder) + (size_t)size >= PATH_MAX) return ENAMETOOLONG;
        strcpy(out, folder);
        strcat(out, link);
    }
    return ELOOP;
}

/* Finds out what a path leads to. 0, or an errno value: that of its folder, for instance. */
static int find_target(const char *path, target *out) {
    struct stat st;
    char end[PATH_MAX], folder[PATH_MAX];
    *out = (target){.there = stat(path, &st) == 0};
    if (!out->there) {
        int why = follow(path, end);
        if (!why) why = folder_of(end, folder);
        if (why) return why;
        if (stat(*folder ? folder : ".", &st) != 0) return errno;
        const char *name = end + strlen(folder);
        if (strlen(name) > NAME_MAX) return ENAMETOOLONG;
        strcpy(out->name, name);
    }
    out->mode = st.st_mode;
    out->device = st.st_dev;
    out->inode = st.st_ino;
    return 0;
}

/* A terminal or /dev/null may be both read and written, and by several. */
static bool is_one_file(const target *a, const target *b) {
    return a->there == b->there && a->device == b->device && a->inode == b->inode && !strcmp(a->name, b->name) &&
           !(a->there && S_ISCHR(a->mode));
}

static fcp_code cannot_write(const char *path, const char *why, fcp_error *err) {
    fcp_fail(err, FCP_E_WRITE, "cannot be written: %s", why);
    snprintf(err->file, sizeof err->file, "%s", path);
    return FCP_E_WRITE;
}

fcp_code cmd_cannot_write(const char *path, int why, fcp_error *err) { return cannot_write(path, strerror(why), err); }

fcp_code cmd_protect(const cmd_line *line, const char *path, const char *why, fcp_error *err) {
    target read, written;
    if (find_target(path, &read) != 0) return FCP_OK; /* it will not be read either */
    for (int o = 0; o < OPT_COUNT; o++) {
        const char *output = cmd_options[o].kind == CMD_WRITE ? line->value[o] : NULL;
        if (output && find_target(output, &written) == 0 && is_one_file(&read, &written))
            return cannot_write(output, why, err);
    }
    return FCP_OK;
}

/* Whether a file can be made or replaced in the folder that `path` (without links) is in: 0, or an errno value. */
static int folder_error(const char *path) {
    char folder[PATH_MAX];
    int why = folder_of(path, folder);
    return why ? why : access(*folder ? folder : ".", W_OK | X_OK) == 0 ? 0 : errno;
}

/* What is wrong with an output by itself; NULL: nothing. */
static const char *output_error(const char *path) {
    target t;
    char end[PATH_MAX];
    int why = *path ? find_target(path, &t) : ENOENT;
    if (!why && t.there && !S_ISREG(t.mode)) {
        if (S_ISDIR(t.mode)) return strerror(EISDIR);
        return S_ISCHR(t.mode) || S_ISFIFO(t.mode) ? NULL : "it is neither a file nor a pipe";
    }
    if (!why && !t.there && !*t.name) why = EISDIR; /* it ends in a slash */
    if (!why) why = follow(path, end);
    if (!why) why = folder_error(end);
    return why ? strerror(why) : NULL;
}

fcp_code cmd_check_outputs(const cmd_line *line, fcp_error *err) {
    fcp_code code = FCP_OK;
    target one, other;
    for (int o = 0; o < OPT_COUNT; o++) {
        const char *path = cmd_options[o].kind == CMD_WRITE ? line->value[o] : NULL;
        const char *wrong = path ? output_error(path) : NULL;
        if (wrong) return cannot_write(path, wrong, err);
        for (int p = 0; path && p < o; p++)
            if (cmd_options[p].kind == CMD_WRITE && line->value[p] && find_target(path, &one) == 0 &&
                find_target(line->value[p], &other) == 0 && is_one_file(&one, &other))
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

/* --- files that appear whole ---------------------------------------------------------------------------------------- */

fcp_code cmd_file_open(cmd_file *f, const char *path, fcp_error *err) {
    struct stat st;
    const bool special = stat(path, &st) == 0 && !S_ISREG(st.st_mode); /* has no temporary file; a pipe waits for a reader */
    if (!special) cmd_hold(); /* so that an interruption finds no temporary file that it does not know */
    int why = fcp_beside_open(&f->file, path);
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

fcp_code cmd_file_write(const char *path, const void *bytes, size_t size, fcp_error *err) {
    cmd_file f = CMD_FILE_NONE;
    fcp_code code = cmd_file_open(&f, path, err);
    int why = code == FCP_OK ? fcp_write_all(f.file.fd, bytes, size) : 0;
    if (why) code = cmd_cannot_write(path, why, err);
    if (code == FCP_OK) code = cmd_file_commit(&f, err);
    cmd_file_abandon(&f);
    return code;
}
