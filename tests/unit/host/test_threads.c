/* test_threads.c: tests the transport between threads, and what the executor does when another rank never comes. */
#include <stdio.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/judge/packed.h"
#include "runtime/host/executor.h"
#include "tests/support/error_place.h"
#include "tests/support/hand_plan.h"
#include "tests/support/plain.h"

/* --- the transport ------------------------------------------------------------------------------------------------ */

enum { RANKS = 12, ROUNDS = 40 };

static fcp_net *net;

static uint32_t shift_of(uint32_t round) { return 1 + round % (RANKS - 1); }

static size_t size_of(uint32_t from, uint32_t round) { return (from * 37 + round * 101) % 5000; }

static unsigned char byte_of(uint32_t from, uint32_t round, uint32_t fabric, size_t i) {
    return (unsigned char)(from * 3 + round * 5 + fabric * 7 + i * 11);
}

/* In every round a rank sends to the rank `shift` after it over both fabrics, in two pieces, and gets three. */
static void *exchange(void *argument) {
    uint32_t rank = (uint32_t)(uintptr_t)argument;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        unsigned char out[2][5000], in[2][5000];
        uint32_t to = (rank + shift_of(round)) % RANKS, from = (rank + RANKS - shift_of(round)) % RANKS;
        size_t sent = size_of(rank, round), got = size_of(from, round);
        fcp_wire wires[4];
        for (uint32_t f = 0; f < 2; f++) {
            for (size_t i = 0; i < sent; i++) out[f][i] = byte_of(rank, round, f, i);
            memset(in[f], 0, sizeof in[f]);
            wires[f] = (fcp_wire){.peer = to, .dir = FCP_SEND, .fabric = (uint8_t)f, .segments = 2,
                                  .segment = {{out[f], sent / 2}, {out[f] + sent / 2, sent - sent / 2}}};
            wires[3 - f] =
                (fcp_wire){.peer = from,
                           .dir = FCP_RECV,
                           .fabric = (uint8_t)f,
                           .segments = 3,
                           .segment = {{in[f], got / 3}, {in[f] + got / 3, 0}, {in[f] + got / 3, got - got / 3}}};
        }
        cr_assert(fcp_net_launch(net, rank, 0, round, wires, 4, NULL) == FCP_OK);
        cr_assert(fcp_net_wait(net, rank, 60000, NULL, NULL) == FCP_WAIT_DONE);
        for (uint32_t f = 0; f < 2; f++)
            for (size_t i = 0; i < got; i++) cr_assert(in[f][i] == byte_of(from, round, f, i));
    }
    return NULL;
}

Test(threads, messages_meet_their_receives) {
    pthread_t threads[RANKS];
    cr_assert(fcp_net_open(&fcp_transport_threads, RANKS, 1, NULL, &net, NULL) == FCP_OK);
    for (uintptr_t r = 0; r < RANKS; r++) cr_assert(pthread_create(&threads[r], NULL, exchange, (void *)r) == 0);
    for (int r = 0; r < RANKS; r++) pthread_join(threads[r], NULL);
    fcp_net_close(net);
}

Test(threads, a_group_completes_as_a_whole) {
    char a[4] = "abc", b[4] = "", c[4] = "";
    fcp_wire sends[2] = {{.peer = 1, .dir = FCP_SEND, .segments = 1, .segment = {{a, 4}}},
                         {.peer = 1, .dir = FCP_SEND, .fabric = 1, .segments = 1, .segment = {{a, 4}}}};
    fcp_wire first = {.peer = 0, .dir = FCP_RECV, .segments = 1, .segment = {{b, 4}}};
    fcp_wire second = {.peer = 0, .dir = FCP_RECV, .fabric = 1, .segments = 1, .segment = {{c, 4}}};
    uint32_t wire = 9;
    cr_assert(fcp_net_open(&fcp_transport_threads, 2, 1, NULL, &net, NULL) == FCP_OK);
    cr_assert(fcp_net_launch(net, 0, 1, 5, sends, 2, NULL) == FCP_OK);
    a[0] = 'x'; /* the message was made at the launch */
    cr_assert(fcp_net_wait(net, 0, 10, &wire, NULL) == FCP_WAIT_PENDING && wire < 2);
    cr_assert(fcp_net_launch(net, 1, 1, 5, &first, 1, NULL) == FCP_OK);
    cr_assert(fcp_net_wait(net, 1, 60000, NULL, NULL) == FCP_WAIT_DONE);
    cr_assert(strcmp(b, "abc") == 0);
    cr_assert(fcp_net_wait(net, 0, 10, &wire, NULL) == FCP_WAIT_PENDING && wire == 1);
    cr_assert(fcp_net_launch(net, 1, 1, 5, &second, 1, NULL) == FCP_OK);
    cr_assert(fcp_net_wait(net, 1, 60000, NULL, NULL) == FCP_WAIT_DONE);
    cr_assert(fcp_net_wait(net, 0, 10, NULL, NULL) == FCP_WAIT_DONE);
    fcp_net_close(net);
}

