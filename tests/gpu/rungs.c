/* rungs.c: the rungs of the ladder (rungs.h): their inputs, what they must give, and the source of their kernels.
 *
 * Matrices are of small integers, so that sums of products are exact. The tensor of the map has another number
 * everywhere, so that a number says where it came from.
 */
#define _GNU_SOURCE
#include "tests/gpu/rungs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const char emit_text_abi[], emit_text_prim_ptx[], emit_text_prim_sm90_ptx[], emit_text_common[],
    emit_text_tiles_sm90[]; /* of codegen/kernels */
extern const char rung_text_launch[], rung_text_kernels[], rung_text_rates[];

char *rung_source(rung_set set, bool sm90, const char *defines) {
    char *text = NULL;
    /* The stand-in driver knows by the first line that it does nothing. No mask and no score is used. */
    int size = asprintf(&text,
                        "#define GPU_CHECK 1\n#define FK_HEAD_DIM 128\n#define FK_VALUE_DIM 128\n#define FK_BF16 1\n"
                        "#define FK_HAS_SCORE 0\n#define FK_FORWARD_SM90 %d\n#define FK_RANGES 0\n"
                        "#define FK_NEGATIVE_SCALE 0\n#define FK_BY_HEAD 0\n#define FK_PACKED 0\n#define FK_FUSED 1\n"
                        "#define FK_KEY_SPANS 0\n#define FK_QUERY_SPANS 0\n#define FK_ARRAYS 1\n%s#line 1 \"abi.h\"\n%s"
                        "#line 1 \"prim_ptx.h\"\n%s#line 1 \"%s\"\n%s"
                        "FK_DEVICE int fk_allow(const fk_env *, fk_i64, fk_i64, fk_i64) { return 1; }\n"
                        "FK_DEVICE fk_u32 fk_below32(fk_i32) { return ~0u; }\n"
                        "#line 1 \"common.h\"\n%s#line 1 \"%s\"\n%s#line 1 \"rung_launch.h\"\n%s"
                        "#line 1 \"%s\"\n%s",
                        sm90, defines, emit_text_abi, emit_text_prim_ptx, sm90 ? "prim_sm90_ptx.h" : "rungs.c",
                        sm90 ? emit_text_prim_sm90_ptx : "", emit_text_common, sm90 ? "tiles_sm90.h" : "rungs.c",
                        sm90 ? emit_text_tiles_sm90 : "", rung_text_launch,
                        set == RUNG_LADDER ? "rung_kernels.h" : "rung_rates.h",
                        set == RUNG_LADDER ? rung_text_kernels : rung_text_rates);
    return size < 0 ? NULL : text;
}

bool rung_applies(const rung *r, int major, int minor) {
    return r->device == RUNG_EVERY || (r->device == RUNG_FROM_90 && major >= 9) ||
           (r->device == RUNG_ONLY_90A && major == 9 && minor == 0);
}

/* --- numbers ------------------------------------------------------------------------------------------------------ */

