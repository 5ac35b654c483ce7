/* recurrent_make.c: the tables of layers that recur.
 *
 * Requires: a plan whose layout is known.
 * Gives:    RECURRENT, STEP_STREAMS, STEPS and HALO_ROWS.
 * Method:   only documents that are cut need anything. Their stretches are sorted by place in the batch; each layer
 *           then makes steps from the list, and the steps are sorted into one stream for each rank.
 * Cost:     linear in the spans of all ranks and in the stretches of documents that are cut.
 */
#include "compiler/recurrent/recurrent_make.h"

#include <string.h>

#include "compiler/base/group.h"
#include "compiler/base/sort.h"
#include "compiler/sema/program.h"
#include "runtime/plan/plan_index.h"

enum { STEPS_MAX = 1 << 28 };

bool recurrent_add(recurrent_batch *b, step_list *list, uint32_t rank, uint32_t when, fcp_step step) {
    placed_step *room = arena_grow(b->scratch, list->at, list->count, &list->room, sizeof *room);
    if (!room) return false;
    list->at = room;
    list->at[list->count++] = (placed_step){step, rank, when};
    return true;
}

/* Puts the list in the order of the batch. A row is below 2^40 (a batch has no more tokens), so row and place in the
 * list fit into 64 bits. */
static fcp_code sort_stretches(recurrent_batch *b) {
    enum { PLACE_BITS = 24 };
    if (b->cut_count >> PLACE_BITS) return FCP_E_PLAN_SIZE;
    uint64_t *keys = ARENA_NEW(b->scratch, uint64_t, b->cut_count),
             *more = ARENA_NEW(b->scratch, uint64_t, b->cut_count);
    cut_stretch *sorted = ARENA_NEW(b->scratch, cut_stretch, b->cut_count);
    if (!keys || !more || !sorted) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < b->cut_count; i++) keys[i] = b->cut[i].at.start << PLACE_BITS | i;
    sort_u64(keys, more, b->cut_count);
    for (uint32_t i = 0; i < b->cut_count; i++) sorted[i] = b->cut[keys[i] & ((1u << PLACE_BITS) - 1)];
    b->cut = sorted;
    return FCP_OK;
}

/* Lists the stretches of documents that are cut. Ranks hold runs of the batch in order, so most of the list is sorted
 * as it is made. */
static fcp_code list_stretches(recurrent_batch *b) {
    size_t room = 0;
    fcp_stretch *own = NULL;
    uint32_t own_room = 0;
    b->rank_counts = ARENA_NEW(b->scratch, uint32_t, b->ranks);
    if (!b->rank_counts) return FCP_E_NO_MEMORY;
    bool sorted = true;
    for (uint32_t r = 0; r < b->ranks; r++) {
        if (!(r & 63) && fcp_stop_asked(b->stop)) return FCP_E_INTERRUPTED;
        const uint32_t count = b->rank_counts[r] = fcp_stretches_of(b->plan, r, NULL);
        if (count > own_room) {
            own = ARENA_NEW(b->scratch, fcp_stretch, own_room = count + count / 2);
            if (!own) return FCP_E_NO_MEMORY;
        }
        if (count) fcp_stretches_of(b->plan, r, own);
        for (uint32_t i = 0; i < count; i++) {
            if (own[i].begins && own[i].ends) continue;
            cut_stretch *at = arena_grow(b->scratch, b->cut, b->cut_count, &room, sizeof *at);
            if (!at) return FCP_E_NO_MEMORY;
            b->cut = at;
            sorted = sorted && (!b->cut_count || at[b->cut_count - 1].at.start < own[i].start);
            at[b->cut_count++] = (cut_stretch){own[i], r, i};
        }
    }
    return sorted ? FCP_OK : sort_stretches(b);
}

/* Sorts the steps of one network into the streams of ranks: by rank, and of a rank by when they are done; steps of one
 * time stay in the order in which they were made. */
