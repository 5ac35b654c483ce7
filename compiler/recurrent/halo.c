/* halo.c: which rows go where, so that every stretch has the rows before and behind it.
 *
 * Example: a document of 8 tokens, of which rank 0 has 0 to 3 and rank 1 has 4 to 7, with before = 3: rank 0 sends rows
 *          1 to 3 to rank 1, which puts them before its stretch. Rows before token 0 do not exist, and stay zeros.
 *
 * Requires: the stretches of documents that are cut.
 * Gives:    one message for each pair of ranks, with all rows that go from the one to the other. Messages do not depend
 *           on each other, so their rounds are an edge colouring for each fabric, with as few rounds as there can be
 *           (Koenig; schedule/colour.h). Rows of the rank itself are copies.
 * Cost:     linear in the stretches, in the stretches that a halo reaches, and in the ranks.
 */
#include "compiler/base/group.h"
#include "compiler/recurrent/recurrent_make.h"
#include "compiler/schedule/colour.h"

/* Rows from a stretch of one rank to the halo of a stretch of another. */
typedef struct halo_copy {
    uint32_t from, to;
    uint64_t row, place; /* in the sender's tensors; in the receiver's halo */
    uint32_t count;
} halo_copy;
typedef struct copy_list {
    halo_copy *at;
    uint32_t count;
    size_t room;
} copy_list;

static bool add_copy(recurrent_batch *b, copy_list *list, const cut_stretch *from, uint64_t start, uint64_t count,
                     const cut_stretch *to, uint64_t place) {
    halo_copy *room = arena_grow(b->scratch, list->at, list->count, &list->room, sizeof *room);
    if (!room) return false;
    list->at = room;
    list->at[list->count++] = (halo_copy){.from = from->rank,
                                          .to = to->rank,
                                          .row = from->at.first + (start - from->at.start),
                                          .place = place,
                                          .count = (uint32_t)count};
    return true;
}

/* The rows before stretch i: from the stretches before it, the nearest first. */
static bool rows_before(recurrent_batch *b, const fcp_recurrent *layer, uint32_t i, copy_list *out) {
    const cut_stretch *to = &b->cut[i];
    const uint64_t halo = (uint64_t)to->number * (layer->before + layer->after);
    for (uint64_t left = layer->before, k = i; left && k && recurrent_follows(&b->cut[k - 1], to); k--) {
        const cut_stretch *from = &b->cut[k - 1];
        const uint64_t count = from->at.length < left ? from->at.length : left;
        left -= count;
        if (!add_copy(b, out, from, from->at.start + from->at.length - count, count, to, halo + left)) return false;
    }
    return true;
}
static bool rows_behind(recurrent_batch *b, const fcp_recurrent *layer, uint32_t i, copy_list *out) {
    const cut_stretch *to = &b->cut[i];
    const uint64_t halo = (uint64_t)to->number * (layer->before + layer->after) + layer->before;
    uint64_t done = 0;
    for (uint64_t k = i + 1; done < layer->after && k < b->cut_count && recurrent_follows(to, &b->cut[k]); k++) {
        const cut_stretch *from = &b->cut[k];
        const uint64_t left = layer->after - done, count = from->at.length < left ? from->at.length : left;
        if (!add_copy(b, out, from, from->at.start, count, to, halo + done)) return false;
        done += count;
    }
    return true;
}

/* Puts copies in order of (sender, receiver); those of a pair stay in their order. */
static fcp_code sort_copies(recurrent_batch *b, copy_list *list) {
    uint32_t *start, *item;
    halo_copy *sorted = ARENA_NEW(b->scratch, halo_copy, list->count + (size_t)1);
    if (!sorted) return FCP_E_NO_MEMORY;
    for (int by_sender = 0; by_sender < 2 && list->count; by_sender++) {
        const uint32_t *key = by_sender ? &list->at->from : &list->at->to;
        fcp_code code = group_new(b->scratch, key, sizeof *list->at, list->count, b->ranks, b->stop, &start, &item);
        if (code) return code;
        for (uint32_t i = 0; i < list->count; i++) sorted[i] = list->at[item[i]];
        halo_copy *other = list->at;
        list->at = sorted;
        sorted = other;
    }
    return FCP_OK;
}

/* Messages: the copies of each pair of ranks. */
typedef struct message_list {
    uint32_t *first; /* copies of message m: first[m] to first[m + 1] - 1 */
    uint32_t *round, *from, *to;
    uint32_t count;
} message_list;

