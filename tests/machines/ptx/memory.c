/* memory.c: executes loads, stores, atomics and copies in all state spaces, and checks that accesses are in order and
 * in bounds.
 *
 * Requires: the records of a CTA's warps exist.
 * Method:   - Shared memory: each word has a record of the warp and lane that wrote it last, and of the warps that have
 *             read it since. Vector clocks of the warps tell whether two accesses are ordered. Lanes of one warp need a
 *             barrier between them, too, and the warp's clock advances there. Each byte has two marks: whether it was
 *             written, and whether a copy to it is under way.
 *           - Global memory: the same, but a word has a record of its last reader alone, and all of it counts as
 *             written.
 *           - Local memory belongs to one lane.
 * Cost:     a few dozen instructions a word.
 * Source:   the manual's chapters on state spaces, data movement (ld, st, cp.async), atom and red, and its memory
 *           consistency model: release and acquire patterns, and what barriers synchronise.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/async.h"
#include "tests/machines/ptx/forms.h"
#include "tests/machines/ptx/module.h"

/* --- order -------------------------------------------------------------------------------------------------------- */

uint32_t *ptx_clock_new(ptx_machine *m) { return calloc(m->clocks, sizeof(uint32_t)); }
void ptx_release(ptx_warp *w, uint32_t *to) {
    for (uint32_t i = 0; i < w->machine->clocks; i++)
        if (w->clock[i] > to[i]) to[i] = w->clock[i];
    w->clock[w->self]++;
}
static void learn(uint32_t *clock, const uint32_t *from, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (from[i] > clock[i]) clock[i] = from[i];
}
void ptx_acquire(ptx_warp *w, const uint32_t *from) { learn(w->clock, from, w->machine->clocks); }

/* --- shared memory ------------------------------------------------------------------------------------------------ */

bool ptx_shared_open(ptx_block *b) {
    size_t words = (b->shared + 3) / 4;
    ptx_shadow *s = &b->shadow;
    b->memory = calloc(words + 1, 4);
    s->written = calloc(words + 1, sizeof *s->written);
    s->read = calloc(words * b->warp_count + 1, sizeof *s->read);
    s->writer = calloc(words + 1, 1);
    s->lane = calloc(words + 1, 1);
    s->known = calloc(words + 1, 1);
    s->under_way = calloc(words + 1, 1);
    return b->memory && s->written && s->read && s->writer && s->lane && s->known && s->under_way;
}
void ptx_shared_close(ptx_block *b) {
    free(b->memory);
    free(b->shadow.written);
    free(b->shadow.read);
    free(b->shadow.writer);
    free(b->shadow.lane);
    free(b->shadow.known);
    free(b->shadow.under_way);
    b->memory = NULL;
    b->shadow = (ptx_shadow){0};
}

static bool shared_at(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align, uint32_t *at) {
    *at = address - PTX_SHARED_FIRST;
    if (address < PTX_SHARED_FIRST || *at > w->block->shared || bytes > w->block->shared - *at) {
        ptx_fail(w, lane, "%u bytes at %u are out of bounds: shared memory is %u bytes from %u on", bytes, address,
                 w->block->shared, PTX_SHARED_FIRST);
        return false;
    }
    if (address % align) ptx_fail(w, lane, "the shared address %u is not a multiple of %u", address, align);
    return address % align == 0;
}

/* Checks that the warp may write or read words. Called before it does. */
static bool in_order(ptx_warp *w, unsigned lane, uint32_t at, uint32_t bytes, bool write) {
    ptx_block *b = w->block;
    ptx_shadow *s = &b->shadow;
    for (uint32_t word = at / 4; word <= (at + bytes - 1) / 4; word++) {
        uint32_t other = s->writer[word];
        if (other && other - 1 != w->index && s->written[word] > w->clock[b->first + other - 1])
            return ptx_fail(w, lane, "race: it %s shared memory at %u, which %s %u wrote", write ? "writes" : "reads",
                            PTX_SHARED_FIRST + word * 4, other > b->warp_count ? "copies for barrier" : "warp",
                            other > b->warp_count ? other - 1 - b->warp_count : other - 1),
                   false;
        if (other && other - 1 == w->index && s->written[word] == w->clock[w->self] && s->lane[word] != lane &&
            s->lane[word] < PTX_LANES && lane < PTX_LANES)
            return ptx_fail(w, lane, "race: it %s shared memory at %u, which lane %u of its warp wrote",
                            write ? "writes" : "reads", PTX_SHARED_FIRST + word * 4, s->lane[word]),
                   false;
        for (uint32_t v = 0; write && v < b->warp_count; v++)
            if (s->read[word * b->warp_count + v] > (v == w->index ? PTX_UNDER_WAY - 1 : w->clock[b->first + v]))
                return ptx_fail(w, lane, "race: it writes shared memory at %u, which warp %u read",
                                PTX_SHARED_FIRST + word * 4, v),
                       false;
        for (uint32_t byte = word * 4 < at ? at : word * 4; byte < at + bytes && byte < word * 4 + 4; byte++)
            if (s->under_way[word] >> byte % 4 & 1)
                return ptx_fail(w, lane, "unfinished copy: it %s shared memory at %u while a copy to it is under way",
                                write ? "writes" : "reads", PTX_SHARED_FIRST + byte), false;
    }
    return true;
}

