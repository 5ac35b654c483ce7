/* test_rails.c: tests that blocks cross between nodes on rails, that is between ranks with the same number in their
 * nodes. Random trees of hops remain trees to the same readers, and the plans of all strategies keep to rails. */
#include "tests/support/planned.h"

#include "compiler/schedule/rails.h"

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

enum { RANKS = 48 };

/* A tree of legs to some ranks in random order, of which some do not need the block but pass it on. */
static uint32_t draw_legs(uint64_t *state, uint32_t ranks, uint32_t home, uint64_t *work, leg *legs) {
    uint32_t order[RANKS], count = 0, reached[RANKS], sends[RANKS] = {0};
    for (uint32_t r = 0; r < ranks; r++) order[r] = r;
    for (uint32_t r = ranks; r-- > 1;) {
        const uint32_t other = (uint32_t)draw(state, r + 1), kept = order[r];
        order[r] = order[other], order[other] = kept;
    }
    reached[0] = home;
    const uint32_t wanted = (uint32_t)draw(state, ranks);
    for (uint32_t i = 0; count < wanted && i < ranks; i++) {
        if (order[i] == home) continue;
        const uint32_t src = reached[draw(state, count + 1)];
        sends[src]++;
        legs[count] = (leg){src, order[i]};
        reached[++count] = order[i];
    }
    memset(work, 0, ranks * sizeof *work);
    for (uint32_t i = 0; i < count; i++) work[legs[i].dst] = !sends[legs[i].dst] || draw(state, 3);
    return count;
}

Test(rails, trees_stay_trees_to_the_same_readers) {
    uint64_t state = 5, detours = 0;
    for (int i = 0; i < 20000; i++) {
        const uint32_t gpus = 1 + (uint32_t)draw(&state, 6), ranks = gpus * (1 + (uint32_t)draw(&state, 8));
        const uint32_t home = (uint32_t)draw(&state, ranks);
        uint64_t work[RANKS], received[RANKS];
        uint32_t has[RANKS] = {0}, sends[RANKS] = {0};
        leg from[RANKS], out[RANKS];
        rails_rank known[RANKS] = {{0}};
        const uint32_t count = draw_legs(&state, ranks, home, work, from);
        for (uint32_t r = 0; r < ranks; r++) received[r] = draw(&state, 3);
        const need n = {.home = home, .work = work};
        const uint32_t legs = rails_keep(&n, gpus, from, count, known, received, out);
        bool off = false;
        has[home] = 1;
        for (uint32_t l = 0; l < legs; l++) {
            cr_assert(has[out[l].src], "a rank sends what it has");
            cr_assert(!has[out[l].dst]++, "no rank is reached twice");
            sends[out[l].src]++;
            if (out[l].src / gpus != out[l].dst / gpus) cr_assert_eq(out[l].src % gpus, out[l].dst % gpus);
        }
        for (uint32_t r = 0; r < ranks; r++) {
            if (r != home && work[r]) cr_assert(has[r], "every reader is reached");
            if (r != home && has[r] && !work[r]) cr_assert(sends[r], "who does not need it passes it on");
            cr_assert(!known[r].has && !known[r].wanted && !known[r].children, "nothing is left of this block");
        }
        for (uint32_t l = 0; l < count; l++)
            off |= from[l].src / gpus != from[l].dst / gpus && from[l].src % gpus != from[l].dst % gpus;
        detours += off;
        if (!off) { /* what stays on rails is not changed */
            cr_assert_eq(legs, count);
            cr_assert(!memcmp(out, from, count * sizeof *out));
        }
    }
    cr_assert(detours > 1000);
}

/* All that crosses between nodes, but for the reshuffle. */
static uint32_t count_crossing(const planned *x) {
    const uint32_t gpus = x->program->gpus;
    uint32_t crossing = 0;
    for (const hop *h = x->t.hops; h < x->t.hops + x->t.count; h++) {
        if (h->fabric != FCP_NET) continue;
        crossing++;
        cr_assert_eq(h->src % gpus, h->dst % gpus, "%u to %u", h->src, h->dst);
    }
    return crossing;
}

