/* abi.h: what kernels and the runtime that launches them share: work lists, arrays, launch parameters, sizes.
 *
 * Included by both sides, by NVRTC without any header: the plain common part of C and C++. Addresses are 64-bit numbers
 * so that a record is the same on host and device; offsets are bytes from the arena's beginning. Positions are tokens in
 * a sequence, sizes tokens or bytes as named.
 *
 * A launch is one stage of one rank: items x heads. A row item is up to FK_ROWS rows of a Q piece, with the runs of keys
 * that they meet in this stage; a key item is up to FK_KEYS keys of a KV piece, with the runs of rows that meet them.
 * Both begin at a multiple of 128 from their piece's beginning, so that an item is one row or column of cells. A run is
 * neighbouring cells of one class, cut to what the piece has.
 *
 * Rows are [heads][head_dim] or [kv_heads][head_dim] of the input type, as in the arena; a row's address is a multiple of
 * 16. LSE and delta are [tokens][heads] float. A state slot is O [max_block][heads][head_dim], then m and l
 * [max_block][heads], all float; m is in log2 units.
 */
#ifndef FK_ABI_H
#define FK_ABI_H

typedef signed char fk_i8;
typedef short fk_i16;
typedef int fk_i32;
typedef unsigned int fk_u32;
typedef long long fk_i64;
typedef unsigned long long fk_u64;

enum { FK_ROWS = 128, FK_KEYS = 128 };
enum { FK_FULL = 1, FK_PARTIAL = 2 };         /* class of a run's cells */
enum { FK_FIRST = 1, FK_LAST = 2 };           /* flags of a row item: the Q block's first, last visit */
#define FK_NONE 0xffffffffu

/* A sequence: keys at positions [0, n), queries from q_first on. Where its tokens begin in fields over keys and over
 * queries. */
typedef struct fk_sequence {
    fk_i64 n, q_first;
    fk_u64 key_first, query_first;
    fk_i64 queries, pad;
} fk_sequence;

/* Slices: as mc_bands, with device addresses. */
typedef struct fk_bands {
    fk_u64 rows, bands; /* of mc_band_rows, mc_band */
    fk_u32 row_count, band_count;
} fk_bands;

/* What fk_allow, fk_score and fk_slope see beside q, k and h. */
typedef struct fk_env {
    fk_sequence sequence;
    const fk_u64 *arrays;   /* per array: the address of its first value; reals are float */
    const fk_bands *bands;
} fk_env;

/* Rows of a Q piece, in the forward pass and for dQ. */
typedef struct fk_row_item {
    fk_i64 position;        /* of the first row */
    fk_u64 token;           /* the first row among the rank's home tokens */
    fk_u64 state;           /* offset of the state slot; 0 where there is none */
    fk_u32 block_token;     /* the first row in its block, which is its row in the slot */
    fk_u32 count, flags, sequence;
    fk_u32 first, runs;     /* of key runs */
} fk_row_item;
typedef struct fk_key_run {
    fk_i64 position;        /* of the first key */
    fk_u64 k, v;            /* offsets of the first key's rows */
    fk_u32 count, cls;
    fk_u32 place;           /* FK_AT_HOME or FK_MOVED: which map has the keys, k_row and v_row in it */
    fk_u32 k_row, v_row, pad;
} fk_key_run;

/* Keys of a KV piece, for dK and dV. */
typedef struct fk_key_item {
    fk_i64 position;
    fk_u64 k, v, dk, dv;    /* offsets of the first key's rows, and of its sums */
    fk_u32 count, sequence;
    fk_u32 first, runs;     /* of row runs */
    fk_u32 place;           /* as in a key run */
    fk_u32 k_row, v_row;
    fk_u32 lock, turn, pad; /* lock FK_NONE: no other item of the launch has these keys; else others add to the same sums: ordered,
                             * by turns that `lock` counts */
} fk_key_item;
typedef struct fk_row_run {
    fk_i64 position;
    fk_u64 token;
    fk_u32 count, cls;
    fk_u32 lock, turn;      /* ordered: which of locks is of these rows; how many runs before this one have them */
} fk_row_run;

