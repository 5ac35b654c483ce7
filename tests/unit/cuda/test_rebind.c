/* test_rebind.c: tests sessions that get the plan of another batch, on the host and on the stand-in driver: they
 * give the same bits as new sessions, compile each kernel once, and do not grow. */
#include "runtime/libraries/cuda_driver.h"
#include "runtime/judge/packed.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/temporary.h"

enum { ALL = (1 << FCP_TENSORS) - 1, BATCHES = 4 };

static fcp_plan *batch(const char *lengths, const char *mask, unsigned ranks, const char *model, const char *more) {
    char text[600];
    snprintf(text, sizeof text, "model { %s }\ncluster { nodes = 1; gpus = %u }\nbatch { lengths = [%s] }\n"
             "mask wide = causal and q - k < 100 and (q * 10000 + k) %% 7 < 6\n"
             "plan { mask = %s; block = %u; passes = forward, backward%s }\n", model, ranks, lengths, mask,
             strlen(lengths) == 5 ? 4096 : 128, more);
    return plan_named(lengths, text);
}
static const char model[] = "heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16";
static const char *const lengths[BATCHES] = {"300, 130, 60", "140 x 3, 90", "420, 20", "260, 129"};

/* Forward and backward of drawn tensors. */
static fcp_code run(fcp_session *session, const fcp_plan *plan, uint64_t seed, fcp_packed *out, fcp_error *err) {
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, out, err), FCP_OK);
    fcp_packed_draw(&shape, ALL, seed, out);
    fcp_code code = FCP_OK;
    for (int pass = 0; pass < FCP_PASSES && !code; pass++)
        code = fcp_session_run_packed(session, plan, (fcp_pass)pass, out, NULL, err);
    return code;
}

/* The same bits as a session of its own gives. */
static void as_fresh(fcp_session *session, const fcp_session_options *options, const fcp_plan *plan, uint64_t seed,
                     const char *what) {
    fcp_packed mine = {0}, fresh = {0};
    fcp_session *other;
    fcp_shape shape;
    fcp_error err = {0};
    uint64_t dims[3];
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(run(session, plan, seed, &mine, &err), FCP_OK, "%s: %s", what, err.message);
    cr_assert_eq(fcp_session_create(plan, options, &other, &err), FCP_OK, "%s: %s", what, err.message);
    cr_assert_eq(run(other, plan, seed, &fresh, &err), FCP_OK, "%s: %s", what, err.message);
    fcp_session_free(other);
    for (int t = 0; t < FCP_TENSORS; t++) {
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        cr_assert(!memcmp(mine.t[t], fresh.t[t], dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t)),
                  "%s: %s has other bits", what, fcp_tensor_name((fcp_tensor)t));
    }
    fcp_packed_free(&mine);
    fcp_packed_free(&fresh);
}

static long *compilations(void) {
    void *handle = dlopen(getenv("FCP_NVRTC"), RTLD_NOW);
    cr_assert_not_null(handle, "%s", dlerror());
    long *(*get)(void);
    void *symbol = dlsym(handle, "standin_compilations");
    memcpy(&get, &symbol, sizeof get);
    return get();
}

static void batches(standin *x, const fcp_session_options *options, unsigned ranks) {
    fcp_plan *plans[BATCHES];
    fcp_session *session;
    fcp_error err = {0};
    long live = 0, *compiled = x ? compilations() : NULL;
    for (int i = 0; i < BATCHES; i++) plans[i] = batch(lengths[i], "causal", ranks, model, "");
    if (x) x->plan = plans[0];
    cr_assert_eq(fcp_session_create(plans[0], options, &session, &err), FCP_OK, "%s", err.message);
    long once = x ? *compiled : 0;
    for (int i = 0; i < 2 * BATCHES; i++) {
        char what[60];
        const fcp_plan *plan = plans[i % BATCHES];
        snprintf(what, sizeof what, "batch %d of %u ranks", i, ranks);
        if (x) x->plan = plan;
        long before = x ? *compiled : 0;
        if (i) cr_assert_eq(fcp_session_rebind(session, plan, &err), FCP_OK, "%s: %s", what, err.message);
        cr_assert(fcp_session_plan(session) == plan);
        if (x && i) cr_assert_eq(*compiled, before, "%s: kernels are compiled again", what);
        as_fresh(session, options, plan, (uint64_t)i + 1, what);
        if (x && i == BATCHES) live = x->live;
        if (x && i > BATCHES) cr_assert(x->live <= live, "%s: %ld objects, %ld a batch before", what, x->live, live);
        if (i == 0) continue;
        fcp_packed again = {0}; /* and once more, as a graph where there are any */
        cr_assert_eq(run(session, plan, 9, &again, &err), FCP_OK, "%s: %s", what, err.message);
        fcp_packed_free(&again);
    }
    cr_assert(!x || once >= 1);
    fcp_session_free(session);
    for (int i = 0; i < BATCHES; i++) fcp_plan_free(plans[i]);
}

