/* test_far.c: tests logits of any size on the host: the output of a row depends on the differences between its logits,
 * and not on how large they are. Results are held against exact_attention.h. Also heads of V with a width of their own,
 * values in keys, gradients of LSE, and the largest logits, for which exact_attention.h is the definition, too. */
#include <stdio.h>
#include <string.h>

#include "runtime/judge/packed.h"
#include "tests/support/amount.h"
#include "tests/support/exact_attention.h"
#include "tests/support/hand_score.h"
#include "tests/support/judge_packed.h"
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
            const double o = (double)numbers(&b, FCP_TENSOR_O)[j], dv = (double)numbers(&b, FCP_TENSOR_DV)[j];
            cr_assert(o == 1 && fabs(dv - 1) < 1e-6, "%s: O %g, dV %g", all[i].offset, o, dv);
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

/* Tensors that the plan does not have are refused, by name and before anything runs. */
Test(far, tensors_that_a_plan_has_not) {
    static const struct { const char *model, *says[2]; } all[] = {
        {"", {"", "rank 0: the run has a gradient of LSE, and the plan takes none"}},
        {"; values = keys", {"rank 0: the run has v, and the plan's values are in its keys: k has both",
                             "rank 0: the run has dv, and the plan's values are in its keys: dk is the gradient of both"}}};
    for (int i = 0; i < 2; i++) {
        char text[200];
        snprintf(text, sizeof text, "model { heads = 1; head_dim = 8; dtype = fp32%s }\nbatch { lengths = [4] }\n"
                 "plan { mask = full; block = 4 }\n", all[i].model);
        fcp_plan *plan = plan_of(text);
        bench b = open(plan, 1);
        fcp_tensors x = {0};
        fcp_packed_draw(&b.shape, ALL, 1, &b.packed);
        for (int t = 0; t < FCP_TENSORS; t++) fcp_tensors_set(&x, (fcp_tensor)t, b.packed.t[t]);
        if (i) x.d_lse = NULL;
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            fcp_error err = {0};
            const char *says = all[i].says[pass];
            const fcp_code code = fcp_session_run(b.session, (fcp_pass)pass, &x, &err);
            cr_assert(*says ? code == FCP_E_TENSOR && strstr(err.message, says) : code == FCP_OK, "%s", err.message);
            if (pass == FCP_FORWARD && i) x.v = NULL;
        }
        x.d_lse = NULL, x.dv = i ? NULL : x.dv;
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert(fcp_session_run(b.session, (fcp_pass)pass, &x, NULL) == FCP_OK, "without them it runs");
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
    for (uint64_t seed = first; seed < first + amount(36, 150); seed++) try_seed(seed, base, &merges);
    cr_assert(merges, "no state was merged");
}

Test(far, drawn_plans) { try_seeds(&(moved_options){0}); }
Test(far, a_gradient_of_lse) { try_seeds(&(moved_options){.lse_gradient = true}); }
Test(far, values_narrower_than_keys) { try_seeds(&(moved_options){.value_dim = 5, .lse_gradient = true}); }
Test(far, values_wider_than_keys) { try_seeds(&(moved_options){.value_dim = 40}); }
Test(far, values_in_keys) { try_seeds(&(moved_options){.value_dim = 11, .values_in_keys = true}); }
Test(far, values_are_the_keys) { try_seeds(&(moved_options){.values_in_keys = true, .lse_gradient = true}); }

/* --- against the judge -------------------------------------------------------------------------------------------- */

