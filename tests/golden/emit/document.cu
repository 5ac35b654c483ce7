FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)q;
    const fk_i32 v1 = (fk_u32)v0 < (fk_u32)e->sequence.n ? ((const fk_i16 *)e->arrays[0])[(fk_u32)v0] : 0;
    const fk_i32 v2 = (fk_i32)k;
    const fk_i32 v3 = (fk_u32)v2 < (fk_u32)e->sequence.n ? ((const fk_i16 *)e->arrays[0])[(fk_u32)v2] : 0;
    const int v4 = v1 == v3;
    return v4;
}
#define FK_KEY_SPANS 0
#define FK_QUERY_SPANS 0
