/* test_auto.c: tests strategy = auto: it predicts for a candidate the time that the simulator predicts for the finished
 * plan, its lower bounds hold, and no candidate is faster than the one that it keeps. */
#define _GNU_SOURCE /* sched_setaffinity */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compiler/auto/auto.h"
#include "compiler/compile.h"
#include "runtime/base/both.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/plan_summary.h"
#include "tests/support/amount.h"
#include "tests/support/predicted.h"
#include "tests/support/splitmix.h"

#define MODEL "model { heads = 8; kv_heads = 2; head_dim = 128 }\n"

static fcpc_program *parse(const char *source, fcpc_diagnostics *d) {
    fcpc_program *program = NULL;
    cr_assert_eq(fcpc_parse_text("t.fcp", source, strlen(source), NULL, d, &program), FCP_OK, "%s", source);
    return program;
}

static const struct sample {
    const char *cluster, *batch, *plan;
} samples[] = {
    {"nodes = 2; gpus = 4; gpu = h200", "lengths = [40000, 9000, 3000 x 10, 500 x 20]",
     "mask = causal; layout = contiguous"},
    {"nodes = 2; gpus = 4; gpu = h200", "lengths = [40000, 9000, 3000 x 10, 500 x 20]",
     "mask = causal; layout = planned"},
    {"gpus = 4; gpu = b200; intra = 20 GB/s", "lengths = [16384 x 4]", "mask = lambda(window = 2000); layout = zigzag"},
    {"nodes = 4; gpus = 2; gpu = cpu", "lengths = [30000]",
     "mask = causal; passes = forward; layout = contiguous(group = 2)"},
    {"nodes = 2; gpus = 2; gpu = h100; oversubscription = 4", "lengths = [100:4000, 1:8192 x 9]", "mask = causal"},
    {"gpus = 4; gpu = h100", "lengths = [8000, 2000 x 3]", "mask = shared_question; block = 256; layout = contiguous"},
    {"gpus = 2; gpu = h100", "lengths = [300, 20]", "mask = full"},
    {"nodes = 2; gpus = 2; gpu = a100; fabric = rail", "lengths = [12000, 700 x 8]", "mask = causal and h < 3"},
};
enum { SAMPLES = sizeof samples / sizeof *samples };

static void write_program(const struct sample *s, const char *by, uint32_t block, char out[1024]) {
    char size[40] = "";
    if (block && !strstr(s->plan, "block")) snprintf(size, sizeof size, "; block = %" PRIu32, block);
    bool own = strstr(s->plan, " h < ");
    snprintf(out, 1024, MODEL "cluster { %s }\nbatch { %s }\n%splan { %s%s; strategy = %s }\n", s->cluster, s->batch,
             own ? "mask own = causal and h < 3\n" : "", own ? "mask = own" : s->plan, size, by);
}

static fcp_code plan_it(const char *source, auto_report *report, fcp_plan **out) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse(source, d);
    const fcpc_batch batch = {.size = sizeof batch};
    const compile_watch watch = {.tried = report};
    fcpc_times times;
    fcp_code code = compile_batch(program, &batch, NULL, d, &watch, &times, out);
    if (!code && report) cr_expect_gt(times.choose, 0);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

/* Candidates share what the mask answered. That changes nothing in the plan but the numbers of shapes. */
static void expect_same_tables(const fcp_plan *a, const fcp_plan *b, const char *source) {
    cr_assert_eq(a->shapes_count, b->shapes_count, "%s", source);
    cr_assert_eq(a->runs_count, b->runs_count, "%s", source);
    cr_assert_eq(a->parts_count, b->parts_count, "%s", source);
    cr_assert_eq(a->instrs_count, b->instrs_count, "%s", source);
    cr_expect_arr_eq(a->instrs, b->instrs, a->instrs_count * sizeof *a->instrs);
    for (uint64_t i = 0; i < a->parts_count; i++) {
        const fcp_part *p = &a->parts[i], *q = &b->parts[i];
        const fcp_shape_rec *s = &a->shapes[p->shape], *t = &b->shapes[q->shape];
        cr_assert(p->q_piece == q->q_piece && p->k_piece == q->k_piece && s->pairs == t->pairs && s->runs == t->runs,
                  "%s: part %" PRIu64, source, i);
        cr_assert_arr_eq(a->runs + s->first_run, b->runs + t->first_run, s->runs * sizeof *a->runs);
    }
}

/* Every candidate is planned as a program of its own. It takes the time that auto predicted for it. That is no less
 * than its bound, and no less than the time of what auto keeps. */
