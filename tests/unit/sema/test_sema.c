/* test_sema.c: tests what programs mean: keys, defaults, units, overrides, and masks, against an evaluator of the
 * test's own. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/sema/program.h"
#include "runtime/plan/plan.h"
#include "runtime/plan/plan_summary.h"

/* Compiles; reports what was said when that was not expected. */
static fcpc_program *compile_with(const char *source, const fcpc_options *options) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    if (fcpc_parse_text("a.fcp", source, strlen(source), options, d, &p) != FCP_OK) {
        char *said = fcpc_diagnostics_render(d, false);
        cr_assert_fail("%s\n%s", source, said);
    }
    fcpc_diagnostics_free(d);
    return p;
}

static fcpc_program *compile(const char *source) { return compile_with(source, NULL); }

static fcp_code code_of(const char *source, const fcpc_options *options) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    fcp_code code = fcpc_parse_text("a.fcp", source, strlen(source), options, d, &p);
    cr_expect_eq(code == FCP_OK, p != NULL);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    return code;
}

Test(sema, defaults) {
    fcpc_program *p = compile("plan { mask = causal }");
    cr_expect_eq(p->heads, 8);
    cr_expect_eq(p->kv_heads, 8);
    cr_expect_eq(p->head_dim, 128);
    cr_expect_eq(p->value_dim, 128);
    cr_expect(!p->values_in_keys && !p->lse_gradient);
    cr_expect_eq(p->dtype, FCP_BF16);
    cr_expect_eq(p->scale, 1.0 / sqrt(128.0));
    cr_expect_eq(p->nodes, 1);
    cr_expect_eq(p->gpus, 1);
    cr_expect_eq(p->topology, FCP_FAT_TREE);
    cr_expect_str_eq(p->cluster.gpu, "h100");
    cr_expect_eq(p->cluster.intra, UINT64_C(450000000000));
    cr_expect_eq(p->cluster.inter, UINT64_C(50000000000));
    cr_expect_eq(p->cluster.flops, UINT64_C(989000000000000));
    cr_expect_eq(p->cluster.oversubscription_milli, 1000);
    cr_expect_eq(p->memory_cap, UINT64_C(80000000000));
    cr_expect_null(p->lengths);
    cr_expect_eq(p->block, BLOCK_AUTO);
    cr_expect_eq(p->strategy, FCP_STRATEGY_FCP);
    cr_expect_eq(p->coalesce, 16);
    cr_expect_eq(p->buffers, 3);
    cr_expect(p->passes[FCP_FORWARD] && p->passes[FCP_BACKWARD]);
    cr_expect_eq(p->layout, FCP_LAYOUT_PLANNED);
    cr_expect(p->deterministic);
    cr_expect_str_eq(p->mask_name, "causal");
    const span none = SPAN_NONE;
    cr_expect_eq(p->at[AT_BLOCK].source, none.source);
    cr_expect_str_eq(p->canonical, "plan {\n    mask = causal\n}\n");
    cr_expect_str_eq(p->plan_source, p->canonical);
    fcpc_program_free(p);
}

