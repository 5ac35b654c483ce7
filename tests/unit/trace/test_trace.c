/* test_trace.c: tests timelines. Predicted and measured ones have the same intervals, the counters of slots and of
 * bytes under way end as they began, and the ranks that were asked for are drawn. tests/cli reads the trace file
 * itself, with jq. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/plan/enum_names.h"
#include "tests/support/plan_of.h"
#include "tests/support/scatter.h"
#include "compiler/trace/trace.h"
#include "runtime/exec/rank_memory.h"
#include "runtime/exec/session.h"
#include "runtime/judge/packed.h"

static const char *const PROGRAMS[] = {
    "model { heads = 4; kv_heads = 2; head_dim = 32; dtype = fp32 }\ncluster { nodes = 2; gpus = 2; gpu = h200 }\n"
    "batch { lengths = [700, 300 x 2, 50 x 6, 1] }\nplan { mask = causal; block = 128; passes = forward, backward }\n",
    "model { heads = 2; kv_heads = 1; head_dim = 16; dtype = fp32 }\ncluster { nodes = 2; gpus = 3; gpu = cpu }\n"
    "batch { lengths = [2000, 130] }\n"
    "plan { mask = window(w = 400); block = 128; layout = contiguous; passes = forward, backward }\n",
    "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = fp32 }\ncluster { nodes = 1; gpus = 4; gpu = a100 }\n"
    "batch { lengths = [1024] }\nplan { mask = full; strategy = ring(coalesce = 1); passes = forward }\n",
    "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = fp32 }\ncluster { nodes = 3; gpus = 1; gpu = h100 }\n"
    "batch { lengths = [10:900, 300:300, 1:400] }\nplan { mask = causal; block = 128; passes = forward, backward }\n",
};
enum { PROGRAM_COUNT = sizeof PROGRAMS / sizeof *PROGRAMS };

static timeline predicted(const fcp_plan *plan, const char *ranks, arena *memory) {
    char gpu[17] = "";
    sim_profile profile;
    sim_result result;
    timeline t;
    fcp_error err;
    memcpy(gpu, plan->cluster->gpu, sizeof plan->cluster->gpu);
    cr_assert_eq(sim_profile_find(gpu, &profile, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(simulate(plan, &profile, NULL, memory, &result, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(timeline_predict(plan, &profile, NULL, &result, ranks, memory, &t, &err), FCP_OK, "%s", err.message);
    return t;
}

static fcp_session *ran(const fcp_plan *plan) {
    const fcp_session_options options = {.size = sizeof options, .compute_threads = 2, .timings = true};
    fcp_session *s = NULL;
    fcp_shape shape;
    fcp_packed packed = {0};
    fcp_error err;
    fcp_plan_shape(plan, &shape);
    cr_assert_eq(fcp_session_create(plan, &options, &s, &err), FCP_OK, "%s", err.message);
    cr_assert_eq(fcp_packed_alloc(&shape, (1 << FCP_TENSORS) - 1, &packed, &err), FCP_OK);
    fcp_packed_draw(&shape, (1 << FCP_TENSORS) - 1, 3, &packed);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (shape.has_pass[pass])
            cr_assert_eq(fcp_session_run_packed(s, plan, (fcp_pass)pass, &packed, NULL, &err), FCP_OK, "%s",
                         err.message);
    fcp_packed_free(&packed);
    return s;
}

/* In one lane the intervals of a launch, or of an instruction, come after those of the one before. Each has its place
 * in the plan. */
