/* machine.h: a machine made of fibers that runs kernels: blocks of threads, warps, shared memory, asynchronous copies; and
 * what sm_90a has beside that: barriers in shared memory, tensor copies, products of a warpgroup, named barriers, registers
 * that move.
 *
 * A thread of a block is a fiber. Where the real machine leaves something to chance, this one chooses by a seed, to harm:
 * shared memory and the threads' stacks hold NaN patterns before use; a copy's bytes are not there before they are waited
 * for, in any order, a tensor copy's row by row; products read their operands at any time until they are waited for, and
 * their accumulators hold signalling NaNs meanwhile; warps run in any order. What happens before what is known exactly, by
 * clocks. It watches, and ends a launch that does one of these, saying which and where:
 *   race                a thread, copy or product reads or writes shared memory that another wrote, or writes what another
 *                       read, and nothing orders the two: fk_sync, fk_sync_some, a barrier's phase, products waited for
 *   unfinished copy     shared memory is touched while a copy to it is under way; or a thread or block ends with one
 *   unfinished products a thread ends with products under way
 *   missing proxy fence a product reads, or a tensor copy writes, what a thread wrote and did not fence after that
 *   swizzle mismatch    a product reads otherwise than a tensor copy placed it; or a copy's destination cannot be so placed
 *   descriptor          a product's operand is not as descriptors say what is
 *   map                 a tensor copy by something that is no map
 *   barrier             not opened, opened twice, not fenced, too many arrivals, more bytes than expected, touched by
 *                       ordinary accesses, or half a phase when the block ends
 *   phase error         a thread waits again for the phase it waited for last; or nobody can go on, and a thread waits for a
 *                       phase after it has missed one
 *   named barrier       its number, its count, threads that disagree about it, a warp that comes twice
 *   accumulators        written while products were under way, or part of others that are; not settled after a wait (before
 *                       that they read as signalling NaNs), or settled without one
 *   registers           an operand changed while a product was under way; changed to a number that cannot be
 *   missing begin       a product without fk_products_begin since its registers may have been written
 *   out of bounds       shared or global memory that the launch does not have, or may not write; a misaligned address
 *   turn                in memory that blocks hand on to each other, a block comes to what another did, and no lock says that it is its turn
 *   owner               a block writes global memory that another block of the launch has read or written, or reads what
 *                       another has written; or reads or writes what blocks of the launch add to by atomics, which
 *                       they may, in an order drawn by the seed, and is there when the launch has ended
 *   divergence          lanes of a warp come together at different places; warps of a warpgroup or block likewise
 *   deadlock            nobody can go on
 *
 * An array given as accumulators or as a product's registers must be the same, and alive, until the product has been waited
 * for. That registers were written since fk_products_begin is seen by fk_products_wait_N and, for operands, fk_pack_T.
 */
#ifndef MACHINE_H
#define MACHINE_H
#include <stdbool.h>
#include <stdint.h>

struct fk_map;

enum { MACHINE_THREADS = 384, MACHINE_RESIDENT = 3, MACHINE_RANGES = 16, MACHINE_TEXT = 400, MACHINE_SHARED_BASE = 1024 };

/* Global memory of a launch. Reads and writes of memory with `owners` (one a word of 4 bytes, zeroed) are watched for
 * sharing between blocks: which there must not be; or, where it is `handed` on, only in an order that locks make. */
typedef struct machine_range {
    const char *name;
    uint64_t begin, end;
    bool writable;
    uint32_t *owners;
    bool handed;
} machine_range;

typedef struct machine_launch {
    void (*kernel)(const void *parameters);
    const void *parameters;
    uint32_t blocks, threads, shared; /* threads: a multiple of 32; shared: bytes */
    const machine_range *ranges;
    uint32_t range_count;
    uint64_t seed;
    uint32_t resident;  /* blocks that run at the same time, at most MACHINE_RESIDENT; 0: one */
    uint32_t registers; /* of a thread when it begins; 0: as many as there are for so many threads, at most 248 */
} machine_launch;

/* A tensor of rows as the copy engine knows it: numbers of `element` bytes; strides (bytes) of the second and third
 * dimension; box: how many of each dimension come at once; swizzle: 0, or MACHINE_SWIZZLE_128. */
enum { MACHINE_SWIZZLE_128 = 3 };
typedef struct machine_map {
    uint64_t base, dims[3], strides[2];
    uint32_t box[3], element, swizzle;
} machine_map;
/* As a map of this machine. False where no driver would make one: what is misaligned, empty or too large. */
bool machine_map_encode(struct fk_map *out, const machine_map *map);

typedef struct machine machine;
machine *machine_new(void); /* NULL when out of memory */
void machine_free(machine *m);
/* Runs all blocks, in a seeded order. False: `text` says what went wrong. One thread at a time. */
bool machine_run(machine *m, const machine_launch *launch, char text[MACHINE_TEXT]);
#endif
