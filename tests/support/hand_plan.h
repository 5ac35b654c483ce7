/* hand_plan.h: makes plans by hand, for tests of what executes plans. Neither planner nor verifier is involved, and
 * nothing is optimised:
 *   tiles   are found by evaluating the mask for every pair
 *   homes   block b is at home on rank b modulo the number of ranks
 *   moves   a rank gets each block that it lacks from that block's home, in a round of its own
 *   visits  a rank visits each Q block twice: first with the keys that it has, then with those that came */
#ifndef HAND_PLAN_H
#define HAND_PLAN_H
#include <stdlib.h>
#include <string.h>
#include "runtime/plan/instructions.h"
#include "runtime/plan/plan_cluster.h"
#include "runtime/plan/plan_index.h"

typedef struct hand {
    fcp_plan plan;
    fcp_problem problem;
    fcp_cluster cluster;
    fcp_heads heads[16];
    fcp_deal deal;
    fcp_sequence sequences[64];
    uint32_t sequence_count;
    fcp_piece pieces[1024];
    fcp_block blocks[256];
    fcp_tile tiles[4096];
    fcp_part parts[16384];
    fcp_shape_rec shapes[16384];
    fcp_run runs[65536];
    fcp_visit visits[1024];
    fcp_stream streams[FCP_PASSES * 64 * FCP_QUEUES];
    fcp_instr instrs[65536];
    fcp_transfer transfers[65536];
    mc_node mask[64];
    uint32_t mask_count, head_classes[64];
    uint32_t piece_count, block_count, tile_count, part_count, shape_count, run_count, visit_count, instr_count,
        transfer_count, heads_count;
} hand;

static inline uint32_t hand_node(hand *h, mc_op op, uint32_t a, uint32_t b, uint32_t c, int64_t imm) {
    h->mask[h->mask_count] = (mc_node){.op = op, .a = a, .b = b, .c = c, .guard = MC_NONE, .imm = imm};
    return h->mask_count++;
}
/* Masks by name: "full", "causal", "none", "window" (0 <= q - k < 100), "odd" (k <= q and (q + k) % 3 != 0),
 * "head" (k <= q + 50 h), "tail" (k < 2 * (n - q)), "gap" (q >= 150 and k <= q) */
static inline void hand_mask(hand *h, const char *name) {
    h->mask_count = 0;
    uint32_t none = MC_NONE;
    if (!strcmp(name, "full") || !strcmp(name, "none")) {
        hand_node(h, MC_CONST_B, none, none, none, name[0] == 'f');
        return;
    }
    uint32_t q = hand_node(h, MC_Q, none, none, none, 0), k = hand_node(h, MC_K, none, none, none, 0);
    uint32_t causal = hand_node(h, MC_LE, k, q, none, 0);
    if (!strcmp(name, "window")) {
        uint32_t d = hand_node(h, MC_SUB, q, k, none, 0), w = hand_node(h, MC_CONST_I, none, none, none, 100);
        hand_node(h, MC_AND, causal, hand_node(h, MC_LT, d, w, none, 0), none, 0);
    } else if (!strcmp(name, "odd")) {
        uint32_t s = hand_node(h, MC_ADD, q, k, none, 0), three = hand_node(h, MC_CONST_I, none, none, none, 3);
        uint32_t m = hand_node(h, MC_MOD, s, three, none, 0), zero = hand_node(h, MC_CONST_I, none, none, none, 0);
        hand_node(h, MC_AND, causal, hand_node(h, MC_NE, m, zero, none, 0), none, 0);
    } else if (!strcmp(name, "head")) {
        uint32_t x = hand_node(h, MC_H, none, none, none, 0), f = hand_node(h, MC_CONST_I, none, none, none, 50);
        uint32_t m = hand_node(h, MC_MUL, x, f, none, 0);
        hand_node(h, MC_LE, k, hand_node(h, MC_ADD, q, m, none, 0), none, 0);
    } else if (!strcmp(name, "tail")) {
        uint32_t n = hand_node(h, MC_N, none, none, none, 0), two = hand_node(h, MC_CONST_I, none, none, none, 2);
        uint32_t d = hand_node(h, MC_SUB, n, q, none, 0);
        hand_node(h, MC_LT, k, hand_node(h, MC_MUL, d, two, none, 0), none, 0);
    } else if (!strcmp(name, "gap")) {
        uint32_t f = hand_node(h, MC_CONST_I, none, none, none, 150);
        hand_node(h, MC_AND, causal, hand_node(h, MC_LE, f, q, none, 0), none, 0);
    }
}

