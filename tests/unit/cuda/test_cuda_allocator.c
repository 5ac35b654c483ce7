/* test_cuda_allocator.c: tests sessions whose device memory comes from the caller's allocator: all of it does, all of
 * it is given back once no stream uses it, and a refusal of the allocator becomes an error. */
#include "runtime/exec/tensors.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/device_pool.h"

enum { ALL = (1 << FCP_TENSORS) - 1, RANKS = 3 };

static fcp_session_options options_of(device_pool *pool) {
    return (fcp_session_options){.size = sizeof(fcp_session_options),
                                 .backend = "cuda",
                                 .timeout_s = 100,
                                 .graph_from = 2,
                                 .stage_bytes = 8192,
                                 .partition = FCP_PARTITION_GRID,
                                 .allocator = pool_allocator(pool)};
}

static void all_well(const device_pool *pool, const char *what) {
    cr_assert_str_empty(pool->wrong, "%s: %s", what, pool->wrong);
    cr_assert_str_empty(pool->stand->trouble, "%s: %s", what, pool->stand->trouble);
    cr_assert_eq(pool_left(pool), 0, "%s: %d blocks are left", what, pool_left(pool));
}

/* Results are right, and at no time a device held more than the allocator gave. */
static void judge(uint32_t ranks, uint32_t devices, fcp_partition partition) {
    standin *x = stand();
    device_pool pool;
    char what[80];
    fcp_plan *plan = make_plan("causal", ranks, 1, "; margin = 1");
    pool_open(&pool, x, devices);
    memset(x->most_held, 0, sizeof x->most_held);
    fcp_session_options options = options_of(&pool);
    options.partition = partition;
    snprintf(what, sizeof what, "%u ranks on %u devices, %s", ranks, devices, fcp_partition_name(partition));
    stand_run(x, plan, &options, 3, what);
    all_well(&pool, what);
    for (uint32_t d = 0; d < devices; d++)
        cr_assert(x->most_held[d] == pool.most[d] && (pool.most[d] || d >= ranks), "%s: device %u held %zu, of which "
                  "the pool gave %zu", what, d, x->most_held[d], pool.most[d]);
    pool_close(&pool);
    fcp_plan_free(plan);
    cr_assert_eq(x->live, 0);
}
Test(cuda_allocator, gives_all_device_memory) {
    for (uint32_t ranks = 1; ranks <= RANKS; ranks++)
        for (uint32_t devices = 1; devices <= POOL_DEVICES; devices++)
            judge(ranks, devices, ranks == 3 && devices == 1 ? FCP_PARTITION_GREEN : FCP_PARTITION_GRID);
}

/* Runs both passes, without looking at results. */
static fcp_code run(fcp_session *session, const fcp_plan *plan, fcp_error *err) {
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_plan_shape(plan, &shape);
    fcp_code code = fcp_packed_alloc(&shape, ALL, &packed, err);
    for (int pass = 0; pass < FCP_PASSES && !code; pass++)
        code = fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, err);
    fcp_packed_free(&packed);
    return code;
}

/* A session's life: it is made and runs, gets a second plan that needs more, and a third in place of the first. Returns
 * the first error, after which the session goes on as fcp.h says. */
static fcp_code live(standin *x, const fcp_session_options *options, fcp_plan *const plans[3], fcp_error *err) {
    fcp_session *session = NULL;
    fcp_error ignored;
    uint32_t number;
    x->plan = plans[0];
    fcp_code code = fcp_session_create(plans[0], options, &session, err);
    if (!code) code = run(session, plans[0], err);
    x->plan = plans[1];
    if (!code && (code = fcp_session_add(session, plans[1], FCP_OWN_BATCH, &number, err))) {
        x->plan = plans[0];
        cr_assert_eq(run(session, plans[0], &ignored), FCP_OK, "the session is not as it was: %s", ignored.message);
    } else if (!code) {
        code = fcp_session_select(session, number, err);
        if (!code) code = run(session, plans[1], err);
        if (!code) code = fcp_session_select(session, 0, err);
        x->plan = plans[2];
        if (!code && (code = fcp_session_rebind(session, plans[2], err)))
            cr_assert_neq(run(session, plans[2], &ignored), FCP_OK, "a plan that was refused half-way runs");
        if (!code) code = run(session, plans[2], err);
    }
    fcp_session_free(session);
    return code;
}

static void make_plans(fcp_plan *plans[3]) {
    static const char *const lengths[3] = {"300, 130", "700, 130, 60", "1100, 300"};
    for (int i = 0; i < 3; i++) {
        char text[400];
        snprintf(text, sizeof text,
                 "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = %d }\n"
                 "batch { lengths = [%s] }\n"
                 "plan { mask = causal; block = 128; layout = contiguous; passes = forward, backward }\n", RANKS,
                 lengths[i]);
        plans[i] = plan_named(lengths[i], text);
    }
}

