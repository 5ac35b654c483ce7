/* work.h: from an ATTEND instruction to the work lists of the kernels (codegen/kernels/abi.h).
 *
 * Offsets count from the arena's beginning (fcp_arena.q). The order of items is longest first, ties by their order in the
 * plan; an output belongs to one item of a launch, or items add to it in turn, in their order; an item's runs are in the plan's
 * order, but for those of an ordered list, which go from the last row to the first: no bit depends on which blocks run when.
 */
#ifndef FCP_KERNELS_WORK_H
#define FCP_KERNELS_WORK_H
#include "codegen/kernels/abi.h"
#include "runtime/exec/arena.h"

typedef struct fcp_kernel_work {
    /* what fcp_kernel_rows makes */
    fk_row_item *rows;
    fk_key_run *key_runs;
    uint32_t row_count, key_run_count;
    /* what fcp_kernel_keys makes */
    fk_key_item *keys;
    fk_row_run *row_runs;
    uint32_t key_count, row_run_count, lock_count; /* lock_count: if ordered */
    /* inside */
    uint32_t row_capacity, key_run_capacity, key_capacity, row_run_capacity;
    void *scratch[5];
    size_t scratch_bytes[5];
} fcp_kernel_work;

void fcp_kernel_work_free(fcp_kernel_work *work);
/* The rows of visits [first, first + count), with the keys they meet: of the forward pass in an arena of that pass, of dQ
 * in one of the backward pass. Rows that meet nothing have an item only where something is to be written for them.
 * Errors: FCP_E_NO_MEMORY; FCP_E_RUN when the lists are too long to count in 32 bits. */
fcp_code fcp_kernel_rows(fcp_kernel_work *work, const fcp_arena *arena, uint32_t first, uint32_t count, fcp_error *err);
/* The keys of the same visits, with the rows that meet them. ALONE: of dK and dV, whose sums are of one item each. JOINT: of dQ as
 * well; items that are much longer than others are several, of the same keys. ORDERED: the same, with locks and turns; runs
 * are then of one row of cells each. */
typedef enum fcp_kernel_order { FCP_KEYS_ALONE, FCP_KEYS_JOINT, FCP_KEYS_ORDERED } fcp_kernel_order;
fcp_kernel_order fcp_kernel_order_of(unsigned backward); /* as the skeleton EMIT_* of a backward pass has them */
fcp_code fcp_kernel_keys(fcp_kernel_work *work, const fcp_arena *arena, uint32_t first, uint32_t count,
                         fcp_kernel_order order, fcp_error *err);

/* The parameters that follow from arena and plan: for all heads, without work list and environment. */
void fcp_kernel_launch(const fcp_arena *arena, fk_launch *out_launch);
/* The tensors of rows in an arena that the copy engine is told of, in the order of fk_launch_maps: where each begins, how
 * many rows of how many heads of head_dim numbers it has; no rows, where the pass or the rank has none of it. */
typedef struct fcp_kernel_tensor {
    uint64_t address, rows;
    uint32_t heads;
} fcp_kernel_tensor;
enum { FCP_KERNEL_TENSORS = 5 };
void fcp_kernel_tensors(const fcp_arena *arena, fcp_kernel_tensor out[FCP_KERNEL_TENSORS]);
/* Parameters with their maps, as tensors are in order. */
void fcp_kernel_maps(const fk_launch *launch, const fk_map maps[FCP_KERNEL_TENSORS], fk_launch_maps *out);
/* The environment: sequences_count, arrays_count and slices_count records, for a plan whose DATA, BAND_ROWS and BANDS lie
 * at these addresses. */
void fcp_kernel_sequences(const fcp_plan *plan, fk_sequence *out);
void fcp_kernel_arrays(const fcp_plan *plan, uint64_t data, fk_u64 *out);
/* DATA as kernels read it, data_count bytes, aligned to 8: as in the plan, but that a table of reals is of float, at the same
 * place: rounded here once, rather than with every use. */
void fcp_kernel_data(const fcp_plan *plan, void *out);
void fcp_kernel_bands(const fcp_plan *plan, uint64_t band_rows, uint64_t bands, fk_bands *out);
#endif
