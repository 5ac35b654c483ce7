/* device.c: the devices of a session: contexts, kernels, what masks read, events, copies, waiting.
 *
 * Requires: a driver that fcp_cuda_open opened. Gives: parts.h.
 * Cost:     kernels are compiled once per architecture, those of the two passes side by side, or come from the disk cache; a
 *           copy of the plan's arrays and bands on each device.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/clock.h"
#include "runtime/cuda/parts.h"
#include "runtime/kernels/source.h"
#include "runtime/kernels/work.h"

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

fcp_code fcp_cuda_use(const fcp_cuda_session *s, const cuda_device *d, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.context_set(d->context), err, "cannot use device %d", d->handle);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static fcp_code attribute(fcp_cuda_session *s, cuda_device *d, int which, int *out, fcp_error *err) {
    return fcp_cuda_check(s->cuda, s->cuda->call.device_attribute(out, which, d->handle), err,
                          "device %d does not say its attribute %d", d->handle, which);
}

/* What its kernels are compiled for: of 9.0 with all that it has. */
static bool is_sm_90a(const cuda_device *d) { return d->major == 9 && d->minor == 0; }
static void name_arch(const cuda_device *d, char out[32]) {
    snprintf(out, 32, "sm_%d%d%s", d->major, d->minor, is_sm_90a(d) ? "a" : "");
}

static fcp_code open_device(fcp_cuda_session *s, cuda_device *d, int number, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    const fcp_problem *p = s->plan->problem;
    char arch[32];
    fcp_error why;
    fcp_code code = fcp_cuda_check(s->cuda, call->device_get(&d->handle, number), err, "there is no device %d", number);
    if (!code) code = fcp_cuda_check(s->cuda, call->device_name(d->name, sizeof d->name, d->handle), err, "device %d has no name", number);
    if (!code) code = attribute(s, d, CU_CAPABILITY_MAJOR, &d->major, err);
    if (!code) code = attribute(s, d, CU_CAPABILITY_MINOR, &d->minor, err);
    if (!code) code = attribute(s, d, CU_MULTIPROCESSORS, &d->multiprocessors, err);
    if (!code) code = attribute(s, d, CU_SHARED_MEMORY_OPTIN, &d->shared, err);
    if (code) return code;
    d->name[sizeof d->name - 1] = 0;
    name_arch(d, arch);
    if (fcp_arch_check(arch, &why))
        return fcp_fail(err, FCP_E_ARCH, "device %d (%s): %s", number, d->name, why.message);
    bool sm_90a = !s->mma_sync && is_sm_90a(d);
    d->forward = emit_forward(p->head_dim, sm_90a);
    d->backward = emit_backward(p->head_dim, p->deterministic, sm_90a);
    emit_kernel asked[EMIT_KERNELS];
    emit_kernels_of(p->head_dim, s->plan->score_count != 0, d->backward, asked);
    if (asked[0].shared > (uint32_t)d->shared) d->backward = EMIT_SPLIT;
    code = fcp_cuda_check(s->cuda, call->context_retain(&d->context, d->handle), err, "device %d (%s) cannot be opened",
                          number, d->name);
    d->retained = !code;
    return code;
}

/* Direct copies between devices, where they can. */
static fcp_code open_peers(fcp_cuda_session *s, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    for (uint32_t i = 0; i < s->device_count; i++)
        for (uint32_t j = 0; j < s->device_count; j++) {
            cuda_device *a = &s->devices[i], *b = &s->devices[j];
            int can = 0;
            if (i == j) continue;
            fcp_code code = fcp_cuda_check(s->cuda, call->can_peer(&can, a->handle, b->handle), err,
                                           "device %d does not say whether it reaches device %d", a->handle, b->handle);
            if (code) return code;
            if (!can) continue; /* copies then go through the host, by the driver */
            code = fcp_cuda_use(s, a, err);
            if (code) return code;
            cu_result result = call->enable_peer(b->context, 0);
            if (result == CU_ERROR_PEER_ACCESS_ALREADY_ENABLED) continue;
            if (result == CU_ERROR_TOO_MANY_PEERS || result == CU_ERROR_PEER_ACCESS_UNSUPPORTED) continue; /* as if it could not */
            code = fcp_cuda_check(s->cuda, result, err, "device %d cannot reach device %d", a->handle, b->handle);
            if (code) return code;
        }
    return FCP_OK;
}

