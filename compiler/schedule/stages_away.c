/* stages_away.c: gives every unit a stage, where most units depend on others.
 *
 * Requires: traffic; for results, the stages in which tiles run.
 * Gives: for each unit a stage, no earlier than it may leave, in which its sender and its receiver have room; for each
 *     tile the stage in which it runs.
 * Keeps: in no stage a line has more than coalesce / STAGE_PART units. (A line is one direction of a rank's wire on one
 *     fabric.) Over net it has no more bytes than a limit (see below), unless a single unit has more.
 * Cost: linear in units and in the stages that they pass over; four bytes for each line and stage.
 * Units: sizes are in tokens of KV.
 *
 * Example: with `coalesce` 16 a stage has room for 5 units of a line. A rank that sends 40 units sends them in the
 * first 8 stages in which their receivers have room, too.
 *
 * This is list scheduling with two resources for each unit: the sender's line and the receiver's. *What breaks
 * otherwise*: if each unit left as soon as it could, another rank would be the busiest in every stage, and the rounds
 * of all stages together would be far more than the units of any one rank. Stages are small because what a rank passes
 * on leaves one stage after it came, and because results should be on their way home early.
 *
 * Limit of bytes. A round lasts as long as its largest unit, so the bytes of a stage have a limit, too. Let S be the
 * number of stages that the line with most units needs, and B the bytes of the line with most bytes. The limit is 1.5 B
 * / S. With B / S that line would have to be busy in every stage, which no line can be. Inside a node bytes are cheap,
 * and have no limit.
 *
 * Order in which units choose:
 * 1. Units on the way to their readers. Those that bring what most work needs choose first; of equals the lower hop.
 *    With two halves (halves.c), all hops of the first half choose first, and the second half begins in the stage after
 *    the last of them. A block that is passed on may leave one stage after it came.
 * 2. Results, in the order in which they are ready. A result is ready schedule.after stages after the last tile that
 *    adds to it or the last partial that is merged into it. A whole result that is only passed on is ready one stage
 *    after it came.
 * 3. At last fewer_rounds.c moves some results to other stages.
 *
 * Trees of keys (relays.c). Ranks pass on whole blocks. So a stage has room for all units of a block; inside a node,
 * for one block to each neighbour of a rank. *What breaks otherwise*: ring cuts blocks of 64K tokens, which are 16
 * units of 4K. A rank that passes one on would send it over many stages while it computes on the block, and the
 * launches of these stages wait for that computing. There is a bound on the other side: blocks should follow each other
 * closely, so the busiest line over net takes at least TREE_STAGES stages, unless blocks are larger.
 *
 * Tiles. Ranks get what they wait for in different stages, and a rank with much of its work in one stage delays all
 * others. So each tile takes the first stage in which its rank has less than its mean work, from the stage on in which
 * its Q and its KV are there. They choose in this order:
 * 1. tiles of other ranks' Q blocks whose results are merged with others', because these results travel twice;
 * 2. the other tiles of other ranks' Q blocks, because somebody waits for their results;
 * 3. tiles of own Q blocks with KV from elsewhere;
 * 4. local tiles.
 * STAGES_AFTER_ARRIVALS stages follow the last arrival, and hide results that go back.
 */
#include <string.h>

#include "compiler/base/sort.h"
#include "compiler/schedule/schedule_parts.h"
#include "compiler/schedule/schedule_tuning.h"

/* --- room --------------------------------------------------------------------------------------------------------- */

/* Widens the table until it has a column for the stage. */
static fcp_code widen(occupancy *o, uint32_t stage) {
    if (stage < o->width) return FCP_OK;
    uint32_t width = stage + stage / 2 + 16;
    uint16_t *units = ARENA_ZNEW(o->scratch, uint16_t, (size_t)o->lines * width);
    uint32_t *size = ARENA_ZNEW(o->scratch, uint32_t, (size_t)(o->lines / FCP_FABRICS) * width);
    if (!units || !size) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; o->width && i < o->lines; i++) {
        memcpy(units + (size_t)i * width, o->units + (size_t)i * o->width, o->width * sizeof *units);
        if (i % FCP_FABRICS != FCP_NET) continue;
        memcpy(size + (size_t)(i / FCP_FABRICS) * width, o->size + (size_t)(i / FCP_FABRICS) * o->width,
               o->width * sizeof *size);
    }
    o->units = units;
    o->size = size;
    o->width = width;
    return FCP_OK;
}

