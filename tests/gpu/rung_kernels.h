/* rung_kernels.h: the kernels of the ladder: small ones, each of which relies on one thing that the attention kernels
 * rely on.
 *
 * They call the primitives and tile functions of codegen/kernels, whose texts stand before this one (rungs.c), so that a
 * wrong constant there makes a rung wrong. rungs.c says what each has to give.
 */
#ifndef RUNG_KERNELS_H
#define RUNG_KERNELS_H
#define RUNG(name, threads) FK_KERNEL(name, threads, 1)(FK_PARAMETER rung_launch p)

FK_DEVICE void rung_fill(fk_u32 to, fk_u64 from, fk_u32 bytes, fk_u32 threads) {
    FK_ROLL
    for (fk_u32 i = fk_thread() * 4; i < bytes; i += threads * 4) fk_store_shared_bits(to + i, fk_load_bits(from + i));
}
FK_DEVICE void rung_dump(const rung_launch *p, fk_u32 from, fk_u32 bytes, fk_u32 threads) {
    FK_ROLL
    for (fk_u32 i = fk_thread() * 4; i < bytes; i += threads * 4)
        fk_store_bits(p->out + i, fk_load_shared_bits(from + i));
}

/* A launch, and where its parameters are. */
RUNG(rung_load, 128) {
    fk_u32 i = fk_cta() * 128 + fk_thread();
    fk_store_bits(p.out + i * 4, fk_load_bits(p.in + i * 4) * p.a + p.d);
}

/* --- mma.sync ----------------------------------------------------------------------------------------------------- */

/* 64 rows by cp.async, of which the first c are there; the others become 0. */
RUNG(rung_copy_tile, 128) {
    fk_u32 tile = fk_shared();
    fk_copy_tile(tile, FK_CHUNKS, 64, 128, p.in, FK_ROW_BYTES, p.c);
    fk_cp_async_wait();
    fk_sync();
    rung_dump(&p, tile, 64 * FK_ROW_BYTES, 128);
}

FK_DEVICE void rung_put_fragments(const rung_launch *p, const float (*c)[4], fk_u32 columns) {
    FK_UNROLL
    for (fk_u32 j = 0; j < columns; j++) FK_UNROLL
    for (fk_u32 i = 0; i < 4; i++) {
        fk_u32 row = fk_lane() / 4 + i / 2 * 8, column = j * 8 + fk_lane() % 4 * 2 + i % 2;
        fk_store(p->out + (row * columns * 8 + column) * 4, c[j][i]);
    }
}
/* 16 rows times 64 rows, by ldmatrix. */
RUNG(rung_rows_by_rows, 32) {
    float c[8][4];
    fk_u32 x = fk_shared(), y = x + 16 * FK_ROW_BYTES;
    rung_fill(x, p.in, 16 * FK_ROW_BYTES, 32);
    rung_fill(y, p.other, 64 * FK_ROW_BYTES, 32);
    fk_sync();
    fk_rows_by_rows(c, 8, FK_CHUNKS, x, 0, y);
    rung_put_fragments(&p, c, 8);
}
/* 16 rows in registers times the columns of 64 rows, by ldmatrix.trans. */
RUNG(rung_by_columns, 32) {
    float c[FK_CHUNKS][4];
    fk_u32 x[8][2], y = fk_shared();
    FK_UNROLL
    for (fk_u32 i = 0; i < 16; i++) x[i / 2][i % 2] = fk_load_bits(p.in + (fk_lane() * 16 + i) * 4);
    rung_fill(y, p.other, 64 * FK_ROW_BYTES, 32);
    fk_sync();
    FK_UNROLL
    for (fk_u32 i = 0; i < FK_CHUNKS * 4; i++) c[i / 4][i % 4] = 1;
    fk_packed_by_columns(c, FK_CHUNKS, 1, 0, (const fk_u32(*)[2])x, 8, y);
    rung_put_fragments(&p, c, FK_CHUNKS);
}

/* --- global memory ------------------------------------------------------------------------------------------------ */

