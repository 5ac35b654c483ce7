/* head_phases.c: which heads each phase of upipe computes, for callers that project heads phase by phase (fcpc.h).
 *
 * Requires: a checked program.
 * Gives:    the heads of all phases, in the order in which place_by_heads has the phases compute them.
 * Cost:     O(heads).
 */
#include "codegen/mask/code.h"
#include "compiler/fcpc.h"
#include "compiler/place/heads/heads.h"
#include "compiler/sema/strategies.h"

static bool names_head(const fcpc_program *g) { return (mc_uses(g->mask) | mc_uses(g->score)) & MC_USES_H; }

/* Refuses what is not the same in all phases. */
static fcp_code check_alike(const fcpc_program *g, fcp_error *err) {
    bool by_head = names_head(g);
    for (uint32_t i = 0; i < g->layer_count; i++)
        if (g->layers[i].program) by_head |= names_head(g->layers[i].program);
    if (by_head)
        return fcp_fail(err, FCP_E_UNSUPPORTED,
                        "the mask or score names the head, h, so phases need plans that differ: "
                        "heads cannot be projected phase by phase");
    for (uint32_t h = 1; g->sink && h < g->heads; h++)
        if (g->sink[h] != g->sink[0])
            return fcp_fail(err, FCP_E_UNSUPPORTED,
                            "sinks differ from head to head: state one for all, and bring the "
                            "others to each run");
    return FCP_OK;
}

fcp_code fcpc_program_phases(const fcpc_program *g, fcpc_phases *out_phases, uint32_t *out_heads,
                             uint32_t *out_kv_heads, fcp_error *err) {
    if (!g || !out_phases) return fcp_fail(err, FCP_E_ARGUMENT, "a program is needed");
    if (g->strategy != STRATEGY_IN_PHASES)
        return fcp_fail(err, FCP_E_ARGUMENT,
                        "the program computes all heads at once: strategy = upipe(heads = ...) has "
                        "phases");
    const fcp_code code = check_alike(g, err);
    if (code) return code;
    const uint32_t shared = g->heads / g->kv_heads;
    const heads_shape s = heads_shape_of(g->heads, g->kv_heads, g->together / g->inside);
    const uint32_t parts = g->kv_heads / s.range_kv, subs = shared / s.range_sub, count = g->heads / g->together;
    uint32_t last = 0, used = 0, lane;
    heads_divide(parts, subs, g->inside, 0, subs - 1, &lane, &last); /* the last phase of the first KV heads */
    *out_phases = (fcpc_phases){count, g->together, g->kv_heads / (count / (last + 1)), last + 1};
    for (uint32_t phase = 0; out_heads && phase < count; phase++)
        for (uint32_t h = 0; h < g->heads; h++) { /* so heads of a phase are sorted */
            uint32_t of;
            heads_divide(parts, subs, g->inside, h / shared / s.range_kv, h % shared / s.range_sub, &lane, &of);
            if (of == phase) out_heads[used++] = h;
        }
    for (uint32_t phase = 0; out_kv_heads && phase < count; phase += last + 1)
        for (uint32_t kv = 0; kv < g->kv_heads; kv++) {
            uint32_t of;
            heads_divide(parts, subs, g->inside, kv / s.range_kv, 0, &lane, &of);
            if (of == phase) *out_kv_heads++ = kv;
        }
    return FCP_OK;
}