static fcp_code write_network(recurrent_batch *b, const step_list *list, fcp_step_stream *streams, arena *memory,
                              recurrent_tables *out, size_t *room) {
    uint32_t *start, *item, last = 0;
    uint32_t *when = ARENA_NEW(b->scratch, uint32_t, list->count + (size_t)1);
    uint32_t *rank = ARENA_NEW(b->scratch, uint32_t, list->count + (size_t)1);
    if (!when || !rank) return FCP_E_NO_MEMORY;
    for (uint32_t i = 0; i < list->count; i++) {
        when[i] = list->at[i].when;
        if (when[i] > last) last = when[i];
    }
    fcp_code code = group_new(b->scratch, when, sizeof *when, list->count, last + 1, b->stop, &start, &item);
    if (code) return code;
    for (uint32_t i = 0; i < list->count; i++) rank[i] = list->at[item[i]].rank;
    uint32_t *first, *order;
    code = group_new(b->scratch, rank, sizeof *rank, list->count, b->ranks, b->stop, &first, &order);
    if (code) return code;
    if (out->steps_count + list->count > STEPS_MAX) return FCP_E_PLAN_SIZE;
    for (uint32_t r = 0; r < b->ranks; r++)
        streams[r] = (fcp_step_stream){.first = out->steps_count + first[r],
                                       .count = first[r + 1] - first[r],
                                       .temporaries = list->temporaries ? list->temporaries[r] : 0};
    if (out->steps_count + list->count > *room) {
        *room = out->steps_count + list->count + out->steps_count / 2;
        fcp_step *steps = ARENA_NEW(memory, fcp_step, *room);
        if (!steps) return FCP_E_NO_MEMORY;
        if (out->steps_count) memcpy(steps, out->steps, out->steps_count * sizeof *steps);
        out->steps = steps;
    }
    for (uint32_t i = 0; i < list->count; i++) out->steps[out->steps_count++] = list->at[item[order[i]]].step;
    return FCP_OK;
}

fcp_code recurrent_time(recurrent_batch *b, const fcp_recurrent *layer, const step_list *list, uint64_t *out) {
    fcp_recurrent as = *layer;
    fcp_plan plan = *b->plan;
    recurrent_tables t = {.steps = NULL};
    sim_recurrent predicted;
    sim_model m = *b->links;
    size_t room = 0;
    fcp_step_stream *streams = ARENA_NEW(b->scratch, fcp_step_stream, b->ranks);
    if (!streams) return FCP_E_NO_MEMORY;
    fcp_code code = write_network(b, list, streams, b->scratch, &t, &room);
    if (code) return code;
    as.rounds[FCP_FORWARD] = list->rounds;
    plan.recurrent = &as, plan.recurrent_count = 1;
    plan.step_streams = streams, plan.step_streams_count = b->ranks;
    plan.steps = t.steps, plan.steps_count = t.steps_count;
    m.plan = &plan;
    code = sim_recurrent_walk(&plan, 0, &m, b->scratch, &predicted);
    *out = code ? 0 : predicted.makespan;
    return code;
}

static fcp_code make_layer(recurrent_batch *b, fcp_recurrent *layer, fcp_step_stream *streams, arena *memory,
                           rows_list *rows, recurrent_tables *out, size_t *room) {
    const uint32_t passes = b->plan->problem->passes;
    fcp_code code = FCP_OK;
    if (layer->kind == FCP_HALO) layer->parts = 1;
    for (int pass = 0; pass < FCP_PASSES && !code; pass++) {
        step_list list = {.at = NULL};
        const bool wanted = layer->kind == FCP_SCAN ? (passes >> pass & 1) != 0 : pass == FCP_FORWARD;
        if (wanted && layer->kind == FCP_SCAN) code = recurrent_scan(b, layer, (fcp_pass)pass, &list);
        else if (wanted) code = recurrent_halo(b, layer, rows, &list);
        if (!code) code = write_network(b, &list, streams + (size_t)pass * b->ranks, memory, out, room);
        layer->rounds[pass] = list.rounds;
        layer->bound[pass] = list.bound;
    }
    return code;
}

