/* compute_queue.c: puts the instructions of a compute queue into the rank's compute stream.
 *
 * Requires: kernels and environment on the rank's device; the rank's arena and work lists there.
 * Method:   a grid has as many CTAs as fit on the SMs at once, or fewer if there is less to do. Attention uses as many
 *           SMs as partition.c gives it. The bits of results do not depend on the size of a grid.
 * Cost:     work lists are made once for a plan, linear in it. An instruction takes one to three launches. For each
 *           accumulator (a sum of dK and dV) that it begins, it also clears memory twice.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/head_ranges.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 };

/* --- work lists --------------------------------------------------------------------------------------------------- */

/* Copies a list behind those that there are. *out_at: where it begins. */
static fcp_code append(cuda_work *w, const void *records, size_t bytes, uint64_t *out_at, fcp_error *err) {
    size_t need = w->size + (bytes + ALIGN - 1) / ALIGN * ALIGN;
    *out_at = w->size;
    if (!bytes) return FCP_OK; /* the first list may be empty, and then there is no memory yet */
    if (need > w->capacity) {
        size_t capacity = need + need / 2 + 4096;
        char *bigger = realloc(w->bytes, capacity);
        if (!bigger) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu bytes of work lists", capacity);
        w->bytes = bigger;
        w->capacity = capacity;
    }
    memset(w->bytes + w->size, 0, need - w->size);
    memcpy(w->bytes + w->size, records, bytes);
    w->size = need;
    return FCP_OK;
}

/* The counters of a forward kernel, all 0. A kernel leaves them so, and nothing else writes there. */
static fcp_code append_counters(cuda_work *w, const fcp_worklists *lists, uint64_t *out_at, fcp_error *err) {
    const size_t count = fcp_worklists_counters(lists);
    fk_u32 *zeros = calloc(count, sizeof *zeros);
    fcp_code code = zeros ? append(w, zeros, count * sizeof *zeros, out_at, err)
                          : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu counters", count);
    free(zeros);
    return code;
}

/* The lists of an ATTEND for a range of heads; or of several ATTENDs, as lists->fusion says. */
static fcp_code add_attend(cuda_rank *rank, fcp_pass pass, const fcp_instr *x, uint32_t instr, uint32_t range,
                           fcp_worklists *lists, fcp_error *err) {
    cuda_work *w = &rank->work[pass];
    cuda_attend *a = &w->attends[w->attend_count++];
    const fcp_arena *arena = &rank->arena[pass];
    fcp_key_order order = fcp_key_order_of(rank->device->backward);
    fcp_code code = FCP_OK;
    *a = (cuda_attend){.instr = instr, .range = range};
    lists->range = range;
    lists->tickets = pass == FCP_FORWARD && rank->device->forward == EMIT_FORWARD_SM90;
    if (pass == FCP_FORWARD || order == FCP_KEYS_ALONE) { /* otherwise dK, dV and dQ are all done by keys */
        code = lists->fusion ? fcp_worklists_rows_fused(lists, arena, err)
                             : fcp_worklists_rows(lists, arena, x->a, x->b, err);
        a->row_count = lists->row_count;
        a->single = lists->single;
        a->counted = fcp_worklists_counters(lists) != 0;
        a->merge_count = lists->merge_count;
        a->split_bytes = lists->split_bytes;
        if (!code && lists->merge_count)
            code = append(w, lists->merges, lists->merge_count * sizeof *lists->merges, &a->merges, err);
        if (!code && a->counted) code = append_counters(w, lists, &a->counters, err);
        if (!code) code = append(w, lists->rows, lists->row_count * sizeof *lists->rows, &a->rows, err);
        if (!code) code = append(w, lists->key_runs, lists->key_run_count * sizeof *lists->key_runs, &a->key_runs, err);
    }
    if (!code && pass == FCP_BACKWARD) {
        code = lists->fusion ? fcp_worklists_keys_fused(lists, arena, order, err)
                             : fcp_worklists_keys(lists, arena, x->a, x->b, order, err);
        a->key_count = lists->key_count;
        a->lock_count = lists->lock_count;
        a->subs = lists->subs;
        if (!code) code = append(w, lists->keys, fcp_worklists_key_bytes(lists), &a->keys, err);
        if (!code) code = append(w, lists->row_runs, lists->row_run_count * sizeof *lists->row_runs, &a->row_runs, err);
    }
    return code;
}

