/* alu.c: executes arithmetic, comparison, selection and logic instructions.
 *
 * Gives:  the table of their forms. Each form works on 32 lanes at once. A result is known (ptx.h, "nobody wrote") if
 *         all its operands are known; for a selection, if the selected operand is.
 * Source: the manual's chapters on integer, floating-point, comparison and selection, logic and shift instructions.
 */
#include <fenv.h>
#include <math.h>
#include <string.h>

#include "tests/machines/ptx/forms.h"
#include "tests/support/coarse_tanh.h"

/* .ftz: a subnormal number becomes a zero of the same sign. */
static inline float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

#define KNOWN(n) ptx_known(w, &i->operands[n])
#define DEFINE(known) ptx_define(w, &i->operands[0], mask, known)
#define TARGET(S) S *d = ptx_out(w, &i->operands[0])
#define SOURCE(S, name, n) const S *name = ptx_in(w, &i->operands[n])

/* Functions of one, two, three numbers of storage S (ptx_u32, ptx_u64, ptx_f32), seen as T: x, y, z. */
#define UNARY(name, S, T, ...)                                                                                         \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        TARGET(S);                                                                                                     \
        SOURCE(S, a, 1);                                                                                               \
        PTX_EACH(mask, l, T x = (T)a[l]; d[l] = (S)(__VA_ARGS__););                                                    \
        DEFINE(KNOWN(1));                                                                                              \
        return PTX_NEXT;                                                                                               \
    }
#define BINARY(name, S, T, ...)                                                                                        \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        TARGET(S);                                                                                                     \
        SOURCE(S, a, 1);                                                                                               \
        SOURCE(S, b, 2);                                                                                               \
        PTX_EACH(mask, l, T x = (T)a[l]; T y = (T)b[l]; d[l] = (S)(__VA_ARGS__););                                     \
        DEFINE(KNOWN(1) & KNOWN(2));                                                                                   \
        return PTX_NEXT;                                                                                               \
    }
#define TERNARY(name, S, T, ...)                                                                                       \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        TARGET(S);                                                                                                     \
        SOURCE(S, a, 1);                                                                                               \
        SOURCE(S, b, 2);                                                                                               \
        SOURCE(S, c, 3);                                                                                               \
        PTX_EACH(mask, l, T x = (T)a[l]; T y = (T)b[l]; T z = (T)c[l]; d[l] = (S)(__VA_ARGS__););                      \
        DEFINE(KNOWN(1) & KNOWN(2) & KNOWN(3));                                                                        \
        return PTX_NEXT;                                                                                               \
    }
/* A shift. The amount is a 32-bit number, whatever is shifted. */
#define SHIFT(name, S, T, ...)                                                                                         \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        TARGET(S);                                                                                                     \
        SOURCE(S, a, 1);                                                                                               \
        SOURCE(ptx_u32, b, 2);                                                                                         \
        PTX_EACH(mask, l, T x = (T)a[l]; uint32_t y = b[l]; d[l] = (S)(__VA_ARGS__););                                 \
        DEFINE(KNOWN(1) & KNOWN(2));                                                                                   \
        return PTX_NEXT;                                                                                               \
    }

typedef uint16_t u16;
typedef int16_t s16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

BINARY(add_32, ptx_u32, u32, x + y)
BINARY(add_64, ptx_u64, u64, x + y)
BINARY(sub_32, ptx_u32, u32, x - y)
BINARY(sub_64, ptx_u64, u64, x - y)
BINARY(mul_32, ptx_u32, u32, x * y)
BINARY(mul_64, ptx_u64, u64, x * y)
BINARY(mul_hi_u32, ptx_u32, u32, (u64)x * y >> 32)
BINARY(mul_hi_s32, ptx_u32, s32, (u64)((s64)x * y) >> 32)
BINARY(mul_hi_u64, ptx_u64, u64, (unsigned __int128)x * y >> 64)
BINARY(mul_hi_s64, ptx_u64, s64, (unsigned __int128)((__int128)x * y) >> 64)
TERNARY(mad_32, ptx_u32, u32, x * y + z)
TERNARY(mad_64, ptx_u64, u64, x * y + z)
/* The manual calls the result of a division by 0 machine-specific. Compilers divide before they select, so it is no
 * error, but the result is not known. The smallest number divided by -1 wraps. */
