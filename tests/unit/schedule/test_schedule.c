/* test_schedule.c: tests traffic, rounds, stages, visits and slots, on programs of every kind: with homes drawn at
 * random, and with everything drawn at random (scatter.h). The results of each pass are computed a second time here,
 * from the pass's inputs. */
#include "compiler/schedule/schedule_parts.h"
#include "runtime/plan/enum_names.h"
#include "tests/support/planned.h"

static uint32_t later(uint32_t a, uint32_t b) { return a > b ? a : b; }
static uint32_t sooner(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint64_t later64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* --- traffic ------------------------------------------------------------------------------------------------------ */

/* The block that a tile needs of a class, and the hop that brings it. */
static uint32_t needed(const planned *x, fcp_class cls, uint32_t tile, uint32_t *out_hop) {
    if (cls == FCP_KV) {
        *out_hop = x->t.tile_kv[tile];
        return x->p.tile_k[tile];
    }
    *out_hop = x->t.tile_q ? x->t.tile_q[tile] : FCP_NONE;
    return x->p.tile_q[tile];
}

/* A rank that needs a block of another home gets it by exactly one hop, and its sender has the block by then. No rank
 * gets a block that it neither needs nor sends on. */
static void check_class(const planned *x, fcp_class cls, uint32_t first, uint32_t end) {
    const problem *p = &x->p;
    const uint32_t gpus = x->program->gpus;
    uint8_t *has = calloc((size_t)p->block_count * p->ranks, 1),
            *crossed = calloc((size_t)p->block_count * x->program->nodes, 1);
    uint64_t *work = calloc(x->t.count + (size_t)1, sizeof *work);
    for (uint32_t b = 0; b < p->block_count; b++) has[(size_t)b * p->ranks + x->home[b]] = 1;
    for (uint32_t f = first; f < end; f++) {
        const hop *y = &x->t.hops[f];
        cr_assert_eq(y->cls, cls);
        cr_assert(has[(size_t)y->block * p->ranks + y->src], "hop %u is sent by a rank that lacks the block", f);
        cr_assert(!has[(size_t)y->block * p->ranks + y->dst]++, "block %u comes to rank %u twice", y->block, y->dst);
        cr_assert_eq(y->fabric, y->src / gpus == y->dst / gpus ? FCP_LOCAL : FCP_NET);
        cr_assert_eq(y->parent == FCP_NONE, y->src == x->home[y->block]);
        if (y->parent != FCP_NONE) {
            const hop *from = &x->t.hops[y->parent];
            cr_assert(y->parent < f && from->dst == y->src && from->block == y->block && from->cls == cls);
        }
        const uint32_t unit = p->unit_of[y->fabric][cls];
        cr_assert_eq(y->units, (p->blocks[y->block].tokens + unit - 1) / unit);
        if (y->fabric != FCP_NET || x->at.placement->route) continue;
        cr_assert(!crossed[(size_t)y->block * x->program->nodes + y->dst / gpus]++, "crosses twice");
        if (x->program->topology == FCP_RAIL) cr_assert_eq(y->src % gpus, y->dst % gpus);
    }
    for (uint32_t t = 0; t < p->tile_count; t++) {
        uint32_t f, at = placement_exec(x->at.placement, t), block = needed(x, cls, t, &f), q = p->tile_q[t];
        cr_assert(has[(size_t)block * p->ranks + at]);
        if (f == FCP_NONE) {
            cr_assert_eq(at, x->home[block]);
            continue;
        }
        cr_assert(f >= first && f < end && x->t.hops[f].dst == at && x->t.hops[f].block == block);
        uint64_t counts = p->tile_pairs[t];
        if (at != x->home[q]) counts += traffic_is_shared(&x->t, q) ? counts : counts / 2;
        for (uint32_t h = f; h != FCP_NONE; h = x->t.hops[h].parent) work[h] += counts;
    }
    for (uint32_t f = first; f < end; f++)
        cr_assert(work[f] && work[f] == x->t.hops[f].work, "hop %u: nobody needs it", f);
    free(has);
    free(crossed);
    free(work);
}

/* Of the hops by which all that is made of a block away from home comes back, the last; FCP_NONE: there is none, or
 * home makes some itself. Checks which hops are said to bring a result. */
static uint32_t find_maker(const planned *x, uint32_t q) {
    uint32_t maker = FCP_NONE, senders = 0, *by = calloc(x->t.count + (size_t)1, sizeof *by);
    uint8_t *sends = calloc(x->t.count + (size_t)1, 1);
    bool at_home = false;
    for (uint32_t t = x->p.tile_start[q]; t < x->p.tile_start[q + 1]; t++) {
        uint32_t f;
        needed(x, FCP_Q, t, &f);
        at_home |= f == FCP_NONE;
        if (f == FCP_NONE || sends[f]++) continue;
        senders++;
        for (; f != FCP_NONE; f = x->t.hops[f].parent) by[f]++;
    }
    for (uint32_t f = x->t.keys; f < x->t.count; f++) {
        if (x->t.hops[f].block != q) continue;
        bool all = !at_home && by[f] == senders;
        cr_assert_eq(x->t.hops[f].whole, all, "hop %u of block %u", f, q);
        if (all) maker = f; /* a parent comes before its forwards */
    }
    free(by);
    free(sends);
    return maker;
}

static void check_traffic(const planned *x) {
    const problem *p = &x->p;
    check_class(x, FCP_KV, 0, x->t.keys);
    check_class(x, FCP_Q, x->t.keys, x->t.count);
    for (uint32_t q = 0; q < p->block_count; q++) {
        bool home = true, one = true;
        uint32_t first = p->tile_start[q];
        for (uint32_t t = first; t < p->tile_start[q + 1]; t++) {
            uint32_t at = placement_exec(x->at.placement, t);
            home &= at == x->home[q];
            one &= at == placement_exec(x->at.placement, first);
        }
        uint32_t maker = find_maker(x, q);
        if (x->t.maker) cr_assert_eq(x->t.maker[q], maker);
        cr_assert_eq(traffic_result(&x->t, q), home                ? RESULT_HOME
                                               : one               ? RESULT_WHOLE
                                               : maker == FCP_NONE ? RESULT_PARTIAL
                                                                   : RESULT_JOINED);
    }
}

/* --- rounds ------------------------------------------------------------------------------------------------------- */

/* Returns Delta of the rounds of one kind: the largest number of units that one rank sends, or receives, on one fabric
 * in them. stage: only rounds of this stage count; FCP_NONE: those of all stages. */
static uint32_t delta(const planned *x, const pass_schedule *ps, fcp_round_kind kind, uint32_t stage) {
    uint32_t most = 0, *degree = calloc(4 * (size_t)x->p.ranks, sizeof *degree);
    for (uint32_t i = 0; i < ps->move_count; i++) {
        const move *m = &ps->moves[i];
        const fcp_round *r = &ps->rounds[m->round];
        if (r->kind != kind || (stage != FCP_NONE && r->stage != stage)) continue;
        most = later(most, ++degree[(m->src * 2) * 2 + m->fabric]);
        most = later(most, ++degree[(m->dst * 2 + 1) * 2 + m->fabric]);
    }
    free(degree);
    return most;
}

static uint32_t rounds_in(const pass_schedule *ps, fcp_round_kind kind, uint32_t stage) {
    uint32_t count = 0;
    for (uint32_t r = 0; r < ps->round_count; r++)
        count += ps->rounds[r].kind == kind && (stage == FCP_NONE || ps->rounds[r].stage == stage);
    return count;
}

static void check_rounds(const planned *x, fcp_pass pass) {
    const pass_schedule *ps = &x->s.pass[pass];
    uint32_t ranks = x->p.ranks;
    uint32_t *seen = calloc(2 * (size_t)ps->round_count * ranks * FCP_FABRICS + 1, sizeof *seen);
    for (uint32_t i = 0; i < ps->move_count; i++) {
        const move *m = &ps->moves[i];
        size_t at = ((size_t)m->round * FCP_FABRICS + m->fabric) * ranks;
        cr_assert(!seen[2 * (at + m->src)]++, "rank %u sends twice in round %u", m->src, m->round);
        cr_assert(!seen[2 * (at + m->dst) + 1]++, "rank %u receives twice in round %u", m->dst, m->round);
        cr_assert(!i || ps->moves[i - 1].round <= m->round);
        fcp_round_kind kind = (fcp_round_kind)ps->rounds[m->round].kind;
        if (kind == FCP_ROUND_IN || kind == FCP_ROUND_OUT) continue;
        const hop *h = &x->t.hops[m->ref];
        cr_assert_eq(kind == FCP_ROUND_INDEPENDENT, !x->s.staged && m->cls == h->cls && h->parent == FCP_NONE);
        cr_assert(m->cls == h->cls ? m->src == h->src && m->dst == h->dst : m->src == h->dst && m->dst == h->src);
        cr_assert(m->cls == h->cls || m->cls == traffic_return(h, pass));
    }
    free(seen);
    cr_assert_eq(rounds_in(ps, FCP_ROUND_INDEPENDENT, FCP_NONE), delta(x, ps, FCP_ROUND_INDEPENDENT, FCP_NONE));
    for (uint32_t s = 0; s < ps->stages; s++)
        cr_assert_eq(rounds_in(ps, FCP_ROUND_DEPENDENT, s), delta(x, ps, FCP_ROUND_DEPENDENT, s));
}

/* In which blocks arrive, and stage 0. */
static uint32_t arrival_stages(const planned *x) {
    uint32_t stages = 1;
    for (uint32_t f = 0; f < x->t.count; f++) stages = later(stages, x->s.last_stage[f] + 1);
    return stages;
}

/* Returns the first stage in which units may travel: those of hop f at index f, and those of the result that comes back
 * along it at index hops + f. In staged plans (schedule.staged) each unit is given a stage by itself.
 *   a hop from the block's home       any stage; in staged plans, stage 1
 *   a hop that passes a block on      one stage after the block came
 *   a hop of the second half          with pingpong: also not before the first stage of that half
 *   a partial result                  `buffers` stages after the last tile or sum that adds to it; in staged plans at
 *                                     most two
 *   a whole result that is passed on  one stage after it came */
static uint32_t *releases(const planned *x, fcp_pass pass) {
    uint32_t hops = x->t.count, *release = calloc(2 * (size_t)hops + 1, sizeof *release);
    uint32_t after = x->program->buffers;
    if (x->s.staged && !x->at.placement->phase) after = sooner(after, 2);
    for (uint32_t f = hops; f-- > 0;) {
        const hop *h = &x->t.hops[f];
        fcp_class cls = traffic_return(h, pass);
        release[f] = h->parent == FCP_NONE ? 1 : x->s.last_stage[h->parent] + 1;
        if (x->s.second && x->s.second[f]) release[f] = later(release[f], x->s.second_stage);
        if (cls == FCP_CLASSES) continue;
        bool passed_on = (cls == FCP_O || cls == FCP_DQW) && x->t.maker[h->block] != f;
        uint32_t *ready = &release[hops + f]; /* so far what its children said */
        *ready = later(*ready, x->s.use_last[f]) + (passed_on ? 1 : after);
        if (h->parent != FCP_NONE)
            release[hops + h->parent] = later(release[hops + h->parent], x->s.back[pass].last[f]);
    }
    return release;
}

/* What a line carries in a stage: units, and their sizes together. */
typedef struct carried {
    uint32_t units, size;
} carried;

/* The most units that a line over net carries in the pass that moves most. */
static uint32_t busiest_over_net(const planned *x) {
    uint32_t units[2 * 64] = {0}, most = 0;
    cr_assert_leq(x->p.ranks, 64);
    fcp_pass pass = x->program->passes[FCP_BACKWARD] ? FCP_BACKWARD : FCP_FORWARD;
    for (uint32_t f = 0; f < x->t.count; f++) {
        const hop *h = &x->t.hops[f];
        const fcp_class back = traffic_return(h, pass);
        if (h->fabric != FCP_NET) continue;
        units[2 * h->src] += h->units, units[2 * h->dst + 1] += h->units;
        if (back == FCP_CLASSES) continue;
        const uint32_t more = return_units(&x->p, h, back);
        units[2 * h->dst] += more, units[2 * h->src + 1] += more;
    }
    for (uint32_t i = 0; i < 2 * x->p.ranks; i++) most = later(most, units[i]);
    return most;
}

/* Returns how many units one rank may send, or receive, over one fabric in one stage of a staged plan.
 *
 * If keys go directly from home to reader: a third of `coalesce`, but at least one. If keys go along trees:
 * 1. A third of `coalesce`, but at most about a sixteenth of the units that the busiest rank sends or receives over
 *    net, so that there are at least 16 stages.
 * 2. At least the units of the largest block, so that a whole block fits.
 * 3. Over local: this number for each other rank of the node.
 * 4. At most 255. */
static uint32_t room_of(const planned *x, uint32_t fabric) {
    uint32_t room = x->at.coalesce > 3 ? x->at.coalesce / 3 : 1;
    if (!x->t.trees) return room;
    room = sooner(room, busiest_over_net(x) / 16 + 1);
    for (uint32_t f = 0; f < x->t.count; f++) room = later(room, x->t.hops[f].units);
    room = sooner(room, 255);
    return fabric == FCP_NET || x->program->gpus == 1 ? room : sooner(room * (x->program->gpus - 1), 255);
}

static void carry(const planned *x, carried *lines, uint32_t width, const move *m, uint32_t stage) {
    uint32_t size = unit_size(&x->p, (fcp_class)m->cls, m->tokens);
    carried *sends = &lines[(m->src * 4 + m->fabric) * width + stage];
    carried *receives = &lines[(m->dst * 4 + 2 + m->fabric) * width + stage];
    sends->units++, receives->units++;
    sends->size += size, receives->size += size;
}

/* Returns how many bytes a rank with several units in one stage may send, or receive, there over net. stages_away.c
 * explains the formula. */
static uint32_t share_of(const planned *x) {
    uint64_t units[4 * 64] = {0}, size[4 * 64] = {0}, most_units = 0, most_size = 0;
    cr_assert_leq(x->p.ranks, 64);
    fcp_pass pass = x->program->passes[FCP_BACKWARD] ? FCP_BACKWARD : FCP_FORWARD;
    for (uint32_t f = 0; f < x->t.count; f++) {
        const hop *h = &x->t.hops[f];
        const fcp_class cls[2] = {(fcp_class)h->cls, traffic_return(h, pass)};
        for (int back = 0; back < 2; back++) {
            if (cls[back] == FCP_CLASSES) continue;
            uint32_t src = back ? h->dst : h->src, dst = back ? h->src : h->dst;
            const uint32_t unit = x->p.unit_of[h->fabric][cls[back]];
            for (uint32_t at = 0; at < x->p.blocks[h->block].tokens; at += unit) {
                uint32_t tokens = (uint32_t)sooner(unit, x->p.blocks[h->block].tokens - at);
                units[src * 4 + h->fabric]++, units[dst * 4 + 2 + h->fabric]++;
                size[src * 4 + h->fabric] += unit_size(&x->p, cls[back], tokens);
                size[dst * 4 + 2 + h->fabric] += unit_size(&x->p, cls[back], tokens);
            }
        }
    }
    for (uint32_t i = 0; i < 4 * x->p.ranks; i++) {
        if (units[i] > most_units) most_units = units[i];
        if (i % 2 == FCP_NET && size[i] > most_size) most_size = size[i];
    }
    return (uint32_t)(most_size / (most_units / room_of(x, FCP_NET) + 1) * 3 / 2) + x->p.unit;
}

/* Checks the moves of a pass. Each hop's block moves once, unit by unit, in the stages that the schedule says; its
 * result moves back once. `releases` has the first stage in which a unit may travel. Units of dependent rounds travel
 *   in plans that are not staged:  in exactly that stage
 *   in staged plans, blocks:       in that stage, or the first later one in which sender and receiver have room
 *   in staged plans, results:      in that stage or any later one, where that makes fewer rounds (fewer_rounds.c) */
static void check_units(const planned *x, fcp_pass pass) {
    const pass_schedule *ps = &x->s.pass[pass];
    const problem *p = &x->p;
    const returns *back = &x->s.back[pass];
    uint32_t hops = x->t.count, width = ps->stages + 1, *release = releases(x, pass);
    struct seen { uint32_t tokens, round, first, last, before; } *seen = calloc(2 * (size_t)hops + 1, sizeof *seen);
    const uint32_t room[] = {room_of(x, 0), room_of(x, 1)}, share = x->s.staged ? share_of(x) : 0;
    carried *lines = calloc((size_t)p->ranks * 4 * width, sizeof *lines);
    for (int look = 0; look < 2; look++)
        for (uint32_t i = 0; i < ps->move_count; i++) {
            const move *m = &ps->moves[i];
            const fcp_round *r = &ps->rounds[m->round];
            if (r->kind == FCP_ROUND_IN || r->kind == FCP_ROUND_OUT) continue;
            uint32_t unit = m->cls == x->t.hops[m->ref].cls ? m->ref : hops + m->ref;
            struct seen *s = &seen[unit];
            if (look) { /* the stages that it passed over must be full */
                const carried *sends = &lines[(m->src * 4 + m->fabric) * width],
                              *receives = &lines[(m->dst * 4 + 2 + m->fabric) * width];
                uint32_t left = m->fabric == FCP_NET ? unit_size(p, (fcp_class)m->cls, m->tokens) : 0;
                if (r->kind == FCP_ROUND_INDEPENDENT) continue;
                cr_assert(r->stage >= release[unit] && (x->s.staged || r->stage == release[unit]));
                if (x->s.staged && m->cls != x->t.hops[m->ref].cls) continue;
                /* a block's units travel in order: its short last one does not overtake one that found no room */
                for (uint32_t stage = later(release[unit], s->before); stage < r->stage; stage++)
                    cr_assert(sends[stage].units == room[m->fabric] || receives[stage].units == room[m->fabric] ||
                                  (left && (sends[stage].size + left > share || receives[stage].size + left > share)),
                              "stage %u had room", stage);
                s->before = r->stage;
                continue;
            }
            cr_assert_eq(m->first, s->tokens, "units out of order");
            cr_assert_eq(m->tokens,
                         (uint32_t)sooner(p->unit_of[m->fabric][m->cls], p->blocks[m->block].tokens - m->first));
            cr_assert(!s->tokens || m->round > s->round);
            if (!s->tokens) s->first = r->stage;
            s->last = r->stage;
            s->round = m->round;
            s->tokens += m->tokens;
            carry(x, lines, width, m, r->stage);
        }
    for (uint32_t f = 0; f < hops; f++) {
        const hop *h = &x->t.hops[f];
        const struct seen *there = &seen[f], *home = &seen[hops + f];
        bool comes_back = traffic_return(h, pass) != FCP_CLASSES;
        cr_assert_eq(there->tokens, p->blocks[h->block].tokens);
        cr_assert(there->first == x->s.first_stage[f] && there->last == x->s.last_stage[f]);
        cr_assert_eq(home->tokens, comes_back ? p->blocks[h->block].tokens : 0);
        if (comes_back) cr_assert(home->first == back->first[f] && home->last == back->last[f]);
    }
    for (uint32_t i = 0; x->s.staged && i < p->ranks * 4 * width; i++) {
        cr_assert_leq(lines[i].units, room[i / width % 2]);
        cr_assert(i / width % 2 != FCP_NET || lines[i].units < 2 || lines[i].size <= share);
    }
    free(release);
    free(seen);
    free(lines);
}

/* --- visits ------------------------------------------------------------------------------------------------------- */

/* A chain is what one rank does with one Q block: in which stages it visits the block, and in which stages partial
 * results come to it and are merged. */
typedef struct chain {
    uint32_t first, last, merged_first, merged_last;
} chain;

/* The chain of every Q hop's receiver (at the hop's index), and of every block's home (at t.count + block). */
static chain *find_chains(const planned *x, fcp_pass pass) {
    chain *all = malloc((x->t.count + (size_t)x->p.block_count) * sizeof *all);
    for (size_t i = 0; i < x->t.count + (size_t)x->p.block_count; i++) all[i] = (chain){FCP_NONE, 0, FCP_NONE, 0};
    for (uint32_t v = 0; v < x->s.visit_count; v++) {
        uint32_t f = x->s.visit_hop ? x->s.visit_hop[v] : FCP_NONE, stage = x->s.visit_stage[v];
        chain *c = &all[f == FCP_NONE ? x->t.count + x->s.visits[v].q_block : f];
        c->first = sooner(c->first, stage);
        c->last = later(c->last, stage);
    }
    for (uint32_t f = x->t.keys; f < x->t.count; f++) {
        const hop *h = &x->t.hops[f];
        chain *c = &all[h->parent == FCP_NONE ? x->t.count + h->block : h->parent];
        c->merged_first = sooner(c->merged_first, x->s.back[pass].last[f]);
        c->merged_last = later(c->merged_last, x->s.back[pass].last[f]);
    }
    return all;
}

/* The chain of which the result of a block is made. */
static const chain *chain_of_maker(const planned *x, const chain *chains, uint32_t block) {
    return &chains[x->t.maker[block] == FCP_NONE ? x->t.count + block : x->t.maker[block]];
}

/* Pairs that a rank computes in each stage; malloc'd. */
static uint64_t *find_loads(const planned *x, uint32_t rank, uint32_t stages) {
    uint64_t *load = calloc(stages, sizeof *load);
    for (uint32_t v = x->s.rank_visit[rank]; v < x->s.rank_visit[rank + 1]; v++)
        for (uint32_t i = x->s.visits[v].first_tile; i < x->s.visits[v].first_tile + x->s.visits[v].tiles; i++)
            load[x->s.visit_stage[v]] += x->p.tile_pairs[x->s.order[i]];
    return load;
}

/* Checks the stage of a tile. `ready` is the stage in which the last of its Q and KV came; no tile runs before it.
 *   local tiles, which need nothing from other ranks:  any stage
 *   plans in which tiles may run away from home:       stage `ready`; or later, if until then the rank has its share of
 *                                                      work in each stage without this tile
 *   plans in which all tiles run at home:              see check_even_stages */
static void check_wait(const planned *x, uint32_t rank, uint32_t ready, uint32_t stage, bool local, uint32_t stages,
                       const uint64_t *load) {
    uint64_t total = 0;
    cr_assert_geq(stage, ready);
    if (local || stage == ready) return;
    for (uint32_t s = 0; s < stages; s++) total += load[s];
    for (uint32_t s = ready; x->t.tile_q && s < stage; s++)
        cr_assert(load[s] >= total / stages, "rank %u: a tile ready in stage %u waits for stage %u", rank, ready,
                  stage);
}

/* Checks plans in which all tiles run at home: each rank spreads its work evenly over stages. A local tile is one whose
 * KV is at home, too. A part is the rank's work divided by the number of stages.
 *
 * How much a rank has done by the end of stage s (counted from 0):
 * 1. A tile whose KV came from another rank counts in its stage.
 * 2. The local tiles of a Q block count in the first stage in which a tile of 1. with the same queries runs.
 * 3. If the sum is below s + 1 parts, local tiles must have filled the gap. The sum is set to s + 1 parts, and as much
 *    of later local tiles does not count again.
 *
 * What must hold:
 * - Before step 3 the sum is at most s + 1 parts, and what one Q block may add: its local tiles and its largest other
 *   one.
 * - A tile waits (runs later than its KV came) only in stages by whose end the sum is at least s + 1 parts before step
 *   3.
 * Returns how many tiles wait. */
static uint32_t check_even_stages(const planned *x, uint32_t stages) {
    const problem *p = &x->p;
    uint32_t waiting = 0, *stage_of = calloc(p->tile_count + (size_t)1, sizeof *stage_of);
    for (uint32_t v = 0; v < x->s.visit_count; v++)
        for (uint32_t i = 0; i < x->s.visits[v].tiles; i++)
            stage_of[x->s.order[x->s.visits[v].first_tile + i]] = x->s.visit_stage[v];
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint64_t *done = calloc(stages, sizeof *done), *locals = calloc(stages, sizeof *locals), work = 0, step = 0;
        for (uint32_t q = 0; q < p->block_count; q++) {
            uint64_t local = 0, largest = 0;
            uint32_t first = FCP_NONE;
            if (x->home[q] != r) continue;
            for (uint32_t t = p->tile_start[q]; t < p->tile_start[q + 1]; t++) {
                work += p->tile_pairs[t];
                if (x->t.tile_kv[t] == FCP_NONE) {
                    local += p->tile_pairs[t];
                    continue;
                }
                done[stage_of[t]] += p->tile_pairs[t];
                first = sooner(first, stage_of[t]);
                largest = later64(largest, p->tile_pairs[t]);
            }
            if (first != FCP_NONE) locals[first] += local;
            if (first != FCP_NONE) step = later64(step, local + largest);
        }
        const uint64_t part = work / stages;
        for (uint64_t s = 0, filled = 0, sum = 0; s < stages; s++) {
            const uint64_t before = locals[s] < filled ? locals[s] : filled;
            done[s] = sum += done[s] + locals[s] - before;
            filled -= before;
            if (s + 1 < stages)
                cr_assert_leq(sum, part * (s + 1) + step, "rank %u is ahead after stage %lu", r, s);
            if (sum >= part * (s + 1)) continue;
            filled += part * (s + 1) - sum;
            sum = part * (s + 1);
        }
        for (uint32_t t = 0; t < p->tile_count; t++) {
            const uint32_t f = x->t.tile_kv[t];
            if (f == FCP_NONE || x->home[p->tile_q[t]] != r) continue;
            waiting += stage_of[t] > x->s.last_stage[f];
            for (uint32_t s = x->s.last_stage[f]; s < stage_of[t]; s++)
                cr_assert_geq(done[s], part * (s + 1), "rank %u: a tile waits for nothing", r);
        }
        free(done);
        free(locals);
    }
    free(stage_of);
    return waiting;
}

