/* test_problem.c: tests blocks and tiles: every token lies in one block, remainders are packed best fit
 * decreasing, and pairs are those of brute force. */
#include <sys/resource.h>

#include "tests/support/amount.h"
#include "tests/support/cover.h"
#include "tests/support/plan_of.h"
#include "tests/support/planned.h"
#include "tests/support/sanitized.h"

Test(problem, samples) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i++) {
        planned x;
        plan_passes(&x, sample_program(i, text, sizeof text), i);
        check_cover(&x.p);
        uint64_t pairs = 0;
        int64_t *scratch = calloc(mc_row_scratch(x.program->mask), sizeof *scratch);
        uint8_t row[MC_ROW];
        bool counted = x.p.tokens < 20000 && i % amount(4, 1) == 0; /* every pair by itself */
        for (uint32_t s = 0; s < x.p.sequences && counted; s++) {
            const mc_env env = problem_env(&x.p, s);
            cr_assert_eq(env.q_first, x.program->align == FCP_TOP_LEFT ? 0 : env.n - env.queries);
            for (uint64_t n = x.p.lengths[s], q = 0; q < x.p.queries[s]; q++)
                for (uint64_t k = 0; k < n; k += MC_ROW) {
                    uint32_t width = n - k < MC_ROW ? (uint32_t)(n - k) : MC_ROW;
                    mc_eval_row(x.program->mask, &env, env.q_first + (int64_t)q, (int64_t)k, width, 0, scratch, row);
                    for (uint32_t at = 0; at < width; at++) pairs += row[at];
                }
        }
        free(scratch);
        if (counted) cr_assert_eq(pairs, x.p.pairs, "%s", text);
        uint64_t work = 0;
        for (uint32_t b = 0; b < x.p.block_count; b++) {
            cr_assert_leq(x.p.blocks[b].tokens, x.p.block);
            cr_assert(x.p.blocks[b].holds & FCP_HOLDS_Q || x.p.tile_start[b] == x.p.tile_start[b + 1]);
            for (uint32_t t = x.p.tile_start[b]; t < x.p.tile_start[b + 1]; t++) {
                cr_assert(x.p.tile_pairs[t] > 0 && x.p.blocks[x.p.tile_k[t]].holds & FCP_HOLDS_KV);
                cr_assert(t == x.p.tile_start[b] || x.p.tile_k[t] > x.p.tile_k[t - 1]);
                work += x.p.tile_pairs[t];
            }
        }
        cr_assert_eq(work, x.p.pairs);
        planned_free(&x);
    }
}

/* The remainders' bins, found by looking at all bins each time: of the fullest bins with room, the newest. */
Test(problem, best_fit_decreasing) {
    uint64_t state = 7;
    for (int round = 0; round < 40; round++) {
        char text[8192] = "model { heads = 1 }\nbatch { lengths = [";
        uint32_t n = 1 + (uint32_t)(state >> 33) % 120, length[128], order[128], space[128], bins = 0, bin_of[128];
        for (uint32_t i = 0; i < n; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            length[i] = 1 + (uint32_t)(state >> 33) % 511;
            order[i] = i;
            sprintf(text + strlen(text), "%s%u", i ? ", " : "", length[i]);
        }
        strcat(text, "] }\nplan { mask = causal; block = 512 }\n");
        for (uint32_t i = 1; i < n; i++)
            for (uint32_t j = i; j > 0 && length[order[j]] > length[order[j - 1]]; j--) {
                uint32_t t = order[j];
                order[j] = order[j - 1];
                order[j - 1] = t;
            }
        uint32_t touched[128], clock = 0;
        for (uint32_t i = 0; i < n; i++) {
            uint32_t best = FCP_NONE;
            for (uint32_t b = 0; b < bins; b++)
                if (space[b] >= length[order[i]] && (best == FCP_NONE || space[b] < space[best] ||
                                                     (space[b] == space[best] && touched[b] > touched[best])))
                    best = b;
            if (best == FCP_NONE) space[best = bins++] = 512;
            space[best] -= length[order[i]];
            touched[best] = ++clock;
            bin_of[order[i]] = best;
        }
        planned x;
        plan_passes(&x, text, 1);
        check_cover(&x.p);
        cr_assert_eq(x.p.block_count, bins);
        for (uint32_t i = 0; i < n; i++)
            cr_assert_eq(x.p.pieces[x.p.sequence_piece[0][x.p.piece_start[0][i]]].block, bin_of[i]);
        planned_free(&x);
    }
}

