/* sha256.h: SHA-256 of bytes, of files, and of several pieces one after the other. */
#ifndef FCP_BASE_SHA256_H
#define FCP_BASE_SHA256_H
#include <nettle/sha2.h>
#include <stddef.h>
#include <stdint.h>

enum { FCP_SHA256_BYTES = SHA256_DIGEST_SIZE };

/* A hash of pieces: begin it, add any number of pieces, end it. */
typedef struct fcp_sha256 {
    struct sha256_ctx state;
} fcp_sha256;
fcp_sha256 fcp_sha256_begin(void);
void fcp_sha256_add(fcp_sha256 *h, const void *bytes, size_t size);
void fcp_sha256_add_text(fcp_sha256 *h, const char *text); /* its length first, so that two texts cannot run together */
void fcp_sha256_end(fcp_sha256 *h, uint8_t out[FCP_SHA256_BYTES]);

void fcp_sha256_of(const void *bytes, size_t size, uint8_t out[FCP_SHA256_BYTES]);
/* Hashes what can be read of an open file, up to its end. Returns 0, or an errno value: EFBIG if it has more than
 * `most` bytes. */
int fcp_sha256_fd(int fd, uint64_t most, uint8_t out[FCP_SHA256_BYTES]);
/* Hashes a whole regular file. Returns 0, or what fcp_read_open returns. */
int fcp_sha256_file(const char *path, uint8_t out[FCP_SHA256_BYTES]);
#endif
