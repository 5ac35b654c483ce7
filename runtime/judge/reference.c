/* reference.c: computes attention by its definition. reference.h says what is computed, and verdict.c judges.
 *
 * Requires: a checked plan; packed inputs.
 * Method:   A task is one KV head of one sequence, with the query heads that share it; in a sample it is one run of
 *           rows. Threads take tasks, the longest sequences first. STRIP queries are computed at a time, so that a tile
 *           of keys, once loaded, serves many. The mask is evaluated for every pair of a strip. Scores and slopes are
 *           evaluated pair by pair in float64; for the naive computation in rows of float32, as kernels do.
 */
#include "runtime/judge/reference.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/base/stop.h"
#include "runtime/base/threads.h"
#include "runtime/judge/hops.h"
#include "runtime/judge/parts.h"
#include "runtime/judge/sample.h"
#include "runtime/judge/slope.h"

enum { STRIP = 32, TILE = 128, MAX_THREADS = 256 };

/* Queries [row, row + rows) of a sequence against its keys [key, key + n). */
struct strip {
    size_t n, d;
    uint64_t row, key;
    uint32_t rows;
    bool wants_rows, wants_keys; /* of gradients: dQ; dK and dV */
    double scale;
    fcp_dtype dtype;
    mc_code score, slope; /* of no nodes: the score is s */
    const double *sink;   /* of the head, or NULL */
    const mc_env *env;
    int64_t head;
    int64_t *scratch;
    uint8_t *allow; /* [STRIP][n]: the mask */
    bool *live;     /* per TILE keys: some pair with them is allowed */
};

/* TILE keys, with some of which the strip has an allowed pair. first_tile and next_tile go through them; count is 0
 * behind the last. */
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

/* A score, or its slope, of row i of the strip and the allowed keys of a tile. `out` may be `logits`. */
static void exact_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const double *logits,
                        double *out) {
    const uint8_t *allow = s->allow + i * s->n + t.key;
    for (uint32_t j = 0; j < t.count; j++)
        if (allow[j])
            out[j] = mc_eval_score(code, s->env, s->env->q_first + (int64_t)(s->row + i),
                                   (int64_t)(s->key + t.key + j), s->head, logits[j], s->scratch);
}

static void naive_score(const struct strip *s, mc_code code, uint32_t i, struct tile t, const float *logits,
                        float *out) {
    mc_eval_score_row(code, s->env, s->env->q_first + (int64_t)(s->row + i), (int64_t)(s->key + t.key), t.count,
                      s->head, logits, s->scratch, out);
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

struct run {
    const fcp_plan *plan;
    fcp_shape shape;
    const fcp_packed *in;
    const fcp_packed *judged; /* NULL: nothing is judged */
    const uint8_t *rows[FCP_SIDES]; /* a bit per packed token: whether its rows are judged; NULL: all are */
    fcp_reference *out;       /* where to put the reference itself; NULL: nowhere */
    const check_sample *sample; /* NULL: all rows */
    mc_code slope;            /* of the score, derived by the judge */
    bool backward;
    const volatile int *stop;
    uint32_t *order;          /* sequences, longest first */
    _Atomic uint64_t next;    /* task */
    pthread_mutex_t lock;
    double wire[FCP_TENSORS]; /* see reference.h */
    measure measures[FCP_TENSORS]; /* under lock */
    fcp_code code;                        /* under lock */
};

/* Absolute values added up, each as often as it is off by an ulp; and as they are. */
struct sums {
    double ulps, plain;
};
static void add_value(struct sums *to, double value, double ulps) {
    to->ulps += value * ulps;
    to->plain += value;
}

/* What a thread works with while it has a task. */
struct task {
    struct run *run;
    uint32_t kv_head;
    uint64_t offset, key_offset; /* packed index of the sequence's first query, first key */
    struct strip strip;
    struct exact_buffers exact;
    struct naive_buffers naive;
    mc_env env;
    mc_array *arrays;
    mc_bands *bands;
    int64_t *scratch;
    measure measures[FCP_TENSORS];
    fcp_check_unit unit; /* what is computed: see open_task */
    double *k_typical, *k_most, *v_typical, *v_most; /* per key: see typical */
    struct sums *floor_k, *floor_v, floor_q[STRIP], floor_o[STRIP]; /* per key, and per row: see add_floors */
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
            mc_eval_row(code, &t->env, t->env.q_first + (int64_t)(s->row + i), (int64_t)(s->key + key), width, head,
                        t->scratch, out);
            if (memchr(out, 1, width)) s->live[key / TILE] = true;
        }
}

