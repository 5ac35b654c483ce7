/* test_verify.c: tests the verifier by damaging correct plans in every way that plan_damage.h knows: each kind of
 * damage is found and reported with the right code. Each is tried on plans of several strategies, layouts, topologies
 * and passes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <sys/resource.h>

#include "compiler/fcpc.h"
#include "runtime/plan/dump.h"
#include "runtime/plan/enum_names.h"
#include "tests/support/amount.h"
#include "tests/support/moved_tables.h"
#include "tests/support/plan_damage.h"
#include "tests/support/plan_of.h"
#include "tests/support/scatter.h"

/* --- plans -------------------------------------------------------------------------------------------------------- */

#define MODEL "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\n"
#define LONG_TAIL "batch { lengths = [3000, 1700, 1, 640, 130 x 9, 700, 50 x 20, 1024, 17] }\n"
static const char *const programs[] = {
    MODEL LONG_TAIL "cluster { nodes = 2; gpus = 4 }\n"
    "plan { mask = causal; block = 256; strategy = fcp(coalesce = 2, buffers = 3); layout = contiguous; "
    "passes = forward, backward }",
    MODEL LONG_TAIL "cluster { nodes = 4; gpus = 2 }\n"
    "plan { mask = full; block = 128; strategy = fcp(coalesce = 1, buffers = 2); layout = zigzag; "
    "passes = forward, backward }",
    MODEL LONG_TAIL "cluster { nodes = 1; gpus = 3 }\n"
    "plan { mask = window(w = 300); block = 384; strategy = fcp(coalesce = 4, buffers = 1); layout = planned; "
    "passes = forward, backward }",
    MODEL "batch { lengths = [4000, 2000, 300] }\ncluster { nodes = 2; gpus = 2 }\n"
    "plan { mask = causal; block = 128; strategy = ring(coalesce = 2, buffers = 3); layout = contiguous; "
    "passes = forward, backward }",
    MODEL "batch { lengths = [5000, 999] }\ncluster { nodes = 3; gpus = 2 }\n"
    "plan { mask = causal; block = 256; strategy = zigzag(coalesce = 1, buffers = 2); layout = zigzag; "
    "passes = forward, backward }",
    MODEL LONG_TAIL "cluster { nodes = 3; gpus = 3 }\n"
    "plan { mask = lambda(sink = 64, window = 512); block = 128; strategy = fcp(coalesce = 3, buffers = 4); "
    "layout = contiguous; passes = forward }",
    MODEL "batch { lengths = [700, 260]; field doc = [0 x 500, 300 x 460]; field g = [0 x 959, 1] }\n"
    "cluster { gpus = 2 }\n"
    "plan { mask = m; block = 128; passes = forward }\nmask m = doc[q] == doc[k] or g[k] == 1",
    /* split: queries and keys apart */
    MODEL "batch { lengths = [300:3000, 1:1700 x 5, 1, 640, 700:130 x 3, 50 x 9, 1:1024] }\n"
    "cluster { nodes = 2; gpus = 4 }\n"
    "plan { mask = causal; block = 256; strategy = fcp(coalesce = 2, buffers = 3); layout = contiguous; "
    "passes = forward, backward }",
    MODEL "batch { lengths = [2000:900, 500:2500, 1:300 x 7]; align = top_left }\ncluster { nodes = 3; gpus = 2 }\n"
    "plan { mask = full; block = 256; strategy = ring(coalesce = 1, buffers = 2); layout = zigzag; "
    "passes = forward, backward }",
    MODEL "batch { lengths = [400:1500, 900:200, 1:700 x 3, 256] }\ncluster { nodes = 2; gpus = 2 }\n"
    "plan { mask = full; block = 128; strategy = fcp(coalesce = 1, buffers = 2); layout = contiguous; "
    "passes = forward, backward }",
    "model { heads = 4; kv_heads = 2; head_dim = 16; table far = [0.5, -1.0, 0.25] }\n"
    "batch { lengths = [700, 1:900, 260] }\ncluster { gpus = 2 }\n"
    "mask m = slices([0, 300, 0, 300, causal], [100, 700, 50, 400, both], [250, 600, 300, 500, inverse]) or q == k\n"
    "score bias = s * 0.5 + far[(q + k) % 3] * abs(s)\n"
    "plan { mask = m; score = bias; sink = [1.0, 0.0, -2.0, 0.5]; block = 128; passes = forward, backward }",
    /* heads divided among ranks: in phases in which keys stay, and around a ring */
    "model { heads = 16; kv_heads = 8; head_dim = 16 }\nbatch { lengths = [900, 300, 130 x 3] }\ncluster { gpus = 4 }\n"
    "plan { mask = causal; block = 128; strategy = upipe(heads = 4); layout = contiguous; passes = forward, backward }",
    "model { heads = 4; kv_heads = 2; head_dim = 16 }\nbatch { lengths = [1200, 300, 1:700] }\n"
    "cluster { nodes = 3; gpus = 2 }\nplan { mask = causal; block = 128; "
    "strategy = upipe(heads = 2, buffers = 2) + ring; layout = zigzag; passes = forward, backward }",
    "model { heads = 8; kv_heads = 2; head_dim = 16 }\nbatch { lengths = [900, 130 x 5] }\ncluster { gpus = 4 }\n"
    "plan { mask = full; block = 128; strategy = ulysses; passes = forward, backward }",
    /* heads that see different pairs: four classes in one range of heads, and two or one in each of several */
    "model { heads = 6; kv_heads = 2; head_dim = 16; table w = [100, 400, 100, 1, 900, 0] }\n"
    "batch { lengths = [900, 130 x 5] }\ncluster { gpus = 2 }\nmask m = causal and q - k < w[h]\n"
    "plan { mask = m; block = 128; passes = forward, backward }",
    "model { heads = 8; kv_heads = 2; head_dim = 16 }\nbatch { lengths = [900, 130 x 5] }\ncluster { gpus = 4 }\n"
    "mask m = causal and (q - k < 200 or h == 0 or h == 7)\n"
    "plan { mask = m; block = 128; strategy = ulysses; layout = contiguous; passes = forward, backward }",
    /* work moves in two halves */
    MODEL "batch { lengths = [3000, 1700, 640, 130 x 9] }\ncluster { nodes = 2; gpus = 2 }\n"
    "plan { mask = causal; block = 128; strategy = cad(pingpong = true, coalesce = 2, buffers = 2); "
    "layout = contiguous; passes = forward, backward }",
    /* sequences without queries, without keys, and without either */
    MODEL "batch { lengths = [0, 900, 0:300, 200:0, 130 x 3, 0 x 2] }\ncluster { nodes = 2; gpus = 2 }\n"
    "plan { mask = causal; block = 128; strategy = fcp(coalesce = 2, buffers = 2); layout = contiguous(group = 2); "
    "passes = forward, backward }",
    /* values with a width of their own, and in keys; a gradient of LSE */
    "model { heads = 4; kv_heads = 2; head_dim = 24; value_dim = 16 }\nbatch { lengths = [1200, 300, 130 x 5] }\n"
    "cluster { nodes = 2; gpus = 2 }\nplan { mask = causal; block = 128; layout = zigzag; lse_gradient = true }",
    "model { heads = 4; kv_heads = 1; head_dim = 24; value_dim = 16; values = keys }\n"
    "batch { lengths = [100:1200, 300, 1:130 x 5] }\ncluster { gpus = 3 }\n"
    "plan { mask = causal; block = 128; strategy = cad(coalesce = 2); layout = contiguous; lse_gradient = true }",
};
/* Those below are planned by a scatter, whose seed is the program's number: work runs anywhere, in ranges of heads. */
#define SCATTERED                                                                                                      \
    "model { heads = 8; kv_heads = 2; head_dim = 16 }\nbatch { lengths = [900, 300, 130 x 3, 40 x 4] }\n"             \
    "cluster { nodes = 2; gpus = 2 }\nplan { mask = causal; block = 128; passes = forward, backward; "
