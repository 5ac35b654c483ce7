/* forest_make.c: makes the trees of rollouts by content: fcpc_forest_make.
 *
 * Requires: token lists.
 * Gives: a compressed trie of each group, and its tokens in depth-first order.
 * Cost: each token is compared once; a sort of the rollouts that part from another, each time.
 *
 * A *node* is a stretch of tokens without a branch. Sets of rollouts that agree up to some depth wait on a stack. Of a
 * set, the rollout with the least number is the *spine*. All others are compared with it, from that depth on: this
 * says where each of them parts from it. In the order of these depths the spine's nodes are made. Rollouts that part
 * at the same place with the same next token are a new set. A token that agreed with one spine is not looked at again,
 * so no token is compared twice, but for the one at which a rollout parts.
 *
 * Example: 5 6 7, 5 6 8 9 and 5 6 8 4 5. The first is the spine; both others part at depth 2, with an 8. So there is a
 * node 5 6, below it the spine's rest, 7, and a set of two at depth 2, whose spine is 5 6 8 9.
 *
 * A stretch with fewer than `least` tokens is no node of its own: each rollout that it would belong to has a copy. Then
 * the stretch of a set starts before the depth up to which its rollouts agree.
 */
#include "compiler/forest/forest.h"

#include "compiler/base/arena.h"
#include "compiler/base/sort.h"
#include "runtime/base/sized.h"
#include "runtime/base/threads.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#define NONE UINT32_MAX

typedef struct node {
    uint64_t row, end;        /* its rows, and behind those of its subtree */
    uint32_t rollout;         /* the least of those that have it; its tokens are those of this one ... */
    uint32_t from, to;        /* ... at these positions */
    uint32_t sharing, parent; /* how many rollouts have it */
    uint32_t child, sibling, youngest;
    uint32_t tree;
} node;

typedef struct member {
    int64_t next;    /* the token behind the last one that it shares with the spine; or the group */
    uint32_t shared; /* how many tokens it shares with the spine */
    uint32_t rollout;
    bool ended; /* it has no token behind those */
} member;

/* Rollouts that agree up to `depth`; their tokens from `start` on are in no node yet. */
typedef struct set {
    uint32_t first, end; /* in members, by rising number of the rollout */
    uint32_t depth, start, parent;
} set;

typedef struct growing {
    const fcpc_rollouts *rollouts;
    const uint64_t *first;
    uint32_t least;
    member *members;
    uint32_t *of; /* per rollout: the node at whose end it ends */
    node *nodes;
    size_t count, room;
    set *sets;
    size_t waiting, sets_room;
    arena scratch;
} growing;

static uint32_t length_of(const growing *g, uint32_t rollout) { return (uint32_t)g->rollouts->lengths[rollout]; }

static const int64_t *tokens_of(const growing *g, uint32_t rollout) { return g->rollouts->tokens + g->first[rollout]; }

/* How many of the first `most` tokens are equal; the first `known` are. */
static uint32_t agree(const int64_t *a, const int64_t *b, uint32_t known, uint32_t most) {
    enum { STEP = 16 };
    uint32_t i = known;
    while (most - i >= STEP) {
        int64_t differ = 0;
        for (int j = 0; j < STEP; j++) differ |= a[i + (unsigned)j] ^ b[i + (unsigned)j];
        if (differ) break;
        i += STEP;
    }
    while (i < most && a[i] == b[i]) i++;
    return i;
}

static int by_parting(const void *a, const void *b) {
    const member *x = a, *y = b;
    if (x->shared != y->shared) return x->shared < y->shared ? -1 : 1;
    if (x->ended != y->ended) return x->ended ? -1 : 1;
    if (x->next != y->next) return x->next < y->next ? -1 : 1;
    return x->rollout < y->rollout ? -1 : x->rollout > y->rollout;
}

