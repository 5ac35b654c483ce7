/* machine.h: a machine made of fibers that runs kernels on the CPU: CTAs of threads, warps, shared memory and cp.async;
 * and what sm_90a has beside those: mbarriers, TMA loads, WGMMA, named barriers, and setmaxnreg. (Its error messages
 * say "product" for a WGMMA, "tensor copy" for a TMA load, "barrier" for an mbarrier, and "block" for a CTA.)
 *
 * Each thread of a CTA is a fiber. Where a real GPU leaves something open, this machine chooses by a seed, and so as to
 * do harm:
 *   - Shared memory holds NaN patterns before it is written. So do the threads' stacks in one launch of four; in others
 *     they hold what the launch before has left.
 *   - The bytes of a copy are not there before somebody waits for them. They come in any order, those of a TMA load row
 *     by row.
 *   - A WGMMA reads its operands at any time until it is waited for. Meanwhile its accumulators hold signalling NaNs.
 *   - Warps run in any order.
 * The machine knows exactly, by vector clocks, what happens before what. It ends a launch that does one of the
 * following, and says which and where:
 *   race                  a thread, copy or product reads shared memory that another wrote, or writes what another
 *                         wrote or read, and nothing orders the two (fk_sync, a named barrier, a phase of an
 *                         mbarrier, a wait for products)
 *   unfinished copy       shared memory is touched while a copy to it is under way; or a thread or CTA ends before its
 *                         copy, or its bulk addition, has
 *   unfinished products   a thread ends before its products have
 *   missing proxy fence   a product reads, or a TMA load overwrites, what a thread wrote and did not fence afterwards;
 *                         or a thread begins a TMA load after it has waited for an arrival, and has not fenced global
 *                         memory since; or a bulk addition reads what was not fenced, or begins after a thread of the
 *                         CTA has acquired a lock and not fenced since
 *   swizzle mismatch      a product reads in another swizzle than a TMA load wrote; or a TMA load goes to a place
 *                         where its swizzle is not possible
 *   descriptor            a product's descriptor does not describe what is there
 *   map                   a TMA load uses something that is no map
 *   barrier               an mbarrier is not initialised, initialised twice or not fenced; too many threads arrive,
 *                         more bytes come than expected, ordinary accesses touch it, or it is within a phase when the
 *                         CTA ends
 *   phase error           a thread waits a second time for the phase that it waited for last; or there is a deadlock,
 *                         and a thread waits for a phase after it has missed one
 *   named barrier         its number or its count is wrong, threads disagree about the count, or a warp comes twice
 *   accumulators          they are written while products on them are under way, overlap others that are, are not
 *                         settled after a wait (until then they read as signalling NaNs), or are settled without a
 *                         wait
 *   registers             an operand in registers changes while its product is under way; or a warpgroup asks for a
 *                         number of registers that it cannot have
 *   missing begin         a product without an fk_wgmma_fence since its registers may have been written
 *   out of bounds         an access to shared or global memory that the launch does not have or may not write; a
 *                         misaligned address
 *   turn                  in memory that CTAs hand on to each other, a CTA touches what another touched, and no lock
 *                         says that it is its turn
 *   owner                 a CTA writes global memory that another CTA of the launch has read or written, or reads what
 *                         another has written. CTAs may add to the same memory by atomics, in an order that the seed
 *                         draws; until the launch has ended, nobody may read or write that memory in another way
 *   divergence            the lanes of a warp come together at different places; or the warps of a warpgroup or a CTA
 *                         do
 *   deadlock              no thread can continue
 *
 * An array that is given as accumulators or operands of a product must stay the same array, and alive, until the
 * product has been waited for. Writes to registers since fk_wgmma_fence are noticed by fk_wgmma_wait_N and, for
 * operands, by fk_pack_T.
 */
#ifndef MACHINE_H
#define MACHINE_H
#include <stdbool.h>
#include <stdint.h>

struct fk_map;

enum { MACHINE_THREADS = 384, MACHINE_RESIDENT = 3, MACHINE_RANGES = 16, MACHINE_TEXT = 400,
       MACHINE_SHARED_BASE = 1024 };

/* A range of a launch's global memory. If `owners` is not NULL (one for each word of 4 bytes, all 0), the machine
 * watches which CTAs touch each word. Two CTAs must not touch the same word, unless `handed` is set; then locks must
 * order their accesses. */
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
    uint32_t resident;  /* how many CTAs run at the same time, at most MACHINE_RESIDENT; 0: one */
    uint32_t registers; /* of a thread at the beginning; 0: as many as there are for so many threads, at most 248 */
    /* Called when nobody can go on, if it is not NULL: the world outside of the kernel gets on by one step. False:
     * there is nothing left to do. */
    bool (*outside)(void *context);
    void *outside_context;
} machine_launch;

/* The tensor map of a tensor in global memory, as TMA uses it:
 *   element   bytes of one number
 *   dims      how many numbers there are along each of the four dimensions
 *   strides   bytes from one number to the next along dimensions 1 to 3; along dimension 0 they are adjacent
 *   box       how many numbers along each dimension one load copies
 *   swizzle   0 or MACHINE_SWIZZLE_128 */
enum { MACHINE_SWIZZLE_128 = 3, MACHINE_DIMS = 4 };
typedef struct machine_map {
    uint64_t base, dims[MACHINE_DIMS], strides[MACHINE_DIMS - 1];
    uint32_t box[MACHINE_DIMS], element, swizzle;
} machine_map;
/* Makes a map. False: a driver would make none, because something is misaligned, empty or too large. */
bool machine_map_encode(struct fk_map *out, const machine_map *map);

/* Where a kernel uses a primitive, for messages: that of the thread that runs is at machine_here. */
typedef struct machine_place {
    const char *file;
    int line;
} machine_place;
extern _Thread_local machine_place *machine_here __attribute__((tls_model("initial-exec")));
__attribute__((always_inline)) static inline void machine_note(const char *file, int line) {
    *machine_here = (machine_place){file, line};
}

typedef struct machine machine;
machine *machine_new(void); /* NULL when out of memory */
void machine_free(machine *m);
/* Runs all CTAs in an order that the seed draws. False: `text` says what went wrong. A machine serves one thread at
 * a time. */
bool machine_run(machine *m, const machine_launch *launch, char text[MACHINE_TEXT]);
#endif
