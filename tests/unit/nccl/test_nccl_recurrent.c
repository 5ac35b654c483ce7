/* test_nccl_recurrent.c: halos and scans of processes that communicate by NCCL: the bits of the host, in device memory
 * and in that of the host; on one fabric and on two; before attention and behind it. And ranks that call something
 * else, fail, die or stall: all end with an error, and none hangs. */
#include "tests/support/amount.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/recurrent_ops.h"
#include "tests/support/recurrent_plan.h"

typedef struct recurring {
    const fcp_plan *plan;
    uint64_t seed;
    bool device; /* tensors lie on the devices, and calls name a stream */
    uint32_t timeout_s;
    unsigned odd;
    int fault; /* of the odd rank's group_at-th group from the first call on */
    long group_at;
    bool driver; /* its driver fails, one call after the other, from `first` on */
    int turns;
} recurring;

static void prepare(process *p, uint64_t seed) {
    const recurring *x = p->argument;
    p->cuda->devices = PROCESSES;
    p->cuda->seed = seed * 31 + p->rank;
    p->cuda->plan = x->plan;
    p->nccl->seed = seed;
}

static fcp_session *join(process *p, uint32_t timeout_s, fcp_error *err) {
    const recurring *x = p->argument;
    const fcp_start start = {.size = sizeof start,
                             .ranks = p->ranks,
                             .rank = p->rank,
                             .device = p->rank + 1,
                             .id = p->shared->id.bytes};
    const fcp_session_options options = {.size = sizeof options,
                                         .backend = "cuda",
                                         .transport = "nccl",
                                         .start = &start,
                                         .timeout_s = timeout_s,
                                         .graph_from = 1,
                                         .stage_bytes = 4096};
    fcp_session *session = NULL;
    fcp_session_create(x->plan, &options, &session, err);
    return session;
}

/* A rank's tensors of a call, and the devices' driver. */
typedef struct own {
    fcp_cuda *cuda;
    cu_stream stream;
    cu_ptr memory[OP_TENSORS];
    char *at[OP_RANKS][OP_TENSORS];
} own;

static void own_open(process *p, own *o) {
    cu_context context = NULL;
    fcp_error err;
    memset(o, 0, sizeof *o);
    CHECK(p, fcp_cuda_open(&o->cuda, &err) == FCP_OK);
    CHECK(p, !o->cuda->call.context_retain(&context, (int)p->rank) && !o->cuda->call.context_set(context));
    CHECK(p, !o->cuda->call.stream_create(&o->stream, CU_STREAM_NON_BLOCKING, 0));
}
static void own_close(process *p, own *o) {
    CHECK(p, !o->cuda->call.stream_destroy(o->stream) && !o->cuda->call.context_release((int)p->rank));
    fcp_cuda_close(o->cuda);
}
static void own_place(process *p, own *o, const recurrent_op *op, bool device) {
    for (uint32_t t = 0; t < op->count; t++) {
        o->at[p->rank][t] = op->start[p->rank][t];
        if (!device) continue;
        CHECK(p, !o->cuda->call.allocate(&o->memory[t], op->bytes[p->rank][t] + 1));
        o->at[p->rank][t] = (char *)(uintptr_t)o->memory[t];
        memcpy(o->at[p->rank][t], op->start[p->rank][t], op->bytes[p->rank][t]);
    }
}
static void own_release(process *p, own *o, const recurrent_op *op) {
    for (uint32_t t = 0; t < op->count; t++) {
        if (o->memory[t]) CHECK(p, !o->cuda->call.release(o->memory[t]));
        o->memory[t] = 0;
    }
}