Test(auto, never_worse_than_its_candidates, .timeout = 300) {
    uint32_t ends[AUTO_END_COUNT] = {0};
    for (int i = 0; i < SAMPLES; i++)
        for (int effort = 1; effort <= 2; effort++) {
            char source[1024], how[64];
            auto_report r = {.count = 0};
            fcp_plan *kept = NULL;
            snprintf(how, sizeof how, "auto(effort = %d)", effort);
            write_program(&samples[i], how, 0, source);
            cr_assert_eq(plan_it(source, &r, &kept), FCP_OK, "%s", source);
            const uint64_t best = predicted(kept);
            cr_expect_eq(best, auto_makespan(&r), "%s", source);
            cr_expect_leq(best, r.at[r.chosen].makespan, "%s", source);
            cr_expect_eq(kept->problem->strategy, r.at[r.chosen].strategy);
            if (r.at[r.chosen].block) cr_expect_eq(kept->problem->block, r.at[r.chosen].block);
            uint32_t chosen = 0;
            for (uint32_t n = 0; n < r.count; n++) {
                const auto_candidate *c = &r.at[n];
                text name = {0};
                fcp_plan *plan = NULL;
                auto_name(c, &name);
                text_add(&name, "", 1);
                write_program(&samples[i], name.at, c->block, source);
                fcp_code code = plan_it(source, NULL, &plan);
                ends[c->end]++;
                chosen += c->end == AUTO_CHOSEN;
                if (c->end == AUTO_REFUSED) cr_expect_neq(code, FCP_OK, "%s", source);
                else {
                    cr_assert_eq(code, FCP_OK, "%s", source);
                    const uint64_t takes = predicted(plan);
                    if (c->end == AUTO_CHOSEN && !r.moves.kept) expect_same_tables(kept, plan, source);
                    if (c->end == AUTO_CHOSEN || c->end == AUTO_SLOWER) cr_expect_eq(takes, c->makespan, "%s", source);
                    else cr_expect_eq(c->makespan, 0);
                    cr_expect_leq(c->bound.all, takes, "%s: bound %" PRIu64 " of %" PRIu64, source, c->bound.all,
                                  takes);
                    if (effort > 1 || c->end != AUTO_FAR) cr_expect_leq(best, takes, "%s", source);
                    cr_expect(effort == 1 || c->end != AUTO_FAR);
                }
                fcp_plan_free(plan);
                text_free(&name);
            }
            cr_expect_eq(chosen, 1);
            fcp_plan_free(kept);
            auto_report_free(&r);
        }
    cr_expect(ends[AUTO_SLOWER] && ends[AUTO_BOUND] && ends[AUTO_FAR], "the samples show what they should");
}

/* Each effort goes on where the one before it ends. So its plan is never slower, and in some case it is faster. A plan
 * with moved rows takes the time that was predicted. The same program tries the same candidates in the same order. */
Test(auto, more_effort_is_never_worse) {
    static const struct sample cases[] = {
        {"nodes = 2; gpus = 4; gpu = h200", "lengths = [60000, 20000, 5000 x 8]", "mask = causal; layout = contiguous"},
        {"nodes = 2; gpus = 4; gpu = h200", "lengths = [40000, 9000, 3000 x 10, 500 x 20]",
         "mask = causal; layout = contiguous"},
        {"nodes = 2; gpus = 4; gpu = h200", "lengths = [30000, 30000, 700 x 30]",
         "mask = shared_question; layout = contiguous"},
        {"nodes = 2; gpus = 4; gpu = h100", "lengths = [40000, 9000, 3000 x 10, 500 x 20]", "mask = causal"},
    };
    enum { CASES = sizeof cases / sizeof *cases };
    uint32_t kept = 0, found = 0, better[4] = {0};
    for (int i = 0; i < CASES; i++) {
        uint64_t before = UINT64_MAX;
        for (int effort = 1; effort <= 3; effort++) {
            char source[1024], how[64];
            auto_report r = {.count = 0}, again = {.count = 0};
            fcp_plan *plan = NULL, *other = NULL;
            snprintf(how, sizeof how, "auto(effort = %d, among = [fcp, cad])", effort);
            write_program(&cases[i], how, 0, source);
            cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
            const bool twice = amount(i < 2 && effort == 3 - i, true);
            if (twice) cr_assert_eq(plan_it(source, &again, &other), FCP_OK);
            cr_expect_eq(predicted(plan), auto_makespan(&r), "%s", source);
            cr_expect_leq(auto_makespan(&r), before, "%s", source);
            better[effort] += auto_makespan(&r) < before;
            before = auto_makespan(&r);
            kept += r.moves.kept;
            cr_expect_leq(r.moves.kept, r.moves.tried);
            for (uint32_t n = 0; n < r.count; n++) found += r.at[n].found;
            if (twice) {
                cr_assert_eq(r.count, again.count);
                cr_expect_eq(r.moves.kept, again.moves.kept);
                for (uint32_t n = 0; n < r.count; n++) {
                    cr_expect_eq(r.at[n].makespan, again.at[n].makespan);
                    cr_expect_eq(r.at[n].end, again.at[n].end);
                }
                fcp_plan_free(other);
                auto_report_free(&again);
            }
            fcp_plan_free(plan);
            auto_report_free(&r);
        }
    }
    cr_expect(better[2] && better[3], "2 is better than 1 of %" PRIu32 " cases, 3 than 2 of %" PRIu32, better[2],
              better[3]);
    cr_expect(kept && found, "the cases show what they should: %" PRIu32 " moves, %" PRIu32 " neighbours", kept, found);
}

