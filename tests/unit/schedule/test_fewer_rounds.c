/* test_fewer_rounds.c: results that change their stages (fewer_rounds.c), on four ranks of a node and blocks of one unit. */
#include <criterion/criterion.h>
#include <string.h>

#include "compiler/schedule/schedule_parts.h"

enum { RANKS = 4, HOPS = 4, STAGES = 10, LINES = RANKS * FCP_DIRECTION_COUNT * FCP_FABRICS };

/* Rows that went along hops, and the stages in which what is made of them comes back. */
typedef struct scene {
    planning x;
    problem p;
    traffic t;
    schedule s;
    occupancy l;
    hop hops[HOPS];
    fcp_block blocks[HOPS];
    uint8_t units[LINES * STAGES];
    uint32_t size[LINES / FCP_FABRICS * STAGES];
    uint32_t first[HOPS], last[HOPS], start[HOPS], stage[HOPS], ready[HOPS];
    returns back;
} scene;

static void open_scene(scene *c) {
    memset(c, 0, sizeof *c);
    c->p.ranks = RANKS;
    c->p.unit = 128;
    c->p.blocks = c->blocks;
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
        for (int cls = 0; cls < FCP_CLASSES; cls++) c->p.unit_of[fabric][cls] = 128;
    for (int i = 0; i < HOPS; i++) c->blocks[i].tokens = 128;
    c->t.hops = c->hops;
    c->s.after = 2;
    c->l = (occupancy){.units = c->units, .size = c->size, .lines = LINES, .width = STAGES, .units_most = {5, 5},
                    .size_most = 1024};
    c->back = (returns){c->first, c->last, c->start, c->stage};
    c->x.problem = &c->p;
    c->x.traffic = &c->t;
}

static void take(scene *c, uint32_t rank, fcp_direction dir, uint32_t stage) {
    ++*occupancy_units(&c->l, line_number(rank, dir, FCP_LOCAL), stage);
}

/* A hop from src to dst, whose result comes back in a stage, and may do so from `ready` on. */
static void add(scene *c, uint32_t block, uint32_t src, uint32_t dst, uint32_t parent, bool whole, uint32_t ready,
                uint32_t stage) {
    const uint32_t f = c->t.count++;
    c->hops[f] = (hop){.block = block, .src = src, .dst = dst, .parent = parent, .units = 1, .cls = FCP_Q,
                       .fabric = FCP_LOCAL, .whole = whole};
    c->start[f] = f;
    c->ready[f] = ready;
    c->first[f] = c->last[f] = c->stage[f] = stage;
    take(c, dst, FCP_SEND, stage);
    take(c, src, FCP_RECV, stage);
}

static uint32_t rounds(const scene *c) {
    uint32_t sum = 0;
    for (uint32_t stage = 0; stage < STAGES; stage++) {
        uint8_t most = 0;
        for (uint32_t line = 0; line < LINES; line++)
            if (*occupancy_units(&c->l, line, stage) > most) most = *occupancy_units(&c->l, line, stage);
        sum += most;
    }
    return sum;
}

static void move_results(scene *c) {
    cr_assert_eq(fewer_rounds(&c->x, &c->s, &c->l, FCP_FORWARD, 0, c->ready, &c->back), FCP_OK);
    for (uint32_t f = 0; f < c->t.count; f++)
        cr_assert(c->first[f] == c->stage[f] && c->last[f] == c->stage[f], "hop %u", f);
    arena_free(&c->x.scratch);
}

/* Rank 0 receives two results in stage 5. The one of rank 2 may come in stage 7, in which rank 1 sends to rank 3; that
 * of rank 1 may not, because rank 1 sends then. */
Test(fewer_rounds, two_rounds_become_one) {
    scene c;
    open_scene(&c);
    add(&c, 0, 0, 1, FCP_NONE, true, 5, 5);
    add(&c, 1, 0, 2, FCP_NONE, true, 5, 5);
    add(&c, 2, 3, 1, FCP_NONE, true, 7, 7);
    cr_expect_eq(rounds(&c), 3);
    move_results(&c);
    cr_expect_eq(rounds(&c), 2);
    cr_expect(c.stage[0] == 5 && c.stage[1] == 7 && c.stage[2] == 7, "%u %u %u", c.stage[0], c.stage[1], c.stage[2]);
}

/* No result may leave before it is made, and none later than the last did: nothing can move. */
Test(fewer_rounds, windows_are_kept) {
    scene c;
    open_scene(&c);
    add(&c, 0, 0, 1, FCP_NONE, true, 5, 5);
    add(&c, 1, 0, 2, FCP_NONE, true, 5, 5);
    take(&c, 3, FCP_SEND, 4); /* another one travels before, and another one after them */
    take(&c, 3, FCP_SEND, 6);
    move_results(&c);
    cr_expect(c.stage[0] == 5 && c.stage[1] == 5);
    cr_expect_eq(rounds(&c), 4);
}

/* In stage 4 rank 1 receives a partial result of rank 2, which it merges and sends on in stage 6, and one of rank 3,
 * which is busy in all other stages. The merged one may leave in stage 7, so the partial one may come in stage 5. */
Test(fewer_rounds, merged_result_moves_first) {
    scene c;
    open_scene(&c);
    add(&c, 0, 0, 1, FCP_NONE, false, 4, 6);
    add(&c, 0, 1, 2, 0, false, 4, 4);
    add(&c, 1, 1, 3, FCP_NONE, true, 4, 4);
    add(&c, 2, 2, 0, FCP_NONE, true, 8, 8); /* the last of all */
    for (uint32_t stage = 5; stage < 9; stage++) take(&c, 3, FCP_SEND, stage);
    cr_expect_eq(rounds(&c), 6);
    move_results(&c);
    cr_expect_eq(rounds(&c), 5);
    cr_expect(c.stage[0] == 7 && c.stage[1] == 5 && c.stage[2] == 4, "%u %u %u", c.stage[0], c.stage[1], c.stage[2]);
}