fcp_code fcp_cuda_devices_open(fcp_cuda_session *s, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < s->device_count; i++) code = open_device(s, &s->devices[i], (int)(s->first_device + i), err);
    return code ? code : open_peers(s, err);
}

void fcp_cuda_device_close(fcp_cuda_session *s, cuda_device *d) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (!d->retained) return;
    call->context_set(d->context);
    fcp_cuda_stage_close(s, d);
    for (uint32_t i = 0; i < d->event_count; i++) call->event_destroy(d->events[i]);
    if (d->environment) call->release(d->environment);
    fcp_cuda_partition_close(s, d);
    for (int pass = 0; pass < FCP_PASSES; pass++)
        if (d->modules[pass]) call->module_unload(d->modules[pass]);
    call->context_release(d->handle);
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* The first thing worth knowing is kept. */
static void warn(fcp_cuda_session *s, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void warn(fcp_cuda_session *s, const char *format, ...) {
    va_list args;
    if (s->warning[0]) return;
    va_start(args, format);
    vsnprintf(s->warning, sizeof s->warning, format, args);
    va_end(args);
}

/* What the driver says of a kernel, against what its skeleton says: more is an error; spills are right, and slow. Where
 * warpgroups give each other registers, fewer than are shared out would let some wait for ever. */
static fcp_code check_kernel(fcp_cuda_session *s, const cuda_device *d, const cuda_kernel *k, const emit_kernel *asked,
                             fcp_error *err) {
    static const int which[] = {CU_FUNC_MAX_THREADS, CU_FUNC_SHARED, CU_FUNC_LOCAL, CU_FUNC_REGISTERS};
    int says[4] = {0};
    fcp_code code = FCP_OK;
    for (int i = 0; !code && i < 4; i++)
        code = fcp_cuda_check(s->cuda, s->cuda->call.function_attribute(&says[i], which[i], k->function), err,
                              "the driver does not say what %s takes", asked->name);
    if (code) return code;
    if (says[3] > (int)asked->registers || says[0] < (int)asked->threads)
        return fcp_fail(err, FCP_E_COMPILE,
                        "%s takes %d registers a thread on device %d (%s), of %u that it may, and runs %d threads a block, of %u; "
                        "another NVRTC (FCP_NVRTC) would do", asked->name, says[3], d->handle, d->name, asked->registers, says[0],
                        asked->threads);
    if (asked->maps && says[3] < (int)asked->registers)
        return fcp_fail(err, FCP_E_COMPILE,
                        "%s begins with %d registers a thread on device %d (%s), and its warpgroups share out %u, which they "
                        "would wait for; another NVRTC (FCP_NVRTC), or the kernels for mma.sync, would do", asked->name,
                        says[3], d->handle, d->name, asked->registers);
    if (says[1] > d->shared - (int)k->shared)
        return fcp_fail(err, FCP_E_COMPILE, "%s takes %d bytes of shared memory on device %d (%s) beside its %u, which has %d",
                        asked->name, says[1], d->handle, d->name, k->shared, d->shared);
    if (says[2])
        warn(s, "%s keeps %d bytes a thread in local memory on device %d (%s), which costs time: another NVRTC (FCP_NVRTC) may not",
             asked->name, says[2], d->handle, d->name);
    return FCP_OK;
}

static fcp_code find_kernel(fcp_cuda_session *s, cuda_device *d, cu_module module, cuda_kernel_id id,
                            const emit_kernel *asked, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cuda_kernel *k = &d->kernels[id];
    int blocks = 0;
    *k = (cuda_kernel){NULL, asked->name, asked->threads, asked->shared, asked->parts, asked->maps, 0};
    if (k->shared > (uint32_t)d->shared)
        return fcp_fail(err, FCP_E_BACKEND,
                        "device %d (%s) gives a block %d bytes of shared memory; %s needs %u: another GPU, or a smaller head_dim, "
                        "would do", d->handle, d->name, d->shared, asked->name, k->shared);
    fcp_code code = fcp_cuda_check(s->cuda, call->module_function(&k->function, module, asked->name), err,
                                   "the kernels have no %s", asked->name);
    if (!code) code = check_kernel(s, d, k, asked, err);
    if (!code && k->shared)
        code = fcp_cuda_check(s->cuda, call->function_set(k->function, CU_FUNC_MAX_DYNAMIC_SHARED, (int)k->shared), err,
                              "%s cannot have %u bytes of shared memory", asked->name, k->shared);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->occupancy(&blocks, k->function, (int)k->threads, k->shared), err,
                              "the driver does not say how many blocks of %s fit", asked->name);
    if (!code && blocks < 1)
        code = fcp_fail(err, FCP_E_BACKEND, "no block of %s fits on device %d (%s)", asked->name, d->handle, d->name);
    k->resident = code ? 0 : (uint32_t)blocks;
    return code;
}

