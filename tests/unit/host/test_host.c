/* test_host.c: tests the host backend and the executor against the definition of attention, on plans made by hand.
 * The code of that definition is itself tested: against formulas that are written out here, and its gradients
 * against differences. */
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/amount.h"
#include "tests/support/hand_plan.h"
#include "tests/support/judge_packed.h"
#include "tests/support/plain.h"
#include "tests/support/session_on.h"
#include "tests/support/small_case.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };
static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};
static const uint64_t mixed[] = {540, 60, 129, 1, 200, 64};

struct bench {
    hand *h;
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed;
};

static struct bench open(hand *h, uint32_t threads) {
    struct bench b = {.h = h};
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = threads, .timeout_s = 60};
    cr_assert_not_null(h);
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
}

static void run(struct bench *b, fcp_pass pass) {
    fcp_error err = {0};
    cr_assert(fcp_session_run_packed(b->session, &b->h->plan, pass, &b->packed, NULL, &err) == FCP_OK, "%s",
              err.message);
}

static void check(struct bench *b, unsigned passes, const char *what) {
    cr_assert(judge_packed(&b->h->plan, passes, &b->packed, what).ok, "%s", what);
}

static void both(hand *h, uint32_t threads, const char *what) {
    struct bench b = open(h, threads);
    for (int pass = 0; pass < FCP_PASSES; pass++) run(&b, (fcp_pass)pass);
    check(&b, 1u << FCP_FORWARD | 1u << FCP_BACKWARD, what);
    close(&b);
}

/* --- against the definition --------------------------------------------------------------------------------------- */

#ifdef PLAIN_TESTS
enum { QUICK_STEP = 3, STEP = 3 }; /* the thread sanitizer is slow */
#else
enum { QUICK_STEP = 8, STEP = 1 };
#endif

/* Every mask, or from the first on every fourth: the four tests below begin at different ones. */
static void masks_from(size_t first, uint32_t ranks, fcp_dtype dtype, uint32_t block) {
    size_t step = amount(QUICK_STEP, STEP);
    for (size_t m = step > 1 ? first : 0; m < sizeof masks / sizeof *masks; m += step) {
        char what[80];
        snprintf(what, sizeof what, "%s, %u ranks, %s", masks[m], ranks, fcp_dtype_name(dtype));
        both(hand_make(ranks, 4, 2, 32, dtype, block, masks[m], mixed, 6), 2, what);
    }
}

Test(host, masks_on_one_rank_fp32) { masks_from(0, 1, FCP_FP32, 512); }
Test(host, masks_on_four_ranks_fp32) { masks_from(1, 4, FCP_FP32, 128); }
Test(host, masks_on_three_ranks_fp16) { masks_from(2, 3, FCP_FP16, 256); }
Test(host, masks_on_five_ranks_bf16) { masks_from(3, 5, FCP_BF16, 384); }

Test(host, head_dimensions_and_groups) {
    static const uint32_t shapes[][3] = {{1, 1, 1}, {3, 1, 7}, {4, 4, 17}, {6, 2, 80}, {2, 2, 256}, {8, 1, 64}};
    const uint64_t lengths[] = {260, 131};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        char what[80];
        snprintf(what, sizeof what, "%u heads, %u KV heads, head_dim %u", shapes[i][0], shapes[i][1], shapes[i][2]);
        both(hand_make(2, shapes[i][0], shapes[i][1], shapes[i][2], FCP_FP32, 128, "causal", lengths, 2), 1, what);
    }
}

Test(host, more_ranks_than_processors) {
    const uint64_t lengths[] = {1500, 500, 70, 30, 5}; /* 36 blocks */
    both(hand_make(32, 2, 1, 16, FCP_FP32, 64, "causal", lengths, 5), 2, "32 ranks");
}

Test(host, more_ranks_than_blocks) {
    const uint64_t lengths[] = {200};
    both(hand_make(6, 2, 1, 16, FCP_FP32, 128, "full", lengths, 1), 4, "6 ranks, 2 blocks");
}

/* --- bits --------------------------------------------------------------------------------------------------------- */

