/* sha2.h: stands in for Nettle's header where there is no Nettle: SHA-256 alone (compiler/playground/hashes.c). */
#ifndef FCPC_PLAYGROUND_SHA2_H
#define FCPC_PLAYGROUND_SHA2_H
#include <stddef.h>
#include <stdint.h>

enum { SHA256_DIGEST_SIZE = 32, SHA256_BLOCK_SIZE = 64 };
struct sha256_ctx {
    uint32_t state[8];
    uint64_t size;                    /* bytes so far */
    uint8_t block[SHA256_BLOCK_SIZE]; /* the last size % 64 of them */
};
void sha256_init(struct sha256_ctx *h);
void sha256_update(struct sha256_ctx *h, size_t size, const uint8_t *bytes);
/* The first `size` bytes of the digest; then h is as sha256_init leaves it. */
void sha256_digest(struct sha256_ctx *h, size_t size, uint8_t *out);
#endif