static void wrote(ptx_warp *w, unsigned lane, uint32_t at, uint32_t bytes, const void *from, uint64_t known) {
    ptx_shadow *s = &w->block->shadow;
    if (from) memcpy(w->block->memory + at, from, bytes);
    else memset(w->block->memory + at, 0, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        uint32_t word = (at + i) / 4, bit = 1u << (at + i) % 4;
        s->writer[word] = (uint8_t)(w->index + 1);
        s->lane[word] = (uint8_t)lane;
        s->written[word] = w->clock[w->self];
        s->known[word] = (uint8_t)((s->known[word] & ~bit) | (known >> i & 1 ? bit : 0));
        s->under_way[word] &= (uint8_t)~bit;
    }
}

const uint8_t *ptx_shared_read(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align,
                               uint64_t *known) {
    ptx_block *b = w->block;
    uint32_t at;
    if (!shared_at(w, lane, address, bytes, align, &at) || !in_order(w, lane, at, bytes, false)) return NULL;
    *known = 0;
    for (uint32_t word = at / 4; word <= (at + bytes - 1) / 4; word++) {
        b->shadow.read[word * b->warp_count + w->index] = w->clock[w->self];
        *known |= (uint64_t)b->shadow.known[word] << (word - at / 4) * 4;
    }
    *known >>= at % 4;
    return b->memory + at;
}
bool ptx_shared_write(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align, const void *from,
                      uint64_t known) {
    uint32_t at;
    if (!shared_at(w, lane, address, bytes, align, &at) || !in_order(w, lane, at, bytes, true)) return false;
    wrote(w, lane, at, bytes, from, known);
    return true;
}
bool ptx_shared_begin(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, uint32_t align) {
    uint32_t at;
    if (!shared_at(w, lane, address, bytes, align, &at) || !in_order(w, lane, at, bytes, true)) return false;
    for (uint32_t i = at; i < at + bytes; i++) w->block->shadow.under_way[i / 4] |= (uint8_t)(1u << i % 4);
    return true;
}
bool ptx_shared_land(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, const void *from) {
    uint32_t at;
    if (!shared_at(w, lane, address, bytes, 1, &at)) return false;
    for (uint32_t i = at; i < at + bytes; i++) w->block->shadow.under_way[i / 4] &= (uint8_t)~(1u << i % 4);
    if (!in_order(w, lane, at, bytes, true)) return false;
    wrote(w, lane, at, bytes, from, ~UINT64_C(0));
    return true;
}

/* --- global memory ------------------------------------------------------------------------------------------------ */

/* The time up to which w knows what a warp did. If clocks belong to a block, it knows nothing of warps of other
 * blocks. */
static bool knows(const ptx_warp *w, uint32_t number, uint32_t when) {
    const ptx_machine *m = w->machine;
    if (m->far) return when <= w->clock[number / m->warps * (m->warps + m->agents) + number % m->warps];
    uint32_t first = w->block->number * m->warps;
    return number >= first && number < first + m->warps && when <= w->clock[number - first];
}