static void check_visits(const planned *x) {
    const problem *p = &x->p;
    uint8_t *done = calloc(p->tile_count + (size_t)1, 1);
    uint32_t *visited = calloc(p->block_count, sizeof *visited);
    uint32_t *first_kv = malloc((x->t.count + (size_t)1) * sizeof *first_kv),
             *last_kv = calloc(x->t.count + (size_t)1, 4);
    memset(first_kv, 0xff, (x->t.count + (size_t)1) * sizeof *first_kv);
    chain *chains = find_chains(x, FCP_FORWARD);
    uint32_t stages = arrival_stages(x); /* in which tiles may run */
    if (x->t.keys < x->t.count) stages += x->at.placement->phase ? x->program->buffers : 8;
    if (!x->at.placement->exec) check_even_stages(x, stages);
    for (uint32_t r = 0; r < p->ranks; r++) {
        uint64_t *load = find_loads(x, r, stages);
        memset(visited, 0, p->block_count * sizeof *visited); /* tiles of a Q block done at this rank */
        for (uint32_t v = x->s.rank_visit[r]; v < x->s.rank_visit[r + 1]; v++) {
            const fcp_visit *y = &x->s.visits[v];
            uint32_t stage = x->s.visit_stage[v], from = x->s.visit_hop ? x->s.visit_hop[v] : FCP_NONE, q = y->q_block;
            cr_assert(v == x->s.rank_visit[r] || stage >= x->s.visit_stage[v - 1]);
            bool merged = chains[from == FCP_NONE ? x->t.count + q : from].merged_first < stage;
            cr_assert_eq(!!(y->flags & FCP_VISIT_FIRST), !visited[q] && !merged);
            visited[q] += y->tiles;
            cr_assert_eq(!!(y->flags & FCP_VISIT_LAST), visited[q] == p->tile_start[q + 1] - p->tile_start[q]);
            for (uint32_t i = y->first_tile; i < y->first_tile + y->tiles; i++) {
                uint32_t t = x->s.order[i], f = x->t.tile_kv[t], q_hop, ready = 0;
                needed(x, FCP_Q, t, &q_hop);
                cr_assert(!done[t]++);
                cr_assert_eq(placement_exec(x->at.placement, t), r);
                cr_assert_eq(q_hop, from);
                cr_assert(t >= p->tile_start[q] && t < p->tile_start[q + 1]);
                if (f != FCP_NONE) ready = x->s.last_stage[f];
                if (from != FCP_NONE) ready = later(ready, x->s.last_stage[from]);
                check_wait(x, r, ready, stage, f == FCP_NONE, stages, load);
                if (f == FCP_NONE) continue;
                first_kv[f] = sooner(first_kv[f], stage);
                last_kv[f] = later(last_kv[f], stage);
            }
        }
        free(load);
    }
    for (uint32_t t = 0; t < p->tile_count; t++) cr_assert(done[t]);
    for (uint32_t f = 0; f < x->t.keys; f++)
        cr_assert(first_kv[f] == x->s.use_first[f] && last_kv[f] == x->s.use_last[f]);
    for (uint32_t f = x->t.keys; f < x->t.count; f++)
        cr_assert(chains[f].first == x->s.use_first[f] && chains[f].last == x->s.use_last[f]);
    for (uint32_t b = 0; x->t.tile_q && b < p->block_count; b++) {
        const chain *c = chain_of_maker(x, chains, b);
        if (traffic_is_shared(&x->t, b)) cr_assert_eq(x->s.finish[FCP_FORWARD][b], later(c->last, c->merged_last));
    }
    free(done);
    free(visited);
    free(first_kv);
    free(last_kv);
    free(chains);
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

/* What lies in a slot: from stage `birth` until computing last reads it (`read`) and communication last sends it
 * (`sent`); FCP_NONE: never. Either computing or a launch of communication writes it first. */
typedef struct tenant {
    uint32_t rank, slot;
    uint32_t birth, read, sent;
    bool computed;
} tenant;

typedef struct tenants {
    tenant *all;
    size_t count, room;
} tenants;

static void add_tenant(tenants *l, tenant t) {
    if (l->count == l->room) l->all = realloc(l->all, (l->room = 2 * l->room + 64) * sizeof *l->all);
    l->all[l->count++] = t;
}

/* May `b` follow `a` in the same slot? Launches of stage s wait for the computing of stage s - buffers. The computing
 * of stage s waits for the launches of s. */
static bool may_follow(const tenant *a, const tenant *b, uint32_t buffers) {
    bool read = a->read == FCP_NONE || b->birth >= a->read + (b->computed ? 1 : buffers);
    return read && (a->sent == FCP_NONE || b->birth > a->sent);
}

static int by_slot(const void *a, const void *b) {
    const tenant *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->slot != y->slot) return x->slot < y->slot ? -1 : 1;
    return x->birth < y->birth ? -1 : x->birth > y->birth;
}

