/* rounds.c: makes the rounds of each pass: which unit moves when, from which slot to which.
 *
 * Requires: the order of independent units and the stages of hops and returns (schedule.c); their slots (slots.c);
 *     the bundles of the reshuffle.
 * Gives: every unit of the pass once, with its round, in order of round. Rounds are in the order of launching: first
 *     those of class IN, which bring tokens home; then stage by stage the dependent and the independent rounds; then
 *     OUT, which brings results to the caller.
 * Keeps: no rank sends twice or receives twice in a round of a fabric. The dependent rounds of each stage, IN, and each
 *     part of OUT are as few as possible: Delta, the largest degree.
 * Cost: O(units log Delta + rounds).
 *
 * Where keys go along trees or a ring, the most urgent units of a stage go first, if that takes no more rounds
 * (urgent_first).
 *
 * OUT has two parts. A unit whose blocks are all done before the pass's last stage moves beside that stage, the other
 * units move after it. The output of a block is done after its last visit, or when its home finishes it, or when it
 * comes home whole. Its gradients are done when the last part of them has come.
 */
#include "compiler/schedule/rounds.h"

#include <string.h>

#include "runtime/base/clock.h"
#include "compiler/schedule/colour.h"
#include "compiler/schedule/ports.h"
#include "compiler/planning/pair.h"
#include "compiler/schedule/slots.h"
#include "compiler/base/sort.h"

void by_falling_work(const uint64_t *work, uint32_t count, uint64_t *keys, uint64_t *room) {
    uint64_t most = 0;
    unsigned shift = 0;
    for (uint32_t i = 0; i < count; i++)
        if (work[i] > most) most = work[i];
    while (most >> shift >= UINT64_C(1) << 31) shift++;
    for (uint32_t i = 0; i < count; i++) keys[i] = ((most - work[i]) >> shift) << 32 | i;
    sort_u64(keys, room, count);
}

bool edges_new(edges *e, arena *scratch, size_t room) {
    *e = (edges){ARENA_NEW(scratch, uint32_t, room + 1), ARENA_NEW(scratch, uint32_t, room + 1),
                 ARENA_NEW(scratch, uint32_t, room + 1), ARENA_NEW(scratch, uint32_t, room + 1), 0, 0};
    return e->src && e->dst && e->size && e->colour;
}

fcp_code edges_colour(edges *e, planning *x) {
    double start = fcp_clock();
    e->colours = 0;
    fcp_code code = !e->count ? FCP_OK
                              : colour_edges(&x->scratch, x->stop, x->problem->ranks, e->count, e->src, e->dst, e->size,
                                             e->colour, &e->colours);
    x->times.colour += fcp_clock() - start;
    return code;
}

typedef struct builder {
    planning *x;
    const problem *p;
    const traffic *t;
    const reshuffle *r;
    uint32_t coalesce;
    fcp_pass pass;
    bool backward;
    arena *scratch;
    edges *edges;
    const schedule *s;
    const slots *slots;
    move *moves;               /* of the pass, in the order in which they are found */
    pass_schedule *out;
    uint32_t *stage_start;     /* dependent moves of stage s: moves[stage_start[s]] to moves[stage_start[s + 1] - 1] */
    uint32_t *stage_dependent; /* dependent rounds of stage s */
    uint32_t *stage_base;      /* first independent round of stage s */
    uint32_t next;             /* rounds numbered so far */
    const uint32_t *moved_colour; /* of the units of all bundles, in order; NULL: they are not coloured yet */
    uint32_t moved_colours;
} builder;

/* May these moves be between ranks that no rail joins? Only those of the reshuffle may, because the caller and the
 * placement have chosen its ranks. Such moves leave by ports of other ranks, which several of them may share (ports.h).
 */
static bool leaves_rails(const builder *b, const move *moves, uint32_t fabric) {
    return fabric == FCP_NET && b->p->program->topology == FCP_RAIL &&
           (moves->cls == FCP_IN || moves->cls == FCP_OUT);
}

