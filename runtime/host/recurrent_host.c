/* recurrent_host.c: halos and scans on the host: what gives a stretch of a sequence the rows beside it, or the state
 * that enters it.
 *
 * Requires: a verified plan; arguments that runtime/session.c has checked.
 * Gives:    fcp_session_halo, fcp_session_halo_gradient and fcp_session_scan.
 * Method:   each rank has a thread, which walks the rank's steps (exec/recurrent_steps.h). The caller's thread serves
 *           as that of the last rank, unless the caller wants to be asked whether to stop: then it waits for all.
 *           Threads that combine or copy take a worker first, and helpers share the rows, as in a pass. Summaries go
 *           from where they lie to where they are wanted. Rows of halos are packed into messages.
 * Order:    nothing but a rank's own order of steps and what its messages have. So no bit depends on time, nor on how
 *           many workers there are.
 * Processes: a message names the call, the pass and the round. A call that is new is compared first (exec/agree.h).
 * Failure:  as in a pass (queues.c): the first error is kept, and all threads leave.
 * Cost:     for each rank a piece of memory, which stays: temporaries of the largest scan that was called, or the
 *           messages of one round of the largest halo.
 */
#include "runtime/host/recurrent_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/numeric.h"
#include "runtime/base/threads.h"
#include "runtime/exec/recurrent_steps.h"
#include "runtime/host/summaries.h"
#include "runtime/plan/enum_names.h"

enum { LINE = 64, WIRES = FCP_FABRICS * FCP_DIRECTION_COUNT };

/* What a rank needs for such calls. */
struct piece {
    void *memory;
    size_t held; /* bytes of it */
};

struct fcp_recurrent_room {
    fcp_calls calls; /* about the plan that the session has */
    struct piece pieces[];
};

/* A call as one rank makes it. */
struct part {
    fcp_rank *rank;
    const fcp_call *call;
    fcp_recurrent_tensors tensors; /* of this rank */
    const fcp_rank_rows *rows;
    char *memory;
    uint32_t number; /* of the call */
};

void fcp_recurrent_free(fcp_exec *s) {
    struct fcp_recurrent_room *room = s->recurrent;
    if (!room) return;
    for (uint32_t r = 0; r < s->base.rank_count; r++) free(room->pieces[r].memory);
    fcp_calls_free(&room->calls);
    free(room);
    s->recurrent = NULL;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

/* The memory that a rank needs for a call. UINT64_MAX: more than can be counted. */
static uint64_t bytes_needed(const fcp_exec *s, const fcp_call *call, uint32_t rank) {
    const fcp_recurrent *x = &s->plan->recurrent[call->layer];
    const fcp_step_walk walk = fcp_step_walk_begin(s->plan, call->layer, (fcp_pass)call->pass, rank);
    uint64_t bytes, each = call->row;
    if (call->kind == FCP_CALL_SCAN)
        return __builtin_mul_overflow((uint64_t)walk.temporaries, fcp_temporary_bytes(x), &bytes) ? UINT64_MAX : bytes;
    if (call->kind == FCP_CALL_HALO_GRADIENT) each *= fcp_dtype_size((fcp_dtype)call->dtype);
    return __builtin_mul_overflow(fcp_step_walk_most_rows(walk), each, &bytes) ? UINT64_MAX : bytes;
}

/* Makes the memory of all ranks large enough for a call. */
static fcp_code make_ready(fcp_exec *s, const fcp_call *call, fcp_error *err) {
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        struct piece *own = &s->recurrent->pieces[r];
        const uint64_t bytes = bytes_needed(s, call, s->ranks[r].index);
        void *larger = NULL;
        if (bytes <= own->held) continue;
        if (bytes > PTRDIFF_MAX || posix_memalign(&larger, LINE, bytes))
            return fcp_fail_at(err, FCP_E_NO_MEMORY, fcp_where_rank(s->ranks[r].index),
                               "out of memory: layer %u (%s) needs %llu bytes at rank %u for %s", call->layer,
                               call->kind == FCP_CALL_SCAN ? "scan" : "halo", (unsigned long long)bytes,
                               s->ranks[r].index, call->kind == FCP_CALL_SCAN ? "temporaries" : "messages");
        free(own->memory); /* only now: calls that are known need it */
        *own = (struct piece){larger, bytes};
    }
    return FCP_OK;
}

/* --- scans -------------------------------------------------------------------------------------------------------- */