static bool global_order(ptx_warp *w, unsigned lane, const ptx_range *r, ptx_word *words, uint64_t address,
                         uint32_t bytes, ptx_use use) {
    uint32_t me = w->block->number * w->machine->warps + w->index, now = w->clock[w->self];
    for (uint64_t i = (address - r->begin) / 4; i <= (address + bytes - 1 - r->begin) / 4; i++) {
        ptx_word *x = &words[i];
        uint32_t writer = x->writer & ~PTX_BY_ATOMIC;
        bool both = use == PTX_ATOMIC && x->writer & PTX_BY_ATOMIC;
        if (writer && writer - 1 != me && !both && !knows(w, writer - 1, x->written))
            return ptx_fail(w, lane, "race: it %s %s at byte %llu, which warp %u of block %u wrote",
                            use == PTX_READ ? "reads" : "writes", r->what, (unsigned long long)i * 4,
                            (writer - 1) % w->machine->warps, (writer - 1) / w->machine->warps),
                   false;
        if (use != PTX_READ && x->reader && x->reader - 1 != me && !knows(w, x->reader - 1, x->read))
            return ptx_fail(w, lane, "race: it writes %s at byte %llu, which warp %u of block %u read", r->what,
                            (unsigned long long)i * 4, (x->reader - 1) % w->machine->warps,
                            (x->reader - 1) / w->machine->warps),
                   false;
        if (use == PTX_READ) x->reader = me + 1, x->read = now;
        else x->writer = (me + 1) | (use == PTX_ATOMIC ? PTX_BY_ATOMIC : 0), x->written = now;
    }
    return true;
}

/* The launch's ranges, then its module's global variables. */
static const ptx_range *range_of(const ptx_launch *launch, uint32_t i) {
    return i < launch->range_count ? &launch->ranges[i] : &launch->module->globals[i - launch->range_count];
}
uint32_t ptx_range_count(const ptx_launch *launch) { return launch->range_count + launch->module->global_count; }

uint8_t *ptx_global(ptx_warp *w, unsigned lane, uint64_t address, uint32_t bytes, ptx_use use) {
    ptx_machine *m = w->machine;
    const uint32_t count = ptx_range_count(m->launch);
    uint32_t found = count;
    for (uint32_t i = 0; i < count && found == count; i++) {
        uint32_t at = (m->last_range + i) % count;
        const ptx_range *r = range_of(m->launch, at);
        if (address >= r->begin && address < r->end && r->end - address >= bytes) found = at;
    }
    if (found == count)
        return ptx_fail(w, lane, "%u bytes at %#llx are out of bounds of global memory", bytes,
                        (unsigned long long)address),
               NULL;
    const ptx_range *r = range_of(m->launch, found);
    m->last_range = found;
    if (address % bytes)
        return ptx_fail(w, lane, "the address %#llx in %s is not a multiple of %u", (unsigned long long)address,
                        r->what, bytes),
               NULL;
    if (use != PTX_READ && !r->writable)
        return ptx_fail(w, lane, "it writes %s, which is only to be read", r->what), NULL;
    if (r->writable) {
        if (!m->words[found]) m->words[found] = calloc((r->end - r->begin) / 4 + 2, sizeof(ptx_word));
        if (!m->words[found]) return ptx_fail(w, lane, "out of memory"), NULL;
        if (!global_order(w, lane, r, m->words[found], address, bytes, use)) return NULL;
    }
    return (uint8_t *)(uintptr_t)address;
}

static ptx_location *location(ptx_machine *m, uint64_t address, bool make) {
    for (uint32_t i = 0; i < m->location_count; i++)
        if (m->locations[i].address == address) return &m->locations[i];
    if (!make) return NULL;
    ptx_location *more = realloc(m->locations, (m->location_count + 1) * sizeof *more);
    if (!more) return NULL;
    m->locations = more;
    more[m->location_count] = (ptx_location){address, ptx_clock_new(m)};
    return more[m->location_count].clock ? &more[m->location_count++] : NULL;
}

void ptx_memory_close(ptx_machine *m) {
    for (uint32_t i = 0; m->words && i < ptx_range_count(m->launch); i++) free(m->words[i]);
    for (uint32_t i = 0; i < m->location_count; i++) free(m->locations[i].clock);
    free(m->words);
    free(m->locations);
}

const uint8_t *ptx_parameter(ptx_warp *w, unsigned lane, uint64_t address, uint32_t bytes) {
    uint64_t all = w->machine->launch->parameter_bytes;
    if (address > all || bytes > all - address)
        return ptx_fail(w, lane, "parameters are %llu bytes; it reads %u at %llu", (unsigned long long)all, bytes,
                        (unsigned long long)address),
               NULL;
    if (address % bytes)
        return ptx_fail(w, lane, "the parameter at %llu is not at a multiple of %u", (unsigned long long)address,
                        bytes),
               NULL;
    return (const uint8_t *)w->machine->launch->parameters + address;
}