#define DIVIDE(name, S, T, expression)                                                                                 \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        TARGET(S);                                                                                                     \
        SOURCE(S, a, 1);                                                                                               \
        SOURCE(S, b, 2);                                                                                               \
        uint32_t good = KNOWN(1) & KNOWN(2);                                                                           \
        for (unsigned l = 0; l < PTX_LANES; l++) {                                                                     \
            T x = (T)a[l], y = (T)b[l];                                                                                \
            if (!(mask >> l & 1)) continue;                                                                            \
            if (!y) good &= ~(1u << l);                                                                                \
            d[l] = y ? (S)(expression) : (S)-1;                                                                        \
        }                                                                                                              \
        DEFINE(good);                                                                                                  \
        return PTX_NEXT;                                                                                               \
    }
DIVIDE(div_u32, ptx_u32, u32, x / y)
DIVIDE(div_u64, ptx_u64, u64, x / y)
DIVIDE(rem_u32, ptx_u32, u32, x % y)
DIVIDE(rem_u64, ptx_u64, u64, x % y)
DIVIDE(div_s32, ptx_u32, s32, y == -1 ? (s32)-(u32)x : x / y)
DIVIDE(div_s64, ptx_u64, s64, y == -1 ? (s64)-(u64)x : x / y)
DIVIDE(rem_s32, ptx_u32, s32, y == -1 ? 0 : x % y)
DIVIDE(rem_s64, ptx_u64, s64, y == -1 ? 0 : x % y)
UNARY(abs_s32, ptx_u32, s32, x < 0 ? -(u32)x : (u32)x)
UNARY(abs_s64, ptx_u64, s64, x < 0 ? -(u64)x : (u64)x)
UNARY(neg_32, ptx_u32, u32, -x)
UNARY(neg_64, ptx_u64, u64, -x)
UNARY(not_32, ptx_u32, u32, ~x)
UNARY(not_64, ptx_u64, u64, ~x)
UNARY(not_16, ptx_u32, u32, ~x & 0xffff)
BINARY(and_32, ptx_u32, u32, x & y)
BINARY(and_64, ptx_u64, u64, x & y)
BINARY(or_32, ptx_u32, u32, x | y)
BINARY(or_64, ptx_u64, u64, x | y)
BINARY(xor_32, ptx_u32, u32, x ^ y)
BINARY(xor_64, ptx_u64, u64, x ^ y)
BINARY(min_u32, ptx_u32, u32, x < y ? x : y)
BINARY(max_u32, ptx_u32, u32, x > y ? x : y)
BINARY(min_s32, ptx_u32, s32, x < y ? x : y)
BINARY(max_s32, ptx_u32, s32, x > y ? x : y)
BINARY(min_u64, ptx_u64, u64, x < y ? x : y)
BINARY(max_u64, ptx_u64, u64, x > y ? x : y)
BINARY(min_s64, ptx_u64, s64, x < y ? x : y)
BINARY(max_s64, ptx_u64, s64, x > y ? x : y)
/* Amounts beyond the width are clamped to it. */
SHIFT(shl_32, ptx_u32, u32, y > 31 ? 0 : x << y)
SHIFT(shl_64, ptx_u64, u64, y > 63 ? 0 : x << y)
SHIFT(shr_u32, ptx_u32, u32, y > 31 ? 0 : x >> y)
SHIFT(shr_u64, ptx_u64, u64, y > 63 ? 0 : x >> y)
SHIFT(shr_s32, ptx_u32, s32, x >> (y > 31 ? 31 : y))
SHIFT(shr_s64, ptx_u64, s64, x >> (y > 63 ? 63 : y))

/* Two numbers of 16 bits. */
BINARY(mul_wide_u16, ptx_u32, uint16_t, (u32)x * (u32)y)
BINARY(mul_wide_s16, ptx_u32, int16_t, (int32_t)x * (int32_t)y)

