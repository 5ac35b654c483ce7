/* moved_plan.h: draws plans in which work is done away from home, for tests of what executes plans. Neither planner nor
 * verifier is involved.
 *
 * 1. Drawn at random: homes, the caller's layout, the rank of each tile, the visit to which a tile belongs, the rank
 *    from which a block is fetched, and the rank at which the partial results of a block are merged. That is the
 *    block's home, or, if the home computes nothing of the block, possibly another rank.
 * 2. A pass is played through, one event after the other: a transfer or a piece of computing. Each time, one of the
 *    events that are possible is drawn.
 * 3. Each rank's events become its two queues. A queue waits for the other before each of its events, so the order of
 *    all events is kept. */
#ifndef MOVED_PLAN_H
#define MOVED_PLAN_H
#include "runtime/plan/bytes.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/sides.h"
#include "tests/support/hand_plan.h"
#include "tests/support/splitmix.h"

/* Of all blocks: drawn, at home, whole elsewhere. */
typedef enum moved_kind { MOVED_ANY, MOVED_HOME, MOVED_WHOLE } moved_kind;
typedef struct moved_options {
    uint32_t ranks, heads, kv_heads, head_dim, block, unit;
    uint32_t range_kv, range_sub; /* 0: all heads */
    uint32_t value_dim;           /* 0: head_dim */
    bool values_in_keys, lse_gradient;
    fcp_dtype wire;
    fcp_dtype dtype;
    const char *mask;
    const uint64_t *lengths, *keys; /* keys NULL: as many as queries */
    uint32_t count;
    bool top_left;
    moved_kind kind;
    uint64_t seed;
} moved_options;

enum { MOVED_RANKS = 16, MOVED_BLOCKS = 96, MOVED_TILES = 2048, MOVED_SLOTS = 400 };
typedef struct moved_queue {
    fcp_instr list[8192];
    uint32_t count, waited;
} moved_queue;
/* The slots of a rank and class that hold something. */
typedef struct moved_slots {
    bool used[MOVED_SLOTS];
} moved_slots;
/* What a rank has to do with a partial result of a block. */
typedef struct moved_part {
    uint32_t left, slot; /* visits or tiles that it has yet to add; where its sum is, or FCP_NONE */
    bool takes_part, sent;
} moved_part;

typedef struct moved {
    hand *h;
    moved_options o;
    uint64_t state; /* of the dice */
    uint32_t homes[MOVED_RANKS];
    uint32_t exec[MOVED_BLOCKS][MOVED_BLOCKS]; /* of the tile (Q block, KV block); FCP_NONE: there is none */
    uint32_t maker[MOVED_BLOCKS]; /* the rank that makes the result of a Q block */
    bool alone[MOVED_BLOCKS];     /* one rank, not its home, computes all of it */
    uint32_t visit_first[MOVED_RANKS + 1];
    /* fetching: from whom a rank gets a block, and its slot there */
    uint32_t from[FCP_CLASSES][MOVED_RANKS][MOVED_BLOCKS], slot[FCP_CLASSES][MOVED_RANKS][MOVED_BLOCKS],
        fetched[FCP_CLASSES][MOVED_RANKS];
    /* the pass that is played */
    fcp_pass pass;
    moved_queue queue[MOVED_RANKS][FCP_QUEUES];
    uint32_t round;
    bool here[FCP_CLASSES][MOVED_RANKS][MOVED_BLOCKS];
    moved_slots slots[FCP_CLASSES][MOVED_RANKS];
    moved_part part[FCP_CLASSES][MOVED_RANKS][MOVED_BLOCKS];
} moved;

static inline uint32_t moved_draw(uint64_t *state, uint32_t below) {
    return (uint32_t)(splitmix(state) >> 33) % below;
}
static inline uint32_t moved_roll(moved *m, uint32_t below) { return moved_draw(&m->state, below); }

/* --- events ------------------------------------------------------------------------------------------------------- */

