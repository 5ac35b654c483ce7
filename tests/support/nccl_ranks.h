/* nccl_ranks.h: for tests of plans whose ranks are processes: what each process runs, and the check of what they report
 * in the end. */
#ifndef NCCL_RANKS_H
#define NCCL_RANKS_H
#include "runtime/cuda/cuda.h"
#include "runtime/judge/reference.h"
#include "runtime/judge/packed.h"
#include "tests/support/plan_of.h"
#include "tests/support/processes.h"

enum { ALL = (1 << FCP_TENSORS) - 1, LONG = 200 /* seconds: no rank that gets on at all takes so long */ };

typedef enum way { BY_ID, BY_FILE } way;
typedef struct task {
    const fcp_plan *plan;
    const fcp_plan *other; /* rank `odd`'s, if there is one */
    const char *extracts;  /* a file of the plan's: each rank takes its own, in place of the plan; NULL: the plan */
    uint8_t root[FCP_DIGEST_BYTES]; /* of that file */
    unsigned odd;          /* the rank that is not like the others, or that is failed */
    uint32_t graph_from, timeout_s, odd_graph_from; /* timeout_s: of what waits for a fault; 0: LONG */
    int (*interrupted)(void *context); /* of fcp_session_options, from the first pass on with a fault; NULL: none */
    int times;
    uint64_t seed;
    bool idle, gathers, silent, device_memory, one_device, keeps_away, driver; /* driver: its calls fail, not NCCL's */
    bool outer;             /* a graph of the caller's has the passes */
    fcp_fuse fuse;          /* FCP_FUSE_PASS: a fused pass is never a graph */
    unsigned long during;   /* what ran while kernels waited for flags, of all ranks */
    way way;
    long group_at, async_at, hang_at; /* in rank `odd`; hang_at: a node of its streams, of the driver's */
    int fault, version;
    unsigned long queue;   /* of nodes, in the driver */
    /* shared: what the ranks give; what one process gives: every time's tensors behind each other */
    char *out[2];
    size_t at[FCP_TENSORS + 1];
} task;

static inline void lay_out(task *x) {
    fcp_shape shape;
    uint64_t dims[3];
    fcp_plan_shape(x->plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++) {
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        x->at[t + 1] = x->at[t] + (dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t) + 63) / 64 * 64;
    }
    for (int i = 0; i < 2; i++) {
        x->out[i] = mmap(NULL, x->at[FCP_TENSORS] * (size_t)x->times, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        cr_assert(x->out[i] != MAP_FAILED);
    }
}

static inline bool of_keys(int t) { return fcp_tensor_of_keys((fcp_tensor)t); }

/* A rank's rows of a packed tensor, between `whole` and `part` (dense), or between `whole` and another whole one. */
static inline size_t rows(const fcp_plan *plan, uint32_t rank, int t, char *whole, char *other, bool dense, bool out) {
    fcp_shape shape;
    fcp_layout_at walk = {0};
    fcp_span span;
    uint64_t length;
    size_t at = 0;
    fcp_plan_shape(plan, &shape);
    size_t row = fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
    while (of_keys(t) ? fcp_plan_layout_keys(plan, rank, &walk, &span) : fcp_plan_layout(plan, rank, &walk, &span)) {
        uint64_t first = of_keys(t) ? fcp_plan_key_offset(plan, span.sequence, &length)
                                    : fcp_plan_sequence_offset(plan, span.sequence, &length);
        size_t place = (first + span.start) * row, bytes = span.length * row;
        if (other)
            memcpy(out ? whole + place : other + (dense ? at : place),
                   out ? other + (dense ? at : place) : whole + place, bytes);
        at += bytes;
    }
    return at;
}

static inline unsigned outputs(const fcp_plan *plan) {
    unsigned set = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (plan->problem->passes >> pass & 1) set |= fcp_pass_outputs((fcp_pass)pass);
    return set | 1u << FCP_TENSOR_LSE_LOW;
}
static inline void put_out(const task *x, uint32_t rank, int time, int which, const fcp_packed *packed) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (outputs(x->plan) >> t & 1)
            rows(x->plan, rank, t, x->out[which] + (size_t)time * x->at[FCP_TENSORS] + x->at[t], packed->t[t], false,
                 true);
}

/* --- ranks -------------------------------------------------------------------------------------------------------- */

