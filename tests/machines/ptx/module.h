/* module.h: the records that the files of the PTX machine share: the module that parse.c makes of a text, and the state
 * of a launch that executes it. */
#ifndef PTX_MODULE_H
#define PTX_MODULE_H
#include "tests/machines/ptx/ptx.h"

enum { PTX_KERNELS = 48, PTX_GLOBALS = 16 };
/* Special registers. They stand at the beginning of every warp's registers, in this order. */
typedef enum ptx_special { PTX_TID_X, PTX_NTID_X, PTX_CTAID_X, PTX_NCTAID_X, PTX_LANEID, PTX_WARPID, PTX_ZERO, PTX_ONE,
                           PTX_SPECIALS } ptx_special;
enum { PTX_SMALL = PTX_LANES * 4, PTX_LARGE = PTX_LANES * 8 }; /* bytes of a register */

struct ptx_module {
    char *text, target[16];
    ptx_kernel kernels[PTX_KERNELS];
    uint32_t kernel_count;
    ptx_range globals[PTX_GLOBALS]; /* `what` is the name */
    uint32_t global_count;
    uint8_t *constants;
    uint32_t constant_bytes, constant_room;
    uint32_t *index;         /* finds constants by a hash: their place + 1 */
    uint32_t index_room, index_count;
    uint64_t *index_keys;
    struct ptx_chunk *chunks; /* memory of operands */
};

/* For each word of 4 bytes of global memory: who wrote it last, who read it last (numbers of warps + 1), and when. */
typedef struct ptx_word {
    uint32_t writer, written, reader, read;
} ptx_word;
enum { PTX_BY_ATOMIC = 1u << 31 }; /* a bit beside the writer: it was an atomic and no plain store */

/* What the last release at an address has left there. */
typedef struct ptx_location {
    uint64_t address;
    uint32_t *clock;
} ptx_location;

struct ptx_machine {
    const ptx_launch *launch;
    const ptx_kernel *kernel;
    ptx_block *blocks; /* resident ones */
    /* a block's clocks: of its warps, then of agents (async.h); words of a clock */
    uint32_t next_block, warps, agents, clocks;
    bool far;          /* clocks know the warps of all blocks, not only those of one block */
    uint64_t state, executed, moved;
    uint32_t last_range;
    ptx_word **words;  /* for each range and global variable; NULL until one of its words is touched */
    ptx_location *locations;
    uint32_t location_count;
    char *error;
    bool failed;
};
/* memory.c: how many ranges of global memory a launch has, global variables included; frees what it knows of them. */
uint32_t ptx_range_count(const ptx_launch *launch);
void ptx_memory_close(ptx_machine *m);
#endif
