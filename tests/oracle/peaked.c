/* peaked.c: tests that the judge accepts right results of programs whose softmax is flat or peaked and whose sinks are
 * small or large. The host computes these results, and its rounding errors must be within what the judge allows.
 *
 * The judge must not allow too much either. In one program of eight, the allowed error may be at most MOST_ALLOWED
 * times as large as the error of the naive computation.
 *
 * Variables of the environment:
 *   PEAKED_SEED, PEAKED_RUNS  other programs, and how many
 *   PEAKED_REPORT             prints two rows of quantiles over all programs: allowed error / error of the naive
 *                             computation (naive_has), and largest error / allowed error
 */
#include <criterion/criterion.h>

#include "tests/oracle/peaked.h"
#include "tests/support/amount.h"

static uint64_t number_from_environment(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

/* --- how much is allowed ------------------------------------------------------------------------------------------ */

enum { DTYPES = 3, MOST_ALLOWED = 2000 };
typedef struct ratios {
    double *of;
    size_t count, room;
} ratios;

static void add_ratio(ratios *r, double x) {
    if (r->count == r->room) {
        r->room = 2 * r->room + 1024;
        r->of = realloc(r->of, r->room * sizeof *r->of);
        cr_assert_not_null(r->of);
    }
    r->of[r->count++] = x;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void print_ratios(const char *what, ratios *r) {
    static const double at[] = {0.01, 0.1, 0.5, 0.9, 0.99, 1};
    if (!r->count) return;
    qsort(r->of, r->count, sizeof *r->of, by_size);
    fprintf(stderr, "%s", what);
    for (size_t i = 0; i < sizeof at / sizeof *at; i++)
        fprintf(stderr, " %9.3g", r->of[(size_t)(at[i] * (double)(r->count - 1))]);
    fprintf(stderr, "   (%zu)\n", r->count);
    free(r->of);
}

/* The largest number of a tensor, and the length of its longest row. */
struct largest {
    double number, row;
};

static struct largest largest_of(const peaked_run *r, fcp_tensor t) {
    const fcp_dtype dtype = fcp_tensor_dtype(&r->shape, t);
    const size_t count = fcp_packed_bytes(&r->shape, t) / fcp_dtype_size(dtype);
    uint64_t dims[3];
    float *x = malloc((count + 1) * sizeof *x);
    struct largest l = {0, 0};
    double row = 0;
    cr_assert_not_null(x);
    fcp_tensor_shape(&r->shape, t, dims);
    fcp_to_float(dtype, r->packed.t[t], x, count);
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(x[i])) continue;
        row = (i % dims[2] ? row : 0) + (double)x[i] * (double)x[i];
        l.number = fmax(l.number, fabs((double)x[i]));
        l.row = fmax(l.row, sqrt(row));
    }
    free(x);
    return l;
}

/* What a naive computation has as an error of a tensor: what this one has, and what it has by chance if that is less,
 * which is one rounding of the most that a pair could add. */
static double naive_has(const peaked_run *r, fcp_tensor t) {
    const fcp_dtype dtype = r->shape.dtype;
    const struct largest q = largest_of(r, FCP_TENSOR_Q), k = largest_of(r, FCP_TENSOR_K);
    const struct largest g = largest_of(r, FCP_TENSOR_DO);
    const struct largest v = r->shape.values_in_keys ? k : largest_of(r, FCP_TENSOR_V);
    const double inner = fmax(1, r->slope) * fabs(r->shape.scale) * g.row * v.row / sqrt(r->shape.value_dim);
    double one = 0;
    switch (t) {
    case FCP_TENSOR_O: one = v.number; break;
    case FCP_TENSOR_DQ: one = inner * k.number; break;
    case FCP_TENSOR_DK: one = fmax(inner * q.number, r->shape.values_in_keys ? g.number : 0); break;
    case FCP_TENSOR_DV: one = g.number; break;
    default: return r->report.tensor[t].reference_error + 0x1p-24 * (1 + largest_of(r, FCP_TENSOR_LSE).number);
    }
    return r->report.tensor[t].reference_error + fcp_ulp(dtype, 1) / 2 * one;
}

/* What a number may be off by: a number far away is put there, of which the report then speaks. Not in tensors in which
 * fp32 cannot tell some logits apart: there it is chance whether the naive computation is off. */
