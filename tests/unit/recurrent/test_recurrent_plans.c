/* test_recurrent_plans.c: the steps of halos and scans, against what they must bring to each stretch.
 *
 * Each network is carried out on symbols: a register is the list of summaries that it holds, and a row of a halo the
 * token that came there. This reads the tables only, round by round, as a runtime would. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/plan_of.h"
#include "tests/support/recurrent_plan.h"
#include "tests/support/splitmix.h"

enum { RANKS_MAX = 64 };

/* Stretches first to end - 1 of a document, counted as states run. */
typedef struct holds {
    uint64_t document;
    uint32_t first, end;
    bool whole, there;
} holds;

typedef struct known {
    const fcp_plan *plan;
    uint32_t ranks, counts[RANKS_MAX];
    fcp_stretch *of[RANKS_MAX];
} known;

static known know(const fcp_plan *plan) {
    known k = {.plan = plan, .ranks = plan->problem->ranks};
    cr_assert_leq(k.ranks, RANKS_MAX);
    for (uint32_t r = 0; r < k.ranks; r++) {
        k.counts[r] = fcp_stretches_of(plan, r, NULL);
        k.of[r] = calloc(k.counts[r] + 1, sizeof *k.of[r]);
        fcp_stretches_of(plan, r, k.of[r]);
    }
    return k;
}
static void forget(known *k) {
    for (uint32_t r = 0; r < k->ranks; r++) free(k->of[r]);
}

/* How many stretches of the same document come before a stretch, as states run. */
static uint32_t before(const known *k, const fcp_stretch *x, bool descends) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < k->ranks; r++)
        for (uint32_t i = 0; i < k->counts[r]; i++)
            count += k->of[r][i].document == x->document &&
                     (descends ? k->of[r][i].start > x->start : k->of[r][i].start < x->start);
    return count;
}

static holds join(holds a, holds b, bool whole) {
    cr_assert(a.there && b.there && b.whole && a.document == b.document && a.end == b.first);
    cr_assert(whole ? a.whole : !a.first);
    return (holds){a.document, a.first, b.end, whole, true};
}

static void run_scan(const known *k, uint32_t layer, fcp_pass pass) {
    const fcp_recurrent *x = &k->plan->recurrent[layer];
    const bool descends = fcp_scan_descends(x, pass);
    holds *regs[RANKS_MAX];
    uint32_t at[RANKS_MAX] = {0}, most = 0;
    for (uint32_t r = 0; r < k->ranks; r++) {
        const uint32_t count = 2 * k->counts[r] + fcp_steps_of(k->plan, layer, pass, r)->temporaries;
        regs[r] = calloc((count + (size_t)1) * x->parts, sizeof **regs);
        for (uint32_t i = 0; i < k->counts[r]; i++)
            for (uint32_t p = 0; p < x->parts; p++) {
                const uint32_t n = before(k, &k->of[r][i], descends);
                regs[r][i * x->parts + p] = (holds){k->of[r][i].document, n, n + 1, true, true};
            }
    }
    for (uint32_t round = 0; round <= x->rounds[pass]; round++) {
        holds sent[RANKS_MAX][FCP_FABRICS] = {0};
        uint32_t to[RANKS_MAX][FCP_FABRICS], part[RANKS_MAX][FCP_FABRICS];
        for (int half = 0; half < 2; half++) /* sends of all ranks, then receives */
            for (uint32_t r = 0; r < k->ranks; r++) {
                const fcp_step_stream *s = fcp_steps_of(k->plan, layer, pass, r);
                bool fabrics[2][FCP_FABRICS] = {0}, messages = false; /* what follows them waits until they have come */
                uint32_t i = at[r];
                for (; i < s->count; i++) {
                    const fcp_step *y = &k->plan->steps[s->first + i];
                    holds *reg = regs[r];
#define REG(n) reg[(n)*x->parts + y->part]
                    if (y->op == FCP_STEP_COMBINE) {
                        if (half || messages) break;
                        REG(y->out) = join(REG(y->a), REG(y->b), y->whole);
                        at[r] = i + 1;
                    } else if (y->op == FCP_STEP_COPY) {
                        if (half || messages) break;
                        cr_assert(REG(y->a).there && !REG(y->a).first);
                        REG(y->out) = REG(y->a);
                        REG(y->out).whole = false;
                        at[r] = i + 1;
                    } else {
                        if (y->round != round) break;
                        messages = true;
                        cr_assert(!fabrics[y->op][y->fabric], "rank %u twice in round %u", r, round);
                        fabrics[y->op][y->fabric] = true;
                        const bool local = r / k->plan->problem->gpus == y->peer / k->plan->problem->gpus;
                        cr_assert_eq(y->fabric, local ? FCP_LOCAL : FCP_NET);
                        if (y->op == FCP_STEP_SEND && !half) {
                            sent[r][y->fabric] = REG(y->a);
                            cr_assert(REG(y->a).there && (y->whole ? REG(y->a).whole : !REG(y->a).first));
                            sent[r][y->fabric].whole = y->whole;
                            to[r][y->fabric] = y->peer;
                            part[r][y->fabric] = y->part;
                            most++;
                        }
                        if (y->op == FCP_STEP_RECV && half) {
                            cr_assert(sent[y->peer][y->fabric].there && to[y->peer][y->fabric] == r &&
                                      part[y->peer][y->fabric] == y->part);
                            REG(y->out) = sent[y->peer][y->fabric];
                            sent[y->peer][y->fabric].there = false;
                            most--;
                        }
                    }
                }
                if (half) at[r] = i;
            }
    }
    cr_assert_eq(most, 0);
    for (uint32_t r = 0; r < k->ranks; r++) {
        cr_assert_eq(at[r], fcp_steps_of(k->plan, layer, pass, r)->count, "rank %u ends at step %u", r, at[r]);
        for (uint32_t i = 0; i < k->counts[r]; i++)
            for (uint32_t p = 0; p < x->parts; p++) {
                const holds *h = &regs[r][(k->counts[r] + i) * x->parts + p];
                const uint32_t n = before(k, &k->of[r][i], descends);
                if (!n) cr_assert(!h->there);
                else
                    cr_assert(h->there && !h->first && h->end == n && h->document == k->of[r][i].document,
                              "rank %u stretch %u: %u to %u, not %u", r, i, h->first, h->end, n);
            }
        free(regs[r]);
    }
}