/* What no kernel uses yet. */
FK_DEVICE void rung_add1(fk_u64 to, float a) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" ::"l"(to), "f"(a) : "memory");
}
#if __CUDA_ARCH__ >= 900 && (__CUDACC_VER_MAJOR__ > 12 || __CUDACC_VER_MINOR__ >= 1)
#define RUNG_HAS_ADD4 1
FK_DEVICE void rung_add4(fk_u64 to, float a, float b, float c, float d) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(d)
                 : "memory");
}
#else
#define RUNG_HAS_ADD4 0
#endif

/* All CTAs add to the same 64 floats: a numbers at once. */
RUNG(rung_red, 128) {
    fk_u64 to = p.out + fk_thread() % 16 * 16;
    float x = (float)(fk_thread() / 16 + 1);
    if (p.a == 1) {
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) rung_add1(to + i * 4, x * (float)(i + 1));
    }
    if (p.a == 2) {
        fk_add_global2(to, x, x * 2);
        fk_add_global2(to + 8, x * 3, x * 4);
    }
#if RUNG_HAS_ADD4
    if (p.a == 4) rung_add4(to, x, x * 2, x * 3, x * 4);
#endif
}
/* All CTAs add to the same whole numbers of 64 bits, and raise the same floats, of which every second is always given
 * negative ones. */
RUNG(rung_long, 128) {
    fk_u64 to = p.out + fk_thread() % 16 * 8;
    fk_add_global_long(to, (fk_i64)(fk_thread() + 1) * -0x7fffffff);
    fk_max_global(p.out + 128 + fk_thread() % 16 * 4,
                  (float)(fk_cta() * 128 + fk_thread()) - (float)(p.a << fk_thread() % 2 * 2));
}

/* CTAs add floats in the order of their tickets. in: a float for each ticket. */
FK_DEVICE fk_u32 rung_ticket(const rung_launch *p) {
    if (fk_thread() == 0) fk_store_shared_bits(fk_shared(), fk_fetch_increment(p->flag + 4));
    fk_sync();
    return fk_load_shared_bits(fk_shared());
}
RUNG(rung_turns, 64) {
    fk_u32 turn = rung_ticket(&p);
    float x = fk_load(p.in + turn * 4);
    if (fk_thread() == 0) fk_acquire(p.flag, turn);
    fk_sync();
    fk_add_global2(p.out + fk_thread() * 8, x, x);
    fk_sync();
    if (fk_thread() == 0) fk_release(p.flag, turn + 1);
}

/* Waits for the flag, and then reads what was written before it. */
RUNG(rung_flag, 128) {
    fk_u32 tile = fk_shared();
    if (fk_thread() == 0) fk_wait_arrival(p.flag);
    fk_sync();
    fk_copy_tile(tile, FK_CHUNKS, 64, 128, p.in, FK_ROW_BYTES, 64);
    fk_cp_async_wait();
    fk_sync();
    rung_dump(&p, tile, 64 * FK_ROW_BYTES, 128);
}

#if FK_FORWARD_SM90
/* --- sm_90a: mbarriers and TMA ------------------------------------------------------------------------------------ */

FK_DEVICE void rung_open(fk_u32 barrier, fk_u32 count) {
    if (fk_thread() == 0) {
        fk_mbarrier_init(barrier, count);
        fk_mbarrier_init_fence();
    }
    fk_sync();
}
FK_DEVICE void rung_load_box(const rung_launch *p, fk_u32 tile, fk_u32 row, fk_u32 barrier) {
    fk_mbarrier_arrive_expect(barrier, FK_BOX_BYTES);
    fk_tma_load(tile, &p->map, p->a, p->b, row, p->d, barrier);
}

/* Six phases of one mbarrier: each has an arrival of every warp, and a box. */
RUNG(rung_mbarrier, 128) {
    fk_u32 tile = fk_shared(), barrier = tile + FK_BOX_BYTES, words = barrier + 16;
    rung_open(barrier, 5);
    FK_ROLL
    for (fk_u32 n = 0; n < 6; n++) {
        if (fk_lane() == 0) {
            fk_store_shared_bits(words + fk_warp() * 4, (n + 1) * (fk_warp() + 1));
            fk_mbarrier_arrive(barrier);
        }
        if (fk_thread() == 0) rung_load_box(&p, tile, n * 8, barrier);
        fk_mbarrier_wait(barrier, n % 2);
        fk_u32 sum = fk_load_shared_bits(tile + fk_lane() * 4); /* of the box's first row, which no swizzle moves */
        FK_UNROLL
        for (fk_u32 i = 0; i < 4; i++) sum += fk_load_shared_bits(words + i * 4);
        fk_store_bits(p.out + (n * 128 + fk_thread()) * 4, sum);
        fk_sync();
    }
}

