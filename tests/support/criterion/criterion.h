/* criterion.h: tests that include <criterion/criterion.h> get this file: Criterion's own header, with assertions that
 * compile to less code.
 *
 * Requires: Criterion 2.4, whose cr_assert_impl this replaces.
 * Gives: the same assertions, and the same reports of failures.
 * Cost: a function call for each assertion that fails. Criterion's own assertions have the code of the report inline,
 *     with which unit tests take half as long again to compile.
 * Source: Criterion's own header, which is included here.
 */
#ifndef TESTS_CRITERION_H
#define TESTS_CRITERION_H
#include_next <criterion/criterion.h>
#include <stdarg.h>

/* Reports an assertion that failed: with the test's own message, if it has one, else with Criterion's. Formats begin
 * with an x, since none may be empty. */
__attribute__((unused, noinline, cold, format(printf, 4, 5))) static void
criterion_failed(const char *of_file, int of_line, char *of_criterion, const char *own_format, ...) {
    char *own = NULL;
    va_list values;
    va_start(values, own_format);
    cr_vasprintf(&own, own_format, values);
    va_end(values);
    struct criterion_assert_stats report = {
        .message = own && own[1] ? own + 1 : of_criterion, .file = of_file, .line = (unsigned)of_line};
    criterion_send_assert(&report);
    cr_asprintf_free(own);
    cr_asprintf_free(of_criterion);
}
#undef cr_assert_impl
#define cr_assert_impl(Fail, Condition, Dummy, Kind, Values, ...)                                                      \
    do {                                                                                                               \
        if (Condition) {                                                                                               \
            cri_asserts_passed_incr();                                                                                 \
        } else {                                                                                                       \
            criterion_failed(__FILE__, __LINE__, cr_translate_assert_msg(Kind, "" CR_IDENTITY Values),                 \
                             "x" __VA_ARGS__);                                                                         \
            Fail();                                                                                                    \
        }                                                                                                              \
    } while (0)
#endif