/* Parameters of every kernel. Query heads [group * first_head, group * (first_head + head_count)) are worked on. */
typedef struct fk_launch {
    fk_u64 arena;
    fk_u64 q, o, d_o;       /* addresses of home tokens, in the input type */
    fk_u64 lse, delta, dq;  /* the same in float */
    fk_u64 items, runs;     /* of the kernel's kind */
    fk_u64 sequences;       /* fk_sequence each */
    fk_u64 arrays, bands;   /* of an fk_env */
    fk_u64 sinks;           /* float per query head, natural logits; 0: none */
    fk_u64 locks, counter;  /* backward in one kernel: fk_u32 [locks][heads] if ordered (those of keys: at the first head of a
                             * group), and one; 0 when it begins */
    fk_u64 mark;            /* where the kernel says that it has begun, by mark_value; 0: nowhere */
    fk_u32 item_count;
    fk_u32 heads, kv_heads, group; /* heads = kv_heads * group */
    fk_u32 first_head, head_count; /* KV heads */
    fk_u32 max_block, mark_value;
    float scale, scale_log2;       /* scale_log2 = scale * log2 e */
} fk_launch;

/* What the tensor copy engine knows of a tensor of rows: a CUtensorMap, made by the driver. Dimensions are head_dim, heads,
 * rows; a box is FK_BOX numbers of one head, of FK_BOX rows; in shared memory its rows are 128 bytes, of which the eight
 * chunks of 16 bytes are permuted by the row's number modulo 8. What lies outside the tensor becomes 0. */
enum { FK_BOX = 64, FK_BOX_BYTES = FK_BOX * FK_BOX * 2 };
typedef struct __attribute__((aligned(64))) fk_map {
    fk_u64 words[16];
} fk_map;
enum { FK_AT_HOME = 0, FK_MOVED = 1 };

/* Parameters of the kernels for sm_90a: the others', and maps. Rows of q, d_o: home queries; of k, v: home keys; of moved:
 * those of all transient KV slots, of each slot max_block of K, then as many of V. A map whose tensor is empty is zeros. */
typedef struct fk_launch_maps {
    fk_launch launch;
    fk_map q, d_o, k, v, moved;
} fk_launch_maps;

/* Parameters of the kernels of support.h: addresses; count as each says; mark as in fk_launch. */
typedef struct fk_support {
    fk_u64 to, from, other, count, mark;
    fk_u32 heads, mark_value;
} fk_support;
enum { FK_SUPPORT_THREADS = 256, FK_SUPPORT_REGISTERS = 64 };

/* --- sizes -------------------------------------------------------------------------------------------------------- */
/* Of each mma.sync kernel, by head_dim d (16, 32, 64, 128, 256): warps of a block, bytes of shared memory, most
 * registers a thread may use (the budget builds are held to; 255 is all there are), and into how many parts an item is
 * cut, a block each: a launch is item_count * parts * heads blocks, or fewer, each of which then takes several.
 * But for ordered, all fit an SM of 99 KiB, as of sm_86 and sm_89. */
#define FK_TILE_BYTES(rows, d) ((rows) * (d) * 2)

/* forward: FK_ROWS rows stay, keys stream by */
#define FK_FORWARD_WARPS(d, score) ((d) > 64 || (score) ? 8 : 4) /* with a score, 32 rows a warp would spill */
#define FK_FORWARD_KEYS(d) ((d) > 128 || (d) == 64 ? 32 : 64)
#define FK_FORWARD_SHARED(d) (FK_TILE_BYTES(FK_ROWS, d) + 2 * FK_TILE_BYTES(FK_FORWARD_KEYS(d), d))
#define FK_FORWARD_REGISTERS(d) 255