Test(sema, every_key) {
    fcpc_program *p = compile(
        "model { heads = 64; kv_heads = 8; head_dim = 64; value_dim = 48; values = keys; dtype = fp32; scale = 0.1 }\n"
        "cluster { nodes = 4; gpus = 8; gpu = a100; intra = 1.5 TB/s; inter = 12 MB/s; latency = 2.5 us\n"
        "  flops = 0.5 PFLOP/s\n"
        "  memory = 1234 MB; memory_bandwidth = 3 GB/s; fabric = rail; oversubscription = 2.5 }\n"
        "batch { lengths = [5, 7 x 3, 2 * 8] }\n"
        "plan { mask = window(w = 4K); block = 128; strategy = ring(coalesce = 64, buffers = 8); passes = forward\n"
        "  layout = zigzag; margin = 0; deterministic = false }");
    cr_expect_eq(p->heads, 64);
    cr_expect_eq(p->kv_heads, 8);
    cr_expect_eq(p->head_dim, 64);
    cr_expect_eq(p->value_dim, 48);
    cr_expect(p->values_in_keys);
    cr_expect_eq(p->dtype, FCP_FP32);
    cr_expect_eq(p->scale, 0.1);
    cr_expect_eq(p->nodes * p->gpus, 32);
    cr_expect_str_eq(p->cluster.gpu, "a100");
    cr_expect_eq(p->cluster.intra, UINT64_C(1500000000000));
    cr_expect_eq(p->cluster.inter, 12000000);
    cr_expect_eq(p->cluster.latency_ns, 2500);
    cr_expect_eq(p->cluster.flops, UINT64_C(500000000000000));
    cr_expect_eq(p->cluster.memory_bandwidth, UINT64_C(3000000000));
    cr_expect_eq(p->memory_cap, 1234000000);
    cr_expect_eq(p->topology, FCP_RAIL);
    cr_expect_eq(p->cluster.oversubscription_milli, 2500);
    const uint64_t lengths[] = {5, 7, 7, 7, 16};
    cr_expect_eq(p->length_count, 5);
    cr_expect_arr_eq(p->lengths, lengths, sizeof lengths);
    cr_expect_str_eq(p->mask_name, "window(w = 4096)");
    cr_expect_eq(p->block, 128);
    cr_expect_eq(p->strategy, FCP_STRATEGY_RING);
    cr_expect_eq(p->coalesce, 64);
    cr_expect_eq(p->buffers, 8);
    cr_expect(p->passes[FCP_FORWARD] && !p->passes[FCP_BACKWARD]);
    cr_expect_eq(p->layout, FCP_LAYOUT_ZIGZAG);
    cr_expect_eq(p->margin, 0);
    cr_expect(!p->deterministic);
    cr_expect_null(strstr(p->plan_source, "lengths"));
    cr_expect_not_null(strstr(p->canonical, "lengths = [5, 7 x 3, 2 * 8]"));
    fcpc_program_free(p);
}

/* value_dim is head_dim where it is not given, also for values in keys; lse_gradient is for plans with a backward pass,
 * and the default scale goes by head_dim. */