static fcp_code list_messages(recurrent_batch *b, const copy_list *copies, message_list *m) {
    const size_t most = copies->count + (size_t)1;
    *m = (message_list){ARENA_NEW(b->scratch, uint32_t, most), ARENA_NEW(b->scratch, uint32_t, most),
                        ARENA_NEW(b->scratch, uint32_t, most), ARENA_NEW(b->scratch, uint32_t, most), 0};
    if (!m->first || !m->round || !m->from || !m->to) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < copies->count; i++) {
        const halo_copy *x = &copies->at[i];
        if (i && x->from == copies->at[i - 1].from && x->to == copies->at[i - 1].to) continue;
        m->from[m->count] = x->from;
        m->to[m->count] = x->to;
        m->first[m->count++] = i;
    }
    m->first[m->count] = copies->count;
    return FCP_OK;
}

/* Rounds: each fabric is coloured by itself, and both use the same rounds. */
static fcp_code colour_messages(recurrent_batch *b, message_list *m, uint32_t *out_rounds) {
    const size_t most = m->count + (size_t)1;
    uint32_t *src = ARENA_NEW(b->scratch, uint32_t, most), *dst = ARENA_NEW(b->scratch, uint32_t, most),
             *which = ARENA_NEW(b->scratch, uint32_t, most), *colour = ARENA_NEW(b->scratch, uint32_t, most);
    if (!src || !dst || !which || !colour) return FCP_E_NO_MEMORY;
    *out_rounds = 0;
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
        uint32_t count = 0, colours = 0;
        for (uint32_t i = 0; i < m->count; i++) {
            if (m->from[i] == m->to[i] || (int)recurrent_fabric(b, m->from[i], m->to[i]) != fabric) continue;
            src[count] = m->from[i];
            dst[count] = m->to[i];
            which[count++] = i;
        }
        fcp_code code = colour_edges(b->scratch, b->stop, b->ranks, count, src, dst, NULL, colour, &colours);
        if (code) return code;
        for (uint32_t i = 0; i < count; i++) m->round[which[i]] = colour[i];
        if (colours > *out_rounds) *out_rounds = colours;
    }
    return FCP_OK;
}

static bool add_rows(rows_list *rows, uint64_t first, uint32_t count) {
    fcp_halo_rows *room = arena_grow(rows->memory, rows->at, rows->count, &rows->room, sizeof *room);
    if (!room) return false;
    rows->at = room;
    rows->at[rows->count++] = (fcp_halo_rows){.first = first, .count = count};
    return true;
}

/* The steps of one message; of rows that stay, a copy each. */
static bool add_steps(recurrent_batch *b, const copy_list *copies, const message_list *m, uint32_t i, rows_list *rows,
                      step_list *out) {
    const uint32_t from = m->from[i], to = m->to[i], first = rows->count, count = m->first[i + 1] - m->first[i];
    const halo_copy *own = &copies->at[m->first[i]];
    for (uint32_t k = 0; k < count; k++)
        if (!add_rows(rows, own[k].row, own[k].count)) return false;
    for (uint32_t k = 0; k < count; k++)
        if (!add_rows(rows, own[k].place, own[k].count)) return false;
    if (from == to) {
        for (uint32_t k = 0; k < count; k++)
            if (!recurrent_add(b, out, from, 0,
                               (fcp_step){.op = FCP_STEP_COPY, .a = first + k, .b = first + count + k}))
                return false;
        return true;
    }
    const fcp_step send = {.op = FCP_STEP_SEND,
                           .fabric = (uint8_t)recurrent_fabric(b, from, to),
                           .round = m->round[i],
                           .peer = to,
                           .a = first,
                           .b = count};
    fcp_step receive = send;
    receive.op = FCP_STEP_RECV;
    receive.peer = from;
    receive.a = first + count;
    return recurrent_add(b, out, from, 2 * m->round[i] + 1, send) &&
           recurrent_add(b, out, to, 2 * m->round[i] + 1, receive);
}

fcp_code recurrent_halo(recurrent_batch *b, const fcp_recurrent *layer, rows_list *rows, step_list *out) {
    copy_list copies = {.at = NULL};
    message_list m;
    for (uint32_t i = 0; i < b->cut_count; i++) {
        if (!(i & 1023) && fcp_stop_asked(b->stop)) return FCP_E_INTERRUPTED;
        if (!rows_before(b, layer, i, &copies) || !rows_behind(b, layer, i, &copies)) return FCP_E_NO_MEMORY;
    }
    fcp_code code = sort_copies(b, &copies);
    if (!code) code = list_messages(b, &copies, &m);
    if (!code) code = colour_messages(b, &m, &out->rounds);
    out->bound = out->rounds;
    for (uint32_t i = 0; i < m.count && !code; i++)
        if (!add_steps(b, &copies, &m, i, rows, out)) code = FCP_E_NO_MEMORY;
    return code;
}
