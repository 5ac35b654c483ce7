/* test_score.c: tests scores: the code that the compiler makes of them, its values, derivatives and faults; and
 * sinks. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "compiler/explain/explain.h"
#include "compiler/sema/program.h"
#include "runtime/judge/judge_parts.h"
#include "runtime/plan/plan.h"
#include "tests/support/random_score.h"
#include "tests/support/temporary.h"

static fcp_code parse(const char *source, const fcpc_options *options, fcpc_program **p, char **said) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    *p = NULL;
    fcp_code code = fcpc_parse_text("a.fcp", source, strlen(source), options, d, p);
    *said = fcpc_diagnostics_render(d, false);
    fcpc_diagnostics_free(d);
    return code;
}

static fcpc_program *program_with(const char *source, const fcpc_options *options) {
    fcpc_program *p;
    char *said;
    cr_assert_eq(parse(source, options, &p, &said), FCP_OK, "%s\n%s", source, said);
    free(said);
    return p;
}

static fcpc_program *program(const char *source) { return program_with(source, NULL); }

static uint32_t count_op(mc_code code, mc_op op) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < code.count; i++) count += code.nodes[i].op == op;
    return count;
}

static double value_of(mc_code code, const point *p) {
    int64_t *scratch = malloc(code.count * sizeof *scratch);
    double v = mc_eval_score(code, MC_LENGTH(p->n), p->q, p->k, p->h, p->s, scratch);
    free(scratch);
    return v;
}

/* --- lowering ----------------------------------------------------------------------------------------------------- */

Test(score, none) {
    static const char *const same[] = {"s", "s + 0", "0.0 + s + 0.0", "s * 1", "s / 1", "-(-s)",
                                       "if true then s else q",
                                       "if 2.0 < 1.0 then 1.0 else s", "max(s, s)", "s - 0.0", "other(s = s)",
                                       "if c == 0.0 then s else s * exp(c)", "-1 * (s / -1.0)"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        char source[300];
        snprintf(source, sizeof source, "score other = s\nscore mine(c = 0) = %s\nplan { mask = causal; score = mine }",
                 same[i]);
        fcpc_program *p = program(source);
        cr_expect_eq(p->score.count, 0, "%s has %u operations", same[i], p->score.count);
        cr_expect_eq(p->slope.count, 0);
        cr_expect_eq(p->check.nodes, p->mask.nodes);
        fcpc_program_free(p);
    }
}

Test(score, prelude) {
    fcpc_program *p = program("model { heads = 8 }\nplan { mask = causal; score = softcap(c = 30) }");
    cr_expect_str_eq(p->score_name, "softcap(c = 30.0, approximate = false)");
    cr_expect_eq(p->score.count, 5); /* 30.0 s / tanh * */
    cr_expect_eq(p->slope.count, 7); /* 30.0 s / tanh * 1.0 - */
    cr_expect_eq(count_op(p->slope, MC_TANH_F), 1);
    cr_expect_null(mc_check(p->score, MC_SCORE, NULL, NULL));
    cr_expect_null(mc_check(p->slope, MC_SCORE, NULL, NULL));
    for (double s = -200; s <= 200; s += 3.7) {
        point at = {.n = 10, .s = s};
        double t = tanh(s / 30);
        cr_expect_eq(value_of(p->score, &at), 30 * t);
        cr_expect_eq(value_of(p->slope, &at), 1 - t * t);
    }
    fcpc_program_free(p);
}

/* An approximate tanh is an operation of its own; it has the same value here, and its derivative is made of itself. */
Test(score, approximate) {
    fcpc_program *p = program("plan { mask = causal; score = softcap(c = 30, approximate = true) }");
    cr_expect_str_eq(p->score_name, "softcap(c = 30.0, approximate = true)");
    cr_expect_eq(p->score.count, 5);
    cr_expect_eq(p->slope.count, 7);
    for (int slope = 0; slope < 2; slope++) {
        cr_expect_eq(count_op(slope ? p->slope : p->score, MC_TANH_F), 0);
        cr_expect_eq(count_op(slope ? p->slope : p->score, MC_TANH_APPROX_F), 1);
    }
    for (double s = -200; s <= 200; s += 3.7) {
        point at = {.n = 10, .s = s};
        double t = tanh(s / 30);
        cr_expect_eq(value_of(p->score, &at), 30 * t);
        cr_expect_eq(value_of(p->slope, &at), 1 - t * t);
    }
    fcpc_program_free(p);
}

