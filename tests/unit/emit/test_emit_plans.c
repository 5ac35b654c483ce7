/* test_emit_plans.c: tests the mask code that is printed for the plans of all examples. It is compiled as C and
 * compared with the interpreter, in the environment that kernels get (runtime/worklists/worklists.h), at positions of
 * every sequence and side. */
#include "runtime/plan/plan_arrays.h"
#include "tests/support/plan_of.h"

#include <dlfcn.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/jit/kernel_source.h"
#include "runtime/worklists/worklists.h"
#include "tests/support/emitted.h"

enum { PLANS = 100, POINTS = 300, SEQUENCES = 5 };

static uint64_t draw(uint64_t *state, uint64_t below) {
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (*state >> 20) % below;
}

/* The emitted functions of a plan, renamed, behind what they need. */
static void write_functions(FILE *f, const fcp_plan *plan, size_t number) {
    char *source;
    fcp_error err;
    cr_assert_eq(fcp_kernel_source(plan, EMIT_FORWARD, false, &source, &err), FCP_OK, "%s", err.message);
    const char *abi = strstr(source, "#line 1 \"abi.h\"\n"), *prims = strstr(source, "#line 1 \"prim_ptx.h\"\n");
    const char *from = strstr(source, "#line 1 \"emitted\"\n"), *to = strstr(source, "#line 1 \"common.h\"\n");
    cr_assert(abi && prims && from && to && abi < prims && prims < from && from < to);
    if (number == 0)
        fprintf(f, "#define FK_DEVICE static inline\n#include <math.h>\n%.*s" EMITTED_PRIMITIVES, (int)(prims - abi),
                abi);
    fprintf(f, "#define fk_allow allow_in_%zu\n#define fk_score score_in_%zu\n#define fk_slope slope_in_%zu\n"
            "#define fk_keys keys_in_%zu\n#define fk_queries queries_in_%zu\n%.*s",
            number, number, number, number, number, (int)(to - from), from);
    fprintf(f, "int allow_%zu(const fk_env *e, fk_i64 q, fk_i64 k, int h) { return fk_allow(e, q, k, h); }\n", number);
    if (plan->score_count)
        fprintf(f, "float score_%zu(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) { return fk_score(e, s, q, k, "
                   "h); }\n"
                "float slope_%zu(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) { return fk_slope(e, s, q, k, "
                "h); }\n",
                number, number);
    fprintf(f, EMITTED_SPANS, (unsigned long)number, (unsigned long)number);
    fprintf(f, "#undef fk_allow\n#undef fk_score\n#undef fk_slope\n");
    free(source);
}

struct listed {
    fcp_plan *const *plans;
    size_t count;
};
static void write_listed(FILE *f, const void *context) {
    const struct listed *l = context;
    for (size_t i = 0; i < l->count; i++) write_functions(f, l->plans[i], i);
}
static void *compile(fcp_plan *const *plans, size_t count) {
    return emitted_library("-w", write_listed, &(struct listed){plans, count});
}

static bool near(double got, double want) {
    return got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= 2e-5 * (1 + fabs(want));
}

/* Compares the function that gives a query's keys, or a key's queries, at once; NULL: there is none. */
static void compare_spans(emitted_spans *f, bool keys, mc_code mask, const mc_env *env, const fk_env *device, int64_t q,
                          int64_t k, int64_t h, int64_t *scratch, const char *what) {
    fk_u32 got = f ? f(device, q, k, 128, (int)h) : 0;
    for (int i = 0; f && i < 32; i++) {
        int64_t on = emitted_column(i), to_q = q + (keys ? 0 : on), to_k = k + (keys ? on : 0);
        if (to_k >= env->n || to_q >= env->q_first + env->queries) continue;
        cr_assert_eq(got >> i & 1, mc_eval(mask, env, to_q, to_k, h, scratch), "%s: %s, q %lld, k %lld, h %lld, bit %d",
                     what, keys ? "keys" : "queries", (long long)q, (long long)k, (long long)h, i);
    }
}