Test(rebind, on_the_host) {
    for (unsigned ranks = 1; ranks <= 3; ranks += 2) {
        fcp_session_options options = {.size = sizeof options,
                                       .backend = "host",
                                       .compute_threads = ranks == 3 ? 2 : 3,
                                       .timeout_s = 60};
        batches(NULL, &options, ranks);
    }
}

Test(rebind, on_devices) {
    standin *x = stand();
    setenv("FCP_CACHE", "/dev/null/none", 1); /* what is compiled is compiled */
    x->devices = 2;
    for (unsigned ranks = amount(3, 1); ranks <= 3; ranks += 2) {
        fcp_session_options options = {
            .size = sizeof options, .backend = "cuda", .timeout_s = 60, .graph_from = 2, .stage_bytes = 5000};
        batches(x, &options, ranks);
    }
    cr_assert(x->graph_launches > 0);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
}

/* Kernels of a pass are the same whatever else a plan has: an entry of the disk cache for each. */
Test(rebind, passes_apart) {
    static const char *const defines[] = {"plan.passes=forward", "plan.passes=forward, backward"};
    static const int order[] = {0, 1, 0, 1};
    static const long compiled[] = {1, 1, 0, 0};
    standin *x = stand();
    char folder[TEMPORARY], command[200];
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 60, .stage_bytes = 1 << 16};
    cr_assert(temporary_folder(folder, "rebind"));
    setenv("FCP_CACHE", folder, 1);
    for (int i = 0; i < 4; i++) {
        char text[400];
        fcp_session *session;
        fcp_error err = {0};
        long before = *compilations();
        snprintf(text, sizeof text, "model { %s }\ncluster { nodes = 1; gpus = 2 }\nbatch { lengths = [300, 60] }\n"
                 "plan { mask = causal; block = 128 }\n", model);
        fcp_plan *plan = plan_with(defines[order[i]], text, &defines[order[i]], 1);
        x->plan = plan;
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s: %s", defines[order[i]],
                     err.message);
        cr_assert_eq(*compilations() - before, compiled[i], "%s: %ld", defines[order[i]], *compilations() - before);
        fcp_session_free(session);
        fcp_plan_free(plan);
    }
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
}

/* Other kernels are made where they must be: wider positions, another mask. */
Test(rebind, other_kernels) {
    standin *x = stand();
    setenv("FCP_CACHE", "/dev/null/none", 1);
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 60, .stage_bytes = 1 << 16};
    fcp_plan *small = batch("300, 60", "wide", 2, model, ""), *large = batch("70000", "wide", 2, model, ""),
             *other = batch("300, 60", "full", 2, model, "");
    fcp_session *session;
    fcp_error err = {0};
    fcp_packed packed = {0};
    x->plan = small;
    cr_assert_eq(fcp_session_create(small, &options, &session, &err), FCP_OK, "%s", err.message);
    long begin = *compilations();
    x->plan = large;
    x->idle = true;
    cr_assert_eq(fcp_session_rebind(session, large, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(*compilations(), begin + 2, "positions are wider, in both passes");
    cr_assert_eq(run(session, large, 1, &packed, &err), FCP_OK, "%s", err.message);
    fcp_packed_free(&packed);
    x->plan = other;
    x->idle = false;
    cr_assert_eq(fcp_session_rebind(session, other, &err), FCP_OK, "%s", err.message);
    as_fresh(session, &options, other, 5, "another mask");
    fcp_session_free(session);
    fcp_plan_free(small);
    fcp_plan_free(large);
    fcp_plan_free(other);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0);
}

/* The error names what differs, and the session goes on with the plan it has. Too little memory is reported before
 * anything is given up. */
