/* test_ptx_machine.c: tests the machine that executes PTX by small kernels: instructions give what the manual says, PTX
 * that the machine does not know is refused, and mistakes are found.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/ptx.h"

enum { TEXT = 8000, WORDS = 4096 };
typedef struct parameters {
    uint64_t out, in;
} parameters;
static uint32_t out[WORDS], in[WORDS];

/* A kernel k with registers, its parameters in %rd0 (out) and %rd1 (in), the thread in %r0, and %rd2 = out + 4 *
 * thread. */
static void kernel(char text[TEXT], const char *body) {
    int size = snprintf(text, TEXT,
                        ".version 9.0\n.target sm_80\n.address_size 64\n.extern .shared .align 1024 .b8 memory[];\n"
                        ".visible .entry k(\n\t.param .align 8 .b8 k_param_0[16]\n)\n.maxntid 256, 1, 1\n{\n"
                        "\t.reg .pred %%p<10>;\n\t.reg .b16 %%h<20>;\n\t.reg .b32 %%r<100>;\n\t.reg .b64 %%rd<20>;\n"
                        "\t.reg .f32 %%f<40>;\n"
                        "\tld.param.u64 %%rd0, [k_param_0];\n\tld.param.u64 %%rd1, [k_param_0+8];\n"
                        "\tmov.u32 %%r0, %%tid.x;\n"
                        "\tmul.wide.u32 %%rd2, %%r0, 4;\n\tadd.s64 %%rd2, %%rd0, %%rd2;\n%s\n\tret;\n}\n", body);
    cr_assert(size > 0 && size < TEXT);
}

static bool launch(const char *body, uint32_t blocks, uint32_t threads, uint32_t resident, uint64_t seed, char *error) {
    char text[TEXT];
    kernel(text, body);
    ptx_module *m = ptx_module_new(text, error);
    if (!m) return false;
    parameters p = {(uintptr_t)out, (uintptr_t)in};
    const ptx_range ranges[] = {{"the output", p.out, p.out + sizeof out, true},
                                {"the input", p.in, p.in + sizeof in, false}};
    const ptx_launch run = {.module = m,
                            .kernel = ptx_module_kernel(m, "k"),
                            .parameters = &p,
                            .parameter_bytes = sizeof p,
                            .blocks = blocks,
                            .threads = threads,
                            .shared = 8192,
                            .resident = resident,
                            .ranges = ranges,
                            .range_count = 2,
                            .seed = seed,
                            .most = 1 << 20};
    cr_assert_not_null(run.kernel);
    bool good = ptx_run(&run, error);
    ptx_module_free(m);
    return good;
}

static void must(const char *body, uint32_t threads) {
    char error[PTX_ERROR];
    cr_assert(launch(body, 1, threads, 1, 1, error), "%s", error);
}

/* --- what instructions give --------------------------------------------------------------------------------------- */

