/* rank_state.h: the state of one rank while its two queues run: what lies in its slots, and how far its Q blocks have
 * come. Private to runtime/verify; rank.c says what is proven.
 *
 * There are two kinds of slots. A *held* slot gets a block's tokens, unit by unit from elsewhere or from one
 * instruction, and then they are read: KV, Q, and the results O and DQW. A *partial* slot is added to: STATE, DKV, DQ.
 * Every rule about slots is stated for one of the two kinds, whatever the class.
 */
#ifndef FCP_VERIFY_RANK_STATE_H
#define FCP_VERIFY_RANK_STATE_H
#include "runtime/verify/verify_parts.h"

/* The three actors that access a slot: transfers over net, transfers over local, and the compute queue. The accesses
 * of each are in order. An access is recorded as the number of its instruction in its queue, + 1; 0 means none. */
enum { OVER_NET = FCP_NET, OVER_LOCAL = FCP_LOCAL, BY_COMPUTE = FCP_FABRICS, ACTORS };

/* A slot that holds a block, or receives one. KV and Q of a home block come in together, so its home slots of KV and
 * Q are one record. */
typedef struct held_slot {
    uint32_t block, left;                             /* left: tokens that have not arrived */
    uint32_t wrote[ACTORS], read[ACTORS];             /* since this block is in it */
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
    uint32_t touched[ACTORS];       /* over a fabric: since it was last received into */
} partial_slot;

/* A Q block at this rank: one whose home is here, or one of another home that is visited or merged here (a guest).
 * For a home block that holds only KV, just `out` is used. */
typedef struct q_state {
    uint32_t rank, block;     /* of a guest: whose record this is, rank + 1, since all ranks use the same memory */
    uint32_t visits, visited; /* how many visits so far; instruction + 1 of the last */
    uint32_t tiles;           /* how many tiles those visits had */
    uint32_t chain;           /* forward pass: the slot of its chain of state, + 1; 0: none is open */
    bool ended;               /* the chain has had its end */
    uint32_t made;            /* forward pass: the instruction that made O of it, + 1 */
    /* of home blocks */
    bool out;                 /* results have gone out */
    uint32_t got;             /* of a block that is WHOLE: tokens of its result that have arrived */
    uint32_t arrived[ACTORS]; /* of such a one: the instruction that brought the last of them over a fabric, + 1 */
    uint32_t delta;           /* backward pass: its DELTA, + 1 */
} q_state;

struct rank_buffers {
    held_slot *held[FCP_CLASSES];       /* of the classes that are held; home slots of Q, O and DQW are not used */
    partial_slot *partial[FCP_CLASSES]; /* of the others */
    q_state *home;                      /* by home slot */
    q_state *guest;                     /* by block; one record, if no rank has guests */
    uint32_t guests;
    void *room;                         /* of all of these */
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
    /* how many instructions of the communication queue computing has waited for, of what they move over each fabric;
     * and how many instructions of the compute queue communication has waited for */
    uint32_t known[ACTORS];
    uint32_t first[FCP_CLASSES];       /* the first transient slot: homes, but 0 for STATE */
    uint32_t room[FCP_CLASSES];        /* how many slots this rank can have any use for, home slots included */
    uint32_t used[FCP_CLASSES];        /* the largest slot named, + 1; at least `first` */
    uint32_t stage[FCP_QUEUES];        /* of the newest instruction */
    uint32_t computed, compute_scan, buffered; /* see check_buffers */
} run;

/* An error at the instruction where queue q stands. */
fcp_code fcp_verify_here(const run *r, fcp_code code, fcp_queue q, const char *format, ...)
    __attribute__((format(printf, 4, 5), cold));
#define fail(...) fcp_verify_here(__VA_ARGS__)

static inline bool fcp_verify_is_whole(const run *r, uint32_t block) {
    return r->plan->blocks[block].flags & FCP_BLOCK_WHOLE;
}
static inline q_state *fcp_verify_q(run *r, uint32_t block) {
    const fcp_block *k = &r->plan->blocks[block];
    if (k->home == r->rank) return &r->b->home[k->home_slot];
    q_state *g = &r->b->guest[block < r->b->guests ? block : 0];
    if (g->rank != r->rank + 1 || g->block != block) *g = (q_state){.rank = r->rank + 1, .block = block};
    return g;
}

/* Returns whether the compute queue knows that these accesses over both fabrics are over. */
static inline bool fcp_verify_moves_known(const run *r, const uint32_t at[ACTORS]) {
    return (at[OVER_NET] <= r->known[OVER_NET]) & (at[OVER_LOCAL] <= r->known[OVER_LOCAL]);
}
/* Is one of them by communication instruction `now`? */
static inline bool fcp_verify_moved_at(const uint32_t at[ACTORS], uint32_t now) {
    return (at[OVER_NET] == now) | (at[OVER_LOCAL] == now);
}
/* The communication instruction of the last of them. */
static inline uint32_t fcp_verify_moved_last(const uint32_t at[ACTORS]) {
    return at[OVER_NET] > at[OVER_LOCAL] ? at[OVER_NET] : at[OVER_LOCAL];
}

static inline void fcp_verify_use(run *r, fcp_class cls, uint32_t slot) {
    if (slot >= r->used[cls]) r->used[cls] = slot + 1;
}

/* --- check_compute.c ---------------------------------------------------------------------------------------------- */

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
