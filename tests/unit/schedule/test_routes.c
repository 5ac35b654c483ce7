/* test_routes.c: tests the routes of blocks: every reader gets a block once, and every node gets it over net at most
 * once. The loads of senders and receivers are counted again, and in small cases routes are compared with all
 * others. */
#include <criterion/criterion.h>

#include "compiler/schedule/routes.h"

static uint64_t draw(uint64_t *state, uint64_t bound) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % bound;
}

enum { WANTS = 40, RANKS = 48 };

typedef struct drawn {
    routes_input in;
    route_want wants[WANTS];
    uint32_t readers[WANTS * RANKS];
} drawn;

static void draw_wants(drawn *d, uint64_t *state, uint32_t gpus, uint32_t nodes, uint32_t wants, uint32_t homes) {
    uint32_t count = 0;
    for (uint32_t w = 0; w < wants; w++) {
        uint32_t src = (uint32_t)draw(state, homes), first = count, one_in = 1 + (uint32_t)draw(state, 6);
        for (uint32_t r = 0; r < gpus * nodes; r++)
            if (r != src && !draw(state, one_in)) d->readers[count++] = r;
        uint64_t back = draw(state, 2) * draw(state, 500);
        d->wants[w] = (route_want){src, first, count - first, 1 + draw(state, 1000), back, draw(state, 1 + back)};
    }
    d->in = (routes_input){
        .ranks = gpus * nodes, .gpus = gpus, .wants = d->wants, .want_count = wants, .readers = d->readers};
}

/* The hop of a want that brings it to where hop i leaves from; FCP_NONE: that is the source. */
static uint32_t parent_of(const leg *hops, uint32_t i) {
    for (uint32_t h = 0; h < i; h++)
        if (hops[h].dst == hops[i].src) return h;
    return FCP_NONE;
}

static uint32_t depth_of(const leg *hops, uint32_t i) {
    uint32_t depth = 1;
    while ((i = parent_of(hops, i)) != FCP_NONE) depth++;
    return depth;
}

/* Checks trees from their definition, and the counters from the trees. */
static void check(const drawn *d, const routes *r) {
    const uint32_t ranks = d->in.ranks, gpus = d->in.gpus;
    uint64_t sent[FCP_FABRICS][RANKS] = {{0}}, received[FCP_FABRICS][RANKS] = {{0}};
    for (uint32_t w = 0; w < d->in.want_count; w++) {
        const route_want *want = &d->wants[w];
        const leg *hops = r->hops + r->start[w];
        uint32_t count = r->start[w + 1] - r->start[w], reached[RANKS] = {0}, entered[RANKS] = {0}, leave = 0;
        bool joined = want->joined, near = false; /* joined: hops so far are between the source and where that is */
        for (uint32_t k = 0; k < want->count; k++) near |= d->readers[want->first + k] / gpus == want->src / gpus;
        reached[want->src] = 1;
        for (uint32_t i = 0; i < count; i++) {
            const leg *h = &hops[i];
            cr_assert(h->src < ranks && h->dst < ranks);
            const fcp_fabric fabric = h->src / gpus == h->dst / gpus ? FCP_LOCAL : FCP_NET;
            const uint32_t parent = parent_of(hops, i);
            cr_assert_eq(parent == FCP_NONE, h->src == want->src, "a hop leaves from where an earlier one leads");
            cr_assert_eq(reached[h->dst]++, 0, "rank %u is reached twice", h->dst);
            if (fabric == FCP_NET) entered[h->dst / gpus]++;
            if (fabric == FCP_NET && d->in.rail) cr_assert_eq(h->src % gpus, h->dst % gpus);
            sent[fabric][h->src] += want->bytes, received[fabric][h->dst] += want->bytes;
            uint64_t back = joined ? want->joined : want->back;
            sent[fabric][h->dst] += back, received[fabric][h->src] += back;
            leave += parent == FCP_NONE;
            joined = joined && !near && fabric == FCP_LOCAL;
            cr_assert_leq(depth_of(hops, i), r->depth + 2);
        }
        if (want->joined && want->count) cr_assert_eq(leave, 1, "what is joined leaves its source once");
        for (uint32_t k = 0; k < want->count; k++) {
            uint32_t reader = d->readers[want->first + k];
            cr_assert(reached[reader]);
            if (reader / gpus != want->src / gpus) cr_assert_eq(entered[reader / gpus], 1);
        }
        for (uint32_t v = 0; v < ranks / gpus; v++) cr_assert_leq(entered[v], v != want->src / gpus);
    }
    for (int f = 0; f < FCP_FABRICS; f++)
        for (uint32_t i = 0; i < ranks; i++) {
            cr_assert_eq(r->sent[f][i], sent[f][i]);
            cr_assert_eq(r->received[f][i], received[f][i]);
        }
}

