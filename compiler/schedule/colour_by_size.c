/* colour_by_size.c: divides the edges of a bipartite multigraph into layers of like size, at no cost in colours.
 *
 * Why: a colour becomes a round, and a round takes as long as its largest unit. Example: ranks 0 and 1 each send a unit
 * of 128 tokens and one of 8. If each round has one of either size, both rounds last as long as 128 tokens take. If the
 * large units share one round and the small ones the other, the second lasts as long as 8 tokens take.
 *
 * Requires: edges with sizes, in any one unit.
 * Gives: an order of the edges, and where each layer begins. The largest degrees of the layers add up to Delta, the
 *     largest degree of the graph. So if each layer is coloured with as many colours as its own largest degree, that
 *     takes Delta colours in all. If all sizes are equal there is one layer.
 * Cost: O(E) for each division, of which there are at most 15.
 *
 * The colouring with the smallest sum of its colours' largest sizes is NP-hard to find. So this is a heuristic: a layer
 * of degree D is divided in two, and each half again, by these steps:
 *
 * 1. Choose a size t. Edges larger than t are heavy, the others may be light. The heavy edges need Delta(heavy) colours
 *    at least, so at most k = D - Delta(heavy) colours could hold light edges alone. Each of these colours becomes
 *    shorter by (largest size - t). The t is chosen for which k (largest size - t) is largest.
 * 2. Seek the light layer: a set F of light edges that k colours can hold, such that D - k colours can hold the other
 *    edges. In degrees: deg(v) - (D - k) <= deg_F(v) <= k at every vertex v. The set of all light edges meets the lower
 *    bound. Where it exceeds the upper bound, edges are moved to the heavy layer: directly while both ends can spare
 *    the edge, then along alternating paths.
 * 3. If there is no such set, try a smaller k. (If there is a set for k, there is one for k - 1: leave out one colour.)
 */
#include <string.h>

#include "compiler/schedule/colour_parts.h"
#include "compiler/schedule/schedule_tuning.h"
#include "runtime/base/stop.h"

enum { STRETCH = 1 << 16 }; /* edges between two looks at stop */

typedef struct light_edge {
    uint32_t edge, left, right; /* right: among all vertices */
} light_edge;
typedef struct half_edge {
    uint32_t edge, other; /* other: the vertex at its other end */
} half_edge;
/* The state of a vertex, as bits. OVER: it has more than k light edges. SPARE: it can spare a light edge. */
enum { OVER = 1, SPARE = 2 };

typedef struct layering {
    const bigraph *g;
    const uint32_t *size;
    uint32_t *ids, *spare;
    uint8_t *bucket;                    /* per edge */
    uint64_t *light, *may_light;        /* a bit for each edge, to fit into the first cache: it is in the light set; its
                                         * bucket is light */
    uint32_t *count;                    /* per vertex (lefts, then rights): edges by bucket */
    uint32_t *degree, *inside;          /* per vertex: its edges in the layer, and in the light set */
    uint32_t *may_inside;               /* per vertex: its edges that may be light */
    light_edge *may;                    /* the edges that may be light: by bucket, the largest first */
    uint32_t may_count;
    uint32_t *first;                    /* per vertex, + 1: where its edges that may be light begin */
    half_edge *edges_of;
    bool listed;                        /* first and edges_of are filled */
    uint32_t *cursor, *stack, *entered; /* per vertex: the search for a path */
    uint8_t *seen;
    uint32_t *starts;
    uint32_t layers;
    bool stopped; /* stop was asked for: whatever is made from then on is rubbish */
} layering;

static inline bool is_light(const layering *s, uint32_t e) { return s->light[e / 64] >> e % 64 & 1; }
static inline void flip_light(layering *s, uint32_t e) { s->light[e / 64] ^= UINT64_C(1) << e % 64; }
static bool is_stopped(layering *s) { return s->stopped = s->stopped || fcp_stop_asked(s->g->stop); }