/* The box of column a, head b, row c, slot d. */
RUNG(rung_tma, 128) {
    fk_u32 tile = fk_shared(), barrier = tile + FK_BOX_BYTES;
    rung_open(barrier, 1);
    if (fk_thread() == 0) rung_load_box(&p, tile, p.c, barrier);
    fk_mbarrier_wait(barrier, 0);
    rung_dump(&p, tile, FK_BOX_BYTES, 128);
}
/* The same, once the flag is up. */
RUNG(rung_flag_tma, 128) {
    fk_u32 tile = fk_shared(), barrier = tile + FK_BOX_BYTES;
    rung_open(barrier, 1);
    if (fk_thread() == 0) {
        fk_wait_arrival(p.flag);
        fk_fence_proxy_async_global();
        rung_load_box(&p, tile, p.c, barrier);
    }
    fk_mbarrier_wait(barrier, 0);
    rung_dump(&p, tile, FK_BOX_BYTES, 128);
}

/* --- sm_90a: tiles and WGMMA -------------------------------------------------------------------------------------- */

/* Brings `rows` rows into a tile of which `there` exist, in one of the ways of rung_launch.h. */
FK_DEVICE void rung_tile(fk_u32 to, fk_u64 from, fk_u32 boxes, fk_u32 rows, fk_u32 there, fk_u32 way) {
    if (way == RUNG_IMAGE) rung_fill(to, from, boxes * rows * FK_TILE_ROW, 128);
    if (way == RUNG_COPIED) {
        fk_copy_rows(to, boxes, rows, fk_thread(), 128, from, boxes * FK_TILE_ROW, there);
        fk_cp_async_wait();
    }
    if (way == RUNG_STORED) {
        FK_ROLL
        for (fk_u32 i = fk_thread(); i < rows * boxes * 32; i += 128) {
            fk_u32 row = i / (boxes * 32), word = i % (boxes * 32), line = word / 32 * rows + row;
            fk_store_shared_bits(to + line * FK_TILE_ROW + (word % 32 / 4 ^ row % 8) * 16 + word % 4 * 4,
                                 fk_load_bits(from + i * 4));
        }
    }
}
/* The tile of 64 rows and 128 columns that way d makes. Of the rows, the first c are there. */
RUNG(rung_tile_of, 128) {
    fk_u32 tile = fk_shared();
    rung_tile(tile, p.in, 2, 64, p.c, p.d);
    fk_sync();
    rung_dump(&p, tile, 2 * FK_BOX_BYTES, 128);
}

FK_DEVICE void rung_put(const rung_launch *p, const float *c, fk_u32 n) {
    fk_u32 row = fk_warp() * 16 + fk_lane() / 4, column = fk_lane() % 4 * 2;
    FK_UNROLL
    for (fk_u32 i = 0; i < n / 2; i++)
        fk_store(p->out + ((row + i % 4 / 2 * 8) * n + column + i / 4 * 8 + i % 2) * 4, c[i]);
}
FK_DEVICE void rung_begin(float *c, fk_u32 n, float x) {
    FK_UNROLL
    for (fk_u32 i = 0; i < n / 2; i++) c[i] = x;
    fk_fence_proxy_async();
    fk_sync();
    fk_wgmma_settle(c, n / 2);
    fk_wgmma_fence();
}
FK_DEVICE void rung_end(const rung_launch *p, float *c, fk_u32 n) {
    fk_wgmma_commit();
    fk_wgmma_wait_0();
    fk_wgmma_settle(c, n / 2);
    rung_put(p, c, n);
}