Test(problem, even_cuts) {
    for (int zigzag = 0; zigzag < 2; zigzag++) {
        char text[512];
        snprintf(
            text, sizeof text,
            "cluster { gpus = 3 }\nbatch { lengths = [1000, 7, 1, 4001] }\nplan { mask = causal; strategy = %s }\n",
            zigzag ? "zigzag" : "ring");
        planned x;
        plan_passes(&x, text, 1);
        check_cover(&x.p);
        uint32_t parts = zigzag ? 6 : 3;
        for (uint32_t i = 0; i < x.p.piece_count; i++) {
            const fcp_piece *piece = &x.p.pieces[i];
            uint64_t n = x.p.lengths[piece->sequence], c = x.p.chunk[piece->block];
            cr_assert_eq(piece->start, n * c / parts);
            cr_assert_eq(piece->start + piece->length, n * (c + 1) / parts);
        }
        planned_free(&x);
    }
}

/* Ranges of heads, token by token: each (query, query head) and each (key, KV head) is in one block, and each (query,
 * key, query head) that the mask allows in one tile's part. */
Test(problem, ranges_of_heads) {
    static const char *const masks[] = {"causal", "window(w = 70)", "full"};
    unsigned several = 0, shared = 0;
    for (unsigned i = 0; i < 60; i++) {
        enum { HEADS = 12, KV_HEADS = 6, TOKENS = 300 };
        char text[512];
        snprintf(text, sizeof text, "model { heads = %u; kv_heads = %u }\nbatch { lengths = [180, 120] }\n"
                 "plan { mask = %s; block = 64 }\n", HEADS, KV_HEADS, masks[i % 3]);
        planned x;
        const scatter s = scatter_new(i);
        plan_to_placement(&x, text, &s.strategy);
        const problem *p = &x.p;
        const uint32_t per = HEADS / KV_HEADS, base[2] = {0, 180};
        uint8_t (*query)[HEADS] = calloc(TOKENS, HEADS), (*key)[KV_HEADS] = calloc(TOKENS, KV_HEADS);
        /* per (query, key): heads of its parts, as bits */
        uint32_t *met = calloc((size_t)TOKENS * TOKENS, sizeof *met);
        uint64_t pairs = 0;
        for (uint32_t b = 0; b < p->block_count; b++) {
            const fcp_heads *h = &p->heads[p->blocks[b].heads];
            for (uint32_t c = p->blocks[b].first_piece; c < p->blocks[b].first_piece + p->blocks[b].pieces; c++)
                for (uint32_t t = 0; t < p->pieces[c].length; t++) {
                    uint64_t token = base[p->pieces[c].sequence] + p->pieces[c].start + t;
                    cr_assert_eq(p->pieces[c].block, b);
                    for (uint32_t k = h->kv_first; k < h->kv_first + h->kv_count; k++) {
                        if (problem_holds(p, b, FCP_KEYS)) cr_assert(!key[token][k]++ && h->sub_count == per);
                        for (uint32_t j = h->sub_first;
                             problem_holds(p, b, FCP_QUERIES) && j < h->sub_first + h->sub_count; j++)
                            cr_assert(!query[token][k * per + j]++);
                    }
                }
        }
        for (uint32_t t = 0; t < TOKENS; t++) {
            for (uint32_t h = 0; h < HEADS; h++) cr_assert(query[t][h]);
            for (uint32_t h = 0; h < KV_HEADS; h++) cr_assert(key[t][h]);
        }
        for (uint32_t t = 0; t < p->tile_count; t++) {
            const fcp_heads *h = &p->heads[p->blocks[p->tile_q[t]].heads];
            cr_assert(t >= p->tile_start[p->tile_q[t]] && t < p->tile_start[p->tile_q[t] + 1]);
            cr_assert_eq(h->kv_first, p->heads[p->blocks[p->tile_k[t]].heads].kv_first);
            pairs += p->tile_pairs[t];
            uint32_t bits = 0;
            for (uint32_t k = h->kv_first; k < h->kv_first + h->kv_count; k++)
                for (uint32_t j = h->sub_first; j < h->sub_first + h->sub_count; j++) bits |= 1u << (k * per + j);
            for (uint32_t c = p->tile_part[t]; c < p->tile_part[t + 1]; c++) {
                const fcp_piece *q = &p->pieces[p->parts[c].q_piece], *k = &p->pieces[p->parts[c].k_piece];
                cr_assert(q->block == p->tile_q[t] && k->block == p->tile_k[t] && q->sequence == k->sequence);
                for (uint32_t a = 0; a < q->length; a++)
                    for (uint32_t d = 0; d < k->length; d++) {
                        uint32_t *at =
                            &met[(base[q->sequence] + q->start + a) * TOKENS + base[k->sequence] + k->start + d];
                        cr_assert_eq(*at & bits, 0);
                        *at |= bits;
                    }
            }
        }
        uint32_t ranges = KV_HEADS / p->range_kv * (per / p->range_sub);
        uint64_t allowed = 0;
        for (uint32_t n = 0; n < 2; n++)
            for (uint32_t q = 0; q < p->lengths[n]; q++)
                for (uint32_t k = 0; k < p->lengths[n]; k++) {
                    bool sees = i % 3 == 0 ? k <= q : i % 3 == 1 ? k <= q && q - k < 70 : true;
                    if (sees) cr_assert_eq(met[(base[n] + q) * TOKENS + base[n] + k], (1u << HEADS) - 1);
                    allowed += sees;
                }
        cr_assert_eq(pairs, allowed * ranges);
        cr_assert_eq(p->pairs, pairs);
        several += ranges > 1;
        shared += p->range_sub < per;
        free(query);
        free(key);
        free(met);
        planned_free(&x);
    }
    cr_assert(several && shared);
}

