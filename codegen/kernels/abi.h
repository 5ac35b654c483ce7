/* abi.h: the records that the runtime writes and the kernels read: work lists, launch parameters, sizes.
 *
 * The runtime includes this file as C, and NVRTC compiles it as C++ without any other header. Addresses are 64-bit
 * numbers rather than pointers, so that a record has one layout on host and device. Offsets are bytes from the
 * beginning of the arena. Positions are tokens counted within a sequence.
 *
 * A launch does one stage of one rank. Its work is a list of items. A row item is up to FK_ROWS rows of a Q piece, with
 * the runs of keys that these rows meet in the stage. A key item is the same the other way round: up to FK_KEYS keys of
 * a KV piece, with the runs of rows that meet them. Items begin at multiples of 128 from the beginning of their piece,
 * so an item is one row, or one column, of cells. A run is a stretch of neighbouring cells of one class within the
 * piece. A CTA does a piece of work at a time: an item for one head, or for some heads.
 *
 * By head (FK_BY_HEAD): the mask differs from head to head, so items and runs say for which heads they are. A row item
 * is for one query head. A key item is for one KV head, and each of its runs for some query heads of that head's group.
 * Without FK_BY_HEAD an item and its runs are for all heads. Even then the host may list a forward item once for each
 * query head (fk_launch.subs), so that it can order the heads' work freely.
 *
 * Packed (FK_PACKED; forward only): a short sequence of queries would leave most rows of a tile empty, so the query
 * heads of a group share the tile. With 4 heads, row 9 is query 2 of head 1. In general row r is query (skip + r) /
 * pack of head (skip + r) % pack of the group. The keys may be cut into parts, with an item each. Such an item has the
 * flags FIRST and SPLIT; `state` says where in `splits` it leaves its running state: O as [count][value_dim], then m
 * and l as [count]. A merge item lists the parts, and fk_combine joins them.
 *
 * Cut (without FK_PACKED and FK_FUSED): where there are few items, the keys of a row item for one query head are
 * divided among `parts` items with the same rows. Each part leaves its running state in `splits`, in FK_PART_BYTES: O
 * as [FK_ROWS][value_dim], then m and l as [FK_ROWS]. No part waits for another: a counter tells a part that it is the
 * last to end. That part joins all states, in the order of their keys, and goes on as if it had met all keys itself.
 * There is a counter for each 16 rows, since each warp does this on its own. Only part 0 may lack the flag FIRST,
 * because only it goes on from the state of earlier visits.
 *
 * Fused (FK_FUSED): several stages are one launch, which begins before all that it reads has arrived. A flag is a word
 * that is 0 when the pass begins, and that something outside the launch sets to 1 when certain data are there. CTAs
 * wait for flags; flags are numbered from 1.
 *   Forward    a row item has the runs of all stages, in the order in which their keys arrive. `arrival` of a run is
 *              the flag of its keys, `arrival` of an item that of its rows of q.
 *   Backward   the key items of stage 1 follow those of stage 0, and so on. Their flags stand behind all items, in
 *              fk_key_fused records. A CTA also waits for turns of items before its own; so no order of CTAs deadlocks.
 *
 * A row of Q is [heads][head_dim] numbers of the input type, a row of K [kv_heads][head_dim]; rows of O and dO are
 * [heads][value_dim], rows of V [kv_heads][value_dim]. Each begins at a multiple of 16 bytes. Rows of dQ, dK and dV are
 * the same in float. LSE and delta are [tokens][heads] floats. A state slot holds the running state of a block of the
 * plan: O as [max_block][heads][value_dim], then m and then l as [max_block][heads], all float. m is the largest logit
 * so far, in natural units, so that it overflows only where the logit itself does.
 *
 * LSE is two floats for each row and head: lse = m + log l, rounded, and lse_low = (m - lse) + log l, the rounding
 * error. So P = exp((x - lse) - lse_low) for a logit x, however large x and lse are. The forward kernels write both
 * and the backward kernels read both. A row that sees no key has lse -infinity, or the sink, and lse_low 0.
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
enum { FK_FULL = 1, FK_PARTIAL = 2 };         /* class of a run: does the mask allow all pairs, or some? */
enum { FK_TURN_ROWS = 64, FK_TURNS_OF_RUN = FK_ROWS / FK_TURN_ROWS };
/* Flags of a row item: it is the Q block's first visit, its last; it has a part of the keys and gives a part. */
enum { FK_FIRST = 1, FK_LAST = 2, FK_SPLIT = 4 };
/* Which bits say for which heads a record is.
 *
 * Row items have it if they are by head or packed, or if fk_launch.subs is 1: the bits of `flags` from FK_HEAD_SHIFT on
 * are the item's query head; if it is packed, the first of its heads.
 *
 * By head, a run of rows is for a set of the query heads of one group, which `cls` holds beside the class:
 *   bits 0 and 1                          the class
 *   FK_SET_HEADS bits from FK_SET_SHIFT   a bit for each of FK_SET_HEADS neighbouring heads: is it in the set?
 *   the bits above                        the first of these heads, as a multiple of FK_SET_HEADS. In a group of 32
 *                                         heads, 1 here and bit 3 of the set are the group's head 19 */
