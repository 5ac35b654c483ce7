/* device.c: implements the backends that execute a plan's kernels as PTX (device.h).
 *
 * Requires: NVRTC; a plan of fp16 or bf16 with a head_dim that has kernels.
 * Method:   as the runtime on devices, it compiles the sources of each pass, makes the environment and the work lists
 *           of visits, and launches the kernels. The grid is drawn anew for each launch, and is often smaller than the
 *           work, so that CTAs do several items.
 */
#define _GNU_SOURCE
#include "runtime/plan/head_ranges.h"
#include "tests/machines/ptx/device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/host/sums.h"
#include "runtime/jit/kernel_source.h"
#include "runtime/worklists/worklists.h"
#include "tests/machines/ptx/async.h"
#include "tests/machines/ptx/compile.h"
#include "tests/machines/ptx/ptx.h"
#include "tests/machines/tables.h"

enum { RESIDENT = 3, RANGES = 16, LATE = 6 };

typedef struct worker {
    fcp_worklists work;
    machine_room locks;
    char *sums; /* of the gradients of tables; NULL: none were wanted yet */
    uint64_t launches;
    /* While a fused launch runs: its arrivals, the bytes of KV and Q, and of what comes with Q, that are still to come,
     * and flags. */
    fcp_fusion fusion;
    struct late {
        uint32_t *arrivals;       /* [count], of slots: the flag before which it comes; 0: it is there */
        char *slots, *sent;
        uint64_t bytes, count;    /* bytes: of a slot */
    } late[LATE];
    uint32_t *flags, flag_count, arrived;
} worker;

typedef struct device {
    fcp_device base;
    ptx_module *modules[FCP_PASSES];
    emit_kernel kernels[FCP_PASSES * EMIT_KERNELS]; /* the small ones are in both passes' modules */
    uint32_t kernel_count;
    unsigned backward; /* its skeleton */
    bool fused;        /* ATTENDs are one launch where they can be, but not in a backward pass of two kernels */
    bool sm90;         /* the forward skeleton is that for sm_90a */
    plan_tables tables;
    worker workers[];
} device;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char trouble[PTX_ERROR + 100];
static ptx_change change;
static const char *definitions = "";
static ptx_waits waits[FCP_PASSES];
static unsigned changes;
static uint64_t salt;
static bool fuse;

static void note(const char *text) {
    pthread_mutex_lock(&lock);
    if (!*trouble) snprintf(trouble, sizeof trouble, "%s", text);
    pthread_mutex_unlock(&lock);
}
void ptx_device_trouble(char *text, size_t room) {
    pthread_mutex_lock(&lock);
    snprintf(text, room, "%s", trouble);
    *trouble = 0;
    pthread_mutex_unlock(&lock);
}
unsigned ptx_device_change(const ptx_change *next) {
    unsigned made = changes;
    change = next ? *next : (ptx_change){0};
    changes = 0;
    return made;
}

void ptx_device_fuse(bool fused) { fuse = fused; }

void ptx_device_seed(uint64_t seed) { salt = seed; }

void ptx_device_define(const char *lines) { definitions = lines; }

void ptx_device_waits(fcp_pass pass, ptx_waits *out) {
    *out = waits[pass];
    waits[pass] = (ptx_waits){0};
}

/* Copies a variable of a module, if it has it and there is room. */
static bool keep(const ptx_module *m, const char *name, void *to, size_t room) {
    const ptx_range *x = ptx_module_global(m, name);
    if (x && x->end - x->begin <= room) memcpy(to, (const void *)(uintptr_t)x->begin, x->end - x->begin);
    return x != NULL;
}

static void keep_waits(const ptx_module *m, fcp_pass pass) {
    static const char *const passes[FCP_PASSES] = {"forward", "backward"};
    ptx_waits *w = &waits[pass];
    char name[60];
    if (!m || w->gave_up[0]) return;
    bool watched = keep(m, "fk_gave_up", w->gave_up, sizeof w->gave_up);
    watched |= keep(m, "fk_waited", w->waited, sizeof w->waited);
    if (!watched) return;
    keep(m, "fk_first_mbarrier", &w->names.first, sizeof w->names.first);
    const struct {
        const char *what;
        char *to;
        size_t room;
    } names[] = {{"mbarriers", w->names.mbarriers, sizeof w->names.mbarriers},
                 {"barriers", w->names.barriers, sizeof w->names.barriers},
                 {"roles", w->names.roles, sizeof w->names.roles}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(name, sizeof name, "fk_%s_%s", passes[pass], names[i].what);
        keep(m, name, names[i].to, names[i].room);
    }
}

