/* test_no_tokens.c: tests batches in which sequences have no queries, no keys, or neither: random ones by every
 * strategy and layout, held against brute force and float64; and that a sequence of neither changes nothing. */
#include <criterion/criterion.h>
#include <math.h>

#include "runtime/plan/head_ranges.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/plan_summary.h"
#include "runtime/plan/sides.h"
#include "tests/support/amount.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"
#include "tests/support/splitmix.h"
#include "tests/support/temporary.h"

enum { MOST = 12, HEADS = 8, TEXT = 8000 };

static const char *const strategies[] = {"fcp", "fcp(split = auto, tolerance = 0.001)", "ring", "zigzag", "cad",
                                         "cad(base = fcp)", "cad(base = zigzag)", "cad(pingpong = true)", "groups",
                                         "groups(tokens = 512, shape = ring)", "ulysses", "upipe", "dcp", "auto"};
static const char *const layouts[] = {"planned", "contiguous", "zigzag", "contiguous(group = 1)", "zigzag(group = 1)"};
static const char *const masks[] = {"causal", "full", "window(w = 5)", "lambda(sink = 2, window = 7)",
                                    "rect(0..2, 0..n, full)", "by_head", "known"};

typedef struct batch {
    uint64_t queries[MOST], keys[MOST];
    uint32_t count;
    const char *strategy, *layout, *mask;
    bool top_left, sink, backward;
    uint32_t nodes, gpus, block;
} batch;

static uint32_t below(uint64_t *state, uint32_t n) { return (uint32_t)(splitmix(state) % n); }

/* About half of all numbers are 0; in one batch of six all are. */
static uint64_t draw_length(uint64_t *state, bool none) {
    static const uint64_t some[] = {1, 2, 3, 7, 16, 33, 130};
    return none || below(state, 2) ? 0 : some[below(state, 7)];
}

static batch draw(uint64_t seed) {
    uint64_t state = seed * 977;
    batch b = {.count = 1 + below(&state, MOST),
               .strategy = strategies[seed % (sizeof strategies / sizeof *strategies)]};
    const bool none = !below(&state, 6), square = below(&state, 2);
    for (uint32_t s = 0; s < b.count; s++) {
        b.queries[s] = draw_length(&state, none);
        b.keys[s] = square ? b.queries[s] : draw_length(&state, none);
    }
    b.layout = layouts[below(&state, sizeof layouts / sizeof *layouts)];
    b.mask = masks[below(&state, sizeof masks / sizeof *masks)];
    b.nodes = 1 + below(&state, 2);
    b.gpus = 1 << below(&state, 3);
    b.block = 1 << (2 * below(&state, 4));
    b.top_left = !square && below(&state, 2);
    b.sink = !below(&state, 3);
    b.backward = below(&state, 4);
    return b;
}

/* without: leaves out what has neither queries nor keys. */
static const char *program_of(const batch *b, bool without, char text[TEXT]) {
    bool differ = false;
    int at = snprintf(text, TEXT, "model { heads = %u; kv_heads = 8; head_dim = 8; dtype = fp32 }\n"
                                  "cluster { nodes = %u; gpus = %u }\nmask by_head = causal and q - k < 3 * (h + 1)\n"
                                  "mask known = doc[k] == 1 and k <= q + 3\nbatch { lengths = [", HEADS, b->nodes,
                      b->gpus);
    const char *comma = "";
    for (uint32_t s = 0; s < b->count; s++) {
        if (without && !b->queries[s] && !b->keys[s]) continue;
        at += snprintf(text + at, (size_t)(TEXT - at), "%s%lu:%lu", comma, b->queries[s], b->keys[s]);
        comma = ", ";
        differ |= b->queries[s] != b->keys[s];
    }
    at += snprintf(text + at, (size_t)(TEXT - at), "]; field doc = [");
    comma = "";
    for (uint32_t s = 0; s < b->count; s++)
        for (uint64_t i = 0; i < b->keys[s]; i++, comma = ", ")
            at += snprintf(text + at, (size_t)(TEXT - at), "%s%d", comma, i % 3 != 1);
    snprintf(text + at, (size_t)(TEXT - at),
             "]%s }\nplan { mask = %s; strategy = %s; layout = %s; block = %u; passes = forward%s%s }\n",
             b->top_left && differ ? "; align = top_left" : "", b->mask, b->strategy, b->layout, b->block,
             b->backward ? ", backward" : "", b->sink ? "; sink = 0.5" : "");
    return text;
}

