/* test_carve.c: tests that arrays of one allocation are zeros, aligned and apart, and that sizes beyond memory fail. */
#include <criterion/criterion.h>
#include <stdalign.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/carve.h"

Test(carve, arrays_are_zeros_aligned_and_apart) {
    char *bytes;
    uint64_t *words;
    void **none;
    uint16_t *halves;
    const fcp_carved arrays[] = {{&bytes, 3, 1}, {&words, 5, sizeof *words}, {&none, 0, sizeof *none},
                                 {&halves, 7, sizeof *halves}};
    void *room = FCP_CARVE(arrays);
    cr_assert_not_null(room);
    for (int i = 0; i < 3; i++) cr_assert_eq(bytes[i], 0);
    for (int i = 0; i < 5; i++) cr_assert_eq(words[i], 0);
    for (int i = 0; i < 7; i++) cr_assert_eq(halves[i], 0);
    cr_assert_eq((uintptr_t)words % alignof(uint64_t), 0);
    cr_assert_eq((uintptr_t)none % alignof(max_align_t), 0);
    cr_assert_eq((uintptr_t)halves % alignof(uint16_t), 0);
    memset(bytes, 1, 3); /* what is written to one is in no other */
    memset(words, 2, 5 * sizeof *words);
    memset(halves, 3, 7 * sizeof *halves);
    cr_assert_eq(bytes[2], 1);
    cr_assert_eq(words[0], UINT64_C(0x0202020202020202));
    cr_assert_eq(words[4], UINT64_C(0x0202020202020202));
    cr_assert_eq(halves[0], 0x0303);
    free(room);
}

Test(carve, too_much_is_refused_and_leaves_the_pointers) {
    char mark, *first = &mark, *second = &mark;
    const fcp_carved product[] = {{&first, 1, 1}, {&second, SIZE_MAX / 2, 4}};
    const fcp_carved sum[] = {{&first, SIZE_MAX / 4, 1}, {&second, SIZE_MAX / 4 + 64, 1}};
    cr_assert_null(FCP_CARVE(product));
    cr_assert_null(FCP_CARVE(sum));
    cr_assert_eq(first, &mark);
    cr_assert_eq(second, &mark);
}
