/* test_layers.c: tests several masks on one set of homes: the plans of `layers`, and sessions that hold several plans,
 * on the host and on the stand-in driver. */
#include "runtime/exec/rank_memory.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/judge_packed.h"

enum { ALL = (1 << FCP_TENSORS) - 1, LAYERS = 3 };

static const char *const batches[] = {"300, 130, 60, 40 x 3", "64:200 x 2, 70, 1:150 x 3"};

/* The plans of three masks. */
static void plan_layers(const char *lengths, const char *how, unsigned ranks, fcp_plan *out[LAYERS]) {
    char text[700];
    snprintf(text, sizeof text,
             "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\ncluster { nodes = 1; gpus = %u }\n"
             "batch { lengths = [%s] }\n"
             "plan { layers = [window(w = 50) x 3, causal, lambda(sink = 8, window = 30)]; block = 128; %s }\n",
             ranks, lengths, how);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_code code = fcpc_parse_text("layers.fcp", text, strlen(text), NULL, d, &program);
    uint32_t times[LAYERS + 1];
    cr_assert_eq(code, FCP_OK, "%s", fcpc_diagnostics_render(d, false));
    for (uint32_t i = 0; i <= LAYERS; i++) cr_assert_eq(fcpc_program_layers(program, i, &times[i]), LAYERS);
    cr_assert(times[0] == 3 && times[1] == 1 && times[2] == 1 && times[3] == 0);
    code = fcpc_plan_layers(program, NULL, NULL, d, NULL, out);
    cr_assert_eq(code, FCP_OK, "%s: %s", how, fcpc_diagnostics_render(d, false));
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

/* Every strategy and layout: equal homes, and each plan has its mask. */
Test(layers, equal_homes) {
    static const char *const strategies[] = {"fcp",   "cad", "ring",   "zigzag", "ulysses",
                                             "upipe", "dcp", "groups", "auto"},
                      *const layouts[] = {"planned", "contiguous", "zigzag"};
    for (unsigned b = 0; b < 2; b++)
        for (unsigned s = 0; s < sizeof strategies / sizeof *strategies; s++)
            for (unsigned l = 0; l < 3; l++) {
                char how[80];
                uint8_t homes[LAYERS][FCP_DIGEST_BYTES];
                fcp_plan *plans[LAYERS];
                snprintf(how, sizeof how, "strategy = %s; layout = %s", strategies[s], layouts[l]);
                plan_layers(batches[b], how, 4, plans);
                for (int i = 0; i < LAYERS; i++) cr_assert_eq(fcp_plan_homes(plans[i], homes[i], NULL), FCP_OK);
                cr_expect(!memcmp(homes[0], homes[1], sizeof *homes) && !memcmp(homes[0], homes[2], sizeof *homes),
                          "%s", how);
                cr_expect(plans[0]->summary->pairs < plans[1]->summary->pairs);
                for (uint32_t r = 0; r < 4; r++) { /* the caller holds the same tokens in the same order */
                    fcp_layout_at at[2] = {{0}};
                    fcp_span a = {0}, c = {0};
                    uint64_t rows[2] = {0};
                    while (fcp_plan_layout(plans[0], r, &at[0], &a)) rows[0] += a.length;
                    while (fcp_plan_layout(plans[1], r, &at[1], &c)) rows[1] += c.length;
                    cr_expect_eq(rows[0], rows[1]);
                }
                for (int i = 0; i < LAYERS; i++) fcp_plan_free(plans[i]);
            }
}

/* Homes differ if a token is elsewhere, or if a caller holds tokens in another order. */
Test(layers, homes_that_differ) {
    fcp_plan *one[LAYERS], *other[LAYERS];
    uint8_t a[FCP_DIGEST_BYTES], b[FCP_DIGEST_BYTES];
    plan_layers(batches[0], "layout = contiguous", 4, one);
    plan_layers(batches[0], "layout = contiguous; strategy = ring", 4, other);
    cr_assert(!fcp_plan_homes(one[0], a, NULL) && !fcp_plan_homes(other[0], b, NULL));
    cr_expect(memcmp(a, b, sizeof a));
    for (int i = 0; i < LAYERS; i++) fcp_plan_free(one[i]), fcp_plan_free(other[i]);
}

/* Forward and backward of drawn tensors. */
static void run_drawn(fcp_session *session, const fcp_plan *plan, uint64_t seed, fcp_packed *out, const char *what) {
    fcp_shape shape;
    fcp_error err = {0};
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, out, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, seed, out);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        cr_assert_eq(fcp_session_run_packed(session, plan, (fcp_pass)pass, out, NULL, &err), FCP_OK, "%s: %s", what,
                     err.message);
}

