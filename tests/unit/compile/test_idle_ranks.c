/* test_idle_ranks.c: tests that no rank stays without tokens in silence: either the plan gives every rank some, or a
 * warning says how many get none, or the program itself said so (servers). And block = auto gives every rank some where
 * the batch has enough and the plan is nearly as fast. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/strategies.h"
#include "runtime/plan/plan.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"

/* Plans a program. NULL: it is refused, which strategies do whose heads do not divide, for example. *out_said receives
 * the warnings; the caller frees it. */
static fcp_plan *plan_text(const char *text, char **out_said) {
    fcp_plan *plan = NULL;
    return plan_try("test.fcp", text, NULL, 0, &plan, out_said) ? NULL : plan;
}

/* How many ranks hold no tokens and are no block's home. */
static uint32_t without_tokens(const fcp_plan *plan) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        bool has = fcp_plan_rank_queries(plan, r) || fcp_plan_rank_keys(plan, r);
        for (uint64_t b = 0; b < plan->blocks_count; b++) has = has || plan->blocks[b].home == r;
        count += !has;
    }
    return count;
}

/* A program of the test below, with these keys of plan. */
static fcp_plan *plan_case(const char *ranks, const char *lengths, int by, const char *more, char text[512],
                           char **out_said) {
    snprintf(text, 512,
             "model { heads = 8; head_dim = 16 }\ncluster { %s }\nbatch { lengths = [%s] }\n"
             "plan { mask = causal; strategy = %s; %s }\n",
             ranks, lengths, strategy_names[by], more);
    return plan_text(text, out_said);
}

/* If the warning names a setting that gives every rank tokens, the setting does. */
static void follow_hint(const char *ranks, const char *lengths, int by, const char *said) {
    const char *block = strstr(said, "with plan.block = "), *equal = strstr(said, "with plan.tokens = equal every");
    char text[512], more[64] = "tokens = equal", *now;
    if (!block && !equal) return;
    if (block) snprintf(more, sizeof more, "block = %lu", strtoul(block + strlen("with plan.block = "), NULL, 10));
    fcp_plan *plan = plan_case(ranks, lengths, by, more, text, &now);
    cr_expect(plan && !without_tokens(plan), "%s%s%s", text, said, now);
    fcp_plan_free(plan);
    free(now);
}

Test(idle_ranks, every_rank_has_tokens_or_there_is_a_warning) {
    static const char *const lengths[] = {"1",       "3",     "7",    "100",   "130",   "300",  "1000",     "64, 64",
                                          "100 x 6", "1 x 9", "2000", "1:300", "300:0", "0, 5", "40:900, 3"};
    static const char *const ranks[] = {"gpus = 2", "gpus = 4", "nodes = 2; gpus = 2", "nodes = 2; gpus = 4"};
    static const char *const more[] = {"", "layout = contiguous", "layout = zigzag", "block = 512", "block = 16"};
    uint32_t planned = 0, idle = 0, run = 0;
    for (int by = 0; by < STRATEGY_ANY; by++)
        for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++)
            for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
                for (size_t m = 0; m < sizeof more / sizeof *more; m++) {
                    char text[512], *said;
                    if (run++ % (uint32_t)amount(7, 1)) continue;
                    fcp_plan *plan = plan_case(ranks[r], lengths[n], by, more[m], text, &said);
                    if (plan) {
                        const uint32_t without = without_tokens(plan);
                        planned++;
                        idle += without > 0;
                        cr_expect(!without || strstr(said, "no tokens"),
                                  "%u ranks have no tokens, and nobody says so\n%s%s", without, text, said);
                        if (m != 1 && m != 2) follow_hint(ranks[r], lengths[n], by, said);
                    }
                    fcp_plan_free(plan);
                    free(said);
                }
    cr_assert(planned > run / (uint32_t)amount(7, 1) / 3 && idle > 20, "%u planned, %u idle", planned, idle);
}

Test(idle_ranks, that_are_servers_are_asked_for) {
    char *said;
    fcp_plan *plan = plan_text("cluster { gpus = 4 }\nbatch { lengths = [4000] }\n"
                               "plan { mask = causal; strategy = cad(servers = 2); layout = contiguous }\n",
                               &said);
    cr_assert_not_null(plan, "%s", said);
    cr_assert_eq(without_tokens(plan), 2);
    cr_assert(!strstr(said, "no tokens"), "%s", said);
    fcp_plan_free(plan);
    free(said);
}

/* The size of blocks is left open. */
Test(idle_ranks, are_few_with_blocks_of_an_open_size) {
    static const struct {
        unsigned tokens, ranks, without;
        const char *hint;
    } cases[] = {
        {1000, 4, 0, NULL},
        {600, 4, 0, NULL},
        {2000, 8, 0, NULL},
        {4000, 8, 0, NULL},
        {100000, 8, 0, NULL},
        {100, 4, 3, "with plan.block = 25 every rank gets some; block = auto tries none below 128"},
        {300, 2, 1, "with plan.block = 128 every rank gets some; block = auto has not chosen it, as the plan would be"},
        {1000, 8, 4,
         "with plan.block = 128 every rank gets some; block = auto has not chosen it, as the plan would be"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300], *said;
        snprintf(text, sizeof text,
                 "model { heads = 4; head_dim = 64 }\ncluster { gpus = %u }\nbatch { lengths = [%u] }\n"
                 "plan { mask = causal }\n",
                 cases[i].ranks, cases[i].tokens);
        fcp_plan *plan = plan_text(text, &said);
        cr_assert_not_null(plan, "%s", said);
        cr_expect_eq(without_tokens(plan), cases[i].without, "%s%u ranks without tokens", text, without_tokens(plan));
        cr_expect_eq(strstr(said, "no tokens") != NULL, cases[i].without > 0, "%s%s", text, said);
        cr_expect(!cases[i].hint || strstr(said, cases[i].hint), "%s%s", text, said);
        fcp_plan_free(plan);
        free(said);
    }
}
