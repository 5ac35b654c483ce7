/* head_mask.c: a mask as one range of heads sees it.
 *
 * Requires: mask code that names h; a range of heads.
 * Gives:    code whose h counts the range's heads from 0, so that its pairs can be summed over them alone.
 * Cost:     a copy of the code.
 *
 * Example: a range has query heads 6 and 7. Its h is then 0 or 1, and where the mask reads h, this code reads h + 6. Of
 * a range with KV heads 2 and 3 and the second of each one's two query heads, which are 5 and 7, it reads h / 1 * 2 +
 * h % 1 + 5.
 */
#include <string.h>

#include "compiler/problem/problem.h"

enum { ADDED = 9 };

static uint32_t add(mc_node *nodes, uint32_t *count, mc_op op, uint32_t a, uint32_t b, int64_t imm) {
    nodes[*count] = (mc_node){.op = op, .a = a, .b = b, .c = MC_NONE, .guard = MC_NONE, .imm = imm};
    return (*count)++;
}

int64_t problem_head(const problem *p, const fcp_heads *range, int64_t h) {
    const int64_t shared = p->program->heads / p->program->kv_heads, sub = range->sub_count;
    return ((int64_t)range->kv_first + h / sub) * shared + range->sub_first + h % sub;
}

/* Of a node's operand in the whole mask: the one here. */
static uint32_t operand(mc_code whole, uint32_t node, uint32_t added, uint32_t h) {
    if (node == MC_NONE) return MC_NONE;
    return whole.nodes[node].op == MC_H ? h : node + added;
}

bool problem_head_mask(const problem *p, const fcp_heads *range, arena *memory, mc_code *out, uint32_t *out_added) {
    const mc_code whole = p->program->mask;
    const uint32_t shared = p->program->heads / p->program->kv_heads;
    mc_node *nodes = ARENA_NEW(memory, mc_node, whole.count + (size_t)ADDED);
    uint32_t count = 0;
    if (!nodes) return false;
    uint32_t h = add(nodes, &count, MC_H, MC_NONE, MC_NONE, 0);
    if (range->sub_count != shared && range->kv_count > 1) { /* its heads do not lie together */
        uint32_t sub = add(nodes, &count, MC_CONST_I, MC_NONE, MC_NONE, range->sub_count);
        uint32_t kv = add(nodes, &count, MC_DIV, h, sub, 0), rest = add(nodes, &count, MC_MOD, h, sub, 0);
        uint32_t group = add(nodes, &count, MC_CONST_I, MC_NONE, MC_NONE, shared);
        h = add(nodes, &count, MC_ADD, add(nodes, &count, MC_MUL, kv, group, 0), rest, 0);
    }
    uint32_t first = add(nodes, &count, MC_CONST_I, MC_NONE, MC_NONE, problem_head(p, range, 0));
    h = add(nodes, &count, MC_ADD, h, first, 0);
    *out_added = count;
    for (uint32_t i = 0; i < whole.count; i++) {
        mc_node *n = &nodes[count++];
        *n = whole.nodes[i];
        n->a = operand(whole, n->a, *out_added, h);
        n->b = operand(whole, n->b, *out_added, h);
        n->c = operand(whole, n->c, *out_added, h);
        n->guard = operand(whole, n->guard, *out_added, h);
    }
    *out = (mc_code){nodes, count};
    return true;
}