static void check_order(const timeline *t) {
    const fcp_problem *p = t->plan->problem;
    for (uint64_t n = 0; n < t->count; n++) {
        const sim_interval *x = &t->at[n], *y = n + 1 < t->count ? &t->at[n + 1] : NULL;
        const uint32_t op = t->plan->instrs[x->instr].op;
        const bool moves = x->doing == SIM_SEND || x->doing == SIM_RECV;
        cr_assert(x->start < x->end && x->ready <= x->start && x->end <= t->makespan[x->pass]);
        cr_assert(x->rank < p->ranks && t->ranks.has[x->rank]);
        cr_assert(moves == (x->lane != SIM_LANE_COMPUTE) && moves == (op == FCP_OP_LAUNCH) &&
                  (x->doing == SIM_WAIT) == (op == FCP_OP_WAIT));
        if (moves) {
            const fcp_transfer *s = &t->plan->transfers[x->transfer]; /* the sender's record, at both ends */
            cr_assert(s->dir == FCP_SEND && s->block == x->block &&
                      s->peer == (x->doing == SIM_SEND ? x->peer : x->rank));
            cr_assert((x->lane == SIM_LANE_NET) == (s->fabric == FCP_NET) && x->bytes > 0);
        }
        if (!y || x->rank != y->rank || x->pass != y->pass || x->lane != y->lane) continue;
        cr_assert(x->start <= y->start &&
                      (x->end <= y->start || (moves && x->instr == y->instr && x->doing != y->doing)),
                  "rank %u, lane %u: %lu to %lu, and then %lu", x->rank, x->lane, (unsigned long)x->start,
                  (unsigned long)x->end, (unsigned long)y->start);
    }
}

/* No more slots of a class are used than there are, and some if there are any; in the end nothing is in use. */
static void check_counters(const timeline *t) {
    const uint32_t ranks = t->plan->problem->ranks;
    fcp_homes *homes = fcp_homes_of(t->plan);
    for (uint64_t first = 0, end; first < t->count; first = end) {
        const uint32_t rank = t->at[first].rank, pass = t->at[first].pass;
        for (end = first; end < t->count && t->at[end].rank == rank && t->at[end].pass == pass;) end++;
        arena memory = {0};
        trace_change *changes;
        uint64_t count, now = 0;
        int64_t slots[FCP_CLASSES] = {0}, most[FCP_CLASSES] = {0}, flight[FCP_FABRICS] = {0};
        fcp_slots has;
        cr_assert_lt(rank, ranks);
        fcp_slots_of(t->plan, (fcp_pass)pass, rank, homes[rank].homes, &has);
        cr_assert_eq(trace_changes(t, rank, (fcp_pass)pass, first, end - first, &memory, &changes, &count), FCP_OK);
        for (uint64_t i = 0; i < count; i++) {
            cr_assert_geq(changes[i].time, now);
            now = changes[i].time;
            int64_t *of = changes[i].counter == TRACE_SLOTS ? &slots[changes[i].what] : &flight[changes[i].what];
            *of += changes[i].change;
            if (i + 1 < count && changes[i + 1].time == now) continue;
            for (int c = 0; c < FCP_CLASSES; c++) {
                cr_assert_geq(slots[c], 0);
                if (slots[c] > most[c]) most[c] = slots[c];
            }
            for (int f = 0; f < FCP_FABRICS; f++) cr_assert_geq(flight[f], 0);
        }
        for (int c = 0; c < FCP_CLASSES; c++) cr_assert_eq(slots[c], 0);
        for (int f = 0; f < FCP_FABRICS; f++) cr_assert_eq(flight[f], 0);
        for (int c = 0; c < FCP_CLASSES; c++)
            cr_assert((uint64_t)most[c] <= has.count[c] && !most[c] == !has.count[c],
                      "%s pass, rank %u: %ld slots of class %s are used, and there are %lu", fcp_pass_names[pass], rank,
                      (long)most[c], fcp_class_names[c], (unsigned long)has.count[c]);
        arena_free(&memory);
    }
    free(homes);
}

/* Every send has its receive: the same transfer, as long and at the same time. */
static void check_ends(const timeline *t) {
    for (uint64_t n = 0; n < t->count; n++) {
        const sim_interval *x = &t->at[n];
        bool found = x->doing != SIM_SEND;
        for (uint64_t m = 0; m < t->count && !found; m++) {
            const sim_interval *y = &t->at[m];
            found = y->doing == SIM_RECV && y->transfer == x->transfer && y->rank == x->peer && y->peer == x->rank &&
                    y->bytes == x->bytes && y->round == x->round;
            if (found) cr_assert_eq(y->end, x->end);
        }
        cr_assert(found, "nobody receives transfer %u", x->transfer);
    }
}

