/* host.c: the host backend, which computes on the processor that this program runs on, with OpenBLAS for matrix
 * products.
 *
 * Requires: a verified plan.
 * Cost:     memory of a worker: about 3 MiB, plus 4 KiB for each unit of head_dim and 3 KiB for each of value_dim; half
 *           a MiB more for a score whose slope is not 1. blas.h says what OpenBLAS takes.
 */
#include "runtime/host/host.h"
#include "runtime/plan/head_ranges.h"

#include <math.h>
#include <stdlib.h>

#include "runtime/host/blas.h"

enum { LINE = 64 }; /* bytes; a worker's memory begins on one */

static void host_close(fcp_device *device) {
    fcp_host *host = (fcp_host *)device;
    for (uint32_t i = 0; i < host->base.workers; i++) {
        fcp_work_free(&host->workers[i].work);
        fcp_maskcells_free(host->workers[i].mask);
        fcp_host_score_close(&host->workers[i].score);
        fcp_host_tables_close(&host->workers[i].tables);
        free(host->workers[i].memory);
        free(host->workers[i].arrays);
        free(host->workers[i].bands);
    }
    fcp_table_reads_free(host->reads);
    free(host);
}

static bool open_worker(fcp_host_worker *w, const fcp_plan *plan) {
    size_t d = plan->problem->head_dim, value = plan->problem->value_dim, tile = (size_t)FCP_STRIP * FCP_JOB;
    size_t total = (2 * FCP_STRIP + FCP_JOB) * d + (FCP_STRIP + FCP_JOB + 1) * value + 2 * tile + (size_t)5 * FCP_STRIP;
    if (d > SIZE_MAX / sizeof(float) / 8 / FCP_JOB || value > SIZE_MAX / sizeof(float) / 8 / FCP_JOB) return false;
    w->mask = fcp_maskcells_new((mc_code){plan->mask, (uint32_t)plan->mask_count});
    w->arrays = calloc(plan->arrays_count + 1, sizeof *w->arrays);
    w->bands = calloc(plan->slices_count + 1, sizeof *w->bands);
    bool scored = fcp_host_score_open(&w->score, plan, tile);
    w->memory = calloc(total * sizeof(float) + LINE, 1); /* pages that no tile of a small plan reaches stay untouched */
    if (!scored || !w->mask || !w->arrays || !w->bands || !w->memory) return false;
    float *at = (float *)(((uintptr_t)w->memory + LINE - 1) / LINE * LINE);
    w->s = at, at += tile;
    w->dp = at, at += tile;
    w->q = at, at += FCP_STRIP * d;
    w->o = at, at += FCP_STRIP * value;
    w->dq = at, at += FCP_STRIP * d;
    w->k = at, at += FCP_JOB * d;
    w->v = at, at += FCP_JOB * value;
    w->m = at, at += FCP_STRIP;
    w->l = at, at += FCP_STRIP;
    w->lse = at, at += FCP_STRIP;
    w->lse_low = at, at += FCP_STRIP;
    w->delta = at, at += FCP_STRIP;
    w->row = at;
    return true;
}

static fcp_code host_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err) {
    fcp_code code = fcp_blas_load(err);
    if (code != FCP_OK) return code;
    fcp_host *host = calloc(1, sizeof *host + workers * sizeof *host->workers);
    if (!host) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u workers", workers);
    host->base = (fcp_device){&fcp_backend_host, plan, workers};
    for (uint32_t i = 0; i < workers; i++) {
        host->workers[i].device = &host->base;
        if (!open_worker(&host->workers[i], plan)) {
            host_close(&host->base);
            return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for worker %u of %u", i, workers);
        }
    }
    *out_device = &host->base;
    return FCP_OK;
}

static fcp_code host_allocate(fcp_device *device, size_t bytes, void **out_memory, fcp_error *err) {
    (void)device;
    if (posix_memalign(out_memory, LINE, bytes ? bytes : 1) == 0) return FCP_OK;
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for an arena of %zu bytes", bytes);
}

static void host_release(fcp_device *device, void *memory) {
    (void)device;
    free(memory);
}

static fcp_code host_learn(fcp_device *device, fcp_error *err) {
    fcp_host *host = (fcp_host *)device;
    fcp_code code = host->reads ? FCP_OK : fcp_table_reads_make(device->plan, &host->reads, err);
    for (uint32_t i = 0; i < device->workers && !code; i++)
        if (!fcp_host_tables_open(&host->workers[i].tables, host->reads))
            code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the gradients of tables");
    return code;
}