static fcp_code copy_occupancy(occupancy *o, const occupancy *of, arena *scratch) {
    size_t all = (size_t)of->lines * of->width;
    *o = *of;
    o->scratch = scratch;
    o->units = ARENA_NEW(o->scratch, uint16_t, all);
    o->size = ARENA_NEW(o->scratch, uint32_t, all / FCP_FABRICS);
    o->full = ARENA_NEW(o->scratch, uint32_t, o->lines);
    if (!o->units || !o->size || !o->full) return FCP_E_NO_MEMORY;
    memcpy(o->units, of->units, all * sizeof *o->units);
    memcpy(o->size, of->size, all / FCP_FABRICS * sizeof *o->size);
    memcpy(o->full, of->full, o->lines * sizeof *o->full);
    return FCP_OK;
}

/* A unit of this size takes its part of a stage. */
static void take_room(occupancy *o, uint32_t line, uint32_t stage, uint32_t size) {
    ++*occupancy_units(o, line, stage);
    if (line % FCP_FABRICS == FCP_NET) *occupancy_size(o, line, stage) += size;
    while (o->full[line] < o->width && !occupancy_has_room(o, line, o->full[line], 1)) o->full[line]++;
}

/* Finds stages for all units that go along a hop, or back along it, as class cls. They keep their order.
 * FCP_E_PLAN_SIZE: too many stages. */
static fcp_code place_units(occupancy *o, const problem *p, const hop *x, fcp_class cls, uint32_t release,
                            uint32_t units, uint32_t *out_stage) {
    const line_pair line = lines_of(x, cls);
    uint32_t stage = release;
    for (uint32_t u = 0; u < units; u++) {
        uint32_t size = unit_size(p, cls, unit_tokens(p, x, cls, u));
        if (o->full[line.send] > stage) stage = o->full[line.send];
        if (o->full[line.receive] > stage) stage = o->full[line.receive];
        while (stage < o->width &&
               !(occupancy_has_room(o, line.send, stage, size) && occupancy_has_room(o, line.receive, stage, size)))
            stage++;
        if (stage > FCP_MAX_STAGES / 4) return FCP_E_PLAN_SIZE;
        fcp_code code = widen(o, stage);
        if (code) return code;
        take_room(o, line.send, stage, size);
        take_room(o, line.receive, stage, size);
        out_stage[u] = stage;
    }
    return FCP_OK;
}

/* --- what a stage has room for ------------------------------------------------------------------------------------ */

typedef struct line_sum {
    uint64_t units, size;
} line_sum;

static void add_units(const problem *p, line_sum *sums, const hop *x, fcp_class cls, uint32_t units) {
    const line_pair line = lines_of(x, cls);
    line_sum *send = &sums[line.send], *receive = &sums[line.receive];
    uint64_t size = 0;
    for (uint32_t u = 0; u < units; u++) size += unit_size(p, cls, unit_tokens(p, x, cls, u));
    send->units += units, send->size += size;
    receive->units += units, receive->size += size;
}

uint32_t away_room(const planning *x, const traffic *t, uint64_t units) {
    const uint32_t coalesce = x->coalesce ? x->coalesce : ASSUMED_COALESCE;
    uint32_t room = coalesce > STAGE_PART ? coalesce / STAGE_PART : 1;
    if (t->trees && units / TREE_STAGES < room) room = (uint32_t)(units / TREE_STAGES) + 1;
    for (uint32_t f = 0; t->trees && f < t->count; f++)
        if (t->hops[f].units > room) room = t->hops[f].units;
    return room < ROOM_MOST ? room : ROOM_MOST;
}

/* Says how much a stage has room for, from what the lines carry in the pass that moves most. stated: units of a line
 * over net; 0: away_room says. */