/* The plan of a program by its strategy, or with everything drawn at random. */
enum { DRAWS = 6, PLANS = PROGRAM_COUNT * (1 + DRAWS) };
static fcp_plan *plan_number(int i) {
    if (i < PROGRAM_COUNT) return plan_of(PROGRAMS[i]);
    const scatter s = scatter_new((uint64_t)i);
    fcp_plan *plan = scatter_plan(PROGRAMS[i % PROGRAM_COUNT], &s);
    cr_assert_not_null(plan);
    return plan;
}

Test(trace, what_is_predicted_fits_the_plan) {
    for (int i = 0; i < PLANS; i++) {
        fcp_plan *plan = plan_number(i);
        arena memory = {0};
        timeline t = predicted(plan, NULL, &memory);
        cr_assert(!t.measured && t.count > 0 && t.ranks.count == plan->problem->ranks);
        check_order(&t);
        check_counters(&t);
        check_ends(&t);
        arena_free(&memory);
        fcp_plan_free(plan);
    }
}

/* A measured timeline has the transfers that the predicted one has, the same instructions and no others. */
Test(trace, what_is_measured_has_the_same_intervals) {
    for (int i = 0; i < PLANS; i++) {
        fcp_plan *plan = plan_number(i);
        fcp_session *session = ran(plan);
        arena memory = {0};
        timeline t = predicted(plan, NULL, &memory), m;
        fcp_error err;
        uint64_t moved[2] = {0}, bytes[2] = {0};
        cr_assert_eq(timeline_measure(session, NULL, &memory, &m, &err), FCP_OK, "%s", err.message);
        cr_assert(m.measured && !strcmp(m.source, "host"));
        check_order(&m);
        check_counters(&m);
        for (int k = 0; k < 2; k++) {
            const timeline *x = k ? &m : &t;
            uint8_t *seen = calloc(2 * plan->transfers_count + plan->instrs_count + 1, 1);
            for (uint64_t n = 0; n < x->count; n++) {
                const sim_interval *v = &x->at[n];
                if (v->doing == SIM_SEND || v->doing == SIM_RECV) {
                    uint8_t *here = &seen[2 * v->transfer + (v->doing == SIM_RECV)];
                    cr_assert(!*here, "transfer %u is there twice", v->transfer);
                    *here = 1;
                    moved[k]++;
                    bytes[k] += v->bytes;
                } else {
                    cr_assert(!seen[2 * plan->transfers_count + v->instr]);
                    seen[2 * plan->transfers_count + v->instr] = 1;
                }
            }
            free(seen);
        }
        cr_assert_eq(moved[0], moved[1]);
        cr_assert_eq(bytes[0], bytes[1]);
        arena_free(&memory);
        fcp_session_free(session);
        fcp_plan_free(plan);
    }
}

Test(trace, is_the_same_text_again_and_is_whole) {
    fcp_plan *plan = plan_of(PROGRAMS[0]);
    arena memory = {0};
    timeline t = predicted(plan, NULL, &memory);
    text one = {0}, two = {0};
    cr_assert_eq(trace_json(&t, &one, NULL), FCP_OK);
    cr_assert_eq(trace_json(&t, &two, NULL), FCP_OK);
    cr_assert(one.size == two.size && !memcmp(one.at, two.at, one.size));
    text_add(&one, "", 1);
    const char *const has[] = {"\"name\":\"attend\"", "\"name\":\"wait ",           "\"ph\":\"s\"",
                               "\"ph\":\"f\"",        "\"name\":\"slots\"",         "\"name\":\"bytes in flight\"",
                               "\"name\":\"memory\"", "\"timeline\":\"predicted\"", "rank 3 (node 1)"};
    for (size_t i = 0; i < sizeof has / sizeof *has; i++) cr_assert(strstr(one.at, has[i]), "%s", has[i]);
    text_free(&one);
    text_free(&two);
    arena_free(&memory);
    fcp_plan_free(plan);
}