static fcp_register register_of(const struct part *p, const fcp_recurrent *x, uint32_t number, uint32_t part) {
    return fcp_register_of(x, p->rows->stretches, p->tensors.scan, (float *)p->memory, number, part);
}

/* A COMBINE, and how its rows are shared out. In a checked plan its result is none of its operands. */
struct combine {
    const fcp_recurrent *layer;
    fcp_register a, b, out;
    uint64_t rows, each; /* of all heads of the part; of an item */
    bool decay;          /* A is made, else b */
};

static fcp_code combine_rows(fcp_rank *rank, uint32_t worker, uint32_t item, const void *context, fcp_error *err) {
    const struct combine *c = context;
    const uint64_t first = item * c->each, left = c->rows - first, count = left < c->each ? left : c->each;
    (void)rank, (void)worker, (void)err;
    (c->decay ? fcp_summaries_decay : fcp_summaries_state)(c->layer, &c->a, &c->b, &c->out, first, count);
    return FCP_OK;
}

static void combine(const struct part *p, const fcp_step_walk *walk, uint32_t worker, const fcp_step *step) {
    const fcp_recurrent *x = walk->layer;
    struct combine c = {.layer = x,
                        .a = register_of(p, x, step->a, step->part),
                        .b = register_of(p, x, step->b, step->part),
                        .out = register_of(p, x, step->out, step->part),
                        .rows = (uint64_t)fcp_part_heads(x) * x->rows};
    fcp_error ignored;
    c.each = x->decay == FCP_DECAY_MATRIX ? 16 : 128;
    while ((c.rows - 1) / c.each >= UINT32_MAX) c.each *= 2;
    const uint32_t items = (uint32_t)((c.rows - 1) / c.each + 1);
    fcp_queue_share(p->rank, worker, items, combine_rows, &c, &ignored); /* items never fail */
    c.decay = true;
    if (step->whole) fcp_queue_share(p->rank, worker, items, combine_rows, &c, &ignored);
}

/* --- halos -------------------------------------------------------------------------------------------------------- */

/* The rows that a halo reads and those that it writes. The gradient has them the other way round. */
static const char *rows_read(const struct part *p) {
    return p->call->kind == FCP_CALL_HALO ? (const char *)p->tensors.halo->x
                                          : (const char *)p->tensors.gradient->d_halo;
}
static char *rows_written(const struct part *p) {
    return p->call->kind == FCP_CALL_HALO ? (char *)p->tensors.halo->halo : (char *)p->tensors.gradient->dx;
}
static size_t row_bytes(const struct part *p) {
    return p->call->row * (p->call->kind == FCP_CALL_HALO ? 1 : fcp_dtype_size((fcp_dtype)p->call->dtype));
}

/* Writes rows: those of a halo as they are; those of its gradient are added to what is there. */
static void write_rows(const struct part *p, char *to, const char *from, uint64_t rows) {
    const fcp_dtype dtype = (fcp_dtype)p->call->dtype;
    const size_t size = fcp_dtype_size(dtype);
    enum { CHUNK = 512 };
    float sum[CHUNK], more[CHUNK];
    if (p->call->kind == FCP_CALL_HALO) {
        memcpy(to, from, rows * row_bytes(p));
        return;
    }
    for (uint64_t at = 0, all = rows * p->call->row; at < all; at += CHUNK) {
        const size_t count = all - at < CHUNK ? all - at : CHUNK;
        fcp_to_float(dtype, to + at * size, sum, count);
        fcp_to_float(dtype, from + at * size, more, count);
        for (size_t i = 0; i < count; i++) sum[i] += more[i];
        fcp_from_float(dtype, sum, to + at * size, count);
    }
}

/* The rows of a step, end to end to or from a message. */
static void move_rows(const struct part *p, const fcp_step *step, fcp_direction dir, char *message) {
    const fcp_halo_rows *lists = fcp_step_lists(p->rank->session->plan, step);
    const size_t bytes = row_bytes(p);
    for (uint32_t i = 0; i < step->b; i++) {
        const size_t place = lists[i].first * bytes;
        if (dir == FCP_SEND) memcpy(message, rows_read(p) + place, lists[i].count * bytes);
        else write_rows(p, rows_written(p) + place, message, lists[i].count);
        message += lists[i].count * bytes;
    }
}

