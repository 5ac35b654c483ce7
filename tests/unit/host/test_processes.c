/* test_processes.c: tests the transports "mpi" and "tcp" when something goes wrong: ranks that stall, fail, are
 * stopped, come late or have another plan, an MPI that cannot be used, connections that do not come from a rank. A
 * small library stands in for MPI. What every transport does is tested with the sessions (unit/exec/test_sessions.c),
 * and a real MPI from the command line (tests/cli). */
#define _GNU_SOURCE /* memmem */
#include "runtime/exec/session.h"
#include "runtime/host/executor.h"
#include "runtime/judge/packed.h"
#include "tests/support/plan_of.h"
#include "tests/support/processes.h"

enum { RANKS = 3, INPUTS = 1 << FCP_TENSOR_Q | 1 << FCP_TENSOR_K | 1 << FCP_TENSOR_V };

static const char text[] =
    "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { gpus = 3 }\n"
    "batch { lengths = [%d] }\nplan { mask = full; block = 128; passes = forward }\n";
static const fcp_plan *plan, *other;
static const fcp_transport *transport; /* the one that is tested */

/* lost: the ranks that do not get to their end, a bit each. */
static void on_but(const fcp_transport *t, unsigned lost, void (*body)(process *)) {
    char own[300];
    transport = t;
    snprintf(own, sizeof own, text, 768);
    plan = plan_named("mpi.fcp", own);
    snprintf(own, sizeof own, text, 512);
    other = plan_named("mpi.fcp", own);
    process_shared *s = process_shared_make();
    process_run(s, RANKS, body, NULL);
    process_all_well(s, RANKS, lost, t->name);
    process_shared_end(s, lost);
    fcp_plan_free((fcp_plan *)(uintptr_t)plan);
    fcp_plan_free((fcp_plan *)(uintptr_t)other);
}
static void on(const fcp_transport *t, void (*body)(process *)) { on_but(t, 0, body); }

static void on_both(void (*body)(process *)) {
    on(&fcp_transport_mpi, body);
    on(&fcp_transport_tcp, body);
}

/* How this process finds the others; `turn` counts the sessions. */
static fcp_start begin(process *p, int turn) {
    if (transport == &fcp_transport_mpi) process_mpi(p, p->rank ? "mpich" : "open"); /* they talk, as both stand in */
    else process_tcp_id(p);
    process_meet(p, 7, turn);
    return (fcp_start){.size = sizeof(fcp_start), .ranks = RANKS, .rank = p->rank, .id = p->shared->id.bytes};
}
/* All have begun. */
static void met(process *p, int turn) {
    process_meet(p, 6, turn);
    if (transport == &fcp_transport_mpi && p->rank == 0) process_mpi_met();
}

static fcp_code open_session(const fcp_start *start, const fcp_plan *of, uint32_t timeout_s, fcp_session **out,
                             fcp_error *err) {
    const fcp_session_options options = {.size = sizeof options, .transport = transport->name, .start = start,
                                         .timeout_s = timeout_s, .compute_threads = 1};
    return fcp_session_create(of, &options, out, err);
}
static fcp_code create(process *p, const fcp_plan *of, int turn, fcp_session **out, fcp_error *err) {
    const fcp_start start = begin(p, turn);
    fcp_code code = open_session(&start, of, 2, out, err);
    met(p, turn);
    return code;
}

/* Runs forward on drawn tensors. */
static fcp_code run(fcp_session *session, fcp_error *err) {
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_packed_alloc(&shape, INPUTS | fcp_pass_outputs(FCP_FORWARD), &packed, err);
    if (!code) fcp_packed_draw(&shape, INPUTS, 1, &packed);
    if (!code) code = fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, err);
    fcp_packed_free(&packed);
    return code;
}

