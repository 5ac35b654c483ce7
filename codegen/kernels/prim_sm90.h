/* prim_sm90.h: the primitives that sm_90a has beside those of prim.h: mbarriers, TMA loads, bulk additions,
 * named barriers, WGMMA (matrix products of a whole warpgroup), and setmaxnreg.
 *
 * A warpgroup is four warps, the first of which has a number that is a multiple of four. If a whole warpgroup calls a
 * primitive, its 128 threads must do so together.
 *
 * TMA and WGMMA access shared memory through the async proxy, ordinary loads and stores through the generic proxy. What
 * a thread wrote to shared memory by a store or by fk_cp_async is seen by a WGMMA only after that thread's
 * fk_fence_proxy_async; a WGMMA of another thread needs a barrier between the two as well.
 */

/* --- mbarriers: 8 bytes of shared memory at a multiple of 8. An mbarrier goes through phases. A phase ends when
 * `count` threads have arrived and all expected bytes have come. Phases have parity 0, 1, 0, 1, ... */
/* Initialises an mbarrier: one thread, once. Other threads may use it after that thread's fk_mbarrier_init_fence and an
 * fk_sync; the fence also makes it visible to the TMA. */
FK_PRIMITIVE(void, fk_mbarrier_init, (fk_u32 barrier, fk_u32 count))
FK_PRIMITIVE(void, fk_mbarrier_init_fence, (void))
FK_PRIMITIVE(void, fk_mbarrier_arrive, (fk_u32 barrier))
/* Arrives, and makes the phase expect so many more bytes. */
FK_PRIMITIVE(void, fk_mbarrier_arrive_expect, (fk_u32 barrier, fk_u32 bytes))
/* Waits until the phase of this parity has ended. */
FK_PRIMITIVE(void, fk_mbarrier_wait, (fk_u32 barrier, fk_u32 parity))

/* Begins the TMA load of one box of a map, from (column, head, row, slot) on, to shared memory at a multiple of 1024.
 * It counts FK_BOX_BYTES for the mbarrier, even if part of the box lies outside the tensor. One thread calls it. */
FK_PRIMITIVE(void, fk_tma_load,
             (fk_u32 to, const fk_map *map, fk_u32 column, fk_u32 head, fk_u32 row, fk_u32 slot, fk_u32 barrier))
FK_PRIMITIVE(void, fk_fence_proxy_async, (void))
/* The same for global memory: TMA loads that a thread begins after this may read what the thread itself may read after
 * an fk_wait_arrival. */
FK_PRIMITIVE(void, fk_fence_proxy_async_global, (void))

/* --- bulk additions: the TMA adds floats of shared memory to floats of global memory, each atomically. One thread
 * calls fk_bulk_add(to, from, bytes), all multiples of 16; that only begins it. fk_bulk_commit makes one group of
 * those that the thread has begun. fk_bulk_wait_read waits until all its groups have read shared memory, fk_bulk_wait
 * until they have added: then what others read or add after an fk_release of this thread comes behind. Additions that
 * come after an fk_acquire come behind those before the release if the thread that acquired has called
 * fk_fence_proxy_async_global. */
FK_PRIMITIVE(void, fk_bulk_add, (fk_u64 to, fk_u32 from, fk_u32 bytes))
FK_PRIMITIVE(void, fk_bulk_commit, (void))
FK_PRIMITIVE(void, fk_bulk_wait_read, (void))
FK_PRIMITIVE(void, fk_bulk_wait, (void))

/* --- named barriers, for some threads of a CTA. `id` is 1 to 15. `threads` is how many threads take part, a multiple
 * of 32: those that wait (fk_named_barrier_sync) and those that only arrive (fk_named_barrier_arrive). */
FK_PRIMITIVE(void, fk_named_barrier_sync, (fk_u32 id, fk_u32 threads))
FK_PRIMITIVE(void, fk_named_barrier_arrive, (fk_u32 id, fk_u32 threads))

/* --- WGMMA m64nNk16: c (64 x N) = a b, or c + a b if `add`. With w the number of the warp in its group, g = lane / 4
 * and t = 2 (lane % 4), c[4 j + i] is row 16 w + g + 8 (i / 2), column 8 j + t + i % 2, for j < N / 8. An operand in
 * registers is, for each warp, the A of prim.h of the warp's 16 rows. An operand in shared memory is named by a
 * descriptor (tiles_sm90.h). It is K-major if the 16 numbers that are summed over lie side by side in memory, else
 * MN-major.
 *   fk_wgmma_N_T              a and b K-major
 *   fk_wgmma_transposed_N_T   a and b MN-major
 *   fk_wgmma_registers_N_T    a in registers, b MN-major
 * A call only begins a product. Until fk_wgmma_wait says that it has ended, c and an a in registers must not be
 * touched. The order of calls is: fk_wgmma_fence, after the registers have been written; products; fk_wgmma_commit,
 * which makes one group of the products so far; fk_wgmma_wait_N, which waits until at most N groups are still running.
 * Each is called by a whole warpgroup. The compiler does not know that a wait changes registers. So fk_wgmma_settle
 * must stand between a wait and the first use of the sums that are ready by it. */
FK_PRIMITIVE(void, fk_wgmma_fence, (void))
FK_PRIMITIVE(void, fk_wgmma_commit, (void))
FK_PRIMITIVE(void, fk_wgmma_wait_0, (void))
FK_PRIMITIVE(void, fk_wgmma_wait_1, (void))
FK_PRIMITIVE(void, fk_wgmma_settle, (float *c, fk_u32 count))
#define FK_WGMMAS(n)                                                                                                   \
    FK_PRIMITIVE(void, fk_wgmma_##n##_bf16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                                \
    FK_PRIMITIVE(void, fk_wgmma_##n##_fp16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                                \
    FK_PRIMITIVE(void, fk_wgmma_transposed_##n##_bf16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                     \
    FK_PRIMITIVE(void, fk_wgmma_transposed_##n##_fp16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                     \
    FK_PRIMITIVE(void, fk_wgmma_registers_##n##_bf16, (float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add))             \
    FK_PRIMITIVE(void, fk_wgmma_registers_##n##_fp16, (float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add))
FK_WGMMAS(32)
FK_WGMMAS(64)
FK_WGMMAS(128)
FK_WGMMAS(192)
FK_WGMMAS(256)
#undef FK_WGMMAS

/* By a whole warp: returns x, which must be the same in all lanes; afterwards the compiler knows that it is. */
FK_PRIMITIVE(fk_u32, fk_uniform, (fk_u32 x))
/* By a whole warp: returns the x of lane 0. */
FK_PRIMITIVE(fk_u32, fk_from_first, (fk_u32 x))

/* --- setmaxnreg. With fk_setmaxnreg_dec(n) a warpgroup gives up all but n registers of each thread. In
 * fk_setmaxnreg_inc(n) it waits until each thread has n. n is a literal, a multiple of 8 from 24 to 240. A whole
 * warpgroup calls them. In PTX they are macros. */