/* 64 rows, from row b of 128 on, times n rows: `steps` steps along the depth, from step a on. */
#define RUNG_K_MAJOR(name, n, steps)                                                                                   \
    RUNG(name, 128) {                                                                                                  \
        float c[n / 2];                                                                                                \
        fk_u32 x = fk_uniform(fk_shared()), y = x + 128 * FK_ROW_BYTES;                                                \
        rung_tile(x, p.in, FK_BOXES, 128, 128, p.d);                                                                   \
        rung_tile(y, p.other, FK_BOXES, n, n, p.d);                                                                    \
        rung_begin(c, n, 0);                                                                                           \
        FK_UNROLL                                                                                                      \
        for (fk_u32 s = 0; s < steps; s++) {                                                                           \
            const fk_u64 a = fk_descriptor_k_major(x, 128, p.b, p.a + s), b = fk_descriptor_k_major(y, n, 0, p.a + s); \
            FK_WGMMA(fk_wgmma_, n)(c, a, b, s > 0);                                                                    \
        }                                                                                                              \
        rung_end(&p, c, n);                                                                                            \
    }
RUNG_K_MAJOR(rung_k_32, 32, 1)
RUNG_K_MAJOR(rung_k_64, 64, 1)
RUNG_K_MAJOR(rung_k_128, 128, 1)
RUNG_K_MAJOR(rung_k_all_64, 64, 8)
RUNG_K_MAJOR(rung_k_all_128, 128, 8)

/* 1 + 64 rows in registers times n columns of b rows, of which step a. in: four words a thread. */
#define RUNG_REGISTERS(name, n)                                                                                        \
    RUNG(name, 128) {                                                                                                  \
        float c[n / 2];                                                                                                \
        fk_u32 a[4], y = fk_uniform(fk_shared());                                                                      \
        FK_UNROLL                                                                                                      \
        for (fk_u32 i = 0; i < 4; i++) a[i] = fk_load_bits(p.in + (fk_thread() * 4 + i) * 4);                          \
        rung_tile(y, p.other, n / FK_BOX, p.b, p.b, p.d);                                                              \
        rung_begin(c, n, 1);                                                                                           \
        FK_WGMMA(fk_wgmma_registers_, n)(c, a, fk_descriptor_mn_major(y, p.b, p.a, 0), 1);                             \
        rung_end(&p, c, n);                                                                                            \
    }
RUNG_REGISTERS(rung_registers_64, 64)
RUNG_REGISTERS(rung_registers_128, 128)
RUNG_REGISTERS(rung_registers_192, 192)
RUNG_REGISTERS(rung_registers_256, 256)

/* 64 columns of 128 rows times 64 columns of 128 rows, from box b on, as dQ is made of dS and K: step a. */
RUNG(rung_turned, 128) {
    float c[32];
    fk_u32 x = fk_uniform(fk_shared()), y = x + 128 * FK_TILE_ROW;
    rung_tile(x, p.in, 1, 128, 128, p.d);
    rung_tile(y, p.other, FK_BOXES, 128, 128, p.d);
    rung_begin(c, 64, 0);
    FK_WGMMA(fk_wgmma_transposed_, 64)
    (c, fk_descriptor_mn_major(x, 128, p.a, 0), fk_descriptor_mn_major(y, 128, p.a, p.b), 0);
    rung_end(&p, c, 64);
}

/* --- sm_90a: roles ------------------------------------------------------------------------------------------------ */

/* One warpgroup gives registers to two others, which then have `live` numbers in registers while they meet at named
 * barriers: with all three, where the first writes a word, and in turn with each other. */
