/* test_wires.c: tests that ranks of a node come to send evenly over net, and what must not change for that. */
#include <criterion/criterion.h>

#include "compiler/place/fcp/fcp.h"

enum { RANKS = 12, GPUS = 4, BLOCKS = 60, TOKENS = 128, MOST_READS = 10 };

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

/* What each rank sends over net, by definition: a block once for each other node that reads it. */
static void count(const place_input *in, const uint32_t *home, uint64_t *sends) {
    memset(sends, 0, RANKS * sizeof *sends);
    for (uint32_t j = 0; j < in->blocks; j++)
        for (uint32_t v = 0; v < RANKS / GPUS; v++) {
            bool reads = false;
            for (uint32_t b = 0; b < in->blocks; b++)
                for (uint32_t e = in->reads_start[b]; e < in->reads_start[b + 1]; e++)
                    reads |= in->reads[e] == j && home[b] / GPUS == v;
            if (reads && home[j] / GPUS != v) sends[home[j]] += in->tokens[j];
        }
}

static uint64_t most(const uint64_t *sends, uint32_t node) {
    uint64_t found = 0;
    for (uint32_t r = node * GPUS; r < (node + 1) * GPUS; r++)
        if (sends[r] > found) found = sends[r];
    return found;
}

/* A batch under way: each read is a run of its own. `cap`: of a rank's work, in shares of PLACE_ONE. */
typedef struct made {
    arena memory;
    place_input in;
    place_state s;
    uint32_t cluster[BLOCKS]; /* all of one */
    uint32_t tokens[BLOCKS], start[BLOCKS + 1], reads[BLOCKS * MOST_READS], home[BLOCKS];
    uint64_t work[BLOCKS];
    int64_t left[RANKS], room[RANKS], scaled[BLOCKS];
    place_run runs[BLOCKS * MOST_READS];
} made;

static void finish(made *m) {
    m->in = (place_input){.ranks = RANKS, .gpus = GPUS, .blocks = BLOCKS, .block = TOKENS, .tokens = m->tokens,
                          .work = m->work, .reads_start = m->start, .reads = m->reads};
    for (uint32_t e = 0; e < m->start[BLOCKS]; e++) m->runs[e] = (place_run){m->reads[e], m->reads[e] + 1};
    m->s = (place_state){.in = &m->in, .home = m->home, .work = m->scaled, .left = m->left, .room = m->room,
                         .run_start = m->start, .runs = m->runs,
                         .cluster = m->cluster, .most_reads = MOST_READS};
}

/* The example of wires.c: rank 0 has the two blocks that every node reads, rank 1 two that nobody else does. */
Test(wires, who_has_all_that_is_sent_shares_it) {
    static made m;
    uint64_t sends[RANKS];
    for (uint32_t b = 0; b < BLOCKS; b++) {
        m.tokens[b] = TOKENS;
        m.scaled[b] = PLACE_ONE / 5;
        m.home[b] = b < 2 ? 0 : b < 4 ? 1 : b % RANKS;
        m.start[b] = b ? m.start[b - 1] + (b > 4 ? 3 : 1) : 0;
    }
    m.start[BLOCKS] = m.start[BLOCKS - 1] + 3;
    for (uint32_t b = 0; b < BLOCKS; b++) {
        uint32_t e = m.start[b];
        if (b >= 4) m.reads[e++] = 0, m.reads[e++] = 1;
        m.reads[e] = b;
    }
    finish(&m);
    count(&m.in, m.home, sends);
    cr_assert_eq(sends[0], 4 * TOKENS);
    cr_assert_eq(place_even_wires(&m.s, &m.memory), FCP_OK);
    count(&m.in, m.home, sends);
    cr_assert_eq(most(sends, 0), 2 * TOKENS);
    arena_free(&m.memory);
}

/* Homes at random: a node sends what it sent, by ports of which none is busier than before. Limits that were kept are
 * kept, others are exceeded no further. */
Test(wires, nothing_else_changes) {
    uint32_t gained = 0;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        static made m;
        uint64_t state = seed, before[RANKS], after[RANKS];
        int64_t work[2][RANKS] = {{0}}, tokens[2][RANKS] = {{0}};
        uint32_t node[BLOCKS], e = 0;
        for (uint32_t b = 0; b < BLOCKS; b++) {
            m.tokens[b] = 1 + (uint32_t)draw(&state, TOKENS);
            m.scaled[b] = (int64_t)draw(&state, PLACE_ONE / 3);
            m.home[b] = (uint32_t)draw(&state, RANKS);
            node[b] = m.home[b] / GPUS;
            m.start[b] = e;
            for (uint32_t j = 0, n = 0; j <= b && n < MOST_READS; j++)
                if (j == b || draw(&state, 12) == 0) m.reads[e++] = j, n++;
            work[0][m.home[b]] += m.scaled[b], tokens[0][m.home[b]] += m.tokens[b];
        }
        m.start[BLOCKS] = e;
        finish(&m);
        count(&m.in, m.home, before);
        cr_assert_eq(place_even_wires(&m.s, &m.memory), FCP_OK);
        count(&m.in, m.home, after);
        const int64_t cap = (int64_t)place_token_cap(&m.in);
        for (uint32_t b = 0; b < BLOCKS; b++) {
            cr_assert_eq(m.home[b] / GPUS, node[b]);
            work[1][m.home[b]] += m.scaled[b], tokens[1][m.home[b]] += m.tokens[b];
        }
        for (uint32_t r = 0; r < RANKS; r++) {
            cr_assert(work[1][r] <= PLACE_ONE || work[1][r] <= work[0][r], "seed %lu", (unsigned long)seed);
            cr_assert(tokens[1][r] <= cap || tokens[1][r] <= tokens[0][r], "seed %lu", (unsigned long)seed);
        }
        for (uint32_t v = 0; v < RANKS / GPUS; v++) {
            uint64_t sum[2] = {0, 0};
            for (uint32_t r = v * GPUS; r < (v + 1) * GPUS; r++) sum[0] += before[r], sum[1] += after[r];
            cr_assert(sum[0] == sum[1] && most(after, v) <= most(before, v), "seed %lu", (unsigned long)seed);
            gained += most(after, v) < most(before, v);
        }
        arena_free(&m.memory);
        m.memory = (arena){0};
    }
    cr_assert_gt(gained, 60, "%u of 180 nodes", gained);
}