/* The same, judged in float64. */
static void run_judged(fcp_session *session, const fcp_plan *plan, uint64_t seed, fcp_packed *out, const char *what) {
    run_drawn(session, plan, seed, out, what);
    judge_packed(plan, plan->problem->passes, out, what);
}

/* The bits are those of a session that has this plan alone. */
static void as_alone(const fcp_session_options *options, const fcp_plan *plan, uint64_t seed, const fcp_packed *mine,
                     const char *what) {
    fcp_packed fresh = {0};
    fcp_session *alone;
    fcp_shape shape;
    fcp_error err = {0};
    uint64_t dims[3];
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_session_create(plan, options, &alone, &err), FCP_OK, "%s", err.message);
    run_drawn(alone, plan, seed, &fresh, what);
    for (int t = 0; t < FCP_TENSORS; t++) {
        fcp_tensor_shape(&shape, (fcp_tensor)t, dims);
        cr_expect(!memcmp(mine->t[t], fresh.t[t], dims[0] * fcp_tensor_token_bytes(&shape, (fcp_tensor)t)),
                  "%s: %s has other bits", what, fcp_tensor_name((fcp_tensor)t));
    }
    fcp_packed_free(&fresh);
    fcp_session_free(alone);
}

/* Three layers and the plans of another batch take turns; then one of them goes on to a third batch. */
static void take_turns(standin *x, const fcp_session_options *options, const char *how) {
    fcp_plan *plans[LAYERS], *next[LAYERS];
    const fcp_plan *held[LAYERS + 2];
    uint32_t number[LAYERS + 2] = {0};
    fcp_session *session;
    fcp_error err = {0};
    plan_layers(batches[0], how, 3, plans);
    plan_layers(batches[1], how, 3, next);
    for (int i = 0; i < LAYERS; i++) held[i] = plans[i];
    held[3] = next[1], held[4] = next[0];
    if (x) x->plan = held[0];
    cr_assert_eq(fcp_session_create(held[0], options, &session, &err), FCP_OK, "%s", err.message);
    for (uint32_t i = 1; i < LAYERS + 2; i++) {
        if (x) x->plan = held[i];
        cr_assert_eq(fcp_session_add(session, held[i], i < LAYERS ? 0 : i == 3 ? FCP_OWN_BATCH : number[3],
                                     &number[i], &err),
                     FCP_OK, "%s", err.message);
        cr_assert_eq(number[i], i);
        cr_assert(fcp_session_plan(session) == held[0], "adding a plan selects none");
    }
    uint32_t none = 77;
    cr_expect_eq(fcp_session_add(session, held[3], 0, &none, &err), FCP_E_HOMES);
    cr_expect(strstr(err.message, "other ranks than plan 0"), "%s", err.message);
    cr_expect_eq(fcp_session_add(session, held[3], 9, &none, &err), FCP_E_ARGUMENT);
    cr_expect_eq(fcp_session_select(session, LAYERS + 2, &err), FCP_E_ARGUMENT);
    cr_expect_eq(none, 77);
    for (int turn = 0; turn < 6; turn++) {
        const uint32_t i = (uint32_t)turn * 3 % (LAYERS + 2);
        char what[80];
        fcp_packed mine = {0};
        snprintf(what, sizeof what, "%s, turn %d: plan %u", how, turn, i);
        if (x) x->plan = held[i];
        cr_assert_eq(fcp_session_select(session, number[i], &err), FCP_OK);
        cr_assert(fcp_session_plan(session) == held[i]);
        run_judged(session, held[i], (uint64_t)turn + 1, &mine, what);
        as_alone(options, held[i], (uint64_t)turn + 1, &mine, what);
        fcp_packed_free(&mine);
    }
    fcp_packed last = {0};
    cr_assert_eq(fcp_session_select(session, number[4], &err), FCP_OK);
    if (x) x->plan = next[2];
    cr_assert_eq(fcp_session_rebind(session, next[2], &err), FCP_OK, "%s", err.message);
    run_judged(session, next[2], 5, &last, "rebound");
    fcp_packed_free(&last);
    cr_assert_eq(fcp_session_wait(session, &err), FCP_OK);
    fcp_session_free(session);
    for (int i = 0; i < LAYERS; i++) fcp_plan_free(plans[i]), fcp_plan_free(next[i]);
}