/* The definitions of the masks above. */
static bool allows(const char *mask, int64_t q, int64_t k, int64_t h) {
    if (!strcmp(mask, "full")) return true;
    if (!strcmp(mask, "known")) return k % 3 != 1 && k <= q + 3;
    if (!strncmp(mask, "rect", 4)) return q >= 0 && q < 2;
    if (k > q) return false;
    if (!strncmp(mask, "window", 6)) return q - k < 5;
    if (!strncmp(mask, "lambda", 6)) return k < 2 || q - k < 7;
    return strcmp(mask, "by_head") || q - k < 3 * (h + 1);
}

static uint64_t count_pairs(const batch *b) {
    const uint32_t heads = strcmp(b->mask, "by_head") ? 1 : HEADS;
    uint64_t pairs = 0;
    for (uint32_t s = 0; s < b->count; s++) {
        const int64_t n = (int64_t)b->keys[s], first = b->top_left ? 0 : n - (int64_t)b->queries[s];
        for (int64_t q = 0; q < (int64_t)b->queries[s]; q++)
            for (int64_t k = 0; k < n; k++)
                for (uint32_t h = 0; h < heads; h++) pairs += allows(b->mask, first + q, k, h);
    }
    return pairs;
}

/* Every token of every sequence is in the layout of one rank, once, and no run is empty. */
static void check_layout(const batch *b, const fcp_plan *plan, const char *what) {
    for (int side = 0; side < FCP_SIDES; side++) {
        const uint64_t *lengths = side == FCP_KEYS ? b->keys : b->queries;
        uint64_t held[MOST] = {0}, all = 0;
        for (uint32_t r = 0; r < plan->problem->ranks; r++) {
            const uint64_t tokens = fcp_side_tokens(plan, (fcp_side)side, r);
            fcp_layout_at at = {0};
            fcp_span span;
            uint64_t here = 0;
            while (fcp_side_layout(plan, (fcp_side)side, r, &at, &span)) {
                cr_assert(span.length && span.sequence < b->count &&
                          span.start + span.length <= lengths[span.sequence], "%s", what);
                held[span.sequence] += span.length;
                here += span.length;
            }
            cr_assert_eq(here, tokens, "%s", what);
            int64_t *rows = malloc((tokens + 1) * sizeof *rows), *positions = malloc((tokens + 1) * sizeof *rows);
            fcp_plan_rows(plan, r, side == FCP_KEYS, 0, rows);
            fcp_plan_positions(plan, r, side == FCP_KEYS, positions);
            for (uint64_t i = 0; i < tokens; i++) {
                uint32_t s = 0;
                uint64_t first = 0;
                while (first + lengths[s] <= (uint64_t)rows[i]) first += lengths[s++];
                const int64_t base = side == FCP_QUERIES ? plan->sequences[s].q_first : 0;
                cr_assert_eq(positions[i], rows[i] - (int64_t)first + base, "%s", what);
            }
            all += tokens;
            free(rows);
            free(positions);
        }
        for (uint32_t s = 0; s < b->count; s++) cr_assert_eq(held[s], lengths[s], "%s, sequence %u", what, s);
        cr_assert_eq(all, fcp_offsets(plan, (fcp_side)side)[b->count]);
    }
}

static void expect_zeros(const float *x, uint64_t count, const char *name, const char *what) {
    for (uint64_t i = 0; i < count; i++) cr_assert(x[i] == 0, "%s: %s is %g", what, name, (double)x[i]);
}