/* Puts an instruction at the end of a rank's queue, behind all that its other queue has. */
static inline void moved_push(moved *m, uint32_t rank, fcp_queue queue, fcp_instr x) {
    moved_queue *q = &m->queue[rank][queue], *other = &m->queue[rank][!queue];
    if (other->count > q->waited) {
        q->waited = other->count;
        q->list[q->count++] = (fcp_instr){.op = FCP_OP_WAIT, .a = q->waited, .b = queue == FCP_COMPUTE ? q->waited : 0};
    }
    q->list[q->count++] = x;
}
static inline void moved_compute(moved *m, uint32_t rank, fcp_op op, uint32_t a, uint32_t b, uint32_t c) {
    moved_push(m, rank, FCP_COMPUTE, (fcp_instr){.op = op, .a = a, .b = b, .c = c});
}
static inline void moved_side(moved *m, uint32_t rank, fcp_transfer t, uint32_t round) {
    hand *h = m->h;
    moved_push(m, rank, FCP_COMM, (fcp_instr){.op = FCP_OP_LAUNCH, .a = h->transfer_count, .b = 1, .c = round});
    h->transfers[h->transfer_count++] = t;
}
/* Moves a block from a slot of one rank to a slot of another, unit by unit. */
static inline void moved_send(moved *m, fcp_class cls, uint32_t block, uint32_t from, uint32_t from_slot, uint32_t to,
                              uint32_t to_slot) {
    const fcp_fabric fabric = moved_roll(m, FCP_FABRICS);
    uint32_t unit = fcp_unit_tokens(&m->h->problem, cls, fabric), tokens = m->h->blocks[block].tokens;
    for (uint32_t first = 0; first < tokens; first += unit) {
        fcp_transfer t = {.peer = to, .cls = cls, .fabric = fabric, .dir = FCP_SEND, .block = block, .first = first,
                          .tokens = tokens - first < unit ? tokens - first : unit, .slot = from_slot};
        moved_side(m, from, t, m->round);
        t.peer = from, t.dir = FCP_RECV, t.slot = to_slot;
        moved_side(m, to, t, m->round++);
    }
}

/* A free transient slot: the first, or one further on. */
static inline uint32_t moved_take(moved *m, fcp_class cls, uint32_t rank) {
    uint32_t at = moved_roll(m, 3);
    while (m->slots[cls][rank].used[at]) at++;
    m->slots[cls][rank].used[at] = true;
    return at + (cls == FCP_STATE ? 0 : m->homes[rank]);
}
static inline void moved_give(moved *m, fcp_class cls, uint32_t rank, uint32_t slot) {
    uint32_t homes = cls == FCP_STATE ? 0 : m->homes[rank];
    if (slot >= homes) m->slots[cls][rank].used[slot - homes] = false;
}

/* Brings Q or KV of a block to a rank, by way of the ranks between it and the home. */
static inline void moved_fetch(moved *m, fcp_class cls, uint32_t rank, uint32_t block) {
    const fcp_block *b = &m->h->blocks[block];
    if (b->home == rank || m->here[cls][rank][block]) return;
    uint32_t from = m->from[cls][rank][block];
    moved_fetch(m, cls, from, block);
    moved_send(m, cls, block, from, from == b->home ? b->home_slot : m->slot[cls][from][block], rank,
               m->slot[cls][rank][block]);
    m->here[cls][rank][block] = true;
}

/* --- inputs and outputs ------------------------------------------------------------------------------------------- */

/* How many tokens of a bundle of `side` there are for each caller and home, from the runs that fcp_plan_layout
 * tells. */
