/* fewer_rounds.c: moves results to stages that have room for them, where that saves rounds.
 *
 * A *line* is one direction of a rank's wire on one fabric. A stage has as many rounds as its busiest line has units.
 * Example: in stage 40 rank 80 receives 5 results, and no other rank more than 3. Two of the 5 may come in stage 42,
 * where another rank receives 4 anyway: stage 40 then has 3 rounds in place of 5, and stage 42 has as many as before.
 *
 * Requires: stages for all units of a pass (stages_away.c).
 * Gives: no more rounds in any stage than before, and fewer in some.
 * Keeps: every result leaves after it was made and before it is needed; no line has more units or bytes in a stage than
 *     stages_away.c allows; no result comes later than the last of all did.
 * Cost: O(units) for each round that is saved, and some units for each that is moved.
 * Units: sizes are in tokens of KV.
 *
 * Why there is something to save: when the last keys have come, chains of partial results travel home. In each stage
 * they come to a few ranks, and to other ranks in the next stage. So each of these stages has many rounds, in which
 * most lines are idle. Most results need not come as early as they can, because some other result comes later.
 *
 * How a stage loses a round:
 * 1. Find its busiest lines. Each of them must lose a unit.
 * 2. For each of these lines, seek a result that may travel in another stage, in which its sender's line and its
 *    receiver's line both have fewer units than that stage's busiest line. Move it there.
 * 3. Such a result R may have to come before another result, into which it is merged, leaves. If that leaves R no
 *    stage, the units of the other result move to later stages first, if they can.
 */
#include "compiler/base/group.h"
#include "compiler/schedule/schedule_parts.h"
#include "compiler/schedule/schedule_tuning.h"

typedef struct moving {
    planning *x;
    const schedule *out;
    occupancy *o;
    fcp_pass pass;
    uint32_t end;            /* the last stage in which any result travels */
    const uint32_t *ready;
    returns *back;
    uint32_t *hop_of;        /* per unit of `back` */
    uint32_t *start, *units; /* the units that were in stage s at first: units[start[s]] to units[start[s + 1] - 1] */
    uint16_t *most;          /* per stage: units of the busiest line */
    uint32_t *busiest;       /* per stage: how many lines have so many */
    uint32_t *seen, looks;   /* per line: for which look at a stage it was counted; and how many there were */
} moving;

/* What goes back along a hop. */
typedef struct way {
    fcp_class cls;
    line_pair line;
    uint32_t units, *stage; /* of each unit, ascending */
} way;

static way way_of(const moving *s, uint32_t f) {
    const hop *h = &s->x->traffic->hops[f];
    const fcp_class cls = traffic_return(h, s->pass);
    return (way){cls, lines_of(h, cls), return_units(s->x->problem, h, cls), s->back->unit_stage + s->back->start[f]};
}

/* The stages in which the results of a hop may travel: *from to *to. */
static void find_window(const moving *s, uint32_t f, uint32_t *from, uint32_t *to) {
    const traffic *t = s->x->traffic;
    const hop *h = &t->hops[f];
    *from = s->ready[f];
    *to = h->parent == FCP_NONE ? s->end : s->back->first[h->parent] - result_delay(s->out, h);
    for (uint32_t c = f + 1; c < t->count && t->hops[c].block == h->block && t->hops[c].cls == h->cls; c++) {
        if (t->hops[c].parent != f) continue;
        const uint32_t made = s->back->last[c] + result_delay(s->out, &t->hops[c]);
        if (made > *from) *from = made;
    }
}

/* Finds the busiest lines of all stages. */
static void find_busiest(moving *s) {
    for (uint32_t line = 0; line < s->o->lines; line++) {
        const uint16_t *units = occupancy_units(s->o, line, 0);
        for (uint32_t stage = 0; stage <= s->end; stage++)
            if (units[stage] > s->most[stage]) s->most[stage] = units[stage];
    }
    for (uint32_t line = 0; line < s->o->lines; line++) {
        const uint16_t *units = occupancy_units(s->o, line, 0);
        for (uint32_t stage = 0; stage <= s->end; stage++) s->busiest[stage] += units[stage] == s->most[stage];
    }
}

