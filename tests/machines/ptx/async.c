/* async.c: executes the instructions of mbarriers, TMA loads, fences between proxies, and setmaxnreg.
 *
 * Races are found by vector clocks: each warp has a clock that says up to which time of every other warp, and of the
 * loads of every mbarrier, it knows what was done.
 *
 * Requires: clocks with room for agents, which stand for those loads (async.h).
 * Method:   - A TMA load is only noted when a thread issues it. It arrives as a whole; the seed decides whether at once
 *             or while some warp waits. Until then nobody may touch its bytes. It counts for the phase of its mbarrier
 *             that is under way when it arrives.
 *           - An mbarrier has a clock, too. Every warp and every load that arrives there adds what it knows. When a
 *             warp finds the phase ended, it takes over what has been added.
 *           - TMA may overwrite, and WGMMA may read, what a lane wrote by an ordinary store only after that lane has
 *             executed a fence between proxies. A fence advances the clock of its warp; another warp knows of the fence
 *             once its own clock has that time.
 * Cost:     a load takes some microseconds.
 * Source:   the manual's pages of mbarrier, cp.async.bulk.tensor, fence, setmaxnreg; its chapter on tensors (boxes,
 *           what lies outside of them, the 128-byte swizzle); its memory consistency model (proxies).
 */
#include "tests/machines/ptx/async.h"

#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/forms.h"
#include "tests/machines/ptx/module.h"

enum { MOST_COPIES = 256, CHUNK = 16, MOST_COUNT = (1 << 20) - 1, REGISTERS = 65536, MOST_REGISTERS = 248,
       WARPGROUP = 4 };

typedef struct mbarrier {
    uint32_t address, count, pending, phase;
    int64_t bytes;     /* expected and not yet there */
    uint32_t by, when; /* the warp that opened it, and the time of its clock then */
    bool fenced;       /* so that TMA sees it */
    uint32_t *gathers, *ended; /* clocks: of the phase under way; of those that have ended */
} mbarrier;

typedef struct copy {
    ptx_map map;
    int32_t at[PTX_DIMS];
    uint32_t to, barrier;
} copy;

typedef struct block_state {
    mbarrier barriers[PTX_AGENTS];
    uint32_t barrier_count, ticks[PTX_AGENTS];
    copy copies[MOST_COPIES];
    uint32_t copy_count;
    uint32_t free_registers, changes; /* changes: warps that came to the setmaxnreg of their group */
    const ptx_insn *change[PTX_WARPS / WARPGROUP];
    uint32_t changed[PTX_WARPS / WARPGROUP];
} block_state;

static block_state *state_of(ptx_warp *w) {
    ptx_block *b = w->block;
    if (!b->more) b->more = calloc(1, sizeof(block_state));
    if (!b->more) ptx_fail(w, PTX_LANES, "out of memory");
    return b->more;
}
ptx_async_warp *ptx_async_of(ptx_warp *w) {
    if (!w->more) w->more = calloc(1, sizeof(ptx_async_warp));
    if (!w->more) ptx_fail(w, PTX_LANES, "out of memory");
    return w->more;
}

/* --- fences ------------------------------------------------------------------------------------------------------- */

static ptx_next fence_async(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_async_warp *x = ptx_async_of(w);
    (void)i;
    if (!x) return PTX_FAIL;
    if (x->fence_count == x->fence_room) {
        uint32_t room = x->fence_room ? 2 * x->fence_room : 64;
        ptx_fence *more = realloc(x->fences, room * sizeof *more);
        if (!more) return ptx_fail(w, PTX_LANES, "out of memory");
        x->fences = more;
        x->fence_room = room;
    }
    x->fences[x->fence_count++] = (ptx_fence){w->clock[w->self]++, mask};
    return PTX_NEXT;
}

static bool is_fenced(const ptx_warp *w, uint32_t writer, uint32_t lane, uint32_t written) {
    const ptx_warp *v = &w->block->warps[writer];
    const ptx_async_warp *x = v->more;
    uint32_t low = 0, high = x ? x->fence_count : 0, all = high;
    while (low < high) {
        uint32_t at = (low + high) / 2;
        if (x->fences[at].when < written) low = at + 1;
        else high = at;
    }
    while (low < all && !(x->fences[low].lanes >> lane & 1)) low++;
    return low < all && x->fences[low].when < w->clock[v->self];
}

