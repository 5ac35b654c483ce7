/* recurrent_ops.h: calls of layers that recur, drawn at random, with tensors for each rank; and what the host makes of
 * them, with which other backends are compared to the bit. */
#ifndef RECURRENT_OPS_H
#define RECURRENT_OPS_H
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/recurrent.h"
#include "runtime/plan/layout.h"
#include "tests/support/splitmix.h"

enum { OP_HALO, OP_GRADIENT, OP_SCAN, OP_RANKS = 16, OP_TENSORS = 3 };

typedef struct recurrent_op {
    const fcp_plan *plan;
    uint32_t layer, kind, count; /* count: tensors of a rank */
    fcp_pass pass;
    fcp_dtype dtype;
    uint64_t row;     /* halo: bytes; its gradient: numbers */
    unsigned written; /* a bit for each tensor */
    size_t bytes[OP_RANKS][OP_TENSORS], align;
    char *start[OP_RANKS][OP_TENSORS], *right[OP_RANKS][OP_TENSORS]; /* before the call, and behind it */
} recurrent_op;

/* Calls a session, whose first rank is `first`, with tensors at these places. */
static inline fcp_code op_call(fcp_session *session, const recurrent_op *op, char *const (*at)[OP_TENSORS],
                               uint32_t first, uint32_t ranks, void *stream, fcp_error *err) {
    fcp_halo_rank halo[OP_RANKS];
    fcp_halo_gradient_rank gradient[OP_RANKS];
    fcp_scan_rank scan[OP_RANKS];
    for (uint32_t r = 0; r < ranks; r++) {
        char *const *t = at[first + r];
        halo[r] = (fcp_halo_rank){t[0], t[1]};
        gradient[r] = (fcp_halo_gradient_rank){t[0], t[1]};
        scan[r] = (fcp_scan_rank){(const float *)(void *)t[0], (const float *)(void *)t[1], (float *)(void *)t[2]};
    }
    if (op->kind == OP_HALO) return fcp_session_halo(session, op->layer, op->row, halo, stream, err);
    if (op->kind == OP_SCAN) return fcp_session_scan(session, op->layer, op->pass, scan, stream, err);
    return fcp_session_halo_gradient(session, op->layer, op->dtype, op->row, gradient, stream, err);
}

/* Numbers that are finite, of a type. */
static inline void op_fill(const recurrent_op *op, fcp_dtype dtype, char *at, size_t bytes, uint64_t *seed) {
    const size_t size = fcp_dtype_size(dtype);
    for (size_t i = 0; i < bytes && op->kind == OP_HALO; i++) at[i] = (char)splitmix(seed);
    for (size_t i = 0; i + size <= bytes && op->kind != OP_HALO; i += size) {
        const float x = (float)((double)(splitmix(seed) % 4096) / 2048 - 1);
        fcp_from_float(dtype, &x, at + i, 1);
    }
}

/* Draws a call of a layer. pass: of a scan. row: of a halo, the gradient's in numbers. */
static inline recurrent_op op_draw(const fcp_plan *plan, uint32_t layer, uint32_t kind, fcp_pass pass, fcp_dtype dtype,
                                   uint64_t row, uint64_t seed) {
    const fcp_recurrent *x = &plan->recurrent[layer];
    recurrent_op op = {.plan = plan,
                       .layer = layer,
                       .kind = kind,
                       .count = kind == OP_SCAN ? 3 : 2,
                       .pass = pass,
                       .dtype = kind == OP_SCAN ? FCP_FP32 : dtype,
                       .row = row,
                       .written = kind == OP_SCAN ? 4 : 2};
    op.align = kind == OP_HALO ? 1 : fcp_dtype_size(op.dtype);
    cr_assert(plan->problem->ranks <= OP_RANKS);
    for (uint32_t r = 0; r < plan->problem->ranks; r++) {
        const size_t stretches = fcp_stretches_of(plan, r, NULL), tokens = fcp_plan_rank_queries(plan, r);
        const size_t wide = row * (kind == OP_GRADIENT ? fcp_dtype_size(dtype) : 1);
        const size_t halo = stretches * ((size_t)x->before + x->after) * wide;
        const size_t state = stretches * x->heads * fcp_state_numbers(x) * 4;
        op.bytes[r][0] = kind == OP_SCAN   ? stretches * x->heads * fcp_decay_numbers(x) * 4
                         : kind == OP_HALO ? tokens * wide
                                           : halo;
        op.bytes[r][1] = kind == OP_SCAN ? state : kind == OP_HALO ? halo : tokens * wide;
        op.bytes[r][2] = kind == OP_SCAN ? state : 0;
        for (uint32_t t = 0; t < op.count; t++) {
            op.start[r][t] = malloc(op.bytes[r][t] + 1);
            op.right[r][t] = malloc(op.bytes[r][t] + 1);
            cr_assert(op.start[r][t] && op.right[r][t]);
            op_fill(&op, op.dtype, op.start[r][t], op.bytes[r][t], &seed);
            memcpy(op.right[r][t], op.start[r][t], op.bytes[r][t]);
        }
    }
    return op;
}

