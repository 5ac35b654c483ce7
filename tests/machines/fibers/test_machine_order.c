/* test_machine_order.c: tests that the machine of fibers knows the order between threads, copies and WGMMAs. Kernels of
 * a few lines make the same accesses twice: with the barrier, fence or wait that orders them, and without it. Other
 * tests check what TMA loads bring, and operands of WGMMAs in every swizzle.
 */
#include <math.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "tests/support/plain.h"
#include "tests/machines/fibers/machine.h"
#include "tests/machines/fibers/prim_host.h"

enum { WARPS = 8, SHARED = 32 * 1024, SEEDS = 12 };

struct job {
    fk_map map, beyond;
    fk_u64 data;
    fk_u32 variant, swizzle;
    float out[64][64];
    float read[256][2];
};

static char text[MACHINE_TEXT];
static machine *the_machine;
static _Alignas(64) struct job the_job;
static _Alignas(16) uint16_t the_data[128][64];

static void open_machine(void) {
    cr_assert_not_null(the_machine = machine_new());
    for (int i = 0; i < 128; i++)
        for (int j = 0; j < 64; j++) the_data[i][j] = fcp_float_bf16((float)((i * 7 + j * 5) % 23 - 11));
    machine_map shape = {.base = (uintptr_t)the_data, .dims = {64, 1, 100, 1}, .strides = {128, 128, 12800}, .box = {64, 1, 64, 1},
                         .element = 2, .swizzle = MACHINE_SWIZZLE_128};
    cr_assert(machine_map_encode(&the_job.map, &shape));
    shape.dims[2] = 101;
    cr_assert(machine_map_encode(&the_job.beyond, &shape));
    the_job.data = (uintptr_t)the_data;
}
static void close_machine(void) { machine_free(the_machine); }
TestSuite(machine_order, .init = open_machine, .fini = close_machine);

/* The world outside of a kernel raises a flag once, unless the variant is 0. */
static fk_u32 the_flag;
static bool raise_flag(void *context) {
    const struct job *x = context;
    bool raises = x->variant && !the_flag;
    if (raises) the_flag = 1;
    return raises;
}

static bool run(void (*kernel)(const void *), fk_u32 variant, fk_u64 seed) {
    const machine_range ranges[] = {
        {.name = "data", .begin = (uintptr_t)the_data, .end = (uintptr_t)(the_data + 100)},
        {.name = "the flag", .begin = (uintptr_t)&the_flag, .end = (uintptr_t)(&the_flag + 1)}};
    const machine_launch launch = {.kernel = kernel, .parameters = &the_job, .blocks = 1, .threads = WARPS * 32,
                                   .shared = SHARED, .ranges = ranges, .range_count = 2, .seed = seed,
                                   .outside = raise_flag, .outside_context = &the_job};
    the_flag = 0;
    the_job.variant = variant;
    return machine_run(the_machine, &launch, text);
}
/* `right` runs, and every variant below it fails by its name. */
static void judge(void (*kernel)(const void *), fk_u32 right, const char *const names[]) {
    for (fk_u64 seed = 0; seed < SEEDS; seed++) {
        cr_assert(run(kernel, right, seed), "%s", text);
        for (fk_u32 v = 0; v < right; v++) {
            cr_assert(!run(kernel, v, seed), "%s (variant %u) was not seen", names[v], v);
            cr_assert(strncmp(text, names[v], strlen(names[v])) == 0, "%s (variant %u): %s", names[v], v, text);
        }
    }
}

static fk_u32 variant_of(const void *parameters) { return ((const struct job *)parameters)->variant; }
static fk_u32 at_barrier(fk_u32 i) { return fk_shared() + SHARED - 64 + i * 8; }
static void open_barriers(fk_u32 first, fk_u32 second) {
    if (fk_thread() == 0) {
        fk_mbarrier_init(at_barrier(0), first);
        fk_mbarrier_init(at_barrier(1), second);
        fk_mbarrier_init_fence();
    }
    fk_sync();
}
static void read_pair(const void *parameters, fk_u32 from) {
    fk_load_shared2(((struct job *)parameters)->read[fk_thread()], from);
}

/* --- who speaks for whom ------------------------------------------------------------------------------------------ */

/* 0: a lane that arrives says nothing of the others */
static void lanes_store(const void *p) {
    fk_u32 right = 1, v = variant_of(p), thread = fk_thread();
    open_barriers(v == right ? 32 : 1, 1);
    if (thread < 32) {
        fk_store_shared(fk_shared() + thread * 4, 1);
        if (v == right || thread == 0) fk_mbarrier_arrive(at_barrier(0));
    } else if (thread < 64) {
        fk_mbarrier_wait(at_barrier(0), 0);
        read_pair(p, fk_shared() + thread % 16 * 8);
    }
    fk_sync();
}