/* Rank 2 never runs. Within the time limit the others say who waits for whom, and their sessions run no more. */
static void one_stalls(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    fcp_code code = create(p, plan, 1, &session, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (p->rank < 2 && !code) {
        CHECK(p, run(session, &err) == FCP_E_RUN && err.where.rank < RANKS);
        bool waited = strstr(err.message, "nothing came from rank 2") ||
                      strstr(err.message, "nothing was taken by rank 2");
        CHECK(p, waited || strstr(err.message, "has failed"), "%s", err.message);
        CHECK(p, run(session, &err) == FCP_E_RUN && strstr(err.message, "a new session is needed"), "%s", err.message);
    }
    process_meet(p, 0, 1);
    if (p->rank == 2 && !code) /* too late: it learns so from the others */
        CHECK(p, run(session, &err) == FCP_E_RUN && strstr(err.message, "has failed"), "%s", err.message);
    fcp_session_free(session);
}
Test(processes, a_rank_that_stalls) { on_both(one_stalls); }

/* Uses a third of a processor for a moment. */
static void compute(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    const double begun = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    for (double now = begun; now < begun + 3e-3; now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec)
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    nanosleep(&(struct timespec){.tv_nsec = 6000000}, NULL);
}
static void compute_for(double seconds) {
    for (double end = fcp_clock() + seconds; fcp_clock() < end;) compute();
}

/* Ranks are busy for longer than the time limit, and whoever waits for them waits on. Rank 2 comes late to a run: rank
 * 0 waits for it, or for rank 1, which does so. Then rank 0 comes late to a gather, and rank 1 to a collection. */
static void some_are_busy(process *p) {
    enum { LIMIT = 1, BYTES = 100000 };
    static char bytes[BYTES];
    const fcp_start start = begin(p, 1);
    fcp_session *session = NULL;
    fcp_error err = {0};
    uint32_t all[RANKS] = {0};
    fcp_code code = open_session(&start, plan, LIMIT, &session, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    met(p, 1);
    if (code) return;
    if (p->rank == 2) compute_for(1.3 * LIMIT);
    CHECK(p, run(session, &err) == FCP_OK, "%s", err.message);
    if (p->rank == 0) compute_for(1.3 * LIMIT);
    CHECK(p, fcp_session_gather(session, &p->rank, sizeof p->rank, all, &err) == FCP_OK && all[2] == 2, "%s",
          err.message);
    memset(bytes, (int)p->rank, BYTES);
    if (p->rank == 1) compute_for(1.3 * LIMIT);
    if (p->rank < 2) {
        CHECK(p, fcp_net_collect(session->net, 1, bytes, BYTES, &err) == FCP_OK, "%s", err.message);
        CHECK(p, bytes[BYTES - 1] == 1);
    }
    fcp_session_free(session);
}
Test(processes, ranks_that_are_busy) { on_both(some_are_busy); }

/* Rank 2 is stopped: it says nothing more, and within the time limit the others say so, though rank 1 is busy all the
 * time. In a run, and in a gather. */
static void one_is_stopped(process *p, bool runs) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_start start = begin(p, 1);
    CHECK(p, open_session(&start, plan, 1, &session, &err) == FCP_OK, "%s", err.message);
    met(p, 1);
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL); /* it has been heard of */
    if (p->rank == 2) {
        p->word->stops = 1;
        raise(SIGSTOP);
    }
    char all[RANKS];
    const double begun = fcp_clock();
    if (p->rank == 1) {
        while (atomic_load(&p->shared->counter[0]) == 0 && fcp_clock() < begun + 60) compute();
        CHECK(p, fcp_clock() < begun + 60, "the other has not waited for this one");
    } else {
        fcp_code code = runs ? run(session, &err) : fcp_session_gather(session, "", 1, all, &err);
        CHECK(p, code == FCP_E_RUN && strstr(err.message, "rank 2 has not been heard of for 1 s"), "%s", err.message);
        CHECK(p, strstr(err.message, "instruction") || (!runs && err.where.rank == 2), "%s", err.message);
        atomic_fetch_add(&p->shared->counter[0], 1);
    }
    fcp_session_free(session);
}
static void stopped_in_a_run(process *p) { one_is_stopped(p, true); }
static void stopped_in_a_gather(process *p) { one_is_stopped(p, false); }
Test(processes, a_rank_that_is_stopped_in_a_run) {
    on_but(&fcp_transport_mpi, 1 << 2, stopped_in_a_run);
    on_but(&fcp_transport_tcp, 1 << 2, stopped_in_a_run);
}
Test(processes, a_rank_that_is_stopped_in_a_gather) {
    on_but(&fcp_transport_mpi, 1 << 2, stopped_in_a_gather);
    on_but(&fcp_transport_tcp, 1 << 2, stopped_in_a_gather);
}

static int wants_no_more(void *yes) { return *(const int *)yes; }