enum { FK_HEAD_SHIFT = 3, FK_SET_SHIFT = 2, FK_SET_HEADS = 16, FK_SET_BASE_SHIFT = FK_SET_SHIFT + FK_SET_HEADS };
#define FK_NONE 0xffffffffu
/* What a part of rows whose keys are cut leaves. How many counters a launch has for tickets, and for each such part. */
#define FK_PART_BYTES(v) (FK_ROWS * ((v) + 2) * 4) /* v: value_dim */
enum { FK_TICKET_COUNTERS = 1, FK_PART_COUNTERS = FK_ROWS / 16 };

/* A sequence. Its keys are at positions [0, n), its queries at [q_first, q_first + queries). */
typedef struct fk_sequence {
    fk_i64 n, q_first;
    fk_i64 queries, pad;
} fk_sequence;

/* Slices of a mask: as mc_bands, with addresses on the device. */
typedef struct fk_bands {
    fk_u64 rows, bands; /* addresses of mc_band_rows and of mc_band records */
    fk_u32 row_count, band_count;
} fk_bands;

/* What fk_allow, fk_score and fk_slope read beside q, k and h. */
typedef struct fk_env {
    fk_sequence sequence;
    const fk_u64 *arrays; /* the address of each array's first value for this sequence; reals are float */
    const fk_bands *bands;
    fk_u32 model_head, group, shared; /* as in fk_launch; set if the plan has ranges of heads */
} fk_env;

/* Rows of a Q piece, for the forward pass and for dQ. */
typedef struct fk_row_item {
    fk_i64 position;        /* of the first row */
    fk_u32 token;           /* the first row of q, and backward of d_o, lse and delta */
    fk_u32 out;             /* the first row of what is written: o and lse; backward dq */
    fk_u64 state;           /* offset of the state slot; 0: the visit has none */
    fk_u32 block_token;     /* of the first row, in its block and so in the state slot */
    fk_u32 count, flags, sequence;
    fk_u32 first, runs;     /* its first key run, and how many it has */
    fk_u32 pack, skip;      /* packed: how many heads share the tile, or 1; how many rows are in tiles before */
    fk_u32 arrival;         /* fused: the flag to wait for before q is read; 0: the rows are there */
    fk_u32 part, parts, cut; /* cut: its number among the parts of its rows; how many they are; the first one's index */
} fk_row_item;
/* Packed: rows whose keys are in `parts` parts, the first of which begins `first` bytes after fk_launch.splits. */
typedef struct fk_merge_item {
    fk_row_item rows;
    fk_u64 first;
    fk_u32 parts, pad;
} fk_merge_item;
typedef struct fk_key_run {
    fk_i64 position;        /* of the first key */
    fk_u64 k, v;            /* offsets of the first key's rows of K and V */
    fk_u32 count, cls;
    fk_u32 place;           /* FK_AT_HOME or FK_MOVED: which maps have the keys */
    fk_u32 row, slot;       /* the first key's row in the maps, and in which slot; at home that is 0 */
    fk_u32 arrival;         /* fused: the flag to wait for; 0: the keys are there */
} fk_key_run;

