/* reference.h: attention by its definition, and the judgement of a result.
 *
 * The reference takes the mask code, evaluates it for every (q, k) of every sequence (and head, if the mask names h),
 * and computes O, LSE, dQ, dK, dV in float64 by the formulas, pair by pair; it shares nothing with the kernels. A score
 * and its slope are evaluated in float64 for every allowed pair, and a sink is one more term of the sum. Beside it the
 * same is done naively in the input's precision: fp32 scores and sums, and P and dS rounded to the dtype; that error is
 * the measure.
 *
 * A tensor is right when  max |x - ref| <= c max |naive - ref| + one ulp of the dtype at max |ref| + the term
 *   LSE        1e-5 max(1, |ref|), element by element
 *   gradients  3e-4 for fp16 and bf16, 1e-5 for fp32 (what cancels exactly when summed in one order need not in
 *              another)
 *   scores     for all but LSE, max |ref| times one ulp of fp32 at max |LSE|: a score may make logits large (linear
 *              biases of keys that come later), and exp(s - LSE) is as wrong relatively as its exponent is absolutely
 * where c is 2, and 3 with a score of which the slope depends on s (a soft-cap); and where the definition has no keys,
 * O is exactly 0 and LSE exactly -inf, or the head's sink. A NaN where ref has none is an infinite error.
 *
 * Cost: pairs looked at: sum of n^2; work: heads * head_dim * pairs * 4 (forward) or 10 (backward) operations, twice.
 */
#ifndef FCP_JUDGE_REFERENCE_H
#define FCP_JUDGE_REFERENCE_H
#include "runtime/exec/tensors.h"

typedef struct fcp_check {
    bool checked, ok;
    double max_abs_error;   /* of the result, against float64 */
    double reference_error; /* of the naive computation, against float64 */
    double tolerance;       /* what max_abs_error may be (LSE: beside its element-wise term) */
    uint64_t worst;         /* element of the packed tensor where the error is largest */
} fcp_check;

typedef struct fcp_check_report {
    fcp_check tensor[FCP_TENSORS]; /* those the passes write */
    bool ok;                       /* of all that were checked */
    double max_abs_error, reference_error; /* the largest over the tensors checked */
} fcp_check_report;

/* Judges what passes wrote (`passes`: bit per fcp_pass; `packed` has their inputs and outputs; those outputs that are
 * NULL are not judged). Both at once cost as much as the backward pass alone. For the backward pass O and LSE are
 * recomputed, not trusted. Adds to *report, which starts as FCP_CHECK_START. `threads`: how many to use; 0: the
 * processors there are. `stop`, when not NULL, is polled. FCP_OK means that the judgement was made: look at
 * report->ok. */
#define FCP_CHECK_START ((fcp_check_report){.ok = true})
fcp_code fcp_check_passes(const fcp_plan *plan, unsigned passes, const fcp_packed *packed, unsigned threads,
                          const volatile int *stop, fcp_check_report *report, fcp_error *err);

/* The same, of the rows of ranks [first, first + count) alone, by the plan's layout: what a process has that runs some ranks.
 * What is allowed is the same in all processes. */
fcp_code fcp_check_ranks(const fcp_plan *plan, uint32_t first, uint32_t count, unsigned passes, const fcp_packed *packed,
                         unsigned threads, const volatile int *stop, fcp_check_report *report, fcp_error *err);

/* The definition in float64, for tests: o [tokens, heads, head_dim], lse [tokens, heads], and when d_o is given dq, dk,
 * dv. `in` holds q, k, v (and d_o) in the plan's dtype. Outputs may be NULL. */
typedef struct fcp_reference {
    double *o, *lse, *dq, *dk, *dv;
} fcp_reference;
fcp_code fcp_reference_compute(const fcp_plan *plan, const fcp_packed *in, unsigned threads, const volatile int *stop,
                               fcp_reference *out, fcp_error *err);
#endif