static fcp_code find_kernels(fcp_cuda_session *s, cuda_device *d, cu_module module, unsigned skeletons, fcp_error *err) {
    static const char *const support[] = {[CUDA_BEGIN_LSE] = "fk_begin_lse", [CUDA_DELTA] = "fk_delta",
                                          [CUDA_ADD] = "fk_add", [CUDA_ROUND] = "fk_round"};
    static const char *const names[] = {[CUDA_FORWARD] = "fk_forward", [CUDA_DKV] = "fk_backward_dkv",
                                        [CUDA_DQ] = "fk_backward_dq", [CUDA_ORDERED] = "fk_backward_ordered",
                                        [CUDA_UNORDERED] = "fk_backward_unordered"};
    static const unsigned sm90[] = {[CUDA_FORWARD] = EMIT_FORWARD_SM90, [CUDA_ORDERED] = EMIT_ORDERED_SM90,
                                    [CUDA_UNORDERED] = EMIT_UNORDERED_SM90};
    emit_kernel asked[EMIT_KERNELS];
    uint32_t count = emit_kernels_of(s->plan->problem->head_dim, s->plan->score_count != 0, skeletons, asked);
    fcp_code code = FCP_OK;
    for (uint32_t i = 0; !code && i < count; i++)
        for (int id = CUDA_FORWARD; !code && id <= CUDA_UNORDERED; id++)
            if (strcmp(names[id], asked[i].name) == 0 || asked[i].skeleton == sm90[id])
                code = find_kernel(s, d, module, (cuda_kernel_id)id, &asked[i], err);
    for (int id = CUDA_BEGIN_LSE; skeletons & EMIT_SUPPORT && !code && id <= CUDA_ROUND; id++) {
        const emit_kernel one = {.name = support[id], .threads = FK_SUPPORT_THREADS, .registers = FK_SUPPORT_REGISTERS,
                                 .parts = 1};
        code = find_kernel(s, d, module, (cuda_kernel_id)id, &one, err);
    }
    return code;
}

/* What a pass's module is made of. What both passes need beside them is always in the forward pass's: so neither source depends
 * on whether the plan has the other pass. */
static unsigned skeletons_of(const fcp_cuda_session *s, const cuda_device *d, int pass) {
    bool has = s->plan->problem->passes >> pass & 1;
    if (pass == FCP_FORWARD) return EMIT_SUPPORT | (has ? d->forward : 0);
    return has ? d->backward : 0;
}

/* The module of a pass, in place of one that there was. */
static fcp_code load_module(fcp_cuda_session *s, cuda_device *d, int pass, const char *arch, const fcp_cubin *cubin,
                            fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    free(d->sources[pass]);
    d->sources[pass] = NULL;
    cu_module before = d->modules[pass];
    d->modules[pass] = NULL; /* whatever giving it up says, it is not given up again */
    fcp_code code = !before ? FCP_OK
                            : fcp_cuda_check(s->cuda, call->module_unload(before), err, "device %d does not give kernels up",
                                             d->handle);
    if (code) return code;
    code = fcp_cuda_check(s->cuda, call->module_load(&d->modules[pass], cubin->bytes), err,
                          "device %d does not take the kernels compiled for %s; the driver is for CUDA %d.%d, and what a "
                          "later NVRTC compiles may be too new for it (FCP_NVRTC names another)", d->handle, arch,
                          s->cuda->version / 1000, s->cuda->version % 1000 / 10);
    return code ? code : find_kernels(s, d, d->modules[pass], skeletons_of(s, d, pass), err);
}