/* By a barrier and then by a named one. 0: who only arrives learns nothing; 1: who read must say so. */
static void chain(const void *p) {
    fk_u32 v = variant_of(p), thread = fk_thread(), w = thread / 32;
    open_barriers(1, v == 1 ? 1 : 32);
    if (thread == 0) {
        fk_store_shared(fk_shared(), 1);
        fk_store_shared(fk_shared() + 4, 1);
        fk_mbarrier_arrive(at_barrier(0));
        fk_mbarrier_wait(at_barrier(1), 0);
        fk_store_shared(fk_shared(), 2);
    } else if (w == 1) {
        if (v) fk_mbarrier_wait(at_barrier(0), 0);
        if (v) fk_named_barrier_sync(3, 64);
        else fk_named_barrier_sync(3, 64);
    } else if (w == 2) {
        if (v) fk_named_barrier_sync(3, 64);
        else fk_named_barrier_arrive(3, 64);
        read_pair(p, fk_shared());
        if (v != 1 || thread == 64) fk_mbarrier_arrive(at_barrier(1));
    }
    fk_sync();
}

Test(machine_order, threads) {
    judge(lanes_store, 1, (const char *[]){"race: shared byte"});
    judge(chain, 2,
          (const char *[]){"race: shared byte", "race: shared byte 0 is written, and nothing orders that behind"});
}

/* --- TMA loads ------------------------------------------------------------------------------------------------ */

/* A copy over what was stored and read. 0: not fenced; 1: a reader not waited for; 2: read without a wait; 3: more than
 * the launch has; 4: waits twice for the same; 5: no such parity */
static void copied_over(const void *p) {
    const struct job *x = p;
    fk_u32 v = x->variant, thread = fk_thread();
    open_barriers(1, v == 1 ? 255 : 256);
    for (fk_u32 i = thread; i < FK_BOX_BYTES / 4; i += 256) fk_store_shared(fk_shared() + i * 4, 0);
    if (v != 0) fk_fence_proxy_async();
    fk_sync();
    read_pair(p, fk_shared() + thread * 8);
    if (v != 1 || thread != 99) fk_mbarrier_arrive(at_barrier(1));
    if (thread == 0) {
        fk_mbarrier_wait(at_barrier(1), 0);
        fk_mbarrier_arrive_expect(at_barrier(0), FK_BOX_BYTES);
        fk_tma_load(fk_shared(), v == 3 ? &x->beyond : &x->map, 0, 0, 64, 0, at_barrier(0));
    }
    if (v != 2 || thread != 77) fk_mbarrier_wait(at_barrier(0), v == 5 ? 2 : 0);
    if (v == 4) fk_mbarrier_wait(at_barrier(0), 0);
    read_pair(p, fk_shared() + thread * 8);
}

Test(machine_order, copies) {
    static const char *const names[] = {"missing proxy fence: a tensor copy writes shared byte",
                                        "race: shared byte",
                                        "",
                                        "out of bounds: global memory",
                                        "phase error: the thread waits again for phase 0 of barrier",
                                        "phase error: a wait for"};
    for (fk_u64 seed = 0; seed < SEEDS; seed++) {
        cr_assert(run(copied_over, 6, seed), "%s", text);
        for (fk_u32 i = 0; i < 256; i++) { /* row 64 on, of which 36 are there */
            fk_u32 row = i / 16, chunk = i % 16 / 2 ^ row % 8, column = chunk * 8 + i % 2 * 4;
            uint16_t two[4];
            memcpy(two, the_job.read[i], 8);
            for (fk_u32 e = 0; e < 4; e++) cr_assert(two[e] == the_data[64 + row][column + e], "%u, %u", i, e);
        }
        for (fk_u32 v = 0; v < 6; v++) {
            cr_assert(!run(copied_over, v, seed), "%s (variant %u) was not seen", names[v], v);
            cr_assert(strncmp(text, names[v], strlen(names[v])) == 0, "%s (variant %u): %s", names[v], v, text);
            bool early =
                strncmp(text, "race: shared byte", 17) == 0 || strncmp(text, "unfinished copy: shared", 23) == 0;
            cr_assert(v != 2 || early, "%s", text);
        }
    }
}

