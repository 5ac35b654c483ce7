/* machine_turns.c: checks CTAs that hand global memory on to each other by locks, for example to add to it in turn. It
 * keeps the happens-before order between CTAs.
 *
 * Requires: ranges that are `handed` on, with owners of 0; fk_release and fk_acquire on locks that lie outside of them.
 * Gives:    a failure "turn" for two accesses of one word by different CTAs if nothing orders the second after the
 *           first.
 * Method:   vector clocks. The clock of a CTA counts its releases. When a CTA acquires a lock, it learns how far all
 *           CTAs had come when the lock was released. A word remembers who accessed it last, and at what time of that
 *           CTA. This file does not check that the threads of a CTA meet before one of them releases; for additions
 *           that is checked when they are released.
 * Cost:     a number for each pair of CTAs of the launch, and for each CTA and released lock.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/fibers/machine_parts.h"

enum { BLOCK_BITS = 14, TIME_BITS = 32 - BLOCK_BITS };

/* Begins a launch: no CTA knows anything of another one yet. False: out of memory, or too many CTAs. */
bool machine_turns_begin(struct machine *m) {
    turns *x = &m->turns;
    bool wanted = false;
    for (uint32_t i = 0; i < m->launch->range_count; i++) wanted = wanted || m->launch->ranges[i].handed;
    x->blocks = 0;
    x->lock_count = 0;
    if (!wanted) return true;
    uint64_t blocks = m->launch->blocks;
    if (blocks + 1 >= 1u << BLOCK_BITS) return false;
    uint32_t *all = realloc(x->known, blocks * (blocks + 1) * sizeof *all);
    if (!all) return false;
    memset(all, 0, blocks * (blocks + 1) * sizeof *all);
    x->known = all;
    x->time = all + blocks * blocks;
    x->blocks = (uint32_t)blocks;
    return true;
}

void machine_turns_free(struct machine *m) {
    for (uint32_t i = 0; i < m->turns.lock_capacity; i++) free(m->turns.locks[i].known);
    free(m->turns.locks);
    free(m->turns.known);
}

static void join(uint32_t *to, const uint32_t *from, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (from[i] > to[i]) to[i] = from[i];
}

static turn_lock *lock_at(turns *x, uint64_t address) {
    for (uint32_t i = 0; i < x->lock_count; i++)
        if (x->locks[i].address == address) return &x->locks[i];
    return NULL;
}

void machine_turns_release(thread *t, uint64_t address) {
    turns *x = &t->machine->turns;
    uint32_t self = t->cta->number;
    if (!x->blocks) return;
    turn_lock *lock = lock_at(x, address);
    if (!lock) {
        if (x->lock_count == x->lock_capacity) {
            uint32_t capacity = x->lock_capacity ? 2 * x->lock_capacity : 64;
            turn_lock *locks = realloc(x->locks, capacity * sizeof *locks);
            if (!locks) machine_fail(t, "out of memory");
            memset(locks + x->lock_capacity, 0, (capacity - x->lock_capacity) * sizeof *locks);
            x->locks = locks;
            x->lock_capacity = capacity;
        }
        lock = &x->locks[x->lock_count];
        uint32_t *row = realloc(lock->known, x->blocks * sizeof *row);
        if (!row) machine_fail(t, "out of memory");
        memset(row, 0, x->blocks * sizeof *row);
        *lock = (turn_lock){address, row};
        x->lock_count++;
    }
    uint32_t *mine = x->known + (size_t)self * x->blocks;
    mine[self] = ++x->time[self];
    if (x->time[self] >> TIME_BITS) machine_fail(t, "more than %u releases", (1u << TIME_BITS) - 1);
    join(lock->known, mine, x->blocks);
}

void machine_turns_acquire(thread *t, uint64_t address) {
    turns *x = &t->machine->turns;
    const turn_lock *lock = x->blocks ? lock_at(x, address) : NULL;
    if (lock) join(x->known + (size_t)t->cta->number * x->blocks, lock->known, x->blocks);
}

void machine_turns_access(thread *t, uint32_t *owner, const char *name, uint64_t byte, const char *verb) {
    turns *x = &t->machine->turns;
    uint32_t self = t->cta->number, who = *owner >> TIME_BITS, when = *owner & ((1u << TIME_BITS) - 1);
    if (who && who != self + 1 && x->known[(size_t)self * x->blocks + who - 1] <= when)
        machine_fail(t, "turn: %s, byte %llu, is %s, and nothing orders that behind block %u, which did so too", name,
                     (unsigned long long)byte, verb, who - 1);
    *owner = (self + 1) << TIME_BITS | x->time[self];
}