/* Returns the bucket of a size. SIZE_CLASSES buckets of equal width divide the sizes up to hi: edges of buckets from i
 * on are larger than hi * i / SIZE_CLASSES. Comparing with all limits is quicker than dividing. */
static inline uint32_t bucket_of(uint32_t size, uint32_t hi) {
    uint32_t bucket = 0;
    for (uint64_t i = 1; i < SIZE_CLASSES; i++) bucket += size > hi * i / SIZE_CLASSES;
    return bucket;
}

/* Fills bucket and count for a layer. Chooses the bucket below which edges are light (*out_from), and returns how many
 * colours could hold light edges alone; 0: no choice gains enough. */
static uint32_t choose_limit(layering *s, const uint32_t *ids, uint32_t edges, uint32_t degree, uint32_t *out_from) {
    const bigraph *g = s->g;
    uint32_t vertices = g->lefts + g->rights, hi = 0, lo = UINT32_MAX;
    uint32_t most[SIZE_CLASSES] = {0}, largest[SIZE_CLASSES] = {0};
    for (uint32_t i = 0; i < edges; i++) {
        uint32_t size = s->size[ids[i]];
        hi = size > hi ? size : hi;
        lo = size < lo ? size : lo;
    }
    uint64_t best = (uint64_t)degree * hi / DIVISION_GAIN;
    if ((uint64_t)degree * (hi - lo) <= best) return 0; /* no division gains so much */
    memset(s->count, 0, (size_t)vertices * SIZE_CLASSES * sizeof *s->count);
    for (uint32_t i = 0; i < edges; i++) {
        uint32_t e = ids[i], b = bucket_of(s->size[e], hi);
        s->bucket[e] = (uint8_t)b;
        if (s->size[e] > largest[b]) largest[b] = s->size[e];
        s->count[(size_t)g->left[e] * SIZE_CLASSES + b]++;
        s->count[((size_t)g->lefts + g->right[e]) * SIZE_CLASSES + b]++;
    }
    for (uint32_t v = 0; v < vertices; v++)
        for (uint32_t b = SIZE_CLASSES, sum = 0; b-- > 0;) {
            sum += s->count[(size_t)v * SIZE_CLASSES + b];
            if (sum > most[b]) most[b] = sum;
        }
    uint32_t colours = 0, below = largest[0];
    for (uint32_t b = 1; b < SIZE_CLASSES; b++) {
        uint64_t gain = (uint64_t)(degree - most[b]) * (hi - below);
        if (gain > best) {
            best = gain;
            colours = degree - most[b];
            *out_from = b;
        }
        if (largest[b]) below = largest[b];
    }
    return colours;
}

/* --- the light set ----------------------------------------------------------------------------------------------- */

/* May vertex v lose an edge of the light set? Its heavy edges must fit in `rest` colours. */
static bool can_spare(const layering *s, uint32_t v, uint32_t rest) { return s->degree[v] - s->inside[v] < rest; }

/* Sorts the edges of buckets below `from` by bucket. Counts the edges of every vertex. */
static void sort_light_edges(layering *s, const uint32_t *ids, uint32_t edges, uint32_t from) {
    const bigraph *g = s->g;
    uint32_t at[SIZE_CLASSES] = {0}; /* by bucket: how many; then where its next edge goes */
    for (uint32_t v = 0; v < g->lefts + g->rights; v++) {
        const uint32_t *count = s->count + (size_t)v * SIZE_CLASSES;
        s->degree[v] = s->may_inside[v] = 0;
        for (uint32_t b = 0; b < SIZE_CLASSES; b++) {
            s->degree[v] += count[b];
            s->may_inside[v] += b < from ? count[b] : 0;
            at[b] += v < g->lefts ? count[b] : 0;
        }
    }
    s->may_count = 0;
    for (uint32_t b = from; b-- > 0;) {
        uint32_t count = at[b];
        at[b] = s->may_count;
        s->may_count += count;
    }
    memset(s->may_light, 0, (g->edges / 64 + 1) * sizeof *s->may_light);
    for (uint32_t i = 0; i < edges; i++) {
        uint32_t e = ids[i], b = s->bucket[e];
        if (b >= from) continue;
        s->may[at[b]++] = (light_edge){e, g->left[e], g->lefts + g->right[e]};
        s->may_light[e / 64] |= UINT64_C(1) << e % 64;
    }
    s->listed = false;
}

