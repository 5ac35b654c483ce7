/* plain.h: replaces <criterion/criterion.h> in tests that also run under the thread sanitizer. Criterion forks each
 * test and maps memory that this sanitizer needs for itself. So under it, tests run one after another in one process,
 * and the first failure ends that process. In all other builds, Criterion is used. */
#ifndef PLAIN_H
#define PLAIN_H
#if defined(__SANITIZE_THREAD__)
#define PLAIN_TESTS
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define PLAIN_TESTS
#endif
#endif
#ifndef PLAIN_TESTS
#include <criterion/criterion.h>
#else
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct plain_test {
    const char *suite, *name;
    void (*body)(void);
    struct plain_test *next;
};
static struct plain_test *plain_first, **plain_last = &plain_first;

#define Test(Suite, Name)                                                                                              \
    static void Suite##_##Name(void);                                                                                  \
    __attribute__((constructor)) static void Suite##_##Name##_add(void) {                                              \
        static struct plain_test test = {#Suite, #Name, Suite##_##Name, NULL};                                         \
        *plain_last = &test;                                                                                           \
        plain_last = &test.next;                                                                                       \
    }                                                                                                                  \
    static void Suite##_##Name(void)

/* The condition's text is printed as it is: one with a % would be a wrong format. */
#define cr_assert(condition, ...) ((condition) ? (void)0 : (PLAIN_SAY(#condition), PLAIN_FAIL(__VA_ARGS__)))
#define PLAIN_SAY(Text) fprintf(stderr, "%s:%d: failed: %s", __FILE__, __LINE__, Text)
#define PLAIN_FAIL(...) (fprintf(stderr, " " __VA_ARGS__), fputc('\n', stderr), exit(1))
#define cr_assert_null(x) cr_assert((x) == NULL)
#define cr_assert_not_null(x) cr_assert((x) != NULL)

int main(int argc, char **argv) {
    int run = 0;
    for (struct plain_test *t = plain_first; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1])) continue;
        t->body();
        run++;
    }
    printf("[====] Synthesis: Tested: %d | Passing: %d | Failing: 0 | Crashing: 0\n", run, run);
    return run == 0;
}
#endif
#endif
