/* kernel.c: compiles the skeletons of codegen/kernels for the machine of fibers. The build compiles this file once for
 * each head_dim, value_dim and type, with and without a score.
 *
 * Requires: FK_HEAD_DIM, FK_VALUE_DIM, FK_BF16, FK_HAS_SCORE, and FK_TABLE, the name of the table that this file
 *           defines.
 */
#include "tests/machines/fibers/fibers.h"
#include "tests/machines/fibers/prim_host.h"
#include "tests/machines/fibers/mask_host.h" /* after the primitives */

#include "codegen/kernels/common.h"
#define FK_FORWARD_SM90 0
#include "codegen/kernels/forward_rows.h"
#include "codegen/kernels/forward_mma.h"
#include "codegen/kernels/backward_steps.h"
#include "codegen/kernels/backward_mma.h"
#define FK_DO_BUFFERS 2
#define FK_ORDERED 1
#include "codegen/kernels/backward_ordered_mma.h"
#undef FK_ORDERED
#define FK_ORDERED 0
#include "codegen/kernels/backward_ordered_mma.h"
#if FK_HAS_ONE_DO_BUFFER(FK_HEAD_DIM, FK_VALUE_DIM)
#undef FK_DO_BUFFERS
#define FK_DO_BUFFERS 1
#define fk_backward_unordered fk_backward_unordered_one
#include "codegen/kernels/backward_ordered_mma.h"
#undef fk_backward_unordered
#undef FK_ORDERED
#define FK_ORDERED 1
#define fk_backward_ordered fk_backward_ordered_one
#include "codegen/kernels/backward_ordered_mma.h"
#undef fk_backward_ordered
#endif
#if FK_HAS_SCORE
#include "codegen/kernels/backward_tables.h"
#endif
#include "codegen/kernels/support.h"
#include "codegen/kernels/wire.h"

static void run_forward(const void *launch) { fk_forward(*(const fk_launch *)launch); }
static void run_dkv(const void *launch) { fk_backward_dkv(*(const fk_launch *)launch); }
static void run_dq(const void *launch) { fk_backward_dq(*(const fk_launch *)launch); }
#if FK_HAS_ORDERED(FK_HEAD_DIM)
static void run_ordered(const void *launch) { fk_backward_ordered(*(const fk_launch *)launch); }
static void run_unordered(const void *launch) { fk_backward_unordered(*(const fk_launch *)launch); }
#endif
#if FK_HAS_ONE_DO_BUFFER(FK_HEAD_DIM, FK_VALUE_DIM)
static void run_ordered_one(const void *launch) { fk_backward_ordered_one(*(const fk_launch *)launch); }
static void run_unordered_one(const void *launch) { fk_backward_unordered_one(*(const fk_launch *)launch); }
#endif

#if FK_HAS_SM90(FK_HEAD_DIM, FK_VALUE_DIM)
#define FIBERS_RUN_FORWARD FIBERS_NAME(FK_TABLE, _forward_sm90)
void FIBERS_RUN_FORWARD(const void *launch); /* of kernel_sm90.c */
#endif
#if FK_HAS_BACKWARD_SM90(FK_HEAD_DIM, FK_VALUE_DIM)
#define FIBERS_RUN_ORDERED FIBERS_NAME(FK_TABLE, _ordered_sm90)
#define FIBERS_RUN_UNORDERED FIBERS_NAME(FK_TABLE, _unordered_sm90)
void FIBERS_RUN_ORDERED(const void *launch); /* likewise */
void FIBERS_RUN_UNORDERED(const void *launch);
#endif

static void run_begin_lse(const void *launch) { fk_begin_lse(*(const fk_support *)launch); }
static void run_delta(const void *launch) { fk_delta(*(const fk_support *)launch); }
static void run_add(const void *launch) { fk_add(*(const fk_support *)launch); }
static void run_round(const void *launch) { fk_round(*(const fk_support *)launch); }
static void run_narrow(const void *launch) { fk_narrow(*(const fk_support *)launch); }
static void run_widen(const void *launch) { fk_widen(*(const fk_support *)launch); }
static void run_merge(const void *launch) { fk_merge(*(const fk_support *)launch); }
static void run_state_out(const void *launch) { fk_state_out(*(const fk_support *)launch); }
static void run_fold_sinks(const void *launch) { fk_fold_sinks(*(const fk_support *)launch); }
static void run_combine(const void *launch) { fk_combine(*(const fk_launch *)launch); }
#if FK_HAS_SCORE
static void run_tables(const void *launch) { fk_backward_tables(*(const fk_launch_tables *)launch); }
static void run_round_sums(const void *launch) { fk_round_sums(*(const fk_support *)launch); }
static void run_add_to_sums(const void *launch) {
    const fk_support *p = launch;
    for (fk_u64 i = fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < p->count; i += fk_ctas() * FK_SUPPORT_THREADS)
        fk_add_to_sum(p->to + i % p->other * FK_SUM_BYTES, fk_load(p->from + i * 4));
}
#endif
static void run_gather(const void *launch) { fk_gather(*(const fk_gather_launch *)launch); }

