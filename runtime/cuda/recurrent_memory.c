/* recurrent_memory.c: what layers that recur have on devices: lists of the rows of halos, and memory to work in.
 *
 * What a plan tells of it is made with the ranks, and counted with all else that a session allocates: the lists, and
 * the temporaries of scans. So whether there is room for them is known before the first step. A halo's messages have
 * rows of the caller's, and tensors may lie anywhere: room for these is taken by the first call that needs it.
 *
 * Requires: a verified plan.
 * Cost:     linear in the plan's steps about this rank, and in the rows that they move.
 */
#include "runtime/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/base/grow.h"
#include "runtime/exec/error_place.h"
#include "runtime/exec/recurrent_steps.h"
#include "runtime/plan/layout.h"

/* Puts a rank before the message of an error. */
static fcp_code at_rank(uint32_t rank, fcp_code code, fcp_error *err) {
    return fcp_fail_at(err, code, fcp_where_rank(rank), "rank %u: %.400s", rank, err->message);
}

/* --- rows of halos ------------------------------------------------------------------------------------------------ */

/* Begins the groups of the next step. */
static bool begin_step(cuda_halo_lists *l) {
    if (!FCP_GROW(l->starts, l->start_capacity, l->start_count + UINT64_C(1))) return false;
    l->starts[l->start_count++] = l->group_count;
    return true;
}

static bool begin_group(cuda_halo_lists *l) {
    if (!FCP_GROW(l->groups, l->group_capacity, l->group_count + UINT64_C(1))) return false;
    l->groups[l->group_count++] = (cuda_halo_group){.first = l->run_count};
    return true;
}

/* Adds a run to the group that is being made; or to a new one, if rows of tokens from `tokens` on (FCP_NONE: there are
 * none) are in that group already. */
static bool add_run(cuda_halo_lists *l, uint64_t to, uint64_t from, uint64_t count, uint64_t tokens) {
    bool twice = false;
    for (uint64_t i = 0; tokens != UINT64_MAX && i < count; i++) twice |= l->seen[tokens + i] == l->group_count;
    if (twice && !begin_group(l)) return false;
    for (uint64_t i = 0; tokens != UINT64_MAX && i < count; i++) l->seen[tokens + i] = l->group_count;
    if (!FCP_GROW(l->runs, l->run_capacity, l->run_count + 1)) return false;
    cuda_halo_group *g = &l->groups[l->group_count - 1];
    l->runs[l->run_count++] = (fk_rows_run){.to = to, .from = from, .at = g->rows, .count = count};
    g->rows += count;
    g->count++;
    return true;
}

/* The lists of one layer. written: a byte for each row of the rank's halo, all 0. */
static bool list_layer(const fcp_plan *plan, uint32_t layer, uint32_t rank, uint64_t halo, uint8_t *written,
                       cuda_halo_lists *l) {
    const fcp_step_stream *stream = fcp_steps_of(plan, layer, FCP_FORWARD, rank);
    bool copies = false, well = true;
    l->starts_of[layer] = l->start_count;
    for (uint64_t i = 0; well && i < stream->count; i++) {
        const fcp_step *step = &plan->steps[stream->first + i];
        const fcp_halo_rows *lists = plan->halo_rows;
        well = begin_step(l);
        if (step->op == FCP_STEP_COPY) {
            const fcp_halo_rows *from = &lists[step->a], *to = &lists[step->b];
            if (well && copies) l->starts[l->start_count - 1] = FCP_NONE; /* they are the first COPY's */
            else if (well) well = begin_group(l);
            well = well && add_run(l, to->first, from->first, to->count, from->first);
            memset(written + to->first, 1, to->count);
        } else if (well) {
            const bool sends = step->op == FCP_STEP_SEND;
            uint64_t at = 0;
            well = begin_group(l);
            for (uint32_t j = 0; well && j < step->b; j++) {
                const fcp_halo_rows *x = fcp_step_lists(plan, step) + j;
                well =
                    add_run(l, sends ? at : x->first, sends ? x->first : at, x->count, sends ? x->first : UINT64_MAX);
                if (!sends) memset(written + x->first, 1, x->count);
                at += x->count;
            }
        }
        copies = step->op == FCP_STEP_COPY;
    }
    well = well && begin_step(l) && begin_group(l);
    for (uint64_t row = 0, end; well && row < halo; row = end) {
        for (end = row; end < halo && written[end] == written[row]; end++) {}
        if (!written[row]) well = add_run(l, row, 0, end - row, UINT64_MAX);
    }
    return well && begin_step(l);
}

/* A COPY whose rows are in the groups of an earlier one has none: its start is that of the next step. */
static void close_starts(cuda_halo_lists *l) {
    for (uint32_t i = l->start_count; i-- > 0;)
        if (l->starts[i] == FCP_NONE) l->starts[i] = l->starts[i + 1];
}

void fcp_cuda_recurrent_free(cuda_rank *r) {
    cuda_halo_lists *l = &r->halos;
    free(l->runs);
    free(l->groups);
    free(l->starts);
    free(l->starts_of);
    free(l->seen);
    *l = (cuda_halo_lists){0};
}

