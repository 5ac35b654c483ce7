/* test_phases.c: tests how much memory plans of ulysses and upipe hold, which compute some heads in each phase, against
 * the terms of Table 2 of the paper on upipe. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/simulate/phases.h"
#include "tests/support/plan_of.h"

Test(phases, part) {
    for (uint32_t g = 1; g <= 64; g++)
        for (uint32_t nu = 1; nu <= 64; nu++)
            cr_expect(fabs(sim_phase_part(g, nu, g, 1) - 1.0 / nu) < 1e-12); /* the paper's: 1 / nu for any g */
    cr_expect(fabs(sim_phase_part(1, 8, 1, 1) - 0.125) < 1e-12);     /* 64:64 heads on 8 ranks: 87.5 % less */
    cr_expect(fabs(sim_phase_part(1, 8, 8, 1) - 4.0 / 18) < 1e-12);  /* 64:8: 77.8 % less */
}

enum { HEAD_DIM = 512 };

/* value: how many numbers values have; negative: inside keys */
static sim_phases phases_of(uint32_t heads, uint32_t kv_heads, int value, const char *strategy, fcp_pass pass,
                            arena *memory, uint64_t *out_lse) {
    char text[500];
    sim_phases x;
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u; head_dim = %d; value_dim = %d; values = %s; dtype = bf16 }\ncluster { gpus = 8 }\n"
             "batch { lengths = [1024] }\nplan { mask = full; block = 128; layout = contiguous; strategy = %s }\n",
             heads, kv_heads, HEAD_DIM, abs(value), value < 0 ? "keys" : "own", strategy);
    fcp_plan *plan = plan_of(text);
    cr_assert_eq(sim_phases_of(plan, pass, memory, &x), FCP_OK);
    *out_lse = x.phase[0].of_class[FCP_O] / ((uint64_t)abs(value) * 2 + 8) * 8; /* LSE comes with O, and no part counts it */
    fcp_plan_free(plan);
    return x;
}

/* What plans hold is what is predicted of them: each phase equally much, forward, and so all together with one
 * buffer. */
Test(phases, plans_hold_what_the_fractions_say) {
    static const uint32_t shapes[][3] = {{64, 64, 8}, {64, 8, 8}, {64, 8, 16}, {64, 8, 32},
                                         {64, 16, 8}, {32, 4, 8}, {64, 2, 16}};
    static const int values[] = {HEAD_DIM, 256, -384};
    for (size_t i = 0; i < 3 * (sizeof shapes / sizeof *shapes); i++) {
        const int value = values[i % 3];
        const double key = (value < 0 ? HEAD_DIM : HEAD_DIM + value) / (double)(HEAD_DIM + abs(value));
        const uint32_t *shape = shapes[i / 3];
        const uint32_t h = shape[0], kv = shape[1], u = shape[2], group = h / kv;
        uint32_t each = group, at_once = group;
        uint64_t lse, lse_all;
        arena memory = {0};
        char strategy[40];
        snprintf(strategy, sizeof strategy, "upipe(heads = %u)", u);
        const sim_phases all = phases_of(h, kv, value, "ulysses", FCP_FORWARD, &memory, &lse_all);
        const sim_phases x = phases_of(h, kv, value, strategy, FCP_FORWARD, &memory, &lse);
        while (u / 8 % each) each--; /* the query heads of a KV head that a rank has at a time */
        while (h / 8 % at_once) at_once--;
        cr_assert_eq(x.count, h / u);
        cr_assert_eq(all.count, 1);
        for (uint32_t p = 0; p < x.count; p++) {
            const double part = (double)(x.phase[p].bytes - lse) / (double)(all.phase[0].bytes - lse_all);
            cr_expect(fabs(part - sim_phase_part(each, x.count, at_once, key)) < 1e-9,
                      "%u:%u, values %d, %u at a time, phase %u: %g", h, kv, value, u, p, part);
            if (value == HEAD_DIM) { /* in the paper's unit, one rank's tokens times all query heads: gamma / nu, 1 / nu */
                const double unit = 1024.0 / 8 * h * HEAD_DIM * 2 * 7 / 8, gamma = 1 + 2.0 / each; /* of 7 ranks in 8 */
                const uint64_t *of = x.phase[p].of_class;
                cr_expect(fabs((double)(of[FCP_Q] + of[FCP_KV]) / unit - gamma / x.count) < 1e-9);
                cr_expect(fabs((double)(of[FCP_O] - lse) / unit - 1.0 / x.count) < 1e-9);
            }
            cr_expect_eq(x.phase[p].first_stage, p + 1);
            cr_expect_eq(x.phase[p].last_stage, p + 1);
        }
        cr_expect_eq(x.peak, x.phase[0].bytes);
        cr_expect_eq(x.phase[0].of_class[FCP_STATE], 0);
        arena_free(&memory);
    }
}

/* With more buffers, slots of more phases are held. */
Test(phases, buffers_hold_more_phases) {
    arena memory = {0};
    uint64_t lse;
    const sim_phases one = phases_of(64, 64, HEAD_DIM, "upipe(heads = 8)", FCP_FORWARD, &memory, &lse);
    const sim_phases two = phases_of(64, 64, HEAD_DIM, "upipe(heads = 8, buffers = 2)", FCP_FORWARD, &memory, &lse);
    cr_expect_eq(two.phase[0].bytes, one.phase[0].bytes);
    cr_expect_eq(two.peak, 2 * one.peak);
    const sim_phases back = phases_of(64, 64, HEAD_DIM, "upipe(heads = 8)", FCP_BACKWARD, &memory, &lse);
    cr_expect_eq(back.count, 8);
    cr_expect_gt(back.phase[3].of_class[FCP_DKV], 0);
    cr_expect_gt(back.phase[3].of_class[FCP_DQW], 0);
    arena_free(&memory);
}
