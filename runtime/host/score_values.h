/* score_values.h: evaluates scores, their slopes and sinks on the host.
 *
 * A score is a function of the logit s = scale * q . k and of the positions: a soft cap, for example, or a bias by
 * distance. Its slope is its derivative by s, which the backward pass needs. Scores of a tile are rows of float32, `ld`
 * numbers apart.
 */
#ifndef FCP_HOST_SCORE_VALUES_H
#define FCP_HOST_SCORE_VALUES_H
#include "codegen/mask/code.h"
#include "runtime/fcp.h"

/* What a worker needs of a plan's score. */
typedef struct fcp_host_score {
    mc_code code;       /* count 0: there is no score; the logits are s */
    mc_code slope;
    bool slope_is_one;
    int64_t *scratch;
    float *slopes;      /* of a tile; NULL if the slope is one */
} fcp_host_score;

/* Returns whether code is the constant one, or empty. */
bool fcp_host_score_is_one(mc_code code);
/* `tile`: how many numbers the largest tile has. False: out of memory; the object is to be closed all the same. */
bool fcp_host_score_open(fcp_host_score *score, const fcp_plan *plan, size_t tile);
void fcp_host_score_close(fcp_host_score *score);

/* s is the logits of a tile, in natural units; it becomes the score. */
void fcp_host_score_apply(const fcp_host_score *score, const mc_env *env, const mc_tile *tile, float *s, size_t ld);
/* Puts the slopes at the logits s into score->slopes, unless they are one. */
void fcp_host_score_slopes(const fcp_host_score *score, const mc_env *env, const mc_tile *tile, const float *s,
                           size_t ld);
/* The chain rule: ds, the derivative by the score, is multiplied by the slope and becomes the derivative by s. Where
 * p is 0 it becomes 0, even if the slope is not finite. */
void fcp_host_score_chain(const fcp_host_score *score, uint32_t rows, uint32_t keys, const float *p, float *ds,
                          size_t ld);
/* The LSE of rows, m + log l, as two floats: the nearest float, and what rounding took from it. The sum of the two is
 * right to the last bits of log l, however large m is. A row that saw no key has l = 0, and gets -inf and 0. */
void fcp_host_lse(uint32_t rows, const float *m, const float *l, float *out_lse, float *out_low);
/* Computes the LSE with a sink of logit z, for rows that have seen all their keys; `o` is [rows][width]. l becomes the
 * number by which o must be divided, and o is scaled to match. A row that saw no key has LSE z, and its l stays 0. */
void fcp_host_sink(double z, uint32_t rows, size_t width, float *o, const float *m, float *l, float *out_lse,
                   float *out_low);
#endif
