/* test_machine_sm90.c: tests the machine of fibers as an sm_90a. WGMMAs multiply the matrices that their descriptors
 * and fragments describe. A ring buffer of tiles between a producer and two consumers gives the right result with every
 * seed, and every flaw in it is reported by name.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "tests/support/plain.h"
#include "tests/machines/fibers/machine.h"
#include "tests/machines/fibers/prim_host.h"

enum { FK_HEAD_DIM = 64, FK_VALUE_DIM = 64 };
#include "codegen/kernels/tiles_sm90.h"

static char text[MACHINE_TEXT];
static machine *the_machine;

static void open_machine(void) { cr_assert_not_null(the_machine = machine_new()); }
static void close_machine(void) { machine_free(the_machine); }
TestSuite(machine_sm90, .init = open_machine, .fini = close_machine);

static fk_u64 random_state;
static int draw(int n) {
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (int)((random_state >> 33) % (fk_u64)n);
}

/* --- products ----------------------------------------------------------------------------------------------------- */

enum { WIDTH = 256 };
typedef void (*by_descriptors)(float *c, fk_u64 a, fk_u64 b, fk_u32 add);
typedef void (*by_registers)(float *c, const fk_u32 a[4], fk_u64 b, fk_u32 add);
struct product_of {
    fk_u32 n;
    bool bf16;
    by_descriptors by_rows, turned;
    by_registers registers;
};
#define PRODUCT_OF(n, type, is)                                                                                        \
    {                                                                                                                  \
        n, is, fk_wgmma_##n##_##type##_host, fk_wgmma_transposed_##n##_##type##_host,                                  \
            fk_wgmma_registers_##n##_##type##_host                                                                     \
    }
static const struct product_of products_of[] = {PRODUCT_OF(32, bf16, true),   PRODUCT_OF(64, bf16, true),
                                                PRODUCT_OF(128, bf16, true),  PRODUCT_OF(192, bf16, true),
                                                PRODUCT_OF(256, bf16, true),
                                                PRODUCT_OF(32, fp16, false),  PRODUCT_OF(64, fp16, false),
                                                PRODUCT_OF(128, fp16, false), PRODUCT_OF(192, fp16, false),
                                                PRODUCT_OF(256, fp16, false)};

struct matrices {
    const struct product_of *of;
    fk_map x, y; /* of [WIDTH][WIDTH] */
    fk_u64 x_at;
    fk_u32 kind; /* 0 by rows, 1 turned, 2 registers */
    fk_u32 steps;
    float out[64][WIDTH];
};

static fk_u32 barrier_at(fk_u32 i) { return fk_shared() + 200 * 1024 + i * 8; }

/* `boxes` boxes of columns, `rows` rows. */
static void fetch(fk_u32 tile, fk_u32 rows, fk_u32 boxes, const fk_map *map, fk_u32 barrier) {
    for (fk_u32 box = 0; box < boxes; box++)
        for (fk_u32 r = 0; r < rows; r += FK_BOX)
            fk_tma_load(tile + (box * rows + r) * FK_TILE_ROW, map, box * FK_BOX, 0, r, 0, barrier);
}

