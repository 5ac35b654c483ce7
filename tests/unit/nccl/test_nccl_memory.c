/* test_nccl_memory.c: tests that a session allocates exactly the bytes that it says it needs, of every device and of
 * pinned host memory: in one process and by NCCL, when it is created, in runs on host memory, and from batch to batch.
 * With one byte less it is refused. Some plans have layers that recur, and scans of them allocate nothing. */
#include "runtime/cuda/cuda.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/recurrent_ops.h"
#include "tests/support/recurrent_plan.h"

typedef struct course {
    task task;
    const fcp_plan *plans[3];
    bool nccl, host_tensors;
    int devices;
} course;

static fcp_code make(process *p, fcp_session **out, fcp_error *err) {
    const course *c = p->argument;
    fcp_start start = {
        .size = sizeof start, .ranks = p->ranks, .rank = p->rank, .device = p->rank + 1, .id = p->shared->id.bytes};
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .transport = c->nccl ? "nccl" : "local",
                                   .start = c->nccl ? &start : NULL,
                                   .timeout_s = LONG, .graph_from = 2, .stage_bytes = 5000,
                                   .host_tensors = c->host_tensors};
    return fcp_session_create(c->plans[0], &options, out, err);
}

/* The devices of this process hold what the session says, and have never held more. */
static void exact(process *p, const fcp_session *base, const char *when) {
    const fcp_cuda_session *s = (const fcp_cuda_session *)base;
    size_t pinned = 0, held;
    for (uint32_t i = 0; i < s->device_count; i++) {
        const cuda_device *d = &s->devices[i];
        pinned += d->need.pinned;
        size_t most = p->cuda->most_held[d->handle];
        held = p->cuda->held[d->handle];
        CHECK(p, d->need.device == held, "%s: device %d needs %zu, and holds %zu", when, d->handle, d->need.device,
              held);
        CHECK(p, most == held, "%s: device %d held %zu", when, d->handle, most);
    }
    held = p->cuda->pinned;
    CHECK(p, pinned == held && pinned == p->cuda->most_pinned, "%s: %zu pinned, %zu allocated", when, pinned, held);
}

static void run_batch(process *p, fcp_session *session, const fcp_plan *plan) {
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    unsigned set = outputs(plan);
    fcp_plan_shape(plan, &shape);
    CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, ALL, 1, &packed);
    for (int i = 0; i < 2; i++)
        for (int pass = 0; pass < FCP_PASSES; pass++)
            CHECK(p, fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s",
                  err.message);
    CHECK(p, fcp_session_collect_packed(session, plan, set, &packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_free(&packed);
}

static void take(process *p) {
    const course *c = p->argument;
    fcp_session *session = NULL;
    fcp_error err = {0};
    set_up(p, 0);
    if (c->nccl) share_id(p, 1);
    else p->cuda->devices = c->devices;
    CHECK(p, make(p, &session, &err) == FCP_OK, "%s", err.message);
    if (!session) return;
    exact(p, session, "made");
    for (int i = 0; i < 3 && !p->word->failed[0]; i++) {
        p->cuda->plan = c->plans[i];
        memcpy(p->cuda->most_held, p->cuda->held, sizeof p->cuda->held);
        if (i) CHECK(p, fcp_session_rebind(session, c->plans[i], &err) == FCP_OK, "%s", err.message);
        /* what host tensors take is known beforehand where it is said, or where there were some before */
        if (!c->nccl || c->host_tensors || i) exact(p, session, i ? "bound again" : "made");
        run_batch(p, session, c->plans[i]);
        if (!c->nccl || c->host_tensors || i) exact(p, session, "run");
    }
    fcp_session_free(session);
    CHECK(p, !p->cuda->pinned);
}

/* The memory of rank `odd`'s device, or of the only one: what is needed is enough, and a byte less is not. */
static void short_of(process *p) {
    const course *c = p->argument;
    for (int turn = 0; turn < 3; turn++) {
        fcp_session *session = NULL;
        fcp_error err = {0};
        bool odd = !c->nccl || p->rank == c->task.odd;
        if (turn == 0) set_up(p, 0);
        if (turn == 0 && !c->nccl) p->cuda->devices = 1;
        if (c->nccl) share_id(p, turn + 1);
        fcp_code code = make(p, &session, &err);
        CHECK(p, code == (turn < 2 ? FCP_OK : odd ? FCP_E_NO_MEMORY : FCP_E_START), "turn %d: %s", turn, err.message);
        CHECK(p, turn < 2 || strstr(err.message, odd ? "need" : "cannot begin"), "%s", err.message);
        CHECK(p, turn < 2 || !odd || strstr(err.message, " for layers that recur)"), "%s", err.message);
        if (session && odd) p->cuda->memory = ((fcp_cuda_session *)session)->devices[0].need.device - (turn > 0);
        if (session) run_batch(p, session, c->plans[0]);
        fcp_session_free(session);
    }
}

static void go(course *c, void (*body)(process *), const char *what) {
    unsigned processes = c->nccl ? c->plans[0]->problem->ranks : 1;
    process_shared *s = process_shared_make();
    c->task.plan = c->plans[0];
    c->task.idle = true;
    process_run(s, processes, body, c);
    process_all_well(s, processes, 0, what);
    no_trouble(s, processes, 0, what);
    process_shared_end(s, false);
}

static fcp_plan *with_layers(fcp_plan *plan, uint64_t seed) {
    fcp_recurrent layers[OP_LAYERS];
    op_layers(seed, layers);
    PROCESS_PARENT_BEGINS();
    recurrent_give(plan, layers, OP_LAYERS);
    PROCESS_PARENT_ENDS();
    return plan;
}

Test(nccl_memory, is_what_is_said) {
    for (unsigned i = 0; i < 5; i++) {
        char what[60];
        unsigned ranks = 2 + i % 3;
        const char *layout = i == 4 ? "" : "; layout = contiguous";
        course c = {.plans = {with_layers(make_plan("causal", ranks, 1, "500, 130, 60", layout), i),
                              with_layers(make_plan("full", ranks, 1, "900, 200", layout), i + 5),
                              make_plan("causal", ranks, 1, "400, 60", layout)},
                    .nccl = i > 1,
                    .host_tensors = i > 2,
                    .devices = 1 + (int)i};
        snprintf(what, sizeof what, "%u ranks, %s", ranks, c.nccl ? "nccl" : "local");
        go(&c, take, what);
        if (i % 2) go(&c, short_of, what);
        for (int k = 0; k < 3; k++) fcp_plan_free((fcp_plan *)(uintptr_t)c.plans[k]);
    }
}