/* ALiBi's slopes by the rule of its paper and its code: a power of two has a geometric series that begins with its own
 * ratio, 2^(-8 / heads); other counts have the series of the next power of two below, then every second one of the next
 * power of two above. */
static double alibi_slope(int64_t h, int64_t heads) {
    int64_t below = 1;
    while (2 * below <= heads) below *= 2;
    const bool rest = h >= below;
    const double ratio = exp2(-exp2(-(log2((double)(rest ? 2 * below : below)) - 3)));
    double slope = ratio;
    for (int64_t i = 0; i < (rest ? 2 * (h - below) : h); i++) slope *= ratio;
    return slope;
}

Test(score, alibi) {
    for (int64_t heads = 1; heads <= 256; heads++) {
        char source[100];
        snprintf(source, sizeof source, "model { heads = %d }\nplan { mask = causal; score = alibi }", (int)heads);
        fcpc_program *p = program(source);
        const bool power = (heads & (heads - 1)) == 0;
        cr_expect_str_eq(p->score_name, "alibi");
        cr_expect_eq(p->slope.count, 1);
        cr_expect_eq(mc_uses(p->score), MC_USES_Q | MC_USES_K | MC_USES_H | MC_USES_S);
        cr_expect_eq(count_op(p->score, MC_EXP2_F), 1);
        cr_expect_eq(count_op(p->score, MC_IF_F), !power, "%d heads", (int)heads);
        cr_expect_eq(count_op(p->score, MC_LOG2_F) + count_op(p->score, MC_FLOOR_F) + count_op(p->score, MC_DIV_F), 0);
        for (int64_t h = 0; h < heads; h++) {
            point at = {.q = 100, .k = 33, .n = 200, .h = h, .s = 0.75};
            double bias = (value_of(p->score, &at) - 0.75) / (33 - 100), want = alibi_slope(h, heads);
            cr_expect(fabs(bias - want) <= 1e-13 * want + 1e-15, "%d heads, head %d: %.17g, not %.17g", (int)heads,
                      (int)h, bias, want);
            /* to the bit as it was when there were only powers of two */
            if (power)
                cr_expect_eq(value_of(p->score, &at), 0.75 + (33 - 100) * exp2(-8.0 * (double)(h + 1) / (double)heads));
            cr_expect_eq(value_of(p->slope, &at), 1);
        }
        fcpc_program_free(p);
    }
}

/* Masks know the model's figures, unless something else has their name. */
Test(score, figures) {
    fcpc_program *p = program("model { heads = 6; kv_heads = 2 }\n"
                              "mask m = causal and (h / (heads / kv_heads) == 0 or k < 4)\nplan { mask = m }");
    int64_t scratch[100];
    for (int64_t h = 0; h < 6; h++) cr_expect_eq(mc_eval(p->mask, MC_LENGTH(10), 8, 7, h, scratch), h < 3);
    fcpc_program_free(p);
    p = program("mask heads(kv_heads = 3) = k < kv_heads\nmask m = heads\nplan { mask = m }");
    cr_expect(mc_eval(p->mask, MC_LENGTH(10), 9, 2, 0, scratch) && !mc_eval(p->mask, MC_LENGTH(10), 9, 3, 0, scratch));
    fcpc_program_free(p);
}

/* A program's mask does not hide the prelude's score, nor the reverse; a program's score does. */
Test(score, names) {
    fcpc_program *p = program("mask alibi = k == q\nscore window(w = 2) = s * w\nmask causal = window(w = 3)\n"
                              "plan { mask = causal; score = alibi }");
    int64_t scratch[100];
    cr_expect(mc_eval(p->mask, MC_LENGTH(10), 5, 3, 0, scratch) && !mc_eval(p->mask, MC_LENGTH(10), 5, 2, 0, scratch));
    cr_expect_gt(p->score.count, 5);
    fcpc_program_free(p);
    p = program("score alibi = s * 2\nscore mine = alibi\nplan { mask = causal; score = mine }");
    cr_expect_eq(p->score.count, 3);
    fcpc_program_free(p);
}

