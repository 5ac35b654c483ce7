/* ptx.h: a machine that executes PTX, as nvcc prints it, on the processor in front of you: for tests only.
 *
 * A module is a text; a launch is a kernel of it, a grid and memory. Warps execute an instruction for all lanes that
 * are at it; warps and blocks are interleaved by a seed. Semantics are those of NVIDIA's manual "Parallel Thread
 * Execution ISA", and what that leaves undefined ends the launch, with block, warp, lane and line: not known
 * an instruction, a modifier, a directive or an operand that no table here has: when the text is read nobody wrote
 * a register or shared memory that was never written is used as an address, to branch, or stored to global memory.
 * Until then such numbers spread, lane by lane and byte by byte, through what is computed of them out of bounds
 * memory that the launch was not given, or may not write; misaligned addresses race                a warp reads or
 * writes shared memory that another wrote, or writes what another read, and nothing orders the two; a block likewise
 * with another block's global memory unfinished copy     shared memory is touched while a copy to it is under way, or
 * a thread ends with one divergence          lanes of a warp wait for each other at different instructions deadlock
 * nobody can go on Copies land as late as they may. The approximate instructions are exact here; sums of a product are
 * in one order of many.
 *
 * Instructions are tables of forms, one for each mnemonic with all of its modifiers: what no table has is refused. To
 * add some: a file with one more table, named in `tables` of forms.c (forms.h declares it). A form says its operands,
 * and its function does the instruction for the lanes of a mask.
 */
#ifndef PTX_H
#define PTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PTX_LANES = 32, PTX_ERROR = 600, PTX_WARPS = 32, PTX_BARRIERS = 16, PTX_AGENTS = 16 };
#define PTX_UNDER_WAY UINT32_MAX /* when shared memory was read: it still is */
#define PTX_ALL 0xffffffffu

typedef struct ptx_warp ptx_warp;
typedef struct ptx_block ptx_block;
typedef struct ptx_machine ptx_machine;
typedef struct ptx_insn ptx_insn;

/* --- what a text becomes ------------------------------------------------------------------------------------------ */

/* An operand: where its 32 lanes are. Registers of 16 and 32 bits are 32 uint32_t, of 64 bits 32 uint64_t, predicates
 * one word, a bit a lane. Constants are laid out likewise, once for all warps. */
typedef enum ptx_kind { PTX_REGISTER, PTX_CONSTANT, PTX_ADDRESS, PTX_LABEL, PTX_NOWHERE } ptx_kind;
typedef struct ptx_operand {
    uint8_t kind;
    uint8_t constant; /* which of a warp's bases `at` counts from: 0 its registers, 1 the constants */
    uint8_t bits;     /* 1, 16, 32, 64 */
    bool negated;     /* !%p */
    uint32_t at;      /* bytes */
    uint32_t number;  /* of the register, for what is known of it; 0: known */
    int64_t value;    /* of an integer constant; what an address adds; a label's instruction */
} ptx_operand;

/* What an instruction did, and how its warp goes on. */
typedef enum ptx_next {
    PTX_NEXT,  /* to the next instruction */
    PTX_JUMP,  /* the lanes that executed it go to its label */
    PTX_YIELD, /* to the next, but others first: it reads what others change, and may be read again and again */
    PTX_BLOCK, /* to the next, once the warp's `blocked` is false */
    PTX_AGAIN, /* this instruction once more, once others have run */
    PTX_END,   /* these lanes have ended */
    PTX_FAIL   /* ptx_fail was called */
} ptx_next;
typedef ptx_next ptx_run_insn(ptx_warp *w, const ptx_insn *i, uint32_t mask);

/* Operands of a form, in order, the ones written first: r, d, h a 32-, 64-, 16-bit register, or what may stand for
 * one: an integer or float constant, a symbol's address, a special register; p a predicate; w a register of 16, 32 or
 * 64 bits; a an address in brackets; c an integer constant; L a label; {4r} a vector, [ ] where there is more than one
 * in brackets; |, _ are themselves. Those before < are written. */
