/* mask_host.h: defines fk_allow, fk_score and fk_slope for kernels on fibers. On a GPU their text is printed from the
 * plan; here they call the interpreter of mask code. Include this file after prim_host.h. */
#ifndef MASK_HOST_H
#define MASK_HOST_H
#include "tests/machines/fibers/fibers.h"

FK_DEVICE int fk_allow(const fk_env *env, fk_i64 q, fk_i64 k, fk_i64 h) { return fibers_allow(env, q, k, h); }
/* Half of the kernels ask by rows, where the interpreter is asked for each pair all the same; the others by pairs. */
#define FK_KEY_SPANS FK_BF16
#define FK_QUERY_SPANS FK_BF16
#define FK_NEGATIVE_SCALE (p->scale < 0)
#define FK_ARRAYS fibers_arrays()
#define FK_BY_HEAD fibers_by_head()
#define FK_PACKED fibers_packed()
#define FK_FUSED fibers_fused()
FK_DEVICE fk_u32 fk_below32(fk_i32 x) {
    fk_u32 bits = 0;
    for (fk_i32 i = 0; i < 32; i++) bits |= (fk_u32)(i / 2 * 8 + i % 2 < x) << i;
    return bits;
}
#if FK_BF16
FK_DEVICE fk_u32 fk_keys(const fk_env *env, fk_i64 q, fk_i64 k, fk_i32 limit, int h) {
    fk_u32 bits = 0;
    for (fk_i64 i = 0; i < 32 && i / 2 * 8 + i % 2 < limit; i++)
        bits |= (fk_u32)(fibers_allow(env, q, k + i / 2 * 8 + i % 2, h) != 0) << i;
    return bits;
}
FK_DEVICE fk_u32 fk_queries(const fk_env *env, fk_i64 q, fk_i64 k, fk_i32 limit, int h) {
    fk_u32 bits = 0;
    for (fk_i64 i = 0; i < 32 && i / 2 * 8 + i % 2 < limit; i++)
        bits |= (fk_u32)(fibers_allow(env, q + i / 2 * 8 + i % 2, k, h) != 0) << i;
    return bits;
}
#endif
#if FK_HAS_SCORE
FK_DEVICE float fk_score(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    return fibers_score(env, s, q, k, h);
}
FK_DEVICE float fk_slope(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    return fibers_slope(env, s, q, k, h);
}
#define FK_READS fibers_reads()
FK_DEVICE float fk_part(const fk_env *env, fk_u32 read, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    return fibers_part(env, read, s, q, k, h);
}
FK_DEVICE fk_i64 fk_place(const fk_env *env, fk_u32 read, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    return fibers_place(env, read, s, q, k, h);
}
#endif
#endif
