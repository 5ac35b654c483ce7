/* test_maskcode.c: tests mask code and its builder against expression trees that evaluate themselves, with short
 * circuits. */
#include "tests/support/mask_samples.h"

#include <criterion/criterion.h>
#include <string.h>

static mc_node node(mc_op op, uint32_t a, uint32_t b, uint32_t c, int64_t imm) {
    return (mc_node){.op = op, .a = a, .b = b, .c = c, .guard = MC_NONE, .imm = imm};
}

Test(maskcode, floored_division) {
    for (int64_t a = -20; a <= 20; a++)
        for (int64_t b = -7; b <= 7; b++) {
            if (b == 0) {
                cr_assert_eq(mc_div(a, b), 0);
                cr_assert_eq(mc_mod(a, b), 0);
                continue;
            }
            int64_t quotient = mc_div(a, b), rest = mc_mod(a, b);
            cr_assert_eq(quotient * b + rest, a);
            cr_assert(b > 0 ? 0 <= rest && rest < b : b < rest && rest <= 0);
        }
    cr_assert_eq(mc_div(INT64_MIN, -1), INT64_MIN);
    cr_assert_eq(mc_mod(INT64_MIN, -1), 0);
    cr_assert_eq(mc_div(INT64_MIN, INT64_MAX), -2);
    cr_assert_eq(mc_mod(INT64_MIN, INT64_MAX), INT64_MAX - 1);
    cr_assert_eq(mc_div(INT64_MAX, INT64_MIN), -1);
}

Test(maskcode, check_finds_every_damage) {
    mc_node good[] = {node(MC_Q, MC_NONE, MC_NONE, MC_NONE, 0), node(MC_K, MC_NONE, MC_NONE, MC_NONE, 0),
                      node(MC_LE, 1, 0, MC_NONE, 0), node(MC_DIV, 0, 1, MC_NONE, 0), node(MC_LT, 3, 1, MC_NONE, 0),
                      node(MC_AND, 2, 4, MC_NONE, 0)};
    good[3].guard = 2;
    enum { COUNT = sizeof good / sizeof *good };
    uint32_t at;
    cr_assert_null(mc_check((mc_code){good, COUNT}, MC_MASK, NULL, &at));
    cr_assert_not_null(mc_check((mc_code){good, 0}, MC_MASK, NULL, &at));
    cr_assert_not_null(mc_check((mc_code){good, MC_MAX_NODES + 1}, MC_MASK, NULL, &at));
    cr_assert_not_null(mc_check((mc_code){good, 4}, MC_MASK, NULL, &at), "an int answer");
    struct damage { uint32_t at; mc_node to; uint32_t guard; } damages[] = {
        {0, node(MC_OP_COUNT, MC_NONE, MC_NONE, MC_NONE, 0), MC_NONE},
        {2, node(MC_LE, 2, 0, MC_NONE, 0), MC_NONE},             /* itself */
        {2, node(MC_LE, 1, 5, MC_NONE, 0), MC_NONE},             /* a later one */
        {2, node(MC_LE, 1, MC_NONE, MC_NONE, 0), MC_NONE},       /* an operand missing */
        {2, node(MC_LE, 1, 0, 0, 0), MC_NONE},                   /* one too many */
        {4, node(MC_LT, 2, 1, MC_NONE, 0), MC_NONE},             /* bool for int */
        {5, node(MC_AND, 2, 3, MC_NONE, 0), MC_NONE},            /* int for bool */
        {2, node(MC_LE, 1, 0, MC_NONE, 0), 0},                   /* a guard where none can be */
        {3, node(MC_DIV, 0, 1, MC_NONE, 0), 4},                  /* a later guard */
        {3, node(MC_DIV, 0, 1, MC_NONE, 0), 0},                  /* an int guard */
        {0, node(MC_Q, MC_NONE, MC_NONE, MC_NONE, 7), MC_NONE},  /* a stray constant */
        {2, node(MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, 2), MC_NONE},
    };
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        mc_node bad[COUNT];
        memcpy(bad, good, sizeof bad);
        bad[damages[i].at] = damages[i].to;
        bad[damages[i].at].guard = damages[i].guard;
        at = 99;
        cr_assert_not_null(mc_check((mc_code){bad, COUNT}, MC_MASK, NULL, &at), "damage %zu", i);
        cr_assert_eq(at, damages[i].at, "damage %zu", i);
    }
    good[1].pad = 1;
    cr_assert_not_null(mc_check((mc_code){good, COUNT}, MC_MASK, NULL, NULL));
}

