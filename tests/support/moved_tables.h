/* moved_tables.h: a small plan made by hand in which most tiles run away from home.
 *
 * Three ranks of one node. One sequence of 192 queries and 256 keys, full mask, fp32, two heads. Queries and keys have
 * blocks of their own. Each block travels as one unit, and the caller's tokens are at home.
 *
 *   block          tokens   home rank
 *   Q0, Q1, Q2     64 each  0, 1, 2
 *   KV3, KV4       128 each 0, 1
 *
 * Each Q block has two tiles, one with KV3 and one with KV4:
 *   Q0  both run on rank 1, so its result is whole there. It comes home by way of rank 2.
 *   Q1  KV4 at home on rank 1, KV3 on rank 2, which sends its state home.
 *   Q2  KV3 on rank 0, KV4 on rank 1, none at home. Rank 1 adds rank 0's state to its own and sends the sum home.
 * KV3 goes from rank 0 to rank 2, and from there to rank 1.
 *
 * In the table "KV3 0 > 2" says that KV3 goes from rank 0 to rank 2:
 *
 *   round  stage   forward                             backward
 *   0      1       KV3 0 > 2   Q2 2 > 1                the same
 *   1      1       Q0 0 > 1    Q1 1 > 2    Q2 2 > 0    the same
 *   2      2       KV3 2 > 1                           the same
 *   3      3       state of Q2 0 > 1                   dQ2 0 > 1    dKV3 1 > 2
 *   4      4       state of Q2 1 > 2, of Q1 2 > 1      dQ2 1 > 2    dQ1 2 > 1
 *   5      5       O of Q0 1 > 2                       dQ0 1 > 2    dKV3 2 > 0
 *   6      6       O of Q0 2 > 0                       dQ0 2 > 0
 */
#ifndef MOVED_TABLES_H
#define MOVED_TABLES_H
#include "tests/support/plan_tables.h"

enum { MOVED_Q = 64, MOVED_KV = 128, MOVED_ROUNDS = 7, Q0 = 0, Q1, Q2, KV3, KV4 };

/* A transfer between two ranks: the slots are the sender's and the receiver's. */
typedef struct moved {
    uint32_t round, cls, block, from, to, from_slot, to_slot;
} moved;
static const moved moved_forward[] = {
    {0, FCP_KV, KV3, 0, 2, 1, 1}, {0, FCP_Q, Q2, 2, 1, 0, 3},    {1, FCP_Q, Q0, 0, 1, 0, 2},
    {1, FCP_Q, Q1, 1, 2, 0, 1},   {1, FCP_Q, Q2, 2, 0, 0, 2},    {2, FCP_KV, KV3, 2, 1, 1, 2},
    {3, FCP_STATE, Q2, 0, 1, 0, 2}, {4, FCP_STATE, Q2, 1, 2, 1, 1}, {4, FCP_STATE, Q1, 2, 1, 0, 2},
    {5, FCP_O, Q0, 1, 2, 2, 1},   {6, FCP_O, Q0, 2, 0, 1, 0}};
static const moved moved_backward[] = {
    {0, FCP_KV, KV3, 0, 2, 1, 1}, {0, FCP_Q, Q2, 2, 1, 0, 3},    {1, FCP_Q, Q0, 0, 1, 0, 2},
    {1, FCP_Q, Q1, 1, 2, 0, 1},   {1, FCP_Q, Q2, 2, 0, 0, 2},    {2, FCP_KV, KV3, 2, 1, 1, 2},
    {3, FCP_DQ, Q2, 0, 1, 2, 4},  {3, FCP_DKV, KV3, 1, 2, 2, 2}, {4, FCP_DQ, Q2, 1, 2, 2, 2},
    {4, FCP_DQ, Q1, 2, 1, 1, 4},  {5, FCP_DQW, Q0, 1, 2, 2, 1},  {5, FCP_DKV, KV3, 2, 0, 1, 2},
    {6, FCP_DQW, Q0, 2, 0, 1, 0}};

/* What is otherwise in the plan that is made: in one pass a transfer is left out, or another one is there. Rounds from
 * MOVED_ROUNDS on are of the last stage. */
typedef struct moved_change {
    int pass;
    size_t drop; /* index + 1 in the pass's list */
    moved add[2];
    size_t added;
} moved_change;

static inline uint32_t moved_stage(uint32_t round) {
    return round < 2 ? 1 : round < MOVED_ROUNDS ? round : MOVED_ROUNDS - 1;
}