static void note_allowed(peaked_run *r, uint64_t *state, ratios allowed[DTYPES][FCP_TENSORS]) {
    const fcp_check_report before = r->report;
    for (int t = 0; t < FCP_TENSORS; t++) {
        const fcp_dtype dtype = fcp_tensor_dtype(&r->shape, (fcp_tensor)t);
        const size_t e = fcp_dtype_size(dtype), count = fcp_packed_bytes(&r->shape, (fcp_tensor)t) / e;
        if (!before.tensor[t].checked || !count || before.tensor[t].untold > 0) continue;
        const double has = naive_has(r, (fcp_tensor)t);
        char *place = (char *)r->packed.t[t] + e * (splitmix(state) % count), kept[sizeof(float)];
        const float far = dtype == FCP_FP16 ? 6e4f : 3e38f;
        memcpy(kept, place, e);
        fcp_from_float(dtype, &far, place, 1);
        peaked_judge(r);
        if (r->report.tensor[t].verdict == FCP_DIFFERS)
            add_ratio(&allowed[r->shape.dtype][t], r->report.tensor[t].tolerance / has);
        memcpy(place, kept, e);
        r->report = before;
    }
}

/* --- the test ----------------------------------------------------------------------------------------------------- */

/* Whether a verdict on a right result is a false alarm. Of some nothing can be proven; there the naive computation is
 * off by much, too. */
static bool is_alarm(const fcp_check *c) {
    return c->checked && !c->ok && c->verdict != FCP_NOTHING_PROVEN && c->verdict != FCP_NOTHING_FINITE;
}

static bool alarm_of(const peaked_run *r, uint64_t seed, const char *text, const char *what) {
    bool alarm = false;
    for (int t = 0; t < FCP_TENSORS; t++) {
        const fcp_check *c = &r->report.tensor[t];
        if (!is_alarm(c)) continue;
        fprintf(stderr, "seed %llu, %s: %s, of the naive computation %g\n%s", (unsigned long long)seed, what,
                peaked_said(r, (fcp_tensor)t), c->reference_error, text);
        alarm = true;
    }
    return alarm;
}

Test(oracle_peaked, right_is_right) {
    static ratios allowed[DTYPES][FCP_TENSORS], used[DTYPES][FCP_TENSORS], unproven;
    const uint64_t first = number_from_environment("PEAKED_SEED", 1);
    const uint64_t count = number_from_environment("PEAKED_RUNS", amount(400, 5000));
    const bool report = getenv("PEAKED_REPORT") != NULL;
    uint64_t alarms = 0, backward = 0;
    for (uint64_t seed = first; seed < first + count; seed++) {
        peaked_text text;
        uint64_t state = seed;
        peaked_program(seed, &text);
        peaked_run r = peaked_compute(text.at, seed, true);
        backward += r.shape.has_pass[FCP_BACKWARD];
        peaked_judge_part(&r, 3);
        bool alarm = alarm_of(&r, seed, text.at, "a sample");
        peaked_judge(&r);
        alarm |= alarm_of(&r, seed, text.at, "all rows");
        for (int t = 0; t < FCP_TENSORS; t++) {
            const fcp_check *c = &r.report.tensor[t];
            if (c->verdict == FCP_NOTHING_PROVEN)
                add_ratio(&unproven, c->reference_error / largest_of(&r, (fcp_tensor)t).number);
            if (report && c->checked) add_ratio(&used[r.shape.dtype][t], c->share);
        }
        alarms += alarm;
        if (report || seed % 8 == 0) note_allowed(&r, &state, allowed);
        peaked_close(&r);
    }
    fprintf(stderr, "peaked: %llu runs, %llu of them backward, %llu alarms; nothing is proven of %zu tensors\n",
            (unsigned long long)count, (unsigned long long)backward, (unsigned long long)alarms, unproven.count);
    cr_assert(unproven.count, "no scores that fp32 cannot tell apart");
    qsort(unproven.of, unproven.count, sizeof *unproven.of, by_size);
    cr_assert(unproven.of[unproven.count / 2] > 0.1, "nothing is proven where the naive computation is off by little");
    for (int d = 0; d < DTYPES; d++)
        for (int t = 0; t < FCP_TENSORS; t++)
            for (size_t i = 0; i < allowed[d][t].count; i++)
                cr_assert(allowed[d][t].of[i] < MOST_ALLOWED, "%s, %s: %g times what the naive computation has",
                          fcp_dtype_name((fcp_dtype)d), fcp_tensor_name((fcp_tensor)t), allowed[d][t].of[i]);
    for (int d = 0; report && d < DTYPES; d++)
        for (int t = 0; t < FCP_TENSORS; t++) {
            char what[60];
            snprintf(what, sizeof what, "%-4s %-7s allowed/naive", fcp_dtype_name((fcp_dtype)d),
                     fcp_tensor_name((fcp_tensor)t));
            print_ratios(what, &allowed[d][t]);
            snprintf(what, sizeof what, "%-4s %-7s error/allowed", fcp_dtype_name((fcp_dtype)d),
                     fcp_tensor_name((fcp_tensor)t));
            print_ratios(what, &used[d][t]);
        }
    if (report) print_ratios("unproven: naive error/largest", &unproven);
    cr_assert_eq(alarms, 0);
}
