/* test_nccl_standin.c: tests the stand-in for NCCL. Like NCCL it delivers bytes and deadlocks where the order of
 * calls allows it; unlike NCCL it says what a caller did wrong. */
#include "tests/support/processes.h"

/* A rank with a device, streams and a communicator. */
typedef struct rank {
    process *p;
    fcp_cuda *cuda;
    fcp_nccl *nccl;
    cu_context context;
    cu_stream stream, other;
    nccl_comm comm;
    char *memory, *foreign; /* of ncclMemAlloc; of the driver */
    void *handle;
} rank;
enum { MEMORY = 1 << 20, LONG = 100 /* seconds: nothing that gets on at all takes so long */ };
enum { TROUBLE = 1, TURNS = 2 }; /* counters that ranks share */

typedef struct setting {
    uint64_t seed;
    bool blocks, silent;
    long group_at;
    int fault;
    unsigned device_of_all; /* 1: all on device 0 */
    int version;
    void (*body)(rank *);
} setting;

static nccl_result settle(rank *r, nccl_result result) {
    nccl_result error = result;
    fcp_patience patience = fcp_patience_of(LONG, 0.1);
    while (error == NCCL_IN_PROGRESS && !fcp_patience_ends(&patience)) {
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        nccl_result asked = r->nccl->call.async_error(r->comm, &error);
        if (asked) return asked;
    }
    return error;
}