bool ptx_fenced(ptx_warp *w, unsigned lane, uint32_t address, uint32_t bytes, const char *what) {
    const ptx_shadow *s = &w->block->shadow;
    uint32_t first = (address - PTX_SHARED_FIRST) / 4, last = (address - PTX_SHARED_FIRST + bytes - 1) / 4;
    for (uint32_t word = first; word <= last; word++) {
        uint32_t writer = s->writer[word];
        if (!writer || writer > w->block->warp_count) continue; /* nobody wrote it, or a copy did */
        bool as_before = word > first && writer == s->writer[word - 1] && s->lane[word] == s->lane[word - 1];
        if (as_before && s->written[word] == s->written[word - 1]) continue;
        if (!is_fenced(w, writer - 1, s->lane[word], s->written[word]))
            return ptx_fail(w, lane, "missing proxy fence: %s shared memory at %u, which lane %u of warp %u wrote by "
                            "ordinary stores", what, PTX_SHARED_FIRST + word * 4, s->lane[word], writer - 1), false;
    }
    return true;
}

/* --- barriers in shared memory ------------------------------------------------------------------------------------ */

static ptx_next mbarrier_init(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    block_state *s = state_of(w);
    if (!s || !ptx_must_know(w, &i->operands[0], mask, "an address") ||
        !ptx_must_know(w, &i->operands[1], mask, "a count"))
        return PTX_FAIL;
    if (mask & (mask - 1)) return ptx_fail(w, PTX_LANES, "several lanes open a barrier");
    unsigned lane = (unsigned)__builtin_ctz(mask);
    uint32_t address = (uint32_t)(ptx_value(w, &i->operands[0], lane) + (uint64_t)i->operands[0].value);
    uint32_t count = (uint32_t)ptx_value(w, &i->operands[1], lane);
    if (s->barrier_count == PTX_AGENTS) return ptx_fail(w, lane, "more than %d barriers in shared memory", PTX_AGENTS);
    if (!count || count > MOST_COUNT) return ptx_fail(w, lane, "a barrier of %u arrivals", count);
    if (!ptx_shared_begin(w, lane, address, 8, 8)) return PTX_FAIL; /* every ordinary access to it then fails */
    mbarrier *x = &s->barriers[s->barrier_count++];
    *x = (mbarrier){.address = address, .count = count, .pending = count, .by = w->self, .when = w->clock[w->self],
                    .gathers = ptx_clock_new(w->machine), .ended = ptx_clock_new(w->machine)};
    return x->gathers && x->ended ? PTX_NEXT : ptx_fail(w, lane, "out of memory");
}

static ptx_next fence_init(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    block_state *s = state_of(w);
    (void)i, (void)mask;
    for (uint32_t n = 0; s && n < s->barrier_count; n++)
        if (s->barriers[n].by == w->self) s->barriers[n].fenced = true;
    return s ? PTX_NEXT : PTX_FAIL;
}

static mbarrier *barrier_at(ptx_warp *w, const ptx_operand *o, unsigned lane) {
    block_state *s = state_of(w);
    uint32_t address = (uint32_t)(ptx_value(w, o, lane) + (uint64_t)o->value), n = 0;
    if (!s || !ptx_must_know(w, o, 1u << lane, "an address")) return NULL;
    while (n < s->barrier_count && s->barriers[n].address != address) n++;
    mbarrier *x = &s->barriers[n];
    if (n == s->barrier_count) return ptx_fail(w, lane, "there is no barrier at %u", address), NULL;
    if (x->by != w->self && w->clock[x->by] < x->when)
        return ptx_fail(w, lane, "race: nothing orders it behind the opening of the barrier at %u", address), NULL;
    return x;
}

/* Has the phase ended? */
static void look(ptx_machine *m, mbarrier *x) {
    if (x->pending || x->bytes) return;
    for (uint32_t i = 0; i < m->clocks; i++)
        if (x->gathers[i] > x->ended[i]) x->ended[i] = x->gathers[i];
    memset(x->gathers, 0, m->clocks * sizeof *x->gathers);
    x->pending = x->count;
    x->phase++;
    ptx_moved(m);
}

static ptx_next arrive(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        mbarrier *x = barrier_at(w, &i->operands[0], l);
        if (!x) return PTX_FAIL;
        if (!x->pending) return ptx_fail(w, l, "more arrivals at the barrier at %u than its %u", x->address, x->count);
        if (i->form->data) {
            if (!ptx_must_know(w, &i->operands[1], 1u << l, "a number of bytes")) return PTX_FAIL;
            x->bytes += (uint32_t)ptx_value(w, &i->operands[1], l);
            if (x->bytes > MOST_COUNT)
                return ptx_fail(w, l, "the barrier at %u expects more bytes than it can count", x->address);
        }
        ptx_release(w, x->gathers);
        x->pending--;
        look(w->machine, x);
    }
    return PTX_NEXT;
}

