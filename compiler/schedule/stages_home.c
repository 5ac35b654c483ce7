/* stages_home.c: stages where every tile runs at the home of its queries.
 *
 * Requires: traffic; for tiles, the stages that even_stages.c chose.
 * Gives: the order of independent rounds; when each block arrives; the work of each stage.
 * Keeps: independent units take exactly Delta rounds on each fabric.
 * Cost: that of the colouring (colour.c), then linear.
 *
 * *Independent* units leave from home and wait for no other unit. Their rounds are those of a colouring. Round i
 * belongs to stage 1 + i / coalesce: with coalesce = 4, rounds 0 to 3 are in stage 1. Colours may be put in any order.
 * On each fabric those go first that bring what most work needs, also the work of ranks to which it is passed on. So
 * work that could run finds its data early, and what must travel home is done early.
 */
#include "compiler/base/sort.h"
#include "compiler/planning/pair.h"
#include "compiler/schedule/rounds.h"
#include "compiler/schedule/schedule_parts.h"

/* Colours the independent units of one fabric, and puts the colours in order: fills unit_round. */
static fcp_code colour_independent(const builder *b, fcp_fabric fabric, uint32_t *out_rounds) {
    const traffic *t = b->t;
    edges units, *e = &units;
    if (!edges_new(e, b->scratch, b->units)) return FCP_E_NO_MEMORY;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x) || x->fabric != fabric) continue;
        for (uint32_t u = 0; u < x->units; u++)
            edges_add(e, x->src, x->dst, unit_size(b->p, x->cls, unit_tokens(b->p, x, (fcp_class)x->cls, u)));
    }
    fcp_code code = edges_colour(e, b->x);
    if (code) return code;
    *out_rounds = e->colours;

    uint64_t *work = ARENA_ZNEW(b->scratch, uint64_t, e->colours + (size_t)1);
    uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, e->colours + (size_t)1);
    uint64_t *room = ARENA_NEW(b->scratch, uint64_t, e->colours + (size_t)1);
    uint32_t *position = ARENA_NEW(b->scratch, uint32_t, e->colours + (size_t)1);
    if (!work || !keys || !room || !position) return FCP_E_NO_MEMORY;
    uint32_t at = 0;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x) || x->fabric != fabric) continue;
        for (uint32_t u = 0; u < x->units; u++) work[e->colour[at++]] += x->units == 1 ? x->work : x->work / x->units;
    }
    by_falling_work(work, e->colours, keys, room);
    for (uint32_t i = 0; i < e->colours; i++) position[(uint32_t)keys[i]] = i;
    at = 0;
    for (uint32_t f = 0; f < t->count; f++) {
        const hop *x = &t->hops[f];
        if (!hop_is_independent(x) || x->fabric != fabric) continue;
        uint32_t *round = b->out->unit_round + b->out->unit_start[f];
        for (uint32_t u = 0; u < x->units; u++) round[u] = position[e->colour[at++]];
    }
    return FCP_OK;
}

static fcp_code colour_on(planning *x, const builder *of, fcp_fabric fabric) {
    const builder b = builder_of(of, x);
    return colour_independent(&b, fabric, &b.out->independent[fabric]);
}
static fcp_code colour_net(planning *x, void *given) { return colour_on(x, given, FCP_NET); }
static fcp_code colour_local(planning *x, void *given) { return colour_on(x, given, FCP_LOCAL); }

fcp_code home_rounds(builder *b) {
    return pair_make(b->x, b->units >= PAIR_FROM, (pair_piece){colour_local, b}, (pair_piece){colour_net, b});
}

/* A hop's units differ at most in size, so they take the hop's rounds in ascending order. */
fcp_code home_arrivals(builder *b) {
    const traffic *t = b->t;
    schedule *out = b->out;
    for (uint32_t f = 0; f < t->count; f++) { /* a parent comes before its forwards */
        const hop *x = &t->hops[f];
        uint32_t *slot = out->unit_round + out->unit_start[f];
        if (!hop_is_independent(x)) {
            out->first_stage[f] = out->last_stage[f] = out->last_stage[x->parent] + 1;
            continue;
        }
        if (x->units > 1) {
            uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, 2 * (size_t)x->units);
            if (!keys) return FCP_E_NO_MEMORY;
            for (uint32_t u = 0; u < x->units; u++) keys[u] = slot[u];
            sort_u64(keys, keys + x->units, x->units);
            for (uint32_t u = 0; u < x->units; u++) slot[u] = (uint32_t)keys[u];
        }
        out->first_stage[f] = 1 + slot[0] / b->coalesce;
        out->last_stage[f] = 1 + slot[x->units - 1] / b->coalesce;
    }
    return FCP_OK;
}

uint64_t home_tiles(const builder *b, rank_rows *here) {
    const uint32_t *hop_of = b->t->tile_kv;
    const uint64_t *pairs = b->p->tile_pairs;
    uint64_t total = 0, *load = here->load;
    for (uint32_t i = 0; i < here->count; i++) {
        row *r = &here->rows[here->which[i]];
        uint64_t local = 0, remote = 0;
        uint32_t first = FCP_NONE;
        for (uint32_t t = r->first; t < r->end; t++) {
            uint32_t f = hop_of[t];
            if (f == FCP_NONE) {
                local += pairs[t];
                continue;
            }
            uint32_t s = here->stage_of[t];
            load[s] += pairs[t];
            remote += pairs[t];
            if (s < first) first = s;
        }
        r->local_stage = first;
        r->local = local;
        r->work = local + remote;
        total += r->work;
        if (first != FCP_NONE) load[first] += local;
    }
    return total;
}
