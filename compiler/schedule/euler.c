/* euler.c: colours the edges of a bipartite multigraph with exactly Delta colours, by Euler splits.
 *
 * Requires: a set of edges between two sides of vertices.
 * Gives: an edge colouring with Delta colours, where Delta is the largest degree; the same for the same input.
 * Cost: O(E log Delta) time and O(E) memory, both with small constants: padding leaves at most 2 E + Delta edges.
 *
 * 1. Vertices of a side are merged into groups, in order, while their degrees add up to at most Delta. A colouring of
 *    the merged graph is also one of the original graph. Any two neighbouring groups together have more than Delta
 *    edges, so at most 2 E / Delta + 1 groups remain. Dummy edges then give every group exactly Delta edges.
 * 2. A graph in which every vertex has d edges, d even, splits into two halves in which every vertex has d / 2. Pair
 *    the edges of every vertex; the pairs link all edges into even cycles; the edges of a cycle go to the two halves in
 *    turn (Euler; Gabow 1976). The halves are split again, until d is 1: then a half is a colour class.
 * 3. Where d is odd, a finished colour class is put back into the graph, which makes d even. This is the idea of Gabow
 *    and Kariv (1982), and saves the search for a perfect matching. Level i of the recursion then has at most 2^i
 *    classes more than Delta, which is O(E) extra work in all.
 * 4. Until the first class is finished, there is none to put back. Then a perfect matching is taken out instead, by
 *    truncated random walks over alternating paths (Goel, Kapralov, Khanna 2010: O(n log n) expected) with a seeded
 *    generator; if they fail, by breadth-first search. This happens at most log Delta times.
 *
 * The graph is an array x. Entries u * stride to u * stride + d - 1 are the d edges of left group u; each entry is the
 * right group at the other end. Which edge an entry stands for is decided only at the end, because edges between the
 * same two groups are interchangeable. Splits work in place and depth first, so that small halves stay in the cache.
 */
#include <string.h>

#include "compiler/schedule/colour_parts.h"
#include "compiler/schedule/schedule_tuning.h"
#include "runtime/base/stop.h"

#define NOTHING UINT32_MAX

typedef struct splitter {
    uint32_t n;        /* groups a side */
    uint32_t none;     /* an entry of `mate` that stands for "no edge waits" */
    uint32_t *mate;    /* per entry: the entry it is paired with at its right group */
    uint32_t *waiting; /* per right group: the entry that waits for its mate, or `none` */
    uint8_t *choice;   /* per pair of entries of a left group: which one goes to the first half */
    uint32_t *classes; /* finished colour classes: n right groups each */
    uint32_t class_count;
    uint64_t seed;
    const volatile int *stop;
    bool stopped; /* stop was asked for: whatever is made from then on is rubbish */
    /* the matching search, per group */
    uint32_t *taken; /* left: the entry matched, or NOTHING */
    uint32_t *owner; /* right: the left group matched to it, or NOTHING */
    uint32_t *next;  /* left: the entry by which a path leaves it */
    uint32_t *via;   /* right: the entry by which a search reached it, or NOTHING */
    uint32_t *queue;
} splitter;

static uint32_t stride_of(uint32_t degree) { return degree == 1 ? 1 : degree + (degree & 1); }

/* A number below `bound`, from the high half of a 64-bit linear congruential generator. */
static uint32_t draw(splitter *s, uint32_t bound) {
    s->seed = s->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((s->seed >> 32) * bound >> 32);
}

static bool is_stopped(splitter *s) { return s->stopped = s->stopped || fcp_stop_asked(s->stop); }

/* --- Euler split ------------------------------------------------------------------------------------------------- */