Test(ptx_machine, numbers) {
    static const struct {
        const char *body; /* sets %r1 */
        uint32_t result;
    } rows[] = {
        {"add.s32 %r1, -1, 3;", 2},
        {"mul.hi.s32 %r1, -2, 3;", 0xffffffff},
        {"mul.hi.u32 %r1, 0x80000000, 6;", 3},
        {"mad.lo.s32 %r1, 7, -3, 1;", (uint32_t)-20},
        {"div.s32 %r1, -7, 2;", (uint32_t)-3},
        {"rem.s32 %r1, -7, 2;", (uint32_t)-1},
        {"div.u32 %r1, 0xfffffff9, 2;", 0x7ffffffc},
        {"shl.b32 %r1, 1, 32;", 0},
        {"shr.s32 %r1, -8, 40;", 0xffffffff},
        {"shr.u32 %r1, -8, 1;", 0x7ffffffc},
        {"bfi.b32 %r1, 0xff, 0x12345678, 8, 4;", 0x12345f78},
        {"bfi.b32 %r1, 0xff, 0x12345678, 28, 8;", 0xf2345678},
        {"bfi.b32 %r1, 0xff, 0x12345678, 4, 0;", 0x12345678},
        {"bfi.b64 %rd9, 0xff, 0x1234567800000000, 40, 4; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r1, %rd9;", 0x12345f78},
        {"bfi.b64 %rd9, -1, 0, 60, 8; shr.u64 %rd9, %rd9, 32; cvt.u32.u64 %r1, %rd9;", 0xf0000000},
        {"prmt.b32 %r1, 0x33221100, 0x77665584, 0x4127;", 0x84112277},
        {"prmt.b32 %r1, 0x33221180, 0, 0x8880;", 0xffffff80},
        {"shf.l.wrap.b32 %r1, 0x80000001, 0x00000010, 1;", 0x21},
        {"shf.r.wrap.b32 %r1, 0x80000001, 0x00000011, 33;", 0xc0000000},
        {"bfe.u32 %r1, 0x12345678, 8, 12;", 0x456},
        {"bfe.s32 %r1, 0x12345978, 8, 4;", 0xfffffff9},
        {"bfe.s32 %r1, 0x80000000, 30, 8;", 0xfffffffe},
        {"bfe.s32 %r1, 0x80000000, 40, 8;", 0xffffffff},
        {"bfe.u32 %r1, 0x80000000, 31, 0;", 0},
        {"popc.b32 %r1, 0xf0010001;", 6},
        {"clz.b32 %r1, 0x00010000;", 15},
        {"mov.b64 %rd9, 0x0000010000000000; clz.b64 %r1, %rd9;", 23},
        {"brev.b32 %r1, 0x80000006;", 0x60000001},
        {"lop3.b32 %r1, 0xff00ff00, 0xf0f0f0f0, 0xcccccccc, 0x80;", 0xc000c000},
        {"lop3.b32 %r1, 0xff00ff00, 0xf0f0f0f0, 0xcccccccc, 0x96;", 0xc33cc33c},
        {"abs.s32 %r1, -5;", 5},
        {"min.s32 %r1, -5, 4;", (uint32_t)-5},
        {"min.u32 %r1, -5, 4;", 4},
        {"mov.b32 {%h0, %h1}, 0x12348765; mov.b32 %r1, {%h1, %h0};", 0x87651234},
        {"mov.b32 {%h0, %h1}, 0x12348765; cvt.s32.s16 %r1, %h0;", 0xffff8765},
        {"cvt.u16.u64 %h0, 0x123456789abc; cvt.u32.u16 %r1, %h0;", 0x9abc},
        {"cvt.s64.s32 %rd5, -3; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r1, %rd5;", 0xffffffff},
        {"cvt.u64.u32 %rd5, -3; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r1, %rd5;", 0},
        {"mul.wide.s32 %rd5, -3, 5; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r1, %rd5;", 0xffffffff},
        {"mul.wide.u32 %rd5, -3, 5; shr.u64 %rd5, %rd5, 32; cvt.u32.u64 %r1, %rd5;", 4},
        {"setp.lt.s32 %p1, -1, 0; selp.b32 %r1, 7, 8, %p1;", 7},
        {"mov.u64 %rd5, %globaltimer; mov.u32 %r2, 900; nanosleep.u32 %r2; mov.u64 %rd6, %clock64; "
         "sub.s64 %rd6, %rd6, %rd5; setp.ge.s64 %p1, %rd6, 900; selp.b32 %r1, 7, 8, %p1;", 7},
        {"setp.lt.u32 %p1, -1, 0; selp.b32 %r1, 7, 8, %p1;", 8},
        {"setp.lt.s32 %p1, -1, 0; selp.b32 %r1, 7, 8, !%p1;", 8},
        {"setp.lt.s64 %p1, -1, 0; selp.b32 %r1, 7, 8, %p1;", 7},
        {"setp.lt.f32 %p1, 0f7FC00000, 0f3F800000; selp.b32 %r1, 7, 8, %p1;", 8},  /* NaN < 1 */
        {"setp.ltu.f32 %p1, 0f7FC00000, 0f3F800000; selp.b32 %r1, 7, 8, %p1;", 7}, /* or unordered */
        {"setp.ne.f32 %p1, 0f7FC00000, 0f3F800000; selp.b32 %r1, 7, 8, %p1;", 8},
        {"setp.neu.f32 %p1, 0f7FC00000, 0f3F800000; selp.b32 %r1, 7, 8, %p1;", 7},
        {"max.f32 %r1, 0f7FC00000, 0fBF800000;", 0xbf800000}, /* the number */
        {"max.f32 %r1, 0f80000000, 0f00000000;", 0},          /* -0 is less than +0 */
        {"min.f32 %r1, 0f00000000, 0f80000000;", 0x80000000},
        {"copysign.f32 %r1, 0fBF800000, 0f40000000;", 0xc0000000}, /* -1, 2: -2 */
        {"fma.rn.f32 %r1, 0f3F800001, 0f3F800001, 0fBF800002;", 0x28800000}, /* (1 + 2^-23)^2 - 1 - 2^-22 = 2^-46 */
        {"fma.rm.f32 %r1, 0f3F800000, 0f3F800000, 0f33800000;", 0x3f800000}, /* 1 + 2^-24, down */
        {"fma.rm.f32 %r1, 0f3F800000, 0fBF800000, 0fB3800000;", 0xbf800001},
        {"cvt.sat.f32.f32 %r1, 0f7FC00000;", 0},
        {"cvt.sat.f32.f32 %r1, 0f40000000;", 0x3f800000},
        {"ex2.approx.ftz.f32 %r1, 0f40400000;", 0x41000000},   /* 2^3 */
        {"ex2.approx.ftz.f32 %r1, 0fFF800000;", 0},            /* 2^-inf */
        {"ex2.approx.ftz.f32 %r1, 0fC3020000;", 0},            /* 2^-130 is flushed */
        {"ex2.approx.f32 %r1, 0fC3020000;", 0x00080000},       /* and is not */
        {"lg2.approx.ftz.f32 %r1, 0f41000000;", 0x40400000},
        {"lg2.approx.ftz.f32 %r1, 0f00000000;", 0xff800000},
        {"lg2.approx.ftz.f32 %r1, 0f00000001;", 0xff800000},   /* subnormal: as 0 */
        {"rcp.approx.ftz.f32 %r1, 0f40000000;", 0x3f000000},
        {"tanh.approx.f32 %r1, 0f3F000000;", 0x3eec9000},      /* 12 bits of 0x3eec9a9f, towards 0 */
        {"tanh.approx.f32 %r1, 0fBF000000;", 0xbeec9000},
        {"tanh.approx.f32 %r1, 0fFF800000;", 0xbf800000},
        {"tanh.approx.f32 %r1, 0f00000fff;", 0x00000fff},      /* subnormal */
        {"cvt.rn.f32.s32 %r1, 0x1000001;", 0x4b800000},        /* a tie, to even */
        {"cvt.rzi.s32.f32 %r1, 0fC0200000;", (uint32_t)-2},
        {"cvt.rn.bf16x2.f32 %r1, 0f3F818000, 0f3F808000;", 0x3f823f80}, /* the first in the upper half; ties to even */
        {"cvt.rn.bf16x2.f32 %r1, 0f7F800000, 0f7FFFFFFF;", 0x7f807fff},
        {"cvt.rn.f16x2.f32 %r1, 0f3F800000, 0fC0000000;", 0x3c00c000},
        {"cvt.rn.f16x2.f32 %r1, 0f477FE000, 0f477FF000;", 0x7bff7c00},  /* 65504; 65520 is the first infinity */
        {"cvt.rn.f16x2.f32 %r1, 0f33800000, 0f33000000;", 0x00010000},  /* 2^-24; half of it, to even */
        {"mov.b32 {%h0, %h1}, 0x0001fbff; cvt.f32.f16 %r1, %h0;", 0xc77fe000},
        {"mov.b32 {%h0, %h1}, 0x0001fbff; cvt.f32.f16 %r1, %h1;", 0x33800000},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[400], error[PTX_ERROR];
        snprintf(body, sizeof body, "%s\n st.global.u32 [%%rd2], %%r1;", rows[i].body);
        memset(out, 0xee, sizeof out);
        bool good = launch(body, 1, 33, 1, 1, error);
        cr_expect(good, "%s: %s", rows[i].body, error);
        for (int l = 0; good && l < 33; l++)
            cr_expect(out[l] == rows[i].result, "%s: %08x, not %08x", rows[i].body, out[l], rows[i].result);
        cr_expect(out[33] == 0xeeeeeeee, "a thread too many");
    }
}

