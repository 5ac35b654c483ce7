/* test_colour.c: tests edge colouring: no two edges of a colour meet, there are exactly as many colours as the
 * largest degree, the result is the same every time, and edges of like sizes get the same colour. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/schedule/colour.h"

typedef struct graph {
    uint32_t vertices, edges, *src, *dst, *size, *colour;
} graph;

static uint32_t draw(uint64_t *state, uint32_t bound) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (uint32_t)((*state >> 32) * bound >> 32);
}

static graph new_graph(uint32_t vertices, uint32_t edges) {
    graph g = {.vertices = vertices, .edges = edges};
    size_t bytes = (edges ? edges : 1) * sizeof(uint32_t);
    g.src = malloc(bytes);
    g.dst = malloc(bytes);
    g.size = malloc(bytes);
    g.colour = malloc(bytes);
    cr_assert(g.src && g.dst && g.size && g.colour);
    for (uint32_t e = 0; e < edges; e++) g.src[e] = g.dst[e] = 0, g.size[e] = 1;
    return g;
}

static void free_graph(graph *g) {
    free(g->src);
    free(g->dst);
    free(g->size);
    free(g->colour);
}

static uint32_t delta(const graph *g) {
    uint32_t *degree = calloc(2 * (size_t)g->vertices + 1, sizeof *degree), most = 0;
    cr_assert(degree);
    for (uint32_t e = 0; e < g->edges; e++) {
        uint32_t a = ++degree[g->src[e]], b = ++degree[g->vertices + g->dst[e]];
        if (a > most) most = a;
        if (b > most) most = b;
    }
    free(degree);
    return most;
}

/* Properness by sorting (vertex, colour) pairs of each side: any equal neighbours are a conflict. */
static int compare(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t conflicts(const graph *g, uint32_t colours) {
    uint64_t *keys = malloc((g->edges + 1) * sizeof *keys);
    cr_assert(keys);
    uint32_t found = 0;
    for (int side = 0; side < 2; side++) {
        for (uint32_t e = 0; e < g->edges; e++) {
            found += g->colour[e] >= colours;
            keys[e] = (uint64_t)(side ? g->dst[e] : g->src[e]) << 32 | g->colour[e];
        }
        qsort(keys, g->edges, sizeof *keys, compare);
        for (uint32_t e = 1; e < g->edges; e++) found += keys[e] == keys[e - 1];
    }
    free(keys);
    return found;
}

/* Colours twice (with sizes or without) and checks everything; returns the number of colours. */
static uint32_t check(graph *g, bool sized, const char *what) {
    arena a = {0};
    uint32_t colours = 0, again = 0, *first = malloc((g->edges + 1) * sizeof *first);
    cr_assert(first);
    const uint32_t *size = sized ? g->size : NULL;
    memset(g->colour, 0xff, g->edges * sizeof *g->colour);
    cr_assert_eq(colour_edges(&a, NULL, g->vertices, g->edges, g->src, g->dst, size, g->colour, &colours), FCP_OK);
    cr_assert_eq(colours, delta(g), "%s: %u colours, Delta is %u", what, colours, delta(g));
    cr_assert_eq(conflicts(g, colours), 0, "%s: not proper", what);
    memcpy(first, g->colour, g->edges * sizeof *first);
    memset(g->colour, 0x55, g->edges * sizeof *g->colour);
    cr_assert_eq(colour_edges(&a, NULL, g->vertices, g->edges, g->src, g->dst, size, g->colour, &again), FCP_OK);
    cr_assert(again == colours && !memcmp(first, g->colour, g->edges * sizeof *first), "%s: differs on the second run",
              what);
    free(first);
    arena_free(&a);
    return colours;
}

/* Sum over colours of the largest size, over the heaviest vertex's total. */
static double round_ratio(const graph *g, uint32_t colours) {
    uint64_t *total = calloc(2 * (size_t)g->vertices, sizeof *total), heaviest = 0, sum = 0;
    uint32_t *largest = calloc(colours, sizeof *largest);
    cr_assert(total && largest);
    for (uint32_t e = 0; e < g->edges; e++) {
        total[g->src[e]] += g->size[e];
        total[g->vertices + g->dst[e]] += g->size[e];
        if (g->size[e] > largest[g->colour[e]]) largest[g->colour[e]] = g->size[e];
    }
    for (uint32_t v = 0; v < 2 * g->vertices; v++)
        if (total[v] > heaviest) heaviest = total[v];
    for (uint32_t c = 0; c < colours; c++) sum += largest[c];
    free(total);
    free(largest);
    return (double)sum / (double)heaviest;
}

Test(colour, empty) {
    arena a = {0};
    uint32_t colours = 7;
    cr_assert_eq(colour_edges(&a, NULL, 5, 0, NULL, NULL, NULL, NULL, &colours), FCP_OK);
    cr_assert_eq(colours, 0);
    cr_assert_eq(colour_edges(&a, NULL, 0, 0, NULL, NULL, NULL, NULL, &colours), FCP_OK);
    cr_assert_eq(colours, 0);
    arena_free(&a);
}

Test(colour, one_edge_and_self_loop) {
    graph g = new_graph(9, 1);
    g.src[0] = g.dst[0] = 8;
    cr_assert_eq(check(&g, false, "loop"), 1);
    cr_assert_eq(check(&g, true, "loop"), 1);
    free_graph(&g);
}

Test(colour, stars) {
    for (uint32_t spokes = 1; spokes < 70; spokes++) {
        graph out = new_graph(spokes + 1, spokes), in = new_graph(spokes + 1, spokes),
              both = new_graph(spokes + 1, 2 * spokes);
        for (uint32_t e = 0; e < spokes; e++) {
            out.dst[e] = in.src[e] = both.dst[e] = both.src[spokes + e] = e + 1;
            out.size[e] = in.size[e] = both.size[e] = both.size[spokes + e] = 1 + e % 5;
        }
        cr_assert_eq(check(&out, spokes & 1, "out-star"), spokes);
        cr_assert_eq(check(&in, spokes & 1, "in-star"), spokes);
        cr_assert_eq(check(&both, spokes & 1, "both stars"), spokes);
        free_graph(&out);
        free_graph(&in);
        free_graph(&both);
    }
}

Test(colour, parallel_edges) {
    for (uint32_t edges = 1; edges < 40; edges++) {
        graph g = new_graph(2, edges);
        for (uint32_t e = 0; e < edges; e++) g.src[e] = e % 3 == 0, g.dst[e] = 1, g.size[e] = e;
        cr_assert_eq(check(&g, false, "parallel"), edges);
        cr_assert_eq(check(&g, true, "parallel"), edges);
        free_graph(&g);
    }
}

/* Complete bipartite graphs and circulants: regular, every degree up to 40, even and odd. */
Test(colour, regular) {
    for (uint32_t degree = 1; degree <= 40; degree++) {
        uint32_t n = 41;
        graph g = new_graph(n, n * degree);
        for (uint32_t e = 0; e < g.edges; e++) {
            g.src[e] = e % n;
            g.dst[e] = (e % n + (e / n) * 3) % n;
            g.size[e] = e / n % 4 ? 128 : 1 + e % 100;
        }
        cr_assert_eq(check(&g, false, "circulant"), degree);
        cr_assert_eq(check(&g, true, "circulant"), degree);
        free_graph(&g);
    }
}

/* Random multigraphs of many shapes: dense, sparse, skewed to few senders, few vertices with many parallel edges. */
Test(colour, random) {
    uint64_t state = 42;
    for (int round = 0; round < 400; round++) {
        uint32_t vertices = 1 + draw(&state, round % 4 == 0 ? 3000 : 50),
                 edges = 1 + draw(&state, round % 3 == 0 ? 4000 : 200);
        graph g = new_graph(vertices, edges);
        for (uint32_t e = 0; e < edges; e++) {
            uint32_t a = draw(&state, vertices), b = draw(&state, vertices), c = draw(&state, vertices);
            g.src[e] = round % 5 == 0 ? (uint32_t)((uint64_t)a * b / vertices * c / vertices) : a;
            g.dst[e] = round % 7 == 0 ? (b < c ? b : c) : b;
            g.size[e] = round % 2         ? 1 + draw(&state, 1u << draw(&state, 31))
                        : draw(&state, 3) ? 4096
                                          : draw(&state, 4096);
        }
        check(&g, false, "random");
        check(&g, true, "random, sized");
        free_graph(&g);
    }
}

/* Enough vertices and an odd regular degree, so that the matching search falls back from walks now and then. */
Test(colour, odd_regular_large) {
    uint64_t state = 7;
    uint32_t n = 3000, degree = 7;
    graph g = new_graph(n, n * degree);
    uint32_t *order = malloc(n * sizeof *order);
    cr_assert(order);
    for (uint32_t k = 0; k < degree; k++) {
        for (uint32_t v = 0; v < n; v++) order[v] = v;
        for (uint32_t v = n; v-- > 1;) {
            uint32_t other = draw(&state, v + 1), keep = order[v];
            order[v] = order[other];
            order[other] = keep;
        }
        for (uint32_t v = 0; v < n; v++) g.src[k * n + v] = v, g.dst[k * n + v] = order[v];
    }
    cr_assert_eq(check(&g, false, "union of permutations"), degree);
    free(order);
    free_graph(&g);
}

/* A few edges among many vertices, as in stages of dependent rounds. */
Test(colour, few_edges_among_many_vertices) {
    uint64_t state = 3;
    for (int round = 0; round < 200; round++) {
        graph g = new_graph(16384, 10);
        for (uint32_t e = 0; e < g.edges; e++) {
            g.src[e] = round % 2 ? draw(&state, 16384) : 16380 + draw(&state, 4);
            g.dst[e] = draw(&state, 16384);
        }
        check(&g, false, "few");
        free_graph(&g);
    }
    arena a = {0}; /* and takes no memory for the vertices that have none */
    uint32_t src[10] = {0}, dst[10] = {0}, colour[10], colours;
    for (uint32_t e = 0; e < 10; e++) dst[e] = 1000000000u + e;
    cr_assert_eq(colour_edges(&a, NULL, 2000000000u, 10, src, dst, NULL, colour, &colours), FCP_OK);
    cr_assert_eq(colours, 10);
    cr_assert_lt(a.total, 1u << 17);
    arena_free(&a);
}

/* One sender to all ranks, beside light traffic: memory stays in proportion to the edges. */
Test(colour, skewed_memory) {
    uint64_t state = 9;
    graph g = new_graph(1024, 40000);
    for (uint32_t e = 0; e < g.edges; e++) {
        g.src[e] = e < 20000 ? 17 : draw(&state, 1024);
        g.dst[e] = e % 1024;
    }
    arena a = {0};
    uint32_t colours;
    cr_assert_eq(colour_edges(&a, NULL, g.vertices, g.edges, g.src, g.dst, NULL, g.colour, &colours), FCP_OK);
    cr_assert_eq(colours, delta(&g));
    cr_assert_eq(conflicts(&g, colours), 0);
    cr_assert_lt(a.total, 120u * g.edges);
    arena_free(&a);
    free_graph(&g);
}

/* Mixed sizes: the sum of round maxima stays near the heaviest rank's bytes. */
Test(colour, sizes_gather) {
    static const struct {
        uint32_t vertices, edges, small;
        int kind;
    } mixes[] = {
        {64, 3000, 20, 0},   {256, 20000, 5, 0},  {256, 20000, 30, 0},
        {256, 20000, 15, 1}, {256, 25600, 30, 2}, {64, 3200, 10, 2},
    };
    uint64_t state = 11;
    for (size_t i = 0; i < sizeof mixes / sizeof *mixes; i++) {
        uint32_t n = mixes[i].vertices;
        graph g = new_graph(n, mixes[i].edges);
        for (uint32_t e = 0; e < g.edges; e++) {
            g.src[e] = mixes[i].kind == 2 ? e % n : draw(&state, n);
            g.dst[e] = mixes[i].kind == 2 ? (e % n + e / n * 7) % n : draw(&state, n);
            if (mixes[i].kind == 1) g.src[e] = (uint32_t)((uint64_t)g.src[e] * draw(&state, n) / n);
            g.size[e] = draw(&state, 100) < mixes[i].small ? 1 + draw(&state, 4096) : 4096;
        }
        uint32_t colours = check(&g, true, "mix");
        double ratio = round_ratio(&g, colours);
        cr_assert_leq(ratio, 1.1, "mix %zu: %.4f", i, ratio);
        free_graph(&g);
    }
    /* small units only at the busiest rank: they must have colours of their own */
    graph g = new_graph(32, 0);
    free_graph(&g);
    g = new_graph(32, 40 + 31 * 20);
    for (uint32_t e = 0; e < g.edges; e++) {
        g.src[e] = e < 40 ? 0 : 1 + (e - 40) / 20;
        g.dst[e] = e % 32;
        g.size[e] = e < 40 && e % 2 ? 10 : 1000;
    }
    uint32_t colours = check(&g, true, "busiest");
    cr_assert_eq(colours, 40);
    cr_assert_leq(round_ratio(&g, colours), 1.15);
    free_graph(&g);
}