/* 16 bits, in registers of theirs. */
#define HALF(name, T, ...) BINARY(name, ptx_u32, T, (u16)(__VA_ARGS__))
HALF(add_16, u16, x + y)
HALF(sub_16, u16, x - y)
HALF(mul_16, u16, (u32)x * y)
HALF(min_u16, u16, x < y ? x : y)
HALF(max_u16, u16, x > y ? x : y)
HALF(min_s16, s16, x < y ? x : y)
HALF(max_s16, s16, x > y ? x : y)
DIVIDE(div_u16, ptx_u32, u16, (u16)(x / y))
DIVIDE(rem_u16, ptx_u32, u16, (u16)(x % y))
DIVIDE(div_s16, ptx_u32, s16, (u16)(x / y))
DIVIDE(rem_s16, ptx_u32, s16, (u16)(x % y))
SHIFT(shl_16, ptx_u32, u16, (u16)(y > 15 ? 0 : (u32)x << y))
SHIFT(shr_u16, ptx_u32, u16, (u16)(y > 15 ? 0 : x >> y))
SHIFT(shr_s16, ptx_u32, s16, (u16)(x >> (y > 15 ? 15 : y)))
UNARY(neg_16, ptx_u32, u16, (u16)-x)
UNARY(abs_s16, ptx_u32, s16, (u16)(x < 0 ? -x : x))

/* Shifts two words as one number of 64 bits. The first word is the lower half. To the left the result is the upper
 * word, to the right the lower. */
TERNARY(shf_l_wrap, ptx_u32, u32, (u32)((((u64)y << 32 | x) << (z & 31)) >> 32))
TERNARY(shf_r_wrap, ptx_u32, u32, (u32)(((u64)y << 32 | x) >> (z & 31)))
TERNARY(shf_l_clamp, ptx_u32, u32, z > 31 ? x : (u32)((((u64)y << 32 | x) << z) >> 32))
TERNARY(shf_r_clamp, ptx_u32, u32, z > 31 ? y : (u32)(((u64)y << 32 | x) >> z))

/* Products of twice the width. */
#define WIDE(name, T, W, sum)                                                                                          \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        TARGET(ptx_u64);                                                                                               \
        SOURCE(ptx_u32, a, 1);                                                                                         \
        SOURCE(ptx_u32, b, 2);                                                                                         \
        SOURCE(ptx_u64, c, sum ? 3 : 0);                                                                               \
        PTX_EACH(mask, l, u64 x = (u64)((W)(T)a[l] * (W)(T)b[l]); d[l] = sum ? x + c[l] : x;);                         \
        DEFINE(KNOWN(1) & KNOWN(2) & (sum ? KNOWN(3) : PTX_ALL));                                                      \
        return PTX_NEXT;                                                                                               \
    }
WIDE(mul_wide_u32, u32, u64, 0)
WIDE(mul_wide_s32, s32, s64, 0)
WIDE(mad_wide_u32, u32, u64, 1)
WIDE(mad_wide_s32, s32, s64, 1)