static fcp_code open_occupancy(planning *x, uint32_t stated, occupancy *o) {
    const problem *p = x->problem;
    const traffic *t = x->traffic;
    *o = (occupancy){.scratch = &x->scratch, .lines = p->ranks * FCP_DIRECTION_COUNT * FCP_FABRICS};
    o->full = ARENA_NEW(o->scratch, uint32_t, o->lines);
    line_sum *sums = ARENA_ZNEW(o->scratch, line_sum, o->lines), most = {0, 0}; /* most.size: over net */
    uint64_t over_net = 0; /* units of the line over net with most */
    if (!o->full || !sums) return FCP_E_NO_MEMORY;
    fcp_pass pass = p->program->passes[FCP_BACKWARD] ? FCP_BACKWARD : FCP_FORWARD; /* the one that moves most */
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *h = &t->hops[f];
        fcp_class back = traffic_return(h, pass);
        if (planning_stopped_at(x, f)) return FCP_E_INTERRUPTED;
        add_units(p, sums, h, (fcp_class)h->cls, h->units);
        if (back != FCP_CLASSES) add_units(p, sums, h, back, return_units(p, h, back));
    }
    for (uint32_t i = 0; i < o->lines; i++) {
        o->full[i] = 1; /* nothing travels in stage 0 */
        if (sums[i].units > most.units) most.units = sums[i].units;
        if (i % FCP_FABRICS != FCP_NET) continue;
        if (sums[i].units > over_net) over_net = sums[i].units;
        if (sums[i].size > most.size) most.size = sums[i].size;
    }
    const uint32_t room = stated ? stated : away_room(x, t, over_net);
    const uint32_t inside = t->trees && x->program->gpus > 1 ? room * (x->program->gpus - 1) : room;
    o->units_most[FCP_NET] = room;
    o->units_most[FCP_LOCAL] = inside < UNITS_MOST ? inside : UNITS_MOST;
    uint64_t stages = most.units / room + 1, share = most.size / stages * STAGE_BYTES_HALVES / 2 + p->unit;
    o->size_most = share < UINT32_MAX / 2 ? (uint32_t)share : UINT32_MAX / 2;
    return widen(o, stages < FCP_MAX_STAGES / 4 ? (uint32_t)(2 * stages) : FCP_MAX_STAGES / 4);
}

/* --- arrivals ----------------------------------------------------------------------------------------------------- */

/* Sorts the hops by the work that waits for them, divided by their number of units (counted as if over net); most
 * first. A parent comes before the hops that pass its block on, because no less work waits for it. */
static uint64_t *order_hops(const problem *p, const traffic *t, arena *scratch) {
    uint64_t *order = ARENA_NEW(scratch, uint64_t, t->count + (size_t)1);
    uint64_t *room = ARENA_NEW(scratch, uint64_t, t->count + (size_t)1);
    if (!order || !room) return NULL;
    for (uint32_t f = 0; f < t->count; f++) {
        const uint32_t unit = p->unit_of[FCP_NET][t->hops[f].cls];
        order[f] = t->hops[f].work / ((p->blocks[t->hops[f].block].tokens + unit - 1) / unit);
    }
    order_falling(order, room, t->count);
    return order;
}

fcp_code away_busiest(planning *x, uint32_t *out_units) {
    const traffic *t = x->traffic;
    const size_t lines = (size_t)x->problem->ranks * FCP_DIRECTION_COUNT * FCP_FABRICS;
    line_sum *sums = ARENA_ZNEW(&x->scratch, line_sum, lines);
    *out_units = 0;
    if (!sums) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++)
        if (t->hops[f].parent == FCP_NONE)
            add_units(x->problem, sums, &t->hops[f], (fcp_class)t->hops[f].cls, t->hops[f].units);
    for (size_t i = 0; i < lines; i++)
        if (sums[i].units > *out_units) *out_units = (uint32_t)sums[i].units;
    return FCP_OK;
}

