/* executor.c: sessions on the host: their memory, and the threads that run a pass.
 *
 * Requires: a verified plan.
 * Gives:    what the plan's passes compute, in the caller's tensors.
 * Method:   a run lays out each rank's arena for its pass, and starts threads: for each rank two and, if there are more
 *           processors, helpers. queues.c is what they execute. The caller's thread serves as one of them, because
 *           starting a thread takes longer than a small rank computes. Then it waits for the others.
 * Failure:  an error of a run ends it for all ranks. If other processes take part, the session cannot run again.
 * Caller:   the thread that runs a pass asks the caller now and then whether to stop (runtime/base/interrupt.h):
 *           between the products that it computes itself, and in all its waits.
 * Cost:     while a pass runs, two threads for each rank, and helpers if there are more processors than ranks. All the
 *           time, an arena for each rank (as much as fcp_rank_memory counts) and scratch memory for each worker. A
 *           session that was added to another one (fcp_session_add) computes in the arenas of that one, its lender.
 */
#include "runtime/host/executor.h"
#include "runtime/plan/extract.h"
#include "runtime/plan/enum_names.h"

#include <stdio.h>
#include <stdlib.h>

#include "runtime/base/threads.h"
#include "runtime/exec/agree.h"
#include "runtime/host/blas.h"
#include "runtime/host/queues.h"
#include "runtime/host/recurrent_host.h"
#include "runtime/host/sums.h"

enum { COMM_STACK = 256 << 10, DEFAULT_TIMEOUT_S = 120 };

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
        struct fcp_team *team = &s->teams[r];
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

/* Chooses how many workers there are, and whether each rank has a team of its own. By default the processes of a
 * node share its processors. */