/* Makes room for `count` launches. */
static fcp_code open_attends(cuda_work *w, size_t count, fcp_error *err) {
    w->attends = calloc(count + 1, sizeof *w->attends);
    return w->attends ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu work lists", count);
}

/* How many launches the ATTENDs of a stream are: one for each range of heads that they have. */
static uint32_t count_attends(const fcp_plan *plan, const fcp_stream *stream) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < stream->count; i++) {
        const fcp_instr *x = &plan->instrs[stream->first + i];
        if (x->op != FCP_OP_ATTEND) continue;
        for (uint32_t r = FCP_NONE; (r = fcp_launch_next_range(plan, x->a, x->b, r)) != FCP_NONE;) count++;
    }
    return count;
}

/* The lists of ATTENDs that are one launch for each range of heads, in the place of the first of them. */
static fcp_code add_run(cuda_rank *rank, fcp_pass pass, const fcp_fusion_run *run, fcp_error *err) {
    const fcp_arena *arena = &rank->arena[pass];
    cuda_work *w = &rank->work[pass];
    fcp_fusion fusion = {0};
    fcp_worklists lists = {.fusion = &fusion};
    fcp_code code = fcp_fusion_make(&fusion, arena, run, err);
    for (uint32_t range = 0; !code && range < arena->plan->heads_count; range++) {
        code = add_attend(rank, pass, NULL, run->first, range, &lists, err);
        w->attends[w->attend_count - 1].last = run->last;
        w->attends[w->attend_count - 1].holds = run->holds;
        w->attends[w->attend_count - 1].needs = run->needs;
        w->attends[w->attend_count - 1].round = fcp_fusion_round(arena->plan, pass, arena->rank, run);
    }
    fcp_worklists_free(&lists);
    fcp_fusion_free(&fusion);
    return code;
}

/* The lists of a fused pass. */
static fcp_code make_fused(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err) {
    const uint32_t number = rank->arena[pass].rank;
    const uint32_t flags = fcp_fusion_flags(fcp_stream_of(s->plan, pass, number, FCP_COMM));
    fcp_fusion_run *runs = NULL;
    uint32_t count = 0;
    fcp_code code = fcp_fusion_runs(s->plan, pass, number, &runs, &count, err);
    if (!code) code = open_attends(&rank->work[pass], (size_t)count * s->plan->heads_count, err);
    for (uint32_t i = 0; !code && i < count; i++) code = add_run(rank, pass, &runs[i], err);
    if (flags > rank->flag_words) rank->flag_words = flags;
    free(runs);
    return code;
}

/* The lists of each ATTEND and range of heads. */
static fcp_code make_by_stages(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const fcp_stream *stream,
                               fcp_error *err) {
    fcp_worklists lists = {0};
    fcp_code code = open_attends(&rank->work[pass], count_attends(s->plan, stream), err);
    for (uint32_t i = 0; !code && i < stream->count; i++) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        if (x->op != FCP_OP_ATTEND) continue;
        for (uint32_t r = FCP_NONE; !code && (r = fcp_launch_next_range(s->plan, x->a, x->b, r)) != FCP_NONE;)
            code = add_attend(rank, pass, x, i, r, &lists, err);
    }
    fcp_worklists_free(&lists);
    return code;
}

