/* test_nccl_faults.c: tests processes that communicate by NCCL when a call fails, or when a rank dies, stops, does not
 * come or has another plan. All other ranks end with an error that names the place in the plan; none hangs, and nothing
 * is left over. */
#include "tests/support/amount.h"
#include "tests/support/nccl_ranks.h"

typedef struct failing {
    process_shared *s;
    task x;
    unsigned except;
    const char *const *parts;
    char what[60];
} failing;

/* In each case every rank but those of `except` ends with an error, and the message has all of `parts`. Without
 * timeout_s no rank waits for long. Cases with it wait side by side. */
static void all_fail(failing *all, unsigned count) {
    for (unsigned i = 0; i < count; i++) {
        all[i].s = process_shared_make();
        process_begin(all[i].s, all[i].x.plan->problem->ranks, run_rank, &all[i].x);
    }
    for (unsigned i = 0; i < count; i++) {
        const failing *f = &all[i];
        process_shared *s = f->s;
        process_end(s);
        process_all_well(s, s->ranks, f->except, f->what);
        no_trouble(s, s->ranks, f->except, f->what);
        for (unsigned r = 0; r < s->ranks; r++) {
            const process_word *w = &s->words[r];
            if (f->except >> r & 1) continue;
            cr_assert(w->code != FCP_OK, "%s: rank %u ends well", f->what, r);
            for (int k = 0; f->parts[k]; k++)
                cr_assert(strstr(w->err.message, f->parts[k]), "%s: rank %u: \"%s\" is not in: %s", f->what, r,
                          f->parts[k], w->err.message);
        }
        process_shared_end(s, f->except != 0);
    }
}

static const char *const in_a_pass[] = {"rank ", " pass", "stage ", "instruction ", NULL};
/* Or between passes, or where tensors are moved before or behind "every instruction". */
static const char *const about_a_pass[] = {"rank ", " pass", "instruction", NULL};

/* A rank dies, is stopped, or gets no further on its device, in a pass: with and without graphs, noticed by NCCL or
 * not. */
Test(nccl_faults, a_rank_dies_stops_stalls) {
    static const int faults[] = {STANDIN_DIES, STANDIN_DIES, STANDIN_STOPS, STANDIN_STALLS};
    fcp_plan *plans[] = {make_plan("full", 3, 1, "330, 130", ""), make_plan("full", 4, 2, "330, 130", "")};
    failing all[8];
    for (unsigned i = 0; i < 8; i++) {
        task x = {.plan = plans[i / 4], .graph_from = i & 1 ? 1 : UINT32_MAX, .times = 2, .seed = 7 * i, .odd = i % 3,
                  .idle = true,
                  .silent = i % 4 > 0, .timeout_s = 1, .group_at = 1 + i, .fault = faults[i % 4]};
        all[i] = (failing){.x = x, .except = x.fault == STANDIN_STALLS ? 0 : 1u << x.odd, .parts = in_a_pass};
        snprintf(all[i].what, sizeof all[i].what, "fault %u", i);
    }
    all_fail(all, 8);
    for (int i = 0; i < 2; i++) fcp_plan_free(plans[i]);
}

static int wants_no_more(void *context) {
    (void)context;
    return 1;
}

/* A rank gets no further, and the callers of all want no more, long before the time limit. */
Test(nccl_faults, a_caller_interrupts) {
    static const char *const interrupted[] = {"rank ", " pass", "interrupted", NULL};
    fcp_plan *plan = make_plan("full", 3, 1, "330, 130", "");
    failing all[2];
    for (unsigned i = 0; i < 2; i++) {
        task x = {.plan = plan, .graph_from = i ? 1 : UINT32_MAX, .times = 2, .seed = i, .odd = i, .idle = true,
                  .silent = true, .timeout_s = 100, .group_at = 1 + i, .fault = STANDIN_STALLS,
                  .interrupted = wants_no_more};
        all[i] = (failing){.x = x, .parts = interrupted, .what = "interrupted"};
    }
    all_fail(all, 2);
    fcp_plan_free(plan);
}

/* The driver's queues are full long before a whole pass is in them. A peer that makes no progress is noticed
 * nevertheless. */
Test(nccl_faults, full_queues) {
    fcp_plan *plans[] = {make_plan("full", 2, 1, "16000, 130", "; strategy = fcp(coalesce = 1)"),
                         make_plan("full", 4, 2, "16000, 130", "; strategy = fcp(coalesce = 1)")};
    failing all[2];
    for (unsigned i = 0; i < 2; i++) {
        task x = {.plan = plans[i], .graph_from = UINT32_MAX, .times = 1, .seed = i, .odd = i, .idle = true,
                  .silent = true, .timeout_s = 1, .group_at = 8, .fault = STANDIN_STALLS, .queue = 400};
        all[i] = (failing){.x = x, .parts = in_a_pass, .what = "full queues"};
    }
    all_fail(all, 2);
    for (int i = 0; i < 2; i++) fcp_plan_free(plans[i]);
}