static void choose_workers(fcp_exec *s, uint32_t threads) {
    const fcp_problem *p = s->plan->problem;
    const uint32_t ranks = s->base.rank_count, of_node = p->gpus < p->ranks ? p->gpus : p->ranks;
    if (threads == 0)
        threads = fcp_processors(FCP_BLAS_CALLERS) / (s->base.net->transport->processes ? of_node : 1);
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
    fcp_recurrent_free(s);
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

static fcp_code open_device(fcp_exec *s, const fcp_backend *backend, const fcp_plan *plan, fcp_device **out,
                            fcp_error *err) {
    fcp_code code = backend->open(plan, s->workers, out, err);
    if (code) return code;
    (*out)->over = fcp_queue_over;
    (*out)->session = s;
    return FCP_OK;
}

/* Makes what does not depend on other processes. */
static fcp_code make_own(fcp_exec *s, const fcp_backend *backend, fcp_error *err) {
    const uint32_t first = s->base.first_rank, ranks = s->base.rank_count;
    fcp_code code = fcp_extract_fits(s->plan, first, ranks, err);
    if (code) return code;
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
    code = init_locks(s, err);
    if (code == FCP_OK) code = fcp_bundles_make(s->plan, first, ranks, &s->bundles, err);
    if (code == FCP_OK) code = open_device(s, backend, s->plan, &s->device, err);
    for (uint32_t r = 0; code == FCP_OK && r < ranks; r++) code = make_rank(s, &s->ranks[r], err);
    return code;
}

/* The processes join before anything else: from then on the others know that this one lives, however long it takes
 * to get ready. If one of them fails, all learn of it when they compare plans (agree.h). */
fcp_code fcp_executor_create(const fcp_plan *plan, const fcp_backend *backend, const fcp_transport *transport,
                             const fcp_session_options *options, fcp_session *lender, fcp_session **out_session,
                             fcp_error *err) {
    const fcp_problem *p = plan->problem;
    const fcp_start *start = options ? options->start : NULL;
    fcp_interrupt interrupt = {0};
    fcp_exec *s = calloc(1, sizeof *s);
    if (!s) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session");
    if (options) interrupt = fcp_interrupt_of(options);
    s->base = (fcp_session){.kind = &fcp_session_host, .plan = plan, .lender = lender, .interrupt = interrupt,
                            .margin = lender ? lender->margin : plan->problem->margin,
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
    code = fcp_net_connect(s->base.net, &s->base, start, err);
    if (code == FCP_OK) {
        const fcp_promise mine = {.plan = plan, .made = make_own(s, backend, err)};
        code = fcp_agree(s->base.net, &mine, err);
    }
    if (code != FCP_OK) {
        exec_free(&s->base);
        return code;
    }
    *out_session = &s->base;
    return FCP_OK;
}

static fcp_code exec_create(const fcp_plan *plan, const fcp_session_options *options, const fcp_transport *transport,
                            fcp_session *lender, fcp_session **out_session, fcp_error *err) {
    return fcp_executor_create(plan, &fcp_backend_host, transport, options, lender, out_session, err);
}

static void begin_pass(fcp_exec *s, fcp_pass pass, const fcp_tensors *tensors) {
    s->pass = pass;
    if (s->base.times) s->base.times->began = fcp_clock_ns();
    for (uint32_t r = 0; r < s->base.rank_count; r++) {
        fcp_rank *rank = &s->ranks[r];
        fcp_arena_lay(s->plan, pass, rank->index, &s->homes[rank->index], &rank->slots[pass], lender_of(rank)->memory,
                      &rank->arena);
        fcp_partials_clear(&rank->partials);
        rank->tensors = &tensors[r];
        rank->arena.keys_kept = s->base.keys_kept;
        rank->arena.sink = tensors[r].sink;
        rank->arena.d_sink = tensors[r].d_sink;
        rank->arena.max_logit = tensors[r].max_logit;
        rank->arena.table = tensors[r].table ? rank->table : NULL;
        rank->arena.d_table = tensors[r].d_table && pass == FCP_BACKWARD ? rank->d_table : NULL;
        rank->prepared = false;
        rank->completed[FCP_COMPUTE] = rank->completed[FCP_COMM] = 0;
    }
    fcp_queue_begin(s);
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
    fcp_code code = fcp_extract_fits(plan, session->first_rank, session->rank_count, &why);
    if (!homes) code = fcp_fail(&why, FCP_E_NO_MEMORY, "out of memory for a plan of %u ranks", plan->problem->ranks);
    if (!code) code = fcp_bundles_make(plan, session->first_rank, session->rank_count, &bundles, &why);
    if (code == FCP_OK) code = open_device(s, s->device->backend, plan, &device, &why);
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
    fcp_recurrent_free(s);
    for (uint32_t r = 0; r < session->rank_count; r++) free_tables(&s->ranks[r]);
    for (uint32_t r = 0; code == FCP_OK && r < session->rank_count; r++) code = make_rank(s, &s->ranks[r], &why);
    const fcp_promise mine = {.plan = plan, .made = code};
    code = fcp_agree(session->net, &mine, &why);
    if (code != FCP_OK) s->broken = NO_PLAN;
    if (code != FCP_OK && err) *err = why;
    return code;
}

static void no_thread(fcp_exec *s, const fcp_rank *rank) {
    char text[120];
    snprintf(text, sizeof text, "rank %u, %s pass: out of memory: no thread could be started", rank->index,
             fcp_pass_names[s->pass]);
    fcp_queue_fail(s, FCP_E_NO_MEMORY, fcp_where_rank(rank->index), text);
}

/* Starts a thread for each queue that has instructions, except the last rank's compute queue, which this thread
 * executes itself. Then waits for all. */
static void run_threads(fcp_exec *s, pthread_t *threads) {
    const uint32_t ranks = s->base.rank_count, helping = fcp_queue_help_begin(s);
    uint32_t started = 0;
    for (uint32_t r = 0; r < ranks && !s->failed; r++) {
        fcp_rank *rank = &s->ranks[r];
        const bool moves = fcp_stream_of(s->plan, s->pass, rank->index, FCP_COMM)->count != 0;
        if (moves && fcp_thread_start(&threads[started], COMM_STACK, fcp_queue_comm, rank)) started++;
        else if (moves) no_thread(s, rank);
        if (r + 1 == ranks || s->failed) break;
        if (fcp_thread_start(&threads[started], FCP_QUEUE_STACK, fcp_queue_compute, rank)) started++;
        else no_thread(s, rank);
    }
    if (!s->failed) fcp_queue_compute(&s->ranks[ranks - 1]);
    for (uint32_t i = 0; i < started; i++) fcp_queue_join(s, threads[i]);
    fcp_queue_help_end(s, helping);
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

/* Runs a call about a layer that recurs. */
static fcp_code recur(fcp_session *session, const fcp_call *call, fcp_recurrent_tensors tensors, fcp_error *err) {
    fcp_exec *s = (fcp_exec *)session;
    bool broken = false;
    if (s->broken) return refuse(s, err);
    const fcp_code code = fcp_recurrent_run(s, call, tensors, &broken, err);
    if (broken) s->broken = "a call of this session has failed";
    return code;
}

static fcp_code exec_halo(fcp_session *session, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks,
                          void *stream, fcp_error *err) {
    const fcp_call call = {.row = row_bytes, .kind = FCP_CALL_HALO, .layer = layer, .pass = FCP_FORWARD};
    (void)stream;
    return recur(session, &call, (fcp_recurrent_tensors){.halo = ranks}, err);
}

static fcp_code exec_halo_gradient(fcp_session *session, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                                   const fcp_halo_gradient_rank *ranks, void *stream, fcp_error *err) {
    const fcp_call call = {.row = numbers,
                           .kind = FCP_CALL_HALO_GRADIENT,
                           .layer = layer,
                           .pass = FCP_BACKWARD,
                           .dtype = (uint32_t)dtype};
    (void)stream;
    return recur(session, &call, (fcp_recurrent_tensors){.gradient = ranks}, err);
}

static fcp_code exec_scan(fcp_session *session, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks, void *stream,
                          fcp_error *err) {
    const fcp_call call = {.kind = FCP_CALL_SCAN, .layer = layer, .pass = (uint32_t)pass};
    (void)stream;
    return recur(session, &call, (fcp_recurrent_tensors){.scan = ranks}, err);
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
                                           .halo = exec_halo,
                                           .halo_gradient = exec_halo_gradient,
                                           .scan = exec_scan,
                                           .rebind = exec_rebind,
                                           .refuse = exec_refuse,
                                           .gather = exec_gather,
                                           .collect = exec_collect};
