FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)q;
    const fk_i32 v1 = (fk_i32)k;
    const fk_i64 v2 = (fk_i64)((fk_i64)v0 * (fk_i64)v1);
    const fk_i32 v4 = (fk_i32)((fk_u64)v2 % (fk_u64)1000);
    const fk_i32 v6 = v0 * 3;
    const fk_i32 v7 = v6 - v1;
    const int v8 = v4 <= v7;
    return v8;
}
#define FK_KEY_SPANS 0
#define FK_QUERY_SPANS 0
