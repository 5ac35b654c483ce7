/* test_merge.c: tests that attention over two sets of keys, merged by their log-sum-exps, equals attention over all
 * keys, and that its gradients do, too. Each of the two plans takes a gradient of LSE; examples/merge_prefix.fcp says
 * which. */
#include <math.h>
#include <stdio.h>

#include "runtime/host/host.h"
#include "runtime/judge/packed.h"
#include "tests/support/plain.h"
#include "tests/support/plan_of.h"

enum { PREFIX = 70, REST = 150, HEADS = 4, KV_HEADS = 2, DIM = 24, VALUE = 16, ROWS = REST * HEADS };

typedef struct attention {
    fcp_plan *plan;
    fcp_session *session;
    fcp_shape shape;
    fcp_packed x;
} attention;

static attention open(const char *lengths, const char *mask, const char *score, const char *gradient) {
    attention a = {0};
    fcp_error err = {0};
    const fcp_session_options options = {.size = sizeof options, .backend = "host", .timeout_s = 60};
    char text[500];
    snprintf(text, sizeof text,
             "model { heads = %d; kv_heads = %d; head_dim = %d; value_dim = %d; dtype = fp32 }\n"
             "cluster { gpus = 3 }\nbatch { lengths = [%s] }\nscore moved = %s\n"
             "plan { mask = %s; score = moved; block = 32; layout = contiguous; lse_gradient = %s }\n",
             HEADS, KV_HEADS, DIM, VALUE, lengths, score, mask, gradient);
    a.plan = plan_of(text);
    fcp_plan_shape(a.plan, &a.shape);
    cr_assert(fcp_session_create(a.plan, &options, &a.session, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_packed_alloc(&a.shape, (1u << FCP_TENSORS) - 1, &a.x, &err) == FCP_OK, "%s", err.message);
    return a;
}

static void close(attention *a) {
    fcp_session_free(a->session);
    fcp_packed_free(&a->x);
    fcp_plan_free(a->plan);
}

static void run(attention *a, fcp_pass pass) {
    fcp_error err = {0};
    cr_assert(fcp_session_run_packed(a->session, a->plan, pass, &a->x, NULL, &err) == FCP_OK, "%s", err.message);
}

static float *tensor_of(const attention *a, fcp_tensor t) { return a->x.t[t]; }
static double lse_of(const attention *a, int row) {
    return (double)tensor_of(a, FCP_TENSOR_LSE)[row] + (double)tensor_of(a, FCP_TENSOR_LSE_LOW)[row];
}

/* What the two parts read: all queries, and keys from `first` on. */
static void give(attention *part, const attention *whole, size_t first) {
    memcpy(tensor_of(part, FCP_TENSOR_Q), tensor_of(whole, FCP_TENSOR_Q), fcp_packed_bytes(&part->shape, FCP_TENSOR_Q));
    memcpy(tensor_of(part, FCP_TENSOR_K), tensor_of(whole, FCP_TENSOR_K) + first * KV_HEADS * DIM,
           fcp_packed_bytes(&part->shape, FCP_TENSOR_K));
    memcpy(tensor_of(part, FCP_TENSOR_V), tensor_of(whole, FCP_TENSOR_V) + first * KV_HEADS * VALUE,
           fcp_packed_bytes(&part->shape, FCP_TENSOR_V));
}

/* `got` is `wanted`; gradients of keys are sums over 150 queries. */
static void near(const float *got, const float *wanted, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++)
        cr_assert(fabs((double)got[i] - (double)wanted[i]) < 2e-5 * (1 + fabs((double)wanted[i])), "%s: %g, not %g, at %zu",
                  what, (double)got[i], (double)wanted[i], i);
}

static void merge(const char *score) {
    attention whole = open("150:220", "causal", score, "false"), part[2];
    part[0] = open("150:70", "full", score, "true");
    part[1] = open("150", "causal", score, "true");
    fcp_packed_draw(&whole.shape, (1u << FCP_TENSORS) - 1, 7, &whole.x);
    run(&whole, FCP_FORWARD);
    run(&whole, FCP_BACKWARD);
    for (int i = 0; i < 2; i++) {
        give(&part[i], &whole, i ? PREFIX : 0);
        run(&part[i], FCP_FORWARD);
    }
    const float *d_o = tensor_of(&whole, FCP_TENSOR_DO);
    for (int row = 0; row < ROWS; row++) {
        const double lse[2] = {lse_of(&part[0], row), lse_of(&part[1], row)}, most = fmax(lse[0], lse[1]);
        const double all = most + log(exp(lse[0] - most) + exp(lse[1] - most));
        double weight[2], o[VALUE];
        for (int i = 0; i < 2; i++) weight[i] = exp(lse[i] - all);
        cr_assert(fabs(all - lse_of(&whole, row)) < 2e-5, "%g, not %g", all, lse_of(&whole, row));
        for (int c = 0; c < VALUE; c++) {
            o[c] = 0;
            for (int i = 0; i < 2; i++) o[c] += weight[i] * (double)tensor_of(&part[i], FCP_TENSOR_O)[row * VALUE + c];
            const float merged = (float)o[c];
            near(&merged, &tensor_of(&whole, FCP_TENSOR_O)[row * VALUE + c], 1, "O");
        }
        for (int i = 0; i < 2; i++) {
            double gradient = 0;
            for (int c = 0; c < VALUE; c++) {
                const double dO = (double)d_o[row * VALUE + c];
                gradient += weight[i] * dO * ((double)tensor_of(&part[i], FCP_TENSOR_O)[row * VALUE + c] - o[c]);
                tensor_of(&part[i], FCP_TENSOR_DO)[row * VALUE + c] = (float)(weight[i] * dO);
            }
            tensor_of(&part[i], FCP_TENSOR_DLSE)[row] = (float)gradient;
        }
    }
    for (int i = 0; i < 2; i++) {
        const size_t first = i ? PREFIX : 0, keys = i ? REST : PREFIX;
        run(&part[i], FCP_BACKWARD);
        near(tensor_of(&part[i], FCP_TENSOR_DK), tensor_of(&whole, FCP_TENSOR_DK) + first * KV_HEADS * DIM,
             keys * KV_HEADS * DIM, "dK");
        near(tensor_of(&part[i], FCP_TENSOR_DV), tensor_of(&whole, FCP_TENSOR_DV) + first * KV_HEADS * VALUE,
             keys * KV_HEADS * VALUE, "dV");
    }
    for (int i = 0; i < ROWS * DIM; i++) tensor_of(&part[0], FCP_TENSOR_DQ)[i] += tensor_of(&part[1], FCP_TENSOR_DQ)[i];
    near(tensor_of(&part[0], FCP_TENSOR_DQ), tensor_of(&whole, FCP_TENSOR_DQ), ROWS * DIM, "dQ");
    close(&whole);
    for (int i = 0; i < 2; i++) close(&part[i]);
}

Test(merge, parts_are_the_whole) { merge("s"); }
/* Beside such a constant LSE alone has no log n, and so no weights. */
Test(merge, beside_a_large_constant) { merge("s - 1.0e9"); }