/* Keys of a KV piece, for dK and dV. */
typedef struct fk_key_item {
    fk_i64 position;
    fk_u64 k, v, dk, dv;    /* offsets of the first key's rows of K and V, and of dK and dV */
    fk_u32 count, sequence;
    fk_u32 first, runs;     /* its first row run, and how many it has */
    fk_u32 place, row, slot; /* as in a key run */
    /* lock: names the sums of dK and dV if several items have these keys, and counts the turns taken at them. FK_NONE
     * if no other item has them. turn: how many turns at these sums come before this item's (used in an ordered
     * launch). An item done in pieces, for some heads each (fk_launch.subs), takes a turn for each piece. */
    fk_u32 lock, turn;
    fk_u32 kv_head;         /* by head: of which KV head; else 0 */
    /* 1: nothing has been added to the sums of dK and dV yet, and in this launch only this item adds to them. So it may
     * store what it has, whatever is there. 0: it adds. */
    fk_u32 begins, pad;
} fk_key_item;
/* Fused: item_count of these stand behind the items of a launch. Then each item is for some query heads of a group. */
typedef struct fk_key_fused {
    fk_u32 flags[2];        /* of each fabric, the flag to wait for before anything of the item is read; 0: none */
    fk_u32 first, heads;    /* the first head, in the group, and how many */
} fk_key_fused;
typedef struct fk_row_run {
    fk_i64 position;
    fk_u32 token, out;      /* as in a row item */
    fk_u32 count, cls;
    fk_u32 lock, turn;      /* ordered: the lock of these rows; how many runs before this one have the same rows */
} fk_row_run;

/* Parameters of every attention kernel. If a plan divides the heads into ranges, each range has blocks of its own, and
 * a launch is for one range. The launch works on query heads [group * first_head, group * (first_head + head_count)),
 * counted from the range's first head. Masks and scores need the model's number of the head instead. For head i of the
 * range it is model_head + i / group * shared + i % group. */
typedef struct fk_launch {
    fk_u64 arena;
    fk_u64 q, o, d_o;       /* addresses of tensors in the input type: rows of home tokens, then
                             * those of moved blocks */
    fk_u64 lse, lse_low, delta, dq; /* the same, in float */
    fk_u64 items, runs;     /* addresses of the row or key items and runs, whichever the kernel works on */
    fk_u64 sequences;       /* address of fk_sequence records */
    fk_u64 arrays;          /* address of FK_ARRAYS addresses for each sequence, as in fk_env */
    fk_u64 bands;           /* as in fk_env */
    fk_u64 sinks;           /* address of a float for each query head of the range, a natural logit; 0: none */
    /* Forward: address of a float for each query head of the model; 0: nobody wants it. A finished row raises its
     * head's float to the row's largest logit, if that is larger. The sink does not count as a logit. */
    fk_u64 maxima;
    /* What these two addresses are depends on the kernel. All numbers there are fk_u32.
     *   Backward, where pieces take turns
     *       locks: [locks][heads][FK_TURNS_OF_RUN]. The rows of a run take turns FK_TURN_ROWS at a time. A lock of keys
     *       uses the entries of the first head of its group: one for dK and one for dV, or one for each CTA that shares
     *       an item (FK_DKV_PARTS). counter: one number, from which CTAs take their work. All are 0 when the kernel
     *       begins.
     *   Forward, for sm_90a or cut
     *       counter: FK_TICKET_COUNTERS number, from which CTAs for sm_90a take their work; then FK_PART_COUNTERS
     *       numbers for each part, of which only those of part 0 are used. They are 0 when the kernel begins, and again
     *       when it ends.
     *   Fused: the flags of arrivals are at `locks` (forward) or at `splits` (backward).
     */
    fk_u64 locks, counter;
    fk_u64 splits;          /* packed or cut: address of the parts' running states */
    fk_u64 mark;            /* where the kernel writes mark_value when it begins; 0: nowhere */
    fk_u32 item_count;
    fk_u32 heads, kv_heads, group; /* heads = kv_heads * group */
    fk_u32 first_head, head_count; /* in KV heads */
    fk_u32 max_block, mark_value;
    float scale, scale_log2, unscale; /* scale_log2 = scale * log2 e, unscale = 1 / scale */
    fk_u32 model_head, shared;     /* shared: the model's query heads for each KV head */
    /* Forward: 1 if an item is of one query head, as all of a cut list are, or is packed; else 0. Backward, but for dQ
     * alone: a piece of work is an item for so many query heads of a group; by head the whole group. */
    fk_u32 subs;
} fk_launch;