static fcp_code load_kernels(fcp_cuda_session *s, fcp_jit *jit, cuda_device *d, fcp_error *err) {
    fcp_jit_part parts[FCP_PASSES] = {{.source = NULL}};
    char arch[32], *sources[FCP_PASSES] = {NULL};
    int passes[FCP_PASSES];
    uint32_t count = 0;
    fcp_code code = FCP_OK;
    name_arch(d, arch);
    for (int pass = 0; !code && pass < FCP_PASSES; pass++) {
        unsigned skeletons = skeletons_of(s, d, pass);
        char *source = NULL;
        if (!skeletons) continue;
        code = fcp_kernel_source(s->plan, skeletons, &source, err);
        if (code) break;
        if (d->modules[pass] && d->sources[pass] && strcmp(d->sources[pass], source) == 0) {
            free(source);
            continue;
        }
        sources[count] = source;
        parts[count].source = source;
        passes[count++] = pass;
    }
    if (!code && count) code = fcp_jit_compile_parts(jit, "fcpc.cu", arch, NULL, parts, count, err);
    if (*fcp_jit_warning(jit)) warn(s, "%s", fcp_jit_warning(jit));
    if (!code && count) code = fcp_cuda_use(s, d, err);
    for (uint32_t i = 0; !code && i < count; i++) {
        code = load_module(s, d, passes[i], arch, &parts[i].cubin, err);
        if (code) break;
        d->sources[passes[i]] = sources[i];
        sources[i] = NULL;
    }
    for (uint32_t i = 0; i < count; i++) {
        fcp_cubin_free(&parts[i].cubin);
        free(sources[i]);
    }
    return code;
}

