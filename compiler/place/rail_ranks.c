/* rail_ranks.c: on a network of rails, chooses which node is which, and which GPU of its node each rank is.
 *
 * Requires: homes that are the strategy's choice, and a rank for each tile.
 * Gives: the same placement with nodes, and the ranks of each node, named differently. Who shares a node still does.
 * Cost: O(tiles + runs of the layout + nodes^2) for each sweep over nodes, and O(what travels + nodes x gpus^2) for
 *     each sweep over ranks.
 * Units: bytes, of all passes of the plan.
 *
 * First nodes change names, two at a time, as long as more of the tokens that the caller holds are then at home in
 * their node. Those leave neither node nor rail.
 *
 * On rails GPU i of a node has fast ways to GPUs i of the other nodes alone. So what goes from GPU 2 to a reader that
 * is GPU 5 takes a hop inside a node besides. What ranks compute does not depend on how they are numbered inside
 * their node, and so neither does what they send to whom. So ranks are numbered such that most bytes go between equal
 * numbers: of K, V, Q and results, and of the tokens that the caller holds, whose ranks stay.
 *
 * Example: two nodes of two. Rank 0 has a block that rank 3 reads, and rank 1 one that rank 2 reads. If ranks 2 and 3
 * change names, both blocks stay on their rails.
 *
 * One node after the other, while the others stay: what member m of the node has in common with all ranks number i
 * elsewhere is its gain in place i. Two members change places while that adds up to more. Each exchange raises the sum
 * over all nodes, so it ends; sweeps are bounded besides.
 */
#include <string.h>

#include "compiler/base/group.h"
#include "compiler/place/place.h"
#include "compiler/problem/problem.h"
#include "runtime/plan/layout.h"

enum { SWEEPS = 16 };

/* What travels between a rank and another one of another node. */
typedef struct tie {
    uint32_t from, to;
    uint64_t bytes;
} tie;

typedef struct rails {
    planning *x;
    uint32_t *home, *exec;   /* exec: NULL: at home */
    uint32_t gpus;
    tie *ties;
    uint32_t count;
    size_t room;
    uint64_t *near;          /* [node * nodes + other]: what its homes have from callers of a node; NULL: counted */
    uint64_t *called;        /* [rank * gpus + i]: what it has from callers number i of other nodes */
    uint32_t *seen;          /* per rank: the last block that it was found to need, + 1 */
    uint32_t *place;         /* per rank: its number in its node */
    uint32_t *start, *of;    /* the ties of a rank: of[start[r]] on; a tie is its number * 2 + which end is elsewhere */
    uint64_t *gain;          /* [member * gpus + i], of the node at hand */
} rails;

static uint32_t node_of(const rails *s, uint32_t rank) { return rank / s->gpus; }

static fcp_code add_tie(rails *s, uint32_t home, uint32_t reader, uint32_t block, uint64_t bytes) {
    if (node_of(s, home) == node_of(s, reader) || s->seen[reader] == block + 1) return FCP_OK;
    s->seen[reader] = block + 1;
    if (s->count == s->room && !(s->ties = arena_grow(&s->x->scratch, s->ties, s->count, &s->room, sizeof *s->ties)))
        return FCP_E_NO_MEMORY;
    if (s->count == UINT32_MAX / 4) return FCP_E_PLAN_SIZE;
    s->ties[s->count++] = (tie){home, reader, bytes};
    return FCP_OK;
}

static uint32_t exec_of(const rails *s, uint32_t tile) {
    return s->exec ? s->exec[tile] : s->home[s->x->problem->tile_q[tile]];
}

/* Bytes of a token, there and back, in all passes. */
static uint64_t bytes_of(const rails *s, const fcp_problem *facts, fcp_class there, const fcp_class back[FCP_PASSES]) {
    uint64_t bytes = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!s->x->program->passes[pass]) continue;
        bytes += fcp_class_bytes(facts, there, (fcp_pass)pass);
        if (back[pass] != FCP_CLASSES) bytes += fcp_class_bytes(facts, back[pass], (fcp_pass)pass);
    }
    return bytes;
}

