/* ways.c: estimates how long a plan takes whose blocks travel by given ways, to choose between two sets of ways.
 *
 * Requires: hops; a placement.
 * Gives: a time that is good for comparing two sets of ways of one placement. It is no prediction, because it leaves
 *     out that ranks wait for each other.
 * Cost: O(hops + tiles + ranks).
 * Units: picoseconds.
 *
 * For each pass these times are found:
 *
 *     ports    of the busiest port, of net or local, in one direction; or of the busiest uplink of a node
 *     compute  of the rank that computes most
 *     stage    what the busiest port carries in one stage (stages_away.c)
 *     legs     (a number) how many hops the longest way has
 *
 *     wire = ports + (legs - 1) stage / LEG_NOT_HIDDEN
 *     time = the larger of wire and compute + the smaller / NOT_HIDDEN
 *
 * Example: if wire is 40 ms, compute 30 ms, and NOT_HIDDEN 4, the pass takes 47.5 ms. If the smaller time were hidden
 * behind the larger, it would take 40 ms. A part of it is not hidden, because what arrives last is computed last. The
 * term with `legs` is there because a rank that passes a block on does so a stage after it came. Only a part of this
 * time counts, because meanwhile other blocks use the wire. tests/unit/simulate/test_relay_time.c compares estimates
 * with the simulator.
 */
#include "compiler/schedule/ways.h"
#include "runtime/plan/bytes.h"

#include <string.h>

#include "compiler/schedule/schedule_parts.h"
#include "compiler/schedule/schedule_tuning.h"

typedef unsigned __int128 wide; /* any rate and any length fits */

static wide larger(wide a, wide b) { return a > b ? a : b; }
static wide smaller(wide a, wide b) { return a < b ? a : b; }

static uint64_t narrow(wide v) { return v > UINT64_MAX / 32 ? UINT64_MAX / 32 : (uint64_t)v; }

/* How long the port of a rank is busy, and with how many units. */
typedef struct port {
    wide busy[FCP_FABRICS][FCP_DIRECTION_COUNT];
    uint64_t units[FCP_FABRICS][FCP_DIRECTION_COUNT];
    wide again[FCP_DIRECTION_COUNT]; /* the part over net of copies of keys after the first, and of what they return */
} port;

typedef struct weighing {
    planning *x;
    const traffic *t;
    port *ports;    /* per rank */
    wide *node;     /* per node: how long its uplink is busy, sending */
    uint32_t *legs; /* per hop: of the way to its end */
    wide token[FCP_FABRICS][FCP_CLASSES]; /* how long a token travels in the pass */
} weighing;

/* Adds a transfer to the ports of both ranks. */
static void add_transfer(weighing *w, uint32_t from, uint32_t to, int fabric, wide takes, uint32_t units) {
    w->ports[from].busy[fabric][FCP_SEND] += takes;
    w->ports[to].busy[fabric][FCP_RECV] += takes;
    w->ports[from].units[fabric][FCP_SEND] += units;
    w->ports[to].units[fabric][FCP_RECV] += units;
    if (fabric == FCP_NET) w->node[from / w->x->program->gpus] += takes;
}

/* Adds up what the ports carry in a pass; returns how many legs the longest way has. */
static uint32_t load_ports(weighing *w, fcp_pass pass) {
    const problem *p = w->x->problem;
    const struct fcpc_program *g = w->x->program;
    const wide latency = (wide)g->cluster.latency_ns * 1000;
    uint32_t left = FCP_NONE; /* the block of keys that was the last to leave its home over net */
    uint32_t most_legs = 1;
    memset(w->ports, 0, p->ranks * sizeof *w->ports);
    memset(w->node, 0, g->nodes * sizeof *w->node);
    for (uint32_t f = 0; f < w->t->count; f++) {
        const hop *h = &w->t->hops[f];
        const uint32_t tokens = p->blocks[h->block].tokens;
        const fcp_class cls = traffic_return(h, pass);
        const wide there = tokens * w->token[h->fabric][h->cls] + latency;
        const wide back = cls == FCP_CLASSES ? 0 : tokens * w->token[h->fabric][cls] + latency;
        add_transfer(w, h->src, h->dst, h->fabric, there, h->units);
        if (back) add_transfer(w, h->dst, h->src, h->fabric, back, return_units(p, h, cls));
        if (h->cls == FCP_KV && h->fabric == FCP_NET && h->block == left) {
            w->ports[h->src].again[FCP_SEND] += there;
            w->ports[h->src].again[FCP_RECV] += back;
        } else if (h->cls == FCP_KV && h->fabric == FCP_NET) {
            left = h->block;
        }
        w->legs[f] = h->parent == FCP_NONE ? 1 : w->legs[h->parent] + 1;
        if (w->legs[f] > most_legs) most_legs = w->legs[f];
    }
    return most_legs;
}

