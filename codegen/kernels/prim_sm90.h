/* prim_sm90.h: the primitives that sm_90a has beside those of prim.h: barriers in shared memory, the tensor copy
 * engine, matrix products of a whole warpgroup, and registers that move from one warpgroup to another.
 *
 * A warpgroup is four warps, the first of which has a number that is a multiple of four. "Warpgroup" means that all
 * its 128 threads must call the primitive together. The copy engine and the products do not access shared memory in
 * the way that ordinary loads and stores do; PTX calls the two ways proxies. So what a thread wrote to shared memory
 * by a store or by fk_copy is seen by a product only after that thread's fk_fence_async, and a product that another
 * thread begins needs a barrier between the two as well.
 */

/* --- barriers in shared memory: 8 bytes at a multiple of 8. A barrier goes through phases. A phase ends when `count`
 * threads have arrived and all bytes that were expected have come. Phases have parity 0, 1, 0, 1, ... */
/* Opens a barrier: by one thread, once. The others may use it after that thread's fk_barrier_fence and an fk_sync;
 * the fence lets the copy engine see the barrier, too. */
FK_PRIMITIVE(void, fk_barrier_open, (fk_u32 barrier, fk_u32 count))
FK_PRIMITIVE(void, fk_barrier_fence, (void))
FK_PRIMITIVE(void, fk_barrier_arrive, (fk_u32 barrier))
/* Arrives, and makes the phase expect so many bytes more. */
FK_PRIMITIVE(void, fk_barrier_expect, (fk_u32 barrier, fk_u32 bytes))
/* Waits until the phase of this parity has ended. */
FK_PRIMITIVE(void, fk_barrier_wait, (fk_u32 barrier, fk_u32 parity))

/* Begins a copy of one box of a map, from (column, head, row, slot) on, to shared memory at a multiple of 1024. It counts
 * FK_BOX_BYTES for the barrier, even if part of the box lies outside the tensor. One thread calls it. */
FK_PRIMITIVE(void, fk_tensor_copy,
             (fk_u32 to, const fk_map *map, fk_u32 column, fk_u32 head, fk_u32 row, fk_u32 slot, fk_u32 barrier))
FK_PRIMITIVE(void, fk_fence_async, (void))
/* The same for global memory: what a thread may read after an fk_wait_arrival, tensor copies that it begins after
 * this may read as well. */
FK_PRIMITIVE(void, fk_fence_async_global, (void))

/* --- barriers for some threads of a block. `id` is 1 to 15; `threads` is how many threads take part, a multiple of
 * 32: those that wait (fk_sync_some) and those that only arrive (fk_arrive_some). */
FK_PRIMITIVE(void, fk_sync_some, (fk_u32 id, fk_u32 threads))
FK_PRIMITIVE(void, fk_arrive_some, (fk_u32 id, fk_u32 threads))

/* --- products of a warpgroup, m64nNk16: c (64 x N) = a b, or c + a b if `add`. With w the number of the warp in its
 * group, g = lane / 4 and t = 2 (lane % 4), c[4 j + i] is row 16 w + g + 8 (i / 2), column 8 j + t + i % 2, for j < N
 * / 8. An operand in registers is, for each warp, the A of prim.h of the warp's 16 rows. An operand in shared memory
 * is named by a descriptor, which fk_by_rows and fk_by_columns (tiles_sm90.h) make. The depth is the dimension of 16
 * that is summed over.
 *   fk_product_NxT         a by rows (64 x 16), b by columns: in both, the depth lies side by side in memory
 *   fk_product_turned      the other way round: the 64 rows of a and the N columns of b lie side by side in memory
 *   fk_product_registers   a in registers; the N columns of b lie side by side in memory
 * A call only begins a product. Until fk_products_wait says that it has ended, c and an a in registers must not be
 * touched. The order of calls is: fk_products_begin, after the registers have been written; products;
 * fk_products_end, which makes one group of the products so far; fk_products_wait_N, which waits until at most N
 * groups are still running. All of them: warpgroup. The compiler does not know that a wait changes registers. So
 * fk_products_settle must stand between a wait and the first use of the sums that are ready by it. */
FK_PRIMITIVE(void, fk_products_begin, (void))
FK_PRIMITIVE(void, fk_products_end, (void))
FK_PRIMITIVE(void, fk_products_wait_0, (void))
FK_PRIMITIVE(void, fk_products_wait_1, (void))
FK_PRIMITIVE(void, fk_products_settle, (float *c, fk_u32 count))
#define FK_PRODUCTS(n)                                                                                                 \
    FK_PRIMITIVE(void, fk_product_##n##_bf16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                              \
    FK_PRIMITIVE(void, fk_product_##n##_fp16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                              \
    FK_PRIMITIVE(void, fk_product_turned_##n##_bf16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                       \
    FK_PRIMITIVE(void, fk_product_turned_##n##_fp16, (float *c, fk_u64 a, fk_u64 b, fk_u32 add))                       \
    FK_PRIMITIVE(void, fk_product_registers_##n##_bf16, (float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add))           \
    FK_PRIMITIVE(void, fk_product_registers_##n##_fp16, (float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add))
FK_PRODUCTS(32)
FK_PRODUCTS(64)
FK_PRODUCTS(128)
FK_PRODUCTS(192)
FK_PRODUCTS(256)
#undef FK_PRODUCTS

/* Warp. Returns x, which must be the same in all lanes; afterwards the compiler knows that it is. */
FK_PRIMITIVE(fk_u32, fk_uniform, (fk_u32 x))

/* --- registers. fk_registers_down(n): the warpgroup gives up all but n registers of each thread. fk_registers_up(n):
 * it waits until each thread has n. n is a literal, a multiple of 8 from 24 to 240. Warpgroup. In PTX these are
 * macros. */
