/* abi.h: what kernels and the runtime that launches them share: work lists, arrays, launch parameters.
 *
 * Included by both sides, by NVRTC without any header: the plain common part of C and C++. Addresses are 64-bit numbers
 * so that a record is the same on host and device. Positions are tokens in a sequence, sizes tokens or bytes as named.
 *
 * A launch is one stage of one rank: items x heads. An item of the forward pass is up to FK_ROWS rows of a Q piece,
 * with the keys they meet in this stage, entry by entry; of the backward pass up to FK_KEYS keys of a KV piece, with the
 * rows that meet them. An entry is a run of cells of one class, cut to what the piece has.
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
enum { FK_FULL = 1, FK_PARTIAL = 2 };         /* class of an entry's cells */
enum { FK_FIRST = 1, FK_LAST = 2 };           /* flags of an item: the Q block's first, last visit */
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
    const fk_u64 *arrays;   /* per array: the address of its first value */
    const fk_bands *bands;
} fk_env;
#endif