Test(trace, of_a_session_for_whoever_uses_the_library) {
    fcp_plan *plan = plan_of(PROGRAMS[1]);
    fcp_session *timed = ran(plan), *other = NULL;
    char *json = NULL;
    fcp_error err;
    cr_assert_eq(fcpc_trace_json(timed, &json, &err), FCP_OK, "%s", err.message);
    cr_assert(strstr(json, "\"timeline\":\"measured\",\"backend\":\"host\"") && strstr(json, "rank 5 (node 1)"));
    free(json);
    json = NULL;
    cr_assert_eq(fcp_session_create(plan, NULL, &other, &err), FCP_OK);
    cr_assert_eq(fcpc_trace_json(other, &json, &err), FCP_E_ARGUMENT);
    cr_assert_eq(fcpc_trace_json(NULL, &json, &err), FCP_E_ARGUMENT);
    cr_assert_null(json);
    fcp_session_free(other);
    fcp_session_free(timed);
    fcp_plan_free(plan);
}

/* --- which ranks -------------------------------------------------------------------------------------------------- */

static const char MANY[] =
    "model { heads = 2; kv_heads = 2; head_dim = 16; dtype = bf16 }\ncluster { nodes = 10; gpus = 8; gpu = h200 }\n"
    "batch { lengths = [20000] }\nplan { mask = causal; block = 128; passes = forward }\n";

Test(trace, draws_the_ranks_that_are_asked_for) {
    fcp_plan *plan = plan_of(MANY);
    arena memory = {0};
    uint64_t work[80];
    trace_ranks r;
    fcp_error err;
    for (uint32_t i = 0; i < 80; i++) work[i] = i * 37 % 80; /* rank 54 has most: 78; 13 of them share nothing */
    const struct { const char *typed; uint32_t count, ranks[12]; } good[] = {
        {"0", 1, {0}}, {"7,3,3", 2, {3, 7}}, {"2..5,79", 4, {2, 3, 4, 79}}, {"77..", 3, {77, 78, 79}},
        {"0..1", 1, {0}}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        cr_assert_eq(trace_ranks_read(plan, good[i].typed, work, &memory, &r, &err), FCP_OK, "%s: %s", good[i].typed,
                     err.message);
        cr_assert_eq(r.count, good[i].count, "%s", good[i].typed);
        for (uint32_t k = 0; k < r.count; k++)
            cr_assert(r.at[k] == good[i].ranks[k] && r.has[r.at[k]], "%s", good[i].typed);
    }
    cr_assert(trace_ranks_read(plan, "all", work, &memory, &r, &err) == FCP_OK && r.count == 80);
    const char *const bad[] = {"", "a", "80", "5..5", "7..3", "0,,1", "1,", "3..81", "-1", "4294967296", "1 2", "busy"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_assert_eq(trace_ranks_read(plan, bad[i], work, &memory, &r, &err), FCP_E_USAGE, "%s", bad[i]);
        cr_assert(strstr(err.message, "--ranks is '"));
    }
    for (int asked = 0; asked < 2; asked++) { /* by itself beyond 64 ranks: the 8 busiest, and the middle one */
        uint32_t order[80];
        cr_assert_eq(trace_ranks_read(plan, asked ? "busiest" : NULL, work, &memory, &r, &err), FCP_OK);
        cr_assert_eq(r.count, 9);
        /* 37 and 80 share no factor: each work is there once */
        for (uint32_t i = 0; i < 80; i++) order[79 - work[i]] = i;
        for (uint32_t i = 0; i < 8; i++) cr_assert(r.has[order[i]], "rank %u", order[i]);
        cr_assert(r.has[order[40]]);
        for (uint32_t i = 1; i < 9; i++) cr_assert_lt(r.at[i - 1], r.at[i]);
    }
    timeline t = predicted(plan, "11,70..72", &memory);
    cr_assert_eq(t.ranks.count, 3);
    for (uint64_t i = 0; i < t.count; i++) cr_assert(t.at[i].rank == 11 || t.at[i].rank == 70 || t.at[i].rank == 71);
    check_order(&t);
    arena_free(&memory);
    fcp_plan_free(plan);
}
