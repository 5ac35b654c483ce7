/* recurrent_kernels.h: the kernels of layers that recur (runtime/plan/recurrent.h): rows of halos on their way, and
 * summaries of stretches combined. They are a source of their own, which no plan changes, so each architecture compiles
 * it once.
 *
 * Example: two stretches follow each other. The first turns a state h into A h + b, the second what comes of that into
 * A' .. + b'. Together they are A' A, A' b + b'. fk_scan_scaled computes that where A is a number or a diagonal for
 * each head, and fk_scan_matrix where it is a matrix.
 *
 * Requires: abi.h and the primitives; nothing else.
 * Grid:     any number of CTAs of FK_SUPPORT_THREADS. No two threads write the same number, and the order of every sum
 *           is fixed. So a launch gives the same bits on any grid, and those of the host's loops: products and sums are
 *           rounded one by one.
 * Cost:     rows and scaled states are read once and written once. A product of matrices reads a tile for each 64 x 64
 *           numbers of its result.
 */

/* --- rows --------------------------------------------------------------------------------------------------------- */

/* The last run that begins at or before a row. */
FK_DEVICE const fk_rows_run *fk_rows_run_of(const fk_rows_launch *p, fk_u64 row) {
    const fk_rows_run *runs = (const fk_rows_run *)p->runs;
    fk_u32 low = 0, high = p->run_count;
    while (high - low > 1) {
        fk_u32 middle = low + (high - low) / 2;
        if (runs[middle].at <= row) low = middle;
        else high = middle;
    }
    return runs + low;
}

/* A piece of a row, at both ends: at most FK_ROW_PIECE bytes, which a warp does. */
typedef struct fk_rows_piece {
    fk_u64 to, from;
    fk_u32 bytes;
} fk_rows_piece;
FK_DEVICE fk_rows_piece fk_rows_piece_of(const fk_rows_launch *p, fk_u64 i) {
    const fk_u64 row = i / p->pieces, first = i % p->pieces * FK_ROW_PIECE;
    const fk_rows_run *run = fk_rows_run_of(p, row);
    const fk_u64 within = row - run->at, to = p->back ? run->from : run->to, from = p->back ? run->to : run->from;
    fk_rows_piece x;
    x.to = p->to + (to + within) * p->row + first;
    x.from = p->from + (from + within) * p->row + first;
    x.bytes = p->row - first < FK_ROW_PIECE ? (fk_u32)(p->row - first) : FK_ROW_PIECE;
    return x;
}

/* Copies rows, or writes zeros if there is no `from`. */
FK_KERNEL(fk_rows_move, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_rows_launch launch) {
    const fk_rows_launch *p = &launch;
    const fk_u32 warps = FK_SUPPORT_THREADS / 32, lane = fk_thread() % 32;
    const fk_u64 step = (fk_u64)fk_ctas() * warps;
    for (fk_u64 i = (fk_u64)fk_cta() * warps + fk_thread() / 32; i < p->rows * p->pieces; i += step) {
        const fk_rows_piece x = fk_rows_piece_of(p, i); // cost: step
        for (fk_u32 at = lane * p->width; at < x.bytes; at += 32 * p->width) {
            if (p->width == 16) {
                fk_u32 bits[4] = {0, 0, 0, 0};
                if (p->from) fk_load_bits4(bits, x.from + at);
                fk_store_bits4(x.to + at, bits);
            } else if (p->width == 4) fk_store_bits(x.to + at, p->from ? fk_load_bits(x.from + at) : 0);
            else fk_store_byte(x.to + at, p->from ? fk_load_byte(x.from + at) : 0);
        }
    }
}

/* Two numbers of 16 bits each, added in float and rounded. */
FK_DEVICE fk_u32 fk_rows_sum(fk_u32 type, fk_u32 a, fk_u32 b) {
    float x[2], y[2];
    if (type == FK_ROWS_BF16) {
        fk_unpack_bf16(x, a);
        fk_unpack_bf16(y, b);
        return fk_pack_bf16(x[0] + y[0], x[1] + y[1]);
    }
    fk_unpack_fp16(x, a);
    fk_unpack_fp16(y, b);
    return fk_pack_fp16(x[0] + y[0], x[1] + y[1]);
}