static inline void moved_count(const moved *m, fcp_side side, uint32_t counts[MOVED_RANKS][MOVED_RANKS]) {
    const hand *h = m->h;
    memset(counts, 0, MOVED_RANKS * sizeof *counts);
    for (uint32_t r = 0; r < m->o.ranks; r++) {
        fcp_layout_at at = {0};
        fcp_span span;
        while (fcp_side_layout(&h->plan, side, r, &at, &span))
            for (uint32_t i = 0; i < h->piece_count; i++) {
                const fcp_piece *piece = &h->pieces[i];
                const fcp_block *k = &h->blocks[piece->block];
                uint64_t begin = piece->start > span.start ? piece->start : span.start;
                uint64_t p_end = piece->start + piece->length, s_end = span.start + span.length;
                uint64_t end = p_end < s_end ? p_end : s_end;
                if (fcp_side_of(k) == side && piece->sequence == span.sequence && begin < end)
                    counts[r][k->home] += (uint32_t)(end - begin);
            }
    }
}

/* Inputs or outputs of all blocks, between the caller's layout and home: bundle by bundle, the units of each from some
 * unit on and round. */
static inline void moved_reshuffle(moved *m, fcp_class cls) {
    hand *h = m->h;
    static uint32_t counts[MOVED_RANKS][MOVED_RANKS];
    for (int side = 0; side < (fcp_plan_split(&h->plan) ? FCP_SIDES : 1); side++) {
        if (cls == FCP_OUT && m->pass == FCP_FORWARD && side == FCP_KEYS) continue;
        moved_count(m, (fcp_side)side, counts);
        for (uint32_t r = 0; r < m->o.ranks; r++)
            for (uint32_t home = 0; home < m->o.ranks; home++) {
                uint32_t n = counts[r][home], unit = r == home ? n : m->o.unit, units = n ? (n + unit - 1) / unit : 0;
                uint32_t begin = units ? moved_roll(m, units) : 0;
                for (uint32_t u = 0; u < units; u++) {
                    uint32_t first = (begin + u) % units * unit;
                    fcp_transfer t = {.peer = home, .cls = cls, .fabric = FCP_LOCAL, .block = FCP_NONE,
                                      .dir = cls == FCP_IN ? FCP_SEND : FCP_RECV, .first = first,
                                      .tokens = n - first < unit ? n - first : unit, .side = (uint32_t)side};
                    if (r == home) {
                        h->transfers[h->transfer_count++] = t;
                        moved_compute(m, r, FCP_OP_COPY, h->transfer_count - 1, 1, 0);
                        continue;
                    }
                    moved_side(m, r, t, m->round);
                    t.peer = r, t.dir = cls == FCP_IN ? FCP_RECV : FCP_SEND;
                    moved_side(m, home, t, m->round++);
                }
            }
    }
}

/* Draws one of the layouts, in groups of ranks if it is a rule. */
static inline void moved_layout(moved *m) {
    fcp_problem *p = &m->h->problem;
    p->layout = moved_roll(m, FCP_LAYOUTS);
    if (p->layout == FCP_LAYOUT_PLANNED) return;
    do p->layout_group = 1 + moved_roll(m, p->ranks);
    while (p->ranks % p->layout_group);
}

/* --- tables ------------------------------------------------------------------------------------------------------- */

static inline void moved_blocks(moved *m, uint32_t holds, uint32_t heads) {
    hand *h = m->h;
    uint32_t first = h->block_count;
    for (uint32_t s = 0; s < h->sequence_count; s++) {
        uint64_t tokens = holds & FCP_HOLDS_Q ? h->sequences[s].queries : h->sequences[s].keys;
        for (uint64_t start = 0, length; start < tokens; start += length) {
            length = tokens - start < m->o.block ? tokens - start : m->o.block;
            fcp_block *b = h->block_count > first ? &h->blocks[h->block_count - 1] : NULL;
            if (!b || b->tokens + length > m->o.block) {
                b = &h->blocks[h->block_count++];
                *b = (fcp_block){.first_piece = h->piece_count, .holds = (uint16_t)holds, .heads = heads};
            }
            h->pieces[h->piece_count++] = (fcp_piece){.sequence = s, .length = (uint32_t)length, .start = start,
                                                      .offset = b->tokens, .block = h->block_count - 1};
            b->pieces++;
            b->tokens += (uint32_t)length;
        }
    }
}