/* Returns the changed text, and frees the one that was given. */
static char *changed(char *text) {
    char entry[100];
    snprintf(entry, sizeof entry, ".entry %s(", change.kernel ? change.kernel : "");
    char *from = change.find ? strstr(text, entry) : NULL, *end = from ? strstr(from, "\n}\n") : NULL;
    if (!end) return text;
    if (change.edit) {
        int n = 0;
        char *at = strstr(from, change.find);
        while (at && at < end && n++ < change.which) at = strstr(at + 1, change.find);
        char *edited = at && at < end ? change.edit(text, at) : NULL;
        if (!edited) return text;
        changes++;
        free(text);
        return edited;
    }
    size_t old = strlen(change.find), new = strlen(change.replace), size = strlen(text), count = 0;
    for (char *at = from; (at = strstr(at, change.find)) && at < end; at += old) count++;
    char *out = malloc(size + count * new + 1), *to = out;
    if (!out) return text;
    memcpy(to, text, (size_t)(from - text));
    to += from - text;
    int n = 0;
    for (char *at; (at = strstr(from, change.find)) && at < end; from = at + old) {
        memcpy(to, from, (size_t)(at - from));
        to += at - from;
        bool now = change.which < 0 || n == change.which;
        n++;
        memcpy(to, now ? change.replace : change.find, now ? new : old);
        to += now ? new : old;
        changes += now;
    }
    strcpy(to, from);
    free(text);
    return out;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static void ptx_close(fcp_device *base) {
    device *d = (device *)base;
    for (uint32_t i = 0; i < d->base.workers; i++) {
        fcp_worklists_free(&d->workers[i].work);
        free(d->workers[i].locks.at);
        free(d->workers[i].sums);
    }
    for (int pass = 0; pass < FCP_PASSES; pass++) keep_waits(d->modules[pass], (fcp_pass)pass);
    for (int pass = 0; pass < FCP_PASSES; pass++) ptx_module_free(d->modules[pass]);
    tables_free(&d->tables);
    free(d);
}

static bool is_fused(const device *d, int pass) {
    return d->fused && (pass == FCP_FORWARD || d->backward != EMIT_SPLIT);
}

static fcp_code open_module(device *d, int pass, unsigned skeletons, const char *target, fcp_error *err) {
    char *kernels, *source = NULL, *text, why[PTX_ERROR];
    fcp_code code = fcp_kernel_source(d->base.plan, skeletons, is_fused(d, pass), &kernels, err);
    if (code) return code;
    if (asprintf(&source, "%s%s", definitions, kernels) < 0) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code) code = ptx_compile(source, target, &text, err);
    free(kernels);
    free(source);
    if (code) return code;
    text = changed(text);
    d->modules[pass] = ptx_module_new(text, why);
    free(text);
    const fcp_problem *p = d->base.plan->problem;
    d->kernel_count += emit_kernels_of(p->head_dim, p->value_dim, d->base.plan->score_count != 0, skeletons,
                                       d->kernels + d->kernel_count);
    return d->modules[pass] ? FCP_OK : fcp_fail(err, FCP_E_INTERNAL, "PTX: %s", why);
}

static fcp_code open_device(const fcp_backend *backend, unsigned backward, const char *target, const fcp_plan *plan,
                            uint32_t workers, fcp_device **out_device, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    fcp_code code = fcp_kernel_check(plan, err);
    if (code) return code;
    device *d = calloc(1, sizeof *d + workers * sizeof *d->workers);
    if (!d) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    d->base = (fcp_device){backend, plan, workers};
    d->fused = fuse;
    const bool sm_90a = backward & EMIT_BACKWARD_SM90, deterministic = backward & (EMIT_ORDERED | EMIT_ORDERED_SM90);
    const unsigned forward = emit_forward(p->head_dim, p->value_dim, sm_90a);
    d->backward = backward == EMIT_SPLIT ? backward : emit_backward(p->head_dim, p->value_dim, deterministic, sm_90a);
    d->backward |= backward & EMIT_ONE_BUFFER;
    d->sm90 = forward == EMIT_FORWARD_SM90;
    if (!tables_make(plan, &d->tables)) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code && p->passes >> FCP_FORWARD & 1) code = open_module(d, FCP_FORWARD, forward | EMIT_SUPPORT, target, err);
    if (!code && p->passes >> FCP_BACKWARD & 1)
        code = open_module(d, FCP_BACKWARD, d->backward | EMIT_SUPPORT | (fcp_kernel_sums(plan) ? EMIT_TABLES : 0),
                           target, err);
    if (code) {
        ptx_close(&d->base);
        return code;
    }
    *out_device = &d->base;
    return FCP_OK;
}
static fcp_code ptx_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    return open_device(&ptx_backend, EMIT_SPLIT, "compute_80", plan, workers, out, err);
}
static fcp_code ptx_ordered_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    return open_device(&ptx_ordered_backend, EMIT_ORDERED, "compute_80", plan, workers, out, err);
}
static fcp_code ptx_one_buffer_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    return open_device(&ptx_one_buffer_backend, EMIT_ORDERED | EMIT_ONE_BUFFER, "compute_86", plan, workers, out, err);
}
static fcp_code ptx_unordered_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    return open_device(&ptx_unordered_backend, EMIT_UNORDERED, "compute_80", plan, workers, out, err);
}
static fcp_code ptx_sm100_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    return open_device(&ptx_sm100_backend, EMIT_UNORDERED, "compute_100", plan, workers, out, err);
}
static fcp_code ptx_sm90_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    return open_device(&ptx_sm90_backend, EMIT_ORDERED_SM90, "compute_90a", plan, workers, out, err);
}
static fcp_code ptx_unordered_sm90_open(const fcp_plan *plan, uint32_t workers, fcp_device **out, fcp_error *err) {
    return open_device(&ptx_unordered_sm90_backend, EMIT_UNORDERED_SM90, "compute_90a", plan, workers, out, err);
}

static fcp_code ptx_learn(fcp_device *base, fcp_error *err) {
    return fcp_kernel_sums(base->plan) ? FCP_OK : fcp_fail(err, FCP_E_TENSOR, "the score reads no tables of reals");
}

/* --- memory: the host's ------------------------------------------------------------------------------------------- */