static fcp_code spread_over_ports(const builder *b) {
    const edges *e = b->edges;
    const ports_input in = {.ranks = b->p->ranks, .gpus = b->p->program->gpus, .count = e->count, .colours = e->colours,
                            .src = e->src, .dst = e->dst, .size = e->size, .stop = b->x->stop};
    return ports_spread(&in, &b->x->scratch, e->colour);
}

/* Colours the moves of a fabric, or of one class on it (FCP_CLASSES: all), and numbers their rounds from `next` on. */
static fcp_code colour_moves(builder *b, move *moves, uint32_t count, uint32_t fabric, uint32_t cls, uint32_t next,
                             uint32_t *out_rounds) {
    edges *e = b->edges;
    e->count = 0;
    for (uint32_t i = 0; i < count; i++)
        if (moves[i].fabric == fabric && (cls == FCP_CLASSES || moves[i].cls == cls))
            edges_add(e, moves[i].src, moves[i].dst, unit_size(b->p, moves[i].cls, moves[i].tokens));
    fcp_code code = edges_colour(e, b->x);
    if (!code && e->count && leaves_rails(b, moves, fabric)) code = spread_over_ports(b);
    if (code) return code;
    *out_rounds = e->colours;
    for (uint32_t i = 0, at = 0; i < count; i++)
        if (moves[i].fabric == fabric && (cls == FCP_CLASSES || moves[i].cls == cls))
            moves[i].round = next + e->colour[at++];
    return FCP_OK;
}

/* Is the sum over classes of each class's Delta no more than the Delta of all together? */
static fcp_code classes_add_up(const builder *b, const move *moves, uint32_t count, uint32_t fabric, bool *out) {
    const uint32_t ranks = b->p->ranks, classes = FCP_CLASSES + 1; /* the last: of all classes */
    uint32_t *degree = ARENA_ZNEW(b->scratch, uint32_t, 2 * (size_t)classes * ranks);
    uint32_t most[FCP_CLASSES + 1] = {0}, sum = 0;
    if (!degree) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < count; i++) {
        const move *m = &moves[i];
        for (uint32_t cls = m->cls; m->fabric == fabric && cls <= FCP_CLASSES; cls += FCP_CLASSES - m->cls) {
            uint32_t *of = degree + 2 * (size_t)cls * ranks;
            const uint32_t sent = ++of[m->src], received = ++of[ranks + m->dst];
            if (sent > most[cls]) most[cls] = sent;
            if (received > most[cls]) most[cls] = received;
        }
    }
    for (int cls = 0; cls < FCP_CLASSES; cls++) sum += most[cls];
    *out = sum == most[FCP_CLASSES];
    return FCP_OK;
}

/* Used with phases: colours the classes one after another, if that takes no more rounds. The reason: a round lasts as
 * long as its largest unit, and units of different classes differ in size. With phases all ranks exchange equally much
 * of each class, so rounds of one class each are full. Used in rings, too: there keys shall not wait for the gradients
 * that travel in the same stage, which are there only when the stage before has been computed. */
static fcp_code colour_by_class(builder *b, move *moves, uint32_t count, uint32_t fabric, uint32_t *out_rounds) {
    uint32_t rounds;
    bool apart;
    fcp_code code = classes_add_up(b, moves, count, fabric, &apart);
    if (code) return code;
    if (!apart) return colour_moves(b, moves, count, fabric, FCP_CLASSES, b->next, out_rounds);
    *out_rounds = 0;
    for (uint32_t cls = 0; !code && cls < FCP_CLASSES; cls++) {
        code = colour_moves(b, moves, count, fabric, cls, b->next + *out_rounds, &rounds);
        *out_rounds += rounds;
    }
    return code;
}

/* Colours the moves from `first` on, each fabric by itself, and numbers their rounds from b->next on. */
static fcp_code colour_group(builder *b, uint32_t first, uint32_t *out_rounds) {
    move *moves = b->moves + first;
    uint32_t count = b->out->move_count - first, rounds = 0;
    for (uint32_t fabric = 0; count && fabric < FCP_FABRICS; fabric++) {
        uint32_t here = 0;
        fcp_code code = b->x->placement->phase || b->t->around
                            ? colour_by_class(b, moves, count, fabric, &here)
                            : colour_moves(b, moves, count, fabric, FCP_CLASSES, b->next, &here);
        if (code) return code;
        if (here > rounds) rounds = here;
    }
    *out_rounds = rounds;
    b->next += rounds;
    return FCP_OK;
}

