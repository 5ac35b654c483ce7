/* test_peaked.c: tests the kernels on fibers in random programs whose softmax is flat or peaked, with scales of both
 * signs and small and large sinks: the kernels' rounding errors, and those of approximate functions in every second
 * program, must be within what the judge allows. FIBER_RUNS is the number of programs.
 */
#include "tests/machines/fibers/programs.h"
#include "tests/oracle/peaked.h"

/* Makes every tanh approximate, which fibers then compute as badly as a GPU may. */
static void make_approximate(peaked_text *t) {
    static const struct { const char *from, *to; } words[] = {{"tanh(", "tanh_approx("},
                                                              {"softcap(", "softcap(approximate = true, "}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const peaked_text was = *t;
        const char *at = was.at, *next;
        for (t->size = 0; (next = strstr(at, words[i].from)); at = next + strlen(words[i].from))
            peaked_put(t, "%.*s%s", (int)(next - at), at, words[i].to);
        peaked_put(t, "%s", at);
    }
}

/* Runs a program. *out_proven becomes the number of tensors that the judge proves to be right, and *out_not the number
 * for which it can prove nothing, because their logits are so far from 0 that fp32 does not tell them apart. fp16 ends
 * at 65504, so a score with a steep slope can make dS infinite. */
static void judge_peaked(const fcp_plan *plan, const fcp_backend *backend, unsigned seed, const char *what,
                         unsigned *proven, unsigned *not_proven) {
    fcp_packed packed = {0};
    fcp_error err = {0};
    fcp_check_report report = FCP_CHECK_START;
    judge_run(plan, backend, 2, seed, &packed, what);
    const fcp_check_options options = {.passes = plan->problem->passes, .threads = 2};
    cr_assert(fcp_check_run(plan, &options, &packed, &report, &err) == FCP_OK, "%s: %s", what, err.message);
    for (int t = 0; t < FCP_TENSORS; t++) {
        const fcp_check *c = &report.tensor[t];
        if (!c->checked) continue;
        const bool ends = plan->problem->dtype == FCP_FP16 && c->verdict == FCP_NOT_FINITE;
        const bool none = c->verdict == FCP_NOTHING_PROVEN || c->verdict == FCP_NOTHING_FINITE || ends;
        cr_assert(c->ok || none, "%s: %s: error %g, naive %g, allowed %g, at %lu: %g, not %g", what,
                  fcp_tensor_name((fcp_tensor)t), c->max_abs_error, c->reference_error, c->tolerance,
                  (unsigned long)c->worst, c->result, c->expected);
        ++*(c->ok ? proven : not_proven);
    }
    fcp_packed_free(&packed);
}

Test(kernels, peaked_programs) {
    static const fcp_backend *const backends[] = {&fibers_backend, &fibers_ordered_backend, &fibers_unordered_backend};
    const unsigned draws = draws_of(3000);
    unsigned run = 0, proven = 0, not_proven = 0;
    for (unsigned seed = 1; seed <= draws; seed++) {
        peaked_text text;
        peaked_program(seed, &text);
        if (seed % 2) make_approximate(&text);
        fcp_plan *plan = plan_of(text.at);
        const fcp_problem *p = plan->problem;
        const uint64_t cost = p->heads * plan->sequences_count * p->ranks * (p->head_dim / 16);
        if (cost <= 24 && fibers_kernels_of(plan)) {
            judge_peaked(plan, backends[seed % 3], seed, text.at, &proven, &not_proven);
            run++;
        }
        fcp_plan_free(plan);
    }
    fprintf(stderr, "fibers: %u peaked programs drawn, %u run; %u tensors right, of %u nothing is proven\n", draws, run,
            proven, not_proven);
    cr_assert(proven > 4 * not_proven, "too few results were proven for this test to mean anything");
    cr_assert(run >= draws / 12, "too few programs were run for this test to mean anything");
}