static void multiply(const void *parameters) {
    struct matrices *m = (struct matrices *)parameters;
    const struct product_of *of = m->of;
    fk_u32 thread = fk_thread(), lane = thread % 32, row = thread / 32 * 16 + lane / 4;
    fk_u32 x_tile = fk_shared(), y_tile = fk_shared() + 64 * 1024;
    fk_u32 depth = m->steps * 16, wide = (of->n + 63) / 64 * 64;
    if (thread == 0) {
        fk_mbarrier_init(barrier_at(0), 1);
        fk_mbarrier_init_fence();
    }
    fk_sync();
    if (thread == 0) {
        fk_u32 y_rows = m->kind ? depth : wide, y_boxes = m->kind ? wide / 64 : depth / 64;
        fk_u32 x_rows = m->kind == 1 ? depth : 64, x_boxes = m->kind == 1 ? 1 : depth / 64;
        fk_mbarrier_arrive_expect(barrier_at(0), (y_rows * y_boxes + x_rows * x_boxes) * FK_TILE_ROW);
        fetch(y_tile, y_rows, y_boxes, &m->y, barrier_at(0));
        fetch(x_tile, x_rows, x_boxes, &m->x, barrier_at(0));
    }
    fk_mbarrier_wait(barrier_at(0), 0);
    float c[WIDTH / 2];
    fk_u32 a[16][4];
    for (fk_u32 i = 0; i < of->n / 2; i++) c[i] = 1000;
    for (fk_u32 s = 0; s < m->steps; s++)
        for (fk_u32 i = 0; i < 4; i++)
            a[s][i] = fk_load_bits(m->x_at + ((row + i % 2 * 8) * WIDTH + s * 16 + i / 2 * 8 + lane % 4 * 2) * 2);
    fk_wgmma_fence();
    for (fk_u32 s = 0; s < m->steps; s++) {
        fk_u64 by_columns = fk_descriptor_mn_major(y_tile, depth, s, 0);
        if (m->kind == 0)
            of->by_rows(c, fk_descriptor_k_major(x_tile, 64, 0, s), fk_descriptor_k_major(y_tile, wide, 0, s), s);
        else if (m->kind == 1) of->turned(c, fk_descriptor_mn_major(x_tile, depth, s, 0), by_columns, s);
        else of->registers(c, a[s], by_columns, s);
    }
    fk_wgmma_commit();
    fk_wgmma_wait_0();
    fk_wgmma_settle(c, of->n / 2);
    for (fk_u32 i = 0; i < of->n / 2; i++)
        m->out[row + i % 4 / 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2] = c[i];
}

static fk_map map_of(const void *base, fk_u64 width, fk_u64 rows, fk_u32 swizzle) {
    fk_map map;
    machine_map shape = {.base = (uintptr_t)base, .dims = {width, 1, rows, 1},
                         .strides = {width * 2, width * 2, width * rows * 2}, .box = {FK_BOX, 1, FK_BOX, 1},
                         .element = 2, .swizzle = swizzle};
    cr_assert(machine_map_encode(&map, &shape));
    return map;
}

Test(machine_sm90, products) {
    static _Alignas(64) struct matrices m;
    static _Alignas(16) uint16_t x[WIDTH][WIDTH], y[WIDTH][WIDTH];
    static float fx[WIDTH][WIDTH], fy[WIDTH][WIDTH];
    for (size_t p = 0; p < sizeof products_of / sizeof *products_of; p++)
        for (fk_u32 kind = 0; kind < 3; kind++) {
            const struct product_of *of = &products_of[p];
            random_state = p * 3 + kind;
            for (int i = 0; i < WIDTH; i++)
                for (int j = 0; j < WIDTH; j++) {
                    fx[i][j] = (float)(draw(15) - 7), fy[i][j] = (float)(draw(17) - 8);
                    x[i][j] = of->bf16 ? fcp_float_bf16(fx[i][j]) : fcp_float_fp16(fx[i][j]);
                    y[i][j] = of->bf16 ? fcp_float_bf16(fy[i][j]) : fcp_float_fp16(fy[i][j]);
                }
            m.of = of, m.kind = kind, m.steps = 4 << draw(2), m.x_at = (uintptr_t)x;
            m.x = map_of(x, WIDTH, WIDTH, MACHINE_SWIZZLE_128), m.y = map_of(y, WIDTH, WIDTH, MACHINE_SWIZZLE_128);
            machine_range ranges[] = {{"x", (uintptr_t)x, (uintptr_t)(x + WIDTH), false, NULL},
                                      {"y", (uintptr_t)y, (uintptr_t)(y + WIDTH), false, NULL}};
            machine_launch launch = {multiply, &m, 1, 128, 200 * 1024 + 64, ranges, 2, p + kind, 0, 0};
            cr_assert(machine_run(the_machine, &launch, text), "%s", text);
            for (fk_u32 i = 0; i < 64; i++)
                for (fk_u32 j = 0; j < of->n; j++) {
                    float sum = 0;
                    for (fk_u32 k = 0; k < m.steps * 16; k++)
                        sum += (kind == 1 ? fx[k][i] : fx[i][k]) * (kind == 0 ? fy[j][k] : fy[k][j]);
                    cr_assert(m.out[i][j] == sum, "n %u, kind %u: %u, %u is %g, not %g", of->n, kind, i, j,
                              (double)m.out[i][j], (double)sum);
                }
        }
}

