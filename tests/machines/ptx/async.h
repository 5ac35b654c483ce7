/* async.h: what sm_90a does beside its threads, for the files that do it: barriers in shared memory, tensor copies, fences
 * between proxies, products of a warpgroup, registers that move.
 *
 * In a block's clocks its warps are followed by PTX_AGENTS agents: of the n-th barrier in shared memory, agent n is the copies
 * that count for it. What they wrote is known to who has waited for the barrier.
 */
#ifndef PTX_ASYNC_H
#define PTX_ASYNC_H
#include "tests/machines/ptx/ptx.h"

/* Maps for the copy engine, of three dimensions, in the 128 bytes of a CUtensorMap. False: no driver would make one. */
typedef struct ptx_map {
    uint64_t base, dims[3], strides[2]; /* strides: bytes, of the second and third dimension */
    uint32_t box[3], element, swizzle;  /* element: bytes; swizzle: 0, or 128 */
} ptx_map;
bool ptx_map_encode(void *out, const ptx_map *map);

/* Whether all that wrote these bytes by ordinary stores has been fenced for the async proxy, and this warp knows it. */
bool ptx_fenced(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, const char *what);
/* Shared memory that a product under way reads: until ptx_shared_was_read, with what was read since, nobody may write it. */
void ptx_shared_reads(ptx_warp *w, uint32_t address, uint32_t bytes);
void ptx_shared_was_read(ptx_warp *w, uint32_t address, uint32_t bytes);

/* A fence between proxies: the warp's clock then, and its lanes. */
typedef struct ptx_fence {
    uint32_t when, lanes;
} ptx_fence;
/* What a warp keeps for these instructions; NULL: out of memory. */
typedef struct ptx_async_warp {
    ptx_fence *fences;
    uint32_t fence_count, fence_room;
    uint32_t registers;                        /* as setmaxnreg left them; 0: as launched */
    struct ptx_products *products;
} ptx_async_warp;
ptx_async_warp *ptx_async_of(ptx_warp *w);

/* When a block has ended: nothing may be under way. Frees what there is; says whether all is well. */
bool ptx_async_close(ptx_block *b);
bool ptx_products_close(ptx_warp *w, struct ptx_products *p); /* wgmma.c */
#endif