fcp_code fcp_cuda_work_make(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err) {
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, rank->arena[pass].rank, FCP_COMPUTE);
    cuda_work *w = &rank->work[pass];
    fcp_code code =
        fcp_cuda_fused(s, pass) ? make_fused(s, rank, pass, err) : make_by_stages(s, rank, pass, stream, err);
    for (uint32_t i = 0; i < w->attend_count; i++) {
        size_t words = fcp_worklists_lock_words(w->attends[i].lock_count, rank->arena[pass].heads) + 1;
        if (words < w->attends[i].split_bytes / 4) words = w->attends[i].split_bytes / 4;
        if (words > rank->lock_words) rank->lock_words = words;
    }
    return code;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

/* A small kernel, which is bound by memory and may use all SMs: a CTA for each `per_cta` of `count` things. */
static fcp_code support_in(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, cuda_kernel_id id, fk_support x,
                           uint64_t count, uint64_t per_cta, fcp_error *err) {
    return fcp_cuda_launch(s, rank->device, id, (count + per_cta - 1) / per_cta,
                           (uint32_t)rank->device->multiprocessors, rank->streams[queue], &x, err);
}

/* The same as an instruction of the compute queue: it writes the queue's mark. */
static fcp_code support(fcp_cuda_session *s, cuda_rank *rank, cuda_kernel_id id, fk_support x, uint64_t per_cta,
                        fcp_error *err) {
    x.mark = rank->mark ? fcp_cuda_mark_at(s, rank) : 0;
    x.mark_value = rank->mark;
    return support_in(s, rank, FCP_COMPUTE, id, x, x.count, per_cta, err);
}

fcp_code fcp_cuda_fold_sinks(fcp_cuda_session *s, cuda_rank *rank, fk_support x, fcp_error *err) {
    return support_in(s, rank, FCP_COMM, CUDA_FOLD_SINKS, x, (x.count + FK_FOLD - 1) / FK_FOLD * x.heads,
                      FK_SUPPORT_THREADS, err);
}

fcp_code fcp_cuda_round_sums(fcp_cuda_session *s, cuda_rank *rank, fk_support x, fcp_error *err) {
    return support_in(s, rank, FCP_COMM, CUDA_ROUND_SUMS, x, x.count, FK_SUPPORT_THREADS, err);
}

static fcp_code fill(fcp_cuda_session *s, cuda_rank *rank, const void *to, unsigned word, size_t bytes,
                     fcp_error *err) {
    return fcp_cuda_fill(s, (uintptr_t)to, word, bytes, rank->streams[FCP_COMPUTE], err);
}

/* A launch by work lists, on the SMs that attention may use. */
static fcp_code by_list(fcp_cuda_session *s, const cuda_rank *rank, fcp_pass pass, cuda_kernel_id id, uint64_t pieces,
                        void *parameters, fcp_error *err) {
    return fcp_cuda_launch(s, rank->device, id, pieces, rank->device->attention[pass], rank->streams[FCP_COMPUTE],
                           parameters, err);
}

/* Attention of the forward pass, and then putting together the rows whose keys are in parts. */
static fcp_code attend_forward(fcp_cuda_session *s, cuda_rank *rank, const cuda_attend *a, fk_launch *rows,
                               fcp_error *err) {
    const fcp_arena *arena = &rank->arena[FCP_FORWARD];
    fk_launch_maps maps;
    rows->splits = rank->kept[CUDA_LOCKS].at;
    rows->locks = fcp_cuda_flag_at(rank, 1);
    if (a->counted) rows->counter = rank->kept[CUDA_LISTS + FCP_FORWARD].at + a->counters;
    fcp_code code = by_list(s, rank, FCP_FORWARD, CUDA_FORWARD,
                            fcp_worklists_pieces(a->single, a->row_count, arena->heads),
                            fcp_cuda_with_maps(rank, FCP_FORWARD, CUDA_FORWARD, rows, &maps), err);
    if (code || !a->merge_count) return code;
    fk_launch merge = *rows;
    merge.items = rank->kept[CUDA_LISTS + FCP_FORWARD].at + a->merges;
    merge.item_count = a->merge_count;
    return by_list(s, rank, FCP_FORWARD, CUDA_COMBINE, a->merge_count, &merge, err);
}