static uint64_t busiest(const uint64_t *of, uint32_t ranks) {
    uint64_t most = 0;
    for (uint32_t i = 0; i < ranks; i++) most = of[i] > most ? of[i] : most;
    return most;
}

Test(routes, trees_reach_every_reader_once) {
    uint64_t state = 3;
    static drawn d;
    for (int i = 0; i < 3000; i++) {
        uint32_t gpus = 1 + (uint32_t)draw(&state, 6), nodes = 1 + (uint32_t)draw(&state, 8);
        draw_wants(&d, &state, gpus, nodes, 1 + (uint32_t)draw(&state, WANTS), gpus * nodes);
        d.in.rail = draw(&state, 2);
        arena a = {0};
        routes r, again;
        cr_assert_eq(routes_find(&d.in, &a, &a, &r), FCP_OK);
        check(&d, &r);
        cr_assert_eq(routes_find(&d.in, &a, &a, &again), FCP_OK);
        cr_assert_eq(again.start[d.in.want_count], r.start[d.in.want_count]);
        for (uint32_t h = 0; h < r.start[d.in.want_count]; h++)
            cr_assert(again.hops[h].src == r.hops[h].src && again.hops[h].dst == r.hops[h].dst);
        arena_free(&a);
    }
}

/* One rank has everything, and every node reads it. If it sent a copy to each node, it would send nine times as much as
 * there is. Other nodes pass it on, and the other ranks of its node send, too; on rails each over its own rail. */
Test(routes, relays_relieve_the_home) {
    static drawn d;
    const uint32_t gpus = 4, nodes = 10, wants = 30;
    uint32_t count = 0;
    for (uint32_t w = 0; w < wants; w++) {
        d.wants[w] = (route_want){.src = 1, .first = count, .bytes = 100};
        for (uint32_t v = 1; v < nodes; v++) d.readers[count++] = v * gpus + w % gpus;
        d.wants[w].count = nodes - 1;
    }
    d.in = (routes_input){
        .ranks = gpus * nodes, .gpus = gpus, .wants = d.wants, .want_count = wants, .readers = d.readers};
    arena a = {0};
    routes r;
    for (int rail = 0; rail < 2; rail++) {
        d.in.rail = rail;
        cr_assert_eq(routes_find(&d.in, &a, &a, &r), FCP_OK);
        check(&d, &r);
        cr_expect_leq(busiest(r.sent[FCP_NET], d.in.ranks), 100 * wants * 4 / 3, "%lu",
                      busiest(r.sent[FCP_NET], d.in.ranks));
        cr_expect_leq(r.sent[FCP_NET][1], 100 * wants / 2);
    }
    arena_free(&a);
}

/* Three ranks of a node have eight wants with results each, as many as a rank of it must send in all. The fourth has
 * none; without room at the others, all keys of the node, which are at home at the first, would leave by it. */