/* Who reads which keys, and who computes which rows. */
static fcp_code tie_readers(rails *s, const fcp_problem *facts) {
    const problem *p = s->x->problem;
    const uint64_t kv = bytes_of(s, facts, FCP_KV, (fcp_class[]){FCP_CLASSES, FCP_DKV});
    const uint64_t q = bytes_of(s, facts, FCP_Q, (fcp_class[]){FCP_STATE, FCP_DQ});
    uint32_t *start = ARENA_NEW(&s->x->scratch, uint32_t, p->block_count + (size_t)2);
    uint32_t *tile = ARENA_NEW(&s->x->scratch, uint32_t, p->tile_count + (size_t)1);
    fcp_code code = start && tile ? FCP_OK : FCP_E_NO_MEMORY;
    if (code) return code;
    if (!group_by(p->tile_k, sizeof *p->tile_k, p->tile_count, p->block_count, start, tile, s->x->stop))
        return FCP_E_INTERRUPTED;
    for (uint32_t b = 0; b < p->block_count && !code; b++)
        for (uint32_t i = start[b]; i < start[b + 1] && !code; i++)
            code = add_tie(s, s->home[b], exec_of(s, tile[i]), b, p->blocks[b].tokens * kv);
    memset(s->seen, 0, p->ranks * sizeof *s->seen);
    for (uint32_t t = 0; t < p->tile_count && !code && s->exec; t++) {
        const uint32_t b = p->tile_q[t];
        code = add_tie(s, s->home[b], s->exec[t], b, p->blocks[b].tokens * q);
    }
    return code;
}

/* Which rank of the caller holds the tokens of a piece? */
static void tie_piece(rails *s, fcp_walk *walk, const fcp_piece *piece, uint32_t home, uint64_t each) {
    const uint64_t at = s->x->problem->rule.offsets[walk->side][piece->sequence] + piece->start;
    const uint64_t end = at + piece->length;
    fcp_walk_to(walk, piece->sequence, piece->start);
    for (uint64_t from = at, to; from < end; from = to) {
        const uint32_t caller = fcp_walk_rank(walk);
        to = fcp_walk_end(walk) < end ? fcp_walk_end(walk) : end;
        const uint32_t node = node_of(s, home), other = node_of(s, caller);
        if (s->near) s->near[(size_t)node * s->x->program->nodes + other] += (to - from) * each;
        else if (node != other)
            s->called[(size_t)home * s->gpus + caller % s->gpus] += (to - from) * each;
        if (to < end) fcp_walk_next(walk);
    }
}

static fcp_code tie_callers(rails *s, const fcp_problem *facts) {
    const problem *p = s->x->problem;
    if (s->x->program->layout == FCP_LAYOUT_PLANNED) return FCP_OK; /* nothing is brought home */
    fcp_walk walks[FCP_SIDES] = {fcp_walk_of(&p->rule, FCP_QUERIES), fcp_walk_of(&p->rule, FCP_KEYS)};
    for (uint32_t b = 0; b < p->block_count; b++) {
        const fcp_block *block = &p->blocks[b];
        uint64_t each = 0;
        if (planning_stopped(s->x)) return FCP_E_INTERRUPTED;
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (s->x->program->passes[pass])
                each += fcp_held_bytes(facts, block->holds, FCP_IN, (fcp_pass)pass) +
                        fcp_held_bytes(facts, block->holds, FCP_OUT, (fcp_pass)pass);
        for (uint32_t i = block->first_piece; i < block->first_piece + block->pieces; i++)
            tie_piece(s, &walks[fcp_side_of(block)], &p->pieces[i], s->home[b], each);
    }
    return FCP_OK;
}

/* Lets nodes change names as long as more of what callers hold is then at home in their node. */
static fcp_code name_nodes(rails *s, const fcp_problem *facts) {
    const problem *p = s->x->problem;
    const uint32_t nodes = s->x->program->nodes;
    uint32_t *name = ARENA_NEW(&s->x->scratch, uint32_t, nodes);
    s->near = ARENA_ZNEW(&s->x->scratch, uint64_t, (size_t)nodes * nodes);
    if (!name || !s->near) return FCP_E_NO_MEMORY;
    for (uint32_t v = 0; v < nodes; v++) name[v] = v;
    fcp_code code = tie_callers(s, facts);
    for (bool again = !code; again;) {
        again = false;
        for (uint32_t a = 0; a < nodes; a++)
            for (uint32_t b = a + 1; b < nodes; b++) {
                const uint64_t *of_a = s->near + (size_t)a * nodes, *of_b = s->near + (size_t)b * nodes;
                if (of_a[name[b]] + of_b[name[a]] <= of_a[name[a]] + of_b[name[b]]) continue;
                const uint32_t kept = name[a];
                name[a] = name[b], name[b] = kept;
                again = true;
            }
    }
    s->near = NULL;
    for (uint32_t b = 0; b < p->block_count; b++)
        s->home[b] = name[s->home[b] / s->gpus] * s->gpus + s->home[b] % s->gpus;
    for (uint32_t t = 0; s->exec && t < p->tile_count; t++)
        s->exec[t] = name[s->exec[t] / s->gpus] * s->gpus + s->exec[t] % s->gpus;
    return code;
}