Test(sema, heads_of_two_widths) {
    static const struct { const char *source; uint32_t head_dim, value_dim; bool in_keys, gradient; } cases[] = {
        {"model { head_dim = 192; value_dim = 128 }\nplan { mask = causal; lse_gradient = true }", 192, 128, false, true},
        {"model { head_dim = 64; value_dim = 1K }\nplan { mask = causal }", 64, 1024, false, false},
        {"model { head_dim = 576; values = keys }\nplan { mask = causal; lse_gradient = false }", 576, 576, true, false},
        {"model { value_dim = 128; values = keys }\nplan { mask = causal }", 128, 128, true, false},
        {"model { values = own }\nplan { mask = causal; lse_gradient = true; passes = forward }", 128, 128, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fcpc_program *p = compile(cases[i].source);
        cr_expect_eq(p->head_dim, cases[i].head_dim);
        cr_expect_eq(p->value_dim, cases[i].value_dim);
        cr_expect_eq(p->values_in_keys, cases[i].in_keys);
        cr_expect_eq(p->lse_gradient, cases[i].gradient);
        cr_expect_eq(p->scale, 1.0 / sqrt(cases[i].head_dim));
        fcpc_program_free(p);
    }
}

/* Decimal to double, rounded once: the compiler's own conversion is the judge. */
Test(sema, scale_is_exact) {
    uint64_t state = 5;
    for (int i = 0; i < 3000; i++) {
        char digits[64], source[160];
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        uint64_t whole = state >> (40 + i % 24), part = (state * 77) >> (8 + i % 50);
        snprintf(digits, sizeof digits, "%" PRIu64 ".%0*" PRIu64, whole % 1000, i % 13 + 1, part % 100000000000000);
        snprintf(source, sizeof source, "model { scale = %s }\nplan { mask = full }", digits);
        double expected = strtod(digits, NULL);
        if (expected == 0) continue;
        size_t count = strspn(digits, "0.");
        size_t left = strlen(digits + count) - (strchr(digits + count, '.') != NULL);
        if (left > 18) continue;
        fcpc_program *p = compile(source);
        cr_assert_eq(p->scale, expected, "%s: %.17g", digits, p->scale);
        fcpc_program_free(p);
    }
}

/* Pairs of a mask that names h are counted for each head, whether or not heads differ in the end. */
Test(sema, pairs_of_a_mask_that_names_h) {
    static const struct { const char *mask; uint64_t heads; } masks[] = {
        {"causal", 1}, {"causal and h >= 0", 4}, {"causal and h * 0 == 0", 4}, {"h * 0 == 0", 4}, {"true", 1},
        {"causal and (1 > 0 or h < 2)", 4}, {"causal and f(h) where { f(x) = x * 0 == 0 }", 4},
        {"causal and f(q) where { f(x) = x * 0 == 0 }", 1}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char source[300];
        snprintf(source, sizeof source,
                 "model { heads = 4 }\nbatch { lengths = [700] }\nmask m = %s\nplan { mask = m }", masks[i].mask);
        fcpc_program *p = compile(source);
        fcp_plan *plan = NULL;
        cr_assert_eq(fcpc_plan(p, NULL, 0, NULL, NULL, NULL, &plan), FCP_OK, "%s", source);
        const uint64_t pairs = strstr(masks[i].mask, "causal") ? 700 * 701 / 2 : 700 * 700;
        cr_expect_eq(plan->summary->pairs, pairs * masks[i].heads, "%s: %" PRIu64, masks[i].mask, plan->summary->pairs);
        fcp_plan_free(plan);
        fcpc_program_free(p);
    }
}

Test(sema, only_mask_is_the_plans) {
    fcpc_program *p = compile("mask mine(w = 3, deep = true) = q - k < w and deep");
    cr_expect_str_eq(p->mask_name, "mine(w = 3, deep = true)");
    fcpc_program_free(p);
    cr_expect_eq(code_of("mask a = full\nmask b = full", NULL), FCP_E_MISSING);
    cr_expect_eq(code_of("mask a(w) = k < w", NULL), FCP_E_ARGUMENT);
}

Test(sema, overrides) {
    const char *defines[] = {"cluster.nodes=32",      "plan.block=2K", "plan.strategy.coalesce=8", "buffers = 5",
                             "plan.mask.window = 8K", "lambda.sink=3", "passes=forward",           "kv_heads=2",
                             "batch.lengths=[4 x 2]", "plan.block=1K"};
    const fcpc_options options = {.size = sizeof(fcpc_options),
                                  .defines = defines,
                                  .define_count = sizeof defines / sizeof *defines};
    fcpc_program *p = compile_with("plan { mask = lambda(window = 5) ; block = 512 }", &options);
    cr_expect_eq(p->nodes, 32);
    cr_expect_eq(p->block, 1024);
    cr_expect_eq(p->coalesce, 8);
    cr_expect_eq(p->buffers, 5);
    cr_expect_eq(p->kv_heads, 2);
    cr_expect_eq(p->length_count, 2);
    cr_expect(!p->passes[FCP_BACKWARD]);
    cr_expect_str_eq(p->mask_name, "lambda(sink = 3, window = 8192)");
    /* the printed program is the overridden one */
    fcpc_program *again = compile(p->canonical);
    cr_expect_str_eq(p->canonical, again->canonical);
    cr_expect_str_eq(p->mask_name, again->mask_name);
    cr_expect_eq(again->block, 1024);
    cr_expect_eq(again->strategy, FCP_STRATEGY_FCP);
    fcpc_program_free(again);
    fcpc_program_free(p);
}

Test(sema, override_codes) {
    static const struct { const char *define; fcp_code code; } cases[] = {{"plan.mask=causal", FCP_OK},
                 {"mask=full", FCP_OK},
                 {"mask=window(w = 3)", FCP_OK},
                 {"w=4", FCP_OK},
                 {"mine.w=4", FCP_OK},
                 {"plan.mask.w=4", FCP_OK},
                 {"mask.w=4", FCP_OK},
                 {"causal_blockwise.b=3", FCP_OK},
                 {"strategy=zigzag", FCP_OK},
                 {"strategy.buffers=2", FCP_OK},
                 {"block=auto", FCP_OK},
                 {" block = 2K ", FCP_OK},
                 {"nosuch=3", FCP_E_UNKNOWN_NAME},
                 {"plan.nosuch=3", FCP_E_UNKNOWN_NAME},
                 {"plan.mask.nosuch=3", FCP_E_UNKNOWN_NAME},
                 {"mine.nosuch=3", FCP_E_UNKNOWN_NAME},
                 {"v=3", FCP_E_AMBIGUOUS},
                 {"block", FCP_E_SYNTAX},
                 {"block=", FCP_E_SYNTAX},
                 {"block=1 2", FCP_E_SYNTAX},
                 {"block=130", FCP_E_BLOCK},
                 {"heads=0", FCP_E_HEADS},
                 {"block.x=3", FCP_E_UNKNOWN_NAME},
                 {"", FCP_E_SYNTAX},
                 {"=", FCP_E_SYNTAX},
                 {"plan=3", FCP_E_UNKNOWN_NAME},
                 {"mine=3", FCP_E_UNKNOWN_NAME},
                 {"mask=nosuch", FCP_E_UNKNOWN_NAME},
                 {"w=q", FCP_E_TYPE},
                 {"w=1.5", FCP_E_TYPE},
                 {"w=true", FCP_E_TYPE}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *defines[] = {cases[i].define};
        const fcpc_options options = {.size = sizeof(fcpc_options), .defines = defines, .define_count = 1};
        static const char source[] =
            "mask mine(w = 3, v = 1) = q - k < w + v\nmask other(v = 4) = q - k < v\nplan { mask = mine }";
        static const char unique[] =
            "mask mine(w = 3) = q - k < w\nmask b(v = 1) = k < v\nmask c(v = 1) = k < v\nplan { mask = mine }";
        fcp_code code = code_of(cases[i].code == FCP_E_AMBIGUOUS ? unique : source, &options);
        cr_expect_eq(code, cases[i].code, "-D %s: %s", cases[i].define, fcp_code_name(code));
    }
}

/* No bytes after -D break anything. A program with what they set prints to a text that compiles to the same program. */
Test(sema, override_noise) {
    static const char *const words[] = {"plan", "mask", ".", "=", "w", "mine", "lambda", "window", "block", "2K",
                                        "[", "]", "1 x 3", "lengths", "if", "(", ")", "fcp", "auto", "3 GB",
                                        "heads", "model", "batch", "strategy", ",", "256", "-", "\xff", "\"a\"", "+"};
    uint64_t state = 77;
    size_t good = 0;
    for (int round = 0; round < 4000; round++) {
        char define[300] = "";
        static const char *const starts[] = {"",        "plan.mask.w=",       "block=",
                                             "mine.w=", "plan.strategy=fcp(", "batch.lengths=["};
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
        strcat(define, starts[(state >> 33) % 6]);
        for (unsigned i = (state >> 40) % 5; i; i--) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
            strcat(define, words[(state >> 33) % 30]);
        }
        const char *defines[] = {define};
        const fcpc_options options = {.size = sizeof(fcpc_options), .defines = defines, .define_count = 1};
        static const char source[] = "mask mine(w = 3) = q - k < w\nplan { mask = mine }";
        fcpc_program *p = NULL;
        if (fcpc_parse_text("a", source, sizeof source - 1, &options, NULL, &p) != FCP_OK) continue;
        good++;
        fcpc_program *again = compile(p->canonical);
        cr_assert_str_eq(again->canonical, p->canonical, "-D %s", define);
        fcpc_program_free(again);
        fcpc_program_free(p);
    }
    cr_expect_gt(good, 20, "%zu", good);
}

