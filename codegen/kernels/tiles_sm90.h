/* tiles_sm90.h: tiles in shared memory in the 128-byte swizzle, which TMA writes and WGMMA reads.
 *
 * A tile is `rows` rows (a multiple of 8) of 64 * boxes numbers. It is stored as boxes of 64 columns, one after the
 * other. Row r of box b is the 128 bytes at (b * rows + r) * 128, and its chunk c of 16 bytes lies at place c ^ r % 8.
 * A tile begins at a multiple of 1024.
 *
 * Source:   matrix descriptors in the PTX manual, 128-byte swizzle.
 */
#ifndef FK_TILES_SM90_H
#define FK_TILES_SM90_H

enum { FK_TILE_ROW = 128, FK_BOXES = FK_HEAD_DIM / FK_BOX, FK_VALUE_BOXES = FK_VALUE_DIM / FK_BOX };

/* The name of the WGMMA with n columns for the input type: FK_WGMMA(fk_wgmma_, 64) is fk_wgmma_64_bf16, say. n is a
 * literal, or a macro that is one. */
#define FK_JOIN(a, b, c) a##b##c
#define FK_JOIN_EXPANDED(a, b, c) FK_JOIN(a, b, c)
#if FK_BF16
#define FK_WGMMA(kind, n) FK_JOIN_EXPANDED(kind, n, _bf16)
#else
#define FK_WGMMA(kind, n) FK_JOIN_EXPANDED(kind, n, _fp16)
#endif

/* The descriptor of an operand that begins `offset` bytes after the beginning of a tile. lead: bytes from 64 numbers of
 * a row to the next 64; from eight rows to the next eight there are always 1024. The low word is a single sum, so that
 * descriptors of one tile differ by a constant and the compiler need not compute each. */
FK_DEVICE fk_u64 fk_descriptor(fk_u32 tile, fk_u32 offset, fk_u32 lead) {
    fk_u32 low = (tile >> 4 | lead >> 4 << 16) + (offset >> 4);
    return (fk_u64)((fk_u32)1 << 30 | 1024 >> 4) << 32 | low;
}
/* K-major: rows from `row` on (a multiple of 8), with numbers 16 step to 16 step + 15 of each as depth. */
FK_DEVICE fk_u64 fk_descriptor_k_major(fk_u32 tile, fk_u32 rows, fk_u32 row, fk_u32 step) {
    return fk_descriptor(tile + row * FK_TILE_ROW, step / 4 * rows * FK_TILE_ROW + step % 4 * 32, 16);
}
/* MN-major: columns from 64 box on, with rows 16 step to 16 step + 15 as depth. */
FK_DEVICE fk_u64 fk_descriptor_mn_major(fk_u32 tile, fk_u32 rows, fk_u32 step, fk_u32 box) {
    return fk_descriptor(tile, (box * rows + step * 16) * FK_TILE_ROW, rows * FK_TILE_ROW);
}

/* Begins the TMA loads of `count` rows (a multiple of FK_BOX) of a head, from row `row` of a slot on. The mbarrier must
 * be told to expect count * boxes * FK_TILE_ROW bytes. One thread calls it. */
FK_DEVICE void fk_tma_load_rows(fk_u32 tile, fk_u32 boxes, fk_u32 rows, fk_u32 count, const fk_map *map, fk_u32 head,
                                fk_u32 row, fk_u32 slot, fk_u32 barrier) {
    FK_ROLL
    for (fk_u32 box = 0; box < boxes; box++)
        FK_ROLL
        for (fk_u32 r = 0; r < count; r += FK_BOX)
            fk_tma_load(tile + (box * rows + r) * FK_TILE_ROW, map, box * FK_BOX, head, row + r, slot, barrier);
}
/* Copies the rows of a tile from `first` on, by cp.async of `threads` threads, of which this is number `thread`. Only
 * the first `there` rows of the tile may be read; the others become 0. Before a thread tells others that the rows are
 * there, it must wait (fk_cp_async_wait) and fence (fk_fence_proxy_async). */
FK_DEVICE void fk_copy_rows_from(fk_u32 tile, fk_u32 boxes, fk_u32 rows, fk_u32 first, fk_u32 thread, fk_u32 threads,
                                 fk_u64 from, fk_u64 stride, fk_u32 there) {
    fk_u32 chunks = boxes * (FK_TILE_ROW / 16);
    FK_ROLL
    for (fk_u32 i = first * chunks + thread; i < rows * chunks; i += threads) {
        fk_u32 row = i / chunks, chunk = i % chunks;
        fk_u32 to = tile + (chunk / 8 * rows + row) * FK_TILE_ROW + (chunk % 8 ^ row % 8) * 16;
        fk_cp_async(to, row < there ? from + row * stride + chunk * 16 : from, row < there ? 16 : 0);
    }
}
/* The same for a whole tile. */
FK_DEVICE void fk_copy_rows(fk_u32 tile, fk_u32 boxes, fk_u32 rows, fk_u32 thread, fk_u32 threads, fk_u64 from,
                            fk_u64 stride, fk_u32 there) {
    fk_copy_rows_from(tile, boxes, rows, 0, thread, threads, from, stride, there);
}
#endif