/* Adds a node; without tokens it is its parent. */
static fcp_code add_node(growing *g, uint32_t rollout, uint32_t from, uint32_t to, uint32_t sharing, uint32_t parent,
                         uint32_t *out_node) {
    *out_node = parent;
    if (from == to) return FCP_OK;
    node *nodes = arena_grow(&g->scratch, g->nodes, g->count, &g->room, sizeof *nodes);
    if (!nodes) return FCP_E_NO_MEMORY;
    g->nodes = nodes;
    nodes[g->count] = (node){.rollout = rollout,
                             .from = from,
                             .to = to,
                             .sharing = sharing,
                             .parent = parent,
                             .child = NONE,
                             .sibling = NONE,
                             .youngest = NONE};
    *out_node = (uint32_t)g->count++;
    return FCP_OK;
}

static fcp_code add_set(growing *g, set s) {
    set *sets = arena_grow(&g->scratch, g->sets, g->waiting, &g->sets_room, sizeof *sets);
    if (!sets) return FCP_E_NO_MEMORY;
    g->sets = sets;
    sets[g->waiting++] = s;
    return FCP_OK;
}

/* The rollout ends here: whatever of it is in no node yet gets one. */
static fcp_code finish(growing *g, uint32_t rollout, uint32_t start, uint32_t parent) {
    return add_node(g, rollout, start, length_of(g, rollout), 1, parent, &g->of[rollout]);
}

/* Compares a set with its spine, the first member, and sorts the others by where they part from it. */
static void part(growing *g, set s) {
    const uint32_t spine = g->members[s.first].rollout, length = length_of(g, spine);
    const int64_t *tokens = tokens_of(g, spine);
    for (uint32_t i = s.first + 1; i < s.end; i++) {
        member *m = &g->members[i];
        const uint32_t own = length_of(g, m->rollout);
        m->shared = agree(tokens, tokens_of(g, m->rollout), s.depth, own < length ? own : length);
        m->ended = m->shared == own;
        m->next = m->ended ? 0 : tokens_of(g, m->rollout)[m->shared];
    }
    if (s.end - s.first > 2) qsort(g->members + s.first + 1, s.end - s.first - 1, sizeof(member), by_parting);
}

/* Makes the nodes of a set's spine; those who part from it end, or become sets. */
static fcp_code grow_set(growing *g, set s) {
    const uint32_t spine = g->members[s.first].rollout;
    fcp_code code = FCP_OK;
    part(g, s);
    for (uint32_t i = s.first + 1, next; !code && i < s.end; i = next) {
        const member m = g->members[i];
        if (m.shared - s.start >= g->least) {
            code = add_node(g, spine, s.start, m.shared, s.end - i + 1, s.parent, &s.parent);
            s.start = m.shared;
        }
        for (next = i + 1; next < s.end; next++) {
            const member *n = &g->members[next];
            if (n->shared != m.shared || n->ended != m.ended || n->next != m.next) break;
        }
        if (!code && !m.ended)
            code = add_set(g, (set){.first = i, .end = next, .depth = m.shared, .start = s.start, .parent = s.parent});
        for (uint32_t j = i; !code && m.ended && j < next; j++)
            code = finish(g, g->members[j].rollout, s.start, s.parent);
    }
    return code ? code : finish(g, spine, s.start, s.parent);
}

/* A set of each group, of rollouts that have tokens. */
static fcp_code add_groups(growing *g) {
    uint32_t count = 0;
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < g->rollouts->count; i++) {
        g->of[i] = NONE;
        if (!length_of(g, i)) continue;
        g->members[count++] = (member){.rollout = i, .next = g->rollouts->groups ? g->rollouts->groups[i] : 0};
    }
    if (g->rollouts->groups && count) qsort(g->members, count, sizeof(member), by_parting);
    for (uint32_t i = 0, next; !code && i < count; i = next) {
        for (next = i + 1; next < count && g->members[next].next == g->members[i].next; next++) continue;
        code = add_set(g, (set){.first = i, .end = next, .parent = NONE});
    }
    return code;
}

/* Links nodes to their parents, in the order of their first rollouts, and lists them depth first: out_order. Of two
 * nodes with the same first rollout one is above the other. Returns how many are trees; NONE: no memory. */
