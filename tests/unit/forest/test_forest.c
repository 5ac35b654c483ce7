/* test_forest.c: tests forests of rollouts. Forests of few tokens are compared with what their definition says, token
 * by token; cuts with all cuts that there are; and what comes from outside is refused where it is wrong. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "compiler/fcpc.h"
#include "tests/support/forest_check.h"
#include "tests/support/splitmix.h"

enum { MOST = 10, LONGEST = 12, ROOM = 2 * MOST * LONGEST };

/* Drawn rollouts. Their tokens lie in `tokens` with gaps, in any order. */
typedef struct drawn {
    uint32_t count;
    uint64_t lengths[MOST], first[MOST];
    int64_t groups[MOST], tokens[ROOM];
    fcpc_rollouts rollouts;
} drawn;

/* Few different tokens, so that much is shared; some rollouts are copies or beginnings of others, some are empty. */
static void draw_rollouts(drawn *d, uint64_t *state) {
    *d = (drawn){.count = (uint32_t)(splitmix(state) % (MOST + 1))};
    const uint64_t letters = 1 + splitmix(state) % 3, teams = 1 + splitmix(state) % 3;
    const bool gaps = splitmix(state) % 2;
    for (int i = 0; i < ROOM; i++) d->tokens[i] = (int64_t)(splitmix(state) % 1000) + 50;
    for (uint32_t i = 0, at = 0; i < d->count; i++) {
        const uint32_t other = i ? (uint32_t)(splitmix(state) % i) : 0;
        const uint64_t copied = i && splitmix(state) % 3 ? splitmix(state) % (d->lengths[other] + 1) : 0;
        d->lengths[i] = copied + splitmix(state) % (LONGEST + 1 - copied);
        if (!(splitmix(state) % 4)) d->lengths[i] = copied;
        d->groups[i] = (int64_t)(splitmix(state) % teams) * INT64_C(-4000000000);
        if (gaps) at += (uint32_t)(splitmix(state) % LONGEST);
        d->first[i] = at;
        for (uint64_t t = 0; t < d->lengths[i]; t++)
            d->tokens[at + t] = t < copied ? d->tokens[d->first[other] + t]
                                           : (int64_t)(splitmix(state) % letters) - INT64_C(3000000000);
        at += (uint32_t)d->lengths[i];
    }
    d->rollouts = (fcpc_rollouts){.size = sizeof d->rollouts,
                                  .count = d->count,
                                  .lengths = d->lengths,
                                  .first = gaps ? d->first : NULL,
                                  .tokens = d->tokens,
                                  .groups = splitmix(state) % 2 ? d->groups : NULL,
                                  .least = splitmix(state) % 2 ? splitmix(state) % 6 : 0};
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

/* rep[r][t]: the first of the rollouts that share token t of rollout r. */
typedef struct sharing {
    const drawn *d;
    uint32_t rep[MOST][LONGEST];
} sharing;

static int64_t token_of(const drawn *d, uint32_t r, uint64_t t) { return d->tokens[d->first[r] + t]; }

/* Rollouts of one set have equal tokens up to `depth`; those from `start` on are not yet given out. Where they part, a
 * stretch from `start` that is long enough is shared by all; a shorter one goes on with each of the parts. */
static void divide(sharing *x, const uint32_t *set, uint32_t count, uint64_t start, uint64_t depth) {
    const drawn *d = x->d;
    const uint64_t least = d->rollouts.least ? d->rollouts.least : 1;
    if (count == 1) {
        for (uint64_t t = start; t < d->lengths[set[0]]; t++) x->rep[set[0]][t] = set[0];
        return;
    }
    for (bool same = true; same; depth += same)
        for (uint32_t i = 0; i < count && same; i++)
            same = d->lengths[set[i]] > depth && token_of(d, set[i], depth) == token_of(d, set[0], depth);
    if (depth - start >= least) {
        for (uint32_t i = 0; i < count; i++)
            for (uint64_t t = start; t < depth; t++) x->rep[set[i]][t] = set[0];
        start = depth;
    }
    bool done[MOST] = {false};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t part[MOST], size = 0;
        for (uint32_t j = i; j < count; j++) {
            const bool ended = d->lengths[set[j]] == depth || d->lengths[set[i]] == depth;
            if (done[j] || (j > i && (ended || token_of(d, set[j], depth) != token_of(d, set[i], depth)))) continue;
            if (j > i && done[i]) break;
            part[size++] = set[j];
        }
        if (done[i]) continue;
        for (uint32_t j = 0; j < size; j++)
            for (uint32_t k = 0; k < count; k++) done[k] |= set[k] == part[j];
        divide(x, part, size, start, depth);
    }
}