/* Inserts so many bits of a into b, from a position on. */
static ptx_next bfi_32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    TARGET(ptx_u32);
    SOURCE(ptx_u32, a, 1);
    SOURCE(ptx_u32, b, 2);
    SOURCE(ptx_u32, c, 3);
    SOURCE(ptx_u32, e, 4);
    PTX_EACH(mask, l, u32 at = c[l] & 255; u32 count = e[l] & 255;
             u64 ones = count > 31 ? PTX_ALL : (1u << count) - 1; u64 field = at > 31 ? 0 : ones << at & PTX_ALL;
             d[l] = (u32)((b[l] & ~field) | ((at > 31 ? 0 : (u64)a[l] << at) & field)););
    DEFINE(KNOWN(1) & KNOWN(2) & KNOWN(3) & KNOWN(4));
    return PTX_NEXT;
}
static ptx_next bfi_64(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    TARGET(ptx_u64);
    SOURCE(ptx_u64, a, 1);
    SOURCE(ptx_u64, b, 2);
    SOURCE(ptx_u32, c, 3);
    SOURCE(ptx_u32, e, 4);
    PTX_EACH(mask, l, u32 at = c[l] & 255; u32 count = e[l] & 255;
             u64 ones = count > 63 ? ~(u64)0 : ((u64)1 << count) - 1; u64 field = at > 63 ? 0 : ones << at;
             d[l] = (b[l] & ~field) | ((at > 63 ? 0 : a[l] << at) & field););
    DEFINE(KNOWN(1) & KNOWN(2) & KNOWN(3) & KNOWN(4));
    return PTX_NEXT;
}
/* Selects four bytes out of eight. If bit 3 of a selector is set, the byte becomes its sign bit eight times. */
static ptx_next prmt_b32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    TARGET(ptx_u32);
    SOURCE(ptx_u32, a, 1);
    SOURCE(ptx_u32, b, 2);
    SOURCE(ptx_u32, c, 3);
    PTX_EACH(mask, l, u64 all = (u64)b[l] << 32 | a[l]; u32 out = 0;
             for (u32 n = 0; n < 4; n++) {
                 u32 which = c[l] >> (n * 4);
                 u32 byte = (u32)(all >> (which & 7) * 8) & 255;
                 out |= (which & 8 ? (byte & 128 ? 255u : 0) : byte) << n * 8;
             } d[l] = out;);
    DEFINE(KNOWN(1) & KNOWN(2) & KNOWN(3));
    return PTX_NEXT;
}

/* `count` bits of a, from bit `at` on. If a is signed, the last of these bits, or bit 31 if that is beyond it, fills
 * the rest of the result. */
static inline u32 field_u32(u32 a, u32 at, u32 count) {
    u32 x = at > 31 ? 0 : a >> at;
    return count > 31 ? x : x & ((1u << count) - 1);
}
static inline u32 field_s32(u32 a, u32 at, u32 count) {
    u32 last = at + count - 1 < 31 ? at + count - 1 : 31, sign = count && a >> last & 1 ? PTX_ALL : 0;
    if (!count) return 0;
    u32 x = field_u32(a, at, count), have = at > 31 ? 0 : last - at + 1;
    return have > 31 ? x : (x & ((1u << have) - 1)) | sign << have;
}
TERNARY(bfe_u32, ptx_u32, u32, field_u32(x, y & 255, z & 255))
TERNARY(bfe_s32, ptx_u32, u32, field_s32(x, y & 255, z & 255))
UNARY(popc_32, ptx_u32, u32, __builtin_popcount(x))
UNARY(clz_32, ptx_u32, u32, x ? __builtin_clz(x) : 32)
static ptx_next clz_64(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    TARGET(ptx_u32);
    SOURCE(ptx_u64, a, 1);
    PTX_EACH(mask, l, d[l] = a[l] ? (u32)__builtin_clzll(a[l]) : 64;);
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}
static inline u32 turned(u32 x) {
    u32 out = 0;
    for (int bit = 0; bit < 32; bit++) out |= (x >> bit & 1) << (31 - bit);
    return out;
}
UNARY(brev_32, ptx_u32, u32, turned(x))
/* Any function of three bits, given as the table of its values at 4 a + 2 b + c. */
static ptx_next lop3_b32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    TARGET(ptx_u32);
    SOURCE(ptx_u32, a, 1);
    SOURCE(ptx_u32, b, 2);
    SOURCE(ptx_u32, c, 3);
    u32 table = (u32)i->operands[4].value;
    PTX_EACH(mask, l, u32 out = 0;
             for (int n = 0; n < 8; n++)
                 if (table >> n & 1) out |= (n & 4 ? a[l] : ~a[l]) & (n & 2 ? b[l] : ~b[l]) & (n & 1 ? c[l] : ~c[l]);
             d[l] = out;);
    DEFINE(KNOWN(1) & KNOWN(2) & KNOWN(3));
    return PTX_NEXT;
}

/* --- floats ------------------------------------------------------------------------------------------------------- */