static inline void set_up(process *p, uint64_t turn) {
    const task *x = p->argument;
    p->cuda->devices = PROCESSES;
    p->cuda->seed = x->seed * 31 + p->rank + turn;
    p->cuda->plan = x->plan;
    p->cuda->idle = x->idle;
    p->cuda->gathers = x->gathers;
    p->cuda->queue = x->queue;
    p->nccl->seed = x->seed + turn;
    p->nccl->silent = x->silent;
    if (x->version) p->nccl->version = x->version;
}

/* Rank 0 makes an id, and all have it. */
static inline void share_id(process *p, int turn) {
    fcp_error err = {0};
    if (p->rank == 0) CHECK(p, fcp_start_id(p->shared->id.bytes, &err) == FCP_OK, "%s", err.message);
    process_meet(p, 0, turn);
}

/* Whether something is to go wrong in a pass of this rank. */
static inline bool fault_in_a_pass(const task *x) { return x->group_at || x->async_at || x->hang_at; }

static inline fcp_code create(process *p, fcp_session **out, fcp_error *err) {
    const task *x = p->argument;
    bool odd = p->rank == x->odd;
    char path[200];
    snprintf(path, sizeof path, "%s/id", p->shared->folder);
    fcp_start start = {.size = sizeof start,
                       .ranks = p->ranks,
                       .rank = p->rank,
                       .device = x->one_device ? 1 : p->rank + 1,
                       .id = x->way == BY_ID ? p->shared->id.bytes : NULL,
                       .id_file = x->way == BY_FILE ? path : NULL};
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .transport = "nccl", .start = &start,
                                   .timeout_s = x->timeout_s && !fault_in_a_pass(x) ? x->timeout_s : LONG,
                                   .graph_from = odd && x->odd_graph_from ? x->odd_graph_from : x->graph_from,
                                   .fuse = x->fuse};
    static fcp_plan *extract; /* it outlives the session */
    if (x->extracts) {
        fcp_code code = fcp_extracts_load(x->extracts, p->rank, x->root, &extract, err);
        return code ? code : fcp_session_create(extract, &options, out, err);
    }
    return fcp_session_create(odd && x->other ? x->other : x->plan, &options, out, err);
}

/* The at-th call from now on fails, of the driver's or of NCCL's, in the odd one's process. Returns where calls are
 * counted. */
static inline long *fail_call(process *p, bool odd, int at, int turn) {
    const task *x = p->argument;
    long *calls = x->driver ? &p->cuda->calls : &p->nccl->calls;
    *(x->driver ? &p->cuda->fail_at : &p->nccl->fail_at) = odd ? *calls + at : 0;
    p->nccl->fail_with = 1 + turn % 6;
    p->cuda->fail_with = turn % 3 ? 719 : CU_ERROR_OUT_OF_MEMORY;
    return calls;
}

/* What tests of failing calls count: errors of the rank whose call fails, errors of the other one, and calls that there
 * are. */
enum { ODD_ERRORS = 5, OTHER_ERRORS = 6, CALLS_MADE = 7 };

/* What must be true after a call has failed, or would have, if it had come to that many: who has an error says what it
 * is, nothing of the driver's is left, and no rule of it was broken. */
static inline void after_a_failed_call(process *p, bool odd, int at, int turn, fcp_code code, const fcp_error *err) {
    if (code) atomic_fetch_add(&p->shared->counter[odd ? ODD_ERRORS : OTHER_ERRORS], 1);
    CHECK(p, !code || err->message[0], "call %d", at);
    CHECK(p, p->cuda->live == 0, "call %d: %ld objects are left; %s", at, p->cuda->live, err->message);
    CHECK(p, !p->cuda->trouble[0], "call %d: %s", at, p->cuda->trouble);
    process_meet(p, 1, turn);
}

/* Ends the ranks; more than `least` calls must have made both of them fail. */
static inline void all_calls_failed(process_shared *s, int least) {
    process_all_well(s, 2, 0, "every call");
    fprintf(stderr, "calls: %d errors of the rank that fails, %d of the other, %d calls\n", s->counter[ODD_ERRORS],
            s->counter[OTHER_ERRORS], s->counter[CALLS_MADE]);
    cr_assert(s->counter[ODD_ERRORS] > least && s->counter[OTHER_ERRORS] > least);
    process_shared_end(s, true);
}

