/* read_file.h: opens files to read. A path that leads to something other than a regular file is refused where reading
 * it could hang: a pipe without a writer never opens, a device such as /dev/zero never ends, a terminal waits for its
 * user.
 *
 *   `regular` true    for paths from outside (in a plan, a request, a program): only a regular file is opened
 *   `regular` false   for paths on the user's own command line: such a path may be a pipe, and the user waits for it
 *
 * Functions that return an int return 0, an errno value or FCP_NOT_REGULAR.
 */
#ifndef FCP_BASE_READ_FILE_H
#define FCP_BASE_READ_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { FCP_NOT_REGULAR = -1 };

/* Opens a file at its beginning. *out_size: its bytes, or UINT64_MAX if they are not known before its end, which
 * happens only without `regular`. Bytes that are appended to a regular file later must not be read. A folder is
 * EISDIR. */
int fcp_read_open(const char *path, bool regular, int *out_fd, uint64_t *out_size);
/* Reads up to `size` bytes, of which there may be fewer; 0 at the end; -1 with errno. */
ssize_t fcp_read_some(int fd, void *to, uint64_t size);
/* What a result of fcp_read_open means; the text may be in `room`. */
const char *fcp_read_reason(int why, char room[128]);

/* The longest text from which `count` numbers are read. A number has 63 characters at most; the rest is for
 * comments. The limit keeps a file that has nothing to do with the numbers from being read to its end. A .npy file
 * is never longer. */
static inline uint64_t fcp_numbers_most(uint64_t count) {
    const uint64_t spare = 1 << 20, each = 256;
    return count < (UINT64_MAX - spare) / each ? spare + each * count : UINT64_MAX;
}
#endif
