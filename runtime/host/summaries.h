/* summaries.h: what one stretch of a sequence does to a state, after another: products of affine maps.
 *
 * A stretch turns the state h that enters it into A h + b. If a comes before b, both together turn h into
 * (A_b A_a) h + (A_b b_a + b_b). A is a number for each head, a number for each row of its state, or a matrix.
 *
 * All sums are float32, made in the order that is stated here, and products are rounded before they are added. So the
 * bits do not depend on how rows are shared out, nor on the machine:
 *     b[i][j] = ((b_b[i][j] + A_b[i][0] b_a[0][j]) + A_b[i][1] b_a[1][j]) + ...
 *     A[i][j] = ((0 + A_b[i][0] A_a[0][j]) + A_b[i][1] A_a[1][j]) + ...
 * With a number for each head or row, they are b_b[i][j] + A_b[i] b_a[i][j], and A_b[i] A_a[i].
 */
#ifndef FCP_HOST_SUMMARIES_H
#define FCP_HOST_SUMMARIES_H
#include "runtime/exec/recurrent_steps.h"

/* Rows [first, first + count) of the b of `out`, which is what `a` does and then what `b` does. Rows of all heads of a
 * part are counted end to end: fcp_part_heads times layer->rows. `out` may be a or b, except with matrices. */
void fcp_summaries_state(const fcp_recurrent *layer, const fcp_register *a, const fcp_register *b,
                         const fcp_register *out, uint64_t first, uint64_t count);
/* The same rows of its A. With one number for each head, of the heads whose first row is among the rows. If `out` is b,
 * its b comes first: that needs b's A. */
void fcp_summaries_decay(const fcp_recurrent *layer, const fcp_register *a, const fcp_register *b,
                         const fcp_register *out, uint64_t first, uint64_t count);
#endif
