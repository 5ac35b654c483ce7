/* tasks.c: turns the instructions of a pass into tasks, each of which knows what it waits for.
 *
 * In a plan a WAIT stands between two instructions. Here each task says itself how many tasks of the other queue must
 * have ended. So tasks can be reordered, and what they need can be computed anew.
 *
 * Without overlap, tasks are sorted by phases: the caller's layout comes in, blocks come to where they are read, tiles
 * are computed, partial results and gradients return, results go out. A task needs all tasks of earlier phases, and of
 * its own phase those that the plan says.
 *
 * Example: a rank's launches are KV of round 0, dKV of round 0 and KV of round 1, and it has two ATTENDs. Without
 * overlap the launches are sorted to KV, KV, dKV. Both ATTENDs need the first two launches, and the third launch needs
 * both ATTENDs.
 */
#include "compiler/simulate/pass_times.h"

#include <string.h>

#include "compiler/base/bisect.h"
#include "runtime/plan/fabrics.h"

/* The phase in which a class of blocks moves, and in which an instruction of the compute queue runs. Different phases
 * never overlap. */
typedef struct order {
    uint32_t classes[FCP_CLASSES], ops[FCP_OP_COUNT], copy_out;
} order;
static const order whole = {.copy_out = 0}; /* one phase: the plan's order */
static const order apart = {
    .classes = {[FCP_IN] = 0, [FCP_KV] = 2, [FCP_Q] = 2, [FCP_STATE] = 2, [FCP_O] = 2, [FCP_DKV] = 2, [FCP_DQ] = 2,
                [FCP_DQW] = 2, [FCP_OUT] = 3},
    .ops = {[FCP_OP_COPY] = 1, [FCP_OP_DELTA] = 2, [FCP_OP_ATTEND] = 2, [FCP_OP_REDUCE] = 2, [FCP_OP_MERGE] = 2,
            [FCP_OP_FINISH] = 2,
            [FCP_OP_REDUCE_Q] = 2, [FCP_OP_ROUND] = 2},
    .copy_out = 3};
static const order serial = {
    .classes = {[FCP_IN] = 0, [FCP_KV] = 2, [FCP_Q] = 2, [FCP_STATE] = 4, [FCP_O] = 4, [FCP_DKV] = 4, [FCP_DQ] = 4,
                [FCP_DQW] = 4, [FCP_OUT] = 5},
    .ops = {[FCP_OP_COPY] = 1, [FCP_OP_DELTA] = 1, [FCP_OP_ATTEND] = 3, [FCP_OP_REDUCE] = 4, [FCP_OP_MERGE] = 4,
            [FCP_OP_FINISH] = 4,
            [FCP_OP_REDUCE_Q] = 4, [FCP_OP_ROUND] = 4},
    .copy_out = 5};

static uint32_t phase_of(const fcp_plan *plan, const order *o, const fcp_instr *x) {
    if (x->op == FCP_OP_COPY && x->b && plan->transfers[x->a].cls == FCP_OUT) return o->copy_out;
    return o->ops[x->op];
}

/* Appends the tasks of an instruction. A launch has a task for each phase in which it moves something, and if net and
 * local have a queue each, for each fabric too. */
static uint32_t append(const sim_model *m, const order *o, uint32_t i, uint32_t origin, sim_task *at) {
    const fcp_plan *plan = m->plan;
    const fcp_instr *x = &plan->instrs[i];
    sim_task task = {.instr = i, .fabrics = SIM_BOTH_FABRICS, .wait = i, .origin = origin};
    if (x->op != FCP_OP_LAUNCH) {
        task.phase = phase_of(plan, o, x);
        *at = task;
        return 1;
    }
    const bool two = sim_model_apart(m, x->c);
    uint32_t count = 0, seen[FCP_FABRICS] = {0};
    for (uint32_t t = x->a; t < x->a + x->b; t++) {
        const int fabric = two ? (int)plan->transfers[t].fabric : 0;
        task.phase = o->classes[plan->transfers[t].cls];
        if (two) task.fabrics = 1u << fabric;
        if (seen[fabric] >> task.phase & 1) continue;
        seen[fabric] |= 1u << task.phase;
        at[count++] = task;
    }
    return count;
}

