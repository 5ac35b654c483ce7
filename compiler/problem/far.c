/* far.c: finds the pairs to whose logits a score adds a very large constant, such as -10^9 to hide a key.
 *
 * Requires: a checked program.
 * Gives: code for the program's mask without these pairs. If a query sees keys by the mask but none by this code, all
 *     its logits, and so its log-sum-exp, are as large as the constant.
 * Cost: O(nodes); nothing if the score has no such constant.
 *
 * Example: if the score is `if doc[q] == doc[k] then s else -1000000000.0`, the code is the mask and doc[q] == doc[k].
 *
 * For each node of the score that is a real number, two conditions on (q, k) are made: `above`, that no large constant
 * moves its value up, and `below`, that none moves it down. By kind of node:
 * - A large constant: `above` is false if it is positive, `below` is false if it is negative.
 * - `if`: the conditions of the value that it chooses.
 * - A sum: two large constants of different signs count as cancelled. Otherwise both operands' conditions must hold.
 * - min, max and minus combine the conditions of their operands.
 * - A product or function of something with a large constant in it, and all that uses its value: nothing is known, so
 *   both conditions are true.
 * Whole numbers and comparisons of them are copied from the score. If they may fault they are guarded by the mask,
 * because a score is only proved not to fault for pairs that the mask allows.
 */
#include "compiler/problem/far.h"

#include <math.h>
#include <stdlib.h>

typedef struct maker {
    mc_builder *to;
    mc_code score;
    uint32_t mask, always; /* nodes: the mask's answer; true */
    uint32_t *copy;        /* per node of the score: the same node in `to`; MC_NONE of reals and what depends on them */
    uint32_t *above, *below; /* per real node: the condition that nothing moves it up; that nothing moves it down */
    bool *has, *unknown;     /* per real node: it has a large constant in it; its conditions are not known */
} maker;

static uint32_t emit(maker *m, mc_op op, uint32_t a, uint32_t b, uint32_t c) {
    return mc_emit(m->to, op, a, b, c, 0, MC_NONE, 0);
}

/* Copies a node that is a whole number or a condition. */
static void copy_whole(maker *m, uint32_t i) {
    const mc_node *n = &m->score.nodes[i];
    const uint32_t operands[3] = {n->a, n->b, n->c};
    uint32_t to[3] = {MC_NONE, MC_NONE, MC_NONE}, guard = MC_NONE;
    m->copy[i] = MC_NONE;
    for (int o = 0; o < 3; o++) {
        if (operands[o] == MC_NONE) continue;
        to[o] = m->copy[operands[o]];
        if (to[o] == MC_NONE) return; /* a condition on reals */
    }
    if (mc_op_faults(n->op))
        guard = n->guard == MC_NONE ? m->mask : emit(m, MC_AND, m->mask, m->copy[n->guard], MC_NONE);
    m->copy[i] = mc_emit(m->to, (mc_op)n->op, to[0], to[1], to[2], n->imm, guard, 0);
}

/* Makes the condition for `if`: that of the value it chooses. If it chooses by a comparison of reals, which is not
 * copied, it is enough that the condition of one of the two values holds. */
static uint32_t condition_of_if(maker *m, const mc_node *n, const uint32_t *of) {
    const uint32_t condition = m->copy[n->a];
    return condition == MC_NONE ? emit(m, MC_OR, of[n->b], of[n->c], MC_NONE)
                                : emit(m, MC_IF_B, condition, of[n->b], of[n->c]);
}

/* The condition for a sum. a, b: the conditions of its operands for one direction; a_other, b_other: for the other. */
static uint32_t condition_of_sum(maker *m, uint32_t a, uint32_t a_other, uint32_t b, uint32_t b_other) {
    const uint32_t left = emit(m, MC_OR, a, emit(m, MC_NOT, b_other, MC_NONE, MC_NONE), MC_NONE);
    const uint32_t right = emit(m, MC_OR, b, emit(m, MC_NOT, a_other, MC_NONE, MC_NONE), MC_NONE);
    return emit(m, MC_AND, left, right, MC_NONE);
}