Test(ptx_machine, shuffles) {
    static const struct {
        const char *mode;
        uint32_t b, c;
    } rows[] = {{"bfly", 1, 31},    {"bfly", 16, 31}, {"bfly", 2, 0x1c1f}, {"idx", 5, 31},
                {"idx", 5, 0x181f}, {"up", 3, 0},     {"down", 3, 31}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char body[400];
        uint32_t b = rows[i].b, segment = rows[i].c >> 8;
        snprintf(body, sizeof body, "mul.lo.s32 %%r1, %%r0, 3;\n shfl.sync.%s.b32 %%r2, %%r1, %u, %u, 0xffffffff;\n"
                                    " st.global.u32 [%%rd2], %%r2;",
                 rows[i].mode, b, rows[i].c);
        must(body, 32);
        for (uint32_t l = 0; l < 32; l++) {
            uint32_t width = 32 - segment, base = l / width * width, from = l;
            if (!strcmp(rows[i].mode, "bfly") && (l ^ b) < base + width) from = l ^ b;
            if (!strcmp(rows[i].mode, "idx")) from = base + b % width;
            if (!strcmp(rows[i].mode, "up") && l >= base + b) from = l - b;
            if (!strcmp(rows[i].mode, "down") && l + b < base + width) from = l + b;
            cr_expect(out[l] == from * 3, "%s %u %u: lane %u has %u", rows[i].mode, b, rows[i].c, l, out[l] / 3);
        }
    }
}

