/* test_host_score.c: tests scores, slopes and sinks on plans made by hand: the host backend against the reference,
 * and the reference against formulas that are written out here and against differences. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/host/score_values.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/amount.h"
#include "tests/support/hand_score.h"
#include "tests/support/judge_packed.h"
#include "tests/support/plain.h"
#include "tests/support/small_case.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };
static const uint64_t mixed[] = {300, 60, 129, 1, 140, 64};

/* The scores of hand_score.h, stated a second time. */
static double stated(const char *name, double s, int64_t q, int64_t k, int64_t n, uint32_t h, uint32_t heads,
                     uint64_t token) {
    switch (name[0]) {
    case 'a': return s + (double)(k - q) * pow(2, -8.0 * (h + 1) / heads);
    case 's': return !strcmp(name, "same") ? s : 3 * tanh(s / 3);
    case 'p': return q - k > 30 ? s / 2 : s < 0.1 ? s / 4 : s - 0.075;
    case 't': {
        int64_t back = q - k > HAND_REACH ? HAND_REACH : q - k;
        return s + (back < 0 ? 0 : sin((double)(h * (HAND_REACH + 1) + back) * 1.3) * 2);
    }
    case 'f': return s * (1 + ((double)(token * 37 % 11) - 3) / 8);
    case 'l': return s * log2((double)n) / 5;
    default:
        return log(exp(s) + 0.5) * fmin(1.5, sqrt(1 + s * s)) + floor((double)k / 7) / 20 -
               fmax(0.1 * s, exp2(s) / 9);
    }
}

/* --- the reference ------------------------------------------------------------------------------------------------ */

enum { HEADS = 4, KV_HEADS = 2, DIM = 6 };

static hand_score store; /* of the plan of small_open */

static struct small small_open(const char *mask, const char *score, bool sinks) {
    hand *h = hand_make(1, HEADS, KV_HEADS, DIM, FCP_FP32, 256, mask, small_lengths, 3);
    cr_assert_not_null(h);
    store = (hand_score){0};
    h->problem.scale = 0.7;
    hand_score_put(h, &store, score, sinks);
    return small_of(h);
}

static void is_the_formula(const char *mask, const char *score, bool sinks) {
    struct small s = small_open(mask, score, sinks);
    const float *q = s.in.t[FCP_TENSOR_Q], *k = s.in.t[FCP_TENSOR_K], *v = s.in.t[FCP_TENSOR_V];
    mc_code code = {s.h->mask, s.h->mask_count};
    int64_t scratch[64];
    small_run(&s);
    for (uint64_t seq = 0, at = 0; seq < 3; at += s.h->sequences[seq++].keys) {
        int64_t n = (int64_t)s.h->sequences[seq].keys;
        for (int64_t i = 0; i < n; i++)
            for (uint32_t h = 0; h < HEADS; h++) {
                double sum = sinks ? exp(store.sink[h]) : 0, o[DIM] = {0};
                size_t row = (at + (uint64_t)i) * HEADS + h;
                for (int64_t j = 0; j < n; j++) {
                    if (!mc_eval(code, MC_LENGTH(n), i, j, h, scratch)) continue;
                    size_t key = (at + (uint64_t)j) * KV_HEADS + h / 2;
                    double t = 0;
                    for (int d = 0; d < DIM; d++) t += (double)q[row * DIM + d] * k[key * DIM + d];
                    t = score ? stated(score, t * 0.7, i, j, n, h, HEADS, at + (uint64_t)j) : t * 0.7;
                    sum += exp(t);
                    for (int d = 0; d < DIM; d++) o[d] += exp(t) * v[key * DIM + d];
                }
                cr_assert(sum == 0 ? s.out.lse[row] == -INFINITY : fabs(s.out.lse[row] - log(sum)) < 1e-12,
                          "%s %s: row %zu: %g, not %g", mask, score ? score : "-", row, s.out.lse[row], log(sum));
                for (int d = 0; d < DIM; d++)
                    cr_assert(fabs(s.out.o[row * DIM + d] - (sum == 0 ? 0 : o[d] / sum)) < 1e-12, "%s %s: row %zu",
                              mask, score ? score : "-", row);
            }
    }
    small_close(&s);
}

