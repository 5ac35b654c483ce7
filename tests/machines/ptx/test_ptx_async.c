/* test_ptx_async.c: tests the machine that executes PTX by small kernels: the asynchronous instructions of sm_90a do
 * what the manual says, and mistakes in their use are found.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/async.h"

enum { TEXT = 16000, WORDS = 32768, BOX = 64, HEADS = 2, ROWS = 70 };
typedef struct parameters {
    uint64_t out, in, pad[6];
    _Alignas(64) uint8_t map[128]; /* at 64: boxes of 64 columns of a head, 64 rows; 128-byte swizzle */
} parameters;
static uint32_t out[WORDS];
static uint16_t in[ROWS * HEADS * 2 * BOX]; /* [row][head][128] */

/* How each test's kernel k begins. It sets these registers, which the tests' instructions then use:
 *   %rd0, %rd1, %rd3   the parameters: out, in, and the map
 *   %r0, %rd2          the number of the thread, and out + 4 * thread
 *   %r90               shared memory: 32K, then two mbarriers, the first of which counts one arrival
 *   %p9                true in all threads but the first */
static const char before[] =
    ".version 9.0\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 memory[];\n"
    ".visible .entry k(\n\t.param .align 64 .b8 k_param_0[192]\n)\n.maxntid 256, 1, 1\n{\n"
    "\t.reg .pred %p<10>;\n\t.reg .b16 %h<20>;\n\t.reg .b32 %r<100>;\n\t.reg .b64 %rd<20>;\n\t.reg .f32 %f<140>;\n"
    "\tld.param.u64 %rd0, [k_param_0];\n\tld.param.u64 %rd1, [k_param_0+8];\n\tmov.b64 %rd3, k_param_0;\n"
    "\tadd.s64 %rd3, %rd3, 64;\n\tcvta.param.u64 %rd3, %rd3;\n\tmov.u32 %r0, %tid.x;\n\tmul.wide.u32 %rd2, %r0, 4;\n"
    "\tadd.s64 %rd2, %rd0, %rd2;\n\tmov.u32 %r90, memory;\n\tmov.u32 %r92, 0;\n"
    "\tadd.s32 %r91, %r90, 32768;\n\tsetp.ne.u32 %p9, %r0, 0;\n";
#define COPY "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
#define OPEN                                                                                                           \
    "@%p9 bra $L_open;\nmbarrier.init.shared::cta.b64 [%r91], 1;\nfence.mbarrier_init.release.cluster;\n$L_open:\n"    \
    "bar.sync 0;\n"
#define FIRST "@%p9 bra $L_first;\n"
#define EXPECT(bytes) "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r91], " #bytes ";\n"
#define ALL "$L_first:\n"
#define WAIT(parity)                                                                                                   \
    "$L_wait" #parity ":\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r91], " #parity                              \
    ";\n@!%p1 bra $L_wait" #parity ";\n"

static bool launch(const char *body, uint32_t threads, uint64_t seed, char *error) {
    static char text[TEXT];
    int size = snprintf(text, TEXT, "%s%s\n\tret;\n}\n", before, body);
    cr_assert(size > 0 && size < TEXT);
    ptx_module *m = ptx_module_new(text, error);
    if (!m) return false;
    parameters p = {(uintptr_t)out, (uintptr_t)in, {0}, {0}};
    const ptx_map map = {.base = p.in, .dims = {2 * BOX, HEADS, ROWS, 1},
                         .strides = {4 * BOX, 4 * BOX * HEADS, 4 * BOX * HEADS * ROWS}, .box = {BOX, 1, BOX, 1},
                         .element = 2, .swizzle = 128};
    cr_assert(ptx_map_encode(p.map, &map));
    const ptx_range ranges[] = {{"the output", p.out, p.out + sizeof out, true},
                                {"the input", p.in, p.in + sizeof in, false}};
    const ptx_launch run = {.module = m, .kernel = ptx_module_kernel(m, "k"), .parameters = &p,
                            .parameter_bytes = sizeof p, .blocks = 1, .threads = threads, .shared = 32768 + 16,
                            .resident = 1, .ranges = ranges, .range_count = 2, .seed = seed, .most = 1 << 20};
    bool good = ptx_run(&run, error);
    ptx_module_free(m);
    return good;
}

