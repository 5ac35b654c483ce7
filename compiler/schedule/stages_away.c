/* stages_away.c: finds stages for units, where work is done away from home.
 *
 * Requires: traffic; for results, the stages in which tiles run.
 * Gives: for each unit a stage, no earlier than its release, in which both of its ends have room. In no stage a line
 *     has more units than a third of `coalesce` (trees: see below), or, over net, if it has several, more than its share
 *     of bytes.
 * Cost: linear in units and in the stages that they pass over; three bytes for each line and stage.
 * Units: sizes are in tokens of KV.
 *
 * Why levels: most units are dependent there. If each left as soon as it could, another rank would be the busiest in
 * every stage, and rounds would add up to far more than the units of any one rank.
 *
 * Why small stages: what a rank passes on leaves a stage after it came, so stages are the price of a relay. And what
 * must come back should be on its way early.
 *
 * Why bytes, too: there are as many rounds as the busiest line has units, but a round lasts as long as its bytes. So
 * over net each line has a share of bytes for a stage. With that share the line with most bytes needs as many stages as
 * the line with most units. It is then raised by a half, because no line can be busy in every stage. Inside a node
 * bytes are cheap.
 *
 * Trees of keys (relays.c). Ranks pass on whole blocks. So a stage has room for all units of a block; inside a node, for
 * one block to each neighbour of a rank. *What breaks otherwise*: ring cuts blocks of 64K tokens, which are 16 units of
 * 4K. A rank that passes one on would do so in later and later stages, while its own computing of the block is under way,
 * for which the launches of these stages wait. On the other hand the ports of a tree carry few units. So that blocks
 * follow each other closely, the busiest line over net takes at least TREE_STAGES stages, if blocks are not larger.
 *
 * With two halves (halves.h) all hops of the first choose first, and the second begins in the stage after the last of
 * them.
 *
 * Order. Units that bring what most work needs choose first; of equals the lower hop. Results choose in the order in
 * which they are ready. A forward is ready one stage after the hop that it passes on; a result schedule.after stages
 * after the last tile that adds to it or the last partial that is merged into it; and a whole result that is passed on,
 * one stage after it came. At last results are moved to other stages where that makes fewer rounds (fewer_rounds.c).
 */
#include "compiler/schedule/stages_away.h"

#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/schedule/fewer_rounds.h"

/* --- room --------------------------------------------------------------------------------------------------------- */

/* Makes the table reach to a stage. */
static fcp_code reach(levels *l, uint32_t stage) {
    if (stage < l->width) return FCP_OK;
    uint32_t width = stage + stage / 2 + 16;
    uint8_t *units = ARENA_ZNEW(l->scratch, uint8_t, (size_t)l->lines * width);
    uint32_t *size = ARENA_ZNEW(l->scratch, uint32_t, (size_t)(l->lines / FCP_FABRICS) * width);
    if (!units || !size) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; l->width && i < l->lines; i++) {
        memcpy(units + (size_t)i * width, l->units + (size_t)i * l->width, l->width);
        if (i % FCP_FABRICS != FCP_NET) continue;
        memcpy(size + (size_t)(i / FCP_FABRICS) * width, l->size + (size_t)(i / FCP_FABRICS) * l->width,
               l->width * sizeof *size);
    }
    l->units = units;
    l->size = size;
    l->width = width;
    return FCP_OK;
}

static fcp_code copy(levels *l, const levels *of, arena *scratch) {
    size_t all = (size_t)of->lines * of->width;
    *l = *of;
    l->scratch = scratch;
    l->units = ARENA_NEW(l->scratch, uint8_t, all);
    l->size = ARENA_NEW(l->scratch, uint32_t, all / FCP_FABRICS);
    l->full = ARENA_NEW(l->scratch, uint32_t, l->lines);
    if (!l->units || !l->size || !l->full) return FCP_E_NO_MEMORY;
    memcpy(l->units, of->units, all);
    memcpy(l->size, of->size, all / FCP_FABRICS * sizeof *l->size);
    memcpy(l->full, of->full, l->lines * sizeof *l->full);
    return FCP_OK;
}

