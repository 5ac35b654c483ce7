FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    const fk_i64 v1 = (fk_i64)((fk_i64)v0 * (fk_i64)v0);
    const fk_i32 v3 = (fk_i32)((fk_u64)v1 % (fk_u64)7);
    const fk_i32 v4 = (fk_i32)q;
    const fk_i32 v6 = (fk_i32)((fk_u32)v4 / (fk_u32)3);
    const int v7 = v3 != v6;
    const int v8 = v0 <= v4;
    const int v9 = v7 & v8;
    return v9;
}
#define FK_KEY_SPANS 0
#define FK_QUERY_SPANS 1
FK_DEVICE fk_u32 fk_queries(const fk_env *e, fk_i64 q, fk_i64 k, fk_i32 limit, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    const fk_i64 v1 = (fk_i64)((fk_i64)v0 * (fk_i64)v0);
    const fk_i32 v3 = (fk_i32)((fk_u64)v1 % (fk_u64)7);
    fk_u32 bits = 0;
    const fk_i32 lo0_0 = (fk_i32)0 + 3 * ((fk_i32)1 + (fk_i32)v3);
    const fk_i32 lo0_1 = (fk_i32)0 + (fk_i32)v0;
    const fk_i32 lo0_to1 = lo0_0 > lo0_1 ? lo0_0 : lo0_1;
    bits |= fk_below32(limit) & ~fk_below32(lo0_to1 - (fk_i32)q);
    const fk_i32 lo1_0 = (fk_i32)0 + (fk_i32)v0;
    const fk_i32 hi1_0 = (fk_i32)0 + 3 * ((fk_i32)0 + (fk_i32)v3);
    bits |= fk_below32(fk_less32(hi1_0 - (fk_i32)q, limit)) & ~fk_below32(lo1_0 - (fk_i32)q);
    return bits;
}
