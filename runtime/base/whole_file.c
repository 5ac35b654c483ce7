/* whole_file.c: atomic replacement of files. No fsync: a crash of the machine may lose the file, never mix two. */
#include "runtime/base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int fcp_beside_open(fcp_beside *f, const char *path) {
    struct stat there;
    *f = (fcp_beside){.path = path, .fd = -1};
    if (!*path) return ENOENT;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        f->fd = open(path, O_WRONLY | O_CLOEXEC);
        return f->fd < 0 ? errno : 0;
    }
    size_t room = strlen(path) + 32;
    if (!(f->temporary = malloc(room))) return ENOMEM;
    int why = EEXIST;
    for (unsigned i = 0; i < 100 && f->fd < 0 && why == EEXIST; i++) {
        snprintf(f->temporary, room, "%s.tmp%ld-%u", path, (long)getpid(), i);
        f->fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        why = f->fd < 0 ? errno : 0;
    }
    if (f->fd < 0) {
        free(f->temporary);
        f->temporary = NULL;
    }
    return why;
}

int fcp_beside_close(fcp_beside *f) {
    int fd = f->fd;
    f->fd = -1;
    return fd >= 0 && close(fd) ? errno : 0;
}

int fcp_beside_commit(fcp_beside *f) {
    int why = fcp_beside_close(f);
    if (!why && f->temporary && rename(f->temporary, f->path)) why = errno;
    if (!why) {
        free(f->temporary);
        f->temporary = NULL;
    }
    fcp_beside_abandon(f);
    return why;
}

void fcp_beside_abandon(fcp_beside *f) {
    if (f->fd >= 0) close(f->fd);
    f->fd = -1;
    if (f->temporary) unlink(f->temporary);
    free(f->temporary);
    f->temporary = NULL;
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
