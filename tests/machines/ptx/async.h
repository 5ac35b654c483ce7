/* async.h: the asynchronous parts of sm_90a: mbarriers, TMA loads, bulk additions, fences between proxies, WGMMA, and
 * setmaxnreg. For the files that implement them.
 *
 * After the warps, a CTA's vector clocks have PTX_AGENTS more components, the agents. Agent n stands for all TMA loads
 * that count for the n-th mbarrier. A warp that has waited for that mbarrier knows what these loads wrote.
 */
#ifndef PTX_ASYNC_H
#define PTX_ASYNC_H
#include "tests/machines/ptx/ptx.h"

/* A map of TMA, of three dimensions, in the 128 bytes of a CUtensorMap. False: a driver would not make
 * it. */
enum { PTX_DIMS = 4 };
typedef struct ptx_map {
    uint64_t base, dims[PTX_DIMS], strides[PTX_DIMS - 1]; /* strides: bytes from one to the next, but of numbers */
    uint32_t box[PTX_DIMS], element, swizzle;             /* element: bytes; swizzle: 0, or 128 */
} ptx_map;
bool ptx_map_encode(void *out, const ptx_map *map);

/* Have all ordinary stores to these bytes been fenced for the async proxy, and does this warp know it? If not, it
 * fails. */
bool ptx_fenced(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, const char *what);
/* A product under way reads this shared memory: nobody may write it until ptx_shared_was_read is called for the same
 * bytes. */
void ptx_shared_reads(ptx_warp *w, uint32_t address, uint32_t bytes);
void ptx_shared_was_read(ptx_warp *w, uint32_t address, uint32_t bytes);

/* A fence between proxies: the warp's clock at that time, and the lanes that fenced. */
typedef struct ptx_fence {
    uint32_t when, lanes;
} ptx_fence;
/* What a warp keeps for these instructions; NULL: out of memory. */
typedef struct ptx_async_warp {
    ptx_fence *fences;
    uint32_t fence_count, fence_room;
    uint32_t registers;                        /* as setmaxnreg left them; 0: as launched */
    struct ptx_products *products;
    struct ptx_bulk *bulks;                                 /* additions that were not waited for */
    uint32_t bulk_count, bulk_room, bulk_groups[PTX_LANES]; /* groups: how many each lane has made */
} ptx_async_warp;
ptx_async_warp *ptx_async_of(ptx_warp *w);

/* Called when a block has ended. Frees what it had. False: something was still under way. */
bool ptx_async_close(ptx_block *b);
bool ptx_products_close(ptx_warp *w, struct ptx_products *p); /* wgmma.c */
bool ptx_bulk_close(ptx_warp *w, ptx_async_warp *x);          /* bulk.c */
/* A lane releases something: has every bulk addition that comes before been waited for? If not, it fails. */
bool ptx_bulk_waited(ptx_warp *w, unsigned lane);
#endif