BINARY(add_f32, ptx_f32, float, x + y)
BINARY(sub_f32, ptx_f32, float, x - y)
BINARY(mul_f32, ptx_f32, float, x * y)
BINARY(div_f32, ptx_f32, float, x / y)
TERNARY(fma_f32, ptx_f32, float, fmaf(x, y, z))
BINARY(add_ftz_f32, ptx_f32, float, flush(flush(x) + flush(y)))
BINARY(mul_ftz_f32, ptx_f32, float, flush(flush(x) * flush(y)))
TERNARY(fma_ftz_f32, ptx_f32, float, flush(fmaf(flush(x), flush(y), flush(z))))
/* Rounded down. */
static ptx_next fma_rm_f32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    int before = fegetround();
    fesetround(FE_DOWNWARD);
    ptx_next next = fma_f32(w, i, mask);
    fesetround(before);
    return next;
}
UNARY(neg_f32, ptx_u32, u32, x ^ 0x80000000u)
UNARY(abs_f32, ptx_u32, u32, x & 0x7fffffffu)
BINARY(copysign_f32, ptx_u32, u32,
       (x & 0x80000000u) | (y & 0x7fffffffu)) /* the sign of the first, the value of the second */
/* If one is NaN the result is the other. +0 is larger than -0. */
static inline float less(float x, float y) { return x < y || isnan(y) ? x : x == y && signbit(x) ? x : y; }
static inline float more(float x, float y) { return x > y || isnan(y) ? x : x == y && signbit(y) ? x : y; }
BINARY(min_f32, ptx_f32, float, less(x, y))
BINARY(max_f32, ptx_f32, float, more(x, y))
UNARY(sat_f32, ptx_f32, float, isnan(x) || x <= 0 ? 0 : x >= 1 ? 1 : x)
/* The approximate instructions, computed exactly. A device differs in the last bits. That of tanh is as coarse as it may
 * be on a device. */
UNARY(ex2_ftz, ptx_f32, float, flush((float)exp2((double)flush(x))))
UNARY(ex2, ptx_f32, float, (float)exp2((double)x))
UNARY(lg2_ftz, ptx_f32, float, flush((float)log2((double)flush(x))))
UNARY(lg2, ptx_f32, float, (float)log2((double)x))
UNARY(rcp_ftz, ptx_f32, float, flush((float)(1 / (double)flush(x))))
UNARY(rcp, ptx_f32, float, (float)(1 / (double)x))
UNARY(tanh_approx, ptx_f32, float, coarse_tanh(x))
UNARY(sqrt_f32, ptx_f32, float, (float)sqrt((double)x))
UNARY(sqrt_ftz, ptx_f32, float, flush((float)sqrt((double)flush(x))))
UNARY(rsqrt_ftz, ptx_f32, float, flush((float)(1 / sqrt((double)flush(x)))))
BINARY(sub_ftz_f32, ptx_f32, float, flush(flush(x) - flush(y)))

/* --- comparison, selection, predicates ---------------------------------------------------------------------------- */

#define COMPARE(name, S, T, ...)                                                                                       \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        ptx_u32 *d = ptx_out(w, &i->operands[0]);                                                                      \
        SOURCE(S, a, 1);                                                                                               \
        SOURCE(S, b, 2);                                                                                               \
        uint32_t out = 0;                                                                                              \
        for (unsigned l = 0; l < PTX_LANES; l++) {                                                                     \
            T x = (T)a[l], y = (T)b[l];                                                                                \
            out |= (uint32_t)(__VA_ARGS__) << l;                                                                       \
        }                                                                                                              \
        *d = (*d & ~mask) | (out & mask);                                                                              \
        DEFINE(KNOWN(1) & KNOWN(2));                                                                                   \
        return PTX_NEXT;                                                                                               \
    }
