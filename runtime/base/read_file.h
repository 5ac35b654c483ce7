/* read_file.h: opens files to read.
 *
 * A path may lead to something else than a file. A pipe without a writer never opens, a device such as /dev/zero never
 * ends, and a terminal waits for its user. So what somebody else names (a plan, a request, a program from outside) is
 * opened with `regular`: it is a regular file, or refused at once. What users name on their own command line may be a
 * pipe: that they must wait for it is their wish.
 *
 * Functions that return an int return 0, an errno value or FCP_NOT_REGULAR.
 */
#ifndef FCP_BASE_READ_FILE_H
#define FCP_BASE_READ_FILE_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { FCP_NOT_REGULAR = -1 };

/* Opens a file at its beginning. *out_size: its bytes; UINT64_MAX: they are not known before its end, which happens
 * only without `regular`. What a regular file gets behind this size later is not to be read. A folder is EISDIR. */
int fcp_read_open(const char *path, bool regular, int *out_fd, uint64_t *out_size);
/* Reads up to `size` bytes, of which there may be fewer; 0 at the end; -1 with errno. */
ssize_t fcp_read_some(int fd, void *to, uint64_t size);
/* What a result of fcp_read_open means; the text may be in `room`. */
const char *fcp_read_reason(int why, char room[128]);

/* The longest text that `count` numbers are read from. A number has 63 characters at most; the rest is for comments. So
 * a file that has nothing to do with the numbers is not read to its end. A .npy file is never longer. */
static inline uint64_t fcp_numbers_most(uint64_t count) {
    const uint64_t spare = 1 << 20, each = 256;
    return count < (UINT64_MAX - spare) / each ? spare + each * count : UINT64_MAX;
}
#endif
