/* fibers.c: the backends of the machine of fibers (fibers.h).
 *
 * Requires: a plan for whose sizes, dtype and score there is a build (builds.def).
 * Method:   a backend opens a device of the host backend, which does memory, reductions, delta and output types. An
 *           ATTEND becomes work lists and launches, as on a real device. The grid is drawn anew for each launch and is
 *           smaller than its work, so that CTAs do several items.
 */
#include "runtime/plan/head_ranges.h"
#include "runtime/plan/plan_arrays.h"
#include "tests/machines/fibers/fibers.h"

#include <stdlib.h>
#include <string.h>

#include "codegen/mask/mask_parts.h"
#include "runtime/worklists/worklists.h"
#include "tests/machines/tables.h"
#include "tests/support/coarse_tanh.h"

#define X(d, v, bf16, score) extern const fibers_kernels fibers_kernels_##d##_##v##_##bf16##_##score;
#include "tests/machines/fibers/builds.def"
#undef X
static const fibers_kernels *const builds[] = {
#define X(d, v, bf16, score) &fibers_kernels_##d##_##v##_##bf16##_##score,
#include "tests/machines/fibers/builds.def"
#undef X
};

const fibers_kernels *fibers_kernels_find(uint32_t head_dim, uint32_t value_dim, fcp_dtype dtype, bool score) {
    for (size_t i = 0; i < sizeof builds / sizeof *builds; i++)
        if (builds[i]->head_dim == head_dim && builds[i]->value_dim == value_dim &&
            dtype == (builds[i]->bf16 ? FCP_BF16 : FCP_FP16) && builds[i]->score == score)
            return builds[i];
    return NULL;
}

const fibers_kernels *fibers_kernels_of(const fcp_plan *plan) {
    const fcp_problem *p = plan->problem;
    if (p->values_in_keys) return NULL;
    return fibers_kernels_find(p->head_dim, p->value_dim, (fcp_dtype)p->dtype, plan->score_count != 0);
}

struct worker {
    fcp_worklists work;
    machine *machine;
    fibers_mask mask;
    uint32_t *owners;
    size_t owner_words;
    machine_room locks;
    uint64_t launches;
    uint32_t part_words; /* of a launch of rows whose keys are cut: what parts leave, at the beginning of `locks` */
};

struct fibers {
    fcp_device base;
    fcp_device *host;
    const fibers_kernels *kernels;
    plan_tables tables;
    struct worker workers[];
};

/* --- masks -------------------------------------------------------------------------------------------------------- */

static _Thread_local fibers_mask *mask_now __attribute__((tls_model("initial-exec"))); /* kernels ask for each pair */

/* A score that is too large for gradients of its tables has no reads. */
static bool open_reads(fibers_mask *mask) {
    fcp_error err;
    size_t words = 0;
    const fcp_code code = fcp_table_reads_make(mask->plan, &mask->reads, &err);
    if (code) return code == FCP_E_TENSOR;
    for (uint32_t i = 0; i < mask->reads->count; i++) {
        const fcp_table_read *x = &mask->reads->reads[i];
        const size_t part = x->part.count, load = mc_row_scratch(x->load);
        words = part > words ? part : words;
        words = load > words ? load : words;
    }
    return (mask->read_scratch = calloc(words + 1, sizeof *mask->read_scratch)) != NULL;
}

bool fibers_mask_open(fibers_mask *mask, const fcp_plan *plan) {
    size_t nodes = plan->mask_count + plan->score_count + plan->slope_count + 1;
    *mask =
        (fibers_mask){.plan = plan, .env.n = -1, .by_head = fcp_plan_by_head(plan), .packed = fcp_plan_packed(plan)};
    mask->scratch = calloc(nodes, sizeof *mask->scratch);
    mask->arrays = calloc(plan->arrays_count + 1, sizeof *mask->arrays);
    mask->bands = calloc(plan->slices_count + 1, sizeof *mask->bands);
    mask->reals = calloc(plan->arrays_count + 1, sizeof *mask->reals);
    bool ok = mask->scratch && mask->arrays && mask->bands && mask->reals;
    for (uint64_t i = 0; ok && i < plan->arrays_count; i++)
        if (plan->arrays[i].width == MC_F64) ok = (mask->reals[i] = malloc(fcp_array_bytes(&plan->arrays[i]) + 1));
    return ok && open_reads(mask);
}