/* Outputs of both passes, behind each other. */
static unsigned char *outputs(hand *h, uint32_t threads, size_t *out_size) {
    struct bench b = open(h, threads);
    unsigned char *bytes = NULL;
    size_t at = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        run(&b, (fcp_pass)pass);
        for (int t = 0; t < FCP_TENSORS; t++) {
            if (!(fcp_pass_outputs((fcp_pass)pass) >> t & 1)) continue;
            size_t size = b.shape.tokens * fcp_tensor_token_bytes(&b.shape, (fcp_tensor)t);
            bytes = realloc(bytes, at + size);
            memcpy(bytes + at, b.packed.t[t], size);
            at += size;
        }
    }
    close(&b);
    *out_size = at;
    return bytes;
}

Test(host, two_runs_and_any_number_of_threads_give_the_same_bits) {
    static const uint32_t threads[] = {1, 1, 2, 3, 8, 64};
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        unsigned char *first = NULL;
        size_t size = 0;
        for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
            size_t again_size;
            unsigned char *again =
                outputs(hand_make(ranks, 8, 4, 24, FCP_BF16, 256, "odd", mixed, 6), threads[i], &again_size);
            if (first) cr_assert(again_size == size && memcmp(first, again, size) == 0, "%u threads", threads[i]);
            if (first) free(again);
            else first = again, size = again_size;
        }
        free(first);
    }
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

static fcp_backend watching; /* the host's, which notes where it is asked to attend */
static pthread_t caller;
static atomic_int elsewhere, with_signals;

static fcp_code open_watching(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err) {
    fcp_code code = fcp_backend_host.open(plan, workers, out_device, err);
    if (!code) (*out_device)->backend = &watching;
    return code;
}

static fcp_code attend_watching(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t first,
                                uint32_t count, uint32_t head, uint32_t heads, fcp_error *err) {
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!pthread_equal(pthread_self(), caller)) {
        elsewhere++;
        with_signals += !sigismember(&blocked, SIGINT);
    }
    return fcp_backend_host.attend(device, worker, arena, first, count, head, heads, err);
}

/* A signal's handler runs in a thread of the caller, never in one that the session has started. */
Test(host, its_threads_get_no_signals) {
    hand *h = hand_make(2, 4, 2, 32, FCP_FP32, 256, "causal", mixed, 6);
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_session *session;
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = 4, .timeout_s = 60};
    watching = fcp_backend_host;
    watching.open = open_watching;
    watching.attend = attend_watching;
    caller = pthread_self();
    cr_assert_not_null(h);
    fcp_plan_shape(&h->plan, &shape);
    cr_assert(session_on(&h->plan, &watching, &options, &session, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_packed_alloc(&shape, ALL, &packed, NULL) == FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    cr_assert(fcp_session_run_packed(session, &h->plan, FCP_FORWARD, &packed, NULL, &err) == FCP_OK, "%s", err.message);
    cr_assert(elsewhere > 0);
    cr_assert(with_signals == 0);
    fcp_session_free(session);
    fcp_packed_free(&packed);
    hand_free(h);
}

Test(host, openblas_keeps_its_setting) {
    void *library = dlopen("libopenblas.so.0", RTLD_NOW); /* the one that the backend loads */
    cr_assert(library);
    int (*get_threads)(void) = (int (*)(void))(uintptr_t)dlsym(library, "openblas_get_num_threads");
    void (*set_threads)(int) = (void (*)(int))(uintptr_t)dlsym(library, "openblas_set_num_threads");
    int before = get_threads();
    set_threads(3);
    int wanted = get_threads(); /* what this machine makes of 3 */
    struct bench b = open(hand_make(2, 2, 1, 16, FCP_FP32, 256, "causal", mixed, 6), 2);
    run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    close(&b);
    cr_assert(get_threads() == wanted);
    set_threads(before);
}

/* --- what must not spread ----------------------------------------------------------------------------------------- */

Test(host, empty_rows_are_exactly_zero) {
    struct bench b = open(hand_make(2, 4, 2, 32, FCP_FP16, 256, "gap", mixed, 6), 2); /* rows below 150 see nothing */
    run(&b, FCP_FORWARD);
    const uint16_t *o = b.packed.t[FCP_TENSOR_O];
    const float *lse = b.packed.t[FCP_TENSOR_LSE];
    for (uint32_t s = 0, token = 0; s < 6; s++)
        for (uint32_t q = 0; q < mixed[s]; q++, token++)
            for (uint32_t h = 0; h < 4; h++) {
                cr_assert((lse[token * 4 + h] == -INFINITY) == (q < 150), "sequence %u row %u", s, q);
                for (uint32_t i = 0; i < 32 && q < 150; i++) cr_assert(o[(token * 4 + h) * 32 + i] == 0);
            }
    run(&b, FCP_BACKWARD);
    const uint16_t *dq = b.packed.t[FCP_TENSOR_DQ];
    for (uint32_t s = 0, token = 0; s < 6; s++)
        for (uint32_t q = 0; q < mixed[s]; q++, token++)
            for (uint32_t i = 0; i < 4 * 32 && q < 150; i++) cr_assert((dq[token * 4 * 32 + i] & 0x7fff) == 0);
    close(&b);
}

/* Puts a NaN or infinity into every number of one token of a tensor. */
static void poison(struct bench *b, fcp_tensor t, uint64_t token, float value) {
    size_t bytes = fcp_tensor_token_bytes(&b->shape, t), count = bytes / sizeof(float);
    for (size_t i = 0; i < count; i++) ((float *)b->packed.t[t])[token * count + i] = value;
}

static bool token_is_finite(const struct bench *b, fcp_tensor t, uint64_t token) {
    size_t count = fcp_tensor_token_bytes(&b->shape, t) / sizeof(float);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(((const float *)b->packed.t[t])[token * count + i])) return false;
    return true;
}

