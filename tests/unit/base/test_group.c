/* test_group.c: tests grouping: it finds for each key what a search through all elements finds. */
#include <criterion/criterion.h>

#include "compiler/base/group.h"

Test(group, items_of_each_key_in_order) {
    enum { MOST = 200, GROUPS = 20 };
    struct { uint32_t other, key; } items[MOST];
    uint32_t start[GROUPS + 2], item[MOST];
    uint64_t state = 1;
    for (uint32_t trial = 0; trial < 200; trial++) {
        uint32_t count = trial, groups = trial % (GROUPS + 1), at = 0;
        for (uint32_t i = 0; i < count; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            items[i].key = (uint32_t)(state >> 40) % (GROUPS + 1); /* some are of no group */
            if (items[i].key == GROUPS) items[i].key = UINT32_MAX;
        }
        group_by(&items[0].key, sizeof *items, count, groups, start, item, NULL);
        for (uint32_t g = 0; g < groups; g++) {
            cr_assert_eq(start[g], at);
            for (uint32_t i = 0; i < count; i++)
                if (items[i].key == g) cr_assert_eq(item[at++], i);
        }
        cr_assert_eq(start[groups], at);
    }
}

Test(group, the_example_of_the_header) {
    const uint32_t keys[] = {2, 0, 2, 1};
    uint32_t start[5], item[4];
    group_by(keys, sizeof *keys, 4, 3, start, item, NULL);
    const uint32_t starts[] = {0, 1, 2, 4}, items[] = {1, 3, 0, 2};
    for (int i = 0; i < 4; i++) cr_expect(start[i] == starts[i] && item[i] == items[i]);
}
