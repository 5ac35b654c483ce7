/* machine_async.c: implements mbarriers, named barriers and TMA loads for the machine of fibers.
 *
 * Requires: maps of machine_map_encode.
 * Gives:    these primitives of prim_sm90.h, and a failure by name for every misuse that machine.h lists.
 * Method:   - A TMA load is a list of rows of 128 bytes. Rows arrive in an order that the seed draws, after the load
 *             was begun and before the wait for its mbarrier ends.
 *           - Rows count for the phase of the mbarrier that is under way when they arrive.
 *           - A thread that waits for a phase acquires (machine_order.c) what was released by all threads that arrived
 *             in that phase. It also sees the loads that the phase counted.
 * Source:   the PTX manual: mbarrier, cp.async.bulk.tensor, bar; the 128-byte swizzle, which replaces bits 4 to 6 of an
 *           address by their exclusive or with bits 7 to 9.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/fibers/machine_parts.h"
#include "codegen/kernels/abi.h"
#define FK_PRIMITIVE(type, name, parameters) type name##_host parameters;
#include "codegen/kernels/prim_sm90.h"
#undef FK_PRIMITIVE

enum { MOST_BYTES = (1 << 20) - 1, MOST_ARRIVALS = (1 << 20) - 1, ROW = 128 };

static uint32_t byte_of(uint32_t address) { return address - MACHINE_SHARED_BASE; }

/* --- mbarriers ------------------------------------------------------------------------------------ */

void fk_mbarrier_init_host(fk_u32 address, fk_u32 count) {
    thread *t = machine_self;
    cta *b = t->cta;
    uint8_t *data = machine_shared(t, address, 8, 8);
    uint32_t byte = byte_of(address);
    chunk *x = &b->chunks[byte / 16];
    if (x->mbarrier[byte / 8 % 2]) machine_fail(t, "barrier: the one at shared byte %u is opened twice", byte);
    if (count == 0 || count > MOST_ARRIVALS) machine_fail(t, "barrier: opened for %u arrivals", count);
    if (b->mbarrier_count == MBARRIERS) machine_fail(t, "barrier: more than %d in a block", MBARRIERS);
    machine_writes(t, address, 8, false);
    machine_wrote(b, address, 8, t->index, t->time);
    memset(data, 0xff, 8);
    b->mbarriers[b->mbarrier_count] = (mbarrier){.at = byte, .count = count, .pending = count, .opener = t->index};
    x->mbarrier[byte / 8 % 2] = (uint8_t)++b->mbarrier_count;
}

void fk_mbarrier_init_fence_host(void) {
    thread *t = machine_self;
    cta *b = t->cta;
    for (uint32_t i = 0; i < b->mbarrier_count; i++)
        if (b->mbarriers[i].opener == t->index && !b->mbarriers[i].fenced) b->mbarriers[i].fenced = t->time + 1;
    t->fenced = t->time++;
}

void fk_fence_proxy_async_host(void) {
    thread *t = machine_self;
    t->fenced = t->time++;
}

void fk_fence_proxy_async_global_host(void) {
    thread *t = machine_self;
    t->cta->acquired -= t->acquired;
    t->waited = t->acquired = false;
}

static mbarrier *find(thread *t, uint32_t address) {
    cta *b = t->cta;
    machine_shared(t, address, 8, 8);
    uint32_t byte = byte_of(address), number = b->chunks[byte / 16].mbarrier[byte / 8 % 2];
    if (!number) machine_fail(t, "barrier: there is none open at shared byte %u", byte);
    mbarrier *x = &b->mbarriers[number - 1];
    if (!x->fenced || !machine_knows(t, x->opener, x->fenced))
        machine_fail(
            t,
            "barrier: the one at shared byte %u is used, and thread %u, which opened it, has not fenced that and "
            "met this thread since",
            byte, x->opener);
    return x;
}

/* Ends the phase if all have arrived and all bytes have come. */
static void settle(const thread *where, cta *b, mbarrier *x) {
    if (x->pending) return;
    if (x->bytes < 0)
        machine_wrong(where,
                      "barrier: for a phase of the one at shared byte %u, %lld bytes more came than were expected",
                      x->at, (long long)-x->bytes);
    if (x->bytes) return;
    x->arriving.sum->time[OF_MBARRIER + (x - b->mbarriers)] = ++x->phases;
    machine_gathered(b->threads, &x->arriving, &x->ended);
    x->pending = x->count;
}