/* What the program states is not searched. */
Test(auto, stated_settings_stay) {
    static const struct sample stated = {"nodes = 2; gpus = 4; gpu = h200", "lengths = [60000, 20000, 5000 x 8]",
                                         "mask = causal; layout = contiguous; block = 1K; relay = off"};
    char source[1024];
    auto_report r = {.count = 0};
    fcp_plan *plan = NULL;
    write_program(&stated, "auto(effort = 2, coalesce = 8, buffers = 2, among = [cad, dcp])", 0, source);
    cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
    cr_expect_eq(plan->problem->block, 1024);
    cr_expect_eq(plan->problem->buffers, 2);
    uint32_t found = 0;
    for (const auto_candidate *c = r.at; c < r.at + r.count; c++) {
        found += c->found;
        cr_expect(!c->no_relay && c->block == 1024);
        for (uint32_t i = 0; i < c->settings; i++) {
            const char *name = strategy_params[c->set[i].param].name;
            cr_expect(strcmp(name, "coalesce") && strcmp(name, "buffers") && strcmp(name, "divisions"), "%s", name);
        }
    }
    cr_expect(found);
    fcp_plan_free(plan);
    auto_report_free(&r);
}

/* Every strategy of plans has a candidate, and `among` leaves the others out. */
Test(auto, among) {
    char source[1024], how[80];
    auto_report r = {.count = 0};
    fcp_plan *plan = NULL;
    write_program(&samples[0], "auto", 0, source);
    cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
    uint32_t seen = 0;
    for (uint32_t n = 0; n < r.count; n++) seen |= 1u << r.at[n].strategy;
    cr_expect_eq(seen, (1u << FCP_STRATEGY_COUNT) - 1, "a strategy has no line in compiler/auto/auto.c");
    fcp_plan_free(plan);
    auto_report_free(&r);
    for (int s = 0; s < FCP_STRATEGY_COUNT; s++) {
        snprintf(how, sizeof how, "auto(among = [%s], coalesce = 4)", fcp_strategy_names[s]);
        write_program(&samples[6], how, 0, source);
        cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
        cr_expect_eq(plan->problem->strategy, (uint32_t)s);
        if (!strategy_shares_heads((uint32_t)s)) cr_expect_eq(plan->problem->coalesce, 4);
        for (uint32_t n = 0; n < r.count; n++) cr_expect_eq(r.at[n].strategy, (fcp_strategy)s);
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
}

/* One long sequence on one node: ulysses is best, which has no blocks to size. fcp is close behind it, and so its other
 * sizes are tried. groups is not. */
Test(auto, sizes_of_a_close_one) {
    static const char source[] = "model { heads = 8; kv_heads = 8; head_dim = 128 }\n"
                                 "cluster { gpus = 8; gpu = h200; memory = 100 TB }\nbatch { lengths = [131072] }\n"
                                 "plan { mask = causal; layout = contiguous; strategy = auto(among = [%s]) }\n";
    static const struct {
        const char *among;
        uint32_t settings, tried; /* sizes that are tried of the candidate with blocks, which has so many settings */
    } rows[] = {{"ulysses, fcp", 0, 3}, {"ulysses, groups", 1, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char program[400];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        uint32_t tried = 0;
        snprintf(program, sizeof program, source, rows[i].among);
        cr_assert_eq(plan_it(program, &r, &plan), FCP_OK);
        cr_expect_eq(plan->problem->strategy, FCP_STRATEGY_ULYSSES);
        for (uint32_t n = 0; n < r.count; n++)
            tried += r.at[n].block && r.at[n].settings == rows[i].settings && r.at[n].end != AUTO_FAR;
        cr_expect_eq(tried, rows[i].tried, "%s: %" PRIu32, rows[i].among, tried);
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
}

/* What candidate n gives a parameter of cad, of which the program says nothing. */
static uint32_t given(const auto_report *r, uint32_t n, const char *param) {
    const uint32_t of = strategy_find_param(FCP_STRATEGY_CAD, param);
    for (uint32_t i = 0; i < r->at[n].settings; i++)
        if (r->at[n].set[i].param == of) return r->at[n].set[i].value;
    return strategy_params[of].usual;
}

/* The lengths of the sequences alone tell how many pairs the busiest rank of the strategy groups must have. If these
 * take too long, auto rules groups out at once. It then neither asks the mask about pieces nor computes what they send
 * (bound AUTO_LOCAL stays 0). Cases:
 *   eight ranks  60,000 tokens four times, and 90,000, which take too long even on two ranks: groups is ruled out
 *   four ranks   60,000 tokens four times: groups is planned */
Test(auto, groups_by_their_lengths) {
    static const struct {
        const char *ranks, *lengths;
        bool early;
    } cases[] = {{"nodes = 2; gpus = 4", "60000 x 4, 90000", true}, {"gpus = 4", "60000 x 4", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[1024];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        snprintf(source, sizeof source, MODEL "cluster { %s; gpu = h200 }\nbatch { lengths = [%s] }\n"
                 "plan { mask = causal; layout = planned; strategy = auto(among = [fcp, dcp, groups]) }\n",
                 cases[i].ranks, cases[i].lengths);
        cr_assert_eq(plan_it(source, &r, &plan), FCP_OK, "%s", source);
        fcp_plan_free(plan);
        uint32_t n = 0;
        while (n < r.count && r.at[n].strategy != FCP_STRATEGY_GROUPS) n++;
        cr_assert_lt(n, r.count, "%s", source);
        const auto_candidate *c = &r.at[n];
        cr_expect_gt(c->bound.of[AUTO_COMPUTE], 0, "%s", source);
        cr_expect_eq(c->end == AUTO_BOUND, cases[i].early, "%s: %s", source, auto_end_names[c->end]);
        if (cases[i].early) cr_expect_eq(c->bound.of[AUTO_LOCAL], 0, "%s", source);
        auto_report_free(&r);
    }
}

/* Effort 1 tries half of the smallest blocks of the list where ranks wait and the bound is far, and nowhere else: in
 * two halves, and with twice as many units in a stage, unless the program says how many. */
Test(auto, finer_blocks) {
    static const struct {
        const char *mask, *block, *strategy;
        uint32_t nodes, times; /* times: the coalesce of the candidate that it is half of */
        bool far, tried;
    } cases[] = {{"shared_question", "auto", "auto(among = [cad, dcp])", 4, 2, true, true},
                 {"shared_question", "auto", "auto(coalesce = 8, among = [cad, dcp])", 4, 1, true, true},
                 {"causal", "auto", "auto", 2, 0, false, false},
                 {"shared_question", "2K", "auto", 4, 0, true, false}};
    int cads = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[512];
        auto_report r = {.count = 0};
        fcp_plan *kept = NULL;
        uint32_t least = UINT32_MAX;
        bool tried = false;
        snprintf(source, sizeof source,
                 "model { heads = 32; kv_heads = 8; head_dim = 128 }\ncluster { nodes = %u; gpus = 4; gpu = h200 }\n"
                 "batch { lengths = [1000 x 200, 50000 x 2] }\n"
                 "plan { mask = %s; block = %s; layout = contiguous; passes = forward; strategy = %s }\n",
                 cases[i].nodes, cases[i].mask, cases[i].block, cases[i].strategy);
        cr_assert_eq(plan_it(source, &r, &kept), FCP_OK, "%s", source);
        cr_expect_eq(r.at[r.chosen].makespan > r.at[r.chosen].bound.all / 2 * 3, cases[i].far, "%s", source);
        for (uint32_t n = 0; n < r.count; n++)
            if (r.at[n].block && !r.at[n].found && r.at[n].block < least) least = r.at[n].block;
        for (uint32_t n = 0; n < r.count; n++) {
            cr_expect(!r.at[n].block || r.at[n].block >= least / 2);
            if (!r.at[n].found || r.at[n].block != least / 2 || tried) continue;
            uint32_t best = 0; /* of those before it */
            for (uint32_t b = 0; b < n; b++)
                if (r.at[b].makespan && (!r.at[best].makespan || r.at[b].makespan < r.at[best].makespan)) best = b;
            cr_expect_eq(r.at[best].strategy, r.at[n].strategy, "%s", source);
            if (r.at[best].strategy == FCP_STRATEGY_CAD) { /* stages of dcp are parts of all, and stay as long */
                cr_expect_eq(given(&r, n, "coalesce"), cases[i].times * given(&r, best, "coalesce"), "%s", source);
                cads++;
            }
            tried = true;
        }
        cr_expect_eq(tried, cases[i].tried, "%s", source);
        fcp_plan_free(kept);
        auto_report_free(&r);
    }
    cr_expect(cads, "the cases show what they should");
}

/* A large batch is tried in smaller blocks and in no larger ones; a small batch in both. */
Test(auto, larger_blocks) {
    static const struct {
        const char *layout;
        int nodes, shorts, longs;
        bool larger;
    } cases[] = {{"contiguous", 32, 6000, 50, false}, {"contiguous", 2, 400, 4, true}, {"planned", 2, 400, 4, true},
                 {"planned", 32, 6000, 50, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[512];
        auto_report r = {.count = 0};
        fcp_plan *kept = NULL;
        bool larger = false, smaller = false;
        snprintf(source, sizeof source,
                 "model { heads = 32; kv_heads = 8; head_dim = 128 }\ncluster { nodes = %d; gpus = 8; gpu = h200 }\n"
                 "batch { lengths = [1000 x %d, 50000 x %d] }\n"
                 "plan { mask = shared_question; layout = %s; passes = forward; "
                 "strategy = auto(among = [fcp, cad, dcp]) }\n",
                 cases[i].nodes, cases[i].shorts, cases[i].longs, cases[i].layout);
        cr_assert_eq(plan_it(source, &r, &kept), FCP_OK, "%s", source);
        const uint32_t middle = r.at[0].block;
        for (uint32_t n = 0; n < r.count; n++) {
            const auto_candidate *c = &r.at[n];
            if (!c->block || c->found || c->end == AUTO_FAR) continue;
            larger |= c->block > middle, smaller |= c->block < middle;
        }
        cr_expect(smaller, "%s", source);
        cr_expect_eq(larger, cases[i].larger, "%s", source);
        fcp_plan_free(kept);
        auto_report_free(&r);
    }
}

/* auto tries less of what takes long. Here it tries cad with three tolerances: the usual one, 0.1 and 0.5.
 * - It leaves out 0.5 if ranks wait little with the first two.
 * - In a batch that takes long to cut, it also leaves out 0.5 if 0.1 is less than 3 % better than the usual one.
 * - If a plan has many tiles (`large`), fewer changes of it are tried, and only one setting with smaller blocks.
 * - If it has HEAVY_TILES or more, no work is moved from rank to rank to improve it. */
Test(auto, less_of_what_takes_long, .timeout = 120) {
    static const struct {
        const char *lengths, *mask;
        int nodes;
        bool large; /* it takes long to cut, and its plan has many tiles */
    } cases[] = {{"1000 x 6000, 70000 x 50", "causal", 32, true}, {"3000 x 2400, 100000 x 12", "causal", 32, true},
                 {"1000 x 400, 50000 x 4", "causal", 2, false}, {"1000 x 400, 60000", "shared_question", 4, false}};
    uint32_t left_out = 0, tried = 0, heavy = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[512];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        snprintf(source, sizeof source,
                 "model { heads = 32; kv_heads = 8; head_dim = 128 }\ncluster { nodes = %d; gpus = 8; gpu = h200 }\n"
                 "batch { lengths = [%s] }\nplan { mask = %s; layout = contiguous; passes = forward; "
                 "strategy = auto(among = [cad]) }\n",
                 cases[i].nodes, cases[i].lengths, cases[i].mask);
        cr_assert_eq(plan_it(source, &r, &plan), FCP_OK, "%s", source);
        uint32_t found = 0, smaller = 0;
        uint64_t second = 0;
        bool far = false;
        for (uint32_t n = 0; n < r.count; n++) {
            const auto_candidate *c = &r.at[n];
            found += c->found && c->end != AUTO_FAR;
            smaller += !c->found && c->block < r.at[0].block && c->makespan;
            if (c->found || c->block != r.at[0].block) continue;
            if (given(&r, n, "tolerance") == 100000) second = c->makespan;
            if (given(&r, n, "tolerance") == 500000) far = c->end == AUTO_FAR;
        }
        const bool better = second && second <= r.at[0].makespan / 103 * 100;
        const uint64_t least = second && second < r.at[0].makespan ? second : r.at[0].makespan;
        const bool waits = least / 165 * 100 > r.at[0].bound.all;
        cr_expect_eq(far, !waits || (cases[i].large && !better), "%s", source);
        left_out += far, tried += !far;
        const uint64_t tiles = plan->tiles_count;
        cr_expect_eq(tiles > 32768, cases[i].large, "%" PRIu64 " tiles", tiles);
        cr_expect(smaller && (smaller == 1 || !cases[i].large), "%" PRIu32 " settings with smaller blocks", smaller);
        cr_expect(found && found <= (cases[i].large ? 6 : 10), "%" PRIu32, found); /* steps that gain are not counted */
        const uint32_t gained = 2 * r.moves.kept; /* after a gain two more are tried */
        cr_expect_leq(r.moves.tried, tiles >= HEAVY_TILES ? 0 : cases[i].large ? 2 + gained : 8);
        cr_expect(tiles >= HEAVY_TILES || r.moves.tried, "something is moved");
        heavy += tiles >= HEAVY_TILES;
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
    cr_expect(left_out && tried && heavy, "the cases show what they should: %" PRIu32 ", %" PRIu32 ", %" PRIu32,
              left_out, tried, heavy);
}

/* Many short sequences take less time where they are than to be brought elsewhere and back. So with effort 1 no
 * strategy that would do that is tried; one long sequence is. */
Test(auto, tokens_that_stay) {
    static const struct {
        const char *lengths, *layout;
        int effort;
        bool tried;
    } cases[] = {{"1000 x 320", "contiguous", 1, false}, {"1000 x 320", "contiguous", 2, true},
                 {"1000 x 320", "planned", 1, true}, {"320000", "contiguous", 1, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[512];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        uint32_t tried = 0;
        snprintf(source, sizeof source,
                 "model { heads = 32; kv_heads = 8; head_dim = 128 }\ncluster { nodes = 2; gpus = 4; gpu = h200 }\n"
                 "batch { lengths = [%s] }\nplan { mask = causal; layout = %s; passes = forward; "
                 "strategy = auto(effort = %d, among = [cad, dcp, fcp]) }\n",
                 cases[i].lengths, cases[i].layout, cases[i].effort);
        cr_assert_eq(plan_it(source, &r, &plan), FCP_OK, "%s", source);
        for (uint32_t n = 0; n < r.count; n++)
            tried += r.at[n].strategy == FCP_STRATEGY_FCP && r.at[n].end != AUTO_FAR;
        cr_expect_eq(tried > 0, cases[i].tried, "%s", source);
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
}

/* ulysses with 4 buffers takes as long as with 3. So nobody tries 5. */
Test(auto, settings_that_change_nothing) {
    static const char source[] = "model { heads = 64; kv_heads = 8; head_dim = 128 }\n"
                                 "cluster { gpus = 8; gpu = h200; memory = 100 TB }\nbatch { lengths = [131072] }\n"
                                 "plan { mask = causal; layout = contiguous; strategy = auto(among = [ulysses]) }\n";
    const uint32_t buffers = strategy_find_param(FCP_STRATEGY_ULYSSES, "buffers");
    auto_report r = {.count = 0};
    fcp_plan *plan = NULL;
    uint32_t same = 0;
    cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
    for (uint32_t n = 0; n < r.count; n++)
        for (uint32_t i = 0; i < r.at[n].settings; i++) {
            if (r.at[n].set[i].param != buffers) continue;
            same += r.at[n].makespan == r.at[0].makespan;
            cr_expect_leq(r.at[n].set[i].value, 4);
        }
    cr_expect_eq(same, 1);
    fcp_plan_free(plan);
    auto_report_free(&r);
}

/* Where the plan of one candidate does not fit into memory, another is kept. Where none fits, the error is that of the
 * first one, with its place. */
Test(auto, refused) {
    char source[1024];
    auto_report r = {.count = 0};
    fcp_plan *plan = NULL;
    struct sample small = samples[0];
    write_program(&small, "auto(effort = 2)", 0, source);
    cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
    const uint64_t needs = plan->summary->memory_peak_bytes;
    const fcp_strategy freely = r.at[r.chosen].strategy;
    fcp_plan_free(plan);
    auto_report_free(&r);
    char cluster[128];
    snprintf(cluster, sizeof cluster, "%s; memory = %" PRIu64 " B", samples[0].cluster, needs - 1);
    small.cluster = cluster;
    write_program(&small, "auto(effort = 2)", 0, source);
    cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
    uint32_t refused = 0;
    for (uint32_t n = 0; n < r.count; n++) {
        refused += r.at[n].end == AUTO_REFUSED;
        cr_expect(r.at[n].end != AUTO_REFUSED || strstr(r.at[n].why, "cluster.memory allows"), "%s", r.at[n].why);
    }
    cr_expect(refused, "%s needs less than %" PRIu64, fcp_strategy_names[freely], needs);
    cr_expect_lt(plan->summary->memory_peak_bytes, needs);
    fcp_plan_free(plan);
    auto_report_free(&r);

    small.cluster = "nodes = 2; gpus = 4; memory = 10 kB";
    write_program(&small, "auto", 0, source);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse(source, d);
    cr_expect_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan), FCP_E_MEMORY_CAP);
    fcpc_diagnostic one = {.warning = true};
    for (size_t i = 0; i < fcpc_diagnostics_count(d) && one.warning; i++) fcpc_diagnostics_get(d, i, &one);
    cr_expect_eq(one.code, FCP_E_MEMORY_CAP);
    cr_expect_eq(one.line, 2);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

/* --- where little works ------------------------------------------------------------------------------------------- */

/* What a program gives: its first error, or FCP_OK. said: all that was said. */
static fcp_code outcome(const char *source, char said[4096]) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcp_plan *plan = NULL;
    fcp_code code = fcpc_parse_text("t.fcp", source, strlen(source), NULL, d, &program);
    if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
    char *picture = fcpc_diagnostics_render(d, false);
    snprintf(said, 4096, "%s", picture);
    free(picture);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
    return code;
}

static uint32_t pick(uint64_t *state, uint32_t n) { return (uint32_t)(splitmix(state) >> 33) % n; }

/* Where a strategy that auto may choose works by itself, auto works. Where none does, auto says what one of them says,
 * and why each other one was refused. */
Test(auto, works_if_one_of_its_strategies_does, .timeout = 300) {
    static const uint32_t heads[] = {1, 2, 3, 4, 6, 8, 12};
    static const char *const layouts[] = {"planned", "contiguous", "zigzag"}, *const masks[] = {
        "causal", "full", "window(w = 300)", "lambda(window = 200, sink = 3)"};
    static const char *const memories[] = {"80 GB", "80 GB", "300 kB", "1 MB", "4 MB"};
    static char said[4096], plain[FCP_STRATEGY_COUNT][4096];
    uint32_t worked = 0, heads_wrong = 0, behind = 0, of_code[FCP_CODE_COUNT] = {0};
    for (uint64_t seed = 1; seed <= amount(150, 2000); seed++) {
        char start[600], source[1024], among[200] = "";
        uint64_t state = seed;
        const uint32_t h = heads[pick(&state, 7)], nodes = 1 + pick(&state, 3), gpus = 1 + pick(&state, 12);
        uint32_t kv = 1 + pick(&state, h), which = 0, count = 1 + pick(&state, 3);
        while (h % kv) kv--;
        while (count--) which |= 1u << pick(&state, FCP_STRATEGY_COUNT);
        if (!pick(&state, 3))
            which = 1u << FCP_STRATEGY_ULYSSES | 1u << (pick(&state, 2) ? FCP_STRATEGY_UPIPE : FCP_STRATEGY_GROUPS);
        const bool large = !pick(&state, 8); /* than groups take on so few ranks */
        snprintf(start, sizeof start,
                 "model { heads = %u; kv_heads = %u; head_dim = 16 }\n"
                 "cluster { nodes = %u; gpus = %u; memory = %s }\nbatch { lengths = [%u, %u x 3] }\n"
                 "plan { mask = %s; layout = %s; block = %u; strategy = ",
                 h, kv, large ? 1 : nodes, large ? 1 : gpus, large ? "80 GB" : memories[pick(&state, 5)],
                 large ? 200000 : 1 + pick(&state, 3000), 1 + pick(&state, 400), masks[pick(&state, 4)],
                 layouts[pick(&state, 3)], large ? 4096 : 128u << pick(&state, 3));
        fcp_code of[FCP_STRATEGY_COUNT], code;
        bool one = false, divide = false;
        for (uint32_t i = 0; i < FCP_STRATEGY_COUNT; i++) {
            if (!(which >> i & 1)) continue;
            snprintf(among + strlen(among), sizeof among - strlen(among), "%s%s", *among ? ", " : "",
                     fcp_strategy_names[i]);
            snprintf(source, sizeof source, "%s%s }\n", start, fcp_strategy_names[i]);
            of[i] = outcome(source, plain[i]);
            if (of[i] == FCP_E_HEADS && nodes > 1 && !large) { /* auto also tries it with a ring */
                snprintf(source, sizeof source, "%s%s + ring }\n", start, fcp_strategy_names[i]);
                of[i] = outcome(source, plain[i]);
            }
            one |= of[i] == FCP_OK;
            divide |= of[i] != FCP_E_HEADS;
        }
        snprintf(source, sizeof source, "%sauto(among = [%s]) }\n", start, among);
        code = outcome(source, said);
        of_code[code]++;
        worked += code == FCP_OK && one;
        cr_expect(!one || code == FCP_OK, "%s%s", source, said);
        if (!divide) cr_expect_eq(code, FCP_E_HEADS, "%s%s", source, said);
        heads_wrong += !divide;
        if (code == FCP_OK) continue;
        uint32_t same = FCP_NONE, others = 0;
        for (uint32_t i = 0; i < FCP_STRATEGY_COUNT; i++)
            if (which >> i & 1) {
                char hint[64];
                snprintf(hint, sizeof hint, "auto tried %s, too: ", fcp_strategy_names[i]);
                others += strstr(said, hint) != NULL;
                if (of[i] == code) same = i;
                behind += divide && of[i] == FCP_E_HEADS;
            }
        cr_expect_neq(same, FCP_NONE, "%s%s", source, said);
        if (divide) cr_expect_eq(others + 1, (uint32_t)__builtin_popcount(which), "%s%s", source, said);
    }
    cr_expect_gt(worked, 50);
    cr_expect_gt(heads_wrong, 5);
    cr_expect_gt(behind, 0, "no strategy whose heads do not divide stands beside one that is refused otherwise");
    cr_expect_gt(of_code[FCP_E_MEMORY_CAP], 5);
    cr_expect_gt(of_code[FCP_E_VALUE], 0);
}

/* A ring through nine nodes is not tried with effort 1, unless there is nothing else. */
Test(auto, long_rings) {
    static const struct { const char *by; bool tried, chosen; } cases[] = {
        {"auto", false, false}, {"auto(effort = 2)", true, false}, {"auto(among = [ulysses])", true, true}};
    for (int i = 0; i < 3; i++) {
        char source[400];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        snprintf(source, sizeof source,
                 "model { heads = 2; kv_heads = 2; head_dim = 64 }\ncluster { nodes = 9; gpus = 2; gpu = h100 }\n"
                 "batch { lengths = [4000, 500 x 10] }\nplan { mask = causal; block = 256; strategy = %s }\n",
                 cases[i].by);
        cr_assert_eq(plan_it(source, &r, &plan), FCP_OK);
        uint32_t rings = 0;
        for (const auto_candidate *c = r.at; c < r.at + r.count; c++) {
            const bool ring = c->between == BETWEEN(FCP_STRATEGY_RING);
            rings += ring;
            if (ring) cr_expect_eq(c->end != AUTO_LONG, cases[i].tried, "%s", cases[i].by);
        }
        cr_expect(rings);
        cr_expect(!cases[i].chosen || r.at[r.chosen].between);
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
}

/* Tests settings such as "ulysses inside a node, fcp between nodes": the ranks of a group share the heads, and another
 * strategy divides the batch among the groups. Here each query head has keys of its own, so far fewer bytes cross nodes
 * in this way.
 * - auto tries such settings if both strategies may be chosen, and there are several groups of several ranks each.
 * - It gives them blocks four times as large as other settings.
 * - If one of them is the best, the local search moves none of its work. */
Test(auto, strategies_between_groups) {
    static const struct {
        const char *ranks, *among, *layout;
        uint32_t lines; /* settings with groups */
        bool chosen;
    } cases[] = {{"nodes = 2; gpus = 8", "fcp, cad, dcp, ulysses, zigzag", "planned", 2, true},
                 {"nodes = 2; gpus = 8", "fcp, cad, dcp, ulysses, zigzag", "contiguous", 2, true},
                 {"nodes = 2; gpus = 8", "fcp, ulysses", "planned", 1, true},
                 {"nodes = 2; gpus = 8", "dcp, ulysses", "planned", 1, true},
                 {"nodes = 2; gpus = 8", "ulysses", "planned", 0, false},
                 {"nodes = 2; gpus = 8", "fcp, dcp, upipe", "planned", 0, false},
                 {"nodes = 1; gpus = 8", "fcp, dcp, ulysses", "planned", 0, false},
                 {"nodes = 8; gpus = 1", "fcp, dcp, ulysses", "planned", 0, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[512];
        auto_report r = {.count = 0};
        fcp_plan *plan = NULL;
        uint32_t lines = 0, ranks_block = 0, groups_block = 0;
        snprintf(source, sizeof source,
                 "model { heads = 64; kv_heads = 64; head_dim = 128 }\ncluster { %s; gpu = h200 }\n"
                 "batch { lengths = [131072, 16384 x 8, 2048 x 64] }\n"
                 "plan { mask = causal; layout = %s; strategy = auto(among = [%s]) }\n",
                 cases[i].ranks, cases[i].layout, cases[i].among);
        cr_assert_eq(plan_it(source, &r, &plan), FCP_OK, "%s", source);
        for (const auto_candidate *c = r.at; c < r.at + r.count; c++) {
            if (c->found || c->size != AUTO_MIDDLE) continue;
            lines += auto_has_groups(c);
            if (c->block) *(auto_has_groups(c) ? &groups_block : &ranks_block) = c->block;
        }
        cr_expect_eq(lines, cases[i].lines, "%s", source);
        cr_expect_eq(auto_has_groups(&r.at[r.chosen]), cases[i].chosen, "%s", source);
        cr_expect_eq(predicted(plan), auto_makespan(&r), "%s", source);
        if (lines) cr_expect_eq(groups_block, 4 * ranks_block, "%s", source);
        if (cases[i].chosen) cr_expect_eq(r.moves.tried, 0, "%s", source);
        fcp_plan_free(plan);
        auto_report_free(&r);
    }
}

/* What is wrong with the batch is reported once, not for every candidate. */
Test(auto, errors_of_the_batch) {
    static const struct { const char *text; fcp_code code; } wrong[] = {
        {"batch { lengths = [5000] }\nmask m = 10 / (q - 77) > k\nplan { mask = m; strategy = auto }\n",
         FCP_E_MASK_DIV_ZERO},
        {"batch { lengths = [1024G, 1024G] }\nplan { mask = causal; strategy = auto }\n", FCP_E_LENGTHS},
    };
    for (int i = 0; i < 2; i++) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = NULL;
        fcp_plan *plan = NULL;
        fcp_code code = fcpc_parse_text("t.fcp", wrong[i].text, strlen(wrong[i].text), NULL, d, &program);
        if (!code) code = fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan);
        cr_expect_eq(code, wrong[i].code, "%s", fcp_code_name(code));
        cr_expect_eq(fcpc_diagnostics_count(d), 1);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

/* The profile of the options decides, by name; one that is not there is an error of parsing. */
Test(auto, profile) {
    char source[1024];
    auto_report r = {.count = 0};
    fcp_plan *plan = NULL;
    write_program(&samples[0], "auto", 0, source);
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = NULL;
    fcpc_options options = FCPC_OPTIONS_INIT;
    options.profile = "a100";
    cr_assert_eq(fcpc_parse_text("t.fcp", source, strlen(source), &options, d, &program), FCP_OK);
    const fcpc_batch batch = {.size = sizeof batch};
    cr_assert_eq(compile_batch(program, &batch, NULL, d, &(compile_watch){.tried = &r}, NULL, &plan), FCP_OK);
    cr_expect_str_eq(r.profile, "a100");
    sim_profile a100;
    sim_result result;
    fcp_error err;
    arena memory = {0};
    cr_assert_eq(sim_profile_find("a100", &a100, &err), FCP_OK);
    cr_assert_eq(simulate(plan, &a100, NULL, &memory, &result, &err), FCP_OK);
    cr_expect_eq(result.pass[0].makespan + result.pass[1].makespan, auto_makespan(&r));
    arena_free(&memory);
    fcp_plan_free(plan);
    auto_report_free(&r);
    fcpc_program_free(program);
    options.profile = "a10";
    cr_expect_eq(fcpc_parse_text("t.fcp", source, strlen(source), &options, d, &program), FCP_E_PROFILE);
    fcpc_diagnostics_free(d);
}

/* Holds the calling thread to the first of its processors. */
static void take_one_processor(const cpu_set_t *all) {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, all)) CPU_SET(cpu, &one);
    cr_assert_eq(sched_setaffinity(0, sizeof one, &one), 0);
}

/* Of a batch of so many sequences a second thread asks the mask about half, with an object that is kept for later
 * candidates. What is planned is the same, shape by shape. */
Test(auto, does_not_depend_on_threads, .timeout = 120) {
    char source[1024];
    fcp_plan *plan[2] = {NULL};
    cpu_set_t all;
    const struct sample many = {"nodes = 2; gpus = 2; gpu = h200", "lengths = [30000, 900 x 1500, 1100 x 900]",
                                "mask = shared_question; block = 1024; layout = contiguous; passes = forward"};
    write_program(&many, "auto(among = [cad, dcp, groups])", 0, source);
    cr_assert_eq(plan_it(source, NULL, &plan[0]), FCP_OK);
    cr_assert_eq(sched_getaffinity(0, sizeof all, &all), 0);
    take_one_processor(&all);
    cr_assert_not(fcp_both_at_once());
    cr_assert_eq(plan_it(source, NULL, &plan[1]), FCP_OK);
    cr_assert_eq(sched_setaffinity(0, sizeof all, &all), 0);
    cr_expect_geq(plan[0]->parts_count, 2048, "too few for a second thread");
    expect_same_tables(plan[0], plan[1], source);
    cr_expect_arr_eq(plan[0]->parts, plan[1]->parts, plan[0]->parts_count * sizeof *plan[0]->parts);
    cr_expect_arr_eq(plan[0]->shapes, plan[1]->shapes, plan[0]->shapes_count * sizeof *plan[0]->shapes);
    for (int i = 0; i < 2; i++) fcp_plan_free(plan[i]);
}