/* Colours units of bundles. OUT has the same edges as IN, in the other direction. So where only bundles are coloured,
 * IN and OUT of both passes share one colouring (moved_colour). On rails OUT has a colouring of its own, because it
 * leaves by other ports than IN. */
static fcp_code colour_bundles(builder *b, uint32_t first, uint32_t *out_rounds) {
    move *moves = b->moves + first;
    uint32_t count = b->out->move_count - first, base = b->next;
    const bool other_ports = count && moves->cls == FCP_OUT && b->p->program->topology == FCP_RAIL;
    if (count != b->r->units || !b->moved_colour || other_ports) return colour_group(b, first, out_rounds);
    for (uint32_t i = 0; i < count; i++) moves[i].round = base + b->moved_colour[i];
    *out_rounds = b->moved_colours;
    b->next += *out_rounds;
    return FCP_OK;
}

/* Used where keys go along trees or round a ring: colours the units of a stage anew, greedily. Units choose in the order
 * of the work that waits for their block, most first, and gradients last. Each takes the first round in which its sender
 * and its receiver are free. So a rank that passes a block on to many gets it before a rank that passes it on to few. On
 * a fabric where this takes more rounds, the old colouring stays. */
static fcp_code urgent_first(builder *b, move *moves, uint32_t units, uint32_t base, uint32_t count) {
    const uint32_t ranks = b->p->ranks;
    /* per rank, of sending and of receiving: a bit for each round */
    uint64_t *busy = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)ranks);
    uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, units + (size_t)1);
    uint64_t *work = ARENA_NEW(b->scratch, uint64_t, units + (size_t)1);
    uint32_t *round = ARENA_NEW(b->scratch, uint32_t, units + (size_t)1);
    if (!busy || !keys || !work || !round) return FCP_E_NO_MEMORY;
    if (count > 64) return FCP_OK;
    for (uint32_t i = 0; i < units; i++) {
        const hop *x = &b->t->hops[moves[i].ref];
        work[i] = moves[i].cls == x->cls ? x->work / x->units : 0;
    }
    by_falling_work(work, units, keys, work);
    for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
        bool fits = true;
        memset(busy, 0, 2 * (size_t)ranks * sizeof *busy);
        for (uint32_t i = 0; i < units && fits; i++) {
            const move *m = &moves[(uint32_t)keys[i]];
            if (m->fabric != fabric) continue;
            const uint64_t free = ~(busy[m->src] | busy[ranks + m->dst]);
            const uint32_t at = free ? (uint32_t)__builtin_ctzll(free) : count;
            fits = at < count;
            if (!fits) break;
            busy[m->src] |= UINT64_C(1) << at;
            busy[ranks + m->dst] |= UINT64_C(1) << at;
            round[(uint32_t)keys[i]] = base + at;
        }
        for (uint32_t i = 0; i < units && fits; i++)
            if (moves[i].fabric == fabric) moves[i].round = round[i];
    }
    return FCP_OK;
}

/* Sorts the rounds of the units of each hop, which lie one after another, so that its units travel in order. */
static fcp_code order_units(builder *b, move *moves, uint32_t count) {
    for (uint32_t i = 0, j; i < count; i = j) {
        for (j = i + 1; j < count && moves[j].ref == moves[i].ref && moves[j].cls == moves[i].cls;) j++;
        if (j - i < 2) continue;
        uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)(j - i));
        if (!keys) return FCP_E_NO_MEMORY;
        for (uint32_t k = i; k < j; k++) keys[k - i] = moves[k].round;
        sort_u64(keys, keys + (j - i), j - i);
        for (uint32_t k = i; k < j; k++) moves[k].round = (uint32_t)keys[k - i];
    }
    return FCP_OK;
}

/* Returns what all units of a hop have in common. cls: the hop's own class for the units of its block, another class
 * for the units of what goes back along the hop. */