static uint32_t order_nodes(growing *g, uint32_t *out_order) {
    uint64_t *keys = ARENA_NEW(&g->scratch, uint64_t, g->count + 1);
    uint64_t *scratch = ARENA_NEW(&g->scratch, uint64_t, g->count + 1);
    uint32_t trees = 0, oldest = NONE, youngest = NONE;
    if (!keys || !scratch) return NONE;
    for (size_t i = 0; i < g->count; i++) keys[i] = (uint64_t)g->nodes[i].rollout << 32 | i;
    sort_u64(keys, scratch, g->count);
    for (size_t i = 0; i < g->count; i++) {
        const uint32_t n = (uint32_t)keys[i], parent = g->nodes[n].parent;
        uint32_t *last = parent == NONE ? &youngest : &g->nodes[parent].youngest;
        uint32_t *first = parent == NONE ? &oldest : &g->nodes[parent].child;
        if (*last == NONE) *first = n;
        else g->nodes[*last].sibling = n;
        *last = n;
    }
    size_t count = 0;
    for (uint32_t n = oldest; n != NONE;) {
        node *x = &g->nodes[n];
        trees += x->parent == NONE;
        x->tree = trees - 1;
        out_order[count++] = n;
        if (x->child != NONE) {
            n = x->child;
            continue;
        }
        while (n != NONE && g->nodes[n].sibling == NONE) n = g->nodes[n].parent;
        if (n != NONE) n = g->nodes[n].sibling;
    }
    return trees;
}

typedef struct planting {
    uint64_t *lengths, *start;
    int64_t *token, *position, *last, *parent, *sharing, *rows;
    uint32_t *rollout, *tree;
} planting;

/* Makes room for the arrays of a forest, in one piece. Most of the time goes into touching new memory, page by page, so
 * large arrays lie on huge pages. */
static bool make_room(fcpc_forest *f, uint64_t tokens, uint64_t all, uint32_t trees, uint32_t rollouts, planting *p) {
    enum { ARRAYS = 5 }; /* numbers of a row */
    const size_t huge_page = 1 << 21;
    const size_t words = (size_t)(ARRAYS * tokens + all + trees + 2 * (uint64_t)rollouts + 2);
    size_t size = words * sizeof(uint64_t);
    if (size < 2 * huge_page) {
        f->memory = malloc(size);
    } else {
        size = (size + huge_page - 1) / huge_page * huge_page;
        f->memory = aligned_alloc(huge_page, size);
        if (f->memory) madvise(f->memory, size, MADV_HUGEPAGE); /* a wish, which need not be granted */
    }
    int64_t *at = f->memory;
    if (!at) return false;
    int64_t **of_rows[ARRAYS] = {&p->token, &p->position, &p->last, &p->parent, &p->sharing};
    for (int i = 0; i < ARRAYS; i++, at += tokens) *of_rows[i] = at;
    p->rows = at;
    p->lengths = (uint64_t *)at + all;
    p->start = p->lengths + trees;
    p->rollout = (uint32_t *)(p->start + rollouts + 1);
    p->tree = p->rollout + rollouts;
    return true;
}

/* The rows of one node. `base` is the first row of its tree. */
static void plant_node(const growing *g, const node *x, uint64_t base, const int64_t *ids, planting *p) {
    const int64_t *tokens = tokens_of(g, x->rollout) + x->from;
    const int64_t last = (int64_t)(x->end - base) - 1, sharing = x->sharing;
    const size_t row = (size_t)x->row, count = x->to - (size_t)x->from;
    for (size_t i = 0; i < count; i++) p->token[row + i] = ids ? ids[tokens[i]] : tokens[i];
    for (size_t i = 0; i < count; i++) p->position[row + i] = (int64_t)(x->from + i);
    for (size_t i = 0; i < count; i++) p->last[row + i] = last;
    for (size_t i = 0; i < count; i++) p->parent[row + i] = (int64_t)(row + i) - 1;
    for (size_t i = 0; i < count; i++) p->sharing[row + i] = sharing;
    if (x->parent == NONE) p->parent[row] = -1;
    else p->parent[row] = (int64_t)(g->nodes[x->parent].row + g->nodes[x->parent].to - g->nodes[x->parent].from) - 1;
}

/* The rows of one rollout, from its end to its beginning. */
static void plant_rollout(const growing *g, uint32_t rollout, int64_t *rows) {
    for (uint32_t n = g->of[rollout]; n != NONE; n = g->nodes[n].parent) {
        const node *x = &g->nodes[n];
        for (uint32_t i = x->from; i < x->to; i++) rows[i] = (int64_t)(x->row + (i - x->from));
    }
}