enum { RUNG_FULL = 1, RUNG_FREE, RUNG_TURN, RUNG_END = RUNG_TURN + 2, RUNG_STEPS = 8 };
FK_DEVICE fk_u32 rung_meet(fk_u32 worker, fk_u32 word) {
    fk_u32 sum = 0;
    if (worker == 1) fk_named_barrier_arrive(RUNG_TURN, 256);
    FK_ROLL
    for (fk_u32 n = 0; n < RUNG_STEPS; n++) {
        fk_named_barrier_sync(RUNG_FULL, 384);
        sum = sum * 3 + fk_load_shared_bits(word);
        if (n + 1 < RUNG_STEPS) fk_named_barrier_arrive(RUNG_FREE, 384);
        fk_named_barrier_sync(RUNG_TURN + worker, 256);
        if (fk_thread() % 128 == 0) fk_store_shared_bits(word + 4, fk_load_shared_bits(word + 4) * 3 + worker + 1);
        fk_named_barrier_arrive(RUNG_TURN + 1 - worker, 256);
    }
    if (worker == 0) fk_named_barrier_sync(RUNG_TURN, 256);
    fk_named_barrier_sync(RUNG_END, 256);
    return sum + fk_load_shared_bits(word + 4);
}
#define RUNG_ROLES(name, down, up, live)                                                                               \
    RUNG(name, 384) {                                                                                                  \
        fk_u32 word = fk_shared();                                                                                     \
        if (fk_thread() == 0) fk_store_shared_bits(word + 4, 0);                                                       \
        fk_sync();                                                                                                     \
        if (fk_thread() < 128) {                                                                                       \
            fk_setmaxnreg_dec(down);                                                                                   \
            FK_ROLL                                                                                                    \
            for (fk_u32 n = 0; n < RUNG_STEPS; n++) {                                                                  \
                if (n) fk_named_barrier_sync(RUNG_FREE, 384);                                                          \
                if (fk_thread() == 0) fk_store_shared_bits(word, n *n + 1);                                            \
                fk_named_barrier_arrive(RUNG_FULL, 384);                                                               \
            }                                                                                                          \
            fk_store_bits(p.out + fk_thread() * 4, 1000 + fk_thread());                                                \
        } else {                                                                                                       \
            fk_u32 x[live], sum;                                                                                       \
            fk_setmaxnreg_inc(up);                                                                                     \
            FK_UNROLL                                                                                                  \
            for (fk_u32 i = 0; i < live; i++) x[i] = fk_load_bits(p.in + (i * 128 + fk_thread() % 128) * 4);           \
            sum = rung_meet(fk_thread() / 128 - 1, word);                                                              \
            FK_UNROLL                                                                                                  \
            for (fk_u32 i = 0; i < live; i++) sum = sum * 5 + x[i];                                                    \
            fk_store_bits(p.out + fk_thread() * 4, sum);                                                               \
        }                                                                                                              \
    }
RUNG_ROLES(rung_roles_40, 40, 232, 200)
RUNG_ROLES(rung_roles_56, 56, 224, 192)

/* As rung_turns, but a warp takes the turns for the other, as the backward pass does for dK and dV. */
RUNG(rung_turns_named, 64) {
    fk_u32 turn = rung_ticket(&p);
    if (fk_warp() == 0) {
        if (fk_lane() == 0) fk_acquire(p.flag, turn);
        fk_named_barrier_arrive(1, 64);
        fk_named_barrier_sync(2, 64);
        if (fk_lane() == 0) fk_release(p.flag, turn + 1);
    } else {
        float x = fk_load(p.in + turn * 4);
        fk_named_barrier_sync(1, 64);
        fk_add_global2(p.out + fk_lane() * 8, x, x);
        fk_named_barrier_arrive(2, 64);
    }
}
/* The first warp waits for a turn, and the second one adds in it what stands in shared memory, as the backward pass does
 * for dQ. */
RUNG(rung_turns_bulk, 64) {
    fk_u32 turn = rung_ticket(&p), row = fk_shared() + 64;
    float x = fk_load(p.in + turn * 4);
    fk_store_shared2(row + fk_thread() * 8, x, x);
    fk_fence_proxy_async();
    if (fk_warp() == 0) {
        if (fk_lane() == 0) {
            fk_acquire(p.flag, turn);
            fk_fence_proxy_async_global();
        }
        fk_named_barrier_arrive(1, 64);
    } else {
        fk_named_barrier_sync(1, 64);
        fk_bulk_add(p.out + fk_lane() * 16, row + fk_lane() * 16, 16);
        fk_bulk_commit();
        fk_bulk_wait();
        fk_named_barrier_sync(2, 32);
        if (fk_lane() == 0) fk_release(p.flag, turn + 1);
    }
}
#endif
#endif
