/* test_ptx_wire.c: executes the PTX of fk_narrow and fk_widen, and compares what they have written, and what they must
 * leave alone, with the host's rounding. */
#include <math.h>
#include <stdlib.h>

#include "codegen/kernels/abi.h"
#include "runtime/base/numeric.h"
#include "tests/machines/ptx/support_kernels.h"
#include "tests/support/splitmix.h"

enum { NUMBERS = 6000 };

static void run(ptx_module *m, const char *kernel, void *to, size_t to_bytes, const void *from, size_t from_bytes,
                uint64_t count, unsigned seed) {
    char why[PTX_ERROR] = "";
    const fk_support x = {.to = (uintptr_t)to, .from = (uintptr_t)from, .count = count};
    const ptx_range ranges[] = {{"the output", x.to, x.to + to_bytes, true}, {"the input", x.from, x.from + from_bytes,
                                                                               false}};
    cr_assert(support_run(m, kernel, &x, sizeof x, ranges, 2, seed, why), "%s: %s", kernel, why);
}

static bool same(uint16_t a, uint16_t b) {
    return a == b || (isnan(fcp_bf16_float(a)) && isnan(fcp_bf16_float(b))); /* a NaN has many forms */
}

Test(ptx, rounds_what_travels_and_makes_fp32_of_it) {
    if (!compiler()) return;
    ptx_module *m = support_module(MODEL(2, 1, 16, fp16), EMIT_SUPPORT | EMIT_WIRE); /* the wire is bf16 all the same */
    float *slot = malloc((NUMBERS + 2) * sizeof *slot), *back = malloc((NUMBERS + 2) * sizeof *back);
    uint16_t *message = malloc((NUMBERS + 2) * sizeof *message);
    cr_assert(slot && back && message);
    uint64_t state = 7;
    static const uint32_t odd[] = {0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7fc00001, 0x00000001, 0x007fffff,
                                   0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff, 0x7f7f7fff, 0x00008000};
    for (uint32_t i = 0; i < NUMBERS + 2; i++) {
        const uint32_t bits = i < sizeof odd / sizeof *odd ? odd[i] : (uint32_t)splitmix(&state);
        memcpy(&slot[i], &bits, sizeof bits);
    }
    for (unsigned seed = 0; seed < 6; seed++) {
        const uint64_t count = seed ? (splitmix(&state) % NUMBERS) / 2 * 2 : NUMBERS;
        memset(message, 0xa5, (NUMBERS + 2) * sizeof *message);
        memset(back, 0xa5, (NUMBERS + 2) * sizeof *back);
        run(m, "fk_narrow", message, (NUMBERS + 2) * sizeof *message, slot, NUMBERS * sizeof *slot, count, seed);
        run(m, "fk_widen", back, (NUMBERS + 2) * sizeof *back, message, NUMBERS * sizeof *message, count, seed);
        for (uint32_t i = 0; i < NUMBERS + 2; i++) {
            const uint16_t right = i < count ? fcp_float_bf16(slot[i]) : 0xa5a5;
            cr_assert(same(message[i], right), "%u of %llu: %a becomes %04x, not %04x", i, (unsigned long long)count,
                      (double)slot[i], message[i], right);
            const uint32_t wide = i < count ? (uint32_t)message[i] << 16 : 0xa5a5a5a5;
            cr_assert_eq(fcp_float_bits(back[i]), wide, "%u of %llu", i, (unsigned long long)count);
        }
    }
    ptx_module_free(m);
    free(slot);
    free(back);
    free(message);
}
