/* rung_rates.h: kernels that are timed, to decide how attention kernels are cut: products of sm_90a by their columns and
 * where their operands are, additions to global memory by their width, and a turn.
 *
 * They call the primitives of codegen/kernels, as rung_kernels.h does. All numbers are 1, so that each sum says how often
 * it was added to.
 */
#ifndef RUNG_RATES_H
#define RUNG_RATES_H
#define RATE(name, threads) FK_KERNEL(name, threads, 1)(FK_PARAMETER rung_launch p)

/* --- additions: b tiles of 32 KB a CTA, of c tiles; a numbers at once --------------------------------------------- */

FK_DEVICE void rate_add1(fk_u64 to) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(1.0f) : "memory");
}
#if __CUDA_ARCH__ >= 900 && (__CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 1)
FK_DEVICE void rate_add4(fk_u64 to) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %1, %1, %1};" ::"l"(to), "f"(1.0f) : "memory");
}
#else
FK_DEVICE void rate_add4(fk_u64) {}
#endif
/* A tile is 64 rows of 128 floats. With 2 at once a lane has the places that it has of a product, as of dQ in the backward
 * pass; with 1 or 4 half as many neighbours, or twice as many. */
RATE(rate_red, 256) {
    fk_u32 row = fk_warp() % 4 * 16 + fk_lane() / 4, column = fk_warp() / 4 * 64 + fk_lane() % 4 * p.a;
    FK_ROLL
    for (fk_u32 i = 0; i < p.b; i++) {
        fk_u64 own = p.out + (fk_u64)((i * fk_ctas() + fk_cta()) % p.c) * 32768 + (row * 128 + column) * 4;
        if (p.a == 1) {
            FK_UNROLL
            for (fk_u32 j = 0; j < 32; j++) rate_add1(own + (j % 2 * 8 * 128 + j / 2 * 4) * 4);
        }
        if (p.a == 2) {
            FK_UNROLL
            for (fk_u32 j = 0; j < 16; j++) fk_add_global2(own + (j % 2 * 8 * 128 + j / 2 * 8) * 4, 1, 1);
        }
        if (p.a == 4) {
            FK_UNROLL
            for (fk_u32 j = 0; j < 8; j++) rate_add4(own + (j % 2 * 8 * 128 + j / 2 * 16) * 4);
        }
    }
}

#if FK_FORWARD_SM90
/* The same by bulk additions of rows of shared memory, which a warp issues; two tiles may still be read. */
RATE(rate_bulk, 256) {
    for (fk_u32 i = fk_thread(); i < 32768 / 4; i += 256) fk_store_shared(fk_shared() + i * 4, 1);
    fk_fence_proxy_async();
    fk_sync();
    if (fk_warp()) return;
    FK_ROLL
    for (fk_u32 i = 0; i < p.b; i++) {
        fk_u64 tile = p.out + (fk_u64)((i * fk_ctas() + fk_cta()) % p.c) * 32768;
        FK_UNROLL
        for (fk_u32 row = fk_lane(); row < 64; row += 32) fk_bulk_add(tile + row * 512, fk_shared() + row * 512, 512);
        fk_bulk_commit();
        asm volatile("cp.async.bulk.wait_group.read 2;" ::: "memory");
    }
    fk_bulk_wait();
}
#endif

/* --- turns: two CTAs pass one lock to and fro, a times ------------------------------------------------------------ */

RATE(rate_turn, 32) {
    if (fk_lane() == 0) {
        FK_ROLL
        for (fk_u32 i = 0; i < p.a; i++) {
            fk_acquire(p.flag, i * 2 + fk_cta());
            fk_release(p.flag, i * 2 + fk_cta() + 1);
        }
        fk_store_bits(p.out + fk_cta() * 4, p.a);
    }
}

#if FK_FORWARD_SM90
/* --- products of two warpgroups ----------------------------------------------------------------------------------- */