static inline void hand_instr(hand *h, uint32_t op, uint32_t a, uint32_t b, uint32_t c) {
    h->instrs[h->instr_count++] = (fcp_instr){.op = op, .a = a, .b = b, .c = c};
}

/* Counts the pairs that the mask allows in `rows` rows from q and `width` keys from k. */
static inline uint64_t hand_pairs(mc_code code, int64_t n, int64_t q, uint32_t rows, int64_t k, uint32_t width,
                                  uint32_t head, int64_t *scratch) {
    uint64_t allowed = 0;
    for (uint32_t i = 0; i < rows; i++) {
        uint8_t row[MC_ROW];
        mc_eval_row(code, MC_LENGTH(n), q + (int64_t)i, k, width, head, scratch, row);
        for (uint32_t j = 0; j < width; j++) allowed += row[j];
    }
    return allowed;
}

/* Adds the shape of two pieces of one range of heads, cell by cell, as one head sees it. Returns its pairs. */
static inline uint64_t hand_shape(hand *h, const fcp_piece *q, const fcp_piece *k, uint32_t head) {
    mc_code code = {h->mask, h->mask_count};
    int64_t n = (int64_t)h->sequences[q->sequence].keys, q_first = h->sequences[q->sequence].q_first;
    int64_t *scratch = malloc(mc_row_scratch(code) * sizeof *scratch);
    fcp_shape_rec *shape = &h->shapes[h->shape_count++];
    *shape = (fcp_shape_rec){.first_run = h->run_count, .q_length = q->length, .k_length = k->length};
    for (uint32_t row = 0; row * FCP_CELL < q->length; row++)
        for (uint32_t col = 0; col * FCP_CELL < k->length; col++) {
            uint32_t from = row * FCP_CELL, key = col * FCP_CELL;
            uint32_t rows = q->length - from < FCP_CELL ? q->length - from : FCP_CELL;
            uint32_t width = k->length - key < FCP_CELL ? k->length - key : FCP_CELL;
            uint64_t allowed = hand_pairs(code, n, q_first + (int64_t)(q->start + from), rows,
                                          (int64_t)(k->start + key), width, head, scratch);
            if (!allowed) continue;
            uint32_t cls = allowed == (uint64_t)rows * width ? FCP_CELL_FULL : FCP_CELL_PARTIAL;
            fcp_run *last = &h->runs[h->run_count - (shape->runs > 0)];
            shape->pairs += allowed;
            if (shape->runs && last->row == row && last->col + last->count == col && last->cls == cls) {
                last->count++;
                continue;
            }
            h->runs[h->run_count++] = (fcp_run){row, col, 1, cls};
            shape->runs++;
        }
    free(scratch);
    return shape->pairs;
}

/* Adds the shapes of a part: one, or one for each head of the range if the mask names h, since each is then a class of
 * its own. Returns its pairs; if there are none, adds nothing. */
static inline uint64_t hand_shapes(hand *h, const fcp_heads *range, const fcp_piece *q, const fcp_piece *k) {
    uint32_t group = h->problem.heads / h->problem.kv_heads, first = h->shape_count;
    uint32_t heads = h->problem.mask_uses & MC_USES_H ? range->kv_count * range->sub_count : 1;
    uint64_t pairs = 0;
    for (uint32_t x = 0; x < heads; x++)
        pairs += hand_shape(h, q, k,
                            (range->kv_first + x / range->sub_count) * group + range->sub_first + x % range->sub_count);
    if (!pairs) h->shape_count = first;
    return pairs;
}

