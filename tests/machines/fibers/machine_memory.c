/* machine_memory.c: checks each access to memory on the machine of fibers for races and bounds.
 *
 * Requires: the clocks of machine_order.c.
 * Gives:    a failure for an access that conflicts with an earlier one and is not ordered to come after it; and for an
 *           access to global memory that the launch does not have, or that CTAs share.
 * Method:   what is kept of shared memory:
 *           - for each word, the last write;
 *           - for each word, the reads since that write: those of one thread; once several threads have read it without
 *             order between them, a row with a time for each thread;
 *           - for each 16 bytes, the reads of whole warps and of products.
 * Cost:     a few comparisons a word. A row is 1.5 KB, for words that many threads read one by one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/machines/fibers/machine_parts.h"

uint8_t *machine_shared(thread *t, uint32_t address, uint32_t bytes, uint32_t align) {
    struct machine *m = t->machine;
    if (address % align) machine_fail(t, "out of bounds: shared address %u is no multiple of %u", address, align);
    if (address < MACHINE_SHARED_BASE || address - MACHINE_SHARED_BASE > m->launch->shared ||
        m->launch->shared - (address - MACHINE_SHARED_BASE) < bytes)
        machine_fail(t, "out of bounds: shared byte %lld of %u", (long long)address - MACHINE_SHARED_BASE,
                     m->launch->shared);
    return t->cta->shared + (address - MACHINE_SHARED_BASE);
}

/* --- shared memory ------------------------------------------------------------------------------------------------ */

enum { NAME = 60 };
static const char *name_of(const cta *b, uint32_t clock, char name[NAME]) {
    if (clock < MACHINE_THREADS) snprintf(name, NAME, "thread %u", clock);
    else if (clock >= OF_MBARRIER) snprintf(name, NAME, "a copy for barrier %u", b->mbarriers[clock - OF_MBARRIER].at);
    else if (clock >= OF_WGMMA) snprintf(name, NAME, "a product of warpgroup %u", clock - OF_WGMMA);
    else snprintf(name, NAME, "warp %u", clock - OF_WARP);
    return name;
}

static _Noreturn void fail_race(thread *t, uint32_t byte, bool write, uint32_t clock, bool wrote) {
    char name[NAME];
    machine_fail(t, "race: shared byte %u is %s, and nothing orders that behind %s, which %s it", byte,
                 write ? "written" : "read", name_of(t->cta, clock, name), wrote ? "wrote" : "read");
}

static void check_chunk(thread *t, const chunk *x, uint32_t byte, uint32_t bytes, bool write) {
    const char *verb = write ? "written" : "read";
    if (x->copying) machine_fail(t, "unfinished copy: shared byte %u is %s before the copy to it is there", byte, verb);
    for (uint32_t half = 0; half < 2; half++)
        if (x->mbarrier[half] && byte % 16 < half * 8 + 8 && byte % 16 + bytes > half * 8)
            machine_fail(t, "barrier: shared byte %u is %s, and is of the barrier at %u", byte, verb,
                         t->cta->mbarriers[x->mbarrier[half] - 1].at);
}

static void check_writer(thread *t, const chunk *x, uint32_t byte, uint32_t word, bool write) {
    if (!machine_knows(t, x->writer[word], x->write_time[word])) fail_race(t, byte, write, x->writer[word], true);
}

static void check_readers(thread *t, const chunk *x, uint32_t byte, uint32_t word) {
    cta *b = t->cta;
    if (!x->read_time[word]) return;
    if (x->reader[word] != MANY) {
        if (!machine_knows(t, x->reader[word], x->read_time[word])) fail_race(t, byte, true, x->reader[word], false);
        return;
    }
    const uint32_t *times = b->times[x->read_time[word]], *order = t->order->time;
    for (uint32_t i = 0; i < MACHINE_THREADS; i++)
        if (times[i] > order[i] && i != t->index) fail_race(t, byte, true, i, false);
}

