/* local_search.c: moves work of the best candidate away from the ranks that end last, step by step.
 *
 * Requires: a best candidate, and the planning of its placement.
 * Gives: report->moves: the fastest placement that was found. Called again, it goes on from there, unless another
 *     candidate has become the best.
 * Cost: for each placement that is tried, routes, a schedule and a prediction. Blocks and tiles stay as they are.
 *
 * A row is the tiles of one Q block that run on one rank.
 *
 * Example: rank 12 ends last. It is idle and waits for results of a row that rank 40 computes for it. If rank 12
 * computes the row itself, neither queries nor results travel. If the simulator finds that faster, it is kept.
 *
 * What is moved depends on what the rank that ends last does:
 *   - It computes to the end. It gives a row to the rank of its node that computes least. If no row is short enough for
 *     that rank, it gives one tile. If that cannot be done either, it does the same with the rank that computes least
 *     of all ranks. If all tiles run at home and the strategy chooses homes, it exchanges two blocks instead.
 *   - It waits. It takes back the shortest of its own rows that others compute. If there is none, it gives back the
 *     shortest of the rows that it computes for others. If there is none either, it gives work away as above.
 *
 * Steps:
 *   1. Many ranks often end at nearly the last moment. So one step makes a move for each of the `width` ranks that end
 *      last.
 *   2. Two steps are tried at the same time, one with a quarter of the other's width. The better one is kept if it is
 *      faster than the best so far.
 *   3. After a failure the width shrinks, down to single moves. A single move that fails is not tried again before a
 *      step succeeds.
 * Nothing is random: the same placement leads to the same steps.
 */
#include "compiler/auto/auto.h"

#include <string.h>

#include "compiler/base/group.h"

typedef struct mover {
    auto_job *job;
    const problem *p;
    bool homes;          /* blocks are moved, with all their tiles; else rows of tiles */
    uint64_t *time;      /* per tile: its cells, in the longer pass */
    uint64_t *block;     /* per block: of all its tiles */
    uint32_t *order;     /* ranks, the one that ends last first */
    sim_rank *ranks;     /* as predicted with the best placement */
    uint64_t *load;      /* per rank: computing, while a step is made */
    uint64_t *tokens, token_cap; /* per rank; of homes */
    auto_moves *made;
    bool *spent;         /* per block: a single move of it has failed */
    uint64_t *runs;      /* per block: bit r % 64 is set if rank r may run one of its tiles; rows are found by it */
    uint64_t best;
    arena memory, scratch; /* of one step */
} mover;

/* A placement that is tried: the best one so far, with some moves. */
typedef struct attempt {
    uint32_t *home, *exec; /* exec: NULL where blocks are moved */
    uint32_t moved;
    bool single;
} attempt;

/* --- what may be moved -------------------------------------------------------------------------------------------- */

/* May the placement be changed? *out_homes: by exchanging blocks, because all tiles run at home and the strategy
 * chooses homes; otherwise by moving rows. Strategies that share heads or cut sequences evenly are left alone: their
 * ranks have equal work already. */
static bool is_movable(const auto_job *j, bool *out_homes) {
    const auto_trial *base = j->base;
    const problem *p = base->x.problem;
    const bool keeps = strategy_keeps_homes(&base->settings);
    if (p->ranks < 2 || p->head_count != 1 || j->report->at[j->best].even || p->chunk) return false;
    *out_homes = !base->x.placement->exec && !keeps;
    return !(*out_homes && p->split) && !(base->settings.equal && !keeps);
}

/* Fills, from a prediction: the time of each tile's cells in the longer pass, and for each block the sum over its
 * tiles. */
static fcp_code measure_tiles(mover *m, const auto_trial *base, const sim_result *result, arena *memory) {
    const problem *p = m->p;
    fcp_problem facts;
    sim_model model;
    m->time = ARENA_ZNEW(memory, uint64_t, p->tile_count + (size_t)1);
    m->block = ARENA_ZNEW(memory, uint64_t, p->block_count);
    m->order = ARENA_NEW(memory, uint32_t, p->ranks);
    m->ranks = ARENA_NEW(memory, sim_rank, p->ranks);
    m->load = ARENA_NEW(memory, uint64_t, p->ranks);
    m->tokens = ARENA_NEW(memory, uint64_t, p->ranks);
    m->spent = ARENA_ZNEW(memory, bool, p->block_count);
    m->runs = ARENA_NEW(memory, uint64_t, p->block_count);
    if (!m->spent || !m->runs || !m->time || !m->block || !m->order || !m->ranks || !m->load || !m->tokens)
        return FCP_E_NO_MEMORY;
    const fcp_pass pass = auto_longer(result) == &result->pass[FCP_BACKWARD] ? FCP_BACKWARD : FCP_FORWARD;
    problem_facts(&base->x, &facts);
    facts.margin = m->job->report->at[m->job->best].margin;
    sim_model_device(&facts, &base->settings.cluster, pass, &m->job->profile, &model);
    fcp_code code = auto_tile_times(p, &model, base->counts, memory, m->time);
    for (uint32_t i = 0; i < p->tile_count; i++) m->block[p->tile_q[i]] += m->time[i];
    return code;
}