/* Each call of the allocator gets nothing once, or memory at a wrong address. */
static void refuse_each(bool shifted, fcp_code wanted, const char *said) {
    standin *x = stand();
    device_pool pool;
    fcp_plan *plans[3];
    long calls = 0;
    make_plans(plans);
    x->idle = true;
    for (long at = 1;; at++) {
        char what[60];
        fcp_error err = {0};
        pool_open(&pool, x, POOL_DEVICES);
        *(shifted ? &pool.shift_at : &pool.fail_at) = at;
        const fcp_session_options options = options_of(&pool);
        fcp_code code = live(x, &options, plans, &err);
        snprintf(what, sizeof what, "call %ld of %ld", at, pool.calls);
        all_well(&pool, what);
        calls = pool.calls;
        pool_close(&pool);
        cr_assert_eq(x->live, 0, "%s: %ld objects are left; %s", what, x->live, err.message);
        if (calls < at) {
            cr_assert_eq(code, FCP_OK, "%s: %s", what, err.message);
            break;
        }
        cr_assert_eq(code, wanted, "%s: %d: %s", what, code, err.message);
        cr_assert(strstr(err.message, said) && strstr(err.message, "on device "), "%s: %s", what, err.message);
    }
    cr_assert_gt(calls, 40);
    for (int i = 0; i < 3; i++) fcp_plan_free(plans[i]);
}
Test(cuda_allocator, has_nothing) { refuse_each(false, FCP_E_NO_MEMORY, "the allocator has no "); }
Test(cuda_allocator, gives_a_wrong_address) {
    refuse_each(true, FCP_E_ARGUMENT, "begins 64 bytes behind a multiple of 256");
}

/* Puts both passes into a stream and does not wait for them. All tensors are in `memory`, of the first device. */
static void queue_both_passes(fcp_session *session, const fcp_plan *plan, cu_ptr memory, size_t each,
                              cu_stream stream) {
    fcp_tensors tensors[RANKS] = {{0}};
    fcp_error err = {0};
    for (uint32_t r = 0; r < RANKS; r++)
        for (int t = 0; t < FCP_TENSORS; t++)
            if (t != FCP_TENSOR_DLSE)
                fcp_tensors_set(&tensors[r], (fcp_tensor)t, (void *)(uintptr_t)(memory + (r * FCP_TENSORS + t) * each));
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_on(session, (fcp_pass)pass, tensors, stream, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(fcp_session_plan(session), plan);
}

/* A plan is added, one is replaced, and the session is freed, each while runs are under way: memory goes back when they
 * have ended. */
Test(cuda_allocator, gets_back_what_nobody_uses) {
    enum { EACH = 1 << 17 };
    standin *x = stand();
    device_pool pool;
    fcp_plan *plans[3];
    fcp_session *session;
    fcp_error err = {0};
    uint32_t number;
    cu_ptr memory;
    cu_stream stream;
    make_plans(plans);
    x->idle = true;
    pool_open(&pool, x, POOL_DEVICES);
    const fcp_cuda_table *call = &pool.cuda->call;
    const fcp_session_options options = options_of(&pool);
    cr_assert(!call->context_set(pool.contexts[0]) && !call->allocate(&memory, RANKS * FCP_TENSORS * EACH));
    cr_assert(!call->stream_create(&stream, CU_STREAM_NON_BLOCKING, 0));
    x->plan = plans[0];
    cr_assert_eq(fcp_session_create(plans[0], &options, &session, &err), FCP_OK, "%s", err.message);
    queue_both_passes(session, plans[0], memory, EACH, stream);
    cr_assert_eq(fcp_session_add(session, plans[1], FCP_OWN_BATCH, &number, &err), FCP_OK, "%s", err.message);
    queue_both_passes(session, plans[0], memory, EACH, stream);
    cr_assert_eq(fcp_session_rebind(session, plans[2], &err), FCP_OK, "%s", err.message);
    x->plan = plans[2];
    queue_both_passes(session, plans[2], memory, EACH, stream);
    cr_assert_eq(fcp_session_select(session, number, &err), FCP_OK, "%s", err.message);
    x->plan = plans[1];
    queue_both_passes(session, plans[1], memory, EACH, stream);
    fcp_session_free(session); /* this plan's part first */
    all_well(&pool, "runs under way");
    cr_assert(!call->context_set(pool.contexts[0]) && !call->stream_destroy(stream) && !call->release(memory));
    pool_close(&pool);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0);
    for (int i = 0; i < 3; i++) fcp_plan_free(plans[i]);
}

/* How much is missing stands in the message, and for what. */
Test(cuda_allocator, says_how_much) {
    standin *x = stand();
    device_pool pool;
    fcp_error err = {0};
    fcp_session *session;
    fcp_plan *plan = make_plan("causal", 1, 1, "");
    pool_open(&pool, x, 1);
    fcp_session_options options = options_of(&pool);
    options.stage_bytes = 12352;
    pool.fail_at = 2;
    x->plan = plan;
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_E_NO_MEMORY);
    cr_assert_str_eq(fcp_code_name(err.code), "E012");
    cr_assert_str_eq(err.message, "the allocator has no 12352 bytes on device 0 for what comes from the host");
    all_well(&pool, "too little");
    pool_close(&pool);
    fcp_plan_free(plan);
}

Test(cuda_allocator, needs_both_functions) {
    device_pool pool = {0};
    fcp_plan *plan = make_plan("causal", 1, 1, "");
    fcp_session *session;
    fcp_error err = {0};
    for (int i = 0; i < 2; i++) {
        fcp_session_options options = options_of(&pool);
        if (i) options.allocator.allocate = NULL;
        else options.allocator.release = NULL;
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_E_ARGUMENT);
        cr_assert(strstr(err.message, "needs both"), "%s", err.message);
    }
    fcp_plan_free(plan);
}