static fcp_code ptx_allocate(fcp_device *base, size_t bytes, void **out_memory, fcp_error *err) {
    fcp_code code = fcp_backend_host.allocate(base, bytes, out_memory, err);
    if (code == FCP_OK) memset(*out_memory, 0xff, bytes); /* NaN: what nobody writes must not be read */
    return code;
}
static void ptx_release_memory(fcp_device *base, void *memory) { fcp_backend_host.release(base, memory); }
static fcp_code ptx_enter(fcp_device *base, fcp_error *err) {
    (void)base, (void)err;
    return FCP_OK;
}
static void ptx_leave(fcp_device *base) { (void)base; }
static void ptx_copy_bytes(fcp_device *base, void *dst, const void *src, size_t bytes) {
    fcp_backend_host.copy(base, dst, src, bytes);
}
static void ptx_clear(fcp_device *base, void *dst, size_t bytes) { fcp_backend_host.clear(base, dst, bytes); }

/* --- launches ----------------------------------------------------------------------------------------------------- */

static void add(ptx_range *list, uint32_t *count, const char *what, uint64_t begin, uint64_t bytes, bool writable) {
    if (begin && bytes) list[(*count)++] = (ptx_range){what, begin, begin + bytes, writable};
}

/* Launches one of the small kernels. */
static void support(device *d, int pass, const char *name, fk_support x, uint64_t per_block, uint64_t to, uint64_t from,
                    uint64_t other) {
    ptx_range list[RANGES];
    char why[PTX_ERROR];
    uint32_t count = 0, mark[2] = {0};
    const ptx_module *m = d->modules[pass];
    if (!x.count) return;
    x.mark = (uintptr_t)mark;
    x.mark_value = 7;
    add(list, &count, "the output", x.to, to, true);
    add(list, &count, "the input", x.from, from, false);
    if (other) add(list, &count, "the other input", x.other, other, false);
    const uint64_t rows = x.count * 4 * (strcmp(name, "fk_fold_sinks") ? 1 : x.heads);
    add(list, &count, "the LSE", x.lse, rows, true);
    add(list, &count, "the LSE's low part", x.lse_low, rows, true);
    add(list, &count, "the gradient of the LSE", x.d_lse, rows, false);
    add(list, &count, "the largest logits", x.maxima, d->base.plan->problem->heads * 4, true);
    add(list, &count, "the sinks", x.sinks, (uint64_t)x.heads * 4, false);
    add(list, &count, "the mark", x.mark, 4, true);
    uint64_t blocks = (x.count + per_block - 1) / per_block;
    const ptx_launch run = {.module = m,
                            .kernel = ptx_module_kernel(m, name),
                            .parameters = &x,
                            .parameter_bytes = sizeof x,
                            .blocks = (uint32_t)(blocks < 3 ? blocks : 3),
                            .threads = FK_SUPPORT_THREADS,
                            .resident = 1,
                            .ranges = list,
                            .range_count = count,
                            .seed = x.count};
    if (!run.kernel) note("a kernel is missing");
    else if (!ptx_run(&run, why)) note(why);
    else if (mark[0] != 7 || mark[1]) note("a kernel did not say that it began");
}

static void ptx_reduce(fcp_device *base, float *dst, const float *src, size_t count, bool first) {
    fk_support x = {.to = (uintptr_t)dst, .from = (uintptr_t)src, .count = count};
    if (first) ptx_copy_bytes(base, dst, src, count * sizeof *dst);
    else support((device *)base, FCP_BACKWARD, "fk_add", x, 2 * FK_SUPPORT_THREADS, count * 4, count * 4, 0);
}

static void ptx_prepare(fcp_device *base, const fcp_arena *a) {
    device *d = (device *)base;
    const uint64_t *queries = a->home_first[FCP_QUERIES];
    fcp_backend_host.prepare(base, a);
    if (a->pass != FCP_FORWARD || !base->plan->sink_count) return;
    memset(a->lse, 0xff, queries[a->homes] * a->heads * 4);
    memset(a->lse_low, 0xff, queries[a->homes] * a->heads * 4);
    for (uint32_t i = 0; i < a->homes; i++) {
        uint64_t rows = (queries[i + 1] - queries[i]) * a->heads;
        fk_support x = {.to = (uintptr_t)(a->lse + queries[i] * a->heads), .count = rows, .heads = a->heads,
                        .lse_low = (uintptr_t)(a->lse_low + queries[i] * a->heads),
                        .from = fcp_launch_sinks_of(base->plan, (uintptr_t)d->tables.sinks,
                                                    base->plan->blocks[a->home_block[i]].heads)};
        support(d, FCP_FORWARD, "fk_begin_lse", x, FK_SUPPORT_THREADS, rows * 4, a->heads * 4, 0);
    }
}