/* Tensors in memory of the rank's device, and a stream of the caller's. */
typedef struct on_device {
    fcp_cuda *cuda;
    cu_stream stream;
    cu_ptr memory[FCP_TENSORS];
    fcp_tensors tensors;
} on_device;
static inline void open_on_device(process *p, fcp_packed *packed, on_device *d) {
    const task *x = p->argument;
    cu_context context = NULL;
    fcp_error err;
    memset(d, 0, sizeof *d);
    CHECK(p, fcp_cuda_open(&d->cuda, &err) == FCP_OK);
    const fcp_cuda_table *call = &d->cuda->call;
    CHECK(p, !call->context_retain(&context, (int)p->rank) && !call->context_set(context));
    CHECK(p, !call->stream_create(&d->stream, CU_STREAM_NON_BLOCKING, 0));
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (t == FCP_TENSOR_DLSE && !x->plan->problem->lse_gradient) continue;
        size_t bytes = rows(x->plan, p->rank, t, packed->t[t], NULL, true, false);
        CHECK(p, !call->allocate(&d->memory[t], bytes + 16));
        rows(x->plan, p->rank, t, packed->t[t], (char *)(uintptr_t)d->memory[t], true, false);
        fcp_tensors_set(&d->tensors, (fcp_tensor)t, (void *)(uintptr_t)d->memory[t]);
    }
}
static inline void close_on_device(process *p, on_device *d) {
    const fcp_cuda_table *call = &d->cuda->call;
    for (int t = 0; t < FCP_TENSORS; t++)
        if (d->memory[t]) CHECK(p, !call->release(d->memory[t]));
    CHECK(p, !call->stream_destroy(d->stream) && !call->context_release((int)p->rank));
    fcp_cuda_close(d->cuda);
}

/* Runs the passes, captures them into a graph of the caller's, and launches that. */
static inline fcp_code launch_passes(process *p, fcp_session *session, const fcp_packed *packed, on_device *d,
                                     fcp_error *err) {
    const task *x = p->argument;
    const fcp_cuda_table *call = &d->cuda->call;
    cu_graph graph = NULL;
    cu_graph_exec exec = NULL;
    fcp_code code = FCP_OK;
    for (int pass = 0; !code && pass < FCP_PASSES; pass++)
        if (x->plan->problem->passes >> pass & 1)
            code = fcp_session_run_on(session, (fcp_pass)pass, &d->tensors, d->stream, err);
    if (!code) code = fcp_session_wait(session, err);
    for (int t = 0; t < FCP_TENSORS; t++)
        if (outputs(x->plan) >> t & 1)
            memset((void *)(uintptr_t)d->memory[t], 0,
                   rows(x->plan, p->rank, t, packed->t[t], NULL, true, false));
    CHECK(p, !call->capture_begin(d->stream, CU_CAPTURE_THREAD_LOCAL));
    for (int pass = 0; !code && pass < FCP_PASSES; pass++)
        if (x->plan->problem->passes >> pass & 1)
            code = fcp_session_run_on(session, (fcp_pass)pass, &d->tensors, d->stream, err);
    CHECK(p, !call->capture_end(d->stream, &graph) && !call->graph_instantiate(&exec, graph, 0));
    CHECK(p, !call->graph_destroy(graph) && !call->graph_launch(exec, d->stream));
    if (!code) code = fcp_session_wait(session, err);
    CHECK(p, !call->graph_exec_destroy(exec));
    return code;
}

/* The passes on such tensors. */
static inline fcp_code run_on_device(process *p, fcp_session *session, fcp_packed *packed, fcp_error *err) {
    const task *x = p->argument;
    on_device d;
    open_on_device(p, packed, &d);
    fcp_code code = FCP_OK;
    unsigned long copied = p->cuda->host_copies;
    if (x->outer) code = launch_passes(p, session, packed, &d, err);
    for (int pass = 0; !code && !x->outer && pass < FCP_PASSES; pass++)
        if (x->plan->problem->passes >> pass & 1)
            code = fcp_session_run_on(session, (fcp_pass)pass, &d.tensors, d.stream, err);
    CHECK(p, p->cuda->host_copies == copied, "device memory went through the host");
    if (!code) code = fcp_session_wait(session, err);
    for (int t = 0; !code && t < FCP_TENSORS; t++)
        if (outputs(x->plan) >> t & 1)
            rows(x->plan, p->rank, t, packed->t[t], (char *)(uintptr_t)d.memory[t], true, true);
    close_on_device(p, &d);
    return code;
}