/* --- TMA loads ------------------------------------------------------------------------------------------------ */

#define MARK UINT64_C(0x70616d2078747021)
enum { DIMS = 4, STRIDES = DIMS + PTX_DIMS, BOX = STRIDES + PTX_DIMS - 1 }; /* words of a map */
bool ptx_map_encode(void *out, const ptx_map *map) {
    uint64_t words[16] = {MARK, map->base, map->element, map->swizzle};
    bool good = (uintptr_t)out % 64 == 0 && map->base && map->base % 16 == 0 && map->element == 2 &&
                (!map->swizzle || map->swizzle == 128);
    for (int i = 0; i < PTX_DIMS; i++) {
        good = good && map->dims[i] && map->dims[i] <= UINT64_C(1) << 32 && map->box[i] && map->box[i] <= 256;
        words[DIMS + i] = map->dims[i];
        words[BOX + i] = map->box[i];
    }
    for (int i = 0; i < PTX_DIMS - 1; i++) {
        good = good && map->strides[i] % 16 == 0 && map->strides[i] < UINT64_C(1) << 40;
        words[STRIDES + i] = map->strides[i];
    }
    uint64_t inner = (uint64_t)map->box[0] * map->element;
    if (!good || inner % 16 || (map->swizzle && inner > map->swizzle)) return false;
    memcpy(out, words, sizeof words);
    return true;
}

/* Where chunk c of a box goes to, and where it comes from. False: it lies outside the tensor. */
static uint32_t place_of(const copy *x, uint32_t c, uint64_t *from, bool *inside) {
    uint32_t chunks = x->map.box[0] * x->map.element / CHUNK, to = x->to + c * CHUNK, numbers = CHUNK / x->map.element;
    uint32_t rest = c / chunks;
    int64_t first = x->at[0] + (int64_t)(c % chunks * numbers);
    *inside = first >= 0 && (uint64_t)first < x->map.dims[0];
    *from = x->map.base + (uint64_t)first * x->map.element;
    for (int i = 1; i < PTX_DIMS; rest /= x->map.box[i++]) {
        const int64_t at = x->at[i] + (int64_t)(rest % x->map.box[i]);
        *inside = *inside && at >= 0 && (uint64_t)at < x->map.dims[i];
        *from += (uint64_t)at * x->map.strides[i - 1];
    }
    return x->map.swizzle ? to ^ (to >> 7 & 7) << 4 : to;
}
static uint32_t chunks_of(const copy *x) {
    return x->map.box[0] * x->map.element / CHUNK * x->map.box[1] * x->map.box[2] * x->map.box[3];
}

/* A copy arrives. */
static void land(ptx_block *b, block_state *s, uint32_t n) {
    copy x = s->copies[n];
    mbarrier *to = &s->barriers[x.barrier];
    ptx_shadow *shadow = &b->shadow;
    uint32_t agent = b->warp_count + x.barrier, tick = ++s->ticks[x.barrier];
    s->copies[n] = s->copies[--s->copy_count];
    for (uint32_t c = 0; c < chunks_of(&x); c++) {
        uint64_t from;
        bool inside;
        uint32_t at = place_of(&x, c, &from, &inside) - PTX_SHARED_FIRST;
        if (inside) memcpy(b->memory + at, (const void *)(uintptr_t)from, CHUNK);
        else memset(b->memory + at, 0, CHUNK);
        for (uint32_t word = at / 4; word < at / 4 + CHUNK / 4; word++) {
            shadow->writer[word] = (uint8_t)(agent + 1);
            shadow->written[word] = tick;
            shadow->known[word] = 15;
            shadow->under_way[word] = 0;
        }
    }
    to->gathers[b->first + agent] = tick;
    to->bytes -= chunks_of(&x) * CHUNK;
    look(b->machine, to);
    ptx_moved(b->machine);
}

/* For global memory: what a lane may read, TMA loads that it begins may read, too. */
static ptx_next fence_global(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    (void)i;
    w->unproxied &= ~mask;
    w->acquired = 0;
    return PTX_NEXT;
}

