/* test_judge.c: tests the judge of results: right results pass, whether it compares all rows or a sample, and wrong
 * ones are reported with their place. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compiler/fcpc.h"
#include "runtime/judge/packed.h"
#include "runtime/base/numeric.h"
#include "runtime/judge/reference.h"
#include "runtime/plan/plan.h"
#include "tests/support/amount.h"
#include "tests/support/plan_of.h"

enum { ALL = (1 << FCP_TENSORS) - 1, BOTH = 1 << FCP_FORWARD | 1 << FCP_BACKWARD };

typedef struct bench {
    fcp_plan *plan;
    fcp_shape shape;
    fcp_packed packed;
    fcp_check_report report;
    fcp_check_options options;
} bench;

/* A program, compiled and run on drawn inputs. */
static bench run_seed(fcp_plan *plan, uint64_t seed) {
    bench b = {.options = {.passes = BOTH, .threads = 2}, .plan = plan};
    fcp_session *session = NULL;
    fcp_error err;
    fcp_plan_shape(b.plan, &b.shape);
    cr_assert_eq(fcp_session_create(b.plan, NULL, &session, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(fcp_packed_alloc(&b.shape, ALL, &b.packed, &err), FCP_OK);
    fcp_packed_draw(&b.shape, ALL, seed, &b.packed);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_packed(session, b.plan, (fcp_pass)pass, &b.packed, NULL, &err), FCP_OK);
    fcp_session_free(session);
    return b;
}
static bench run_plan(fcp_plan *plan) { return run_seed(plan, 7); }
static bench run_text(const char *text) { return run_plan(plan_of(text)); }
static void judge(bench *b) {
    fcp_error err;
    b->report = FCP_CHECK_START;
    cr_assert_eq(fcp_check_run(b->plan, &b->options, &b->packed, &b->report, &err), FCP_OK, "%s", err.message);
}
static const char *said(const bench *b, fcp_tensor t) {
    static char text[400];
    fcp_check_text(b->plan, t, &b->report.tensor[t], text, sizeof text);
    return text;
}
static void all_right(const bench *b, const char *what) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (b->report.tensor[t].checked)
            cr_assert(b->report.tensor[t].ok, "%s: %s (of the naive computation %g)", what, said(b, (fcp_tensor)t),
                      b->report.tensor[t].reference_error);
    cr_assert(b->report.ok);
}
static void end(bench *b) {
    fcp_packed_free(&b->packed);
    fcp_plan_free(b->plan);
}

#define SMALL "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32 }\ncluster { gpus = 2 }\n"

/* Every query sees one key: the naive computation is exact, and what sums in another order is not wrong. */
Test(judge, rounding_is_allowed_where_the_naive_computation_is_exact) {
    static const char *const masks[] = {"k == 0", "k == q", "k == q / 2", "k <= q and k % 7 == 0 and q - k < 7"};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "mask m = %s\nmodel { heads = 4; head_dim = 64; dtype = fp32 }\ncluster { gpus = 2 }\n"
                 "batch { lengths = [1104] }\nplan { mask = m; block = 128 }\n",
                 masks[i]);
        bench b = run_text(text);
        judge(&b);
        all_right(&b, masks[i]);
        float *dk = b.packed.t[FCP_TENSOR_DK];
        dk[5] += 0.1f; /* and yet an error is one */
        judge(&b);
        cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_DK].verdict, FCP_DIFFERS, "%s", masks[i]);
        end(&b);
    }
}

