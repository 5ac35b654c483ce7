/* test_compile.c: tests fcpc_plan as a whole: plans have the same bytes every time, warnings are given, and wrong
 * batches are refused. */
#include "runtime/plan/bytes.h"
#include "runtime/plan/sides.h"
#include "tests/support/planned.h"
#include "tests/support/plan_of.h"

#include "compiler/show/summary.h" /* behind headers with parameters called text, which is a type there */

static fcp_code plan_text(const char *source, fcp_plan **plan, char **picture) {
    return plan_try("test.fcp", source, NULL, 0, plan, picture);
}

static void refuse(fcp_code expected, const char *words, const char *source) {
    fcp_plan *plan = NULL;
    char *picture;
    fcp_code code = plan_text(source, &plan, &picture);
    cr_assert_eq(code, expected, "%s instead of %s:\n%s", fcp_code_name(code), fcp_code_name(expected), picture);
    cr_assert(strstr(picture, words), "no \"%s\" in\n%s", words, picture);
    cr_assert_null(plan);
    free(picture);
}

static bool same_tables(const fcp_plan *a, const fcp_plan *b) {
#define X(id, type, member)                                                                                            \
    if (a->member##_count != b->member##_count ||                                                                      \
        (a->member##_count && memcmp(a->member, b->member, a->member##_count * sizeof(type))))                         \
        return false;
    FCP_SECTIONS(X)
#undef X
    return true;
}

Test(compile, same_bytes_every_time) {
    char source[1024];
    for (unsigned i = 0; i < SAMPLES; i += 3) {
        fcpc_diagnostics *d = fcpc_diagnostics_new();
        fcpc_program *program = parse_text(sample_program(i, source, sizeof source), d);
        fcp_plan *first, *again, *other;
        uint64_t lengths[] = {4000, 3000, 2000, 1000, 128, 128, 128, 128};
        cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &first), FCP_OK);
        cr_assert_eq(fcpc_plan(program, lengths, 8, NULL, d, NULL, &other), FCP_OK); /* leaves its workspace behind */
        cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &again), FCP_OK);
        cr_assert(same_tables(first, again));
        cr_assert(!same_tables(first, other));
        fcp_plan_free(first);
        fcp_plan_free(again);
        fcp_plan_free(other);
        fcpc_program_free(program);
        fcpc_diagnostics_free(d);
    }
}

Test(compile, coalesce_changes_neither_bytes_nor_rounds) {
    fcp_summary first = {0};
    for (unsigned coalesce = 1; coalesce <= 64; coalesce *= 2) {
        char source[512], *picture;
        snprintf(source, sizeof source,
                 "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [20000, 9000, 3000 x 4] }\n"
                 "plan { mask = causal; block = 512; strategy = fcp(coalesce = %u) }\n", coalesce);
        fcp_plan *plan;
        cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
        if (coalesce == 1) first = *plan->summary;
        cr_assert_eq(plan->summary->bytes_total, first.bytes_total);
        cr_assert_eq(plan->summary->rounds, first.rounds);
        cr_assert_eq(plan->summary->backward_bytes_total, first.backward_bytes_total);
        cr_assert(plan->summary->stages <= first.stages);
        fcp_plan_free(plan);
        free(picture);
    }
}

static const char MANY_BUNDLES[] = "cluster { nodes = 700; gpus = 8 }\nbatch { lengths = [12K x 3000] }\n"
                                   "plan { mask = causal; block = 2K; layout = zigzag; passes = forward }\n";

Test(compile, refuses) {
    
    refuse(FCP_E_MEMORY_CAP, "would",
           "cluster { gpus = 2; memory = 1 MB }\nbatch { lengths = [65536] }\nplan { mask = causal; block = 512 }\n");
    refuse(FCP_E_PLAN_SIZE, "zigzag over 5600 ranks: tokens would move in more than 16777216 bundles", MANY_BUNDLES);
    refuse(FCP_E_MASK_DIV_ZERO, "division by zero for q = 0, k = 0",
           "batch { lengths = [100] }\nmask m = q / k > 1\nplan { mask = m }\n");
    refuse(FCP_E_MASK_EXACT, "7 is not a multiple of 2",
           "batch { lengths = [7] }\nmask m = exact(n, 2) > q\nplan { mask = m }\n");
    refuse(FCP_E_MASK_DIV_ZERO, "division by zero", /* what exact is made of, but written by hand */
           "batch { lengths = [7] }\nmask m = n / (if n % 2 == 0 then 2 else 0) > q\nplan { mask = m }\n");
    refuse(FCP_E_MASK_OVERFLOW, "overflow",
           "batch { lengths = [100] }\nmask m = q * 9223372036854775807 > k\nplan { mask = m }\n");
}

