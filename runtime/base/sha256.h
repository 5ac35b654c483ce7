/* sha256.h: SHA-256 of bytes, of files, and of several pieces one after the other. */
#ifndef FCP_BASE_SHA256_H
#define FCP_BASE_SHA256_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FCP_SHA256_BYTES = 32 };

/* A hash of pieces. Begin it, add any number of pieces, end it; ending is needed in every case, for it frees the
 * memory. An error of any step (libcrypto is out of memory) is remembered, and told by fcp_sha256_end. */
typedef struct fcp_sha256 {
    void *state;
    bool good;
} fcp_sha256;
fcp_sha256 fcp_sha256_begin(void);
void fcp_sha256_add(fcp_sha256 *h, const void *bytes, size_t size);
void fcp_sha256_add_text(fcp_sha256 *h, const char *text); /* its length first, so that two texts cannot run together */
bool fcp_sha256_end(fcp_sha256 *h, uint8_t out[FCP_SHA256_BYTES]);

bool fcp_sha256_of(const void *bytes, size_t size, uint8_t out[FCP_SHA256_BYTES]);
/* Of a whole file. 0, or an errno value. */
int fcp_sha256_file(const char *path, uint8_t out[FCP_SHA256_BYTES]);
#endif