/* A TMA load of what has arrived. 0: nothing arrives; 1: not fenced */
static void arrived(const void *p) {
    const struct job *x = p;
    open_barriers(1, 256);
    if (fk_thread() == 0) {
        fk_wait_arrival((uintptr_t)&the_flag);
        if (x->variant != 1) fk_fence_proxy_async_global();
        fk_mbarrier_arrive_expect(at_barrier(0), FK_BOX_BYTES);
        fk_tma_load(fk_shared(), &x->map, 0, 0, 0, 0, at_barrier(0));
    }
    fk_mbarrier_wait(at_barrier(0), 0);
    read_pair(p, fk_shared() + fk_thread() * 8);
}

Test(machine_order, arrivals) {
    judge(arrived, 2, (const char *[]){"deadlock", "missing proxy fence: the thread has waited for an arrival"});
}

/* What lies outside of a tensor of 64 columns, one head, 100 rows and one slot is 0. */
static const fk_u32 outside_from[7][4] = {{0, 0, 64, 0}, {0, 0, 99, 0}, {0, 0, 100, 0}, {0, 1, 0, 0},
                                          {64, 0, 0, 0}, {48, 0, 3, 0}, {0, 0, 0, 1}};
static void outside(const void *p) {
    struct job *x = (struct job *)p;
    const fk_u32 thread = fk_thread(), *from = outside_from[x->variant];
    open_barriers(1, 1);
    if (thread == 0) {
        fk_mbarrier_arrive_expect(at_barrier(0), FK_BOX_BYTES);
        fk_tma_load(fk_shared(), &x->map, from[0], from[1], from[2], from[3], at_barrier(0));
    }
    fk_mbarrier_wait(at_barrier(0), 0);
    for (fk_u32 i = thread; i < 64 * 32; i += 256) {
        fk_u32 row = i / 32, column = i % 32 * 2, bits;
        bits = fk_load_shared_bits(fk_shared() + row * 128 + (column / 8 ^ row % 8) * 16 + column % 8 * 2);
        x->out[row][column] = fcp_bf16_float((uint16_t)bits);
        x->out[row][column + 1] = fcp_bf16_float((uint16_t)(bits >> 16));
    }
}

Test(machine_order, outside_is_zero) {
    for (fk_u64 seed = 0; seed < 14; seed++) {
        const fk_u32 *f = outside_from[seed % 7];
        cr_assert(run(outside, (fk_u32)(seed % 7), seed), "%s", text);
        for (fk_u32 i = 0; i < 64; i++)
            for (fk_u32 j = 0; j < 64; j++) {
                bool there = !f[1] && !f[3] && f[2] + i < 100 && f[0] + j < 64;
                float x = there ? fcp_bf16_float(the_data[f[2] + i][f[0] + j]) : 0;
                cr_assert(the_job.out[i][j] == x, "%llu: %u, %u", seed, i, j);
            }
    }
}

Test(machine_order, maps) {
    machine_map good = {.base = (uintptr_t)the_data, .dims = {64, 1, 100, 1}, .strides = {128, 128, 12800},
                        .box = {64, 1, 64, 1}, .element = 2, .swizzle = MACHINE_SWIZZLE_128};
    machine_map bad[12];
    for (int i = 0; i < 12; i++) bad[i] = good;
    bad[0].base += 8, bad[1].dims[2] = 0, bad[2].strides[0] = 136, bad[3].box[0] = 128, bad[4].box[2] = 257;
    bad[5].box[1] = 0, bad[6].swizzle = 7, bad[7].strides[1] = UINT64_C(1) << 40, bad[8].base = 0, bad[9].element = 3;
    bad[10].strides[1] = 144, bad[11].strides[2] = 12808;
    fk_map map;
    cr_assert(machine_map_encode(&map, &good));
    for (int i = 0; i < 12; i++) cr_assert(!machine_map_encode(&map, &bad[i]), "%d", i);
}

/* --- blocks and registers ----------------------------------------------------------------------------------------- */

static void end_of_block(const void *p) {
    if (variant_of(p) == 0 && fk_thread() < 32) fk_named_barrier_arrive(5, 64);
    if (variant_of(p) == 1 && fk_thread() < 32) fk_named_barrier_sync(5, 64);
}
/* 0: up without anybody's down; 1: down to more; 2: no such number; 3: half of a warpgroup */
static void registers(const void *p) {
    fk_u32 v = variant_of(p), first = fk_thread() / 128;
    if (first && v != 0 && !(v == 3 && fk_thread() % 128 >= 64)) {
        if (v == 1) fk_setmaxnreg_dec(256);
        else if (v == 2) fk_setmaxnreg_dec(100);
        else fk_setmaxnreg_dec(40);
    }
    if (!first) fk_setmaxnreg_inc(256);
}