/* The mask "odd" has PARTIAL cells throughout. A token in the middle of sequence 0 is NaN in Q, K, V or dO. Rows and
 * keys that may not see it must not change. */
static void nan_spreads_only_where_it_is_seen(fcp_tensor t, float value, const char *mask, uint32_t at) {
    struct bench b = open(hand_make(2, 2, 1, 16, FCP_FP32, 384, mask, mixed, 6), 2);
    int64_t scratch[64];
    mc_code code = {b.h->mask, b.h->mask_count};
    run(&b, FCP_FORWARD); /* O and LSE for a dO that is poisoned */
    poison(&b, t, at, value);
    if (t != FCP_TENSOR_DO) run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    for (uint64_t token = 0; token < b.shape.tokens; token++) {
        bool same = token < mixed[0], is_query = t == FCP_TENSOR_Q || t == FCP_TENSOR_DO;
        int64_t n = (int64_t)mixed[0], x = (int64_t)token;
        /* rows that see the poison: they see key `at`, or they are `at` */
        bool row = same && (is_query ? token == at : mc_eval(code, MC_LENGTH(n), x, at, 0, scratch));
        /* keys that it reaches: a poisoned row sees them */
        bool key = false;
        for (int64_t q = 0; same && q < n && !key; q++) {
            bool bad_row = is_query ? q == at : mc_eval(code, MC_LENGTH(n), q, at, 0, scratch);
            key = bad_row && mc_eval(code, MC_LENGTH(n), q, x, 0, scratch);
        }
        if (!row) {
            cr_assert(token_is_finite(&b, FCP_TENSOR_O, token), "%s %s: o of token %lu", fcp_tensor_name(t), mask,
                      token);
            cr_assert(token_is_finite(&b, FCP_TENSOR_DQ, token), "%s %s: dq of token %lu", fcp_tensor_name(t), mask,
                      token);
        }
        if (!key) {
            cr_assert(token_is_finite(&b, FCP_TENSOR_DK, token), "%s %s: dk of token %lu", fcp_tensor_name(t), mask,
                      token);
            cr_assert(token_is_finite(&b, FCP_TENSOR_DV, token), "%s %s: dv of token %lu", fcp_tensor_name(t), mask,
                      token);
        }
    }
    bool forward = t != FCP_TENSOR_DO;
    cr_assert(!token_is_finite(&b, forward ? FCP_TENSOR_O : FCP_TENSOR_DQ, at), "the row itself has seen it");
    close(&b);
}

