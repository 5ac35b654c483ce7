/* reshuffle.c: compares the caller's layout with the homes, and says how many tokens of which block move between which
 * ranks.
 *
 * Requires: a problem with its blocks; a placement. runtime/plan/layout.h states the layouts.
 * Gives: bundles. A bundle has all tokens that the caller holds at one rank and whose home is one rank, the same or
 *     another; and the number of them in each block. Every token of every block is in one bundle.
 * Cost: O(pieces + runs of the layout).
 */
#include "compiler/schedule/reshuffle.h"
#include "runtime/plan/sides.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "runtime/plan/enum_names.h"
#include "runtime/plan/layout.h"

/* Some tokens of a block, all of one bundle. Its home is the home at hand, and key = side * ranks + caller. */
typedef struct found {
    uint32_t key, block, tokens;
} found;

typedef struct state {
    planning *x;
    const problem *p;
    reshuffle *out;
    bool planned;
    size_t bundle_room, content_room, content_count;
    /* of the home at hand */
    found *found;
    size_t count, room;
    /* with layout `planned` and several ranges of heads: per block, the block of the first range with the same
     * tokens */
    uint32_t *first_twin;
    uint32_t *newest, *entries; /* per key: its newest entry in `found`, + 1; how many it has there. 0 between homes */
    uint64_t *met;              /* the keys that have entries, and room to sort them */
    size_t met_count;
} state;

/* Makes room for `runs` more entries of `found`. */
static fcp_code reserve(state *s, size_t runs) {
    while (s->room - s->count < runs) {
        s->found = arena_grow(&s->x->scratch, s->found, s->room, &s->room, sizeof *s->found);
        if (!s->found) return FCP_E_NO_MEMORY;
    }
    return s->count + runs < UINT32_MAX / 4 ? FCP_OK : FCP_E_PLAN_SIZE;
}

/* Adds tokens of a block to `found`, where there is room. */
static inline void add_tokens(state *s, uint32_t caller, fcp_side side, uint32_t block, uint32_t tokens) {
    uint32_t key = (uint32_t)side * s->p->ranks + caller, newest = s->newest[key];
    if (newest && s->found[newest - 1].block == block) {
        s->found[newest - 1].tokens += tokens;
        return;
    }
    if (!newest) s->met[s->met_count++] = key;
    s->found[s->count++] = (found){key, block, tokens};
    s->newest[key] = (uint32_t)s->count;
    s->entries[key]++;
}

/* Adds the tokens of a block to `found`, by the ranks that hold them for the caller. */
static fcp_code add_block(state *s, fcp_walk walks[FCP_SIDES], uint32_t block, uint32_t home) {
    const problem *p = s->p;
    const fcp_block *b = &p->blocks[block];
    fcp_side side = fcp_side_of(b);
    fcp_walk *walk = &walks[side];
    if (s->planned) {
        uint32_t caller = s->first_twin ? s->x->placement->home[s->first_twin[block]] : home;
        fcp_code code = reserve(s, 1);
        if (code) return code;
        if (caller != home) s->out->moved[block] = true;
        add_tokens(s, caller, side, block, b->tokens);
        return FCP_OK;
    }
    bool moved = false;
    for (uint32_t i = 0; i < b->pieces; i++) {
        const fcp_piece *piece = &p->pieces[b->first_piece + i];
        uint64_t at = s->p->rule.offsets[side][piece->sequence] + piece->start, end = at + piece->length;
        fcp_walk_to(walk, piece->sequence, piece->start);
        fcp_walk w = *walk; /* a copy, which the loop may keep in registers */
        fcp_code code = reserve(s, w.total < w.parts ? piece->length : piece->length / w.whole + 2);
        if (code) return code;
        for (;;) {
            uint32_t rank = fcp_walk_rank(&w);
            uint64_t to = fcp_walk_end(&w) < end ? fcp_walk_end(&w) : end;
            add_tokens(s, rank, side, block, (uint32_t)(to - at));
            moved |= rank != home;
            if ((at = to) == end) break;
            fcp_walk_next(&w);
        }
        *walk = w;
    }
    s->out->moved[block] = moved;
    return FCP_OK;
}

/* A plan has at most this many bundles. Each is moved in and out of both passes, and planning takes about a kilobyte
 * for it. Only a layout in which most of several thousand ranks hold tokens for most others has more. */
enum { BUNDLES_MAX = 1 << 24 };

