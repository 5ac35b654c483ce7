/* test_relays.c: tests the trees along which ranks pass on blocks of keys (relays.c): how many steps they take, what
 * each rank sends, and in which cases blocks go directly from their home instead. */
#include <criterion/criterion.h>

#include "compiler/schedule/ways.h"
#include "tests/support/planned.h"

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }

/* A sequence of which every token sees the first `keys` tokens. */
static void plan_head(planned *x, uint32_t nodes, uint32_t gpus, uint32_t tokens, uint32_t keys, const char *more) {
    char text[600];
    snprintf(text, sizeof text,
             "mask head(w) = k < w\nmodel { heads = 4; kv_heads = 2; head_dim = 64 }\n"
             "cluster { nodes = %u; gpus = %u; inter = 1 GB/s%s }\nbatch { lengths = [%u] }\n"
             "plan { mask = head(w = %u); block = 128; layout = contiguous; strategy = cad(tolerance = 1.0) }\n",
             nodes, gpus, more, tokens, keys);
    plan_passes(x, text, 0);
}

/* Checks that the hops of keys are trees, each node but the home's entered once, and on rails at the index of its
 * sender. Counts what each rank sends and receives over net. */
static void check_trees(const planned *x, uint32_t *sent, uint32_t *received) {
    const uint32_t gpus = x->program->gpus;
    memset(sent, 0, x->p.ranks * sizeof *sent);
    memset(received, 0, x->p.ranks * sizeof *received);
    for (uint32_t f = 0; f < x->t.keys; f++) {
        const hop *h = &x->t.hops[f];
        if (h->parent == FCP_NONE) {
            cr_assert_eq(h->src, x->home[h->block]);
        } else {
            cr_assert_lt(h->parent, f);
            cr_assert(x->t.hops[h->parent].block == h->block && x->t.hops[h->parent].dst == h->src);
        }
        for (uint32_t i = f; i-- > 0 && x->t.hops[i].block == h->block;)
            cr_assert(x->t.hops[i].dst != h->dst &&
                          (h->fabric == FCP_LOCAL || x->t.hops[i].dst / gpus != h->dst / gpus),
                      "block %u comes to node %u twice", h->block, h->dst / gpus);
        if (h->fabric == FCP_LOCAL) continue;
        sent[h->src]++, received[h->dst]++;
        if (x->program->topology == FCP_RAIL) cr_assert_eq(h->src % gpus, h->dst % gpus);
    }
}

static uint32_t most_of(const uint32_t *of, uint32_t count) {
    uint32_t most = 0;
    for (uint32_t i = 0; i < count; i++) most = later(most, of[i]);
    return most;
}

/* One block that all read: after each transfer twice as many have it. */
Test(relays, one_block_takes_the_logarithm) {
    uint32_t sent[64], received[64], free_at[64], has[64];
    for (uint32_t nodes = 2; nodes <= 64; nodes += 1 + nodes / 7) {
        planned x;
        uint32_t steps = 0, end = 0;
        plan_head(&x, nodes, 1, 128 * nodes, 128, "");
        check_trees(&x, sent, received);
        while (1u << steps < nodes) steps++;
        memset(free_at, 0, sizeof free_at), memset(has, 0, sizeof has);
        for (uint32_t f = 0; f < x.t.count; f++) { /* everybody sends in the order of hops, as soon as he can */
            const hop *h = &x.t.hops[f];
            free_at[h->src] = has[h->dst] = later(free_at[h->src], has[h->src]) + 1;
            end = later(end, has[h->dst]);
        }
        cr_expect_eq(x.t.count, nodes - 1);
        cr_expect_eq(end, steps, "%u nodes: %u steps", nodes, end);
        cr_expect_eq(x.t.trees, nodes > 2, "%u nodes", nodes);
        planned_free(&x);
    }
}

/* Many blocks of one home: it sends each about once, and the others share the rest. */
Test(relays, many_blocks_of_one_home) {
    enum { NODES = 16, BLOCKS = 16 };
    uint32_t sent[NODES], received[NODES];
    planned x;
    plan_head(&x, NODES, 1, NODES * BLOCKS * 128, BLOCKS * 128, "");
    check_trees(&x, sent, received);
    cr_expect(x.t.trees);
    cr_expect_eq(x.t.count, BLOCKS * (NODES - 1)); /* no rank is passed by that does not read */
    cr_expect_eq(most_of(received, NODES), BLOCKS);
    cr_expect_leq(most_of(sent, NODES), BLOCKS + 4, "%u of %u", most_of(sent, NODES), BLOCKS * (NODES - 1));
    planned_free(&x);
}

