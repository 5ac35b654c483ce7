/* test_errors.c: tests what fcp_fail and fcp_fail_at put into an error. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/fcp.h"

Test(errors, an_error_without_a_place) {
    fcp_error err;
    memset(&err, 0xa5, sizeof err);
    cr_assert_eq(fcp_fail(&err, FCP_E_RUN, "%d of %s", 3, "four"), FCP_E_RUN);
    cr_assert_eq(err.code, FCP_E_RUN);
    cr_assert_str_eq(err.message, "3 of four");
    cr_assert_str_eq(err.file, "");
    cr_assert(err.line == 0 && err.column == 0);
    const fcp_where none = FCP_WHERE_NONE;
    cr_assert(memcmp(&err.where, &none, sizeof none) == 0);
    cr_assert(none.rank == FCP_NOWHERE && none.pass == FCP_NOWHERE && none.stage == FCP_NOWHERE);
    cr_assert(none.queue == FCP_NOWHERE && none.instruction == FCP_NOWHERE);
}

Test(errors, an_error_with_a_place) {
    fcp_error err;
    const fcp_where where = {.rank = 7, .pass = FCP_BACKWARD, .stage = 2, .queue = 1, .instruction = 5};
    cr_assert_eq(fcp_fail_at(&err, FCP_E_RUN, where, "gone"), FCP_E_RUN);
    cr_assert(memcmp(&err.where, &where, sizeof where) == 0);
    cr_assert_str_eq(err.message, "gone");
}

/* A message may be made of the message that was there. */
Test(errors, an_error_of_itself) {
    fcp_error err;
    fcp_fail(&err, FCP_E_RUN, "no memory");
    fcp_fail(&err, err.code, "rank %d: %s", 3, err.message);
    cr_assert_str_eq(err.message, "rank 3: no memory");
    cr_assert_eq(fcp_fail(NULL, FCP_E_RUN, "nobody listens"), FCP_E_RUN);
}
