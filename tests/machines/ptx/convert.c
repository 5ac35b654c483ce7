/* convert.c: executes moves between registers, and conversions of types.
 *
 * Gives:  the table of their forms.
 * Source: the manual's pages of mov, cvt, cvta.
 */
#include <math.h>
#include <string.h>

#include "tests/machines/ptx/forms.h"

#define KNOWN(n) ptx_known(w, &i->operands[n])
#define DEFINE(known) ptx_define(w, &i->operands[0], mask, known)

/* Rounds to nearest, ties to even. What is beyond the largest number becomes an infinity. A NaN has all bits of its
 * fraction set. */
uint16_t ptx_to_half(float f) {
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    if (isnan(f)) return 0x7fff;
    float x = fabsf(f);
    if (x >= 65520) return sign | 0x7c00;
    if (x < 0x1p-14f) return sign | (uint16_t)nearbyintf(x * 0x1p24f); /* 1024 is the least normal one */
    int exponent;
    float fraction = frexpf(x, &exponent); /* in [1/2, 1) */
    return sign |
           (uint16_t)(((exponent + 13) << 10) + (int)nearbyintf(fraction * 2048)); /* 2048 carries into the exponent */
}
uint16_t ptx_to_bf16(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    if (isnan(f)) return 0x7fff;
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static ptx_next mov_32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_u32 *d = ptx_out(w, &i->operands[0]);
    const ptx_u32 *a = ptx_in(w, &i->operands[1]);
    PTX_EACH(mask, l, d[l] = a[l];);
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}
static ptx_next mov_64(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_u64 *d = ptx_out(w, &i->operands[0]);
    const ptx_u64 *a = ptx_in(w, &i->operands[1]);
    PTX_EACH(mask, l, d[l] = a[l];);
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}
/* A vector's elements lie from the lowest bits up. */
static ptx_next pack(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t known = KNOWN(1) & KNOWN(2), bits = i->operands[0].bits / 2u;
    PTX_EACH(mask, l, ptx_set(w, &i->operands[0], l, (ptx_value(w, &i->operands[1], l) & ((UINT64_C(1) << bits) - 1)) |
                                                         ptx_value(w, &i->operands[2], l) << bits););
    DEFINE(known);
    return PTX_NEXT;
}
static ptx_next unpack(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t bits = i->operands[2].bits / 2u, known = KNOWN(2);
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint64_t x = ptx_value(w, &i->operands[2], l);
        if (!(mask >> l & 1)) continue;
        ptx_set(w, &i->operands[0], l, x & ((UINT64_C(1) << bits) - 1));
        ptx_set(w, &i->operands[1], l, x >> bits);
    }
    ptx_define(w, &i->operands[0], mask, known);
    ptx_define(w, &i->operands[1], mask, known);
    return PTX_NEXT;
}

/* Integers: data is what is read, what is made of it: FROM(bits, is signed) | TO(bits). The result is extended to the
 * register by the sign of the type it is made of, as a wider register wants. */
#define FROM(bits, sign) ((bits) | (sign) << 8)
#define TO(bits, sign) ((bits) << 16 | (uint32_t)(sign) << 24)
static int64_t extended(uint64_t x, uint32_t bits, bool sign) {
    return bits == 64 ? (int64_t)x
           : sign     ? (int64_t)(x << (64 - bits)) >> (64 - bits)
                      : (int64_t)(x & ((UINT64_C(1) << bits) - 1));
}
static ptx_next cvt_integer(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t data = i->form->data, from = data & 255, to = data >> 16 & 255;
    bool from_sign = data >> 8 & 1, to_sign = data >> 24 & 1;
    uint32_t known = KNOWN(1);
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        int64_t x = extended(ptx_value(w, &i->operands[1], l), from, from_sign);
        ptx_set(w, &i->operands[0], l, (uint64_t)extended((uint64_t)x, to, to_sign));
    }
    DEFINE(known);
    return PTX_NEXT;
}
static ptx_next cvt_u64_u32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_u64 *d = ptx_out(w, &i->operands[0]);
    const ptx_u32 *a = ptx_in(w, &i->operands[1]);
    PTX_EACH(mask, l, d[l] = a[l];);
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}

/* To float, to nearest. */
static ptx_next cvt_to_float(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t from = i->form->data & 255;
    bool sign = i->form->data >> 8 & 1;
    ptx_f32 *d = ptx_out(w, &i->operands[0]);
    PTX_EACH(mask, l, uint64_t x = ptx_value(w, &i->operands[1], l);
             d[l] = sign ? (float)extended(x, from, true) : (float)(uint64_t)extended(x, from, false););
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}
/* To an integer, towards 0, or down; clamped; 0 for NaN. */
static ptx_next cvt_to_s32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_u32 *d = ptx_out(w, &i->operands[0]);
    const ptx_f32 *a = ptx_in(w, &i->operands[1]);
    PTX_EACH(mask, l, float x = i->form->data ? floorf(a[l]) : truncf(a[l]);
             d[l] = (uint32_t)(isnan(x) ? 0 : x >= 0x1p31f ? INT32_MAX : x < -0x1p31f ? INT32_MIN : (int32_t)x););
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}
static ptx_next cvt_half(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_f32 *d = ptx_out(w, &i->operands[0]);
    const ptx_u32 *a = ptx_in(w, &i->operands[1]);
    PTX_EACH(mask, l, d[l] = ptx_half((uint16_t)a[l]););
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}
/* Packs two numbers into one register. The first becomes the upper half. */
static ptx_next cvt_pair(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_u32 *d = ptx_out(w, &i->operands[0]);
    const ptx_f32 *a = ptx_in(w, &i->operands[1]), *b = ptx_in(w, &i->operands[2]);
    bool bf16 = i->form->data;
    PTX_EACH(mask, l, uint32_t upper = bf16 ? ptx_to_bf16(a[l]) : ptx_to_half(a[l]);
             uint32_t lower = bf16 ? ptx_to_bf16(b[l]) : ptx_to_half(b[l]); d[l] = upper << 16 | lower;);
    DEFINE(KNOWN(1) & KNOWN(2));
    return PTX_NEXT;
}

