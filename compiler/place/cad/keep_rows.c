/* keep_rows.c: which rows stay on a bin (a rank, or a node) that has too much work.
 *
 * Requires: runs with at least one pair, and for each the keys of its sequence that the bin holds.
 * Gives: the runs divided into those that stay, with at most `cap` work, and those that leave.
 * Cost: O(runs log runs), and O(log cuts) sums for the run that is cut.
 * Units: pairs, bytes.
 *
 * The rows with most pairs leave, because then fewest rows travel. The run at which enough has left is cut. There are
 * three ways to cut it, and each has its price:
 *
 *   low    The first rows stay, with all their keys. Their keys must come from where the sequence begins, but no row is
 *          computed at two places.
 *   own    The last rows stay, but only against the keys that the bin holds itself. Nothing comes here; what the last
 *          rows have with earlier keys is computed elsewhere, and their state must travel, not their output.
 *   near   If the bin has room for all pairs of its own rows and own keys: all rows stay, against those keys and some
 *          before them.
 *
 * Where runs are to stay whole (CAD_WHOLE_RUNS), this one leaves, and runs of fewer pairs a row stay.
 *
 * What leaves costs what it will cost its receivers, of whom a typical one has room for `room` pairs (cad_cost).
 */
#include "compiler/place/cad/cad.h"

#include "compiler/base/sort.h"

bool cad_add(arena *a, cad_runs *list, const cad_run *r) {
    if (list->count == list->room) {
        cad_run *grown = arena_grow(a, list->at, list->count, &list->room, sizeof *grown);
        if (!grown) return false;
        list->at = grown;
    }
    list->at[list->count++] = *r;
    return true;
}

/* Work elsewhere: what its receivers pay. */
static uint64_t away_cost(const cad_input *in, const cad_run *r, uint64_t room) {
    uint32_t parts;
    uint64_t work = cad_work(&in->pairs, r);
    if (!work) return 0;
    uint64_t keys = cad_span(&in->pairs, r);
    uint64_t each = cad_cost(&in->price, keys, room / in->pairs.weight, cad_whole(&in->pairs, r), &parts);
    return (uint64_t)((unsigned __int128)each * work / room);
}

/* A run cut into what stays (first) and what leaves. */
typedef struct parting {
    cad_run stays, leaves[3];
    uint32_t count;
    uint64_t cost;
} parting;

static void leave(const cad_input *in, parting *p, const cad_run *r, uint64_t room) {
    if (!cad_work(&in->pairs, r)) return;
    p->leaves[p->count++] = *r;
    p->cost += away_cost(in, r, room);
}

/* Keys of the stayers that the bin does not hold. */
static uint64_t keys_cost(const cad_input *in, const cad_run *r, const cad_own *own) {
    cad_run before = *r, after = *r;
    if (before.k1 > own->first) before.k1 = own->first;
    if (after.k0 < own->end) after.k0 = own->end;
    uint64_t keys = cad_work(&in->pairs, &before) ? cad_span(&in->pairs, &before) : 0;
    if (cad_work(&in->pairs, &after)) keys += cad_span(&in->pairs, &after);
    return keys * in->price.kv;
}

static parting part_low(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
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
    leave(in, &p, &rest, room);
    if (cad_work(&in->pairs, &p.stays)) p.cost += keys_cost(in, &p.stays, own);
    return p;
}

/* The last rows against own keys. */
static parting part_own(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
    parting p = {.stays = *r};
    cad_run before = *r, after = *r, rest = *r;
    p.stays.k0 = r->k0 > own->first ? r->k0 : own->first;
    if (in->pairs.tables && p.stays.k1 > own->end) p.stays.k1 = own->end; /* causal rows see nothing after their own */
    uint64_t work;
    p.stays.x = rest.y = cad_last_rows(&in->pairs, &p.stays, stay, &work);
    before.x = after.x = p.stays.x;
    before.k1 = p.stays.k0;
    after.k0 = p.stays.k1;
    leave(in, &p, &rest, room);
    leave(in, &p, &before, room);
    leave(in, &p, &after, room);
    return p;
}

/* All rows against the last keys that fit. */
static parting part_near(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
    parting p = {.stays = *r};
    cad_run rest = *r;
    p.stays.k0 = rest.k1 = cad_last_keys(&in->pairs, r, stay);
    leave(in, &p, &rest, room);
    p.cost += keys_cost(in, &p.stays, own);
    return p;
}

static parting part(const cad_input *in, const cad_run *r, const cad_own *own, uint64_t stay, uint64_t room) {
    parting best = part_low(in, r, own, stay, room);
    cad_run mine = *r;
    mine.k0 = r->k0 > own->first ? r->k0 : own->first;
    mine.k1 = r->k1 < own->end ? r->k1 : own->end;
    if (mine.k0 >= mine.k1 || mine.k0 == r->k0) return best; /* no own keys, or nothing before them */
    uint64_t own_work = cad_work(&in->pairs, &mine);
    if (!own_work) return best;
    parting other = own_work >= stay ? part_own(in, r, own, stay, room) : part_near(in, r, own, stay, room);
    return other.cost < best.cost ? other : best;
}

fcp_code cad_keep(const cad_input *in, arena *a, const cad_run *runs, const cad_own *own, size_t count, uint64_t cap,
                  uint64_t room, cad_runs *kept, cad_runs *away) {
    uint64_t *order = ARENA_NEW(a, uint64_t, count + 1), *other = ARENA_NEW(a, uint64_t, count + 1), most = 0, all = 0;
    if (!order || !other) return FCP_E_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        uint64_t work = cad_work(&in->pairs, &runs[i]);
        order[i] = work / (runs[i].y - runs[i].x);
        all += work;
        if (order[i] > most) most = order[i];
    }
    unsigned shift = 0;
    while (most >> shift > UINT32_MAX) shift++;
    for (size_t i = 0; i < count; i++) order[i] = (UINT32_MAX - (order[i] >> shift)) << 32 | i;
    sort_u64(order, other, count);
    if (!room) room = 1;
    uint64_t over = all > cap ? all - cap : 0;
    for (size_t i = 0; i < count; i++) {
        const cad_run *r = &runs[(uint32_t)order[i]];
        uint64_t work = cad_work(&in->pairs, r);
        if (!over) {
            if (!cad_add(a, kept, r)) return FCP_E_NO_MEMORY;
        } else if (work <= over || room == CAD_WHOLE_RUNS) {
            if (!cad_add(a, away, r)) return FCP_E_NO_MEMORY;
            over -= work < over ? work : over;
        } else {
            parting p = part(in, r, &own[(uint32_t)order[i]], work - over, room);
            if (cad_work(&in->pairs, &p.stays) && !cad_add(a, kept, &p.stays)) return FCP_E_NO_MEMORY;
            for (uint32_t k = 0; k < p.count; k++)
                if (!cad_add(a, away, &p.leaves[k])) return FCP_E_NO_MEMORY;
            over = 0;
        }
    }
    return FCP_OK;
}
