/* prim_sm90.h: the primitives that sm_90a has beside those of prim.h: barriers in shared memory, the tensor copy engine,
 * products of a warpgroup, registers that move between warpgroups.
 *
 * A warpgroup is four warps, the first of them a multiple of four. "Warpgroup": all its 128 threads must come to it
 * together. Ordinary accesses and those of the copy engine and of products go by different ways ("proxies"): what a thread
 * wrote to shared memory by stores or fk_copy is seen by products only after that thread's fk_fence_async and, for other
 * threads, something that orders them behind it.
 */

/* --- barriers in shared memory: 8 bytes at a multiple of 8. A phase ends when `count` threads have arrived and as many
 * bytes have come as were expected; phases alternate in parity, the first has parity 0. */
FK_PRIMITIVE(void, fk_barrier_open, (fk_u32 barrier, fk_u32 count)) /* one thread, once; others after fence and fk_sync */
FK_PRIMITIVE(void, fk_barrier_fence, (void))                        /* what this thread opened is open for all ways */
FK_PRIMITIVE(void, fk_barrier_arrive, (fk_u32 barrier))
FK_PRIMITIVE(void, fk_barrier_expect, (fk_u32 barrier, fk_u32 bytes)) /* arrives, and expects so many bytes more */
FK_PRIMITIVE(void, fk_barrier_wait, (fk_u32 barrier, fk_u32 parity))  /* until the phase of this parity has ended */

/* One box of a map, from (column, head, row) on, to shared memory at a multiple of 1024; its bytes, FK_BOX_BYTES whatever
 * lies outside the tensor, count for the barrier. One thread. */
FK_PRIMITIVE(void, fk_tensor_copy, (fk_u32 to, const fk_map *map, fk_u32 column, fk_u32 head, fk_u32 row, fk_u32 barrier))
FK_PRIMITIVE(void, fk_fence_async, (void))

/* --- some threads of a block: barrier `id`, 1 to 15, of `threads` in all, a multiple of 32: those that wait, and those
 * that only arrive. */
FK_PRIMITIVE(void, fk_sync_some, (fk_u32 id, fk_u32 threads))
FK_PRIMITIVE(void, fk_arrive_some, (fk_u32 id, fk_u32 threads))

/* --- products of a warpgroup, m64nNk16: c (64 x N) = a b, plus c if `add`. With w the warp in its group, g = lane / 4,
 * t = 2 (lane % 4): c[4 j + i] is row 16 w + g + 8 (i / 2), column 8 j + t + i % 2, j < N / 8; a in registers is, for each
 * warp, the A of prim.h of its 16 rows. What is in shared memory is named by descriptors, fk_tile_by_*.
 *   fk_product_NxT      a by rows (64 x 16) and b by columns: both with their 16 of depth side by side in memory
 *   fk_product_turned   both the other way round: a's 64 rows, b's N columns side by side in memory
 *   fk_product_registers   a in registers; b with its N columns side by side in memory
 * They begin when asked, and c, and a in registers, may not be touched before fk_products_wait says that they have ended:
 * fk_products_begin first, once registers have been written; then products; fk_products_end puts those so far into one
 * group; fk_products_wait_N waits until at most N groups have not ended. All: warpgroup. Numbers in registers know nothing
 * of such waits: fk_products_settle stands between a wait and the first use of the sums whose products have ended by it. */
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
FK_PRODUCTS(256)
#undef FK_PRODUCTS

/* Warp. x, which all its lanes have alike; and the compiler knows it. */
FK_PRIMITIVE(fk_u32, fk_uniform, (fk_u32 x))

/* --- registers: a warpgroup gives up all but n of a thread's, or waits until it has n; n a literal, a multiple of 8 from
 * 24 to 240. Warpgroup. Macros in PTX: fk_registers_down(n), fk_registers_up(n). */