/* A CUtensorMap: the TMA descriptor of a tensor, which the driver makes. The tensor has the dimensions head_dim or
 * value_dim, heads, rows, slots. A TMA load copies one box: FK_BOX numbers of one head, of FK_BOX rows of a slot. In
 * shared memory each row of a box is 128 bytes, whose eight chunks of 16 bytes are permuted by the number of the row
 * modulo 8 (the 128-byte swizzle). What lies outside the tensor becomes 0. */
enum { FK_BOX = 64, FK_BOX_BYTES = FK_BOX * FK_BOX * 2 };
typedef struct __attribute__((aligned(64))) fk_map {
    fk_u64 words[16];
} fk_map;
enum { FK_AT_HOME = 0, FK_MOVED = 1 };

/* Parameters of the kernels for sm_90a: those of the others, and maps. A map of q or d_o has one slot: the rows of home
 * queries and then those of moved Q blocks. A map of k or v has one slot, too: the home keys. moved_k and moved_v have
 * the slots of received KV; each slot has max_block rows of K, then as many of V. d_o, v and moved_v have value_dim
 * numbers a head, the others head_dim. The map of an empty tensor is all zeros. */
typedef struct fk_launch_maps {
    fk_launch launch;
    fk_map q, d_o, k, v, moved_k, moved_v;
} fk_launch_maps;

/* Parameters of fk_backward_tables: those of dK and dV, and the address of the sums, one for each number of all tables
 * (backward_tables.h). A sum is FK_SUM_WORDS whole numbers of 64 bits. The first FK_SUM_DIGITS are its digits: digit i
 * counts multiples of 2^(FK_SUM_BITS i - 149). The last two count how often +infinity and -infinity were added; a NaN
 * counts as one of each. */
enum { FK_SUM_BITS = 24, FK_SUM_DIGITS = 12, FK_SUM_WORDS = FK_SUM_DIGITS + 2, FK_SUM_BYTES = FK_SUM_WORDS * 8 };
typedef struct fk_launch_tables {
    fk_launch launch;
    fk_u64 sums;
} fk_launch_tables;

/* Parameters of the kernels in support.h, and of fk_round_sums. to, from, other are addresses; each kernel says what it
 * counts; mark is as in fk_launch. */
typedef struct fk_support {
    fk_u64 to, from, other, count, mark;
    fk_u64 lse, lse_low;    /* of fk_state_out and fk_fold_sinks; fk_begin_lse has LSE at `to`, and lse_low */
    fk_u64 sinks;           /* of fk_state_out and fk_fold_sinks */
    fk_u64 maxima;          /* of fk_state_out, as in fk_launch */
    fk_u64 d_lse;           /* of fk_delta: address of the gradient of LSE, a float for each row and head; 0: none */
    fk_u32 heads, mark_value;
    fk_u32 model_head, group, shared, pad; /* of fk_state_out and fk_fold_sinks, as in fk_launch */
} fk_support;
enum { FK_SUPPORT_THREADS = 256, FK_SUPPORT_REGISTERS = 96, FK_FOLD = 128 };

/* fk_gather moves tokens of a bundle between two of three places: the caller's tensors, home blocks, and messages. A
 * run is a stretch of tokens that lie next to each other in both of the bundle's places. */
typedef struct fk_gather_run {
    fk_u64 home;            /* its first token among the home rank's tokens */
    fk_u32 place;           /* its first token in the caller's tensors */
    fk_u32 at;              /* its first token in the bundle */
    fk_u32 kv_first, sub_first; /* its range of heads: the first KV head, the first query head of each */
} fk_gather_run;
/* A tensor whose tokens are moved. All its numbers but `to` and `from` count words of 4 bytes. In messages and home
 * blocks a token is `row` words side by side: the numbers of a range of heads. In the caller's tensor a token is `full`
 * words, those of all heads, and the range's lie in row / chunk chunks of `chunk` words. The first chunk begins at word
 * kv_step * kv_first + sub_step * sub_first, with kv_first and sub_first of the run; each further one `stride` words
 * after the one before. to = 0: the caller has left the tensor out, and it is not written; from = 0: likewise, and it
 * is read as zeros. */
