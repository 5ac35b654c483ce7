/* disassemble.c: runs nvdisasm on a cubin and reads what it prints.
 *
 * nvdisasm only reads files, so the cubin is in a temporary file while it runs. It is run without a shell.
 *
 * Requires: a cubin.
 * Cost:     about a second for the kernels of a pass.
 */
#define _GNU_SOURCE
#include "runtime/jit/disassemble.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/jit/nvrtc.h"

/* --- where it is -------------------------------------------------------------------------------------------------- */

typedef struct search {
    char found[FCP_DISASSEMBLER_PATH], tried[360];
    size_t used;
} search;

static bool try_file(search *s, const char *path) {
    if (access(path, X_OK) == 0) return snprintf(s->found, sizeof s->found, "%s", path), true;
    int size = snprintf(s->tried + s->used, sizeof s->tried - s->used, "%s%s", s->used ? ", " : "", path);
    if (size > 0) s->used += (size_t)size;
    if (s->used >= sizeof s->tried) s->used = sizeof s->tried - 1;
    return false;
}

static bool try_folder(search *s, const char *folder, size_t length, const char *sub) {
    char path[512];
    int size = snprintf(path, sizeof path, "%.*s%s/nvdisasm", (int)length, folder, sub);
    return size > 0 && (size_t)size < sizeof path && try_file(s, path);
}

/* In the folders of PATH, which the error does not list: they are many, and known. */
static bool try_path(search *s) {
    const char *at = getenv("PATH");
    while (at && *at) {
        size_t length = strcspn(at, ":"), used = s->used;
        if (length && try_folder(s, at, length, "")) return true;
        s->tried[s->used = used] = 0;
        at += length;
        at += *at == ':';
    }
    s->used = (size_t)snprintf(s->tried, sizeof s->tried, "nvdisasm in PATH");
    return false;
}

/* In bin beside NVRTC's own folder: /a/lib/libnvrtc.so.13 means /a/bin. */
static bool try_beside_nvrtc(search *s) {
    fcp_nvrtc *n = NULL;
    fcp_error ignored;
    bool found = false;
    if (fcp_nvrtc_open(NULL, &n, &ignored)) return false;
    const char *file = strrchr(n->path, '/');
    size_t length = file ? (size_t)(file - n->path) : 0;
    while (length && n->path[length - 1] != '/') length--;
    if (length > 1) found = try_folder(s, n->path, length - 1, "/bin");
    fcp_nvrtc_close(n);
    return found;
}

static fcp_code find(search *s, fcp_error *err) {
    const char *only = getenv("FCP_NVDISASM"), *home = getenv("CUDA_HOME");
    bool there;
    if (home && strcmp(home, "/usr/local/cuda") == 0) home = NULL; /* it is among the usual folders */
    if (only && *only) there = try_file(s, only);
    else
        there = try_path(s) || (home && *home && try_folder(s, home, strlen(home), "/bin")) ||
                try_folder(s, "/usr/local/cuda", 15, "/bin") || try_beside_nvrtc(s);
    if (there) return FCP_OK;
    return fcp_fail(err, FCP_E_BACKEND,
                    "nvdisasm is not there: looked for %s; install it from the CUDA toolkit (cuda-nvdisasm), or name "
                    "the file in FCP_NVDISASM", s->tried);
}

fcp_code fcp_disassembler_find(char out[FCP_DISASSEMBLER_PATH], fcp_error *err) {
    search s = {.used = 0};
    const fcp_code code = find(&s, err);
    if (!code) memcpy(out, s.found, sizeof s.found);
    return code;
}

/* --- running it --------------------------------------------------------------------------------------------------- */

/* Starts nvdisasm, with what it prints going to a pipe. Returns its errno. */
static int start(const char *program, const char *cubin, const char *said, int pipe_to, pid_t *child) {
    char *const args[] = {(char *)program, (char *)"-c", (char *)"-gi", (char *)cubin, NULL};
    posix_spawn_file_actions_t actions;
    int result = posix_spawn_file_actions_init(&actions);
    if (result) return result;
    result = posix_spawn_file_actions_adddup2(&actions, pipe_to, STDOUT_FILENO);
    if (!result) result = posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, said, O_WRONLY | O_TRUNC, 0);
    if (!result) result = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (!result) result = posix_spawn(child, program, &actions, NULL, args, environ);
    posix_spawn_file_actions_destroy(&actions);
    return result;
}

/* Reads to the end; malloc'd and ended by 0. NULL: out of memory, or more than any cubin's listing has. */
static char *read_all(int from) {
    enum { MOST = 1 << 28 };
    size_t room = 1 << 16, used = 0;
    char *text = malloc(room);
    for (ssize_t got; text;) {
        if (room - used < 2) {
            char *more = room < MOST ? realloc(text, room *= 2) : NULL;
            if (!more) free(text);
            if (!(text = more)) break;
        }
        got = read(from, text + used, room - used - 1);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) {
            text[used] = 0;
            break;
        }
        used += (size_t)got;
    }
    return text;
}

static fcp_code run(const char *program, const char *cubin, const char *said, char **out, fcp_error *err) {
    int ends[2], status = 0;
    pid_t child;
    if (pipe2(ends, O_CLOEXEC)) return fcp_fail(err, FCP_E_WRITE, "no pipe to %s: %s", program, strerror(errno));
    int result = start(program, cubin, said, ends[1], &child);
    close(ends[1]);
    *out = result ? NULL : read_all(ends[0]);
    close(ends[0]);
    if (result) return fcp_fail(err, FCP_E_BACKEND, "%s does not start: %s", program, strerror(result));
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    if (!*out) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for what %s prints", program);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return FCP_OK;
    char line[200] = "";
    FILE *f = fopen(said, "r");
    if (f && !fgets(line, sizeof line, f)) line[0] = 0;
    if (f) fclose(f);
    line[strcspn(line, "\n")] = 0;
    return fcp_fail(err, FCP_E_LISTING, "%s does not read the cubin: %s", program, *line ? line : "it says nothing");
}

static bool write_file(int fd, const char *bytes, size_t size) {
    while (size) {
        ssize_t put = write(fd, bytes, size);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        bytes += put;
        size -= (size_t)put;
    }
    return true;
}

fcp_code fcp_disassemble(const void *cubin, size_t size, char **out, fcp_error *err) {
    const char *folder = getenv("TMPDIR");
    char path[300], said[300];
    search s = {.used = 0};
    *out = NULL;
    fcp_code code = find(&s, err);
    if (code) return code;
    if (!folder || !*folder || strlen(folder) > 200) folder = "/tmp";
    snprintf(path, sizeof path, "%s/fcpc-cubin-XXXXXX", folder);
    snprintf(said, sizeof said, "%s/fcpc-said-XXXXXX", folder);
    int to = mkstemp(path), errors = to < 0 ? -1 : mkstemp(said);
    if (errors < 0) code = fcp_fail(err, FCP_E_WRITE, "no temporary file in '%s': %s", folder, strerror(errno));
    else if (!write_file(to, cubin, size))
        code = fcp_fail(err, FCP_E_WRITE, "cannot write '%s': %s", path, strerror(errno));
    else code = run(s.found, path, said, out, err);
    if (to >= 0) close(to), unlink(path);
    if (errors >= 0) close(errors), unlink(said);
    if (code) {
        free(*out);
        *out = NULL;
    }
    return code;
}