/* A scale may be negative, and a sink may leave so little to the keys that fp32 has no normal number for it. */
Test(judge, scales_of_both_signs_and_sinks_of_all_sizes) {
    static const struct { const char *model, *batch, *plan; } cases[] = {
        {"heads = 1; head_dim = 8; dtype = fp32; scale = -1.0", "64", "mask = window(w = 1)"},
        {"heads = 1; head_dim = 8; dtype = fp32; scale = -0.125", "64", "mask = window(w = 1); score = alibi"},
        {"heads = 1; head_dim = 8; dtype = fp32", "64", "mask = window(w = 1); sink = 88.0"},
        {"heads = 1; head_dim = 8; dtype = fp16; scale = -2", "64", "mask = window(w = 1); sink = 20.0"},
        {"heads = 2; kv_heads = 1; head_dim = 8; dtype = bf16; scale = 8.0", "3",
         "mask = window(w = 2); strategy = dcp; sink = 20.0"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[300];
        snprintf(text, sizeof text,
                 "model { %s }\ncluster { gpus = 2 }\nbatch { lengths = [%s] }\n"
                 "plan { passes = forward, backward; %s }\n",
                 cases[i].model, cases[i].batch, cases[i].plan);
        for (uint64_t seed = 6161; seed < 6161 + 8; seed++) {
            bench b = run_seed(plan_of(text), seed);
            judge(&b);
            all_right(&b, text);
            end(&b);
        }
    }
}

Test(judge, names_what_is_wrong_and_where) {
    bench b = run_text(SMALL "batch { lengths = [300, 200] }\nplan { mask = window(w = 50); block = 128 }\n");
    judge(&b);
    all_right(&b, "window");
    float *o = b.packed.t[FCP_TENSOR_O], *dv = b.packed.t[FCP_TENSOR_DV], *lse = b.packed.t[FCP_TENSOR_LSE];
    const size_t at = (310 * 4 + 3) * 16 + 9;
    const struct { float value; fcp_verdict verdict; const char *text; } wrong[] = {
        {NAN, FCP_NOT_FINITE, "o is nan where the definition of attention gives "},
        {INFINITY, FCP_NOT_FINITE, "o is inf where the definition of attention gives "},
        {-INFINITY, FCP_NOT_FINITE, "o is -inf where the definition of attention gives "},
        {1e30f, FCP_DIFFERS, "o differs from the definition of attention by 1e+30, allowed is "}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        float keep = o[at];
        o[at] = wrong[i].value;
        judge(&b);
        cr_assert(!b.report.ok && !b.report.tensor[FCP_TENSOR_O].ok && b.report.tensor[FCP_TENSOR_DV].ok);
        cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_O].verdict, wrong[i].verdict);
        cr_assert(strstr(said(&b, FCP_TENSOR_O), wrong[i].text) == said(&b, FCP_TENSOR_O), "%s",
                  said(&b, FCP_TENSOR_O));
        cr_assert(strstr(said(&b, FCP_TENSOR_O), "token 310, head 3, component 9"), "%s", said(&b, FCP_TENSOR_O));
        cr_assert(isfinite(b.report.tensor[FCP_TENSOR_O].tolerance) &&
                  isfinite(b.report.tensor[FCP_TENSOR_O].max_abs_error));
        o[at] = keep;
    }
    dv[0] = NAN; /* of several that are no numbers, the first */
    dv[77] = NAN;
    lse[8] += 1;
    judge(&b);
    cr_assert_eq(b.report.tensor[FCP_TENSOR_DV].worst, 0);
    cr_assert(strstr(said(&b, FCP_TENSOR_LSE), "token 2, head 0: "), "%s", said(&b, FCP_TENSOR_LSE));
    end(&b);
}

Test(judge, a_query_without_keys_has_exactly_nothing) {
    bench b = run_text("mask m = k < q - 3\n" SMALL "batch { lengths = [200] }\nplan { mask = m; block = 128 }\n");
    judge(&b);
    all_right(&b, "queries 0 to 3 see nothing");
    float *o = b.packed.t[FCP_TENSOR_O], *lse = b.packed.t[FCP_TENSOR_LSE];
    o[1] = 1e-30f;
    lse[9] = -1e30f;
    judge(&b);
    cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_O].verdict, FCP_NOT_EMPTY, "%s", said(&b, FCP_TENSOR_O));
    cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_LSE].verdict, FCP_NOT_EMPTY, "%s", said(&b, FCP_TENSOR_LSE));
    cr_assert(strstr(said(&b, FCP_TENSOR_LSE), "it must be exactly -inf (token 2, head 1)"), "%s",
              said(&b, FCP_TENSOR_LSE));
    end(&b);
}

