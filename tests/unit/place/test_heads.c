/* test_heads.c: tests ulysses and upipe, alone and with a ring between groups: which rank computes which heads in which
 * phase, how many bytes move (compared with closed forms), how much memory is needed, and how keys go round the ring.
 * tests/oracle runs such plans. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "compiler/place/heads/heads.h"
#include "runtime/host/host.h"
#include "tests/support/judge_plan.h"
#include "tests/support/plan_of.h"
#include "tests/support/planned.h"

/* --- which heads -------------------------------------------------------------------------------------------------- */

/* For every shape: each lane has one range in each phase. Lanes that read the same KV heads do so in phases that follow
 * each other, so these heads arrive once. */
static void check_division(uint32_t heads, uint32_t kv_heads, uint32_t group, uint32_t together) {
    const uint32_t each = together / group, phases = heads / together;
    const heads_shape s = heads_shape_of(heads, kv_heads, each);
    const uint32_t parts = kv_heads / s.range_kv, subs = heads / kv_heads / s.range_sub;
    cr_assert(s.range_kv * s.range_sub == each && kv_heads % s.range_kv == 0 && heads / kv_heads % s.range_sub == 0,
              "%u:%u heads, %u each", heads, kv_heads, each);
    for (uint32_t less = 1; less < s.range_kv; less++) /* it is the least number of KV heads */
        cr_assert(each % less || kv_heads % less || heads / kv_heads % (each / less));
    uint8_t *taken = calloc(group, phases);
    uint32_t *part_of = malloc(sizeof *part_of * group * phases);
    for (uint32_t kv = 0; kv < parts; kv++)
        for (uint32_t sub = 0; sub < subs; sub++) {
            uint32_t lane, phase;
            heads_divide(parts, subs, group, kv, sub, &lane, &phase);
            cr_assert(lane < group && phase < phases && !taken[lane * phases + phase]++, "%u:%u heads on %u, %u", heads,
                      kv_heads, group, together);
            part_of[lane * phases + phase] = kv;
        }
    for (uint32_t lane = 0; lane < group; lane++)
        for (uint32_t i = 0; i < phases; i++)
            for (uint32_t j = i + 1; j < phases; j++)
                if (part_of[lane * phases + i] == part_of[lane * phases + j])
                    cr_assert_eq(part_of[lane * phases + i], part_of[lane * phases + j - 1]);
    free(taken), free(part_of);
}

Test(heads, every_shape_is_divided) {
    uint32_t shapes = 0;
    for (uint32_t heads = 1; heads <= 64; heads++)
        for (uint32_t kv = 1; kv <= heads; kv++)
            for (uint32_t group = 1; group <= heads; group++)
                for (uint32_t together = group; together <= heads; together += group)
                    if (heads % kv == 0 && heads % together == 0) check_division(heads, kv, group, together), shapes++;
    cr_assert_gt(shapes, 3000);
}

/* The order of the paper: query heads 0 4 8 12, then 1 5 9 13. */
Test(heads, the_order_of_sub_heads) {
    const heads_shape s = heads_shape_of(16, 4, 1);
    for (uint32_t h = 0; h < 16; h++) {
        uint32_t lane, phase;
        heads_divide(4 / s.range_kv, 4 / s.range_sub, 4, h / 4, h % 4, &lane, &phase);
        cr_expect_eq(lane, h / 4);
        cr_expect_eq(phase, h % 4);
    }
}

/* What a model that projects phase by phase is told: the order of the paper, and whose K and V. */
static fcp_code phases_of(uint32_t heads, uint32_t kv_heads, uint32_t ranks, const char *plan, fcpc_phases *out,
                          uint32_t *order, uint32_t *kv, fcp_error *err) {
    char text[400];
    fcpc_program *program = NULL;
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u }\ncluster { gpus = %u }\n"
             "mask by_head = causal and q - k < 100 * (h + 1)\nplan { %s }\n",
             heads, kv_heads, ranks, plan);
    cr_assert_eq(fcpc_parse_text(NULL, text, strlen(text), NULL, NULL, &program), FCP_OK, "%s", text);
    const fcp_code code = fcpc_program_phases(program, out, order, kv, err);
    fcpc_program_free(program);
    return code;
}