/* Local memory of a lane: its bytes, and then one byte for each that says whether it is known. */
static uint8_t *local_at(ptx_warp *w, unsigned lane, uint64_t address, uint32_t bytes) {
    uint32_t all = w->machine->kernel->local;
    if (address > all || bytes > all - address)
        return ptx_fail(w, lane, "local memory is %u bytes; it has %u at %llu", all, bytes,
                        (unsigned long long)address),
               NULL;
    if (address % bytes)
        return ptx_fail(w, lane, "the local address %llu is not a multiple of %u", (unsigned long long)address, bytes),
               NULL;
    return w->local + (size_t)lane * 2 * all + address;
}

/* --- ld, st ------------------------------------------------------------------------------------------------------- */

enum { GLOBAL, SHARED, LOCAL, PARAM, GENERIC };
enum { ACQUIRE = 1u << 24, RELEASE = 1u << 25, STRONG = 1u << 26, OUTSIDE = 1u << 27 };
#define DATA(bytes, count, sign, space) ((bytes) | (count) << 8 | (sign) << 16 | (space) << 20)

static uint32_t space_of(uint32_t space, uint64_t *address) {
    static const uint64_t windows[] = {PTX_SHARED_WINDOW, PTX_LOCAL_WINDOW, PTX_PARAM_WINDOW};
    for (uint32_t i = 0; space == GENERIC && i < 3; i++)
        if (*address >> 56 == windows[i] >> 56) {
            *address -= windows[i];
            return SHARED + i;
        }
    return space == GENERIC ? GLOBAL : space;
}

static const uint8_t *read(ptx_warp *w, unsigned lane, uint32_t space, uint64_t address, uint32_t bytes, ptx_use use,
                           uint64_t *known) {
    *known = ~UINT64_C(0);
    space = space_of(space, &address);
    if (space == PARAM) return ptx_parameter(w, lane, address, bytes);
    if (space == GLOBAL) return ptx_global(w, lane, address, bytes, use);
    if (space == SHARED) return ptx_shared_read(w, lane, (uint32_t)address, bytes, bytes, known);
    const uint8_t *at = local_at(w, lane, address, bytes);
    for (uint32_t i = 0; at && i < bytes; i++)
        if (!at[w->machine->kernel->local + i]) *known &= ~(UINT64_C(1) << i);
    return at;
}

static ptx_next ld(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t data = i->form->data, bytes = data & 255, count = data >> 8 & 255, space = data >> 20 & 15;
    const ptx_operand *base = &i->operands[count];
    if (!ptx_must_know(w, base, mask, "an address")) return PTX_FAIL;
    uint64_t addresses[PTX_LANES]; /* copied first, because the load may overwrite the base register */
    for (unsigned l = 0; l < PTX_LANES; l++) addresses[l] = ptx_value(w, base, l) + (uint64_t)base->value;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint64_t known;
        if (!(mask >> l & 1)) continue;
        const uint8_t *from =
            read(w, l, space, addresses[l], bytes * count, data & (ACQUIRE | STRONG) ? PTX_ATOMIC : PTX_READ, &known);
        if (!from) return PTX_FAIL;
        for (uint32_t n = 0; n < count; n++) {
            uint64_t x = 0, own = (UINT64_C(1) << bytes) - 1;
            memcpy(&x, from + n * bytes, bytes);
            if (data >> 16 & 1 && bytes < 8) x = (uint64_t)((int64_t)(x << (64 - bytes * 8)) >> (64 - bytes * 8));
            ptx_set(w, &i->operands[n], l, x);
            ptx_define(w, &i->operands[n], 1u << l, (known >> n * bytes & own) == own ? PTX_ALL : 0);
        }
        const ptx_location *x = data & (ACQUIRE | STRONG) ? location(w->machine, addresses[l], false) : NULL;
        if (x && data & ACQUIRE) ptx_acquire(w, x->clock);
        else if (x) learn(w->seen, x->clock, w->machine->clocks);
    }
    if (data & OUTSIDE) w->unfenced |= mask, w->unproxied |= mask;
    if (data & ACQUIRE) w->acquired = w->clock[w->self];
    return data & (ACQUIRE | STRONG) ? PTX_YIELD : PTX_NEXT;
}