/* On rails every hop between nodes stays at its index; and a home's neighbours help where they may. */
Test(relays, nodes_of_several_ranks) {
    uint32_t sent[32], received[32];
    for (int rail = 0; rail < 2; rail++) {
        planned x;
        plan_head(&x, 8, 4, 32 * 256, 256, rail ? "; fabric = rail" : "");
        check_trees(&x, sent, received);
        cr_expect(x.t.trees);
        cr_expect_leq(most_of(sent, 32), rail ? 6 : 2, "%s: %u", rail ? "rail" : "fat tree", most_of(sent, 32));
        planned_free(&x);
    }
}

/* Where every rank sends as much as any receives, direct ways are as fast: nobody waits for a relay. So it is where the
 * plan says off; and where a fast network makes sending short beside computing. */
Test(relays, direct_where_nothing_is_gained) {
    static const char *const same[] = {
        "cluster { nodes = 8; inter = 1 GB/s }\nbatch { lengths = [8192] }\nplan { mask = causal; strategy = ring(send "
        "= direct) }\n",
        "cluster { nodes = 8; inter = 1 GB/s }\nbatch { lengths = [8192] }\nplan { mask = full; strategy = zigzag(send "
        "= direct) }\n",
        "cluster { nodes = 2; gpus = 4; inter = 1 GB/s }\nbatch { lengths = [8192] }\n"
        "plan { mask = window_both(l = 0, r = 4096); strategy = ring(send = direct) }\n",
        "mask head(w) = k < w\ncluster { nodes = 8; inter = 1 GB/s }\nbatch { lengths = [8192] }\n"
        "plan { mask = head(w = 1024); strategy = ring(send = direct); relay = off }\n",
        "mask head(w) = k < w\ncluster { nodes = 8; inter = 900 GB/s; latency = 1 ns }\nbatch { lengths = [1M] }\n"
        "plan { mask = head(w = 128K); strategy = ring(send = direct) }\n",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char text[600];
        planned x;
        snprintf(text, sizeof text, "model { heads = 64; kv_heads = 8; head_dim = 128 }\n%s", same[i]);
        plan_passes(&x, text, 0);
        cr_expect(!x.t.trees && !x.s.staged, "%s", same[i]);
        for (uint32_t f = 0; f < x.t.count; f++)
            cr_expect(x.t.hops[f].fabric == FCP_LOCAL || x.t.hops[f].parent == FCP_NONE, "%s", same[i]);
        planned_free(&x);
    }
}

/* The estimate that decides (ways.c): of the direct ways it has a least time for all trees; and what is kept saves a
 * twentieth of it. */
Test(relays, estimate) {
    static const char *const masks[] = {"causal", "lambda(sink = 300, window = 200)", "prefix(p = 500)", "head(w = 128)",
                                        "full", "shared_question(p = 20, answers = 4)"};
    unsigned trees = 0, all = 0;
    for (unsigned i = 0; i < 96; i++) {
        ways_time time[2];
        bool grown = false;
        for (int off = 0; off < 2; off++) {
            char text[600];
            planned x;
            snprintf(text, sizeof text,
                     "mask head(w) = k < w\nmodel { heads = 4; kv_heads = 2; head_dim = 64 }\n"
                     "cluster { nodes = %u; gpus = %u; inter = %s; fabric = %s }\nbatch { lengths = [%s] }\n"
                     "plan { mask = %s; block = 128; strategy = %s; relay = %s%s }\n",
                     3 + i % 7, 1 + i % 3, i % 2 ? "1 GB/s" : "100 MB/s", i % 5 ? "fat_tree" : "rail",
                     i % 3 ? "5000" : "2000 x 2, 300 x 7", masks[i % 6], i / 6 % 2 ? "ring(send = direct)" : "fcp",
                     off ? "off" : "auto", i % 8 ? "" : "; passes = forward");
            plan_passes(&x, text, 0);
            cr_assert_eq(ways_time_of(&x.at, &x.t, &time[off]), FCP_OK);
            if (!off) grown = x.t.trees;
            planned_free(&x);
        }
        all++, trees += grown;
        cr_expect_leq(time[1].least, time[1].all);
        cr_expect_leq(time[1].least, time[0].all, "no tree takes less");
        if (grown) cr_expect_leq(time[0].all, time[1].all - time[1].all / 20);
        else cr_expect_eq(time[0].all, time[1].all);
    }
    cr_expect(trees > 10 && trees < all - 10, "%u of %u", trees, all);
}
