/* test_mpi.c: tests the transport "mpi" where something is not as it should be: ranks that stall, fail or have another
 * plan, and an MPI that cannot be used. MPI is one that stands in. What every transport does is tested with the
 * sessions (unit/exec/test_sessions.c), and a real MPI from the command line (tests/cli). */
#include "runtime/exec/session.h"
#include "runtime/host/transport_mpi.h"
#include "runtime/judge/packed.h"
#include "tests/support/plan_of.h"
#include "tests/support/processes.h"

enum { RANKS = 3, INPUTS = 1 << FCP_TENSOR_Q | 1 << FCP_TENSOR_K | 1 << FCP_TENSOR_V };

static const char text[] =
    "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { gpus = 3 }\n"
    "batch { lengths = [%d] }\nplan { mask = full; block = 128; passes = forward }\n";
static const fcp_plan *plan, *other;

static void with_plans(void (*body)(process *), const char *what) {
    char own[300];
    snprintf(own, sizeof own, text, 768);
    plan = plan_named("mpi.fcp", own);
    snprintf(own, sizeof own, text, 512);
    other = plan_named("mpi.fcp", own);
    process_shared *s = process_shared_make();
    process_run(s, RANKS, body, NULL);
    process_all_well(s, RANKS, 0, what);
    process_shared_end(s, false);
    fcp_plan_free((fcp_plan *)(uintptr_t)plan);
    fcp_plan_free((fcp_plan *)(uintptr_t)other);
}

static fcp_code create(process *p, const fcp_plan *of, fcp_session **out, fcp_error *err) {
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank};
    const fcp_session_options options = {.size = sizeof options, .transport = "mpi", .start = &start,
                                         .timeout_s = 2, .compute_threads = 1};
    process_mpi(p, p->rank ? "mpich" : "open"); /* they talk to each other as long as both stand in */
    return fcp_session_create(of, &options, out, err);
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

/* Rank 2 never runs: the others say within the time limit who waits for whom, and their sessions run no more. */
static void one_stalls(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    fcp_code code = create(p, plan, &session, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (p->rank == 0) process_mpi_met();
    if (p->rank < 2 && !code) {
        CHECK(p, run(session, &err) == FCP_E_RUN && err.where.rank < RANKS);
        bool waited = strstr(err.message, "nothing came from rank 2") ||
                      strstr(err.message, "nothing was taken by rank 2");
        CHECK(p, waited || strstr(err.message, "has failed, and says why"), "%s", err.message);
        CHECK(p, run(session, &err) == FCP_E_RUN && strstr(err.message, "a new session is needed"), "%s", err.message);
    }
    process_meet(p, 0, 1);
    if (p->rank == 2 && !code) /* too late: it learns so from the others */
        CHECK(p, run(session, &err) == FCP_E_RUN && strstr(err.message, "has failed, and says why"), "%s", err.message);
    fcp_session_free(session);
}
Test(mpi, a_rank_that_stalls) { with_plans(one_stalls, "a rank stalls"); }

/* Rank 1 lacks a tensor before anything has begun: it says so, and can run again, as with any transport. */
static void one_lacks_a_tensor(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    const fcp_tensors none[RANKS] = {{0}};
    fcp_code code = create(p, plan, &session, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (p->rank == 0) process_mpi_met();
    if (p->rank == 1 && !code) CHECK(p, fcp_session_run(session, FCP_FORWARD, none, &err) == FCP_E_TENSOR);
    if (!code) CHECK(p, run(session, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(mpi, a_rank_without_a_tensor) { with_plans(one_lacks_a_tensor, "a rank lacks a tensor"); }

/* Rank 1 has another plan: all say so, and nobody waits. */
static void plans_differ(process *p) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    CHECK(p, create(p, p->rank == 1 ? other : plan, &session, &err) == FCP_E_START, "%s", err.message);
    CHECK(p, strstr(err.message, "rank 1 has another plan than rank 0"), "%s", err.message);
    CHECK(p, err.where.rank == 1 && !session);
    process_meet(p, 0, 1);
    if (p->rank == 0) process_mpi_met();
    CHECK(p, create(p, plan, &session, &err) == FCP_OK, "the next one is made: %s", err.message);
    if (session) CHECK(p, run(session, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(mpi, plans_that_differ) { with_plans(plans_differ, "plans differ"); }

/* A receive gets what its peer sends on the same fabric, however long it is; a message of another round is an error. */
static void messages(process *p) {
    enum { LONG = 100000 };
    static char in[2][LONG], out[2][LONG];
    fcp_session session = {.timeout_s = 100};
    fcp_net *net = NULL;
    fcp_error err = {0};
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank};
    process_mpi(p, "mpich");
    fcp_code code = fcp_net_open(&fcp_transport_mpi, RANKS, RANKS, &start, &net, &err);
    if (!code) code = fcp_net_connect(net, &session, &start, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (code) return;
    process_meet(p, 0, 1);
    if (p->rank == 0) process_mpi_met();
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
        if (p->rank) CHECK(p, strstr(err.message, "round 7 from rank 0"), "%s", err.message);
    }
    fcp_net_close(net);
}
Test(mpi, messages_meet_their_receives) { with_plans(messages, "messages"); }

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
Test(mpi, for_one_thread) { with_plans(for_one_thread, "for one thread"); }
static void of_another_size(process *p) { refuses(p, "STANDIN_MPI_SIZE", "4", "of 4, and the caller that it is"); }
Test(mpi, of_another_size) { with_plans(of_another_size, "of another size"); }
static void not_there(process *p) {
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank};
    fcp_net *net = NULL;
    fcp_error err = {0};
    setenv("FCP_MPI", "/nowhere/libmpi.so", 1);
    CHECK(p, fcp_net_open(&fcp_transport_mpi, RANKS, RANKS, &start, &net, &err) == FCP_E_START);
    CHECK(p, strstr(err.message, "/nowhere/libmpi.so"), "%s", err.message);
}
Test(mpi, that_is_not_there) { with_plans(not_there, "not there"); }
