/* machine_parts.h: declarations that the files of the machine of fibers share: its records, and the functions that one
 * file calls in another. */
#ifndef MACHINE_PARTS_H
#define MACHINE_PARTS_H
#include <stddef.h>

#include "tests/machines/fibers/machine.h"

enum {
    WARP = 32,
    WARPS = MACHINE_THREADS / WARP,
    GROUP = 128,
    GROUPS = MACHINE_THREADS / GROUP,
    COPIES = 512,    /* of a thread, under way */
    MBARRIERS = 64,   /* of a CTA, in its shared memory */
    NAMED = 16,      /* named barriers */
    BOXES = 128,     /* TMA loads of a CTA, under way */
    PRODUCTS = 128,  /* of a warpgroup, under way */
    TILES = 8,       /* accumulators of a warpgroup under way */
    COMMITS = 64,    /* groups of products not waited for */
    ADDITIONS = 4096, /* of a launch, under way */
    JOINS = 4,
    BOX_ROWS = 64,
    REGISTERS = 65536,   /* of a CTA */
    MOST_REGISTERS = 248 /* of a thread, unless the launch says */
};

/* --- what happens before what ------------------------------------------------------------------------------------- */

/* The components of a vector clock, by which the machine knows the order of accesses to shared memory. In this order:
 *   a time for each thread
 *   OF_FENCE      for each thread, up to where its writes are fenced
 *   OF_WARP       for each warp, the reads of all its lanes together
 *   OF_WGMMA      for each warpgroup, its WGMMAs
 *   OF_MBARRIER   for each mbarrier, the TMA loads that count for it */
enum {
    OF_FENCE = MACHINE_THREADS,
    OF_WARP = OF_FENCE + MACHINE_THREADS,
    OF_WGMMA = OF_WARP + WARPS,
    OF_MBARRIER = OF_WGMMA + GROUPS,
    CLOCKS = OF_MBARRIER + MBARRIERS,
    AGENTS = WARPS + GROUPS /* OF_WARP to OF_BARRIER */
};

/* What a thread, a copy or a product knows: for each clock, the latest time that it has seen. Once threads share it, it
 * is never changed. Its joins with others are kept with it. A join that would add nothing new is kept as NULL. */
typedef struct known {
    uint32_t references;
    uint64_t serial;
    struct known *next, *all;
    struct {
        uint64_t serial;
        struct known *result;
    } joins[JOINS];
    uint32_t join;
    uint32_t time[CLOCKS];
} known;

/* What several threads release, while it is being put together. */
typedef struct gathering {
    known *sum;
    uint64_t last; /* the serial of what was added last */
} gathering;

/* --- threads ------------------------------------------------------------------------------------------------------ */

typedef enum thread_state {
    READY,
    MEETS_WARP,
    MEETS_BLOCK,
    MEETS_VALUE,
    MEETS_MBARRIER,
    MEETS_NAMED_BARRIER,
    MEETS_WGMMA,
    MEETS_REGISTERS,
    ENDED
} thread_state;

/* Why the lanes of a warp come together. */
typedef enum meeting {
    MEET_LDMATRIX,
    MEET_LDMATRIX_TRANS,
    MEET_MMA_BF16,
    MEET_MMA_FP16,
    MEET_SHUFFLE,
    MEET_UNIFORM,
    MEET_FIRST,
    MEET_ANY,
    MEET_LAST,
    MEET_NAMED_SYNC,
    MEET_NAMED_ARRIVE,
    MEET_SETMAXNREG_INC,
    MEET_SETMAXNREG_DEC
} meeting;
typedef struct operands {
    uint32_t in[6], out[4];
    float c[4];
} operands;

typedef struct copy {
    uint32_t to, bytes;
    uint64_t from;
    bool taken; /* data holds the source as it was when the copy was asked for */
    uint8_t data[16];
} copy;

/* An addition to global memory that is still under way: the number, and which thread asked for it when. */
typedef struct addition {
    uint64_t to;
    float x;
    const struct cta *cta;
    uint32_t thread, time;
} addition;

/* A bulk addition under way (machine_bulk.c). */
typedef struct bulk bulk;

typedef machine_place place;

typedef struct thread {
    void *stack_pointer; /* while it does not run */
    struct machine *machine;
    struct cta *cta;
    uint32_t index; /* in the CTA */
    thread_state state;
    uint32_t seen; /* generation of what it waits for; the value; an mbarrier's parity; products */
    uint32_t waits; /* for which mbarrier or named barrier */
    place at;      /* of the primitive under way, or the last */
    operands *operands; /* up to here, what a meeting of the warp reads, in one line of the cache */
    const uint32_t *value; /* where it waits for a value */
    copy *copies; /* COPIES, once there were some */
    uint32_t copy_count;
    bulk *bulks;
    uint32_t bulk_count;
    known *order;
    uint32_t time, fenced; /* its clock; its writes up to `fenced` were fenced */
    bool waited;           /* for an arrival, and has not fenced since what TMA loads may read */
    bool acquired;         /* a lock, and has not fenced since what bulk additions may add to */
    int32_t phases[MBARRIERS]; /* of each mbarrier, the phase that it waited for last */
    uint32_t products, products_known; /* asked for, and known to have ended */
    uint32_t commits, commits_known, committed[COMMITS];
    bool begun, packed;
    void *sanitizer; /* what the sanitizer keeps of the fiber */
} thread;