/* One rank's caller interrupts it, in a run or in a gather.
 * 1. Rank 0 waits for rank 2, which does not come.
 * 2. The caller of rank 0 interrupts it, and rank 0 ends at once.
 * 3. Rank 2 comes. The other ranks now fail, too, long before the time limit. Only in a gather by MPI they may already
 *    have all data, and then they succeed.
 * 4. The session of rank 0 is asked for more, and reports why it does nothing more. */
static void one_is_interrupted(process *p, bool runs) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    char all[RANKS];
    int yes = 0;
    const fcp_start start = begin(p, 1);
    const fcp_session_options options = {
        .size = sizeof options, .transport = transport->name, .start = &start, .timeout_s = 100, .compute_threads = 1,
        .interrupted = wants_no_more, .interrupted_context = &yes};
    fcp_code code = fcp_session_create(plan, &options, &session, &err);
    met(p, 1);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (code) return;
    yes = p->rank == 0;
    const double begun = fcp_clock();
    while (p->rank == 2 && !atomic_load(&p->shared->counter[1])) nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    code = runs ? run(session, &err) : fcp_session_gather(session, "", 1, all, &err);
    CHECK(p, fcp_clock() - begun < 50, "%.1f s", fcp_clock() - begun);
    if (p->rank) {
        const bool told = !runs && transport == &fcp_transport_mpi && code == FCP_OK;
        CHECK(p, told || (code == FCP_E_RUN && strstr(err.message, "has failed")), "%s", err.message);
    } else {
        atomic_fetch_add(&p->shared->counter[1], 1);
        CHECK(p, code == FCP_E_INTERRUPTED && strcmp(err.message, "interrupted") == 0, "%s", err.message);
        CHECK(p, run(session, &err) == FCP_E_RUN && strstr(err.message, "has been interrupted"), "%s", err.message);
        CHECK(p, fcp_session_gather(session, "", 1, all, &err) == FCP_E_RUN, "%s", err.message);
        CHECK(p, fcp_session_rebind(session, plan, &err) == FCP_E_RUN, "%s", err.message);
    }
    process_meet(p, 0, 1);
    fcp_session_free(session);
}
static void interrupted_in_a_run(process *p) { one_is_interrupted(p, true); }
static void interrupted_in_a_gather(process *p) { one_is_interrupted(p, false); }
Test(processes, a_rank_that_is_interrupted_in_a_run) { on_both(interrupted_in_a_run); }
Test(processes, a_rank_that_is_interrupted_in_a_gather) { on_both(interrupted_in_a_gather); }

/* Rank 1's caller wants no more at once, and rank 0's when rank 1 has ended. If rank 0 ended first, rank 1 might see
 * that before it asks its caller, and would rightly fail for it. */
static int wants_no_more_in_turn(void *context) {
    const process *p = context;
    return p->rank == 1 || atomic_load(&p->shared->counter[1]);
}

/* Ranks 0 and 1 wait for rank 2, which never comes, and are interrupted. */
static void nobody_comes(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_start start = begin(p, 1);
    const fcp_session_options options = {.size = sizeof options, .transport = transport->name, .start = &start,
                                         .timeout_s = 100, .interrupted = wants_no_more_in_turn,
                                         .interrupted_context = p};
    const double begun = fcp_clock();
    if (p->rank < 2) {
        CHECK(p, fcp_session_create(plan, &options, &session, &err) == FCP_E_INTERRUPTED, "%s", err.message);
        CHECK(p, fcp_clock() - begun < 20 && !session, "%.1f s", fcp_clock() - begun);
    }
    if (p->rank == 1) atomic_fetch_add(&p->shared->counter[1], 1);
    process_meet(p, 0, 1);
}
Test(tcp, interrupted_while_others_are_to_come) { on(&fcp_transport_tcp, nobody_comes); }