/* Slots of a rank are numbered from its first transient one without gaps, and tenants of one follow each other. */
static void check_tenants(const planned *x, tenants *l, fcp_class cls, bool whole_peak) {
    if (!l->count) {
        for (uint32_t r = 0; r < x->p.ranks; r++) cr_assert_eq(x->slots.count[cls][r], 0);
        return;
    }
    qsort(l->all, l->count, sizeof *l->all, by_slot);
    uint32_t *used = calloc(x->p.ranks, sizeof *used), *peak = calloc(x->p.ranks, sizeof *peak);
    for (size_t i = 0; i < l->count; i++) {
        const tenant *t = &l->all[i], *before = i ? t - 1 : NULL;
        uint32_t base = cls == FCP_STATE ? 0 : x->slots.homes[t->rank];
        if (before && before->rank == t->rank && before->slot == t->slot)
            cr_assert(may_follow(before, t, x->program->buffers), "%s slot %u of rank %u: stages %u, %u/%u, then %u",
                      fcp_class_names[cls], t->slot, t->rank, before->birth, before->read, before->sent, t->birth);
        else
            cr_assert_eq(t->slot, base + used[t->rank]++, "a gap in the %s slots of rank %u", fcp_class_names[cls],
                         t->rank);
        uint32_t overlap = 0;
        for (size_t j = 0; whole_peak && j < l->count; j++)
            overlap += l->all[j].rank == t->rank && l->all[j].birth <= t->birth &&
                       ((l->all[j].read != FCP_NONE && l->all[j].read + x->program->buffers > t->birth) ||
                        (l->all[j].sent != FCP_NONE && l->all[j].sent + 1 > t->birth));
        peak[t->rank] = later(peak[t->rank], overlap);
    }
    for (uint32_t r = 0; r < x->p.ranks; r++) {
        cr_assert_eq(used[r], x->slots.count[cls][r]);
        cr_assert(!whole_peak || peak[r] == used[r]);
    }
    free(used);
    free(peak);
    free(l->all);
    *l = (tenants){0};
}