Test(score, overrides) {
    static const struct { const char *define, *name, *text;
    } cases[] = {
        {"plan.score.c=20.0", "softcap(c = 20.0, approximate = false)", "score = softcap(c = 20.0)"},
        {"approximate=true", "softcap(c = 50.0, approximate = true)", "score = softcap(approximate = true)"},
        {"softcap.c=0.1", "softcap(c = 0.1, approximate = false)",
         "score softcap(c = 0.1, approximate = false) = c * "},
        {"c=1.0e-7", "softcap(c = 1.0e-7, approximate = false)", "score = softcap(c = 1.0e-7)"},
        {"plan.score=alibi", "alibi", "score = alibi"},
        {"plan.sink=-2.5", "softcap(c = 50.0, approximate = false)", "sink = -2.5"},
        {"sink=[1 x 7, 0.25]", "softcap(c = 50.0, approximate = false)", "sink = [1 x 7, 0.25]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_program *p =
            program_with("plan { mask = causal; score = softcap }",
                         &(fcpc_options){.size = sizeof(fcpc_options), .defines = &cases[i].define, .define_count = 1});
        cr_expect_str_eq(p->score_name, cases[i].name);
        cr_expect_not_null(strstr(p->canonical, cases[i].text), "%s: %s", cases[i].define, p->canonical);
        fcpc_program *again = program(p->canonical);
        cr_expect_str_eq(again->canonical, p->canonical);
        cr_expect_str_eq(again->score_name, p->score_name);
        fcpc_program_free(again);
        fcpc_program_free(p);
    }
}

Test(score, sinks) {
    fcpc_program *p = program("model { heads = 5 }\nplan { mask = causal; sink = [0.5 x 2, -1.25, 3, 2 * 0.1] }");
    const double wanted[] = {0.5, 0.5, -1.25, 3, 0.2};
    cr_expect_arr_eq(p->sink, wanted, sizeof wanted);
    fcpc_program_free(p);
    char path[TEMPORARY], source[300];
    cr_assert(temporary_file(path, "sink"));
    FILE *f = fopen(path, "w");
    cr_assert_not_null(f);
    fputs("0.25 # of head 0\n-3\n1e-30\n", f);
    fclose(f);
    snprintf(source, sizeof source, "model { heads = 3 }\nplan { mask = causal; sink = file(\"%s\") }", path);
    p = program(source);
    const double read[] = {0.25, -3, 1e-30};
    cr_expect_arr_eq(p->sink, read, sizeof read);
    fcpc_program_free(p);
    char *said;
    source[16] = '4';
    cr_expect_eq(parse(source, NULL, &p, &said), FCP_E_HEADS);
    cr_expect_not_null(strstr(said, "sink has 3 values, the model has 4 heads"), "%s", said);
    free(said);
    remove(path);
    p = program("model { heads = 3 }\nplan { mask = causal; sink = -7 }");
    for (int h = 0; h < 3; h++) cr_expect_eq(p->sink[h], -7);
    fcpc_program_free(p);
    p = program("plan { mask = causal }");
    cr_expect_null(p->sink);
    cr_expect_null(p->score_name);
    fcpc_program_free(p);
}

/* Equal expressions share their nodes, also where the source repeats them. What can be decided at compile time is
 * gone. */
Test(score, simplified) {
    fcpc_program *p = program("score m(w = 2.0) = (if w > 1 then tanh(s) else s) * tanh(s) + tanh(s) / 4\n"
                              "plan { mask = causal; score = m }");
    cr_expect_eq(count_op(p->score, MC_TANH_F), 1);
    cr_expect_eq(count_op(p->score, MC_DIV_F), 0); /* times a quarter */
    cr_expect_eq(count_op(p->score, MC_IF_F), 0);
    cr_expect_eq(count_op(p->slope, MC_TANH_F), 1);
    fcpc_program_free(p);
    p = program("score m = s + exp2(3.0) + log2(0.25) + exp(0.0) + sqrt(2.0) * 0.0\nplan { mask = causal; score = m }");
    cr_expect_eq(count_op(p->score, MC_CONST_F), 3);
    cr_expect_eq(p->score.count, 7);
    fcpc_program_free(p);
}

Test(score, floors) {
    fcpc_program *p =
        program("score m = floor(s) + floor(q / 3.0)\nplan { mask = causal; score = m; passes = forward }");
    cr_expect_eq(p->slope.count, 1);
    point at = {.q = 7, .s = 2.5};
    cr_expect_eq(value_of(p->score, &at), 4);
    fcpc_program_free(p);
    p = program("score m = if floor(s) > 3.0 then s else s * floor(q / 3.0)\nplan { mask = causal; score = m }");
    cr_expect_eq(value_of(p->slope, &at), 2);
    fcpc_program_free(p);
}

/* --- values ------------------------------------------------------------------------------------------------------- */

static maker start(uint64_t seed) { return (maker){.state = seed * UINT64_C(0x9e3779b97f4a7c15) + 12345}; }

static void write_program(page *p, const tree *root, const char *mask) {
    p->size = 0;
    put(p, "model { heads = 3 }\nbatch { lengths = [23, 9, 23] }\nscore mine = body where { body =\n "
           "");
    write_tree(p, root);
    put(p, " }\nplan { score = mine; mask = ");
    put(p, mask);
    put(p, " }\n");
}

static point somewhere(maker *m) {
    point p = {.n = 23, .q = (int64_t)roll(m, 23), .k = (int64_t)roll(m, 23), .h = (int64_t)roll(m, 3), .heads = 3};
    p.s = ((double)roll(m, 4001) - 2000) / (roll(m, 3) ? 500 : 20);
    return p;
}

/* With the forward pass alone, so that no derivative is needed. */
static fcp_code parse_forward(const page *text, fcpc_program **p, char **said) {
    const char *forward = "plan.passes=forward";
    const fcpc_options options = {.size = sizeof options, .defines = &forward, .define_count = 1};
    return parse(text->text, &options, p, said);
}

/* Equal, but for the sign of zero at the root, which scores do not keep. */
static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

Test(score, random_values) {
    unsigned compared = 0, numbers = 0, refused = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        static maker m;
        static page text;
        m = start(seed);
        const tree *root = make_real(&m, 1 + (unsigned)roll(&m, 5));
        write_program(&text, root, "full");
        if (text.size + 100 > TEXT) continue;
        fcpc_program *p;
        char *said;
        fcp_code code = parse_forward(&text, &p, &said);
        if (code == FCP_E_SCORE) refused++; /* a constant such as log(0.0) */
        else cr_assert_eq(code, FCP_OK, "%s\n%s", text.text, said);
        free(said);
        if (!p) continue;
        fcpc_program *again = program_with(p->canonical, NULL);
        cr_assert_str_eq(again->canonical, p->canonical);
        cr_assert_eq(again->score.count, p->score.count);
        fcpc_program_free(again);
        for (int i = 0; i < 40; i++) {
            point at = somewhere(&m);
            double wanted = real_of(root, &at), got = p->score.count ? value_of(p->score, &at) : at.s;
            cr_assert(same(got, wanted), "seed %d: %.17g, not %.17g, at q %d k %d h %d s %g\n%s", (int)seed, got,
                      wanted, (int)at.q, (int)at.k, (int)at.h, at.s, text.text);
            compared++;
            numbers += !isnan(wanted);
        }
        fcpc_program_free(p);
    }
    cr_log_info("%u compared, %u numbers, %u programs refused", compared, numbers, refused);
    cr_assert_gt(numbers, 30000);
    cr_assert_lt(refused, 150);
}

