/* judge.h: compares one drawn program, from its text to its gradients, with brute force.
 *
 * 1. The program is compiled. Its tiles must have exactly the pairs that come from evaluating every (q, k, h), and its
 *    cells must be what its mask says (fcp_plan_verify_pairs). It must be refused in two cases, and in no other:
 *    evaluation reaches a fault; or the layout asks for groups into which the ranks with tokens do not divide.
 * 2. The plan is saved, loaded and verified.
 * 3. The plan is run twice on the host backend. Outputs hold NaNs before, and both runs must give the same bits.
 * 4. O, LSE, dQ, dK, dV and the largest logit of each head are compared with attention in float64, under
 *    FlashAttention's rule: an error may be a small multiple of the error that the naive computation makes in the
 *    precision of the inputs.
 *
 * A number may be wrong by the sum of
 *   - the naive computation's error, times 2; times 3 with a score; times 10 if logits are far from 0, because chance
 *     then decides which keys fp32 can tell apart;
 *   - the rounding of the reference;
 *   - with `wire = bf16`, what the rounding of partial results may cause.
 */
#ifndef JUDGE_H
#define JUDGE_H
#include <math.h>
#include <unistd.h>

#include "compiler/fcpc.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/temporary.h"
#include "tests/oracle/random_program.h"

/* What must hold; a failure prints itself and ends the program, under Criterion and fuzzers alike. */
#define JUDGE(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "judge: " __VA_ARGS__);                                                                    \
            fputc('\n', stderr);                                                                                      \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static float from_half(uint16_t x) {
    int e = x >> 10 & 31, m = x & 1023;
    float v = e ? ldexpf((float)(m + 1024), e - 25) : ldexpf((float)m, -24);
    return x >> 15 ? -v : v;
}

static float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* The nearest number of a type (ties to even), as a float. */
static float round_to(int dtype, float x) {
    if (dtype == FCP_FP32 || x == 0 || !isfinite(x)) return x;
    if (dtype == FCP_BF16) {
        uint32_t u = float_bits(x);
        return bits_float((u + 0x7fff + (u >> 16 & 1)) & 0xffff0000u);
    }
    int e;
    frexpf(x, &e);
    if (e < -13) e = -13; /* subnormal halves share one spacing */
    float ulp = ldexpf(1, e - 11);
    return rintf(x / ulp) * ulp;
}

static float load(int dtype, const void *p, size_t i) {
    if (dtype == FCP_FP32) return ((const float *)p)[i];
    uint16_t u = ((const uint16_t *)p)[i];
    return dtype == FCP_FP16 ? from_half(u) : bits_float((uint32_t)u << 16);
}

/* --- the definition ----------------------------------------------------------------------------------------------- */

typedef struct tensors {
    size_t tokens;
    double *q, *k, *v, *d_o, *d_lse;  /* inputs, exact */
    double *o, *lse, *dq, *dk, *dv;   /* float64 */
    float *lo, *llse, *ldq, *ldk, *ldv; /* naive, in the type's precision */
    double *wo, *wdq, *wdk, *wdv;     /* the absolute values that each of those is a sum of, added up */
    uint8_t *empty;                   /* [tokens][heads]: the row sees nothing */
    double most[MAX_HEADS];           /* the largest logits, and their naive ones */
    float lmost[MAX_HEADS];
} tensors;

static void *zeros(size_t n, size_t size) {
    void *p = calloc(n ? n : 1, size);
    JUDGE(p, "out of memory");
    return p;
}

/* How many there are of allow(q, k, h) of one sequence. */
static size_t pairs_of(const random_program *p, uint32_t s) {
    return (size_t)((p->uses_h ? p->heads : 1) * queries_of(p, s) * p->lengths[s]);
}

/* allow(q, k, h) of every pair of one sequence, as the tree has it. */
static void allowed(const random_program *p, uint32_t s, uint8_t *a, bool *fault, uint64_t *pairs) {
    uint32_t heads = p->uses_h ? p->heads : 1;
    uint64_t n = p->lengths[s], rows = queries_of(p, s);
    int64_t first = p->top_left ? 0 : (int64_t)n - (int64_t)rows; /* position of the first query */
    for (uint32_t h = 0; h < heads; h++)
        for (uint64_t i = 0; i < rows; i++)
            for (uint64_t k = 0; k < n; k++) {
                bool f = false;
                int64_t q = first + (int64_t)i;
                bool yes = p->allow ? p->allow(p->params, q, (int64_t)k, (int64_t)n)
                                    : value_of(p->mask, q, (int64_t)k, (int64_t)n, h, &f);
                *fault |= f;
                a[(h * rows + i) * n + k] = yes;
                *pairs += yes && !f;
            }
}