static const char *const scattered[] = {
    SCATTERED "strategy = fcp(coalesce = 2, buffers = 3); layout = contiguous }",
    SCATTERED "strategy = fcp(coalesce = 1, buffers = 1); layout = planned }",
    SCATTERED "strategy = fcp(coalesce = 4, buffers = 2); layout = zigzag }",
    MODEL "batch { lengths = [200:1400, 1:600 x 5, 500:130, 300 x 3] }\ncluster { nodes = 1; gpus = 3 }\n"
    "plan { mask = full; block = 256; strategy = fcp(coalesce = 2, buffers = 2); layout = contiguous; "
    "passes = forward, backward }",
};
/* And two plans are made by hand, before the others. */
enum {
    BY_HAND = -2,
    PROGRAMS = sizeof programs / sizeof *programs,
    ALL = PROGRAMS + 2 * sizeof scattered / sizeof *scattered /* each by two scatters */
};

/* The tables of plan `number`, from BY_HAND to ALL. */
static void subject(int number, tables *t) {
    if (number < 0) {
        if (number == BY_HAND) moved_make(t, NULL);
        else hand_make(t);
        tables_plan(t);
        return;
    }
    fcp_plan *plan;
    if (number < PROGRAMS) {
        plan = plan_of(programs[number]);
    } else {
        const scatter s = scatter_new((uint64_t)number);
        plan = scatter_plan(scattered[(number - PROGRAMS) / 2], &s);
        cr_assert(plan);
    }
    tables_copy(t, plan);
    tables_plan(t);
    fcp_plan_free(plan);
}

