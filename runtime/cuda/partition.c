/* partition.c: divides the SMs of a device between attention and communication.
 *
 * Some transfers need SMs: NCCL copies with kernels, and so does the driver within a device. Rounding partial results
 * needs SMs, too, at both ends. Copies between two devices of this process need none, since copy engines (DMA) do them.
 * If a rank of the device has transfers that need SMs in a pass, attention leaves `margin` SMs alone in that pass. For
 * example, with 132 SMs and a margin of 8 it launches as many CTAs as fit on 124 (always enough for one SM). In other
 * passes it may use all.
 *
 * A green context enforces this: it is a context for a set of SMs, which no CTA of its kernels leaves. If every pass
 * has transfers that need SMs, compute streams belong to green contexts, under these conditions:
 *   - Either all devices have green contexts or none has.
 *   - A probe on it gives right results. The probe does what a session will do: streams that follow each other by
 *     events, a fill, a copy and a launch; the same captured, with another stream as origin; the graph replayed twice.
 *   - It holds something back. The driver rounds the number of SMs up. Attention then uses all that it got, but a set
 *     of all SMs would hold nothing back.
 *
 * The margin is that of the session's first plan, because green contexts and NCCL's communicators are made with it. If
 * attention used more SMs for a later plan with a smaller margin, communication would find too few. Results do not
 * depend on it.
 *
 * Requires: devices with their kernels; the session's origin. It comes before the streams of ranks are made.
 * Cost:     linear in the plan's instructions; with green contexts some milliseconds a device.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/plan/enum_names.h"

#include <stdio.h>

#define NO_NEED "no rank sends or receives by multiprocessors"
#define NO_MARGIN "the margin of the session's first plan is 0"
enum { PROBE_NUMBERS = 1024, PROBE_BYTES = 4 * PROBE_NUMBERS };
enum { ONE = 0x3f800000, TWO = 0x40000000, SEVEN = 0x40e00000 /* as float */ };

/* How many SMs attention gets if it leaves `margin` of them alone: at least one. */
static uint32_t attention_share(uint32_t multiprocessors, uint32_t margin) {
    return margin < multiprocessors ? multiprocessors - margin : 1;
}

/* --- green contexts ----------------------------------------------------------------------------------------------- */

static fcp_code make_green(fcp_cuda_session *s, cuda_device *d, uint32_t wanted, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_resource all = {0}, part = {0};
    cu_resource_text text = NULL;
    unsigned parts = 1;
    if (!call->device_resource || !call->resource_split || !call->resource_text || !call->green_create ||
        !call->green_destroy || !call->green_stream)
        return fcp_fail(err, FCP_E_BACKEND, "the driver has no green contexts: %d.%d or later has",
                        FCP_CUDA_OPTIONAL_SINCE / 1000, FCP_CUDA_OPTIONAL_SINCE % 1000 / 10);
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->device_resource(d->handle, &all, CU_RESOURCE_SM), err,
                              "device %d does not say what can be split", d->handle);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->resource_split(&part, &parts, &all, NULL, 0, wanted), err,
                              "device %d cannot set %u of its %u multiprocessors apart", d->handle, wanted, all.count);
    if (!code && (parts != 1 || part.count < wanted || part.count >= all.count))
        code = fcp_fail(err, FCP_E_BACKEND, "device %d sets %u of its %u multiprocessors apart, where %u are asked for",
                        d->handle, parts ? part.count : 0, all.count, wanted);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->resource_text(&text, &part, 1), err, "device %d describes no partition",
                              d->handle);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->green_create(&d->green, text, d->handle, CU_GREEN_DEFAULT_STREAM), err,
                              "device %d makes no green context of %u multiprocessors", d->handle, part.count);
    d->green_count = part.count;
    return code;
}

typedef struct trial {
    cuda_device *device;
    cu_stream stream; /* a stream of the green context */
    cu_ptr numbers;   /* PROBE_NUMBERS each: sums, what is added to them, and where that is copied from */
    cu_graph graph;
    cu_graph_exec exec;
    bool runs;        /* it did not end in time, and may still write `numbers` */
} trial;

/* Adds once what a fill and a copy have put there, after what is in the origin; the origin then goes on after it. */
static fcp_code add_once(fcp_cuda_session *s, const trial *t, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    const cuda_kernel *k = &t->device->kernels[CUDA_ADD];
    cu_ptr added = t->numbers + PROBE_BYTES, source = added + PROBE_BYTES;
    fk_support add = {.to = t->numbers, .from = added, .count = PROBE_NUMBERS};
    void *list[] = {&add};
    fcp_code code = fcp_cuda_follow(s, &s->devices[0], s->origin, t->stream, err);
    if (!code) code = fcp_cuda_check(s->cuda, call->fill(source, TWO, PROBE_NUMBERS, t->stream), err, "a fill");
    if (!code) code = fcp_cuda_check(s->cuda, call->copy(added, source, PROBE_BYTES, t->stream), err, "a copy");
    if (!code)
        code = fcp_cuda_check(s->cuda, call->launch(k->function, 2, 1, 1, k->threads, 1, 1, 0, t->stream, list, NULL),
                              err, "a launch");
    return code ? code : fcp_cuda_follow(s, t->device, t->stream, s->origin, err);
}