/* KV and Q: received, read by tiles, sent on. */
static void check_held(const planned *x, fcp_class cls, uint32_t first, uint32_t end) {
    tenants l = {0};
    for (uint32_t f = first; f < end; f++) {
        uint32_t sent = FCP_NONE;
        for (uint32_t g = f + 1; g < end; g++)
            if (x->t.hops[g].parent == f)
                sent = sent == FCP_NONE ? x->s.last_stage[g] : later(sent, x->s.last_stage[g]);
        add_tenant(&l, (tenant){x->t.hops[f].dst, x->slots.held[f], x->s.first_stage[f],
                                x->s.use_first[f] == FCP_NONE ? FCP_NONE : x->s.use_last[f], sent, false});
    }
    check_tenants(x, &l, cls, true);
}

/* Everything that goes back in a pass, of one class; with the states of visits and homes. */
static void check_back(const planned *x, fcp_pass pass, fcp_class cls) {
    const returns *back = &x->s.back[pass];
    const back_slots *places = &x->slots.back[pass];
    chain *chains = x->t.tile_q ? find_chains(x, pass) : NULL;
    tenants l = {0};
    for (uint32_t f = 0; f < x->t.count; f++) {
        const hop *h = &x->t.hops[f];
        fcp_class is = traffic_return(h, pass);
        uint32_t first = x->s.use_first[f];
        const bool maker = h->whole && x->t.maker[h->block] == f;
        if (cls == FCP_DQ && maker) /* ROUND reads it after the last visit, and the last partial */
            add_tenant(&l, (tenant){h->dst, x->slots.sum_dq[h->block], sooner(first, chains[f].merged_first),
                                    later(chains[f].last, chains[f].merged_last), FCP_NONE, true});
        if (is != cls) continue;
        bool whole = cls == FCP_O || cls == FCP_DQW, passed_on = whole && !maker;
        if (whole) first = passed_on ? FCP_NONE : later(chains[f].last, chains[f].merged_last);
        for (uint32_t g = f + 1; g < x->t.count && (passed_on || !whole); g++)
            if (x->t.hops[g].parent == f) first = sooner(first, whole ? back->first[g] : back->last[g]);
        add_tenant(&l, (tenant){h->dst, places->from[f], first, FCP_NONE, back->last[f], !passed_on});
        if (!whole) add_tenant(&l, (tenant){h->src, places->to[f], back->first[f], back->last[f], FCP_NONE, false});
        else
            cr_assert_eq(places->to[f], h->parent == FCP_NONE ? x->slots.home_slot[h->block] : places->from[h->parent]);
    }
    for (uint32_t b = 0; cls == FCP_STATE && x->t.tile_q && b < x->p.block_count; b++) {
        const chain *c = chain_of_maker(x, chains, b);
        if (!traffic_is_shared(&x->t, b)) continue;
        add_tenant(&l, (tenant){x->t.maker[b] == FCP_NONE ? x->home[b] : x->t.hops[x->t.maker[b]].dst,
                                x->slots.sum_state[b], sooner(c->first, c->merged_first),
                                later(c->last, c->merged_last), FCP_NONE, true});
    }
    for (uint32_t r = 0; cls == FCP_STATE && r < x->p.ranks; r++)
        for (uint32_t v = x->s.rank_visit[r]; v < x->s.rank_visit[r + 1]; v++) {
            const fcp_visit *y = &x->s.visits[v];
            uint32_t f = x->s.visit_hop ? x->s.visit_hop[v] : FCP_NONE, last = v;
            if (traffic_is_shared(&x->t, y->q_block)) {
                cr_assert_eq(y->state_slot,
                             f == x->t.maker[y->q_block] ? x->slots.sum_state[y->q_block] : places->from[f]);
                continue;
            }
            if (y->flags == (FCP_VISIT_FIRST | FCP_VISIT_LAST)) cr_assert_eq(y->state_slot, FCP_NONE);
            if (y->flags != FCP_VISIT_FIRST) continue;
            while (!(x->s.visits[last].q_block == y->q_block && x->s.visits[last].flags & FCP_VISIT_LAST)) last++;
            cr_assert_eq(x->s.visits[last].state_slot, y->state_slot);
            add_tenant(&l, (tenant){r, y->state_slot, x->s.visit_stage[v], x->s.visit_stage[last], FCP_NONE, true});
        }
    free(chains);
    check_tenants(x, &l, cls, cls == FCP_DKV);
}