static inline move move_of(const builder *b, uint32_t f, fcp_class cls) {
    const hop *x = &b->t->hops[f];
    const slots *places = b->slots;
    if (cls == x->cls)
        return (move){.block = x->block, .ref = f, .cls = (uint8_t)cls, .fabric = x->fabric, .src = x->src,
                      .dst = x->dst,
                      .from = x->parent == FCP_NONE ? places->home_slot[x->block] : places->held[x->parent],
                      .to = places->held[f]};
    return (move){.block = x->block,
                  .ref = f,
                  .cls = (uint8_t)cls,
                  .fabric = x->back_fabric,
                  .src = x->dst,
                  .dst = x->to,
                  .from = places->back[b->pass].from[f],
                  .to = places->back[b->pass].to[f]};
}

/* Writes the next unit of the move `of` to moves[at]. *left: how many tokens of the move are not written yet. */
static inline void write_unit(const builder *b, uint32_t at, move *of, uint32_t unit, uint32_t *left) {
    of->tokens = *left < unit ? *left : unit;
    b->moves[at] = *of;
    of->first += unit;
    *left -= of->tokens;
}

/* The units that travel along a hop and depend on others: of its block, or of what goes back. */
typedef struct trip {
    fcp_class cls;
    uint32_t units, stage;
    const uint32_t *stages; /* of each unit; NULL: all are in `stage` */
} trip;

static inline trip trip_of(const builder *b, uint32_t f, bool back) {
    const hop *x = &b->t->hops[f];
    const schedule *s = b->s;
    const returns *r = &s->back[b->pass];
    trip t = {(fcp_class)x->cls, x->units, s->last_stage[f], NULL};
    if (back) {
        t.cls = traffic_return(x, b->pass);
        t.units = return_units(b->p, x, t.cls);
        t.stage = r->last[f];
    }
    if (s->staged) t.stages = back ? r->unit_stage + r->start[f] : s->unit_round + s->unit_start[f];
    return t;
}

/* Adds the moves of forwards and returns, by stage, behind what `moves` holds already. */
static fcp_code add_dependents(builder *b) {
    const traffic *t = b->t;
    uint32_t stages = b->out->stages, *start = b->stage_start;
    const uint32_t first_back = b->pass == FCP_BACKWARD ? 0 : t->keys;
    memset(start, 0, (stages + (size_t)2) * sizeof *start);
    for (int back = 0; back < 2; back++)
        for (uint32_t f = back ? first_back : 0; f < t->count; f++) {
            if (!back && hop_is_independent(&t->hops[f])) continue;
            if (back && t->hops[f].bare) continue;
            if (!b->s->staged) { /* then no Q moves, and units go back as they came */
                start[(back ? b->s->back[b->pass].last : b->s->last_stage)[f] + 1] += t->hops[f].units;
                continue;
            }
            const trip of = trip_of(b, f, back);
            for (uint32_t u = 0; u < of.units; u++) start[of.stages[u] + 1]++;
        }
    start[0] = b->out->move_count;
    for (uint32_t i = 0; i <= stages; i++) start[i + 1] += start[i];
    uint32_t *at = ARENA_NEW(b->scratch, uint32_t, stages + (size_t)1);
    if (!at) return FCP_E_NO_MEMORY;
    memcpy(at, start, (stages + (size_t)1) * sizeof *at);
    for (int back = 0; back < 2; back++)
        for (uint32_t f = back ? first_back : 0; f < t->count; f++) {
            if (!(f & 0xffff) && planning_stopped(b->x)) return FCP_E_INTERRUPTED;
            if (back ? t->hops[f].bare : hop_is_independent(&t->hops[f])) continue;
            const trip of = trip_of(b, f, back);
            move m = move_of(b, f, of.cls);
            const uint32_t unit = b->p->unit_of[m.fabric][m.cls];
            for (uint32_t u = 0, left = b->p->blocks[m.block].tokens; u < of.units; u++)
                write_unit(b, at[of.stages ? of.stages[u] : of.stage]++, &m, unit, &left);
        }
    return FCP_OK;
}