/* What the rows of a home slot add to the gradients of sinks: parts of FK_FOLD rows, and then these. */
static void fold_sinks(device *d, const fcp_arena *a, uint32_t slot) {
    const fcp_problem *p = a->plan->problem;
    const uint64_t first = a->home_first[FCP_QUERIES][slot] * a->heads;
    const uint32_t range = a->plan->blocks[a->home_block[slot]].heads, heads = a->heads;
    const uint64_t rows = a->home_first[FCP_QUERIES][slot + 1] - a->home_first[FCP_QUERIES][slot];
    const uint64_t parts = (rows + FK_FOLD - 1) / FK_FOLD, bytes = heads * sizeof(float);
    float *part = calloc(parts * heads + 1, sizeof *part), *sum = calloc(p->heads, sizeof *sum);
    if (!part || !sum || parts > FK_FOLD) note("no room for the gradients of sinks");
    else {
        fk_support x = {.to = (uintptr_t)part, .from = (uintptr_t)(a->delta + first),
                        .lse = (uintptr_t)(a->lse + first), .lse_low = (uintptr_t)(a->lse_low + first), .count = rows,
                        .heads = heads,
                        .sinks = fcp_launch_sinks_of(a->plan, (uintptr_t)d->tables.sinks, range)};
        fk_support end = {.to = (uintptr_t)sum, .from = (uintptr_t)part, .count = parts, .heads = heads,
                          .model_head = fcp_model_head(p, &a->plan->heads[range], 0),
                          .group = heads / a->kv_heads, .shared = p->heads / p->kv_heads};
        support(d, FCP_BACKWARD, "fk_fold_sinks", x, FK_SUPPORT_THREADS, parts * bytes, rows * bytes, 0);
        support(d, FCP_BACKWARD, "fk_fold_sinks", end, FK_SUPPORT_THREADS, p->heads * sizeof *sum, parts * bytes, 0);
        for (uint32_t h = 0; h < p->heads; h++) a->d_sink[h] += sum[h];
    }
    free(part);
    free(sum);
}

static void ptx_delta(fcp_device *base, uint32_t worker_number, const fcp_arena *a, uint32_t first, uint32_t count) {
    const fcp_problem *p = base->plan->problem;
    const uint64_t *tokens = a->home_first[FCP_QUERIES];
    uint64_t at = tokens[first] * a->heads, rows = tokens[first + count] * a->heads - at, row = p->value_dim * 2,
             bytes = rows * row;
    fk_support x = {.to = (uintptr_t)(a->delta + at),
                    .from = (uintptr_t)a->o + at * row,
                    .other = (uintptr_t)a->d_o + at * row,
                    .d_lse = a->d_lse ? (uintptr_t)(a->d_lse + at) : 0,
                    .count = rows};
    (void)worker_number;
    support((device *)base, FCP_BACKWARD, "fk_delta", x, FK_SUPPORT_THREADS / 32, rows * 4, bytes, bytes);
    for (uint32_t slot = first; a->d_sink && slot < first + count; slot++) fold_sinks((device *)base, a, slot);
}

static void ptx_merge(fcp_device *base, const fcp_arena *a, uint32_t block, uint32_t from, uint32_t into) {
    float *src, *dst, *m, *l;
    const fcp_problem *p = base->plan->problem;
    fcp_arena_state(a, from, &src, &m, &l);
    fcp_arena_state(a, into, &dst, &m, &l);
    uint64_t rows = (uint64_t)p->max_q_block * a->heads, bytes = rows * (p->value_dim + 2) * 4;
    fk_support x = {.to = (uintptr_t)dst, .from = (uintptr_t)src, .other = rows,
                    .count = (uint64_t)base->plan->blocks[block].tokens * a->heads};
    support((device *)base, FCP_FORWARD, "fk_merge", x, FK_SUPPORT_THREADS / 32, bytes, bytes, 0);
}

static void ptx_finish_state(fcp_device *base, uint32_t worker_number, const fcp_arena *a, uint32_t block,
                             uint32_t state, uint32_t into) {
    device *d = (device *)base;
    const fcp_problem *p = base->plan->problem;
    fcp_rows_at to = fcp_arena_rows(a, into);
    float *src, *m, *l;
    fcp_arena_state(a, state, &src, &m, &l);
    uint64_t rows = (uint64_t)p->max_q_block * a->heads;
    const uint32_t range = base->plan->blocks[block].heads;
    fk_support x = {.to = (uintptr_t)to.o, .lse = (uintptr_t)to.lse, .lse_low = (uintptr_t)to.lse_low,
                    .from = (uintptr_t)src, .other = rows, .maxima = (uintptr_t)a->max_logit,
                    .model_head = fcp_model_head(p, &base->plan->heads[range], 0), .group = a->heads / a->kv_heads,
                    .shared = p->heads / p->kv_heads,
                    .count = (uint64_t)base->plan->blocks[block].tokens * a->heads, .heads = a->heads,
                    .sinks = fcp_launch_sinks_of(base->plan, (uintptr_t)d->tables.sinks, range)};
    (void)worker_number;
    support(d, FCP_FORWARD, "fk_state_out", x, FK_SUPPORT_THREADS / 32, x.count * p->value_dim * 2,
            rows * (p->value_dim + 2) * 4, 0);
}

static void ptx_round(fcp_device *base, const fcp_arena *a, uint32_t block, uint32_t from, uint32_t into) {
    uint64_t count = (uint64_t)base->plan->blocks[block].tokens * a->heads * base->plan->problem->head_dim;
    fk_support x = {.to = (uintptr_t)fcp_arena_rows(a, into).dq_out,
                    .from = (uintptr_t)fcp_arena_rows(a, from).dq,
                    .count = count};
    support((device *)base, FCP_BACKWARD, "fk_round", x, 2 * FK_SUPPORT_THREADS, count * 2, count * 4, 0);
}