/* Rows of times. Row 0 means none; free rows form a list. */
static void free_times(cta *b, uint32_t row) {
    b->times[row][0] = b->times_free;
    b->times_free = row;
}
static uint32_t new_times(thread *t) {
    cta *b = t->cta;
    uint32_t row = b->times_free;
    if (row) b->times_free = b->times[row][0];
    else {
        if (b->times_count >= b->times_capacity) {
            uint32_t capacity = b->times_capacity ? 2 * b->times_capacity : 256;
            void *times = realloc(b->times, capacity * sizeof *b->times);
            if (!times) machine_fail(t, "out of memory");
            b->times = times;
            b->times_capacity = capacity;
        }
        row = b->times_count++;
    }
    memset(b->times[row], 0, sizeof b->times[row]);
    return row;
}

static void note_read(thread *t, chunk *x, uint32_t word) {
    cta *b = t->cta;
    if (x->read_time[word] && x->reader[word] == MANY) {
        b->times[x->read_time[word]][t->index] = t->time;
        return;
    }
    if (x->read_time[word] && !machine_knows(t, x->reader[word], x->read_time[word])) {
        uint32_t row = new_times(t);
        b->times[row][x->reader[word]] = x->read_time[word];
        b->times[row][t->index] = t->time;
        x->reader[word] = MANY;
        x->read_time[word] = row;
        return;
    }
    x->reader[word] = (uint16_t)t->index;
    x->read_time[word] = t->time;
}

const uint8_t *machine_reads(thread *t, uint32_t address, uint32_t bytes, uint32_t align) {
    const uint8_t *data = machine_shared(t, address, bytes, align);
    uint32_t byte = address - MACHINE_SHARED_BASE;
    chunk *x = &t->cta->chunks[byte / 16];
    check_chunk(t, x, byte, bytes, false);
    for (uint32_t i = 0; i < bytes; i += 4) {
        uint32_t word = (byte + i) / 4 % 4;
        check_writer(t, x, byte + i, word, false);
        note_read(t, x, word);
    }
    return data;
}

void machine_fenced_reads(thread *t, uint32_t address) {
    const uint32_t byte = address - MACHINE_SHARED_BASE;
    const chunk *x = &t->cta->chunks[byte / 16];
    for (uint32_t word = 0; word < 4; word++) {
        const uint32_t writer = x->writer[word], time = x->write_time[word];
        if (writer < MACHINE_THREADS && time && !machine_knows(t, OF_FENCE + writer, time))
            machine_fail(t,
                         "missing proxy fence: a bulk addition reads shared byte %u, which thread %u wrote and did not "
                         "fence",
                         byte + word * 4, writer);
    }
}

const uint8_t *machine_warp_reads(thread *t, uint32_t address, bool alike) {
    const uint8_t *data = machine_shared(t, address, 16, 16);
    uint32_t byte = address - MACHINE_SHARED_BASE, number = t->index / WARP;
    chunk *x = &t->cta->chunks[byte / 16];
    thread *lanes = &t->cta->threads[number * WARP];
    check_chunk(t, x, byte, 16, false);
    for (uint32_t word = 0; word < (x->split ? 4 : 1); word++) {
        uint32_t writer = x->writer[word], time = x->write_time[word];
        const known *asked = NULL;
        if (alike && lanes->order->time[writer] >= time) continue;
        for (uint32_t i = 0; i < WARP; i++) { /* all lanes get it */
            if (lanes[i].order == asked || lanes[i].index == writer) continue;
            asked = lanes[i].order;
            if (asked->time[writer] < time && !machine_knows(&lanes[i], writer, time))
                fail_race(t, byte + 4 * word, false, writer, true);
        }
    }
    t->cta->agent_times[byte / 16][number] = t->cta->warps[number].time;
    x->agents |= (uint16_t)(1u << number);
    return data;
}