Test(sema, shadowing) {
    /* a program's mask hides the prelude's; the prelude's own masks keep theirs */
    fcpc_program *p = compile("mask causal = k == q\nmask mine = causal\nplan { mask = lambda(window = 2, sink = 1) }");
    int64_t scratch[100];
    cr_assert_leq(p->mask.count, 100);
    cr_expect(mc_eval(p->mask, MC_LENGTH(10), 5, 4, 0, scratch));
    fcpc_program_free(p);
    p = compile("mask causal = k == q\nmask mine = causal\nplan { mask = mine }");
    cr_expect(!mc_eval(p->mask, MC_LENGTH(10), 5, 4, 0, scratch));
    cr_expect(mc_eval(p->mask, MC_LENGTH(10), 5, 5, 0, scratch));
    fcpc_program_free(p);
}

Test(sema, diagnostics_object_is_reused) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *p = NULL;
    cr_expect_eq(fcpc_parse_text("a", "plan { mask = 3 }", 17, NULL, d, &p), FCP_E_TYPE);
    cr_expect_eq(fcpc_parse_text("b", "plan { mask = x }", 17, NULL, d, &p), FCP_E_UNKNOWN_NAME);
    cr_expect_eq(fcpc_parse_text("c", "plan { mask = full }", 20, NULL, d, &p), FCP_OK);
    cr_expect_eq(fcpc_diagnostics_count(d), 2);
    fcpc_program_free(p);
    fcpc_diagnostics_free(d);
    cr_expect_eq(fcpc_parse_text("b", "plan { mask = x }", 17, NULL, NULL, &p), FCP_E_UNKNOWN_NAME);
    cr_expect_eq(fcpc_parse_file("no such file", NULL, NULL, &p), FCP_E_READ);
}