void fibers_mask_close(fibers_mask *mask) {
    free(mask->scratch);
    free(mask->arrays);
    free(mask->bands);
    for (uint64_t i = 0; mask->reals && i < mask->plan->arrays_count; i++) free(mask->reals[i]);
    free(mask->reals);
    fcp_table_reads_free(mask->reads);
    free(mask->read_scratch);
}

unsigned fibers_arrays(void) { return (unsigned)mask_now->plan->arrays_count; }
int fibers_by_head(void) { return mask_now->by_head; }
int fibers_packed(void) { return mask_now->packed; }
int fibers_fused(void) { return mask_now->fused; }

void fibers_mask_use(fibers_mask *mask) {
    mask_now = mask;
    if (mask) mask->env.n = -1;
}

/* Makes the interpreter's environment from that of the kernels. */
static const mc_env *env_of(const fk_env *env) {
    fibers_mask *m = mask_now;
    const fcp_plan *plan = m->plan;
    const fk_sequence *s = &env->sequence;
    const mc_env own = {.n = s->n, .q_first = s->q_first, .queries = s->queries};
    if (m->of == env->arrays && m->env.n == s->n && m->env.q_first == s->q_first && m->env.queries == s->queries)
        return &m->env;
    for (uint64_t i = 0; i < plan->arrays_count; i++) {
        const fcp_array *a = &plan->arrays[i];
        const float *real = (const float *)(uintptr_t)env->arrays[i];
        m->arrays[i] = fcp_array_part(a, m->reals[i] ? (const void *)m->reals[i] : (const void *)real, 0, &own);
        for (uint64_t j = 0; m->reals[i] && j < mc_array_total(&m->arrays[i]); j++) m->reals[i][j] = (double)real[j];
    }
    for (uint64_t i = 0; i < plan->slices_count; i++) {
        const fk_bands *b = &env->bands[i];
        m->bands[i] = (mc_bands){(const mc_band_rows *)(uintptr_t)b->rows, (const mc_band *)(uintptr_t)b->bands,
                                 b->row_count, b->band_count};
    }
    m->of = env->arrays;
    m->env = (mc_env){.n = s->n, .q_first = s->q_first, .queries = s->queries, .arrays = m->arrays, .bands = m->bands};
    return &m->env;
}

int fibers_allow(const fk_env *env, fk_i64 q, fk_i64 k, fk_i64 h) {
    const fcp_plan *plan = mask_now->plan;
    return mc_eval((mc_code){plan->mask, (uint32_t)plan->mask_count}, env_of(env), q, k, h, mask_now->scratch);
}

/* A score or a derivative of it, with tanh_approx as a GPU may make it. */
static float real_value(mc_code code, const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h, int64_t *scratch) {
    const mc_env *own = env_of(env);
    const mc_point at = {q, k, h, (double)s};
    bool coarse = false;
    for (uint32_t i = 0; i < code.count; i++) coarse |= code.nodes[i].op == MC_TANH_APPROX_F;
    if (!coarse) return (float)mc_eval_score(code, own, q, k, h, (double)s, scratch);
    for (uint32_t i = 0; i < code.count; i++) {
        const mc_node *x = &code.nodes[i];
        if (x->op != MC_TANH_APPROX_F) scratch[i] = mc_eval_node(x, own, &at, scratch);
        else scratch[i] = mc_real_bits((double)coarse_tanh((float)mc_real(scratch[x->a])));
    }
    return (float)mc_real(scratch[code.count - 1]);
}