static inline void moved_transfer(tables *t, const moved *m, uint32_t round, uint32_t rank) {
    if (m->round != round || (m->from != rank && m->to != rank)) return;
    bool send = m->from == rank;
    hand_transfer(t, send ? FCP_SEND : FCP_RECV, (int)m->cls, FCP_LOCAL, send ? m->to : m->from, m->block, 0,
                  t->blocks[m->block].tokens, send ? m->from_slot : m->to_slot);
}

/* A rank's LAUNCH of a round, after a WAIT for `wait` compute instructions, if that is not 0. If it has no share in the
 * round, a WAIT for nothing stands there: so what the other queue waits for has the same number in any change. */
static inline void moved_launch(tables *t, const moved_change *c, int pass, uint32_t rank, uint32_t round,
                                uint32_t wait) {
    const moved *m = pass ? moved_backward : moved_forward;
    size_t n = pass ? sizeof moved_backward / sizeof *m : sizeof moved_forward / sizeof *m;
    uint32_t first = (uint32_t)t->transfers_count, stage = moved_stage(round);
    for (size_t i = 0; i < n; i++)
        if (c->pass != pass || c->drop != i + 1) moved_transfer(t, &m[i], round, rank);
    for (size_t i = 0; i < c->added && c->pass == pass; i++) moved_transfer(t, &c->add[i], round, rank);
    if (wait) hand_instr(t, FCP_OP_WAIT, stage, wait, 0, 0);
    uint32_t count = (uint32_t)t->transfers_count - first;
    if (count) hand_instr(t, FCP_OP_LAUNCH, stage, first, count, round);
    else hand_instr(t, FCP_OP_WAIT, stage, 0, 0, 0);
}

/* Copies of a rank's home blocks, in or out: it has at most one of each side. Forward, KV has no results. */
static inline void moved_copy(tables *t, int pass, uint32_t rank, bool out) {
    uint32_t first = (uint32_t)t->transfers_count;
    for (uint32_t b = 0; b < 5; b++)
        if (t->blocks[b].home == rank && !(out && pass == FCP_FORWARD && b >= KV3))
            hand_transfer(t, out ? FCP_RECV : FCP_SEND, out ? FCP_OUT : FCP_IN, FCP_LOCAL, rank, FCP_NONE, 0,
                          t->blocks[b].tokens, b >= KV3);
    hand_instr(t, FCP_OP_COPY, out ? 7 : 0, first, (uint32_t)t->transfers_count - first, 0);
}

/* The computing queue of a rank. A wait counts the communication instructions below, its own waits included; all move
 * over local. */
static inline void moved_compute(tables *t, int pass, uint32_t rank) {
    bool back = pass == FCP_BACKWARD;
    uint64_t first = t->instrs_count;
#define I(...) hand_instr(t, __VA_ARGS__)
    moved_copy(t, pass, rank, false);
    if (back) I(FCP_OP_DELTA, 0, 0, 1, 0);
    if (rank == 0) {
        I(FCP_OP_WAIT, 1, 0, 3, 0); /* Q2 is here */
        I(FCP_OP_ATTEND, 1, 0, 1, 0);
        if (back) {
            I(FCP_OP_WAIT, 5, 0, 6, 0);
            I(FCP_OP_REDUCE, 5, KV3, 2, 1);
        }
        I(FCP_OP_WAIT, 7, 0, 7, 0); /* the result of Q0 is here */
    } else if (rank == 1) {
        I(FCP_OP_ATTEND, 0, 1, 1, 0);
        I(FCP_OP_WAIT, 1, 0, 3, 0); /* Q0, Q2 */
        I(FCP_OP_ATTEND, 1, 2, 1, 0);
        I(FCP_OP_WAIT, 2, 0, 4, 0); /* KV3 */
        I(FCP_OP_ATTEND, 2, 3, 1, 0);
        if (back) I(FCP_OP_ROUND, 2, Q0, 3, 2);
        I(FCP_OP_WAIT, 3, 0, back ? 6 : 5, 0);
        I(back ? FCP_OP_REDUCE_Q : FCP_OP_MERGE, 3, Q2, back ? 4 : 2, back ? 2 : 1);
        I(FCP_OP_WAIT, 4, 0, back ? 8 : 7, 0);
        I(back ? FCP_OP_REDUCE_Q : FCP_OP_MERGE, 4, Q1, back ? 4 : 2, 0);
        if (!back) I(FCP_OP_FINISH, 4, Q1, 0, 0);
    } else {
        I(FCP_OP_WAIT, 1, 0, 3, 0); /* KV3, Q1 */
        I(FCP_OP_ATTEND, 1, 4, 1, 0);
        if (back) {
            I(FCP_OP_WAIT, 3, 0, 5, 0);
            I(FCP_OP_REDUCE, 3, KV3, 2, 1);
        }
        I(FCP_OP_WAIT, 4, 0, back ? 7 : 6, 0);
        I(back ? FCP_OP_REDUCE_Q : FCP_OP_MERGE, 4, Q2, back ? 2 : 1, 0);
        if (!back) I(FCP_OP_FINISH, 4, Q2, 0, 0);
    }
#undef I
    moved_copy(t, pass, rank, true);
    hand_stream(t, first);
}

