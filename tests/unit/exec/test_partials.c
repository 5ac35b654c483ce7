/* test_partials.c: tests which slots of those that a rank uses for a while (transient slots) hold a partial result:
 * what each instruction clears, copies and adds. Also tests the words by which errors name a place in a plan. */
#include <criterion/criterion.h>
#include <string.h>

#include "runtime/exec/partials.h"
#include "runtime/exec/error_place.h"
#include "tests/support/plan_of.h"

enum { HOMES = 2, SLOTS = 3 };

/* Slots 0 and 1 are home slots; 2, 3, 4 are transient. Of STATE all are. */
static const fcp_slots transient[FCP_PASSES] = {{{[FCP_STATE] = 2}}, {{[FCP_DKV] = SLOTS, [FCP_DQ] = SLOTS}}};
typedef struct tables {
    fcp_plan plan;
    fcp_block blocks[4];
    fcp_tile tiles[5];
    fcp_visit visits[2];
    fcp_transfer transfers[4];
} tables;

static void lay_out(tables *t) {
    memset(t, 0, sizeof *t);
    for (uint32_t b = 0; b < 4; b++) t->blocks[b].tokens = 100 + b;
    const uint32_t slots[5] = {0, 2, 3, 3, 2}, blocks[5] = {0, 2, 3, 3, 2};
    for (uint32_t i = 0; i < 5; i++) t->tiles[i] = (fcp_tile){.dkv_slot = slots[i], .k_block = blocks[i]};
    t->visits[0] = (fcp_visit){.first_tile = 0, .tiles = 3};
    t->visits[1] = (fcp_visit){.first_tile = 3, .tiles = 2};
    t->plan = (fcp_plan){.blocks = t->blocks, .tiles = t->tiles, .visits = t->visits, .transfers = t->transfers};
}

/* What an ATTEND of visits [first, first + count) is to clear: slots and tokens, in order; 100 more for slots of dQ. */
static unsigned cleared(fcp_partials *p, const tables *t, uint32_t first, uint32_t count, uint32_t slots[8],
                        uint32_t tokens[8]) {
    const fcp_instr attend = {.op = FCP_OP_ATTEND, .a = first, .b = count};
    fcp_partials_walk walk = {0};
    fcp_partial sum;
    unsigned n = 0;
    while (fcp_partials_next(p, &t->plan, &attend, &walk, &sum)) {
        slots[n] = sum.slot + (sum.cls == FCP_DQ ? 100 : 0);
        tokens[n++] = sum.tokens;
    }
    return n;
}

Test(partials, first_contributions_are_cleared_once) {
    tables t;
    fcp_partials p = {0};
    uint32_t slots[8], tokens[8];
    lay_out(&t);
    cr_assert(fcp_partials_make(&p, HOMES, transient) == FCP_OK);
    cr_assert_eq(cleared(&p, &t, 0, 2, slots, tokens), 2);
    cr_assert(slots[0] == 2 && tokens[0] == 102 && slots[1] == 3 && tokens[1] == 103);
    cr_assert_eq(cleared(&p, &t, 0, 2, slots, tokens), 0, "they hold sums now");
    fcp_partials_clear(&p);
    cr_assert_eq(cleared(&p, &t, 1, 1, slots, tokens), 2, "a new pass");
    cr_assert(slots[0] == 3 && slots[1] == 2);
    fcp_partials_free(&p);
}

Test(partials, a_reduction_copies_first_and_adds_afterwards) {
    tables t;
    fcp_partials p = {0};
    uint32_t slots[8], tokens[8];
    lay_out(&t);
    cr_assert(fcp_partials_make(&p, HOMES, transient) == FCP_OK);
    cr_assert(!fcp_partials_reduce(&p, &(fcp_instr){.op = FCP_OP_REDUCE, .a = 0, .b = 2, .c = 1}),
              "a home block's sum is always there");
    cr_assert(fcp_partials_reduce(&p, &(fcp_instr){.op = FCP_OP_REDUCE, .a = 3, .b = 4, .c = 3}), "slot 3 was empty");
    cr_assert(!fcp_partials_reduce(&p, &(fcp_instr){.op = FCP_OP_REDUCE, .a = 3, .b = 4, .c = 3}));
    cr_assert_eq(cleared(&p, &t, 1, 1, slots, tokens), 1);
    cr_assert_eq(slots[0], 2);
    cr_assert(!fcp_partials_reduce(&p, &(fcp_instr){.op = FCP_OP_REDUCE, .a = 2, .b = 2, .c = 0}));
    cr_assert_eq(cleared(&p, &t, 1, 1, slots, tokens), 1, "slot 2 was given up");
    fcp_partials_free(&p);
}