/* forward, for sm_90a, head_dim 64, 128, 256: FK_ROWS rows stay, half of them a consumer warpgroup's; two stages of K and of V,
 * brought by a third; and barriers */
#define FK_HAS_SM90(d) ((d) == 64 || (d) == 128 || (d) == 256)
enum { FK_FORWARD_SM90_THREADS = 384 };
#define FK_FORWARD_SM90_KEYS(d) ((d) > 128 ? 64 : 128)
#define FK_FORWARD_SM90_TILES(d) (FK_TILE_BYTES(FK_ROWS, d) + 4 * FK_TILE_BYTES(FK_FORWARD_SM90_KEYS(d), d))
#define FK_FORWARD_SM90_SHARED(d) (FK_FORWARD_SM90_TILES(d) + 128)
#define FK_FORWARD_SM90_REGISTERS(d) 168 /* when it begins; then warpgroups give to each other */

/* dKV: FK_DKV_KEYS keys stay, rows stream by, double-buffered; where head_dim is 256 two warps share the same keys, half
 * the columns each */
#define FK_DKV_WARPS(d) 8
#define FK_DKV_KEYS(d) ((d) > 128 ? 64 : 128)
#define FK_DKV_ROWS(d) ((d) > 128 ? 16 : (d) > 32 ? 32 : 64) /* at most: half of it for 128 with a score */
#define FK_DKV_PARTS(d) (FK_KEYS / FK_DKV_KEYS(d))
#define FK_DKV_SHARED(d) (2 * FK_TILE_BYTES(FK_DKV_KEYS(d), d) + 4 * FK_TILE_BYTES(FK_DKV_ROWS(d), d) + 16 * FK_DKV_ROWS(d))
#define FK_DKV_REGISTERS(d) 255

/* dKV and dQ in one kernel, ordered or not: as dKV, and dS between its warps; head_dim up to 128. More than sm_86 and
 * sm_89 have for 128. */
#define FK_ORDERED_SHARED(d) (FK_DKV_SHARED(d) + FK_DKV_KEYS(d) * FK_DKV_ROWS(d) * 2 + 16)
#define FK_ORDERED_REGISTERS(d) 255

/* dQ: FK_DQ_ROWS rows stay, keys stream by, double-buffered */
#define FK_DQ_WARPS(d) ((d) > 128 ? 4 : 8)
#define FK_DQ_ROWS(d) ((d) > 128 ? 64 : 128)
#define FK_DQ_KEYS(d) ((d) > 128 ? 16 : (d) > 64 ? 32 : 64)
#define FK_DQ_PARTS(d) (FK_ROWS / FK_DQ_ROWS(d))
#define FK_DQ_SHARED(d) (2 * FK_TILE_BYTES(FK_DQ_ROWS(d), d) + 4 * FK_TILE_BYTES(FK_DQ_KEYS(d), d))
#define FK_DQ_REGISTERS(d) 255

/* dKV and dQ for sm_90a, head_dim 64 and 128: FK_KEYS keys stay, rows stream by in two stages; dS has two buffers. A
 * thread has 168 registers at first, and warpgroups give each other of them. */
#define FK_HAS_BACKWARD_SM90(d) ((d) == 64 || (d) == 128)
enum { FK_BACKWARD_SM90_THREADS = 384 };
#define FK_BACKWARD_SM90_ROWS(d) ((d) > 64 ? 64 : 128)
#define FK_BACKWARD_SM90_SHARED(d)                                                                                     \
    (2 * FK_TILE_BYTES(FK_KEYS, d) + 4 * FK_TILE_BYTES(FK_BACKWARD_SM90_ROWS(d), d) +                                  \
     2 * FK_TILE_BYTES(FK_KEYS, FK_BACKWARD_SM90_ROWS(d)) + 16 * FK_BACKWARD_SM90_ROWS(d) + 32)
#define FK_BACKWARD_SM90_REGISTERS(d) 168
#endif