static void arrive(uint32_t address, uint32_t bytes) {
    thread *t = machine_self;
    mbarrier *x = find(t, address);
    if (!x->pending)
        machine_fail(t, "barrier: more than %u arrive in a phase of the one at shared byte %u", x->count, x->at);
    if (x->bytes + (int64_t)bytes > MOST_BYTES)
        machine_fail(t, "barrier: the one at shared byte %u expects %lld bytes", x->at,
                     (long long)(x->bytes + (int64_t)bytes));
    x->bytes += bytes;
    machine_release(t, &x->arriving);
    x->pending--;
    settle(t, t->cta, x);
    machine_give_way(t);
}
void fk_mbarrier_arrive_host(fk_u32 address) { arrive(address, 0); }
void fk_mbarrier_arrive_expect_host(fk_u32 address, fk_u32 bytes) { arrive(address, bytes); }

bool machine_phase_over(const thread *t) { return (t->cta->mbarriers[t->waits].phases & 1) != t->seen; }

/* Has it missed a phase: are there others between the one that it waited for last and the one whose end it would see
 * now? */
bool machine_missed(const thread *t) {
    const mbarrier *x = &t->cta->mbarriers[t->waits];
    return (int64_t)x->phases > (int64_t)t->phases[t->waits] + (t->phases[t->waits] == -2 ? 2 : 1);
}

void fk_mbarrier_wait_host(fk_u32 address, fk_u32 parity) {
    thread *t = machine_self;
    mbarrier *x = find(t, address);
    uint32_t number = (uint32_t)(x - t->cta->mbarriers);
    if (parity > 1) machine_fail(t, "phase error: a wait for parity %u", parity);
    machine_give_way(t);
    t->waits = number;
    t->seen = parity;
    if (machine_phase_over(t) && (int32_t)x->phases - 1 == t->phases[number])
        machine_fail(t, "phase error: the thread waits again for phase %d of barrier %u, for which it has waited",
                     t->phases[number], x->at);
    t->state = MEETS_MBARRIER;
    machine_pause(t);
    t->phases[number] = (int32_t)x->phases - 1;
    machine_acquire(t, x->ended);
}

/* --- named barriers ------------------------------------------------------------------------------------- */

static void named_warp(thread *t, uint32_t id, uint32_t threads, bool waits) {
    cta *b = t->cta;
    thread *lanes = &b->threads[t->index / WARP * WARP];
    named_barrier *x = &b->named[id];
    for (uint32_t i = 0; i < WARP; i++)
        if (lanes[i].operands->in[0] != id || lanes[i].operands->in[1] != threads)
            machine_fail(t, "divergence: lanes of a warp name barrier %u of %u threads, and barrier %u of %u", id,
                         threads, lanes[i].operands->in[0], lanes[i].operands->in[1]);
    if (!x->arrived) x->threads = threads, x->came = 0;
    if (x->threads != threads)
        machine_fail(t, "named barrier: number %u is of %u threads here, and of %u where others are", id, threads,
                     x->threads);
    if (x->came >> t->index / WARP & 1)
        machine_fail(t, "named barrier: a warp %s again at number %u before all have come", waits ? "waits" : "arrives",
                     id);
    x->came |= 1u << t->index / WARP;
    for (uint32_t i = 0; i < WARP; i++) machine_release(&lanes[i], &x->arriving);
    b->warps[t->index / WARP].named_seen = x->generation;
    x->arrived += WARP;
    if (x->arrived < threads) return;
    machine_gathered(t, &x->arriving, &x->ended);
    machine_drop(t->machine, x->arriving.sum);
    x->arriving = (gathering){0};
    x->arrived = 0;
    x->generation++;
}

static void meet_named(meeting kind, fk_u32 id, fk_u32 threads) {
    thread *t = machine_self;
    if (id == 0 || id >= NAMED) machine_fail(t, "named barrier: there is no number %u", id);
    if (threads == 0 || threads % WARP || threads > t->machine->launch->threads)
        machine_fail(t, "named barrier: number %u is of %u threads, and the block has %u", id, threads,
                     t->machine->launch->threads);
    operands mine = {.in = {id, threads}};
    if (machine_meet(t, kind, &mine)) {
        named_warp(t, id, threads, kind == MEET_NAMED_SYNC);
        machine_met(t);
    }
    if (kind == MEET_NAMED_ARRIVE) return;
    t->waits = id;
    t->seen = t->cta->warps[t->index / WARP].named_seen;
    t->state = MEETS_NAMED_BARRIER;
    machine_pause(t);
    machine_acquire(t, t->cta->named[id].ended);
}
void fk_named_barrier_sync_host(fk_u32 id, fk_u32 threads) { meet_named(MEET_NAMED_SYNC, id, threads); }
void fk_named_barrier_arrive_host(fk_u32 id, fk_u32 threads) { meet_named(MEET_NAMED_ARRIVE, id, threads); }