static fcp_code host_enter(fcp_device *device, fcp_error *err) { return fcp_blas_open(device->workers, err); }
static void host_leave(fcp_device *device) { fcp_blas_close(device->workers); }

static void host_copy(fcp_device *device, void *dst, const void *src, size_t bytes) {
    (void)device;
    if (bytes) memcpy(dst, src, bytes);
}

static void host_clear(fcp_device *device, void *dst, size_t bytes) {
    (void)device;
    if (bytes) memset(dst, 0, bytes);
}

static void host_reduce(fcp_device *device, float *dst, const float *src, size_t count, bool first) {
    if (first) host_copy(device, dst, src, count * sizeof *dst);
    else fcp_rows_add(dst, src, count);
}

static void host_prepare(fcp_device *device, const fcp_arena *a) {
    const fcp_problem *p = a->plan->problem;
    size_t rows = a->home_first[FCP_QUERIES][a->homes] * a->heads;
    size_t keys = a->home_first[FCP_KEYS][a->homes] * a->kv_heads;
    if (a->pass == FCP_FORWARD) {
        const bool sink = a->plan->sink_count;
        host_clear(device, a->o, rows * p->value_dim * fcp_dtype_size((fcp_dtype)p->dtype));
        host_clear(device, a->lse_low, rows * sizeof *a->lse_low);
        for (uint32_t i = 0; a->max_logit && i < p->heads; i++) a->max_logit[i] = -INFINITY;
        for (size_t i = 0; !sink && i < rows; i++) a->lse[i] = -INFINITY;
        for (uint32_t slot = 0; sink && slot < a->homes; slot++) {
            const fcp_heads *range = &a->plan->heads[a->plan->blocks[a->home_block[slot]].heads];
            float *lse = a->lse + a->home_first[FCP_QUERIES][slot] * a->heads;
            float *end = a->lse + a->home_first[FCP_QUERIES][slot + 1] * a->heads;
            while (lse < end)
                for (uint32_t i = 0; i < a->heads; i++) *lse++ = (float)fcp_arena_sink(a, fcp_model_head(p, range, i));
        }
        return;
    }
    host_clear(device, a->dq, rows * p->head_dim * sizeof *a->dq);
    host_clear(device, a->dk, keys * p->head_dim * sizeof *a->dk);
    if (!p->values_in_keys) host_clear(device, a->dv, keys * p->value_dim * sizeof *a->dv);
    if (a->d_sink) host_clear(device, a->d_sink, p->heads * sizeof *a->d_sink);
}

/* What the rows of a home slot, whose deltas are known, add to the gradients of the sinks. */
static void sink_gradients(const fcp_arena *a, uint32_t slot) {
    const fcp_heads *range = &a->plan->heads[a->plan->blocks[a->home_block[slot]].heads];
    const uint64_t *tokens = a->home_first[FCP_QUERIES];
    for (uint32_t i = 0; i < a->heads; i++) {
        const uint32_t head = fcp_model_head(a->plan->problem, range, i);
        const double z = fcp_arena_sink(a, head);
        double sum = 0;
        for (size_t at = tokens[slot] * a->heads + i; at < tokens[slot + 1] * a->heads; at += a->heads)
            sum += exp(z - (double)a->lse[at] - (double)a->lse_low[at]) * (double)a->delta[at];
        a->d_sink[head] -= (float)sum;
    }
}

static void host_delta(fcp_device *device, uint32_t worker, const fcp_arena *a, uint32_t first, uint32_t count) {
    const fcp_problem *p = a->plan->problem;
    fcp_host_worker *w = &((fcp_host *)device)->workers[worker];
    fcp_dtype dtype = (fcp_dtype)p->dtype;
    const uint64_t *tokens = a->home_first[FCP_QUERIES];
    const size_t row_bytes = p->value_dim * fcp_dtype_size(dtype);
    for (uint32_t slot = first; slot < first + count && !fcp_device_over(device); slot++) {
        for (size_t i = tokens[slot] * a->heads; i < tokens[slot + 1] * a->heads; i++) {
            fcp_to_float(dtype, (const char *)a->o + i * row_bytes, w->row, p->value_dim);
            fcp_to_float(dtype, (const char *)a->d_o + i * row_bytes, w->o, p->value_dim);
            a->delta[i] = fcp_rows_dot(w->row, w->o, p->value_dim) - (a->d_lse ? a->d_lse[i] : 0);
        }
        if (a->d_sink) sink_gradients(a, slot);
    }
}

