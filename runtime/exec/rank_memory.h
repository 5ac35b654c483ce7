/* rank_memory.h: the memory of one rank during a pass, its *arena*.
 *
 * A rank is the home of some blocks: it keeps their tokens. During a pass it also holds other data for a while:
 *   - keys and values that it received from other ranks;
 *   - queries of other ranks, which it computes for them;
 *   - partial gradients;
 *   - running sums (m, l and O) of queries that have not seen all their keys.
 * All of these lie in *slots*, which the plan numbers. The first slots are the home blocks themselves. The others are
 * transient, and are used again and again.
 *
 * Example: a rank with 3 home blocks and 2 transient KV slots has KV slots 0 to 4. A tile that reads slot 1 reads the
 *          rank's own second block. A tile that reads slot 4 reads the block that was last received into the second
 *          transient slot.
 */
#ifndef FCP_EXEC_RANK_MEMORY_H
#define FCP_EXEC_RANK_MEMORY_H
#include "runtime/plan/bytes.h"
#include "runtime/plan/plan.h"

/* The home blocks of a rank. A block that does not hold a side has no tokens of it. */
typedef struct fcp_homes {
    uint32_t homes;                   /* how many */
    const uint32_t *block;            /* [homes]: the block in each home slot */
    uint64_t tokens[FCP_SIDES];       /* of all of them */
    const uint64_t *first[FCP_SIDES]; /* [homes + 1]: the first home query, or key, of each home slot */
} fcp_homes;
/* The home blocks of every rank; of an extract, those of its own rank alone. An array with an entry for each rank, in one
 * piece of memory that the caller frees with free(). NULL: out of memory. */
fcp_homes *fcp_homes_of(const fcp_plan *plan);

/* How many transient slots of each class a rank uses in a pass, found by a walk over its instructions. 0 for IN, OUT
 * and classes that the pass does not have. */
typedef struct fcp_slots {
    uint64_t count[FCP_CLASSES];
} fcp_slots;
void fcp_slots_of(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t homes, fcp_slots *out_slots);

/* Where everything lies in a rank's arena.
 *
 * Rows. The row of a token is dense, and has only the heads of its block's range: [heads][head_dim] of Q and dQ,
 * [heads][value_dim] of O and dO, [kv_heads][head_dim] of K and dK, [kv_heads][value_dim] of V and dV.
 *
 * Home blocks follow each other in the order of their home slots. A tensor of queries has only the blocks that hold
 * queries, and one of keys only those that hold keys.
 *
 * Transient slots have room for the largest block:
 *   KV      K of max_block tokens, then V, in the dtype
 *   DKV     dK of max_block tokens, then dV, in float32
 *   STATE   O before it is divided by l, [max_q_block][heads][value_dim], then m [max_q_block][heads], then l
 *           [max_q_block][heads], in float32
 *   others  max_q_block rows of each tensor of the class. They follow the home rows of that tensor without a gap, so
 *           that one number says where the rows of any slot begin: fcp_arena_row
 *
 * With values_in_keys, V and dV have no memory of their own: v is k, and dv is dk. The next token of V then begins
 * where the next token of K does (fcp_value_stride). */
typedef struct fcp_arena {
    const fcp_plan *plan;
    fcp_pass pass;
    uint32_t rank, homes;
    uint32_t heads, kv_heads;              /* of a range of heads */
    const uint32_t *home_block;            /* as fcp_homes has them */
    const uint64_t *home_first[FCP_SIDES];
    fcp_slots slots;
    size_t bytes;                          /* of all of it */

    /* The rows of home tokens. A tensor that the pass neither reads nor writes is NULL. Behind its home rows a tensor
     * of queries has the rows of transient slots:
     *   slots of Q     in q; backward also in d_o, lse, lse_low and delta
     *   slots of O     (forward) in o, lse and lse_low
     *   slots of DQ    in dq
     *   slots of DQW   in dq_out */
    void *q, *k, *v, *o, *d_o;      /* in the dtype */
    float *lse, *lse_low, *delta;   /* [queries][heads] */
    float *d_lse;                   /* likewise, of home queries; NULL: the plan takes no gradient of LSE */
    float *dq, *dk, *dv;            /* sums under way */
    void *dq_out, *dk_out, *dv_out; /* the finished sums, in the dtype */
    /* Transient slots. */
    char *kv;
    float *state, *dkv;
    /* Of the run: fcp_tensors.sink, d_sink and max_logit. */
    const float *sink;
    float *d_sink, *max_logit;
    const double *table;      /* fcp_tensors.table; NULL: the plan's tables */
    struct fcp_sums *d_table; /* what will be fcp_tensors.d_table; NULL: nobody wants it */
    bool keys_kept;           /* K and V are in their slots since the run before: none of them moves (kept_keys.h) */
} fcp_arena;

