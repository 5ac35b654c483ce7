/* test_exec.c: executes the planner's plans and compares the results with the definition of attention, for every
 * strategy, layout, number of buffers and shape of cluster. It also runs under the thread sanitizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "runtime/host/backend.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/judge_packed.h"
#include "tests/support/plain.h"
#include "tests/support/plan_of.h"

#ifdef PLAIN_TESTS
enum { CHECKED = 0 }; /* the thread sanitizer is slow, and other tests show it the reference's threads */
#else
enum { CHECKED = 1 };
#endif
enum { ALL = (1 << FCP_TENSORS) - 1, BOTH = 1 << FCP_FORWARD | 1 << FCP_BACKWARD };

/* Runs both passes `times` times: right, and the same bits every time. */
static void run_and_check(const char *text, int times) {
    fcp_plan *plan = plan_of(text);
    fcp_session *session = NULL;
    fcp_packed packed = {0}, first = {0};
    fcp_shape shape;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 2, .timeout_s = 60};
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_session_create(plan, &options, &session, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, &err) == FCP_OK &&
              fcp_packed_alloc(&shape, ALL, &first, &err) == FCP_OK);
    fcp_packed_draw(&shape, ALL, 23, &packed);
    for (int i = 0; i < times; i++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, &packed, NULL, &err) == FCP_OK, "%s: %s",
                      err.message, text);
            for (int t = 0; t < FCP_TENSORS; t++) {
                size_t bytes = shape.tokens * fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
                if (!(fcp_pass_outputs((fcp_pass)pass) >> t & 1)) continue;
                if (i == 0) memcpy(first.t[t], packed.t[t], bytes);
                else
                    cr_assert(memcmp(first.t[t], packed.t[t], bytes) == 0, "%s differs: %s",
                              fcp_tensor_name((fcp_tensor)t), text);
            }
        }
    if (CHECKED) judge_packed(plan, BOTH, &packed, text);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    fcp_packed_free(&first);
    fcp_plan_free(plan);
}

static void run(const char *dtype, int nodes, int gpus, const char *lengths, const char *mask, const char *strategy,
                const char *layout) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = %s }\n"
             "cluster { nodes = %d; gpus = %d }\n"
             "batch { lengths = [%s] }\n"
             "plan { mask = %s; block = 128; strategy = %s; passes = forward, backward; layout = %s }\n",
             dtype, nodes, gpus, lengths, mask, strategy, layout);
    run_and_check(text, 2);
}

Test(exec, layouts) {
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    for (int i = 0; i < 3; i++) run("fp32", 2, 2, "600, 300, 70, 30, 5", "causal", "fcp", layouts[i]);
}

Test(exec, strategies) {
    static const char *const strategies[] = {"ring", "zigzag", "fcp"};
    for (int i = 0; i < 3; i++) run("bf16", 1, 3, "500, 300, 64", "causal", strategies[i], "contiguous");
}

/* A last, small batch: some ranks own nothing, and wait for nobody. */
Test(exec, ranks_without_tokens) {
    static const char *const strategies[] = {"ring", "zigzag", "fcp"},
                             *const layouts[] = {"planned", "contiguous", "zigzag"},
                             *const lengths[] = {"80", "5", "1", "2:7, 3:1", "130, 1"};
    for (int i = 0; i < 15; i++) run("fp32", 2, 3, lengths[i % 5], "causal", strategies[i % 3], layouts[i / 5]);
}

Test(exec, buffers_and_coalescing) {
    static const char *const strategies[] = {"fcp(coalesce = 1, buffers = 1)", "fcp(coalesce = 1, buffers = 2)",
                                             "fcp(coalesce = 4, buffers = 1)", "fcp(coalesce = 2, buffers = 8)",
                                             "fcp(coalesce = 64, buffers = 3)"};
    for (int i = 0; i < 5; i++) run("fp32", 2, 2, "520, 256", "causal", strategies[i], "contiguous");
}

Test(exec, clusters) {
    static const int shapes[][2] = {{1, 1}, {1, 5}, {5, 1}, {3, 2}, {2, 4}};
    for (int i = 0; i < 5; i++)
        run("fp16", shapes[i][0], shapes[i][1], "300, 233, 140, 40 x 4", "full", "fcp", "zigzag");
}

Test(exec, masks) {
    static const char *const all[] = {"window(w = 200)", "lambda(sink = 10, window = 150)", "shared_question",
                                      "global_window(g = 20, w = 60)", "dilated(w = 300, d = 3)"};
    for (int i = 0; i < 5; i++) run("fp32", 2, 2, "450, 260, 40", all[i], "fcp", "contiguous");
}

Test(exec, many_ranks) {
    run("fp32", 16, 8, "2048, 1024, 700, 300 x 4, 130 x 20", "window(w = 300)", "fcp", "contiguous");
}

/* An arena has the bytes that the plan accounts for, and the rounding of its parts. */
Test(exec, arenas_are_what_plans_count) {
    fcp_plan *plan = plan_of("model { heads = 4; kv_heads = 2; head_dim = 24; dtype = bf16 }\n"
                          "cluster { nodes = 2; gpus = 2 }\n"
                          "batch { lengths = [1500, 300, 200, 70 x 3] }\n"
                          "plan { mask = causal; block = 256; passes = forward, backward }\n");
    const fcp_problem *p = plan->problem;
    fcp_homes *homes = fcp_homes_of(plan);
    uint64_t most = 0;
    cr_assert_not_null(homes);
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint64_t tokens[FCP_SIDES] = {0};
        for (uint64_t b = 0; b < plan->blocks_count; b++)
            for (int side = 0; plan->blocks[b].home == r && side < FCP_SIDES; side++)
                if (plan->blocks[b].holds >> side & 1) tokens[side] += plan->blocks[b].tokens;
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            fcp_slots s;
            fcp_slots_of(plan, (fcp_pass)pass, r, homes[r].homes, &s);
            uint64_t counted = fcp_rank_memory(p, (fcp_pass)pass, tokens[FCP_QUERIES], tokens[FCP_KEYS], s.count);
            size_t laid = fcp_arena_size(plan, (fcp_pass)pass, &homes[r], &s);
            cr_assert(laid >= counted && laid < counted + 16 * 64, "rank %u, pass %d: %zu and %lu", r, pass, laid,
                      (unsigned long)counted);
            if (counted > most) most = counted;
        }
    }
    cr_assert(most == plan->summary->memory_peak_bytes, "%lu and %lu", (unsigned long)most,
              (unsigned long)plan->summary->memory_peak_bytes);
    free(homes);
    fcp_plan_free(plan);
}