/* The forest that is expected. */
typedef struct expected {
    uint64_t tokens, lengths[MOST];
    uint32_t trees, tree[MOST];
    int64_t token[ROOM], position[ROOM], last[ROOM], parent[ROOM], sharing[ROOM], rows[MOST][LONGEST];
} expected;

/* Writes the tokens at place t of rollouts that share all before it, and what is below them. */
static void write_rows(expected *e, const sharing *x, const uint32_t *set, uint32_t count, uint64_t t, int64_t parent,
                       uint64_t base) {
    for (uint32_t first = 0; first < MOST; first++) { /* the branches, by their first rollout */
        uint32_t part[MOST], size = 0;
        for (uint32_t i = 0; i < count; i++)
            if (x->d->lengths[set[i]] > t && x->rep[set[i]][t] == first) part[size++] = set[i];
        if (!size) continue;
        const uint64_t row = e->tokens++;
        if (parent < 0) base = row;
        e->token[row] = token_of(x->d, first, t);
        e->position[row] = (int64_t)t;
        e->parent[row] = parent;
        e->sharing[row] = size;
        for (uint32_t i = 0; i < size; i++) e->rows[part[i]][t] = (int64_t)row, e->tree[part[i]] = e->trees;
        write_rows(e, x, part, size, t + 1, (int64_t)row, base);
        e->last[row] = (int64_t)(e->tokens - 1 - base);
        if (parent < 0) e->lengths[e->trees++] = e->tokens - base;
    }
}

static void expect(const drawn *d, expected *e) {
    static sharing x;
    uint32_t all[MOST];
    bool done[MOST] = {false};
    x.d = d;
    *e = (expected){.tokens = 0};
    for (uint32_t i = 0; i < d->count; i++) {
        uint32_t set[MOST], size = 0;
        all[i] = i;
        e->tree[i] = UINT32_MAX;
        if (done[i] || !d->lengths[i]) continue;
        for (uint32_t j = i; j < d->count; j++) {
            if (!d->lengths[j] || (d->rollouts.groups && d->groups[j] != d->groups[i])) continue;
            set[size++] = j;
            done[j] = true;
        }
        divide(&x, set, size, 0, 0);
    }
    write_rows(e, &x, all, d->count, 0, -1, 0);
}

static void make_checked(const fcpc_rollouts *rollouts, fcpc_forest **out) {
    fcp_error err = {0};
    cr_assert_eq(fcpc_forest_make(rollouts, out, &err), FCP_OK, "%s", err.message);
    const char *wrong = forest_check(*out);
    cr_assert_null(wrong, "%s", wrong);
}