static fcp_code capture_once(fcp_cuda_session *s, trial *t, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    fcp_error ignored;
    fcp_code code = fcp_cuda_check(s->cuda, call->capture_begin(s->origin, CU_CAPTURE_THREAD_LOCAL), err, "a capture");
    if (code) return code;
    code = add_once(s, t, err);
    fcp_code ended =
        fcp_cuda_check(s->cuda, call->capture_end(s->origin, &t->graph), code ? &ignored : err, "a capture's end");
    if (!code) code = ended;
    return code ? code : fcp_cuda_check(s->cuda, call->graph_instantiate(&t->exec, t->graph, 0), err, "a graph");
}

static fcp_code try_all(fcp_cuda_session *s, trial *t, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    uint32_t sums[PROBE_NUMBERS];
    fcp_code code = fcp_cuda_use(s, t->device, err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->green_stream(&t->stream, t->device->green, CU_STREAM_NON_BLOCKING, 0), err,
                              "a stream");
    if (!code) code = fcp_cuda_memory(s, t->device, 3 * sizeof sums, NULL, "a probe", &t->numbers, err);
    if (!code) code = fcp_cuda_check(s->cuda, call->fill(t->numbers, ONE, PROBE_NUMBERS, t->stream), err, "a fill");
    if (!code) code = add_once(s, t, err);
    if (!code) code = capture_once(s, t, err);
    if (!code) code = fcp_cuda_use(s, &s->devices[0], err);
    for (int i = 0; !code && i < 2; i++)
        code = fcp_cuda_check(s->cuda, call->graph_launch(t->exec, s->origin), err, "a replay");
    if (!code) code = fcp_cuda_use(s, t->device, err);
    if (!code) code = fcp_cuda_follow(s, &s->devices[0], s->origin, t->stream, err);
    if (!code) code = fcp_cuda_follow(s, t->device, t->stream, t->device->staging.stream, err);
    if (!code) code = fcp_cuda_download(s, t->device, sums, t->numbers, sizeof sums, err);
    /* the memory is freed next, and what is still running may write it */
    fcp_error ignored;
    fcp_code waited = t->stream ? fcp_cuda_wait(s, t->stream, "the probe", code ? &ignored : err) : FCP_OK;
    if (!code) code = waited;
    fcp_code drained = fcp_cuda_wait(s, s->origin, "the probe", code ? &ignored : err);
    if (!code) code = drained;
    if (waited || drained)
        t->runs = s->cuda->call.stream_query(s->origin) == CU_ERROR_NOT_READY ||
                  (t->stream && s->cuda->call.stream_query(t->stream) == CU_ERROR_NOT_READY);
    for (int i = 0; !code && i < PROBE_NUMBERS; i++)
        if (sums[i] != SEVEN) code = fcp_fail(err, FCP_E_RUN, "a replayed launch gives a wrong result");
    return code;
}

static fcp_code probe(fcp_cuda_session *s, cuda_device *d, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    trial t = {.device = d};
    fcp_error why = {0};
    fcp_code code = try_all(s, &t, &why);
    if (t.exec) call->graph_exec_destroy(t.exec);
    if (t.graph) call->graph_destroy(t.graph);
    if (!t.runs) fcp_cuda_release(s, d, t.numbers, NULL);
    if (t.stream) call->stream_destroy(t.stream);
    return code ? fcp_fail(err, code, "device %d, in a probe on a green context: %.300s", d->handle, why.message)
                : FCP_OK;
}

void fcp_cuda_partition_close(fcp_cuda_session *s, cuda_device *d) {
    if (d->green) s->cuda->call.green_destroy(d->green);
    d->green = NULL;
}

static fcp_code open_green(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        if (!d->apart) continue;
        code = make_green(s, d, attention_share((uint32_t)d->multiprocessors, s->base.margin), err);
        if (!code) code = probe(s, d, err);
    }
    for (uint32_t i = 0; code && i < s->device_count; i++) fcp_cuda_partition_close(s, &s->devices[i]);
    return code;
}

/* Attention uses what the green contexts have, in every pass: its streams belong to them. */
static void share_green(fcp_cuda_session *s) {
    for (uint32_t i = 0; i < s->device_count; i++)
        for (int pass = 0; pass < FCP_PASSES; pass++)
            if (s->devices[i].green) s->devices[i].attention[pass] = s->devices[i].green_count;
}

/* --- the session's partition -------------------------------------------------------------------------------------- */