Test(threads, pass_round_and_fabric_must_agree) {
    char a = 1, b = 0;
    fcp_wire send = {.peer = 1, .dir = FCP_SEND, .segments = 1, .segment = {{&a, 1}}};
    const struct { uint32_t pass, round; uint8_t fabric; } other[] = {{1, 4, 0}, {0, 5, 0}, {0, 4, 1}};
    cr_assert(fcp_net_open(&fcp_transport_threads, 3, 1, NULL, &net, NULL) == FCP_OK);
    cr_assert(fcp_net_launch(net, 0, 0, 4, &send, 1, NULL) == FCP_OK);
    for (int i = 0; i < 3; i++) {
        fcp_wire receive = {.peer = 0, .dir = FCP_RECV, .fabric = other[i].fabric, .segments = 1, .segment = {{&b, 1}}};
        uint32_t wire;
        cr_assert(fcp_net_launch(net, 1, other[i].pass, other[i].round, &receive, 1, NULL) == FCP_OK);
        cr_assert(fcp_net_wait(net, 1, 1, &wire, NULL) == FCP_WAIT_PENDING);
    }
    fcp_net_reset(net);
    fcp_net_close(net);
}

Test(threads, sizes_that_differ_are_an_error) {
    char a[8] = {0}, b[8];
    fcp_error err;
    fcp_wire send = {.peer = 1, .dir = FCP_SEND, .segments = 1, .segment = {{a, 8}}};
    fcp_wire receive = {.peer = 0, .dir = FCP_RECV, .segments = 1, .segment = {{b, 7}}};
    cr_assert(fcp_net_open(&fcp_transport_threads, 2, 1, NULL, &net, NULL) == FCP_OK);
    cr_assert(fcp_net_launch(net, 0, 0, 0, &send, 1, NULL) == FCP_OK);
    cr_assert(fcp_net_launch(net, 1, 0, 0, &receive, 1, NULL) == FCP_OK);
    cr_assert(fcp_net_wait(net, 1, 60000, NULL, &err) == FCP_WAIT_FAILED);
    cr_assert(strstr(err.message, "8 bytes from rank 0 where 7"), "%s", err.message);
    fcp_net_close(net);
}

static void *wait_forever(void *argument) {
    (void)argument;
    char b;
    fcp_wire receive = {.peer = 0, .dir = FCP_RECV, .segments = 1, .segment = {{&b, 1}}};
    cr_assert(fcp_net_launch(net, 1, 0, 0, &receive, 1, NULL) == FCP_OK);
    return fcp_net_wait(net, 1, 600000, NULL, NULL) == FCP_WAIT_ABORTED ? argument : NULL;
}

Test(threads, abort_wakes_whoever_waits) {
    pthread_t thread;
    void *result;
    int mark;
    cr_assert(fcp_net_open(&fcp_transport_threads, 2, 1, NULL, &net, NULL) == FCP_OK);
    cr_assert(pthread_create(&thread, NULL, wait_forever, &mark) == 0);
    fcp_net_abort(net);
    pthread_join(thread, &result);
    cr_assert(result == &mark);
    fcp_net_reset(net); /* and the net can be used again */
    char a = 7, b = 0;
    fcp_wire send = {.peer = 1, .dir = FCP_SEND, .segments = 1, .segment = {{&a, 1}}};
    fcp_wire receive = {.peer = 0, .dir = FCP_RECV, .segments = 1, .segment = {{&b, 1}}};
    cr_assert(fcp_net_launch(net, 0, 0, 0, &send, 1, NULL) == FCP_OK);
    cr_assert(fcp_net_launch(net, 1, 0, 0, &receive, 1, NULL) == FCP_OK);
    cr_assert(fcp_net_wait(net, 1, 60000, NULL, NULL) == FCP_WAIT_DONE && b == 7);
    fcp_net_close(net);
}