/* A [16][16] from `in`, then B as eight columns of 16, as fp16; by ldmatrix and mma; C stored where the manual has
 * it. With `turned` B is 16 rows of eight, and is transposed as it is loaded. */
static void product(bool turned, const char *type) {
    char body[4000];
    bool bf16 = strcmp(type, "bf16") == 0;
    float a[16][16], b[16][8];
    uint16_t *words = (uint16_t *)in;
    memset(in, 0, sizeof in);
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++) a[row][k] = (float)((row * 7 + k * 3) % 13 - 6);
    for (int k = 0; k < 16; k++)
        for (int column = 0; column < 8; column++) b[k][column] = (float)((k * 5 + column * 11) % 17 - 8) / 4;
    for (int row = 0; row < 16; row++)
        for (int k = 0; k < 16; k++) words[row * 16 + k] = bf16 ? ptx_to_bf16(a[row][k]) : ptx_to_half(a[row][k]);
    for (int k = 0; k < 16; k++)
        for (int column = 0; column < 8; column++)
            words[256 + (turned ? k * 8 + column : column * 16 + k)] =
                bf16 ? ptx_to_bf16(b[k][column]) : ptx_to_half(b[k][column]);
    /* 512 bytes of A, 256 of B: 16 each of 48 chunks, by 32 threads */
    snprintf(body, sizeof body,
             "mov.u32 %%r1, memory;\n shl.b32 %%r2, %%r0, 4;\n add.s32 %%r3, %%r1, %%r2;\n cvt.u64.u32 %%rd4, %%r2;\n"
             " add.s64 %%rd4, %%rd1, %%rd4;\n"
             "cp.async.cg.shared.global [%%r3], [%%rd4], 16;\n setp.lt.u32 %%p1, %%r0, 16;\n"
             "@%%p1 cp.async.cg.shared.global [%%r3+512], [%%rd4+512], 16;\n cp.async.wait_all;\n bar.sync 0;\n"
             "and.b32 %%r4, %%r0, 15;\n shr.u32 %%r5, %%r0, 4;\n shl.b32 %%r4, %%r4, 5;\n shl.b32 %%r5, %%r5, 4;\n"
             " add.s32 %%r6, %%r4, %%r5;\n add.s32 %%r6, %%r6, %%r1;\n"
             "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%%r10, %%r11, %%r12, %%r13}, [%%r6];\n");
    size_t at = strlen(body);
    if (turned)
        snprintf(body + at, sizeof body - at,
                 "and.b32 %%r4, %%r0, 15;\n shl.b32 %%r4, %%r4, 4;\n add.s32 %%r6, %%r4, %%r1;\n"
                 "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%%r14, %%r15}, [%%r6+512];\n");
    else
        snprintf(body + at, sizeof body - at, "and.b32 %%r4, %%r0, 7;\n shl.b32 %%r4, %%r4, 5;\n"
                                              " shr.u32 %%r5, %%r0, 3;\n and.b32 %%r5, %%r5, 1;\n"
                                              " shl.b32 %%r5, %%r5, 4;\n"
                 "add.s32 %%r6, %%r4, %%r5;\n add.s32 %%r6, %%r6, %%r1;\n"
                 " ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%%r14, %%r15}, [%%r6+512];\n");
    at = strlen(body);
    snprintf(body + at, sizeof body - at,
             "mov.f32 %%f0, 0f00000000;\n mov.f32 %%f1, 0f3F800000;\n"
             "mma.sync.aligned.m16n8k16.row.col.f32.%s.%s.f32 {%%f2, %%f3, %%f4, %%f5}, {%%r10, %%r11, %%r12, %%r13}, "
             "{%%r14, %%r15}, {%%f0, %%f1, %%f0, %%f1};\n"
             "shr.u32 %%r20, %%r0, 2;\n and.b32 %%r21, %%r0, 3;\n shl.b32 %%r20, %%r20, 5;\n shl.b32 %%r21, %%r21, 3;\n"
             " add.s32 %%r22, %%r20, %%r21;\n"
             "cvt.u64.u32 %%rd5, %%r22;\n add.s64 %%rd5, %%rd0, %%rd5;\n st.global.v2.f32 [%%rd5], {%%f2, %%f3};\n"
             " st.global.v2.f32 [%%rd5+256], {%%f4, %%f5};", type, type);
    must(body, 32);
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            float is, sum = column % 2 ? 1 : 0;
            for (int k = 0; k < 16; k++) sum += a[row][k] * b[k][column];
            memcpy(&is, &out[row * 8 + column], 4);
            cr_expect(is == sum, "%s, %d, %d: %g, not %g", type, row, column, (double)is, (double)sum);
        }
}
Test(ptx_machine, products) {
    product(false, "f16");
    product(true, "f16");
    product(false, "bf16");
    product(true, "bf16");
}

