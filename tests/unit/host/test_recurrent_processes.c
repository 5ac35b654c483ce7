/* test_recurrent_processes.c: halos and scans where each rank is a process, with the transports "mpi" and "tcp": the
 * bits of one process, and what happens when ranks make other calls than each other, stall, are late, die, are stopped
 * or interrupted. A small library stands in for MPI. */
#include "runtime/exec/agree.h"
#include "runtime/host/executor.h"
#include "runtime/judge/packed.h"
#include "tests/support/plan_of.h"
#include "tests/support/processes.h"
#include "tests/support/recurrent_case.h"
#include "tests/support/recurrent_plan.h"

enum { RANKS = 4, LAYERS = 5, ROW = 12 };

static const char text[] =
    "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { nodes = 2; gpus = 2 }\n"
    "batch { lengths = [700, 1, 390, 5] }\n"
    "plan { mask = causal; block = 128; layout = zigzag; strategy = zigzag; passes = forward, backward }\n";
static const fcp_recurrent layers[LAYERS] = {
    {.kind = FCP_HALO, .times = 1, .before = 3, .channels = 1},
    {.kind = FCP_HALO, .times = 1, .before = 200, .after = 150, .channels = 1},
    {.kind = FCP_SCAN, .times = 1, .heads = 4, .rows = 8, .columns = 5, .parts = 2, .shape = FCP_SCAN_CHAIN},
    {.kind = FCP_SCAN,
     .times = 1,
     .heads = 2,
     .rows = 7,
     .columns = 40,
     .decay = FCP_DECAY_VECTOR,
     .reverse = 1,
     .parts = 1,
     .shape = FCP_SCAN_NODES},
    {.kind = FCP_SCAN,
     .times = 1,
     .heads = 2,
     .rows = 20,
     .columns = 20,
     .decay = FCP_DECAY_MATRIX,
     .parts = 1,
     .shape = FCP_SCAN_TREE}};

/* What all processes have from the one that began them. */
static fcp_plan *plan;
static recurrent_case known;
static const fcp_transport *transport;

/* What one process gets of all calls, for each rank. Each call is given what it needs, and its result is kept. */
typedef struct results {
    void *halo[LAYERS][RANKS], *dx[LAYERS][RANKS]; /* float32 rows of ROW bytes */
    float *entering[LAYERS][FCP_PASSES][RANKS];
} results;
static results right;

static size_t bytes_of(uint32_t layer, uint32_t rank, bool halo) {
    const fcp_recurrent *x = &plan->recurrent[layer];
    if (x->kind == FCP_SCAN) return known.counts[rank] * x->heads * fcp_state_numbers(x) * sizeof(float);
    return ROW * (halo ? known.counts[rank] * ((size_t)x->before + x->after) : known.tokens[rank]);
}
static float *drawn(size_t bytes, uint64_t seed) {
    float *x = malloc(bytes + sizeof *x);
    for (size_t i = 0; i < bytes / sizeof *x; i++) x[i] = case_number(&seed);
    return x;
}

