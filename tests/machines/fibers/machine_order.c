/* machine_order.c: the happens-before order on the machine of fibers, kept by vector clocks.
 *
 * A vector clock has a time for each thread (and some more, machine_parts.h): up to which time of that thread it is
 * known what the thread did. For example, thread 1 releases at its time 7, and thread 2 acquires that. Then thread 2
 * knows time 7 of thread 1: whatever thread 1 did up to then happened before what thread 2 does now.
 *
 * Requires: times only rise. Threads that know the same share one clock, which nobody changes.
 * Gives:    for a thread, a clock and a time: has the thread seen that time?
 * Method:   - What a thread knows is the shared clock that it acquired last, and its own times.
 *           - A release joins both into a sum, that of all threads which arrive at the same barrier. (A join of two
 *             clocks has the later of each two times.)
 *           - An acquire joins what the thread knows with that sum.
 *           Joins are cached, because the 128 threads of a warpgroup know the same and acquire the same: the result is
 *           kept at the sum, under the serial number of the thread's shared clock. So one thread computes it for all. A
 *           kept result knows strictly more than the sum that keeps it, so references form no cycles.
 * Cost:     making a join is CLOCKS comparisons (3.5 KB); everything else is a few.
 * Source:   the vector clocks of Mattern and of Fidge.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/fibers/machine_parts.h"

known *machine_known(thread *t) {
    machine *m = t->machine;
    known *k = m->known_free;
    if (k) m->known_free = k->next;
    else {
        k = malloc(sizeof *k);
        if (!k && machine_self) machine_fail(t, "out of memory");
        if (!k) { /* no thread runs that could be stopped here */
            machine_wrong(t, "out of memory");
            return machine_keep(&m->none);
        }
        k->all = m->known_all;
        m->known_all = k;
    }
    known *all = k->all;
    memset(k, 0, sizeof *k);
    k->all = all;
    k->references = 1;
    k->serial = ++m->serial;
    return k;
}

known *machine_keep(known *k) {
    if (k) k->references++;
    return k;
}

void machine_drop(machine *m, known *k) {
    known *list = NULL;
    if (k && --k->references == 0) k->next = NULL, list = k;
    while (list) {
        known *x = list;
        list = x->next;
        for (int i = 0; i < JOINS; i++) {
            known *result = x->joins[i].result;
            if (result && result != x && --result->references == 0) result->next = list, list = result;
        }
        x->next = m->known_free;
        m->known_free = x;
    }
}

void machine_forget(machine *m) {
    m->known_free = NULL;
    for (known *k = m->known_all; k; k = k->all) k->next = m->known_free, m->known_free = k;
    for (uint32_t i = 0; i < MACHINE_RESIDENT; i++) {
        cta *b = &m->blocks[i];
        for (uint32_t j = 0; j < MACHINE_THREADS; j++) b->threads[j].order = NULL;
        for (uint32_t j = 0; j < MBARRIERS; j++)
            b->mbarriers[j].arriving = (gathering){0}, b->mbarriers[j].ended = NULL;
        for (uint32_t j = 0; j < NAMED; j++) b->named[j].arriving = (gathering){0}, b->named[j].ended = NULL;
        b->syncing = (gathering){0};
        b->synced = NULL;
    }
}

void machine_forget_block(cta *b) {
    machine *m = b->threads->machine;
    for (uint32_t j = 0; j < MACHINE_THREADS; j++) machine_drop(m, b->threads[j].order), b->threads[j].order = NULL;
    for (uint32_t j = 0; j < MBARRIERS; j++) {
        machine_drop(m, b->mbarriers[j].arriving.sum);
        machine_drop(m, b->mbarriers[j].ended);
        b->mbarriers[j].arriving = (gathering){0}, b->mbarriers[j].ended = NULL;
    }
    for (uint32_t j = 0; j < NAMED; j++) {
        machine_drop(m, b->named[j].arriving.sum);
        machine_drop(m, b->named[j].ended);
        b->named[j].arriving = (gathering){0}, b->named[j].ended = NULL;
    }
    machine_drop(m, b->syncing.sum);
    machine_drop(m, b->synced);
    b->syncing = (gathering){0};
    b->synced = NULL;
}

static void raise_to(uint32_t *time, uint32_t x) { *time = *time < x ? x : *time; }

void machine_release(thread *t, gathering *to) {
    warp *w = &t->cta->warps[t->index / WARP];
    if (!to->sum) to->sum = machine_known(t);
    uint32_t *sum = to->sum->time;
    if (to->last != t->order->serial) {
        const uint32_t *order = t->order->time;
        for (uint32_t i = 0; i < CLOCKS; i++) sum[i] = sum[i] < order[i] ? order[i] : sum[i];
        to->last = t->order->serial;
    }
    sum[t->index] = t->time++;
    raise_to(&sum[OF_FENCE + t->index], t->fenced);
    sum[OF_WARP + t->index / WARP] = w->time++;
    raise_to(&sum[OF_WGMMA + t->index / GROUP], t->products_known);
}

void machine_gathered(thread *t, const gathering *from, known **out) {
    known *k = machine_known(t);
    memcpy(k->time, from->sum->time, sizeof k->time);
    machine_drop(t->machine, *out);
    *out = k;
}

static void take(thread *t, known *k) {
    machine_keep(k);
    machine_drop(t->machine, t->order);
    t->order = k;
}

void machine_acquire(thread *t, known *released) {
    known *mine = t->order;
    if (!released || released == mine) return;
    for (int i = 0; i < JOINS; i++)
        if (released->joins[i].serial == mine->serial) {
            if (released->joins[i].result) take(t, released->joins[i].result);
            return;
        }
    bool more = false, all = true;
    for (uint32_t i = 0; i < CLOCKS; i++) {
        more |= released->time[i] > mine->time[i];
        all &= released->time[i] >= mine->time[i];
    }
    known *result = !more ? NULL : all ? released : machine_known(t);
    if (more && !all)
        for (uint32_t i = 0; i < CLOCKS; i++)
            result->time[i] = released->time[i] > mine->time[i] ? released->time[i] : mine->time[i];
    uint32_t at = released->join++ % JOINS;
    if (released->joins[at].result != released) machine_drop(t->machine, released->joins[at].result);
    released->joins[at].serial = mine->serial;
    released->joins[at].result = result; /* this keeps the reference of a new one */
    if (result) take(t, result);
}

bool machine_knows(const thread *t, uint32_t clock, uint32_t time) {
    if (t->order->time[clock] >= time || clock == t->index || clock == OF_WARP + t->index / WARP) return true;
    if (clock == OF_FENCE + t->index) return t->fenced >= time;
    return clock == OF_WGMMA + t->index / GROUP && t->products_known >= time;
}