/* The prelude's masks, stated a second time. */
static bool stated(enum sample s, int64_t x, int64_t y, int64_t q, int64_t k, int64_t n) {
    switch (s) {
    case SAMPLE_FULL: return true;
    case SAMPLE_CAUSAL: return k <= q;
    case SAMPLE_WINDOW: return k <= q && q < k + x;
    case SAMPLE_WINDOW_BOTH: return k <= q + y && q <= k + x;
    case SAMPLE_PREFIX: return k < x || k <= q;
    case SAMPLE_LAMBDA: return k <= q && (k < x || q < k + y);
    case SAMPLE_SHARED_QUESTION: {
        int64_t question = n * x / 100, each = (n - question) / y > 1 ? (n - question) / y : 1;
        if (k > q) return false;
        if (k < question) return true; /* then q >= k >= question */
        int64_t pq = (q - question) / each, pk = (k - question) / each;
        return (pq < y ? pq : y - 1) == (pk < y ? pk : y - 1);
    }
    case SAMPLE_CAUSAL_BLOCKWISE:
        if (k > q) return false;
        if (q / x == 0 || q / x == (n - 1) / x) return true;
        return k < x || (k >= x && k >= q - y * x);
    case SAMPLE_BLOCK_CAUSAL: return k / x <= q / x;
    case SAMPLE_GLOBAL_WINDOW: return (q - k <= y && k - q <= y) || q < x || k < x;
    case SAMPLE_DILATED: return q - k <= x && k - q <= x && (q > k ? q - k : k - q) % y == 0;
    default: return false;
    }
}

Test(maskcode, prelude) {
    for (int s = 0; s < SAMPLES; s++) {
        exprs e = {.count = 0};
        mc_node *nodes;
        mc_code code = lower_mask(&e, sample_mask(&e, (enum sample)s, 20, 4), &nodes);
        cr_assert_null(mc_check(code, MC_MASK, NULL, NULL));
        int64_t scratch[128];
        cr_assert_lt(code.count, 128);
        for (int64_t n = 1; n < 120; n += 17)
            for (int64_t q = 0; q < n; q++)
                for (int64_t k = 0; k < n; k++)
                    cr_assert_eq(mc_eval(code, MC_LENGTH(n), q, k, 0, scratch), stated((enum sample)s, 20, 4, q, k, n),
                                 "%s n=%d q=%d k=%d", SAMPLE_NAMES[s], (int)n, (int)q, (int)k);
        free(nodes);
    }
}

Test(maskcode, uses) {
    exprs e = {.count = 0};
    mc_node *nodes;
    mc_code code = lower_mask(&e, sample_mask(&e, SAMPLE_CAUSAL_BLOCKWISE, 256, 2), &nodes);
    cr_assert_eq(mc_uses(code), MC_USES_Q | MC_USES_K | MC_USES_N);
    free(nodes);
    e.count = 0;
    code = lower_mask(&e, ex2(&e, MC_LT, ex0(&e, MC_H), ex0(&e, MC_K)), &nodes);
    cr_assert_eq(mc_uses(code), MC_USES_H | MC_USES_K);
    free(nodes);
    e.count = 0;
    code = lower_mask(&e, truth(&e, true), &nodes);
    cr_assert_eq(mc_uses(code), 0);
    free(nodes);
}

/* Random expressions: the tree's meaning, the code's faulting meaning, its total meaning and its rows all agree; and
 * the code faults where the tree does. */
