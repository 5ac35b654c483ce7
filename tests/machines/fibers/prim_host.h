/* prim_host.h: the primitives on the machine of fibers. A kernel that includes this file runs there. Every use of a
 * primitive notes its file and line, for messages.
 */
#ifndef PRIM_HOST_H
#define PRIM_HOST_H
#include "codegen/kernels/abi.h"
#include "tests/machines/fibers/machine.h"

#define FK_PRIMITIVE(type, name, parameters) type name##_host parameters;
#include "codegen/kernels/prim.h"
#include "codegen/kernels/prim_sm90.h"
#undef FK_PRIMITIVE
void fk_registers_up_host(fk_u32 n);
void fk_registers_down_host(fk_u32 n);

#define FK_DEVICE static inline __attribute__((unused))
#define FK_KERNEL(name, threads, blocks) static void name
#define FK_PARAMETER const
#define FK_UNROLL
#define FK_UNROLL_SOME
#define FK_ROLL

#include <math.h>

#define FK_NOTED(name) (machine_note(__FILE__, __LINE__), name##_host)
#define fk_thread fk_thread_host
#define fk_block fk_block_host
#define fk_blocks fk_blocks_host
#define fk_shared fk_shared_host
#define fk_count_bits fk_count_bits_host
#define fk_sync FK_NOTED(fk_sync)
#define fk_copy FK_NOTED(fk_copy)
#define fk_copy_wait FK_NOTED(fk_copy_wait)
#define fk_store_shared FK_NOTED(fk_store_shared)
#define fk_store_shared_bits FK_NOTED(fk_store_shared_bits)
#define fk_store_shared_long FK_NOTED(fk_store_shared_long)
#define fk_load_shared_bits FK_NOTED(fk_load_shared_bits)
#define fk_load_shared_long FK_NOTED(fk_load_shared_long)
#define fk_add_global2 FK_NOTED(fk_add_global2)
#define fk_add_global_long FK_NOTED(fk_add_global_long)
#define fk_max_global FK_NOTED(fk_max_global)
#define fk_take FK_NOTED(fk_take)
#define fk_comes_last FK_NOTED(fk_comes_last)
#define fk_wait_for FK_NOTED(fk_wait_for)
#define fk_wait_arrival FK_NOTED(fk_wait_arrival)
#define fk_release FK_NOTED(fk_release)
#define fk_load_shared2 FK_NOTED(fk_load_shared2)
#define fk_load FK_NOTED(fk_load)
#define fk_load2 FK_NOTED(fk_load2)
#define fk_load_bits FK_NOTED(fk_load_bits)
#define fk_store FK_NOTED(fk_store)
#define fk_store2 FK_NOTED(fk_store2)
#define fk_store_bits FK_NOTED(fk_store_bits)
#define fk_store_host_bits FK_NOTED(fk_store_host_bits)
#define fk_matrices FK_NOTED(fk_matrices)
#define fk_matrices_transposed FK_NOTED(fk_matrices_transposed)
#define fk_multiply_bf16 FK_NOTED(fk_multiply_bf16)
#define fk_multiply_fp16 FK_NOTED(fk_multiply_fp16)
#define fk_exchange FK_NOTED(fk_exchange)
#define fk_any FK_NOTED(fk_any)
#define fk_pack_bf16 fk_pack_bf16_host
#define fk_pack_fp16 fk_pack_fp16_host
#define fk_unpack_bf16 fk_unpack_bf16_host
#define fk_unpack_fp16 fk_unpack_fp16_host
#define fk_exp2 fk_exp2_host
#define fk_log2 fk_log2_host
#define fk_reciprocal fk_reciprocal_host
#define fk_max fk_max_host
#define fk_fma fk_fma_host
#define fk_rounded_product fk_rounded_product_host
#define fk_rounded_sum fk_rounded_sum_host
#define fk_infinity fk_infinity_host
#define fk_barrier_open FK_NOTED(fk_barrier_open)
#define fk_barrier_fence FK_NOTED(fk_barrier_fence)
#define fk_barrier_arrive FK_NOTED(fk_barrier_arrive)
#define fk_barrier_expect FK_NOTED(fk_barrier_expect)
#define fk_barrier_wait FK_NOTED(fk_barrier_wait)
#define fk_tensor_copy FK_NOTED(fk_tensor_copy)
#define fk_fence_async FK_NOTED(fk_fence_async)
#define fk_fence_async_global FK_NOTED(fk_fence_async_global)
#define fk_uniform FK_NOTED(fk_uniform)
#define fk_sync_some FK_NOTED(fk_sync_some)
#define fk_arrive_some FK_NOTED(fk_arrive_some)
#define fk_products_begin FK_NOTED(fk_products_begin)
#define fk_products_end FK_NOTED(fk_products_end)
#define fk_products_wait_0 FK_NOTED(fk_products_wait_0)
#define fk_products_wait_1 FK_NOTED(fk_products_wait_1)
#define fk_products_settle fk_products_settle_host
#define fk_registers_up FK_NOTED(fk_registers_up)
#define fk_registers_down FK_NOTED(fk_registers_down)
#define fk_product_32_bf16 FK_NOTED(fk_product_32_bf16)
#define fk_product_32_fp16 FK_NOTED(fk_product_32_fp16)
#define fk_product_turned_32_bf16 FK_NOTED(fk_product_turned_32_bf16)
#define fk_product_turned_32_fp16 FK_NOTED(fk_product_turned_32_fp16)
#define fk_product_registers_32_bf16 FK_NOTED(fk_product_registers_32_bf16)
#define fk_product_registers_32_fp16 FK_NOTED(fk_product_registers_32_fp16)
#define fk_product_64_bf16 FK_NOTED(fk_product_64_bf16)
#define fk_product_64_fp16 FK_NOTED(fk_product_64_fp16)
#define fk_product_turned_64_bf16 FK_NOTED(fk_product_turned_64_bf16)
#define fk_product_turned_64_fp16 FK_NOTED(fk_product_turned_64_fp16)
#define fk_product_registers_64_bf16 FK_NOTED(fk_product_registers_64_bf16)
#define fk_product_registers_64_fp16 FK_NOTED(fk_product_registers_64_fp16)
#define fk_product_128_bf16 FK_NOTED(fk_product_128_bf16)
#define fk_product_128_fp16 FK_NOTED(fk_product_128_fp16)
#define fk_product_turned_128_bf16 FK_NOTED(fk_product_turned_128_bf16)
#define fk_product_turned_128_fp16 FK_NOTED(fk_product_turned_128_fp16)
#define fk_product_registers_128_bf16 FK_NOTED(fk_product_registers_128_bf16)
#define fk_product_registers_128_fp16 FK_NOTED(fk_product_registers_128_fp16)
#define fk_product_192_bf16 FK_NOTED(fk_product_192_bf16)
#define fk_product_192_fp16 FK_NOTED(fk_product_192_fp16)
#define fk_product_turned_192_bf16 FK_NOTED(fk_product_turned_192_bf16)
#define fk_product_turned_192_fp16 FK_NOTED(fk_product_turned_192_fp16)
#define fk_product_registers_192_bf16 FK_NOTED(fk_product_registers_192_bf16)
#define fk_product_registers_192_fp16 FK_NOTED(fk_product_registers_192_fp16)
#define fk_product_256_bf16 FK_NOTED(fk_product_256_bf16)
#define fk_product_256_fp16 FK_NOTED(fk_product_256_fp16)
#define fk_product_turned_256_bf16 FK_NOTED(fk_product_turned_256_bf16)
#define fk_product_turned_256_fp16 FK_NOTED(fk_product_turned_256_fp16)
#define fk_product_registers_256_bf16 FK_NOTED(fk_product_registers_256_bf16)
#define fk_product_registers_256_fp16 FK_NOTED(fk_product_registers_256_fp16)
#endif
