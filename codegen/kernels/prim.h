/* prim.h: the primitives, through which kernels reach everything that C has no word for: one machine instruction each.
 *
 * prim_ptx.h has them as PTX; the tests have them on fibers, where what a machine would leave to chance is chosen to
 * harm. FK_PRIMITIVE(type, name, parameters) is defined by whoever includes this. Shared memory is addressed by 32-bit
 * numbers from fk_shared() on, global memory by 64-bit ones. "Warp": all 32 lanes must come to it together.
 *
 * Fragments are those of mma.m16n8k16. With g = lane / 4 and t = 2 (lane % 4), a lane holds of
 *   A (16 x 16)  a[0] (g, t), a[1] (g + 8, t), a[2] (g, t + 8), a[3] (g + 8, t + 8), each with the next column
 *   B (16 x 8)   b[0] (t, g), b[1] (t + 8, g), each with the next row
 *   C (16 x 8)   c[0], c[1] (g, t), c[2], c[3] (g + 8, t), each pair with the next column
 */

/* Where a thread is. */
FK_PRIMITIVE(fk_u32, fk_thread, (void))    /* in its block */
FK_PRIMITIVE(fk_u32, fk_block, (void))     /* in the grid */
FK_PRIMITIVE(fk_u32, fk_blocks, (void))    /* of the grid */
FK_PRIMITIVE(fk_u32, fk_shared, (void))    /* the address of the launch's shared memory; a multiple of 1024 */
/* All threads of a block. */
FK_PRIMITIVE(void, fk_sync, (void))

/* 16 bytes from global to shared memory, later: none of them is there before the thread that asked has waited for its
 * copies, and for other threads not before a fk_sync after that. `bytes` is 16 or 0; 0 writes zeros and reads nothing. */
FK_PRIMITIVE(void, fk_copy, (fk_u32 to, fk_u64 from, fk_u32 bytes))
FK_PRIMITIVE(void, fk_copy_wait, (void))   /* for all copies of this thread */

FK_PRIMITIVE(void, fk_store_shared, (fk_u32 to, float x))
FK_PRIMITIVE(void, fk_store_shared_bits, (fk_u32 to, fk_u32 x))
FK_PRIMITIVE(fk_u32, fk_load_shared_bits, (fk_u32 from))
FK_PRIMITIVE(void, fk_load_shared2, (float out[2], fk_u32 from)) /* a multiple of 8 */
FK_PRIMITIVE(float, fk_load, (fk_u64 from))
FK_PRIMITIVE(void, fk_load2, (float out[2], fk_u64 from)) /* a multiple of 8 */
FK_PRIMITIVE(fk_u32, fk_load_bits, (fk_u64 from))
FK_PRIMITIVE(void, fk_store, (fk_u64 to, float x))
FK_PRIMITIVE(void, fk_store2, (fk_u64 to, float a, float b))
FK_PRIMITIVE(void, fk_store_bits, (fk_u64 to, fk_u32 x))

/* Writes memory of the host's, which sees it while the kernel runs. */
FK_PRIMITIVE(void, fk_store_host_bits, (fk_u64 to, fk_u32 x))

/* Adds a and b to the two numbers at `to`, a multiple of 8, each at once, later: before the kernel has ended; and before a
 * fk_release that a barrier of the block orders behind it. Blocks may add to the same numbers, in whatever order; until the
 * kernel has ended nobody may read or write them otherwise. */
FK_PRIMITIVE(void, fk_add_global2, (fk_u64 to, float a, float b))

/* The number at `counter`, which becomes one more. */
FK_PRIMITIVE(fk_u32, fk_take, (fk_u64 counter))
/* Waits until the number at `lock` is x, after which what was written before the fk_release that made it so is there;
 * both speak for the block if a fk_sync stands after the one and before the other. */
FK_PRIMITIVE(void, fk_wait_for, (fk_u64 lock, fk_u32 x))
FK_PRIMITIVE(void, fk_release, (fk_u64 lock, fk_u32 x))

/* Warp. Four 8 x 8 matrices of 16-bit numbers: lanes 8 i .. 8 i + 7 give the addresses of the rows of matrix i, out[i] is
 * row lane / 4, columns 2 (lane % 4) and the next; of the transposed matrix with _transposed. */
FK_PRIMITIVE(void, fk_matrices, (fk_u32 out[4], fk_u32 row))
FK_PRIMITIVE(void, fk_matrices_transposed, (fk_u32 out[4], fk_u32 row))
/* Warp. c += a b, in float. */
FK_PRIMITIVE(void, fk_multiply_bf16, (float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1))
FK_PRIMITIVE(void, fk_multiply_fp16, (float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1))
/* Warp. The x of lane ^ mask. */
FK_PRIMITIVE(float, fk_exchange, (float x, fk_u32 mask))

/* Two numbers rounded to nearest even, the first in the low half. */
FK_PRIMITIVE(fk_u32, fk_pack_bf16, (float low, float high))
FK_PRIMITIVE(fk_u32, fk_pack_fp16, (float low, float high))
FK_PRIMITIVE(void, fk_unpack_bf16, (float out[2], fk_u32 x))
FK_PRIMITIVE(void, fk_unpack_fp16, (float out[2], fk_u32 x))
/* 2^x, 0 for -inf; log2 x. Approximations, relative error about 2^-22. */
FK_PRIMITIVE(float, fk_exp2, (float x))
FK_PRIMITIVE(float, fk_log2, (float x))
FK_PRIMITIVE(float, fk_max, (float a, float b)) /* the other where one is NaN */
FK_PRIMITIVE(float, fk_fma, (float a, float b, float c))
FK_PRIMITIVE(float, fk_infinity, (void))
