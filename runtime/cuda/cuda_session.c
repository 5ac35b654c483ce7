/* cuda_session.c: sessions on CUDA devices: making one, giving it another plan, ending it.
 *
 * The transport decides which ranks of a plan this process has: with "local" all of them, spread over the devices;
 * with "nccl" one, on one device. Nothing here or above asks which transport it is.
 *
 * Requires: a verified plan; a driver, and NVRTC unless the kernels are in the disk cache.
 * Cost:     see ranks.c, kernels.c and run_pass.c.
 */
#include "runtime/cuda/cuda_session.h"

#include <stdlib.h>

#include "runtime/cuda/cuda.h"
#include "runtime/exec/agree.h"
#include "runtime/exec/error_place.h"
#include "runtime/jit/kernel_source.h"

enum { DEFAULT_TIMEOUT_S = 120, DEFAULT_GRAPH_FROM = 3 };

/* What this process tells the others about the plan that it was given. */
static fcp_promise promise(const fcp_cuda_session *s, const fcp_plan *plan, fcp_code made) {
    return (fcp_promise){.plan = plan, .graph_from = s->graph_from, .made = made};
}

/* --- making ------------------------------------------------------------------------------------------------------- */

/* A process with one rank has one device: the one that the caller names, or the one with the number of the process on
 * its machine. A process with all ranks has all devices, but no more than ranks. */
static fcp_code choose_devices(fcp_cuda_session *s, const fcp_start *start, fcp_error *err) {
    const fcp_net *net = s->base.net;
    uint32_t devices = (uint32_t)s->cuda->devices;
    s->base.first_rank = net->first_rank;
    s->base.rank_count = net->rank_count;
    s->device_count = devices < net->rank_count ? devices : net->rank_count;
    if (net->transport->processes) s->first_device = start && start->device ? start->device - 1 : net->local % devices;
    if (s->first_device >= devices)
        return fcp_fail(err, FCP_E_ARGUMENT, "there is no device %u: there are %u", s->first_device, devices);
    s->devices = calloc(s->device_count, sizeof *s->devices);
    return s->devices ? FCP_OK : fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %u devices", s->device_count);
}

static fcp_code make(fcp_cuda_session *s, const fcp_transport *transport, const fcp_start *start, fcp_error *err) {
    const fcp_problem *p = s->plan->problem;
    fcp_code code = fcp_net_open(transport, p->ranks, p->gpus, start, &s->base.net, err);
    if (!code) code = choose_devices(s, start, err);
    if (!code) code = fcp_cuda_devices_open(s, err);
    if (!code) code = fcp_cuda_stream_make(s, &s->devices[0], &s->origin, err);
    if (!code) code = fcp_net_connect(s->base.net, &s->base, start, err);
    if (code) return code;
    code = fcp_cuda_ranks_plan(s, s->plan, err);
    if (!code) code = fcp_cuda_ranks_make(s, false, err);
    const fcp_promise mine = promise(s, s->plan, code);
    return fcp_agree(s->base.net, &mine, err);
}

/* --- ending ------------------------------------------------------------------------------------------------------- */

/* Frees what the session has in the driver. */
static void close_all(fcp_cuda_session *s) {
    const fcp_cuda_table *call = &s->cuda->call;
    fcp_cuda_graphs_destroy(s);
    fcp_net_close(s->base.net);
    s->base.net = NULL;
    fcp_cuda_ranks_close(s);
    if (s->origin) call->context_set(s->devices[0].context);
    if (s->origin) call->stream_destroy(s->origin);
    fcp_cuda_marks_close(s);
    fcp_cuda_devices_close(s);
}

