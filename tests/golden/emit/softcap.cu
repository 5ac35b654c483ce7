FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const int v0 = 1;
    return v0;
}
#define FK_KEY_SPANS 1
FK_DEVICE fk_u32 fk_keys(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h) {
    (void)e, (void)q, (void)k, (void)h;
    fk_u32 bits = 0;
    bits |= fk_below32(limit);
    return bits;
}
#define FK_QUERY_SPANS 1
FK_DEVICE fk_u32 fk_queries(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h) {
    (void)e, (void)q, (void)k, (void)h;
    fk_u32 bits = 0;
    bits |= fk_below32(limit);
    return bits;
}
FK_DEVICE float fk_score(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const float v0 = 0x1.e00000p4f;
    const float v1 = s;
    const float v2 = fk_rounded_product(v1, 0x1.111112p-5f);
    const float v3 = fk_tanh(v2);
    const float v4 = fk_rounded_product(v0, v3);
    return v4;
}
FK_DEVICE float fk_slope(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const float v0 = 0x1.e00000p4f;
    const float v1 = s;
    const float v2 = fk_rounded_product(v1, 0x1.111112p-5f);
    const float v3 = fk_tanh(v2);
    const float v5 = 0x1.000000p0f;
    const float v6 = fk_fma(-v3, v3, v5);
    return v6;
}