/* Scores beyond fp32: nothing is finite, and nothing is called right. */
Test(judge, nothing_finite_is_not_right) {
    bench b = run_text("score far = s * 1000000000000000000.0 * s * 10000000000000000000000.0\n" SMALL
                       "batch { lengths = [300] }\nplan { mask = causal; score = far; block = 128 }\n");
    judge(&b);
    cr_assert(!b.report.ok);
    for (int t = FCP_TENSOR_O; t < FCP_TENSORS; t++) {
        const fcp_check *c = &b.report.tensor[t];
        if (!c->checked) continue;
        cr_assert(!c->ok && isfinite(c->max_abs_error) && isfinite(c->tolerance), "%s", said(&b, (fcp_tensor)t));
    }
    cr_assert(strstr(said(&b, FCP_TENSOR_O), "no finite number"), "%s", said(&b, FCP_TENSOR_O));
    end(&b);
}

/* --- logits of any size ------------------------------------------------------------------------------------------- */

#define FAR(score) "score far = " score "\n" SMALL "batch { lengths = [300, 40] }\n" \
                   "plan { mask = causal; score = far; block = 128 }\n"
static const fcp_tensor outputs[] = {FCP_TENSOR_O, FCP_TENSOR_LSE, FCP_TENSOR_DQ, FCP_TENSOR_DK, FCP_TENSOR_DV};
enum { OUTPUTS = sizeof outputs / sizeof *outputs };

/* Puts a number far away in the place of an element: what may it be off by? */
static double allowed_at(bench *b, fcp_tensor t, size_t at) {
    float *x = b->packed.t[t], was = x[at];
    x[at] = 3e38f;
    judge(b);
    cr_assert_eq((fcp_verdict)b->report.tensor[t].verdict, FCP_DIFFERS, "%s", said(b, t));
    cr_assert_eq(b->report.tensor[t].worst, at);
    x[at] = was;
    return b->report.tensor[t].tolerance;
}

/* What is allowed does not grow with logits: where fp32 gives all keys the same, so does float64; and what a score
 * makes of some keys alone leaves those that count as they are. */
Test(judge, logits_of_any_size_are_allowed_what_small_ones_are) {
    static const char *const far[] = {
        FAR("s - 2.4e38"), FAR("s + 2.4e38"), FAR("s - 3.4028234e38"),
        FAR("if q - k > 3 and k < 200 then -3.4e38 else s"),
        FAR("s + (if k < 20 then -1.0e9 else 0.0)"), FAR("if k < 20 or q < 20 then -3.4028234e38 else s"),
        FAR("if k == 0 then 1.0e30 else s")};
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        bench b = run_text(far[i]);
        judge(&b);
        all_right(&b, far[i]);
        for (int t = 0; t < OUTPUTS; t++)
            if (outputs[t] != FCP_TENSOR_LSE) /* which is as far away as the logits are */
                cr_assert(allowed_at(&b, outputs[t], 250 * 4 * 16 / 2 + 5) < 2e-3, "%s: %s", far[i],
                          said(&b, outputs[t]));
        b.options.work = fcp_check_work(b.plan, BOTH) / 8;
        judge(&b);
        cr_assert(b.report.sampled);
        all_right(&b, far[i]);
        end(&b);
    }
}

/* One key has all of P, by so much that what its logit is off by does not matter: P is 1, and the judge knows it. */
Test(judge, a_row_with_one_key_that_counts_has_no_error_in_P) {
    bench b = {.options = {.passes = BOTH, .threads = 2}};
    b = run_text(SMALL "batch { lengths = [200] }\nplan { mask = causal; block = 128 }\n");
    fcp_session *session;
    fcp_error err;
    float *const q = b.packed.t[FCP_TENSOR_Q], *const k = b.packed.t[FCP_TENSOR_K];
    for (size_t i = 0; i < 200 * 4 * 16; i++) q[i] = 1e15f;
    for (size_t i = 0; i < 200 * 2 * 16; i++) k[i] = 1e15f * (float)(i / 32 + 1);
    cr_assert_eq(fcp_session_create(b.plan, NULL, &session, &err), FCP_OK);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_packed(session, b.plan, (fcp_pass)pass, &b.packed, NULL, &err), FCP_OK);
    fcp_session_free(session);
    judge(&b);
    all_right(&b, "logits of 1e32");
    cr_assert(allowed_at(&b, FCP_TENSOR_O, 5000) < 2e-4, "%s", said(&b, FCP_TENSOR_O));
    cr_assert(allowed_at(&b, FCP_TENSOR_DV, 5000) < 2e-3, "%s", said(&b, FCP_TENSOR_DV));
    end(&b);
}

