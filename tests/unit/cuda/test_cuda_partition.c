/* test_cuda_partition.c: tests how a session leaves SMs to communication: how many, by a smaller grid or by green
 * contexts, and that the bits of results do not depend on it. In some tests the driver lacks green contexts, refuses
 * them, or fails the session's trial of them. A device of the stand-in has three SMs, each of which holds two CTAs of
 * any kernel. */
#include "runtime/judge/reference.h"
#include "runtime/judge/packed.h"
#include "tests/support/cuda_stand.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };

/* Runs both passes in a session with that partition, as graphs from the second time on. Returns what it took. */
static fcp_partition run_all(standin *x, const fcp_plan *plan, fcp_partition wanted, int times, fcp_packed *out,
                             char why[400]) {
    fcp_session_options options = {
        .size = sizeof options, .backend = "cuda", .timeout_s = 100, .graph_from = 2, .partition = wanted};
    fcp_session *session;
    fcp_shape shape;
    fcp_error err = {0};
    const char *reason;
    x->plan = plan;
    x->in_green = x->out_of_green = x->most_blocks = 0;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, out, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, out);
    for (int i = 0; i < times; i++)
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (shape.has_pass[pass])
                cr_assert_eq(fcp_session_run_packed(session, plan, (fcp_pass)pass, out, NULL, &err), FCP_OK, "%s; %s",
                             err.message, x->trouble);
    fcp_partition taken = fcp_session_partition(session, &reason);
    snprintf(why, 400, "%s", reason);
    fcp_session_free(session);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
    return taken;
}

static bool same(const fcp_plan *plan, const fcp_packed *a, const fcp_packed *b) {
    fcp_shape shape;
    bool equal = true;
    fcp_plan_shape(plan, &shape);
    for (int t = 0; t < FCP_TENSORS; t++) {
        uint64_t dims[3];
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        equal &= !memcmp(a->t[t], b->t[t], dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t));
    }
    return equal;
}

static fcp_plan *with_margin(unsigned ranks, unsigned margin) {
    char more[40];
    snprintf(more, sizeof more, "; margin = %u", margin);
    return make_longer_plan("causal", ranks, 1, more);
}

/* The margin says how many SMs are left, never less than one. All give the same bits, by whatever means
 * they are kept free. */
Test(partition, margins) {
    static const struct {
        unsigned margin, share;
    } rows[] = {{0, 3}, {1, 2}, {2, 1}, {1000, 1}};
    standin *x = stand();
    char why[400];
    fcp_packed first = {0};
    x->devices = 2;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int wanted = FCP_PARTITION_AUTO; wanted <= FCP_PARTITION_GRID; wanted++) {
            if (i != 1 && wanted != FCP_PARTITION_AUTO) continue;
            fcp_plan *plan = with_margin(6, rows[i].margin);
            fcp_packed packed = {0};
            x->seed = i;
            fcp_partition took = run_all(x, plan, (fcp_partition)wanted, 2, i || wanted ? &packed : &first, why);
            unsigned share = wanted == FCP_PARTITION_NONE ? 3 : rows[i].share;
            cr_assert_eq(x->most_blocks, 2 * share, "margin %u, %s: %u blocks", rows[i].margin,
                         fcp_partition_name((fcp_partition)wanted), x->most_blocks);
            if (rows[i].margin == 0 || wanted == FCP_PARTITION_NONE) cr_assert_eq(took, FCP_PARTITION_NONE, "%s", why);
            else cr_assert_eq(took, wanted == FCP_PARTITION_GRID ? FCP_PARTITION_GRID : FCP_PARTITION_GREEN, "%s", why);
            if (took == FCP_PARTITION_GREEN)
                cr_assert(x->in_green && !x->out_of_green && x->green_size == share, "%u", x->green_size);
            else cr_assert(!x->in_green && x->out_of_green);
            if (i || wanted) cr_assert(same(plan, &first, &packed), "margin %u: other bits", rows[i].margin);
            fcp_packed_free(&packed);
            fcp_plan_free(plan);
        }
    fcp_packed_free(&first);
}

