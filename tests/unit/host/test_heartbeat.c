/* test_heartbeat.c: tests the heartbeats by which ranks know that the others are alive, and a whole session over "tcp".
 * Each rank is a thread of one process, so that the thread sanitizer sees all of them. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/exec/session.h"
#include "runtime/host/heartbeat.h"
#include "runtime/judge/packed.h"
#include "tests/support/plan_of.h"

/* --- what is known of others -------------------------------------------------------------------------------------- */

/* Three ranks, of which this process is number 0. Of the others a beat is heard at each of this one's, unless `mute`.
 */
enum { OTHERS = 3 };
typedef struct world {
    fcp_heartbeat h;
    _Atomic bool mute[OTHERS], ends[OTHERS], got_on[OTHERS];
    _Atomic uint32_t beats, busy; /* this process's, and how many of them said that it has got on */
} world;

static void beats(void *context, bool got_on) {
    world *w = context;
    w->beats++;
    w->busy += got_on;
    for (uint32_t r = 1; r < OTHERS; r++)
        if (w->ends[r]) fcp_heartbeat_ended(&w->h, r);
        else if (!w->mute[r]) fcp_heartbeat_heard(&w->h, r, w->got_on[r]);
}

static void begin(world *w) {
    cr_assert(fcp_heartbeat_begin(&w->h, OTHERS, 1, beats, w, NULL) == FCP_OK);
}
static void doze(void) { nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); }
static void await_beats(world *w, uint32_t count) {
    for (const uint32_t until = w->beats + count; w->beats < until;) doze();
}

/* A rank that has been heard of and says nothing more is silent, until it is heard again. One that was never heard of,
 * or that has ended, is not. */
Test(heartbeat, finds_who_is_silent) {
    static world w;
    fcp_error err = {0};
    w.mute[1] = true;
    begin(&w);
    await_beats(&w, 12);
    cr_assert(fcp_heartbeat_check(&w.h, &err) == FCP_OK, "%s", err.message);
    w.mute[1] = false;
    await_beats(&w, 2);
    w.mute[2] = true;
    while (fcp_heartbeat_check(&w.h, &err) == FCP_OK) doze();
    cr_assert(err.code == FCP_E_RUN && err.where.rank == 2);
    cr_assert(strstr(err.message, "rank 2 has not been heard of for 1 s"), "%s", err.message);
    w.mute[2] = false;
    while (fcp_heartbeat_check(&w.h, &err) != FCP_OK) doze();
    w.ends[1] = true;
    await_beats(&w, 12);
    cr_assert(fcp_heartbeat_check(&w.h, &err) == FCP_OK, "%s", err.message);
    fcp_heartbeat_end(&w.h);
}

/* A wait goes on while another rank gets on, and ends once none does. */
Test(heartbeat, waits_while_somebody_gets_on) {
    static world w;
    w.got_on[2] = true;
    begin(&w);
    fcp_heartbeat_wait wait = fcp_heartbeat_wait_begin(&w.h);
    for (const uint32_t until = w.beats + 12; w.beats < until; doze())
        cr_assert(!fcp_heartbeat_wait_ends(&w.h, &wait), "12 beats are more than a time limit");
    w.got_on[2] = false;
    while (!fcp_heartbeat_wait_ends(&w.h, &wait)) doze();
    fcp_heartbeat_moved(&w.h);
    await_beats(&w, 2);
    cr_assert(!fcp_heartbeat_wait_ends(&w.h, &wait), "bytes have been moved");
    fcp_heartbeat_end(&w.h);
}

/* Computing is getting on, moving bytes is; sleeping is not, nor asking again and again whether something has come. */
Test(heartbeat, says_whether_this_process_gets_on) {
    static world w;
    uint64_t mark = 0;
    begin(&w);
    await_beats(&w, 1);
    uint32_t before = w.busy, beat = w.beats;
    await_beats(&w, 3);
    cr_assert(w.busy == before, "it slept, and %u of %u beats say otherwise", w.busy - before, w.beats - beat);
    while (w.busy == before) continue;
    await_beats(&w, 1);
    before = w.busy;
    fcp_heartbeat_moved(&w.h);
    while (w.busy == before) doze();
    fcp_heartbeat_idle(&w.h, &mark);
    for (beat = w.beats; w.beats < beat + 1;) fcp_heartbeat_idle(&w.h, &mark);
    before = w.busy;
    for (beat = w.beats; w.beats < beat + 3;) fcp_heartbeat_idle(&w.h, &mark);
    cr_assert(w.busy == before, "it only asked, and %u beats say otherwise", w.busy - before);
    fcp_heartbeat_end(&w.h);
}

/* --- a session over tcp ------------------------------------------------------------------------------------------- */

enum { RANKS = 3, INPUTS = 1 << FCP_TENSOR_Q | 1 << FCP_TENSOR_K | 1 << FCP_TENSOR_V };
static fcp_plan *plan;
static char id[FCP_ID_BYTES];

static void *one_rank(void *argument) {
    const uint32_t rank = (uint32_t)(uintptr_t)argument;
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = rank, .id = id};
    const fcp_session_options options = {.size = sizeof options, .transport = "tcp", .start = &start, .timeout_s = 100,
                                         .compute_threads = 1};
    fcp_session *session = NULL;
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_error err = {0};
    uint32_t all[RANKS] = {0};
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_packed_alloc(&shape, INPUTS | fcp_pass_outputs(FCP_FORWARD), &packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, INPUTS, 1, &packed);
    for (int i = 0; i < 3; i++)
        cr_assert(fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_session_gather(session, &rank, sizeof rank, all, &err) == FCP_OK, "%s", err.message);
    for (uint32_t r = 0; r < RANKS; r++) cr_assert(all[r] == r);
    fcp_packed_free(&packed);
    fcp_session_free(session);
    return NULL;
}

Test(heartbeat, ranks_that_are_threads) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t size = sizeof at;
    pthread_t threads[RANKS];
    const int s = socket(AF_INET, SOCK_STREAM, 0);
    cr_assert(!bind(s, (struct sockaddr *)&at, sizeof at) && !getsockname(s, (struct sockaddr *)&at, &size));
    close(s);
    snprintf(id, sizeof id, "127.0.0.1:%u:%032x", ntohs(at.sin_port), (unsigned)getpid());
    plan = plan_of("model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { gpus = 3 }\n"
                   "batch { lengths = [768] }\nplan { mask = full; block = 128; passes = forward }\n");
    for (uintptr_t r = 0; r < RANKS; r++) cr_assert(pthread_create(&threads[r], NULL, one_rank, (void *)r) == 0);
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    fcp_plan_free(plan);
}
