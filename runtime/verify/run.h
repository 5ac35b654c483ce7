/* run.h: one rank's two queues while they run: what lies in its slots, and how far its Q blocks have come. Private to
 * runtime/verify; rank.c says what is proven.
 *
 * There are two kinds of slots. A *held* slot gets a block's tokens from elsewhere, unit by unit, or from one
 * instruction, and they are read: KV, Q, and the results O and dQ (O, DQW). A *partial* slot is one that is added to:
 * STATE, DKV, DQ. Every rule about a slot is stated for one of the two kinds, for whatever class it is of.
 */
#ifndef FCP_VERIFY_RUN_H
#define FCP_VERIFY_RUN_H
#include "runtime/verify/parts.h"

/* An access is written down as the number of its instruction in its queue, + 1; 0 means that there was none. */

/* A slot that holds a block, or receives one. KV and Q of a home block come in together, so its home slots of KV and Q
 * are one. */
typedef struct held_slot {
    uint32_t block, left;                             /* left: tokens that have not arrived */
    uint32_t wrote[FCP_QUEUES], read[FCP_QUEUES];     /* since this block is in it */
    uint32_t sent;                                    /* how many of its first tokens have been sent */
} held_slot;

typedef enum partial_kind { EMPTY, ADDING, LEAVING, ARRIVING, ARRIVED } partial_kind;
/* A slot that adds up. Home slots are ADDING all the time. */
typedef struct partial_slot {
    uint32_t block, kind;
    uint32_t tokens;                /* LEAVING, ARRIVING: how many have left, have arrived */
    uint32_t peer;                  /* LEAVING, ARRIVING, ARRIVED: the other rank */
    uint32_t round;                 /* ARRIVED: the round that brought the last unit */
    uint32_t last_round, last_peer; /* ADDING: of the last partial that was added to it, + 1 */
    uint32_t touched[FCP_QUEUES];
} partial_slot;

/* A Q block at this rank: one at home here, or a guest that is visited or merged here. Of a home block that holds KV
 * alone, `out` is used. */
typedef struct q_state {
    uint32_t rank, block;     /* of a guest: whose record this is, rank + 1, since all ranks use the same memory */
    uint32_t visits, visited; /* how many visits so far; instruction + 1 of the last */
    uint32_t tiles, total;    /* how many tiles those visits had; how many the block has in all */
    uint32_t state;           /* forward pass: the slot of its chain, or FCP_NONE if none is open */
    bool whole;               /* FCP_BLOCK_WHOLE */
    bool ended;               /* the chain has had its end */
    /* of home blocks */
    bool out;                 /* results have gone out */
    uint32_t made;            /* forward pass: the instruction that made O, + 1 */
    uint32_t left;            /* of a block that is WHOLE: tokens of its result that have not arrived */
    uint32_t arrived;         /* of such a one: the instruction that brought the last of them, + 1 */
    uint32_t delta;           /* backward pass: its DELTA, + 1 */
} q_state;

struct rank_buffers {
    held_slot *held[FCP_CLASSES];       /* of the classes that are held; home slots of Q, O and DQW are not used */
    partial_slot *partial[FCP_CLASSES]; /* of the others */
    q_state *home;                      /* by home slot */
    q_state *guest;                     /* by block; one record, if no rank has guests */
    uint32_t guests;
};

typedef struct run {
    verifier *v;
    const fcp_plan *plan;
    rank_buffers *b;
    uint32_t rank, homes;
    const uint32_t *blocks;            /* home blocks */
    const fcp_round *rounds;           /* of the pass */
    const fcp_instr *instr[FCP_QUEUES];
    uint32_t count[FCP_QUEUES], done[FCP_QUEUES];
    uint32_t known[FCP_QUEUES];        /* how many instructions of the other queue it has waited for */
    uint32_t first[FCP_CLASSES];       /* the first transient slot: homes, but 0 for STATE */
    uint32_t room[FCP_CLASSES];        /* how many slots this rank can have any use for, home slots included */
    uint32_t used[FCP_CLASSES];        /* the largest slot named, + 1; at least `first` */
    uint32_t stage[FCP_QUEUES];        /* of the newest instruction */
    uint32_t computed, compute_scan;   /* see check_buffers */
} run;

/* An error at the instruction where queue q stands. */
fcp_code fcp_verify_here(const run *r, fcp_code code, fcp_queue q, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));
#define fail(...) fcp_verify_here(__VA_ARGS__)

static inline q_state fcp_verify_fresh(const run *r, uint32_t block, const fcp_block *k) {
    return (q_state){.rank = r->rank + 1, .block = block, .total = r->v->work[block].tiles, .state = FCP_NONE,
                     .whole = k->flags & FCP_BLOCK_WHOLE, .left = k->tokens};
}
static inline q_state *fcp_verify_q(run *r, uint32_t block) {
    const fcp_block *k = &r->plan->blocks[block];
    if (k->home == r->rank) return &r->b->home[k->home_slot];
    q_state *g = &r->b->guest[block < r->b->guests ? block : 0];
    if (g->rank != r->rank + 1 || g->block != block) *g = fcp_verify_fresh(r, block, k);
    return g;
}