/* --- a ring ------------------------------------------------------------------------------------------------------- */

/* For each item and each of two consumers, with Q its 64 rows: for each tile K, S = Q K^T, rounded; T += S K; U +=
 * S^T Q by shared memory. The last tile of an item has fewer rows, and is gathered. What is wrong with it: */
typedef enum flaw {
    NONE,
    STORED_NOT_FENCED,
    GATHERED_NOT_FENCED,
    STORED_NOT_MET,
    EMPTY_TOO_EARLY,
    EMPTY_NOT_WAITED,
    FULL_NOT_WAITED,
    PHASES_BEGIN_ANEW,
    PHASE_SKIPPED,
    NO_BEGIN,
    PACKED_AFTER_BEGIN,
    SUMS_TOUCHED,
    SUMS_SCALED,
    NEVER_SETTLED,
    SETTLED_TOO_EARLY,
    HALF_SETTLED,
    SETTLED_TWICE,
    OPERAND_TOUCHED,
    NEVER_WAITED,
    EXPECTS_LESS,
    EXPECTS_MORE,
    ARRIVES_TWICE,
    BARRIER_NOT_FENCED,
    BARRIER_NOT_MET,
    BARRIER_TWICE,
    BARRIER_STORED,
    NO_BARRIER,
    NOT_SWIZZLED,
    NO_MAP,
    TENSOR_UNALIGNED,
    OTHER_SWIZZLE,
    INSIDE_PATTERN,
    BEYOND_SHARED,
    NAMED_COUNTS,
    NAMED_TWICE,
    NAMED_ZERO,
    REGISTERS_KEPT,
    REGISTERS_UP_AND_AWAY,
    WARP_KEEPS_REGISTERS,
    OTHER_OPERANDS,
    OTHER_LINE,
    WARP_MISSING,
    COPY_AT_END,
    HALF_A_PHASE,
    OVERLAPPING_SUMS
} flaw;

enum { TILE = 64, TILES = 5, ITEMS = 3, LAST = 40, RING = 2 };
struct ring {
    flaw flaw;
    fk_map q, k, other;
    fk_u64 k_at;
    _Alignas(16) uint16_t queries[ITEMS * 2 * TILE][TILE];
    _Alignas(16) uint16_t keys[ITEMS * TILES * TILE][TILE];
    float t[ITEMS * 2][TILE][TILE], u[ITEMS * 2][TILE][TILE];
};

static fk_u32 k_tile(fk_u32 stage) { return fk_shared() + 16384 + stage * 8192; }
static fk_u32 s_tile(fk_u32 consumer) { return fk_shared() + 32768 + consumer * 8192; }
static fk_u32 ring_barrier(fk_u32 i) { return fk_shared() + 49152 + i * 8; }
static fk_u32 full(fk_u32 stage) { return ring_barrier(stage); }
static fk_u32 empty(fk_u32 stage) { return ring_barrier(2 + stage); }
enum { Q_FULL = 4, Q_EMPTY, UNUSED, RING_SHARED = 49152 + 64 };