static void define(random_program *p, tensors *t, uint8_t *const *allow) {
    size_t d = p->head_dim, dv = p->value_dim, H = p->heads, KH = p->kv_heads, base = 0, key_base = 0;
    const size_t v_row = p->values_in_keys ? d : dv; /* V, and its gradient, may be in the rows of K and dK */
    double *d_v = p->values_in_keys ? t->dk : t->dv, *wdv = p->values_in_keys ? t->wdk : t->wdv;
    float *ldv = p->values_in_keys ? t->ldk : t->ldv;
    for (size_t h = 0; h < H; h++) t->most[h] = -INFINITY, t->lmost[h] = -INFINITY;
    double scale = 1 / sqrt((double)d);
    float fscale = (float)scale;
    for (uint32_t s = 0; s < p->sequences; base += queries_of(p, s), key_base += p->lengths[s++]) {
        size_t n = p->lengths[s], rows = queries_of(p, s);
        double *S = zeros(n, sizeof *S), *P = zeros(n, sizeof *P), *D = zeros(n, sizeof *D); /* D: slopes */
        float *Sf = zeros(n, sizeof *Sf), *Pf = zeros(n, sizeof *Pf), *Df = zeros(n, sizeof *Df);
        const random_score *score = &p->score;
        view_fields(p, s);
        const int64_t first = p->top_left ? 0 : (int64_t)n - (int64_t)rows; /* position of the first query */
        for (size_t h = 0; h < H; h++)
            for (size_t q = 0; q < rows; q++) {
                size_t g = h / (H / KH), row = ((base + q) * H + h) * d, o_row = ((base + q) * H + h) * dv;
                const uint8_t *a = allow[s] + ((p->uses_h ? h : 0) * rows + q) * n;
                double m = -INFINITY, l = 0;
                float mf = -INFINITY, lf = 0;
                for (size_t k = 0; k < n; k++) {
                    if (!a[k]) continue;
                    double x = 0;
                    float xf = 0;
                    for (size_t i = 0; i < d; i++) {
                        double y = t->k[((key_base + k) * KH + g) * d + i];
                        x += t->q[row + i] * y;
                        xf += (float)t->q[row + i] * (float)y;
                    }
                    score_exact_dual e = {x * scale, 1};
                    score_naive_dual f = {xf * fscale, 1};
                    if (score->root) e = score_exact(score->root, e.x, first + (int64_t)q, (int64_t)k, (int64_t)h);
                    if (score->root) f = score_naive(score->root, f.x, first + (int64_t)q, (int64_t)k, (int64_t)h);
                    S[k] = e.x, D[k] = e.dx;
                    Sf[k] = f.x, Df[k] = f.dx;
                    if (S[k] > m) m = S[k];
                    if (Sf[k] > mf) mf = Sf[k];
                }
                t->most[h] = fmax(t->most[h], m);
                t->lmost[h] = fmaxf(t->lmost[h], mf);
                if (m == -INFINITY) {
                    double nothing = score->sinks ? score->sink[h] : -INFINITY;
                    t->empty[(base + q) * H + h] = 1;
                    t->lse[(base + q) * H + h] = nothing;
                    t->llse[(base + q) * H + h] = (float)nothing;
                    continue;
                }
                if (score->sinks) {
                    m = fmax(m, score->sink[h]), l = exp(score->sink[h] - m);
                    mf = fmaxf(mf, (float)score->sink[h]), lf = expf((float)score->sink[h] - mf);
                }
                for (size_t k = 0; k < n; k++) {
                    P[k] = a[k] ? exp(S[k] - m) : 0;
                    Pf[k] = a[k] ? expf(Sf[k] - mf) : 0;
                    l += P[k];
                    lf += Pf[k];
                }
                double lse = m + log(l);
                float lsef = mf + logf(lf);
                t->lse[(base + q) * H + h] = lse;
                t->llse[(base + q) * H + h] = lsef;
                for (size_t k = 0; k < n; k++) {
                    if (!a[k]) continue;
                    float r = round_to(p->dtype, Pf[k]);
                    for (size_t i = 0; i < dv; i++) {
                        double v = t->v[((key_base + k) * KH + g) * v_row + i];
                        t->o[o_row + i] += P[k] / l * v;
                        t->wo[o_row + i] += P[k] / l * fabs(v);
                        t->lo[o_row + i] += r * (float)v;
                    }
                }
                double delta = -t->d_lse[(base + q) * H + h], wdelta = fabs(delta);
                float deltaf = (float)delta;
                for (size_t i = 0; i < dv; i++) {
                    t->lo[o_row + i] = round_to(p->dtype, t->lo[o_row + i] / lf);
                    delta += t->d_o[o_row + i] * t->o[o_row + i];
                    wdelta += fabs(t->d_o[o_row + i]) * t->wo[o_row + i];
                    deltaf += (float)t->d_o[o_row + i] * t->lo[o_row + i];
                }
                for (size_t k = 0; p->backward && k < n; k++) {
                    if (!a[k]) continue;
                    size_t col = ((key_base + k) * KH + g) * d, v_col = ((key_base + k) * KH + g) * v_row;
                    double dp = 0, pr = P[k] / l;
                    float dpf = 0, prf = Pf[k] / lf;
                    for (size_t i = 0; i < dv; i++) {
                        dp += t->d_o[o_row + i] * t->v[v_col + i];
                        dpf += (float)t->d_o[o_row + i] * (float)t->v[v_col + i];
                    }
                    double ds = pr * (dp - delta) * D[k], wds = fabs(ds) + pr * wdelta * fabs(D[k]);
                    float dsf = round_to(p->dtype, prf * (dpf - deltaf) * Df[k]), r = round_to(p->dtype, prf);
                    for (size_t i = 0; i < d; i++) {
                        t->dq[row + i] += ds * t->k[col + i] * scale;
                        t->dk[col + i] += ds * t->q[row + i] * scale;
                        t->wdq[row + i] += wds * fabs(t->k[col + i]) * scale;
                        t->wdk[col + i] += wds * fabs(t->q[row + i]) * scale;
                        t->ldq[row + i] += dsf * (float)t->k[col + i] * fscale;
                        t->ldk[col + i] += dsf * (float)t->q[row + i] * fscale;
                    }
                    for (size_t i = 0; i < dv; i++) {
                        d_v[v_col + i] += pr * t->d_o[o_row + i];
                        wdv[v_col + i] += pr * fabs(t->d_o[o_row + i]);
                        ldv[v_col + i] += r * (float)t->d_o[o_row + i];
                    }
                }
            }
        free(S);
        free(P);
        free(Sf);
        free(Pf);
        free(D);
        free(Df);
    }
}