/* The parameters of a launch by lists of rows, and of one by lists of keys. */
static void parameters_of(const fcp_cuda_session *s, const cuda_rank *rank, fcp_pass pass, const cuda_attend *a,
                          fk_launch *rows, fk_launch *keys) {
    const cuda_device *d = rank->device;
    const cu_ptr base = rank->kept[CUDA_LISTS + pass].at;
    fcp_launch_parameters(&rank->arena[pass], a->range, rows);
    rows->sequences = d->sequences;
    rows->arrays = d->arrays;
    rows->bands = d->bands;
    rows->sinks = fcp_launch_sinks_of(s->plan, d->sinks, a->range);
    rows->maxima = fcp_cuda_maxima_of(s, rank, pass);
    rows->mark = rank->mark ? fcp_cuda_mark_at(s, rank) : 0;
    rows->mark_value = rank->mark;
    *keys = *rows;
    rows->items = base + a->rows;
    rows->runs = base + a->key_runs;
    rows->item_count = a->row_count;
    rows->subs = a->single;
    keys->items = base + a->keys;
    keys->runs = base + a->row_runs;
    keys->item_count = a->key_count;
    keys->subs = a->subs;
}

fcp_code fcp_cuda_attend_tables(fcp_cuda_session *s, cuda_rank *rank, const cuda_attend *a, fcp_error *err) {
    fk_launch rows, keys;
    parameters_of(s, rank, FCP_BACKWARD, a, &rows, &keys);
    fk_launch_tables x = {keys, rank->kept[CUDA_SUMS].at};
    return by_list(s, rank, FCP_BACKWARD, CUDA_TABLES,
                   fcp_worklists_pieces(fcp_plan_by_head(s->plan), a->key_count, keys.kv_heads) *
                       rank->device->kernels[CUDA_TABLES].parts,
                   &x, err);
}

fcp_code fcp_cuda_attend(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, const cuda_attend *a, fcp_error *err) {
    const cuda_device *d = rank->device;
    const fcp_arena *arena = &rank->arena[pass];
    fk_launch rows, keys;
    fk_launch_maps maps;
    parameters_of(s, rank, pass, a, &rows, &keys);
    if (pass == FCP_FORWARD) return attend_forward(s, rank, a, &rows, err);
    const cuda_kernel_id id = d->backward == EMIT_SPLIT                              ? CUDA_DKV
                              : d->backward & (EMIT_ORDERED | EMIT_ORDERED_SM90) ? CUDA_ORDERED
                                                                                 : CUDA_UNORDERED;
    const size_t words = fcp_worklists_lock_words(a->lock_count, arena->heads) + 1;
    const uint64_t pieces = d->kernels[id].parts * fcp_worklists_key_pieces(fcp_plan_by_head(s->plan), a->key_count,
                                                                            a->subs, arena->kv_heads, keys.group);
    keys.locks = rank->kept[CUDA_LOCKS].at;
    keys.counter = keys.locks + (words - 1) * 4;
    keys.splits = fcp_cuda_flag_at(rank, 1);
    fcp_code code = FCP_OK;
    if (id == CUDA_DKV)
        code = by_list(s, rank, pass, CUDA_DQ,
                       fcp_worklists_pieces(a->single, a->row_count, arena->heads) * d->kernels[CUDA_DQ].parts, &rows,
                       err);
    if (!code && a->key_count) code = fcp_cuda_fill(s, keys.locks, 0, words * 4, rank->streams[FCP_COMPUTE], err);
    void *parameters = fcp_cuda_with_maps(rank, pass, id, &keys, &maps);
    return code ? code : by_list(s, rank, pass, id, pieces, parameters, err);
}

