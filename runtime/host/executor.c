/* executor.c: sessions on the host: two threads for each rank walk its two queues of instructions.
 *
 * Requires: a verified plan. Gives: what the plan's passes compute, in the caller's tensors.
 * Order:    an instruction begins when the one before it in its queue is complete. WAIT n begins when the other queue
 *           has completed n instructions. Nothing else orders anything, and nothing is decided here: the plan says
 *           everything that the bits of a result depend on. Helpers of a rank share out its KV heads as they come
 *           free; that changes no bit, because different heads are different numbers.
 * Failure:  the first error is kept with its place, and everybody is woken to leave. A wait fails if for timeout_s
 *           seconds nobody in the session completes an instruction and nobody computes.
 * Cost:     while a pass runs, two threads a rank, and helpers if there are more processors than ranks. All the time,
 *           an arena for each rank (as much as fcp_rank_memory counts) and scratch for each worker. Sessions of one
 *           lender share its arenas.
 */
#include "runtime/host/executor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/exec/agree.h"
#include "runtime/exec/reshuffle.h"
#include "runtime/exec/where.h"
#include "runtime/host/blas.h"
#include "runtime/host/sums.h"
#include "runtime/host/threads.h"
#include "runtime/host/transport_mpi.h"
#include "runtime/host/transport_tcp.h"

enum { COMPUTE_STACK = 512 << 10, COMM_STACK = 256 << 10, DEFAULT_TIMEOUT_S = 120 };

/* The helpers of one rank, which share out the KV heads of one ATTEND at a time. */
struct team {
    fcp_rank *rank;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint64_t call;            /* number of the ATTEND under way */
    uint32_t first, count;    /* its visits */
    uint32_t next_head, busy; /* the next head to give out; how many members work */
    bool stop, locks;
    fcp_code code;
    fcp_error err;
};

struct member {
    struct team *team;
    uint32_t worker;
    pthread_t thread;
};

struct fcp_exec {
    fcp_session base;
    const fcp_plan *plan;
    fcp_device *device;
    uint32_t workers, team_size; /* if team_size > 1, each rank has so many workers of its own; else all share them */
    fcp_rank *ranks;  /* those of this process, as in all that follow: of rank base.first_rank first */
    fcp_homes *homes; /* of every rank of the plan */
    fcp_bundles *bundles;
    struct team *teams;
    struct member *members; /* team_size - 1 for each rank */
    const char *broken; /* why it runs no more; NULL: it does */
    /* workers that nobody computes with, under lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool locks;
    uint32_t *free_workers, free_count;
    /* the pass under way */
    fcp_pass pass;
    _Atomic bool failed;
    _Atomic uint64_t progress;  /* instructions completed, by all ranks */
    _Atomic uint32_t computing; /* how many compute */
    fcp_error error; /* the first, under lock */
};

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

/* Keeps the first error and ends the pass. */
static void fail(fcp_exec *s, fcp_code code, fcp_where where, const char *text) {
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
    fail(s, code, where, text);
}

/* How long a wait may still last. A wait is cut into slices, and after each of them it asks. The limit starts anew
 * whenever somebody in the session gets on or computes. If many ranks wait for one another, the one that waits in the
 * earliest round is nearest to the cause; the others let it speak first, for a few slices. */
struct patience {
    uint64_t progress;
    fcp_patience left;
    uint32_t courtesy; /* how many more slices to wait for somebody in an earlier round to speak */
};

/* Milliseconds of one slice of a wait. */
static uint32_t slice(const fcp_exec *s) { return s->base.timeout_s < 4 ? s->base.timeout_s * 250 : 1000; }

static struct patience patience_begin(const fcp_exec *s) {
    return (struct patience){s->progress, fcp_patience_of(s->base.timeout_s, 1.2e-3 * slice(s)), 3};
}

