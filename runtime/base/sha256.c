/* sha256.c: SHA-256 by Nettle, which is loaded in a fifth of the time that libcrypto takes. Cost: one pass over the
 * bytes. */
#include "runtime/base/sha256.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int fcp_sha256_file(const char *path, uint8_t out[FCP_SHA256_BYTES]) {
    enum { CHUNK = 1 << 20 };
    FILE *f = fopen(path, "rbe");
    if (!f) return errno;
    char *chunk = malloc(CHUNK);
    int why = chunk ? 0 : ENOMEM;
    fcp_sha256 h = fcp_sha256_begin();
    for (size_t got = CHUNK; !why && got == CHUNK;) {
        errno = 0;
        got = fread(chunk, 1, CHUNK, f);
        if (ferror(f)) why = errno ? errno : EIO;
        fcp_sha256_add(&h, chunk, got);
    }
    fcp_sha256_end(&h, out);
    free(chunk);
    fclose(f);
    return why;
}