Test(maskcode, random_expressions) {
    static exprs e;
    unsigned faults = 0, allowed = 0, total = 0;
    for (uint64_t seed = 1; seed <= 4000; seed++) {
        int root = random_mask(&e, seed, 1 + seed % 4, seed % 2);
        mc_node *nodes;
        mc_code code = lower_mask(&e, root, &nodes);
        uint32_t where;
        cr_assert_null(mc_check(code, MC_MASK, NULL, &where), "seed %d", (int)seed);
        int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch);
        for (int i = 0; i < 40; i++) {
            int64_t n = 1 + (int64_t)draw(&e, i % 4 ? 300 : (uint64_t)1 << 40);
            int64_t q = (int64_t)draw(&e, (uint64_t)n), k0 = (int64_t)draw(&e, (uint64_t)n), h = (int64_t)draw(&e, 64);
            uint32_t width = 1 + (uint32_t)draw(&e, MC_ROW);
            if (k0 + width > n) width = (uint32_t)(n - k0) < MC_ROW ? (uint32_t)(n - k0) : MC_ROW;
            uint8_t row[MC_ROW];
            mc_eval_row(code, MC_LENGTH(n), q, k0, width, h, scratch, row);
            for (uint32_t j = 0; j < width; j += 1 + width / 8) {
                mc_fault fault = MC_OK;
                bool want = expr_value(&e, root, q, k0 + j, n, h, &fault) != 0, out = false;
                mc_fault got = mc_eval_checked(code, MC_LENGTH(n), q, k0 + j, h, scratch, &out, &where);
                cr_assert_eq(got != MC_OK, fault != MC_OK, "seed %d: fault %d, not %d", (int)seed, got, fault);
                total++;
                faults += fault != MC_OK;
                if (fault != MC_OK) {
                    cr_assert_lt(where, code.count);
                    continue;
                }
                allowed += want;
                cr_assert_eq(out, want, "seed %d checked", (int)seed);
                cr_assert_eq(mc_eval(code, MC_LENGTH(n), q, k0 + j, h, scratch), want, "seed %d total", (int)seed);
                cr_assert_eq(row[j], want, "seed %d row", (int)seed);
            }
        }
        free(scratch);
        free(nodes);
    }
    cr_assert(faults > total / 100 && allowed > total / 20 && allowed + faults < total, "%u %u %u", faults, allowed,
              total);
}

/* Rows agree with elements in the total meaning too, in which numbers wrap. */
Test(maskcode, rows_wrap) {
    static exprs e;
    for (uint64_t seed = 1; seed <= 1500; seed++) {
        mc_node *nodes;
        mc_code code = lower_mask(&e, random_mask(&e, seed, 3, true), &nodes);
        int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch);
        int64_t *other = malloc(code.count * sizeof *other);
        int64_t q = (int64_t)draw(&e, UINT64_MAX), k0 = (int64_t)draw(&e, UINT64_MAX), n = (int64_t)draw(&e, 1000);
        uint8_t row[MC_ROW];
        mc_eval_row(code, MC_LENGTH(n), q, k0, MC_ROW, 3, scratch, row);
        for (int j = 0; j < MC_ROW; j++)
            cr_assert_eq(row[j], mc_eval(code, MC_LENGTH(n), q, (int64_t)((uint64_t)k0 + (uint64_t)j), 3, other),
                         "seed %d", (int)seed);
        free(other);
        free(scratch);
        free(nodes);
    }
}

static uint32_t emit2(mc_builder *b, mc_op op, uint32_t x, uint32_t y) {
    return mc_emit(b, op, x, y, MC_NONE, 0, MC_NONE, 0);
}
static uint32_t number(mc_builder *b, int64_t value) {
    return mc_emit(b, MC_CONST_I, MC_NONE, MC_NONE, MC_NONE, value, MC_NONE, 0);
}
static uint32_t leaf(mc_builder *b, mc_op op) { return mc_emit(b, op, MC_NONE, MC_NONE, MC_NONE, 0, MC_NONE, 0); }

Test(maskcode, folds_and_shares) {
    mc_builder *b = mc_builder_new();
    cr_assert_not_null(b);
    uint32_t q = leaf(b, MC_Q), k = leaf(b, MC_K), count;
    cr_assert_eq(leaf(b, MC_Q), q);
    cr_assert_eq(emit2(b, MC_ADD, number(b, 40), number(b, 2)), number(b, 42));
    cr_assert_eq(emit2(b, MC_ADD, q, k), emit2(b, MC_ADD, k, q));
    cr_assert_eq(emit2(b, MC_SUB, q, q), number(b, 0));
    cr_assert_eq(emit2(b, MC_MUL, q, number(b, 1)), q);
    cr_assert_eq(emit2(b, MC_LE, k, k), mc_emit(b, MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, 1, MC_NONE, 0));
    uint32_t less = emit2(b, MC_LT, q, k);
    cr_assert_eq(mc_emit(b, MC_NOT, less, MC_NONE, MC_NONE, 0, MC_NONE, 0), emit2(b, MC_LE, k, q));
    /* q - k cannot overflow, so its guard is no part of it */
    cr_assert_eq(mc_emit(b, MC_SUB, q, k, MC_NONE, 0, less, 0), emit2(b, MC_SUB, q, k));
    /* q / k can divide by zero: guards tell places apart */
    uint32_t plain = emit2(b, MC_DIV, q, k), guarded = mc_emit(b, MC_DIV, q, k, MC_NONE, 0, less, 0);
    cr_assert_neq(plain, guarded);
    cr_assert_eq(mc_builder_nodes(b, &count)[guarded].guard, less);
    uint32_t always = emit2(b, MC_EQ, q, q);
    cr_assert_eq(mc_emit(b, MC_DIV, q, k, MC_NONE, 0, always, 0), plain);
    cr_assert(!mc_builder_failed(b));
    mc_builder_free(b);
    mc_builder_free(NULL);
}