Test(score, reference_is_the_formula) {
    for (int i = 0; i < HAND_SCORES; i++)
        for (int sinks = 0; sinks < 2; sinks++) {
            is_the_formula("causal", hand_scores[i], sinks);
            is_the_formula("head", hand_scores[i], sinks);
        }
    is_the_formula("gap", NULL, true);
    is_the_formula("none", NULL, true);
    is_the_formula("full", NULL, true);
}

static void gradients_are_slopes(const char *mask, const char *score, bool sinks) {
    struct small s = small_open(mask, score, sinks);
    small_run(&s);
    const struct { fcp_tensor t; const double *gradient; uint32_t heads; } all[] = {
        {FCP_TENSOR_Q, s.out.dq, HEADS}, {FCP_TENSOR_K, s.out.dk, KV_HEADS}, {FCP_TENSOR_V, s.out.dv, KV_HEADS}};
    for (int i = 0; i < 3; i++)
        for (size_t at = 3; at < s.shape.tokens * all[i].heads * DIM; at += amount(3203, 701)) {
            float *x = (float *)s.in.t[all[i].t] + at, kept = *x;
            double given = all[i].gradient[at];
            *x = kept + 0x1p-12f;
            double after = small_loss(&s), h = (double)*x - kept;
            *x = kept - 0x1p-12f;
            double before = small_loss(&s);
            h += (double)kept - *x;
            *x = kept;
            cr_assert(fabs((after - before) / h - given) < 1e-5, "%s %s %s[%zu]: slope %.9g, gradient %.9g", mask,
                      score ? score : "-", fcp_tensor_name(all[i].t), at, (after - before) / h, given);
        }
    /* of the sinks: -sum of exp(z - lse) delta */
    const float *d_o = s.in.t[FCP_TENSOR_DO];
    for (uint32_t h = 0; sinks && h < HEADS; h++) {
        double given = 0, z = store.sink[h];
        small_run(&s);
        for (size_t row = h; row < s.shape.tokens * HEADS; row += HEADS) {
            double delta = 0;
            for (int d = 0; d < DIM; d++) delta += s.out.o[row * DIM + (size_t)d] * d_o[row * DIM + (size_t)d];
            given -= exp(z - s.out.lse[row]) * delta;
        }
        store.sink[h] = z + 1e-4;
        double after = small_loss(&s);
        store.sink[h] = z - 1e-4;
        double before = small_loss(&s);
        store.sink[h] = z;
        cr_assert(fabs((after - before) / 2e-4 - given) < 1e-5, "%s sink %u: slope %.9g, formula %.9g", mask, h,
                  (after - before) / 2e-4, given);
    }
    small_close(&s);
}

Test(score, gradients_are_slopes) {
    for (int i = 0; i < HAND_SCORES; i++) gradients_are_slopes(i % 2 ? "head" : "causal", hand_scores[i], i % 3 == 0);
    gradients_are_slopes("gap", NULL, true);
    gradients_are_slopes("odd", "softcap", true);
}

/* --- the host ----------------------------------------------------------------------------------------------------- */

struct bench {
    hand *h;
    hand_score *store;
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed;
};

static struct bench open(hand *h, const char *score, bool sinks, uint32_t threads) {
    struct bench b = {.h = h, .store = calloc(1, sizeof *b.store)};
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = threads, .timeout_s = 60};
    cr_assert(h && b.store);
    hand_score_put(h, b.store, score, sinks);
    fcp_plan_shape(&h->plan, &b.shape);
    cr_assert(fcp_session_create(&h->plan, &options, &b.session, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_packed_alloc(&b.shape, ALL, &b.packed, &err) == FCP_OK, "%s", err.message);
    fcp_packed_draw(&b.shape, ALL, 11, &b.packed);
    return b;
}

