/* test_recurrent_extracts.c: extracts of plans with layers that recur: a rank's extract has the rank's stretches, steps
 * and rows of halos; sessions of it give the same bits; and its tables are checked before they are used. */
#include "runtime/exec/cut.h"
#include "runtime/plan/plan_check.h"
#include "tests/support/plan_of.h"
#include "tests/support/processes.h"
#include "tests/support/recurrent_plan.h"
#include "tests/support/splitmix.h"

static const fcp_recurrent layers[] = {
    {.kind = FCP_HALO, .times = 3, .before = 3, .channels = 64},
    {.kind = FCP_SCAN, .times = 3, .heads = 4, .rows = 8, .columns = 4, .decay = FCP_DECAY_SCALAR},
    {.kind = FCP_SCAN, .times = 1, .heads = 2, .rows = 4, .columns = 4, .decay = FCP_DECAY_MATRIX, .reverse = 1},
    {.kind = FCP_HALO, .times = 1, .before = 140, .after = 50, .channels = 64},
};
enum { LAYERS = sizeof layers / sizeof *layers, NUMBERS = 3 /* of a halo's row */ };

static const char *const programs[] = {
    "cluster { nodes = 2; gpus = 2 }\nbatch { lengths = [700, 3, 400, 64 x 5] }\n"
    "plan { mask = causal; block = 128; layout = zigzag; strategy = zigzag }",
    "cluster { gpus = 3 }\n"
    "batch { lengths = [600, 60]; field doc = [0 x 100, 1 x 2, 2 x 498, 0 x 60]; documents = doc }\n"
    "plan { mask = causal; block = 128; strategy = fcp }",
    "cluster { gpus = 4 }\nbatch { lengths = [900, 40] }\nplan { mask = causal; block = 128; strategy = dcp }",
    "cluster { nodes = 2 }\nbatch { lengths = [500, 7] }\n"
    "plan { mask = causal; layout = contiguous; passes = forward }",
};
enum { PROGRAMS = sizeof programs / sizeof *programs };

typedef struct cut_plan {
    fcp_plan *plan;
    char path[TEMPORARY];
    uint8_t root[FCP_DIGEST_BYTES];
} cut_plan;