/* Ranges of heads with their blocks, each with a home. */
static inline void moved_homes(moved *m, bool split) {
    hand *h = m->h;
    const fcp_problem *p = &h->problem;
    uint32_t group = p->heads / p->kv_heads;
    bool apart = p->range_sub < group;
    for (uint32_t kv = 0; kv < p->kv_heads; kv += p->range_kv) {
        uint32_t all = h->heads_count++;
        h->heads[all] = (fcp_heads){kv, p->range_kv, 0, group};
        if (!apart && !split) moved_blocks(m, FCP_HOLDS_BOTH, all);
        if (apart || split) moved_blocks(m, FCP_HOLDS_KV, all);
        if (!apart && split) moved_blocks(m, FCP_HOLDS_Q, all);
        for (uint32_t sub = 0; apart && sub < group; sub += p->range_sub) {
            h->heads[h->heads_count] = (fcp_heads){kv, p->range_kv, sub, p->range_sub};
            moved_blocks(m, FCP_HOLDS_Q, h->heads_count++);
        }
    }
    for (uint32_t b = 0; b < h->block_count; b++) {
        h->blocks[b].home = moved_roll(m, m->o.ranks);
        h->blocks[b].home_slot = m->homes[h->blocks[b].home]++;
    }
}

/* From whom a rank gets a block: from home, or from another rank, which then gets it too. Draws until there is no
 * circle. */
static inline void moved_route(moved *m, fcp_class cls, uint32_t rank, uint32_t block) {
    uint32_t home = m->h->blocks[block].home;
    if (rank == home || m->from[cls][rank][block] != FCP_NONE) return;
    m->slot[cls][rank][block] = m->homes[rank] + m->fetched[cls][rank]++;
    uint32_t from = moved_roll(m, m->o.ranks);
    m->from[cls][rank][block] = rank; /* a rank that is being routed cannot be on the way to itself */
    for (uint32_t at = from; at != home; at = m->from[cls][at][block])
        if (m->from[cls][at][block] == FCP_NONE) break;
        else if (m->from[cls][at][block] == at) {
            from = home;
            break;
        }
    moved_route(m, cls, from, block);
    m->from[cls][rank][block] = from;
}

/* Where tiles run. The tile of two blocks is made later, when it is known in which order. */
static inline void moved_place(moved *m) {
    hand *h = m->h;
    const uint32_t part_count = h->part_count, shape_count = h->shape_count, run_count = h->run_count;
    for (uint32_t q = 0; q < h->block_count; q++) {
        fcp_block *b = &h->blocks[q];
        uint32_t how = m->o.kind == MOVED_ANY ? moved_roll(m, 4) : m->o.kind == MOVED_HOME ? 0 : 1;
        uint32_t some[3], at = FCP_NONE;
        for (int i = 0; i < 3; i++) some[i] = moved_roll(m, m->o.ranks);
        if (how == 1 && m->o.ranks > 1) some[0] = (b->home + 1 + some[0] % (m->o.ranks - 1)) % m->o.ranks;
        bool one = true, at_home = false;
        for (uint32_t k = 0; k < h->block_count; k++) {
            m->exec[q][k] = FCP_NONE;
            if (!(b->holds & FCP_HOLDS_Q) || !(h->blocks[k].holds & FCP_HOLDS_KV) ||
                h->heads[b->heads].kv_first != h->heads[h->blocks[k].heads].kv_first || !hand_tile(h, q, k, 0))
                continue;
            uint32_t rank = how == 0 ? b->home : how == 1 ? some[0] : how == 2 ? some[moved_roll(m, 3)]
                                                                               : moved_roll(m, m->o.ranks);
            m->exec[q][k] = rank;
            one = one && (at == FCP_NONE || at == rank);
            at_home = at_home || rank == b->home;
            at = rank;
        }
        m->maker[q] = b->home;
        if (at == FCP_NONE || at_home) continue;
        m->alone[q] = one;
        if (one) m->maker[q] = at;
        else if (moved_roll(m, 3)) m->maker[q] = (b->home + 1 + moved_roll(m, m->o.ranks - 1)) % m->o.ranks;
        if (m->maker[q] != b->home) b->flags = FCP_BLOCK_WHOLE;
    }
    h->tile_count = 0, h->part_count = part_count, h->shape_count = shape_count, h->run_count = run_count;
}