/* Plans of a session may have other margins than its first one. That of the first one holds, because streams were made
 * with it, and results have the same bits. `add`: they are added; else the session is bound to each in turn. */
static void holds(standin *x, fcp_partition wanted, bool add, unsigned first) {
    const unsigned margins[] = {first, 0, 2};
    fcp_session_options options = {
        .size = sizeof options, .backend = "cuda", .timeout_s = 100, .graph_from = 2, .partition = wanted};
    enum { PLANS = sizeof margins / sizeof *margins };
    fcp_plan *plans[PLANS];
    fcp_session *session;
    fcp_shape shape;
    fcp_error err = {0};
    fcp_packed packed[PLANS] = {0};
    const unsigned share = first ? 2 : 3;
    for (int i = 0; i < PLANS; i++) plans[i] = with_margin(6, margins[i]);
    x->plan = plans[0];
    fcp_plan_shape(plans[0], &shape);
    cr_assert_eq(fcp_session_create(plans[0], &options, &session, &err), FCP_OK, "%s", err.message);
    for (int i = 0; i < PLANS; i++) {
        uint32_t number = 0;
        fcp_code code = !i ? FCP_OK : add ? fcp_session_add(session, plans[i], FCP_OWN_BATCH, &number, &err)
                                          : fcp_session_rebind(session, plans[i], &err);
        cr_assert_eq(code, FCP_OK, "margin %u: %s", margins[i], err.message);
        cr_assert_eq(fcp_session_select(session, number, &err), FCP_OK);
        x->plan = plans[i];
        x->most_blocks = 0;
        cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed[i], &err), FCP_OK);
        fcp_packed_draw(&shape, ALL, 3, &packed[i]);
        for (int n = 0; n < 2 * FCP_PASSES; n++)
            cr_assert_eq(fcp_session_run_packed(session, plans[i], (fcp_pass)(n % FCP_PASSES), &packed[i], NULL, &err),
                         FCP_OK, "%s; %s", err.message, x->trouble);
        cr_assert_eq(x->most_blocks, 2 * share, "margin %u after %u: %u blocks", margins[i], first, x->most_blocks);
        cr_assert(same(plans[i], &packed[0], &packed[i]), "margin %u after %u: other bits", margins[i], first);
    }
    fcp_session_free(session);
    for (int i = 0; i < PLANS; i++) {
        fcp_packed_free(&packed[i]);
        fcp_plan_free(plans[i]);
    }
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
}
Test(partition, first_margin_holds) {
    standin *x = stand();
    x->devices = 2;
    holds(x, FCP_PARTITION_AUTO, false, 1);
    holds(x, FCP_PARTITION_AUTO, true, 1);
    holds(x, FCP_PARTITION_GRID, false, 1);
    holds(x, FCP_PARTITION_AUTO, false, 0);
}

