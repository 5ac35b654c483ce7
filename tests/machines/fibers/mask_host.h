/* mask_host.h: fk_allow, fk_score and fk_slope on fibers: instead of text printed from the plan, they ask the
 * interpreter of mask code. It comes after prim_host.h. */
#ifndef MASK_HOST_H
#define MASK_HOST_H
#include "tests/machines/fibers/fibers.h"

FK_DEVICE int fk_allow(const fk_env *env, fk_i64 q, fk_i64 k, fk_i64 h) { return fibers_allow(env, q, k, h); }
#if FK_HAS_SCORE
FK_DEVICE float fk_score(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    return fibers_score(env, s, q, k, h);
}
FK_DEVICE float fk_slope(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    return fibers_slope(env, s, q, k, h);
}
#endif
#endif
