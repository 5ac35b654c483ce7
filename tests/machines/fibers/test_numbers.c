/* test_numbers.c: tests the skeletons on fibers in special cases: NaNs in neighbouring sequences, scores and their
 * slopes, sinks, large logits, rows that see no key.
 */
#include <math.h>

#include "runtime/base/numeric.h"
#include "tests/support/hand_plan.h"
#include "tests/machines/fibers/fibers.h"
#include "tests/support/amount.h"
#include "tests/support/judge_plan.h"

static const fcp_backend *on = &fibers_backend; /* in each test anew */

static void run_passes(const fcp_plan *plan, fcp_packed *packed) {
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 1, .timeout_s = 100};
    cr_assert(session_on(plan, on, &options, &session, &err) == FCP_OK, "%s", err.message);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run_packed(session, plan, (fcp_pass)pass, packed, NULL, &err) == FCP_OK, "%s",
                  err.message);
    fcp_session_free(session);
}

static void draw(const fcp_shape *shape, fcp_packed *packed) {
    fcp_error err = {0};
    cr_assert(fcp_packed_alloc(shape, ALL, packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(shape, ALL, 3, packed);
}

/* A tensor's numbers, as doubles. The caller frees them. */
static double *numbers_of(const fcp_shape *shape, const fcp_packed *packed, fcp_tensor t, size_t *out_count) {
    uint64_t dims[3];
    fcp_dtype dtype = fcp_tensor_dtype(shape, t);
    fcp_tensor_shape(shape, t, dims);
    size_t count = dims[0] * fcp_tensor_token_bytes(shape, t) / fcp_dtype_size(dtype);
    float *given = calloc(count, sizeof *given);
    double *numbers = calloc(count, sizeof *numbers);
    cr_assert(given && numbers);
    fcp_to_float(dtype, packed->t[t], given, count);
    for (size_t i = 0; i < count; i++) numbers[i] = (double)given[i];
    free(given);
    if (out_count) *out_count = count;
    return numbers;
}

/* --- neighbours --------------------------------------------------------------------------------------------------- */

/* Sequences that share blocks, items and slots with one that is all NaN have the bits they have without it. */
static void poisoned_neighbour(uint32_t head_dim, fcp_dtype dtype, const char *mask) {
    static const uint64_t lengths[] = {70, 50, 40, 100, 30};
    hand *h = hand_make(2, 2, 1, head_dim, dtype, 128, mask, lengths, 5);
    cr_assert_not_null(h);
    fcp_shape shape;
    fcp_packed clean = {0}, dirty = {0};
    fcp_plan_shape(&h->plan, &shape);
    draw(&shape, &clean);
    draw(&shape, &dirty);
    static const fcp_tensor inputs[] = {FCP_TENSOR_Q, FCP_TENSOR_K, FCP_TENSOR_V, FCP_TENSOR_DO};
    for (uint32_t s = 1; s < 5; s += 2)
        for (int i = 0; i < 4; i++) {
            size_t token = fcp_tensor_token_bytes(&shape, inputs[i]);
            memset((char *)dirty.t[inputs[i]] + fcp_plan_sequence_offset(&h->plan, s, NULL) * token, 0xff,
                   lengths[s] * token);
        }
    run_passes(&h->plan, &clean);
    run_passes(&h->plan, &dirty);
    for (uint32_t s = 0; s < 5; s += 2)
        for (int t = 0; t < FCP_TENSORS; t++) {
            if (!((fcp_pass_outputs(FCP_FORWARD) | fcp_pass_outputs(FCP_BACKWARD)) >> t & 1)) continue;
            size_t token = fcp_tensor_token_bytes(&shape, (fcp_tensor)t);
            size_t at = fcp_plan_sequence_offset(&h->plan, s, NULL) * token;
            cr_assert(!memcmp((char *)clean.t[t] + at, (char *)dirty.t[t] + at, lengths[s] * token),
                      "%s of sequence %u feels its neighbour", fcp_tensor_name((fcp_tensor)t), s);
        }
    fcp_packed_free(&clean);
    fcp_packed_free(&dirty);
    hand_free(h);
}

Test(numbers, poisoned_neighbour) {
    poisoned_neighbour(16, FCP_BF16, "causal");
    poisoned_neighbour(256, FCP_FP16, "full");
    if (amount(true, false)) return;
    poisoned_neighbour(16, FCP_FP16, "full");
    poisoned_neighbour(64, FCP_BF16, "odd");
}
Test(numbers, sm90_poisoned_neighbour) {
    on = &fibers_sm90_backend;
    poisoned_neighbour(64, FCP_FP16, "odd");
    if (amount(false, true)) poisoned_neighbour(128, FCP_FP16, "causal"); /* kernels like those of 64 */
    poisoned_neighbour(256, FCP_BF16, "full");
}

/* --- scores and sinks --------------------------------------------------------------------------------------------- */

/* 6 tanh((s - (q - k) (h + 1) / 32) / 6) and its slope by s. */
static double score_of(double s, double q, double k, double h, double *slope) {
    double y = tanh((s - (q - k) * (h + 1) / 32) / 6);
    *slope = 1 - y * y;
    return 6 * y;
}
static int64_t real(double x) {
    int64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static uint32_t add_node(mc_node *nodes, uint32_t *count, mc_op op, uint32_t a, uint32_t b, int64_t imm) {
    nodes[*count] = (mc_node){.op = op, .a = a, .b = b, .c = MC_NONE, .guard = MC_NONE, .imm = imm};
    return (*count)++;
}
static uint32_t make_score(mc_node *x, bool slope) {
    uint32_t n = 0, none = MC_NONE;
    uint32_t s = add_node(x, &n, MC_S, none, none, 0), q = add_node(x, &n, MC_Q, none, none, 0);
    uint32_t k = add_node(x, &n, MC_K, none, none, 0), h = add_node(x, &n, MC_H, none, none, 0);
    uint32_t d = add_node(x, &n, MC_TO_F, add_node(x, &n, MC_SUB, q, k, 0), none, 0);
    uint32_t one = add_node(x, &n, MC_CONST_I, none, none, 1);
    uint32_t f = add_node(x, &n, MC_TO_F, add_node(x, &n, MC_ADD, h, one, 0), none, 0);
    uint32_t step = add_node(x, &n, MC_CONST_F, none, none, real(1.0 / 32));
    uint32_t bias = add_node(x, &n, MC_MUL_F, add_node(x, &n, MC_MUL_F, d, f, 0), step, 0);
    uint32_t six = add_node(x, &n, MC_CONST_F, none, none, real(6));
    uint32_t y =
        add_node(x, &n, MC_TANH_F, add_node(x, &n, MC_DIV_F, add_node(x, &n, MC_SUB_F, s, bias, 0), six, 0), none, 0);
    if (!slope) add_node(x, &n, MC_MUL_F, six, y, 0);
    else {
        uint32_t unit = add_node(x, &n, MC_CONST_F, none, none, real(1));
        add_node(x, &n, MC_SUB_F, unit, add_node(x, &n, MC_MUL_F, y, y, 0), 0);
    }
    return n;
}

struct definition {
    double *t[FCP_TENSORS];
};

/* Everything by its definition, in double, with score and sinks. One KV head a query head group. */
static void define(const hand *h, const fcp_shape *shape, const fcp_packed *in, bool score, struct definition *out) {
    const fcp_plan *plan = &h->plan;
    uint32_t H = shape->heads, G = H / shape->kv_heads, d = shape->head_dim;
    int64_t scratch[128];
    double *Q = numbers_of(shape, in, FCP_TENSOR_Q, NULL), *K = numbers_of(shape, in, FCP_TENSOR_K, NULL);
    double *V = numbers_of(shape, in, FCP_TENSOR_V, NULL), *DO = numbers_of(shape, in, FCP_TENSOR_DO, NULL);
    for (uint32_t s = 0; s < plan->sequences_count; s++) {
        uint64_t n, first = fcp_plan_sequence_offset(plan, s, &n);
        double *w = calloc(n, sizeof *w), *slope = calloc(n, sizeof *slope);
        for (uint32_t head = 0; head < H; head++)
            for (uint64_t q = 0; q < n; q++) {
                uint64_t row = ((first + q) * H + head) * d;
                bool sinks = plan->sink_count != 0;
                double most = sinks ? plan->sink[head] : -INFINITY, sum = 0, delta = 0;
                for (uint64_t k = 0; k < n; k++) {
                    uint64_t column = ((first + k) * shape->kv_heads + head / G) * d;
                    double x = 0;
                    slope[k] = 1;
                    for (uint32_t i = 0; i < d; i++) x += Q[row + i] * K[column + i];
                    x *= shape->scale;
                    if (score) x = score_of(x, (double)q, (double)k, head, &slope[k]);
                    bool seen = mc_eval((mc_code){plan->mask, (uint32_t)plan->mask_count}, MC_LENGTH((int64_t)n),
                                        (int64_t)q, (int64_t)k, head, scratch);
                    w[k] = seen ? x : -INFINITY;
                    if (w[k] > most) most = w[k];
                }
                for (uint64_t k = 0; k < n; k++) sum += w[k] = most == -INFINITY ? 0 : exp(w[k] - most);
                if (sinks) sum += exp(plan->sink[head] - most);
                out->t[FCP_TENSOR_LSE][row / d] = sum > 0 ? most + log(sum) : -INFINITY;
                for (uint64_t k = 0; k < n; k++) {
                    uint64_t column = ((first + k) * shape->kv_heads + head / G) * d;
                    if (sum > 0) w[k] /= sum;
                    for (uint32_t i = 0; i < d; i++) out->t[FCP_TENSOR_O][row + i] += w[k] * V[column + i];
                }
                for (uint32_t i = 0; i < d; i++) delta += out->t[FCP_TENSOR_O][row + i] * DO[row + i];
                for (uint64_t k = 0; k < n; k++) {
                    uint64_t column = ((first + k) * shape->kv_heads + head / G) * d;
                    double dp = 0;
                    for (uint32_t i = 0; i < d; i++) {
                        dp += DO[row + i] * V[column + i];
                        out->t[FCP_TENSOR_DV][column + i] += w[k] * DO[row + i];
                    }
                    double ds = w[k] * (dp - delta) * slope[k] * shape->scale;
                    for (uint32_t i = 0; i < d; i++) {
                        out->t[FCP_TENSOR_DQ][row + i] += ds * K[column + i];
                        out->t[FCP_TENSOR_DK][column + i] += ds * Q[row + i];
                    }
                }
            }
        free(w);
        free(slope);
    }
    free(Q);
    free(K);
    free(V);
    free(DO);
}

static void score_and_sink(uint32_t head_dim, fcp_dtype dtype, const char *mask, bool score, bool sink, double scale) {
    static const uint64_t lengths[] = {140, 30};
    static const double sinks[] = {1.5, -2, 40, 0};
    const uint32_t heads = head_dim < 128 ? 4 : 2;
    hand *h = hand_make(2, heads, heads / 2, head_dim, dtype, 128, mask, lengths, 2);
    mc_node nodes[2][32];
    cr_assert_not_null(h);
    h->problem.scale = scale;
    if (score) {
        h->plan.score = nodes[0], h->plan.score_count = make_score(nodes[0], false);
        h->plan.slope = nodes[1], h->plan.slope_count = make_score(nodes[1], true);
    }
    if (sink) h->plan.sink = sinks, h->plan.sink_count = heads;
    fcp_shape shape;
    fcp_packed packed = {0};
    struct definition x;
    fcp_plan_shape(&h->plan, &shape);
    draw(&shape, &packed);
    run_passes(&h->plan, &packed);
    for (int t = 0; t < FCP_TENSORS; t++)
        x.t[t] = calloc(shape.tokens * fcp_tensor_token_bytes(&shape, (fcp_tensor)t), sizeof(double));
    define(h, &shape, &packed, score, &x);
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (!((fcp_pass_outputs(FCP_FORWARD) | fcp_pass_outputs(FCP_BACKWARD)) >> t & 1)) continue;
        size_t count;
        double most = 0, error = 0, *given = numbers_of(&shape, &packed, (fcp_tensor)t, &count);
        for (size_t i = 0; i < count; i++) {
            double is = given[i], should = x.t[t][i];
            if (is == should) continue;
            if (fabs(should) > most) most = fabs(should);
            if (!(fabs(is - should) <= error)) error = fabs(is - should);
        }
        free(given);
        double limit = t == FCP_TENSOR_LSE ? 1e-4 : (dtype == FCP_BF16 ? 0.012 : 0.003) * most + 1e-3;
        cr_assert(error <= limit, "head_dim %u, %s, mask %s, score %d, sink %d, scale %g: %s: error %g, largest %g",
                  head_dim, fcp_dtype_name(dtype), mask, score, sink, scale, fcp_tensor_name((fcp_tensor)t), error,
                  most);
    }
    for (int t = 0; t < FCP_TENSORS; t++) free(x.t[t]);
    fcp_packed_free(&packed);
    hand_free(h);
}

Test(numbers, scores) {
    score_and_sink(16, FCP_BF16, "causal", true, false, 0.25);
    if (amount(false, true)) score_and_sink(16, FCP_FP16, "full", true, false, 0.25);
    score_and_sink(64, FCP_BF16, "odd", true, true, 0.125);
    score_and_sink(128, FCP_FP16, "causal", true, false, 0.1);
}
Test(numbers, sinks) {
    score_and_sink(16, FCP_BF16, "causal", false, true, 0.25);
    score_and_sink(16, FCP_FP16, "head", false, true, 0.25);
}
Test(numbers, no_score) { score_and_sink(16, FCP_FP16, "odd", false, false, 0.25); }
Test(numbers, large_logits) {
    score_and_sink(16, FCP_FP16, "causal", false, false, 8);
    score_and_sink(16, FCP_FP16, "causal", false, false, -0.25);
}
Test(numbers, sm90) {
    on = &fibers_sm90_backend;
    score_and_sink(64, FCP_BF16, "odd", true, true, 0.125);
    if (amount(false, true)) score_and_sink(128, FCP_FP16, "causal", true, false, 0.1);
    score_and_sink(256, FCP_FP16, "head", false, true, 0.0625);
    if (amount(false, true)) score_and_sink(64, FCP_FP16, "causal", false, false, -4);
}