/* --- derivatives -------------------------------------------------------------------------------------------------- */

static double difference(mc_code code, point at, double step) {
    point left = at, right = at;
    left.s -= step;
    right.s += step;
    return (value_of(code, &right) - value_of(code, &left)) / (right.s - left.s);
}

static void differentiate(uint64_t seeds, bool smooth, double kept) {
    unsigned compared = 0, skipped = 0, moving = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        static maker m;
        static page text;
        m = start(seed + 700000);
        m.smooth = smooth;
        const tree *root = make_real(&m, 1 + (unsigned)roll(&m, 4));
        write_program(&text, root, "full");
        fcpc_program *p;
        char *said;
        if (text.size + 100 > TEXT) continue;
        fcp_code code = parse(text.text, NULL, &p, &said);
        cr_assert(code == FCP_OK || code == FCP_E_SCORE, "%s\n%s", text.text, said);
        free(said);
        if (code != FCP_OK) continue;
        mc_code judges;
        cr_assert(check_slope(p->score, MC_NONE, &judges));
        for (int i = 0; i < 10 && p->score.count; i++) {
            point at = somewhere(&m);
            double step = 1e-3 * (1 + fabs(at.s)), got = value_of(p->slope, &at), other = value_of(judges, &at);
            double d1 = difference(p->score, at, step), d2 = difference(p->score, at, step / 2),
                   d3 = difference(p->score, at, step / 4);
            /* two extrapolations that agree: there is no kink nearby, and no higher derivative is too large */
            double e1 = (4 * d2 - d1) / 3, e2 = (4 * d3 - d2) / 3, noise = 1e-12 * fabs(value_of(p->score, &at)) / step;
            if (!smooth && isnan(got)) { /* sqrt at 0, by 0 */
                skipped++;
                continue;
            }
            if (!isfinite(e1) || !isfinite(e2) || fabs(e1 - e2) > 1e-6 * fabs(e2) + 1e-9 + noise) {
                skipped++;
                continue;
            }
            cr_assert(fabs(got - e2) <= 1e-5 * fabs(e2) + 1e-8 + 100 * noise,
                      "seed %d: slope %.15g, differences %.15g, s %g\n%s", (int)seed, got, e2, at.s, text.text);
            cr_assert(fabs(other - e2) <= 1e-5 * fabs(e2) + 1e-8 + 100 * noise,
                      "seed %d: the judge's slope %.15g, differences %.15g, s %g\n%s", (int)seed, other, e2, at.s,
                      text.text);
            compared++;
            moving += got != 0 && got != 1;
        }
        free((mc_node *)(uintptr_t)judges.nodes);
        fcpc_program_free(p);
    }
    cr_log_info("%u compared, %u of them with a slope that is not 0 or 1, %u skipped", compared, moving, skipped);
    cr_assert_gt(compared, 5000);
    cr_assert_gt(moving, compared / 3);
    cr_assert_gt(compared, kept * (compared + skipped));
}

