/* orders.h: lets a test choose the order in which fcp_both (runtime/base/both.h) does its two pieces of work: the first
 * or the second one first, both in two threads, or both as on a machine with one processor. Results must not depend on
 * the order.
 *
 * This file defines fcp_both in the place of the product's, so only one file of a test may include it.
 */
#ifndef ORDERS_H
#define ORDERS_H
#include <pthread.h>

#include "runtime/base/both.h"
#include "tests/support/plain.h"

static enum { FIRST_FIRST, SECOND_FIRST, TOGETHER, ONE_PROCESSOR, ORDERS } order;
static int asked; /* how often two pieces of work came */

typedef struct order_task {
    void (*work)(void *);
    void *on;
} order_task;

static void *order_run(void *given) {
    const order_task *t = given;
    t->work(t->on);
    return NULL;
}

bool fcp_both_at_once(void) { return order != ONE_PROCESSOR; }

void fcp_both(void (*work)(void *), void *first, void *second) {
    pthread_t thread;
    order_task other = {work, second};
    __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED);
    if (order == SECOND_FIRST) work(second);
    if (order == TOGETHER) cr_assert(pthread_create(&thread, NULL, order_run, &other) == 0);
    work(first);
    if (order == FIRST_FIRST || order == ONE_PROCESSOR) work(second);
    if (order == TOGETHER) pthread_join(thread, NULL);
}

/* Each pair has its own thread here. */
void fcp_both_begin(void) {}
void fcp_both_end(void) {}
#endif