/* Rank 1 lacks a tensor. It says so before anything has begun, and can run again, as with any transport. */
static void one_lacks_a_tensor(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_tensors none[RANKS] = {{0}};
    fcp_code code = create(p, plan, 1, &session, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (p->rank == 1 && !code) CHECK(p, fcp_session_run(session, FCP_FORWARD, none, &err) == FCP_E_TENSOR);
    if (!code) CHECK(p, run(session, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(processes, a_rank_without_a_tensor) { on_both(one_lacks_a_tensor); }

/* Rank 1 has another plan: all say so, and nobody waits. */
static void plans_differ(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    CHECK(p, create(p, p->rank == 1 ? other : plan, 1, &session, &err) == FCP_E_START, "%s", err.message);
    CHECK(p, strstr(err.message, "rank 1 has another plan than rank 0"), "%s", err.message);
    CHECK(p, err.where.rank == 1 && !session);
    CHECK(p, create(p, plan, 2, &session, &err) == FCP_OK, "the next one is made: %s", err.message);
    if (session) CHECK(p, run(session, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(processes, plans_that_differ) { on_both(plans_differ); }

/* A receive gets what its peer sends on the same fabric, however long it is; a message of another round is an error. */
static void messages(process *p) {
    enum { LONG = 100000 };
    static char in[2][LONG], out[2][LONG];
    fcp_session session = {.timeout_s = 100};
    fcp_net *net = NULL;
    fcp_error err = {0};
    const fcp_start start = begin(p, 1);
    fcp_code code = fcp_net_open(transport, RANKS, RANKS, &start, &net, &err);
    if (!code) code = fcp_net_connect(net, &session, &start, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (code) return;
    met(p, 1);
    const uint32_t to = (p->rank + 1) % RANKS, from = (p->rank + 2) % RANKS;
    fcp_wire wires[4];
    for (uint8_t f = 0; f < 2; f++) {
        for (int i = 0; i < LONG; i++) out[f][i] = (char)(i * 7 + (int)p->rank * 3 + f);
        const size_t size = f ? LONG : 5;
        wires[f] = (fcp_wire){.peer = to, .dir = FCP_SEND, .fabric = f, .segments = 2,
                              .segment = {{out[f], 2}, {out[f] + 2, size - 2}}};
        wires[3 - f] = (fcp_wire){.peer = from, .dir = FCP_RECV, .fabric = f, .segments = 3,
                                  .segment = {{in[f], 1}, {in[f] + 1, 0}, {in[f] + 1, size - 1}}};
    }
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t wire;
        memset(in, 0, sizeof in);
        CHECK(p, fcp_net_launch(net, p->rank, FCP_FORWARD, round, wires, 4, &err) == FCP_OK, "%s", err.message);
        CHECK(p, fcp_net_wait(net, p->rank, 60000, &wire, &err) == FCP_WAIT_DONE, "%s", err.message);
        for (int f = 0; f < 2; f++)
            for (int i = 0; i < (f ? LONG : 5); i++)
                CHECK(p, in[f][i] == (char)(i * 7 + (int)from * 3 + f), "round %u, byte %d", round, i);
    }
    process_meet(p, 1, 1);
    fcp_wire *wrong = p->rank ? &wires[3] : &wires[0]; /* rank 0 sends to 1, which expects another round */
    if (p->rank < 2) {
        uint32_t wire;
        CHECK(p, fcp_net_launch(net, p->rank, FCP_FORWARD, 7 + p->rank, wrong, 1, &err) == FCP_OK, "%s", err.message);
        fcp_wait end = fcp_net_wait(net, p->rank, 60000, &wire, &err);
        CHECK(p, end == (p->rank ? FCP_WAIT_FAILED : FCP_WAIT_DONE), "rank %u: %d", p->rank, (int)end);
        if (p->rank) CHECK(p, strstr(err.message, "round 7"), "%s", err.message);
    }
    fcp_net_close(net);
}
Test(processes, messages_meet_their_receives) { on_both(messages); }

/* --- an MPI that cannot be used ----------------------------------------------------------------------------------- */

static void refuses(process *p, const char *name, const char *value, const char *why) {
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank};
    fcp_net *net = NULL;
    fcp_error err = {0};
    process_mpi(p, "open");
    setenv(name, value, 1);
    CHECK(p, fcp_net_open(&fcp_transport_mpi, RANKS, RANKS, &start, &net, &err) == FCP_E_START);
    CHECK(p, strstr(err.message, why), "%s", err.message);
    process_meet(p, 0, 1);
    if (p->rank == 0) process_mpi_met();
}
static void for_one_thread(process *p) { refuses(p, "STANDIN_MPI_THREADS", "1", "MPI_THREAD_SERIALIZED"); }
Test(mpi, for_one_thread) { on(&fcp_transport_mpi, for_one_thread); }
static void of_another_size(process *p) { refuses(p, "STANDIN_MPI_SIZE", "4", "of 4, and the caller that it is"); }
Test(mpi, of_another_size) { on(&fcp_transport_mpi, of_another_size); }
static void not_there(process *p) {
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank};
    fcp_net *net = NULL;
    fcp_error err = {0};
    setenv("FCP_MPI", "/nowhere/libmpi.so", 1);
    CHECK(p, fcp_net_open(&fcp_transport_mpi, RANKS, RANKS, &start, &net, &err) == FCP_E_START);
    CHECK(p, strstr(err.message, "/nowhere/libmpi.so"), "%s", err.message);
}
Test(mpi, that_is_not_there) { on(&fcp_transport_mpi, not_there); }

/* --- connections -------------------------------------------------------------------------------------------------- */

/* What a rank says first, as tcp_join.c has it. */
typedef struct hello {
    char magic[8], number[16];
    uint32_t rank, line, port;
} hello;

/* A connection to where rank 0 listens, or will listen. */
static int come(process *p) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    unsigned port = 0;
    bool read = sscanf(p->shared->id.bytes, "127.0.0.1:%5u:", &port) == 1;
    CHECK(p, read);
    at.sin_port = htons((uint16_t)port);
    for (;;) {
        int s = socket(AF_INET, SOCK_STREAM, 0);
        if (connect(s, (struct sockaddr *)&at, sizeof at) == 0) return s;
        close(s);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* Says what rank 2 would say, without the secret: that is answered and then refused. `pretends`: the connection. */
static void pretend(process *p, int pretends, uint32_t line) {
    const hello h = {"fcptcp2", "", 2, line, 7};
    const char proof[32] = "";
    char welcome[48];
    CHECK(p, send(pretends, &h, sizeof h, MSG_NOSIGNAL) == sizeof h);
    CHECK(p, recv(pretends, welcome, sizeof welcome, MSG_WAITALL) == sizeof welcome);
    CHECK(p, !memmem(welcome, sizeof welcome, strrchr(p->shared->id.bytes, ':') + 1, 8), "the secret is not said");
    CHECK(p, send(pretends, proof, sizeof proof, MSG_NOSIGNAL) == sizeof proof);
    CHECK(p, recv(pretends, welcome, 1, 0) <= 0, "it is dropped");
}

/* Strangers connect to rank 0: more than it listens to at once that say nothing, one that says what no rank says, one
 * that speaks slowly, and some that pretend to be rank 2. The ranks find each other all the same, and soon. */
static void strangers_come(process *p) {
    enum { SILENT = 150 };
    int silent[SILENT], slow = -1;
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_start start = begin(p, 1);
    char noise[100];
    memset(noise, 'x', sizeof noise);
    for (int i = 0; p->rank == 1 && i < SILENT; i++) silent[i] = come(p);
    if (p->rank == 1) {
        int loud = come(p), pretends[2] = {come(p), come(p)};
        slow = come(p);
        CHECK(p, write(loud, noise, sizeof noise) == sizeof noise && write(slow, "fcp", 3) == 3);
        for (uint32_t line = 0; line < 2; line++) pretend(p, pretends[line], line);
        CHECK(p, write(slow, "t", 1) == 1, "it may go on");
        CHECK(p, recv(loud, noise, 1, 0) <= 0, "it is dropped");
        close(loud);
        for (uint32_t line = 0; line < 2; line++) close(pretends[line]);
    }
    if (p->rank == 1) atomic_fetch_add(&p->shared->counter[0], 1);
    while (p->rank == 2 && !atomic_load(&p->shared->counter[0]))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    CHECK(p, open_session(&start, plan, 20, &session, &err) == FCP_OK, "%s", err.message);
    if (session) CHECK(p, run(session, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
    for (int i = 0; p->rank == 1 && i < SILENT; i++) close(silent[i]);
    if (slow >= 0) close(slow);
}
Test(tcp, strangers_at_the_port) { on(&fcp_transport_tcp, strangers_come); }

/* A stranger listens where rank 0 should. The others do not take it for rank 0, though it answers, and it does not
 * learn the secret. */
static void one_listens(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_start start = begin(p, 1);
    const char *secret = strrchr(p->shared->id.bytes, ':') + 1;
    if (p->rank) {
        CHECK(p, open_session(&start, plan, 1, &session, &err) == FCP_E_START && err.where.rank == 0);
        CHECK(p, strstr(err.message, "who listens there does not know the id's secret"), "%s", err.message);
        process_meet(p, 0, 1);
        return;
    }
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct timeval most = {.tv_usec = 100000};
    unsigned port = 0;
    int yes = 1, s = socket(AF_INET, SOCK_STREAM, 0);
    bool read = sscanf(p->shared->id.bytes, "127.0.0.1:%5u:", &port) == 1;
    CHECK(p, read);
    at.sin_port = htons((uint16_t)port);
    setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    setsockopt(s, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    CHECK(p, !bind(s, (struct sockaddr *)&at, sizeof at) && !listen(s, 9));
    while (atomic_load(&p->shared->counter[0]) < 2) {
        char said[sizeof(hello)];
        int come = accept(s, NULL, NULL);
        if (come < 0) continue;
        setsockopt(come, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
        CHECK(p, recv(come, said, sizeof said, MSG_WAITALL) == sizeof said);
        CHECK(p, !memmem(said, sizeof said, secret, 8), "the secret is not said");
        CHECK(p, send(come, (char[48]){0}, 48, MSG_NOSIGNAL) == 48);
        close(come);
    }
    close(s);
    process_meet(p, 0, 1);
}
Test(tcp, a_stranger_in_the_place_of_rank_0) { on(&fcp_transport_tcp, one_listens); }

/* Does a process listen, and at which address? An entry of /proc/net/tcp belongs to the process that has its inode. */
static bool listens(pid_t which, uint32_t *out_address) {
    char line[400], path[80], link[80], wanted[80];
    FILE *all = fopen("/proc/net/tcp", "r");
    bool found = false;
    while (all && !found && fgets(line, sizeof line, all)) {
        unsigned address = 0, state = 0;
        unsigned long inode = 0;
        if (sscanf(line, "%*s %x:%*x %*x:%*x %x %*s %*s %*s %*s %*s %lu", &address, &state, &inode) != 3) continue;
        snprintf(wanted, sizeof wanted, "socket:[%lu]", inode);
        for (int fd = 0; state == 10 && !found && fd < 200; fd++) {
            snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)which, fd);
            ssize_t length = readlink(path, link, sizeof link - 1);
            if (length <= 0) continue;
            link[length] = 0;
            found = strcmp(link, wanted) == 0;
        }
        *out_address = address;
    }
    if (all) fclose(all);
    return found;
}

/* Each rank listens at the address that the others use, and at no other. Rank 2 looks before it comes, so that the
 * others have to wait for it. */
static void one_looks(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_start start = begin(p, 1);
    for (unsigned r = 0; p->rank == 2 && r < 2; r++) {
        uint32_t address = 0;
        while (!listens(p->shared->children[r], &address)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        CHECK(p, address == htonl(INADDR_LOOPBACK), "rank %u listens at %08x", r, address);
    }
    CHECK(p, open_session(&start, plan, 100, &session, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(tcp, listens_where_ranks_come) { on(&fcp_transport_tcp, one_looks); }

/* Rank 2 is killed in the middle of a run: the others learn of it at once, long before the time limit. */
static void one_dies(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_start start = begin(p, 1);
    CHECK(p, open_session(&start, plan, 250, &session, &err) == FCP_OK, "%s", err.message);
    if (p->rank == 2) raise(SIGKILL);
    CHECK(p, run(session, &err) == FCP_E_RUN && strstr(err.message, "has failed, or its process has ended"), "%s",
          err.message);
    CHECK(p, strstr(err.message, "instruction"), "%s", err.message);
    fcp_session_free(session);
}
Test(tcp, a_process_that_dies) { on_but(&fcp_transport_tcp, 1 << 2, one_dies); }

static void ids_are_wrong(process *p) {
    static const char *const wrong[] = {"", "host", "host:0:0123456789abcdef0123456789abcdef",
                                        "host:70000:0123456789abcdef0123456789abcdef", "host:7:0123", ":7:",
                                        "host:7:0123456789abcdef0123456789abcdefx"};
    fcp_session *session = NULL;
    fcp_error err = {0};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char id[FCP_ID_BYTES] = "";
        snprintf(id, sizeof id, "%s", wrong[i]);
        const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank, .id = id};
        CHECK(p, open_session(&start, plan, 1, &session, &err) == FCP_E_START, "'%s'", wrong[i]);
        CHECK(p, strstr(err.message, "HOST:PORT:SECRET"), "%s", err.message);
    }
}
Test(tcp, ids_that_are_none) { on(&fcp_transport_tcp, ids_are_wrong); }
