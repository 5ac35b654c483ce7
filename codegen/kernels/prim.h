/* prim.h: the primitives: a function for each machine instruction that C cannot express. Kernels reach the GPU only
 * through them.
 *
 * prim_ptx.h implements them as PTX. The tests implement them on a machine of fibers, which runs on the CPU and chooses
 * whatever a GPU leaves open (the order of warps, when a copy arrives) so as to do harm. Whoever includes this file
 * defines FK_PRIMITIVE(type, name, parameters). Addresses of shared memory are 32-bit numbers that begin at
 * fk_shared(), addresses of global memory 64-bit numbers. "By a whole warp" means that all 32 lanes of a warp must
 * call the primitive together.
 *
 * Fragments are those of mma.m16n8k16. With g = lane / 4 and t = 2 (lane % 4), a lane holds these (row, column) of
 *   A (16 x 16)  a[0] (g, t), a[1] (g + 8, t), a[2] (g, t + 8), a[3] (g + 8, t + 8), each with the next column
 *   B (16 x 8)   b[0] (t, g), b[1] (t + 8, g), each with the next row
 *   C (16 x 8)   c[0], c[1] (g, t), c[2], c[3] (g + 8, t), each pair with the next column
 */

/* Where a thread is. */
FK_PRIMITIVE(fk_u32, fk_thread, (void))       /* its number in its CTA */
FK_PRIMITIVE(fk_u32, fk_cta, (void))          /* its CTA's number in the grid */
FK_PRIMITIVE(fk_u32, fk_ctas, (void))         /* how many CTAs the grid has */
FK_PRIMITIVE(fk_u32, fk_shared, (void))       /* the address of the CTA's shared memory; a multiple of 1024 */
FK_PRIMITIVE(fk_u32, fk_popcount, (fk_u32 x)) /* how many bits of x are 1 */
/* A barrier for all threads of the CTA. */
FK_PRIMITIVE(void, fk_sync, (void))

/* cp.async: begins a copy of 16 bytes from global to shared memory. The bytes are there for the calling thread after
 * its fk_cp_async_wait, and for other threads of the CTA after an fk_sync that follows the wait. `bytes` is 16, or 0,
 * which writes zeros and reads nothing. */
FK_PRIMITIVE(void, fk_cp_async, (fk_u32 to, fk_u64 from, fk_u32 bytes))
FK_PRIMITIVE(void, fk_cp_async_wait, (void)) /* waits for all copies of this thread */

FK_PRIMITIVE(void, fk_store_shared, (fk_u32 to, float x))
FK_PRIMITIVE(void, fk_store_shared_bits, (fk_u32 to, fk_u32 x))
FK_PRIMITIVE(void, fk_store_shared2, (fk_u32 to, float a, float b)) /* to: a multiple of 8 */
FK_PRIMITIVE(void, fk_store_shared_long, (fk_u32 to, fk_u64 x)) /* to: a multiple of 8 */
FK_PRIMITIVE(fk_u32, fk_load_shared_bits, (fk_u32 from))
FK_PRIMITIVE(fk_u64, fk_load_shared_long, (fk_u32 from)) /* from: a multiple of 8 */
FK_PRIMITIVE(void, fk_load_shared2, (float out[2], fk_u32 from)) /* from: a multiple of 8 */
FK_PRIMITIVE(float, fk_load, (fk_u64 from))
FK_PRIMITIVE(void, fk_load2, (float out[2], fk_u64 from)) /* from: a multiple of 8 */
FK_PRIMITIVE(void, fk_load4, (float out[4], fk_u64 from)) /* from: a multiple of 16 */
FK_PRIMITIVE(fk_u32, fk_load_bits, (fk_u64 from))
FK_PRIMITIVE(void, fk_load_bits4, (fk_u32 out[4], fk_u64 from)) /* from: a multiple of 16 */
FK_PRIMITIVE(fk_u32, fk_load_byte, (fk_u64 from))
FK_PRIMITIVE(void, fk_store, (fk_u64 to, float x))
FK_PRIMITIVE(void, fk_store2, (fk_u64 to, float a, float b))
FK_PRIMITIVE(void, fk_store4, (fk_u64 to, const float x[4])) /* to: a multiple of 16 */
FK_PRIMITIVE(void, fk_store_bits, (fk_u64 to, fk_u32 x))
FK_PRIMITIVE(void, fk_store_bits4, (fk_u64 to, const fk_u32 x[4])) /* to: a multiple of 16 */
FK_PRIMITIVE(void, fk_store_byte, (fk_u64 to, fk_u32 x))           /* the low 8 bits of x */

/* Writes to memory of the host, which sees the number while the kernel still runs. */
FK_PRIMITIVE(void, fk_store_host_bits, (fk_u64 to, fk_u32 x))

