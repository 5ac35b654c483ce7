/* machine.c: the machine's blocks: fibers, their order, where they meet, and how a launch ends.
 *
 * Requires: see machine.h. Cost: a switch between fibers is a few instructions on x86-64, a system call elsewhere. Memory:
 *           64 KiB of stack and 20 KiB of pending copies a thread.
 * Method:   fibers hand over to each other. A thread that waits gives way to the next lane of its warp that can go on; if
 *           there is none, to a warp drawn at random; if there is none, the block is stuck. Whoever ends last hands back
 *           to the caller of machine_run, as does a failure, from wherever it is: fibers hold nothing that must be freed.
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
    return t->machine->stacks + (size_t)t->index * (STACK + GUARD) + GUARD;
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
        snprintf(m->text + used, (size_t)(MACHINE_TEXT - used), " (block %u, warp %u, lane %u, %s:%d)", m->block,
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

static bool can_go_on(const machine *m, const thread *t) {
    switch (t->state) {
    case READY: return true;
    case MEETS_WARP: return m->warps[t->index / WARP].generation != t->seen;
    case MEETS_BLOCK: return m->generation != t->seen;
    default: return false;
    }
}

/* Who runs after t; NULL if nobody can. */
static thread *next_after(machine *m, const thread *t) {
    uint32_t warps = m->launch->threads / WARP, first = t->index / WARP;
    for (uint32_t i = 1; i <= WARP; i++) {
        thread *x = &m->threads[first * WARP + (t->index + i) % WARP];
        if (can_go_on(m, x)) return x;
    }
    uint32_t start = (uint32_t)machine_roll(m, warps);
    for (uint32_t w = 0; w < warps; w++)
        for (uint32_t i = 0; i < WARP; i++) {
            thread *x = &m->threads[(start + w) % warps * WARP + i];
            if (can_go_on(m, x)) return x;
        }
    return NULL;
}

/* A block in which nobody can go on: shows a lane that waits for its warp, or else a thread that waits for its block. */
static _Noreturn void fail_stuck(thread *t) {
    machine *m = t->machine;
    uint32_t warp_waits = 0, block_waits = 0;
    const thread *example = NULL;
    for (uint32_t i = 0; i < m->launch->threads; i++) {
        const thread *x = &m->threads[i];
        warp_waits += x->state == MEETS_WARP;
        block_waits += x->state == MEETS_BLOCK;
        bool better = x->state == MEETS_WARP || (x->state == MEETS_BLOCK && !example);
        if (better && !(example && example->state == MEETS_WARP)) example = x;
    }
    fail_at(t, example ? example : t, "deadlock: of %u threads %u have ended, %u wait for their warp, %u for their block",
            m->launch->threads, m->ended, warp_waits, block_waits);
}

void machine_pause(thread *t) {
    machine *m = t->machine;
    while (!can_go_on(m, t)) {
        thread *next = next_after(m, t);
        if (!next) fail_stuck(t);
        hand_over(m, t, next);
    }
    t->state = READY;
}

static _Noreturn void leave(thread *t) {
    machine *m = t->machine;
    if (t->copy_count) machine_fail(t, "unfinished copy: the thread ends with %u under way", t->copy_count);
    t->state = ENDED;
    thread *next = ++m->ended == m->launch->threads ? NULL : next_after(m, t);
    if (!next && m->ended < m->launch->threads) fail_stuck(t);
    hand_over(m, t, next);
    abort();
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static void begin_block(machine *m, uint32_t block) {
    const machine_launch *x = m->launch;
    m->block = block;
    m->arrived = m->ended = 0;
    m->generation = 0;
    m->epoch = 1;
    memset(m->warps, 0, sizeof m->warps);
    memset(m->shared, 0xff, x->shared);
    memset(m->shadows, 0, (x->shared + 3) / 4 * sizeof *m->shadows);
    for (uint32_t i = 0; i < x->threads; i++) {
        thread *t = &m->threads[i];
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

static bool reserve_shared(machine *m, uint32_t bytes) {
    if (bytes <= m->shared_capacity) return true;
    uint8_t *shared = realloc(m->shared, bytes);
    if (shared) m->shared = shared;
    shadow *shadows = realloc(m->shadows, (bytes + 3) / 4 * sizeof *shadows);
    if (shadows) m->shadows = shadows;
    if (!shared || !shadows) return false;
    m->shared_capacity = bytes;
    return true;
}

bool machine_run(machine *m, const machine_launch *launch, char text[MACHINE_TEXT]) {
    m->launch = launch;
    m->random = launch->seed * UINT64_C(0x9e3779b97f4a7c15) + 88172645463325252u;
    m->failed = false;
    m->text = text;
    m->main_stack = NULL;
    text[0] = 0;
    if (launch->threads == 0 || launch->threads % WARP || launch->threads > MACHINE_THREADS) {
        snprintf(text, MACHINE_TEXT, "a block of %u threads", launch->threads);
        return false;
    }
    if (!reserve_shared(m, launch->shared ? launch->shared : 4)) {
        snprintf(text, MACHINE_TEXT, "out of memory for %u bytes of shared memory", launch->shared);
        return false;
    }
#ifdef HAVE_THREAD_SANITIZER
    m->main_sanitizer = __tsan_get_current_fiber();
#endif
    for (uint32_t i = 0; i < launch->threads; i++) {
        char *stack = stack_of(&m->threads[i]);
#if defined(HAVE_SANITIZER) && !defined(HAVE_THREAD_SANITIZER)
        __asan_unpoison_memory_region(stack, STACK);
#endif
        memset(stack + STACK - POISONED, 0xff, POISONED);
    }
    uint64_t step = launch->blocks ? machine_roll(m, launch->blocks) : 0, stride = 1;
    while (launch->blocks > 2) { /* a stride without a common divisor: every block once */
        uint64_t a = launch->blocks, b = stride = 1 + machine_roll(m, launch->blocks - 1);
        while (b) {
            uint64_t rest = a % b;
            a = b, b = rest;
        }
        if (a == 1) break;
    }
    for (uint32_t i = 0; i < launch->blocks && !m->failed; i++, step = (step + stride) % launch->blocks) {
        begin_block(m, (uint32_t)step);
        hand_over(m, NULL, &m->threads[machine_roll(m, launch->threads)]);
    }
    return !m->failed;
}

machine *machine_new(void) {
    machine *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    size_t bytes = (size_t)MACHINE_THREADS * (STACK + GUARD);
    m->threads = calloc(MACHINE_THREADS, sizeof *m->threads);
    char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m->stacks = stacks == MAP_FAILED ? NULL : stacks;
    for (uint32_t i = 0; i < MACHINE_THREADS && m->threads && m->stacks; i++) {
        m->threads[i] = (thread){.machine = m, .index = i};
        mprotect(m->stacks + (size_t)i * (STACK + GUARD), GUARD, PROT_NONE); /* an overflow faults */
    }
    if (m->threads && m->stacks) return m;
    machine_free(m);
    return NULL;
}

void machine_free(machine *m) {
    if (!m) return;
#ifdef HAVE_THREAD_SANITIZER
    for (uint32_t i = 0; m->threads && i < MACHINE_THREADS; i++)
        if (m->threads[i].sanitizer) __tsan_destroy_fiber(m->threads[i].sanitizer);
#endif
    if (m->stacks) munmap(m->stacks, (size_t)MACHINE_THREADS * (STACK + GUARD));
    free(m->threads);
    free(m->shared);
    free(m->shadows);
    free(m);
}
