/* hashes.c: SHA-256 and CRC-32C in plain C, in the place of Nettle and ISA-L, which are not there for WebAssembly.
 *
 * Plans hold both, so a plan of the playground has the same bytes as any other (tests/play compares their digests).
 *
 * Source:   FIPS 180-4 (SHA-256); RFC 3720, appendix B.4 (CRC-32C).
 * Cost:     some 5 ns a byte for SHA-256, 1 ns for the CRC.
 */
#include <isa-l/crc.h>
#include <nettle/sha2.h>
#include <string.h>

/* --- SHA-256 ------------------------------------------------------------------------------------------------------ */

static const uint32_t begin[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, int by) { return x >> by | x << (32 - by); }
static uint32_t word(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void add_block(uint32_t state[8], const uint8_t *bytes) {
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++) w[i] = word(bytes + 4 * (size_t)i);
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] + (turn(w[i - 15], 7) ^ turn(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (turn(w[i - 2], 17) ^ turn(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(s, state, sizeof s);
    for (int i = 0; i < 64; i++) {
        const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]), most = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        const uint32_t one = s[7] + (turn(s[4], 6) ^ turn(s[4], 11) ^ turn(s[4], 25)) + choice + constants[i] + w[i];
        const uint32_t two = (turn(s[0], 2) ^ turn(s[0], 13) ^ turn(s[0], 22)) + most;
        memmove(s + 1, s, 7 * sizeof *s);
        s[4] += one;
        s[0] = one + two;
    }
    for (int i = 0; i < 8; i++) state[i] += s[i];
}

void sha256_init(struct sha256_ctx *h) {
    memcpy(h->state, begin, sizeof begin);
    h->size = 0;
}

void sha256_update(struct sha256_ctx *h, size_t size, const uint8_t *bytes) {
    size_t used = h->size % SHA256_BLOCK_SIZE;
    h->size += size;
    if (used) {
        const size_t part = size < SHA256_BLOCK_SIZE - used ? size : SHA256_BLOCK_SIZE - used;
        memcpy(h->block + used, bytes, part);
        bytes += part;
        size -= part;
        if (used + part < SHA256_BLOCK_SIZE) return;
        add_block(h->state, h->block);
    }
    for (; size >= SHA256_BLOCK_SIZE; size -= SHA256_BLOCK_SIZE, bytes += SHA256_BLOCK_SIZE) add_block(h->state, bytes);
    if (size) memcpy(h->block, bytes, size);
}

void sha256_digest(struct sha256_ctx *h, size_t size, uint8_t *out) {
    const uint64_t bits = 8 * h->size;
    uint8_t end[SHA256_BLOCK_SIZE + 8] = {0x80};
    const size_t zeros = (2 * SHA256_BLOCK_SIZE - 8 - 1 - h->size % SHA256_BLOCK_SIZE) % SHA256_BLOCK_SIZE;
    for (size_t i = 0; i < 8; i++) end[1 + zeros + i] = (uint8_t)(bits >> (56 - 8 * i));
    sha256_update(h, 1 + zeros + 8, end);
    for (size_t i = 0; i < size; i++) out[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
    sha256_init(h);
}

/* --- CRC-32C ------------------------------------------------------------------------------------------------------ */

unsigned int crc32_iscsi(unsigned char *bytes, int size, unsigned int crc) {
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0x82f63b78u : 0);
    }
    for (int i = 0; i < size; i++) crc = table[(crc ^ bytes[i]) & 255] ^ crc >> 8;
    return crc;
}