static const char MOVING[] = "cluster { nodes = 8; gpus = 2; memory = %s }\nbatch { lengths = [64K] }\n"
                             "plan { mask = causal; block = 512; layout = contiguous; relay = %s; "
                             "strategy = cad(coalesce = %u, tolerance = 0.%02u) }\n";

/* A plan in which work moves does not fit into memory. The error names the rank and, if it has some, what partial
 * results take there. Each hint is true: with it the plan fits, and needs as much as the hint says. */
Test(compile, what_would_fit) {
    static const char *const relays[] = {"auto", "off"};
    unsigned hints = 0, partial = 0;
    for (unsigned relay = 0; relay < 2; relay++)
        for (unsigned coalesce = 1; coalesce <= 16; coalesce *= 16) {
            char source[512], *picture;
            fcp_plan *plan;
            snprintf(source, sizeof source, MOVING, "80 GB", relays[relay], coalesce, 2);
            cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
            const uint64_t needs = plan->summary->memory_peak_bytes;
            fcp_plan_free(plan);
            free(picture);
            for (unsigned percent = 80; percent < 100; percent += 3) {
                char memory[32], want[64];
                snprintf(memory, sizeof memory, "%llu MB", (unsigned long long)(needs * percent / 100 / 1000000));
                snprintf(source, sizeof source, MOVING, memory, relays[relay], coalesce, 2);
                cr_assert_eq(plan_text(source, &plan, &picture), FCP_E_MEMORY_CAP, "%s", picture);
                snprintf(want, sizeof want, " needs %llu bytes", (unsigned long long)needs);
                partial += strstr(picture, " of them for ") != NULL;
                cr_assert(strstr(picture, "error[E403]: rank ") && strstr(picture, want), "no \"%s\" in\n%s", want,
                          picture);
                for (const char *at = picture; (at = strstr(at, "= hint: ")); at++) {
                    unsigned c = coalesce, t = 2;
                    unsigned long long would = 0;
                    char word[8] = "";
                    const bool known =
                        sscanf(at, "= hint: strategy cad(coalesce = %u) would need %llu", &c, &would) == 2 ||
                        sscanf(at, "= hint: strategy cad(tolerance = 0.%u) would need %llu", &t, &would) == 2 ||
                        sscanf(at, "= hint: relay = %7s would need %llu", word, &would) == 2;
                    if (!known) continue; /* none would do */
                    hints++;
                    char *said;
                    snprintf(source, sizeof source, MOVING, memory, *word ? word : relays[relay], c, t);
                    cr_assert_eq(plan_text(source, &plan, &said), FCP_OK, "%s", said);
                    cr_assert_eq(plan->summary->memory_peak_bytes, would, "%s", picture);
                    fcp_plan_free(plan);
                    free(said);
                }
                free(picture);
            }
        }
    cr_assert(partial);
    cr_assert_gt(hints, 10, "%u hints are too few for this test to mean anything", hints);
}

