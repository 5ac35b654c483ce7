/* keep_rows.c: chooses the rows that stay on a bin (a rank, or a node) that has too much work.
 *
 * Requires: runs with at least one pair, and for each the keys of its sequence that the bin holds.
 * Gives: the runs divided into those that stay, with at most `cap` work, and those that leave.
 * Cost: O(runs log runs), and O(log cuts) sums for the run that is cut.
 * Units: pairs, bytes.
 *
 * The rows with most pairs leave first, because then fewest rows travel. At some run enough has left; this run is cut.
 * There are three ways:
 *
 *   low    The first rows stay, with all their keys. These keys must be brought, but no row is computed at two places.
 *   own    The last rows stay, but only against the keys that the bin holds itself. No keys come here. The rest of
 *          these rows is computed elsewhere, so partial results travel instead of results.
 *   near   All rows stay, against the last keys that fit.
 *
 * `near` takes the place of `own` if the bin's own keys are too few to fill the work that may stay. The cheaper of
 * `low` and the other one is taken. What leaves costs what its receivers pay for it, if a typical receiver has room for
 * `room` pairs (cad_cost).
 *
 * If runs are to stay whole (CAD_WHOLE_RUNS), this run leaves, and runs with fewer pairs a row stay.
 */
#include "compiler/place/cad/cad.h"

#include "compiler/base/integers.h"
#include "compiler/base/sort.h"

bool cad_add_run(arena *a, cad_runs *list, const cad_run *r) {
    if (!(list->at = arena_grow(a, list->at, list->count, &list->room, sizeof *list->at))) return false;
    list->at[list->count++] = *r;
    return true;
}

/* The bytes that the receivers of a run pay for it. */
static uint64_t away_cost(const cad_input *in, const cad_run *r, uint64_t room) {
    uint32_t parts;
    uint64_t work = cad_work(&in->pairs, r);
    if (!work) return 0;
    uint64_t keys = cad_span(&in->pairs, r);
    uint64_t each = cad_cost(&in->price, keys, room / in->pairs.weight, cad_whole(&in->pairs, r), &parts);
    return (uint64_t)((unsigned __int128)each * work / room);
}

/* A run that is cut: what stays of it, what leaves, and the bytes that this costs. */
typedef struct parting {
    cad_run stays, leaves[3];
    uint32_t count;
    uint64_t cost;
} parting;

static void add_leaving(const cad_input *in, parting *p, const cad_run *r, uint64_t room) {
    if (!cad_work(&in->pairs, r)) return;
    p->leaves[p->count++] = *r;
    p->cost += away_cost(in, r, room);
}

/* The bytes of bringing those keys of rows that stay which the bin does not hold. */
static uint64_t keys_cost(const cad_input *in, const cad_run *r, const cad_own *own) {
    cad_run before = *r, after = *r;
    if (before.k1 > own->first) before.k1 = own->first;
    if (after.k0 < own->end) after.k0 = own->end;
    uint64_t keys = cad_work(&in->pairs, &before) ? cad_span(&in->pairs, &before) : 0;
    if (cad_work(&in->pairs, &after)) keys += cad_span(&in->pairs, &after);
    return keys * in->price.kv;
}

/* Way `low`: the first rows stay. */
static parting cut_low(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
    parting p = {.stays = *r};
    cad_run rest = *r;
    uint64_t all = cad_work(&in->pairs, r), work;
    rest.x = cad_last_rows(&in->pairs, r, all - stay, &work); /* too little leaves, by less than one shard */
    if (rest.x > r->x && rest.x < r->y) {
        cad_run more = *r;
        more.y = rest.x;
        if (work < all - stay) rest.x = cad_row_before(&in->pairs, &more);
    } else if (rest.x == r->y) rest.x = cad_row_before(&in->pairs, r);
    p.stays.y = rest.x;
    add_leaving(in, &p, &rest, room);
    if (cad_work(&in->pairs, &p.stays)) p.cost += keys_cost(in, &p.stays, own);
    return p;
}

/* Way `own`: the last rows stay, against the bin's own keys. */
static parting cut_own(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
    parting p = {.stays = *r};
    cad_run before = *r, after = *r, rest = *r;
    p.stays.k0 = r->k0 > own->first ? r->k0 : own->first;
    if (in->pairs.tables && p.stays.k1 > own->end) p.stays.k1 = own->end; /* causal rows see nothing after their own */
    uint64_t work;
    p.stays.x = rest.y = cad_last_rows(&in->pairs, &p.stays, stay, &work);
    before.x = after.x = p.stays.x;
    before.k1 = p.stays.k0;
    after.k0 = p.stays.k1;
    add_leaving(in, &p, &rest, room);
    add_leaving(in, &p, &before, room);
    add_leaving(in, &p, &after, room);
    return p;
}

/* Way `near`: all rows stay, against the last keys that fit. */
static parting cut_near(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
    parting p = {.stays = *r};
    cad_run rest = *r;
    p.stays.k0 = rest.k1 = cad_last_keys(&in->pairs, r, stay);
    add_leaving(in, &p, &rest, room);
    p.cost += keys_cost(in, &p.stays, own);
    return p;
}

/* Cuts a run so that `stay` work stays, in the cheaper of two ways. */
static parting cut_run(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
    parting best = cut_low(in, r, own, stay, room);
    cad_run mine = *r;
    mine.k0 = r->k0 > own->first ? r->k0 : own->first;
    mine.k1 = r->k1 < own->end ? r->k1 : own->end;
    if (mine.k0 >= mine.k1 || mine.k0 == r->k0) return best; /* no own keys, or nothing before them */
    uint64_t own_work = cad_work(&in->pairs, &mine);
    if (!own_work) return best;
    parting other = own_work >= stay ? cut_own(in, r, own, stay, room) : cut_near(in, r, own, stay, room);
    return other.cost < best.cost ? other : best;
}

fcp_code cad_keep(const cad_input *in, arena *a, const cad_run *runs, const cad_own *own, size_t count, uint64_t cap,
                  uint64_t room, cad_runs *kept, cad_runs *away) {
    uint64_t *order = ARENA_NEW(a, uint64_t, count + 1), *other = ARENA_NEW(a, uint64_t, count + 1), all = 0;
    if (!order || !other) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        uint64_t work = cad_work(&in->pairs, &runs[i]);
        order[i] = work / (runs[i].y - runs[i].x);
        all += work;
    }
    order_falling(order, other, count);
    if (!room) room = 1;
    uint64_t over = sub_sat(all, cap);
    for (size_t i = 0; i < count; i++) {
        const cad_run *r = &runs[order[i]];
        uint64_t work = cad_work(&in->pairs, r);
        if (!over) {
            if (!cad_add_run(a, kept, r)) return FCP_E_NO_MEMORY;
        } else if (work <= over || room == CAD_WHOLE_RUNS) {
            if (!cad_add_run(a, away, r)) return FCP_E_NO_MEMORY;
            over -= work < over ? work : over;
        } else {
            parting p = cut_run(in, r, &own[order[i]], work - over, room);
            if (cad_work(&in->pairs, &p.stays) && !cad_add_run(a, kept, &p.stays)) return FCP_E_NO_MEMORY;
            for (uint32_t k = 0; k < p.count; k++)
                if (!cad_add_run(a, away, &p.leaves[k])) return FCP_E_NO_MEMORY;
            over = 0;
        }
    }
    return FCP_OK;
}