/* The visits of each rank, in a drawn order, with their tiles. How a block's tiles are cut into visits depends on the
 * seed and the block, and not on where they run. */
static inline void moved_visits(moved *m) {
    hand *h = m->h;
    for (uint32_t r = 0; r < m->o.ranks; r++) {
        m->visit_first[r] = h->visit_count;
        struct { uint32_t q, k[MOVED_BLOCKS], count; } list[256];
        uint32_t count = 0;
        for (uint32_t q = 0; q < h->block_count; q++) {
            uint64_t dice = m->o.seed * 1000003 + q;
            uint32_t order[MOVED_BLOCKS], n = 0, open = FCP_NONE;
            for (uint32_t k = 0; k < h->block_count; k++)
                if (m->exec[q][k] == r) order[n++] = k;
            for (uint32_t i = 0; i < n; i++) {
                uint32_t j = i + moved_draw(&dice, n - i), k = order[j];
                order[j] = order[i];
                if (open == FCP_NONE || moved_draw(&dice, 3) == 0)
                    open = count++, list[open].q = q, list[open].count = 0;
                list[open].k[list[open].count++] = k;
            }
        }
        for (uint32_t left = count; left; left--) {
            uint32_t i = moved_roll(m, left);
            while (i > 0 && list[i - 1].q == list[i].q) i--; /* visits to a block in their order */
            uint32_t q = list[i].q, first = h->tile_count;
            moved_route(m, FCP_Q, r, q);
            for (uint32_t j = 0; j < list[i].count; j++) {
                uint32_t k = list[i].k[j];
                moved_route(m, FCP_KV, r, k);
                hand_tile(h, q, k, h->blocks[k].home == r ? h->blocks[k].home_slot : m->slot[FCP_KV][r][k]);
            }
            h->visits[h->visit_count++] =
                (fcp_visit){.q_block = q,
                            .first_tile = first,
                            .tiles = h->tile_count - first,
                            .state_slot = FCP_NONE,
                            .o_slot = FCP_NONE,
                            .q_slot = h->blocks[q].home == r ? h->blocks[q].home_slot : m->slot[FCP_Q][r][q]};
            memmove(&list[i], &list[i + 1], (left - 1 - i) * sizeof *list);
        }
    }
    m->visit_first[m->o.ranks] = h->visit_count;
}

/* --- partial results ---------------------------------------------------------------------------------------------- */