static void sort_phases(sim_task *at, uint32_t count, sim_task *room) {
    uint32_t filled = 0;
    for (uint32_t phase = 0; phase < SIM_PHASES; phase++)
        for (uint32_t i = 0; i < count; i++)
            if (at[i].phase == phase) room[filled++] = at[i];
    memcpy(at, room, filled * sizeof *at);
}

/* Returns for how many of the `count` tasks at `other`, which are those of the rank's other queue, a task of phase
 * `phase` waits: for all tasks of earlier phases; and of its own phase for those made of the first `waits` instructions
 * of that queue, for which its instruction waits in the plan. */
static uint32_t needs_of(const sim_task *other, uint32_t count, uint32_t phase, uint32_t waits) {
    uint32_t begin = 0, end = count;
    BISECT(begin, end, i, other[i].phase < phase) /* the first task of this phase or a later one */
    end = count;
    BISECT(begin, end, i, other[i].phase == phase && other[i].origin < waits) /* the first that was not waited for */
    return begin;
}

/* Computes what the tasks of a queue need of the other queue. The last two arguments have room for each instruction of
 * the queue, and are filled here. waits[i][f]: how many instructions of the other queue must be over on fabric f before
 * instruction i, by a WAIT that stands before it in its own queue. from[i]: the WAIT that last raised one of these
 * numbers. */
static void find_needs(const fcp_plan *plan, fcp_queue queue, const fcp_stream *stream, sim_task *own, uint32_t count,
                       const sim_task *other, uint32_t others, uint32_t (*waits)[FCP_FABRICS], uint32_t *from) {
    uint32_t longest[FCP_FABRICS] = {0}, last = FCP_NONE;
    for (uint32_t i = 0; i < stream->count; i++) {
        const fcp_instr *x = &plan->instrs[stream->first + i];
        for (int f = 0; f < FCP_FABRICS; f++) {
            const uint32_t most = x->op == FCP_OP_WAIT ? fcp_waits_over(x, queue, (fcp_fabric)f) : 0;
            if (most > longest[f]) {
                longest[f] = most;
                last = stream->first + i;
            }
            waits[i][f] = longest[f];
        }
        from[i] = last;
    }
    for (uint32_t i = 0; i < count; i++) {
        for (int f = 0; f < FCP_FABRICS; f++)
            own[i].needs[f] = needs_of(other, others, own[i].phase, waits[own[i].origin][f]);
        if (from[own[i].origin] != FCP_NONE) own[i].wait = from[own[i].origin];
    }
}

/* Computes what tasks of one fabric wait for over the other fabric. after[i] says for each instruction of the queue how
 * many of the queue's instructions must be over on each fabric before it, because it uses the same slot as one of them.
 * Two such instructions move the same class, so they are in one phase. Therefore a task needs all tasks of earlier
 * phases, and of its own those that `after` says. */
static void find_after(uint32_t first, const uint32_t (*after)[FCP_FABRICS], sim_task *own, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        if (own[i].fabrics == SIM_BOTH_FABRICS) continue;
        const int fabric = own[i].fabrics >> FCP_NET & 1 ? FCP_NET : FCP_LOCAL;
        own[i].after = needs_of(own, count, own[i].phase, after[own[i].instr - first][fabric]);
    }
}

