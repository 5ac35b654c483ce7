/* test_nccl_early.c: tests that finished results are sent while the last stage of a pass still computes, in one process
 * and by NCCL, with and without a graph. One kernel of that stage is made to run for ever: the early results must
 * arrive all the same, and transfers that wait for the whole pass must not. In all other tests of plans with a layout,
 * the stand-ins check that such a result is sent only after it has been computed. */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/nccl_ranks.h"

enum { POISON = 0x5a, ROW_MOST = 1024 };

/* A rank's tensors on its device. */
typedef struct held {
    fcp_tensors tensors;
    cu_ptr memory[FCP_TENSORS];
    size_t bytes[FCP_TENSORS];
    int device;
} held;

static size_t row_of(const fcp_plan *plan, int t) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    return fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
}

static void hold(process *p, fcp_cuda *cuda, const fcp_plan *plan, uint32_t rank, int device, held *h) {
    cu_context context = NULL;
    void *m[FCP_TENSORS];
    h->device = device;
    CHECK(p, !cuda->call.context_retain(&context, device) && !cuda->call.context_set(context));
    for (int t = 0; t < FCP_TENSORS; t++) {
        h->bytes[t] = fcp_tensors_tokens(plan, rank, (fcp_tensor)t) * row_of(plan, t);
        CHECK(p, !cuda->call.allocate(&h->memory[t], h->bytes[t] + 16));
        m[t] = (void *)(uintptr_t)h->memory[t];
        memset(m[t], POISON, h->bytes[t]);
    }
    h->tensors = (fcp_tensors){m[FCP_TENSOR_Q], m[FCP_TENSOR_K], m[FCP_TENSOR_V], m[FCP_TENSOR_O], m[FCP_TENSOR_LSE],
                               m[FCP_TENSOR_DO], m[FCP_TENSOR_DQ], m[FCP_TENSOR_DK], m[FCP_TENSOR_DV]};
}
static void let_go(process *p, fcp_cuda *cuda, held *h) {
    for (int t = 0; t < FCP_TENSORS; t++) CHECK(p, !cuda->call.release(h->memory[t]));
    CHECK(p, !cuda->call.context_release(h->device));
}

/* How many of the transfers that bring results to a rank have arrived, and how many have not: of early rounds, or of
 * the others. */
static void arrived(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const held *h, bool early, unsigned *out_there,
                    unsigned *out_missing) {
    const cuda_early_rounds rounds = fcp_cuda_early_rounds(plan, pass, false);
    int t = pass == FCP_FORWARD ? FCP_TENSOR_LSE : FCP_TENSOR_DQ;
    size_t row = row_of(plan, t);
    char poison[ROW_MOST];
    fcp_bundles *bundles;
    if (fcp_bundles_make(plan, rank, 1, &bundles, NULL)) abort();
    memset(poison, POISON, sizeof poison);
    *out_there = *out_missing = 0;
    for (int q = 0; q < FCP_QUEUES; q++) {
        const fcp_stream *stream = fcp_stream_of(plan, pass, rank, (fcp_queue)q);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *x = &plan->instrs[stream->first + i];
            if (x->op != FCP_OP_LAUNCH && x->op != FCP_OP_COPY) continue;
            if (early != (x->op == FCP_OP_LAUNCH && fcp_cuda_is_early(&rounds, x))) continue;
            for (uint32_t j = x->a; j < x->a + x->b; j++) {
                const fcp_transfer *move = &plan->transfers[j];
                if (move->cls != FCP_OUT || !fcp_at_caller(move)) continue;
                const fcp_bundle bundle = fcp_bundle_of(bundles, rank, move);
                const char *base = (const char *)(uintptr_t)h->memory[t];
                fcp_bundle_run run;
                bool there = true;
                for (uint32_t k = 0; fcp_bundle_next(&bundle, move, &k, &run);)
                    there = there && memcmp(base + run.place * row, poison, row) &&
                            memcmp(base + (run.place + run.tokens - 1) * row, poison, row);
                ++*(there ? out_there : out_missing);
            }
        }
    }
    fcp_bundles_free(bundles);
}

typedef struct beside {
    task task;
    fcp_pass pass;
    bool nccl;
    unsigned value; /* the mark of the kernel that hangs, of rank task.odd */
} beside;