float fibers_score(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    const fcp_plan *plan = mask_now->plan;
    mc_code code = {plan->score, (uint32_t)plan->score_count};
    return real_value(code, env, s, q, k, h, mask_now->scratch);
}
float fibers_slope(const fk_env *env, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    const fcp_plan *plan = mask_now->plan;
    mc_code code = {plan->slope, (uint32_t)plan->slope_count};
    return real_value(code, env, s, q, k, h, mask_now->scratch);
}

fk_u32 fibers_reads(void) { return mask_now->reads ? mask_now->reads->count : 0; }
float fibers_part(const fk_env *env, fk_u32 read, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    const mc_code code = mask_now->reads->reads[read].part;
    return real_value(code, env, s, q, k, h, mask_now->read_scratch);
}
fk_i64 fibers_place(const fk_env *env, fk_u32 read, float s, fk_i64 q, fk_i64 k, fk_i64 h) {
    const fcp_table_read *x = &mask_now->reads->reads[read];
    uint32_t place;
    mc_load_places(x->load, env_of(env), &(mc_tile){q, k, h, 1, 1}, &s, 1, mask_now->read_scratch, &place);
    return place == MC_NONE ? -1 : (fk_i64)(x->first + place);
}

/* --- the device --------------------------------------------------------------------------------------------------- */

static void fibers_close(fcp_device *device) {
    struct fibers *f = (struct fibers *)device;
    for (uint32_t i = 0; i < f->base.workers; i++) {
        fcp_worklists_free(&f->workers[i].work);
        machine_free(f->workers[i].machine);
        fibers_mask_close(&f->workers[i].mask);
        free(f->workers[i].owners);
        free(f->workers[i].locks.at);
    }
    if (f->host) fcp_backend_host.close(f->host);
    tables_free(&f->tables);
    free(f);
}

static fcp_code open_device(const fcp_backend *backend, const fcp_plan *plan, uint32_t workers,
                            fcp_device **out_device, fcp_error *err) {
    const fcp_problem *p = plan->problem;
    const fibers_kernels *kernels = fibers_kernels_of(plan);
    if (!kernels)
        return fcp_fail(err, FCP_E_BACKEND, "fibers have no kernels for head_dim %u, value_dim %u%s, %s%s", p->head_dim,
                        p->value_dim, p->values_in_keys ? " in keys" : "", fcp_dtype_name((fcp_dtype)p->dtype),
                        plan->score_count ? ", with a score" : "");
    struct fibers *f = calloc(1, sizeof *f + workers * sizeof *f->workers);
    if (!f) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    f->base = (fcp_device){backend, plan, workers};
    f->kernels = kernels;
    fcp_code code = tables_make(plan, &f->tables) ? FCP_OK : FCP_E_NO_MEMORY;
    for (uint32_t i = 0; code == FCP_OK && i < workers; i++) {
        struct worker *w = &f->workers[i];
        w->machine = machine_new();
        if (!fibers_mask_open(&w->mask, plan) || !w->machine) code = FCP_E_NO_MEMORY;
    }
    if (code == FCP_OK) code = fcp_backend_host.open(plan, workers, &f->host, err);
    else fcp_fail(err, code, "out of memory for %u workers", workers);
    if (code != FCP_OK) {
        fibers_close(&f->base);
        return code;
    }
    *out_device = &f->base;
    return FCP_OK;
}

static fcp_code fibers_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err) {
    return open_device(&fibers_backend, plan, workers, out_device, err);
}
static fcp_code fibers_ordered_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err) {
    return open_device(&fibers_ordered_backend, plan, workers, out_device, err);
}
static fcp_code fibers_unordered_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err) {
    return open_device(&fibers_unordered_backend, plan, workers, out_device, err);
}

static fcp_code fibers_ordered_one_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device,
                                        fcp_error *err) {
    return open_device(&fibers_ordered_one_backend, plan, workers, out_device, err);
}
static fcp_code fibers_unordered_one_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device,
                                          fcp_error *err) {
    return open_device(&fibers_unordered_one_backend, plan, workers, out_device, err);
}
static fcp_code fibers_sm90_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device, fcp_error *err) {
    return open_device(&fibers_sm90_backend, plan, workers, out_device, err);
}
static fcp_code fibers_unordered_sm90_open(const fcp_plan *plan, uint32_t workers, fcp_device **out_device,
                                           fcp_error *err) {
    return open_device(&fibers_unordered_sm90_backend, plan, workers, out_device, err);
}

