/* reference.c: attention by its definition, and the judgement of results.
 *
 * Requires: a checked plan; packed inputs. Cost: see reference.h; a task needs 8 n (4 head_dim + 2 STRIP) bytes and
 *           half as much again for the naive computation, n the sequence's length; with a score 3 STRIP.
 * Method:   a task is one KV head of one sequence, with the query heads that share it; threads take tasks, longest
 *           sequences first. Rows are worked on STRIP at a time, so that a tile of keys serves many. The mask's value
 *           for every pair of a strip is evaluated; the plan's tiles and cells are never looked at. Scores and slopes
 *           are evaluated pair by pair in float64, and in rows of float32, as kernels do, for the naive computation.
 */
#include "runtime/judge/reference.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/numeric.h"
#include "runtime/plan/plan.h"

enum { STRIP = 32, TILE = 128, MAX_THREADS = 256 };

/* Rows [row, row + rows) of a sequence. */
struct strip {
    size_t n, d; /* keys */
    uint64_t queries, row;
    uint32_t rows;
    double scale;
    fcp_dtype dtype;
    mc_code score, slope; /* of no nodes: the score is s */
    const double *sink;   /* of the head, or NULL */
    const mc_env *env;
    int64_t head;
    int64_t *scratch;
    uint8_t *allow; /* [STRIP][n] */
    bool *live;     /* per tile of keys: some pair of the strip is allowed */
};

/* The tiles of keys in which the strip has an allowed pair, one after another; count 0: no more. */
struct tile {
    size_t key;
    uint32_t count;
};

static struct tile tile_from(const struct strip *s, size_t key) {
    while (key < s->n && !s->live[key / TILE]) key += TILE;
    return (struct tile){key, key >= s->n ? 0 : s->n - key < TILE ? (uint32_t)(s->n - key) : TILE};
}
static struct tile first_tile(const struct strip *s) { return tile_from(s, 0); }
static struct tile next_tile(const struct strip *s, struct tile t) { return tile_from(s, t.key + TILE); }

/* A score's or slope's code at row i of the strip and the allowed keys of a tile; out may be logits. */
static void exact_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const double *logits,
                        double *out) {
    const uint8_t *allow = s->allow + i * s->n + t.key;
    for (uint32_t j = 0; j < t.count; j++)
        if (allow[j])
            out[j] = mc_eval_score(code, s->env, s->env->q_first + (int64_t)(s->row + i), (int64_t)(t.key + j), s->head,
                                   logits[j], s->scratch);
}

static void naive_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const float *logits,
                        float *out) {
    mc_eval_score_row(code, s->env, s->env->q_first + (int64_t)(s->row + i), (int64_t)t.key, t.count, s->head, logits,
                      s->scratch, out);
}
_Static_assert((int)TILE <= (int)MC_ROW, "a tile is a row of the evaluator");

#define REAL double
#define NAME(x) exact_##x
#define EXP exp
#define LOG log
#define ROUND(dtype, x) (x)
#include "runtime/judge/reference_real.inc"
#undef REAL
#undef NAME
#undef EXP
#undef LOG
#undef ROUND

#define REAL float
#define NAME(x) naive_##x
#define EXP expf
#define LOG logf
#define ROUND(dtype, x) fcp_round_to(dtype, x)
#include "runtime/judge/reference_real.inc"
#undef REAL
#undef NAME
#undef EXP
#undef LOG
#undef ROUND

/* How far a tensor is from the reference. Maxima only, so that the order of tasks does not matter. */
struct measure {
    double error, naive, most; /* of the result, of the naive computation; max |ref| */
    double excess;             /* LSE: error beyond the element-wise term */
    uint64_t worst;
    bool seen, broken; /* broken: a row without keys that is not exactly empty */
};

struct run {
    const fcp_plan *plan;
    fcp_shape shape;
    const fcp_packed *in;
    const fcp_packed *judged; /* NULL: nothing is judged */
    const uint8_t *rows[FCP_SIDES]; /* a bit per packed token of the side: its rows are judged; NULL: all are */
    fcp_reference *out;       /* NULL: nothing is kept */
    bool backward;
    const volatile int *stop;
    uint32_t *order;          /* sequences, longest first */
    _Atomic uint64_t next;    /* task */
    pthread_mutex_t lock;
    struct measure measures[FCP_TENSORS]; /* under lock */
    fcp_code code;                        /* under lock */
};

