FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    const fk_i32 v1 = (fk_i32)q;
    const int v2 = v0 <= v1;
    return v2;
}
#define FK_KEY_SPANS 1
FK_DEVICE fk_u32 fk_keys(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v1 = (fk_i32)q;
    fk_u32 bits = 0;
    const fk_i32 hi0_0 = (fk_i32)1 + (fk_i32)v1;
    bits |= fk_below32(fk_less32(hi0_0 - (fk_i32)k, limit));
    return bits;
}
#define FK_QUERY_SPANS 1
FK_DEVICE fk_u32 fk_queries(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    fk_u32 bits = 0;
    const fk_i32 lo0_0 = (fk_i32)0 + (fk_i32)v0;
    bits |= fk_below32(limit) & ~fk_below32(lo0_0 - (fk_i32)q);
    return bits;
}
FK_DEVICE float fk_score(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    const fk_i32 v1 = (fk_i32)q;
    const float v2 = s;
    const fk_i32 v3 = v0 - v1;
    const float v4 = -0x1.000000p3f;
    const fk_i32 v5 = (fk_i32)h;
    const fk_i32 v7 = v5 + 1;
    const float v8 = (float)v7;
    const float v9 = fk_rounded_product(v4, v8);
    const float v10 = 0x1.000000p-2f;
    const float v11 = fk_rounded_product(v9, v10);
    const float v12 = exp2f(v11);
    const float v13 = (float)v3;
    const float v15 = fk_fma(v12, v13, v2);
    return v15;
}
FK_DEVICE float fk_slope(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const float v0 = 0x1.000000p0f;
    return v0;
}