void machine_writes(thread *t, uint32_t address, uint32_t bytes, bool async) {
    cta *b = t->cta;
    for (uint32_t byte = address - MACHINE_SHARED_BASE, end = byte + bytes; byte < end;) {
        chunk *x = &b->chunks[byte / 16];
        uint32_t stop = byte / 16 * 16 + 16 < end ? byte / 16 * 16 + 16 : end;
        check_chunk(t, x, byte, stop - byte, true);
        for (; byte < stop; byte += 4) {
            uint32_t word = byte / 4 % 4, writer = x->writer[word], time = x->write_time[word];
            check_writer(t, x, byte, word, true);
            if (async && time && writer < MACHINE_THREADS && !machine_knows(t, OF_FENCE + writer, time))
                machine_fail(t,
                             "missing proxy fence: a tensor copy writes shared byte %u, which thread %u wrote and did "
                             "not fence",
                             byte, writer);
            check_readers(t, x, byte, word);
            if (x->read_time[word] && x->reader[word] == MANY) free_times(b, x->read_time[word]);
            x->read_time[word] = 0;
        }
        for (uint32_t left = x->agents; left; left &= left - 1) {
            uint32_t agent = (uint32_t)__builtin_ctz(left);
            if (!machine_knows(t, OF_WARP + agent, b->agent_times[(stop - 4) / 16][agent]))
                fail_race(t, stop - 4, true, OF_WARP + agent, false);
        }
        if (stop % 16 == 0 && bytes >= 16) x->agents = 0;
    }
}

void machine_wrote(cta *b, uint32_t address, uint32_t bytes, uint32_t writer, uint32_t time) {
    for (uint32_t byte = address - MACHINE_SHARED_BASE, end = byte + bytes; byte < end; byte += 4) {
        chunk *x = &b->chunks[byte / 16];
        x->writer[byte / 4 % 4] = (uint16_t)writer;
        x->write_time[byte / 4 % 4] = time;
        x->split = bytes < 16;
        x->swizzle = 0;
    }
}

/* --- global memory ------------------------------------------------------------------------------------------------ */

void *machine_global(thread *t, uint64_t address, uint32_t bytes, uint32_t align, use how) {
    const machine_launch *x = t->machine->launch;
    const bool write = how != READ;
    const char *verb = how == ADD ? "added to" : write ? "written" : "read";
    if (address % align)
        machine_fail(t, "out of bounds: global address %#llx is no multiple of %u", (unsigned long long)address, align);
    const machine_range *r = x->ranges, *end = r + x->range_count;
    while (r < end && (address < r->begin || address >= r->end || r->end - address < bytes)) r++;
    if (r == end) {
        const machine_range *first = x->ranges;
        if (!x->range_count)
            machine_fail(t, "out of bounds: global memory at %#llx is %s, and the launch has none",
                         (unsigned long long)address, verb);
        machine_fail(t, "out of bounds: global memory at %#llx is %s, %lld bytes after the beginning of %s",
                     (unsigned long long)address, verb, (long long)(address - first->begin), first->name);
    }
    if (write && !r->writable)
        machine_fail(t, "out of bounds: %s is written, at byte %llu", r->name,
                     (unsigned long long)(address - r->begin));
    if (!r->owners) return (void *)(uintptr_t)address;
    const uint32_t WRITTEN = 1u << 30, ADDED = 1u << 31, others = (1u << 30) - 1;
    uint32_t self = t->cta->number + 1;
    uint32_t *owner = r->owners + (address - r->begin) / 4;
    for (uint32_t i = 0; i < bytes / 4; i++) {
        uint32_t who = owner[i] & others;
        unsigned long long byte = address - r->begin + 4 * i;
        if (r->handed) {
            machine_turns_access(t, &owner[i], r->name, byte, verb);
            continue;
        }
        if (how == ADD && (owner[i] == 0 || owner[i] == ADDED)) {
            owner[i] = ADDED;
            continue;
        }
        if (owner[i] == ADDED) machine_fail(t, "owner: %s, byte %llu, is %s; blocks add to it", r->name, byte, verb);
        bool foreign = who && who != self;
        if (how == ADD || (foreign && (write || owner[i] & WRITTEN)))
            machine_fail(t, "owner: %s, byte %llu, is %s; block %lld %s it", r->name, byte, verb,
                         who == others ? -1LL : (long long)who - 1, owner[i] & WRITTEN ? "wrote" : "read");
        owner[i] = write ? self | WRITTEN : foreign ? others : owner[i] ? owner[i] : self;
    }
    return (void *)(uintptr_t)address;
}