/* Attention has all SMs, and the session says why. Frees the plan. */
static void keeps_all(standin *x, fcp_plan *plan, const char *reason) {
    char why[400];
    fcp_packed packed = {0};
    cr_assert_eq(run_all(x, plan, FCP_PARTITION_AUTO, 1, &packed, why), FCP_PARTITION_NONE);
    cr_assert(strstr(why, reason), "%s", why);
    cr_assert_eq(x->most_blocks, 6);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

/* If no rank sends or receives, nothing is kept free. */
Test(partition, alone) {
    standin *x = stand();
    keeps_all(x, with_margin(1, 1), "no rank sends");
    keeps_all(x, plan_named("apart", "model { heads = 4; kv_heads = 4; head_dim = 16; dtype = bf16 }\n"
                            "cluster { nodes = 1; gpus = 2 }\nbatch { lengths = [256, 256] }\n"
                            "plan { mask = causal; block = 256; layout = contiguous; margin = 1; "
                            "passes = forward, backward }\n"), "no rank sends");
}

/* Between devices copy engines move, which leave attention all SMs. */
Test(partition, copy_engines) {
    standin *x = stand();
    x->devices = 3;
    keeps_all(x, with_margin(3, 1), "by multiprocessors");
    cr_assert_gt(x->peer_copies, 0);
}

/* The driver rounds a green context up, and attention uses what it got. */
Test(partition, rounded) {
    standin *x = stand();
    char why[400];
    fcp_packed packed = {0};
    fcp_plan *plan = with_margin(3, 2);
    x->alignment = 2;
    cr_assert_eq(run_all(x, plan, FCP_PARTITION_AUTO, 2, &packed, why), FCP_PARTITION_GREEN, "%s", why);
    cr_assert_eq(x->green_size, 2);
    cr_assert_eq(x->most_blocks, 4, "%u blocks", x->most_blocks);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

/* What can be wrong with green contexts. The grid alone then keeps the margin, and the session says why. A caller who
 * insists on them gets an error. */
static void goes_without(standin *x, const char *reason) {
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .partition = FCP_PARTITION_GREEN};
    fcp_session *session;
    fcp_error err = {0};
    fcp_packed packed = {0};
    char why[400];
    fcp_plan *plan = with_margin(6, 1);
    cr_assert_eq(run_all(x, plan, FCP_PARTITION_AUTO, 1, &packed, why), FCP_PARTITION_GRID, "%s", reason);
    cr_assert(strstr(why, reason), "'%s' has no '%s'", why, reason);
    cr_assert(x->in_green <= 2 && x->out_of_green, "%lu launches in green contexts", x->in_green);
    cr_assert_eq(x->most_blocks, 4);
    cr_assert_neq(fcp_session_create(plan, &options, &session, &err), FCP_OK);
    cr_assert(strstr(err.message, "attention cannot have green contexts") && strstr(err.message, reason), "%s",
              err.message);
    cr_assert_eq(x->live, 0);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}
Test(partition, probe) {
    standin *x = stand();
    x->devices = 2;
    x->green = GREEN_REFUSED;
    goes_without(x, "makes no green context of 2 multiprocessors");
    x->green = GREEN_NO_CAPTURE;
    goes_without(x, "in a probe on a green context: a launch");
    x->green = GREEN_WRONG;
    goes_without(x, "a replayed launch gives a wrong result");
    x->green = GREEN_WORKS;
    x->alignment = 3;
    goes_without(x, "sets 3 of its 3 multiprocessors apart, where 2 are asked for");
    x->alignment = 4;
    goes_without(x, "cannot set 2 of its 3 multiprocessors apart");
}
Test(partition, older_driver) {
    standin *x = stand_of("libcuda-12.0.so");
    x->devices = 2;
    goes_without(x, "12.5 or later has");
}

Test(partition, names) {
    fcp_partition p = FCP_PARTITION_AUTO;
    for (int i = FCP_PARTITION_AUTO; i <= FCP_PARTITION_GREEN; i++)
        cr_assert(fcp_partition_find(fcp_partition_name((fcp_partition)i), &p) && p == (fcp_partition)i);
    cr_assert(!fcp_partition_find("blue", &p) && p == FCP_PARTITION_GREEN);
    fcp_plan *plan = with_margin(2, 1);
    fcp_session *session;
    fcp_error err;
    const char *why;
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .partition = (fcp_partition)4};
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_E_ARGUMENT);
    options = (fcp_session_options){.size = sizeof(fcp_session_options), .backend = "host"};
    cr_assert_eq(fcp_session_create(plan, &options, &session, &err), FCP_OK);
    cr_assert_eq(fcp_session_partition(session, &why), FCP_PARTITION_NONE);
    fcp_session_free(session);
    fcp_plan_free(plan);
}