/* Splits x (n groups of d entries, d even) into a and b (d / 2 entries a group, at strides). b may be x itself. */
static void split(splitter *s, uint32_t *x, uint32_t d, uint32_t *a, uint32_t *b, uint32_t stride) {
    uint32_t m = s->n * d, none = s->none, *mate = s->mate, *waiting = s->waiting;
    uint8_t *choice = s->choice;
    if (is_stopped(s)) return;
    for (uint32_t i = 0; i < m; i++) { /* without a branch, which could not be predicted */
        uint32_t v = x[i], other = waiting[v];
        mate[i] = other;
        mate[other] = i; /* to mate[none], which nobody reads, when none waits */
        waiting[v] = none ^ ((i ^ none) & -(uint32_t)(other == none)); /* i or none: a ?: becomes a jump at -O3 */
    }
    memset(choice, 2, m / 2);
    if (is_stopped(s)) return;
    for (uint32_t p = 0; p < m / 2; p++) {
        if (choice[p] != 2) continue;
        choice[p] = 0; /* then along the cycle in both directions at once, which is faster, until they meet */
        for (uint32_t ahead = mate[2 * (size_t)p + 1], back = mate[2 * (size_t)p];;) {
            if (choice[ahead >> 1] != 2) break;
            choice[ahead >> 1] = (uint8_t)(ahead & 1);
            ahead = mate[ahead ^ 1];
            if (choice[back >> 1] != 2) break;
            choice[back >> 1] = (uint8_t)(~back & 1);
            back = mate[back ^ 1];
        }
    }
    uint32_t h = d / 2;
    if (h == stride) {
        for (size_t p = 0; p < m / 2; p++) {
            uint32_t first = x[2 * p], second = x[2 * p + 1], swap = (first ^ second) & -(uint32_t)choice[p];
            a[p] = first ^ swap;
            b[p] = second ^ swap;
        }
        return;
    }
    for (uint32_t u = 0; u < s->n; u++) {
        const uint32_t *from = x + (size_t)u * d;
        uint32_t *to_a = a + (size_t)u * stride, *to_b = b + (size_t)u * stride;
        for (uint32_t p = 0; p < h; p++) {
            uint32_t first = from[2 * (size_t)p], second = from[2 * (size_t)p + 1];
            uint32_t swap = (first ^ second) & -(uint32_t)choice[u * h + p];
            to_a[p] = first ^ swap;
            to_b[p] = second ^ swap;
        }
    }
}

/* --- one perfect matching ---------------------------------------------------------------------------------------- */

/* Augments the matching along the path that leaves `u` by next[u] and ends at a free right group. */
static void augment(splitter *s, const uint32_t *x, uint32_t u) {
    for (;;) {
        uint32_t entry = s->next[u], v = x[entry], w = s->owner[v];
        s->taken[u] = entry;
        s->owner[v] = u;
        if (w == NOTHING) return;
        u = w;
    }
}

/* Seeks an augmenting path by a random walk from the free left group `start`: to the right by any edge that is not
 * matched, back by the matched edge. next[u] is overwritten at every visit, which cuts loops out of the path. */
static bool walk(splitter *s, const uint32_t *x, uint32_t d, uint32_t stride, uint32_t start, uint32_t limit) {
    for (uint32_t u = start, step = 0; step < limit; step++) {
        uint32_t first = u * stride, entry;
        if (s->taken[u] == NOTHING) {
            entry = first + draw(s, d);
        } else {
            entry = first + draw(s, d - 1);
            entry += entry >= s->taken[u];
        }
        s->next[u] = entry;
        uint32_t w = s->owner[x[entry]];
        if (w == NOTHING) return true;
        u = w;
    }
    return false;
}

/* Seeks an augmenting path by breadth-first search, which always succeeds, because a regular bipartite graph has a
 * perfect matching. */
static void search(splitter *s, const uint32_t *x, uint32_t d, uint32_t stride, uint32_t start) {
    memset(s->via, 0xff, (size_t)s->n * sizeof *s->via);
    uint32_t head = 0, tail = 0, v = NOTHING;
    s->queue[tail++] = start;
    while (head < tail && v == NOTHING) {
        uint32_t first = s->queue[head++] * stride;
        for (uint32_t i = first; i < first + d; i++) {
            if (s->via[x[i]] != NOTHING) continue;
            s->via[x[i]] = i;
            if (s->owner[x[i]] == NOTHING) {
                v = x[i];
                break;
            }
            s->queue[tail++] = s->owner[x[i]];
        }
    }
    for (uint32_t u = NOTHING; u != start;) { /* from the free group back to the start */
        uint32_t entry = s->via[v];
        u = entry / stride;
        uint32_t before = s->taken[u];
        s->next[u] = entry;
        if (u != start) v = x[before];
    }
}

/* Moves a perfect matching from x to `out`. x has d entries a group, d odd and at least 3, at stride d + 1; afterwards
 * it has d - 1 entries a group, at stride d - 1. */
static void take_matching(splitter *s, uint32_t *x, uint32_t d, uint32_t *out) {
    uint32_t n = s->n, stride = d + 1;
    memset(s->taken, 0xff, (size_t)n * sizeof *s->taken);
    memset(s->owner, 0xff, (size_t)n * sizeof *s->owner);
    for (uint32_t u = 0; u < n; u++) {
        uint32_t limit = 4 + 2 * (n / (n - u));
        if (!(u & 1023) && is_stopped(s)) return;
        bool found = false;
        for (int attempt = 0; attempt < WALKS && !found; attempt++) found = walk(s, x, d, stride, u, limit);
        if (!found) search(s, x, d, stride, u);
        augment(s, x, u);
    }
    uint32_t to = 0;
    for (uint32_t u = 0; u < n; u++) {
        uint32_t first = u * stride;
        out[u] = x[s->taken[u]];
        for (uint32_t i = first; i < first + d; i++)
            if (i != s->taken[u]) x[to++] = x[i];
    }
}