/* The row of the packed batch that each row of a halo gets; by_row: of each rank's tensors. */
static void run_halo(const known *k, uint32_t layer) {
    const fcp_recurrent *x = &k->plan->recurrent[layer];
    const uint64_t width = x->before + (uint64_t)x->after;
    int64_t *rows[RANKS_MAX], *halo[RANKS_MAX];
    for (uint32_t r = 0; r < k->ranks; r++) {
        rows[r] = calloc(fcp_plan_rank_queries(k->plan, r) + 1, sizeof **rows);
        halo[r] = calloc(k->counts[r] * width + 1, sizeof **halo);
        for (uint32_t i = 0; i < k->counts[r]; i++)
            for (uint64_t t = 0; t < k->of[r][i].length; t++)
                rows[r][k->of[r][i].first + t] = (int64_t)(k->of[r][i].start + t);
        for (uint64_t i = 0; i < k->counts[r] * width; i++) halo[r][i] = -1;
    }
    for (uint32_t r = 0; r < k->ranks; r++) {
        const fcp_step_stream *s = fcp_steps_of(k->plan, layer, FCP_FORWARD, r);
        for (uint32_t i = 0; i < s->count; i++) {
            const fcp_step *y = &k->plan->steps[s->first + i], *z = y;
            if (y->op == FCP_STEP_SEND) continue;
            uint32_t from = r, source = y->a, place = y->b, count = 1;
            if (y->op == FCP_STEP_RECV) {
                const fcp_step_stream *theirs = fcp_steps_of(k->plan, layer, FCP_FORWARD, y->peer);
                for (z = &k->plan->steps[theirs->first];; z++) {
                    cr_assert(z < &k->plan->steps[theirs->first + theirs->count]);
                    if (z->op == FCP_STEP_SEND && z->peer == r && z->round == y->round) break;
                }
                from = y->peer, source = z->a, place = y->a, count = y->b;
                cr_assert_eq(z->b, y->b);
            }
            for (uint32_t c = 0; c < count; c++) {
                const fcp_halo_rows *a = &k->plan->halo_rows[source + c], *b = &k->plan->halo_rows[place + c];
                cr_assert_eq(a->count, b->count);
                for (uint32_t n = 0; n < a->count; n++) {
                    cr_assert_eq(halo[r][b->first + n], -1);
                    halo[r][b->first + n] = rows[from][a->first + n];
                }
            }
        }
    }
    for (uint32_t r = 0; r < k->ranks; r++) {
        for (uint32_t i = 0; i < k->counts[r]; i++)
            for (uint64_t n = 0; n < width; n++) {
                const fcp_stretch *y = &k->of[r][i];
                const int64_t row = n < x->before ? (int64_t)(y->start + n) - x->before
                                                  : (int64_t)(y->start + y->length + n) - x->before;
                const uint64_t *starts = k->plan->documents ? k->plan->documents : k->plan->sequence_offsets;
                const bool inside = row >= (int64_t)starts[y->document] && row < (int64_t)starts[y->document + 1];
                cr_assert_eq(halo[r][i * width + n], inside ? row : -1, "rank %u stretch %u row %d", r, i, (int)n);
            }
        free(rows[r]);
        free(halo[r]);
    }
}

