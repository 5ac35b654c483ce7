FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    const fk_i32 v1 = (fk_i32)q;
    const int v2 = v0 <= v1;
    return v2;
}