/* Of two warps, the one in which the predicate holds in some lane. */
Test(ptx_machine, votes) {
    must("setp.eq.s32 %p1, %r0, 40;\n vote.sync.any.pred %p2, %p1, -1;\n selp.u32 %r1, 1, 0, %p2;\n"
         " vote.sync.any.pred %p3, !%p1, 0xffffffff;\n selp.u32 %r2, 2, 0, %p3;\n add.s32 %r1, %r1, %r2;\n"
         " st.global.u32 [%rd2], %r1;",
         64);
    for (uint32_t l = 0; l < 64; l++) cr_expect(out[l] == 2 + l / 32, "thread %u: %u", l, out[l]);
}

/* All threads at once: with a sign, and without. */
Test(ptx_machine, most) {
    static const struct { uint32_t before, most, least; } rows[] = {
        {0x80000000, 60, 0xffffffc4}, {5, 60, 5}, {100, 100, 100}, {0xffffffff, 60, 0xffffffc4}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        out[0] = out[1] = rows[i].before;
        if (rows[i].before == 0x80000000) out[1] = 0xffffffff;
        must("sub.s32 %r1, %r0, 3;\n red.relaxed.gpu.global.max.s32 [%rd0], %r1;\n"
             " neg.s32 %r3, %r1;\n setp.gt.u32 %p1, %r0, 3;\n @%p1 red.relaxed.gpu.global.min.u32 [%rd0+4], %r3;",
             64);
        cr_expect(out[0] == rows[i].most && out[1] == rows[i].least, "%08x: %08x and %08x", rows[i].before, out[0],
                  out[1]);
    }
}

/* Lanes loop differently often, skip, and meet again. */
Test(ptx_machine, divergence) {
    must("mov.u32 %r1, 0;\n mov.u32 %r2, 0;\n$L_loop:\n setp.ge.u32 %p1, %r2, %r0;\n @%p1 bra $L_end;\n"
         " and.b32 %r3, %r2, 1;\n setp.eq.s32 %p2, %r3, 0;\n"
         "@!%p2 bra $L_odd;\n add.s32 %r1, %r1, 10;\n bra.uni $L_next;\n$L_odd:\n add.s32 %r1, %r1, 1;\n$L_next:\n"
         " add.s32 %r2, %r2, 1;\n bra $L_loop;\n$L_end:\n"
         "bar.sync 0;\n shfl.sync.bfly.b32 %r4, %r1, 1, 31, -1;\n add.s32 %r5, %r1, %r4;\n st.global.u32 [%rd2], %r5;",
         64);
    for (uint32_t l = 0; l < 64; l++) {
        uint32_t sum = 0;
        for (uint32_t who = l & ~1u; who <= (l | 1); who++)
            for (uint32_t j = 0; j < who; j++) sum += j % 2 ? 1 : 10;
        cr_expect(out[l] == sum, "lane %u: %u, not %u", l, out[l], sum);
    }
}