static void close(struct bench *b) {
    fcp_session_free(b->session);
    fcp_packed_free(&b->packed);
    hand_free(b->h);
    free(b->store);
}

static void run(struct bench *b, fcp_pass pass) {
    fcp_error err = {0};
    cr_assert(fcp_session_run_packed(b->session, &b->h->plan, pass, &b->packed, NULL, &err) == FCP_OK, "%s",
              err.message);
}

static void check(struct bench *b, const char *what) {
    cr_assert(judge_packed(&b->h->plan, 3, &b->packed, what).ok, "%s", what);
}

static void both(uint32_t ranks, uint32_t heads, uint32_t kv_heads, uint32_t dim, fcp_dtype dtype, uint32_t block,
                 const char *mask, const char *score, bool sinks) {
    char what[120];
    snprintf(what, sizeof what, "%s, %s, %u ranks, %u heads of %u, %s%s", mask, score ? score : "no score", ranks,
             heads, dim, fcp_dtype_name(dtype), sinks ? ", sinks" : "");
    struct bench b = open(hand_make(ranks, heads, kv_heads, dim, dtype, block, mask, mixed, 6), score, sinks, 2);
    run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    check(&b, what);
    close(&b);
}

#ifdef PLAIN_TESTS
enum { QUICK_STEP = 3, STEP = 3 }; /* the thread sanitizer is slow */
#else
enum { QUICK_STEP = 7, STEP = 1 };
#endif

/* Every score, or from the first on every fourth: the four tests below begin at different ones. */
static void scores_from(int first, uint32_t ranks, fcp_dtype dtype, uint32_t block) {
    int step = (int)amount(QUICK_STEP, STEP);
    static const char *const masks[] = {"causal", "odd", "head", "gap", "full", "window", "tail", "none"};
    for (int i = step > 1 ? first : 0; i < HAND_SCORES; i += step) {
        both(ranks, 4, 2, 32, dtype, block, masks[i], hand_scores[i], false);
        both(ranks, 4, 2, 32, dtype, block, masks[(i + 3) % 8], hand_scores[i], true);
    }
}

Test(score, scores_on_one_rank_fp32) { scores_from(0, 1, FCP_FP32, 512); }
Test(score, scores_on_four_ranks_fp32) { scores_from(1, 4, FCP_FP32, 128); }
Test(score, scores_on_three_ranks_fp16) { scores_from(2, 3, FCP_FP16, 256); }
Test(score, scores_on_five_ranks_bf16) { scores_from(3, 5, FCP_BF16, 384); }

Test(score, sinks_alone) {
    static const char *const masks[] = {"causal", "gap", "none", "head"};
    for (int i = 0; i < 4; i++) both(3, 4, 2, 32, FCP_FP32, 128, masks[i], NULL, true);
    both(2, 4, 1, 32, FCP_BF16, 256, "gap", NULL, true);
}

Test(score, head_dimensions_and_groups) {
    static const uint32_t shapes[][3] = {{1, 1, 1}, {3, 1, 7}, {6, 2, 80}, {8, 1, 64}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        both(2, shapes[i][0], shapes[i][1], shapes[i][2], FCP_FP32, 128, "head", "alibi", i % 2);
        both(2, shapes[i][0], shapes[i][1], shapes[i][2], FCP_FP32, 128, "causal", "table", !(i % 2));
    }
}

/* Pairs summed over heads, as tiles count them, against a count. */
Test(score, pairs_are_summed_over_heads) {
    hand *h = hand_make(2, 6, 2, 8, FCP_FP32, 128, "head", mixed, 6);
    uint64_t tiles = 0, counted = 0;
    cr_assert_not_null(h);
    for (uint32_t i = 0; i < h->tile_count; i++) tiles += h->tiles[i].pairs;
    for (uint32_t s = 0; s < 6; s++)
        for (uint64_t q = 0; q < mixed[s]; q++)
            for (uint64_t x = 0; x < 6; x++) counted += q + 50 * x + 1 < mixed[s] ? q + 50 * x + 1 : mixed[s];
    cr_assert(tiles == counted, "%lu, not %lu", (unsigned long)tiles, (unsigned long)counted);
    hand_free(h);
}

