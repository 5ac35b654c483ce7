/* fuzz_forest.c: makes, cuts and picks forests of rollouts.
 *
 * Oracle: tests/support/forest_check.h holds for every forest. Two rollouts share their first tokens, as far as these
 *         are equal, the groups are, and the least length of a stretch lets them; and each rollout has its tokens. A
 *         cut has no tree above the cap, and is the same forest if no tree was. Made twice, a forest is the same.
 * Input:  five bytes: how many rollouts; the least length; whether there are groups, and whether rollouts say where
 *         they start; how much more than the longest rollout a tree of the cut may have; which trees are picked. Then
 *         two bytes for each rollout: its length, and its group or start. The rest are the tokens.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/support/forest_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEAD = 5, ROLLOUTS = 24, LONGEST = 32, GROUPS = 3, MOST = 1024 };

typedef struct input {
    fcpc_rollouts rollouts;
    uint64_t lengths[ROLLOUTS], first[ROLLOUTS], longest;
    int64_t groups[ROLLOUTS], tokens[MOST];
} input;

static uint64_t least_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void read_input(const uint8_t *data, size_t size, input *x) {
    const uint32_t count = (uint32_t)least_of(data[0] % ROLLOUTS, (size - HEAD) / 2);
    const uint8_t *of = data + HEAD, *tokens = of + 2 * (size_t)count;
    const uint64_t all = least_of(size - HEAD - 2 * (size_t)count, MOST);
    const bool grouped = data[2] & 1, placed = data[2] & 2;
    *x = (input){.longest = 0};
    for (uint64_t i = 0; i < all; i++) x->tokens[i] = (int64_t)(tokens[i] % 4) - 2;
    for (uint64_t i = 0, at = 0; i < count; i++, of += 2) {
        x->first[i] = placed ? least_of(of[1], all) : at;
        x->lengths[i] = least_of(of[0] % LONGEST, all - x->first[i]);
        x->groups[i] = of[1] % GROUPS;
        at += x->lengths[i];
        if (x->lengths[i] > x->longest) x->longest = x->lengths[i];
    }
    x->rollouts = (fcpc_rollouts){.size = sizeof x->rollouts,
                                  .count = count,
                                  .lengths = x->lengths,
                                  .first = placed ? x->first : NULL,
                                  .tokens = x->tokens,
                                  .groups = grouped ? x->groups : NULL,
                                  .least = data[1] % 8};
}

static fcpc_forest_view checked(const fcpc_forest *forest) {
    fcpc_forest_view v;
    fcpc_forest_look(forest, &v);
    if (forest_check(forest)) abort();
    return v;
}

static bool is_same(const fcpc_forest_view *v, const fcpc_forest_view *w) {
    const size_t rows = v->tokens * sizeof *v->token;
    return v->tokens == w->tokens && v->trees == w->trees && v->rollouts == w->rollouts &&
           !memcmp(v->lengths, w->lengths, v->trees * sizeof *v->lengths) && !memcmp(v->token, w->token, rows) &&
           !memcmp(v->position, w->position, rows) && !memcmp(v->last, w->last, rows) &&
           !memcmp(v->parent, w->parent, rows) && !memcmp(v->sharing, w->sharing, rows) &&
           !memcmp(v->rows, w->rows, v->rollout_tokens * sizeof *v->rows);
}

/* How many rows two rollouts share. */
static uint64_t shared(const fcpc_forest_view *v, uint32_t a, uint32_t b) {
    uint64_t n = 0;
    const uint64_t most = least_of(v->start[a + 1] - v->start[a], v->start[b + 1] - v->start[b]);
    while (n < most && v->rows[v->start[a] + n] == v->rows[v->start[b] + n]) n++;
    return n;
}

static void check_content(const input *x, const fcpc_forest_view *v) {
    const uint64_t least = x->rollouts.least;
    for (uint32_t i = 0; i < v->rollouts; i++) {
        const int64_t *own = x->tokens + x->first[i];
        if (!forest_has_tokens(v, i, own, x->lengths[i])) abort();
        for (uint32_t j = 0; j < i; j++) {
            const uint64_t most = least_of(x->lengths[i], x->lengths[j]), rows = shared(v, i, j);
            uint64_t equal = 0;
            while (equal < most && own[equal] == x->tokens[x->first[j] + equal]) equal++;
            if (x->rollouts.groups && x->groups[i] != x->groups[j]) equal = 0;
            if (rows > equal || (least <= 1 && rows < equal) || (rows && rows < least)) abort();
        }
    }
}

static void check_cut(const input *x, const fcpc_forest *forest, uint64_t cap) {
    fcpc_forest *cut = NULL;
    fcp_error err = {0};
    const fcpc_forest_view v = checked(forest);
    bool fits = true;
    if (x->longest && (fcpc_forest_cut(forest, x->longest - 1, &cut, &err) != FCP_E_VALUE || cut || !*err.message))
        abort();
    if (fcpc_forest_cut(forest, cap, &cut, &err)) abort();
    const fcpc_forest_view w = checked(cut);
    for (uint32_t t = 0; t < v.trees; t++) fits = fits && v.lengths[t] <= cap;
    for (uint32_t t = 0; t < w.trees; t++)
        if (w.lengths[t] > cap) abort();
    if (w.tokens < v.tokens || w.rollout_tokens != v.rollout_tokens || fits != is_same(&v, &w)) abort();
    for (uint32_t i = 0; i < w.rollouts; i++) {
        if (!forest_has_tokens(&w, i, x->tokens + x->first[i], x->lengths[i])) abort();
        for (uint32_t j = 0; j < i; j++) {
            const uint64_t rows = shared(&w, i, j);
            if (rows != (w.tree[i] == w.tree[j] ? shared(&v, i, j) : 0)) abort();
        }
    }
    fcpc_forest_free(cut);
}

static void check_pick(const input *x, const fcpc_forest *forest, uint8_t which) {
    uint32_t trees[ROLLOUTS], count = 0;
    uint64_t tokens = 0;
    fcpc_forest *some = NULL;
    const fcpc_forest_view v = checked(forest);
    for (uint32_t t = 0; t < v.trees; t++)
        if (which >> t % 8 & 1) trees[count++] = t, tokens += v.lengths[t];
    if (fcpc_forest_pick(forest, trees, count, &some, NULL)) abort();
    const fcpc_forest_view w = checked(some);
    if (w.trees != count || w.tokens != tokens) abort();
    for (uint32_t i = 0; i < w.rollouts; i++) {
        const uint32_t of = w.rollout[i];
        if (!forest_has_tokens(&w, i, x->tokens + x->first[of], x->lengths[of])) abort();
        if (trees[w.tree[i]] != v.tree[of]) abort();
    }
    fcpc_forest_free(some);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < HEAD) return 0;
    static input x;
    fcpc_forest *forest, *again;
    fcp_error err = {0};
    read_input(data, size, &x);
    if (fcpc_forest_make(&x.rollouts, &forest, &err) || fcpc_forest_make(&x.rollouts, &again, &err)) abort();
    const fcpc_forest_view v = checked(forest), w = checked(again);
    if (!is_same(&v, &w)) abort();
    check_content(&x, &v);
    check_cut(&x, forest, x.longest + data[3] % 64);
    check_pick(&x, forest, data[4]);
    fcpc_forest_free(forest), fcpc_forest_free(again);
    return 0;
}