/* How long the ports of a pass are busy. */
typedef struct ports_sum {
    wide busy;      /* the busiest port or uplink */
    uint64_t units; /* that pass through that port */
    wide least;     /* the busiest port, if no block of keys left its home more than once */
} ports_sum;

static ports_sum busiest_port(const weighing *w) {
    const struct fcpc_program *g = w->x->program;
    ports_sum sum = {0, 1, 0};
    for (uint32_t r = 0; r < w->x->problem->ranks; r++)
        for (int way = 0; way < FCP_DIRECTION_COUNT; way++) {
            const port *p = &w->ports[r];
            for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
                if (p->busy[fabric][way] <= sum.busy) continue;
                sum.busy = p->busy[fabric][way];
                sum.units = p->units[fabric][way];
            }
            sum.least = larger(sum.least, larger(p->busy[FCP_NET][way] - p->again[way], p->busy[FCP_LOCAL][way]));
        }
    for (uint32_t v = 0; v < g->nodes; v++)
        sum.busy = larger(sum.busy, w->node[v] / g->gpus / 1000 * g->cluster.oversubscription_milli);
    return sum;
}

/* The time of a pass. room: how many units of a wire fit in a stage. */
static wide pass_time(wide ports, uint64_t units, wide compute, uint32_t legs, uint64_t room) {
    const wide stage = units > room ? ports * room / units : ports, wire = ports + stage * (legs - 1) / LEG_NOT_HIDDEN;
    return larger(wire, compute) + smaller(wire, compute) / NOT_HIDDEN;
}

static void raise(uint64_t *to, uint64_t v) {
    if (v > *to) *to = v;
}

/* The pairs of the rank that computes most. */
static fcp_code busiest_rank(planning *x, uint64_t *out) {
    const problem *p = x->problem;
    const placement *where = x->placement;
    uint64_t *pairs = ARENA_ZNEW(&x->scratch, uint64_t, p->ranks);
    *out = 0;
    if (!pairs) return FCP_E_NO_MEMORY;
    for (uint32_t b = 0; !where->exec && b < p->block_count; b++) raise(out, pairs[where->home[b]] += p->work[b]);
    for (uint32_t t = 0; where->exec && t < p->tile_count; t++) raise(out, pairs[where->exec[t]] += p->tile_pairs[t]);
    return FCP_OK;
}

fcp_code ways_time_of(planning *x, const traffic *t, ways_time *out) {
    const struct fcpc_program *g = x->program;
    const uint64_t rate[FCP_FABRICS] = {[FCP_NET] = g->cluster.inter, [FCP_LOCAL] = g->cluster.intra};
    weighing w = {.x = x, .t = t, .ports = ARENA_NEW(&x->scratch, port, x->problem->ranks),
                  .node = ARENA_NEW(&x->scratch, wide, g->nodes),
                  .legs = ARENA_NEW(&x->scratch, uint32_t, t->count + (size_t)1)};
    uint64_t pairs;
    wide all = 0, at_least = 0;
    if (!w.ports || !w.node || !w.legs || busiest_rank(x, &pairs)) return FCP_E_NO_MEMORY;
    fcp_problem facts;
    problem_facts(x, &facts);
    for (int i = 0; i < FCP_PASSES; i++) {
        const fcp_pass pass = (fcp_pass)i;
        if (!g->passes[pass]) continue;
        for (int fabric = 0; fabric < FCP_FABRICS; fabric++)
            for (int cls = 0; cls < FCP_CLASSES; cls++)
                w.token[fabric][cls] = (wide)fcp_class_bytes(&facts, (fcp_class)cls, pass) * 1000000000000 /
                                       (rate[fabric] ? rate[fabric] : 1);
        const uint32_t legs = load_ports(&w, pass);
        const ports_sum ports = busiest_port(&w);
        const wide compute = place_computing(x, &facts, pairs, pass);
        /* where `divisions` decides, about so many units go in each of them but the first */
        const uint32_t divisions = g->divisions ? g->divisions : DIVISIONS_USUAL;
        const uint64_t room = x->coalesce ? away_room(x, t, UINT64_MAX) : ports.units / (divisions - 1) + 1;
        all += pass_time(ports.busy, ports.units, compute, legs, room);
        at_least += pass_time(ports.least, ports.units, compute, 1, room);
    }
    *out = (ways_time){narrow(all), narrow(at_least)};
    return FCP_OK;
}