Test(forest, small_ones_are_as_defined) {
    uint64_t state = 1, shared = 0, copies = 0;
    for (int i = 0; i < 20000; i++) {
        static drawn d;
        static expected e;
        fcpc_forest *forest;
        fcpc_forest_view v;
        draw_rollouts(&d, &state);
        expect(&d, &e);
        make_checked(&d.rollouts, &forest);
        fcpc_forest_look(forest, &v);
        cr_assert_eq(v.tokens, e.tokens, "draw %d: %" PRIu64 " rows, expected %" PRIu64, i, v.tokens, e.tokens);
        cr_assert_eq(v.trees, e.trees);
        cr_assert_eq(v.rollouts, d.count);
        if (v.trees) cr_assert_arr_eq(v.lengths, e.lengths, v.trees * sizeof *e.lengths, "draw %d", i);
        for (uint64_t row = 0; row < v.tokens; row++) {
            cr_assert_eq(v.token[row], e.token[row], "draw %d, row %" PRIu64, i, row);
            cr_assert_eq(v.position[row], e.position[row], "draw %d, row %" PRIu64, i, row);
            cr_assert_eq(v.last[row], e.last[row], "draw %d, row %" PRIu64, i, row);
            cr_assert_eq(v.parent[row], e.parent[row], "draw %d, row %" PRIu64, i, row);
            cr_assert_eq(v.sharing[row], e.sharing[row], "draw %d, row %" PRIu64, i, row);
        }
        for (uint32_t r = 0; r < d.count; r++) {
            cr_assert_eq(v.rollout[r], r);
            cr_assert_eq(v.tree[r], e.tree[r]);
            cr_assert(forest_has_tokens(&v, r, d.tokens + d.first[r], d.lengths[r]));
            for (uint64_t t = 0; t < d.lengths[r]; t++) cr_assert_eq(v.rows[v.start[r] + t], e.rows[r][t]);
        }
        shared += v.rollout_tokens - v.tokens;
        copies += d.rollouts.least > 1;
        fcpc_forest_free(forest);
    }
    cr_assert_gt(shared, 100000);
    cr_assert_gt(copies, 5000);
}

/* --- cuts --------------------------------------------------------------------------------------------------------- */

/* The rows that these rollouts of a forest have together. */
static uint64_t rows_of(const fcpc_forest_view *v, const uint32_t *rollouts, uint32_t count) {
    bool has[ROOM] = {false};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        for (uint64_t t = v->start[rollouts[i]]; t < v->start[rollouts[i] + 1]; t++) has[v->rows[t]] = true;
    for (uint64_t row = 0; row < v->tokens; row++) sum += has[row];
    return sum;
}

/* The rollouts of a tree by their last rows, then by their numbers. */
static uint32_t leaves_of(const fcpc_forest_view *v, uint32_t tree, uint32_t *out) {
    uint32_t count = 0;
    for (uint64_t row = 0; row < v->tokens; row++)
        for (uint32_t r = 0; r < v->rollouts; r++)
            if (v->tree[r] == tree && v->rows[v->start[r + 1] - 1] == (int64_t)row) out[count++] = r;
    return count;
}

/* Tries each cut of a tree into neighbouring leaves. Finds the fewest rows, and the fewest parts that have so few. */
static void try_cuts(const fcpc_forest_view *v, uint32_t tree, uint64_t cap, uint64_t *least, uint32_t *parts) {
    uint32_t leaves[MOST];
    const uint32_t count = leaves_of(v, tree, leaves);
    *least = UINT64_MAX;
    for (uint32_t cut = 0; cut < (1u << count) / 2; cut++) {
        uint64_t sum = 0;
        uint32_t made = 0;
        for (uint32_t first = 0, end; first < count; first = end, made++) {
            for (end = first + 1; end < count && !(cut >> (end - 1) & 1);) end++;
            const uint64_t rows = rows_of(v, leaves + first, end - first);
            sum = rows > cap || sum == UINT64_MAX ? UINT64_MAX : sum + rows;
        }
        if (sum > *least || (sum == *least && made >= *parts)) continue;
        *least = sum;
        *parts = made;
    }
}