/* Finds stages, from `release` on, for the hops of one half. *end becomes the stage after the last of them. */
static fcp_code place_hops(planning *x, schedule *out, occupancy *o, const uint64_t *order, bool second,
                           uint32_t release, uint32_t *end) {
    const traffic *t = x->traffic;
    for (uint32_t i = 0; i < t->count; i++) {
        uint32_t f = (uint32_t)order[i], *stage = out->unit_round + out->unit_start[f], from = release;
        const hop *h = &t->hops[f];
        if (planning_stopped_at(x, i)) return FCP_E_INTERRUPTED;
        if (out->second && out->second[f] != second) continue;
        if (h->parent != FCP_NONE && out->last_stage[h->parent] + 1 > from) from = out->last_stage[h->parent] + 1;
        fcp_code code = place_units(o, x->problem, h, (fcp_class)h->cls, from, h->units, stage);
        if (code) return code;
        out->first_stage[f] = stage[0];
        out->last_stage[f] = stage[h->units - 1];
        if (out->last_stage[f] >= *end) *end = out->last_stage[f] + 1;
    }
    return FCP_OK;
}

fcp_code away_arrivals(planning *x, schedule *out, occupancy *o) {
    uint32_t end = 1;
    fcp_code code = open_occupancy(x, 0, o);
    uint64_t *order = code ? NULL : order_hops(x->problem, x->traffic, &x->scratch);
    if (!code && !order) return FCP_E_NO_MEMORY;
    if (!code) code = place_hops(x, out, o, order, false, 1, &end);
    if (code || !out->second) return code;
    const uint32_t begin = end; /* the first half took the stages from 1 on */
    code = place_hops(x, out, o, order, true, begin, &end);
    if (begin > 1 && end > begin) out->second_stage = begin;
    return code;
}

/* Per hop: how many hops follow it on the longest way. *depth: hops of the longest way. NULL: no memory. */
static uint32_t *legs_after(const traffic *t, arena *scratch, uint32_t *depth) {
    uint32_t *after = ARENA_ZNEW(scratch, uint32_t, t->count + (size_t)1);
    *depth = 0;
    for (uint32_t f = t->count; after && f-- > 0;) {
        const uint32_t up = t->hops[f].parent;
        if (after[f] >= *depth) *depth = after[f] + 1;
        if (up != FCP_NONE && after[up] <= after[f]) after[up] = after[f] + 1;
    }
    return after;
}

fcp_code away_divided(planning *x, schedule *out, uint32_t divisions, occupancy *o) {
    const traffic *t = x->traffic;
    uint32_t units, depth, *after = legs_after(t, &x->scratch, &depth);
    uint64_t *order = order_hops(x->problem, t, &x->scratch);
    fcp_code code = after && order ? away_busiest(x, &units) : FCP_E_NO_MEMORY;
    const uint32_t tail = divisions / TAIL_PART < STAGES_AFTER_ARRIVALS ? divisions / TAIL_PART : STAGES_AFTER_ARRIVALS;
    const uint32_t last = divisions - 1 - tail > depth ? divisions - 1 - tail : depth;
    bool late = !code;
    for (uint32_t room = code ? 0 : units / last + 1; late && !code; room += 1 + room / 8) {
        uint32_t end = 1;
        late = false;
        x->coalesce = STAGE_PART * room;
        code = room > UNITS_MOST ? FCP_E_PLAN_SIZE : open_occupancy(x, room, o);
        if (!code) code = place_hops(x, out, o, order, false, 1, &end);
        for (uint32_t f = 0; f < t->count && !code; f++) late |= out->last_stage[f] + after[f] > last;
    }
    return code;
}

/* --- tiles -------------------------------------------------------------------------------------------------------- */

/* Returns the first stage from s on with less than `share` work; b->stages: there is none. next[s] leads from a full
 * stage towards one with room. These links are shortened on the way (path compression). */
static uint32_t stage_with_room(const builder *b, rank_rows *here, uint32_t s, uint64_t share) {
    uint32_t at = s;
    while (at < b->stages && here->load[at] >= share) at = here->next[at];
    for (uint32_t i = s, next; i < at; i = next) {
        next = here->next[i];
        here->next[i] = at;
    }
    return at;
}