/* Rows without keys have O = 0, LSE = -inf or the sink and nothing rounded off it, dQ = 0; keys without rows have dK =
 * dV = 0. */
static void check_empty(const batch *b, const fcp_packed *packed, const char *what) {
    const uint64_t row = HEADS * 8;
    uint64_t q = 0, k = 0;
    for (uint32_t s = 0; s < b->count; q += b->queries[s], k += b->keys[s++]) {
        const float *lse = (const float *)packed->t[FCP_TENSOR_LSE] + q * HEADS;
        if (!b->keys[s]) {
            expect_zeros((const float *)packed->t[FCP_TENSOR_O] + q * row, b->queries[s] * row, "O", what);
            expect_zeros((const float *)packed->t[FCP_TENSOR_LSE_LOW] + q * HEADS, b->queries[s] * HEADS,
                         "what is rounded off LSE", what);
            for (uint64_t i = 0; i < b->queries[s] * HEADS; i++)
                cr_assert(lse[i] == (b->sink ? 0.5f : -INFINITY), "%s: LSE is %g", what, (double)lse[i]);
        }
        if (!b->keys[s] && b->backward)
            expect_zeros((const float *)packed->t[FCP_TENSOR_DQ] + q * row, b->queries[s] * row, "dQ", what);
        if (b->queries[s] || !b->backward) continue;
        expect_zeros((const float *)packed->t[FCP_TENSOR_DK] + k * row, b->keys[s] * row, "dK", what);
        expect_zeros((const float *)packed->t[FCP_TENSOR_DV] + k * row, b->keys[s] * row, "dV", what);
    }
}

/* Saves and loads the plan: loading checks and verifies it. */
static fcp_plan *saved(const fcp_plan *plan, const char *what) {
    char folder[TEMPORARY], path[TEMPORARY + 20];
    fcp_plan *loaded = NULL;
    fcp_error err = {0};
    cr_assert(temporary_folder(folder, "no_tokens"));
    snprintf(path, sizeof path, "%s/a.plan", folder);
    cr_assert(fcp_plan_save(plan, path, &err) == FCP_OK && fcp_plan_load(path, &loaded, &err) == FCP_OK, "%s: %s", what,
              err.message);
    remove(path);
    remove(folder);
    return loaded;
}

Test(no_tokens, random_batches) {
    const unsigned kinds = sizeof strategies / sizeof *strategies;
    unsigned all_zero = 0, halves = 0;
    char text[TEXT];
    for (uint64_t seed = 1; seed <= kinds * amount(4, 40); seed++) {
        const batch b = draw(seed);
        fcp_plan *made = plan_of(program_of(&b, false, text)), *plan = saved(made, text);
        fcp_packed packed = {0};
        fcp_error err = {0};
        fcp_plan_free(made);
        const uint64_t ranges = strcmp(b.mask, "by_head") ? fcp_plan_ranges(plan) : 1;
        cr_assert_eq(plan->summary->pairs, count_pairs(&b) * ranges, "%s", text);
        cr_assert(fcp_plan_verify_pairs(plan, 0, NULL, NULL, &err) == FCP_OK, "%s: %s", text, err.message);
        check_layout(&b, plan, text);
        judge_run(plan, &fcp_backend_host, 2, seed, &packed, text);
        judge_packed(plan, plan->problem->passes, &packed, text);
        check_empty(&b, &packed, text);
        all_zero += !plan->problem->tokens && !plan->problem->key_tokens;
        halves += plan->problem->tokens != plan->problem->key_tokens;
        fcp_packed_free(&packed);
        fcp_plan_free(plan);
    }
    cr_assert(all_zero > 1 && halves > kinds, "%u batches without tokens, %u with unequal sides", all_zero, halves);
}