Test(score, smooth_slopes) { differentiate(1500, true, 0.9); }
Test(score, slopes_with_kinks) { differentiate(2500, false, 0.5); }

/* Where the score is constant its slope is 0, whatever the derivative of the function outside. */
Test(score, flat_stretches) {
    static const char *const flat[] = {"sqrt(max(s, 0.0))", "log(max(0.0, s)) * 2.0 + s", "1.0 / max(s, 0.0)",
                                       "sqrt(if s < 0.0 then 0.0 else s) / (if s < 0.0 then 1.0 else s)"};
    for (size_t i = 0; i < sizeof flat / sizeof *flat; i++) {
        char source[200];
        snprintf(source, sizeof source, "score m = %s\nplan { mask = causal; score = m }", flat[i]);
        fcpc_program *p = program(source);
        point at = {.n = 5, .s = -2};
        cr_expect_eq(value_of(p->slope, &at), i == 1, "%s: %g", flat[i], value_of(p->slope, &at));
        mc_code judges;
        cr_assert(check_slope(p->score, MC_NONE, &judges));
        cr_expect_eq(value_of(judges, &at), i == 1, "%s: %g by the judge", flat[i], value_of(judges, &at));
        free((mc_node *)(uintptr_t)judges.nodes);
        fcpc_program_free(p);
    }
}