/* The trees of a cut have neighbouring leaves of one tree each, and as many rows as these share there. */
static void check_parts(const fcpc_forest_view *v, const fcpc_forest_view *cut, uint64_t cap) {
    for (uint32_t tree = 0; tree < v->trees; tree++) {
        uint32_t leaves[MOST], parts = 0;
        const uint32_t count = leaves_of(v, tree, leaves);
        bool seen[ROOM] = {false};
        for (uint32_t first = 0, end; first < count; first = end, parts++) {
            const uint32_t part = cut->tree[leaves[first]];
            for (end = first + 1; end < count && cut->tree[leaves[end]] == part;) end++;
            cr_assert(!seen[part], "leaves of a part are neighbours");
            seen[part] = true;
            cr_assert_eq(cut->lengths[part], rows_of(v, leaves + first, end - first));
            cr_assert_leq(cut->lengths[part], cap);
        }
    }
}

Test(forest, a_cut_repeats_the_fewest_tokens_of_all) {
    uint64_t state = 2, repeated = 0;
    for (int i = 0; i < 6000; i++) {
        static drawn d;
        fcpc_forest *forest, *cut;
        fcpc_forest_view v, w;
        fcp_error err = {0};
        uint64_t cap = 0, rows = 0;
        uint32_t trees = 0;
        draw_rollouts(&d, &state);
        make_checked(&d.rollouts, &forest);
        fcpc_forest_look(forest, &v);
        for (uint32_t r = 0; r < d.count; r++) cap = cap > d.lengths[r] ? cap : d.lengths[r];
        if (cap) { /* the longest rollout is refused by its number */
            uint32_t longest = 0;
            while (d.lengths[longest] != cap) longest++;
            cut = NULL;
            cr_assert_eq(fcpc_forest_cut(forest, cap - 1, &cut, &err), FCP_E_VALUE);
            char name[64];
            snprintf(name, sizeof name, "rollout %u has %" PRIu64 " tokens", longest, cap);
            cr_assert(strstr(err.message, name), "%s", err.message);
            cr_assert_null(cut);
        }
        cap += splitmix(&state) % 8;
        cr_assert_eq(fcpc_forest_cut(forest, cap, &cut, &err), FCP_OK, "%s", err.message);
        const char *wrong = forest_check(cut);
        cr_assert_null(wrong, "draw %d: %s", i, wrong);
        fcpc_forest_look(cut, &w);
        cr_assert_eq(w.rollouts, d.count);
        for (uint32_t r = 0; r < d.count; r++) {
            cr_assert_eq(w.rollout[r], r);
            cr_assert(forest_has_tokens(&w, r, d.tokens + d.first[r], d.lengths[r]));
        }
        check_parts(&v, &w, cap);
        for (uint32_t t = 0; t < v.trees; t++) {
            uint64_t least;
            uint32_t parts = 0;
            try_cuts(&v, t, cap, &least, &parts);
            rows += least;
            trees += parts;
        }
        cr_assert_eq(w.tokens, rows, "draw %d, cap %" PRIu64 ": %" PRIu64 " rows, at best %" PRIu64, i, cap, w.tokens,
                     rows);
        cr_assert_eq(w.trees, trees, "draw %d, cap %" PRIu64 ": of as few rows, fewer trees", i, cap);
        repeated += w.tokens - v.tokens;
        fcpc_forest_free(cut);
        fcpc_forest_free(forest);
    }
    cr_assert_gt(repeated, 2000, "%" PRIu64, repeated);
}

/* --- picked trees ------------------------------------------------------------------------------------------------- */