/* What one task works with. */
struct task {
    struct run *run;
    uint32_t sequence, kv_head;
    uint64_t offset, key_offset; /* packed index of the sequence's first query, first key */
    struct strip strip;
    struct exact_buffers exact;
    struct naive_buffers naive;
    mc_env env;
    mc_array *arrays;
    mc_bands *bands;
    int64_t *scratch;
    struct measure measures[FCP_TENSORS];
};

/* --- input -------------------------------------------------------------------------------------------------------- */

static void load(const struct run *run, fcp_tensor t, uint64_t token, uint32_t head, double *exact, float *naive) {
    const fcp_shape *shape = &run->shape;
    uint64_t dims[3];
    fcp_tensor_shape(shape, t, dims);
    size_t e = fcp_dtype_size(shape->dtype), at = (size_t)((token * dims[1] + head) * dims[2]);
    fcp_to_float(shape->dtype, (const char *)run->in->t[t] + at * e, naive, shape->head_dim);
    for (uint32_t i = 0; i < shape->head_dim; i++) exact[i] = naive[i];
}

static void fill_mask(struct task *t, uint32_t head) {
    struct strip *s = &t->strip;
    const fcp_plan *plan = t->run->plan;
    mc_code code = {plan->mask, (uint32_t)plan->mask_count};
    memset(s->live, 0, (s->n + TILE - 1) / TILE * sizeof *s->live);
    for (uint32_t i = 0; i < s->rows; i++)
        for (size_t key = 0; key < s->n; key += MC_ROW) {
            uint32_t width = s->n - key < MC_ROW ? (uint32_t)(s->n - key) : MC_ROW;
            uint8_t *out = s->allow + i * s->n + key;
            mc_eval_row(code, &t->env, t->env.q_first + (int64_t)(s->row + i), (int64_t)key, width, head, t->scratch,
                        out);
            if (memchr(out, 1, width)) s->live[key / TILE] = true;
        }
}

/* --- judgement ---------------------------------------------------------------------------------------------------- */

static double distance(double a, double b) {
    if (a == b || (isnan(a) && isnan(b))) return 0;
    double x = fabs(a - b);
    return isnan(x) ? INFINITY : x;
}

/* One number of the result (NULL: not ours to judge) beside what it should be. `empty`: it must be exactly that. */
static void judge(struct measure *m, fcp_tensor t, uint64_t at, const double *result, double naive, double exact, bool empty) {
    double off = distance(naive, exact), size = fabs(exact);
    if (off > m->naive) m->naive = off;
    if (isfinite(size) && size > m->most) m->most = size;
    if (!result) return;
    double value = *result, error = distance(value, exact);
    if (!m->seen || error > m->error || (error == m->error && at < m->worst)) m->error = error, m->worst = at;
    m->seen = true;
    if (empty && value != (double)(float)exact) m->broken = true;
    double excess = t == FCP_TENSOR_LSE && isfinite(size) ? error - 1e-5 * (size > 1 ? size : 1) : error;
    if (excess > m->excess) m->excess = excess;
}