static inline fcp_code run_passes(process *p, fcp_session *session, int time, fcp_error *err) {
    const task *x = p->argument;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_plan_shape(x->plan, &shape);
    fcp_code code = fcp_packed_alloc(&shape, ALL, &packed, err);
    if (!code) fcp_packed_draw(&shape, ALL, (uint64_t)time + 1, &packed);
    if (!code && x->device_memory) code = run_on_device(p, session, &packed, err);
    for (int pass = 0; !code && !x->device_memory && pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass]) code = fcp_session_run_packed(session, x->plan, (fcp_pass)pass, &packed, NULL, err);
    if (!code && x->out[0]) put_out(x, p->rank, time, 0, &packed);
    fcp_packed_free(&packed);
    return code;
}

/* Has the plan two fabrics, so that transfers over net have a communicator of their own? */
static inline bool two_fabrics(const fcp_plan *plan) {
    return plan->problem->gpus > 1 && plan->problem->ranks > plan->problem->gpus;
}

/* The fabrics of a launch, a bit each. */
static inline unsigned fabrics_of(const fcp_plan *plan, const fcp_instr *x) {
    unsigned fabrics = 0;
    for (uint32_t i = x->a; i < x->a + x->b; i++) fabrics |= 1u << plan->transfers[i].fabric;
    return fabrics;
}

/* How many groups a rank puts down in `times` runs of a pass, without graphs; or how many graphs capture. */
static inline unsigned long groups_of_pass(const fcp_plan *plan, fcp_pass pass, uint32_t rank, int times,
                                           uint32_t graph_from, bool captured) {
    const fcp_stream *stream = fcp_stream_of(plan, pass, rank, FCP_COMM);
    unsigned long count = 0;
    if (!(plan->problem->passes >> pass & 1)) return 0;
    for (uint32_t i = 0; i < stream->count; i++) {
        const fcp_instr *x = &plan->instrs[stream->first + i];
        if (x->op != FCP_OP_LAUNCH || !x->b) continue;
        uint32_t round = plan->rounds[plan->round_starts[pass] + x->c].kind;
        bool home = round != FCP_ROUND_IN && round != FCP_ROUND_OUT;
        uint32_t put = home && graph_from < (uint32_t)times ? graph_from : (uint32_t)times;
        unsigned parts = home && two_fabrics(plan) ? (unsigned)__builtin_popcount(fabrics_of(plan, x)) : 1;
        if (!captured) count += put * parts;
        else if (home && graph_from <= (uint32_t)times) count += parts;
    }
    return count;
}
/* The same in all passes. */
static inline unsigned long groups_of(const fcp_plan *plan, uint32_t rank, int times, uint32_t graph_from,
                                      bool captured) {
    unsigned long count = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        count += groups_of_pass(plan, (fcp_pass)pass, rank, times, graph_from, captured);
    return count;
}
/* The same of a task. A fused pass is never a graph; backward, two kernels (head_dim 256) are not fused. */
static inline unsigned long groups_of_task(const task *x, uint32_t rank, int times, bool captured) {
    const bool joint = x->plan->problem->head_dim <= 128;
    return groups_of_pass(x->plan, FCP_FORWARD, rank, times, x->fuse ? UINT32_MAX : x->graph_from, captured) +
           groups_of_pass(x->plan, FCP_BACKWARD, rank, times, x->fuse && joint ? UINT32_MAX : x->graph_from, captured);
}

/* Does a rank send or receive over net within a pass? */
static inline bool uses_net(const fcp_plan *plan, uint32_t rank) {
    bool uses = false;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const fcp_stream *stream = fcp_stream_of(plan, (fcp_pass)pass, rank, FCP_COMM);
        for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
            const fcp_instr *x = &plan->instrs[i];
            if (x->op != FCP_OP_LAUNCH) continue;
            const uint32_t of = plan->rounds[plan->round_starts[pass] + x->c].kind;
            uses |= of != FCP_ROUND_IN && of != FCP_ROUND_OUT && fabrics_of(plan, x) >> FCP_NET & 1;
        }
    }
    return uses;
}

/* Does a rank read keys or queries in its forward pass that it receives? Without them no launch has to wait for a
 * flag. */
static inline bool reads_received(const fcp_plan *plan, uint32_t rank) {
    const fcp_stream *stream = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMPUTE);
    uint32_t homes = 0;
    bool reads = false;
    for (uint64_t b = 0; b < plan->blocks_count; b++) homes += plan->blocks[b].home == rank;
    for (uint32_t i = stream->first; i < stream->first + stream->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        for (uint32_t v = x->a; x->op == FCP_OP_ATTEND && v < x->a + x->b; v++)
            for (uint32_t t = 0; t < plan->visits[v].tiles; t++)
                reads |= plan->tiles[plan->visits[v].first_tile + t].kv_slot >= homes ||
                         plan->visits[v].q_slot >= homes;
    }
    return reads;
}

