/* test_nccl_lse.c: tests processes of which one leaves out tensors that a caller may leave out: LSE's second float and
 * the gradient of LSE. The others still get theirs, with the same bits as in one process. The largest logits must be
 * asked for by all processes or by none. */
#include "tests/support/nccl_ranks.h"
#include "tests/support/rank_tensors.h"

enum { RANKS = 3, RUNS = 3, HEADS = 2, ROOM = 1 << 20 };

/* What all of it is about. out: shared; of each rank what it found. */
typedef struct leaving {
    const fcp_plan *plan;
    unsigned odd;        /* the rank that leaves out */
    bool device;         /* tensors lie on the device */
    uint32_t graph_from;
    char *out;
} leaving;

/* Runs both passes on one rank's tensors or on all, which `tensors` has. In every second run nobody wants maxima. */
static void both_passes(process *p, fcp_session *session, fcp_tensors *tensors, uint32_t count, int run,
                        float maxima[RANKS][HEADS]) {
    fcp_error err = {0};
    for (uint32_t r = 0; r < count; r++) tensors[r].max_logit = run % 2 ? NULL : maxima[r];
    for (int pass = 0; pass < FCP_PASSES; pass++)
        CHECK(p, fcp_session_run(session, (fcp_pass)pass, tensors, &err) == FCP_OK, "run %d: %s; %s", run, err.message,
              p->cuda->trouble);
}

/* All that a rank found: O, LSE, LSE_LOW unless it is left out, gradients, maxima. Returns the bytes. */
static size_t put_found(const leaving *x, uint32_t rank, const fcp_tensors *tensors, const float maxima[HEADS],
                        char *to) {
    const unsigned set = (outputs(x->plan) & ~(1u << FCP_TENSOR_LSE_LOW)) |
                         (rank == x->odd ? 0 : 1u << FCP_TENSOR_LSE_LOW);
    fcp_shape shape;
    size_t at = 0;
    fcp_plan_shape(x->plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++) {
        const size_t bytes = fcp_tensors_tokens(x->plan, rank, (fcp_tensor)t) *
                             fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
        if (set >> t & 1) memcpy(to + at, fcp_tensors_get(tensors, (fcp_tensor)t), bytes), at += bytes;
    }
    memcpy(to + at, maxima, HEADS * sizeof(float));
    return at + HEADS * sizeof(float);
}

/* What the odd rank has no more of. The memory is the caller's still. */
static void leave_out(fcp_tensors *x) {
    x->lse_low = NULL;
    x->d_lse = NULL;
}

/* Moves a rank's tensors to its device, and the memory to give back into `memory`. */
static void to_device(process *p, const fcp_plan *plan, const fcp_shape *shape, const fcp_cuda_table *call,
                      fcp_tensors *x, cu_ptr memory[FCP_TENSORS]) {
    for (int t = 0; t < FCP_TENSORS; t++) {
        const size_t bytes = fcp_tensors_tokens(plan, p->rank, (fcp_tensor)t) *
                             fcp_tensor_token_bytes(shape, (fcp_tensor)t);
        const void *from = fcp_tensors_get(x, (fcp_tensor)t);
        if (!from) continue;
        CHECK(p, !call->allocate(&memory[t], bytes + 16));
        memcpy((void *)(uintptr_t)memory[t], from, bytes);
        fcp_tensors_set(x, (fcp_tensor)t, (void *)(uintptr_t)memory[t]);
    }
}