static void session_free(fcp_session *base) {
    fcp_cuda_session *s = (fcp_cuda_session *)base, *of = fcp_cuda_lender(s);
    if (s->cuda) {
        const fcp_cuda_table *call = &s->cuda->call;
        cu_context before = NULL;
        if (s->devices) call->context_get(&before);
        if (s->base.net && (s->broken || !s->made)) fcp_net_abort(s->base.net);
        if (s->origin) {
            fcp_error ignored;
            fcp_cuda_use(s, &s->devices[0], &ignored);
            if (of->finished) call->stream_wait_event(s->origin, of->finished, 0);
            fcp_cuda_drain(s);
            of->kept |= s->hung;
        }
        if (!s->hung) close_all(s);
        /* If something hangs, the rest stays allocated: freeing it would make the driver wait for what hangs. */
        fcp_net_close(s->base.net);
        if (s->devices) call->context_set(before);
    }
    fcp_cuda_ranks_free(s);
    fcp_cuda_devices_free(s);
    fcp_cuda_close(s->cuda);
    free(s);
}

/* Arenas that belong to a transport are its connections' own, and are not lent. */
static fcp_code session_create(const fcp_plan *plan, const fcp_session_options *options, const fcp_transport *transport,
                               fcp_session *lender, fcp_session **out_session, fcp_error *err) {
    fcp_code code = fcp_kernel_check(plan, err);
    if (code) return code;
    fcp_cuda_session *s = calloc(1, sizeof *s);
    if (!s) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for a session");
    s->base = (fcp_session){.kind = &fcp_session_cuda, .plan = plan, .lender = transport->allocate ? NULL : lender,
                            .margin = lender ? lender->margin : plan->problem->margin,
                            .interrupt = fcp_interrupt_of(options)};
    fcp_cuda_lender(s)->lends = s->base.lender != NULL;
    s->plan = plan;
    s->mma_sync = options->mma_sync;
    s->fused = options->fuse == FCP_FUSE_PASS;
    s->base.timeout_s = options->timeout_s ? options->timeout_s : DEFAULT_TIMEOUT_S;
    s->partition_wanted = options->partition;
    s->graph_from = options->timings ? UINT32_MAX : options->graph_from ? options->graph_from : DEFAULT_GRAPH_FROM;
    s->staging_bytes = options->stage_bytes;
    s->allocator = options->allocator;
    s->host_tensors = options->host_tensors;
    cu_context before = NULL;
    code = fcp_cuda_open(&s->cuda, err);
    if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), err, "no current context");
    if (!code) {
        fcp_error why = {0};
        code = make(s, transport, options->start, &why);
        if (code && transport->processes && s->base.rank_count && why.where.rank == FCP_NOWHERE)
            fcp_fail_at(err, code, fcp_where_rank(s->base.first_rank), "rank %u: %.500s", s->base.first_rank,
                        why.message);
        else if (code && err) *err = why;
        s->made = !code;
        s->cuda->call.context_set(before);
    }
    if (code) session_free(&s->base);
    else *out_session = &s->base;
    return code;
}

/* --- another plan ------------------------------------------------------------------------------------------------- */

static void session_refuse(fcp_session *base, const fcp_plan *plan, const fcp_error *why) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    const fcp_promise mine = promise(s, plan, why->code);
    cu_context before = NULL;
    fcp_error said = *why;
    if (s->broken || s->cuda->call.context_get(&before)) return;
    if (!fcp_agree_to_refuse(base->net, &mine)) fcp_cuda_break(s, why->code, &said);
    s->cuda->call.context_set(before);
}

/* When the ranks are those of the new plan there is no way back, and an error ends the session. All processes do this
 * together; if it fails in one, it fails in all. */
static fcp_code session_rebind(fcp_session *base, const fcp_plan *plan, fcp_error *err) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    cu_context before = NULL;
    fcp_error why = {0};
    fcp_code code = fcp_kernel_check(plan, &why);
    if (code) session_refuse(base, plan, &why);
    if (code && err) *err = why;
    if (!code) code = fcp_cuda_run_wait(s, err);
    if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), err, "no current context");
    if (code) return code;
    code = fcp_cuda_ranks_plan(s, plan, &why);
    bool stays = code && !base->net->transport->processes;
    if (!stays) {
        fcp_cuda_graphs_destroy(s);
        for (int graph = 0; graph < CUDA_GRAPHS; graph++) s->runs[graph] = 0;
    }
    if (!code) code = fcp_cuda_ranks_make(s, true, &why);
    const fcp_promise mine = promise(s, plan, code);
    code = fcp_agree(base->net, &mine, &why);
    if (code && !stays) fcp_cuda_break(s, code, &why);
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