/* fp32 gives all keys the same logit, and float64 does not: zeros would be within what is allowed. */
Test(judge, what_fp32_cannot_tell_apart_proves_nothing) {
    bench b = run_text(FAR("s - 1.0e9"));
    judge(&b);
    cr_assert(!b.report.ok && b.report.tensor[FCP_TENSOR_LSE].ok);
    for (int t = 0; t < OUTPUTS; t++) {
        const fcp_check *c = &b.report.tensor[outputs[t]];
        if (outputs[t] == FCP_TENSOR_LSE) continue;
        cr_assert_eq((fcp_verdict)c->verdict, FCP_NOTHING_PROVEN, "%s", said(&b, outputs[t]));
        cr_assert(!c->ok && c->untold > 0.9f && c->reference_error > 0.5, "%s", said(&b, outputs[t]));
    }
    cr_assert(strstr(said(&b, FCP_TENSOR_O), "nothing says that it is right"), "%s", said(&b, FCP_TENSOR_O));
    memset(b.packed.t[FCP_TENSOR_O], 0, fcp_packed_bytes(&b.shape, FCP_TENSOR_O));
    judge(&b);
    cr_assert(!b.report.tensor[FCP_TENSOR_O].ok, "zeros");
    ((float *)b.packed.t[FCP_TENSOR_O])[3000] = 100;
    judge(&b);
    cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_O].verdict, FCP_DIFFERS, "more than any V");
    end(&b);
    b = run_text(FAR("s - 1.0e4"));
    judge(&b);
    all_right(&b, "digits are left");
    end(&b);
}

/* --- approximate functions ---------------------------------------------------------------------------------------- */

/* A tanh that is off by nearly 2^-11 of itself everywhere is right where the score says that it is approximate; one that
 * is off by more, or whose score does not say so, is wrong. Whether all rows are compared or a sample. */
Test(judge, approximate_functions_may_be_off_by_what_they_state) {
    static const struct {
        const char *factor;
        bool right;
    } cases[] = {{"1.00047", true}, {"0.99953", true}, {"1.003", false}, {"0.997", false}};
    static const char *const scores[] = {"softcap(c = 30, approximate = true)", "softcap(c = 30)"};
    static const char format[] = "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16; scale = 4.0 }\n"
                                 "cluster { gpus = 2 }\nbatch { lengths = [300, 40] }\n%s"
                                 "plan { mask = causal; block = 128; sink = 2.0; score = %s }\n";
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[500], mine[100];
        snprintf(mine, sizeof mine, "score mine = 30.0 * (%s * tanh(s / 30.0))\n", cases[i].factor);
        snprintf(text, sizeof text, format, mine, "mine");
        bench b = run_text(text);
        fcp_plan *own = b.plan;
        b.options.passes = 1 << FCP_FORWARD;
        for (int exact = 0; exact < 2; exact++) {
            snprintf(text, sizeof text, format, "", scores[exact]);
            b.plan = plan_of(text);
            for (int part = 0; part < 8; part += 4) {
                b.options.work = part ? fcp_check_work(b.plan, b.options.passes) / part : 0;
                judge(&b);
                cr_assert_eq(b.report.ok, cases[i].right && !exact, "%s, %s: %s", mine, scores[exact],
                             said(&b, FCP_TENSOR_LSE));
            }
            fcp_plan_free(b.plan);
        }
        b.plan = own;
        end(&b);
    }
}