Test(machine_order, ends_and_registers) {
    judge(end_of_block, 2,
          (const char *[]){"named barrier: the block ends, and at number 5 32 of 64", "deadlock: of 256"});
    judge(registers, 4,
          (const char *[]){"deadlock: of 256 threads", "registers: down to 256, and the warpgroup has 248",
                           "registers: 100 is no multiple", "divergence: 2 warps of a warpgroup do not come"});
}

/* --- operands by every swizzle ------------------------------------------------------------------------------------ */

/* A product of two matrices that threads put down as the manual's canonical layouts: A 64 x 16, B 64 x 16, both with
 * the depth side by side, or with lines side by side. */
static fk_u32 canonical(fk_u32 swizzle, bool by_columns, fk_u32 line, fk_u32 k) {
    static const fk_u32 bytes_of[4] = {16, 128, 64, 32};
    fk_u32 bytes = bytes_of[swizzle], byte = (by_columns ? line : k) * 2, row = by_columns ? k : line;
    fk_u32 next_bytes = !by_columns ? 256 : swizzle ? 2048 : 1024, next_rows = by_columns ? 8192 : 1024;
    fk_u32 at = byte / bytes * next_bytes + row / 8 * next_rows + row % 8 * bytes + byte % bytes;
    if (!by_columns && swizzle) at = row / 8 * 1024 + row % 8 * bytes + byte;
    return swizzle ? at ^ (at / 128 % (bytes / 16)) * 16 : at;
}
static fk_u64 descriptor(fk_u32 at, fk_u32 swizzle, bool by_columns) {
    fk_u64 next_bytes = !by_columns ? 256 : swizzle ? 2048 : 1024, next_rows = by_columns ? 8192 : 1024;
    bool other = by_columns && !swizzle; /* there the strides change places */
    return (fk_u64)swizzle << 62 | (other ? next_bytes : next_rows) >> 4 << 32 |
           (other ? next_rows : next_bytes) >> 4 << 16 | at >> 4;
}
static float a_of(fk_u32 i, fk_u32 k) { return (float)((i * 5 + k * 3) % 13) - 6; }
static float b_of(fk_u32 j, fk_u32 k) { return (float)((j * 7 + k) % 11) - 5; }

static void by_swizzle(const void *p) {
    struct job *x = (struct job *)p;
    fk_u32 thread = fk_thread(), lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    bool by_columns = x->variant;
    fk_u32 a = fk_shared(), b = fk_shared() + 16384;
    for (fk_u32 i = thread; i < 64 * 16 / 2; i += 256) { /* two neighbours in memory */
        fk_u32 line = by_columns ? i % 32 * 2 : i / 8, k = by_columns ? i / 32 : i % 8 * 2;
        fk_u32 to = canonical(x->swizzle, by_columns, line, k), l = line + by_columns, q = k + !by_columns;
        fk_store_shared_bits(a + to, fk_pack_bf16(a_of(line, k), a_of(l, q)));
        fk_store_shared_bits(b + to, fk_pack_bf16(b_of(line, k), b_of(l, q)));
    }
    fk_fence_proxy_async();
    fk_sync();
    if (thread >= 128) return;
    float c[32];
    fk_u64 da = descriptor(a, x->swizzle, by_columns), db = descriptor(b, x->swizzle, by_columns);
    fk_wgmma_fence();
    if (by_columns) fk_wgmma_transposed_64_bf16(c, da, db, 0);
    else fk_wgmma_64_bf16(c, da, db, 0);
    fk_wgmma_commit();
    fk_wgmma_wait_0();
    fk_wgmma_settle(c, 32);
    for (fk_u32 i = 0; i < 32; i++) x->out[row + i % 4 / 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i];
}

Test(machine_order, swizzles) {
    for (fk_u32 swizzle = 0; swizzle < 4; swizzle++)
        for (fk_u32 v = 0; v < 2; v++) {
            the_job.swizzle = swizzle;
            cr_assert(run(by_swizzle, v, swizzle), "%u %u: %s", swizzle, v, text);
            for (fk_u32 i = 0; i < 64; i++)
                for (fk_u32 j = 0; j < 64; j++) {
                    float sum = 0;
                    for (fk_u32 k = 0; k < 16; k++) sum += a_of(i, k) * b_of(j, k);
                    cr_assert(the_job.out[i][j] == sum, "swizzle %u, by columns %u: %u, %u", swizzle, v, i, j);
                }
        }
}
