/* rates.c: the rungs that are timed (rungs.h): what they are, and what they must give. */
#include <string.h>

#include "tests/gpu/rungs.h"

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static void zero(const rung *r, void *in, void *other, void *out) {
    (void)r, (void)in, (void)other;
    memset(out, 0, RUNG_OUT);
}
/* Each product adds 16 to each sum. */
static uint32_t products(const rung *r, uint32_t row, uint32_t column) {
    (void)row, (void)column;
    return bits_of((float)(16 * (RATE_FEW + RATE_MANY) * r->a));
}
static uint32_t additions(const rung *r, uint32_t row, uint32_t column) {
    (void)row, (void)column;
    return bits_of((float)(r->ctas * r->b / r->c));
}
static uint32_t hops(const rung *r, uint32_t row, uint32_t column) {
    (void)row, (void)column;
    return r->a;
}

enum { TILE_ROW = 128, SHARED = 16384 };
#define RED(n)                                                                                                         \
    .ctas = 2, .threads = 256, .a = n, .b = 2, .c = 2, .number = RUNG_FLOAT, .rows = 128, .columns = 128,              \
    .prepare = zero, .expect = additions
/* The last sums of 256 columns are overwritten by the clocks. */
#define PRODUCTS(n)                                                                                                    \
    .device = RUNG_ONLY_90A, .clocks = true, .ctas = 1, .threads = 256,                                                \
    .shared = SHARED + (n < 64 ? 64 : n) * TILE_ROW, .a = 2, .number = RUNG_FLOAT, .rows = n == 256 ? 63 : 64,         \
    .columns = n, .prepare = zero, .expect = products
#define SUSPECT "rung_kernels.h's rungs of the same products"

const rung rates[] = {
    {"rate-red", "rate_red", "red.add.f32", "the places", RED(1)},
    {"rate-red.v2", "rate_red", "red.add.v2.f32", "the places", RED(2)},
    {"rate-red.v4", "rate_red", "red.add.v4.f32", "the places", RED(4), .device = RUNG_FROM_90},
    {"rate-bulk", "rate_bulk", "cp.reduce.async.bulk, rows of 512 bytes from shared memory", "the places", RED(0),
     .device = RUNG_ONLY_90A, .shared = 32768},
    {"rate-turn", "rate_turn", "a turn passes from one CTA to another", "fk_acquire, fk_release", .ctas = 2,
     .threads = 32, .a = 5, .number = RUNG_WORD, .rows = 1, .columns = 2, .prepare = zero, .expect = hops},
    {"rate-rows-32", "rate_rows_32", "m64n32k16, both operands from shared memory", SUSPECT, PRODUCTS(32)},
    {"rate-rows-64", "rate_rows_64", "m64n64k16, both operands from shared memory", SUSPECT, PRODUCTS(64)},
    {"rate-rows-128", "rate_rows_128", "m64n128k16, both operands from shared memory", SUSPECT, PRODUCTS(128)},
    {"rate-rows-256", "rate_rows_256", "m64n256k16, both operands from shared memory", SUSPECT, PRODUCTS(256)},
    {"rate-registers-32", "rate_registers_32", "m64n32k16, A from registers", SUSPECT, PRODUCTS(32),
     .a_registers = true},
    {"rate-registers-64", "rate_registers_64", "m64n64k16, A from registers", SUSPECT, PRODUCTS(64),
     .a_registers = true},
    {"rate-registers-128", "rate_registers_128", "m64n128k16, A from registers", SUSPECT, PRODUCTS(128),
     .a_registers = true},
    {"rate-registers-256", "rate_registers_256", "m64n256k16, A from registers", SUSPECT, PRODUCTS(256),
     .a_registers = true},
    {"rate-turned-64", "rate_turned_64", "m64n64k16, both operands from shared memory, MN-major", SUSPECT,
     PRODUCTS(64)},
};
const unsigned rate_count = sizeof rates / sizeof *rates;