static bool patience_ends(const fcp_exec *s, struct patience *p, uint32_t round) {
    if (s->progress != p->progress || s->computing) *p = patience_begin(s);
    if (!fcp_patience_ends(&p->left)) return false;
    bool earlier = false;
    for (uint32_t r = 0; r < s->base.rank_count; r++) earlier |= s->ranks[r].waiting < round;
    return !earlier || p->courtesy-- == 0;
}

/* --- workers and teams -------------------------------------------------------------------------------------------- */

/* Waits for a worker to compute with. False: the pass has failed. */
static bool take_worker(fcp_rank *rank, uint32_t *out_worker) {
    fcp_exec *s = rank->session;
    if (s->team_size > 1) {
        *out_worker = own_index(rank) * s->team_size;
        s->computing++;
        return !s->failed;
    }
    pthread_mutex_lock(&s->lock);
    while (s->free_count == 0 && !s->failed) pthread_cond_wait(&s->changed, &s->lock);
    bool ok = !s->failed;
    if (ok) *out_worker = s->free_workers[--s->free_count];
    pthread_mutex_unlock(&s->lock);
    if (ok) s->computing++;
    return ok;
}

static void give_worker(fcp_rank *rank, uint32_t worker) {
    fcp_exec *s = rank->session;
    s->computing--;
    if (s->team_size > 1) return;
    pthread_mutex_lock(&s->lock);
    s->free_workers[s->free_count++] = worker;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Computes heads until none is left. The lock is held when this is called and when it returns. */
static void share_heads(struct team *t, uint32_t worker) {
    const fcp_rank *rank = t->rank;
    uint32_t heads = rank->arena.kv_heads;
    t->busy++;
    while (t->next_head < heads && t->code == FCP_OK) {
        uint32_t head = t->next_head++, first = t->first, count = t->count;
        fcp_error err;
        pthread_mutex_unlock(&t->lock);
        fcp_device *device = rank->session->device;
        fcp_code code = device->backend->attend(device, worker, &rank->arena, first, count, head, 1, &err);
        pthread_mutex_lock(&t->lock);
        if (code != FCP_OK && t->code == FCP_OK) t->code = code, t->err = err;
    }
    if (--t->busy == 0) pthread_cond_broadcast(&t->changed);
}

static void *run_member(void *argument) {
    struct member *m = argument;
    struct team *t = m->team;
    uint64_t seen = 0;
    pthread_mutex_lock(&t->lock);
    for (;;) {
        while (t->call == seen && !t->stop) pthread_cond_wait(&t->changed, &t->lock);
        if (t->stop) break;
        seen = t->call;
        share_heads(t, m->worker);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static fcp_code team_attend(struct team *t, uint32_t worker, const fcp_instr *x, fcp_error *err) {
    pthread_mutex_lock(&t->lock);
    t->first = x->a;
    t->count = x->b;
    t->next_head = 0;
    t->code = FCP_OK;
    t->call++;
    pthread_cond_broadcast(&t->changed);
    share_heads(t, worker);
    while (t->busy) pthread_cond_wait(&t->changed, &t->lock);
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
    size_t d = a->plan->problem->head_dim, rows = tokens * a->heads, keys = tokens * a->kv_heads;
    struct sums s = {.pieces = 1};
    if (cls == FCP_STATE) {
        s = (struct sums){3, {0}, {rows * d, rows, rows}};
        fcp_arena_state(a, slot, &s.at[0], &s.at[1], &s.at[2]);
    } else if (cls == FCP_DKV) {
        s = (struct sums){2, {0}, {keys * d, keys * d}};
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
    for (uint32_t i = 0; fcp_bundle_next(&bundle, t, &i, &run);)
        device->backend->finish(device, &rank->arena, run.block, run.first, run.tokens);
}

static void copy_local(fcp_rank *rank, const fcp_instr *x) {
    for (uint32_t i = x->a; i < x->a + x->b; i++) {
        const fcp_transfer *t = &rank->arena.plan->transfers[i];
        finish_outputs(rank, t);
        fcp_bundle_copy(&rank->arena, rank->tensors, rank->session->bundles, t);
    }
}

static fcp_code compute(fcp_rank *rank, const fcp_instr *x, fcp_error *err) {
    fcp_exec *s = rank->session;
    uint32_t worker;
    fcp_code code = FCP_OK;
    if (!take_worker(rank, &worker)) return FCP_OK; /* somebody else has failed */
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
        if (s->team_size > 1) code = team_attend(&s->teams[own_index(rank)], worker, x, err);
        else
            code = s->device->backend->attend(s->device, worker, &rank->arena, x->a, x->b, 0,
                                              rank->arena.kv_heads, err);
        break;
    default: code = fcp_fail(err, FCP_E_INTERNAL, "not an instruction of this queue");
    }
    give_worker(rank, worker);
    return code;
}

/* Packs what a launch of inputs or outputs sends, or unpacks what it has received. Other launches move slots. */
static void do_messages(fcp_rank *rank, const fcp_instr *x, fcp_direction dir) {
    const fcp_transfer *transfers = &rank->arena.plan->transfers[x->a];
    for (uint32_t i = 0; i < x->b; i++) {
        const fcp_transfer *t = &transfers[i];
        void *message = rank->wires.list[i].segment[0].data;
        if ((t->cls != FCP_IN && t->cls != FCP_OUT) || t->dir != dir) continue;
        if (dir == FCP_RECV) {
            fcp_message_unpack(&rank->arena, rank->tensors, rank->session->bundles, t, message);
            continue;
        }
        if (t->cls == FCP_OUT) finish_outputs(rank, t);
        fcp_message_pack(&rank->arena, rank->tensors, rank->session->bundles, t, message);
    }
}

static fcp_code launch(fcp_rank *rank, uint32_t index, const fcp_instr *x, fcp_error *err) {
    fcp_exec *s = rank->session;
    const fcp_transfer *transfers = &s->plan->transfers[x->a];
    fcp_times *times = s->base.times;
    fcp_code code = fcp_wires_make(&rank->wires, &rank->arena, NULL, x, err);
    for (uint32_t i = 0; times && code == FCP_OK && i < x->b; i++)
        rank->wires.list[i].ended = &times->transfers[x->a + i];
    if (code == FCP_OK) do_messages(rank, x, FCP_SEND);
    if (code == FCP_OK) code = fcp_net_launch(s->base.net, rank->index, s->pass, x->c, rank->wires.list, x->b, err);
    struct patience patience = patience_begin(s);
    rank->waiting = x->c;
    while (code == FCP_OK) {
        uint32_t wire = 0;
        fcp_wait state = fcp_net_wait(s->base.net, rank->index, slice(s), &wire, err);
        if (state == FCP_WAIT_ABORTED) return FCP_OK;
        if (state == FCP_WAIT_FAILED) return err->code;
        if (state == FCP_WAIT_DONE) break;
        if (!patience_ends(s, &patience, x->c)) continue;
        const fcp_transfer *t = &transfers[wire];
        char why[240], what[40];
        if (t->block == FCP_NONE) snprintf(what, sizeof what, "%s", fcp_class_texts[t->cls]);
        else snprintf(what, sizeof what, "%s of block %u", fcp_class_texts[t->cls], t->block);
        snprintf(why, sizeof why, "round %u: %s rank %u for %u s (%s, tokens %u to %u)", x->c,
                 t->dir == FCP_RECV ? "nothing came from" : "nothing was taken by", t->peer, s->base.timeout_s, what,
                 t->first, t->first + t->tokens);
        fail_at(rank, FCP_COMM, index, FCP_E_RUN, why);
        return FCP_OK;
    }
    rank->waiting = FCP_NONE;
    if (code != FCP_OK) return code;
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
    bool late = false;
    pthread_mutex_lock(&rank->lock);
    while (rank->completed[other] < count && !s->failed && !late) {
        struct timespec until = fcp_deadline(slice(s));
        if (pthread_cond_timedwait(&rank->changed, &rank->lock, &until)) late = patience_ends(s, &patience, FCP_NONE);
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
        if (x->op == FCP_OP_WAIT) wait_for(rank, queue, i, x->a);
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

static void *run_compute(void *argument) {
    fcp_rank *rank = argument;
    uint32_t worker;
    if (!take_worker(rank, &worker)) return NULL;
    rank->session->device->backend->prepare(rank->session->device, &rank->arena);
    give_worker(rank, worker);
    pthread_mutex_lock(&rank->lock);
    rank->prepared = true;
    pthread_cond_broadcast(&rank->changed);
    pthread_mutex_unlock(&rank->lock);
    run_queue(rank, FCP_COMPUTE);
    return NULL;
}

static void *run_comm(void *argument) {
    fcp_rank *rank = argument;
    pthread_mutex_lock(&rank->lock);
    while (!rank->prepared && !rank->session->failed) pthread_cond_wait(&rank->changed, &rank->lock);
    pthread_mutex_unlock(&rank->lock);
    run_queue(rank, FCP_COMM);
    return NULL;
}

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static fcp_code init_locks(fcp_exec *s, fcp_error *err) {
    const char *text = "no memory for locks";
    if (pthread_mutex_init(&s->lock, NULL)) return fcp_fail(err, FCP_E_NO_MEMORY, "%s", text);
    if (!fcp_condition_init(&s->changed)) {
        pthread_mutex_destroy(&s->lock);
        return fcp_fail(err, FCP_E_NO_MEMORY, "%s", text);
    }
    s->locks = true;
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        fcp_rank *rank = &s->ranks[r];
        struct team *team = &s->teams[r];
        if (pthread_mutex_init(&rank->lock, NULL)) return fcp_fail(err, FCP_E_NO_MEMORY, "%s", text);
        if (!fcp_condition_init(&rank->changed)) {
            pthread_mutex_destroy(&rank->lock);
            return fcp_fail(err, FCP_E_NO_MEMORY, "%s", text);
        }
        rank->locks = true;
        if (pthread_mutex_init(&team->lock, NULL)) return fcp_fail(err, FCP_E_NO_MEMORY, "%s", text);
        if (!fcp_condition_init(&team->changed)) {
            pthread_mutex_destroy(&team->lock);
            return fcp_fail(err, FCP_E_NO_MEMORY, "%s", text);
        }
        team->locks = true;
    }
    return FCP_OK;
}

/* The rank in whose arena this one computes: the lender's. */
static fcp_rank *lender_of(const fcp_rank *rank) {
    fcp_exec *s = rank->session, *lender = (fcp_exec *)s->base.lender;
    return &(lender ? lender : s)->ranks[rank->index - s->base.first_rank];
}

/* Makes the arena larger. What is in it is lost: no run is under way. */
static fcp_code grow_arena(fcp_exec *s, fcp_rank *lends, size_t bytes, fcp_error *err) {
    void *larger = NULL;
    if (lends->memory && bytes <= lends->memory_held) return FCP_OK;
    fcp_code code = s->device->backend->allocate(s->device, bytes, &larger, err);
    if (code) return code;
    if (lends->memory) s->device->backend->release(s->device, lends->memory);
    lends->memory = larger;
    lends->memory_held = bytes;
    return FCP_OK;
}

/* Counts a rank's slots, and gets memory if it needs more than there is. */
static fcp_code make_rank(fcp_exec *s, fcp_rank *rank, fcp_error *err) {
    const fcp_homes *homes = &s->homes[rank->index];
    size_t most = 0;
    for (int pass = 0; pass < FCP_PASSES; pass++) {
        if (!(s->plan->problem->passes >> pass & 1)) continue;
        fcp_slots_of(s->plan, (fcp_pass)pass, rank->index, homes->homes, &rank->slots[pass]);
        size_t bytes = fcp_arena_size(s->plan, (fcp_pass)pass, homes, &rank->slots[pass]);
        if (bytes > most) most = bytes;
    }
    fcp_code code = fcp_partials_make(&rank->partials, homes->homes, rank->slots);
    if (!code) code = grow_arena(s, lender_of(rank), most, err);
    if (!code) return FCP_OK;
    return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory: the arena of rank %u needs %zu bytes", rank->index, most);
}

static uint32_t processors(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > FCP_BLAS_CALLERS ? FCP_BLAS_CALLERS : (uint32_t)n;
}

/* How many workers there are, and whether each rank has a team of its own. By default the processes of a node share its
 * processors. */
static void choose_workers(fcp_exec *s, uint32_t threads) {
    const fcp_problem *p = s->plan->problem;
    const uint32_t ranks = s->base.rank_count, of_node = p->gpus < p->ranks ? p->gpus : p->ranks;
    if (threads == 0) threads = s->base.net->transport->processes ? processors() / of_node : processors();
    if (threads == 0) threads = 1;
    if (threads > FCP_BLAS_CALLERS) threads = FCP_BLAS_CALLERS;
    s->team_size = threads / ranks;
    if (s->team_size > p->kv_heads) s->team_size = p->kv_heads;
    if (s->team_size < 1) s->team_size = 1;
    s->workers = s->team_size > 1 ? s->team_size * ranks : threads < ranks ? threads : ranks;
}

static void free_tables(fcp_rank *rank) {
    free(rank->table);
    fcp_sums_free(rank->d_table);
    rank->table = NULL;
    rank->d_table = NULL;
}

static void exec_free(fcp_session *session) {
    fcp_exec *s = (fcp_exec *)session;
    if (s->base.net && s->broken) fcp_net_abort(s->base.net);
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        fcp_rank *rank = s->ranks ? &s->ranks[r] : NULL;
        if (rank && rank->memory) s->device->backend->release(s->device, rank->memory);
        if (rank) fcp_partials_free(&rank->partials);
        if (rank) fcp_wires_free(&rank->wires);
        if (rank) free_tables(rank);
        if (rank && rank->locks) {
            pthread_cond_destroy(&rank->changed);
            pthread_mutex_destroy(&rank->lock);
        }
        if (s->teams && s->teams[r].locks) {
            pthread_cond_destroy(&s->teams[r].changed);
            pthread_mutex_destroy(&s->teams[r].lock);
        }
    }
    if (s->locks) {
        pthread_cond_destroy(&s->changed);
        pthread_mutex_destroy(&s->lock);
    }
    fcp_net_close(s->base.net);
    if (s->device) s->device->backend->close(s->device);
    free(s->ranks);
    free(s->homes);
    fcp_bundles_free(s->bundles);
    free(s->teams);
    free(s->members);
    free(s->free_workers);
    free(s);
}

/* Makes what does not depend on other processes. */
static fcp_code make_own(fcp_exec *s, const fcp_backend *backend, fcp_error *err) {
    const uint32_t first = s->base.first_rank, ranks = s->base.rank_count;
    s->ranks = calloc(ranks, sizeof *s->ranks);
    s->teams = calloc(ranks, sizeof *s->teams);
    s->members = calloc((size_t)ranks * (s->team_size - 1) + 1, sizeof *s->members);
    s->free_workers = calloc(s->workers, sizeof *s->free_workers);
    s->homes = fcp_homes_of(s->plan);
    if (!s->ranks || !s->teams || !s->members || !s->free_workers || !s->homes)
        return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session of %u ranks", ranks);
    for (uint32_t r = 0; r < ranks; r++) {
        s->ranks[r].session = s;
        s->ranks[r].index = first + r;
        s->teams[r].rank = &s->ranks[r];
    }
    fcp_code code = init_locks(s, err);
    if (code == FCP_OK) code = fcp_bundles_make(s->plan, first, ranks, &s->bundles, err);
    if (code == FCP_OK) code = backend->open(s->plan, s->workers, &s->device, err);
    for (uint32_t r = 0; code == FCP_OK && r < ranks; r++) code = make_rank(s, &s->ranks[r], err);
    return code;
}

/* Processes join even if one of them has failed already, so that all others learn of it. */
static fcp_code create(const fcp_plan *plan, const fcp_backend *backend, const fcp_transport *transport,
                       const fcp_session_options *options, fcp_session *lender, fcp_session **out_session,
                       fcp_error *err) {
    const fcp_problem *p = plan->problem;
    const fcp_start *start = options ? options->start : NULL;
    fcp_exec *s = calloc(1, sizeof *s);
    if (!s) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session");
    s->base = (fcp_session){.kind = &fcp_session_host, .plan = plan, .lender = lender,
                            .timeout_s = options && options->timeout_s ? options->timeout_s : DEFAULT_TIMEOUT_S};
    s->plan = plan;
    fcp_code code = fcp_net_open(transport, p->ranks, p->gpus, start, &s->base.net, err);
    if (code != FCP_OK) {
        free(s);
        return code;
    }
    s->base.first_rank = s->base.net->first_rank;
    s->base.rank_count = s->base.net->rank_count;
    choose_workers(s, options ? options->compute_threads : 0);
    fcp_promise mine = {.plan = plan, .made = make_own(s, backend, err)};
    fcp_error why = {0};
    code = fcp_net_connect(s->base.net, &s->base, start, &why);
    if (code == FCP_OK) code = fcp_agree(s->base.net, &mine, &why);
    if (mine.made) code = mine.made;
    else if (code && err) *err = why;
    if (code != FCP_OK) {
        exec_free(&s->base);
        return code;
    }
    *out_session = &s->base;
    return FCP_OK;
}

fcp_code fcp_session_create_on(const fcp_plan *plan, const fcp_backend *backend, const fcp_session_options *options,
                               fcp_session **out_session, fcp_error *err) {
    return create(plan, backend, &fcp_transport_threads, options, NULL, out_session, err);
}

static fcp_code exec_create(const fcp_plan *plan, const fcp_session_options *options, const fcp_transport *transport,
                            fcp_session *lender, fcp_session **out_session, fcp_error *err) {
    return create(plan, &fcp_backend_host, transport, options, lender, out_session, err);
}

static void begin_pass(fcp_exec *s, fcp_pass pass, const fcp_tensors *tensors) {
    s->pass = pass;
    if (s->base.times) s->base.times->began = fcp_clock_ns();
    s->failed = false;
    s->progress = 0;
    s->computing = 0;
    s->error = (fcp_error){0};
    s->free_count = s->team_size > 1 ? 0 : s->workers;
    for (uint32_t i = 0; i < s->free_count; i++) s->free_workers[i] = i;
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        fcp_rank *rank = &s->ranks[r];
        fcp_arena_lay(s->plan, pass, rank->index, &s->homes[rank->index], &rank->slots[pass], lender_of(rank)->memory,
                      &rank->arena);
        fcp_partials_clear(&rank->partials);
        rank->tensors = &tensors[r];
        rank->arena.sink = tensors[r].sink;
        rank->arena.d_sink = tensors[r].d_sink;
        rank->arena.table = tensors[r].table ? rank->table : NULL;
        rank->arena.d_table = tensors[r].d_table && pass == FCP_BACKWARD ? rank->d_table : NULL;
        rank->prepared = false;
        rank->waiting = FCP_NONE;
        rank->completed[FCP_COMPUTE] = rank->completed[FCP_COMM] = 0;
        s->teams[r].stop = false;
        s->teams[r].call = 0;
    }
    fcp_net_reset(s->base.net);
}

static fcp_code refuse(const fcp_exec *s, fcp_error *err) {
    return fcp_fail(err, FCP_E_RUN, "%s, and a new session is needed", s->broken);
}
#define NO_PLAN "this session could not be given its last plan"

/* This process refuses a plan to rebind to. It keeps the one that it has if all others refuse it too. */
static void exec_refuse(fcp_session *session, const fcp_plan *plan, const fcp_error *why) {
    fcp_exec *s = (fcp_exec *)session;
    const fcp_promise promise = {.plan = plan, .made = why->code};
    if (!s->broken && !fcp_agree_to_refuse(session->net, &promise)) s->broken = NO_PLAN;
}

/* Arenas that are large enough are kept, though another device gave them: memory is the backend's, not the device's. */
static fcp_code exec_rebind(fcp_session *session, const fcp_plan *plan, fcp_error *err) {
    fcp_exec *s = (fcp_exec *)session;
    fcp_device *device = NULL;
    fcp_bundles *bundles = NULL;
    fcp_error why = {0};
    if (s->broken) return refuse(s, err);
    fcp_homes *homes = fcp_homes_of(plan);
    fcp_code code = homes ? fcp_bundles_make(plan, session->first_rank, session->rank_count, &bundles, &why)
                          : fcp_fail(&why, FCP_E_NO_MEMORY, "out of memory for a plan of %u ranks",
                                     plan->problem->ranks);
    if (code == FCP_OK) code = s->device->backend->open(plan, s->workers, &device, &why);
    if (code != FCP_OK) {
        free(homes);
        fcp_bundles_free(bundles);
        exec_refuse(session, plan, &why);
        if (err) *err = why;
        return code;
    }
    s->device->backend->close(s->device);
    free(s->homes);
    fcp_bundles_free(s->bundles);
    s->device = device;
    s->homes = homes;
    s->bundles = bundles;
    s->plan = s->base.plan = plan;
    for (uint32_t r = 0; r < session->rank_count; r++) free_tables(&s->ranks[r]);
    for (uint32_t r = 0; code == FCP_OK && r < session->rank_count; r++) code = make_rank(s, &s->ranks[r], &why);
    const fcp_promise mine = {.plan = plan, .made = code};
    code = fcp_agree(session->net, &mine, &why);
    if (code != FCP_OK) s->broken = NO_PLAN;
    if (code != FCP_OK && err) *err = why;
    return code;
}

static bool start(pthread_t *thread, size_t stack, void *(*body)(void *), void *argument) {
    pthread_attr_t attr;
    if (pthread_attr_init(&attr)) return false;
    bool ok = pthread_attr_setstacksize(&attr, stack) == 0 && pthread_create(thread, &attr, body, argument) == 0;
    pthread_attr_destroy(&attr);
    return ok;
}

/* Starts all threads and waits for them. */
static void run_threads(fcp_exec *s, pthread_t *threads) {
    uint32_t ranks = s->base.rank_count, helpers = ranks * (s->team_size - 1), started = 0, helping = 0;
    for (uint32_t i = 0; i < helpers && !s->failed; i++) {
        struct member *m = &s->members[i];
        uint32_t rank = i / (s->team_size - 1);
        m->team = &s->teams[rank];
        m->worker = rank * s->team_size + 1 + i % (s->team_size - 1);
        if (start(&m->thread, COMPUTE_STACK, run_member, m)) helping++;
        else
            fail(s, FCP_E_NO_MEMORY, fcp_where_rank(s->ranks[rank].index),
                 "out of memory: no thread for a helper could be started");
    }
    for (uint32_t i = 0; i < 2 * ranks && !s->failed; i++) {
        fcp_rank *rank = &s->ranks[i / 2];
        bool ok = i % 2 ? start(&threads[i], COMM_STACK, run_comm, rank)
                        : start(&threads[i], COMPUTE_STACK, run_compute, rank);
        char text[120];
        snprintf(text, sizeof text, "rank %u, %s pass: out of memory: no thread could be started", rank->index,
                 fcp_pass_names[s->pass]);
        if (ok) started++;
        else fail(s, FCP_E_NO_MEMORY, fcp_where_rank(rank->index), text);
    }
    for (uint32_t i = 0; i < started; i++) pthread_join(threads[i], NULL);
    for (uint32_t r = 0; helping && r < ranks; r++) {
        pthread_mutex_lock(&s->teams[r].lock);
        s->teams[r].stop = true;
        pthread_cond_broadcast(&s->teams[r].changed);
        pthread_mutex_unlock(&s->teams[r].lock);
    }
    for (uint32_t i = 0; i < helping; i++) pthread_join(s->members[i].thread, NULL);
}

/* Makes ready the tables that a run brings, and the sums of their gradients. */
static fcp_code begin_tables(fcp_exec *s, fcp_pass pass, const fcp_tensors *tensors, fcp_error *err) {
    const fcp_backend *backend = s->device->backend;
    const size_t count = fcp_plan_table_numbers(s->plan);
    bool made = true;
    fcp_code code = FCP_OK;
    for (uint32_t r = 0; r < s->base.rank_count && !code; r++) {
        fcp_rank *rank = &s->ranks[r];
        const float *given = tensors[r].table;
        const bool wanted = tensors[r].d_table && pass == FCP_BACKWARD;
        if (given && !rank->table) made = (rank->table = malloc(count * sizeof *rank->table)) != NULL;
        if (wanted && !rank->d_table) made = made && (rank->d_table = fcp_sums_new(count)) != NULL;
        if (!made)
            return fcp_fail_at(err, FCP_E_NO_MEMORY, fcp_where_rank(rank->index),
                               "rank %u: out of memory for tables of %zu numbers and their gradients", rank->index,
                               count);
        for (size_t i = 0; given && i < count; i++) rank->table[i] = (double)given[i];
        if (!wanted) continue;
        fcp_sums_clear(rank->d_table);
        code = backend->learn ? backend->learn(s->device, err)
                              : fcp_fail(err, FCP_E_BACKEND, "%s has no gradients of tables", backend->name);
    }
    return code;
}

static fcp_code exec_run(fcp_session *session, fcp_pass pass, const fcp_tensors *tensors, void *stream,
                         fcp_error *err) {
    fcp_exec *s = (fcp_exec *)session;
    (void)stream;
    if (s->broken) return refuse(s, err);
    fcp_code code = begin_tables(s, pass, tensors, err);
    if (code != FCP_OK) return code;
    pthread_t *threads = malloc(2 * (size_t)s->base.rank_count * sizeof *threads);
    if (!threads) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for threads");
    code = s->device->backend->enter(s->device, err);
    if (code == FCP_OK) {
        begin_pass(s, pass, tensors);
        run_threads(s, threads);
        s->device->backend->leave(s->device);
    }
    free(threads);
    for (uint32_t r = 0; r < s->base.rank_count && !code; r++)
        if (s->ranks[r].arena.d_table) fcp_sums_read(s->ranks[r].arena.d_table, tensors[r].d_table);
    if (code != FCP_OK) return code;
    if (!s->failed) return FCP_OK;
    if (session->net->transport->processes) s->broken = "a pass of this session has failed";
    if (err) *err = s->error;
    return s->error.code;
}

static fcp_code exec_gather(fcp_session *session, const void *mine, size_t bytes, void *out_all, fcp_error *err) {
    return fcp_net_gather(session->net, mine, bytes, out_all, err);
}

static fcp_code exec_collect(fcp_session *session, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    return fcp_net_collect(session->net, from, memory, bytes, err);
}

static const fcp_transport *const transports[] = {&fcp_transport_threads, &fcp_transport_mpi, &fcp_transport_tcp, NULL};

const fcp_session_kind fcp_session_host = {.name = "host",
                                           .transports = transports,
                                           .sinks = true,
                                           .tables = true,
                                           .create = exec_create,
                                           .free = exec_free,
                                           .run = exec_run,
                                           .rebind = exec_rebind,
                                           .refuse = exec_refuse,
                                           .gather = exec_gather,
                                           .collect = exec_collect};
