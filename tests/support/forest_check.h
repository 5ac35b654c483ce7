/* forest_check.h: what every forest of rollouts keeps (fcpc.h, "forests of rollouts"), found from its rows alone. */
#ifndef FOREST_CHECK_H
#define FOREST_CHECK_H
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "compiler/fcpc.h"

/* Finds for each row what it must hold, from the rows of the rollouts: sharing, and last, in rows of the forest. */
static inline const char *forest_check_rows(const fcpc_forest_view *v, int64_t *sharing, int64_t *last) {
    for (uint64_t i = 0; i < v->tokens; i++) sharing[i] = 0, last[i] = (int64_t)i;
    uint64_t all = 0;
    for (uint32_t r = 0; r < v->rollouts; r++) {
        if (v->start[r] != all || v->start[r + 1] < all) return "start does not rise from 0";
        if (r && v->rollout[r] <= v->rollout[r - 1]) return "numbers of rollouts do not rise";
        if ((v->tree[r] == UINT32_MAX) != (v->start[r + 1] == all)) return "a rollout has tokens or a tree, not both";
        if (v->tree[r] != UINT32_MAX && v->tree[r] >= v->trees) return "there is no such tree";
        for (uint64_t i = all; i < v->start[r + 1]; i++) {
            const int64_t row = v->rows[i];
            if (row < 0 || (uint64_t)row >= v->tokens) return "there is no such row";
            sharing[row]++;
            if (v->parent[row] != (i > all ? v->rows[i - 1] : -1)) return "parent is not the row before";
            if (v->position[row] != (int64_t)(i - all)) return "position is not the place in the rollout";
        }
        all = v->start[r + 1];
    }
    return all == v->rollout_tokens ? NULL : "rollout_tokens is not their sum";
}

static inline const char *forest_check_trees(const fcpc_forest_view *v, const int64_t *sharing, int64_t *last) {
    for (uint64_t i = v->tokens; i-- > 0;) { /* a parent comes before its children */
        if (!sharing[i]) return "a row is in no rollout";
        if (v->sharing[i] != sharing[i]) return "sharing is not the number of rollouts";
        if (v->parent[i] >= (int64_t)i) return "a parent comes after its child";
        if (v->parent[i] >= 0 && last[v->parent[i]] < last[i]) last[v->parent[i]] = last[i];
    }
    uint64_t base = 0;
    for (uint32_t t = 0; t < v->trees; t++) {
        const uint64_t end = base + v->lengths[t];
        if (!v->lengths[t] || end > v->tokens) return "a tree is empty, or too long";
        for (uint64_t i = base; i < end; i++) {
            if ((v->parent[i] == -1) != (i == base)) return "a tree has one first row";
            if (i > base && v->parent[i] < (int64_t)base) return "a parent is in another tree";
            if (v->last[i] != last[i] - (int64_t)base) return "last is not the end of the subtree";
            /* depth first: what comes next is below this row, or below a row whose subtree this one ends */
            if (i + 1 < end && v->parent[i + 1] != (int64_t)i && last[i] != (int64_t)i) return "not depth first";
        }
        base = end;
    }
    if (base != v->tokens) return "the trees do not have all rows";
    for (uint32_t r = 0, t; r < v->rollouts; r++) {
        if ((t = v->tree[r]) == UINT32_MAX) continue;
        for (base = 0; t--;) base += v->lengths[t];
        if (v->rows[v->start[r]] != (int64_t)base) return "a rollout begins in another tree";
    }
    return NULL;
}

/* What is wrong with a forest; NULL: nothing. Cost: O(rollouts * trees + tokens). */
static inline const char *forest_check(const fcpc_forest *forest) {
    fcpc_forest_view v;
    fcpc_forest_look(forest, &v);
    int64_t *sharing = malloc((v.tokens + 1) * sizeof *sharing), *last = malloc((v.tokens + 1) * sizeof *last);
    const char *wrong = sharing && last ? forest_check_rows(&v, sharing, last) : "no memory";
    if (!wrong) wrong = forest_check_trees(&v, sharing, last);
    free(sharing), free(last);
    return wrong;
}

/* Whether rollout r of a forest has these tokens. */
static inline bool forest_has_tokens(const fcpc_forest_view *v, uint32_t r, const int64_t *tokens, uint64_t length) {
    if (v->start[r + 1] - v->start[r] != length) return false;
    for (uint64_t i = 0; i < length; i++)
        if (v->token[v->rows[v->start[r] + i]] != tokens[i]) return false;
    return true;
}
#endif