enum { KINDS = sizeof kinds / sizeof *kinds, TRIES = 16 };

static bool named_right(const damage *k, fcp_code code) {
    for (size_t i = 0; i < sizeof k->codes / sizeof *k->codes && k->codes[i]; i++)
        if (k->codes[i] == code) return true;
    return false;
}

/* The numbers in an error are those in its message. */
static void check_where(const fcp_error *err) {
    unsigned rank, instruction, stage;
    char pass[16], queue[16], op[16];
    const fcp_where *w = &err->where;
    if (sscanf(err->message, "%15[a-z], rank %u, %15[a-z] instruction %u (%15[a-z_], stage %u)", pass, &rank, queue,
               &instruction, op, &stage) == 6) {
        cr_expect_eq(w->rank, rank);
        cr_expect_eq(w->stage, stage);
        cr_expect_eq(w->instruction, instruction);
        cr_expect(w->queue < FCP_QUEUES && strcmp(fcp_queue_texts[w->queue], queue) == 0, "%s", err->message);
        cr_expect(w->pass < FCP_PASSES && strcmp(fcp_pass_names[w->pass], pass) == 0, "%s", err->message);
    } else if (sscanf(err->message, "%15[a-z], rank %u", pass, &rank) == 2) {
        cr_expect_eq(w->rank, rank);
        cr_expect_eq(w->instruction, FCP_NOWHERE);
        cr_expect(w->pass < FCP_PASSES && strcmp(fcp_pass_names[w->pass], pass) == 0, "%s", err->message);
    } else {
        cr_expect_eq(w->rank, FCP_NOWHERE, "%s", err->message);
        cr_expect_eq(w->instruction, FCP_NOWHERE, "%s", err->message);
    }
}

Test(verify, stops_when_told) {
    fcp_plan *plan = plan_of(programs[0]);
    volatile int stop = 0;
    fcp_error err;
    cr_assert_eq(fcp_plan_verify(plan, &stop, NULL, &err), FCP_OK);
    stop = 1;
    cr_assert_eq(fcp_plan_verify(plan, &stop, NULL, &err), FCP_E_INTERRUPTED);
    cr_assert_str_eq(err.message, "interrupted");
    fcp_plan_free(plan);
}