Test(heads, the_phases_of_a_program) {
    static const struct {
        uint32_t heads, kv_heads, ranks, together;
        fcpc_phases is;
        uint32_t first[8], second[8], kv[4];
    } all[] = {{16, 4, 4, 4, {4, 4, 4, 4}, {0, 4, 8, 12}, {1, 5, 9, 13}, {0, 1, 2, 3}},
               {8, 8, 4, 4, {2, 4, 4, 1}, {0, 1, 2, 3}, {4, 5, 6, 7}, {0, 1, 2, 3}},
               {32, 8, 2, 2, {16, 2, 2, 4}, {0, 4}, {1, 5}, {0, 1, 2, 3}},
               {16, 4, 4, 8, {2, 8, 4, 2}, {0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}, {0, 1, 2, 3}},
               {8, 2, 4, 4, {2, 4, 2, 2}, {0, 1, 4, 5}, {2, 3, 6, 7}, {0, 1}}};
    uint32_t order[32], kv[32];
    fcpc_phases p;
    fcp_error err;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char plan[80];
        snprintf(plan, sizeof plan, "mask = causal; strategy = upipe(heads = %u)", all[i].together);
        cr_assert_eq(phases_of(all[i].heads, all[i].kv_heads, all[i].ranks, plan, &p, order, kv, &err), FCP_OK);
        cr_expect(!memcmp(&p, &all[i].is, sizeof p), "case %zu: %u phases of %u:%u, %u share", i, p.count, p.heads,
                  p.kv_heads, p.sharing);
        cr_expect(!memcmp(order, all[i].first, p.heads * sizeof *order), "case %zu", i);
        cr_expect(!memcmp(order + p.heads, all[i].second, p.heads * sizeof *order), "case %zu", i);
        cr_expect(!memcmp(kv, all[i].kv, (all[i].kv_heads < 4 ? all[i].kv_heads : 4) * sizeof *kv), "case %zu", i);
    }
    static const struct {
        const char *plan;
        fcp_code code;
    } wrong[] = {{"mask = causal; strategy = ulysses", FCP_E_ARGUMENT},
                 {"mask = by_head; strategy = upipe", FCP_E_UNSUPPORTED},
                 {"mask = causal; score = alibi; strategy = upipe", FCP_E_UNSUPPORTED},
                 {"mask = causal; sink = [0.0, 1.0, 0.0, 0.0]; strategy = upipe", FCP_E_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        cr_expect_eq(phases_of(4, 4, 2, wrong[i].plan, &p, order, kv, &err), wrong[i].code, "%s", wrong[i].plan);
}

/* --- what moves ----------------------------------------------------------------------------------------------------
 * */

enum { TOKENS = 9600, DIM = 32 };

/* The values of heads: a tensor of their own with as many numbers as keys, or with fewer; or a part of the keys. */
static const struct { uint32_t dim; bool in_keys; } widths[] = {{DIM, false}, {16, false}, {24, true}};

static fcp_plan *equal_plan(uint32_t heads, uint32_t kv_heads, uint32_t ranks, int width, const char *by) {
    char text[600];
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u; head_dim = %d; value_dim = %u; values = %s; dtype = bf16 }\n"
             "cluster { gpus = %u }\n"
             "batch { lengths = [%d] }\nplan { mask = causal; block = 128; layout = contiguous; strategy = %s }\n",
             heads, kv_heads, DIM, widths[width].dim, widths[width].in_keys ? "keys" : "own", ranks, TOKENS, by);
    return plan_of(text);
}

