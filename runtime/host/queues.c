/* queues.c: the threads of a rank on the host: they execute its two queues of instructions, and share out its heads.
 *
 * Requires: a verified plan; ranks and teams as executor.c sets them up for a pass.
 * Gives:    what the pass computes, or the first error with its place.
 * Order:    - An instruction begins when the one before it in its queue is complete.
 *           - A WAIT ends when the other queue has completed the given number of instructions. A WAIT of the compute
 *             queue names a number for each fabric. Here both fabrics share one queue, which runs one launch at a time,
 *             so the larger number is waited for.
 *           - Nothing else orders anything: the plan determines everything that the bits of a result depend on.
 *           - The helpers of a rank take its KV heads in whatever order they become free. That changes no bit, because
 *             each head's results are numbers of their own.
 * Failure:  the first error is kept with its place, and all threads are woken to leave. A wait fails if for timeout_s
 *           seconds no rank of the session completes an instruction or computes. Of ranks in other processes the
 *           transport knows this, if it can (fcp_net_progress).
 * Cost:     beside what the instructions cost, a lock for each of them and one for each head that is given out.
 */
#define _GNU_SOURCE /* pthread_timedjoin_np */
#include "runtime/host/queues.h"
#include "runtime/plan/enum_names.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/threads.h"

/* Which of this process's ranks it is. */
static uint32_t own_index(const fcp_rank *rank) { return (uint32_t)(rank - rank->session->ranks); }

/* --- failure ------------------------------------------------------------------------------------------------------ */

static void wake_everyone(fcp_exec *s) {
    fcp_net_abort(s->base.net);
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        pthread_mutex_lock(&s->ranks[r].lock);
        pthread_cond_broadcast(&s->ranks[r].changed);
        pthread_mutex_unlock(&s->ranks[r].lock);
    }
    pthread_mutex_lock(&s->lock);
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

void fcp_queue_fail(fcp_exec *s, fcp_code code, fcp_where where, const char *text) {
    pthread_mutex_lock(&s->lock);
    bool first = !s->failed;
    if (first) {
        fcp_fail_at(&s->error, code, where, "%s", text);
        s->failed = true;
    }
    pthread_mutex_unlock(&s->lock);
    if (first) wake_everyone(s);
}

static void fail_at(fcp_rank *rank, fcp_queue queue, uint32_t index, fcp_code code, const char *why) {
    fcp_exec *s = rank->session;
    const fcp_where where = fcp_where_instruction(s->plan, s->pass, rank->index, queue, index);
    char text[sizeof s->error.message];
    int used = fcp_where_text(s->plan, &where, "", text, sizeof text);
    snprintf(text + used, sizeof text - (size_t)used, ": %s", why);
    fcp_queue_fail(s, code, where, text);
}

void fcp_queue_begin(fcp_exec *s) {
    s->failed = false;
    s->progress = 0;
    s->computing = 0;
    s->error = (fcp_error){0};
    s->free_count = s->team_size > 1 ? 0 : s->workers;
    for (uint32_t i = 0; i < s->free_count; i++) s->free_workers[i] = i;
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        s->ranks[r].waiting = FCP_NONE;
        s->teams[r].stop = false;
        s->teams[r].call = 0;
    }
    fcp_net_reset(s->base.net);
}

/* The timed wait uses the time of day: if somebody sets the clock back, the caller is asked later. */
void fcp_queue_join(fcp_exec *s, pthread_t thread) {
    struct timespec until;
    while (s->base.interrupt.asked && !s->failed) {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += FCP_INTERRUPT_MS * 1000000L / 2;
        if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
        if (!pthread_timedjoin_np(thread, NULL, &until)) return;
        fcp_queue_over(s);
    }
    pthread_join(thread, NULL);
}

bool fcp_queue_over(void *session) {
    fcp_exec *s = session;
    if (fcp_interrupted(&s->base.interrupt)) fcp_queue_fail(s, FCP_E_INTERRUPTED, FCP_WHERE_NONE, "interrupted");
    return s->failed;
}