static inline void hand_blocks(hand *h, uint32_t block) {
    for (uint32_t s = 0; s < h->sequence_count; s++)
        for (uint64_t start = 0; start < h->sequences[s].keys; start += block) {
            uint64_t left = h->sequences[s].keys - start;
            uint32_t length = left < block ? (uint32_t)left : block;
            fcp_block *b = h->block_count ? &h->blocks[h->block_count - 1] : NULL;
            if (!b || b->tokens + length > block) {
                b = &h->blocks[h->block_count++];
                *b = (fcp_block){.first_piece = h->piece_count, .holds = FCP_HOLDS_BOTH};
            }
            h->pieces[h->piece_count++] = (fcp_piece){
                .sequence = s, .length = length, .start = start, .offset = b->tokens, .block = h->block_count - 1};
            b->pieces++;
            b->tokens += length;
            h->problem.tokens += length;
            h->problem.key_tokens += length;
        }
    uint32_t homes[64] = {0};
    for (uint32_t b = 0; b < h->block_count; b++) {
        h->blocks[b].home = b % h->problem.ranks;
        h->blocks[b].home_slot = homes[h->blocks[b].home]++;
    }
}

/* The tile of two blocks, if it has a pair. */
static inline bool hand_tile(hand *h, uint32_t q, uint32_t k, uint32_t kv_slot) {
    fcp_tile t = {.q_block = q, .k_block = k, .first_part = h->part_count, .kv_slot = kv_slot, .dkv_slot = kv_slot};
    for (uint32_t i = h->blocks[q].first_piece; i < h->blocks[q].first_piece + h->blocks[q].pieces; i++)
        for (uint32_t j = h->blocks[k].first_piece; j < h->blocks[k].first_piece + h->blocks[k].pieces; j++) {
            if (h->pieces[i].sequence != h->pieces[j].sequence) continue;
            const uint32_t shape = h->shape_count;
            uint64_t pairs = hand_shapes(h, &h->heads[h->blocks[q].heads], &h->pieces[i], &h->pieces[j]);
            if (!pairs) continue;
            h->parts[h->part_count++] = (fcp_part){i, j, shape};
            t.parts++;
            t.pairs += pairs;
        }
    if (t.parts) h->tiles[h->tile_count++] = t;
    return t.parts > 0;
}

