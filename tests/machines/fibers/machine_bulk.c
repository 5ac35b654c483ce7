/* machine_bulk.c: bulk additions of the machine of fibers: the TMA adds floats of shared memory to global memory.
 *
 * Requires: machine_parts.h.
 * Method:   an addition reads shared memory at some time between its beginning and the wait for that, and adds at some
 *           time up to the wait for all of it; the seed says when. What it reads is checked at its beginning and again
 *           when it is waited for, so writes between the two are races. What a thread releases does not include it
 *           until it has been waited for. So additions that nobody waited for come behind those of the next CTA in
 *           turn, which the check of turns finds (machine_turns.c).
 * Cost:     linear in the bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/fibers/machine_parts.h"
#include "codegen/kernels/abi.h"
#define FK_PRIMITIVE(type, name, parameters) type name##_host parameters;
#include "codegen/kernels/prim_sm90.h"
#undef FK_PRIMITIVE

enum { BULKS = 8, ROW = 512 };

struct bulk {
    uint64_t to;
    uint32_t from, bytes;
    bool committed, taken, added;
    float data[ROW / 4];
};

/* The TMA reads what an addition has in shared memory. */
static void look_at(thread *t, const bulk *x) {
    for (uint32_t at = 0; at < x->bytes; at += 16) {
        machine_reads(t, x->from + at, 16, 16);
        machine_fenced_reads(t, x->from + at);
    }
}
static void take(thread *t, bulk *x) {
    if (!x->taken) memcpy(x->data, machine_shared(t, x->from, x->bytes, 16), x->bytes);
    x->taken = true;
}
static void add(thread *t, bulk *x) {
    take(t, x);
    for (uint32_t i = 0; i < x->bytes / 4; i++) {
        float *to = machine_global(t, x->to + i * 4ull, 4, 4, ADD);
        *to += x->data[i];
    }
    x->added = true;
}

/* One whose wait has not come ends all the same, at some time. */
static void end_first(thread *t) {
    if (!t->bulks[0].committed) machine_fail(t, "more than %d bulk additions under way", BULKS);
    if (t->bulks[0].from) look_at(t, &t->bulks[0]);
    if (!t->bulks[0].added) add(t, &t->bulks[0]);
    memmove(t->bulks, t->bulks + 1, --t->bulk_count * sizeof *t->bulks);
}

void fk_bulk_add_host(fk_u64 to, fk_u32 from, fk_u32 bytes) {
    thread *t = machine_self;
    if (t->cta->acquired)
        machine_fail(t, "missing proxy fence: a bulk addition after a lock was acquired, and nobody has fenced since");
    if (!t->bulks) t->bulks = malloc(BULKS * sizeof *t->bulks);
    if (!t->bulks) machine_fail(t, "out of memory");
    if (t->bulk_count == BULKS) end_first(t);
    if (!bytes || bytes % 16 || bytes > ROW || to % 16 || from % 16)
        machine_fail(t, "a bulk addition of %u bytes from %u to %#llx", bytes, from, (unsigned long long)to);
    bulk *x = &t->bulks[t->bulk_count++];
    *x = (bulk){.to = to, .from = from, .bytes = bytes};
    look_at(t, x);
    const uint64_t when = machine_roll(t->machine, 3);
    if (when == 1) take(t, x);
    if (when == 2) add(t, x);
}

void fk_bulk_commit_host(void) {
    thread *t = machine_self;
    for (uint32_t i = 0; i < t->bulk_count; i++) t->bulks[i].committed = true;
}

void fk_bulk_wait_read_host(void) {
    thread *t = machine_self;
    for (uint32_t i = 0; i < t->bulk_count; i++) {
        if (!t->bulks[i].committed || t->bulks[i].from == 0) continue;
        look_at(t, &t->bulks[i]);
        take(t, &t->bulks[i]);
        t->bulks[i].from = 0; /* the place is free */
    }
}

void fk_bulk_wait_host(void) {
    thread *t = machine_self;
    uint32_t left = 0;
    fk_bulk_wait_read_host();
    for (uint32_t i = 0; i < t->bulk_count; i++) {
        bulk *x = &t->bulks[i];
        if (x->committed && !x->added) add(t, x);
        if (!x->committed) t->bulks[left++] = *x;
    }
    t->bulk_count = left;
}
