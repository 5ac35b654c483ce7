/* test_cuda_sm90.c: tests sessions on devices of compute capability 9.0, through the stand-in driver: which
 * kernels they choose, the tensor maps that they pass, and what they compute. */
#include "runtime/libraries/cuda_driver.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/judge_packed.h"

enum { HOPPER = 232448 };

static standin *stand_hopper(int devices) {
    standin *x = stand();
    x->devices = devices;
    x->major = 9;
    x->minor = 0;
    x->shared = HOPPER;
    return x;
}

/* Every pass `times` times, judged; returns how many kernels were given maps. */
static unsigned long run_plan(standin *x, const fcp_plan *plan, bool mma_sync, int times, const char *what) {
    const fcp_session_options options = {
        .size = sizeof options, .backend = "cuda", .timeout_s = 100, .graph_from = 2, .mma_sync = mma_sync};
    const unsigned long before = x->kernels_with_maps;
    stand_run(x, plan, &options, times, what);
    return x->kernels_with_maps - before;
}

static const char small[] =
    "model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
    "batch { lengths = [300, 70] }\nplan { mask = causal; block = 128; passes = forward }\n";

Test(cuda_sm90, skeletons) {
    static const struct {
        const char *text;
        bool maps;
    } programs[] = {
        {small, true},
        {"model { heads = 2; kv_heads = 2; head_dim = 128; dtype = fp16 }\ncluster { nodes = 2; gpus = 2 }\n"
         "batch { lengths = [400, 100:260] }\n"
         "plan { mask = causal; block = 128; score = softcap; passes = forward, backward }\n", true},
        {"model { heads = 1; kv_heads = 1; head_dim = 256; dtype = bf16 }\ncluster { nodes = 1; gpus = 2 }\n"
         "batch { lengths = [200, 100] }\nplan { mask = window(w = 90); block = 128; passes = forward, backward }\n",
         true},
        {"model { heads = 2; kv_heads = 1; head_dim = 64; dtype = fp16 }\ncluster { nodes = 1; gpus = 2 }\n"
         "batch { lengths = [300, 128] }\n"
         "plan { mask = causal; block = 128; passes = forward, backward; deterministic = false }\n", true},
        {"model { heads = 2; kv_heads = 1; head_dim = 32; dtype = fp16 }\ncluster { nodes = 1; gpus = 2 }\n"
         "batch { lengths = [300] }\nplan { mask = full; block = 128; passes = forward }\n", false}};
    standin *x = stand_hopper(2);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        fcp_plan *plan = plan_named("sm90", programs[i].text);
        x->seed = i;
        unsigned long with = run_plan(x, plan, false, i ? 1 : 3, programs[i].text);
        cr_assert_eq(with > 0, programs[i].maps, "%lu kernels with maps: %s", with, programs[i].text);
        fcp_plan_free(plan);
    }
}

/* The others, where they are wanted, and on devices of another kind. */
Test(cuda_sm90, others) {
    standin *x = stand_hopper(1);
    fcp_plan *plan = plan_named("small", small);
    cr_assert_eq(run_plan(x, plan, true, 1, "mma.sync where it is wanted"), 0);
    x->major = 10;
    cr_assert_eq(run_plan(x, plan, false, 1, "mma.sync on 10.0"), 0);
    fcp_plan_free(plan);
}

/* A plan after another on the same ranks, whose memory stays: maps are made where the memory is. */
Test(cuda_sm90, rebind) {
    standin *x = stand_hopper(2);
    fcp_plan *plan = plan_named("small", small),
             *fewer = plan_with("small", small, (const char *[]){"batch.lengths=[200, 60]"}, 1);
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100};
    fcp_session *session;
    fcp_error err = {0};
    x->plan = plan;
    x->idle = true;
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int i = 0; i < 4; i++)
        cr_assert(fcp_session_rebind(session, i % 2 ? plan : fewer, &err) == FCP_OK, "%s; %s", err.message, x->trouble);
    fcp_session_free(session);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0);
    fcp_plan_free(plan);
    fcp_plan_free(fewer);
}

/* With fewer registers than the warpgroups share out, some would wait for ever. */
Test(cuda_sm90, registers) {
    standin *x = stand_hopper(1);
    fcp_plan *plan = plan_named("small", small);
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100};
    fcp_session *session = NULL;
    fcp_error err = {0};
    x->plan = plan;
    x->registers = 160;
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_E_COMPILE, "%s", err.message);
    cr_assert(strstr(err.message, "fk_forward_sm90 begins with 160 registers a thread"), "%s", err.message);
    x->registers = 0;
    fcp_plan_free(plan);
}

/* Whichever call fails, also that which makes a map, there is an error, and nothing is left. */
Test(cuda_sm90, every_call_fails) {
    standin *x = stand_hopper(2);
    fcp_plan *plan = plan_named("small", small);
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100};
    unsigned maps = 0;
    fcp_code last = FCP_OK;
    char what[600] = "";
    x->plan = plan;
    x->idle = true;
    x->calls = 1;
    for (long at = 1; x->calls >= at - 1; at++) { /* until there is no such call */
        fcp_session *session = NULL;
        fcp_error err = {0};
        x->seed = 1; /* as many questions whether something has ended, each time */
        x->calls = 0;
        x->fail_at = at;
        x->fail_with = CU_ERROR_INVALID_VALUE;
        fcp_code code = fcp_session_create(plan, &options, &session, &err);
        cr_assert((code == FCP_OK) == (session != NULL));
        if (code) maps += strstr(err.message, "the driver makes no map of ") != NULL;
        last = code;
        snprintf(what, sizeof what, "call %ld of %ld: %s", at, x->calls, err.message);
        fcp_session_free(session);
        cr_assert_eq(x->live, 0, "call %ld: %ld objects are left; %s", at, x->live, err.message);
        cr_assert_str_empty(x->trouble, "%s; %s", what, x->trouble);
    }
    cr_assert_eq(last, FCP_OK, "no call has failed, and there is an error: %s", what);
    cr_assert_eq(maps, 2 * 5, "%u", maps); /* each rank's Q, K, V, and both of what moves */
    fcp_plan_free(plan);
}
