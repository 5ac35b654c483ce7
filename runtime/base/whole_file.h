/* whole_file.h: files that appear whole or not at all.
 *
 * The bytes go to a temporary file beside the target, `TARGET.fcpc-tmpN`, which then takes the target's name. On any
 * error the target is as it was. If the path is a symbolic link, the target is the file that it points to, and the link
 * stays. A target that is not a regular file (a pipe, a device) cannot be replaced; it is written to directly.
 *
 * A writer holds a lock on its temporary file while it lives, and the system drops that lock when the process ends,
 * however it ends. So the next writer of the same target recognises the temporary files of killed processes, and
 * removes them. On a file system without locks they stay.
 *
 * Nothing is forced to the disk: a crash of the machine may lose the file, but never mixes an old and a new one.
 * Functions that return an int return 0 or an errno value.
 */
#ifndef FCP_BASE_WHOLE_FILE_H
#define FCP_BASE_WHOLE_FILE_H
#include <stdbool.h>
#include <stddef.h>

typedef struct fcp_beside {
    const char *path; /* as the caller named it; borrowed */
    char *target;     /* what is replaced; NULL: `path` is written to directly */
    char *temporary;
    int fd;           /* to write to; -1 when closed */
    int lock;         /* keeps the lock until the file has its name */
} fcp_beside;

/* Follows symbolic links to the name that opening would replace; the file need not exist. *out_target is malloc'd.
 * It is NULL if the path leads to something that is written to directly: to what is not a regular file, or to an
 * open file by way of /proc (as /dev/stdout is). */
int fcp_beside_target(const char *path, char **out_target);
/* `regular`: what is not a regular file, such as a pipe or device, is refused with FCP_NOT_REGULAR (read_file.h). It
 * is not opened, because opening could wait for ever. */
int fcp_beside_open(fcp_beside *f, const char *path, bool regular);
/* Ends the writing. The file is complete but does not have its name yet. */
int fcp_beside_close(fcp_beside *f);
/* Closes if need be, and gives the file its name. On an error nothing is left behind. */
int fcp_beside_commit(fcp_beside *f);
/* Leaves nothing behind. Harmless after a commit, and on {.fd = -1}. */
void fcp_beside_abandon(fcp_beside *f);

int fcp_write_all(int fd, const void *bytes, size_t size);
#endif
