/* test_micro_batches.c: tests how batches are split into micro-batches. Small sets of items are compared with all ways
 * to split them. Every split has each item once and keeps the cap; with `groups`, each micro-batch can be planned. */
#include <criterion/criterion.h>
#include <string.h>
#include <time.h>

#include "compiler/split/split.h"
#include "tests/support/plan_of.h"

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

enum { MOST = 9 };

/* The costliest bin of a split, or UINT64_MAX if a bin exceeds the cap. */
static uint64_t costliest(const split_item *x, uint32_t count, uint64_t cap, const uint32_t *of, uint32_t bins) {
    uint64_t tokens[MOST] = {0}, cost[MOST] = {0}, most = 0;
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_lt(of[i], bins);
        tokens[of[i]] += x[i].tokens;
        cost[of[i]] += x[i].cost;
    }
    for (uint32_t b = 0; b < bins; b++) {
        if (tokens[b] > cap) return UINT64_MAX;
        if (cost[b] > most) most = cost[b];
    }
    return most;
}

/* The least cost of the costliest of so many bins, over all ways to fill them. */
static uint64_t brute(const split_item *x, uint32_t count, uint64_t cap, uint32_t *of, uint32_t at, uint32_t bins,
                      bool in_order) {
    if (at == count) return costliest(x, count, cap, of, bins);
    uint64_t best = UINT64_MAX;
    const uint32_t first = in_order && at ? of[at - 1] : 0, end = in_order ? first + 1 : bins - 1;
    for (of[at] = first; of[at] <= end && of[at] < bins; of[at]++) {
        const uint64_t found = brute(x, count, cap, of, at + 1, bins, in_order);
        if (found < best) best = found;
    }
    return best;
}

Test(micro_batches, small_ones_are_near_the_best_of_all) {
    uint64_t state = 3;
    uint32_t more = 0;
    for (int i = 0; i < 600; i++) {
        split_item x[MOST];
        uint32_t of[MOST], again[MOST], bins, count = 1 + (uint32_t)draw(&state, MOST - 1);
        const bool in_order = i % 2;
        split_how how = {.cap = 100 + draw(&state, 200), .least = (uint32_t)draw(&state, 4), .keep_order = in_order};
        for (uint32_t k = 0; k < count; k++) {
            x[k].tokens = 1 + draw(&state, 100);
            x[k].cost = draw(&state, 2) ? x[k].tokens * x[k].tokens : draw(&state, 500);
        }
        arena scratch = {0};
        cr_assert_eq(split_items(x, count, &how, &scratch, of, &bins), FCP_OK);
        const uint64_t found = costliest(x, count, how.cap, of, bins);
        cr_assert_neq(found, UINT64_MAX, "the cap holds");
        uint32_t least = how.least < count ? how.least : count;
        if (!least) least = 1;
        while (brute(x, count, how.cap, again, 0, least, in_order) == UINT64_MAX) least++;
        if (in_order) { /* the least number, or what was asked for; then the best there is */
            for (uint32_t k = 1; k < count; k++) cr_assert(of[k] == of[k - 1] || of[k] == of[k - 1] + 1);
            cr_assert_leq(bins, least);
            cr_assert_eq(found, brute(x, count, how.cap, again, 0, least, true), "drawn %d", i);
        } else {
            cr_assert_leq(bins, least + 2, "drawn %d", i);
            more += bins > least;
        }
        arena_free(&scratch);
    }
    cr_assert_lt(more, 75, "of 300 %u have more bins than they need", more);
}

Test(micro_batches, without_a_tight_cap_the_costliest_is_within_a_third) {
    uint64_t state = 9;
    for (int i = 0; i < 200; i++) {
        split_item x[MOST];
        uint32_t of[MOST], again[MOST], bins;
        const split_how how = {.cap = 1000, .least = 2 + (uint32_t)draw(&state, 3)};
        for (uint32_t k = 0; k < MOST; k++) x[k] = (split_item){1, 1 + draw(&state, 1000)};
        arena scratch = {0};
        cr_assert_eq(split_items(x, MOST, &how, &scratch, of, &bins), FCP_OK);
        cr_assert_eq(bins, how.least);
        cr_assert_leq(3 * costliest(x, MOST, how.cap, of, bins), 4 * brute(x, MOST, 1000, again, 0, bins, false));
        arena_free(&scratch);
    }
}