/* --- TMA loads ------------------------------------------------------------------------------------------------ */

/* A map in memory: a mark, what it says, and a checksum over both. */
enum { MARK, BASE, DIM, STRIDE = DIM + MACHINE_DIMS, BOX = STRIDE + MACHINE_DIMS - 1, SHAPE = BOX + MACHINE_DIMS, SUM };
static const fk_u64 map_mark = UINT64_C(0x70616d2d6b662d31);

static fk_u64 sum_of(const fk_map *map) {
    fk_u64 sum = 0;
    for (int i = 0; i < SUM; i++) sum = (sum ^ map->words[i]) * UINT64_C(0x9e3779b97f4a7c15) + (sum >> 29);
    return sum;
}

/* The manual wants each stride to be a multiple of the one before it. That of slots is not, where K and V have rows of
 * different lengths. Drivers are known to make such maps: those of FlashAttention-3 have heads after rows. */
bool machine_map_encode(fk_map *out, const machine_map *map) {
    const fk_u64 most = UINT64_C(1) << 40;
    bool good = map->base % 16 == 0 && map->base && (map->element == 1 || map->element == 2 || map->element == 4) &&
                (map->swizzle == 0 || map->swizzle == MACHINE_SWIZZLE_128) && (uintptr_t)out % 64 == 0;
    for (int i = 0; i < MACHINE_DIMS; i++)
        good = good && map->dims[i] && map->dims[i] <= UINT64_C(1) << 32 && map->box[i] && map->box[i] <= 256;
    for (int i = 0; i < MACHINE_DIMS - 1; i++)
        good = good && map->strides[i] && map->strides[i] % 16 == 0 && map->strides[i] < most;
    good = good && map->strides[1] % map->strides[0] == 0 && map->box[0] * map->element % 16 == 0 &&
           (!map->swizzle || map->box[0] * map->element <= ROW);
    if (!good) return false;
    memset(out, 0, sizeof *out);
    out->words[MARK] = map_mark;
    out->words[BASE] = map->base;
    for (int i = 0; i < MACHINE_DIMS; i++) out->words[DIM + i] = map->dims[i], out->words[BOX + i] = map->box[i];
    for (int i = 0; i < MACHINE_DIMS - 1; i++) out->words[STRIDE + i] = map->strides[i];
    out->words[SHAPE] = (fk_u64)map->element << 32 | map->swizzle;
    out->words[SUM] = sum_of(out);
    return true;
}

static machine_map decode(thread *t, const fk_map *map) {
    if ((uintptr_t)map % 64) machine_fail(t, "map: at %#llx, no multiple of 64", (unsigned long long)(uintptr_t)map);
    if (map->words[MARK] != map_mark || map->words[SUM] != sum_of(map))
        machine_fail(t, "map: a tensor copy by what is none");
    const fk_u64 *w = map->words;
    machine_map x = {.base = w[BASE], .element = (uint32_t)(w[SHAPE] >> 32), .swizzle = (uint32_t)w[SHAPE]};
    for (int i = 0; i < MACHINE_DIMS; i++) x.dims[i] = w[DIM + i], x.box[i] = (uint32_t)w[BOX + i];
    for (int i = 0; i < MACHINE_DIMS - 1; i++) x.strides[i] = w[STRIDE + i];
    if (x.box[0] != FK_BOX || x.box[1] != 1 || x.box[2] != FK_BOX || x.box[3] != 1 || x.element != 2)
        machine_fail(t, "map: its boxes are %u x %u x %u x %u numbers of %u bytes", x.box[0], x.box[1], x.box[2],
                     x.box[3], x.element);
    return x;
}

/* Lets row i of a box arrive. */
static void box_row_arrives(cta *b, box *x, uint32_t i) {
    uint32_t to = x->to + i * ROW, number = x->mbarrier;
    mbarrier *counts = &b->mbarriers[number];
    uint8_t *data = b->shared + byte_of(to), zeros[ROW] = {0};
    const uint8_t *row = x->taken ? x->data[i] : zeros;
    if (!x->taken && x->from[i]) memcpy(zeros, (const void *)(uintptr_t)x->from[i], x->bytes);
    machine_wrote(b, to, ROW, OF_MBARRIER + number, counts->phases + 1);
    for (uint32_t c = 0; c < ROW / 16; c++) {
        uint32_t at = x->swizzle ? c ^ byte_of(to) / ROW % 8 : c;
        chunk *there = &b->chunks[byte_of(to) / 16 + at];
        memcpy(data + at * 16, row + c * 16, 16);
        there->copying = false;
        there->swizzle = (uint8_t)(1 + x->swizzle);
    }
    counts->bytes -= ROW;
    settle(x->asker, b, counts);
}