/* Conversions of addresses. A global address is the same in the generic space; others lie in a window of it. */
static ptx_next cvta(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    static const uint64_t windows[] = {0, PTX_SHARED_WINDOW, PTX_LOCAL_WINDOW, PTX_PARAM_WINDOW};
    uint64_t window = windows[i->form->data & 3];
    bool to = i->form->data & 4;
    ptx_u64 *d = ptx_out(w, &i->operands[0]);
    const ptx_u64 *a = ptx_in(w, &i->operands[1]);
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        if (to && KNOWN(1) >> l & 1 && a[l] >> 56 != window >> 56)
            return ptx_fail(w, l, "the address is of another space");
        d[l] = to ? a[l] - window : a[l] + window;
    }
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}

#define CVT(name, to, to_sign, from, from_sign)                                                                        \
    {"cvt." name, "w<w", cvt_integer, FROM(from, from_sign) | TO(to, to_sign)}
const ptx_form ptx_convert_forms[] = {
    {"mov.u32", "r<r", mov_32}, {"mov.s32", "r<r", mov_32}, {"mov.b32", "r<r", mov_32}, {"mov.f32", "r<r", mov_32},
    {"mov.u16", "h<h", mov_32}, {"mov.b16", "h<h", mov_32}, {"mov.u64", "d<d", mov_64}, {"mov.b64", "d<d", mov_64},
    {"mov.b32", "{2h}<r", unpack}, {"mov.b32", "r<{2h}", pack}, {"mov.b64", "{2r}<d", unpack},
    {"mov.b64", "d<{2r}", pack}, {"cvt.u64.u32", "d<r", cvt_u64_u32}, {"cvt.s64.u32", "d<r", cvt_u64_u32},
    CVT("s64.s32", 64, 1, 32, 1), CVT("u64.s32", 64, 0, 32, 1), CVT("u32.u64", 32, 0, 64, 0),
    CVT("s32.u64", 32, 1, 64, 0), CVT("u32.s64", 32, 0, 64, 1), CVT("u16.u64", 16, 0, 64, 0),
    CVT("u16.u32", 16, 0, 32, 0), CVT("u32.u16", 32, 0, 16, 0), CVT("s32.s16", 32, 1, 16, 1),
    CVT("u64.u16", 64, 0, 16, 0), CVT("s64.s16", 64, 1, 16, 1), CVT("u32.u8", 32, 0, 8, 0),
    CVT("s32.s8", 32, 1, 8, 1), CVT("u16.s64", 16, 0, 64, 1), CVT("u16.s32", 16, 0, 32, 1),
    CVT("s16.s32", 16, 1, 32, 1), CVT("s32.u16", 32, 1, 16, 0), CVT("s16.u16", 16, 1, 16, 0),
    CVT("u64.s16", 64, 0, 16, 1), CVT("s64.u16", 64, 1, 16, 0), CVT("s16.u32", 16, 1, 32, 0),
    CVT("s16.u64", 16, 1, 64, 0), CVT("s64.u8", 64, 1, 8, 0), CVT("s32.u8", 32, 1, 8, 0), CVT("s16.u8", 16, 1, 8, 0),
    CVT("s32.s64", 32, 1, 64, 1), CVT("u8.u32", 8, 0, 32, 0), CVT("u8.u64", 8, 0, 64, 0), CVT("s8.s32", 8, 1, 32, 1),
    CVT("s8.s64", 8, 1, 64, 1), CVT("u32.s16", 32, 0, 16, 1), CVT("u32.s8", 32, 0, 8, 1), CVT("u16.u8", 16, 0, 8, 0),
    CVT("s16.s8", 16, 1, 8, 1), CVT("s64.s8", 64, 1, 8, 1), CVT("u64.u8", 64, 0, 8, 0),
    {"cvt.rn.f32.s32", "r<r", cvt_to_float, FROM(32, 1)}, {"cvt.rn.f32.u32", "r<r", cvt_to_float, FROM(32, 0)},
    {"cvt.rn.f32.s64", "r<d", cvt_to_float, FROM(64, 1)}, {"cvt.rn.f32.u64", "r<d", cvt_to_float, FROM(64, 0)},
    {"cvt.rn.f32.s16", "r<h", cvt_to_float, FROM(16, 1)}, {"cvt.rn.f32.u16", "r<h", cvt_to_float, FROM(16, 0)},
    {"cvt.rzi.s32.f32", "r<r", cvt_to_s32, 0}, {"cvt.rmi.s32.f32", "r<r", cvt_to_s32, 1},
    {"cvt.f32.f16", "r<h", cvt_half}, {"cvt.rn.f16x2.f32", "r<rr", cvt_pair, 0},
    {"cvt.rn.bf16x2.f32", "r<rr", cvt_pair, 1}, {"cvta.to.global.u64", "d<d", cvta, 4 | 0},
    {"cvta.global.u64", "d<d", cvta, 0}, {"cvta.shared.u64", "d<d", cvta, 1},
    {"cvta.to.shared.u64", "d<d", cvta, 4 | 1}, {"cvta.local.u64", "d<d", cvta, 2},
    {"cvta.to.local.u64", "d<d", cvta, 4 | 2}, {"cvta.param.u64", "d<d", cvta, 3},
};
const size_t ptx_convert_form_count = sizeof ptx_convert_forms / sizeof *ptx_convert_forms;