/* A row of a tensor, or one number of LSE. */
static void put_row(struct task *t, fcp_tensor tensor, uint64_t token, uint32_t head, const double *exact,
                    const float *naive, double *kept, bool empty) {
    const struct run *run = t->run;
    uint64_t dims[3];
    fcp_tensor_shape(&run->shape, tensor, dims);
    uint64_t at = (token * dims[1] + head) * dims[2];
    if (kept) memcpy(kept + at, exact, dims[2] * sizeof *kept);
    if (!run->judged || !run->judged->t[tensor]) return;
    fcp_dtype dtype = fcp_tensor_dtype(&run->shape, tensor);
    const char *row = (const char *)run->judged->t[tensor] + at * fcp_dtype_size(dtype);
    const uint8_t *rows = run->rows[tensor == FCP_TENSOR_DK || tensor == FCP_TENSOR_DV ? FCP_KEYS : FCP_QUERIES];
    bool ours = !rows || rows[token / 8] >> token % 8 & 1;
    for (uint64_t i = 0; i < dims[2]; i++) {
        float value;
        fcp_to_float(dtype, row + i * fcp_dtype_size(dtype), &value, 1);
        const double result = (double)value;
        judge(&t->measures[tensor], tensor, at + i, ours ? &result : NULL, (double)naive[i], exact[i], empty);
    }
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

static void attend_strip(struct task *t, uint32_t head) {
    struct run *run = t->run;
    struct strip *s = &t->strip;
    fcp_reference none = {0}, *out = run->out ? run->out : &none;
    for (uint32_t i = 0; i < s->rows; i++) {
        uint64_t token = t->offset + s->row + i;
        load(run, FCP_TENSOR_Q, token, head, t->exact.q + i * s->d, t->naive.q + i * s->d);
        if (run->backward) load(run, FCP_TENSOR_DO, token, head, t->exact.d_o + i * s->d, t->naive.d_o + i * s->d);
    }
    s->head = head;
    s->sink = run->plan->sink_count ? &run->plan->sink[head] : NULL;
    exact_attend(s, &t->exact, run->backward);
    if (run->judged) naive_attend(s, &t->naive, run->backward);
    for (uint32_t i = 0; i < s->rows; i++) {
        uint64_t token = t->offset + s->row + i;
        bool empty = t->exact.empty[i];
        put_row(t, FCP_TENSOR_O, token, head, t->exact.o + i * s->d, t->naive.o + i * s->d, out->o, empty);
        put_row(t, FCP_TENSOR_LSE, token, head, &t->exact.lse[i], &t->naive.lse[i], out->lse, empty);
        const double lse = fabs(t->exact.lse[i]); /* judged or not, it says how large logits are */
        if (isfinite(lse) && lse > t->measures[FCP_TENSOR_LSE].most) t->measures[FCP_TENSOR_LSE].most = lse;
        if (run->backward)
            put_row(t, FCP_TENSOR_DQ, token, head, t->exact.dq + i * s->d, t->naive.dq + i * s->d, out->dq, empty);
    }
}

static void run_task(struct task *t) {
    struct run *run = t->run;
    struct strip *s = &t->strip;
    uint32_t group = run->shape.heads / run->shape.kv_heads;
    bool by_head = run->plan->problem->mask_uses & MC_USES_H;
    for (size_t i = 0; i < s->n; i++) {
        load(run, FCP_TENSOR_K, t->key_offset + i, t->kv_head, t->exact.k + i * s->d, t->naive.k + i * s->d);
        load(run, FCP_TENSOR_V, t->key_offset + i, t->kv_head, t->exact.v + i * s->d, t->naive.v + i * s->d);
    }
    for (s->row = 0; s->row < s->queries && !(run->stop && *run->stop); s->row += STRIP) {
        s->rows = s->queries - s->row < STRIP ? (uint32_t)(s->queries - s->row) : STRIP;
        for (uint32_t h = t->kv_head * group; h < (t->kv_head + 1) * group; h++) {
            if (by_head || h == t->kv_head * group) fill_mask(t, h);
            attend_strip(t, h);
        }
    }
    if (!run->backward) return;
    fcp_reference none = {0}, *out = run->out ? run->out : &none;
    naive_round_all(s, t->naive.dk, s->n * s->d);
    naive_round_all(s, t->naive.dv, s->n * s->d);
    for (size_t i = 0; i < s->n; i++) {
        put_row(t, FCP_TENSOR_DK, t->key_offset + i, t->kv_head, t->exact.dk + i * s->d, t->naive.dk + i * s->d,
                out->dk, false);
        put_row(t, FCP_TENSOR_DV, t->key_offset + i, t->kv_head, t->exact.dv + i * s->d, t->naive.dv + i * s->d,
                out->dv, false);
    }
}

static int64_t *new_scratch(const fcp_plan *plan) {
    const mc_code codes[] = {{plan->mask, (uint32_t)plan->mask_count},
                             {plan->score, (uint32_t)plan->score_count},
                             {plan->slope, (uint32_t)plan->slope_count}};
    size_t most = 0;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        size_t words = mc_row_scratch(codes[i]) + 1;
        if (words > most) most = words;
    }
    return calloc(most, sizeof(int64_t));
}

static bool open_task(struct task *t, struct run *run, uint64_t index) {
    const fcp_plan *plan = run->plan;
    uint64_t n, queries;
    *t = (struct task){.run = run, .sequence = run->order[index / run->shape.kv_heads]};
    t->kv_head = (uint32_t)(index % run->shape.kv_heads);
    t->offset = fcp_plan_sequence_offset(plan, t->sequence, &queries);
    t->key_offset = fcp_plan_key_offset(plan, t->sequence, &n);
    t->strip = (struct strip){.n = (size_t)n,
                              .queries = queries,
                              .d = run->shape.head_dim,
                              .scale = run->shape.scale,
                              .dtype = run->shape.dtype,
                              .score = {plan->score, (uint32_t)plan->score_count},
                              .slope = {plan->slope, (uint32_t)plan->slope_count},
                              .env = &t->env};
    if (n > SIZE_MAX / 64 / (8 * t->strip.d + 8 * STRIP)) return false;
    t->strip.allow = calloc(n + 1, STRIP);
    t->strip.live = calloc(n / TILE + 1, sizeof *t->strip.live);
    t->scratch = t->strip.scratch = new_scratch(plan);
    t->arrays = calloc(plan->arrays_count + 1, sizeof *t->arrays);
    t->bands = calloc(plan->slices_count + 1, sizeof *t->bands);
    if (!t->arrays || !t->bands) return false;
    fcp_plan_env(plan, t->sequence, t->arrays, t->bands, &t->env);
    bool sloped = run->backward && t->strip.slope.count;
    return t->strip.allow && t->strip.live && t->scratch && exact_allocate(&t->exact, n, t->strip.d, sloped) &&
           naive_allocate(&t->naive, n, t->strip.d, sloped);
}