static ptx_next tensor_copy(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    block_state *s = state_of(w);
    uint64_t words[16];
    if (!s) return PTX_FAIL;
    for (uint32_t n = 0; n < 2 + PTX_DIMS; n++)
        if (!ptx_must_know(w, &i->operands[n], mask, "where a copy is from or to")) return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        if ((w->unfenced | w->unproxied) >> l & 1)
            return ptx_fail(w, l, "missing %s: a tensor copy after a look at system scope, and it has not fenced",
                            w->unfenced >> l & 1 ? "fence" : "proxy fence");
        uint64_t map = ptx_value(w, &i->operands[1], l);
        if (map >> 56 != PTX_PARAM_WINDOW >> 56)
            return ptx_fail(w, l, "a map at %#llx, which is no parameter", (unsigned long long)map);
        for (uint32_t n = 0; n < 16; n++) {
            const uint8_t *at = ptx_parameter(w, l, map - PTX_PARAM_WINDOW + n * 8, 8);
            if (!at) return PTX_FAIL;
            memcpy(&words[n], at, 8);
        }
        if (words[0] != MARK || map % 64)
            return ptx_fail(w, l, "what is at %#llx is no map, or not at a multiple of 64", (unsigned long long)map);
        copy x = {.map = {.base = words[1], .element = (uint32_t)words[2], .swizzle = (uint32_t)words[3]},
                  .to = (uint32_t)(ptx_value(w, &i->operands[0], l) + (uint64_t)i->operands[0].value)};
        for (int n = 0; n < PTX_DIMS; n++) {
            x.map.dims[n] = words[DIMS + n];
            x.map.box[n] = (uint32_t)words[BOX + n];
            if (n) x.map.strides[n - 1] = words[STRIDES + n - 1];
            x.at[n] = (int32_t)ptx_value(w, &i->operands[2 + n], l);
        }
        mbarrier *to = barrier_at(w, &i->operands[2 + PTX_DIMS], l);
        if (!to) return PTX_FAIL;
        if (!to->fenced)
            return ptx_fail(w, l, "missing proxy fence: the barrier at %u was opened and not fenced", to->address);
        x.barrier = (uint32_t)(to - s->barriers);
        if (x.to % 128) return ptx_fail(w, l, "a tensor copy to %u, which is not a multiple of 128", x.to);
        if (s->copy_count == MOST_COPIES) return ptx_fail(w, l, "more than %d copies under way", MOST_COPIES);
        for (uint32_t c = 0; c < chunks_of(&x); c++) {
            uint64_t from;
            bool inside;
            uint32_t at = place_of(&x, c, &from, &inside);
            if (!ptx_shared_begin(w, l, at, CHUNK, CHUNK) || !ptx_fenced(w, l, at, CHUNK, "a tensor copy writes") ||
                (inside && !ptx_global(w, l, from, CHUNK, PTX_READ)))
                return PTX_FAIL;
        }
        s->copies[s->copy_count++] = x;
        if (ptx_roll(w->machine, 4) == 0) land(w->block, s, (uint32_t)ptx_roll(w->machine, s->copy_count));
        ptx_moved(w->machine);
    }
    return PTX_NEXT;
}

static ptx_next try_wait(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    block_state *s = state_of(w);
    uint32_t ended = 0;
    if (!s || !ptx_must_know(w, &i->operands[2], mask, "a parity")) return PTX_FAIL;
    if (s->copy_count && ptx_roll(w->machine, 3) == 0) land(w->block, s, (uint32_t)ptx_roll(w->machine, s->copy_count));
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        mbarrier *x = barrier_at(w, &i->operands[1], l);
        uint64_t parity = ptx_value(w, &i->operands[2], l);
        if (!x) return PTX_FAIL;
        if (parity > 1) return ptx_fail(w, l, "a parity of %llu", (unsigned long long)parity);
        if ((x->phase & 1) == parity) continue; /* this phase is under way */
        ptx_acquire(w, x->ended);
        ended |= 1u << l;
    }
    PTX_EACH(mask, l, ptx_set(w, &i->operands[0], l, ended >> l & 1););
    ptx_define(w, &i->operands[0], mask, PTX_ALL);
    if (s->copy_count) ptx_moved(w->machine); /* one of them will arrive */
    return ended == mask ? PTX_NEXT : PTX_YIELD;
}

/* --- shared memory that products read ----------------------------------------------------------------------------- */

