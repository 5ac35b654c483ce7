/* test_far.c: tests logits of any size on the host: what rows get depends on how far their logits are apart, and not on
 * how large they are. Results are held against exact_attention.h. Also heads of V with a width of their own, values in
 * keys, gradients of LSE, and the largest logits, for which exact_attention.h is the definition, too. */
#include <stdio.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "tests/support/amount.h"
#include "tests/support/exact_attention.h"
#include "tests/support/hand_score.h"
#include "tests/support/moved_plan.h"
#include "tests/support/plain.h"
#include "tests/support/plan_of.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };

/* A session on a plan, and its tensors. */
typedef struct bench {
    const fcp_plan *plan;
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed;
} bench;

static bench open(const fcp_plan *plan, uint32_t threads) {
    bench b = {.plan = plan};
    fcp_error err = {0};
    fcp_session_options options = {.size = sizeof options, .compute_threads = threads, .timeout_s = 60};
    fcp_plan_shape(plan, &b.shape);
    cr_assert(fcp_session_create(plan, &options, &b.session, &err) == FCP_OK, "%s", err.message);
    cr_assert(fcp_packed_alloc(&b.shape, ALL, &b.packed, &err) == FCP_OK, "%s", err.message);
    b.packed.max_logit = calloc(b.shape.heads, sizeof *b.packed.max_logit);
    cr_assert_not_null(b.packed.max_logit);
    return b;
}

static void close(bench *b) {
    fcp_session_free(b->session);
    fcp_packed_free(&b->packed);
}

static void run(bench *b) {
    fcp_error err = {0};
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run_packed(b->session, b->plan, (fcp_pass)pass, &b->packed, NULL, &err) == FCP_OK, "%s",
                  err.message);
}

static void fill(const bench *b, fcp_tensor t, float value) {
    for (size_t i = 0; i < exact_count(&b->shape, t); i++) ((float *)b->packed.t[t])[i] = value;
}
static const float *numbers(const bench *b, fcp_tensor t) { return b->packed.t[t]; }

/* --- one block, by hand ------------------------------------------------------------------------------------------- */

static fcp_plan *equal_logits(const char *offset) {
    char text[300];
    snprintf(text, sizeof text,
             "model { heads = 1; head_dim = 8; dtype = fp32 }\nbatch { lengths = [4] }\nscore far = s %s\n"
             "plan { mask = full; score = far; block = 4 }\n", offset);
    return plan_of(text);
}

/* Four keys with the same logit, whatever it is: each weighs a quarter. */
Test(far, equal_logits) {
    static const struct { const char *offset; double is; } all[] = {
        {"- 2.4e38", -2.4e38}, {"+ 2.4e38", 2.4e38}, {"- 3.4028234663852886e38", -3.4028234663852886e38},
        {"+ 3.4028234663852886e38", 3.4028234663852886e38}, {"- 1.0e9", -1e9}, {"- 1.0e8", -1e8}, {"+ 1.0e8", 1e8},
        {"+ 0.0", 0}, {"- 65504.0", -65504}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fcp_plan *plan = equal_logits(all[i].offset);
        bench b = open(plan, 1);
        const float is = (float)all[i].is, *low = numbers(&b, FCP_TENSOR_LSE_LOW);
        fill(&b, FCP_TENSOR_Q, 0), fill(&b, FCP_TENSOR_K, 0), fill(&b, FCP_TENSOR_V, 1), fill(&b, FCP_TENSOR_DO, 1);
        run(&b);
        for (int r = 0; r < 4; r++) {
            const float lse = numbers(&b, FCP_TENSOR_LSE)[r];
            cr_assert(lse == (float)((double)is + log(4)), "%s: LSE %.9g", all[i].offset, (double)lse);
            cr_assert(fabs((double)lse - (double)is + (double)low[r] - log(4)) < 1e-6, "%s: LSE %.9g and %.9g",
                      all[i].offset, (double)lse, (double)low[r]);
        }
        for (int j = 0; j < 32; j++) {
            cr_assert(numbers(&b, FCP_TENSOR_O)[j] == 1, "%s: O %g", all[i].offset, (double)numbers(&b, FCP_TENSOR_O)[j]);
            cr_assert(fabs((double)numbers(&b, FCP_TENSOR_DV)[j] - 1) < 1e-6, "%s: dV %g", all[i].offset,
                      (double)numbers(&b, FCP_TENSOR_DV)[j]);
            cr_assert(numbers(&b, FCP_TENSOR_DQ)[j] == 0 && numbers(&b, FCP_TENSOR_DK)[j] == 0, "%s", all[i].offset);
        }
        cr_assert(b.packed.max_logit[0] == is, "%s: %g", all[i].offset, (double)b.packed.max_logit[0]);
        close(&b);
        fcp_plan_free(plan);
    }
}