static void take(levels *l, uint32_t line, uint32_t stage, uint32_t size) {
    ++*levels_units(l, line, stage);
    if (line % FCP_FABRICS == FCP_NET) *levels_size(l, line, stage) += size;
    while (l->full[line] < l->width && !levels_has_room(l, line, l->full[line], 1)) l->full[line]++;
}

/* Finds stages for all units of a block, in order, that go from src to dst as class cls. FCP_E_PLAN_SIZE: too many
 * stages. */
static fcp_code place_units(levels *l, const problem *p, const hop *x, fcp_class cls, uint32_t release, uint32_t units,
                            uint32_t *out_stage) {
    const bool back = cls != x->cls;
    const uint32_t send = levels_line(back ? x->dst : x->src, FCP_SEND, x->fabric);
    const uint32_t receive = levels_line(back ? x->src : x->dst, FCP_RECV, x->fabric);
    uint32_t stage = release;
    for (uint32_t u = 0; u < units; u++) {
        uint32_t size = unit_size(p, cls, unit_tokens(p, x, cls, u));
        if (l->full[send] > stage) stage = l->full[send];
        if (l->full[receive] > stage) stage = l->full[receive];
        while (stage < l->width &&
               !(levels_has_room(l, send, stage, size) && levels_has_room(l, receive, stage, size)))
            stage++;
        if (stage > FCP_MAX_STAGES / 4) return FCP_E_PLAN_SIZE;
        fcp_code code = reach(l, stage);
        if (code) return code;
        take(l, send, stage, size);
        take(l, receive, stage, size);
        out_stage[u] = stage;
    }
    return FCP_OK;
}

/* --- what a stage has room for ------------------------------------------------------------------------------------ */

typedef struct line_sum {
    uint64_t units, size;
} line_sum;

static void add_units(const problem *p, line_sum *sums, const hop *x, fcp_class cls, uint32_t units) {
    const bool back = cls != x->cls;
    line_sum *send = &sums[levels_line(back ? x->dst : x->src, FCP_SEND, x->fabric)];
    line_sum *receive = &sums[levels_line(back ? x->src : x->dst, FCP_RECV, x->fabric)];
    uint64_t size = 0;
    for (uint32_t u = 0; u < units; u++) size += unit_size(p, cls, unit_tokens(p, x, cls, u));
    send->units += units, send->size += size;
    receive->units += units, receive->size += size;
}

enum {
    USUAL = 16,     /* rounds to a stage, while `divisions` has not decided */
    TREE_STAGES = 16
};

uint32_t levels_room(const planning *x, const traffic *t, uint64_t units) {
    const uint32_t coalesce = x->coalesce ? x->coalesce : USUAL;
    uint32_t room = coalesce > LEVELS_PART ? coalesce / LEVELS_PART : 1;
    if (t->trees && units / TREE_STAGES < room) room = (uint32_t)(units / TREE_STAGES) + 1;
    for (uint32_t f = 0; t->trees && f < t->count; f++)
        if (t->hops[f].units > room) room = t->hops[f].units;
    return room < UINT8_MAX ? room : UINT8_MAX; /* `divisions` may ask for few stages */
}