/* The sink of a query head of the model, in a plan that has sinks. */
static inline double fcp_arena_sink(const fcp_arena *a, uint32_t head) {
    return a->sink ? (double)a->sink[head] : a->plan->sink[head];
}

/* The bytes of an arena. */
size_t fcp_arena_size(const fcp_plan *plan, fcp_pass pass, const fcp_homes *homes, const fcp_slots *slots);
/* Lays an arena out that begins at `memory`. What homes points to must live as long as the arena. */
void fcp_arena_lay(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_homes *homes, const fcp_slots *slots,
                   void *memory, fcp_arena *out_arena);

/* Where the tensors of a slot begin: K and V of a KV slot, dK and dV of a DKV slot, O, m and l of a STATE slot
 * (which is always transient). */
static inline void fcp_arena_kv(const fcp_arena *a, uint32_t slot, char **out_k, char **out_v) {
    const fcp_problem *p = a->plan->problem;
    size_t number = a->kv_heads * fcp_dtype_size((fcp_dtype)p->dtype), row = p->head_dim * number;
    if (slot < a->homes) {
        *out_k = (char *)a->k + a->home_first[FCP_KEYS][slot] * row;
        *out_v = (char *)a->v + a->home_first[FCP_KEYS][slot] * fcp_value_stride(p) * number;
    } else {
        *out_k = a->kv + (size_t)(slot - a->homes) * p->max_block * fcp_kv_dim(p) * number;
        *out_v = p->values_in_keys ? *out_k : *out_k + p->max_block * row;
    }
}
static inline void fcp_arena_dkv(const fcp_arena *a, uint32_t slot, float **out_dk, float **out_dv) {
    const fcp_problem *p = a->plan->problem;
    size_t row = (size_t)a->kv_heads * p->head_dim;
    if (slot < a->homes) {
        *out_dk = a->dk + a->home_first[FCP_KEYS][slot] * row;
        *out_dv = a->dv + a->home_first[FCP_KEYS][slot] * a->kv_heads * fcp_value_stride(p);
    } else {
        *out_dk = a->dkv + (size_t)(slot - a->homes) * p->max_block * a->kv_heads * fcp_kv_dim(p);
        *out_dv = p->values_in_keys ? *out_dk : *out_dk + p->max_block * row;
    }
}
static inline void fcp_arena_state(const fcp_arena *a, uint32_t slot, float **out_o, float **out_m, float **out_l) {
    const fcp_problem *p = a->plan->problem;
    *out_o = a->state + (size_t)slot * p->max_q_block * a->heads * (p->value_dim + 2);
    *out_m = *out_o + (size_t)p->max_q_block * a->heads * p->value_dim;
    *out_l = *out_m + (size_t)p->max_q_block * a->heads;
}
/* The row, in the tensors of its class, where a slot of class Q, O, DQ or DQW begins. */
static inline size_t fcp_arena_row(const fcp_arena *a, uint32_t slot) {
    if (slot < a->homes) return a->home_first[FCP_QUERIES][slot];
    return a->home_first[FCP_QUERIES][a->homes] + (size_t)(slot - a->homes) * a->plan->problem->max_q_block;
}
/* The rows of a slot of class Q, O, DQ or DQW. Only the tensors that the class has in the pass are meaningful: Q has
 * q and, backward, d_o, lse, lse_low and delta; O has o, lse and lse_low; DQ has dq; DQW has dq_out. */
typedef struct fcp_rows_at {
    char *q, *o, *d_o, *dq_out;
    float *lse, *lse_low, *delta, *dq;
} fcp_rows_at;
fcp_rows_at fcp_arena_rows(const fcp_arena *arena, uint32_t slot);
#endif