/* After a fence a warp knows what was released before its relaxed reads: the two together acquire. */
static ptx_next fence(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i;
    if (mask) ptx_acquire(w, w->seen);
    return PTX_NEXT;
}

/* After such a fence a lane may read what was written outside of the kernel before its relaxed reads. */
static ptx_next fence_sys(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    w->unfenced &= ~mask;
    return fence(w, i, mask);
}

static ptx_next st(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint32_t data = i->form->data, bytes = data & 255, count = data >> 8 & 255, space = data >> 20 & 15,
             all = bytes * count;
    if (!ptx_must_know(w, &i->operands[0], mask, "an address")) return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint8_t from[16];
        uint64_t address = ptx_value(w, &i->operands[0], l) + (uint64_t)i->operands[0].value, known = 0,
                 own = (UINT64_C(1) << bytes) - 1;
        if (!(mask >> l & 1)) continue;
        for (uint32_t n = 0; n < count; n++) {
            uint64_t x = ptx_value(w, &i->operands[1 + n], l);
            memcpy(from + n * bytes, &x, bytes);
            if (ptx_known(w, &i->operands[1 + n]) >> l & 1) known |= own << n * bytes;
        }
        uint32_t where = space_of(space, &address);
        if (where == PARAM) return ptx_fail(w, l, "it writes its parameters");
        if (where == SHARED) {
            if (!ptx_shared_write(w, l, (uint32_t)address, all, all, from, known)) return PTX_FAIL;
            continue;
        }
        if (where == LOCAL) {
            uint8_t *to = local_at(w, l, address, all);
            if (!to) return PTX_FAIL;
            memcpy(to, from, all);
            for (uint32_t n = 0; n < all; n++) to[w->machine->kernel->local + n] = known >> n & 1;
            continue;
        }
        if (known != (UINT64_C(1) << all) - 1) return ptx_fail(w, l, "it stores what nobody wrote to global memory");
        uint8_t *to = ptx_global(w, l, address, all, data & (RELEASE | STRONG) ? PTX_ATOMIC : PTX_WRITE);
        if (!to) return PTX_FAIL;
        memcpy(to, from, all);
        if (data & RELEASE) {
            ptx_location *x = location(w->machine, address, true);
            if (!x) return ptx_fail(w, l, "out of memory");
            if (!ptx_bulk_waited(w, l)) return PTX_FAIL;
            memset(x->clock, 0, w->machine->clocks * sizeof *x->clock); /* a plain store ends earlier releases */
            ptx_release(w, x->clock);
        }
        ptx_moved(w->machine);
    }
    return PTX_NEXT;
}

/* --- atom, red ---------------------------------------------------------------------------------------------------- */

static ptx_next atom_add_u32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const ptx_operand *base = &i->operands[1];
    if (!ptx_must_know(w, base, mask, "an address") || !ptx_must_know(w, &i->operands[2], mask, "what is added"))
        return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint32_t old, sum;
        if (!(mask >> l & 1)) continue;
        uint8_t *at = ptx_global(w, l, ptx_value(w, base, l) + (uint64_t)base->value, 4, PTX_ATOMIC);
        if (!at) return PTX_FAIL;
        memcpy(&old, at, 4);
        sum = old + (uint32_t)ptx_value(w, &i->operands[2], l);
        memcpy(at, &sum, 4);
        ptx_set(w, &i->operands[0], l, old);
        ptx_define(w, &i->operands[0], 1u << l, PTX_ALL);
        ptx_moved(w->machine);
    }
    return PTX_YIELD;
}

/* If it acquires and releases, who comes later knows what all did who came before. */
static ptx_next atom_inc_u32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const ptx_operand *base = &i->operands[1];
    if (!ptx_must_know(w, base, mask, "an address") || !ptx_must_know(w, &i->operands[2], mask, "the greatest number"))
        return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint32_t old, next;
        if (!(mask >> l & 1)) continue;
        const uint64_t address = ptx_value(w, base, l) + (uint64_t)base->value;
        uint8_t *at = ptx_global(w, l, address, 4, PTX_ATOMIC);
        ptx_location *x = at ? location(w->machine, address, true) : NULL;
        if (!at) return PTX_FAIL;
        if (!x) return ptx_fail(w, l, "out of memory");
        memcpy(&old, at, 4);
        next = old >= (uint32_t)ptx_value(w, &i->operands[2], l) ? 0 : old + 1;
        memcpy(at, &next, 4);
        if (i->form->data & ACQUIRE) ptx_acquire(w, x->clock);
        if (i->form->data & RELEASE) ptx_release(w, x->clock);
        ptx_set(w, &i->operands[0], l, old);
        ptx_define(w, &i->operands[0], 1u << l, PTX_ALL);
        ptx_moved(w->machine);
    }
    return PTX_YIELD;
}