static fcp_code open(planning *x, levels *l) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    *l = (levels){.scratch = &x->scratch, .lines = p->ranks * FCP_DIRECTION_COUNT * FCP_FABRICS};
    l->full = ARENA_NEW(l->scratch, uint32_t, l->lines);
    line_sum *sums = ARENA_ZNEW(l->scratch, line_sum, l->lines), most = {0, 0}; /* most.size: over net */
    uint64_t over_net = 0; /* units of the line over net with most */
    if (!l->full || !sums) return FCP_E_NO_MEMORY;
    fcp_pass pass = p->program->passes[FCP_BACKWARD] ? FCP_BACKWARD : FCP_FORWARD; /* the one that moves most */
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *h = &t->hops[f];
        fcp_class back = traffic_return(h, pass);
        if (planning_stopped_at(x, f)) return FCP_E_INTERRUPTED;
        add_units(p, sums, h, (fcp_class)h->cls, h->units);
        if (back != FCP_CLASSES) add_units(p, sums, h, back, return_units(p, h, back));
    }
    for (uint32_t i = 0; i < l->lines; i++) {
        l->full[i] = 1; /* nothing travels in stage 0 */
        if (sums[i].units > most.units) most.units = sums[i].units;
        if (i % FCP_FABRICS != FCP_NET) continue;
        if (sums[i].units > over_net) over_net = sums[i].units;
        if (sums[i].size > most.size) most.size = sums[i].size;
    }
    const uint32_t room = levels_room(x, t, over_net);
    const uint32_t inside = t->trees && x->program->gpus > 1 ? room * (x->program->gpus - 1) : room;
    l->units_most[FCP_NET] = room;
    l->units_most[FCP_LOCAL] = inside < UINT8_MAX ? inside : UINT8_MAX;
    uint64_t stages = most.units / room + 1, share = most.size / stages * 3 / 2 + p->unit;
    l->size_most = share < UINT32_MAX / 2 ? (uint32_t)share : UINT32_MAX / 2;
    return reach(l, stages < FCP_MAX_STAGES / 4 ? (uint32_t)(2 * stages) : FCP_MAX_STAGES / 4);
}

/* --- arrivals ----------------------------------------------------------------------------------------------------- */

/* The hops, those whose units most work needs first, units as over net. A parent has no less work than its forwards. */
static uint64_t *order_hops(const problem *p, const traffic *t, arena *scratch) {
    uint64_t *order = ARENA_NEW(scratch, uint64_t, t->count + (size_t)1), most = 0;
    uint64_t *room = ARENA_NEW(scratch, uint64_t, t->count + (size_t)1);
    if (!order || !room) return NULL;
    for (uint32_t f = 0; f < t->count; f++) {
        const uint32_t unit = p->unit_of[FCP_NET][t->hops[f].cls];
        order[f] = t->hops[f].work / ((p->blocks[t->hops[f].block].tokens + unit - 1) / unit);
        if (order[f] > most) most = order[f];
    }
    unsigned shift = 0;
    while (most >> shift > UINT32_MAX) shift++;
    for (uint32_t f = 0; f < t->count; f++) order[f] = ((most >> shift) - (order[f] >> shift)) << 32 | f;
    sort_u64(order, room, t->count);
    return order;
}

fcp_code levels_busiest(planning *x, uint32_t *out_units) {
    const traffic *t = x->traffic;
    line_sum *sums = ARENA_ZNEW(&x->scratch, line_sum, x->problem->ranks * FCP_DIRECTION_COUNT * (size_t)FCP_FABRICS);
    *out_units = 0;
    if (!sums) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *h = &t->hops[f];
        if (h->parent != FCP_NONE) continue;
        const uint32_t ends[] = {levels_line(h->src, FCP_SEND, h->fabric), levels_line(h->dst, FCP_RECV, h->fabric)};
        for (int i = 0; i < 2; i++)
            if ((sums[ends[i]].units += h->units) > *out_units) *out_units = (uint32_t)sums[ends[i]].units;
    }
    return FCP_OK;
}

/* Finds stages for the hops of one half, from `release` on; returns in *end the stage after the last of them. */
static fcp_code place_hops(planning *x, schedule *out, levels *l, const uint64_t *order, bool second, uint32_t release,
                           uint32_t *end) {
    const traffic *t = x->traffic;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t f = (uint32_t)order[i], *stage = out->unit_round + out->unit_start[f], from = release;
        const hop *h = &t->hops[f];
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        if (out->second && out->second[f] != second) continue;
        if (h->parent != FCP_NONE && out->last_stage[h->parent] + 1 > from) from = out->last_stage[h->parent] + 1;
        fcp_code code = place_units(l, x->problem, h, (fcp_class)h->cls, from, h->units, stage);
        if (code) return code;
        out->first_stage[f] = stage[0];
        out->last_stage[f] = stage[h->units - 1];
        if (out->last_stage[f] >= *end) *end = out->last_stage[f] + 1;
    }
    return FCP_OK;
}