static fcp_code host_attend(fcp_device *device, uint32_t worker, const fcp_arena *a, uint32_t first, uint32_t count,
                            uint32_t head, uint32_t heads, fcp_error *err) {
    fcp_host_worker *w = &((fcp_host *)device)->workers[worker];
    fcp_code code = FCP_OK;
    fcp_blas_enter();
    for (uint32_t i = first; code == FCP_OK && i < first + count; i++) {
        const fcp_visit *visit = &a->plan->visits[i];
        code = a->pass == FCP_FORWARD ? fcp_host_forward(w, a, visit, head, heads)
                                      : fcp_host_backward(w, a, visit, head, heads);
    }
    fcp_blas_leave();
    if (code == FCP_E_NO_MEMORY) return fcp_fail(err, code, "out of memory for the work list of a visit");
    return code ? fcp_fail(err, code, "interrupted") : FCP_OK;
}

static void host_merge(fcp_device *device, const fcp_arena *a, uint32_t block, uint32_t from, uint32_t into) {
    (void)device;
    float *o[2], *m[2], *l[2];
    fcp_arena_state(a, into, &o[0], &m[0], &l[0]);
    fcp_arena_state(a, from, &o[1], &m[1], &l[1]);
    fcp_rows_merge((size_t)a->plan->blocks[block].tokens * a->heads, a->plan->problem->value_dim, o[0], m[0], l[0],
                   o[1], m[1], l[1]);
}

static void host_finish_state(fcp_device *device, uint32_t worker, const fcp_arena *a, uint32_t block, uint32_t state,
                              uint32_t into) {
    fcp_host_end(&((fcp_host *)device)->workers[worker], a, block, state, into);
}

static void host_round(fcp_device *device, const fcp_arena *a, uint32_t block, uint32_t from, uint32_t into) {
    (void)device;
    const fcp_problem *p = a->plan->problem;
    fcp_from_float((fcp_dtype)p->dtype, fcp_arena_rows(a, from).dq, fcp_arena_rows(a, into).dq_out,
                   (size_t)a->plan->blocks[block].tokens * a->heads * p->head_dim);
}

static void host_finish(fcp_device *device, const fcp_arena *a, uint32_t block, uint32_t first, uint32_t tokens) {
    (void)device;
    const fcp_problem *p = a->plan->problem;
    const fcp_block *b = &a->plan->blocks[block];
    fcp_dtype dtype = (fcp_dtype)p->dtype;
    size_t e = fcp_dtype_size(dtype), q = (size_t)a->heads * p->head_dim, k = (size_t)a->kv_heads * p->head_dim;
    size_t q_at = (a->home_first[FCP_QUERIES][b->home_slot] + first) * q, v = (size_t)a->kv_heads * p->value_dim;
    size_t k_at = (a->home_first[FCP_KEYS][b->home_slot] + first) * k;
    size_t v_at = (a->home_first[FCP_KEYS][b->home_slot] + first) * v;
    if (b->holds & FCP_HOLDS_Q && !(b->flags & FCP_BLOCK_WHOLE))
        fcp_from_float(dtype, a->dq + q_at, (char *)a->dq_out + q_at * e, tokens * q);
    if (!(b->holds & FCP_HOLDS_KV)) return;
    fcp_from_float(dtype, a->dk + k_at, (char *)a->dk_out + k_at * e, tokens * k);
    if (!p->values_in_keys) fcp_from_float(dtype, a->dv + v_at, (char *)a->dv_out + v_at * e, tokens * v);
}

const fcp_backend fcp_backend_host = {
    .name = "host",
    .open = host_open,
    .close = host_close,
    .allocate = host_allocate,
    .release = host_release,
    .learn = host_learn,
    .enter = host_enter,
    .leave = host_leave,
    .copy = host_copy,
    .clear = host_clear,
    .reduce = host_reduce,
    .prepare = host_prepare,
    .delta = host_delta,
    .attend = host_attend,
    .merge = host_merge,
    .finish_state = host_finish_state,
    .round = host_round,
    .finish = host_finish,
};
