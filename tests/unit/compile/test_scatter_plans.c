/* test_scatter_plans.c: tests plans in which everything is drawn at random (scatter.h). All of them verify, the same
 * seed gives the same plan, and everything that a plan may hold occurs in a few of them. The passes' output for a small
 * one is compared with tests/golden/passes/scatter.txt; GOLDEN_UPDATE=1 rewrites that file.
 *
 * SCATTER_SEED=N plans that one alone. */
#include "compiler/dump_passes.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/file.h"
#include "tests/support/amount.h"
#include "tests/support/planned.h"

static const char golden[] = "tests/golden/passes/scatter.txt";

static fcp_plan *sample(unsigned seed, const scatter *s) {
    char text[1024];
    fcp_plan *plan = scatter_plan(sample_program(seed, text, sizeof text), s);
    cr_assert_not_null(plan, "seed %u", seed);
    return plan;
}

static bool same_plan(const fcp_plan *a, const fcp_plan *b) {
    const void *data[2][FCP_SECTION_COUNT];
    uint64_t sizes[2][FCP_SECTION_COUNT];
    cr_assert(fcp_plan_sections(a, data[0], sizes[0]) && fcp_plan_sections(b, data[1], sizes[1]));
    for (int i = 0; i < FCP_SECTION_COUNT; i++)
        if (sizes[0][i] != sizes[1][i] || (sizes[0][i] && memcmp(data[0][i], data[1][i], sizes[0][i]))) return false;
    return true;
}

/* What a plan may hold, counted over many. */
typedef struct tally {
    uint64_t ops[FCP_OP_COUNT], moved[FCP_CLASSES][2]; /* between ranks: from home, and of others */
    uint64_t whole, made_away, partial_home_unvisited, merged_first, relayed, deltas, shared_kv, ranges;
} tally;

static void count_stream(const fcp_plan *plan, fcp_pass pass, uint32_t rank, bool anywhere, tally *t) {
    const fcp_stream *compute = fcp_stream_of(plan, pass, rank, FCP_COMPUTE),
                     *comm = fcp_stream_of(plan, pass, rank, FCP_COMM);
    uint32_t deltas = 0;
    for (uint32_t i = compute->first; i < compute->first + compute->count; i++) {
        t->ops[plan->instrs[i].op]++;
        deltas += plan->instrs[i].op == FCP_OP_DELTA;
    }
    t->deltas += deltas > 1;
    for (uint32_t i = comm->first; i < comm->first + comm->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        t->ops[x->op]++;
        if (x->op != FCP_OP_LAUNCH) continue;
        fcp_round_kind kind = (fcp_round_kind)plan->rounds[plan->round_starts[pass] + x->c].kind;
        for (uint32_t j = x->a; j < x->a + x->b; j++) {
            const fcp_transfer *m = &plan->transfers[j];
            if (m->dir != FCP_SEND) continue;
            bool own = m->cls <= FCP_Q && plan->blocks[m->block].home == rank;
            t->moved[m->cls][!own && m->cls < FCP_IN]++;
            cr_assert(!anywhere || kind != FCP_ROUND_INDEPENDENT,
                      "work is done anywhere, so all rounds are of a stage");
            t->relayed += m->cls == FCP_O && plan->blocks[m->block].home != m->peer;
        }
    }
}

static void count_plan(const fcp_plan *plan, tally *t) {
    const fcp_problem *p = plan->problem;
    bool anywhere = false; /* in a small plan all may be drawn to be at home */
    for (uint64_t i = 0; i < plan->transfers_count; i++) anywhere |= plan->transfers[i].cls == FCP_Q;
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t r = 0; r < p->ranks; r++) count_stream(plan, (fcp_pass)pass, r, anywhere, t);
    for (uint64_t b = 0; b < plan->blocks_count; b++) t->whole += plan->blocks[b].flags & FCP_BLOCK_WHOLE;
    t->ranges += p->range_kv < p->kv_heads;
    t->shared_kv += p->range_sub < p->heads / p->kv_heads;
    uint8_t *begun = calloc(plan->blocks_count * p->ranks, 1);
    for (uint32_t r = 0; r < p->ranks; r++) { /* a visit that finds a state which a MERGE left */
        const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, r, FCP_COMPUTE);
        for (uint32_t i = s->first; i < s->first + s->count; i++)
            for (uint32_t v = plan->instrs[i].a;
                 plan->instrs[i].op == FCP_OP_ATTEND && v < plan->instrs[i].a + plan->instrs[i].b; v++) {
                uint8_t *first = &begun[plan->visits[v].q_block * p->ranks + r];
                t->merged_first += !*first && !(plan->visits[v].flags & FCP_VISIT_FIRST);
                *first = 1;
            }
        for (uint32_t i = s->first; i < s->first + s->count; i++)
            if (plan->instrs[i].op == FCP_OP_FINISH) {
                bool home = plan->blocks[plan->instrs[i].a].home == r;
                t->made_away += !home;
                t->partial_home_unvisited += home && !begun[plan->instrs[i].a * p->ranks + r];
            }
    }
    free(begun);
}