/* --- explanations ------------------------------------------------------------------------------------------------- */

/* explain evaluates the tree; it reports itself if the code gives another answer. */
Test(score, explained) {
    unsigned explained = 0, real = 0;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        static maker m;
        static page text;
        m = start(seed + 40000);
        const tree *root = make_real(&m, 1 + (unsigned)roll(&m, 5));
        write_program(&text, root, "window(w = 9)");
        if (text.size + 100 > TEXT) continue;
        const char *forward = "plan.passes=forward";
        const fcpc_options options = {.size = sizeof(fcpc_options), .defines = &forward, .define_count = 1};
        for (int i = 0; i < 4; i++) {
            point at = somewhere(&m);
            explanation e = {.q = at.q, .k = at.k, .n = at.n, .h = at.h, .s = at.s};
            fcpc_diagnostics *d = fcpc_diagnostics_new();
            fcp_code code = explain_pair("a.fcp", text.text, text.size, &options, d, &e);
            cr_assert(code == FCP_OK || code == FCP_E_SCORE, "%s\n%s", text.text, fcpc_diagnostics_render(d, false));
            fcpc_diagnostics_free(d);
            if (code == FCP_OK && e.allowed) {
                double wanted = real_of(root, &at);
                cr_assert(e.score && !e.score_faults);
                cr_assert(same(e.scored, wanted), "seed %d: %.17g, not %.17g\n%s", (int)seed, e.scored, wanted,
                          text.text);
                explained++;
                for (size_t j = e.score_first; j < e.count; j++) real += e.steps[j].kind == EXPLAIN_REAL;
            } else cr_assert_null(e.score);
            arena_free(&e.arena);
        }
    }
    cr_assert(explained > 300 && real > explained, "%u explained, %u steps", explained, real);
}

/* --- faults ------------------------------------------------------------------------------------------------------- */

/* Does an allowed pair of the batch fault? */
static bool some_fault(const tree *root, const char *mask) {
    static const int64_t lengths[] = {23, 9};
    for (int i = 0; i < 2; i++)
        for (int64_t q = 0; q < lengths[i]; q++)
            for (int64_t k = 0; k < lengths[i]; k++)
                for (int64_t h = 0; h < 3; h++) {
                    if (mask[0] == 'c' && k > q) continue;
                    if (mask[0] == 'w' && !(0 <= q - k && q - k < 4)) continue;
                    point at = {.n = lengths[i], .q = q, .k = k, .h = h, .heads = 3, .s = 0.5};
                    real_of(root, &at);
                    if (at.fault) return true;
                }
    return false;
}

static bool is_fault(fcp_code code) {
    return code == FCP_E_MASK_DIV_ZERO || code == FCP_E_MASK_OVERFLOW || code == FCP_E_MASK_EXACT;
}

Test(score, random_faults) {
    static const char *const masks[] = {"full", "causal", "window(w = 4)"};
    unsigned asked = 0, faults = 0, checked = 0;
    for (uint64_t seed = 1; seed <= 1200; seed++) {
        static maker m;
        static page text;
        m = start(seed + 3000);
        m.risky = true;
        const char *mask = masks[roll(&m, 3)];
        const tree *root = make_real(&m, (unsigned)roll(&m, 3));
        write_program(&text, root, mask);
        fcpc_program *p;
        char *said;
        fcp_code code = parse_forward(&text, &p, &said);
        free(said);
        if (code == FCP_E_SCORE) continue;
        bool wanted = some_fault(root, mask);
        if (p) {
            fcpc_diagnostics *d = fcpc_diagnostics_new();
            fcp_plan *plan = NULL;
            code = fcpc_plan(p, NULL, 0, NULL, d, NULL, &plan);
            said = fcpc_diagnostics_render(d, false);
            cr_assert(code == FCP_OK || is_fault(code), "%s\n%s", text.text, said);
            free(said);
            fcp_plan_free(plan);
            fcpc_diagnostics_free(d);
            checked += p->check.nodes != p->mask.nodes;
        } else cr_assert_eq(code, FCP_E_MASK_EXACT, "%s", text.text);
        cr_assert_eq(is_fault(code), wanted, "seed %d: %s, under %s\n%s", (int)seed, fcp_code_name(code), mask,
                     text.text);
        asked++;
        faults += wanted;
        fcpc_program_free(p);
    }
    cr_log_info("%u asked, %u faults, %u needed a check", asked, faults, checked);
    cr_assert(faults > 60 && asked - faults > 400 && checked > faults);
}