/* --- judgement ---------------------------------------------------------------------------------------------------- */

/* Judges a row of a tensor, or one number of LSE, and keeps the reference if that is wanted. sums: of the row. */
static void put_row(struct task *t, fcp_tensor tensor, uint64_t token, uint32_t head, const double *exact,
                    const float *naive, const struct sums *sums, double *kept, bool empty) {
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
        const double allowance = tensor == FCP_TENSOR_LSE ? 1e-5 * fmax(1, fabs(exact[i]))
                                                          : run->wire[tensor] * sums->plain;
        measure_number(&t->measures[tensor], dtype, at + i, ours ? &result : NULL, (double)naive[i], exact[i],
                       allowance, empty);
    }
}

/* --- what rounding may do ----------------------------------------------------------------------------------------- */

/* A vector's length over the root of its size, which is what one of its numbers is like; and its largest number. */
static double typical(const double *x, size_t d, double *out_most) {
    double sum = 0, most = 0;
    for (size_t i = 0; i < d; i++) {
        sum += x[i] * x[i];
        if (fabs(x[i]) > most) most = fabs(x[i]);
    }
    *out_most = most;
    return sqrt(sum / (double)d);
}

/* Adds up the absolute values that make up each result: what is off by a few ulps of them is off by rounding alone.
 * Called between the passes of the exact computation, when p holds P, and after the backward pass, when ds holds dS:
 * the error of dS is P times that of dP - delta, and dS times that of P. A product of two vectors is off by ulps of the
 * product of their lengths, over the root of head_dim. */
static void add_floors(struct task *t, bool after_backward) {
    struct strip *s = &t->strip;
    const struct exact_buffers *b = &t->exact;
    const double root = sqrt((double)s->d);
    for (uint32_t i = 0; i < s->rows; i++) {
        if (!after_backward) t->floor_o[i] = t->floor_q[i] = (struct sums){0};
        if (!isfinite(b->lse[i])) continue;
        double q_most, o_most, g_most = 0;
        const double q = typical(b->q + i * s->d, s->d, &q_most), o = typical(b->o + i * s->d, s->d, &o_most);
        const double g = t->run->backward ? typical(b->d_o + i * s->d, s->d, &g_most) : 0;
        /* P is off by as many ulps as its exponent: see reference.h */
        const double ulps_of_row = 1 + fabs(b->lse[i]), ulps_of_key = s->scale * root * q;
        for (struct tile tile = first_tile(s); tile.count; tile = next_tile(s, tile))
            for (size_t j = tile.key; j < tile.key + tile.count; j++) {
                const size_t at = i * s->n + j;
                if ((after_backward ? b->ds[at] : b->p[at]) == 0) continue;
                const double ulps = ulps_of_row + ulps_of_key * t->k_typical[j];
                const double slope = b->slope ? fabs(b->slope[at]) : 1;
                double ds = fabs(b->ds[at]);
                if (!after_backward) {
                    add_value(&t->floor_o[i], b->p[at] * t->v_most[j], ulps);
                    add_value(&t->floor_v[j], b->p[at] * g_most, ulps);
                    ds = b->p[at] * slope * s->scale * root * g * (t->v_typical[j] + o);
                }
                add_value(&t->floor_q[i], ds * t->k_most[j], after_backward ? ulps : 1);
                add_value(&t->floor_k[j], ds * q_most, after_backward ? ulps : 1);
            }
        if (s->wants_rows && !after_backward) measure_floor(&t->measures[FCP_TENSOR_O], t->floor_o[i].ulps);
        if (s->wants_rows && after_backward) measure_floor(&t->measures[FCP_TENSOR_DQ], t->floor_q[i].ulps);
    }
}

/* --- tasks -------------------------------------------------------------------------------------------------------- */