static inline void moved_comm(tables *t, const moved_change *c, int pass, uint32_t rank) {
    bool back = pass == FCP_BACKWARD;
    uint64_t first = t->instrs_count;
    if (rank == 0) { /* in: copy, delta; then attend */
        moved_launch(t, c, pass, 0, 0, back ? 2 : 1);
        moved_launch(t, c, pass, 0, 1, 0);
        moved_launch(t, c, pass, 0, 3, back ? 4 : 3);
        moved_launch(t, c, pass, 0, 5, 0);
        moved_launch(t, c, pass, 0, 6, 0);
    } else if (rank == 1) {
        moved_launch(t, c, pass, 1, 0, back ? 2 : 1);
        moved_launch(t, c, pass, 1, 1, 0);
        moved_launch(t, c, pass, 1, 2, 0);
        moved_launch(t, c, pass, 1, 3, back ? 7 : 0);
        moved_launch(t, c, pass, 1, 4, back ? 10 : 8);
        moved_launch(t, c, pass, 1, 5, 0);
    } else {
        moved_launch(t, c, pass, 2, 0, back ? 2 : 1);
        moved_launch(t, c, pass, 2, 1, 0);
        moved_launch(t, c, pass, 2, 2, 0);
        if (back) moved_launch(t, c, pass, 2, 3, 0);
        moved_launch(t, c, pass, 2, 4, back ? 4 : 3);
        moved_launch(t, c, pass, 2, 5, back ? 6 : 0);
        moved_launch(t, c, pass, 2, 6, 0);
    }
    for (uint32_t i = 0; i < 2; i++) /* rounds that a change adds */
        if (i < c->added && c->pass == pass && c->add[i].round >= MOVED_ROUNDS)
            moved_launch(t, c, pass, rank, c->add[i].round, 0);
    hand_stream(t, first);
}

