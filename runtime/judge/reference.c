/* reference.c: runs a judgement: cuts it into tasks and shares them out to threads (reference.h).
 *
 * Requires: a checked plan; packed inputs.
 * Method:   a task is one KV head of one sequence, with the query heads that share it; in a sample it is one run of
 *           rows. Threads take tasks, the longest sequences first. task.c computes a task, and verdict.c judges.
 */
#include "runtime/judge/reference.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/layout.h"
#include "runtime/plan/sides.h"

#include <stdlib.h>

#include "runtime/base/stop.h"
#include "runtime/base/threads.h"
#include "runtime/judge/judge_parts.h"

enum { MAX_THREADS = 256 };

static uint64_t tasks_of(const check_run *run) {
    return run->sample ? run->sample->count : run->plan->sequences_count * run->shape.kv_heads;
}

/* Nothing more is to be computed: wakes the threads that wait for their turn. */
static void end_tasks(check_run *run, fcp_code code) {
    pthread_mutex_lock(&run->lock);
    run->over = true;
    if (code) run->code = code;
    pthread_cond_broadcast(&run->turn);
    pthread_mutex_unlock(&run->lock);
}

/* Adds what task `index` has found. Sums of tables are added in the order of tasks. */
static void add_task(check_run *run, uint64_t index, const measure found[FCP_TENSORS], check_tables *tables) {
    pthread_mutex_lock(&run->lock);
    for (int i = 0; i < FCP_TENSORS; i++) measure_merge(&run->measures[i], &found[i]);
    while (run->read_count && run->added != index && !run->over) pthread_cond_wait(&run->turn, &run->lock);
    if (run->read_count) check_tables_move(tables, &run->tables);
    run->added++;
    pthread_cond_broadcast(&run->turn);
    pthread_mutex_unlock(&run->lock);
}