/* What a caller loses who keeps LSE alone: at 1e8 it has no room for log 4, and each of four keys weighs 1. Beside
 * small logits next to nothing is lost. */
Test(far, lse_alone) {
    static const struct { const char *offset; double dv, within; } all[] = {{"- 1.0e8", 4, 0}, {"+ 0.0", 1, 1e-6}};
    for (int i = 0; i < 2; i++) {
        fcp_plan *plan = equal_logits(all[i].offset);
        bench b = open(plan, 1);
        fcp_error err = {0};
        fcp_tensors x = {0};
        fill(&b, FCP_TENSOR_Q, 0), fill(&b, FCP_TENSOR_K, 0), fill(&b, FCP_TENSOR_V, 1), fill(&b, FCP_TENSOR_DO, 1);
        for (int t = 0; t < FCP_TENSORS; t++)
            if (t != FCP_TENSOR_LSE_LOW && t != FCP_TENSOR_DLSE) fcp_tensors_set(&x, (fcp_tensor)t, b.packed.t[t]);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert(fcp_session_run(b.session, (fcp_pass)pass, &x, &err) == FCP_OK, "%s", err.message);
        for (int j = 0; j < 32; j++) {
            const double dv = (double)numbers(&b, FCP_TENSOR_DV)[j];
            cr_assert(fabs(dv - all[i].dv) <= all[i].within, "%s: dV is %g", all[i].offset, dv);
        }
        close(&b);
        fcp_plan_free(plan);
    }
}

/* --- random plans ------------------------------------------------------------------------------------------------- */

typedef struct drawn {
    moved_options o;
    uint64_t lengths[3];
    double offset, grain;
    bool scored, sinks;
    char text[300];
} drawn;

/* Logits are whole numbers times a grain that float32 has room for beside the offset: at 1e8 neighbours are 8 apart.
 * Beside larger offsets the logits are lost, and all are equal. */
static void draw(drawn *d, uint64_t seed, const moved_options *base) {
    static const struct { double offset, grain; } offsets[] = {
        {0, 1}, {-1e6, 0.5}, {1e8, 8}, {-1e8, 8}, {-1e9, 64}, {1e9, 64}, {1e30, 1}, {-2.4e38, 1}, {2.4e38, 1},
        {-3.4028234663852886e38, 1}, {0, 100}, {0, 4096}};
    static const char *const masks[] = {"full", "causal", "window", "odd", "head", "tail", "gap"};
    enum { OFFSETS = sizeof offsets / sizeof *offsets, MASKS = sizeof masks / sizeof *masks };
    uint64_t state = seed * 77 + 5;
    memset(d, 0, sizeof *d);
    d->o = *base;
    moved_options *o = &d->o;
    o->seed = seed;
    o->ranks = 1 + moved_draw(&state, 5);
    o->kv_heads = 1 + moved_draw(&state, 2);
    o->heads = o->kv_heads * (1 + moved_draw(&state, 2));
    o->range_kv = moved_draw(&state, 2) ? 1 : o->kv_heads;
    o->head_dim = 16;
    o->dtype = moved_draw(&state, 3) ? FCP_FP32 : FCP_BF16;
    o->wire = moved_draw(&state, 3) ? FCP_FP32 : FCP_BF16;
    o->block = 128;
    o->unit = 40 + moved_draw(&state, 89);
    o->mask = masks[moved_draw(&state, MASKS)];
    o->count = 1 + moved_draw(&state, 3);
    for (uint32_t i = 0; i < o->count; i++) d->lengths[i] = 1 + moved_draw(&state, i ? 60 : 300);
    o->lengths = d->lengths;
    const uint32_t which = seed % OFFSETS;
    d->offset = offsets[which].offset;
    d->grain = offsets[which].grain;
    d->scored = d->offset != 0;
    d->sinks = moved_draw(&state, 3) == 0;
    snprintf(d->text, sizeof d->text,
             "seed %lu: %u ranks, %u/%u heads of %u and %u%s, %s, wire %s, %s, offset %g, grain %g%s%s, %u sequences, "
             "%lu tokens first", (unsigned long)seed, o->ranks, o->heads, o->kv_heads, o->head_dim,
             o->value_dim ? o->value_dim : o->head_dim, o->values_in_keys ? " in keys" : "", fcp_dtype_name(o->dtype),
             fcp_dtype_name(o->wire), o->mask, d->offset, d->grain, d->sinks ? ", sinks" : "",
             o->lse_gradient ? ", dLSE" : "", o->count, (unsigned long)d->lengths[0]);
}