fcp_code recurrent_make(const fcp_plan *plan, const fcp_recurrent *layers, uint32_t count, arena *memory,
                        arena *scratch, const volatile int *stop, recurrent_tables *out) {
    recurrent_batch b = {.plan = plan,
                         .ranks = plan->problem->ranks,
                         .gpus = plan->problem->gpus,
                         .scratch = scratch,
                         .stop = stop};
    const uint64_t streams = (uint64_t)count * FCP_PASSES * b.ranks;
    sim_profile profile;
    sim_model links;
    fcp_error unheard;
    if (sim_profile_of(plan->cluster, &profile, &unheard)) return FCP_E_PROFILE;
    sim_recurrent_model(plan, &profile, FCP_FORWARD, &links);
    b.links = &links;
    b.ports = ARENA_NEW(scratch, uint64_t, (size_t)b.ranks * FCP_FABRICS * 2);
    rows_list rows = {.memory = memory};
    size_t room = 0;
    *out = (recurrent_tables){.recurrent = ARENA_NEW(memory, fcp_recurrent, count),
                              .recurrent_count = count,
                              .step_streams = ARENA_NEW(memory, fcp_step_stream, (size_t)streams),
                              .step_streams_count = streams};
    if (!out->recurrent || !out->step_streams || !b.ports) return FCP_E_NO_MEMORY;
    if (streams >= FCP_NONE) return FCP_E_PLAN_SIZE;
    memcpy(out->recurrent, layers, count * sizeof *layers);
    fcp_code code = list_stretches(&b);
    for (uint32_t i = 0; i < count && !code; i++) {
        b.asked = &layers[i];
        code = make_layer(&b, &out->recurrent[i], out->step_streams + (size_t)i * FCP_PASSES * b.ranks, memory, &rows,
                          out, &room);
    }
    out->halo_rows = rows.at;
    out->halo_rows_count = rows.count;
    return code;
}

fcp_code recurrent_build(planning *x) {
    const struct fcpc_program *g = x->program;
    recurrent_tables t;
    fcp_error err = {0};
    /* one plan of a program has them; that of another mask only while `auto` compares what they take */
    if (!g->recurrent_count || (g->layer && !x->trial)) return FCP_OK;
    fcp_recurrent *layers = ARENA_NEW(&x->scratch, fcp_recurrent, g->recurrent_count);
    if (!layers) return FCP_E_NO_MEMORY;
    memcpy(layers, g->recurrent, g->recurrent_count * sizeof *layers);
    for (uint32_t i = 0; i < g->recurrent_count; i++) layers[i].parts = 0;
    fcp_code code = fcp_plan_index(x->plan, &err);
    if (code) return code;
    if (!x->plan->self)
        return planning_fail(x, FCP_E_LENGTHS, g->at[AT_RECURRENT],
                             "halo and scan run along tokens, and here some sequence has other keys than queries");
    code = recurrent_make(x->plan, layers, g->recurrent_count, &x->memory, &x->scratch, x->stop, &t);
    if (code == FCP_E_PLAN_SIZE)
        return planning_fail(x, code, g->at[AT_RECURRENT],
                             "the batch is cut into too many stretches: more than %d steps of scans and halos",
                             STEPS_MAX);
    if (code) return code;
    fcp_plan *plan = x->plan;
    plan->recurrent = t.recurrent, plan->recurrent_count = t.recurrent_count;
    plan->step_streams = t.step_streams, plan->step_streams_count = t.step_streams_count;
    plan->steps = t.steps, plan->steps_count = t.steps_count;
    plan->halo_rows = t.halo_rows, plan->halo_rows_count = t.halo_rows_count;
    return FCP_OK;
}
