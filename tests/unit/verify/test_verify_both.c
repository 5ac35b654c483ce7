/* test_verify_both.c: tests that the verifier's report on a large plan does not depend on threads.
 *
 * The verifier does its work in two pieces. Here these run in every order (support/orders.h). In each order a right
 * plan is accepted, and damage to it is reported in the same words.
 */
#include "tests/support/amount.h"
#include "tests/support/orders.h"
#include "tests/support/plan_damage.h"
#include "tests/support/plan_of.h"

static const char *const programs[] = {
    "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\n"
    "batch { lengths = [9000, 20000 x 3, 700 x 150] }\ncluster { nodes = 4; gpus = 8 }\n"
    "plan { mask = causal; block = 128; strategy = fcp; layout = contiguous; passes = forward, backward }",
    "model { heads = 8; kv_heads = 2; head_dim = 16; dtype = bf16 }\n"
    "batch { lengths = [9000, 20000 x 3, 700 x 150] }\ncluster { nodes = 4; gpus = 8 }\n"
    "plan { mask = causal; block = 128; strategy = cad; layout = contiguous; passes = forward, backward }",
    "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\n"
    "batch { lengths = [9000, 20000 x 6, 700 x 150] }\ncluster { nodes = 4; gpus = 8 }\n"
    "plan { mask = causal; block = 128; strategy = fcp; layout = zigzag; passes = forward }"};

/* What is said of t in each order: the same. */
static void judge_in_all(tables *t, const char *what) {
    fcp_error said[ORDERS] = {{0}};
    for (order = 0; order < ORDERS; order++) {
        judge(t, &said[order]);
        cr_expect_eq(said[order].code, said[0].code, "%s, order %d", what, (int)order);
        cr_expect_str_eq(said[order].message, said[0].message, "%s, order %d", what, (int)order);
    }
    order = FIRST_FIRST;
}

Test(verify_both, the_same_is_said_in_every_order) {
    enum { KINDS = sizeof kinds / sizeof *kinds };
    for (size_t n = 0; n < sizeof programs / sizeof *programs; n++) {
        fcp_plan *plan = plan_of(programs[n]);
        tables whole;
        tables_copy(&whole, plan);
        tables_plan(&whole);
        cr_assert_geq(plan->instrs_count + plan->transfers_count, FCP_BOTH_FROM);
        asked = 0;
        judge_in_all(&whole, "undamaged");
        /* the check has two pieces of work, and the proof twice two, or once where there is one pass */
        cr_expect_eq(asked, (plan->problem->passes & 1u << FCP_BACKWARD ? 3 : 2) * ORDERS);
        for (int k = 0; k < KINDS; k++) {
            if (amount((size_t)k % 3 != n, false)) continue; /* quickly: each damage to one of the plans */
            tables t;
            draw d = {n * 1000 + (uint64_t)k, 0};
            tables_copy(&t, &whole.plan);
            if (kinds[k].apply(&t, &d)) judge_in_all(&t, kinds[k].name);
            tables_free(&t);
        }
        tables_free(&whole);
        fcp_plan_free(plan);
    }
}