/* --- the table ---------------------------------------------------------------------------------------------------- */

static fcp_code session_run(fcp_session *base, fcp_pass pass, const fcp_tensors *tensors, void *stream,
                            fcp_error *err) {
    return fcp_cuda_run((fcp_cuda_session *)base, pass, tensors, stream, err);
}

static fcp_code session_halo(fcp_session *base, uint32_t layer, size_t row_bytes, const fcp_halo_rank *ranks,
                             void *stream, fcp_error *err) {
    return fcp_cuda_halo((fcp_cuda_session *)base, layer, row_bytes, ranks, stream, err);
}

static fcp_code session_halo_gradient(fcp_session *base, uint32_t layer, fcp_dtype dtype, uint64_t numbers,
                                      const fcp_halo_gradient_rank *ranks, void *stream, fcp_error *err) {
    return fcp_cuda_halo_gradient((fcp_cuda_session *)base, layer, dtype, numbers, ranks, stream, err);
}

static fcp_code session_scan(fcp_session *base, uint32_t layer, fcp_pass pass, const fcp_scan_rank *ranks, void *stream,
                             fcp_error *err) {
    return fcp_cuda_scan((fcp_cuda_session *)base, layer, pass, ranks, stream, err);
}

static fcp_code session_wait(fcp_session *base, fcp_error *err) {
    return fcp_cuda_run_wait((fcp_cuda_session *)base, err);
}

/* Sends a message between the processes of a session, through their devices: from rank `from` to rank 0, or, if `mine`
 * is not NULL, from every rank to all. The caller's context is kept and set again. An error ends the session. */
static fcp_code tell(fcp_session *base, const void *mine, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    fcp_cuda_session *s = (fcp_cuda_session *)base;
    cu_context before = NULL;
    fcp_error why = {0};
    fcp_code code = fcp_cuda_run_check(s, err);
    if (!code) code = fcp_cuda_check(s->cuda, s->cuda->call.context_get(&before), err, "no current context");
    if (code) return code;
    code = mine ? fcp_net_gather(base->net, mine, bytes, memory, &why)
                : fcp_net_collect(base->net, from, memory, bytes, &why);
    if (code) fcp_cuda_break(s, code, &why);
    s->cuda->call.context_set(before);
    if (code && err) *err = why;
    return code;
}

static fcp_code session_gather(fcp_session *base, const void *mine, size_t bytes, void *out_all, fcp_error *err) {
    return tell(base, mine, 0, out_all, bytes, err);
}

static fcp_code session_collect(fcp_session *base, uint32_t from, void *memory, size_t bytes, fcp_error *err) {
    return tell(base, NULL, from, memory, bytes, err);
}

static fcp_partition session_partition(const fcp_session *base, const char **out_why) {
    const fcp_cuda_session *s = (const fcp_cuda_session *)base;
    *out_why = s->partition_why;
    return s->partition;
}

static bool session_fused(const fcp_session *base, fcp_pass pass) {
    return fcp_cuda_fused((const fcp_cuda_session *)base, pass);
}

static uint32_t session_device(const fcp_session *base) { return 1 + ((const fcp_cuda_session *)base)->first_device; }

static const char *session_warning(const fcp_session *base) { return ((const fcp_cuda_session *)base)->warning; }

static const fcp_transport *const transports[] = {&fcp_transport_local, &fcp_transport_nccl, NULL};

const fcp_session_kind fcp_session_cuda = {.name = "cuda",
                                           .transports = transports,
                                           .streams = true,
                                           .sinks = true,
                                           .tables = true,
                                           .create = session_create,
                                           .free = session_free,
                                           .run = session_run,
                                           .halo = session_halo,
                                           .halo_gradient = session_halo_gradient,
                                           .scan = session_scan,
                                           .wait = session_wait,
                                           .rebind = session_rebind,
                                           .refuse = session_refuse,
                                           .gather = session_gather,
                                           .collect = session_collect,
                                           .partition = session_partition,
                                           .fused = session_fused,
                                           .device = session_device,
                                           .warning = session_warning};