/* Numbers the rounds of all stages. Dependent units are coloured here, independent ones have been coloured before. */
static fcp_code number_stages(builder *b) {
    pass_schedule *out = b->out;
    uint32_t left = out->independent;
    for (uint32_t s = 1; s < out->stages; s++) {
        out->move_count = b->stage_start[s + 1];
        fcp_code code = colour_group(b, b->stage_start[s], &b->stage_dependent[s]);
        move *moves = b->moves + b->stage_start[s];
        const uint32_t units = out->move_count - b->stage_start[s], count = b->stage_dependent[s];
        if (!code && (b->t->trees || b->t->around)) code = urgent_first(b, moves, units, b->next - count, count);
        if (!code) code = order_units(b, moves, units);
        if (code) return code;
        out->dependent += b->stage_dependent[s];
        b->stage_base[s] = b->next;
        uint32_t here = left < b->coalesce ? left : b->coalesce;
        left -= here;
        b->next += here;
    }
    for (uint32_t f = 0; f < b->t->count; f++) {
        const hop *x = &b->t->hops[f];
        if (!(f & 0xffff) && planning_stopped(b->x)) return FCP_E_INTERRUPTED;
        if (!hop_is_independent(x)) continue;
        move m = move_of(b, f, (fcp_class)x->cls);
        const uint32_t unit = b->p->unit_of[m.fabric][m.cls];
        for (uint32_t u = 0, tokens = b->p->blocks[m.block].tokens; u < x->units; u++) {
            uint32_t slot = b->s->unit_round[b->s->unit_start[f] + u];
            m.round = b->stage_base[1 + slot / b->coalesce] + slot % b->coalesce;
            write_unit(b, out->move_count++, &m, unit, &tokens);
        }
    }
    return FCP_OK;
}

/* Does anything of this bundle move between ranks? Keys have no results in the forward pass. */
static inline bool is_moved(const builder *b, fcp_class cls, const bundle *of) {
    bool results = cls == FCP_IN || b->backward || of->side != FCP_KEYS;
    return results && of->caller != of->home;
}

/* Adds the moves of all bundles between two ranks. early: for each unit, in this order, whether it is done early; then
 * only the units are added that are not early (if `late`), or that are (if not). NULL: all units are added. */
static void add_bundles(const builder *b, fcp_class cls, const bool *early, bool late) {
    const problem *p = b->p;
    bool in = cls == FCP_IN;
    uint32_t unit = 0;
    for (uint32_t i = 0; i < b->r->count; i++) {
        const bundle *of = &b->r->bundles[i];
        if (!is_moved(b, cls, of)) continue;
        move m = {.block = FCP_NONE, .src = in ? of->caller : of->home, .dst = in ? of->home : of->caller,
                  .from = of->side, .to = of->side, .ref = i, .cls = (uint8_t)cls,
                  .fabric = of->caller / p->program->gpus == of->home / p->program->gpus ? FCP_LOCAL : FCP_NET};
        for (; m.first < of->tokens; m.first += m.tokens) {
            m.tokens = bundle_unit(p, of, m.first);
            if (early && early[unit++] == late) continue;
            b->moves[b->out->move_count++] = m;
        }
    }
}

/* Says for each unit that goes out whether all its blocks are done before the last stage. NULL: no memory. */
static bool *early_units(const builder *b, const uint32_t *done) {
    const problem *p = b->p;
    bool *early = ARENA_NEW(b->scratch, bool, b->r->units + (size_t)1);
    /* per block: its results are there after the last stage */
    bool *late = ARENA_NEW(b->scratch, bool, p->block_count);
    uint32_t unit = 0;
    if (!early || !late) return NULL;
    for (uint32_t i = 0; i < p->block_count; i++) late[i] = done[i] + 1 >= b->out->stages;
    for (uint32_t i = 0; i < b->r->count; i++) {
        const bundle *of = &b->r->bundles[i];
        const content *c = &b->r->contents[of->first];
        if (!is_moved(b, FCP_OUT, of)) continue;
        for (uint32_t begin = 0, end, before = 0; begin < of->tokens; begin = end) { /* before: tokens before c */
            end = begin + bundle_unit(p, of, begin);
            bool is_late = late[c->block];
            for (; before + c->tokens < end; is_late |= late[c->block]) before += c++->tokens;
            if (before + c->tokens == end) before += c++->tokens;
            early[unit++] = !is_late;
        }
    }
    return early;
}