/* --- the recursion ----------------------------------------------------------------------------------------------- */

/* Colours x, which has d entries a group at stride_of(d): adds its colour classes to s->classes. */
static void colour_node(splitter *s, uint32_t *x, uint32_t d, uint32_t *spare) {
    uint32_t n = s->n;
    if (is_stopped(s)) return;
    if (d == 1) {
        memcpy(s->classes + (size_t)s->class_count++ * n, x, (size_t)n * sizeof *x);
        return;
    }
    if (d & 1) {
        if (s->class_count) {
            const uint32_t *again = s->classes + (size_t)--s->class_count * n;
            for (uint32_t u = 0; u < n; u++) x[(size_t)u * (d + 1) + d] = again[u];
            d++;
        } else {
            take_matching(s, x, d, s->classes);
            if (s->stopped) return;
            s->class_count++;
            d--;
        }
    }
    uint32_t h = d / 2, stride = stride_of(h);
    if (h == 1) {
        uint32_t *a = s->classes + (size_t)s->class_count * n;
        split(s, x, d, a, a + n, 1);
        s->class_count += 2;
        return;
    }
    split(s, x, d, spare, x, stride);
    colour_node(s, spare, h, spare + (size_t)n * stride);
    colour_node(s, x, h, spare);
}

/* How many entries of spare space colour_node needs for a degree. */
static uint64_t spare_entries(uint32_t n, uint32_t degree) {
    uint64_t entries = 0;
    for (uint32_t d = degree + (degree & 1); d > 2;) {
        uint32_t stride = stride_of(d / 2);
        entries += (uint64_t)n * stride;
        d = stride;
    }
    return entries;
}

/* --- from edges to entries and back ------------------------------------------------------------------------------ */

/* Merges vertices into groups, in order, while their degrees add up to at most `most`. degree[v] becomes the group of
 * v. Returns the number of groups. */
static uint32_t merge(uint32_t *degree, uint32_t vertices, uint32_t most) {
    uint32_t groups = 0, sum = 0;
    for (uint32_t v = 0; v < vertices; v++) {
        if (sum + degree[v] > most) {
            groups++;
            sum = 0;
        }
        sum += degree[v];
        degree[v] = groups;
    }
    return groups + 1;
}

/* Counts the edges of each vertex of a side; returns the largest degree. */
static uint32_t count_degrees(const uint32_t *end, const uint32_t *ids, uint32_t count, uint32_t *degree,
                              uint32_t vertices) {
    uint32_t most = 0;
    memset(degree, 0, (size_t)vertices * sizeof *degree);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t d = ++degree[end[ids[i]]];
        if (d > most) most = d;
    }
    return most;
}

/* A graph whose vertices are merged into n groups on each side, none with more than `degree` edges. */
typedef struct grouped {
    const bigraph *g;
    uint32_t n, degree;
    uint32_t *right;  /* per right vertex, its group */
    uint32_t *order;  /* the edges by left group */
    uint32_t *starts; /* where each left group's edges begin in it; n + 1 */
} grouped;

/* Fills x with the right group of every edge, left group by left group, and then with dummy edges, until every group
 * has `degree` edges. */
static void fill_entries(const grouped *m, uint32_t *room, uint32_t *x) {
    const uint32_t n = m->n, degree = m->degree, *starts = m->starts;
    uint32_t stride = stride_of(degree);
    for (uint32_t v = 0; v < n; v++) room[v] = degree;
    for (uint32_t u = 0; u < n; u++)
        for (uint32_t i = starts[u], at = u * stride; i < starts[u + 1]; i++) {
            uint32_t v = m->right[m->g->right[m->order[i]]];
            x[at++] = v;
            room[v]--;
        }
    uint32_t v = 0;
    for (uint32_t u = 0; u < n; u++)
        for (uint32_t at = starts[u + 1] - starts[u]; at < degree; at++) {
            while (!room[v]) v++;
            x[u * stride + at] = v;
            room[v]--;
        }
}

/* Gives every edge the colour of an entry that joins the same two groups. Edges of the same two groups are
 * interchangeable, so for each left group
 * 1. its edges are listed by right group;
 * 2. each colour class takes one edge from the list of the right group that the class's entry names.
 * The splits are over, so s->taken and s->mate have room for these lists. columns: room for HAND_OUT_TILE * degree
 * numbers. */
