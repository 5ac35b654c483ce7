/* fewer_rounds.c: moves results out of stages in which few lines are busy.
 *
 * Requires: stages for all units of a pass (stages_away.c).
 * Gives: no more rounds in any stage than before, and in some fewer.
 * Keeps: every result leaves after it was made and before it is needed; no line has more units or bytes in a stage than
 *     stages_away.c allows; no result comes later than the last of all did.
 * Cost: O(units) for each round that is saved, and some units for each that is moved.
 * Units: sizes are in tokens of KV.
 *
 * Why: when the last keys have come, results are on their way home, each after a chain of partial results. They come to
 * few ranks, and in each stage to others. So all those stages have as many rounds as one busy rank needs, and the lines
 * of the others are idle. Most results need not come as early as they can: some other result comes later.
 *
 * How: a stage has one round less if each of its busiest lines has a unit less. So for each of these lines a result is
 * looked for that may travel in another stage, where both of its lines have fewer units than the busiest has. A result
 * that is merged on its way has little time until the merged one leaves; where that is too little, the units of the
 * merged one move first, if they can.
 */
#include "compiler/schedule/fewer_rounds.h"

#include "compiler/base/group.h"

enum {
    LINES = 32, /* a stage with more busiest lines than this keeps its rounds: somebody will have nothing to move */
    FAR = 3,    /* so many stages later a result may leave for whose sake another one moves */
    DEEP = 2    /* so many of these in a row */
};

typedef struct squeeze {
    planning *x;
    const schedule *out;
    levels *l;
    fcp_pass pass;
    uint32_t end;            /* the last stage in which any result travels */
    const uint32_t *ready;
    returns *back;
    uint32_t *hop_of;        /* per unit of `back` */
    uint32_t *start, *units; /* the units that were in stage s at first: units[start[s]] to units[start[s + 1] - 1] */
    uint8_t *most;           /* per stage: units of the busiest line */
    uint32_t *busiest;       /* per stage: how many lines have so many */
    uint32_t *seen, looks;   /* per line: for which look at a stage it was counted; and how many there were */
} squeeze;

/* What goes back along a hop. */
typedef struct way {
    fcp_class cls;
    uint32_t send, receive; /* lines */
    uint32_t units, *stage; /* of each unit, ascending */
} way;

static way way_of(const squeeze *s, uint32_t f) {
    const hop *h = &s->x->traffic->hops[f];
    const fcp_class cls = traffic_return(h, s->pass);
    return (way){cls, levels_line(h->dst, FCP_SEND, h->fabric), levels_line(h->src, FCP_RECV, h->fabric),
                 return_units(s->x->problem, h, cls), s->back->unit_stage + s->back->start[f]};
}

/* The stages in which the results of a hop may travel: *from to *to. */
static void find_window(const squeeze *s, uint32_t f, uint32_t *from, uint32_t *to) {
    const traffic *t = s->x->traffic;
    const hop *h = &t->hops[f];
    *from = s->ready[f];
    *to = h->parent == FCP_NONE ? s->end : s->back->first[h->parent] - levels_after(s->out, h);
    for (uint32_t c = f + 1; c < t->count && t->hops[c].block == h->block && t->hops[c].cls == h->cls; c++) {
        if (t->hops[c].parent != f) continue;
        const uint32_t made = s->back->last[c] + levels_after(s->out, &t->hops[c]);
        if (made > *from) *from = made;
    }
}

/* Finds the busiest lines of all stages. */
static void find_busiest(squeeze *s) {
    for (uint32_t line = 0; line < s->l->lines; line++) {
        const uint8_t *units = levels_units(s->l, line, 0);
        for (uint32_t stage = 0; stage <= s->end; stage++)
            if (units[stage] > s->most[stage]) s->most[stage] = units[stage];
    }
    for (uint32_t line = 0; line < s->l->lines; line++) {
        const uint8_t *units = levels_units(s->l, line, 0);
        for (uint32_t stage = 0; stage <= s->end; stage++) s->busiest[stage] += units[stage] == s->most[stage];
    }
}

/* No line of a stage has as many units as the busiest had. */
static void find_next_busiest(squeeze *s, uint32_t stage) {
    while (!s->busiest[stage] && s->most[stage]) {
        s->most[stage]--;
        for (uint32_t line = 0; line < s->l->lines; line++)
            s->busiest[stage] += *levels_units(s->l, line, stage) == s->most[stage];
    }
}

/* A line has a unit more or less in a stage. */
static void change_units(squeeze *s, uint32_t line, uint32_t stage, int by) {
    uint8_t *units = levels_units(s->l, line, stage);
    s->busiest[stage] -= *units == s->most[stage];
    *units = (uint8_t)(*units + by);
    s->busiest[stage] += *units == s->most[stage];
}

/* Adds what the units of a way have over net, or takes it away. */
static void change_size(squeeze *s, uint32_t f, const way *w, bool add) {
    const hop *h = &s->x->traffic->hops[f];
    for (uint32_t u = 0; h->fabric == FCP_NET && u < w->units; u++) {
        const uint32_t size = unit_size(s->x->problem, w->cls, unit_tokens(s->x->problem, h, w->cls, u));
        const uint32_t by = add ? size : -size;
        *levels_size(s->l, w->send, w->stage[u]) += by;
        *levels_size(s->l, w->receive, w->stage[u]) += by;
    }
}