static void *run_tasks(void *argument) {
    check_run *run = argument;
    uint64_t tasks = tasks_of(run);
    check_tables tables = {0};
    bool ok = !run->read_count || check_tables_open(run, &tables);
    while (ok) {
        uint64_t index = run->next++;
        if (index >= tasks) break;
        if (fcp_stop_asked(run->stop)) {
            end_tasks(run, FCP_OK);
            break;
        }
        measure found[FCP_TENSORS];
        ok = check_task(run, index, found, &tables);
        if (ok) add_task(run, index, found, &tables);
    }
    if (!ok) end_tasks(run, FCP_E_NO_MEMORY);
    check_tables_close(&tables);
    return NULL;
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

static fcp_code run_all(check_run *run, unsigned threads, fcp_error *err) {
    uint64_t sequences = run->plan->sequences_count, tasks = tasks_of(run);
    if (threads == 0) threads = fcp_processors(MAX_THREADS);
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    if (threads > tasks) threads = tasks ? (unsigned)tasks : 1;
    struct length *lengths = malloc((sequences + 1) * sizeof *lengths);
    run->order = malloc((sequences + 1) * sizeof *run->order);
    pthread_t started[MAX_THREADS];
    unsigned count = 0;
    bool locks = lengths && run->order && !pthread_mutex_init(&run->lock, NULL);
    if (locks && pthread_cond_init(&run->turn, NULL)) {
        pthread_mutex_destroy(&run->lock);
        locks = false;
    }
    if (!locks) {
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
    pthread_cond_destroy(&run->turn);
    pthread_mutex_destroy(&run->lock);
    free(lengths);
    free(run->order);
    if (fcp_stop_asked(run->stop)) return fcp_fail(err, FCP_E_INTERRUPTED, "interrupted");
    return run->code == FCP_OK ? FCP_OK : fcp_fail(err, run->code, "out of memory for the reference");
}

/* The slope is for gradients alone; what is rough or coarse, for what is allowed. The host computes exact functions, so
 * only dtypes with kernels have what is coarse. */
static bool derive_score(check_run *run, bool judged) {
    const mc_code score = {run->plan->score, (uint32_t)run->plan->score_count};
    if (run->backward && !check_slope(score, MC_NONE, &run->slope)) return false;
    if (judged && !check_rough(score, &run->rough)) return false;
    return !judged || run->shape.dtype == FCP_FP32 ||
           (check_coarse(score, &run->coarse_score) && check_coarse(run->slope, &run->coarse_slope));
}
static void free_scores(check_run *run) {
    free((mc_node *)(uintptr_t)run->slope.nodes);
    free((mc_node *)(uintptr_t)run->rough.nodes);
    check_coarse_free(&run->coarse_score);
    check_coarse_free(&run->coarse_slope);
}

/* The tensors that are read, `needed` (a bit per fcp_tensor), must be there. */
static fcp_code check_inputs(const fcp_packed *in, unsigned needed, fcp_error *err) {
    for (int t = 0; t < FCP_TENSORS; t++)
        if (needed >> t & 1 && !in->t[t])
            return fcp_fail(err, FCP_E_TENSOR, "the reference needs tensor %s", fcp_tensor_name((fcp_tensor)t));
    return FCP_OK;
}
static unsigned inputs_of(const check_run *run) {
    const bool sampled = run->sample != NULL;
    unsigned inputs = fcp_pass_inputs(FCP_FORWARD);
    if (run->backward) inputs |= 1u << FCP_TENSOR_DO;
    if (run->backward && sampled) inputs |= 1u << FCP_TENSOR_O | 1u << FCP_TENSOR_LSE;
    return run->shape.values_in_keys ? inputs & ~(1u << FCP_TENSOR_V) : inputs;
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

static void report_rows(const check_run *run, fcp_check_report *report) {
    const fcp_shape *s = &run->shape;
    report->sampled = run->sample != NULL;
    report->rows[FCP_QUERIES] = s->tokens * s->heads;
    report->rows[FCP_KEYS] = run->backward ? s->key_tokens * s->kv_heads : 0;
    for (int side = 0; side < FCP_SIDES; side++)
        report->checked[side] = run->sample ? run->sample->rows[side] : report->rows[side];
}

/* What rounding on the wire may do to each tensor. dQ and dK are made of O, so the hops of states count there, too. */
static bool allow_wire(check_run *run) {
    double error[FCP_CLASSES];
    if (!check_hops(run->plan, error)) return false;
    run->wire[FCP_TENSOR_O] = run->wire_state = error[FCP_STATE];
    run->wire[FCP_TENSOR_DQ] = error[FCP_STATE] + error[FCP_DQ];
    run->wire[FCP_TENSOR_DK] = error[FCP_STATE] + error[FCP_DKV];
    run->wire[FCP_TENSOR_DV] = error[FCP_DKV];
    return true;
}

static fcp_code judge(check_run *run, const fcp_check_options *options, fcp_check_report *report, fcp_error *err) {
    fcp_packed judged = {0};
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (int t = 0; t < FCP_TENSORS; t++)
            if (options->passes >> pass & 1 && fcp_pass_outputs((fcp_pass)pass) >> t & 1) judged.t[t] = run->in->t[t];
    if (judged.t[FCP_TENSOR_LSE]) judged.t[FCP_TENSOR_LSE_LOW] = run->in->t[FCP_TENSOR_LSE_LOW];
    if (run->shape.values_in_keys) judged.t[FCP_TENSOR_DV] = NULL;
    const bool shared = options->shared && run->backward, sinks = shared && run->in->d_sink;
    const unsigned results = sinks ? 1u << FCP_TENSOR_O | 1u << FCP_TENSOR_LSE : 0;
    run->judged = &judged;
    fcp_code code = check_inputs(run->in, inputs_of(run) | results, err);
    if (code) return code;
    if (!allow_wire(run)) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the ways of partial results");
    if (shared && run->in->d_table && !run->sample && (!check_reads_make(run) || !check_tables_open(run, &run->tables)))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the gradients of tables");
    code = run_all(run, options->threads, err);
    if (code) return code;
    for (int t = 0; t < FCP_TENSORS; t++)
        if (judged.t[t]) measure_report(&run->measures[t], (unsigned)t, report);
    if (sinks && !check_sinks_judge(run, report))
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the gradients of sinks");
    if (run->read_count) check_tables_judge(run, report);
    report_rows(run, report);
    return FCP_OK;
}

fcp_code fcp_check_run(const fcp_plan *plan, const fcp_check_options *options, const fcp_packed *packed,
                       fcp_check_report *report, fcp_error *err) {
    check_run run = {.plan = plan, .in = packed, .stop = options->stop};
    run.backward = options->passes >> FCP_BACKWARD & 1;
    check_sample sample = {0};
    uint8_t *rows[FCP_SIDES] = {NULL};
    fcp_code code = fcp_plan_whole(plan, "comparing results", err);
    if (code) return code;
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
    if (!code && !derive_score(&run, true)) code = FCP_E_NO_MEMORY;
    code = code ? fcp_fail(err, code, "out of memory for the rows to check") : judge(&run, options, report, err);
    check_tables_close(&run.tables);
    check_reads_free(&run);
    free_scores(&run);
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

fcp_code fcp_reference_compute(const fcp_plan *plan, const fcp_packed *in, unsigned threads,
                               fcp_reference *out, fcp_error *err) {
    check_run run = {.plan = plan, .in = in, .out = out, .backward = in->t[FCP_TENSOR_DO] != NULL};
    fcp_plan_shape(plan, &run.shape);
    fcp_code code = check_inputs(in, inputs_of(&run), err);
    if (!code && !derive_score(&run, false))
        code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for the score's derivative");
    if (!code) code = run_all(&run, threads, err);
    free_scores(&run);
    return code;
}