/* --- pairs, widths, gradients of LSE, nothing --------------------------------------------------------------------- */

Test(judge, what_rounding_took_from_lse_is_judged_with_it) {
    bench b = run_text("mask m = k < q - 3\nscore far = s - 1.0e7\n" SMALL "batch { lengths = [200] }\n"
                       "plan { mask = m; score = far; block = 128 }\n");
    float *low = b.packed.t[FCP_TENSOR_LSE_LOW];
    const struct { size_t at; float value; fcp_verdict verdict; } wrong[] = {
        {700, 40, FCP_DIFFERS}, {700, NAN, FCP_NOT_FINITE}, {3, 1e-30f, FCP_NOT_EMPTY}, {3, -INFINITY, FCP_NOT_EMPTY}};
    judge(&b);
    cr_assert(b.report.tensor[FCP_TENSOR_LSE_LOW].ok, "%s", said(&b, FCP_TENSOR_LSE_LOW));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const float was = low[wrong[i].at];
        low[wrong[i].at] = wrong[i].value;
        judge(&b);
        cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_LSE_LOW].verdict, wrong[i].verdict, "%zu: %s", i,
                     said(&b, FCP_TENSOR_LSE_LOW));
        cr_assert(strstr(said(&b, FCP_TENSOR_LSE_LOW), "lse + lse_low ") == said(&b, FCP_TENSOR_LSE_LOW));
        low[wrong[i].at] = was;
    }
    end(&b);
    b = run_text(SMALL "batch { lengths = [200] }\nplan { mask = causal; block = 128 }\n");
    low = b.packed.t[FCP_TENSOR_LSE_LOW];
    low[500] += 1e-4f;
    judge(&b);
    cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_LSE_LOW].verdict, FCP_DIFFERS);
    cr_assert_eq(b.report.tensor[FCP_TENSOR_LSE_LOW].worst, 500);
    end(&b);
}

Test(judge, a_gradient_of_lse_counts) {
    bench b = run_text(SMALL "batch { lengths = [300] }\n"
                             "plan { mask = causal; block = 128; sink = 1.0; lse_gradient = true }\n");
    judge(&b);
    all_right(&b, "a gradient of LSE");
    float *const d_lse = b.packed.t[FCP_TENSOR_DLSE];
    d_lse[4 * 200] += 1;
    judge(&b);
    cr_assert(!b.report.tensor[FCP_TENSOR_DQ].ok && !b.report.tensor[FCP_TENSOR_DK].ok);
    cr_assert(b.report.tensor[FCP_TENSOR_DV].ok && b.report.tensor[FCP_TENSOR_O].ok);
    cr_assert(strstr(said(&b, FCP_TENSOR_DQ), "token 200, head 0, "), "%s", said(&b, FCP_TENSOR_DQ));
    b.packed.t[FCP_TENSOR_DLSE] = NULL; /* zeros */
    judge(&b);
    cr_assert(!b.report.tensor[FCP_TENSOR_DQ].ok);
    b.packed.t[FCP_TENSOR_DLSE] = d_lse;
    end(&b);
}