/* All heads at once do not fit. The hint offers phases, and these need as much as it says. */
Test(compile, phases_that_would_fit) {
    static const char text_of[] = "model { heads = 16; kv_heads = 16; head_dim = 64 }\n"
                                  "cluster { gpus = 4; memory = %s }\nbatch { lengths = [64K] }\n"
                                  "plan { mask = causal; layout = contiguous; strategy = %s }\n";
    char source[512], phases[40], *picture;
    fcp_plan *plan;
    unsigned heads;
    unsigned long long would;
    snprintf(source, sizeof source, text_of, "80 GB", "ulysses");
    cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
    const uint64_t needs = plan->summary->memory_peak_bytes;
    fcp_plan_free(plan);
    free(picture);
    for (unsigned percent = 70; percent < 100; percent += 9) {
        char memory[32];
        snprintf(memory, sizeof memory, "%llu MB", (unsigned long long)(needs * percent / 100 / 1000000));
        snprintf(source, sizeof source, text_of, memory, "ulysses");
        cr_assert_eq(plan_text(source, &plan, &picture), FCP_E_MEMORY_CAP, "%s", picture);
        const char *at = strstr(picture, "= hint: strategy upipe(");
        cr_assert(at && sscanf(at, "= hint: strategy upipe(heads = %u) would need %llu", &heads, &would) == 2, "%s",
                  picture);
        snprintf(phases, sizeof phases, "upipe(heads = %u)", heads);
        free(picture);
        snprintf(source, sizeof source, text_of, memory, phases);
        cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
        cr_assert_eq(plan->summary->memory_peak_bytes, would);
        fcp_plan_free(plan);
        free(picture);
    }
}

/* What a layout costs: the rank and the bytes are those of the plan's transfers, and a fast network costs nothing. */
Test(compile, price_of_a_layout) {
    static const struct { const char *strategy, *layout; bool queries; } cases[] = {
        {"cad", "contiguous", true}, {"cad", "planned", true}, {"fcp", "contiguous", false}, {"fcp", "zigzag", false},
        {"fcp", "contiguous(group = 2)", false}, {"zigzag", "contiguous", false}};
    for (unsigned i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        char source[512], *picture;
        snprintf(source, sizeof source, "cluster { nodes = 2; gpus = 2; gpu = h200; inter = %s }\n"
                                    "batch { lengths = [32K, 3000 x 4] }\n"
                 "plan { mask = causal; block = 512; strategy = %s; layout = %s }\n", i % 2 ? "100 TB/s" : "1 GB/s",
                 cases[i / 2].strategy, cases[i / 2].layout);
        fcp_plan *plan;
        cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
        const char *at = strstr(picture, "sends and receives");
        cr_assert_eq(at != NULL, i % 2 == 0, "%s%s", source, picture);
        if (at) {
            while (strncmp(at, "rank ", 5)) at--;
            unsigned rank;
            double gb;
            cr_assert_eq(sscanf(at, "rank %u sends and receives %lf GB", &rank, &gb), 2, "%s", picture);
            cr_assert_eq(strstr(picture, "GB of Q and O") != NULL, cases[i / 2].queries, "%s", picture);
            uint64_t bytes = 0;
            const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMM);
            for (uint32_t n = s->first; n < s->first + s->count; n++) {
                const fcp_instr *launch = &plan->instrs[n];
                for (uint32_t k = launch->a; launch->op == FCP_OP_LAUNCH && k < launch->a + launch->b; k++) {
                    const fcp_transfer *t = &plan->transfers[k];
                    const bool reshuffled = t->cls == FCP_IN || t->cls == FCP_OUT;
                    if (reshuffled == cases[i / 2].queries ||
                        (!reshuffled && (t->cls == FCP_KV || plan->blocks[t->block].home != rank)))
                        continue;
                    bytes += t->tokens * fcp_held_bytes(plan->problem, fcp_moved_holds(plan, t), t->cls, FCP_FORWARD);
                }
            }
            cr_assert_float_eq(gb, 1e-9 * (double)bytes, 0.006 * gb, "%g GB are %llu bytes\n%s", gb,
                               (unsigned long long)bytes, picture);
        }
        fcp_plan_free(plan);
        free(picture);
    }
}

