/* machine.c: runs CTAs on the machine of fibers: makes their fibers, chooses which one runs next, lets threads meet at
 * barriers, and ends launches.
 *
 * Requires: what machine.h says.
 * Method:   fibers switch to each other directly. A thread that waits switches to the first of these that there is:
 *           1. the next lane of its warp that can continue;
 *           2. a warp of any CTA that can continue, drawn at random;
 *           3. if no warp can continue, copies under way arrive first.
 *           The last thread of a CTA that ends switches back to machine_run, which begins the next CTA. A failure
 *           switches back to machine_run from wherever it is, because fibers hold nothing that has to be freed.
 * Cost:     a switch between fibers is a few instructions on x86-64, a system call elsewhere. Memory: 64 KiB of stack,
 *           and 20 KiB for pending copies, a thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/machines/fibers/machine_parts.h"

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

enum {
    STACK = 64 << 10,
    GUARD = 4096,
    POISONED = 6 << 10, /* of a stack, at its near end: kernels use 5 KiB */
    /* stacks begin at different bytes of a page, or those of a warp would share a few lines of the cache */
    COLOURS = 32,
    COLOUR = 128
};

/* Said again, since a definition does not take over the model of its declaration. */
_Thread_local thread *machine_self __attribute__((tls_model("initial-exec")));
_Thread_local machine_place *machine_here __attribute__((tls_model("initial-exec")));

/* --- fibers ------------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
/* Saves the registers that a function must preserve, changes the stack, and restores them. The stack of a new fiber
 * looks as if it had been saved here, with the fiber's entry as the return address. */
void machine_switch(void **save, void *restore);
__asm__(".text\n.globl machine_switch\n.hidden machine_switch\n.type machine_switch, @function\nmachine_switch:\n"
        "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq %r15\n"
        "    movq %rsp, (%rdi)\n    movq %rsi, %rsp\n"
        "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n    ret\n"
        ".size machine_switch, .-machine_switch\n");

/* Where a thread's stack begins, in bytes from its far end. */
static size_t near_end(const thread *t) { return STACK - t->index % COLOURS * COLOUR; }

