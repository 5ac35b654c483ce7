/* lognormal.h: sequence lengths drawn from a lognormal distribution, the same on every machine. */
#ifndef FCPC_SEMA_LOGNORMAL_H
#define FCPC_SEMA_LOGNORMAL_H
#include <stdint.h>

typedef struct lognormal {
    uint64_t median, min, max; /* in tokens; what is drawn below min or above max becomes min or max */
    uint64_t sigma;            /* times 2^32 */
} lognormal;

/* Makes the table of the half normal distribution that lengths are drawn with: entry i is the integral of exp(-x^2/2)
 * from 0 to i / 128, times a constant. It is malloc'd, and the caller frees it. NULL: out of memory. */
uint64_t *lognormal_table(void);
/* Draws one length; *state is a seed before the first draw. */
uint64_t lognormal_draw(const lognormal *l, const uint64_t *table, uint64_t *state);
#endif