/* Lists the ties of each rank. */
static fcp_code list_ties(rails *s) {
    const uint32_t ranks = s->x->problem->ranks;
    s->start = ARENA_ZNEW(&s->x->scratch, uint32_t, ranks + (size_t)2);
    s->of = ARENA_NEW(&s->x->scratch, uint32_t, 2 * (size_t)s->count + 1);
    if (!s->start || !s->of) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < s->count; i++) s->start[s->ties[i].from + 1]++, s->start[s->ties[i].to + 1]++;
    group_starts(s->start, ranks);
    for (uint32_t i = 0; i < s->count; i++) {
        s->of[s->start[s->ties[i].from]++] = 2 * i;
        s->of[s->start[s->ties[i].to]++] = 2 * i + 1;
    }
    memmove(s->start + 1, s->start, ranks * sizeof *s->start);
    s->start[0] = 0;
    return FCP_OK;
}

static void find_gains(rails *s, uint32_t node) {
    const uint32_t first = node * s->gpus;
    memcpy(s->gain, s->called + (size_t)first * s->gpus, (size_t)s->gpus * s->gpus * sizeof *s->gain);
    for (uint32_t r = first; r < first + s->gpus; r++)
        for (uint32_t i = s->start[r]; i < s->start[r + 1]; i++) {
            const tie *t = &s->ties[s->of[i] / 2];
            const uint32_t other = s->of[i] & 1 ? t->from : t->to;
            s->gain[(size_t)(r - first) * s->gpus + s->place[other]] += t->bytes;
        }
}

/* Lets members of a node change places as long as that gains. True: some have. */
static bool arrange(rails *s, uint32_t node) {
    uint32_t *place = s->place + (size_t)node * s->gpus;
    bool changed = false, again = true;
    find_gains(s, node);
    while (again) {
        again = false;
        for (uint32_t a = 0; a < s->gpus; a++)
            for (uint32_t b = a + 1; b < s->gpus; b++) {
                const uint64_t *of_a = s->gain + (size_t)a * s->gpus, *of_b = s->gain + (size_t)b * s->gpus;
                if (of_a[place[b]] + of_b[place[a]] <= of_a[place[a]] + of_b[place[b]]) continue;
                const uint32_t kept = place[a];
                place[a] = place[b], place[b] = kept;
                changed = again = true;
            }
    }
    return changed;
}

fcp_code place_on_rails(planning *x, uint32_t *home, uint32_t *exec) {
    const problem *p = x->problem;
    const uint32_t gpus = x->program->gpus, nodes = x->program->nodes, ranks = p->ranks;
    arena *scratch = &x->scratch;
    rails s = {.x = x, .home = home, .exec = exec, .gpus = gpus};
    fcp_problem facts;
    if (gpus < 2 || nodes < 2) return FCP_OK;
    problem_facts(x, &facts);
    s.called = ARENA_ZNEW(scratch, uint64_t, (size_t)ranks * gpus);
    s.gain = ARENA_NEW(scratch, uint64_t, (size_t)gpus * gpus);
    s.seen = ARENA_ZNEW(scratch, uint32_t, ranks);
    s.place = ARENA_NEW(scratch, uint32_t, ranks);
    if (!s.called || !s.gain || !s.seen || !s.place) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < ranks; r++) s.place[r] = r % gpus;
    fcp_code code = name_nodes(&s, &facts);
    if (!code) code = tie_readers(&s, &facts);
    if (!code) code = tie_callers(&s, &facts);
    if (!code) code = list_ties(&s);
    bool changed = true;
    for (uint32_t sweep = 0; sweep < SWEEPS && changed && !code; sweep++) {
        changed = false;
        for (uint32_t v = 0; v < nodes && !code; v++) {
            if (planning_stopped(x)) code = FCP_E_INTERRUPTED;
            else changed |= arrange(&s, v);
        }
    }
    if (code) return code;
    for (uint32_t r = 0; r < ranks; r++) s.place[r] += r / gpus * gpus; /* from here on: its new name */
    for (uint32_t b = 0; b < p->block_count; b++) home[b] = s.place[home[b]];
    for (uint32_t t = 0; exec && t < p->tile_count; t++) exec[t] = s.place[exec[t]];
    return FCP_OK;
}