Test(routes, results_leave_room_for_keys) {
    static drawn d;
    enum { GPUS = 4, EACH = 8, OWNERS = 3, ALL = EACH * (OWNERS + 1) };
    for (uint32_t w = 0; w < ALL; w++) {
        const bool keys = w >= EACH * OWNERS;
        d.readers[w] = GPUS + w % GPUS;
        d.wants[w] = (route_want){.src = keys ? 0 : w / EACH, .first = w, .count = 1, .bytes = 100,
                                  .back = keys ? 0 : 10};
    }
    d.in = (routes_input){.ranks = 2 * GPUS, .gpus = GPUS, .wants = d.wants,
                          .want_count = ALL, .readers = d.readers};
    arena a = {0};
    routes r;
    cr_assert_eq(routes_find(&d.in, &a, &a, &r), FCP_OK);
    check(&d, &r);
    uint64_t keys[2 * GPUS] = {0};
    for (uint32_t h = r.start[EACH * OWNERS]; h < r.start[ALL]; h++)
        if (r.hops[h].src / GPUS != r.hops[h].dst / GPUS) keys[r.hops[h].src] += 100;
    cr_expect_leq(busiest(keys, 2 * GPUS), 100 * EACH / 2, "%lu", busiest(keys, 2 * GPUS));
    cr_expect_leq(busiest(r.sent[FCP_NET], GPUS), 100 * (EACH + 1));
    arena_free(&a);
}

/* The least that the busiest sender sends over net, over all ways: each node in turn is served by the source or by an
 * earlier node, and received by any of its readers. */
static uint64_t best_of(const drawn *d, uint32_t w, uint32_t i, uint32_t *holders, uint32_t held, uint64_t *sent) {
    const uint32_t gpus = d->in.gpus;
    if (w == d->in.want_count) return busiest(sent, d->in.ranks);
    const route_want *want = &d->wants[w];
    const uint32_t *reader = d->readers + want->first;
    while (i < want->count && reader[i] / gpus == want->src / gpus) i++;
    if (i >= want->count) {
        uint32_t next[RANKS];
        if (w + 1 < d->in.want_count) next[0] = d->wants[w + 1].src;
        return best_of(d, w + 1, 0, next, 1, sent);
    }
    uint32_t end = i;
    while (end < want->count && reader[end] / gpus == reader[i] / gpus) end++;
    uint64_t best = UINT64_MAX;
    for (uint32_t k = i; k < end; k++)
        for (uint32_t h = 0; h < held; h++) {
            uint32_t from = holders[h], mine[RANKS];
            for (uint32_t j = 0; j < held; j++) mine[j] = holders[j];
            mine[held] = reader[k];
            sent[from] += want->bytes;
            uint64_t value = best_of(d, w, end, mine, held + 1, sent);
            sent[from] -= want->bytes;
            if (value < best) best = value;
        }
    return best;
}

Test(routes, loads_against_all_ways) {
    uint64_t state = 11, ours = 0, least = 0;
    static drawn d;
    for (int i = 0; i < 150; i++) {
        uint32_t gpus = 1 + (uint32_t)draw(&state, 2);
        draw_wants(&d, &state, gpus, 4, 2, 2);
        for (uint32_t w = 0; w < 2; w++) d.wants[w].back = d.wants[w].joined = 0, d.wants[w].bytes = 100;
        arena a = {0};
        routes r;
        cr_assert_eq(routes_find(&d.in, &a, &a, &r), FCP_OK);
        check(&d, &r);
        uint64_t sent[RANKS] = {0};
        uint32_t holders[RANKS] = {d.wants[0].src};
        uint64_t best = best_of(&d, 0, 0, holders, 1, sent), got = busiest(r.sent[FCP_NET], d.in.ranks);
        cr_assert_leq(got, 2 * best, "case %d: %lu, best %lu", i, got, best);
        ours += got, least += best;
        arena_free(&a);
    }
    /* more than the best, because a way through many nodes has its price */
    cr_expect_leq(ours * 100, least * 160, "%lu, best %lu", ours, least);
}
