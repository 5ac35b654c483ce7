/* parts.h: what the files of the verifier share. Private to runtime/verify; verify.c says what is proven and how. */
#ifndef FCP_VERIFY_PARTS_H
#define FCP_VERIFY_PARTS_H
#include <stdarg.h>

#include "runtime/plan/plan.h"

/* What was found of a pass. */
typedef struct pass_facts {
    uint64_t rounds[FCP_ROUND_KIND_COUNT];
    uint64_t delta[FCP_FABRICS]; /* of the INDEPENDENT rounds */
    uint64_t sends;              /* transfers between ranks */
    uint64_t units_max;          /* without IN and OUT: the most that a rank sends, or receives, on a fabric */
    uint64_t kv_tokens[FCP_FABRICS], dkv_tokens[FCP_FABRICS]; /* sent */
    uint64_t in_tokens[FCP_SIDES], out_tokens[FCP_SIDES];     /* sent, by the block's side; copies do not count */
    uint64_t send_max, recv_max; /* bytes of KV and DKV, of the rank that sends most, that receives most */
    uint64_t stages;             /* number of stages */
    uint64_t last_stage;         /* the largest stage of any instruction or round */
    uint64_t slots_max;          /* the most transient KV and DKV slots of a rank */
    uint64_t state_tokens;       /* forward pass: tokens whose running state is read, plus those whose is written */
    uint64_t memory_peak;        /* bytes, of the rank that needs most */
} pass_facts;

/* Tokens [first, first + tokens) of a block come from, or go to, token `place` of the caller's tensors. */
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
    const volatile int *stop; /* NULL, or not 0 once the caller wants the verifier to end */
    fcp_error *err;
    /* per rank */
    uint32_t *node;
    uint32_t *homes;       /* how many home blocks it has */
    uint32_t *home_first;  /* ranks + 1 of them: where its blocks begin in home_blocks */
    uint64_t *home_tokens[FCP_SIDES]; /* of its home blocks that hold the side */
    /* per block */
    uint32_t *home_blocks; /* by rank, in order of home slot */
    uint32_t *visits_of;   /* how many visits it has as a Q block */
    /* over the plan */
    uint8_t *attended;     /* per visit: computed in this pass */
    uint64_t named;        /* transfers that instructions name */
    uint64_t peers_max;    /* the most ranks that one rank talks to */
    uint64_t pairs, pairs_max_rank, pairs_max_block, tokens_max_rank[FCP_SIDES];
    bool split;
    /* the pass that is looked at */
    fcp_pass pass;
    uint32_t *kv_recvs, *dkv_recvs, *dkv_sends; /* per rank */
    placed_list in[FCP_SIDES], out[FCP_SIDES];  /* of the rank that is looked at, by the block's side */
    void *sides, *delivered;                    /* memory of match.c, kept from pass to pass */
    size_t delivered_room;
    fcp_error late; /* Delta or memory is wrong: reported if nothing else is, since other damage disturbs them, too */
    pass_facts facts[FCP_PASSES];
} verifier;

/* Transfers lie in the order in which they are looked at, but the blocks that they name do not: fetch those early. */
static inline void prefetch_block(const fcp_plan *plan, const fcp_transfer *t) {
    enum { AHEAD = 12 };
    if (t + AHEAD < plan->transfers + plan->transfers_count) __builtin_prefetch(&plan->blocks[t[AHEAD].block]);
}

/* An error at an instruction. The message gets the pass, rank, queue, index, op and stage in front. */
fcp_code fcp_verify_fail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                         const char *format, ...) __attribute__((format(printf, 6, 7), cold));
fcp_code fcp_verify_vfail(const verifier *v, fcp_code code, uint32_t rank, fcp_queue queue, uint32_t index,
                          const char *format, va_list args) __attribute__((format(printf, 6, 0), cold));
/* An error of a rank that no single instruction causes. It goes into *err, which is v->err or &v->late. The message
 * gets "PASS, rank RANK" in front, and begins with ", " or ": ". */
fcp_code fcp_verify_fail_rank(const verifier *v, fcp_error *err, fcp_code code, uint32_t rank, const char *format, ...)
    __attribute__((format(printf, 5, 6), cold));
/* FCP_E_INTERRUPTED once the caller wants the verifier to end. */
fcp_code fcp_verify_stopped(const verifier *v);

/* match.c: the communication queues are in order, and sends and receives meet. Fills kv_recvs, dkv_recvs and dkv_sends,
 * and `late` if there are more rounds than Delta. */
fcp_code fcp_verify_match(verifier *v);

/* rank.c: one rank's two queues against its slots. Fills v->in and v->out with what IN and OUT move on the caller's
 * side. */
typedef struct rank_buffers rank_buffers;
fcp_code fcp_verify_buffers(const verifier *v, rank_buffers **out); /* room for any rank, in this pass */
void fcp_verify_buffers_free(rank_buffers *b);
fcp_code fcp_verify_rank(verifier *v, rank_buffers *b, uint32_t rank);

/* layout.c: v->in and v->out, which it sorts, move exactly the tokens that the caller holds at the rank. */
fcp_code fcp_verify_layout(verifier *v, uint32_t rank);
#endif