Test(partials, launches_bring_sums_and_take_them_away) {
    tables t;
    fcp_partials p = {0};
    uint32_t slots[8], tokens[8];
    lay_out(&t);
    t.transfers[0] = (fcp_transfer){.cls = FCP_DKV, .dir = FCP_RECV, .slot = 2, .block = 2, .tokens = 102};
    t.transfers[1] = (fcp_transfer){.cls = FCP_KV, .dir = FCP_RECV, .slot = 3, .block = 3, .tokens = 103};
    t.transfers[2] = (fcp_transfer){.cls = FCP_DKV, .dir = FCP_SEND, .slot = 2, .block = 2, .tokens = 60};
    t.transfers[3] = (fcp_transfer){.cls = FCP_DKV, .dir = FCP_SEND, .slot = 2, .block = 2, .first = 60, .tokens = 42};
    cr_assert(fcp_partials_make(&p, HOMES, transient) == FCP_OK);
    fcp_partials_launched(&p, &t.plan, &(fcp_instr){.a = 0, .b = 2});
    cr_assert(cleared(&p, &t, 0, 2, slots, tokens) == 1 && slots[0] == 3, "keys and values are no sums");
    fcp_partials_launched(&p, &t.plan, &(fcp_instr){.a = 2, .b = 1});
    cr_assert_eq(cleared(&p, &t, 0, 2, slots, tokens), 0, "a part of it was sent");
    fcp_partials_launched(&p, &t.plan, &(fcp_instr){.a = 3, .b = 1});
    cr_assert(cleared(&p, &t, 0, 2, slots, tokens) == 1 && slots[0] == 2, "its last tokens were sent");
    fcp_partials_free(&p);
}

Test(partials, sums_of_dq_that_is_computed_for_others) {
    tables t;
    fcp_partials p = {0};
    uint32_t slots[8], tokens[8];
    lay_out(&t);
    t.visits[0] = (fcp_visit){.first_tile = 0, .tiles = 1, .q_block = 3, .dq_slot = 2};
    t.visits[1] = (fcp_visit){.first_tile = 0, .tiles = 1, .q_block = 0, .dq_slot = 0};
    cr_assert(fcp_partials_make(&p, HOMES, transient) == FCP_OK);
    cr_assert(cleared(&p, &t, 0, 2, slots, tokens) == 1 && slots[0] == 102 && tokens[0] == 103);
    cr_assert_eq(cleared(&p, &t, 0, 1, slots, tokens), 0);
    cr_assert(!fcp_partials_reduce(&p, &(fcp_instr){.op = FCP_OP_REDUCE_Q, .a = 3, .b = 3, .c = 2}));
    cr_assert(fcp_partials_reduce(&p, &(fcp_instr){.op = FCP_OP_REDUCE_Q, .a = 3, .b = 2, .c = 4}), "moved on");
    cr_assert_eq(cleared(&p, &t, 0, 1, slots, tokens), 1);
    fcp_partials_finished(&p, &(fcp_instr){.op = FCP_OP_ROUND, .a = 3, .b = 2, .c = 5});
    cr_assert_eq(cleared(&p, &t, 0, 1, slots, tokens), 1, "it is a result, and the slot is free");
    cr_assert(!fcp_partials_reduce(&p, &(fcp_instr){.op = FCP_OP_REDUCE_Q, .a = 0, .b = 2, .c = 0}), "home");
    t.transfers[0] = (fcp_transfer){.cls = FCP_DQ, .dir = FCP_RECV, .slot = 2, .block = 3, .tokens = 103};
    fcp_partials_launched(&p, &t.plan, &(fcp_instr){.a = 0, .b = 1});
    cr_assert_eq(cleared(&p, &t, 0, 1, slots, tokens), 0, "received");
    fcp_partials_free(&p);
}