/* Takes over what is predicted of the best placement, and orders the ranks: the one that ends last comes first. */
static void rank_by_end(mover *m, const sim_pass *pass) {
    const problem *p = m->p;
    memcpy(m->ranks, pass->ranks, p->ranks * sizeof *m->ranks);
    for (uint32_t r = 0; r < p->ranks; r++) m->order[r] = r;
    for (uint32_t i = 0; i < p->ranks && i < WIDEST; i++) {
        uint32_t last = i;
        for (uint32_t n = i + 1; n < p->ranks; n++)
            if (m->ranks[m->order[n]].end > m->ranks[m->order[last]].end) last = n;
        const uint32_t rank = m->order[last];
        memmove(m->order + i + 1, m->order + i, (last - i) * sizeof *m->order); /* equal ones stay in order */
        m->order[i] = rank;
    }
}

/* --- moves of one rank -------------------------------------------------------------------------------------------- */

/* The rank that computes least: of r's node, or of all ranks if `anywhere`. */
static uint32_t idlest(const mover *m, uint32_t r, bool anywhere) {
    const uint32_t gpus = m->p->program->gpus, first = anywhere ? 0 : r / gpus * gpus,
                   end = anywhere ? m->p->ranks : first + gpus;
    uint32_t found = first;
    for (uint32_t i = first; i < end; i++)
        if (m->load[i] < m->load[found]) found = i;
    return found;
}

/* May rank r run a tile of Q block b? False is certain. True is not, because ranks share 64 bits. */
static bool may_run(const mover *m, uint32_t b, uint32_t r) { return m->runs[b] >> r % 64 & 1; }

static void note_runs(mover *m, const attempt *a) {
    for (uint32_t b = 0; b < m->p->block_count; b++) {
        m->runs[b] = 0;
        for (uint32_t t = m->p->tile_start[b]; t < m->p->tile_start[b + 1]; t++)
            m->runs[b] |= UINT64_C(1) << a->exec[t] % 64;
    }
}

/* Counts a move of block b. If the step is a single move, marks the block, so that it is not moved again after a
 * failure. */
static void count_move(mover *m, attempt *a, uint32_t b) {
    a->moved++;
    m->spent[b] |= a->single;
}

/* Makes rank `to` compute a tile. */
static void move_tile(mover *m, attempt *a, uint32_t t, uint32_t to) {
    const uint32_t at = a->exec[t];
    a->exec[t] = to;
    m->load[at] -= m->time[t] < m->load[at] ? m->time[t] : m->load[at];
    m->load[to] += m->time[t];
    m->runs[m->p->tile_q[t]] |= UINT64_C(1) << to % 64;
}

/* Makes rank `to` compute the tiles of Q block b that rank `at` computed. */
static void give_row(mover *m, attempt *a, uint32_t b, uint32_t at, uint32_t to) {
    for (uint32_t t = m->p->tile_start[b]; t < m->p->tile_start[b + 1]; t++)
        if (a->exec[t] == at) move_tile(m, a, t, to);
    count_move(m, a, b);
}

/* The time that rank `at` computes tiles of Q block b. */
static uint64_t row_time(const mover *m, const attempt *a, uint32_t b, uint32_t at) {
    uint64_t sum = 0;
    for (uint32_t t = m->p->tile_start[b]; t < m->p->tile_start[b + 1]; t++)
        if (a->exec[t] == at) sum += m->time[t];
    return sum;
}

/* Gives `to` the largest tile of rank r that takes at most `gap`. False: there is none. */
static bool give_tile(mover *m, attempt *a, uint32_t r, uint32_t to, uint64_t gap) {
    uint32_t found = FCP_NONE;
    for (uint32_t b = 0; b < m->p->block_count; b++) {
        if (m->spent[b] || !may_run(m, b, r)) continue;
        for (uint32_t t = m->p->tile_start[b]; t < m->p->tile_start[b + 1]; t++)
            if (a->exec[t] == r && m->time[t] <= gap && (found == FCP_NONE || m->time[t] > m->time[found])) found = t;
    }
    if (found == FCP_NONE || !m->time[found]) return false;
    move_tile(m, a, found, to);
    count_move(m, a, m->p->tile_q[found]);
    return true;
}