/* to += from, in float, rounded to the type. No row is the end of two runs of a launch. */
FK_KERNEL(fk_rows_add, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_rows_launch launch) {
    const fk_rows_launch *p = &launch;
    const fk_u32 warps = FK_SUPPORT_THREADS / 32, lane = fk_thread() % 32;
    const fk_u64 step = (fk_u64)fk_ctas() * warps;
    for (fk_u64 i = (fk_u64)fk_cta() * warps + fk_thread() / 32; i < p->rows * p->pieces; i += step) {
        const fk_rows_piece x = fk_rows_piece_of(p, i); // cost: step
        for (fk_u32 at = lane * p->width; at < x.bytes; at += 32 * p->width) {
            if (p->type == FK_ROWS_FP32 && p->width == 16) {
                float a[4], b[4];
                fk_load4(a, x.to + at);
                fk_load4(b, x.from + at);
                FK_UNROLL
                for (fk_u32 j = 0; j < 4; j++) a[j] += b[j];
                fk_store4(x.to + at, a);
            } else if (p->type == FK_ROWS_FP32) fk_store(x.to + at, fk_load(x.to + at) + fk_load(x.from + at));
            else if (p->width == 16) {
                fk_u32 a[4], b[4];
                fk_load_bits4(a, x.to + at);
                fk_load_bits4(b, x.from + at);
                FK_UNROLL
                for (fk_u32 j = 0; j < 4; j++) a[j] = fk_rows_sum(p->type, a[j], b[j]);
                fk_store_bits4(x.to + at, a);
            } else if (p->width == 4) {
                fk_store_bits(x.to + at, fk_rows_sum(p->type, fk_load_bits(x.to + at), fk_load_bits(x.from + at)));
            } else { /* a single number: it may share its word with another row's */
                const fk_u32 a = fk_load_byte(x.to + at) | fk_load_byte(x.to + at + 1) << 8;
                const fk_u32 b = fk_load_byte(x.from + at) | fk_load_byte(x.from + at + 1) << 8;
                const fk_u32 sum = fk_rows_sum(p->type, a, b);
                fk_store_byte(x.to + at, sum);
                fk_store_byte(x.to + at + 1, sum >> 8);
            }
        }
    }
}

/* --- scans -------------------------------------------------------------------------------------------------------- */

/* to = then.A first + then.b for each row of each head, one warp a row. A has a number for each head, or for each row
 * of it. If the result is whole, also to.A = then.A first.A. */
FK_KERNEL(fk_scan_scaled, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_scan_launch launch) {
    const fk_scan_launch *p = &launch;
    const fk_u64 rows = (fk_u64)p->heads * p->rows, each = p->decay == FK_DECAY_SCALAR ? p->rows : 1;
    const fk_u64 warps = (fk_u64)fk_ctas() * (FK_SUPPORT_THREADS / 32), lane = fk_thread() % 32;
    for (fk_u64 i = (fk_u64)fk_cta() * (FK_SUPPORT_THREADS / 32) + fk_thread() / 32; i < rows; i += warps) {
        const float factor = fk_load(p->then_decay + i / each * 4); // cost: step
        const fk_u64 row = i * p->columns * 4;
        for (fk_u64 c = lane * p->width; c < (fk_u64)p->columns * 4; c += 32 * p->width) {
            if (p->width == 16) {
                float x[4], b[4];
                fk_load4(x, p->first + row + c);
                fk_load4(b, p->then + row + c);
                FK_UNROLL
                for (fk_u32 j = 0; j < 4; j++) x[j] = fk_rounded_sum(fk_rounded_product(factor, x[j]), b[j]);
                fk_store4(p->to + row + c, x);
            } else
                fk_store(p->to + row + c, fk_rounded_sum(fk_rounded_product(factor, fk_load(p->first + row + c)),
                                                         fk_load(p->then + row + c)));
        }
    }
    if (!p->to_decay) return;
    for (fk_u64 i = (fk_u64)fk_cta() * FK_SUPPORT_THREADS + fk_thread(); i < rows / each; i += warps * 32)
        fk_store(p->to_decay + i * 4,
                 fk_rounded_product(fk_load(p->then_decay + i * 4), fk_load(p->first_decay + i * 4))); // cost: step
}

/* A product of one head: to [m][n] = left [m][m] right [m][n] + add [m][n]; add 0: nothing is added. */
typedef struct fk_scan_product {
    fk_u64 to, left, right, add;
    fk_u32 m, n, row, column; /* row, column: where the tile begins */
} fk_scan_product;

/* Rows [row, row + FK_TILE) of left, columns [k, k + FK_DEPTH): in shared memory [FK_DEPTH][FK_SCAN_STRIDE], turned, so
 * that a thread reads its rows side by side. */
FK_DEVICE void fk_scan_load_left(const fk_scan_product *x, fk_u32 tile, fk_u32 k) {
    const fk_u32 row = fk_thread() / 4, column = fk_thread() % 4 * 4;
    FK_UNROLL
    for (fk_u32 j = 0; j < 4; j++) {
        const int there = x->row + row < x->m && k + column + j < x->m;
        const fk_u64 from = x->left + ((fk_u64)(x->row + row) * x->m + k + column + j) * 4;
        fk_store_shared(tile + ((column + j) * FK_SCAN_STRIDE + row) * 4, there ? fk_load(from) : 0);
    }
}
/* Rows [k, k + FK_DEPTH) of right, columns [column, column + FK_TILE). */
FK_DEVICE void fk_scan_load_right(const fk_scan_product *x, fk_u32 tile, fk_u32 k) {
    const fk_u32 row = fk_thread() / 16, column = fk_thread() % 16;
    FK_UNROLL
    for (fk_u32 j = 0; j < 4; j++) {
        const fk_u32 at = column + 16 * j;
        const int there = k + row < x->m && x->column + at < x->n;
        const fk_u64 from = x->right + ((fk_u64)(k + row) * x->n + x->column + at) * 4;
        fk_store_shared(tile + (row * FK_SCAN_STRIDE + at) * 4, there ? fk_load(from) : 0);
    }
}