static fcp_code make_lists(const fcp_plan *plan, uint32_t rank, cuda_halo_lists *l, fcp_error *err) {
    const uint64_t stretches = fcp_stretches_of(plan, rank, NULL), tokens = fcp_plan_rank_queries(plan, rank);
    uint64_t most = 0;
    for (uint64_t i = 0; i < plan->recurrent_count; i++) {
        const uint64_t each = (uint64_t)plan->recurrent[i].before + plan->recurrent[i].after;
        if (each * stretches > most) most = each * stretches;
    }
    uint8_t *written = malloc(most + 1);
    l->seen = calloc(tokens + 1, sizeof *l->seen);
    l->starts_of = calloc(plan->recurrent_count + 1, sizeof *l->starts_of);
    bool well = written && l->seen && l->starts_of;
    for (uint32_t i = 0; well && i < plan->recurrent_count; i++) {
        const fcp_recurrent *x = &plan->recurrent[i];
        if (x->kind != FCP_HALO) continue;
        memset(written, 0, most);
        well = list_layer(plan, i, rank, ((uint64_t)x->before + x->after) * stretches, written, l);
    }
    if (well) close_starts(l);
    free(written);
    free(l->seen);
    l->seen = NULL;
    return well ? FCP_OK
                : fcp_fail_at(err, FCP_E_NO_MEMORY, fcp_where_rank(rank),
                              "rank %u: out of memory for the rows of halos", rank);
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

bool fcp_cuda_temporaries(const fcp_step_walk *walk, uint64_t *out_bytes) {
    uint64_t bytes = 0;
    const bool fits = walk->layer->kind != FCP_SCAN ||
                      (!__builtin_mul_overflow(walk->temporaries, fcp_temporary_bytes(walk->layer), &bytes) &&
                       bytes <= PTRDIFF_MAX / 8);
    *out_bytes = fits ? fcp_cuda_room(bytes) : 0;
    return fits;
}

fcp_code fcp_cuda_recurrent_plan(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    cuda_rank *r = &s->ranks[index];
    if (!plan->recurrent_count) return FCP_OK;
    for (uint32_t i = 0; i < plan->recurrent_count; i++)
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            if (!(plan->problem->passes >> pass & 1)) continue;
            const fcp_step_walk walk = fcp_step_walk_begin(plan, i, (fcp_pass)pass, index);
            uint64_t bytes;
            if (!fcp_cuda_temporaries(&walk, &bytes))
                return fcp_fail_at(err, FCP_E_NO_MEMORY, fcp_where_rank(index),
                                   "rank %u: the scan of layer %u needs more memory than there is", index, i);
            if (bytes > r->recurring_bytes) r->recurring_bytes = bytes;
        }
    return make_lists(plan, index, &r->halos, err);
}

fcp_code fcp_cuda_recurrent_load(fcp_cuda_session *s, uint32_t index, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    cuda_halo_lists *l = &r->halos;
    fcp_code code = fcp_cuda_keep(s, r->device, l->run_count * sizeof *l->runs, l->runs, "the rows of halos",
                                  &r->kept[CUDA_HALO_RUNS], err);
    if (!code)
        code = fcp_cuda_keep(s, r->device, r->recurring_bytes, NULL, "the temporaries of scans",
                             &r->kept[CUDA_RECURRING], err);
    free(l->runs);
    l->runs = NULL;
    l->run_capacity = 0;
    return code ? at_rank(index, code, err) : FCP_OK;
}

/* What graphs of the caller's work in stays where it is, and the rank works elsewhere from now on. */
static fcp_code grow_beside(fcp_cuda_session *s, cuda_rank *r, size_t bytes, const char *what, fcp_error *err) {
    cuda_memory larger = {0};
    fcp_code code = fcp_cuda_keep(s, r->device, bytes, NULL, what, &larger, err);
    if (code) return code;
    code = fcp_cuda_set_aside(s, r->device, &r->kept[CUDA_RECURRING], err);
    if (code) fcp_cuda_release(s, r->device, larger.at, NULL);
    else r->kept[CUDA_RECURRING] = larger;
    r->in_graphs = code != FCP_OK;
    return code;
}

/* If there is no larger memory, the rank gets back as much as it had: scans rely on that. */
static fcp_code grow_instead(fcp_cuda_session *s, cuda_rank *r, size_t bytes, const char *what, fcp_error *err) {
    cuda_memory *m = &r->kept[CUDA_RECURRING];
    const size_t held = m->held;
    cu_event finished = fcp_cuda_lender(s)->finished;
    fcp_error ignored;
    fcp_code code = FCP_OK;
    if (m->at && finished) {
        code = fcp_cuda_use(s, &s->devices[0], err);
        if (!code) code = fcp_cuda_event_await(s, s->origin, finished, err);
        if (!code) code = fcp_cuda_wait(s, s->origin, "what was run", err);
    }
    if (code) return code;
    code = fcp_cuda_keep(s, r->device, bytes, NULL, what, m, err);
    if (code && !m->at) fcp_cuda_keep(s, r->device, held, NULL, what, m, &ignored);
    return code;
}

fcp_code fcp_cuda_recurrent_grow(fcp_cuda_session *s, uint32_t index, size_t bytes, const char *what, fcp_error *err) {
    cuda_rank *r = &s->ranks[index];
    const fcp_code code = r->in_graphs ? grow_beside(s, r, bytes, what, err) : grow_instead(s, r, bytes, what, err);
    return code ? at_rank(index, code, err) : FCP_OK;
}