Test(micro_batches, an_item_that_is_too_large_is_named) {
    const split_item x[] = {{10, 1}, {101, 1}};
    uint32_t of[2], bins;
    arena scratch = {0};
    cr_assert_eq(split_items(x, 2, &(split_how){.cap = 100}, &scratch, of, &bins), FCP_E_VALUE);
    cr_assert_eq(bins, 1);
    arena_free(&scratch);
}

/* A batch of many sequences: each micro-batch can be planned by `groups`, and has about as much work as the others. */
Test(micro_batches, each_can_be_planned) {
    fcpc_program *program = program_named(
        "t.fcp", "model { heads = 8; kv_heads = 8; linear = 0.33 us }\ncluster { nodes = 2; gpus = 8; gpu = h200 }\n"
                 "batch { lengths = lognormal(median = 2K, sigma = 1.6, max = 200K, tokens = 4M, seed = 1) }\n"
                 "plan { mask = causal; block = 4K; strategy = groups(tokens = 32K) }\n");
    size_t count;
    const uint64_t *lengths = fcpc_program_lengths(program, &count);
    uint32_t *of = malloc(count * sizeof *of), made;
    double *seconds = malloc(count * sizeof *seconds), most = 0, least = 1e9;
    uint64_t *part = malloc(count * sizeof *part);
    for (int in_order = 0; in_order < 2; in_order++) {
        const fcpc_batch own = FCPC_BATCH_INIT;
        const fcpc_split_options how = {.size = sizeof how, .keep_order = in_order};
        cr_assert_eq(fcpc_split_batch(program, &own, &how, NULL, NULL, of, seconds, &made), FCP_OK);
        cr_assert(made >= 8 && made <= 12, "%u", made);
        for (uint32_t m = 0; m < made; m++) {
            size_t n = 0;
            fcp_plan *plan = NULL;
            for (size_t s = 0; s < count; s++)
                if (of[s] == m) part[n++] = lengths[s];
            cr_assert_gt(n, 0);
            cr_assert_eq(fcpc_plan(program, part, n, NULL, NULL, NULL, &plan), FCP_OK);
            fcp_plan_free(plan);
            if (!in_order && seconds[m] > most) most = seconds[m];
            if (!in_order && seconds[m] < least) least = seconds[m];
        }
    }
    cr_assert_lt(most, 1.3 * least, "%g and %g", most, least);
    const fcpc_split_options small = {.size = sizeof small, .tokens = 1000};
    cr_assert_eq(fcpc_split_batch(program, NULL, &small, NULL, NULL, of, seconds, &made), FCP_E_VALUE);
    free(of), free(seconds), free(part);
    fcpc_program_free(program);
}

/* With a strategy that has no cap of its own a rank holds 65536 tokens. */
Test(micro_batches, any_strategy) {
    fcpc_program *program =
        program_named("t.fcp", "cluster { gpus = 2 }\nbatch { lengths = [70000, 60000, 1000 x 90] }\n"
                               "plan { mask = causal; block = 1K; strategy = fcp }\n");
    uint32_t of[92], made;
    cr_assert_eq(fcpc_split_batch(program, NULL, NULL, NULL, NULL, of, NULL, &made), FCP_OK);
    cr_assert_eq(made, 2);
    cr_assert_neq(of[0], of[1]);
    fcpc_program_free(program);
}

/* 100,000 sequences are split in less time than a step takes to begin. */
Test(micro_batches, a_large_batch_is_split_soon) {
    enum { COUNT = 100000 };
    split_item *x = malloc(COUNT * sizeof *x);
    uint32_t *of = malloc(COUNT * sizeof *of), bins;
    uint64_t state = 1;
    for (int i = 0; i < COUNT; i++) {
        x[i].tokens = 1 + draw(&state, draw(&state, 10) ? 4000 : 100000);
        x[i].cost = x[i].tokens * x[i].tokens;
    }
    arena scratch = {0};
    const clock_t start = clock();
    cr_assert_eq(split_items(x, COUNT, &(split_how){.cap = 64 * 65536}, &scratch, of, &bins), FCP_OK);
    cr_assert_lt(clock() - start, CLOCKS_PER_SEC / 2);
    arena_free(&scratch);
    free(x), free(of);
}
