/* machine.c: the machine's blocks: fibers, their order, where they meet, and how a launch ends.
 *
 * Requires: see machine.h. Cost: a switch between fibers is a few instructions on x86-64, a system call elsewhere. Memory:
 *           64 KiB of stack and 20 KiB of pending copies a thread.
 * Method:   fibers hand over to each other. A thread that waits gives way to the next lane of its warp that can go on; if
 *           there is none, to a warp drawn at random, of any block; if there is none, the launch is stuck. Whoever ends
 *           last in its block hands back to machine_run, which begins the next block, as does a failure, from wherever it
 *           is: fibers hold nothing that must be freed.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "machine_parts.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAVE_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAVE_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define HAVE_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAVE_THREAD_SANITIZER 1
#endif
#endif
#ifdef HAVE_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#elif defined(HAVE_SANITIZER)
#include <sanitizer/common_interface_defs.h>
#include <sanitizer/asan_interface.h>
#endif

enum { STACK = 64 << 10, GUARD = 4096, POISONED = 16 << 10 };

_Thread_local thread *machine_self;

/* --- fibers ------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Saves what a function must keep, changes stacks, restores. A new fiber's stack is made to look as if it had been saved
 * here, with its entry as return address. */
void machine_switch(void **save, void *restore);
__asm__(".text\n.globl machine_switch\n.hidden machine_switch\n.type machine_switch, @function\nmachine_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n    ret\n"
        ".size machine_switch, .-machine_switch\n");

static void prepare_stack(thread *t, char *stack, void (*entry)(void)) {
    uintptr_t *top = (uintptr_t *)(stack + STACK);
    *--top = 0; /* entry begins as after a call: 8 bytes off a multiple of 16 */
    *--top = (uintptr_t)entry;
    for (int i = 0; i < 6; i++) *--top = 0;
    t->stack_pointer = top;
}
static void switch_stacks(void **save, void *restore) { machine_switch(save, restore); }
#else
#include <ucontext.h>
static void prepare_stack(thread *t, char *stack, void (*entry)(void)) {
    ucontext_t *context = (ucontext_t *)stack; /* at the far end of the stack */
    getcontext(context);
    context->uc_stack.ss_sp = stack + sizeof *context;
    context->uc_stack.ss_size = STACK - sizeof *context;
    context->uc_link = NULL;
    makecontext(context, entry, 0);
    t->stack_pointer = context;
}
static void switch_stacks(void **save, void *restore) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, restore);
}
#endif

static char *stack_of(const thread *t) {
    return t->machine->stacks + (size_t)(t - t->machine->threads) * (STACK + GUARD) + GUARD;
}

/* From one fiber to another; NULL is the caller of machine_run. */
static void hand_over(machine *m, thread *from, thread *to) {
    void **save = from ? &from->stack_pointer : &m->main_stack_pointer;
    void *restore = to ? to->stack_pointer : m->main_stack_pointer;
    machine_self = to;
#ifdef HAVE_THREAD_SANITIZER
    __tsan_switch_to_fiber(to ? to->sanitizer : m->main_sanitizer, 0);
    switch_stacks(save, restore);
#elif defined(HAVE_SANITIZER)
    void *kept = NULL;
    __sanitizer_start_switch_fiber(&kept, to ? stack_of(to) : m->main_stack, to ? (size_t)STACK : m->main_stack_size);
    switch_stacks(save, restore);
    if (from) __sanitizer_finish_switch_fiber(kept, NULL, NULL);
    else __sanitizer_finish_switch_fiber(kept, &m->main_stack, &m->main_stack_size);
#else
    switch_stacks(save, restore);
#endif
}

static _Noreturn void leave(thread *t);

static void run_thread(void) {
    thread *t = machine_self;
    machine *m = t->machine;
#if defined(HAVE_SANITIZER) && !defined(HAVE_THREAD_SANITIZER)
    const void *stack;
    size_t size;
    __sanitizer_finish_switch_fiber(NULL, &stack, &size);
    if (!m->main_stack) m->main_stack = stack, m->main_stack_size = size;
#endif
    m->launch->kernel(m->launch->parameters);
    leave(t);
}

/* --- order -------------------------------------------------------------------------------------------------------- */

uint64_t machine_roll(machine *m, uint64_t n) {
    m->random ^= m->random << 13;
    m->random ^= m->random >> 7;
    m->random ^= m->random << 17;
    return (m->random * UINT64_C(0x2545f4914f6cdd1d) >> 32) % n;
}

/* Keeps what went wrong at thread `where`, and ends the launch; `t` runs. */
static _Noreturn void end_launch(thread *t, const thread *where, const char *format, va_list args) {
    machine *m = t->machine;
    const char *file = where->at.file ? strrchr(where->at.file, '/') : NULL;
    int used = vsnprintf(m->text, MACHINE_TEXT, format, args);
    if (used >= 0 && used < MACHINE_TEXT)
        snprintf(m->text + used, (size_t)(MACHINE_TEXT - used), " (block %u, warp %u, lane %u, %s:%d)", where->block->number,
                 where->index / WARP, where->index % WARP, file ? file + 1 : where->at.file ? where->at.file : "?",
                 where->at.line);
    m->failed = true;
    hand_over(m, t, NULL);
    abort(); /* nobody comes back here */
}