static void rows_that_see_nothing(const char *score) {
    struct bench b = open(hand_make(2, 4, 2, 32, FCP_FP16, 256, "gap", mixed, 6), score, true, 2);
    memset(b.packed.t[FCP_TENSOR_O], 0xff, b.shape.tokens * 4 * 32 * 2);
    run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    const uint16_t *o = b.packed.t[FCP_TENSOR_O], *dq = b.packed.t[FCP_TENSOR_DQ];
    const float *lse = b.packed.t[FCP_TENSOR_LSE];
    for (uint32_t s = 0, token = 0; s < 6; s++)
        for (uint32_t q = 0; q < mixed[s]; q++, token++)
            for (uint32_t h = 0; h < 4; h++) {
                float z = (float)b.store->sink[h];
                cr_assert(q < 150 ? lse[token * 4 + h] == z : lse[token * 4 + h] > z, "sequence %u row %u", s, q);
                for (uint32_t i = 0; i < 32 && q < 150; i++)
                    cr_assert(o[(token * 4 + h) * 32 + i] == 0 && (dq[(token * 4 + h) * 32 + i] & 0x7fff) == 0);
            }
    close(&b);
}

Test(score, rows_that_see_nothing_have_the_sink) {
    rows_that_see_nothing(NULL);
    rows_that_see_nothing("alibi");
    rows_that_see_nothing("everything");
}

/* Sinks far above and far below every score, and scores that leave a row nothing. */
Test(score, extreme_sinks_and_scores) {
    static const double sinks[] = {-1e300, -700, 60, 2000};
    struct bench b = open(hand_make(2, 4, 2, 16, FCP_FP32, 128, "gap", mixed, 6), "softcap", true, 2);
    memcpy(b.store->sink, sinks, sizeof sinks);
    run(&b, FCP_FORWARD);
    const float *lse = b.packed.t[FCP_TENSOR_LSE], *o = b.packed.t[FCP_TENSOR_O];
    for (uint64_t row = 0; row < b.shape.tokens * 4; row++) {
        cr_assert(row % 4 < 3 || lse[row] == 2000);
        for (size_t i = row * 16; i < row * 16 + 16; i++) cr_assert(row % 4 < 3 ? isfinite(o[i]) : o[i] == 0);
    }
    run(&b, FCP_BACKWARD);
    check(&b, "extreme sinks");
    close(&b);
    /* if q < 170 then log(0) else s: the rows before 170 see nothing, and get no gradient */
    b = open(hand_make(2, 4, 2, 16, FCP_FP32, 128, "gap", mixed, 6), "same", false, 2);
    hand_code score = {b.store->score, 0}, slope = {b.store->slope, 0};
    for (int i = 0; i < 2; i++) {
        hand_code *c = i ? &slope : &score;
        uint32_t s = hs0(c, MC_S), early = hs2(c, MC_LT, hs0(c, MC_Q), hs_int(c, 170)), zero = hs_real(c, 0);
        uint32_t pole = hs2(c, MC_DIV_F, hs_real(c, 1), zero); /* a slope that is infinite where P is 0 */
        uint32_t nothing = hs1(c, MC_LOG_F, zero), one = hs_real(c, 1);
        hs3(c, MC_IF_F, early, i ? pole : nothing, i ? one : s);
    }
    b.h->plan.score_count = score.count;
    b.h->plan.slope_count = slope.count;
    fcp_session_free(b.session);
    cr_assert(fcp_session_create(&b.h->plan, NULL, &b.session, NULL) == FCP_OK);
    run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    lse = b.packed.t[FCP_TENSOR_LSE];
    for (uint64_t t = 0; t < mixed[0]; t++) cr_assert((lse[t * 4] == -INFINITY) == (t < 170));
    check(&b, "minus infinity");
    close(&b);
}