static inline moved_part *moved_part_of(moved *m, fcp_class cls, uint32_t rank, uint32_t block) {
    return &m->part[cls][rank][block];
}
/* The slot in which a rank adds a block's partial results up. */
static inline uint32_t moved_sum(moved *m, fcp_class cls, uint32_t rank, uint32_t block) {
    moved_part *p = moved_part_of(m, cls, rank, block);
    const fcp_block *b = &m->h->blocks[block];
    if (p->slot == FCP_NONE) p->slot = b->home == rank && cls != FCP_STATE ? b->home_slot : moved_take(m, cls, rank);
    return p->slot;
}
/* Where all shares meet. */
static inline uint32_t moved_end(const moved *m, fcp_class cls, uint32_t block) {
    return cls == FCP_DKV ? m->h->blocks[block].home : m->maker[block];
}
/* Whether any other rank still owes a share. */
static inline bool moved_owed(moved *m, fcp_class cls, uint32_t block) {
    for (uint32_t r = 0; r < m->o.ranks; r++) {
        const moved_part *p = moved_part_of(m, cls, r, block);
        if (r != moved_end(m, cls, block) && p->takes_part && !p->sent) return true;
    }
    return false;
}
/* Returns a rank's share: to another that still owes its own, to one that only adds, or to where all meet. */
static inline void moved_return(moved *m, fcp_class cls, uint32_t rank, uint32_t block) {
    static const fcp_op ops[FCP_CLASSES] = {
        [FCP_STATE] = FCP_OP_MERGE, [FCP_DKV] = FCP_OP_REDUCE, [FCP_DQ] = FCP_OP_REDUCE_Q};
    moved_part *p = moved_part_of(m, cls, rank, block);
    uint32_t to = moved_roll(m, m->o.ranks), end = moved_end(m, cls, block);
    const moved_part *other = moved_part_of(m, cls, to, block);
    bool fresh = !other->takes_part && moved_roll(m, 3) == 0; /* it only adds and sends on */
    if (to == rank || other->sent || !(other->takes_part || fresh) || to == m->h->blocks[block].home) to = end;
    uint32_t landing = moved_take(m, cls, to);
    moved_send(m, cls, block, rank, p->slot, to, landing);
    moved_give(m, cls, rank, p->slot);
    p->sent = true;
    moved_part_of(m, cls, to, block)->takes_part = true;
    moved_compute(m, to, ops[cls], block, landing, moved_sum(m, cls, to, block));
    moved_give(m, cls, to, landing);
}
/* Returns a whole result, perhaps by way of a rank that passes it on. */
static inline void moved_return_whole(moved *m, fcp_class cls, uint32_t rank, uint32_t slot, uint32_t block) {
    const fcp_block *b = &m->h->blocks[block];
    uint32_t over = moved_roll(m, m->o.ranks);
    if (over == rank || over == b->home) {
        moved_send(m, cls, block, rank, slot, b->home, b->home_slot);
        return;
    }
    uint32_t between = moved_take(m, cls, over);
    moved_send(m, cls, block, rank, slot, over, between);
    moved_send(m, cls, block, over, between, b->home, b->home_slot);
    moved_give(m, cls, over, between);
}

/* --- passes ------------------------------------------------------------------------------------------------------- */

/* A visit in the forward pass: flags and slots, and what follows it at once. */
static inline void moved_forward(moved *m, uint32_t r, uint32_t v) {
    fcp_visit *x = &m->h->visits[v];
    const fcp_block *b = &m->h->blocks[x->q_block];
    moved_part *p = moved_part_of(m, FCP_STATE, r, x->q_block);
    bool home = b->home == r;
    bool last = --p->left == 0 && (m->alone[x->q_block] ||
                                   (home && !moved_owed(m, FCP_STATE, x->q_block) && moved_roll(m, 2)));
    if (p->slot == FCP_NONE) x->flags |= FCP_VISIT_FIRST;
    if (last) x->flags |= FCP_VISIT_LAST;
    if (x->flags != (FCP_VISIT_FIRST | FCP_VISIT_LAST)) x->state_slot = moved_sum(m, FCP_STATE, r, x->q_block);
    if (last) x->o_slot = home ? b->home_slot : moved_take(m, FCP_O, r);
    moved_compute(m, r, FCP_OP_ATTEND, v, 1, 0);
    if (!last) return;
    if (p->slot != FCP_NONE) moved_give(m, FCP_STATE, r, p->slot);
    p->slot = FCP_NONE;
    p->sent = true;
    if (home) return;
    moved_return_whole(m, FCP_O, r, x->o_slot, x->q_block);
    moved_give(m, FCP_O, r, x->o_slot);
}

/* Makes the result of a block of what one rank has: a FINISH or a ROUND. It goes home, if it is not there. */
static inline void moved_finish(moved *m, uint32_t block) {
    const bool back = m->pass == FCP_BACKWARD;
    const fcp_class sum = back ? FCP_DQ : FCP_STATE, result = back ? FCP_DQW : FCP_O;
    const uint32_t r = m->maker[block];
    const bool away = r != m->h->blocks[block].home;
    moved_part *p = moved_part_of(m, sum, r, block);
    uint32_t slot = away ? moved_take(m, result, r) : 0;
    moved_compute(m, r, back ? FCP_OP_ROUND : FCP_OP_FINISH, block, p->slot, slot);
    moved_give(m, sum, r, p->slot);
    p->sent = true;
    if (!away) return;
    moved_return_whole(m, result, r, slot, block);
    moved_give(m, result, r, slot);
}