static uint8_t state_of(const layering *s, uint32_t v, uint32_t k, uint32_t rest) {
    return (uint8_t)((s->inside[v] > k ? OVER : 0) | (can_spare(s, v, rest) ? SPARE : 0));
}

static inline void give_up(layering *s, const light_edge *x, uint8_t *state, uint32_t k, uint32_t rest) {
    flip_light(s, x->edge);
    s->inside[x->left]--;
    s->inside[x->right]--;
    state[x->left] = state_of(s, x->left, k, rest);
    state[x->right] = state_of(s, x->right, k, rest);
}

/* Starts with all edges that may be light, and moves edges to the heavy layer, the largest first, while both ends can
 * spare them:
 * 1. The first loop moves edges both of whose ends have too many light edges (both are OVER).
 * 2. The second loop moves edges of which one end has too many.
 * A vertex that is no longer OVER, or can no longer spare an edge (SPARE), stays so. Therefore the first loop can list
 * the edges that the second must look at. It writes the list without a branch, because which edges are in it cannot be
 * predicted. */
static void give_up_greedily(layering *s, uint32_t k, uint32_t rest) {
    uint32_t vertices = s->g->lefts + s->g->rights, later = 0, *second = s->spare;
    uint8_t *state = s->seen;
    for (uint32_t v = 0; v < vertices; v++) state[v] = state_of(s, v, k, rest);
    const light_edge *may = s->may, *end = may + s->may_count;
    for (const light_edge *x = may; x < end;) {
        const light_edge *stretch = end - x > STRETCH ? x + STRETCH : end;
        if (is_stopped(s)) return;
        for (; x < stretch; x++) {
            uint32_t left = state[x->left], right = state[x->right], both = left & right;
            second[later] = (uint32_t)(x - may);
            later += both / SPARE & (left | right);
            if (both == (SPARE | OVER)) give_up(s, x, state, k, rest);
        }
    }
    for (uint32_t i = 0; i < later; i++) {
        const light_edge *x = &s->may[second[i]];
        uint32_t both = state[x->left] & state[x->right], any = state[x->left] | state[x->right];
        if (both / SPARE & any && is_light(s, x->edge)) give_up(s, x, state, k, rest);
    }
}

static bool any_over(const layering *s, uint32_t vertices, uint32_t k) {
    for (uint32_t v = 0; v < vertices; v++)
        if (s->inside[v] > k) return true;
    return false;
}

/* Lists the edges of buckets below `from` by vertex. */
static void list_light_edges(layering *s, const uint32_t *ids, uint32_t edges, uint32_t from) {
    const bigraph *g = s->g;
    uint32_t vertices = g->lefts + g->rights, sum = 0;
    if (s->listed) return;
    s->listed = true;
    for (uint32_t v = 0; v < vertices; v++) {
        s->first[v] = sum;
        for (uint32_t b = 0; b < from; b++) sum += s->count[(size_t)v * SIZE_CLASSES + b];
        s->cursor[v] = s->first[v];
    }
    s->first[vertices] = sum;
    for (uint32_t i = 0; i < edges; i++) {
        uint32_t e = ids[i];
        if (s->bucket[e] >= from) continue;
        uint32_t l = g->left[e], r = g->lefts + g->right[e];
        s->edges_of[s->cursor[l]++] = (half_edge){e, r};
        s->edges_of[s->cursor[r]++] = (half_edge){e, l};
    }
}

/* Returns the first edge from `at` on whose other end was not seen yet, and which is in the light set (if `leaves`) or
 * is not in it (if not). Both conditions are one branch, because most edges fail one of them. */