Test(threads, malformed_wires_are_refused) {
    char a;
    fcp_wire wires[] = {{.peer = 2, .segments = 1, .segment = {{&a, 1}}},
                        {.peer = 0, .segments = 1, .segment = {{&a, 1}}},
                        {.peer = 1, .dir = 2},
                        {.peer = 1, .fabric = FCP_FABRICS},
                        {.peer = 1, .segments = FCP_SEGMENTS + 1}};
    cr_assert(fcp_net_open(&fcp_transport_threads, 2, 1, NULL, &net, NULL) == FCP_OK);
    for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
        cr_assert(fcp_net_launch(net, 0, 0, 0, &wires[i], 1, NULL) == FCP_E_ARGUMENT, "wire %zu", i);
    cr_assert(fcp_net_launch(net, 2, 0, 0, wires, 0, NULL) == FCP_E_ARGUMENT);
    cr_assert(fcp_net_launch(net, 1, 0, 0, wires, 0, NULL) == FCP_OK); /* an empty group is complete */
    cr_assert(fcp_net_wait(net, 1, 0, NULL, NULL) == FCP_WAIT_DONE);
    fcp_net_close(net);
}

/* --- the executor: plans that no verifier would pass -------------------------------------------------------------- */

static fcp_code run(hand *h, fcp_pass pass, uint32_t timeout_s, fcp_error *err) {
    fcp_session *session;
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_session_options options = {.size = sizeof options, .timeout_s = timeout_s, .compute_threads = 2};
    fcp_plan_shape(&h->plan, &shape);
    cr_assert(fcp_session_create(&h->plan, &options, &session, err) == FCP_OK, "%s", err->message);
    cr_assert(fcp_packed_alloc(&shape, (1 << FCP_TENSORS) - 1, &packed, err) == FCP_OK);
    fcp_packed_draw(&shape, (1 << FCP_TENSORS) - 1, 3, &packed);
    memset(packed.t[FCP_TENSOR_LSE], 0, shape.tokens * shape.heads * sizeof(float));
    fcp_code code = fcp_session_run_packed(session, &h->plan, pass, &packed, NULL, err);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    return code;
}

static const uint64_t lengths[] = {500, 400, 130};

static hand *make(void) {
    hand *h = hand_make(3, 2, 1, 16, FCP_FP32, 128, "causal", lengths, 3);
    cr_assert_not_null(h);
    return h;
}

/* The n-th LAUNCH of a rank's stream with a transfer in this direction. */
static fcp_instr *find_launch(hand *h, fcp_pass pass, uint32_t rank, uint32_t dir, uint32_t n) {
    const fcp_stream *s = fcp_stream_of(&h->plan, pass, rank, FCP_COMM);
    for (uint32_t i = 0; i < s->count; i++) {
        fcp_instr *x = &h->instrs[s->first + i];
        if (x->op == FCP_OP_LAUNCH && x->b && h->transfers[x->a].dir == dir && n-- == 0) return x;
    }
    return NULL;
}

/* Runs a plan in which one rank waits for ever, until a run fails with `text`, which names that rank.
 *
 * Other ranks wait for that rank, and begin to wait a little later. Each has a time limit. If the machine stops threads
 * for long, the limit of another rank may pass first, and the error names that rank in place of the first one. So there
 * are up to eight attempts. Each must fail and name some rank, and one must name the right one. */
static void expect_named(hand *h, fcp_pass pass, const char *text, const char *also) {
    fcp_error err;
    for (int attempt = 0; attempt < 8; attempt++) {
        cr_assert(run(h, pass, 1, &err) == FCP_E_RUN);
        cr_assert(error_place_agrees(&err) && strstr(err.message, " for 1 s"), "%s", err.message);
        if (strstr(err.message, text) && strstr(err.message, also)) return;
    }
    cr_assert(false, "%s", err.message);
}

Test(threads, a_message_that_never_comes_is_named) {
    hand *h = make();
    fcp_error err;
    cr_assert(run(h, FCP_FORWARD, 60, &err) == FCP_OK, "%s", err.message);
    fcp_instr *x = find_launch(h, FCP_FORWARD, 1, FCP_SEND, 0);
    uint32_t to = h->transfers[x->a].peer, block = h->transfers[x->a].block;
    char text[80], also[80];
    x->b = 0;
    snprintf(text, sizeof text, "rank %u, forward pass, stage 0, instruction ", to);
    snprintf(also, sizeof also, "nothing came from rank 1 for 1 s (KV of block %u, tokens 0 to ", block);
    expect_named(h, FCP_FORWARD, text, also);
    hand_free(h);
}