Test(forest, picked_trees_are_the_same_trees) {
    uint64_t state = 3, picked = 0;
    for (int i = 0; i < 6000; i++) {
        static drawn d;
        fcpc_forest *forest, *some;
        fcpc_forest_view v, w;
        fcp_error err = {0};
        uint32_t trees[MOST], count = 0, rollouts = 0;
        draw_rollouts(&d, &state);
        make_checked(&d.rollouts, &forest);
        fcpc_forest_look(forest, &v);
        for (uint32_t t = 0; t < v.trees; t++)
            if (splitmix(&state) % 2) trees[count++] = t;
        cr_assert_eq(fcpc_forest_pick(forest, trees, count, &some, &err), FCP_OK, "%s", err.message);
        const char *wrong = forest_check(some);
        cr_assert_null(wrong, "draw %d: %s", i, wrong);
        fcpc_forest_look(some, &w);
        cr_assert_eq(w.trees, count);
        uint64_t from = 0, to = 0;
        for (uint32_t t = 0, at = 0; t < v.trees; from += v.lengths[t++]) {
            if (at == count || trees[at] != t) continue;
            cr_assert_eq(w.lengths[at], v.lengths[t]);
            for (uint64_t k = 0; k < v.lengths[t]; k++) {
                cr_assert_eq(w.token[to + k], v.token[from + k]);
                cr_assert_eq(w.position[to + k], v.position[from + k]);
                cr_assert_eq(w.last[to + k], v.last[from + k]);
                cr_assert_eq(w.sharing[to + k], v.sharing[from + k]);
                cr_assert_eq(w.parent[to + k], k ? v.parent[from + k] - (int64_t)from + (int64_t)to : -1);
            }
            for (uint32_t r = 0; r < v.rollouts; r++) {
                if (v.tree[r] != t) continue;
                uint32_t found = 0;
                while (found < w.rollouts && w.rollout[found] != r) found++;
                cr_assert_lt(found, w.rollouts);
                cr_assert_eq(w.tree[found], at);
                cr_assert(forest_has_tokens(&w, found, d.tokens + d.first[r], d.lengths[r]));
                rollouts++;
            }
            to += v.lengths[t];
            at++;
        }
        cr_assert_eq(w.rollouts, rollouts, "no rollout of another tree");
        cr_assert_eq(w.tokens, to);
        picked += count;
        fcpc_forest_free(some);
        fcpc_forest_free(forest);
    }
    cr_assert_gt(picked, 5000);
}