bool machine_progress(cta *b, bool must) {
    struct machine *m = b->threads->machine;
    if (!b->box_count) return false;
    uint64_t rows = machine_roll(m, 2) ? 1 + machine_roll(m, 2 * BOX_ROWS) : must;
    for (; rows && b->box_count && !m->failed; rows--) {
        uint32_t which = (uint32_t)machine_roll(m, b->box_count);
        box *x = &b->boxes[which];
        box_row_arrives(b, x, (x->first + --x->left * x->step) % BOX_ROWS);
        if (!x->left && which != --b->box_count) *x = b->boxes[b->box_count];
    }
    return true;
}

void fk_tma_load_host(fk_u32 to, const fk_map *map, fk_u32 column, fk_u32 head, fk_u32 row, fk_u32 slot,
                      fk_u32 address) {
    thread *t = machine_self;
    cta *b = t->cta;
    mbarrier *counts = find(t, address);
    machine_map from = decode(t, map);
    if (!b->boxes) b->boxes = calloc(BOXES, sizeof *b->boxes);
    if (!b->boxes) machine_fail(t, "out of memory");
    if (t->waited)
        machine_fail(t, "missing proxy fence: the thread has waited for an arrival, "
                     "and a tensor copy reads without one");
    if (b->box_count == BOXES) machine_fail(t, "more than %d tensor copies under way", BOXES);
    uint8_t *data = machine_shared(t, to, FK_BOX_BYTES, ROW);
    if (from.swizzle && to % 1024)
        machine_fail(t,
                     "swizzle mismatch: a tensor copy to shared byte %u, and the pattern begins at multiples of 1024",
                     byte_of(to));
    if (counts->bytes - FK_BOX_BYTES < -MOST_BYTES)
        machine_fail(t, "barrier: too many bytes come for the one at shared byte %u", counts->at);
    machine_writes(t, to, FK_BOX_BYTES, true);
    memset(data, 0xff, FK_BOX_BYTES);
    for (uint32_t i = 0; i < FK_BOX_BYTES / 16; i++) b->chunks[byte_of(to) / 16 + i].copying = true;
    box *x = &b->boxes[b->box_count++];
    x->to = to;
    x->mbarrier = (uint32_t)(counts - b->mbarriers);
    x->swizzle = from.swizzle;
    x->left = BOX_ROWS;
    x->first = (uint32_t)machine_roll(t->machine, BOX_ROWS);
    x->step = (uint32_t)machine_roll(t->machine, BOX_ROWS) | 1;
    x->bytes = column >= from.dims[0]           ? 0
               : from.dims[0] - column < FK_BOX ? (uint32_t)(from.dims[0] - column) * 2
                                                : ROW;
    x->taken = machine_roll(t->machine, 2);
    x->asker = t;
    for (uint32_t i = 0; i < BOX_ROWS; i++) {
        bool there = x->bytes && head < from.dims[1] && row < from.dims[2] && i < from.dims[2] - row &&
                     slot < from.dims[3];
        x->from[i] = there ? from.base + column * 2 + head * from.strides[0] + (row + i) * from.strides[1] +
                                 slot * from.strides[2]
                           : 0;
        if (there) machine_global(t, x->from[i], x->bytes, 2, READ);
        if (!x->taken) continue;
        memset(x->data[i], 0, ROW);
        if (there) memcpy(x->data[i], (const void *)(uintptr_t)x->from[i], x->bytes);
    }
    machine_give_way(t);
}

/* --- CTAs ------------------------------------------------------------------------------------------------------- */

void machine_open_async(cta *b) {
    b->mbarrier_count = b->box_count = 0;
    memset(b->named, 0, sizeof b->named);
}

void machine_close_async(thread *t) {
    cta *b = t->cta;
    if (b->box_count)
        machine_fail(t, "unfinished copy: the block ends with %u tensor copies under way", b->box_count);
    for (uint32_t i = 0; i < b->mbarrier_count; i++) {
        const mbarrier *x = &b->mbarriers[i];
        if (x->pending != x->count || x->bytes)
            machine_fail(
                t,
                "barrier: the block ends, and in a phase of the one at shared byte %u %u of %u have arrived and "
                "%lld bytes are missing",
                x->at, x->count - x->pending, x->count, (long long)x->bytes);
    }
    for (uint32_t i = 0; i < NAMED; i++)
        if (b->named[i].arrived)
            machine_fail(t, "named barrier: the block ends, and at number %u %u of %u threads have arrived", i,
                         b->named[i].arrived, b->named[i].threads);
}