static void load_strip(struct task *t, uint32_t head) {
    struct run *run = t->run;
    struct strip *s = &t->strip;
    for (uint32_t i = 0; i < s->rows; i++) {
        uint64_t token = t->offset + s->row + i;
        load(run, FCP_TENSOR_Q, token, head, t->exact.q + i * s->d, t->naive.q + i * s->d);
        if (run->backward) load(run, FCP_TENSOR_DO, token, head, t->exact.d_o + i * s->d, t->naive.d_o + i * s->d);
        if (s->wants_rows) continue;
        load(run, FCP_TENSOR_O, token, head, t->exact.o + i * s->d, t->naive.o + i * s->d);
        t->naive.lse[i] = ((const float *)run->in->t[FCP_TENSOR_LSE])[token * run->shape.heads + head];
        t->exact.lse[i] = (double)t->naive.lse[i];
    }
    s->head = head;
    s->sink = run->plan->sink_count ? &run->plan->sink[head] : NULL;
}

static void attend_strip(struct task *t, uint32_t head) {
    struct run *run = t->run;
    struct strip *s = &t->strip;
    fcp_reference none = {0}, *out = run->out ? run->out : &none;
    load_strip(t, head);
    if (s->wants_rows) exact_forward(s, &t->exact, run->backward);
    else exact_recompute(s, &t->exact);
    if (run->judged) add_floors(t, false);
    if (run->backward) exact_backward(s, &t->exact);
    if (run->judged && run->backward) add_floors(t, true);
    if (run->judged) {
        if (s->wants_rows) naive_forward(s, &t->naive, run->backward);
        else naive_recompute(s, &t->naive);
        if (run->backward) naive_backward(s, &t->naive);
    }
    for (uint32_t i = 0; i < s->rows && s->wants_rows; i++) {
        uint64_t token = t->offset + s->row + i;
        bool empty = t->exact.empty[i];
        put_row(t, FCP_TENSOR_O, token, head, t->exact.o + i * s->d, t->naive.o + i * s->d, &t->floor_o[i], out->o,
                empty);
        put_row(t, FCP_TENSOR_LSE, token, head, &t->exact.lse[i], &t->naive.lse[i], NULL, out->lse, empty);
        if (run->backward)
            put_row(t, FCP_TENSOR_DQ, token, head, t->exact.dq + i * s->d, t->naive.dq + i * s->d, &t->floor_q[i],
                    out->dq, empty);
    }
}

static void load_keys(struct task *t) {
    struct strip *s = &t->strip;
    for (size_t i = 0; i < s->n; i++) {
        uint64_t token = t->key_offset + s->key + i;
        load(t->run, FCP_TENSOR_K, token, t->kv_head, t->exact.k + i * s->d, t->naive.k + i * s->d);
        load(t->run, FCP_TENSOR_V, token, t->kv_head, t->exact.v + i * s->d, t->naive.v + i * s->d);
        t->k_typical[i] = typical(t->exact.k + i * s->d, s->d, &t->k_most[i]);
        t->v_typical[i] = typical(t->exact.v + i * s->d, s->d, &t->v_most[i]);
    }
}

static void put_keys(struct task *t) {
    struct strip *s = &t->strip;
    fcp_reference none = {0}, *out = t->run->out ? t->run->out : &none;
    naive_round_all(s, t->naive.dk, s->n * s->d);
    naive_round_all(s, t->naive.dv, s->n * s->d);
    for (size_t i = 0; i < s->n; i++) {
        uint64_t token = t->key_offset + s->key + i;
        put_row(t, FCP_TENSOR_DK, token, t->kv_head, t->exact.dk + i * s->d, t->naive.dk + i * s->d,
                &t->floor_k[i], out->dk, false);
        put_row(t, FCP_TENSOR_DV, token, t->kv_head, t->exact.dv + i * s->d, t->naive.dv + i * s->d,
                &t->floor_v[i], out->dv, false);
        measure_floor(&t->measures[FCP_TENSOR_DK], t->floor_k[i].ulps);
        measure_floor(&t->measures[FCP_TENSOR_DV], t->floor_v[i].ulps);
    }
}

