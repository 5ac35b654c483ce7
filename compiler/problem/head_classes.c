/* head_classes.c: groups query heads into classes whose masks are the same.
 *
 * Requires: a problem whose batch is bound.
 * Gives: p->head_class and p->class_count, if the mask names h, the number of the head; and the mask of one class,
 *     which does not name h.
 * Cost: O(heads * (nodes of the mask + classes)), and the size of the tables that have a row for each head; for a field
 *     over heads O(its values * unlike heads).
 *
 * Example: `causal and q - k < w[h]`, where w is [1024, 4096, 1024]. Heads 0 and 2 have the code of `causal and q - k <
 * 1024`, so they are a class. In `h < 1 or q - k < w[h]` the code of head 0 is `true`, whatever w[0] is.
 *
 * For each head:
 * 1. h is replaced by the head's number in the mask's code.
 * 2. Elements of tables whose index is now known are replaced by their values. The builder of code folds what is
 *    constant. A field has other values in each sequence. Its reads of head h become reads of the first head that has
 *    the same values in all sequences.
 * 3. The digest of the code is computed: that of a node is the SHA-256 of its operation, its number, and the digests of
 *    its operands. Heads with equal digests are a class.
 *
 * *Condition*: equal code means equal pairs, but not the reverse. Heads whose masks are written differently and allow
 * the same pairs are two classes, which costs planning time and nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "compiler/problem/problem.h"
#include "runtime/base/sha256.h"

typedef struct digest {
    uint8_t bytes[FCP_SHA256_BYTES];
} digest;

/* The first row of a two-dimensional table that has the same elements as row i; or i, if the table has no row i. */
static int64_t first_equal_row(const mc_array *a, int64_t i) {
    if (i < 0 || i >= a->count) return i;
    for (int64_t j = 0; j < i; j++) {
        int64_t c = 0;
        while (c < a->columns && mc_load(a, i, c, 0) == mc_load(a, j, c, 0)) c++;
        if (c == a->columns) return j;
    }
    return i;
}

/* Are elements i and j of an array's first dimension equal? */
static bool equal_parts(const mc_array *a, uint32_t i, uint32_t j) {
    const uint64_t parts = a->planes ? a->planes : (uint64_t)a->count;
    const size_t bytes = (size_t)(mc_array_total(a) / parts) * (a->width == MC_F64 ? 8 : (size_t)a->width);
    const char *data = a->data;
    return memcmp(data + i * bytes, data + j * bytes, bytes) == 0;
}

/* Finds for each head of a field the first head that has the same values in all sequences. NULL: out of memory. If
 * planning was stopped the answer means nothing. */
static uint32_t *alike_heads(planning *x, uint32_t array) {
    const problem *p = x->problem;
    const uint32_t heads = p->program->arrays[array].record.heads;
    uint32_t *first = ARENA_ZNEW(&x->scratch, uint32_t, heads), *now = ARENA_NEW(&x->scratch, uint32_t, heads);
    bool unlike = false; /* are all heads unlike? */
    if (!first || !now) return NULL;
    for (uint32_t s = 0; s < p->sequences && !unlike && !planning_stopped(x); s++) {
        const mc_env env = problem_env(p, s);
        const mc_array *a = &env.arrays[array];
        if (mc_array_total(a) == 0) continue;
        unlike = true;
        for (uint32_t h = 0; h < heads; h++) {
            uint32_t j = 0;
            while (j < h && (first[j] != first[h] || now[j] != j || !equal_parts(a, j, h))) j++;
            now[h] = j;
            unlike &= j == h;
        }
        memcpy(first, now, heads * sizeof *first);
    }
    return first;
}

/* What finding classes needs. */
typedef struct finder {
    const problem *p;
    mc_env env;
    uint32_t *at;     /* per node of the mask: its number in the code of one head */
    uint32_t **alike; /* per array: alike_heads of a field over heads; NULL: of another */
} finder;

/* Emits a node of the mask for one head, or its value if that is known. to: its operands in the code of the head. */
static uint32_t emit_node(const finder *f, mc_builder *b, const mc_node *x, const uint32_t to[4], uint32_t head) {
    if (x->op == MC_H) return mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, head, MC_NONE, 0);
    uint32_t count, index = to[0];
    const mc_node *nodes = mc_builder_nodes(b, &count);
    if (!mc_loads_int(x->op) || nodes[index].op != MC_CONST_I)
        return mc_emit(b, (mc_op)x->op, index, to[1], to[2], x->imm, to[3], 0);
    const fcp_array *record = &f->p->program->arrays[x->imm].record;
    const mc_array *a = &f->env.arrays[x->imm];
    const int64_t row = nodes[index].imm;
    if (record->kind != FCP_TABLE) {
        if (f->alike[x->imm] && row >= 0 && row < record->heads)
            index = mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, f->alike[x->imm][row], MC_NONE, 0);
        return mc_emit(b, (mc_op)x->op, index, to[1], to[2], x->imm, to[3], 0);
    }
    uint64_t at;
    const bool whole = x->op == MC_LOAD || nodes[to[1]].op == MC_CONST_I;
    if (whole && mc_place(a, row, x->op == MC_LOAD ? 0 : nodes[to[1]].imm, 0, &at))
        return mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, mc_int_at(a, at), MC_NONE, 0);
    if (x->op == MC_LOAD2)
        index = mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, first_equal_row(a, row), MC_NONE, 0);
    return mc_emit(b, (mc_op)x->op, index, to[1], to[2], x->imm, to[3], 0);
}