Test(verify, every_damage_is_caught_by_name) {
    uint32_t done[KINDS] = {0}, plans[KINDS] = {0};
    for (int number = BY_HAND; number < ALL; number++) {
        tables whole;
        subject(number, &whole);
        for (int k = 0; k < KINDS; k++) {
            uint32_t before = done[k];
            for (int try = 0; try < (int)amount(9, TRIES); try++) {
                tables t;
                fcp_error err = {0};
                draw d = {(uint64_t)(number + 1) * 1000003 + (uint64_t)k * 1009 + (uint64_t)try, 0};
                tables_copy(&t, &whole.plan);
                if (kinds[k].apply(&t, &d)) {
                    fcp_code code = judge(&t, &err);
                    done[k]++;
                    cr_expect(named_right(&kinds[k], code), "%s, plan %d, try %d: %s %s", kinds[k].name, number, try,
                              fcp_code_name(code), err.message);
                    check_where(&err);
                }
                tables_free(&t);
            }
            plans[k] += done[k] > before;
        }
        tables_free(&whole);
    }
    for (int k = 0; k < KINDS; k++)
        cr_expect(plans[k] >= 1 && done[k] >= 3, "%s: done %u times", kinds[k].name, done[k]);
}

Test(verify, correct_plans_pass) {
    for (int number = BY_HAND; number < ALL; number++) {
        tables t;
        fcp_error err = {0};
        subject(number, &t);
        cr_expect_eq(judge(&t, &err), FCP_OK, "plan %d: %s", number, err.message);
        fcp_verify_report report;
        cr_assert_eq(fcp_plan_verify(&t.plan, NULL, &report, &err), FCP_OK);
        cr_expect_eq(report.tiles, t.tiles_count);
        cr_expect_eq(report.instructions, t.instrs_count);
        uint64_t sends = 0;
        PLACES (&t, p)
            for (uint32_t i = 0; OP(p, LAUNCH) && i < p.x->b; i++) sends += transfer_in(&t, &p, i)->dir == FCP_SEND;
        cr_expect_eq(report.transfers, sends);
        for (int f = 0; f < FCP_FABRICS; f++) cr_expect_leq(report.delta[FCP_FORWARD][f], report.rounds[FCP_FORWARD]);
        cr_expect_eq(report.rounds[FCP_FORWARD], t.summary->rounds);
        tables_free(&t);
    }
}

/* Only the plan that asks for two halves says that it has them. */
Test(verify, says_whether_there_are_halves) {
    for (int i = 0; i < PROGRAMS; i++) {
        fcp_plan *plan = plan_of(programs[i]);
        fcp_verify_report report;
        fcp_error err = {0};
        const bool asked = strstr(programs[i], "pingpong");
        cr_assert_eq(fcp_plan_verify(plan, NULL, &report, &err), FCP_OK, "%s", err.message);
        cr_expect_eq(report.halves, asked);
        cr_expect_eq(fcp_second_stage(plan) != 0, asked);
        fcp_plan_free(plan);
    }
}

Test(verify, every_figure_of_the_summary) {
    for (int number = BY_HAND; number < ALL; number++) {
        tables t;
        subject(number, &t);
        uint64_t *figures = (uint64_t *)t.summary;
        size_t n = sizeof *t.summary / sizeof *figures;
        for (size_t i = 0; i < n; i++)
            for (int down = 0; down < 2; down++) {
                uint64_t keep = figures[i];
                fcp_error err = {0};
                figures[i] += down ? UINT64_MAX : 1;
                fcp_code code = judge(&t, &err);
                bool memory = &figures[i] == &t.summary->slots_max || &figures[i] == &t.summary->backward_slots_max ||
                              &figures[i] == &t.summary->memory_peak_bytes;
                cr_expect_eq(code, memory ? FCP_E_VERIFY_MEMORY : FCP_E_VERIFY_SUMMARY, "figure %zu of plan %d: %s %s",
                             i, number, fcp_code_name(code), err.message);
                figures[i] = keep;
            }
        tables_free(&t);
    }
}

/* Every number of every table is changed by itself, and each change is noticed. Exceptions: what is the caller's
 * choice, what makes another right plan (a wait for more than is needed), and what only the mask could judge. */