/* Groups of copies: the last one may still be under way. */
Test(ptx_machine, copies) {
    static const char issue[] = "mov.u32 %r1, memory;\n shl.b32 %r2, %r0, 4;\n add.s32 %r1, %r1, %r2;\n"
                                " cvt.u64.u32 %rd4, %r2;\n add.s64 %rd4, %rd1, %rd4;\n"
        "cp.async.cg.shared.global [%r1], [%rd4], 16;\n cp.async.commit_group;\n"
        " cp.async.cg.shared.global [%r1+512], [%rd4], 16, 0;\n cp.async.commit_group;\n";
    char body[2000], error[PTX_ERROR];
    for (int i = 0; i < WORDS; i++) in[i] = (uint32_t)i * 3;
    snprintf(body, sizeof body, "%s cp.async.wait_group 1;\n ld.shared.u32 %%r5, [%%r1+8];\n"
                                " st.global.u32 [%%rd2], %%r5;\n cp.async.wait_all;\n"
             "ld.shared.u32 %%r5, [%%r1+520];\n st.global.u32 [%%rd2+128], %%r5;", issue);
    must(body, 32);
    for (uint32_t l = 0; l < 32; l++)
        cr_expect(out[l] == (l * 4 + 2) * 3 && out[32 + l] == 0, "lane %u: %u, %u", l, out[l], out[32 + l]);
    snprintf(body, sizeof body,
             "%s cp.async.wait_group 1;\n ld.shared.u32 %%r5, [%%r1+520];\n st.global.u32 [%%rd2], %%r5;", issue);
    cr_assert(!launch(body, 1, 32, 1, 1, error));
    cr_assert(strstr(error, "unfinished copy"), "%s", error);
}

/* Turns between blocks: a counter hands out places, a lock passes a sum on; the bits depend on nothing else. */
static const char turns[] =
    "mov.u32 %r9, memory;\n setp.ne.s32 %p1, %r0, 0;\n @%p1 bra $L_wait;\n"
    " atom.relaxed.gpu.global.add.u32 %r1, [%rd0], 1;\n st.shared.u32 [%r9], %r1;\n$L_wait:\n"
    "bar.sync 0;\n ld.shared.u32 %r1, [%r9];\n@%p1 bra $L_turn;\n$L_spin:\n ld.acquire.gpu.global.u32 %r2, [%rd0+4];\n"
    " setp.ne.s32 %p2, %r2, %r1;\n @%p2 bra $L_spin;\n$L_turn:\n"
    "bar.sync 0;\n ld.global.u32 %r3, [%rd2+64];\n mul.lo.s32 %r3, %r3, 3;\n add.s32 %r3, %r3, %r1;\n"
    " st.global.u32 [%rd2+64], %r3;\n bar.sync 0;\n@%p1 bra $L_done;\n"
    "add.s32 %r4, %r1, 1;\n st.release.gpu.global.u32 [%rd0+4], %r4;\n$L_done:\n";
static bool with_turns(const char *find, const char *replace, uint64_t seed, char *error) {
    char body[2000];
    const char *at = find ? strstr(turns, find) : turns;
    cr_assert_not_null(at);
    snprintf(body, sizeof body, "%.*s%s%s", (int)(at - turns), turns, find ? replace : "",
             at + (find ? strlen(find) : 0));
    memset(out, 0, sizeof out);
    return launch(body, 7, 64, 3, seed, error);
}
Test(ptx_machine, turns) {
    char error[PTX_ERROR];
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 7; i++) sum = sum * 3 + i;
    for (uint64_t seed = 1; seed <= 5; seed++) {
        cr_assert(with_turns(NULL, NULL, seed, error), "%s", error);
        for (int l = 0; l < 64; l++) cr_assert_eq(out[16 + l], sum);
    }
    /* a relaxed read acquires with a fence behind it, and not without */
    cr_assert(with_turns("ld.acquire.gpu.global.u32 %r2, [%rd0+4];",
                         "ld.relaxed.gpu.global.u32 %r2, [%rd0+4];\n fence.acq_rel.gpu;", 1, error),
              "%s", error);
    for (int l = 0; l < 64; l++) cr_assert_eq(out[16 + l], sum);
    cr_assert(!with_turns("ld.acquire.gpu", "ld.relaxed.gpu", 1, error));
    cr_assert(strstr(error, "race"), "%s", error);
    cr_assert(!with_turns("ld.acquire.gpu", "ld", 1, error));
    cr_assert(strstr(error, "race") || strstr(error, "does not end"), "%s", error);
    cr_assert(!with_turns("$L_turn:\nbar.sync 0;", "$L_turn:\n", 1, error));
    cr_assert(strstr(error, "race"), "%s", error);
    cr_assert(!with_turns("[%rd2+64], %r3;\n bar.sync 0;", "[%rd2+64], %r3;\n", 1, error));
    cr_assert(strstr(error, "race"), "%s", error);
    cr_assert(!with_turns("add.s32 %r4, %r1, 1;", "add.s32 %r4, %r1, 2;", 1, error));
    cr_assert(strstr(error, "deadlock"), "%s", error);
}