static const char *const hows[] = {"strategy = fcp", "strategy = cad(shard = 32); layout = contiguous",
                                   "strategy = ring"};

Test(layers, sessions_on_the_host, .timeout = 300) {
    for (int i = 0; i < 3; i++)
        take_turns(NULL,
                   &(fcp_session_options){.size = sizeof(fcp_session_options), .compute_threads = 2, .timeout_s = 60},
                   hows[i]);
}

Test(layers, sessions_on_devices, .timeout = 300) {
    standin *x = stand();
    x->devices = 2;
    for (unsigned i = 0; i < amount(1, 3); i++)
        take_turns(x,
                   &(fcp_session_options){.size = sizeof(fcp_session_options), .backend = "cuda", .timeout_s = 60,
                                          .graph_from = 2, .stage_bytes = 5000},
                   hows[i]);
    cr_assert(x->graph_launches > 0);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    cr_assert_eq(x->live, 0, "%ld objects are left", x->live);
}

/* The bytes of a rank's arena, in the larger pass. */
static size_t arena_bytes(const fcp_plan *plan, uint32_t rank) {
    fcp_homes *homes = fcp_homes_of(plan);
    size_t most = 0;
    cr_assert_not_null(homes);
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        fcp_slots slots;
        fcp_slots_of(plan, (fcp_pass)pass, rank, homes[rank].homes, &slots);
        const size_t bytes = fcp_arena_size(plan, (fcp_pass)pass, &homes[rank], &slots);
        if (bytes > most) most = bytes;
    }
    free(homes);
    return most;
}

static size_t held_of(const standin *x) { return x->held[0] + x->held[1]; }