/* Values in keys are what values of their own are that equal them; dK then has dK and dV. */
Test(judge, values_in_keys_have_their_gradient_in_that_of_keys) {
    enum { TOKENS = 300, D = 16, V = 8, ROWS = TOKENS * 2 };
#define VALUES(more)                                                                                                   \
    "model { heads = 4; kv_heads = 2; head_dim = 16; value_dim = 8; dtype = fp32" more " }\n"                          \
    "cluster { gpus = 2 }\nbatch { lengths = [300] }\nplan { mask = causal; block = 128 }\n"
    bench in = run_text(VALUES("; values = keys")), own = run_text(VALUES(""));
    fcp_session *session;
    fcp_error err;
    float *const dk = in.packed.t[FCP_TENSOR_DK], *const k = own.packed.t[FCP_TENSOR_K];
    judge(&in);
    all_right(&in, "values = keys");
    cr_assert(!in.report.tensor[FCP_TENSOR_DV].checked, "there is no dV");
    judge(&own);
    all_right(&own, "value_dim = 8");
    for (size_t i = 0; i < ROWS; i++) memcpy((float *)own.packed.t[FCP_TENSOR_V] + i * V, k + i * D, V * sizeof(float));
    cr_assert_eq(fcp_session_create(own.plan, NULL, &session, &err), FCP_OK);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_packed(session, own.plan, (fcp_pass)pass, &own.packed, NULL, &err), FCP_OK);
    fcp_session_free(session);
    const float *own_dk = own.packed.t[FCP_TENSOR_DK], *own_dv = own.packed.t[FCP_TENSOR_DV];
    memcpy(dk, own_dk, ROWS * D * sizeof *dk);
    judge(&in);
    cr_assert_eq((fcp_verdict)in.report.tensor[FCP_TENSOR_DK].verdict, FCP_DIFFERS, "dV is left out");
    for (size_t i = 0; i < ROWS * V; i++) dk[i / V * D + i % V] += own_dv[i];
    judge(&in);
    all_right(&in, "dK + dV");
    end(&in);
    end(&own);
}

/* Sequences without queries, without keys, and without either. */
Test(judge, sequences_of_length_zero) {
    bench b = run_text(SMALL "batch { lengths = [0, 5, 0:7, 7:0, 40, 0] }\nplan { mask = full; block = 128 }\n");
    judge(&b);
    all_right(&b, "lengths of zero");
    cr_assert_eq(b.report.checked[FCP_QUERIES], 52 * 4);
    float *const o = b.packed.t[FCP_TENSOR_O], *const dk = b.packed.t[FCP_TENSOR_DK];
    o[7 * 4 * 16] = 1e-20f; /* the third of the queries without keys */
    dk[7 * 2 * 16] = 1e-3f; /* the third of the keys without queries */
    judge(&b);
    cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_O].verdict, FCP_NOT_EMPTY, "%s", said(&b, FCP_TENSOR_O));
    cr_assert_eq((fcp_verdict)b.report.tensor[FCP_TENSOR_DK].verdict, FCP_DIFFERS, "%s", said(&b, FCP_TENSOR_DK));
    end(&b);
    b = run_text(SMALL "batch { lengths = [0, 0] }\nplan { mask = full; block = 128 }\n");
    judge(&b);
    cr_assert(b.report.ok, "nothing is right");
    b.options.work = 1;
    judge(&b);
    cr_assert(b.report.ok, "nothing is right");
    end(&b);
}

/* Partial results are sent as bf16, in a plan whose tensors are fp32. (The language has no such plans, but a plan file
 * may say so.) The judge must refuse such results if the plan says `wire` = fp32, and accept them if it says bf16. A
 * row that lacks the partial result of one rank is wrong in both cases. */
Test(judge, rounding_on_the_wire_is_allowed_where_the_plan_has_it) {
    static const fcp_tensor of_partials[] = {FCP_TENSOR_O, FCP_TENSOR_DQ, FCP_TENSOR_DK, FCP_TENSOR_DV};
    fcp_plan *plan = plan_of("model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32 }\n"
                             "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [900, 300] }\n"
                             "plan { mask = causal; block = 128; strategy = dcp; layout = contiguous }\n");
    fcp_problem *problem = (fcp_problem *)(uintptr_t)plan->problem; /* of a plan in memory */
    problem->wire = FCP_BF16;
    bench b = run_plan(plan);
    judge(&b);
    all_right(&b, "wire = bf16");
    problem->wire = FCP_FP32;
    judge(&b);
    for (size_t i = 0; i < sizeof of_partials / sizeof *of_partials; i++)
        cr_assert_eq((fcp_verdict)b.report.tensor[of_partials[i]].verdict, FCP_DIFFERS, "by the plain rule, %s",
                     said(&b, of_partials[i]));
    cr_assert(b.report.tensor[FCP_TENSOR_LSE].ok, "m and l travel in fp32");
    problem->wire = FCP_BF16;
    for (size_t i = 0; i < sizeof of_partials / sizeof *of_partials; i++) {
        float *x = b.packed.t[of_partials[i]];
        const size_t at = (of_partials[i] < FCP_TENSOR_DK ? 4 : 2) * 16 * 800 + 3;
        const float keep = x[at];
        x[at] += fabsf(keep) < 0.05f ? 0.1f : keep;
        judge(&b);
        cr_assert_eq((fcp_verdict)b.report.tensor[of_partials[i]].verdict, FCP_DIFFERS, "%s", said(&b, of_partials[i]));
        x[at] = keep;
    }
    end(&b);
}