static bool is_sm90(const struct fibers *f) {
    return f->base.backend == &fibers_sm90_backend || f->base.backend == &fibers_unordered_sm90_backend;
}
static bool has_one_buffer(const struct fibers *f) {
    return f->base.backend == &fibers_ordered_one_backend || f->base.backend == &fibers_unordered_one_backend;
}
static fcp_device *host_of(fcp_device *device) { return ((struct fibers *)device)->host; }

static fcp_code fibers_allocate(fcp_device *device, size_t bytes, void **out_memory, fcp_error *err) {
    fcp_code code = fcp_backend_host.allocate(host_of(device), bytes, out_memory, err);
    if (code == FCP_OK) memset(*out_memory, 0xff, bytes); /* NaN: what nobody writes must not be read */
    return code;
}
static void fibers_release(fcp_device *device, void *memory) { fcp_backend_host.release(host_of(device), memory); }
static fcp_code fibers_enter(fcp_device *device, fcp_error *err) {
    return fcp_backend_host.enter(host_of(device), err);
}
static void fibers_leave(fcp_device *device) { fcp_backend_host.leave(host_of(device)); }
static void fibers_copy(fcp_device *device, void *dst, const void *src, size_t bytes) {
    fcp_backend_host.copy(host_of(device), dst, src, bytes);
}
static void fibers_clear(fcp_device *device, void *dst, size_t bytes) {
    fcp_backend_host.clear(host_of(device), dst, bytes);
}
static void fibers_reduce(fcp_device *device, float *dst, const float *src, size_t count, bool first) {
    fcp_backend_host.reduce(host_of(device), dst, src, count, first);
}
static void fibers_prepare(fcp_device *device, const fcp_arena *arena) {
    fcp_backend_host.prepare(host_of(device), arena);
}
static void fibers_delta(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t first, uint32_t count) {
    fcp_backend_host.delta(host_of(device), worker, arena, first, count);
}
static void fibers_merge(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t from, uint32_t into) {
    fcp_backend_host.merge(host_of(device), arena, block, from, into);
}
static void fibers_finish_state(fcp_device *device, uint32_t worker, const fcp_arena *arena, uint32_t block,
                                uint32_t state, uint32_t into) {
    fcp_backend_host.finish_state(host_of(device), worker, arena, block, state, into);
}
static void fibers_round(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t from, uint32_t into) {
    fcp_backend_host.round(host_of(device), arena, block, from, into);
}
static void fibers_finish(fcp_device *device, const fcp_arena *arena, uint32_t block, uint32_t first, uint32_t tokens) {
    fcp_backend_host.finish(host_of(device), arena, block, first, tokens);
}

/* Makes the maps of an arena. */
static bool make_maps(const fcp_arena *a, const fk_launch *launch, fk_launch_maps *out) {
    fcp_launch_tensor tensors[FCP_LAUNCH_TENSORS];
    fk_map maps[FCP_LAUNCH_TENSORS];
    bool good = true;
    memset(maps, 0, sizeof maps);
    fcp_launch_tensors(a, tensors);
    for (int i = 0; good && i < FCP_LAUNCH_TENSORS; i++) {
        const fcp_launch_tensor *x = &tensors[i];
        const machine_map map = {.base = x->address,
                                 .dims = {x->numbers, x->heads, x->rows, x->slots},
                                 .strides = {x->strides[0], x->strides[1], x->strides[2]},
                                 .box = {FK_BOX, 1, FK_BOX, 1},
                                 .element = 2,
                                 .swizzle = MACHINE_SWIZZLE_128};
        if (x->rows) good = machine_map_encode(&maps[i], &map);
    }
    fcp_launch_maps(launch, maps, out);
    return good;
}