static void run_beside(process *p) {
    const beside *b = p->argument;
    const task *x = &b->task;
    const fcp_plan *plan = x->plan;
    uint32_t ranks = b->nccl ? 1 : plan->problem->ranks, first = b->nccl ? p->rank : 0;
    held all[PROCESSES];
    fcp_tensors tensors[PROCESSES];
    fcp_session *session = NULL;
    fcp_cuda *cuda = NULL;
    cu_stream stream = NULL;
    fcp_error *err = &p->word->err;
    set_up(p, 0);
    if (b->nccl) {
        share_id(p, 1);
        p->word->code = create(p, &session, err);
    } else {
        fcp_session_options options = {.size = sizeof options,
                                       .backend = "cuda",
                                       .timeout_s = LONG,
                                       .graph_from = x->graph_from};
        p->cuda->devices = 1 + (int)(x->seed % 3);
        p->word->code = fcp_session_create(plan, &options, &session, err);
    }
    CHECK(p, !p->word->code && !fcp_cuda_open(&cuda, err), "%s", err->message);
    if (p->word->failed[0]) return;
    for (uint32_t r = 0; r < ranks; r++) {
        hold(p, cuda, plan, first + r, (int)(b->nccl ? first : r % (uint32_t)p->cuda->devices), &all[r]);
        tensors[r] = all[r].tensors;
    }
    cu_context context = NULL;
    CHECK(p, !cuda->call.context_retain(&context, all[0].device) && !cuda->call.context_set(context));
    CHECK(p, !cuda->call.stream_create(&stream, CU_STREAM_NON_BLOCKING, 0));
    if (!b->nccl || p->rank == x->odd) {
        p->cuda->hang_word = (long)(b->nccl ? 0 : x->odd) * FCP_QUEUES + FCP_COMPUTE;
        p->cuda->hang_value = b->value;
    }
    unsigned long launched = p->cuda->graph_launches;
    CHECK(p, fcp_session_run_on(session, b->pass, tensors, stream, err) == FCP_OK, "%s", err->message);
    CHECK(p, p->cuda->graph_launches - launched == (x->graph_from == 1));
    unsigned there = 0, missing = 1, most = 0;
    bool said = false;
    fcp_patience patience = fcp_patience_of(LONG / 4, 0.1);
    /* until all have what comes early: a rank makes progress only while it asks */
    while (atomic_load(&p->shared->counter[1]) < (int)p->ranks && !fcp_patience_ends(&patience)) {
        missing = most = 0;
        /* a process that waits for nothing of the rank that hangs may come to the end */
        bool ended = cuda->call.stream_query(stream) != CU_ERROR_NOT_READY;
        CHECK(p, !ended || (b->nccl && p->rank != x->odd), "the pass has ended; %s", p->cuda->trouble);
        for (uint32_t r = 0; r < ranks; r++) {
            unsigned not_there;
            arrived(plan, b->pass, first + r, &all[r], true, &there, &not_there);
            missing += not_there;
            most += there;
        }
        if (!missing && !said) atomic_fetch_add(&p->shared->counter[1], 1);
        said |= !missing;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
    }
    CHECK(p, !missing, "%u early results have not come, %u have", missing, most);
    atomic_fetch_add(&p->shared->counter[4], (int)most);
    process_meet(p, 2, 1);
    for (uint32_t r = 0; r < ranks; r++) {
        unsigned not_there;
        arrived(plan, b->pass, first + r, &all[r], false, &there, &not_there);
        bool same_process = !b->nccl || p->rank == x->odd;
        CHECK(p, !there || !same_process, "%u results have come before the pass has ended", there);
        atomic_fetch_add(&p->shared->counter[5], (int)not_there);
    }
    if (!b->nccl || p->rank == x->odd) CHECK(p, p->cuda->hung[0], "nothing hangs");
    p->cuda->lost = true; /* what hangs is dropped */
    fcp_session_free(session);
    CHECK(p, !cuda->call.stream_destroy(stream) && !cuda->call.context_release(all[0].device));
    for (uint32_t r = 0; r < ranks; r++) let_go(p, cuda, &all[r]);
    fcp_cuda_close(cuda);
}

/* The first kernel of the last stage of some rank: it says so in a mark. */
static bool last_stage(const fcp_plan *plan, fcp_pass pass, unsigned *out_rank, unsigned *out_value) {
    uint64_t stages = pass == FCP_FORWARD ? plan->summary->stages : plan->summary->backward_stages;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const fcp_stream *stream = fcp_stream_of(plan, pass, r, FCP_COMPUTE);
        for (uint32_t i = 0; i < stream->count; i++) {
            const fcp_instr *x = &plan->instrs[stream->first + i];
            if ((uint64_t)x->stage + 1 != stages || (x->op != FCP_OP_ATTEND && x->op != FCP_OP_REDUCE)) continue;
            *out_rank = r;
            *out_value = fcp_cuda_mark_value(pass, i);
            return true;
        }
    }
    return false;
}

static void beside_of(const fcp_plan *plan, fcp_pass pass, bool nccl, bool graph, uint64_t seed) {
    char what[80];
    beside b = {
        .task = {.plan = plan, .graph_from = graph ? 1 : UINT32_MAX, .seed = seed, .idle = true, .gathers = true,
                 .silent = true},
        .pass = pass,
        .nccl = nccl};
    unsigned processes = nccl ? plan->problem->ranks : 1;
    process_shared *s = process_shared_make();
    snprintf(what, sizeof what, "%s pass, %s, %s", fcp_pass_names[pass], nccl ? "nccl" : "local",
             graph ? "a graph" : "no graph");
    cr_assert(last_stage(plan, pass, &b.task.odd, &b.value), "%s", what);
    process_run(s, processes, run_beside, &b);
    process_all_well(s, processes, 0, what);
    no_trouble(s, processes, 0, what);
    cr_assert(s->counter[4] > 0 && s->counter[5] > 0, "%s: %d early, %d late", what, s->counter[4], s->counter[5]);
    process_shared_end(s, false);
}

static void both_passes(bool nccl) {
    fcp_plan *plan = make_plan("causal", 4, 1, "700, 300, 130, 60", "; layout = contiguous");
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const cuda_early_rounds rounds = fcp_cuda_early_rounds(plan, (fcp_pass)pass, false);
        cr_assert(rounds.from < rounds.to, "nothing goes out early");
        for (int graph = 0; graph < 2; graph++)
            beside_of(plan, (fcp_pass)pass, nccl, graph, (uint64_t)(2 * pass + graph));
    }
    fcp_plan_free(plan);
}

Test(nccl_early, in_one_process) { both_passes(false); }
Test(nccl_early, by_nccl) { both_passes(true); }
