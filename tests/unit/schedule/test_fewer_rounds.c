/* test_fewer_rounds.c: tests that results are sent in later or earlier stages if that saves rounds (fewer_rounds.c).
 * There are four ranks of one node, and blocks of one unit. */
#include <criterion/criterion.h>
#include <stdio.h>
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
    uint16_t units[LINES * STAGES];
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

static void use_line(scene *c, uint32_t rank, fcp_direction dir, uint32_t stage) {
    ++*occupancy_units(&c->l, line_number(rank, dir, FCP_LOCAL), stage);
}

/* Reads the results that travel, one a line: "block=0 src=0 dst=1 parent=- whole=1 ready=5 stage=5".
 *   src, dst  the block went from src to dst, so its result comes back from dst to src
 *   parent    the line of the hop before this one, along which the result then goes on; -: none
 *   whole     1: the result is whole; 0: it is partial
 *   ready     the first stage in which the result may travel
 *   stage     the stage in which it does
 * A line "busy rank=3 stages=5..8" says that rank 3 sends something else in each of these stages. */
static void read_scene(scene *c, const char *text) {
    open_scene(c);
    for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
        uint32_t block, src, dst, whole, ready, stage, rank, last;
        char parent;
        if (sscanf(line, " busy rank=%u stages=%u..%u", &rank, &stage, &last) == 3) {
            for (; stage <= last; stage++) use_line(c, rank, FCP_SEND, stage);
            continue;
        }
        cr_assert_eq(sscanf(line, " block=%u src=%u dst=%u parent=%c whole=%u ready=%u stage=%u", &block, &src, &dst,
                            &parent, &whole, &ready, &stage), 7, "%s", line);
        const uint32_t f = c->t.count++;
        c->hops[f] = (hop){.block = block, .src = src, .dst = dst, .units = 1, .cls = FCP_Q, .fabric = FCP_LOCAL,
                           .parent = parent == '-' ? FCP_NONE : (uint32_t)(parent - '0'), .whole = whole};
        c->start[f] = f;
        c->ready[f] = ready;
        c->first[f] = c->last[f] = c->stage[f] = stage;
        use_line(c, dst, FCP_SEND, stage);
        use_line(c, src, FCP_RECV, stage);
    }
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

/* Moves the results of a scene: there were `before` rounds, there are `after`, and the results travel in these
 * stages. */
static void check(const char *text, uint32_t before, uint32_t after, const uint32_t stages[HOPS]) {
    scene c;
    read_scene(&c, text);
    cr_expect_eq(rounds(&c), before);
    cr_assert_eq(fewer_rounds(&c.x, &c.s, &c.l, FCP_FORWARD, 0, c.ready, &c.back), FCP_OK);
    cr_expect_eq(rounds(&c), after);
    for (uint32_t f = 0; f < c.t.count; f++)
        cr_expect(c.stage[f] == stages[f] && c.first[f] == stages[f] && c.last[f] == stages[f], "hop %u: stage %u", f,
                  c.stage[f]);
    arena_free(&c.x.scratch);
}

/* Rank 0 receives two results in stage 5. The one of rank 2 may come in stage 7, in which rank 1 sends to rank 3; that
 * of rank 1 may not, because rank 1 sends then. */
Test(fewer_rounds, two_rounds_become_one) {
    check("block=0 src=0 dst=1 parent=- whole=1 ready=5 stage=5\n"
          "block=1 src=0 dst=2 parent=- whole=1 ready=5 stage=5\n"
          "block=2 src=3 dst=1 parent=- whole=1 ready=7 stage=7\n", 3, 2, (uint32_t[HOPS]){5, 7, 7});
}

/* No result may leave before it is made, and none later than the last did: nothing can move. Another one travels before
 * these two, and another one after them. */
Test(fewer_rounds, windows_are_kept) {
    check("block=0 src=0 dst=1 parent=- whole=1 ready=5 stage=5\n"
          "block=1 src=0 dst=2 parent=- whole=1 ready=5 stage=5\n"
          "busy rank=3 stages=4..4\n"
          "busy rank=3 stages=6..6\n", 4, 4, (uint32_t[HOPS]){5, 5});
}

/* Rank 1 receives two results in stage 4, so that stage has two rounds:
 *   block 0, from rank 2  partial. Rank 1 merges it with its own, and sends the sum to rank 0 in stage 6.
 *   block 1, from rank 3  cannot come later, because rank 3 is busy in all later stages.
 * One round is saved by moving two results by one stage: the sum of block 0 to stage 7, so that rank 2's partial result
 * may come in stage 5. Stage 7 is not too late, because the last result of all, block 2's, travels in stage 8. */
Test(fewer_rounds, merged_result_moves_first) {
    check("block=0 src=0 dst=1 parent=- whole=0 ready=4 stage=6\n"
          "block=0 src=1 dst=2 parent=0 whole=0 ready=4 stage=4\n"
          "block=1 src=1 dst=3 parent=- whole=1 ready=4 stage=4\n"
          "block=2 src=2 dst=0 parent=- whole=1 ready=8 stage=8\n"
          "busy rank=3 stages=5..8\n", 6, 5, (uint32_t[HOPS]){7, 5, 4, 8});
}