/* --- the prelude by its definitions ------------------------------------------------------------------------------- */

static int64_t fdiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }
static int64_t lo(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t hi(int64_t a, int64_t b) { return a > b ? a : b; }

static bool def_full(int64_t q, int64_t k, int64_t n) { return (void)q, (void)k, (void)n, true; }
static bool def_causal(int64_t q, int64_t k, int64_t n) { return (void)n, k <= q; }
static bool def_window(int64_t q, int64_t k, int64_t n) { return (void)n, k <= q && q - k < 5; }
static bool def_both(int64_t q, int64_t k, int64_t n) { return (void)n, -3 <= q - k && q - k <= 5; }
static bool def_prefix(int64_t q, int64_t k, int64_t n) { return (void)n, k < 7 || k <= q; }
static bool def_lambda(int64_t q, int64_t k, int64_t n) { return (void)n, k <= q && (k < 3 || q - k < 6); }
static bool def_shared(int64_t q, int64_t k, int64_t n) {
    int64_t Q = n * 20 / 100, per = hi(1, (n - Q) / 4), a = lo(fdiv(q - Q, per), 3), b = lo(fdiv(k - Q, per), 3);
    return k <= q && (k < Q || a == b);
}
static bool def_blockwise(int64_t q, int64_t k, int64_t n) {
    int64_t t = q / 4, last = (n - 1) / 4;
    if (t == 0 || t == last) return k <= q;
    return k <= q && (k < 4 || k >= hi(4, q - 2 * 4));
}
static bool def_block_causal(int64_t q, int64_t k, int64_t n) { return (void)n, k / 5 <= q / 5; }
static bool def_global(int64_t q, int64_t k, int64_t n) { return (void)n, llabs(q - k) <= 4 || q < 2 || k < 2; }
static bool def_dilated(int64_t q, int64_t k, int64_t n) { return (void)n, llabs(q - k) <= 9 && (q - k) % 3 == 0; }

Test(sema, prelude) {
    static const struct { const char *call; bool (*allow)(int64_t, int64_t, int64_t); } masks[] = {{"full", def_full},
                 {"causal", def_causal},
                 {"window(w = 5)", def_window},
                 {"window_both(l = 5, r = 3)", def_both},
                 {"prefix(p = 7)", def_prefix},
                 {"lambda(sink = 3, window = 6)", def_lambda},
                 {"shared_question", def_shared},
                 {"causal_blockwise(b = 4)", def_blockwise},
                 {"block_causal(b = 5)", def_block_causal},
                 {"global_window(g = 2, w = 4)", def_global},
                 {"dilated(w = 9, d = 3)", def_dilated}};
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        char source[100];
        snprintf(source, sizeof source, "plan { mask = %s }", masks[i].call);
        fcpc_program *p = compile(source);
        cr_expect_null(mc_check(p->mask, MC_MASK, NULL, &(uint32_t){0}));
        int64_t *scratch = malloc(p->mask.count * sizeof *scratch);
        for (int64_t n = 1; n < 45; n += 1 + n / 6)
            for (int64_t q = 0; q < n; q++)
                for (int64_t k = 0; k < n; k++) {
                    bool out = false;
                    uint32_t node;
                    cr_assert_eq(mc_eval_checked(p->mask, MC_LENGTH(n), q, k, 0, scratch, &out, &node), MC_OK);
                    cr_assert_eq(out, masks[i].allow(q, k, n), "%s at n %ld q %ld k %ld", masks[i].call, (long)n,
                                 (long)q, (long)k);
                }
        free(scratch);
        fcpc_program_free(p);
    }
}

/* --- random masks against an evaluator of their own --------------------------------------------------------------- */

typedef enum kind { CONST, VAR, PARAM, NAME, CALL, ADD, SUB, MUL, DIV, MOD, NEG, MIN, MAX, ABS, IF,
                    BOOL, EQ, NE, LT, LE, GT, GE, AND, OR, NOT, IFF, BNE } kind;
