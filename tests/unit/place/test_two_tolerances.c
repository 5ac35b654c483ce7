/* test_two_tolerances.c: dcp with a tolerance between nodes and another one inside, on random batches: both are kept,
 * for masks and layouts of all kinds; and a wide tolerance between nodes saves bytes between them. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/amount.h"
#include "tests/support/planned.h"

enum { RANKS = 24 };

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

/* A few long sequences and many short ones. */
static void put_lengths(uint64_t *state, char *out, size_t size) {
    size_t at = (size_t)snprintf(out, size, "[%lu", 9000 + draw(state, 30000));
    for (uint64_t n = 3 + draw(state, 12); n--;)
        at += (size_t)snprintf(out + at, size - at, ", %lu", 1 + draw(state, draw(state, 3) ? 2500 : 16000));
    snprintf(out + at, size - at, "]");
}

/* Is `most` no more than (1 + epsilon / 1000) times the mean of `sum` over `parts`, or than the mean rounded up? */
static bool keeps(uint64_t most, uint64_t sum, uint64_t parts, uint64_t epsilon) {
    return most <= (sum + parts - 1) / parts || most * parts * 1000 <= sum * (1000 + epsilon);
}

Test(two_tolerances, both_are_kept) {
    static const char *const masks[] = {"causal", "lambda(sink = 64, window = 2048)", "full",
                                        "causal_blockwise(b = 256, w = 2)", "shared_question(p = 20, answers = 4)"},
                             *const layouts[] = {"planned", "contiguous", "zigzag", "contiguous(group = 4)"};
    static const struct { uint32_t nodes, gpus; } shapes[] = {{2, 4}, {4, 2}, {3, 8}, {8, 1}, {1, 8}, {2, 1}};
    static const uint64_t between[] = {400, 100, 30, 2000};
    uint64_t state = 7;
    for (unsigned i = 0; i < amount(30, 120); i++) {
        char lengths[400], text[900];
        planned x;
        put_lengths(&state, lengths, sizeof lengths);
        const uint32_t nodes = shapes[i % 6].nodes, gpus = shapes[i % 6].gpus;
        const uint64_t wide = between[draw(&state, 4)], narrow = draw(&state, 2) ? 100 : 50;
        const char *mask = masks[draw(&state, 5)], *layout = layouts[draw(&state, gpus * nodes % 4 ? 3 : 4)];
        snprintf(
            text, sizeof text,
            "cluster { nodes = %u; gpus = %u }\nbatch { lengths = %s }\nplan { mask = %s; block = 128; layout = %s; "
            "passes = forward; strategy = dcp(epsilon_compute = 0.%03lu, epsilon_nodes = %lu.%03lu) }\n",
            nodes, gpus, lengths, mask, layout, narrow, wide / 1000, wide % 1000);
        plan_passes(&x, text, 0);
        uint64_t load[RANKS] = {0}, held[RANKS] = {0}, node[RANKS] = {0}, most_node = 0, most_held = 0;
        for (uint32_t b = 0; b < x.p.block_count; b++) held[x.home[b]] += x.p.blocks[b].tokens;
        for (uint32_t t = 0; t < x.p.tile_count; t++) load[placement_exec(x.at.placement, t)] += x.p.tile_pairs[t];
        for (uint32_t r = 0; r < nodes * gpus; r++) {
            node[r / gpus] += load[r];
            most_held = held[r] > most_held ? held[r] : most_held;
        }
        for (uint32_t v = 0; v < nodes; v++) {
            uint64_t most = 0;
            for (uint32_t r = v * gpus; r < (v + 1) * gpus; r++) most = load[r] > most ? load[r] : most;
            cr_expect(keeps(most, node[v], gpus, narrow), "%s: node %u: %lu of %lu", text, v, most, node[v]);
            most_node = node[v] > most_node ? node[v] : most_node;
        }
        cr_expect(keeps(most_node, x.p.pairs, nodes, wide), "%s: nodes: %lu of %lu", text, most_node, x.p.pairs);
        if (layout == layouts[0]) /* a tenth over the mean, or a block */
            cr_expect(keeps(most_held, x.p.tokens, nodes * gpus, 100) ||
                          most_held <= (x.p.tokens + nodes * gpus - 1) / (nodes * gpus) + 128,
                      "%s: tokens: %lu", text, most_held);
        planned_free(&x);
    }
}

/* One long sequence and a few others: what a node may have more need not cross to another. On one node, the tolerance
 * between nodes has no effect; without it, a rank is measured by the mean of all ranks. */
Test(two_tolerances, a_wide_one_between_nodes_saves_bytes_between_them) {
    uint64_t bytes[3];
    static const char *const strategies[] = {"epsilon_nodes = 0.4", "epsilon_nodes = 0.02", "epsilon_nodes = off"};
    for (int nodes = 1; nodes <= 4; nodes += 3) {
        for (int i = 0; i < 3; i++) {
            char text[400];
            snprintf(text, sizeof text,
                     "cluster { nodes = %d; gpus = 4 }\nbatch { lengths = [40000, 30000, 20000, 9000 x 3, 2000 x 8] }\n"
                     "plan { mask = causal; block = 1K; layout = contiguous; passes = forward; strategy = dcp(%s) }\n",
                     nodes, strategies[i]);
            fcpc_program *program = parse_text(text, NULL);
            fcp_plan *plan = NULL;
            cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, NULL, NULL, &plan), FCP_OK);
            bytes[i] = nodes > 1 ? plan->summary->bytes_inter_node : plan->summary->bytes_total;
            if (i == 2) cr_expect_leq(plan->summary->pairs_max_rank * nodes * 40, plan->summary->pairs * 11);
            fcp_plan_free(plan);
            fcpc_program_free(program);
        }
        if (nodes == 1) cr_expect(bytes[0] == bytes[1] && bytes[0] == bytes[2]);
        else cr_expect(bytes[0] < bytes[1] && bytes[0] < bytes[2], "%lu, %lu, %lu", bytes[0], bytes[1], bytes[2]);
    }
}