/* Makes one call for ranks [first, first + count), and gives the results. Frees what the call needs besides. */
static fcp_code call_halo(fcp_session *s, uint32_t layer, uint32_t first, uint32_t count, void **out, fcp_error *err) {
    fcp_halo_rank ranks[RANKS];
    for (uint32_t r = 0; r < count; r++) {
        out[r] = calloc(1, bytes_of(layer, first + r, true) + 1);
        ranks[r] = (fcp_halo_rank){drawn(bytes_of(layer, first + r, false), first + r), out[r]};
    }
    const fcp_code code = fcp_session_halo(s, layer, ROW, ranks, NULL, err);
    for (uint32_t r = 0; r < count; r++) free((void *)(uintptr_t)ranks[r].x);
    return code;
}
static fcp_code call_gradient(fcp_session *s, uint32_t layer, uint32_t first, uint32_t count, void **out,
                              fcp_error *err) {
    fcp_halo_gradient_rank ranks[RANKS];
    for (uint32_t r = 0; r < count; r++) {
        out[r] = drawn(bytes_of(layer, first + r, false), first + r);
        ranks[r] = (fcp_halo_gradient_rank){drawn(bytes_of(layer, first + r, true), first + r + 100), out[r]};
    }
    const fcp_code code = fcp_session_halo_gradient(s, layer, FCP_FP32, ROW / sizeof(float), ranks, NULL, err);
    for (uint32_t r = 0; r < count; r++) free((void *)(uintptr_t)ranks[r].d_halo);
    return code;
}
static fcp_code call_scan(fcp_session *s, uint32_t layer, fcp_pass pass, uint32_t first, uint32_t count, float **out,
                          fcp_error *err) {
    case_scan all = case_scan_draw(&known, &plan->recurrent[layer], layer);
    const fcp_code code = fcp_session_scan(s, layer, pass, all.ranks + first, NULL, err);
    for (uint32_t r = 0; r < count; r++) {
        out[r] = all.entering[first + r];
        all.entering[first + r] = NULL;
    }
    case_scan_free(&known, &all);
    return code;
}

/* Makes all calls of `out`. Stops at the first that fails. */
static fcp_code call_all(fcp_session *s, uint32_t first, uint32_t count, results *out, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < LAYERS && !code; i++) {
        if (layers[i].kind == FCP_HALO) {
            code = call_halo(s, i, first, count, &out->halo[i][first], err);
            if (!code) code = call_gradient(s, i, first, count, &out->dx[i][first], err);
        } else
            for (int pass = 0; pass < FCP_PASSES && !code; pass++)
                code = call_scan(s, i, (fcp_pass)pass, first, count, &out->entering[i][pass][first], err);
    }
    return code;
}
static void free_results(results *x) {
    for (uint32_t i = 0; i < LAYERS; i++)
        for (uint32_t r = 0; r < RANKS; r++) {
            free(x->halo[i][r]);
            free(x->dx[i][r]);
            for (int pass = 0; pass < FCP_PASSES; pass++) free(x->entering[i][pass][r]);
        }
}

static fcp_code forward(fcp_session *session, fcp_error *err) {
    enum { INPUTS = 1 << FCP_TENSOR_Q | 1 << FCP_TENSOR_K | 1 << FCP_TENSOR_V };
    fcp_packed packed = {0};
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_packed_alloc(&shape, INPUTS | fcp_pass_outputs(FCP_FORWARD), &packed, err);
    if (!code) fcp_packed_draw(&shape, INPUTS, 1, &packed);
    if (!code) code = fcp_session_run_packed(session, plan, FCP_FORWARD, &packed, NULL, err);
    fcp_packed_free(&packed);
    return code;
}

/* lost: the ranks that do not get to their end, a bit each. */
static void on(const fcp_transport *t, unsigned lost, void (*body)(process *)) {
    const fcp_session_options options = {.size = sizeof options, .compute_threads = 1};
    fcp_session *session = NULL;
    fcp_error err = {0};
    transport = t;
    plan = plan_of(text);
    recurrent_give(plan, layers, LAYERS);
    known = case_of(plan);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    memset(&right, 0, sizeof right);
    cr_assert_eq(call_all(session, 0, RANKS, &right, &err), FCP_OK, "%s", err.message);
    fcp_session_free(session);
    process_shared *s = process_shared_make();
    process_run(s, RANKS, body, NULL);
    process_all_well(s, RANKS, lost, t->name);
    process_shared_end(s, lost);
    free_results(&right);
    case_free(&known);
    fcp_plan_free(plan);
}
static void on_both(unsigned lost, void (*body)(process *)) {
    on(&fcp_transport_mpi, lost, body);
    on(&fcp_transport_tcp, lost, body);
}