fcp_code sim_tasks_new(const sim_model *m, uint32_t without, arena *memory, sim_tasks *out) {
    const fcp_plan *plan = m->plan;
    const uint32_t ranks = plan->problem->ranks, first = plan->round_starts[m->pass],
                   count = plan->round_starts[m->pass + 1] - first;
    const order *o = without & SIM_WITHOUT_OVERLAP ? &serial : without & SIM_WITHOUT_HIDING ? &apart : &whole;
    size_t most = 0;
    uint32_t longest = 0;
    for (uint32_t r = 0; r < ranks; r++)
        for (int q = 0; q < FCP_QUEUES; q++) {
            const fcp_stream *s = fcp_stream_of(plan, m->pass, r, (fcp_queue)q);
            if (s->count > longest) longest = s->count;
            /* a launch moves only IN, or only OUT, or else, over each fabric, classes of at most two phases */
            most += (size_t)(q == FCP_COMM ? 2 * FCP_FABRICS : 1) * s->count;
        }
    out->at = ARENA_NEW(memory, sim_task, most);
    out->start = arena_alloc(memory, ranks, sizeof *out->start, _Alignof(uint32_t));
    out->phases = ARENA_NEW(memory, uint32_t, FCP_CLASSES);
    uint32_t *groups = ARENA_NEW(memory, uint32_t, count);
    uint32_t(*waits)[FCP_FABRICS] = arena_alloc(memory, longest, sizeof *waits, _Alignof(uint32_t));
    uint32_t *from = ARENA_NEW(memory, uint32_t, longest);
    sim_task *room = ARENA_NEW(memory, sim_task, (size_t)2 * FCP_FABRICS * longest);
    uint32_t(*after)[FCP_FABRICS] = arena_alloc(memory, longest, sizeof *after, _Alignof(uint32_t));
    if (!after || !out->at || !out->start || !out->phases || !groups || !waits || !from || !room)
        return FCP_E_NO_MEMORY;
    memcpy(out->phases, o->classes, sizeof o->classes);
    for (uint32_t c = 0, group = 0; c < count; c++) {
        const fcp_round *x = &plan->rounds[first + c];
        group += !c || x->kind != x[-1].kind || x->stage != x[-1].stage;
        groups[c] = x->kind == FCP_ROUND_INDEPENDENT ? 0 : group;
    }
    uint32_t used = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        for (int q = 0; q < FCP_QUEUES; q++) {
            const fcp_stream *s = fcp_stream_of(plan, m->pass, r, (fcp_queue)q);
            out->start[r][q] = used;
            for (uint32_t i = 0; i < s->count; i++) {
                const fcp_instr *x = &plan->instrs[s->first + i];
                /* a WAIT is a task of its own if it is the last, or, in the plan's order, to show why a rank waits */
                bool trailing = x->op == FCP_OP_WAIT && i + 1 == s->count;
                if (x->op == FCP_OP_WAIT && !trailing && (q == FCP_COMM || o != &whole)) continue;
                uint32_t added = append(m, o, s->first + i, i, &out->at[used]);
                if (trailing && o != &whole) out->at[used].phase = SIM_PHASES - 1;
                for (uint32_t n = used; x->op == FCP_OP_LAUNCH && n < used + added; n++)
                    out->at[n].group = groups[x->c];
                used += added;
            }
            if (o != &whole) sort_phases(&out->at[out->start[r][q]], used - out->start[r][q], room);
        }
        out->start[r][FCP_QUEUES] = used;
        for (int q = 0; q < FCP_QUEUES; q++) {
            const uint32_t *at = out->start[r];
            find_needs(plan, (fcp_queue)q, fcp_stream_of(plan, m->pass, r, (fcp_queue)q), &out->at[at[q]],
                       at[q + 1] - at[q], &out->at[at[!q]], at[!q + 1] - at[!q], waits, from);
        }
        if (!m->apart) continue;
        if (!fcp_fabric_waits(plan, m->pass, r, after)) return FCP_E_NO_MEMORY;
        find_after(fcp_stream_of(plan, m->pass, r, FCP_COMM)->first, after, &out->at[out->start[r][FCP_COMM]],
                   used - out->start[r][FCP_COMM]);
    }
    return FCP_OK;
}