static char *plan_says(const char *source, fcp_code wanted) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = program(source);
    fcp_plan *plan = NULL;
    fcp_code code = fcpc_plan(p, NULL, 0, NULL, d, NULL, &plan);
    char *said = fcpc_diagnostics_render(d, false);
    cr_assert_eq(code, wanted, "%s: %s", source, said);
    fcp_plan_free(plan);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return said;
}

/* FlashAttention's: on both sides of the query. */
Test(score, alibi_slopes) {
    static const double slopes[] = {0.5, 0.125, 2};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = program("model { heads = 3; table m = [0.5, 0.125, 2.0] }\nbatch { lengths = [9] }\n"
                              "plan { mask = full; score = alibi_slopes(slopes = m) }");
    fcp_plan *plan;
    mc_array arrays[1];
    mc_env env;
    int64_t scratch[100];
    cr_assert_eq(fcpc_plan(p, NULL, 0, NULL, d, NULL, &plan), FCP_OK);
    fcp_plan_env(plan, 0, arrays, NULL, &env);
    for (int64_t h = 0; h < 3; h++)
        for (int64_t k = 0; k < 9; k++)
            cr_expect_eq(
                mc_eval_score((mc_code){plan->score, (uint32_t)plan->score_count}, &env, 4, k, h, -1.5, scratch),
                -1.5 - (double)(k < 4 ? 4 - k : k - 4) * slopes[h]);
    fcp_plan_free(plan);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    char *said = plan_says("model { heads = 4; table m = [0.5, 0.125, 2.0] }\nbatch { lengths = [9] }\n"
                           "plan { mask = full; score = alibi_slopes(slopes = m) }",
                           FCP_E_MASK_INDEX);
    cr_expect_not_null(strstr(said, "element 3 of table"), "%s", said);
    free(said);
}

Test(score, fault_places) {
    char *said = plan_says("batch { lengths = [300, 200] }\n"
                           "score m = if k + 3 > q then s else s - exact(60, q - k - 4)\n"
                           "plan { mask = causal; score = m; block = 128 }", FCP_E_MASK_DIV_ZERO);
    cr_expect_not_null(strstr(said, "a.fcp:2:40: error[E310]: division by zero for q = 4, k = 0 in a sequence of "),
                       "%s", said);
    free(said);
    said = plan_says("model { heads = 4 }\nbatch { lengths = [300, 200] }\nscore m = s + exact(n * h, 8) * 0.5\n"
                     "plan { mask = window(w = 8) ; score = m; block = 128 }", FCP_E_MASK_EXACT);
    cr_expect_not_null(strstr(said, "a.fcp:3:15: error[E312]: "), "%s", said);
    free(said);
    /* what the mask forbids is not asked */
    free(plan_says(
        "batch { lengths = [300, 200] }\nscore m = s - exact(q - k, q - k + 1 - min(q - k, 1) * (q - k)) * 0.5\n"
        "plan { mask = causal; score = m; block = 128 }",
        FCP_OK));
}

static const char tables[] = "model { heads = 2; table bias = [0.5, 0.25, -0.125, 4]; table near = [3, 2, 1, 0]\n"
                             "  table by_head = [[1.5, 2.0, 3.0], [4.0, 5.0, 6.0]] }\n"
                             "batch { lengths = [300, 200]; field doc = [0 x 250, 1 x 250] }\n";

static char *says_with(const char *rest, fcp_code wanted) {
    char source[1000];
    snprintf(source, sizeof source, "%s%s", tables, rest);
    return plan_says(source, wanted);
}