static void copy_rows(const struct part *p, const fcp_step *step) {
    const fcp_halo_rows *lists = p->rank->session->plan->halo_rows;
    const bool back = p->call->kind != FCP_CALL_HALO;
    const fcp_halo_rows *from = &lists[back ? step->b : step->a], *to = &lists[back ? step->a : step->b];
    const size_t bytes = row_bytes(p);
    write_rows(p, rows_written(p) + to->first * bytes, rows_read(p) + from->first * bytes, from->count);
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

/* Results that no step writes are zeros: states that enter documents, and rows beyond them. */
static void clear_results(const struct part *p, const fcp_recurrent *x) {
    const uint64_t stretches = p->rows->stretches;
    if (!stretches || p->call->kind == FCP_CALL_HALO_GRADIENT) return;
    if (p->call->kind == FCP_CALL_SCAN)
        memset(p->tensors.scan->entering, 0, stretches * x->heads * fcp_state_numbers(x) * sizeof(float));
    else memset(p->tensors.halo->halo, 0, stretches * ((uint64_t)x->before + x->after) * row_bytes(p));
}

static void make_wires(const struct part *p, const fcp_step_walk *walk, const fcp_act *act, fcp_wire *wires) {
    char *message = p->memory;
    for (uint32_t i = 0; i < act->count; i++) {
        const fcp_step *step = fcp_act_step(act, i);
        fcp_wire *w = &wires[i];
        *w = (fcp_wire){.peer = step->peer, .dir = fcp_act_direction(act, i), .fabric = step->fabric, .segments = 1};
        if (walk->layer->kind == FCP_SCAN) {
            const fcp_register r =
                register_of(p, walk->layer, step->op == FCP_STEP_SEND ? step->a : step->out, step->part);
            w->segments = (uint16_t)fcp_scan_segments(walk->layer, step, &r, w->segment);
        } else {
            w->segment[0] = (fcp_segment){message, fcp_step_rows(walk->plan, step) * row_bytes(p)};
            message += w->segment[0].bytes;
        }
    }
}

/* Packs what an act sends, or writes what it has received. */
static void do_rows(const struct part *p, const fcp_act *act, const fcp_wire *wires, fcp_direction dir) {
    uint32_t worker;
    if (!fcp_queue_take_worker(p->rank, &worker)) return;
    for (uint32_t i = 0; i < act->count; i++)
        if (wires[i].dir == dir) move_rows(p, fcp_act_step(act, i), dir, wires[i].segment[0].data);
    fcp_queue_give_worker(p->rank, worker);
}

static void fail_act(const struct part *p, const fcp_step_walk *walk, const fcp_act *act, fcp_code code,
                     const char *why) {
    fcp_exec *s = p->rank->session;
    const fcp_pass pass = (fcp_pass)p->call->pass;
    char text[sizeof s->error.message];
    fcp_where where = fcp_where_rank(p->rank->index);
    where.pass = (uint32_t)pass;
    const int used = fcp_act_text(walk, p->rank->index, pass, act, text, sizeof text);
    snprintf(text + used, sizeof text - (size_t)used, ": %s", why);
    fcp_queue_fail(s, code, where, text);
}

static void do_transfers(const struct part *p, const fcp_step_walk *walk, const fcp_act *act) {
    fcp_exec *s = p->rank->session;
    const bool halo = walk->layer->kind == FCP_HALO;
    fcp_wire wires[WIRES];
    fcp_error err = {0};
    uint32_t late = FCP_NONE;
    if (act->count > WIRES) {
        fail_act(p, walk, act, FCP_E_INTERNAL, "more transfers than a round has");
        return;
    }
    make_wires(p, walk, act, wires);
    if (halo) do_rows(p, act, wires, FCP_SEND);
    const fcp_code code =
        s->failed ? FCP_OK
                  : fcp_queue_group(p->rank, (fcp_pass)p->call->pass, fcp_round_tag(p->number, act->first->round),
                                    wires, act->count, &late, &err);
    if (code) fail_act(p, walk, act, code, err.message);
    if (s->failed) return;
    if (late != FCP_NONE) {
        char why[120];
        snprintf(why, sizeof why, "%s rank %u for %u s",
                 wires[late].dir == FCP_RECV ? "nothing came from" : "nothing was taken by", wires[late].peer,
                 s->base.timeout_s);
        fail_act(p, walk, act, FCP_E_RUN, why);
        return;
    }
    if (halo) do_rows(p, act, wires, FCP_RECV);
}

/* A COMBINE or COPY. */
static void do_step(const struct part *p, const fcp_step_walk *walk, const fcp_step *step) {
    const fcp_recurrent *x = walk->layer;
    uint32_t worker;
    if (!fcp_queue_take_worker(p->rank, &worker)) return;
    if (x->kind == FCP_HALO) copy_rows(p, step);
    else if (step->op == FCP_STEP_COMBINE) combine(p, walk, worker, step);
    else
        memcpy(register_of(p, x, step->out, step->part).state, register_of(p, x, step->a, step->part).state,
               fcp_part_state(x) * sizeof(float));
    fcp_queue_give_worker(p->rank, worker);
}

static void *run_rank(void *argument) {
    const struct part *p = argument;
    fcp_exec *s = p->rank->session;
    fcp_step_walk walk = fcp_step_walk_begin(s->plan, p->call->layer, (fcp_pass)p->call->pass, p->rank->index);
    uint32_t worker;
    if (!fcp_queue_take_worker(p->rank, &worker)) return NULL;
    clear_results(p, walk.layer);
    fcp_queue_give_worker(p->rank, worker);
    for (fcp_act act; !fcp_queue_over(s) && fcp_step_walk_next(&walk, &act); s->progress++)
        if (act.moves) do_transfers(p, &walk, &act);
        else do_step(p, &walk, act.first);
    return NULL;
}

/* --- the call ----------------------------------------------------------------------------------------------------- */

static void run_threads(fcp_exec *s, struct part *parts, pthread_t *threads) {
    const uint32_t ranks = s->base.rank_count, own = s->base.interrupt.asked ? FCP_NONE : ranks - 1;
    const uint32_t helping = fcp_queue_help_begin(s);
    uint32_t started = 0;
    for (uint32_t r = 0; r < ranks && !s->failed; r++) {
        if (r == own) run_rank(&parts[r]);
        else if (fcp_thread_start(&threads[started], FCP_QUEUE_STACK, run_rank, &parts[r])) started++;
        else {
            char text[100];
            snprintf(text, sizeof text, "rank %u, layer %u: out of memory: no thread could be started",
                     s->ranks[r].index, parts[r].call->layer);
            fcp_queue_fail(s, FCP_E_NO_MEMORY, fcp_where_rank(s->ranks[r].index), text);
        }
    }
    for (uint32_t i = 0; i < started; i++) fcp_queue_join(s, threads[i]);
    fcp_queue_help_end(s, helping);
}

/* The tensors of rank r of this process. */
static fcp_recurrent_tensors tensors_of(const fcp_call *call, fcp_recurrent_tensors all, uint32_t r) {
    if (call->kind == FCP_CALL_HALO) return (fcp_recurrent_tensors){.halo = &all.halo[r]};
    if (call->kind == FCP_CALL_SCAN) return (fcp_recurrent_tensors){.scan = &all.scan[r]};
    return (fcp_recurrent_tensors){.gradient = &all.gradient[r]};
}

fcp_code fcp_recurrent_run(fcp_exec *s, const fcp_call *call, fcp_recurrent_tensors tensors, bool *out_broken,
                           fcp_error *err) {
    const uint32_t ranks = s->base.rank_count;
    const bool processes = s->base.net->transport->processes;
    uint32_t number;
    *out_broken = false;
    if (!s->recurrent) s->recurrent = calloc(1, sizeof *s->recurrent + ranks * sizeof *s->recurrent->pieces);
    if (!s->recurrent) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for layers that recur");
    fcp_code code = fcp_call_known(&s->recurrent->calls, call) ? FCP_OK : make_ready(s, call, err);
    code = fcp_agree_call(s->base.net, &s->recurrent->calls, call, code, &number, err);
    *out_broken = processes && (code == FCP_E_RUN || code == FCP_E_INTERRUPTED);
    if (code) return code;
    pthread_t *threads = malloc(ranks * sizeof *threads);
    struct part *parts = malloc(ranks * sizeof *parts);
    if (!threads || !parts) code = fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for threads");
    for (uint32_t r = 0; r < ranks && !code; r++)
        parts[r] = (struct part){
            &s->ranks[r], call, tensors_of(call, tensors, r), &s->base.rows[r], s->recurrent->pieces[r].memory, number};
    if (!code) {
        fcp_queue_begin(s);
        run_threads(s, parts, threads);
        if (s->failed) code = s->error.code;
        if (s->failed && err) *err = s->error;
    }
    *out_broken = processes && code;
    free(threads);
    free(parts);
    return code;
}