/* A batch of fewer blocks than ranks is planned: some ranks own nothing, and a warning says how many. */
Test(compile, ranks_without_tokens) {
    static const struct {
        const char *plan, *lengths, *warning, *hint;
    } cases[] = {
        {"block = 512", "512", "7 of 8 ranks get no tokens: the batch has only 1 block", "with plan.block = 64 every"},
        {"block = 128", "80", "7 of 8 ranks get no tokens", "with plan.block = 10 every"},
        {"block = 128", "3", "7 of 8 ranks get no tokens", "they take part in the plan and compute nothing"},
        {"strategy = ring", "5", "3 of 8 ranks get no tokens: the batch has only 5 blocks", "they take part"},
        {"strategy = zigzag", "5", "of 8 ranks get no tokens", "they take part"},
        {"strategy = ring", "1:3", "5 of 8 ranks get no tokens", "they take part"},
        {"block = 128; layout = contiguous", "1:300", "4 of 8 ranks get no tokens", "compute nothing"},
        {"block = 128; layout = zigzag; passes = forward", "130", "6 of 8 ranks get no tokens", "with plan.block = 16"},
        {"strategy = dcp; block = 64", "128", "; 1 of them computes for others", "with plan.tokens = equal"},
        {"strategy = dcp; block = 64; layout = contiguous", "3", "; 3 of them compute for others",
         "part in the plan\n"},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char source[512], *picture;
        snprintf(source, sizeof source,
                 "cluster { nodes = 2; gpus = 4 }\nbatch { lengths = [%s] }\nplan { mask = causal; %s }\n",
                 cases[i].lengths, cases[i].plan);
        fcp_plan *plan;
        cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
        cr_expect(strstr(picture, cases[i].warning), "no \"%s\" in\n%s", cases[i].warning, picture);
        cr_expect(strstr(picture, cases[i].hint), "no \"%s\" in\n%s", cases[i].hint, picture);
        cr_expect(!strstr(picture, "fair share"), "%s", picture); /* one warning is enough */
        fcp_plan_free(plan);
        free(picture);
    }
}

/* Any size below 128 will do. */
Test(compile, small_blocks) {
    for (unsigned block = 1; block < 128; block += block < 24 ? 1 : 13) {
        char source[512], *picture;
        snprintf(source, sizeof source,
                 "cluster { gpus = 4 }\nbatch { lengths = [80, 200, 7] }\nplan { mask = causal; block = %u }\n", block);
        fcp_plan *plan;
        cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
        cr_expect_eq(plan->problem->max_block, block);
        cr_expect_eq(plan->summary->pairs, 80 * 81 / 2 + 200 * 201 / 2 + 7 * 8 / 2);
        cr_expect_eq(!strstr(picture, "1 of 4 ranks gets no tokens"), plan->blocks_count >= 4, "%s", picture);
        fcp_plan_free(plan);
        free(picture);
    }
}

Test(compile, no_batch) {
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse_text("plan { mask = causal }\n", d);
    fcp_plan *plan = NULL;
    cr_assert_eq(fcpc_plan(program, NULL, 0, NULL, d, NULL, &plan), FCP_E_MISSING);
    uint64_t zeros[] = {0, 0}; /* nothing to do, but a batch */
    cr_assert_eq(fcpc_plan(program, zeros, 2, NULL, d, NULL, &plan), FCP_OK);
    cr_assert_eq(plan->blocks_count, 0);
    fcp_plan_free(plan);
    plan = NULL;
    cr_assert_eq(fcpc_plan(program, zeros, 0, NULL, d, NULL, &plan), FCP_E_LENGTHS); /* no sequences are none */
    uint64_t huge[] = {UINT64_C(1) << 40, 1};
    cr_assert_eq(fcpc_plan(program, huge, 2, NULL, d, NULL, &plan), FCP_E_LENGTHS);
    int stop = 1;
    uint64_t fine[] = {1000};
    cr_assert_eq(fcpc_plan(program, fine, 1, &stop, d, NULL, &plan), FCP_E_INTERRUPTED);
    cr_assert_null(plan);
    cr_assert_eq(fcpc_plan(program, huge, 2, NULL, NULL, NULL, &plan), FCP_E_LENGTHS); /* nobody listens */
    cr_assert_eq(fcpc_plan(program, fine, 1, NULL, NULL, NULL, &plan), FCP_OK);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}

Test(compile, heavy_block_is_a_warning_that_names_the_size) {
    fcp_plan *plan;
    char *picture;
    cr_assert_eq(
        plan_text(
            "cluster { gpus = 8 }\nbatch { lengths = [16384, 4000 x 10] }\nplan { mask = causal; block = 4096 }\n",
            &plan, &picture),
        FCP_OK, "%s", picture);
    cr_assert(strstr(picture, "warning") && strstr(picture, "plan.block = 1024 would do"), "%s", picture);
    fcp_plan_free(plan);
    free(picture);
}