/* --- one program -------------------------------------------------------------------------------------------------- */

/* `by`: how many times as large as usual. */
static void *draw_tensor(dice *d, int dtype, size_t n, float by, double **out_exact) {
    void *data = zeros(n, fcp_dtype_size((fcp_dtype)dtype));
    *out_exact = zeros(n, sizeof **out_exact);
    for (size_t i = 0; i < n; i++) {
        float x = ((float)roll(d, 4001) - 2000) / 1024 * by; /* about uniform in -2 .. 2 */
        if (dtype == FCP_FP32) {
            ((float *)data)[i] = x;
        } else if (dtype == FCP_BF16) {
            ((uint16_t *)data)[i] = (uint16_t)(float_bits(round_to(FCP_BF16, x)) >> 16);
        } else {
            /* sign, exponent 10 .. 15, any mantissa */
            ((uint16_t *)data)[i] = (uint16_t)(roll(d, 2) << 15 | (10 + roll(d, 6)) << 10 | roll(d, 1024));
        }
        (*out_exact)[i] = load(dtype, data, i);
    }
    return data;
}

/* Rows of the packed batch to the ranks' local tensors, or back. */
static void scatter(const fcp_plan *plan, uint32_t rank, bool keys, void *local, void *packed, size_t row_bytes,
                    bool gather) {
    fcp_layout_at walk = {0};
    fcp_span span;
    char *at = local;
    while (keys ? fcp_plan_layout_keys(plan, rank, &walk, &span) : fcp_plan_layout(plan, rank, &walk, &span)) {
        uint64_t first = keys ? fcp_plan_key_offset(plan, span.sequence, NULL)
                              : fcp_plan_sequence_offset(plan, span.sequence, NULL);
        char *there = (char *)packed + (first + span.start) * row_bytes;
        size_t bytes = span.length * row_bytes;
        if (gather)
            memcpy(there, at, bytes);
        else
            memcpy(at, there, bytes);
        at += bytes;
    }
}

