/* sha256.c: SHA-256, as FIPS 180-4 defines it; with the processor's instructions where there are such.
 *
 * A library would do the same, but libcrypto takes 0.6 ms to load, which was a thirtieth of a first plan for 256 ranks.
 *
 * Cost: one pass over the bytes, at the speed of libcrypto with the instructions, at about a quarter of it without.
 */
#include "runtime/base/sha256.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Under sanitizers the processor is not known yet when the program starts, and clang does not know the name "sha". */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11 && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define SHA_INSTRUCTIONS 1
#include <immintrin.h>
#else
#define SHA_INSTRUCTIONS 0
#endif

static const uint32_t constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be,
    0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa,
    0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
    0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3,
    0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f,
    0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn(uint32_t x, unsigned by) { return x >> by | x << (32 - by); }

static uint32_t load_big(const uint8_t *p) { return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3]; }

static void store_big(uint8_t *p, uint32_t x) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(x >> (24 - 8 * i));
}

static void add_blocks(uint32_t state[8], const uint8_t *p, size_t blocks) {
    for (; blocks; blocks--, p += FCP_SHA256_BLOCK) {
        uint32_t w[64];
        for (int i = 0; i < 16; i++) w[i] = load_big(p + 4 * i);
        for (int i = 16; i < 64; i++) {
            const uint32_t x = w[i - 15], y = w[i - 2];
            w[i] = w[i - 16] + w[i - 7] + (turn(x, 7) ^ turn(x, 18) ^ x >> 3) + (turn(y, 17) ^ turn(y, 19) ^ y >> 10);
        }
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
        uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
/* A step moves all eight words on by one: here their names move instead. */
#define STEP(a, b, c, d, e, f, g, h, i)                                                                                \
    h += (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + constants[i] + w[i], d += h,               \
        h += (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c))
        for (int i = 0; i < 64; i += 8) {
            STEP(a, b, c, d, e, f, g, h, i);
            STEP(h, a, b, c, d, e, f, g, i + 1);
            STEP(g, h, a, b, c, d, e, f, i + 2);
            STEP(f, g, h, a, b, c, d, e, i + 3);
            STEP(e, f, g, h, a, b, c, d, i + 4);
            STEP(d, e, f, g, h, a, b, c, i + 5);
            STEP(c, d, e, f, g, h, a, b, i + 6);
            STEP(b, c, d, e, f, g, h, a, i + 7);
        }
#undef STEP
        const uint32_t made[8] = {a, b, c, d, e, f, g, h};
        for (int i = 0; i < 8; i++) state[i] += made[i];
    }
}

#if SHA_INSTRUCTIONS
/* The instructions keep the state as the words f e b a and h g d c, from the lowest lane up, and do two steps each. */
__attribute__((target("sha,sse4.1"))) static void add_blocks_fast(uint32_t state[8], const uint8_t *p, size_t blocks) {
    const __m128i big = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    const __m128i low = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0xb1);        /* b a d c */
    const __m128i high = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)(state + 4)), 0x1b); /* h g f e */
    __m128i feba = _mm_alignr_epi8(low, high, 8), hgdc = _mm_blend_epi16(high, low, 0xf0);
    for (; blocks; blocks--, p += FCP_SHA256_BLOCK) {
        const __m128i feba_before = feba, hgdc_before = hgdc;
        __m128i w[4];
        for (int i = 0; i < 16; i++) { /* four steps each */
            __m128i *now = &w[i % 4];
            if (i < 4) *now = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * i)), big);
            else {
                const __m128i nine = _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4); /* words i - 7 */
                *now = _mm_add_epi32(_mm_sha256msg1_epu32(*now, w[(i + 1) % 4]), nine);
                *now = _mm_sha256msg2_epu32(*now, w[(i + 3) % 4]);
            }
            const __m128i words = _mm_add_epi32(*now, _mm_loadu_si128((const __m128i *)(constants + 4 * i)));
            hgdc = _mm_sha256rnds2_epu32(hgdc, feba, words);
            feba = _mm_sha256rnds2_epu32(feba, hgdc, _mm_shuffle_epi32(words, 0x0e));
        }
        feba = _mm_add_epi32(feba, feba_before);
        hgdc = _mm_add_epi32(hgdc, hgdc_before);
    }
    const __m128i abef = _mm_shuffle_epi32(feba, 0x1b), dchg = _mm_shuffle_epi32(hgdc, 0xb1);
    _mm_storeu_si128((__m128i *)state, _mm_blend_epi16(abef, dchg, 0xf0));
    _mm_storeu_si128((__m128i *)(state + 4), _mm_alignr_epi8(dchg, abef, 8));
}
#endif

static void add(uint32_t state[8], const uint8_t *p, size_t blocks) {
#if SHA_INSTRUCTIONS
    if (__builtin_cpu_supports("sha")) {
        add_blocks_fast(state, p, blocks);
        return;
    }
#endif
    add_blocks(state, p, blocks);
}

fcp_sha256 fcp_sha256_begin(void) {
    return (fcp_sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}};
}

void fcp_sha256_add(fcp_sha256 *h, const void *bytes, size_t size) {
    const uint8_t *p = bytes;
    const size_t waiting = h->size % FCP_SHA256_BLOCK, missing = FCP_SHA256_BLOCK - waiting;
    h->size += size;
    if (size && (waiting || size < FCP_SHA256_BLOCK)) {
        const size_t part = size < missing ? size : missing;
        memcpy(h->rest + waiting, p, part);
        if (part < missing) return;
        add(h->state, h->rest, 1);
        p += part;
        size -= part;
    }
    add(h->state, p, size / FCP_SHA256_BLOCK);
    if (size % FCP_SHA256_BLOCK) memcpy(h->rest, p + size / FCP_SHA256_BLOCK * FCP_SHA256_BLOCK, size % FCP_SHA256_BLOCK);
}

void fcp_sha256_add_text(fcp_sha256 *h, const char *text) {
    uint64_t size = strlen(text);
    fcp_sha256_add(h, &size, sizeof size);
    fcp_sha256_add(h, text, size);
}

void fcp_sha256_end(fcp_sha256 *h, uint8_t out[FCP_SHA256_BYTES]) {
    const uint64_t bits = h->size * 8;
    uint8_t end[FCP_SHA256_BLOCK + 8] = {0x80}; /* a one, zeros up to 8 bytes before the end of a block, and the length in bits */
    const size_t zeros = (2 * FCP_SHA256_BLOCK - 8 - h->size % FCP_SHA256_BLOCK - 1) % FCP_SHA256_BLOCK;
    store_big(end + 1 + zeros, (uint32_t)(bits >> 32));
    store_big(end + 5 + zeros, (uint32_t)bits);
    fcp_sha256_add(h, end, 9 + zeros);
    for (int i = 0; i < 8; i++) store_big(out + 4 * i, h->state[i]);
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