typedef struct tree {
    kind kind;
    int64_t value; /* CONST, BOOL; VAR: 0..3; PARAM: index; NAME, CALL: definition */
    struct tree *a, *b, *c;
} tree;
enum { POOL = 4000, DEFS = 4 };
typedef struct world {
    tree pool[POOL];
    int used;
    tree *defs[DEFS];
    bool def_bool[DEFS], def_function[DEFS];
    int def_count;
    bool params; /* are function parameters in scope (two, numbers)? */
    uint64_t state;
    char text[60000];
    size_t size;
} world;

static unsigned roll(world *w, unsigned n) {
    w->state ^= w->state << 13;
    w->state ^= w->state >> 7;
    w->state ^= w->state << 17;
    return (unsigned)(w->state * UINT64_C(0x2545f4914f6cdd1d) >> 40) % n;
}

static tree *node(world *w, kind k, int64_t value, tree *a, tree *b, tree *c) {
    tree *t = &w->pool[w->used++];
    *t = (tree){k, value, a, b, c};
    return t;
}

static tree *draw(world *w, bool is_bool, int depth) {
    if (w->used > POOL - 60) depth = 0;
    /* a definition of the right type */
    if (depth > 0 && w->def_count && !roll(w, 4)) {
        int d = (int)roll(w, (unsigned)w->def_count);
        if (w->def_bool[d] == is_bool) {
            if (!w->def_function[d]) return node(w, NAME, d, NULL, NULL, NULL);
            tree *a = draw(w, false, depth - 1), *b = draw(w, false, depth - 1);
            return node(w, CALL, d, a, b, NULL);
        }
    }
    if (is_bool) {
        if (depth <= 0) return node(w, roll(w, 2) ? LE : LT, 0, draw(w, false, 0), draw(w, false, 0), NULL);
        kind k = (kind)(BOOL + roll(w, BNE - BOOL + 1));
        if (roll(w, 3) == 0) k = roll(w, 2) ? AND : OR;
        switch (k) {
        case BOOL: return node(w, BOOL, roll(w, 2), NULL, NULL, NULL);
        case NOT: return node(w, NOT, 0, draw(w, true, depth - 1), NULL, NULL);
        case AND: case OR: case IFF: case BNE: {
            tree *a = draw(w, true, depth - 1), *b = draw(w, true, depth - 1);
            return node(w, k, 0, a, b, NULL);
        }
        default: {
            tree *a = draw(w, false, depth - 1), *b = draw(w, false, depth - 1);
            return node(w, k, 0, a, b, NULL);
        }
        }
    }
    if (depth <= 0) {
        if (w->params && roll(w, 2)) return node(w, PARAM, roll(w, 2), NULL, NULL, NULL);
        static const int64_t values[] = {0, 1, 2, 3, 7, 64, 128, 1000, INT64_MAX, INT64_C(1) << 62, INT64_C(1) << 32};
        if (roll(w, 3) == 0) return node(w, CONST, values[roll(w, 11)], NULL, NULL, NULL);
        return node(w, VAR, roll(w, 4), NULL, NULL, NULL);
    }
    kind k = (kind)(ADD + roll(w, IF - ADD + 1));
    if (k == NEG || k == ABS) return node(w, k, 0, draw(w, false, depth - 1), NULL, NULL);
    tree *c = k == IF ? draw(w, true, depth - 1) : NULL;
    tree *a = draw(w, false, depth - 1), *b = draw(w, false, depth - 1);
    return node(w, k, 0, a, b, c);
}

static void say(world *w, const char *format, ...) {
    va_list args;
    va_start(args, format);
    w->size += (size_t)vsnprintf(w->text + w->size, sizeof w->text - w->size, format, args);
    va_end(args);
}