static void check_slots(const planned *x) {
    check_held(x, FCP_KV, 0, x->t.keys);
    check_held(x, FCP_Q, x->t.keys, x->t.count);
    check_back(x, FCP_FORWARD, FCP_STATE);
    check_back(x, FCP_FORWARD, FCP_O);
    for (int cls = FCP_DKV; x->program->passes[FCP_BACKWARD] && cls <= FCP_DQW; cls++)
        check_back(x, FCP_BACKWARD, (fcp_class)cls);
    for (uint32_t v = 0; v < x->s.visit_count; v++) {
        const fcp_visit *y = &x->s.visits[v];
        uint32_t f = x->s.visit_hop ? x->s.visit_hop[v] : FCP_NONE, home = x->slots.home_slot[y->q_block];
        bool maker = f != FCP_NONE && f == x->t.maker[y->q_block];
        cr_assert_eq(y->q_slot, f == FCP_NONE ? home : x->slots.held[f]);
        cr_assert_eq(y->o_slot, !(y->flags & FCP_VISIT_LAST) ? FCP_NONE : maker ? x->slots.back[FCP_FORWARD].from[f]
                                                                                : home);
        if (!x->program->passes[FCP_BACKWARD]) cr_assert_eq(y->dq_slot, FCP_NONE);
        else cr_assert_eq(y->dq_slot, f == FCP_NONE ? home : maker ? x->slots.sum_dq[y->q_block]
                                                                   : x->slots.back[FCP_BACKWARD].from[f]);
    }
}