/* Gives one row of rank r to `to`: the one with most work that does not leave `to` with more work than r then has. Rows
 * that run away from home already cost no more at `to`. So such a row is taken if its work is at least half of that of
 * the best other row. If no row is short enough, gives a tile. False: there is none, either. */
static bool give_away(mover *m, attempt *a, uint32_t r, uint32_t to) {
    const uint64_t gap = m->load[r] > m->load[to] ? (m->load[r] - m->load[to]) / 2 : 0;
    uint64_t most[2] = {0, 0};
    uint32_t found[2] = {FCP_NONE, FCP_NONE};
    for (uint32_t b = 0; b < m->p->block_count; b++) {
        if (m->spent[b] || !may_run(m, b, r)) continue;
        const uint64_t time = row_time(m, a, b, r);
        const bool guest = a->home[b] != r;
        if (time <= gap && time > most[guest]) most[guest] = time, found[guest] = b;
    }
    const bool guest = found[1] != FCP_NONE && most[1] >= most[0] / 2;
    if (found[guest] == FCP_NONE) return give_tile(m, a, r, to, gap);
    give_row(m, a, found[guest], r, to);
    return true;
}

/* Brings one row home: of the rows that do not run at home, the one with least work. Its home must then be done
 * computing before `until`. own: of r's own blocks; otherwise of the blocks of others whose rows r computes. The blocks
 * at home on r are of[start[r]] to of[start[r + 1] - 1]. */
static bool bring_home(mover *m, attempt *a, uint32_t r, bool own, uint64_t until, const uint32_t *start,
                       const uint32_t *of) {
    const problem *p = m->p;
    uint64_t least = UINT64_MAX;
    uint32_t found = FCP_NONE, away = FCP_NONE;
    for (uint32_t i = own ? start[r] : 0; i < (own ? start[r + 1] : p->block_count); i++) {
        const uint32_t b = own ? of[i] : i, home = a->home[b];
        if (m->spent[b] || (!own && !may_run(m, b, r))) continue;
        for (uint32_t t = p->tile_start[b]; t < p->tile_start[b + 1]; t++) {
            const uint32_t at = a->exec[t];
            if (at == home || (!own && at != r)) continue;
            if (t > p->tile_start[b] && a->exec[t - 1] == at) continue; /* seen with the tile before */
            const uint64_t time = row_time(m, a, b, at);
            if (time < least && m->load[home] + time < until) least = time, found = b, away = at;
        }
    }
    if (found == FCP_NONE) return false;
    give_row(m, a, found, away, a->home[found]);
    return true;
}

/* Gives a block of r to `to`, and takes one with less work for it, or none. Of all such exchanges it makes the one
 * after which the two ranks' work is most alike. */