fcp_code fcp_cuda_prepare(fcp_cuda_session *s, cuda_rank *rank, fcp_pass pass, fcp_error *err) {
    const fcp_problem *p = s->plan->problem;
    const fcp_arena *a = &rank->arena[pass];
    const uint64_t *queries = a->home_first[FCP_QUERIES];
    const size_t rows = queries[a->homes] * a->heads, keys = a->home_first[FCP_KEYS][a->homes] * a->kv_heads;
    fcp_code code;
    if (pass == FCP_BACKWARD) {
        code = fill(s, rank, a->dq, 0, rows * p->head_dim * sizeof *a->dq, err);
        if (!code) code = fill(s, rank, a->dk, 0, keys * p->head_dim * sizeof *a->dk, err);
        return code ? code : fill(s, rank, a->dv, 0, keys * p->value_dim * sizeof *a->dv, err);
    }
    code = fill(s, rank, a->o, 0, rows * p->value_dim * fcp_dtype_size((fcp_dtype)p->dtype), err);
    if (!code && !rank->device->sinks) code = fill(s, rank, a->lse_low, 0, rows * sizeof *a->lse_low, err);
    if (code) return code;
    if (!rank->device->sinks) return fill(s, rank, a->lse, 0xff800000u, rows * sizeof *a->lse, err); /* -inf */
    for (uint32_t from = 0, to; !code && from < a->homes; from = to) { /* neighbours of one range of heads */
        const uint32_t range = s->plan->blocks[a->home_block[from]].heads;
        for (to = from + 1; to < a->homes && s->plan->blocks[a->home_block[to]].heads == range;) to++;
        fk_support x = {.to = (uintptr_t)(a->lse + queries[from] * a->heads), .heads = a->heads,
                        .lse_low = (uintptr_t)(a->lse_low + queries[from] * a->heads),
                        .from = fcp_launch_sinks_of(s->plan, rank->device->sinks, range),
                        .count = (queries[to] - queries[from]) * a->heads};
        code = support(s, rank, CUDA_BEGIN_LSE, x, FK_SUPPORT_THREADS, err);
    }
    return code;
}

fcp_code fcp_cuda_delta(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err) {
    const fcp_arena *a = &rank->arena[FCP_BACKWARD];
    const uint64_t *tokens = a->home_first[FCP_QUERIES];
    uint64_t first = tokens[x->a] * a->heads, bytes = s->plan->problem->value_dim * sizeof(uint16_t);
    fk_support rows = {.to = (uintptr_t)(a->delta + first),
                       .from = (uintptr_t)a->o + first * bytes,
                       .other = (uintptr_t)a->d_o + first * bytes,
                       .d_lse = a->d_lse ? (uintptr_t)(a->d_lse + first) : 0,
                       .count = tokens[x->a + x->b] * a->heads - first};
    return support(s, rank, CUDA_DELTA, rows, FK_SUPPORT_THREADS / 32, err);
}

/* Copies numbers of float from one place of the arena to another, or adds them there. */
static fcp_code put(fcp_cuda_session *s, cuda_rank *rank, bool copy, const void *to, const void *from, uint64_t count,
                    fcp_error *err) {
    if (copy)
        return fcp_cuda_copy(s, rank->device, (uintptr_t)to, rank->device, (uintptr_t)from, count * sizeof(float),
                             rank->streams[FCP_COMPUTE], err);
    fk_support add = {.to = (uintptr_t)to, .from = (uintptr_t)from, .count = count};
    return support(s, rank, CUDA_ADD, add, CUDA_PAIRS, err);
}