fcp_code levels_arrivals(planning *x, schedule *out, levels *l) {
    uint32_t end = 1;
    fcp_code code = open(x, l);
    uint64_t *order = code ? NULL : order_hops(x->problem, x->traffic, &x->scratch);
    if (!code && !order) return FCP_E_NO_MEMORY;
    if (!code) code = place_hops(x, out, l, order, false, 1, &end);
    if (code || !out->second) return code;
    const uint32_t begin = end; /* the first half took the stages from 1 on */
    code = place_hops(x, out, l, order, true, begin, &end);
    if (begin > 1 && end > begin) out->second_stage = begin;
    return code;
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* Hops whose results are ready in a stage are a list. */
typedef struct ready {
    uint32_t *head, stages; /* per stage */
    uint32_t *next;         /* per hop */
    uint32_t *waits;        /* per hop: of how many forwards the results are not on their way yet */
    arena *scratch;
} ready;

static fcp_code add_ready(ready *r, uint32_t f, uint32_t stage) {
    if (stage >= r->stages) {
        uint32_t stages = stage + stage / 2 + 64, *head = ARENA_NEW(r->scratch, uint32_t, stages);
        if (!head) return FCP_E_NO_MEMORY;
        memset(head, 0xff, stages * sizeof *head);
        if (r->stages) memcpy(head, r->head, r->stages * sizeof *head);
        r->head = head;
        r->stages = stages;
    }
    r->next[f] = r->head[stage];
    r->head[stage] = f;
    return FCP_OK;
}

/* Finds stages for what goes back along hop f, ready in `stage`. Its parent's result is ready if that was the last. */
static fcp_code place_return(planning *x, const schedule *out, levels *l, fcp_pass pass, uint32_t f, uint32_t stage,
                             returns *back, ready *r) {
    const traffic *t = x->traffic;
    const hop *h = &t->hops[f];
    fcp_class cls = traffic_return(h, pass);
    uint32_t count = return_units(x->problem, h, cls), *stages = back->unit_stage + back->start[f], up = h->parent;
    fcp_code code = place_units(l, x->problem, h, cls, stage, count, stages);
    if (code) return code;
    back->first[f] = stages[0];
    back->last[f] = stages[count - 1];
    if (up == FCP_NONE) return FCP_OK;
    if (back->last[f] > back->last[up]) back->last[up] = back->last[f];
    if (--r->waits[up]) return FCP_OK;
    return add_ready(r, up, back->last[up] + levels_after(out, h));
}

fcp_code levels_returns(planning *x, const schedule *out, const levels *l, fcp_pass pass, uint32_t first,
                        returns *back) {
    const traffic *t = x->traffic;
    ready r = {.next = ARENA_NEW(&x->scratch, uint32_t, t->count + (size_t)1),
               .waits = ARENA_ZNEW(&x->scratch, uint32_t, t->count + (size_t)1), .scratch = &x->scratch};
    levels own;
    uint32_t units = 0, placed = 0, *own_ready = ARENA_ZNEW(&x->scratch, uint32_t, t->count + (size_t)1);
    fcp_code code = copy(&own, l, &x->scratch); /* what arrives is the same in both passes */
    if (code || !r.next || !r.waits || !own_ready) return FCP_E_NO_MEMORY;
    for (uint32_t f = first; f < t->count; f++) {
        if (back->last[f]) own_ready[f] = back->last[f] + out->after;
        if (t->hops[f].parent != FCP_NONE) r.waits[t->hops[f].parent]++;
        back->start[f] = units;
        units += return_units(x->problem, &t->hops[f], traffic_return(&t->hops[f], pass));
    }
    for (uint32_t f = t->count; !code && f-- > first;) /* from the back, so that lists begin in ascending order */
        if (!r.waits[f]) code = add_ready(&r, f, back->last[f] + out->after);
    for (uint32_t stage = 0; !code && stage < r.stages; stage++)
        for (uint32_t f = r.head[stage]; !code && f != FCP_NONE; f = r.next[f]) {
            if (planning_stopped_at(x, placed++)) return FCP_E_INTERRUPTED;
            code = place_return(x, out, &own, pass, f, stage, back, &r);
        }
    return code ? code : squeeze_returns(x, out, &own, pass, first, own_ready, back);
}
