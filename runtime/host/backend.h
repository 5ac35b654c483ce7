/* backend.h: what computes: the interface between the executor and a kind of device.
 *
 * A backend is a constant table of functions. A device is one backend opened for one plan: it has `workers` workers,
 * each with scratch memory of its own, and any number of arenas, one a rank. Different workers may be used at the same
 * time, on different arenas, or on the same one where a function says so. Opening checks its arguments; the functions
 * of a backend do not: the plan was verified, and the executor asks only for what the plan says.
 */
#ifndef FCP_HOST_BACKEND_H
#define FCP_HOST_BACKEND_H
#include "runtime/plan/plan.h"

typedef struct fcp_device fcp_device;
typedef struct fcp_backend fcp_backend;

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

struct fcp_backend {
    const char *name;
    /* Opens a device; *out_device starts with a struct fcp_device. */
    fcp_code (*open)(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err);
    void (*close)(fcp_device *device);
    /* Memory of an arena. */
    fcp_code (*allocate)(fcp_device *device, size_t bytes, void **out_memory, fcp_error *err);
    void (*release)(fcp_device *device, void *memory);
    /* A pass begins and has ended, on the whole device. */
    void (*enter)(fcp_device *device);
    void (*leave)(fcp_device *device);
    /* count bytes, from and to the caller's memory or an arena. */
    void (*copy)(fcp_device *device, void *dst, const void *src, size_t bytes);
    void (*clear)(fcp_device *device, void *dst, size_t bytes);
    /* dst += src, or dst = src where it is the first contribution; `count` float32. */
    void (*reduce)(fcp_device *device, float *dst, const float *src, size_t count, bool first);
    /* What a rank's outputs are before anything was computed: O = 0 and LSE = -inf, or accumulators of 0. */
    void (*prepare)(fcp_device *device, const fcp_arena *arena);
    /* delta = sum(dO * O) over all home queries. */
    void (*delta)(fcp_device *device, uint32_t worker, const fcp_arena *arena);
    /* Visits [first, first + count), for the query heads of KV heads [head, head + heads). Several workers may do the
     * same visits for different heads. */
    fcp_code (*attend)(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t first, uint32_t count,
                       uint32_t head, uint32_t heads, fcp_error *err);
    /* Tokens [first, first + tokens) of a home block: those of the dQ, dK, dV accumulators that it holds, rounded to
     * the dtype. */
    void (*finish)(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t first, uint32_t tokens);
};

/* The base of every device. */
struct fcp_device {
    const fcp_backend *backend;
    const fcp_plan *plan;
    uint32_t workers;
};

extern const fcp_backend fcp_backend_host;

/* By name; NULL when there is none. */
const fcp_backend *fcp_backend_find(const char *name);

fcp_code fcp_device_open(const fcp_backend *backend, const fcp_plan *plan, uint32_t workers, fcp_device **out_device,
                         fcp_error *err);
void fcp_device_close(fcp_device *device);

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