Test(scatter, plans_verify, .timeout = 600) {
    const char *one = getenv("SCATTER_SEED");
    unsigned first = one ? (unsigned)atoi(one) : 0, count = one ? 1 : amount(300, 8000);
    tally t = {{0}};
    for (unsigned i = first; i < first + count; i++) {
        scatter s = scatter_new(i);
        if (i % 9 == 7) s.whole = true;
        if (i % 9 == 8) s.strategy.route = NULL;
        fcp_plan *plan = sample(i, &s);
        count_plan(plan, &t);
        fcp_plan_free(plan);
    }
    if (one) return;
    for (int op = 0; op < FCP_OP_COUNT; op++) cr_assert(t.ops[op], "no %s", fcp_op_names[op]);
    for (int cls = 0; cls < FCP_CLASSES; cls++)
        cr_assert(t.moved[cls][cls <= FCP_Q ? 0 : cls < FCP_IN] && (cls > FCP_Q || t.moved[cls][1]), "no %s travels",
                  fcp_class_texts[cls]);
    cr_assert(t.whole && t.made_away && t.partial_home_unvisited && t.merged_first && t.relayed && t.deltas &&
              t.shared_kv && t.ranges);
}

Test(scatter, the_same_seed_is_the_same_plan) {
    unsigned differ = 0;
    for (unsigned i = 0; i < 40; i++) {
        const scatter s = scatter_new(i), next = scatter_new(i + 1000);
        fcp_plan *a = sample(i, &s), *b = sample(i, &s), *other = sample(i, &next);
        cr_assert(same_plan(a, b), "seed %u", i);
        differ += !same_plan(a, other);
        fcp_plan_free(a);
        fcp_plan_free(b);
        fcp_plan_free(other);
    }
    cr_assert_gt(differ, 30); /* where there is little to draw, seeds may agree */
}

/* A plan may say for each tile that it runs at home, or say nothing. Both move the same. */
Test(scatter, tiles_at_home) {
    for (unsigned i = 0; i < SAMPLES; i++) {
        char text[1024];
        scatter s = scatter_new(i);
        planned said, silent;
        s.at_home = true;
        plan_scatter(&said, sample_program(i, text, sizeof text), &s);
        s.strategy.exec = NULL;
        plan_scatter(&silent, text, &s);
        cr_assert(said.t.count == silent.t.count && said.t.keys == said.t.count);
        for (uint32_t f = 0; f < said.t.count; f++)
            cr_assert(!memcmp(&said.t.hops[f], &silent.t.hops[f], offsetof(hop, fabric) + 1));
        for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
            cr_assert_eq(said.s.independent[fabric], silent.s.independent[fabric]);
        for (uint32_t b = 0; b < said.p.block_count; b++) cr_assert_eq(traffic_result(&said.t, b), RESULT_HOME);
        planned_free(&said);
        planned_free(&silent);
    }
}

typedef struct sink {
    char *text;
    size_t size;
} sink;

static void take(void *context, const char *text, size_t size) {
    sink *s = context;
    s->text = realloc(s->text, s->size + size + 1);
    memcpy(s->text + s->size, text, size);
    s->text[s->size += size] = 0;
}

static void see(void *context, const planning *x) {
    unsigned all;
    fcp_error err;
    cr_assert_eq(dump_select("problem,placement,traffic,reshuffle,schedule,slots,rounds", &all, &err), FCP_OK);
    dump_planning(x, all, take, context);
}

/* A sequence of 500 tokens on two nodes of two ranks. Seed 132 gives it a whole block, a partial one, ranks that only
 * pass a block on, and two ranges of heads. */
Test(scatter, golden) {
    static const char text[] = "model { heads = 4; kv_heads = 2; head_dim = 64 }\ncluster { nodes = 2; gpus = 2 }\n"
                               "batch { lengths = [500] }\n"
                               "plan { mask = causal; block = 128; strategy = fcp(coalesce = 2, buffers = 2) }\n";
    const scatter s = scatter_new(132);
    sink made = {0};
    fcpc_diagnostics *d = fcpc_diagnostics_new();
    fcpc_program *program = parse_text(text, d);
    const fcpc_batch batch = {.size = sizeof batch};
    const compile_watch watch = {.see = see, .context = &made, .strategy = &s.strategy};
    fcp_plan *plan = NULL;
    cr_assert_eq(compile_batch(program, &batch, NULL, d, &watch, NULL, &plan), FCP_OK);
    if (getenv("GOLDEN_UPDATE")) {
        FILE *f = fopen(golden, "w");
        cr_assert(f && fwrite(made.text, 1, made.size, f) == made.size && !fclose(f));
    }
    char *expected = calloc(1, made.size + 2);
    FILE *f = fopen(golden, "r");
    cr_assert_not_null(f);
    cr_assert(fread(expected, 1, made.size + 1, f) == made.size && !memcmp(expected, made.text, made.size),
              "%s differs: GOLDEN_UPDATE=1 rewrites it; read the diff", golden);
    fclose(f);
    free(expected);
    free(made.text);
    fcp_plan_free(plan);
    fcpc_program_free(program);
    fcpc_diagnostics_free(d);
}