/* Drawn inputs, which float32 does not hold exactly, a hundred and ten thousand times as large: rows see one key. */
static void large_inputs(const char *dtype, const char *plan_keys, float times) {
    char text[400];
    snprintf(text, sizeof text,
             "model { heads = 2; kv_heads = 1; head_dim = 32; dtype = %s }\ncluster { nodes = 2; gpus = 2 }\n"
             "batch { lengths = [400, 40] }\nplan { mask = window(w = 140); block = 128; %s }\n", dtype, plan_keys);
    fcp_plan *plan = plan_of(text);
    bench b = open(plan, 2);
    fcp_packed_draw(&b.shape, ALL, 4, &b.packed);
    for (int t = 0; t < FCP_TENSORS; t++) {
        const size_t size = fcp_dtype_size(b.shape.dtype);
        if (t != FCP_TENSOR_Q && t != FCP_TENSOR_K && t != FCP_TENSOR_V) continue;
        for (size_t i = 0; i < exact_count(&b.shape, t); i++) {
            char *at = (char *)b.packed.t[t] + i * size;
            float x;
            fcp_to_float(b.shape.dtype, at, &x, 1);
            x *= times;
            fcp_from_float(b.shape.dtype, &x, at, 1);
        }
    }
    run(&b);
    judge_packed(plan, 3, &b.packed, text);
    const float *lse = numbers(&b, FCP_TENSOR_LSE);
    cr_assert(fabs((double)lse[0]) > 100, "logits are large: %g", (double)lse[0]);
    close(&b);
    fcp_plan_free(plan);
}

Test(far, large_inputs) {
    static const char *const plans[] = {"strategy = fcp", "strategy = ring; layout = contiguous",
                                        "strategy = dcp(divisions = 4); layout = contiguous"};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 2; j++) {
            large_inputs("fp32", plans[i], j ? 1e4f : 100);
            large_inputs("bf16", plans[i], j ? 1e4f : 100);
        }
}

/* --- what a run learns -------------------------------------------------------------------------------------------- */

/* Sinks and tables that put logits far from zero get their gradients all the same, and a gradient of LSE reaches
 * them. */
static void learn(double offset) {
    enum { KEYS = 40, HEADS = 2 };
    char text[1600], *at = text, *end = text + sizeof text;
    at += snprintf(at, sizeof text, "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32\n  table bias = [");
    for (int k = 0; k < KEYS; k++) at += snprintf(at, (size_t)(end - at), "%s%.1f", k ? ", " : "", offset + k % 3 * 8);
    snprintf(at, (size_t)(end - at),
             "] }\nbatch { lengths = [%d] }\nscore far = s + bias[k]\n"
             "plan { mask = causal; score = far; sink = [%.1f, %.1f]; block = 16; lse_gradient = true }\n", KEYS,
             offset, offset + 8);
    fcp_plan *plan = plan_of(text);
    bench b = open(plan, 2);
    fcp_error err = {0};
    fcp_tensors x = {0};
    float d_sink[HEADS], d_table[KEYS];
    exact_draw(&b.shape, 9, 8, &b.packed);
    for (int t = 0; t < FCP_TENSORS; t++) fcp_tensors_set(&x, (fcp_tensor)t, b.packed.t[t]);
    x.d_sink = d_sink;
    x.d_table = d_table;
    x.max_logit = b.packed.max_logit;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert(fcp_session_run(b.session, (fcp_pass)pass, &x, &err) == FCP_OK, "%s", err.message);
    exact e = exact_make(plan, &b.packed);
    const exact_found found = exact_compare(&e, &b.packed, 2e-5);
    cr_assert(!*found.wrong, "%g: %s", offset, found.wrong);
    for (int h = 0; h < HEADS; h++)
        cr_assert(fabs((double)d_sink[h] - e.d_sink[h]) < 1e-5, "%g: sink %d: %g, not %g", offset, h, (double)d_sink[h],
                  e.d_sink[h]);
    for (int k = 0; k < KEYS; k++)
        cr_assert(fabs((double)d_table[k] - e.d_table[k]) < 2e-5, "%g: key %d: %g, not %g", offset, k,
                  (double)d_table[k], e.d_table[k]);
    cr_assert(fabs(e.d_sink[0]) > 1e-3 && fabs(e.d_table[0]) > 1e-3, "there is something to learn");
    exact_free(&e);
    close(&b);
    fcp_plan_free(plan);
}

Test(far, gradients_of_sinks_and_tables) {
    learn(0);
    learn(-1e8);
    learn(1e8);
}