/* How many groups it takes until the ranks have agreed and met; with two fabrics the second communicator's id is told
 * in two, and those who talk over net meet there, too. */
static inline unsigned long groups_before(const fcp_plan *plan, uint32_t rank) {
    bool none = plan->problem->ranks > 1 && !groups_of(plan, rank, 1, UINT32_MAX, false); /* talks to nobody */
    return (none ? 1ul : 2ul) + (two_fabrics(plan) ? 2u + uses_net(plan, rank) : 0u);
}

static inline void run_rank(process *p) {
    const task *x = p->argument;
    fcp_session *session = NULL;
    fcp_error *err = &p->word->err;
    set_up(p, 0);
    if (x->way == BY_ID) share_id(p, 1);
    if (x->keeps_away && p->rank == x->odd) return;
    p->word->code = create(p, &session, err);
    if (fault_in_a_pass(x)) { /* nobody is still connecting when it begins, and none gives up while they do */
        process_meet(p, 1, 1);
        if (session) session->timeout_s = x->timeout_s, session->interrupt.asked = x->interrupted;
    }
    if (p->rank == x->odd) {
        p->nccl->group_at = x->group_at ? p->nccl->begun + x->group_at : 0;
        p->nccl->group_fault = x->fault;
        p->cuda->hang_at = x->hang_at ? p->cuda->nodes + (unsigned long)x->hang_at : 0;
        p->nccl->async_at = x->async_at ? p->nccl->asked + x->async_at : 0;
        p->nccl->async_with = x->fault;
    }
    for (int i = 0; i < x->times && !p->word->code; i++) p->word->code = run_passes(p, session, i, err);
    if (session) {
        fcp_error again = {0};
        uint32_t first = 0;
        CHECK(p, fcp_session_ranks(session, &first) == 1 && first == p->rank);
        CHECK(p, strcmp(fcp_session_transport(session), "nccl") == 0);
        if (p->word->code) {
            CHECK(p, run_passes(p, session, 0, &again) == FCP_E_RUN && strstr(again.message, "a new one is needed"),
                  "%s", again.message);
        } else {
            CHECK(p, p->nccl->groups == groups_before(x->plan, p->rank) +
                                            groups_of_task(x, p->rank, x->times + x->outer, false),
                  "%lu groups", p->nccl->groups);
            CHECK(p, p->nccl->captured == groups_of_task(x, p->rank, x->times, !x->outer), "%lu", p->nccl->captured);
            CHECK(p, !p->nccl->empty_groups && p->nccl->registrations == 1ul + two_fabrics(x->plan));
            CHECK(p, p->nccl->cga_cluster_size == 1);
            CHECK(p, !p->cuda->kernels_with_flags || (x->fuse && reads_received(x->plan, p->rank)));
        }
    }
    if (p->cuda->hang_at) p->cuda->lost = true; /* what hangs would hold up its memory for ever */
    fcp_session_free(session);
}

static inline void no_trouble(const process_shared *s, unsigned ranks, unsigned except, const char *what) {
    for (unsigned r = 0; r < ranks; r++) {
        const process_word *w = &s->words[r];
        if (except >> r & 1) continue;
        cr_assert_str_empty(w->trouble, "%s: rank %u: %s", what, r, w->trouble);
        cr_assert_eq(w->live, 0, "%s: rank %u: %ld objects are left; %s", what, r, w->live, w->err.message);
    }
}

static inline fcp_plan *make_plan(const char *mask, unsigned ranks, unsigned nodes, const char *lengths,
                                  const char *more) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = %u; head_dim = 16; dtype = %s }\ncluster { nodes = %u; gpus = %u }\n"
             "batch { lengths = [%s] }\nplan { mask = %s; block = 128; passes = forward, backward%s }\n",
             ranks % 2 ? 1 : 2, ranks % 3 ? "bf16" : "fp16", nodes, ranks / nodes, lengths, mask, more);
    PROCESS_PARENT_BEGINS();
    fcp_plan *plan = plan_named(mask, text);
    PROCESS_PARENT_ENDS();
    return plan;
}
#endif
