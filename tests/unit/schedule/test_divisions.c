/* test_divisions.c: dcp computes in as many stages as `divisions` says, also where work moves and blocks are passed on;
 * only more hops in a row than that need more. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/planned.h"

/* Stages in which a tile runs; *hops: the longest way. */
static uint32_t stages_that_compute(const planned *x, uint32_t *hops) {
    uint32_t stages = 0, *way = calloc(x->t.count + (size_t)1, sizeof *way);
    cr_assert(way);
    for (uint32_t v = 0; v < x->s.visit_count; v++)
        if (x->s.visit_stage[v] >= stages) stages = x->s.visit_stage[v] + 1;
    *hops = 0;
    for (uint32_t f = 0; f < x->t.count; f++) {
        way[f] = x->t.hops[f].parent == FCP_NONE ? 1 : way[x->t.hops[f].parent] + 1;
        if (way[f] > *hops) *hops = way[f];
    }
    free(way);
    return stages;
}

Test(divisions, are_as_many_stages_as_they_say) {
    static const char *const batches[] = {"[60000, 500 x 60]", "[60000, 20000, 3000 x 12, 500 x 20]",
                                          "[9000 x 7, 200 x 30]"},
                             *const masks[] = {"causal", "lambda(sink = 4096, window = 1024)", "full"},
                             *const layouts[] = {"contiguous", "zigzag", "planned"};
    static const struct { uint32_t nodes, gpus; } shapes[] = {{1, 8}, {2, 4}, {8, 2}};
    static const uint32_t divisions[] = {2, 3, 4, 7, 12};
    uint32_t exact = 0, relayed = 0;
    for (uint32_t i = 0; i < 3 * 3 * 3 * 5; i++) {
        const uint32_t nodes = shapes[i % 3].nodes, stated = divisions[i / 27];
        char text[400];
        planned x;
        snprintf(
            text, sizeof text,
            "cluster { nodes = %u; gpus = %u; inter = 5 GB/s }\nbatch { lengths = %s }\nplan { mask = %s; block = 512; "
            "layout = %s; strategy = dcp(divisions = %u); passes = forward, backward }\n",
            nodes, shapes[i % 3].gpus, batches[i / 3 % 3], masks[i / 9 % 3], layouts[(i + i / 27) % 3], stated);
        plan_passes(&x, text, 0);
        uint32_t hops, stages = stages_that_compute(&x, &hops);
        const uint32_t most = hops + 1 > stated ? hops + 1 : stated;
        cr_expect_leq(stages, most, "%s: %u stages, ways of %u hops", text, stages, hops);
        if (hops >= stated) cr_expect_leq(hops, 3, "%s: %u hops", text, hops); /* to one rank, over net, in the node */
        relayed += hops > 1;
        exact += stages == stated;
        planned_free(&x);
    }
    cr_expect_gt(exact, 60, "%u", exact);
    cr_expect_gt(relayed, 60, "%u", relayed);
}