/* Waits until a condition is signalled, or until `until`; NULL: no limit. True: the time is over. It may return
 * early: in the caller's thread it lets go of the lock now and then, to ask the caller. */
static bool pause_until(fcp_exec *s, pthread_cond_t *changed, pthread_mutex_t *lock, const struct timespec *until) {
    const struct timespec soon = fcp_deadline(FCP_INTERRUPT_MS / 2);
    if (!s->base.interrupt.asked || !pthread_equal(s->base.interrupt.caller, pthread_self()) ||
        (until && fcp_earlier(until, &soon)))
        return (until ? pthread_cond_timedwait(changed, lock, until) : pthread_cond_wait(changed, lock)) != 0;
    if (!pthread_cond_timedwait(changed, lock, &soon)) return false;
    pthread_mutex_unlock(lock);
    fcp_queue_over(s);
    pthread_mutex_lock(lock);
    return false;
}

/* How long a wait may still last. A wait is cut into slices. After each slice the waiting thread looks whether any
 * rank of the session, in this process or another, has made progress. If one has, the time limit starts anew.
 *
 * If ranks wait for one another, the time of all of them ends at once. The rank that waits in the earliest round is
 * nearest to the cause, and its error should come first. So all others wait a few slices longer. */
struct patience {
    uint64_t progress;
    fcp_patience left;
    uint32_t courtesy; /* how many more slices to wait for somebody in an earlier round to speak */
};

/* Milliseconds of one slice of a wait. */
static uint32_t slice(const fcp_exec *s) { return s->base.timeout_s < 4 ? s->base.timeout_s * 250 : 1000; }

/* How far all have come. */
static uint64_t progress_of(const fcp_exec *s) { return s->progress + fcp_net_progress(s->base.net); }

static struct patience patience_begin(const fcp_exec *s) {
    return (struct patience){progress_of(s), fcp_patience_of(s->base.timeout_s, 1.2e-3 * slice(s)), 3};
}

static bool patience_ends(const fcp_exec *s, struct patience *p, uint32_t round) {
    if (progress_of(s) != p->progress || s->computing) *p = patience_begin(s);
    if (!fcp_patience_ends(&p->left)) return false;
    bool earlier = false;
    for (uint32_t r = 0; r < s->base.rank_count; r++) earlier |= s->ranks[r].waiting < round;
    return !earlier || p->courtesy-- == 0;
}

/* --- workers and teams -------------------------------------------------------------------------------------------- */

bool fcp_queue_take_worker(fcp_rank *rank, uint32_t *out_worker) {
    fcp_exec *s = rank->session;
    if (s->team_size > 1) {
        *out_worker = own_index(rank) * s->team_size;
        s->computing++;
        return !s->failed;
    }
    pthread_mutex_lock(&s->lock);
    while (s->free_count == 0 && !s->failed) pause_until(s, &s->changed, &s->lock, NULL);
    bool ok = !s->failed;
    if (ok) *out_worker = s->free_workers[--s->free_count];
    pthread_mutex_unlock(&s->lock);
    if (ok) s->computing++;
    return ok;
}

