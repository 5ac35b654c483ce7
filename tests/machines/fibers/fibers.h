/* fibers.h: a backend that runs the kernels on the machine of fibers; everything else it does as the host does.
 *
 * Masks and scores are evaluated by the interpreter, through the same environment that kernels read on a device. */
#ifndef FIBERS_H
#define FIBERS_H
#include "codegen/kernels/abi.h"
#include "runtime/host/backend.h"
#include "tests/machines/fibers/machine.h"

/* The backward pass in two kernels; or in one, in order or not, with several blocks at a time, where there is one for the
 * head_dim; or as these two, but with the skeletons for sm_90a where there are any. */
extern const fcp_backend fibers_backend, fibers_ordered_backend, fibers_unordered_backend, fibers_sm90_backend,
    fibers_unordered_sm90_backend;

/* One build of the skeletons. */
typedef struct fibers_kernel {
    void (*run)(const void *launch);
    uint32_t threads, shared, parts;
    bool maps; /* it is given fk_launch_maps */
} fibers_kernel;
typedef struct fibers_kernels {
    uint32_t head_dim;
    bool bf16, score;
    fibers_kernel forward, dkv, dq, ordered, unordered; /* the last two's run: NULL for head_dim 256 */
    fibers_kernel forward_sm90, ordered_sm90, unordered_sm90; /* .run: NULL where head_dim has none */
    fibers_kernel begin_lse, delta, add, round;
} fibers_kernels;
#define FIBERS_JOIN(a, b) a##b
#define FIBERS_NAME(a, b) FIBERS_JOIN(a, b)
/* NULL when there is none. */
const fibers_kernels *fibers_kernels_find(uint32_t head_dim, fcp_dtype dtype, bool score);

/* What the kernels' functions read, of the launch under way in this thread: set by whoever runs one. */
typedef struct fibers_mask {
    const fcp_plan *plan;
    int64_t *scratch;
    mc_array *arrays;
    mc_bands *bands;
    double **reals;       /* tables of reals, as the interpreter wants them */
    mc_env env;
    fk_sequence sequence; /* that env is of */
} fibers_mask;
bool fibers_mask_open(fibers_mask *mask, const fcp_plan *plan);
void fibers_mask_close(fibers_mask *mask);
void fibers_mask_use(fibers_mask *mask);
int fibers_allow(const fk_env *env, fk_i64 q, fk_i64 k, fk_i64 h);
float fibers_score(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h);
float fibers_slope(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h);
#endif