/* Until the stream has ended; NOT_READY: it hangs. */
static cu_result wait_for(rank *r, cu_stream stream) {
    for (fcp_patience patience = fcp_patience_of(LONG, 0.1);;) {
        cu_result result = r->cuda->call.stream_query(stream);
        if (result != CU_ERROR_NOT_READY || fcp_patience_ends(&patience)) return result;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}
/* Until rank `who` says that something is wrong, or all has hung. */
static void wait_for_trouble(rank *r, unsigned who) {
    process *p = r->p;
    for (fcp_patience patience = fcp_patience_of(LONG, 0.1);
         !atomic_load(&p->shared->counter[TROUBLE]) && !fcp_patience_ends(&patience);) {
        r->cuda->call.stream_query(r->stream);
        if (p->rank == who && p->cuda->trouble[0]) atomic_store(&p->shared->counter[TROUBLE], 1);
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
}
/* All ranks ask their streams, so often that whatever can make progress has made it. NOT_READY: it cannot. */
static cu_result wait_together(rank *r, cu_stream stream) {
    cu_result result = CU_ERROR_NOT_READY;
    for (int turn = 1; turn <= 20; turn++) {
        if (result == CU_ERROR_NOT_READY) result = r->cuda->call.stream_query(stream);
        process_meet(r->p, TURNS, turn);
    }
    return result;
}

static void open_rank(rank *r, process *p) {
    const setting *x = p->argument;
    fcp_error err = {0};
    *r = (rank){.p = p};
    p->cuda->devices = PROCESSES;
    p->cuda->seed = x->seed * 77 + p->rank;
    p->nccl->seed = x->seed;
    p->nccl->silent = x->silent;
    if (x->version) p->nccl->version = x->version;
    CHECK(p, fcp_cuda_open(&r->cuda, &err) == FCP_OK, "%s", err.message);
    CHECK(p, fcp_nccl_open(&r->nccl, &err) == FCP_OK, "%s", err.message);
    int device = x->device_of_all ? 0 : (int)p->rank;
    CHECK(p, !r->cuda->call.context_retain(&r->context, device) && !r->cuda->call.context_set(r->context));
    CHECK(p, !r->cuda->call.stream_create(&r->stream, CU_STREAM_NON_BLOCKING, 0));
    CHECK(p, !r->cuda->call.stream_create(&r->other, CU_STREAM_NON_BLOCKING, 0));
    cu_ptr foreign = 0;
    CHECK(p, !r->cuda->call.allocate(&foreign, MEMORY));
    r->foreign = (char *)(uintptr_t)foreign;
    void *memory = NULL;
    CHECK(p, !r->nccl->call.allocate(&memory, MEMORY));
    r->memory = memory;
}
static nccl_result join(rank *r) {
    process *p = r->p;
    const setting *x = p->argument;
    nccl_config config = NCCL_CONFIG;
    config.blocking = x->blocks;
    config.cga_cluster_size = 1;
    config.min_ctas = config.max_ctas = 4;
    if (p->rank == 0) CHECK(p, !r->nccl->call.unique_id(&p->shared->id));
    process_meet(p, 0, 1);
    nccl_result result = settle(r, r->nccl->call.init(&r->comm, (int)p->ranks, p->shared->id, (int)p->rank, &config));
    if (!result && x->group_at && p->rank == 1) {
        p->nccl->group_at = x->group_at;
        p->nccl->group_fault = x->fault;
    }
    return result;
}
static void close_rank(rank *r) {
    process *p = r->p;
    CHECK(p, !r->nccl->call.release(r->memory));
    CHECK(p, !r->cuda->call.release((uintptr_t)r->foreign));
    CHECK(p, !r->cuda->call.stream_destroy(r->stream));
    CHECK(p, !r->cuda->call.stream_destroy(r->other));
    CHECK(p, !r->cuda->call.context_release(
                 p->argument && ((const setting *)p->argument)->device_of_all ? 0 : (int)p->rank));
    fcp_nccl_close(r->nccl);
    fcp_cuda_close(r->cuda);
}
static void leave(rank *r) {
    CHECK(r->p, !settle(r, r->nccl->call.finalize(r->comm)), "%s", r->nccl->call.last_error(r->comm));
    CHECK(r->p, !r->nccl->call.destroy(r->comm));
}
static void run_rank(process *p) {
    rank r;
    open_rank(&r, p);
    CHECK(p, join(&r) == NCCL_SUCCESS, "%s", r.nccl->call.last_error(r.comm));
    ((const setting *)p->argument)->body(&r);
    close_rank(&r);
}

static void run(const setting *x, unsigned ranks, unsigned except, const char *trouble, const char *what) {
    process_shared *s = process_shared_make();
    process_run(s, ranks, run_rank, x);
    process_all_well(s, ranks, except, what);
    unsigned said = 0;
    for (unsigned r = 0; r < ranks; r++) {
        if (except >> r & 1) continue;
        const process_word *w = &s->words[r];
        cr_assert_eq(w->live, 0, "%s: rank %u: %ld objects are left", what, r, w->live);
        if (trouble && strstr(w->trouble, trouble)) said++;
        else cr_assert_str_empty(w->trouble, "%s: rank %u: %s", what, r, w->trouble);
    }
    cr_assert(!trouble || said, "%s: nobody says \"%s\"", what, trouble ? trouble : "");
    process_shared_end(s, except != 0);
}

/* --- what works --------------------------------------------------------------------------------------------------- */

static nccl_result start(rank *r) { return r->nccl->call.group_start(); }
static nccl_result end(rank *r) { return settle(r, r->nccl->call.group_end()); }
static nccl_result out(rank *r, const char *at, size_t bytes, unsigned peer, cu_stream s) {
    return r->nccl->call.send(at, bytes, NCCL_INT8, (int)peer, r->comm, s);
}
static nccl_result in(rank *r, char *at, size_t bytes, unsigned peer, cu_stream s) {
    return r->nccl->call.receive(at, bytes, NCCL_INT8, (int)peer, r->comm, s);
}

enum { SHARE = 40000 };
/* Each rank sends a stretch to every rank, itself included. It is longer than what fits into the mailbox. */
static void everybody(rank *r, size_t bytes) {
    process *p = r->p;
    CHECK(p, !start(r));
    for (unsigned i = 0; i < p->ranks; i++) {
        CHECK(p, !out(r, r->foreign + i * SHARE, bytes, i, r->stream));
        CHECK(p, !in(r, r->memory + i * SHARE, bytes, i, r->stream));
    }
    CHECK(p, !end(r), "%s", r->nccl->call.last_error(r->comm));
}
static char byte_of(unsigned from, unsigned to, size_t at, unsigned turn) {
    return (char)(from * 37 + to * 11 + at * 3 + turn * 101);
}
static void draw(rank *r, unsigned turn) {
    for (unsigned to = 0; to < r->p->ranks; to++)
        for (size_t i = 0; i < SHARE; i++) r->foreign[to * SHARE + i] = byte_of(r->p->rank, to, i, turn);
}
static void judge(rank *r, unsigned turn, size_t bytes) {
    for (unsigned from = 0; from < r->p->ranks; from++)
        for (size_t i = 0; i < bytes; i++)
            if (r->memory[from * SHARE + i] != byte_of(from, r->p->rank, i, turn)) {
                process_fails(r->p, "turn %u: byte %zu of rank %u is wrong", turn, i, from);
                return;
            }
}
static void exchange(rank *r) {
    static const size_t sizes[] = {SHARE, 0, 1, 16};
    const fcp_cuda_table *call = &r->cuda->call;
    process *p = r->p;
    CHECK(p, !r->nccl->call.enroll(r->comm, r->memory, MEMORY, &r->handle));
    for (unsigned turn = 0; turn < 4; turn++) {
        draw(r, turn);
        everybody(r, sizes[turn]);
        CHECK(p, wait_for(r, r->stream) == 0, "%s", p->cuda->trouble);
        judge(r, turn, sizes[turn]);
    }
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    CHECK(p, !call->capture_begin(r->stream, CU_CAPTURE_THREAD_LOCAL));
    everybody(r, SHARE);
    CHECK(p, !call->copy((uintptr_t)r->foreign + 900000, (uintptr_t)r->memory, 1000, r->stream));
    CHECK(p, !call->capture_end(r->stream, &graph));
    CHECK(p, !call->graph_instantiate(&exec, graph, 0));
    CHECK(p, !call->graph_destroy(graph));
    for (unsigned turn = 4; turn < 7; turn++) {
        draw(r, turn);
        CHECK(p, !call->graph_launch(exec, r->stream));
        CHECK(p, wait_for(r, r->stream) == 0, "%s", p->cuda->trouble);
        judge(r, turn, SHARE);
        CHECK(p, !memcmp(r->foreign + 900000, r->memory, 1000));
    }
    unsigned char *all = (unsigned char *)r->memory;
    r->foreign[0] = (char)(50 + p->rank);
    CHECK(p, !settle(r, r->nccl->call.all_gather(r->foreign, all, 1, NCCL_INT8, r->comm, r->stream)));
    CHECK(p, wait_for(r, r->stream) == 0);
    for (unsigned i = 0; i < p->ranks; i++) CHECK(p, all[i] == 50 + i);
    CHECK(p, !call->graph_exec_destroy(exec));
    CHECK(p, !r->nccl->call.strike(r->comm, r->handle));
    leave(r);
}

Test(nccl_standin, everybody_to_everybody) {
    for (unsigned i = 0; i < 5; i++) {
        setting x = {.seed = i * 13, .blocks = i == 1 || i == 2, .body = exchange};
        char what[40];
        snprintf(what, sizeof what, "exchange, seed %u", i * 13);
        run(&x, i < 4 ? i + 1 : 8, 0, NULL, what);
    }
}

/* Two communicators of one process need no order between them, and their groups never get in each other's way. */
static void two_communicators(rank *r) {
    nccl_comm first = r->comm, second = NULL;
    nccl_config config = NCCL_CONFIG;
    nccl_id id;
    CHECK(r->p, !r->nccl->call.unique_id(&id));
    CHECK(r->p, !r->nccl->call.init(&second, 1, id, 0, &config));
    for (int i = 0; i < 2; i++) {
        r->comm = i ? second : first;
        CHECK(r->p, !start(r));
        CHECK(r->p, !out(r, r->foreign + i * 100, 100, 0, i ? r->other : r->stream));
        CHECK(r->p, !in(r, r->memory + i * 100, 100, 0, i ? r->other : r->stream));
        CHECK(r->p, !end(r));
    }
    CHECK(r->p, wait_for(r, r->stream) == 0 && wait_for(r, r->other) == 0);
    CHECK(r->p, !memcmp(r->memory, r->foreign, 200));
    r->comm = second;
    CHECK(r->p, !start(r) && !out(r, r->foreign, 1, 0, r->stream));
    CHECK(r->p, end(r) == NCCL_INVALID_USAGE); /* to itself, and nothing received */
    leave(r);
    r->comm = first;
    leave(r);
}
Test(nccl_standin, two_communicators) {
    setting x = {.seed = 6, .body = two_communicators};
    run(&x, 1, 0, NULL, "two communicators");
}

/* --- what does not ------------------------------------------------------------------------------------------------ */

static void warm(rank *r) {
    everybody(r, 1);
    CHECK(r->p, wait_for(r, r->stream) == 0);
}
static unsigned next(const rank *r) { return (r->p->rank + 1) % r->p->ranks; }
static unsigned before(const rank *r) { return (r->p->rank + r->p->ranks - 1) % r->p->ranks; }
static void around(rank *r, size_t bytes, cu_stream s) {
    CHECK(r->p, !start(r));
    CHECK(r->p, !out(r, r->foreign, bytes, next(r), s));
    CHECK(r->p, !in(r, r->memory, bytes, before(r), s));
    CHECK(r->p, !end(r));
}

static void two_streams(rank *r) {
    warm(r);
    around(r, 10, r->stream);
    CHECK(r->p, !start(r));
    CHECK(r->p, !out(r, r->foreign, 10, next(r), r->other));
    CHECK(r->p, !in(r, r->memory + 100, 10, before(r), r->other));
    CHECK(r->p, !end(r));
    wait_for(r, r->stream);
    wait_for(r, r->other);
    leave(r);
}
static void unordered_copy(rank *r) {
    warm(r);
    around(r, 10, r->stream);
    r->cuda->call.copy((uintptr_t)r->memory + 100, (uintptr_t)r->memory + 5, 10, r->other);
    wait_for(r, r->stream);
    wait_for(r, r->other);
    leave(r);
}
static void two_graphs(rank *r) {
    const fcp_cuda_table *call = &r->cuda->call;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    warm(r);
    CHECK(r->p, !call->capture_begin(r->stream, CU_CAPTURE_THREAD_LOCAL));
    around(r, 10, r->stream);
    CHECK(r->p, !call->capture_end(r->stream, &graph));
    CHECK(r->p, !call->graph_instantiate(&exec, graph, 0) && !call->graph_destroy(graph));
    CHECK(r->p, !call->graph_launch(exec, r->stream) && !call->graph_launch(exec, r->other));
    wait_for(r, r->stream);
    wait_for(r, r->other);
    CHECK(r->p, !call->graph_exec_destroy(exec));
    leave(r);
}
static void other_sizes(rank *r) {
    warm(r);
    CHECK(r->p, !start(r));
    CHECK(r->p, !out(r, r->foreign, 10 + r->p->rank, next(r), r->stream));
    CHECK(r->p, !in(r, r->memory, 10, before(r), r->stream));
    CHECK(r->p, !end(r));
    wait_for_trouble(r, 0);
    CHECK(r->p, !r->nccl->call.abort(r->comm));
}
/* Rank 0 launches two groups in one order, and rank 1 in the other. */
static void other_order(rank *r) {
    warm(r);
    for (int i = 0; i < 2; i++) {
        size_t bytes = (size_t)(i ^ (int)r->p->rank) * 100 + 100;
        CHECK(r->p, !start(r));
        if (r->p->rank == 0) CHECK(r->p, !out(r, r->foreign, bytes, 1, r->stream));
        else CHECK(r->p, !in(r, r->memory, bytes, 0, r->stream));
        CHECK(r->p, !end(r));
    }
    wait_for_trouble(r, 1);
    CHECK(r->p, !r->nccl->call.abort(r->comm));
}
static void not_connected(rank *r) {
    cu_graph graph = NULL;
    CHECK(r->p, !r->cuda->call.capture_begin(r->stream, CU_CAPTURE_THREAD_LOCAL));
    CHECK(r->p, !start(r));
    CHECK(r->p, !out(r, r->foreign, 10, next(r), r->stream));
    CHECK(r->p, !in(r, r->memory, 10, before(r), r->stream));
    CHECK(r->p, end(r) == NCCL_INVALID_USAGE);
    CHECK(r->p, !r->cuda->call.capture_end(r->stream, &graph));
    CHECK(r->p, !r->cuda->call.graph_destroy(graph));
    leave(r);
}
static void graph_outlives(rank *r) {
    cu_graph graph = NULL;
    warm(r);
    CHECK(r->p, !r->cuda->call.capture_begin(r->stream, CU_CAPTURE_THREAD_LOCAL));
    around(r, 10, r->stream);
    CHECK(r->p, !r->cuda->call.capture_end(r->stream, &graph));
    leave(r);
    CHECK(r->p, !r->cuda->call.graph_destroy(graph));
}
static void ends_twice(rank *r) {
    leave(r);
    CHECK(r->p, r->nccl->call.destroy(r->comm) == NCCL_INVALID_ARGUMENT);
}
static void aborts_twice(rank *r) {
    CHECK(r->p, !r->nccl->call.abort(r->comm));
    CHECK(r->p, r->nccl->call.abort(r->comm) == NCCL_INVALID_ARGUMENT);
}
static void host_memory(rank *r) {
    char here[16] = {0};
    CHECK(r->p, !start(r));
    CHECK(r->p, out(r, here, 10, next(r), r->stream) == NCCL_INVALID_ARGUMENT);
    CHECK(r->p, end(r) == NCCL_INVALID_ARGUMENT);
    leave(r);
}
static void registers_foreign(rank *r) {
    CHECK(r->p, r->nccl->call.enroll(r->comm, r->foreign, 100, &r->handle) == NCCL_INVALID_ARGUMENT);
    leave(r);
}
static void frees_registered(rank *r) {
    void *memory = NULL;
    CHECK(r->p, !r->nccl->call.allocate(&memory, 100));
    CHECK(r->p, !r->nccl->call.enroll(r->comm, memory, 100, &r->handle));
    CHECK(r->p, !r->nccl->call.release(memory));
    leave(r);
}
static void frees_by_driver(rank *r) {
    void *memory = NULL;
    CHECK(r->p, !r->nccl->call.allocate(&memory, 100));
    r->cuda->call.release((uintptr_t)memory);
    leave(r);
}
static void overlaps(rank *r) {
    CHECK(r->p, !start(r));
    CHECK(r->p, !out(r, r->memory, 10, next(r), r->stream));
    CHECK(r->p, !in(r, r->memory + 9, 10, before(r), r->stream));
    CHECK(r->p, !end(r));
    CHECK(r->p, wait_for(r, r->stream) != CU_ERROR_NOT_READY);
    leave(r);
}
static void destroys_under_way(rank *r) {
    warm(r);
    r->p->nccl->patience_s = 1;
    if (r->p->rank == 0) {
        CHECK(r->p, !start(r));
        CHECK(r->p, !in(r, r->memory, 10, 1, r->stream));
        CHECK(r->p, !end(r));
        r->nccl->call.destroy(r->comm);
    } else CHECK(r->p, !r->nccl->call.abort(r->comm));
}

Test(nccl_standin, says_what_is_wrong) {
    static const struct {
        void (*body)(rank *);
        unsigned ranks;
        const char *trouble;
    } all[] = {{two_streams, 2, "are not ordered"},
               {two_graphs, 2, "of one communicator are not ordered"},
               {unordered_copy, 2, "a copy and a group of transfers are not ordered"},
               {other_sizes, 2, "bytes, which receives"},
               {other_order, 2, "rank 0 sends rank 1 100 bytes, which receives 200"},
               {not_connected, 2, "a graph is being captured"},
               {graph_outlives, 2, "while graphs that use it are alive"},
               {ends_twice, 1, "ncclCommDestroy of a communicator that has ended"},
               {aborts_twice, 1, "ncclCommAbort of a communicator that has ended"},
               {host_memory, 2, "not memory of the communicator's device"},
               {registers_foreign, 1, "not of ncclMemAlloc"},
               {frees_registered, 1, "that a communicator has registered"},
               {frees_by_driver, 1, "is freed by the driver"},
               {overlaps, 2, "touch the same bytes"},
               {destroys_under_way, 2, "would wait for ever"}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        setting x = {.seed = i * 8, .silent = true, .body = all[i].body};
        run(&x, all[i].ranks, 0, all[i].trouble, all[i].trouble);
    }
}

/* --- waiting ------------------------------------------------------------------------------------------------------ */

/* Both ranks only send, and then only receive. Whether that ends depends on which sends wait for their receives. */
static void one_by_one(rank *r) {
    process *p = r->p;
    warm(r);
    unsigned peer = 1 - p->rank;
    CHECK(p, !settle(r, out(r, r->foreign, 10, peer, r->stream)));
    CHECK(p, !settle(r, in(r, r->memory, 10, peer, r->stream)));
    p->word->code = wait_together(r, r->stream) == 0 ? FCP_OK : FCP_E_RUN;
    CHECK(p, !r->nccl->call.abort(r->comm));
    CHECK(p, wait_for(r, r->stream) == 0);
}
Test(nccl_standin, a_send_may_wait_for_its_receive) {
    unsigned ended = 0, stuck = 0;
    for (uint64_t seed = 0; seed < 40 && !(ended && stuck); seed++) {
        setting x = {.seed = seed, .silent = true, .body = one_by_one};
        process_shared *s = process_shared_make();
        process_run(s, 2, run_rank, &x);
        process_all_well(s, 2, 0, "one by one");
        if (s->words[0].code == FCP_OK && s->words[1].code == FCP_OK) ended++;
        if (s->words[0].code && s->words[1].code) stuck++;
        process_shared_end(s, false);
    }
    cr_assert(ended && stuck, "%u, %u", ended, stuck);
}

/* Rank 1 has died, stopped or stalled. */
static bool suffered(const rank *r) {
    process_shared *shared = r->p->shared;
    if (r->p->rank == 1 && r->p->nccl->begun >= r->p->nccl->group_at) atomic_store(&shared->counter[TROUBLE], 1);
    return atomic_load(&shared->counter[TROUBLE]) || shared->words[1].stops ||
           *(volatile int *)&shared->words[1].status;
}
/* That happens in its third group. The others wait, or are told. */
static void third_group(rank *r) {
    const setting *x = r->p->argument;
    bool told = x->fault == STANDIN_DIES && !x->silent;
    nccl_result error = NCCL_SUCCESS;
    warm(r);
    around(r, 100, r->stream);
    CHECK(r->p, wait_for(r, r->stream) == 0);
    around(r, 100, r->stream);
    fcp_patience patience = fcp_patience_of(LONG, 0.1);
    for (int asked = 0; asked < 20 && !fcp_patience_ends(&patience) && !(told && error);) {
        CHECK(r->p, r->cuda->call.stream_query(r->stream) == CU_ERROR_NOT_READY);
        CHECK(r->p, !r->nccl->call.async_error(r->comm, &error));
        asked += suffered(r) && !told;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    CHECK(r->p, told || suffered(r));
    CHECK(r->p, error == (told ? NCCL_REMOTE_ERROR : NCCL_SUCCESS));
    CHECK(r->p, !r->nccl->call.abort(r->comm));
    CHECK(r->p, wait_for(r, r->stream) == 0);
}
Test(nccl_standin, a_rank_dies_stops_stalls) {
    static const int faults[] = {STANDIN_DIES, STANDIN_DIES, STANDIN_STOPS, STANDIN_STALLS};
    for (unsigned i = 0; i < 4; i++) {
        setting x = {.seed = i, .silent = i > 0, .group_at = 3, .fault = faults[i], .body = third_group};
        run(&x, 2, faults[i] == STANDIN_STALLS ? 0 : 2, NULL, "a fault");
    }
}

/* --- joining ------------------------------------------------------------------------------------------------------ */

static void one_device(process *p) {
    rank r;
    const setting *x = p->argument;
    bool may = x->version >= 23000;
    open_rank(&r, p);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 1);
    nccl_result result = join(&r);
    CHECK(p, result == (may ? NCCL_SUCCESS : NCCL_INVALID_USAGE));
    if (!may) CHECK(p, strstr(r.nccl->call.last_error(r.comm), "Duplicate GPU"));
    if (may) leave(&r);
    else if (r.comm) CHECK(p, !r.nccl->call.abort(r.comm));
    close_rank(&r);
}
static void bad_ids(process *p) {
    rank r;
    nccl_id id = {{0}};
    nccl_config config = NCCL_CONFIG;
    config.blocking = 0;
    open_rank(&r, p);
    CHECK(p, r.nccl->call.init(&r.comm, 2, id, (int)p->rank, &config) == NCCL_INVALID_ARGUMENT);
    CHECK(p, r.nccl->call.init(&r.comm, 2, id, 2, &config) == NCCL_INVALID_ARGUMENT);
    config.max_ctas = 0;
    CHECK(p, r.nccl->call.init(&r.comm, 1, id, 0, &config) == NCCL_INVALID_ARGUMENT);
    config.max_ctas = 4;
    CHECK(p, !r.nccl->call.unique_id(&id));
    CHECK(p, !settle(&r, r.nccl->call.init(&r.comm, 1, id, 0, &config)));
    leave(&r);
    CHECK(p, r.nccl->call.init(&r.comm, 1, id, 0, &config) == NCCL_SYSTEM_ERROR); /* an id of another run */
    p->nccl->silent = true;
    CHECK(p, r.nccl->call.init(&r.comm, 1, id, 0, &config) == NCCL_IN_PROGRESS);
    nccl_result error = NCCL_SUCCESS;
    for (int i = 0; i < 10; i++) CHECK(p, !r.nccl->call.async_error(r.comm, &error) && error == NCCL_IN_PROGRESS);
    CHECK(p, !r.nccl->call.abort(r.comm));
    close_rank(&r);
}
static void too_old(process *p) {
    fcp_nccl *nccl = NULL;
    fcp_error err = {0};
    p->nccl->version = 21805;
    CHECK(p, fcp_nccl_open(&nccl, &err) == FCP_E_BACKEND);
    CHECK(p, strstr(err.message, "2.19"), "%s", err.message);
}

Test(nccl_standin, joining) {
    process_shared *s = process_shared_make();
    setting x = {.device_of_all = 1};
    process_run(s, 2, one_device, &x);
    process_all_well(s, 2, 0, "two ranks on a device");
    x.version = 23000;
    process_run(s, 2, one_device, &x);
    process_all_well(s, 2, 0, "two ranks on a device, as 2.30 may");
    x = (setting){.version = 0};
    process_run(s, 1, bad_ids, &x);
    process_all_well(s, 1, 0, "ids");
    cr_assert_eq(s->words[0].live, 0);
    cr_assert_str_empty(s->words[0].trouble, "%s", s->words[0].trouble);
    process_run(s, 1, too_old, &x);
    process_all_well(s, 1, 0, "an old version");
    process_shared_end(s, false);
}
