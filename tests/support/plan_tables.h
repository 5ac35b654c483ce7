/* plan_tables.h: plans whose tables a test can change: copies of plans, and a small one made by hand. */
#ifndef PLAN_TABLES_H
#define PLAN_TABLES_H
#include <stdlib.h>
#include <string.h>
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan_arrays.h"
#include "runtime/plan/plan_check.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/plan_index.h"
#include "runtime/plan/plan_summary.h"
#include "runtime/plan/recurrent.h"
#include "runtime/verify/verify.h"

/* Tables with room for more records, and the plan that shows them. */
typedef struct tables {
#define X(id, type, member)                                                                                            \
    type *member;                                                                                                      \
    uint64_t member##_count, member##_room;
    FCP_SECTIONS(X)
#undef X
    fcp_plan plan;
} tables;

static void tables_free(tables *t) {
#define X(id, type, member) free(t->member);
    FCP_SECTIONS(X)
#undef X
    free(t->plan.sequence_offsets);
    free(t->plan.array_starts);
    free(t->plan.rank_tokens);
    free(t->plan.home_starts);
    free(t->plan.home_blocks);
    free(t->plan.documents);
    free(t->plan.range_classes);
    memset(t, 0, sizeof *t);
}

/* Makes room for n more records. */
#define GROW(t, member, n)                                                                                             \
    do {                                                                                                               \
        if ((t)->member##_count + (n) > (t)->member##_room) {                                                          \
            (t)->member##_room = ((t)->member##_count + (n)) * 2;                                                      \
            (t)->member = realloc((t)->member, (t)->member##_room * sizeof *(t)->member);                              \
            if (!(t)->member) abort();                                                                                 \
        }                                                                                                              \
    } while (0)
#define PUSH(t, member, ...)                                                                                           \
    do {                                                                                                               \
        GROW(t, member, 1);                                                                                            \
        (t)->member[(t)->member##_count++] = (__VA_ARGS__);                                                            \
    } while (0)
/* Inserts a record before index `at`. */
#define INSERT(t, member, at, ...)                                                                                     \
    do {                                                                                                               \
        GROW(t, member, 1);                                                                                            \
        memmove((t)->member + (at) + 1, (t)->member + (at), ((t)->member##_count - (at)) * sizeof *(t)->member);       \
        (t)->member[at] = (__VA_ARGS__);                                                                               \
        (t)->member##_count++;                                                                                         \
    } while (0)

static inline void tables_copy(tables *t, const fcp_plan *plan) {
    memset(t, 0, sizeof *t);
#define X(id, type, member)                                                                                            \
    GROW(t, member, plan->member##_count + 1);                                                                         \
    if (plan->member##_count) memcpy(t->member, plan->member, plan->member##_count * sizeof *t->member);               \
    t->member##_count = plan->member##_count;
    FCP_SECTIONS(X)
#undef X
}

/* The tables as a plan, indexed. */
static fcp_plan *tables_plan(tables *t) {
#define X(id, type, member)                                                                                            \
    t->plan.member = t->member;                                                                                        \
    t->plan.member##_count = t->member##_count;
    FCP_SECTIONS(X)
#undef X
    if (fcp_plan_index(&t->plan, NULL)) abort();
    return &t->plan;
}

/* Check, then verify: the code of the first that fails. */
static inline fcp_code judge(tables *t, fcp_error *err) {
    fcp_plan *plan = tables_plan(t);
    fcp_code code = fcp_plan_check(plan, NULL, err);
    return code ? code : fcp_plan_verify(plan, NULL, NULL, err);
}

static fcp_instr *stream_instrs(const tables *t, int pass, uint32_t rank, int queue, uint32_t *count) {
    const fcp_stream *s = &t->streams[((uint64_t)pass * t->problem->ranks + rank) * FCP_QUEUES + queue];
    *count = s->count;
    return t->instrs + s->first;
}

/* Inserts an instruction at position `at` of a stream; waits of the other queue for later ones are raised by one. */
static inline void instr_insert(tables *t, int pass, uint32_t rank, int queue, uint32_t at, fcp_instr instr) {
    uint64_t stream = ((uint64_t)pass * t->problem->ranks + rank) * FCP_QUEUES + (uint64_t)queue;
    uint32_t first = t->streams[stream].first, n;
    INSERT(t, instrs, first + at, instr);
    t->streams[stream].count++;
    for (uint64_t s = stream + 1; s < t->streams_count; s++) t->streams[s].first++;
    fcp_instr *other = stream_instrs(t, pass, rank, !queue, &n);
    for (uint32_t i = 0; i < n; i++)
        if (other[i].op == FCP_OP_WAIT) {
            other[i].a += other[i].a > at;
            other[i].b += other[i].b > at;
        }
}

/* --- a plan by hand -------------------------------------------------------------------------------------------------
 *
 * Two ranks on two nodes. One sequence of 256 tokens, causal, two blocks of 128. Block b is at home on rank b.
 *
 *   tokens    block  home  the caller has them at rank
 *   0..64     0      0     0
 *   64..128   0      0     1
 *   128..192  1      1     1
 *   192..256  1      1     0
 *
 * So half of each block, one unit of 64, moves to its home, and its results move back. Rank 1's tile (1, 0) has the
 * queries of block 1 and the keys of block 0: for it, K and V of block 0 go from rank 0 to rank 1, in two units.
 */
enum { HAND_TOKENS = 256, HAND_BLOCK = 128, HAND_UNIT = 64 };

static void hand_instr(tables *t, uint32_t op, uint32_t stage, uint32_t a, uint32_t b, uint32_t c) {
    PUSH(t, instrs, (fcp_instr){.op = op, .stage = stage, .a = a, .b = b, .c = c});
}

static void hand_stream(tables *t, uint64_t first) {
    PUSH(t, streams, (fcp_stream){(uint32_t)first, (uint32_t)(t->instrs_count - first)});
}

static uint32_t hand_transfer(tables *t, int dir, int cls, int fabric, uint32_t peer, uint32_t block, uint32_t first,
                              uint32_t tokens, uint32_t slot) {
    PUSH(t, transfers,
         (fcp_transfer){.peer = peer, .block = block, .first = first, .tokens = tokens, .slot = slot, .cls = cls & 15u,
                        .fabric = fabric & 3u,
                        .dir = dir & 3u});
    return (uint32_t)t->transfers_count - 1;
}

/* Rank `r` of the hand plan, one pass: rounds 0: IN, 1 and 2: KV, then (backward) 3 and 4: dKV, then OUT. */
static void hand_rank(tables *t, int pass, uint32_t r) {
    uint32_t other = !r, at;
    bool back = pass == FCP_BACKWARD;
    uint32_t out_round = back ? 5 : 3, out_stage = back ? 3 : 2;
    uint64_t first = t->instrs_count;
    uint32_t copy_in = hand_transfer(t, FCP_SEND, FCP_IN, FCP_LOCAL, r, FCP_NONE, 0, 64, 0);
    uint32_t copy_out = hand_transfer(t, FCP_RECV, FCP_OUT, FCP_LOCAL, r, FCP_NONE, 0, 64, 0);
    uint32_t visit = r ? 1 : 0;
    hand_instr(t, FCP_OP_COPY, 0, copy_in, 1, 0);
    hand_instr(t, FCP_OP_WAIT, 0, 1, 0, 0); /* IN */
    if (back) hand_instr(t, FCP_OP_DELTA, 0, 0, 1, 0);
    hand_instr(t, FCP_OP_ATTEND, 0, visit, 1, 0);
    if (r) {
        hand_instr(t, FCP_OP_WAIT, 1, 4, 0, 0); /* IN, WAIT, two units of KV */
        hand_instr(t, FCP_OP_ATTEND, 1, 2, 1, 0);
    } else if (back) {
        hand_instr(t, FCP_OP_WAIT, 2, 6, 0, 0); /* IN, WAIT, KV, KV, dKV, dKV */
        hand_instr(t, FCP_OP_REDUCE, 2, 0, 1, 0);
    }
    hand_instr(t, FCP_OP_COPY, out_stage, copy_out, 1, 0);
    uint32_t computed = (uint32_t)(t->instrs_count - first) - 1; /* all but the last copy */
    hand_stream(t, first);

    first = t->instrs_count;
    at = hand_transfer(t, FCP_SEND, FCP_IN, FCP_NET, other, FCP_NONE, 0, 64, 0);
    hand_transfer(t, FCP_RECV, FCP_IN, FCP_NET, other, FCP_NONE, 0, 64, 0);
    hand_instr(t, FCP_OP_LAUNCH, 0, at, 2, 0);
    hand_instr(t, FCP_OP_WAIT, 1, 1, 0, 0); /* the copy in */
    for (uint32_t u = 0; u < 2; u++) {
        at = r ? hand_transfer(t, FCP_RECV, FCP_KV, FCP_NET, 0, 0, u * 64, 64, 1)
               : hand_transfer(t, FCP_SEND, FCP_KV, FCP_NET, 1, 0, u * 64, 64, 0);
        hand_instr(t, FCP_OP_LAUNCH, 1, at, 1, 1 + u);
    }
    if (back) {
        if (r) hand_instr(t, FCP_OP_WAIT, 2, computed, 0, 0);
        for (uint32_t u = 0; u < 2; u++) {
            at = r ? hand_transfer(t, FCP_SEND, FCP_DKV, FCP_NET, 0, 0, u * 64, 64, 1)
                   : hand_transfer(t, FCP_RECV, FCP_DKV, FCP_NET, 1, 0, u * 64, 64, 1);
            hand_instr(t, FCP_OP_LAUNCH, 2, at, 1, 3 + u);
        }
    }
    hand_instr(t, FCP_OP_WAIT, out_stage, computed, 0, 0);
    at = hand_transfer(t, FCP_SEND, FCP_OUT, FCP_NET, other, FCP_NONE, 0, 64, 0);
    hand_transfer(t, FCP_RECV, FCP_OUT, FCP_NET, other, FCP_NONE, 0, 64, 0);
    hand_instr(t, FCP_OP_LAUNCH, out_stage, at, 2, out_round);
    hand_stream(t, first);
}

static inline void hand_make(tables *t) {
    memset(t, 0, sizeof *t);
    static const char source[] = "model { heads = 4; kv_heads = 2; head_dim = 16; dtype = bf16 }\n# \xe2\x89\xa4 256\n";
    for (const char *c = source; *c; c++) PUSH(t, source, *c);
    PUSH(t, problem,
         (fcp_problem){.ranks = 2, .nodes = 2, .gpus = 1, .heads = 4, .kv_heads = 2, .head_dim = 16, .value_dim = 16,
          .documents = FCP_NONE,
          .layout_group = 2,
                       .range_kv = 2, .range_sub = 2,
                       .dtype = FCP_BF16, .layout = FCP_LAYOUT_ZIGZAG, .strategy = FCP_STRATEGY_FCP,
                       .block = HAND_BLOCK, .max_block = HAND_BLOCK, .max_q_block = HAND_BLOCK, .unit = HAND_UNIT,
                       .coalesce = 2, .buffers = 3,
                       .passes = 3, .deterministic = 1, .mask_uses = MC_USES_Q | MC_USES_K, .tokens = HAND_TOKENS,
                       .key_tokens = HAND_TOKENS,
                       .memory_cap = 1 << 20, .scale = 0.25});
    PUSH(t, cluster, (fcp_cluster){.gpu = "h200", .intra = 450, .inter = 50, .oversubscription_milli = 1000});
    PUSH(t, sequences, (fcp_sequence){HAND_TOKENS, HAND_TOKENS, 0});
    uint64_t half = 128 * 129 / 2, full = 128 * 128;
    PUSH(t, deals, (fcp_deal){.sequences = 1, .ranks = 2});
    PUSH(t, heads, (fcp_heads){.kv_count = 2, .sub_count = 2});
    for (uint32_t b = 0; b < 2; b++) {
        PUSH(t, pieces, (fcp_piece){.length = 128, .start = 128 * b, .block = b});
        PUSH(t, blocks, (fcp_block){.first_piece = b, .pieces = 1, .tokens = 128, .home = b, .holds = FCP_HOLDS_BOTH});
    }
    PUSH(t, runs, (fcp_run){0, 0, 1, FCP_CELL_PARTIAL});
    PUSH(t, runs, (fcp_run){0, 0, 1, FCP_CELL_FULL});
    PUSH(t, shapes, (fcp_shape_rec){0, 1, 128, 128, half});
    PUSH(t, shapes, (fcp_shape_rec){1, 1, 128, 128, full});
    PUSH(t, parts, (fcp_part){0, 0, 0});
    PUSH(t, parts, (fcp_part){1, 1, 0});
    PUSH(t, parts, (fcp_part){1, 0, 1});
    PUSH(t, tiles, (fcp_tile){.q_block = 0, .k_block = 0, .first_part = 0, .parts = 1, .pairs = half});
    PUSH(t, tiles, (fcp_tile){.q_block = 1, .k_block = 1, .first_part = 1, .parts = 1, .pairs = half});
    PUSH(t, tiles, (fcp_tile){.q_block = 1, .k_block = 0, .first_part = 2, .parts = 1, .pairs = full, .kv_slot = 1,
                              .dkv_slot = 1});
    PUSH(t, visits, (fcp_visit){0, 0, 1, FCP_NONE, 0, 0, 0, FCP_VISIT_FIRST | FCP_VISIT_LAST, 0});
    PUSH(t, visits, (fcp_visit){1, 1, 1, 0, 0, FCP_NONE, 0, FCP_VISIT_FIRST, 0});
    PUSH(t, visits, (fcp_visit){1, 2, 1, 0, 0, 0, 0, FCP_VISIT_LAST, 0});
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        PUSH(t, round_starts, (uint32_t)t->rounds_count);
        PUSH(t, rounds, (fcp_round){FCP_ROUND_IN, 0, 0});
        PUSH(t, rounds, (fcp_round){FCP_ROUND_INDEPENDENT, 0, 1});
        PUSH(t, rounds, (fcp_round){FCP_ROUND_INDEPENDENT, 0, 1});
        if (pass == FCP_BACKWARD) {
            PUSH(t, rounds, (fcp_round){FCP_ROUND_DEPENDENT, 0, 2});
            PUSH(t, rounds, (fcp_round){FCP_ROUND_DEPENDENT, 0, 2});
        }
        PUSH(t, rounds, (fcp_round){FCP_ROUND_OUT, 0, pass == FCP_BACKWARD ? 3 : 2});
        for (uint32_t r = 0; r < 2; r++) hand_rank(t, pass, r);
    }
    PUSH(t, round_starts, (uint32_t)t->rounds_count);
    uint32_t none = MC_NONE;
    PUSH(t, mask, (mc_node){MC_Q, none, none, none, none, 0, 0});
    PUSH(t, mask, (mc_node){MC_K, none, none, none, none, 0, 0});
    PUSH(t, mask, (mc_node){MC_LE, 1, 0, none, none, 0, 0});
    /* by hand: KV 2 * 2 * 16 * 2 = 128 bytes a token, dKV twice that; Q 128; a row of floats 16, two of LSE; state 4 *
     * 18 * 4 = 288 */
    uint64_t forward = 128 * (128 + 128 + 128 + 32) + 128 * 128 + 128 * 288;
    uint64_t backward = 128 * (3 * 128 + 128 + 3 * 16 + 256 + 256 + 128 + 128) + 128 * 128 + 128 * 256;
    PUSH(t, summary,
         (fcp_summary){.sequences = 1, .blocks = 2, .tiles = 3, .pairs = 2 * half + full, .positions = 65536,
                       .pairs_max_rank = half + full, .pairs_max_block = half + full, .tokens_max_rank = 128,
                       .key_tokens_max_rank = 128,
                       .bytes_total = 128 * 128, .bytes_inter_node = 128 * 128, .send_max = 128 * 128,
                       .recv_max = 128 * 128, .bytes_reshuffle = 2 * 64 * (256 + 160), .rounds = 2,
                       .rounds_lower_bound = 2, .rounds_bound = 2, .rounds_reshuffle = 2, .stages = 2, .slots_max = 1,
                       .state_bytes = 2 * 128 * 288, .memory_peak_bytes = forward > backward ? forward : backward,
                       .backward_bytes_total = 128 * (128 + 256), .backward_bytes_inter_node = 128 * (128 + 256),
                       .backward_rounds = 2, .backward_rounds_dependent = 2, .backward_rounds_bound = 2,
                       .backward_rounds_reshuffle = 2,
                       .backward_stages = 3, .backward_slots_max = 2, .peers_max = 1});
}
#endif
