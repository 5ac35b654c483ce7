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