enum { PTX_TOGETHER = 1 }; /* flags: all lanes come to it before any goes on */
typedef struct ptx_form {
    const char *name, *operands;
    ptx_run_insn *run;
    uint32_t data, flags;
    uint32_t order; /* inside */
} ptx_form;
/* Forms of that name, which lie next to each other; NULL: none. */
const ptx_form *ptx_form_find(const char *name, size_t length, size_t *count);

struct ptx_insn {
    const ptx_form *form;
    const ptx_operand *operands; /* vectors' elements one by one; addresses: the base */
    uint32_t count, line;
    ptx_operand guard; /* bits 0: none */
    const char *text;  /* the statement, to its ';' */
};

typedef struct ptx_kernel {
    char name[64];
    ptx_insn *insns;
    uint32_t count;
    uint32_t parameters;      /* bytes */
    uint32_t threads;         /* most, .maxntid; 0: not said */
    uint32_t registers, file; /* numbers; bytes of a warp's */
    uint32_t local;           /* bytes a thread */
} ptx_kernel;

typedef struct ptx_module ptx_module;
/* NULL: `error` (PTX_ERROR bytes) says why, with the line. */
ptx_module *ptx_module_new(const char *text, char *error);
void ptx_module_free(ptx_module *m);
const ptx_kernel *ptx_module_kernel(const ptx_module *m, const char *name);
const char *ptx_module_target(const ptx_module *m); /* "sm_80" */

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Global memory of a launch: addresses are the process's own. */
typedef struct ptx_range {
    const char *what;
    uint64_t begin, end;
    bool writable;
} ptx_range;

typedef struct ptx_launch {
    const ptx_module *module;
    const ptx_kernel *kernel;
    const void *parameters;
    size_t parameter_bytes;
    uint32_t blocks, threads, shared; /* shared: bytes of dynamic shared memory */
    uint32_t resident;                /* blocks that run side by side */
    const ptx_range *ranges;
    uint32_t range_count;
    uint64_t seed;
    uint64_t most;                    /* instructions of warps, after which it is said not to end; 0: many */
} ptx_launch;
/* False: `error` (PTX_ERROR bytes) says what went wrong, and global memory is as it was left. */
bool ptx_run(const ptx_launch *launch, char *error);

/* --- inside a launch: for instructions ---------------------------------------------------------------------------- */

/* A copy to shared memory under way: cp.async. */
typedef struct ptx_copy {
    uint64_t from;
    uint32_t to, bytes, read; /* of bytes, `read` are read; the rest becomes 0 */
    uint8_t lane;
    uint32_t group;           /* how many commits came before it */
} ptx_copy;

struct ptx_warp {
    ptx_machine *machine;
    ptx_block *block;
    uint32_t index;          /* in its block */
    uint8_t *base[2];        /* registers, constants */
    uint32_t *known;         /* by a register's number: lanes that were written */
    uint32_t live, parked;   /* lanes that have not ended; that wait for others of the warp */
    uint32_t pc[PTX_LANES];
    bool blocked;
    const ptx_insn *now;
    uint32_t self, *clock;   /* what it knows of each warp, by number; its own number */
    ptx_copy *copies;
    uint32_t copy_count, copy_capacity, commits[PTX_LANES];
    uint8_t *local;          /* of all lanes, and what is known of it behind that */
    void *more;              /* what another table keeps for a warp: freed when the block ends */
};

/* Words of shared memory, and who did what to them last. */
typedef struct ptx_shadow {
    uint32_t *written;  /* the writer's clock then */
    uint32_t *read;     /* [word][warps] */
    uint8_t *writer;    /* warp + 1 */
    uint8_t *lane;      /* the writer's */
    uint8_t *known;     /* a bit a byte */
    uint8_t *under_way; /* a bit a byte: a copy will write it */
} ptx_shadow;

typedef struct ptx_barrier {
    uint32_t arrived, expected; /* threads */
    uint32_t waiting, all;      /* warps that wait; that came */
    uint32_t *clock;
} ptx_barrier;

struct ptx_block {
    ptx_machine *machine;
    uint32_t number, warp_count, shared, left; /* left: warps that have not ended */
    uint32_t first;      /* number of its first warp */
    bool running;
    ptx_warp *warps;
    uint8_t *memory;     /* shared */
    ptx_shadow shadow;
    ptx_barrier barriers[PTX_BARRIERS];
    void *more;          /* what another table keeps for a block: freed when it ends */
};