/* A sink joins rows whose m is anywhere, as in float64. l and O are drawn. */
Test(score, a_sink_joins_any_row) {
    static const float most[] = {-3e38f, -1.5e30f, -1.5e17f, -4e9f, -1e5f, -300, -127, -60, -1, 0, 0.5f, 60, 300, 1e5f,
                                 4e9f, 1.5e17f, 1.5e30f, 3e38f};
    static const double sinks[] = {-1.7e308, -1e30, -700, -90, -1, 0, 0.5, 50, 80, 88, 700, 1e9, 1e30, 1.7e308};
    enum { MOST = sizeof most / sizeof *most, SINKS = sizeof sinks / sizeof *sinks, WIDTH = 3 };
    for (int i = 0; i < MOST * SINKS * 3; i++) {
        const double z = sinks[i % SINKS];
        const float m = most[i / SINKS % MOST], sums[] = {1, 1.75f, 900}, numbers[WIDTH] = {0.75f, -0.001f, 1};
        float l = sums[i / SINKS / MOST], o[WIDTH];
        for (int d = 0; d < WIDTH; d++) o[d] = numbers[d] * l;
        const double own = (double)m, top = own > z ? own : z, weight = (double)l * exp(own - top);
        const double all = weight + exp(z - top);
        float lse, low;
        fcp_host_sink(z, 1, WIDTH, o, &m, &l, &lse, &low);
        cr_assert(lse == (float)(top + log(all)), "m %g, sink %g: LSE %g, not %g", (double)m, z, (double)lse,
                  top + log(all));
        if (isinf(lse)) cr_assert(low == 0 && z > 3e38, "m %g, sink %g", (double)m, z);
        else
            cr_assert(fabs((double)lse - top + (double)low - log(all)) <= 0x1p-24 * fabs((double)low) + 1e-12,
                      "m %g, sink %g: LSE %g and %g, not %g over %g", (double)m, z, (double)lse, (double)low, log(all),
                      top);
        for (int d = 0; d < WIDTH; d++) {
            const double is = (double)(o[d] / l), right = weight / all * (double)numbers[d];
            cr_assert(fabs(is - right) <= 1e-6 * fabs(right) + 0x1p-149, "m %g, sink %g: O %g, not %g", (double)m, z,
                      is, right);
        }
    }
    float lse, low, none = -INFINITY, l = 0, o[WIDTH] = {0};
    fcp_host_sink(-700, 1, WIDTH, o, &none, &l, &lse, &low);
    cr_assert(lse == -700 && low == 0 && l == 0);
}

/* The same without a sink: the pair has log l, which the float alone has lost. */
Test(score, lse_is_two_floats) {
    static const float most[] = {-3.4028234e38f, -2.4e38f, -1e9f, -1e8f, -16777216, -3, 0, 0x1p-140f, 5, 1e8f,
                                 3.4028234e38f};
    for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
        const float l[] = {1, 4, 1000.5f, 0}, m[] = {most[i], most[i], most[i], -INFINITY};
        float lse[4], low[4];
        fcp_host_lse(4, m, l, lse, low);
        for (int j = 0; j < 3; j++) {
            cr_assert(lse[j] == (float)((double)m[j] + log((double)l[j])), "m %g", (double)m[j]);
            cr_assert(fabs((double)lse[j] - (double)m[j] + (double)low[j] - log((double)l[j])) <= 0x1p-22,
                      "m %g, l %g: %g", (double)m[j], (double)l[j], (double)low[j]);
        }
        cr_assert(lse[3] == -INFINITY && low[3] == 0);
    }
}

