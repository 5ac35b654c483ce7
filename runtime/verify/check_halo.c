/* check_halo.c: proves that each row of a halo comes from the token that it is to show.
 *
 * Requires: checked tables, and a network whose sends meet their receives (networks.c).
 * Proves:   - A message brings as many rows as its receiver writes (E602).
 *           - Every halo row that lies within its document is written once, with the row of the right token. Rows
 *             beyond the document are not written (E617). A token has one owner, so the row is that of the owner.
 * Method:   1. Lay the rows of each message beside those of its receive. This gives pieces: so many rows from there of
 *              one rank's tensors, to there of another's halo. Copies are pieces, too.
 *           2. Sort the pieces by halo and row.
 *           3. Walk over the stretches of each rank, and ask for the rows that they need, one piece after the other.
 * Cost:     linear in halo_rows and in the stretches that are not whole documents, but for the sort and a binary search
 *           for each piece. Memory is linear in the network's halo_rows.
 */
#include <stdlib.h>

#include "runtime/verify/networks.h"

typedef unsigned long long ull;

/* `count` rows from `from` on of the tensors of rank `source` go to row `to` of the halo of rank `rank`. */
typedef struct rows_piece {
    uint32_t rank, source, count;
    uint64_t to, from;
} rows_piece;

struct halo_state {
    rows_piece *pieces;
    uint64_t count, room;
};

fcp_code fcp_verify_halo_open(network *n) {
    const fcp_plan *plan = n->v->plan;
    uint64_t rows = 0;
    for (uint32_t r = 0; r < n->v->p->ranks; r++)
        for (const fcp_step *s = plan->steps + n->stream[r].first, *end = s + n->stream[r].count; s < end; s++)
            rows += s->op == FCP_STEP_COPY ? 2 : s->b;
    n->halo = calloc(1, sizeof *n->halo);
    if (n->halo) n->halo->pieces = malloc((size_t)(rows + 1) * sizeof *n->halo->pieces);
    if (!n->halo || !n->halo->pieces)
        return fcp_fail(n->v->err, FCP_E_NO_MEMORY, "out of memory to verify %llu runs of halo rows", (ull)rows);
    n->halo->room = rows;
    return FCP_OK;
}

void fcp_verify_halo_close(network *n) {
    if (n->halo) free(n->halo->pieces);
    free(n->halo);
    n->halo = NULL;
}

fcp_code fcp_verify_halo_moved(network *n, const message *from, const message *to) {
    const fcp_step *out = fcp_verify_step(n, from), *in = fcp_verify_step(n, to);
    const fcp_halo_rows *a = n->v->plan->halo_rows + out->a, *a_end = a + out->b;
    const fcp_halo_rows *b = n->v->plan->halo_rows + in->a, *b_end = b + in->b;
    uint32_t a_done = 0, b_done = 0;
    while (a < a_end && b < b_end) {
        const uint32_t left = a->count - a_done, most = b->count - b_done, count = left < most ? left : most;
        n->halo->pieces[n->halo->count++] = (rows_piece){.rank = to->rank,
                                                         .source = from->rank,
                                                         .count = count,
                                                         .to = b->first + b_done,
                                                         .from = a->first + a_done};
        a_done += count;
        b_done += count;
        if (a_done == a->count) a++, a_done = 0;
        if (b_done == b->count) b++, b_done = 0;
    }
    if (a == a_end && b == b_end) return FCP_OK;
    return fcp_verify_fail_step(n, FCP_E_VERIFY_MATCH, to->rank, to->at, "rank %u sends %s rows than it receives",
                                from->rank, a == a_end ? "fewer" : "more");
}

static void note_copies(network *n) {
    const fcp_plan *plan = n->v->plan;
    for (uint32_t r = 0; r < n->v->p->ranks; r++)
        for (const fcp_step *s = plan->steps + n->stream[r].first, *end = s + n->stream[r].count; s < end; s++)
            if (s->op == FCP_STEP_COPY)
                n->halo->pieces[n->halo->count++] = (rows_piece){.rank = r,
                                                                 .source = r,
                                                                 .count = plan->halo_rows[s->a].count,
                                                                 .to = plan->halo_rows[s->b].first,
                                                                 .from = plan->halo_rows[s->a].first};
}