/* Merges a state into another, or puts it where there is none yet. */
static fcp_code merge(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, bool first, fcp_error *err) {
    const fcp_arena *a = &rank->arena[FCP_FORWARD];
    uint64_t rows = (uint64_t)s->plan->blocks[x->a].tokens * a->heads;
    float *from[3], *to[3];
    fcp_arena_state(a, x->b, &from[0], &from[1], &from[2]);
    fcp_arena_state(a, x->c, &to[0], &to[1], &to[2]);
    if (!first) {
        fk_support merge = {.to = (uintptr_t)to[0], .from = (uintptr_t)from[0], .count = rows,
                            .other = (uint64_t)s->plan->problem->max_q_block * a->heads};
        return support(s, rank, CUDA_MERGE, merge, FK_SUPPORT_THREADS / 32, err);
    }
    fcp_code code = put(s, rank, true, to[0], from[0], rows * s->plan->problem->value_dim, err);
    for (int i = 1; !code && i < 3; i++) code = put(s, rank, true, to[i], from[i], rows, err);
    return code;
}

fcp_code fcp_cuda_reduce(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err) {
    const fcp_arena *a = &rank->arena[FCP_BACKWARD];
    const fcp_problem *p = s->plan->problem;
    const uint64_t tokens = s->plan->blocks[x->a].tokens;
    bool first = fcp_partials_reduce(&rank->partials, x);
    /* a copy writes no mark of its own */
    fcp_code code = first ? fcp_cuda_mark(s, rank, FCP_COMPUTE, rank->mark, err) : FCP_OK;
    if (code) return code;
    if (x->op == FCP_OP_MERGE) return merge(s, rank, x, first, err);
    if (x->op == FCP_OP_REDUCE_Q)
        return put(s, rank, first, fcp_arena_rows(a, x->c).dq, fcp_arena_rows(a, x->b).dq,
                   tokens * a->heads * p->head_dim, err);
    const uint64_t dims[2] = {p->head_dim, p->value_dim};
    float *from[2], *to[2];
    fcp_arena_dkv(a, x->b, &from[0], &from[1]);
    fcp_arena_dkv(a, x->c, &to[0], &to[1]);
    for (int i = 0; !code && i < 2; i++)
        code = put(s, rank, first, to[i], from[i], tokens * a->kv_heads * dims[i], err);
    return code;
}

fcp_code fcp_cuda_make_result(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err) {
    const fcp_arena *a = &rank->arena[x->op == FCP_OP_FINISH ? FCP_FORWARD : FCP_BACKWARD];
    const fcp_block *block = &s->plan->blocks[x->a];
    uint64_t rows = (uint64_t)block->tokens * a->heads;
    fcp_partials_finished(&rank->partials, x);
    if (x->op == FCP_OP_ROUND) {
        fk_support round = {.to = (uintptr_t)fcp_arena_rows(a, x->c).dq_out,
                            .from = (uintptr_t)fcp_arena_rows(a, x->b).dq,
                            .count = rows * s->plan->problem->head_dim};
        return support(s, rank, CUDA_ROUND, round, CUDA_PAIRS, err);
    }
    const fcp_problem *p = s->plan->problem;
    float *o, *m, *l;
    fcp_rows_at into = fcp_arena_rows(a, fcp_finish_slot(s->plan, a->rank, x));
    fcp_arena_state(a, x->b, &o, &m, &l);
    fk_support finish = {.to = (uintptr_t)into.o, .lse = (uintptr_t)into.lse, .lse_low = (uintptr_t)into.lse_low,
                         .from = (uintptr_t)o, .other = (uint64_t)p->max_q_block * a->heads, .count = rows,
                         .sinks = fcp_launch_sinks_of(s->plan, rank->device->sinks, block->heads), .heads = a->heads,
                         .maxima = fcp_cuda_maxima_of(s, rank, FCP_FORWARD),
                         .model_head = fcp_model_head(p, &s->plan->heads[block->heads], 0),
                         .group = a->heads / a->kv_heads, .shared = p->heads / p->kv_heads};
    return support(s, rank, CUDA_STATE_OUT, finish, FK_SUPPORT_THREADS / 32, err);
}