static void produce(const struct ring *r, flaw f) {
    fk_u32 thread = fk_thread(), step = 0;
    if (f == WARP_KEEPS_REGISTERS && thread / 32 == 2) return;
    if (f != REGISTERS_KEPT) fk_setmaxnreg_dec(24);
    for (fk_u32 item = 0; item < ITEMS; item++) {
        if (thread == 0) {
            fk_mbarrier_wait(ring_barrier(Q_EMPTY), (item & 1) ^ 1);
            fk_mbarrier_arrive_expect(ring_barrier(Q_FULL), 2 * FK_BOX_BYTES);
            fk_tma_load_rows(fk_shared(), 1, 2 * TILE, 2 * TILE, &r->q, 0, item * 2 * TILE, 0, ring_barrier(Q_FULL));
        }
        for (fk_u32 tile = 0; tile < TILES; tile++, step++) {
            fk_u32 stage = step % RING, row = (item * TILES + tile) * TILE;
            bool gathered = tile == TILES - 1;
            if (f != EMPTY_NOT_WAITED && !(f == PHASE_SKIPPED && thread && !gathered))
                fk_mbarrier_wait(empty(stage), (step / RING & 1) ^ 1);
            if (gathered) {
                fk_copy_rows(k_tile(stage), 1, TILE, thread, 128, r->k_at + row * 128, 128, LAST);
                fk_cp_async_wait();
                if (f != GATHERED_NOT_FENCED) fk_fence_proxy_async();
                fk_named_barrier_sync(f == NAMED_ZERO ? 0 : 1, 128);
                if (thread == 0) fk_mbarrier_arrive(full(stage));
            } else if (thread == 0) {
                fk_mbarrier_arrive_expect(full(stage), f == EXPECTS_LESS ? 4096 : f == EXPECTS_MORE ? 16384 : 8192);
                if (f == ARRIVES_TWICE) fk_mbarrier_arrive(full(stage));
                fk_tma_load(k_tile(stage) + (f == TENSOR_UNALIGNED ? 128 : 0), f == NOT_SWIZZLED ? &r->other : &r->k, 0,
                            0, row, 0, full(stage));
            }
        }
    }
    if (f == COPY_AT_END && thread == 0) {
        for (fk_u32 i = 0; i < RING; i++, step++) fk_mbarrier_wait(empty(step % RING), (step / RING & 1) ^ 1);
        fk_tma_load_rows(fk_shared() + 16384, 1, TILE, TILE, &r->k, 0, 0, 0, full(0));
    }
}