/* Lanes add in an order of their own, the numbers of a vector one by one. Subnormal results are kept. */
static ptx_next red_add_f32(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const ptx_operand *base = &i->operands[0];
    uint32_t count = i->form->data, first = (uint32_t)ptx_roll(w->machine, PTX_LANES);
    if (!ptx_must_know(w, base, mask, "an address")) return PTX_FAIL;
    for (uint32_t n = 0; n < count; n++)
        if (!ptx_must_know(w, &i->operands[1 + n], mask, "what is added")) return PTX_FAIL;
    for (unsigned turn = 0; turn < PTX_LANES; turn++) {
        unsigned l = (turn + first) % PTX_LANES;
        if (!(mask >> l & 1)) continue;
        uint8_t *at = ptx_global(w, l, ptx_value(w, base, l) + (uint64_t)base->value, 4 * count, PTX_ATOMIC);
        for (uint32_t n = 0; at && n < count; n++) {
            float sum, x;
            uint32_t bits = (uint32_t)ptx_value(w, &i->operands[1 + n], l);
            memcpy(&sum, at + n * 4, 4);
            memcpy(&x, &bits, 4);
            sum += x;
            memcpy(at + n * 4, &sum, 4);
        }
        if (!at) return PTX_FAIL;
        ptx_moved(w->machine);
    }
    return PTX_NEXT;
}

/* The largest of whole numbers with a sign, or the smallest of those without. */
enum { MAX_S32, MIN_U32 };
static ptx_next red_most(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const ptx_operand *base = &i->operands[0];
    if (!ptx_must_know(w, base, mask, "an address") || !ptx_must_know(w, &i->operands[1], mask, "what is compared"))
        return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint32_t is, x = (uint32_t)ptx_value(w, &i->operands[1], l);
        if (!(mask >> l & 1)) continue;
        uint8_t *at = ptx_global(w, l, ptx_value(w, base, l) + (uint64_t)base->value, 4, PTX_ATOMIC);
        if (!at) return PTX_FAIL;
        memcpy(&is, at, 4);
        if (i->form->data == MAX_S32 ? (int32_t)x > (int32_t)is : x < is) memcpy(at, &x, 4);
        ptx_moved(w->machine);
    }
    return PTX_NEXT;
}

static ptx_next red_add_u64(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const ptx_operand *base = &i->operands[0];
    if (!ptx_must_know(w, base, mask, "an address") || !ptx_must_know(w, &i->operands[1], mask, "what is added"))
        return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        uint64_t sum;
        if (!(mask >> l & 1)) continue;
        uint8_t *at = ptx_global(w, l, ptx_value(w, base, l) + (uint64_t)base->value, 8, PTX_ATOMIC);
        if (!at) return PTX_FAIL;
        memcpy(&sum, at, 8);
        sum += ptx_value(w, &i->operands[1], l);
        memcpy(at, &sum, 8);
        ptx_moved(w->machine);
    }
    return PTX_NEXT;
}

/* --- cp.async ----------------------------------------------------------------------------------------------------- */

