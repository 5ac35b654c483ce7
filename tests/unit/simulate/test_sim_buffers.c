/* test_sim_buffers.c: tests that more buffers hardly make a plan slower. The predicted time, compared with the least of
 * the same plan with fewer buffers, is longer by at most
 *   1 %   with two or three buffers
 *   2 %   with four
 *   10 %  with six or eight
 * With four and more, results leave so late that the backward pass may take longer. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/amount.h"
#include "tests/support/plan_of.h"
#include "tests/support/predicted.h"

static uint64_t time_with(const char *lengths, unsigned inter, unsigned block, const char *strategy, unsigned coalesce,
                          unsigned buffers) {
    char source[500];
    snprintf(source, sizeof source,
             "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
             "cluster { nodes = 4; gpus = 8; gpu = h200; inter = %u GB/s }\nbatch { lengths = [%s] }\n"
             "plan { mask = causal; block = %u; margin = 12; strategy = %s(coalesce = %u, buffers = %u);\n"
             "passes = forward, backward }\n",
             inter, lengths, block, strategy, coalesce, buffers);
    fcp_plan *plan = plan_of(source);
    const uint64_t time = predicted(plan);
    fcp_plan_free(plan);
    return time;
}

/* Both passes together, as what one buffer more gains in one of them it may cost in the other. */
Test(buffers, more_are_not_slower) {
    static const char *const lengths[] = {"128K x 2, 40K x 6, 9000 x 20, 3000 x 60",
                                          "250K, 60K x 3, 20K x 12, 2000 x 90"},
                      *const strategies[] = {"fcp", "cad", "dcp"};
    static const struct {
        unsigned count, percent;
    } buffers[] = {{1, 0}, {2, 101}, {3, 101}, {4, 102}, {6, 110}, {8, 110}};
    const unsigned step = amount(5, 1);
    for (unsigned i = 0; i < 2 * 3 * 2 * 2 * 2; i += step) {
        const char *list = lengths[i % 2], *strategy = strategies[i / 2 % 3];
        const unsigned coalesce = i / 6 % 2 ? 16 : 4, block = i / 12 % 2 ? 4096 : 2048, inter = i / 24 ? 50 : 25;
        uint64_t least = UINT64_MAX;
        for (unsigned b = 0; b < sizeof buffers / sizeof *buffers; b++) {
            const uint64_t time = time_with(list, inter, block, strategy, coalesce, buffers[b].count);
            cr_expect(!b || time <= least / 100 * buffers[b].percent,
                      "%u buffers: %.2f ms, fewer: %.2f; %s, coalesce %u, blocks of %u, %u GB/s, [%s]",
                      buffers[b].count, (double)time * 1e-9, (double)least * 1e-9, strategy, coalesce, block, inter, list);
            if (time < least) least = time;
        }
    }
}