static void run_task(struct task *t) {
    struct run *run = t->run;
    struct strip *s = &t->strip;
    uint32_t group = run->shape.heads / run->shape.kv_heads, first_head = t->kv_head * group, heads = group;
    bool by_head = run->plan->problem->mask_uses & MC_USES_H;
    uint64_t first = 0, end;
    fcp_plan_sequence_offset(run->plan, t->unit.sequence, &end);
    if (run->sample && s->wants_rows) {
        first = t->unit.first;
        end = first + t->unit.count;
        first_head = t->unit.head;
        heads = 1;
    }
    load_keys(t);
    for (s->row = first; s->row < end && !fcp_stop_asked(run->stop); s->row += STRIP) {
        s->rows = end - s->row < STRIP ? (uint32_t)(end - s->row) : STRIP;
        for (uint32_t h = first_head; h < first_head + heads; h++) {
            if (by_head || h == first_head) fill_mask(t, h);
            attend_strip(t, h);
        }
    }
    if (s->wants_keys) put_keys(t);
}

static int64_t *new_scratch(const fcp_plan *plan, mc_code slope) {
    const mc_code codes[] = {{plan->mask, (uint32_t)plan->mask_count},
                             {plan->score, (uint32_t)plan->score_count}, slope};
    size_t most = 0;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        size_t words = mc_row_scratch(codes[i]) + 1;
        if (words > most) most = words;
    }
    return calloc(most, sizeof(int64_t));
}

/* Task `index`: all rows of a KV head of a sequence; or, of a sample, some rows of queries for one head (against all
 * keys), or some keys of one KV head (against all queries). */
static bool open_task(struct task *t, struct run *run, uint64_t index) {
    const fcp_plan *plan = run->plan;
    uint32_t kv_heads = run->shape.kv_heads;
    uint64_t n, unused, d = run->shape.head_dim;
    bool rows = true, keys = run->backward;
    *t = (struct task){.run = run};
    if (run->sample) {
        t->unit = run->sample->units[index];
        rows = t->unit.side == FCP_QUERIES;
        keys = !rows;
    } else {
        t->unit = (fcp_check_unit){.sequence = run->order[index / kv_heads], .side = FCP_KEYS};
        t->unit.head = (uint32_t)(index % kv_heads);
    }
    t->kv_head = t->unit.side == FCP_QUERIES ? t->unit.head / (run->shape.heads / kv_heads) : t->unit.head;
    t->offset = fcp_plan_sequence_offset(plan, t->unit.sequence, &unused);
    t->key_offset = fcp_plan_key_offset(plan, t->unit.sequence, &n);
    if (!rows) n = t->unit.count;
    t->strip = (struct strip){.n = (size_t)n,
                              .key = rows ? 0 : t->unit.first,
                              .d = (size_t)d,
                              .wants_rows = rows,
                              .wants_keys = keys,
                              .scale = run->shape.scale,
                              .dtype = run->shape.dtype,
                              .score = {plan->score, (uint32_t)plan->score_count},
                              .slope = run->slope,
                              .env = &t->env};
    if (n > SIZE_MAX / 64 / (8 * d + 8 * STRIP)) return false;
    t->strip.allow = calloc(n + 1, STRIP);
    t->strip.live = calloc(n / TILE + 1, sizeof *t->strip.live);
    t->scratch = t->strip.scratch = new_scratch(plan, run->slope);
    t->arrays = calloc(plan->arrays_count + 1, sizeof *t->arrays);
    t->bands = calloc(plan->slices_count + 1, sizeof *t->bands);
    double *per_key = t->k_typical = calloc(n + 1, 4 * sizeof *per_key);
    t->floor_k = calloc(n + 1, 2 * sizeof *t->floor_k);
    if (!t->strip.allow || !t->strip.live || !t->scratch || !t->arrays || !t->bands || !per_key ||
        !t->floor_k)
        return false;
    t->k_most = per_key + n;
    t->v_typical = per_key + 2 * n;
    t->v_most = per_key + 3 * n;
    t->floor_v = t->floor_k + n;
    fcp_plan_env(plan, t->unit.sequence, t->arrays, t->bands, &t->env);
    bool sloped = run->backward && t->strip.slope.count;
    return exact_allocate(&t->exact, n, d, sloped) && naive_allocate(&t->naive, n, d, sloped);
}

