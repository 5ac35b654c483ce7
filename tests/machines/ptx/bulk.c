/* bulk.c: executes bulk additions: the TMA adds floats of shared memory to floats of global memory.
 *
 * Requires: what async.h requires.
 * Method:   an addition is only noted when a lane issues it. Its floats are added when the lane waits for its group, or
 *           by chance before. Until the lane has waited for the group's reads, nobody may write what it reads.
 *           Three rules make up for what sums alone would not show, because atomic additions may come in any order:
 *             - What it reads must have been fenced for the async proxy, as for products (ptx_fenced).
 *             - A warp that has acquired something must fence global memory before an addition that comes behind.
 *             - A release is refused while an addition that comes before it has not been waited for.
 * Cost:     linear in the bytes.
 * Source:   the manual's pages of cp.reduce.async.bulk, cp.async.bulk.commit_group and cp.async.bulk.wait_group, and
 *           its memory consistency model (proxies).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/async.h"
#include "tests/machines/ptx/forms.h"
#include "tests/machines/ptx/module.h"

enum { CHUNK = 16 };

struct ptx_bulk {
    uint64_t to;
    uint32_t from, bytes, when; /* when: the warp's clock when it was issued */
    uint32_t group;             /* how many groups the lane had made before */
    uint8_t lane;
    bool was_read, added;
};

/* Has every acquire that comes before been fenced for the async proxy? */
static bool acquires_fenced(ptx_warp *w, unsigned lane) {
    const ptx_block *b = w->block;
    for (uint32_t v = 0; v < b->warp_count; v++) {
        const ptx_warp *other = &b->warps[v];
        if (other->acquired && (other == w || w->clock[other->self] >= other->acquired))
            return ptx_fail(w, lane,
                            "missing proxy fence: a bulk addition behind what warp %u acquired and did not "
                            "fence",
                            v),
                   false;
    }
    return true;
}

static bool add(ptx_warp *w, struct ptx_bulk *x) {
    for (uint32_t at = 0; at < x->bytes && !x->added; at += CHUNK) {
        uint8_t *to = ptx_global(w, x->lane, x->to + at, CHUNK, PTX_ATOMIC);
        if (!to) return false;
        for (uint32_t n = 0; n < CHUNK; n += 4) {
            float sum, number;
            memcpy(&sum, to + n, 4);
            memcpy(&number, w->block->memory + (x->from - PTX_SHARED_FIRST) + at + n, 4);
            sum += number;
            memcpy(to + n, &sum, 4);
        }
    }
    x->added = true;
    return true;
}

static ptx_next bulk_add(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_async_warp *s = ptx_async_of(w);
    if (!s) return PTX_FAIL;
    for (uint32_t n = 0; n < 3; n++)
        if (!ptx_must_know(w, &i->operands[n], mask, "where a bulk addition is from or to")) return PTX_FAIL;
    for (unsigned l = 0; l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        struct ptx_bulk x = {.to = ptx_value(w, &i->operands[0], l) + (uint64_t)i->operands[0].value,
                             .from = (uint32_t)(ptx_value(w, &i->operands[1], l) + (uint64_t)i->operands[1].value),
                             .bytes = (uint32_t)ptx_value(w, &i->operands[2], l),
                             .when = w->clock[w->self],
                             .group = s->bulk_groups[l],
                             .lane = (uint8_t)l};
        if (!x.bytes || (x.to | x.from | x.bytes) % CHUNK)
            return ptx_fail(w, l, "a bulk addition of %u bytes from %u to %#llx: not multiples of 16", x.bytes, x.from,
                            (unsigned long long)x.to);
        if (!acquires_fenced(w, l)) return PTX_FAIL;
        for (uint32_t at = 0; at < x.bytes; at += CHUNK) {
            uint64_t known;
            if (!ptx_shared_read(w, l, x.from + at, CHUNK, CHUNK, &known) ||
                !ptx_fenced(w, l, x.from + at, CHUNK, "a bulk addition reads"))
                return PTX_FAIL;
            if (known != (1u << CHUNK) - 1) return ptx_fail(w, l, "it adds what nobody wrote");
        }
        ptx_shared_reads(w, x.from, x.bytes);
        if (s->bulk_count == s->bulk_room) {
            uint32_t room = s->bulk_room ? 2 * s->bulk_room : 64;
            struct ptx_bulk *more = realloc(s->bulks, room * sizeof *more);
            if (!more) return ptx_fail(w, l, "out of memory");
            s->bulks = more;
            s->bulk_room = room;
        }
        if (ptx_roll(w->machine, 4) == 0 && !add(w, &x)) return PTX_FAIL;
        s->bulks[s->bulk_count++] = x;
        ptx_moved(w->machine);
    }
    return PTX_NEXT;
}

static ptx_next bulk_commit(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_async_warp *s = ptx_async_of(w);
    (void)i;
    PTX_EACH(s ? mask : 0, l, s->bulk_groups[l]++;);
    return s ? PTX_NEXT : PTX_FAIL;
}

/* Waits for groups of the lanes, all but so many of the last: until they have read, or until they have added. */
enum { READ, ADDED };
static ptx_next bulk_wait(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_async_warp *s = ptx_async_of(w);
    uint32_t left = 0;
    if (!s) return PTX_FAIL;
    for (uint32_t n = 0; n < s->bulk_count; n++) {
        struct ptx_bulk x = s->bulks[n];
        const uint32_t groups = s->bulk_groups[x.lane] - x.group; /* from its own on; 0: that is not made yet */
        const bool now = mask >> x.lane & 1 && groups > i->operands[0].value;
        if (now && !x.was_read) {
            if (!add(w, &x)) return PTX_FAIL; /* ptx_bulk_waited says who may rely on that */
            ptx_shared_was_read(w, x.from, x.bytes);
            x.was_read = true;
        }
        if (!now || i->form->data == READ) s->bulks[left++] = x;
    }
    s->bulk_count = left;
    for (uint32_t n = 0; n < left; n++) /* what others still read may be what one of these has read */
        if (!s->bulks[n].was_read) ptx_shared_reads(w, s->bulks[n].from, s->bulks[n].bytes);
    return PTX_NEXT;
}

bool ptx_bulk_waited(ptx_warp *w, unsigned lane) {
    ptx_block *b = w->block;
    for (uint32_t v = 0; v < b->warp_count; v++) {
        const ptx_async_warp *s = b->warps[v].more;
        for (uint32_t n = 0; s && n < s->bulk_count; n++)
            if (&b->warps[v] == w || w->clock[b->warps[v].self] >= s->bulks[n].when)
                return ptx_fail(w, lane,
                                "unfinished copy: it releases, and a bulk addition of warp %u before that has "
                                "not been waited for",
                                v),
                       false;
    }
    return true;
}

bool ptx_bulk_close(ptx_warp *w, ptx_async_warp *s) {
    const uint32_t left = s->bulk_count;
    free(s->bulks);
    s->bulks = NULL;
    s->bulk_count = s->bulk_room = 0;
    return !left || ptx_fail(w, PTX_LANES, "unfinished copy: the block ends with %u bulk additions not waited for",
                             left) == PTX_NEXT;
}

const ptx_form ptx_bulk_forms[] = {
    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "<aar", bulk_add},
    {"cp.async.bulk.commit_group", "", bulk_commit},
    {"cp.async.bulk.wait_group.read", "<c", bulk_wait, READ},
    {"cp.async.bulk.wait_group", "<c", bulk_wait, ADDED},
};
const size_t ptx_bulk_form_count = sizeof ptx_bulk_forms / sizeof *ptx_bulk_forms;