static bool free_to_differ(const tables *t, int section, uint64_t record, size_t offset) {
    static const size_t choices[] = {
        offsetof(fcp_problem, dtype), /* fp16 is as large as bf16 */
        offsetof(fcp_problem, layout),    offsetof(fcp_problem, strategy), offsetof(fcp_problem, topology),
        offsetof(fcp_problem, block),     offsetof(fcp_problem, coalesce), offsetof(fcp_problem, buffers), /* more */
        offsetof(fcp_problem, margin),    offsetof(fcp_problem, deterministic), offsetof(fcp_problem, documents),
        offsetof(fcp_problem, memory_cap), offsetof(fcp_problem, memory_cap) + 4, /* more */
        offsetof(fcp_problem, scale),     offsetof(fcp_problem, scale) + 4};
    switch (section) {
    case FCP_SECTION_PROBLEM:
        for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
            if (choices[i] == offset) return true;
        return false;
    case FCP_SECTION_SHAPES: return offset == offsetof(fcp_shape_rec, first_run);
    case FCP_SECTION_RUNS: return offset != offsetof(fcp_run, row);
    case FCP_SECTION_INSTRS: /* a copy may name another transfer that is the same; delta, fewer blocks without Q */
        return t->instrs[record].op == FCP_OP_WAIT || (t->instrs[record].op == FCP_OP_COPY && offset == 4) ||
               (t->instrs[record].op == FCP_OP_DELTA && fcp_plan_split(&t->plan));
    case FCP_SECTION_ARRAYS: return offset >= offsetof(fcp_array, lo); /* what is said of the values */
    case FCP_SECTION_SOURCE:
    case FCP_SECTION_CLUSTER:
    case FCP_SECTION_DATA:
    case FCP_SECTION_MASK: return true;
    default: return false;
    }
}

/* Does a launch, of which a number was changed, name transfers that are the same as before? */
static bool same_launch(const tables *t, int section, uint64_t record, size_t offset, uint32_t before) {
    if (section != FCP_SECTION_INSTRS || offset != offsetof(fcp_instr, a)) return false;
    const fcp_instr *x = &t->instrs[record];
    return x->op == FCP_OP_LAUNCH && !memcmp(t->transfers + x->a, t->transfers + before, x->b * sizeof *t->transfers);
}

Test(verify, every_number_matters) {
    for (int number = BY_HAND; number < ALL; number += number == BY_HAND ? 1 : 3) {
        tables t;
        subject(number, &t);
        const struct {
            void *at;
            uint64_t count;
            size_t size;
        } sections[] = {
#define X(id, type, member) {t.member, t.member##_count, sizeof(type)},
            FCP_SECTIONS(X)
#undef X
        };
        draw d = {42, 0};
        for (int s = 0; s < FCP_SECTION_COUNT; s++)
            for (uint64_t n = sections[s].count * sections[s].size / 4, i = 0; i < n; i++) {
                size_t offset = i * 4 % sections[s].size;
                if (free_to_differ(&t, s, i * 4 / sections[s].size, offset) || (number >= 0 && next(&d) % 8)) continue;
                uint32_t *at = (uint32_t *)sections[s].at + i, keep = *at;
                const uint32_t others[] = {keep + 1, keep - 1, keep ^ 0x80000000, keep ^ (uint32_t)next(&d),
                                           0,        FCP_NONE};
                for (size_t o = 0; o < sizeof others / sizeof *others; o++) {
                    fcp_error err = {0};
                    if (others[o] == keep) continue;
                    *at = others[o];
                    fcp_code code = judge(&t, &err);
                    cr_expect(code || same_launch(&t, s, i * 4 / sections[s].size, offset, keep),
                              "plan %d, section %d, record %llu, byte %zu: %u may be %u", number, s,
                              (unsigned long long)(i * 4 / sections[s].size), offset, keep, others[o]);
                }
                *at = keep;
            }
        tables_free(&t);
    }
}

/* Pieces, and what is copied, in no order at all: one sequence in blocks of three tokens that are numbered at random.
 * All are at rank 0; further ranks have nothing. */