/* Elements of tables: their values in a plan, and indices that leave them. */
Test(score, tables) {
    char source[1000];
    snprintf(source, sizeof source,
             "%sscore m(table b) = s * 2 + b[near[min(q - k, 3)]] - by_head[h, min((q - k) / 100, 2)]\n"
             "plan { mask = causal; score = m(b = bias); block = 128 }", tables);
    fcpc_program *p = program(source);
    cr_expect_str_eq(p->score_name, "m(b = bias)");
    cr_expect_neq(p->check.nodes, p->mask.nodes);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_plan(p, NULL, 0, NULL, d, NULL, &plan), FCP_OK);
    static const double bias[] = {0.5, 0.25, -0.125, 4}, by_head[] = {1.5, 2, 3, 4, 5, 6};
    mc_array arrays[8];
    mc_env env;
    int64_t scratch[100];
    fcp_plan_env(plan, 0, arrays, NULL, &env);
    const mc_code score = {plan->score, (uint32_t)plan->score_count};
    for (int64_t h = 0; h < 2; h++)
        for (int64_t k = 0; k <= 290; k++) {
            int64_t far = 290 - k, column = far / 100;
            double wanted = 1.5 * 2 + bias[3 - (far < 3 ? far : 3)] - by_head[h * 3 + (column < 2 ? column : 2)];
            cr_assert_eq(mc_eval_score(score, &env, 290, k, h, 1.5, scratch), wanted);
        }
    fcp_plan_free(plan);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    static const struct { const char *rest, *says; } wrong[] = {
        {"score m = s + bias[q - k]\nplan { mask = causal; score = m }",
         "a.fcp:4:15: error[E313]: element 4 of table 'bias', which has 4, for q = 4, k = 0 in a sequence of "},
        {"score m = s + bias[min(q - k, 3)]\nplan { mask = full; score = m }", "E313]: element -1 of table 'bias'"},
        {"score m = s + by_head[h + 1, 0]\nplan { mask = causal; score = m }",
         "E313]: element [2, 0] of table 'by_head'"},
        {"score m = if s > 0.0 then bias[q - k] else s\nplan { mask = window(w = 5); score = m }",
         "E313]: element 4 of table 'bias'"},
        {"score m = if doc[k + 1] == 1 then s else 0\nplan { mask = causal; score = m }", "E313]: position "},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char *said = says_with(wrong[i].rest, FCP_E_MASK_INDEX);
        cr_expect_not_null(strstr(said, wrong[i].says), "%s", said);
        free(said);
    }
    static const char *const right[] = {
        "score m = s + bias[q - k]\nplan { mask = window(w = 4); score = m }",
        "score m = if q - k < 4 and k <= q then bias[q - k] else s\nplan { mask = full; score = m }",
        "score m = if doc[q] == doc[k] then s else s - bias[doc[k]]\nplan { mask = causal; score = m }",
        "score m = s + bias[min(abs(q - k), 3)] * near[h]\nplan { mask = full; score = m }",
    };
    for (size_t i = 0; i < sizeof right / sizeof *right; i++) free(says_with(right[i], FCP_OK));
}

/* What lies in a plan: code that checks, and means what the program's does. */
Test(score, in_plans) {
    fcpc_program *p = program("model { heads = 2 }\nbatch { lengths = [300] }\nscore m = softcap(c = 3, s = alibi)\n"
                              "plan { mask = causal; score = m; sink = [0.5, -1]; block = 128 }");
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_plan(p, NULL, 0, NULL, d, NULL, &plan), FCP_OK);
    cr_assert_eq(plan->score_count, p->score.count);
    cr_assert_arr_eq(plan->score, p->score.nodes, p->score.count * sizeof(mc_node));
    cr_assert_eq(plan->slope_count, p->slope.count);
    cr_assert_arr_eq(plan->slope, p->slope.nodes, p->slope.count * sizeof(mc_node));
    cr_expect_eq(plan->sink_count, 2);
    cr_expect_eq(plan->sink[1], -1);
    fcp_plan_free(plan);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
}