static void check_all(const planned *x) {
    check_traffic(x);
    check_visits(x);
    check_slots(x);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (x->program->passes[pass]) {
            check_rounds(x, (fcp_pass)pass);
            check_units(x, (fcp_pass)pass);
        }
}

Test(schedule, samples) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i++) {
        planned x;
        plan_passes(&x, sample_program(i, text, sizeof text), i);
        check_all(&x);
        planned_free(&x);
    }
}

/* Tiles that run anywhere, over the ways that traffic.c chooses. */
Test(schedule, tiles_that_run_anywhere) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i++) {
        planned x;
        scatter s = scatter_new(i);
        s.strategy.route = NULL;
        plan_scatter(&x, sample_program(i, text, sizeof text), &s);
        check_all(&x);
        planned_free(&x);
    }
}

/* Over ways drawn at random, with ranks that only pass blocks on. */
Test(schedule, blocks_that_go_anywhere) {
    char text[1024];
    for (unsigned i = 0; i < SAMPLES; i++) {
        planned x;
        const scatter s = scatter_new(1000 + i);
        plan_scatter(&x, sample_program(i, text, sizeof text), &s);
        check_all(&x);
        planned_free(&x);
    }
}

/* --- halves ------------------------------------------------------------------------------------------------------- */

/* A tile is of the half of its rows; of drawn halves, in which blocks may have rows of both, of its first. What the
 * first half needs belongs to the first half; of cad's halves it is also of rows of the first half (`closed`). On each
 * fabric all its units are in earlier rounds than those of the second half. */
