/* prim_sm90_ptx.h: the primitives of prim_sm90.h as PTX, for NVRTC, sm_90a, without any header. It comes after
 * prim_ptx.h. */
#ifndef FK_PRIM_SM90_PTX_H
#define FK_PRIM_SM90_PTX_H

FK_DEVICE void fk_mbarrier_init(fk_u32 barrier, fk_u32 count) {
    FK_NOTE_MBARRIER(barrier);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
FK_DEVICE void fk_mbarrier_init_fence(void) {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
FK_DEVICE void fk_mbarrier_arrive(fk_u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
FK_DEVICE void fk_mbarrier_arrive_expect(fk_u32 barrier, fk_u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
FK_DEVICE void fk_mbarrier_wait(fk_u32 barrier, fk_u32 parity) {
    fk_u32 ended;
    FK_BEGUN(FK_WAIT_OF_MBARRIER(barrier), parity);
    do asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                    : "=r"(ended)
                    : "r"(barrier), "r"(parity)
                    : "memory");
    while (!ended && !fk_gives_up(begun, FK_WAIT_OF_MBARRIER(barrier), barrier - fk_shared(), parity));
    FK_ENDED(FK_WAIT_OF_MBARRIER(barrier));
}
FK_DEVICE void fk_tma_load(fk_u32 to, const fk_map *map, fk_u32 column, fk_u32 head, fk_u32 row, fk_u32 slot,
                           fk_u32 barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
                 "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(to), "l"(map), "r"(column), "r"(head), "r"(row), "r"(slot),
                 "r"(barrier)
                 : "memory");
}
FK_DEVICE void fk_fence_proxy_async(void) { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
FK_DEVICE void fk_fence_proxy_async_global(void) { asm volatile("fence.proxy.async.global;" ::: "memory"); }

FK_DEVICE void fk_bulk_add(fk_u64 to, fk_u32 from, fk_u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to), "r"(from),
                 "r"(bytes)
                 : "memory");
}
FK_DEVICE void fk_bulk_commit(void) { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
FK_DEVICE void fk_bulk_wait_read(void) { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
FK_DEVICE void fk_bulk_wait(void) { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

FK_DEVICE fk_u32 fk_from_first(fk_u32 x) {
    fk_u32 y;
    asm volatile("shfl.sync.idx.b32 %0, %1, 0, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
FK_DEVICE fk_u32 fk_uniform(fk_u32 x) { return fk_from_first(x); }
FK_DEVICE void fk_named_barrier_sync(fk_u32 id, fk_u32 threads) {
    FK_BEGUN(FK_WAIT_BARRIER + id, 0);
    asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
    FK_ENDED(FK_WAIT_BARRIER + id);
}
FK_DEVICE void fk_named_barrier_arrive(fk_u32 id, fk_u32 threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

FK_DEVICE void fk_wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
FK_DEVICE void fk_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
FK_DEVICE void fk_wgmma_wait_0(void) { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }
FK_DEVICE void fk_wgmma_wait_1(void) { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
FK_DEVICE void fk_wgmma_settle(float *c, fk_u32 count) {
    FK_UNROLL
    for (fk_u32 i = 0; i < count; i++) asm volatile("" : "+f"(c[i])::"memory");
}
#define fk_setmaxnreg_dec(n) asm volatile("setmaxnreg.dec.sync.aligned.u32 " #n ";")
#define fk_setmaxnreg_inc(n) asm volatile("setmaxnreg.inc.sync.aligned.u32 " #n ";")

/* The accumulators of a product of n columns: FK_NAMES_n are their names in the instruction, FK_SUMS_OF_n the
 * operands. */
#define FK_NAMES_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define FK_NAMES_64                                                                                                    \
    FK_NAMES_32 ", "                                                                                                   \
                "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define FK_NAMES_128                                                                                                   \
    FK_NAMES_64 ", "                                                                                                   \
                "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                     \
                "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FK_NAMES_192                                                                                                   \
    FK_NAMES_128 ", "                                                                                                  \
                 "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "                    \
                 "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FK_NAMES_256                                                                                                   \
    FK_NAMES_192 ", "                                                                                                  \
                 "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "        \
                 "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define FK_SUMS_4(i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define FK_SUMS_16(i) FK_SUMS_4(i), FK_SUMS_4(i + 4), FK_SUMS_4(i + 8), FK_SUMS_4(i + 12)
#define FK_SUMS_64(i) FK_SUMS_16(i), FK_SUMS_16(i + 16), FK_SUMS_16(i + 32), FK_SUMS_16(i + 48)
#define FK_SUMS_OF_32 FK_SUMS_16(0)
#define FK_SUMS_OF_64 FK_SUMS_16(0), FK_SUMS_16(16)
#define FK_SUMS_OF_128 FK_SUMS_64(0)
#define FK_SUMS_OF_192 FK_SUMS_64(0), FK_SUMS_16(64), FK_SUMS_16(80)
#define FK_SUMS_OF_256 FK_SUMS_64(0), FK_SUMS_64(64)

/* Defines the products of n columns and one type, which PTX calls `ptx`. o0 ... o5 are the numbers of the operands
 * after the accumulators. */
#define FK_WGMMA_OF_TILES(name, n, ptx, o0, o1, o2, turns)                                                             \
    FK_DEVICE void name(float *c, fk_u64 a, fk_u64 b, fk_u32 add) {                                                    \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #o2 ", 0; "                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx "." ptx " {" FK_NAMES_##n                   \
                     "}, %" #o0 ", %" #o1 ", p, 1, 1, " turns "; }"                                                    \
                     : FK_SUMS_OF_##n                                                                                  \
                     : "l"(a), "l"(b), "r"(add));                                                                      \
    }
#define FK_WGMMAS_OF(n, type, ptx, o0, o1, o2, o3, o4, o5)                                                             \
    FK_WGMMA_OF_TILES(fk_wgmma_##n##_##type, n, ptx, o0, o1, o2, "0, 0")                                               \
    FK_WGMMA_OF_TILES(fk_wgmma_transposed_##n##_##type, n, ptx, o0, o1, o2, "1, 1")                                    \
    FK_DEVICE void fk_wgmma_registers_##n##_##type(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add) {                \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #o5 ", 0; "                                                    \
                     "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." ptx "." ptx " {" FK_NAMES_##n                   \
                     "}, {%" #o0 ", %" #o1 ", %" #o2 ", %" #o3 "}, %" #o4 ", p, 1, 1, 1; }"                            \
                     : FK_SUMS_OF_##n                                                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));                                  \
    }
FK_WGMMAS_OF(32, bf16, "bf16", 16, 17, 18, 19, 20, 21)
FK_WGMMAS_OF(32, fp16, "f16", 16, 17, 18, 19, 20, 21)
FK_WGMMAS_OF(64, bf16, "bf16", 32, 33, 34, 35, 36, 37)
FK_WGMMAS_OF(64, fp16, "f16", 32, 33, 34, 35, 36, 37)
FK_WGMMAS_OF(128, bf16, "bf16", 64, 65, 66, 67, 68, 69)
FK_WGMMAS_OF(128, fp16, "f16", 64, 65, 66, 67, 68, 69)
FK_WGMMAS_OF(192, bf16, "bf16", 96, 97, 98, 99, 100, 101)
FK_WGMMAS_OF(192, fp16, "f16", 96, 97, 98, 99, 100, 101)
FK_WGMMAS_OF(256, bf16, "bf16", 128, 129, 130, 131, 132, 133)
FK_WGMMAS_OF(256, fp16, "f16", 128, 129, 130, 131, 132, 133)
#endif