/* A ring of four ranks sends each key to the three others. What it sends, computes and keeps is that of heads whose
 * values have a width of their own, or are inside keys. */
Test(compile, heads_of_two_widths) {
    enum { N = 4096, HEADS = 4, KV_HEADS = 2 };
    static const struct { uint32_t head_dim, value_dim; bool in_keys; } cases[] = {
        {192, 192, false}, {192, 128, false}, {192, 128, true}, {64, 160, false}, {576, 512, true}, {64, 64, true}};
    uint64_t memory[2] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t head = cases[i].head_dim, value = cases[i].value_dim;
        const uint64_t kv = KV_HEADS * (cases[i].in_keys ? head : head + value);
        char source[512], *picture;
        snprintf(source, sizeof source,
                 "model { heads = %d; kv_heads = %d; head_dim = %d; value_dim = %d; values = %s }\n"
                 "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [%d] }\n"
                 "plan { mask = full; block = 1K; strategy = ring; layout = contiguous }\n",
                 HEADS, KV_HEADS, (int)head, (int)value, cases[i].in_keys ? "keys" : "own", N);
        fcp_plan *plan;
        cr_assert_eq(plan_text(source, &plan, &picture), FCP_OK, "%s", picture);
        const summary_figures f = summary_derive(plan);
        cr_expect_eq(plan->summary->bytes_total, 3 * N * kv * 2);
        cr_expect_eq(plan->summary->backward_bytes_total, 3 * N * kv * (2 + 4));
        cr_expect_eq(f.flops_forward, (double)N * N * HEADS * 2 * (double)(head + value));
        cr_expect_eq(f.flops_backward, (double)N * N * HEADS * 2 * (double)(3 * head + 2 * value));
        if (i < 2) memory[i] = plan->summary->memory_peak_bytes;
        fcp_plan_free(plan);
        free(picture);
    }
    cr_expect_lt(memory[1], memory[0]);
}

/* Where a plan takes a gradient of LSE, a rank has 4 bytes more for each query and head. All else is the same. */
Test(compile, gradient_of_lse_is_four_bytes) {
    for (uint32_t gpus = 1; gpus <= 4; gpus += 3) {
        fcp_plan *plan[2];
        for (int with = 0; with < 2; with++) {
            char source[512], *picture;
            snprintf(source, sizeof source,
                     "model { heads = 4; kv_heads = 2; head_dim = 192; value_dim = 128 }\ncluster { gpus = %u }\n"
                     "batch { lengths = [3000, 700, 130] }\n"
                     "plan { mask = causal; block = 256; layout = zigzag; lse_gradient = %s }\n", gpus,
                     with ? "true" : "false");
            cr_assert_eq(plan_text(source, &plan[with], &picture), FCP_OK, "%s", picture);
            cr_expect_eq(plan[with]->problem->lse_gradient, with);
            free(picture);
        }
        cr_assert_eq(plan[0]->transfers_count, plan[1]->transfers_count);
        cr_expect_eq(memcmp(plan[0]->transfers, plan[1]->transfers, plan[0]->transfers_count * sizeof(fcp_transfer)), 0);
        const uint64_t memory = plan[1]->summary->memory_peak_bytes - plan[0]->summary->memory_peak_bytes;
        if (gpus == 1) cr_expect_eq(memory, (3000 + 700 + 130) * 4 * 4);
        else cr_expect(memory > 0 && memory % (4 * 4) == 0 && memory < (3000 + 700 + 130) * 4 * 4);
        for (int with = 0; with < 2; with++) fcp_plan_free(plan[with]);
    }
}

/* What is said of a program that is parsed and planned: in a diagnostics object that knows another source already, or
 * in one of its own. The plan may be made in a third one, which knows none. */