static void close_task(struct task *t) {
    free(t->strip.allow);
    free(t->strip.live);
    free(t->scratch);
    free(t->arrays);
    free(t->bands);
    free(t->exact.memory);
    free(t->naive.memory);
}

static void merge(struct measure *into, const struct measure *m) {
    if (m->most > into->most) into->most = m->most;
    if (m->naive > into->naive) into->naive = m->naive;
    if (!m->seen) return;
    if (!into->seen || m->error > into->error || (m->error == into->error && m->worst < into->worst)) {
        into->error = m->error;
        into->worst = m->worst;
    }
    into->seen = true;
    if (m->excess > into->excess) into->excess = m->excess;
    into->broken |= m->broken;
}

static void *run_tasks(void *argument) {
    struct run *run = argument;
    uint64_t tasks = run->plan->sequences_count * run->shape.kv_heads;
    for (;;) {
        uint64_t index = run->next++;
        if (index >= tasks || (run->stop && *run->stop)) return NULL;
        struct task t;
        bool ok = open_task(&t, run, index);
        if (ok) run_task(&t);
        pthread_mutex_lock(&run->lock);
        if (!ok) run->code = FCP_E_NO_MEMORY;
        for (int i = 0; ok && i < FCP_TENSORS; i++) merge(&run->measures[i], &t.measures[i]);
        pthread_mutex_unlock(&run->lock);
        close_task(&t);
        if (!ok) return NULL;
    }
}

struct length {
    uint64_t n;
    uint32_t sequence;
};

static int by_length(const void *a, const void *b) {
    const struct length *x = a, *y = b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return x->sequence < y->sequence ? -1 : 1;
}

static fcp_code run_all(struct run *run, unsigned threads, fcp_error *err) {
    uint64_t sequences = run->plan->sequences_count, tasks = sequences * run->shape.kv_heads;
    long available = sysconf(_SC_NPROCESSORS_ONLN);
    if (threads == 0) threads = available < 1 ? 1 : (unsigned)available;
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > tasks) threads = tasks ? (unsigned)tasks : 1;
    struct length *lengths = malloc((sequences + 1) * sizeof *lengths);
    run->order = malloc((sequences + 1) * sizeof *run->order);
    pthread_t started[MAX_THREADS];
    unsigned count = 0;
    if (!lengths || !run->order || pthread_mutex_init(&run->lock, NULL)) {
        free(lengths);
        free(run->order);
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the reference");
    }
    for (uint32_t i = 0; i < sequences; i++) {
        const fcp_sequence *q = &run->plan->sequences[i];
        lengths[i] = (struct length){q->queries > q->keys ? q->queries : q->keys, i};
    }
    qsort(lengths, sequences, sizeof *lengths, by_length);
    for (uint32_t i = 0; i < sequences; i++) run->order[i] = lengths[i].sequence;
    while (count + 1 < threads && pthread_create(&started[count], NULL, run_tasks, run) == 0) count++;
    run_tasks(run);
    for (unsigned i = 0; i < count; i++) pthread_join(started[i], NULL);
    pthread_mutex_destroy(&run->lock);
    free(lengths);
    free(run->order);
    if (run->stop && *run->stop) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    return run->code == FCP_OK ? FCP_OK : fcp_fail(err, run->code, "out of memory for the reference");
}

static fcp_code check_inputs(const fcp_packed *in, bool backward, fcp_error *err) {
    for (int t = 0; t < FCP_TENSORS; t++) {
        bool needed = t == FCP_TENSOR_Q || t == FCP_TENSOR_K || t == FCP_TENSOR_V || (backward && t == FCP_TENSOR_DO);
        if (needed && !in->t[t])
            return fcp_fail(err, FCP_E_TENSOR, "the reference needs tensor %s", fcp_tensor_name((fcp_tensor)t));
    }
    return FCP_OK;
}