static void draw(void) {
    for (size_t i = 0; i < sizeof in / sizeof *in; i++) { /* small integers, in bf16 */
        float x = (float)((int)(i * 2654435761u >> 13) % 7 - 3);
        uint32_t bits;
        memcpy(&bits, &x, 4);
        in[i] = (uint16_t)(bits >> 16);
    }
}
static float number(int row, int head, int column) {
    uint32_t bits = row < 0 || row >= ROWS ? 0 : (uint32_t)in[(row * HEADS + head) * 2 * BOX + column] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* Boxes that begin before the first row and end after the last one; chunks of 16 bytes lie at c ^ row % 8. */
Test(ptx_async, boxes) {
    static const int first[] = {0, 3, 20, -5, 69, -64};
    static const char begin[] = OPEN FIRST EXPECT(8192) "mov.u32 %r1, 64;\nmov.u32 %r2, 1;\nmov.u32 %r3, ";
    static const char end[] = ";\n" COPY "[%r90+1024], [%rd3, {%r1, %r2, %r3, %r92}], [%r91];\n" ALL WAIT(0)
        "shl.b32 %r5, %r0, 2;\nadd.s32 %r5, %r5, %r90;\nmov.u32 %r6, 0;\n$L_next:\nld.shared.u32 %r7, [%r5+1024];\n"
        "st.global.u32 [%rd2], %r7;\nadd.s64 %rd2, %rd2, 1024;\nadd.s32 %r5, %r5, 1024;\nadd.s32 %r6, %r6, 1;\n"
        "setp.lt.u32 %p2, %r6, 8;\n@%p2 bra $L_next;\n";
    char body[2000], error[PTX_ERROR];
    draw();
    for (size_t i = 0; i < sizeof first / sizeof *first; i++) {
        snprintf(body, sizeof body, "%s%d%s", begin, first[i], end);
        for (uint64_t seed = 1; seed < 4; seed++) {
            cr_assert(launch(body, 256, seed, error), "%s", error);
            for (int row = 0; row < BOX; row++)
                for (int column = 0; column < BOX; column++) {
                    uint32_t at = (uint32_t)(row * 64 + (column / 8 ^ row % 8) * 8 + column % 8);
                    uint32_t bits = (out[at / 2] >> at % 2 * 16) << 16;
                    float x;
                    memcpy(&x, &bits, 4);
                    cr_assert_eq(x, number(first[i] + row, 1, 64 + column), "box %d: row %d, column %d", first[i],
                                 row, column);
                }
        }
    }
}

/* D = A B, 64 x 64 x 64: A rows 0 .. 63 of one box, B the box of rows 6 .. 69, by rows or by columns. */
Test(ptx_async, products) {
    static const char begin[] = OPEN FIRST EXPECT(16384)
        "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\nmov.u32 %r4, 6;\n"
        COPY "[%r90], [%rd3, {%r1, %r2, %r3, %r92}], [%r91];\n" COPY "[%r90+8192], [%rd3, {%r1, %r2, %r4, %r92}], [%r91];\n"
            ALL WAIT(0)
        "shr.u32 %r5, %r90, 4;\ncvt.u64.u32 %rd4, %r5;\nor.b64 %rd4, %rd4, 4611686293305294848;\n"
        "add.s64 %rd5, %rd4, 512;\nwgmma.fence.sync.aligned;\n";
    char body[TEXT], error[PTX_ERROR];
    draw();
    for (int way = 0; way < 2; way++) {
        int n = snprintf(body, sizeof body, "%s", begin);
        for (int k = 0; k < 4; k++) { /* 16 of the depth: 32 bytes further, or 16 lines */
            n += snprintf(body + n, sizeof body - (size_t)n,
                "setp.ne.s32 %%p3, %d, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {", k);
            for (int i = 0; i < 32; i++) n += snprintf(body + n, sizeof body - (size_t)n, "%s%%f%d", i ? ", " : "", i);
            n += snprintf(body + n, sizeof body - (size_t)n,
                "}, %%rd4, %%rd5, %%p3, 1, 1, %d, %d;\nadd.s64 %%rd4, %%rd4, %d;\nadd.s64 %%rd5, %%rd5, %d;\n",
                way, way, way ? 128 : 2, way ? 128 : 2);
        }
        n += snprintf(body + n, sizeof body - (size_t)n,
            "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n");
        for (int i = 0; i < 32; i++)
            n += snprintf(body + n, sizeof body - (size_t)n, "st.global.f32 [%%rd2+%d], %%f%d;\n", i * 512, i);
        cr_assert(n < TEXT);
        cr_assert(launch(body, 128, 7, error), "%s", error);
        for (int row = 0; row < 64; row++)
            for (int column = 0; column < 64; column++) {
                float sum = 0, x;
                for (int k = 0; k < 64; k++)
                    sum += way ? number(k, 0, row) * number(6 + k, 0, column)
                               : number(row, 0, k) * number(6 + column, 0, k);
                int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
                int i = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
                memcpy(&x, &out[thread + i * 128], 4);
                cr_assert_eq(x, sum, "way %d, row %d, column %d: %g, not %g", way, row, column, x, sum);
            }
    }
}

/* A product of what nobody wrote, of descriptors %rd4 and %rd5; its sums. */
#define DESCRIPTORS                                                                                                    \
    "shr.u32 %r5, %r90, 4;\ncvt.u64.u32 %rd4, %r5;\nor.b64 %rd4, %rd4, 4611686293305294848;\nmov.b64 %rd5, %rd4;\n"    \
    "setp.ne.s32 %p3, 0, 0;\n"
#define STORE "shl.b32 %r6, %r0, 2;\nadd.s32 %r6, %r6, %r90;\nst.shared.u32 [%r6], %r0;\n"
#define PROXY "fence.proxy.async.shared::cta;\n"
#define MEET "bar.sync 0;\n"
#define FOUR STORE "st.shared.u32 [%r6+4], %r0;\nst.shared.u32 [%r6+8], %r0;\nst.shared.u32 [%r6+12], %r0;\n"
#define BULK                                                                                                           \
    "mov.u32 %r8, 16;\ncp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd2], [%r6], %r8;\n"               \
    "cp.async.bulk.commit_group;\n"
#define DONE "cp.async.bulk.wait_group 0;\n"
#define SUMS "{%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8, %f9, %f10, %f11, %f12, %f13, %f14, %f15}"
#define PRODUCT "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " SUMS ", %rd4, %rd5, %p3, 1, 1, 0, 0;\n"
#define FENCE "wgmma.fence.sync.aligned;\n"
#define COMMIT "wgmma.commit_group.sync.aligned;\n"
#define ENDED "wgmma.wait_group.sync.aligned 0;\n"
#define ZERO "mov.u32 %r1, 0;\nmov.u32 %r2, 0;\nmov.u32 %r3, 0;\n"
#define BOX_0 COPY "[%r90], [%rd3, {%r1, %r2, %r3, %r92}], [%r91];\n"

Test(ptx_async, found) {
    static const struct {
        const char *body, *why;
    } rows[] = {
        {OPEN FIRST ZERO EXPECT(8192) BOX_0 ALL WAIT(0) "ld.shared.u32 %r7, [%r90];\nst.global.u32 [%rd2], %r7;", NULL},
        {OPEN FIRST ZERO EXPECT(8192) BOX_0 ALL "ld.shared.u32 %r7, [%r90];", "shared memory at 1024"},
        {OPEN FIRST ZERO EXPECT(8192) BOX_0
         "$L_only:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r91], 0;\n@!%p1 bra $L_only;\n" ALL
         "ld.shared.u32 %r7, [%r90];",
         "shared memory at 1024"}, /* only one has waited */
        {OPEN FIRST ZERO EXPECT(16384) BOX_0 COPY "[%r90+8192], [%rd3, {%r1, %r2, %r3, %r92}], [%r91];\n" ALL,
         "unfinished copy: the block ends"},
        {OPEN FIRST ZERO EXPECT(8208) BOX_0 ALL WAIT(0), "deadlock"},
        {OPEN FIRST ZERO BOX_0 ALL WAIT(0), "deadlock"},
        {OPEN FIRST ZERO EXPECT(8192) BOX_0 BOX_0 ALL WAIT(0), "unfinished copy: it writes"},
        {OPEN FIRST ZERO EXPECT(8192) COPY "[%r90+64], [%rd3, {%r1, %r2, %r3, %r92}], [%r91];\n" ALL WAIT(0),
         "not a multiple of 128"},
        {OPEN FIRST ZERO EXPECT(8192) COPY "[%r90+25088], [%rd3, {%r1, %r2, %r3, %r92}], [%r91];\n" ALL WAIT(0),
         "unfinished copy: it writes"}, /* the barrier */
        {OPEN FIRST ZERO EXPECT(8192) "add.s64 %rd3, %rd3, -64;\n" BOX_0 ALL WAIT(0), "is no map"},
        {OPEN FIRST ZERO EXPECT(8192) "mov.b64 %rd3, %rd1;\n" BOX_0 ALL WAIT(0), "is no parameter"},
        {OPEN FIRST ZERO "st.shared.u32 [%r90+512], %r0;\n" EXPECT(8192) BOX_0 ALL WAIT(0),
         "missing proxy fence: a tensor copy"},
        {"@%p9 bra $L_open;\nmbarrier.init.shared::cta.b64 [%r91], 1;\n$L_open:\nbar.sync 0;\n" FIRST ZERO EXPECT(8192)
             BOX_0 ALL WAIT(0),
         "opened and not fenced"},
        {"@%p9 bra $L_open;\nmbarrier.init.shared::cta.b64 [%r91], 1;\n$L_open:\n" WAIT(1), "r"}, /* none there,
         or a race */
        {OPEN WAIT(1), NULL}, /* the phase before the first */
        {OPEN WAIT(0), "deadlock"},
        {OPEN WAIT(2), "a parity of 2"},
        {OPEN "mbarrier.arrive.shared::cta.b64 _, [%r91];\n"
              "add.s32 %r91, %r91, 8;\nmbarrier.arrive.shared::cta.b64 _, [%r91];",
         "there is no barrier"},
        {OPEN FIRST "mbarrier.init.shared::cta.b64 [%r91+4], 1;\n" ALL, "not a multiple of 8"},
        {OPEN FIRST "mbarrier.init.shared::cta.b64 [%r91], 1;\n" ALL, "unfinished copy: it writes"}, /* opened twice */
        {OPEN "ld.shared.u32 %r7, [%r91];", "unfinished copy: it reads"}, /* a barrier is no number */
        {OPEN FIRST "mbarrier.init.shared::cta.b64 [%r91+8], 0;\n" ALL, "a barrier of 0 arrivals"},
        {DESCRIPTORS FENCE PRODUCT COMMIT ENDED, NULL},
        {DESCRIPTORS FENCE PRODUCT COMMIT ENDED "st.global.f32 [%rd2], %f0;", "it stores what nobody wrote"},
        {DESCRIPTORS FENCE PRODUCT COMMIT "mov.f32 %f3, 0f00000000;\n" ENDED, "number 3 was written while"},
        {DESCRIPTORS FENCE PRODUCT COMMIT, "unfinished products"},
        {DESCRIPTORS FENCE PRODUCT ENDED, "unfinished products"},
        {DESCRIPTORS PRODUCT COMMIT ENDED, "missing wgmma.fence: none"},
        {DESCRIPTORS FENCE "mov.f32 %f15, 0f00000000;\n" PRODUCT COMMIT ENDED, "accumulator register 15 was written"},
        {DESCRIPTORS FENCE PRODUCT COMMIT ENDED PRODUCT COMMIT ENDED, "missing wgmma.fence: none"},
        {DESCRIPTORS FENCE PRODUCT PRODUCT COMMIT ENDED, NULL},
        {DESCRIPTORS "or.b64 %rd5, %rd5, 4503599627370496;\n" FENCE PRODUCT COMMIT ENDED, "bits that mean nothing"},
        {DESCRIPTORS "add.s64 %rd5, %rd5, 4611686018427387904;\n" FENCE PRODUCT COMMIT ENDED,
         "not of the 128-byte swizzle"},
        {DESCRIPTORS "add.s64 %rd5, %rd5, 8;\n" FENCE PRODUCT COMMIT ENDED, "does not begin at a multiple of 1024"},
        {DESCRIPTORS "add.s64 %rd5, %rd5, 2048;\n" FENCE PRODUCT COMMIT ENDED, "out of bounds"},
        {DESCRIPTORS "@%p9 bra $L_a;\nadd.s64 %rd5, %rd5, 2;\n$L_a:\n" FENCE PRODUCT COMMIT ENDED,
         "lanes give a product other operands"},
        {DESCRIPTORS "setp.lt.u32 %p4, %r0, 32;\n@%p4 add.s64 %rd5, %rd5, 2;\n" FENCE PRODUCT COMMIT ENDED,
         "another warp of the group"},
        {DESCRIPTORS FENCE "@%p9 bra $L_a;\n" PRODUCT "$L_a:\n" COMMIT ENDED, "divergence"},
        {DESCRIPTORS STORE MEET FENCE PRODUCT COMMIT ENDED, "missing proxy fence: a product reads"},
        {DESCRIPTORS STORE PROXY MEET FENCE PRODUCT COMMIT ENDED, NULL},
        /* the fence of another's writes is of no use */
        {DESCRIPTORS STORE MEET PROXY FENCE PRODUCT COMMIT ENDED, "missing proxy fence: a product reads"},
        {DESCRIPTORS STORE PROXY FENCE PRODUCT COMMIT ENDED, "race"},
        {DESCRIPTORS FENCE PRODUCT COMMIT
         "shl.b32 %r6, %r0, 7;\nadd.s32 %r6, %r6, %r90;\nst.shared.u32 [%r6], %r0;\n" ENDED,
         "race"},
        {FIRST FOUR PROXY BULK DONE ALL, NULL},
        {FIRST FOUR BULK DONE ALL, "missing proxy fence: a bulk addition reads"},
        {FIRST FOUR PROXY BULK ALL, "unfinished copy"},
        {FIRST FOUR PROXY BULK "cp.async.bulk.wait_group.read 0;\n" ALL, "unfinished copy"},
        {FIRST FOUR PROXY BULK "st.shared.u32 [%r6], %r0;\n" DONE ALL, "race"},
        {FIRST FOUR PROXY BULK "cp.async.bulk.wait_group.read 0;\nst.shared.u32 [%r6], %r0;\n" DONE ALL, NULL},
        {FIRST STORE PROXY BULK DONE ALL, "it adds what nobody wrote"},
        {FIRST FOUR PROXY "add.s64 %rd2, %rd2, 4;\n" BULK DONE ALL, "not multiples of 16"},
        {"setmaxnreg.dec.sync.aligned.u32 40;", NULL},
        {"setmaxnreg.dec.sync.aligned.u32 36;", "not a multiple of 8"},
        {"setmaxnreg.inc.sync.aligned.u32 40;", "to 40"},
        {"setmaxnreg.inc.sync.aligned.u32 256;", "deadlock"},
        {"setmaxnreg.dec.sync.aligned.u32 40;\nbar.sync 0;\nsetmaxnreg.inc.sync.aligned.u32 240;", NULL},
        {"setp.lt.u32 %p4, %r0, 32;\n@%p4 bra $L_a;\nsetmaxnreg.dec.sync.aligned.u32 40;\n$L_a:\n",
         "not all warps of the group"},
    };
    draw();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char error[PTX_ERROR];
        bool good = launch(rows[i].body, 128, i + 1, error);
        cr_expect(good == !rows[i].why, "%s: %s", rows[i].body, good ? "nothing is found" : error);
        if (!good && rows[i].why) cr_expect(strstr(error, rows[i].why), "%s: %s", rows[i].body, error);
    }
}