static void ptx_finish(fcp_device *base, const fcp_arena *a, uint32_t block, uint32_t first, uint32_t tokens) {
    const fcp_problem *p = base->plan->problem;
    const fcp_block *b = &base->plan->blocks[block];
    uint64_t q = (uint64_t)a->heads * p->head_dim, k = (uint64_t)a->kv_heads * p->head_dim;
    uint64_t v = (uint64_t)a->kv_heads * p->value_dim, key = a->home_first[FCP_KEYS][b->home_slot] + first;
    uint64_t q_at = (a->home_first[FCP_QUERIES][b->home_slot] + first) * q;
    const fk_support all[] = {{.to = (uintptr_t)a->dq_out + q_at * 2,
                               .from = (uintptr_t)(a->dq + q_at),
                               .count = b->holds & FCP_HOLDS_Q && !(b->flags & FCP_BLOCK_WHOLE) ? tokens * q : 0},
                              {.to = (uintptr_t)a->dk_out + key * k * 2,
                               .from = (uintptr_t)(a->dk + key * k),
                               .count = b->holds & FCP_HOLDS_KV ? tokens * k : 0},
                              {.to = (uintptr_t)a->dv_out + key * v * 2,
                               .from = (uintptr_t)(a->dv + key * v),
                               .count = b->holds & FCP_HOLDS_KV ? tokens * v : 0}};
    for (int i = 0; i < 3; i++)
        support((device *)base, FCP_BACKWARD, "fk_round", all[i], 2 * FK_SUPPORT_THREADS, all[i].count * 2,
                all[i].count * 4, 0);
}

/* Makes the maps of an arena. */
static bool make_maps(const fcp_arena *a, const fk_launch *launch, fk_launch_maps *out) {
    fcp_launch_tensor tensors[FCP_LAUNCH_TENSORS];
    fk_map maps[FCP_LAUNCH_TENSORS];
    bool good = true;
    memset(maps, 0, sizeof maps);
    fcp_launch_tensors(a, tensors);
    for (int i = 0; i < FCP_LAUNCH_TENSORS; i++) {
        const fcp_launch_tensor *x = &tensors[i];
        const ptx_map map = {.base = x->address,
                             .dims = {x->numbers, x->heads, x->rows, x->slots},
                             .strides = {x->strides[0], x->strides[1], x->strides[2]},
                             .box = {FK_BOX, 1, FK_BOX, 1},
                             .element = 2,
                             .swizzle = 128};
        if (x->rows) good = good && ptx_map_encode(&maps[i], &map);
    }
    fcp_launch_maps(launch, maps, out);
    return good;
}

/* The next flag of a fused launch goes up, and before it come the slots that it is for. False: all are up. */
static bool arrive(void *context) {
    worker *w = context;
    if (w->arrived == w->flag_count) return false;
    const uint32_t flag = ++w->arrived;
    for (const struct late *l = w->late; l < w->late + LATE; l++)
        for (uint64_t i = 0; i < l->count; i++)
            if (l->arrivals[i] == flag) memcpy(l->slots + i * l->bytes, l->sent + i * l->bytes, l->bytes);
    w->flags[flag - 1] = 1;
    return true;
}

/* Launches attention, `pieces` pieces of work. With locks, several blocks run side by side. */
static fcp_code run_kernel(device *d, worker *w, const fcp_arena *a, const char *name, fk_launch *launch,
                           uint64_t items, uint64_t runs, uint64_t pieces, uint32_t locks, fcp_error *err) {
    const fcp_plan *plan = d->base.plan;
    const emit_kernel *k = NULL;
    ptx_range list[RANGES];
    char why[PTX_ERROR];
    uint32_t count = 0, mark[2] = {0};
    for (uint32_t i = 0; i < d->kernel_count; i++)
        if (!strcmp(d->kernels[i].name, name)) k = &d->kernels[i];
    const ptx_module *m = d->modules[a->pass];
    if (!k || !ptx_module_kernel(m, name)) return fcp_fail(err, FCP_E_INTERNAL, "there is no kernel %s", name);
    pieces *= k->parts;
    if (!pieces) return FCP_OK;
    launch->mark = (uintptr_t)mark;
    launch->mark_value = 7;
    add(list, &count, "the arena", launch->arena, a->bytes, true);
    add(list, &count, "the items", launch->items, items, false);
    add(list, &count, "the runs", launch->runs, runs, false);
    add(list, &count, "the sequences", launch->sequences, plan->sequences_count * sizeof *d->tables.sequences, false);
    add(list, &count, "the arrays' addresses", launch->arrays,
        plan->sequences_count * plan->arrays_count * sizeof *d->tables.arrays, false);
    add(list, &count, "the arrays", (uintptr_t)d->tables.data, plan->data_count, false);
    add(list, &count, "the slices' addresses", launch->bands, plan->slices_count * sizeof *d->tables.bands, false);
    add(list, &count, "the slices' rows", (uintptr_t)plan->band_rows, plan->band_rows_count * sizeof *plan->band_rows,
        false);
    add(list, &count, "the slices", (uintptr_t)plan->bands, plan->bands_count * sizeof *plan->bands, false);
    add(list, &count, "the sinks", launch->sinks, launch->sinks ? a->heads * 4 : 0, false);
    add(list, &count, "the largest logits", launch->maxima, plan->problem->heads * 4, true);
    add(list, &count, "the locks", (uintptr_t)w->locks.at, locks * 4, true);
    add(list, &count, "the mark", launch->mark, 4, true);
    add(list, &count, "the flags", (uintptr_t)w->flags, w->flag_count * sizeof *w->flags, true);
    uint64_t seed = (++w->launches + salt * 1000) * 2654435761u + a->rank;
    uint64_t draw = seed * UINT64_C(0x9e3779b97f4a7c15) >> 33; /* so that launches of each kind occur */
    uint64_t blocks = draw % 3 == 0 ? pieces : draw % 3 == 1 || locks ? 1 + pieces / 2 : 1 + pieces / 4;
    fk_launch_maps maps;
    if (k->maps && !make_maps(a, launch, &maps))
        return fcp_fail(err, FCP_E_INTERNAL, "a map that no driver would make");
    const bool tables = k->skeleton == EMIT_TABLES;
    const fk_launch_tables with_sums = {*launch, (uintptr_t)w->sums};
    if (tables) add(list, &count, "the sums", with_sums.sums, fcp_kernel_sums(plan) * FK_SUM_BYTES, true);
    const ptx_launch run = {.module = m,
                            .outside = w->fusion.visits ? arrive : NULL,
                            .outside_context = w,
                            .kernel = ptx_module_kernel(m, name),
                            .parameters = k->maps ? (const void *)&maps : tables ? (const void *)&with_sums : launch,
                            .parameter_bytes = k->maps ? sizeof maps : tables ? sizeof with_sums : sizeof *launch,
                            .blocks = (uint32_t)blocks,
                            .threads = k->threads,
                            .shared = k->shared,
                            .resident = locks || w->fusion.visits ? RESIDENT : 1,
                            .ranges = list,
                            .range_count = count,
                            .seed = seed};
    if (!ptx_run(&run, why)) return fcp_fail(err, FCP_E_INTERNAL, "%s", why);
    return mark[0] == 7 && !mark[1] ? FCP_OK : fcp_fail(err, FCP_E_INTERNAL, "%s did not say that it began", name);
}