static fcp_session *join(process *p, uint32_t timeout_s, uint32_t threads, int (*interrupted)(void *), void *context) {
    fcp_session *session = NULL;
    fcp_error err = {0};
    if (transport == &fcp_transport_mpi) process_mpi(p, p->rank & 1 ? "mpich" : "open");
    else process_tcp_id(p);
    process_meet(p, 7, 1);
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank, .id = p->shared->id.bytes};
    const fcp_session_options options = {.size = sizeof options,
                                         .transport = transport->name,
                                         .start = &start,
                                         .timeout_s = timeout_s,
                                         .compute_threads = threads,
                                         .interrupted = interrupted,
                                         .interrupted_context = context};
    const fcp_code code = fcp_session_create(plan, &options, &session, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    process_meet(p, 6, 1);
    if (transport == &fcp_transport_mpi && p->rank == 0) process_mpi_met();
    if (!session) _exit(1);
    return session;
}

/* The bits of one process: several times, with passes between them, and with helpers. */
static void same_bits(process *p) {
    fcp_session *session = join(p, 20, p->rank == 2 ? 3 : 1, NULL, NULL);
    fcp_error err = {0};
    for (int turn = 0; turn < 3; turn++) {
        results own = {0};
        const uint32_t r = p->rank;
        CHECK(p, call_all(session, r, 1, &own, &err) == FCP_OK, "%s", err.message);
        for (uint32_t i = 0; i < LAYERS; i++) {
            const bool halo = layers[i].kind == FCP_HALO;
            if (halo) {
                CHECK(p, own.dx[i][r] && !memcmp(own.halo[i][r], right.halo[i][r], bytes_of(i, r, true)), "layer %u",
                      i);
                CHECK(p, own.dx[i][r] && !memcmp(own.dx[i][r], right.dx[i][r], bytes_of(i, r, false)), "layer %u", i);
            }
            for (int pass = 0; pass < FCP_PASSES && !halo; pass++)
                CHECK(p,
                      own.entering[i][pass][r] &&
                          !memcmp(own.entering[i][pass][r], right.entering[i][pass][r], bytes_of(i, r, false)),
                      "layer %u, pass %d", i, pass);
        }
        CHECK(p, forward(session, &err) == FCP_OK, "%s", err.message);
        free_results(&own);
    }
    fcp_session_free(session);
}
Test(recurrent_processes, bits_of_one_process) { on_both(0, same_bits); }

/* Makes a scan, and forgets its result. */
static fcp_code scan(process *p, fcp_session *session, uint32_t layer, fcp_error *err) {
    float *entering = NULL;
    const fcp_code code = call_scan(session, layer, FCP_FORWARD, p->rank, 1, &entering, err);
    free(entering);
    return code;
}
static fcp_code halo(process *p, fcp_session *session, uint32_t layer, fcp_error *err) {
    void *out = NULL;
    const fcp_code code = call_halo(session, layer, p->rank, 1, &out, err);
    free(out);
    return code;
}