/* Batches that have no pairs, by each strategy and layout. */
Test(no_tokens, nothing_to_compute) {
    static const char *const lengths[] = {"[0]", "[0, 0]", "[0:7]", "[7:0]", "[0:0, 0:200, 200:0]"};
    for (unsigned i = 0; i < sizeof strategies / sizeof *strategies; i++)
        for (unsigned j = 0; j < sizeof layouts / sizeof *layouts; j++) {
            if (amount((i + j) % 3, 0)) continue;
            const unsigned k = (i + 2 * j) % 5;
            char text[TEXT];
            snprintf(text, sizeof text,
                     "model { heads = 8; head_dim = 8; dtype = fp32 }\ncluster { nodes = 2; gpus = 2 }\n"
                     "batch { lengths = %s }\nplan { mask = causal; strategy = %s; layout = %s; block = 16\n"
                     "passes = forward, backward }\n", lengths[k], strategies[i], layouts[j]);
            fcp_plan *plan = plan_of(text);
            cr_assert_eq(plan->summary->pairs, 0);
            cr_assert_eq(plan->blocks_count == 0, k < 2, "%s", text);
            judge_plan(plan, &fcp_backend_host, 3, false, text);
            fcp_plan_free(plan);
        }
}

/* Parts of a batch on ranks of their own, and several masks. */
Test(no_tokens, parts_and_layers) {
    static const char *const lengths[] = {
        "[0] on 0..1, [0, 70:0, 0:9, 130] on 1..4", "[5, 0] on 0..2, [0, 0:0] on 2..4", "[0, 0] on 0..4, [0:7] on 0..2",
        "[0, 3] on 2..4, [0, 40, 0] on 0..4"};
    static const char *const held[] = {"contiguous", "zigzag", "contiguous(group = 1)"};
    for (unsigned i = 0; i < 12; i++) {
        char text[TEXT];
        snprintf(text, sizeof text,
                 "model { heads = 4; kv_heads = 2; head_dim = 8; dtype = fp32 }\n"
                 "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = %s }\n"
                 "plan { layers = [causal, window(w = 9) x 2]\n"
                 "strategy = %s; layout = %s; block = 16; passes = forward, backward }\n", lengths[i % 4],
                 strategies[i % 8], held[i % 3]);
        fcpc_program *program = program_named("parts.fcp", text);
        fcp_plan *plans[2] = {NULL};
        cr_assert_eq(fcpc_program_layers(program, 0, NULL), 2);
        cr_assert_eq(fcpc_plan_layers(program, NULL, NULL, NULL, NULL, plans), FCP_OK, "%s", text);
        for (int layer = 0; layer < 2; layer++) {
            judge_plan(plans[layer], &fcp_backend_host, i + 1, false, text);
            fcp_plan_free(plans[layer]);
        }
        fcpc_program_free(program);
    }
}

/* A sequence of neither queries nor keys is nothing: without it there are the same blocks, transfers and
 * instructions. */
Test(no_tokens, nothing_changes) {
    unsigned compared = 0;
    char text[TEXT], other[TEXT];
    for (uint64_t seed = 1001; seed <= 1000 + amount(60, 600); seed++) {
        const batch b = draw(seed);
        uint64_t tokens = 0;
        for (uint32_t s = 0; s < b.count; s++) tokens += b.queries[s] + b.keys[s];
        if (!tokens) continue; /* without these there is no batch */
        fcp_plan *with = plan_of(program_of(&b, false, text)), *without = plan_of(program_of(&b, true, other));
        cr_assert(with->blocks_count == without->blocks_count &&
                      !memcmp(with->blocks, without->blocks, with->blocks_count * sizeof *with->blocks),
                  "%s\n%s", text, other);
        cr_assert(with->instrs_count == without->instrs_count && with->transfers_count == without->transfers_count &&
                      !memcmp(with->instrs, without->instrs, with->instrs_count * sizeof *with->instrs),
                  "%s\n%s", text, other);
        compared += with->sequences_count > without->sequences_count;
        fcp_plan_free(with);
        fcp_plan_free(without);
    }
    cr_assert(compared >= 15, "only %u batches had such sequences", compared);
}