typedef struct fk_gather_tensor {
    fk_u64 to, from;        /* addresses of the first token */
    fk_u32 row, full, chunk, stride, kv_step, sub_step;
} fk_gather_tensor;
enum { FK_GATHER_TENSORS = 8 };
enum { FK_IN_MESSAGE, FK_AT_BLOCKS, FK_AT_CALLER };
/* Moves tokens [first, first + tokens) of a bundle, whose run_count runs stand at `runs` in the order of `at`. A
 * message begins with token `first`. */
typedef struct fk_gather_launch {
    fk_u64 runs;
    fk_u32 run_count, first, tokens, tensors;
    fk_u32 to, from;        /* FK_IN_MESSAGE, FK_AT_BLOCKS or FK_AT_CALLER */
    fk_gather_tensor tensor[FK_GATHER_TENSORS];
} fk_gather_launch;

/* --- layers that recur (recurrent_kernels.h) ---------------------------------------------------------------------- */

/* fk_rows_move and fk_rows_add copy or add rows between two places, such as a tensor and a message. A run is rows that
 * lie side by side in both: rows [to, to + count) of one and [from, from + count) of the other. */
typedef struct fk_rows_run {
    fk_u64 to, from;
    fk_u64 at; /* how many rows the runs before it have */
    fk_u64 count;
} fk_rows_run;
enum { FK_ROWS_FP32, FK_ROWS_FP16, FK_ROWS_BF16 }; /* as fcp_dtype */
enum { FK_ROW_PIECE = 4096 };
typedef struct fk_rows_launch {
    fk_u64 runs;            /* address of run_count runs, which have `rows` rows together */
    fk_u64 to, from;        /* addresses of row 0 of each place; from 0, of fk_rows_move alone: zeros are written */
    fk_u64 row, rows;       /* row: bytes */
    fk_u64 pieces;          /* of a row, of FK_ROW_PIECE bytes but for the last */
    fk_u32 run_count, back; /* back: rows go from what a run calls `to` to what it calls `from` */
    fk_u32 width;           /* bytes that a thread does at once: 16, 4, or the size of a number (a byte, if rows move);
                             * it divides `row` and both addresses */
    fk_u32 type;            /* of fk_rows_add: FK_ROWS_* */
} fk_rows_launch;

/* fk_scan_scaled and fk_scan_matrix: what `first` does to a state, and then what `then` does. Addresses of floats, of
 * heads that lie behind each other: b [heads][rows][columns], and A [heads], [heads][rows] or [heads][rows][rows]. */
enum { FK_DECAY_SCALAR, FK_DECAY_VECTOR, FK_DECAY_MATRIX }; /* as fcp_decay */
typedef struct fk_scan_launch {
    fk_u64 to, first, then;
    fk_u64 to_decay, first_decay, then_decay; /* to_decay, first_decay: 0 if the result is a state */
    fk_u32 heads, rows, columns, decay;
    fk_u32 width, pad; /* of fk_scan_scaled: 16 if that divides rows of b and the three addresses of b, else 4 */
} fk_scan_launch;
enum {
    FK_SCAN_TILE = 64,
    FK_SCAN_DEPTH = 16,
    FK_SCAN_STRIDE = FK_SCAN_TILE + 4,
    FK_SCAN_SHARED = 2 * FK_SCAN_DEPTH * FK_SCAN_STRIDE * 4
};

/* --- waits -------------------------------------------------------------------------------------------------------- */
/* Builds that watch their waits (FK_BOUND, FK_WAITED in prim_ptx.h) leave these tables in the module's memory, under
 * these names. What a warp waits for is a number: FK_WAIT_BARRIER plus the number of a named barrier (0: the barrier of
 * the whole CTA); FK_WAIT_MBARRIER plus an mbarrier's place in shared memory / 8 modulo 16; or one of the others.
 *   fk_gave_up: [FK_GAVE_UP] fk_u32   How many waits gave up. Then of the first: what it waited for, its address (of an
 *                                     mbarrier, from the beginning of shared memory), for which number, its CTA and its
 *                                     thread. Then for each warp of that CTA what it waited for, plus 1, and from the
 *                                     8th bit on for which number; 0: it did not wait.
 *   fk_waits: [FK_WAIT_CTAS][FK_WAIT_WARPS] fk_u32     The same of all warps, now: of CTA i, and of i + FK_WAIT_CTAS.
 *   fk_waited: [FK_WAIT_WARPS][FK_WAITS] fk_u64        Clocks that this warp of all CTAs has waited for that, all in
 *                                     all. FK_WAIT_WHOLE: from its begin to its end; FK_WAIT_NANOSECONDS: the same, in
 *                                     nanoseconds.
 *   fk_first_mbarrier: fk_u32         FK_PLACE_LAST minus the first mbarrier's place, from the beginning of shared
 *                                     memory; 0: there is none.
 * Names are in fk_forward_... or fk_backward_..., if the kernel gives any (FK_NAME_WAITS). */
