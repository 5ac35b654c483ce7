/* sha256.h: SHA-256 of files, by libcrypto. */
#ifndef FCP_BASE_SHA256_H
#define FCP_BASE_SHA256_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool sha256(const void *bytes, size_t size, uint8_t out[32]); /* false: libcrypto failed (out of memory) */
/* Of a whole file; 0, or an errno value. */
int sha256_file(const char *path, uint8_t out[32]);
#endif