/* Does a transfer of a rank in a pass need SMs of its device? */
static bool needs_share(const fcp_cuda_session *s, fcp_pass pass, uint32_t rank) {
    const fcp_stream *stream = fcp_stream_of(s->plan, pass, rank, FCP_COMM);
    for (uint32_t i = 0; i < stream->count; i++) {
        const fcp_instr *x = &s->plan->instrs[stream->first + i];
        if (x->op != FCP_OP_LAUNCH || fcp_cuda_moved_by(s->plan, pass, x) != FCP_CLASSES) continue;
        if (x->b && s->base.net->transport->processes) return true;
        for (uint32_t t = x->a; t < x->a + x->b; t++)
            if (s->ranks[s->plan->transfers[t].peer].device == s->ranks[rank].device ||
                fcp_is_rounded(s->plan, &s->plan->transfers[t]))
                return true;
    }
    return false;
}

/* Sets every device's share for attention, pass by pass. *out_any: some transfer needs SMs; *out_apart: on
 * some device, every pass has such. */
static void share(fcp_cuda_session *s, fcp_partition wanted, bool *out_any, bool *out_apart) {
    const fcp_problem *p = s->plan->problem;
    bool any = false, apart = false;
    for (uint32_t i = 0; i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        d->apart = true;
        for (int pass = 0; pass < FCP_PASSES; pass++) {
            bool talking = false;
            d->attention[pass] = (uint32_t)d->multiprocessors;
            if (!(p->passes >> pass & 1)) continue;
            for (uint32_t r = s->base.first_rank; !talking && r < fcp_cuda_end(s); r++)
                talking = s->ranks[r].device == d && needs_share(s, (fcp_pass)pass, r);
            d->apart &= talking;
            any |= talking;
            if (talking && wanted != FCP_PARTITION_NONE)
                d->attention[pass] = attention_share((uint32_t)d->multiprocessors, s->base.margin);
        }
        apart |= d->apart;
    }
    *out_any = any;
    *out_apart = apart;
}

void fcp_cuda_partition_again(fcp_cuda_session *s) {
    fcp_partition wanted = s->partition_wanted;
    bool any, apart;
    share(s, wanted, &any, &apart);
    share_green(s);
    if (s->partition == FCP_PARTITION_GREEN) return;
    s->partition = wanted != FCP_PARTITION_NONE && s->base.margin && any ? FCP_PARTITION_GRID : FCP_PARTITION_NONE;
    snprintf(s->partition_why, sizeof s->partition_why, "%s",
             s->partition == FCP_PARTITION_GRID ? "streams are those of the first batch"
             : wanted == FCP_PARTITION_NONE     ? "the session was asked for it"
             : any                              ? NO_MARGIN
                                                : NO_NEED);
}

fcp_code fcp_cuda_partition_open(fcp_cuda_session *s, fcp_error *err) {
    fcp_partition wanted = s->partition_wanted;
    fcp_error why = {0};
    bool any, apart;
    share(s, wanted, &any, &apart);
    fcp_code code = FCP_OK;
    s->partition = FCP_PARTITION_NONE;
    if (wanted != FCP_PARTITION_NONE && !s->base.margin) code = fcp_fail(&why, FCP_E_BACKEND, NO_MARGIN);
    else if (wanted != FCP_PARTITION_NONE && !any) code = fcp_fail(&why, FCP_E_BACKEND, NO_NEED);
    else if (wanted != FCP_PARTITION_NONE) s->partition = FCP_PARTITION_GRID;
    if (s->partition == FCP_PARTITION_GRID && wanted != FCP_PARTITION_GRID) {
        code = apart ? open_green(s, &why) : fcp_fail(&why, FCP_E_BACKEND, "no device has transfers in every pass");
        if (!code) s->partition = FCP_PARTITION_GREEN;
        if (!code) share_green(s);
    }
    snprintf(s->partition_why, sizeof s->partition_why, "%.399s",
             code                                 ? why.message
             : s->partition == FCP_PARTITION_GREEN ? "a probe has found what runs there right, captured and replayed"
                                                   : "the session was asked for it");
    if (code && wanted == FCP_PARTITION_GREEN)
        return fcp_fail(err, code, "attention cannot have green contexts: %.400s", s->partition_why);
    return FCP_OK;
}

fcp_code fcp_cuda_partition_check(const fcp_cuda_session *s, fcp_error *err) {
    for (int pass = 0; pass < FCP_PASSES; pass++)
        for (uint32_t r = s->base.first_rank; fcp_cuda_fused(s, (fcp_pass)pass) && r < fcp_cuda_end(s); r++) {
            const cuda_device *d = s->ranks[r].device;
            if (d->attention[pass] < (uint32_t)d->multiprocessors || !needs_share(s, (fcp_pass)pass, r)) continue;
            return fcp_fail(err, FCP_E_BACKEND,
                            "the %s pass cannot be fused: transfers of rank %u need multiprocessors of device %d, and "
                            "attention, which waits for them, has all %d; compile the session's first plan with a "
                            "margin of at least 1 and let --sm-partition be auto, grid or green",
                            fcp_pass_names[pass], r, d->handle, d->multiprocessors);
        }
    return FCP_OK;
}