/* Attention, or dQ, of the rows that are listed; then rows whose keys are in parts are put together. */
static fcp_code run_rows(device *d, worker *w, const fcp_arena *a, fk_launch *launch, uint32_t heads, fcp_error *err) {
    part_words words;
    if (!tables_rows(&w->work, &w->locks, launch, &words)) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    const char *name = a->pass == FCP_BACKWARD ? "fk_backward_dq" : d->sm90 ? "fk_forward_sm90" : "fk_forward";
    fcp_code code = run_kernel(d, w, a, name, launch, w->work.row_count * sizeof *w->work.rows,
                               w->work.key_run_count * sizeof *w->work.key_runs,
                               fcp_worklists_pieces(w->work.single, w->work.row_count, heads), words.all, err);
    if (!code) code = tables_rows_ended(&w->locks, &words, err);
    if (code || !w->work.merge_count) return code;
    fk_launch merge = tables_merges(&w->work, launch);
    return run_kernel(d, w, a, "fk_combine", &merge, w->work.merge_count * sizeof *w->work.merges, 0,
                      w->work.merge_count, words.all, err);
}

static fcp_code run_keys(device *d, worker *w, const fcp_arena *a, fk_launch *launch, fcp_error *err) {
    bool split = d->backward == EMIT_SPLIT, ordered = d->backward & (EMIT_ORDERED | EMIT_ORDERED_SM90);
    const char *name = split ? "fk_backward_dkv" : ordered ? "fk_backward_ordered" : "fk_backward_unordered";
    if (d->backward & EMIT_BACKWARD_SM90) name = ordered ? "fk_backward_ordered_sm90" : "fk_backward_unordered_sm90";
    const bool turns = split || ordered;
    const uint32_t locks = tables_keys(&w->work, &w->locks, turns, launch);
    if (!locks) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    launch->splits = (uintptr_t)w->flags;
    const bool by_head = fcp_plan_by_head(a->plan);
    const uint32_t kv = launch->head_count;
    return run_kernel(
        d, w, a, name, launch, fcp_worklists_key_bytes(&w->work), w->work.row_run_count * sizeof *w->work.row_runs,
        fcp_worklists_key_pieces(by_head, w->work.key_count, w->work.subs, kv, launch->group), locks, err);
}

/* The gradients of tables of the keys that are listed, rounded once a launch. */
static fcp_code run_tables(device *d, worker *w, const fcp_arena *a, fk_launch *launch, fcp_error *err) {
    const uint64_t numbers = fcp_kernel_sums(a->plan);
    float *rounded = malloc(numbers * sizeof *rounded + 1);
    if (!w->sums) w->sums = malloc(numbers * FK_SUM_BYTES + 1);
    fcp_code code = rounded && w->sums ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    if (!code) memset(w->sums, 0, numbers * FK_SUM_BYTES);
    if (!code)
        code = run_kernel(d, w, a, "fk_backward_tables", launch, fcp_worklists_key_bytes(&w->work),
                          w->work.row_run_count * sizeof *w->work.row_runs,
                          fcp_worklists_pieces(fcp_plan_by_head(a->plan), w->work.key_count, launch->head_count), 0,
                          err);
    const fk_support x = {.to = (uintptr_t)rounded, .from = (uintptr_t)w->sums, .count = numbers};
    if (!code) {
        support(d, FCP_BACKWARD, "fk_round_sums", x, FK_SUPPORT_THREADS, numbers * sizeof *rounded,
                numbers * FK_SUM_BYTES, 0);
        fcp_sums_enter(a->d_table);
        for (uint64_t i = 0; i < numbers; i++) fcp_sums_add(a->d_table, i, rounded[i]);
        fcp_sums_leave(a->d_table);
    }
    free(rounded);
    return code;
}