/* Scores so far below the sink that the sum of both is the sink, and one that is in reach of it. */
Test(score, a_sink_far_above_the_scores) {
    static const double lows[] = {-1e4, -1e9, -1e17, -1e30};
    for (int i = 0; i < 4; i++) {
        struct bench b = open(hand_make(2, 4, 2, 16, FCP_FP32, 128, "gap", mixed, 6), "same", true, 2);
        hand_code score = {b.store->score, 0}, slope = {b.store->slope, 0};
        for (int j = 0; j < 2; j++) { /* if k < q - 160 then s else lows[i] */
            hand_code *c = j ? &slope : &score;
            uint32_t s = hs0(c, MC_S), back = hs2(c, MC_SUB, hs0(c, MC_Q), hs0(c, MC_K));
            uint32_t far = hs2(c, MC_LT, hs_int(c, 160), back), low = hs_real(c, j ? 0 : lows[i]), one = hs_real(c, 1);
            hs3(c, MC_IF_F, far, j ? one : s, low);
        }
        b.h->plan.score_count = score.count;
        b.h->plan.slope_count = slope.count;
        for (uint32_t h = 0; h < 4; h++) b.store->sink[h] = 50.0 - 20 * h;
        fcp_session_free(b.session);
        cr_assert(fcp_session_create(&b.h->plan, NULL, &b.session, NULL) == FCP_OK);
        run(&b, FCP_FORWARD);
        const float *lse = b.packed.t[FCP_TENSOR_LSE];
        for (uint64_t t = 0; t < 160; t++)
            for (uint32_t h = 0; h < 4; h++)
                cr_assert((double)lse[t * 4 + h] == b.store->sink[h], "%g: row %lu has %g", lows[i], (unsigned long)t,
                          (double)lse[t * 4 + h]);
        run(&b, FCP_BACKWARD);
        check(&b, "far below the sink");
        close(&b);
    }
}

/* --- what must not spread ----------------------------------------------------------------------------------------- */

static bool token_is_finite(const struct bench *b, fcp_tensor t, uint64_t token) {
    size_t count = fcp_tensor_token_bytes(&b->shape, t) / sizeof(float);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(((const float *)b->packed.t[t])[token * count + i])) return false;
    return true;
}

/* A token of sequence 0 is NaN in K or V: rows that do not see it are as finite as before. */
static void nan_spreads_only_where_it_is_seen(fcp_tensor t, const char *mask, const char *score, uint32_t at) {
    struct bench b = open(hand_make(2, 2, 1, 16, FCP_FP32, 384, mask, mixed, 6), score, true, 2);
    int64_t scratch[64];
    mc_code code = {b.h->mask, b.h->mask_count};
    size_t count = fcp_tensor_token_bytes(&b.shape, t) / sizeof(float);
    for (size_t i = 0; i < count; i++) ((float *)b.packed.t[t])[at * count + i] = NAN;
    run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    for (uint64_t token = 0; token < b.shape.tokens; token++) {
        int64_t n = (int64_t)mixed[0], x = (int64_t)token;
        bool row = token < mixed[0] && mc_eval(code, MC_LENGTH(n), x, at, 0, scratch), key = false;
        for (int64_t q = 0; token < mixed[0] && q < n && !key; q++)
            key = mc_eval(code, MC_LENGTH(n), q, at, 0, scratch) && mc_eval(code, MC_LENGTH(n), q, x, 0, scratch);
        cr_assert(row || (token_is_finite(&b, FCP_TENSOR_O, token) && token_is_finite(&b, FCP_TENSOR_DQ, token)),
                  "%s %s %s: row %lu", fcp_tensor_name(t), mask, score, (unsigned long)token);
        cr_assert(key || (token_is_finite(&b, FCP_TENSOR_DK, token) && token_is_finite(&b, FCP_TENSOR_DV, token)),
                  "%s %s %s: key %lu", fcp_tensor_name(t), mask, score, (unsigned long)token);
    }
    cr_assert(!token_is_finite(&b, FCP_TENSOR_O, at), "the row itself has seen it");
    close(&b);
}