static inline void fcp_verify_use(run *r, fcp_class cls, uint32_t slot) {
    if (slot >= r->used[cls]) r->used[cls] = slot + 1;
}

/* --- held.c ------------------------------------------------------------------------------------------------------- */

/* The slot of a class and number, or NULL. */
static inline held_slot *fcp_verify_held(const run *r, fcp_class cls, uint32_t slot) {
    if (slot >= r->room[cls]) return NULL;
    return &r->b->held[cls == FCP_Q && slot < r->homes ? FCP_KV : cls][slot];
}
/* Does the slot have all of its block, and does the compute queue know? */
static inline bool fcp_verify_ready(const run *r, const held_slot *s) {
    return s->left == 0 && s->wrote[FCP_COMM] <= r->known[FCP_COMPUTE];
}
/* A block is not in its slot when queue q reads it, on behalf of `reader` number `id`: words the error. */
fcp_code fcp_verify_absent(run *r, fcp_queue q, const char *reader, uint32_t id, fcp_class cls, uint32_t block,
                           uint32_t slot) __attribute__((cold));
fcp_code fcp_verify_send_held(run *r, const fcp_transfer *t);
fcp_code fcp_verify_receive_held(run *r, const fcp_transfer *t);
/* Instruction `now` of the compute queue puts a result of a block into a transient slot of class O or DQW. */
fcp_code fcp_verify_put(run *r, fcp_class cls, uint32_t block, uint32_t slot);
/* What lies in a slot goes away: it must have been of use. */
void fcp_verify_dead(run *r, fcp_class cls, uint32_t slot) __attribute__((cold));
static inline void fcp_verify_leave(run *r, fcp_class cls, uint32_t slot) {
    const held_slot *s = &r->b->held[cls][slot];
    if (s->block == FCP_NONE || s->read[FCP_COMPUTE]) return;
    if (s->left || s->sent != r->plan->blocks[s->block].tokens) fcp_verify_dead(r, cls, slot);
}

/* --- partial.c ---------------------------------------------------------------------------------------------------- */

/* `what` (number id) adds to a slot: a transient one, or, at the block's home, home slot `home`; elsewhere that is
 * FCP_NONE. The first contribution begins a transient slot. */
fcp_code fcp_verify_begin(run *r, fcp_class cls, const char *what, uint32_t id, uint32_t block, uint32_t slot,
                          uint32_t home);
static inline fcp_code fcp_verify_contribute(run *r, fcp_class cls, const char *what, uint32_t id, uint32_t block,
                                             uint32_t slot, uint32_t home) {
    if (home == FCP_NONE ? slot < r->homes || slot >= r->room[cls] : slot != home || r->b->home[home].out)
        return fcp_verify_begin(r, cls, what, id, block, slot, home);
    partial_slot *s = &r->b->partial[cls][slot];
    if (s->kind != ADDING || s->block != block) return fcp_verify_begin(r, cls, what, id, block, slot, home);
    s->touched[FCP_COMPUTE] = r->done[FCP_COMPUTE] + 1;
    return FCP_OK;
}
fcp_code fcp_verify_send_partial(run *r, const fcp_transfer *t);
fcp_code fcp_verify_receive_partial(run *r, const fcp_transfer *t, uint32_t round);
/* MERGE, REDUCE, REDUCE_Q. */
fcp_code fcp_verify_add(run *r, const fcp_instr *x);
/* ROUND, which empties a DQ slot. */
fcp_code fcp_verify_round(run *r, const fcp_instr *x);
/* Nothing may be left in a partial slot when both queues have ended. */
fcp_code fcp_verify_nothing_left(run *r, fcp_class cls);

/* --- work.c ------------------------------------------------------------------------------------------------------- */

fcp_code fcp_verify_attend(run *r, const fcp_instr *x);
fcp_code fcp_verify_finish(run *r, const fcp_instr *x);
fcp_code fcp_verify_delta(run *r, const fcp_instr *x);
/* Tokens of a home block come in, by a COPY or a receive; results of it go out, by a COPY or a send. */
fcp_code fcp_verify_bring_in(run *r, fcp_queue q, const fcp_transfer *t);
fcp_code fcp_verify_take_out(run *r, fcp_queue q, const fcp_transfer *t);
/* Tokens of a result arrive at the home of a block that is WHOLE. */
fcp_code fcp_verify_receive_result(run *r, const fcp_transfer *t);
/* Every home block that holds Q has had its DELTA. */
fcp_code fcp_verify_deltas(run *r);
#endif