static inline void moved_backward(moved *m, uint32_t r, uint32_t v) {
    hand *h = m->h;
    fcp_visit *x = &h->visits[v];
    moved_part *p = moved_part_of(m, FCP_DQ, r, x->q_block);
    x->dq_slot = moved_sum(m, FCP_DQ, r, x->q_block);
    for (uint32_t t = x->first_tile; t < x->first_tile + x->tiles; t++) {
        h->tiles[t].dkv_slot = moved_sum(m, FCP_DKV, r, h->tiles[t].k_block);
        moved_part_of(m, FCP_DKV, r, h->tiles[t].k_block)->left--;
    }
    moved_compute(m, r, FCP_OP_ATTEND, v, 1, 0);
    if (!--p->left && m->alone[x->q_block]) moved_finish(m, x->q_block);
}

/* Makes the results that are not made yet. */
static inline void moved_finish_all(moved *m, fcp_class sum) {
    for (uint32_t b = 0; b < m->h->block_count; b++) {
        const uint32_t r = m->maker[b];
        const moved_part *p = moved_part_of(m, sum, r, b);
        if (p->takes_part && !p->sent && (sum == FCP_STATE || r != m->h->blocks[b].home)) moved_finish(m, b);
    }
}

/* Plays a pass. */
static inline void moved_pass(moved *m, fcp_pass pass) {
    hand *h = m->h;
    const fcp_class sums[FCP_PASSES][2] = {{FCP_STATE, FCP_STATE}, {FCP_DQ, FCP_DKV}};
    uint32_t next[MOVED_RANKS];
    m->pass = pass;
    m->round = 0;
    memset(m->queue, 0, sizeof m->queue);
    memset(m->here, 0, sizeof m->here);
    memset(m->slots, 0, sizeof m->slots);
    memset(m->part, 0, sizeof m->part);
    for (int cls = 0; cls < FCP_CLASSES; cls++)
        for (uint32_t r = 0; r < m->o.ranks; r++)
            for (uint32_t b = 0; b < h->block_count; b++) m->part[cls][r][b].slot = FCP_NONE;
    for (uint32_t r = 0; r < m->o.ranks; r++)
        for (uint32_t v = next[r] = m->visit_first[r]; v < m->visit_first[r + 1]; v++) {
            moved_part *p = moved_part_of(m, sums[pass][0], r, h->visits[v].q_block);
            p->left++, p->takes_part = true;
            for (uint32_t t = 0; pass == FCP_BACKWARD && t < h->visits[v].tiles; t++) {
                p = moved_part_of(m, FCP_DKV, r, h->tiles[h->visits[v].first_tile + t].k_block);
                p->left++, p->takes_part = true;
            }
        }
    moved_reshuffle(m, FCP_IN);
    for (uint32_t r = 0; pass == FCP_BACKWARD && r < m->o.ranks; r++)
        for (uint32_t at = 0, step; at < m->homes[r]; at += step) {
            step = 1 + moved_roll(m, m->homes[r] - at);
            moved_compute(m, r, FCP_OP_DELTA, at, step, 0);
        }
    for (bool more = true; more;) {
        more = false;
        for (uint32_t r = 0; r < m->o.ranks; r++) { /* one visit of some ranks */
            if (next[r] == m->visit_first[r + 1]) continue;
            more = true;
            if (moved_roll(m, 2)) continue;
            const fcp_visit *v = &h->visits[next[r]];
            moved_fetch(m, FCP_Q, r, v->q_block);
            for (uint32_t t = 0; t < v->tiles; t++) moved_fetch(m, FCP_KV, r, h->tiles[v->first_tile + t].k_block);
            if (pass == FCP_FORWARD) moved_forward(m, r, next[r]++);
            else moved_backward(m, r, next[r]++);
        }
        for (int i = 0; i <= (int)pass; i++) /* returns of some that are complete */
            for (uint32_t b = 0; b < h->block_count; b++)
                for (uint32_t r = 0; r < m->o.ranks; r++) {
                    const moved_part *p = moved_part_of(m, sums[pass][i], r, b);
                    if (moved_end(m, sums[pass][i], b) == r || !p->takes_part || p->left || p->sent) continue;
                    more = true;
                    if (moved_roll(m, 2)) moved_return(m, sums[pass][i], r, b);
                }
    }
    moved_finish_all(m, sums[pass][0]);
    moved_reshuffle(m, FCP_OUT);
    for (uint32_t r = 0; r < m->o.ranks; r++)
        for (int queue = 0; queue < FCP_QUEUES; queue++) {
            const moved_queue *q = &m->queue[r][queue];
            h->streams[(pass * m->o.ranks + r) * FCP_QUEUES + (uint32_t)queue] = (fcp_stream){h->instr_count, q->count};
            memcpy(&h->instrs[h->instr_count], q->list, q->count * sizeof *q->list);
            h->instr_count += q->count;
        }
}