static void cut_open(cut_plan *x, unsigned program) {
    char text[500];
    fcp_error err = {0};
    snprintf(text, sizeof text, "model { heads = 4; head_dim = 16 }\n%s\n", programs[program]);
    x->plan = plan_of(text);
    recurrent_give(x->plan, layers, LAYERS);
    cr_assert(temporary_file(x->path, "extracts"));
    cr_assert_eq(fcp_extracts_save(x->plan, x->path, NULL, x->root, &err), FCP_OK, "%s", err.message);
}
static void cut_close(cut_plan *x) {
    unlink(x->path);
    fcp_plan_free(x->plan);
}
static fcp_plan *cut_load(const cut_plan *x, uint32_t rank) {
    fcp_plan *plan = NULL;
    fcp_error err = {0};
    cr_assert_eq(fcp_extracts_load(x->path, rank, x->root, &plan, &err), FCP_OK, "rank %u: %s", rank, err.message);
    return plan;
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static void same_stretches(const fcp_plan *plan, const fcp_plan *part, uint32_t rank) {
    const uint32_t count = fcp_plan_stretches(plan, rank, NULL);
    fcp_stretch *all = calloc(count + 1, sizeof *all), *own = calloc(count + 1, sizeof *own);
    cr_assert_eq(fcp_plan_stretches(part, rank, NULL), count);
    fcp_plan_stretches(plan, rank, all);
    fcp_plan_stretches(part, rank, own);
    for (uint32_t i = 0; i < count; i++) {
        own[i].document = plan->documents ? all[i].document : own[i].document; /* with a field: its own numbers */
        cr_assert(!memcmp(&all[i], &own[i], sizeof *all), "rank %u, stretch %u", rank, i);
    }
    free(all);
    free(own);
}

static void same_rows(const fcp_plan *plan, const fcp_plan *part, uint32_t a, uint32_t b, uint32_t count) {
    cr_assert(b + (uint64_t)count <= part->halo_rows_count);
    cr_assert(!memcmp(plan->halo_rows + a, part->halo_rows + b, count * sizeof *plan->halo_rows));
}

static uint64_t same_steps(const fcp_plan *plan, const fcp_plan *part, uint32_t rank) {
    uint64_t steps = 0;
    for (uint32_t layer = 0; layer < LAYERS; layer++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            const fcp_step_stream *a = fcp_steps_of(plan, layer, (fcp_pass)pass, rank);
            const fcp_step_stream *b = fcp_steps_of(part, layer, (fcp_pass)pass, rank);
            cr_assert(a->count == b->count && a->temporaries == b->temporaries && b->first == steps);
            steps += b->count;
            for (uint32_t i = 0; i < a->count; i++) {
                const fcp_step *x = &plan->steps[a->first + i];
                fcp_step y = part->steps[b->first + i];
                if (layers[layer].kind == FCP_HALO) {
                    const bool copies = x->op == FCP_STEP_COPY;
                    same_rows(plan, part, x->a, y.a, copies ? 1 : x->b);
                    if (copies) same_rows(plan, part, x->b, y.b, 1);
                    y.a = x->a;
                    if (copies) y.b = x->b;
                }
                cr_assert(!memcmp(x, &y, sizeof y), "rank %u, layer %u, pass %d, step %u", rank, layer, pass, i);
            }
            cr_assert_eq(fcp_steps_of(part, layer, (fcp_pass)pass, rank + 1)->count, 0);
        }
    cr_assert_eq(steps, part->steps_count);
    return steps;
}

Test(recurrent_extracts, have_what_the_plan_has) {
    for (unsigned i = 0; i < PROGRAMS; i++) {
        cut_plan x;
        uint64_t steps = 0, rows = 0;
        cut_open(&x, i);
        for (uint32_t r = 0; r < x.plan->problem->ranks; r++) {
            fcp_plan *part = cut_load(&x, r);
            cr_assert_eq(part->recurrent_count, LAYERS);
            cr_assert(!memcmp(part->recurrent, x.plan->recurrent, LAYERS * sizeof *part->recurrent));
            same_stretches(x.plan, part, r);
            steps += same_steps(x.plan, part, r);
            rows += part->halo_rows_count;
            fcp_plan_free(part);
        }
        cr_assert_gt(steps, 0);
        cr_assert_eq(steps, x.plan->steps_count);
        cr_assert_eq(rows, x.plan->halo_rows_count);
        cut_close(&x);
    }
}

/* Any number that is as large as can be is refused, whichever it is. */
Test(recurrent_extracts, are_checked) {
    cut_plan x;
    cut_open(&x, 0);
    for (uint32_t r = 0; r < x.plan->problem->ranks; r++) {
        fcp_plan *part = cut_load(&x, r);
        fcp_error err = {0};
        const struct {
            const void *at;
            size_t bytes;
        } sections[] = {{part->recurrent, part->recurrent_count * sizeof *part->recurrent},
                        {part->step_streams, part->step_streams_count * sizeof *part->step_streams},
                        {part->steps, part->steps_count * sizeof *part->steps},
                        {part->halo_rows, part->halo_rows_count * sizeof *part->halo_rows}};
        for (size_t s = 0; s < sizeof sections / sizeof *sections; s++)
            for (size_t i = 0; i < sections[s].bytes / sizeof(uint32_t); i++) {
                uint32_t *at = (uint32_t *)(uintptr_t)sections[s].at + i, keep = *at; /* in memory of the test's own */
                *at = UINT32_MAX;
                cr_assert_eq(fcp_plan_check(part, NULL, &err), FCP_E_PLAN_FORMAT, "table %zu, word %zu", s, i);
                *at = keep;
            }
        cr_assert_eq(fcp_plan_check(part, NULL, &err), FCP_OK, "%s", err.message);
        fcp_plan_free(part);
    }
    cut_close(&x);
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

/* All tensors of one rank, for all layers. */
typedef struct rank_layers {
    float *x[LAYERS], *halo[LAYERS], *back[LAYERS]; /* halos */
    float *decay[LAYERS], *state[LAYERS];           /* scans */
    float *entering[LAYERS][FCP_PASSES];
    size_t halo_count[LAYERS], token_count, entering_count[LAYERS];
} rank_layers;

static float *numbers(uint64_t seed, size_t count, bool drawn) {
    float *to = calloc(count + 1, sizeof *to);
    for (size_t i = 0; i < count && drawn; i++) to[i] = (float)(int)(splitmix(&seed) % 2001 - 1000) / 1000.0F;
    return to;
}

static void layers_open(const fcp_plan *plan, uint32_t rank, rank_layers *of) {
    const size_t stretches = fcp_plan_stretches(plan, rank, NULL);
    *of = (rank_layers){.token_count = fcp_plan_rank_queries(plan, rank) * NUMBERS};
    for (uint32_t i = 0; i < LAYERS; i++) {
        const fcp_recurrent *x = &plan->recurrent[i];
        const uint64_t seed = rank * 100 + i;
        of->halo_count[i] = stretches * (x->before + x->after) * NUMBERS;
        of->entering_count[i] = stretches * x->heads * fcp_state_numbers(x);
        of->x[i] = numbers(seed, of->token_count, true);
        of->halo[i] = numbers(seed, of->halo_count[i], false);
        of->back[i] = numbers(seed + 10, of->token_count, true);
        of->decay[i] = numbers(seed + 20, stretches * x->heads * fcp_decay_numbers(x), true);
        of->state[i] = numbers(seed + 30, of->entering_count[i], true);
        for (int pass = 0; pass < FCP_PASSES; pass++) of->entering[i][pass] = numbers(0, of->entering_count[i], false);
    }
}

static void layers_close(rank_layers *of) {
    for (uint32_t i = 0; i < LAYERS; i++) {
        float *const all[] = {of->x[i],     of->halo[i],        of->back[i],       of->decay[i],
                              of->state[i], of->entering[i][0], of->entering[i][1]};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++) free(all[j]);
    }
}

/* Runs all layers for the ranks of a session. */
static fcp_code run_layers(fcp_session *session, const fcp_plan *plan, rank_layers *of, uint32_t count,
                           fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < LAYERS && !code; i++) {
        fcp_halo_rank halo[PROCESSES];
        fcp_halo_gradient_rank back[PROCESSES];
        for (uint32_t r = 0; r < count; r++) {
            halo[r] = (fcp_halo_rank){of[r].x[i], of[r].halo[i]};
            back[r] = (fcp_halo_gradient_rank){of[r].halo[i], of[r].back[i]};
        }
        if (plan->recurrent[i].kind == FCP_HALO) {
            code = fcp_session_halo(session, i, NUMBERS * sizeof(float), halo, NULL, err);
            if (!code && plan->problem->passes >> FCP_BACKWARD & 1)
                code = fcp_session_halo_gradient(session, i, FCP_FP32, NUMBERS, back, NULL, err);
            continue;
        }
        for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
            fcp_scan_rank scan[PROCESSES];
            if (!(plan->problem->passes >> pass & 1)) continue;
            for (uint32_t r = 0; r < count; r++)
                scan[r] = (fcp_scan_rank){of[r].decay[i], of[r].state[i], of[r].entering[i][pass]};
            code = fcp_session_scan(session, i, (fcp_pass)pass, scan, NULL, err);
        }
    }
    return code;
}

