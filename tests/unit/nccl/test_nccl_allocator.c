/* test_nccl_allocator.c: tests sessions of several processes whose device memory comes from the caller: all of it but
 * the arena, which is NCCL's. */
#include "runtime/cuda/cuda.h"
#include "tests/support/device_pool.h"
#include "tests/support/nccl_ranks.h"

static void run_both(process *p, fcp_session *session, const fcp_plan *plan) {
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    fcp_plan_shape(plan, &shape);
    CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, ALL, 1, &packed);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        CHECK(p, fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s",
              err.message);
    fcp_packed_free(&packed);
}

static void use_pool(process *p) {
    const task *x = p->argument;
    fcp_session *session = NULL;
    fcp_error err = {0};
    device_pool pool;
    set_up(p, 0);
    share_id(p, 1);
    pool_open(&pool, p->cuda, p->ranks);
    fcp_start start = {
        .size = sizeof start, .ranks = p->ranks, .rank = p->rank, .device = p->rank + 1, .id = p->shared->id.bytes};
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .transport = "nccl", .start = &start,
                                   .timeout_s = LONG, .stage_bytes = 8192, .allocator = pool_allocator(&pool)};
    fcp_code code = fcp_session_create(x->plan, &options, &session, &err);
    CHECK(p, code == FCP_OK, "%s", err.message);
    if (session) {
        run_both(p, session, x->plan); /* tensors of the host that other ranks have parts of take room now */
        const size_t arena = ((fcp_cuda_session *)session)->ranks[p->rank].memory.held;
        CHECK(p, arena && pool.held[p->rank] + arena == p->cuda->held[p->rank],
              "the pool gave %zu, and the arena has %zu; the device holds %zu", pool.held[p->rank], arena,
              p->cuda->held[p->rank]);
    }
    fcp_session_free(session);
    CHECK(p, !pool_left(&pool) && !pool.wrong[0], "%d blocks are left; %s", pool_left(&pool), pool.wrong);
    pool_close(&pool);
}

Test(nccl_allocator, gives_all_but_the_arena) {
    fcp_plan *plan = make_plan("causal", POOL_DEVICES, 1, "500, 130, 60", "; layout = contiguous");
    task x = {.plan = plan, .idle = true, .graph_from = 2};
    process_shared *s = process_shared_make();
    process_run(s, POOL_DEVICES, use_pool, &x);
    process_all_well(s, POOL_DEVICES, 0, "a pool");
    no_trouble(s, POOL_DEVICES, 0, "a pool");
    process_shared_end(s, false);
    fcp_plan_free(plan);
}