void fcp_queue_give_worker(fcp_rank *rank, uint32_t worker) {
    fcp_exec *s = rank->session;
    s->computing--;
    if (s->team_size > 1) return;
    pthread_mutex_lock(&s->lock);
    s->free_workers[s->free_count++] = worker;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Does items until none is left. The lock is held when this is called and when it returns. */
static void do_items(struct fcp_team *t, uint32_t worker) {
    t->busy++;
    while (t->next < t->items && t->code == FCP_OK && !t->rank->session->failed) {
        const uint32_t item = t->next++;
        fcp_queue_item *work = t->work;
        const void *context = t->context;
        fcp_error err;
        pthread_mutex_unlock(&t->lock);
        fcp_code code = work(t->rank, worker, item, context, &err);
        pthread_mutex_lock(&t->lock);
        if (code != FCP_OK && t->code == FCP_OK) t->code = code, t->err = err;
    }
    if (--t->busy == 0) pthread_cond_broadcast(&t->changed);
}

static void *help(void *argument) {
    struct fcp_member *m = argument;
    struct fcp_team *t = m->team;
    uint64_t seen = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->call == seen && !t->stop) pthread_cond_wait(&t->changed, &t->lock);
        if (t->stop) break;
        seen = t->call;
        do_items(t, m->worker);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

uint32_t fcp_queue_help_begin(fcp_exec *s) {
    const uint32_t each = s->team_size - 1, helpers = s->base.rank_count * each;
    uint32_t helping = 0;
    for (uint32_t i = 0; i < helpers && !s->failed; i++) {
        struct fcp_member *m = &s->members[i];
        uint32_t rank = i / each;
        m->team = &s->teams[rank];
        m->worker = rank * s->team_size + 1 + i % each;
        if (fcp_thread_start(&m->thread, FCP_QUEUE_STACK, help, m)) helping++;
        else
            fcp_queue_fail(s, FCP_E_NO_MEMORY, fcp_where_rank(s->ranks[rank].index),
                           "out of memory: no thread for a helper could be started");
    }
    return helping;
}

void fcp_queue_help_end(fcp_exec *s, uint32_t helping) {
    for (uint32_t r = 0; helping && r < s->base.rank_count; r++) {
        pthread_mutex_lock(&s->teams[r].lock);
        s->teams[r].stop = true;
        pthread_cond_broadcast(&s->teams[r].changed);
        pthread_mutex_unlock(&s->teams[r].lock);
    }
    for (uint32_t i = 0; i < helping; i++) pthread_join(s->members[i].thread, NULL); /* they have nothing to do */
}

fcp_code fcp_queue_share(fcp_rank *rank, uint32_t worker, uint32_t items, fcp_queue_item *work, const void *context,
                         fcp_error *err) {
    struct fcp_team *t = &rank->session->teams[own_index(rank)];
    if (rank->session->team_size == 1 || items == 1) {
        fcp_code code = FCP_OK;
        for (uint32_t i = 0; i < items && !code && !fcp_queue_over(rank->session); i++)
            code = work(rank, worker, i, context, err);
        return code;
    }
    pthread_mutex_lock(&t->lock);
    t->work = work;
    t->context = context;
    t->items = items;
    t->next = 0;
    t->code = FCP_OK;
    t->call++;
    pthread_cond_broadcast(&t->changed);
    do_items(t, worker);
    while (t->busy) pause_until(t->rank->session, &t->changed, &t->lock, NULL);
    fcp_code code = t->code;
    if (code != FCP_OK) *err = t->err;
    pthread_mutex_unlock(&t->lock);
    return code;
}

/* --- instructions ------------------------------------------------------------------------------------------------- */

/* A partial result in a slot: up to three pieces of float32. */
struct sums {
    uint32_t pieces;
    float *at[3];
    size_t count[3]; /* numbers */
};
static struct sums sums_in(const fcp_arena *a, fcp_class cls, uint32_t slot, size_t tokens) {
    const fcp_problem *p = a->plan->problem;
    size_t d = p->head_dim, value = p->value_dim, rows = tokens * a->heads, keys = tokens * a->kv_heads;
    struct sums s = {.pieces = 1};
    if (cls == FCP_STATE) {
        s = (struct sums){3, {0}, {rows * value, rows, rows}};
        fcp_arena_state(a, slot, &s.at[0], &s.at[1], &s.at[2]);
    } else if (cls == FCP_DKV) {
        s = (struct sums){p->values_in_keys ? 1 : 2, {0}, {keys * d, keys * value}};
        fcp_arena_dkv(a, slot, &s.at[0], &s.at[1]);
    } else s = (struct sums){1, {fcp_arena_rows(a, slot).dq}, {rows * d}};
    return s;
}

/* Clears the transient accumulators that an ATTEND is the first to add to. */
static void open_accumulators(fcp_rank *rank, const fcp_instr *x) {
    fcp_device *device = rank->session->device;
    fcp_partials_walk walk = {0};
    fcp_partial p;
    while (fcp_partials_next(&rank->partials, rank->arena.plan, x, &walk, &p)) {
        struct sums s = sums_in(&rank->arena, p.cls, p.slot, p.tokens);
        for (uint32_t i = 0; i < s.pieces; i++) device->backend->clear(device, s.at[i], s.count[i] * sizeof(float));
    }
}

/* REDUCE, REDUCE_Q, MERGE */
static void reduce(fcp_rank *rank, const fcp_instr *x) {
    fcp_device *device = rank->session->device;
    const fcp_class cls = fcp_partial_class(x);
    bool first = fcp_partials_reduce(&rank->partials, x);
    if (cls == FCP_STATE && !first) {
        device->backend->merge(device, &rank->arena, x->a, x->b, x->c);
        return;
    }
    uint32_t tokens = rank->arena.plan->blocks[x->a].tokens;
    struct sums from = sums_in(&rank->arena, cls, x->b, tokens), to = sums_in(&rank->arena, cls, x->c, tokens);
    for (uint32_t i = 0; i < from.pieces; i++)
        device->backend->reduce(device, to.at[i], from.at[i], from.count[i], first);
}

/* Gradients are summed in float32. Before a transfer takes them out they are rounded to the dtype. */
static void finish_outputs(fcp_rank *rank, const fcp_transfer *t) {
    fcp_device *device = rank->session->device;
    const fcp_bundle bundle = fcp_bundle_of(rank->session->bundles, rank->index, t);
    fcp_bundle_run run;
    if (t->cls != FCP_OUT || rank->arena.pass != FCP_BACKWARD) return;
    for (uint32_t i = 0; !fcp_queue_over(rank->session) && fcp_bundle_next(&bundle, t, &i, &run);)
        device->backend->finish(device, &rank->arena, run.block, run.first, run.tokens);
}

static void copy_local(fcp_rank *rank, const fcp_instr *x) {
    for (uint32_t i = x->a; i < x->a + x->b && !fcp_queue_over(rank->session); i++) {
        const fcp_transfer *t = &rank->arena.plan->transfers[i];
        finish_outputs(rank, t);
        fcp_bundle_copy(&rank->arena, rank->tensors, rank->session->bundles, t);
    }
}

/* One KV head of an ATTEND. */
static fcp_code attend_head(fcp_rank *rank, uint32_t worker, uint32_t head, const void *instr, fcp_error *err) {
    const fcp_instr *x = instr;
    fcp_device *device = rank->session->device;
    return device->backend->attend(device, worker, &rank->arena, x->a, x->b, head, 1, err);
}

static fcp_code compute(fcp_rank *rank, const fcp_instr *x, fcp_error *err) {
    fcp_exec *s = rank->session;
    uint32_t worker;
    fcp_code code = FCP_OK;
    if (!fcp_queue_take_worker(rank, &worker)) return FCP_OK; /* somebody else has failed */
    switch (x->op) {
    case FCP_OP_COPY: copy_local(rank, x); break;
    case FCP_OP_DELTA: s->device->backend->delta(s->device, worker, &rank->arena, x->a, x->b); break;
    case FCP_OP_REDUCE:
    case FCP_OP_REDUCE_Q:
    case FCP_OP_MERGE: reduce(rank, x); break;
    case FCP_OP_FINISH:
        s->device->backend->finish_state(s->device, worker, &rank->arena, x->a, x->b,
                                         fcp_finish_slot(s->plan, rank->arena.rank, x));
        fcp_partials_finished(&rank->partials, x);
        break;
    case FCP_OP_ROUND:
        s->device->backend->round(s->device, &rank->arena, x->a, x->b, x->c);
        fcp_partials_finished(&rank->partials, x);
        break;
    case FCP_OP_ATTEND:
        if (rank->arena.pass == FCP_BACKWARD) open_accumulators(rank, x);
        else fcp_partials_attended(&rank->partials, s->plan, x);
        if (s->team_size > 1) code = fcp_queue_share(rank, worker, rank->arena.kv_heads, attend_head, x, err);
        else
            code = s->device->backend->attend(s->device, worker, &rank->arena, x->a, x->b, 0,
                                              rank->arena.kv_heads, err);
        break;
    default: code = fcp_fail(err, FCP_E_INTERNAL, "not an instruction of this queue");
    }
    fcp_queue_give_worker(rank, worker);
    return code;
}

/* Packs the messages that a launch sends, or unpacks those that it has received: inputs, outputs, and partial
 * results if they are rounded on their way. All else moves from slot to slot. */
static void do_messages(fcp_rank *rank, const fcp_instr *x, fcp_direction dir) {
    const fcp_transfer *transfers = &rank->arena.plan->transfers[x->a];
    for (uint32_t i = 0; i < x->b && !rank->session->failed; i++) {
        const fcp_transfer *t = &transfers[i];
        const fcp_segment *segment = rank->wires.list[i].segment;
        void *message = segment[0].data;
        if (t->dir != dir) continue;
        if (fcp_is_rounded(rank->arena.plan, t)) {
            if (dir == FCP_SEND) fcp_partial_round(&rank->arena, t, segment);
            else fcp_partial_widen(&rank->arena, t, segment);
        }
        if (t->cls != FCP_IN && t->cls != FCP_OUT) continue;
        if (dir == FCP_RECV) {
            fcp_message_unpack(&rank->arena, rank->tensors, rank->session->bundles, t, message);
            continue;
        }
        if (t->cls == FCP_OUT) finish_outputs(rank, t);
        fcp_message_pack(&rank->arena, rank->tensors, rank->session->bundles, t, message);
    }
}

fcp_code fcp_queue_group(fcp_rank *rank, fcp_pass pass, uint32_t round, const fcp_wire *wires, uint32_t count,
                         uint32_t *out_late, fcp_error *err) {
    fcp_exec *s = rank->session;
    fcp_code code = fcp_net_launch(s->base.net, rank->index, pass, round, wires, count, err);
    struct patience patience = patience_begin(s);
    *out_late = FCP_NONE;
    rank->waiting = round;
    while (code == FCP_OK) {
        uint32_t wire = 0;
        fcp_wait state = fcp_net_wait(s->base.net, rank->index, slice(s), &wire, err);
        if (state == FCP_WAIT_ABORTED) return FCP_OK;
        if (state == FCP_WAIT_FAILED) return err->code;
        if (state == FCP_WAIT_DONE) break;
        if (!patience_ends(s, &patience, round)) continue;
        *out_late = wire;
        return FCP_OK;
    }
    rank->waiting = FCP_NONE;
    return code;
}

static fcp_code launch(fcp_rank *rank, uint32_t index, const fcp_instr *x, fcp_error *err) {
    fcp_exec *s = rank->session;
    const fcp_transfer *transfers = &s->plan->transfers[x->a];
    fcp_times *times = s->base.times;
    fcp_code code = fcp_wires_make(&rank->wires, &rank->arena, NULL, 0, x, err);
    for (uint32_t i = 0; times && code == FCP_OK && i < x->b; i++)
        rank->wires.list[i].ended = &times->transfers[x->a + i];
    if (code == FCP_OK) do_messages(rank, x, FCP_SEND);
    uint32_t late = FCP_NONE;
    if (code == FCP_OK) code = fcp_queue_group(rank, s->pass, x->c, rank->wires.list, x->b, &late, err);
    if (code != FCP_OK || s->failed) return code;
    if (late != FCP_NONE) {
        const fcp_transfer *t = &transfers[late];
        char why[240], what[40];
        if (t->block == FCP_NONE) snprintf(what, sizeof what, "%s", fcp_class_texts[t->cls]);
        else snprintf(what, sizeof what, "%s of block %u", fcp_class_texts[t->cls], t->block);
        snprintf(why, sizeof why, "round %u: %s rank %u for %u s (%s, tokens %u to %u)", x->c,
                 t->dir == FCP_RECV ? "nothing came from" : "nothing was taken by", t->peer, s->base.timeout_s, what,
                 t->first, t->first + t->tokens);
        fail_at(rank, FCP_COMM, index, FCP_E_RUN, why);
        return FCP_OK;
    }
    for (uint32_t i = 0; times && i < x->b; i++) times->transfers[x->a + i] -= times->began;
    do_messages(rank, x, FCP_RECV);
    fcp_partials_launched(&rank->partials, s->plan, x);
    return FCP_OK;
}

/* WAIT: until the other queue has completed `count` instructions. */
static void wait_for(fcp_rank *rank, fcp_queue queue, uint32_t index, uint32_t count) {
    fcp_exec *s = rank->session;
    fcp_queue other = queue == FCP_COMPUTE ? FCP_COMM : FCP_COMPUTE;
    struct patience patience = patience_begin(s);
    struct timespec until = fcp_deadline(slice(s));
    bool late = false;
    pthread_mutex_lock(&rank->lock);
    while (rank->completed[other] < count && !s->failed && !late) {
        if (!pause_until(s, &rank->changed, &rank->lock, &until)) continue;
        late = patience_ends(s, &patience, FCP_NONE);
        until = fcp_deadline(slice(s));
    }
    uint32_t done = rank->completed[other];
    pthread_mutex_unlock(&rank->lock);
    if (done >= count || s->failed) return;
    char why[160];
    snprintf(why, sizeof why, "the %s queue has completed %u of %u instructions, and nothing went on for %u s",
             fcp_queue_texts[other], done, count, s->base.timeout_s);
    fail_at(rank, queue, index, FCP_E_RUN, why);
}

static void run_queue(fcp_rank *rank, fcp_queue queue) {
    fcp_exec *s = rank->session;
    const fcp_stream *stream = fcp_stream_of(s->plan, s->pass, rank->index, queue);
    for (uint32_t i = 0; i < stream->count && !s->failed; i++) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        fcp_timing *timing = s->base.times ? &s->base.times->instrs[stream->first + i] : NULL;
        if (timing) timing->begin = fcp_clock_ns() - s->base.times->began;
        fcp_error err = {0};
        fcp_code code = FCP_OK;
        if (x->op == FCP_OP_WAIT) wait_for(rank, queue, i, fcp_waits_whole(x));
        else if (queue == FCP_COMPUTE) code = compute(rank, x, &err);
        else if (x->op == FCP_OP_LAUNCH) code = launch(rank, i, x, &err);
        else code = fcp_fail(&err, FCP_E_INTERNAL, "not an instruction of this queue");
        if (code != FCP_OK) fail_at(rank, queue, i, code, err.message);
        if (s->failed) return;
        if (timing) timing->end = fcp_clock_ns() - s->base.times->began;
        pthread_mutex_lock(&rank->lock);
        rank->completed[queue]++;
        pthread_cond_broadcast(&rank->changed);
        pthread_mutex_unlock(&rank->lock);
        s->progress++;
    }
}

void *fcp_queue_compute(void *argument) {
    fcp_rank *rank = argument;
    uint32_t worker;
    if (!fcp_queue_take_worker(rank, &worker)) return NULL;
    rank->session->device->backend->prepare(rank->session->device, &rank->arena);
    fcp_queue_give_worker(rank, worker);
    pthread_mutex_lock(&rank->lock);
    rank->prepared = true;
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->lock);
    run_queue(rank, FCP_COMPUTE);
    return NULL;
}

void *fcp_queue_comm(void *argument) {
    fcp_rank *rank = argument;
    pthread_mutex_lock(&rank->lock);
    while (!rank->prepared && !rank->session->failed) pthread_cond_wait(&rank->changed, &rank->lock);
    pthread_mutex_unlock(&rank->lock);
    run_queue(rank, FCP_COMM);
    return NULL;
}
