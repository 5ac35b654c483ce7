/* module.h: what parse.c makes of a text, and the machine that executes it, for the files that do. */
#ifndef PTX_MODULE_H
#define PTX_MODULE_H
#include "tests/machines/ptx/ptx.h"

enum { PTX_KERNELS = 16 };
/* Special registers, at the beginning of every warp's file, in this order. */
typedef enum ptx_special { PTX_TID_X, PTX_NTID_X, PTX_CTAID_X, PTX_NCTAID_X, PTX_LANEID, PTX_WARPID, PTX_ZERO, PTX_ONE,
                           PTX_SPECIALS } ptx_special;
enum { PTX_SMALL = PTX_LANES * 4, PTX_LARGE = PTX_LANES * 8 }; /* bytes of a register */

struct ptx_module {
    char *text, target[16];
    ptx_kernel kernels[PTX_KERNELS];
    uint32_t kernel_count;
    uint8_t *constants;
    uint32_t constant_bytes, constant_room;
    uint32_t *index;         /* of constants, by hash: place + 1 */
    uint32_t index_room, index_count;
    uint64_t *index_keys;
    struct ptx_chunk *chunks; /* memory of operands */
};

/* Global memory of a launch, a word of 4 bytes: who wrote it last, who read it last (numbers of warps + 1), and when. */
typedef struct ptx_word {
    uint32_t writer, written, reader, read;
} ptx_word;
enum { PTX_BY_ATOMIC = 1u << 31 }; /* beside a writer: not by a plain store */

/* What a location's last release left there. */
typedef struct ptx_location {
    uint64_t address;
    uint32_t *clock;
} ptx_location;

struct ptx_machine {
    const ptx_launch *launch;
    const ptx_kernel *kernel;
    ptx_block *blocks; /* resident ones */
    uint32_t next_block, warps, agents, clocks; /* a block's clocks: of its warps, then of agents (async.h); words of a clock */
    bool far;          /* clocks know warps of all blocks, not only of their own */
    uint64_t state, executed, moved;
    uint32_t last_range;
    ptx_word **words;  /* by range; NULL until one is touched */
    ptx_location *locations;
    uint32_t location_count;
    char *error;
    bool failed;
};
/* memory.c: ptx_shared_* of a block, and what a launch knows of global memory. */
void ptx_memory_close(ptx_machine *m);
#endif