static void one_rank(process *p) {
    const leaving *x = p->argument;
    fcp_session *session = NULL;
    fcp_shape shape;
    fcp_error err = {0};
    fcp_tensors all[RANKS] = {{0}}, own;
    float maxima[RANKS][HEADS] = {{0}};
    fcp_cuda *cuda = NULL;
    cu_context context = NULL;
    cu_ptr memory[FCP_TENSORS] = {0};
    p->cuda->devices = RANKS;
    p->cuda->seed = 7 + p->rank;
    p->cuda->plan = x->plan;
    share_id(p, 1);
    const fcp_start start = {.size = sizeof start, .ranks = RANKS, .rank = p->rank, .device = p->rank + 1,
                             .id = p->shared->id.bytes};
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .transport = "nccl",
                                         .start = &start, .timeout_s = LONG, .graph_from = x->graph_from};
    fcp_plan_shape(x->plan, &shape);
    rank_tensors_open(x->plan, &shape, all);
    own = all[p->rank];
    CHECK(p, fcp_cuda_open(&cuda, &err) == FCP_OK);
    CHECK(p, !cuda->call.context_retain(&context, (int)p->rank) && !cuda->call.context_set(context));
    if (x->device) to_device(p, x->plan, &shape, &cuda->call, &own, memory);
    if (p->rank == x->odd) leave_out(&own);
    CHECK(p, fcp_session_create(x->plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int run = 0; run < RUNS && session; run++) both_passes(p, session, &own, 1, run, maxima);
    fcp_session_free(session);
    put_found(x, p->rank, &own, maxima[0], x->out + p->rank * ROOM);
    for (int t = 0; t < FCP_TENSORS; t++)
        if (memory[t]) CHECK(p, !cuda->call.release(memory[t]));
    CHECK(p, !cuda->call.context_release((int)p->rank));
    fcp_cuda_close(cuda);
    rank_tensors_close(&shape, all);
}

/* The same in one process: the bits are the same. And those of the odd rank are as if it had given zeros. */
static void one_process(process *p) {
    const leaving *x = p->argument;
    fcp_shape shape;
    fcp_error err = {0};
    char *mine = malloc(ROOM);
    p->cuda->devices = 2;
    p->cuda->seed = 3;
    p->cuda->plan = x->plan;
    fcp_plan_shape(x->plan, &shape);
    for (int zeros = 0; zeros < 2; zeros++) {
        const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = LONG};
        fcp_session *session = NULL;
        fcp_tensors tensors[RANKS] = {{0}}, given[RANKS];
        float maxima[RANKS][HEADS] = {{0}};
        rank_tensors_open(x->plan, &shape, tensors);
        memcpy(given, tensors, sizeof given);
        if (!zeros) leave_out(&given[x->odd]);
        CHECK(p, fcp_session_create(x->plan, &options, &session, &err) == FCP_OK, "%s", err.message);
        for (int run = 0; run < RUNS && session; run++) {
            for (uint32_t r = 0; r < RANKS; r++) given[r].max_logit = run % 2 ? NULL : maxima[r];
            CHECK(p, fcp_session_run(session, FCP_FORWARD, given, &err) == FCP_OK, "%s", err.message);
            const size_t bytes = fcp_plan_rank_queries(x->plan, x->odd) * HEADS * sizeof(float);
            if (zeros) memset(tensors[x->odd].lse_low, 0, bytes);
            if (zeros) memset((float *)(uintptr_t)tensors[x->odd].d_lse, 0, bytes);
            CHECK(p, fcp_session_run(session, FCP_BACKWARD, given, &err) == FCP_OK, "%s", err.message);
        }
        fcp_session_free(session);
        for (uint32_t r = 0; r < RANKS; r++) {
            const size_t bytes = put_found(x, r, &tensors[r], maxima[r], mine);
            CHECK(p, bytes <= ROOM && !memcmp(mine, x->out + r * ROOM, bytes),
                  "rank %u%s: other bits than in one process", r, zeros ? ", zeros" : "");
        }
        rank_tensors_close(&shape, tensors);
    }
    free(mine);
}

static void leaves_out(unsigned odd, bool device, uint32_t graph_from) {
    fcp_plan *plan = make_plan("causal", RANKS, 1, "280, 130", "; layout = zigzag; lse_gradient = true; sink = 0.5");
    leaving x = {.plan = plan, .odd = odd, .device = device, .graph_from = graph_from};
    process_shared *s = process_shared_make();
    x.out = mmap(NULL, (size_t)RANKS * ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(x.out != MAP_FAILED);
    process_run(s, RANKS, one_rank, &x);
    process_all_well(s, RANKS, 0, "ranks");
    no_trouble(s, RANKS, 0, "ranks");
    process_run(s, 1, one_process, &x);
    process_all_well(s, 1, 0, "one process");
    no_trouble(s, 1, 0, "one process");
    process_shared_end(s, false);
    munmap(x.out, (size_t)RANKS * ROOM);
    fcp_plan_free(plan);
}

Test(nccl_lse, host_memory) { leaves_out(1, false, UINT32_MAX); }
Test(nccl_lse, device_memory) { leaves_out(2, true, 1); }