/* Says for each block the stage in which its results are complete. NULL: no memory. */
static uint32_t *results_done(const builder *b) {
    const problem *p = b->p;
    const traffic *t = b->t;
    const uint32_t *back = b->s->back[b->pass].last;
    uint32_t *done = ARENA_NEW(b->scratch, uint32_t, p->block_count);
    if (!done) return NULL;
    memcpy(done, b->s->block_last, p->block_count * sizeof *done);
    for (uint32_t f = b->backward ? 0 : t->keys; f < t->count; f++)
        if (back[f] > done[t->hops[f].block]) done[t->hops[f].block] = back[f];
    for (uint32_t i = 0; b->backward && i < p->tile_count; i++) { /* tiles that run at their KV block's home */
        uint32_t last = b->s->block_last[p->tile_q[i]];
        if (t->tile_kv[i] == FCP_NONE && done[p->tile_k[i]] < last) done[p->tile_k[i]] = last;
    }
    return done;
}

/* Adds rounds of one kind and stage to the table. */
static void add_rounds(const builder *b, fcp_round_kind kind, uint32_t stage, uint32_t count) {
    const uint32_t second = b->s->second_stage; /* 0: there are no halves */
    const bool late = kind == FCP_ROUND_DEPENDENT && second && stage >= second;
    const fcp_round of = {.kind = (uint16_t)kind, .flags = late ? FCP_ROUND_SECOND : 0, .stage = stage};
    for (uint32_t i = 0; i < count; i++) b->out->rounds[b->out->round_count++] = of;
}

/* Makes the table of rounds, and sorts the moves by round and fabric. */
static fcp_code write_tables(builder *b, const uint32_t out_rounds[2]) {
    pass_schedule *out = b->out;
    uint32_t last = b->next - out->out; /* first round of OUT */
    out->rounds = ARENA_NEW(&b->x->work, fcp_round, b->next + (size_t)1);
    out->moves = ARENA_NEW(&b->x->work, move, out->move_count + (size_t)1);
    uint32_t *at = ARENA_ZNEW(b->scratch, uint32_t, 2 * (size_t)b->next + 2);
    if (!out->rounds || !out->moves || !at) return FCP_E_NO_MEMORY;
    add_rounds(b, FCP_ROUND_IN, 0, out->in);
    for (uint32_t s = 1; s < out->stages; s++) {
        add_rounds(b, FCP_ROUND_DEPENDENT, s, b->stage_dependent[s]);
        uint32_t end = s + 1 < out->stages ? b->stage_base[s + 1] - b->stage_dependent[s + 1] : last;
        add_rounds(b, FCP_ROUND_INDEPENDENT, s, end - b->stage_base[s]);
    }
    add_rounds(b, FCP_ROUND_OUT, out->stages - 1, out_rounds[0]);
    add_rounds(b, FCP_ROUND_OUT, out->stages, out_rounds[1]);
    for (uint32_t i = 0; i < out->move_count; i++) at[2 * (size_t)b->moves[i].round + b->moves[i].fabric + 1]++;
    for (size_t i = 0; i < 2 * (size_t)b->next; i++) at[i + 1] += at[i];
    for (uint32_t i = 0; i < out->move_count; i++) {
        if (!(i & 0xffff) && planning_stopped(b->x)) return FCP_E_INTERRUPTED;
        out->moves[at[2 * (size_t)b->moves[i].round + b->moves[i].fabric]++] = b->moves[i];
    }
    return FCP_OK;
}

/* Adds and colours OUT: the units that leave beside the last stage, then the others. out_rounds: how many rounds each
 * part has, 0 so far. */
static fcp_code colour_out(builder *b, uint32_t out_rounds[2]) {
    if (!b->r->units) return FCP_OK;
    uint32_t *done = results_done(b);
    bool *early = done ? early_units(b, done) : NULL;
    fcp_code code = early ? FCP_OK : FCP_E_NO_MEMORY;
    for (int late = 0; !code && late < 2; late++) {
        uint32_t first = b->out->move_count;
        add_bundles(b, FCP_OUT, late && !out_rounds[0] ? NULL : early, late); /* none is early: all are late */
        code = colour_bundles(b, first, &out_rounds[late]);
    }
    b->out->out = out_rounds[0] + out_rounds[1];
    return code;
}