static void scrambled(tables *t, uint32_t ranks) {
    enum { BLOCKS = 200 };
    memset(t, 0, sizeof *t);
    PUSH(t, problem,
         (fcp_problem){.ranks = ranks, .nodes = 1, .gpus = ranks, .heads = 1, .kv_heads = 1,
                       .documents = FCP_NONE,
                       .head_dim = 8, .value_dim = 8,
                       .layout_group = ranks, .range_kv = 1, .range_sub = 1,
                       .block = 128, .max_block = 3, .max_q_block = 3, .unit = 3, .coalesce = 1, .buffers = 1,
                       .passes = 1, .tokens = 3 * BLOCKS, .key_tokens = 3 * BLOCKS, .memory_cap = 1 << 20, .scale = 1});
    PUSH(t, cluster, (fcp_cluster){.gpu = "cpu"});
    PUSH(t, sequences, (fcp_sequence){3 * BLOCKS, 3 * BLOCKS, 0});
    PUSH(t, heads, (fcp_heads){.kv_count = 1, .sub_count = 1});
    for (uint32_t b = 0; b < BLOCKS; b++) {
        PUSH(t, pieces, (fcp_piece){.length = 3, .start = 3 * ((b * 77 + 13) % BLOCKS), .block = b});
        PUSH(t, blocks,
             (fcp_block){.first_piece = b, .pieces = 1, .tokens = 3, .home_slot = b, .holds = FCP_HOLDS_BOTH});
    }
    for (int i = 0; i < FCP_PASSES + 1; i++) PUSH(t, round_starts, 0);
    for (int out = 0; out < 2; out++) {
        PUSH(t, instrs, (fcp_instr){.op = FCP_OP_COPY, .a = (uint32_t)t->transfers_count, .b = 1});
        PUSH(t, transfers, (fcp_transfer){.block = FCP_NONE, .tokens = 3 * BLOCKS, .cls = out ? FCP_OUT : FCP_IN,
                                          .fabric = FCP_LOCAL, .dir = out ? FCP_RECV : FCP_SEND});
    }
    for (uint32_t i = 0; i < FCP_PASSES * FCP_QUEUES * ranks; i++) PUSH(t, streams, (fcp_stream){i ? 2 : 0, i ? 0 : 2});
    PUSH(t, mask, (mc_node){MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 0});
    PUSH(t, summary, (fcp_summary){.sequences = 1, .blocks = BLOCKS, .positions = 9 * BLOCKS * BLOCKS,
                                   .tokens_max_rank = 3 * BLOCKS, .key_tokens_max_rank = 3 * BLOCKS, .stages = 1,
                                   .memory_peak_bytes = 3 * BLOCKS * (4 * 8 * 4 + 8)});
}

static void discard(void *context, const char *text, size_t size) { *(size_t *)context += size + !text; }

/* A small batch leaves ranks without blocks: that is a plan like any other. */
Test(verify, ranks_may_have_nothing) {
    for (uint32_t ranks = 2; ranks < 6; ranks++) {
        tables t;
        fcp_error err = {0};
        size_t size = 0;
        scrambled(&t, ranks);
        cr_expect_eq(judge(&t, &err), FCP_OK, "%u ranks: %s", ranks, err.message);
        fcp_plan *plan = tables_plan(&t);
        cr_expect(fcp_plan_dump(plan, false, discard, &size, &err) == FCP_OK && size > 0, "%s", err.message);
        t.problem->layout = FCP_LAYOUT_CONTIGUOUS;
        /* other ranks' callers have tokens, and rank 0 copies all */
        PUSH(&t, deals, (fcp_deal){.sequences = 1, .ranks = ranks});
        cr_expect_eq(judge(&t, &err), FCP_E_VERIFY_LAYOUT, "%s", err.message);
        tables_free(&t);
    }
}

/* The plan of sequences that have no tokens has nothing, and whatever else it claims is noticed. */
Test(verify, sequences_without_tokens) {
    fcp_plan *plan = plan_of(MODEL "batch { lengths = [0, 0:0, 0] }\ncluster { gpus = 3 }\n"
                             "plan { mask = causal; layout = contiguous(group = 1); passes = forward, backward }");
    tables t;
    fcp_error err = {0};
    tables_copy(&t, plan);
    fcp_plan_free(plan);
    cr_assert(judge(&t, &err) == FCP_OK && !t.blocks_count && !t.tiles_count && !t.transfers_count, "%s", err.message);
    for (uint64_t i = 0; i < t.sequences_count * sizeof *t.sequences / 4; i++) {
        uint32_t *at = (uint32_t *)t.sequences + i;
        *at = 5;
        cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "word %lu of the sequences: %s", i, err.message);
        *at = 0;
    }
    t.sequences[1].keys = t.problem->key_tokens = 5; /* that no piece holds */
    t.sequences[1].q_first = 5;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    t.sequences[1].queries = t.problem->tokens = 5;
    t.sequences[1].q_first = 0;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    t.sequences[1] = (fcp_sequence){0, 0, 0};
    t.problem->tokens = t.problem->key_tokens = 0;
    uint32_t *const numbers[] = {&t.problem->unit, &t.problem->max_block, &t.problem->max_q_block};
    for (size_t i = 0; i < 3; i++) {
        ++*numbers[i];
        cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "number %zu", i);
        --*numbers[i];
    }
    t.summary->positions++;
    cr_expect_eq(judge(&t, &err), FCP_E_VERIFY_SUMMARY, "%s", err.message);
    t.summary->positions--;
    cr_expect_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    tables_free(&t);
}