/* Bytes that the ranks send of a class in the forward pass. */
static uint64_t sent_of(const fcp_plan *plan, fcp_class cls, uint32_t rank) {
    uint64_t tokens = 0;
    const fcp_stream *s = fcp_stream_of(plan, FCP_FORWARD, rank, FCP_COMM);
    for (uint32_t i = 0; i < s->count; i++) {
        const fcp_instr *x = &plan->instrs[s->first + i];
        for (uint32_t j = 0; x->op == FCP_OP_LAUNCH && j < x->b; j++) {
            const fcp_transfer *t = &plan->transfers[x->a + j];
            if (t->dir == FCP_SEND && t->cls == cls) tokens += t->tokens;
        }
    }
    return tokens * fcp_class_bytes(plan->problem, cls, FCP_FORWARD);
}

/* Each case is (heads, kv_heads, C) with C ranks. There are at least as many KV heads as ranks, so each KV head is sent
 * once, and so is its gradient. A rank keeps one C-th of the heads. It sends the other (C - 1) / C of its Q, K, V, O
 * and LSE, and backward as much of the inputs and gradients. No schedule has fewer rounds. */
Test(heads, bytes_are_the_closed_form) {
    static const uint32_t shapes[][3] = {{32, 8, 2}, {64, 8, 4}, {64, 16, 8}, {64, 8, 8}, {64, 64, 8},
                                         {16, 4, 4}, {12, 6, 6}};
    for (size_t i = 0; i < 3 * (sizeof shapes / sizeof *shapes); i++) {
        const uint32_t *shape = shapes[i / 3], h = shape[0], kv = shape[1], c = shape[2];
        const uint64_t value = widths[i % 3].dim, pair = widths[i % 3].in_keys ? DIM : DIM + value;
        for (uint32_t u = c; u <= h; u += c) {
            char by[60];
            if (h % u) continue;
            snprintf(by, sizeof by, u == h ? "ulysses" : "upipe(heads = %u)", u);
            fcp_plan *plan = equal_plan(h, kv, c, (int)i % 3, by);
            const uint64_t own = TOKENS / c, away = c - 1; /* each of the others has 1 / C of the heads */
            const uint64_t q = own * h * DIM * 2 / c * away, o = own * h * value * 2 / c * away;
            const uint64_t keys = own * kv * pair * 2 / c * away, row = own * h * 4 / c * away, lse = 2 * row;
            /* backward: Q, dO, LSE and delta there, dQ back; K and V there again, and fp32 dK and dV back */
            const uint64_t back = q + o + lse + row + q + keys + 2 * keys;
            for (uint32_t r = 0; r < c; r++) {
                cr_expect_eq(sent_of(plan, FCP_Q, r), q, "%u:%u on %u, %s", h, kv, c, by);
                cr_expect_eq(sent_of(plan, FCP_KV, r), keys, "%u:%u on %u, %s", h, kv, c, by);
                cr_expect_eq(sent_of(plan, FCP_O, r), o + lse, "%u:%u on %u, %s", h, kv, c, by);
            }
            const fcp_summary *s = plan->summary;
            cr_expect_eq(s->send_max, q + o + keys + lse);
            cr_expect_eq(s->recv_max, q + o + keys + lse);
            cr_expect_eq(s->bytes_total, c * (q + o + keys + lse));
            cr_expect_eq(s->backward_bytes_total, c * back, "%u:%u on %u, %s", h, kv, c, by);
            cr_expect_eq(s->rounds + s->rounds_dependent, s->rounds_bound);
            cr_expect_eq(s->backward_rounds + s->backward_rounds_dependent, s->backward_rounds_bound);
            cr_expect_eq(s->pairs_max_rank * c, s->pairs);
            cr_expect_eq(s->state_bytes, 0);
            fcp_plan_free(plan);
        }
    }
}

