/* ptx.h: a machine that executes PTX, as NVRTC prints it, on the CPU. It is for tests only.
 *
 * A module is a text. A launch is a kernel of it, a grid, and memory. An instruction of a warp is executed for all
 * lanes that have come to it; warps and CTAs (blocks, in its messages) are interleaved as a seed says. Semantics are
 * those of NVIDIA's manual "Parallel Thread Execution ISA". What the manual leaves undefined ends the launch, with a
 * message that names block, warp, lane and line:
 *   not known         an instruction, modifier, directive or operand that no table here has;
 *                     found when the text is read
 *   nobody wrote      a register or shared memory that was never written is used as an address or to branch, or is
 *                     stored to global memory. Before that, whatever is computed from such a value counts as never
 *                     written, too, lane by lane and byte by byte
 *   out of bounds     memory that the launch was not given, or may not write; a misaligned address
 *   race              a warp reads shared memory that another wrote, or writes what another wrote or read, and
 *                     nothing orders the two; likewise two CTAs in global memory
 *   unfinished copy   shared memory is touched while a copy to it is under way; or a thread ends before its copy has
 *   divergence        lanes of a warp wait for each other at different instructions
 *   deadlock          no warp can continue
 * Copies arrive as late as they may. A clock advances by one for each instruction of a warp. The approximate
 * instructions are exact here. The sums of a product are added in one of the many orders that are allowed.
 *
 * Instructions are tables of forms: one form for each mnemonic with all its modifiers. What no table has is refused. To
 * add some, write a file with one more table and name it in `tables` of forms.c (forms.h declares it). A form says its
 * operands, and its function does the instruction for the lanes of a mask.
 */
#ifndef PTX_H
#define PTX_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { PTX_LANES = 32, PTX_ERROR = 600, PTX_WARPS = 32, PTX_BARRIERS = 16, PTX_AGENTS = 16 };
#define PTX_UNDER_WAY UINT32_MAX /* in the place of a time when shared memory was read: it is still being read */
#define PTX_ALL 0xffffffffu

typedef struct ptx_warp ptx_warp;
typedef struct ptx_block ptx_block;
typedef struct ptx_machine ptx_machine;
typedef struct ptx_insn ptx_insn;

/* --- what a text becomes ------------------------------------------------------------------------------------------ */

/* An operand: where the values of its 32 lanes are. A register of 16 or 32 bits is 32 uint32_t, one of 64 bits is 32
 * uint64_t, a predicate is one word with a bit for each lane. Constants have the same layout and exist once for all
 * warps.
 */
typedef enum ptx_kind { PTX_REGISTER, PTX_CONSTANT, PTX_ADDRESS, PTX_LABEL, PTX_NOWHERE } ptx_kind;
typedef struct ptx_operand {
    uint8_t kind;
    uint8_t constant; /* which of a warp's bases `at` counts from: 0 its registers, 1 the constants */
    uint8_t bits;     /* 1, 16, 32, 64 */
    bool negated;     /* !%p */
    uint32_t at;      /* bytes */
    uint32_t number;  /* of the register, to look up what is known of it; 0: always known */
    int64_t value;    /* an integer constant; the offset of an address; the instruction of a label */
} ptx_operand;

/* What an instruction did, and how its warp goes on. */
typedef enum ptx_next {
    PTX_NEXT,  /* to the next instruction */
    PTX_JUMP,  /* the lanes that executed it go to its label */
    PTX_YIELD, /* to the next, but others run first: it reads what others change, and may be in a loop that waits */
    PTX_BLOCK, /* to the next, once the warp's `blocked` is false */
    PTX_AGAIN, /* this instruction once more, once others have run */
    PTX_END,   /* these lanes have ended */
    PTX_FAIL   /* ptx_fail was called */
} ptx_next;
typedef ptx_next ptx_run_insn(ptx_warp *w, const ptx_insn *i, uint32_t mask);

/* The operands of a form as a string, in order. Those left of `<` are written, those right of it are read. A letter
 * stands for
 *   r, d, h   a 32-, 64- or 16-bit register, or what may stand in its place: an integer or float constant, the
 *             address of a symbol, a special register
 *   p         a predicate
 *   w         a register of 16, 32 or 64 bits
 *   a         an address in brackets
 *   t         a clock: %globaltimer or %clock64
 *   c         an integer constant
 *   L         a label
 * {4r} is a vector of four, [ ] stands around several operands in brackets; | and _ stand for themselves.
 */
enum { PTX_TOGETHER = 1 }; /* a flag: all lanes of the warp must come to it before any goes on */
typedef struct ptx_form {
    const char *name, *operands;
    ptx_run_insn *run;
    uint32_t data, flags;
    uint32_t order; /* inside */
} ptx_form;
/* Finds the forms with that name, which lie next to each other; NULL: there are none. */
const ptx_form *ptx_form_find(const char *name, size_t length, size_t *count);