Test(threads, a_message_that_nobody_takes_is_named) {
    hand *h = make();
    fcp_instr *x = find_launch(h, FCP_BACKWARD, 2, FCP_RECV, 1);
    uint32_t from = h->transfers[x->a].peer;
    char text[80];
    x->b = 0;
    snprintf(text, sizeof text, "rank %u, backward pass", from);
    expect_named(h, FCP_BACKWARD, text, "nothing was taken by rank 2 for 1 s");
    hand_free(h);
}

Test(threads, a_wait_for_what_never_completes_is_named) {
    hand *h = make();
    const fcp_stream *s = fcp_stream_of(&h->plan, FCP_FORWARD, 1, FCP_COMPUTE);
    h->instrs[s->first + 2].b = 1000; /* COPY, ATTEND, WAIT */
    expect_named(h, FCP_FORWARD,
                 "rank 1, forward pass, stage 0, instruction 2 of the compute queue (wait): the communication queue "
                 "has completed ",
                 " of 1000 instructions, and nothing went on for 1 s");
    hand_free(h);
}

Test(threads, a_message_of_the_wrong_size_is_named) {
    hand *h = make();
    fcp_error err;
    fcp_instr *x = find_launch(h, FCP_FORWARD, 0, FCP_RECV, 0);
    uint32_t from = h->transfers[x->a].peer;
    char text[80];
    h->transfers[x->a].tokens--;
    cr_assert(run(h, FCP_FORWARD, 60, &err) == FCP_E_RUN);
    snprintf(text, sizeof text, "(launch): a message of %u bytes from rank %u where %u", 128 * 128, from, 127 * 128);
    cr_assert(error_place_agrees(&err), "%s", err.message);
    cr_assert(strstr(err.message, "rank 0, forward pass, stage 0") && strstr(err.message, text), "%s", err.message);
    hand_free(h);
}

Test(threads, an_instruction_in_the_wrong_queue_is_our_bug) {
    hand *h = make();
    fcp_error err;
    const fcp_stream *s = fcp_stream_of(&h->plan, FCP_FORWARD, 2, FCP_COMM);
    h->instrs[s->first + 1].op = FCP_OP_DELTA;
    cr_assert(run(h, FCP_FORWARD, 60, &err) == FCP_E_INTERNAL);
    cr_assert(error_place_agrees(&err), "%s", err.message);
    cr_assert(strstr(err.message, "rank 2, forward pass, stage 0, instruction 1 of the communication queue (delta)"),
              "%s", err.message);
    hand_free(h);
}

Test(threads, a_session_works_after_a_failure) {
    hand *h = make();
    fcp_error err;
    fcp_session *session;
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_session_options options = {.size = sizeof options, .timeout_s = 3}; /* for passes that are well, too */
    fcp_plan_shape(&h->plan, &shape);
    cr_assert(fcp_session_create(&h->plan, &options, &session, &err) == FCP_OK);
    cr_assert(fcp_packed_alloc(&shape, (1 << FCP_TENSORS) - 1, &packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, (1 << FCP_TENSORS) - 1, 3, &packed);
    fcp_instr *x = find_launch(h, FCP_FORWARD, 1, FCP_SEND, 0);
    size_t bytes = shape.tokens * shape.heads * shape.head_dim * sizeof(float);
    float *first = malloc(bytes);
    cr_assert(fcp_session_run_packed(session, &h->plan, FCP_FORWARD, &packed, NULL, &err) == FCP_OK);
    memcpy(first, packed.t[FCP_TENSOR_O], bytes);
    x->b = 0;
    cr_assert(fcp_session_run_packed(session, &h->plan, FCP_FORWARD, &packed, NULL, &err) == FCP_E_RUN);
    x->b = 1;
    cr_assert(fcp_session_run_packed(session, &h->plan, FCP_FORWARD, &packed, NULL, &err) == FCP_OK, "%s", err.message);
    cr_assert(memcmp(first, packed.t[FCP_TENSOR_O], bytes) == 0);
    free(first);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    hand_free(h);
}
