/* colour.c: colours transfers so that in each colour a rank sends at most one unit and receives at most one. A colour
 * becomes a round.
 *
 * Requires: edges from senders to receivers; a rank as sender and as receiver is two vertices. Sizes of edges, or NULL.
 * Gives: an edge colouring with exactly Delta colours, the largest degree (Koenig 1916); the same for the same input.
 *     Edges of like size share colours where Delta allows.
 * Cost: O(E log Delta) time, O(E + vertices) memory; O(E) of both where few edges lie among many vertices.
 *
 * If there are fewer edges than vertices, the vertices without an edge are dropped first, by hashing. colour_by_size.c
 * then divides the edges by size, and euler.c colours each layer.
 */
#include "compiler/schedule/colour.h"

#include "compiler/schedule/colour_parts.h"

#define NOTHING UINT32_MAX

/* Numbers the values of end[] in the order in which they first appear: out[e] is the number of end[e]. The hash table
 * has open addressing and `slots` entries, a power of two and more than twice the number of edges. first[i] becomes the
 * value with number i. Returns how many values there are. */
static uint32_t number_values(const uint32_t *end, uint32_t edges, uint32_t *table, uint32_t slots, uint32_t *first,
                              uint32_t *out) {
    uint32_t found = 0, shift = 32 - (uint32_t)__builtin_ctz(slots);
    for (uint32_t i = 0; i < slots; i++) table[i] = NOTHING;
    for (uint32_t e = 0; e < edges; e++) {
        uint32_t at = (end[e] * 0x9e3779b1u) >> shift;
        while (table[at] != NOTHING && first[table[at]] != end[e]) at = (at + 1) & (slots - 1);
        if (table[at] == NOTHING) {
            first[found] = end[e];
            table[at] = found++;
        }
        out[e] = table[at];
    }
    return found;
}

/* Drops vertices without edges, by renumbering the others. */
static fcp_code drop_idle_vertices(arena *scratch, bigraph *g) {
    uint32_t slots = 4;
    while (slots <= 2 * g->edges) slots *= 2;
    uint32_t *left = ARENA_NEW(scratch, uint32_t, g->edges), *right = ARENA_NEW(scratch, uint32_t, g->edges);
    uint32_t *first = ARENA_NEW(scratch, uint32_t, g->edges), *table = ARENA_NEW(scratch, uint32_t, slots);
    if (!left || !right || !first || !table) return FCP_E_NO_MEMORY;
    g->lefts = number_values(g->left, g->edges, table, slots, first, left);
    g->rights = number_values(g->right, g->edges, table, slots, first, right);
    g->left = left;
    g->right = right;
    return FCP_OK;
}

/* Gives all edges colour 0. For edges that share no vertex, as in most stages of a small plan. */
static fcp_code one_colour(uint32_t edges, uint32_t *out_colour, uint32_t *out_colours) {
    for (uint32_t e = 0; e < edges; e++) out_colour[e] = 0;
    *out_colours = 1;
    return FCP_OK;
}

fcp_code colour_edges(arena *scratch, const volatile int *stop, uint32_t vertices, uint32_t edges, const uint32_t *src,
                      const uint32_t *dst, const uint32_t *size, uint32_t *out_colour, uint32_t *out_colours) {
    *out_colours = 0;
    if (!edges) return FCP_OK;
    if (edges > INT32_MAX) return FCP_E_NO_MEMORY;
    bigraph g = {vertices, vertices, edges, src, dst, stop};
    if (edges < vertices) {
        fcp_code code = drop_idle_vertices(scratch, &g);
        if (code) return code;
        if (g.lefts == edges && g.rights == edges) return one_colour(edges, out_colour, out_colours);
    }
    colour_work work = {0};
    uint32_t *ids = ARENA_NEW(scratch, uint32_t, edges);
    work.left = ARENA_NEW(scratch, uint32_t, g.lefts);
    work.right = ARENA_NEW(scratch, uint32_t, g.rights);
    if (!ids || !work.left || !work.right) return FCP_E_NO_MEMORY;
    for (uint32_t e = 0; e < edges; e++) ids[e] = e;
    uint32_t starts[COLOUR_MAX_LAYERS + 1] = {0, edges}, layers = 1, colours = 0;
    if (size) {
        fcp_code code = colour_layers(scratch, &g, size, ids, starts, &layers);
        if (code) return code;
    }
    for (uint32_t i = 0; i < layers; i++) {
        uint32_t degree;
        fcp_code code =
            colour_euler(scratch, &work, &g, ids + starts[i], starts[i + 1] - starts[i], colours, out_colour, &degree);
        if (code) return code;
        colours += degree;
    }
    *out_colours = colours;
    return FCP_OK;
}
