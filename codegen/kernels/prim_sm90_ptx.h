/* prim_sm90_ptx.h: the primitives of prim_sm90.h as PTX, for NVRTC: sm_90a, no header. After prim_ptx.h. */
#ifndef FK_PRIM_SM90_PTX_H
#define FK_PRIM_SM90_PTX_H

FK_DEVICE void fk_barrier_open(fk_u32 barrier, fk_u32 count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
FK_DEVICE void fk_barrier_fence(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
FK_DEVICE void fk_barrier_arrive(fk_u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
FK_DEVICE void fk_barrier_expect(fk_u32 barrier, fk_u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
FK_DEVICE void fk_barrier_wait(fk_u32 barrier, fk_u32 parity) {
    fk_u32 ended;
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                    : "=r"(ended)
                    : "r"(barrier), "r"(parity)
                    : "memory");
    while (!ended);
}
FK_DEVICE void fk_tensor_copy(fk_u32 to, const fk_map *map, fk_u32 column, fk_u32 head, fk_u32 row, fk_u32 barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4}], [%5];" ::"r"(to), "l"(map), "r"(column), "r"(head), "r"(row), "r"(barrier)
                 : "memory");
}
FK_DEVICE void fk_fence_async(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

FK_DEVICE fk_u32 fk_uniform(fk_u32 x) {
    fk_u32 y;
    asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
FK_DEVICE void fk_sync_some(fk_u32 id, fk_u32 threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
FK_DEVICE void fk_arrive_some(fk_u32 id, fk_u32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

FK_DEVICE void fk_products_begin(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FK_DEVICE void fk_products_end(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
FK_DEVICE void fk_products_wait_0(void) { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
FK_DEVICE void fk_products_wait_1(void) { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
FK_DEVICE void fk_products_settle(float *c, fk_u32 count) {
    FK_UNROLL
    for (fk_u32 i = 0; i < count; i++) asm volatile("" : "+f"(c[i])::"memory");
}
#define fk_registers_down(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 " #n ";")
#define fk_registers_up(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 " #n ";")

/* The accumulators of a product, as operands %0 .. and as a list of "+f". */
#define FK_NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15"
#define FK_SUMS_32 \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
    "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15])
#define FK_NAMES_64 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define FK_SUMS_64 \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
    "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
    "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
    "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
#define FK_NAMES_128 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63"
#define FK_SUMS_128 \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
    "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
    "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
    "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
    "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
    "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), \
    "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
    "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63])
#define FK_NAMES_256 \
    "%0, %1, %2, %3, %4, %5, %6, %7, " \
    "%8, %9, %10, %11, %12, %13, %14, %15, " \
    "%16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31, " \
    "%32, %33, %34, %35, %36, %37, %38, %39, " \
    "%40, %41, %42, %43, %44, %45, %46, %47, " \
    "%48, %49, %50, %51, %52, %53, %54, %55, " \
    "%56, %57, %58, %59, %60, %61, %62, %63, " \
    "%64, %65, %66, %67, %68, %69, %70, %71, " \
    "%72, %73, %74, %75, %76, %77, %78, %79, " \
    "%80, %81, %82, %83, %84, %85, %86, %87, " \
    "%88, %89, %90, %91, %92, %93, %94, %95, " \
    "%96, %97, %98, %99, %100, %101, %102, %103, " \
    "%104, %105, %106, %107, %108, %109, %110, %111, " \
    "%112, %113, %114, %115, %116, %117, %118, %119, " \
    "%120, %121, %122, %123, %124, %125, %126, %127"
#define FK_SUMS_256 \
    "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
    "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]), "+f"(c[15]), \
    "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]), "+f"(c[22]), "+f"(c[23]), \
    "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]), "+f"(c[29]), "+f"(c[30]), "+f"(c[31]), \
    "+f"(c[32]), "+f"(c[33]), "+f"(c[34]), "+f"(c[35]), "+f"(c[36]), "+f"(c[37]), "+f"(c[38]), "+f"(c[39]), \
    "+f"(c[40]), "+f"(c[41]), "+f"(c[42]), "+f"(c[43]), "+f"(c[44]), "+f"(c[45]), "+f"(c[46]), "+f"(c[47]), \
    "+f"(c[48]), "+f"(c[49]), "+f"(c[50]), "+f"(c[51]), "+f"(c[52]), "+f"(c[53]), "+f"(c[54]), "+f"(c[55]), \
    "+f"(c[56]), "+f"(c[57]), "+f"(c[58]), "+f"(c[59]), "+f"(c[60]), "+f"(c[61]), "+f"(c[62]), "+f"(c[63]), \
    "+f"(c[64]), "+f"(c[65]), "+f"(c[66]), "+f"(c[67]), "+f"(c[68]), "+f"(c[69]), "+f"(c[70]), "+f"(c[71]), \
    "+f"(c[72]), "+f"(c[73]), "+f"(c[74]), "+f"(c[75]), "+f"(c[76]), "+f"(c[77]), "+f"(c[78]), "+f"(c[79]), \
    "+f"(c[80]), "+f"(c[81]), "+f"(c[82]), "+f"(c[83]), "+f"(c[84]), "+f"(c[85]), "+f"(c[86]), "+f"(c[87]), \
    "+f"(c[88]), "+f"(c[89]), "+f"(c[90]), "+f"(c[91]), "+f"(c[92]), "+f"(c[93]), "+f"(c[94]), "+f"(c[95]), \
    "+f"(c[96]), "+f"(c[97]), "+f"(c[98]), "+f"(c[99]), "+f"(c[100]), "+f"(c[101]), "+f"(c[102]), "+f"(c[103]), \
    "+f"(c[104]), "+f"(c[105]), "+f"(c[106]), "+f"(c[107]), "+f"(c[108]), "+f"(c[109]), "+f"(c[110]), "+f"(c[111]), \
    "+f"(c[112]), "+f"(c[113]), "+f"(c[114]), "+f"(c[115]), "+f"(c[116]), "+f"(c[117]), "+f"(c[118]), "+f"(c[119]), \
    "+f"(c[120]), "+f"(c[121]), "+f"(c[122]), "+f"(c[123]), "+f"(c[124]), "+f"(c[125]), "+f"(c[126]), "+f"(c[127])
FK_DEVICE void fk_product_32_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" FK_NAMES_32
                 "}, %16, %17, p, 1, 1, 0, 0; }"
                 : FK_SUMS_32
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_32_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" FK_NAMES_32
                 "}, %16, %17, p, 1, 1, 1, 1; }"
                 : FK_SUMS_32
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_32_bf16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" FK_NAMES_32
                 "}, {%16, %17, %18, %19}, %20, p, 1, 1, 1; }"
                 : FK_SUMS_32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_32_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" FK_NAMES_32
                 "}, %16, %17, p, 1, 1, 0, 0; }"
                 : FK_SUMS_32
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_32_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" FK_NAMES_32
                 "}, %16, %17, p, 1, 1, 1, 1; }"
                 : FK_SUMS_32
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_32_fp16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0; wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 {" FK_NAMES_32
                 "}, {%16, %17, %18, %19}, %20, p, 1, 1, 1; }"
                 : FK_SUMS_32
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_64_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FK_NAMES_64
                 "}, %32, %33, p, 1, 1, 0, 0; }"
                 : FK_SUMS_64
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_64_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FK_NAMES_64
                 "}, %32, %33, p, 1, 1, 1, 1; }"
                 : FK_SUMS_64
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_64_bf16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" FK_NAMES_64
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
                 : FK_SUMS_64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_64_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FK_NAMES_64
                 "}, %32, %33, p, 1, 1, 0, 0; }"
                 : FK_SUMS_64
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_64_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FK_NAMES_64
                 "}, %32, %33, p, 1, 1, 1, 1; }"
                 : FK_SUMS_64
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_64_fp16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0; wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {" FK_NAMES_64
                 "}, {%32, %33, %34, %35}, %36, p, 1, 1, 1; }"
                 : FK_SUMS_64
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_128_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FK_NAMES_128
                 "}, %64, %65, p, 1, 1, 0, 0; }"
                 : FK_SUMS_128
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_128_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FK_NAMES_128
                 "}, %64, %65, p, 1, 1, 1, 1; }"
                 : FK_SUMS_128
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_128_bf16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" FK_NAMES_128
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
                 : FK_SUMS_128
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_128_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FK_NAMES_128
                 "}, %64, %65, p, 1, 1, 0, 0; }"
                 : FK_SUMS_128
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_128_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FK_NAMES_128
                 "}, %64, %65, p, 1, 1, 1, 1; }"
                 : FK_SUMS_128
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_128_fp16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %69, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {" FK_NAMES_128
                 "}, {%64, %65, %66, %67}, %68, p, 1, 1, 1; }"
                 : FK_SUMS_128
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_256_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FK_NAMES_256
                 "}, %128, %129, p, 1, 1, 0, 0; }"
                 : FK_SUMS_256
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_256_bf16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FK_NAMES_256
                 "}, %128, %129, p, 1, 1, 1, 1; }"
                 : FK_SUMS_256
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_256_bf16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" FK_NAMES_256
                 "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1; }"
                 : FK_SUMS_256
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_256_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FK_NAMES_256
                 "}, %128, %129, p, 1, 1, 0, 0; }"
                 : FK_SUMS_256
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_turned_256_fp16(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %130, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FK_NAMES_256
                 "}, %128, %129, p, 1, 1, 1, 1; }"
                 : FK_SUMS_256
                 : "l"(a), "l"(b), "r"(add));
}
FK_DEVICE void fk_product_registers_256_fp16(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %133, 0; wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {" FK_NAMES_256
                 "}, {%128, %129, %130, %131}, %132, p, 1, 1, 1; }"
                 : FK_SUMS_256
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
#endif