enum {
    FK_WAIT_BARRIER = 0,
    FK_WAIT_MBARRIER = 16,
    FK_WAIT_TURN = 32,
    FK_WAIT_ARRIVAL,
    FK_WAIT_COPIES, /* cp.async */
    FK_WAIT_WHOLE,
    FK_WAIT_NANOSECONDS,
    FK_WAITS,
    FK_WAIT_WARPS = 12,
    FK_WAIT_CTAS = 512,
    FK_GAVE_UP = 6 + FK_WAIT_WARPS,
    FK_PLACE_LAST = 0x7fffffff
};

/* --- sizes -------------------------------------------------------------------------------------------------------- */
/* d: head_dim, of Q and K. v: value_dim, of V and O, which is at most d. Both are 16, 32, 64, 96, 128, 192 or 256; if d
 * is above 128, v is 32 or more, because then two warps share the columns of dV. */
#define FK_IS_DIM(d) ((d) == 16 || (d) == 32 || (d) == 64 || (d) == 96 || (d) == 128 || (d) == 192 || (d) == 256)
#define FK_HAS_DIMS(d, v) (FK_IS_DIM(d) && FK_IS_DIM(v) && (v) <= (d) && ((d) <= 128 || (v) >= 32))

/* For each mma.sync kernel:
 *   WARPS       warps of a CTA
 *   SHARED      bytes of shared memory of a CTA
 *   REGISTERS   the most registers a thread may use; no build may need more (the hardware has 255)
 *   PARTS       how many CTAs share an item. A launch has item_count * parts * heads pieces of work; its grid is as
 *               many CTAs or fewer, each of which then does several pieces one after another.
 * Except for the ordered kernel with two buffers of dO, all fit an SM with 99 KiB of shared memory, as sm_86, sm_89
 * and sm_120 have. */
#define FK_TILE_BYTES(rows, d) ((rows) * (d) * 2)

/* Forward: FK_ROWS rows stay in shared memory, keys stream by. */
#define FK_FORWARD_WARPS(d, score) ((d) > 64 || (score) ? 8 : 4) /* a warp with a score and 32 rows would spill */
#define FK_FORWARD_KEYS(d, v) ((d) > 192 || (v) > 128 || (d) == 64 ? 32 : 64)
#define FK_FORWARD_SHARED(d, v)                                                                                        \
    (FK_TILE_BYTES(FK_ROWS, d) + FK_TILE_BYTES(FK_FORWARD_KEYS(d, v), d) + FK_TILE_BYTES(FK_FORWARD_KEYS(d, v), v))
#define FK_FORWARD_REGISTERS(d) 255

/* Forward for sm_90a, where head_dim and value_dim are multiples of 64. FK_ROWS rows of Q stay in shared memory, half
 * of them for each of two consumer warpgroups. The producer warpgroup loads keys, in two stages of K and two of V.
 * BARRIERS bytes are for mbarriers, tickets, and bits of the flags of a fused pass. */
#define FK_HAS_SM90(d, v) ((d) % 64 == 0 && (v) % 64 == 0)
enum { FK_FORWARD_SM90_THREADS = 384, FK_FORWARD_SM90_BARRIERS = 128 };
#define FK_FORWARD_SM90_KEYS(d, v) ((d) > 192 || (v) > 128 ? 64 : 128)
#define FK_FORWARD_SM90_TILES(d, v)                                                                                    \
    (FK_TILE_BYTES(FK_ROWS, d) + 2 * FK_TILE_BYTES(FK_FORWARD_SM90_KEYS(d, v), d) +                                    \
     2 * FK_TILE_BYTES(FK_FORWARD_SM90_KEYS(d, v), v))
#define FK_FORWARD_SM90_SHARED(d, v) (FK_FORWARD_SM90_TILES(d, v) + FK_FORWARD_SM90_BARRIERS)
/* Registers of a thread at the beginning; then the producer gives some of its own to the consumers. */
#define FK_FORWARD_SM90_REGISTERS 168

