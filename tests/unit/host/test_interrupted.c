/* test_interrupted.c: tests that a caller can end a run on the host: how often and in which thread the run asks the
 * caller, that the run ends soon after the caller says so, and that the session then computes the same bits as
 * before. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "runtime/base/clock.h"
#include "runtime/judge/packed.h"
#include "tests/support/hand_plan.h"
#include "tests/support/plain.h"

enum { ALL = (1 << FCP_TENSORS) - 1, TOKENS = 4096 };
/* The caller is promised a question every 50 ms. A machine that is busy with other tests may keep a thread waiting for
 * longer than that. So the longest gap is measured in the thread's own processor time, and of the clock's time only the
 * mean gap. Sanitizers make a thread ten times slower. */
enum { GAP_MS = 400, END_MS = 4000 };

struct caller {
    pthread_t thread;
    int asked, yes_from;      /* yes_from: he wants no more from that question on; 0: never */
    double last, longest_gap; /* seconds of the thread's processor time */
    double said;              /* when he said yes, by the clock */
    bool elsewhere;           /* he was asked in another thread, or again after he had said yes */
};

static double thread_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void end_gap(struct caller *c) {
    const double now = thread_clock();
    if (now - c->last > c->longest_gap) c->longest_gap = now - c->last;
    c->last = now;
}

static int interrupted(void *context) {
    struct caller *c = context;
    end_gap(c);
    c->elsewhere |= !pthread_equal(c->thread, pthread_self()) || c->said > 0;
    if (++c->asked != c->yes_from) return 0;
    c->said = fcp_clock();
    return 1;
}

static fcp_session *open(const fcp_plan *plan, uint32_t threads, struct caller *c) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_session_options options = {.size = sizeof options, .compute_threads = threads,
                                         .interrupted = c ? interrupted : NULL, .interrupted_context = c};
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    return session;
}

static struct caller listening(int yes_from) {
    return (struct caller){.thread = pthread_self(), .yes_from = yes_from, .last = thread_clock()};
}

/* Runs a pass, and returns its seconds. */
static double run(fcp_session *session, const hand *h, fcp_pass pass, fcp_packed *packed, fcp_code expected) {
    fcp_error err = {0};
    const double begun = fcp_clock();
    const fcp_code code = fcp_session_run_packed(session, &h->plan, pass, packed, NULL, &err);
    cr_assert(code == expected, "%s", err.message);
    if (code) cr_assert(strcmp(err.message, "interrupted") == 0, "%s", err.message);
    return fcp_clock() - begun;
}

/* A copy of what a pass has written. */
static char *outputs(const fcp_shape *shape, fcp_pass pass, const fcp_packed *packed, size_t *out_size) {
    char *bytes = NULL;
    *out_size = 0;
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (!(fcp_pass_outputs(pass) >> t & 1)) continue;
        const size_t size = shape->tokens * fcp_tensor_token_bytes(shape, (fcp_tensor)t);
        bytes = realloc(bytes, *out_size + size);
        memcpy(bytes + *out_size, packed->t[t], size);
        *out_size += size;
    }
    return bytes;
}

/* The last rank's computing is done in the caller's thread. */
static void interrupts(fcp_pass pass, uint32_t ranks, uint32_t kv_heads, uint32_t block, uint32_t threads,
                       const char *mask) {
    const uint64_t lengths[] = {TOKENS};
    hand *h = hand_make(ranks, 4, kv_heads, 64, FCP_FP32, block, mask, lengths, 1);
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    cr_assert_not_null(h);
    fcp_plan_shape(&h->plan, &shape);
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(&shape, ALL, 11, &packed);
    struct caller c = {0};
    fcp_session *alone = open(&h->plan, threads, NULL), *session = open(&h->plan, threads, &c);
    size_t size, size_again;
    if (pass == FCP_BACKWARD) run(alone, h, FCP_FORWARD, &packed, FCP_OK);
    run(alone, h, pass, &packed, FCP_OK);
    char *want = outputs(&shape, pass, &packed, &size);

    c = listening(0);
    const double took = run(session, h, pass, &packed, FCP_OK);
    end_gap(&c);
    printf("%u ranks, %u threads, pass %d: %.0f ms, asked %d times, at least every %.0f ms of the processor\n", ranks,
           threads, pass, 1e3 * took, c.asked, 1e3 * c.longest_gap);
    cr_assert(c.longest_gap < 1e-3 * GAP_MS && !c.elsewhere, "asked %d times, a gap of %.0f ms", c.asked,
              1e3 * c.longest_gap);
    cr_assert(took < 1e-3 * GAP_MS * (c.asked + 1), "asked %d times in %.0f ms", c.asked, 1e3 * took);

    c = listening(1);
    run(session, h, pass, &packed, FCP_E_INTERRUPTED);
    const double end = fcp_clock() - c.said;
    cr_assert(c.asked == 1 && !c.elsewhere && end < 1e-3 * END_MS, "asked %d times, ended after %.0f ms", c.asked,
              1e3 * end);

    c = listening(0);
    run(session, h, pass, &packed, FCP_OK);
    char *got = outputs(&shape, pass, &packed, &size_again);
    cr_assert(size == size_again && memcmp(got, want, size) == 0, "other bits than before");
    free(want);
    free(got);
    fcp_session_free(alone);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    hand_free(h);
}

Test(interrupt, one_rank_in_the_callers_thread) { interrupts(FCP_FORWARD, 1, 2, 512, 1, "full"); }
Test(interrupt, one_rank_with_helpers) { interrupts(FCP_BACKWARD, 1, 2, 4096, 2, "causal"); }
Test(interrupt, ranks_that_wait_for_each_other) { interrupts(FCP_BACKWARD, 3, 2, 128, 2, "causal"); }
/* The last rank has nothing, so the caller waits for other threads all the time. */
Test(interrupt, a_rank_without_work) { interrupts(FCP_FORWARD, 2, 1, 4096, 1, "full"); }