Test(host, nan_in_v) { nan_spreads_only_where_it_is_seen(FCP_TENSOR_V, NAN, "causal", 350); }
Test(host, nan_in_k) { nan_spreads_only_where_it_is_seen(FCP_TENSOR_K, NAN, "causal", 350); }
Test(host, nan_in_q) { nan_spreads_only_where_it_is_seen(FCP_TENSOR_Q, NAN, "odd", 351); }
Test(host, nan_in_do) { nan_spreads_only_where_it_is_seen(FCP_TENSOR_DO, NAN, "odd", 351); }
Test(host, nan_in_v_under_a_mask_of_holes) { nan_spreads_only_where_it_is_seen(FCP_TENSOR_V, NAN, "odd", 352); }
Test(host, nan_in_k_under_a_mask_of_holes) { nan_spreads_only_where_it_is_seen(FCP_TENSOR_K, NAN, "odd", 352); }
Test(host, infinity_in_v) { nan_spreads_only_where_it_is_seen(FCP_TENSOR_V, INFINITY, "window", 350); }

Test(host, large_scores_do_not_overflow) {
    struct bench b = open(hand_make(2, 2, 1, 16, FCP_FP32, 128, "causal", mixed, 6), 2);
    float *q = b.packed.t[FCP_TENSOR_Q];
    for (size_t i = 0; i < b.shape.tokens * 2 * 16; i++) q[i] *= 1000;
    run(&b, FCP_FORWARD);
    for (uint64_t t = 0; t < b.shape.tokens; t++)
        cr_assert(token_is_finite(&b, FCP_TENSOR_O, t) && token_is_finite(&b, FCP_TENSOR_LSE, t));
    close(&b);
}

/* --- the reference ------------------------------------------------------------------------------------------------ */

static struct small small_open(const char *mask) {
    return small_of(hand_make(1, 4, 2, 6, FCP_FP32, 256, mask, small_lengths, 3));
}

Test(reference, is_the_formula) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        struct small s = small_open(masks[m]);
        const float *q = s.in.t[FCP_TENSOR_Q], *k = s.in.t[FCP_TENSOR_K], *v = s.in.t[FCP_TENSOR_V];
        mc_code code = {s.h->mask, s.h->mask_count};
        int64_t scratch[64];
        small_run(&s);
        for (uint64_t seq = 0, at = 0; seq < 3; at += s.h->sequences[seq++].keys)
            for (uint64_t i = 0; i < s.h->sequences[seq].keys; i++)
                for (uint32_t h = 0; h < 4; h++) {
                    double sum = 0, o[6] = {0};
                    size_t row = (at + i) * 4 + h;
                    for (uint64_t j = 0; j < s.h->sequences[seq].keys; j++) {
                        if (!mc_eval(code, MC_LENGTH((int64_t)s.h->sequences[seq].keys), (int64_t)i, (int64_t)j, h,
                                     scratch))
                            continue;
                        size_t key = (at + j) * 2 + h / 2;
                        double score = 0;
                        for (int d = 0; d < 6; d++) score += (double)q[row * 6 + d] * k[key * 6 + d];
                        sum += exp(score * 0.125);
                        for (int d = 0; d < 6; d++) o[d] += exp(score * 0.125) * v[key * 6 + d];
                    }
                    cr_assert(sum == 0 ? s.out.lse[row] == -INFINITY : fabs(s.out.lse[row] - log(sum)) < 1e-12);
                    for (int d = 0; d < 6; d++)
                        cr_assert(fabs(s.out.o[row * 6 + d] - (sum == 0 ? 0 : o[d] / sum)) < 1e-12, "%s row %zu",
                                  masks[m], row);
                }
        small_close(&s);
    }
}

