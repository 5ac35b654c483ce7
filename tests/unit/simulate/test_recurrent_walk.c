/* test_recurrent_walk.c: what halos and scans are predicted to take: against a model of its own, and what is chosen by
 * it.
 *
 * The model knows no rounds. It has a time for the end of each step, and raises these times until they fit: a step
 * begins when the one before it has ended, and a message when both its ranks have come to the messages of its round. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "compiler/simulate/recurrent_walk.h"
#include "tests/support/plan_of.h"
#include "tests/support/recurrent_plan.h"

typedef struct modelled {
    const fcp_plan *plan;
    const sim_model *m;
    uint32_t layer;
    fcp_pass pass;
    uint64_t *end; /* of each step of the plan */
} modelled;

static const fcp_step *step_at(const modelled *x, uint32_t rank, uint32_t i) {
    return &x->plan->steps[fcp_steps_of(x->plan, x->layer, x->pass, rank)->first + i];
}
static bool is_message(const fcp_step *s) { return s->op == FCP_STEP_SEND || s->op == FCP_STEP_RECV; }

/* When a rank comes to the messages of the round of step i: the end of the last step before them. */
static uint64_t comes(const modelled *x, uint32_t rank, uint32_t i) {
    const uint64_t first = fcp_steps_of(x->plan, x->layer, x->pass, rank)->first;
    const uint32_t round = step_at(x, rank, i)->round;
    while (i && is_message(step_at(x, rank, i - 1)) && step_at(x, rank, i - 1)->round == round) i--;
    /* a round before it ends with the last of its messages */
    uint64_t time = 0;
    for (uint32_t k = 0; k < i; k++)
        if (x->end[first + k] > time) time = x->end[first + k];
    return time;
}

static uint64_t rows_of(const modelled *x, uint32_t first, uint32_t count) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++) sum += x->plan->halo_rows[first + i].count;
    return sum;
}

/* The step's own time. */
static uint64_t takes(const modelled *x, const fcp_step *s) {
    const fcp_recurrent *l = &x->plan->recurrent[x->layer];
    const fcp_step whole = {.whole = 1};
    if (l->kind == FCP_HALO) {
        const uint64_t bytes = rows_of(x, s->a, is_message(s) ? s->b : 1) * l->channels * 2;
        const uint64_t own = x->m->small + sim_model_time(2 * bytes, x->m->hbm);
        if (!is_message(s)) return own;
        return x->m->latency[s->fabric] + sim_model_time(bytes, x->m->rate[s->fabric]) + 2 * own;
    }
    const uint64_t bytes = fcp_step_bytes(l, s);
    if (is_message(s)) return x->m->latency[s->fabric] + sim_model_time(bytes, x->m->rate[s->fabric]);
    return x->m->small +
           sim_model_time(2 * bytes + (s->op == FCP_STEP_COMBINE ? fcp_step_bytes(l, &whole) : 0), x->m->hbm);
}

static uint64_t model(const fcp_plan *plan, const sim_model *m, uint32_t layer, fcp_pass pass) {
    modelled x = {plan, m, layer, pass, calloc(plan->steps_count + 1, sizeof(uint64_t))};
    uint64_t last = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (uint32_t r = 0; r < plan->problem->ranks; r++) {
            const fcp_step_stream *own = fcp_steps_of(plan, layer, pass, r);
            for (uint32_t i = 0; i < own->count; i++) {
                const fcp_step *s = step_at(&x, r, i), *sender = s;
                uint64_t begin = 0;
                if (is_message(s)) {
                    const fcp_step_stream *theirs = fcp_steps_of(plan, layer, pass, s->peer);
                    uint32_t k = 0;
                    for (; k < theirs->count; k++) {
                        const fcp_step *t = step_at(&x, s->peer, k);
                        if (is_message(t) && t->op != s->op && t->round == s->round && t->peer == r) break;
                    }
                    cr_assert_lt(k, theirs->count);
                    begin = comes(&x, r, i);
                    if (comes(&x, s->peer, k) > begin) begin = comes(&x, s->peer, k);
                    if (s->op == FCP_STEP_RECV) sender = step_at(&x, s->peer, k);
                } else {
                    for (uint32_t k = 0; k < i; k++)
                        if (x.end[own->first + k] > begin) begin = x.end[own->first + k];
                }
                const uint64_t end = begin + takes(&x, sender);
                if (end == x.end[own->first + i]) continue;
                x.end[own->first + i] = end;
                changed = true;
            }
        }
    }
    for (uint64_t i = 0; i < plan->steps_count; i++)
        if (x.end[i] > last) last = x.end[i];
    free(x.end);
    return last;
}

