/* bulk.c: executes cp.reduce.async.bulk, which adds shared memory to global memory, and its groups.
 *
 * Method:   An addition is noted when a thread issues it. Its source is then being read, and nobody may write it. It is
 *           read at the first wait that covers it, and added at the first that is not `.read`: both as late as may be. A
 *           thread waits for its own groups alone.
 * Source:   the manual's pages of cp.reduce.async.bulk, cp.async.bulk.commit_group and cp.async.bulk.wait_group.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/machines/ptx/async.h"
#include "tests/machines/ptx/forms.h"

enum { CHUNK = 16, WHOLE = 0, READ = 1 };

typedef struct addition {
    uint64_t to;
    uint32_t from, bytes, lane, group; /* group: how many its lane had made before */
    float *values;                     /* NULL: it was not read yet */
    struct addition *next;
} addition;
typedef struct ptx_additions {
    addition *first, **last;
    uint32_t groups[PTX_LANES];
} ptx_additions;

static ptx_additions *additions_of(ptx_warp *w) {
    ptx_async_warp *x = ptx_async_of(w);
    if (x && !x->additions) x->additions = calloc(1, sizeof *x->additions);
    if (!x || !x->additions) return ptx_fail(w, PTX_LANES, "out of memory"), NULL;
    if (!x->additions->last) x->additions->last = &x->additions->first;
    return x->additions;
}

/* Is the source there, and has the async proxy been told? */
static bool may_read(ptx_warp *w, const addition *x) {
    for (uint32_t at = x->from; at < x->from + x->bytes; at += CHUNK) {
        uint64_t known;
        if (!ptx_shared_read(w, x->lane, at, CHUNK, CHUNK, &known) ||
            !ptx_fenced(w, x->lane, at, CHUNK, "a bulk addition reads"))
            return false;
        if ((known & 0xffff) != 0xffff) return ptx_fail(w, x->lane, "it adds what nobody wrote"), false;
    }
    return true;
}

static ptx_next add(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_additions *all = additions_of(w);
    for (unsigned n = 0; n < 3; n++)
        if (!ptx_must_know(w, &i->operands[n], mask, "where an addition is to or from")) return PTX_FAIL;
    for (unsigned l = 0; all && l < PTX_LANES; l++) {
        if (!(mask >> l & 1)) continue;
        addition *x = calloc(1, sizeof *x);
        if (!x) return ptx_fail(w, l, "out of memory");
        *all->last = x;
        all->last = &x->next;
        *x = (addition){.to = ptx_value(w, &i->operands[0], l) + (uint64_t)i->operands[0].value,
                        .from = (uint32_t)(ptx_value(w, &i->operands[1], l) + (uint64_t)i->operands[1].value),
                        .bytes = (uint32_t)ptx_value(w, &i->operands[2], l),
                        .lane = l,
                        .group = all->groups[l]};
        if (x->to % CHUNK || x->from % CHUNK || x->bytes % CHUNK)
            return ptx_fail(w, l, "an addition of %u bytes from %u: something is not a multiple of 16", x->bytes,
                            x->from);
        if (!may_read(w, x)) return PTX_FAIL;
        ptx_shared_reads(w, x->from, x->bytes);
    }
    return all ? PTX_NEXT : PTX_FAIL;
}

static ptx_next commit(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_additions *all = additions_of(w);
    (void)i;
    if (!all) return PTX_FAIL;
    PTX_EACH(mask, l, all->groups[l]++;);
    return PTX_NEXT;
}

static bool take(ptx_warp *w, addition *x) {
    if (x->values) return true;
    x->values = malloc(x->bytes + 1);
    if (!x->values) return ptx_fail(w, x->lane, "out of memory"), false;
    memcpy(x->values, w->block->memory + (x->from - PTX_SHARED_FIRST), x->bytes);
    ptx_shared_was_read(w, x->from, x->bytes);
    return true;
}
static bool put(ptx_warp *w, const addition *x) {
    for (uint32_t n = 0; n < x->bytes / 4; n++) {
        float sum;
        uint8_t *at = ptx_global(w, x->lane, x->to + n * 4, 4, PTX_ATOMIC);
        if (!at) return false;
        memcpy(&sum, at, 4);
        sum += x->values[n];
        memcpy(at, &sum, 4);
    }
    ptx_moved(w->machine);
    return true;
}

/* Waits until at most so many of a lane's groups are still under way, or are still being read. */
static ptx_next wait(ptx_warp *w, const ptx_insn *i, uint32_t mask) {
    ptx_additions *all = additions_of(w);
    const uint32_t keep = (uint32_t)i->operands[0].value;
    if (!all) return PTX_FAIL;
    for (addition **at = &all->first, *x; (x = *at);) {
        const uint32_t ended = all->groups[x->lane] - x->group; /* groups from its own on; 0: its own is not made yet */
        const bool now = mask >> x->lane & 1 && ended > keep;
        if (now && (!take(w, x) || (i->form->data == WHOLE && !put(w, x)))) return PTX_FAIL;
        if (!now || i->form->data == READ) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        free(x->values);
        free(x);
    }
    for (all->last = &all->first; *all->last; all->last = &(*all->last)->next)
        if (!(*all->last)->values) ptx_shared_reads(w, (*all->last)->from, (*all->last)->bytes);
    return PTX_NEXT;
}

bool ptx_additions_close(ptx_warp *w, struct ptx_additions *all) {
    const bool good = !all || !all->first;
    if (!good) ptx_fail(w, PTX_LANES, "unfinished additions: it ends and has not waited for those to global memory");
    for (addition *x = all ? all->first : NULL, *next; x; x = next) {
        next = x->next;
        free(x->values);
        free(x);
    }
    free(all);
    return good;
}

const ptx_form ptx_bulk_forms[] = {
    {"cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32", "<aar", add},
    {"cp.async.bulk.commit_group", "", commit},
    {"cp.async.bulk.wait_group", "<c", wait, WHOLE},
    {"cp.async.bulk.wait_group.read", "<c", wait, READ},
};
const size_t ptx_bulk_form_count = sizeof ptx_bulk_forms / sizeof *ptx_bulk_forms;