/* score: s + offset */
static void put_score(hand *h, hand_score *store, const drawn *d) {
    hand_score_put(h, store, d->scored ? "same" : NULL, d->sinks);
    if (!d->scored) return;
    hand_code score = {store->score, 0}, slope = {store->slope, 0};
    hs2(&score, MC_ADD_F, hs0(&score, MC_S), hs_real(&score, d->offset));
    hs_real(&slope, 1);
    h->plan.score_count = score.count;
    h->plan.slope_count = slope.count;
    for (uint32_t i = 0; i < d->o.heads; i++) store->sink[i] = (double)(float)(store->sink[i] + d->offset);
}

/* What roundings of O and of partials on the wire come to, and of sums of 300 terms. */
static double within(const drawn *d) {
    return d->o.dtype == FCP_BF16 || d->o.wire == FCP_BF16 ? 0x1p-6 : 2e-5;
}

static void try_seed(uint64_t seed, const moved_options *base, uint32_t *out_merges) {
    drawn d;
    hand_score *store = calloc(1, sizeof *store);
    draw(&d, seed, base);
    hand *h = moved_make(&d.o);
    cr_assert(h && store);
    put_score(h, store, &d);
    bench b = open(&h->plan, 1 + seed % 4);
    exact_draw(&b.shape, seed, d.grain, &b.packed);
    run(&b);
    exact e = exact_make(&h->plan, &b.packed);
    const exact_found found = exact_compare(&e, &b.packed, within(&d));
    cr_assert(!*found.wrong, "%s: %s", d.text, found.wrong);
    for (uint32_t i = 0; i < h->instr_count; i++) *out_merges += h->instrs[i].op == FCP_OP_MERGE;
    exact_free(&e);
    close(&b);
    hand_free(h);
    free(store);
}

static void try_seeds(const moved_options *base) {
    const char *from = getenv("FAR_SEED");
    const uint64_t first = from ? strtoul(from, NULL, 10) : 1;
    uint32_t merges = 0;
    for (uint64_t seed = first; seed < first + amount(36, 400); seed++) try_seed(seed, base, &merges);
    cr_assert(merges, "no state was merged");
}

Test(far, drawn_plans) { try_seeds(&(moved_options){0}); }
Test(far, a_gradient_of_lse) { try_seeds(&(moved_options){.lse_gradient = true}); }
Test(far, values_narrower_than_keys) { try_seeds(&(moved_options){.value_dim = 5, .lse_gradient = true}); }
Test(far, values_wider_than_keys) { try_seeds(&(moved_options){.value_dim = 40}); }
Test(far, values_in_keys) { try_seeds(&(moved_options){.value_dim = 11, .values_in_keys = true}); }
Test(far, values_are_the_keys) { try_seeds(&(moved_options){.values_in_keys = true, .lse_gradient = true}); }