Test(score, nan_spreads_only_where_it_is_seen) {
    nan_spreads_only_where_it_is_seen(FCP_TENSOR_K, "odd", "alibi", 251);
    nan_spreads_only_where_it_is_seen(FCP_TENSOR_K, "causal", "everything", 250);
    nan_spreads_only_where_it_is_seen(FCP_TENSOR_V, "odd", "softcap", 251);
}

/* --- the judge ---------------------------------------------------------------------------------------------------- */

static fcp_check_report judged(const struct bench *b) {
    fcp_check_report report = FCP_CHECK_START;
    cr_assert(fcp_check_run(&b->h->plan, &(fcp_check_options){.passes = 3, .threads = 2}, &b->packed, &report, NULL) ==
              FCP_OK);
    return report;
}

/* A result of another score or sink is called wrong. */
Test(score, the_judge_sees_the_difference) {
    struct bench b = open(hand_make(1, 2, 1, 16, FCP_FP32, 256, "causal", mixed, 6), "softcap", true, 2);
    run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    fcp_plan *p = &b.h->plan;
    for (int i = 0; i < 3; i++) {
        double z = b.store->sink[1];
        if (i == 0) hand_score_put(b.h, b.store, "same", true);
        if (i == 1) b.store->sink[1] = z + 0.01;
        if (i == 2) p->sink_count = 0;
        cr_assert(!judged(&b).ok, "difference %d", i);
        hand_score_put(b.h, b.store, "softcap", true); /* as it was */
    }
    check(&b, "as it was");
    close(&b);
}

/* The backward pass runs with the slope of softcap, 1 - t t; then with wrong ones: 2 - t t, 1 + t t, 1 - t, t t, 1. */
Test(score, the_judge_does_not_believe_the_slope) {
    for (int i = 0; i < 6; i++) {
        struct bench b = open(hand_make(1, 2, 1, 16, FCP_FP32, 256, "causal", mixed, 6), "softcap", true, 2);
        mc_node *const slope = b.store->slope, *const last = slope + b.h->plan.slope_count - 1;
        const uint32_t one = last->a, t = slope[last->b].a;
        if (i == 1) slope[one].imm = mc_real_bits(2);
        if (i == 2) last->op = MC_ADD_F;
        if (i == 3) last->b = t;
        if (i == 4) *last = slope[last->b];
        if (i == 5) *last = slope[one];
        fcp_session_free(b.session);
        cr_assert(fcp_session_create(&b.h->plan, NULL, &b.session, NULL) == FCP_OK);
        run(&b, FCP_FORWARD);
        run(&b, FCP_BACKWARD);
        const fcp_check_report report = judged(&b);
        cr_assert(report.ok == (i == 0), "slope %d", i);
        cr_assert(report.tensor[FCP_TENSOR_O].ok && report.tensor[FCP_TENSOR_DV].ok, "slope %d", i);
        cr_assert(report.tensor[FCP_TENSOR_DQ].ok == (i == 0) && report.tensor[FCP_TENSOR_DK].ok == (i == 0));
        close(&b);
    }
}

Test(score, two_runs_and_any_number_of_threads_give_the_same_bits) {
    unsigned char *first = NULL;
    for (uint32_t threads = 1; threads < 8; threads += 3) {
        struct bench b = open(hand_make(3, 8, 4, 24, FCP_BF16, 256, "odd", mixed, 6), "everything", true, threads);
        run(&b, FCP_FORWARD);
        run(&b, FCP_BACKWARD);
        size_t o = b.shape.tokens * fcp_tensor_token_bytes(&b.shape, FCP_TENSOR_O);
        size_t dk = b.shape.tokens * fcp_tensor_token_bytes(&b.shape, FCP_TENSOR_DK);
        unsigned char *bytes = malloc(2 * o + dk);
        memcpy(bytes, b.packed.t[FCP_TENSOR_O], o);
        memcpy(bytes + o, b.packed.t[FCP_TENSOR_DQ], o);
        memcpy(bytes + 2 * o, b.packed.t[FCP_TENSOR_DK], dk);
        if (first) {
            cr_assert(memcmp(first, bytes, 2 * o + dk) == 0, "%u threads", threads);
            free(bytes);
        } else first = bytes;
        close(&b);
    }
    free(first);
}