static void check_halves(planned *x, bool closed, uint32_t *both) {
    const problem *p = &x->p;
    uint8_t *tile = malloc(p->tile_count + (size_t)1);
    bool *second = malloc(x->t.count + (size_t)1);
    const uint64_t *half = x->at.second_half;
    cr_assert_eq(halves_find(&x->at, tile, second), FCP_OK);
    cr_assert_arr_eq(second, x->s.second, x->t.count * sizeof *second);
    for (uint32_t t = 0; t < p->tile_count; t++) {
        uint32_t kv, q;
        needed(x, FCP_KV, t, &kv);
        needed(x, FCP_Q, t, &q);
        cr_assert_eq(tile[t] == HALF_NEITHER, kv == FCP_NONE && q == FCP_NONE);
        if (tile[t] == HALF_NEITHER) continue;
        for (uint32_t i = p->tile_part[t]; i < p->tile_part[t + (closed ? 1 : 0)] + !closed; i++) {
            const fcp_piece *rows = &p->pieces[p->parts[i].q_piece], *key = &p->pieces[p->parts[i].k_piece];
            cr_assert_eq(tile[t] == HALF_SECOND, rows->start >= half[rows->sequence]);
            cr_assert(!closed || tile[t] == HALF_SECOND || p->queries[key->sequence] != p->lengths[key->sequence] ||
                      key->start < half[key->sequence]);
        }
        if (tile[t] == HALF_FIRST) cr_assert((kv == FCP_NONE || !second[kv]) && (q == FCP_NONE || !second[q]));
    }
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        const pass_schedule *ps = &x->s.pass[pass];
        uint32_t last[FCP_FABRICS] = {0}, first[FCP_FABRICS] = {FCP_NONE, FCP_NONE};
        for (uint32_t i = 0; i < ps->move_count; i++) {
            const move *m = &ps->moves[i];
            if (m->cls != FCP_KV && m->cls != FCP_Q) continue;
            if (second[m->ref]) first[m->fabric] = sooner(first[m->fabric], m->round);
            else last[m->fabric] = later(last[m->fabric], m->round + 1);
        }
        for (int fabric = 0; fabric < FCP_FABRICS; fabric++) {
            cr_assert_leq(last[fabric], first[fabric]);
            *both += last[fabric] && first[fabric] != FCP_NONE;
        }
    }
    free(tile), free(second);
}

