/* parts.h: what the files of the verifier share. Private to runtime/verify; verify.c says what is proven and how. */
#ifndef FCP_VERIFY_PARTS_H
#define FCP_VERIFY_PARTS_H
#include <stdarg.h>

#include "runtime/plan/plan.h"

/* What a pass was found to do. */
typedef struct pass_facts {
    uint64_t rounds[FCP_ROUND_KIND_COUNT];   /* by kind */
    uint64_t delta[FCP_FABRICS];          /* of the independent units */
    uint64_t sends;                       /* transfers between ranks */
    uint64_t kv_tokens[FCP_FABRICS], dkv_tokens[FCP_FABRICS]; /* sent */
    uint64_t in_tokens[FCP_SIDES], out_tokens[FCP_SIDES]; /* sent, by the block's side: copies do not count */
    uint64_t send_max, recv_max;          /* bytes of KV and DKV: the busiest rank's */
    uint64_t stages, last_stage;          /* last_stage: of any instruction or round */
    uint64_t slots_max;                   /* transient KV and DKV slots: the rank's that has most */
    uint64_t state_tokens;                /* tokens whose running state is read or written: forward */
    uint64_t memory_peak;
} pass_facts;

/* Tokens [first, first + tokens) of a block lie at, or go to, `place` of the caller's tensors. */
typedef struct placed {
    uint32_t place, tokens, block, first;
} placed;
typedef struct placed_list {
    placed *items;
    size_t count, room;
} placed_list;

typedef struct verifier {
    const fcp_plan *plan;
    const fcp_problem *p;
    const volatile int *stop; /* NULL, or where to read that the caller wants no more */
    fcp_error *err;
    /* per rank */
    uint32_t *node;
    uint32_t *homes;       /* home blocks */
    uint32_t *home_first;  /* ranks + 1, into home_blocks */
    uint64_t *home_tokens[FCP_SIDES]; /* of the blocks that hold it */
    /* per block */
    uint32_t *home_blocks; /* by rank, in order of home slot */
    uint32_t *visits_of;   /* as a Q block */
    uint8_t *attended;     /* per visit, of the pass at hand */
    uint64_t named;        /* transfers that instructions name */
    uint64_t pairs, pairs_max_rank, pairs_max_block, tokens_max_rank[FCP_SIDES];
    bool split;
    /* the pass at hand */
    fcp_pass pass;
    uint32_t *kv_recvs, *dkv_recvs, *dkv_sends; /* per rank */
    placed_list in[FCP_SIDES], out[FCP_SIDES];  /* of the rank at hand, by the block's side */
    void *sides, *delivered;                    /* memory of match.c, from pass to pass */
    size_t delivered_room;
    fcp_error late;                             /* what is wrong if nothing else is: Delta, memory */
    pass_facts facts[FCP_PASSES];
} verifier;

/* Transfers mostly lie in the order in which they are looked at, but the blocks they name do not: ask for them early.
 */
static inline void prefetch_block(const fcp_plan *plan, const fcp_transfer *t) {
    enum { AHEAD = 12 };
    if (t + AHEAD < plan->transfers + plan->transfers_count) __builtin_prefetch(&plan->blocks[t[AHEAD].block]);
}

/* An error at an instruction: pass, rank, queue, index, op and stage go before the message. */
fcp_code fcp_verify_fail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                         const char *format, ...) __attribute__((format(printf, 6, 7), cold));
fcp_code fcp_verify_vfail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                          const char *format, va_list args) __attribute__((format(printf, 6, 0), cold));
/* An error of a rank that no instruction is to blame for: "PASS, rank RANK", then the message, which begins with ", " or
 * ": ". Into *err: v->err, or v->late. */
fcp_code fcp_verify_fail_rank(const verifier *v, fcp_error *err, fcp_code code, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));
/* FCP_E_INTERRUPTED if the caller wants no more. */
fcp_code fcp_verify_stopped(const verifier *v);

/* verify_match.c: order of the communication queues, matchings, partners. Fills kv_recvs, dkv_recvs, dkv_sends, and
 * `late` if rounds are more than Delta. */
fcp_code fcp_verify_match(verifier *v);

/* verify_rank.c: one rank's two queues against its slots. Appends what IN and OUT move on the caller's side. */
typedef struct rank_buffers rank_buffers;
fcp_code fcp_verify_buffers(const verifier *v, rank_buffers **out); /* for the pass at hand */
void fcp_verify_buffers_free(rank_buffers *b);
fcp_code fcp_verify_rank(verifier *v, rank_buffers *b, uint32_t rank);

/* verify_layout.c: v->in and v->out move exactly the rank's tokens of the caller's layouts. Sorts them. */
fcp_code fcp_verify_layout(verifier *v, uint32_t rank);
#endif