static void prepare_stack(thread *t, char *stack, void (*entry)(void)) {
    uintptr_t *top = (uintptr_t *)(stack + near_end(t));
    *--top = 0; /* at its entry a function expects the stack 8 bytes off a multiple of 16 */
    *--top = (uintptr_t)entry;
    for (int i = 0; i < 6; i++) *--top = 0;
    t->stack_pointer = top;
}
static void switch_stacks(void **save, void *restore) { machine_switch(save, restore); }
#else
#include <ucontext.h>
static size_t near_end(const thread *t) {
    (void)t;
    return STACK;
}
static void prepare_stack(thread *t, char *stack, void (*entry)(void)) {
    ucontext_t *context = (ucontext_t *)stack; /* it is kept at the far end of the stack */
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

/* Switches from one fiber to another. NULL is the caller of machine_run. */
static void hand_over(machine *m, thread *from, thread *to) {
    void **save = from ? &from->stack_pointer : &m->main_stack_pointer;
    void *restore = to ? to->stack_pointer : m->main_stack_pointer;
    machine_self = to;
    machine_here = to ? &to->at : NULL;
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

/* Records what went wrong at thread `where`. */
static void describe(const thread *where, const char *format, va_list args) {
    machine *m = where->machine;
    const char *file = where->at.file ? strrchr(where->at.file, '/') : NULL;
    int used = vsnprintf(m->text, MACHINE_TEXT, format, args);
    if (used >= 0 && used < MACHINE_TEXT)
        snprintf(m->text + used, (size_t)(MACHINE_TEXT - used), " (block %u, warp %u, lane %u, %s:%d)",
                 where->cta->number, where->index / WARP, where->index % WARP,
                 file ? file + 1 : where->at.file ? where->at.file : "?",
                 where->at.line);
    m->failed = true;
}

static _Noreturn void end_launch(thread *t) {
    hand_over(t->machine, t, NULL);
    abort(); /* nobody switches back to here */
}

void machine_fail(thread *t, const char *format, ...) {
    va_list args;
    va_start(args, format);
    describe(t, format, args);
    va_end(args);
    end_launch(machine_self);
}

void machine_wrong(const thread *where, const char *format, ...) {
    va_list args;
    if (where->machine->failed) return;
    va_start(args, format);
    describe(where, format, args);
    va_end(args);
}
void machine_look(thread *t) {
    if (t->machine->failed) end_launch(t);
}

static _Noreturn void fail_at(thread *t, const thread *where, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void fail_at(thread *t, const thread *where, const char *format, ...) {
    va_list args;
    va_start(args, format);
    describe(where, format, args);
    va_end(args);
    end_launch(t);
}

/* Of a thread that waits for anything but its warp. */
__attribute__((noinline)) static bool has_waited(const thread *t) {
    switch (t->state) {
    case MEETS_BLOCK: return t->cta->generation != t->seen;
    case MEETS_VALUE: return *t->value == t->seen;
    case MEETS_MBARRIER: return machine_phase_over(t);
    case MEETS_NAMED_BARRIER: return t->cta->named[t->waits].generation != t->seen;
    case MEETS_WGMMA: return machine_products_over(t);
    case MEETS_REGISTERS: return machine_registers_over(t);
    default: return false;
    }
}

/* Nearly all threads asked about are ready or wait for their warp: two branches are guessed better than a table. */
static inline bool can_go_on(const thread *t) {
    if (t->state == READY) return true;
    if (t->state == MEETS_WARP) return t->cta->warps[t->index / WARP].generation != t->seen;
    return has_waited(t);
}

/* Finds a thread that can run, of a warp drawn at random. NULL: nobody can. */
static thread *anyone(machine *m) {
    uint32_t warps = m->launch->threads / WARP, all = warps * MACHINE_RESIDENT;
    uint32_t start = (uint32_t)machine_roll(m, all);
    for (uint32_t w = 0; w < all; w++) {
        const cta *b = &m->blocks[(start + w) % all / warps];
        thread *lanes = b->threads + (start + w) % all % warps * WARP;
        for (uint32_t i = 0; b->live && i < WARP; i++)
            if (can_go_on(&lanes[i])) return &lanes[i];
    }
    return NULL;
}

/* Decides who runs after t. NULL: nobody can. */
static thread *next_after(const thread *t) {
    thread *lanes = t->cta->threads + t->index / WARP * WARP;
    for (uint32_t i = 1; i <= WARP; i++) {
        thread *x = &lanes[(t->index + i) % WARP];
        if (can_go_on(x)) return x;
    }
    return anyone(t->machine);
}

/* Nobody can go on, so some copies arrive; or else the world outside gets on. False: neither does. */
static bool gets_on(machine *m) {
    bool any = false, live = false;
    for (uint32_t i = 0; i < MACHINE_RESIDENT; i++) {
        live |= m->blocks[i].live;
        if (m->blocks[i].live && machine_progress(&m->blocks[i], true)) any = true;
    }
    return any || (live && m->launch->outside && m->launch->outside(m->launch->outside_context));
}

/* Nobody can go on: reports a thread of t's CTA, if possible one that waits for few others. */
static _Noreturn void fail_stuck(thread *t) {
    static const uint8_t worth[ENDED + 1] = {
        [MEETS_BLOCK] = 1,   [MEETS_NAMED_BARRIER] = 2,  [MEETS_WGMMA] = 3, [MEETS_REGISTERS] = 4,
        [MEETS_MBARRIER] = 5, [MEETS_VALUE] = 6, [MEETS_WARP] = 7};
    const cta *b = t->cta;
    uint32_t waits[ENDED + 1] = {0};
    const thread *example = t, *missed = NULL;
    for (uint32_t i = 0; i < t->machine->launch->threads; i++) {
        const thread *x = &b->threads[i];
        waits[x->state]++;
        if (worth[x->state] > worth[example->state]) example = x;
        if (!missed && x->state == MEETS_MBARRIER && machine_missed(x)) missed = x;
    }
    if (missed) {
        const mbarrier *x = &b->mbarriers[missed->waits];
        fail_at(t, missed,
                "phase error: the thread waits for parity %u of barrier %u, of which %u phases have ended; "
                "it waited for the "
                "one of number %d last, and nobody can go on",
                missed->seen, x->at, x->phases, missed->phases[missed->waits]);
    }
    uint32_t missing = machine_warps_missing(b);
    if (missing)
        fail_at(t, example, "divergence: %u warps of a warpgroup do not come to change its registers with the others",
                missing);
    fail_at(
        t, example,
        "deadlock: of %u threads %u have ended, %u wait for their warp, %u for their block, %u for a value, %u for a "
        "barrier, %u for a named barrier, %u for products, %u for registers",
        t->machine->launch->threads, waits[ENDED], waits[MEETS_WARP], waits[MEETS_BLOCK], waits[MEETS_VALUE],
        waits[MEETS_MBARRIER], waits[MEETS_NAMED_BARRIER], waits[MEETS_WGMMA], waits[MEETS_REGISTERS]);
}

void machine_pause(thread *t) {
    while (!can_go_on(t)) {
        const bool last = t->index % WARP == WARP - 1; /* nearly always the next lane can go on */
        thread *next = !last && can_go_on(t + 1) ? t + 1 : next_after(t);
        if (next) hand_over(t->machine, t, next);
        else if (!gets_on(t->machine)) fail_stuck(t);
        machine_look(t);
    }
    t->state = READY;
}

void machine_give_way(thread *t) {
    machine *m = t->machine;
    if (m->eager && machine_roll(m, 8) < m->eager) machine_progress(t->cta, false);
    machine_look(t);
    if (machine_roll(m, 8)) return;
    thread *next = anyone(m);
    if (next && next != t) hand_over(m, t, next);
}

static _Noreturn void leave(thread *t) {
    machine *m = t->machine;
    if (t->copy_count) machine_fail(t, "unfinished copy: the thread ends with %u under way", t->copy_count);
    if (t->bulk_count)
        machine_fail(t, "unfinished copy: the thread ends with %u bulk additions under way", t->bulk_count);
    machine_close_products(t);
    t->state = ENDED;
    thread *next = NULL;
    if (++t->cta->ended == m->launch->threads) {
        machine_close_async(t);
        t->cta->live = false;
    } else
        while (!(next = next_after(t))) {
            if (!gets_on(m)) fail_stuck(t);
            machine_look(t);
        }
    hand_over(m, t, next);
    abort();
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static void begin_block(machine *m, cta *b, uint32_t number) {
    const machine_launch *x = m->launch;
    b->live = true;
    b->number = number;
    b->arrived = b->ended = b->generation = b->acquired = 0;
    memset(b->warps, 0, sizeof b->warps);
    for (uint32_t i = 0; i < WARPS; i++) b->warps[i].time = 1;
    memset(b->shared, 0xff, x->shared);
    memset(b->chunks, 0, (x->shared + 15) / 16 * sizeof *b->chunks);
    b->times_count = 1;
    b->times_free = 0;
    machine_forget_block(b);
    machine_open_async(b);
    machine_open_products(b);
    known *nothing = machine_known(&b->threads[0]);
    for (uint32_t i = 0; i < x->threads; i++) {
        thread *t = &b->threads[i];
        t->state = READY;
        t->at = (place){0};
        t->copy_count = t->bulk_count = 0;
        t->order = machine_keep(nothing);
        t->time = 1;
        t->fenced = t->products = t->products_known = t->commits = t->commits_known = 0;
        t->begun = t->packed = t->waited = t->acquired = false;
        for (uint32_t j = 0; j < MBARRIERS; j++) t->phases[j] = -2;
#ifdef HAVE_THREAD_SANITIZER
        if (t->sanitizer) __tsan_destroy_fiber(t->sanitizer);
        t->sanitizer = __tsan_create_fiber(0);
#elif defined(HAVE_SANITIZER)
        __asan_unpoison_memory_region(stack_of(t), STACK);
#endif
        prepare_stack(t, stack_of(t), run_thread);
    }
    machine_drop(m, nothing);
}

/* Protects a page between stacks, so that a stack overflow faults. It does so only for stacks that a launch uses and
 * none has used before: for all stacks it would be a thousand system calls in each process. False: out of memory. */
static bool guard_stacks(machine *m, cta *b) {
    const bool any = b->guarded < m->launch->threads;
    for (; b->guarded < m->launch->threads; b->guarded++)
        mprotect(stack_of(&b->threads[b->guarded]) - GUARD, GUARD, PROT_NONE);
    return any;
}

static bool reserve_shared(cta *b, uint32_t bytes) {
    if (bytes <= b->shared_capacity) return true;
    uint8_t *shared = realloc(b->shared, bytes);
    if (shared) b->shared = shared;
    chunk *chunks = realloc(b->chunks, (bytes + 15) / 16 * sizeof *chunks);
    if (chunks) b->chunks = chunks;
    uint32_t(*times)[AGENTS] = realloc(b->agent_times, (bytes + 15) / 16 * sizeof *times);
    if (times) b->agent_times = times;
    if (!shared || !chunks || !times) return false;
    b->shared_capacity = bytes;
    return true;
}

/* Fills the fibers' stacks with what they hold before they are used. These are megabytes, and many launches are
 * short. */
static void poison_stacks(machine *m, cta *b) {
    for (uint32_t i = 0; i < m->launch->threads; i++) {
        const thread *t = &b->threads[i];
        char *stack = stack_of(t);
#if defined(HAVE_SANITIZER) && !defined(HAVE_THREAD_SANITIZER)
        __asan_unpoison_memory_region(stack, STACK);
#endif
        memset(stack + near_end(t) - POISONED, 0xff, POISONED);
    }
}

/* Draws a number below n without a common divisor with n. Taken as a stride, it visits every CTA once. */
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
    if (launch->registers % 8 || launch->registers * launch->threads > REGISTERS) {
        snprintf(text, MACHINE_TEXT, "%u threads of %u registers", launch->threads, launch->registers);
        return false;
    }
    if (!machine_turns_begin(m)) {
        snprintf(text, MACHINE_TEXT, "out of memory for the turns of %u blocks", launch->blocks);
        return false;
    }
    m->eager = (uint32_t)machine_roll(m, 4) * 2;
    machine_forget(m);
    const bool poisoned = machine_roll(m, 4) == 0;
    uint32_t resident = launch->resident ? launch->resident : 1;
    for (uint32_t i = 0; i < MACHINE_RESIDENT; i++) m->blocks[i].live = false;
    for (uint32_t i = 0; i < resident && i < MACHINE_RESIDENT; i++) {
        if (!reserve_shared(&m->blocks[i], launch->shared ? launch->shared : 4)) {
            snprintf(text, MACHINE_TEXT, "out of memory for %u bytes of shared memory", launch->shared);
            return false;
        }
        if (i >= launch->blocks) continue;
        if (guard_stacks(m, &m->blocks[i]) || poisoned) poison_stacks(m, &m->blocks[i]);
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
        if (next) hand_over(m, NULL, next);
        else if (!gets_on(m)) break;
    }
    for (uint32_t i = 0; i < MACHINE_RESIDENT && !m->failed; i++)
        if (m->blocks[i].live) { /* nobody is left that runs, and these wait */
            m->failed = true;
            snprintf(text, MACHINE_TEXT, "deadlock: block %u waits for what no block does", m->blocks[i].number);
        }
    while (m->addition_count && !m->failed) machine_add_one(m);
    return !m->failed;
}

/* Machines that nobody has now. A new one costs system calls, for the guards between its stacks. */
static machine *idle;
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static void destroy(machine *m);

machine *machine_new(void) {
    pthread_mutex_lock(&idle_lock);
    machine *m = idle;
    if (m) idle = m->next_idle;
    pthread_mutex_unlock(&idle_lock);
    if (m) return m;
    m = calloc(1, sizeof *m);
    if (!m) return NULL;
    size_t count = (size_t)MACHINE_RESIDENT * MACHINE_THREADS, bytes = count * (STACK + GUARD);
    m->threads = calloc(count, sizeof *m->threads);
    char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    m->stacks = stacks == MAP_FAILED ? NULL : stacks;
    for (uint32_t i = 0; i < count && m->threads && m->stacks; i++) {
        cta *b = &m->blocks[i / MACHINE_THREADS];
        b->threads = m->threads + i / MACHINE_THREADS * MACHINE_THREADS;
        m->threads[i].machine = m;
        m->threads[i].cta = b;
        m->threads[i].index = i % MACHINE_THREADS;
    }
    if (m->threads && m->stacks) return m;
    destroy(m);
    return NULL;
}

void machine_free(machine *m) {
    if (!m) return;
    pthread_mutex_lock(&idle_lock);
    m->next_idle = idle;
    idle = m;
    pthread_mutex_unlock(&idle_lock);
}

static void destroy(machine *m) {
#ifdef HAVE_THREAD_SANITIZER
    for (uint32_t i = 0; m->threads && i < MACHINE_RESIDENT * MACHINE_THREADS; i++)
        if (m->threads[i].sanitizer) __tsan_destroy_fiber(m->threads[i].sanitizer);
#endif
    for (uint32_t i = 0; m->threads && i < MACHINE_RESIDENT * MACHINE_THREADS; i++) {
        free(m->threads[i].copies);
        free(m->threads[i].bulks);
    }
    if (m->stacks) munmap(m->stacks, (size_t)MACHINE_RESIDENT * MACHINE_THREADS * (STACK + GUARD));
    free(m->threads);
    machine_turns_free(m);
    for (known *k = m->known_all, *next; k; k = next) {
        next = k->all;
        free(k);
    }
    for (uint32_t i = 0; i < MACHINE_RESIDENT; i++) {
        free(m->blocks[i].shared);
        free(m->blocks[i].chunks);
        free(m->blocks[i].agent_times);
        free(m->blocks[i].times);
        free(m->blocks[i].groups);
        free(m->blocks[i].boxes);
    }
    free(m);
}
