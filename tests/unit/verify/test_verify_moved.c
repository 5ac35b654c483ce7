/* test_verify_moved.c: tests the verifier on a plan made by hand in which work is done away from home (moved_tables.h):
 * the verifier accepts it, and reports each change to it with the right code and a message that says what is wrong.
 * Damage at random places is in test_verify.c; the cases here need a plan that is known line by line. */
#include <criterion/criterion.h>

#include "tests/support/moved_tables.h"

/* The code of a change, whose message must hold `part`. */
static void expect_change(const moved_change *change, fcp_code want, const char *part) {
    tables t;
    fcp_error err = {0};
    moved_make(&t, change);
    fcp_code code = judge(&t, &err);
    cr_expect_eq(code, want, "%s, not %s: %s", fcp_code_name(code), fcp_code_name(want), err.message);
    cr_expect(!part || strstr(err.message, part), "no \"%s\" in: %s", part, err.message);
    tables_free(&t);
}

Test(moved, is_right) {
    expect_change(NULL, FCP_OK, NULL);
    const moved_change nothing = {.pass = FCP_BACKWARD};
    expect_change(&nothing, FCP_OK, NULL);
}

/* All matches, and nobody reads it. */
Test(moved, transfers_of_no_use) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const moved_change kv = {pass, 0, {{0, FCP_KV, KV4, 1, 0, 1, 2}}, 1},
                           q = {pass, 0, {{0, FCP_Q, Q1, 1, 0, 0, 3}}, 1};
        expect_change(&kv, FCP_E_VERIFY_MATCH, "rank 0: KV of block 4 lay in slot 2, and was neither read nor sent on");
        expect_change(&q, FCP_E_VERIFY_MATCH, "rank 0: Q of block 1 lay in slot 3, and was neither read nor sent on");
    }
}

/* Ranks 1 and 2 have KV3 from each other, and nobody from its home. */
Test(moved, relays_in_a_circle) {
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const moved_change circle = {pass, 1, {{2, FCP_KV, KV3, 1, 2, 2, 1}}, 1};
        expect_change(&circle, FCP_E_VERIFY_PRESENCE, "KV block 3");
    }
}

/* A relay sends on a block in the round in which it receives it. */
Test(moved, a_relay_sends_what_it_lacks) {
    const moved_change early = {FCP_FORWARD, 11, {{5, FCP_O, Q0, 2, 0, 1, 0}}, 1};
    expect_change(&early, FCP_E_VERIFY_PRESENCE, "reads O block 0 in slot 1 without waiting for what brings it");
    const moved_change lost = {FCP_FORWARD, 10, {{0}}, 0}, back = {FCP_BACKWARD, 11, {{0}}, 0};
    expect_change(&lost, FCP_E_VERIFY_PRESENCE, "reads O block 0 in slot 1, which holds nothing");
    expect_change(&back, FCP_E_VERIFY_PRESENCE, "reads whole dQ block 0 in slot 1, which holds nothing");
}

Test(moved, results_twice_and_never) {
    const moved_change o_twice = {FCP_FORWARD, 0, {{MOVED_ROUNDS, FCP_O, Q0, 2, 0, 1, 0}}, 1};
    expect_change(&o_twice, FCP_E_VERIFY_RESULT, "brings tokens 0 to 64 of O of block 0 home, where 64 have arrived");
    const moved_change dq_twice = {FCP_BACKWARD, 0, {{MOVED_ROUNDS, FCP_DQW, Q0, 2, 0, 1, 0}}, 1};
    expect_change(&dq_twice, FCP_E_VERIFY_RESULT, "brings tokens 0 to 64 of whole dQ of block 0 home");
    const moved_change two_ways = {FCP_FORWARD, 0, {{MOVED_ROUNDS, FCP_O, Q0, 1, 0, 2, 0}}, 1};
    expect_change(&two_ways, FCP_E_VERIFY_RESULT, "block 0");
    const moved_change o_never = {FCP_FORWARD, 11, {{0}}, 0}, dq_never = {FCP_BACKWARD, 13, {{0}}, 0};
    expect_change(&o_never, FCP_E_VERIFY_RESULT, "results of block 0 go out, and nothing brings them home");
    expect_change(&dq_never, FCP_E_VERIFY_RESULT, "results of block 0 go out, and nothing brings them home");
}

