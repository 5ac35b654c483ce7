FK_DEVICE int fk_allow(const fk_env *e, fk_i64 q, fk_i64 k, int h) {
    (void)e, (void)q, (void)k, (void)h;
    const fk_i32 v1 = (fk_i32)q;
    const fk_i32 v2 = (fk_i32)((fk_i32)v1 & 31);
    const fk_i32 v4 = (fk_i32)(v2 > 3 ? v2 : 3);
    const fk_i32 v7 = (fk_i32)(v4 < 28 ? v4 : 28);
    const fk_i32 v8 = (fk_i32)k;
    const fk_i32 v9 = (fk_i32)((fk_i32)v8 & 31);
    const fk_i32 v10 = v7 - v9;
    const fk_i32 v11 = v10 < 0 ? -v10 : v10;
    const int v12 = v11 <= 3;
    const fk_i32 v13 = (fk_i32)((fk_i32)v1 >> 5);
    const fk_i32 v14 = (fk_i32)e->sequence.n;
    const fk_i32 v15 = (fk_i32)((fk_i32)v14 & 31);
    const int v17 = v15 == 0;
    const fk_i32 v18 = v17 ? 32 : 0;
    const fk_i32 v19 = (fk_i32)fk_div32(v14, v18);
    const fk_i32 v20 = (fk_i32)(3 > v13 ? 3 : v13);
    const fk_i32 v21 = v19 - 1;
    const fk_i32 v22 = v21 - 3;
    const fk_i32 v23 = (fk_i32)(v20 < v22 ? v20 : v22);
    const fk_i32 v24 = (fk_i32)((fk_i32)v8 >> 5);
    const fk_i32 v25 = v23 - v24;
    const fk_i32 v26 = v25 < 0 ? -v25 : v25;
    const int v27 = v26 <= 3;
    const int v28 = v12 & v27;
    return v28;
}
#define FK_KEY_SPANS 0
#define FK_QUERY_SPANS 0