/* Plans in two halves, with drawn work and with cad's, keep every rule that other plans keep. */
Test(schedule, two_halves) {
    char text[1024];
    uint32_t both = 0;
    for (unsigned i = 0; i < 2 * SAMPLES; i++) {
        planned x;
        scatter s = scatter_new(i);
        uint64_t drawn[64];
        sample_program(i, text, sizeof text);
        if (i % 4 == 1) s.strategy.route = NULL;
        if (i % 2) {
            plan_to_placement(&x, text, &s.strategy);
            x.program->pingpong = 1;
            cr_assert_leq(x.p.sequences, 64);
            for (uint32_t n = 0; n < x.p.sequences; n++) /* at the beginning of some block of the rows */
                drawn[n] = x.p.queries[n] * ((i + n) % 3) / 2 / x.at.block * x.at.block;
            x.at.second_half = drawn;
        } else {
            char by_cad[1100];
            const char *at = strstr(text, "fcp(");
            snprintf(by_cad, sizeof by_cad, "%.*scad(pingpong = true, %s", (int)(at - text), text, at + 4);
            plan_to_placement(&x, by_cad, NULL);
        }
        plan_rest(&x);
        check_all(&x);
        check_halves(&x, i % 2 == 0, &both);
        planned_free(&x);
    }
    cr_assert_gt(both, SAMPLES, "in few plans there was something in both halves");
}

/* One long sequence among short ones. Its blocks come to all ranks. Some ranks have much to compute on each block and
 * others little, so tiles wait. Where no rank needs what others have, none does. */
Test(schedule, stages_are_even) {
    static const struct { const char *lengths; bool waits; } batches[] = {
        {"[40K, 3000 x 9, 400 x 100]", true}, {"[512 x 64]", false}};
    for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
        char text[300];
        planned x;
        snprintf(text, sizeof text,
                 "cluster { gpus = 8 }\nbatch { lengths = %s }\n"
                 "plan { mask = causal; block = 512; strategy = fcp(coalesce = 1, buffers = 3, split = off) }\n",
                 batches[i].lengths);
        plan_passes(&x, text, 0);
        cr_assert_eq(check_even_stages(&x, arrival_stages(&x)) > 0, batches[i].waits);
        check_all(&x);
        planned_free(&x);
    }
}

/* A sequence over two ranks, by hand: 4 blocks, causal, homes 0 1 0 1. */
Test(schedule, by_hand) {
    planned x;
    plan_passes(&x, "cluster { gpus = 2 }\nbatch { lengths = [512] }\n"
                    "plan { mask = causal; block = 128; strategy = fcp(coalesce = 1, buffers = 2) }\n", 1);
    for (uint32_t b = 0; b < 4; b++) x.home[b] = b % 2;
    x.at.coalesce = 1;
    plan_rest(&x);
    /* rank 1 reads blocks 0 and 2, rank 0 reads block 1: three hops, two rounds, block 0 (more work) first */
    cr_assert_eq(x.t.count, 3);
    cr_assert_eq(x.s.pass[FCP_FORWARD].independent, 2);
    cr_assert_eq(x.s.pass[FCP_FORWARD].stages, 3);
    cr_assert_eq(x.s.first_stage[0], 1);
    cr_assert_eq(x.s.first_stage[2], 2);
    cr_assert_eq(x.slots.count[FCP_KV][1], 2); /* [1, 3) and [2, 4) overlap */
    cr_assert_eq(x.slots.count[FCP_KV][0], 1);
    for (uint32_t f = 0; f < 3; f++) cr_assert_eq(x.s.back[FCP_BACKWARD].last[f], x.s.use_last[f] + 2);
    planned_free(&x);
}
