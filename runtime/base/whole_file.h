/* whole_file.h: files that appear whole or not at all: written under a temporary name beside their path, then renamed.
 * A path that names something other than a regular file (a pipe, a device) is written to directly.
 * Functions return 0 or an errno value. */
#ifndef FCP_BASE_WHOLE_FILE_H
#define FCP_BASE_WHOLE_FILE_H
#include <stdbool.h>
#include <stddef.h>

typedef struct fcp_beside {
    const char *path; /* borrowed */
    char *temporary;  /* NULL: written to directly */
    int fd;           /* to write to; -1 when closed */
} fcp_beside;

int fcp_beside_open(fcp_beside *f, const char *path);
int fcp_beside_close(fcp_beside *f);    /* all is written; the file is complete but not yet at its path */
int fcp_beside_commit(fcp_beside *f);   /* closes if need be, and renames; on an error nothing is left behind */
void fcp_beside_abandon(fcp_beside *f); /* nothing is left behind; harmless after commit */
int fcp_write_all(int fd, const void *bytes, size_t size);
#endif