static void check(const char *source, uint32_t head_parts) {
    fcp_plan *plan = plan_of(source);
    const fcp_recurrent layers[] = {
        {.kind = FCP_HALO, .times = 3, .before = 3, .channels = 64},
        {.kind = FCP_HALO, .times = 1, .before = 40, .after = 200, .channels = 64},
        {.kind = FCP_SCAN, .times = 3, .heads = head_parts, .rows = 16, .columns = 8, .decay = FCP_DECAY_VECTOR},
        {.kind = FCP_SCAN, .times = 1, .heads = 4, .rows = 16, .columns = 8, .decay = FCP_DECAY_MATRIX, .reverse = 1},
        {.kind = FCP_SCAN, .times = 1, .heads = 4, .rows = 8, .columns = 8, .parts = 4, .shape = FCP_SCAN_CHAIN},
        {.kind = FCP_SCAN, .times = 1, .heads = 4, .rows = 8, .columns = 8, .parts = 1, .shape = FCP_SCAN_TREE},
        {.kind = FCP_SCAN, .times = 1, .heads = 4, .rows = 8, .columns = 8, .parts = 2, .shape = FCP_SCAN_NODES},
        {.kind = FCP_SCAN, .times = 1, .heads = 4, .rows = 8, .columns = 8, .parts = 1, .shape = FCP_SCAN_GATHER},
    };
    enum { LAYERS = sizeof layers / sizeof *layers };
    recurrent_give(plan, layers, LAYERS);
    known k = know(plan);
    for (uint32_t i = 0; i < LAYERS; i++) {
        cr_expect_geq(plan->recurrent[i].rounds[0], plan->recurrent[i].bound[0]);
        if (layers[i].kind == FCP_HALO) run_halo(&k, i);
        else
            for (int pass = 0; pass < FCP_PASSES; pass++) run_scan(&k, i, (fcp_pass)pass);
    }
    forget(&k);
    fcp_plan_free(plan);
}

Test(recurrent_plans, placements) {
    static const char *const plans[] = {
        "layout = contiguous; strategy = cad",
        "layout = zigzag; strategy = zigzag",
        "strategy = fcp; block = 128",
        "strategy = dcp; block = 128",
        "layout = zigzag(group = 2); strategy = groups",
        "strategy = ring",
    };
    static const char *const clusters[] = {"gpus = 4", "nodes = 3; gpus = 2", "gpus = 1", "nodes = 4; gpus = 1"};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++)
        for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
            char text[512];
            if (strstr(plans[i], "group = 2") && c == 2) continue;
            snprintf(
                text, sizeof text,
                "model { heads = 8; head_dim = 16 }\ncluster { %s }\nbatch { lengths = [1000, 3, 700, 1, 0, 2500, 64 "
                "x 5] }\nplan { mask = causal; passes = forward, backward; %s }\n",
                clusters[c], plans[i]);
            check(text, 8);
        }
}

Test(recurrent_plans, documents) {
    check("model { heads = 8; head_dim = 16 }\ncluster { nodes = 2; gpus = 3 }\n"
          "batch { lengths = [600, 60]; field doc = [0 x 100, 1 x 2, 2 x 498, 0 x 60]; documents = doc }\n"
          "plan { mask = causal_document(d = doc); passes = forward, backward; layout = zigzag; strategy = zigzag }\n",
          8);
}
