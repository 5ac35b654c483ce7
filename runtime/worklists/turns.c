/* turns.c: the model of turns.h: how long the CTAs of the backward pass take for a work list.
 *
 * Cost:     linear in the steps of all pieces, and a look at every CTA for every piece.
 */
#include "runtime/worklists/turns.h"

#include <stdlib.h>

#include "runtime/worklists/list.h"

/* Units of time; a step takes FCP_WORKLISTS_STEP of them.
 *   PASS    to pass a turn on
 *   SUMS    to add dK and dV: 128 KB at 64 bytes a clock. (The products of a step take 2560 clocks.)
 *   APART   how many turns dK and dV have if an item belongs to one CTA: one each. (If CTAs share it, one for both.) */
enum { PASS = 1, SUMS = 6, APART = 2 };

/* Takes a turn: returns when the addition is done that begins at `now` at the earliest, but only after the one before
 * it. *passed: when that one was done; 0: there was none. It is updated. */
static uint64_t take_turn(uint64_t now, uint64_t *passed, uint64_t takes) {
    if (*passed && now < *passed + PASS) now = *passed + PASS;
    return *passed = now + takes;
}

/* The first query head of run `r` in [head, end), where the heads are those of a KV head; end: there is none. */
static uint32_t next_head(const fk_row_run *run, const fcp_worklists_user *user, uint32_t kv, uint32_t head,
                          uint32_t end) {
    if (!user->by_head) return head;
    const uint32_t base = kv * user->group + (run->cls >> FK_SET_BASE_SHIFT) * FK_SET_HEADS;
    const uint32_t set = fcp_worklists_heads_of(run);
    if (head < base) head = base;
    while (head < end && !(head - base < FK_SET_HEADS && set >> (head - base) & 1)) head++;
    return head;
}

/* A piece of work: an item for query heads [first, end) of a KV head. */
struct piece {
    const fk_key_item *item;
    uint32_t kv, first, end;
};

/* Does the steps of a piece; returns when they are done. rows: when each turn at rows was passed on; NULL: nobody
 * waits. */
static uint64_t do_steps(const fcp_worklists *w, const fcp_worklists_user *user, const struct piece *x, uint64_t now,
                         uint64_t *rows, fcp_worklists_time *out) {
    const uint32_t heads = user->kv_heads * user->group;
    for (uint32_t r = x->item->first; r < x->item->first + x->item->runs; r++) {
        const fk_row_run *run = &w->row_runs[r];
        for (uint32_t h = x->first; (h = next_head(run, user, x->kv, h, x->end)) < x->end; h++)
            for (uint32_t at = 0; at < run->count; at += FK_TURN_ROWS) {
                now += FCP_WORKLISTS_STEP;
                out->work += FCP_WORKLISTS_STEP;
                const size_t lock = fcp_worklists_lock_words(run->lock, heads) + (size_t)h * FK_TURNS_OF_RUN;
                uint64_t *passed = rows ? &rows[lock] : NULL;
                if (passed) now = take_turn(now, passed + at / FK_TURN_ROWS, 0);
            }
    }
    return now;
}

/* Adds dK and dV of part `part` of an item's keys in turn. keys: when each turn at them was passed on. */
static uint64_t add_in_turn(const fcp_worklists_user *user, const struct piece *x, uint32_t part, uint64_t now,
                            uint64_t *keys) {
    uint64_t *passed =
        keys + ((size_t)x->item->lock * user->kv_heads + x->kv) * APART * user->parts + (size_t)APART * part;
    if (user->parts > 1) return take_turn(now, passed, SUMS);
    for (uint32_t sum = 0; sum < APART; sum++) now = take_turn(now, passed + sum, SUMS / APART);
    return now;
}

static uint32_t first_free(const uint64_t *at, uint32_t ctas) {
    uint32_t cta = 0;
    for (uint32_t i = 1; i < ctas; i++)
        if (at[i] < at[cta]) cta = i;
    return cta;
}

/* Piece i of a list, as fk_key_piece_of says. */
static struct piece piece_of(const fcp_worklists *w, const fcp_worklists_user *user, uint64_t i) {
    const uint32_t group = user->group, cuts = user->by_head ? 1 : (group + w->subs - 1) / w->subs;
    const uint32_t heads = user->by_head ? 1 : user->kv_heads, cut = (uint32_t)(i % cuts);
    const fk_key_item *item = &w->keys[i / cuts / heads];
    const uint32_t kv = user->by_head ? item->kv_head : (uint32_t)(i / cuts % heads), begin = kv * group;
    if (user->by_head) return (struct piece){item, kv, begin, begin + group};
    const uint32_t end = (cut + 1) * w->subs < group ? (cut + 1) * w->subs : group;
    return (struct piece){item, kv, begin + cut * w->subs, begin + end};
}

bool fcp_worklists_time_of(const fcp_worklists *w, const fcp_worklists_user *user, fcp_worklists_time *out) {
    const size_t locks = fcp_worklists_lock_words(w->lock_count, user->kv_heads * user->group);
    uint64_t *rows = calloc(locks + 1, sizeof *rows), *at = calloc(user->ctas, sizeof *at);
    uint64_t *keys = calloc((size_t)w->lock_count * user->kv_heads * APART * user->parts + 1, sizeof *keys);
    const bool good = rows && keys && at;
    const uint64_t pieces =
        user->parts * fcp_worklists_key_pieces(user->by_head, w->key_count, w->subs, user->kv_heads, user->group);
    *out = (fcp_worklists_time){0, 0};
    for (uint64_t ticket = 0; good && ticket < pieces; ticket++) {
        const struct piece x = piece_of(w, user, ticket / user->parts);
        const uint32_t cta = first_free(at, user->ctas), part = (uint32_t)(ticket % user->parts);
        if (part * (FK_KEYS / user->parts) >= x.item->count) continue; /* it has no keys */
        uint64_t now = do_steps(w, user, &x, at[cta], user->turns_at_rows ? rows : NULL, out);
        if (user->turns_at_keys && x.item->lock != FK_NONE) now = add_in_turn(user, &x, part, now, keys);
        else now += SUMS;
        at[cta] = now;
        if (now > out->end) out->end = now;
    }
    free(rows);
    free(keys);
    free(at);
    return good;
}
