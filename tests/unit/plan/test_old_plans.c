/* test_old_plans.c: plan files of earlier versions are refused by their headers, before anything else of them is read, and
 * the error says which version they are of and what to do. The headers are those of files that these versions wrote. */
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "runtime/base/whole_file.h"
#include "runtime/plan/file.h"

enum { WORDS = (sizeof(file_header) - sizeof FCP_MAGIC + 1) / 4 };

/* What stands behind the eight bytes of the magic, as numbers of 32 bits; number i is of version i + 1. */
static const uint32_t headers[][WORDS] = {
    {704, 1, 1, 20, 0, 0, 0, 0, 2752, 0, 0, 0, 0x6aa8beb7, 0xf8ae4ef1},
    {1024, 2, 2, 29, 0, 0, 0, 0, 5760, 0, 0, 0, 0xbd8a4532, 0x9a0eb068},
    {1024, 3, 3, 29, 0, 0, 0, 0, 5696, 0, 0, 0, 0x2ab5a55e, 0x686874d0},
    {1024, 4, 4, 29, 0, 0, 0, 0, 5760, 0, 0, 0, 0x70a5990c, 0xe48a1706},
    {1024, 5, 5, 29, 0, 0, 0, 0, 5760, 0, 0, 0, 0x4d742cda, 0xcaf38c7a},
    {1024, 6, 6, 29, 0, 0, 0, 0, 2240, 0, 0, 0, 0xc8fbbc0a, 0x1229d921},
};

Test(old_plans, refused_by_version) {
    cr_assert_eq(sizeof headers / sizeof *headers, FCP_PLAN_VERSION - 1,
                 "add the header of a plan of the version before this one");
    for (unsigned version = 1; version < FCP_PLAN_VERSION; version++) {
        uint8_t bytes[sizeof(file_header)] = FCP_MAGIC;
        char words[80];
        fcp_plan *plan = NULL;
        fcp_error err;
        memcpy(bytes + sizeof FCP_MAGIC - 1, headers[version - 1], sizeof *headers);
        cr_expect_eq(fcp_plan_load_memory(bytes, sizeof bytes, &plan, &err), FCP_E_PLAN_VERSION, "version %u", version);
        snprintf(words, sizeof words, "it is of version %u, and this is version %u; compile it again", version,
                 FCP_PLAN_VERSION);
        cr_expect(strstr(err.message, words), "%s", err.message);
        cr_expect_null(plan);
    }
}