Test(verify, order_of_pieces_does_not_matter) {
    tables t;
    fcp_error err = {0};
    scrambled(&t, 1);
    cr_expect_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    t.pieces[50].start++;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    t.pieces[50].start -= 1 + 3;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    t.pieces[50].start += 3;
    cr_expect_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    t.problem->layout = FCP_LAYOUT_CONTIGUOUS;
    /* of one rank: the same tokens in the order of the sequence */
    PUSH(&t, deals, (fcp_deal){.sequences = 1, .ranks = 1});
    cr_expect_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    for (int out = 0; out < 2; out++) {
        t.transfers[out].tokens--;
        cr_expect_eq(judge(&t, &err), FCP_E_VERIFY_LAYOUT, "short: %s", err.message);
        t.transfers[out].first = 1;
        cr_expect_eq(judge(&t, &err), FCP_E_VERIFY_LAYOUT, "from its second token on: %s", err.message);
        t.transfers[out].first = 0;
        t.transfers[out].tokens += 2;
        cr_expect_eq(judge(&t, &err), FCP_E_VERIFY_LAYOUT, "long: %s", err.message);
        t.transfers[out].tokens--;
    }
    cr_expect_eq(judge(&t, &err), FCP_OK, "%s", err.message);
    tables_free(&t);
}

/* Counts that are only claimed, and ranges that share their contents, must not make the check slow or large. On any
 * machine these end at once, in less processor time than this. */
Test(verify, hostile_ranges) {
    tables t;
    fcp_error err = {0};
    const struct rlimit limit = {20, 20};
    cr_assert_eq(setrlimit(RLIMIT_CPU, &limit), 0);
    scrambled(&t, 1);
    for (uint32_t i = 0; i < 20000; i++) PUSH(&t, instrs, t.instrs[1]); /* 20000 times the same copies */
    t.streams[0].count += 20000;
    for (int i = 1; i < FCP_PASSES * FCP_QUEUES; i++) t.streams[i].first += 20000;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    tables_free(&t);

    hand_make(&t);
    for (uint32_t i = 0; i < 20000; i++) PUSH(&t, shapes, t.shapes[0]); /* sharing a run */
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    tables_free(&t);

    hand_make(&t); /* sequences without tokens have no pieces, in however many ranges of heads */
    t.problem->heads = t.problem->kv_heads = 1 << 16;
    t.problem->range_kv = 1;
    for (uint32_t i = 0; i < 1 << 18; i++) PUSH(&t, sequences, (fcp_sequence){0, 0, 0});
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    tables_free(&t);

    hand_make(&t);
    for (uint32_t i = 0; i < 20000; i++) PUSH(&t, tiles, t.tiles[0]); /* sharing a part */
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    tables_free(&t);

    hand_make(&t);
    t.problem->heads = t.problem->kv_heads = t.problem->head_dim = 65536; /* sizes near the end of 64 bits */
    cr_expect(judge(&t, &err) != FCP_OK);
    t.problem->max_block = UINT32_MAX;
    cr_expect(judge(&t, &err) != FCP_OK);
    t.problem->ranks = t.problem->nodes = UINT32_MAX;
    cr_expect_eq(judge(&t, &err), FCP_E_PLAN_FORMAT, "%s", err.message);
    tables_free(&t);
}