static void consume(struct ring *r, flaw f) {
    fk_u32 consumer = fk_thread() / 128 - 1, thread = fk_thread() % 128, step = 0, lane = thread % 32;
    fk_u32 row = thread / 32 * 16 + lane / 4, columns = lane % 4 * 2;
    if (f != REGISTERS_UP_AND_AWAY || consumer) fk_setmaxnreg_inc(240);
    for (fk_u32 item = 0; item < ITEMS; item++) {
        float t[TILE / 2], u[TILE / 2];
        fk_mbarrier_wait(ring_barrier(Q_FULL), item & 1);
        if (f == PHASES_BEGIN_ANEW) step = 0;
        for (fk_u32 tile = 0; tile < TILES; tile++, step++) {
            fk_u32 stage = step % RING, keys = k_tile(stage);
            float s[TILE];
            fk_u32 p[4][4];
            if (f != FULL_NOT_WAITED) fk_mbarrier_wait(full(stage), step / RING & 1);
            if (f == WARP_MISSING && consumer && thread / 32 == 3 && step == 3) return;
            if (f != NO_BEGIN || step != 4) fk_wgmma_fence();
            for (fk_u32 i = 0; i < 4; i++) {
                fk_u64 a = fk_descriptor_k_major(fk_shared(), 2 * TILE, consumer * TILE, i),
                       b = fk_descriptor_k_major(keys, TILE, 0, i);
                if (f == OTHER_SWIZZLE) b ^= (fk_u64)3 << 62;
                if (f == INSIDE_PATTERN) b += 128 >> 4;
                if (f == BEYOND_SHARED) b = fk_descriptor_k_major(fk_shared() + 49152, TILE, 0, i);
                if (f == OTHER_OPERANDS && thread == 77) b = fk_descriptor_k_major(keys, TILE, 8, i);
                if (f == OTHER_LINE && thread == 99) fk_wgmma_64_bf16(s, a, b, i);
                else fk_wgmma_64_bf16(s, a, b, i);
                if (f == OVERLAPPING_SUMS) fk_wgmma_32_bf16(s + 8, a, b, i);
            }
            fk_wgmma_commit();
            if (f == SUMS_TOUCHED && thread == 5) s[7] = 0;
            if (f == SUMS_SCALED && thread == 5) s[7] *= 0.5f;
            if (f == NEVER_WAITED && item == ITEMS - 1 && tile == TILES - 1) return;
            if (f == EMPTY_TOO_EARLY && thread == 0) fk_mbarrier_arrive(empty(stage));
            if (f == SETTLED_TOO_EARLY) fk_wgmma_settle(s, TILE / 2);
            fk_wgmma_wait_0();
            if (f != NEVER_SETTLED) fk_wgmma_settle(s, f == HALF_SETTLED ? TILE / 4 : TILE / 2);
            if (f == SETTLED_TWICE) fk_wgmma_settle(s, TILE / 2);
            if (f == PACKED_AFTER_BEGIN) fk_wgmma_fence();
            for (fk_u32 i = 0; i < 4; i++)
                for (fk_u32 j = 0; j < 4; j++) {
                    const float *x = s + 8 * i + 4 * (j / 2) + 2 * (j % 2);
                    fk_u32 key = 16 * i + 8 * (j / 2) + columns, line = row + 8 * (j % 2);
                    p[i][j] = fk_pack_bf16(x[0], x[1]);
                    fk_store_shared_bits(s_tile(consumer) + line * 128 + (key / 8 ^ line % 8) * 16 + key % 8 * 2,
                                         p[i][j]);
                }
            if (f != STORED_NOT_FENCED) fk_fence_proxy_async();
            if (f == NAMED_COUNTS && step == 1) fk_named_barrier_sync(2, consumer ? 256 : 128);
            if (f == NAMED_TWICE && thread / 32 == 1) fk_named_barrier_arrive(2 + consumer, 128);
            if (f != STORED_NOT_MET) fk_named_barrier_sync(2 + consumer, 128);
            if (f != PACKED_AFTER_BEGIN) fk_wgmma_fence();
            for (fk_u32 i = 0; i < 4; i++)
                fk_wgmma_registers_64_bf16(t, p[i], fk_descriptor_mn_major(keys, TILE, i, 0), tile || i);
            fk_wgmma_commit();
            for (fk_u32 i = 0; i < 4; i++)
                fk_wgmma_transposed_64_bf16(u, fk_descriptor_mn_major(s_tile(consumer), TILE, i, 0),
                                            fk_descriptor_mn_major(fk_shared() + consumer * TILE * 128, 2 * TILE, i, 0),
                                            tile || i);
            fk_wgmma_commit();
            if (f == OPERAND_TOUCHED && thread == 100) p[2][1]++;
            fk_wgmma_wait_1();
            if (thread == 0 && f != EMPTY_TOO_EARLY) fk_mbarrier_arrive(empty(stage));
            fk_wgmma_wait_0();
            fk_named_barrier_sync(2 + consumer, 128); /* before the next S is stored */
        }
        if (thread == 0) fk_mbarrier_arrive(ring_barrier(Q_EMPTY));
        fk_wgmma_settle(t, TILE / 2);
        fk_wgmma_settle(u, TILE / 2);
        for (fk_u32 i = 0; i < TILE / 2; i++) {
            fk_u32 line = row + i % 4 / 2 * 8, column = i / 4 * 8 + columns + i % 2;
            r->t[item * 2 + consumer][line][column] = t[i];
            r->u[item * 2 + consumer][line][column] = u[i];
        }
    }
    if (f == HALF_A_PHASE && thread == 0 && consumer) fk_mbarrier_arrive(empty(0));
}

static void ring(const void *parameters) {
    struct ring *r = (struct ring *)parameters;
    flaw f = r->flaw;
    if (fk_thread() == 0) {
        for (fk_u32 i = 0; i < UNUSED; i++)
            if (f != NO_BARRIER || i != 1) fk_mbarrier_init(ring_barrier(i), i < 2 || i == Q_FULL ? 1 : 2);
        if (f == BARRIER_TWICE) fk_mbarrier_init(ring_barrier(3), 1);
        if (f != BARRIER_NOT_FENCED) fk_mbarrier_init_fence();
        if (f == BARRIER_STORED) fk_store_shared(ring_barrier(2), 1);
    }
    if (f != BARRIER_NOT_MET) fk_sync();
    if (fk_thread() < 128) produce(r, f);
    else consume(r, f);
}