/* --- what it refuses ---------------------------------------------------------------------------------------------- */

Test(ptx_machine, refused) {
    static const struct {
        const char *body, *why;
    } rows[] = {
        {"add.sat.s32 %r1, %r0, 1;", "line 20: the instruction 'add.sat.s32' is not known"},
        {"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%r1, %r2}, {%r3}, {%f0, %f1, %f2, "
         "%f3};", "is not known"},
        {"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2}, [%r3];", "these operands are not known"},
        {"add.s32 %r1, %r2, %rd3;", "these operands are not known"},
        {"add.s32 5, %r2, %r3;", "these operands are not known"},
        {"add.s32 %r1, %r2;", "these operands are not known"},
        {"add.s32 %r1, %r2, %q3;", "these operands are not known"},
        {"add.s32 %r1, %r2, %r100;", "these operands are not known"},
        {"mov.u32 %r1, %smid;", "these operands are not known"},
        {"bra $L_nowhere;", "there is no label $L_nowhere"},
        {"$L_a:\n$L_a:\n", "two labels"},
        {".reg .f64 %x;", "registers of type '.f64'"},
        {".pragma \"other\";", "pragma"},
        {"@%r1 bra $L_a;", "is no predicate"},
        {"mov.u32 %r1, 5", "these operands are not known"}, /* with the next line they are too many */
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char error[PTX_ERROR];
        cr_expect(!launch(rows[i].body, 1, 32, 1, 1, error), "%s is not refused", rows[i].body);
        cr_expect(strstr(error, rows[i].why), "%s: %s", rows[i].body, error);
    }
}

/* --- what it finds ------------------------------------------------------------------------------------------------ */