/* Makes the rounds of one pass. *b has room for its moves. */
static fcp_code build_pass(builder *b, fcp_pass pass, pass_schedule *out) {
    const uint32_t *independent = b->s->independent;
    b->out = out;
    b->pass = pass;
    b->backward = pass == FCP_BACKWARD;
    b->next = 0;
    out->independent = independent[FCP_NET] > independent[FCP_LOCAL] ? independent[FCP_NET] : independent[FCP_LOCAL];
    b->stage_start = ARENA_NEW(b->scratch, uint32_t, out->stages + (size_t)2);
    b->stage_base = ARENA_NEW(b->scratch, uint32_t, out->stages + (size_t)1);
    b->stage_dependent = ARENA_ZNEW(b->scratch, uint32_t, out->stages + (size_t)1);
    if (!b->stage_start || !b->stage_base || !b->stage_dependent) return FCP_E_NO_MEMORY;

    add_bundles(b, FCP_IN, NULL, false);
    fcp_code code = colour_bundles(b, 0, &out->in);
    if (!code) code = add_dependents(b);
    if (!code) code = number_stages(b);
    uint32_t out_rounds[2] = {0, 0};
    if (!code) code = colour_out(b, out_rounds);
    return code ? code : write_tables(b, out_rounds);
}

/* A builder with room for so many moves, in x's arenas. False: no memory. */
static bool open_builder(planning *x, size_t moves, builder *b) {
    b->x = x;
    b->scratch = &x->scratch;
    b->moves = ARENA_NEW(b->scratch, move, moves + 1);
    b->edges = ARENA_NEW(b->scratch, edges, 1);
    return b->moves && b->edges && edges_new(b->edges, b->scratch, moves);
}

/* Colours the units of all bundles as IN: moved_colour, which both passes need. */
static fcp_code colour_moved(planning *x, builder *of_passes) {
    const uint32_t count = x->reshuffle->units;
    builder b = *of_passes;
    pass_schedule in = {0};
    if (!count) return FCP_OK;
    if (!open_builder(x, count, &b)) return FCP_E_NO_MEMORY;
    uint32_t *colour = ARENA_NEW(b.scratch, uint32_t, count);
    if (!colour) return FCP_E_NO_MEMORY;
    b.out = &in;
    add_bundles(&b, FCP_IN, NULL, false);
    fcp_code code = colour_group(&b, 0, &of_passes->moved_colours);
    for (uint32_t i = 0; !code && i < count; i++) colour[i] = b.moves[i].round;
    of_passes->moved_colour = colour;
    return code;
}

/* One pass, for pair_make. */
typedef struct piece {
    builder b;
    fcp_pass pass;
} piece;

static fcp_code build_piece(planning *x, void *given) {
    piece *of = given;
    const traffic *t = x->traffic;
    size_t moves = (size_t)t->units + (of->pass == FCP_BACKWARD || t->keys < t->count ? t->returned : 0);
    if (!open_builder(x, moves + 2 * (size_t)x->reshuffle->units, &of->b)) return FCP_E_NO_MEMORY;
    return build_pass(&of->b, of->pass, &x->schedule->pass[of->pass]);
}

fcp_code rounds_build(planning *x) {
    const traffic *t = x->traffic;
    builder b = {.x = x, .p = x->problem, .t = t, .r = x->reshuffle, .coalesce = x->coalesce, .s = x->schedule,
                 .slots = x->slots};
    fcp_code code = colour_moved(x, &b);
    piece ahead = {b, FCP_FORWARD}, back = {b, FCP_BACKWARD};
    if (code) return code;
    const pair_piece first = {build_piece, &back}, second = {build_piece, &ahead};
    code = x->program->passes[FCP_BACKWARD] ? pair_make(x, t->units >= PAIR_FROM, first, second)
                                            : build_piece(x, &ahead);
    for (int pass = 0; code && pass < FCP_PASSES; pass++) /* nobody may look at half of the rounds */
        x->schedule->pass[pass].round_count = x->schedule->pass[pass].move_count = 0;
    return code;
}