Test(partials, states_are_begun_by_visits_merges_and_launches) {
    tables t;
    fcp_partials p = {0};
    lay_out(&t);
    const fcp_instr attend = {.op = FCP_OP_ATTEND, .a = 0, .b = 1}, merge = {.op = FCP_OP_MERGE, .b = 1, .c = 0};
    cr_assert(fcp_partials_make(&p, HOMES, transient) == FCP_OK);
    t.visits[0].state_slot = 0;
    t.visits[0].flags = FCP_VISIT_FIRST;
    fcp_partials_attended(&p, &t.plan, &attend);
    cr_assert(!fcp_partials_reduce(&p, &merge), "a visit began the state in slot 0");
    t.visits[0].flags = FCP_VISIT_LAST;
    fcp_partials_attended(&p, &t.plan, &attend);
    cr_assert(fcp_partials_reduce(&p, &merge), "the last visit made a result of it");
    cr_assert(!fcp_partials_reduce(&p, &merge));
    fcp_partials_finished(&p, &(fcp_instr){.op = FCP_OP_FINISH, .b = 0});
    cr_assert(fcp_partials_reduce(&p, &merge), "so did FINISH");
    t.transfers[0] = (fcp_transfer){.cls = FCP_STATE, .dir = FCP_SEND, .slot = 0, .block = 2, .tokens = 102};
    fcp_partials_launched(&p, &t.plan, &(fcp_instr){.a = 0, .b = 1});
    cr_assert(fcp_partials_reduce(&p, &merge), "sent");
    fcp_partials_clear(&p);
    t.transfers[0].dir = FCP_RECV;
    fcp_partials_launched(&p, &t.plan, &(fcp_instr){.a = 0, .b = 1});
    cr_assert(!fcp_partials_reduce(&p, &merge), "received");
    fcp_partials_clear(&p);
    t.visits[0].flags = FCP_VISIT_FIRST | FCP_VISIT_LAST;
    t.visits[0].state_slot = FCP_NONE;
    fcp_partials_attended(&p, &t.plan, &attend);
    cr_assert(fcp_partials_reduce(&p, &merge), "a single visit has no state");
    fcp_partials_free(&p);
}

Test(where, words_and_numbers) {
    fcp_plan *plan = plan_with("where.fcp",
                              "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = bf16 }\ncluster { gpus = 2 }\n"
                              "batch { lengths = [512] }\nplan { mask = causal; block = 128; passes = forward }\n",
                              NULL, 0);
    char text[200];
    fcp_where w = fcp_where_instruction(plan, FCP_FORWARD, 1, FCP_COMM, 0);
    cr_assert(w.rank == 1 && w.pass == FCP_FORWARD && w.queue == FCP_COMM && w.instruction == 0 &&
              w.stage != FCP_NOWHERE);
    fcp_where_text(plan, &w, "behind ", text, sizeof text);
    cr_assert(strstr(text, "rank 1, forward pass, stage "), "%s", text);
    cr_assert(strstr(text, ", behind instruction 0 of the communication queue ("), "%s", text);
    w = fcp_where_instruction(plan, FCP_BACKWARD, 0, FCP_COMPUTE, 0); /* a pass that the plan has not */
    cr_assert(w.rank == 0 && w.instruction == FCP_NOWHERE && w.stage == FCP_NOWHERE);
    fcp_where_text(plan, &w, "", text, sizeof text);
    cr_assert_str_eq(text, "rank 0, backward pass, in the compute queue, which is empty");
    w = fcp_where_rank(7);
    cr_assert(w.rank == 7 && w.pass == FCP_NOWHERE && w.queue == FCP_NOWHERE && w.instruction == FCP_NOWHERE);
    fcp_plan_free(plan);
}
