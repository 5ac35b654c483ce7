/* strip.c: computes attention of a strip of rows by its definition, in float64 and naively.
 *
 * Requires: buffers for numbers of the type (float64, or float32 for the naive computation), which hold the inputs.
 * Gives:    strip.h.
 * Method:   scores and slopes are evaluated pair by pair in float64, for allowed pairs only; for the naive computation
 *           in rows of float32, as kernels do.
 * Cost:     as fcp_check_run says, for its rows.
 */
#include "runtime/judge/strip.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"

void check_exact_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const double *logits,
                        double *out) {
    const uint8_t *allow = s->allow + i * s->n + t.key;
    for (uint32_t j = 0; j < t.count; j++)
        if (allow[j])
            out[j] = mc_eval_score(code, s->env, s->env->q_first + (int64_t)(s->row + i),
                                   (int64_t)(s->key + t.key + j), s->head, logits[j], s->scratch);
}

void check_naive_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const float *logits,
                        float *out) {
    mc_eval_score_row(code, s->env, s->env->q_first + (int64_t)(s->row + i), (int64_t)(s->key + t.key), t.count,
                      s->head, logits, s->scratch, out);
}
_Static_assert((int)TILE <= (int)MC_ROW, "a tile is a row of the evaluator");

#define REAL double
#define NAME(x) check_exact_##x
#define EXP exp
#define LOG log
#define ROUND(dtype, x) (x)
#include "runtime/judge/reference_real.inc"

#define REAL float
#define NAME(x) check_naive_##x
#define EXP expf
#define LOG logf
#define ROUND(dtype, x) fcp_round_to(dtype, x)
#include "runtime/judge/reference_real.inc"
