/* temporary.h: names for files that a test writes. They lie in $TMPDIR, which is removed after the test, and differ
 * between processes, so that tests can run side by side. */
#ifndef TEMPORARY_H
#define TEMPORARY_H
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { TEMPORARY = 128 };

static inline bool temporary_name(char out[TEMPORARY], const char *name) {
    const char *folder = getenv("TMPDIR");
    int size = snprintf(out, TEMPORARY, "%s/fcpc-%s-XXXXXX", folder && *folder ? folder : "/tmp", name);
    return size > 0 && size < TEMPORARY;
}
/* An empty folder; an empty file. False: there is none. */
static inline bool temporary_folder(char out[TEMPORARY], const char *name) {
    return temporary_name(out, name) && mkdtemp(out);
}
static inline bool temporary_file(char out[TEMPORARY], const char *name) {
    int fd = temporary_name(out, name) ? mkstemp(out) : -1;
    return fd >= 0 && close(fd) == 0;
}
#endif
