/* ports.c: exchanges the colours of units that would leave by one port at the same time.
 *
 * Requires: a colouring in which no rank sends or receives two units of a colour.
 * Gives: such a colouring with as many colours. The sum of squares of what a port sends in a colour has become less.
 * Cost: for each sweep O(units + clashes x colours x ranks) at most; at most PORT_SWEEPS.
 * Units: tokens.
 *
 * Take two colours. Their units alone make paths and circles, on which the colours alternate, because no rank has two
 * units of a colour on a side. If all units of one path or circle exchange the two colours, it is still a colouring
 * (Kempe). So of each path and circle that way is taken in which ports have less to send at once.
 *
 * Example: rank 0 sends to 7 and rank 1 to 11 in round 0, both by the port of rank 3, and in round 1 rank 0 sends to
 * 10, by that of rank 2. If rank 0 exchanges its two rounds, and nobody else is concerned, the ports are used in turn.
 */
#include "compiler/schedule/ports.h"

#include <string.h>

#include "compiler/schedule/tuning.h"
#include "runtime/base/stop.h"

enum { SIDES = 2 };
#define NONE UINT32_MAX

typedef struct ports {
    const ports_input *in;
    uint32_t *colour;
    uint32_t *at[SIDES]; /* [colour * ranks + rank]: the unit of that colour that the rank sends, receives; or NONE */
    uint64_t *load;      /* [colour * ranks + port] */
    uint32_t *largest;   /* per colour: the size of its largest unit, at first */
    uint32_t *part;      /* units of the path at hand */
    uint32_t count;
    uint32_t *crowded;   /* units of the colour at hand that clash */
    uint32_t *met;       /* per unit: the number of the last pair of colours in which it was met */
    uint32_t pair;
} ports;

static uint32_t port_of(const ports *p, uint32_t unit) {
    return p->in->src[unit] - p->in->src[unit] % p->in->gpus + p->in->dst[unit] % p->in->gpus;
}

static uint64_t *load_of(const ports *p, uint32_t colour, uint32_t port) {
    return &p->load[(size_t)colour * p->in->ranks + port];
}

static uint32_t *place_of(const ports *p, int side, uint32_t colour, uint32_t unit) {
    return &p->at[side][(size_t)colour * p->in->ranks + (side ? p->in->dst : p->in->src)[unit]];
}

/* Adds units to the path, from `unit` on, whose colour is a or b; first across its end on `side`. */
static void follow(ports *p, uint32_t unit, int side, uint32_t a, uint32_t b) {
    for (;; side = !side) {
        unit = *place_of(p, side, a + b - p->colour[unit], unit);
        if (unit == NONE || p->met[unit] == p->pair) return;
        p->met[unit] = p->pair;
        p->part[p->count++] = unit;
    }
}

/* Exchanges the colours of the path's units, and returns by how much the sum of squares grows. */
static int64_t exchange(ports *p, uint32_t a, uint32_t b) {
    int64_t grows = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const uint32_t unit = p->part[i], from = p->colour[unit], to = a + b - from, port = port_of(p, unit);
        uint64_t *less = load_of(p, from, port), *more = load_of(p, to, port);
        const uint64_t size = p->in->size[unit];
        grows += (int64_t)(2 * size * (*more + size)) - (int64_t)(2 * size * *less);
        *less -= size, *more += size;
        p->colour[unit] = to;
    }
    return grows;
}

/* Writes down who has the path's units now. */
static void settle(ports *p, uint32_t a, uint32_t b) {
    for (uint32_t i = 0; i < p->count; i++)
        for (int side = 0; side < SIDES; side++) {
            uint32_t *before = place_of(p, side, a + b - p->colour[p->part[i]], p->part[i]);
            if (*before == p->part[i]) *before = NONE;
        }
    for (uint32_t i = 0; i < p->count; i++)
        for (int side = 0; side < SIDES; side++)
            *place_of(p, side, p->colour[p->part[i]], p->part[i]) = p->part[i];
}

/* The path or circle of a unit of colour a, with units of b. True: it has exchanged them. */
static bool try_path(ports *p, uint32_t unit, uint32_t a, uint32_t b) {
    p->count = 0;
    p->met[unit] = p->pair;
    p->part[p->count++] = unit;
    for (int side = 0; side < SIDES; side++) follow(p, unit, side, a, b);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->in->size[p->part[i]] > p->largest[a + b - p->colour[p->part[i]]]) return false;
    if (exchange(p, a, b) < 0) {
        settle(p, a, b);
        return true;
    }
    exchange(p, a, b); /* back again */
    return false;
}

/* Does the unit's port send more than it in the unit's colour? */
static bool clashes(const ports *p, uint32_t unit) {
    return *load_of(p, p->colour[unit], port_of(p, unit)) > p->in->size[unit];
}

/* Exchanges units of a colour that clash for those of other colours. True: some have been. */
static bool relieve(ports *p, uint32_t a) {
    uint32_t count = 0;
    bool changed = false;
    for (uint32_t r = 0; r < p->in->ranks; r++) {
        const uint32_t unit = p->at[0][(size_t)a * p->in->ranks + r];
        if (unit != NONE && clashes(p, unit)) p->crowded[count++] = unit;
    }
    for (uint32_t b = 0; b < p->in->colours && count; b++) {
        if (b == a) continue;
        p->pair++;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t unit = p->crowded[i];
            if (p->met[unit] != p->pair && p->colour[unit] == a && clashes(p, unit)) changed |= try_path(p, unit, a, b);
        }
    }
    return changed;
}

fcp_code ports_spread(const ports_input *in, arena *scratch, uint32_t *colour) {
    const size_t places = (size_t)in->colours * in->ranks;
    ports p = {.in = in, .colour = colour, .load = ARENA_ZNEW(scratch, uint64_t, places + 1),
               .part = ARENA_NEW(scratch, uint32_t, in->count + (size_t)1),
               .met = ARENA_ZNEW(scratch, uint32_t, in->count + (size_t)1)};
    p.largest = ARENA_ZNEW(scratch, uint32_t, in->colours + (size_t)1);
    p.crowded = ARENA_NEW(scratch, uint32_t, in->ranks);
    for (int side = 0; side < SIDES; side++)
        if (!(p.at[side] = ARENA_NEW(scratch, uint32_t, places + 1))) return FCP_E_NO_MEMORY;
    if (!p.load || !p.part || !p.met || !p.largest || !p.crowded) return FCP_E_NO_MEMORY;
    for (int side = 0; side < SIDES; side++) memset(p.at[side], 0xff, places * sizeof *p.at[side]);
    for (uint32_t i = 0; i < in->count; i++) {
        for (int side = 0; side < SIDES; side++) *place_of(&p, side, colour[i], i) = i;
        if (in->size[i] > p.largest[colour[i]]) p.largest[colour[i]] = in->size[i];
        *load_of(&p, colour[i], port_of(&p, i)) += in->size[i];
    }
    bool changed = true;
    for (uint32_t sweep = 0; sweep < PORT_SWEEPS && changed; sweep++) {
        changed = false;
        for (uint32_t a = 0; a < in->colours; a++) {
            if (fcp_stop_asked(in->stop)) return FCP_E_INTERRUPTED;
            changed |= relieve(&p, a);
        }
    }
    return FCP_OK;
}
