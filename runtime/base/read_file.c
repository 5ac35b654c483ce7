/* read_file.c: opening files to read; read_file.h says why not every file may be opened. */
#include "runtime/base/read_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int kind_error(const struct stat *about, bool regular) {
    if (S_ISDIR(about->st_mode)) return EISDIR;
    return regular && !S_ISREG(about->st_mode) ? FCP_NOT_REGULAR : 0;
}

int fcp_read_open(const char *path, bool regular, int *out_fd, uint64_t *out_size) {
    struct stat about;
    int why = stat(path, &about) ? errno : kind_error(&about, regular);
    if (why) return why; /* before it is opened: that alone may do something to a device */
    /* Something else may have taken its place meanwhile: opening that must not wait. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | (regular ? O_NONBLOCK : 0));
    if (fd < 0) return errno;
    why = fstat(fd, &about) ? errno : kind_error(&about, regular);
    if (why) {
        close(fd);
        return why;
    }
    /* files of /proc have the size 0 and bytes nevertheless; some of them never end */
    const bool known = regular || (S_ISREG(about.st_mode) && about.st_size > 0);
    *out_fd = fd;
    *out_size = known ? (uint64_t)about.st_size : UINT64_MAX;
    return 0;
}

ssize_t fcp_read_some(int fd, void *to, uint64_t size) {
    ssize_t got;
    do got = read(fd, to, size < 1 << 30 ? (size_t)size : 1 << 30);
    while (got < 0 && errno == EINTR);
    return got;
}

const char *fcp_read_reason(int why, char room[128]) {
    if (why == FCP_NOT_REGULAR) return "it is not a regular file";
    if (strerror_r(why, room, 128)) snprintf(room, 128, "error %d", why);
    return room;
}
