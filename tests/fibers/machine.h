/* machine.h: a machine made of fibers that runs kernels: blocks of threads, warps, shared memory, asynchronous copies.
 *
 * A thread of a block is a fiber. Where the real machine leaves something to chance, this one chooses by a seed, to harm:
 * shared memory and the threads' stacks hold NaN patterns before use; a copy's bytes are not there before they are waited
 * for, in any order; warps run in any order. It watches, and ends a launch that does one of these, saying which and where:
 *   race              a thread reads or writes shared memory that another wrote or read since the last fk_sync
 *   unfinished copy   shared memory is touched while a copy to it is under way; or a thread ends with such a copy
 *   out of bounds     shared or global memory that the launch does not have, or may not write; a misaligned address
 *   owner             a block writes global memory that another block of the launch has read or written, or reads what
 *                     another has written; or reads or writes what blocks of the launch add to by atomics, which
 *                     they may, in an order drawn by the seed, and is there when the launch has ended
 *   divergence        lanes of a warp come together at different places; warps of a block likewise
 *   deadlock          nobody can go on
 */
#ifndef MACHINE_H
#define MACHINE_H
#include <stdbool.h>
#include <stdint.h>

enum { MACHINE_THREADS = 256, MACHINE_RESIDENT = 3, MACHINE_RANGES = 16, MACHINE_TEXT = 400, MACHINE_SHARED_BASE = 1024 };

/* Global memory of a launch. Reads and writes of memory with `owners` (one a word of 4 bytes, zeroed) are watched for
 * sharing between blocks. */
typedef struct machine_range {
    const char *name;
    uint64_t begin, end;
    bool writable;
    uint32_t *owners;
} machine_range;

typedef struct machine_launch {
    void (*kernel)(const void *parameters);
    const void *parameters;
    uint32_t blocks, threads, shared; /* threads: a multiple of 32; shared: bytes */
    const machine_range *ranges;
    uint32_t range_count;
    uint64_t seed;
    uint32_t resident; /* blocks that run at the same time, at most MACHINE_RESIDENT; 0: one */
} machine_launch;

typedef struct machine machine;
machine *machine_new(void); /* NULL when out of memory */
void machine_free(machine *m);
/* Runs all blocks, in a seeded order. False: `text` says what went wrong. One thread at a time. */
bool machine_run(machine *m, const machine_launch *launch, char text[MACHINE_TEXT]);
#endif