/* A small batch leaves ranks without work: there is nothing of theirs to find wrong. */
Test(judge, ranks_without_rows) {
    bench b = run_text("model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp32 }\ncluster { gpus = 6 }\n"
                       "batch { lengths = [200] }\nplan { mask = causal; block = 128 }\n");
    uint64_t without = 0;
    judge(&b);
    all_right(&b, "six ranks");
    memset(b.packed.t[FCP_TENSOR_O], 0xff, b.shape.tokens * b.shape.heads * b.shape.head_dim * sizeof(float));
    for (uint32_t rank = 0; rank < b.shape.ranks; rank++) {
        b.options.first = rank;
        b.options.count = 1;
        judge(&b);
        bool none = fcp_plan_rank_queries(b.plan, rank) == 0;
        without += none;
        cr_assert_eq(b.report.tensor[FCP_TENSOR_O].ok, none, "rank %u: %s", rank, said(&b, FCP_TENSOR_O));
        cr_assert(b.report.tensor[FCP_TENSOR_DV].ok);
    }
    cr_assert(without >= 1 && without < b.shape.ranks, "%llu ranks have no rows", (unsigned long long)without);
    end(&b);
}

/* --- samples ------------------------------------------------------------------------------------------------------ */

static const char *const texts[] = {
    SMALL "batch { lengths = [900, 300, 1, 64 x 5] }\nplan { mask = causal; block = 128 }\n",
    "model { heads = 4; kv_heads = 1; head_dim = 32; dtype = bf16 }\ncluster { gpus = 2 }\n"
    "batch { lengths = [700:900, 1:200, 300] }\nplan { mask = window(w = 200); block = 128 }\n",
    "mask m = (q + k + h) % 3 == 0 or q == k\nscore soft = 2.0 * tanh(s / 2.0)\n"
    "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = fp16 }\ncluster { gpus = 2 }\n"
    "batch { lengths = [500, 400] }\nplan { mask = m; score = soft; sink = [1.0, 0.0, -2.0, 0.5]; block = 128 }\n"};

static void run_of_units(const bench *b, fcp_check_unit **units, uint64_t *count) {
    fcp_error err;
    cr_assert_eq(fcp_check_units(b->plan, &b->options, units, count, &err), FCP_OK);
}

Test(judge, a_sample_is_spread_and_always_the_same) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bench b = run_text(texts[i]);
        uint64_t count, again;
        fcp_check_unit *units, *others;
        b.options.work = fcp_check_work(b.plan, BOTH) + 1;
        run_of_units(&b, &units, &count);
        cr_assert(!units && count == 0, "all rows are affordable");
        for (int part = 2; part <= 64; part *= 2) {
            b.options.work = fcp_check_work(b.plan, BOTH) / part;
            run_of_units(&b, &units, &count);
            run_of_units(&b, &others, &again);
            cr_assert(count == again && memcmp(units, others, count * sizeof *units) == 0);
            uint64_t rows[FCP_SIDES] = {0};
            uint8_t *seen[FCP_SIDES];
            for (int side = 0; side < FCP_SIDES; side++) seen[side] = calloc(b.shape.tokens + b.shape.key_tokens, 64);
            for (uint64_t u = 0; u < count; u++) {
                const fcp_check_unit *x = &units[u];
                uint64_t length, offset = x->side == FCP_KEYS ? fcp_plan_key_offset(b.plan, x->sequence, &length)
                                                              : fcp_plan_sequence_offset(b.plan, x->sequence, &length);
                cr_assert(x->count && x->count <= 32 && x->first + x->count <= length);
                cr_assert(x->head < (x->side == FCP_KEYS ? b.shape.kv_heads : b.shape.heads));
                for (uint64_t r = 0; r < x->count; r++)
                    cr_assert(!seen[x->side][(offset + x->first + r) * 64 + x->head]++, "a row is there twice");
                rows[x->side] += x->count;
            }
            judge(&b);
            all_right(&b, texts[i]);
            cr_assert(b.report.sampled);
            for (int side = 0; side < FCP_SIDES; side++) {
                cr_assert_eq(b.report.checked[side], rows[side]);
                cr_assert(rows[side] >= 16 && rows[side] < b.report.rows[side], "%llu of %llu",
                          (unsigned long long)rows[side], (unsigned long long)b.report.rows[side]);
                free(seen[side]);
            }
            free(units);
            free(others);
        }
        end(&b);
    }
}