static inline void moved_make(tables *t, const moved_change *change) {
    const moved_change none = {0};
    memset(t, 0, sizeof *t);
    uint64_t pairs = MOVED_Q * MOVED_KV;
    PUSH(t, problem,
         (fcp_problem){.ranks = 3, .nodes = 1, .gpus = 3, .heads = 2, .kv_heads = 2, .head_dim = 16, .value_dim = 16,
          .documents = FCP_NONE,
          .range_kv = 2,
                       .range_sub = 1, .dtype = FCP_FP32, .layout_group = 3, .block = 128, .max_block = MOVED_KV,
                       .max_q_block = MOVED_Q, .unit = MOVED_KV, .coalesce = 2, .buffers = 4, .passes = 3,
                       .align = FCP_BOTTOM_RIGHT, .tokens = 192, .key_tokens = 256, .memory_cap = 1 << 20,
                       .scale = 0.25});
    PUSH(t, cluster, (fcp_cluster){.gpu = "h200", .intra = 450, .inter = 50, .oversubscription_milli = 1000});
    PUSH(t, sequences, (fcp_sequence){192, 256, 64});
    PUSH(t, heads, (fcp_heads){.kv_count = 2, .sub_count = 1});
    for (uint32_t b = 0; b < 5; b++) {
        bool kv = b >= KV3;
        uint32_t tokens = kv ? MOVED_KV : MOVED_Q, home = kv ? b - KV3 : b;
        PUSH(t, pieces, (fcp_piece){.length = tokens, .start = kv ? MOVED_KV * (b - KV3) : MOVED_Q * b, .block = b});
        PUSH(t, blocks, (fcp_block){.first_piece = b, .pieces = 1, .tokens = tokens, .home = home, .home_slot = kv,
                                    .holds = kv ? FCP_HOLDS_KV : FCP_HOLDS_Q, .flags = b == Q0 ? FCP_BLOCK_WHOLE : 0});
    }
    PUSH(t, runs, (fcp_run){0, 0, 1, FCP_CELL_FULL});
    PUSH(t, shapes, (fcp_shape_rec){0, 1, MOVED_Q, MOVED_KV, pairs});
    /* tiles and visits, by rank and stage; slots: see the tables of transfers */
    static const struct { uint32_t q, k, kv_slot, dkv_slot; } tiles[] = {
        {Q2, KV3, 1, 1}, {Q1, KV4, 1, 1}, {Q2, KV4, 1, 1}, {Q0, KV3, 2, 2}, {Q0, KV4, 1, 1}, {Q1, KV3, 1, 1}};
    for (uint32_t i = 0; i < 6; i++) {
        PUSH(t, parts, (fcp_part){tiles[i].q, tiles[i].k, 0});
        PUSH(t, tiles, (fcp_tile){tiles[i].q, tiles[i].k, i, 1, tiles[i].kv_slot, tiles[i].dkv_slot, pairs});
    }
    enum { FIRST = FCP_VISIT_FIRST, BOTH = FCP_VISIT_FIRST | FCP_VISIT_LAST };
    PUSH(t, visits, (fcp_visit){Q2, 0, 1, 0, 2, FCP_NONE, 2, FIRST, 0});
    PUSH(t, visits, (fcp_visit){Q1, 1, 1, 0, 0, FCP_NONE, 0, FIRST, 0});
    PUSH(t, visits, (fcp_visit){Q2, 2, 1, 1, 3, FCP_NONE, 2, FIRST, 0});
    PUSH(t, visits, (fcp_visit){Q0, 3, 2, FCP_NONE, 2, 2, 3, BOTH, 0});
    PUSH(t, visits, (fcp_visit){Q1, 5, 1, 0, 1, FCP_NONE, 1, FIRST, 0});
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        PUSH(t, round_starts, (uint32_t)t->rounds_count);
        uint32_t rounds = MOVED_ROUNDS;
        for (size_t i = 0; change && change->pass == pass && i < change->added; i++)
            if (change->add[i].round >= rounds) rounds = change->add[i].round + 1;
        for (uint32_t i = 0; i < rounds; i++)
            PUSH(t, rounds, (fcp_round){i < 2 ? FCP_ROUND_INDEPENDENT : FCP_ROUND_DEPENDENT, 0, moved_stage(i)});
        for (uint32_t r = 0; r < 3; r++) {
            moved_compute(t, pass, r);
            moved_comm(t, change ? change : &none, pass, r);
        }
    }
    PUSH(t, round_starts, (uint32_t)t->rounds_count);
    PUSH(t, mask, (mc_node){MC_CONST_B, MC_NONE, MC_NONE, MC_NONE, MC_NONE, 0, 1});
    /* bytes of a token: Q, dQ and whole dQ 128, KV and dKV 256, a row of floats 8, two of LSE, state 2 * 18 * 4 = 144;
     * backward Q 280 */
    enum { Q = MOVED_Q * 128, O = MOVED_Q * 144, KV = MOVED_KV * 256, STATE = MOVED_Q * 144, BACK_Q = MOVED_Q * 280 };
    /* rank 1 needs most: one Q and one KV block at home, two of Q and one of KV for a while. Forward also three states
     * and a result; backward a dKV, three dQ (two that it adds up, one that arrives) and a whole dQ */
    uint64_t forward = Q + O + KV + KV + 2 * Q + 3 * STATE + O;
    uint64_t backward = 3 * Q + 3 * MOVED_Q * 8 + Q + Q + 3 * KV + KV + 2 * BACK_Q + KV + 3 * Q + Q;
    PUSH(t, summary,
         (fcp_summary){.sequences = 1, .blocks = 5, .tiles = 6, .pairs = 6 * pairs, .positions = 192 * 256,
                       .pairs_max_rank = 4 * pairs, .pairs_max_block = 2 * pairs, .tokens_max_rank = MOVED_Q,
                       .key_tokens_max_rank = MOVED_KV, .bytes_total = 2 * KV + 4 * Q + 3 * STATE + 2 * O,
                       .bytes_moved = 4 * Q + 3 * STATE + 2 * O,
                       /* rank 2 sends KV, Q twice, a state and O; rank 1 receives KV, Q twice and a state twice */
                       .send_max = KV + 2 * Q + STATE + O, .recv_max = KV + 2 * Q + 2 * STATE,
                       .rounds = 2, .rounds_lower_bound = 2, .rounds_dependent = 5, .rounds_bound = 5, .stages = 7,
                       .slots_max = 1, .state_bytes = 4 * STATE,
                       .memory_peak_bytes = forward > backward ? forward : backward,
                       .backward_bytes_total = 4 * KV + 4 * BACK_Q + 5 * Q, .backward_bytes_moved = 4 * BACK_Q + 5 * Q,
                       .backward_rounds = 2, .backward_rounds_dependent = 5, .backward_rounds_bound = 6,
                       .backward_stages = 7, .backward_slots_max = 3, .peers_max = 2});
}
#endif