static struct ring *new_ring(void) {
    struct ring *r = aligned_alloc(64, (sizeof *r + 63) / 64 * 64);
    cr_assert_not_null(r);
    memset(r, 0, sizeof *r);
    random_state = 5;
    for (int i = 0; i < ITEMS * 2 * TILE; i++)
        for (int j = 0; j < TILE; j++) r->queries[i][j] = fcp_float_bf16((float)(draw(3) - 1));
    for (int i = 0; i < ITEMS * TILES * TILE; i++)
        for (int j = 0; j < TILE; j++)
            r->keys[i][j] =
                i / TILE % TILES == TILES - 1 && i % TILE >= LAST ? 0x7fc0 : fcp_float_bf16((float)(draw(3) - 1));
    r->q = map_of(r->queries, TILE, ITEMS * 2 * TILE, MACHINE_SWIZZLE_128);
    r->k = map_of(r->keys, TILE, ITEMS * TILES * TILE, MACHINE_SWIZZLE_128);
    r->other = map_of(r->keys, TILE, ITEMS * TILES * TILE, 0);
    r->k_at = (uintptr_t)r->keys;
    return r;
}

static bool run_ring(struct ring *r, flaw f, fk_u64 seed) {
    machine_range ranges[] = {{"q", (uintptr_t)r->queries, (uintptr_t)(r->queries + ITEMS * 2 * TILE), false, NULL},
                              {"k", (uintptr_t)r->keys, (uintptr_t)(r->keys + ITEMS * TILES * TILE), false, NULL}};
    machine_launch launch = {ring, r, 1, 384, RING_SHARED, ranges, 2, seed, 0, 0};
    r->flaw = f;
    if (f == NO_MAP) r->k.words[3]++;
    bool ok = machine_run(the_machine, &launch, text);
    if (f == NO_MAP) r->k.words[3]--;
    return ok;
}

static float value(uint16_t x) { return fcp_bf16_float(x); }

Test(machine_sm90, ring) {
    struct ring *r = new_ring();
    for (fk_u64 seed = 0; seed < 6; seed++) {
        memset(r->t, 0xff, sizeof r->t);
        memset(r->u, 0xff, sizeof r->u);
        cr_assert(run_ring(r, NONE, seed), "%s", text);
        for (int i = 0; i < ITEMS * 2; i++) {
            static float s[TILE][TILES * TILE];
            for (int a = 0; a < TILE; a++)
                for (int b = 0; b < TILES * TILE; b++) {
                    bool there = b < (TILES - 1) * TILE + LAST;
                    s[a][b] = 0;
                    for (int c = 0; c < TILE && there; c++)
                        s[a][b] += value(r->queries[i * TILE + a][c]) * value(r->keys[i / 2 * TILES * TILE + b][c]);
                }
            for (int a = 0; a < TILE; a++)
                for (int c = 0; c < TILE; c++) {
                    float t = 0, u = 0;
                    for (int b = 0; b < (TILES - 1) * TILE + LAST; b++)
                        t += s[a][b] * value(r->keys[i / 2 * TILES * TILE + b][c]);
                    for (int b = 0; b < TILES * TILE; b++)
                        for (int q = 0; b % TILE == a && q < TILE; q++)
                            u += s[q][b] * value(r->queries[i * TILE + q][c]);
                    cr_assert(r->t[i][a][c] == t && r->u[i][a][c] == u, "seed %llu, %d %d %d: %g and %g, not %g and %g",
                              seed, i, a, c, (double)r->t[i][a][c], (double)r->u[i][a][c], (double)t, (double)u);
                }
        }
    }
    free(r);
}

/* What a flaw is called, at the latest at `|`, another name under other seeds. */
static void must_fail(struct ring *r, flaw f, const char *names) {
    for (fk_u64 seed = 0; seed < 6; seed++) {
        cr_assert(!run_ring(r, f, seed), "%s was not seen", names);
        bool named = false;
        for (const char *name = names; name && !named;) {
            size_t length = strcspn(name, "|");
            named = strncmp(text, name, length) == 0;
            name = name[length] ? name + length + 1 : NULL;
        }
        cr_assert(named && strstr(text, "sm90.") != NULL, "%s: %s", names, text);
    }
}