#define COMPARE_ALL(S, T, suffix)                                                                                      \
    COMPARE(eq_##suffix, S, T, x == y)                                                                                 \
    COMPARE(ne_##suffix, S, T, x != y)                                                                                 \
    COMPARE(lt_##suffix, S, T, x < y)                                                                                  \
    COMPARE(le_##suffix, S, T, x <= y)                                                                                 \
    COMPARE(gt_##suffix, S, T, x > y)                                                                                  \
    COMPARE(ge_##suffix, S, T, x >= y)
COMPARE_ALL(ptx_u32, u16, u16)
COMPARE_ALL(ptx_u32, s16, s16)
COMPARE_ALL(ptx_u32, u32, u32)
COMPARE_ALL(ptx_u32, s32, s32)
COMPARE_ALL(ptx_u64, u64, u64)
COMPARE_ALL(ptx_u64, s64, s64)
COMPARE(eq_f32, ptx_f32, float, x == y)
COMPARE(ne_f32, ptx_f32, float, x < y || x > y) /* ordered: not true of a NaN */
COMPARE(lt_f32, ptx_f32, float, x < y)
COMPARE(le_f32, ptx_f32, float, x <= y)
COMPARE(gt_f32, ptx_f32, float, x > y)
COMPARE(ge_f32, ptx_f32, float, x >= y)
COMPARE(equ_f32, ptx_f32, float, !(x < y || x > y))
COMPARE(neu_f32, ptx_f32, float, x != y)
COMPARE(ltu_f32, ptx_f32, float, !(x >= y))
COMPARE(leu_f32, ptx_f32, float, !(x > y))
COMPARE(gtu_f32, ptx_f32, float, !(x <= y))
COMPARE(geu_f32, ptx_f32, float, !(x < y))
COMPARE(num_f32, ptx_f32, float, !isnan(x) && !isnan(y))
COMPARE(nan_f32, ptx_f32, float, isnan(x) || isnan(y))

#define SELECT(name, S)                                                                                                \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        TARGET(S);                                                                                                     \
        SOURCE(S, a, 1);                                                                                               \
        SOURCE(S, b, 2);                                                                                               \
        uint32_t first = ptx_predicate(w, &i->operands[3]);                                                            \
        PTX_EACH(mask, l, d[l] = first >> l & 1 ? a[l] : b[l];);                                                       \
        DEFINE(((KNOWN(1) & first) | (KNOWN(2) & ~first)) & KNOWN(3));                                                 \
        return PTX_NEXT;                                                                                               \
    }
SELECT(selp_32, ptx_u32)
SELECT(selp_64, ptx_u64)

/* If one operand decides the result whatever the other is, the result is known. */
#define LOGIC(name, result, certain)                                                                                   \
    static ptx_next name(ptx_warp *w, const ptx_insn *i, uint32_t mask) {                                              \
        ptx_u32 *d = ptx_out(w, &i->operands[0]);                                                                      \
        uint32_t x = ptx_predicate(w, &i->operands[1]), y = ptx_predicate(w, &i->operands[2]);                         \
        uint32_t kx = KNOWN(1), ky = KNOWN(2);                                                                         \
        *d = (*d & ~mask) | ((result) & mask);                                                                         \
        DEFINE((kx & ky) | (certain));                                                                                 \
        return PTX_NEXT;                                                                                               \
    }
LOGIC(and_pred, x & y, (kx & ~x) | (ky & ~y))
LOGIC(or_pred, x | y, (kx & x) | (ky & y))
LOGIC(xor_pred, x ^ y, 0)
static ptx_next mov_pred(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_u32 *d = ptx_out(w, &i->operands[0]);
    *d = (*d & ~mask) | (ptx_predicate(w, &i->operands[1]) & mask);
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}
static ptx_next not_pred(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_u32 *d = ptx_out(w, &i->operands[0]);
    *d = (*d & ~mask) | (~ptx_predicate(w, &i->operands[1]) & mask);
    DEFINE(KNOWN(1));
    return PTX_NEXT;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define BY_TYPE(op, f)                                                                                                 \
    {op ".u32", "r<rr", f##_u32}, {op ".s32", "r<rr", f##_s32}, {op ".u64", "d<dd", f##_u64},                          \
        {op ".s64", "d<dd", f##_s64}
#define COMPARISONS(op, f)                                                                                             \
    {"setp." op ".u16", "p<hh", f##_u16}, {"setp." op ".s16", "p<hh", f##_s16}, {"setp." op ".u32", "p<rr", f##_u32},  \
        {"setp." op ".s32", "p<rr", f##_s32}, {"setp." op ".u64", "p<dd", f##_u64}, {"setp." op ".s64", "p<dd", f##_s64}
#define COMPARISONS_F(op) {"setp." #op ".f32", "p<rr", op##_f32}

const ptx_form ptx_alu_forms[] = {
    {"add.u32", "r<rr", add_32}, {"add.s32", "r<rr", add_32}, {"add.u64", "d<dd", add_64},
    {"add.s64", "d<dd", add_64}, {"sub.u32", "r<rr", sub_32}, {"sub.s32", "r<rr", sub_32},
    {"sub.u64", "d<dd", sub_64}, {"sub.s64", "d<dd", sub_64}, {"mul.lo.u32", "r<rr", mul_32},
    {"mul.lo.s32", "r<rr", mul_32}, {"mul.lo.u64", "d<dd", mul_64}, {"mul.lo.s64", "d<dd", mul_64},
    BY_TYPE("mul.hi", mul_hi), {"mul.wide.u16", "r<hh", mul_wide_u16}, {"mul.wide.s16", "r<hh", mul_wide_s16},
    {"mul.wide.u32", "d<rr", mul_wide_u32}, {"mul.wide.s32", "d<rr", mul_wide_s32}, {"mad.lo.u32", "r<rrr", mad_32},
    {"mad.lo.s32", "r<rrr", mad_32}, {"mad.lo.u64", "d<ddd", mad_64}, {"mad.lo.s64", "d<ddd", mad_64},
    {"mad.wide.u32", "d<rrd", mad_wide_u32}, {"mad.wide.s32", "d<rrd", mad_wide_s32}, BY_TYPE("div", div),
    BY_TYPE("rem", rem), BY_TYPE("min", min), BY_TYPE("max", max), {"abs.s32", "r<r", abs_s32},
    {"abs.s64", "d<d", abs_s64}, {"neg.s32", "r<r", neg_32}, {"neg.s64", "d<d", neg_64}, {"not.b32", "r<r", not_32},
    {"not.b64", "d<d", not_64}, {"not.b16", "h<h", not_16}, {"and.b32", "r<rr", and_32}, {"and.b64", "d<dd", and_64},
    {"and.b16", "h<hh", and_32}, {"or.b32", "r<rr", or_32}, {"or.b64", "d<dd", or_64}, {"or.b16", "h<hh", or_32},
    {"xor.b32", "r<rr", xor_32}, {"xor.b64", "d<dd", xor_64}, {"xor.b16", "h<hh", xor_32},
    {"shl.b32", "r<rr", shl_32}, {"shl.b64", "d<dr", shl_64}, {"shr.u32", "r<rr", shr_u32},
    {"shr.b32", "r<rr", shr_u32}, {"shr.s32", "r<rr", shr_s32}, {"shr.u64", "d<dr", shr_u64},
    {"shr.b64", "d<dr", shr_u64}, {"shr.s64", "d<dr", shr_s64}, {"shf.l.wrap.b32", "r<rrr", shf_l_wrap},
    {"shf.r.wrap.b32", "r<rrr", shf_r_wrap}, {"shf.l.clamp.b32", "r<rrr", shf_l_clamp},
    {"shf.r.clamp.b32", "r<rrr", shf_r_clamp}, {"bfi.b32", "r<rrrr", bfi_32}, {"bfi.b64", "d<ddrr", bfi_64},
    {"bfe.u32", "r<rrr", bfe_u32},
    {"bfe.s32", "r<rrr", bfe_s32}, {"popc.b32", "r<r", popc_32}, {"clz.b32", "r<r", clz_32},
    {"clz.b64", "r<d", clz_64},
    {"brev.b32", "r<r", brev_32}, {"lop3.b32", "r<rrrc", lop3_b32}, {"prmt.b32", "r<rrr", prmt_b32},
    {"add.f32", "r<rr", add_f32}, {"add.rn.f32", "r<rr", add_f32}, {"sub.f32", "r<rr", sub_f32},
    {"sub.rn.f32", "r<rr", sub_f32}, {"mul.f32", "r<rr", mul_f32}, {"mul.rn.f32", "r<rr", mul_f32},
    {"div.rn.f32", "r<rr", div_f32}, {"fma.rn.f32", "r<rrr", fma_f32}, {"fma.rm.f32", "r<rrr", fma_rm_f32},
    {"add.ftz.f32", "r<rr", add_ftz_f32}, {"mul.ftz.f32", "r<rr", mul_ftz_f32},
    {"fma.rn.ftz.f32", "r<rrr", fma_ftz_f32}, {"neg.f32", "r<r", neg_f32}, {"abs.f32", "r<r", abs_f32},
    {"copysign.f32", "r<rr", copysign_f32}, {"sqrt.rn.f32", "r<r", sqrt_f32}, {"cvt.sat.f32.f32", "r<r", sat_f32},
    {"min.f32", "r<rr", min_f32}, {"max.f32", "r<rr", max_f32}, {"ex2.approx.ftz.f32", "r<r", ex2_ftz},
    {"ex2.approx.f32", "r<r", ex2}, {"lg2.approx.ftz.f32", "r<r", lg2_ftz}, {"lg2.approx.f32", "r<r", lg2},
    {"rcp.approx.ftz.f32", "r<r", rcp_ftz}, {"sqrt.approx.ftz.f32", "r<r", sqrt_ftz},
    {"rsqrt.approx.ftz.f32", "r<r", rsqrt_ftz}, {"tanh.approx.f32", "r<r", tanh_approx},
    {"sub.ftz.f32", "r<rr", sub_ftz_f32}, {"rcp.rn.f32", "r<r", rcp},
    COMPARISONS("eq", eq), COMPARISONS("ne", ne), COMPARISONS("lt", lt), COMPARISONS("le", le), COMPARISONS("gt", gt),
    COMPARISONS("ge", ge), {"setp.eq.b16", "p<hh", eq_u16}, {"setp.ne.b16", "p<hh", ne_u16},
    {"setp.eq.b32", "p<rr", eq_u32}, {"setp.ne.b32", "p<rr", ne_u32}, {"setp.eq.b64", "p<dd", eq_u64},
    {"setp.ne.b64", "p<dd", ne_u64}, COMPARISONS_F(eq), COMPARISONS_F(ne), COMPARISONS_F(lt), COMPARISONS_F(le),
    COMPARISONS_F(gt), COMPARISONS_F(ge), COMPARISONS_F(equ), COMPARISONS_F(neu), COMPARISONS_F(ltu),
    COMPARISONS_F(leu), COMPARISONS_F(gtu), COMPARISONS_F(geu), COMPARISONS_F(num), COMPARISONS_F(nan),
    {"selp.b32", "r<rrp", selp_32}, {"selp.u32", "r<rrp", selp_32}, {"selp.s32", "r<rrp", selp_32},
    {"selp.f32", "r<rrp", selp_32}, {"selp.b64", "d<ddp", selp_64}, {"selp.u64", "d<ddp", selp_64},
    {"selp.s64", "d<ddp", selp_64}, {"selp.b16", "h<hhp", selp_32}, {"selp.u16", "h<hhp", selp_32},
    {"add.s16", "h<hh", add_16}, {"add.u16", "h<hh", add_16}, {"sub.s16", "h<hh", sub_16},
    {"sub.u16", "h<hh", sub_16}, {"mul.lo.s16", "h<hh", mul_16}, {"mul.lo.u16", "h<hh", mul_16},
    {"min.u16", "h<hh", min_u16}, {"max.u16", "h<hh", max_u16}, {"min.s16", "h<hh", min_s16},
    {"max.s16", "h<hh", max_s16}, {"div.u16", "h<hh", div_u16}, {"div.s16", "h<hh", div_s16},
    {"rem.u16", "h<hh", rem_u16}, {"rem.s16", "h<hh", rem_s16}, {"shl.b16", "h<hr", shl_16},
    {"shr.u16", "h<hr", shr_u16}, {"shr.b16", "h<hr", shr_u16}, {"shr.s16", "h<hr", shr_s16},
    {"neg.s16", "h<h", neg_16}, {"abs.s16", "h<h", abs_s16}, {"and.pred", "p<pp", and_pred},
    {"or.pred", "p<pp", or_pred}, {"xor.pred", "p<pp", xor_pred}, {"not.pred", "p<p", not_pred},
    {"mov.pred", "p<p", mov_pred},
};
const size_t ptx_alu_form_count = sizeof ptx_alu_forms / sizeof *ptx_alu_forms;