enum { HAND_OUT_TILE = 16 };
static fcp_code hand_out(const grouped *m, const splitter *s, uint32_t first, uint32_t *columns,
                         uint32_t *out_colour) {
    enum { TILE = HAND_OUT_TILE };
    const uint32_t n = m->n, degree = m->degree, *starts = m->starts, *order = m->order, *classes = s->classes;
    uint32_t *head = s->taken, *link = s->mate;
    memset(head, 0xff, (size_t)n * sizeof *head);
    for (uint32_t u0 = 0; u0 < n; u0 += TILE) {
        uint32_t width = n - u0 < TILE ? n - u0 : TILE;
        if (u0 / TILE % 64 == 0 && fcp_stop_asked(m->g->stop)) return FCP_E_INTERRUPTED;
        for (uint32_t c = 0; c < degree; c++) /* a tile of the classes, transposed */
            for (uint32_t j = 0; j < width; j++) columns[(size_t)j * degree + c] = classes[(size_t)c * n + u0 + j];
        for (uint32_t j = 0; j < width; j++) {
            const uint32_t *column = columns + (size_t)j * degree;
            for (uint32_t i = starts[u0 + j + 1]; i-- > starts[u0 + j];) {
                uint32_t v = m->right[m->g->right[order[i]]];
                link[i] = head[v];
                head[v] = i;
            }
            for (uint32_t c = 0; c < degree; c++) {
                uint32_t i = head[column[c]];
                if (i == NOTHING) continue; /* a dummy */
                out_colour[order[i]] = first + c;
                head[column[c]] = link[i];
            }
        }
    }
    return FCP_OK;
}

fcp_code colour_euler(arena *scratch, const colour_work *work, const bigraph *g, const uint32_t *ids, uint32_t count,
                      uint32_t first, uint32_t *out_colour, uint32_t *out_degree) {
    *out_degree = 0;
    if (!count) return FCP_OK;
    uint32_t *left_group = work->left, *right_group = work->right;
    uint32_t degree = count_degrees(g->left, ids, count, left_group, g->lefts);
    uint32_t right_degree = count_degrees(g->right, ids, count, right_group, g->rights);
    if (right_degree > degree) degree = right_degree;
    *out_degree = degree;
    if (degree == 1) { /* no two edges meet */
        for (uint32_t i = 0; i < count; i++) out_colour[ids[i]] = first;
        return FCP_OK;
    }
    uint32_t n = merge(left_group, g->lefts, degree), rights = merge(right_group, g->rights, degree);
    if (rights > n) n = rights;
    uint64_t entries = (uint64_t)n * stride_of(degree);
    if (entries >= UINT32_MAX) return FCP_E_NO_MEMORY;

    splitter s = {.n = n, .none = (uint32_t)entries, .seed = 0x9e3779b97f4a7c15u, .stop = g->stop};
    uint32_t *starts = ARENA_ZNEW(scratch, uint32_t, (size_t)n + 1), *order = ARENA_NEW(scratch, uint32_t, count);
    const grouped merged = {g, n, degree, right_group, order, starts};
    uint32_t *x = ARENA_NEW(scratch, uint32_t, entries),
             *spare = ARENA_NEW(scratch, uint32_t, spare_entries(n, degree));
    uint32_t *groups = ARENA_NEW(scratch, uint32_t, 6 * (size_t)n);
    s.mate = ARENA_NEW(scratch, uint32_t, entries + 1);
    s.choice = ARENA_NEW(scratch, uint8_t, entries / 2 + 1);
    s.classes = ARENA_NEW(scratch, uint32_t, entries);
    if (!starts || !order || !x || !spare || !groups || !s.mate || !s.choice || !s.classes) return FCP_E_NO_MEMORY;
    s.waiting = groups;
    s.taken = groups + n;
    s.owner = groups + 2 * (size_t)n;
    s.next = groups + 3 * (size_t)n;
    s.via = groups + 4 * (size_t)n;
    s.queue = groups + 5 * (size_t)n;

    for (uint32_t i = 0; i < count; i++) starts[left_group[g->left[ids[i]]] + 1]++;
    for (uint32_t u = 0; u < n; u++) starts[u + 1] += starts[u];
    memcpy(s.queue, starts, (size_t)n * sizeof *starts);
    for (uint32_t i = 0; i < count; i++) order[s.queue[left_group[g->left[ids[i]]]]++] = ids[i];
    fill_entries(&merged, s.taken, x);

    for (uint32_t v = 0; v < n; v++) s.waiting[v] = s.none;
    if (!is_stopped(&s)) colour_node(&s, x, degree, spare);
    if (is_stopped(&s)) return FCP_E_INTERRUPTED;
    uint64_t room = (uint64_t)HAND_OUT_TILE * degree;
    uint32_t *columns = room <= entries ? x : ARENA_NEW(scratch, uint32_t, room);
    return columns ? hand_out(&merged, &s, first, columns, out_colour) : FCP_E_NO_MEMORY;
}