/* Gives a tile the first stage with room from `ready` on; if there is none, the last of all. */
static uint32_t take_stage(const builder *b, rank_rows *here, uint32_t tile, uint32_t ready, uint64_t share) {
    uint32_t s = stage_with_room(b, here, ready, share);
    if (s == b->stages) s--;
    here->stage_of[tile] = s;
    here->load[s] += b->p->tile_pairs[tile];
    return s;
}

/* Lets the tiles of a rank choose their stages, in the order that the head comment states (Tiles). */
void away_tiles(const builder *b, rank_rows *here) {
    enum { SHARED, ALONE, OWN, LOCAL, TURNS };
    const uint32_t *hop_of = b->t->tile_kv, *last = b->out->last_stage;
    uint64_t total = 0;
    for (uint32_t s = 0; s < b->stages; s++) here->next[s] = s + 1;
    for (uint32_t i = 0; i < here->count; i++) {
        row *r = &here->rows[here->which[i]];
        r->local_stage = FCP_NONE;
        for (uint32_t j = r->first; j < r->end; j++) total += b->p->tile_pairs[here->tiles[j]];
    }
    for (int turn = 0; turn < TURNS; turn++)
        for (uint32_t i = 0; i < here->count; i++) {
            row *r = &here->rows[here->which[i]];
            const bool guest = r->hop != FCP_NONE;
            if (guest != (turn <= ALONE)) continue;
            if (guest && traffic_is_shared(b->t, r->q) != (turn == SHARED)) continue;
            uint32_t floor = r->hop == FCP_NONE ? 0 : last[r->hop];
            for (uint32_t j = r->first; j < r->end; j++) {
                uint32_t t = here->tiles[j], f = hop_of[t];
                if (!guest && (turn == LOCAL) != (f == FCP_NONE)) continue;
                uint32_t ready = f != FCP_NONE && last[f] > floor ? last[f] : floor;
                uint32_t s = take_stage(b, here, t, ready, total / b->stages);
                if (f == FCP_NONE && s < r->local_stage) r->local_stage = s;
            }
        }
}

/* --- results ------------------------------------------------------------------------------------------------------ */

/* The hops whose results are ready in a stage, as a linked list for each stage. */
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

/* Finds stages for the result that goes back along hop f and is ready in `stage`. If it was the last result that the
 * parent hop's own result waited for, that one becomes ready. */
static fcp_code place_return(planning *x, const schedule *out, occupancy *o, fcp_pass pass, uint32_t f, uint32_t stage,
                             returns *back, ready *r) {
    const traffic *t = x->traffic;
    const hop *h = &t->hops[f];
    fcp_class cls = traffic_return(h, pass);
    uint32_t count = return_units(x->problem, h, cls), *stages = back->unit_stage + back->start[f], up = h->parent;
    fcp_code code = place_units(o, x->problem, h, cls, stage, count, stages);
    if (code) return code;
    back->first[f] = stages[0];
    back->last[f] = stages[count - 1];
    if (up == FCP_NONE) return FCP_OK;
    if (back->last[f] > back->last[up]) back->last[up] = back->last[f];
    if (--r->waits[up]) return FCP_OK;
    return add_ready(r, up, back->last[up] + result_delay(out, h));
}

fcp_code away_results(planning *x, const schedule *out, const occupancy *o, fcp_pass pass, uint32_t first,
                      returns *back) {
    const traffic *t = x->traffic;
    ready r = {.next = ARENA_NEW(&x->scratch, uint32_t, t->count + (size_t)1),
               .waits = ARENA_ZNEW(&x->scratch, uint32_t, t->count + (size_t)1), .scratch = &x->scratch};
    occupancy own;
    uint32_t units = 0, placed = 0, *own_ready = ARENA_ZNEW(&x->scratch, uint32_t, t->count + (size_t)1);
    fcp_code code = copy_occupancy(&own, o, &x->scratch); /* what arrives is the same in both passes */
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
    return code ? code : fewer_rounds(x, out, &own, pass, first, own_ready, back);
}
