/* prim_host.h: the primitives on the machine of fibers. A kernel that includes this runs there; every use of a primitive
 * notes its file and line. */
#ifndef PRIM_HOST_H
#define PRIM_HOST_H
#include "../../codegen/kernels/abi.h"

#define FK_PRIMITIVE(type, name, parameters) type name##_host parameters;
#include "../../codegen/kernels/prim.h"
#undef FK_PRIMITIVE
void machine_note(const char *file, int line);

#define FK_DEVICE static inline __attribute__((unused))
#define FK_KERNEL(name, threads, blocks) static void name
#define FK_PARAMETER const
#define FK_UNROLL
#define FK_UNROLL_SOME
#define FK_ROLL

#define FK_NOTED(name) (machine_note(__FILE__, __LINE__), name##_host)
#define fk_thread fk_thread_host
#define fk_block fk_block_host
#define fk_blocks fk_blocks_host
#define fk_shared fk_shared_host
#define fk_sync FK_NOTED(fk_sync)
#define fk_copy FK_NOTED(fk_copy)
#define fk_copy_wait FK_NOTED(fk_copy_wait)
#define fk_store_shared FK_NOTED(fk_store_shared)
#define fk_store_shared_bits FK_NOTED(fk_store_shared_bits)
#define fk_load_shared_bits FK_NOTED(fk_load_shared_bits)
#define fk_add_global2 FK_NOTED(fk_add_global2)
#define fk_take FK_NOTED(fk_take)
#define fk_wait_for FK_NOTED(fk_wait_for)
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
#define fk_pack_bf16 fk_pack_bf16_host
#define fk_pack_fp16 fk_pack_fp16_host
#define fk_unpack_bf16 fk_unpack_bf16_host
#define fk_unpack_fp16 fk_unpack_fp16_host
#define fk_exp2 fk_exp2_host
#define fk_log2 fk_log2_host
#define fk_max fk_max_host
#define fk_fma fk_fma_host
#define fk_infinity fk_infinity_host
#endif