/* Partials that go where they must not. */
Test(moved, partials_astray) {
    const moved_change away = {FCP_FORWARD, 0, {{MOVED_ROUNDS, FCP_STATE, Q1, 1, 0, 0, 1}}, 1};
    expect_change(&away, FCP_E_VERIFY_RETURN, "state of block 1 is left in slot 1, which waits to be added");
    const moved_change whole = {FCP_FORWARD, 10, {{5, FCP_STATE, Q0, 1, 2, 0, 0}}, 1};
    expect_change(&whole, FCP_E_VERIFY_RETURN, "state of block 0");
    const moved_change partial = {FCP_FORWARD, 0, {{MOVED_ROUNDS, FCP_O, Q1, 2, 1, 1, 0}}, 1};
    expect_change(&partial, FCP_E_VERIFY_RESULT, "receives O of block 1, whose results are partial");
    const moved_change lost = {FCP_FORWARD, 7, {{0}}, 0};
    expect_change(&lost, FCP_E_VERIFY_RETURN, "state of block 2 is left in slot 0, which is being added to");
    const moved_change dq_lost = {FCP_BACKWARD, 7, {{0}}, 0};
    expect_change(&dq_lost, FCP_E_VERIFY_RETURN, "dQ of block 2 is left in slot 2, which is being added to");
}

/* What a pass, or a round, may not hold. */
Test(moved, classes_out_of_place) {
    const moved_change state = {FCP_BACKWARD, 0, {{MOVED_ROUNDS, FCP_STATE, Q1, 2, 1, 0, 2}}, 1};
    expect_change(&state, FCP_E_VERIFY_ORDER, "carries state of block 1 in the backward pass");
    const moved_change dq = {FCP_FORWARD, 0, {{MOVED_ROUNDS, FCP_DQ, Q1, 2, 1, 1, 4}}, 1};
    expect_change(&dq, FCP_E_VERIFY_ORDER, "carries dQ of block 1 in the forward pass");
    const moved_change early = {FCP_FORWARD, 7, {{0, FCP_STATE, Q2, 0, 1, 0, 2}}, 1};
    expect_change(&early, FCP_E_VERIFY_DELTA, "state of block 2, is in a round of kind independent");
    const moved_change home = {FCP_FORWARD, 0, {{MOVED_ROUNDS, FCP_Q, Q2, 1, 2, 3, 1}}, 1};
    expect_change(&home, FCP_E_VERIFY_MATCH, "receives Q block 2, whose home is here");
}

/* A plan may be split without need, and must be where a sequence has more keys than queries. */
Test(moved, split_by_need) {
    tables t;
    fcp_error err = {0};
    moved_make(&t, NULL);
    for (uint64_t b = 0; b < t.blocks_count; b++) t.blocks[b].holds = FCP_HOLDS_BOTH;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT);
    cr_expect(strstr(err.message, "blocks of both sides"), "%s", err.message);
    tables_free(&t);
}

/* What travels has other sizes in bf16 than in fp32: a plan of the one is none of the other. */
Test(moved, another_wire) {
    tables t;
    fcp_error err = {0};
    moved_make(&t, NULL);
    t.problem->wire = FCP_BF16;
    fcp_code code = judge(&t, &err);
    cr_expect_eq(code, FCP_E_VERIFY_SUMMARY, "%s: %s", fcp_code_name(code), err.message);
    t.problem->wire = FCP_FP16;
    code = judge(&t, &err);
    cr_expect_eq(code, FCP_E_PLAN_FORMAT, "%s: %s", fcp_code_name(code), err.message);
    cr_expect(strstr(err.message, "partial results of dtype 1 on the wire"), "%s", err.message);
    tables_free(&t);
}