Test(ptx_machine, found) {
    static const struct {
        const char *body, *why;
    } rows[] = {
        {"st.global.u32 [%rd2], %r1;", "lane 0, line 20, 'st.global.u32 [%rd2], %r1': it stores what nobody wrote"},
        {"add.s32 %r2, %r1, 1;\n st.global.u32 [%rd2], %r2;", "it stores what nobody wrote"},
        {"setp.eq.s32 %p1, %r1, 0;\n @%p1 bra $L_a;\n$L_a:", "a condition that nobody wrote"},
        {"ld.global.u32 %r1, [%rd3];", "an address that nobody wrote"},
        {"mov.u32 %r9, memory;\n ld.shared.u32 %r1, [%r9];\n st.global.u32 [%rd2], %r1;",
         "it stores what nobody wrote"},
        {"shfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\n st.global.u32 [%rd2], %r2;", "it stores what nobody wrote"},
        {"ld.global.u32 %r1, [%rd1+1048576];", "out of bounds"},
        {"ld.global.u32 %r1, [%rd1-1048576];", "out of bounds"},
        {"ld.global.u32 %r1, [%rd1+2];", "not a multiple of 4"},
        {"ld.global.v2.f32 {%f1, %f2}, [%rd1+4];", "not a multiple of 8"},
        {"st.global.u32 [%rd1], 5;", "only to be read"},
        {"ld.param.u32 %r1, [k_param_0+16];", "parameters are 16 bytes"},
        {"mov.u32 %r9, memory;\n st.shared.u32 [%r9+8192], %r0;", "out of bounds"},
        {"mov.u32 %r9, memory;\n st.shared.u32 [%r9-4], %r0;", "out of bounds"},
        {"mov.u32 %r9, memory;\n st.shared.u32 [%r9+2], %r0;", "not a multiple of 4"},
        {"mov.u32 %r9, memory;\n ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r9+8];",
         "not a multiple of 16"},
        {"mov.u32 %r9, memory;\n cp.async.cg.shared.global [%r9+8], [%rd1], 16;", "not a multiple of 16"},
        {"mov.u32 %r9, memory;\n cp.async.cg.shared.global [%r9], [%rd1+8], 16;", "not a multiple of 16"},
        {"mov.u32 %r9, memory;\n cp.async.cg.shared.global [%r9], [%rd1], 16, 8;", "reads 8"},
        {"mov.u32 %r9, memory;\n shl.b32 %r8, %r0, 4;\n add.s32 %r9, %r9, %r8;\n"
         " cp.async.cg.shared.global [%r9], [%rd1], 16;",
         "ends with one under way"},
        {"mov.u32 %r9, memory;\n shl.b32 %r8, %r0, 4;\n add.s32 %r9, %r9, %r8;\n"
         " cp.async.cg.shared.global [%r9], [%rd1], 16;\n st.shared.u32 [%r9], 1;",
         "unfinished copy: it writes"},
        {"mov.u32 %r9, memory;\n st.shared.u32 [%r9], 1;", "race"}, /* all threads, one word */
        {"mov.u32 %r9, memory;\n setp.eq.s32 %p1, %r0, 40;\n @%p1 st.shared.u32 [%r9], 1;\n ld.shared.u32 %r1, [%r9];",
         "race"},
        {"mov.u32 %r9, memory;\n setp.eq.s32 %p1, %r0, 4;\n @%p1 st.shared.u32 [%r9], 1;\n setp.eq.s32 %p2, %r0, 5;\n"
         " @%p2 ld.shared.u32 %r1, [%r9];",
         "which lane 4 of its warp wrote"},
        {"mov.u32 %r9, memory;\n setp.eq.s32 %p1, %r0, 40;\n @%p1 ld.shared.u32 %r1, [%r9];\n"
         " setp.eq.s32 %p2, %r0, 5;\n @%p2 st.shared.u32 [%r9], %r0;",
         "race"},
        {"st.global.u32 [%rd0], 1;", "race"},
        {"setp.lt.u32 %p1, %r0, 5;\n @%p1 bra $L_a;\n shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;\n bra $L_b;\n$L_a:\n"
         " shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;\n$L_b:",
         "divergence"},
        {"setp.lt.u32 %p1, %r0, 5;\n @%p1 shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;", "divergence"},
        {"setp.lt.u32 %p1, %r0, 5;\n @%p1 bra $L_a;\n shfl.sync.bfly.b32 %r2, %r0, 1, 31, -1;\n$L_a:",
         "divergence"}, /* some have ended */
        {"shfl.sync.bfly.b32 %r2, %r0, 1, 31, 0xffff;", "member mask"},
        {"setp.eq.s32 %p1, %r0, 40;\n vote.sync.any.pred %p2, %p1, 0xffff;", "member mask"},
        {"vote.sync.any.pred %p2, %p1, -1;", "what is voted on"},
        {"setp.lt.u32 %p1, %r0, 5;\n @%p1 vote.sync.any.pred %p2, %p1, -1;", "divergence"},
        {"red.relaxed.gpu.global.max.s32 [%rd1], %r0;", "only to be read"},
        {"red.relaxed.gpu.global.min.u32 [%rd0], %r1;", "what is compared"},
        {"setp.lt.u32 %p1, %r0, 32;\n @%p1 bra $L_a;\n bar.sync 0;\n$L_a:", "deadlock: all warps wait"},
        {"bar.sync 0, 33;", "a barrier of 33 threads"},
        {"setp.lt.u32 %p1, %r0, 32;\n @%p1 bra $L_a;\n bar.sync 2, 64;\n bra $L_b;\n$L_a:\n bar.arrive 2, 32;\n"
         " bar.sync 2, 64;\n$L_b:\n bar.sync 3, 64;\n @%p1 bar.arrive 2, 64;\n @!%p1 bar.arrive 2, 32;",
         "for 32 threads here, for 64 elsewhere"},
        {"$L_a:\n bra $L_a;", "it does not end"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char error[PTX_ERROR];
        cr_expect(!launch(rows[i].body, 1, 64, 1, 1, error), "%s: nothing is found", rows[i].body);
        cr_expect(strstr(error, rows[i].why), "%s: %s", rows[i].body, error);
    }
}