typedef struct warp {
    uint32_t arrived, generation;
    meeting kind;
    place at;
    uint32_t time;       /* its clock */
    uint32_t named_seen; /* by the named barrier to which it came last */
} warp;

/* --- shared memory ------------------------------------------------------------------------------------------------ */

/* 16 bytes of shared memory: for each word, who wrote it last and when, and who has read it since. */
typedef struct chunk {
    uint32_t write_time[4], read_time[4]; /* time 0: nobody did */
    uint16_t writer[4], reader[4];        /* reader MANY: read_time is that of a row of times, of each thread */
    uint16_t agents;    /* bit i: warp or warpgroup OF_WARP + i has read it, at the time in the CTA's agent_times */
    bool split;         /* the words' writers differ */
    bool copying;       /* a copy to it is under way */
    uint8_t swizzle;    /* 0: unknown; or 1 + how the TMA load that wrote it placed it */
    uint8_t mbarrier[2]; /* 1 + the mbarrier that the half is */
} chunk;
enum { MANY = 0xffff };

/* --- sm_90a ------------------------------------------------------------------------------------------------------- */

typedef struct mbarrier {
    uint32_t at; /* byte of shared memory */
    uint32_t count, pending;
    int64_t bytes;
    uint32_t phases; /* that have ended */
    uint32_t opener, fenced; /* the thread that opened it, and its time when it had fenced that; 0: not yet */
    gathering arriving;
    known *ended; /* what those released who arrived, up to the last phase that ended */
} mbarrier;

typedef struct named_barrier {
    uint32_t threads, arrived, generation;
    uint32_t came; /* bit per warp */
    gathering arriving;
    known *ended;
} named_barrier;

/* A TMA load under way: rows of 128 bytes, which come in any order. */
typedef struct box {
    uint32_t to, mbarrier, swizzle;
    uint32_t left, first, step; /* rows still to come: row first + i step, modulo their number */
    uint64_t from[BOX_ROWS]; /* 0: outside of the tensor */
    uint32_t bytes;             /* of a row that are in the tensor */
    bool taken;
    struct thread *asker;
    uint8_t data[BOX_ROWS][128];
} box;

typedef enum product_kind { K_MAJOR, MN_MAJOR, FROM_REGISTERS } product_kind;
typedef struct product {
    uint32_t number;
    product_kind kind;
    uint32_t columns, add, commit;
    bool bf16;
    uint64_t a, b;
    place at;
    uint32_t issued, left; /* lanes that asked for it; that have not waited for it */
    uint32_t tile;
    const uint32_t *a_at[GROUP];
    uint32_t a_values[GROUP][4];
    struct {
        known *order;
        uint32_t lane, fenced; /* the only one with it and what it had fenced, or MANY */
    } orders[GROUP];
    uint32_t order_count;
} product;

/* Accumulators under way. */
typedef struct tile {
    uint32_t columns, lanes; /* lanes: that have them here */
    float *at[GROUP];
    bool here[GROUP];
    uint32_t last[GROUP]; /* the last product on them */
    float sums[64][256];
} tile;

typedef struct group {
    product products[PRODUCTS];
    tile tiles[TILES];
    uint32_t complete, done; /* products that all lanes have asked for; that have been computed */
} group;

/* A warpgroup's registers. */
typedef struct holding {
    uint32_t registers, wanted; /* of a thread; wanted 0: none */
    uint32_t warps, generation; /* that came to change them */
    uint32_t to;
    meeting way;
    place at;
} holding;

/* A CTA that runs. */
typedef struct cta {
    bool live;
    uint32_t number;
    thread *threads; /* MACHINE_THREADS */
    uint32_t guarded; /* of their stacks */
    warp warps[WARPS];
    group *groups;   /* GROUPS, once there were products */
    holding holdings[GROUPS];
    uint8_t *shared;
    chunk *chunks;
    uint32_t (*agent_times)[AGENTS]; /* per chunk; beside the chunks, since it need not be cleared for each CTA */
    uint32_t shared_capacity;
    uint32_t arrived, generation, ended;
    place sync_at;
    gathering syncing;
    known *synced;
    uint32_t (*times)[MACHINE_THREADS]; /* rows of times of readers */
    uint32_t times_count, times_capacity, times_free;
    mbarrier mbarriers[MBARRIERS];
    uint32_t mbarrier_count;
    named_barrier named[NAMED];
    box *boxes; /* BOXES, once there were TMA loads; those under way first */
    uint32_t box_count;
    uint32_t registers; /* that no warpgroup has */
    uint32_t acquired;  /* how many threads have acquired a lock and not fenced since */
} cta;

