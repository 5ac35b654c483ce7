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
void fk_setmaxnreg_inc_host(fk_u32 n);
void fk_setmaxnreg_dec_host(fk_u32 n);

#define FK_DEVICE static inline __attribute__((unused))
#define FK_KERNEL(name, threads, blocks) static void name
#define FK_PARAMETER const
#define FK_UNROLL
#define FK_UNROLL_SOME
#define FK_ROLL

#include <math.h>

#define FK_NOTED(name) (machine_note(__FILE__, __LINE__), name##_host)
#define fk_thread fk_thread_host
#define fk_cta fk_cta_host
#define fk_ctas fk_ctas_host
#define fk_shared fk_shared_host
#define fk_popcount fk_popcount_host
#define fk_sync FK_NOTED(fk_sync)
#define fk_cp_async FK_NOTED(fk_cp_async)
#define fk_cp_async_wait FK_NOTED(fk_cp_async_wait)
#define fk_store_shared FK_NOTED(fk_store_shared)
#define fk_store_shared_bits FK_NOTED(fk_store_shared_bits)
#define fk_store_shared_long FK_NOTED(fk_store_shared_long)
#define fk_store_shared2 FK_NOTED(fk_store_shared2)
#define fk_load_shared_bits FK_NOTED(fk_load_shared_bits)
#define fk_load_shared_long FK_NOTED(fk_load_shared_long)
#define fk_add_global2 FK_NOTED(fk_add_global2)
#define fk_add_global_long FK_NOTED(fk_add_global_long)
#define fk_max_global FK_NOTED(fk_max_global)
#define fk_fetch_increment FK_NOTED(fk_fetch_increment)
#define fk_fetch_ticket FK_NOTED(fk_fetch_ticket)
#define fk_comes_last FK_NOTED(fk_comes_last)
#define fk_acquire FK_NOTED(fk_acquire)
#define fk_wait_arrival FK_NOTED(fk_wait_arrival)
#define fk_release FK_NOTED(fk_release)
#define fk_load_shared2 FK_NOTED(fk_load_shared2)
#define fk_load FK_NOTED(fk_load)
#define fk_load2 FK_NOTED(fk_load2)
#define fk_load4 FK_NOTED(fk_load4)
#define fk_load_bits FK_NOTED(fk_load_bits)
#define fk_load_bits4 FK_NOTED(fk_load_bits4)
#define fk_load_byte FK_NOTED(fk_load_byte)
#define fk_store FK_NOTED(fk_store)
#define fk_store2 FK_NOTED(fk_store2)
#define fk_store4 FK_NOTED(fk_store4)
#define fk_store_byte FK_NOTED(fk_store_byte)
#define fk_store_bits FK_NOTED(fk_store_bits)
#define fk_store_bits4 FK_NOTED(fk_store_bits4)
#define fk_store_host_bits FK_NOTED(fk_store_host_bits)
#define fk_ldmatrix FK_NOTED(fk_ldmatrix)
#define fk_ldmatrix_trans FK_NOTED(fk_ldmatrix_trans)
#define fk_mma_bf16 FK_NOTED(fk_mma_bf16)
#define fk_mma_fp16 FK_NOTED(fk_mma_fp16)
#define fk_shuffle_xor FK_NOTED(fk_shuffle_xor)
#define fk_shuffle_xor_bits FK_NOTED(fk_shuffle_xor_bits)
#define fk_any FK_NOTED(fk_any)
#define fk_pack_bf16 fk_pack_bf16_host
#define fk_pack_fp16 fk_pack_fp16_host
#define fk_unpack_bf16 fk_unpack_bf16_host
#define fk_unpack_fp16 fk_unpack_fp16_host
#define fk_exp2 fk_exp2_host
#define fk_log2 fk_log2_host
#define fk_reciprocal fk_reciprocal_host
#define fk_tanh_approx fk_tanh_approx_host
#define fk_max fk_max_host
#define fk_fma fk_fma_host
#define fk_rounded_product fk_rounded_product_host
#define fk_rounded_sum fk_rounded_sum_host
#define fk_infinity fk_infinity_host
#define fk_mbarrier_init FK_NOTED(fk_mbarrier_init)
#define fk_mbarrier_init_fence FK_NOTED(fk_mbarrier_init_fence)
#define fk_mbarrier_arrive FK_NOTED(fk_mbarrier_arrive)
#define fk_mbarrier_arrive_expect FK_NOTED(fk_mbarrier_arrive_expect)
#define fk_mbarrier_wait FK_NOTED(fk_mbarrier_wait)
#define fk_tma_load FK_NOTED(fk_tma_load)
#define fk_fence_proxy_async FK_NOTED(fk_fence_proxy_async)
#define fk_fence_proxy_async_global FK_NOTED(fk_fence_proxy_async_global)
#define fk_bulk_add FK_NOTED(fk_bulk_add)
#define fk_bulk_commit FK_NOTED(fk_bulk_commit)
#define fk_bulk_wait_read FK_NOTED(fk_bulk_wait_read)
#define fk_bulk_wait FK_NOTED(fk_bulk_wait)
#define fk_uniform FK_NOTED(fk_uniform)
#define fk_from_first FK_NOTED(fk_from_first)
#define fk_named_barrier_sync FK_NOTED(fk_named_barrier_sync)
#define fk_named_barrier_arrive FK_NOTED(fk_named_barrier_arrive)
#define fk_wgmma_fence FK_NOTED(fk_wgmma_fence)
#define fk_wgmma_commit FK_NOTED(fk_wgmma_commit)
#define fk_wgmma_wait_0 FK_NOTED(fk_wgmma_wait_0)
#define fk_wgmma_wait_1 FK_NOTED(fk_wgmma_wait_1)
#define fk_wgmma_settle fk_wgmma_settle_host
#define fk_setmaxnreg_inc FK_NOTED(fk_setmaxnreg_inc)
#define fk_setmaxnreg_dec FK_NOTED(fk_setmaxnreg_dec)
#define fk_wgmma_32_bf16 FK_NOTED(fk_wgmma_32_bf16)
#define fk_wgmma_32_fp16 FK_NOTED(fk_wgmma_32_fp16)
#define fk_wgmma_transposed_32_bf16 FK_NOTED(fk_wgmma_transposed_32_bf16)
#define fk_wgmma_transposed_32_fp16 FK_NOTED(fk_wgmma_transposed_32_fp16)
#define fk_wgmma_registers_32_bf16 FK_NOTED(fk_wgmma_registers_32_bf16)
#define fk_wgmma_registers_32_fp16 FK_NOTED(fk_wgmma_registers_32_fp16)
#define fk_wgmma_64_bf16 FK_NOTED(fk_wgmma_64_bf16)
#define fk_wgmma_64_fp16 FK_NOTED(fk_wgmma_64_fp16)
#define fk_wgmma_transposed_64_bf16 FK_NOTED(fk_wgmma_transposed_64_bf16)
#define fk_wgmma_transposed_64_fp16 FK_NOTED(fk_wgmma_transposed_64_fp16)
#define fk_wgmma_registers_64_bf16 FK_NOTED(fk_wgmma_registers_64_bf16)
#define fk_wgmma_registers_64_fp16 FK_NOTED(fk_wgmma_registers_64_fp16)
#define fk_wgmma_128_bf16 FK_NOTED(fk_wgmma_128_bf16)
#define fk_wgmma_128_fp16 FK_NOTED(fk_wgmma_128_fp16)
#define fk_wgmma_transposed_128_bf16 FK_NOTED(fk_wgmma_transposed_128_bf16)
#define fk_wgmma_transposed_128_fp16 FK_NOTED(fk_wgmma_transposed_128_fp16)
#define fk_wgmma_registers_128_bf16 FK_NOTED(fk_wgmma_registers_128_bf16)
#define fk_wgmma_registers_128_fp16 FK_NOTED(fk_wgmma_registers_128_fp16)
#define fk_wgmma_192_bf16 FK_NOTED(fk_wgmma_192_bf16)
#define fk_wgmma_192_fp16 FK_NOTED(fk_wgmma_192_fp16)
#define fk_wgmma_transposed_192_bf16 FK_NOTED(fk_wgmma_transposed_192_bf16)
#define fk_wgmma_transposed_192_fp16 FK_NOTED(fk_wgmma_transposed_192_fp16)
#define fk_wgmma_registers_192_bf16 FK_NOTED(fk_wgmma_registers_192_bf16)
#define fk_wgmma_registers_192_fp16 FK_NOTED(fk_wgmma_registers_192_fp16)
#define fk_wgmma_256_bf16 FK_NOTED(fk_wgmma_256_bf16)
#define fk_wgmma_256_fp16 FK_NOTED(fk_wgmma_256_fp16)
#define fk_wgmma_transposed_256_bf16 FK_NOTED(fk_wgmma_transposed_256_bf16)
#define fk_wgmma_transposed_256_fp16 FK_NOTED(fk_wgmma_transposed_256_fp16)
#define fk_wgmma_registers_256_bf16 FK_NOTED(fk_wgmma_registers_256_bf16)
#define fk_wgmma_registers_256_fp16 FK_NOTED(fk_wgmma_registers_256_fp16)
#endif