/* Counts the pairs that are allowed. */
static uint64_t compare(const fcp_plan *plan, void *library, size_t number, const char *what) {
    emitted_allow *allow;
    emitted_score *score = NULL, *slope = NULL;
    emitted_spans *keys, *queries;
    *(void **)&keys = emitted_find(library, "keys", number);
    *(void **)&queries = emitted_find(library, "queries", number);
    *(void **)&allow = emitted_function(library, "allow", number);
    if (plan->score_count) *(void **)&score = emitted_function(library, "score", number);
    if (plan->score_count) *(void **)&slope = emitted_function(library, "slope", number);
    fk_sequence *sequences = calloc(plan->sequences_count + 1, sizeof *sequences);
    fk_u64 *addresses = calloc(plan->sequences_count * plan->arrays_count + 1, sizeof *addresses);
    fk_bands *device_bands = calloc(plan->slices_count + 1, sizeof *device_bands);
    mc_array *arrays = calloc(plan->arrays_count + 1, sizeof *arrays);
    mc_bands *bands = calloc(plan->slices_count + 1, sizeof *bands);
    int64_t *scratch = calloc(plan->mask_count + plan->score_count + plan->slope_count, sizeof *scratch);
    void *data = malloc(plan->data_count + 1);
    cr_assert(sequences && addresses && device_bands && arrays && bands && scratch && data);
    fcp_launch_sequences(plan, sequences);
    fcp_launch_data(plan, data);
    fcp_launch_arrays(plan, (uintptr_t)data, addresses);
    fcp_launch_bands(plan, (uintptr_t)plan->band_rows, (uintptr_t)plan->bands, device_bands);
    const mc_code mask = {plan->mask, (uint32_t)plan->mask_count}, scored = {plan->score, (uint32_t)plan->score_count},
                  sloped = {plan->slope, (uint32_t)plan->slope_count};
    uint64_t state = number + 1, yes = 0;
    for (uint32_t n = 0; n < plan->sequences_count && n < SEQUENCES; n++) {
        uint32_t s = n + 1 < SEQUENCES ? n : (uint32_t)plan->sequences_count - 1;
        mc_env env;
        fcp_plan_env(plan, s, arrays, bands, &env);
        const fk_env device = {sequences[s], addresses + s * plan->arrays_count, device_bands};
        for (int i = 0; i < POINTS; i++) {
            int64_t q = env.q_first + (int64_t)draw(&state, (uint64_t)env.queries),
                    k = (int64_t)draw(&state, (uint64_t)env.n);
            if (i % 3 == 0) k = q - (int64_t)draw(&state, 130);
            if (k < 0 || k >= env.n) k = env.n - 1;
            int64_t h = (int64_t)draw(&state, plan->problem->heads);
            bool want = mc_eval(mask, &env, q, k, h, scratch);
            yes += want;
            cr_assert_eq(allow(&device, q, k, (int)h) != 0, want, "%s: sequence %u, q %lld, k %lld, h %lld", what, s,
                         (long long)q, (long long)k, (long long)h);
            compare_spans(keys, true, mask, &env, &device, q, k, h, scratch, what);
            compare_spans(queries, false, mask, &env, &device, q, k, h, scratch, what);
            if (!score || !want) continue; /* a score of other pairs may read any element of a table */
            double x = (double)draw(&state, 4096) / 256 - 8;
            double wanted = mc_eval_score(scored, &env, q, k, h, x, scratch),
                   got = score(&device, (float)x, q, k, (int)h);
            cr_assert(near(got, wanted), "%s: q %lld, k %lld: score %g, not %g", what, (long long)q, (long long)k, got,
                      wanted);
            wanted = mc_eval_score(sloped, &env, q, k, h, x, scratch), got = slope(&device, (float)x, q, k, (int)h);
            cr_assert(near(got, wanted), "%s: q %lld, k %lld: slope %g, not %g", what, (long long)q, (long long)k, got,
                      wanted);
        }
    }
    free(sequences);
    free(addresses);
    free(device_bands);
    free(arrays);
    free(bands);
    free(scratch);
    free(data);
    return yes;
}

Test(emit_plans, examples) {
    /* beside the examples: queries before every key, slices, and 64-bit products */
    static const char *const texts[] = {
        "model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
        "batch { lengths = [700:200, 90:500, 128] }\nmask m = (q - k) % 7 < 4 or q / 5 == k / 5\n"
        "plan { mask = m; block = 128 }\n",
        "model { heads = 2; kv_heads = 1; head_dim = 64; dtype = bf16 }\ncluster { nodes = 1; gpus = 1 }\n"
        "batch { lengths = [70K] }\nmask m = q * k * (h + 1) % 1000 <= q * 3 - k\nplan { mask = m; block = 2K }\n"};
    fcp_plan *plans[PLANS];
    glob_t files;
    cr_assert_eq(glob("examples/*.fcp", 0, NULL, &files), 0);
    cr_assert_eq(glob("examples/masks/*.fcp", GLOB_APPEND, NULL, &files), 0);
    cr_assert_eq(glob("examples/scores/*.fcp", GLOB_APPEND, NULL, &files), 0);
    size_t count = files.gl_pathc, all = count + sizeof texts / sizeof *texts;
    cr_assert_leq(all, PLANS);
    const char *const defines[] = {"model.dtype=bf16"};
    for (size_t i = 0; i < all; i++)
        plans[i] =
            i < count ? plan_with(files.gl_pathv[i], NULL, defines, 1) : plan_named("text.fcp", texts[i - count]);
    void *library = compile(plans, all);
    for (size_t i = 0; i < all; i++) {
        uint64_t yes = compare(plans[i], library, i, i < count ? files.gl_pathv[i] : "text.fcp");
        cr_assert(yes > 10, "%s: %llu pairs are allowed: too few to mean anything",
                  i < count ? files.gl_pathv[i] : "text", (unsigned long long)yes);
        fcp_plan_free(plans[i]);
    }
    dlclose(library);
    globfree(&files);
}