static void spell(world *w, const tree *t) {
    static const char *const infix[] = {
        [ADD] = "+", [SUB] = "-", [MUL] = "*", [DIV] = "/",   [MOD] = "%", [EQ] = "==",  [NE] = "!=", [LT] = "<",
        [LE] = "<=", [GT] = ">",  [GE] = ">=", [AND] = "and", [OR] = "or", [IFF] = "==", [BNE] = "!="};
    switch (t->kind) {
    case CONST: say(w, "%" PRId64, t->value); return;
    case BOOL: say(w, t->value ? "true" : "false"); return;
    case VAR: say(w, "%c", "qknh"[t->value]); return;
    case PARAM: say(w, t->value ? "u" : "t"); return;
    case NAME: say(w, "d%d", (int)t->value); return;
    case CALL: case MIN: case MAX:
        if (t->kind == CALL) say(w, "d%d(", (int)t->value);
        else say(w, t->kind == MIN ? "min(" : "max(");
        spell(w, t->a);
        say(w, ", ");
        spell(w, t->b);
        say(w, ")");
        return;
    case ABS: case NEG: case NOT:
        say(w, t->kind == ABS ? "abs(" : t->kind == NEG ? "(-" : "(not ");
        spell(w, t->a);
        say(w, ")");
        return;
    case IF:
        say(w, "(if ");
        spell(w, t->c);
        say(w, " then ");
        spell(w, t->a);
        say(w, " else ");
        spell(w, t->b);
        say(w, ")");
        return;
    default:
        say(w, "(");
        spell(w, t->a);
        say(w, " %s ", infix[t->kind]);
        spell(w, t->b);
        say(w, ")");
    }
}

/* The meaning: 0 fine, else a fault was reached. Arguments come before the call, the right side of and/or only if
 * needed. */
static int eval(const world *w, const tree *t, const int64_t *vars, const int64_t *params, int64_t *out) {
    int64_t a = 0, b = 0;
    switch (t->kind) {
    case CONST: case BOOL: *out = t->value; return 0;
    case VAR: *out = vars[t->value]; return 0;
    case PARAM: *out = params[t->value]; return 0;
    case NAME: return eval(w, w->defs[t->value], vars, NULL, out);
    case CALL: {
        int64_t args[2];
        if (eval(w, t->a, vars, params, &args[0]) || eval(w, t->b, vars, params, &args[1])) return 1;
        return eval(w, w->defs[t->value], vars, args, out);
    }
    case IF:
        if (eval(w, t->c, vars, params, &a)) return 1;
        return eval(w, a ? t->a : t->b, vars, params, out);
    case AND: case OR:
        if (eval(w, t->a, vars, params, out)) return 1;
        return *out == (t->kind == OR) ? 0 : eval(w, t->b, vars, params, out);
    default: break;
    }
    if (eval(w, t->a, vars, params, &a) || (t->b && eval(w, t->b, vars, params, &b))) return 1;
    switch (t->kind) {
    case ADD: return __builtin_add_overflow(a, b, out);
    case SUB: return __builtin_sub_overflow(a, b, out);
    case MUL: return __builtin_mul_overflow(a, b, out);
    case DIV: case MOD:
        if (!b || (a == INT64_MIN && b == -1)) {
            *out = 0;
            return !(b && t->kind == MOD); /* INT64_MIN % -1 is 0, and no fault */
        }
        *out = t->kind == DIV ? fdiv(a, b) : a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
        return 0;
    case NEG: return __builtin_sub_overflow((int64_t)0, a, out);
    case ABS: *out = a < 0 ? (a == INT64_MIN ? a : -a) : a; return a == INT64_MIN;
    case MIN: *out = lo(a, b); return 0;
    case MAX: *out = hi(a, b); return 0;
    case EQ: *out = a == b; return 0;
    case NE: *out = a != b; return 0;
    case LT: *out = a < b; return 0;
    case LE: *out = a <= b; return 0;
    case GT: *out = a > b; return 0;
    case GE: *out = a >= b; return 0;
    case NOT: *out = !a; return 0;
    case IFF: *out = !!a == !!b; return 0;
    case BNE: *out = !!a != !!b; return 0;
    default: return 1;
    }
}

