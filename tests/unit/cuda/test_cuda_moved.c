/* test_cuda_moved.c: CUDA sessions on plans in which blocks are computed away from home. Plans are drawn (moved_plan.h):
 * partial and whole results, relays, merges on the way. The kernels run on fibers, the driver is the stand-in. */
#include "runtime/judge/packed.h"
#include "runtime/judge/reference.h"
#include "tests/support/amount.h"
#include "tests/support/cuda_stand.h"
#include "tests/support/hand_score.h"
#include "tests/support/moved_plan.h"

enum { ALL = (1 << FCP_TENSORS) - 1 };
static const char *const masks[] = {"full", "causal", "none", "window", "odd", "head", "tail", "gap"};

typedef struct drawn {
    moved_options o;
    uint64_t lengths[3], keys[3];
    const char *score;
    bool sinks;
    char text[200];
} drawn;

static void draw(drawn *d, uint64_t seed) {
    static moved dice; /* too large for the stack */
    moved *m = &dice;
    dice.state = seed * 131 + 7;
    memset(d, 0, sizeof *d);
    moved_options *o = &d->o;
    o->seed = seed;
    o->ranks = 1 + moved_roll(m, 5);
    o->kv_heads = 1 + moved_roll(m, 2);
    o->heads = o->kv_heads * (1 + moved_roll(m, 2));
    o->head_dim = moved_roll(m, 4) ? 16 : 64;
    o->dtype = moved_roll(m, 2) ? FCP_BF16 : FCP_FP16;
    o->block = 128 * (1 + moved_roll(m, 2));
    o->unit = 40 + moved_roll(m, o->block - 40);
    o->mask = masks[moved_roll(m, sizeof masks / sizeof *masks)];
    o->count = 1 + moved_roll(m, 3);
    bool cross = moved_roll(m, 4) == 0;
    for (uint32_t i = 0; i < o->count; i++) {
        d->lengths[i] = 1 + moved_roll(m, i ? 150 : 450);
        d->keys[i] = cross ? 1 + moved_roll(m, 300) : d->lengths[i];
    }
    o->lengths = d->lengths;
    o->keys = d->keys;
    if (!cross && moved_roll(m, 3) == 0) d->score = hand_scores[moved_roll(m, HAND_SCORES)];
    d->sinks = moved_roll(m, 3) == 0;
    snprintf(d->text, sizeof d->text, "seed %lu: %u ranks, %u/%u heads of %u, blocks of %u, %s, score %s%s",
             (unsigned long)seed, o->ranks, o->heads, o->kv_heads, o->head_dim, o->block, o->mask, d->score ? d->score : "-",
             d->sinks ? ", sinks" : "");
}

/* Runs both passes, the second time from a graph, and judges what came out. */
static void run_judged(standin *x, const hand *h, const char *what) {
    fcp_session_options options = {.size = sizeof options, .backend = "cuda", .timeout_s = 100, .partition = FCP_PARTITION_GRID};
    fcp_session *session;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err = {0};
    x->plan = &h->plan;
    x->launched[0] = 0;
    fcp_plan_shape(&h->plan, &shape);
    cr_assert_eq(fcp_session_create(&h->plan, &options, &session, &err), FCP_OK, "%s: %s", what, err.message);
    cr_assert_eq(fcp_packed_alloc(&shape, ALL, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, ALL, 3, &packed);
    for (int time = 0; time < 2; time++)
        for (int pass = 0; pass < FCP_PASSES; pass++)
            cr_assert_eq(fcp_session_run_packed(session, &h->plan, (fcp_pass)pass, &packed, NULL, &err), FCP_OK, "%s: %s; %s",
                         what, err.message, x->trouble);
    fcp_session_free(session);
    fcp_check_report report = FCP_CHECK_START;
    const fcp_check_options check = {.passes = h->plan.problem->passes, .threads = 2};
    cr_assert_eq(fcp_check_run(&h->plan, &check, &packed, &report, &err), FCP_OK, "%s: %s", what, err.message);
    for (int t = 0; t < FCP_TENSORS; t++)
        cr_assert(!report.tensor[t].checked || report.tensor[t].ok || report.tensor[t].verdict == FCP_NOTHING_FINITE,
                  "%s: %s: error %g, naive %g, allowed %g at %lu", what, fcp_tensor_name((fcp_tensor)t),
                  report.tensor[t].max_abs_error, report.tensor[t].reference_error, report.tensor[t].tolerance,
                  (unsigned long)report.tensor[t].worst);
    cr_assert_eq(x->live, 0);
    cr_assert_eq(*x->trouble, 0, "%s: %s", what, x->trouble);
    fcp_packed_free(&packed);
}

Test(cuda_moved, drawn_plans) {
    standin *x = stand();
    uint32_t whole = 0, partial = 0;
    for (uint64_t seed = 1; seed < 1 + amount(24, 300); seed++) {
        drawn d;
        draw(&d, seed);
        hand *h = moved_make(&d.o);
        hand_score *store = calloc(1, sizeof *store);
        cr_assert(h && store);
        if (d.score || d.sinks) hand_score_put(h, store, d.score, d.sinks);
        for (uint32_t b = 0; b < h->block_count; b++) whole += h->blocks[b].flags & FCP_BLOCK_WHOLE;
        for (uint32_t i = 0; i < h->instr_count; i++) partial += h->instrs[i].op == FCP_OP_MERGE || h->instrs[i].op == FCP_OP_FINISH;
        run_judged(x, h, d.text);
        hand_free(h);
        free(store);
    }
    cr_assert(whole > 10 && partial > 20, "%u whole blocks, %u merges", whole, partial);
}