static void mark(ptx_warp *w, uint32_t address, uint32_t bytes, uint32_t time) {
    ptx_block *b = w->block;
    for (uint32_t word = (address - PTX_SHARED_FIRST) / 4; word <= (address - PTX_SHARED_FIRST + bytes - 1) / 4; word++)
        b->shadow.read[word * b->warp_count + w->index] = time;
}
void ptx_shared_reads(ptx_warp *w, uint32_t address, uint32_t bytes) { mark(w, address, bytes, PTX_UNDER_WAY); }
void ptx_shared_was_read(ptx_warp *w, uint32_t address, uint32_t bytes) { mark(w, address, bytes, w->clock[w->self]); }

/* --- registers ---------------------------------------------------------------------------------------------------- */

enum { FEWER, MORE };
static ptx_next change(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    block_state *s = state_of(w);
    ptx_async_warp *x = ptx_async_of(w);
    uint32_t n = (uint32_t)i->operands[0].value, group = w->index / WARPGROUP;
    uint32_t each = REGISTERS / (w->block->warp_count * PTX_LANES) / 8 * 8;
    if (each > MOST_REGISTERS) each = MOST_REGISTERS;
    if (!s || !x) return PTX_FAIL;
    if (mask != PTX_ALL || group * WARPGROUP + WARPGROUP > w->block->warp_count)
        return ptx_fail(w, PTX_LANES, "it is of no whole warpgroup");
    if (n < 24 || n > 256 || n % 8)
        return ptx_fail(w, PTX_LANES, "%u registers: not a multiple of 8 from 24 to 256", n);
    if (s->changed[group] % WARPGROUP && s->change[group] != i)
        return ptx_fail(w, PTX_LANES, "divergence: other warps of its group change registers elsewhere");
    uint32_t has = x->registers ? x->registers : each;
    if (i->form->data == MORE ? n < has : n > has) return ptx_fail(w, PTX_LANES, "from %u registers to %u", has, n);
    if (i->form->data == MORE && s->free_registers < (n - has) * PTX_LANES) return PTX_AGAIN;
    s->free_registers += (has - n) * PTX_LANES; /* modulo 2^32, since it may decrease */
    s->change[group] = i;
    s->changed[group]++;
    x->registers = n;
    ptx_moved(w->machine);
    return PTX_NEXT;
}

/* --- the end of a block ------------------------------------------------------------------------------------------- */

bool ptx_async_close(ptx_block *b) {
    block_state *s = b->more;
    bool good = true;
    for (uint32_t v = 0; b->warps && v < b->warp_count; v++) {
        ptx_async_warp *x = b->warps[v].more;
        if (!x) continue;
        good = ptx_products_close(&b->warps[v], x->products) && good;
        good = ptx_bulk_close(&b->warps[v], x) && good;
        free(x->fences);
        x->fences = NULL;
        x->products = NULL;
    }
    if (!s) return good;
    if (s->copy_count)
        good = ptx_fail(&b->warps[0], PTX_LANES, "unfinished copy: the block ends with %u tensor copies under way",
                        s->copy_count) == PTX_NEXT;
    for (uint32_t v = 0; v < b->warp_count / WARPGROUP; v++)
        if (s->changed[v] % WARPGROUP)
            good = ptx_fail(&b->warps[v * WARPGROUP], PTX_LANES,
                            "divergence: not all warps of the group changed their registers") == PTX_NEXT;
    for (uint32_t n = 0; n < s->barrier_count; n++) {
        free(s->barriers[n].gathers);
        free(s->barriers[n].ended);
    }
    s->barrier_count = s->copy_count = 0;
    return good;
}

const ptx_form ptx_async_forms[] = {
    {"fence.proxy.async.shared::cta", "", fence_async},
    {"fence.proxy.async.global", "", fence_global},
    {"fence.mbarrier_init.release.cluster", "", fence_init},
    {"mbarrier.init.shared::cta.b64", "<ar", mbarrier_init},
    {"mbarrier.arrive.shared::cta.b64", "<_a", arrive, false},
    {"mbarrier.arrive.expect_tx.shared::cta.b64", "<_ar", arrive, true},
    {"mbarrier.try_wait.parity.shared::cta.b64", "p<ar", try_wait},
    {"cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes", "<a[d{4r}]a", tensor_copy},
    {"setmaxnreg.inc.sync.aligned.u32", "<c", change, MORE, PTX_TOGETHER},
    {"setmaxnreg.dec.sync.aligned.u32", "<c", change, FEWER, PTX_TOGETHER},
};
const size_t ptx_async_form_count = sizeof ptx_async_forms / sizeof *ptx_async_forms;
