/* sha256.c: SHA-256 of files, by libcrypto. Requires: nothing. Cost: one pass over the bytes. */
#include "runtime/base/sha256.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>

bool sha256(const void *bytes, size_t size, uint8_t out[32]) {
    return EVP_Digest(bytes, size, out, NULL, EVP_sha256(), NULL) == 1;
}

int sha256_file(const char *path, uint8_t out[32]) {
    unsigned char chunk[1 << 14];
    FILE *f = fopen(path, "rb");
    if (!f) return errno;
    EVP_MD_CTX *state = EVP_MD_CTX_new();
    bool good = state && EVP_DigestInit_ex(state, EVP_sha256(), NULL) == 1;
    int why = 0;
    for (size_t got = sizeof chunk; good && got == sizeof chunk;) {
        errno = 0;
        got = fread(chunk, 1, sizeof chunk, f);
        if (ferror(f)) why = errno ? errno : EIO;
        good = EVP_DigestUpdate(state, chunk, got) == 1;
    }
    good = good && EVP_DigestFinal_ex(state, out, NULL) == 1;
    EVP_MD_CTX_free(state);
    fclose(f);
    return why ? why : good ? 0 : ENOMEM;
}