/* Adds a to the float at `to` and b to the one after it, each atomically; `to` is a multiple of 8. The thread does not
 * wait for the sum. It is there when the kernel has ended, or after an fk_release that comes after this and an fk_sync.
 * Several CTAs may add to the same floats, and the order of their additions is open. Until the kernel has ended nobody
 * may read or write the floats in another way. */
FK_PRIMITIVE(void, fk_add_global2, (fk_u64 to, float a, float b))

/* Adds x to the whole number of 64 bits at `to`, a multiple of 8, modulo 2^64; otherwise as fk_add_global2. */
FK_PRIMITIVE(void, fk_add_global_long, (fk_u64 to, fk_i64 x))
/* Makes the number at `to` x if x is larger; otherwise as fk_add_global2. Neither number is NaN. -0 is less than 0. */
FK_PRIMITIVE(void, fk_max_global, (fk_u64 to, float x))

/* Atomically adds 1 to the number at `counter`, and returns what it was before. */
FK_PRIMITIVE(fk_u32, fk_fetch_increment, (fk_u64 counter))
/* The same, but of `last` it makes 0: after last + 1 calls the number is 0 again, as before the first. */
FK_PRIMITIVE(fk_u32, fk_fetch_ticket, (fk_u64 counter, fk_u32 last))
/* By a whole warp: `count` warps call this with the same counter, each once. The last one gets 1 and the others 0, and
 * the counter is 0 again, as before the first. The last one can read what any of them wrote before its call. */
FK_PRIMITIVE(fk_u32, fk_comes_last, (fk_u64 counter, fk_u32 count))
/* A lock is a number. fk_acquire waits until it is x; fk_release makes it x. What was written before the release can be
 * read after the wait. Both stand for the whole CTA if an fk_sync follows the wait and precedes the release. */
FK_PRIMITIVE(void, fk_acquire, (fk_u64 lock, fk_u32 x))
FK_PRIMITIVE(void, fk_release, (fk_u64 lock, fk_u32 x))
/* Waits until the number at `flag` is 1, which something outside of the kernel writes: a stream, behind its copies.
 * After the wait this thread can read what those copies have written, from whatever device. */
FK_PRIMITIVE(void, fk_wait_arrival, (fk_u64 flag))

/* By a whole warp: ldmatrix loads four 8 x 8 matrices of 16-bit numbers. Lanes 8 i to 8 i + 7 give the addresses of
 * the rows of matrix i. out[i] is row lane / 4, columns 2 (lane % 4) and the next, of matrix i, or with _trans of its
 * transpose. */
FK_PRIMITIVE(void, fk_ldmatrix, (fk_u32 out[4], fk_u32 row))
FK_PRIMITIVE(void, fk_ldmatrix_trans, (fk_u32 out[4], fk_u32 row))
/* By a whole warp: mma.m16n8k16: c += a b; the sums are float. */
FK_PRIMITIVE(void, fk_mma_bf16, (float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1))
FK_PRIMITIVE(void, fk_mma_fp16, (float c[4], const fk_u32 a[4], fk_u32 b0, fk_u32 b1))
/* By a whole warp: returns the x of the lane whose number is this one's ^ mask. */
FK_PRIMITIVE(float, fk_shuffle_xor, (float x, fk_u32 mask))
FK_PRIMITIVE(fk_u32, fk_shuffle_xor_bits, (fk_u32 x, fk_u32 mask))
/* By a whole warp: is x other than 0 in any lane? All lanes get the same answer, 1 or 0. */
FK_PRIMITIVE(fk_u32, fk_any, (fk_u32 x))

/* Two numbers in 32 bits, `low` in the low half, rounded to nearest even; and back. */
FK_PRIMITIVE(fk_u32, fk_pack_bf16, (float low, float high))
FK_PRIMITIVE(fk_u32, fk_pack_fp16, (float low, float high))
FK_PRIMITIVE(void, fk_unpack_bf16, (float out[2], fk_u32 x))
FK_PRIMITIVE(void, fk_unpack_fp16, (float out[2], fk_u32 x))
/* 2^x, which is 0 for -inf, and log2 x. Both are approximations with a relative error of about 2^-22. */
FK_PRIMITIVE(float, fk_exp2, (float x))
FK_PRIMITIVE(float, fk_log2, (float x))
FK_PRIMITIVE(float, fk_reciprocal, (float x)) /* 1 / x, within an ulp; 0 for infinities */
FK_PRIMITIVE(float, fk_tanh_approx, (float x))  /* tanh x, off by at most 2^-11 of itself */
FK_PRIMITIVE(float, fk_max, (float a, float b)) /* if one is NaN, the other */
FK_PRIMITIVE(float, fk_fma, (float a, float b, float c))
/* a b, and a + b, each rounded on its own. Of an ordinary product and sum a compiler may make one instruction, which
 * rounds once. */
FK_PRIMITIVE(float, fk_rounded_product, (float a, float b))
FK_PRIMITIVE(float, fk_rounded_sum, (float a, float b))
FK_PRIMITIVE(float, fk_infinity, (void))
