/* test_both.c: tests fcp_both: it does both pieces of work, in two threads, or in one if no second thread can be made
 * or if it would be of no use. */
#define _GNU_SOURCE /* sched_setaffinity */
#include "runtime/base/both.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
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
    apart = apart && fcp_both_at_once();
    cr_expect_eq(!pthread_equal(second.by, pthread_self()), apart);
    cr_expect(first.sees_signals, "the caller's thread keeps its signals");
    cr_expect_eq(second.sees_signals, !apart);
}

Test(both, in_two_threads) {
    for (int i = 0; i < 3; i++) check(true);
}

/* One thread serves many pairs, and ends; a pair within a pair gets one of its own. */
static void within(void *given) {
    piece *p = given;
    if (p) work(p);
    else check(true);
}

Test(both, share_a_thread) {
    pthread_t first_by = pthread_self();
    fcp_both_begin();
    fcp_both_begin();
    for (int i = 0; i < 100; i++) {
        piece second = {0};
        fcp_both(within, NULL, &second);
        cr_expect_eq(second.done, 1);
        if (!i) first_by = second.by;
        cr_expect(pthread_equal(second.by, first_by));
        if (i == 50) fcp_both_end();
    }
    fcp_both_end();
    check(true);
    fcp_both_begin(); /* nobody needs it */
    fcp_both_end();
}

/* Held to one processor, a thread does both itself. */
Test(both, on_one_processor) {
    cpu_set_t all, one;
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
    cr_expect_not(fcp_both_at_once());
    check(false);
    cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
    cr_expect_eq(fcp_both_at_once(), CPU_COUNT(&all) > 1);
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