void machine_fail(thread *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    end_launch(t, t, format, args);
}

static _Noreturn void fail_at(thread *t, const thread *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void fail_at(thread *t, const thread *where, const char *format, ...) {
    va_list args;
    va_start(args, format);
    end_launch(t, where, format, args);
}

static bool can_go_on(const thread *t) {
    switch (t->state) {
    case READY: return true;
    case MEETS_WARP: return t->block->warps[t->index / WARP].generation != t->seen;
    case MEETS_BLOCK: return t->block->generation != t->seen;
    case MEETS_VALUE: return *t->value == t->seen;
    default: return false;
    }
}

/* Some thread that can run, of a warp drawn at random; NULL if nobody can. */
static thread *anyone(machine *m) {
    uint32_t warps = m->launch->threads / WARP, all = warps * MACHINE_RESIDENT;
    uint32_t start = (uint32_t)machine_roll(m, all);
    for (uint32_t w = 0; w < all; w++) {
        const block *b = &m->blocks[(start + w) % all / warps];
        thread *lanes = b->threads + (start + w) % all % warps * WARP;
        for (uint32_t i = 0; b->live && i < WARP; i++)
            if (can_go_on(&lanes[i])) return &lanes[i];
    }
    return NULL;
}

/* Who runs after t; NULL if nobody can. */
static thread *next_after(const thread *t) {
    thread *lanes = t->block->threads + t->index / WARP * WARP;
    for (uint32_t i = 1; i <= WARP; i++) {
        thread *x = &lanes[(t->index + i) % WARP];
        if (can_go_on(x)) return x;
    }
    return anyone(t->machine);
}

/* Nobody can go on: shows, of t's block, a lane that waits for its warp, or else a thread that waits for its block. */
static _Noreturn void fail_stuck(thread *t) {
    const block *b = t->block;
    uint32_t warp_waits = 0, block_waits = 0, value_waits = 0;
    const thread *example = NULL;
    for (uint32_t i = 0; i < t->machine->launch->threads; i++) {
        const thread *x = &b->threads[i];
        warp_waits += x->state == MEETS_WARP;
        block_waits += x->state == MEETS_BLOCK;
        value_waits += x->state == MEETS_VALUE;
        bool better = x->state == MEETS_VALUE || x->state == MEETS_WARP || (x->state == MEETS_BLOCK && !example);
        if (better && !(example && (example->state == MEETS_WARP || example->state == MEETS_VALUE))) example = x;
    }
    fail_at(t, example ? example : t,
            "deadlock: of %u threads %u have ended, %u wait for their warp, %u for their block, %u for a value",
            t->machine->launch->threads, b->ended, warp_waits, block_waits, value_waits);
}

void machine_pause(thread *t) {
    while (!can_go_on(t)) {
        thread *next = next_after(t);
        if (!next) fail_stuck(t);
        hand_over(t->machine, t, next);
    }
    t->state = READY;
}

static _Noreturn void leave(thread *t) {
    machine *m = t->machine;
    if (t->copy_count) machine_fail(t, "unfinished copy: the thread ends with %u under way", t->copy_count);
    t->state = ENDED;
    thread *next = NULL;
    if (++t->block->ended == m->launch->threads) t->block->live = false;
    else if (!(next = next_after(t))) fail_stuck(t);
    hand_over(m, t, next);
    abort();
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static void begin_block(machine *m, block *b, uint32_t number) {
    const machine_launch *x = m->launch;
    b->live = true;
    b->number = number;
    b->arrived = b->ended = b->generation = 0;
    b->epoch = 1;
    memset(b->warps, 0, sizeof b->warps);
    memset(b->shared, 0xff, x->shared);
    memset(b->shadows, 0, (x->shared + 3) / 4 * sizeof *b->shadows);
    for (uint32_t i = 0; i < x->threads; i++) {
        thread *t = &b->threads[i];
        t->state = READY;
        t->at = (place){0};
        t->copy_count = 0;
#ifdef HAVE_THREAD_SANITIZER
        if (t->sanitizer) __tsan_destroy_fiber(t->sanitizer);
        t->sanitizer = __tsan_create_fiber(0);
#elif defined(HAVE_SANITIZER)
        __asan_unpoison_memory_region(stack_of(t), STACK);
#endif
        prepare_stack(t, stack_of(t), run_thread);
    }
}

static bool reserve_shared(block *b, uint32_t bytes) {
    if (bytes <= b->shared_capacity) return true;
    uint8_t *shared = realloc(b->shared, bytes);
    if (shared) b->shared = shared;
    shadow *shadows = realloc(b->shadows, (bytes + 3) / 4 * sizeof *shadows);
    if (shadows) b->shadows = shadows;
    if (!shared || !shadows) return false;
    b->shared_capacity = bytes;
    return true;
}

/* What a fiber's stack holds before it is used. */
static void poison_stacks(machine *m, block *b) {
    for (uint32_t i = 0; i < m->launch->threads; i++) {
        char *stack = stack_of(&b->threads[i]);
#if defined(HAVE_SANITIZER) && !defined(HAVE_THREAD_SANITIZER)
        __asan_unpoison_memory_region(stack, STACK);
#endif
        memset(stack + STACK - POISONED, 0xff, POISONED);
    }
}

/* A number below n without a common divisor with it: taken as a stride, it comes by every block once. */
static uint64_t draw_stride(machine *m, uint64_t n) {
    while (n > 2) {
        uint64_t stride = 1 + machine_roll(m, n - 1), a = n, b = stride;
        while (b) {
            uint64_t rest = a % b;
            a = b, b = rest;
        }
        if (a == 1) return stride;
    }
    return 1;
}

bool machine_run(machine *m, const machine_launch *launch, char text[MACHINE_TEXT]) {
    m->launch = launch;
    m->random = launch->seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
    m->failed = false;
    m->text = text;
    m->main_stack = NULL;
    m->addition_count = 0;
    text[0] = 0;
    if (launch->threads == 0 || launch->threads % WARP || launch->threads > MACHINE_THREADS) {
        snprintf(text, MACHINE_TEXT, "a block of %u threads", launch->threads);
        return false;
    }
    uint32_t resident = launch->resident ? launch->resident : 1;
    for (uint32_t i = 0; i < MACHINE_RESIDENT; i++) m->blocks[i].live = false;
    for (uint32_t i = 0; i < resident && i < MACHINE_RESIDENT; i++) {
        if (!reserve_shared(&m->blocks[i], launch->shared ? launch->shared : 4)) {
            snprintf(text, MACHINE_TEXT, "out of memory for %u bytes of shared memory", launch->shared);
            return false;
        }
        poison_stacks(m, &m->blocks[i]);
    }
#ifdef HAVE_THREAD_SANITIZER
    m->main_sanitizer = __tsan_get_current_fiber();
#endif
    uint64_t number = launch->blocks ? machine_roll(m, launch->blocks) : 0, stride = draw_stride(m, launch->blocks);
    for (uint32_t started = 0; !m->failed;) {
        for (uint32_t i = 0; i < resident && i < MACHINE_RESIDENT && started < launch->blocks; i++)
            if (!m->blocks[i].live) {
                begin_block(m, &m->blocks[i], (uint32_t)number);
                number = (number + stride) % launch->blocks;
                started++;
            }
        thread *next = anyone(m);
        if (!next) break;
        hand_over(m, NULL, next);
    }
    for (uint32_t i = 0; i < MACHINE_RESIDENT && !m->failed; i++)
        if (m->blocks[i].live) { /* what ran last has ended, and these wait */
            m->failed = true;
            snprintf(text, MACHINE_TEXT, "deadlock: block %u waits for what no block does", m->blocks[i].number);
        }
    while (m->addition_count && !m->failed) machine_add_one(m);
    return !m->failed;
}

machine *machine_new(void) {
    machine *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    size_t count = (size_t)MACHINE_RESIDENT * MACHINE_THREADS, bytes = count * (STACK + GUARD);
    m->threads = calloc(count, sizeof *m->threads);
    char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m->stacks = stacks == MAP_FAILED ? NULL : stacks;
    for (uint32_t i = 0; i < count && m->threads && m->stacks; i++) {
        block *b = &m->blocks[i / MACHINE_THREADS];
        b->threads = m->threads + i / MACHINE_THREADS * MACHINE_THREADS;
        m->threads[i].machine = m;
        m->threads[i].block = b;
        m->threads[i].index = i % MACHINE_THREADS;
        mprotect(m->stacks + (size_t)i * (STACK + GUARD), GUARD, PROT_NONE); /* an overflow faults */
    }
    if (m->threads && m->stacks) return m;
    machine_free(m);
    return NULL;
}

void machine_free(machine *m) {
    if (!m) return;
#ifdef HAVE_THREAD_SANITIZER
    for (uint32_t i = 0; m->threads && i < MACHINE_RESIDENT * MACHINE_THREADS; i++)
        if (m->threads[i].sanitizer) __tsan_destroy_fiber(m->threads[i].sanitizer);
#endif
    if (m->stacks) munmap(m->stacks, (size_t)MACHINE_RESIDENT * MACHINE_THREADS * (STACK + GUARD));
    free(m->threads);
    for (uint32_t i = 0; i < MACHINE_RESIDENT; i++) {
        free(m->blocks[i].shared);
        free(m->blocks[i].shadows);
    }
    free(m);
}
