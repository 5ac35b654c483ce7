/* small_case.h: a small plan made by hand, random inputs for it, and memory for the results of attention in float64.
 * For tests of the code that computes these results by the definition. */
#ifndef SMALL_CASE_H
#define SMALL_CASE_H
#include <stdlib.h>

#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/hand_plan.h"
#include "tests/support/plain.h"

struct small {
    hand *h;
    fcp_shape shape;
    fcp_packed in;
    fcp_reference out;
};

static const uint64_t small_lengths[] = {37, 5, 140};

/* For a plan of small_lengths, which small_close frees. */
static inline struct small small_of(hand *h) {
    cr_assert_not_null(h);
    struct small s = {.h = h};
    fcp_plan_shape(&h->plan, &s.shape);
    cr_assert(fcp_packed_alloc(&s.shape, (1 << FCP_TENSORS) - 1, &s.in, NULL) == FCP_OK);
    fcp_packed_draw(&s.shape, (1 << FCP_TENSORS) - 1, 5, &s.in);
    const size_t rows = s.shape.tokens * s.shape.heads, row = s.shape.head_dim * sizeof(double);
    const size_t kv = s.shape.tokens * s.shape.kv_heads * row;
    s.out = (fcp_reference){malloc(rows * row), malloc(rows * sizeof(double)), malloc(rows * row), malloc(kv),
                            malloc(kv)};
    return s;
}

static inline void small_close(struct small *s) {
    free(s->out.o);
    free(s->out.lse);
    free(s->out.dq);
    free(s->out.dk);
    free(s->out.dv);
    fcp_packed_free(&s->in);
    hand_free(s->h);
}

static inline void small_run(struct small *s) {
    cr_assert(fcp_reference_compute(&s->h->plan, &s->in, 2, &s->out, NULL) == FCP_OK);
}
/* sum of O * dO */
static inline double small_loss(struct small *s) {
    fcp_reference all = s->out;
    const float *d_o = s->in.t[FCP_TENSOR_DO];
    double sum = 0;
    s->out.dq = s->out.dk = s->out.dv = NULL;
    small_run(s);
    s->out = all;
    for (size_t i = 0; i < s->shape.tokens * s->shape.heads * s->shape.head_dim; i++) sum += all.o[i] * d_o[i];
    return sum;
}
#endif
