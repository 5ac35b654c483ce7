/* test_recurrent_figures.c: tests what is printed of layers that recur, against numbers by hand: eight tokens on two
 * ranks, as in grammar/LANGUAGE.md, and batches in which nothing travels. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "compiler/show/model.h"
#include "compiler/show/recurrent_figures.h"
#include "runtime/plan/plan.h"

static fcp_code plan_own(const fcpc_program *p, fcpc_diagnostics *d, fcp_plan **out) {
    size_t count;
    const uint64_t *lengths = fcpc_program_lengths(p, &count);
    return fcpc_plan(p, lengths, count, NULL, d, NULL, out);
}

static fcp_plan *plan_of(const char *source) {
    fcpc_program *p = NULL;
    fcp_plan *plan = NULL;
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    if (fcpc_parse_text("a.fcp", source, strlen(source), NULL, d, &p) || plan_own(p, d, &plan))
        cr_assert_fail("%s\n%s", source, fcpc_diagnostics_render(d, false));
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return plan;
}

static void expect_network(const recurrent_network *n, uint64_t messages, uint64_t bytes, uint64_t far, uint64_t most,
                           uint32_t rounds) {
    cr_expect_eq(n->messages, messages);
    cr_expect_eq(n->bytes, bytes);
    cr_expect_eq(n->bytes_inter_node, far);
    cr_expect_eq(n->send_max, most);
    cr_expect_eq(n->rounds, rounds);
    cr_expect_eq(n->bound, rounds);
}

/* Rank 0 has tokens 0, 1, 6 and 7, and rank 1 has 2 to 5. In one round rank 0 sends the state of 0-1, and rank 1 the
 * summary of 2-5 with its decays. */
#define EIGHT(cluster, passes)                                                                                         \
    "model { heads = 2; head_dim = 16; value_dim = 8 }\n"                                                              \
    "cluster { " cluster " }\n"                                                                                        \
    "batch { lengths = [8] }\n"                                                                                        \
    "plan { strategy = zigzag; block = 2; layers = [causal, scan(heads = 3) x 5, halo(before = 2, channels = 10)]; "   \
    "passes = " passes " }"

Test(recurrent_figures, eight_tokens) {
    fcp_plan *plan = plan_of(EIGHT("gpus = 2", "forward, backward"));
    const uint64_t decay = 3 * 4, state = 3 * 16 * 8 * 4, rows = 2 * 10 * 2;
    char said[RECURRENT_SENTENCE];
    cr_assert_eq(plan->recurrent_count, 2);
    recurrent_figures f = recurrent_figures_of(plan, 0);
    cr_expect_eq(f.stretches, 3);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        expect_network(&f.pass[pass], 2, 2 * state + decay, 0, state + decay, 1);
    cr_expect_str_eq(recurrent_sentence(said, &f),
                     "5 layers of 3 heads of 16 x 8, decay scalar, shape tree; 3 stretches; each layer forward and "
                     "backward: 2 messages, 3.08 kB, 1 round (bound 1)");
    f = recurrent_figures_of(plan, 1);
    for (int pass = 0; pass < FCP_PASSES; pass++) expect_network(&f.pass[pass], 2, 2 * rows, 0, rows, 1);
    cr_expect_str_eq(recurrent_sentence(said, &f),
                     "1 layer of 2 rows before, 10 channels; 3 stretches; each layer forward and backward: 2 messages, "
                     "80 B, 1 round (bound 1)");
    fcp_plan_free(plan);
}

Test(recurrent_figures, between_nodes_and_forward_alone) {
    fcp_plan *plan = plan_of(EIGHT("nodes = 2", "forward"));
    const uint64_t decay = 3 * 4, state = 3 * 16 * 8 * 4;
    char said[RECURRENT_SENTENCE];
    const recurrent_figures f = recurrent_figures_of(plan, 0);
    expect_network(&f.pass[FCP_FORWARD], 2, 2 * state + decay, 2 * state + decay, state + decay, 1);
    expect_network(&f.pass[FCP_BACKWARD], 0, 0, 0, 0, 0);
    cr_expect_str_eq(recurrent_sentence(said, &f),
                     "5 layers of 3 heads of 16 x 8, decay scalar, shape tree; 3 stretches; each layer forward: 2 "
                     "messages, 3.08 kB (3.08 kB between nodes), 1 round (bound 1)");
    fcp_plan_free(plan);
}

Test(recurrent_figures, nothing_travels) {
    fcp_plan *plan = plan_of("cluster { gpus = 2 }\nbatch { lengths = [5, 5] }\n"
                             "plan { block = 64; layers = [causal, scan(reverse = true, decay = vector), "
                             "halo(after = 1), halo(before = 1, after = 2)] }");
    char said[RECURRENT_SENTENCE];
    recurrent_figures f = recurrent_figures_of(plan, 0);
    cr_expect_eq(f.stretches, 2);
    cr_expect_str_eq(recurrent_sentence(said, &f),
                     "1 layer of 8 heads of 128 x 128, decay vector, reverse, shape none; 2 stretches; each layer "
                     "forward and backward: nothing travels");
    f = recurrent_figures_of(plan, 1);
    cr_expect(strstr(recurrent_sentence(said, &f), "1 layer of 1 row behind, 1024 channels;"), "%s", said);
    f = recurrent_figures_of(plan, 2);
    cr_expect(strstr(recurrent_sentence(said, &f), "1 layer of 1 row before and 2 behind, 1024 channels;"), "%s", said);
    fcp_plan_free(plan);
}

/* The summary has a line for each kind, JSON an object, and a picture sentences for the first kinds. */
Test(recurrent_figures, where_they_are_printed) {
    fcp_plan *plan = plan_of("cluster { gpus = 2 }\nbatch { lengths = [900] }\n"
                             "plan { layers = [causal, halo(before = 1), halo(before = 2), scan, halo(before = 3), "
                             "halo(before = 4), halo(before = 5)] }");
    const fcpc_show_options how = {.size = sizeof how, .width = 200};
    char *summary = NULL, *members = NULL, *picture = NULL;
    cr_assert(!fcpc_summary_text(plan, NULL, "a", NULL, &summary, NULL));
    cr_assert(!fcpc_summary_json(plan, NULL, &members, NULL));
    cr_assert(!fcpc_show_text(plan, &how, &picture, NULL));
    cr_expect(strstr(summary, "\n  halo    1 layer of 5 rows before"), "%s", summary);
    cr_expect(strstr(summary, "\n  scan    1 layer of 8 heads"), "%s", summary);
    cr_expect(strstr(members, "\"recurrent\": [{\"kind\": \"halo\", \"times\": 1, \"before\": 1, \"after\": 0, "), "%s",
              members);
    cr_expect(strstr(members, "\"decay\": \"scalar\", \"reverse\": false, \"parts\": "), "%s", members);
    cr_expect(strstr(picture, "  halo       1 layer of 3 rows before"), "%s", picture);
    cr_expect(!strstr(picture, "4 rows before") && strstr(picture, "  layers     2 more kinds"), "%s", picture);
    free(summary);
    free(members);
    free(picture);
    fcp_plan_free(plan);
    plan = plan_of("cluster { gpus = 2 }\nbatch { lengths = [900] }\nplan { mask = causal }");
    cr_assert(!fcpc_summary_json(plan, NULL, &members, NULL));
    cr_expect(strstr(members, "\"recurrent\": []"), "%s", members);
    free(members);
    fcp_plan_free(plan);
}