/* dK and dV: FK_DKV_KEYS keys stay, rows stream by in two buffers. If head_dim is above 128, two warps share the same
 * keys, each with half of the columns. */
#define FK_DKV_WARPS(d) 8
#define FK_DKV_KEYS(d) ((d) > 128 ? 64 : 128)
/* Rows of a step. With a score and head_dim 128, 32 would spill. */
#define FK_DKV_ROWS(d, score) ((d) > 192 || ((d) == 128 && (score)) ? 16 : (d) > 32 ? 32 : 64)
#define FK_DKV_PARTS(d) (FK_KEYS / FK_DKV_KEYS(d))
#define FK_DKV_SHARED(d, v, score)                                                                                     \
    (FK_TILE_BYTES(FK_DKV_KEYS(d) + 2 * FK_DKV_ROWS(d, score), (d) + (v)) + 24 * FK_DKV_ROWS(d, score))
#define FK_DKV_REGISTERS(d) 255

/* dK, dV and dQ in one kernel, ordered or not, for head_dim up to 128. It needs the shared memory of dK and dV, a tile
 * of dS, which warps pass to each other, and the ticket. If both sizes are 128 and there is no score, that is more than
 * sm_86, sm_89 and sm_120 have. For them dO has one buffer instead of two, and dS lies where the second one was, which
 * has the same size. */
#define FK_HAS_ORDERED(d) ((d) <= 128)
#define FK_HAS_ONE_DO_BUFFER(d, v) (FK_HAS_ORDERED(d) && (v) == FK_DKV_KEYS(d))
#define FK_ORDERED_SHARED(d, v, score, do_buffers)                                                                     \
    (FK_DKV_SHARED(d, v, score) + ((do_buffers) == 1 ? 0 : FK_TILE_BYTES(FK_DKV_KEYS(d), FK_DKV_ROWS(d, score))) + 16)
#define FK_ORDERED_REGISTERS(d) 255

/* dQ: FK_DQ_ROWS rows stay, keys stream by in two buffers. */
#define FK_DQ_WARPS(d) ((d) > 128 ? 4 : 8)
#define FK_DQ_ROWS(d) ((d) > 128 ? 64 : 128)
#define FK_DQ_KEYS(d) ((d) > 192 ? 16 : (d) > 64 ? 32 : 64)
#define FK_DQ_PARTS(d) (FK_ROWS / FK_DQ_ROWS(d))
#define FK_DQ_SHARED(d, v) FK_TILE_BYTES(FK_DQ_ROWS(d) + 2 * FK_DQ_KEYS(d), (d) + (v))
#define FK_DQ_REGISTERS(d) 255

/* dK, dV and dQ for sm_90a, where head_dim and value_dim are both 64 or both 128: FK_KEYS keys stay in shared memory,
 * rows stream by in two stages, dS has two buffers, and dQ of a step goes to memory through one. A thread has 168
 * registers at the beginning; then the warpgroup that loads gives some of its own to those that compute
 * (setmaxnreg). */
#define FK_HAS_BACKWARD_SM90(d, v) ((d) == (v) && ((d) == 64 || (d) == 128))
enum { FK_BACKWARD_SM90_THREADS = 384 };
#define FK_BACKWARD_SM90_ROWS(d) ((d) > 64 ? 64 : 128)
#define FK_BACKWARD_SM90_DQ_ROW(d) ((d)*4 + 32) /* bytes of a row of dQ on its way to memory */
enum { FK_BACKWARD_SM90_RECORD = 40 }; /* bytes that say what rows a step has; a multiple of 8 */
#define FK_BACKWARD_SM90_SHARED(d, v)                                                                                  \
    (FK_TILE_BYTES(FK_KEYS + 2 * FK_BACKWARD_SM90_ROWS(d), (d) + (v)) +                                                \
     2 * FK_TILE_BYTES(FK_KEYS, FK_BACKWARD_SM90_ROWS(d)) + FK_BACKWARD_SM90_ROWS(d) * FK_BACKWARD_SM90_DQ_ROW(d) +    \
     24 * FK_BACKWARD_SM90_ROWS(d) + 2 * FK_BACKWARD_SM90_RECORD + 32)
#define FK_BACKWARD_SM90_REGISTERS 168
#endif
