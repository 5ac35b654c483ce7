/* test_states.c: tests the small kernels beside attention: those that merge running states of the forward pass, make O
 * and LSE of a state, compute delta, and sum the gradients of sinks and of tables.
 *
 * Rows are drawn with maxima far apart, alike, far from 0, and -inf (the row has not seen a key), and compared with
 * float64. A slot has room for more rows than the block has tokens: what lies beyond must stay as it is.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/host/sums.h"
#include "tests/support/plain.h"
#include "tests/machines/fibers/fibers.h"

enum { ROOM = 24, TOKENS = 21, HEADS = 3, ROWS = TOKENS * HEADS, ALL = ROOM * HEADS };

typedef struct state {
    float *all, *m, *l; /* O is where all begins */
    size_t count;
} state;

static uint64_t draw(uint64_t *seed, uint64_t below) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}
static double draw_real(uint64_t *seed) { return (double)draw(seed, 1 << 20) / (1 << 19) - 1; }

static state make_state(uint32_t d, uint64_t *seed) {
    state s = {.count = (size_t)ALL * (d + 2)};
    s.all = malloc(s.count * sizeof *s.all);
    cr_assert_not_null(s.all);
    s.m = s.all + (size_t)ALL * d;
    s.l = s.m + ALL;
    for (uint32_t i = 0; i < ALL; i++) {
        bool empty = draw(seed, 4) == 0;
        s.m[i] = empty ? -INFINITY : (float)(draw_real(seed) * (draw(seed, 2) ? 100 : 2));
        s.l[i] = empty ? 0 : (float)(1.5 + draw_real(seed));
        for (uint32_t c = 0; c < d; c++) s.all[i * d + c] = empty ? 0 : (float)draw_real(seed);
    }
    return s;
}

static void run(const fibers_kernel *k, const fk_support *x, const machine_range *ranges, uint32_t count) {
    static char text[MACHINE_TEXT];
    machine *m = machine_new();
    cr_assert_not_null(m);
    machine_launch launch = {.kernel = k->run, .parameters = x, .blocks = 2, .threads = k->threads, .shared = k->shared,
                             .ranges = ranges, .range_count = count, .seed = x->count};
    cr_assert(machine_run(m, &launch, text), "%s", text);
    machine_free(m);
}