static uint32_t bits_of(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
}
static float float_of(uint32_t u) {
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static uint16_t bf16_of(int x) { return (uint16_t)(bits_of((float)x) >> 16); } /* exact: x is small */

/* -3 to 3, without a period. */
int rung_number_of(uint32_t which, uint32_t row, uint32_t column) {
    uint32_t x = (row * 521 + column) * 2 + which;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return (int)((x ^ x >> 16) % 7) - 3;
}

uint32_t rung_place(rung_layout layout, uint32_t rows, uint32_t columns, uint32_t row, uint32_t column) {
    uint32_t chunk = column / 8, in = column % 8 * 2;
    if (layout == RUNG_PLAIN) return (row * columns + column) * 2;
    if (layout == RUNG_CHUNKS) return (row * columns / 8 + (chunk ^ row % 8)) * 16 + in;
    return ((chunk / 8 * rows + row) * 8 + (chunk % 8 ^ row % 8)) * 16 + in;
}
static void put_matrix(void *to, uint32_t which, rung_layout layout, uint32_t rows, uint32_t columns) {
    for (uint32_t row = 0; row < rows; row++)
        for (uint32_t column = 0; column < columns; column++) {
            uint16_t x = bf16_of(rung_number_of(which, row, column));
            memcpy((char *)to + rung_place(layout, rows, columns, row, column), &x, 2);
        }
}
/* Operand A of mma.sync: of rows 16 * group to 16 * group + 15 and columns 16 * step to 16 * step + 15, register i. */
static uint32_t fragment(uint32_t group, uint32_t step, uint32_t lane, uint32_t i) {
    uint32_t row = group * 16 + lane / 4 + i % 2 * 8, column = step * 16 + lane % 4 * 2 + i / 2 * 8;
    return bf16_of(rung_number_of(0, row, column)) | (uint32_t)bf16_of(rung_number_of(0, row, column + 1)) << 16;
}

/* --- launches, sums and turns ------------------------------------------------------------------------------------- */

static void count(const rung *r, void *in, void *other, void *out) {
    (void)r, (void)other, (void)out;
    for (uint32_t i = 0; i < RUNG_IN / 4; i++) ((uint32_t *)in)[i] = i * 2654435761u;
}
static uint32_t load(const rung *r, uint32_t row, uint32_t column) {
    return (row * r->columns + column) * 2654435761u * r->a + r->d;
}

static void zero(const rung *r, void *in, void *other, void *out) {
    (void)r, (void)in, (void)other;
    memset(out, 0, RUNG_OUT);
}
static uint32_t red(const rung *r, uint32_t row, uint32_t column) {
    (void)row; /* each CTA adds (1 + ... + 8) (column % 4 + 1) */
    return bits_of((float)(r->ctas * 36 * (column % 4 + 1)));
}

static void lowest(const rung *r, void *in, void *other, void *out) {
    zero(r, in, other, out);
    for (int i = 0; i < 16; i++) ((uint32_t *)out)[32 + i] = 0xff800000; /* -infinity */
}
static uint32_t longs(const rung *r, uint32_t row, uint32_t column) {
    (void)row;
    if (column >= 32)
        return bits_of((float)((r->ctas - 1) * 128 + 112 + column - 32) - (float)(r->a << column % 2 * 2));
    int64_t sum = 0;
    for (uint32_t i = column / 2; i < 128; i += 16) sum += (int64_t)(i + 1) * -0x7fffffff * (int64_t)r->ctas;
    return (uint32_t)((uint64_t)sum >> (column % 2 * 32));
}

/* What ticket n adds: in another order the sum is another one. */
static float turn_adds(uint32_t n) {
    static const float x[] = {1e8f, 3, -1e8f, 1.5f, 3e7f, -7, 0.1f, -3e7f};
    return x[n % 8] * (float)(n + 1);
}
static void turns_in(const rung *r, void *in, void *other, void *out) {
    zero(r, in, other, out);
    for (uint32_t i = 0; i < r->ctas; i++) ((uint32_t *)in)[i] = bits_of(turn_adds(i));
}
static uint32_t turns(const rung *r, uint32_t row, uint32_t column) {
    volatile float sum = 0;
    (void)row, (void)column;
    for (uint32_t i = 0; i < r->ctas; i++) sum = sum + turn_adds(i);
    return bits_of(sum);
}

/* --- the tensor --------------------------------------------------------------------------------------------------- */

static uint32_t element(uint32_t slot, uint32_t row, uint32_t head, uint32_t column) {
    bool inside = slot < RUNG_SLOTS && row < RUNG_ROWS && head < RUNG_HEADS && column < RUNG_COLUMNS;
    return inside ? ((slot * RUNG_ROWS + row) * RUNG_HEADS + head) * RUNG_COLUMNS + column + 1 : 0;
}
static void tensor(const rung *r, void *in, void *other, void *out) {
    (void)r, (void)other, (void)out;
    for (uint32_t i = 0; i < RUNG_SLOTS * RUNG_ROWS * RUNG_HEADS * RUNG_COLUMNS; i++)
        ((uint16_t *)in)[i] = (uint16_t)(i + 1);
}
static uint32_t box(const rung *r, uint32_t row, uint32_t column) {
    return element(r->d, r->c + row, r->b, r->a + column);
}
/* Rows of RUNG_COLUMNS numbers, of which the first c are there; 0: all. */
static uint32_t first_rows(const rung *r, uint32_t row, uint32_t column) {
    return !r->c || row < r->c ? row * RUNG_COLUMNS + column + 1 : 0;
}
static uint32_t phases(const rung *r, uint32_t row, uint32_t column) {
    const uint32_t low = element(r->d, row * 8, r->b, r->a + column % 32 * 2);
    return (low | (low + 1) << 16) + 10 * (row + 1);
}

/* --- products by mma.sync ----------------------------------------------------------------------------------------- */

static void by_rows_in(const rung *r, void *in, void *other, void *out) {
    (void)r, (void)out;
    put_matrix(in, 0, RUNG_CHUNKS, 16, 128);
    put_matrix(other, 1, RUNG_CHUNKS, 64, 128);
}
static uint32_t by_rows(const rung *r, uint32_t row, uint32_t column) {
    int sum = 0;
    (void)r;
    for (uint32_t k = 0; k < 128; k++) sum += rung_number_of(0, row, k) * rung_number_of(1, column, k);
    return bits_of((float)sum);
}
static void by_columns_in(const rung *r, void *in, void *other, void *out) {
    (void)r, (void)out;
    for (uint32_t lane = 0; lane < 32; lane++)
        for (uint32_t i = 0; i < 16; i++) ((uint32_t *)in)[lane * 16 + i] = fragment(0, i / 4, lane, i % 4);
    put_matrix(other, 1, RUNG_CHUNKS, 64, 128);
}
static uint32_t by_columns(const rung *r, uint32_t row, uint32_t column) {
    int sum = 1;
    (void)r;
    for (uint32_t k = 0; k < 64; k++) sum += rung_number_of(0, row, k) * rung_number_of(1, k, column);
    return bits_of((float)sum);
}

/* --- products by WGMMA -------------------------------------------------------------------------------------------- */

static void operands(const rung *r, void *in, void *other, void *out) {
    const rung_layout layout = r->d == RUNG_IMAGE ? RUNG_BOXES : RUNG_PLAIN;
    rung_product p;
    (void)out;
    rung_product_of(r, &p);
    if (p.a_rows) put_matrix(in, 0, layout, p.a_rows, p.a_columns);
    else
        for (uint32_t t = 0; t < 128; t++)
            for (uint32_t i = 0; i < 4; i++) ((uint32_t *)in)[t * 4 + i] = fragment(t / 32, 0, t % 32, i);
    put_matrix(other, 1, layout, p.b_rows, p.b_columns);
}
/* a: the first step; b: as rung_kernels.h says. */
static uint32_t k_major(const rung *r, uint32_t row, uint32_t column) {
    uint32_t end = strstr(r->kernel, "all") ? 128 : r->a * 16 + 16;
    int sum = 0;
    for (uint32_t k = r->a * 16; k < end; k++) sum += rung_number_of(0, r->b + row, k) * rung_number_of(1, column, k);
    return bits_of((float)sum);
}
static uint32_t registers(const rung *r, uint32_t row, uint32_t column) {
    int sum = 1;
    for (uint32_t k = 0; k < 16; k++) sum += rung_number_of(0, row, k) * rung_number_of(1, r->a * 16 + k, column);
    return bits_of((float)sum);
}
static uint32_t turned(const rung *r, uint32_t row, uint32_t column) {
    int sum = 0;
    for (uint32_t k = r->a * 16; k < r->a * 16 + 16; k++)
        sum += rung_number_of(0, k, row) * rung_number_of(1, k, r->b * 64 + column);
    return bits_of((float)sum);
}
bool rung_product_of(const rung *r, rung_product *out) {
    *out = (rung_product){.n = r->columns, .turned = true, .b_rows = 128, .b_columns = 128};
    if (r->expect == k_major) {
        *out = (rung_product){.n = r->columns, .a_rows = 128, .a_columns = 128, .b_rows = r->columns, .b_columns = 128};
    } else if (r->expect == turned) {
        out->a_rows = 128;
        out->a_columns = 64;
    } else if (r->expect == registers) {
        out->b_rows = r->b;
        out->b_columns = r->columns;
        out->begin = 1;
    } else return false;
    return true;
}

/* --- roles -------------------------------------------------------------------------------------------------------- */

/* As rung_roles_* computes it. a: how many numbers a thread keeps in registers. */
static uint32_t roles(const rung *r, uint32_t row, uint32_t column) {
    uint32_t sum = 0, word = 0;
    if (row == 0) return 1000 + column;
    for (uint32_t n = 0; n < 8; n++) {
        sum = sum * 3 + n * n + 1;
        word = (word * 3 + 1) * 3 + 2;
    }
    sum += word;
    for (uint32_t i = 0; i < r->a; i++) sum = sum * 5 + (i * 128 + column) * 2654435761u;
    return sum;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

enum { K = 1 << 10, TILE = 16 * K, BOX_AND_MORE = FK_BOX_BYTES + 64, K_MAJOR = 64 * K };
#define SM90 .device = RUNG_ONLY_90A
#define ONE .ctas = 1, .threads = 128
#define TILE_OUT .number = RUNG_HALF, .rows = 64, .columns = 128
#define BOX_OUT .number = RUNG_HALF, .layout = RUNG_BOXES, .rows = 64, .columns = 64
#define OF_BOX SM90, ONE, .map = true, .shared = BOX_AND_MORE, BOX_OUT, .prepare = tensor, .expect = box
#define SUMS .number = RUNG_FLOAT, .rows = 1, .columns = 64, .prepare = zero, .expect = red
#define TURNS                                                                                                          \
    .ctas = 64, .threads = 64, .shared = 64 + 512, .number = RUNG_FLOAT, .rows = 1, .prepare = turns_in, .expect = turns
#define PRODUCT SM90, ONE, .number = RUNG_FLOAT, .rows = 64, .prepare = operands
#define BY_ROWS PRODUCT, .shared = K_MAJOR, .expect = k_major
#define BY_COLUMNS PRODUCT, .shared = K_MAJOR, .expect = registers
#define BOTH_TURNED PRODUCT, .shared = K_MAJOR, .columns = 64, .expect = turned
#define ROLES                                                                                                          \
    SM90, .ctas = 1, .threads = 384, .shared = 64, .number = RUNG_WORD, .rows = 3, .columns = 128, .prepare = count,   \
          .expect = roles

const rung rungs[] = {
    {"load", "rung_load", "a cubin loads, parameters arrive, CTAs run", "the layout of the parameters", .ctas = 4,
     .threads = 128, .a = 3, .d = 7, .number = RUNG_WORD, .rows = 4, .columns = 128, .prepare = count, .expect = load},
    /* mma.sync */
    {"cp.async", "rung_copy_tile", "cp.async of 16 bytes, or of zeros, into a tile of common.h",
     "fk_cp_async's size of 0, fk_chunk_at", ONE, .shared = TILE, .c = 37, TILE_OUT, .layout = RUNG_CHUNKS,
     .prepare = tensor, .expect = first_rows},
    {"ldmatrix", "rung_rows_by_rows", "ldmatrix and mma.m16n8k16: rows times rows",
     "the fragments of prim.h, fk_fragment_at, fk_fragment_at_rows", .ctas = 1, .threads = 32, .shared = 20 * K,
     .number = RUNG_FLOAT, .rows = 16, .columns = 64, .prepare = by_rows_in, .expect = by_rows},
    {"ldmatrix.trans", "rung_by_columns", "ldmatrix.trans: registers times columns",
     "the fragments of A in prim.h, fk_ldmatrix_trans", .ctas = 1, .threads = 32, .shared = TILE, .number = RUNG_FLOAT,
     .rows = 16, .columns = 128, .prepare = by_columns_in, .expect = by_columns},
    /* global memory */
    {"red", "rung_red", "red.add.f32, from 8 CTAs", "the order of bytes, or sums that get lost", .ctas = 8,
     .threads = 128, .a = 1, SUMS},
    {"red.v2", "rung_red", "fk_add_global2: red.add.v2.f32 on sm_90 and later", "fk_add_global2", .ctas = 8,
     .threads = 128, .a = 2, SUMS},
    {"red.v4", "rung_red", "red.add.v4.f32, which no kernel uses yet", "the instruction: NVRTC 12.1 or later has it",
     .device = RUNG_FROM_90, .ctas = 8, .threads = 128, .a = 4, SUMS},
    {"red.u64", "rung_long", "fk_add_global_long, and fk_max_global of floats of both signs",
     "numbers 0 to 31: fk_add_global_long; from 32 on: fk_max_global", .ctas = 4, .threads = 128, .a = 300,
     .number = RUNG_WORD, .rows = 1, .columns = 48, .prepare = lowest, .expect = longs},
    {"turns", "rung_turns", "64 CTAs add in the order of their tickets: fk_acquire, red, bar.sync, fk_release",
     "fk_acquire, before which nothing may be added, or st.release, after which nothing may", TURNS, .columns = 128},
    {"flag", "rung_flag", "a stream raises a flag behind a copy, while the kernel waits; then cp.async reads the copy",
     "fk_wait_arrival; or cuStreamWriteValue32, which must run beside the kernel", ONE, .flag = true, .shared = TILE,
     .c = 64, TILE_OUT, .layout = RUNG_CHUNKS, .prepare = tensor, .expect = first_rows},
    /* sm_90a: TMA */
    {"tma", "rung_tma", "a box of a map: dims, strides, swizzle; the map in the parameters",
     "the dims and strides of runtime/cuda/maps.c, the swizzle of tiles_sm90.h", OF_BOX, .a = 64, .b = 2, .c = 16,
     .d = 1},
    {"tma-part", "rung_tma", "a box of which 30 rows exist: the others become 0, and count as bytes",
     "FK_BOX_BYTES as what is expected; the dim of rows", OF_BOX, .a = 0, .b = 1, .c = 50, .d = 0},
    {"tma-beyond", "rung_tma", "a box wholly beyond the rows", "FK_BOX_BYTES as what is expected; the dim of rows",
     OF_BOX, .a = 64, .b = 0, .c = 128, .d = 1},
    {"mbarrier", "rung_mbarrier", "six phases: arrivals, expect_tx, parity",
     "the count of arrivals, the parity, expect_tx", SM90, ONE, .map = true, .shared = BOX_AND_MORE, .a = 0, .b = 1,
     .d = 1, .number = RUNG_WORD, .rows = 6, .columns = 128, .prepare = tensor, .expect = phases},
    {"tile-copied", "rung_tile_of", "fk_copy_rows gives the layout of TMA, with zeros", "fk_copy_rows_from", SM90, ONE,
     .shared = TILE, .c = 37, .d = RUNG_COPIED, TILE_OUT, .layout = RUNG_BOXES, .prepare = tensor,
     .expect = first_rows},
    {"tile-stored", "rung_tile_of", "plain stores give the layout of TMA", "the swizzle of tiles_sm90.h", SM90, ONE,
     .shared = TILE, .d = RUNG_STORED, TILE_OUT, .layout = RUNG_BOXES, .prepare = tensor, .expect = first_rows},
    /* sm_90a: WGMMA, both operands K-major */
    {"k-64", "rung_k_64", "m64n64k16, both K-major", "the swizzle mode (bits 62, 63), SBO 1024, the fragment of C",
     BY_ROWS, .columns = 64},
    {"k-64-step-1", "rung_k_64", "a step of 16 numbers: 32 bytes within the swizzle", "step % 4 * 32", BY_ROWS,
     .columns = 64, .a = 1},
    {"k-64-step-3", "rung_k_64", "the last step of a box", "step % 4 * 32", BY_ROWS, .columns = 64, .a = 3},
    {"k-64-step-4", "rung_k_64", "the first step of the next box", "step / 4 * rows * FK_TILE_ROW", BY_ROWS,
     .columns = 64, .a = 4},
    {"k-64-row-64", "rung_k_64", "rows 64 to 127 of A", "row * FK_TILE_ROW", BY_ROWS, .columns = 64, .a = 2, .b = 64},
    {"k-32", "rung_k_32", "m64n32k16", "fk_wgmma_32", BY_ROWS, .columns = 32, .a = 5},
    {"k-128", "rung_k_128", "m64n128k16", "fk_wgmma_128", BY_ROWS, .columns = 128, .a = 6},
    {"k-all-64", "rung_k_all_64", "eight steps into one sum", "scale-d (add), products of one group", BY_ROWS,
     .columns = 64},
    {"k-all-128", "rung_k_all_128", "the same of 128 columns", "scale-d (add), products of one group", BY_ROWS,
     .columns = 128, .b = 64},
    {"k-copied", "rung_k_64", "what cp.async has brought, WGMMA sees", "fk_cp_async_wait, then fk_fence_proxy_async",
     BY_ROWS, .columns = 64, .a = 7, .d = RUNG_COPIED},
    {"k-stored", "rung_k_64", "what was stored, WGMMA sees", "fk_fence_proxy_async", BY_ROWS, .columns = 64, .a = 1,
     .d = RUNG_STORED},
    /* A in registers, B MN-major */
    {"mn-64", "rung_registers_64", "A in registers, MN-major B of one box", "the bit that turns B, step * 16 rows",
     BY_COLUMNS, .columns = 64, .a = 1, .b = 64},
    {"mn-128", "rung_registers_128", "MN-major B of two boxes", "LBO = rows * FK_TILE_ROW", BY_COLUMNS, .columns = 128,
     .a = 2, .b = 64},
    {"mn-128-of-128", "rung_registers_128", "two boxes of 128 rows: LBO twice as large", "LBO = rows * FK_TILE_ROW",
     BY_COLUMNS, .columns = 128, .a = 6, .b = 128},
    {"mn-192", "rung_registers_192", "three boxes, for value_dim 192", "LBO, fk_wgmma_registers_192", BY_COLUMNS,
     .columns = 192, .a = 3, .b = 64},
    {"mn-256", "rung_registers_256", "four boxes, for value_dim 256", "LBO, fk_wgmma_registers_256", BY_COLUMNS,
     .columns = 256, .a = 4, .b = 128},
    /* both MN-major */
    {"turned", "rung_turned", "A and B MN-major", "the bit that turns A", BOTH_TURNED, .a = 2},
    {"turned-box-1", "rung_turned", "the second box of B", "box * rows * FK_TILE_ROW", BOTH_TURNED, .a = 7, .b = 1},
    {"turned-stored", "rung_turned", "the same of what was stored, as dS is", "fk_fence_proxy_async", BOTH_TURNED,
     .a = 5, .b = 1, .d = RUNG_STORED},
    /* roles */
    {"roles-40", "rung_roles_40", "setmaxnreg: 168 to 40 and 232; named barriers",
     "row 0: the loader; else setmaxnreg, or fk_named_barrier_arrive", ROLES, .a = 200},
    {"roles-56", "rung_roles_56", "setmaxnreg: 168 to 56 and 224; named barriers",
     "row 0: the loader; else setmaxnreg, or fk_named_barrier_arrive", ROLES, .a = 192},
    {"turns-named", "rung_turns_named", "turns that one warp takes for another",
     "bar.arrive, which must order the additions before st.release", SM90, TURNS, .columns = 64},
    {"turns-bulk", "rung_turns_bulk", "turns in which cp.reduce.async.bulk adds, which one warp takes for another",
     "fk_fence_proxy_async_global behind the turn, or fk_bulk_wait before it is passed on", SM90, TURNS,
     .columns = 128},
    {"flag-tma", "rung_flag_tma", "a flag as above; then TMA reads the copy", "fk_fence_proxy_async_global", OF_BOX,
     .flag = true, .a = 0, .b = 2, .c = 10, .d = 0},
};
const unsigned rung_count = sizeof rungs / sizeof *rungs;

/* --- running and judging ------------------------------------------------------------------------------------------ */

void rung_prepare(const rung *r, void *input, void *out) {
    memset(input, 0, RUNG_INPUT);
    memset(out, 0xee, RUNG_OUT);
    r->prepare(r, input, (char *)input + RUNG_IN, out);
}

/* The bytes of a number, and where it is in `out`. */
static uint32_t place_out(const rung *r, uint32_t row, uint32_t column, uint32_t *out_bytes) {
    *out_bytes = r->number == RUNG_HALF ? 2 : 4;
    return r->number == RUNG_HALF ? rung_place(r->layout, r->rows, r->columns, row, column)
                                  : (row * r->columns + column) * 4;
}

void rung_answer(const rung *r, void *out) {
    for (uint32_t row = 0; row < r->rows; row++)
        for (uint32_t column = 0; column < r->columns; column++) {
            uint32_t x = r->expect(r, row, column), bytes, at = place_out(r, row, column, &bytes);
            memcpy((char *)out + at, &x, bytes);
        }
}

static void say_number(const rung *r, uint32_t x, char *text, size_t room) {
    if (r->number == RUNG_FLOAT) snprintf(text, room, "%.9g", (double)float_of(x));
    else if (r->number == RUNG_WORD) snprintf(text, room, "%#x", x);
    else if (!x || x > RUNG_SLOTS * RUNG_ROWS * RUNG_HEADS * RUNG_COLUMNS) snprintf(text, room, "%#x", x);
    else {
        uint32_t at = x - 1, column = at % RUNG_COLUMNS;
        if (r->map)
            snprintf(text, room, "that of slot %u, row %u, head %u, column %u",
                     at / RUNG_COLUMNS / RUNG_HEADS / RUNG_ROWS, at / RUNG_COLUMNS / RUNG_HEADS % RUNG_ROWS,
                     at / RUNG_COLUMNS % RUNG_HEADS, column);
        else snprintf(text, room, "that of row %u, column %u", at / RUNG_COLUMNS, column);
    }
}

bool rung_judge(const rung *r, const void *out, const uint32_t gave_up[RUNG_GAVE_UP], char text[RUNG_TEXT]) {
    uint32_t wrong = 0, untouched = 0, first_row = 0, first_column = 0, first = 0;
    char waits[120] = "", got[80], right[80], guess[160] = "";
    *text = 0;
    for (uint32_t row = 0; row < r->rows; row++)
        for (uint32_t column = 0; column < r->columns; column++) {
            uint32_t x = 0, bytes, at = place_out(r, row, column, &bytes), y = r->expect(r, row, column);
            memcpy(&x, (const char *)out + at, bytes);
            /* a sum of 0 may have either sign */
            if (x == y || (r->number == RUNG_FLOAT && float_of(x) == 0 && float_of(y) == 0)) continue;
            untouched += x == (bytes == 2 ? 0xeeeeu : 0xeeeeeeeeu);
            if (wrong++) continue;
            first_row = row;
            first_column = column;
            first = x;
        }
    if (gave_up[0])
        snprintf(waits, sizeof waits, "%u waits gave up, the first for number or parity %u in CTA %u, thread %u; ",
                 gave_up[0], gave_up[3], gave_up[4], gave_up[5]);
    if (!wrong && !gave_up[0]) return true;
    if (!wrong) {
        snprintf(text, RUNG_TEXT, "%sthe numbers are right; suspect: %s", waits, r->suspect);
        return false;
    }
    say_number(r, first, got, sizeof got);
    say_number(r, r->expect(r, first_row, first_column), right, sizeof right);
    rung_guess(r, out, guess, sizeof guess);
    snprintf(text, RUNG_TEXT, "%srow %u, column %u is %s, not %s; %u of %u are wrong, %u not written; %s%s", waits,
             first_row, first_column, got, right, wrong, r->rows * r->columns, untouched,
             *guess ? guess : "suspect: ", *guess ? "" : r->suspect);
    return false;
}