/* 2048 sequences in 512 pieces each leave 269 million pairs of pieces. Where so many do not fit, that is said before
 * memory is taken for them; where pieces are few, nothing is counted. Sanitizers need memory for themselves. */
Test(problem, what_memory_cannot_hold_is_refused) {
    static const char source[] = "model { heads = 4; head_dim = 16 }\ncluster { nodes = 32; gpus = 8 }\n"
                                 "batch { lengths = [4096 x 2048] }\n"
                                 "plan { mask = causal; block = 2K; strategy = zigzag; layout = planned }";
    struct rlimit limit;
    fcp_plan *plan;
    char *said;
    if (SANITIZED) return;
    getrlimit(RLIMIT_AS, &limit);
    const struct rlimit little = {UINT64_C(3) << 30, limit.rlim_max};
    cr_assert_eq(setrlimit(RLIMIT_AS, &little), 0);
    cr_expect_eq(plan_try("test.fcp", source, NULL, 0, &plan, &said), FCP_E_NO_MEMORY);
    cr_expect_null(plan);
    cr_expect(strstr(said, "pairs of the 1048576 pieces into which the batch is cut"), "%s", said);
    free(said);
    const char *const blocks[] = {"plan.strategy=fcp"};
    cr_expect_eq(plan_try("test.fcp", source, blocks, 1, &plan, &said), FCP_OK, "%s", said);
    free(said);
    fcp_plan_free(plan);
    cr_assert_eq(setrlimit(RLIMIT_AS, &limit), 0);
}

/* Where answers are kept, a second object answers for the later half of the work of a large batch, and for nothing of a
 * small one or of a mask that reads a field. */
Test(problem, sequences_of_the_second_object) {
    enum { SEQUENCES = 300, HALF = SEQUENCES / 2 };
    static const struct {
        uint64_t first, others; /* tokens of the first sequence, and of each of the others */
        const char *mask;
        uint32_t begins; /* the sequence with which the second object begins, or one beside it */
    } cases[] = {
        {1000, 1000, "causal", HALF},
        {1000, 1000, "causal and h < 2", HALF},
        {1000, 1000, "causal and k < n / 2", HALF},
        {200000, 1000, "causal", 1},      /* the first one has most of the work */
        {1000, 800, "causal", SEQUENCES}, /* few tokens in all */
        {1000, 1000, "causal and k > number", SEQUENCES},
        {1000, 1000, "doc[q] == doc[k]", SEQUENCES},
        {1000, 1000, "causal and q - k < near[h]", SEQUENCES},
        {200000, 1000, "causal and q < doc[k]", SEQUENCES},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[512];
        uint64_t lengths[SEQUENCES];
        snprintf(text, sizeof text,
                 "model { heads = 4 }\nbatch { field number = given(over = sequences); field doc = given\n"
                 "field near = given(over = heads) }\nmask own = %s\nplan { mask = own }",
                 cases[i].mask);
        for (uint32_t s = 0; s < SEQUENCES; s++) lengths[s] = s ? cases[i].others : cases[i].first;
        fcpc_program *program = program_named("test.fcp", text);
        const problem p = {.program = program, .lengths = lengths, .queries = lengths, .sequences = SEQUENCES};
        const uint32_t begins = problem_second(&p), wanted = cases[i].begins;
        cr_expect(begins == wanted || (wanted < SEQUENCES && begins + 1 >= wanted && begins <= wanted + 1),
                  "case %zu: %u, not %u", i, begins, wanted);
        fcpc_program_free(program);
    }
}