/* `slot[rank][block]`: where a rank keeps what it fetches. Streams follow the head comment. */
static inline void hand_streams(hand *h) {
    uint32_t ranks = h->problem.ranks;
    static uint32_t slot[64][256], landing[64][256];
    static fcp_visit visits[64][2][256];
    uint32_t counts[64][2] = {{0}}, homes[64] = {0}, lands[64] = {0};
    memset(slot, 0xff, sizeof slot);
    for (uint32_t b = 0; b < h->block_count; b++) homes[h->blocks[b].home]++;
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t next = homes[r], state = 0;
        lands[r] = 0;
        for (uint32_t b = 0; b < h->block_count; b++) {
            if (h->blocks[b].home != r) continue;
            uint32_t tiles[2] = {0}, first[2];
            for (int away = 0; away < 2; away++) {
                first[away] = h->tile_count;
                for (uint32_t k = 0; k < h->block_count; k++) {
                    if ((h->blocks[k].home != r) != away) continue;
                    uint32_t *at = &slot[r][k], wanted = away ? (*at == FCP_NONE ? next : *at) : h->blocks[k].home_slot;
                    if (!hand_tile(h, b, k, wanted)) continue;
                    tiles[away]++;
                    if (away && *at == FCP_NONE) *at = next++;
                }
            }
            bool both = tiles[0] && tiles[1];
            for (uint32_t away = 0; away < 2; away++)
                if (tiles[away])
                    visits[r][away][counts[r][away]++] = (fcp_visit){
                        .q_block = b,
                        .first_tile = first[away],
                        .tiles = tiles[away],
                        .state_slot = both ? state : FCP_NONE,
                        .q_slot = h->blocks[b].home_slot,
                        .o_slot = both && !away ? FCP_NONE : h->blocks[b].home_slot,
                        .dq_slot = h->blocks[b].home_slot,
                        .flags = both ? (away ? FCP_VISIT_LAST : FCP_VISIT_FIRST) : FCP_VISIT_FIRST | FCP_VISIT_LAST};
            state += both;
        }
    }
    uint32_t visit_at[64][2];
    for (uint32_t r = 0; r < ranks; r++)
        for (uint32_t away = 0; away < 2; away++) {
            visit_at[r][away] = h->visit_count;
            memcpy(&h->visits[h->visit_count], visits[r][away], counts[r][away] * sizeof(fcp_visit));
            h->visit_count += counts[r][away];
        }
    /* landing slots at the home, after its own transient ones */
    for (uint32_t k = 0; k < h->block_count; k++)
        for (uint32_t r = 0; r < ranks; r++)
            if (slot[r][k] != FCP_NONE) landing[r][k] = homes[h->blocks[k].home] + 200 + lands[h->blocks[k].home]++ % 2;
    for (uint32_t pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t r = 0; r < ranks; r++) {
            fcp_stream *compute = &h->streams[(pass * ranks + r) * FCP_QUEUES + FCP_COMPUTE], *comm = compute + 1;
            uint32_t copies[2], returns = 0, gets = 0;
            for (int out = 0; out < 2; out++) {
                uint32_t tokens = 0;
                copies[out] = h->transfer_count;
                for (uint32_t b = 0; b < h->block_count; b++)
                    tokens += h->blocks[b].home == r ? h->blocks[b].tokens : 0;
                h->transfers[h->transfer_count++] = (fcp_transfer){.peer = r,
                                                                   .block = FCP_NONE,
                                                                   .tokens = tokens,
                                                                   .cls = out ? FCP_OUT : FCP_IN,
                                                                   .fabric = FCP_LOCAL,
                                                                   .dir = out ? FCP_RECV : FCP_SEND};
            }
            comm->first = h->instr_count;
            hand_instr(h, FCP_OP_WAIT, 1, 0, 0);
            uint32_t round = 0, attended = pass == FCP_FORWARD ? 4 : 5;
            for (uint32_t back = 0; back <= pass; back++) {
                if (back) hand_instr(h, FCP_OP_WAIT, attended, 0, 0);
                for (uint32_t k = 0; k < h->block_count; k++)
                    for (uint32_t to = 0; to < ranks; to++) {
                        uint32_t home = h->blocks[k].home;
                        if (slot[to][k] == FCP_NONE) continue;
                        uint32_t id = round++;
                        if (r != to && r != home) continue;
                        bool send = back ? r == to : r == home;
                        uint32_t mine = r == to ? slot[to][k] : back ? landing[to][k] : h->blocks[k].home_slot;
                        if (back && !send && returns >= 2) /* a landing slot is free again after its REDUCE */
                            hand_instr(h, FCP_OP_WAIT, attended + 2 * (returns - 1), 0, 0);
                        returns += back && !send;
                        hand_instr(h, FCP_OP_LAUNCH, h->transfer_count, 1, id);
                        h->transfers[h->transfer_count++] =
                            (fcp_transfer){.peer = r == to ? home : to, .block = k, .tokens = h->blocks[k].tokens,
                                           .slot = mine, .cls = back ? FCP_DKV : FCP_KV,
                                           .fabric = FCP_LOCAL, .dir = send ? FCP_SEND : FCP_RECV};
                    }
                if (!back) gets = h->instr_count - comm->first;
            }
            comm->count = h->instr_count - comm->first;
            compute->first = h->instr_count;
            hand_instr(h, FCP_OP_COPY, copies[0], 1, 0);
            if (pass == FCP_BACKWARD) hand_instr(h, FCP_OP_DELTA, 0, homes[r], 0);
            hand_instr(h, FCP_OP_ATTEND, visit_at[r][0], counts[r][0], 0);
            hand_instr(h, FCP_OP_WAIT, 0, gets, 0); /* over local, as below */
            hand_instr(h, FCP_OP_ATTEND, visit_at[r][1], counts[r][1], 0);
            for (uint32_t i = gets; pass == FCP_BACKWARD && i < comm->count; i++) {
                const fcp_instr *x = &h->instrs[comm->first + i];
                const fcp_transfer *t = &h->transfers[x->a];
                if (x->op != FCP_OP_LAUNCH || t->dir != FCP_RECV) continue;
                hand_instr(h, FCP_OP_WAIT, 0, i + 1, 0);
                hand_instr(h, FCP_OP_REDUCE, t->block, t->slot, h->blocks[t->block].home_slot);
            }
            hand_instr(h, FCP_OP_COPY, copies[1], 1, 0);
            compute->count = h->instr_count - compute->first;
        }
}