/* Makes the two conditions of a real node. */
static void judge_real(maker *m, uint32_t i) {
    const mc_node *n = &m->score.nodes[i];
    const uint32_t *above = m->above, *below = m->below;
    uint32_t up = m->always, down = m->always;
    const uint32_t operands[3] = {n->a, n->b, n->c};
    m->has[i] = n->op == MC_CONST_F && fabs(mc_real(n->imm)) >= FAR_CONSTANT;
    m->unknown[i] = false;
    for (int o = 0; o < 3; o++) {
        if (operands[o] == MC_NONE || mc_op_type(m->score.nodes[operands[o]].op) != 'f') continue;
        m->has[i] |= m->has[operands[o]];
        m->unknown[i] |= m->unknown[operands[o]];
    }
    m->above[i] = m->below[i] = m->always;
    if (m->unknown[i]) return;
    switch (n->op) {
    case MC_CONST_F:
        if (m->has[i])
            *(mc_real(n->imm) > 0 ? &up : &down) = mc_emit(m->to, MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0);
        break;
    case MC_ADD_F:
        up = condition_of_sum(m, above[n->a], below[n->a], above[n->b], below[n->b]);
        down = condition_of_sum(m, below[n->a], above[n->a], below[n->b], above[n->b]);
        break;
    case MC_SUB_F:
        up = condition_of_sum(m, above[n->a], below[n->a], below[n->b], above[n->b]);
        down = condition_of_sum(m, below[n->a], above[n->a], above[n->b], below[n->b]);
        break;
    case MC_NEG_F:
        up = below[n->a];
        down = above[n->a];
        break;
    case MC_MIN_F:
        up = emit(m, MC_OR, above[n->a], above[n->b], MC_NONE);
        down = emit(m, MC_AND, below[n->a], below[n->b], MC_NONE);
        break;
    case MC_MAX_F:
        up = emit(m, MC_AND, above[n->a], above[n->b], MC_NONE);
        down = emit(m, MC_OR, below[n->a], below[n->b], MC_NONE);
        break;
    case MC_IF_F:
        up = condition_of_if(m, n, above);
        down = condition_of_if(m, n, below);
        break;
    default: m->unknown[i] = m->has[i];
    }
    m->above[i] = up;
    m->below[i] = down;
}

/* Makes the code. False: out of memory, or it is longer than code may be. */
static bool make(maker *m, const struct fcpc_program *g, far_score *out) {
    m->mask = mc_emit_renamed(m->to, g->mask, MC_Q, MC_K);
    m->always = mc_emit(m->to, MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, 1, MC_NONE, 0);
    for (uint32_t i = 0; i < m->score.count && !mc_builder_failed(m->to); i++) {
        if (mc_op_type(m->score.nodes[i].op) == 'f') {
            m->copy[i] = MC_NONE;
            judge_real(m, i);
        } else copy_whole(m, i);
    }
    if (mc_builder_failed(m->to)) return false;
    const uint32_t last = m->score.count - 1;
    const uint32_t near = g->sink ? m->above[last] : emit(m, MC_AND, m->above[last], m->below[last], MC_NONE);
    if (near == m->always) return true;
    const uint32_t root = emit(m, MC_AND, m->mask, near, MC_NONE);
    uint32_t *places = NULL;
    const bool good = root != MC_NONE && mc_extract(m->to, root, &out->nodes, &places, &out->near.count);
    free(places);
    out->near.nodes = out->nodes;
    return good;
}

fcp_code far_find(const struct fcpc_program *g, far_score *out) {
    *out = (far_score){.constant = MC_NONE};
    for (uint32_t i = 0; i < g->score.count; i++) {
        if (g->score.nodes[i].op != MC_CONST_F) continue;
        const double x = mc_real(g->score.nodes[i].imm), size = fabs(x);
        if (size >= FAR_CONSTANT && size > fabs(out->value)) out->constant = i, out->value = x;
    }
    if (out->constant == MC_NONE) return FCP_OK;
    const size_t count = g->score.count;
    maker m = {.to = mc_builder_new(), .score = g->score, .copy = malloc(count * sizeof *m.copy),
               .above = malloc(count * sizeof *m.above), .below = malloc(count * sizeof *m.below),
               .has = malloc(count * sizeof *m.has), .unknown = malloc(count * sizeof *m.unknown)};
    bool good = m.to && m.copy && m.above && m.below && m.has && m.unknown && make(&m, g, out);
    if (!good && m.to && mc_builder_full(m.to)) good = true; /* too long to be asked about: no warning */
    free(m.copy);
    free(m.above);
    free(m.below);
    free(m.has);
    free(m.unknown);
    mc_builder_free(m.to);
    return good ? FCP_OK : FCP_E_NO_MEMORY;
}
