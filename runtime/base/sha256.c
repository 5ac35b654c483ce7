/* sha256.c: SHA-256 by Nettle, which is loaded in a fifth of the time that libcrypto takes.
 *
 * Cost: one pass over the bytes.
 */
#include "runtime/base/sha256.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/read_file.h"

fcp_sha256 fcp_sha256_begin(void) {
    fcp_sha256 h;
    sha256_init(&h.state);
    return h;
}

void fcp_sha256_add(fcp_sha256 *h, const void *bytes, size_t size) {
    if (size) sha256_update(&h->state, size, bytes);
}

void fcp_sha256_add_text(fcp_sha256 *h, const char *text) {
    uint64_t size = strlen(text);
    fcp_sha256_add(h, &size, sizeof size);
    fcp_sha256_add(h, text, size);
}

void fcp_sha256_end(fcp_sha256 *h, uint8_t out[FCP_SHA256_BYTES]) {
    sha256_digest(&h->state, FCP_SHA256_BYTES, out);
}

void fcp_sha256_of(const void *bytes, size_t size, uint8_t out[FCP_SHA256_BYTES]) {
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, bytes, size);
    fcp_sha256_end(&h, out);
}

int fcp_sha256_fd(int fd, uint64_t most, uint8_t out[FCP_SHA256_BYTES]) {
    enum { CHUNK = 1 << 20 };
    char *chunk = malloc(CHUNK);
    int why = chunk ? 0 : ENOMEM;
    fcp_sha256 h = fcp_sha256_begin();
    for (ssize_t got = 1; !why && got > 0;) {
        got = fcp_read_some(fd, chunk, CHUNK);
        if (got < 0) why = errno;
        else if ((uint64_t)got > most) why = EFBIG;
        else {
            fcp_sha256_add(&h, chunk, (size_t)got);
            most -= (uint64_t)got;
        }
    }
    fcp_sha256_end(&h, out);
    free(chunk);
    return why;
}

int fcp_sha256_file(const char *path, uint8_t out[FCP_SHA256_BYTES]) {
    int fd;
    uint64_t size;
    int why = fcp_read_open(path, true, &fd, &size);
    if (why) return why;
    why = fcp_sha256_fd(fd, UINT64_MAX, out);
    close(fd);
    return why;
}