/* Gives the nodes their rows, in `order`, and says where subtrees end. Returns how many rows there are. */
static uint64_t number_rows(growing *g, const uint32_t *order) {
    uint64_t rows = 0;
    for (size_t i = 0; i < g->count; i++) {
        node *x = &g->nodes[order[i]];
        x->row = rows;
        rows += x->to - (uint64_t)x->from;
        x->end = rows;
    }
    for (size_t i = g->count; i--;) {
        const node *x = &g->nodes[order[i]];
        if (x->parent != NONE && g->nodes[x->parent].end < x->end) g->nodes[x->parent].end = x->end;
    }
    return rows;
}

/* What one thread writes: the rows of some nodes, in `order`, and of some rollouts. */
typedef struct share {
    const growing *g;
    const uint32_t *order;
    const uint64_t *base; /* of each tree, its first row */
    const int64_t *ids;
    planting *p;
    size_t first_node, end_node;
    uint32_t first_rollout, end_rollout;
    pthread_t thread;
    bool started;
} share;

static void *plant_share(void *given) {
    const share *s = given;
    for (size_t i = s->first_node; i < s->end_node; i++) {
        const node *x = &s->g->nodes[s->order[i]];
        plant_node(s->g, x, s->base[x->tree], s->ids, s->p);
    }
    for (uint32_t i = s->first_rollout; i < s->end_rollout; i++) plant_rollout(s->g, i, s->p->rows + s->p->start[i]);
    return NULL;
}

/* Writes all rows. Writing them takes most of the time, so that of a large forest is shared out: each thread has about
 * as many tokens as the others. What is written does not depend on the threads. */
static void plant_all(share whole, uint64_t tokens) {
    enum { THREADS = 4, FEW = 1 << 20 };
    const growing *g = whole.g;
    const uint32_t rollouts = g->rollouts->count;
    const uint64_t all = tokens + whole.p->start[rollouts];
    const unsigned threads = all < FEW ? 1 : fcp_processors(THREADS);
    share shares[THREADS];
    size_t n = 0;
    uint32_t r = 0;
    for (unsigned i = 0; i < threads; i++) {
        share *s = &shares[i];
        *s = whole;
        s->first_node = n;
        while (n < g->count && (i + 1 == threads || g->nodes[whole.order[n]].row < tokens / threads * (i + 1))) n++;
        s->end_node = n;
        s->first_rollout = r;
        while (r < rollouts && (i + 1 == threads || whole.p->start[r] < (all - tokens) / threads * (i + 1))) r++;
        s->end_rollout = r;
        s->started = i && fcp_thread_start(&s->thread, 0, plant_share, s);
    }
    for (unsigned i = 0; i < threads; i++)
        if (!shares[i].started) plant_share(&shares[i]);
    for (unsigned i = 0; i < threads; i++)
        if (shares[i].started) pthread_join(shares[i].thread, NULL);
}

static fcp_code plant(growing *g, const uint32_t *names, const int64_t *ids, fcpc_forest *f) {
    const uint32_t count = g->rollouts->count;
    uint32_t *order = ARENA_NEW(&g->scratch, uint32_t, g->count + 1);
    const uint32_t trees = order ? order_nodes(g, order) : NONE;
    uint64_t *base = trees == NONE ? NULL : ARENA_NEW(&g->scratch, uint64_t, trees + (size_t)1), all = 0;
    planting p;
    if (!base) return FCP_E_NO_MEMORY;
    const uint64_t tokens = number_rows(g, order);
    for (uint32_t i = 0; i < count; i++) all += g->rollouts->lengths[i];
    if (!make_room(f, tokens, all, trees, count, &p)) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < g->count; i++) {
        const node *x = &g->nodes[order[i]];
        if (x->parent != NONE) continue;
        base[x->tree] = x->row;
        p.lengths[x->tree] = x->end - x->row;
    }
    p.start[0] = 0;
    for (uint32_t i = 0; i < count; i++) {
        p.rollout[i] = names ? names[i] : i;
        p.tree[i] = g->of[i] == NONE ? UINT32_MAX : g->nodes[g->of[i]].tree;
        p.start[i + 1] = p.start[i] + g->rollouts->lengths[i];
    }
    plant_all((share){.g = g, .order = order, .base = base, .ids = ids, .p = &p}, tokens);
    f->view = (fcpc_forest_view){.tokens = tokens,
                                 .rollout_tokens = all,
                                 .trees = trees,
                                 .rollouts = count,
                                 .lengths = p.lengths,
                                 .token = p.token,
                                 .position = p.position,
                                 .last = p.last,
                                 .parent = p.parent,
                                 .sharing = p.sharing,
                                 .rollout = p.rollout,
                                 .tree = p.tree,
                                 .start = p.start,
                                 .rows = p.rows};
    return FCP_OK;
}