static float add(const bench *b, fcp_tensor t, size_t at, float more) { /* to an element; returns what it was */
    fcp_dtype dtype = fcp_tensor_dtype(&b->shape, t);
    char *place = (char *)b->packed.t[t] + at * fcp_dtype_size(dtype);
    float was, is;
    fcp_to_float(dtype, place, &was, 1);
    is = was + more;
    fcp_from_float(dtype, &is, place, 1);
    return was;
}

/* A wrong number in a row of the sample is found, in one that is not it is not. */
Test(judge, a_sample_finds_what_is_wrong_in_it) {
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        bench b = run_text(texts[i]);
        uint64_t count, tried = 0;
        fcp_check_unit *units;
        b.options.work = fcp_check_work(b.plan, BOTH) / 8;
        run_of_units(&b, &units, &count);
        uint8_t *in_sample = calloc(b.shape.tokens, 1);
        for (uint64_t u = 0; u < count; u++) {
            const fcp_check_unit *x = &units[u];
            bool keys = x->side == FCP_KEYS;
            uint64_t length, offset = keys ? fcp_plan_key_offset(b.plan, x->sequence, &length)
                                           : fcp_plan_sequence_offset(b.plan, x->sequence, &length);
            uint64_t token = offset + x->first + x->count / 2;
            if (!keys) for (uint32_t r = 0; r < x->count; r++) in_sample[offset + x->first + r] = 1;
            if (u % (keys ? amount(3, 1) : amount(15, 5))) continue;
            size_t at = (token * (keys ? b.shape.kv_heads : b.shape.heads) + x->head) * b.shape.head_dim + 3;
            fcp_tensor t = keys ? (u % 2 ? FCP_TENSOR_DK : FCP_TENSOR_DV) : FCP_TENSOR_DQ;
            float was = add(&b, t, at, 3);
            judge(&b);
            cr_assert_eq((fcp_verdict)b.report.tensor[t].verdict, FCP_DIFFERS, "%s", said(&b, t));
            cr_assert_eq(b.report.tensor[t].worst, at);
            float is = add(&b, t, at, 0);
            add(&b, t, at, was - is);
            tried++;
        }
        cr_assert(tried > 5);
        for (uint64_t token = 0; token < b.shape.tokens; token++)
            if (!in_sample[token]) add(&b, FCP_TENSOR_DQ, token * b.shape.heads * b.shape.head_dim, 3);
        judge(&b);
        cr_assert(b.report.tensor[FCP_TENSOR_DQ].ok);
        b.options.work = 0;
        judge(&b);
        cr_assert(!b.report.tensor[FCP_TENSOR_DQ].ok && !b.report.sampled);
        free(in_sample);
        free(units);
        end(&b);
    }
}

Test(judge, stops_when_told) {
    bench b = run_text(texts[0]);
    volatile int stop = 1;
    fcp_error err;
    b.options.stop = &stop;
    cr_assert_eq(fcp_check_run(b.plan, &b.options, &b.packed, &b.report, &err), FCP_E_INTERRUPTED);
    end(&b);
}
