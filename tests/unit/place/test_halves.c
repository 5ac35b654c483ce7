/* test_halves.c: with pingpong a batch is divided into two halves. The first needs no key of the second, and every rank
 * has about half of its work in each. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/planned.h"

/* Plans a batch and checks that rows of the first half see no key of the second. Returns by how many percent of its
 * work the worst rank is off from two equal halves. */
static double check(const char *source) {
    planned x;
    plan_to_placement(&x, source, NULL);
    const problem *p = &x.p;
    const uint64_t *half = x.at.second_half;
    uint64_t(*work)[2] = calloc(p->ranks, sizeof *work);
    double worst = 0;
    cr_assert(half && work);
    for (uint32_t t = 0; t < p->tile_count; t++) {
        const uint32_t rank = placement_exec(x.at.placement, t);
        int side = -1;
        for (uint32_t i = p->tile_part[t]; i < p->tile_part[t + 1]; i++) {
            const fcp_piece *rows = &p->pieces[p->parts[i].q_piece], *keys = &p->pieces[p->parts[i].k_piece];
            const int here = rows->start >= half[rows->sequence];
            cr_assert(side < 0 || side == here, "a block has rows of both halves: %s", source);
            cr_assert(here || keys->start + keys->length <= half[keys->sequence], "%s", source);
            side = here;
        }
        work[rank][side] += p->tile_pairs[t];
    }
    for (uint32_t r = 0; r < p->ranks; r++) {
        const double all = (double)(work[r][0] + work[r][1]), off = 100 * ((double)work[r][0] / all - 0.5);
        if (all > 0 && (off < 0 ? -off : off) > worst) worst = off < 0 ? -off : off;
    }
    free(work);
    planned_free(&x);
    return worst;
}

Test(halves, every_rank_has_half) {
    static const char *const masks[] = {"causal", "window(w = 3000)", "lambda(sink = 64, window = 4096)",
                                        "causal_blockwise(b = 256, w = 2)"};
    static const char *const lengths[] = {"lognormal(median = 2K, sigma = 1.2, tokens = %uK)",
                                          "lognormal(median = 4K, sigma = 1.6, tokens = %uK, seed = 2)",
                                          "lognormal(median = 700, sigma = 0.5, tokens = %uK, seed = 3)"};
    static const char *const layouts[] = {"contiguous", "zigzag"};
    char batch[100], source[700];
    for (unsigned i = 0; i < 24; i++) {
        const unsigned nodes = 1 + i % 4;
        snprintf(batch, sizeof batch, lengths[i % 3], 4 * nodes * 16);
        snprintf(source, sizeof source,
                 "model { heads = 32; kv_heads = 8 }\ncluster { nodes = %u; gpus = 4 }\nbatch { lengths = %s }\n"
                 "plan { mask = %s; layout = %s; block = 512; strategy = cad(pingpong = true) }\n",
                 nodes, batch, masks[i / 3 % 4], layouts[i / 12]);
        const double off = check(source);
        cr_expect_leq(off, 5, "%.2f %% of its work off half: %s", off, source);
    }
}

/* A mask that shows later keys lets no sequence be cut; whole ones are still divided. */
Test(halves, what_cannot_be_cut_stays_whole) {
    planned x;
    plan_to_placement(&x,
                      "cluster { gpus = 2 }\nbatch { lengths = [4000, 2000, 2000] }\n"
                      "plan { mask = full; layout = contiguous; strategy = cad(pingpong = true) }\n",
                      NULL);
    for (uint32_t s = 0; s < x.p.sequences; s++)
        cr_expect(x.at.second_half[s] == 0 || x.at.second_half[s] == x.p.queries[s]);
    cr_expect_neq(!x.at.second_half[0], !x.at.second_half[1]);
    cr_expect_eq(!x.at.second_half[1], !x.at.second_half[2]);
    planned_free(&x);
}