/* Makes the bundles of a home from `found`, and empties that. */
static fcp_code make_bundles(state *s, uint32_t home) {
    reshuffle *out = s->out;
    size_t first = s->content_count, total = first + s->count;
    while (s->content_room < total) {
        out->contents =
            arena_grow(&s->x->work, out->contents, s->content_room, &s->content_room, sizeof *out->contents);
        if (!out->contents) return FCP_E_NO_MEMORY;
    }
    if (total > UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    sort_u64(s->met, s->met + s->met_count, s->met_count);
    uint32_t *at = s->newest; /* from here on, per key: its bundle */
    for (size_t i = 0; i < s->met_count; i++) {
        uint32_t key = (uint32_t)s->met[i];
        out->bundles = arena_grow(&s->x->work, out->bundles, out->count, &s->bundle_room, sizeof *out->bundles);
        if (!out->bundles) return FCP_E_NO_MEMORY;
        out->bundles[out->count] = (bundle){.caller = key % s->p->ranks, .home = home, .side = key / s->p->ranks,
                                            .first = (uint32_t)first};
        first += s->entries[key];
        s->entries[key] = 0;
        at[key] = out->count++;
    }
    for (size_t i = 0; i < s->count; i++) {
        bundle *b = &out->bundles[at[s->found[i].key]];
        out->contents[b->first + b->count++] = (content){s->found[i].block, s->found[i].tokens};
        b->tokens += s->found[i].tokens;
    }
    s->content_count = total;
    for (size_t i = 0; i < s->met_count; i++) {
        const bundle *b = &out->bundles[at[s->met[i]]];
        if (b->caller != home) out->units += (b->tokens + s->p->unit - 1) / s->p->unit;
        at[s->met[i]] = 0;
    }
    s->count = s->met_count = 0;
    return out->count <= BUNDLES_MAX && out->units < UINT32_MAX / 8 ? FCP_OK : FCP_E_PLAN_SIZE;
}

/* Checks that no rank holds more tokens for the caller than 31 bits count. */
static fcp_code check_tokens(state *s) {
    const problem *p = s->p;
    uint64_t *tokens = ARENA_ZNEW(&s->x->scratch, uint64_t, 3 * (size_t)p->ranks);
    if (!tokens) return FCP_E_NO_MEMORY;
    for (int side = 0; side < (p->split ? FCP_SIDES : 1); side++) {
        if (!s->planned) fcp_rule_tokens(&s->p->rule, (fcp_side)side, tokens + p->ranks, tokens);
        else memset(tokens, 0, p->ranks * sizeof *tokens);
        for (uint32_t b = 0; s->planned && b < p->range_blocks; b++)
            if (problem_holds(p, b, (fcp_side)side)) tokens[s->x->placement->home[b]] += p->blocks[b].tokens;
        for (uint32_t r = 0; r < p->ranks; r++)
            if (tokens[r] > INT32_MAX) return FCP_E_PLAN_SIZE;
    }
    return FCP_OK;
}

static fcp_code build(state *s) {
    planning *x = s->x;
    const problem *p = s->p;
    arena *scratch = &x->scratch;
    const uint32_t *home = x->placement->home;
    uint32_t *start, *blocks;
    s->newest = ARENA_ZNEW(scratch, uint32_t, FCP_SIDES * (size_t)p->ranks);
    s->entries = ARENA_ZNEW(scratch, uint32_t, FCP_SIDES * (size_t)p->ranks);
    s->met = ARENA_NEW(scratch, uint64_t, (size_t)2 * FCP_SIDES * p->ranks);
    s->out->moved = ARENA_ZNEW(&x->work, bool, p->block_count);
    if (!s->newest || !s->entries || !s->met || !s->out->moved) return FCP_E_NO_MEMORY;
    if (s->planned && p->twin) {
        if (!(s->first_twin = ARENA_NEW(scratch, uint32_t, p->block_count))) return FCP_E_NO_MEMORY;
        for (uint32_t b = 0; b < p->range_blocks; b++)
            for (uint32_t twin = b; twin != FCP_NONE; twin = problem_twin(p, twin)) s->first_twin[twin] = b;
    }
    fcp_code code = check_tokens(s);
    if (!code) code = group_new(scratch, home, sizeof *home, p->block_count, p->ranks, x->stop, &start, &blocks);
    if (code) return code;
    fcp_walk walks[FCP_SIDES] = {fcp_walk_of(&s->p->rule, FCP_QUERIES), fcp_walk_of(&s->p->rule, FCP_KEYS)};
    for (uint32_t r = 0; !code && r < p->ranks; r++) {
        for (uint32_t i = start[r]; !code && i < start[r + 1]; i++) {
            if (planning_stopped(x)) return FCP_E_INTERRUPTED; /* a block may be in many pieces and runs */
            code = add_block(s, walks, blocks[i], r);
        }
        if (!code) code = make_bundles(s, r);
    }
    return code;
}

void reshuffle_hint_group(const planning *x) {
    diag_hint(x->d, "layout = %s(group = N), over fewer ranks, has each rank exchange tokens with fewer others",
              fcp_layout_names[x->program->layout]);
}

/* Says what is too large: the number of bundles, or what they are made of. */
static fcp_code say_too_large(const planning *x, const reshuffle *out) {
    if (out->count <= BUNDLES_MAX)
        return planning_fail(x, FCP_E_PLAN_SIZE, x->program->at[AT_LENGTHS],
                             "the batch is too large for a plan of so few ranks: the layout has more than 2^31 tokens "
                             "on a rank, or 2^30 parts of blocks");
    const fcp_code code = planning_fail(
        x, FCP_E_PLAN_SIZE, x->program->at[AT_LAYOUT],
        "%s over %u ranks: tokens would move in more than %d bundles, because most ranks hold tokens for most others",
        fcp_layout_names[x->program->layout], x->problem->rule.group, BUNDLES_MAX);
    reshuffle_hint_group(x);
    return code;
}

fcp_code reshuffle_build(planning *x) {
    const problem *p = x->problem;
    reshuffle *out = ARENA_ZNEW(&x->work, reshuffle, 1);
    if (!out) return FCP_E_NO_MEMORY;
    state s = {.x = x, .p = p, .out = out, .planned = p->program->layout == FCP_LAYOUT_PLANNED};
    fcp_code code = build(&s);
    if (code == FCP_E_PLAN_SIZE) return say_too_large(x, out);
    if (!code) x->reshuffle = out;
    return code;
}