/* All plans of a session compute in the same arenas, as large as the largest needs; all else each has of its own. */
Test(layers, arenas_are_shared) {
    enum { RANKS = 3, PLANS = LAYERS + 1 };
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 60};
    standin *x = stand();
    fcp_plan *plans[LAYERS], *other[LAYERS];
    fcp_session *session;
    fcp_error err = {0};
    size_t expected = 0, first = 0, largest = 0;
    x->devices = 2;
    plan_layers(batches[0], "strategy = fcp", RANKS, plans);
    plan_layers("900, 260", "strategy = fcp", RANKS, other);
    const fcp_plan *held[PLANS] = {plans[0], plans[1], plans[2], other[1]};
    for (int i = 0; i < PLANS; i++) {
        x->plan = held[i];
        cr_assert_eq(fcp_session_create(held[i], &options, &session, &err), FCP_OK, "%s", err.message);
        expected += held_of(x);
        fcp_session_free(session);
        cr_assert_eq(held_of(x), 0);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        size_t most = 0;
        for (int i = 0; i < PLANS; i++) {
            const size_t bytes = arena_bytes(held[i], r);
            expected -= bytes;
            if (bytes > most) most = bytes;
        }
        expected += most;
        largest += most;
        first += arena_bytes(held[0], r);
    }
    cr_assert_gt(largest, first, "no arena has to grow");
    x->plan = held[0];
    cr_assert_eq(fcp_session_create(held[0], &options, &session, &err), FCP_OK, "%s", err.message);
    for (uint32_t i = 1, number; i < PLANS; i++) {
        fcp_packed packed = {0};
        x->plan = held[i - 1];
        run_judged(session, held[i - 1], i, &packed, "before another plan comes");
        fcp_packed_free(&packed);
        x->plan = held[i];
        cr_assert_eq(fcp_session_add(session, held[i], i < LAYERS ? 0 : FCP_OWN_BATCH, &number, &err), FCP_OK, "%s",
                     err.message);
        cr_assert_eq(fcp_session_select(session, number, &err), FCP_OK);
    }
    cr_expect_eq(held_of(x), expected, "%zu, expected %zu", held_of(x), expected);
    fcp_session_free(session);
    cr_expect_eq(held_of(x), 0);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    for (int i = 0; i < LAYERS; i++) fcp_plan_free(plans[i]), fcp_plan_free(other[i]);
}

/* There is no memory for a larger arena. The plan is refused, and the others go on in the arena that there is. */
Test(layers, no_memory_for_a_larger_arena) {
    const fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 60, .graph_from = 1};
    standin *x = stand();
    fcp_plan *plans[LAYERS], *other[LAYERS];
    fcp_session *session;
    fcp_error err = {0};
    fcp_packed packed = {0};
    uint32_t number = 7;
    x->devices = 1;
    plan_layers(batches[0], "strategy = fcp", 2, plans);
    plan_layers("3000, 2000", "strategy = fcp", 2, other);
    x->plan = plans[0];
    cr_assert_eq(fcp_session_create(plans[0], &options, &session, &err), FCP_OK, "%s", err.message);
    x->memory = x->held[0] + arena_bytes(other[1], 0);
    x->plan = other[1];
    cr_expect_eq(fcp_session_add(session, other[1], FCP_OWN_BATCH, &number, &err), FCP_E_NO_MEMORY, "%s", err.message);
    cr_expect_eq(number, 7);
    x->plan = plans[0];
    for (uint64_t i = 0; i < 2; i++) {
        run_judged(session, plans[0], i + 1, &packed, "after a refusal");
        fcp_packed_free(&packed);
    }
    fcp_session_free(session);
    cr_expect_eq(held_of(x), 0);
    cr_assert_str_empty(x->trouble, "%s", x->trouble);
    for (int i = 0; i < LAYERS; i++) fcp_plan_free(plans[i]), fcp_plan_free(other[i]);
}

/* A model that does not fit is refused, and the session goes on. */
Test(layers, refused) {
    fcp_plan *plans[LAYERS];
    fcp_session *session;
    fcp_error err = {0};
    uint32_t number = 7;
    fcp_packed packed = {0};
    plan_layers(batches[0], "strategy = fcp", 3, plans);
    fcp_plan *other = make_plan("causal", 3, 1, "");
    cr_assert_eq(fcp_session_create(plans[0], NULL, &session, &err), FCP_OK);
    cr_expect_eq(fcp_session_add(session, other, FCP_OWN_BATCH, &number, &err), FCP_E_ARGUMENT);
    cr_expect_eq(number, 7);
    cr_expect_eq(fcp_session_add(session, NULL, 0, &number, &err), FCP_E_ARGUMENT);
    run_judged(session, plans[0], 1, &packed, "after refusals");
    fcp_packed_free(&packed);
    fcp_session_free(session);
    fcp_plan_free(other);
    for (int i = 0; i < LAYERS; i++) fcp_plan_free(plans[i]);
}
