/* rung_launch.h: the parameters of the ladder's kernels (rung_kernels.h), for the host and for NVRTC. It comes after
 * codegen/kernels/abi.h. */
#ifndef RUNG_LAUNCH_H
#define RUNG_LAUNCH_H
typedef struct rung_launch {
    fk_u64 in, other, out; /* addresses: what a kernel reads, and what it writes */
    fk_u64 flag;           /* address of two numbers, 0 at first: a flag or lock, and a counter */
    fk_u32 a, b, c, d;     /* what they mean depends on the kernel */
    fk_map map;            /* at a multiple of 64 that is no multiple of 128, as in fk_launch_maps */
} rung_launch;

/* How a matrix is there, in `in` or `other`, and comes into its tile in shared memory:
 *   RUNG_IMAGE    as the tile lies there; it is copied word by word
 *   RUNG_COPIED   row by row; by cp.async, as rows that TMA cannot load
 *   RUNG_STORED   row by row; by plain stores, as the backward pass stores dS */
enum { RUNG_IMAGE, RUNG_COPIED, RUNG_STORED };
#endif