/* The visits of one range of heads. */
static fcp_code attend_range(device *d, worker *w, const fcp_arena *a, uint32_t range, uint32_t first, uint32_t count,
                             uint32_t head, uint32_t heads, fcp_error *err) {
    bool forward = a->pass == FCP_FORWARD;
    fk_launch launch;
    fcp_code code = FCP_OK;
    fcp_launch_parameters(a, range, &launch);
    w->work.range = range;
    tables_tell(&d->tables, a->plan, range, &launch);
    launch.first_head = w->work.kv_first = head;
    launch.head_count = w->work.kv_count = heads;
    launch.maxima = forward ? (uintptr_t)a->max_logit : 0;
    if (forward || d->backward == EMIT_SPLIT) {
        launch.locks = (uintptr_t)w->flags;
        w->work.tickets = forward && d->sm90;
        code = w->work.fusion ? fcp_worklists_rows_fused(&w->work, a, err)
                              : fcp_worklists_rows(&w->work, a, first, count, err);
        if (!code) code = run_rows(d, w, a, &launch, heads * launch.group, err);
    }
    if (code || forward) return code;
    const fcp_key_order order = fcp_key_order_of(d->backward);
    code = w->work.fusion ? fcp_worklists_keys_fused(&w->work, a, order, err)
                          : fcp_worklists_keys(&w->work, a, first, count, order, err);
    if (!code) code = run_keys(d, w, a, &launch, err);
    return code || !a->d_table ? code : run_tables(d, w, a, &launch, err);
}

/* Takes away what a launch waits for: NaN until it comes again. What the rank sends on is left there. */
static bool take_slots(struct late *l, const uint32_t *arrivals, const fcp_arena *a, fcp_class cls) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *comm = fcp_stream_of(plan, a->pass, a->rank, FCP_COMM);
    l->sent = malloc(l->count * l->bytes + 1);
    l->arrivals = malloc((l->count + 1) * sizeof *l->arrivals);
    if (!l->sent || !l->arrivals) return false;
    if (l->count) memcpy(l->arrivals, arrivals, l->count * sizeof *arrivals);
    for (uint32_t i = comm->first; i < comm->first + comm->count; i++) {
        const fcp_instr *x = &plan->instrs[i];
        for (uint32_t j = x->a; x->op == FCP_OP_LAUNCH && j < x->a + x->b; j++) {
            const fcp_transfer *t = &plan->transfers[j];
            if (t->cls == cls && t->dir == FCP_SEND && t->slot >= a->homes) l->arrivals[t->slot - a->homes] = 0;
        }
    }
    if (l->count) memcpy(l->sent, l->slots, l->count * l->bytes);
    for (uint64_t i = 0; i < l->count; i++)
        if (l->arrivals[i]) memset(l->slots + i * l->bytes, 0xff, l->bytes);
    return true;
}

/* What a fused launch waits for comes again, and its flags are down. */
static fcp_code open_arrivals(worker *w, const fcp_arena *a, fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_problem *p = plan->problem;
    const uint64_t home = fcp_arena_row(a, a->homes), number = a->heads * sizeof(float);
    const bool backward = a->pass == FCP_BACKWARD;
    w->late[0] = (struct late){.slots = a->kv, .count = a->slots.count[FCP_KV],
                               .bytes = (uint64_t)p->max_block * a->kv_heads * fcp_kv_dim(p) * 2};
    const struct { void *of; uint64_t bytes; } with_q[LATE - 1] = {
        {a->q, (uint64_t)a->heads * p->head_dim * 2}, {backward ? a->d_o : NULL, (uint64_t)a->heads * p->value_dim * 2},
        {backward ? a->lse : NULL, number}, {backward ? a->lse_low : NULL, number}, {backward ? a->delta : NULL, number}};
    for (int i = 1; i < LATE; i++) {
        char *const of = with_q[i - 1].of;
        w->late[i] = (struct late){.slots = of ? of + home * with_q[i - 1].bytes : NULL,
                                   .count = of ? a->slots.count[FCP_Q] : 0,
                                   .bytes = p->max_q_block * with_q[i - 1].bytes};
    }
    w->flag_count = fcp_fusion_flags(fcp_stream_of(plan, a->pass, a->rank, FCP_COMM));
    w->arrived = 0;
    w->flags = calloc(w->flag_count + 1, sizeof *w->flags);
    bool ok = w->flags && take_slots(&w->late[0], w->fusion.kv, a, FCP_KV);
    for (int i = 1; i < LATE; i++) ok = ok && take_slots(&w->late[i], w->fusion.q, a, FCP_Q);
    return ok ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
}

static void close_arrivals(worker *w) {
    for (int i = 0; i < LATE; i++) {
        free(w->late[i].sent);
        free(w->late[i].arrivals);
        w->late[i] = (struct late){0};
    }
    free(w->flags);
    w->flags = NULL;
    w->flag_count = 0;
}

/* Does the executor go on between two instructions of the compute queue with what must come behind them: a MERGE, a
 * FINISH, a reduction, or a round that waits for the first of them? */