fcp_code fcp_cuda_open_accumulators(fcp_cuda_session *s, cuda_rank *rank, const fcp_instr *x, fcp_error *err) {
    const fcp_problem *p = s->plan->problem;
    const fcp_arena *a = &rank->arena[FCP_BACKWARD];
    fcp_partials_walk walk = {0};
    fcp_partial sum;
    fcp_code code = FCP_OK;
    while (!code && fcp_partials_next(&rank->partials, s->plan, x, &walk, &sum)) {
        const size_t heads = (size_t)sum.tokens * (sum.cls == FCP_DQ ? a->heads : a->kv_heads);
        const size_t wide = heads * p->head_dim * sizeof(float);
        if (sum.cls == FCP_DQ) {
            code = fill(s, rank, fcp_arena_rows(a, sum.slot).dq, 0, wide, err);
            continue;
        }
        float *dk, *dv;
        fcp_arena_dkv(a, sum.slot, &dk, &dv);
        code = fill(s, rank, dk, 0, wide, err);
        if (!code) code = fill(s, rank, dv, 0, heads * p->value_dim * sizeof(float), err);
    }
    return code;
}

/* Rounds numbers [first, end) of an accumulator to the input type, in a queue's stream. It writes no mark. */
static fcp_code round_part(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, const void *to, const float *from,
                           uint64_t first, uint64_t end, fcp_error *err) {
    const fk_support x = {.to = (uintptr_t)to + first * sizeof(uint16_t), .from = (uintptr_t)(from + first),
                          .count = end - first};
    return support_in(s, rank, queue, CUDA_ROUND, x, x.count, CUDA_PAIRS, err);
}

/* Rounds the dQ of home slots [first, end), but of those blocks that get it rounded. */
static fcp_code round_queries(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, uint32_t first, uint32_t end,
                              fcp_error *err) {
    const fcp_arena *a = &rank->arena[FCP_BACKWARD];
    const uint64_t *queries = a->home_first[FCP_QUERIES], q = (uint64_t)a->heads * s->plan->problem->head_dim;
    fcp_code code = FCP_OK;
    for (uint32_t from = first, to; !code && from < end; from = to) {
        bool whole = s->plan->blocks[a->home_block[from]].flags & FCP_BLOCK_WHOLE;
        for (to = from + 1; to < end && !(s->plan->blocks[a->home_block[to]].flags & FCP_BLOCK_WHOLE) == !whole;) to++;
        if (!whole) code = round_part(s, rank, queue, a->dq_out, a->dq, queries[from] * q, queries[to] * q, err);
    }
    return code;
}

fcp_code fcp_cuda_finish(fcp_cuda_session *s, cuda_rank *rank, fcp_queue queue, bool early, fcp_error *err) {
    const fcp_arena *a = &rank->arena[FCP_BACKWARD];
    const uint8_t *is_early = rank->early[FCP_BACKWARD].slots;
    const fcp_problem *p = s->plan->problem;
    const uint64_t k = (uint64_t)a->kv_heads * p->head_dim, v = (uint64_t)a->kv_heads * p->value_dim;
    fcp_code code = FCP_OK;
    for (uint32_t first = 0, end; !code && first < a->homes; first = end) {
        bool now = (is_early && is_early[first]) == early;
        for (end = first + 1; end < a->homes && (is_early && is_early[end]) == (is_early && is_early[first]);) end++;
        if (!now) continue;
        const uint64_t *keys = a->home_first[FCP_KEYS];
        code = round_queries(s, rank, queue, first, end, err);
        if (!code) code = round_part(s, rank, queue, a->dk_out, a->dk, keys[first] * k, keys[end] * k, err);
        if (!code) code = round_part(s, rank, queue, a->dv_out, a->dv, keys[first] * v, keys[end] * v, err);
    }
    return code;
}