/* Finds the busiest lines of a stage again, once none has as many units as the busiest had. */
static void find_next_busiest(moving *s, uint32_t stage) {
    while (!s->busiest[stage] && s->most[stage]) {
        s->most[stage]--;
        for (uint32_t line = 0; line < s->o->lines; line++)
            s->busiest[stage] += *occupancy_units(s->o, line, stage) == s->most[stage];
    }
}

/* Counts one unit more or less of a line in a stage. */
static void change_units(moving *s, uint32_t line, uint32_t stage, int by) {
    uint16_t *units = occupancy_units(s->o, line, stage);
    s->busiest[stage] -= *units == s->most[stage];
    *units = (uint16_t)(*units + by);
    s->busiest[stage] += *units == s->most[stage];
}

/* Adds the sizes of a way's units to their stages, or subtracts them, if they travel over net. */
static void change_size(moving *s, uint32_t f, const way *w, bool add) {
    const hop *h = &s->x->traffic->hops[f];
    for (uint32_t u = 0; h->fabric == FCP_NET && u < w->units; u++) {
        const uint32_t size = unit_size(s->x->problem, w->cls, unit_tokens(s->x->problem, h, w->cls, u));
        const uint32_t by = add ? size : -size;
        *occupancy_size(s->o, w->line.send, w->stage[u]) += by;
        *occupancy_size(s->o, w->line.receive, w->stage[u]) += by;
    }
}

/* Moves unit u to another stage, and sorts the way's units by stage again. Units may change places, because all but the
 * last have the same size. */
static void set_stage(moving *s, uint32_t f, const way *w, uint32_t u, uint32_t to) {
    const uint32_t lines[] = {w->line.send, w->line.receive};
    for (int i = 0; i < 2; i++) {
        change_units(s, lines[i], w->stage[u], -1);
        change_units(s, lines[i], to, 1);
    }
    change_size(s, f, w, false);
    for (; u && w->stage[u - 1] > to; u--) w->stage[u] = w->stage[u - 1];
    for (; u + 1 < w->units && w->stage[u + 1] < to; u++) w->stage[u] = w->stage[u + 1];
    w->stage[u] = to;
    change_size(s, f, w, true);
    s->back->first[f] = w->stage[0];
    s->back->last[f] = w->stage[w->units - 1];
}

/* May one more unit of this size use a line in a stage without making that stage longer? */
static bool is_free(const moving *s, uint32_t line, uint32_t stage, uint32_t size) {
    return *occupancy_units(s->o, line, stage) < s->most[stage] && occupancy_has_room(s->o, line, stage, size);
}

static bool are_free(const moving *s, line_pair line, uint32_t stage, uint32_t size) {
    return is_free(s, line.send, stage, size) && is_free(s, line.receive, stage, size);
}

/* Moves a unit of hop f from `stage` to the nearest stage, not before `least`, in which both of its lines are free.
 * deep: how many other results may move first, each for the sake of the one before. False: the unit stays. */
static bool move_unit(moving *s, uint32_t f, uint32_t stage, uint32_t least, uint32_t deep) {
    const problem *p = s->x->problem;
    const hop *h = &s->x->traffic->hops[f];
    const way w = way_of(s, f);
    uint32_t u = 0, from, to;
    while (u < w.units && w.stage[u] != stage) u++;
    if (u == w.units) return false; /* it has moved */
    const uint32_t size = unit_size(p, w.cls, unit_tokens(p, h, w.cls, 0));
    find_window(s, f, &from, &to);
    if (from < least) from = least;
    const uint32_t last = to + (deep && h->parent != FCP_NONE ? LATER_STAGES : 0);
    for (uint32_t apart = 1; stage >= from + apart || stage + apart <= last; apart++)
        for (int later = 0; later < 2; later++) {
            if (later ? stage + apart > last : stage < from + apart) continue;
            const uint32_t at = later ? stage + apart : stage - apart;
            if (at > s->end || !are_free(s, w.line, at, size)) continue;
            if (at > to) {
                const way up = way_of(s, h->parent);
                const uint32_t needed = at + result_delay(s->out, h);
                while (up.stage[0] < needed && move_unit(s, h->parent, up.stage[0], needed, deep - 1)) continue;
                if (up.stage[0] < needed || !are_free(s, w.line, at, size)) continue;
            }
            set_stage(s, f, &w, u, at);
            return true;
        }
    return false;
}