static bool exchange(mover *m, attempt *a, uint32_t r, uint32_t to, const uint32_t *start, const uint32_t *of) {
    const problem *p = m->p;
    const uint64_t gap = m->load[r] > m->load[to] ? (m->load[r] - m->load[to]) / 2 : 0;
    uint64_t most = 0;
    uint32_t give = FCP_NONE, take = FCP_NONE;
    for (uint32_t i = start[r]; i < start[r + 1]; i++)
        for (uint32_t n = start[to]; n <= start[to + 1]; n++) {
            const uint32_t b = of[i], c = n < start[to + 1] ? of[n] : FCP_NONE;
            if (m->spent[b] || a->home[b] != r) continue;
            if (c != FCP_NONE && a->home[c] != to) continue; /* it has been moved in this step */
            const uint64_t less = c == FCP_NONE ? 0 : m->block[c], tokens = c == FCP_NONE ? 0 : p->blocks[c].tokens;
            if (m->block[b] <= less || m->block[b] - less > gap || m->block[b] - less <= most) continue;
            if (m->tokens[to] + p->blocks[b].tokens - tokens > m->token_cap ||
                m->tokens[r] + tokens - p->blocks[b].tokens > m->token_cap)
                continue;
            most = m->block[b] - less, give = b, take = c;
        }
    if (give == FCP_NONE) return false;
    a->home[give] = to;
    m->tokens[to] += p->blocks[give].tokens, m->tokens[r] -= p->blocks[give].tokens;
    if (take != FCP_NONE) {
        a->home[take] = r;
        m->tokens[to] -= p->blocks[take].tokens, m->tokens[r] += p->blocks[take].tokens;
    }
    m->load[r] -= most, m->load[to] += most;
    count_move(m, a, give);
    return true;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Makes a move for each of the `width` ranks that end last. */
static fcp_code take_step(mover *m, uint32_t width, arena *scratch, attempt *a) {
    const problem *p = m->p;
    uint32_t *start = ARENA_NEW(scratch, uint32_t, p->ranks + (size_t)2),
             *of = ARENA_NEW(scratch, uint32_t, p->block_count);
    if (!start || !of) return FCP_E_NO_MEMORY;
    for (uint32_t r = 0; r < p->ranks; r++) m->load[r] = m->ranks[r].compute, m->tokens[r] = 0;
    for (uint32_t b = 0; b < p->block_count; b++) m->tokens[a->home[b]] += p->blocks[b].tokens;
    if (!group_by(a->home, sizeof *a->home, p->block_count, p->ranks, start, of, m->job->stop))
        return FCP_E_INTERRUPTED;
    if (!m->homes) note_runs(m, a);
    for (uint32_t i = 0; i < width && i < p->ranks; i++) {
        const uint32_t r = m->order[i];
        if (fcp_stop_asked(m->job->stop)) return FCP_E_INTERRUPTED;
        if (m->homes) {
            if (!exchange(m, a, r, idlest(m, r, false), start, of)) exchange(m, a, r, idlest(m, r, true), start, of);
        } else if (auto_keeps(&m->ranks[r]) == AUTO_COMPUTING ||
                   (!bring_home(m, a, r, true, m->ranks[r].end, start, of) &&
                    !bring_home(m, a, r, false, m->ranks[r].end, start, of))) {
            if (!give_away(m, a, r, idlest(m, r, false))) give_away(m, a, r, idlest(m, r, true));
        }
    }
    return FCP_OK;
}

/* Copies the best placement so far; the copy is to be changed. */
static bool copy_placement(const mover *m, arena *memory, const attempt *best, attempt *out) {
    const problem *p = m->p;
    *out = (attempt){.home = ARENA_NEW(memory, uint32_t, p->block_count),
                     .exec = m->homes ? NULL : ARENA_NEW(memory, uint32_t, p->tile_count + (size_t)1)};
    if (!out->home || (!m->homes && !out->exec)) return false;
    memcpy(out->home, best->home, p->block_count * sizeof *out->home);
    for (uint32_t t = 0; out->exec && t < p->tile_count; t++)
        out->exec[t] = best->exec ? best->exec[t] : best->home[p->tile_q[t]];
    return true;
}

/* Plans and predicts attempts. One without a move is left out. out: made[i].makespan; 0: it has no prediction. */
static fcp_code predict_attempts(mover *m, attempt *a, auto_trial *t, auto_candidate *made, uint32_t count) {
    auto_job *j = m->job;
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < count && !code; i++) {
        made[i] = j->report->at[j->best];
        made[i].makespan = 0;
        t[i] = (auto_trial){.job = j, .made = &made[i], .limit = m->best, .room = &j->room[i]};
        auto_apply(j->program, &made[i], &t[i].settings);
        if (!a[i].moved) continue;
        auto_derive(j, &t[i], j->base);
        t[i].placement.home = a[i].home;
        t[i].placement.exec = place_moves(a[i].home, a[i].exec, m->p->tile_q, m->p->tile_count) ? a[i].exec : NULL;
        code = t[i].code;
    }
    if (!code) auto_predict(t, count);
    for (uint32_t i = 0; i < count && !code; i++) auto_count_work(&t[i]);
    for (uint32_t i = 0; i < count && !code; i++) /* a placement that does not fit is no error */
        if (t[i].code == FCP_E_NO_MEMORY || t[i].code == FCP_E_INTERRUPTED) code = t[i].code;
    return code;
}

/* Makes an attempt the best placement, from which the next attempts start. */
static fcp_code keep_attempt(mover *m, const attempt *a, uint64_t makespan, attempt *best) {
    auto_moves *r = m->made;
    const problem *p = m->p;
    if (!r->home) {
        attempt own;
        if (!copy_placement(m, &m->job->report->memory, a, &own)) return FCP_E_NO_MEMORY;
        r->home = own.home, r->exec = own.exec;
        r->blocks = p->block_count, r->tiles = p->tile_count;
    }
    memcpy(r->home, a->home, p->block_count * sizeof *r->home);
    if (r->exec) memcpy(r->exec, a->exec, p->tile_count * sizeof *r->exec);
    *best = (attempt){.home = r->home, .exec = r->exec};
    r->kept++;
    r->moved += a->moved;
    r->makespan = m->best = makespan;
    return FCP_OK;
}