Test(rails, every_strategy_keeps_them) {
    static const char *const strategies[] = {"fcp", "fcp(split = off)", "ring", "zigzag", "cad", "cad(base = fcp)",
        "cad; relay = off", "dcp", "groups", "ulysses", "ulysses(inside = 2) + ring", "ulysses(inside = 4) + ring",
        "upipe(heads = 2, inside = 2) + ring", "ulysses(inside = 2) + fcp", "ulysses(inside = 2) + cad",
        "ulysses(inside = node) + dcp"};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"};
    for (size_t s = 0; s < sizeof strategies / sizeof *strategies; s++) {
        uint32_t crossing = 0;
        for (uint32_t i = 0; i < 6; i++) {
            char text[512];
            snprintf(text, sizeof text,
                     "model { heads = 8; kv_heads = 8; head_dim = 16 }\n"
                     "cluster { nodes = %u; gpus = %u; fabric = rail }\n"
                     "batch { lengths = [15000, 4000, 700 x 9, 130 x 20] }\n"
                     "plan { mask = causal; block = 256; layout = %s; strategy = %s; passes = forward, backward }\n",
                     i < 3 ? 2 : 4, i < 3 ? 4 : 2, layouts[i % 3], strategies[s]);
            planned x;
            plan_passes(&x, text, 0);
            crossing += count_crossing(&x);
            planned_free(&x);
        }
        cr_assert(crossing, "%s: nothing crosses", strategies[s]);
    }
}

/* How many ranks of other nodes receive keys that they do not read. *out_net, *out_off: tokens that leave their node on
 * their way from the caller, and their rail. */
static uint32_t count_idle(const char *fabric, const char *layout, uint64_t *out_net, uint64_t *out_off) {
    char text[512];
    uint32_t idle = 0;
    planned x;
    snprintf(text, sizeof text,
             "model { heads = 8; kv_heads = 8; head_dim = 16 }\ncluster { nodes = 4; gpus = 4; fabric = %s }\n"
             "batch { lengths = [20000, 9000, 4000, 700 x 9, 130 x 20] }\n"
             "plan { mask = causal; block = 512; layout = %s; strategy = fcp }\n", fabric, layout);
    plan_passes(&x, text, 0);
    bool *reads = calloc(x.t.count + 1, sizeof *reads);
    for (uint32_t t = 0; t < x.p.tile_count; t++)
        if (x.t.tile_kv[t] != FCP_NONE) reads[x.t.tile_kv[t]] = true;
    for (uint32_t h = 0; h < x.t.keys; h++) idle += x.t.hops[h].fabric == FCP_NET && !reads[h];
    *out_off = *out_net = 0;
    for (const bundle *b = x.r.bundles; b < x.r.bundles + x.r.count; b++)
        if (b->caller / 4 != b->home / 4) {
            *out_net += b->tokens;
            *out_off += b->caller % 4 != b->home % 4 ? b->tokens : 0;
        }
    free(reads);
    planned_free(&x);
    return idle;
}

Test(rails, ranks_are_numbered_for_them) {
    uint64_t net[2], off[2];
    cr_expect_leq(count_idle("rail", "planned", &net[0], &off[0]), 5, "17 where ranks keep their numbers");
    cr_expect_eq(count_idle("fat_tree", "planned", &net[0], &off[0]), 0, "there a reader receives");
    count_idle("fat_tree", "contiguous", &net[0], &off[0]);
    count_idle("rail", "contiguous", &net[1], &off[1]);
    cr_expect(10 * net[1] <= 9 * net[0], "%lu of %lu tokens leave their nodes", net[1], net[0]);
    cr_expect(10 * off[1] <= 7 * off[0], "%lu of %lu tokens leave their rails", off[1], off[0]);
}