static void compare(const char *what, unsigned seed, const random_program *p, int dtype, const double *reference,
                    const float *naive, const void *got, size_t n, double slack) {
    double naive_error = 0, error = 0, rounding = 0;
    for (size_t i = 0; i < n; i++) {
        float x = load(dtype, got, i);
        if (isinf(reference[i])) {
            JUDGE(x == (float)reference[i], "seed %u: %s[%zu] = %g, expected %g\n%s", seed, what, i, (double)x,
                      reference[i], p->text);
            continue;
        }
        JUDGE(isfinite(x), "seed %u: %s[%zu] is not finite\n%s", seed, what, i, p->text);
        double y = reference[i];
        float r = round_to(dtype, (float)y), rr = round_to(dtype, round_to(dtype, r + 0.3f) - 0.3f);
        if (fabs((double)rr - y) > rounding) rounding = fabs((double)rr - y);
        float lowp = round_to(dtype, naive[i]);
        if (fabs((double)lowp - y) > naive_error) naive_error = fabs((double)lowp - y);
        if (fabs((double)x - y) > error) error = fabs((double)x - y);
    }
    double limit = (p->large || p->score.far ? 10 : p->score.root ? 3 : 2) * naive_error + 2 * rounding + slack;
    JUDGE(error <= limit, "seed %u: %s is off by %g, allowed %g\n%s", seed, what, error, limit, p->text);
}

/* Returns the error that any of n sums may have because of how it is summed. weight[i] is the sum of the absolute
 * values of the terms of sum i. There are two causes:
 *   rounding       with `wire = bf16`, each hop of a partial result rounds it, by at most 2^-8 of its value. A partial
 *                  result makes fewer hops than there are ranks. So does O, from which gradients are computed: twice as
 *                  many in all.
 *   another order  if inputs are large. Example: in a row that sees one key dP - delta should be 0. It is exactly 0
 *                  only if both sums are added up in the same order, as in the naive computation. */
static double sum_slack(const random_program *p, const double *weight, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if (weight[i] > most) most = weight[i];
    return most * ((p->wire ? pow(1 + 0x1p-8, 2 * p->nodes * p->gpus) - 1 : 0) + (p->large ? 0x1p-20 : 0));
}

/* The largest logits over all ranks. */
static void compare_most(unsigned seed, const random_program *p, const tensors *t, const float *most, uint32_t ranks) {
    for (uint32_t h = 0; h < p->heads; h++) {
        float x = -INFINITY;
        for (uint32_t r = 0; r < ranks; r++) x = !(most[r * p->heads + h] <= x) ? most[r * p->heads + h] : x;
        const double y = t->most[h], limit = 10 * fabs((double)t->lmost[h] - y) + 1e-5 * fmax(1, fabs(y));
        JUDGE(isinf(y) ? (double)x == y : fabs((double)x - y) <= limit,
              "seed %u: the largest logit of head %u is %g, expected %g\n%s", seed, h, (double)x, y, p->text);
    }
}

/* An input: up to 1e4 times as large in some programs, but in fp16 not, whose largest number is 65504. */
static float draw_factor(const random_program *p, dice *d) {
    static const float factors[] = {1, 10, 100, 1e4f};
    return p->large && p->dtype != FCP_FP16 ? factors[roll(d, 4)] : 1;
}