static void close_task(struct task *t) {
    free(t->strip.allow);
    free(t->strip.live);
    free(t->scratch);
    free(t->arrays);
    free(t->bands);
    free(t->k_typical);
    free(t->floor_k);
    free(t->exact.memory);
    free(t->naive.memory);
}

static uint64_t tasks_of(const struct run *run) {
    return run->sample ? run->sample->count : run->plan->sequences_count * run->shape.kv_heads;
}

static void *run_tasks(void *argument) {
    struct run *run = argument;
    uint64_t tasks = tasks_of(run);
    for (;;) {
        uint64_t index = run->next++;
        if (index >= tasks || fcp_stop_asked(run->stop)) return NULL;
        struct task t;
        bool ok = open_task(&t, run, index);
        if (ok) run_task(&t);
        pthread_mutex_lock(&run->lock);
        if (!ok) run->code = FCP_E_NO_MEMORY;
        for (int i = 0; ok && i < FCP_TENSORS; i++) measure_merge(&run->measures[i], &t.measures[i]);
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
    uint64_t sequences = run->plan->sequences_count, tasks = tasks_of(run);
    if (threads == 0) threads = fcp_processors(MAX_THREADS);
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
    while (count + 1 < threads && fcp_thread_start(&started[count], 0, run_tasks, run)) count++;
    run_tasks(run);
    for (unsigned i = 0; i < count; i++) pthread_join(started[i], NULL);
    pthread_mutex_destroy(&run->lock);
    free(lengths);
    free(run->order);
    if (fcp_stop_asked(run->stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    return run->code == FCP_OK ? FCP_OK : fcp_fail(err, run->code, "out of memory for the reference");
}

static bool derive_score(struct run *run) {
    return check_slope((mc_code){run->plan->score, (uint32_t)run->plan->score_count}, &run->slope);
}

/* The tensors that are read, `needed` (a bit per fcp_tensor), must be there. */
static fcp_code check_inputs(const fcp_packed *in, unsigned needed, fcp_error *err) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (needed >> t & 1 && !in->t[t])
            return fcp_fail(err, FCP_E_TENSOR, "the reference needs tensor %s", fcp_tensor_name((fcp_tensor)t));
    return FCP_OK;
}
static unsigned inputs_of(bool backward, bool sampled) {
    unsigned qkv = 1u << FCP_TENSOR_Q | 1u << FCP_TENSOR_K | 1u << FCP_TENSOR_V;
    unsigned results = 1u << FCP_TENSOR_O | 1u << FCP_TENSOR_LSE;
    return qkv | (backward ? 1u << FCP_TENSOR_DO : 0) | (backward && sampled ? results : 0);
}

/* Sets the bits of the tokens of a side that a rank's caller holds. */
static void mark_rows(const fcp_plan *plan, uint32_t rank, fcp_side side, uint8_t *rows) {
    fcp_layout_at walk = {0};
    fcp_span span;
    while (fcp_side_layout(plan, side, rank, &walk, &span)) {
        uint64_t at = fcp_offsets(plan, side)[span.sequence] + span.start;
        for (uint64_t t = at; t < at + span.length; t++) rows[t / 8] |= (uint8_t)(1u << t % 8);
    }
}

static void report_rows(const struct run *run, fcp_check_report *report) {
    const fcp_shape *s = &run->shape;
    report->sampled = run->sample != NULL;
    report->rows[FCP_QUERIES] = s->tokens * s->heads;
    report->rows[FCP_KEYS] = run->backward ? s->key_tokens * s->kv_heads : 0;
    for (int side = 0; side < FCP_SIDES; side++)
        report->checked[side] = run->sample ? run->sample->rows[side] : report->rows[side];
}

/* What rounding on the wire may do to each tensor. dQ and dK are made of O, so the hops of states count there, too. */
static bool allow_wire(struct run *run) {
    double error[FCP_CLASSES];
    if (!check_hops(run->plan, error)) return false;
    run->wire[FCP_TENSOR_O] = error[FCP_STATE];
    run->wire[FCP_TENSOR_DQ] = error[FCP_STATE] + error[FCP_DQ];
    run->wire[FCP_TENSOR_DK] = error[FCP_STATE] + error[FCP_DKV];
    run->wire[FCP_TENSOR_DV] = error[FCP_DKV];
    return true;
}

static fcp_code judge(struct run *run, const fcp_check_options *options, fcp_check_report *report, fcp_error *err) {
    fcp_packed judged = {0};
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int t = 0; t < FCP_TENSORS; t++)
            if (options->passes >> pass & 1 && fcp_pass_outputs((fcp_pass)pass) >> t & 1) judged.t[t] = run->in->t[t];
    run->judged = &judged;
    fcp_code code = check_inputs(run->in, inputs_of(run->backward, run->sample != NULL), err);
    if (code == FCP_OK && !allow_wire(run))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the ways of partial results");
    if (code == FCP_OK) code = run_all(run, options->threads, err);
    if (code != FCP_OK) return code;
    /* a score whose slope depends on s is not linear in s */
    double factor = mc_uses(run->slope) & MC_USES_S ? 3 : 2;
    for (int t = 0; t < FCP_TENSORS; t++) {
        if (!judged.t[t]) continue;
        fcp_dtype dtype = fcp_tensor_dtype(&run->shape, (fcp_tensor)t);
        double absolute = t >= FCP_TENSOR_DQ && dtype != FCP_FP32 ? 3e-4 : 0;
        measure_report(&run->measures[t], (fcp_tensor)t, dtype, factor, absolute, report);
    }
    report_rows(run, report);
    return FCP_OK;
}

fcp_code fcp_check_run(const fcp_plan *plan, const fcp_check_options *options, const fcp_packed *packed,
                       fcp_check_report *report, fcp_error *err) {
    struct run run = {.plan = plan, .in = packed, .stop = options->stop};
    run.backward = options->passes >> FCP_BACKWARD & 1;
    check_sample sample = {0};
    uint8_t *rows[FCP_SIDES] = {NULL};
    fcp_code code = FCP_OK;
    fcp_plan_shape(plan, &run.shape);
    if (options->work > 0 && fcp_check_work(plan, options->passes) > options->work) {
        if (!check_sample_choose(plan, options->passes, options->work, &sample)) code = FCP_E_NO_MEMORY;
        else run.sample = &sample;
    }
    for (int side = 0; !code && options->count && side < FCP_SIDES; side++) {
        run.rows[side] = rows[side] = calloc(fcp_offsets(plan, (fcp_side)side)[plan->sequences_count] / 8 + 1, 1);
        if (!rows[side]) code = FCP_E_NO_MEMORY;
        for (uint32_t r = options->first; !code && r < options->first + options->count; r++)
            mark_rows(plan, r, (fcp_side)side, rows[side]);
    }
    if (!code && !derive_score(&run)) code = FCP_E_NO_MEMORY;
    code = code ? fcp_fail(err, code, "out of memory for the rows to check") : judge(&run, options, report, err);
    free((mc_node *)(uintptr_t)run.slope.nodes);
    for (int side = 0; side < FCP_SIDES; side++) free(rows[side]);
    free(sample.units);
    return code;
}

fcp_code fcp_check_units(const fcp_plan *plan, const fcp_check_options *options, fcp_check_unit **out_units,
                         uint64_t *out_count, fcp_error *err) {
    check_sample sample = {0};
    if (options->work > 0 && fcp_check_work(plan, options->passes) > options->work &&
        !check_sample_choose(plan, options->passes, options->work, &sample))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the rows to check");
    *out_units = sample.units;
    *out_count = sample.count;
    return FCP_OK;
}

fcp_code fcp_reference_compute(const fcp_plan *plan, const fcp_packed *in, unsigned threads, const volatile int *stop,
                               fcp_reference *out, fcp_error *err) {
    struct run run = {.plan = plan, .in = in, .out = out, .backward = in->t[FCP_TENSOR_DO] != NULL, .stop = stop};
    fcp_plan_shape(plan, &run.shape);
    fcp_code code = check_inputs(in, inputs_of(run.backward, false), err);
    if (!code && !derive_score(&run)) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the score's derivative");
    if (!code) code = run_all(&run, threads, err);
    free((mc_node *)(uintptr_t)run.slope.nodes);
    return code;
}