/* Does each of the busiest lines of a stage carry a result, so that it can lose a unit? */
static bool all_have_results(moving *s, uint32_t stage) {
    const uint32_t most = s->most[stage];
    uint32_t found = 0;
    s->looks++;
    for (uint32_t i = s->start[stage]; i < s->start[stage + 1]; i++) {
        if (s->back->unit_stage[s->units[i]] != stage) continue;
        const way w = way_of(s, s->hop_of[s->units[i]]);
        const uint32_t lines[] = {w.line.send, w.line.receive};
        for (int k = 0; k < 2; k++) {
            if (*occupancy_units(s->o, lines[k], stage) != most || s->seen[lines[k]] == s->looks) continue;
            s->seen[lines[k]] = s->looks;
            found++;
        }
    }
    return found == s->busiest[stage];
}

/* Saves rounds of a stage, one at a time, while it can. */
static void save_rounds(moving *s, uint32_t stage) {
    while (s->most[stage] && s->busiest[stage] <= BUSIEST_LINES) {
        if (!all_have_results(s, stage)) return;
        for (uint32_t i = s->start[stage]; s->busiest[stage] && i < s->start[stage + 1]; i++) {
            const uint32_t f = s->hop_of[s->units[i]];
            const way w = way_of(s, f);
            if (*occupancy_units(s->o, w.line.send, stage) == s->most[stage] ||
                *occupancy_units(s->o, w.line.receive, stage) == s->most[stage])
                move_unit(s, f, stage, 0, MOVES_IN_A_ROW);
        }
        if (s->busiest[stage]) return;
        find_next_busiest(s, stage);
    }
}

fcp_code fewer_rounds(planning *x, const schedule *out, occupancy *o, fcp_pass pass, uint32_t first,
                      const uint32_t *ready, returns *back) {
    const traffic *t = x->traffic;
    arena *scratch = &x->scratch;
    moving s = {.x = x, .out = out, .o = o, .pass = pass, .ready = ready, .back = back};
    uint32_t units = 0;
    for (uint32_t f = first; f < t->count; f++) {
        units += return_units(x->problem, &t->hops[f], traffic_return(&t->hops[f], pass));
        if (back->last[f] > s.end) s.end = back->last[f];
    }
    s.hop_of = ARENA_NEW(scratch, uint32_t, units + (size_t)1);
    s.units = ARENA_NEW(scratch, uint32_t, units + (size_t)1);
    s.start = ARENA_NEW(scratch, uint32_t, s.end + (size_t)3);
    s.most = ARENA_ZNEW(scratch, uint16_t, s.end + (size_t)1);
    s.busiest = ARENA_ZNEW(scratch, uint32_t, s.end + (size_t)1);
    s.seen = ARENA_ZNEW(scratch, uint32_t, o->lines);
    if (!s.hop_of || !s.units || !s.start || !s.most || !s.busiest || !s.seen) return FCP_E_NO_MEMORY;
    for (uint32_t f = first; f < t->count; f++) {
        const way w = way_of(&s, f);
        for (uint32_t u = 0; u < w.units; u++) s.hop_of[back->start[f] + u] = f;
    }
    find_busiest(&s);
    if (!group_by(back->unit_stage, sizeof *back->unit_stage, units, s.end + 1, s.start, s.units, x->stop))
        return FCP_E_INTERRUPTED;
    for (uint32_t stage = s.end + 1; stage-- > 0;) {
        if (planning_stopped(x)) return FCP_E_INTERRUPTED;
        save_rounds(&s, stage);
    }
    return FCP_OK;
}
