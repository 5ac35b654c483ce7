FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v2 = (fk_i32)q;
    const fk_i32 v3 = (fk_i32)((fk_i32)v2 & 31);
    const fk_i32 v4 = (fk_i32)k;
    const fk_i32 v5 = (fk_i32)((fk_i32)v4 & 31);
    const fk_i32 v8 = (fk_i32)(v3 > 3 ? v3 : 3);
    const fk_i32 v10 = (fk_i32)(v8 < 28 ? v8 : 28);
    const fk_i32 v11 = v10 - v5;
    const fk_i32 v12 = v11 < 0 ? -v11 : v11;
    const int v13 = v12 <= 3;
    const fk_i32 v14 = (fk_i32)((fk_i32)v2 >> 5);
    const fk_i32 v15 = (fk_i32)((fk_i32)v4 >> 5);
    const fk_i32 v16 = (fk_i32)e->sequence.n;
    const fk_i32 v17 = (fk_i32)((fk_i32)v16 & 31);
    const int v18 = 0 == v17;
    const fk_i32 v19 = v18 ? 32 : 0;
    const fk_i32 v20 = (fk_i32)fk_div32(v16, v19);
    const fk_i32 v21 = (fk_i32)(3 > v14 ? 3 : v14);
    const fk_i32 v22 = v20 - 1;
    const fk_i32 v23 = v22 - 3;
    const fk_i32 v24 = (fk_i32)(v21 < v23 ? v21 : v23);
    const fk_i32 v25 = v24 - v15;
    const fk_i32 v26 = v25 < 0 ? -v25 : v25;
    const int v27 = v26 <= 3;
    const int v28 = v13 & v27;
    return v28;
}
#define FK_KEY_SPANS 0
#define FK_QUERY_SPANS 0
