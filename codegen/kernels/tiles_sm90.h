/* tiles_sm90.h: tiles in shared memory as the copy engine leaves them and products take them.
 *
 * A tile is `rows` rows (a multiple of 8) of FK_HEAD_DIM numbers, as boxes of 64 columns behind each other: row r of box b
 * is the 128 bytes at (b * rows + r) * 128, of which chunk c of 16 bytes lies at c ^ r % 8. It begins at a multiple of 1024.
 * Source: the PTX manual's matrix descriptors, 128-byte swizzle.
 */
#ifndef FK_TILES_SM90_H
#define FK_TILES_SM90_H

enum { FK_TILE_ROW = 128, FK_BOXES = FK_HEAD_DIM / FK_BOX };

/* The product of the type with n columns, n a literal or a macro of one: fk_product_64_bf16 is FK_PRODUCT(fk_product_, 64). */
#define FK_JOIN(a, b, c) a##b##c
#define FK_JOIN_VALUES(a, b, c) FK_JOIN(a, b, c)
#if FK_BF16
#define FK_PRODUCT(kind, n) FK_JOIN_VALUES(kind, n, _bf16)
#else
#define FK_PRODUCT(kind, n) FK_JOIN_VALUES(kind, n, _fp16)
#endif

/* What a product takes: where it begins, `offset` bytes behind a tile's beginning, `lead` bytes from one 64 numbers of a row
 * to the next, 1024 from eight rows to the next, 128-byte swizzle. The low word is one sum, so that neighbours differ by a
 * constant. */
FK_DEVICE fk_u64 fk_operand(fk_u32 tile, fk_u32 offset, fk_u32 lead) {
    fk_u32 low = (tile >> 4 | lead >> 4 << 16) + (offset >> 4);
    return (fk_u64)((fk_u32)1 << 30 | 1024 >> 4) << 32 | low;
}
/* Rows from `row` on (a multiple of 8), numbers 16 step .. 16 step + 15 of each: the depth side by side. */
FK_DEVICE fk_u64 fk_by_rows(fk_u32 tile, fk_u32 rows, fk_u32 row, fk_u32 step) {
    return fk_operand(tile + row * FK_TILE_ROW, step / 4 * rows * FK_TILE_ROW + step % 4 * 32, 16);
}
/* Rows 16 step .. 16 step + 15, columns from 64 box on: the depth is the rows. */
FK_DEVICE fk_u64 fk_by_columns(fk_u32 tile, fk_u32 rows, fk_u32 step, fk_u32 box) {
    return fk_operand(tile, (box * rows + step * 16) * FK_TILE_ROW, rows * FK_TILE_ROW);
}

/* Asks the copy engine for `count` rows (a multiple of FK_BOX) of a head, from `row` on. Bytes: count * FK_HEAD_DIM * 2,
 * which the barrier must be told to expect. One thread. */
FK_DEVICE void fk_tile_fetch(fk_u32 tile, fk_u32 rows, fk_u32 count, const fk_map *map, fk_u32 head, fk_u32 row,
                             fk_u32 barrier) {
    FK_ROLL
    for (fk_u32 box = 0; box < FK_BOXES; box++)
        FK_ROLL
        for (fk_u32 r = 0; r < count; r += FK_BOX)
            fk_tensor_copy(tile + (box * rows + r) * FK_TILE_ROW, map, box * FK_BOX, head, row + r, barrier);
}
/* Rows `first` and on, by `threads` threads, this one `thread` of them, where only `there` of the rows may be read: the others
 * become 0. Then each waits for its copies (fk_copy_wait), and fences (fk_fence_async), before it says that they are there. */
FK_DEVICE void fk_tile_gather_from(fk_u32 tile, fk_u32 rows, fk_u32 first, fk_u32 thread, fk_u32 threads, fk_u64 from,
                                   fk_u64 stride, fk_u32 there) {
    FK_ROLL
    for (fk_u32 i = first * FK_CHUNKS + thread; i < rows * FK_CHUNKS; i += threads) {
        fk_u32 row = i / FK_CHUNKS, chunk = i % FK_CHUNKS;
        fk_u32 to = tile + (chunk / 8 * rows + row) * FK_TILE_ROW + (chunk % 8 ^ row % 8) * 16;
        fk_copy(to, row < there ? from + row * stride + chunk * 16 : from, row < there ? 16 : 0);
    }
}
FK_DEVICE void fk_tile_gather(fk_u32 tile, fk_u32 rows, fk_u32 thread, fk_u32 threads, fk_u64 from, fk_u64 stride,
                              fk_u32 there) {
    fk_tile_gather_from(tile, rows, 0, thread, threads, from, stride, there);
}
#endif