Test(rebind, refuses) {
    static const struct { const char *model, *more, *part; unsigned ranks; } all[] = {
        {"heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16", "", "ranks = 2, the new plan has 3", 3},
        {"heads = 4; kv_heads = 1; head_dim = 16; dtype = bf16", "", "heads = 2, the new plan has 4", 2},
        {"heads = 2; kv_heads = 2; head_dim = 16; dtype = bf16", "", "kv_heads = 1", 2},
        {"heads = 2; kv_heads = 1; head_dim = 32; dtype = bf16", "", "head_dim = 16, the new plan has 32", 2},
        {"heads = 2; kv_heads = 1; head_dim = 16; value_dim = 8; dtype = bf16", "", "value_dim = 16, the new plan has 8",
         2},
        {"heads = 2; kv_heads = 1; head_dim = 16; values = keys; dtype = bf16", "", "values_in_keys = 0", 2},
        {"heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16", "; lse_gradient = true", "lse_gradient = 0", 2},
        {"heads = 2; kv_heads = 1; head_dim = 16; dtype = fp16", "", "dtype = bf16, the new plan has fp16", 2},
        {"heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16", "; deterministic = false", "deterministic", 2}};
    standin *x = stand();
    for (int cuda = 0; cuda < 2; cuda++) {
        fcp_session_options options = {.size = sizeof options,
                                       .backend = cuda ? "cuda" : "host",
                                       .timeout_s = 60,
                                       .stage_bytes = 4096};
        fcp_plan *plan = batch("300, 60", "causal", 2, model, "");
        fcp_session *session;
        fcp_error err = {0};
        x->plan = plan;
        cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            fcp_plan *other = batch("300, 60", "causal", all[i].ranks, all[i].model, all[i].more);
            cr_assert_eq(fcp_session_rebind(session, other, &err), FCP_E_ARGUMENT, "%zu", i);
            cr_assert(strstr(err.message, all[i].part), "\"%s\" is not in: %s", all[i].part, err.message);
            fcp_plan_free(other);
        }
        if (cuda) {
            fcp_plan *large = batch("9000", "causal", 2, model, "");
            size_t memory = x->memory;
            x->memory = 1 << 20;
            cr_assert_eq(fcp_session_rebind(session, large, &err), FCP_E_NO_MEMORY);
            cr_assert(strstr(err.message, "ranks need"), "%s", err.message);
            x->memory = memory;
            fcp_plan_free(large);
        }
        cr_assert_eq(fcp_session_rebind(session, NULL, &err), FCP_E_ARGUMENT);
        as_fresh(session, &options, plan, 4, "a refusal breaks nothing");
        fcp_session_free(session);
        fcp_plan_free(plan);
    }
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0);
}

/* Every call of a rebinding fails once. The session goes on with the plan it had, or with the new one, or says that it
 * cannot go on. Nothing is left. */
Test(rebind, every_call_fails) {
    standin *x = stand();
    fcp_session_options options = {
        .size = sizeof options, .backend = "cuda", .timeout_s = 20, .graph_from = 1, .stage_bytes = 4096};
    fcp_plan *plans[2] = {batch(lengths[1], "causal", 2, model, ""), batch(lengths[2], "causal", 2, model, "")};
    unsigned refused = 0, went_on = 0;
    bool done = false;
    x->idle = true;
    for (long at = 1; !done; at += at < 20 ? 1 : (long)amount(3, 1)) {
        fcp_session *session;
        fcp_error err = {0};
        fcp_packed packed = {0};
        x->seed = (uint64_t)at;
        x->fail_at = 0;
        x->plan = plans[0];
        cr_assert_eq(fcp_session_create(plans[0], &options, &session, &err), FCP_OK, "%s", err.message);
        cr_assert_eq(run(session, plans[0], 1, &packed, &err), FCP_OK, "%s", err.message);
        fcp_packed_free(&packed);
        x->plan = plans[1];
        x->fail_at = x->calls + at;
        x->fail_with = at % 2 ? 719 : CU_ERROR_OUT_OF_MEMORY;
        fcp_code code = fcp_session_rebind(session, plans[1], &err);
        done = x->calls < x->fail_at;
        x->fail_at = 0;
        cr_assert(code != FCP_OK || fcp_session_plan(session) == plans[1]);
        cr_assert(code == FCP_OK || err.message[0]);
        const fcp_plan *now = fcp_session_plan(session);
        fcp_code again = run(session, now, 2, &packed, &err);
        if (again) cr_assert(strstr(err.message, "a new one is needed"), "call %ld: %s", at, err.message);
        if (again) refused++;
        else went_on++;
        fcp_packed_free(&packed);
        fcp_session_free(session);
        cr_assert_eq(x->live, 0, "call %ld: %ld objects are left; %s", at, x->live, err.message);
        cr_assert_str_empty(x->trouble, "call %ld: %s", at, x->trouble);
    }
    cr_assert(refused > 10 && went_on > 2, "%u, %u", refused, went_on);
    fcp_plan_free(plans[0]);
    fcp_plan_free(plans[1]);
}
