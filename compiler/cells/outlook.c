/* outlook.c: how many pairs will have to be looked at one by one, before the work begins.
 *
 * Gives: an estimate, from SAMPLES whole cells anywhere in the sequence: what these need, times the area.
 * Cost: nothing for a mask of sums and comparisons, or a short sequence; else a box or a cell for each sample, about 1
 *      ms if all of them need it.
 */
#include <string.h>

#include "compiler/cells/parts.h"

/* May the mask have cells whose pairs are looked at one by one? Sums and comparisons of positions never do. */
static bool may_need_elements(mc_code mask) {
    for (uint32_t i = 0; i < mask.count; i++)
        switch (mask.nodes[i].op) {
        case MC_MUL: case MC_DIV: case MC_MOD: case MC_LOAD: case MC_LOAD2: return true;
        default: break;
        }
    return false;
}

/* Is it like one that was asked about? Else it is kept, while there is room. */
static bool asked_before(cells *c, const mc_env *env) {
    const struct outlook_sequence s = {env->n, env->q_first, env->queries};
    if (c->uses & MC_USES_DATA) return false;
    for (uint32_t i = 0; i < c->outlook_count; i++)
        if (memcmp(&c->outlooks[i], &s, sizeof s) == 0) return true;
    if (c->outlook_count < OUTLOOKS) c->outlooks[c->outlook_count++] = s;
    return false;
}

fcp_code cells_outlook(cells *c, const mc_env *env, uint64_t *out_elements) {
    enum { SAMPLES = 64, LEAST_BITS = 28 };
    const uint64_t down = (uint64_t)env->queries / FCP_CELL, across = (uint64_t)env->n / FCP_CELL;
    uint64_t area, looked_at = 0, state = 1;
    *out_elements = 0;
    if (!may_need_elements(c->mask) || __builtin_mul_overflow((uint64_t)env->queries, (uint64_t)env->n, &area) ||
        area >> LEAST_BITS == 0 || !down || !across || asked_before(c, env))
        return FCP_OK;
    fcp_code code = cells_set_sequence(c, env);
    for (int i = 0; i < SAMPLES && code == FCP_OK; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint64_t row = (state >> 33) % down;
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const uint64_t col = (state >> 33) % across, before = c->stats.elements;
        const int64_t q = env->q_first + (int64_t)(row * FCP_CELL), k = (int64_t)(col * FCP_CELL);
        const box b = make_box(c, q, q + FCP_CELL, k, k + FCP_CELL);
        const box_program *p = c->base;
        box_class cls;
        uint64_t pairs;
        stack_mark mark = stack_here(&c->stack);
        code = cells_classify(c, &b, &p, &cls);
        if (code == FCP_OK && cls == BOX_MIXED) code = cells_cell_pairs(c, &b, p, &pairs);
        stack_back(&c->stack, mark);
        looked_at += c->stats.elements - before;
    }
    if (is_fault(code)) return FCP_OK; /* whoever asks for the cells is told */
    const uint64_t heads = c->heads;
    *out_elements = (uint64_t)((unsigned __int128)area * looked_at / (SAMPLES * FCP_CELL * FCP_CELL * heads) * heads);
    return code;
}