/* Adds a part of the arena to the ranges of a launch. `handed`: several blocks may write it in turn. */
static uint32_t add_range(machine_range *ranges, uint32_t count, struct worker *w, uint64_t arena, const char *name,
                          uint64_t begin, uint64_t end, bool handed) {
    if (begin < end) ranges[count++] = (machine_range){name, begin, end, true, w->owners + (begin - arena) / 4, handed};
    return count;
}

/* Adds the arena, with the sums to which several blocks add in turn: dQ, and if `keys` also dK and dV. And with the
 * running states, where one part of a row reads them and another writes. */
static uint32_t arena_ranges(struct worker *w, const fcp_arena *a, const fk_launch *launch, bool rows, bool keys,
                             machine_range *ranges) {
    const fcp_problem *p = a->plan->problem;
    const uint64_t d = p->head_dim, v = p->value_dim, key = a->kv_heads * 4, query = a->heads * 4;
    const uint64_t home_keys = a->home_first[FCP_KEYS][a->homes] * key;
    uint64_t at = launch->arena;
    struct { const char *name; const void *begin; uint64_t bytes; } sums[] = {
        {"dQ", a->dq, rows ? fcp_arena_row(a, a->homes + (uint32_t)a->slots.count[FCP_DQ]) * query * d : 0},
        {"dK", a->dk, keys ? home_keys * d : 0},
        {"dV", a->dv, keys ? home_keys * v : 0},
        {"dK and dV of slots", a->dkv, keys ? a->slots.count[FCP_DKV] * p->max_block * key * (d + v) : 0},
        {"running states", a->state, w->part_words ? a->slots.count[FCP_STATE] * p->max_q_block * query * (v + 2) : 0}};
    uint32_t count = 0;
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) { /* they stand in the arena in this order */
        uint64_t begin = (uintptr_t)sums[i].begin;
        if (!sums[i].bytes) continue;
        count = add_range(ranges, count, w, launch->arena, "the arena", at, begin, false);
        count = add_range(ranges, count, w, launch->arena, sums[i].name, begin, begin + sums[i].bytes, true);
        at = begin + sums[i].bytes;
    }
    return add_range(ranges, count, w, launch->arena, "the arena", at, launch->arena + a->bytes, false);
}

/* Runs one launch of `pieces` pieces of work. With `locks`, several blocks run at a time; they hand dQ on to each other
 * if `rows`, and dK and dV if `keys`. */
static fcp_code run_kernel(struct worker *w, const fcp_arena *a, const fibers_kernel *kernel, const fk_launch *launch,
                           uint64_t pieces, uint32_t locks, bool rows, bool keys, fcp_error *err) {
    if (!pieces) return FCP_OK;
    if (w->owner_words < a->bytes / 4 + w->part_words) {
        free(w->owners);
        w->owner_words = a->bytes / 4 + w->part_words;
        w->owners = malloc(w->owner_words * sizeof *w->owners);
        if (!w->owners) w->owner_words = 0;
        if (!w->owners) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    }
    memset(w->owners, 0, a->bytes + w->part_words * sizeof *w->owners);
    machine_range ranges[MACHINE_RANGES];
    uint32_t range_count = arena_ranges(w, a, launch, rows, keys, ranges);
    ranges[range_count++] = (machine_range){
        "the sinks", launch->sinks, launch->sinks ? launch->sinks + a->heads * sizeof(float) : 0, false, NULL};
    ranges[range_count++] = (machine_range){
        "the largest logits", launch->maxima,
        launch->maxima ? launch->maxima + a->plan->problem->heads * sizeof(float) : 0, true, NULL};
    uintptr_t first_lock = (uintptr_t)w->locks.at; /* 0 where a launch has no locks */
    const uintptr_t first_counter = first_lock + w->part_words * sizeof *w->locks.at;
    if (w->part_words)
        ranges[range_count++] =
            (machine_range){"the parts", first_lock, first_counter, true, w->owners + a->bytes / 4, true};
    ranges[range_count++] =
        (machine_range){"the locks", first_counter, first_lock + locks * sizeof *w->locks.at, true, NULL};
    uint64_t seed = ++w->launches * 2654435761u + a->rank;
    uint64_t blocks = seed % 3 && pieces > 2 ? 1 + pieces / 2 : pieces;
    fk_launch_maps maps;
    if (kernel->maps && !make_maps(a, launch, &maps))
        return fcp_fail(err, FCP_E_INTERNAL, "a map that no driver would make");
    machine_launch run = {.kernel = kernel->run,
                          .parameters = kernel->maps ? (const void *)&maps : launch,
                          .blocks = (uint32_t)blocks,
                          .threads = kernel->threads,
                          .shared = kernel->shared,
                          .ranges = ranges,
                          .range_count = range_count,
                          .seed = seed,
                          .resident = locks ? MACHINE_RESIDENT : 1};
    char text[MACHINE_TEXT];
    fibers_mask_use(&w->mask);
    bool ok = machine_run(w->machine, &run, text);
    fibers_mask_use(NULL);
    return ok ? FCP_OK : fcp_fail(err, FCP_E_INTERNAL, "%s", text);
}