static int by_place(const void *a, const void *b) {
    const rows_piece *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return x->to < y->to ? -1 : x->to > y->to;
}

/* Returns whether `count` rows of a rank's tensors from `from` on are those of the packed batch from `row` on, which
 * are of one document. So they lie in one stretch. */
static bool is_rows(const all_stretches *all, uint32_t rank, uint64_t from, uint64_t count, uint64_t row) {
    uint64_t low = all->first[rank], high = all->first[rank + 1];
    if (low == high) return false;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (all->of[middle].first <= from) low = middle;
        else high = middle;
    }
    const fcp_stretch *s = &all->of[low];
    return from - s->first < s->length && count <= s->length - (from - s->first) && s->start + (from - s->first) == row;
}

/* A walk over the pieces of a rank. */
typedef struct rows_walk {
    const rows_piece *at, *end;
    uint32_t done; /* rows of *at */
} rows_walk;

/* Asks for halo rows `to` to to + count - 1 of a rank: the packed batch's from `row` on. */
static fcp_code ask(const network *n, rows_walk *w, uint32_t rank, uint64_t to, uint64_t count, uint64_t row) {
    while (count) {
        if (w->at == w->end || w->at->rank != rank || w->at->to + w->done > to)
            return fcp_verify_fail_step(n, FCP_E_VERIFY_HALO, rank, FCP_NONE,
                                        "nothing writes halo row %llu, that of row "
                                        "%llu of the batch",
                                        (ull)to, (ull)row);
        if (w->at->to + w->done < to)
            return fcp_verify_fail_step(n, FCP_E_VERIFY_HALO, rank, FCP_NONE,
                                        "halo row %llu is written twice, or is "
                                        "beyond its document",
                                        (ull)(w->at->to + w->done));
        const uint64_t left = w->at->count - w->done, some = left < count ? left : count;
        if (!is_rows(n->all, w->at->source, w->at->from + w->done, some, row))
            return fcp_verify_fail_step(n, FCP_E_VERIFY_HALO, rank, FCP_NONE,
                                        "halo row %llu is row %llu of the batch, "
                                        "and not row %llu of rank %u",
                                        (ull)to, (ull)row, (ull)(w->at->from + w->done), w->at->source);
        w->done += (uint32_t)some;
        if (w->done == w->at->count) w->at++, w->done = 0;
        to += some;
        row += some;
        count -= some;
    }
    return FCP_OK;
}

static fcp_code ask_stretch(const network *n, rows_walk *w, uint32_t rank, uint64_t number) {
    const all_stretches *all = n->all;
    const fcp_stretch *s = &all->of[number];
    const uint64_t before = n->layer->before, after = n->layer->after;
    const uint64_t at = (number - all->first[rank]) * (before + after) + before, behind = s->start + s->length;
    const uint64_t above = s->start - all->document_start[all->place[number]];
    const uint64_t below = all->document_end[all->place[number]] - behind;
    const uint64_t up = before < above ? before : above, down = after < below ? after : below;
    fcp_code code = ask(n, w, rank, at - up, up, s->start - up);
    return code ? code : ask(n, w, rank, at, down, behind);
}

fcp_code fcp_verify_halo_end(network *n) {
    fcp_code code = FCP_OK;
    note_copies(n);
    if (n->halo->count) qsort(n->halo->pieces, n->halo->count, sizeof *n->halo->pieces, by_place);
    rows_walk w = {.at = n->halo->pieces, .end = n->halo->pieces + n->halo->count};
    for (uint32_t r = 0; r < n->v->p->ranks && !code; r++) {
        for (uint64_t i = n->all->first[r]; i < n->all->first[r + 1] && !code; i++)
            if (!(n->all->of[i].begins && n->all->of[i].ends)) code = ask_stretch(n, &w, r, i);
        if (!code && w.at < w.end && w.at->rank == r)
            code = fcp_verify_fail_step(n, FCP_E_VERIFY_HALO, r, FCP_NONE,
                                        "halo row %llu is written twice, or is beyond "
                                        "its document",
                                        (ull)(w.at->to + w.done));
    }
    return code;
}