/* Lets the host say what is right. */
static inline void op_judge(fcp_session *host, recurrent_op *op) {
    fcp_error err = {0};
    const fcp_code code = op_call(host, op, op->right, 0, op->plan->problem->ranks, NULL, &err);
    cr_assert(code == FCP_OK, "the host, layer %u: %s", op->layer, err.message);
}

static inline void op_compare(const recurrent_op *op, uint32_t rank, char *const *is, const char *what) {
    for (uint32_t t = 0; t < op->count; t++)
        for (size_t i = 0; i < op->bytes[rank][t]; i++)
            cr_assert(is[t][i] == op->right[rank][t][i],
                      "%s: layer %u, call %u, pass %d, row %lu: rank %u, tensor %u, byte %zu of %zu is %02x, not %02x",
                      what, op->layer, op->kind, (int)op->pass, (unsigned long)op->row, rank, t, i, op->bytes[rank][t],
                      (unsigned char)is[t][i], (unsigned char)op->right[rank][t][i]);
}

static inline void op_free(recurrent_op *op) {
    for (uint32_t r = 0; r < op->plan->problem->ranks; r++)
        for (uint32_t t = 0; t < op->count; t++) {
            free(op->start[r][t]);
            free(op->right[r][t]);
        }
}

/* Every call of a layer: a halo and its gradient, or both scans. */
enum { OPS_OF_LAYER = 2 };
static inline recurrent_op op_of(const fcp_plan *plan, uint32_t layer, int which, uint64_t seed) {
    static const uint64_t bytes[] = {1, 3, 4, 6, 8, 16, 20, 48, 100, 256}, numbers[] = {1, 2, 3, 4, 8, 15, 16, 64};
    if (plan->recurrent[layer].kind == FCP_SCAN)
        return op_draw(plan, layer, OP_SCAN, which ? FCP_BACKWARD : FCP_FORWARD, FCP_FP32, 0, seed);
    if (!which) return op_draw(plan, layer, OP_HALO, FCP_FORWARD, FCP_FP32, bytes[seed % 10], seed);
    return op_draw(plan, layer, OP_GRADIENT, FCP_BACKWARD, (fcp_dtype)(seed / 8 % FCP_DTYPES), numbers[seed % 8], seed);
}

/* Layers of each kind and decay, with sizes that are no multiples of anything; or of a few heads of larger states. */
enum { OP_LAYERS = 7 };
static inline void op_layers(uint64_t seed, fcp_recurrent out[OP_LAYERS]) {
    uint64_t x = seed;
    memset(out, 0, OP_LAYERS * sizeof *out);
    for (uint32_t i = 0; i < OP_LAYERS; i++) {
        fcp_recurrent *l = &out[i];
        l->times = 1;
        if (i < 2) {
            l->kind = FCP_HALO;
            l->channels = 8;
            l->before = i ? (uint32_t)(splitmix(&x) % 300) : 3; /* also beyond a whole stretch */
            l->after = i ? 1 + (uint32_t)(splitmix(&x) % 70) : 0;
            continue;
        }
        l->kind = FCP_SCAN;
        l->decay = i % FCP_DECAYS;
        l->heads = 4;
        l->rows = i == 6 ? 16 : 1 + (uint32_t)(splitmix(&x) % 9);
        l->columns = i == 6 ? 32 : 1 + (uint32_t)(splitmix(&x) % 21);
        l->reverse = (uint32_t)(splitmix(&x) & 1);
        l->parts = 1u << splitmix(&x) % 3;
        l->shape = FCP_SCAN_CHAIN + (uint32_t)(splitmix(&x) % 4);
    }
}
#endif