/* One tile of a product, by a whole CTA. A thread has 4 x 4 numbers of it. Each begins with what is added, and then
 * come the products in the order of k. */
FK_DEVICE void fk_scan_tile(const fk_scan_product *x) {
    const fk_u32 left = fk_shared(), right = left + FK_SCAN_DEPTH * FK_SCAN_STRIDE * 4;
    const fk_u32 row = fk_thread() / 16 * 4, column = fk_thread() % 16 * 4;
    float sum[4][4];
    FK_UNROLL
    for (fk_u32 i = 0; i < 4; i++) FK_UNROLL
    for (fk_u32 j = 0; j < 4; j++) {
        const fk_u32 r = x->row + row + i, c = x->column + column + j;
        const int there = x->add && r < x->m && c < x->n;
        sum[i][j] = there ? fk_load(x->add + ((fk_u64)r * x->n + c) * 4) : 0;
    }
    for (fk_u32 k = 0; k < x->m; k += FK_SCAN_DEPTH) {
        const fk_u32 depth = x->m - k < FK_SCAN_DEPTH ? x->m - k : FK_SCAN_DEPTH;
        fk_sync();
        fk_scan_load_left(x, left, k);
        fk_scan_load_right(x, right, k);
        fk_sync();
        for (fk_u32 d = 0; d < depth; d++) { /* not the zeros behind the matrices: they would turn -0 into 0 */
            float a[4], b[4];
            fk_load_shared2(a, left + (d * FK_SCAN_STRIDE + row) * 4); // cost: step
            fk_load_shared2(a + 2, left + (d * FK_SCAN_STRIDE + row + 2) * 4);
            fk_load_shared2(b, right + (d * FK_SCAN_STRIDE + column) * 4);
            fk_load_shared2(b + 2, right + (d * FK_SCAN_STRIDE + column + 2) * 4);
            FK_UNROLL
            for (fk_u32 i = 0; i < 4; i++) FK_UNROLL
            for (fk_u32 j = 0; j < 4; j++) sum[i][j] = fk_rounded_sum(sum[i][j], fk_rounded_product(a[i], b[j]));
        }
    }
    FK_UNROLL
    for (fk_u32 i = 0; i < 4; i++) FK_UNROLL
    for (fk_u32 j = 0; j < 4; j++) {
        const fk_u32 r = x->row + row + i, c = x->column + column + j;
        if (r < x->m && c < x->n) fk_store(x->to + ((fk_u64)r * x->n + c) * 4, sum[i][j]);
    }
}

/* to = then.A first + then.b for each head, where A is a matrix; and if the result is whole, to.A = then.A first.A. A
 * CTA does a tile of FK_SCAN_TILE x FK_SCAN_TILE numbers at a time: for each head those of the state, then those of A.
 * `to` and to_decay are neither operand. */
FK_KERNEL(fk_scan_matrix, FK_SUPPORT_THREADS, 1)(FK_PARAMETER fk_scan_launch launch) {
    const fk_scan_launch *p = &launch;
    const fk_u32 down = (p->rows + FK_SCAN_TILE - 1) / FK_SCAN_TILE;
    const fk_u32 across = (p->columns + FK_SCAN_TILE - 1) / FK_SCAN_TILE;
    const fk_u64 each = (fk_u64)down * (across + (p->to_decay ? down : 0));
    for (fk_u64 i = fk_cta(); i < each * p->heads; i += fk_ctas()) {
        const fk_u64 head = i / each, within = i % each, of_decay = within >= (fk_u64)down * across;
        const fk_u64 decay = head * p->rows * p->rows * 4, state = head * p->rows * p->columns * 4;
        const fk_u32 tile = (fk_u32)(of_decay ? within - (fk_u64)down * across : within);
        const fk_u32 wide = of_decay ? down : across;
        fk_scan_product x;
        x.to = of_decay ? p->to_decay + decay : p->to + state;
        x.left = p->then_decay + decay;
        x.right = of_decay ? p->first_decay + decay : p->first + state;
        x.add = of_decay ? 0 : p->then + state;
        x.m = p->rows;
        x.n = of_decay ? p->rows : p->columns;
        x.row = tile / wide * FK_SCAN_TILE;
        x.column = tile % wide * FK_SCAN_TILE;
        fk_scan_tile(&x);
    }
}