Test(sema, random_masks) {
    static world w;
    static int64_t scratch[MC_MAX_NODES];
    size_t faults = 0, trues = 0, falses = 0;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        w = (world){.state = seed * UINT64_C(0x9e3779b97f4a7c15)};
        int defs = (int)roll(&w, DEFS + 1);
        for (int d = 0; d < defs; d++) {
            w.def_bool[d] = roll(&w, 2);
            w.def_function[d] = w.params = roll(&w, 2);
            tree *body = draw(&w, w.def_bool[d], 2);
            if (w.params) { /* every parameter is used, so that arguments are always needed */
                tree *both =
                    node(&w, MIN, 0, node(&w, PARAM, 0, NULL, NULL, NULL), node(&w, PARAM, 1, NULL, NULL, NULL), NULL);
                body = w.def_bool[d] ? node(&w, BNE, 0, node(&w, LT, 0, both, node(&w, VAR, 0, NULL, NULL, NULL), NULL),
                                            body, NULL)
                                     : node(&w, MAX, 0, both, body, NULL);
            }
            w.defs[d] = body;
            w.def_count++;
        }
        w.params = false;
        tree *body = draw(&w, true, 4);
        say(&w, "mask m = ");
        spell(&w, body);
        for (int d = 0; d < defs; d++) {
            say(&w, d ? "\n  d%d%s = " : "\n where {\n  d%d%s = ", d, w.def_function[d] ? "(t, u)" : "");
            spell(&w, w.defs[d]);
        }
        say(&w, defs ? " }\nplan { mask = m }" : "\nplan { mask = m }");
        cr_assert_lt(w.size, sizeof w.text);
        fcpc_program *p = compile(w.text);
        uint32_t bad;
        cr_assert_null(mc_check(p->mask, MC_MASK, NULL, &bad), "%s", w.text);
        for (int i = 0; i < 40; i++) {
            int64_t n = 1 + roll(&w, 200), vars[] = {roll(&w, (unsigned)n), roll(&w, (unsigned)n), n, roll(&w, 8)};
            int64_t expected = 0;
            bool out = false;
            uint32_t where;
            int fault = eval(&w, body, vars, NULL, &expected);
            mc_fault got = mc_eval_checked(p->mask, MC_LENGTH(n), vars[0], vars[1], vars[3], scratch, &out, &where);
            cr_assert_eq(fault != 0, got != MC_OK, "%s\nat q %ld k %ld n %ld h %ld: fault %d, code says %d", w.text,
                         (long)vars[0], (long)vars[1], (long)n, (long)vars[3], fault, got);
            if (fault) faults++;
            else {
                cr_assert_eq(out, expected != 0, "%s\nat q %ld k %ld n %ld h %ld", w.text, (long)vars[0], (long)vars[1],
                             (long)n, (long)vars[3]);
                if (out) trues++;
                else falses++;
            }
        }
        fcpc_program_free(p);
    }
    cr_expect_gt(faults, 1000);
    cr_expect_gt(trues, 1000);
    cr_expect_gt(falses, 1000);
}

/* Definitions that double at each level are shared where nothing in them depends on the way to them. */
Test(sema, sharing) {
    char source[8000];
    size_t used = (size_t)sprintf(source, "mask m = x60 == 0\n where {\n  x0 = q - k\n");
    for (int i = 1; i <= 60; i++)
        used += (size_t)sprintf(source + used, "  x%d = min(x%d, n) + max(x%d, 3) - x%d\n", i, i - 1, i - 1, i - 1);
    sprintf(source + used, " }");
    fcpc_program *p = compile(source);
    cr_expect_lt(p->mask.count, 400);
    fcpc_program_free(p);
    /* and where it does, there is a limit instead of a hang */
    used = (size_t)sprintf(source, "mask m = x60\n where {\n  x0 = q / k == 1\n");
    for (int i = 1; i <= 60; i++)
        used += (size_t)sprintf(source + used, "  x%d = x%d and q / k == %d or x%d\n", i, i - 1, i, i - 1);
    sprintf(source + used, " }");
    cr_expect_eq(code_of(source, NULL), FCP_E_TOO_LARGE);
    /* deep chains of definitions and of masks */
    char *big = malloc(200000);
    used = (size_t)sprintf(big, "mask m = y5000 > 0\n where {\n  y0 = q\n");
    for (int i = 1; i <= 5000; i++) used += (size_t)sprintf(big + used, "  y%d = y%d + 1\n", i, i - 1);
    sprintf(big + used, " }");
    cr_expect_eq(code_of(big, NULL), FCP_E_DEPTH);
    used = (size_t)sprintf(big, "mask y0 = k <= q\n");
    for (int i = 1; i <= 5000; i++) used += (size_t)sprintf(big + used, "mask y%d = y%d\n", i, i - 1);
    sprintf(big + used, "plan { mask = y5000 }");
    cr_expect_eq(code_of(big, NULL), FCP_E_DEPTH);
    free(big);
}
