/* far_logits.h: runs programs whose logits are large on a backend of the host's executor, and holds the results against
 * exact_attention.h, or against what must be true of every softmax. */
#ifndef FAR_LOGITS_H
#define FAR_LOGITS_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/judge/packed.h"
#include "tests/support/exact_attention.h"
#include "tests/support/plan_of.h"
#include "tests/support/session_on.h"

/* All passes of a plan on inputs that are there; the largest logits, too. */
static inline void far_run(const fcp_plan *plan, const fcp_backend *backend, fcp_packed *packed, const char *what) {
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = 300};
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    packed->max_logit = calloc(shape.heads, sizeof *packed->max_logit);
    cr_assert_not_null(packed->max_logit);
    cr_assert(session_on(plan, backend, &options, &session, &err) == FCP_OK, "%s: %s", what, err.message);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass])
            cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, packed, NULL, &err) == FCP_OK, "%s: %s",
                      what, err.message);
    fcp_session_free(session);
}

/* P, O and gradients are rounded to the dtype: to 2^-9 of themselves in bf16, and dS once more before it is multiplied.
 * A row of a gradient adds up such numbers, of which the largest of the tensor may be another row's. */
static inline double far_within(const fcp_shape *shape) { return shape->dtype == FCP_BF16 ? 0x1p-6 : 0x1p-9; }

/* A program whose inputs are whole numbers times `grain`: results are those of float64. */
static inline void far_exact(const char *text, const fcp_backend *backend, double grain, uint64_t seed) {
    enum { EVERY = (1 << FCP_TENSORS) - 1 };
    char what[1200];
    fcp_plan *plan = plan_named("far.fcp", text);
    fcp_packed packed = {0};
    fcp_shape shape;
    snprintf(what, sizeof what, "%s%s, grain %g", text, backend->name, grain);
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_packed_alloc(&shape, EVERY, &packed, NULL) == FCP_OK);
    exact_draw(&shape, seed, grain, &packed);
    far_run(plan, backend, &packed, what);
    exact e = exact_make(plan, &packed);
    exact_found found = {.e = &e, .is = &packed, .within = 1e-5};
    exact_lse(&found);
    found.within = far_within(&shape);
    exact_tensor(&found, FCP_TENSOR_O);
    for (uint32_t h = 0; h < shape.heads; h++)
        exact_unless(&found, (double)packed.max_logit[h] == e.max_logit[h],
                     "the largest logit of head %u is %.9g, not %.9g", h, (double)packed.max_logit[h], e.max_logit[h]);
    for (int t = FCP_TENSOR_DQ; shape.has_pass[FCP_BACKWARD] && t <= FCP_TENSOR_DV; t++)
        exact_tensor(&found, (fcp_tensor)t);
    cr_assert(!*found.wrong, "%s: %s", what, found.wrong);
    exact_free(&e);
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}

/* Runs a program without sinks, in which each row sees a key, on any inputs, and tests that the P of each row add up to
 * 1. dV shows that: with dO = 1, dV of a key is the sum of its P, so all dV of a column add up to the number of rows.
 * The backward pass computes each logit anew, and subtracts LSE. If a large logit differed by one bit from that of the
 * forward pass, the sum would be wrong. */
static inline void far_adds_up(const char *text, const fcp_backend *backend, uint64_t seed) {
    enum { EVERY = (1 << FCP_TENSORS) - 1 };
    char what[1200];
    fcp_plan *plan = plan_named("far.fcp", text);
    fcp_packed packed = {0};
    fcp_shape shape;
    snprintf(what, sizeof what, "%s%s", text, backend->name);
    fcp_plan_shape(plan, &shape);
    cr_assert(fcp_packed_alloc(&shape, EVERY, &packed, NULL) == FCP_OK);
    fcp_packed_draw(&shape, EVERY, seed, &packed);
    const float one = 1;
    const size_t number = fcp_dtype_size(shape.dtype);
    for (size_t i = 0; i < exact_count(&shape, FCP_TENSOR_DO); i++)
        fcp_from_float(shape.dtype, &one, (char *)packed.t[FCP_TENSOR_DO] + i * number, 1);
    far_run(plan, backend, &packed, what);
    for (uint32_t c = 0; c < shape.value_dim * shape.kv_heads; c++) {
        const double rows = (double)shape.tokens * (shape.heads / shape.kv_heads);
        double sum = 0, most = 0;
        for (uint64_t k = 0; k < shape.key_tokens; k++) {
            float x;
            fcp_to_float(shape.dtype, (char *)packed.t[FCP_TENSOR_DV] + (k * shape.value_dim * shape.kv_heads + c) * number,
                         &x, 1);
            sum += (double)x;
            most = fmax(most, fabs((double)x));
        }
        cr_assert(fabs(sum - rows) <= rows * (shape.dtype == FCP_BF16 ? 0x1p-7 : 0x1p-10),
                  "%s: column %u of dV adds up to %g, not to %g", what, c, sum, rows);
        cr_assert(most > 0);
    }
    fcp_packed_free(&packed);
    fcp_plan_free(plan);
}
#endif