fcp_code forest_grow(const fcpc_rollouts *rollouts, const uint32_t *names, const int64_t *ids, fcpc_forest **out_forest,
                     fcp_error *err) {
    growing g = {.rollouts = rollouts, .first = rollouts->first};
    fcpc_forest *f = calloc(1, sizeof *f);
    g.least = rollouts->least > UINT32_MAX ? UINT32_MAX : rollouts->least ? (uint32_t)rollouts->least : 1;
    g.members = ARENA_NEW(&g.scratch, member, rollouts->count + (size_t)1);
    g.of = ARENA_NEW(&g.scratch, uint32_t, rollouts->count + (size_t)1);
    fcp_code code = f && g.members && g.of ? FCP_OK : FCP_E_NO_MEMORY;
    if (!code && !g.first) {
        uint64_t *first = ARENA_NEW(&g.scratch, uint64_t, rollouts->count + (size_t)1);
        if (!first) code = FCP_E_NO_MEMORY;
        uint64_t sum = 0;
        for (uint32_t i = 0; first && i < rollouts->count; i++) {
            first[i] = sum;
            sum += rollouts->lengths[i];
        }
        g.first = first;
    }
    if (!code) code = add_groups(&g);
    while (!code && g.waiting) code = grow_set(&g, g.sets[--g.waiting]);
    if (!code) code = plant(&g, names, ids, f);
    arena_free(&g.scratch);
    if (code) fcpc_forest_free(f);
    else *out_forest = f;
    return code ? fcp_fail(err, code, "there is no memory for a forest of %u rollouts", rollouts->count) : FCP_OK;
}

fcp_code fcpc_forest_make(const fcpc_rollouts *rollouts, fcpc_forest **out_forest, fcp_error *err) {
    fcpc_rollouts r;
    fcp_code code = fcp_sized_read(&r, sizeof r, rollouts, "fcpc_rollouts", err);
    if (code) return code;
    if (r.count > INT32_MAX)
        return fcp_fail(err, FCP_E_ARGUMENT, "a forest has at most 2^31 - 1 rollouts, and these are %u", r.count);
    if (r.count && !r.lengths) return fcp_fail(err, FCP_E_ARGUMENT, "rollouts have no lengths");
    uint64_t all = 0;
    for (uint32_t i = 0; i < r.count; i++) {
        if (r.lengths[i] > UINT32_MAX)
            return fcp_fail(err, FCP_E_VALUE, "rollout %u has %llu tokens; a rollout has at most 2^32 - 1", i,
                            (unsigned long long)r.lengths[i]);
        all += r.lengths[i]; /* of fewer than 2^31 numbers of 32 bits */
    }
    if (all > UINT64_C(1) << 40)
        return fcp_fail(err, FCP_E_VALUE, "rollouts have %llu tokens together; a forest has at most 2^40",
                        (unsigned long long)all);
    if (all && !r.tokens) return fcp_fail(err, FCP_E_ARGUMENT, "rollouts have no tokens");
    return forest_grow(&r, NULL, NULL, out_forest, err);
}

void fcpc_forest_free(fcpc_forest *forest) {
    if (!forest) return;
    free(forest->memory);
    free(forest);
}

void fcpc_forest_look(const fcpc_forest *forest, fcpc_forest_view *out_view) { *out_view = forest->view; }