/* What would fault stays. */
Test(maskcode, faults_are_not_hidden) {
    exprs e = {.count = 0};
    int q = ex0(&e, MC_Q), zero = num(&e, 0);
    int bad = ex2(&e, MC_DIV, q, zero), big = ex2(&e, MC_ADD, num(&e, INT64_MAX), num(&e, 1));
    int masks[] = {
        ex2(&e, MC_EQ, ex2(&e, MC_MUL, bad, zero), zero), ex2(&e, MC_EQ, bad, bad), ex2(&e, MC_LT, big, big),
        ex2(&e, MC_OR, ex2(&e, MC_LT, bad, q), truth(&e, true)),
        ex2(&e, MC_AND, ex2(&e, MC_LT, bad, q), truth(&e, false)),
        ex2(&e, MC_EQ, ex2(&e, MC_SUB, big, big), zero), ex2(&e, MC_EQ, ex2(&e, MC_MOD, big, num(&e, 1)), zero),
        ex2(&e, MC_IFF, ex2(&e, MC_LT, bad, q), ex2(&e, MC_LT, bad, q)),
        ex(&e, MC_IF_B, ex2(&e, MC_LT, bad, q), truth(&e, true), truth(&e, true), 0),
    };
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        mc_node *nodes;
        mc_code code = lower_mask(&e, masks[i], &nodes);
        int64_t scratch[64];
        bool out;
        uint32_t where;
        cr_assert_neq(mc_eval_checked(code, MC_LENGTH(9), 5, 3, 0, scratch, &out, &where), MC_OK, "mask %zu", i);
        free(nodes);
    }
    /* and what is never reached goes */
    mc_node *nodes;
    mc_code code = lower_mask(&e, ex2(&e, MC_AND, truth(&e, false), ex2(&e, MC_LT, bad, q)), &nodes);
    cr_assert_eq(code.count, 1);
    free(nodes);
    code = lower_mask(&e, ex2(&e, MC_OR, ex2(&e, MC_LE, q, q), ex2(&e, MC_LT, bad, q)), &nodes);
    cr_assert_eq(code.count, 1);
    free(nodes);
}

Test(maskcode, too_many_nodes_fail_cleanly) {
    mc_builder *b = mc_builder_new();
    uint32_t q = leaf(b, MC_Q), last = q;
    for (uint32_t i = 0; i < MC_MAX_NODES; i++) {
        last = emit2(b, MC_MUL, q, number(b, (int64_t)i + 2));
        if (last == MC_NONE) break;
    }
    cr_assert_eq(last, MC_NONE);
    cr_assert(mc_builder_failed(b));
    cr_assert_eq(leaf(b, MC_K), MC_NONE);
    uint32_t count;
    mc_builder_nodes(b, &count);
    cr_assert_eq(count, MC_MAX_NODES);
    mc_builder_free(b);
}

Test(maskcode, extraction_keeps_places_and_guards) {
    mc_builder *b = mc_builder_new();
    uint32_t q = leaf(b, MC_Q), k = leaf(b, MC_K);
    emit2(b, MC_MUL, q, number(b, 77)); /* not needed */
    uint32_t p = emit2(b, MC_LT, q, k);
    uint32_t d = mc_emit(b, MC_DIV, q, k, MC_NONE, 0, p, 1234);
    uint32_t root = emit2(b, MC_LT, d, k);
    cr_assert_eq(mc_builder_place(b, d), 1234);
    mc_node *nodes;
    uint32_t *places, count;
    cr_assert(mc_extract(b, root, &nodes, &places, &count));
    cr_assert_eq(count, 5);
    cr_assert_null(mc_check((mc_code){nodes, count}, MC_MASK, NULL, NULL));
    cr_assert_eq(nodes[3].op, MC_DIV);
    cr_assert_eq(nodes[3].guard, 2);
    cr_assert_eq(places[3], 1234);
    free(nodes);
    free(places);
    mc_builder_free(b);
}