static bool goes_on(const fcp_plan *plan, fcp_pass pass, uint32_t rank, uint32_t from, uint32_t to) {
    const fcp_stream *compute = fcp_stream_of(plan, pass, rank, FCP_COMPUTE);
    const fcp_stream *comm = fcp_stream_of(plan, pass, rank, FCP_COMM);
    bool on = false;
    for (uint32_t i = from + 1; i < to; i++) {
        const fcp_op op = (fcp_op)plan->instrs[compute->first + i].op;
        on |= op != FCP_OP_WAIT && op != FCP_OP_ATTEND;
    }
    for (uint32_t i = 0; i < comm->count; i++) {
        const fcp_instr *x = &plan->instrs[comm->first + i];
        on |= x->op == FCP_OP_WAIT && x->a > from && x->a <= to;
    }
    return on;
}

/* What is launched in the place of ATTEND `at` of a run: all of the run at its end; or, if the executor goes on within
 * it, each ATTEND alone. False: nothing. What a launch does not need may still be on its way. */
static bool part_of(const fcp_arena *a, const fcp_fusion_run *run, uint32_t at, fcp_fusion_run *out) {
    const fcp_plan *plan = a->plan;
    const fcp_instr *x = &plan->instrs[fcp_stream_of(plan, a->pass, a->rank, FCP_COMPUTE)->first];
    *out = *run;
    if (goes_on(plan, a->pass, a->rank, run->first, run->last)) {
        out->first = out->last = at;
        out->needs = 0;
        for (uint32_t i = 0; i < at; i++)
            if (x[i].op == FCP_OP_WAIT && fcp_waits_whole(&x[i]) > out->needs) out->needs = fcp_waits_whole(&x[i]);
    }
    return at == out->last;
}

/* Launches a run, or one ATTEND of it, for each range of heads. */
static fcp_code attend_part(worker *w, device *d, const fcp_arena *a, const fcp_fusion_run *part, uint32_t head,
                            uint32_t heads, fcp_error *err) {
    fcp_code code = fcp_fusion_make(&w->fusion, a, part, err);
    for (uint32_t r = 0; !code && r < a->plan->heads_count; r++) {
        code = open_arrivals(w, a, err);
        for (uint64_t n = (a->rank + salt) % 3; !code && n && arrive(w); n--) continue; /* these come early */
        w->work.fusion = &w->fusion;
        if (!code) code = attend_range(d, w, a, r, 0, 0, head, heads, err);
        w->work.fusion = NULL;
        while (!code && arrive(w)) continue;
        close_arrivals(w);
    }
    fcp_fusion_free(&w->fusion);
    return code;
}

/* A run of ATTENDs, in the place of the last of them, when all that they read has been received. */
static fcp_code attend_fused(device *d, worker *w, const fcp_arena *a, uint32_t first, uint32_t head, uint32_t heads,
                             fcp_error *err) {
    const fcp_plan *plan = a->plan;
    const fcp_stream *compute = fcp_stream_of(plan, a->pass, a->rank, FCP_COMPUTE);
    const fcp_instr *x = &plan->instrs[compute->first];
    fcp_fusion_run *runs, part;
    uint32_t count, at = 0;
    fcp_code code = fcp_fusion_runs(plan, a->pass, a->rank, &runs, &count, err);
    while (x[at].op != FCP_OP_ATTEND || x[at].a != first) at++;
    for (uint32_t i = 0; !code && i < count; i++)
        if (runs[i].first <= at && at <= runs[i].last && part_of(a, &runs[i], at, &part))
            code = attend_part(w, d, a, &part, head, heads, err);
    free(runs);
    return code;
}

static fcp_code ptx_attend(fcp_device *base, uint32_t number, const fcp_arena *a, uint32_t first, uint32_t count,
                           uint32_t head, uint32_t heads, fcp_error *err) {
    device *d = (device *)base;
    fcp_code code = FCP_OK;
    if (is_fused(d, a->pass)) return attend_fused(d, &d->workers[number], a, first, head, heads, err);
    for (uint32_t r = FCP_NONE; !code && (r = fcp_launch_next_range(a->plan, first, count, r)) != FCP_NONE;)
        code = attend_range(d, &d->workers[number], a, r, first, count, head, heads, err);
    return code;
}

#define PTX_BACKEND(title, opening)                                                                                    \
    {                                                                                                                  \
        .name = title, .open = opening, .close = ptx_close, .allocate = ptx_allocate, .release = ptx_release_memory,   \
        .learn = ptx_learn,                                                                                            \
        .enter = ptx_enter, .leave = ptx_leave, .copy = ptx_copy_bytes, .clear = ptx_clear, .reduce = ptx_reduce,      \
        .prepare = ptx_prepare, .delta = ptx_delta, .attend = ptx_attend, .merge = ptx_merge,                          \
        .finish_state = ptx_finish_state, .round = ptx_round, .finish = ptx_finish                                     \
    }
const fcp_backend ptx_backend = PTX_BACKEND("PTX", ptx_open);
const fcp_backend ptx_ordered_backend = PTX_BACKEND("PTX, in order", ptx_ordered_open);
const fcp_backend ptx_one_buffer_backend = PTX_BACKEND("PTX for sm_86, in order, one buffer", ptx_one_buffer_open);
const fcp_backend ptx_unordered_backend = PTX_BACKEND("PTX, in any order", ptx_unordered_open);
const fcp_backend ptx_sm100_backend = PTX_BACKEND("PTX for sm_100, in any order", ptx_sm100_open);
const fcp_backend ptx_sm90_backend = PTX_BACKEND("PTX for sm_90a", ptx_sm90_open);
const fcp_backend ptx_unordered_sm90_backend = PTX_BACKEND("PTX for sm_90a, in any order", ptx_unordered_sm90_open);