fcp_code fcp_cuda_kernels_load(fcp_cuda_session *s, fcp_error *err) {
    fcp_jit *jit = NULL;
    fcp_code code = fcp_jit_open(NULL, &jit, err);
    if (code) return code;
    for (uint32_t i = 0; !code && i < s->device_count; i++) code = load_kernels(s, jit, &s->devices[i], err);
    fcp_jit_close(jit);
    return code;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

size_t fcp_cuda_allocated(size_t bytes) { return bytes ? bytes : ALIGN; }

fcp_code fcp_cuda_memory(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                         cu_ptr *out, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    fcp_code code = fcp_cuda_use(s, d, err);
    if (!code)
        code = fcp_cuda_check(s->cuda, call->allocate(out, fcp_cuda_allocated(bytes)), err, "device %d has no %zu bytes for %s",
                              d->handle, bytes, what);
    if (code || !from || !bytes) return code;
    code = fcp_cuda_stage_in(s, d, *out, from, bytes, err);
    return code ? code : fcp_cuda_stage_flush(s, d, err);
}

fcp_code fcp_cuda_memory_again(fcp_cuda_session *s, cuda_device *d, size_t bytes, const void *from, const char *what,
                               cu_ptr *memory, size_t *held, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (*memory && bytes <= *held) {
        fcp_code code = from ? fcp_cuda_stage_in(s, d, *memory, from, bytes, err) : FCP_OK;
        return code || !from ? code : fcp_cuda_stage_flush(s, d, err);
    }
    fcp_code code = fcp_cuda_use(s, d, err);
    if (code) return code;
    if (*memory) code = fcp_cuda_check(s->cuda, call->release(*memory), err, "device %d does not give memory up", d->handle);
    *memory = 0;
    *held = 0;
    if (!code) code = fcp_cuda_memory(s, d, bytes, from, what, memory, err);
    if (!code) *held = fcp_cuda_allocated(bytes);
    return code;
}

/* What masks and scores read, in this order, each part aligned. */
struct parts {
    size_t sequences, arrays, bands, sinks, data, band_rows, band, size;
};
static struct parts parts_of(const fcp_plan *plan) {
    struct parts x = {0};
    size_t at = 0;
    x.sequences = at, at += aligned(plan->sequences_count * sizeof(fk_sequence));
    x.arrays = at, at += aligned(plan->arrays_count * sizeof(fk_u64));
    x.bands = at, at += aligned(plan->slices_count * sizeof(fk_bands));
    x.sinks = at, at += aligned(plan->sink_count * sizeof(float));
    x.data = at, at += aligned(plan->data_count);
    x.band_rows = at, at += aligned(plan->band_rows_count * sizeof(mc_band_rows));
    x.band = at, at += aligned(plan->bands_count * sizeof(mc_band));
    x.size = at;
    return x;
}
size_t fcp_cuda_environment_size(const fcp_plan *plan) { return parts_of(plan).size; }

static void put(char *to, const void *from, size_t bytes) {
    if (bytes) memcpy(to, from, bytes);
}

fcp_code fcp_cuda_environment_load(fcp_cuda_session *s, fcp_error *err) {
    const fcp_plan *plan = s->plan;
    struct parts x = parts_of(plan);
    char *bytes = calloc(1, x.size + ALIGN);
    if (!bytes) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for %zu bytes of fields", x.size);
    fcp_code code = FCP_OK;
    fcp_kernel_sequences(plan, (fk_sequence *)(void *)(bytes + x.sequences));
    for (uint64_t i = 0; i < plan->sink_count; i++) {
        float sink = (float)plan->sink[i];
        memcpy(bytes + x.sinks + i * sizeof sink, &sink, sizeof sink);
    }
    fcp_kernel_data(plan, bytes + x.data);
    put(bytes + x.band_rows, plan->band_rows, plan->band_rows_count * sizeof *plan->band_rows);
    put(bytes + x.band, plan->bands, plan->bands_count * sizeof *plan->bands);
    for (uint32_t i = 0; !code && i < s->device_count; i++) {
        cuda_device *d = &s->devices[i];
        code = fcp_cuda_memory_again(s, d, x.size, NULL, "fields", &d->environment, &d->environment_held, err);
        if (code) break;
        fcp_kernel_arrays(plan, d->environment + x.data, (fk_u64 *)(void *)(bytes + x.arrays));
        fcp_kernel_bands(plan, d->environment + x.band_rows, d->environment + x.band, (fk_bands *)(void *)(bytes + x.bands));
        d->sequences = d->environment + x.sequences;
        d->arrays = d->environment + x.arrays;
        d->bands = d->environment + x.bands;
        d->sinks = plan->sink_count ? d->environment + x.sinks : 0;
        if (!x.size) continue;
        code = fcp_cuda_stage_in(s, d, d->environment, bytes, x.size, err);
        if (!code) code = fcp_cuda_stage_flush(s, d, err);
    }
    free(bytes);
    return code;
}

/* --- order -------------------------------------------------------------------------------------------------------- */

fcp_code fcp_cuda_event_take(fcp_cuda_session *s, cuda_device *d, cu_event *out, fcp_error *err) {
    if (d->event_free == 0) {
        if (d->event_count == d->event_capacity) {
            uint32_t capacity = d->event_capacity ? 2 * d->event_capacity : 32;
            cu_event *bigger = realloc(d->events, capacity * sizeof *bigger);
            if (!bigger) return fcp_fail(err, FCP_E_NO_MEMORY, "out of memory for events");
            d->events = bigger;
            d->event_capacity = capacity;
        }
        const fcp_cuda_table *call = &s->cuda->call;
        cu_event made = NULL;
        cu_context before = NULL;
        fcp_code code = fcp_cuda_check(s->cuda, call->context_get(&before), err, "no current context");
        if (!code) code = fcp_cuda_use(s, d, err);
        if (!code)
            code = fcp_cuda_check(s->cuda, call->event_create(&made, CU_EVENT_DISABLE_TIMING), err, "device %d makes no event",
                                  d->handle);
        if (!code && before != d->context) { /* whoever works on another device goes on there */
            code = fcp_cuda_check(s->cuda, call->context_set(before), err, "cannot go back to the device that was in use");
            if (code) call->event_destroy(made);
        }
        if (code) return code;
        if (d->event_count) d->events[d->event_count] = d->events[0];
        d->events[0] = made;
        d->event_count++;
        d->event_free = 1;
    }
    *out = d->events[--d->event_free];
    return FCP_OK;
}

void fcp_cuda_event_give(cuda_device *d, cu_event event) {
    for (uint32_t i = d->event_free; i < d->event_count; i++)
        if (d->events[i] == event) {
            d->events[i] = d->events[d->event_free];
            d->events[d->event_free++] = event;
            return;
        }
}

fcp_code fcp_cuda_follow(fcp_cuda_session *s, cuda_device *d, cu_stream from, cu_stream to, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    cu_event event = NULL;
    fcp_code code = fcp_cuda_event_take(s, d, &event, err);
    if (code) return code;
    code = fcp_cuda_check(s->cuda, call->event_record(event, from), err, "cannot record an event");
    if (!code) code = fcp_cuda_check(s->cuda, call->stream_wait_event(to, event, 0), err, "cannot wait for an event");
    fcp_cuda_event_give(d, event);
    return code;
}

fcp_code fcp_cuda_fork(fcp_cuda_session *s, cuda_device *d, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++)
        for (int q = 0; !code && q < FCP_QUEUES; q++) code = fcp_cuda_follow(s, d, origin, s->ranks[r].streams[q], err);
    return code;
}