static uint64_t walk(const fcp_plan *plan, const sim_model *m, uint32_t layer) {
    sim_recurrent one;
    arena scratch = {0};
    cr_assert_eq(sim_recurrent_walk(plan, layer, m, &scratch, &one), FCP_OK);
    arena_free(&scratch);
    return one.makespan;
}

static fcp_plan *plan_on(const char *cluster, const char *how) {
    char text[512];
    snprintf(
        text, sizeof text,
        "model { heads = 8; head_dim = 64 }\ncluster { %s; gpu = h100 }\nbatch { lengths = [20000, 3, 700, 1, 0, 9500, "
        "64 x 5] }\nplan { mask = causal; passes = forward, backward; %s }\n",
        cluster, how);
    return plan_of(text);
}

static const char *const ways[] = {"layout = contiguous; strategy = cad", "layout = zigzag; strategy = zigzag",
                                   "strategy = fcp; block = 256", "strategy = dcp; block = 512"};

Test(recurrent_walk, is_the_model_of_steps) {
    static const char *const clusters[] = {"gpus = 4", "nodes = 3; gpus = 2"};
    static const fcp_recurrent layers[] = {
        {.kind = FCP_HALO, .times = 3, .before = 3, .channels = 640},
        {.kind = FCP_HALO, .times = 1, .before = 40, .after = 200, .channels = 64},
        {.kind = FCP_SCAN, .times = 3, .heads = 32, .rows = 128, .columns = 128, .decay = FCP_DECAY_SCALAR},
        {.kind = FCP_SCAN, .times = 1, .heads = 8, .rows = 64, .columns = 64, .decay = FCP_DECAY_MATRIX, .reverse = 1},
        {.kind = FCP_SCAN, .times = 1, .heads = 8, .rows = 64, .columns = 64, .parts = 4, .shape = FCP_SCAN_CHAIN},
        {.kind = FCP_SCAN, .times = 1, .heads = 8, .rows = 64, .columns = 64, .parts = 1, .shape = FCP_SCAN_TREE},
    };
    enum { LAYERS = sizeof layers / sizeof *layers };
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            fcp_plan *plan = plan_on(clusters[c], ways[w]);
            sim_profile profile;
            sim_model m;
            recurrent_give(plan, layers, LAYERS);
            cr_assert_eq(sim_profile_of(plan->cluster, &profile, NULL), FCP_OK);
            for (uint32_t i = 0; i < LAYERS; i++)
                for (int pass = 0; pass < FCP_PASSES; pass++) {
                    sim_recurrent_model(plan, &profile, (fcp_pass)pass, &m);
                    const fcp_pass network = layers[i].kind == FCP_SCAN ? (fcp_pass)pass : FCP_FORWARD;
                    const uint64_t wanted = model(plan, &m, i, network), got = walk(plan, &m, i);
                    cr_expect_eq(got, wanted, "%s, %s, layer %u, pass %d: %llu, not %llu", clusters[c], ways[w], i,
                                 pass, (unsigned long long)got, (unsigned long long)wanted);
                }
            fcp_plan_free(plan);
        }
}

/* The shape that is chosen takes at most a third longer than the best of all shapes and numbers of parts. */
Test(recurrent_walk, a_good_shape_is_chosen) {
    static const char *const clusters[] = {"nodes = 4; gpus = 8", "nodes = 2; gpus = 4", "gpus = 8",
                                           "nodes = 16; gpus = 1"};
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++)
            for (uint32_t decay = 0; decay < FCP_DECAYS; decay++) {
                const fcp_recurrent chosen =
                    {.kind = FCP_SCAN, .times = 1, .heads = 32, .rows = 128, .columns = 128, .decay = decay};
                fcp_recurrent all[32];
                uint32_t count = 0;
                all[count++] = chosen;
                for (uint32_t parts = 1; parts <= 32; parts *= 2)
                    for (uint32_t shape = FCP_SCAN_CHAIN; shape <= FCP_SCAN_NODES; shape++) {
                        all[count] = chosen;
                        all[count].parts = parts;
                        all[count++].shape = shape;
                    }
                fcp_plan *plan = plan_on(clusters[c], ways[w]);
                sim_profile profile;
                sim_model m;
                recurrent_give(plan, all, count);
                cr_assert_eq(sim_profile_of(plan->cluster, &profile, NULL), FCP_OK);
                sim_recurrent_model(plan, &profile, FCP_FORWARD, &m);
                uint64_t best = UINT64_MAX;
                for (uint32_t i = 1; i < count; i++) {
                    const uint64_t time = walk(plan, &m, i);
                    if (time < best) best = time;
                }
                const uint64_t own = walk(plan, &m, 0);
                cr_expect_leq(own, best + best / 3, "%s, %s, decay %u: %.1f us, the best takes %.1f", clusters[c],
                              ways[w], decay, 1e-6 * (double)own, 1e-6 * (double)best);
                fcp_plan_free(plan);
            }
}
