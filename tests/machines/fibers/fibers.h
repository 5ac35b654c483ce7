/* fibers.h: backends that run the kernels on the machine of fibers. Everything that is not a kernel is done by the host
 * backend. Masks and scores are evaluated by the interpreter of mask code, from the same environment that kernels read
 * on a device. */
#ifndef FIBERS_H
#define FIBERS_H
#include "codegen/kernels/abi.h"
#include "runtime/host/backend.h"
#include "runtime/plan/table_reads.h"
#include "tests/machines/fibers/machine.h"

/* The backends. The first three differ in the backward pass: two kernels, one kernel that adds in a fixed order, or one
 * kernel that adds in any order. The last two run several CTAs at a time, and are for head_dim up to 128 only. The one
 * backends are like those without one in their names, but dO has one buffer where the kernels have that. The sm90
 * backends are like those without sm90 in their names, but use the skeletons for sm_90a where there are any. */
extern const fcp_backend fibers_backend, fibers_ordered_backend, fibers_unordered_backend, fibers_ordered_one_backend,
    fibers_unordered_one_backend, fibers_sm90_backend, fibers_unordered_sm90_backend;

/* The skeletons, as they were compiled for one head_dim, type, and with or without a score. */
typedef struct fibers_kernel {
    void (*run)(const void *launch);
    uint32_t threads, shared, parts;
    bool maps; /* its parameters are fk_launch_maps */
} fibers_kernel;
typedef struct fibers_kernels {
    uint32_t head_dim, value_dim;
    bool bf16, score;
    fibers_kernel forward, dkv, dq, ordered, unordered; /* .run of the last two is NULL for a head_dim above 128 */
    fibers_kernel ordered_one, unordered_one; /* with FK_DO_BUFFERS 1; .run is NULL if there is none for the sizes */
    fibers_kernel forward_sm90, ordered_sm90, unordered_sm90; /* .run is NULL if there is none for the sizes */
    fibers_kernel begin_lse, delta, add, round, merge, state_out, fold_sinks, gather, combine, narrow, widen;
    /* .run is NULL without a score. add_to_sums is of tests alone: it adds float i of `count` at `from` to sum i %
     * `other` at `to`. */
    fibers_kernel tables, round_sums, add_to_sums;
} fibers_kernels;
/* The kernels of layers that recur, which no plan changes. */
typedef struct fibers_recurrent {
    fibers_kernel rows_move, rows_add, scan_scaled, scan_matrix;
} fibers_recurrent;
extern const fibers_recurrent fibers_recurrent_kernels;
#define FIBERS_JOIN(a, b) a##b
#define FIBERS_NAME(a, b) FIBERS_JOIN(a, b)
/* NULL: there is no such build. */
const fibers_kernels *fibers_kernels_find(uint32_t head_dim, uint32_t value_dim, fcp_dtype dtype, bool score);
/* That for a plan. */
const fibers_kernels *fibers_kernels_of(const fcp_plan *plan);

/* What fk_allow, fk_score and fk_slope read while this thread runs a launch. Who runs the launch sets it. */
typedef struct fibers_mask {
    const fcp_plan *plan;
    int64_t *scratch;
    mc_array *arrays;
    mc_bands *bands;
    double **reals;       /* tables of reals, as the interpreter wants them */
    mc_env env;
    const fk_u64 *of;     /* fk_env.arrays of the sequence for which env was made; env.n -1: none was */
    bool by_head, packed; /* work lists are by head; those of the forward pass are packed */
    bool fused;           /* several ATTENDs of the forward pass are one launch */
    fcp_table_reads *reads; /* of tables; NULL: the score is too large for their gradients */
    int64_t *read_scratch;
} fibers_mask;
bool fibers_mask_open(fibers_mask *mask, const fcp_plan *plan);
void fibers_mask_close(fibers_mask *mask);
void fibers_mask_use(fibers_mask *mask);
unsigned fibers_arrays(void);
int fibers_by_head(void); /* of the mask that is used */
int fibers_packed(void);  /* likewise */
int fibers_fused(void);
int fibers_allow(const fk_env *env, fk_i64 q, fk_i64 k, fk_i64 h);
float fibers_score(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h);
float fibers_slope(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h);
fk_u32 fibers_reads(void); /* of tables by the score: how many; the score's derivative by one; where it reads */
float fibers_part(const fk_env *env, fk_u32 read, float s, fk_i64 q, fk_i64 k, fk_i64 h);
fk_i64 fibers_place(const fk_env *env, fk_u32 read, float s, fk_i64 q, fk_i64 k, fk_i64 h);
#endif