static const half_edge *find_half(const layering *s, const half_edge *at, const half_edge *end, bool leaves) {
    const uint64_t *light = s->light, turned = leaves ? 0 : UINT64_MAX;
    const uint8_t *seen = s->seen;
    while (at < end && !((light[at->edge / 64] ^ turned) >> at->edge % 64 & ~seen[at->other] & 1)) at++;
    return at;
}

/* Makes `start` lose one light edge, along an alternating path: its edges leave and join the light set in turn. The
 * search is depth first, and goes on from where the phase's earlier searches stopped. False: there is no such path in
 * this phase. */
static bool shift_path(layering *s, uint32_t start, uint32_t k, uint32_t rest) {
    const bigraph *g = s->g;
    bool start_left = start < g->lefts;
    uint32_t depth = 0;
    s->stack[0] = start;
    s->seen[start] = 1;
    for (;;) {
        uint32_t v = s->stack[depth];
        bool leaves = (v < g->lefts) == start_left; /* v loses an edge on this path; else it gains one */
        const half_edge *at = s->edges_of + s->cursor[v], *end = s->edges_of + s->first[v + 1];
        at = find_half(s, at, end, leaves);
        s->cursor[v] = (uint32_t)(at - s->edges_of);
        if (at == end) {
            if (!depth--) return false;
            continue;
        }
        uint32_t e = at->edge, w = at->other;
        s->cursor[v]++;
        s->seen[w] = 1;
        s->entered[w] = e;
        s->stack[++depth] = w;
        if (leaves ? !can_spare(s, w, rest) : s->inside[w] >= k) continue;
        s->inside[start]--;
        s->inside[w] += leaves ? UINT32_MAX : 1;
        for (; depth; depth--) flip_light(s, s->entered[s->stack[depth]]);
        return true;
    }
}

/* Seeks the light set for k colours among the edges of buckets below `from`. */
static bool find_light(layering *s, const uint32_t *ids, uint32_t edges, uint32_t degree, uint32_t from, uint32_t k) {
    const bigraph *g = s->g;
    uint32_t vertices = g->lefts + g->rights, rest = degree - k;
    memcpy(s->inside, s->may_inside, vertices * sizeof *s->inside);
    memcpy(s->light, s->may_light, (g->edges / 64 + 1) * sizeof *s->light);
    give_up_greedily(s, k, rest);
    if (s->stopped || !any_over(s, vertices, k)) return !s->stopped;
    list_light_edges(s, ids, edges, from);
    for (int phase = 0; phase < PATH_PHASES; phase++) {
        bool moved = false, over = false;
        for (int side = 0; side < 2; side++) {
            memset(s->seen, 0, vertices);
            memcpy(s->cursor, s->first, vertices * sizeof *s->cursor);
            for (uint32_t v = side ? g->lefts : 0; v < (side ? vertices : g->lefts); v++) {
                if ((v & 255) == 255 && is_stopped(s)) return false;
                while (s->inside[v] > k && shift_path(s, v, k, rest)) moved = true;
                over |= s->inside[v] > k;
            }
        }
        if (!over) return true;
        if (!moved) return false;
    }
    return false;
}

/* --- layers ------------------------------------------------------------------------------------------------------ */

/* Returns the largest number of colours, k or less, for which it finds a light set; 0: none. It tries k, then the
 * smallest number of a short list, then the others from the largest down. The smallest comes second because it saves
 * time: if it has no set, no larger number has one, which is the case in most layers. */
static uint32_t find_largest(layering *s, const uint32_t *ids, uint32_t edges, uint32_t degree, uint32_t from,
                             uint32_t k) {
    uint32_t numbers[COLOUR_NUMBERS], count = 0;
    for (; k && count < COLOUR_NUMBERS; k -= (k + 15) / 16) numbers[count++] = k;
    for (uint32_t i = 0; i < count && !s->stopped; i++) {
        if (find_light(s, ids, edges, degree, from, numbers[i])) return numbers[i];
        if (!i && !find_light(s, ids, edges, degree, from, numbers[count - 1])) break;
    }
    return 0;
}

