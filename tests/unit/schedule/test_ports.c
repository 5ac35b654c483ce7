/* test_ports.c: tests that units which would leave by one port in the same round are given other rounds (ports.c):
 * ports then have less to send at once, and the edge colouring stays valid. */
#include <criterion/criterion.h>
#include <string.h>

#include "compiler/schedule/colour.h"
#include "compiler/schedule/ports.h"

enum { RANKS = 24, UNITS = 400, COLOURS = UNITS };

typedef struct drawn {
    ports_input in;
    uint32_t src[UNITS], dst[UNITS], size[UNITS], colour[UNITS];
} drawn;

static uint32_t draw(uint64_t *state, uint32_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % bound);
}

/* Units between nodes, coloured as rounds are. */
static void draw_units(drawn *d, uint64_t *state, arena *scratch) {
    const uint32_t gpus = 1 + draw(state, 6), nodes = 2 + draw(state, 3), count = draw(state, UNITS);
    for (uint32_t i = 0; i < count; i++) {
        d->src[i] = draw(state, gpus * nodes);
        do d->dst[i] = draw(state, gpus * nodes);
        while (d->dst[i] / gpus == d->src[i] / gpus);
        d->size[i] = 1 + draw(state, 3) * 100;
    }
    d->in = (ports_input){.ranks = gpus * nodes, .gpus = gpus, .count = count, .src = d->src, .dst = d->dst,
                          .size = d->size};
    cr_assert_eq(colour_edges(scratch, NULL, d->in.ranks, count, d->src, d->dst, d->size, d->colour, &d->in.colours),
                 FCP_OK);
}

/* The sum of squares of what ports send in a colour; *out_largest: of each colour the size of its largest unit. Each
 * rank sends and receives at most once. */
static uint64_t count(const drawn *d, uint32_t *out_largest) {
    static uint64_t load[COLOURS][RANKS];
    static bool busy[COLOURS][2][RANKS];
    uint64_t sum = 0;
    memset(load, 0, sizeof load);
    memset(busy, 0, sizeof busy);
    memset(out_largest, 0, COLOURS * sizeof *out_largest);
    for (uint32_t i = 0; i < d->in.count; i++) {
        const uint32_t c = d->colour[i], gpus = d->in.gpus;
        cr_assert_lt(c, d->in.colours);
        cr_assert(!busy[c][0][d->src[i]] && !busy[c][1][d->dst[i]]);
        busy[c][0][d->src[i]] = busy[c][1][d->dst[i]] = true;
        load[c][d->src[i] / gpus * gpus + d->dst[i] % gpus] += d->size[i];
        if (d->size[i] > out_largest[c]) out_largest[c] = d->size[i];
    }
    for (uint32_t c = 0; c < d->in.colours; c++)
        for (uint32_t p = 0; p < d->in.ranks; p++) sum += load[c][p] * load[c][p];
    return sum;
}

Test(ports, colourings_stay_colourings_and_ports_send_less_at_once) {
    uint64_t state = 11, before = 0, after = 0;
    for (int i = 0; i < 300; i++) {
        static drawn d;
        uint32_t largest[2][COLOURS], again[UNITS];
        arena a = {0};
        draw_units(&d, &state, &a);
        memcpy(again, d.colour, sizeof again);
        const uint64_t first = count(&d, largest[0]);
        cr_assert_eq(ports_spread(&d.in, &a, d.colour), FCP_OK);
        const uint64_t then = count(&d, largest[1]);
        cr_assert_leq(then, first);
        for (uint32_t c = 0; c < d.in.colours; c++)
            cr_assert_leq(largest[1][c], largest[0][c], "rounds of small units stay short");
        cr_assert_eq(ports_spread(&d.in, &a, again), FCP_OK);
        cr_assert(!memcmp(again, d.colour, d.in.count * sizeof *again));
        before += first, after += then;
        arena_free(&a);
    }
    cr_expect(10 * after < 9 * before, "%.3f of what it was", (double)after / (double)before);
}

/* The example of ports.c. */
Test(ports, two_units_of_one_port_take_turns) {
    static const uint32_t src[] = {0, 1, 0}, dst[] = {7, 11, 10}, size[] = {5, 5, 5};
    uint32_t colour[] = {0, 0, 1};
    arena a = {0};
    const ports_input in = {.ranks = 12, .gpus = 4, .count = 3, .colours = 2, .src = src, .dst = dst, .size = size};
    cr_assert_eq(ports_spread(&in, &a, colour), FCP_OK);
    cr_expect_neq(colour[0], colour[1], "7 and 11 are both on rail 3");
    cr_expect_neq(colour[0], colour[2], "rank 0 sends both");
    arena_free(&a);
}