static void run_plan(const fcp_plan *plan, random_program *p, unsigned seed, dice *d, uint8_t *const *allow) {
    enum { Q, K, V, O, LSE, D_O, DQ, DK, DV, LOW, D_LSE, NT };
    static const bool of_keys[NT] = {[K] = true, [V] = true, [DK] = true, [DV] = true};
    static const bool is_input[NT] = {[Q] = true, [K] = true, [V] = true, [D_O] = true, [D_LSE] = true};
    const size_t H = p->heads, KH = p->kv_heads, dim = p->head_dim, T = p->tokens;
    const size_t e = fcp_dtype_size((fcp_dtype)p->dtype), rows = T * H, key_rows = p->key_tokens * KH;
    const size_t vd = p->value_dim, own_vd = p->values_in_keys ? 0 : vd; /* of V and dV */
    const size_t row[NT] = {H * dim * e, KH * dim * e, KH * own_vd * e, H * vd * e, H * 4, H * vd * e,
                            H * dim * e, KH * dim * e, KH * own_vd * e, H * 4, p->lse_gradient ? H * 4 : 0};
    const float by[] = {draw_factor(p, d), draw_factor(p, d), draw_factor(p, d), draw_factor(p, d)};
    tensors t = {.tokens = T};
    void *packed[NT] = {draw_tensor(d, p->dtype, rows * dim, by[0], &t.q),
                        draw_tensor(d, p->dtype, key_rows * dim, by[1], &t.k),
                        draw_tensor(d, p->dtype, key_rows * own_vd, by[2], &t.v)};
    packed[D_O] = draw_tensor(d, p->dtype, rows * vd, by[3], &t.d_o);
    packed[D_LSE] = draw_tensor(d, FCP_FP32, p->lse_gradient ? rows : 0, 1, &t.d_lse);
    double *const own_v = t.v;
    if (p->values_in_keys) t.v = t.k;
    t.d_lse = p->lse_gradient ? t.d_lse : (free(t.d_lse), zeros(rows, 8));
    t.o = zeros(rows * vd, 8), t.lse = zeros(rows, 8), t.dq = zeros(rows * dim, 8), t.dk = zeros(key_rows * dim, 8);
    t.lo = zeros(rows * vd, 4), t.llse = zeros(rows, 4), t.ldq = zeros(rows * dim, 4);
    t.ldk = zeros(key_rows * dim, 4), t.ldv = zeros(key_rows * own_vd, 4), t.dv = zeros(key_rows * own_vd, 8);
    t.wo = zeros(rows * vd, 8), t.wdq = zeros(rows * dim, 8), t.wdk = zeros(key_rows * dim, 8);
    t.wdv = zeros(key_rows * own_vd, 8), t.empty = zeros(rows, 1);
    define(p, &t, allow);

    static const int kept[] = {O, DQ, DK, DV};
    enum { KEPT = sizeof kept / sizeof *kept };
    for (int i = 0; i < NT; i++)
        if (!packed[i]) packed[i] = zeros((of_keys[i] ? p->key_tokens : T) * row[i], 1);
    void *again[KEPT];
    for (int i = 0; i < KEPT; i++) again[i] = zeros((of_keys[kept[i]] ? p->key_tokens : T) * row[kept[i]], 1);
    const uint32_t ranks = p->nodes * p->gpus;
    fcp_tensors *per_rank = zeros(ranks, sizeof *per_rank);
    float *most = zeros(ranks * H, sizeof *most);
    void **local = zeros(ranks * (size_t)NT, sizeof *local);
    memset(most, 0xff, ranks * H * sizeof *most);
    for (uint32_t r = 0; r < ranks; r++) {
        size_t queries = fcp_plan_rank_queries(plan, r), keys = fcp_plan_rank_keys(plan, r);
        void **x = local + r * (size_t)NT;
        for (int i = 0; i < NT; i++) {
            size_t tokens = of_keys[i] ? keys : queries;
            x[i] = zeros(tokens * row[i], 1);
            memset(x[i], 0xff, tokens * row[i]); /* NaN in every type */
            if (is_input[i]) scatter(plan, r, of_keys[i], x[i], packed[i], row[i], false);
        }
        per_rank[r] = (fcp_tensors){.q = x[Q], .k = x[K], .v = own_vd ? x[V] : NULL, .o = x[O], .lse = x[LSE],
                                    .d_o = x[D_O], .dq = x[DQ], .dk = x[DK], .dv = own_vd ? x[DV] : NULL,
                                    .lse_low = x[LOW], .d_lse = p->lse_gradient ? x[D_LSE] : NULL,
                                    .max_logit = most + r * H};
    }
    fcp_session *session;
    fcp_error err;
    JUDGE(fcp_session_create(plan, NULL, &session, &err) == FCP_OK, "seed %u: %s\n%s", seed, err.message, p->text);
    for (int attempt = 0; attempt < 2; attempt++) {
        for (int pass = 0; pass <= p->backward; pass++)
            JUDGE(fcp_session_run(session, (fcp_pass)pass, per_rank, &err) == FCP_OK, "seed %u: %s\n%s", seed,
                  err.message, p->text);
        for (int i = 0; i < KEPT; i++)
            memcpy(again[i], packed[kept[i]], (of_keys[kept[i]] ? p->key_tokens : T) * row[kept[i]]);
        for (uint32_t r = 0; r < ranks; r++)
            for (int i = 0; i < NT; i++)
                if (!is_input[i]) scatter(plan, r, of_keys[i], local[r * (size_t)NT + i], packed[i], row[i], true);
        for (int i = 0; i < KEPT; i++)
            JUDGE(!attempt || (i && !p->backward) ||
                      !memcmp(again[i], packed[kept[i]], (of_keys[kept[i]] ? p->key_tokens : T) * row[kept[i]]),
                  "seed %u: two runs differ\n%s", seed, p->text);
    }
    fcp_session_free(session);

    const float *lse = packed[LSE];
    compare("O", seed, p, p->dtype, t.o, t.lo, packed[O], rows * vd, sum_slack(p, t.wo, rows * vd));
    double largest = 1;
    for (size_t i = 0; i < rows; i++)
        if (isfinite(t.lse[i]) && fabs(t.lse[i]) > largest) largest = fabs(t.lse[i]);
    compare("LSE", seed, p, FCP_FP32, t.lse, t.llse, lse, rows, 1e-5 * largest);
    compare_most(seed, p, &t, most, ranks);
    for (size_t i = 0; i < rows; i++) /* an empty row is exactly zero */
        for (size_t j = 0; t.empty[i] && j < vd; j++)
            JUDGE(load(p->dtype, packed[O], i * vd + j) == 0 && lse[i] == (float)t.lse[i],
                  "seed %u: an empty row is not 0\n%s", seed, p->text);
    if (p->backward) {
        compare("dQ", seed, p, p->dtype, t.dq, t.ldq, packed[DQ], rows * dim, 3e-4 + sum_slack(p, t.wdq, rows * dim));
        compare("dK", seed, p, p->dtype, t.dk, t.ldk, packed[DK], key_rows * dim,
                3e-4 + sum_slack(p, t.wdk, key_rows * dim));
        compare("dV", seed, p, p->dtype, t.dv, t.ldv, packed[DV], key_rows * own_vd,
                3e-4 + sum_slack(p, t.wdv, key_rows * own_vd));
    }
    for (uint32_t i = 0; i < ranks * NT; i++) free(local[i]);
    for (int i = 0; i < NT; i++) free(packed[i]);
    for (int i = 0; i < KEPT; i++) free(again[i]);
    void *all[] = {t.empty, per_rank, local, most,   t.q,    t.k,  own_v,  t.d_o,   t.d_lse, t.o,   t.lse, t.dq, t.dk,
                   t.dv,    t.lo,     t.llse, t.ldq, t.ldk, t.ldv, t.wo,   t.wdq,   t.wdk,   t.wdv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Through a file and back. */
static fcp_plan *reload(const fcp_plan *plan, unsigned seed) {
    char path[TEMPORARY];
    fcp_plan *loaded;
    fcp_error err;
    JUDGE(temporary_file(path, "judge"), "no temporary file");
    JUDGE(fcp_plan_save(plan, path, &err) == FCP_OK, "seed %u: %s", seed, err.message);
    JUDGE(fcp_plan_load(path, &loaded, &err) == FCP_OK, "seed %u: %s", seed, err.message);
    unlink(path);
    return loaded;
}
/* tokens = equal: every rank is home to the mean number of queries, and of keys, rounded down or up. */
static inline void check_equal(unsigned seed, const random_program *p, const fcp_plan *plan) {
    const uint32_t ranks = p->nodes * p->gpus;
    for (int side = 0; side < FCP_SIDES && p->equal; side++) {
        const uint64_t total = side == FCP_KEYS ? p->key_tokens : p->tokens;
        for (uint32_t r = 0; r < ranks; r++) {
            uint64_t held = 0;
            for (uint64_t b = 0; b < plan->blocks_count; b++) {
                const fcp_heads *h = &plan->heads[plan->blocks[b].heads]; /* each token once: that of the first heads */
                if (plan->blocks[b].home == r && plan->blocks[b].holds >> side & 1 && !h->kv_first && !h->sub_first)
                    held += plan->blocks[b].tokens;
            }
            JUDGE(held == total / ranks || held == (total + ranks - 1) / ranks,
                  "seed %u: rank %u holds %llu of %llu tokens, which are to be equal\n%s", seed, r,
                  (unsigned long long)held, (unsigned long long)total, p->text);
        }
    }
}


/* Positions begin anew where the field of documents has another value than before, or a sequence begins; and the next
 * token of one that ends there is none. */
static inline void check_documents(unsigned seed, const random_program *p, const fcp_plan *plan) {
    const uint64_t most = p->tokens + 1;
    int64_t *place = zeros(3 * most, sizeof *place), *rows = place + most, *next = rows + most;
    uint64_t documents = 0;
    for (uint64_t s = 0, row = 0; s < p->sequences; s++)
        for (uint64_t i = 0; i < queries_of(p, (uint32_t)s); i++, row++) {
            const bool begins = !i || (p->documents && p->fields[0][row] != p->fields[0][row - 1]);
            const int64_t first = p->top_left ? 0 : (int64_t)p->lengths[s] - (int64_t)queries_of(p, (uint32_t)s);
            place[row] = !i ? first : begins ? 0 : place[row - 1] + 1;
            documents += begins;
        }
    fcp_shape shape;
    fcp_plan_shape(plan, &shape);
    JUDGE(shape.documents == documents, "seed %u: %llu documents, which are %llu\n%s", seed,
          (unsigned long long)shape.documents, (unsigned long long)documents, p->text);
    for (uint32_t r = 0; r < shape.ranks; r++) {
        const uint64_t count = fcp_plan_rank_queries(plan, r);
        int64_t *given = zeros(count + 1, sizeof *given);
        fcp_plan_rows(plan, r, false, 0, rows);
        fcp_plan_rows(plan, r, false, 1, next);
        fcp_plan_positions(plan, r, false, given);
        for (uint64_t i = 0; i < count; i++) {
            const bool more = (uint64_t)rows[i] + 1 < p->tokens && place[rows[i] + 1] == place[rows[i]] + 1;
            JUDGE(given[i] == place[rows[i]], "seed %u: row %lld is at %lld\n%s", seed, (long long)rows[i],
                  (long long)given[i], p->text);
            JUDGE(!p->documents || next[i] == (more ? rows[i] + 1 : -1), "seed %u: behind row %lld comes %lld\n%s",
                  seed, (long long)rows[i], (long long)next[i], p->text);
        }
        free(given);
    }
    free(place);
}

/* allow(q, k, h) of the whole batch. of[0] is freed for all. */
typedef struct all_pairs {
    uint8_t *of[MAX_SEQUENCES];
    uint64_t count; /* that are allowed */
    bool fault;
} all_pairs;

static all_pairs all_allowed(random_program *p) {
    all_pairs a = {.count = 0};
    size_t size = 0;
    for (uint32_t s = 0; s < p->sequences; s++) size += pairs_of(p, s);
    uint8_t *at = zeros(size, 1);
    for (uint64_t s = 0; s < p->sequences; s++) {
        view_fields(p, (uint32_t)s);
        a.of[s] = at;
        at += pairs_of(p, (uint32_t)s);
        allowed(p, (uint32_t)s, a.of[s], &a.fault, &a.count);
    }
    return a;
}

/* The plan has these pairs, in all and in each tile. */
static void check_pairs(unsigned seed, const random_program *p, const fcp_plan *plan, const all_pairs *a) {
    /* a mask that names h may not depend on it: then the plan counts a pair once, and every head has the same */
    const bool by_head = plan->problem->mask_uses & MC_USES_H;
    const uint32_t ranges = p->heads / plan->problem->range_kv / plan->problem->range_sub;
    uint64_t alike = p->uses_h && !by_head ? p->heads : 1;
    JUDGE(plan->summary->pairs * alike == a->count * (by_head ? 1 : ranges),
          "seed %u: %llu pairs, brute force %llu\n%s", seed, (unsigned long long)plan->summary->pairs,
          (unsigned long long)a->count, p->text);
    for (uint64_t i = 0; i < plan->tiles_count; i++) {
        const fcp_tile *tile = &plan->tiles[i];
        const fcp_heads *range = &plan->heads[plan->blocks[tile->q_block].heads];
        uint64_t sum = 0;
        for (uint32_t j = 0; j < tile->parts; j++) {
            const fcp_piece *x = &plan->pieces[plan->parts[tile->first_part + j].q_piece];
            const fcp_piece *y = &plan->pieces[plan->parts[tile->first_part + j].k_piece];
            uint64_t n = p->lengths[x->sequence], rows = queries_of(p, x->sequence);
            for (uint32_t h = 0; h < (p->uses_h ? p->heads : 1); h++) {
                uint32_t shared = p->heads / p->kv_heads, kv = h / shared, sub = h % shared;
                if (by_head && (kv < range->kv_first || kv >= range->kv_first + range->kv_count ||
                                sub < range->sub_first || sub >= range->sub_first + range->sub_count))
                    continue;
                for (uint64_t q = x->start; q < x->start + x->length; q++)
                    for (uint64_t k = y->start; k < y->start + y->length; k++)
                        sum += a->of[x->sequence][(h * rows + q) * n + k];
            }
        }
        JUDGE(sum == tile->pairs * alike, "seed %u: tile %llu\n%s", seed, (unsigned long long)i, p->text);
    }
    fcp_error err;
    fcp_code code = fcp_plan_verify_pairs(plan, 0, NULL, NULL, &err);
    JUDGE(code == FCP_OK, "seed %u: %s %s\n%s", seed, fcp_code_name(code), err.message, p->text);
}

static bool is_causal(const int64_t *params, int64_t q, int64_t k, int64_t n) {
    (void)params;
    (void)n;
    return k <= q;
}

/* The plan of the other layers, whose mask is causal; their tokens are where those of the first layer are. */
static void check_other_layers(unsigned seed, random_program *p, const fcp_plan *first, const fcp_plan *other) {
    uint8_t homes[2][FCP_DIGEST_BYTES];
    const bool uses_h = p->uses_h;
    p->uses_h = false;
    p->allow = is_causal;
    all_pairs a = all_allowed(p);
    check_pairs(seed, p, other, &a);
    check_equal(seed, p, other);
    check_documents(seed, p, other);
    p->uses_h = uses_h;
    p->allow = NULL;
    free(a.of[0]);
    JUDGE(fcp_plan_homes(first, homes[0], NULL) == FCP_OK && fcp_plan_homes(other, homes[1], NULL) == FCP_OK &&
              !memcmp(homes[0], homes[1], FCP_DIGEST_BYTES),
          "seed %u: layers have their tokens at different ranks\n%s", seed, p->text);
}

enum { FAULTED, PLANNED, MASKS = 2 };

static int check_program(unsigned seed, random_program *p, dice *d, bool execute) {
    all_pairs a = all_allowed(p);
    fcpc_diagnostics *diag = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plans[MASKS] = {NULL};
    const fcpc_batch batch = {.size = sizeof batch};
    fcp_code code = fcpc_parse_text("drawn.fcp", p->text, p->size, NULL, diag, &program);
    if (!code) code = fcpc_plan_layers(program, &batch, NULL, diag, NULL, plans);
    int result = PLANNED;
    if (auto_is_refused(p)) {
        JUDGE(code == FCP_E_HEADS, "seed %u: heads that do not divide go by (%s)\n%s\n%s", seed, fcp_code_name(code),
              fcpc_diagnostics_render(diag, false), p->text);
        result = FAULTED;
    } else if (p->group && (p->nodes * p->gpus - p->servers) % p->group) {
        JUDGE(code == FCP_E_VALUE, "seed %u: ranks that do not divide into groups go by (%s)\n%s\n%s", seed,
              fcp_code_name(code), fcpc_diagnostics_render(diag, false), p->text);
        result = FAULTED;
    } else if (a.fault) {
        JUDGE(code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_OVERFLOW || code == FCP_E_MASK_INDEX,
              "seed %u: a fault went by (%s)\n%s\n%s", seed, fcp_code_name(code),
              fcpc_diagnostics_render(diag, false), p->text);
        result = FAULTED;
    } else {
        JUDGE(code == FCP_OK, "seed %u: refused\n%s\n%s", seed, fcpc_diagnostics_render(diag, false), p->text);
        check_pairs(seed, p, plans[0], &a);
        check_equal(seed, p, plans[0]);
        check_documents(seed, p, plans[0]);
        if (p->layers) check_other_layers(seed, p, plans[0], plans[1]);
        if (execute) {
            fcp_plan *loaded = reload(plans[0], seed);
            check_documents(seed, p, loaded);
            run_plan(loaded, p, seed, d, a.of);
            fcp_plan_free(loaded);
        }
    }
    for (int i = 0; i < MASKS; i++) fcp_plan_free(plans[i]);
    fcpc_program_free(program);
    fcpc_diagnostics_free(diag);
    free(a.of[0]);
    return result;
}
#endif