FK_DEVICE fk_u64 rate_clock(void) {
    fk_u64 x;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(x)::"memory");
    return x;
}
FK_DEVICE void rate_begin(float *c, fk_u32 n) {
    for (fk_u32 i = fk_thread(); i < (16384 + (n < 64 ? 64 : n) * FK_TILE_ROW) / 4; i += 256)
        fk_store_shared_bits(fk_shared() + i * 4, 0x3f803f80); /* 1, 1 */
    FK_UNROLL
    for (fk_u32 i = 0; i < n / 2; i++) c[i] = 0;
    fk_fence_proxy_async();
    fk_sync();
    fk_wgmma_settle(c, n / 2);
}
/* The sums of the first warpgroup, and the clocks. */
FK_DEVICE void rate_end(const rung_launch *p, const float *c, fk_u32 n, fk_u64 few, fk_u64 many) {
    if (fk_thread() < 128) {
        FK_UNROLL
        for (fk_u32 i = 0; i < n / 2; i++) fk_store(p->out + (fk_thread() * (n / 2) + i) * 4, c[i]);
    }
    fk_sync();
    if (fk_thread() == 0) {
        fk_store_bits(p->out + 65536 - 8, (fk_u32)few);
        fk_store_bits(p->out + 65536 - 4, (fk_u32)many);
    }
}
/* Makes `count` products and waits for them, p.a times. What takes time besides is the same for every count. */
#define RATE_PRODUCTS(n, count, product)                                                                               \
    FK_ROLL                                                                                                            \
    for (fk_u32 i = 0; i < p.a; i++) {                                                                                 \
        fk_wgmma_fence();                                                                                              \
        FK_UNROLL                                                                                                      \
        for (fk_u32 s = 0; s < count; s++) product;                                                                    \
        fk_wgmma_commit();                                                                                             \
        fk_wgmma_wait_0();                                                                                             \
        fk_wgmma_settle(c, n / 2);                                                                                     \
    }                                                                                                                  \
    fk_sync();
#define RATE_OF(name, n, product)                                                                                      \
    RATE(name, 256) {                                                                                                  \
        float c[n / 2];                                                                                                \
        const fk_u32 x = fk_uniform(fk_shared() + fk_thread() / 128 * 8192), y = fk_uniform(fk_shared() + 16384);      \
        fk_u32 a[4];                                                                                                   \
        FK_UNROLL                                                                                                      \
        for (fk_u32 i = 0; i < 4; i++) {                                                                               \
            a[i] = 0x3f803f80;                                                                                         \
            asm volatile("" : "+r"(a[i])); /* it stays in its register */                                              \
        }                                                                                                              \
        (void)x;                                                                                                       \
        rate_begin(c, n);                                                                                              \
        const fk_u64 begin = rate_clock();                                                                             \
        RATE_PRODUCTS(n, 4, product)                                                                                   \
        const fk_u64 middle = rate_clock();                                                                            \
        RATE_PRODUCTS(n, 20, product)                                                                                  \
        rate_end(&p, c, n, middle - begin, rate_clock() - middle);                                                     \
    }
/* Both from shared memory, K-major; A from registers and B MN-major; both MN-major. */
#define RATE_BY_ROWS(n)                                                                                                \
    FK_WGMMA(fk_wgmma_, n)(c, fk_descriptor_k_major(x, 64, 0, s % 4), fk_descriptor_k_major(y, n, 0, s % 4), 1)
#define RATE_REGISTERS(n) FK_WGMMA(fk_wgmma_registers_, n)(c, a, fk_descriptor_mn_major(y, 64, s % 4, 0), 1)
#define RATE_TURNED(n)                                                                                                 \
    FK_WGMMA(fk_wgmma_transposed_, n)                                                                                  \
    (c, fk_descriptor_mn_major(x, 64, s % 4, 0), fk_descriptor_mn_major(y, 64, s % 4, 0), 1)
RATE_OF(rate_rows_32, 32, RATE_BY_ROWS(32))
RATE_OF(rate_rows_64, 64, RATE_BY_ROWS(64))
RATE_OF(rate_rows_128, 128, RATE_BY_ROWS(128))
RATE_OF(rate_rows_256, 256, RATE_BY_ROWS(256))
RATE_OF(rate_registers_32, 32, RATE_REGISTERS(32))
RATE_OF(rate_registers_64, 64, RATE_REGISTERS(64))
RATE_OF(rate_registers_128, 128, RATE_REGISTERS(128))
RATE_OF(rate_registers_256, 256, RATE_REGISTERS(256))
RATE_OF(rate_turned_64, 64, RATE_TURNED(64))
#endif
#endif