/* Where shared, local and parameter memory are in the generic space, and shared memory in its own: dynamic shared
 * memory begins at a multiple of 1024, not at 0. */
#define PTX_SHARED_FIRST 1024u
#define PTX_SHARED_WINDOW (UINT64_C(0x51) << 56)
#define PTX_LOCAL_WINDOW (UINT64_C(0x52) << 56)
#define PTX_PARAM_WINDOW (UINT64_C(0x53) << 56)

static inline const void *ptx_in(const ptx_warp *w, const ptx_operand *o) { return w->base[o->constant] + o->at; }
static inline void *ptx_out(const ptx_warp *w, const ptx_operand *o) { return w->base[0] + o->at; }
static inline uint32_t ptx_known(const ptx_warp *w, const ptx_operand *o) { return w->known[o->number]; }
static inline void ptx_define(ptx_warp *w, const ptx_operand *o, uint32_t mask, uint32_t known) {
    if (o->number) w->known[o->number] = (w->known[o->number] & ~mask) | (known & mask);
}
/* A register's or constant's bits in a lane, whatever its width; a predicate's with its negation. */
uint64_t ptx_value(const ptx_warp *w, const ptx_operand *o, unsigned lane);
void ptx_set(ptx_warp *w, const ptx_operand *o, unsigned lane, uint64_t x);
/* The lanes in which a predicate holds. */
uint32_t ptx_predicate(const ptx_warp *w, const ptx_operand *o);
/* The lanes of the mask must be known: an address, or what decides about others. */
bool ptx_must_know(ptx_warp *w, const ptx_operand *o, uint32_t mask, const char *what);

/* Says what went wrong at the warp's instruction; lane PTX_LANES: in no lane of its own. Only the first is kept. */
ptx_next ptx_fail(ptx_warp *w, unsigned lane, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint64_t ptx_roll(ptx_machine *m, uint64_t n); /* 0 .. n - 1, by the seed */
void ptx_moved(ptx_machine *m);                /* something that others may wait for has happened */

/* Memory. Each looks at bounds, alignment, order; NULL: failed. Shared addresses are in the shared space. */
typedef enum ptx_use { PTX_READ, PTX_WRITE, PTX_ATOMIC } ptx_use;
uint8_t *ptx_global(ptx_warp *w, unsigned lane, uint64_t address, uint32_t bytes, ptx_use use);
const uint8_t *ptx_shared_read(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align,
                               uint64_t *known);
bool ptx_shared_write(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align, const void *from,
                      uint64_t known);
/* A copy that will be made later: nobody may touch its bytes until ptx_shared_land. */
bool ptx_shared_begin(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align);
bool ptx_shared_land(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, const void *from);
const uint8_t *ptx_parameter(ptx_warp *w, unsigned lane, uint64_t address, uint32_t bytes);
bool ptx_shared_open(ptx_block *b);
void ptx_shared_close(ptx_block *b);

/* Order: what one warp released is known to who acquires it. A clock has a word for every warp; NULL: out of memory. */
uint32_t *ptx_clock_new(ptx_machine *m);
void ptx_release(ptx_warp *w, uint32_t *to); /* `to` joins what w knows; w's own clock goes on */
void ptx_acquire(ptx_warp *w, const uint32_t *from);
/* Lets copies of cp.async land, of lanes in the mask: all, or those of all but the last `keep` groups. */
bool ptx_copies_land(ptx_warp *w, uint32_t mask, bool all, uint32_t keep);

/* fp16 and bf16, as numbers. fp16: sign, 5 bits of exponent, 10 of fraction. */
static inline float ptx_half(uint16_t h) {
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023, sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t u = exponent == 31 ? fraction << 13 | 0x7f800000u : ((uint32_t)(h & 0x7fff) << 13) + (112u << 23);
    float x = (float)fraction * 0x1p-24f;
    if (!exponent) memcpy(&u, &x, 4);
    u |= sign;
    memcpy(&x, &u, 4);
    return x;
}
uint16_t ptx_to_half(float f);
uint16_t ptx_to_bf16(float f);
#endif