static fcp_code check(const fcp_plan *plan, const uint8_t *const rows[FCP_SIDES], unsigned passes, const fcp_packed *packed,
                      unsigned threads, const volatile int *stop, fcp_check_report *report, fcp_error *err) {
    struct run run = {.plan = plan, .in = packed, .backward = passes >> FCP_BACKWARD & 1, .stop = stop};
    fcp_packed judged = {0};
    for (int side = 0; side < FCP_SIDES; side++) run.rows[side] = rows[side];
    fcp_plan_shape(plan, &run.shape);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int t = 0; t < FCP_TENSORS; t++)
            if (passes >> pass & 1 && fcp_pass_outputs((fcp_pass)pass) >> t & 1) judged.t[t] = packed->t[t];
    run.judged = &judged;
    fcp_code code = check_inputs(packed, run.backward, err);
    if (code == FCP_OK) code = run_all(&run, threads, err);
    if (code != FCP_OK) return code;
    /* a score of which the slope depends on s is not linear in it */
    double factor = mc_uses((mc_code){plan->slope, (uint32_t)plan->slope_count}) & MC_USES_S ? 3 : 2;
    double relative = plan->score_count ? fcp_ulp(FCP_FP32, run.measures[FCP_TENSOR_LSE].most) : 0;
    for (int t = 0; t < FCP_TENSORS; t++) {
        const struct measure *m = &run.measures[t];
        if (!judged.t[t]) continue;
        double absolute = t < FCP_TENSOR_DQ ? 0 : run.shape.dtype == FCP_FP32 ? 1e-5 : 3e-4;
        if (t != FCP_TENSOR_LSE) absolute += relative * m->most;
        fcp_check *c = &report->tensor[t];
        *c = (fcp_check){.checked = true, .max_abs_error = m->error, .reference_error = m->naive, .worst = m->worst};
        c->tolerance = factor * m->naive + fcp_ulp(fcp_tensor_dtype(&run.shape, (fcp_tensor)t), m->most) + absolute;
        c->ok = !m->broken && (t == FCP_TENSOR_LSE ? m->excess : m->error) <= c->tolerance;
        report->ok &= c->ok;
        if (m->error > report->max_abs_error) report->max_abs_error = m->error;
        if (m->naive > report->reference_error) report->reference_error = m->naive;
    }
    return FCP_OK;
}

fcp_code fcp_check_passes(const fcp_plan *plan, unsigned passes, const fcp_packed *packed, unsigned threads,
                          const volatile int *stop, fcp_check_report *report, fcp_error *err) {
    return check(plan, (const uint8_t *const[FCP_SIDES]){NULL, NULL}, passes, packed, threads, stop, report, err);
}

/* Marks a rank's tokens of a side. */
static void mark_rows(const fcp_plan *plan, uint32_t rank, fcp_side side, uint8_t *rows) {
    const fcp_span *spans;
    uint32_t count;
    if (side == FCP_KEYS) fcp_plan_layout_keys(plan, rank, &spans, &count);
    else fcp_plan_layout(plan, rank, &spans, &count);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t at = fcp_offsets(plan, side)[spans[i].sequence] + spans[i].start;
        for (uint64_t t = at; t < at + spans[i].length; t++) rows[t / 8] |= (uint8_t)(1u << t % 8);
    }
}

fcp_code fcp_check_ranks(const fcp_plan *plan, uint32_t first, uint32_t count, unsigned passes, const fcp_packed *packed,
                         unsigned threads, const volatile int *stop, fcp_check_report *report, fcp_error *err) {
    uint8_t *rows[FCP_SIDES] = {calloc(plan->problem->tokens / 8 + 1, 1), calloc(plan->problem->key_tokens / 8 + 1, 1)};
    fcp_code code = rows[0] && rows[1] ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the rows of %u ranks", count);
    for (int side = 0; !code && side < FCP_SIDES; side++)
        for (uint32_t r = first; r < first + count; r++) mark_rows(plan, r, (fcp_side)side, rows[side]);
    if (!code)
        code = check(plan, (const uint8_t *const[FCP_SIDES]){rows[0], rows[1]}, passes, packed, threads, stop, report, err);
    free(rows[0]);
    free(rows[1]);
    return code;
}

fcp_code fcp_reference_compute(const fcp_plan *plan, const fcp_packed *in, unsigned threads, const volatile int *stop,
                               fcp_reference *out, fcp_error *err) {
    struct run run = {.plan = plan, .in = in, .out = out, .backward = in->t[FCP_TENSOR_DO] != NULL, .stop = stop};
    fcp_plan_shape(plan, &run.shape);
    fcp_code code = check_inputs(in, run.backward, err);
    return code == FCP_OK ? run_all(&run, threads, err) : code;
}
