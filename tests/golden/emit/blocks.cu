FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    const fk_i32 v1 = (fk_i32)q;
    const int v2 = v0 <= v1;
    const fk_i32 v3 = (fk_i32)h;
    const fk_i32 v5 = (fk_i32)((fk_i32)v1 >> 7);
    const fk_i32 v6 = (fk_i32)((fk_i32)v0 >> 7);
    const fk_i32 v7 = (fk_u32)v5 - (fk_u32)fk_query_cell32(e, 128) < (fk_u32)fk_query_cells32(e, 128) && (fk_u32)v6 < (fk_u32)fk_key_cells32(e, 128) ? ((const fk_i8 *)e->arrays[0])[((fk_u32)v3 * (fk_u32)fk_query_cells32(e, 128) + (fk_u32)((fk_u32)v5 - (fk_u32)fk_query_cell32(e, 128))) * (fk_u32)fk_key_cells32(e, 128) + (fk_u32)v6] : 0;
    const int v9 = v7 == 1;
    const int v10 = v2 & v9;
    return v10;
}
#define FK_KEY_SPANS 0
#define FK_QUERY_SPANS 0
FK_DEVICE float fk_score(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v0 = (fk_i32)k;
    const float v1 = s;
    const float v3 = ((const float *)e->arrays[1])[(fk_u32)0];
    const float v5 = ((const float *)e->arrays[2])[(fk_u32)((fk_u32)v0 < (fk_u32)e->sequence.n - 1 ? (fk_u32)v0 : (fk_u32)e->sequence.n - 1)];
    const float v6 = fk_fma(v1, v3, v5);
    return v6;
}
FK_DEVICE float fk_slope(const fk_env *e, float s, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const float v1 = ((const float *)e->arrays[1])[(fk_u32)0];
    return v1;
}