/* Calls fail when a graph is in the caller's stream already. The graph ends before its memory is given back. */
static void fail_behind_graphs(process *p) {
    const task *x = p->argument;
    unsigned failed = 0;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    on_device d;
    set_up(p, 0);
    fcp_plan_shape(x->plan, &shape);
    CHECK(p, fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK);
    fcp_packed_draw(&shape, ALL, 5, &packed);
    open_on_device(p, &packed, &d);
    bool ended = false;
    for (int at = 1; !ended && at < 200; at++) {
        fcp_session *session = NULL;
        share_id(p, at);
        CHECK(p, create(p, &session, &err) == FCP_OK, "%s", err.message);
        CHECK(p, fcp_session_run_on(session, FCP_FORWARD, &d.tensors, d.stream, &err) == FCP_OK, "%s", err.message);
        long last = p->cuda->fail_at = p->cuda->calls + at;
        p->cuda->fail_with = CU_ERROR_OUT_OF_MEMORY;
        failed += fcp_session_run_on(session, FCP_FORWARD, &d.tensors, d.stream, &err) != FCP_OK;
        ended = p->cuda->calls < last;
        p->cuda->fail_at = 0;
        fcp_session_free(session);
        CHECK(p, !p->cuda->trouble[0], "call %d: %s", at, p->cuda->trouble);
    }
    CHECK(p, ended && failed > 10, "%u calls failed", failed);
    close_on_device(p, &d);
    fcp_packed_free(&packed);
}
Test(nccl_faults, behind_graphs) {
    fcp_plan *plan = make_plan("causal", 1, 1, "300, 130", "");
    task x = {.plan = plan, .graph_from = 1, .timeout_s = 20, .idle = true};
    process_shared *s = process_shared_make();
    process_run(s, 1, fail_behind_graphs, &x);
    process_all_well(s, 1, 0, "behind graphs");
    process_shared_end(s, false);
    fcp_plan_free(plan);
}

/* A piece of a rank's own work hangs on its device. All ranks say at which instruction they are. */
Test(nccl_faults, a_device_hangs) {
    fcp_plan *plan = make_plan("full", 2, 1, "300, 60", "");
    failing all[4];
    for (unsigned i = 0; i < 4; i++) {
        task x = {.plan = plan, .graph_from = i & 1 ? 1 : UINT32_MAX, .times = 2, .seed = i, .odd = i / 2, .idle = true,
                  .silent = true,
                  .timeout_s = 1, .hang_at = 14 + 4 * i};
        all[i] = (failing){.x = x, .parts = about_a_pass, .what = "a device hangs"};
    }
    all_fail(all, 4);
    fcp_plan_free(plan);
}

/* NCCL reports to one rank, in a pass or between two, that something has gone wrong. That rank ends at once. So do the
 * others, as soon as a run of theirs needs it. A rank asks NCCL for errors whenever it finds that its work has not ended
 * yet. How often that is depends on the machine, so there are many more runs than it takes. */
Test(nccl_faults, asynchronous_errors) {
    fcp_plan *plan = make_plan("full", 3, 1, "330, 130", "");
    failing all[6];
    for (unsigned i = 0; i < 6; i++) {
        task x = {.plan = plan,
                  .graph_from = i & 1 ? 1 : UINT32_MAX,
                  .times = 100,
                  .seed = 5 * i,
                  .odd = i % 3,
                  .idle = true,
                  .silent = i > 3,
                  .timeout_s = 1,
                  .async_at = 2 + 2 * i,
                  .fault = NCCL_REMOTE_ERROR};
        all[i] = (failing){.x = x, .parts = about_a_pass, .what = "an asynchronous error"};
    }
    all_fail(all, 6);
    fcp_plan_free(plan);
}

/* A rank does not come at all. */
Test(nccl_faults, a_rank_is_missing) {
    static const char *const parts[] = {"rank ", NULL};
    fcp_plan *plan = make_plan("causal", 2, 1, "300, 130", "");
    failing all[4];
    for (unsigned i = 0; i < 4; i++) {
        task x = {.plan = plan, .times = 1, .seed = i, .odd = i % 2, .idle = true, .silent = i == 0, .timeout_s = 1,
                  .keeps_away = true,
                  .way = i < 2 ? BY_ID : BY_FILE};
        all[i] = (failing){.x = x, .except = 1u << x.odd, .parts = parts, .what = "a missing rank"};
    }
    all_fail(all, 4);
    fcp_plan_free(plan);
}

