/* ports.c: recolours units that would leave by one port in the same round.
 *
 * Example: nodes of four with `fabric = rail`. There GPU i of a node reaches GPU i of other nodes alone, so whatever a
 * node sends to GPU i of another node leaves by the port of its own GPU i, whichever of its ranks sends it. In round 0
 * rank 0 sends to rank 7 and rank 1 sends to rank 11. Both of these are GPU 3 of their nodes, so both units leave by
 * the port of rank 3. In round 1 rank 0 sends to rank 10, by the port of rank 2. If rank 0 exchanges its two rounds, no
 * port sends twice in a round.
 *
 * Requires: a colouring in which no rank sends or receives two units of a colour.
 * Gives: such a colouring with as many colours. The sum over ports and colours of (what the port sends in the colour)^2
 *     is no larger than before.
 * Cost: for each sweep O(units + shared ports x colours x ranks) at most. There are at most PORT_SWEEPS sweeps.
 * Units: tokens.
 *
 * 1. Take a colour a, a unit of it that shares its port, and another colour b. No rank sends or receives two units of a
 *    colour, so the units of a and b form paths and cycles on which the two colours alternate.
 * 2. On the path or cycle of this unit, exchange the two colours. The result is still a colouring (a Kempe chain).
 * 3. Keep the exchange if the ports then have less to send at once, and if no round gets a larger unit than it had.
 *    Otherwise undo it.
 */
#include "compiler/schedule/ports.h"

#include <string.h>

#include "compiler/schedule/schedule_tuning.h"
#include "runtime/base/stop.h"

enum { SIDES = 2 };
#define NONE UINT32_MAX

typedef struct ports {
    const ports_input *in;
    uint32_t *colour;
    uint32_t *at[SIDES]; /* [colour * ranks + rank]: the unit of that colour that the rank sends, receives; or NONE */
    uint64_t *load;      /* [colour * ranks + port] */
    uint32_t *largest;   /* per colour: the size of its largest unit at first; no unit may become larger */
    uint32_t *path, count; /* the units of the path or cycle at hand */
    uint32_t *crowded;     /* units of the colour at hand that share a port */
    uint32_t *met;         /* per unit: the last pair of colours for which it was put on a path */
    uint32_t pair;         /* the number of the pair of colours at hand */
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

/* Adds to the path the units with colour a or b that follow `unit`, first across its end on `side`, then across the
 * other end of the next unit, and so on. */
static void follow(ports *p, uint32_t unit, int side, uint32_t a, uint32_t b) {
    for (;; side = !side) {
        unit = *place_of(p, side, a + b - p->colour[unit], unit);
        if (unit == NONE || p->met[unit] == p->pair) return;
        p->met[unit] = p->pair;
        p->path[p->count++] = unit;
    }
}

/* Exchanges the colours of the path's units, and returns by how much the sum of squares grows. */
static int64_t exchange(ports *p, uint32_t a, uint32_t b) {
    int64_t grows = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        const uint32_t unit = p->path[i], from = p->colour[unit], to = a + b - from, port = port_of(p, unit);
        uint64_t *less = load_of(p, from, port), *more = load_of(p, to, port);
        const uint64_t size = p->in->size[unit];
        grows += (int64_t)(2 * size * (*more + size)) - (int64_t)(2 * size * *less);
        *less -= size, *more += size;
        p->colour[unit] = to;
    }
    return grows;
}

/* Enters the path's new colours into `at`. */
static void enter_path(ports *p, uint32_t a, uint32_t b) {
    for (uint32_t i = 0; i < p->count; i++)
        for (int side = 0; side < SIDES; side++) {
            uint32_t *before = place_of(p, side, a + b - p->colour[p->path[i]], p->path[i]);
            if (*before == p->path[i]) *before = NONE;
        }
    for (uint32_t i = 0; i < p->count; i++)
        for (int side = 0; side < SIDES; side++)
            *place_of(p, side, p->colour[p->path[i]], p->path[i]) = p->path[i];
}

/* Tries the path or cycle of colours a and b through a unit of colour a. True: its units have exchanged the colours. */
static bool try_path(ports *p, uint32_t unit, uint32_t a, uint32_t b) {
    p->count = 0;
    p->met[unit] = p->pair;
    p->path[p->count++] = unit;
    for (int side = 0; side < SIDES; side++) follow(p, unit, side, a, b);
    for (uint32_t i = 0; i < p->count; i++)
        if (p->in->size[p->path[i]] > p->largest[a + b - p->colour[p->path[i]]]) return false;
    if (exchange(p, a, b) < 0) {
        enter_path(p, a, b);
        return true;
    }
    exchange(p, a, b); /* back again */
    return false;
}

/* Does the unit's port send other units, too, in the unit's colour? */
static bool shares_port(const ports *p, uint32_t unit) {
    return *load_of(p, p->colour[unit], port_of(p, unit)) > p->in->size[unit];
}

/* Recolours units of colour a that share a port. True: something has changed. */
static bool relieve(ports *p, uint32_t a) {
    uint32_t count = 0;
    bool changed = false;
    for (uint32_t r = 0; r < p->in->ranks; r++) {
        const uint32_t unit = p->at[0][(size_t)a * p->in->ranks + r];
        if (unit != NONE && shares_port(p, unit)) p->crowded[count++] = unit;
    }
    for (uint32_t b = 0; b < p->in->colours && count; b++) {
        if (b == a) continue;
        p->pair++;
        for (uint32_t i = 0; i < count; i++) {
            const uint32_t unit = p->crowded[i];
            if (p->met[unit] != p->pair && p->colour[unit] == a && shares_port(p, unit))
                changed |= try_path(p, unit, a, b);
        }
    }
    return changed;
}

fcp_code ports_spread(const ports_input *in, arena *scratch, uint32_t *colour) {
    const size_t places = (size_t)in->colours * in->ranks;
    ports p = {.in = in, .colour = colour, .load = ARENA_ZNEW(scratch, uint64_t, places + 1),
               .path = ARENA_NEW(scratch, uint32_t, in->count + (size_t)1),
               .met = ARENA_ZNEW(scratch, uint32_t, in->count + (size_t)1)};
    p.largest = ARENA_ZNEW(scratch, uint32_t, in->colours + (size_t)1);
    p.crowded = ARENA_NEW(scratch, uint32_t, in->ranks);
    for (int side = 0; side < SIDES; side++)
        if (!(p.at[side] = ARENA_NEW(scratch, uint32_t, places + 1))) return FCP_E_NO_MEMORY;
    if (!p.load || !p.path || !p.met || !p.largest || !p.crowded) return FCP_E_NO_MEMORY;
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