/* Order between CTAs: how often each has released something, what it knows of all others, and what locks hand on. */
typedef struct turn_lock {
    uint64_t address;
    uint32_t *known; /* per CTA */
} turn_lock;
typedef struct turns {
    uint32_t blocks; /* 0: nothing is handed on */
    uint32_t *time, *known; /* per CTA; per CTA a row of them */
    turn_lock *locks;
    uint32_t lock_count, lock_capacity;
} turns;

struct machine {
    const machine_launch *launch;
    turns turns;
    uint64_t random;
    uint32_t eager; /* how readily copies come: 0, only when nobody can go on */
    cta blocks[MACHINE_RESIDENT];
    struct machine *next_idle;
    thread *threads; /* of all CTAs */
    char *stacks;
    known *known_all, *known_free, none;
    uint64_t serial;
    void *main_stack_pointer;
    void *main_sanitizer;
    const void *main_stack;
    size_t main_stack_size;
    bool failed;
    char *text;
    addition additions[ADDITIONS]; /* that are under way */
    uint32_t addition_count;
};

/* The thread that runs. */
extern _Thread_local thread *machine_self __attribute__((tls_model("initial-exec")));

void machine_add_one(struct machine *m); /* one of those under way, drawn */
uint64_t machine_roll(struct machine *m, uint64_t n); /* 0 .. n - 1 */
/* Ends the launch with a message that says what is wrong, and in which CTA, warp, lane and line. */
_Noreturn void machine_fail(thread *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a thread that may not be running: the launch ends when somebody calls machine_look. */
void machine_wrong(const thread *where, const char *format, ...) __attribute__((format(printf, 2, 3)));
void machine_look(thread *t);
/* t waits, as its state says: others run until it can go on. */
void machine_pause(thread *t);
/* t lets others run, if the seed says so. */
void machine_give_way(thread *t);
/* All lanes of a warp meet here. True for the last one, which acts for all and then calls machine_met.
 */
bool machine_meet(thread *t, meeting kind, operands *mine);
void machine_met(thread *t);

/* --- machine_order.c: clocks */
known *machine_known(thread *t); /* nothing, one reference */
known *machine_keep(known *k);
void machine_drop(struct machine *m, known *k);
void machine_forget(struct machine *m);     /* all of them */
void machine_forget_block(cta *b);        /* those of a CTA */
void machine_release(thread *t, gathering *to);
void machine_gathered(thread *t, const gathering *from, known **out); /* in the place of what was there */
void machine_acquire(thread *t, known *released);
bool machine_knows(const thread *t, uint32_t clock, uint32_t time);

/* --- machine_memory.c: shared memory */
uint8_t *machine_shared(thread *t, uint32_t address, uint32_t bytes, uint32_t align);
/* Looks whether all of 16 bytes of shared memory that threads wrote has been fenced, so that the TMA may read it. */
void machine_fenced_reads(thread *t, uint32_t address);
/* Looks whether t may write there, by itself or (`async`) through a copy that others make. */
void machine_writes(thread *t, uint32_t address, uint32_t bytes, bool async);
void machine_wrote(cta *b, uint32_t address, uint32_t bytes, uint32_t writer, uint32_t time);
const uint8_t *machine_reads(thread *t, uint32_t address, uint32_t bytes, uint32_t align);
/* All lanes of t's warp read 16 bytes; `alike`: they know the same. */
const uint8_t *machine_warp_reads(thread *t, uint32_t address, bool alike);
/* Global memory. */
typedef enum use { READ, WRITE, ADD } use;
bool machine_turns_begin(struct machine *m);
void machine_turns_free(struct machine *m);
void machine_turns_release(thread *t, uint64_t address);
void machine_turns_acquire(thread *t, uint64_t address);
void machine_turns_access(thread *t, uint32_t *owner, const char *name, uint64_t byte, const char *verb);
void *machine_global(thread *t, uint64_t address, uint32_t bytes, uint32_t align, use how);

/* --- machine_async.c: barriers, TMA loads */
void machine_open_async(cta *b);
void machine_close_async(thread *t); /* when its last thread ends */
bool machine_progress(cta *b, bool must); /* some copies come; false: none are under way */
bool machine_phase_over(const thread *t);
bool machine_missed(const thread *t); /* it waits for a phase, and others ended meanwhile */

/* --- machine_products.c */
void machine_open_products(cta *b);
void machine_close_products(thread *t); /* when it ends */
bool machine_products_over(const thread *t);
bool machine_registers_over(const thread *t);
uint32_t machine_warps_missing(const cta *b); /* of a warpgroup that came to change its registers */
#endif