/* A session on the host, which has all ranks and says what is right. */
static fcp_session *judge_open(process *p) {
    const recurring *x = p->argument;
    const fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = LONG};
    fcp_session *session = NULL;
    fcp_error err = {0};
    CHECK(p, fcp_session_create(x->plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    return session;
}

static bool alike(const recurrent_op *op, uint32_t rank, char *const *at) {
    bool same = true;
    for (uint32_t t = 0; t < op->count; t++) same &= !memcmp(at[t], op->right[rank][t], op->bytes[rank][t]);
    return same;
}

/* Every call of every layer, twice; attention between them. */
static void one_rank(process *p) {
    const recurring *x = p->argument;
    fcp_error err = {0};
    own o;
    prepare(p, x->seed);
    share_id(p, 1);
    own_open(p, &o);
    fcp_session *host = judge_open(p), *session = join(p, LONG, &err);
    CHECK(p, session, "%s; %s", err.message, p->cuda->trouble);
    for (uint32_t i = 0; session && i < 4 * OP_LAYERS; i++) {
        const uint32_t layer = i / 2 % OP_LAYERS;
        recurrent_op op = op_of(x->plan, layer, (int)(i % 2), x->seed * 50 + i);
        fcp_shape shape;
        fcp_packed packed = {0};
        op_judge(host, &op);
        own_place(p, &o, &op, x->device);
        const fcp_code code = op_call(session, &op, o.at, p->rank, 1, x->device ? o.stream : NULL, &err);
        CHECK(p, code == FCP_OK, "layer %u: %s; %s", layer, err.message, p->cuda->trouble);
        if (x->device) CHECK(p, fcp_session_wait(session, &err) == FCP_OK, "%s; %s", err.message, p->cuda->trouble);
        CHECK(p, code || alike(&op, p->rank, o.at[p->rank]), "call %u: layer %u, kind %u: other bits", i, layer,
              op.kind);
        own_release(p, &o, &op);
        op_free(&op);
        if (i % 9) continue;
        fcp_plan_shape(x->plan, &shape);
        CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
        fcp_packed_draw(&shape, ALL, i + 1, &packed);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            CHECK(p, fcp_session_run_packed(session, x->plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s; %s",
                  err.message, p->cuda->trouble);
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
    fcp_session_free(host);
    own_close(p, &o);
}

/* Every call of every layer once outside, where processes agree; then all in one graph of the caller's, which is
 * launched several times with calls between. A call that is new is refused in a capture by each process alone. */
static void one_captures(process *p) {
    enum { OPS = 2 * OP_LAYERS };
    const recurring *x = p->argument;
    fcp_error err = {0};
    recurrent_op ops[OPS];
    own o[OPS];
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    prepare(p, x->seed);
    share_id(p, 1);
    own_open(p, &o[0]);
    fcp_session *host = judge_open(p), *session = join(p, LONG, &err);
    CHECK(p, session, "%s; %s", err.message, p->cuda->trouble);
    const fcp_cuda_table *call = &o[0].cuda->call;
    cu_stream stream = o[0].stream;
    for (uint32_t i = 0; session && i < OPS; i++) {
        if (i) o[i] = (own){.cuda = o[0].cuda, .stream = stream};
        ops[i] = op_of(x->plan, i / 2, (int)(i % 2), x->seed * 50 + i);
        op_judge(host, &ops[i]);
        own_place(p, &o[i], &ops[i], true);
        if (i % 2 == 0) {
            CHECK(p, !call->capture_begin(stream, CU_CAPTURE_THREAD_LOCAL));
            const fcp_code code = op_call(session, &ops[i], o[i].at, p->rank, 1, stream, &err);
            CHECK(p, code == FCP_E_ARGUMENT && strstr(err.message, "call it once outside"), "%s", err.message);
            CHECK(p, !call->capture_end(stream, &graph) && !call->graph_destroy(graph));
        }
        CHECK(p, op_call(session, &ops[i], o[i].at, p->rank, 1, stream, &err) == FCP_OK, "%s; %s", err.message,
              p->cuda->trouble);
    }
    CHECK(p, !call->capture_begin(stream, CU_CAPTURE_THREAD_LOCAL));
    for (uint32_t i = 0; session && i < OPS; i++)
        CHECK(p, op_call(session, &ops[i], o[i].at, p->rank, 1, stream, &err) == FCP_OK, "layer %u: %s; %s", i / 2,
              err.message, p->cuda->trouble);
    CHECK(p, !call->capture_end(stream, &graph) && !call->graph_instantiate(&exec, graph, 0));
    CHECK(p, !call->graph_destroy(graph) && p->nccl->captured > 0);
    for (int turn = 0; session && turn < 3; turn++) {
        CHECK(p, fcp_session_wait(session, &err) == FCP_OK, "%s; %s", err.message, p->cuda->trouble);
        for (uint32_t i = 0; i < OPS; i++)
            for (uint32_t t = 0; t < ops[i].count; t++) {
                memcpy(o[i].at[p->rank][t], ops[i].start[p->rank][t], ops[i].bytes[p->rank][t]);
                if (ops[i].written >> t & 1 && ops[i].kind != OP_GRADIENT)
                    memset(o[i].at[p->rank][t], 0x6f, ops[i].bytes[p->rank][t]);
            }
        if (turn) CHECK(p, op_call(session, &ops[6], o[6].at, p->rank, 1, stream, &err) == FCP_OK, "%s", err.message);
        CHECK(p, !call->graph_launch(exec, stream));
        if (turn) CHECK(p, op_call(session, &ops[8], o[8].at, p->rank, 1, stream, &err) == FCP_OK, "%s", err.message);
        CHECK(p, fcp_session_wait(session, &err) == FCP_OK, "%s; %s", err.message, p->cuda->trouble);
        for (uint32_t i = 0; i < OPS; i++)
            CHECK(p, alike(&ops[i], p->rank, o[i].at[p->rank]), "turn %d, call %u: layer %u, kind %u: other bits", turn,
                  i, i / 2, ops[i].kind);
    }
    CHECK(p, !call->graph_exec_destroy(exec));
    fcp_session_free(session);
    fcp_session_free(host);
    for (uint32_t i = 0; session && i < OPS; i++) {
        own_release(p, &o[i], &ops[i]);
        op_free(&ops[i]);
    }
    own_close(p, &o[0]);
}

static fcp_plan *plan_with_layers(uint64_t seed, unsigned ranks, unsigned nodes, const char *lengths,
                                  const char *more) {
    fcp_recurrent layers[OP_LAYERS];
    op_layers(seed, layers);
    fcp_plan *plan = make_plan("causal", ranks, nodes, lengths, more);
    PROCESS_PARENT_BEGINS();
    recurrent_give(plan, layers, OP_LAYERS);
    PROCESS_PARENT_ENDS();
    return plan;
}

static void run_all(recurring *x, void (*body)(process *), const char *what) {
    const unsigned ranks = x->plan->problem->ranks;
    process_shared *s = process_shared_make();
    process_run(s, ranks, body, x);
    process_all_well(s, ranks, 0, what);
    no_trouble(s, ranks, 0, what);
    process_shared_end(s, false);
}

Test(nccl_recurrent, as_the_host, .timeout = 600) {
    static const struct {
        unsigned ranks, nodes;
        const char *lengths, *more;
    } plans[] = {{2, 1, "500, 130", "; layout = zigzag; strategy = zigzag"},
                 {4, 2, "600, 300", "; layout = zigzag; strategy = zigzag"},
                 {3, 3, "400, 130, 7, 1", "; strategy = fcp"},
                 {4, 2, "900", "; layout = contiguous; strategy = ring"},
                 {1, 1, "300, 200", ""},
                 {6, 2, "700, 200, 100", "; strategy = cad"}};
    for (uint32_t i = 0; i < amount(5, 24); i++) {
        fcp_plan *plan =
            plan_with_layers(i, plans[i % 6].ranks, plans[i % 6].nodes, plans[i % 6].lengths, plans[i % 6].more);
        recurring x = {.plan = plan, .seed = i, .device = i / 2 % 2};
        run_all(&x, one_rank, plans[i % 6].lengths);
        fcp_plan_free(plan);
    }
}

Test(nccl_recurrent, in_graphs, .timeout = 600) {
    for (uint32_t i = 0; i < amount(2, 12); i++) {
        fcp_plan *plan =
            plan_with_layers(i, i % 2 ? 4 : 3, i % 2 ? 2 : 1, "500, 130, 40", "; layout = zigzag; strategy = zigzag");
        recurring x = {.plan = plan, .seed = i, .device = true};
        run_all(&x, one_captures, "in graphs");
        fcp_plan_free(plan);
    }
}

/* One rank calls another layer than the others, in a call that is new: all are told, and go on. Then it lacks memory.
 * */
static void one_differs(process *p) {
    const recurring *x = p->argument;
    fcp_error err = {0};
    prepare(p, x->seed);
    share_id(p, 1);
    fcp_session *host = judge_open(p), *session = join(p, LONG, &err);
    CHECK(p, session, "%s", err.message);
    own o = {0};
    for (int turn = 0; session && turn < 3; turn++) {
        recurrent_op op = op_of(x->plan, turn == 0 && p->rank == x->odd ? 3 : 2, 0, 5);
        op_judge(host, &op);
        own_place(p, &o, &op, false);
        if (turn == 1 && p->rank == x->odd) p->cuda->memory = p->cuda->held[p->rank] + 16;
        const fcp_code code = op_call(session, &op, o.at, p->rank, 1, NULL, &err);
        if (turn == 0) {
            CHECK(p, code == FCP_E_ARGUMENT && strstr(err.message, "rank 1 calls the forward scan of layer 3"), "%s",
                  err.message);
        } else if (turn == 1) {
            CHECK(p, code == FCP_E_NO_MEMORY && strstr(err.message, "rank 1"), "%s", err.message);
        } else CHECK(p, code == FCP_OK && alike(&op, p->rank, o.at[p->rank]), "%s", err.message);
        p->cuda->memory = (size_t)1 << 30;
        own_release(p, &o, &op);
        op_free(&op);
    }
    fcp_session_free(session);
    fcp_session_free(host);
}

Test(nccl_recurrent, a_rank_that_differs) {
    fcp_plan *plan = plan_with_layers(3, 3, 1, "500, 130", "; layout = zigzag; strategy = zigzag");
    recurring x = {.plan = plan, .seed = 4, .odd = 1};
    run_all(&x, one_differs, "differs");
    fcp_plan_free(plan);
}

/* The odd rank's device stalls, or its process dies, in a call. */
static void one_stalls(process *p) {
    const recurring *x = p->argument;
    fcp_error err = {0};
    own o = {0};
    prepare(p, x->seed);
    p->nccl->silent = x->fault != STANDIN_DIES;
    share_id(p, 1);
    fcp_session *session = join(p, LONG, &err);
    CHECK(p, session, "%s", err.message);
    recurrent_op op = op_of(x->plan, 3, 0, 5);
    own_place(p, &o, &op, false);
    fcp_code code = op_call(session, &op, o.at, p->rank, 1, NULL, &err); /* the first time all is well */
    CHECK(p, code == FCP_OK, "%s", err.message);
    process_meet(p, 1, 1);
    session->timeout_s = x->timeout_s;
    if (p->rank == x->odd) {
        p->nccl->group_at = p->nccl->begun + x->group_at;
        p->nccl->group_fault = x->fault;
    }
    code = op_call(session, &op, o.at, p->rank, 1, NULL, &err);
    if (code) { /* in a chain those before that rank do not wait for it */
        atomic_fetch_add(&p->shared->counter[ODD_ERRORS], 1);
        CHECK(p, code == FCP_E_RUN && strstr(err.message, "layer 3 (scan), forward pass") && err.where.rank == p->rank,
              "%s", err.message);
        code = op_call(session, &op, o.at, p->rank, 1, NULL, &err);
        CHECK(p, code == FCP_E_RUN && strstr(err.message, "a new one is needed"), "%s", err.message);
    }
    own_release(p, &o, &op);
    op_free(&op);
    fcp_session_free(session);
}

Test(nccl_recurrent, a_rank_dies_or_stalls, .timeout = 300) {
    static const int faults[] = {STANDIN_DIES, STANDIN_STALLS};
    for (unsigned i = 0; i < 4; i++) {
        fcp_plan *plan = plan_with_layers(3, 4, i < 2 ? 1 : 2, "1100", "; layout = contiguous; strategy = ring");
        recurring x =
            {.plan = plan, .seed = i, .odd = 1 + i / 2, .fault = faults[i % 2], .group_at = 1, .timeout_s = 1};
        const unsigned except = x.fault == STANDIN_DIES ? 1u << x.odd : 0;
        process_shared *s = process_shared_make();
        process_run(s, 4, one_stalls, &x);
        process_all_well(s, 4, except, "stalls");
        no_trouble(s, 4, except, "stalls");
        cr_assert(s->counter[ODD_ERRORS] >= 1, "fault %u: nobody noticed", i);
        process_shared_end(s, except != 0);
        fcp_plan_free(plan);
    }
}

/* Each call of the odd rank's driver, or of its NCCL, fails once. */
static void one_fails(process *p) {
    const recurring *x = p->argument;
    long calls = x->turns;
    prepare(p, x->seed);
    for (int turn = 1; turn <= x->turns && calls > 0; turn++) {
        const int at = 1 + (turn - 1) * 3;
        fcp_error err = {0};
        own o = {0};
        share_id(p, turn);
        fcp_session *session = join(p, 3, &err);
        CHECK(p, session, "%s", err.message);
        recurrent_op op = op_of(x->plan, turn % 2 ? 4 : 1, turn / 2 % 2, 5);
        own_place(p, &o, &op, false);
        long *counted = x->driver ? &p->cuda->calls : &p->nccl->calls;
        *(x->driver ? &p->cuda->fail_at : &p->nccl->fail_at) = p->rank == x->odd ? *counted + at : 0;
        p->nccl->fail_with = 1 + turn % 6;
        p->cuda->fail_with = 719;
        const fcp_code code = session ? op_call(session, &op, o.at, p->rank, 1, NULL, &err) : FCP_E_RUN;
        p->cuda->fail_at = p->nccl->fail_at = 0;
        own_release(p, &o, &op);
        op_free(&op);
        fcp_session_free(session);
        after_a_failed_call(p, p->rank == x->odd, at, turn, code, &err);
    }
}

static void each_fails(bool driver, int turns, int least) {
    fcp_plan *plan = plan_with_layers(3, 2, 1, "600", "; layout = zigzag; strategy = zigzag");
    recurring x = {.plan = plan, .seed = 3, .odd = 1, .driver = driver, .turns = turns};
    process_shared *s = process_shared_make();
    process_run(s, 2, one_fails, &x);
    all_calls_failed(s, least);
    fcp_plan_free(plan);
}

Test(nccl_recurrent, calls_fail, .timeout = 600) {
    each_fails(true, (int)amount(12, 60), 5);
    each_fails(false, (int)amount(4, 12), 0);
}
