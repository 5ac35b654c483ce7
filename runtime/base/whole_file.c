/* whole_file.c: replaces files atomically. whole_file.h says how, and what becomes of the temporary file of a killed
 * writer.
 */
#include "runtime/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "runtime/base/read_file.h"

enum {
    MAX_LINKS = 40,    /* as the kernel follows */
    MAX_NAMES = 1000,  /* temporary names of one target */
    LOOK_BEYOND = 8    /* names in a row that are free: behind them no leftover is looked for */
};

/* --- the target --------------------------------------------------------------------------------------------------- */

/* The length of the folder's part of a path, with its last '/'; 0: the path is in the current folder. */
static size_t folder_length(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

static bool in_proc(const char *path) {
    char folder[PATH_MAX] = ".";
    size_t length = folder_length(path);
    struct statfs about;
    if (length >= sizeof folder) return false;
    if (length) snprintf(folder, sizeof folder, "%.*s", (int)length, path);
    return statfs(folder, &about) == 0 && about.f_type == PROC_SUPER_MAGIC;
}

int fcp_beside_target(const char *path, char **out_target) {
    char at[PATH_MAX], to[PATH_MAX];
    *out_target = NULL;
    if ((size_t)snprintf(at, sizeof at, "%s", path) >= sizeof at) return ENAMETOOLONG;
    for (int links = 0;; links++) {
        struct stat about;
        /* if it is not there, it is new; any other error will come again when it is created */
        if (lstat(at, &about) != 0 || S_ISREG(about.st_mode)) break;
        if (!S_ISLNK(about.st_mode) || in_proc(at)) return 0;
        if (links == MAX_LINKS) return ELOOP;
        ssize_t length = readlink(at, to, sizeof to);
        if (length < 0) return errno;
        if (length == sizeof to) return ENAMETOOLONG;
        size_t folder = *to == '/' ? 0 : folder_length(at);
        if (folder + (size_t)length >= sizeof at) return ENAMETOOLONG;
        memcpy(at + folder, to, (size_t)length);
        at[folder + (size_t)length] = 0;
    }
    *out_target = strdup(at);
    return *out_target ? 0 : ENOMEM;
}

/* --- temporary files ---------------------------------------------------------------------------------------------- */

static bool same(const struct stat *a, const struct stat *b) {
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Removes a temporary file whose writer is dead. Returns whether the name is free. A file is removed only while this
 * process holds its lock, and only if it still has that name: nobody but the holder of the lock may rename or remove
 * it. */
static bool clear_name(const char *name) {
    struct stat opened, named;
    int fd = open(name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT;
    bool dead = fstat(fd, &opened) == 0 && S_ISREG(opened.st_mode) && opened.st_uid == geteuid() &&
                flock(fd, LOCK_EX | LOCK_NB) == 0 && lstat(name, &named) == 0 && same(&opened, &named);
    bool is_free = dead && unlink(name) == 0;
    close(fd);
    return is_free;
}

/* Makes a temporary file and locks it. EEXIST: another writer has the name, or has locked the new file first because
 * it took it for a leftover. */
static int create(const char *name, int *out_fd) {
    struct stat about;
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return errno;
    bool locked = flock(fd, LOCK_EX | LOCK_NB) == 0, taken = !locked && errno == EWOULDBLOCK;
    if (taken || (locked && (fstat(fd, &about) != 0 || about.st_nlink == 0))) {
        close(fd);
        return EEXIST;
    }
    *out_fd = fd;
    return 0;
}

static int open_temporary(fcp_beside *f) {
    size_t room = strlen(f->target) + 32;
    char *name = malloc(room);
    f->temporary = malloc(room);
    int why = name && f->temporary ? 0 : ENOMEM;
    for (int i = 0, clear = 0; !why && i < MAX_NAMES && (f->fd < 0 || clear < LOOK_BEYOND); i++) {
        snprintf(name, room, "%s.fcpc-tmp%d", f->target, i);
        bool is_free = clear_name(name);
        clear = is_free ? clear + 1 : 0;
        if (f->fd >= 0 || !is_free) continue;
        why = create(name, &f->fd);
        if (why == EEXIST) why = 0;
        if (f->fd >= 0) memcpy(f->temporary, name, strlen(name) + 1);
    }
    free(name);
    if (!why && f->fd < 0) why = EEXIST;
    /* closing a copy reports what writing it ran into, and the lock lasts until the last copy is closed */
    if (!why && (f->lock = fcntl(f->fd, F_DUPFD_CLOEXEC, 0)) < 0) why = errno;
    if (why && f->fd < 0) {
        free(f->temporary);
        f->temporary = NULL;
    }
    return why;
}

/* --- the functions of the header ---------------------------------------------------------------------------------- */

int fcp_beside_open(fcp_beside *f, const char *path, bool regular) {
    *f = (fcp_beside){.path = path, .fd = -1, .lock = -1};
    if (!*path) return ENOENT;
    int why = fcp_beside_target(path, &f->target);
    if (!why && f->target) why = open_temporary(f);
    else if (!why && regular) why = FCP_NOT_REGULAR;
    else if (!why && (f->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY)) < 0) why = errno;
    if (why) fcp_beside_abandon(f);
    return why;
}

int fcp_beside_close(fcp_beside *f) {
    int fd = f->fd;
    f->fd = -1;
    return fd >= 0 && close(fd) ? errno : 0;
}

static void release(fcp_beside *f) {
    if (f->temporary && f->lock >= 0) close(f->lock);
    f->lock = -1;
    free(f->temporary);
    free(f->target);
    f->temporary = f->target = NULL;
}

int fcp_beside_commit(fcp_beside *f) {
    int why = fcp_beside_close(f);
    if (!why && f->temporary && rename(f->temporary, f->target)) why = errno;
    if (why) fcp_beside_abandon(f);
    else release(f);
    return why;
}

void fcp_beside_abandon(fcp_beside *f) {
    if (f->temporary) unlink(f->temporary); /* while it is locked */
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    release(f);
}

int fcp_write_all(int fd, const void *bytes, size_t size) {
    const char *at = bytes;
    while (size) {
        ssize_t put = write(fd, at, size < 1 << 30 ? size : 1 << 30);
        if (put < 0 && errno == EINTR) continue;
        if (put < 0) return errno;
        if (put == 0) return EIO;
        at += put;
        size -= (size_t)put;
    }
    return 0;
}