Test(machine_sm90, proxies_and_order) {
    struct ring *r = new_ring();
    must_fail(r, STORED_NOT_FENCED, "missing proxy fence: a product reads shared byte");
    must_fail(r, GATHERED_NOT_FENCED, "missing proxy fence: a product reads shared byte");
    must_fail(r, STORED_NOT_MET, "race: a product reads shared byte");
    must_fail(r, EMPTY_TOO_EARLY, "race: |unfinished copy: a product reads|phase error: ");
    must_fail(r, EMPTY_NOT_WAITED, "race: shared byte|unfinished copy: shared byte");
    must_fail(r, FULL_NOT_WAITED, "race: a product reads|unfinished copy: a product reads");
    free(r);
}
Test(machine_sm90, barriers) {
    struct ring *r = new_ring();
    must_fail(r, PHASES_BEGIN_ANEW, "phase error: ");
    must_fail(r, PHASE_SKIPPED, "phase error: |race: |unfinished copy: ");
    must_fail(r, EXPECTS_LESS, "barrier: for a phase|race: a product reads|unfinished copy: a product reads");
    must_fail(r, EXPECTS_MORE, "deadlock: ");
    must_fail(r, ARRIVES_TWICE, "barrier: more than 1 arrive in a phase of the one at shared byte 49152");
    must_fail(r, BARRIER_NOT_FENCED, "barrier: the one at shared byte 49");
    must_fail(r, BARRIER_NOT_MET, "barrier: the");
    must_fail(r, BARRIER_TWICE, "barrier: the one at shared byte 49176 is opened twice");
    must_fail(r, BARRIER_STORED, "barrier: shared byte 49168 is written, and is of the barrier at 49168");
    must_fail(r, NO_BARRIER, "barrier: there is none open at shared byte 49160");
    must_fail(r, COPY_AT_END, "unfinished copy: the block ends|barrier: the block ends");
    must_fail(r, HALF_A_PHASE, "barrier: the block ends");
    free(r);
}
Test(machine_sm90, products_wrong) {
    struct ring *r = new_ring();
    must_fail(r, NO_BEGIN, "missing begin: accumulators");
    must_fail(r, PACKED_AFTER_BEGIN, "missing begin: registers were written");
    must_fail(r, SUMS_TOUCHED, "accumulators: number 7 was written");
    must_fail(r, SUMS_SCALED, "accumulators: number 7 was written");
    must_fail(r, NEVER_SETTLED, "accumulators: 64 columns of sums have been waited for");
    must_fail(r, SETTLED_TOO_EARLY, "accumulators: they settle while");
    must_fail(r, HALF_SETTLED, "accumulators: 16 settle of 32");
    must_fail(r, SETTLED_TWICE, "accumulators: these settle, and no product");
    must_fail(r, OVERLAPPING_SUMS, "accumulators: part of these");
    must_fail(r, OPERAND_TOUCHED, "registers: an operand was written");
    must_fail(r, NEVER_WAITED, "unfinished products: the thread ends with 4");
    must_fail(r, OTHER_OPERANDS, "divergence: other lanes of the warpgroup ask for this product of other operands");
    must_fail(r, OTHER_LINE, "divergence: other lanes of the warpgroup ask for another product");
    must_fail(r, WARP_MISSING, "deadlock: ");
    must_fail(r, INSIDE_PATTERN, "descriptor: an operand begins inside a pattern of 1024 bytes");
    must_fail(r, BEYOND_SHARED, "out of bounds: a product reads shared byte|barrier: a product reads");
    free(r);
}
Test(machine_sm90, maps) {
    struct ring *r = new_ring();
    must_fail(r, NOT_SWIZZLED, "swizzle mismatch: a product reads shared byte");
    must_fail(r, OTHER_SWIZZLE, "swizzle mismatch: a product reads shared byte");
    must_fail(r, TENSOR_UNALIGNED, "swizzle mismatch: a tensor copy to shared byte 16512");
    must_fail(r, NO_MAP, "map: a tensor copy by what is none");
    free(r);
}
Test(machine_sm90, some_threads_and_registers) {
    struct ring *r = new_ring();
    must_fail(r, NAMED_COUNTS, "named barrier: number 2 is of|named barrier: a warp|deadlock: ");
    must_fail(r, NAMED_TWICE, "named barrier: a warp waits again at number");
    must_fail(r, NAMED_ZERO, "named barrier: there is no number 0");
    must_fail(r, REGISTERS_KEPT, "deadlock: of 384 threads ");
    must_fail(r, WARP_KEEPS_REGISTERS, "divergence: 1 warps of a warpgroup do not come");
    cr_assert(run_ring(r, REGISTERS_UP_AND_AWAY, 1), "%s", text);
    free(r);
}
