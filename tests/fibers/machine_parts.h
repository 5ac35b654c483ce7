/* machine_parts.h: inside the machine. */
#ifndef MACHINE_PARTS_H
#define MACHINE_PARTS_H
#include <stddef.h>

#include "machine.h"

enum { WARP = 32, COPIES = 512, ADDITIONS = 4096 };

typedef enum thread_state { READY, MEETS_WARP, MEETS_BLOCK, MEETS_VALUE, ENDED } thread_state;

/* What a warp comes together for. */
typedef enum meeting { MEET_MATRICES, MEET_TRANSPOSED, MEET_MULTIPLY_BF16, MEET_MULTIPLY_FP16, MEET_EXCHANGE } meeting;
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

/* A number that will be added to. */
typedef struct addition {
    uint64_t to;
    float x;
} addition;

typedef struct place {
    const char *file;
    int line;
} place;

typedef struct thread {
    void *stack_pointer; /* while it does not run */
    struct machine *machine;
    struct block *block;
    uint32_t index; /* in the block */
    thread_state state;
    uint32_t seen; /* generation of what it waits for; or the value */
    const uint32_t *value; /* where it waits for a value */
    place at;      /* of the primitive under way, or the last */
    operands *operands;
    copy copies[COPIES];
    uint32_t copy_count;
    void *sanitizer; /* what the sanitizer keeps of the fiber */
} thread;

typedef struct warp {
    uint32_t arrived, generation;
    meeting kind;
    place at;
} warp;

/* Who touched a word of shared memory last, and between which two fk_syncs (0: nobody did). */
typedef struct shadow {
    uint32_t write_epoch, read_epoch;
    uint16_t writer, reader; /* reader MANY: several */
    uint16_t copying;        /* copies to it that are under way */
} shadow;
enum { MANY = 0xffff };

/* A block that runs. */
typedef struct block {
    bool live;
    uint32_t number;
    thread *threads; /* MACHINE_THREADS */
    warp warps[MACHINE_THREADS / WARP];
    uint8_t *shared;
    shadow *shadows;
    uint32_t shared_capacity;
    uint32_t arrived, generation, epoch, ended;
    place sync_at;
} block;

struct machine {
    const machine_launch *launch;
    uint64_t random;
    block blocks[MACHINE_RESIDENT];
    thread *threads; /* of all blocks */
    char *stacks;
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
/* Ends the launch: says what, and block, warp, lane and line. */
_Noreturn void machine_fail(thread *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* t waits, by its state: others run until it can go on. */
void machine_pause(thread *t);
#endif