struct ptx_insn {
    const ptx_form *form;
    const ptx_operand *operands; /* the elements of a vector one by one; of an address its base */
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
/* Reads a text. NULL: `error` (PTX_ERROR bytes) says why, and in which line. */
ptx_module *ptx_module_new(const char *text, char *error);
void ptx_module_free(ptx_module *m);
const ptx_kernel *ptx_module_kernel(const ptx_module *m, const char *name);
const char *ptx_module_target(const ptx_module *m); /* "sm_80" */
typedef struct ptx_range ptx_range;
/* A global variable, zeros at first; launches read and write it. NULL: there is none of that name. */
const ptx_range *ptx_module_global(const ptx_module *m, const char *name);

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* Global memory of a launch: addresses are the process's own. */
struct ptx_range {
    const char *what;
    uint64_t begin, end;
    bool writable;
};

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
    /* Called when nobody can go on, if it is not NULL: the world outside of the kernel gets on by one step. False:
     * there is nothing left to do. */
    bool (*outside)(void *context);
    void *outside_context;
    uint64_t most;                    /* after so many instructions of warps it is said not to end; 0: a large number */
} ptx_launch;
/* Runs a launch. False: `error` (PTX_ERROR bytes) says what went wrong; global memory stays as it was then. */
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
    uint32_t *known;         /* for each register, by its number: the lanes in which it was written */
    uint32_t live, parked;   /* lanes that have not ended; lanes that wait for others of the warp */
    uint32_t pc[PTX_LANES];
    bool blocked;
    uint64_t asleep;         /* until this time */
    const ptx_insn *now;
    uint32_t self, *clock;   /* its number among all warps; what it knows of each warp, by that number */
    uint32_t unfenced, unproxied; /* lanes that looked at system scope and did not fence: at all; for TMA loads */
    uint32_t acquired;       /* its clock when it acquired something that it has not fenced for bulk additions; or 0 */
    uint32_t *seen;          /* what relaxed reads have shown it; it knows that after a fence */
    ptx_copy *copies;
    uint32_t copy_count, copy_capacity, commits[PTX_LANES];
    uint8_t *local;          /* local memory of all lanes; after it, which of its bytes are known */
    void *more;              /* what another table keeps for the warp; freed when the block ends */
};

/* For each word of shared memory: who did what to it last. */
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
    void *more;          /* what another table keeps for the block; freed when it ends */
};

/* The places of shared, local and parameter memory in the generic address space. Within the shared space, dynamic
 * shared memory begins at a multiple of 1024 and not at 0, so that a kernel which assumes that it begins at 0 is
 * caught.
 */
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
/* Reads or writes the bits of a register or constant in one lane, whatever its width. A predicate is read with its
 * negation. */
uint64_t ptx_value(const ptx_warp *w, const ptx_operand *o, unsigned lane);
void ptx_set(ptx_warp *w, const ptx_operand *o, unsigned lane, uint64_t x);
/* The lanes in which a predicate holds. */
uint32_t ptx_predicate(const ptx_warp *w, const ptx_operand *o);
/* Fails unless the operand was written in all lanes of the mask. Addresses need that, and whatever decides what other
 * lanes do. */
bool ptx_must_know(ptx_warp *w, const ptx_operand *o, uint32_t mask, const char *what);

/* Fails the launch at the warp's instruction, in this lane; PTX_LANES: in no particular lane. Only the first failure
 * is kept. */
ptx_next ptx_fail(ptx_warp *w, unsigned lane, const char *format, ...) __attribute__((format(printf, 3, 4)));
uint64_t ptx_roll(ptx_machine *m, uint64_t n); /* 0 .. n - 1, by the seed */
void ptx_moved(ptx_machine *m);                /* says that something has happened for which others may wait */

/* Accesses to memory. Each checks bounds, alignment and order. NULL or false: it failed. Shared addresses are those
 * of the shared space. */
typedef enum ptx_use { PTX_READ, PTX_WRITE, PTX_ATOMIC } ptx_use;
uint8_t *ptx_global(ptx_warp *w, unsigned lane, uint64_t address, uint32_t bytes, ptx_use use);
const uint8_t *ptx_shared_read(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align,
                               uint64_t *known);
bool ptx_shared_write(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align, const void *from,
                      uint64_t known);
/* Begins a copy that arrives later: nobody may touch its bytes until ptx_shared_land. */
bool ptx_shared_begin(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align);
bool ptx_shared_land(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, const void *from);
const uint8_t *ptx_parameter(ptx_warp *w, unsigned lane, uint64_t address, uint32_t bytes);
bool ptx_shared_open(ptx_block *b);
void ptx_shared_close(ptx_block *b);

/* A clock has a word for every warp. A warp that acquires a clock learns what others have released into it. NULL: out
 * of memory. */
uint32_t *ptx_clock_new(ptx_machine *m);
void ptx_release(ptx_warp *w, uint32_t *to); /* adds what w knows to `to`; then w's own clock goes on */
void ptx_acquire(ptx_warp *w, const uint32_t *from);
/* Lets copies that lanes of the mask began by cp.async arrive: all of them, or all but those of the last `keep`
 * groups. */
bool ptx_copies_land(ptx_warp *w, uint32_t mask, bool all, uint32_t keep);

/* Conversions of fp16 (a sign, 5 bits of exponent, 10 of fraction) and bf16. */
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
