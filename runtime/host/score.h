/* score.h: scores, their slopes and sinks in the host kernels.
 *
 * A tile is rows of float32, `ld` numbers apart: row r and column c of it are query q0 + r and key k0 + c.
 */
#ifndef FCP_HOST_SCORE_H
#define FCP_HOST_SCORE_H
#include "runtime/plan/plan.h"

/* What a worker needs of a plan's score and sinks. */
typedef struct fcp_host_score {
    mc_code code;       /* count 0: the score is s, and there is no slope */
    mc_code slope;
    bool slope_is_one;
    const double *sink; /* per query head, or NULL */
    int64_t *scratch;
    float *slopes;      /* a tile; NULL where the slope is one */
} fcp_host_score;

/* `tile`: numbers of the largest tile. False when out of memory; close it then too. */
bool fcp_host_score_open(fcp_host_score *score, const fcp_plan *plan, size_t tile);
void fcp_host_score_close(fcp_host_score *score);

/* s, the scaled natural logits of a tile, becomes the score in log2 units. */
void fcp_host_score_apply(const fcp_host_score *score, const mc_env *env, int64_t q0, uint32_t rows, int64_t k0,
                          uint32_t keys, int64_t h, float *s, size_t ld);
/* The score's slopes at s, to score->slopes; nothing to do where they are one. */
void fcp_host_score_slopes(const fcp_host_score *score, const mc_env *env, int64_t q0, uint32_t rows, int64_t k0,
                           uint32_t keys, int64_t h, const float *s, size_t ld);
/* ds *= slope, that is from the derivative by the score to the one by s; where p is 0 ds *= 0, whatever the slope. */
void fcp_host_score_chain(const fcp_host_score *score, uint32_t rows, uint32_t keys, const float *p, float *ds,
                          size_t ld);
/* Adds a sink of logit z to rows that have seen everything: gives the natural LSE of (m, l), log2 units, and turns l
 * into what o is to be divided by: 0 where a row saw nothing, whose LSE is z. */
void fcp_host_sink(double z, uint32_t rows, const float *m, float *l, double *out_lse);
#endif
