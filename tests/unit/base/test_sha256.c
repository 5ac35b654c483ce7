/* test_sha256.c: tests SHA-256 against libcrypto's: all lengths about the edges of blocks, in one piece and in many,
 * and files. */
#include <criterion/criterion.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/sha256.h"
#include "tests/support/temporary.h"

enum { LONGEST = 2100, HASH = FCP_SHA256_BYTES };

static uint8_t bytes[LONGEST];
static uint64_t state = 88172645463325252u;
static uint64_t draw(uint64_t sides) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (state >> 11) % sides;
}
static void fill(void) {
    for (int i = 0; i < LONGEST; i++) bytes[i] = (uint8_t)draw(256);
}

static void by_libcrypto(const void *data, size_t size, uint8_t out[HASH]) {
    cr_assert_eq(EVP_Digest(data, size, out, NULL, EVP_sha256(), NULL), 1);
}

Test(sha256, the_standards_example) {
    uint8_t hash[HASH];
    fcp_sha256_of("abc", 3, hash);
    cr_expect_arr_eq(hash,
                     "\xba\x78\x16\xbf\x8f\x01\xcf\xea\x41\x41\x40\xde\x5d\xae\x22\x23\xb0\x03\x61\xa3\x96\x17\x7a\x9c"
                     "\xb4\x10\xff\x61\xf2\x00\x15\xad",
                     HASH);
}

Test(sha256, every_length_whole_and_in_pieces) {
    fill();
    for (size_t size = 0; size <= LONGEST; size++) {
        uint8_t want[HASH], whole[HASH], pieces[HASH];
        by_libcrypto(bytes, size, want);
        fcp_sha256_of(bytes, size, whole);
        cr_assert_arr_eq(whole, want, HASH, "%zu bytes", size);
        fcp_sha256 h = fcp_sha256_begin();
        for (size_t at = 0, part; at < size; at += part) {
            part = draw(2 * SHA256_BLOCK_SIZE + 10); /* none, some, or more than a block */
            if (part > size - at) part = size - at;
            fcp_sha256_add(&h, bytes + at, part);
        }
        fcp_sha256_end(&h, pieces);
        cr_assert_arr_eq(pieces, want, HASH, "%zu bytes in pieces", size);
    }
}

Test(sha256, of_a_file) {
    char path[TEMPORARY];
    uint8_t want[HASH], got[HASH];
    fill();
    cr_assert(temporary_file(path, "sha256"));
    FILE *f = fopen(path, "w");
    size_t size = ((size_t)1 << 20) + 1000; /* read in more than one piece */
    uint8_t *large = malloc(size);
    cr_assert(f && large);
    for (size_t i = 0; i < size; i++) large[i] = bytes[i % LONGEST];
    fwrite(large, 1, size, f);
    cr_assert_eq(fclose(f), 0);
    by_libcrypto(large, size, want);
    cr_assert_eq(fcp_sha256_file(path, got), 0);
    cr_expect_arr_eq(got, want, HASH);
    unlink(path);
    cr_expect_neq(fcp_sha256_file(path, got), 0);
    free(large);
}

Test(sha256, texts_do_not_run_together) {
    uint8_t one[HASH], two[HASH];
    fcp_sha256 h = fcp_sha256_begin(), other = fcp_sha256_begin();
    fcp_sha256_add_text(&h, "ab"), fcp_sha256_add_text(&h, "c");
    fcp_sha256_add_text(&other, "a"), fcp_sha256_add_text(&other, "bc");
    fcp_sha256_end(&h, one);
    fcp_sha256_end(&other, two);
    cr_expect_arr_neq(one, two, HASH);
}