static ptx_next cp_async(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const ptx_operand *to = &i->operands[0], *from = &i->operands[1], *size = i->count > 3 ? &i->operands[3] : NULL;
    uint32_t bytes = (uint32_t)i->operands[2].value;
    if (bytes != 16) return ptx_fail(w, PTX_LANES, "cp.async.cg copies 16 bytes, not %u", bytes);
    if (!ptx_must_know(w, to, mask, "an address") || !ptx_must_know(w, from, mask, "an address") ||
        (size && !ptx_must_know(w, size, mask, "a size")))
        return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        if (w->unfenced >> l & 1)
            return ptx_fail(w, l, "missing fence: it copies after a look at system scope, and has not fenced");
        ptx_copy x = {.from = ptx_value(w, from, l) + (uint64_t)from->value,
                      .to = (uint32_t)(ptx_value(w, to, l) + (uint64_t)to->value),
                      .bytes = bytes,
                      .read = size ? (uint32_t)ptx_value(w, size, l) : bytes,
                      .lane = (uint8_t)l,
                      .group = w->commits[l]};
        if (x.read != 0 && x.read != bytes)
            return ptx_fail(w, l, "a copy of %u bytes reads %u", bytes, x.read); /* nothing between is wanted */
        if (x.from % 16)
            return ptx_fail(w, l, "a copy's source, %#llx, is not a multiple of 16", (unsigned long long)x.from);
        if (x.read && !ptx_global(w, l, x.from, x.read, PTX_READ)) return PTX_FAIL;
        if (!ptx_shared_begin(w, l, x.to, bytes, bytes)) return PTX_FAIL;
        if (w->copy_count == w->copy_capacity) {
            uint32_t room = w->copy_capacity ? 2 * w->copy_capacity : 256;
            ptx_copy *more = realloc(w->copies, room * sizeof *more);
            if (!more) return ptx_fail(w, l, "out of memory");
            w->copies = more;
            w->copy_capacity = room;
        }
        w->copies[w->copy_count++] = x;
    }
    return PTX_NEXT;
}