Test(reference, gradients_are_slopes) {
    for (size_t m = 0; m < sizeof masks / sizeof *masks; m++) {
        struct small s = small_open(masks[m]);
        small_run(&s);
        const struct { fcp_tensor t; const double *gradient; uint32_t heads; } all[] = {
            {FCP_TENSOR_Q, s.out.dq, 4}, {FCP_TENSOR_K, s.out.dk, 2}, {FCP_TENSOR_V, s.out.dv, 2}};
        for (int i = 0; i < 3; i++)
            for (size_t at = 3; at < s.shape.tokens * all[i].heads * 6; at += amount(1597, 397)) {
                float *x = (float *)s.in.t[all[i].t] + at, kept = *x;
                double given = all[i].gradient[at];
                *x = kept + 0x1p-10f;
                double after = small_loss(&s), h = (double)*x - kept;
                *x = kept - 0x1p-10f;
                double before = small_loss(&s);
                h += (double)kept - *x;
                *x = kept;
                cr_assert(fabs((after - before) / h - given) < 1e-5, "%s %s[%zu]: slope %g, gradient %g", masks[m],
                          fcp_tensor_name(all[i].t), at, (after - before) / h, given);
            }
        small_close(&s);
    }
}

Test(reference, a_wrong_result_is_not_ok) {
    struct bench b = open(hand_make(1, 2, 1, 16, FCP_FP32, 256, "gap", mixed, 6), 2);
    run(&b, FCP_FORWARD);
    run(&b, FCP_BACKWARD);
    for (int t = 0; t < FCP_TENSORS; t++)
        for (int kind = 0; kind < 3; kind++) {
            fcp_pass pass = fcp_pass_outputs(FCP_FORWARD) >> t & 1 ? FCP_FORWARD : FCP_BACKWARD;
            if (!(fcp_pass_outputs(pass) >> t & 1)) continue;
            size_t per_token = fcp_tensor_token_bytes(&b.shape, (fcp_tensor)t) / sizeof(float);
            /* token 10 of sequence 0 sees nothing, token 200 does */
            float *x = (float *)b.packed.t[t] + (kind == 1 ? 10 : 200) * per_token + 1, kept = *x;
            *x = kind == 0 ? kept * 1.001f + 1e-3f : kind == 1 ? 1e-7f : NAN;
            fcp_check_report report = FCP_CHECK_START;
            cr_assert(fcp_check_run(&b.h->plan,
                              &(fcp_check_options){.passes = 1u << pass, .threads = 1}, &b.packed, &report,
                              NULL) == FCP_OK);
            bool empty_counts =
                kind != 1 || pass == FCP_FORWARD; /* keys have no empty rows; dq is held to the tolerance */
            cr_assert(!empty_counts || (!report.ok && !report.tensor[t].ok), "%s, kind %d",
                      fcp_tensor_name((fcp_tensor)t), kind);
            for (int other = 0; other < FCP_TENSORS; other++)
                cr_assert(other == t || !report.tensor[other].checked || report.tensor[other].ok ||
                          (t == FCP_TENSOR_LSE && other == FCP_TENSOR_LSE_LOW)); /* judged together with LSE */
            *x = kept;
        }
    close(&b);
}

/* --- misuse ------------------------------------------------------------------------------------------------------- */

Test(host, misuse_is_an_error) {
    hand *h = hand_make(2, 2, 1, 16, FCP_FP32, 128, "causal", mixed, 6);
    fcp_session *session = NULL;
    fcp_session_options options = {.size = sizeof options, .backend = "tpu"};
    fcp_error err;
    cr_assert(fcp_session_create(&h->plan, &options, &session, &err) == FCP_E_BACKEND);
    cr_assert(strstr(err.message, "\"tpu\"") && session == NULL, "%s", err.message);
    cr_assert(fcp_session_create(&h->plan, NULL, &session, &err) == FCP_OK);
    cr_assert(strcmp(fcp_session_backend(session), "host") == 0 &&
              strcmp(fcp_session_transport(session), "threads") == 0);
    fcp_tensors tensors[2] = {{0}};
    cr_assert(fcp_session_run(session, FCP_FORWARD, tensors, &err) == FCP_E_TENSOR);
    cr_assert(strstr(err.message, "rank 0: tensor q is missing"), "%s", err.message);
    h->problem.passes = 1;
    cr_assert(fcp_session_run(session, FCP_BACKWARD, tensors, &err) == FCP_E_PASS);
    cr_assert(fcp_session_run(session, (fcp_pass)7, tensors, &err) == FCP_E_ARGUMENT);
    cr_assert(fcp_session_run(session, FCP_FORWARD, NULL, &err) == FCP_E_ARGUMENT);
    fcp_session_free(session);
    fcp_session_free(NULL);
    hand_free(h);
}