static inline void hand_free(hand *h) {
    if (!h) return;
    free(h->plan.sequence_offsets);
    free(h->plan.array_starts);
    free(h->plan.rank_tokens);
    free(h->plan.range_classes);
    free(h);
}

/* The plan gets the tables that h has filled so far. */
static inline void hand_tables(hand *h) {
    fcp_plan *p = &h->plan;
#define SET(member, array, n) p->member = (array), p->member##_count = (n)
    SET(problem, &h->problem, 1);
    SET(cluster, &h->cluster, 1);
    SET(sequences, h->sequences, h->sequence_count);
    SET(pieces, h->pieces, h->piece_count);
    SET(deals, &h->deal, h->problem.layout != FCP_LAYOUT_PLANNED);
    SET(heads, h->heads, h->heads_count);
    SET(blocks, h->blocks, h->block_count);
    SET(tiles, h->tiles, h->tile_count);
    SET(parts, h->parts, h->part_count);
    SET(shapes, h->shapes, h->shape_count);
    SET(runs, h->runs, h->run_count);
    SET(visits, h->visits, h->visit_count);
    SET(streams, h->streams, FCP_PASSES * h->problem.ranks * FCP_QUEUES);
    SET(instrs, h->instrs, h->instr_count);
    SET(transfers, h->transfers, h->transfer_count);
    SET(mask, h->mask, h->mask_count);
    for (uint32_t i = 0; i < 64; i++) h->head_classes[i] = i;
    SET(head_classes, h->head_classes, h->problem.mask_uses & MC_USES_H ? h->problem.heads : 0);
#undef SET
}

/* NULL when out of memory. At most 64 ranks, 256 blocks, 64 sequences. */
static inline hand *hand_make(uint32_t ranks, uint32_t heads, uint32_t kv_heads, uint32_t head_dim, fcp_dtype dtype,
                              uint32_t block, const char *mask, const uint64_t *lengths, uint32_t count) {
    hand *h = calloc(1, sizeof *h);
    if (!h) return NULL;
    h->problem = (fcp_problem){.ranks = ranks,
                               .documents = FCP_NONE,
                               .nodes = 1,
                               .gpus = ranks,
                               .heads = heads,
                               .kv_heads = kv_heads,
                               .head_dim = head_dim, .value_dim = head_dim,
                               .layout_group = ranks,
                               .range_kv = kv_heads,
                               .range_sub = heads / kv_heads,
                               .dtype = dtype,
                               .block = block,
                               .max_block = block,
                               .max_q_block = block,
                               .unit = block,
                               .coalesce = 1,
                               .buffers = 3,
                               .passes = 3,
                               .scale = 0.125};
    for (uint32_t s = 0; s < count; s++) h->sequences[s] = (fcp_sequence){lengths[s], lengths[s], 0};
    h->sequence_count = count;
    hand_mask(h, mask);
    h->problem.mask_uses = mc_uses((mc_code){h->mask, h->mask_count});
    h->heads[0] = (fcp_heads){.kv_count = kv_heads, .sub_count = heads / kv_heads};
    h->heads_count = 1;
    h->deal = (fcp_deal){.sequences = count, .ranks = ranks};
    hand_blocks(h, block);
    hand_streams(h);
    hand_tables(h);
    if (fcp_plan_index(&h->plan, NULL) == FCP_OK) return h;
    hand_free(h);
    return NULL;
}
#endif