static char *said_of(const char *source, bool after_another, bool planned_elsewhere) {
    fcpc_diagnostics *d = fcpc_diagnostics_new(), *other = planned_elsewhere ? fcpc_diagnostics_new() : d;
    fcpc_program *first = NULL, *program = NULL;
    fcp_plan *plan = NULL;
    if (after_another)
        cr_assert_eq(fcpc_parse_text("first.fcp", "\n\nplan { mask = full }\n", 22, NULL, d, &first), FCP_OK);
    cr_assert_eq(fcpc_parse_text("second.fcp", source, strlen(source), NULL, d, &program), FCP_OK, "%s", source);
    fcpc_plan(program, NULL, 0, NULL, other, NULL, &plan);
    char *said = fcpc_diagnostics_render(other, false);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_program_free(first);
    if (other != d) fcpc_diagnostics_free(other);
    fcpc_diagnostics_free(d);
    return said;
}

/* Errors and warnings of a batch point to the same place of the source, whichever other sources the diagnostics
 * know. */
Test(compile, places_after_another_program) {
    static const struct {
        const char *more, *place;
    } cases[PROGRAM_PLACES] = {
        [AT_MASK] = {"mask none(w) = q < 0 - w\nbatch { lengths = [3000] }\nplan { mask = none(w = 0) }", "4:15"},
        [AT_BLOCK] = {"cluster { gpus = 2 }\nbatch { lengths = [4096, 100 x 8] }\n"
                      "plan { mask = causal; strategy = fcp(split = off); block = 2048 }",
                      "4:60"},
        [AT_RANKS] = {"cluster { gpus = 8 }\nbatch { lengths = [300] }\nplan { mask = causal; block = 128 }", "2:18"},
        [AT_LENGTHS] = {"batch { lengths = [4000000000] }\nplan { mask = causal }", "2:19"},
        [AT_MEMORY] = {"cluster { memory = 100 kB }\nbatch { lengths = [3000] }\nplan { mask = causal }", "2:20"},
        [AT_LAYOUT] = {"cluster { nodes = 128; gpus = 8 }\nbatch { lengths = [4K x 1050] }\n"
                       "plan { mask = causal; block = 2K; layout = zigzag; passes = forward }",
                       "4:44"},
        [AT_STRATEGY] = {"cluster { gpus = 2 }\nbatch { lengths = [3000, 200] }\n"
                         "plan { mask = causal; strategy = groups(tokens = 1000) }",
                         "4:34"},
        [AT_EPSILON] = {"cluster { gpus = 2 }\nbatch { lengths = [5000, 300] }\n"
                        "plan { mask = causal; strategy = dcp(epsilon_memory = 0.001); block = 4K }",
                        "4:55"},
        [AT_TOKENS] = {"cluster { gpus = 2 }\nbatch { lengths = [300, 500, 1300] }\n"
                       "plan { mask = causal; strategy = cad; layout = contiguous(group = 1); tokens = equal }",
                       "4:80"},
        [AT_DOCUMENTS] = {"batch { lengths = [100:300]; field doc = [0 x 300]; documents = doc }\n"
                          "plan { mask = causal }",
                          "2:65"},
        [AT_RECURRENT] = {"batch { lengths = [100:300] }\nplan { layers = [causal, scan, halo(before = 3)] }", "3:26"},
    };
    for (int i = 0; i < PROGRAM_PLACES; i++) {
        char source[512], place[64];
        if (i == AT_SCORE) continue; /* it is shown where a score of the prelude faults, and none does */
        snprintf(source, sizeof source, "model { heads = 4; kv_heads = 2; head_dim = 64 }\n%s\n", cases[i].more);
        snprintf(place, sizeof place, "second.fcp:%s: ", cases[i].place);
        char *alone = said_of(source, false, false);
        cr_expect(strstr(alone, place), "%s\nnot at %s:\n%s", source, place, alone);
        for (int how = 1; how < 4; how++) {
            char *said = said_of(source, how & 1, how & 2);
            cr_expect_str_eq(said, alone, "%s", source);
            free(said);
        }
        free(alone);
    }
}

/* So does an error whose place also has a warning. */
Test(compile, place_of_too_many_bundles) {
    char *said = said_of(MANY_BUNDLES, true, false);
    cr_expect(strstr(said, "second.fcp:3:44: error[E404]"), "%s", said);
    free(said);
}