/* NULL when out of memory. hand_free frees it. */
static inline hand *moved_make(const moved_options *o) {
    hand *h = calloc(1, sizeof *h);
    moved *m = calloc(1, sizeof *m);
    bool split = false;
    if (!h || !m) {
        free(h);
        free(m);
        return NULL;
    }
    m->h = h;
    m->o = *o;
    m->state = o->seed;
    h->problem = (fcp_problem){.ranks = o->ranks, .nodes = 1, .gpus = o->ranks, .heads = o->heads,
                               .documents = FCP_NONE,
                               .kv_heads = o->kv_heads,
                               .head_dim = o->head_dim, .value_dim = o->value_dim ? o->value_dim : o->head_dim,
                               .values_in_keys = o->values_in_keys, .lse_gradient = o->lse_gradient,
                               .wire = (uint16_t)o->wire, .layout_group = o->ranks,
                               .range_kv = o->range_kv ? o->range_kv : o->kv_heads,
                               .range_sub = o->range_sub ? o->range_sub : o->heads / o->kv_heads, .dtype = o->dtype,
                               .block = o->block, .max_block = o->block, .max_q_block = o->block, .unit = o->unit,
                               .coalesce = 1, .buffers = 3, .passes = 3, .scale = 0.125,
                               .align = o->top_left ? FCP_TOP_LEFT : FCP_BOTTOM_RIGHT};
    for (uint32_t s = 0; s < o->count; s++) {
        uint64_t keys = o->keys ? o->keys[s] : o->lengths[s];
        h->sequences[s] = (fcp_sequence){o->lengths[s], keys, o->top_left ? 0 : (int64_t)keys - (int64_t)o->lengths[s]};
        h->problem.tokens += o->lengths[s];
        h->problem.key_tokens += keys;
        split = split || keys != o->lengths[s];
    }
    h->sequence_count = o->count;
    hand_mask(h, o->mask);
    h->problem.mask_uses = mc_uses((mc_code){h->mask, h->mask_count});
    for (int cls = 0; cls < FCP_CLASSES; cls++) memset(m->from[cls], 0xff, sizeof m->from[cls]);
    h->deal = (fcp_deal){.sequences = o->count, .ranks = o->ranks};
    moved_layout(m);
    moved_homes(m, split);
    moved_place(m);
    moved_visits(m);
    hand_tables(h); /* a pass asks the plan where tokens lie */
    bool good = fcp_plan_index(&h->plan, NULL) == FCP_OK;
    if (good) moved_pass(m, FCP_FORWARD);
    if (good) moved_pass(m, FCP_BACKWARD);
    free(m);
    hand_tables(h);
    if (good && fcp_plan_index(&h->plan, NULL) == FCP_OK) return h;
    hand_free(h);
    return NULL;
}
#endif