static void split_layer(layering *s, uint32_t begin, uint32_t end, uint32_t degree, uint32_t depth) {
    uint32_t *ids = s->ids + begin, edges = end - begin, from = 0, k = 0;
    if (is_stopped(s)) return;
    if (depth < DIVISIONS_DEEP && edges && degree > 1) k = choose_limit(s, ids, edges, degree, &from);
    if (k) {
        sort_light_edges(s, ids, edges, from);
        k = find_largest(s, ids, edges, degree, from, k);
    }
    if (s->stopped) return;
    if (!k) {
        s->starts[s->layers++] = begin;
        return;
    }
    uint32_t heavy = 0, light = 0;
    for (uint32_t i = 0; i < edges; i++) {
        uint32_t e = ids[i];
        if (is_light(s, e)) s->spare[light++] = e;
        else ids[heavy++] = e;
    }
    memcpy(ids + heavy, s->spare, (size_t)light * sizeof *ids);
    split_layer(s, begin, begin + heavy, degree - k, depth + 1);
    split_layer(s, begin + heavy, end, k, depth + 1);
}

fcp_code colour_layers(arena *scratch, const bigraph *g, const uint32_t *size, uint32_t *ids,
                       uint32_t starts[COLOUR_MAX_LAYERS + 1], uint32_t *out_layers) {
    bool alike = true;
    for (uint32_t e = 1; e < g->edges && alike; e++) alike = size[e] == size[0];
    starts[0] = 0;
    starts[1] = g->edges;
    *out_layers = 1;
    if (alike) return FCP_OK;
    uint32_t degree = 0, vertices = g->lefts + g->rights;
    layering s = {.g = g, .size = size, .ids = ids, .starts = starts};
    s.spare = ARENA_NEW(scratch, uint32_t, g->edges);
    s.bucket = ARENA_NEW(scratch, uint8_t, g->edges);
    s.light = ARENA_NEW(scratch, uint64_t, g->edges / 64 + 1);
    s.may_light = ARENA_NEW(scratch, uint64_t, g->edges / 64 + 1);
    s.count = ARENA_NEW(scratch, uint32_t, (size_t)vertices * SIZE_CLASSES);
    s.may = ARENA_NEW(scratch, light_edge, g->edges);
    s.degree = ARENA_ZNEW(scratch, uint32_t, vertices);
    s.inside = ARENA_NEW(scratch, uint32_t, vertices);
    s.may_inside = ARENA_NEW(scratch, uint32_t, vertices);
    s.first = ARENA_NEW(scratch, uint32_t, (size_t)vertices + 1);
    s.edges_of = ARENA_NEW(scratch, half_edge, 2 * (size_t)g->edges);
    s.cursor = ARENA_NEW(scratch, uint32_t, vertices);
    s.stack = ARENA_NEW(scratch, uint32_t, vertices);
    s.entered = ARENA_NEW(scratch, uint32_t, vertices);
    s.seen = ARENA_NEW(scratch, uint8_t, vertices);
    if (!s.spare || !s.bucket || !s.light || !s.may_light || !s.may_inside || !s.count || !s.degree || !s.inside ||
        !s.first || !s.edges_of || !s.may || !s.cursor || !s.stack || !s.entered || !s.seen)
        return FCP_E_NO_MEMORY;
    for (uint32_t e = 0; e < g->edges; e++) {
        uint32_t l = ++s.degree[g->left[e]], r = ++s.degree[g->lefts + g->right[e]];
        degree = l > degree ? l : degree;
        degree = r > degree ? r : degree;
    }
    split_layer(&s, 0, g->edges, degree, 0);
    if (s.stopped) return FCP_E_INTERRUPTED;
    s.starts[s.layers] = g->edges;
    *out_layers = s.layers;
    return FCP_OK;
}