/* A picked forest keeps the caller's numbers, also in what errors say; and it can be cut and picked again. */
Test(forest, numbers_stay_the_callers) {
    const int64_t tokens[] = {1, 2, 3, 5, 6, 7, 5, 6, 8, 9};
    const uint64_t lengths[] = {3, 3, 0, 4};
    const fcpc_rollouts r = {.size = sizeof r, .count = 4, .lengths = lengths, .tokens = tokens};
    fcpc_forest *forest, *some, *cut, *last;
    fcpc_forest_view v;
    fcp_error err = {0};
    make_checked(&r, &forest);
    cr_assert_eq(fcpc_forest_pick(forest, (uint32_t[]){1}, 1, &some, &err), FCP_OK);
    cr_assert_eq(fcpc_forest_cut(some, 3, &cut, &err), FCP_E_VALUE);
    cr_assert(strstr(err.message, "rollout 3 has 4 tokens, more than the 3 of a tree"), "%s", err.message);
    cr_assert_eq(fcpc_forest_cut(some, 4, &cut, &err), FCP_OK);
    fcpc_forest_look(cut, &v);
    cr_assert_eq(v.trees, 2);
    cr_assert_eq(v.tokens, 7);
    cr_assert_eq(fcpc_forest_pick(cut, (uint32_t[]){1}, 1, &last, &err), FCP_OK);
    fcpc_forest_look(last, &v);
    cr_assert_eq(v.rollouts, 1);
    cr_assert_eq(v.rollout[0], 3);
    cr_assert(forest_has_tokens(&v, 0, tokens + 6, 4));
    fcpc_forest_free(forest), fcpc_forest_free(some), fcpc_forest_free(cut), fcpc_forest_free(last);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

Test(forest, what_is_wrong_is_refused) {
    enum { MANY = 513 };
    static uint64_t huge[MANY];
    const int64_t token = 1;
    const uint64_t one = 1, too_long = UINT64_C(1) << 32, endless = UINT64_MAX;
    for (int i = 0; i < MANY; i++) huge[i] = UINT64_C(1) << 31;
    const size_t size = sizeof(fcpc_rollouts);
    const struct wrong {
        fcpc_rollouts rollouts;
        fcp_code code;
        const char *says;
    } cases[] = {
        {{.size = 3, .count = 1, .lengths = &one, .tokens = &token}, FCP_E_ARGUMENT, "fcpc_rollouts"},
        {{.size = size, .count = 1u << 31, .lengths = &one, .tokens = &token}, FCP_E_ARGUMENT, "2147483648"},
        {{.size = size, .count = 1, .tokens = &token}, FCP_E_ARGUMENT, "no lengths"},
        {{.size = size, .count = 1, .lengths = &one}, FCP_E_ARGUMENT, "no tokens"},
        {{.size = size, .count = 1, .lengths = &too_long, .tokens = &token}, FCP_E_VALUE, "rollout 0 has 4294967296"},
        {{.size = size, .count = 1, .lengths = &endless, .tokens = &token}, FCP_E_VALUE, "rollout 0 has 1844674407"},
        {{.size = size, .count = MANY, .lengths = huge, .tokens = &token}, FCP_E_VALUE, "at most 2^40"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_forest *forest = NULL;
        fcp_error err = {0};
        cr_assert_eq(fcpc_forest_make(&cases[i].rollouts, &forest, &err), cases[i].code, "case %zu: %s", i,
                     err.message);
        cr_assert(strstr(err.message, cases[i].says), "case %zu: %s", i, err.message);
        cr_assert_null(forest);
        cr_assert_eq(fcpc_forest_make(&cases[i].rollouts, &forest, NULL), cases[i].code, "without a place for errors");
    }
}

Test(forest, trees_that_are_not_there_are_refused) {
    const int64_t tokens[] = {1, 2, 3};
    const uint64_t lengths[] = {1, 1, 1};
    const fcpc_rollouts r = {.size = sizeof r, .count = 3, .lengths = lengths, .tokens = tokens};
    const struct wrong {
        uint32_t trees[3], count;
        const char *says;
    } cases[] = {{{3}, 1, "tree 3"}, {{0, UINT32_MAX}, 2, "tree 4294967295"}, {{1, 1}, 2, "rise"}, {{2, 0}, 2, "rise"}};
    fcpc_forest *forest, *some = NULL;
    make_checked(&r, &forest);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcp_error err = {0};
        cr_assert_eq(fcpc_forest_pick(forest, cases[i].trees, cases[i].count, &some, &err), FCP_E_ARGUMENT);
        cr_assert(strstr(err.message, cases[i].says), "case %zu: %s", i, err.message);
        cr_assert_null(some);
    }
    fcpc_forest_free(forest);
    fcpc_forest_free(NULL);
}

/* Without rollouts, or with empty ones alone, there is a forest without trees. */
Test(forest, nothing_is_a_forest) {
    const uint64_t lengths[] = {0, 0};
    for (uint32_t count = 0; count <= 2; count += 2) {
        const fcpc_rollouts r = {.size = sizeof r, .count = count, .lengths = count ? lengths : NULL};
        fcpc_forest *forest, *cut, *some;
        fcpc_forest_view v;
        make_checked(&r, &forest);
        cr_assert_eq(fcpc_forest_cut(forest, 0, &cut, NULL), FCP_OK);
        cr_assert_eq(fcpc_forest_pick(forest, NULL, 0, &some, NULL), FCP_OK);
        fcpc_forest_look(cut, &v);
        cr_assert_eq(v.trees + v.tokens, 0);
        cr_assert_eq(v.rollouts, count);
        fcpc_forest_look(some, &v);
        cr_assert_eq(v.rollouts, 0);
        cr_assert_null(forest_check(cut));
        cr_assert_null(forest_check(some));
        fcpc_forest_free(forest), fcpc_forest_free(cut), fcpc_forest_free(some);
    }
}

/* --- large ones --------------------------------------------------------------------------------------------------- */

/* Rollouts that part one after the other from one chain, a branch at each token: 3000 nodes deep. The least number is
 * the shortest, and then the longest. Neither is quadratic in rollouts beyond its tokens, and nothing recurses. */
Test(forest, a_deep_comb_takes_no_longer_than_its_tokens) {
    enum { COUNT = 3000 };
    static uint64_t lengths[COUNT], first[COUNT];
    static int64_t tokens[2 * COUNT];
    for (int i = 0; i < 2 * COUNT; i++) tokens[i] = 7;
    for (int up = 0; up < 2; up++) {
        for (int i = 0; i < COUNT; i++) lengths[i] = (uint64_t)(up ? i + 1 : COUNT - i), first[i] = (uint64_t)i;
        const fcpc_rollouts r = {.size = sizeof r,
                                 .count = COUNT,
                                 .lengths = lengths,
                                 .first = first,
                                 .tokens = tokens};
        fcpc_forest *forest, *cut;
        fcpc_forest_view v;
        const clock_t start = clock();
        make_checked(&r, &forest);
        cr_assert_eq(fcpc_forest_cut(forest, COUNT, &cut, NULL), FCP_OK);
        fcpc_forest_look(cut, &v);
        cr_assert_eq(v.tokens, COUNT);
        cr_assert_lt(clock() - start, 4 * CLOCKS_PER_SEC);
        fcpc_forest_free(forest), fcpc_forest_free(cut);
    }
}

/* The rows of a large forest are written by several threads; on one processor, by one. They are the same. */
Test(forest, large_ones_do_not_depend_on_threads) {
    enum { COUNT = 1600, TURN = 250, TURNS = 4 };
    static uint64_t lengths[COUNT];
    static int64_t tokens[COUNT * TURN * TURNS];
    cpu_set_t all, one;
    fcpc_forest *forest[2];
    fcpc_forest_view v[2];
    uint64_t state = 4, at = 0;
    for (uint32_t i = 0; i < COUNT; i++) { /* a hundred prompts; in each turn a rollout goes one of three ways */
        uint64_t way = i / 16;
        lengths[i] = TURN * (1 + splitmix(&state) % TURNS);
        for (uint64_t t = 0; t < lengths[i]; t++) {
            if (t && t % TURN == 0) way = way * 3 + splitmix(&state) % 3;
            tokens[at++] = (int64_t)(way * 1000 + t % 7);
        }
    }
    const fcpc_rollouts r = {.size = sizeof r, .count = COUNT, .lengths = lengths, .tokens = tokens};
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all)) CPU_SET(cpu, &one);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(sched_setaffinity(0, sizeof all, i ? &one : &all), 0);
        make_checked(&r, &forest[i]);
        fcpc_forest_look(forest[i], &v[i]);
    }
    cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
    cr_assert_eq(v[0].tokens, v[1].tokens);
    cr_assert_gt(v[0].tokens + v[0].rollout_tokens, 1 << 20, "too few for a second thread");
    cr_assert_lt(4 * v[0].tokens, 3 * v[0].rollout_tokens, "too little is shared");
    const size_t size = v[0].tokens * sizeof(int64_t);
    cr_assert_arr_eq(v[0].token, v[1].token, size);
    cr_assert_arr_eq(v[0].position, v[1].position, size);
    cr_assert_arr_eq(v[0].last, v[1].last, size);
    cr_assert_arr_eq(v[0].parent, v[1].parent, size);
    cr_assert_arr_eq(v[0].sharing, v[1].sharing, size);
    cr_assert_arr_eq(v[0].rows, v[1].rows, v[0].rollout_tokens * sizeof(int64_t));
    for (uint64_t i = 0, first = 0; i < COUNT; first += lengths[i++])
        cr_assert(forest_has_tokens(&v[0], (uint32_t)i, tokens + first, lengths[i]));
    fcpc_forest_free(forest[0]), fcpc_forest_free(forest[1]);
}