#define RANGE(place, bytes, writes) \
    {.name = #place, .begin = (uintptr_t)(place), .end = (uintptr_t)(place) + (bytes), .writable = (writes)}

/* `far`: maxima of which most are as far from 0 as they get, and some of those alike in both states. */
static void merging_is_that_of_float64(bool far) {
    static const uint32_t dims[] = {16, 64, 128, 256};
    for (int i = 0; i < 4; i++) {
        uint32_t d = dims[i];
        uint64_t seed = 77 + d;
        const fibers_kernels *all = fibers_kernels_find(d, d, FCP_BF16, false);
        if (!all) continue;
        state to = make_state(d, &seed), from = make_state(d, &seed), before = make_state(d, &seed);
        static const float large[] = {1e9f, -1e9f, 3.4e38f, -3.4e38f, 1e30f};
        for (uint32_t r = 0; far && r < ALL; r++) {
            if (!isinf(to.m[r])) to.m[r] = large[r % 5];
            if (!isinf(from.m[r])) from.m[r] = r % 3 ? large[r % 5] : r % 2 ? nextafterf(large[r % 5], 0) : large[r / 5 % 5];
        }
        for (size_t j = 0; j < to.count; j++) before.all[j] = to.all[j];
        const fk_support x = {.to = (uintptr_t)to.all, .from = (uintptr_t)from.all, .other = ALL, .count = ROWS};
        const machine_range ranges[] = {RANGE(to.all, to.count * 4, true), RANGE(from.all, from.count * 4, false)};
        run(&all->merge, &x, ranges, 2);
        for (uint32_t r = 0; r < ALL; r++) {
            double ma = (double)before.m[r], mb = (double)from.m[r], m = fmax(ma, mb), base = isinf(m) ? 0 : m;
            double a = exp(ma - base), b = exp(mb - base);
            if (r >= ROWS) m = ma, a = 1, b = 0;
            cr_assert(m == (double)to.m[r], "row %u of %u: m %g", r, d, (double)to.m[r]);
            double l = a * (double)before.l[r] + b * (double)from.l[r];
            cr_assert(fabs((double)to.l[r] - l) <= 1e-6 * l, "row %u of %u: l %g, not %g", r, d, (double)to.l[r], l);
            for (uint32_t c = 0; c < d; c++) {
                double oa = a * (double)before.all[r * d + c], ob = b * (double)from.all[r * d + c];
                double is = (double)to.all[r * d + c];
                cr_assert(fabs(is - oa - ob) <= 1e-6 * (fabs(oa) + fabs(ob)), "row %u of %u: O %g", r, d, is);
            }
        }
        free(to.all);
        free(from.all);
        free(before.all);
    }
}

Test(states, merging_is_that_of_float64) {
    merging_is_that_of_float64(false);
    merging_is_that_of_float64(true);
}

/* `far`: the sinks, and some maxima, are as far from 0 as they get. The heads are 1, 2 and 5 of the model. */
static void results_are_those_of_float64(bool far) {
    static const uint32_t dims[] = {16, 64, 128, 256};
    float sinks[HEADS] = {far ? -1e9f : -1, far ? 3e38f : 0.5f, far ? 86 : 30};
    for (int i = 0; i < 8; i++) {
        uint32_t d = dims[i / 2], with_sinks = i % 2;
        uint64_t seed = 5 + d;
        const fibers_kernels *all = fibers_kernels_find(d, d, FCP_BF16, false);
        if (!all) continue;
        state from = make_state(d, &seed);
        for (uint32_t r = 0; far && r < ALL; r += 2) from.m[r] *= r % 4 ? 1e17f : 1e30f;
        for (uint32_t r = 0; far && r < ALL; r += 7) from.m[r] = isinf(from.m[r]) ? from.m[r] : sinks[r % HEADS];
        uint16_t *o = calloc((size_t)ALL * d, sizeof *o);
        float *lse = calloc(ALL, sizeof *lse), *low = calloc(ALL, sizeof *low), largest[6];
        double most_of[HEADS] = {-INFINITY, -INFINITY, -INFINITY};
        for (int h = 0; h < 6; h++) largest[h] = -INFINITY;
        const fk_support x = {.to = (uintptr_t)o, .from = (uintptr_t)from.all, .other = ALL, .count = ROWS,
                              .lse = (uintptr_t)lse, .lse_low = (uintptr_t)low, .maxima = i % 3 ? (uintptr_t)largest : 0,
                              .sinks = with_sinks ? (uintptr_t)sinks : 0, .heads = HEADS, .model_head = 1, .group = 2,
                              .shared = 4};
        const machine_range ranges[] = {RANGE(o, (size_t)ALL * d * 2, true), RANGE(lse, ALL * 4, true),
                                        RANGE(low, ALL * 4, true), RANGE(largest, sizeof largest, true),
                                        RANGE(from.all, from.count * 4, false), RANGE(sinks, sizeof sinks, false)};
        run(&all->state_out, &x, ranges, 6);
        for (uint32_t r = 0; r < ALL; r++) {
            double z = with_sinks ? (double)sinks[r % HEADS] : -INFINITY, m = (double)from.m[r], l = (double)from.l[r];
            double most = fmax(m, z), base = isinf(most) ? 0 : most, own = exp(m - base);
            double sum = l * own + exp(z - base), wanted = sum == 0 ? -INFINITY : base + log(sum);
            double factor = sum == 0 ? 0 : own / sum;
            if (r >= ROWS) wanted = factor = 0;
            if (r < ROWS) most_of[r % HEADS] = fmax(most_of[r % HEADS], m);
            bool alike = wanted == (double)lse[r] || fabs((double)lse[r] - wanted) <= 2e-6 + 1.2e-7 * fabs(wanted);
            cr_assert(alike, "row %u of %u: LSE %g, not %g", r, d, (double)lse[r], wanted);
            if (l == 0 && r < ROWS)
                cr_assert((double)lse[r] == z && low[r] == 0, "row %u sees no key: the LSE is the sink", r);
            else if (r < ROWS)
                cr_assert(fabs(((double)lse[r] - base) + (double)low[r] - log(sum)) <= 2e-6,
                          "row %u of %u: LSE %.9g and %.9g, over %.9g not %.9g", r, d, (double)lse[r], (double)low[r],
                          base, log(sum));
            for (uint32_t c = 0; c < d; c++) {
                double is = (double)fcp_bf16_float(o[r * d + c]), right = factor * (double)from.all[r * d + c];
                cr_assert(fabs(is - right) <= fabs(right) / 250 + 1e-38, "row %u of %u: O %g, not %g", r, d, is, right);
            }
        }
        const float is[HEADS] = {largest[1], largest[2], largest[5]};
        for (int h = 0; h < HEADS; h++)
            cr_assert((double)is[h] == (x.maxima ? most_of[h] : -INFINITY), "head %d: %g is the largest, not %g", h,
                      most_of[h], (double)is[h]);
        cr_assert(isinf(largest[0]) && isinf(largest[3]) && isinf(largest[4]), "other heads have no rows here");
        free(from.all);
        free(o);
        free(lse);
        free(low);
    }
}

Test(states, results_are_those_of_float64) {
    results_are_those_of_float64(false);
    results_are_those_of_float64(true);
}

/* Rows of three heads, folded until one is left: -sum of exp(sink - LSE) delta. The heads go to 1, 2 and 5. */
Test(states, gradients_of_sinks_are_those_of_float64) {
    enum { COUNT = FK_FOLD * FK_FOLD + 77, LEVELS = 3 };
    const fibers_kernels *all = fibers_kernels_find(16, 16, FCP_BF16, false);
    float sinks[HEADS] = {-1, 1e9f, -2.4e38f}, *from = malloc(COUNT * HEADS * sizeof *from), sum[6] = {0};
    float *lse = malloc(COUNT * HEADS * sizeof *lse), *low = malloc(COUNT * HEADS * sizeof *low), *level[LEVELS] = {from};
    double want[HEADS] = {0};
    uint64_t seed = 9, count = COUNT;
    if (!all) return;
    for (uint32_t i = 0; i < COUNT * HEADS; i++) {
        from[i] = (float)draw_real(&seed);
        const float rest = 3 + (float)draw_real(&seed), sink = sinks[i % HEADS]; /* LSE is more than the sink by that */
        lse[i] = sink + rest;
        low[i] = (sink - lse[i]) + rest;
        want[i % HEADS] -= exp(-(double)rest) * (double)from[i];
    }
    for (int i = 0; i < LEVELS; i++) {
        const uint64_t parts = (count + FK_FOLD - 1) / FK_FOLD, last = parts == 1;
        float *to = last ? sum : malloc(parts * HEADS * sizeof *to);
        const fk_support x = {.to = (uintptr_t)to, .from = (uintptr_t)level[i], .lse = i ? 0 : (uintptr_t)lse,
                              .lse_low = i ? 0 : (uintptr_t)low, .sinks = (uintptr_t)sinks, .count = count, .heads = HEADS, .model_head = 1,
                              .group = last ? 2 : 0, .shared = 4};
        const machine_range ranges[] = {RANGE(to, last ? sizeof sum : parts * HEADS * 4, true),
                                        RANGE(level[i], count * HEADS * 4, false),
                                        RANGE(lse, (size_t)COUNT * HEADS * 4, false),
                                        RANGE(low, (size_t)COUNT * HEADS * 4, false),
                                        RANGE(sinks, sizeof sinks, false)};
        run(&all->fold_sinks, &x, ranges, 5);
        free(level[i]);
        if (!last) level[i + 1] = to;
        count = parts;
    }
    cr_assert(count == 1 && sum[0] == 0 && sum[3] == 0 && sum[4] == 0);
    const float got[HEADS] = {sum[1], sum[2], sum[5]};
    for (int h = 0; h < HEADS; h++)
        cr_assert(fabs((double)got[h] - want[h]) < 1e-4 * (1 + fabs(want[h])), "head %d: %g, not %g", h,
                  (double)got[h], want[h]);
    free(lse);
    free(low);
}

/* LSE begins as the sink, exactly, and delta is dO . O less the gradient of LSE, where there is one. */
Test(states, lse_begins_and_delta_takes_its_gradient) {
    enum { D = 16 };
    const fibers_kernels *all = fibers_kernels_find(D, D, FCP_BF16, false);
    float sinks[HEADS] = {-1, 1e9f, -2.4e38f}, lse[ALL], low[ALL], d_lse[ALL], delta[ALL];
    uint16_t o[ALL * D], d_o[ALL * D];
    uint64_t seed = 5;
    if (!all) return;
    const fk_support begin = {.to = (uintptr_t)lse, .lse_low = (uintptr_t)low, .from = (uintptr_t)sinks, .count = ALL,
                              .heads = HEADS};
    const machine_range begun[] = {RANGE(lse, sizeof lse, true), RANGE(low, sizeof low, true),
                                   RANGE(sinks, sizeof sinks, false)};
    for (uint32_t r = 0; r < ALL; r++) low[r] = 7;
    run(&all->begin_lse, &begin, begun, 3);
    for (uint32_t r = 0; r < ALL; r++) cr_assert(lse[r] == sinks[r % HEADS] && low[r] == 0, "row %u", r);
    for (uint32_t i = 0; i < ALL * D; i++) {
        const float x = (float)((int)draw(&seed, 9) - 4), y = (float)((int)draw(&seed, 9) - 4);
        fcp_from_float(FCP_BF16, &x, &o[i], 1);
        fcp_from_float(FCP_BF16, &y, &d_o[i], 1);
    }
    for (uint32_t r = 0; r < ALL; r++) d_lse[r] = (float)((int)draw(&seed, 99) - 49);
    for (int given = 0; given < 2; given++) {
        const fk_support x = {.to = (uintptr_t)delta, .from = (uintptr_t)o, .other = (uintptr_t)d_o, .count = ALL,
                              .d_lse = given ? (uintptr_t)d_lse : 0};
        const machine_range ranges[] = {RANGE(delta, sizeof delta, true), RANGE(o, sizeof o, false),
                                        RANGE(d_o, sizeof d_o, false), RANGE(d_lse, sizeof d_lse, false)};
        run(&all->delta, &x, ranges, 4);
        for (uint32_t r = 0; r < ALL; r++) {
            float want = given ? -d_lse[r] : 0;
            for (uint32_t c = 0; c < D; c++) want += fcp_bf16_float(o[r * D + c]) * fcp_bf16_float(d_o[r * D + c]);
            cr_assert(delta[r] == want, "row %u: delta %g, not %g", r, (double)delta[r], (double)want);
        }
    }
}

/* Sums by which kernels add up the gradients of tables have the bits of the host's, which are exact and rounded once:
 * for numbers of all sizes, that cancel out, at ties, subnormal ones, infinities and NaN. */
Test(states, sums_are_those_of_the_host) {
    enum { SUMS = 300, EACH = 7, COUNT = SUMS * EACH };
    static const float special[][EACH] = {
        {0x1p127f, 0x1p-149f, -0x1p127f}, {-0x1p127f, -0x1p-149f, 0x1p127f}, {1, 0x1p-24f}, {0x1.000002p0f, 0x1p-24f},
        {1, 0x1p-24f, 0x1p-149f}, {-1, -0x1p-24f}, {0x1p-126f, -0x1p-149f}, {0x1.fffffep127f, 0x1p103f},
        {-0x1.fffffep127f, -0x1p103f}, {0x1.fffffep127f, 0x1p102f}, {INFINITY, -1}, {-INFINITY, 3},
        {INFINITY, -INFINITY}, {NAN, 1}, {-0.0f}, {0x1p-149f, 0x1p-149f, -0x1p-148f}};
    enum { SPECIAL = sizeof special / sizeof *special };
    const fibers_kernels *all = fibers_kernels_find(16, 16, FCP_BF16, true);
    float *from = calloc(COUNT, sizeof *from), got[SUMS], want[SUMS];
    char *sums = calloc(SUMS, FK_SUM_BYTES);
    fcp_sums *host = fcp_sums_new(SUMS);
    uint64_t seed = 21;
    cr_assert(all && from && sums && host);
    for (size_t i = 0; i < COUNT; i++) {
        const size_t sum = i % SUMS, number = i / SUMS;
        from[i] = ldexpf((float)draw_real(&seed), (int)draw(&seed, sum % 3 ? 270 : 50) - 145);
        if (sum < SPECIAL) from[i] = special[sum][number];
        fcp_sums_add(host, sum, from[i]);
    }
    fcp_sums_read(host, want);
    const fk_support add = {.to = (uintptr_t)sums, .from = (uintptr_t)from, .count = COUNT, .other = SUMS};
    const fk_support out = {.to = (uintptr_t)got, .from = (uintptr_t)sums, .count = SUMS};
    const machine_range ranges[] = {RANGE(sums, SUMS * FK_SUM_BYTES, true), RANGE(from, COUNT * 4, false),
                                    RANGE(got, sizeof got, true)};
    run(&all->add_to_sums, &add, ranges, 3);
    run(&all->round_sums, &out, ranges, 3);
    for (int i = 0; i < SUMS; i++)
        cr_assert(isnan(want[i]) ? isnan(got[i]) : memcmp(&got[i], &want[i], 4) == 0, "sum %d: %a, not %a", i,
                  (double)got[i], (double)want[i]);
    fcp_sums_free(host);
    free(from);
    free(sums);
}
