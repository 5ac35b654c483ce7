/* arena.h: one rank's memory during a pass: its home blocks, and slots for blocks that are there for a while. */
#ifndef FCP_EXEC_ARENA_H
#define FCP_EXEC_ARENA_H
#include "runtime/plan/plan.h"

/* Where a rank's tensors lie in its arena, during one pass. Blocks are [tokens][heads or kv_heads][head_dim], as on the
 * wire; the home blocks of a rank lie behind each other in home slot order, on each side those that hold it.
 * A transient KV slot is K of max_block tokens, then V. A DKV slot likewise, in float32. A STATE slot is O,
 * unnormalised, [max_q_block][heads][head_dim], then m [max_q_block][heads] in log2 units, then l likewise. */
typedef struct fcp_arena {
    const fcp_plan *plan;
    fcp_pass pass;
    uint32_t rank, homes;
    const uint64_t *home_first[FCP_SIDES]; /* homes + 1: the first home query and key of each home slot */
    uint32_t kv_slots, state_slots, dkv_slots; /* transient ones */
    size_t bytes;

    void *q, *k, *v, *o, *d_o;  /* of home tokens: queries, or keys for k and v; in the dtype */
    float *lse, *delta;         /* [home queries][heads] */
    float *dq, *dk, *dv;        /* accumulators of home tokens */
    void *dq_out, *dk_out, *dv_out; /* the same in the dtype, once finished */
    char *kv;
    float *state, *dkv;
} fcp_arena;

/* The home blocks of a rank, their tokens of each side, and the first token of each home slot (homes + 1). A side that a
 * block does not hold has no tokens of it. */
typedef struct fcp_homes {
    uint32_t homes;
    uint64_t tokens[FCP_SIDES];
    const uint64_t *first[FCP_SIDES];
} fcp_homes;
/* Of every rank, in one piece of memory that the caller frees; NULL when out of memory. */
fcp_homes *fcp_homes_of(const fcp_plan *plan);

/* Slots: what the tables say a rank uses in a pass, found by one walk over its streams. */
typedef struct fcp_slots {
    uint32_t homes, kv, state, dkv; /* homes; transient ones */
    uint64_t home_tokens[FCP_SIDES];
} fcp_slots;
void fcp_slots_of(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t homes,
                  const uint64_t home_tokens[FCP_SIDES], fcp_slots *out_slots);
/* Bytes of an arena, and where everything lies when it begins at `memory`. */
size_t fcp_arena_size(const fcp_plan *plan, fcp_pass pass, const fcp_slots *slots);
void fcp_arena_lay(const fcp_plan *plan, fcp_pass pass, uint32_t rank, const fcp_slots *slots,
                   const uint64_t *const home_first[FCP_SIDES], void *memory, fcp_arena *out_arena);

/* The rows of a slot. */
static inline void fcp_arena_kv(const fcp_arena *a, uint32_t slot, char **out_k, char **out_v) {
    const fcp_problem *p = a->plan->problem;
    size_t row = (size_t)p->kv_heads * p->head_dim * fcp_dtype_size((fcp_dtype)p->dtype);
    if (slot < a->homes) {
        *out_k = (char *)a->k + a->home_first[FCP_KEYS][slot] * row;
        *out_v = (char *)a->v + a->home_first[FCP_KEYS][slot] * row;
    } else {
        *out_k = a->kv + (size_t)(slot - a->homes) * 2 * p->max_block * row;
        *out_v = *out_k + p->max_block * row;
    }
}
static inline void fcp_arena_dkv(const fcp_arena *a, uint32_t slot, float **out_dk, float **out_dv) {
    const fcp_problem *p = a->plan->problem;
    size_t row = (size_t)p->kv_heads * p->head_dim;
    if (slot < a->homes) {
        *out_dk = a->dk + a->home_first[FCP_KEYS][slot] * row;
        *out_dv = a->dv + a->home_first[FCP_KEYS][slot] * row;
    } else {
        *out_dk = a->dkv + (size_t)(slot - a->homes) * 2 * p->max_block * row;
        *out_dv = *out_dk + p->max_block * row;
    }
}
static inline void fcp_arena_state(const fcp_arena *a, uint32_t slot, float **out_o, float **out_m, float **out_l) {
    const fcp_problem *p = a->plan->problem;
    *out_o = a->state + (size_t)slot * p->max_q_block * p->heads * (p->head_dim + 2);
    *out_m = *out_o + (size_t)p->max_q_block * p->heads * p->head_dim;
    *out_l = *out_m + (size_t)p->max_q_block * p->heads;
}
#endif
