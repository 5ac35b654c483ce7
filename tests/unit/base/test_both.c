/* test_both.c: tests fcp_both: both pieces of work are done, in two threads, or in one where no second can be made. */
#include "runtime/base/both.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

#include "tests/support/sanitized.h"

typedef struct piece {
    int done;
    pthread_t by;
    bool sees_signals;
} piece;

static void work(void *given) {
    piece *p = given;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    p->done++;
    p->by = pthread_self();
    p->sees_signals = !sigismember(&mask, SIGINT);
}

static void check(bool apart) {
    piece first = {0}, second = {0};
    fcp_both(work, &first, &second);
    cr_expect_eq(first.done, 1);
    cr_expect_eq(second.done, 1);
    cr_expect(pthread_equal(first.by, pthread_self()));
    cr_expect_eq(!pthread_equal(second.by, pthread_self()), apart);
    cr_expect(first.sees_signals, "the caller's thread keeps its signals");
    cr_expect_eq(second.sees_signals, !apart);
}

Test(both, in_two_threads) {
    for (int i = 0; i < 3; i++) check(true);
}

/* No memory for another stack. Sanitizers need memory for themselves. */
Test(both, where_no_thread_can_be_made) {
    struct rlimit limit = {0, RLIM_INFINITY};
    if (SANITIZED) return;
    getrlimit(RLIMIT_AS, &limit);
    struct rlimit none = {0, limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_AS, &none), 0);
    check(false);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
    check(true);
}
