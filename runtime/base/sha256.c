/* sha256.c: SHA-256 by libcrypto. Cost: one pass over the bytes. */
#include "runtime/base/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fcp_sha256 fcp_sha256_begin(void) {
    EVP_MD_CTX *state = EVP_MD_CTX_new();
    return (fcp_sha256){state, state && EVP_DigestInit_ex(state, EVP_sha256(), NULL) == 1};
}

void fcp_sha256_add(fcp_sha256 *h, const void *bytes, size_t size) {
    h->good = h->good && (!size || EVP_DigestUpdate(h->state, bytes, size) == 1);
}

void fcp_sha256_add_text(fcp_sha256 *h, const char *text) {
    uint64_t size = strlen(text);
    fcp_sha256_add(h, &size, sizeof size);
    fcp_sha256_add(h, text, size);
}

bool fcp_sha256_end(fcp_sha256 *h, uint8_t out[FCP_SHA256_BYTES]) {
    bool good = h->good && EVP_DigestFinal_ex(h->state, out, NULL) == 1;
    EVP_MD_CTX_free(h->state);
    *h = (fcp_sha256){0};
    return good;
}

bool fcp_sha256_of(const void *bytes, size_t size, uint8_t out[FCP_SHA256_BYTES]) {
    return EVP_Digest(bytes, size, out, NULL, EVP_sha256(), NULL) == 1;
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
    if (!fcp_sha256_end(&h, out) && !why) why = ENOMEM;
    free(chunk);
    fclose(f);
    return why;
}
