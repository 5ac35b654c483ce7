/* empty_rows.c: queries for which a mask allows no key at all.
 *
 * Requires: a mask that no (q, k, h) of the batch makes fault.
 * Gives:    the first run of rows that see nothing; none, if none was found within the budget.
 * Method:   in most masks every query sees itself: the mask with q in place of k is then FULL on all rows, in one
 *           evaluation. Else rows are halved until all of them see one key, or none sees any; keys are halved to find out.
 * Cost:     nodes of the mask per evaluation; one evaluation a batch where queries see themselves (one a length if the
 *           mask names n), at most BUDGET of them otherwise.
 * Source:   box.h.
 */
#include "empty_rows.h"

#include <string.h>

enum { BUDGET = 1 << 16, LOOKS = 96 }; /* evaluations in all, and for the keys of several rows */

typedef struct search {
    const box_program *program;
    box_value *values;
    int64_t n, h;
    int32_t left; /* evaluations */
    empty_rows *found;
    bool ended; /* the run of empty rows is complete, or the budget spent */
} search;

static box_class look(search *s, int64_t q0, int64_t q1, int64_t k0, int64_t k1) {
    bool ignored;
    const box b = {{q0, k0, s->h}, {q1, k1, s->h + 1}};
    if (s->left-- <= 0) s->ended = true;
    return s->ended ? BOX_MIXED : box_evaluate(s->program, &b, s->values, &ignored);
}

/* Rows [q0, q1) over keys [k0, k1): FULL if one key, at least, is seen by all rows, NONE if no row sees any, else MIXED;
 * that too when *looks are spent. */
static box_class search_keys(search *s, int64_t q0, int64_t q1, int64_t k0, int64_t k1, int32_t *looks) {
    if ((*looks)-- <= 0) return BOX_MIXED;
    box_class cls = look(s, q0, q1, k0, k1);
    if (cls != BOX_MIXED || s->ended || k1 - k0 == 1) return cls;
    int64_t middle = k0 + (k1 - k0) / 2;
    box_class left = search_keys(s, q0, q1, k0, middle, looks);
    if (left == BOX_FULL || s->ended) return left;
    box_class right = search_keys(s, q0, q1, middle, k1, looks);
    return right == BOX_FULL || left == right ? right : BOX_MIXED;
}

/* Rows [q0, q1), all before them being done. */
static void visit(search *s, int64_t q0, int64_t q1) {
    const int64_t witness[] = {0, q0, q1 - 1, s->n - 1};
    box_class cls = BOX_MIXED;
    for (int i = 0; i < 4 && cls != BOX_FULL && !s->ended; i++) cls = look(s, q0, q1, witness[i], witness[i] + 1);
    int32_t looks = q1 - q0 > 1 ? LOOKS : BUDGET;
    if (cls != BOX_FULL && !s->ended) cls = search_keys(s, q0, q1, 0, s->n, &looks);
    if (cls == BOX_MIXED && !s->ended && q1 - q0 > 1) {
        int64_t middle = q0 + (q1 - q0) / 2;
        visit(s, q0, middle);
        if (!s->ended) visit(s, middle, q1);
        return;
    }
    bool none = cls == BOX_NONE && !s->ended;
    if (none && s->found->first == s->found->end) s->found->first = (uint64_t)q0;
    if (none) s->found->end = (uint64_t)q1;
    else if (s->found->first != s->found->end) s->ended = true;
}

fcp_code empty_rows_find(mc_code mask, uint32_t heads, const uint64_t *lengths, size_t count, arena *scratch,
                         empty_rows *out) {
    unsigned uses = mc_uses(mask);
    uint32_t different = uses & MC_USES_H ? heads : 1;
    uint64_t longest = 0, last = 0;
    mc_node *nodes = ARENA_NEW(scratch, mc_node, mask.count);
    box_program *program = arena_alloc(scratch, box_program_size(mask.count), 1, _Alignof(box_program));
    box_value *values = ARENA_NEW(scratch, box_value, mask.count);
    if (!nodes || !program || !values) return FCP_E_NO_MEMORY;
    *out = (empty_rows){0};
    memcpy(nodes, mask.nodes, mask.count * sizeof *nodes);
    for (uint32_t i = 0; i < mask.count; i++)
        if (nodes[i].op == MC_K) nodes[i].op = MC_Q;
    const mc_code self = {nodes, mask.count};
    for (size_t i = 0; i < count; i++)
        if (lengths[i] > longest) longest = lengths[i];
    search s = {.program = program, .values = values, .left = BUDGET, .found = out};
    for (size_t i = 0; i < count && !s.ended && out->first == out->end; i++) {
        if (lengths[i] == last) continue;
        last = lengths[i];
        s.n = (int64_t)last;
        const box rows = {{0, 0, 0}, {uses & MC_USES_N ? s.n : (int64_t)longest, 1, different}};
        bool ignored;
        s.left--;
        box_program_make(self, s.n, program);
        if (box_evaluate(program, &rows, values, &ignored) == BOX_FULL) {
            if (!(uses & MC_USES_N)) break; /* so it is in every sequence */
            continue;
        }
        box_program_make(mask, s.n, program);
        out->sequence = i;
        for (uint32_t h = 0; h < different && !s.ended && out->first == out->end; h++) {
            out->h = h;
            s.h = h;
            visit(&s, 0, s.n);
        }
    }
    return FCP_OK;
}