/* Runs attention, or dQ, of the rows that are listed; then puts together rows whose keys are in parts. */
static fcp_code run_rows(struct fibers *f, struct worker *w, const fcp_arena *a, const fibers_kernel *rows,
                         fk_launch *launch, fcp_error *err) {
    part_words words;
    if (!tables_rows(&w->work, &w->locks, launch, &words)) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    const uint64_t pieces = fcp_worklists_pieces(w->work.single, w->work.row_count, launch->head_count * launch->group);
    w->part_words = w->work.cut_parts ? words.states : 0;
    fcp_code code = run_kernel(w, a, rows, launch, pieces * rows->parts, words.all, false, false, err);
    w->part_words = 0;
    if (!code) code = tables_rows_ended(&w->locks, &words, err);
    if (code || !w->work.merge_count) return code;
    const fk_launch merge = tables_merges(&w->work, launch);
    return run_kernel(w, a, &f->kernels->combine, &merge, w->work.merge_count, words.all, false, false, err);
}

/* Runs the kernel for dK and dV, or for dQ as well, of lists in `order`. The unordered one has no lock but the
 * counter. */
static fcp_code attend_keys(struct fibers *f, struct worker *w, const fcp_arena *a, fk_launch *launch, uint32_t first,
                            uint32_t count, fcp_key_order order, fcp_error *err) {
    fcp_code code = fcp_worklists_keys(&w->work, a, first, count, order, err);
    if (code != FCP_OK) return code;
    const bool ordered = order != FCP_KEYS_JOINT;
    bool shared = false;
    for (uint32_t i = 0; ordered && i < w->work.key_count; i++) shared = shared || w->work.keys[i].lock != FK_NONE;
    const uint32_t locks = tables_keys(&w->work, &w->locks, ordered, launch);
    if (!locks) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory");
    const fibers_kernels *k = f->kernels;
    const fibers_kernel *mma = ordered ? &k->ordered : &k->unordered,
                        *one = ordered ? &k->ordered_one : &k->unordered_one,
                        *sm90 = ordered ? &k->ordered_sm90 : &k->unordered_sm90;
    const fibers_kernel *joint = has_one_buffer(f) && one->run ? one
                                 : is_sm90(f) && sm90->run     ? sm90
                                                               : mma,
                        *keys = order == FCP_KEYS_ALONE ? &k->dkv : joint;
    return run_kernel(w, a, keys, launch,
                      keys->parts * fcp_worklists_key_pieces(w->mask.by_head, w->work.key_count, w->work.subs,
                                                             launch->head_count, launch->group),
                      locks, order == FCP_KEYS_ORDERED, shared, err);
}

/* Results must be right in any order of items. So every other launch has the longest items last, and blocks come to
 * items without keys before they come to others. */