/* Tries two steps from the best placement, with different widths. *out_better: one of them was faster, and is kept. */
static fcp_code take_two(mover *m, uint32_t width, attempt *best, bool *out_better) {
    auto_trial t[2];
    auto_candidate made[2];
    attempt a[2];
    const uint32_t count = 2, widths[] = {width, width > 4 ? width / 4 : 1};
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; i < count && !code; i++) {
        if (!copy_placement(m, &m->memory, best, &a[i])) code = FCP_E_NO_MEMORY;
        a[i].single = widths[i] == 1;
        if (!code) code = take_step(m, widths[i], &m->scratch, &a[i]);
        arena_reset(&m->scratch);
    }
    memset(t, 0, sizeof t);
    if (!code) code = predict_attempts(m, a, t, made, count);
    uint32_t found = FCP_NONE;
    for (uint32_t i = 0; i < count && !code; i++) {
        m->made->tried += a[i].moved > 0;
        if (made[i].makespan && made[i].makespan < (found == FCP_NONE ? m->best : made[found].makespan)) found = i;
    }
    *out_better = !code && found != FCP_NONE;
    if (*out_better) code = keep_attempt(m, &a[found], made[found].makespan, best);
    if (*out_better) memset(m->spent, 0, m->p->block_count);
    if (*out_better && !code) rank_by_end(m, auto_longer(&t[found].result));
    for (uint32_t i = 0; i < count; i++) auto_finish(&t[i]);
    arena_reset(&m->memory);
    return code;
}

/* Prepares the first step. It needs a prediction of the placement to start from: if that is the best candidate's own,
 * there is one; if work was moved in an earlier call, it is predicted once more. */
static fcp_code prepare(mover *m, const attempt *best, arena *memory) {
    auto_job *j = m->job;
    auto_trial t;
    auto_candidate made;
    attempt same = *best;
    const sim_result *result = &j->result;
    fcp_code code = FCP_OK;
    memset(&t, 0, sizeof t);
    same.moved = 1;
    if (m->made->kept) {
        code = predict_attempts(m, &same, &t, &made, 1);
        if (!code) code = t.code;
        result = &t.result;
    }
    if (!code) code = measure_tiles(m, j->base, result, memory);
    if (!code) {
        rank_by_end(m, auto_longer(result));
        m->best = auto_time(j->program, result);
        memset(m->tokens, 0, m->p->ranks * sizeof *m->tokens);
    }
    for (uint32_t b = 0; b < m->p->block_count && !code; b++) { /* no rank will have more than the fullest has */
        uint64_t *tokens = &m->tokens[best->home[b]];
        *tokens += m->p->blocks[b].tokens;
        if (*tokens > m->token_cap) m->token_cap = *tokens;
    }
    auto_finish(&t);
    return code;
}

fcp_code auto_move(auto_job *j, uint32_t budget, uint32_t most) {
    auto_moves *known = &j->report->moves, made = {.of = j->best};
    mover m = {.job = j, .made = &made, .best = UINT64_MAX};
    if (!is_movable(j, &m.homes)) return FCP_OK;
    arena memory = {.pool = j->base->x.work.pool};
    m.memory = m.scratch = memory;
    if (known->kept && known->of == j->best) made = *known;
    made.tried = 0;
    m.p = j->base->x.problem;
    attempt best = {.home = made.home, .exec = made.exec};
    if (!made.home) {
        best.home = (uint32_t *)(uintptr_t)j->base->x.placement->home;
        best.exec = (uint32_t *)(uintptr_t)j->base->x.placement->exec;
    }
    fcp_code code = prepare(&m, &best, &memory);
    uint32_t width = m.p->ranks / 4 < WIDEST ? (m.p->ranks + 3) / 4 : WIDEST;
    bool better = false;
    while (!code && made.tried + 2 <= (better ? most : budget) && auto_may_spend(j, 2 * j->base->made->late, false)) {
        const uint32_t tried = made.tried;
        code = take_two(&m, width, &best, &better);
        if (made.tried == tried) break; /* nothing is left to be moved */
        if (!better) width = width > 16 ? width / 16 : 1;
    }
    const uint32_t tried = known->tried + made.tried;
    if (!code && made.kept && (!known->kept || made.makespan < known->makespan)) *known = made;
    known->tried = tried;
    arena_free(&memory);
    arena_free(&m.memory);
    arena_free(&m.scratch);
    return code;
}
