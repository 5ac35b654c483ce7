/* score_values.c: evaluates scores, their slopes and sinks on the host.
 *
 * Requires: a checked plan, and an environment bound to the tile's sequence.
 * Cost:     for each tile one evaluation of the score's code, and in the backward pass one of the slope's. For each row
 *           with a sink, two exponentials and a logarithm.
 */
#include "runtime/host/score_values.h"
#include "runtime/plan/plan.h"

#include <stdlib.h>

#include "runtime/base/numeric.h"

bool fcp_host_score_is_one(mc_code code) {
    if (code.count == 0) return true;
    const mc_node *x = &code.nodes[code.count - 1];
    return x->op == MC_CONST_F && mc_real(x->imm) == 1;
}

bool fcp_host_score_open(fcp_host_score *score, const fcp_plan *plan, size_t tile) {
    *score = (fcp_host_score){.code = {plan->score, (uint32_t)plan->score_count},
                              .slope = {plan->slope, (uint32_t)plan->slope_count}};
    score->slope_is_one = fcp_host_score_is_one(score->slope);
    if (score->code.count == 0) return true;
    size_t words = mc_row_scratch(score->code), more = mc_row_scratch(score->slope);
    score->scratch = calloc(words > more ? words : more, sizeof *score->scratch);
    if (score->slope_is_one) return score->scratch != NULL;
    score->slopes = calloc(tile, sizeof *score->slopes);
    return score->scratch && score->slopes;
}

void fcp_host_score_close(fcp_host_score *score) {
    free(score->scratch);
    free(score->slopes);
}

/* ds *= p == 0 ? 0 : slope */
FCP_CLONES static void chain_row(const float *restrict p, const float *restrict slope, float *restrict ds,
                                 uint32_t width) {
    for (uint32_t c = 0; c < width; c++) {
        float factor = p[c] == 0 ? 0 : slope[c];
        ds[c] *= factor;
    }
}

void fcp_host_score_apply(const fcp_host_score *score, const mc_env *env, const mc_tile *tile, float *s, size_t ld) {
    mc_eval_score_tile(score->code, env, tile, s, ld, 1, score->scratch, s);
}

void fcp_host_score_slopes(const fcp_host_score *score, const mc_env *env, const mc_tile *tile, const float *s,
                           size_t ld) {
    if (score->slope_is_one) return;
    mc_eval_score_tile(score->slope, env, tile, s, ld, 1, score->scratch, score->slopes);
}

void fcp_host_score_chain(const fcp_host_score *score, uint32_t rows, uint32_t keys, const float *p, float *ds,
                          size_t ld) {
    if (score->slope_is_one) return;
    for (uint32_t r = 0; r < rows; r++) chain_row(p + r * ld, score->slopes + r * ld, ds + r * ld, keys);
}

/* In double, because a factor of 1e-40 has few bits in float, and numbers times that may be 1e-37. */
FCP_CLONES static void scale_row(float *restrict o, size_t width, double factor) {
    for (size_t i = 0; i < width; i++) o[i] = (float)((double)o[i] * factor);
}

/* log l is added to the difference, not to m: beside a large m it would be lost. */
static void two_floats(double m, double log_l, float *out_lse, float *out_low) {
    *out_lse = (float)(m + log_l);
    *out_low = isfinite(*out_lse) ? (float)(m - (double)*out_lse + log_l) : 0; /* a sink may be beyond float32 */
}

void fcp_host_lse(uint32_t rows, const float *m, const float *l, float *out_lse, float *out_low) {
    for (uint32_t r = 0; r < rows; r++) {
        if (l[r] == 0) out_lse[r] = -INFINITY, out_low[r] = 0;
        else two_floats((double)m[r], log((double)l[r]), &out_lse[r], &out_low[r]);
    }
}

/* The sink acts as one more key whose value is 0. The state's m becomes the larger of m and the sink. So nothing is
 * subtracted that was added before, and nothing overflows. */
void fcp_host_sink(double z, uint32_t rows, size_t width, float *o, const float *m, float *l, float *out_lse,
                   float *out_low) {
    for (uint32_t r = 0; r < rows; r++) {
        if (l[r] == 0) {
            out_lse[r] = (float)z;
            out_low[r] = 0;
            continue;
        }
        const double own = (double)m[r], most = own > z ? own : z, factor = exp(own - most);
        const double sum = (double)l[r] * factor + exp(z - most);
        if (factor != 1) scale_row(o + r * width, width, factor);
        two_floats(most, log(sum), &out_lse[r], &out_low[r]);
        l[r] = (float)sum;
    }
}