static void same_layers(process *p, const rank_layers *a, const rank_layers *b) {
    for (uint32_t i = 0; i < LAYERS; i++) {
        CHECK(p, !memcmp(a->halo[i], b->halo[i], a->halo_count[i] * sizeof(float)), "halo %u has other bits", i);
        CHECK(p, !memcmp(a->back[i], b->back[i], a->token_count * sizeof(float)), "gradient %u has other bits", i);
        for (int pass = 0; pass < FCP_PASSES; pass++)
            CHECK(p, !memcmp(a->entering[i][pass], b->entering[i][pass], a->entering_count[i] * sizeof(float)),
                  "scan %u has other bits", i);
    }
}

static void same_bits(process *p) {
    const cut_plan *x = p->argument;
    fcp_session *session = NULL;
    fcp_plan *part = NULL;
    rank_layers mine = {0}, all[PROCESSES] = {{.token_count = 0}};
    fcp_error err = {0};
    process_tcp_id(p);
    process_meet(p, 0, 1);
    const fcp_start start = {.size = sizeof start, .ranks = p->ranks, .rank = p->rank, .id = p->shared->id.bytes};
    const fcp_session_options options = {.size = sizeof options,
                                         .transport = "tcp",
                                         .start = &start,
                                         .compute_threads = 1,
                                         .timeout_s = 100};
    const fcp_session_options here = {.size = sizeof here, .compute_threads = 1};
    CHECK(p, !fcp_extracts_load(x->path, p->rank, x->root, &part, &err), "%s", err.message);
    fcp_code code = fcp_session_create(part, &options, &session, &err);
    layers_open(part, p->rank, &mine);
    if (!code) code = run_layers(session, part, &mine, 1, &err);
    CHECK(p, !code, "%s: %s", fcp_code_name(code), err.message);
    fcp_session_free(session);
    session = NULL;
    for (uint32_t r = 0; r < p->ranks; r++) layers_open(x->plan, r, &all[r]);
    if (!code) code = fcp_session_create(x->plan, &here, &session, &err);
    if (!code) code = run_layers(session, x->plan, all, p->ranks, &err);
    CHECK(p, !code, "%s: %s", fcp_code_name(code), err.message);
    if (!code) same_layers(p, &mine, &all[p->rank]);
    fcp_session_free(session);
    for (uint32_t r = 0; r < p->ranks; r++) layers_close(&all[r]);
    layers_close(&mine);
    fcp_plan_free(part);
}

Test(recurrent_extracts, give_the_same_bits) {
    for (unsigned i = 0; i < PROGRAMS; i++) {
        cut_plan x;
        cut_open(&x, i);
        process_shared *s = process_shared_make();
        process_run(s, x.plan->problem->ranks, same_bits, &x);
        process_all_well(s, x.plan->problem->ranks, 0, programs[i]);
        process_shared_end(s, false);
        cut_close(&x);
    }
}