fcp_code fcp_cuda_join(fcp_cuda_session *s, cu_stream origin, fcp_error *err) {
    fcp_code code = FCP_OK;
    for (uint32_t r = s->base.first_rank; !code && r < fcp_cuda_end(s); r++)
        for (int q = 0; !code && q < FCP_QUEUES; q++)
            code = fcp_cuda_follow(s, s->ranks[r].device, s->ranks[r].streams[q], origin, err);
    return code;
}

fcp_code fcp_cuda_wait_event(fcp_cuda_session *s, cu_event event, const char *what, fcp_error *err) {
    fcp_patience patience = fcp_patience_of(s->timeout_s, 0.1);
    long pause = 5000;
    for (;; fcp_pause(&pause, 200000)) {
        cu_result result = s->cuda->call.event_query(event);
        if (result != CU_ERROR_NOT_READY) return fcp_cuda_check(s->cuda, result, err, "%s failed", what);
        fcp_code code = s->nccl ? fcp_cuda_nccl_watch(s, what, err) : FCP_OK;
        if (code) return code;
        if (fcp_patience_ends(&patience)) return fcp_fail(err, FCP_E_RUN, "%s did not end within %u s", what, s->timeout_s);
    }
}

fcp_code fcp_cuda_wait(fcp_cuda_session *s, cu_stream stream, const char *what, fcp_error *err) {
    fcp_patience patience = fcp_patience_of(s->timeout_s, 0.1);
    long pause = 10000;
    fcp_code code = FCP_OK;
    for (;; fcp_pause(&pause, 1000000)) {
        cu_result result = s->cuda->call.stream_query(stream);
        if (result == CU_SUCCESS || (code && result != CU_ERROR_NOT_READY)) return code;
        /* what is in the stream may go on: the memory that it names is not given up before it has ended, or failed twice */
        if (result != CU_ERROR_NOT_READY) code = fcp_cuda_check(s->cuda, result, err, "%s failed", what);
        else if (fcp_patience_ends(&patience))
            return code ? code : fcp_fail(err, FCP_E_RUN, "%s did not end within %u s", what, s->timeout_s);
        if (!code && s->nccl && (code = fcp_cuda_nccl_watch(s, what, err))) return code; /* aborting it ends what waits */
    }
}

fcp_code fcp_cuda_copy(fcp_cuda_session *s, cuda_device *to_device, cu_ptr to, cuda_device *from_device, cu_ptr from,
                       size_t bytes, cu_stream stream, fcp_error *err) {
    const fcp_cuda_table *call = &s->cuda->call;
    if (!bytes) return FCP_OK;
    cu_result result = to_device == from_device
                           ? call->copy(to, from, bytes, stream)
                           : call->copy_peer(to, to_device->context, from, from_device->context, bytes, stream);
    return fcp_cuda_check(s->cuda, result, err, "cannot copy %zu bytes from device %d to device %d", bytes,
                          from_device->handle, to_device->handle);
}