/* Computes the digest of a node. of: the digests of the nodes before it. Where the order of operands does not matter,
 * they are sorted by digest. The builder sorts them by their numbers, which differ between heads. */
static digest digest_of(const mc_node *x, const digest *of) {
    const struct {
        int64_t op, imm;
    } own = {x->op, x->imm};
    const uint32_t operands[4] = {x->a, x->b, x->c, x->guard};
    const digest none = {{0}};
    const digest *in[4];
    for (int o = 0; o < 4; o++) in[o] = operands[o] == MC_NONE ? &none : &of[operands[o]];
    if (mc_commutes((mc_op)x->op) && memcmp(in[0], in[1], sizeof none) > 0) {
        const digest *other = in[0];
        in[0] = in[1];
        in[1] = other;
    }
    fcp_sha256 h = fcp_sha256_begin();
    fcp_sha256_add(&h, &own, sizeof own);
    for (int o = 0; o < 4; o++) fcp_sha256_add(&h, in[o], sizeof none);
    digest out;
    fcp_sha256_end(&h, out.bytes);
    return out;
}

/* Finds the digest of the mask of one head. */
static bool digest_of_head(const finder *f, uint32_t head, digest *out) {
    const mc_code mask = f->p->program->mask;
    mc_builder *b = mc_builder_new();
    bool good = b;
    for (uint32_t i = 0; good && i < mask.count; i++) {
        const mc_node *x = &mask.nodes[i];
        const uint32_t operands[4] = {x->a, x->b, x->c, x->guard};
        uint32_t to[4];
        for (int o = 0; o < 4; o++) to[o] = operands[o] == MC_NONE ? MC_NONE : f->at[operands[o]];
        f->at[i] = emit_node(f, b, x, to, head);
        good = f->at[i] != MC_NONE;
    }
    uint32_t count = 0;
    const mc_node *nodes = good ? mc_builder_nodes(b, &count) : NULL;
    digest *of = malloc((count + (size_t)1) * sizeof *of);
    good = good && of;
    for (uint32_t i = 0; good && i < count; i++) of[i] = digest_of(&nodes[i], of);
    if (good) *out = of[f->at[mask.count - 1]];
    free(of);
    mc_builder_free(b);
    return good;
}

fcp_code problem_find_classes(planning *x) {
    problem *p = x->problem;
    const struct fcpc_program *g = p->program;
    p->class_count = 0;
    p->head_class = NULL;
    if (!(mc_uses(g->mask) & MC_USES_H)) return FCP_OK;
    finder f = {.p = p,
                .at = ARENA_NEW(&x->scratch, uint32_t, g->mask.count),
                .alike = ARENA_ZNEW(&x->scratch, uint32_t *, g->array_count)};
    for (uint32_t i = 0; i < g->array_count && f.alike; i++)
        if (g->arrays[i].record.kind == FCP_FIELD && g->arrays[i].record.heads && !(f.alike[i] = alike_heads(x, i)))
            return FCP_E_NO_MEMORY;
    f.env = problem_env(p, 0);                                /* tables are the same for all sequences */
    digest *found = ARENA_NEW(&x->scratch, digest, g->heads); /* of each class */
    p->head_class = ARENA_NEW(&x->memory, uint32_t, g->heads);
    if (!p->head_class || !f.at || !f.alike || !found) return FCP_E_NO_MEMORY;
    for (uint32_t h = 0; h < g->heads; h++) {
        digest of;
        uint32_t c = 0;
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        if (!digest_of_head(&f, h, &of)) return FCP_E_NO_MEMORY;
        while (c < p->class_count && memcmp(&found[c], &of, sizeof of)) c++;
        if (c == p->class_count) found[p->class_count++] = of;
        p->head_class[h] = c;
    }
    return FCP_OK;
}

uint32_t problem_class_head(const problem *p, uint32_t cls) {
    uint32_t head = 0;
    while (p->head_class[head] != cls) head++;
    return head;
}

bool problem_class_mask(const problem *p, uint32_t cls, arena *memory, mc_code *out) {
    const mc_code mask = p->program->mask;
    mc_node *nodes = ARENA_NEW(memory, mc_node, mask.count);
    if (nodes) *out = mc_of_head(mask, problem_class_head(p, cls), nodes);
    return nodes;
}