/* Delta of a phase is C - 1 for each unit of a block. */
Test(heads, rounds_are_one_less_than_the_ranks_for_each_unit) {
    fcp_plan *plan = equal_plan(20, 20, 5, 0, "ulysses");
    const uint32_t tokens = TOKENS / 5;
    uint64_t rounds = 0;
    const fcp_class classes[] = {FCP_KV, FCP_Q, FCP_O};
    for (int i = 0; i < 3; i++) {
        uint32_t unit = fcp_unit_tokens(plan->problem, classes[i], FCP_LOCAL);
        rounds += (tokens + unit - 1) / unit * (5 - 1);
    }
    cr_expect_eq(plan->summary->rounds_dependent, rounds);
    fcp_plan_free(plan);
}

/* Fewer KV heads than ranks: each goes to C / kv_heads ranks, and as many partial gradients come back. */
Test(heads, shared_keys_go_to_several_ranks) {
    fcp_plan *plan = equal_plan(16, 2, 8, 0, "ulysses");
    for (uint32_t r = 0; r < 8; r++) /* 4 lanes of each KV head, but for the rank itself */
        cr_expect_eq(sent_of(plan, FCP_KV, r), (uint64_t)TOKENS / 8 * DIM * 2 * 2 * (2 * 4 - 1));
    const uint64_t dkv = (uint64_t)TOKENS * DIM * 2 * 4 * (2 * 4 - 1);
    const uint64_t kv = (uint64_t)TOKENS * DIM * 2 * 2 * (2 * 4 - 1);
    cr_expect_eq(plan->summary->backward_bytes_total - plan->summary->backward_bytes_moved, kv + dkv);
    fcp_plan_free(plan);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* Bytes of a rank's transient slots in the forward pass. */
static uint64_t slot_bytes(uint32_t heads, uint32_t kv_heads, const char *by) {
    char text[600];
    planned x;
    snprintf(text, sizeof text,
             "model { heads = %u; kv_heads = %u; head_dim = 128; dtype = bf16 }\ncluster { gpus = 8 }\n"
             "batch { lengths = [%d] }\nplan { mask = causal; block = 128; layout = contiguous; strategy = %s }\n",
             heads, kv_heads, TOKENS, by);
    plan_passes(&x, text, 0);
    fcp_problem facts;
    problem_facts(&x.at, &facts);
    const fcp_class classes[] = {FCP_KV, FCP_Q, FCP_STATE, FCP_O};
    uint64_t most = 0;
    for (uint32_t r = 0; r < 8; r++) {
        uint64_t sum = 0;
        for (int i = 0; i < 4; i++)
            sum += (uint64_t)x.slots.count[classes[i]][r] *
                   (classes[i] == FCP_KV ? facts.max_block : facts.max_q_block) *
                   fcp_class_bytes(&facts, classes[i], FCP_FORWARD);
        if (sum > most) most = sum;
    }
    planned_free(&x);
    return most;
}

/* upipe needs less memory than ulysses, because slots hold the heads of one phase only. 64 heads on 8 ranks:
 *   64 KV heads  upipe(heads = U) needs U / 64 of the memory of ulysses
 *   8 KV heads   one on each rank. In heads, the slots hold
 *                    ulysses             2 of K and V, 8 of Q, 8 of O, 8 of LSE
 *                    upipe(heads = 8)    2 of K and V, 1 of Q, 1 of O, 1 of LSE
 *                A head of LSE takes 1/32 of a head of Q. So upipe needs 77.9 % less. */
Test(heads, phases_share_their_memory) {
    const uint64_t all = slot_bytes(64, 64, "ulysses"), grouped = slot_bytes(64, 8, "ulysses");
    for (uint32_t u = 8; u <= 64; u *= 2) {
        char by[40];
        snprintf(by, sizeof by, "upipe(heads = %u)", u);
        cr_expect_eq(slot_bytes(64, 64, by) * 64, all * u, "%s", by);
    }
    const uint64_t one = slot_bytes(64, 8, "upipe(heads = 8)");
    const uint64_t head = (uint64_t)TOKENS / 8 * 7 * 128 * 2, lse = (uint64_t)TOKENS / 8 * 7 * 8;
    cr_expect_eq(grouped, 18 * head + 8 * lse);
    cr_expect_eq(one, 4 * head + lse);
    cr_expect_eq((uint64_t)((1 - (double)one / (double)grouped) * 1000 + 0.5), 779);
    /* more buffers hold the slots of more phases */
    cr_expect_eq(slot_bytes(64, 64, "upipe(heads = 8, buffers = 2)") * 8, all * 2);
}

/* --- the ring ----------------------------------------------------------------------------------------------------- */

/* Every block of keys crosses to each other node once, from a rank to the one with its place in the next node, and
 * comes to every lane that reads it. */
Test(heads, keys_go_round_the_ring) {
    static const char *const programs[] = {
        "model { heads = 8; kv_heads = 8; head_dim = 16 }\ncluster { nodes = 4; gpus = 4; fabric = rail }\n"
        "batch { lengths = [6000] }\nplan { mask = full; block = 128; strategy = ulysses + ring }\n",
        "model { heads = 8; kv_heads = 2; head_dim = 16 }\ncluster { nodes = 3; gpus = 4 }\n"
        "batch { lengths = [3000, 500, 7] }\nplan { mask = causal; block = 128; strategy = upipe(heads = 4) + ring }\n",
        "model { heads = 6; kv_heads = 3; head_dim = 16 }\ncluster { nodes = 2; gpus = 6 }\n"
        "batch { lengths = [1000, 500, 7] }\n"
        "plan { mask = causal; block = 128; strategy = ulysses(inside = 3) + ring }\n"};
    for (int i = 0; i < 3; i++) {
        planned x;
        plan_passes(&x, programs[i], 0);
        const uint32_t group = x.at.sharing->group, groups = x.p.ranks / group;
        for (uint32_t f = 0; f < x.t.count; f++) {
            const hop *h = &x.t.hops[f];
            const bool first = h->parent == FCP_NONE && h->src / group == h->dst / group;
            const bool between = h->src / group != h->dst / group && h->src % group == h->dst % group;
            cr_expect(first || (between && h->cls == FCP_KV), "%d: hop %u from %u to %u", i, f, h->src, h->dst);
            for (uint32_t g = f + 1; g < x.t.keys && h->cls == FCP_KV; g++) {
                const hop *o = &x.t.hops[g];
                cr_expect(o->block != h->block || o->dst != h->dst, "%d: block %u twice to %u", i, h->block, h->dst);
                cr_expect(o->block != h->block || o->src != h->src || !between || o->src / group == o->dst / group,
                          "%d: rank %u sends block %u to two groups", i, h->src, h->block);
            }
        }
        if (i == 0) /* all see all */
            for (uint32_t b = 0; b < x.p.block_count; b++) {
                uint32_t between = 0;
                for (uint32_t f = 0; f < x.t.keys; f++)
                    between += x.t.hops[f].block == b && x.t.hops[f].src / group != x.t.hops[f].dst / group;
                cr_expect_eq(between, groups - 1);
            }
        planned_free(&x);
    }
}

/* Where all see all: inside a group every token's Q, O, K and V go to the ranks that have the heads, and K and V of
 * every head cross once to each other node. Backward the same, and gradients by the same ways. */
Test(heads, bytes_of_a_ring_are_the_closed_form) {
    static const struct {
        uint32_t heads, kv, gpus, nodes;
        const char *by;
    } cases[] = {{64, 8, 8, 4, "ulysses(inside = node) + ring"}, {32, 8, 2, 3, "ulysses(inside = node) + ring"},
                 {64, 8, 4, 5, "ulysses + ring"},                {64, 16, 8, 2, "upipe(heads = 16) + ring"},
                 {64, 8, 8, 4, "upipe(heads = 8) + ring"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const uint64_t h = cases[i].heads, kv = cases[i].kv, gpus = cases[i].gpus, nodes = cases[i].nodes;
        const uint64_t tokens = 512 * gpus * nodes, away = tokens / gpus * (gpus - 1);
        const uint64_t q = away * h * DIM * 2, row = away * h * 4, net = tokens * (nodes - 1) * kv * DIM * 2 * 2,
                       keys = away * kv * DIM * 2 * 2 + net;
        char text[600];
        snprintf(text, sizeof text,
                 "model { heads = %" PRIu64 "; kv_heads = %" PRIu64 "; head_dim = %d; dtype = bf16 }\n"
                 "cluster { nodes = %" PRIu64 "; gpus = %" PRIu64 " }\nbatch { lengths = [%" PRIu64 "] }\n"
                 "plan { mask = full; block = 128; layout = contiguous; strategy = %s }\n",
                 h, kv, DIM, nodes, gpus, tokens, cases[i].by);
        fcp_plan *plan = plan_of(text);
        const fcp_summary *s = plan->summary;
        cr_expect_eq(s->bytes_total, 2 * q + 2 * row + keys, "%s", text);
        cr_expect_eq(s->bytes_inter_node, net, "%s", text);
        cr_expect_eq(s->backward_bytes_total, 3 * q + 3 * row + 3 * keys, "%s", text);
        cr_expect_eq(s->backward_bytes_inter_node, 3 * net, "%s", text);
        fcp_plan_free(plan);
    }
}

/* --- what may be odd ---------------------------------------------------------------------------------------------- */

/* Batches that leave ranks empty; heads of a rank that are not neighbours; masks, scores and sinks that differ by
 * head. */
Test(heads, odd_programs_run) {
    static const char *const programs[] = {
        "model { heads = 4 }\ncluster { gpus = 4 }\nbatch { lengths = [1] }\nplan { mask = full; strategy = ulysses",
        "model { heads = 8; kv_heads = 2 }\ncluster { gpus = 4 }\nbatch { lengths = [3, 1, 200] }\n"
        "plan { mask = causal; strategy = upipe",
        "model { heads = 12; kv_heads = 6 }\ncluster { gpus = 4 }\nbatch { lengths = [500, 77] }\n"
        "mask by_head = k <= q and q - k < 40 + 50 * h\n"
        "plan { mask = by_head; score = alibi; sink = [0.5 x 5, -1.0 x 7]; strategy = ulysses",
        "model { heads = 12; kv_heads = 4 }\ncluster { nodes = 2; gpus = 2 }\nbatch { lengths = [300, 77:200] }\n"
        "mask by_head = if h % 3 == 1 then k <= q else q - k < 100\n"
        "plan { mask = by_head; layout = zigzag; strategy = upipe(heads = 4) + ring",
        "model { heads = 6; kv_heads = 2 }\ncluster { gpus = 6 }\n"
        "batch { lengths = [500] on 0..2, [70, 3] on 1..6 }\nplan { mask = causal; strategy = ulysses",
        "model { heads = 1 }\ncluster { gpus = 1 }\nbatch { lengths = [300] }\nplan { mask = causal; strategy = upipe",
        "model { heads = 4 }\ncluster { gpus = 4 }\nbatch { lengths = [300] }\nmask none = k < 0\n"
        "plan { mask = none; strategy = ulysses"};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        char text[700];
        const char *end = strchr(programs[i], '}');
        snprintf(text, sizeof text, "%.*s; head_dim = 16; dtype = fp32 %s; block = 128 }\n", (int)(end - programs[i]),
                 programs[i], end);
        fcp_plan *plan = plan_of(text);
        judge_plan(plan, &fcp_backend_host, 7 + i, true, text);
        fcp_plan_free(plan);
    }
}