/* Calls that are new, and differ: all ranks say who calls what, and go on. */
static void new_calls_differ(process *p) {
    fcp_session *session = join(p, 20, 1, NULL, NULL);
    fcp_error err = {0};
    fcp_code code = p->rank == 2 ? halo(p, session, 0, &err) : scan(p, session, 3, &err);
    CHECK(p, code == FCP_E_ARGUMENT && err.where.rank == 2, "%s", err.message);
    CHECK(p,
          !strcmp(err.message, "rank 2 calls the halo of layer 0, rows of 12 bytes; rank 0 calls the forward scan "
                               "of layer 3"),
          "%s", err.message);
    code = p->rank == 1 ? halo(p, session, 1, &err) : halo(p, session, 0, &err);
    CHECK(p, code == FCP_E_ARGUMENT && err.where.rank == 1, "%s", err.message);
    CHECK(p, scan(p, session, 3, &err) == FCP_OK, "%s", err.message);
    CHECK(p, halo(p, session, 0, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(recurrent_processes, new_calls_that_differ) { on_both(0, new_calls_differ); }

/* Calls that all know, and differ: no rank takes a message of the one for one of the other, and nobody waits for
 * longer than the limit. */
static void known_calls_differ(process *p) {
    fcp_session *session = join(p, 2, 1, NULL, NULL);
    fcp_error err = {0};
    CHECK(p, scan(p, session, 2, &err) == FCP_OK, "%s", err.message);
    CHECK(p, scan(p, session, 4, &err) == FCP_OK, "%s", err.message);
    process_meet(p, 0, 1);
    const fcp_code code = scan(p, session, p->rank == 1 ? 2 : 4, &err);
    CHECK(p, code == FCP_E_RUN, "%s", err.message);
    CHECK(p, scan(p, session, 4, &err) == FCP_E_RUN && strstr(err.message, "a call of this session has failed"), "%s",
          err.message);
    process_meet(p, 0, 2);
    fcp_session_free(session);
}
Test(recurrent_processes, known_calls_that_differ) { on_both(0, known_calls_differ); }

/* Rank 2 cannot begin a call. All hear why, and the session goes on. */
static void one_cannot_begin(process *p) {
    fcp_session *session = join(p, 20, 1, NULL, NULL);
    const fcp_call call = {.kind = FCP_CALL_SCAN, .layer = 2}, next = {.kind = FCP_CALL_SCAN, .layer = 3};
    fcp_calls calls = {0};
    fcp_error err = {0};
    uint32_t number = 9;
    const fcp_code made = p->rank == 2 ? fcp_fail(&err, FCP_E_NO_MEMORY, "too little") : FCP_OK;
    CHECK(p, fcp_agree_call(session->net, &calls, &call, made, &number, &err) == FCP_E_NO_MEMORY);
    CHECK(p, strstr(err.message, p->rank == 2 ? "too little" : "rank 2 cannot begin: E012"), "%s", err.message);
    CHECK(p, !fcp_call_known(&calls, &call));
    for (uint32_t i = 0; i < 2500; i++) { /* more than are kept: all forget them at the same call */
        const fcp_call many = {.kind = FCP_CALL_HALO, .row = i % 1500 + 1};
        CHECK(p, fcp_agree_call(session->net, &calls, &many, FCP_OK, &number, &err) == FCP_OK, "%s", err.message);
        CHECK(p, fcp_call_known(&calls, &many) && number < 1024);
    }
    CHECK(p, fcp_agree_call(session->net, &calls, &next, FCP_OK, &number, &err) == FCP_OK, "%s", err.message);
    fcp_calls_free(&calls);
    CHECK(p, scan(p, session, 2, &err) == FCP_OK, "%s", err.message);
    fcp_session_free(session);
}
Test(recurrent_processes, one_that_cannot_begin) { on_both(0, one_cannot_begin); }

static void all_know(process *p, fcp_session *session) {
    fcp_error err = {0};
    CHECK(p, scan(p, session, 2, &err) == FCP_OK, "%s", err.message);
    process_meet(p, 0, 1);
}

/* Rank 2 makes no second call. Within the time limit the others say so, with their round, and run no more. */
static void one_stalls(process *p) {
    fcp_session *session = join(p, 2, 1, NULL, NULL);
    fcp_error err = {0};
    all_know(p, session);
    if (p->rank != 2) {
        CHECK(p, scan(p, session, 2, &err) == FCP_E_RUN && err.where.rank < RANKS, "%s", err.message);
        CHECK(p,
              strstr(err.message, "has failed") ||
                  (strstr(err.message, "layer 2 (scan), forward pass, round ") && strstr(err.message, "for 2 s")),
              "%s", err.message);
        CHECK(p, forward(session, &err) == FCP_E_RUN && strstr(err.message, "a new session is needed"), "%s",
              err.message);
    }
    process_meet(p, 0, 2);
    if (p->rank == 2)
        CHECK(p, scan(p, session, 2, &err) == FCP_E_RUN && strstr(err.message, "has failed"), "%s", err.message);
    fcp_session_free(session);
}
Test(recurrent_processes, a_rank_that_stalls) { on_both(0, one_stalls); }

/* Rank 1 is busy for longer than the time limit, and the others wait for it. */
static void one_is_busy(process *p) {
    fcp_session *session = join(p, 1, 1, NULL, NULL);
    fcp_error err = {0};
    all_know(p, session);
    for (double end = fcp_clock() + 1.5; p->rank == 1 && fcp_clock() < end;) continue;
    CHECK(p, scan(p, session, 2, &err) == FCP_OK, "%s", err.message);
    for (double end = fcp_clock() + 1.5; p->rank == 1 && fcp_clock() < end;) continue;
    CHECK(p, halo(p, session, 1, &err) == FCP_OK, "a new call: %s", err.message);
    fcp_session_free(session);
}
Test(recurrent_processes, a_rank_that_is_busy) { on_both(0, one_is_busy); }

/* Rank 2 dies between two calls, or is stopped: the others say so. */
static void one_dies(process *p) {
    fcp_session *session = join(p, 100, 1, NULL, NULL);
    fcp_error err = {0};
    all_know(p, session);
    if (p->rank == 2) _exit(1);
    const double begun = fcp_clock();
    CHECK(p, scan(p, session, 2, &err) == FCP_E_RUN && strstr(err.message, "or its process has ended"), "%s",
          err.message);
    CHECK(p, fcp_clock() - begun < 50, "%.1f s", fcp_clock() - begun);
    fcp_session_free(session);
}
Test(recurrent_processes, a_rank_that_dies) { on(&fcp_transport_tcp, 1 << 2, one_dies); }

static void one_is_stopped(process *p) {
    fcp_session *session = join(p, 1, 1, NULL, NULL);
    fcp_error err = {0};
    all_know(p, session);
    nanosleep(&(struct timespec){.tv_nsec = 400000000}, NULL); /* it has been heard of */
    if (p->rank == 2) {
        p->word->stops = 1;
        raise(SIGSTOP);
    }
    CHECK(p, scan(p, session, 2, &err) == FCP_E_RUN, "%s", err.message);
    fcp_session_free(session);
}
Test(recurrent_processes, a_rank_that_is_stopped) { on_both(1 << 2, one_is_stopped); }

static int wants_no_more(void *yes) { return *(const int *)yes; }

/* Rank 0 waits for rank 2, and its caller wants no more. It ends at once, and then the others fail, long before the
 * limit: now, or if they need nothing more of it, at their next call. */
static void one_is_interrupted(process *p) {
    int yes = 0;
    fcp_session *session = join(p, 100, 1, wants_no_more, &yes);
    fcp_error err = {0};
    all_know(p, session);
    yes = p->rank == 0;
    const double begun = fcp_clock();
    while (p->rank == 2 && !atomic_load(&p->shared->counter[1])) nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    const fcp_code code = scan(p, session, 2, &err);
    CHECK(p, fcp_clock() - begun < 50, "%.1f s", fcp_clock() - begun);
    if (p->rank) {
        CHECK(p, code == FCP_OK || strstr(err.message, "has failed"), "%s", err.message);
        CHECK(p, scan(p, session, 2, &err) == FCP_E_RUN, "%s", err.message);
    } else {
        atomic_fetch_add(&p->shared->counter[1], 1);
        CHECK(p, code == FCP_E_INTERRUPTED, "%s", err.message);
        CHECK(p, scan(p, session, 2, &err) == FCP_E_RUN && strstr(err.message, "has been interrupted"), "%s",
              err.message);
    }
    process_meet(p, 0, 2);
    fcp_session_free(session);
}
Test(recurrent_processes, a_rank_that_is_interrupted) { on_both(0, one_is_interrupted); }