bool ptx_copies_land(ptx_warp *w, uint32_t mask, bool all, uint32_t keep) {
    uint32_t left = 0;
    bool good = true;
    for (uint32_t n = 0; n < w->copy_count; n++) {
        ptx_copy x = w->copies[n];
        bool now = mask >> x.lane & 1 && (all || (x.group < w->commits[x.lane] && w->commits[x.lane] - x.group > keep));
        if (!now) w->copies[left++] = x;
        else if (good)
            good = ptx_shared_land(w, x.lane, x.to, x.bytes, x.read ? (const void *)(uintptr_t)x.from : NULL);
    }
    w->copy_count = left;
    return good;
}
static ptx_next cp_wait_all(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i;
    return ptx_copies_land(w, mask, true, 0) ? PTX_NEXT : PTX_FAIL;
}
static ptx_next cp_wait_group(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    return ptx_copies_land(w, mask, false, (uint32_t)i->operands[0].value) ? PTX_NEXT : PTX_FAIL;
}
static ptx_next cp_commit(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i;
    PTX_EACH(mask, l, w->commits[l]++;);
    return PTX_NEXT;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

/* Who looks at the clock may wait for a time, which comes. */
static ptx_next read_clock(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    const uint64_t now = i->form->data == 32 ? (uint32_t)w->machine->executed : w->machine->executed;
    PTX_EACH(mask, l, ptx_set(w, &i->operands[0], l, now););
    ptx_define(w, &i->operands[0], mask, PTX_ALL);
    ptx_moved(w->machine);
    return PTX_YIELD;
}

static ptx_next nanosleep(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    uint64_t longest = 0, now = w->machine->executed;
    if (!ptx_must_know(w, &i->operands[0], mask, "a time")) return PTX_FAIL;
    PTX_EACH(mask, l, uint64_t x = ptx_value(w, &i->operands[0], l); if (x > longest) longest = x;);
    ptx_moved(w->machine);
    if (!w->asleep) w->asleep = now + longest;
    if (now < w->asleep) return PTX_AGAIN;
    w->asleep = 0;
    return PTX_NEXT;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

#define ONE(op, name, form, function, space)                                                                           \
    {op name ".b8", form, function, DATA(1, 1, 0, space)}, {op name ".u8", form, function, DATA(1, 1, 0, space)},      \
    {op name ".s8", form, function, DATA(1, 1, 1, space)}, {op name ".b16", form, function, DATA(2, 1, 0, space)},     \
    {op name ".u16", form, function, DATA(2, 1, 0, space)}, {op name ".s16", form, function, DATA(2, 1, 1, space)},    \
    {op name ".b32", form, function, DATA(4, 1, 0, space)}, {op name ".u32", form, function, DATA(4, 1, 0, space)},    \
    {op name ".s32", form, function, DATA(4, 1, 1, space)}, {op name ".f32", form, function, DATA(4, 1, 0, space)},    \
    {op name ".b64", form, function, DATA(8, 1, 0, space)}, {op name ".u64", form, function, DATA(8, 1, 0, space)},    \
    {op name ".s64", form, function, DATA(8, 1, 1, space)}
#define SOME(op, name, n, form, function, space)                                                                       \
    {op name ".v" #n ".u32", form, function, DATA(4, n, 0, space)},                                                    \
    {op name ".v" #n ".b32", form, function, DATA(4, n, 0, space)},                                                    \
    {op name ".v" #n ".s32", form, function, DATA(4, n, 1, space)},                                                    \
    {op name ".v" #n ".f32", form, function, DATA(4, n, 0, space)}
#define LD(name, space)                                                                                                \
    ONE("ld", name, "w<a", ld, space), SOME("ld", name, 2, "{2r}<a", ld, space),                                       \
    SOME("ld", name, 4, "{4r}<a", ld, space),                                                                          \
    {"ld" name ".v2.u64", "{2d}<a", ld, DATA(8, 2, 0, space)}, {"ld" name ".v2.b64", "{2d}<a", ld, DATA(8, 2, 0, space)}
#define ST(name, space)                                                                                                \
    ONE("st", name, "<aw", st, space), SOME("st", name, 2, "<a{2r}", st, space),                                       \
    SOME("st", name, 4, "<a{4r}", st, space)

const ptx_form ptx_memory_forms[] = {
    LD("", GENERIC),
    LD(".global", GLOBAL),
    LD(".global.nc", GLOBAL),
    LD(".shared", SHARED),
    LD(".local", LOCAL),
    LD(".param", PARAM),
    ST("", GENERIC),
    ST(".global", GLOBAL),
    ST(".shared", SHARED),
    ST(".local", LOCAL),
    {"ld.acquire.gpu.global.u32", "r<a", ld, DATA(4, 1, 0, GLOBAL) | ACQUIRE},
    {"ld.relaxed.gpu.global.u32", "r<a", ld, DATA(4, 1, 0, GLOBAL) | STRONG},
    {"fence.acq_rel.gpu", "", fence},
    {"ld.relaxed.sys.global.u32", "r<a", ld, DATA(4, 1, 0, GLOBAL) | STRONG | OUTSIDE},
    {"fence.acq_rel.sys", "", fence_sys},
    {"ld.volatile.global.u32", "r<a", ld, DATA(4, 1, 0, GLOBAL) | STRONG}, /* as if relaxed: the manual, ld.volatile */
    {"atom.global.add.u32", "r<ar", atom_add_u32},                         /* relaxed.gpu where nothing is said */
    {"st.volatile.global.u32", "<ar", st, DATA(4, 1, 0, GLOBAL) | STRONG},
    {"st.release.gpu.global.u32", "<ar", st, DATA(4, 1, 0, GLOBAL) | RELEASE},
    {"st.relaxed.sys.global.u32", "<ar", st, DATA(4, 1, 0, GLOBAL) | STRONG},
    {"atom.relaxed.gpu.global.add.u32", "r<ar", atom_add_u32},
    {"atom.acq_rel.gpu.global.inc.u32", "r<ar", atom_inc_u32, ACQUIRE | RELEASE},
    {"atom.relaxed.gpu.global.inc.u32", "r<ar", atom_inc_u32},
    {"red.relaxed.gpu.global.add.u64", "<ad", red_add_u64},
    {"red.relaxed.gpu.global.add.f32", "<ar", red_add_f32, 1},
    {"red.relaxed.gpu.global.add.v2.f32", "<a{2r}", red_add_f32, 2},
    {"red.relaxed.gpu.global.add.v4.f32", "<a{4r}", red_add_f32, 4},
    {"cp.async.cg.shared.global", "<aacr", cp_async},
    {"cp.async.cg.shared.global", "<aac", cp_async},
    {"cp.async.wait_all", "", cp_wait_all},
    {"red.relaxed.gpu.global.max.s32", "<ar", red_most, MAX_S32},
    {"red.relaxed.gpu.global.min.u32", "<ar", red_most, MIN_U32},
    {"mov.u64", "d<t", read_clock},
    {"mov.u32", "r<t", read_clock, 32},
    {"nanosleep.u32", "<r", nanosleep},
    {"cp.async.wait_group", "<c", cp_wait_group},
    {"cp.async.commit_group", "", cp_commit},
};
const size_t ptx_memory_form_count = sizeof ptx_memory_forms / sizeof *ptx_memory_forms;