Test(nccl_faults, ranks_that_differ) {
    static const char *const plans[] = {"rank 1 has another plan than rank 0", NULL},
                             *const graphs[] = {"rank 1 is to make graphs from run 7 on", NULL},
                             *const devices[] = {"two ranks on one GPU need NCCL 2.30", NULL},
                             *const old[] = {"2.19", NULL}, *const later[] = {"NCCL_MULTI_RANK_GPU_ENABLE=1", NULL};
    fcp_plan *plan = make_plan("causal", 2, 1, "300, 130", ""), *other = make_plan("causal", 2, 1, "300, 131", "");
    failing all[] = {
        {.x = {.plan = plan, .other = other, .odd = 1, .times = 1, .idle = true}, .parts = plans, .what = "two plans"},
        {.x = {.plan = plan, .odd = 1, .odd_graph_from = 7, .graph_from = 3, .times = 1, .idle = true}, .parts = graphs,
         .what = "two options"},
        {.x = {.plan = plan, .odd = 1, .times = 1, .idle = true, .one_device = true}, .parts = devices,
         .what = "one device"},
        {.x = {.plan = plan, .odd = 1, .times = 1, .idle = true, .one_device = true, .version = 23007}, .parts = later,
         .what = "one device, where several ranks may share it"},
        {.x = {.plan = plan, .odd = 1, .times = 1, .idle = true, .version = 21805, .way = BY_FILE}, .parts = old,
         .what = "an old version"}};
    all_fail(all, sizeof all / sizeof *all);
    fcp_plan_free(plan);
    fcp_plan_free(other);
}

/* Every call of one rank fails once: `times` of them, each `fault`-th, of NCCL's or of the driver's. That rank ends
 * with an error, and the other with an error or without. Nothing is left, and nothing hangs. */
static void fail_calls(process *p) {
    const task *x = p->argument;
    int last = 0;
    for (int at = 1; at <= x->times; at += x->fault) {
        int turn = (at - 1) / x->fault + 1;
        fcp_session *session = NULL;
        fcp_error err = {0};
        bool odd = p->rank == (unsigned)turn % 2;
        set_up(p, (uint64_t)at);
        p->nccl->fail_at = p->cuda->fail_at = 0;
        share_id(p, turn);
        const long *calls = fail_call(p, odd, at, turn), begin = *calls;
        fcp_code code = create(p, &session, &err);
        for (int i = 0; i < 2 && !code; i++) code = run_passes(p, session, 0, &err);
        fcp_session_free(session);
        if (odd) last = (int)(*calls - begin);
        CHECK(p, !code || strstr(err.message, "rank ") || (odd && (x->driver || at == 1)), "call %d: %s", at,
              err.message);
        after_a_failed_call(p, odd, at, turn, code, &err);
    }
    atomic_fetch_add(&p->shared->counter[CALLS_MADE], last);
}
Test(nccl_faults, every_call_fails) {
    fcp_plan *plan = make_plan("full", 2, 1, "300, 60", "");
    process_shared *s[4];
    task x[4];
    for (unsigned i = 0; i < 4; i++) {
        s[i] = process_shared_make();
        x[i] = (task){.plan = plan, .graph_from = i % 2 ? 1 : UINT32_MAX, .times = 78, .fault = (int)amount(3 + i, 1 + i),
                      .idle = true, .timeout_s = 1};
        if (i > 1) x[i].driver = true, x[i].times = 650, x[i].fault = (int)(i == 2 ? amount(31, 23) : amount(37, 29));
        process_begin(s[i], 2, fail_calls, &x[i]);
    }
    for (unsigned i = 0; i < 4; i++) {
        process_end(s[i]);
        all_calls_failed(s[i], (int)amount(4, 10));
    }
    fcp_plan_free(plan);
}

/* The passes of a session go well. Then each call of the driver's fails once while it ends: nothing is left. */
static void fail_ending(process *p) {
    const task *x = p->argument;
    bool ended = false;
    for (int at = 1; at <= x->times; at++) {
        fcp_session *session = NULL;
        fcp_error err = {0};
        set_up(p, (uint64_t)at);
        share_id(p, at);
        fcp_code code = create(p, &session, &err);
        if (!code) code = run_passes(p, session, 0, &err);
        CHECK(p, !code, "call %d: %s", at, err.message);
        long last = p->cuda->fail_at = p->cuda->calls + at;
        p->cuda->fail_with = 719;
        fcp_session_free(session);
        p->cuda->fail_at = 0;
        ended = p->cuda->calls < last;
        CHECK(p, p->cuda->live == 0, "call %d: %ld objects are left", at, p->cuda->live);
        CHECK(p, !p->cuda->trouble[0], "call %d: %s", at, p->cuda->trouble);
        process_meet(p, 1, at);
    }
    CHECK(p, ended, "%d calls are not all", x->times);
}
Test(nccl_faults, endings) {
    fcp_plan *plan = make_plan("full", 2, 1, "300, 60", "; layout = zigzag"); /* tensors have copies on the device */
    task x = {.plan = plan, .graph_from = 1, .idle = true, .timeout_s = 20, .times = 70};
    process_shared *s = process_shared_make();
    process_run(s, 2, fail_ending, &x);
    process_all_well(s, 2, 0, "endings");
    process_shared_end(s, false);
    fcp_plan_free(plan);
}