/* --- sinks of a run ----------------------------------------------------------------------------------------------- */

/* -sum of exp(z - lse) (d_o . o), in double, of one head. */
static double sink_slope(const struct bench *b, const fcp_tensors *x, uint32_t h, double z) {
    double sum = 0;
    for (size_t row = h; row < b->shape.tokens * b->shape.heads; row += b->shape.heads) {
        double dot = 0;
        for (size_t d = row * b->shape.head_dim; d < (row + 1) * b->shape.head_dim; d++)
            dot += (double)((const float *)x->o)[d] * (double)((const float *)x->d_o)[d];
        sum -= exp(z - (double)x->lse[row]) * dot;
    }
    return sum;
}

Test(score, a_run_has_sinks_of_its_own) {
    struct bench b = open(hand_make(1, 4, 2, 32, FCP_FP32, 128, "causal", mixed, 6), NULL, true, 2);
    void **m = b.packed.t;
    float own[4], gradient[4] = {7, 7, 7, 7};
    fcp_tensors x = {.q = m[FCP_TENSOR_Q], .k = m[FCP_TENSOR_K], .v = m[FCP_TENSOR_V], .o = m[FCP_TENSOR_O],
                     .lse = m[FCP_TENSOR_LSE], .d_o = m[FCP_TENSOR_DO], .dq = m[FCP_TENSOR_DQ],
                     .dk = m[FCP_TENSOR_DK], .dv = m[FCP_TENSOR_DV], .d_sink = gradient};
    for (int different = 0; different < 2; different++) {
        for (uint32_t h = 0; h < 4; h++) {
            if (!different) b.store->sink[h] = (double)(float)b.store->sink[h];
            own[h] = (float)b.store->sink[h] + (float)different * (0.5f + (float)h);
        }
        x.sink = own;
        cr_assert(fcp_session_run(b.session, FCP_FORWARD, &x, NULL) == FCP_OK);
        cr_assert(fcp_session_run(b.session, FCP_BACKWARD, &x, NULL) == FCP_OK);
        for (uint32_t h = 0; h < 4; h++) {
            double want = sink_slope(&b, &x, h, (double)own[h]);
            cr_assert(fabs((double)gradient[h] - want) < 1e-4 * (1 + fabs(want)), "sink %u: %g, not %g", h,
                      (double)gradient[h], want);
        }
        /* the plan's own sinks, made the same, give the same bits */
        size_t bytes = fcp_packed_bytes(&b.shape, FCP_TENSOR_LSE);
        float *lse = malloc(bytes);
        memcpy(lse, x.lse, bytes);
        for (uint32_t h = 0; h < 4; h++) b.store->sink[h] = (double)own[h];
        x.sink = NULL;
        cr_assert(fcp_session_run(b.session, FCP_FORWARD, &x, NULL) == FCP_OK);
        cr_assert(!memcmp(lse, x.lse, bytes));
        free(lse);
    }
    close(&b);
}

Test(score, sinks_of_a_run_need_a_plan_with_sinks) {
    struct bench b = open(hand_make(1, 4, 2, 32, FCP_FP32, 128, "causal", mixed, 6), NULL, false, 2);
    float own[4] = {0};
    fcp_error err;
    const fcp_tensors both[] = {{.sink = own}, {.d_sink = own}};
    for (int i = 0; i < 2; i++) {
        cr_assert(fcp_session_run(b.session, FCP_FORWARD, &both[i], &err) == FCP_E_TENSOR);
        cr_assert(strstr(err.message, "the plan has none"), "%s", err.message);
    }
    close(&b);
}