/* Gives unit u another stage. All but the last have the same size, so they may change places. */
static void set_stage(squeeze *s, uint32_t f, const way *w, uint32_t u, uint32_t to) {
    const uint32_t lines[] = {w->send, w->receive};
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

/* May a unit of this way, of this size, travel in a stage without making that stage longer? */
static bool is_free(const squeeze *s, const way *w, uint32_t stage, uint32_t size) {
    const uint8_t most = s->most[stage];
    return *levels_units(s->l, w->send, stage) < most && *levels_units(s->l, w->receive, stage) < most &&
           levels_has_room(s->l, w->send, stage, size) && levels_has_room(s->l, w->receive, stage, size);
}

/* Moves a unit of hop f that is in `stage` to another one, not before `least`: the nearest that is free. deep: so many
 * results may move first in a row. False: it stays. */
static bool move_unit(squeeze *s, uint32_t f, uint32_t stage, uint32_t least, uint32_t deep) {
    const problem *p = s->x->problem;
    const hop *h = &s->x->traffic->hops[f];
    const way w = way_of(s, f);
    uint32_t u = 0, from, to;
    while (u < w.units && w.stage[u] != stage) u++;
    if (u == w.units) return false; /* it has moved */
    const uint32_t size = unit_size(p, w.cls, unit_tokens(p, h, w.cls, 0));
    find_window(s, f, &from, &to);
    if (from < least) from = least;
    const uint32_t last = to + (deep && h->parent != FCP_NONE ? FAR : 0);
    for (uint32_t apart = 1; stage >= from + apart || stage + apart <= last; apart++)
        for (int later = 0; later < 2; later++) {
            if (later ? stage + apart > last : stage < from + apart) continue;
            const uint32_t at = later ? stage + apart : stage - apart;
            if (at > s->end || !is_free(s, &w, at, size)) continue;
            if (at > to) {
                const way up = way_of(s, h->parent);
                const uint32_t needed = at + levels_after(s->out, h);
                while (up.stage[0] < needed && move_unit(s, h->parent, up.stage[0], needed, deep - 1)) continue;
                if (up.stage[0] < needed || !is_free(s, &w, at, size)) continue;
            }
            set_stage(s, f, &w, u, at);
            return true;
        }
    return false;
}

/* Do results use each of the busiest lines of a stage? */
static bool all_have_results(squeeze *s, uint32_t stage) {
    const uint32_t most = s->most[stage];
    uint32_t found = 0;
    s->looks++;
    for (uint32_t i = s->start[stage]; i < s->start[stage + 1]; i++) {
        if (s->back->unit_stage[s->units[i]] != stage) continue;
        const way w = way_of(s, s->hop_of[s->units[i]]);
        const uint32_t lines[] = {w.send, w.receive};
        for (int k = 0; k < 2; k++) {
            if (*levels_units(s->l, lines[k], stage) != most || s->seen[lines[k]] == s->looks) continue;
            s->seen[lines[k]] = s->looks;
            found++;
        }
    }
    return found == s->busiest[stage];
}

/* Takes rounds away from a stage while it can. */
static void squeeze_stage(squeeze *s, uint32_t stage) {
    while (s->most[stage] && s->busiest[stage] <= LINES) {
        if (!all_have_results(s, stage)) return;
        for (uint32_t i = s->start[stage]; s->busiest[stage] && i < s->start[stage + 1]; i++) {
            const uint32_t f = s->hop_of[s->units[i]];
            const way w = way_of(s, f);
            if (*levels_units(s->l, w.send, stage) == s->most[stage] ||
                *levels_units(s->l, w.receive, stage) == s->most[stage])
                move_unit(s, f, stage, 0, DEEP);
        }
        if (s->busiest[stage]) return;
        find_next_busiest(s, stage);
    }
}

fcp_code squeeze_returns(planning *x, const schedule *out, levels *l, fcp_pass pass, uint32_t first,
                         const uint32_t *ready, returns *back) {
    const traffic *t = x->traffic;
    arena *scratch = &x->scratch;
    squeeze s = {.x = x, .out = out, .l = l, .pass = pass, .ready = ready, .back = back};
    uint32_t units = 0;
    for (uint32_t f = first; f < t->count; f++) {
        units += return_units(x->problem, &t->hops[f], traffic_return(&t->hops[f], pass));
        if (back->last[f] > s.end) s.end = back->last[f];
    }
    s.hop_of = ARENA_NEW(scratch, uint32_t, units + (size_t)1);
    s.units = ARENA_NEW(scratch, uint32_t, units + (size_t)1);
    s.start = ARENA_NEW(scratch, uint32_t, s.end + (size_t)3);
    s.most = ARENA_ZNEW(scratch, uint8_t, s.end + (size_t)1);
    s.busiest = ARENA_ZNEW(scratch, uint32_t, s.end + (size_t)1);
    s.seen = ARENA_ZNEW(scratch, uint32_t, l->lines);
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
        squeeze_stage(&s, stage);
    }
    return FCP_OK;
}