enum { D = FK_HEAD_DIM, V = FK_VALUE_DIM };
extern const fibers_kernels FK_TABLE;
const fibers_kernels FK_TABLE = {
    .head_dim = D,
    .value_dim = V,
    .bf16 = FK_BF16,
    .score = FK_HAS_SCORE,
    .forward = {run_forward, FK_FORWARD_WARPS(D, FK_HAS_SCORE) * 32, FK_FORWARD_SHARED(D, V), 1},
    .dkv = {run_dkv, FK_DKV_WARPS(D) * 32, FK_DKV_SHARED(D, V, FK_HAS_SCORE), FK_DKV_PARTS(D)},
    .dq = {run_dq, FK_DQ_WARPS(D) * 32, FK_DQ_SHARED(D, V), FK_DQ_PARTS(D)},
#if FK_HAS_ORDERED(FK_HEAD_DIM)
    .ordered = {run_ordered, FK_DKV_WARPS(D) * 32, FK_ORDERED_SHARED(D, V, FK_HAS_SCORE, 2), 1},
    .unordered = {run_unordered, FK_DKV_WARPS(D) * 32, FK_ORDERED_SHARED(D, V, FK_HAS_SCORE, 2), 1},
#endif
#if FK_HAS_ONE_DO_BUFFER(FK_HEAD_DIM, FK_VALUE_DIM)
    .ordered_one = {run_ordered_one, FK_DKV_WARPS(D) * 32, FK_ORDERED_SHARED(D, V, FK_HAS_SCORE, 1), 1},
    .unordered_one = {run_unordered_one, FK_DKV_WARPS(D) * 32, FK_ORDERED_SHARED(D, V, FK_HAS_SCORE, 1), 1},
#endif
#if FK_HAS_SM90(FK_HEAD_DIM, FK_VALUE_DIM)
    .forward_sm90 = {FIBERS_RUN_FORWARD, FK_FORWARD_SM90_THREADS, FK_FORWARD_SM90_SHARED(D, V), 1, .maps = true},
#endif
#if FK_HAS_BACKWARD_SM90(FK_HEAD_DIM, FK_VALUE_DIM)
    .ordered_sm90 = {FIBERS_RUN_ORDERED, FK_BACKWARD_SM90_THREADS, FK_BACKWARD_SM90_SHARED(D, V), 1, .maps = true},
    .unordered_sm90 = {FIBERS_RUN_UNORDERED, FK_BACKWARD_SM90_THREADS, FK_BACKWARD_SM90_SHARED(D, V), 1, .maps = true},
#endif
    .begin_lse = {run_begin_lse, FK_SUPPORT_THREADS, 0, 1},
    .delta = {run_delta, FK_SUPPORT_THREADS, 0, 1},
    .add = {run_add, FK_SUPPORT_THREADS, 0, 1},
    .round = {run_round, FK_SUPPORT_THREADS, 0, 1},
    .narrow = {run_narrow, FK_SUPPORT_THREADS, 0, 1},
    .widen = {run_widen, FK_SUPPORT_THREADS, 0, 1},
    .merge = {run_merge, FK_SUPPORT_THREADS, 0, 1},
    .state_out = {run_state_out, FK_SUPPORT_THREADS, 0, 1},
    .fold_sinks = {run_fold_sinks, FK_SUPPORT_THREADS, 0, 1},
    .gather = {run_gather, FK_SUPPORT_THREADS, 0, 1},
    .combine = {run_combine, FK_SUPPORT_THREADS, 0, 1},
#if FK_HAS_SCORE
    .tables = {run_tables, FK_DKV_WARPS(D) * 32, FK_DKV_SHARED(D, V, 1), FK_DKV_PARTS(D)},
    .round_sums = {run_round_sums, FK_SUPPORT_THREADS, 0, 1},
    .add_to_sums = {run_add_to_sums, FK_SUPPORT_THREADS, 0, 1},
#endif
};