static void turn_round(struct worker *w) {
    fk_row_item *rows = w->work.rows;
    for (uint32_t i = 0; w->launches % 2 == 0 && i < w->work.row_count / 2; i++) {
        fk_row_item other = rows[i];
        rows[i] = rows[w->work.row_count - 1 - i];
        rows[w->work.row_count - 1 - i] = other;
    }
}

/* The visits of one range of heads. */
static fcp_code attend_range(fcp_device *device, uint32_t worker, const fcp_arena *a, uint32_t range, uint32_t first,
                             uint32_t count, uint32_t head, uint32_t heads, fcp_error *err) {
    struct fibers *f = (struct fibers *)device;
    struct worker *w = &f->workers[worker];
    fk_launch launch;
    fcp_launch_parameters(a, range, &launch);
    w->work.range = range;
    tables_tell(&f->tables, device->plan, range, &launch);
    launch.first_head = w->work.kv_first = head;
    launch.head_count = w->work.kv_count = heads;
    bool forward = a->pass == FCP_FORWARD;
    launch.maxima = forward ? (uintptr_t)a->max_logit : 0;
    bool sm90 = is_sm90(f) && f->kernels->forward_sm90.run;
    const fibers_kernel *attend = sm90 ? &f->kernels->forward_sm90 : &f->kernels->forward;
    const fibers_kernel *rows = forward ? attend : &f->kernels->dq;
    if (!forward && device->backend != &fibers_backend && f->kernels->ordered.run) {
        const bool unordered = device->backend == &fibers_unordered_backend ||
                               device->backend == &fibers_unordered_one_backend ||
                               device->backend == &fibers_unordered_sm90_backend;
        return attend_keys(f, w, a, &launch, first, count, unordered ? FCP_KEYS_JOINT : FCP_KEYS_ORDERED, err);
    }
    w->work.tickets = forward && sm90;
    fcp_code code = fcp_worklists_rows(&w->work, a, first, count, err);
    if (code != FCP_OK) return code;
    turn_round(w);
    code = run_rows(f, w, a, rows, &launch, err);
    return code || forward ? code : attend_keys(f, w, a, &launch, first, count, FCP_KEYS_ALONE, err);
}

static fcp_code fibers_attend(fcp_device *device, uint32_t worker, const fcp_arena *a, uint32_t first, uint32_t count,
                              uint32_t head, uint32_t heads, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = FCP_NONE; !code && (r = fcp_launch_next_range(a->plan, first, count, r)) != FCP_NONE;)
        code = attend_range(device, worker, a, r, first, count, head, heads, err);
    return code;
}

#define FIBERS(title, opening)                                                                                         \
    {                                                                                                                  \
        .name = title, .open = opening, .close = fibers_close, .allocate = fibers_allocate, .release = fibers_release, \
        .enter = fibers_enter, .leave = fibers_leave, .copy = fibers_copy, .clear = fibers_clear,                      \
        .reduce = fibers_reduce, .prepare = fibers_prepare, .delta = fibers_delta, .attend = fibers_attend,            \
        .merge = fibers_merge, .finish_state = fibers_finish_state, .round = fibers_round, .finish = fibers_finish     \
    }
const fcp_backend fibers_backend = FIBERS("fibers", fibers_open);
const fcp_backend fibers_ordered_backend = FIBERS("fibers, in order", fibers_ordered_open);
const fcp_backend fibers_ordered_one_backend = FIBERS("fibers, in order, one buffer", fibers_ordered_one_open);
const fcp_backend fibers_unordered_one_backend = FIBERS("fibers, in any order, one buffer", fibers_unordered_one_open);
const fcp_backend fibers_sm90_backend = FIBERS("fibers, sm_90a", fibers_sm90_open);
const fcp_backend fibers_unordered_sm90_backend = FIBERS("fibers, sm_90a, in any order", fibers_unordered_sm90_open);
const fcp_backend fibers_unordered_backend = FIBERS("fibers, in any order", fibers_unordered_open);
